//! Requests that borrow their buffers.

mod set;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::task::Poll;

use samite_fabric::layout::{Data, Readable, Room, Signature, Writable};
use samite_fabric::mem::Lender;
use samite_fabric::{Memory, Port};
use samite_p2p::{Lent, Outcome, Received, RequestId, Sent};
use slab::Slab;
use zerocopy::IntoBytes;

use crate::checked::CheckedRoom;
use crate::error::Public;
use crate::layout::{View, ViewMut};
use crate::request::{Awaiting, whole};
use crate::runtime::Completion;
use crate::select::{Destination, Source, Tag};
use crate::signature::{ElementType, InLayout, Of, signature_in, signature_of};
use crate::stack::Engine;
use crate::{CheckedElement, Comm, Element, Error, Status};

pub use set::PendingSet;

/// Several sends and receives under way, with buffers borrowed for `'env`. Made by [`Comm::scope`].
///
/// The scope keeps the buffers and lends them to the engine while it waits: bytes move into and out of them in
/// [`wait`](Self::wait), [`test`](Self::test) and at the end of the scope. The buffers of messages of at least
/// `SAMITE_OVERLAP_MIN` bytes (64 KiB by default) are also lent, until the scope ends, to every waiting call of the
/// process and to the thread of `SAMITE_PROGRESS`. So these messages also move while the program waits elsewhere or,
/// with that thread, computes. Shorter messages that do not fit into one packet move only in calls of the scope. So
/// operations that depend on each other belong in one scope, or should own their buffers.
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let (data, mut buffer) = ([1u8, 2, 3], [0u8; 3]);
/// let status = comm.scope(|scope| {
///     let receive = scope.irecv(&mut buffer, comm.rank(), 7)?;
///     scope.isend(&data, comm.rank(), 7)?;
///     scope.wait(receive)
/// })?;
/// assert_eq!((status.bytes, buffer), (3, data));
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// `'scope` stands for this scope alone, so the compiler refuses an operation of another scope or another World:
///
/// ```compile_fail,E0521
/// # samite::local(1, |world| world.comm().scope(|outer| {
/// let sent = outer.isend(&[1u8], samite::Rank(0), 7)?;
/// world.comm().scope(|inner| inner.wait(sent))?;
/// # Ok(()) }));
/// ```
/// ```compile_fail,E0521
/// # samite::local(1, |one| samite::local(1, |other| one.comm().scope(|outer| {
/// let sent = outer.isend(&[1u8], samite::Rank(0), 7)?;
/// other.comm().scope(|inner| inner.wait(sent))?;
/// # Ok(()) })));
/// ```
/// An operation does not leave its scope either:
///
/// ```compile_fail
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// let sent = comm.scope(|scope| scope.isend(&[1u8], samite::Rank(0), 7));
/// # });
/// ```
#[derive(Debug)]
pub struct Scope<'scope, 'env> {
    comm: Comm,
    /// Lends the buffers of long messages. `None` for a scope that waits as soon as its operations have begun.
    lender: Option<&'scope Lender<'scope, 'env>>,
    loans: Loans<'env>,
    /// True if messages of this scope may have been gathered for a packet that was not sent yet.
    has_gathered: bool,
    brand: Brand<'scope>,
}

/// One operation of the scope that `'scope` stands for.
#[derive(Debug)]
pub struct Pending<'scope>(Kind, Brand<'scope>);

/// This type makes `'scope` invariant, so the compiler accepts no longer or shorter lifetime for it.
type Brand<'scope> = PhantomData<fn(&'scope ()) -> &'scope ()>;

#[derive(Debug)]
enum Kind {
    Ended(Status),
    UnderWay {
        request: RequestId,
        place: u32,
    },
    /// The operation has failed, and a test has returned its error.
    Failed,
}

/// The lent buffers of a scope, and the operations whose end the current wait awaits.
#[derive(Debug, Default)]
struct Loans<'env> {
    /// The loans, each at its place. The engine passes the place of a loan when it asks for the lent buffer.
    all: Slab<Loan<'env>>,
    sets: Vec<Ends>,
    /// For each place, the set that contains its operation and the key in that set. Empty if the scope has no set.
    members: Vec<Option<(usize, u32)>>,
    awaited: Awaited,
    /// The place or the key of the operation with which the wait ended.
    found: usize,
    /// True if each message must be as long as its buffer, by the hint [`exact_length`](crate::Hints::exact_length).
    is_exact: bool,
}

/// The operations of a set that ended while their buffers were lent, and their keys.
#[derive(Debug, Default)]
struct Ends {
    /// The engine's watcher for this set. The engine reports to it the operations that end while their buffers are not
    /// lent. Operations that end while their buffers are lent are in `ended`.
    watcher: u32,
    ended: VecDeque<(RequestId, u32)>,
}

/// The operations that a wait is for: the end of one of them ends the wait.
#[derive(Clone, Copy, Debug, Default)]
enum Awaited {
    #[default]
    One,
    All,
    Set(usize),
}

#[derive(Debug)]
enum Loan<'env> {
    Send(RequestId, Readable<'env>),
    /// The last field is the size of an element in bytes.
    Receive(RequestId, Writable<'env>, u32),
    /// An operation whose buffer is lent to every call, by the [`Lender`]. The engine keeps its result. The last two
    /// fields are the size of an element and the size of the buffer of a receive, in bytes. For a send the last field
    /// is `None`.
    Always(RequestId, u32, Option<usize>),
    /// A receive of values that are checked. The request owns the memory into which the message is received.
    Checked(RequestId, CheckedLoan<'env>),
    /// An operation that has ended while its place is kept, for example a receive whose message came while its buffer
    /// was lent. The last two fields are the size of an element and the size of the buffer, in bytes.
    Ended(Status, u32, usize),
}

/// The slice to which a receive copies its values when they have been checked.
struct CheckedLoan<'env>(Box<dyn CheckedRoom + Send + Sync + 'env>);

impl std::fmt::Debug for CheckedLoan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CheckedLoan").finish_non_exhaustive()
    }
}

impl Lent for Loans<'_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        match self.all.get(place as usize)? {
            Loan::Send(id, bytes) if *id == request => Some(*bytes),
            _ => None,
        }
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        match self.all.get_mut(place as usize)? {
            Loan::Receive(id, bytes, _) if *id == request => Some(bytes.reborrow()),
            _ => None,
        }
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: samite_p2p::Status) -> bool {
        if let Some(loan) = self.all.get_mut(place as usize)
            && let Loan::Receive(id, bytes, element) = loan
        {
            debug_assert_eq!(*id, request);
            *loan = Loan::Ended(status.public(), *element, bytes.len());
            self.note_end(request, place);
        }
        true
    }
}

impl Awaiting for Loans<'_> {
    #[inline]
    fn first<P: Port>(&mut self, engine: &mut Engine<P>) -> Option<RequestId> {
        let Awaited::Set(set) = self.awaited else { return None };
        let (id, key) = self.take_end(set).or_else(|| engine.take_end(self.sets[set].watcher))?;
        self.found = key as usize;
        Some(id)
    }

    fn ended<P: Port>(&mut self, engine: &Engine<P>) -> Option<RequestId> {
        let Awaited::All = self.awaited else { return None };
        if let Some((place, _)) = self.all.iter().find(|(_, loan)| loan.has_wrong_length(self.is_exact)) {
            self.found = place;
            return Some(RequestId::NONE);
        }
        let has_ended = |request: &RequestId| engine.outcome(*request) != Outcome::Pending;
        let ended = |(place, loan): (usize, &Loan<'_>)| Some((place, loan.under_way().filter(has_ended)?));
        let (place, request) = self.all.iter().find_map(ended)?;
        self.found = place;
        Some(request)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(crate) fn new(comm: Comm, lender: Option<&'scope Lender<'scope, 'env>>) -> Self {
        let is_exact = comm.derived.as_ref().is_some_and(|derived| derived.is_exact);
        let loans = Loans { is_exact, ..Loans::default() };
        Self { comm, lender, loans, has_gathered: false, brand: PhantomData }
    }

    /// Starts to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Closed`], [`Error::Forked`]; [`Error::Exhausted`] if the
    /// buffer of a [buffered](crate::Mode::Buffered) send has no room.
    pub fn isend<T: CheckedElement>(
        &mut self,
        data: &'env [T],
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<Pending<'scope>, Error> {
        let call = "Scope::isend";
        let begun = self.begin_send(call, data.as_bytes(), signature_of::<T>, to.into(), tag);
        self.comm.handle_result(call, begun)
    }

    /// Starts to send a view of data in a [`Layout`](crate::Layout), as [`isend`](Self::isend) does.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use samite::Layout;
    ///
    /// let even = Layout::vector(2, 1, 2)?;
    /// let (data, mut buffer) = ([1u8, 2, 3], [0u8; 3]);
    /// comm.scope(|scope| {
    ///     scope.irecv_view(even.of_mut(&mut buffer)?, comm.rank(), 7)?;
    ///     scope.isend_view(even.of(&data)?, comm.rank(), 7).map(drop)
    /// })?;
    /// assert_eq!(buffer, [1, 0, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn isend_view(
        &mut self,
        view: View<'env>,
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<Pending<'scope>, Error> {
        let call = "Scope::isend_view";
        let begun = self.begin_send(call, view.bytes, || signature_in(view.elements), to.into(), tag);
        self.comm.handle_result(call, begun)
    }

    fn begin_send<D>(
        &mut self,
        call: &'static str,
        data: D,
        signature: impl FnOnce() -> Signature,
        to: Destination,
        tag: u64,
    ) -> Result<Pending<'scope>, Error>
    where
        D: Data + Into<Readable<'env>>,
    {
        let Self { comm, lender, loans, has_gathered, brand } = self;
        let Some(to) = to.0 else { return Ok(Pending(Kind::Ended(comm.absent(tag)?), *brand)) };
        let (rank, context) = (comm.world_rank(to)?, comm.context);
        let Some(mut entered) = comm.runtime.enter(&comm.bounds) else { return Err(comm.runtime.refused()) };
        entered.start(|engine, now, deadline| {
            let gathers = engine.set_gathering(true);
            let sent = match comm.how(call, signature) {
                None => engine.send_from(now, rank, context, tag, &data, deadline),
                Some(how) => engine.send_with(how, now, rank, context, tag, &data, deadline),
            };
            engine.set_gathering(gathers);
            *has_gathered |= engine.has_gathered();
            let kind = match sent.map_err(|error| comm.local_error(error.public()))? {
                Sent::Now | Sent::Copied => Kind::Ended(Status { peer: to, tag, bytes: data.len() }),
                Sent::Pending(request) => {
                    let place = match lender {
                        Some(lender) if engine.lends_always(request) => {
                            lender.lend(request.to_wire(), data.into());
                            loans.insert(Loan::Always(request, 1, None))
                        }
                        _ => loans.insert(Loan::Send(request, data.into())),
                    };
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
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Closed`], [`Error::Forked`]; [`Error::Exhausted`] if
    /// there is no memory to post the receive; [`Error::Truncated`] or [`Error::PartialElement`] if the message has
    /// already arrived.
    pub fn irecv<T: Element>(
        &mut self,
        buffer: &'env mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending<'scope>, Error> {
        let (call, bytes) = ("Scope::irecv", buffer.as_mut_bytes());
        let begun = self.begin_receive(call, bytes, Of::<T>::new(), from.into(), tag.into());
        self.comm.handle_result(call, begun)
    }

    /// Starts to receive into a view of a buffer in a [`Layout`](crate::Layout), as [`irecv`](Self::irecv) does.
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv).
    pub fn irecv_view(
        &mut self,
        view: ViewMut<'env>,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending<'scope>, Error> {
        let (call, elements) = ("Scope::irecv_view", InLayout(view.unit, view.elements));
        let begun = self.begin_receive(call, view.bytes, elements, from.into(), tag.into());
        self.comm.handle_result(call, begun)
    }

    /// Starts to receive into a borrowed `buffer`, as [`irecv`](Self::irecv) does, and checks the values of the message
    /// as [`Comm::recv_checked`] does. The message is received into separate memory, and its values are copied to
    /// `buffer` if all of them are valid. After an error the buffer is unchanged.
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv). The operation ends with [`Error::InvalidValue`] if the bytes of an element are not a
    /// valid value of `T`.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let (mut letters, mut flags) = (['-'; 3], [false; 2]);
    /// comm.scope(|scope| {
    ///     scope.irecv_checked(&mut letters, comm.rank(), 7)?;
    ///     scope.irecv_checked(&mut flags, comm.rank(), 8)?;
    ///     scope.isend(&['a', 'ß'], comm.rank(), 7)?;
    ///     scope.isend(&[true], comm.rank(), 8).map(drop)
    /// })?;
    /// assert_eq!((letters, flags), (['a', 'ß', '-'], [true, false]));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn irecv_checked<T: CheckedElement>(
        &mut self,
        buffer: &'env mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending<'scope>, Error> {
        let call = "Scope::irecv_checked";
        let begun = self.begin_checked(call, buffer, from.into(), tag.into());
        self.comm.handle_result(call, begun)
    }

    fn begin_checked<T: CheckedElement>(
        &mut self,
        call: &'static str,
        buffer: &'env mut [T],
        from: Source,
        tag: Tag,
    ) -> Result<Pending<'scope>, Error> {
        let Self { comm, loans, brand, .. } = self;
        let Some(pattern) = comm.pattern(call, from, tag)? else {
            return Ok(Pending(Kind::Ended(comm.absent(tag.tag)?), *brand));
        };
        let memory = Memory::zeroed(size_of_val(buffer));
        let Some(mut entered) = comm.runtime.enter(&comm.bounds) else { return Err(comm.runtime.refused()) };
        let posted = entered.start(|engine, now, deadline| match comm.typed(call, signature_of::<T>) {
            None => engine.irecv(now, pattern, memory, deadline),
            Some(typed) => engine.irecv_typed(typed, now, pattern, memory, deadline),
        });
        let request = posted.map_err(|(error, _)| comm.local_error(error.public()))?;
        let place = loans.insert(Loan::Checked(request, CheckedLoan(Box::new(buffer))));
        Ok(Pending(Kind::UnderWay { request, place }, *brand))
    }

    /// Starts a receive as [`irecv`](Self::irecv) does, and does not call the error handler.
    pub(crate) fn begin_receive<R>(
        &mut self,
        call: &'static str,
        mut buffer: R,
        elements: impl ElementType,
        from: Source,
        tag: Tag,
    ) -> Result<Pending<'scope>, Error>
    where
        R: Room + Into<Writable<'env>>,
    {
        let Self { comm, lender, loans, brand, .. } = self;
        let Some(pattern) = comm.pattern(call, from, tag)? else {
            return Ok(Pending(Kind::Ended(comm.absent(tag.tag)?), *brand));
        };
        let Some(mut entered) = comm.runtime.enter(&comm.bounds) else { return Err(comm.runtime.refused()) };
        let element = elements.bytes();
        entered.start(|engine, now, deadline| {
            let place = loans.next_place();
            let received = match comm.typed(call, || elements.signature()) {
                None => engine.recv_into(now, pattern, &mut buffer, place, deadline, loans),
                Some(typed) => engine.recv_typed(typed, now, pattern, &mut buffer, place, deadline),
            };
            let kind = match received.map_err(|error| comm.local_error(error.public()))? {
                Received::Now(status) => {
                    let status = comm.local(Ok(status.public()))?;
                    Kind::Ended(whole(comm.exact(status, buffer.len())?, element)?)
                }
                Received::Pending(request) => {
                    let element = element as u32;
                    let loan = match lender {
                        Some(lender) if engine.lends_always(request) => {
                            let room = buffer.len();
                            lender.lend_mut(request.to_wire(), buffer.into());
                            Loan::Always(request, element, Some(room))
                        }
                        _ => Loan::Receive(request, buffer.into(), element),
                    };
                    Kind::UnderWay { request, place: loans.insert(loan) }
                }
            };
            Ok(Pending(kind, *brand))
        })
    }

    /// Waits for an operation to end.
    ///
    /// # Errors
    /// Returns the errors of the operation.
    pub fn wait(&mut self, operation: Pending<'scope>) -> Result<Status, Error> {
        let result = match operation.0 {
            Kind::Ended(status) => return Ok(status),
            Kind::Failed => Err(Error::NoSuchRequest),
            Kind::UnderWay { request, place } => {
                let completion = match self.loans.all.get(place as usize) {
                    Some(Loan::Ended(..)) => None,
                    _ => self.finish(request, Awaited::One, place as usize),
                };
                self.end(place, completion)
            }
        };
        self.comm.handle_result("Scope::wait", result)
    }

    /// Waits until `request` or another of the `awaited` operations ends. `found` is the place or the key of `request`.
    /// Afterwards `Loans::found` is the place or the key of the operation that has ended.
    fn finish(&mut self, request: RequestId, awaited: Awaited, found: usize) -> Option<Completion> {
        (self.loans.awaited, self.loans.found) = (awaited, found);
        let completion = self.comm.runtime.finish(request, &mut self.loans, &self.comm.bounds);
        self.loans.awaited = Awaited::One;
        completion
    }

    /// Makes progress, and returns the result once an operation has ended; `None` while it is under way.
    ///
    /// # Errors
    /// As the operation. After [`Error::FailurePending`], which comes once for each failure that a receive from any
    /// source must report, and after an error of the runtime itself, the operation is still under way: test it again,
    /// or wait for it. After any other error it has ended, and the next call returns [`Error::NoSuchRequest`].
    #[must_use = "a result is returned once"]
    pub fn test(&mut self, operation: &mut Pending<'scope>) -> Option<Result<Status, Error>> {
        let result = self.try_wait(operation)?;
        Some(self.comm.handle_result("Scope::test", result))
    }

    fn try_wait(&mut self, operation: &mut Pending<'scope>) -> Option<Result<Status, Error>> {
        let (request, place) = match operation.0 {
            Kind::Ended(status) => return Some(Ok(status)),
            Kind::Failed => return Some(Err(Error::NoSuchRequest)),
            Kind::UnderWay { request, place } => (request, place),
        };
        let completion = match self.comm.runtime.test(request, &mut self.loans, &self.comm.bounds) {
            Ok(Poll::Pending) => return None,
            Ok(Poll::Ready(completion)) => completion,
            Err(error) => return Some(Err(self.comm.local_error(error))),
        };
        let result = self.end(place, completion);
        operation.0 = result.as_ref().map_or(Kind::Failed, |&status| Kind::Ended(status));
        Some(result)
    }

    /// Cancels an operation; [`wait`](Self::wait) returns the result. A send ends at once; a receive that was
    /// matched runs to its end.
    pub fn cancel(&mut self, operation: &Pending<'scope>) {
        if let Kind::UnderWay { request, .. } = operation.0
            && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.start(|engine, _, _| engine.cancel(request));
        }
    }

    /// Takes back the loan of an operation that has ended, and returns its result: see [`Loans::end`].
    fn end(&mut self, place: u32, completion: Option<Completion>) -> Result<Status, Error> {
        let room = self.loans.all.get(place as usize).and_then(Loan::room);
        let status = self.comm.local(self.loans.end(place, completion))?;
        self.comm.exact(status, room.unwrap_or(status.bytes))
    }

    /// Waits until all operations have ended, or one has failed. [`wait`](Self::wait) still returns each result.
    pub(crate) fn wait_rest(&mut self) -> Result<(), Error> {
        for place in 0..self.loans.all.capacity() {
            // Each turn of the loop ends the request of this place.
            while let Some(request) = self.loans.all.get(place).and_then(Loan::under_way) {
                let completion = self.finish(request, Awaited::All, place);
                let noted = self.loans.note(self.loans.found, completion);
                let (status, room) = noted.map_err(|error| self.comm.local_error(error))?;
                self.comm.local(Ok(status)).and_then(|status| self.comm.exact(status, room))?;
            }
            // A receive may have ended in the wait for another operation, which did not check its message.
            if let Some(&Loan::Ended(status, element, room)) = self.loans.all.get(place) {
                let status = self.comm.local(whole(status, element as usize))?;
                self.comm.exact(status, room)?;
            }
        }
        Ok(())
    }
}

impl<'env> Loans<'env> {
    /// Returns the next place. A scope has fewer operations than the engine has requests, which are fewer than 2^32.
    #[inline(always)]
    fn next_place(&self) -> u32 {
        self.all.vacant_key() as u32
    }

    #[inline(always)]
    fn insert(&mut self, loan: Loan<'env>) -> u32 {
        if self.all.len() == self.all.capacity() {
            // The first capacity is small, so that the allocator can reuse the memory quickly: the list is freed at the
            // end of each scope.
            self.all.reserve(if self.all.is_empty() { 8 } else { self.all.len().max(16) });
        }
        self.all.insert(loan) as u32
    }

    /// Records in its set that an operation has ended while its buffer was lent. Does nothing if the operation is in no
    /// set.
    #[inline]
    fn note_end(&mut self, request: RequestId, place: u32) {
        if let Some(&Some((set, key))) = self.members.get(place as usize) {
            self.sets[set].ended.push_back((request, key));
        }
    }

    /// Takes an operation of a set that ended while its buffer was lent, and its key.
    fn take_end(&mut self, set: usize) -> Option<(RequestId, u32)> {
        self.sets[set].ended.pop_front()
    }

    /// Takes back the loan of an operation that has ended, with its result from the loan or from the engine.
    fn end(&mut self, place: u32, told: Option<Completion>) -> Result<Status, Error> {
        if let Some(member) = self.members.get_mut(place as usize) {
            *member = None;
        }
        match (self.all.remove(place as usize), told) {
            (Loan::Ended(status, element, _), _) => whole(status, element as usize),
            (Loan::Receive(_, _, element) | Loan::Always(_, element, _), Some(completion)) => {
                whole(completion.result?, element as usize)
            }
            (Loan::Send(..), Some(completion)) => completion.result,
            (Loan::Checked(_, mut loan), Some(completion)) => loan.end(completion),
            (_, None) => Err(Error::NoSuchRequest),
        }
    }

    /// Notes the end of an operation as [`end`](Self::end) does, but keeps the place, so that a later call can still
    /// return the result. Returns the status, and the bytes of the buffer.
    fn note(&mut self, place: usize, told: Option<Completion>) -> Result<(Status, usize), Error> {
        let Some(loan) = self.all.get_mut(place) else { return Err(Error::NoSuchRequest) };
        let room = loan.room();
        let (status, element) = match (&mut *loan, told) {
            (Loan::Ended(status, element, _), _) => (*status, *element),
            (Loan::Receive(_, _, element) | Loan::Always(_, element, _), Some(completion)) => {
                (completion.result?, *element)
            }
            (Loan::Send(..), Some(completion)) => (completion.result?, 1),
            (Loan::Checked(_, loan), Some(completion)) => (loan.end(completion)?, 1),
            (_, None) => return Err(Error::NoSuchRequest),
        };
        let room = room.unwrap_or(status.bytes);
        *loan = Loan::Ended(whole(status, element as usize)?, element, room);
        Ok((status, room))
    }
}

impl Loan<'_> {
    /// Returns the request unless it has ended.
    #[inline]
    fn under_way(&self) -> Option<RequestId> {
        match self {
            Self::Send(request, _)
            | Self::Receive(request, ..)
            | Self::Always(request, ..)
            | Self::Checked(request, _) => Some(*request),
            Self::Ended(..) => None,
        }
    }

    /// Returns the size of the buffer in bytes; `None` for a send.
    #[inline]
    fn room(&self) -> Option<usize> {
        match self {
            Self::Receive(_, bytes, _) => Some(bytes.len()),
            Self::Checked(_, loan) => Some(loan.0.bytes()),
            Self::Ended(.., room) => Some(*room),
            Self::Always(.., room) => *room,
            Self::Send(..) => None,
        }
    }

    /// Returns true if the operation has ended with a message of a wrong length: if the message does not consist of
    /// whole elements, or if `is_exact` is true and the message is not as long as its buffer.
    fn has_wrong_length(&self, is_exact: bool) -> bool {
        match *self {
            Self::Ended(status, element, room) => {
                whole(status, element as usize).is_err() || is_exact && status.bytes != room
            }
            _ => false,
        }
    }
}

impl CheckedLoan<'_> {
    /// Returns the result of the receive, which has ended, and copies the received values to the slice.
    fn end(&mut self, completion: Completion) -> Result<Status, Error> {
        let status = whole(completion.result?, self.0.element_bytes())?;
        let memory = completion.memory.ok_or(Error::NoSuchRequest)?;
        self.0.receive(status, memory.as_bytes()).map(|()| status)
    }
}

/// After a failure or a panic: cancels the operations under way, and stops lending the borrowed buffers.
impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        if self.has_gathered {
            self.comm.runtime.act(|engine, now| engine.send_gathered(now));
        }
        self.loans.sets.iter().for_each(|set| self.comm.runtime.remove_watcher(set.watcher));
        for request in self.loans.all.iter().filter_map(|(_, loan)| loan.under_way()) {
            self.comm.runtime.forget(request);
        }
    }
}
