//! The runtime: one lock around the engine, the clock, and the policy of waiting.
//!
//! Waiting callers drive the engine. The runtime has a thread of its own only when futures wait ([`driving`]) or long
//! messages travel ([`background`]). A waiting caller polls in bursts, releases the lock in between, and gives up its
//! core in steps (`Patience`): it spins, then yields, then sleeps until there is work ([`Watch`]). Of several waiting
//! threads, one thread sleeps on the descriptors. The other threads wait until that thread wakes them.

mod background;
mod board;
mod clock;
mod closing;
mod collective;
mod directory;
mod driving;
#[cfg(all(test, loom))]
mod model;
mod state;
mod sync;
mod tasks;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;
mod windows;

use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use background::{Background, CallKind, StartThread};
use clock::Clock;
use samite_coll::Table;
use samite_control::{Checks, Place, Progress, Secret, Settings};
use samite_fabric::layout::{Data, Room};
use samite_fabric::mem::Loans;
use samite_fabric::{Memory, Port, PortError};
use samite_os::Refused;
use samite_os::process::is_crowded;
use samite_p2p::{
    Awaited, Claimed, Group, How, Identity, Incarnations, Lent, Outcome, PartitionedId, Pattern, Reading,
    Received, RequestId, SendBuffer, Sent, Source, Time, Typed, WorldRank, Writing,
};

use crate::cancel::CancelToken;
use crate::comm::Attached;
use crate::error::{Error, Fate, Public, Status};
use crate::lanes::{Lane, Lanes};
use crate::patience::Burst;
use crate::request::Awaiting;
use crate::select::Rank;
use crate::stack::Engine;
use crate::stats::Stats;
use crate::watch::Watch;
use collective::Collectives;
pub(crate) use collective::{AtEnd, Counter, EndValues, Nonblocking, Operation, Reserved, no_reduction};
#[cfg(test)]
pub(crate) use directory::Silent;
pub(crate) use directory::{Directory, Notice};
#[cfg(all(test, loom))]
pub(crate) use model::sync::{await_change, change};
use state::Core;
use sync::{BiasedGuard, BiasedMutex, Event};
use tasks::Tasks;
pub(crate) use tasks::{Entry, Sought, contain};
use waiting::deadline_after;
use windows::WindowRequests;
pub(crate) use windows::{Freed, Then, WindowCall};

/// Drives an engine on behalf of all threads that use it.
pub(crate) struct Runtime<P> {
    core: BiasedMutex<Core<P>>,
    clock: Clock,
    pub(crate) rank: WorldRank,
    pub(crate) size: u32,
    lane: Lane,
    /// True if the ranks of this host may share boards.
    has_boards: bool,
    identity: Identity,
    /// The maximum time for which a leaving rank waits until its peers have taken all messages.
    linger: Duration,
    /// True if this host has fewer cores than its ranks have lanes.
    crowded: bool,
    /// The number of this lane among the lanes of all ranks, by which lanes are distributed over the cores. `None` if
    /// the host has enough cores, or if the job has several hosts.
    deal: Option<usize>,
    /// The descriptors to sleep on. `None` if the process could not open them, because it has too many open files.
    watch: Option<Arc<Watch>>,
    /// The event for which threads wait while another thread sleeps on the descriptors.
    woken: Event,
    /// The buffer of buffered sends whose handle has no buffer of its own. Each lane has such a buffer, because a call
    /// makes progress in its own lane only: if all lanes shared a buffer, it could be full of messages of a lane that
    /// no thread uses.
    pub(crate) buffer: Arc<SendBuffer>,
    /// The collective operations of the world's communicator.
    counter: Counter,
    /// The table by which collective calls choose their algorithms.
    pub(crate) table: Table,
    /// The rules of MPI that this rank checks although the checks take time.
    pub(crate) checks: Checks,
    /// True if the launcher reports the failures of all ranks to this one.
    pub(crate) tells_deaths: bool,
    /// The name and the attributes that the program attaches to the world's communicator.
    pub(crate) attached: Attached,
    /// All runtimes of the rank, until its part in the job ends.
    pub(crate) lanes: OnceLock<Weak<Lanes>>,
    /// Starts a driver thread with this number. Set for runtimes that may make progress in the background.
    background: OnceLock<StartThread>,
    /// The buffers that scopes lend for long messages, by request. Lend them with the lock held.
    pub(crate) loans: Arc<Loans>,
    /// The result of [`Runtime::stats`] after the runtime was closed.
    last: OnceLock<Stats>,
}

/// The result of a request that has ended, and the buffer that it owned, unless a port may still access it.
#[derive(Debug)]
pub struct Completion {
    pub(crate) result: Result<Status, Error>,
    pub(crate) memory: Option<Memory>,
}

impl From<samite_p2p::Completion> for Completion {
    #[inline]
    fn from(completion: samite_p2p::Completion) -> Self {
        Self { result: completion.result.public(), memory: completion.memory }
    }
}

/// The bounds of one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
}

impl Bounds {
    /// Returns the bounds that remain when the time `gone` has passed.
    fn after(&self, gone: Duration) -> Self {
        Self { timeout: self.timeout.map(|timeout| timeout.saturating_sub(gone)), ..self.clone() }
    }
}

impl<P: Port> Runtime<P> {
    /// Returns the runtime of a lane of a rank. `place` contains the number of ranks that share the processors of the
    /// host.
    ///
    /// # Errors
    /// [`PortError::Provider`] if the system does not support memory that children of fork(2) get as zeros.
    pub(crate) fn new(
        mut engine: Engine<P>,
        directory: Box<dyn Directory>,
        identity: &Identity,
        place: &Place,
        lane: Lane,
        settings: &Settings,
    ) -> Result<Self, PortError> {
        let watch = Watch::new(engine.port().descriptors().into_iter().chain(directory.descriptor()));
        let watch = watch.ok().map(Arc::new);
        let linger = Duration::from_micros(engine.config().linger_us);
        let buffer = Arc::new(SendBuffer::new(engine.config().buffer_max));
        let crowded = is_crowded(place.neighbours.saturating_mul(lane.of as u32));
        let first = Secret(identity.secret).first_incarnation(identity.rank.0);
        // Without the driver a scope permits it for its sends, because a scope ends with a call.
        engine.set_gathering(settings.progress != Progress::Off);
        if directory.tells_ends() {
            engine.expect_word();
        }
        if identity.incarnation != first {
            engine.expect_numbers();
        }
        let (loans, tells_deaths) = (Arc::default(), directory.tells_deaths());
        let has_boards = engine.port().has_boards();
        let table = settings.coll_table(&engine.port().caps().name);
        let core = Core {
            engine,
            directory,
            lane,
            now: Time::ZERO,
            ask: Time::ZERO,
            awaited: 0,
            tells_at_end: false,
            moves: 0,
            waited_ns: 0,
            sought: None,
            condemned: None,
            burst: Burst::default(),
            waits: 0,
            sleeper: None,
            is_armed: false,
            watch: watch.clone(),
            followers: 0,
            tasks: Tasks::default(),
            background: Background::new(settings.progress),
            loans: Arc::clone(&loans),
            collectives: Collectives::default(),
            windows: WindowRequests::default(),
        };
        let core = BiasedMutex::with_errand(core, Core::harvest).map_err(|error| PortError::Provider {
            call: "madvise(MADV_WIPEONFORK)",
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "samite needs Linux 4.14 or later, and some pages of memory".into(),
        })?;
        Ok(Self {
            core,
            clock: Clock::start(),
            rank: identity.rank,
            size: identity.size,
            lane,
            has_boards,
            identity: identity.clone(),
            linger,
            crowded,
            // In a job of several hosts, a rank's number is not its index among the ranks of its host, so lanes are not
            // distributed by it.
            deal: (crowded && place.hosts == 1).then_some(identity.rank.index() * lane.of + lane.number),
            watch,
            woken: Event::default(),
            buffer,
            counter: Counter::default(),
            checks: settings.checks,
            table,
            background: OnceLock::new(),
            loans,
            tells_deaths,
            attached: Attached::default(),
            lanes: OnceLock::new(),
            last: OnceLock::new(),
        })
    }

    #[inline]
    pub(crate) fn send(
        &self,
        to: WorldRank,
        context: u32,
        tag: u64,
        data: &(impl Data + ?Sized),
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let deadline = self.deadline(&mut core, bounds);
        let now = core.now;
        match core.engine.send_from(now, to, context, tag, data, deadline) {
            Ok(Sent::Now) => {
                self.hand_over(&mut core, CallKind::Waiting);
                Ok(())
            }
            sent => self.end_send(core, sent, data, bounds),
        }
    }

    /// Sends in a mode, or with the types of the elements, as [`send`](Self::send) does.
    pub(crate) fn send_with(
        &self,
        how: How<'_>,
        to: WorldRank,
        context: u32,
        tag: u64,
        data: &(impl Data + ?Sized),
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let deadline = self.deadline(&mut core, bounds);
        let now = core.now;
        let sent = core.engine.send_with(how, now, to, context, tag, data, deadline);
        self.end_send(core, sent, data, bounds)
    }

    /// Returns the result of a send that was started: at once if it has ended or was refused, otherwise after a wait
    /// for its end.
    fn end_send(
        &self,
        mut core: BiasedGuard<'_, Core<P>>,
        sent: Result<Sent, samite_p2p::Error>,
        data: &(impl Data + ?Sized),
        bounds: &Bounds,
    ) -> Result<(), Error> {
        match sent {
            Err(error) => {
                // Send messages that wait in the buffer. A program that only repeats this send would otherwise never
                // find room in a full buffer.
                self.hand_over(&mut core, CallKind::Waiting);
                drop(core);
                Err(self.explain(error.public(), bounds))
            }
            Ok(Sent::Now) => {
                self.hand_over(&mut core, CallKind::Waiting);
                Ok(())
            }
            Ok(Sent::Copied) => {
                // If the rank begins to leave meanwhile, it sends the message while it leaves.
                if let Ok(mut core) = self.await_contact(core, bounds) {
                    self.hand_over(&mut core, CallKind::Waiting);
                }
                Ok(())
            }
            Ok(Sent::Pending(id)) => {
                let end = self.wait(core, id, &mut Reading::new(id, data), bounds);
                end.map_or(Err(Error::NoSuchRequest), |end| end.result.map(|_| ()))
            }
        }
    }

    #[inline]
    pub(crate) fn recv(
        &self,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        bounds: &Bounds,
    ) -> Result<Status, Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let deadline = self.deadline(&mut core, bounds);
        let now = core.now;
        match core.engine.recv_into(now, pattern, buffer, 0, deadline, &mut ()) {
            Ok(Received::Now(status)) => {
                self.hand_over(&mut core, CallKind::Waiting);
                Ok(status.public())
            }
            Ok(Received::Pending(id)) => self.await_recv(core, id, buffer, bounds),
            Err(error) => {
                self.hand_over(&mut core, CallKind::Waiting);
                drop(core);
                Err(self.explain(error.public(), bounds))
            }
        }
    }

    /// Receives as [`recv`](Self::recv) does, and checks the types of the message.
    #[cold]
    pub(crate) fn recv_typed(
        &self,
        typed: Typed,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        bounds: &Bounds,
    ) -> Result<Status, Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let deadline = self.deadline(&mut core, bounds);
        let now = core.now;
        match core.engine.recv_typed(typed, now, pattern, buffer, 0, deadline) {
            Ok(Received::Now(status)) => {
                self.hand_over(&mut core, CallKind::Waiting);
                Ok(status.public())
            }
            Ok(Received::Pending(id)) => self.await_recv(core, id, buffer, bounds),
            Err(error) => {
                self.hand_over(&mut core, CallKind::Waiting);
                drop(core);
                Err(self.explain(error.public(), bounds))
            }
        }
    }

    /// Waits for the end of a receive that was started.
    #[inline(always)]
    fn await_recv(
        &self,
        mut core: BiasedGuard<'_, Core<P>>,
        id: RequestId,
        buffer: &mut (impl Room + ?Sized),
        bounds: &Bounds,
    ) -> Result<Status, Error> {
        self.hand_over(&mut core, CallKind::Waiting);
        let mut lent = Writing::of(id, buffer);
        let end = self.wait(core, id, &mut lent, bounds);
        match lent.received() {
            Some(status) => Ok(status.public()),
            None => end.map_or(Err(Error::NoSuchRequest), |end| end.result),
        }
    }

    /// Takes the lock for a call. The returned guard holds the lock until it is dropped. Returns `None` if the runtime
    /// was closed, or belongs to another process: in that case [`refused`](Self::refused) returns the error. (An
    /// `Option` is returned because a `Result` with the error would be copied in several pieces.)
    #[inline(always)]
    pub(crate) fn enter(&self, bounds: &Bounds) -> Option<CallGuard<'_, P>> {
        let mut core = self.core.enter()?;
        let deadline = self.deadline(&mut core, bounds);
        Some(CallGuard { runtime: self, core, deadline })
    }

    /// Returns false if every call is refused, because the runtime was closed or belongs to another process.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.core.is_open()
    }

    /// Returns the error of a call for which [`enter`](Self::enter) has returned `None`.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&self) -> Error {
        error_of(self.core.refused(), Fate::NotDelivered)
    }

    /// Checks that this process is the rank, and not a child of fork(2).
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_open() {
            false if self.core.refused() == Refused::Forked => Err(Error::Forked),
            _ => Ok(()),
        }
    }

    /// Takes the lock for a call as [`enter`](Self::enter) does, and reads the clock.
    #[cold]
    pub(crate) fn enter_now(&self, bounds: &Bounds) -> Option<CallGuard<'_, P>> {
        let mut call = self.enter(bounds)?;
        call.core.now = self.clock.now();
        Some(call)
    }

    /// Abandons a request whose result is not needed.
    pub(crate) fn forget(&self, id: RequestId) {
        let Ok(mut core) = self.lock() else { return };
        core.now = self.clock.now();
        core.forget(id);
    }

    /// Prepares the lock for threads that mark partitions and call [`harvest`](Self::harvest).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn share(&self) -> Result<(), Error> {
        self.core.share().map_err(|refused| error_of(refused, Fate::NotDelivered))
    }

    /// Sends the marked partitions without waiting for the lock: if another thread holds the lock, that thread sends
    /// the partitions when it releases the lock.
    pub(crate) fn harvest(&self) {
        self.core.ask();
    }

    /// Drops one half of a partitioned message, and abandons its round.
    pub(crate) fn free_partitioned(&self, id: PartitionedId, round: Option<RequestId>) {
        if let Some(round) = round {
            self.forget(round);
        }
        self.act(|engine, now| engine.free_partitioned(now, id));
    }

    /// Stores all runtimes of the rank in a new runtime.
    pub(crate) fn join_lanes(&self, lanes: Weak<Lanes>) {
        let is_first = self.lanes.set(lanes).is_ok();
        debug_assert!(is_first, "a runtime is a lane of one rank");
    }

    /// Opens the contexts with a name in this lane. Returns false if it cannot open them: see [`Engine::open_between`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn open_contexts_here(
        &self,
        name: u64,
        group: &Group,
        remote: Option<&Group>,
        incarnations: &Incarnations,
    ) -> Result<bool, Error> {
        let mut core = self.lock()?;
        let opened = core.engine.open_between(name, group.clone(), remote, incarnations);
        // The call may have ended requests of other threads: those with earlier incarnations of the members.
        self.rouse(&mut core);
        opened.map_err(Public::public)
    }

    /// Calls `act` with the engine and the time. Does nothing if the runtime was closed, or if the other ranks have
    /// given up this rank, because it must not send any more.
    pub(crate) fn act(&self, act: impl FnOnce(&mut Engine<P>, Time)) {
        let Ok(mut core) = self.lock() else { return };
        if core.condemned.is_none() {
            core.now = self.clock.now();
            let now = core.now;
            act(&mut core.engine, now);
            self.hand_over(&mut core, CallKind::Nonblocking);
        }
    }

    /// Calls `act` with the engine and the time, and wakes the threads whose operations may have ended.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], [`Error::Condemned`].
    #[cold]
    pub(crate) fn try_act<R>(&self, act: impl FnOnce(&mut Engine<P>, Time) -> R) -> Result<R, Error> {
        let mut core = self.lock()?;
        if let Some(why) = &core.condemned {
            return Err(Error::Condemned { why: why.clone() });
        }
        core.now = self.clock.now();
        let now = core.now;
        let result = act(&mut core.engine, now);
        self.rouse(&mut core);
        self.hand_over(&mut core, CallKind::Nonblocking);
        Ok(result)
    }

    /// Waits for a request to end. Returns `None` if the engine has given the result to the lender of the buffer and
    /// has forgotten the request.
    pub(crate) fn finish<L: Awaiting>(
        &self,
        id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Option<Completion> {
        match self.core.lock() {
            Ok(core) => self.wait(core, id, lent, bounds),
            Err(refused) => Some(unfinished(refused)),
        }
    }

    /// Drives once. Returns the request's result if it has ended: see [`finish`](Self::finish).
    pub(crate) fn test<L: Lent>(
        &self,
        id: RequestId,
        lent: &mut L,
        bounds: &Bounds,
    ) -> Result<Poll<Option<Completion>>, Error> {
        let mut core = self.core.lock().map_err(|refused| error_of(refused, Fate::Unknown))?;
        if core.step(self.clock.now(), lent).map_err(Public::public)? > 0 {
            self.rouse(&mut core);
        }
        self.leave_if_needed(&mut core, CallKind::Nonblocking);
        match core.outcome_within(id, bounds) {
            Outcome::Pending => Ok(Poll::Pending),
            Outcome::FailurePending => {
                core.engine.failure_pending(id).map_or(Ok(Poll::Pending), |error| Err(error.public()))
            }
            Outcome::Ready => Ok(Poll::Ready(core.collect(id, lent))),
        }
    }

    /// Drives once. Returns true if the request has ended.
    pub(crate) fn has_ended(&self, id: RequestId, bounds: &Bounds) -> Result<bool, Error> {
        let mut core = self.lock()?;
        if core.step(self.clock.now(), &mut ()).map_err(Public::public)? > 0 {
            self.rouse(&mut core);
        }
        self.leave_if_needed(&mut core, CallKind::Nonblocking);
        Ok(core.outcome_within(id, bounds) != Outcome::Pending)
    }

    /// Looks at the engine without making progress.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&Engine<P>) -> R) -> Result<R, Error> {
        self.lock().map(|core| look(&core.engine))
    }

    /// Registers this runtime to be woken when `cancel` is used, so that the cancel can end a wait.
    pub(crate) fn heeds(&self, cancel: &CancelToken) {
        if let Some(watch) = &self.watch {
            cancel.register(watch);
        }
    }

    /// Cancels requests.
    pub(crate) fn cancel_all(&self, ids: impl IntoIterator<Item = RequestId>) {
        let Ok(mut core) = self.lock() else { return };
        ids.into_iter().for_each(|id| core.cancel(id));
        self.hand_over(&mut core, CallKind::Nonblocking);
    }

    /// Drives once.
    pub(crate) fn drive<L: Lent>(&self, lent: &mut L) -> Result<(), Error> {
        let mut core = self.core.lock().map_err(|refused| error_of(refused, Fate::Unknown))?;
        if core.step(self.clock.now(), lent).map_err(Public::public)? > 0 {
            self.rouse(&mut core);
        }
        Ok(())
    }

    /// Adds a watcher, for which the engine keeps the ends of the watched requests: see [`Engine::add_watcher`].
    pub(crate) fn add_watcher(&self) -> u32 {
        // If the runtime is closed, all requests have ended and no watcher is needed.
        self.lock().map_or(0, |mut core| core.engine.add_watcher())
    }

    /// Removes a watcher.
    pub(crate) fn remove_watcher(&self, watcher: u32) {
        let _ = self.lock().map(|mut core| core.engine.remove_watcher(watcher));
    }

    /// Makes the engine report the end of a request to a watcher, under a key: see [`Engine::watch`].
    pub(crate) fn watch(&self, id: RequestId, watcher: u32, key: u32) {
        let _ = self.lock().map(|mut core| core.engine.watch(id, watcher, key));
    }

    /// Stops reporting the end of a request.
    pub(crate) fn unwatch(&self, id: RequestId) {
        let _ = self.lock().map(|mut core| core.engine.unwatch(id));
    }

    /// Takes a request of a watcher that has ended, or that must report a failure: see [`Engine::take_end`]. Returns
    /// the request's key, and the result that [`finish`](Self::finish) would have returned. If `explained` is given,
    /// this function waits within these bounds to [`explain`](Self::explain) a failure. Otherwise it does not wait.
    pub(crate) fn take_end<L: Lent>(
        &self,
        watcher: u32,
        lent: &mut L,
        explained: Option<&Bounds>,
    ) -> Option<(u32, Option<Completion>)> {
        let mut core = self.core.lock().ok()?;
        let (id, key) = core.engine.take_end(watcher)?;
        // No poll may precede the next statement: it could give a message to a receive that must report a failure.
        let mut end = match core.engine.outcome(id) {
            Outcome::FailurePending => core.end_by_failure(id, lent),
            _ => core.collect(id, lent),
        };
        drop(core);
        if let (Some(bounds), Some(Completion { result, .. })) = (explained, &mut end) {
            *result = std::mem::replace(result, Err(Error::NoSuchRequest))
                .map_err(|error| self.explain(error, bounds));
        }
        Some((key, end))
    }

    /// Waits until the messages in a buffer have been sent.
    pub(crate) fn flush(&self, context: u32, buffer: &SendBuffer, bounds: &Bounds) -> Result<(), Error> {
        let pattern = Pattern { context, source: Source::ANY, tag: 0, mask: 0 };
        let flushed = self.until(bounds, &pattern, Awaited::Room, |_| Ok((buffer.used() == 0).then_some(())));
        flushed.map_err(|error| match error {
            Error::TimedOut { report, .. } => Error::TimedOut { fate: Fate::Unknown, report },
            Error::Cancelled { .. } => Error::Cancelled { fate: Fate::Unknown },
            error => error,
        })
    }

    /// Waits until a message that `pattern` matches has arrived.
    pub(crate) fn probe(&self, pattern: &Pattern, bounds: &Bounds) -> Result<Status, Error> {
        self.until(bounds, pattern, Awaited::Message, |engine| engine.probe(pattern)).map(Public::public)
    }

    /// Waits until a message that `pattern` matches has arrived, and claims it.
    pub(crate) fn claim(&self, pattern: &Pattern, bounds: &Bounds) -> Result<(Status, Claimed), Error> {
        let found = self.until(bounds, pattern, Awaited::Message, |engine| engine.claim(pattern));
        found.map(|(status, claimed)| (status.public(), claimed))
    }

    /// Drives once, then calls `look`.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(&mut Engine<P>) -> Result<R, samite_p2p::Error>,
    ) -> Result<R, Error> {
        let mut core = self.lock()?;
        if core.step(self.clock.now(), &mut ()).map_err(Public::public)? > 0 {
            self.rouse(&mut core);
        }
        look(&mut core.engine).map_err(Public::public)
    }

    /// Returns the rest of `bounds` for the second step of a call whose first step began at `begun`.
    pub(crate) fn rest_of(&self, bounds: &Bounds, begun: Time) -> Bounds {
        bounds.after(Duration::from_nanos(self.clock.now().since(begun)))
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn stats(&self) -> Stats {
        match self.lock() {
            Ok(core) => core.stats(self.rank),
            Err(_) => {
                self.last.get().cloned().unwrap_or(Stats { rank: Rank(self.rank.0), ..Stats::default() })
            }
        }
    }

    /// Returns the incarnation of a rank, counted from 1, or `None` if no incarnation of it takes part.
    pub(crate) fn incarnation(&self, rank: WorldRank) -> Result<Option<u32>, Error> {
        self.look(|engine| Ok(self.counted_incarnation(engine, rank)))
    }

    /// Waits until an incarnation of `rank` takes part, and returns its number, counted from 1. This rank and `rank`
    /// need not have communicated before.
    pub(crate) fn wait_for_restart(&self, rank: WorldRank, bounds: &Bounds) -> Result<u32, Error> {
        let pattern = Pattern { context: 0, source: Source::rank(rank.0), tag: 0, mask: 0 };
        if rank != self.rank {
            self.look(|engine| engine.seek(rank))?;
            let mut core = self.lock()?;
            // If the peer made the first contact, this lane has not requested its address. The next incarnation may
            // contact another lane first, so this lane must request the address to learn of it.
            if core.engine.incarnation(rank).is_none() {
                core.directory.request_address(rank.0);
            }
        }
        self.until(bounds, &pattern, Awaited::Address, |engine| {
            match (self.counted_incarnation(engine, rank), engine.gone(rank)) {
                (None, Some(error)) => Err(error),
                (incarnation, _) => Ok(incarnation),
            }
        })
    }

    /// Returns the incarnation of a rank that takes part, as [`incarnation`](Self::incarnation) does.
    fn counted_incarnation(&self, engine: &mut Engine<P>, rank: WorldRank) -> Option<u32> {
        let incarnation = match rank == self.rank {
            true => self.identity.incarnation,
            false => engine.incarnation(rank)?,
        };
        let first = Secret(self.identity.secret).first_incarnation(rank.0);
        Some(incarnation.wrapping_sub(first).wrapping_add(1))
    }

    #[inline(always)]
    fn lock(&self) -> Result<BiasedGuard<'_, Core<P>>, Error> {
        // No input can cause a panic in the engine, so a thread that panicked with the lock has left the engine in a
        // valid state.
        self.core.enter().ok_or_else(|| self.refused())
    }

    #[inline]
    fn deadline(&self, core: &mut Core<P>, bounds: &Bounds) -> Time {
        match bounds.timeout {
            None => Time::NEVER,
            Some(timeout) => {
                core.now = self.clock.now();
                deadline_after(core.now, timeout)
            }
        }
    }
}

/// The guard of a call, which holds the lock. If the call leaves work to do, dropping the guard hands this work over to
/// a waiting thread.
pub(crate) struct CallGuard<'a, P: Port> {
    runtime: &'a Runtime<P>,
    core: BiasedGuard<'a, Core<P>>,
    deadline: Time,
}

impl<P: Port> CallGuard<'_, P> {
    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.core.cancel(id);
    }

    /// Starts an operation: `start` gets the engine, the time and the deadline.
    #[inline(always)]
    pub(crate) fn start<R>(&mut self, start: impl FnOnce(&mut Engine<P>, Time, Time) -> R) -> R {
        let now = self.core.now;
        // The result is made at its destination. A copy would load, in one piece, bytes that were just stored in
        // several pieces. Such a load waits for all earlier stores, including those to cache lines of other cores (4 %
        // of an exchange).
        start(&mut self.core.engine, now, self.deadline)
    }
}

impl<P: Port> Drop for CallGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.runtime.hand_over(&mut self.core, CallKind::Nonblocking);
    }
}

/// Returns the error of a call that the lock refuses.
#[cold]
fn error_of(refused: Refused, fate: Fate) -> Error {
    match refused {
        Refused::Closed => Error::Closed { fate },
        Refused::Forked => Error::Forked,
    }
}

/// Returns the result of a request whose real result can no longer be learned.
#[cold]
fn unfinished(refused: Refused) -> Completion {
    Completion { result: Err(error_of(refused, Fate::Unknown)), memory: None }
}
