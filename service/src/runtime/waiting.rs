//! Waiting: for a request, for a message, for notices, and asleep.

use std::ops::ControlFlow;
use std::time::Duration;

use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::{Awaited, Outcome, Pattern, Report, RequestId, Time, WorldRank};

use super::background::CallKind;
use super::state::{Core, Sleeper, Who};
use super::sync::{self, BiasedGuard};
use super::{Bounds, Completion, Runtime, error_of, unfinished};
use crate::cancel::CancelToken;
use crate::deal;
use crate::error::{Cause, Error, Fate, Public};
use crate::patience::{Patience, Rest};
use crate::request::Awaiting;
use crate::stack::Engine;
use crate::watch::nap;

impl<P: Port> Runtime<P> {
    /// Waits until a request has ended, and returns its result as [`finish`](Self::finish) does.
    pub(super) fn wait<'a, L: Awaiting>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        mut id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Option<Completion> {
        #[cfg(feature = "tracing")]
        let _span = tracing::trace_span!(target: "samite", "wait", rank = self.rank.0).entered();
        let mut patience = Patience::new(self.crowded);
        let mut cancelled = false;
        let mut begun = None;
        let mut slept = false;
        // The polls before the first rest may take long, because they may copy bytes of long messages.
        let is_driven = core.may_be_driven();
        if core.background.has_left_requests() && core.has_driven(id) {
            match self.take_driven(core, id, lent, bounds) {
                Ok(end) => return Some(end),
                Err(none) => (core, id) = none,
            }
        }
        // A call that finds its request ended does not wait, and so leaves the driver alone: to stand it down, and to
        // call it again, takes two system calls.
        let mut is_counted = is_driven && core.engine.outcome(id) != Outcome::Ready;
        if is_counted {
            core.begin_wait(self.clock.now());
        } else if is_driven && core.background.has_left() {
            core.background.note_wait(self.clock.now());
        }
        loop {
            let mut came = false;
            // After a sleep, one poll suffices: if it brings nothing, the thread sleeps again, and leaves this core to
            // the awaited rank, which may need it.
            let polls = match (slept, self.crowded) {
                (true, _) => 1,
                (_, true) => 2,
                _ => core.burst.polls(),
            };
            for left in (0..polls).rev() {
                let polled = core.poll(lent);
                if matches!(polled, Ok(1..)) {
                    came = true;
                    self.rouse(&mut core);
                }
                if let Some(first) = lent.first(&mut core.engine) {
                    id = first;
                }
                match core.engine.outcome(id) {
                    Outcome::Ready => {
                        let end = core.collect(id, lent);
                        self.end_wait(core, is_counted);
                        let end = end?;
                        let result = end.result.map_err(|error| self.explain(error, bounds));
                        return Some(Completion { result, ..end });
                    }
                    Outcome::FailurePending => {
                        if let Some(end) = core.end_by_failure(id, lent) {
                            self.end_wait(core, is_counted);
                            let result = end.result.map_err(|error| self.explain(error, bounds));
                            return Some(Completion { result, ..end });
                        }
                    }
                    Outcome::Pending => {}
                }
                match polled {
                    Ok(0) if self.crowded && left > 0 => match self.take_turns(core) {
                        Ok(again) => core = again,
                        Err(refused) => return Some(unfinished(refused)),
                    },
                    Ok(0) => std::hint::spin_loop(),
                    Ok(_) => {}
                    Err(error) => {
                        core.forget(id);
                        self.end_wait(core, is_counted);
                        return Some(Completion { result: Err(error.public()), memory: None });
                    }
                }
            }
            let now = self.clock.now();
            came |= core.has_moved();
            if is_counted {
                core.background.stand_down(now);
            } else {
                is_counted = true;
                core.begin_wait(now);
            }
            if let Some(begun) = begun {
                core.burst.took(now.since(begun));
                core.waited_ns += if came { 0 } else { now.since(begun) };
            }
            match core.attend(now) {
                Ok(false) => {}
                // A notice arrived. It may have ended the wait of this thread or of another thread.
                Ok(true) => {
                    self.rouse(&mut core);
                    continue;
                }
                Err(error) => {
                    core.forget(id);
                    self.end_wait(core, is_counted);
                    return Some(Completion { result: Err(error.public()), memory: None });
                }
            }
            if let Some(ended) = lent.ended(&core.engine) {
                id = ended;
                continue;
            }
            if lent.heed_cancels(&mut core.engine) {
                continue;
            }
            if !cancelled && bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                cancelled = true;
                core.cancel(id);
                continue;
            }
            let rest = patience.rest(now, came);
            slept = matches!(rest, Rest::Sleep(_));
            // A matched receive continues after a cancel. The cancel is left out then, because it would end each sleep
            // immediately.
            let cancel = bounds.cancel.as_ref().filter(|_| !cancelled);
            core = match self.rest(core, rest, Time::NEVER, cancel) {
                Ok(again) => again,
                Err(refused) => return Some(unfinished(refused)),
            };
            let rested = self.clock.now();
            // The next poll must find the deadline that has ended the sleep.
            core.now = rested;
            core.waited_ns += rested.since(now);
            begun = (!slept).then_some(rested);
        }
    }

    /// Returns the end of a wait whose request the driver thread has ended, without a poll: after a computation the caches
    /// are cold, and a poll of tcp takes 10 µs. The request may be one of several, or of a step of a collective call, and
    /// then another one may be next. If that has not ended, returns its name.
    #[cold]
    #[inline(never)]
    fn take_driven<'a, L: Awaiting>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Result<Completion, (BiasedGuard<'a, Core<P>>, RequestId)> {
        core.background.note_wait(self.clock.now());
        let id = lent.first(&mut core.engine).unwrap_or(id);
        let end = match core.engine.outcome(id) {
            Outcome::Ready => core.collect(id, lent),
            Outcome::FailurePending => core.end_by_failure(id, lent),
            Outcome::Pending => None,
        };
        let Some(end) = end else { return Err((core, id)) };
        self.end_wait(core, false);
        let result = end.result.map_err(|error| self.explain(error, bounds));
        Ok(Completion { result, ..end })
    }

    /// Drives the engine until `turn` breaks with a result. After each step, `turn` gets the time and the step's
    /// result. To continue, `turn` returns the time until which this thread may rest. A caller that wants to
    /// [`explain`](Self::explain) an error does so after this function has released the lock.
    ///
    /// [`wait`](Self::wait) has a loop of its own: it polls in bursts without reading the clock, and lends a buffer.
    pub(super) fn drive_until<'a, R>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        cancel: Option<&CancelToken>,
        mut turn: impl FnMut(&mut Core<P>, Time, Result<usize, Box<samite_p2p::Error>>) -> ControlFlow<R, Time>,
    ) -> Result<R, Refused> {
        let mut patience = Patience::new(self.crowded);
        core.begin_wait(self.clock.now());
        loop {
            let now = self.clock.now();
            let stepped = core.step(now, &mut ());
            let has_events = matches!(stepped, Ok(1..));
            let came = core.has_moved() || has_events;
            if has_events {
                self.rouse(&mut core);
            }
            let until = match turn(&mut core, now, stepped) {
                ControlFlow::Break(result) => {
                    self.end_wait(core, true);
                    return Ok(result);
                }
                ControlFlow::Continue(until) => until,
            };
            core = self.rest(core, patience.rest(now, came), until, cancel)?;
            core.waited_ns += self.clock.now().since(now);
        }
    }

    /// Drives the engine until `look` returns a value or an error, or until the bounds end the wait. `pattern` and
    /// `awaited` describe the wait in reports.
    pub(crate) fn until<R>(
        &self,
        bounds: &Bounds,
        pattern: &Pattern,
        awaited: Awaited,
        mut look: impl FnMut(&mut Engine<P>) -> Result<Option<R>, samite_p2p::Error>,
    ) -> Result<R, Error> {
        let core = self.lock()?;
        let start = self.clock.now();
        let until = deadline_after(start, bounds.timeout.unwrap_or(Duration::MAX));
        let mut turn = |core: &mut Core<P>, now: Time, stepped: Result<usize, Box<samite_p2p::Error>>| {
            core.sought = None;
            let age = Duration::from_nanos(now.since(start));
            let events = stepped.map_err(|error| (error.public(), None))?;
            if let Some(found) = look(&mut core.engine).map_err(|error| (error.public(), Some(age)))? {
                return Ok(Some(found));
            }
            let report = core.report_of(pattern, start, now, awaited);
            // While polls have events, the awaited message may be among the next events.
            let slack = if events > 0 { LOOKED_FOR } else { Duration::ZERO };
            if bounds.timeout.is_some_and(|timeout| age >= timeout.saturating_add(slack)) {
                let report = Report { other_tags: core.engine.other_tags(pattern), ..report };
                let report = Box::new(report.public());
                return Err((Error::TimedOut { fate: Fate::NotDelivered, report }, None));
            }
            if bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err((Error::Cancelled { fate: Fate::NotDelivered }, None));
            }
            core.sought = Some(report);
            Ok(None)
        };
        let end = self.drive_until(core, bounds.cancel.as_ref(), |core, now, stepped| {
            match turn(core, now, stepped).transpose() {
                Some(end) => ControlFlow::Break(end),
                None => ControlFlow::Continue(until),
            }
        });
        match end.map_err(|refused| error_of(refused, Fate::NotDelivered))? {
            Ok(found) => Ok(found),
            // For an error of `look`, wait for the launcher's report of the cause within the rest of the bounds.
            Err((error, Some(age))) => Err(self.explain(error, &bounds.after(age))),
            Err((error, None)) => Err(error),
        }
    }

    /// Returns the error with the best known cause, if it is a failure. A lost connection or a goodbye becomes known
    /// before the launcher reports how the process ended, and that report is more useful. So this waits a moment for
    /// the report, within the bounds of the operation.
    #[cold]
    pub(crate) fn explain(&self, mut error: Error, bounds: &Bounds) -> Error {
        let age = match &error {
            Error::PeerFailed { report: Some(report), .. } => report.age,
            _ => Duration::ZERO,
        };
        match &mut error {
            Error::PeerFailed { world_rank, cause, .. } | Error::FailurePending { world_rank, cause, .. }
                if matches!(cause, Cause::Lost | Cause::Left) =>
            {
                let within = if *cause == Cause::Lost { LOST_WORD_WITHIN } else { GOODBYE_WORD_WITHIN };
                let bounds = bounds.after(age);
                if let Some(known) = self.await_word(WorldRank(world_rank.0), within, &bounds) {
                    *cause = known;
                }
            }
            // A call that ends at once does not poll the directory. Poll it here, so that a program that only repeats
            // such a call learns of failures and restarts too.
            Error::PeerFailed { .. } | Error::FailurePending { .. } | Error::Deserted => self.hear(),
            _ => {}
        }
        error
    }

    /// Polls the directory, if that is due.
    fn hear(&self) {
        let Ok(mut core) = self.core.lock() else { return };
        // An error is ignored: the next waiting call returns it.
        if let Ok(1..) = core.step(self.clock.now(), &mut ()) {
            self.rouse(&mut core);
        }
    }

    /// Waits for the launcher's report of a rank's end, if the engine expects a report, or if another rank has reported
    /// the failure and this rank has not noticed it yet. Returns the latest known cause.
    fn await_word(&self, rank: WorldRank, within: Duration, bounds: &Bounds) -> Option<Cause> {
        let core = self.core.lock().ok()?;
        let begun = self.clock.now();
        let deadline = deadline_after(begun, bounds.timeout.unwrap_or(Duration::MAX));
        let is_cancelled = || bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let known = self.drive_until(core, bounds.cancel.as_ref(), |core, now, stepped| {
            let is_unnoticed = core.engine.latest_failure(rank).is_none() && core.directory.tells_ends();
            let since = if is_unnoticed { Some(begun) } else { core.engine.unexplained_since(rank) };
            let since = since.filter(|_| stepped.is_ok() && !is_cancelled());
            let until = since.map_or(Time::ZERO, |since| deadline_after(since, within).min(deadline));
            match now >= until {
                true => ControlFlow::Break(core.engine.latest_failure(rank).map(Public::public)),
                false => ControlFlow::Continue(until),
            }
        });
        known.ok()?
    }

    /// Releases the lock and the processor, until an event, the time `until`, or the use of `cancel`.
    pub(super) fn rest<'a>(
        &'a self,
        core: BiasedGuard<'a, Core<P>>,
        rest: Rest,
        until: Time,
        cancel: Option<&CancelToken>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        match rest {
            Rest::Spin => drop(core),
            Rest::Yield => return self.take_turns(core),
            Rest::Sleep(nap) => return self.sleep(core, nap, until, cancel),
        }
        self.core.lock()
    }

    /// Yields the processor core: several times in a row if it has more ranks than cores, until a cheap check finds
    /// work. A rank that has a core of its own polls after each yield, because another program may keep the core for
    /// milliseconds, and the cheap check does not see the bytes that have arrived from a network. If lanes are
    /// distributed over the cores (`deal`), the thread first moves to the core of its lane at call number
    /// [`DEAL_AFTER`].
    pub(super) fn take_turns<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        core.waits = core.waits.saturating_add(1);
        if let Some(number) = self.deal
            && core.waits == DEAL_AFTER
        {
            deal::to_core_of(number);
        }
        let turns = if self.crowded { TURNS } else { 1 };
        for _ in 0..turns {
            drop(core);
            rustix::thread::sched_yield();
            core = self.core.lock()?;
            if !core.engine.seems_idle() {
                break;
            }
        }
        Ok(core)
    }

    /// Sleeps until there is work, the time `until` has come, `SLEEP_MAX` has passed, or `cancel` is used. If nothing
    /// would wake the thread, or if work is due already (see `Core::time_to_sleep`), sleeps for at most `nap_time`. May
    /// return earlier.
    pub(super) fn sleep<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        nap_time: Duration,
        until: Time,
        cancel: Option<&CancelToken>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        let now = core.now;
        let time = core.time_to_sleep(nap_time, until);
        if let (Some(cancel), Some(watch)) = (cancel, &self.watch) {
            // A cancel wakes the thread that sleeps on the watch, and that thread wakes the other waiting threads.
            cancel.register(watch);
        }
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Ok(core);
        }
        if core.has_sleeping_thread() {
            if !core.engine.boards().have_announced_waits() {
                // The sleeping thread announces its sleep again, also at the board at which this thread waits.
                core.wake();
            }
            core.followers += 1;
            let mut core = core.wait(&self.woken, time)?;
            core.followers -= 1;
            return Ok(core);
        }
        let Some(time) = core.arm(nap_time, time) else {
            // The port is not armed any more, so nothing else would wake the program's driver.
            core.tasks.drivers.call();
            return self.yield_to_waiting(core);
        };
        #[cfg(feature = "tracing")]
        let _span = tracing::trace_span!(target: "samite", "sleep", rank = self.rank.0).entered();
        let until = now.after(time.as_nanos() as u64);
        core.sleeper = Some(Sleeper { until, is_roused: false, who: Who::Thread });
        drop(core);
        match &self.watch {
            Some(watch) => watch.sleep(time),
            None => nap(nap_time.min(time)),
        }
        let mut core = self.core.lock()?;
        core.disarm();
        if core.followers > 0 {
            self.woken.notify_all();
        }
        core.tasks.drivers.call();
        Ok(core)
    }

    /// Lets another thread continue if an event at a board has happened. A blocking collective operation is continued
    /// by its own thread alone, which needs the lock for that. Call this instead of a sleep for which the port could
    /// not be armed.
    pub(super) fn yield_to_waiting<'a>(
        &'a self,
        core: BiasedGuard<'a, Core<P>>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        if !core.engine.boards().have_news() {
            return Ok(core);
        }
        if core.followers > 0 {
            self.woken.notify_all();
        }
        drop(core);
        sync::yield_now();
        self.core.lock()
    }

    /// Wakes all sleeping threads, since any of them may wait for the new events.
    #[inline]
    pub(super) fn rouse(&self, core: &mut Core<P>) {
        if core.sleeper.is_some() {
            core.wake_for_events();
        }
    }

    /// Ends a call that did not wait: drives the engine if messages wait in the outbox, and wakes the sleeping thread
    /// if the call has left work that is due before the end of its sleep.
    #[inline]
    pub(super) fn hand_over(&self, core: &mut Core<P>, call: CallKind) {
        if core.engine.keeps_messages() {
            self.move_kept(core);
        }
        if core.sleeper.is_some() {
            core.wake_if_due();
        }
        self.leave_if_needed(core, call);
    }

    /// Drives once for the messages in the outbox, because the address or the credit of a receiver may have arrived. A
    /// program whose calls all end at once would not poll otherwise.
    #[cold]
    fn move_kept(&self, core: &mut Core<P>) {
        // An error is ignored: it also ends the next call that waits.
        if !matches!(core.step(self.clock.now(), &mut ()), Ok(0)) {
            self.rouse(core);
        }
    }
}

/// Returns the time `time` after `begun`, or [`Time::NEVER`] if it is out of range.
pub(super) fn deadline_after(begun: Time, time: Duration) -> Time {
    begun.after(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The time, from the loss of a connection, for which the launcher's report of the rank's end is awaited. A dying
/// process closes its connections before its status is available.
const LOST_WORD_WITHIN: Duration = Duration::from_millis(100);

/// The time, from a goodbye, for which the launcher's report is awaited. The process closes its ports before it exits,
/// which takes some 100 ms over tcp. If the process continues to run, the agent reports after a second that the rank
/// has left.
const GOODBYE_WORD_WITHIN: Duration = Duration::from_secs(2);

/// The time for which [`Runtime::until`] continues a wait, for example that of a probe, after its deadline while polls
/// have events. A poll takes a limited number of packets, so the awaited message may be behind them.
const LOOKED_FOR: Duration = Duration::from_millis(1);

/// The number of yields before the next poll. A rank that shares its core polls twice before it reads the clock and
/// polls the directory, because the clock and the directory take as long as a message. So a deadline or the end of a
/// rank may be noticed only after this many yields to other ranks.
const TURNS: u32 = 4;

/// The number of calls of `take_turns` before a rank moves to its core. They take some 10 ms, in which all ranks have
/// started. A rank moves only once, because the system may have a reason to move it again: beside a process that kept
/// one of two cores busy, ranks that always moved back took 2.7 times as long, and ranks bound to their cores 165 times
/// as long.
const DEAL_AFTER: u32 = 512;
