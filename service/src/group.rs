//! Groups: ordered sets of ranks.

use std::fmt;

use samite_p2p::{NoGroup, WorldRank};

use crate::select::Rank;

/// An ordered set of ranks of the job, from which [`Comm::create_from_group`](crate::Comm::create_from_group) makes a
/// communicator. A member's index in the group, counted from 0, is its rank in that communicator.
///
/// A group whose ranks form an arithmetic progression takes no memory beyond this value, and finds a rank in constant
/// time. Other groups are kept as a sequence of progressions. Time and memory of the set operations depend on the
/// number of progressions, and not on the number of ranks. The operations follow section 7.3 of MPI 4.1.
///
/// ```
/// use samite::{Group, Rank};
///
/// let even = Group::range(Rank(0), 8).stride(2)?;
/// assert_eq!(even.iter().collect::<Vec<_>>(), [Rank(0), Rank(2), Rank(4), Rank(6)]);
/// assert_eq!((even.rank(3), even.index(Rank(6)), even.index(Rank(5))), (Some(Rank(6)), Some(3), None));
/// # Ok::<(), samite::GroupError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) samite_p2p::Group);

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

/// The reason why a group cannot be made, or why a call does not find a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A rank is named twice.
    #[error("rank {rank} is named twice: each rank is in a group once")]
    Duplicate {
        /// The rank.
        rank: Rank,
    },
    /// A stride of 0 has no end.
    #[error("a stride of 0 has no end: the least is 1")]
    ZeroStride,
    /// [`Rank::ABSENT`] is not a rank, so no group contains it.
    #[error("`Rank::ABSENT` is not a rank, and is in no group")]
    Absent,
    /// A group has no member with this index.
    #[error("there is no member {index} in a group of {len}: indices count from 0")]
    NoMember {
        /// The index.
        index: u32,
        /// The number of members.
        len: u32,
    },
}

impl Group {
    /// The group without members.
    pub const EMPTY: Self = Self(samite_p2p::Group::EMPTY);

    /// Returns the group of `len` ranks from `first` on, or of fewer ranks if less than `len` numbers remain before
    /// [`Rank::ABSENT`].
    #[must_use]
    pub fn range(first: Rank, len: u32) -> Self {
        Self(samite_p2p::Group::range(WorldRank(first.0), len.min(u32::MAX - first.0)))
    }

    /// Returns the group of these ranks, in this order.
    ///
    /// # Errors
    /// [`GroupError::Duplicate`], [`GroupError::Absent`].
    pub fn new(ranks: impl IntoIterator<Item = Rank>) -> Result<Self, GroupError> {
        samite_p2p::Group::new(ranks.into_iter().map(|rank| WorldRank(rank.0))).map(Self).map_err(public)
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.len()
    }

    /// Returns true for the group without members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the member with this index.
    #[must_use]
    pub fn rank(&self, index: u32) -> Option<Rank> {
        self.0.rank(index).map(|rank| Rank(rank.0))
    }

    /// Returns the index of a member.
    #[must_use]
    pub fn index(&self, rank: Rank) -> Option<u32> {
        self.0.index(WorldRank(rank.0))
    }

    /// Returns true if the rank is a member.
    #[must_use]
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.contains(WorldRank(rank.0))
    }

    /// Iterates over the members in order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().map(|rank| Rank(rank.0))
    }

    /// Returns the members of this group, followed by the members of `other` that are not in this group.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    /// Returns the members that are in `other` too, in the order of this group.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0))
    }

    /// Returns the members that are not in `other`, in the order of this group.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0))
    }

    /// Returns the members that `keep` accepts, in the order of this group.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(Rank) -> bool) -> Self {
        Self(self.0.filter(|rank| keep(Rank(rank.0))))
    }

    /// Returns every `step`th member, from the first on.
    ///
    /// # Errors
    /// [`GroupError::ZeroStride`].
    pub fn stride(&self, step: u32) -> Result<Self, GroupError> {
        if step == 0 { Err(GroupError::ZeroStride) } else { Ok(Self(self.0.stride(step))) }
    }

    /// Returns the members with these indices, in the order of the indices.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn include(&self, indices: impl IntoIterator<Item = u32>) -> Result<Self, GroupError> {
        let len = self.len();
        let mut last = 0;
        let included = self.0.include(indices.into_iter().inspect(|&index| last = index)).map_err(public)?;
        // The search ends at the first index that has no member, so `last` is that index.
        included.map(Self).ok_or(GroupError::NoMember { index: last, len })
    }

    /// Returns the members whose indices are not among `indices`, in the order of this group. Indices without a member
    /// have no effect.
    #[must_use]
    pub fn exclude(&self, indices: impl IntoIterator<Item = u32>) -> Self {
        Self(self.0.exclude(indices))
    }

    /// Returns the index in `other` of the member that has this index in this group; `None` if there is no such member.
    #[must_use]
    pub fn translate(&self, index: u32, other: &Self) -> Option<u32> {
        self.0.translate(index, &other.0)
    }

    /// Compares the members of two groups, and their order.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        match self.0.compare(&other.0) {
            samite_p2p::Comparison::Identical => Comparison::Identical,
            samite_p2p::Comparison::Similar => Comparison::Similar,
            samite_p2p::Comparison::Unequal => Comparison::Unequal,
        }
    }
}

/// Returns the public error.
fn public(error: NoGroup) -> GroupError {
    match error {
        NoGroup::Duplicate(rank) => GroupError::Duplicate { rank: Rank(rank.0) },
        NoGroup::NotARank => GroupError::Absent,
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
