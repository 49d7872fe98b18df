//! The end of a runtime: later calls are refused, and the peers are informed.

use std::collections::BTreeMap;

use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::{Awaited, Operation, Report, Time, WorldRank};

use super::state::Core;
use super::tasks::wake;
use super::{Directory, Runtime, error_of};
use crate::error::{Error, Fate, Public};
use crate::patience::{Patience, Rest};
use crate::select::Rank;
use crate::watch::nap;

impl<P: Port> Runtime<P> {
    /// Closes the runtime and says goodbye to the peers. From then on every other call, waiting calls included, ends
    /// with an error.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime was closed before; [`Error::Forked`] in a child of the rank's process;
    /// [`Error::Condemned`] if the other ranks have given up this rank.
    pub(crate) fn begin_goodbye(&self) -> Result<Goodbye<'_, P>, Error> {
        let (mut core, was_alone) =
            self.shut(Core::quit).map_err(|refused| error_of(refused, Fate::NotDelivered))?;
        let start = self.clock.now();
        let lost = core.engine.lost().clone();
        core.ask = Time::ZERO;
        // If the other ranks have given up this rank, it has failed for them, and cannot leave in good order.
        core.attend(start).map_err(Public::public)?;
        let mut goodbye = Goodbye {
            runtime: self,
            core,
            was_alone,
            start,
            lost,
            is_said: false,
            awaits: None,
            given_up: None,
        };
        goodbye.say(start, false);
        Ok(goodbye)
    }

    /// Waits for the peers to take the messages sent to them in all lanes of a rank: a limited time, and longer for
    /// messages of the outbox. Then informs the launcher.
    ///
    /// # Errors
    /// [`Error::Undelivered`] or [`Error::TimedOut`] if a peer has not taken the messages in time; the errors of polls.
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
        // The other ranks learn that this rank has failed, so they need no notice that it gives up its operations.
        let Ok((mut core, _)) = self.shut(|_| {}) else { return };
        if core.condemned.is_none() {
            core.engine.send_gathered(self.clock.now());
        }
        core.tell_at_end();
        core.directory.panicked();
    }

    /// Calls `first`, takes the engine out of the lock, and wakes the waiting threads. The returned flag is true if no
    /// thread slept on the descriptors.
    fn shut(&self, first: impl FnOnce(&mut Core<P>)) -> Result<(Core<P>, bool), Refused> {
        let last = |core: &mut Core<P>| {
            // Abandon the lent requests before the wake-up: a woken caller returns, and its borrowed buffer can then be
            // reused.
            core.now = self.clock.now();
            first(core);
            core.forget_lent();
            let _ = self.last.set(core.stats(self.rank));
        };
        let mut core = self.core.close(last)?;
        core.background.call();
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

/// Drives the lanes of a rank until their peers have taken all messages. The time is limited: see [`awaited`]. All
/// lanes are driven until the last lane has finished, because a peer may make its first contact in any lane, and must
/// then receive the goodbye.
fn linger<P: Port>(goodbyes: &mut [Goodbye<'_, P>]) -> Result<(), Error> {
    let Some(first) = goodbyes.first() else { return Ok(()) };
    let (clock, start) = (&first.runtime.clock, first.start);
    let until = start.after(first.runtime.linger.as_nanos() as u64);
    let mut patience = Patience::new(first.runtime.crowded);
    let mut now = start;
    while let Some((index, rank)) = awaited(goodbyes, now, now > until) {
        let mut events = 0;
        for Goodbye { runtime, core, .. } in &mut *goodbyes {
            core.sought = Some(departure(core, rank, now.since(start)));
            events += core.step(runtime.clock.now(), &mut ()).map_err(Public::public)?;
        }
        now = clock.now();
        goodbyes.iter_mut().for_each(|goodbye| goodbye.say(now, now > until));
        rest(goodbyes, index, patience.rest(now, events > 0), until);
    }
    let undelivered = undelivered(goodbyes);
    let given_up = goodbyes.iter_mut().find_map(|goodbye| goodbye.given_up.take());
    match not_closed(goodbyes) {
        _ if !undelivered.is_empty() => Err(Error::Undelivered { messages: undelivered }),
        _ if let Some(error) = given_up => Err(error.public()),
        Some((index, rank)) => {
            let report = departure(&mut goodbyes[index].core, rank, now.since(start));
            Err(Error::TimedOut { fate: Fate::Unknown, report: Box::new(report.public()) })
        }
        None => Ok(()),
    }
}

/// Rests until there may be work in a lane.
fn rest<P: Port>(goodbyes: &mut [Goodbye<'_, P>], lane: usize, rest: Rest, until: Time) {
    let is_only = goodbyes.len() == 1;
    let Goodbye { runtime, core, was_alone, .. } = &mut goodbyes[lane];
    match rest {
        Rest::Spin => std::hint::spin_loop(),
        Rest::Yield => rustix::thread::sched_yield(),
        Rest::Sleep(nap_time) => {
            // After the time `until` the rank may wait longer for some peers, and then the time does not limit the
            // sleep.
            let until = if core.now > until { Time::NEVER } else { until };
            let time = core.time_to_sleep(nap_time, until);
            let Some(time) = core.arm(nap_time, time) else { return };
            match &runtime.watch {
                // Sleep on the descriptors only if no other thread slept there and there is no other lane. Another
                // thread that was woken may not have reset the alarm, which would end this sleep at once. Events of
                // other lanes do not end a sleep on this lane's descriptors.
                Some(watch) if *was_alone && is_only => watch.sleep(time),
                _ => nap(nap_time.min(time)),
            }
            core.engine.disarm();
            core.ask = Time::ZERO;
        }
    }
}

/// Returns a peer for which this rank must wait, and its lane. At first these are all peers that have not taken all
/// messages. If `is_late`, these are only peers that have not taken messages of the outbox, each until the deadlines of
/// the sends: the rank waits as long as the sends would have waited without the outbox.
fn awaited<P: Port>(goodbyes: &[Goodbye<'_, P>], now: Time, is_late: bool) -> Option<(usize, WorldRank)> {
    if !is_late {
        return not_closed(goodbyes);
    }
    goodbyes.iter().enumerate().find_map(|(lane, goodbye)| {
        let mut untaken = goodbye.core.engine.untaken();
        untaken.find(|untaken| untaken.until > now).map(|untaken| (lane, untaken.rank))
    })
}

/// Returns the first lane in which a peer has not taken all messages, and that peer. Returns `None` if there is no such
/// lane.
fn not_closed<P: Port>(goodbyes: &[Goodbye<'_, P>]) -> Option<(usize, WorldRank)> {
    let lanes = goodbyes.iter().enumerate();
    lanes.into_iter().find_map(|(lane, goodbye)| Some((lane, goodbye.not_closed()?)))
}

/// Returns, by receiver, the number of messages of the outbox that were lost after the rank began to leave, or that the
/// receiver has not taken. Messages of this rank to itself are not counted as lost.
fn undelivered<P: Port>(goodbyes: &[Goodbye<'_, P>]) -> Vec<(Rank, u64)> {
    let mut messages = BTreeMap::new();
    let mut add = |rank: WorldRank, number: u64| {
        if number > 0 {
            *messages.entry(rank).or_insert(0) += number;
        }
    };
    for Goodbye { runtime, core, lost, .. } in goodbyes {
        // A message of this rank to itself is not lost by the end of the rank: the rank has not received it before.
        for (rank, now) in core.engine.lost().iter().filter(|(rank, _)| **rank != runtime.rank) {
            add(*rank, now - lost.get(rank).unwrap_or(&0));
        }
        core.engine.untaken().for_each(|untaken| add(untaken.rank, untaken.messages));
    }
    messages.into_iter().map(|(rank, number)| (Rank(rank.0), number)).collect()
}

/// Describes the wait of a leaving rank for a peer.
fn departure<P: Port>(core: &mut Core<P>, rank: WorldRank, age_ns: u64) -> Report {
    Report {
        operation: Operation::Send,
        peer: Some(rank),
        tag: 0,
        mask: 0,
        other_tags: None,
        bytes: 0,
        age_ns,
        awaited: Awaited::Room,
        is_stopped: core.engine.is_stopped(rank),
        members: None,
    }
}

/// A runtime that says goodbye.
pub(crate) struct Goodbye<'a, P> {
    runtime: &'a Runtime<P>,
    core: Core<P>,
    /// True if no thread slept on the descriptors when the runtime was closed.
    was_alone: bool,
    start: Time,
    /// The number of messages of the outbox that were lost before this rank began to leave, by receiver.
    lost: BTreeMap<WorldRank, u64>,
    is_said: bool,
    /// A rank for which this rank must wait before the goodbye: the receiver of an unsent message of an agreement, or a
    /// rank that takes part in a closed epoch or in the end of a window.
    awaits: Option<WorldRank>,
    /// The error of closed epochs that did not complete in time.
    given_up: Option<samite_rma::Error>,
}

impl<P: Port> Goodbye<'_, P> {
    /// Says goodbye once the messages of agreements are sent and the closed epochs are complete, or at once if
    /// `is_late`.
    fn say(&mut self, now: Time, is_late: bool) {
        let (out, stack) = self.core.engine.parts();
        let unfinished = stack.windows.unfinished(out.link);
        let closing = unfinished.as_ref().map(|awaiting| awaiting.rank);
        self.awaits = self.core.engine.unsent_answer().or(closing).filter(|_| !is_late);
        if !self.is_said && self.awaits.is_none() {
            self.given_up = unfinished.map(|awaiting| samite_rma::Error::TimedOut {
                fate: samite_p2p::Fate::Unknown,
                awaited: Box::new([awaiting]),
            });
            self.is_said = true;
            self.core.engine.close(now);
        }
    }

    /// Returns a peer that has not taken all messages, or that must get a message before the goodbye.
    fn not_closed(&self) -> Option<WorldRank> {
        if self.is_said { self.core.engine.not_closed() } else { self.awaits }
    }
}
