//! Monotonic time.

use std::time::Instant;

/// Monotonic time.
pub(super) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all others are told the time by")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
