//! A packet's way in: admitted or turned away, then handed to its protocol.

use super::peer::{Packet, PeerState, Place};
use super::{Cause, Done, Fault, Hello, KEY_BITS, Lent, Link, Peer, Stack, control};
use crate::port::gather;
use crate::wire::{Flags, Header, Protocol, WireError, prefix};
use crate::{Address, Body, Failure, OpId, PeerId, Sink};

/// Takes the port's events on behalf of the engine.
pub(super) struct Inbound<'a, S, L> {
    pub(super) link: &'a mut Link,
    pub(super) stack: &'a mut S,
    pub(super) lent: &'a mut L,
}

impl<S: Stack, L: Lent> Sink for Inbound<'_, S, L> {
    /// A function of its own, so that a poll which finds nothing does not pay for it.
    #[inline(never)]
    fn packet(&mut self, bytes: &[u8]) {
        match self.stack.fast(self.link, bytes, self.lent) {
            Ok(true) => {}
            Ok(false) => self.other_packet(bytes),
            Err(fault) => self.fault(fault),
        }
    }

    /// The bytes of a long message go straight to their place.
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        let Ok((header, rest)) = Header::decode(head) else {
            return self.packet(&gather(head, body));
        };
        if header.protocol() == Protocol::Control {
            return self.packet(&gather(head, body));
        }
        let Some(peer) = self.admit(header, rest) else { return };
        let handled = self.stack.long_packet(self.link, peer, header, rest, body, self.lent);
        self.handled(peer, handled);
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        self.link.quarantine.release();
        let Some(protocol) = Protocol::from_number((op.0 >> KEY_BITS) as u8) else {
            return self.link.note_stale();
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
            Err(error) => return self.link.counters.rejected.count(error),
        };
        let Some(peer) = self.admit(header, body) else { return };
        let handled = match header.protocol() {
            Protocol::Control => self.control(peer, header.kind),
            _ => self.stack.packet(self.link, peer, header, body, self.lent),
        };
        self.handled(peer, handled);
    }

    /// Ends the peer whose packet was a fault, or that leaves too many answers untaken: each packet has at most one answer,
    /// so it is here that they would pile up.
    #[inline]
    fn handled(&mut self, peer: Peer, handled: Result<(), Fault>) {
        match handled {
            Ok(()) if self.link.peers[peer].packets.len() <= self.link.config.answers_max => {}
            Ok(()) => self.link.fail(self.stack, peer, Cause::OutOfMemory),
            Err(fault) => self.fault(fault),
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

    /// Deals with a packet that is not the next one of a peer that takes part.
    #[cold]
    fn turn_away(&mut self, header: &Header, body: &[u8]) {
        let link = &mut *self.link;
        if header.to.get() != link.identity.incarnation as u16 {
            // For a process that had this address before.
            link.counters.rejected.misdirected += 1;
            return;
        }
        let peer = link.peers.find(header.sender.get());
        let is_hello = header.protocol() == Protocol::Control
            && header.kind == control::HELLO
            && header.sequence.get() == 0;
        if let Some(peer) = peer {
            let state = &link.peers[peer];
            let (number, expected) = (header.sequence.get(), state.expected);
            let is_repeated = is_hello && state.is_alive();
            if state.incarnation == Some(header.incarnation.get()) && state.heard && !is_repeated {
                // An old number is ignored: over tcp a stranger can have an old packet delivered again, left in a buffer that
                // it fills with less.
                let is_old = number == 0 || number.wrapping_sub(expected) as i32 <= 0;
                if state.is_alive() && !is_old {
                    link.fail(self.stack, peer, Cause::Gap { expected, got: number });
                }
                return self.link.note_stale();
            }
        }
        if is_hello {
            return self.hello(header, body);
        }
        link.counters.rejected.unknown += 1;
        let unheard = |state: &PeerState| !state.heard && state.incarnation == Some(header.incarnation.get());
        if let Some(peer) = peer.filter(|&peer| unheard(&link.peers[peer])) {
            // Its hello is lost, and what came with it.
            link.fail(self.stack, peer, Cause::Gap { expected: 0, got: header.sequence.get() });
        }
    }

    /// Handles a hello. A sender that does not prove that it is of this job only increments a counter.
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
        let is_sound = (to == 0 || to == link.identity.incarnation)
            && address.len() == usize::from(hello.address_len.get())
            && header.sender.get() < link.identity.size;
        if !is_sound || self.meet(header, address).is_none() {
            self.link.counters.rejected.hello += 1;
        }
    }

    /// Admits a peer that has introduced itself. Returns `None` if the hello is out of date.
    fn meet(&mut self, header: &Header, address: &[u8]) -> Option<()> {
        let (rank, incarnation) = (header.sender.get(), header.incarnation.get());
        let link = &mut *self.link;
        let peer = link.peers.find(rank).unwrap_or_else(|| link.peers.meet(rank));
        let place = Place { incarnation, address: Address(address.to_vec()) };
        match link.peers[peer].incarnation {
            Some(known) if known == incarnation => {
                link.peers[peer].is_alive().then_some(())?;
                if link.peers[peer].heard {
                    link.meet_again(peer, header);
                    if link.peers[peer].path.is_none() {
                        // The port had no room for it.
                        link.call(peer, place);
                    }
                    return Some(());
                }
            }
            Some(known) if is_later(known, incarnation) => return None,
            Some(_) => {
                // A later incarnation: everything that concerns the former one ends before the new one is heard.
                link.fail(self.stack, peer, Cause::Restarted);
                link.renew(self.stack, peer);
            }
            // The incarnation that ended never introduced itself here.
            None if !link.peers[peer].is_alive() => link.renew(self.stack, peer),
            None => {}
        }
        let state = &mut link.peers[peer];
        state.incarnation = Some(incarnation);
        state.heard = true;
        state.expected = 1;
        state.acked = header.ack.get();
        let window = link.config.window_min.min(link.config.credit_max);
        state.window = u32::try_from(window).unwrap_or(u32::MAX / 4);
        // It has no credit, and may have something to send: tell it how much it gets, or that it gets none.
        state.hungry = true;
        link.credit_news(peer, header.grant.get(), header.flags());
        link.call(peer, place);
        link.starve(peer);
        Some(())
    }

    /// Handles a packet of the link's own protocol. A hello that is the next packet of its peer makes no sense.
    fn control(&mut self, peer: Peer, kind: u8) -> Result<(), Fault> {
        match kind {
            control::CREDIT => {}
            control::BYE => {
                self.link.farewell(self.stack, peer);
                // The one packet that it still waits for.
                self.link.enqueue(peer, Packet::credit(Flags::empty()));
            }
            theirs => return Err(Fault::new(peer, WireError::Kind { theirs })),
        }
        Ok(())
    }
}

impl Link {
    /// Admits a packet if it is the next one of a peer that takes part; then its acknowledgement and credit are taken.
    #[inline(always)]
    pub fn admit(&mut self, header: &Header) -> Option<Peer> {
        let peer = self.peers.find(header.sender.get())?;
        if header.to.get() != self.identity.incarnation as u16 {
            return None;
        }
        let state = &mut self.peers[peer];
        if state.incarnation == Some(header.incarnation.get())
            && state.heard
            && header.sequence.get() == state.expected
            && state.is_alive()
        {
            state.expected = state.expected.wrapping_add(1);
            state.acked = header.ack.get();
            if header.grant.get() != state.granted || !header.flags().is_empty() {
                self.credit_news(peer, header.grant.get(), header.flags());
            }
            return Some(peer);
        }
        None
    }

    /// Handles the hello of a peer that is known: it repeats it because it has heard that of this side in the meantime, or
    /// because no answer has come.
    fn meet_again(&mut self, peer: Peer, header: &Header) {
        let state = &mut self.peers[peer];
        if !state.answered && header.ack.get() != 0 {
            state.acked = header.ack.get();
            self.credit_news(peer, header.grant.get(), header.flags());
            self.list(peer);
        } else {
            state.hungry = true;
            self.note_stale();
            self.starve(peer);
        }
    }

    /// Handles credit that a packet brings or asks for, or the news that there is none.
    fn credit_news(&mut self, peer: Peer, granted: u32, flags: Flags) {
        let state = &mut self.peers[peer];
        let more = state.granted != granted;
        state.granted = granted;
        state.answered |= state.acked != 0;
        if more || flags.contains(Flags::EXHAUSTED) {
            state.exhausted = !more;
            state.asked = false;
            self.list(peer);
        }
        if flags.contains(Flags::STARVED) {
            self.widen(peer);
        }
    }

    /// Doubles the credit that a peer may hold: it ran out of it, and waits for an answer.
    fn widen(&mut self, peer: Peer) {
        let most = self.config.window_max.min(self.config.credit_max);
        let state = &mut self.peers[peer];
        state.window = state.window.saturating_mul(2).min(u32::try_from(most).unwrap_or(u32::MAX / 4));
        state.hungry = true;
        self.starve(peer);
    }

    /// Notes the address of a peer.
    pub(super) fn call(&mut self, peer: Peer, place: Place) {
        self.callers.push((peer, place));
        self.has_work = true;
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

/// Returns true if incarnation `a` began after `b`, in wrapping order.
pub(super) fn is_later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < u32::MAX / 2
}
