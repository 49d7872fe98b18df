//! The state behind the runtime's lock: the engine, the launcher's notices, and the sleepers.

use std::sync::Arc;
use std::time::Duration;

use samite_control::{Figures, PeerStats};
use samite_fabric::layout::{Readable, Writable};
use samite_fabric::link::GivenUp;
use samite_fabric::mem::{Loans, OpenLoans};
use samite_fabric::{Body, Port, Sleep};
use samite_p2p::{
    Awaited, Cause, Error, Harvest, Lent, Operation, Outcome, Pattern, Report, RequestId, Time, WorldRank,
};

use super::background::Background;
use super::collective::Collectives;
use super::directory::{Directory, Notice};
use super::tasks::Tasks;
use super::windows::WindowRequests;
use super::{Bounds, Completion};
use crate::CancelToken;
use crate::error::Public;
use crate::figures::figures_of;
use crate::lanes::{Addresses, Lane};
use crate::patience::{Burst, nap_while_bytes_move};
use crate::stack::Engine;
use crate::stats::Stats;
use crate::watch::Watch;

/// The engine, with the state that the runtime needs to drive it.
pub(super) struct Core<P> {
    pub(super) engine: Engine<P>,
    pub(super) directory: Box<dyn Directory>,
    /// The lane of this engine.
    pub(super) lane: Lane,
    /// The time of the most recent reading of the clock. It is precise enough for the age of a message, and for
    /// deadlines, since waiting callers read the clock between bursts.
    pub(super) now: Time,
    /// The time of the next poll of the directory.
    pub(super) ask: Time,
    /// The number of addresses that were requested and have not arrived.
    pub(super) awaited: usize,
    /// True if the launcher wants a report of this rank's activity at the end.
    pub(super) tells_at_end: bool,
    /// The value of [`Engine::moves`] at the latest call of [`has_moved`](Self::has_moved).
    pub(super) moves: u64,
    /// Time spent waiting, over all threads.
    pub(super) waited_ns: u64,
    /// A report of the wait of a thread that waits without a request, for example in a probe.
    pub(super) sought: Option<Report>,
    /// The reason why the other ranks have given up this rank, if they have. In that case this rank sends nothing more.
    pub(super) condemned: Option<String>,
    pub(super) burst: Burst,
    /// The number of times that a waiting thread has yielded its processor core.
    pub(super) waits: u32,
    /// The thread that sleeps on the descriptors, or the program's driver that waits for them.
    pub(super) sleeper: Option<Sleeper>,
    /// True if the port is armed.
    pub(super) is_armed: bool,
    /// The descriptors on which the sleeper sleeps.
    pub(super) watch: Option<Arc<Watch>>,
    /// The number of threads that wait until the sleeper wakes.
    pub(super) followers: usize,
    /// The futures that wait.
    pub(super) tasks: Tasks,
    /// The part of the driver thread that makes progress between the program's calls.
    pub(super) background: Background,
    /// The buffers that scopes lend for long messages, each under its request.
    pub(super) loans: Arc<Loans>,
    pub(super) collectives: Collectives,
    pub(super) windows: WindowRequests,
}

/// The one who waits until there is work.
#[derive(Clone, Copy)]
pub(super) struct Sleeper {
    pub(super) until: Time,
    pub(super) is_roused: bool,
    pub(super) who: Who,
}

/// A kind of [`Sleeper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A thread that waits for its own operations, or the driver thread while futures wait. Other threads that must
    /// sleep rely on it.
    Thread,
    /// The program's driver, which waits until its own descriptor is readable. The program may never drive again, so a
    /// thread that must sleep takes its place.
    Program,
    /// The driver thread while no future waits. It only makes progress that no caller makes. So a thread that must
    /// sleep takes its place, and events that a caller has handled do not wake it.
    Background,
}

/// The lender of the buffers that the caller of a poll lends, of the loans of all scopes, and of the buffers of
/// nonblocking collective operations.
struct WithOthers<'a, L> {
    lent: &'a mut L,
    loans: OpenLoans<'a>,
    collectives: &'a mut Collectives,
}

impl<L: Lent> Lent for WithOthers<'_, L> {
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        let loan = || self.loans.read(request.to_wire());
        loan().or_else(|| self.collectives.read(request, place)).or_else(|| self.lent.read(request, place))
    }

    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        if self.loans.contains(request.to_wire()) {
            return self.loans.write(request.to_wire());
        }
        match self.collectives.lender(request, place) {
            Some(index) => self.collectives.lent(index).write(request, place),
            None => self.lent.write(request, place),
        }
    }

    fn received(&mut self, request: RequestId, place: u32, status: samite_p2p::Status) -> bool {
        // The scope of a loan may belong to another thread, and collects the result itself. So the engine keeps the
        // result.
        if self.loans.contains(request.to_wire()) {
            return false;
        }
        match self.collectives.lender(request, place) {
            Some(index) => self.collectives.lent(index).received(request, place, status),
            None => self.lent.received(request, place, status),
        }
    }

    fn take(&mut self, context: u32, source: WorldRank, tag: u64, body: &(impl Body + ?Sized)) -> bool {
        self.lent.take(context, source, tag, body)
    }
}

impl<P: Port> Core<P> {
    /// Polls the engine.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::poll`]. The error is boxed, so that the result fits in registers. An unboxed
    /// result would be copied in pieces of 16 bytes, and each copy would wait for the stores of its smaller parts (a
    /// fifth of the time of an idle poll).
    #[inline(always)]
    pub(super) fn poll<L: Lent>(&mut self, lent: &mut L) -> Result<usize, Box<Error>> {
        // `&` instead of `&&` avoids a branch.
        let polled = match self.loans.is_empty() & self.collectives.is_empty() & self.windows.is_empty() {
            true => self.engine.poll(self.now, lent).map_err(Box::new),
            false => self.poll_with_others(lent),
        };
        // The peer is informed now, because the caller may make no further call.
        if self.engine.has_given_up() {
            self.tell_given_up();
        }
        polled
    }

    /// Polls the engine, lends it the buffers of all scopes and nonblocking collective operations too, and makes
    /// progress with these operations.
    #[cold]
    #[inline(never)]
    fn poll_with_others<L: Lent>(&mut self, lent: &mut L) -> Result<usize, Box<Error>> {
        let Self { engine, now, loans, collectives, .. } = self;
        let (out, stack) = engine.parts();
        stack.windows.urge(out.link);
        let mut lent = WithOthers { lent, loans: loans.open(), collectives };
        let events = engine.poll(*now, &mut lent).map_err(Box::new)?;
        drop(lent);
        self.quit_unwanted();
        let Self { engine, collectives, windows, .. } = self;
        Ok(events + collectives.advance(engine, events) + windows.advance(engine))
    }

    /// Returns the result of a request that has ended: see [`Engine::collect`].
    #[inline(always)]
    pub(super) fn collect<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        // `&` instead of `&&` avoids a branch.
        match self.loans.is_empty() & self.windows.have_no_errors() {
            true => self.engine.collect(id, lent).map(Completion::from),
            false => self.collect_with_others(id, lent),
        }
    }

    /// Gives up the operations whose requests the program has cancelled or dropped, if they consist of other
    /// operations.
    pub(super) fn quit_unwanted(&mut self) {
        let Self { engine, collectives, windows, .. } = self;
        while let Some(unwanted) = engine.take_unwanted() {
            if !collectives.quit(engine, unwanted) {
                windows.cancel(engine, unwanted);
            }
        }
        collectives.end_finished(engine);
        windows.advance(engine);
    }

    #[cold]
    #[inline(never)]
    fn collect_with_others<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let Self { engine, loans, collectives, windows, .. } = self;
        let mut lent = WithOthers { lent, loans: loans.open(), collectives };
        let completion = Completion::from(engine.collect(id, &mut lent)?);
        // An operation of a window has an error that the engine does not know.
        let result = completion.result.map_err(|error| windows.error_of(id, error));
        Some(Completion { result, ..completion })
    }

    /// Wakes the sleeping thread, which wakes the other waiting threads and the program's driver. If no thread sleeps,
    /// wakes the program's driver, or lets the driver thread take its next step soon.
    #[cold]
    pub(super) fn wake(&mut self) {
        let Some(sleeper) = &mut self.sleeper else { return };
        match sleeper.who {
            Who::Thread if !std::mem::replace(&mut sleeper.is_roused, true) => {
                if let Some(watch) = &self.watch {
                    watch.wake();
                }
            }
            Who::Thread => {}
            Who::Program => {
                self.sleeper = None;
                self.tasks.drivers.call();
            }
            Who::Background => self.background.call_soon(self.now),
        }
    }

    /// Wakes those who may wait for events that the caller has handled.
    #[cold]
    pub(super) fn wake_for_events(&mut self) {
        if self.sleeper.is_some_and(|sleeper| sleeper.who != Who::Background) {
            self.wake();
        }
    }

    /// Returns true if a thread sleeps on the descriptors on which other threads can rely.
    pub(super) fn has_sleeping_thread(&self) -> bool {
        self.sleeper.is_some_and(|sleeper| sleeper.who == Who::Thread)
    }

    /// Ends the state that [`arm`](Self::arm) began. The caller has been woken, and no other thread sleeps.
    pub(super) fn disarm(&mut self) {
        self.disarm_port();
        if let Some(watch) = &self.watch {
            watch.silence();
        }
        // The directory may have caused the wake-up.
        self.ask = Time::ZERO;
    }

    /// Ends the state that [`arm`](Self::arm) began. The caller knows that no descriptor has woken the sleeper.
    pub(super) fn disarm_port(&mut self) {
        self.sleeper = None;
        self.is_armed = false;
        self.engine.disarm();
    }

    /// Wakes the sleeper if work is due before the end of its sleep, or if a future can continue.
    #[cold]
    pub(super) fn wake_if_due(&mut self) {
        let are_ready = self.tasks.are_ready(&self.engine);
        if self.sleeper.is_some_and(|sleeper| self.engine.due() < sleeper.until || are_ready) {
            self.wake();
        }
    }

    /// Sends the marked partitions. The thread that releases the lock calls this on behalf of the marking threads. So
    /// this also wakes the threads whose requests end by it.
    #[cold]
    pub(super) fn harvest(&mut self) {
        if self.condemned.is_some() {
            return;
        }
        let Harvest { must_poll, has_ends } = self.engine.harvest();
        // A packet may have arrived while no thread was in a call, so this function must poll for it. An error of the
        // port is ignored, because the next poll in a call that can return the error finds the same error.
        let has_events = must_poll && matches!(self.poll(&mut ()), Ok(1..));
        match has_ends || has_events {
            true => self.wake_for_events(),
            false => self.wake_if_due(),
        }
    }

    /// Abandons a request. If the other ranks have given up this rank, nothing is sent to them: for them this rank is
    /// dead. But the buffers of this rank are concealed, because no other rank may read a buffer that the caller gets
    /// back.
    pub(super) fn forget(&mut self, id: RequestId) {
        match self.condemned {
            None => {
                self.engine.forget(id);
                self.quit_unwanted();
                self.windows.forget(id);
            }
            Some(_) => {
                self.engine.conceal();
                // The set that watched the request does not contain it any more.
                self.engine.unwatch(id);
            }
        }
    }

    /// Returns the state of a request. If the request is pending and the [`CancelToken`] in `bounds` was used, cancels
    /// it first.
    pub(super) fn outcome_within(&mut self, id: RequestId, bounds: &Bounds) -> Outcome {
        let outcome = self.engine.outcome(id);
        if outcome != Outcome::Pending || !bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return outcome;
        }
        self.cancel(id);
        self.engine.outcome(id)
    }

    /// Ends a receive that must report a failure, with the failure as its result. A blocking call returns with this
    /// result, so it cannot leave the receive posted. Returns `None` if there is no failure to report.
    #[cold]
    pub(super) fn end_by_failure<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let error = self.engine.failure_pending(id)?;
        // The receive has matched no message, so the cancel ends it at once, and its owner gets the buffer.
        self.engine.cancel(id);
        let memory = self.collect(id, lent).and_then(|ended| ended.memory);
        Some(Completion { result: Err(error.public()), memory })
    }

    /// Returns a report of a wait without a request: for a message, for room, or for an address.
    pub(super) fn report_of(
        &mut self,
        pattern: &Pattern,
        begun: Time,
        now: Time,
        awaited: Awaited,
    ) -> Report {
        let source = pattern.source.as_rank().map(WorldRank);
        Report {
            operation: if awaited == Awaited::Room { Operation::Send } else { Operation::Search },
            peer: source,
            tag: pattern.tag,
            mask: pattern.mask,
            other_tags: None,
            bytes: 0,
            age_ns: now.since(begun),
            awaited,
            is_stopped: source.is_some_and(|rank| self.engine.is_stopped(rank)),
            members: None,
        }
    }

    /// Gives up all nonblocking collective operations, and the requests of windows that the program has not dropped.
    pub(super) fn quit(&mut self) {
        if self.condemned.is_none() {
            self.collectives.quit_all(&mut self.engine);
            self.windows.quit_all(&mut self.engine);
        }
    }

    /// Abandons all requests whose buffers are lent.
    pub(super) fn forget_lent(&mut self) {
        match self.condemned {
            None => self.engine.forget_lent(),
            Some(_) => self.engine.conceal(),
        }
    }

    /// Returns true if bytes have moved without events since the latest call. The threads that wait poll in turns, and
    /// each calls this after its polls.
    pub(super) fn has_moved(&mut self) -> bool {
        let moves = self.engine.moves();
        std::mem::replace(&mut self.moves, moves) != moves
    }

    /// Drives once, at the time `now`. Returns the number of events. The notices together count as one event.
    pub(super) fn step<L: Lent>(&mut self, now: Time, lent: &mut L) -> Result<usize, Box<Error>> {
        let news = self.attend(now)?;
        Ok(self.poll(lent)? + usize::from(news))
    }

    /// Returns the maximum time to sleep: the time until work is due, limited by [`SLEEP_MAX`], or `nap_time` if work
    /// is due already.
    pub(super) fn time_to_sleep(&self, nap_time: Duration, until: Time) -> Duration {
        let due = self.engine.due().min(until);
        let until_due = Duration::from_nanos(due.since(self.now)).min(SLEEP_MAX);
        // If work is due already, the port has refused it for lack of room, and does not signal when it has room again.
        // So the work is tried again after a nap.
        if until_due.is_zero() { self.nap_time(nap_time) } else { until_due }
    }

    /// Returns how long a thread naps that nothing would wake, if it would nap for `nap_time` while no bytes move.
    fn nap_time(&self, nap_time: Duration) -> Duration {
        let may_move = self.engine.uses_registered_memory() || self.engine.stack().windows.serves_reads();
        if may_move { nap_while_bytes_move(nap_time) } else { nap_time }
    }

    /// Arms the port before a sleep. Returns the maximum time to sleep, or `None` if there is work.
    pub(super) fn arm(&mut self, nap_time: Duration, time: Duration) -> Option<Duration> {
        // The port is still armed if this thread takes the place of the program's driver. Then the port may have an
        // alarm to reset.
        if std::mem::replace(&mut self.is_armed, true) {
            self.engine.disarm();
        }
        match self.engine.arm() {
            Sleep::NotNow => {
                self.is_armed = false;
                None
            }
            Sleep::Briefly => Some(self.nap_time(nap_time).min(time)),
            Sleep::UntilReadable => Some(time),
        }
    }

    /// Sets the time, requests the addresses that the engine needs, and polls the directory if that is due. Returns
    /// true if there were notices.
    pub(super) fn attend(&mut self, now: Time) -> Result<bool, Box<Error>> {
        self.now = now;
        let wanted: Vec<WorldRank> = self.engine.wanted().collect();
        for rank in wanted {
            self.directory.request_address(rank.0);
            self.awaited += 1;
        }
        if self.engine.has_given_up() {
            self.tell_given_up();
        }
        if self.awaited == 0 && now < self.ask {
            return Ok(false);
        }
        let mut news = false;
        self.ask = now.after(ASK_EVERY_NS);
        while let Some(notice) = self.directory.poll() {
            news = true;
            match notice {
                Notice::Address { rank, incarnation, address } => {
                    self.awaited = self.awaited.saturating_sub(1);
                    match Addresses::decode(&address, self.lane) {
                        Ok(address) => self.engine.introduce(WorldRank(rank), incarnation, address)?,
                        Err(why) => {
                            self.engine.peer_failed(
                                WorldRank(rank),
                                Some(incarnation),
                                Cause::Unreachable(why),
                            )?;
                        }
                    }
                }
                Notice::Failed { rank, incarnation, how, returns } => {
                    // The process that takes the place of the dead process may have sent a packet already.
                    self.engine.announce_failure(WorldRank(rank), incarnation, Cause::Died(how.clone()));
                    self.receive_all()?;
                    self.engine.peer_failed(WorldRank(rank), Some(incarnation), Cause::Died(how))?;
                    self.engine.peer_returns(WorldRank(rank), incarnation, returns)?;
                }
                Notice::Left { rank, incarnation } => {
                    self.receive_all()?;
                    self.engine.peer_left(WorldRank(rank), Some(incarnation))?;
                }
                Notice::Stopped { rank, incarnation, is_stopped } => {
                    self.engine.peer_stopped(WorldRank(rank), incarnation, is_stopped)?;
                }
                Notice::GaveUp { rank, incarnation, verdict_on, why } => {
                    self.receive_all()?;
                    self.engine.peer_gave_up(WorldRank(rank), incarnation, verdict_on, why)?;
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
            Some(why) => Err(Box::new(Error::Condemned { why: why.clone() })),
            None => Ok(news),
        }
    }

    /// Informs peers that this rank has given them up. Otherwise they would wait for this rank, since the path between
    /// them is cut off.
    #[cold]
    fn tell_given_up(&mut self) {
        for GivenUp { rank, incarnation, cause } in self.engine.given_up() {
            self.directory.give_up(rank.0, incarnation, cause.public().to_string());
        }
    }

    /// Sends the final report of this rank, if the launcher wants it.
    pub(super) fn tell_at_end(&mut self) {
        if self.tells_at_end {
            let (figures, peers) = self.figures();
            self.directory.tell(figures, &peers);
        }
    }

    pub(super) fn stats(&self, rank: WorldRank) -> Stats {
        let threads_refused = self.background.threads_refused;
        Stats { threads_refused, ..Stats::of(rank, &self.engine, self.waited_ns) }
    }

    pub(super) fn figures(&mut self) -> (Figures, Vec<PeerStats>) {
        figures_of(&mut self.engine, self.now, self.waited_ns, self.sought.clone())
    }

    /// Polls until nothing more arrives. Called before the end of a rank is recorded, so that the messages that the
    /// rank sent earlier are received first.
    pub(super) fn receive_all(&mut self) -> Result<(), Box<Error>> {
        while self.poll(&mut ())? > 0 {}
        Ok(())
    }
}

/// The time between two polls of the directory while a thread waits. It is well below the time within which the end of
/// a rank should be known.
const ASK_EVERY_NS: u64 = 1_000_000;

/// The longest sleep without an event. After it a rank tries again to send messages that the connection to the launcher
/// could not accept, and finds the events of a provider that has failed to wake it.
const SLEEP_MAX: Duration = Duration::from_millis(100);
