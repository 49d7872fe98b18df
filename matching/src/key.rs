//! The fields of messages and receives that matching compares.

use core::fmt;

/// The fields of a message that receives select by: its context, its sender and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communication context (MPI: the communicator's context id). A message and a receive of different contexts
    /// never match.
    pub context: u32,
    /// The sender's rank. `u32::MAX` is [`Source::ANY`], not a rank. If a message has it as its source nevertheless,
    /// only receives from any source match the message.
    pub source: u32,
    /// The sender's tag.
    pub tag: u64,
}

impl Envelope {
    /// Returns an envelope of `context`, `source` and `tag`.
    pub const fn new(context: u32, source: u32, tag: u64) -> Self {
        Self { context, source, tag }
    }
}

/// The source that a receive accepts: one rank, or any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(u32);

impl Source {
    /// Any source.
    pub const ANY: Self = Self(u32::MAX);

    /// Returns the source `rank`. `u32::MAX` is [`Source::ANY`], not a rank.
    pub const fn rank(rank: u32) -> Self {
        Self(rank)
    }

    /// Returns the rank, or `None` for any source.
    pub const fn as_rank(self) -> Option<u32> {
        if self.is_any() { None } else { Some(self.0) }
    }

    /// Returns true for [`Source::ANY`].
    pub const fn is_any(self) -> bool {
        self.0 == Self::ANY.0
    }

    /// Returns true if a message from `rank` satisfies this source.
    pub const fn accepts(self, rank: u32) -> bool {
        self.is_any() || self.0 == rank
    }

    /// Returns the 32 bits that queue entries store: the rank, or `u32::MAX`.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self::rank(rank)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_rank() {
            Some(rank) => write!(f, "Rank({rank})"),
            None => f.write_str("Any"),
        }
    }
}

/// The messages that a receive accepts. A pattern matches an envelope of the same context if it accepts the source, and
/// if the tag equals `tag` in every bit that is set in `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communication context.
    pub context: u32,
    /// The accepted source.
    pub source: Source,
    /// The accepted tag; bits outside `mask` are ignored.
    pub tag: u64,
    /// The tag bits that are compared: `!0` for an exact tag, 0 for any tag.
    pub mask: u64,
}

impl Pattern {
    /// Returns a pattern for exactly this context, source and tag.
    pub const fn exact(context: u32, source: u32, tag: u64) -> Self {
        Self { context, source: Source::rank(source), tag, mask: !0 }
    }

    /// Returns a pattern for any message of `context`.
    pub const fn any(context: u32) -> Self {
        Self { context, source: Source::ANY, tag: 0, mask: 0 }
    }

    /// Returns the same pattern for any source.
    #[must_use]
    pub const fn any_source(self) -> Self {
        Self { source: Source::ANY, ..self }
    }

    /// Returns the same pattern for any tag.
    #[must_use]
    pub const fn any_tag(self) -> Self {
        self.masked(0)
    }

    /// Returns the same pattern with a mask: only the tag bits set in `mask` are compared.
    #[must_use]
    pub const fn masked(self, mask: u64) -> Self {
        Self { mask, ..self }
    }

    /// Returns true if this pattern matches `envelope`.
    pub const fn matches(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.accepts(envelope.source)
            && (self.tag ^ envelope.tag) & self.mask == 0
    }
}
