//! Posting of operations: the handling of the result of a libfabric call, and puts, which consist of one write or two.

use std::ptr::null_mut;

use samite_fabric_sys as sys;

use super::OfiPort;
use super::events::Event;
use super::memory::Span;
use super::object::error;
use super::slots::{Flight, Held, IOV_MAX};
use crate::port::total;
use crate::{Access, Failure, Local, OpId, PeerId, PortError, Post, Remote};

/// A notification that the provider has not accepted yet. The data of its put is already under way.
#[derive(Debug)]
pub(super) struct Note {
    peer: PeerId,
    into: Remote,
    immediate: u64,
    op: OpId,
}

impl OfiPort {
    /// Handles the result of a post. The post used a slot unless it was injected.
    #[inline]
    pub(super) fn posted(
        &mut self,
        call: &'static str,
        status: isize,
        peer: PeerId,
        used: Option<(u32, Flight)>,
    ) -> Result<Post, PortError> {
        let known = &mut self.peers[peer.0 as usize];
        known.last_post_accepted = status == 0;
        if status == 0 {
            if let Some((slot, flight)) = used {
                *known.in_flight.of(self.slots.is_send(slot)) += 1;
                self.slots.fly(slot, flight);
                flight.held.iter().for_each(|name| self.registrations.hold(name));
            }
            return Ok(Post::Done);
        }
        if let Some((slot, _)) = used {
            self.slots.give_back(slot);
        }
        if status == -(sys::FI_EAGAIN as isize) { Ok(Post::Again) } else { Err(error(call, -status as i32)) }
    }

    /// Writes parts of registered memory, one after the other, and completes `op` when the bytes are visible at the
    /// target. An immediate then notifies the target.
    pub(super) fn write(
        &mut self,
        to: PeerId,
        parts: &[Local],
        into: Remote,
        immediate: Option<u64>,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.peer(to)?;
        let len = total(parts, self.caps.iov_max, self.caps.rma_max)?;
        let mut spans = [self.sends.span(0, 0)?; IOV_MAX];
        // The spans are checked before any slot is taken.
        for (span, &part) in spans.iter_mut().zip(parts) {
            *span = self.registrations.span(part, Access::LOCAL_READ)?;
        }
        if let Some(refused) = self.refuse(into, len, op) {
            return Ok(refused);
        }
        if let Some(immediate) = immediate
            && self.notes_alone
            && len > 0
        {
            return self.write_then_note(to, parts, &spans[..parts.len()], into, immediate, op);
        }
        let Some(slot) = self.slots.operation(self.in_flight(to).operations) else { return Ok(Post::Again) };
        let flight = Flight { peer: to, op: Some(op), sequenced: false, held: Held::of(parts) };
        self.post_write(slot, flight, &spans[..parts.len().max(1)], into, immediate)
    }

    /// Writes bytes that are copied to a buffer of the port before the call returns.
    pub(super) fn write_bytes(
        &mut self,
        to: PeerId,
        from: &[u8],
        into: Remote,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.peer(to)?;
        let max = self.caps.put_bytes_max;
        if from.len() > max {
            return Err(PortError::TooLong { len: from.len(), max });
        }
        if let Some(refused) = self.refuse(into, from.len(), op) {
            return Ok(refused);
        }
        let Some((slot, buffer)) = self.slots.send(self.in_flight(to).sends) else { return Ok(Post::Again) };
        let span = self.sends.fill(buffer, &[], from)?;
        let flight = Flight { peer: to, op: Some(op), sequenced: false, held: Held::default() };
        self.post_write(slot, flight, &[span], into, None)
    }

    /// Refuses an operation on remote bytes that do not lie within the address space. The check is necessary because,
    /// with virtual addresses, the target of the sockets provider of 1.17.0 adds address and length without a check for
    /// overflow, and then writes to any address.
    pub(super) fn refuse(&mut self, place: Remote, len: usize, op: OpId) -> Option<Post> {
        if place.address.checked_add(len as u64).is_some() {
            return None;
        }
        if self.backlog.len() >= self.caps.rma_depth {
            return Some(Post::Again);
        }
        self.backlog.push_back(Event::Completed { op, result: Err(Failure::Refused) });
        Some(Post::Done)
    }

    /// Writes in two parts: the data, and then an empty write with the immediate. A connection performs its operations
    /// in order, so the operation has ended when the second part has ended.
    fn write_then_note(
        &mut self,
        to: PeerId,
        parts: &[Local],
        spans: &[Span],
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        if self.notes.iter().any(|note| note.peer == to) {
            return Ok(Post::Again);
        }
        let Some(slot) = self.slots.operation(self.in_flight(to).operations) else { return Ok(Post::Again) };
        let flight = Flight { peer: to, op: None, sequenced: true, held: Held::of(parts) };
        let posted = self.post_write(slot, flight, spans, into, None);
        if posted == Ok(Post::Done) {
            self.notes.push(Note { peer: to, into, immediate, op });
            self.post_notes();
        }
        posted
    }

    /// Posts the waiting notifications, as far as there is room.
    pub(super) fn post_notes(&mut self) {
        for note in std::mem::take(&mut self.notes) {
            match self.post_note(&note) {
                Ok(Post::Done | Post::Over) => {}
                Ok(Post::Again) => self.notes.push(note),
                Err(failure) => {
                    self.backlog.push_back(Event::Completed { op: note.op, result: Err(failure) });
                }
            }
        }
    }

    fn post_note(&mut self, note: &Note) -> Result<Post, Failure> {
        let known = &self.peers[note.peer.0 as usize];
        if known.gone {
            return Err(if known.fenced { Failure::Fenced } else { Failure::PeerLost });
        }
        let taken = self.in_flight(note.peer).operations;
        let Some(slot) = self.slots.operation(taken) else { return Ok(Post::Again) };
        let flight = Flight { peer: note.peer, op: Some(note.op), sequenced: false, held: Held::default() };
        let nothing = self.sends.span(0, 0).map_err(|_| Failure::PeerLost)?;
        self.post_write(slot, flight, &[nothing], note.into, Some(note.immediate)).map_err(
            |error| match error {
                PortError::Provider { code, text, .. } => Failure::Provider { code, text },
                _ => Failure::PeerLost,
            },
        )
    }

    /// Posts a write of one to [`IOV_MAX`] spans.
    fn post_write(
        &mut self,
        slot: u32,
        flight: Flight,
        spans: &[Span],
        into: Remote,
        immediate: Option<u64>,
    ) -> Result<Post, PortError> {
        let count = spans.len().min(IOV_MAX);
        let mut iov = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; IOV_MAX];
        let mut descriptors = [null_mut(); IOV_MAX];
        for ((iov, descriptor), span) in iov.iter_mut().zip(&mut descriptors).zip(spans) {
            *iov = libc::iovec { iov_base: span.start.as_ptr().cast(), iov_len: span.len };
            *descriptor = span.descriptor;
        }
        let len = spans[..count].iter().map(|span| span.len).sum();
        let remote = sys::fi_rma_iov { addr: into.address, len, key: into.key };
        let message = sys::fi_msg_rma {
            msg_iov: iov.as_ptr(),
            desc: descriptors.as_mut_ptr(),
            iov_count: count,
            addr: self.peers[flight.peer.0 as usize].fi_address,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: self.slots.context(slot),
            data: immediate.unwrap_or(0),
        };
        let told = if immediate.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
        // An empty write has no bytes to deliver, and with FI_DELIVERY_COMPLETE it would never complete on libfabric's
        // shm (seen at 1.17.0). But if `notes_alone` is true, the empty write is the notification of a put. It
        // completes only on delivery, so that its completion also means that the write before it was delivered.
        let delivered = if len > 0 || self.notes_alone { sys::FI_DELIVERY_COMPLETE } else { 0 };
        let flags = sys::FI_COMPLETION | delivered | told;
        // SAFETY: the endpoint is live and has FI_RMA. The message is read during the call. The memory of the spans
        // is kept until the slot lands, by held registrations or as the slot's own buffer. The context is kept as
        // long.
        let status = unsafe { sys::fi_writemsg(self.ep(), &message, flags) };
        self.posted("fi_writemsg", status, flight.peer, Some((slot, flight)))
    }
}
