//! From iterations of a loop to a figure.
//!
//! Rank 0 leads: it tells the others how many iterations come next, waits until they are ready, and takes the
//! time. It warms up until a batch of iterations lasts long enough to be timed; then it times several
//! batches, and their median is the run's figure. So a run takes about the same time over any transport,
//! whatever the length of the messages.

use std::time::{Duration, Instant};

use crate::benchmark::{Benchmark, Point};
use crate::spread::Spread;

/// The time that a batch takes at least, unless its first iteration takes longer.
const BATCH: Duration = Duration::from_millis(5);

/// The time before the first batch that counts.
const WARM_UP: Duration = Duration::from_millis(60);

/// Batches in a run: the most, or as many as fit in the time, but not fewer than the least.
const BATCHES_MAX: usize = 25;
const BATCHES_MIN: usize = 5;
const BATCHES_TIME_MAX: Duration = Duration::from_secs(1);

/// One of the ranks that run a loop.
///
/// Both call the same methods with the same arguments; where they differ, it says how.
pub(crate) trait End {
    /// Which of them this is.
    fn rank(&self) -> u32;

    /// What carries the bytes, as records name it.
    fn transport(&self) -> String;

    /// Makes ready for a point.
    fn prepare(&mut self, benchmark: Benchmark, point: Point) -> Result<(), EndError>;

    /// Rank 0 tells the others a number, and waits until they have it. Each returns the number.
    fn agree(&mut self, number: u64) -> Result<u64, EndError>;

    /// Runs this side of the loop for which it was made ready, and returns the time it took; rank 0's counts.
    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError>;
}

/// Why an implementation failed. Nothing is done about it but to print it.
pub(crate) type EndError = Box<dyn std::error::Error + Send + Sync>;

/// Measures one point; rank 0 gets the figure.
pub(crate) fn measure(
    end: &mut impl End,
    benchmark: Benchmark,
    point: Point,
) -> Result<Option<Spread>, EndError> {
    end.prepare(benchmark, point)?;
    if end.rank() != 0 {
        loop {
            match end.agree(0)? {
                0 => return Ok(None),
                iterations => end.iterate(iterations)?,
            };
        }
    }

    let mut batch = |iterations: u64| {
        end.agree(iterations)?;
        end.iterate(iterations)
    };
    let mut iterations = 1;
    let begin = Instant::now();
    loop {
        let time = batch(iterations)?;
        if time < BATCH {
            let wanted = BATCH.as_nanos() * u128::from(iterations) / time.as_nanos().max(1);
            // The first iterations are slow, and the clock is coarse.
            iterations = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(iterations * 2, iterations * 10);
        } else if begin.elapsed() >= WARM_UP {
            break;
        }
    }
    let mut figures = Vec::new();
    let begin = Instant::now();
    while figures.len() < BATCHES_MIN || figures.len() < BATCHES_MAX && begin.elapsed() < BATCHES_TIME_MAX {
        let time = batch(iterations)?;
        figures.push(benchmark.figure(point, time.div_f64(iterations as f64)));
    }
    end.agree(0)?;
    Ok(Spread::of(figures))
}
