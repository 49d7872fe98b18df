//! The execution of a schedule at one rank.
//!
//! Like the engine, a [`Collective`] is a state machine. Its user polls the engine, passes the `Collective` to each
//! poll as the lender of its buffers ([`Lent`]), and then calls [`Collective::advance`]. Its messages are tagged
//! messages in the communicator's control context, which no receive of the program uses.
//!
//! # Failures
//! A collective ends with the first error of one of its messages. Other ranks may wait for messages that this rank will
//! not send any more. If they exchange no message with the rank that caused the error, they do not notice the error
//! themselves. So a rank that gives up sends a *notice* to its partners in the messages that it has not waited for and
//! in the steps that it does not take, and each partner that has not finished gives up as well. If a member has failed,
//! all members learn that from the launcher, and give up at once. A member that has left in good order may have
//! finished before, so its end is no reason to give up. A partner that still needs a message from this member gets the
//! error of that message.
//!
//! At the deadline the rank asks the other members if they have begun the operation ([`Engine::call_roll`]), and its
//! error contains the answers. It waits for them for a tenth of the time that the operation has taken, but at least 10 ms
//! and at most 1 s.

mod board;
mod buffers;
mod check;
mod notice;
mod roll;

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use samite_fabric::layout::{Readable, Writable};
use samite_fabric::{Port, copy_bytes};
use samite_p2p::{
    COLLECTIVE_TAG, Cause, Engine, Error, Fate, Group, HasTagged, Lent, Operation, Outcome, Pattern,
    Received, RequestId, Sent, Source, Status, Time, WorldRank,
};

pub use self::board::Begun;
use self::board::{OnBoard, readers};
pub use self::buffers::{BorrowedBuffers, Buffers, Layouts, OwnedBuffers, ReduceBytes, Reduction, Slices};
pub use self::check::Check;
use self::notice::Notice;
use self::roll::Roll;
pub use self::roll::RollCall;
use crate::schedule::{Buffer, Place, Plan, Span, Step, Steps};

/// The arguments with which a rank begins a collective operation.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The operation.
    pub plan: &'a Plan,
    /// The ranks that take part. All of them are members of the context.
    pub group: Group,
    /// The control context of the communicator.
    pub context: u32,
    /// The series in which `number` counts.
    pub series: Series,
    /// The number of the operation: all ranks count the operations of the series on the communicator, from 0.
    pub number: u32,
    /// The size of an element in bytes.
    pub element: usize,
    /// The time at which the operation fails if it has not ended.
    pub deadline: Time,
    /// A check that precedes the operation.
    pub check: Option<Check>,
    /// The value of [`Collective::checked_ends`] of an earlier operation of the communicator, if it has one. While
    /// [`Engine::ends`] returns this number, no member can have failed since, and the operation begins without a look
    /// at all members.
    pub checked_ends: Option<u64>,
}

/// A sequence of operations of a communicator, which is numbered apart from the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// The operations of the program.
    Program,
    /// The operations in which the members create the communicator's board. The members may begin them in different
    /// operations of the program, if their calls do not match.
    Board,
}

impl Series {
    /// The bit of a tag in which the series differ.
    const BIT: u64 = 1 << 60;

    /// Returns the bits in the tags of the messages of this series.
    fn tag(self) -> u64 {
        match self {
            Self::Program => COLLECTIVE_TAG,
            Self::Board => COLLECTIVE_TAG | Self::BIT,
        }
    }
}

/// A collective operation under way at this rank, with its buffers. Dropping it leaves its requests in the engine: call
/// [`quit`](Self::quit) first if it has not ended.
pub struct Collective<B> {
    group: Group,
    context: u32,
    series: Series,
    number: u32,
    /// The size of an element in bytes.
    element: usize,
    deadline: Time,
    check: Option<Check>,
    at: Place,
    /// The time at which the operation began.
    begun: Time,
    /// The check while it is under way. No step is taken before it has ended.
    checking: Option<Box<Collective<OwnedBuffers>>>,
    steps: Steps,
    /// The step that this rank cannot take yet.
    blocked: Option<Step>,
    /// The messages that no step has waited for, in the order in which they began.
    messages: VecDeque<Message>,
    /// The number of the first message in `messages`. A rank counts its messages of the operation from 0.
    first: u32,
    buffers: B,
    /// The notice that this rank awaits from a partner that has given up a message.
    awaited: Option<AwaitedNotice>,
    /// The question to the members after the deadline. Nothing else of the operation is under way then.
    roll: Option<Roll>,
    /// The use of the communicator's board, until the operation ends.
    on_board: Option<OnBoard>,
    /// See [`leaves_messages`](Self::leaves_messages).
    leaves_messages: bool,
    /// The value of [`Engine::ends`] at the latest check for failed members and revocations.
    ends: u64,
    result: Option<Result<(), Failed>>,
}

/// The reason why a collective failed.
#[derive(Debug)]
pub enum Failed {
    /// An error at this rank, or the failure or error of another rank.
    Error(Error),
    /// The reduction panicked.
    Panicked(Box<dyn Any + Send>),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// A message of the operation.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// `None` if the message has ended.
    request: Option<RequestId>,
    partner: WorldRank,
    span: Span,
    /// The length of a message that arrived while its buffer was lent, until the length is checked.
    arrived: Option<usize>,
}

/// The receive of a notice.
#[derive(Debug)]
struct AwaitedNotice {
    request: RequestId,
    partner: WorldRank,
    /// The error of the operation if the notice does not arrive.
    error: Error,
}

/// The mask for the bits of an operation's number that a tag contains. The low 32 bits of the tag contain the round of
/// the message.
const NUMBERS: u32 = (1 << 28) - 1;

impl<B> Collective<B> {
    /// Returns the same operation with other buffers, which must have the same content.
    pub fn with_buffers<C>(self, buffers: C) -> Collective<C> {
        Collective {
            group: self.group,
            context: self.context,
            series: self.series,
            number: self.number,
            element: self.element,
            deadline: self.deadline,
            check: self.check,
            at: self.at,
            begun: self.begun,
            checking: self.checking,
            steps: self.steps,
            blocked: self.blocked,
            messages: self.messages,
            first: self.first,
            buffers,
            awaited: self.awaited,
            roll: self.roll,
            on_board: self.on_board,
            leaves_messages: self.leaves_messages,
            ends: self.ends,
            result: self.result,
        }
    }
}

impl<B: Buffers> Collective<B> {
    /// Begins an operation, and takes the first steps. If a member has failed already, the operation fails at once.
    ///
    /// # Panics
    /// If this rank is not in the group. In a build with debug assertions, also if a buffer does not have the length
    /// that the plan needs.
    #[inline(always)]
    pub fn begin<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        now: Time,
        call: Call<'_>,
        mine: WorldRank,
        buffers: B,
    ) -> Self {
        Self::note_begun(engine, now, &call);
        let at = call.place(mine);
        check_lens(&call, at, &buffers);
        let checking = call.check.as_ref().map(|check| {
            let (plan, group) = (&Check::plan(at.size()), call.group.clone());
            let comparison = Call { plan, group, element: check.record.len(), check: None, ..call };
            Box::new(Collective::begin(engine, now, comparison, mine, check.buffers(at)))
        });
        let (plan, context, number, checked_ends) = (call.plan, call.context, call.number, call.checked_ends);
        let mut collective = Self::new(engine, now, call, at, plan.steps(at), buffers);
        collective.checking = checking;
        collective.on_board = plan.uses_board(at).then(|| OnBoard::begin(engine, context, number));
        let prevented =
            if checked_ends == Some(collective.ends) { None } else { collective.prevented(engine) };
        match prevented {
            Some(error) => collective.fail(engine, error.into()),
            None => collective.advance(engine),
        }
        collective
    }

    /// Begins an operation and gives it up before its first step, with this error. Sends a notice to all members.
    ///
    /// This is for a rank that does not know the plan of the others, because it does not know if they share a board. A
    /// step of another plan would send data that the others take for data of their plan, and a notice to the partners
    /// of that plan would not reach all ranks that wait for this one.
    #[cold]
    pub fn give_up<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        now: Time,
        call: Call<'_>,
        mine: WorldRank,
        buffers: B,
        error: Error,
    ) {
        Self::note_begun(engine, now, &call);
        let (at, steps) = (call.place(mine), call.plan.steps(call.place(mine)));
        let collective = Self::new(engine, now, call, at, steps, buffers);
        let error = collective.prevented(engine).unwrap_or(error);
        let members = collective.group.iter().collect();
        collective.notify(engine, members, &error.into());
    }

    /// Sets the time, and notes that this rank begins an operation, in case the other members ask.
    #[inline(always)]
    fn note_begun<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, now: Time, call: &Call<'_>) {
        engine.set_now(now);
        if call.series == Series::Program {
            engine.note_begun(call.context, call.number);
        }
    }

    /// Returns an operation whose next step is the next of `steps`, and that does not use the board.
    #[inline]
    fn new<P: Port, S: HasTagged>(
        engine: &Engine<P, S>,
        now: Time,
        call: Call<'_>,
        at: Place,
        steps: Steps,
        buffers: B,
    ) -> Self {
        let Call { plan: _, group, context, series, number, element, deadline, check, checked_ends: _ } =
            call;
        Self {
            steps,
            at,
            begun: now,
            checking: None,
            blocked: None,
            messages: VecDeque::new(),
            first: 0,
            buffers,
            awaited: None,
            roll: None,
            on_board: None,
            leaves_messages: false,
            ends: engine.ends(),
            result: None,
            group,
            context,
            series,
            number,
            element,
            deadline,
            check,
        }
    }

    /// Returns the number of ends ([`Engine::ends`]) at the start of the operation, up to which no member had failed
    /// and the communicator was not revoked. Returns `None` if the operation has failed. See [`Call::checked_ends`].
    pub fn checked_ends(&self) -> Option<u64> {
        (!matches!(self.result, Some(Err(_)))).then_some(self.ends)
    }

    /// Returns true if this operation lends the buffer of a request under the number `place`.
    pub fn lends(&self, request: RequestId, place: u32) -> bool {
        if let Some(checking) = &self.checking {
            return checking.lends(request, place);
        }
        let message = self.messages.get(place.wrapping_sub(self.first) as usize);
        message.is_some_and(|message| message.request == Some(request))
    }

    /// Returns the number of the operation if it is one of the program: see [`Call::number`].
    pub fn number(&self) -> Option<u32> {
        (self.series == Series::Program).then_some(self.number)
    }

    /// Returns the control context of the communicator.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Returns the buffers. If the operation has not ended, its messages remain in the engine, as after a drop.
    pub fn into_buffers(self) -> B {
        self.buffers
    }

    /// Returns true if the operation has ended.
    pub fn has_ended(&self) -> bool {
        self.result.is_some()
    }

    /// Returns true if the operation has ended without an error.
    pub fn has_succeeded(&self) -> bool {
        matches!(self.result, Some(Ok(())))
    }

    /// Returns the result, once; `None` if the operation has not ended.
    pub fn take_result(&mut self) -> Option<Result<(), Failed>> {
        self.result.take()
    }

    /// Returns a request that must end before the operation ends. Returns [`RequestId::PENDING`] if this rank waits at
    /// the board. Returns [`RequestId::NONE`] if the operation has ended, or if [`advance`](Self::advance) can take the
    /// next step.
    pub fn awaited(&self) -> RequestId {
        if let Some(checking) = &self.checking {
            return checking.awaited();
        }
        if let Some(notice) = &self.awaited {
            return notice.request;
        }
        if let Some(roll) = &self.roll {
            return roll.call.request();
        }
        if let Some(on_board) = self.at_board() {
            return on_board.awaited();
        }
        let awaited = self.messages.iter().find_map(|message| message.request);
        awaited.unwrap_or(RequestId::NONE)
    }

    /// Takes all steps that this rank can take now. Call it after each poll.
    pub fn advance<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        if let Some(checking) = &mut self.checking {
            checking.advance(engine);
            if !self.end_check(engine) {
                return;
            }
        }
        if self.awaited.is_some() {
            return self.end_awaited(engine);
        }
        if self.roll.is_some() {
            return self.end_roll(engine);
        }
        while self.result.is_none() {
            // At the end a rank waits for all messages.
            let (step, is_last) = match self.blocked.take().or_else(|| self.steps.next()) {
                Some(step) => (step, false),
                None => (Step::WAIT, true),
            };
            match self.take(engine, step) {
                Ok(true) if is_last => {
                    self.leave_board(engine);
                    self.result = Some(Ok(()));
                }
                Ok(true) => {}
                Ok(false) => {
                    self.blocked = (!is_last).then_some(step);
                    self.wake_sleepers(engine);
                    let ended = match self.at_board() {
                        Some(_) => self.end_of_vigil(engine),
                        None => self.end_other_vigil(engine, None),
                    };
                    if let Some(error) = ended {
                        self.fail_or_ask(engine, error.into());
                    }
                    return;
                }
                Err(failed) => {
                    return self.end_by(engine, failed, step.is_on_board());
                }
            }
        }
    }

    /// Ends the check if it is complete. Returns false if the operation cannot begin: the check is under way, or has
    /// failed.
    #[cold]
    fn end_check<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) -> bool {
        let Some(mut checking) = self.checking.take_if(|checking| checking.has_ended()) else { return false };
        let checked = checking.take_result().expect("the check has ended");
        let check = self.check.as_ref().expect("a check was under way");
        let merged = checking.into_buffers().output;
        let difference = checked.and_then(|()| match (check.difference)(merged.as_bytes()) {
            None => Ok(()),
            Some(difference) => Err(Error::CallsDiffer { difference }.into()),
        });
        match difference {
            Ok(()) => true,
            Err(failed @ Failed::Error(Error::CallsDiffer { .. })) => {
                // All members get the same result, so none of them needs a notice.
                self.leave_board(engine);
                self.result = Some(Err(failed));
                false
            }
            Err(failed) => {
                self.fail(engine, failed);
                false
            }
        }
    }

    /// Ends the operation after an error of this rank. If the error is that of a partner that has ended or has given up
    /// a message, and the partner has sent a notice before, the operation ends with the error of the notice.
    /// `was_on_board` is true if a step on the board has failed.
    #[cold]
    fn end_by<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        failed: Failed,
        was_on_board: bool,
    ) {
        let partner = match &failed {
            Failed::Error(Error::PeerFailed { rank, .. } | Error::Abandoned { rank, .. }) => *rank,
            _ => return self.fail_or_ask(engine, failed),
        };
        if self.claim_notice(engine, partner) {
            return;
        }
        match failed {
            // On the board, a partner that carries out another operation has not given up, and sends no notice.
            Failed::Error(error @ Error::Abandoned { .. }) if !was_on_board => {
                self.await_notice(engine, partner, error)
            }
            failed => self.fail(engine, failed),
        }
    }

    /// Gives up if a notice of a partner has arrived, once it is received. Returns false if no notice has arrived.
    fn claim_notice<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, partner: WorldRank) -> bool {
        let (context, tag, deadline) = (self.context, self.tag(Notice::ROUND), self.deadline);
        let Some(request) = Notice::claim(engine, context, partner, tag, deadline) else { return false };
        self.await_claimed(engine, request, partner);
        true
    }

    /// Gives up once the claimed notice of a partner is received.
    fn await_claimed<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        request: RequestId,
        partner: WorldRank,
    ) {
        let error = Error::Abandoned { rank: partner, fate: Fate::Unknown };
        self.awaited = Some(AwaitedNotice { request, partner, error });
        self.end_awaited(engine);
    }

    /// Waits for the notice of a partner that has given up a message. A partner that gives up its messages always sends
    /// one, but it may arrive later than the end of the message.
    fn await_notice<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        partner: WorldRank,
        error: Error,
    ) {
        let (context, tag, deadline) = (self.context, self.tag(Notice::ROUND), self.deadline);
        // This rank itself gives up messages when it leaves.
        let is_other = partner != self.world_rank(self.at.rank());
        let request = is_other.then(|| Notice::post(engine, context, partner, tag, deadline).ok()).flatten();
        match request {
            Some(request) => self.awaited = Some(AwaitedNotice { request, partner, error }),
            // If the communicator has been revoked meanwhile, no notice can come.
            None => {
                let error = self.prevented(engine).unwrap_or(error);
                self.fail(engine, error.into());
            }
        }
    }

    /// Ends the operation if the awaited notice has arrived, or cannot arrive any more.
    fn end_awaited<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let awaited = self.awaited.take_if(|notice| engine.outcome(notice.request) != Outcome::Pending);
        let Some(AwaitedNotice { request, partner, error }) = awaited else { return };
        let notice = Notice::collect(engine, request, partner, &self.group);
        let error = notice.or_else(|| self.prevented(engine)).unwrap_or(error);
        self.fail(engine, error.into());
    }

    /// Returns an error if the communicator is revoked, or if a member has failed. A member that has left in good order
    /// does not count, because it may have finished before.
    fn prevented<P: Port, S: HasTagged>(&self, engine: &Engine<P, S>) -> Option<Error> {
        if engine.is_revoked(self.context) {
            return Some(Error::Revoked);
        }
        let has_failed = |cause: &Cause| *cause != Cause::Left;
        engine.missing_member(self.context, &self.group, has_failed)
    }

    /// Takes one step. Returns false if the rank must wait first.
    fn take<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, step: Step) -> Result<bool, Failed> {
        match step {
            Step::Send { to, round, from } => self.send(engine, to, round, from)?,
            Step::Receive { from, round, into } => self.receive(engine, from, round, into)?,
            Step::Copy { from, into } => copy(&mut self.buffers, self.element, from, into),
            Step::Reduce { from, into } => reduce(&mut self.buffers, self.element, from, into)?,
            Step::Publish { .. } | Step::Fetch { .. } => return self.take_on_board(engine, step),
            Step::Wait { except } => {
                while self.messages.len() > except as usize {
                    if !self.end_first(engine)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn send<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        to: u32,
        round: u32,
        from: Span,
    ) -> Result<(), Error> {
        let (partner, tag, place) = (self.world_rank(to), self.tag(round), self.next_place());
        let (context, deadline, now) = (self.context, self.deadline, engine.now());
        let sent = match self.buffers.layouts() {
            None => engine.send(now, partner, context, tag, self.read_slice(from), deadline)?,
            Some(_) => engine.send_from(now, partner, context, tag, &self.read_span(from), deadline)?,
        };
        let request = match sent {
            Sent::Now | Sent::Copied => None,
            Sent::Pending(request) => {
                engine.set_place(request, place);
                Some(request)
            }
        };
        self.messages.push_back(Message { request, partner, span: from, arrived: None });
        Ok(())
    }

    fn receive<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        from: u32,
        round: u32,
        into: Span,
    ) -> Result<(), Error> {
        let (partner, tag, place) = (self.world_rank(from), self.tag(round), self.next_place());
        let pattern = Pattern { context: self.context, source: Source::rank(partner.0), tag, mask: !0 };
        let (deadline, now) = (self.deadline, engine.now());
        let room = into.len * self.element;
        let received = match self.buffers.layouts() {
            None => {
                let buffer = self.buffers.slices_mut().0.get_mut(into, self.element);
                engine.recv(now, pattern, buffer, place, deadline, &mut ())
            }
            Some(_) => engine.recv_into(now, pattern, &mut self.write_span(into), place, deadline, &mut ()),
        };
        let request = match received.map_err(length_error)? {
            Received::Now(status) => {
                check_length(partner, status.bytes, room)?;
                None
            }
            Received::Pending(request) => Some(request),
        };
        self.messages.push_back(Message { request, partner, span: into, arrived: None });
        Ok(())
    }

    /// Removes the first message if it has ended. Returns false if it has not.
    fn end_first<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) -> Result<bool, Error> {
        let Message { request, partner, span, arrived } = self.messages[0];
        let room = span.len * self.element;
        if let Some(request) = request {
            if engine.outcome(request) == Outcome::Pending {
                return Ok(false);
            }
            // The first message keeps its place until its bytes are in the buffer.
            let end = engine.collect(request, self).ok_or(Error::NoSuchRequest)?;
            let status = end.result.map_err(length_error)?;
            check_length(partner, status.bytes, room)?;
        } else if let Some(bytes) = arrived {
            check_length(partner, bytes, room)?;
        }
        self.messages.pop_front();
        self.first = self.first.wrapping_add(1);
        Ok(true)
    }

    /// Gives up if a member has failed, or if a partner of a message under way has sent a notice. Call it from time to
    /// time while the operation waits. Returns true if the operation has ended.
    pub fn attend<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) -> bool {
        if self.result.is_some() {
            return true;
        }
        if let Some(checking) = &mut self.checking {
            if checking.attend(engine) {
                self.advance(engine);
            }
            return self.result.is_some();
        }
        if std::mem::replace(&mut self.ends, engine.ends()) != self.ends
            && let Some(error) = self.prevented(engine)
        {
            self.fail(engine, error.into());
            return true;
        }
        if self.roll.is_some() {
            return false;
        }
        if self.awaited.is_none() && self.at_board().is_some() {
            self.keep_vigil(engine);
        } else if self.awaited.is_none() {
            let under_way = self.messages.iter().filter(|message| message.request.is_some());
            let partners: Vec<_> = under_way.map(|message| message.partner).collect();
            partners.into_iter().any(|partner| self.claim_notice(engine, partner));
        }
        self.result.is_some()
    }

    /// Gives up the operation with this error, unless it has ended.
    pub fn quit<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, error: Error) {
        if let Some(mut checking) = self.checking.take() {
            checking.quit(engine, error.clone());
        }
        if self.result.is_none() {
            self.fail(engine, error.into());
        }
    }

    /// Ends the operation with a failure. Sends a notice to the partners of the messages that no step has waited for,
    /// and to the partners of the steps that this rank does not take.
    #[cold]
    fn fail<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, mut failed: Failed) {
        if let Failed::Error(Error::PeerFailed { report: Some(report), .. }) = &mut failed {
            // The program does not know the message of a step.
            (report.operation, report.age_ns) = (Operation::Collective, engine.now().since(self.begun));
        }
        // A check that is still here failed when it began, and for the same reason. So it needs no `quit`.
        self.checking = None;
        self.drop_roll(engine);
        let messages = std::mem::take(&mut self.messages);
        if let Some(notice) = self.awaited.take() {
            engine.forget(notice.request);
        }
        self.leave_board(engine);
        let mut partners: BTreeSet<WorldRank> = messages.iter().map(|message| message.partner).collect();
        let group = &self.group;
        for step in self.blocked.take().into_iter().chain(&mut self.steps) {
            match step {
                Step::Send { to: partner, .. }
                | Step::Receive { from: partner, .. }
                | Step::Fetch { from: partner, .. } => partners.extend(group.rank(partner)),
                // Any rank of the host may fetch the publication.
                Step::Publish { .. } => partners.extend(readers(engine, self.context, group)),
                Step::Reduce { .. } | Step::Copy { .. } | Step::Wait { .. } => {}
            }
        }
        self.notify(engine, partners, &failed);
        // The notices are sent first, because the partners of these messages learn of their end too.
        messages.iter().filter_map(|message| message.request).for_each(|request| engine.forget(request));
        self.result = Some(Err(failed));
    }

    /// Sends a notice of this failure to these ranks.
    #[cold]
    fn notify<P: Port, S: HasTagged>(
        &self,
        engine: &mut Engine<P, S>,
        mut partners: BTreeSet<WorldRank>,
        failed: &Failed,
    ) {
        if matches!(failed, Failed::Error(Error::Revoked)) {
            // The revocation gets to all members by itself. A notice would be taken for another reason to give up.
            return;
        }
        let mine = self.world_rank(self.at.rank());
        partners.remove(&mine);
        let notice = Notice::of(failed, mine);
        let (context, tag) = (self.context, self.tag(Notice::ROUND));
        for partner in partners {
            // A partner that has ended needs no notice.
            let _ = engine.send_detached(engine.now(), partner, context, tag, notice.to_memory());
        }
    }

    fn world_rank(&self, rank: u32) -> WorldRank {
        self.group.rank(rank).expect("a schedule names ranks of the group")
    }

    fn tag(&self, round: u32) -> u64 {
        self.series.tag() | u64::from(self.number & NUMBERS) << 32 | u64::from(round)
    }

    /// Returns the number of the next message. The engine asks for the message's buffer by this number ([`Lent`]).
    fn next_place(&self) -> u32 {
        self.first.wrapping_add(self.messages.len() as u32)
    }

    /// Returns the message with the number `place`, if `request` is its request.
    fn message(&mut self, request: RequestId, place: u32) -> Option<&mut Message> {
        let message = self.messages.get_mut(place.wrapping_sub(self.first) as usize)?;
        (message.request == Some(request)).then_some(message)
    }

    fn read_slice(&self, span: Span) -> &[u8] {
        buffers::span_of(self.buffers.slices(), span, self.element)
    }

    fn read_span(&self, span: Span) -> Readable<'_> {
        match self.buffers.layouts() {
            None => self.read_slice(span).into(),
            Some(layouts) => layouts.read(self.buffers.slices()[Buffer::Input as usize], span),
        }
    }

    fn write_span(&mut self, span: Span) -> Writable<'_> {
        let element = self.element;
        let (slices, _) = self.buffers.slices_mut();
        match slices.layouts {
            None => slices.get_mut(span, element).into(),
            Some(layouts) => layouts.write(slices.output, span),
        }
    }
}

impl<B: Buffers> Lent for Collective<B> {
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        if let Some(checking) = &self.checking {
            return checking.read(request, place);
        }
        let message = self.messages.get(place.wrapping_sub(self.first) as usize)?;
        if message.request != Some(request) {
            return None;
        }
        Some(self.read_span(message.span))
    }

    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        if self.checking.is_some() {
            return self.checking.as_mut()?.write(request, place);
        }
        let span = self.message(request, place)?.span;
        Some(self.write_span(span))
    }

    fn received(&mut self, request: RequestId, place: u32, status: Status) -> bool {
        if let Some(checking) = &mut self.checking {
            return checking.received(request, place, status);
        }
        let Some(message) = self.message(request, place) else { return false };
        message.request = None;
        message.arrived = Some(status.bytes);
        true
    }
}

impl Call<'_> {
    /// Returns the place of a rank.
    ///
    /// # Panics
    /// If it does not take part.
    fn place(&self, rank: WorldRank) -> Place {
        Place::new(self.group.index(rank).expect("this rank takes part"), self.group.len())
    }
}

/// Checks that the buffers have the lengths that the plan needs, in a build with debug assertions.
#[inline]
fn check_lens<B: Buffers>(call: &Call<'_>, at: Place, buffers: &B) {
    if !cfg!(debug_assertions) {
        return;
    }
    let [input, output, scratch] = buffers.slices().map(<[u8]>::len);
    let (plan, bytes) = (call.plan, |elements: usize| elements * call.element);
    if buffers.layouts().is_none() {
        assert_eq!(input, bytes(plan.input(at)), "the length of the input");
        assert_eq!(output, bytes(plan.output(at)), "the length of the output");
    }
    assert_eq!(scratch, bytes(plan.scratch(at)), "the length of the scratch buffer");
}

/// Carries out [`Step::Copy`].
#[inline]
fn copy<B: Buffers>(buffers: &mut B, element: usize, from: Span, into: Span) {
    let (from, into) = buffers.slices_mut().0.pair(from, into, element);
    copy_bytes(from, into);
}

/// Carries out [`Step::Reduce`].
#[inline]
fn reduce<B: Buffers>(buffers: &mut B, element: usize, from: Span, into: Span) -> Result<(), Failed> {
    let (slices, reduce) = buffers.slices_mut();
    let (from, into) = slices.pair(from, into, element);
    // A panic in the caller's operation must not unwind through the engine's owner: this rank first informs its
    // partners, and the caller gets its buffers back.
    catch_unwind(AssertUnwindSafe(|| reduce(from, into))).map_err(Failed::Panicked)
}

/// Drops the messages of the program's operations before operation `number`, which have ended at this rank. Such
/// messages exist only if one of these operations has failed.
pub fn discard_before<P: Port, S: HasTagged>(engine: &mut Engine<P, S>, context: u32, number: u32) {
    let quarter_bits = NUMBERS.count_ones() - 2;
    // There is a pattern for each bit that is set in `number`. The pattern matches the smaller numbers that have a
    // 0 at this bit and agree with `number` in all higher bits.
    let bits = (0..quarter_bits).filter(|bit| number >> bit & 1 == 1);
    let smaller = bits.map(|bit| (number & !(1 << bit), bit));
    // The numbers in tags begin again at 0. Other ranks may have begun later operations, so the numbers of another
    // quarter are earlier only if it is the previous one.
    let previous = (number.wrapping_sub(1 << quarter_bits), quarter_bits);
    for (prefix, bit) in smaller.chain([previous]) {
        let prefix = u64::from(prefix & NUMBERS) << 32;
        let (tag, mask) = (Series::Program.tag() | prefix, !0 << (32 + bit));
        engine.discard_all(&Pattern { context, source: Source::ANY, tag, mask });
    }
}

/// Checks that a message has the length of its span. A sent message always has.
fn check_length(partner: WorldRank, bytes: usize, room: usize) -> Result<(), Error> {
    match bytes == room {
        true => Ok(()),
        false => Err(Error::LengthsDiffer { rank: partner, ours: room, theirs: bytes }),
    }
}

/// Converts the error of a receive: a message that is longer than the buffer means that another rank has passed another
/// length to the collective operation.
fn length_error(error: Error) -> Error {
    match error {
        Error::Truncated { status, room } => {
            Error::LengthsDiffer { rank: status.source, ours: room, theirs: status.bytes }
        }
        error => error,
    }
}

impl<B> std::fmt::Debug for Collective<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Collective");
        debug
            .field("context", &self.context)
            .field("number", &self.number)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
