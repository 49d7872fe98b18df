//! The bytes of long messages. They travel in one of five transfer modes: the receiver reads them in the sender's
//! memory, if it can map that memory; the bytes follow their envelope in STREAM packets; the receiver fetches them by
//! gets, if its port has gets; the sender puts them into the receiver's memory, if its port has puts (`put.rs`); or the
//! receiver requests them, and the sender sends DATA packets.

use std::collections::btree_map::Entry;

use samite_fabric::layout::{Room, Signature, Writable};
use samite_fabric::link::{
    Cause, Done, Error, Fate, Fault, Lent, Link, Out, Peer, RequestId, Status, WorldRank,
};
use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Access, Body, Failure, PeerId, Port, PortError, Post, Remote};
use samite_matching::Envelope;
use slab::Slab;
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::inbound::no_receive;
use super::target::{Parts, Registered, SLAB_MAX, Target};
use super::{OneSided, Queues, Rendezvous, Stream, Tagged, Unexpected, Whole, status_of};
use crate::choose::{Limits, cost};
use crate::request::{Buffer, Inflow, Partner, Pull, Request, Staged, State, no_buffer};
use crate::store::{Bytes, append};
use crate::wire::{Cts, Data, Fin, TransferMode, Verdict, kind};

impl Tagged {
    /// Starts the transfer of the bytes of a message that was matched with a receive.
    pub(super) fn begin(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        rendezvous: Rendezvous,
    ) {
        let Rendezvous { send, bytes, mode, signature, .. } = rendezvous;
        let Some(peer) = link.find(WorldRank(envelope.source)) else {
            unreachable!("a message came from rank {}, which was never met", envelope.source)
        };
        // If the sender's hello has just arrived, there is no path to the sender yet. There will be a path before the
        // first get is posted.
        let path = self.path_to(link, peer);
        let gets = path.is_none_or(|(_, limits)| limits.get && link.may_use_memory(limits.fence));
        let puts = path.is_some_and(|(_, limits)| limits.put);
        let status = status_of(envelope, bytes);
        if signature != Signature::BYTES && self.refuse_types(link, (peer, send), id, status, signature) {
            return;
        }
        let Some(request) = self.requests.get_mut(id) else { no_receive(id) };
        request.partner = Partner::Rank(WorldRank(envelope.source));
        let room = request.buffer.len();
        if bytes > room || bytes == 0 {
            self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Delivered));
            let result = if bytes > room { Err(Error::Truncated { status, room }) } else { Ok(status) };
            return self.finish(link, id, result);
        }
        if let (TransferMode::Pull(from), true) = (mode, gets) {
            request.state = State::Pulling(Box::new(Pull {
                send,
                status,
                from,
                target: None,
                posted: 0,
                landed: 0,
                outstanding: 0,
                waiting: Vec::new(),
                abandoned: false,
            }));
            self.move_later(link, id);
        } else if let (TransferMode::Put, true) = (mode, puts) {
            self.begin_landing(link, id, send, status);
        } else {
            let (requested, mode) = match mode {
                TransferMode::Stream => (bytes, mode),
                TransferMode::Read(_) | TransferMode::Push => (0, mode),
                TransferMode::Pull(_) | TransferMode::Put => (0, TransferMode::Push),
            };
            request.state =
                State::AwaitingData(Box::new(Inflow { send, status, mode, requested, received: 0 }));
            match mode {
                TransferMode::Stream => _ = self.streams.insert((peer, send), Stream::Matched(id)),
                TransferMode::Read(_) => self.move_later(link, id),
                TransferMode::Push | TransferMode::Pull(_) | TransferMode::Put => self.call(link, id),
            }
        }
    }

    /// Ends a receive with an error if its message has other types than the receive expects, and informs the sender
    /// that no bytes are needed. Returns true if the types differ.
    #[cold]
    fn refuse_types(
        &mut self,
        link: &mut Link,
        (peer, send): (Peer, u64),
        id: RequestId,
        status: Status,
        signature: Signature,
    ) -> bool {
        let Some(conflict) = self.signatures.conflict(id, status, signature) else { return false };
        self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Delivered));
        self.finish(link, id, Err(conflict));
        true
    }

    /// Delivers a stream, of which some or all bytes have arrived, to a receive.
    pub(super) fn take_stream<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        rendezvous: Rendezvous,
        lent: &mut L,
    ) {
        link.release(cost(rendezvous.bytes).into());
        let peer = link.find(WorldRank(envelope.source));
        let stream = peer.and_then(|peer| self.streams.remove(&(peer, rendezvous.send)));
        let Some(Stream::Kept { bytes, .. }) = stream else {
            unreachable!("an unexpected stream is kept under its name until it is matched: {stream:?}")
        };
        self.go_on(link, id, envelope, rendezvous, &bytes, lent);
    }

    /// Delivers the bytes of a stream that have arrived so far to its receive.
    pub(super) fn go_on<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        rendezvous: Rendezvous,
        bytes: &[u8],
        lent: &mut L,
    ) {
        if bytes.len() == rendezvous.bytes {
            return self.deliver_typed(link, id, envelope, rendezvous.signature, bytes, lent);
        }
        self.begin(link, id, envelope, rendezvous);
        if !bytes.is_empty() {
            // This cannot fail: the bytes are the first bytes of the stream, and not more than the stream has.
            let _ = self.inflow(link, id, 0, bytes, lent);
        }
    }

    /// Handles a STREAM packet.
    pub(super) fn stream<L: Lent>(
        &mut self,
        link: &mut Link,
        peer: Peer,
        data: &Data,
        bytes: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), WireError> {
        let (name, offset) = ((peer, data.operation.get()), data.offset.get());
        let Entry::Occupied(mut stream) = self.streams.entry(name) else {
            // The receive of this message has ended: its buffer was too short, its types differ, or it was given up.
            link.note_stale();
            return Ok(());
        };
        match stream.get_mut() {
            &mut Stream::Matched(id) => {
                self.inflow(link, id, offset, bytes, lent)?;
                let is_under_way = |request: &Request| matches!(request.state, State::AwaitingData(_));
                if !self.requests.get(id).is_some_and(is_under_way) {
                    self.streams.remove(&name);
                }
            }
            Stream::Kept { unexpected, total, bytes: kept } => {
                if keep(kept, *total, offset, bytes)? {
                    // From now on the message is like any other unexpected message.
                    let Some(message) = self.matcher.unexpected_mut(*unexpected) else {
                        unreachable!("a stream is kept for as long as its message waits")
                    };
                    let data = Bytes::from_vec(std::mem::take(kept));
                    *message = match message {
                        Unexpected::Rts(Rendezvous { signature, .. }) if *signature != Signature::BYTES => {
                            Unexpected::Whole(Box::new(Whole { send: None, signature: *signature, data }))
                        }
                        _ => Unexpected::Eager(data),
                    };
                    stream.remove();
                }
            }
            &mut Stream::Claimed(place) => {
                let Some(claim) = self.claims.get_mut(place) else {
                    unreachable!("a claim that has been received has no stream")
                };
                if keep(&mut claim.bytes, claim.total, offset, bytes)? {
                    // The claim has all its bytes, so the end of its sender does not matter any more.
                    stream.remove();
                }
            }
        }
        Ok(())
    }

    /// Notes that the sender gave up a stream before it had sent all bytes. Returns false if there is no such stream.
    pub(super) fn end_stream(&mut self, link: &mut Link, peer: Peer, send: u64) -> bool {
        let Some(stream) = self.streams.remove(&(peer, send)) else { return false };
        match stream {
            Stream::Matched(id) => {
                let rank = link.peer(peer).rank();
                self.finish(link, id, Err(Error::Abandoned { rank, fate: Fate::NotDelivered }));
            }
            Stream::Kept { unexpected, total, .. } => {
                let removed = self.matcher.remove(unexpected);
                assert!(removed.is_some(), "a stream is kept for as long as its message waits");
                link.release(cost(total).into());
            }
            Stream::Claimed(place) => self.lose_claim(link, place),
        }
        true
    }

    /// Removes all streams of a peer that has left or failed. The receives of these streams were ended before, with the
    /// reason.
    pub(super) fn end_streams(&mut self, link: &mut Link, peer: Peer) {
        while let Some((&(_, send), _)) = self.streams.range((peer, 0)..=(peer, u64::MAX)).next() {
            self.end_stream(link, peer, send);
        }
    }

    /// Requests more bytes of a message, if no more than half a window of requested bytes is missing, and no bytes are
    /// staged. At most one window of bytes is requested and missing at a time, because bytes that arrive while a
    /// borrowed buffer is not lent must be staged, and this limits their number.
    pub(super) fn call(&mut self, link: &mut Link, id: RequestId) {
        let window = self.config.push_window.max(1);
        let Some(request) = self.requests.get_mut(id) else { return };
        let staged = matches!(&request.buffer, Buffer::Lent { staged: Some(_), .. });
        let State::AwaitingData(inflow) = &mut request.state else { return };
        let ahead = inflow.requested - inflow.received;
        let len = (window - ahead.min(window)).min(inflow.status.bytes - inflow.requested);
        if staged || len == 0 || ahead > window / 2 {
            return;
        }
        let cts = Cts {
            send: inflow.send.into(),
            recv: id.to_wire().into(),
            offset: (inflow.requested as u64).into(),
            len: (len as u64).into(),
        };
        inflow.requested += len;
        if let Some(peer) = link.find(inflow.status.source) {
            self.answer(link, peer, kind::CTS, &cts);
        }
    }

    /// Handles bytes of a message that arrive for a receive, in a DATA or STREAM packet.
    pub(super) fn inflow<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        offset: u64,
        bytes: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), WireError> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let State::AwaitingData(inflow) = &mut request.state else {
            link.note_stale();
            return Ok(());
        };
        let (start, end) = (inflow.received, inflow.received.saturating_add(bytes.len()));
        if offset != start as u64 || end > inflow.requested || bytes.len() == 0 {
            return Err(WireError::Value { field: "offset" });
        }
        match &mut request.buffer {
            Buffer::Owned(memory) => memory.writable().put(start, bytes),
            Buffer::Lent { staged, place, .. } => match lent.write(id, *place) {
                Some(mut buffer) => {
                    unstage(staged, &mut buffer);
                    buffer.put(start, bytes);
                }
                None => {
                    // A receive with staged bytes is in `movers`, so that a drive copies them when the buffer is lent.
                    if staged.is_none() {
                        self.movers.push_back(id);
                        link.defer();
                    }
                    Staged::append(staged, start, bytes);
                }
            },
            Buffer::Registered { .. } | Buffer::Gone => no_buffer(id),
        }
        inflow.received = end;
        let status = inflow.status;
        if end == status.bytes {
            self.finish(link, id, Ok(status));
        } else if inflow.requested < status.bytes {
            self.call(link, id);
        }
        Ok(())
    }

    /// Handles the end of a get or a put.
    pub(super) fn one_sided_ended<L: Lent>(
        &mut self,
        link: &mut Link,
        done: Done,
        lent: &mut L,
    ) -> Result<(), Fault> {
        let operation = usize::try_from(done.key).ok().and_then(|key| self.one_sided.try_remove(key));
        let Some(OneSided { request: id, offset, len }) = operation else {
            link.note_stale();
            return Ok(());
        };
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        match &mut request.state {
            State::Pulling(pull) => pull.outstanding -= 1,
            State::Putting(put) => {
                put.outstanding -= 1;
                put.release(offset);
                if self.is_leaving {
                    // The goodbye to the peer may have waited for this put.
                    link.list(put.to);
                }
            }
            _ => return Ok(()),
        }
        let is_delivered = matches!(&request.state, State::Putting(put) if put.is_delivered);
        if let Err(failure) = done.result
            && let Some(peer) = request.rank().and_then(|rank| link.find(rank))
            && !is_delivered
        {
            if link.peer(peer).was_told_goodbye() {
                // It failed because this side has said goodbye: the peer has ended its operation, and taken its memory
                // back.
                let rank = link.peer(peer).rank();
                self.give_up(link, id, Error::Abandoned { rank, fate: Fate::NotDelivered });
                return Ok(());
            }
            // One of the messages with the peer is lost, although the peer seems to be alive. Later messages may be
            // lost too, so the peer fails. If its process has ended, the launcher's report will replace the cause.
            let cause = match failure {
                Failure::PeerLost => Cause::Lost,
                failure => Cause::Unreachable(failure.to_string()),
            };
            return Err(Fault::new(peer, cause));
        }
        if let State::Pulling(pull) = &mut request.state {
            match &pull.target {
                Some(target) if target.is_bounced() && !pull.abandoned => match request.buffer.room(id, lent)
                {
                    Some(mut buffer) => {
                        buffer.put(offset, &target.bytes(offset, len));
                        pull.landed += len;
                    }
                    None => pull.waiting.push((offset, len)),
                },
                _ => pull.landed += len,
            }
        }
        self.move_later(link, id);
        Ok(())
    }

    /// Moves the bytes of a request as far as possible.
    pub(super) fn advance<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        lent: &mut L,
    ) -> Result<(), Fault> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let step = match &request.state {
            State::Pulling(_) => Self::pull::<P, L>,
            State::Landing(landing) if landing.is_whole() => {
                // All bytes have arrived, so no path is needed. The sender may have ended, and then has none.
                if !self.copy_landed(id, lent) {
                    self.move_later(out.link, id);
                } else {
                    self.close_landing(out, id);
                }
                return Ok(());
            }
            State::Putting(put) if put.is_whole() && put.outstanding == 0 => {
                // The receiver was informed, and no put is outstanding, so no path is needed. The receiver may have
                // left, and then has none.
                self.close_put(out, id);
                return Ok(());
            }
            State::Landing(_) => Self::land::<P, L>,
            State::Putting(_) => Self::put::<P, L>,
            _ => return self.advance_in_packets(out, id, lent),
        };
        let Some(peer) = request.rank().and_then(|rank| out.link.find(rank)) else { return Ok(()) };
        let Some((path, limits)) = self.path_to(out.link, peer) else { return Ok(()) };
        match step(self, out, id, (peer, path), &limits, lent) {
            Ok(Post::Done | Post::Over) => {}
            Ok(Post::Again) => self.move_later(out.link, id),
            Err(error) => return Err(Fault::new(peer, Cause::from(error))),
        }
        Ok(())
    }

    /// Moves the bytes of a receive that are read from exposed memory, or that have arrived in packets.
    fn advance_in_packets<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        lent: &mut L,
    ) -> Result<(), Fault> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        match &request.state {
            State::AwaitingData(inflow) if let TransferMode::Read(from) = inflow.mode => {
                self.read(out, id, from, lent);
            }
            State::AwaitingData(_) => {
                let Buffer::Lent { staged, place, .. } = &mut request.buffer else { return Ok(()) };
                match lent.write(id, *place) {
                    Some(mut buffer) => {
                        unstage(staged, &mut buffer);
                        self.call(out.link, id);
                    }
                    None => self.move_later(out.link, id),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies bytes of a message from the memory that its sender exposes, at most [`READ_MAX`] in one call.
    fn read<P: Port, L: Lent>(&mut self, out: &mut Out<'_, P>, id: RequestId, from: Remote, lent: &mut L) {
        let Out { port, link } = out;
        let Some(Request { state: State::AwaitingData(inflow), buffer, .. }) = self.requests.get_mut(id)
        else {
            return;
        };
        let Some(peer) = link.find(inflow.status.source) else { return };
        let Some(path) = link.peer(peer).path() else { return };
        let Some(into) = buffer.room(id, lent) else { return self.move_later(link, id) };
        let (start, status) = (inflow.received, inflow.status);
        let end = status.bytes.min(start + READ_MAX);
        let at = Remote { address: from.address.wrapping_add(start as u64), ..from };
        let (verdict, result) = match read(*port, path, at, into, [start, end]) {
            Ok(true) if end == status.bytes => (Verdict::Delivered, Ok(status)),
            Ok(true) => {
                inflow.received = end;
                link.note_move();
                return self.move_later(link, id);
            }
            Ok(false) => {
                let (rank, fate) = (status.source, Fate::NotDelivered);
                (Verdict::Abandoned, Err(Error::Abandoned { rank, fate }))
            }
            Err(_) => {
                // This side cannot access the memory at all, so it requests that all bytes be sent.
                (inflow.mode, inflow.received) = (TransferMode::Push, 0);
                return self.call(link, id);
            }
        };
        let send = inflow.send;
        self.answer(link, peer, kind::FIN, &Fin::new(send, verdict));
        self.finish(link, id, result);
    }

    /// Sends DATA and STREAM packets to a peer, one message after the other. Returns `Again` if bytes remain that must
    /// be sent later: the port has no room for them, or their buffers are not lent.
    pub(super) fn push<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        peer: Peer,
        lent: &L,
    ) -> Result<Post, PortError> {
        let mut away = 0;
        loop {
            let Some(Queues { pushes, limits: Some(limits), .. }) = self.queues.get_mut(peer.index()) else {
                return Ok(Post::Done);
            };
            let Some(&id) = pushes.front() else { return Ok(Post::Done) };
            let data_max = limits.data_max;
            let request = self.requests.get(id);
            let Some(Request { state: State::Pushing(push), buffer, tag, context, .. }) = request else {
                // The request ended before its turn.
                pushes.pop_front();
                continue;
            };
            let bytes = match buffer {
                Buffer::Owned(memory) => memory.readable(),
                Buffer::Lent { place, .. } => match lent.read(id, *place) {
                    Some(bytes) => bytes,
                    None => {
                        // The buffer of this send is not lent. Try the next send, whose buffer may be lent; but do not
                        // try all sends in one call.
                        away += 1;
                        pushes.rotate_left(1);
                        if away < pushes.len().min(AWAY_MAX) {
                            continue;
                        }
                        return Ok(Post::Again);
                    }
                },
                // The buffer was registered for gets, but the receiver has requested packets. The code below copies the
                // bytes from the region.
                Buffer::Registered { .. } => [].as_slice().into(),
                Buffer::Gone => unreachable!("{id:?} sends bytes that were returned to the caller"),
            };
            let (kind, operation) = push.recv.map_or((kind::STREAM, id.to_wire()), |recv| (kind::DATA, recv));
            let (total, mut to_send, tag) = (buffer.len(), push.to_send.clone(), *tag);
            while !to_send.is_empty() {
                let (start, end) = (to_send.start, to_send.end.min(to_send.start + data_max));
                let head = DataHead {
                    header: out.link.header(peer, Protocol::P2p, kind, Flags::empty(), *context),
                    data: Data { operation: operation.into(), offset: (start as u64).into() },
                };
                let head = head.as_bytes();
                let post = if let Buffer::Registered { region, .. } = buffer {
                    out.send(peer, head, &Registered { region, offset: start, len: end - start })?
                } else {
                    let part = bytes.part(start, end);
                    match part.as_slice() {
                        Some(slice) => out.send(peer, head, slice)?,
                        None => out.send(peer, head, &part)?,
                    }
                };
                if post == Post::Again {
                    out.link.note_again();
                    break;
                }
                to_send.start = end;
            }
            let has_room = to_send.is_empty();
            if to_send.start == total {
                let rank = out.link.peer(peer).rank();
                self.finish(out.link, id, Ok(Status { source: rank, tag, bytes: total }));
            } else if let Some(Request { state: State::Pushing(push), .. }) = self.requests.get_mut(id) {
                push.to_send = to_send;
            }
            if !has_room {
                return Ok(Post::Again);
            }
            self.queues[peer.index()].pushes.pop_front();
        }
    }

    /// Moves the bytes of a receive as far as possible by gets. Returns `Again` if another call is necessary, and the
    /// completion of an outstanding get will not cause that call.
    fn pull<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        id: RequestId,
        (peer, path): (Peer, PeerId),
        limits: &Limits,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let depth = self.config.pull_depth.max(1);
        let Some(Request { state: State::Pulling(pull), buffer, .. }) = self.requests.get_mut(id) else {
            return Ok(Post::Done);
        };
        if pull.target.is_none() && !pull.abandoned {
            let parts = Parts { own: limits.get_max, slab: limits.get_max.min(SLAB_MAX), depth };
            let (total, from) = (pull.status.bytes, (peer, path));
            pull.target = Target::open(out, from, Access::LOCAL_WRITE, buffer, total, &parts);
            if pull.target.is_none() {
                self.request_packets(out.link, id);
                return Ok(Post::Done);
            }
        }
        if let (Some(target), false) = (&pull.target, pull.waiting.is_empty() || pull.abandoned)
            && let Some(mut room) = buffer.room(id, lent)
        {
            for (offset, len) in pull.waiting.drain(..) {
                room.put(offset, &target.bytes(offset, len));
                pull.landed += len;
            }
        }
        post_gets(pull, &mut self.one_sided, out, (id, path), depth)?;
        if pull.outstanding > 0 {
            return Ok(Post::Done);
        }
        if !pull.abandoned && pull.landed < pull.status.bytes {
            // The port has no room for a get, or bytes wait in slabs until the caller lends its buffer.
            return Ok(Post::Again);
        }
        let (send, status, abandoned) = (pull.send, pull.status, pull.abandoned);
        if let Some(target) = pull.target.take() {
            target.close(out, buffer);
        }
        let verdict = if abandoned { Verdict::Abandoned } else { Verdict::Delivered };
        self.answer(out.link, peer, kind::FIN, &Fin::new(send, verdict));
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        self.finish(out.link, id, if abandoned { Err(cancelled) } else { Ok(status) });
        Ok(Post::Done)
    }

    /// Requests the bytes of a receive in packets, because one side cannot register its memory for gets or puts.
    pub(super) fn request_packets(&mut self, link: &mut Link, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let (send, status) = match &request.state {
            State::Pulling(pull) => (pull.send, pull.status),
            State::Landing(landing) => (landing.send, landing.status),
            state => unreachable!("{id:?} moves no bytes by gets or puts: {state:?}"),
        };
        assert!(
            !matches!(request.buffer, Buffer::Gone),
            "{id:?} has its memory back, since no operation uses it"
        );
        let mode = TransferMode::Push;
        request.state =
            State::AwaitingData(Box::new(Inflow { send, status, mode, requested: 0, received: 0 }));
        self.call(link, id);
    }
}

/// Posts gets of a receive, until `depth` gets are outstanding, or the port has no room for more.
#[inline(always)]
fn post_gets<P: Port>(
    pull: &mut Pull,
    one_sided: &mut Slab<OneSided>,
    out: &mut Out<'_, P>,
    (id, path): (RequestId, PeerId),
    depth: usize,
) -> Result<(), PortError> {
    // The number of gets of this call that ended when they were posted.
    let mut over = 0;
    while let (Some(target), false) = (&pull.target, pull.abandoned) {
        // A slab is free when the bytes of its previous get were copied to the caller's buffer. Gets may end in any
        // order, so slabs are reused only when all earlier gets have ended and all their bytes were copied.
        let in_use = pull.outstanding + pull.waiting.len();
        let turn = !target.is_bounced() || !pull.posted.is_multiple_of(target.len()) || in_use == 0;
        let len = target.part().min(pull.status.bytes - pull.posted);
        if len == 0 || pull.outstanding + over >= depth || !turn {
            break;
        }
        let key = one_sided.insert(OneSided { request: id, offset: pull.posted, len });
        let from = Remote { key: pull.from.key, address: pull.from.address.wrapping_add(pull.posted as u64) };
        match out.get(path, target.local(pull.posted, len), from, Protocol::P2p, key as u64) {
            Ok(Post::Done) => pull.outstanding += 1,
            Ok(Post::Over) => {
                one_sided.remove(key);
                match target.is_bounced() {
                    true => pull.waiting.push((pull.posted, len)),
                    false => pull.landed += len,
                }
                over += 1;
            }
            blocked => {
                one_sided.remove(key);
                out.link.note_again();
                return blocked.map(|_| ());
            }
        }
        pull.posted += len;
    }
    Ok(())
}

/// Appends bytes of a stream to the bytes that are kept already. Returns true if the stream is complete.
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

/// Copies staged bytes, which arrived while the buffer was not lent, to the buffer.
fn unstage(staged: &mut Option<Box<Staged>>, buffer: &mut Writable<'_>) {
    if let Some(staged) = staged.take() {
        staged.copy_to(buffer);
    }
}

/// Copies the exposed bytes from `start` to `end` of a message to the receive's buffer. Returns false if the exposure
/// has ended.
#[inline(always)]
fn read<P: Port>(
    port: &mut P,
    from: PeerId,
    at: Remote,
    into: Writable<'_>,
    [start, end]: [usize; 2],
) -> Result<bool, PortError> {
    match into.into_slice() {
        Ok(into) => port.read(from, at, &mut into[start..end]),
        Err(into) => read_scattered(port, from, at, into, [start, end]),
    }
}

/// Copies exposed bytes to a buffer that is scattered over memory, through an intermediate buffer that fits in the
/// cache.
#[inline(never)]
fn read_scattered<P: Port>(
    port: &mut P,
    from: PeerId,
    at: Remote,
    mut into: Writable<'_>,
    [start, end]: [usize; 2],
) -> Result<bool, PortError> {
    let mut piece = vec![0; READ_PIECE.min(end - start)];
    let mut done = start;
    while done < end {
        let piece = &mut piece[..READ_PIECE.min(end - done)];
        let at = Remote { address: at.address.wrapping_add((done - start) as u64), ..at };
        if !port.read(from, at, piece)? {
            return Ok(false);
        }
        into.put(done, &*piece);
        done += piece.len();
    }
    Ok(true)
}

/// Bytes that are read at a time if they are scattered afterwards: few enough for the second-level cache.
const READ_PIECE: usize = 64 << 10;

/// The most bytes that one call reads. While they are copied, other packets have to wait.
const READ_MAX: usize = 1 << 20;

/// The number of sends to one peer whose buffers one call may find not lent. The remaining sends are then left for the
/// next call.
const AWAY_MAX: usize = 16;

/// Header and body head of a DATA or STREAM packet.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct DataHead {
    header: Header,
    data: Data,
}
