//! A memory barrier in other processes, so that processes which wake sleepers need no barrier of their own.
//!
//! A process that goes to sleep announces it by a store, and then looks once more for work. A process that provides
//! work does so by a store, and then looks if the other process sleeps. If neither look takes effect before the store
//! of the same process, one of the two processes is sure to see the other's store. This needs a full fence on both
//! sides, and the waking side would have to execute its fence with each message. membarrier(2) makes the kernel execute
//! the fence for the waking side, at the time when a process goes to sleep.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Makes the threads of this process subject to [`everywhere`] in any process. Returns false if the system does not
/// support this. In that case no other process may rely on this process to wake it.
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

/// Marks a place that [`everywhere`], called in another process, turns into a full fence. The compiler does not move
/// accesses across this place.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// In a model, `everywhere` and `light` are both full fences, which is their combined effect.
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
