//! The settings of a link.

/// Limits of a [`Link`](super::Link).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Budget for data that arrives before its receive, bytes: the data that is held plus the credit that peers hold.
    /// At the limit peers get no more credit.
    pub credit_max: u64,
    /// Credit that a peer gets at first contact, bytes. It doubles each time the peer runs out of credit.
    pub window_min: u64,
    /// Most credit that one peer may hold, bytes.
    pub window_max: u64,
    /// Answers that may wait for one peer to take them. A peer that asks for more and takes none has failed.
    pub answers_max: usize,
    /// Budget for memory of operations that are over, but not for their port, bytes: see [`Link::leaves_memory`].
    ///
    /// [`Link::leaves_memory`]: super::Link::leaves_memory
    pub quarantine_max: u64,
}
