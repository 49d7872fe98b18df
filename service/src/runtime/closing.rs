//! The end of a runtime: nobody is let in any more, and the peers are told.

use crate::patience::{Patience, Rest};
use crate::stats::Stats;
use crate::watch::nap;
use samite_fabric::Port;

use super::Runtime;
use super::state::Core;

impl<P: Port> Runtime<P> {
    /// Says goodbye, and waits for the peers to take what was sent to them, a limited time. Every other call, also one
    /// that waits, ends with an error from the beginning of this on. Nothing in a child of the rank's process.
    pub(crate) fn close(&self) {
        let Some((mut core, was_alone)) = self.shut() else { return };
        let start_ns = self.clock.now_ns();
        core.ask_ns = 0;
        if core.attend(start_ns).is_err() {
            // To the others it is dead, and has not left in good order.
            return;
        }
        core.engine.close(start_ns);
        self.linger(&mut core, start_ns, was_alone);
        core.tell_at_end();
        core.directory.leave();
    }

    /// Does without: this rank panics.
    pub(crate) fn abandon(&self) {
        let Some((mut core, _)) = self.shut() else { return };
        core.tell_at_end();
        core.directory.panicked();
    }

    /// Takes the engine out of the lock, and wakes the threads that wait. Returns false beside it if one of them slept.
    fn shut(&self) -> Option<(Core<P>, bool)> {
        let last = |core: &mut Core<P>| {
            // First, since their callers have their buffers again as soon as they hear of the end.
            core.now_ns = self.clock.now_ns();
            core.forget_lent();
            let _ = self.last.set(Stats::of(self.rank, &core.engine, core.waited_ns));
        };
        let mut core = self.core.close(last).ok()?;
        let slept = core.sleeper.take().is_some();
        if slept {
            core.engine.port_mut().disarm();
            if let Some(watch) = &self.watch {
                watch.wake();
            }
        }
        self.woken.notify_all();
        Some((core, !slept))
    }

    fn linger(&self, core: &mut Core<P>, start_ns: u64, was_alone: bool) {
        let until_ns = start_ns.saturating_add(self.linger.as_nanos() as u64);
        let mut patience = Patience::new(self.crowded);
        while !core.engine.closed() {
            let now_ns = self.clock.now_ns();
            if now_ns > until_ns {
                break;
            }
            let Ok(events) = core.step(now_ns, &mut ()) else { break };
            match patience.rest(now_ns, events > 0) {
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => rustix::thread::sched_yield(),
                Rest::Sleep(nap_time) => {
                    let time = core.time_to_sleep(nap_time, until_ns);
                    let Some(time) = core.arm(nap_time, time) else { continue };
                    match &self.watch {
                        // The alarm that woke another thread may not be silenced yet.
                        Some(watch) if was_alone => watch.sleep(time),
                        _ => nap(nap_time.min(time)),
                    }
                    core.engine.port_mut().disarm();
                    core.ask_ns = 0;
                }
            }
        }
    }
}
