//! What a matcher is told at its making.

/// Limits and hints of a [`Matcher`](crate::Matcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many ranks a context is expected to have. A hint: structures built over the rank size themselves by it,
    /// and higher ranks are matched all the same.
    pub ranks: u32,
    /// The most bytes that entries and structure may use together ([`Memory::in_use`](crate::Memory::in_use)). An
    /// insertion that would exceed it is refused. `None`: no limit.
    pub bytes_max: Option<usize>,
}

impl Default for Config {
    /// 1024 ranks expected, no limit.
    fn default() -> Self {
        Self { ranks: 1024, bytes_max: None }
    }
}
