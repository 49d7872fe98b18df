//! A solver that loses a rank and goes on: Jacobi's method for a linear system, whose ranks share the work anew after a
//! failure.
//!
//! ```console
//! $ samite run -n 4 --on-failure continue --exit-code rank0 -- target/release/examples/solver [UNKNOWNS [STEPS]]
//! ```
//!
//! Unless it is the only one, the last rank ends itself after a third of the steps. Each rank has the whole vector
//! after each step, so the survivors lose no state. Rank 0 computes the result alone, and compares.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::ops::Range;

use samite::reduction::Min;
use samite::{Comm, Error};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let unknowns: usize = args.next().map_or(Ok(2_000), |text| text.parse())?;
    let steps: u64 = args.next().map_or(Ok(600), |text| text.parse())?;
    let world = samite::init()?;
    let ranks = world.comm().size();
    let fails_at = (ranks > 1 && world.comm().rank().0 == ranks - 1).then_some(steps / 3);

    let mut comm = world.comm().clone();
    let mut solver = Solver { step: 0, x: vec![0.0; unknowns], previous: vec![0.0; unknowns] };
    loop {
        let end = solver.run(&comm, steps, fails_at);
        match &end {
            Ok(()) => {}
            // The other ranks may wait for operations that this rank will not begin.
            Err(Error::PeerFailed { .. } | Error::Revoked) => comm.revoke()?,
            Err(error) => return Err(error.clone().into()),
        }
        // A rank that has finished must go on too, if another one has not.
        if comm.agree(end.is_ok().into())?.flags == 1 {
            break;
        }
        comm = comm.shrink()?;
    }
    if world.comm().rank() == 0 {
        let mut alone = vec![0.0; unknowns];
        for _ in 0..steps {
            alone = (0..unknowns).map(|i| relaxed(&alone, i)).collect();
        }
        assert!(alone == solver.x, "the result is that of one process");
        println!(
            "solver: ranks={ranks} survivors={} unknowns={unknowns} steps={steps} verified",
            comm.size()
        );
    }
    Ok(())
}

/// The state of the iteration. All ranks have the same vectors, and are at most one step apart.
struct Solver {
    /// The number of steps that led to `x`.
    step: u64,
    x: Vec<f64>,
    /// The vector before the last step.
    previous: Vec<f64>,
}

impl Solver {
    /// Iterates from the last step that all ranks of the communicator have finished.
    fn run(&mut self, comm: &Comm, steps: u64, fails_at: Option<u64>) -> Result<(), Error> {
        let mut first = [self.step];
        comm.allreduce_in_place(&mut first, Min)?;
        if first[0] < self.step {
            self.x.clone_from(&self.previous);
            self.step = first[0];
        }
        let blocks = blocks(self.x.len(), comm.size() as usize);
        let mine = &blocks[comm.rank().index()];
        while self.step < steps {
            if fails_at == Some(self.step) {
                std::process::abort();
            }
            let part: Vec<f64> = mine.clone().map(|i| relaxed(&self.x, i)).collect();
            let mut next = vec![0.0; self.x.len()];
            comm.allgatherv(&part, &mut next, &blocks)?;
            self.previous = std::mem::replace(&mut self.x, next);
            self.step += 1;
        }
        Ok(())
    }
}

/// Returns the new value of an unknown. Row `i` of the system is `4 x[i] - x[i - 1] - x[i + 1] = i + 1`.
fn relaxed(x: &[f64], i: usize) -> f64 {
    let left = if i == 0 { 0.0 } else { x[i - 1] };
    let right = x.get(i + 1).copied().unwrap_or(0.0);
    ((i + 1) as f64 + left + right) / 4.0
}

/// Divides `len` unknowns into blocks of almost the same length.
fn blocks(len: usize, ranks: usize) -> Vec<Range<usize>> {
    (0..ranks).map(|rank| len * rank / ranks..len * (rank + 1) / ranks).collect()
}
