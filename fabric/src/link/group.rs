//! Groups: ordered sets of ranks of the job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::WorldRank;

/// An ordered set of ranks of the job. A member's *index* is its place in the group, counted from 0; its *rank* is its
/// number in the job.
///
/// Ranks in arithmetic progression take no memory beyond this value and are translated in constant time, independent of
/// their number. Any other group is kept as its runs of consecutive ranks: a range with some holes is small, and a
/// translation takes the logarithm of the number of runs. The representation is unique, so equal groups compare equal,
/// however they were made.
///
/// The operations follow MPI 4.1, section 7.3.
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
    /// `first`, `first + step`, and so on. Without members, `first` is 0. With no member or one member, `step` is 1.
    Progression {
        first: u32,
        step: i64,
        len: u32,
    },
    Runs(Arc<Runs>),
}

/// Two or more runs, each as long as possible, whose ranks together are not in arithmetic progression. With these rules
/// each group has one representation.
#[derive(PartialEq, Eq, Hash)]
struct Runs {
    /// In the order of the group.
    runs: Box<[Run]>,
    /// The indices into `runs`, sorted by the first rank of each run.
    ascending: Box<[u32]>,
    len: u32,
}

/// Consecutive ranks in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    first: u32,
    len: u32,
    /// The index of the run's first member in the group.
    index: u32,
}

/// The error of a list of ranks that cannot become a group, because a rank occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} occurs twice: each rank is in a group once")]
pub struct Duplicate {
    /// The rank.
    pub rank: WorldRank,
}

/// The result of [`Group::compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same ranks in the same order.
    Identical,
    /// The same ranks in another order.
    Similar,
    /// Different ranks.
    Unequal,
}

impl Group {
    /// The group without members.
    pub const EMPTY: Self = Self(Shape::Progression { first: 0, step: 1, len: 0 });

    /// Returns the group of `len` ranks from `first` on.
    ///
    /// # Panics
    /// If a rank does not fit into 32 bits.
    #[must_use]
    pub const fn range(first: WorldRank, len: u32) -> Self {
        if len == 0 {
            return Self::EMPTY;
        }
        assert!(first.0.checked_add(len - 1).is_some(), "the last rank fits into 32 bits");
        Self(Shape::Progression { first: first.0, step: 1, len })
    }

    /// Returns the group of the given ranks, in their order.
    ///
    /// # Errors
    /// [`Duplicate`] if a rank occurs twice.
    pub fn new(ranks: impl IntoIterator<Item = WorldRank>) -> Result<Self, Duplicate> {
        let ranks: Vec<WorldRank> = ranks.into_iter().collect();
        let group = Self::of(&ranks);
        match group.duplicate() {
            Some(rank) => Err(Duplicate { rank: WorldRank(rank) }),
            None => Ok(group),
        }
    }

    /// Returns the group of the given ranks. If a rank occurs twice, the result is invalid.
    fn of(ranks: &[WorldRank]) -> Self {
        let len = u32::try_from(ranks.len()).expect("there are fewer than 2^32 ranks");
        let first = ranks.first().map_or(0, |rank| rank.0);
        let step = match ranks {
            [first, second, ..] => i64::from(second.0) - i64::from(first.0),
            _ => 1,
        };
        let is_progression =
            step != 0 && ranks.windows(2).all(|pair| i64::from(pair[1].0) - i64::from(pair[0].0) == step);
        if is_progression {
            return Self(Shape::Progression { first, step, len });
        }
        let mut runs: Vec<Run> = Vec::new();
        for (index, &WorldRank(rank)) in (0..).zip(ranks) {
            match runs.last_mut() {
                Some(run) if rank.checked_sub(run.first) == Some(run.len) => run.len += 1,
                _ => runs.push(Run { first: rank, len: 1, index }),
            }
        }
        let mut ascending: Vec<u32> = (0..).take(runs.len()).collect();
        ascending.sort_unstable_by_key(|&run| runs[run as usize].first);
        Self(Shape::Runs(Arc::new(Runs { runs: runs.into(), ascending: ascending.into(), len })))
    }

    /// Returns a rank that occurs twice.
    fn duplicate(&self) -> Option<u32> {
        let Shape::Runs(runs) = &self.0 else { return None };
        let in_order = |pair: &[u32]| [runs.runs[pair[0] as usize], runs.runs[pair[1] as usize]];
        let overlap = |[low, high]: [Run; 2]| (high.first - low.first < low.len).then_some(high.first);
        runs.ascending.windows(2).find_map(|pair| overlap(in_order(pair)))
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
            Shape::Progression { first, step, len } => {
                let distance = i64::from(rank.0) - i64::from(*first);
                let index = (distance % step == 0).then(|| distance / step)?;
                u32::try_from(index).ok().filter(|index| index < len)
            }
            Shape::Runs(runs) => runs.index(rank),
        }
    }

    /// Returns true if the rank is a member.
    #[inline]
    #[must_use]
    pub fn contains(&self, rank: WorldRank) -> bool {
        self.index(rank).is_some()
    }

    /// Returns some member whose rank is `least` or larger, or `None` if all are smaller.
    #[must_use]
    pub fn find_from(&self, least: u32) -> Option<WorldRank> {
        let is_one = |rank: &u32| *rank >= least;
        match &self.0 {
            Shape::Progression { len, .. } => {
                let ends = [Some(0), len.checked_sub(1)].into_iter().flatten();
                ends.filter_map(|index| self.rank(index)).find(|rank| is_one(&rank.0))
            }
            Shape::Runs(runs) => {
                let last = runs.ascending.last().map(|&run| runs.runs[run as usize]);
                last.map(|run| run.first + (run.len - 1)).filter(is_one).map(WorldRank)
            }
        }
    }

    /// Returns the group as words for a message: two for each arithmetic progression or run that it consists of, so a
    /// regular group has few.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let words = |first: u32, len: u32, step: i64| [u64::from(len) << 32 | u64::from(first), step as u64];
        match &self.0 {
            Shape::Progression { len: 0, .. } => Vec::new(),
            Shape::Progression { first, step, len } => words(*first, *len, *step).to_vec(),
            Shape::Runs(runs) => runs.runs.iter().flat_map(|run| words(run.first, run.len, 1)).collect(),
        }
    }

    /// Returns the group that [`to_words`](Self::to_words) has written as these words. Returns `None` if they do not
    /// describe a group of ranks below `size`.
    #[must_use]
    pub fn from_words(words: &[u64], size: u32) -> Option<Self> {
        let (parts, rest) = words.as_chunks();
        if !rest.is_empty() {
            return None;
        }
        let mut all: Vec<Self> = Vec::new();
        let mut total = 0;
        for &[place, step] in parts {
            let (first, len, step) = (place as u32, (place >> 32) as u32, step as i64);
            total += u64::from(len);
            let last = step.checked_mul(i64::from(len.checked_sub(1)?))?.checked_add(i64::from(first))?;
            if step == 0 || first >= size || !(0..i64::from(size)).contains(&last) || total > size.into() {
                return None;
            }
            all.push(Self(Shape::Progression { first, step: if len == 1 { 1 } else { step }, len }));
        }
        match all.len() {
            0 => Some(Self::EMPTY),
            1 => all.pop(),
            _ => Self::new(all.iter().flat_map(Self::iter)).ok(),
        }
    }

    /// Iterates over the ranks in the order of the group.
    pub fn iter(&self) -> impl Iterator<Item = WorldRank> + '_ {
        let (progression, runs) = match &self.0 {
            Shape::Progression { first, step, len } => {
                let (first, step) = (i64::from(*first), *step);
                (Some((0..i64::from(*len)).map(move |index| (first + index * step) as u32)), None)
            }
            Shape::Runs(runs) => {
                let ranks = |run: &Run| (run.first..=run.first + (run.len - 1)).collect::<Vec<_>>();
                (None, Some(runs.runs.iter().flat_map(ranks)))
            }
        };
        progression.into_iter().flatten().chain(runs.into_iter().flatten()).map(WorldRank)
    }

    /// Returns the members of this group, and behind them those of `other` that are not in this one.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let theirs = other.iter().filter(|&rank| !self.contains(rank));
        Self::of(&self.iter().chain(theirs).collect::<Vec<_>>())
    }

    /// Returns the members of this group that are in `other` too, in the order of this group.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.filter(|rank| other.contains(rank))
    }

    /// Returns the members of this group that are not in `other`, in the order of this group.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.filter(|rank| !other.contains(rank))
    }

    /// Returns the members for whose rank `keep` returns true, in the order of this group.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(WorldRank) -> bool) -> Self {
        Self::of(&self.iter().filter(|&rank| keep(rank)).collect::<Vec<_>>())
    }

    /// Returns every `step`th member, from the first on.
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn stride(&self, step: u32) -> Self {
        Self::of(&self.iter().step_by(step as usize).collect::<Vec<_>>())
    }

    /// Returns the members with these indices, in the order of the indices. Returns `None` if an index is not below the
    /// number of members.
    ///
    /// # Errors
    /// [`Duplicate`] if an index occurs twice.
    pub fn include(&self, indices: impl IntoIterator<Item = u32>) -> Result<Option<Self>, Duplicate> {
        let ranks: Option<Vec<WorldRank>> = indices.into_iter().map(|index| self.rank(index)).collect();
        ranks.map(Self::new).transpose()
    }

    /// Returns the group without the members at these indices.
    #[must_use]
    pub fn exclude(&self, indices: impl IntoIterator<Item = u32>) -> Self {
        let mut excluded: Vec<WorldRank> = indices.into_iter().filter_map(|index| self.rank(index)).collect();
        excluded.sort_unstable();
        self.filter(|rank| excluded.binary_search(&rank).is_err())
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
            false if self.len() == other.len() && self.iter().all(|rank| other.contains(rank)) => {
                Comparison::Similar
            }
            false => Comparison::Unequal,
        }
    }

    /// Returns the groups into which the members' choices split this group, by colour. `choices` holds the colour and
    /// key of each member, by index; a member with colour `None` is in no group. Within each group, members are ordered
    /// by key; members with the same key keep the order of this group.
    #[must_use]
    pub fn split<C: Copy + Ord>(&self, choices: &[(Option<C>, i64)]) -> BTreeMap<C, Self> {
        let mut by_colour: BTreeMap<C, Vec<(i64, WorldRank)>> = BTreeMap::new();
        for (rank, &(colour, key)) in self.iter().zip(choices) {
            if let Some(colour) = colour {
                by_colour.entry(colour).or_default().push((key, rank));
            }
        }
        let group = |mut members: Vec<(i64, WorldRank)>| {
            members.sort_by_key(|(key, _)| *key);
            Self::of(&members.into_iter().map(|(_, rank)| rank).collect::<Vec<_>>())
        };
        by_colour.into_iter().map(|(colour, members)| (colour, group(members))).collect()
    }
}

impl Runs {
    fn rank(&self, index: u32) -> Option<WorldRank> {
        if index >= self.len {
            return None;
        }
        // The first run has index 0, so at least one run begins at `index` or before.
        let run = self.runs[self.runs.partition_point(|run| run.index <= index) - 1];
        Some(WorldRank(run.first + (index - run.index)))
    }

    fn index(&self, rank: WorldRank) -> Option<u32> {
        let behind = self.ascending.partition_point(|&run| self.runs[run as usize].first <= rank.0);
        let run = self.runs[self.ascending[behind.checked_sub(1)?] as usize];
        let distance = rank.0 - run.first;
        (distance < run.len).then_some(run.index + distance)
    }
}

impl fmt::Debug for Group {
    /// Prints at most the first 16 runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Shape::Progression { len: 0, .. } => write!(f, "Group {{}}"),
            Shape::Progression { first, step, len } => {
                let last = i64::from(*first) + i64::from(len - 1) * step;
                match step {
                    1 => write!(f, "Group {{{first}..={last}}}"),
                    _ => write!(f, "Group {{{first}..={last} by {step}}}"),
                }
            }
            Shape::Runs(runs) => {
                write!(f, "Group {{")?;
                for run in runs.runs.iter().take(16) {
                    match run.len {
                        1 => write!(f, "{}, ", run.first)?,
                        len => write!(f, "{}..={}, ", run.first, run.first + (len - 1))?,
                    }
                }
                write!(f, "{} members}}", runs.len)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(group: &Group) -> Vec<u32> {
        group.iter().map(|rank| rank.0).collect()
    }

    /// Lists of ranks of all shapes: random, ranges with holes, progressions, and a few ranks near the largest possible
    /// rank.
    fn ranks() -> impl Strategy<Value = Vec<u32>> {
        let distinct = |ranks: Vec<u32>| {
            let mut seen = std::collections::HashSet::new();
            ranks.into_iter().filter(|rank| seen.insert(*rank)).collect::<Vec<_>>()
        };
        prop_oneof![
            prop::collection::vec(0u32..40, 0..20).prop_map(distinct),
            (0u32..30, 0u32..20).prop_map(|(first, len)| (first..first + len).collect()),
            (0u32..30, 0u32..20, 0u32..50)
                .prop_map(|(first, len, hole)| (first..first + len).filter(|rank| *rank != hole).collect()),
            (0u32..10, 1usize..5, any::<bool>()).prop_map(|(first, step, down)| {
                let mut ranks: Vec<u32> = (first..40).step_by(step).collect();
                if down {
                    ranks.reverse();
                }
                ranks
            }),
            prop::collection::vec(u32::MAX - 5..=u32::MAX, 0..5).prop_map(distinct),
        ]
    }

    proptest! {
        #[test]
        fn every_operation_agrees_with_a_list(a in ranks(), b in ranks(), indices in ranks()) {
            let (group, other) = (Group::new(a.iter().copied().map(WorldRank)).unwrap(), Group::new(b.iter().copied().map(WorldRank)).unwrap());
            prop_assert_eq!(list(&group), a.clone());
            prop_assert_eq!(group.len() as usize, a.len());
            for index in 0..a.len() as u32 + 2 {
                prop_assert_eq!(group.rank(index), a.get(index as usize).copied().map(WorldRank));
                let found = a.get(index as usize).and_then(|rank| b.iter().position(|other| other == rank));
                prop_assert_eq!(group.translate(index, &other), found.map(|found| found as u32));
            }
            for rank in (0..45).chain(u32::MAX - 6..=u32::MAX) {
                let found = a.iter().position(|member| *member == rank);
                prop_assert_eq!(group.index(WorldRank(rank)), found.map(|found| found as u32));
            }
            let without: Vec<u32> = b.iter().copied().filter(|rank| !a.contains(rank)).collect();
            prop_assert_eq!(list(&group.union(&other)), [a.clone(), without].concat());
            let common: Vec<u32> = a.iter().copied().filter(|rank| b.contains(rank)).collect();
            prop_assert_eq!(list(&group.intersection(&other)), common);
            let rest: Vec<u32> = a.iter().copied().filter(|rank| !b.contains(rank)).collect();
            prop_assert_eq!(list(&group.difference(&other)), rest);
            let chosen: Option<Vec<u32>> = indices.iter().map(|index| a.get(*index as usize).copied()).collect();
            for least in 0..45 {
                let has_one = a.iter().any(|rank| *rank >= least);
                prop_assert_eq!(group.find_from(least).is_some(), has_one);
                prop_assert!(group.find_from(least).is_none_or(|rank| rank.0 >= least && a.contains(&rank.0)));
            }
            prop_assert_eq!(Group::from_words(&group.to_words(), u32::MAX), (!a.contains(&u32::MAX)).then(|| group.clone()));
            let included = group.include(indices.iter().copied()).unwrap();
            prop_assert_eq!(included.map(|group| list(&group)), chosen);
            let remaining = (0..).zip(&a).filter(|(index, _)| !indices.contains(index)).map(|(_, rank)| *rank);
            prop_assert_eq!(list(&group.exclude(indices.iter().copied())), remaining.collect::<Vec<_>>());
            let sorted = |mut ranks: Vec<u32>| { ranks.sort_unstable(); ranks };
            let comparison = match () {
                () if a == b => Comparison::Identical,
                () if sorted(a.clone()) == sorted(b.clone()) => Comparison::Similar,
                () => Comparison::Unequal,
            };
            prop_assert_eq!(group.compare(&other), comparison);
        }

        #[test]
        fn any_words_are_a_group_or_none(words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..4, (0u64..9, 0u64..9).prop_map(|(first, len)| len << 32 | first)], 0..7)) {
            if let Some(group) = Group::from_words(&words, 10) {
                prop_assert!(group.iter().all(|rank| rank.0 < 10));
                prop_assert_eq!(Group::new(group.iter()), Ok(group.clone()));
                prop_assert_eq!(Group::from_words(&group.to_words(), 10), Some(group));
            }
        }

        #[test]
        fn a_group_is_represented_in_one_way(a in ranks(), b in ranks()) {
            let group = Group::new(a.iter().copied().map(WorldRank)).unwrap();
            let other = Group::new(b.iter().copied().map(WorldRank)).unwrap();
            prop_assert_eq!(group.union(&other).intersection(&group), group.clone());
            prop_assert_eq!(group.difference(&other).union(&other).compare(&group.union(&other)) == Comparison::Unequal, false);
            prop_assert_eq!(group == other, a == b);
        }

        #[test]
        fn a_split_orders_by_key_and_then_by_index(
            a in ranks(),
            choices in prop::collection::vec((prop::option::of(0u32..4), -2i64..3), 40),
        ) {
            let group = Group::new(a.iter().copied().map(WorldRank)).unwrap();
            let split = group.split(&choices);
            for colour in 0..4 {
                let mut members: Vec<(i64, usize)> = (0..a.len())
                    .filter(|&index| choices[index].0 == Some(colour))
                    .map(|index| (choices[index].1, index))
                    .collect();
                members.sort_unstable();
                let ranks: Vec<u32> = members.into_iter().map(|(_, index)| a[index]).collect();
                prop_assert_eq!(split.get(&colour).map(list).unwrap_or_default(), ranks);
            }
        }

        #[test]
        fn a_rank_that_occurs_twice_is_refused(a in ranks(), index in any::<prop::sample::Index>()) {
            prop_assume!(!a.is_empty());
            let twice = a[index.index(a.len())];
            let refused = Group::new(a.iter().copied().chain([twice]).map(WorldRank));
            prop_assert_eq!(refused, Err(Duplicate { rank: WorldRank(twice) }));
        }
    }

    #[test]
    fn what_is_regular_takes_no_memory() {
        let world = Group::range(WorldRank(0), 1 << 20);
        for group in [world.stride(2), world.exclude([0]), world.filter(|rank| rank >= WorldRank(1 << 19))] {
            assert!(matches!(group.0, Shape::Progression { .. }), "{group:?}");
        }
        let holes = world.exclude([5, 70_000, 900_000]);
        let Shape::Runs(runs) = &holes.0 else { panic!("{holes:?} has holes") };
        assert_eq!(
            (runs.runs.len(), holes.rank(5), holes.index(WorldRank(900_001))),
            (4, Some(WorldRank(6)), Some(899_998))
        );
        assert!(size_of::<Group>() <= 24);
    }

    #[test]
    fn a_group_prints_its_runs() {
        let shown =
            |ranks: &[u32]| format!("{:?}", Group::new(ranks.iter().copied().map(WorldRank)).unwrap());
        assert_eq!(shown(&[]), "Group {}");
        assert_eq!(shown(&[4, 5, 6]), "Group {4..=6}");
        assert_eq!(shown(&[7, 5, 3]), "Group {7..=3 by -2}");
        assert_eq!(shown(&[0, 1, 2, 9]), "Group {0..=2, 9, 4 members}");
    }
}
