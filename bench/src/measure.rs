//! Computes a figure from iterations of a loop.
//!
//! Rank 0 sends the number of iterations to the other ranks, waits until they are ready, and takes the time. It first
//! runs warm-up batches, until three batches in a row last long enough to be timed. Then it times several batches. The
//! median of the batches is the run's figure. So a run takes about the same time over any transport and for any message
//! length.

use std::time::{Duration, Instant};

use crate::benchmark::{Benchmark, Point};
use crate::spread::Spread;

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The minimum time of a batch. During the warm-up, the number of iterations grows until three batches in a row take this long.
    batch: Duration,
    /// The time before the first counted batch.
    warm_up: Duration,
    /// The maximum number of counted batches in a run.
    batches_max: usize,
    /// The minimum number of counted batches in a run.
    batches_min: usize,
    /// The time after which a run begins no more batches, if it has the minimum number.
    batches_time_max: Duration,
}

impl Pace {
    /// The pace of benchmarks.
    const FULL: Self = Self {
        batch: Duration::from_millis(5),
        warm_up: Duration::from_millis(60),
        batches_max: 25,
        batches_min: 5,
        batches_time_max: Duration::from_secs(1),
    };

    /// The pace of measurements of many points with more ranks than cores, whose times vary.
    pub(crate) const STEADY: Self = Self {
        batch: Duration::from_millis(2),
        warm_up: Duration::from_millis(4),
        batches_max: 9,
        batches_min: 5,
        batches_time_max: Duration::from_millis(30),
    };

    /// The pace of measurements of many points, whose least times are compared.
    pub(crate) const QUICK: Self = Self {
        batch: Duration::from_millis(1),
        warm_up: Duration::from_millis(2),
        batches_max: 5,
        batches_min: 3,
        batches_time_max: Duration::from_millis(6),
    };
}

/// The number of consecutive batches that must take the minimum time before batches are counted. A single one may take that
/// long with too few iterations, because the ranks connect in it, or wait for a core. The counted batches would then be too
/// short: the other ranks enter a barrier before rank 0, so a batch of one barrier ends as soon as rank 0 calls it.
const LONG_BATCHES: u32 = 3;

/// One of the ranks that run a loop.
///
/// All ranks call the same methods with the same arguments, unless a method says otherwise.
pub(crate) trait End {
    /// Returns this rank's number.
    fn rank(&self) -> u32;

    /// Returns the name of the transport in records.
    fn transport(&self) -> String;

    /// Prepares for a point.
    fn prepare(&mut self, benchmark: Benchmark, point: Point) -> Result<(), EndError>;

    /// Sends a number from rank 0 to the other ranks, and waits until all have received it. Each rank returns the
    /// number.
    fn agree(&mut self, number: u64) -> Result<u64, EndError>;

    /// Runs this rank's part of the prepared loop, and returns the time that it took. Only the time of rank 0 is used.
    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError>;
}

/// The error of an implementation. It is only printed.
pub(crate) type EndError = Box<dyn std::error::Error + Send + Sync>;

/// Measures one point. Returns the figure at rank 0, and `None` at the other ranks.
pub(crate) fn measure(
    end: &mut impl End,
    benchmark: Benchmark,
    point: Point,
) -> Result<Option<Spread>, EndError> {
    measure_at(end, benchmark, point, &Pace::FULL)
}

/// Measures one point as [`measure`] does, at another pace.
pub(crate) fn measure_at(
    end: &mut impl End,
    benchmark: Benchmark,
    point: Point,
    pace: &Pace,
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
    let mut long_in_a_row = 0;
    while long_in_a_row < LONG_BATCHES || begin.elapsed() < pace.warm_up {
        let time = batch(iterations)?;
        if time < pace.batch {
            long_in_a_row = 0;
            let wanted = pace.batch.as_nanos() * u128::from(iterations) / time.as_nanos().max(1);
            // The first iterations are slow, and the clock is coarse.
            iterations = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(iterations * 2, iterations * 10);
        } else {
            long_in_a_row += 1;
        }
    }
    let mut figures = Vec::new();
    let begin = Instant::now();
    while figures.len() < pace.batches_min
        || figures.len() < pace.batches_max && begin.elapsed() < pace.batches_time_max
    {
        let time = batch(iterations)?;
        figures.push(benchmark.figure(point, time.div_f64(iterations as f64)));
    }
    end.agree(0)?;
    Ok(Spread::of(figures))
}
