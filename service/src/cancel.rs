//! Cancellation of operations from outside.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
#[cfg(not(all(test, loom)))]
use std::sync::{Mutex, atomic::AtomicBool};

#[cfg(all(test, loom))]
use loom::sync::{Mutex, atomic::AtomicBool};

use samite_os::fork::ForkMark;

use crate::watch::Watch;

/// A token by which any thread ends the operations that were started with it. See
/// [`Comm::with_cancel`](crate::Comm::with_cancel).
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Cancelled>);

#[derive(Debug)]
struct Cancelled {
    is_cancelled: AtomicBool,
    /// The watches on which threads may sleep, one for each runtime, so that [`CancelToken::cancel`] can wake these
    /// threads. After fork(2) a child must not take this lock, since a thread that exists only in the parent may have
    /// held it.
    sleepers: Mutex<Vec<Weak<Watch>>>,
    /// The mark by which a child of fork(2) recognizes itself. `None` if the kernel does not support it, and then no
    /// `World` can be made either.
    mark: Option<ForkMark>,
}

impl Default for Cancelled {
    fn default() -> Self {
        Self {
            is_cancelled: AtomicBool::new(false),
            sleepers: Mutex::new(Vec::new()),
            mark: ForkMark::new().ok(),
        }
    }
}

impl CancelToken {
    /// Returns a new token.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all operations that were started with this token, and all that will be. In a child of fork(2) it ends no
    /// operation of the parent's.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        if self.0.mark.as_ref().is_some_and(ForkMark::is_in_child) {
            return;
        }
        let sleepers = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter().filter_map(Weak::upgrade).for_each(|watch| watch.wake());
    }

    /// Returns true if both are handles of one token.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Registers a watch. [`cancel`](Self::cancel) then wakes the thread that sleeps on the watch.
    pub(crate) fn register(&self, watch: &Arc<Watch>) {
        let mut sleepers = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|sleeper| sleeper.strong_count() > 0);
        if !sleepers.iter().any(|sleeper| sleeper.as_ptr() == Arc::as_ptr(watch)) {
            sleepers.push(Arc::downgrade(watch));
        }
    }
}
