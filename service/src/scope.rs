//! Requests that borrow their buffers.

use std::marker::PhantomData;
use std::task::Poll;

use samite_fabric::Port;
use samite_fabric::mem::Element;
use samite_p2p::{Completion, Engine, Error, Lent, Outcome, Pattern, Received, RequestId, Sent, Status};
use slab::Slab;
use zerocopy::IntoBytes;

use crate::Comm;
use crate::request::{Group, whole};
use crate::select::{Source, Tag};

/// Several sends and receives under way, with buffers borrowed for `'env`. Made by [`Comm::scope`].
///
/// The scope keeps the buffers and lends them to the engine while it waits: bytes move into and out of
/// them in [`wait`](Self::wait), [`test`](Self::test) and at the end of the scope.
///
/// `'scope` stands for this scope alone, so the compiler refuses an operation of another scope or another World:
///
/// ```compile_fail,E0521
/// # samite::local(1, |world| world.scope(|outer| {
/// let sent = outer.isend(&[1u8], 0, 7)?;
/// world.scope(|inner| inner.wait(sent))?;
/// # Ok(()) }));
/// ```
/// ```compile_fail,E0521
/// # samite::local(1, |one| samite::local(1, |other| one.scope(|outer| {
/// let sent = outer.isend(&[1u8], 0, 7)?;
/// other.scope(|inner| inner.wait(sent))?;
/// # Ok(()) })));
/// ```
/// An operation does not leave its scope either:
///
/// ```compile_fail
/// # samite::local(1, |world| {
/// let sent = world.scope(|scope| scope.isend(&[1u8], 0, 7));
/// # });
/// ```
#[derive(Debug)]
pub struct Scope<'scope, 'env> {
    comm: Comm,
    loans: Loans<'env>,
    brand: Brand<'scope>,
}

/// One operation of the scope that `'scope` stands for.
#[derive(Debug)]
pub struct Pending<'scope>(Kind, Brand<'scope>);

/// Invariant: no lifetime can stand for another.
type Brand<'scope> = PhantomData<fn(&'scope ()) -> &'scope ()>;

#[derive(Debug)]
enum Kind {
    Ended(Status),
    UnderWay {
        request: RequestId,
        place: u32,
    },
    /// A test has returned the error.
    Failed,
}

/// Loans by place.
#[derive(Debug, Default)]
struct Loans<'env>(Slab<Loan<'env>>);

#[derive(Debug)]
enum Loan<'env> {
    Send(RequestId, &'env [u8]),
    /// With the bytes of an element.
    Receive(RequestId, &'env mut [u8], u32),
    /// An operation that has ended while its place is kept, for example a receive whose message came while its buffer
    /// was lent.
    Ended(Status, u32),
}

/// All operations of a scope, awaited together: the wait ends when any of them ends.
struct All<'a, 'env> {
    loans: &'a mut Loans<'env>,
    current: u32,
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
            Loan::Receive(id, bytes, _) if *id == request => Some(bytes),
            _ => None,
        }
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: Status) {
        if let Some(loan) = self.0.get_mut(place as usize)
            && let Loan::Receive(id, _, element) = loan
        {
            debug_assert_eq!(*id, request);
            *loan = Loan::Ended(status, *element);
        }
    }
}

impl Group for Loans<'_> {}

impl Lent for All<'_, '_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]> {
        self.loans.read(request, place)
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]> {
        self.loans.write(request, place)
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: Status) {
        self.loans.received(request, place, status);
    }
}

impl Group for All<'_, '_> {
    fn ended<P: Port>(&mut self, engine: &Engine<P>) -> Option<RequestId> {
        let has_ended = |request: &RequestId| engine.outcome(*request) != Outcome::Pending;
        let (place, request) = self
            .loans
            .0
            .iter()
            .find_map(|(place, loan)| Some((place, loan.under_way().filter(has_ended)?)))?;
        self.current = place as u32;
        Some(request)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm, loans: Loans::default(), brand: PhantomData }
    }

    /// Starts to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    pub fn isend<T: Element>(
        &mut self,
        data: &'env [T],
        to: u32,
        tag: u64,
    ) -> Result<Pending<'scope>, Error> {
        self.begin_send(data.as_bytes(), to, tag)
    }

    fn begin_send(&mut self, data: &'env [u8], to: u32, tag: u64) -> Result<Pending<'scope>, Error> {
        let Self { comm: Comm { runtime, context, bounds }, loans, brand } = self;
        runtime.enter(bounds)?.start(|engine, now_ns, deadline_ns| {
            let kind = match engine.send(now_ns, to, *context, tag, data, deadline_ns)? {
                Sent::Now => Kind::Ended(Status { source: to, tag, bytes: data.len() }),
                Sent::Pending(request) => {
                    let place = loans.insert(Loan::Send(request, data));
                    engine.set_place(request, place);
                    Kind::UnderWay { request, place }
                }
            };
            Ok(Pending(kind, *brand))
        })
    }

    /// Starts to receive into a borrowed `buffer`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Truncated`] or [`Error::PartialElement`] if the message
    /// has already arrived.
    pub fn irecv<T: Element>(
        &mut self,
        buffer: &'env mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending<'scope>, Error> {
        let pattern = self.comm.pattern(from.into(), tag.into());
        self.begin_receive(buffer.as_mut_bytes(), size_of::<T>(), pattern)
    }

    fn begin_receive(
        &mut self,
        buffer: &'env mut [u8],
        element: usize,
        pattern: Pattern,
    ) -> Result<Pending<'scope>, Error> {
        let Self { comm, loans, brand } = self;
        comm.runtime.enter(&comm.bounds)?.start(|engine, now_ns, deadline_ns| {
            let place = loans.next_place();
            let kind = match engine.recv(now_ns, pattern, buffer, place, deadline_ns, loans)? {
                Received::Now(status) => Kind::Ended(whole(status, element)?),
                Received::Pending(request) => {
                    let loan = Loan::Receive(request, buffer, element as u32);
                    Kind::UnderWay { request, place: loans.insert(loan) }
                }
            };
            Ok(Pending(kind, *brand))
        })
    }

    /// Waits for an operation to end.
    ///
    /// # Errors
    /// As the operation.
    pub fn wait(&mut self, operation: Pending<'scope>) -> Result<Status, Error> {
        match operation.0 {
            Kind::Ended(status) => Ok(status),
            Kind::Failed => Err(Error::NoSuchRequest),
            Kind::UnderWay { request, place } => {
                if let Some(Loan::Ended(..)) = self.loans.0.get(place as usize) {
                    return self.loans.end(place, None);
                }
                let completion = self.comm.runtime.finish(request, &mut self.loans, &self.comm.bounds);
                self.loans.end(place, completion)
            }
        }
    }

    /// Makes progress, and returns the status of an operation that has ended; `None` while it is under way.
    ///
    /// # Errors
    /// As the operation. After [`Error::FailurePending`], which comes once for each failure that a receive from any
    /// source must report, and after an error of the runtime itself, the operation is still under way: test it again,
    /// or wait for it. After any other error it has ended, and the next call returns [`Error::NoSuchRequest`].
    pub fn test(&mut self, operation: &mut Pending<'scope>) -> Result<Option<Status>, Error> {
        let (request, place) = match operation.0 {
            Kind::Ended(status) => return Ok(Some(status)),
            Kind::Failed => return Err(Error::NoSuchRequest),
            Kind::UnderWay { request, place } => (request, place),
        };
        let Poll::Ready(completion) = self.comm.runtime.test(request, &mut self.loans)? else {
            return Ok(None);
        };
        operation.0 = Kind::Failed;
        let status = self.loans.end(place, completion)?;
        operation.0 = Kind::Ended(status);
        Ok(Some(status))
    }

    /// Cancels an operation; [`wait`](Self::wait) returns the result. A send ends at once; a receive that was
    /// matched runs to its end.
    pub fn cancel(&mut self, operation: &Pending<'scope>) {
        if let Kind::UnderWay { request, .. } = operation.0
            && let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.start(|engine, _, _| engine.cancel(request));
        }
    }

    /// Waits until all operations have ended, or one has failed. [`wait`](Self::wait) still returns each result.
    pub(crate) fn wait_all(&mut self) -> Result<(), Error> {
        for place in 0..self.loans.0.capacity() {
            // One of them ends in each round.
            while let Some(request) = self.loans.0.get(place).and_then(Loan::under_way) {
                let mut all = All { loans: &mut self.loans, current: place as u32 };
                let completion = self.comm.runtime.finish(request, &mut all, &self.comm.bounds);
                let ended = all.current;
                self.loans.note(ended, completion)?;
            }
        }
        Ok(())
    }
}

impl<'env> Loans<'env> {
    /// Returns the next place. A scope has fewer operations than the engine has requests, which are fewer than 2^32.
    #[inline(always)]
    fn next_place(&self) -> u32 {
        self.0.vacant_key() as u32
    }

    #[inline(always)]
    fn insert(&mut self, loan: Loan<'env>) -> u32 {
        if self.0.len() == self.0.capacity() {
            // A small first capacity, which the allocator can reuse quickly: the list is freed at the end of each
            // scope.
            self.0.reserve(if self.0.is_empty() { 8 } else { self.0.len().max(16) });
        }
        self.0.insert(loan) as u32
    }

    /// Takes back the loan of an operation that has ended, with its result from the loan or from the engine.
    fn end(&mut self, place: u32, told: Option<Completion>) -> Result<Status, Error> {
        match (self.0.remove(place as usize), told) {
            (Loan::Ended(status, element), _) => whole(status, element as usize),
            (Loan::Receive(_, _, element), Some(completion)) => whole(completion.result?, element as usize),
            (Loan::Send(..), Some(completion)) => completion.result,
            (_, None) => Err(Error::NoSuchRequest),
        }
    }

    /// As [`end`](Self::end), and keeps the place for a later question about the result.
    fn note(&mut self, place: u32, told: Option<Completion>) -> Result<(), Error> {
        let Some(loan) = self.0.get_mut(place as usize) else { return Err(Error::NoSuchRequest) };
        let (status, element) = match (&*loan, told) {
            (Loan::Ended(status, element), _) => (*status, *element),
            (Loan::Receive(_, _, element), Some(completion)) => (completion.result?, *element),
            (Loan::Send(..), Some(completion)) => (completion.result?, 1),
            (_, None) => return Err(Error::NoSuchRequest),
        };
        *loan = Loan::Ended(whole(status, element as usize)?, element);
        Ok(())
    }
}

impl Loan<'_> {
    /// Returns the request unless it has ended.
    #[inline]
    fn under_way(&self) -> Option<RequestId> {
        match self {
            Self::Send(request, _) | Self::Receive(request, ..) => Some(*request),
            Self::Ended(..) => None,
        }
    }
}

/// After a failure or a panic: cancels the operations under way, and stops lending the borrowed buffers.
impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        for request in self.loans.0.iter().filter_map(|(_, loan)| loan.under_way()) {
            self.comm.runtime.forget(request);
        }
    }
}
