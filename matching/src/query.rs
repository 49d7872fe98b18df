//! The two queues, told apart by what searches them.

use core::fmt::Debug;

use crate::key::{Envelope, Pattern, Source};
use crate::pool::Entry;

/// Which queue: posted receives, or unexpected messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Receives that wait for a message (MPI: the posted receive queue, PRQ).
    Posted = 0,
    /// Messages that wait for a receive (MPI: the unexpected message queue, UMQ).
    Unexpected = 1,
}

/// What searches a queue: an [`Envelope`] searches the posted receives, a [`Pattern`] the unexpected messages.
///
/// Both queues differ only by this, so a [`Structure`](crate::Structure) is written once for both.
pub trait Query: Copy + Debug + private::Sealed {
    /// The queue that it searches.
    const SIDE: Side;
    /// The tag mask kept in entries of that queue.
    type Mask: Copy + Debug;
    /// The context searched.
    fn context(&self) -> u32;
    /// The source searched: the rank that sent, or what the receive asks for.
    fn source(&self) -> Source;
    /// The tag searched.
    fn tag(&self) -> u64;
    /// The bits of the tag that the search compares.
    fn mask(&self) -> u64;
    /// The mask that an entry of the queue was stored with.
    fn entry_mask(mask: Self::Mask) -> u64;

    /// Whether source and tag of the entry agree with this query. Their contexts are the structure's matter.
    fn matches<L, T>(&self, entry: &Entry<Self, L, T>) -> bool {
        let source = self.source().bits() == entry.source || self.source_is_wild(entry.source);
        source && self.matches_tag(entry)
    }

    /// Whether the tag of the entry agrees with this query.
    fn matches_tag<L, T>(&self, entry: &Entry<Self, L, T>) -> bool {
        (self.tag() ^ entry.tag) & self.mask() & Self::entry_mask(entry.mask) == 0
    }

    /// Whether the wildcard, on the side that may have one, covers the difference in source.
    fn source_is_wild(&self, entry_source: u32) -> bool;
}

/// The mask of messages, which have none: every bit of a tag counts.
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl private::Sealed for Envelope {}

impl Query for Envelope {
    const SIDE: Side = Side::Posted;
    type Mask = u64;

    fn context(&self) -> u32 {
        self.context
    }

    fn source(&self) -> Source {
        Source::rank(self.source)
    }

    fn tag(&self) -> u64 {
        self.tag
    }

    fn mask(&self) -> u64 {
        !0
    }

    fn entry_mask(mask: u64) -> u64 {
        mask
    }

    fn source_is_wild(&self, entry_source: u32) -> bool {
        entry_source == Source::ANY.bits()
    }
}

impl private::Sealed for Pattern {}

impl Query for Pattern {
    const SIDE: Side = Side::Unexpected;
    type Mask = Exact;

    fn context(&self) -> u32 {
        self.context
    }

    fn source(&self) -> Source {
        self.source
    }

    fn tag(&self) -> u64 {
        self.tag
    }

    fn mask(&self) -> u64 {
        self.mask
    }

    fn entry_mask(_: Exact) -> u64 {
        !0
    }

    fn source_is_wild(&self, _: u32) -> bool {
        self.source.is_any()
    }
}

mod private {
    pub trait Sealed {}
}
