//! A call that a thread requests of a lock without waiting for the lock.
//!
//! ```text
//!   asking thread                                holder
//!   owed ← 1                                     releases the lock
//!   lock free? ─ no ─▶ done                      owed? ─ no ─▶ done
//!     yes: owed ← 0, call, releases it             yes: lock free? ─ no ─▶ done: the new holder checks too
//!                                                    yes: owed ← 0, call, releases it, looks again
//! ```
//! No call is lost. All accesses to `owed` are read-modify-write operations with acquire and release order, the
//! holder's check included, so they have a total order. Assume that the asking thread finds the lock held by H, and
//! consider the check that H makes after releasing the lock. If the check comes after the asking thread's change, H
//! sees that a call is owed, or another holder has set `owed` to 0 in between and makes the call. The check cannot come
//! before the asking thread's change. If it did, H's release would happen before the asking thread's attempt to lock,
//! and that attempt could not find the lock held by H.

use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64};

/// The state of a requested call.
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
    /// Permits [`ask`](Self::ask). The caller holds the lock.
    pub(super) fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Requests `call`. This thread makes it if `try_lock` succeeds, otherwise the thread that holds the lock makes it.
    pub(super) fn ask<G>(&self, try_lock: impl Fn() -> Option<G>, call: impl Fn(&G)) {
        self.owed.swap(1, Ordering::AcqRel);
        self.serve(try_lock, call);
    }

    /// Makes the call if one is owed. The holder calls this after each release of the lock.
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
