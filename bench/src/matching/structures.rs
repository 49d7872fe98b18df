//! The measured structures, by name.

use std::time::Duration;

use samite_matching::{Adaptive, BTree, FourD, LinkedList, Memory, RankArray, Stats, Structure};

use super::workload::{Queue, Workload, time_pairs};

/// A structure and its measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    /// Times a workload, see [`Workload::time`].
    pub(crate) time: fn(&Workload, matches_max: usize, at_least: Duration) -> f64,
    /// Counts the visits of a workload's searches, see [`Workload::count`].
    pub(crate) count: fn(&Workload, matches_max: usize) -> (Memory, Stats),
    /// Returns the memory of a workload's full queue.
    pub(crate) memory: fn(&Workload) -> Memory,
    /// Counts the cache lines of some matches, see [`Workload::touch`].
    pub(crate) touch: fn(&Workload, matches: usize, before_each: &dyn Fn()),
    /// Returns the nanoseconds of an insertion and its match in an otherwise empty queue.
    pub(crate) time_pairs: fn(Queue) -> f64,
}

const fn measured<S: Structure>(name: &'static str) -> Measured {
    Measured {
        name,
        time: |workload, matches_max, at_least| workload.time::<S>(matches_max, at_least),
        count: |workload, matches_max| workload.count::<S>(matches_max),
        memory: |workload| workload.memory::<S>(),
        touch: |workload, matches, before_each| workload.touch::<S>(matches, before_each),
        time_pairs: |queue| time_pairs::<S>(queue),
    }
}

/// The index of the list in [`STRUCTURES`].
pub(crate) const LIST: usize = 0;
/// The index of the array in [`STRUCTURES`].
pub(crate) const ARRAY: usize = 1;
/// The index of the 4-D queue in [`STRUCTURES`].
pub(crate) const FOUR_D: usize = 3;
/// The index of the default structure in [`STRUCTURES`].
pub(crate) const ADAPTIVE: usize = 4;

/// Every structure.
pub(crate) const STRUCTURES: [Measured; 5] = [
    measured::<LinkedList>("LinkedList"),
    measured::<RankArray>("RankArray"),
    measured::<BTree>("BTree"),
    measured::<FourD>("FourD"),
    measured::<Adaptive>("Adaptive"),
];
