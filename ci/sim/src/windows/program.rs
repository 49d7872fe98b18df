//! Random programs of epochs.

use std::ops::Range;

use samite_fabric::SplitMix64;
use samite_fabric::link::{Group, WorldRank};
use samite_rma::{Assertions, Hints, LockKind, Reorder};

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u64>();

/// The largest number of words of an operation that fits in a packet of every port.
const SHORT: u64 = 50;

/// The programs of all ranks.
pub(super) struct Plan {
    pub(super) size: u32,
    pub(super) hints: Hints,
    /// True if the window is dynamic, and each rank has attached its part.
    pub(super) is_dynamic: bool,
    /// The number of words that each origin has in each part.
    words: u64,
    pub(super) programs: Vec<Vec<Step>>,
    /// The writes of each origin, in the order of its program.
    pub(super) writes: Vec<Vec<Write>>,
    value: u64,
    /// The words that each origin accesses between two points of order: the origin, the target, and the words.
    accessed: Vec<(usize, WorldRank, Range<u64>)>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Post(Group),
    Start(Group),
    Lock(WorldRank, LockKind),
    LockAll,
    /// If the flag of this step or of the next two is true, the program waits for the completion.
    Fence(Assertions, bool),
    CloseAccess(bool),
    CloseExposure(bool),
    Flush(Option<WorldRank>),
    Write(Write),
    Read(Read),
    Sum(WorldRank, u64),
    Fetch(Fetch),
    Swap(WorldRank),
}

/// A fetch that adds one to the word that all ranks change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub(super) target: WorldRank,
    /// The number of the step in the program of its origin.
    pub(super) number: usize,
}

/// A write of consecutive numbers, from `value` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) target: WorldRank,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) value: u64,
    /// The number of the write among the writes of its origin.
    pub(super) number: usize,
    /// The number of its epoch at the origin, when it was started.
    pub(super) epoch: Option<usize>,
    /// True if its request has ended with an error.
    pub(super) is_cut_off: bool,
}

impl Write {
    pub(super) fn covers(&self, word: u64) -> bool {
        (self.first..self.first + self.count).contains(&word)
    }
}

/// A read of the words of an origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) target: WorldRank,
    pub(super) origin: WorldRank,
    pub(super) first: u64,
    pub(super) count: u64,
    /// The number of the first write of the origin that is not before the read.
    pub(super) after: usize,
}

impl Plan {
    pub(super) fn new(rng: &mut SplitMix64, size: u32) -> Self {
        let words = if size > 8 { 4 } else { [4, 300, 900][rng.below(3) as usize] };
        let rounds = 2 + rng.below(if size > 8 { 3 } else { 10 });
        // With all flags only programs with one kind of epoch have a certain result.
        let only = (rng.below(4) == 0).then(|| rng.below(2));
        let reorder = if only.is_some() { Reorder::all() } else { Reorder::empty() };
        let hints =
            Hints { reorder, overtake: rng.below(3) == 0, aggregate: rng.below(2) == 0, ..Hints::default() };
        let all = size as usize;
        let (programs, writes) = (vec![Vec::new(); all], vec![Vec::new(); all]);
        let accessed = Vec::new();
        let is_dynamic = rng.below(3) == 0;
        let mut plan = Self { size, hints, is_dynamic, words, programs, writes, value: 1, accessed };
        for _ in 0..rounds {
            match only.unwrap_or_else(|| rng.below(5)) {
                0 => plan.exposures(rng),
                1 => plan.locks(rng),
                2 => plan.lock_all(rng),
                3 => plan.fences(rng),
                _ => plan.reads_behind_fences(rng),
            }
        }
        plan
    }

    /// Returns the displacement of a word of an origin.
    pub(super) fn place(&self, origin: WorldRank, word: u64) -> u64 {
        u64::from(origin.0) * self.words + word
    }

    /// Returns the displacement of the word to which all ranks add.
    pub(super) fn sum_place(&self) -> u64 {
        u64::from(self.size) * self.words
    }

    /// Returns the displacement of the word that swaps change.
    pub(super) fn swap_place(&self) -> u64 {
        self.sum_place() + 1
    }

    /// Returns the number of words of a part.
    pub(super) fn part(&self) -> usize {
        self.swap_place() as usize + 1
    }

    /// Returns reads of all words at the end.
    pub(super) fn last_reads(&self) -> Vec<Read> {
        let of = |target| move |origin| (WorldRank(target), WorldRank(origin));
        let pairs = (0..self.size).flat_map(|target| (0..self.size).map(of(target)));
        let read = |(target, origin): (WorldRank, WorldRank)| {
            let after = self.writes[origin.index()].len();
            Read { target, origin, first: 0, count: self.words, after }
        };
        pairs.map(read).collect()
    }

    fn some_rank(&self, rng: &mut SplitMix64) -> WorldRank {
        WorldRank(rng.below(self.size.into()) as u32)
    }

    /// Returns true if an access of an origin has no order with an earlier one: if both concern a word, and one of them
    /// is so long that it may travel by puts or gets of the port.
    fn has_no_order(&self, at: usize, target: WorldRank, words: &Range<u64>) -> bool {
        self.accessed.iter().any(|(origin, other, earlier)| {
            let is_common = earlier.start < words.end && words.start < earlier.end;
            let is_long = [earlier, words].into_iter().any(|range| range.end - range.start > SHORT);
            (*origin, *other) == (at, target) && is_common && is_long
        })
    }

    /// Notes that the accesses of an origin come after its earlier ones, because an epoch or a flush has ended. Epochs
    /// that the reorder flags permit side by side have no order.
    fn order(&mut self, at: usize) {
        if self.hints.reorder.is_empty() {
            self.accessed.retain(|(origin, ..)| *origin != at);
        }
    }

    /// Adds operations to a target.
    fn operations(&mut self, rng: &mut SplitMix64, at: usize, target: WorldRank) {
        for _ in 0..rng.below(4) {
            let first = rng.below(self.words);
            let count = 1 + rng.below(self.words - first);
            let kind = rng.below(6);
            if ![1, 4, 5].contains(&kind) {
                if self.has_no_order(at, target, &(first..first + count)) {
                    continue;
                }
                self.accessed.push((at, target, first..first + count));
            }
            let step = match kind {
                0 => {
                    let (origin, after) = (WorldRank(at as u32), self.writes[at].len());
                    Step::Read(Read { target, origin, first, count, after })
                }
                1 => Step::Sum(target, self.sum_place()),
                4 => Step::Fetch(Fetch { target, number: self.programs[at].len() }),
                5 => Step::Swap(target),
                _ => {
                    let (number, value) = (self.writes[at].len(), self.value);
                    let write = Write { target, first, count, value, number, epoch: None, is_cut_off: false };
                    self.value += count;
                    self.writes[at].push(write);
                    Step::Write(write)
                }
            };
            self.programs[at].push(step);
        }
    }

    /// Epochs of `post` and `start`.
    fn exposures(&mut self, rng: &mut SplitMix64) {
        let all: Vec<_> = (0..self.size).map(WorldRank).collect();
        let targets: Vec<Vec<WorldRank>> = all
            .iter()
            .map(|_| {
                let share = 1 + rng.below(4);
                all.iter().copied().filter(|_| rng.below(self.size.into()) < share).collect()
            })
            .collect();
        for (at, own) in all.iter().enumerate() {
            let origins = all.iter().copied().filter(|origin| targets[origin.index()].contains(own));
            let origins = Group::new(origins).expect("each rank occurs once");
            let is_exposed = !origins.is_empty();
            if is_exposed {
                self.programs[at].push(Step::Post(origins));
            }
            if !targets[at].is_empty() {
                let group = Group::new(targets[at].iter().copied()).expect("each rank occurs once");
                self.programs[at].push(Step::Start(group));
                self.order(at);
                targets[at].iter().for_each(|target| self.operations(rng, at, *target));
                self.programs[at].push(Step::CloseAccess(rng.below(3) == 0));
            }
            if is_exposed {
                self.programs[at].push(Step::CloseExposure(rng.below(3) == 0));
            }
        }
    }

    fn locks(&mut self, rng: &mut SplitMix64) {
        for at in 0..self.size as usize {
            for _ in 0..rng.below(4) {
                let target = self.some_rank(rng);
                let kind = if rng.below(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
                self.programs[at].push(Step::Lock(target, kind));
                self.order(at);
                self.operations(rng, at, target);
                if rng.below(3) == 0 {
                    self.programs[at].push(Step::Flush(Some(target)));
                    self.order(at);
                    self.operations(rng, at, target);
                }
                self.programs[at].push(Step::CloseAccess(rng.below(3) == 0));
            }
        }
    }

    fn lock_all(&mut self, rng: &mut SplitMix64) {
        for at in 0..self.size as usize {
            if rng.below(3) == 0 {
                continue;
            }
            self.programs[at].push(Step::LockAll);
            self.order(at);
            for _ in 0..rng.below(4) {
                let target = self.some_rank(rng);
                self.operations(rng, at, target);
            }
            if rng.below(2) == 0 {
                self.programs[at].push(Step::Flush(None));
            }
            self.programs[at].push(Step::CloseAccess(rng.below(3) == 0));
        }
    }

    fn fence(&mut self, rng: &mut SplitMix64, assertions: Assertions) {
        for at in 0..self.size as usize {
            self.programs[at].push(Step::Fence(assertions, rng.below(3) == 0));
        }
    }

    fn fences(&mut self, rng: &mut SplitMix64) {
        self.fence(rng, Assertions::empty());
        for _ in 0..1 + rng.below(3) {
            for at in 0..self.size as usize {
                self.order(at);
                for _ in 0..rng.below(3) {
                    let target = self.some_rank(rng);
                    self.operations(rng, at, target);
                }
            }
            self.fence(rng, Assertions::empty());
        }
        self.fence(rng, Assertions::NO_SUCCEED);
    }

    /// Reads of the words of all origins, behind a fence that ends an epoch.
    fn reads_behind_fences(&mut self, rng: &mut SplitMix64) {
        self.fence(rng, Assertions::empty());
        self.fence(rng, Assertions::empty());
        for at in 0..self.size as usize {
            for _ in 0..rng.below(6) {
                let (target, origin) = (self.some_rank(rng), self.some_rank(rng));
                let after = self.writes[origin.index()].len();
                let read = Read { target, origin, first: 0, count: self.words, after };
                self.programs[at].push(Step::Read(read));
            }
        }
        self.fence(rng, Assertions::NO_SUCCEED);
    }
}
