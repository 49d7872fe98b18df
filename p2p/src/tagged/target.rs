//! Registered memory of this side, for gets and puts.

use samite_fabric::link::{Lease, Link, Out, Peer, Slab};
use samite_fabric::{Access, Body, Local, Memory, PeerId, Port, PortError, Region, Remote};

use crate::request::Buffer;
use crate::trace::event;

/// The memory into which the bytes of a receive are written: by its own gets, or by the puts of the sender.
#[derive(Debug)]
pub(crate) enum Target {
    /// The request's own memory, of which one get fetches at most `part` bytes, or `part` bytes are offered to the
    /// sender at a time.
    Own { region: Region, lease: Lease, part: usize },
    /// Slabs of `part` bytes. They take the parts of the message in turn, and each part is copied to the caller's
    /// buffer before its slab takes another one.
    Slabs { slabs: Vec<Slab>, part: usize },
}

/// The parts into which the bytes of a receive are cut.
pub(super) struct Parts {
    /// The longest part in the request's own memory.
    pub(super) own: usize,
    /// The length of a slab.
    pub(super) slab: usize,
    /// The largest number of slabs.
    pub(super) depth: usize,
}

impl Target {
    /// Registers memory for a message of `total` bytes. This is the memory in `buffer`, if the port may access it, and
    /// then it is taken out of `buffer`. Otherwise it consists of slabs. Returns `None` if there is no registered
    /// memory: then the bytes must come in packets.
    #[inline(always)]
    pub(super) fn open<P: Port>(
        out: &mut Out<'_, P>,
        (peer, path): (Peer, PeerId),
        access: Access,
        buffer: &mut Buffer,
        total: usize,
        parts: &Parts,
    ) -> Option<Self> {
        match std::mem::replace(buffer, Buffer::Gone) {
            Buffer::Owned(own) if !own.is_scattered() => {
                let memory = register(out, path, own, access).map_err(|own| *buffer = Buffer::Owned(own));
                let (region, lease) = memory.ok()?;
                Some(Self::Own { region, lease, part: parts.own })
            }
            other => {
                *buffer = other;
                Self::open_slabs(out, peer, access, total, parts)
            }
        }
    }

    /// Takes slabs for a message of `total` bytes, or fewer if there are not enough.
    #[inline(never)]
    fn open_slabs<P: Port>(
        out: &mut Out<'_, P>,
        peer: Peer,
        access: Access,
        total: usize,
        parts: &Parts,
    ) -> Option<Self> {
        let mut slabs = Vec::new();
        while slabs.len() < parts.depth.min(total.div_ceil(parts.slab)) {
            let Some(slab) = take_slab(out, peer, parts.slab, access) else { break };
            slabs.push(slab);
        }
        (!slabs.is_empty()).then_some(Self::Slabs { slabs, part: parts.slab })
    }

    /// Returns true if the bytes must be copied to the caller's buffer.
    pub(super) fn is_bounced(&self) -> bool {
        matches!(self, Self::Slabs { .. })
    }

    /// Returns the length of the parts of the message, except the last one.
    pub(super) fn part(&self) -> usize {
        match self {
            Self::Own { part, .. } | Self::Slabs { part, .. } => *part,
        }
    }

    /// Returns the number of bytes of the message for which there is memory at a time.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own { region, .. } => region.len(),
            Self::Slabs { slabs, part } => slabs.len() * part,
        }
    }

    /// Returns the number of slabs.
    pub(super) fn slabs(&self) -> usize {
        match self {
            Self::Own { .. } => 0,
            Self::Slabs { slabs, .. } => slabs.len(),
        }
    }

    /// Returns the bytes of the message from `offset` on, which are all in one part.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> Registered<'_> {
        match self {
            Self::Own { region, .. } => Registered { region, offset, len },
            Self::Slabs { slabs, part } => {
                let region = slabs[offset / part % slabs.len()].region();
                Registered { region, offset: offset % part, len }
            }
        }
    }

    /// Returns the memory for the bytes of the message from `offset` on, which are all in one part.
    pub(super) fn local(&self, offset: usize, len: usize) -> Local {
        match self {
            Self::Own { lease, .. } => lease.local(offset, len),
            Self::Slabs { slabs, part } => slabs[offset / part % slabs.len()].local(offset % part, len),
        }
    }

    /// Returns the memory for the part of the message that begins at `offset`, for the sender.
    pub(super) fn remote(&self, offset: usize) -> Remote {
        match self {
            Self::Own { lease, .. } => lease.remote(offset),
            Self::Slabs { slabs, part } => slabs[offset / part % slabs.len()].remote(offset % part),
        }
    }

    /// Gives up memory that no operation can access any more. Returns the request's own memory to `buffer`, unless the
    /// port still holds it.
    #[inline(always)]
    pub(super) fn close<P: Port>(self, out: &mut Out<'_, P>, buffer: &mut Buffer) {
        match self {
            Self::Own { region, lease, .. } => {
                *buffer = out.end_lease(region, lease).map_or(Buffer::Gone, Buffer::Owned);
            }
            Self::Slabs { slabs, .. } => slabs.into_iter().for_each(|slab| out.link.give_slab(slab)),
        }
    }

    /// Gives up memory that operations with a peer that has ended may still access.
    pub(super) fn retire(self, link: &mut Link) {
        match self {
            Self::Own { region, lease, .. } => link.retire(region, lease),
            Self::Slabs { slabs, .. } => slabs.into_iter().for_each(|slab| link.retire_slab(slab)),
        }
    }
}

impl Buffer {
    /// Registers the memory, if a send owns it and the port may access it. If the registration fails, the memory stays
    /// unregistered.
    #[inline(always)]
    pub(super) fn register<P: Port>(&mut self, out: &mut Out<'_, P>, path: PeerId, access: Access) {
        match std::mem::replace(self, Self::Gone) {
            Self::Owned(memory) if !memory.is_scattered() => match register(out, path, memory, access) {
                Ok((region, lease)) => *self = Self::Registered { region, lease },
                Err(memory) => *self = Self::Owned(memory),
            },
            other => *self = other,
        }
    }
}

/// Longest slab: its bytes are still in the cache when they are copied between the slab and the caller's buffer.
pub(super) const SLAB_MAX: usize = 256 << 10;

/// Takes a slab. Returns `None` if there is none: then the bytes must travel in other slabs or in packets.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the event shows the error"))]
pub(super) fn take_slab<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    len: usize,
    access: Access,
) -> Option<Slab> {
    let slab = out.take_slab(peer, len, access);
    if let Err(error) = &slab {
        event!(DEBUG, ?error, "there is no slab");
    }
    slab.ok()
}

/// Registers memory of a request. Returns the memory if that fails, for which ports have many reasons: a limit on
/// registrations or on locked memory, or a kind of memory that the provider cannot reach. The bytes then travel in
/// packets; if the port has lost the peer, the packets fail.
#[inline(always)]
fn register<P: Port>(
    out: &mut Out<'_, P>,
    path: PeerId,
    memory: Memory,
    access: Access,
) -> Result<(Region, Lease), Memory> {
    let region = Region::new(memory);
    match out.register(path, &region, access) {
        Ok(lease) => Ok((region, lease)),
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

/// Bytes of a message in a registered region.
pub(super) struct Registered<'a> {
    pub(super) region: &'a Region,
    /// The offset in the region.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Body for Registered<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_part(&self, at: usize, into: &mut [u8]) {
        // This cannot fail: the span was checked when the get was posted, or lies within the message.
        let copied = self.region.copy_out(self.offset + at, into);
        debug_assert!(copied.is_ok());
    }
}
