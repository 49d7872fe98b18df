//! Posting: what becomes of a call, and writes, in one part or two.

use samite_fabric_sys as sys;

use super::OfiPort;
use super::events::Event;
use super::object::error;
use super::slots::Flight;
use crate::{Access, Failure, Local, OpId, PeerId, PortError, Post, Remote};

/// A notification whose data is on its way, and which the provider has not accepted yet.
#[derive(Debug)]
pub(super) struct Note {
    peer: PeerId,
    into: Remote,
    immediate: u64,
    op: OpId,
}

impl OfiPort {
    /// What became of a post, which used a slot unless it was injected.
    #[inline]
    pub(super) fn posted(
        &mut self,
        call: &'static str,
        status: isize,
        peer: PeerId,
        used: Option<(u32, Flight)>,
    ) -> Result<Post, PortError> {
        let known = &mut self.peers[peer.0 as usize];
        known.settled = status == 0;
        if status == 0 {
            if let Some((slot, flight)) = used {
                known.in_flight += 1;
                self.slots.fly(slot, flight);
                if let Some(registration) = flight.registration {
                    self.registrations.hold(registration);
                }
            }
            return Ok(Post::Done);
        }
        if let Some((slot, _)) = used {
            self.slots.give_back(slot);
        }
        if status == -(sys::FI_EAGAIN as isize) { Ok(Post::Again) } else { Err(error(call, -status as i32)) }
    }

    /// Writes, and completes `op` when the bytes are visible at the target. With an immediate, the target is
    /// told then.
    pub(super) fn write(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: Option<u64>,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.peer(to)?;
        if from.len > self.caps.rma_max {
            return Err(PortError::TooLong { len: from.len, max: self.caps.rma_max });
        }
        // Checks the span before any slot is taken.
        self.registrations.span(from, Access::LOCAL_READ)?;
        if let Some(immediate) = immediate
            && self.notes_alone
            && from.len > 0
        {
            return self.write_then_note(to, from, into, immediate, op);
        }
        let Some(slot) = self.slots.operation() else { return Ok(Post::Again) };
        let flight = Flight { peer: to, op: Some(op), registration: Some(from.registration.id) };
        self.post_write(slot, flight, Some(from), into, immediate)
    }

    /// Writes in two parts, the data and then a write of nothing with the immediate. What one connection
    /// carries is done in its order, so the operation has ended when the second part has.
    fn write_then_note(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        if self.notes.iter().any(|note| note.peer == to) {
            return Ok(Post::Again);
        }
        let Some(slot) = self.slots.operation() else { return Ok(Post::Again) };
        let flight = Flight { peer: to, op: None, registration: Some(from.registration.id) };
        let posted = self.post_write(slot, flight, Some(from), into, None);
        if posted == Ok(Post::Done) {
            self.notes.push(Note { peer: to, into, immediate, op });
            self.post_notes();
        }
        posted
    }

    /// Posts the notifications that wait for it, as far as there is room.
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
        let Some(slot) = self.slots.operation() else { return Ok(Post::Again) };
        let flight = Flight { peer: note.peer, op: Some(note.op), registration: None };
        self.post_write(slot, flight, None, note.into, Some(note.immediate)).map_err(|error| match error {
            PortError::Provider { code, text, .. } => Failure::Provider { code, text },
            _ => Failure::PeerLost,
        })
    }

    /// Posts a write of `from`, or of nothing.
    fn post_write(
        &mut self,
        slot: u32,
        flight: Flight,
        from: Option<Local>,
        into: Remote,
        immediate: Option<u64>,
    ) -> Result<Post, PortError> {
        let span = match from {
            Some(from) => self.registrations.span(from, Access::LOCAL_READ)?,
            None => self.sends.span(0, 0)?,
        };
        let iov = libc::iovec { iov_base: span.start.as_ptr().cast(), iov_len: span.len };
        let mut descriptor = span.descriptor;
        let remote = sys::fi_rma_iov { addr: into.address, len: span.len, key: into.key };
        let message = sys::fi_msg_rma {
            msg_iov: &iov,
            desc: &mut descriptor,
            iov_count: 1,
            addr: self.peers[flight.peer.0 as usize].fi_address,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: self.slots.context(slot),
            data: immediate.unwrap_or(0),
        };
        let told = if immediate.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
        // Of nothing, nothing has to be delivered; on libfabric's shm such a write would never complete (seen at
        // 1.17.0). But a note is over when what went before it is.
        let delivered = if span.len > 0 || self.notes_alone { sys::FI_DELIVERY_COMPLETE } else { 0 };
        let flags = sys::FI_COMPLETION | delivered | told;
        // SAFETY: the endpoint is live and has FI_RMA. The message is read during the call; the memory that
        // it names is kept by its registration, which is held until the slot lands, and so is the context.
        let status = unsafe { sys::fi_writemsg(self.ep(), &message, flags) };
        self.posted("fi_writemsg", status, flight.peer, Some((slot, flight)))
    }
}
