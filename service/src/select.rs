//! Ranks, and the selection of a receive: source and tag.

use std::fmt;

use serde::Serialize;

/// The number of a process in its job, counted from 0.
///
/// Ranks and tags are numbers both. Since ranks have a type of their own, the compiler refuses a call that names them in the
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
/// ```compile_fail,E0308
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// comm.send(&[1u8], 7, samite::Rank(1))
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Rank(pub u32);

impl Rank {
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

/// The source of a message: a [`Rank`], or [`Source::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(crate) samite_p2p::Source);

impl Source {
    /// Any rank.
    pub const ANY: Self = Self(samite_p2p::Source::ANY);
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Self(samite_p2p::Source::rank(rank.0))
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
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Self { tag, mask: !0 }
    }
}
