//! The steps of an operation on the communicator's board.
//!
//! The operations of a communicator use its board one after the other, in the order of their numbers. An operation that
//! waits at the board has no request of the engine at first, since most waits end soon. If a wait lasts, the rank posts
//! a receive for a notice of the rank for which it waits. This receive ends at the deadline, and when that rank fails
//! or leaves. So the operation ends with the errors of a message, and the wait can be observed as that of a receive.
//!
//! A rank that sleeps in such a wait is woken by an empty message. No operation receives this message.
//! [`Collective::leaves_messages`] tells its owner to discard it.

use samite_fabric::shm::board::{Awaited, Board, Event, Fetched, Tick};
use samite_fabric::{Memory, Port};
use samite_p2p::{Cause, Engine, Error, Fate, Group, HasTagged, Outcome, RequestId, Time, WorldRank};

use super::notice::Notice;
use super::{Buffers, Call, Collective, Failed, NUMBERS, Series, buffers, check_lens, copy, reduce};
use crate::schedule::Step;

/// An operation on a board.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnBoard {
    /// The number of the operation on the board.
    operation: u64,
    /// The receive of a notice from the rank for which this rank waits.
    vigil: Option<Vigil>,
    /// True if this rank has published or finished something since the latest look for sleeping ranks.
    has_news: bool,
}

/// See [`OnBoard::vigil`].
#[derive(Clone, Copy, Debug)]
struct Vigil {
    request: RequestId,
    partner: WorldRank,
}

impl OnBoard {
    /// Begins an operation on the board of a communicator.
    ///
    /// # Panics
    /// If the communicator has no board.
    pub(super) fn begin<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, context: u32, number: u32) -> Self {
        Self { operation: board_of(engine, context).begin(number), vigil: None, has_news: false }
    }

    /// Returns a request that must end before the operation ends.
    pub(super) fn awaited(&self) -> RequestId {
        self.vigil.map_or(RequestId::PENDING, |vigil| vigil.request)
    }
}

/// Returns the ranks that can fetch the publications of this rank on the board of a communicator, and this rank.
pub(super) fn readers<P: Port, S: HasTagged>(
    engine: &mut Engine<P, S>,
    context: u32,
    group: &Group,
) -> Vec<WorldRank> {
    board_of(engine, context).ranks().filter_map(|rank| group.rank(rank)).collect()
}

/// Returns the board of a communicator.
#[inline]
fn board_of<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, context: u32) -> &mut Board {
    engine.boards_mut().get_mut(context).expect("an algorithm on the board is chosen if there is one")
}

/// Wakes the ranks that sleep and wait for an event at this rank. Call it after this rank has published or finished
/// something.
#[inline]
fn wake_sleepers<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, context: u32, group: &Group) {
    loop {
        let board = board_of(engine, context);
        let Some((member, number)) = board.next_sleeper() else { return };
        let Some(partner) = group.rank(board.rank_of(member)) else { continue };
        let tag = Series::Program.tag() | u64::from(number & NUMBERS) << 32 | u64::from(Notice::WAKE);
        // A partner that has ended does not sleep.
        let _ = engine.send_detached(engine.now(), partner, context, tag, Memory::new(Vec::<u8>::new()));
    }
}

/// The use of the board by the first operation on it.
struct Turn<'a> {
    /// The number of the operation on the board.
    operation: u64,
    group: &'a Group,
    /// The size of an element in bytes.
    element: usize,
    /// See [`OnBoard::has_news`].
    has_news: bool,
}

impl Turn<'_> {
    /// Takes a step that concerns no message. Returns the event for which this rank must wait first.
    #[inline(always)]
    fn take<B: Buffers>(
        &mut self,
        board: &mut Board,
        buffers: &mut B,
        step: &Step,
    ) -> Result<Option<(usize, Event)>, Failed> {
        let element = self.element;
        match *step {
            Step::Publish { piece, from } => {
                let tick = Tick::new(self.operation, piece);
                self.has_news |= board.advance(tick);
                let published = board.publish(tick, buffers::span_of(buffers.slices(), from, element));
                self.has_news |= published.is_ok();
                Ok(published.err())
            }
            Step::Fetch { from, piece, whole, start, into } => {
                let tick = Tick::new(self.operation, piece);
                self.has_news |= board.advance(tick);
                let [whole, start] = [whole, start].map(|elements| elements * element);
                // In a barrier no byte is fetched, and there is no buffer.
                let slices = buffers.slices_mut().0;
                let into = if into.len == 0 { &mut [] } else { slices.get_mut(into, element) };
                let member = board.member(from);
                let rank = || self.group.rank(from).expect("a schedule names ranks of the group");
                match board.fetch(member, tick, whole, start, into) {
                    Fetched::Done => Ok(None),
                    Fetched::NotYet => Ok(Some((member, Event::Published(tick)))),
                    Fetched::Length(theirs) => {
                        Err(Error::LengthsDiffer { rank: rank(), ours: whole, theirs }.into())
                    }
                    Fetched::Skipped => Err(Error::Abandoned { rank: rank(), fate: Fate::Unknown }.into()),
                }
            }
            Step::Copy { from, into } => {
                copy(buffers, element, from, into);
                Ok(None)
            }
            Step::Reduce { from, into } => reduce(buffers, element, from, into).map(|()| None),
            Step::Send { .. } | Step::Receive { .. } | Step::Wait { .. } => {
                unreachable!("the step concerns no message")
            }
        }
    }
}

/// The reason why [`Collective::begin_on_board`] takes no more steps.
enum Pause {
    /// The rank must wait for an event of a member before it takes the step.
    Wait(Step, usize, Event),
    Failed(Step, Failed),
}

/// The result of [`Collective::begin_on_board`].
pub enum Begun<B> {
    /// The operation has succeeded.
    Ended {
        /// The buffers.
        buffers: B,
        /// See [`Collective::leaves_messages`].
        leaves_messages: bool,
    },
    /// The operation is under way, or has failed.
    UnderWay(Box<Collective<B>>),
}

impl<B: Buffers> Collective<B> {
    /// Begins an operation as [`begin`](Self::begin) does. If the operation needs the board alone, the rank looks there
    /// `looks` times before it waits. Most short operations end so, and cost less than one that is kept as a value.
    #[inline(always)]
    pub fn begin_on_board<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        now: Time,
        call: Call<'_>,
        mine: WorldRank,
        mut buffers: B,
        looks: u32,
    ) -> Begun<B> {
        let ends = engine.ends();
        let at = call.place(mine);
        let is_short = call.check.is_none() && call.checked_ends == Some(ends) && call.plan.is_on_board();
        if !is_short {
            return Begun::UnderWay(Box::new(Self::begin(engine, now, call, mine, buffers)));
        }
        engine.set_now(now);
        engine.note_begun(call.context, call.number);
        check_lens(&call, at, &buffers);
        let (context, number, mut steps) = (call.context, call.number, call.plan.steps(at));
        let mut board = board_of(engine, context);
        let operation = board.begin(number);
        let mut turn = Turn { operation, group: &call.group, element: call.element, has_news: false };
        let mut pause = None;
        if board.is_first(operation)
            && let Some(steps) = steps.on_board()
        {
            let mut looks = looks;
            'steps: for step in steps {
                loop {
                    let (member, event) = match turn.take(board, &mut buffers, &step) {
                        Ok(None) => continue 'steps,
                        Ok(Some(awaited)) => awaited,
                        Err(failed) => {
                            pause = Some(Pause::Failed(step, failed));
                            break 'steps;
                        }
                    };
                    if looks > 0 && std::mem::take(&mut turn.has_news) {
                        wake_sleepers(engine, context, turn.group);
                        board = board_of(engine, context);
                    }
                    while looks > 0 && !board.has_happened(member, event) {
                        looks -= 1;
                        std::hint::spin_loop();
                    }
                    if looks == 0 {
                        pause = Some(Pause::Wait(step, member, event));
                        break 'steps;
                    }
                }
            }
            if pause.is_none() {
                board.end(operation);
                let leaves_messages = board.take_slept();
                wake_sleepers(engine, context, turn.group);
                return Begun::Ended { buffers, leaves_messages };
            }
        }
        let on_board = OnBoard { operation, vigil: None, has_news: turn.has_news };
        let mut collective = Box::new(Self::new(engine, now, call, at, steps, buffers));
        collective.on_board = Some(on_board);
        collective.resume(engine, pause);
        Begun::UnderWay(collective)
    }

    /// Goes on after the steps of [`begin_on_board`](Self::begin_on_board). There is no pause if the operation is behind
    /// an earlier one.
    #[cold]
    fn resume<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, pause: Option<Pause>) {
        match pause {
            Some(Pause::Wait(step, member, event)) => {
                let awaited = Awaited { member, event, cookie: self.number };
                board_of(engine, self.context).set_awaited(Some(awaited));
                self.blocked = Some(step);
                self.wake_sleepers(engine);
            }
            Some(Pause::Failed(step, failed)) => {
                self.end_by(engine, failed, step.is_on_board());
            }
            None => self.advance(engine),
        }
    }

    /// Returns the state of an operation on the board whose next step is on the board.
    pub(super) fn at_board(&self) -> Option<OnBoard> {
        self.on_board.filter(|_| self.blocked.is_some_and(|step| step.is_on_board()))
    }

    /// Takes a step on the board. Returns false if this rank must wait first.
    pub(super) fn take_on_board<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        step: Step,
    ) -> Result<bool, Failed> {
        let OnBoard { operation, .. } = self.on_board.expect("the operation uses the board");
        let board = board_of(engine, self.context);
        if !board.is_first(operation) {
            return Ok(false);
        }
        let mut turn = Turn { operation, group: &self.group, element: self.element, has_news: false };
        let awaited = turn.take(board, &mut self.buffers, &step)?;
        let has_news = turn.has_news;
        board.set_awaited(awaited.map(|(member, event)| Awaited { member, event, cookie: self.number }));
        let awaited_rank = awaited.map(|(member, _)| board.rank_of(member));
        if has_news {
            self.note_news();
        }
        if awaited_rank.is_some()
            && let Some(error) = self.end_other_vigil(engine, awaited_rank)
        {
            return Err(error.into());
        }
        Ok(awaited_rank.is_none())
    }

    fn note_news(&mut self) {
        self.on_board.as_mut().expect("the operation uses the board").has_news = true;
    }

    /// Wakes the ranks that sleep and wait for an event at this rank, if there was one since the latest call.
    #[inline]
    pub(super) fn wake_sleepers<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let Some(on_board) = &mut self.on_board else { return };
        if std::mem::take(&mut on_board.has_news) {
            wake_sleepers(engine, self.context, &self.group);
        }
    }

    /// Abandons the receive of a notice, unless it is from `partner`. Returns the error of the notice if one has
    /// arrived: this rank may need a later part of the rank that has given up, which sends one notice only.
    pub(super) fn end_other_vigil<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        partner: Option<u32>,
    ) -> Option<Error> {
        let keeps = partner.map(|partner| self.world_rank(partner));
        let vigil = &mut self.on_board.as_mut()?.vigil;
        let Vigil { request, partner } = vigil.take_if(|vigil| Some(vigil.partner) != keeps)?;
        if engine.outcome(request) != Outcome::Pending {
            return Notice::collect(engine, request, partner, &self.group);
        }
        engine.forget(request);
        None
    }

    /// Returns the error with which a wait at the board ends; `None` while it lasts. Call it after an attempt to take
    /// the step: a rank that has left may have published before.
    pub(super) fn end_of_vigil<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) -> Option<Error> {
        let OnBoard { operation, vigil, .. } = self.on_board.as_mut()?;
        let Vigil { request, partner } =
            vigil.take_if(|vigil| engine.outcome(vigil.request) != Outcome::Pending)?;
        let is_first = board_of(engine, self.context).is_first(*operation);
        let error = Notice::end(engine, request, partner, &self.group);
        // An operation behind another one does not wait for this partner. The next vigil is for another rank.
        error.filter(|error| is_first || !matches!(error, Error::PeerFailed { cause: Cause::Left, .. }))
    }

    /// Gives up if a notice has arrived. Otherwise posts a receive for a notice of the rank for which this rank waits.
    pub(super) fn keep_vigil<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let (context, tag, deadline) = (self.context, self.tag(Notice::ROUND), self.deadline);
        if let Some((request, partner)) = Notice::claim_any(engine, context, tag, deadline) {
            return self.await_claimed(engine, request, partner);
        }
        let Some(OnBoard { operation, vigil: None, has_news }) = self.on_board else { return };
        let board = board_of(engine, context);
        let awaited = board.awaited().filter(|_| board.is_first(operation));
        let awaited = awaited.map(|awaited| board.rank_of(awaited.member));
        // An operation that waits for an earlier one of this rank needs the deadline. It does not wait for a rank that has
        // left. If all other ranks have left, the earlier one ends soon.
        let others = if awaited.is_none() { 1..self.at.size() } else { 0..0 };
        let others = others.map(|distance| self.at.up(distance));
        for rank in awaited.into_iter().chain(others) {
            let partner = self.world_rank(rank);
            match Notice::post(engine, context, partner, tag, deadline) {
                Ok(request) => {
                    let vigil = Some(Vigil { request, partner });
                    self.on_board = Some(OnBoard { operation, vigil, has_news });
                    return;
                }
                Err(Error::PeerFailed { cause: Cause::Left, .. }) if awaited.is_none() => {}
                Err(error) => return self.fail(engine, error.into()),
            }
        }
    }

    /// Returns true if this rank waits at the board, and [`attend`](Self::attend) must be called before it sleeps.
    #[inline]
    pub fn needs_vigil(&self) -> bool {
        self.awaited.is_none() && self.at_board().is_some_and(|on_board| on_board.vigil.is_none())
    }

    /// Ends the use of the board by this operation.
    pub(super) fn leave_board<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let Some(OnBoard { operation, .. }) = self.on_board else { return };
        // The reason for a notice does not matter any more.
        let _ = self.end_other_vigil(engine, None);
        let board = board_of(engine, self.context);
        if board.is_first(operation) {
            board.set_awaited(None);
        }
        board.end(operation);
        self.leaves_messages = board.take_slept();
        self.note_news();
        self.wake_sleepers(engine);
        self.on_board = None;
    }

    /// Returns true if another rank may have sent a message that no operation receives. Call it after the end.
    pub fn leaves_messages(&self) -> bool {
        self.leaves_messages
    }
}
