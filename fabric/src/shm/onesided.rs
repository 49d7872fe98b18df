//! Puts, gets and atomic operations in segments that both processes map. The initiator performs them within the call.
//!
//! A peer's segment is identified by its descriptor, which is in the upper bits of the remote address. The segment is
//! mapped at first use. The initiator checks key, rights and bounds before its copy, and again after it. So a put that
//! takes place while the registration ends is reported as refused, although it may have written some of its bytes. A
//! fenced peer completes its present operation, and detects the fence before its next operation.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::mem::heap::{self, PeerHeap};
use crate::mem::{Mapped, RIGHTS};
use crate::registrations::Registrations;
use crate::{
    Access, Exposure, Failure, Local, OpId, PortError, Post, Region, Registration, Remote, Sink, SplitMix64,
    Window,
};
use samite_os::process::Process;

/// The registrations of this side's memory, and this side's failed operations that were not yet reported.
pub(super) struct OneSided {
    registrations: Registrations,
    /// Failed operations that were not yet reported.
    completed: VecDeque<(OpId, Result<(), Failure>)>,
}

impl OneSided {
    pub(super) fn new() -> Self {
        Self { registrations: Registrations::new(SplitMix64::from_entropy()), completed: VecDeque::new() }
    }

    pub(super) fn register(
        &mut self,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        let remote = access & (Access::REMOTE_READ | Access::REMOTE_WRITE);
        if remote.is_empty() {
            return self.registrations.insert(region, span, access);
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
        let registration = self.registrations.insert(region, span.clone(), access)?;
        if !segment.grant(registration.key, remote, &span) {
            self.registrations.remove(registration);
            return Err(exhausted("registrations of one region", "deregister it where it is no longer used"));
        }
        Ok(Registration { base: u64::from(segment.fd()) << OFFSET_BITS | span.start as u64, ..registration })
    }

    pub(super) fn deregister(&mut self, registration: Registration) {
        if let Some(segment) = self.registrations.remove(registration).as_ref().and_then(Region::segment) {
            segment.revoke(registration.key);
        }
    }

    /// Returns true if one more operation can be accepted.
    pub(super) fn has_room(&self) -> bool {
        self.completed.len() < RMA_DEPTH
    }

    /// Returns region and offset of this side's span, if the operation may use it.
    #[inline]
    pub(super) fn local(&self, span: Local, access: Access) -> Result<(&Region, usize), PortError> {
        self.registrations.local(span, access)
    }

    /// Copies this side's span to a segment.
    #[inline]
    pub(super) fn put(&self, from: Local, segment: &Mapped, at: usize) -> Result<(), PortError> {
        let (region, start) = self.local(from, Access::LOCAL_READ)?;
        region.copy_to_mapped(start, from.len, segment, at)
    }

    /// Returns the result of a posting call whose operation has ended within the call. If the operation failed, queues
    /// its completion.
    #[inline]
    pub(super) fn ended(&mut self, op: OpId, result: Result<(), Failure>) -> Post {
        match result {
            Ok(()) => Post::Over,
            Err(failure) => {
                self.fail(op, failure);
                Post::Done
            }
        }
    }

    /// Queues the completion of a failure.
    #[cold]
    pub(super) fn fail(&mut self, op: OpId, failure: Failure) {
        self.completed.push_back((op, Err(failure)));
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
        for (key, region) in self.registrations.iter() {
            if let Some(segment) = region.segment() {
                segment.revoke(key);
            }
        }
    }
}

/// The segments of one peer that have been used, each with the peer's descriptor of it.
#[derive(Debug, Default)]
pub(super) struct Segments(Vec<(u32, Arc<Mapped>)>);

impl Segments {
    /// Calls `act` with the segment and the offset of a place, if access to `len` bytes there is permitted. If the
    /// registration ends during the access, the access counts as refused.
    #[inline]
    pub(super) fn access<T>(
        &mut self,
        owner: Process,
        place: Remote,
        len: usize,
        access: Access,
        act: impl FnOnce(&Arc<Mapped>, usize) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let fd = (place.address >> OFFSET_BITS) as u32;
        let offset = usize::try_from(place.address & OFFSET_MASK).map_err(|_| Failure::Refused)?;
        let permits = |segment: &Mapped| segment.permits(place.key, access, offset, len);
        let fits = |(known, segment): &(u32, Arc<Mapped>)| *known == fd && permits(segment);
        let index = match self.0.iter().position(fits) {
            Some(index) => index,
            None => {
                self.open(owner, fd).filter(|&index| permits(&self.0[index].1)).ok_or(Failure::Refused)?
            }
        };
        let segment = &self.0[index].1;
        let done = act(segment, offset)?;
        if permits(segment) { Ok(done) } else { Err(Failure::Refused) }
    }

    /// Returns the bytes for loads and stores; see [`Port::map`](crate::Port::map).
    pub(super) fn window(&mut self, owner: Process, at: Remote, len: usize) -> Option<Window> {
        let window = |segment: &Arc<Mapped>, offset| {
            Ok(Window::new(Arc::clone(segment), Some(at.key), offset..offset + len))
        };
        self.access(owner, at, len, RIGHTS, window).ok()
    }

    /// Maps the segment to which a descriptor refers now. (The peer may have reused the number of the descriptor.)
    #[cold]
    fn open(&mut self, owner: Process, fd: u32) -> Option<usize> {
        let segment = Mapped::open(owner, fd).ok()?;
        // Drops segments without any grant.
        self.0.retain(|(known, segment)| *known != fd && segment.is_granted());
        self.0.push((fd, Arc::new(segment)));
        Some(self.0.len() - 1)
    }

    /// Returns the number of mapped segments.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Exposes bytes, if they lie in this process's heap. Processes that know the key of the returned place may then read
/// them.
pub(super) fn expose(bytes: &[u8]) -> Option<Exposure> {
    let exposed = heap::expose(bytes)?;
    if exposed.fd >> (u64::BITS - OFFSET_BITS) != 0 || exposed.offset as u64 > OFFSET_MASK {
        return None;
    }
    let address = u64::from(exposed.fd) << OFFSET_BITS | exposed.offset as u64;
    Some(Exposure::new(Remote { key: exposed.key, address }, exposed))
}

/// The mapped heap of one peer and the peer's descriptor of it, once the heap has been used.
#[derive(Default)]
pub(super) struct Heap(Option<(u32, PeerHeap)>);

impl Heap {
    /// Copies bytes that the peer has exposed; see [`Port::read`](crate::Port::read).
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

/// The longest operation, in bytes. The call that posts an operation also performs its copy, so this limits the
/// duration of the call.
pub(super) const RMA_MAX: usize = 1 << 20;

/// The maximum number of operations that have ended but have not been reported.
pub(super) const RMA_DEPTH: usize = 1024;

/// Largest number of parts of one put.
pub(super) const IOV_MAX: usize = 64;

/// The number of bits of a remote address that contain the offset. The upper bits contain the descriptor.
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
