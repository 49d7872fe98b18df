//! The way of a packet: checked, counted, and handed to what it is for.

use samite_fabric::port::gather;
use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Address, Body, Failure, OpId, PeerId, Sink};
use samite_matching::{Arrival, Envelope, Pattern};

use super::{Core, Rendezvous, Stream, Unexpected, status_of};
use crate::choose::cost;
use crate::config::OVERHEAD;
use crate::error::{Cause, Error, Fate, Status};
use crate::peer::{Packet, Peer, Place, Standing};
use crate::request::{Buffer, Push, Staged, State};

use crate::trace::event;
use crate::wire::{
    Abort, Cts, Data, Eager, EagerHead, Fin, Hello, Revoke, Rts, Verdict, Way, control, exact, kind, prefix,
};
use crate::{Lent, RequestId};

/// Takes the port's events on behalf of the engine.
pub(super) struct Inbound<'a, L> {
    pub(super) core: &'a mut Core,
    pub(super) lent: &'a mut L,
    /// A receive that is about to be posted.
    pub(super) unposted: Option<Unposted<'a>>,
}

impl<'a, L> Inbound<'a, L> {
    pub(super) fn new(core: &'a mut Core, lent: &'a mut L) -> Self {
        Self { core, lent, unposted: None }
    }
}

/// A receive that is not posted. While no other is, it gets the first message that it matches.
pub(super) struct Unposted<'a> {
    pub(super) pattern: Pattern,
    pub(super) buffer: &'a mut [u8],
    /// What it got. A message that is too long is not in the buffer, and used up all the same.
    pub(super) got: Option<Status>,
}

impl Unposted<'_> {
    /// Takes a message, if it is this receive's.
    #[inline(always)]
    fn take(&mut self, envelope: &Envelope, data: &(impl Body + ?Sized)) -> bool {
        if !self.pattern.matches(envelope) {
            return false;
        }
        if let Some(into) = self.buffer.get_mut(..data.len()) {
            data.copy_to(into);
            event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "succeeded");
        }
        self.got = Some(status_of(envelope, data.len()));
        true
    }
}

impl<L: Lent> Sink for Inbound<'_, L> {
    /// A function of its own, so that a poll which finds nothing is not burdened with it.
    #[inline(never)]
    fn packet(&mut self, bytes: &[u8]) {
        let Some((EagerHead { header, eager }, data)) = EagerHead::split(bytes) else {
            return self.other_packet(bytes);
        };
        if let Some(peer) = self.core.admit(header, data)
            && let Err(error) = self.eager(peer, header, eager, data)
        {
            self.core.bury(peer, Cause::Protocol(error.to_string()));
        }
    }

    /// The bytes of a message go straight to where they belong.
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        if let Ok((header, rest)) = Header::decode(head)
            && header.protocol() == Protocol::P2p
        {
            let handled = match (header.kind, exact(rest), exact(rest)) {
                (kind::EAGER, Ok(eager), _) => {
                    let Some(peer) = self.core.admit(header, rest) else { return };
                    self.eager(peer, header, eager, body).map_err(|error| (peer, error))
                }
                (kind @ (kind::DATA | kind::STREAM), _, Ok(data)) => {
                    let Some(peer) = self.core.admit(header, rest) else { return };
                    self.data(peer, kind, data, body).map_err(|error| (peer, error))
                }
                _ => return self.packet(&gather(head, body)),
            };
            if let Err((peer, error)) = handled {
                self.core.bury(peer, Cause::Protocol(error.to_string()));
            }
        } else {
            self.packet(&gather(head, body));
        }
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        self.core.got(op, result, self.lent);
    }

    fn notified(&mut self, _immediate: u64) {
        // Nobody was given a key to put to.
        self.core.counters.rejected.notification += 1;
    }

    fn peer_lost(&mut self, path: PeerId) {
        if let Some(peer) = self.core.peers.on_path(path) {
            self.core.bury(peer, Cause::Lost);
        }
    }
}

impl Core {
    /// Whether a packet is the next one of a peer that takes part; if so its credit and acknowledgement are
    /// taken. A hello introduces its sender.
    #[inline(always)]
    fn admit(&mut self, header: &Header, body: &[u8]) -> Option<u32> {
        let index = self.peers.find(header.sender.get());
        if let Some(index) = index
            && header.to.get() == self.identity.incarnation as u16
        {
            let peer = &mut self.peers[index];
            if peer.incarnation == Some(header.incarnation.get())
                && peer.heard
                && header.sequence.get() == peer.expected
                && peer.is_alive()
            {
                peer.expected = peer.expected.wrapping_add(1);
                peer.acked = header.ack.get();
                if header.grant.get() != peer.granted || !header.flags().is_empty() {
                    self.credit_news(index, header.grant.get(), header.flags());
                }
                return Some(index);
            }
        }
        self.turn_away(header, body, index);
        None
    }

    /// Deals with a packet that is not the next one of a peer that takes part.
    #[cold]
    fn turn_away(&mut self, header: &Header, body: &[u8], index: Option<u32>) {
        if header.to.get() != self.identity.incarnation as u16 {
            // For a process that had this address before.
            self.counters.rejected.misdirected += 1;
            return;
        }
        if let Some(index) = index {
            let peer = &self.peers[index];
            let (number, expected) = (header.sequence.get(), peer.expected);
            let is_hello =
                header.protocol() == Protocol::Control && header.kind == control::HELLO && number == 0;
            let is_repeated = is_hello && peer.standing == Standing::Alive;
            if peer.incarnation == Some(header.incarnation.get()) && peer.heard && !is_repeated {
                // One told again is nothing, whoever tells it: over tcp a stranger can have an old one delivered,
                // left in a buffer that it fills with less.
                let is_old = number == 0 || number.wrapping_sub(expected) as i32 <= 0;
                if peer.standing == Standing::Alive && !is_old {
                    self.bury(index, Cause::Gap { expected, got: number });
                }
                self.counters.stale += 1;
                return;
            }
        }
        if header.protocol() == Protocol::Control
            && header.kind == control::HELLO
            && header.sequence.get() == 0
        {
            self.hello(header, body);
        } else {
            self.counters.rejected.unknown += 1;
            let unheard = |peer: &Peer| !peer.heard && peer.incarnation == Some(header.incarnation.get());
            if let Some(index) = index.filter(|&index| unheard(&self.peers[index])) {
                // Its hello is lost, and what came with it.
                self.bury(index, Cause::Gap { expected: 0, got: header.sequence.get() });
            }
        }
    }

    /// Somebody introduces himself. Until he has shown that he is of this job, he gets to know nothing and
    /// leaves no trace but a count.
    #[cold]
    fn hello(&mut self, header: &Header, body: &[u8]) {
        let Ok((hello, address)) = prefix::<Hello>(body) else {
            self.counters.rejected.malformed += 1;
            return;
        };
        if !is_same(&hello.secret, &self.identity.secret) {
            self.counters.rejected.secret += 1;
            return;
        }
        let to = hello.to_incarnation.get();
        let sound = (to == 0 || to == self.identity.incarnation)
            && address.len() == usize::from(hello.address_len.get())
            && header.sender.get() < self.identity.size;
        if !sound || self.meet(header, address).is_none() {
            self.counters.rejected.hello += 1;
        }
    }

    /// A peer has introduced itself. None if that is out of date.
    fn meet(&mut self, header: &Header, address: &[u8]) -> Option<()> {
        let (rank, incarnation) = (header.sender.get(), header.incarnation.get());
        let index = self.peers.find(rank).unwrap_or_else(|| self.peers.meet(rank));
        let address = Address(address.to_vec());
        match self.peers[index].incarnation {
            Some(known) if known == incarnation => {
                (self.peers[index].standing == Standing::Alive).then_some(())?;
                if self.peers[index].heard {
                    self.meet_again(index, header);
                    if self.peers[index].path.is_none() {
                        // The port had no room for it.
                        self.callers.push((index, Place { incarnation, address }));
                    }
                    return Some(());
                }
            }
            Some(known) if is_later(known, incarnation) => return None,
            Some(_) => {
                // A later life: all that concerns the former one ends before the new one is heard.
                self.bury(index, Cause::Restarted);
                self.renew(index);
            }
            // What ended was a life that this engine never met.
            None if self.peers[index].standing != Standing::Alive => self.renew(index),
            None => {}
        }
        let peer = &mut self.peers[index];
        peer.incarnation = Some(incarnation);
        peer.heard = true;
        peer.expected = 1;
        peer.acked = header.ack.get();
        let window = self.config.window_min.min(self.config.unexpected_max);
        peer.window = u32::try_from(window).unwrap_or(u32::MAX / 4);
        // It has none, and may have something to send: it is to know how much it gets, or that it gets none.
        peer.hungry = true;
        self.credit_news(index, header.grant.get(), header.flags());
        self.callers.push((index, Place { incarnation, address }));
        self.starve(index);
        Some(())
    }

    /// A peer repeats its hello: since it has heard that of this side in the meantime, or since no answer has come.
    fn meet_again(&mut self, index: u32, header: &Header) {
        let peer = &mut self.peers[index];
        if !peer.answered && header.ack.get() != 0 {
            peer.acked = header.ack.get();
            self.credit_news(index, header.grant.get(), header.flags());
            self.list(index);
        } else {
            self.counters.stale += 1;
            peer.hungry = true;
            self.starve(index);
        }
    }

    /// A packet brings more credit, or asks for it, or says that there is none.
    fn credit_news(&mut self, index: u32, granted: u32, flags: Flags) {
        let peer = &mut self.peers[index];
        let more = peer.granted != granted;
        peer.granted = granted;
        peer.answered |= peer.acked != 0;
        if more || flags.contains(Flags::EXHAUSTED) {
            peer.exhausted = !more;
            peer.asked = false;
            self.list(index);
        }
        if flags.contains(Flags::STARVED) {
            self.widen(index);
        }
    }

    fn control(&mut self, peer: u32, kind: u8) -> Result<(), WireError> {
        match kind {
            control::CREDIT => {}
            control::BYE => {
                self.farewell(peer);
                // The one packet that it still waits for.
                self.enqueue(peer, Packet::credit(Flags::empty()));
            }
            theirs => return Err(WireError::Kind { theirs }),
        }
        Ok(())
    }

    /// Notes that a peer should have more credit.
    pub(super) fn starve(&mut self, index: u32) {
        let peer = &mut self.peers[index];
        if !peer.starving {
            peer.starving = true;
            self.starving.push_back(index);
        }
    }

    /// The packet's messages, with the length of the message at hand: the first packet of a message meets its
    /// receive here.
    fn accept_rts(
        &mut self,
        index: u32,
        envelope: Envelope,
        rendezvous: Rendezvous,
    ) -> Result<(), WireError> {
        let is_stream = rendezvous.way == Way::Stream;
        if is_stream {
            if self.streams.contains_key(&(index, rendezvous.send)) {
                return Err(WireError::Value { field: "send" });
            }
            let price = u32::try_from(rendezvous.bytes.saturating_add(OVERHEAD)).unwrap_or(u32::MAX);
            self.charge(index, price)?;
        } else {
            self.peers[index].traffic.rendezvous_received += 1;
        }
        let traffic = &mut self.peers[index].traffic;
        traffic.bytes_received = traffic.bytes_received.wrapping_add(rendezvous.bytes as u64);
        match self.matcher.arrive(envelope, || Unexpected::Rts(rendezvous)) {
            Arrival::Matched(id) => self.begin(id, &envelope, rendezvous),
            Arrival::Queued(unexpected) => {
                self.peers[index].traffic.unexpected += 1;
                self.note_unexpected();
                event!(
                    TRACE,
                    peer = envelope.source,
                    tag = envelope.tag,
                    bytes = rendezvous.bytes,
                    "unexpected"
                );
                if is_stream {
                    let total = rendezvous.bytes;
                    self.unexpected_cost += u64::from(cost(total));
                    let kept = Stream::Kept { unexpected, total, bytes: Vec::new() };
                    self.streams.insert((index, rendezvous.send), kept);
                } else if self.envelopes_cost + OVERHEAD as u64 > self.config.envelopes_max as u64 {
                    self.matcher.remove(unexpected);
                    self.refuse(index, rendezvous.send);
                } else {
                    self.envelopes_cost += OVERHEAD as u64;
                    if let Some(former) = self.envelopes.insert((index, rendezvous.send), unexpected) {
                        // Two messages of one name: when the sender ends, only the second would be found.
                        self.matcher.remove(former);
                        self.envelopes_cost -= OVERHEAD as u64;
                        return Err(WireError::Value { field: "send" });
                    }
                }
            }
            // As with eager messages: the sender may have forgotten it by then.
            Arrival::Refused if is_stream => self.bury(index, Cause::OutOfMemory),
            Arrival::Refused => self.refuse(index, rendezvous.send),
        }
        Ok(())
    }

    /// Takes what a message costs from the credit of its sender, and notes that it should have more.
    #[inline(always)]
    fn charge(&mut self, index: u32, price: u32) -> Result<(), WireError> {
        let peer = &mut self.peers[index];
        if price > peer.unused() {
            return Err(WireError::Value { field: "credit" });
        }
        peer.charged = peer.charged.wrapping_add(price);
        peer.traffic.eager_received += 1;
        self.credit_out -= u64::from(price);
        if peer.runs_short() {
            self.starve(index);
        }
        Ok(())
    }

    #[inline]
    fn note_unexpected(&mut self) {
        let waiting = self.matcher.unexpected_len() as u64;
        self.counters.unexpected_max = self.counters.unexpected_max.max(waiting);
    }

    fn refuse(&mut self, index: u32, send: u64) {
        self.counters.refused += 1;
        self.answer(index, kind::FIN, &Fin::new(send, Verdict::Refused));
    }

    /// A receive gets a message that waited for it.
    #[inline]
    pub(super) fn accept<L: Lent>(
        &mut self,
        id: RequestId,
        envelope: &Envelope,
        message: Unexpected,
        lent: &mut L,
    ) {
        match message {
            Unexpected::Eager(data) => {
                self.unexpected_cost -= u64::from(cost(data.len()));
                self.deliver(id, *envelope, data.as_slice(), lent);
                self.store.release(data);
            }
            Unexpected::Rts(rendezvous) if rendezvous.way == Way::Stream => {
                self.take_stream(id, envelope, rendezvous, lent);
            }
            Unexpected::Rts(rendezvous) => self.begin(id, envelope, rendezvous),
        }
    }

    /// A message that waited for its receive is matched: if it waits with its sender, it cannot be withdrawn any more.
    #[inline]
    pub(super) fn matched(&mut self, envelope: &Envelope, message: &Unexpected) {
        match message {
            Unexpected::Eager(_) | Unexpected::Rts(Rendezvous { way: Way::Stream, .. }) => {}
            Unexpected::Rts(Rendezvous { send, .. }) => self.forget_envelope(envelope.source, *send),
        }
    }

    /// An envelope waits no longer.
    pub(super) fn forget_envelope(&mut self, rank: u32, send: u64) {
        self.envelopes_cost -= OVERHEAD as u64;
        if let Some(index) = self.peers.find(rank) {
            self.envelopes.remove(&(index, send));
        }
    }

    /// A receive gets all of its message at once. One whose lender is at hand is over with that.
    #[inline(always)]
    pub(super) fn deliver<L: Lent>(
        &mut self,
        id: RequestId,
        envelope: Envelope,
        data: &(impl Body + ?Sized),
        lent: &mut L,
    ) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if let Buffer::Lent { len, place, staged: None } = request.buffer
            && data.len() <= len
            && let Some(buffer) = lent.write(id, place)
        {
            data.copy_to(&mut buffer[..data.len()]);
            lent.received(id, place, status_of(&envelope, data.len()));
            event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "succeeded");
            self.requests.remove_bare(id);
        } else {
            self.deliver_unlent(id, envelope, data);
        }
    }

    /// The same, where the message goes to no buffer that is at hand: the request keeps it, and its end.
    #[inline(never)]
    fn deliver_unlent(&mut self, id: RequestId, envelope: Envelope, data: &(impl Body + ?Sized)) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let status = status_of(&envelope, data.len());
        let room = request.buffer.len();
        if data.len() > room {
            return self.finish(id, Err(Error::Truncated { status, room }));
        }
        match &mut request.buffer {
            Buffer::Owned(memory) => data.copy_to(&mut memory.as_bytes_mut()[..data.len()]),
            Buffer::Lent { staged, .. } => Staged::append(staged, 0, data),
            Buffer::Registered { .. } | Buffer::Gone => {}
        }
        if request.collected {
            return self.finish(id, Ok(status));
        }
        request.state = State::Over;
        request.succeed(status);
    }

    /// The request of a peer's answer, if there still is one and it is that peer's.
    fn answered(&mut self, index: u32, name: u64) -> Option<RequestId> {
        let id = RequestId::from_wire(name);
        let rank = self.peers[index].rank;
        let found = self.requests.get(id).is_some_and(|request| request.rank() == Some(rank));
        if !found {
            self.counters.stale += 1;
        }
        found.then_some(id)
    }

    fn cts(&mut self, index: u32, cts: &Cts) -> Result<(), WireError> {
        let Some(id) = self.answered(index, cts.send.get()) else {
            self.answer(index, kind::ABORT, &Abort { recv: cts.recv });
            return Ok(());
        };
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        if matches!(request.state, State::Over) {
            // It gave up while it sent, and told so.
            self.counters.stale += 1;
            return Ok(());
        }
        let is_gone = matches!(request.buffer, Buffer::Lent { .. } | Buffer::Gone);
        let given_up = request.result.is_some() || (request.collected && is_gone);
        if matches!(request.state, State::AwaitingMatch { .. }) && given_up {
            // It has timed out, or its owner has gone with the data; the receiver has none of it yet.
            self.answer(index, kind::ABORT, &Abort { recv: cts.recv });
            self.finish(id, Err(Error::Cancelled { fate: Fate::NotDelivered }));
            return Ok(());
        }
        if matches!(request.state, State::AwaitingMatch { .. }) && self.peers[index].bye.is_some() {
            // The receiver ends at the goodbye, which it gets before any byte that would be sent now.
            self.end_after_goodbye(id);
            return Ok(());
        }
        let offset = usize::try_from(cts.offset.get()).map_err(|_| WireError::Value { field: "offset" })?;
        let len = usize::try_from(cts.len.get()).map_err(|_| WireError::Value { field: "length" })?;
        let called = offset.checked_add(len).filter(|&end| len > 0 && end <= request.buffer.len());
        let called = called.ok_or(WireError::Value { field: "length" })?;
        match &mut request.state {
            State::AwaitingMatch { .. } if offset == 0 => {
                let recv = Some(cts.recv.get());
                request.state = State::Pushing(Box::new(Push { recv, called: 0..called }));
                self.peers[index].pushes.push_back(id);
            }
            State::Pushing(push) if push.recv == Some(cts.recv.get()) && push.called.end == offset => {
                if push.called.is_empty() {
                    self.peers[index].pushes.push_back(id);
                }
                push.called.end = called;
            }
            _ => return Err(WireError::Value { field: "offset" }),
        }
        self.list(index);
        Ok(())
    }

    fn fin(&mut self, index: u32, fin: &Fin) -> Result<(), WireError> {
        let verdict = fin.verdict()?;
        let Some(id) = self.answered(index, fin.send.get()) else { return Ok(()) };
        let rank = self.peers[index].rank;
        let Some(request) = self.requests.get(id) else { return Ok(()) };
        if matches!(request.state, State::Over) {
            // It sent its last bytes, and the receiver gave up on them.
            self.counters.stale += 1;
            return Ok(());
        }
        if !request.is_send() {
            return Err(WireError::Value { field: "send" });
        }
        let status = Status { source: rank, tag: request.tag, bytes: request.buffer.len() };
        let result = match verdict {
            Verdict::Delivered => Ok(status),
            Verdict::Withdrawn => Err(Error::Cancelled { fate: Fate::NotDelivered }),
            Verdict::Abandoned => Err(Error::Abandoned { rank, fate: Fate::NotDelivered }),
            Verdict::Refused => Err(Error::Exhausted {
                what: "the receiver's memory for messages that wait for a receive",
                hint: "have it receive them, or raise its envelopes_max".into(),
            }),
        };
        self.finish(id, result);
        Ok(())
    }

    fn revoke(&mut self, index: u32, revoke: &Revoke) {
        let send = revoke.send.get();
        if self.end_stream(index, send) {
            return;
        }
        let unexpected = self.envelopes.get(&(index, send)).copied();
        // If it does not wait any more it was matched, and goes on.
        if unexpected.is_some_and(|unexpected| self.matcher.remove(unexpected).is_some()) {
            self.forget_envelope(self.peers[index].rank, send);
            self.answer(index, kind::FIN, &Fin::new(send, Verdict::Withdrawn));
        }
    }

    fn abort(&mut self, index: u32, abort: &Abort) {
        let Some(id) = self.answered(index, abort.recv.get()) else { return };
        if self.requests.get(id).is_some_and(|request| matches!(request.state, State::AwaitingData(_))) {
            let rank = self.peers[index].rank;
            self.finish(id, Err(Error::Abandoned { rank, fate: Fate::NotDelivered }));
        }
    }

    /// Queues an answer to a peer.
    pub(super) fn answer(
        &mut self,
        index: u32,
        kind: u8,
        body: &(impl zerocopy::IntoBytes + zerocopy::Immutable),
    ) {
        let body = body.as_bytes().into();
        self.enqueue(index, Packet { protocol: Protocol::P2p, kind, flags: Flags::empty(), body });
    }
}

impl<L: Lent> Inbound<'_, L> {
    /// Any packet but those that nearly all are.
    #[inline(never)]
    fn other_packet(&mut self, bytes: &[u8]) {
        let (header, body) = match Header::decode(bytes) {
            Ok(packet) => packet,
            Err(error) => return self.core.counters.rejected.count(error),
        };
        let Some(peer) = self.core.admit(header, body) else { return };
        let handled = match (header.protocol(), header.kind) {
            (Protocol::P2p, kind::EAGER) => Err(WireError::Short { len: body.len() }),
            (Protocol::P2p, kind @ (kind::DATA | kind::STREAM)) => {
                prefix(body).and_then(|(data, bytes)| self.data(peer, kind, data, bytes))
            }
            (Protocol::P2p, _) => self.rendezvous(peer, header, body),
            (Protocol::Control, kind) => self.core.control(peer, kind),
            (protocol, _) => Err(WireError::Protocol { theirs: protocol as u8 }),
        };
        if let Err(error) = handled {
            self.core.bury(peer, Cause::Protocol(error.to_string()));
        }
    }

    #[inline(always)]
    fn eager(
        &mut self,
        index: u32,
        header: &Header,
        eager: &Eager,
        data: &(impl Body + ?Sized),
    ) -> Result<(), WireError> {
        let core = &mut *self.core;
        let price = cost(data.len());
        core.charge(index, price)?;
        let traffic = &mut core.peers[index].traffic;
        traffic.bytes_received = traffic.bytes_received.wrapping_add(data.len() as u64);
        let envelope =
            Envelope { context: header.context.get(), source: header.sender.get(), tag: eager.tag.get() };
        if let Some(unposted) = &mut self.unposted
            && core.matcher.posted_len() == 0
            && unposted.take(&envelope, data)
        {
            return Ok(());
        }
        let store = &mut core.store;
        match core.matcher.arrive(envelope, || Unexpected::Eager(store.keep(data))) {
            Arrival::Matched(id) => core.deliver(id, envelope, data, self.lent),
            Arrival::Queued(_) => {
                core.peers[index].traffic.unexpected += 1;
                core.note_unexpected();
                event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "unexpected");
                core.unexpected_cost += u64::from(price);
            }
            // The sender has forgotten it, so it would be lost in silence: a failure that is told instead.
            Arrival::Refused => core.bury(index, Cause::OutOfMemory),
        }
        Ok(())
    }

    fn rendezvous(&mut self, index: u32, header: &Header, body: &[u8]) -> Result<(), WireError> {
        let core = &mut *self.core;
        match header.kind {
            kind::RTS => {
                let rts = exact::<Rts>(body)?;
                let bytes =
                    usize::try_from(rts.len.get()).map_err(|_| WireError::Value { field: "length" })?;
                if isize::try_from(bytes).is_err() {
                    return Err(WireError::Value { field: "length" });
                }
                let way = rts.way()?;
                let envelope = Envelope {
                    context: header.context.get(),
                    source: header.sender.get(),
                    tag: rts.tag.get(),
                };
                core.accept_rts(index, envelope, Rendezvous { send: rts.send.get(), bytes, way })?;
            }
            kind::CTS => core.cts(index, exact(body)?)?,
            kind::FIN => core.fin(index, exact(body)?)?,
            kind::REVOKE => core.revoke(index, exact(body)?),
            kind::ABORT => core.abort(index, exact(body)?),
            theirs => return Err(WireError::Kind { theirs }),
        }
        // Each packet has one answer at most, so it is here that they would pile up.
        let answers_max = ANSWERS_MIN.max(core.config.envelopes_max / OVERHEAD);
        if core.peers[index].packets.len() > answers_max {
            core.bury(index, Cause::OutOfMemory);
        }
        Ok(())
    }

    fn data(
        &mut self,
        index: u32,
        kind: u8,
        data: &Data,
        bytes: &(impl Body + ?Sized),
    ) -> Result<(), WireError> {
        if kind == kind::STREAM {
            return self.core.stream(index, data, bytes, self.lent);
        }
        let Some(id) = self.core.answered(index, data.operation.get()) else { return Ok(()) };
        self.core.inflow(id, data.offset.get(), bytes, self.lent)
    }
}

/// Answers that a peer may leave untaken, however small the budget for envelopes.
const ANSWERS_MIN: usize = 1024;

/// Compares secrets in a time that does not tell how much of them is the same.
fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

/// Whether incarnation `a` began after `b`, in wrapping order.
pub(super) fn is_later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < u32::MAX / 2
}
