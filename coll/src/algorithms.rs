//! The algorithms, one file for each operation.
//!
//! The comments give the cost of each algorithm for `n` ranks in rounds and in data. The rounds are the number of
//! messages on the longest path, one after the other. The data is the number of elements or blocks that the busiest
//! rank sends, unless the comment names another rank. The tests compare the schedules with these formulas.
//!
//! Sources that several files cite:
//! * Thakur, Rabenseifner and Gropp: *Optimization of Collective Communication Operations in MPICH*. International
//!   Journal of High Performance Computing Applications 19(1), 2005.
//! * Bruck, Ho, Kipnis, Upfal and Weathersby: *Efficient Algorithms for All-to-All Communications in Multiport
//!   Message-Passing Systems*. IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod between;
pub(crate) mod board;
pub mod exchange;
pub mod exscan;
mod fold;
pub mod gather;
mod halving;
pub mod hosts;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;
pub mod scatter;
mod tree;

/// The number of messages that a linear algorithm has under way at a time.
const WINDOW: u32 = 16;
