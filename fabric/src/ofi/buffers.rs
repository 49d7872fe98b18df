//! Buffers of one size that stay registered.

use super::endpoint::Domain;
use super::memory::{Registered, Registrations, Span};
use super::object::Object;
use crate::mem::Memory;
use crate::{Body, PortError, Region};

use samite_fabric_sys as sys;

/// Buffers of one size, side by side.
///
/// Their places avoid the slow distances of [`copy`](crate::copy) in the copies that Linux makes to and from sockets.
/// On a socket, a packet follows a header of the provider: 16 to 24 bytes (`tcp`, `net`) or 80 to 88 (`tcp;ofi_rxm`;
/// tcpx_ep.c, rxm.h at v1.17.0). If all earlier bytes have arrived, Linux copies header and packet to the start of a
/// page (skb_page_frag_refill in net/core/sock.c), from which the receiver on the same host copies them. So with
/// buffers at the start of a page, each packet over `tcp` was at a slow distance: 64 KiB took 40 µs instead of 20.
/// Where buffers begin at [`OFFSET`], no header of at most 96 bytes leads to one.
///
/// A put from a program's own memory is not covered: the header is 40 bytes, and the place is the program's.
#[derive(Debug)]
pub(super) struct Buffers {
    registered: Registered,
    /// The place of the first buffer in the registered memory.
    first: usize,
    /// The distance between the starts of two buffers: a multiple of [`SPACING`].
    stride: usize,
    /// The length of each buffer.
    size: usize,
}

/// The starts of the buffers are as far apart as multiples of this number of bytes, which divides a page.
const SPACING: usize = 256;

/// The distance of the start of each buffer from a multiple of [`SPACING`].
const OFFSET: usize = SPACING / 2;

impl Buffers {
    /// Registers `count` buffers of `size` bytes.
    pub(super) fn new(
        registrations: &mut Registrations,
        domain: &Domain,
        ep: &Object<sys::fid_ep>,
        count: usize,
        size: usize,
    ) -> Result<Self, PortError> {
        let stride = size.next_multiple_of(SPACING);
        let region = Region::new(Memory::zeroed(count * stride + SPACING));
        let start = region.span(0, 0)?.addr().get();
        let registered = registrations.bind_local(domain, ep, &region)?;
        Ok(Self { registered, first: OFFSET.wrapping_sub(start) % SPACING, stride, size })
    }

    /// Returns the length of each buffer.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the first `len` bytes of a buffer.
    #[inline]
    pub(super) fn span(&self, buffer: u32, len: usize) -> Result<Span, PortError> {
        self.registered.span(self.first + buffer as usize * self.stride, len)
    }

    /// Copies head and body to a buffer that is not in flight. Together they fit in the buffer.
    #[inline]
    pub(super) fn fill(
        &self,
        buffer: u32,
        head: &[u8],
        body: &(impl Body + ?Sized),
    ) -> Result<Span, PortError> {
        let span = self.span(buffer, head.len() + body.len())?;
        // SAFETY: the span has room for head and body, and its bytes are initialized. The buffer is not in use, and no
        // caller can have a reference to its memory.
        let into = unsafe { std::slice::from_raw_parts_mut(span.start.as_ptr(), head.len() + body.len()) };
        let (into_head, into_body) = into.split_at_mut(head.len());
        into_head.copy_from_slice(head);
        body.copy_to(into_body);
        Ok(span)
    }

    /// Leaks the memory: see [`Registered::leak`].
    pub(super) fn leak(&self) {
        self.registered.leak();
    }
}
