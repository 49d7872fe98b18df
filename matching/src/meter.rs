//! Statistics of searches and queue lengths, compiled in only on request.

use core::fmt::Debug;

use crate::query::Side;

/// An observer of searches. The default, [`Silent`], compiles to nothing; [`Counting`] fills [`Stats`].
pub trait Meter: Debug + Default {
    /// Records a followed pointer: to the state of a context, an inner object of the structure, or an entry.
    fn hop(&mut self);
    /// Records a comparison of an entry with the query.
    fn compare(&mut self);
    /// Records the end of a search in a queue of `length` entries; `hit` gives the wildcards of the receive that
    /// matched, and is `None` if there was no match.
    fn search(&mut self, side: Side, length: usize, hit: Option<Wildcards>);
    /// True if the matcher must call [`memory`](Self::memory). If false, the matcher saves the time to compute the
    /// argument.
    const SAMPLES_MEMORY: bool;
    /// Records the bytes in use after an insertion or a removal.
    fn memory(&mut self, bytes: usize);
}

/// The wildcards of a receive that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wildcards {
    /// True if the receive accepts any source.
    pub source: bool,
    /// True if the receive ignores some or all bits of the tag.
    pub tag: bool,
}

/// A meter that keeps no statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Meter for Silent {
    const SAMPLES_MEMORY: bool = false;
    #[inline(always)]
    fn hop(&mut self) {}
    #[inline(always)]
    fn compare(&mut self) {}
    #[inline(always)]
    fn search(&mut self, _: Side, _: usize, _: Option<Wildcards>) {}
    #[inline(always)]
    fn memory(&mut self, _: usize) {}
}

/// A meter that keeps statistics in the terms of (Zounmevo 2014, section 4.6.3).
/// [`Matcher::stats`](crate::Matcher::stats) returns them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting {
    stats: Stats,
    hops: u64,
    compared: u64,
    memory_samples: u64,
    memory_sum: u128,
}

/// The counts of [`Counting`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Statistics of searches of the posted receives.
    pub posted: SearchStats,
    /// Statistics of searches of the unexpected messages.
    pub unexpected: SearchStats,
    /// Bytes in use, averaged over all insertions and removals, as in (Zounmevo 2014, section 4.6.1).
    pub memory_average: f64,
}

/// Statistics of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchStats {
    /// The number of searches.
    pub searches: u64,
    /// Entries compared, in all searches together.
    pub compared: u64,
    /// Entries compared in the longest search. If each process searches once, the maximum over the processes is the
    /// MASL of (Zounmevo 2014).
    pub compared_max: u64,
    /// Pointers followed, in all searches together.
    pub hops: u64,
    /// Pointers followed in the longest search.
    pub hops_max: u64,
    /// The longest queue searched (MQL).
    pub length_max: u64,
    /// The sum, over all searches, of the queue's length at the search.
    pub length_sum: u64,
    /// Matches by a receive without wildcards.
    pub exact: u64,
    /// Matches by a receive from any source, with an exact tag.
    pub any_source: u64,
    /// Matches by a receive from one source, with a masked or any tag.
    pub any_tag: u64,
    /// Matches by a receive with both wildcards.
    pub any_both: u64,
}

impl SearchStats {
    /// Returns the average search length (ASL): entries compared per search.
    pub fn compared_average(&self) -> f64 {
        average(self.compared, self.searches)
    }

    /// Returns the pointers followed per search.
    pub fn hops_average(&self) -> f64 {
        average(self.hops, self.searches)
    }

    /// Returns the average queue length at a search (AQL).
    pub fn length_average(&self) -> f64 {
        average(self.length_sum, self.searches)
    }

    /// Returns the number of searches that matched.
    pub const fn matched(&self) -> u64 {
        self.exact + self.any_source + self.any_tag + self.any_both
    }
}

impl Counting {
    /// Returns the counts so far.
    pub(crate) fn stats(&self) -> Stats {
        let memory_average = match self.memory_samples {
            0 => 0.0,
            samples => self.memory_sum as f64 / samples as f64,
        };
        Stats { memory_average, ..self.stats }
    }
}

impl Meter for Counting {
    const SAMPLES_MEMORY: bool = true;

    fn hop(&mut self) {
        self.hops += 1;
    }

    fn compare(&mut self) {
        self.compared += 1;
    }

    fn search(&mut self, side: Side, length: usize, hit: Option<Wildcards>) {
        let compared = core::mem::take(&mut self.compared);
        let hops = core::mem::take(&mut self.hops);
        let stats = match side {
            Side::Posted => &mut self.stats.posted,
            Side::Unexpected => &mut self.stats.unexpected,
        };
        stats.searches += 1;
        stats.compared += compared;
        stats.compared_max = stats.compared_max.max(compared);
        stats.hops += hops;
        stats.hops_max = stats.hops_max.max(hops);
        stats.length_sum += length as u64;
        stats.length_max = stats.length_max.max(length as u64);
        match hit {
            None => {}
            Some(Wildcards { source: false, tag: false }) => stats.exact += 1,
            Some(Wildcards { source: true, tag: false }) => stats.any_source += 1,
            Some(Wildcards { source: false, tag: true }) => stats.any_tag += 1,
            Some(Wildcards { source: true, tag: true }) => stats.any_both += 1,
        }
    }

    fn memory(&mut self, bytes: usize) {
        self.memory_samples += 1;
        self.memory_sum += bytes as u128;
    }
}

fn average(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}
