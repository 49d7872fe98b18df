//! An engine's counters and present state.

use samite_fabric::link::Rejected;

/// Counts of events since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages whose bytes were sent in the packet of the envelope, or right behind it.
    pub eager: u64,
    /// Packets that were sent with several messages, or with one message and the news of credit of another packet.
    pub bundles: u64,
    /// Messages of which only the envelope was sent at first, because of their length or for lack of credit.
    pub rendezvous: u64,
    /// Messages that arrived before a receive that matches them.
    pub unexpected: u64,
    /// The largest number of messages that waited for a receive at the same time.
    pub unexpected_max: u64,
    /// Messages and initializations of partitioned sends that this engine refused, because its budget for envelopes or
    /// its memory for matching was used up.
    pub refused: u64,
    /// Messages of the outbox that were not delivered: their receiver failed, left, or gave up the receive, or this
    /// rank left before it had received its own messages to itself.
    pub lost: u64,
    /// Packets that the link has refused, by reason.
    pub rejected: Rejected,
    /// Packets about operations that had ended.
    pub stale: u64,
    /// Packets and gets that the port did not accept, because it had no room for them.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
    /// Buffers that a port still held when their operation had ended: see
    /// [`Config::quarantine_max`](crate::Config::quarantine_max).
    pub quarantined: u64,
    /// Times that memory was registered with a port.
    pub registrations: u64,
}

/// The engine's present state. All fields are 0 except `peers`, `credit_granted`, `registrations` and `registered`, and
/// `quarantined` after the failure of a peer, if every request has ended and was collected, no packet is queued, no
/// message waits or is claimed, and no partitioned send or receive is initialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Known peers.
    pub peers: usize,
    /// Requests that have not ended or were not collected.
    pub requests: usize,
    /// Operations outstanding at the port.
    pub operations: usize,
    /// The number of packets and sends that wait for room in the port, for credit, or for a loan of their buffer.
    pub queued: usize,
    /// Bytes of credit that peers hold and have not used.
    pub credit_granted: u64,
    /// Cost in bytes of the messages that were copied, and wait in this process after their sends have returned.
    pub outbox: u64,
    /// Bytes of the messages that are gathered and not sent yet, and of their items.
    pub gathered: u64,
    /// Messages that wait for a receive.
    pub unexpected_messages: usize,
    /// Cost in bytes of the data that waits for a receive.
    pub unexpected: u64,
    /// Cost in bytes of the envelopes without data, and of the initializations of partitioned sends, that wait for a
    /// receive.
    pub envelopes: u64,
    /// Registrations of memory that serves one message after the other: see
    /// [`Config::registered_max`](crate::Config::registered_max).
    pub registrations: usize,
    /// Bytes of this memory.
    pub registered: u64,
    /// Bytes of the part of this memory that messages use now.
    pub registered_used: u64,
    /// Partitioned sends and receives that were initialized and not dropped.
    pub partitioned: usize,
    /// Bytes of ended operations that a port still holds. If the peer is dead, the port may hold them for ever.
    pub quarantined: u64,
}
