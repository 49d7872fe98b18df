//! What an engine did, and what it holds.

/// Events since the engine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages sent with their envelope.
    pub eager: u64,
    /// Messages whose envelope went alone, for lack of credit or for their length.
    pub rendezvous: u64,
    /// Messages that arrived before their receive.
    pub unexpected: u64,
    /// Envelopes refused for lack of budget.
    pub refused: u64,
    /// Packets that were not understood, or came from nobody known.
    pub rejected: u64,
    /// Packets to or about operations that are over.
    pub stale: u64,
    /// Times that the port had no room.
    pub again: u64,
    /// Peers that failed.
    pub failed_peers: u64,
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
    /// Packets that wait for room in the port.
    pub queued: usize,
    /// Bytes of credit that peers hold and have not used.
    pub credit_granted: u64,
    /// Cost in bytes of the data that waits for its receive.
    pub unexpected: u64,
    /// Cost in bytes of the envelopes that wait for their receive.
    pub envelopes: u64,
}
