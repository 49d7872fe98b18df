//! Requests that borrow their buffers.

use std::task::Poll;

use samite_fabric::mem::Element;
use samite_p2p::{Completion, Error, Lent, Pattern, Received, RequestId, Sent, Status};
use slab::Slab;
use zerocopy::IntoBytes;

use crate::Comm;
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
enum Loan<'env> {
    Send(RequestId, &'env [u8]),
    Receive(RequestId, &'env mut [u8]),
    /// A receive whose message came while its buffer was lent.
    Received(Status),
}

impl Lent for Loans<'_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]> {
        match self.0.get(place as usize)? {
            Loan::Send(id, bytes) if *id == request => Some(bytes),
            _ => None,
        }
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]> {
        match self.0.get_mut(place as usize)? {
            Loan::Receive(id, bytes) if *id == request => Some(bytes),
            _ => None,
        }
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: Status) {
        if let Some(loan @ Loan::Receive(..)) = self.0.get_mut(place as usize) {
            debug_assert_eq!(loan.under_way(), Some(request));
            *loan = Loan::Received(status);
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
        let Self { comm: Comm { runtime, context, bounds }, loans } = self;
        runtime.start(bounds, |engine, now_ns, deadline_ns| {
            Ok(Pending(match engine.send(now_ns, to, *context, tag, data, deadline_ns)? {
                Sent::Now => Kind::Ended(Status { source: to, tag, bytes: data.len() }),
                Sent::Pending(request) => {
                    let place = loans.insert(Loan::Send(request, data));
                    engine.set_place(request, place);
                    Kind::UnderWay { request, place }
                }
            }))
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
        let Self { comm, loans } = self;
        comm.runtime.start(&comm.bounds, |engine, now_ns, deadline_ns| {
            let place = loans.next_place();
            Ok(Pending(match engine.recv(now_ns, pattern, buffer, place, deadline_ns, loans)? {
                Received::Now(status) => Kind::Ended(status),
                Received::Pending(request) => {
                    Kind::UnderWay { request, place: loans.insert(Loan::Receive(request, buffer)) }
                }
            }))
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
                let completion = self.comm.runtime.finish(request, &mut self.loans, &self.comm.bounds);
                self.loans.end(place, completion)
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
            Poll::Pending => Ok(Err(operation)),
            Poll::Ready(completion) => self.loans.end(place, completion).map(Ok),
        }
    }

    /// Asks for the end of an operation; [`wait`](Self::wait) tells how it ended.
    pub fn cancel(&mut self, operation: &Pending) {
        if let Kind::UnderWay { request, .. } = operation.0 {
            self.comm.runtime.start(&self.comm.bounds, |engine, _, _| engine.cancel(request));
        }
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), Error> {
        let mut ended = Ok(());
        for place in 0..self.loans.0.capacity() {
            if let Some(request) = self.loans.0.get(place).and_then(Loan::under_way) {
                let result = self.wait(Pending(Kind::UnderWay { request, place: place as u32 }));
                ended = ended.and(result.map(drop));
            }
        }
        self.loans.0.clear();
        ended
    }
}

impl<'env> Loans<'env> {
    /// Where the next one will be. A scope has fewer of them than the engine has requests, and that fewer than 2^32.
    #[inline(always)]
    fn next_place(&self) -> u32 {
        self.0.vacant_key() as u32
    }

    #[inline(always)]
    fn insert(&mut self, loan: Loan<'env>) -> u32 {
        if self.0.len() == self.0.capacity() {
            // So few at first that the allocator has them at hand: they are freed at the end of each scope.
            self.0.reserve(if self.0.is_empty() { 8 } else { self.0.len().max(16) });
        }
        self.0.insert(loan) as u32
    }

    /// Takes a loan back whose operation has ended: how, it knows itself or the engine has told.
    fn end(&mut self, place: u32, told: Option<Completion>) -> Result<Status, Error> {
        match (self.0.remove(place as usize), told) {
            (Loan::Received(status), _) => Ok(status),
            (_, Some(completion)) => completion.result,
            (_, None) => Err(Error::NoSuchRequest),
        }
    }
}

impl Loan<'_> {
    /// The request, unless that is over.
    #[inline]
    fn under_way(&self) -> Option<RequestId> {
        match self {
            Self::Send(request, _) | Self::Receive(request, _) => Some(*request),
            Self::Received(_) => None,
        }
    }
}

/// After a panic in the scope's body: what is under way is cancelled, or ends with nobody to see it.
impl Drop for Scope<'_> {
    fn drop(&mut self) {
        for request in self.loans.0.iter().filter_map(|(_, loan)| loan.under_way()) {
            self.comm.runtime.forget(request);
        }
    }
}
