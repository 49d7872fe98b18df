//! Borrowed buffers, lent to the engine for the length of a call.

use crate::{Completion, Error, RequestId, Status};

/// The buffers that the caller of [`Engine::poll`](crate::Engine::poll) has at hand, by request.
///
/// `place` is what the lender has said of the request, in [`Engine::recv`](crate::Engine::recv) or by
/// [`Engine::set_place`](crate::Engine::set_place), for it to find the buffer there; 0 if it has not. The request may be
/// another lender's all the same.
pub trait Lent {
    /// What the request sends.
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]>;
    /// Where the request receives to.
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]>;
    /// The request has received its message, which came as a whole while its buffer was at hand. With that it is over:
    /// the engine knows it no more, and there is nothing to collect.
    fn received(&mut self, request: RequestId, place: u32, status: Status);
}

/// Nothing is lent.
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
    pub(crate) received: Option<Status>,
}

impl<'a> Writing<'a> {
    /// The buffer of a request.
    pub fn new(request: RequestId, buffer: &'a mut [u8]) -> Self {
        Self { request, buffer, received: None }
    }

    /// How the request has ended: its message came while this was lent, or the engine tells, in `collected`.
    ///
    /// # Errors
    /// Those of the request; [`Error::NoSuchRequest`] if neither knows of an end.
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
