//! Puts, gets and atomic operations in segments that both processes map: done by the side that asks for them,
//! at once.
//!
//! A peer's segment is found by its descriptor, which the remote address carries in its upper bits, and is
//! mapped when it is first used. The initiator checks key, rights and bounds, before and after its copy. So a
//! put that meets the end of the registration may have happened in part, and is reported as refused; and a
//! peer that was fenced finds that out before its next operation, not within one.

use std::collections::VecDeque;

use crate::mem::heap::{self, PeerHeap};
use crate::mem::{Mapped, in_pieces};
use crate::registry::Registry;
use crate::{
    Access, Atomic, Exposure, Failure, Local, OpId, PortError, Region, Registration, Remote, Sink, SplitMix64,
};
use samite_os::process::Process;

/// This side's memory, and what became of this side's operations.
pub(super) struct OneSided {
    registry: Registry,
    /// Ended and not yet reported.
    completed: VecDeque<(OpId, Result<(), Failure>)>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
    Atomic(Atomic),
}

impl Kind {
    /// What the peer must have granted.
    fn access(self) -> Access {
        match self {
            Self::Put => Access::REMOTE_WRITE,
            Self::Get => Access::REMOTE_READ,
            Self::Atomic(_) => Access::REMOTE_READ | Access::REMOTE_WRITE,
        }
    }
}

impl OneSided {
    pub(super) fn new() -> Self {
        Self { registry: Registry::new(SplitMix64::from_entropy()), completed: VecDeque::new() }
    }

    pub(super) fn register(&mut self, region: &Region, access: Access) -> Result<Registration, PortError> {
        let remote = access & (Access::REMOTE_READ | Access::REMOTE_WRITE);
        if remote.is_empty() {
            return self.registry.insert(region, access);
        }
        let Some(segment) = region.segment() else {
            return Err(PortError::Unsupported {
                what: "let peers reach memory of this process alone: make it by Region::shared",
            });
        };
        let exhausted = |what, hint: &str| PortError::Exhausted { what, hint: hint.into() };
        if segment.fd() >> (u64::BITS - OFFSET_BITS) != 0 || region.len() > OFFSET_MASK as usize {
            return Err(exhausted("remote addresses", "share less memory, and open fewer files"));
        }
        let registration = self.registry.insert(region, access)?;
        if !segment.grant(registration.key, remote) {
            self.registry.remove(registration);
            return Err(exhausted("registrations of one region", "deregister it where it is no longer used"));
        }
        Ok(Registration { base: u64::from(segment.fd()) << OFFSET_BITS, ..registration })
    }

    pub(super) fn deregister(&mut self, registration: Registration) {
        if let Some(segment) = self.registry.remove(registration).as_ref().and_then(Region::segment) {
            segment.revoke(registration.key);
        }
    }

    /// Whether one more operation can be taken on.
    pub(super) fn has_room(&self) -> bool {
        self.completed.len() < RMA_DEPTH
    }

    /// The region of this side's span, if the operation may use it.
    pub(super) fn local(&self, kind: Kind, span: Local) -> Result<&Region, PortError> {
        if span.len > RMA_MAX {
            return Err(PortError::TooLong { len: span.len, max: RMA_MAX });
        }
        self.registry.local(span, if kind == Kind::Put { Access::LOCAL_READ } else { Access::LOCAL_WRITE })
    }

    pub(super) fn complete(&mut self, op: OpId, result: Result<(), Failure>) {
        self.completed.push_back((op, result));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.completed.is_empty()
    }

    pub(super) fn report<S: Sink>(&mut self, sink: &mut S) -> usize {
        let events = self.completed.len();
        for (op, result) in self.completed.drain(..) {
            sink.completed(op, result);
        }
        events
    }
}

impl Drop for OneSided {
    fn drop(&mut self) {
        for (key, region) in self.registry.iter() {
            if let Some(segment) = region.segment() {
                segment.revoke(key);
            }
        }
    }
}

/// The segments of one peer, as far as they have been used, by its descriptors.
#[derive(Debug, Default)]
pub(super) struct Segments(Vec<(u32, Mapped)>);

impl Segments {
    /// Does it to the peer's memory and to `ours`.
    pub(super) fn carry_out(
        &mut self,
        kind: Kind,
        owner: Process,
        (ours, span): (&Region, Local),
        theirs: Remote,
    ) -> Result<(), Failure> {
        let access = kind.access();
        let segment = self.find(owner, theirs, access)?;
        let offset = usize::try_from(theirs.address & OFFSET_MASK).map_err(|_| Failure::Refused)?;
        if offset.checked_add(span.len).is_none_or(|end| end > segment.len()) {
            return Err(Failure::Refused);
        }
        let copied = match kind {
            Kind::Put => in_pieces(span.len, false, |at, piece| {
                ours.copy_out(span.offset + at, piece)?;
                segment.write(offset + at, piece);
                Ok(())
            }),
            Kind::Get => in_pieces(span.len, false, |at, piece| {
                segment.read(offset + at, piece);
                ours.copy_in(span.offset + at, piece)
            }),
            Kind::Atomic(_) if !offset.is_multiple_of(span.len) => return Err(Failure::Refused),
            Kind::Atomic(change) => {
                let before = segment.change(offset, span.len, change);
                ours.put_word(span.offset, span.len, before)
            }
        };
        copied.map_err(|_: PortError| Failure::Refused)?;
        if segment.permits(theirs.key, access) { Ok(()) } else { Err(Failure::Refused) }
    }

    /// Segments that are mapped.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    fn find(&mut self, owner: Process, place: Remote, access: Access) -> Result<&Mapped, Failure> {
        let fd = (place.address >> OFFSET_BITS) as u32;
        let fits = |(known, segment): &(u32, Mapped)| *known == fd && segment.permits(place.key, access);
        let index = match self.0.iter().position(fits) {
            Some(index) => index,
            None => {
                // It may be another file under the same number. Those that are open to nobody go.
                let segment = Mapped::open(owner, fd).map_err(|_| Failure::Refused)?;
                self.0.retain(|(known, segment)| *known != fd && segment.is_granted());
                self.0.push((fd, segment));
                self.0.iter().position(fits).ok_or(Failure::Refused)?
            }
        };
        Ok(&self.0[index].1)
    }
}

/// Lets whoever knows the place and its key read the bytes, if they lie in this process's heap.
pub(super) fn expose(bytes: &[u8]) -> Option<Exposure> {
    let exposed = heap::expose(bytes)?;
    if exposed.fd >> (u64::BITS - OFFSET_BITS) != 0 || exposed.offset as u64 > OFFSET_MASK {
        return None;
    }
    let address = u64::from(exposed.fd) << OFFSET_BITS | exposed.offset as u64;
    Some(Exposure::new(Remote { key: exposed.key, address }, exposed))
}

/// The heap of one peer, once it has been used, and its descriptor.
#[derive(Default)]
pub(super) struct Heap(Option<(u32, PeerHeap)>);

impl Heap {
    /// Copies what the peer has exposed; see [`Port::read`](crate::Port::read).
    pub(super) fn read(&mut self, owner: Process, at: Remote, into: &mut [u8]) -> Result<bool, PortError> {
        let fd = (at.address >> OFFSET_BITS) as u32;
        let heap = match &mut self.0 {
            Some((known, heap)) if *known == fd => heap,
            other => &mut other.insert((fd, PeerHeap::open(owner, fd)?)).1,
        };
        match usize::try_from(at.address & OFFSET_MASK) {
            Ok(offset) => heap.read(at.key, offset, into),
            Err(_) => Ok(false),
        }
    }
}

/// The longest operation: posting takes as long as the copy, so it must end soon.
pub(super) const RMA_MAX: usize = 1 << 20;

/// Operations of which the end has not been reported.
pub(super) const RMA_DEPTH: usize = 1024;

/// A remote address is a descriptor and an offset, of so many bits.
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
