//! Ranks, and the selection of a receive: source and tag.

use std::fmt;

use serde::Serialize;

/// The number of a process in a communicator, counted from 0. In the world's communicator it is the number in the job.
///
/// Ranks and tags are both numbers. Ranks have a separate type, so the compiler refuses a call that has the two in the
/// wrong order:
///
/// ```
/// use samite::Rank;
///
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// let other = Rank(1 - comm.rank().0);
/// comm.send(&[1u8], other, 7)?;
/// let status = comm.recv(&mut [0u8], other, 7)?;
/// assert_eq!((status.peer, status.tag), (other, 7));
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
/// ```compile_fail,E0277
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// comm.send(&[1u8], 7, samite::Rank(1))
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Rank(pub u32);

impl Rank {
    /// The peer in the [`Status`](crate::Status) of an operation whose partner was absent (`MPI_PROC_NULL`). Calls do
    /// not accept it as a rank: an absent [`Destination`] or [`Source`] is `None`.
    pub const ABSENT: Self = Self(u32::MAX);

    /// Returns the number as an index into tables of all ranks.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for Rank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}

impl From<Rank> for u32 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

/// `world.rank() == 0` reads better than `world.rank() == Rank(0)`.
impl PartialEq<u32> for Rank {
    fn eq(&self, rank: &u32) -> bool {
        self.0 == *rank
    }
}

impl PartialEq<Rank> for u32 {
    fn eq(&self, rank: &Rank) -> bool {
        *self == rank.0
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The destination of a message: a [`Rank`], or `None` for an absent partner.
///
/// A partner may be absent (`MPI_PROC_NULL`; MPI 4.1, section 3.10): for example a neighbour beyond the edge of a grid.
/// A send to `None` ends at once, and sends nothing. A receive, a probe or a claim from `None` ends at once with a
/// message of 0 bytes from [`Rank::ABSENT`] with the requested tag, and leaves its buffer as it was. So all ranks of a
/// grid make the same calls:
///
/// ```
/// use samite::{Cartesian, Dimension, Rank};
///
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// let line = Cartesian::new(&[Dimension::open(comm.size())]).unwrap();
/// let shift = line.shift(comm.rank(), 0, 1).unwrap();
/// let mut from_left = [9];
/// let status = comm.sendrecv(&[comm.rank().0], shift.destination, 7, &mut from_left, shift.source, 7)?;
/// match comm.rank() {
///     Rank(0) => assert_eq!((status.peer, status.bytes, from_left), (Rank::ABSENT, 0, [9])),
///     Rank(rank) => assert_eq!((status.peer, from_left), (Rank(rank - 1), [rank - 1])),
/// }
/// comm.send(&[1u8], None, 7)?;
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination(pub(crate) Option<Rank>);

impl From<Rank> for Destination {
    fn from(rank: Rank) -> Self {
        Self(Some(rank))
    }
}

/// `None` is an absent destination.
impl From<Option<Rank>> for Destination {
    fn from(rank: Option<Rank>) -> Self {
        Self(rank)
    }
}

/// The source of a message: a [`Rank`], [`Source::ANY`], or `None` for an absent partner: see [`Destination`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(crate) Accepted);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    Rank(Rank),
    Any,
    Absent,
}

impl Source {
    /// Any rank.
    pub const ANY: Self = Self(Accepted::Any);

    /// Returns the rank if the source is one rank.
    pub(crate) fn rank(self) -> Option<Rank> {
        match self.0 {
            Accepted::Rank(rank) => Some(rank),
            Accepted::Any | Accepted::Absent => None,
        }
    }
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Self::from(Some(rank))
    }
}

/// `None` stands for an absent source, from which nothing arrives. It does not mean any source: that is
/// [`Source::ANY`].
impl From<Option<Rank>> for Source {
    fn from(rank: Option<Rank>) -> Self {
        Self(rank.map_or(Accepted::Absent, Accepted::Rank))
    }
}

/// The tag of a message to receive: one tag, [`Tag::ANY`], or all tags that agree in some bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub(crate) tag: u64,
    pub(crate) mask: u64,
}

impl Tag {
    /// Any tag.
    pub const ANY: Self = Self { tag: 0, mask: 0 };

    /// Returns the pattern of all tags that agree with `tag` in every bit that is set in `mask`.
    #[must_use]
    pub const fn masked(tag: u64, mask: u64) -> Self {
        Self { tag, mask }
    }

    /// Returns true if the pattern stands for several tags.
    pub(crate) fn is_wildcard(self) -> bool {
        self.mask != !0
    }
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Self { tag, mask: !0 }
    }
}

/// The root of a collective call.
///
/// In a communicator of one group it is a rank, and calls accept a [`Rank`]. In an intercommunicator the root is in one
/// group and exchanges data with all ranks of the other group (MPI 4.1, section 6.2.3):
///
/// ```
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// use samite::{Rank, Root};
///
/// // Rank 0 is one group, and the other ranks are the other group.
/// let is_first = comm.rank() == 0;
/// let mine = comm.split(Some(u32::from(is_first)), 0)?.expect("it has a colour");
/// let both = mine.create_intercomm(Rank(0), &comm, Rank(u32::from(is_first)), 7)?;
/// let mut number = [if is_first { 5 } else { 0 }];
/// both.bcast(&mut number, if is_first { Root::This } else { Root::Rank(Rank(0)) })?;
/// assert_eq!(number, [5]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// A rank of the communicator; in an intercommunicator, a rank of the other group.
    Rank(Rank),
    /// This rank, in an intercommunicator (`MPI_ROOT`).
    This,
    /// Another rank of this rank's group, in an intercommunicator (`MPI_PROC_NULL`). This rank takes no part, and its
    /// slices are not used.
    Beside,
}

impl From<Rank> for Root {
    fn from(rank: Rank) -> Self {
        Self::Rank(rank)
    }
}
