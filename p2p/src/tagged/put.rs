//! Long messages that the sender writes into the receiver's memory by puts. Over ports without safe gets, like those of
//! libfabric's TCP providers, long messages move in this way. Over ports with gets, only borrowed buffers do.
//!
//! The receiver registers memory for the bytes and sends the sender its place (PLACE). If the receive owns its buffer,
//! that is the memory, and one PLACE covers the whole message. Otherwise the memory consists of at most
//! [`Config::put_depth`](crate::Config::put_depth) slabs ([`Slab`]), each with a PLACE of its own. Before a slab is
//! used again, its bytes are copied to the caller's buffer, while the sender fills the next slab.
//!
//! The sender posts the puts into one place after the other, at most `put_depth` puts at a time, and reports how many
//! bytes the receiver's memory has (LANDED) when it has posted all puts into a place. If one place covers the message,
//! the sender also reports when it posts a put and 10 ms have passed since the latest report: the receiver's port has no
//! events meanwhile, and a receiver without events rests longer and longer. If the port does not keep the order
//! [`SEND_AFTER_PUT`](samite_fabric::Order::SEND_AFTER_PUT), LANDED is sent when no put is under way any more.
//!
//! If one side cannot register its memory, the bytes travel in packets: the receiver sends CTS instead of PLACE, and
//! the sender answers PLACE by a LANDED that says that it puts nothing.
//!
//! The receiver keeps the memory registered until no put can reach it: until LANDED covers every place that it gave, or
//! the sender has sent ABORT behind its last put, or the sender has ended and its path is cut off. So a receive that
//! ends early has its result immediately, and its memory stays with the request.

use std::ops::{ControlFlow, Range};

use samite_fabric::layout::Room;
use samite_fabric::link::{Error, Fate, Lent, Link, Out, Peer, RequestId, Slab, Status};
use samite_fabric::wire::{Protocol, WireError};
use samite_fabric::{Access, Body, Local, PeerId, Port, PortError, Post, Remote};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::target::{Parts, SLAB_MAX, Target, take_slab};
use super::{OneSided, Tagged};
use crate::choose::Limits;
use crate::request::{Buffer, Landing, Part, Put, Request, State};
use crate::wire::{self, Abort, Place, kind};

/// The receiver's side.
impl Tagged {
    /// Starts a receive whose bytes the sender puts.
    pub(super) fn begin_landing(&mut self, link: &mut Link, id: RequestId, send: u64, status: Status) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let landing = Landing {
            send,
            status,
            target: None,
            offered: 0,
            landed: 0,
            copied: 0,
            is_refused: false,
            abandoned: false,
        };
        request.state = State::Landing(Box::new(landing));
        self.move_later(link, id);
    }

    /// Handles the sender's report that bytes have landed, or that it cannot put any.
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
        let end = landed.end.get();
        if end == 0 && landing.landed == 0 {
            landing.is_refused = true;
            landing.offered = 0;
        } else {
            let end = usize::try_from(end).ok();
            let end = end.filter(|end| (landing.landed + 1..=landing.offered).contains(end));
            landing.landed = end.ok_or(WireError::Value { field: "end" })?;
        }
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

    /// Moves the bytes of a receive as far as possible: copies the bytes that have landed, and offers more room.
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
        let Some(Request { state: State::Landing(landing), buffer, .. }) = self.requests.get_mut(id) else {
            return Ok(Post::Done);
        };
        if !landing.abandoned {
            let total = landing.status.bytes;
            if landing.is_refused {
                landing.target.take().into_iter().for_each(|target| target.close(out, buffer));
            } else if landing.target.is_none() {
                let parts = Parts { own: total, slab: slab_len(limits), depth };
                let to = (peer, path);
                landing.target = Target::open(out, to, Access::REMOTE_WRITE, buffer, total, &parts);
            }
            if landing.target.is_none() {
                self.request_packets(out.link, id);
                return Ok(Post::Done);
            }
        }
        let has_copied = self.copy_landed(id, lent);
        self.offer(out.link, peer, id);
        let Some(Request { state: State::Landing(landing), .. }) = self.requests.get(id) else {
            return Ok(Post::Done);
        };
        if landing.abandoned && landing.offered == landing.landed {
            self.close_landing(out, id);
        } else if !has_copied {
            // The next part is offered when the bytes of an earlier one are copied.
            return Ok(Post::Again);
        }
        Ok(Post::Done)
    }

    /// Offers the sender the free parts of the receive's memory.
    fn offer(&mut self, link: &mut Link, peer: Peer, id: RequestId) {
        let Some(Request { state: State::Landing(landing), .. }) = self.requests.get_mut(id) else { return };
        let (Some(target), false) = (&landing.target, landing.abandoned) else { return };
        while landing.offered < landing.status.bytes {
            let len = target.part().min(landing.status.bytes - landing.offered);
            if landing.offered + len - landing.copied > target.len() {
                break;
            }
            let at = target.remote(landing.offered);
            let place = Place {
                send: landing.send.into(),
                recv: id.to_wire().into(),
                offset: (landing.offered as u64).into(),
                len: (len as u64).into(),
                key: at.key.into(),
                address: at.address.into(),
            };
            landing.offered += len;
            link.answer(peer, Protocol::P2p, kind::PLACE, place.as_bytes());
        }
    }

    /// Copies the bytes that have landed in slabs to the caller's buffer. Returns false if that buffer is not
    /// lent now.
    pub(super) fn copy_landed<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> bool {
        let Some(Request { state: State::Landing(landing), buffer, .. }) = self.requests.get_mut(id) else {
            return true;
        };
        let Some(target) = &landing.target else { return true };
        if !target.is_bounced() {
            landing.copied = landing.landed;
        }
        if landing.copied == landing.landed || landing.abandoned {
            return true;
        }
        let Some(mut room) = buffer.room(id, lent) else { return false };
        while landing.copied < landing.landed {
            let (offset, part) = (landing.copied, target.part());
            let len = (landing.landed - offset).min(part - offset % part);
            room.put(offset, &target.bytes(offset, len));
            landing.copied += len;
        }
        true
    }

    /// Ends a receive whose memory the sender does not write to any more.
    pub(super) fn close_landing<P: Port>(&mut self, out: &mut Out<'_, P>, id: RequestId) {
        let Some(Request { state: State::Landing(landing), buffer, .. }) = self.requests.get_mut(id) else {
            return;
        };
        let (status, abandoned) = (landing.status, landing.abandoned);
        if let Some(target) = landing.target.take() {
            target.close(out, buffer);
        }
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        self.finish(out.link, id, if abandoned { Err(cancelled) } else { Ok(status) });
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
                request.state = State::Putting(Box::new(Put::new(peer, recv, total, part, link.now())));
            }
            State::Putting(put)
                if put.recv == recv && put.offered == start && put.parts.len() < PARTS_MAX =>
            {
                put.offered = end;
                put.parts.push_back(part);
            }
            // This side could not register its memory when the first PLACE of this message came, and has said so.
            State::AwaitingMatch { .. } if start > 0 => {
                link.note_stale();
                return Ok(());
            }
            _ => return Err(WireError::Value { field: "offset" }),
        }
        self.move_later(link, id);
        self.confirmed(link, peer, id);
        Ok(())
    }

    /// Posts puts of a send, and reports the written bytes to the receiver. Returns `Again` if another call is
    /// necessary, and neither the end of a put nor a packet of the receiver will cause that call.
    pub(super) fn put<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        if !self.open_source(out, id, (peer, path), limits) {
            self.refuse_to_put(out.link, peer, id);
            return Ok(Post::Done);
        }
        loop {
            let post = self.post_puts(out, id, (peer, path), limits, lent)?;
            let Some(Request { state: State::Putting(put), .. }) = self.requests.get_mut(id) else {
                return Ok(Post::Done);
            };
            let now = out.link.now();
            let is_one_part = put.parts.front().is_some_and(|part| part.end - part.start == put.total);
            let is_time = is_one_part && limits.send_after_put && now.since(put.reported_at) >= REPORT_NS;
            let end = if is_time { put.posted } else { put.posted_parts() };
            let have_landed = limits.send_after_put || put.outstanding == 0;
            if have_landed && !put.abandoned && put.reported < end {
                (put.reported, put.reported_at) = (end, now);
                let landed = wire::Landed { recv: put.recv.into(), end: (end as u64).into() };
                out.answer(peer, Protocol::P2p, kind::LANDED, landed.as_bytes());
            }
            if put.outstanding == 0 && (put.is_whole() || put.abandoned) {
                self.close_put(out, id);
                return Ok(Post::Done);
            }
            if let Some(post) = post {
                return Ok(post);
            }
        }
    }

    /// Posts puts of a send into the next part that the receiver has offered. Returns `None` if all puts into this part
    /// are posted, and otherwise the result of [`put`](Self::put).
    fn post_puts<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
        lent: &L,
    ) -> Result<Option<Post>, PortError> {
        let depth = self.config.put_depth.max(1);
        let Some(Request { state: State::Putting(put), buffer, .. }) = self.requests.get_mut(id) else {
            return Ok(Some(Post::Done));
        };
        let slab_len = slab_len(limits);
        let longest = if matches!(buffer, Buffer::Registered { .. }) { limits.put_max } else { slab_len };
        while let (Some(&part), false) = (put.parts.front(), put.abandoned) {
            if put.outstanding == depth {
                break;
            }
            let (offset, len) = (put.posted, longest.min(part.end - put.posted));
            let into = Remote {
                key: part.into.key,
                address: part.into.address.wrapping_add((offset - part.start) as u64),
            };
            let bytes = offset..offset + len;
            let (slot, from) = match source(out, put, peer, buffer, (id, lent), bytes, slab_len)? {
                ControlFlow::Continue(source) => source,
                ControlFlow::Break(post) => return Ok(Some(post)),
            };
            let key = self.one_sided.insert(OneSided { request: id, offset: slot, len });
            let posted = out.put(path, from, into, Protocol::P2p, key as u64);
            if posted == Ok(Post::Done) {
                put.outstanding += 1;
            } else {
                self.one_sided.remove(key);
                put.release(slot);
                if posted != Ok(Post::Over) {
                    out.link.note_again();
                    let post = if put.outstanding == 0 { Post::Again } else { Post::Done };
                    return posted.map(|_| Some(post));
                }
            }
            put.posted += len;
            if put.posted == part.end {
                put.parts.pop_front();
                return Ok(None);
            }
        }
        Ok(Some(Post::Done))
    }

    /// Registers the memory from which a send is put: the request's own, or a first slab. Returns false if there is no
    /// registered memory.
    fn open_source<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
    ) -> bool {
        let Some(Request { state: State::Putting(put), buffer, .. }) = self.requests.get_mut(id) else {
            return true;
        };
        if put.abandoned || !put.slabs.is_empty() || matches!(buffer, Buffer::Registered { .. }) {
            return true;
        }
        if buffer.is_region() {
            buffer.register(out, path, Access::LOCAL_READ);
            return matches!(buffer, Buffer::Registered { .. });
        }
        put.slabs.extend(take_slab(out, peer, slab_len(limits), Access::LOCAL_READ));
        put.free.extend(0..put.slabs.len());
        !put.slabs.is_empty()
    }

    /// Informs the receiver that no byte of a send will be put, because the memory cannot be registered. The receiver
    /// then requests the bytes in packets.
    fn refuse_to_put(&mut self, link: &mut Link, peer: Peer, id: RequestId) {
        let Some(Request { state, .. }) = self.requests.get_mut(id) else { return };
        let State::Putting(put) = state else { return };
        let refusal = wire::Landed { recv: put.recv.into(), end: U64::ZERO };
        *state = State::AwaitingMatch { revoked: false, exposure: None };
        self.answer(link, peer, kind::LANDED, &refusal);
    }

    /// Ends a send of which no put is under way.
    pub(super) fn close_put<P: Port>(&mut self, out: &mut Out<'_, P>, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let State::Putting(put) = &mut request.state else { return };
        let (peer, recv, is_whole) = (put.to, put.recv, put.is_whole());
        let status = Status { source: out.link.peer(peer).rank(), tag: request.tag, bytes: put.total };
        put.slabs.drain(..).for_each(|slab| out.link.give_slab(slab));
        if !is_whole {
            self.answer(out.link, peer, kind::ABORT, &Abort { recv: recv.into() });
        }
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        self.finish(out.link, id, if is_whole { Ok(status) } else { Err(cancelled) });
    }
}

/// The time after which a sender reports bytes of a place although it has not posted all puts into it. It is far below
/// the time after which a receiver takes the sender for stopped (`nap_while_bytes_move` in the service crate), and long
/// enough that the packet costs nothing in comparison.
const REPORT_NS: u64 = 10_000_000;

/// The number of places that may wait for puts of one send. A receiver gives no more: it offers a slab again after the
/// puts to the slab have ended, and it has at most as many slabs as [`Config::put_depth`](crate::Config::put_depth)
/// permits. With this limit, places of a few bytes each do not fill the sender's memory.
const PARTS_MAX: usize = 256;

/// Returns the first byte of a part of a message of `total` bytes, and the end of the part.
pub(super) fn part_of(offset: U64, len: U64, total: usize) -> Result<(usize, usize), WireError> {
    let start = usize::try_from(offset.get()).map_err(|_| WireError::Value { field: "offset" })?;
    let len = usize::try_from(len.get()).map_err(|_| WireError::Value { field: "length" })?;
    let end = start.checked_add(len).filter(|&end| len > 0 && end <= total);
    Ok((start, end.ok_or(WireError::Value { field: "length" })?))
}

/// Returns the length of the slabs through which the bytes of borrowed buffers are put.
fn slab_len(limits: &Limits) -> usize {
    limits.put_max.min(SLAB_MAX)
}

/// Returns the registered memory for the next put of a send, and the number of its slab. Copies the bytes to the slab,
/// unless the request's own memory is registered. Breaks if no put is possible now: with `Again` if the caller's buffer
/// is not lent, and with `Done` if all slabs are in use, so that the end of a put continues the send.
fn source<P: Port>(
    out: &mut Out<'_, P>,
    put: &mut Put,
    peer: Peer,
    buffer: &Buffer,
    (id, lent): (RequestId, &impl Lent),
    bytes: Range<usize>,
    slab_len: usize,
) -> Result<ControlFlow<Post, (usize, Local)>, PortError> {
    if let Buffer::Registered { lease, .. } = buffer {
        return Ok(ControlFlow::Continue((0, lease.local(bytes.start, bytes.len()))));
    }
    let Some(message) = buffer.bytes(id, lent) else { return Ok(ControlFlow::Break(Post::Again)) };
    if put.free.is_empty()
        && let Some(slab) = take_slab(out, peer, slab_len, Access::LOCAL_READ)
    {
        put.free.push(put.slabs.len());
        put.slabs.push(slab);
    }
    let Some(slot) = put.free.pop() else { return Ok(ControlFlow::Break(Post::Done)) };
    let slab = &put.slabs[slot];
    copy_in(slab, &message.part(bytes.start, bytes.end))?;
    Ok(ControlFlow::Continue((slot, slab.local(0, bytes.len()))))
}

/// Copies a part of a message to a slab.
fn copy_in(slab: &Slab, bytes: &impl Body) -> Result<(), PortError> {
    match bytes.as_slice() {
        Some(slice) => slab.region().copy_in(0, slice),
        None => {
            let mut contiguous = vec![0; bytes.len()];
            bytes.copy_to(&mut contiguous);
            slab.region().copy_in(0, &contiguous)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_may_offer_all_its_slabs() {
        let mut parameters = crate::Config::PARAMETERS.iter();
        let put_depth = parameters.find(|parameter| parameter.name == "put_depth");
        assert_eq!(put_depth.map(|parameter| parameter.max), Some(PARTS_MAX as u64));
    }
}
