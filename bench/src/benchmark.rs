//! The benchmarks and their units.
//!
//! `../peers/peer.c` uses the same windows and units. Change both together.

use std::time::Duration;

use clap::ValueEnum;

/// Messages in flight in [`Benchmark::Bandwidth`] and [`Benchmark::Rate`]. Fewer long messages are in flight, see
/// [`WINDOW_BYTES_MAX`].
const WINDOW: usize = 64;

/// Maximum bytes in flight, if more than [`WINDOW_MIN`] messages are in flight.
const WINDOW_BYTES_MAX: usize = 8 << 20;

/// Minimum number of messages in flight.
const WINDOW_MIN: usize = 4;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Benchmark {
    /// A message to the peer and back; half the time of a round trip
    Latency,
    /// As latency, by nonblocking operations; each message arrives before its receive starts
    SenderFirst,
    /// As latency, by nonblocking operations; each receive starts before its send
    ReceiverFirst,
    /// A window of messages, then a short reply; bytes per second
    Bandwidth,
    /// As bandwidth; messages per second
    Rate,
    /// Messages of distinct tags that all wait, and are received in reverse order; time per receive
    Depth,
    /// Every rank sends to its right neighbour and receives from its left neighbour; time for both
    Ring,
    /// Every rank sends to all others and receives from all; total time
    Pairs,
    /// A barrier; time of the call
    Barrier,
    /// A broadcast, whose root changes with each call; time of the call
    Bcast,
    /// A sum to one rank, which changes with each call; time of the call
    Reduce,
    /// A sum to all ranks; time of the call
    Allreduce,
    /// A block from each rank to all ranks; time of the call
    Allgather,
    /// A block from each rank to each rank; time of the call
    Alltoall,
    /// A put, and a flush that waits until it is visible at the target; time of both
    Put,
    /// A get and a flush; time of both
    Get,
    /// A number is added to a number at the target, and its former value fetched; time until it has arrived
    FetchAdd,
    /// A number at the target is compared and swapped; time until its former value has arrived
    CompareSwap,
    /// A window of puts, then a flush; bytes per second
    PutBandwidth,
    /// A window of gets, then a flush; bytes per second
    GetBandwidth,
    /// Ranks start, greet rank 0, and exit; time from the start of the launcher to its end
    StartUp,
    /// The peak memory of a rank that has exchanged a message with every other rank
    Memory,
}

/// The parameters of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The number of processes.
    pub(crate) ranks: u32,
    /// The length of each message.
    pub(crate) bytes: usize,
    /// The number of waiting messages, for [`Benchmark::Depth`] only.
    pub(crate) depth: Option<usize>,
}

impl Benchmark {
    /// Returns the benchmark's name on the command line and in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::SenderFirst => "sender-first",
            Self::ReceiverFirst => "receiver-first",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Depth => "depth",
            Self::Ring => "ring",
            Self::Pairs => "pairs",
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Put => "put",
            Self::Get => "get",
            Self::FetchAdd => "fetch-add",
            Self::CompareSwap => "compare-swap",
            Self::PutBandwidth => "put-bandwidth",
            Self::GetBandwidth => "get-bandwidth",
            Self::StartUp => "start-up",
            Self::Memory => "memory",
        }
    }

    /// Returns the name of the figure.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Latency | Self::SenderFirst | Self::ReceiverFirst => "latency_us",
            Self::Bandwidth | Self::PutBandwidth | Self::GetBandwidth => "bandwidth_mb_s",
            Self::Rate => "rate_per_s",
            Self::Depth => "match_ns",
            Self::Ring | Self::Pairs => "exchange_us",
            Self::Barrier | Self::Bcast | Self::Reduce => "call_us",
            Self::Allreduce | Self::Allgather | Self::Alltoall => "call_us",
            Self::Put | Self::Get | Self::FetchAdd | Self::CompareSwap => "call_us",
            Self::StartUp => "elapsed_ms",
            Self::Memory => "peak_mb",
        }
    }

    /// Returns the unit of the figure. A megabyte is 10^6 bytes.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::SenderFirst | Self::ReceiverFirst | Self::Ring | Self::Pairs => "us",
            Self::Barrier | Self::Bcast | Self::Reduce => "us",
            Self::Allreduce | Self::Allgather | Self::Alltoall => "us",
            Self::Put | Self::Get | Self::FetchAdd | Self::CompareSwap => "us",
            Self::Bandwidth | Self::PutBandwidth | Self::GetBandwidth => "MB/s",
            Self::Rate => "1/s",
            Self::Depth => "ns",
            Self::StartUp => "ms",
            Self::Memory => "MB",
        }
    }

    /// Returns true if a larger figure is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Rate | Self::PutBandwidth | Self::GetBandwidth)
    }

    /// The collective operations.
    pub(crate) const COLLECTIVE: [Self; 6] =
        [Self::Barrier, Self::Bcast, Self::Reduce, Self::Allreduce, Self::Allgather, Self::Alltoall];

    /// Returns true if the benchmark measures a collective operation. Its data are numbers of 8 bytes.
    pub(crate) fn is_collective(self) -> bool {
        Self::COLLECTIVE.contains(&self)
    }

    /// Returns true if the benchmark measures one-sided operations of rank 0 on the memory of rank 1.
    pub(crate) fn is_one_sided(self) -> bool {
        matches!(self, Self::Put | Self::Get | Self::FetchAdd | Self::CompareSwap)
            || matches!(self, Self::PutBandwidth | Self::GetBandwidth)
    }

    /// Returns true if Samite has variants of the benchmark with owned buffers and with a thread for progress.
    pub(crate) fn is_of_transfers(self) -> bool {
        matches!(self, Self::Latency | Self::SenderFirst | Self::ReceiverFirst | Self::Bandwidth)
    }

    /// Returns the default numbers of ranks.
    pub(crate) fn default_ranks(self) -> &'static [u32] {
        match self {
            Self::Latency | Self::SenderFirst | Self::ReceiverFirst => &[2],
            Self::Bandwidth | Self::Rate | Self::Depth => &[2],
            Self::Put | Self::Get | Self::FetchAdd | Self::CompareSwap => &[2],
            Self::PutBandwidth | Self::GetBandwidth => &[2],
            Self::Ring | Self::Pairs => &[2, 8, 16],
            Self::Barrier | Self::Bcast | Self::Reduce => &[2, 4, 8],
            Self::Allreduce | Self::Allgather | Self::Alltoall => &[2, 4, 8],
            Self::StartUp | Self::Memory => &[8],
        }
    }

    /// Returns true if the benchmark can run with that many ranks.
    pub(crate) fn takes(self, ranks: u32) -> bool {
        match self.default_ranks() {
            [only] if *only == 2 => ranks == 2,
            _ => ranks >= 2,
        }
    }

    /// Returns the points to measure: one for each combination of `ranks`, `bytes` and `depths`. An empty list stands
    /// for the defaults. [`Depth`](Self::Depth) alone uses `depths`, and [`StartUp`](Self::StartUp) ignores `bytes`.
    pub(crate) fn points(self, ranks: &[u32], bytes: &[usize], depths: &[usize]) -> Vec<Point> {
        let ranks = if ranks.is_empty() { self.default_ranks() } else { ranks };
        let bytes = match (bytes, self) {
            (_, Self::Barrier) => &[0][..],
            (_, Self::FetchAdd | Self::CompareSwap) => &[8],
            ([], Self::PutBandwidth | Self::GetBandwidth) => &[64 << 10, 1 << 20],
            ([], benchmark) if benchmark.is_collective() => &[8, 1 << 10, 64 << 10, 1 << 20],
            ([], Self::Latency) => &[8, 1 << 10, 64 << 10, 1 << 20],
            ([], Self::SenderFirst | Self::ReceiverFirst) => &[16 << 10, 64 << 10, 256 << 10, 1 << 20],
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

    /// Computes the figure from the time of one iteration of the loop.
    pub(crate) fn figure(self, point: Point, iteration: Duration) -> f64 {
        let ns = iteration.as_nanos() as f64;
        match self {
            Self::Latency | Self::SenderFirst | Self::ReceiverFirst => ns / 2.0 / 1e3,
            Self::Bandwidth | Self::PutBandwidth | Self::GetBandwidth => {
                (point.window() * point.bytes) as f64 / ns * 1e3
            }
            Self::Rate => point.window() as f64 / ns * 1e9,
            Self::Depth => ns / point.depth.unwrap_or(1) as f64,
            Self::Ring | Self::Pairs => ns / 1e3,
            Self::Barrier | Self::Bcast | Self::Reduce => ns / 1e3,
            Self::Allreduce | Self::Allgather | Self::Alltoall => ns / 1e3,
            Self::Put | Self::Get | Self::FetchAdd | Self::CompareSwap => ns / 1e3,
            Self::StartUp => ns / 1e6,
            Self::Memory => unreachable!("memory is no time"),
        }
    }
}

impl Point {
    /// Returns the number of messages in flight.
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
