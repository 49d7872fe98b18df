//! Borrowed buffers, lent to the engine for the length of a call.

use super::{Completion, Error, RequestId, Status, WorldRank};
use crate::Body;
use crate::layout::{Data, Readable, Room, Writable};

/// The buffers that the caller of [`Engine::poll`](super::Engine::poll) lends for the length of the call, by request.
///
/// `place` is a number that the lender chose when it posted the request, so that it finds the buffer quickly; 0 if it
/// chose none. Several lenders use the same numbers, so a lender must also compare `request`.
pub trait Lent {
    /// Returns the bytes that the request sends.
    #[inline(always)]
    fn read(&self, _request: RequestId, _place: u32) -> Option<Readable<'_>> {
        None
    }

    /// Returns the buffer into which the request receives.
    #[inline(always)]
    fn write(&mut self, _request: RequestId, _place: u32) -> Option<Writable<'_>> {
        None
    }

    /// Reports that a receive has got its message: the message arrived whole while the buffer was lent, and is in the
    /// buffer. If this returns true, the engine removes the request, and there is nothing to collect. If it returns
    /// false, because the owner of the request is not the caller of this poll, the request keeps its result.
    #[inline(always)]
    fn received(&mut self, _request: RequestId, _place: u32, _status: Status) -> bool {
        false
    }

    /// Offers a message for which no receive is posted. If the lender is about to post a receive that matches the
    /// message, it copies the message and returns true. Then the receive need not be posted, and the message need not
    /// be queued as unexpected.
    #[inline(always)]
    fn take(&mut self, _context: u32, _source: WorldRank, _tag: u64, _body: &(impl Body + ?Sized)) -> bool {
        false
    }
}

/// Lends no buffers, for calls in which no borrowed buffer exists.
impl Lent for () {}

/// One buffer to send from.
#[derive(Debug)]
pub struct Reading<'a>(RequestId, Readable<'a>);

impl<'a> Reading<'a> {
    /// The buffer of a request.
    pub fn new(request: RequestId, buffer: &'a (impl Data + ?Sized)) -> Self {
        Self(request, buffer.lend())
    }
}

impl Lent for Reading<'_> {
    fn read(&self, request: RequestId, _: u32) -> Option<Readable<'_>> {
        (self.0 == request).then_some(self.1)
    }
}

/// One buffer to receive to.
#[derive(Debug)]
pub struct Writing<'a, R: ?Sized = [u8]> {
    request: RequestId,
    buffer: &'a mut R,
    received: Option<Status>,
}

impl<'a> Writing<'a> {
    /// The buffer of a request.
    pub fn new(request: RequestId, buffer: &'a mut [u8]) -> Self {
        Self::of(request, buffer)
    }
}

impl<'a, R: ?Sized> Writing<'a, R> {
    /// Lends a buffer of any kind for a request.
    #[inline(always)]
    pub fn of(request: RequestId, buffer: &'a mut R) -> Self {
        Self { request, buffer, received: None }
    }

    /// Returns the envelope of the message that arrived while this buffer was lent.
    #[inline]
    #[must_use]
    pub fn received(&self) -> Option<Status> {
        self.received
    }

    /// Returns the result of the request. If the message arrived while this buffer was lent, that is the message's
    /// envelope. Otherwise it is the result in `collected`, which the caller got from the engine.
    ///
    /// # Errors
    /// The errors of the request; [`Error::NoSuchRequest`] if no message arrived here and `collected` is `None`.
    pub fn result(&self, collected: Option<Completion>) -> Result<Status, Error> {
        let told = collected.map_or(Err(Error::NoSuchRequest), |completion| completion.result);
        self.received.map_or(told, Ok)
    }
}

impl<R: Room + ?Sized> Lent for Writing<'_, R> {
    #[inline]
    fn write(&mut self, request: RequestId, _: u32) -> Option<Writable<'_>> {
        (self.request == request).then(|| self.buffer.lend())
    }
    #[inline]
    fn received(&mut self, request: RequestId, _: u32, status: Status) -> bool {
        debug_assert_eq!(request, self.request, "its buffer was written to");
        self.received = Some(status);
        true
    }
}
