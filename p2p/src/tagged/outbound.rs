//! The way of a send: at once if nothing is queued before it, otherwise in its turn.

use std::sync::Arc;

use samite_fabric::layout::Signature;
use samite_fabric::link::{Gathered, Link, Out, PathLimits, Peer, PeerState, RequestId, Status, Time, Turn};
use samite_fabric::wire::{Flags, Header, Protocol};
use samite_fabric::{Access, Body, Exposure, Memory, PeerId, Port, PortError, Post, Remote};
use zerocopy::IntoBytes;

use super::{Queues, Tagged};
use crate::choose::{Choice, Limits, choose, cost};
use crate::outbox::{Copied, SendBuffer};
use crate::request::{Buffer, Partner, Push, Request, State};
use crate::signatures::Typed;
use crate::trace::event;
use crate::wire::{AGREEMENTS_MAX, Eager, EagerHead, Rts, Synchronous, TransferMode, Unmatched, kind};

/// How a send is treated that cannot be sent at once.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) copied: Copied,
    /// For a buffered send: the buffer that holds the copy of its message.
    pub(crate) kept_in: Option<Arc<SendBuffer>>,
    /// See [`Request::answered`].
    pub(crate) answered: Option<Unmatched>,
    pub(crate) typed: Option<Typed>,
    /// True for a message of an agreement.
    pub(crate) is_agreement: bool,
}

impl Way {
    /// Returns the treatment of a standard send.
    pub(crate) fn standard(copied: Copied) -> Self {
        Self { copied, kept_in: None, answered: None, typed: None, is_agreement: false }
    }
}

/// Sends a message eagerly if the path is known, messages to the peer are never gathered, no earlier message waits, the
/// message is short enough, and there is credit for it and room in the port. Returns false if it was not sent. Then
/// call [`gather_or_send`].
#[inline(always)]
pub(crate) fn send_at_once<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    context: u32,
    tag: u64,
    data: &(impl Body + ?Sized),
) -> bool {
    let state = out.link.peer(peer);
    let Some(path) = state.path() else { return false };
    if !state.has_no_packets_queued() || !state.is_immediate(data.len()) || state.credit() < cost(data.len())
    {
        return false;
    }
    send_eagerly(out, peer, path, (context, tag), data)
}

/// Gathers a message, or sends it eagerly, if messages to the peer may be gathered: see [`Out::gather`]. Returns false
/// if neither is possible now. Also returns false if messages to the peer are never gathered: for such a peer,
/// [`send_at_once`] has already tried to send the message.
#[inline(never)]
pub(crate) fn gather_or_send<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    (context, tag): (u32, u64),
    data: &(impl Body + ?Sized),
) -> bool {
    let state = out.link.peer(peer);
    let PathLimits { immediate_max, bundle_max } = state.limits();
    let Some(path) = state.path().filter(|_| bundle_max > 0 && state.has_only_gathered()) else {
        return false;
    };
    if data.len() > immediate_max || state.credit() < cost(data.len()) {
        return false;
    }
    let eager = Eager { tag: tag.into() };
    match out.gather(peer, Protocol::P2p, (kind::EAGER, context), eager.as_bytes(), data) {
        Gathered::Yes => {
            let state = out.link.peer_mut(peer);
            count_eager(state, data.len());
            event!(TRACE, peer = state.rank().0, tag, bytes = data.len(), "gathered");
            true
        }
        Gathered::No => {
            let is_sent = send_eagerly(out, peer, path, (context, tag), data);
            if is_sent {
                out.link.peer_mut(peer).note_message();
            }
            is_sent
        }
        Gathered::NoRoom => false,
    }
}

/// Sends a message eagerly. The caller has checked the queue, the length and the credit. Returns false if the port does
/// not accept the message now.
#[inline(always)]
fn send_eagerly<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    path: PeerId,
    (context, tag): (u32, u64),
    data: &(impl Body + ?Sized),
) -> bool {
    let Out { port, link } = out;
    let head = EagerHead {
        header: link.header(peer, Protocol::P2p, kind::EAGER, Flags::empty(), context),
        eager: Eager { tag: tag.into() },
    };
    match port.send_body(path, head.as_bytes(), data) {
        Ok(Post::Done | Post::Over) => {}
        Ok(Post::Again) => return false,
        // The caller then queues the send, and a persistent error recurs when the queue is flushed. The error is
        // dropped here, so that a successful send need not check for one.
        Err(error) => {
            drop(error);
            return false;
        }
    }
    let state = link.peer_mut(peer);
    state.sent();
    count_eager(state, data.len());
    event!(TRACE, peer = state.rank().0, tag, bytes = data.len(), "sent eagerly");
    true
}

/// Sends as [`send_at_once`] does, from memory that may be scattered.
#[inline(always)]
pub(crate) fn send_memory_at_once<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    context: u32,
    tag: u64,
    memory: &Memory,
) -> bool {
    if memory.is_scattered() {
        return send_scattered_at_once(out, peer, context, tag, memory);
    }
    send_at_once(out, peer, context, tag, memory.as_bytes())
}

#[cold]
fn send_scattered_at_once<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    context: u32,
    tag: u64,
    memory: &Memory,
) -> bool {
    send_at_once(out, peer, context, tag, &memory.readable())
}

/// Sends a packet with the bytes of memory that may be scattered.
fn send_memory<P: Port>(port: &mut P, to: PeerId, head: &[u8], memory: &Memory) -> Result<Post, PortError> {
    match memory.is_scattered() {
        true => port.send_body(to, head, &memory.readable()),
        false => port.send(to, head, memory.as_bytes()),
    }
}

/// Accounts for a message whose bytes were sent in the packet of the envelope or right behind it.
#[inline(always)]
fn count_eager(state: &mut PeerState, len: usize) {
    state.traffic_mut().eager_sent += 1;
    state.traffic_mut().bytes_sent += len as u64;
    state.spend(cost(len));
}

impl Tagged {
    /// Queues a message. Returns its request, and true if the peer is to be flushed.
    pub(crate) fn send_later<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        peer: Peer,
        envelope: (u32, u64),
        (buffer, way): (Buffer, Way),
        exposure: Option<Exposure>,
        deadline: Time,
    ) -> (RequestId, bool) {
        let (context, tag) = envelope;
        let rank = out.link.peer(peer).rank();
        event!(TRACE, peer = rank.0, tag, bytes = buffer.len(), "send begins");
        let is_exposed = exposure.is_some();
        let state = State::AwaitingRoom { exposure: exposure.map(Box::new) };
        let mut request = Request::new(state, buffer, Partner::Rank(rank), context, tag, out.link.now());
        (request.copied, request.answered) = (way.copied, way.answered);
        let len = request.buffer.len();
        // A message to a peer that was not met waits for its address and its answer, which only polls bring.
        let is_early = !out.link.peer(peer).has_answered();
        let is_own = request.buffer.own_len().is_some();
        request.travels = match way.copied {
            Copied::No => is_own && !is_exposed && (self.note_travel(is_early) || self.begins_travel(len)),
            Copied::Kept => self.note_travel(is_early),
            Copied::Waiting => false,
        };
        self.outbox.early += usize::from(request.travels && way.copied.is_kept());
        request.collected = way.copied.is_kept();
        let id = self.requests.insert(request);
        if let Some(typed) = way.typed {
            self.signatures.insert(id, typed, &self.requests);
        }
        if way.copied.is_kept() {
            self.outbox.keep(id, len, way.kept_in);
            self.note_copy(out.link, peer, deadline);
        } else {
            self.set_deadline(out.link, id, deadline);
        }
        let state = out.link.peer(peer);
        if state.has_answered()
            && state.has_no_packets_queued()
            && !way.is_agreement
            && matches!(self.begin_message(out, peer, id), Ok(Turn::Sent))
        {
            return (id, false);
        }
        let queues = self.queues(peer);
        let queue = if way.is_agreement { &mut queues.agreements } else { &mut queues.messages };
        queue.push_back(id);
        self.note_queue(out.link, peer);
        let has_path = out.link.peer(peer).path().is_some();
        if !has_path {
            out.link.seek(peer);
        }
        (id, has_path)
    }

    /// Returns true if a message of `len` bytes that cannot be sent at once may be copied to the outbox: it is short,
    /// the outbox has room for it, and the port had room for the peer at the last attempt. If the port had no room, the
    /// send must wait, so that it ends with an error that names the fix.
    pub(crate) fn may_keep(&self, peer: Peer, len: usize) -> bool {
        let has_no_room = self.queues.get(peer.index()).is_some_and(|queues| queues.has_no_room);
        len <= self.short_max(peer) && self.outbox.has_room(&self.config, len) && !has_no_room
    }

    /// Returns the length up to which a message to the peer may have to be sent eagerly. A message of this length is
    /// copied if it cannot be sent at once.
    pub(crate) fn short_max(&self, peer: Peer) -> usize {
        let limits = self.queues.get(peer.index()).and_then(|queues| queues.limits.as_ref());
        limits.map_or_else(|| self.config.eager_max_of_all(), |limits| limits.eager_max)
    }

    /// Notes that the receiver has matched the envelope of request `id`, or has confirmed that the envelope waits. The
    /// messages to the peer that have waited for this are sent next.
    pub(crate) fn confirmed(&mut self, link: &mut Link, peer: Peer, id: RequestId) {
        let queues = self.queues(peer);
        if queues.unconfirmed == Some(id) {
            queues.unconfirmed = None;
            self.note_queue(link, peer);
            link.list(peer);
        }
    }

    /// Informs the link if messages or initializations wait for a peer, or else that none wait.
    pub(super) fn note_queue(&mut self, link: &mut Link, peer: Peer) {
        let queues = self.queues(peer);
        let is_empty = queues.messages.is_empty() && !queues.has_precedence();
        match is_empty && queues.unconfirmed.is_none() {
            true => link.clear_queued(peer, Protocol::P2p),
            false => link.set_queued(peer, Protocol::P2p),
        }
    }

    /// Returns how the peer must treat the next envelope of an agreement if no receive matches it.
    #[cold]
    fn when_agreement_unmatched(&mut self, to: Peer) -> Unmatched {
        let Self { requests, queues, .. } = self;
        let Some(Queues { announced, .. }) = queues.get_mut(to.index()) else { return Unmatched::Waits };
        if announced.len() >= AGREEMENTS_MAX {
            let awaits_match = |request: &Request| matches!(request.state, State::AwaitingMatch { .. });
            announced.retain(|id| requests.get(*id).is_some_and(awaits_match));
        }
        if announced.len() < AGREEMENTS_MAX { Unmatched::Agreement } else { Unmatched::Waits }
    }

    /// Sends the first packet of a message, with the message's bytes (EAGER, SYNC) or without them (RTS).
    pub(super) fn begin_message<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        peer: Peer,
        id: RequestId,
    ) -> Result<Turn, PortError> {
        let state = out.link.peer(peer);
        let (Some(path), Some(Queues { limits: Some(limits), agreements, .. })) =
            (state.path(), self.queues.get(peer.index()))
        else {
            return Ok(Turn::NoRoom);
        };
        let is_agreement = agreements.front() == Some(&id);
        // A request that ended while it waited is not sent.
        let Some(request @ Request { state: State::AwaitingRoom { exposure }, .. }) = self.requests.get(id)
        else {
            return Ok(Turn::Skipped);
        };
        let (len, tag, context) = (request.buffer.len(), request.tag, request.context);
        let owned = request.buffer.is_region() && out.link.may_use_memory(limits.fence);
        let exposed = exposure.as_ref().map(|exposure| exposure.at);
        let stream_max = limits.stream_max;
        let is_kept = request.copied.is_kept();
        let answered = request.answered;
        let signature = self.signatures.of(id);
        let is_sync = answered.is_some() || signature != Signature::BYTES;
        let (credit, exhausted) = (state.credit(), state.is_exhausted());
        let choice = match is_sync && answered.is_none() {
            false => choose(len, limits, credit, exhausted, owned, answered.is_some()),
            true => {
                let limits = Limits { eager_max: limits.sync_max, ..*limits };
                choose(len, &limits, credit, exhausted, owned, false)
            }
        };
        let mode = match (choice, &request.buffer) {
            _ if let Some(at) = exposed => TransferMode::Read(at),
            (Choice::Wait, _) => return Ok(Turn::NoCredit),
            (Choice::Eager, Buffer::Owned(memory)) if is_sync => {
                let Some(flags) = out.link.flags_of_question(peer) else { return Ok(Turn::NoAnswer) };
                let header = out.link.header(peer, Protocol::P2p, kind::SYNC, flags, context);
                let sync = Synchronous::new(tag, id.to_wire(), answered, signature);
                let mut head = [0; Header::LEN + size_of::<Synchronous>()];
                head[..Header::LEN].copy_from_slice(header.as_bytes());
                head[Header::LEN..].copy_from_slice(sync.as_bytes());
                match send_memory(out.port, path, &head, memory) {
                    Ok(Post::Done) => {}
                    other => return other.map(Turn::from),
                }
                let state = out.link.peer_mut(peer);
                state.sent_question(flags);
                count_eager(state, len);
                let rank = state.rank();
                event!(TRACE, peer = rank.0, tag, bytes = len, "sent whole");
                self.forget_signature(id, signature);
                match self.requests.get_mut(id) {
                    Some(request) if answered.is_some() => {
                        request.state = State::AwaitingMatch { revoked: false, exposure: None };
                    }
                    _ => self.finish(out.link, id, Ok(Status { source: rank, tag, bytes: len })),
                }
                return Ok(Turn::Sent);
            }
            (Choice::Eager, Buffer::Owned(memory)) => {
                let header = out.link.header(peer, Protocol::P2p, kind::EAGER, Flags::empty(), context);
                let head = EagerHead { header, eager: Eager { tag: tag.into() } };
                match send_memory(out.port, path, head.as_bytes(), memory) {
                    Ok(Post::Done) => {}
                    other => return other.map(Turn::from),
                }
                let state = out.link.peer_mut(peer);
                state.sent();
                count_eager(state, len);
                let rank = state.rank();
                event!(TRACE, peer = rank.0, tag, bytes = len, "sent eagerly");
                self.finish(out.link, id, Ok(Status { source: rank, tag, bytes: len }));
                return Ok(Turn::Sent);
            }
            // Without a registration the receiver cannot get the bytes, and requests them in packets.
            (Choice::Pull, _) => self.register(out, id, path).map_or(TransferMode::Push, TransferMode::Pull),
            (Choice::Stream, _) => TransferMode::Stream,
            (Choice::Put, _) => TransferMode::Put,
            _ => TransferMode::Push,
        };
        // A short message is sent as an envelope without data only because credit was lacking. Ask for credit, so that
        // the next message has some.
        let state = out.link.peer(peer);
        let lacks_credit = mode == TransferMode::Push && len <= stream_max && credit < cost(len);
        let asks = lacks_credit && !state.is_credit_requested() && !exhausted;
        let Some(mut flags) = out.link.flags_of_question(peer) else { return Ok(Turn::NoAnswer) };
        flags.set(Flags::STARVED, asks);
        let header = out.link.header(peer, Protocol::P2p, kind::RTS, flags, context);
        let wants_answer = is_kept && mode != TransferMode::Stream;
        let unless_kept = answered.unwrap_or(Unmatched::Waits);
        let unmatched = match mode {
            _ if wants_answer => Unmatched::Confirm,
            TransferMode::Stream => unless_kept,
            _ if is_agreement => self.when_agreement_unmatched(peer),
            _ => unless_kept,
        };
        let rts = Rts::new(tag, len, id.to_wire(), mode).unless_matched(unmatched).of(signature);
        match out.port.send(path, header.as_bytes(), rts.as_bytes()) {
            Ok(Post::Done) => {}
            other => return other.map(Turn::from),
        }
        self.forget_signature(id, signature);
        let state = out.link.peer_mut(peer);
        state.sent_question(flags);
        if asks {
            state.set_credit_requested();
        }
        event!(TRACE, peer = state.rank().0, tag, bytes = len, ?mode, "announced");
        let Some(request) = self.requests.get_mut(id) else { return Ok(Turn::Sent) };
        if mode == TransferMode::Stream {
            count_eager(state, len);
            request.state = State::Pushing(Box::new(Push { recv: None, to_send: 0..len }));
            self.queues(peer).pushes.push_back(id);
            out.link.list(peer);
        } else {
            let traffic = state.traffic_mut();
            traffic.bytes_sent += len as u64;
            traffic.rendezvous_sent += 1;
            let exposure = match &mut request.state {
                State::AwaitingRoom { exposure } => exposure.take(),
                _ => None,
            };
            request.state = State::AwaitingMatch { revoked: false, exposure };
            if unmatched == Unmatched::Agreement {
                self.queues(peer).announced.push(id);
            }
            if wants_answer {
                self.queues(peer).unconfirmed = Some(id);
                self.note_queue(out.link, peer);
            }
        }
        Ok(Turn::Sent)
    }

    /// Forgets the signature of a send whose first packet was sent.
    #[inline]
    fn forget_signature(&mut self, id: RequestId, signature: Signature) {
        if signature != Signature::BYTES {
            self.signatures.remove(id);
        }
    }

    /// Exposes a message's bytes to its receiver. Returns `None` if the bytes are scattered or too few, if there is no
    /// path to the receiver, or if the port cannot expose this memory.
    #[inline]
    pub(crate) fn expose<P: Port>(
        &self,
        out: &mut Out<'_, P>,
        peer: Peer,
        data: &(impl Body + ?Sized),
    ) -> Option<Exposure> {
        let data = data.as_slice()?;
        let path = out.link.peer(peer).path()?;
        let limits = self.queues.get(peer.index())?.limits.as_ref()?;
        if data.len() < limits.read_min { None } else { out.port.expose(path, data) }
    }

    /// Registers a send's memory, unless it is registered already, so that its receiver can get the bytes. Returns the
    /// place of the bytes, or `None` if the memory cannot be registered.
    #[inline]
    fn register<P: Port>(&mut self, out: &mut Out<'_, P>, id: RequestId, path: PeerId) -> Option<Remote> {
        let Some(request) = self.requests.get_mut(id) else { unreachable!("{id:?} is about to be sent") };
        // The memory may be registered already: in an earlier attempt the port had no room for the packet.
        if let Buffer::Owned(_) = request.buffer {
            request.buffer.register(out, path, Access::REMOTE_READ);
        }
        match &request.buffer {
            Buffer::Registered { lease, .. } => Some(lease.remote(0)),
            Buffer::Owned(_) => None,
            Buffer::Lent { .. } | Buffer::Gone => {
                unreachable!("{id:?} does not own the memory that its receiver is to get")
            }
        }
    }
}
