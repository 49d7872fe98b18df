//! Borrowed buffers, lent to the engine for the length of a call.

use super::{Completion, Error, RequestId, Status, WorldRank};
use crate::Body;

/// The buffers that the caller of [`Engine::poll`](super::Engine::poll) lends for the length of the call, by request.
///
/// `place` is a number that the lender has given with the request, to find the buffer by; 0 if it gave none. The
/// request may still be another lender's.
pub trait Lent {
    /// Returns the bytes that the request sends.
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]>;
    /// Returns the buffer into which the request receives.
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]>;
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
    fn read(&self, _: RequestId, _: u32) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, _: RequestId, _: u32) -> Option<&mut [u8]> {
        None
    }
    fn received(&mut self, _: RequestId, _: u32, _: Status) {}
}

/// One buffer to send from.
#[derive(Debug)]
pub struct Reading<'a>(pub RequestId, pub &'a [u8]);

impl Lent for Reading<'_> {
    fn read(&self, request: RequestId, _: u32) -> Option<&[u8]> {
        (self.0 == request).then_some(self.1)
    }
    fn write(&mut self, _: RequestId, _: u32) -> Option<&mut [u8]> {
        None
    }
    fn received(&mut self, _: RequestId, _: u32, _: Status) {}
}

/// One buffer to receive to.
#[derive(Debug)]
pub struct Writing<'a> {
    request: RequestId,
    buffer: &'a mut [u8],
    received: Option<Status>,
}

impl<'a> Writing<'a> {
    /// The buffer of a request.
    pub fn new(request: RequestId, buffer: &'a mut [u8]) -> Self {
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

impl Lent for Writing<'_> {
    fn read(&self, _: RequestId, _: u32) -> Option<&[u8]> {
        None
    }
    #[inline]
    fn write(&mut self, request: RequestId, _: u32) -> Option<&mut [u8]> {
        (self.request == request).then_some(&mut *self.buffer)
    }
    #[inline]
    fn received(&mut self, request: RequestId, _: u32, status: Status) {
        debug_assert_eq!(request, self.request, "its buffer was written to");
        self.received = Some(status);
    }
}
