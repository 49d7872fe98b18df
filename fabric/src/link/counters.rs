//! Counts of a link's events.

use crate::wire::WireError;

/// Events since the link began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that were refused.
    pub rejected: Rejected,
    /// Packets to or about operations that are over.
    pub stale: u64,
    /// Times that the port had no room.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
}

/// Messages exchanged with one rank, in all its incarnations. A message is counted with its first packet, also if it
/// fails later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages sent to the rank with their envelope, or right behind it.
    pub eager_sent: u64,
    /// Messages to the rank whose envelope went alone.
    pub rendezvous_sent: u64,
    /// Bytes of all messages sent to the rank.
    pub bytes_sent: u64,
    /// Messages that arrived with their envelope, or right behind it.
    pub eager_received: u64,
    /// Messages whose envelope arrived alone.
    pub rendezvous_received: u64,
    /// Bytes of all messages from the rank.
    pub bytes_received: u64,
    /// The received messages that arrived before their receive.
    pub unexpected: u64,
}

/// Packets that were refused, by cause. Such a packet costs no memory and changes nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// Packets of another version of the wire.
    pub version: u64,
    /// Bytes that are no packet.
    pub malformed: u64,
    /// Meant for a process that had this address before, or will have it.
    pub misdirected: u64,
    /// From a sender that has not introduced itself: no hello of that rank and incarnation was heard.
    pub unknown: u64,
    /// A hello without the job's secret.
    pub secret: u64,
    /// A hello with the secret that is malformed or out of date.
    pub hello: u64,
    /// A notified put that no protocol expects.
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
