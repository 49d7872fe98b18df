//! An epoch with one operation and a computation at both ranks. If the operation travels during the computation, the
//! epoch takes as long as the computation.

use std::time::Duration;

use samite::{AccessKind, Epoch, Error, LockKind, Rank, Window};

use super::{Bound, Calls, Case, Figures, Job, Row, since_us};
use crate::failure::now_ns;

/// The time of the computation (Zounmevo 2014, section 5.8.1).
const COMPUTATION: Duration = Duration::from_micros(2000);

const LENGTHS: [usize; 4] = [4, 16 << 10, 256 << 10, 1 << 20];

/// The bound of the ratio of the epoch's time to the computation's.
const BOUND: Bound = Bound::AtMost(1.05);

const ORIGIN: Rank = Rank(0);
const TARGET: Rank = Rank(1);

/// The kinds of epochs.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Pair,
    Fence,
    Lock,
}

/// An epoch to measure.
#[derive(Clone, Copy, Debug)]
struct Variant {
    kind: Kind,
    is_get: bool,
    calls: Calls,
}

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let lengths = job.args.lengths(&LENGTHS);
    let window = job.comm.allocate_window::<u8>(lengths.iter().copied().max().unwrap_or(0))?;
    let mut are_kept = true;
    for (kind, name) in [(Kind::Pair, "start and post"), (Kind::Fence, "fence"), (Kind::Lock, "lock")] {
        let mut rows = Vec::new();
        for is_get in [false, true] {
            for &bytes in &lengths {
                rows.extend(rows_of(job, &window, kind, is_get, bytes)?);
            }
        }
        let about = format!("overlap, an epoch of {name} with a computation of 2000 us, us");
        are_kept &= job.print(&about, &rows);
    }
    window.free()?;
    Ok(are_kept)
}

/// Measures one operation of one length, at both ranks if the target has an epoch too.
fn rows_of(
    job: &Job<'_>,
    window: &Window<u8>,
    kind: Kind,
    is_get: bool,
    bytes: usize,
) -> Result<Vec<Row>, Error> {
    let case = Case {
        bench: "overlap",
        metric: "epoch_us",
        unit: "us",
        bytes: Some(bytes),
        depth: None,
        to: "the computation",
    };
    let mut buffer = vec![1; bytes];
    // The figures of the origin, then those of the target.
    let rounds = job.in_turns(Calls::ALL.len(), |variant| {
        let variant = Variant { kind, is_get, calls: Calls::ALL[variant] };
        let [epoch, computation] = run(job, window, &mut buffer, variant)?;
        Ok(match job.rank() {
            0 => [epoch, computation, 0.0, 0.0],
            _ => [0.0, 0.0, epoch, computation],
        })
    })?;
    let operation = if is_get { "get" } else { "put" };
    let mut rows = Vec::new();
    for (side, name) in ["origin", "target"].into_iter().enumerate() {
        for (calls, rounds) in Calls::ALL.iter().zip(&rounds) {
            let times = |at: usize| rounds.iter().map(move |round| round[2 * side + at]);
            let values: Vec<_> = times(0).collect();
            // The target of a lock has no epoch.
            if values.iter().all(|time| *time == 0.0) {
                continue;
            }
            let ratios = times(0).zip(times(1)).map(|(epoch, computation)| epoch / computation).collect();
            let name = format!("{operation} {}, {name}", calls.name());
            rows.push(Row::new(job, &case, &name, Figures { values, ratios }).bounded(BOUND));
        }
    }
    // "The curves oscillate between 2000 us and 2020 us".
    rows.push(Row::published(&case, operation, 2, 2020.0));
    Ok(rows)
}

/// Runs this rank's part. Returns the time of its epoch and that of its computation, or zeros if it has no epoch.
fn run(
    job: &Job<'_>,
    window: &Window<u8>,
    buffer: &mut Vec<u8>,
    variant: Variant,
) -> Result<[f64; 2], Error> {
    let begin_ns = now_ns();
    let is_origin = job.comm.rank() == ORIGIN;
    let computed = match (variant.kind, is_origin) {
        (Kind::Pair, true) => access(window.start(&[TARGET])?, buffer, variant)?,
        (Kind::Pair, false) => variant.calls.close(window.post(&[ORIGIN])?, COMPUTATION)?,
        (Kind::Fence, true) => access(window.fence()?, buffer, variant)?,
        (Kind::Fence, false) => variant.calls.close(window.fence()?, COMPUTATION)?,
        (Kind::Lock, true) => access(window.lock(TARGET, LockKind::Exclusive)?, buffer, variant)?,
        (Kind::Lock, false) => return Ok([0.0; 2]),
    };
    Ok([since_us(begin_ns), computed])
}

/// Starts the operation, and closes the epoch around the computation. Returns the time of the computation.
fn access<K: AccessKind>(
    epoch: Epoch<'_, u8, K>,
    buffer: &mut Vec<u8>,
    variant: Variant,
) -> Result<f64, Error> {
    let data = std::mem::take(buffer);
    let operation = match variant.is_get {
        true => epoch.iget(TARGET, 0, data)?,
        false => epoch.iput(TARGET, 0, data)?,
    };
    let computed = variant.calls.close(epoch, COMPUTATION)?;
    *buffer = operation.wait()?.buffer;
    Ok(computed)
}
