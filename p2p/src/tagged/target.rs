//! Registered memory of this side, for gets and puts.

use samite_fabric::link::Out;
use samite_fabric::{Access, Body, Memory, PeerId, Port, PortError, Region, Registration};

use crate::request::Buffer;
use crate::trace::event;

/// The memory into which the bytes of a receive are written: by its own gets, or by the puts of the sender.
#[derive(Debug)]
pub(crate) struct Target {
    /// The request's own memory, or a bounce buffer.
    pub(crate) memory: (Region, Registration),
    /// True if the memory is a bounce buffer: its bytes are copied to the caller's buffer, and each of its parts is
    /// used several times.
    pub(super) bounces: bool,
    /// The length of each part that one get fetches, or that is offered to the sender, except the last one.
    pub(super) part: usize,
}

/// The parts into which the bytes of a receive are cut.
pub(super) struct Parts {
    /// The longest part in the request's own memory.
    pub(super) own: usize,
    /// The longest part in a bounce buffer.
    pub(super) bounce: usize,
    /// The largest number of parts in a bounce buffer.
    pub(super) depth: usize,
}

impl Target {
    /// Registers memory for a message of `total` bytes. This is the memory in `buffer`, if the port may access it, and
    /// then it is taken out of `buffer`. Otherwise it is a new bounce buffer. Returns `None` if the memory cannot be
    /// registered: then the bytes must come in packets.
    #[inline(always)]
    pub(super) fn open<P: Port>(
        port: &mut P,
        path: PeerId,
        access: Access,
        buffer: &mut Buffer,
        total: usize,
        parts: &Parts,
    ) -> Option<Self> {
        match std::mem::replace(buffer, Buffer::Gone) {
            Buffer::Owned(own) if !own.is_scattered() => {
                let memory = register(port, path, own, access).map_err(|own| *buffer = Buffer::Owned(own));
                Some(Self { memory: memory.ok()?, bounces: false, part: parts.own })
            }
            other => {
                *buffer = other;
                let memory = bounce(port, path, access, total, parts)?;
                Some(Self { memory, bounces: true, part: parts.bounce.min(total) })
            }
        }
    }

    /// Returns the bytes of a part of the message that are in the memory.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> Registered<'_> {
        Registered { region: &self.memory.0, offset, len }
    }

    /// Ends the registration. Returns the request's own memory to `buffer`, unless the port still holds it.
    #[inline(always)]
    pub(super) fn close<P: Port>(self, out: &mut Out<'_, P>, buffer: &mut Buffer) {
        let (region, registration) = self.memory;
        out.port.deregister(registration);
        let memory = out.link.reclaim(region);
        if !self.bounces {
            *buffer = memory.map_or(Buffer::Gone, Buffer::Owned);
        }
    }
}

impl Buffer {
    /// Registers the memory, if a send owns it and the port may access it. If the registration fails, the memory stays
    /// unregistered.
    #[inline(always)]
    pub(super) fn register<P: Port>(&mut self, port: &mut P, path: PeerId, access: Access) {
        match std::mem::replace(self, Self::Gone) {
            Self::Owned(memory) if !memory.is_scattered() => match register(port, path, memory, access) {
                Ok((region, registration)) => *self = Self::Registered { region, registration },
                Err(memory) => *self = Self::Owned(memory),
            },
            other => *self = other,
        }
    }
}

/// Registers a bounce buffer for a message of `total` bytes. Returns `None` if it cannot be registered.
pub(super) fn bounce<P: Port>(
    port: &mut P,
    path: PeerId,
    access: Access,
    total: usize,
    parts: &Parts,
) -> Option<(Region, Registration)> {
    let part = parts.bounce.min(total);
    let memory = Memory::zeroed(part * parts.depth.min(total.div_ceil(part)));
    register(port, path, memory, access).ok()
}

/// Registers memory of a request. Returns the memory if that fails, for which ports have many reasons: a limit on
/// registrations or on locked memory, or a kind of memory that the provider cannot reach. The bytes then travel in
/// packets; if the port has lost the peer, the packets fail.
#[inline(always)]
fn register<P: Port>(
    port: &mut P,
    path: PeerId,
    memory: Memory,
    access: Access,
) -> Result<(Region, Registration), Memory> {
    let region = Region::new(memory);
    match port.register(path, &region, access) {
        Ok(registration) => Ok((region, registration)),
        Err(error) => Err(unregistered(region, &error)),
    }
}

/// Returns the memory of a region that could not be registered.
#[cold]
#[inline(never)]
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the event shows the error"))]
fn unregistered(region: Region, error: &PortError) -> Memory {
    event!(DEBUG, ?error, "memory cannot be registered");
    let Ok(memory) = region.reclaim() else {
        unreachable!("the port holds memory that it has not registered")
    };
    memory
}

/// Bytes of a message in a registered region: in a part of a bounce buffer, or in the region that contains the whole
/// message, of a receive or a send. The offset in the message, modulo the length of the region, is the offset of the
/// bytes in the region.
pub(super) struct Registered<'a> {
    pub(super) region: &'a Region,
    /// The offset in the message.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Body for Registered<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_part(&self, at: usize, into: &mut [u8]) {
        // This cannot fail: the span was checked when the get was posted, or lies within the message.
        let copied = self.region.copy_out(self.offset % self.region.len() + at, into);
        debug_assert!(copied.is_ok());
    }
}
