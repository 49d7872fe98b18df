//! Counts of a link's events.

use crate::wire::WireError;

/// Events since the link began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that were refused.
    pub rejected: Rejected,
    /// Packets that arrived too late: the operation that they concern was over.
    pub stale: u64,
    /// Times that the port had no room.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
    /// Packets that were sent with several messages, or with one message and the news of credit of another packet.
    pub bundles: u64,
    /// Times that memory was registered.
    pub registrations: u64,
}

/// Messages exchanged with one rank, in all its incarnations. A message counts as soon as its first packet is sent or
/// received, even if the message fails later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages to the rank whose bytes were sent in the packet of the envelope, or in the packets right after that.
    pub eager_sent: u64,
    /// Messages to the rank of which only the envelope was sent at first.
    pub rendezvous_sent: u64,
    /// Bytes of all messages sent to the rank.
    pub bytes_sent: u64,
    /// Messages from the rank whose bytes arrived in the packet of the envelope, or in the packets right after that.
    pub eager_received: u64,
    /// Messages from the rank of which only the envelope arrived at first.
    pub rendezvous_received: u64,
    /// Bytes of all messages from the rank.
    pub bytes_received: u64,
    /// Messages from the rank that arrived before a receive for them was posted.
    pub unexpected: u64,
}

/// Packets that were refused, by cause. A refused packet takes no memory, and changes nothing but these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// Packets of another version of the wire.
    pub version: u64,
    /// Bytes that are no packet.
    pub malformed: u64,
    /// Packets for another process that had this address before, or will have it.
    pub misdirected: u64,
    /// Packets of a sender in an incarnation from which no hello has arrived.
    pub unknown: u64,
    /// Hellos without the job's secret.
    pub secret: u64,
    /// Hellos that have the job's secret, but have a wrong length or an invalid rank, come from a process that has
    /// ended, or are for another incarnation of this rank.
    pub hello: u64,
    /// Notified puts that no protocol expects.
    pub notification: u64,
}

impl Rejected {
    /// Counts bytes that are no packet.
    #[cold]
    pub(super) fn count(&mut self, error: WireError) {
        match error {
            WireError::Version { .. } => self.version += 1,
            _ => self.malformed += 1,
        }
    }

    /// Returns the sum of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { version, malformed, misdirected, unknown, secret, hello, notification } = *self;
        version + malformed + misdirected + unknown + secret + hello + notification
    }
}
