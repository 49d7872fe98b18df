//! The end of a runtime: later calls are refused, and the peers are informed.

use std::time::Duration;

use samite_fabric::Port;
use samite_os::Refused;

use super::state::Core;
use super::{Directory, Runtime, error_of};
use crate::error::{Awaited, Error, Fate, Operation, Public, Report};
use crate::patience::{Patience, Rest};
use crate::select::Rank;
use crate::stats::Stats;
use crate::watch::nap;

impl<P: Port> Runtime<P> {
    /// Closes the world: see [`World`](crate::World). Does nothing if it was closed before, or in a child of the rank's
    /// process.
    pub(crate) fn close(&self) {
        // Errors show in the others' operations, and a drop cannot return one.
        let _ = self.say_goodbye(|directory| directory.close());
    }

    /// Leaves the job for good: see [`World::leave`](crate::World::leave).
    pub(crate) fn leave(&self) -> Result<(), Error> {
        self.say_goodbye(|directory| directory.leave())
    }

    /// Says goodbye, waits a limited time for the peers to take the messages sent to them, and informs the launcher.
    /// Every other call, waiting calls included, ends with an error from the beginning of this on.
    fn say_goodbye(&self, tell: impl FnOnce(&mut dyn Directory)) -> Result<(), Error> {
        let (mut core, was_alone) = self.shut().map_err(|refused| error_of(refused, Fate::NotDelivered))?;
        let start_ns = self.clock.now_ns();
        core.ask_ns = 0;
        // A rank that was given up is dead for the others, and has not left in good order.
        core.attend(start_ns).map_err(Public::public)?;
        core.engine.close(start_ns);
        let taken = self.linger(&mut core, start_ns, was_alone);
        core.tell_at_end();
        tell(&mut *core.directory);
        taken
    }

    /// Skips the goodbye because this rank is panicking.
    pub(crate) fn abandon(&self) {
        let Ok((mut core, _)) = self.shut() else { return };
        core.tell_at_end();
        core.directory.panicked();
    }

    /// Takes the engine out of the lock, and wakes the waiting threads. The flag is false if one of them slept.
    fn shut(&self) -> Result<(Core<P>, bool), Refused> {
        let last = |core: &mut Core<P>| {
            // Before the wake-up, since callers reuse their buffers as soon as they know the end.
            core.now_ns = self.clock.now_ns();
            core.forget_lent();
            let _ = self.last.set(Stats::of(self.rank, &core.engine, core.waited_ns));
        };
        let mut core = self.core.close(last)?;
        let slept = core.sleeper.take().is_some();
        if slept {
            core.engine.port_mut().disarm();
            if let Some(watch) = &self.watch {
                watch.wake();
            }
        }
        self.woken.notify_all();
        Ok((core, !slept))
    }

    fn linger(&self, core: &mut Core<P>, start_ns: u64, was_alone: bool) -> Result<(), Error> {
        let until_ns = start_ns.saturating_add(self.linger.as_nanos() as u64);
        let mut patience = Patience::new(self.crowded);
        while let Some(rank) = core.engine.not_closed() {
            let now_ns = self.clock.now_ns();
            if now_ns > until_ns {
                return Err(not_taken(rank, Duration::from_nanos(now_ns - start_ns)));
            }
            let events = core.step(now_ns, &mut ()).map_err(Public::public)?;
            match patience.rest(now_ns, events > 0) {
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => rustix::thread::sched_yield(),
                Rest::Sleep(nap_time) => {
                    let time = core.time_to_sleep(nap_time, until_ns);
                    let Some(time) = core.arm(nap_time, time) else { continue };
                    match &self.watch {
                        // The alarm that woke another thread may not be reset yet.
                        Some(watch) if was_alone => watch.sleep(time),
                        _ => nap(nap_time.min(time)),
                    }
                    core.engine.port_mut().disarm();
                    core.ask_ns = 0;
                }
            }
        }
        Ok(())
    }
}

/// Returns the error for a rank that has not taken the messages sent to it before this one left.
fn not_taken(rank: u32, age: Duration) -> Error {
    let report = Report {
        operation: Operation::Send,
        peer: Some(Rank(rank)),
        world_peer: Some(Rank(rank)),
        tag: 0,
        mask: 0,
        other_tags: None,
        bytes: 0,
        age,
        awaited: Awaited::Room,
        is_stopped: false,
    };
    Error::TimedOut { fate: Fate::Unknown, report: Box::new(report) }
}
