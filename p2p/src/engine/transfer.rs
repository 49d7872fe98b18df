//! The bytes of long messages: read where they are, if the receiver can map the memory; STREAM packets where they follow
//! their envelope; else gets where the receiver can, and DATA packets where it cannot.

use std::collections::btree_map::Entry;

use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Access, Body, Failure, Memory, OpId, PeerId, Port, PortError, Post, Region, Remote};
use samite_matching::Envelope;
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::{Core, Engine, Operation, Rendezvous, Stream, Unexpected, status_of};
use crate::choose::{Limits, cost};
use crate::error::{Cause, Error, Fate, Status};
use crate::peer::Peer;
use crate::request::{Buffer, Inflow, Partner, Pull, Request, Staged, State};

use crate::store::{Bytes, append};
use crate::wire::{Cts, Data, Fin, Verdict, Way, kind};
use crate::{Lent, RequestId};

impl Core {
    /// A receive has met an envelope: its bytes are to come.
    pub(super) fn begin(&mut self, id: RequestId, envelope: &Envelope, rendezvous: Rendezvous) {
        let Rendezvous { send, bytes, way } = rendezvous;
        let Some(index) = self.peers.find(envelope.source) else { return };
        // A sender whose hello has just come has no path yet; it will when the first get is due.
        let path = self.peers[index].path;
        let gets = path.is_none_or(|(_, limits)| limits.get && self.leaves_memory(&limits));
        let Some(request) = self.requests.get_mut(id) else { return };
        request.partner = Partner::Rank(envelope.source);
        let status = status_of(envelope, bytes);
        let room = request.buffer.len();
        if bytes > room || bytes == 0 {
            self.answer(index, kind::FIN, &Fin::new(send, Verdict::Delivered));
            let result = if bytes > room { Err(Error::Truncated { status, room }) } else { Ok(status) };
            return self.finish(id, result);
        }
        if let (Way::Pull(from), true) = (way, gets) {
            request.state = State::Pulling(Box::new(Pull {
                send,
                status,
                from,
                landing: None,
                chunk: 0,
                asked: 0,
                landed: 0,
                outstanding: 0,
                waiting: Vec::new(),
                abandoned: false,
            }));
            self.movers.push_back(id);
        } else {
            let (called, from) = match way {
                Way::Stream => (bytes, None),
                Way::Read(from) => (0, Some(from)),
                Way::Push | Way::Pull(_) => (0, None),
            };
            request.state = State::AwaitingData(Box::new(Inflow { send, status, from, called, received: 0 }));
            match way {
                Way::Stream => _ = self.streams.insert((index, send), Stream::Matched(id)),
                Way::Read(_) => self.movers.push_back(id),
                Way::Push | Way::Pull(_) => self.call(id),
            }
        }
    }

    /// A receive gets a message that came as a stream, or is coming.
    pub(super) fn take_stream<L: Lent>(
        &mut self,
        id: RequestId,
        envelope: &Envelope,
        rendezvous: Rendezvous,
        lent: &mut L,
    ) {
        self.unexpected_cost -= u64::from(cost(rendezvous.bytes));
        let index = self.peers.find(envelope.source);
        let stream = index.and_then(|index| self.streams.remove(&(index, rendezvous.send)));
        let Some(Stream::Kept { bytes, .. }) = stream else {
            unreachable!("an unexpected stream is kept under its name until it is matched: {stream:?}")
        };
        self.go_on(id, envelope, rendezvous, &bytes, lent);
    }

    /// A receive gets a message of which these bytes have come.
    pub(super) fn go_on<L: Lent>(
        &mut self,
        id: RequestId,
        envelope: &Envelope,
        rendezvous: Rendezvous,
        bytes: &[u8],
        lent: &mut L,
    ) {
        if bytes.len() == rendezvous.bytes {
            return self.deliver(id, *envelope, bytes, lent);
        }
        self.begin(id, envelope, rendezvous);
        if !bytes.is_empty() {
            // They are where the stream begins, and no more than it has.
            let _ = self.inflow(id, 0, bytes, lent);
        }
    }

    /// Bytes came that follow their envelope.
    pub(super) fn stream<L: Lent>(
        &mut self,
        index: u32,
        data: &Data,
        bytes: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), WireError> {
        let (name, offset) = ((index, data.operation.get()), data.offset.get());
        let Entry::Occupied(mut stream) = self.streams.entry(name) else {
            // It came to a receive that was too short for it, or has been given up.
            self.counters.stale += 1;
            return Ok(());
        };
        match stream.get_mut() {
            &mut Stream::Matched(id) => {
                self.inflow(id, offset, bytes, lent)?;
                let is_under_way = |request: &Request| matches!(request.state, State::AwaitingData(_));
                if !self.requests.get(id).is_some_and(is_under_way) {
                    self.streams.remove(&name);
                }
            }
            Stream::Kept { unexpected, total, bytes: kept } => {
                if keep(kept, *total, offset, bytes)?
                    && let Some(message) = self.matcher.unexpected_mut(*unexpected)
                {
                    // From now on it is like any other that came before its receive.
                    *message = Unexpected::Eager(Bytes::from_vec(std::mem::take(kept)));
                    stream.remove();
                }
            }
            &mut Stream::Claimed(place) => {
                let Some(claim) = self.claims.get_mut(place) else { return Ok(()) };
                if keep(&mut claim.bytes, claim.total, offset, bytes)? {
                    // It is whole, so its sender's end does not matter any more.
                    stream.remove();
                }
            }
        }
        Ok(())
    }

    /// The sender gave up before all bytes of a stream had gone. False if there is no such stream.
    pub(super) fn end_stream(&mut self, index: u32, send: u64) -> bool {
        let Some(stream) = self.streams.remove(&(index, send)) else { return false };
        match stream {
            Stream::Matched(id) => {
                let rank = self.peers[index].rank;
                self.finish(id, Err(Error::Abandoned { rank, fate: Fate::NotDelivered }));
            }
            Stream::Kept { unexpected, total, .. } => {
                if self.matcher.remove(unexpected).is_some() {
                    self.unexpected_cost -= u64::from(cost(total));
                }
            }
            Stream::Claimed(place) => self.lose_claim(place),
        }
        true
    }

    /// The same, of all streams of a peer that has left or failed. Their receives know by now why.
    pub(super) fn end_streams(&mut self, index: u32) {
        while let Some((&(_, send), _)) = self.streams.range((index, 0)..=(index, u64::MAX)).next() {
            self.end_stream(index, send);
        }
    }

    /// Calls for more bytes of a message that is sent, when half of what was called for has come. At most one
    /// window ahead, so that what comes while a borrowed buffer is not at hand is bounded.
    fn call(&mut self, id: RequestId) {
        let window = self.config.push_window.max(1);
        let Some(request) = self.requests.get_mut(id) else { return };
        let staged = matches!(&request.buffer, Buffer::Lent { staged: Some(_), .. });
        let State::AwaitingData(inflow) = &mut request.state else { return };
        let ahead = inflow.called - inflow.received;
        let len = (window - ahead.min(window)).min(inflow.status.bytes - inflow.called);
        if staged || len == 0 || ahead > window / 2 {
            return;
        }
        let cts = Cts {
            send: inflow.send.into(),
            recv: id.to_wire().into(),
            offset: (inflow.called as u64).into(),
            len: (len as u64).into(),
        };
        inflow.called += len;
        if let Some(index) = self.peers.find(inflow.status.source) {
            self.answer(index, kind::CTS, &cts);
        }
    }

    /// Bytes came that a receive called for.
    pub(super) fn inflow<L: Lent>(
        &mut self,
        id: RequestId,
        offset: u64,
        bytes: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), WireError> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let State::AwaitingData(inflow) = &mut request.state else {
            self.counters.stale += 1;
            return Ok(());
        };
        let (start, end) = (inflow.received, inflow.received.saturating_add(bytes.len()));
        if offset != start as u64 || end > inflow.called || bytes.len() == 0 {
            return Err(WireError::Value { field: "offset" });
        }
        match &mut request.buffer {
            Buffer::Owned(memory) => bytes.copy_to(&mut memory.as_bytes_mut()[start..end]),
            Buffer::Lent { staged, place, .. } => match lent.write(id, *place) {
                Some(buffer) => {
                    unstage(staged, buffer);
                    bytes.copy_to(&mut buffer[start..end]);
                }
                None => {
                    Staged::append(staged, start, bytes);
                    self.movers.push_back(id);
                }
            },
            Buffer::Registered { .. } | Buffer::Gone => {}
        }
        inflow.received = end;
        let status = inflow.status;
        if end == status.bytes {
            self.finish(id, Ok(status));
        } else if inflow.called < status.bytes {
            self.call(id);
        }
        Ok(())
    }

    /// A get ended.
    pub(super) fn got<L: Lent>(&mut self, op: OpId, result: Result<(), Failure>, lent: &mut L) {
        self.quarantine.release();
        let Some(Operation { request: id, offset, len }) = self.operations.try_remove(op.0 as usize) else {
            self.counters.stale += 1;
            return;
        };
        let Some(request) = self.requests.get_mut(id) else { return };
        let State::Pulling(pull) = &mut request.state else { return };
        pull.outstanding -= 1;
        if let Err(failure) = result {
            let rank = pull.status.source;
            let Some(index) = self.peers.find(rank) else { return };
            if self.peers[index].bye.is_some() {
                // It has heard that this side leaves, and taken its memory back.
                return self.give_up(id, Error::Abandoned { rank, fate: Fate::NotDelivered });
            }
            // Its peer is alive as far as anyone knows, but one of its messages is lost: nothing that it
            // sends can be trusted to arrive.
            return self.bury(index, Cause::Unreachable(failure.to_string()));
        }
        match (&mut request.buffer, &pull.landing) {
            (Buffer::Lent { place, .. }, Some((landing, _))) => match lent.write(id, *place) {
                Some(buffer) if !pull.abandoned => {
                    let slot = offset % landing.len();
                    // Both spans were checked when the get was posted.
                    let _ = landing.copy_out(slot, &mut buffer[offset..offset + len]);
                    pull.landed += len;
                }
                _ => pull.waiting.push((offset, len)),
            },
            _ => pull.landed += len,
        }
        self.movers.push_back(id);
    }
}

impl<P: Port> Engine<P> {
    /// Moves what can be moved of a receive's bytes.
    pub(super) fn advance<L: Lent>(&mut self, id: RequestId, lent: &mut L) {
        let core = &mut self.core;
        let Some(request) = core.requests.get_mut(id) else { return };
        match &request.state {
            State::Pulling(_) => {
                let Some(index) = request.rank().and_then(|rank| core.peers.find(rank)) else { return };
                let Some((path, limits)) = core.peers[index].path else { return };
                match self.pull(id, index, path, &limits, lent) {
                    Ok(Post::Done) => {}
                    Ok(Post::Again) => self.core.movers.push_back(id),
                    Err(error) => self.core.bury(index, Cause::Unreachable(error.to_string())),
                }
            }
            State::AwaitingData(inflow) if let Some(from) = inflow.from => self.read(id, from, lent),
            State::AwaitingData(_) => {
                let Buffer::Lent { staged, place, .. } = &mut request.buffer else { return };
                match lent.write(id, *place) {
                    Some(buffer) => {
                        unstage(staged, buffer);
                        core.call(id);
                    }
                    None => core.movers.push_back(id),
                }
            }
            _ => {}
        }
    }

    /// Copies the bytes of a message from where its sender lets them be read, as many as one call may.
    fn read<L: Lent>(&mut self, id: RequestId, from: Remote, lent: &mut L) {
        let core = &mut self.core;
        let Some(Request { state: State::AwaitingData(inflow), buffer, .. }) = core.requests.get_mut(id)
        else {
            return;
        };
        let Some(index) = core.peers.find(inflow.status.source) else { return };
        let Some((path, _)) = core.peers[index].path else { return };
        let into = match buffer {
            Buffer::Owned(memory) => memory.as_bytes_mut(),
            Buffer::Lent { place, .. } => match lent.write(id, *place) {
                Some(buffer) => buffer,
                None => return core.movers.push_back(id),
            },
            Buffer::Registered { .. } | Buffer::Gone => return,
        };
        let (start, status) = (inflow.received, inflow.status);
        let end = status.bytes.min(start + READ_MAX);
        let at = Remote { address: from.address.wrapping_add(start as u64), ..from };
        let (verdict, result) = match self.port.read(path, at, &mut into[start..end]) {
            Ok(true) if end == status.bytes => (Verdict::Delivered, Ok(status)),
            Ok(true) => {
                inflow.received = end;
                return core.movers.push_back(id);
            }
            Ok(false) => {
                let (rank, fate) = (status.source, Fate::NotDelivered);
                (Verdict::Abandoned, Err(Error::Abandoned { rank, fate }))
            }
            Err(_) => {
                // It is out of this side's reach: then they are to be sent, all of them.
                (inflow.from, inflow.received) = (None, 0);
                return core.call(id);
            }
        };
        let send = inflow.send;
        core.answer(index, kind::FIN, &Fin::new(send, verdict));
        core.finish(id, result);
    }

    /// Sends a peer the bytes that may go, one message after the other, as far as the port has room.
    pub(super) fn push_on<L: Lent>(&mut self, index: u32, lent: &L) {
        match self.push(index, lent) {
            Ok(Post::Done) => {}
            Ok(Post::Again) => self.core.list(index),
            Err(error) => self.core.bury(index, Cause::Unreachable(error.to_string())),
        }
    }

    /// Sends DATA and STREAM. `Again` if there is more to send that may go.
    fn push<L: Lent>(&mut self, index: u32, lent: &L) -> Result<Post, PortError> {
        let mut away = 0;
        loop {
            let core = &mut self.core;
            let Peer { rank, path: Some((path, limits)), pushes, .. } = &mut core.peers[index] else {
                return Ok(Post::Done);
            };
            let (rank, path, data_max) = (*rank, *path, limits.data_max);
            let Some(&id) = pushes.front() else { return Ok(Post::Done) };
            let request = core.requests.get(id);
            let Some(Request { state: State::Pushing(push), buffer, tag, context, born_ns, .. }) = request
            else {
                // It ended before its turn.
                pushes.pop_front();
                continue;
            };
            let bytes = match buffer {
                Buffer::Owned(memory) => memory.as_bytes(),
                Buffer::Lent { place, .. } => match lent.read(id, *place) {
                    Some(bytes) => bytes,
                    None => {
                        // Another's may be at hand; but not all are to be asked each time.
                        away += 1;
                        pushes.rotate_left(1);
                        if away < pushes.len().min(AWAY_MAX) {
                            continue;
                        }
                        return Ok(Post::Again);
                    }
                },
                // It was there to be got, but the receiver's port cannot: copied below.
                Buffer::Registered { .. } => &[],
                Buffer::Gone => {
                    pushes.pop_front();
                    continue;
                }
            };
            let (kind, operation) = push.recv.map_or((kind::STREAM, id.to_wire()), |recv| (kind::DATA, recv));
            let (total, mut called, tag) = (buffer.len(), push.called.clone(), *tag);
            while !called.is_empty() {
                let (start, end) = (called.start, called.end.min(called.start + data_max));
                let copied;
                let bytes = match buffer {
                    Buffer::Registered { region, .. } => {
                        let mut piece = vec![0; end - start];
                        region.copy_out(start, &mut piece)?;
                        copied = piece;
                        &copied
                    }
                    _ => &bytes[start..end],
                };
                let head = DataHead {
                    header: core.header(index, Protocol::P2p, kind, Flags::empty(), *context, *born_ns),
                    data: Data { operation: operation.into(), offset: (start as u64).into() },
                };
                if self.port.send(path, head.as_bytes(), bytes)? == Post::Again {
                    core.counters.again += 1;
                    break;
                }
                core.peers[index].sent();
                called.start = end;
            }
            let has_room = called.is_empty();
            if called.start == total {
                core.finish(id, Ok(Status { source: rank, tag, bytes: total }));
            } else if let Some(Request { state: State::Pushing(push), .. }) = core.requests.get_mut(id) {
                push.called = called;
            }
            if !has_room {
                return Ok(Post::Again);
            }
            core.peers[index].pushes.pop_front();
        }
    }

    /// Posts gets. `Again` if it wants to be called again though no get of it is outstanding that would bring
    /// it back.
    fn pull<L: Lent>(
        &mut self,
        id: RequestId,
        index: u32,
        path: PeerId,
        limits: &Limits,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let depth = self.core.config.pull_depth.max(1);
        let core = &mut self.core;
        let Some(request) = core.requests.get_mut(id) else { return Ok(Post::Done) };
        let State::Pulling(pull) = &mut request.state else { return Ok(Post::Done) };
        if pull.landing.is_none() && !pull.abandoned {
            let (region, chunk) = match std::mem::replace(&mut request.buffer, Buffer::Gone) {
                Buffer::Owned(memory) => (Region::new(memory), limits.get_max),
                lent => {
                    request.buffer = lent;
                    let chunk = limits.get_max.min(BOUNCE_CHUNK).min(pull.status.bytes);
                    (Region::new(Memory::zeroed(chunk * depth.min(pull.status.bytes.div_ceil(chunk)))), chunk)
                }
            };
            let registration = self.port.register(path, &region, Access::LOCAL_WRITE)?;
            pull.chunk = chunk;
            pull.landing = Some((region, registration));
        }
        let place = match request.buffer {
            Buffer::Lent { place, .. } => Some(place),
            _ => None,
        };
        let lends = place.is_some();
        if let (Some(place), Some((landing, _))) = (place, &pull.landing)
            && let Some(buffer) = lent.write(id, place)
        {
            for (offset, len) in pull.waiting.drain(..) {
                let _ = landing.copy_out(offset % landing.len(), &mut buffer[offset..offset + len]);
                pull.landed += len;
            }
        }
        while let (Some((landing, registration)), false) = (&pull.landing, pull.abandoned) {
            // A chunk of the bounce buffer is free once the one that lay there before is with the caller;
            // gets may end in any order, so the buffer's turn is up only when all before it have.
            let in_use = pull.outstanding + pull.waiting.len();
            let turn = !lends || pull.asked % landing.len() != 0 || in_use == 0;
            let len = pull.chunk.min(pull.status.bytes - pull.asked);
            if len == 0 || pull.outstanding >= depth || !turn {
                break;
            }
            let slot = if lends { pull.asked % landing.len() } else { pull.asked };
            let operation = Operation { request: id, offset: pull.asked, len };
            let op = core.operations.insert(operation);
            let from =
                Remote { key: pull.from.key, address: pull.from.address.wrapping_add(pull.asked as u64) };
            let posted = self.port.get(path, registration.local(slot, len), from, OpId(op as u64));
            if posted != Ok(Post::Done) {
                core.operations.remove(op);
                core.counters.again += 1;
                if posted == Ok(Post::Again) && pull.outstanding > 0 {
                    return Ok(Post::Done);
                }
                return posted;
            }
            pull.asked += len;
            pull.outstanding += 1;
        }
        if pull.outstanding > 0 {
            return Ok(Post::Done);
        }
        if !pull.abandoned && pull.landed < pull.status.bytes {
            // The rest lies in the bounce buffer, for the caller to lend its own.
            return Ok(Post::Again);
        }
        let (send, status, abandoned) = (pull.send, pull.status, pull.abandoned);
        if let Some((region, registration)) = pull.landing.take() {
            self.port.deregister(registration);
            let memory = core.quarantine.reclaim(region);
            if let (false, Some(request)) = (lends, core.requests.get_mut(id)) {
                request.buffer = memory.map_or(Buffer::Gone, Buffer::Owned);
            }
        }
        let verdict = if abandoned { Verdict::Abandoned } else { Verdict::Delivered };
        core.answer(index, kind::FIN, &Fin::new(send, verdict));
        core.finish(
            id,
            if abandoned { Err(Error::Cancelled { fate: Fate::NotDelivered }) } else { Ok(status) },
        );
        Ok(Post::Done)
    }
}

/// Adds bytes of a stream to those that are kept of it. Returns whether it is whole.
fn keep(
    kept: &mut Vec<u8>,
    total: usize,
    offset: u64,
    bytes: &(impl Body + ?Sized),
) -> Result<bool, WireError> {
    if offset != kept.len() as u64 || bytes.len() == 0 || bytes.len() > total - kept.len() {
        return Err(WireError::Value { field: "offset" });
    }
    kept.reserve_exact(total - kept.len());
    append(kept, bytes);
    Ok(kept.len() == total)
}

/// Puts bytes where they belong that came while the buffer was not at hand.
fn unstage(staged: &mut Option<Box<Staged>>, buffer: &mut [u8]) {
    if let Some(staged) = staged.take() {
        staged.copy_to(buffer);
    }
}

/// Bytes of one get into a bounce buffer: what the cache still holds when it is copied on.
const BOUNCE_CHUNK: usize = 256 << 10;

/// Bytes that one call reads: what comes meanwhile waits as long as the copy takes.
const READ_MAX: usize = 1 << 20;

/// Messages of one peer whose bytes are called for, but not at hand, before the others have to wait as well.
const AWAY_MAX: usize = 16;

/// Header and body head of a DATA or STREAM packet.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct DataHead {
    header: Header,
    data: Data,
}
