//! An event for threads that give a lock back while they wait.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// An event that threads wait for with [`BiasedGuard::wait`](super::BiasedGuard::wait).
///
/// It has a mutex of its own, unlike a condition variable: so the lock is given back as at any other time, with its
/// errands.
#[derive(Debug, Default)]
pub struct Event {
    /// The number of notifications.
    count: Mutex<u64>,
    changed: Condvar,
}

impl Event {
    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Calls `release`, then waits until the next notification after this call began, or until `time` has passed.
    pub(super) fn wait(&self, time: Duration, release: impl FnOnce()) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = *count;
        release();
        // The result is ignored. A wake-up is only a hint: after every wait the caller checks again if it must wait.
        drop(self.changed.wait_timeout_while(count, time, |count| *count == seen));
    }
}
