//! Borrowed buffers, lent to the engine for the length of a call.

use crate::RequestId;

/// The buffers that the caller of [`Engine::poll`](crate::Engine::poll) has at hand, by request.
pub trait Lent {
    /// What the request sends.
    fn read(&self, request: RequestId) -> Option<&[u8]>;
    /// Where the request receives to.
    fn write(&mut self, request: RequestId) -> Option<&mut [u8]>;
}

/// Nothing is lent.
impl Lent for () {
    fn read(&self, _: RequestId) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, _: RequestId) -> Option<&mut [u8]> {
        None
    }
}

/// One buffer to send from.
#[derive(Debug)]
pub struct Reading<'a>(pub RequestId, pub &'a [u8]);

impl Lent for Reading<'_> {
    fn read(&self, request: RequestId) -> Option<&[u8]> {
        (self.0 == request).then_some(self.1)
    }
    fn write(&mut self, _: RequestId) -> Option<&mut [u8]> {
        None
    }
}

/// One buffer to receive to.
#[derive(Debug)]
pub struct Writing<'a>(pub RequestId, pub &'a mut [u8]);

impl Lent for Writing<'_> {
    fn read(&self, _: RequestId) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, request: RequestId) -> Option<&mut [u8]> {
        (self.0 == request).then_some(&mut *self.1)
    }
}
