//! Borrowed buffers, lent to the engine for the length of a call.

use super::{Completion, Error, RequestId, Status, WorldRank};
use crate::Body;
use crate::layout::{Data, Readable, Room, Writable};

/// The buffers that the caller of [`Engine::poll`](super::Engine::poll) lends for the length of the call, by request.
///
/// `place` is the number that a lender gave with the request, to find the buffer by; 0 if it gave none. Several lenders
/// use the same numbers, so a lender must compare the request too.
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

    /// Reports that a request has received its message, which arrived whole while its buffer was lent. The request has
    /// ended: the engine has forgotten it, and there is nothing to collect.
    fn received(&mut self, request: RequestId, place: u32, status: Status);
    /// Takes a message for which no receive is posted, if the lender is about to post one that matches. Returns whether
    /// it took the message.
    #[inline(always)]
    fn take(&mut self, _context: u32, _source: WorldRank, _tag: u64, _body: &(impl Body + ?Sized)) -> bool {
        false
    }
}

/// Lends no buffer.
impl Lent for () {
    fn received(&mut self, _: RequestId, _: u32, _: Status) {}
}

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
    fn received(&mut self, _: RequestId, _: u32, _: Status) {}
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
    /// The buffer of a request, of any kind.
    #[inline(always)]
    pub fn of(request: RequestId, buffer: &'a mut R) -> Self {
        Self { request, buffer, received: None }
    }

    /// Returns the message that came while this was lent.
    #[inline]
    #[must_use]
    pub fn received(&self) -> Option<Status> {
        self.received
    }

    /// Returns how the request ended: its message arrived while this was lent, or the engine reports it in `collected`.
    ///
    /// # Errors
    /// The errors of the request; [`Error::NoSuchRequest`] if neither knows of an end.
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
    fn received(&mut self, request: RequestId, _: u32, status: Status) {
        debug_assert_eq!(request, self.request, "its buffer was written to");
        self.received = Some(status);
    }
}
