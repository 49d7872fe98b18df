//! What can be measured, and in which unit.
//!
//! `../peers/peer.c` has the same windows and units: whoever changes one changes the other.

use std::time::Duration;

use clap::ValueEnum;

/// Messages in flight at once in [`Benchmark::Bandwidth`] and [`Benchmark::Rate`], unless they are long.
const WINDOW: usize = 64;

/// Bytes in flight at once, beyond [`WINDOW_MIN`] messages.
const WINDOW_BYTES_MAX: usize = 8 << 20;

/// The fewest messages in flight.
const WINDOW_MIN: usize = 4;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Benchmark {
    /// A message to and fro; half the time of a round
    Latency,
    /// A window of messages, then a word back; bytes for each second
    Bandwidth,
    /// As bandwidth; messages for each second
    Rate,
    /// Messages of distinct tags that all wait, then are received in reverse; time for each receive
    Depth,
    /// Every rank sends to its right and receives from its left; time for both
    Ring,
    /// Every rank sends to all others and receives from all; time for all of it
    Pairs,
    /// Ranks are started, greet rank 0, and end; time from the start of the launcher to its end
    StartUp,
    /// The most memory that a rank has had when it has exchanged a message with every other
    Memory,
}

/// What a benchmark is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Processes that take part.
    pub(crate) ranks: u32,
    /// The length of each message.
    pub(crate) bytes: usize,
    /// Messages that wait: for [`Benchmark::Depth`] only.
    pub(crate) depth: Option<usize>,
}

impl Benchmark {
    /// Its name on the command line and in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Depth => "depth",
            Self::Ring => "ring",
            Self::Pairs => "pairs",
            Self::StartUp => "start-up",
            Self::Memory => "memory",
        }
    }

    /// The figure's name.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Latency => "latency_us",
            Self::Bandwidth => "bandwidth_mb_s",
            Self::Rate => "rate_per_s",
            Self::Depth => "match_ns",
            Self::Ring | Self::Pairs => "exchange_us",
            Self::StartUp => "elapsed_ms",
            Self::Memory => "peak_mb",
        }
    }

    /// The figure's unit. A megabyte is 10^6 bytes.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::Ring | Self::Pairs => "us",
            Self::Bandwidth => "MB/s",
            Self::Rate => "1/s",
            Self::Depth => "ns",
            Self::StartUp => "ms",
            Self::Memory => "MB",
        }
    }

    /// Whether of two figures the larger is the better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Rate)
    }

    /// How many ranks it is run with where the user names no number.
    pub(crate) fn default_ranks(self) -> &'static [u32] {
        match self {
            Self::Latency | Self::Bandwidth | Self::Rate | Self::Depth => &[2],
            Self::Ring | Self::Pairs => &[2, 8, 16],
            Self::StartUp | Self::Memory => &[8],
        }
    }

    /// Whether it can be run with so many ranks.
    pub(crate) fn takes(self, ranks: u32) -> bool {
        match self.default_ranks() {
            [only] if *only == 2 => ranks == 2,
            _ => ranks >= 2,
        }
    }

    /// The points to measure: for each of `ranks`, of `bytes` and of `depths`. Where the user names none there
    /// are defaults.
    pub(crate) fn points(self, ranks: &[u32], bytes: &[usize], depths: &[usize]) -> Vec<Point> {
        let ranks = if ranks.is_empty() { self.default_ranks() } else { ranks };
        let bytes = match (bytes, self) {
            ([], Self::Latency) => &[8, 1 << 10, 64 << 10, 1 << 20],
            ([], Self::Bandwidth) => &[1 << 10, 64 << 10, 1 << 20][..],
            ([], _) | (_, Self::StartUp) => &[8],
            _ => bytes,
        };
        let depths = match (depths, self) {
            ([], Self::Depth) => &[16, 256, 1024, 4096, 16_384, 65_536],
            _ => depths,
        };
        let mut points = Vec::new();
        for &ranks in ranks {
            for &bytes in bytes {
                match self {
                    Self::Depth => {
                        let of_depth = |&depth| Point { ranks, bytes, depth: Some(depth) };
                        points.extend(depths.iter().map(of_depth));
                    }
                    _ => points.push(Point { ranks, bytes, depth: None }),
                }
            }
        }
        points
    }

    /// The figure, from the time that one iteration of the loop took.
    pub(crate) fn figure(self, point: Point, iteration: Duration) -> f64 {
        let ns = iteration.as_nanos() as f64;
        match self {
            Self::Latency => ns / 2.0 / 1e3,
            Self::Bandwidth => (point.window() * point.bytes) as f64 / ns * 1e3,
            Self::Rate => point.window() as f64 / ns * 1e9,
            Self::Depth => ns / point.depth.unwrap_or(1) as f64,
            Self::Ring | Self::Pairs => ns / 1e3,
            Self::StartUp => ns / 1e6,
            Self::Memory => unreachable!("memory is no time"),
        }
    }
}

impl Point {
    /// Messages in flight at once.
    pub(crate) fn window(self) -> usize {
        (WINDOW_BYTES_MAX / self.bytes.max(1)).clamp(WINDOW_MIN, WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_their_units() {
        let point = Point { ranks: 2, bytes: 1000, depth: None };
        let us = Duration::from_micros;
        assert_eq!(Benchmark::Latency.figure(point, us(10)), 5.0);
        assert_eq!(Benchmark::Bandwidth.figure(point, us(64)), 1000.0);
        assert_eq!(Benchmark::Rate.figure(point, us(64)), 1e6);
        assert_eq!(Benchmark::Depth.figure(Point { depth: Some(50), ..point }, us(10)), 200.0);
    }

    #[test]
    fn windows_are_narrow_for_long_messages() {
        let window = |bytes| Point { ranks: 2, bytes, depth: None }.window();
        assert_eq!([0, 8, 128 << 10, 1 << 20, 1 << 30].map(window), [64, 64, 64, 8, 4]);
    }

    #[test]
    fn depths_matter_to_one_benchmark_only() {
        let points = Benchmark::Depth.points(&[], &[8, 16], &[4, 2]);
        let pairs: Vec<_> = points.iter().map(|point| (point.bytes, point.depth)).collect();
        assert_eq!(pairs, [(8, Some(4)), (8, Some(2)), (16, Some(4)), (16, Some(2))]);
        assert_eq!(
            Benchmark::Latency.points(&[], &[3], &[4, 2]),
            [Point { ranks: 2, bytes: 3, depth: None }]
        );
        assert_eq!(Benchmark::Latency.points(&[], &[], &[]).len(), 4);
        let ranks: Vec<_> =
            Benchmark::Ring.points(&[4, 3], &[], &[9]).iter().map(|point| point.ranks).collect();
        assert_eq!(ranks, [4, 3]);
        assert!(Benchmark::Ring.takes(16) && !Benchmark::Ring.takes(1) && !Benchmark::Depth.takes(3));
    }
}
