//! Nonblocking and persistent collective operations: the buffers that they own, and their rounds.

use std::fmt;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::task::Poll;

use samite_coll::{Layouts, OwnedBuffers, Plan, Reduction};
use samite_fabric::Memory;
use samite_fabric::layout::Signature;
use samite_p2p::RequestId;
use zerocopy::FromZeros;

use crate::buffer::Held;
use crate::comm::{Called, Derived, Types};
use crate::owned::{AnyOperation, Kept, Operation, Returned, returned};
use crate::persistent::{Persistent, Sealed};
use crate::request::{Done, Failed, Request, result_of};
use crate::runtime::{AtEnd, Completion, EndValues, Nonblocking};
use crate::signature::signature_of;
use crate::{AnyBuffer, Comm, Element, Error, Status};

/// The place of a buffer that a collective operation does not need, because it works in place (`MPI_IN_PLACE`): the
/// data is in the other buffer. See [`Comm::iallreduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace;

/// The input of a nonblocking or persistent collective operation on elements of type `T`: `Vec<T>`, `Box<[T]>`,
/// `Arc<[T]>`, or [`InPlace`]. The operation owns it until its end.
///
/// The trait is sealed: other types cannot implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input of a nonblocking or persistent collective operation on elements of type `{T}`",
    label = "a `Vec<{T}>`, `Box<[{T}]>` or `Arc<[{T}]>`, or `InPlace`",
    note = "a blocking collective operation takes slices: without the letter `i`, as `Comm::allreduce`"
)]
pub trait CollectiveInput<T>: Held {
    /// Returns the number of elements; `None` for [`InPlace`].
    #[doc(hidden)]
    fn elements(&self) -> Option<usize>;
}

/// The output of a nonblocking or persistent collective operation on elements of type `T`: `Vec<T>`, of which it uses
/// the elements and not the spare capacity, `Box<[T]>`, or [`InPlace`] at the root of a scatter. The operation owns it
/// until its end.
///
/// The trait is sealed: other types cannot implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a nonblocking or persistent collective operation on elements of type `{T}`",
    label = "a `Vec<{T}>` or `Box<[{T}]>`; `InPlace` at the root of a scatter",
    note = "a blocking collective operation takes slices: without the letter `i`, as `Comm::allreduce`"
)]
pub trait CollectiveOutput<T>: Held {
    /// Returns the number of elements; `None` for [`InPlace`].
    #[doc(hidden)]
    fn elements(&self) -> Option<usize>;
}

macro_rules! elements {
    ($trait:ident: $($buffer:ty),*) => {
        $(impl<T: Element> $trait<T> for $buffer {
            fn elements(&self) -> Option<usize> {
                Some(self.len())
            }
        })*
        impl<T: Element> $trait<T> for InPlace {
            fn elements(&self) -> Option<usize> {
                None
            }
        }
    };
}

elements!(CollectiveInput: Vec<T>, Box<[T]>, Arc<[T]>);
elements!(CollectiveOutput: Vec<T>, Box<[T]>);

/// Implements [`Held`] for a type without data.
macro_rules! empty {
    ($type:ty, $value:expr) => {
        impl Held for $type {
            fn element_bytes() -> Option<usize> {
                Some(1)
            }
            fn into_memory(self) -> Memory {
                Memory::new(Vec::<u8>::new())
            }
            fn of_memory(_: Memory) -> Result<Self, Memory> {
                Ok($value)
            }
            fn signature(_: &Memory) -> Signature {
                signature_of::<u8>()
            }
        }
    };
}

empty!(InPlace, InPlace);
empty!((), ());

/// The arguments of a collective operation, checked.
pub(crate) struct Prepared {
    /// The name of the method, and the types that it compares among the ranks.
    pub(crate) call: &'static str,
    pub(crate) types: Types,
    pub(crate) plan: Plan,
    /// The size of an element in bytes.
    pub(crate) element: usize,
    /// The numbers of bytes at the start of the input and of the output that the operation uses.
    pub(crate) used: [usize; 2],
    pub(crate) scratch: Memory,
    pub(crate) reduce: Reduction,
    /// The layouts of the messages, if the call has layouts.
    pub(crate) layouts: Option<Arc<Layouts>>,
    /// The error if this rank does not know if the members share a board. The plan is then one for messages, and an
    /// operation that begins now must be given up.
    pub(crate) settled: Result<(), Error>,
}

impl Prepared {
    /// Returns the error in `settled`.
    pub(crate) fn settled(self) -> Result<Self, Error> {
        match self.settled {
            Ok(()) => Ok(self),
            Err(error) => Err(error),
        }
    }
}

/// A collective operation that is prepared once and started any number of times (MPI 4.1, section 6.13). Made by
/// [`Comm::allreduce_init`] and similar calls.
///
/// It owns its buffers, and is *inactive* at first. [`start`](Self::start) begins a round. When [`wait`](Self::wait) or
/// [`test`](Self::test) has returned the result, the operation is inactive again, and its buffers can be changed. Each
/// start counts as a collective call: all ranks start their operations, and make their other collective calls on the
/// communicator, in the same order. The time-out of its `Comm` applies to each round, from its start.
///
/// ```
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// use samite::reduction::Sum;
///
/// let mut sum = comm.allreduce_init(vec![0u64; 2], vec![0; 2], Sum)?;
/// for round in 0..10 {
///     sum.input_mut()?.copy_from_slice(&[round, comm.rank().0.into()]);
///     sum.start()?;
///     // Compute here.
///     sum.wait()?;
///     assert_eq!(*sum.output()?, [3 * round, 3]);
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// Dropping an active operation gives up its round, like dropping a [`Request`].
pub struct PersistentCollective<I: Held, O: Held> {
    comm: Comm,
    called: Called,
    plan: Plan,
    element: usize,
    /// See [`Prepared::used`].
    used: [usize; 2],
    reduce: Reduction,
    layouts: Option<Arc<Layouts>>,
    round: Round<I, O>,
}

/// A started nonblocking operation with these buffers, or the error with the buffers.
pub(crate) type Started<I, O> = Result<Request<(I, O)>, Failed<(I, O)>>;

/// The state of a persistent collective operation.
enum Round<I, O> {
    /// Inactive, with the scratch buffer of the next round.
    Inactive(I, O, Memory),
    UnderWay(RequestId, Arc<AtEnd>),
    /// The round has succeeded at its start, because no rank had to be waited for. Its result was not taken. It has the
    /// scratch buffer too.
    Ended(I, O, Memory),
    /// Inactive, and the buffers are lost, because the runtime ended during a round.
    Lost,
}

impl<I: Held, O: Held> PersistentCollective<I, O> {
    #[track_caller]
    pub(crate) fn new(comm: Comm, prepared: Prepared, input: I, output: O) -> Self {
        let Prepared { call, types, plan, element, used, scratch, reduce, layouts, settled: _ } = prepared;
        let called = Called { call, types, site: Location::caller() };
        Self {
            comm,
            called,
            plan,
            element,
            used,
            reduce,
            layouts,
            round: Round::Inactive(input, output, scratch),
        }
    }

    /// Starts a round. The time-out applies from this call on.
    ///
    /// # Errors
    /// [`Error::Active`] if the result of the latest round was not taken; [`Error::WrongLength`] if a buffer has become
    /// too short; [`Error::BufferKept`], [`Error::Closed`], [`Error::Forked`]. After an error no round was
    /// started.
    pub fn start(&mut self) -> Result<(), Error> {
        let started = self.start_round();
        self.comm.handle_result("PersistentCollective::start", started)
    }

    /// Waits until the round has ended. The operation is inactive afterwards.
    ///
    /// # Errors
    /// [`Error::Inactive`] if no round was started, and the errors of [`Comm::barrier`].
    ///
    /// # Panics
    /// If the reduction has panicked, with the same payload.
    pub fn wait(&mut self) -> Result<(), Error> {
        let end = match self.round {
            Round::UnderWay(id, _) => {
                let completion = self.comm.runtime.finish(id, &mut (), &self.comm.bounds);
                self.end(completion).map(drop)
            }
            _ => self.end(None).map(drop),
        };
        self.comm.handle_result("PersistentCollective::wait", end)
    }

    /// Makes progress, and returns the result once the round has ended; `None` while it is under way.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). After an error of the runtime itself the round is still under way.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<(), Error>> {
        let end = match self.round {
            Round::UnderWay(id, _) => match self.comm.runtime.test(id, &mut (), &self.comm.bounds) {
                Ok(Poll::Pending) => return None,
                Ok(Poll::Ready(completion)) => self.end(completion).map(drop),
                Err(error) => Err(self.comm.local_error(error)),
            },
            _ => self.end(None).map(drop),
        };
        Some(self.comm.handle_result("PersistentCollective::test", end))
    }

    /// Gives up the round if one is under way; [`wait`](Self::wait) returns the result. See [`Request::cancel`].
    pub fn cancel(&self) {
        if let Round::UnderWay(id, _) = self.round
            && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.cancel(id);
        }
    }

    /// Returns a request for the round, which owns this operation until the round ends and then returns it, ready to be
    /// started again. Such requests can be in a [`RequestSet`](crate::RequestSet) beside other requests, and can be
    /// awaited.
    ///
    /// If no round was started, the request ends at once with [`Error::Inactive`]. A dropped request drops the
    /// operation.
    pub fn into_request(self) -> Request<Self> {
        Request::of_round(self.comm.clone(), self.round.request(), Kept::new(self))
    }

    /// Returns true if a round was started whose result was not taken.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.round, Round::UnderWay(..) | Round::Ended(..))
    }

    /// Returns the input of an inactive operation.
    ///
    /// # Errors
    /// [`Error::Active`], [`Error::BufferKept`].
    pub fn input(&self) -> Result<&I, Error> {
        match &self.round {
            Round::Inactive(input, ..) => Ok(input),
            other => Err(self.refuse("input", other.refusal("input"))),
        }
    }

    /// Returns the input of an inactive operation for changes. It must not become shorter.
    ///
    /// # Errors
    /// [`Error::Active`], [`Error::BufferKept`].
    pub fn input_mut(&mut self) -> Result<&mut I, Error> {
        match &mut self.round {
            Round::Inactive(input, ..) => Ok(input),
            other => {
                Err(self.comm.handle_error("PersistentCollective::input_mut", other.refusal("input_mut")))
            }
        }
    }

    /// Returns the output of an inactive operation: the data of a broadcast, and the data of an operation in place.
    ///
    /// # Errors
    /// [`Error::Active`], [`Error::BufferKept`].
    pub fn output(&self) -> Result<&O, Error> {
        match &self.round {
            Round::Inactive(_, output, _) => Ok(output),
            other => Err(self.refuse("output", other.refusal("output"))),
        }
    }

    /// Returns the output of an inactive operation for changes. It must not become shorter.
    ///
    /// # Errors
    /// [`Error::Active`], [`Error::BufferKept`].
    pub fn output_mut(&mut self) -> Result<&mut O, Error> {
        match &mut self.round {
            Round::Inactive(_, output, _) => Ok(output),
            other => {
                Err(self.comm.handle_error("PersistentCollective::output_mut", other.refusal("output_mut")))
            }
        }
    }

    #[cold]
    fn refuse(&self, call: &str, error: Error) -> Error {
        self.comm.raise(&format!("PersistentCollective::{call}"), &error);
        error
    }

    /// Returns the request of a nonblocking operation, which is the only round of this operation.
    pub(crate) fn into_only_request(self) -> Request<(I, O)> {
        Request::of_round(self.comm.clone(), self.round.request(), Kept::new(self))
    }

    /// Returns the buffers of an inactive operation, unless they are lost.
    pub(crate) fn into_buffers(mut self) -> Option<(I, O)> {
        match std::mem::replace(&mut self.round, Round::Lost) {
            Round::Inactive(input, output, _) => Some((input, output)),
            _ => None,
        }
    }

    /// Ends the round, whose request, if it has one, has ended with `completion`.
    ///
    /// # Panics
    /// If the reduction has panicked, with the same payload.
    fn end(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
        let at_end = match std::mem::replace(&mut self.round, Round::Lost) {
            Round::UnderWay(_, at_end) => at_end,
            Round::Ended(input, output, scratch) => {
                self.round = Round::Inactive(input, output, scratch);
                return Ok(Status { peer: self.comm.rank(), tag: 0, bytes: self.used[1] });
            }
            other => {
                self.round = other;
                return Err(Error::Inactive);
            }
        };
        let ended = result_of::<O>(self.comm.derived.as_deref(), completion, |_| {});
        let (result, output) = match ended {
            Ok(Done { buffer, status }) => (Ok(status), Some(buffer)),
            Err(Failed { error, buffer }) => (Err(error), buffer),
        };
        let Some(EndValues { input, scratch, panic }) = at_end.take() else { return result };
        if let (Some(output), Ok(input)) = (output, I::of_memory(input)) {
            self.round = Round::Inactive(input, output, scratch);
        }
        match panic {
            Some(payload) => resume_unwind(payload),
            None => result,
        }
    }

    /// Checks that the buffers, which the program may have changed, contain the bytes that the operation uses.
    fn check_lengths(&self, [input, output]: [usize; 2]) -> Result<(), Error> {
        let call = "PersistentCollective::start";
        let sizes = [I::element_bytes(), O::element_bytes()].map(|size| size.unwrap_or(1).max(1));
        let buffers = [("input", input, self.used[0]), ("output", output, self.used[1])];
        for ((what, len, used), size) in buffers.into_iter().zip(sizes) {
            if len < used {
                let (len, expected) = (len / size, used / size);
                return Err(Error::WrongLength { call, what, len, expected });
            }
        }
        Ok(())
    }

    /// Returns the input of a round that begins with these buffers, and the numbers of bytes of the input and the
    /// output that it uses. If the operation works in place and has layouts, the input is a copy of the sent messages.
    fn input_of_round(&self, input: Memory, output: &Memory) -> (Memory, Result<[usize; 2], Error>) {
        if let Err(error) = self.check_lengths([input.len(), output.len()]) {
            return (input, Err(error));
        }
        match self.layouts.as_deref().filter(|layouts| layouts.is_in_place()) {
            None => (input, Ok(self.used)),
            Some(layouts) => match packed(layouts, output.as_bytes()) {
                Ok(packed) => (Memory::new(packed), Ok([layouts.received_bytes(), self.used[1]])),
                Err(error) => (input, Err(error)),
            },
        }
    }

    /// Starts a round, or gives it up at its start for this reason.
    pub(crate) fn start_settled(&mut self, settled: Result<(), Error>) -> Result<(), Error> {
        match std::mem::replace(&mut self.round, Round::Lost) {
            Round::Inactive(input, output, scratch) => {
                self.begin(input.into_memory(), output.into_memory(), scratch, settled)
            }
            other => {
                self.round = other;
                Err(self.round.refusal("start"))
            }
        }
    }

    /// Begins a round with these buffers.
    fn begin(
        &mut self,
        input: Memory,
        output: Memory,
        scratch: Memory,
        settled: Result<(), Error>,
    ) -> Result<(), Error> {
        let (input, lens) = self.input_of_round(input, &output);
        let buffers = OwnedBuffers {
            input,
            output,
            scratch,
            lens: *lens.as_ref().unwrap_or(&self.used),
            reduce: Arc::clone(&self.reduce),
            layouts: self.layouts.clone(),
        };
        let started = match (lens, settled) {
            (Ok(_), Ok(())) => self.comm.start_owned(self.called, &self.plan, self.element, buffers),
            (Ok(_), Err(error)) => Err(self.comm.give_up_owned(&self.plan, self.element, buffers, error)),
            (Err(error), _) => Err(Box::new((error, buffers))),
        };
        match started {
            Ok(Nonblocking::UnderWay(id, at_end)) => {
                self.round = Round::UnderWay(id, at_end);
                Ok(())
            }
            Ok(Nonblocking::Ended(OwnedBuffers { input, output, scratch, .. })) => {
                if let (Ok(input), Ok(output)) = (I::of_memory(input), O::of_memory(output)) {
                    self.round = Round::Ended(input, output, scratch);
                }
                Ok(())
            }
            Err(refused) => {
                let (error, OwnedBuffers { input, output, scratch, .. }) = *refused;
                if let (Ok(input), Ok(output)) = (I::of_memory(input), O::of_memory(output)) {
                    self.round = Round::Inactive(input, output, scratch);
                }
                Err(error)
            }
        }
    }
}

/// Returns the messages that are in an output with layouts.
///
/// # Errors
/// [`Error::Exhausted`].
pub(crate) fn packed(layouts: &Layouts, output: &[u8]) -> Result<Vec<u8>, Error> {
    let mut packed = u8::new_vec_zeroed(layouts.received_bytes()).map_err(|_| Error::Exhausted {
        what: "memory for a copy of the blocks of a collective call in place",
        hint: "pass an input and an output".into(),
    })?;
    layouts.pack(output, &mut packed);
    Ok(packed)
}

impl<I, O> Round<I, O> {
    fn request(&self) -> Option<RequestId> {
        match self {
            Self::UnderWay(id, _) => Some(*id),
            Self::Inactive(..) | Self::Ended(..) | Self::Lost => None,
        }
    }

    /// Returns the error of a call that needs the buffers while the operation does not hold them.
    #[cold]
    fn refusal(&self, call: &'static str) -> Error {
        match self {
            Self::Lost => Error::BufferKept,
            _ => Error::Active { call },
        }
    }
}

impl Comm {
    /// Begins a collective operation that owns its buffers, and returns its request.
    pub(crate) fn begin_owned(
        &self,
        called: Called,
        plan: &Plan,
        element: usize,
        buffers: OwnedBuffers,
    ) -> Result<RequestId, Box<(Error, OwnedBuffers)>> {
        let check = self.check_of(called, plan);
        let operation = self.operation(plan, element, buffers, check, None);
        self.runtime.begin_collective(self.derived.as_deref(), operation, &self.bounds)
    }

    /// Begins a collective operation and gives it up, so that the other ranks learn that this rank does not take part.
    /// Returns the reason and the buffers.
    #[cold]
    pub(crate) fn give_up_owned(
        &self,
        plan: &Plan,
        element: usize,
        mut buffers: OwnedBuffers,
        error: Error,
    ) -> Box<(Error, OwnedBuffers)> {
        let operation = self.operation(plan, element, &mut buffers, None, None);
        let error = self.runtime.give_up_collective(self.derived.as_deref(), operation, error);
        Box::new((error, buffers))
    }

    /// Begins a collective operation that owns its buffers. It has no request if it succeeds at once.
    #[inline]
    fn start_owned(
        &self,
        called: Called,
        plan: &Plan,
        element: usize,
        buffers: OwnedBuffers,
    ) -> Result<Nonblocking, Box<(Error, OwnedBuffers)>> {
        let check = self.check_of(called, plan);
        let operation = self.operation(plan, element, buffers, check, None);
        self.runtime.start_collective(self.derived.as_deref(), operation, &self.bounds)
    }
}

impl<I: Held, O: Held> Persistent for PersistentCollective<I, O> {}

impl<I: Held, O: Held> Sealed for PersistentCollective<I, O> {
    fn start_round(&mut self) -> Result<(), Error> {
        self.start_settled(Ok(()))
    }

    fn check_inactive(&self, call: &'static str) -> Result<(), Error> {
        match &self.round {
            Round::Inactive(..) => Ok(()),
            other => Err(other.refusal(call)),
        }
    }

    fn comm(&self) -> &Comm {
        &self.comm
    }
}

impl<I: Held, O: Held> Operation for PersistentCollective<I, O> {
    fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
        self.end(completion)
    }
}

returned!(PersistentCollective<I: Held, O: Held>);

/// The input and the output of a nonblocking collective operation.
impl<I: Held, O: Held> Returned for (I, O) {
    type Kept = Kept<PersistentCollective<I, O>>;

    fn end(
        kept: Self::Kept,
        _: Option<&Derived>,
        completion: Option<Completion>,
        report: impl FnOnce(&Error),
    ) -> Result<Done<Self>, Failed<Self>> {
        match kept.end(completion, report) {
            Ok(Done { buffer, status }) => {
                let buffer = buffer.into_buffers().expect("a round that succeeds gives back its buffers");
                Ok(Done { buffer, status })
            }
            Err(Failed { error, buffer }) => {
                Err(Failed { error, buffer: buffer.and_then(PersistentCollective::into_buffers) })
            }
        }
    }
    fn erase(kept: Self::Kept) -> AnyOperation {
        kept.erase()
    }
    fn of_any(any: AnyBuffer) -> Result<Self, AnyBuffer> {
        let operation = any.into_operation::<PersistentCollective<I, O>>()?;
        match operation.round {
            Round::Inactive(..) => {
                Ok(operation.into_buffers().expect("an inactive operation has its buffers"))
            }
            Round::UnderWay(..) | Round::Ended(..) | Round::Lost => Err(AnyBuffer::of_operation(operation)),
        }
    }
    fn operation(kept: &Self::Kept) -> Option<&dyn std::any::Any> {
        kept.operation()
    }
}

impl<I: Held, O: Held> Drop for PersistentCollective<I, O> {
    fn drop(&mut self) {
        if let Round::UnderWay(id, _) = self.round {
            self.comm.runtime.forget(id);
        }
    }
}

impl<I: Held, O: Held> fmt::Debug for PersistentCollective<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PersistentCollective");
        debug.field("plan", &self.plan).field("is_active", &self.is_active()).finish_non_exhaustive()
    }
}
