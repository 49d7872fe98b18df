//! Requests that own their buffers.

use std::mem;
use std::task::{Poll, Waker};

use samite_fabric::layout::Room;
use samite_fabric::{Memory, Port};
use samite_p2p::{Lent, Reading, RequestId, Writing};

use crate::buffer::Held;
use crate::comm::Derived;
use crate::owned::{AnyBuffer, Owned};
use crate::runtime::{Completion, Entry};
use crate::stack::Engine;
use crate::{Comm, Error, Status};

/// A send or receive under way that owns its buffer, or a round that owns its persistent or partitioned operation. A
/// request that is forgotten leaks its buffer, and leaves no dangling reference. A request that is dropped is cancelled
/// if possible.
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let mut request = comm.irecv(vec![0u8; 1], comm.rank(), 7)?;
/// assert!(request.test().is_none(), "no message was sent");
/// comm.send(&[5u8], comm.rank(), 7)?;
/// assert_eq!(request.wait()?.buffer, [5]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// A round of a persistent or partitioned operation becomes a request by
/// [`into_request`](crate::PersistentSend::into_request). Its result returns the operation in place of a buffer, after
/// an error too, and the operation can be started again. Requests for rounds can be in a [`RequestSet`], can be
/// awaited, and can have a callback, as other requests.
#[derive(Debug)]
#[must_use = "a request that is dropped is cancelled"]
pub struct Request<B: Owned> {
    comm: Comm,
    /// `None` once its result was returned, and for a round that ended when it was started.
    id: Option<RequestId>,
    kept: B::Kept,
}

/// Checks that a message is made of whole elements of this size.
#[inline(always)]
pub(crate) fn whole(status: Status, element: usize) -> Result<Status, Error> {
    match element > 1 && !status.bytes.is_multiple_of(element) {
        false => Ok(status),
        true => Err(Error::PartialElement { status, element }),
    }
}

/// A message with the buffer that it was sent from or received into: the result of an operation that owns its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<B> {
    /// The buffer. After a receive, the message is at its beginning. A buffer that the receive has made, as in
    /// [`Comm::recv_vec`], has the length of the message. After a round, the operation.
    pub buffer: B,
    /// The message. For an operation of a window, for an epoch and for a collective call, `peer` is this rank, and `tag`
    /// is 0.
    pub status: Status,
}

/// The result of a request that failed.
#[derive(Clone, thiserror::Error)]
#[error("{error}")]
pub struct Failed<B> {
    /// The reason.
    #[source]
    pub error: Error,
    /// The buffer; `None` if a peer or a port may still access it. Such a buffer is freed when no access is possible
    /// any more. Also `None` for a [`CheckedVec`](crate::CheckedVec) that received an invalid value. After a round, the
    /// operation, which may have lost its buffer for the same reasons.
    pub buffer: Option<B>,
}

impl<B: Held> Failed<B> {
    pub(crate) fn new(error: Error, memory: Option<Memory>) -> Self {
        Self { error, buffer: memory.and_then(|memory| B::of_memory(memory).ok()) }
    }
}

impl<B> std::fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.error, f)
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}

impl<B: Held> Request<B> {
    /// Returns the request of an operation under way that owns a buffer.
    pub(crate) fn started(comm: Comm, id: RequestId) -> Self {
        Self { comm, id: Some(id), kept: () }
    }
}

impl<B: Owned> Request<B> {
    /// Returns the request for a round of an operation. `id` is `None` if the round has ended or was not started.
    pub(crate) fn of_round(comm: Comm, id: Option<RequestId>, kept: B::Kept) -> Self {
        Self { comm, id, kept }
    }

    /// Forgets the type of the buffer or operation, so that requests of different types can be in one
    /// [`RequestSet`]. [`AnyBuffer::downcast`] returns the buffer or operation with its type.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let mut set = comm.request_set();
    /// let receive = comm.irecv(vec![0u8; 3], comm.rank(), 7)?.into_any();
    /// let received = set.insert(receive).expect("a request of this world");
    /// let send = comm.isend(std::sync::Arc::<[u8]>::from([1, 2, 3]), comm.rank(), 7)?.into_any();
    /// set.insert(send).expect("a request of this world");
    /// while let Some((key, result)) = set.wait_any() {
    ///     let done = result?;
    ///     if key == received {
    ///         assert_eq!(done.buffer.downcast::<Vec<u8>>().unwrap(), [1, 2, 3]);
    ///     }
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn into_any(mut self) -> Request<AnyBuffer> {
        Request { comm: self.comm.clone(), id: self.id.take(), kept: B::erase(mem::take(&mut self.kept)) }
    }

    /// Returns the operation of the round, to mark or test partitions during the round. Returns `None` if the request
    /// owns no operation of type `O`, or if its result was returned.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use samite::PartitionedRecv;
    ///
    /// let mut send = comm.psend_init(vec![5u8, 6], 2, comm.rank(), 7)?;
    /// let mut receive = comm.precv_init(vec![0u8; 2], 2, comm.rank(), 7)?;
    /// send.start()?;
    /// receive.start()?;
    /// let mut receives = receive.into_request();
    /// send.ready(1..2)?;
    /// let receive = receives.operation::<PartitionedRecv<u8>>().expect("it is under way");
    /// while !receive.arrived(1..2)? {}
    /// assert_eq!(receive.partition(1)?, Some(&[6][..]));
    /// assert!(receives.test().is_none());
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub fn operation<O: Owned>(&self) -> Option<&O> {
        B::operation(&self.kept)?.downcast_ref()
    }

    /// Makes progress, and returns true if the request has ended, so that [`wait`](Self::wait) returns at once
    /// (`MPI_Request_get_status`; MPI 4.1, section 3.7.6). Unlike [`test`](Self::test) it does not take the result.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let Some(id) = self.id else { return true };
        // After an error of the runtime itself `wait` returns at once, so the request counts as ended.
        self.comm.runtime.has_ended(id, &self.comm.bounds).unwrap_or(true)
    }

    /// Calls `body` with the result. If the request has ended, this thread calls it at once. Otherwise it is called
    /// when the request ends, by the thread of the runtime that makes progress for futures, or by the thread that drops
    /// the [`World`](crate::World).
    ///
    /// `body` is called once. It may make any call of Samite, waiting calls included, but until it returns, the thread
    /// that calls it wakes no future of this `World`. If `body` calls `on_end` for a request that has ended, the
    /// function of that call runs after `body`, so a chain of such calls can have any length. If `body` panics in a
    /// thread of the runtime, the panic is reported, and the thread continues.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use std::sync::mpsc::channel;
    ///
    /// let (sender, lengths) = channel();
    /// comm.irecv(vec![0u8; 3], comm.rank(), 7)?.on_end(move |end| {
    ///     let _ = sender.send(end.map(|done| done.status.bytes));
    /// });
    /// comm.send(&[1u8, 2], comm.rank(), 7)?;
    /// assert_eq!(lengths.recv().expect("it is called")?, 2);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn on_end(self, body: impl FnOnce(Result<Done<B>, Failed<B>>) + Send + 'static) {
        self.into_future().call(body);
    }

    /// Returns the result if the request has ended. Otherwise `waker` is called when the request may have ended.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        call: Option<&'static str>,
        entry: &mut Entry,
        waker: &Waker,
    ) -> Poll<Result<Done<B>, Failed<B>>> {
        let Some(id) = self.id else { return Poll::Ready(self.end(call, None)) };
        let Comm { runtime, bounds, .. } = &self.comm;
        runtime.poll_end(id, entry, bounds, waker).map(|completion| self.end(call, completion))
    }

    /// Removes the waker that a poll has left in the runtime.
    pub(crate) fn end_task(&self, entry: &mut Entry) {
        self.comm.runtime.end_task(entry);
    }

    /// Returns the result of the request, which has ended. `call` is the name of the public call that returns it;
    /// without a name an error is not reported to the error handler.
    fn end(
        &mut self,
        call: Option<&'static str>,
        completion: Option<Completion>,
    ) -> Result<Done<B>, Failed<B>> {
        self.id = None;
        let kept = mem::take(&mut self.kept);
        let report = |error: &Error| call.into_iter().for_each(|call| self.comm.raise(call, error));
        B::end(kept, self.comm.derived.as_deref(), completion, report)
    }

    pub(crate) fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Waits until the request has ended.
    ///
    /// # Errors
    /// Returns the errors of the operation. A receive from any source ends with [`Error::FailurePending`] if a failure
    /// of a rank was not reported before; use [`test`](Self::test) instead to let the receive continue.
    pub fn wait(self) -> Result<Done<B>, Failed<B>> {
        self.wait_as("Request::wait")
    }

    #[inline(always)]
    pub(crate) fn wait_as(mut self, call: &'static str) -> Result<Done<B>, Failed<B>> {
        let completion = self.id.and_then(|id| self.comm.runtime.finish(id, &mut (), &self.comm.bounds));
        self.end(Some(call), completion)
    }

    /// Makes progress, and returns the result once the request has ended; `None` while it is under way. The result is
    /// returned once; later calls return [`Error::NoSuchRequest`].
    ///
    /// # Errors
    /// Returns the errors of the operation. A receive from any source returns [`Error::FailurePending`] once for each
    /// failure that it must report. After that error, and after an error of the runtime itself, the request is still
    /// under way: test it again, or wait for it. The error does not return the operation of a round that is still under
    /// way.
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<Done<B>, Failed<B>>> {
        self.test_as("Request::test")
    }

    #[inline(always)]
    pub(crate) fn test_as(&mut self, call: &'static str) -> Option<Result<Done<B>, Failed<B>>> {
        let Some(id) = self.id else { return Some(self.end(Some(call), None)) };
        match self.comm.runtime.test(id, &mut (), &self.comm.bounds) {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(completion)) => Some(self.end(Some(call), completion)),
            Err(error) => {
                Some(Err(Failed { error: self.comm.handle_world_error(call, error), buffer: None }))
            }
        }
    }

    /// Cancels the request; [`wait`](Self::wait) returns the result. A send ends at once, unless the network may be
    /// reading its buffer: then it waits for its receiver's answer. A receive that was matched continues.
    pub fn cancel(&self) {
        if let Some(id) = self.id
            && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.cancel(id);
        }
    }
}

impl<B: Owned> Drop for Request<B> {
    fn drop(&mut self) {
        // An operation abandons its round when it is dropped.
        if let Some(id) = self.id
            && B::operation(&self.kept).is_none()
        {
            self.comm.runtime.forget(id);
        }
    }
}

/// Returns the result of an owned request that has ended. The ranks in the result are those of the communicator. Calls
/// `report` with an error before it returns the error, because a check of the result afterwards would take 3 % of the
/// time of an await.
pub(crate) fn result_of<B: Held>(
    derived: Option<&Derived>,
    completion: Option<Completion>,
    report: impl FnOnce(&Error),
) -> Result<Done<B>, Failed<B>> {
    let Some(completion) = completion else {
        return Err(failed(Error::NoSuchRequest, None, report));
    };
    let result = match derived {
        None => completion.result,
        Some(derived) => derived.local(completion.result),
    };
    match result {
        Ok(status) => {
            // For a send this check never fails, since the message is as long as the sent data.
            let room = completion.memory.as_ref().map_or(status.bytes, Memory::len);
            let checked = derived.map_or(Ok(status), |derived| derived.exact(status, room));
            if let Err(error) = checked {
                return Err(failed(error, completion.memory, report));
            }
            let element = B::element_bytes().or_else(|| Some(completion.memory.as_ref()?.element_bytes()));
            if let Err(error) = whole(status, element.unwrap_or(1)) {
                return Err(failed(error, completion.memory, report));
            }
            let Some(memory) = completion.memory else {
                return Err(failed(Error::BufferKept, None, report));
            };
            match B::of_memory(memory) {
                Ok(buffer) => Ok(Done { buffer, status }),
                Err(memory) => Err(failed(B::refusal(&memory, status), None, report)),
            }
        }
        Err(error) => Err(failed(error, completion.memory, report)),
    }
}

#[cold]
fn failed<B: Held>(error: Error, memory: Option<Memory>, report: impl FnOnce(&Error)) -> Failed<B> {
    report(&error);
    Failed::new(error, memory)
}

/// One or more requests with lent buffers. The caller waits until any of them ends.
pub(crate) trait Awaiting: Lent {
    /// Returns the request that ended first; the wait then ends with it. Called after every poll. Returns `None` if no
    /// request has ended, or if the implementation does not record the order in which requests end.
    #[inline]
    fn first<P: Port>(&mut self, _engine: &mut Engine<P>) -> Option<RequestId> {
        None
    }

    /// Cancels the requests whose cancel token the program has cancelled, unless the requests of that token were
    /// cancelled before. Returns true if it has cancelled a token's requests. Called once after each burst of polls,
    /// when the caller reads the clock.
    #[inline]
    fn heed_cancels<P: Port>(&mut self, _engine: &mut Engine<P>) -> bool {
        false
    }

    /// Returns any request that has ended; the wait then ends with it. Called once after each burst of polls, because
    /// it may look at many requests. Returns `None` if no request has ended, or if the caller waits for one request
    /// only.
    #[inline]
    fn ended<P: Port>(&mut self, _engine: &Engine<P>) -> Option<RequestId> {
        None
    }
}

mod exchange;
mod set;

pub use exchange::{Exchange, ExchangeFailed, Exchanged};
pub use set::RequestSet;

impl Awaiting for () {}
impl Awaiting for Reading<'_> {}
impl<R: Room + ?Sized> Awaiting for Writing<'_, R> {}
