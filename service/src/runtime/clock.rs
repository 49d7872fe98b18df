//! Monotonic time.

use std::time::Instant;

use samite_p2p::Time;

/// A clock that counts from its start.
pub(super) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock from which the engine gets the time")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(super) fn now(&self) -> Time {
        #[cfg(feature = "simulated")]
        if let Some(now_ns) = crate::simulated::now_ns() {
            return Time::from_nanos(now_ns);
        }
        if cfg!(all(test, loom)) {
            return Time::ZERO;
        }
        Time::from_nanos(self.0.elapsed().as_nanos() as u64)
    }
}
