//! The path of a received packet: it is admitted or refused, then dispatched to its protocol.

use super::numbers::{Incarnation, Sequence};
use super::peer::{Contact, Packet, PeerState, Standing};
use super::{Cause, Done, Fault, Hello, KEY_BITS, Lent, Link, Peer, Stack, WorldRank, control};
use crate::port::gather;
use crate::wire::{Flags, Header, Protocol, VERSION, WireError, prefix};
use crate::{Address, Body, Failure, OpId, PeerId, Sink};

/// The sink of the engine: receives the port's events, and passes them to the link and the protocols.
pub(super) struct Inbound<'a, S, L> {
    pub(super) link: &'a mut Link,
    pub(super) stack: &'a mut S,
    pub(super) lent: &'a mut L,
}

impl<S: Stack, L: Lent> Sink for Inbound<'_, S, L> {
    /// Handles a packet. This function is not inlined, so that a poll without events does not have to save the
    /// registers that this code needs.
    #[inline(never)]
    fn packet(&mut self, bytes: &[u8]) {
        match self.stack.fast(self.link, bytes, self.lent) {
            Ok(true) => {}
            Ok(false) => self.other_packet(bytes),
            Err(fault) => self.fault(fault),
        }
    }

    /// Handles a long packet. Its protocol copies the body from the receive buffer directly to the destination.
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        let Ok((header, rest)) = Header::decode(head) else {
            return self.packet(&gather(head, body));
        };
        if header.protocol() == Protocol::Control || header.flags().contains(Flags::BUNDLE) {
            return self.packet(&gather(head, body));
        }
        let Some(peer) = self.admit(header, rest) else { return };
        self.link.is_handling = true;
        let handled = self.stack.long_packet(self.link, peer, header, rest, body, self.lent);
        self.handled(peer, header.flags(), handled);
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        self.link.quarantine.release();
        let Some(protocol) = Protocol::from_number((op.0 >> KEY_BITS) as u8) else {
            unreachable!("the port completed {op:?}, which no protocol posted")
        };
        let done = Done { protocol, key: op.0 & ((1 << KEY_BITS) - 1), result };
        if let Err(fault) = self.stack.completed(self.link, done, self.lent) {
            self.fault(fault);
        }
    }

    fn notified(&mut self, immediate: u64) {
        if !self.stack.notified(self.link, immediate) {
            self.link.counters.rejected.notification += 1;
        }
    }

    fn peer_lost(&mut self, path: PeerId) {
        if let Some(peer) = self.link.peers.on_path(path) {
            self.link.fail(self.stack, peer, Cause::Lost);
        }
    }
}

impl<S: Stack, L: Lent> Inbound<'_, S, L> {
    /// Handles every packet that [`Stack::fast`] does not.
    #[inline(never)]
    fn other_packet(&mut self, bytes: &[u8]) {
        let (header, body) = match Header::decode(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                self.link.counters.rejected.count(error);
                if let WireError::Version { theirs } = error {
                    self.other_version(bytes, theirs);
                }
                return;
            }
        };
        if is_hello(header) {
            // In a hello the field `sender` is a rank. `admit` would take it for the number of a peer.
            return self.turn_away(header, body);
        }
        let Some(peer) = self.admit(header, body) else { return };
        self.link.is_handling = true;
        let handled = match header.flags().contains(Flags::BUNDLE) {
            true => self.bundle(peer, header, body),
            false => self.message(peer, header, body),
        };
        self.handled(peer, header.flags(), handled);
    }

    /// Passes a message to its protocol.
    fn message(&mut self, peer: Peer, header: &Header, body: &[u8]) -> Result<(), Fault> {
        match header.protocol() {
            Protocol::Control => self.control(peer, header.kind),
            _ => self.stack.packet(self.link, peer, header, body, self.lent),
        }
    }

    /// Passes the messages of a bundle to their protocol, in order. If a message ends the peer, the rest of the bundle
    /// is ignored, as later packets of the peer are.
    fn bundle(&mut self, peer: Peer, header: &Header, mut items: &[u8]) -> Result<(), Fault> {
        loop {
            let (message, body, rest) = header.split_item(items).map_err(|error| Fault::new(peer, error))?;
            self.message(peer, &message, body)?;
            if rest.is_empty() || !self.link.peers[peer].is_alive() {
                return Ok(());
            }
            items = rest;
        }
    }

    /// Completes the handling of a packet. If the handling has found a fault, the peer fails. If the packet was urgent,
    /// it is acknowledged. The peer also fails if too many answers to it wait for room in the port: packets cause
    /// answers, so a peer that sends and does not receive would fill this side's memory with them.
    #[inline]
    fn handled(&mut self, peer: Peer, flags: Flags, handled: Result<(), Fault>) {
        self.link.is_handling = false;
        if let Err(fault) = handled {
            return self.fault(fault);
        }
        if flags.contains(Flags::URGENT) {
            self.link.acknowledge(peer);
        }
        let state = &mut self.link.peers[peer];
        if state.packets.answers() > self.link.config.answers_max {
            return self.link.fail(self.stack, peer, Cause::OutOfMemory);
        }
        if state.may_ask_again() {
            self.link.list(peer);
        }
    }

    /// Handles a packet of another version of the wire protocol. If it is a hello that contains the job's secret, the
    /// peer fails, so that operations with it report the version. Rank, incarnation and secret have the same place in
    /// the hellos of all versions.
    #[cold]
    fn other_version(&mut self, bytes: &[u8], theirs: u8) {
        let Ok((header, body)) = prefix::<Header>(bytes) else { return };
        let link = &mut *self.link;
        let rank = WorldRank(header.sender.get());
        let proves_itself =
            prefix::<[u8; 16]>(body).is_ok_and(|(secret, _)| is_same(secret, &link.identity.secret));
        if !is_named_hello(header)
            || !proves_itself
            || rank.0 >= link.identity.size
            || rank == link.identity.rank
        {
            return;
        }
        let peer = link.peers.find(rank).unwrap_or_else(|| link.peers.meet(rank));
        let incarnation = Incarnation::new(header.incarnation.get());
        if link.expects(self.stack, peer, incarnation) {
            link.peers[peer].incarnation = Some(incarnation);
            link.fail(self.stack, peer, Cause::Version { theirs, ours: VERSION });
        }
    }

    #[cold]
    fn fault(&mut self, fault: Fault) {
        self.link.fail(self.stack, fault.peer, *fault.cause);
    }

    #[inline(always)]
    fn admit(&mut self, header: &Header, body: &[u8]) -> Option<Peer> {
        let peer = self.link.admit(header);
        if peer.is_none() {
            self.turn_away(header, body);
        }
        peer
    }

    /// Handles a packet that was not admitted.
    #[cold]
    fn turn_away(&mut self, header: &Header, body: &[u8]) {
        let link = &mut *self.link;
        if header.to.get() != link.identity.incarnation as u16 {
            // The packet is for a process that had this address before.
            link.counters.rejected.misdirected += 1;
            return;
        }
        let (number, incarnation) =
            (Sequence::new(header.sequence.get()), Incarnation::new(header.incarnation.get()));
        let is_hello = is_hello(header);
        let peer = match is_hello {
            true => link.peers.find(WorldRank(header.sender.get())),
            false => link.peers.numbered(header.sender.get()).map(|(peer, _)| peer),
        };
        if let Some(peer) = peer {
            let state = &link.peers[peer];
            let expected = state.expected;
            let is_repeated = is_hello && state.is_alive();
            if state.incarnation == Some(incarnation) && state.heard && !is_repeated {
                // A packet with an old number is only counted, and is no reason to fail the peer. The peer may not have
                // sent it: over libfabric's tcp an unauthenticated process that sends a part of a packet can cause this
                // port to deliver an old packet, which is still in the receive buffer, once more.
                let is_early = number != Sequence::HELLO && number.is_after(expected);
                if state.is_alive() && is_early {
                    let cause = Cause::Gap { expected: expected.get(), got: number.get() };
                    link.fail(self.stack, peer, cause);
                }
                return self.link.note_stale();
            }
        }
        if is_hello {
            return self.hello(header, body);
        }
        link.counters.rejected.unknown += 1;
        let unheard = |state: &PeerState| !state.heard && state.incarnation == Some(incarnation);
        if let Some(peer) = peer.filter(|&peer| unheard(&link.peers[peer])) {
            // The packet is from the known incarnation of a peer whose hello has not arrived: the hello, number 0, is
            // lost.
            link.fail(self.stack, peer, Cause::Gap { expected: 0, got: number.get() });
        }
    }

    /// Handles a hello. Without the job's secret it is only counted.
    #[cold]
    fn hello(&mut self, header: &Header, body: &[u8]) {
        let link = &mut *self.link;
        let Ok((hello, address)) = prefix::<Hello>(body) else {
            link.counters.rejected.malformed += 1;
            return;
        };
        if !is_same(&hello.secret, &link.identity.secret) {
            link.counters.rejected.secret += 1;
            return;
        }
        let to = hello.to_incarnation.get();
        // No other process introduces itself to this one as its own rank: a later incarnation does not know this
        // address.
        let is_another = header.sender.get() == link.identity.rank.0
            && header.incarnation.get() != link.identity.incarnation;
        let is_sound = (to == 0 || to == link.identity.incarnation)
            && address.len() == usize::from(hello.address_len.get())
            && header.sender.get() < link.identity.size
            && !is_another;
        if !is_sound || self.meet(header, hello.number.get(), address).is_none() {
            self.link.counters.rejected.hello += 1;
        }
    }

    /// Takes in the sender of an authenticated hello as a peer. Returns `None` if the hello is from an incarnation that
    /// has ended.
    fn meet(&mut self, header: &Header, number: u32, address: &[u8]) -> Option<()> {
        let (rank, incarnation) =
            (WorldRank(header.sender.get()), Incarnation::new(header.incarnation.get()));
        let link = &mut *self.link;
        let peer = link.peers.find(rank).unwrap_or_else(|| link.peers.meet(rank));
        let contact = Contact { incarnation, address: Address(address.to_vec()) };
        match link.peers[peer].incarnation {
            Some(known) if known == incarnation => {
                link.peers[peer].is_alive().then_some(())?;
                if link.peers[peer].heard {
                    link.meet_again(peer, header);
                    if link.peers[peer].path.is_none() {
                        // The port had no room for the peer when the first hello came. Try again.
                        link.note_contact(peer, contact);
                    }
                    return Some(());
                }
            }
            Some(known) if known.is_after(incarnation) => return None,
            Some(_) => {
                // The hello is from a later incarnation. All operations with the former incarnation end before packets
                // of the new one are admitted.
                link.replace(self.stack, peer);
            }
            None => link.begin(self.stack, peer, incarnation),
        }
        let state = &mut link.peers[peer];
        state.incarnation = Some(incarnation);
        state.heard = true;
        state.number = number;
        state.expected = Sequence::FIRST;
        state.acked = Sequence::new(header.ack.get());
        let window = link.config.window_min.min(link.config.credit_max);
        state.grant.set_window(u32::try_from(window).unwrap_or(u32::MAX / 4));
        // The peer has no credit yet, and may have data to send. So the peer counts as having asked for credit: the
        // answer says how much it gets, or that it gets none.
        state.grant.is_requested = true;
        link.credit_news(peer, header.grant.get(), header.flags());
        link.note_contact(peer, contact);
        link.list_for_credit(peer);
        Some(())
    }

    /// Handles a message of the link's own protocol. Hellos are handled elsewhere. A hello that comes here has another
    /// sequence number than 0, and is an error.
    fn control(&mut self, peer: Peer, kind: u8) -> Result<(), Fault> {
        match kind {
            control::CREDIT => {}
            // The goodbye has the flag `URGENT`, so `handled` acknowledges it. The sender waits for the
            // acknowledgement.
            control::BYE => self.link.peer_left(self.stack, peer),
            theirs => return Err(Fault::new(peer, WireError::Kind { theirs })),
        }
        Ok(())
    }
}

impl Link {
    /// Admits a packet if it has the next sequence number of a peer that takes part, in the known incarnation. If so,
    /// takes the acknowledgement and the credit from its header.
    #[inline(always)]
    pub fn admit(&mut self, header: &Header) -> Option<Peer> {
        let (peer, state) = self.peers.numbered(header.sender.get())?;
        if header.to.get() != self.identity.incarnation as u16 {
            return None;
        }
        if state.incarnation == Some(Incarnation::new(header.incarnation.get()))
            && state.heard
            && Sequence::new(header.sequence.get()) == state.expected
            && state.is_alive()
        {
            state.expected = state.expected.next();
            state.acked = Sequence::new(header.ack.get());
            if state.allowance.is_news(header.grant.get()) || !header.flags().is_empty() {
                self.credit_news(peer, header.grant.get(), header.flags());
            }
            return Some(peer);
        }
        None
    }

    /// Handles the repeated hello of a known peer. The peer repeats its hello for one of two reasons: to acknowledge
    /// this side's hello, which the peer has received meanwhile, or because the peer has received no answer.
    fn meet_again(&mut self, peer: Peer, header: &Header) {
        let state = &mut self.peers[peer];
        if !state.answered && header.ack.get() != 0 {
            state.acked = Sequence::new(header.ack.get());
            self.credit_news(peer, header.grant.get(), header.flags());
            self.list(peer);
        } else {
            state.grant.is_requested = true;
            self.note_stale();
            self.list_for_credit(peer);
        }
    }

    /// Handles what a packet says about credit: it grants some, asks for some, or says that there is none. Call it
    /// after the acknowledgement was stored in `acked`.
    fn credit_news(&mut self, peer: Peer, granted: u32, flags: Flags) {
        let state = &mut self.peers[peer];
        state.answered |= state.acked != Sequence::HELLO;
        // A peer can grant credit only after this side's hello has come, and then it acknowledges the hello. Credit
        // from a peer that violates this must not be used, because nothing but hellos may be sent before the answer.
        if state.answered && state.allowance.update(granted, flags.contains(Flags::EXHAUSTED)) {
            self.list(peer);
        }
        if flags.contains(Flags::STARVED) {
            self.widen(peer);
        }
    }

    /// Doubles the credit that a peer may hold, because the peer has used up its credit. The peer waits for an answer.
    fn widen(&mut self, peer: Peer) {
        let most = self.config.window_max.min(self.config.credit_max);
        let state = &mut self.peers[peer];
        state.grant.widen(u32::try_from(most).unwrap_or(u32::MAX / 4));
        state.grant.is_requested = true;
        self.list_for_credit(peer);
    }

    /// Acknowledges an urgent packet that was handled. Each header acknowledges all packets that have arrived before it
    /// is sent. So if a packet to the peer already waits, it is enough; otherwise a packet without a body is queued. A
    /// peer that has left gets an acknowledgement too, because it waits for the acknowledgement of its goodbye.
    #[cold]
    fn acknowledge(&mut self, peer: Peer) {
        let state = &self.peers[peer];
        let is_carried = state.packets.back().is_some_and(|packet| !packet.is_hello());
        if !is_carried && !matches!(state.standing, Standing::Failed(_)) {
            self.enqueue(peer, Packet::credit(Flags::empty()));
        }
    }

    /// Notes the address of a peer, to which the next drive connects.
    pub(super) fn note_contact(&mut self, peer: Peer, contact: Contact) {
        self.contacts.push((peer, contact));
        self.has_work = true;
    }
}

/// Returns true for the header of a hello.
fn is_hello(header: &Header) -> bool {
    is_named_hello(header) && Sequence::new(header.sequence.get()) == Sequence::HELLO
}

/// Returns true for the header of a hello of any version of the wire protocol. Unlike [`is_hello`] it does not check
/// the sequence number, whose place in the header may differ between versions.
fn is_named_hello(header: &Header) -> bool {
    header.protocol() == Protocol::Control && header.kind == control::HELLO
}

/// Compares secrets in constant time, so that the duration tells an attacker nothing about the secret.
fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}
