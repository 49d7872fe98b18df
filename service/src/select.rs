//! The selection of a receive: source and tag.

/// The source of a message: a rank, or [`Source::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(crate) samite_p2p::Source);

impl Source {
    /// Any rank.
    pub const ANY: Self = Self(samite_p2p::Source::ANY);
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self(samite_p2p::Source::rank(rank))
    }
}

/// The tag of a message: one tag, [`Tag::ANY`], or all tags that agree in some bits.
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
