//! The creation of a communicator's board.
//!
//! The members of a communicator agree that they share a board in two operations with messages. In the first each
//! member sends the address of its slot to all, or says that it has none. Then each member maps the slots of the
//! others. In the second the members find out if all have succeeded. If one has not, none uses the board.
//!
//! A member begins this in its first blocking collective call in which it needs data of all members. So no member
//! waits for another that it would not have waited for anyway, and all members begin it at the same place in the order
//! of their calls.
//!
//! The call may end early, by a time-out or a cancel. Then the creation goes on without the call, and this member
//! says in the second operation that it shares no board, if that has not begun. So all members come to the same result,
//! and none of them waits for this member's next call. If a member fails or leaves before its part is done, the
//! creation fails, and every later call of this member fails with the same error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use samite_coll::algorithms::{allgather, allreduce};
use samite_coll::{Blocks, Call, Collective, Failed, OwnedBuffers, Place, Plan};
use samite_fabric::shm::board::{ADDRESS_BYTES, Board, RANKS_MAX, Slot};
use samite_fabric::{Memory, Port};
use samite_p2p::{Awaited, Engine, Error, Fate, Group, Pattern, Source, Time, WorldRank};

use super::collective::{Counter, no_reduction};
use super::state::Core;
use super::waiting::deadline_after;
use super::{Bounds, Runtime, error_of};
use crate::cancel::CancelToken;
use crate::comm::Derived;
use crate::error::{Error as PublicError, Public};

/// The knowledge of a member about the board of its communicator.
#[derive(Debug, Default)]
pub(crate) struct State(AtomicU8);

impl State {
    const UNKNOWN: u8 = 0;
    const NONE: u8 = 1;
    const SHARED: u8 = 2;

    /// Returns true if the members share a board.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::SHARED
    }

    #[inline]
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::UNKNOWN
    }
}

/// The creation of a board, which is under way.
pub(super) struct Creation {
    stage: Stage,
    group: Group,
    rank: WorldRank,
    /// The number of the second operation.
    second: u32,
    /// True if the call that has begun the creation has ended.
    is_alone: bool,
}

enum Stage {
    /// The members exchange the addresses of their slots.
    Exchanging(Option<Slot>),
    /// The members find out if all have mapped all slots.
    Agreeing(Option<Board>),
}

/// The result of a creation.
pub(super) enum Created {
    Shared,
    None,
    Failed(Error),
}

/// The next step of a creation whose operation has ended.
pub(super) enum Next {
    Operation(Box<Collective<OwnedBuffers>>),
    End(Created),
}

impl Creation {
    /// Begins the creation. `number` is the number of the first of its two operations.
    fn begin<P: Port>(
        engine: &mut Engine<P>,
        now: Time,
        group: Group,
        rank: WorldRank,
        context: u32,
        number: u32,
    ) -> (Self, Collective<OwnedBuffers>) {
        let slot = match engine.boards_mut().reserve() {
            true => engine.port_mut().open_slot().ok(),
            false => None,
        };
        if slot.is_none() {
            engine.boards_mut().refuse();
        }
        let address = slot.as_ref().map_or([0; ADDRESS_BYTES], Slot::address);
        let algorithm = allgather::Algorithm::Bruck;
        let plan = Plan::Allgather { algorithm, blocks: Blocks::Equal(1), in_place: false };
        let at = Place::new(group.index(rank).expect("this rank is a member"), group.len());
        let buffers = OwnedBuffers {
            input: Memory::new(address.to_vec()),
            output: Memory::zeroed(group.len() as usize * ADDRESS_BYTES),
            scratch: Memory::zeroed(plan.scratch(at) * ADDRESS_BYTES),
            lens: [ADDRESS_BYTES, group.len() as usize * ADDRESS_BYTES],
            reduce: no_reduction(),
            layouts: None,
        };
        let (element, deadline) = (ADDRESS_BYTES, Time::NEVER);
        let call = Call { plan, group: group.clone(), context, number, element, deadline, check: None };
        let second = number.wrapping_add(1);
        let creation = Self { stage: Stage::Exchanging(slot), group, rank, second, is_alone: false };
        (creation, Collective::begin(engine, now, call, rank, buffers))
    }

    /// Continues after the end of an operation.
    pub(super) fn next<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        context: u32,
        result: Result<(), Failed>,
        output: &Memory,
    ) -> Next {
        let stage = std::mem::replace(&mut self.stage, Stage::Exchanging(None));
        match (stage, result) {
            (Stage::Exchanging(slot), Ok(())) => {
                let board = slot.filter(|_| !self.is_alone).and_then(|slot| self.open(slot, output));
                let operation = self.agree(engine, context, board.is_some());
                self.stage = Stage::Agreeing(board);
                Next::Operation(Box::new(operation))
            }
            (Stage::Agreeing(Some(mut board)), Ok(())) if output.as_bytes() == [1] => {
                board.complete();
                engine.boards_mut().release();
                engine.boards_mut().insert(context, board);
                Next::End(Created::Shared)
            }
            (Stage::Agreeing(_), Ok(())) => {
                engine.boards_mut().release();
                Next::End(Created::None)
            }
            (_, Err(failed)) => {
                engine.boards_mut().release();
                Next::End(Created::Failed(match failed {
                    Failed::Error(error) => error,
                    Failed::Panicked(_) => unreachable!("the reduction does not panic"),
                }))
            }
        }
    }

    /// Maps the slots whose addresses have arrived.
    fn open(&self, slot: Slot, addresses: &Memory) -> Option<Board> {
        let index = self.group.index(self.rank).expect("this rank is a member") as usize;
        let (addresses, _) = addresses.as_bytes().as_chunks::<ADDRESS_BYTES>();
        Board::open(slot, index, addresses).ok()
    }

    /// Begins the second operation: the minimum of a byte that is 1 if the member has mapped all slots.
    fn agree<P: Port>(
        &self,
        engine: &mut Engine<P>,
        context: u32,
        is_open: bool,
    ) -> Collective<OwnedBuffers> {
        let algorithm = allreduce::Algorithm::RecursiveDoubling;
        let plan = Plan::Allreduce { algorithm, len: 1, commutes: true, in_place: true };
        let buffers = OwnedBuffers {
            input: Memory::new(Vec::<u8>::new()),
            output: Memory::new(vec![u8::from(is_open)]),
            scratch: Memory::zeroed(1),
            lens: [0, 1],
            reduce: Arc::new(|from: &[u8], into: &mut [u8]| into[0] = into[0].min(from[0])),
            layouts: None,
        };
        let (group, number) = (self.group.clone(), self.second);
        let call = Call { plan, group, context, number, element: 1, deadline: Time::NEVER, check: None };
        Collective::begin(engine, engine.now(), call, self.rank, buffers)
    }

    /// Continues without the call that has begun the creation.
    pub(super) fn leave_alone(&mut self) {
        self.is_alone = true;
    }
}

impl<P: Port> Runtime<P> {
    /// Returns the counter of the collective operations of a communicator.
    pub(super) fn counter<'a>(&'a self, derived: Option<&'a Derived>) -> &'a Counter {
        derived.map_or(&self.counter, |derived| derived.counter(self.lane))
    }

    /// Returns true if the members of a communicator share a board.
    #[inline]
    pub(crate) fn shares_board(&self, derived: Option<&Derived>) -> bool {
        self.counter(derived).board.is_shared()
    }

    /// Creates the board of a communicator, unless that was tried before. Returns an error if the bounds end the wait
    /// or the creation has failed. Then the caller must end its operation at all members, with this error.
    #[inline]
    pub(crate) fn settle_board(
        &self,
        derived: Option<&Derived>,
        group: &Group,
        context: u32,
        bounds: &Bounds,
    ) -> Result<(), PublicError> {
        // In the checking mode all members compare their calls, also if only some of them would create a board.
        let can_share = self.has_boards && !self.checks.collectives && (2..=RANKS_MAX).contains(&group.len());
        match !can_share || self.counter(derived).board.is_known() {
            true => Ok(()),
            false => self.create_board(self.counter(derived), group, context, bounds),
        }
    }

    #[cold]
    fn create_board(
        &self,
        counter: &Counter,
        group: &Group,
        context: u32,
        bounds: &Bounds,
    ) -> Result<(), PublicError> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let begun = self.clock.now();
        core.now = begun;
        if !core.collectives.creates_board(context) {
            core.begin_board(counter, group, self.rank, context);
            self.hand_over(&mut core);
        }
        let deadline = deadline_after(begun, bounds.timeout.unwrap_or(Duration::MAX));
        let tag = samite_p2p::COLLECTIVE_TAG;
        let pattern = Pattern { context, source: Source::ANY, tag, mask: tag };
        let is_cancelled = || bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let turn = |core: &mut Core<P>, now: Time, stepped: Result<usize, Box<Error>>| {
            core.sought = None;
            stepped.map_err(|error| error.public())?;
            if let Some(created) = core.collectives.board_created(context) {
                return match created {
                    Created::Shared => Ok(Some(State::SHARED)),
                    Created::None => Ok(Some(State::NONE)),
                    Created::Failed(error) => Err(error.public()),
                };
            }
            let report = core.report_of(&pattern, begun, now, Awaited::Match);
            let ended = match () {
                () if now >= deadline => {
                    let report = Box::new(report.public());
                    Some(PublicError::TimedOut { fate: crate::Fate::Unknown, report })
                }
                () if is_cancelled() => Some(PublicError::Cancelled { fate: crate::Fate::Unknown }),
                () => None,
            };
            if let Some(error) = ended {
                core.collectives.leave_board_alone(context);
                return Err(error);
            }
            core.sought = Some(report);
            Ok(None)
        };
        let end = self.drive_until(core, bounds.cancel.as_ref(), |core, now, stepped| {
            match turn(core, now, stepped).transpose() {
                Some(end) => std::ops::ControlFlow::Break(end),
                None => std::ops::ControlFlow::Continue(deadline),
            }
        });
        match end.map_err(|refused| error_of(refused, crate::Fate::Unknown))? {
            Ok(state) => {
                counter.board.0.store(state, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(self.explain(error, bounds)),
        }
    }
}

impl<P: Port> Core<P> {
    fn begin_board(&mut self, counter: &Counter, group: &Group, rank: WorldRank, context: u32) {
        let number = counter.take_numbers(2);
        let Self { engine, collectives, now, .. } = self;
        let request = engine.begin_composite(*now, context);
        let (creation, collective) = Creation::begin(engine, *now, group.clone(), rank, context, number);
        collectives.add_creation(engine, collective, request, creation);
    }
}

/// Returns an error of a creation for one more call.
pub(super) fn again(error: &Error) -> Error {
    match error {
        Error::PeerFailed { rank, cause, .. } => {
            Error::PeerFailed { rank: *rank, cause: cause.clone(), fate: Fate::Unknown, report: None }
        }
        Error::Abandoned { rank, .. } => Error::Abandoned { rank: *rank, fate: Fate::Unknown },
        Error::Revoked => Error::Revoked,
        _ => Error::Cancelled { fate: Fate::Unknown },
    }
}
