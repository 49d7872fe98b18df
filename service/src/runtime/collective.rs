//! The execution of collective operations: the runtime begins them, makes progress with them in every poll, and waits
//! for the end of blocking ones.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use samite_coll::algorithms::hosts::Hosts;
use samite_coll::{
    Begun, BorrowedBuffers, Buffers, Call, Check, Collective, Failed, OwnedBuffers, Plan, Reduction, Series,
    discard_before,
};
use samite_fabric::layout::{Readable, Writable};
use samite_fabric::{Memory, Port};
use samite_os::Refused;
use samite_p2p::{Fate, Group, Lent, RequestId, Status};

use super::background::CallKind;
use super::board::{Created, Creation, Next, State, again};
use super::state::Core;
use super::sync::BiasedGuard;
use super::{Bounds, Completion, Runtime, unfinished};
use crate::cancel::CancelToken;
use crate::comm::Derived;
use crate::error::{Error, Public};
use crate::request::Awaiting;
use crate::stack::Engine;

/// The collective operations of a communicator on one lane. The members of the communicator begin these operations in
/// the same order, so each operation has the same number at all members. The lane's lock protects the value, except
/// `waiting` when a thread stops waiting. Otherwise the types are atomic only because the callers have a shared
/// reference.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    next: AtomicU32,
    /// The number of blocking operations for whose end a thread waits, and of numbers that are reserved.
    waiting: AtomicU32,
    /// 1 more than the value of [`Collective::checked_ends`] of the latest operation; 0 if it has none.
    checked_ends: AtomicU64,
    /// The number of the next window.
    windows: AtomicU64,
    pub(super) board: State,
    /// The hosts of the members, if they are on several, and each host has boards.
    pub(super) hosts: OnceLock<Arc<Hosts>>,
}

impl Counter {
    /// Takes the number of the next window. The members of the communicator create its windows in the same order.
    pub(super) fn take_window(&self) -> u64 {
        self.windows.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the value for [`Call::checked_ends`].
    fn checked_ends(&self) -> Option<u64> {
        self.checked_ends.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes the value of an operation for [`Call::checked_ends`] of the next one.
    fn note_ends<B: Buffers>(&self, collective: &Collective<B>) {
        self.checked_ends.store(collective.checked_ends().map_or(0, |ends| ends + 1), Ordering::Relaxed);
    }
}

/// The number of a blocking operation that begins later. The operations of other threads that begin before get later
/// numbers, and use the board later.
pub(crate) struct Reserved<'a, P: Port> {
    runtime: &'a Runtime<P>,
    counter: &'a Counter,
    context: u32,
    number: u32,
}

impl<P: Port> Reserved<'_, P> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl<P: Port> Drop for Reserved<'_, P> {
    fn drop(&mut self) {
        self.counter.waiting.fetch_sub(1, Ordering::Relaxed);
        self.runtime.release(self.context, self.number);
    }
}

/// A collective operation, without the values of [`Call`] that the runtime adds.
pub(crate) struct Operation<'a, B> {
    pub(crate) plan: &'a Plan,
    pub(crate) group: Group,
    /// The control context of the communicator.
    pub(crate) context: u32,
    /// The size of an element in bytes.
    pub(crate) element: usize,
    pub(crate) buffers: B,
    /// See [`Call::check`].
    pub(crate) check: Option<Check>,
    /// The number of the operation if one is reserved.
    pub(crate) number: Option<u32>,
}

/// The values that a nonblocking operation gives back at its end, apart from its result and its output, which are the
/// completion of its request.
#[derive(Default)]
pub(crate) struct AtEnd(Mutex<Option<EndValues>>);

/// See [`AtEnd`].
pub(crate) struct EndValues {
    pub(crate) input: Memory,
    pub(crate) scratch: Memory,
    /// The payload of the panic that has ended the operation.
    pub(crate) panic: Option<Box<dyn std::any::Any + Send>>,
}

/// A nonblocking operation that has begun.
pub(crate) enum Nonblocking {
    UnderWay(RequestId, Arc<AtEnd>),
    /// It has succeeded.
    Ended(OwnedBuffers),
}

impl AtEnd {
    /// Takes the values. Returns `None` if the operation has not ended, or if they were taken before.
    pub(crate) fn take(&self) -> Option<EndValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, values: EndValues) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(values);
    }
}

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AtEnd").finish_non_exhaustive()
    }
}

/// The collective operations of a lane.
#[derive(Default)]
pub(super) struct Collectives {
    /// The nonblocking operations under way.
    under_way: Vec<UnderWay>,
    /// True if a poll has had events since the latest call of [`Collective::attend`].
    is_stale: bool,
    /// The value of [`Engine::ends`] at the latest call of [`Collective::attend`].
    ends: u64,
    /// The contexts in which an operation has failed at this rank. Messages of the failed operation may have arrived
    /// that no operation will receive.
    failed: BTreeSet<u32>,
    /// The results of the creations of boards that have failed, or that no call has taken.
    created: Vec<(u32, Created)>,
    /// The numbers of [`Reserved`], each with its context, in their order.
    reserved: Vec<(u32, u32)>,
}

/// A nonblocking operation.
struct UnderWay {
    collective: Collective<OwnedBuffers>,
    request: RequestId,
    /// `None` if the operation has no input and no reduction.
    at_end: Option<Arc<AtEnd>>,
    /// The creation of a board of which the operation is a part.
    creation: Option<Box<Creation>>,
}

impl Collectives {
    /// Returns true if no nonblocking operation is under way.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns the index of the operation that lends the buffer of a request under this number.
    pub(super) fn lender(&self, request: RequestId, place: u32) -> Option<usize> {
        self.under_way.iter().position(|operation| operation.collective.lends(request, place))
    }

    /// Returns the operation with an index, as a lender.
    pub(super) fn lent(&mut self, index: usize) -> &mut impl Lent {
        &mut self.under_way[index].collective
    }

    /// Returns the data of a request that one of the operations lends.
    pub(super) fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        self.under_way[self.lender(request, place)?].collective.read(request, place)
    }

    /// Lets the operations take all steps that they can take after a poll, and ends those that have ended. `events` is
    /// the number of events of the poll. Returns the number of operations that have ended.
    pub(super) fn advance<P: Port>(&mut self, engine: &mut Engine<P>, events: usize) -> usize {
        self.under_way.iter_mut().for_each(|operation| operation.collective.advance(engine));
        self.is_stale |= events > 0 || self.ends != engine.ends();
        // A notice is an event, and a thread sleeps only after a poll without events.
        if events == 0 {
            let is_stale = std::mem::take(&mut self.is_stale);
            self.ends = engine.ends();
            for operation in &mut self.under_way {
                if is_stale || operation.collective.needs_vigil() {
                    operation.collective.attend(engine);
                }
            }
        }
        self.end_finished(engine)
    }

    /// Gives up the operation with a request. Returns false if there is none.
    pub(super) fn quit<P: Port>(&mut self, engine: &mut Engine<P>, request: RequestId) -> bool {
        let Some(operation) = self.under_way.iter_mut().find(|operation| operation.request == request) else {
            return false;
        };
        operation.collective.quit(engine, cancelled());
        true
    }

    /// Gives up all operations.
    pub(super) fn quit_all<P: Port>(&mut self, engine: &mut Engine<P>) {
        self.under_way.iter_mut().for_each(|operation| operation.collective.quit(engine, cancelled()));
        self.end_finished(engine);
    }

    /// Ends the requests of the operations that have ended. Returns their number.
    pub(super) fn end_finished<P: Port>(&mut self, engine: &mut Engine<P>) -> usize {
        let ended = self.under_way.extract_if(.., |operation| operation.collective.has_ended());
        let ended: Vec<_> = ended.collect();
        let number = ended.len();
        ended.into_iter().for_each(|operation| self.end(engine, operation));
        number
    }

    fn end<P: Port>(&mut self, engine: &mut Engine<P>, operation: UnderWay) {
        let UnderWay { mut collective, request, at_end, creation } = operation;
        let context = collective.context();
        let result = collective.take_result().expect("the operation has ended");
        if collective.leaves_messages() {
            self.failed.insert(context);
        }
        if let Some(creation) = creation {
            return self.end_of_creation(engine, collective, request, creation, result);
        }
        let OwnedBuffers { input, output, scratch, .. } = collective.into_buffers();
        let (result, panic) = match result {
            Ok(()) => (Ok(()), None),
            Err(Failed::Error(error)) => (Err(error), None),
            Err(Failed::Panicked(payload)) => (Err(cancelled()), Some(payload)),
        };
        if result.is_err() {
            self.failed.insert(context);
        }
        if let Some(at_end) = at_end {
            at_end.put(EndValues { input, scratch, panic });
        }
        engine.end_composite(request, result, output);
    }

    /// Continues the creation of a board after the end of an operation.
    fn end_of_creation<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        collective: Collective<OwnedBuffers>,
        request: RequestId,
        mut creation: Box<Creation>,
        result: Result<(), Failed>,
    ) {
        let (context, has_failed) = (collective.context(), result.is_err());
        let OwnedBuffers { output, .. } = collective.into_buffers();
        match creation.next(engine, context, result, &output) {
            Next::Operation(collective) => {
                self.add_creation(engine, *collective, request, *creation);
            }
            Next::End(created) => {
                if has_failed {
                    self.failed.insert(context);
                }
                if let Some(board) = engine.boards_mut().get_mut(context) {
                    let of_context = self.reserved.iter().filter(|(of, _)| *of == context);
                    of_context.for_each(|(_, number)| board.reserve(*number));
                }
                self.created.push((context, created));
                engine.end_composite(request, Ok(()), Memory::zeroed(0));
                engine.collect(request, &mut ());
            }
        }
    }

    /// Adds an operation of the creation of a board.
    pub(super) fn add_creation<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        collective: Collective<OwnedBuffers>,
        request: RequestId,
        creation: Creation,
    ) {
        let creation = Some(Box::new(creation));
        let operation = UnderWay { collective, request, at_end: None, creation };
        if operation.collective.has_ended() {
            return self.end(engine, operation);
        }
        self.under_way.push(operation);
        self.is_stale = true;
    }

    /// Returns the result of the creation of a board. Returns an error at each call, and another result once.
    pub(super) fn board_created(&mut self, context: u32) -> Option<Created> {
        let index = self.created.iter().position(|(of, _)| *of == context)?;
        Some(match &self.created[index].1 {
            Created::Failed(error) => Created::Failed(again(error)),
            _ => self.created.swap_remove(index).1,
        })
    }

    /// Gives up the creation of a board, if it is under way. The other members may wait for this one.
    fn quit_board<P: Port>(&mut self, engine: &mut Engine<P>, context: u32) {
        let of_context = self.under_way.iter_mut().filter(|op| op.collective.context() == context);
        let creation = of_context.filter(|op| op.creation.is_some()).map(|op| &mut op.collective);
        creation.for_each(|collective| collective.quit(engine, cancelled()));
        self.end_finished(engine);
    }

    /// Lets the creation of a board continue without the call that waits for it. Returns true if there will be no
    /// board.
    pub(super) fn leave_board_alone(&mut self, context: u32) -> bool {
        let of_context = self.under_way.iter_mut().filter(|op| op.collective.context() == context);
        of_context.filter_map(|op| op.creation.as_mut()).any(|creation| creation.leave_alone())
    }

    /// Discards the messages that no operation of a communicator will receive. `number` is the number of the operation
    /// that begins now.
    #[cold]
    fn discard<P: Port>(&mut self, engine: &mut Engine<P>, context: u32, number: u32) {
        let of_context = self.under_way.iter().filter(|operation| operation.collective.context() == context);
        let numbers = of_context.filter_map(|operation| operation.collective.number());
        let age = numbers.map(|of_operation| number.wrapping_sub(of_operation)).max();
        let oldest = number.wrapping_sub(age.unwrap_or(0));
        discard_before(engine, context, oldest);
        // Messages of a failed operation remain if an earlier operation is under way.
        if oldest == number {
            self.failed.remove(&context);
        }
    }
}

pub(super) fn cancelled() -> samite_p2p::Error {
    samite_p2p::Error::Cancelled { fate: Fate::Unknown }
}

impl<P: Port> Runtime<P> {
    /// Reserves the next number of a communicator's operations for a blocking call.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    #[cold]
    pub(crate) fn reserve<'a>(
        &'a self,
        derived: Option<&'a Derived>,
        context: u32,
    ) -> Result<Reserved<'a, P>, Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let counter = self.counter(derived);
        let number = core.take_number(counter, context);
        // The other members may ask before the operation begins.
        core.engine.note_begun(context, number);
        counter.waiting.fetch_add(1, Ordering::Relaxed);
        core.collectives.reserved.push((context, number));
        // Another thread may have ended the creation of the board meanwhile.
        if let Some(board) = core.engine.boards_mut().get_mut(context) {
            board.reserve(number);
        }
        Ok(Reserved { runtime: self, counter, context, number })
    }

    /// Ends the reservation of a number.
    #[cold]
    fn release(&self, context: u32, number: u32) {
        let Ok(mut core) = self.lock() else { return };
        core.collectives.reserved.retain(|reserved| *reserved != (context, number));
        if let Some(board) = core.engine.boards_mut().get_mut(context) {
            board.release(number);
        }
        self.rouse(&mut core);
    }

    /// Carries out a collective operation on a communicator, or on the world's communicator if `derived` is `None`.
    ///
    /// # Panics
    /// If the reduction panics, with the same payload.
    pub(crate) fn collective(
        &self,
        derived: Option<&Derived>,
        operation: Operation<'_, BorrowedBuffers<'_>>,
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let (context, counter) = (operation.context, self.counter(derived));
        // The polls of a wait move the nonblocking operations, so none of them may wait for this one.
        let looks = if self.crowded || !core.collectives.is_empty() { 0 } else { LOOKS };
        let begun = self.begun(&mut core, derived, operation, bounds, looks);
        self.hand_over(&mut core, CallKind::Waiting);
        let mut collective = match begun {
            Begun::UnderWay(collective) => collective,
            Begun::Ended { leaves_messages, .. } => {
                drop(core);
                if leaves_messages {
                    self.note_failed(context);
                }
                return Ok(());
            }
        };
        let mut unfinished = None;
        if collective.has_ended() {
            drop(core);
        } else {
            counter.waiting.fetch_add(1, Ordering::Relaxed);
            let end = self.end_collective(core, &mut collective, bounds);
            counter.waiting.fetch_sub(1, Ordering::Relaxed);
            // The wait ends with an error of its own if the port fails, or if this rank's part in the job ends.
            unfinished = end.and_then(|end| end.result.err());
        }
        let failed = match (collective.take_result(), unfinished) {
            (Some(Ok(())), _) => {
                if collective.leaves_messages() {
                    self.note_failed(context);
                }
                return Ok(());
            }
            (Some(Err(Failed::Error(error))), _) => self.explain(error.public(), bounds),
            (Some(Err(Failed::Panicked(payload))), _) => {
                self.note_failed(context);
                resume_unwind(payload);
            }
            (None, unfinished) => {
                self.quit_collective(&mut collective);
                unfinished.unwrap_or(Error::Closed { fate: crate::Fate::Unknown })
            }
        };
        self.note_failed(context);
        Err(failed)
    }

    /// Waits for the end of an operation.
    fn end_collective<'a>(
        &'a self,
        core: BiasedGuard<'a, Core<P>>,
        collective: &mut Collective<BorrowedBuffers<'_>>,
        bounds: &Bounds,
    ) -> Option<Completion> {
        let core = match self.watch_board(core, collective) {
            Ok(core) => core,
            Err(refused) => return Some(unfinished(refused)),
        };
        if collective.has_ended() {
            return None;
        }
        let awaited = collective.awaited();
        let mut running = Running { collective, cancel: bounds.cancel.as_ref(), turns: 0 };
        self.wait(core, awaited, &mut running, bounds)
    }

    /// Takes the steps of an operation on the board for a short time. This costs less than polls, and most operations
    /// on the board end within this time.
    fn watch_board<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        collective: &mut Collective<BorrowedBuffers<'_>>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        // The polls of a wait move the nonblocking operations.
        let looks = if core.collectives.is_empty() { LOOKS } else { 0 };
        for _ in 0..looks {
            if !collective.needs_vigil() {
                break;
            }
            if self.crowded {
                core = self.take_turns(core)?;
            } else {
                std::hint::spin_loop();
            }
            if core.engine.boards_mut().have_news() {
                collective.advance(&mut core.engine);
            } else if self.crowded {
                // A message has arrived, or the other ranks need long.
                break;
            }
        }
        Ok(core)
    }

    /// Gives up an operation whose plan is unknown, because of `error`, so that the other ranks learn it. Returns the
    /// error.
    #[cold]
    pub(crate) fn give_up_collective<B: Buffers>(
        &self,
        derived: Option<&Derived>,
        operation: Operation<'_, B>,
        error: Error,
    ) -> Error {
        let Ok(mut core) = self.lock() else { return error };
        let context = operation.context;
        let (call, buffers) = core.call(self.counter(derived), operation, samite_p2p::Time::NEVER);
        let now = core.now;
        Collective::give_up(&mut core.engine, now, call, self.rank, buffers, cancelled());
        core.collectives.failed.insert(context);
        self.hand_over(&mut core, CallKind::Nonblocking);
        error
    }

    /// Begins a nonblocking collective operation, and returns its request.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], with the buffers.
    pub(crate) fn begin_collective(
        &self,
        derived: Option<&Derived>,
        operation: Operation<'_, OwnedBuffers>,
        bounds: &Bounds,
    ) -> Result<RequestId, Box<(Error, OwnedBuffers)>> {
        let Some(mut core) = self.core.enter() else {
            return Err(Box::new((self.refused(), operation.buffers)));
        };
        let (call, buffers) = self.call(&mut core, derived, operation, bounds);
        let now = core.now;
        let collective = Collective::begin(&mut core.engine, now, call, self.rank, buffers);
        self.counter(derived).note_ends(&collective);
        let request = core.follow(collective, None);
        self.hand_over(&mut core, CallKind::Nonblocking);
        Ok(request)
    }

    /// Begins a nonblocking collective operation that gives back all its buffers. An operation that succeeds at once
    /// has no request.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], with the buffers.
    #[inline]
    pub(crate) fn start_collective(
        &self,
        derived: Option<&Derived>,
        operation: Operation<'_, OwnedBuffers>,
        bounds: &Bounds,
    ) -> Result<Nonblocking, Box<(Error, OwnedBuffers)>> {
        let Operation { plan, group, context, element, mut buffers, check, number } = operation;
        let Some(mut core) = self.core.enter() else {
            return Err(Box::new((self.refused(), buffers)));
        };
        // The buffers are moved only if the operation has not ended.
        let operation = Operation { plan, group, context, element, buffers: &mut buffers, check, number };
        let under_way = match self.begun(&mut core, derived, operation, bounds, 0) {
            Begun::Ended { leaves_messages, .. } => Err(leaves_messages),
            Begun::UnderWay(collective) if collective.has_succeeded() => Err(collective.leaves_messages()),
            Begun::UnderWay(collective) => Ok(collective.with_buffers(())),
        };
        let started = match under_way {
            Ok(collective) => {
                let at_end = Arc::new(AtEnd::default());
                let request = core.follow(collective.with_buffers(buffers), Some(Arc::clone(&at_end)));
                Nonblocking::UnderWay(request, at_end)
            }
            Err(leaves_messages) => {
                if leaves_messages {
                    core.collectives.failed.insert(context);
                }
                Nonblocking::Ended(buffers)
            }
        };
        self.hand_over(&mut core, CallKind::Nonblocking);
        Ok(started)
    }

    /// Begins an operation. If it needs the board alone, this rank looks there `looks` times before it waits.
    #[inline(always)]
    fn begun<B: Buffers>(
        &self,
        core: &mut Core<P>,
        derived: Option<&Derived>,
        operation: Operation<'_, B>,
        bounds: &Bounds,
        looks: u32,
    ) -> Begun<B> {
        let (call, buffers) = self.call(core, derived, operation, bounds);
        let now = core.now;
        let begun = Collective::begin_on_board(&mut core.engine, now, call, self.rank, buffers, looks);
        if let Begun::UnderWay(collective) = &begun {
            self.counter(derived).note_ends(collective);
        }
        begun
    }

    /// Returns the arguments of an operation that begins now, and its buffers.
    #[inline(always)]
    fn call<'a, B>(
        &self,
        core: &mut Core<P>,
        derived: Option<&Derived>,
        operation: Operation<'a, B>,
        bounds: &Bounds,
    ) -> (Call<'a>, B) {
        let deadline = self.deadline(core, bounds);
        core.call(self.counter(derived), operation, deadline)
    }

    /// Notes that an operation has failed: see [`Collectives::failed`].
    #[cold]
    fn note_failed(&self, context: u32) {
        if let Ok(mut core) = self.lock() {
            core.collectives.failed.insert(context);
        }
    }

    /// Closes the contexts of a communicator: see [`Engine::close_contexts`]. `context` is the first of them.
    pub(crate) fn close_contexts_here(&self, context: u32) {
        let (Ok(mut core), control) = (self.lock(), context + 1) else { return };
        let Core { engine, collectives, condemned, now, .. } = &mut *core;
        // The other ranks have given up a condemned rank, so it must not send any more.
        if condemned.is_none() {
            *now = self.clock.now();
            engine.set_now(*now);
            collectives.quit_board(engine, control);
            engine.close_contexts(*now, context);
        }
        collectives.failed.remove(&control);
        collectives.created.retain(|(of, _)| *of != control);
        self.hand_over(&mut core, CallKind::Nonblocking);
    }

    /// Gives up an operation whose wait has ended with an error of the runtime.
    #[cold]
    fn quit_collective(&self, collective: &mut Collective<BorrowedBuffers<'_>>) {
        let Ok(mut core) = self.lock() else { return };
        match core.condemned {
            None => collective.quit(&mut core.engine, cancelled()),
            // The other ranks consider this rank failed, so it sends nothing. It only ends the access of other ranks to
            // the buffers.
            Some(_) => core.engine.conceal(),
        }
    }
}

impl<P: Port> Core<P> {
    /// Lets the polls of the runtime make progress with an operation, and returns its request.
    fn follow(&mut self, collective: Collective<OwnedBuffers>, at_end: Option<Arc<AtEnd>>) -> RequestId {
        let Self { engine, collectives, now, .. } = self;
        let request = engine.begin_composite(*now, collective.context());
        collectives.under_way.push(UnderWay { collective, request, at_end, creation: None });
        // The next poll looks for notices that have arrived before.
        collectives.is_stale = true;
        collectives.end_finished(engine);
        request
    }

    /// Returns the arguments of an operation that begins now, and its buffers.
    #[inline(always)]
    fn call<'a, B>(
        &mut self,
        counter: &Counter,
        operation: Operation<'a, B>,
        deadline: samite_p2p::Time,
    ) -> (Call<'a>, B) {
        let Operation { plan, group, context, element, buffers, check, number } = operation;
        let number = number.unwrap_or_else(|| self.take_number(counter, context));
        let (series, checked_ends) = (Series::Program, counter.checked_ends());
        (Call { plan, group, context, series, number, element, deadline, check, checked_ends }, buffers)
    }

    /// Returns the number of the operation that begins next.
    fn take_number(&mut self, counter: &Counter, context: u32) -> u32 {
        let number = counter.next.fetch_add(1, Ordering::Relaxed);
        let is_due = number.is_multiple_of(DISCARD_EVERY) || self.collectives.failed.contains(&context);
        if is_due && counter.waiting.load(Ordering::Relaxed) == 0 {
            self.collectives.discard(&mut self.engine, context, number);
        }
        number
    }

    /// Cancels a request.
    pub(super) fn cancel(&mut self, id: RequestId) {
        self.engine.cancel(id);
        self.quit_unwanted();
    }
}

/// Returns the reduction of an operation that has none.
pub(crate) fn no_reduction() -> Reduction {
    Arc::new(|_: &[u8], _: &mut [u8]| unreachable!("the operation has no reduction"))
}

/// How often messages are discarded although no operation has failed here: a rank that gives up an operation sends
/// notices also to ranks that have ended it before.
const DISCARD_EVERY: u32 = 1024;

/// The number of bursts of polls after which an operation that waits at the board posts a receive for the wait.
const VIGIL_AFTER: u32 = 8;

/// The number of looks at the board before an operation waits as for a message: some microseconds if the rank has a
/// core of its own.
const LOOKS: u32 = 64;

/// A collective operation for whose end a thread waits.
struct Running<'a, 'b> {
    collective: &'a mut Collective<BorrowedBuffers<'b>>,
    cancel: Option<&'a CancelToken>,
    /// The number of bursts of polls in which the operation has waited at the board.
    turns: u32,
}

impl Lent for Running<'_, '_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        self.collective.read(request, place)
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        self.collective.write(request, place)
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: Status) -> bool {
        self.collective.received(request, place, status)
    }
}

impl Awaiting for Running<'_, '_> {
    /// Takes the next steps, and returns the request to wait for. It returns [`RequestId::NONE`] when the operation has
    /// ended, which ends the wait.
    fn first<P: Port>(&mut self, engine: &mut Engine<P>) -> Option<RequestId> {
        self.collective.advance(engine);
        Some(self.collective.awaited())
    }

    fn heed_cancels<P: Port>(&mut self, engine: &mut Engine<P>) -> bool {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            self.collective.quit(engine, cancelled());
        }
        // Most waits at the board end soon, and need no receive.
        if self.collective.needs_vigil() && self.turns < VIGIL_AFTER {
            self.turns += 1;
            return false;
        }
        self.collective.attend(engine)
    }
}
