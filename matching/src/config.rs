//! The configuration of a matcher.

/// Limits and hints of a [`Matcher`](crate::Matcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The expected number of ranks in a context. This is a hint: structures that are built over the ranks use it as
    /// their size, and higher ranks still match.
    pub ranks: u32,
    /// The maximum number of bytes that entries and structure may use together
    /// ([`Memory::in_use`](crate::Memory::in_use)). An insertion that would exceed it is refused. `None` means no
    /// limit.
    pub bytes_max: Option<usize>,
}

impl Default for Config {
    /// Returns a configuration for 1024 ranks, without a limit.
    fn default() -> Self {
        Self { ranks: 1024, bytes_max: None }
    }
}
