//! A call that a lock owes to threads that must not wait for it.
//!
//! ```text
//!   asking thread                                holder
//!   owed ← 1                                     releases the lock
//!   lock free? ─ no ─▶ done                      owed? ─ no ─▶ done
//!     yes: owed ← 0, call, releases it             yes: lock free? ─ no ─▶ done, its holder comes here
//!                                                    yes: owed ← 0, call, releases it, looks again
//! ```
//! No call is lost. `owed` is only ever changed by read-modify-write operations, with acquire and release order, and the
//! holder's look at it is one too. So they have one order. Assume that the asking thread finds the lock held by H, and
//! take H's look after that release. If it comes after the asking thread's change, H sees that a call is owed, or
//! another holder has set `owed` to 0 meanwhile and makes the call. If it came before, H's release would happen before
//! the asking thread's attempt to lock, which then could not find the lock held by H.

use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64};

/// Whether the call is owed.
pub(super) struct Errand {
    enabled: AtomicBool,
    owed: AtomicU64,
}

impl Default for Errand {
    fn default() -> Self {
        Self { enabled: AtomicBool::new(false), owed: AtomicU64::new(0) }
    }
}

impl Errand {
    /// Permits to ask. The caller holds the lock.
    pub(super) fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Has `call` made: here if `try_lock` locks, otherwise by the thread that holds the lock.
    pub(super) fn ask<G>(&self, try_lock: impl Fn() -> Option<G>, call: impl Fn(&G)) {
        self.owed.swap(1, Ordering::AcqRel);
        self.serve(try_lock, call);
    }

    /// Makes the call if it is owed, after each release of the lock.
    pub(super) fn released<G>(&self, try_lock: impl Fn() -> Option<G>, call: impl Fn(&G)) {
        if self.owed.fetch_or(0, Ordering::AcqRel) != 0 {
            self.serve(try_lock, call);
        }
    }

    fn serve<G>(&self, try_lock: impl Fn() -> Option<G>, call: impl Fn(&G)) {
        loop {
            let Some(held) = try_lock() else { return };
            if self.owed.swap(0, Ordering::AcqRel) != 0 {
                call(&held);
            }
            drop(held);
            if self.owed.fetch_or(0, Ordering::AcqRel) == 0 {
                return;
            }
        }
    }
}
