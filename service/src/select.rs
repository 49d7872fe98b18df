//! What a receive asks for.

/// Whose message: a rank's, or [`Source::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(crate) samite_p2p::Source);

impl Source {
    /// Any rank's.
    pub const ANY: Self = Self(samite_p2p::Source::ANY);
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self(samite_p2p::Source::rank(rank))
    }
}

/// Which tag: one, [`Tag::ANY`], or those that agree in some bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub(crate) tag: u64,
    pub(crate) mask: u64,
}

impl Tag {
    /// Any tag.
    pub const ANY: Self = Self { tag: 0, mask: 0 };

    /// The tags that agree with `tag` in every bit that is set in `mask`.
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
