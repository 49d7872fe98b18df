//! What the engine answers, and the handles that name queued items.

use core::num::NonZeroU32;

use crate::key::{Envelope, Pattern};
use crate::pool::Slot;

/// Names a posted receive. It never names another one: when the receive has matched or was taken out, the handle
/// is stale, and every use of it answers `None`. It belongs to the matcher that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostedId {
    pub(crate) slot: Slot,
    pub(crate) generation: NonZeroU32,
    pub(crate) context: u32,
}

/// Names an unexpected message, with the guarantee of [`PostedId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedId {
    pub(crate) slot: Slot,
    pub(crate) generation: NonZeroU32,
    pub(crate) context: u32,
}

/// What became of a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival<P> {
    /// It goes to this receive, which is no longer posted.
    Matched(P),
    /// It waits for its receive.
    Queued(UnexpectedId),
    /// It would exceed the byte budget, or memory is exhausted; nothing was stored, and the payload was not made.
    Refused,
}

/// What became of a receive that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posting<P, U> {
    /// It gets this message, which is no longer queued.
    Matched {
        /// The message's envelope.
        envelope: Envelope,
        /// What was stored with the message.
        unexpected: U,
        /// The receive's own payload, handed back.
        posted: P,
    },
    /// It waits for its message.
    Queued(PostedId),
    /// It would exceed the byte budget, or memory is exhausted; the payload is handed back.
    Refused(P),
}

/// An item taken out by a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged<P, U> {
    /// A posted receive.
    Posted(Pattern, P),
    /// An unexpected message.
    Unexpected(Envelope, U),
}
