//! A memory barrier in other processes, so that processes which wake sleepers need none of their own.
//!
//! A process that goes to sleep announces it and then looks once more for work. A process that has provided work checks
//! if the other one sleeps. One of the two is sure to see the other only if neither look comes before its own store:
//! this needs a full fence on both sides, and the waking side would pay for it with each message. membarrier(2) makes
//! the kernel execute that fence for the waking side, when a process goes to sleep.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Makes the threads of this process subject to [`everywhere`] in any process. Returns false if the system does not
/// support it: then no other process may rely on this process to wake it.
pub fn join() -> bool {
    static JOINED: OnceLock<bool> = OnceLock::new();
    *JOINED.get_or_init(|| {
        !cfg!(miri) && is_available() && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

/// Executes a full barrier in every running thread of every process that has joined, and in this thread. Returns false
/// if the system refuses.
#[cfg(not(all(test, loom)))]
pub fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The place that [`everywhere`] turns into a full fence; the compiler must not reorder accesses across it.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// In a model, both have their combined effect: a fence on either side.
#[cfg(all(test, loom))]
pub fn everywhere() -> bool {
    light();
    true
}

#[cfg(all(test, loom))]
pub fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Returns true if [`everywhere`] works.
pub fn is_available() -> bool {
    membarrier_query()
        .contains(MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED)
}
