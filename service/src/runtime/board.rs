//! The creation of a communicator's boards.
//!
//! The members of a communicator agree that they share a board in two operations with messages. In the first each
//! member sends the address of its slot to all, or says that it has none. Then each member maps the slots of the
//! others. In the second the members find out if all have succeeded. If one has not, none uses the board.
//!
//! An address also says on which host its member is. If the members are on several hosts, the members of each host
//! share a board, and the collective operations have two levels. A member that is alone on its host needs no board, and
//! neither do more members than a board can have; they send messages. If each member is alone, there is one level.
//!
//! A member begins this in its first blocking collective call in which it needs data of all members. So no member waits
//! for another that it would not have waited for anyway. The two operations have numbers of their own. So a member
//! counts the operations of the program alike if its first such call is another one than that of the other members.
//!
//! The call may end early, by a time-out or a cancel. Then the creation goes on without the call, and this member
//! says in the second operation that it shares no board, if that has not begun. So all members come to the same result.
//! If the second operation has begun, other members may know the result, and use the board in their next operations. So
//! this member waits for the result at the start of its next operation. If that operation fails, every later call of
//! this member fails with the same error.
//!
//! A member that fails in the first operation gives up the second one too, because the other members may have begun it. A
//! member that drops the communicator gives up both. Its last call has ended early, so the other members cannot complete
//! theirs.
//!
//! A nonblocking operation that another thread starts during the creation ends it in the same way, because the start
//! must not wait for calls of the other members. It uses messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use samite_coll::algorithms::hosts::Hosts;
use samite_coll::algorithms::{allgather, allreduce};
use samite_coll::{Blocks, Call, Collective, Failed, OwnedBuffers, Place, Plan, RollCall, Series};
use samite_fabric::shm::board::{self, ADDRESS_BYTES, Board, RANKS_MAX, Slot};
use samite_fabric::{Memory, Port};
use samite_p2p::{Awaited, Error, Fate, Group, Operation, Outcome, Pattern, Report, Source, Time, WorldRank};

use super::background::CallKind;
use super::collective::{Counter, Reserved, cancelled, no_reduction};
use super::state::Core;
use super::waiting::deadline_after;
use super::{Bounds, Runtime, error_of};
use crate::cancel::CancelToken;
use crate::comm::Derived;
use crate::error::{Error as PublicError, Public};
use crate::stack::Engine;

/// The knowledge of a member about the board of its communicator.
#[derive(Debug, Default)]
pub(crate) struct State(AtomicU8);

impl State {
    const UNKNOWN: u8 = 0;
    /// The creation has begun, and its result is not known.
    const AWAITED: u8 = 1;
    const NONE: u8 = 2;
    const SHARED: u8 = 3;
    /// The members are on several hosts: see [`Counter::hosts`].
    const ON_HOSTS: u8 = 4;

    /// Returns true if the members share a board.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::SHARED
    }

    /// Returns true if the operations have two levels.
    #[inline]
    pub(super) fn has_hosts(&self) -> bool {
        // After this load, a thread without the lock finds the hosts.
        self.0.load(Ordering::Acquire) == Self::ON_HOSTS
    }

    /// Returns true if the next operation must wait for the creation of the board. If it `synchronizes`, it begins the
    /// creation if there was none.
    #[inline]
    fn is_awaited(&self, synchronizes: bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => synchronizes,
            state => state == Self::AWAITED,
        }
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
    }
}

/// The creation of a board, which is under way.
pub(super) struct Creation {
    stage: Stage,
    group: Group,
    rank: WorldRank,
    /// True if the call that has begun the creation has ended.
    is_alone: bool,
}

enum Stage {
    /// The members exchange the addresses of their slots.
    Exchanging(Option<Slot>),
    /// The members find out if all have mapped all slots.
    Agreeing(Option<Sharing>),
}

/// The boards that members with these slots can have.
struct Sharing {
    /// The board of this member's host; `None` if it needs none.
    board: Option<Board>,
    /// The hosts of the members, if they are on several.
    hosts: Option<Arc<Hosts>>,
}

/// The result of a creation.
pub(super) enum Created {
    /// A board of all members, or a board on each of several hosts.
    Shared(Option<Arc<Hosts>>),
    None,
    Failed(Error),
}

/// The next step of a creation whose operation has ended.
pub(super) enum Next {
    Operation(Box<Collective<OwnedBuffers>>),
    End(Created),
}

impl Creation {
    /// Begins the creation.
    fn begin<P: Port>(
        engine: &mut Engine<P>,
        now: Time,
        group: Group,
        rank: WorldRank,
        context: u32,
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
        let creation = Self { stage: Stage::Exchanging(slot), group, rank, is_alone: false };
        let call = creation.call(&plan, context, 0, ADDRESS_BYTES);
        let exchange = Collective::begin(engine, now, call, rank, buffers);
        (creation, exchange)
    }

    /// Returns the arguments of an operation of the creation.
    fn call<'a>(&self, plan: &'a Plan, context: u32, number: u32, element: usize) -> Call<'a> {
        let (group, series, deadline) = (self.group.clone(), Series::Board, Time::NEVER);
        Call { plan, group, context, series, number, element, deadline, check: None, checked_ends: None }
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
                let sharing = slot.filter(|_| !self.is_alone).and_then(|slot| self.open(slot, output));
                let operation = self.agree(engine, context, sharing.is_some());
                self.stage = Stage::Agreeing(sharing);
                Next::Operation(Box::new(operation))
            }
            (Stage::Agreeing(Some(Sharing { board, hosts })), Ok(())) if output.as_bytes() == [1] => {
                engine.boards_mut().release();
                if let Some(mut board) = board {
                    board.complete();
                    engine.boards_mut().insert(context, board);
                }
                Next::End(Created::Shared(hosts))
            }
            (Stage::Agreeing(_), Ok(())) => {
                engine.boards_mut().release();
                Next::End(Created::None)
            }
            // No member can have a board, because this one has not agreed. The operation of the program finds the
            // reason.
            (Stage::Exchanging(_), Err(_)) => {
                engine.boards_mut().release();
                self.refuse(engine, context);
                Next::End(Created::None)
            }
            (Stage::Agreeing(_), Err(failed)) => {
                engine.boards_mut().release();
                Next::End(Created::Failed(match failed {
                    Failed::Error(error) => error,
                    Failed::Panicked(_) => unreachable!("the reduction does not panic"),
                }))
            }
        }
    }

    /// Maps the slots of this member's host. All members make the same choice between one level and two, because it
    /// depends on the addresses alone.
    fn open(&self, slot: Slot, addresses: &Memory) -> Option<Sharing> {
        let rank = self.group.index(self.rank).expect("this rank is a member");
        let (addresses, _) = addresses.as_bytes().as_chunks::<ADDRESS_BYTES>();
        let hosts = Hosts::new(board::hosts(addresses)?);
        let ranks = hosts.beside(rank);
        if hosts.count() == self.group.len() {
            return None;
        }
        let can_share = ranks.len() <= RANKS_MAX as usize;
        if hosts.count() == 1 {
            let board = can_share.then(|| Board::open(slot, rank as usize, addresses).ok()).flatten()?;
            return Some(Sharing { board: Some(board), hosts: None });
        }
        let board = match can_share && ranks.len() > 1 {
            true => Some(Board::open_some(slot, rank, ranks, addresses).ok()?),
            false => None,
        };
        Some(Sharing { board, hosts: Some(Arc::new(hosts)) })
    }

    /// Begins the second operation.
    fn agree<P: Port>(
        &self,
        engine: &mut Engine<P>,
        context: u32,
        is_open: bool,
    ) -> Collective<OwnedBuffers> {
        let (plan, buffers) = Self::agreement(is_open);
        Collective::begin(engine, engine.now(), self.call(&plan, context, 1, 1), self.rank, buffers)
    }

    /// Gives up the second operation before it begins.
    fn refuse<P: Port>(&self, engine: &mut Engine<P>, context: u32) {
        let ((plan, buffers), error) = (Self::agreement(false), cancelled());
        Collective::give_up(engine, engine.now(), self.call(&plan, context, 1, 1), self.rank, buffers, error);
    }

    /// Returns the second operation: the minimum of a byte that is 1 if the member has mapped all slots of its host.
    fn agreement(is_open: bool) -> (Plan, OwnedBuffers) {
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
        (plan, buffers)
    }

    /// Continues without the call that waits for the creation. Returns true if there will be no board, because this
    /// member has not agreed yet, and will not.
    pub(super) fn leave_alone(&mut self) -> bool {
        self.is_alone = true;
        matches!(self.stage, Stage::Exchanging(_) | Stage::Agreeing(None))
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

    /// Returns true if the members of a communicator share a board, or those of each host.
    #[inline]
    pub(crate) fn has_board(&self, derived: Option<&Derived>) -> bool {
        let board = &self.counter(derived).board;
        board.is_shared() || board.has_hosts()
    }

    /// Returns the hosts of the members of a communicator if its operations have two levels.
    #[inline]
    pub(crate) fn hosts<'a>(&'a self, derived: Option<&'a Derived>) -> Option<&'a Arc<Hosts>> {
        let counter = self.counter(derived);
        if counter.board.has_hosts() { counter.hosts.get() } else { None }
    }

    /// Returns true if an operation of a communicator must call [`settle_board`](Self::settle_board) first.
    /// `synchronizes` is true if each member needs data of all others in the operation, and waits for it.
    #[inline]
    pub(crate) fn must_settle_board(&self, derived: Option<&Derived>, size: u32, synchronizes: bool) -> bool {
        self.counter(derived).board.is_awaited(synchronizes)
            && self.has_boards
            && (2..=MEMBERS_MAX).contains(&size)
    }

    /// Returns true if the creation of a communicator's board has begun, and its result is not known here.
    pub(crate) fn awaits_board(&self, derived: Option<&Derived>) -> bool {
        self.counter(derived).board.is_awaited(false)
    }

    /// Waits until the creation of a communicator's board has ended, and begins it before if there was none. With
    /// `reserved`, the wait is the start of the operation with that number, and at its deadline the other members are
    /// asked. Returns an error if the bounds end the wait or the creation has failed. Then the caller must end its
    /// operation at all members, with this error.
    #[cold]
    pub(crate) fn settle_board(
        &self,
        derived: Option<&Derived>,
        group: &Group,
        context: u32,
        reserved: Option<&Reserved<'_, P>>,
        bounds: &Bounds,
    ) -> Result<(), PublicError> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let counter = self.counter(derived);
        let begun = self.clock.now();
        core.now = begun;
        if counter.board.0.load(Ordering::Relaxed) == State::UNKNOWN {
            counter.board.set(State::AWAITED);
            core.begin_board(group, self.rank, context);
            self.hand_over(&mut core, CallKind::Waiting);
        }
        let deadline = deadline_after(begun, bounds.timeout.unwrap_or(Duration::MAX));
        let number = reserved.map(Reserved::number);
        let mut wait =
            Settling { counter, group, rank: self.rank, context, number, begun, deadline, roll: None };
        let end = self.drive_until(core, bounds.cancel.as_ref(), |core, now, stepped| {
            match wait.turn(core, now, stepped, bounds.cancel.as_ref()).transpose() {
                Some(end) => std::ops::ControlFlow::Break(end),
                // While the members are asked, the engine's timer ends the wait.
                None if wait.roll.is_some() => std::ops::ControlFlow::Continue(Time::NEVER),
                None => std::ops::ControlFlow::Continue(deadline),
            }
        });
        let end = end.map_err(|refused| error_of(refused, crate::Fate::Unknown))?;
        end.map_err(|error| self.explain(error, bounds))
    }

    /// Gives up the creation of a communicator's board, unless this member has agreed to it already. If there was none,
    /// begins it first, because the other members may wait for this member's part.
    #[cold]
    pub(crate) fn decline_board(&self, derived: Option<&Derived>, group: &Group, context: u32) {
        let (Ok(mut core), counter) = (self.lock(), self.counter(derived)) else { return };
        match counter.board.0.load(Ordering::Relaxed) {
            State::UNKNOWN => core.begin_board(group, self.rank, context),
            State::AWAITED => {}
            _ => return,
        }
        let is_declined = core.collectives.leave_board_alone(context);
        counter.board.set(if is_declined { State::NONE } else { State::AWAITED });
        self.hand_over(&mut core, CallKind::Waiting);
    }
}

/// The largest number of members that find out their hosts. During the creation each member has the addresses of all
/// slots twice: 128 KiB.
const MEMBERS_MAX: u32 = 1024;

/// The wait of a call for the creation of a board.
struct Settling<'a> {
    counter: &'a Counter,
    group: &'a Group,
    rank: WorldRank,
    context: u32,
    /// The number of the call's operation, if it has one.
    number: Option<u32>,
    begun: Time,
    deadline: Time,
    /// The error at the deadline, and the question to the members.
    roll: Option<(Report, RollCall)>,
}

impl Settling<'_> {
    /// Returns the result of the wait if it ends now.
    fn turn<P: Port>(
        &mut self,
        core: &mut Core<P>,
        now: Time,
        stepped: Result<usize, Box<Error>>,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<()>, PublicError> {
        core.sought = None;
        stepped.map_err(|error| error.public())?;
        let end = self.end(core, now, cancel);
        if end.is_some() {
            if let Some((_, roll)) = self.roll.take() {
                roll.end(&mut core.engine);
            }
            return end.transpose();
        }
        let tag = samite_p2p::COLLECTIVE_TAG;
        let pattern = Pattern { context: self.context, source: Source::ANY, tag, mask: tag };
        core.sought = Some(core.report_of(&pattern, self.begun, now, Awaited::Match));
        Ok(None)
    }

    fn end<P: Port>(
        &mut self,
        core: &mut Core<P>,
        now: Time,
        cancel: Option<&CancelToken>,
    ) -> Option<Result<(), PublicError>> {
        match core.collectives.board_created(self.context) {
            Some(Created::Shared(None)) => self.counter.board.set(State::SHARED),
            Some(Created::Shared(Some(hosts))) => {
                // A communicator's boards are created once.
                let _ = self.counter.hosts.set(hosts);
                self.counter.board.set(State::ON_HOSTS);
            }
            Some(Created::None) => self.counter.board.set(State::NONE),
            Some(Created::Failed(error)) => return Some(Err(error.public())),
            None => {}
        }
        // Another thread may have taken the result.
        if !self.counter.board.is_awaited(false) {
            return Some(Ok(()));
        }
        let error = if cancel.is_some_and(CancelToken::is_cancelled) {
            PublicError::Cancelled { fate: crate::Fate::Unknown }
        } else {
            PublicError::TimedOut { fate: crate::Fate::Unknown, report: self.late(core, now)? }
        };
        if core.collectives.leave_board_alone(self.context) {
            self.counter.board.set(State::NONE);
        }
        Some(Err(error))
    }

    /// Asks the other members at the deadline. Returns the report once they have answered.
    fn late<P: Port>(&mut self, core: &mut Core<P>, now: Time) -> Option<Box<crate::Report>> {
        if now < self.deadline {
            return None;
        }
        if self.roll.is_none() {
            let tag = samite_p2p::COLLECTIVE_TAG;
            let pattern = Pattern { context: self.context, source: Source::ANY, tag, mask: tag };
            let report = core.report_of(&pattern, self.begun, now, Awaited::Match);
            let report = Report { operation: Operation::Collective, ..report };
            let Some(number) = self.number else { return Some(Box::new(report.public())) };
            let (of, first) = ((self.context, number), std::iter::empty());
            core.engine.set_now(now);
            let roll = RollCall::begin(&mut core.engine, of, self.group, self.rank, self.begun, first);
            self.roll = Some((report, roll));
        }
        let is_over = |(_, roll): &mut (_, RollCall)| core.engine.outcome(roll.request()) != Outcome::Pending;
        let (report, roll) = self.roll.take_if(is_over)?;
        let members = Some(Box::new(roll.end(&mut core.engine)));
        Some(Box::new(Report { members, ..report }.public()))
    }
}

impl<P: Port> Core<P> {
    fn begin_board(&mut self, group: &Group, rank: WorldRank, context: u32) {
        let Self { engine, collectives, now, .. } = self;
        let request = engine.begin_composite(*now, context);
        let (creation, collective) = Creation::begin(engine, *now, group.clone(), rank, context);
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
