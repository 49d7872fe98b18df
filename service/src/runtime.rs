//! The runtime: one lock around the engine, the clock, and how to wait.
//!
//! Whoever waits drives: there is no thread of the runtime's own. A caller that waits polls in bursts, lets
//! others at the lock in between, and gives up its core in steps ([`Patience`]): it spins, then yields, then
//! sleeps until there is something to do ([`Watch`]). Of several threads that wait, one sleeps on the
//! descriptors; the others wait for it.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::control::{Place, Secret};
use crate::deal;
use crate::figures::Figures;
use crate::patience::{Burst, Patience, Rest, is_crowded};
use crate::request::Group;
use crate::stats::{PeerStats, Stats};
use crate::watch::{Watch, nap};
use samite_fabric::{Address, BiasedGuard, BiasedMutex, Port, Sleep};
use samite_p2p::{
    Awaited, Cause, Claimed, Completion, Engine, Error, Fate, Identity, Lent, Operation, Outcome, Pattern,
    Reading, Received, Report, RequestId, Sent, Source, Status, Writing,
};

/// What tells where the other ranks are, and when they end. Asked seldom.
pub(crate) trait Directory: Send {
    /// Asks for a rank's address; a [`Notice`] answers.
    fn request_address(&mut self, rank: u32);

    /// The next piece of news.
    fn poll(&mut self) -> Option<Notice>;

    /// Readable when there may be news.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Answers [`Notice::Asked`]: where nobody asks there is nobody to tell.
    fn tell(&mut self, _figures: Figures, _peers: &[PeerStats]) {}

    /// This rank is done.
    fn leave(&mut self);

    /// This rank is done because it panicked.
    fn panicked(&mut self);
}

/// News of a rank.
#[derive(Debug)]
pub(crate) enum Notice {
    Address {
        rank: u32,
        incarnation: u32,
        address: Address,
    },
    Failed {
        rank: u32,
        incarnation: u32,
        how: String,
    },
    Left {
        rank: u32,
        incarnation: u32,
    },
    /// A rank's process was stopped, or goes on.
    Stopped {
        rank: u32,
        incarnation: u32,
        is_stopped: bool,
    },
    /// The launcher wants to know what this rank does: now, or when it ends, with whom it dealt too.
    Asked {
        at_end: bool,
    },
    /// This rank itself was given up.
    Condemned {
        why: String,
    },
}

/// Drives an engine on behalf of all threads that use it.
pub(crate) struct Runtime<P> {
    core: BiasedMutex<Core<P>>,
    clock: Clock,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    identity: Identity,
    /// How long to wait at the end for what was sent to be taken.
    linger: Duration,
    /// Whether this host has fewer cores than ranks.
    crowded: bool,
    /// Whether its ranks are dealt out over the cores.
    deals: bool,
    /// What to sleep on; none at the limit of open files.
    watch: Option<Arc<Watch>>,
    /// Notified for those who wait while another sleeps.
    woken: Condvar,
}

struct Core<P> {
    engine: Engine<P>,
    directory: Box<dyn Directory>,
    /// The time as last read: good enough for the age of a message, and for deadlines since whoever waits
    /// reads it between bursts.
    now_ns: u64,
    /// When to ask the directory next.
    ask_ns: u64,
    /// Addresses that were asked for and have not come.
    awaited: usize,
    /// Whether the launcher wants to know at the end what this rank did.
    tells_at_end: bool,
    /// Time spent waiting, of all threads.
    waited_ns: u64,
    /// What a thread waits for without a request.
    sought: Option<Report>,
    /// Why this rank was given up, if it was: nothing is done for it any more.
    condemned: Option<String>,
    burst: Burst,
    /// How often the core was offered to others.
    waits: u32,
    /// The thread that sleeps on the descriptors.
    sleeper: Option<Sleeper>,
    /// Threads that wait until it wakes.
    followers: usize,
}

#[derive(Clone, Copy)]
struct Sleeper {
    until_ns: u64,
    is_roused: bool,
}

/// The bounds of one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<Cancel>,
}

impl<P: Port> Runtime<P> {
    /// The runtime of a rank at this place.
    pub(crate) fn new(
        engine: Engine<P>,
        directory: Box<dyn Directory>,
        identity: &Identity,
        place: &Place,
    ) -> Self {
        let watch = Watch::new(engine.port().descriptors().into_iter().chain(directory.descriptor()));
        let watch = watch.ok().map(Arc::new);
        let linger = Duration::from_micros(engine.config().linger_us);
        let crowded = is_crowded(place.neighbours);
        let core = Core {
            engine,
            directory,
            now_ns: 0,
            ask_ns: 0,
            awaited: 0,
            tells_at_end: false,
            waited_ns: 0,
            sought: None,
            condemned: None,
            burst: Burst::default(),
            waits: 0,
            sleeper: None,
            followers: 0,
        };
        Self {
            core: BiasedMutex::new(core),
            clock: Clock::start(),
            rank: identity.rank,
            size: identity.size,
            identity: identity.clone(),
            linger,
            crowded,
            // On several hosts its number does not tell which it is of those of its own.
            deals: crowded && place.hosts == 1,
            watch,
            woken: Condvar::new(),
        }
    }

    #[inline]
    pub(crate) fn send(
        &self,
        to: u32,
        context: u32,
        tag: u64,
        data: &[u8],
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let mut core = self.lock();
        let deadline_ns = self.deadline(&mut core, bounds);
        let now_ns = core.now_ns;
        match core.engine.send(now_ns, to, context, tag, data, deadline_ns)? {
            Sent::Now => {
                self.hand_over(&mut core);
                Ok(())
            }
            Sent::Pending(id) => {
                let completion = self.wait(core, id, &mut Reading(id, data), bounds);
                completion.map_or(Err(Error::NoSuchRequest), |completion| completion.result.map(|_| ()))
            }
        }
    }

    #[inline]
    pub(crate) fn recv(&self, pattern: Pattern, buffer: &mut [u8], bounds: &Bounds) -> Result<Status, Error> {
        let mut core = self.lock();
        let deadline_ns = self.deadline(&mut core, bounds);
        let now_ns = core.now_ns;
        match core.engine.recv(now_ns, pattern, buffer, 0, deadline_ns, &mut ()) {
            Ok(Received::Now(status)) => {
                self.hand_over(&mut core);
                Ok(status)
            }
            Err(error) => {
                self.hand_over(&mut core);
                Err(error)
            }
            Ok(Received::Pending(id)) => {
                self.hand_over(&mut core);
                let mut lent = Writing::new(id, buffer);
                let completion = self.wait(core, id, &mut lent, bounds);
                lent.result(completion)
            }
        }
    }

    /// Begins something: `start` gets the engine, the time and the deadline.
    #[inline(always)]
    pub(crate) fn start<R>(&self, bounds: &Bounds, start: impl FnOnce(&mut Engine<P>, u64, u64) -> R) -> R {
        let mut call = Call { runtime: self, core: self.lock() };
        let deadline_ns = self.deadline(&mut call.core, bounds);
        let now_ns = call.core.now_ns;
        // The result is made where the caller wants it. A copy would load in one piece what was just stored in several,
        // which waits for all stores before it, those to cache lines of other cores among them (4 % of an exchange).
        start(&mut call.core.engine, now_ns, deadline_ns)
    }

    /// Lets go of a request whose end nobody wants to know.
    pub(crate) fn forget(&self, id: RequestId) {
        let mut core = self.lock();
        core.now_ns = self.clock.now_ns();
        core.forget(id);
    }

    /// Waits for a request to end. None if the engine knows nothing of it any more: then its lender knows the end.
    pub(crate) fn finish<L: Group>(
        &self,
        id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Option<Completion> {
        self.wait(self.lock(), id, lent, bounds)
    }

    /// Drives once. The request's end, if it has ended: see [`finish`](Self::finish).
    pub(crate) fn test<L: Lent>(
        &self,
        id: RequestId,
        lent: &mut L,
    ) -> Result<Poll<Option<Completion>>, Error> {
        let mut core = self.lock();
        if core.step(self.clock.now_ns(), lent)? > 0 {
            self.rouse(&mut core);
        }
        match core.engine.outcome(id) {
            Outcome::Pending => Ok(Poll::Pending),
            Outcome::FailurePending => core.engine.failure_pending(id).map_or(Ok(Poll::Pending), Err),
            Outcome::Ready => Ok(Poll::Ready(core.engine.collect(id, lent))),
        }
    }

    /// Waits until a message that `pattern` matches has arrived.
    pub(crate) fn probe(&self, pattern: &Pattern, bounds: &Bounds) -> Result<Status, Error> {
        self.until(bounds, pattern, Awaited::Message, |engine| engine.probe(pattern))
    }

    /// Waits until a message that `pattern` matches has arrived, and takes it.
    pub(crate) fn claim(&self, pattern: &Pattern, bounds: &Bounds) -> Result<(Status, Claimed), Error> {
        self.until(bounds, pattern, Awaited::Message, |engine| engine.claim(pattern))
    }

    /// Drives once, then looks.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Engine<P>) -> Result<R, Error>) -> Result<R, Error> {
        let mut core = self.lock();
        if core.step(self.clock.now_ns(), &mut ())? > 0 {
            self.rouse(&mut core);
        }
        look(&mut core.engine)
    }

    /// What is left of the bounds of a call in two steps, of which the first began at `begun_ns`.
    pub(crate) fn rest_of(&self, bounds: &Bounds, begun_ns: u64) -> Bounds {
        let gone = Duration::from_nanos(self.clock.now_ns() - begun_ns);
        Bounds { timeout: bounds.timeout.map(|timeout| timeout.saturating_sub(gone)), ..bounds.clone() }
    }

    /// Nanoseconds since it was made.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn stats(&self) -> Stats {
        let core = self.lock();
        Stats::of(self.rank, &core.engine, core.waited_ns)
    }

    /// Which life of a rank takes part, counted from 1.
    pub(crate) fn incarnation(&self, rank: u32) -> Result<Option<u32>, Error> {
        self.look(|engine| Ok(self.life(engine, rank)))
    }

    /// Waits until a life of `rank` takes part, counted from 1. It need not have been met.
    pub(crate) fn await_return(&self, rank: u32, bounds: &Bounds) -> Result<u32, Error> {
        let pattern = Pattern { context: 0, source: Source::rank(rank), tag: 0, mask: 0 };
        if rank != self.rank {
            self.look(|engine| engine.seek(rank))?;
        }
        self.until(bounds, &pattern, Awaited::Address, |engine| Ok(self.life(engine, rank)))
    }

    fn life(&self, engine: &mut Engine<P>, rank: u32) -> Option<u32> {
        let incarnation = match rank == self.rank {
            true => self.identity.incarnation,
            false => engine.incarnation(rank)?,
        };
        let first = Secret(self.identity.secret).first_incarnation(rank);
        Some(incarnation.wrapping_sub(first).wrapping_add(1))
    }

    /// Says goodbye, and waits for the peers to take what was sent to them, a limited time.
    pub(crate) fn close(&self) {
        let mut core = self.lock();
        let start_ns = self.clock.now_ns();
        core.ask_ns = 0;
        if core.attend(start_ns).is_err() {
            // To the others it is dead, and has not left in good order.
            return;
        }
        core.engine.close(start_ns);
        let mut patience = Patience::new(self.crowded);
        while !core.engine.closed() {
            let now_ns = self.clock.now_ns();
            if now_ns - start_ns > self.linger.as_nanos() as u64 {
                break;
            }
            let Ok(events) = core.step(now_ns, &mut ()) else { break };
            let until_ns = start_ns + self.linger.as_nanos() as u64;
            core = self.rest(core, patience.rest(now_ns, events > 0), until_ns, None);
        }
        core.tell_at_end();
        core.directory.leave();
    }

    /// Does without: this rank panics.
    pub(crate) fn abandon(&self) {
        let mut core = self.lock();
        core.tell_at_end();
        core.directory.panicked();
    }

    #[inline(always)]
    fn lock(&self) -> BiasedGuard<'_, Core<P>> {
        // Nothing in the engine is left half done by a panic: it has none that input could cause.
        self.core.lock()
    }

    #[inline]
    fn deadline(&self, core: &mut Core<P>, bounds: &Bounds) -> u64 {
        match bounds.timeout {
            None => u64::MAX,
            Some(timeout) => {
                core.now_ns = self.clock.now_ns();
                core.now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }

    fn wait<'a, L: Group>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        mut id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Option<Completion> {
        #[cfg(feature = "tracing")]
        let _span = tracing::trace_span!(target: "samite", "wait", rank = self.rank).entered();
        let mut patience = Patience::new(self.crowded);
        let mut cancelled = false;
        let mut begun_ns = None;
        let mut slept = false;
        loop {
            let mut came = false;
            // What a sleeper slept for is there, or it is not; and who is waited for may need this core.
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
                match core.engine.outcome(id) {
                    Outcome::Ready => {
                        let mut completion = core.engine.collect(id, lent)?;
                        if let Err(Error::PeerFailed { rank, cause: cause @ Cause::Lost, .. }) =
                            &mut completion.result
                        {
                            *cause = self.await_word(core, *rank);
                        }
                        return Some(completion);
                    }
                    Outcome::FailurePending => {
                        // A call that waits has nowhere to stay posted: it ends, and the caller decides.
                        if let Some(error) = core.engine.failure_pending(id) {
                            core.forget(id);
                            return Some(Completion { result: Err(error), memory: None });
                        }
                    }
                    Outcome::Pending => {}
                }
                match polled {
                    Ok(0) if self.crowded && left > 0 => core = self.take_turns(core),
                    Ok(0) => std::hint::spin_loop(),
                    Ok(_) => {}
                    Err(error) => {
                        core.forget(id);
                        return Some(Completion { result: Err(error), memory: None });
                    }
                }
            }
            let now_ns = self.clock.now_ns();
            if let Some(begun_ns) = begun_ns {
                core.burst.took(now_ns - begun_ns);
                core.waited_ns += if came { 0 } else { now_ns - begun_ns };
            }
            match core.attend(now_ns) {
                Ok(false) => {}
                // The news may be what was waited for, by this thread or another.
                Ok(true) => {
                    self.rouse(&mut core);
                    continue;
                }
                Err(error) => {
                    core.forget(id);
                    return Some(Completion { result: Err(error), memory: None });
                }
            }
            if let Some(ended) = lent.ended(&core.engine) {
                id = ended;
                continue;
            }
            if !cancelled && bounds.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                cancelled = true;
                core.engine.cancel(id);
                continue;
            }
            let rest = patience.rest(now_ns, came);
            slept = matches!(rest, Rest::Sleep(_));
            core = self.rest(core, rest, u64::MAX, bounds.cancel.as_ref());
            let rested_ns = self.clock.now_ns();
            core.waited_ns += rested_ns - now_ns;
            begun_ns = (!slept).then_some(rested_ns);
        }
    }

    /// Waits until `look` finds something.
    fn until<R>(
        &self,
        bounds: &Bounds,
        pattern: &Pattern,
        awaited: Awaited,
        mut look: impl FnMut(&mut Engine<P>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut core = self.lock();
        let start_ns = self.clock.now_ns();
        let mut patience = Patience::new(self.crowded);
        loop {
            let now_ns = self.clock.now_ns();
            let stepped = core.step(now_ns, &mut ());
            core.sought = None;
            let events = stepped?;
            if events > 0 {
                self.rouse(&mut core);
            }
            if let Some(found) = look(&mut core.engine)? {
                return Ok(found);
            }
            let age = Duration::from_nanos(now_ns - start_ns);
            let report = Report {
                operation: Operation::Receive,
                peer: pattern.source.as_rank(),
                tag: pattern.tag,
                mask: pattern.mask,
                other_tags: None,
                bytes: 0,
                age_ns: now_ns - start_ns,
                awaited,
                is_stopped: pattern.source.as_rank().is_some_and(|rank| core.engine.is_stopped(rank)),
            };
            if bounds.timeout.is_some_and(|timeout| age >= timeout) {
                let report = Box::new(Report { other_tags: core.engine.other_tags(pattern), ..report });
                return Err(Error::TimedOut { fate: Fate::NotDelivered, report });
            }
            if bounds.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(Error::Cancelled { fate: Fate::NotDelivered });
            }
            let until_ns = bounds.timeout.map_or(u64::MAX, |timeout| {
                start_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
            });
            core.sought = Some(report);
            core = self.rest(core, patience.rest(now_ns, events > 0), until_ns, bounds.cancel.as_ref());
            core.waited_ns += self.clock.now_ns() - now_ns;
        }
    }

    /// A port may see that a peer is gone before the launcher's word of how it ended has come. Waits a moment
    /// for that, since it is what a user can act on.
    #[cold]
    fn await_word<'a>(&'a self, mut core: BiasedGuard<'a, Core<P>>, rank: u32) -> Cause {
        let start_ns = self.clock.now_ns();
        let mut patience = Patience::new(self.crowded);
        loop {
            let now_ns = self.clock.now_ns();
            let heard = core.step(now_ns, &mut ()).is_ok() && now_ns - start_ns < WORD_WITHIN_NS;
            match core.engine.failure(rank) {
                Some(Cause::Lost) if heard => {
                    let until_ns = start_ns + WORD_WITHIN_NS;
                    core = self.rest(core, patience.rest(now_ns, false), until_ns, None);
                }
                cause => return cause.unwrap_or(Cause::Lost),
            }
        }
    }

    /// Lets others at the lock, and at the processor, at most until `until_ns`, `cancel` or any event.
    fn rest<'a>(
        &'a self,
        core: BiasedGuard<'a, Core<P>>,
        rest: Rest,
        until_ns: u64,
        cancel: Option<&Cancel>,
    ) -> BiasedGuard<'a, Core<P>> {
        match rest {
            Rest::Spin => drop(core),
            Rest::Yield => return self.take_turns(core),
            Rest::Sleep(nap) => return self.sleep(core, nap, until_ns, cancel),
        }
        self.lock()
    }

    /// Offers the core to others, some turns in a row or until a glance finds that there is something to do.
    fn take_turns<'a>(&'a self, mut core: BiasedGuard<'a, Core<P>>) -> BiasedGuard<'a, Core<P>> {
        core.waits = core.waits.saturating_add(1);
        if self.deals && core.waits == DEAL_AFTER {
            deal::to_core_of(self.rank);
        }
        for _ in 0..TURNS {
            drop(core);
            rustix::thread::sched_yield();
            core = self.lock();
            if !core.engine.seems_idle() {
                break;
            }
        }
        core
    }

    /// Sleeps until there is something to do; a `nap` long where that is not told.
    fn sleep<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        nap_time: Duration,
        until_ns: u64,
        cancel: Option<&Cancel>,
    ) -> BiasedGuard<'a, Core<P>> {
        let now_ns = core.now_ns;
        let due_ns = core.engine.due_ns().min(until_ns);
        let until_due = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(SLEEP_MAX);
        // What is due at once was refused by the port, and nothing tells when it has room.
        let time = if until_due.is_zero() { nap_time } else { until_due };
        if core.sleeper.is_some() {
            core.followers += 1;
            let mut core = core.wait(&self.woken, time);
            core.followers -= 1;
            return core;
        }
        let time = match core.engine.port_mut().arm() {
            Sleep::NotNow => return core,
            Sleep::Briefly => nap_time.min(time),
            Sleep::UntilReadable => time,
        };
        if let (Some(cancel), Some(watch)) = (cancel, &self.watch) {
            cancel.wakes(watch);
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            core.engine.port_mut().disarm();
            return core;
        }
        #[cfg(feature = "tracing")]
        let _span = tracing::trace_span!(target: "samite", "sleep", rank = self.rank).entered();
        let until_ns = now_ns.saturating_add(time.as_nanos() as u64);
        core.sleeper = Some(Sleeper { until_ns, is_roused: false });
        drop(core);
        match &self.watch {
            Some(watch) => watch.sleep(time),
            None => nap(nap_time.min(time)),
        }
        let mut core = self.lock();
        core.sleeper = None;
        core.engine.port_mut().disarm();
        if let Some(watch) = &self.watch {
            watch.silence();
        }
        // It may be the directory that has woken it.
        core.ask_ns = 0;
        if core.followers > 0 {
            self.woken.notify_all();
        }
        core
    }

    /// Wakes all who sleep: what has come may be theirs.
    #[inline]
    fn rouse(&self, core: &mut Core<P>) {
        if let Some(sleeper) = &mut core.sleeper {
            self.wake(sleeper);
        }
    }

    /// Wakes the one that sleeps, if a call has left work that it would come to too late.
    #[inline]
    fn hand_over(&self, core: &mut Core<P>) {
        if core.sleeper.is_some() {
            self.wake_if_due(core);
        }
    }

    #[cold]
    fn wake_if_due(&self, core: &mut Core<P>) {
        if let Some(sleeper) = &mut core.sleeper
            && core.engine.due_ns() < sleeper.until_ns
        {
            self.wake(sleeper);
        }
    }

    #[cold]
    fn wake(&self, sleeper: &mut Sleeper) {
        if let Some(watch) = &self.watch
            && !std::mem::replace(&mut sleeper.is_roused, true)
        {
            watch.wake();
        }
    }
}

/// A call that may leave work, which is handed over at its end.
struct Call<'a, P: Port> {
    runtime: &'a Runtime<P>,
    core: BiasedGuard<'a, Core<P>>,
}

impl<P: Port> Drop for Call<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.runtime.hand_over(&mut self.core);
    }
}

impl<P: Port> Core<P> {
    #[inline]
    fn poll<L: Lent>(&mut self, lent: &mut L) -> Result<usize, Error> {
        self.engine.poll(self.now_ns, lent)
    }

    /// Lets go of a request. A rank that was given up does not even say that: to the others it is dead, and one that
    /// hears of it by a message would be misled.
    fn forget(&mut self, id: RequestId) {
        if self.condemned.is_none() {
            self.engine.forget(id);
        }
    }

    /// Drives once, at the current time. Returns the number of events, news among them.
    fn step<L: Lent>(&mut self, now_ns: u64, lent: &mut L) -> Result<usize, Error> {
        let news = self.attend(now_ns)?;
        Ok(self.poll(lent)? + usize::from(news))
    }

    /// Notes the time, and hears the news if it is time to; whether there were any.
    fn attend(&mut self, now_ns: u64) -> Result<bool, Error> {
        self.now_ns = now_ns;
        let wanted: Vec<u32> = self.engine.wanted().collect();
        for rank in wanted {
            self.directory.request_address(rank);
            self.awaited += 1;
        }
        if self.awaited == 0 && now_ns < self.ask_ns {
            return Ok(false);
        }
        let mut news = false;
        self.ask_ns = now_ns + ASK_EVERY_NS;
        while let Some(notice) = self.directory.poll() {
            news = true;
            match notice {
                Notice::Address { rank, incarnation, address } => {
                    self.awaited = self.awaited.saturating_sub(1);
                    self.engine.introduce(rank, incarnation, address)?;
                }
                Notice::Failed { rank, incarnation, how } => {
                    self.receive_all()?;
                    self.engine.peer_failed(rank, Some(incarnation), Cause::Died(how))?;
                }
                Notice::Left { rank, incarnation } => {
                    self.receive_all()?;
                    self.engine.peer_left(rank, Some(incarnation))?;
                }
                Notice::Stopped { rank, incarnation, is_stopped } => {
                    self.engine.peer_stopped(rank, incarnation, is_stopped)?;
                }
                Notice::Asked { at_end: true } => self.tells_at_end = true,
                Notice::Asked { at_end: false } => {
                    let (figures, _) = self.figures();
                    self.directory.tell(figures, &[]);
                }
                Notice::Condemned { why } => self.condemned = Some(why),
            }
        }
        match &self.condemned {
            Some(why) => Err(Error::Condemned { why: why.clone() }),
            None => Ok(news),
        }
    }

    /// The last word of this rank, if the launcher wants it.
    fn tell_at_end(&mut self) {
        if self.tells_at_end {
            let (figures, peers) = self.figures();
            self.directory.tell(figures, &peers);
        }
    }

    fn figures(&mut self) -> (Figures, Vec<PeerStats>) {
        Figures::of(&mut self.engine, self.now_ns, self.waited_ns, self.sought)
    }

    /// What a rank sent before its end comes first, as far as it has arrived.
    fn receive_all(&mut self) -> Result<(), Error> {
        while self.engine.poll(self.now_ns, &mut ())? > 0 {}
        Ok(())
    }
}

/// Monotonic time.
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all others are told the time by")]
    fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// How long the launcher's word of a rank's end may come after the end of a connection: a dying process closes
/// its connections before its status can be had.
const WORD_WITHIN_NS: u64 = 100_000_000;

/// How often the directory is asked for news while somebody waits: well under the time in which a death
/// should be known.
const ASK_EVERY_NS: u64 = 1_000_000;

/// The longest sleep, though nothing comes: for what the launcher's connection could not take, and against
/// providers that forget to wake.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How often a core is offered to others before the next poll. A rank that shares its core polls twice before it looks at
/// the clock and hears the launcher, which take as long as a message: so many turns of the others may pass until a deadline
/// or a death is noticed.
const TURNS: u32 = 4;

/// How often a rank waits until it is dealt out: some 10 ms, so that all have started. Once: if the system moves it again,
/// it has a reason. Beside a process that kept one of two cores busy, ranks that always went back took 2.7 times as long,
/// and ranks bound to their cores 165 times.
const DEAL_AFTER: u32 = 512;
