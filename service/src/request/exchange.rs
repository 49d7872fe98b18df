//! A send and a receive under way together.

use samite_fabric::Port;
use samite_p2p::{Lent, Outcome, RequestId};

use super::{Awaiting, Done, Failed, Request};
use crate::buffer::Buffer;
use crate::stack::Engine;
use crate::{Comm, Error, Status};

/// A send and a receive under way together, each with an owned buffer: made by
/// [`Comm::isendrecv`](crate::Comm::isendrecv). If the send or the receive fails, the other is cancelled. Dropping an
/// exchange cancels both, if possible.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// let other = samite::Rank(1 - comm.rank().0);
/// let exchange = comm.isendrecv(vec![comm.rank().0], other, 7, vec![0; 2], other, 7)?;
/// let exchanged = exchange.wait()?;
/// assert_eq!((exchanged.buffer[0], exchanged.status.bytes), (other.0, 4));
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Debug)]
#[must_use = "an exchange that is dropped is cancelled"]
pub struct Exchange<S: Buffer, R: Buffer> {
    /// The handle whose error handler gets the error of the exchange.
    comm: Comm,
    send: Half<S>,
    receive: Half<R>,
    /// The error of the operation that failed first.
    failed: Option<Error>,
}

/// The result of an [`Exchange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged<S, R> {
    /// The data that was sent.
    pub data: S,
    /// The buffer; the received message is at its beginning.
    pub buffer: R,
    /// The received message.
    pub status: Status,
}

/// The result of an [`Exchange`] of which the send or the receive failed. The other was cancelled, if it had not ended.
#[derive(Clone, thiserror::Error)]
#[error("{error}")]
pub struct ExchangeFailed<S, R> {
    /// The error of the operation that failed first.
    #[source]
    pub error: Error,
    /// The data to send. `None` if a peer or a port may still read it, as in [`Failed::buffer`].
    pub data: Option<S>,
    /// The buffer of the receive, with undefined contents. `None` if a peer or a port may still write to it.
    pub buffer: Option<R>,
}

impl<S, R> std::fmt::Debug for ExchangeFailed<S, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.error, f)
    }
}

impl<S, R> From<ExchangeFailed<S, R>> for Error {
    fn from(failed: ExchangeFailed<S, R>) -> Self {
        failed.error
    }
}

type End<S, R> = Result<Exchanged<S, R>, ExchangeFailed<S, R>>;

impl<S: Buffer, R: Buffer> Exchange<S, R> {
    /// Returns the exchange of a started receive and a send. If the send was not started, cancels the receive. Both
    /// requests were started on [`Comm::quiet`], since the exchange reports their errors.
    pub(crate) fn new(comm: Comm, send: Result<Request<S>, Failed<S>>, receive: Request<R>) -> Self {
        let (send, failed) = match send {
            Ok(request) => (Half::UnderWay(request), None),
            Err(failed) => (Half::Ended(failed.buffer, None), Some(failed.error)),
        };
        let exchange = Self { comm, send, receive: Half::UnderWay(receive), failed };
        if exchange.failed.is_some() {
            exchange.cancel();
        }
        exchange
    }

    /// Waits until the send and the receive have ended.
    ///
    /// # Errors
    /// The error of the operation that failed first: see [`Comm::send`](crate::Comm::send) and
    /// [`Comm::recv`](crate::Comm::recv).
    pub fn wait(mut self) -> End<S, R> {
        loop {
            let ids = [self.send.id(), self.receive.id()];
            let Some(id) = ids.into_iter().flatten().next() else {
                let end = self.end();
                return self.comm.handle_result("Exchange::wait", end);
            };
            let mut awaited = Either { ids, ended: id };
            let completion = self.comm.runtime.finish(id, &mut awaited, &self.comm.bounds);
            match ids[0] == Some(awaited.ended) {
                true => self.send.note(|request| request.end(None, completion), &mut self.failed),
                false => self.receive.note(|request| request.end(None, completion), &mut self.failed),
            }
            self.cancel_after_failure();
        }
    }

    /// Makes progress, and returns the result once the send and the receive have ended; `None` while one of them is
    /// under way. The result is returned once; later calls return [`Error::NoSuchRequest`].
    ///
    /// # Errors
    /// As [`wait`](Self::wait). After [`Error::FailurePending`], and after an error of the runtime itself, the exchange
    /// is still under way: see [`Request::test`].
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<End<S, R>> {
        let tested = self.send.test(&mut self.failed).and_then(|()| self.receive.test(&mut self.failed));
        let end = match tested {
            Err(error) => Err(ExchangeFailed { error, data: None, buffer: None }),
            Ok(()) => {
                self.cancel_after_failure();
                if self.send.id().is_some() || self.receive.id().is_some() {
                    return None;
                }
                self.end()
            }
        };
        Some(self.comm.handle_result("Exchange::test", end))
    }

    /// Cancels the send and the receive, each as [`Request::cancel`]; [`wait`](Self::wait) returns the result.
    pub fn cancel(&self) {
        if let Half::UnderWay(request) = &self.send {
            request.cancel();
        }
        if let Half::UnderWay(request) = &self.receive {
            request.cancel();
        }
    }

    fn cancel_after_failure(&self) {
        if self.failed.is_some() {
            self.cancel();
        }
    }

    /// Returns the result. The send and the receive have ended.
    fn end(&mut self) -> End<S, R> {
        let (data, _) = self.send.take();
        let (buffer, status) = self.receive.take();
        match (self.failed.take(), data, buffer, status) {
            (None, Some(data), Some(buffer), Some(status)) => Ok(Exchanged { data, buffer, status }),
            (failed, data, buffer, _) => {
                Err(ExchangeFailed { error: failed.unwrap_or(Error::NoSuchRequest), data, buffer })
            }
        }
    }
}

/// The send or the receive of an exchange.
#[derive(Debug)]
enum Half<B: Buffer> {
    UnderWay(Request<B>),
    /// The buffer, and the status of the message if the operation succeeded.
    Ended(Option<B>, Option<Status>),
}

impl<B: Buffer> Half<B> {
    fn id(&self) -> Option<RequestId> {
        match self {
            Self::UnderWay(request) => request.id,
            Self::Ended(..) => None,
        }
    }

    /// Keeps the result of the request, which has ended. Sets `failed` if the request failed and `failed` is `None`.
    fn note(
        &mut self,
        end: impl FnOnce(&mut Request<B>) -> Result<Done<B>, Failed<B>>,
        failed: &mut Option<Error>,
    ) {
        let Self::UnderWay(request) = self else { return };
        *self = match end(request) {
            Ok(Done { buffer, status }) => Self::Ended(Some(buffer), Some(status)),
            Err(Failed { error, buffer }) => {
                failed.get_or_insert(error);
                Self::Ended(buffer, None)
            }
        };
    }

    /// Makes progress, and keeps the result of the request if it has ended.
    ///
    /// # Errors
    /// An error after which the request is still under way: see [`Request::test`].
    fn test(&mut self, failed: &mut Option<Error>) -> Result<(), Error> {
        let Self::UnderWay(request) = self else { return Ok(()) };
        match request.test() {
            None => Ok(()),
            Some(Err(told)) if request.id.is_some() => Err(told.error),
            Some(end) => {
                self.note(|_| end, failed);
                Ok(())
            }
        }
    }

    fn take(&mut self) -> (Option<B>, Option<Status>) {
        match self {
            Self::UnderWay(_) => (None, None),
            Self::Ended(buffer, status) => (buffer.take(), status.take()),
        }
    }
}

/// A wait for the end of one of two requests, which records which of them has ended.
struct Either {
    ids: [Option<RequestId>; 2],
    ended: RequestId,
}

impl Awaiting for Either {
    fn ended<P: Port>(&mut self, engine: &Engine<P>) -> Option<RequestId> {
        let has_ended = |id: &RequestId| engine.outcome(*id) != Outcome::Pending;
        self.ended = self.ids.into_iter().flatten().find(has_ended)?;
        Some(self.ended)
    }
}

impl Lent for Either {}
