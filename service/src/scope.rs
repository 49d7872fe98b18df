//! Requests that borrow their buffers.

use samite_fabric::Port;
use samite_fabric::mem::Element;
use samite_p2p::{Engine, Error, Lent, Pattern, Received, RequestId, Sent, Status};
use slab::Slab;
use zerocopy::IntoBytes;

use crate::Comm;
use crate::runtime::Entered;
use crate::select::{Source, Tag};

/// Sends and receives under way together, with buffers borrowed for `'env`. Made by [`Comm::scope`].
///
/// The buffers stay with the scope, which lends them to the engine while it waits: bytes move into and out of
/// them in [`wait`](Self::wait), [`test`](Self::test) and at the end of the scope.
#[derive(Debug)]
pub struct Scope<'env> {
    comm: Comm,
    loans: Loans<'env>,
}

/// One operation of a scope.
#[derive(Debug)]
pub struct Pending(Kind);

#[derive(Debug)]
enum Kind {
    Ended(Status),
    UnderWay { request: RequestId, place: u32 },
}

/// By place.
#[derive(Debug, Default)]
struct Loans<'env>(Slab<Loan<'env>>);

#[derive(Debug)]
struct Loan<'env> {
    request: RequestId,
    buffer: Buffer<'env>,
}

#[derive(Debug)]
enum Buffer<'env> {
    Send(&'env [u8]),
    Receive(&'env mut [u8]),
}

impl Lent for Loans<'_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]> {
        match &self.0.get(place as usize).filter(|loan| loan.request == request)?.buffer {
            Buffer::Send(bytes) => Some(bytes),
            Buffer::Receive(_) => None,
        }
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]> {
        match &mut self.0.get_mut(place as usize).filter(|loan| loan.request == request)?.buffer {
            Buffer::Send(_) => None,
            Buffer::Receive(bytes) => Some(bytes),
        }
    }
}

impl<'env> Scope<'env> {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm, loans: Loans::default() }
    }

    /// Begins to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    pub fn isend<T: Element>(&mut self, data: &'env [T], to: u32, tag: u64) -> Result<Pending, Error> {
        self.begin_send(data.as_bytes(), to, tag)
    }

    fn begin_send(&mut self, data: &'env [u8], to: u32, tag: u64) -> Result<Pending, Error> {
        let Comm { runtime, context, bounds } = &self.comm;
        let mut entered = runtime.enter(bounds);
        let Entered { now_ns, deadline_ns, .. } = entered;
        let engine = entered.engine();
        let sent = engine.send(now_ns, to, *context, tag, data, deadline_ns);
        sent.map(|sent| {
            Pending(match sent {
                Sent::Now => Kind::Ended(Status { source: to, tag, bytes: data.len() }),
                Sent::Pending(request) => self.loans.add(engine, request, Buffer::Send(data)),
            })
        })
    }

    /// Begins to receive to a borrowed `buffer`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Truncated`] if the message is there already.
    pub fn irecv<T: Element>(
        &mut self,
        buffer: &'env mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending, Error> {
        self.begin_receive(buffer.as_mut_bytes(), self.comm.pattern(from.into(), tag.into()))
    }

    fn begin_receive(&mut self, buffer: &'env mut [u8], pattern: Pattern) -> Result<Pending, Error> {
        let mut entered = self.comm.runtime.enter(&self.comm.bounds);
        let Entered { now_ns, deadline_ns, .. } = entered;
        let engine = entered.engine();
        let received = engine.recv(now_ns, pattern, buffer, deadline_ns);
        received.map(|received| {
            Pending(match received {
                Received::Now(status) => Kind::Ended(status),
                Received::Pending(request) => self.loans.add(engine, request, Buffer::Receive(buffer)),
            })
        })
    }

    /// Waits for an operation to end.
    ///
    /// # Errors
    /// As the operation.
    pub fn wait(&mut self, operation: Pending) -> Result<Status, Error> {
        match operation.0 {
            Kind::Ended(status) => Ok(status),
            Kind::UnderWay { request, place } => {
                let result = self.comm.runtime.finish(request, &mut self.loans, &self.comm.bounds).result;
                self.loans.0.remove(place as usize);
                result
            }
        }
    }

    /// Makes progress, and tells whether an operation has ended: if so, how; if not, it is given back.
    ///
    /// # Errors
    /// As the operation.
    pub fn test(&mut self, operation: Pending) -> Result<Result<Status, Pending>, Error> {
        let Kind::UnderWay { request, place } = operation.0 else { return self.wait(operation).map(Ok) };
        match self.comm.runtime.test(request, &mut self.loans)? {
            None => Ok(Err(operation)),
            Some(completion) => {
                self.loans.0.remove(place as usize);
                completion.result.map(Ok)
            }
        }
    }

    /// Asks for the end of an operation; [`wait`](Self::wait) tells how it ended.
    pub fn cancel(&mut self, operation: &Pending) {
        if let Kind::UnderWay { request, .. } = operation.0 {
            self.comm.runtime.start(&self.comm.bounds, |engine, _, _| engine.cancel(request));
        }
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), Error> {
        let mut places = 0..self.loans.0.capacity();
        let next = |loans: &Loans<'_>| places.find_map(|place| Some(loans.0.get(place)?.request));
        let ended = self.comm.runtime.finish_all(next, &mut self.loans, &self.comm.bounds);
        self.loans.0.clear();
        ended
    }
}

impl<'env> Loans<'env> {
    #[inline(always)]
    fn add<P: Port>(&mut self, engine: &mut Engine<P>, request: RequestId, buffer: Buffer<'env>) -> Kind {
        if self.0.len() == self.0.capacity() {
            // Few at first, which is all that most scopes need; then as many as a window of messages.
            self.0.reserve(if self.0.is_empty() { 4 } else { self.0.len().max(60) });
        }
        // A scope has fewer requests than the engine, and that fewer than 2^32.
        let place = self.0.insert(Loan { request, buffer }) as u32;
        engine.set_place(request, place);
        Kind::UnderWay { request, place }
    }
}

/// After a panic in the scope's body: what is under way is cancelled, or ends with nobody to see it.
impl Drop for Scope<'_> {
    fn drop(&mut self) {
        for (_, loan) in &self.loans.0 {
            self.comm.runtime.forget(loan.request);
        }
    }
}
