//! The configuration of a matcher.

/// Limits and hints of a [`Matcher`](crate::Matcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The expected number of ranks in a context. This is a hint: a structure that has an element for each rank uses it
    /// as its size. Ranks that are not below this number match too, but may be found more slowly.
    pub ranks: u32,
    /// The maximum number of bytes that entries and structure may use together
    /// ([`Memory::in_use`](crate::Memory::in_use)). An insertion that could exceed it is refused: the matcher assumes
    /// the largest possible growth. `None` means no limit.
    pub bytes_max: Option<usize>,
}

impl Default for Config {
    /// Returns a configuration for 1024 ranks, without a limit.
    fn default() -> Self {
        Self { ranks: 1024, bytes_max: None }
    }
}
