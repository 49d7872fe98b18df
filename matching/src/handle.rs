//! The results of the matcher's operations, and the handles of queued items.

use core::num::NonZeroU32;

use crate::key::{Envelope, Pattern};
use crate::pool::Slot;

/// The handle of a posted receive. After the receive has matched or was taken out, the handle is stale and every use of
/// it returns `None`. It never refers to another receive. It belongs to the matcher that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostedId {
    pub(crate) slot: Slot,
    pub(crate) generation: NonZeroU32,
    pub(crate) context: u32,
}

/// The handle of an unexpected message. After the message has matched or was taken out, the handle is stale and every
/// use of it returns `None`. It never refers to another message. It belongs to the matcher that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedId {
    pub(crate) slot: Slot,
    pub(crate) generation: NonZeroU32,
    pub(crate) context: u32,
}

/// The result of a message's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival<P> {
    /// The message matches the receive with this payload, which is no longer posted.
    Matched(P),
    /// The message waits for its receive.
    Queued(UnexpectedId),
    /// The byte budget or the memory is exhausted. Nothing was stored, and the payload was not made.
    Refused,
}

/// The result of posting a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posting<P, U> {
    /// The receive matches the message with this envelope, which is no longer queued.
    Matched {
        /// The message's envelope.
        envelope: Envelope,
        /// The payload that was stored with the message.
        unexpected: U,
        /// The receive's own payload, returned to the caller.
        posted: P,
    },
    /// The receive waits for its message.
    Queued(PostedId),
    /// The byte budget or the memory is exhausted; the payload is returned.
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
