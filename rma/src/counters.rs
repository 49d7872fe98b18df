//! Counts of events.

/// Counts of the events of all windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations whose packets were all sent.
    pub operations: u64,
    /// Operations of this process on mapped memory.
    pub mapped: u64,
    /// Operations of this process that were puts of the port.
    pub put: u64,
    /// Operations of this process that were gets of the port, or that their target has answered by puts.
    pub got: u64,
    /// Bytes that packets of other ranks and of this one have written here.
    pub written: u64,
    /// Bytes that were read here for packets of other ranks and of this one.
    pub read: u64,
    /// Epochs that have completed.
    pub epochs: u64,
    /// The number of these epochs whose operations have travelled with the request for the lock.
    pub aggregated: u64,
    /// Locks that this process has granted by packets.
    pub locks: u64,
    /// Locks of mapped parts that this process has taken without a packet.
    pub mapped_locks: u64,
    /// Requests for windows that do not exist yet, and that were refused because too many wait.
    pub refused: u64,
    /// Packets of operations on memory that is not attached to a dynamic window. They have no effect.
    pub missed: u64,
}
