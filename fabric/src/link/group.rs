//! Groups: ordered sets of ranks of the job.

mod part;
mod sets;

use std::fmt;
use std::sync::Arc;

use self::part::{Builder, Part};
use super::WorldRank;

/// An ordered set of ranks of the job. A member's *index* is its place in the group, counted from 0; its *rank* is its
/// number in the job.
///
/// A group whose ranks are in arithmetic progression needs no memory beyond this value, and translates an index or a
/// rank in constant time. Any other group is kept as a sequence of progressions, so a range with some holes is small.
/// The time of a translation to a rank grows with the logarithm of the number of progressions. A translation to an
/// index takes that time once for each absolute value that the steps have. The representation is unique, so equal
/// groups compare equal, however they were made.
///
/// The operations follow MPI 4.1, section 7.3. Set operations take time that depends on the number of progressions in
/// the arguments and the result, and not on the number of ranks.
///
/// ```
/// use samite_fabric::link::{Group, WorldRank};
///
/// let even = Group::range(WorldRank(0), 8).stride(2);
/// assert_eq!(even.iter().collect::<Vec<_>>(), [0, 2, 4, 6].map(WorldRank));
/// assert_eq!((even.rank(3), even.index(WorldRank(6)), even.index(WorldRank(5))), (Some(WorldRank(6)), Some(3), None));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Group(Shape);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Shape {
    /// The ranks are `first`, `first + step`, and so on. If there are no members, `first` is 0. If there are no members
    /// or one, `step` is 1.
    Progression {
        first: u32,
        step: i64,
        len: u32,
    },
    Runs(Arc<Runs>),
}

/// Two or more progressions. A [`Builder`] decides how the ranks are divided into progressions, so each group has one
/// representation.
#[derive(PartialEq, Eq, Hash)]
struct Runs {
    /// The progressions, in the order of the group.
    runs: Box<[Run]>,
    /// The indices into `runs`, sorted by the absolute value of the run's step, and then by [`Runs::key`].
    sorted: Box<[u32]>,
    /// The absolute values of the steps of all runs, each value once, in ascending order. The second number of a pair
    /// is the end, in `sorted`, of the runs with that step.
    distances: Box<[(u32, u32)]>,
    len: u32,
}

/// A progression with one rank, or with a step of 1, or with three or more ranks. Its length is the difference between
/// its index and the index of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    first: u32,
    /// The distance from a rank to the next one. If it is not 1, there are three or more ranks, so it is at most half
    /// of the largest distance between two ranks, and fits.
    step: i32,
    /// The index of the run's first member in the group.
    index: u32,
}

/// The reason why ranks cannot become a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGroup {
    /// A rank occurs twice.
    #[error("rank {0} occurs twice: each rank is in a group once")]
    Duplicate(WorldRank),
    /// The largest number of 32 bits is not a rank.
    #[error("the largest number of 32 bits is not a rank")]
    NotARank,
}

/// Indices of a group in arithmetic progression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// The first index.
    pub first: u32,
    /// The distance from an index to the next one. It must not be 0, unless there are no indices.
    pub step: i64,
    /// The number of indices.
    pub len: u32,
}

/// The result of [`Group::compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The groups have the same ranks in the same order.
    Identical,
    /// The groups have the same ranks in different orders.
    Similar,
    /// The groups have different ranks.
    Unequal,
}

impl Group {
    /// The group without members.
    pub const EMPTY: Self = Self(Shape::Progression { first: 0, step: 1, len: 0 });

    /// Returns the group of `len` ranks from `first` on.
    ///
    /// # Panics
    /// If a rank is not below the largest number of 32 bits.
    #[must_use]
    pub const fn range(first: WorldRank, len: u32) -> Self {
        if len == 0 {
            return Self::EMPTY;
        }
        assert!(first.0.checked_add(len).is_some(), "the largest number of 32 bits is not a rank");
        Self(Shape::Progression { first: first.0, step: 1, len })
    }

    /// Returns the group of the given ranks, in their order.
    ///
    /// # Errors
    /// [`NoGroup`] if a rank occurs twice, or is the largest number of 32 bits.
    pub fn new(ranks: impl IntoIterator<Item = WorldRank>) -> Result<Self, NoGroup> {
        let mut builder = Builder::default();
        for WorldRank(rank) in ranks {
            if rank == u32::MAX {
                return Err(NoGroup::NotARank);
            }
            builder.push(rank);
        }
        Self::of_any(builder)
    }

    /// Returns the group of the ranks in a builder, which may contain a rank twice.
    fn of_any(builder: Builder) -> Result<Self, NoGroup> {
        let (parts, len) = builder.finish();
        match part::duplicate(&parts, len) {
            Some(rank) => Err(NoGroup::Duplicate(WorldRank(rank))),
            None => Ok(Self::of_parts(&parts, len)),
        }
    }

    /// Returns the group of the ranks in a builder, which contains each rank once.
    fn of(builder: Builder) -> Self {
        let (parts, len) = builder.finish();
        Self::of_parts(&parts, len)
    }

    fn of_parts(parts: &[Part], len: u64) -> Self {
        let len = u32::try_from(len).expect("there are fewer than 2^32 ranks");
        match parts {
            [] => Self::EMPTY,
            &[Part { first, step, len }] => Self(Shape::Progression { first, step, len }),
            _ => Self(Shape::Runs(Arc::new(Runs::new(parts, len)))),
        }
    }

    /// Returns the number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.0 {
            Shape::Progression { len, .. } => *len,
            Shape::Runs(runs) => runs.len,
        }
    }

    /// Returns true for the group without members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rank of the member with this index.
    #[inline]
    #[must_use]
    pub fn rank(&self, index: u32) -> Option<WorldRank> {
        match &self.0 {
            Shape::Progression { first, step, len } => {
                // The result is a rank and fits in 32 bits, so wrapping arithmetic gives the exact sum.
                (index < *len).then(|| WorldRank(first.wrapping_add(index.wrapping_mul(*step as u32))))
            }
            Shape::Runs(runs) => runs.rank(index),
        }
    }

    /// Returns the index of the member with this rank.
    #[inline]
    #[must_use]
    pub fn index(&self, rank: WorldRank) -> Option<u32> {
        match &self.0 {
            Shape::Progression { first, step: 1, len } => {
                rank.0.checked_sub(*first).filter(|index| index < len)
            }
            &Shape::Progression { first, step, len } => Part { first, step, len }.index(rank.0),
            Shape::Runs(runs) => runs.index(rank),
        }
    }

    /// Returns true if the rank is a member.
    #[inline]
    #[must_use]
    pub fn contains(&self, rank: WorldRank) -> bool {
        self.index(rank).is_some()
    }

    /// Returns the smallest and the largest rank, or `None` if the group is empty.
    #[must_use]
    pub fn bounds(&self) -> Option<(WorldRank, WorldRank)> {
        let bounds = self.parts().map(|part| (part.low(), part.high()));
        let (low, high) = bounds.reduce(|all, part| (all.0.min(part.0), all.1.max(part.1)))?;
        Some((WorldRank(low), WorldRank(high)))
    }

    /// Returns the group as words for a message: two for each arithmetic progression that it consists of, so a regular
    /// group has few.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let words = |part: Part| [u64::from(part.len) << 32 | u64::from(part.first), part.step as u64];
        self.parts().flat_map(words).collect()
    }

    /// Returns the group that [`to_words`](Self::to_words) has written as these words. Returns `None` if they do not
    /// describe a group of ranks below `size`.
    #[must_use]
    pub fn from_words(words: &[u64], size: u32) -> Option<Self> {
        let (parts, rest) = words.as_chunks();
        if !rest.is_empty() {
            return None;
        }
        let mut builder = Builder::default();
        let mut total = 0;
        for &[place, step] in parts {
            let (first, len, step) = (place as u32, (place >> 32) as u32, step as i64);
            total += u64::from(len);
            let last = step.checked_mul(i64::from(len.checked_sub(1)?))?.checked_add(i64::from(first))?;
            if step == 0 || first >= size || !(0..i64::from(size)).contains(&last) || total > size.into() {
                return None;
            }
            builder.extend(Part { first, step: if len == 1 { 1 } else { step }, len });
        }
        Self::of_any(builder).ok()
    }

    /// Iterates over the ranks in the order of the group.
    pub fn iter(&self) -> impl Iterator<Item = WorldRank> + '_ {
        self.parts().flat_map(|part| (0..part.len).map(move |index| WorldRank(part.rank(index))))
    }

    /// Returns the members of this group, and behind them those of `other` that are not in this one.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = Builder::default();
        self.parts().for_each(|part| all.extend(part));
        other.parts().for_each(|part| sets::select(part, self, false, &mut all));
        Self::of(all)
    }

    /// Returns the members of this group that are in `other` too, in the order of this group.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.select(other, true)
    }

    /// Returns the members of this group that are not in `other`, in the order of this group.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.select(other, false)
    }

    fn select(&self, other: &Self, wanted: bool) -> Self {
        let mut selected = Builder::default();
        self.parts().for_each(|part| sets::select(part, other, wanted, &mut selected));
        Self::of(selected)
    }

    /// Returns the members for whose rank `keep` returns true, in the order of this group.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(WorldRank) -> bool) -> Self {
        let mut kept = Builder::default();
        self.iter().filter(|&rank| keep(rank)).for_each(|rank| kept.push(rank.0));
        Self::of(kept)
    }

    /// Returns every `step`th member, from the first on.
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn stride(&self, step: u32) -> Self {
        let indices = Indices { first: 0, step: step.into(), len: self.len().div_ceil(step) };
        self.pick([indices]).expect("the indices are below the length, and each occurs once")
    }

    /// Returns the members with these indices, in the order of the indices. Returns `None` if an index is not below the
    /// number of members.
    ///
    /// # Errors
    /// [`NoGroup::Duplicate`] if an index occurs twice.
    pub fn include(&self, indices: impl IntoIterator<Item = u32>) -> Result<Option<Self>, NoGroup> {
        let mut included = Builder::default();
        for index in indices {
            let Some(rank) = self.rank(index) else { return Ok(None) };
            included.push(rank.0);
        }
        Self::of_any(included).map(Some)
    }

    /// Returns the group without the members at these indices.
    #[must_use]
    pub fn exclude(&self, indices: impl IntoIterator<Item = u32>) -> Self {
        let mut excluded: Vec<WorldRank> = indices.into_iter().filter_map(|index| self.rank(index)).collect();
        excluded.sort_unstable();
        excluded.dedup();
        self.difference(&Self::new(excluded).expect("each rank of the group is there once"))
    }

    /// Returns the members with these indices, in the order of the indices. The call takes time that depends on the
    /// number of progressions, and not on the number of indices. Returns `None` if an index is not below the number of
    /// members, or occurs twice.
    #[must_use]
    pub fn pick(&self, indices: impl IntoIterator<Item = Indices>) -> Option<Self> {
        let mut picked = Builder::default();
        for Indices { first, step, len } in indices {
            if len == 0 {
                continue;
            }
            let last = step.checked_mul(i64::from(len) - 1)?.checked_add(i64::from(first))?;
            let is_within = |index| (0..i64::from(self.len())).contains(&index);
            if step == 0 || !is_within(first.into()) || !is_within(last) {
                return None;
            }
            let mut next = Some(Part { first, step: if len == 1 { 1 } else { step }, len });
            while let Some(rest) = next {
                let (part, index) = self.part_at(rest.first);
                let within = rest.common(&Part { first: index, step: 1, len: part.len })?;
                picked.extend(part.slice(rest.first - index, step, within.len));
                let len = rest.len - within.len;
                next = (len > 0).then(|| Part { first: rest.rank(within.len), len, ..rest });
            }
        }
        Self::of_any(picked).ok()
    }

    /// Returns the index in `other` of the member that has this index in this group. Returns `None` if this group has
    /// no such member, or if `other` does not contain the member.
    #[must_use]
    pub fn translate(&self, index: u32, other: &Self) -> Option<u32> {
        other.index(self.rank(index)?)
    }

    /// Compares the members of two groups, and their order.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        match self == other {
            true => Comparison::Identical,
            false if self.len() == other.len() && self.difference(other).is_empty() => Comparison::Similar,
            false => Comparison::Unequal,
        }
    }

    /// Returns the progressions that the group consists of.
    fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let (one, runs) = match &self.0 {
            &Shape::Progression { first, step, len } => {
                ((len > 0).then_some(Part { first, step, len }), None)
            }
            Shape::Runs(runs) => (None, Some(runs)),
        };
        one.into_iter().chain(runs.into_iter().flat_map(|runs| (0..runs.runs.len()).map(|at| runs.part(at))))
    }

    fn part_count(&self) -> usize {
        match &self.0 {
            Shape::Progression { len, .. } => usize::from(*len > 0),
            Shape::Runs(runs) => runs.runs.len(),
        }
    }

    /// Returns the progression that contains the member with this index, and the index of the progression's first
    /// member. The group has a member with this index.
    fn part_at(&self, index: u32) -> (Part, u32) {
        match &self.0 {
            &Shape::Progression { first, step, len } => (Part { first, step, len }, 0),
            Shape::Runs(runs) => {
                let at = runs.at(index);
                (runs.part(at), runs.runs[at].index)
            }
        }
    }
}

impl Runs {
    /// Returns two or more parts as runs.
    fn new(parts: &[Part], len: u32) -> Self {
        let begin = |index: &mut u32, part: &Part| {
            let step = i32::try_from(part.step).expect("three ranks have steps below half of 2^32");
            let run = Run { first: part.first, step, index: *index };
            *index = index.wrapping_add(part.len);
            Some(run)
        };
        let runs: Box<[Run]> = parts.iter().scan(0, begin).collect();
        let mut all = Self { runs, sorted: Box::default(), distances: Box::default(), len };
        let mut sorted: Vec<u32> = (0..).take(parts.len()).collect();
        sorted.sort_by_cached_key(|&at| (parts[at as usize].step.abs(), all.key(at)));
        let mut distances: Vec<(u32, u32)> = Vec::new();
        for (end, &at) in (1..).zip(&sorted) {
            let distance = all.runs[at as usize].step.unsigned_abs();
            match distances.last_mut() {
                Some(last) if last.0 == distance => last.1 = end,
                _ => distances.push((distance, end)),
            }
        }
        (all.sorted, all.distances) = (sorted.into(), distances.into());
        all
    }

    fn part(&self, at: usize) -> Part {
        let Run { first, step, index } = self.runs[at];
        let end = self.runs.get(at + 1).map_or(self.len, |next| next.index);
        Part { first, step: step.into(), len: end - index }
    }

    /// Returns the place in `runs` of the run that contains the member with this index.
    fn at(&self, index: u32) -> usize {
        // The first run has index 0, so at least one run begins at `index` or before.
        self.runs.partition_point(|run| run.index <= index) - 1
    }

    /// Returns the key by which runs whose steps have the same absolute value are sorted. It consists of the remainder
    /// that every rank of the run leaves when it is divided by the step, and the smallest rank. Runs with the same step
    /// and the same remainder do not overlap.
    fn key(&self, at: u32) -> (u32, u32) {
        let part = self.part(at as usize);
        let low = part.low();
        (low % self.runs[at as usize].step.unsigned_abs(), low)
    }

    fn rank(&self, index: u32) -> Option<WorldRank> {
        if index >= self.len {
            return None;
        }
        let Run { first, step, index: begin } = self.runs[self.at(index)];
        // The result is a rank and fits in 32 bits, so wrapping arithmetic gives the exact sum.
        Some(WorldRank(first.wrapping_add((index - begin).wrapping_mul(step as u32))))
    }

    fn index(&self, rank: WorldRank) -> Option<u32> {
        let mut begin = 0;
        for &(distance, end) in &self.distances {
            let runs = &self.sorted[begin as usize..end as usize];
            begin = end;
            let key = (rank.0 % distance, rank.0);
            let behind = runs.partition_point(|&at| self.key(at) <= key);
            let Some(&at) = behind.checked_sub(1).map(|last| &runs[last]) else { continue };
            if let Some(index) = self.part(at as usize).index(rank.0) {
                return Some(self.runs[at as usize].index + index);
            }
        }
        None
    }
}

impl fmt::Debug for Group {
    /// Prints at most the first 16 progressions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |part: Part| match part {
            Part { first, len: 1, .. } => first.to_string(),
            Part { first, step: 1, .. } => format!("{first}..={}", part.last()),
            Part { first, step, .. } => format!("{first}..={} by {step}", part.last()),
        };
        match &self.0 {
            Shape::Progression { len: 0, .. } => write!(f, "Group {{}}"),
            &Shape::Progression { first, step, len } => {
                write!(f, "Group {{{}}}", shown(Part { first, step, len }))
            }
            Shape::Runs(runs) => {
                write!(f, "Group {{")?;
                self.parts().take(16).try_for_each(|part| write!(f, "{}, ", shown(part)))?;
                write!(f, "{} members}}", runs.len)
            }
        }
    }
}

#[cfg(test)]
mod tests;
