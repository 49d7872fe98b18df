//! An event for threads that release a lock while they wait.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// An event that threads wait for with [`BiasedGuard::wait`](super::BiasedGuard::wait).
///
/// Unlike a condition variable, it has a mutex of its own. So the waiting thread releases its lock in the same way as
/// at any other time, which also serves the errands of the lock.
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

    /// Calls `release`, then waits until the event is notified or `time` has passed. A notification that comes at any
    /// time after this call began ends the wait.
    pub(super) fn wait(&self, time: Duration, release: impl FnOnce()) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = *count;
        release();
        // The result is not needed: after every wait the caller checks again if it must wait.
        drop(self.changed.wait_timeout_while(count, time, |count| *count == seen));
    }
}
