//! Borrowed buffers, lent to the engine for the length of a call.

use crate::RequestId;

/// The buffers that the caller of [`Engine::poll`](crate::Engine::poll) has at hand, by request.
///
/// `place` is what the lender has said of the request by [`Engine::set_place`](crate::Engine::set_place), for it to
/// find the buffer there; 0 if it has not. The request may be another lender's all the same.
pub trait Lent {
    /// What the request sends.
    fn read(&self, request: RequestId, place: u32) -> Option<&[u8]>;
    /// Where the request receives to.
    fn write(&mut self, request: RequestId, place: u32) -> Option<&mut [u8]>;
}

/// Nothing is lent.
impl Lent for () {
    fn read(&self, _: RequestId, _: u32) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, _: RequestId, _: u32) -> Option<&mut [u8]> {
        None
    }
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
}

/// One buffer to receive to.
#[derive(Debug)]
pub struct Writing<'a>(pub RequestId, pub &'a mut [u8]);

impl Lent for Writing<'_> {
    fn read(&self, _: RequestId, _: u32) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, request: RequestId, _: u32) -> Option<&mut [u8]> {
        (self.0 == request).then_some(&mut *self.1)
    }
}
