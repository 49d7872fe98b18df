//! The settings of a link.

/// Limits of a [`Link`](super::Link).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The budget, in bytes, for data that arrives before its receive is posted. The data that is kept for later
    /// receives and the credit that peers have not used count against this budget. When it is used up, peers get no
    /// more credit.
    pub credit_max: u64,
    /// Credit that a peer gets at first contact, in bytes. It doubles each time the peer runs out of credit, up to
    /// `window_max`.
    pub window_min: u64,
    /// The most credit, in bytes, that one peer may hold.
    pub window_max: u64,
    /// The largest number of [questions](super::Link::flags_of_question) that may be on their way to one peer.
    pub questions_max: u32,
    /// The largest number of answers that may wait for room at the port, to be sent to one peer. A peer that causes
    /// more, because it keeps sending and does not receive, has failed. This must be larger than the sum of
    /// `questions_max` of the peer and of the number of answers for messages of the peer that this side keeps for
    /// later.
    pub answers_max: usize,
    /// The budget, in bytes, for memory of operations that have ended for the caller, but that a port may still access:
    /// see [`Link::may_use_memory`].
    ///
    /// [`Link::may_use_memory`]: super::Link::may_use_memory
    pub quarantine_max: u64,
    /// The budget, in bytes, for the memory of slabs: see [`Out::take_slab`].
    ///
    /// [`Out::take_slab`]: super::Out::take_slab
    pub registered_max: u64,
    /// The budget, in bytes, for the messages that are gathered for all peers together: see [`Out::gather`].
    ///
    /// [`Out::gather`]: super::Out::gather
    pub gathered_max: u64,
    /// The time, in nanoseconds, within which the engine must be polled after a message was gathered.
    pub gathered_ns: u64,
}
