//! The two queues, distinguished by the type of the query that searches them.

use core::fmt::Debug;

use crate::key::{Envelope, Pattern, Source};
use crate::pool::Entry;

/// A queue: posted receives, or unexpected messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Receives that wait for a message (MPI: the posted receive queue, PRQ).
    Posted = 0,
    /// Messages that wait for a receive (MPI: the unexpected message queue, UMQ).
    Unexpected = 1,
}

/// The query of a search: an [`Envelope`] searches the posted receives, a [`Pattern`] the unexpected messages.
///
/// This is the only difference between the queues, so a [`Structure`](crate::Structure) is written once for both.
pub trait Query: Copy + Debug + private::Sealed {
    /// The queue that this query searches.
    const SIDE: Side;
    /// The type of the tag mask in entries of that queue.
    type Mask: Copy + Debug;
    /// Returns the context to search.
    fn context(&self) -> u32;
    /// Returns the source to search: the sender's rank, or the source of the receive.
    fn source(&self) -> Source;
    /// Returns the tag to search.
    fn tag(&self) -> u64;
    /// Returns the tag bits that the search compares.
    fn mask(&self) -> u64;
    /// Returns the mask with which an entry of the queue was stored.
    fn entry_mask(mask: Self::Mask) -> u64;

    /// Returns true if source and tag of the entry match this query. The structure compares contexts.
    fn matches<L, T>(&self, entry: &Entry<Self, L, T>) -> bool {
        let source = self.source().bits() == entry.source || self.source_is_wild(entry.source);
        source && self.matches_tag(entry)
    }

    /// Returns true if the tag of the entry matches this query.
    fn matches_tag<L, T>(&self, entry: &Entry<Self, L, T>) -> bool {
        (self.tag() ^ entry.tag) & self.mask() & Self::entry_mask(entry.mask) == 0
    }

    /// Returns true if the receive accepts any source. The receive is this query if it searches messages, and the entry
    /// if it searches receives.
    fn source_is_wild(&self, entry_source: u32) -> bool;
}

/// The mask type of messages. Messages have no mask: every bit of their tag counts.
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
