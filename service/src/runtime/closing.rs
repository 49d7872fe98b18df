//! The end of a runtime: later calls are refused, and the peers are informed.

use std::time::Duration;

use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::{Time, WorldRank};

use super::state::Core;
use super::tasks::wake;
use super::{Directory, Runtime, error_of};
use crate::error::{Awaited, Error, Fate, Operation, Public, Report};
use crate::patience::{Patience, Rest};
use crate::select::Rank;
use crate::stats::Stats;
use crate::watch::nap;

impl<P: Port> Runtime<P> {
    /// Closes the runtime and says goodbye to the peers. From then on every other call, waiting calls included, ends
    /// with an error.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime was closed before; [`Error::Forked`] in a child of the rank's process;
    /// [`Error::Condemned`] if the other ranks have given up this rank.
    pub(crate) fn begin_goodbye(&self) -> Result<Goodbye<'_, P>, Error> {
        let (mut core, was_alone) = self.shut().map_err(|refused| error_of(refused, Fate::NotDelivered))?;
        let start = self.clock.now();
        core.ask = Time::ZERO;
        // If the other ranks have given up this rank, it has failed for them, and cannot leave in good order.
        core.attend(start).map_err(Public::public)?;
        let mut goodbye = Goodbye { runtime: self, core, was_alone, start, is_said: false, awaits: None };
        goodbye.say(start, false);
        Ok(goodbye)
    }

    /// Waits a limited time for the peers to take the messages sent to them in all lanes of a rank, and informs the
    /// launcher.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a peer has not taken the messages in time; the errors of polls.
    pub(crate) fn end_goodbyes(
        mut goodbyes: Vec<Goodbye<'_, P>>,
        tell: impl Fn(&mut dyn Directory),
    ) -> Result<(), Error> {
        let taken = linger(&mut goodbyes);
        for Goodbye { mut core, .. } in goodbyes {
            core.tell_at_end();
            tell(&mut *core.directory);
        }
        taken
    }

    /// Skips the goodbye because this rank is panicking.
    pub(crate) fn abandon(&self) {
        let Ok((mut core, _)) = self.shut() else { return };
        core.tell_at_end();
        core.directory.panicked();
    }

    /// Takes the engine out of the lock, and wakes the waiting threads. The returned flag is true if no thread slept on
    /// the descriptors.
    fn shut(&self) -> Result<(Core<P>, bool), Refused> {
        let last = |core: &mut Core<P>| {
            // Abandon the lent requests before the wake-up: a woken caller returns, and its borrowed buffer can then be
            // reused.
            core.now = self.clock.now();
            core.forget_lent();
            let _ = self.last.set(Stats::of(self.rank, &core.engine, core.waited_ns));
        };
        let mut core = self.core.close(last)?;
        let slept = core.has_sleeping_thread();
        if core.sleeper.is_some() {
            core.disarm();
        }
        if slept && let Some(watch) = &self.watch {
            watch.wake();
        }
        core.tasks.drivers.call_finally();
        self.woken.notify_all();
        wake(core.tasks.take_all());
        Ok((core, !slept))
    }
}

/// Drives the lanes of a rank until their peers have taken all messages, at most for the time [`Runtime::linger`]. All
/// lanes are driven until the last lane has finished, because a peer may make its first contact in any lane, and must
/// then receive the goodbye.
fn linger<P: Port>(goodbyes: &mut [Goodbye<'_, P>]) -> Result<(), Error> {
    let Some(first) = goodbyes.first() else { return Ok(()) };
    let mut patience = Patience::new(first.runtime.crowded);
    let is_only = goodbyes.len() == 1;
    while let Some((index, rank)) = not_closed(goodbyes) {
        let mut events = 0;
        for Goodbye { runtime, core, .. } in &mut *goodbyes {
            events += core.step(runtime.clock.now(), &mut ()).map_err(Public::public)?;
        }
        let Goodbye { runtime, start, .. } = &goodbyes[index];
        let (now, start) = (runtime.clock.now(), *start);
        let until = start.after(runtime.linger.as_nanos() as u64);
        goodbyes.iter_mut().for_each(|goodbye| goodbye.say(now, now > until));
        let Goodbye { runtime, core, was_alone, .. } = &mut goodbyes[index];
        if now > until {
            return Err(not_taken(rank, Duration::from_nanos(now.since(start))));
        }
        match patience.rest(now, events > 0) {
            Rest::Spin => std::hint::spin_loop(),
            Rest::Yield => rustix::thread::sched_yield(),
            Rest::Sleep(nap_time) => {
                let time = core.time_to_sleep(nap_time, until);
                let Some(time) = core.arm(nap_time, time) else { continue };
                match &runtime.watch {
                    // Sleep on the descriptors only if no other thread slept there and there is no other lane. Another
                    // thread that was woken may not have reset the alarm, which would end this sleep at once. Events of
                    // other lanes do not end a sleep on this lane's descriptors.
                    Some(watch) if *was_alone && is_only => watch.sleep(time),
                    _ => nap(nap_time.min(time)),
                }
                core.engine.port_mut().disarm();
                core.ask = Time::ZERO;
            }
        }
    }
    Ok(())
}

/// Returns the first lane in which a peer has not taken all messages, and that peer. Returns `None` if there is no such
/// lane.
fn not_closed<P: Port>(goodbyes: &[Goodbye<'_, P>]) -> Option<(usize, WorldRank)> {
    let lanes = goodbyes.iter().enumerate();
    lanes.into_iter().find_map(|(lane, goodbye)| Some((lane, goodbye.not_closed()?)))
}

/// A runtime that says goodbye.
pub(crate) struct Goodbye<'a, P> {
    runtime: &'a Runtime<P>,
    core: Core<P>,
    /// True if no thread slept on the descriptors when the runtime was closed.
    was_alone: bool,
    start: Time,
    is_said: bool,
    /// The receiver of an unsent message of an agreement. The message must be sent before the goodbye.
    awaits: Option<WorldRank>,
}

impl<P: Port> Goodbye<'_, P> {
    /// Says goodbye once the messages of agreements are sent, or at once if `is_late`.
    fn say(&mut self, now: Time, is_late: bool) {
        self.awaits = self.core.engine.unsent_answer().filter(|_| !is_late);
        if !self.is_said && self.awaits.is_none() {
            self.is_said = true;
            self.core.engine.close(now);
        }
    }

    /// Returns a peer that has not taken all messages, or that must get a message before the goodbye.
    fn not_closed(&self) -> Option<WorldRank> {
        if self.is_said { self.core.engine.not_closed() } else { self.awaits }
    }
}

/// Returns the error for a rank that has not taken the messages that this rank sent to it before it left.
fn not_taken(rank: WorldRank, age: Duration) -> Error {
    let report = Report {
        operation: Operation::Send,
        peer: Some(Rank(rank.0)),
        world_peer: Some(Rank(rank.0)),
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
