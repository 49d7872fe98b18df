//! Rank 0 gives parts of a sum to the other ranks. For each of them, a task of rank 0 awaits the result of a part, and
//! then sends the next part, so that a fast rank gets more parts than a slow rank.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/farm [PARTS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::cell::RefCell;
use std::error::Error;
use std::ops::Range;

use samite::{Comm, Rank, Tag};

const PART: u64 = 1;
const END: u64 = 2;
const RESULT: u64 = 3;

/// How many numbers one part has.
const LEN: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let parts: u64 = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    if comm.rank() != 0 {
        return Ok(smol::block_on(work(comm))?);
    }
    let remaining = RefCell::new(0..parts);
    let workers = (1..comm.size()).map(Rank);
    // All tasks run in this thread.
    let executor = smol::LocalExecutor::new();
    let tasks: Vec<_> = workers.map(|worker| executor.spawn(direct(comm, worker, &remaining))).collect();
    let mut sum = 0;
    let mut done = 0;
    smol::block_on(executor.run(async {
        for task in tasks {
            let (parts, part_of_sum) = task.await?;
            done += parts;
            sum += part_of_sum;
        }
        Ok::<(), samite::Error>(())
    }))?;
    if comm.size() == 1 {
        (done, sum) = (parts, (0..parts).map(sum_of).sum());
    }
    let numbers = parts * LEN;
    let expected = numbers * numbers.saturating_sub(1) / 2;
    if (done, sum) != (parts, expected) {
        return Err(format!("{done} parts have the sum {sum}, not {expected}").into());
    }
    println!("farm: ranks={} parts={parts} sum={sum} verified", comm.size());
    Ok(())
}

/// Sends parts to a worker until no part remains. Returns how many parts the worker got, and the sum of its results.
async fn direct(
    comm: &Comm,
    worker: Rank,
    remaining: &RefCell<Range<u64>>,
) -> Result<(u64, u64), samite::Error> {
    let (mut parts, mut sum) = (0, 0);
    loop {
        let next = remaining.borrow_mut().next();
        let Some(part) = next else { break };
        comm.isend(vec![part], worker, PART)?.await?;
        sum += comm.irecv(vec![0_u64; 1], worker, RESULT)?.await?.buffer[0];
        parts += 1;
    }
    comm.isend(vec![0_u64; 0], worker, END)?.await?;
    Ok((parts, sum))
}

/// Receives parts, and sends the sum of each part to rank 0, until rank 0 sends `END`.
async fn work(comm: &Comm) -> Result<(), samite::Error> {
    loop {
        let message = comm.claim_async(Rank(0), Tag::ANY).await?;
        if message.status().tag == END {
            message.recv::<u64>()?;
            return Ok(());
        }
        let part = message.irecv(vec![0_u64; 1])?.await?.buffer[0];
        comm.isend(vec![sum_of(part)], Rank(0), RESULT)?.await?;
    }
}

fn sum_of(part: u64) -> u64 {
    (part * LEN..(part + 1) * LEN).sum()
}
