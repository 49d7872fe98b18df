//! What can be set.

/// Limits and thresholds of an [`Engine`](crate::Engine). Bytes unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Longest message that is sent at once with its envelope, if the receiver has granted credit for it;
    /// what one packet carries is the upper bound.
    pub eager_max: usize,
    /// Budget for data that arrived before its receive: what is held and what peers may still send, together.
    /// At the limit peers get no more credit, and their messages wait with them, announced by envelopes.
    pub unexpected_max: usize,
    /// Budget for envelopes without data that arrived before their receive. At the limit a message is
    /// refused, and its send ends with [`Error::Exhausted`](crate::Error::Exhausted). As many answers as fit
    /// wait for a peer to take them; one that asks for more and takes none has failed.
    pub envelopes_max: usize,
    /// Credit a peer gets at first contact; doubles each time it runs out of it, within `unexpected_max`.
    pub window_min: usize,
    /// Most credit that one peer may hold.
    pub window_max: usize,
    /// Longest piece that is fetched by one get.
    pub pull_chunk: usize,
    /// Gets that one message has outstanding.
    pub pull_depth: usize,
    /// Bytes of one message that the receiver calls for at a time where it cannot get them.
    pub push_window: usize,
    /// Microseconds to wait at the end for peers to take what was sent to them.
    pub linger_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_max: 16 << 10,
            unexpected_max: 256 << 20,
            envelopes_max: 64 << 20,
            window_min: 64 << 10,
            window_max: 64 << 20,
            pull_chunk: 1 << 20,
            pull_depth: 4,
            push_window: 1 << 20,
            linger_us: 10_000_000,
        }
    }
}

/// What one message that waits for its receive is taken to cost beyond its bytes, in the budgets above: the
/// matching engine's entry and the buffer's own header.
pub(crate) const OVERHEAD: usize = 96;
