//! Requests that own their buffers.

use std::marker::PhantomData;
use std::task::Poll;

use samite_fabric::mem::Element;
use samite_fabric::{Memory, Port};
use samite_p2p::{Completion, Engine, Error, Lent, Reading, RequestId, Status, Writing};

use crate::Comm;

/// A send or receive under way that owns its buffer. A forgotten request leaks, and never dangles; a dropped one is
/// cancelled if possible.
#[derive(Debug)]
#[must_use = "a request that is dropped is cancelled"]
pub struct Request<T: Element> {
    comm: Comm,
    /// `None` once collected.
    id: Option<RequestId>,
    completion: Option<Completion>,
    element: PhantomData<fn() -> T>,
}

/// Checks that a message is made of whole elements of this size.
#[inline(always)]
pub(crate) fn whole(status: Status, element: usize) -> Result<Status, Error> {
    match element > 1 && !status.bytes.is_multiple_of(element) {
        false => Ok(status),
        true => Err(Error::PartialElement { status, element }),
    }
}

/// The result of a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<T> {
    /// The message: with the source of a receive, or the destination of a send.
    pub status: Status,
    /// The buffer. After a receive, the message is at its beginning.
    pub buffer: Vec<T>,
}

/// The result of a request that failed.
#[derive(Clone, thiserror::Error)]
#[error("{error}")]
pub struct Failed<T> {
    /// The reason.
    #[source]
    pub error: Error,
    /// The buffer, unless a peer or a port may still access it: then it is freed when that is over.
    pub buffer: Option<Vec<T>>,
}

impl<T: Element> Failed<T> {
    pub(crate) fn new(error: Error, memory: Option<Memory>) -> Self {
        Self { error, buffer: memory.and_then(|memory| memory.into_vec().ok()) }
    }
}

impl<T> std::fmt::Debug for Failed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.error, f)
    }
}

impl<T> From<Failed<T>> for Error {
    fn from(failed: Failed<T>) -> Self {
        failed.error
    }
}

impl<T: Element> Request<T> {
    pub(crate) fn new(comm: Comm, id: RequestId) -> Self {
        Self { comm, id: Some(id), completion: None, element: PhantomData }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// As the operation. A receive from any source ends with [`Error::FailurePending`] at a failure that was not
    /// reported before; use [`is_done`](Self::is_done) instead to let it continue.
    pub fn wait(mut self) -> Result<Done<T>, Failed<T>> {
        let Self { comm, id, completion, .. } = &mut self;
        let completion = completion.take().or_else(|| comm.runtime.finish(id.take()?, &mut (), &comm.bounds));
        result_of(completion)
    }

    /// Makes progress. Returns true if the request has ended: then [`wait`](Self::wait) does not wait.
    ///
    /// # Errors
    /// [`Error::FailurePending`] once for each failure that a receive from any source must report; the
    /// receive continues.
    pub fn is_done(&mut self) -> Result<bool, Error> {
        if let Some(id) = self.id
            && let Poll::Ready(completion) = self.comm.runtime.test(id, &mut ())?
        {
            (self.id, self.completion) = (None, completion);
        }
        Ok(self.id.is_none())
    }

    /// Cancels it; [`wait`](Self::wait) returns the result. A send ends at once, unless the network may be reading
    /// its buffer: then it waits for its receiver's answer. A receive that was matched runs to its end.
    pub fn cancel(&self) {
        if let Some(id) = self.id
            && let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.start(|engine, _, _| engine.cancel(id));
        }
    }
}

impl<T: Element> Drop for Request<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.comm.runtime.forget(id);
        }
    }
}

/// Returns the result of an owned request that has ended.
fn result_of<T: Element>(completion: Option<Completion>) -> Result<Done<T>, Failed<T>> {
    let Some(completion) = completion else {
        return Err(Failed { error: Error::NoSuchRequest, buffer: None });
    };
    match completion.result {
        Ok(status) => {
            if let Err(error) = whole(status, size_of::<T>()) {
                return Err(Failed::new(error, completion.memory));
            }
            let buffer = completion.memory.and_then(|memory| memory.into_vec().ok());
            buffer
                .map(|buffer| Done { status, buffer })
                .ok_or(Failed { error: Error::NoSuchRequest, buffer: None })
        }
        Err(error) => Err(Failed::new(error, completion.memory)),
    }
}

/// The requests of one lender, of which one is awaited.
pub(crate) trait Group: Lent {
    /// Returns the request that ended first, with which the wait ends. Asked after every poll. `None` if the group does
    /// not keep the order of ends.
    #[inline]
    fn first<P: Port>(&mut self, _engine: &mut Engine<P>) -> Option<RequestId> {
        None
    }

    /// Returns another request that has ended, with which the wait ends too. Asked now and then. `None` if one request
    /// is waited for alone.
    #[inline]
    fn ended<P: Port>(&mut self, _engine: &Engine<P>) -> Option<RequestId> {
        None
    }
}

mod set;

pub use set::RequestSet;

impl Group for () {}
impl Group for Reading<'_> {}
impl Group for Writing<'_> {}
