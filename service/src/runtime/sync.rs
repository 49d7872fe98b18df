//! The lock and the threads of the runtime. Under loom the model provides both, so that the model checker runs the code
//! of the runtime through the interleavings of its threads.

#[cfg(all(test, loom))]
pub(super) use super::model::sync::*;

#[cfg(not(all(test, loom)))]
pub(super) use self::real::*;

#[cfg(not(all(test, loom)))]
mod real {
    use std::io;
    use std::thread;
    use std::time::Duration;

    use samite_os::signal;
    pub(in super::super) use samite_os::{BiasedGuard, BiasedMutex, Event};

    pub(in super::super) use crate::watch::Timer;

    /// Starts a thread. The thread blocks all signals, because signals to the process are for the threads of the
    /// program.
    pub(in super::super) fn start_thread(
        name: &str,
        stack_bytes: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
        signal::with_all_blocked(|| thread.spawn(run)).map(drop)
    }

    /// Lets the sleeps of this thread end when their time has passed, and not 50 µs later, which is Linux's default.
    pub(in super::super) fn sleep_precisely() {
        // An error is ignored: the thread then sleeps longer.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }

    pub(in super::super) fn park_timeout(time: Duration) {
        thread::park_timeout(time);
    }

    pub(in super::super) fn yield_now() {
        rustix::thread::sched_yield();
    }
}
