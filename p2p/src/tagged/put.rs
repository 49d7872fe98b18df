//! Long messages that the sender writes into the receiver's memory by puts. Ports without safe gets, as those of
//! libfabric's TCP providers, move long messages in this way.
//!
//! The receiver registers memory for the bytes and sends the sender its place (PLACE). If the receive owns its buffer,
//! that is the memory, and one PLACE covers the whole message. Otherwise the memory is a bounce buffer of
//! [`Config::put_depth`](crate::Config::put_depth) parts, each with a PLACE of its own. Before a part is used again,
//! its bytes are copied to the caller's buffer, while the sender fills the next part.
//!
//! The sender posts the puts, at most `put_depth` at a time, and reports how many bytes the receiver's memory has
//! (LANDED). If the port keeps the order [`SEND_AFTER_PUT`](samite_fabric::Order::SEND_AFTER_PUT), LANDED follows the
//! puts at once, and otherwise when they have ended.
//!
//! The receiver keeps the memory registered until no put can reach it: until LANDED covers every place that it gave,
//! or the sender has sent ABORT behind its last put, or the sender has ended and its path is cut off. So a receive that
//! ends early has its result at once, and its memory stays with the request.

use samite_fabric::layout::Room;
use samite_fabric::link::{Error, Fate, Lent, Link, Out, Peer, RequestId, Status};
use samite_fabric::wire::{Protocol, WireError};
use samite_fabric::{Access, Body, Memory, PeerId, Port, PortError, Post, Region, Remote};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::transfer::Landed;
use super::{OneSided, Tagged};
use crate::choose::Limits;
use crate::request::{Buffer, Inflow, Landing, Part, Put, Request, State};
use crate::wire::{self, Abort, Place, TransferMode, kind};

/// The receiver's side.
impl Tagged {
    /// Starts a receive whose bytes the sender puts.
    pub(super) fn begin_landing(&mut self, link: &mut Link, id: RequestId, send: u64, status: Status) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let landing = Landing {
            send,
            status,
            memory: None,
            part: 0,
            offered: 0,
            landed: 0,
            copied: 0,
            abandoned: false,
        };
        request.state = State::Landing(Box::new(landing));
        self.move_later(link, id);
    }

    /// Handles the sender's report that bytes have landed.
    pub(super) fn landed(
        &mut self,
        link: &mut Link,
        peer: Peer,
        landed: &wire::Landed,
    ) -> Result<(), WireError> {
        let Some(id) = self.answered(link, peer, landed.recv.get()) else { return Ok(()) };
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let State::Landing(landing) = &mut request.state else {
            return Err(WireError::Value { field: "recv" });
        };
        let end = usize::try_from(landed.end.get()).ok();
        let end = end.filter(|end| (landing.landed + 1..=landing.offered).contains(end));
        landing.landed = end.ok_or(WireError::Value { field: "end" })?;
        self.move_later(link, id);
        Ok(())
    }

    /// Handles the sender's ABORT: no put comes any more.
    pub(super) fn end_landing(&mut self, link: &mut Link, id: RequestId) {
        let Some(Request { state: State::Landing(landing), .. }) = self.requests.get_mut(id) else { return };
        let rank = landing.status.source;
        landing.offered = landing.landed;
        self.abandon(link, id, Error::Abandoned { rank, fate: Fate::NotDelivered });
    }

    /// Moves the bytes of a receive as far as possible: copies what has landed, and offers the sender more room.
    /// Returns `Again` if another call is necessary that no packet of the sender will cause.
    pub(super) fn land<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let depth = self.config.put_depth.max(1);
        let Some(request) = self.requests.get_mut(id) else { return Ok(Post::Done) };
        let State::Landing(landing) = &mut request.state else { return Ok(Post::Done) };
        if landing.memory.is_none() && !landing.abandoned {
            let total = landing.status.bytes;
            let (region, part) = match std::mem::replace(&mut request.buffer, Buffer::Gone) {
                Buffer::Owned(memory) if !memory.is_scattered() => (Region::new(memory), total),
                other => {
                    request.buffer = other;
                    let part = limits.put_max.min(total);
                    (Region::new(Memory::zeroed(part * depth.min(total.div_ceil(part)))), part)
                }
            };
            match out.port.register(path, &region, Access::REMOTE_WRITE) {
                Ok(registration) => (landing.memory, landing.part) = (Some((region, registration)), part),
                Err(PortError::Exhausted { .. }) => {
                    // No more memory can be registered now, so the bytes are requested in packets.
                    return Ok(self.request_packets(out.link, id, region));
                }
                Err(error) => return Err(error),
            }
        }
        let has_copied = self.copy_landed(id, lent);
        let Some(request) = self.requests.get_mut(id) else { return Ok(Post::Done) };
        let State::Landing(landing) = &mut request.state else { return Ok(Post::Done) };
        let Some((memory, registration)) = &landing.memory else {
            self.close_landing(out, id);
            return Ok(Post::Done);
        };
        let bounces = !matches!(request.buffer, Buffer::Gone);
        while !landing.abandoned && landing.offered < landing.status.bytes {
            let len = landing.part.min(landing.status.bytes - landing.offered);
            if bounces && landing.offered + len - landing.copied > memory.len() {
                break;
            }
            let at = registration.remote(landing.offered % memory.len());
            let place = Place {
                send: landing.send.into(),
                recv: id.to_wire().into(),
                offset: (landing.offered as u64).into(),
                len: (len as u64).into(),
                key: at.key.into(),
                address: at.address.into(),
            };
            landing.offered += len;
            out.link.answer(peer, Protocol::P2p, kind::PLACE, place.as_bytes());
        }
        if landing.abandoned && landing.offered == landing.landed {
            self.close_landing(out, id);
        } else if !has_copied {
            // The next part is offered when the bytes of an earlier one are copied.
            return Ok(Post::Again);
        }
        Ok(Post::Done)
    }

    /// Copies the bytes that have landed in a bounce buffer to the caller's buffer. Returns false if it is not lent now.
    pub(super) fn copy_landed<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return true };
        let State::Landing(landing) = &mut request.state else { return true };
        let Some((memory, _)) = &landing.memory else { return true };
        if matches!(request.buffer, Buffer::Gone) {
            // The sender puts to the request's own memory, which was taken out of `buffer`.
            landing.copied = landing.landed;
        }
        if landing.copied == landing.landed || landing.abandoned {
            return true;
        }
        let Some(mut room) = request.buffer.room(id, lent) else { return false };
        while landing.copied < landing.landed {
            let (offset, slot) = (landing.copied, landing.copied % memory.len());
            let len = (landing.landed - offset).min(memory.len() - slot);
            room.put(offset, &Landed { landing: memory, offset, len });
            landing.copied += len;
        }
        true
    }

    /// Ends a receive whose memory the sender does not write to any more.
    pub(super) fn close_landing<P: Port>(&mut self, out: &mut Out<'_, P>, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let State::Landing(landing) = &mut request.state else { return };
        let (status, abandoned) = (landing.status, landing.abandoned);
        if let Some((region, registration)) = landing.memory.take() {
            out.port.deregister(registration);
            let memory = out.link.reclaim(region);
            if let Buffer::Gone = request.buffer {
                request.buffer = memory.map_or(Buffer::Gone, Buffer::Owned);
            }
        }
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        self.finish(out.link, id, if abandoned { Err(cancelled) } else { Ok(status) });
    }

    /// Requests the bytes of a receive in packets, because its memory cannot be registered.
    fn request_packets(&mut self, link: &mut Link, id: RequestId, region: Region) -> Post {
        let Some(request) = self.requests.get_mut(id) else { return Post::Done };
        let State::Landing(landing) = &mut request.state else { return Post::Done };
        if let Buffer::Gone = request.buffer {
            request.buffer = link.reclaim(region).map_or(Buffer::Gone, Buffer::Owned);
        }
        let (send, status) = (landing.send, landing.status);
        let mode = TransferMode::Push;
        request.state =
            State::AwaitingData(Box::new(Inflow { send, status, mode, requested: 0, received: 0 }));
        self.call(link, id);
        Post::Done
    }
}

/// The sender's side.
impl Tagged {
    /// Handles a PLACE: the receiver offers memory for a part of the message.
    pub(super) fn place(&mut self, link: &mut Link, peer: Peer, place: &Place) -> Result<(), WireError> {
        let Some(id) = self.called_for(link, peer, place.send.get(), place.recv) else { return Ok(()) };
        let can_put = self.path_to(link, peer).is_some_and(|(_, limits)| limits.put);
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let (start, end) = part_of(place.offset, place.len, request.buffer.len())?;
        let part = Part { start, end, into: Remote { key: place.key.get(), address: place.address.get() } };
        let recv = place.recv.get();
        match &mut request.state {
            State::AwaitingMatch { exposure: None, .. }
                if start == 0
                    && can_put
                    && matches!(request.buffer, Buffer::Lent { .. } | Buffer::Owned(_)) =>
            {
                let total = request.buffer.len();
                request.state = State::Putting(Box::new(Put::new(peer, recv, total, part)));
            }
            State::Putting(put) if put.recv == recv && put.offered == start => {
                put.offered = end;
                put.parts.push_back(part);
            }
            _ => return Err(WireError::Value { field: "offset" }),
        }
        self.move_later(link, id);
        self.confirmed(link, peer, id);
        Ok(())
    }

    /// Posts puts of a send, and reports to the receiver what has landed. Returns `Again` if another call is necessary,
    /// and neither the end of a put nor a packet of the receiver will cause that call.
    pub(super) fn put<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let depth = self.config.put_depth.max(1);
        self.open_source(out, id, path, limits)?;
        let Some(request) = self.requests.get_mut(id) else { return Ok(Post::Done) };
        let State::Putting(put) = &mut request.state else { return Ok(Post::Done) };
        let mut blocked = None;
        while let (Some(&part), false) = (put.parts.front(), put.abandoned) {
            if put.outstanding == depth {
                break;
            }
            let (offset, len) = (put.posted, limits.put_max.min(part.end - put.posted));
            let into = Remote {
                key: part.into.key,
                address: part.into.address.wrapping_add((offset - part.start) as u64),
            };
            let (slot, from) = match (&request.buffer, &put.bounce) {
                (Buffer::Registered { registration, .. }, _) => (0, registration.local(offset, len)),
                (buffer, Some((bounce, registration))) => {
                    let Some(bytes) = buffer.bytes(id, lent) else {
                        blocked = Some(Post::Again);
                        break;
                    };
                    let Some(slot) = put.free.pop() else { break };
                    copy_in(bounce, slot * limits.put_max, &bytes.part(offset, offset + len))?;
                    (slot, registration.local(slot * limits.put_max, len))
                }
                _ => unreachable!("{id:?} puts without registered memory"),
            };
            let key = self.one_sided.insert(OneSided { request: id, offset: slot, len });
            match out.put(path, from, into, Protocol::P2p, key as u64) {
                Ok(Post::Done) => put.outstanding += 1,
                Ok(Post::Over) => {
                    self.one_sided.remove(key);
                    put.release(slot);
                }
                other => {
                    self.one_sided.remove(key);
                    put.release(slot);
                    out.link.note_again();
                    let Post::Again = other? else { unreachable!("an accepted put is done or over") };
                    blocked = (put.outstanding == 0).then_some(Post::Again);
                    break;
                }
            }
            put.posted += len;
            if put.posted == part.end {
                put.parts.pop_front();
            }
        }
        let has_landed = limits.send_after_put || put.outstanding == 0;
        let landed =
            if has_landed && !put.abandoned && put.reported < put.posted { Some(put.posted) } else { None };
        put.reported = landed.unwrap_or(put.reported);
        let (recv, is_whole) = (put.recv, put.is_whole());
        let (is_at_rest, abandoned) = (put.outstanding == 0, put.abandoned);
        let recv = U64::from(recv);
        if let Some(landed) = landed {
            self.answer(out.link, peer, kind::LANDED, &wire::Landed { recv, end: (landed as u64).into() });
        }
        if is_at_rest && (is_whole || abandoned) {
            self.close_put(out, id);
            return Ok(Post::Done);
        }
        Ok(blocked.unwrap_or(Post::Done))
    }

    /// Registers the memory from which a send is put: the request's own, or a bounce buffer.
    fn open_source<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        path: PeerId,
        limits: &Limits,
    ) -> Result<(), PortError> {
        let depth = self.config.put_depth.max(1);
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let State::Putting(put) = &mut request.state else { return Ok(()) };
        if put.abandoned || put.bounce.is_some() || matches!(request.buffer, Buffer::Registered { .. }) {
            return Ok(());
        }
        match std::mem::replace(&mut request.buffer, Buffer::Gone) {
            Buffer::Owned(memory) if !memory.is_scattered() => {
                let region = Region::new(memory);
                match out.port.register(path, &region, Access::LOCAL_READ) {
                    Ok(registration) => request.buffer = Buffer::Registered { region, registration },
                    Err(error) => {
                        request.buffer = out.link.reclaim(region).map_or(Buffer::Gone, Buffer::Owned);
                        return Err(error);
                    }
                }
            }
            other => {
                request.buffer = other;
                let slots = depth.min(put.total.div_ceil(limits.put_max));
                let region = Region::new(Memory::zeroed(slots * limits.put_max.min(put.total)));
                let registration = out.port.register(path, &region, Access::LOCAL_READ)?;
                put.bounce = Some((region, registration));
                put.free = (0..slots).rev().collect();
            }
        }
        Ok(())
    }

    /// Ends a send of which no put is under way.
    pub(super) fn close_put<P: Port>(&mut self, out: &mut Out<'_, P>, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let State::Putting(put) = &mut request.state else { return };
        let (peer, recv, is_whole) = (put.to, put.recv, put.is_whole());
        let status = Status { source: out.link.peer(peer).rank(), tag: request.tag, bytes: put.total };
        if let Some((region, registration)) = put.bounce.take() {
            out.port.deregister(registration);
            drop(out.link.reclaim(region));
        }
        if !is_whole {
            self.answer(out.link, peer, kind::ABORT, &Abort { recv: recv.into() });
        }
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        self.finish(out.link, id, if is_whole { Ok(status) } else { Err(cancelled) });
    }
}

/// Returns the first byte of a part of a message of `total` bytes, and the end of the part.
pub(super) fn part_of(offset: U64, len: U64, total: usize) -> Result<(usize, usize), WireError> {
    let start = usize::try_from(offset.get()).map_err(|_| WireError::Value { field: "offset" })?;
    let len = usize::try_from(len.get()).map_err(|_| WireError::Value { field: "length" })?;
    let end = start.checked_add(len).filter(|&end| len > 0 && end <= total);
    Ok((start, end.ok_or(WireError::Value { field: "length" })?))
}

/// Copies a part of a message to a bounce buffer.
fn copy_in(bounce: &Region, offset: usize, bytes: &impl Body) -> Result<(), PortError> {
    match bytes.as_slice() {
        Some(slice) => bounce.copy_in(offset, slice),
        None => {
            let mut contiguous = vec![0; bytes.len()];
            bytes.copy_to(&mut contiguous);
            bounce.copy_in(offset, &contiguous)
        }
    }
}
