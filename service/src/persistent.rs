//! Persistent operations: prepared once, started any number of times.

use std::task::Poll;

use samite_fabric::Memory;
use samite_p2p::{Pattern, RequestId, WorldRank};

use crate::buffer::{Buffer, BufferMut};
use crate::error::Public;
use crate::owned::{Kept, Operation, returned};
use crate::request::{Done, Failed, Request, result_of};
use crate::runtime::Completion;
use crate::select::{Destination, Rank, Source, Tag};
use crate::{Comm, Error, Status};

/// A send that is prepared once and started any number of times (`MPI_Send_init`; MPI 4.1, section 3.9). Made by
/// [`Comm::send_init`].
///
/// A persistent send owns its buffer, and is *inactive* at first. [`start`](Self::start) makes it *active* and begins a
/// round, which sends the present contents of the buffer. When [`wait`](Self::wait) or [`test`](Self::test) has
/// returned the result, the send is inactive again. Between two rounds the buffer can be changed. The time-out of its
/// `Comm` applies to each round, from its start.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// let other = samite::Rank(1 - comm.rank().0);
/// let mut send = comm.send_init(vec![0u32; 4], other, 7)?;
/// let mut receive = comm.recv_init(vec![0u32; 4], other, 7)?;
/// for round in 0..10 {
///     send.buffer_mut()?.fill(round);
///     samite::start_all(&mut [&mut receive, &mut send])?;
///     // Compute here.
///     receive.wait()?;
///     send.wait()?;
///     assert_eq!(*receive.buffer()?, [round; 4]);
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// Dropping an active send cancels its round, like dropping a [`Request`](crate::Request).
#[derive(Debug)]
pub struct PersistentSend<B: Buffer> {
    comm: Comm,
    /// The destination's rank in the communicator, and its rank in the job. `None` if the destination is absent.
    to: Option<(Rank, WorldRank)>,
    tag: u64,
    round: Round<B>,
}

/// A receive that is prepared once and started any number of times (`MPI_Recv_init`). Made by [`Comm::recv_init`]. See
/// [`PersistentSend`].
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let mut receive = comm.recv_init(vec![0u8; 3], comm.rank(), 7)?;
/// for round in 0..3 {
///     receive.start()?;
///     comm.send(&[round; 2], comm.rank(), 7)?;
///     let status = receive.wait()?;
///     assert_eq!(receive.buffer()?[..status.bytes], [round; 2]);
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// The buffer is not accessible during a round:
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let mut receive = comm.recv_init(vec![0u8], comm.rank(), 7)?;
/// receive.start()?;
/// assert!(matches!(receive.buffer(), Err(samite::Error::Active { .. })));
/// assert!(matches!(receive.start(), Err(samite::Error::Active { call: "start" })));
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
/// A reference to the buffer cannot be used after the next start:
///
/// ```compile_fail,E0502
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let mut receive = comm.recv_init(vec![0u8], comm.rank(), 7)?;
/// let before = receive.buffer()?;
/// receive.start()?;
/// assert_eq!(*before, [0]);
/// # Ok::<(), samite::Error>(())
/// # });
/// ```
#[derive(Debug)]
pub struct PersistentRecv<B: BufferMut> {
    comm: Comm,
    /// The pattern of the messages that the receive accepts; `None` if its source is absent.
    pattern: Option<Pattern>,
    tag: u64,
    round: Round<B>,
}

/// The state of a persistent operation.
#[derive(Debug)]
enum Round<B> {
    Inactive(B),
    /// Active. The round has ended, and the caller has not taken the result: the memory of the buffer, and the status.
    Ended(Memory, Status),
    /// Active: the request of the round is under way.
    UnderWay(RequestId),
    /// Inactive, and a peer or a port may still access the buffer.
    Kept,
}

/// A persistent send or receive, for calls that mix them: [`start_all`]. Implemented by [`PersistentSend`] and
/// [`PersistentRecv`] alone.
pub trait Persistent: Sealed {}

/// The part of [`Persistent`] that other crates cannot implement.
pub trait Sealed {
    #[doc(hidden)]
    fn start_round(&mut self) -> Result<(), Error>;
    #[doc(hidden)]
    fn check_inactive(&self, call: &'static str) -> Result<(), Error>;
    #[doc(hidden)]
    fn comm(&self) -> &Comm;
}

/// Starts several persistent operations, in the order of the slice (`MPI_Startall`).
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let mut send = comm.send_init(vec![1u8], comm.rank(), 7)?;
/// let mut receive = comm.recv_init(vec![0.0; 4], None, 8)?;
/// samite::start_all(&mut [&mut receive, &mut send])?;
/// assert_eq!(comm.recv_vec::<u8>(comm.rank(), 7)?.buffer, [1]);
/// # send.wait()?;
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// # Errors
/// [`Error::Active`] or [`Error::BufferKept`] if one of the operations is not ready to start: then none was started.
/// After any other error of [`PersistentSend::start`], the operations before the failed one in the slice are active,
/// and the failed one and those after it are not.
pub fn start_all(operations: &mut [&mut dyn Persistent]) -> Result<(), Error> {
    let call = "start_all";
    operations
        .iter()
        .try_for_each(|operation| operation.comm().handle_result(call, operation.check_inactive(call)))?;
    operations.iter_mut().try_for_each(|operation| {
        let started = operation.start_round();
        operation.comm().handle_result(call, started)
    })
}

impl Comm {
    /// Prepares a send of `buffer`: see [`PersistentSend`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn send_init<B: Buffer>(
        &self,
        buffer: B,
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<PersistentSend<B>, Error> {
        let to = to.into().0.map(|to| self.check_rank(to).and_then(|()| Ok((to, self.world_rank(to)?))));
        let to = self.handle_result("send_init", to.transpose())?;
        Ok(PersistentSend { comm: self.clone(), to, tag, round: Round::Inactive(buffer) })
    }

    /// Prepares a receive into `buffer`: see [`PersistentRecv`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn recv_init<B: BufferMut>(
        &self,
        buffer: B,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<PersistentRecv<B>, Error> {
        let (from, tag) = (from.into(), tag.into());
        let checked = from.rank().map_or(Ok(()), |rank| self.check_rank(rank));
        let pattern =
            self.handle_result("recv_init", checked.and_then(|()| self.pattern("recv_init", from, tag)))?;
        Ok(PersistentRecv { comm: self.clone(), pattern, tag: tag.tag, round: Round::Inactive(buffer) })
    }
}

macro_rules! operation {
    ($name:ident, $buffer:ident, $named:literal) => {
        impl<B: $buffer> $name<B> {
            /// Starts a round. The time-out applies from this call on.
            ///
            /// # Errors
            /// [`Error::Active`] if the result of the latest round was not taken, [`Error::BufferKept`],
            /// [`Error::PeerFailed`], [`Error::Exhausted`], [`Error::Closed`], [`Error::Forked`]. After an error no
            /// round was started.
            pub fn start(&mut self) -> Result<(), Error> {
                let started = self.start_round();
                self.comm.handle_result(concat!($named, "::start"), started)
            }

            /// Waits until the round has ended. The operation is inactive afterwards.
            ///
            /// # Errors
            /// [`Error::Inactive`] if no round was started. Otherwise the errors of the nonblocking operation: see
            /// [`Request::wait`](crate::Request::wait).
            pub fn wait(&mut self) -> Result<Status, Error> {
                let end = self.round.wait(&self.comm);
                self.comm.handle_result(concat!($named, "::wait"), end)
            }

            /// Makes progress, and returns the result once the round has ended; `None` while it is under way.
            ///
            /// # Errors
            /// As [`wait`](Self::wait). After [`Error::FailurePending`], and after an error of the runtime itself, the
            /// round is still under way: see [`Request::test`](crate::Request::test).
            #[must_use = "a result is returned once"]
            pub fn test(&mut self) -> Option<Result<Status, Error>> {
                let end = self.round.test(&self.comm)?;
                Some(self.comm.handle_result(concat!($named, "::test"), end))
            }

            /// Cancels the round if one is under way; [`wait`](Self::wait) returns the result. See
            /// [`Request::cancel`](crate::Request::cancel).
            pub fn cancel(&self) {
                if let Round::UnderWay(id) = self.round
                    && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
                {
                    call.cancel(id);
                }
            }

            /// Returns a request for the round, which owns this operation until the round ends and then returns it,
            /// ready to be started again. Such requests can be in a [`RequestSet`](crate::RequestSet) beside other
            /// requests (`MPI_Waitany` and its relatives; MPI 4.1, section 3.7.5), and can be awaited.
            ///
            /// If no round was started, the request ends at once with [`Error::Inactive`]. A dropped request drops the
            /// operation.
            ///
            /// ```
            /// # samite::local(2, |world| {
            /// # let comm = world.comm();
            /// let other = samite::Rank(1 - comm.rank().0);
            /// let mut send = comm.send_init(vec![0u32; 4], other, 7)?;
            /// let mut receive = comm.recv_init(vec![0u32; 4], other, 7)?;
            /// let mut set = comm.request_set();
            /// for round in 0..10 {
            ///     send.buffer_mut()?.fill(round);
            ///     samite::start_all(&mut [&mut receive, &mut send])?;
            ///     set.insert(receive.into_request()).expect("a request of this world");
            ///     send.wait()?;
            ///     let (_key, end) = set.wait_any().expect("the round of the receive");
            ///     receive = end?.buffer;
            ///     assert_eq!(*receive.buffer()?, [round; 4]);
            /// }
            /// # Ok::<(), samite::Error>(())
            /// # }).into_iter().for_each(Result::unwrap);
            /// ```
            pub fn into_request(self) -> Request<Self> {
                let id = match self.round {
                    Round::UnderWay(id) => Some(id),
                    _ => None,
                };
                Request::of_round(self.comm.clone(), id, Kept::new(self))
            }

            /// Returns true if a round was started whose result was not taken.
            #[must_use]
            pub fn is_active(&self) -> bool {
                matches!(self.round, Round::Ended(..) | Round::UnderWay(_))
            }

            /// Returns the buffer of an inactive operation.
            ///
            /// # Errors
            /// [`Error::Active`], [`Error::BufferKept`].
            pub fn buffer(&self) -> Result<&B, Error> {
                match &self.round {
                    Round::Inactive(buffer) => Ok(buffer),
                    other => {
                        Err(self.comm.handle_error(concat!($named, "::buffer"), other.refusal("buffer")))
                    }
                }
            }

            /// Returns the buffer of an inactive operation for changes. The length of a `Vec` may change too.
            ///
            /// # Errors
            /// [`Error::Active`], [`Error::BufferKept`].
            pub fn buffer_mut(&mut self) -> Result<&mut B, Error> {
                match &mut self.round {
                    Round::Inactive(buffer) => Ok(buffer),
                    other => Err(self
                        .comm
                        .handle_world_error(concat!($named, "::buffer_mut"), other.refusal("buffer_mut"))),
                }
            }

            /// Replaces the buffer of an inactive operation, and returns the previous buffer. Returns `None` if the
            /// operation has lost the previous buffer: because a peer or a port may still access it, or because it is a
            /// [`CheckedVec`](crate::CheckedVec) that received an invalid value.
            ///
            /// # Errors
            /// [`Error::Active`].
            pub fn replace_buffer(&mut self, buffer: B) -> Result<Option<B>, Error> {
                if self.is_active() {
                    let error = Error::Active { call: "replace_buffer" };
                    return Err(self.comm.handle_world_error(concat!($named, "::replace_buffer"), error));
                }
                match std::mem::replace(&mut self.round, Round::Inactive(buffer)) {
                    Round::Inactive(last) => Ok(Some(last)),
                    _ => Ok(None),
                }
            }
        }

        impl<B: $buffer> Persistent for $name<B> {}

        impl<B: $buffer> Operation for $name<B> {
            fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
                match self.round {
                    Round::UnderWay(_) => self.round.end(&self.comm, completion),
                    _ => self.round.end_at_once(),
                }
            }
        }

        returned!($name<B: $buffer>);

        impl<B: $buffer> Drop for $name<B> {
            fn drop(&mut self) {
                if let Round::UnderWay(id) = self.round {
                    self.comm.runtime.forget(id);
                }
            }
        }
    };
}

operation!(PersistentSend, Buffer, "PersistentSend");
operation!(PersistentRecv, BufferMut, "PersistentRecv");

impl<B: Buffer> Sealed for PersistentSend<B> {
    #[inline]
    fn start_round(&mut self) -> Result<(), Error> {
        let Self { comm, to, tag, round } = self;
        let memory = round.take()?;
        let Some((to, rank)) = *to else { return round.end_absent(comm, memory, *tag) };
        let Some(mut call) = comm.runtime.enter(&comm.bounds) else {
            return round.refuse(memory, comm.runtime.refused());
        };
        let started = call.start(|engine, now, deadline| {
            if let Some(how) = comm.how("PersistentSend::start", || B::signature(&memory)) {
                let sent = engine.isend_with(how, now, rank, comm.context, *tag, memory, deadline);
                return sent.map(Round::UnderWay);
            }
            match engine.try_send(now, rank, comm.context, *tag, &memory) {
                Ok(true) => {
                    let status = Status { peer: to, tag: *tag, bytes: memory.len() };
                    Ok(Round::Ended(memory, status))
                }
                Ok(false) => {
                    engine.isend(now, rank, comm.context, *tag, memory, deadline).map(Round::UnderWay)
                }
                Err(error) => Err((error, memory)),
            }
        });
        round.begin(comm, started)
    }

    fn check_inactive(&self, call: &'static str) -> Result<(), Error> {
        self.round.check_inactive(call)
    }

    fn comm(&self) -> &Comm {
        &self.comm
    }
}

impl<B: BufferMut> Sealed for PersistentRecv<B> {
    #[inline]
    fn start_round(&mut self) -> Result<(), Error> {
        let Self { comm, pattern, tag, round } = self;
        let memory = round.take()?;
        let Some(pattern) = *pattern else { return round.end_absent(comm, memory, *tag) };
        let Some(mut call) = comm.runtime.enter(&comm.bounds) else {
            return round.refuse(memory, comm.runtime.refused());
        };
        let started = call.start(|engine, now, deadline| {
            let posted = match comm.typed("PersistentRecv::start", || B::signature(&memory)) {
                None => engine.irecv(now, pattern, memory, deadline),
                Some(typed) => engine.irecv_typed(typed, now, pattern, memory, deadline),
            };
            posted.map(Round::UnderWay)
        });
        round.begin(comm, started)
    }

    fn check_inactive(&self, call: &'static str) -> Result<(), Error> {
        self.round.check_inactive(call)
    }

    fn comm(&self) -> &Comm {
        &self.comm
    }
}

impl<B: Buffer> Round<B> {
    /// Takes the buffer out, to start a round with it.
    #[inline]
    fn take(&mut self) -> Result<Memory, Error> {
        match std::mem::replace(self, Self::Kept) {
            Self::Inactive(buffer) => Ok(buffer.into_memory()),
            other => {
                *self = other;
                Err(self.refusal("start"))
            }
        }
    }

    fn check_inactive(&self, call: &'static str) -> Result<(), Error> {
        match self {
            Self::Inactive(_) => Ok(()),
            other => Err(other.refusal(call)),
        }
    }

    /// Returns the error of a call that needs the buffer while the operation does not hold it.
    #[cold]
    fn refusal(&self, call: &'static str) -> Error {
        match self {
            Self::Kept => Error::BufferKept,
            _ => Error::Active { call },
        }
    }

    /// Puts the buffer back after a round could not be started.
    #[cold]
    fn refuse(&mut self, memory: Memory, error: Error) -> Result<(), Error> {
        self.take_back(Some(memory));
        Err(error)
    }

    /// Ends a round whose partner is absent.
    #[cold]
    fn end_absent(&mut self, comm: &Comm, memory: Memory, tag: u64) -> Result<(), Error> {
        match comm.absent(tag) {
            Ok(status) => {
                *self = Self::Ended(memory, status);
                Ok(())
            }
            Err(error) => self.refuse(memory, error),
        }
    }

    /// Begins a round, or puts the buffer back if the round could not be started.
    #[inline]
    fn begin(
        &mut self,
        comm: &Comm,
        started: Result<Self, (samite_p2p::Error, Memory)>,
    ) -> Result<(), Error> {
        match started {
            Ok(round) => {
                *self = round;
                Ok(())
            }
            Err((error, memory)) => self.refuse(memory, comm.local_error(error.public())),
        }
    }

    /// Makes the operation inactive, with its buffer if a peer or a port cannot access it any more.
    #[inline]
    fn take_back(&mut self, memory: Option<Memory>) {
        let buffer = memory.and_then(|memory| B::of_memory(memory).ok());
        *self = buffer.map_or(Self::Kept, Self::Inactive);
    }

    fn wait(&mut self, comm: &Comm) -> Result<Status, Error> {
        match *self {
            Self::UnderWay(id) => {
                let completion = comm.runtime.finish(id, &mut (), &comm.bounds);
                self.end(comm, completion)
            }
            _ => self.end_at_once(),
        }
    }

    fn test(&mut self, comm: &Comm) -> Option<Result<Status, Error>> {
        match *self {
            Self::UnderWay(id) => match comm.runtime.test(id, &mut (), &comm.bounds) {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(completion)) => Some(self.end(comm, completion)),
                Err(error) => Some(Err(comm.local_error(error))),
            },
            _ => Some(self.end_at_once()),
        }
    }

    /// Ends a round whose result is known already, without a call of the engine.
    #[inline]
    fn end_at_once(&mut self) -> Result<Status, Error> {
        match std::mem::replace(self, Self::Kept) {
            Self::Ended(memory, status) => {
                self.take_back(Some(memory));
                Ok(status)
            }
            other => {
                *self = other;
                Err(Error::Inactive)
            }
        }
    }

    /// Returns the result of a round that has ended, and puts its buffer back.
    fn end(&mut self, comm: &Comm, completion: Option<Completion>) -> Result<Status, Error> {
        let (result, buffer) = match result_of::<B>(comm.derived.as_deref(), completion, |_| {}) {
            Ok(Done { buffer, status }) => (Ok(status), Some(buffer)),
            Err(Failed { error, buffer }) => (Err(error), buffer),
        };
        *self = buffer.map_or(Self::Kept, Self::Inactive);
        result
    }
}
