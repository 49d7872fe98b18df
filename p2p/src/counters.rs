//! What an engine did, and what it holds.

use samite_fabric::wire::WireError;

/// Events since the engine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages sent with their envelope, or right behind it.
    pub eager: u64,
    /// Messages whose envelope went alone, for lack of credit or for their length.
    pub rendezvous: u64,
    /// Messages that arrived before their receive.
    pub unexpected: u64,
    /// The most of them that waited for their receive at a time.
    pub unexpected_max: u64,
    /// Envelopes refused for lack of budget.
    pub refused: u64,
    /// Packets that were refused.
    pub rejected: Rejected,
    /// Packets to or about operations that are over.
    pub stale: u64,
    /// Times that the port had no room.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
    /// Buffers that a port still held when their operation was over: see
    /// [`Config::quarantine_max`](crate::Config::quarantine_max).
    pub quarantined: u64,
}

/// Messages exchanged with one rank, in all its lives. A message is counted with its first packet, whatever becomes of
/// it then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages sent to it with their envelope, or right behind it.
    pub eager_sent: u64,
    /// Messages to it whose envelope went alone.
    pub rendezvous_sent: u64,
    /// Bytes of all messages sent to it.
    pub bytes_sent: u64,
    /// Messages that came with their envelope, or right behind it.
    pub eager_received: u64,
    /// Messages whose envelope came alone.
    pub rendezvous_received: u64,
    /// Bytes of all messages that came from it.
    pub bytes_received: u64,
    /// Of the messages that came, those that were before their receive.
    pub unexpected: u64,
}

/// Packets that were refused, by cause. Such a packet costs no memory and changes nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// Of another version of the wire.
    pub version: u64,
    /// No packet at all.
    pub malformed: u64,
    /// Meant for a process that had this address before, or will have it.
    pub misdirected: u64,
    /// Of nobody who has introduced himself: no hello of that rank and that life was heard.
    pub unknown: u64,
    /// A hello without the job's secret.
    pub secret: u64,
    /// A hello that has the secret, and makes no sense or is out of date.
    pub hello: u64,
    /// A notified put. Nobody was given a key for one.
    pub notification: u64,
}

impl Rejected {
    /// Counts bytes that are no packet.
    #[cold]
    pub(crate) fn count(&mut self, error: WireError) {
        match error {
            WireError::Version { .. } => self.version += 1,
            _ => self.malformed += 1,
        }
    }

    /// Of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { version, malformed, misdirected, unknown, secret, hello, notification } = *self;
        version + malformed + misdirected + unknown + secret + hello + notification
    }
}

/// What the engine holds now. All but `peers` and `credit_granted` are 0 when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Peers known.
    pub peers: usize,
    /// Requests that are not finished, or not yet collected.
    pub requests: usize,
    /// Operations outstanding at the port.
    pub operations: usize,
    /// Packets, messages and bytes of messages that wait for room in the port.
    pub queued: usize,
    /// Bytes of credit that peers hold and have not used.
    pub credit_granted: u64,
    /// Messages that wait for their receive.
    pub unexpected_messages: usize,
    /// Cost in bytes of the data that waits for its receive.
    pub unexpected: u64,
    /// Cost in bytes of the envelopes that wait for their receive.
    pub envelopes: u64,
    /// Bytes of operations that are over, but not for their port. Those of a dead peer may stay.
    pub quarantined: u64,
}
