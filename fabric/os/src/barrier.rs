//! A memory barrier in other processes, so that those who wake sleepers need none of their own.
//!
//! Who goes to sleep says so and then looks once more for what there is to do; who has given it something to
//! do looks whether it sleeps. One of the two sees the other only if neither look may come before its own
//! word: a full fence on both sides, of which the waking side's would be paid for each message.
//! membarrier(2) makes the kernel execute it for them, when somebody goes to sleep.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Makes the threads of this process subject to [`everywhere`] in any process. False if the system does not
/// do that: then nobody may rely on this process to wake it.
pub fn join() -> bool {
    static JOINED: OnceLock<bool> = OnceLock::new();
    *JOINED.get_or_init(|| {
        !cfg!(miri) && is_available() && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

/// A full barrier in every running thread of every process that has joined, and in this thread. False if the
/// system refuses.
#[cfg(not(all(test, loom)))]
pub fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// What [`everywhere`] makes a full fence of: only the compiler must be kept from undoing it.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// For a model they are what they amount to together: a fence on either side.
#[cfg(all(test, loom))]
pub fn everywhere() -> bool {
    light();
    true
}

#[cfg(all(test, loom))]
pub fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Whether [`everywhere`] works.
pub fn is_available() -> bool {
    membarrier_query()
        .contains(MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED)
}
