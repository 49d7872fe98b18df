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
use samite_p2p::{Engine, Error, Fate, Group, HasTagged, Outcome, RequestId, WorldRank};

use super::notice::Notice;
use super::{Buffers, Collective, Failed, NUMBERS, Series};
use crate::schedule::{Span, Step};

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
        Self { operation: board(engine, context).begin(number), vigil: None, has_news: false }
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
    board(engine, context).ranks().filter_map(|rank| group.rank(rank)).collect()
}

/// Returns the board of a communicator.
fn board<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, context: u32) -> &mut Board {
    engine.boards_mut().get_mut(context).expect("an algorithm on the board is chosen if there is one")
}

impl<B: Buffers> Collective<B> {
    /// Returns the state of an operation on the board whose next step is on the board.
    pub(super) fn at_board(&self) -> Option<OnBoard> {
        self.on_board.filter(|_| matches!(self.blocked, Some(Step::Publish { .. } | Step::Fetch { .. })))
    }

    /// Takes a step on the board. Returns false if this rank must wait first.
    pub(super) fn take_on_board<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        step: Step,
    ) -> Result<bool, Failed> {
        let OnBoard { operation, .. } = self.on_board.expect("the operation uses the board");
        let (context, cookie) = (self.context, self.number);
        let board = board(engine, context);
        if !board.is_first(operation) {
            return Ok(false);
        }
        let (Step::Publish { piece, .. } | Step::Fetch { piece, .. }) = step else {
            unreachable!("the step is on the board")
        };
        let tick = Tick::new(operation, piece);
        let mut has_news = board.advance(tick);
        let awaited = match step {
            Step::Publish { from, .. } => {
                let published = board.publish(tick, self.read_slice(from));
                has_news |= published.is_ok();
                published.err()
            }
            Step::Fetch { from, whole, start, into, .. } => {
                self.fetch(board, from, tick, [whole, start], into)?
            }
            _ => None,
        };
        board.set_awaited(awaited.map(|(member, event)| Awaited { member, event, cookie }));
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

    /// Fetches published data. Returns the event for which this rank must wait first.
    fn fetch(
        &mut self,
        board: &Board,
        from: u32,
        tick: Tick,
        [whole, start]: [usize; 2],
        into: Span,
    ) -> Result<Option<(usize, Event)>, Error> {
        let (rank, element) = (self.world_rank(from), self.element);
        let [whole, start] = [whole, start].map(|elements| elements * element);
        // In a barrier no byte is fetched, and there is no buffer.
        let slices = self.buffers.slices_mut().0;
        let into = if into.len == 0 { &mut [] } else { slices.get_mut(into, element) };
        let member = board.member(from);
        match board.fetch(member, tick, whole, start, into) {
            Fetched::Done => Ok(None),
            Fetched::NotYet => Ok(Some((member, Event::Published(tick)))),
            Fetched::Length(theirs) => Err(Error::LengthsDiffer { rank, ours: whole, theirs }),
            Fetched::Skipped => Err(Error::Abandoned { rank, fate: Fate::Unknown }),
        }
    }

    fn note_news(&mut self) {
        self.on_board.as_mut().expect("the operation uses the board").has_news = true;
    }

    /// Wakes the ranks that sleep and wait for an event at this rank, if there was one since the latest call.
    #[inline]
    pub(super) fn wake_sleepers<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let Some(on_board) = &mut self.on_board else { return };
        if !std::mem::take(&mut on_board.has_news) {
            return;
        }
        let context = self.context;
        loop {
            let board = board(engine, context);
            let Some((member, number)) = board.next_sleeper() else { return };
            let Some(partner) = self.group.rank(board.rank_of(member)) else { continue };
            let tag = Series::Program.tag() | u64::from(number & NUMBERS) << 32 | u64::from(Notice::WAKE);
            // A partner that has ended does not sleep.
            let _ = engine.send_detached(engine.now(), partner, context, tag, Memory::new(Vec::<u8>::new()));
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
        let vigil = &mut self.on_board.as_mut()?.vigil;
        let Vigil { request, partner } =
            vigil.take_if(|vigil| engine.outcome(vigil.request) != Outcome::Pending)?;
        Notice::end(engine, request, partner, &self.group)
    }

    /// Gives up if a notice has arrived. Otherwise posts a receive for a notice of the rank for which this rank waits.
    pub(super) fn keep_vigil<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let (context, tag, deadline) = (self.context, self.tag(Notice::ROUND), self.deadline);
        if let Some((request, partner)) = Notice::claim_any(engine, context, tag, deadline) {
            return self.await_claimed(engine, request, partner);
        }
        let Some(OnBoard { operation, vigil: None, has_news }) = self.on_board else { return };
        let board = board(engine, context);
        // An operation that waits for an earlier one of this rank needs the deadline.
        let awaited = board
            .awaited()
            .filter(|_| board.is_first(operation))
            .map(|awaited| board.rank_of(awaited.member));
        let partner = self.world_rank(awaited.unwrap_or_else(|| self.at.up(1)));
        match Notice::post(engine, context, partner, tag, deadline) {
            Ok(request) => {
                self.on_board =
                    Some(OnBoard { operation, vigil: Some(Vigil { request, partner }), has_news });
            }
            Err(error) => self.fail(engine, error.into()),
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
        let board = board(engine, self.context);
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
