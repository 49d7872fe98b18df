//! Sending: the order of the packets to a peer, the hellos, and the grants of credit.

use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::numbers::{Incarnation, Sequence};
use super::peer::{Contact, Packet};
use super::{Cause, Engine, Fault, Hello, Lent, Link, Out, Peer, Stack, Timer, Turn, control};
use crate::wire::{Flags, Protocol};
use crate::{PeerId, Port, PortError, Post};

impl<P: Port, S: Stack> Engine<P, S> {
    /// Fences the paths of peers that have ended, and then ends the registrations of their idle slabs.
    #[inline]
    pub(super) fn fence_disconnected(&mut self) {
        if !self.link.to_fence.is_empty() {
            self.fence_all_disconnected();
        }
    }

    #[cold]
    fn fence_all_disconnected(&mut self) {
        for path in std::mem::take(&mut self.link.to_fence) {
            self.port.fence_peer(path);
            for (region, registration) in self.link.slabs.of_peer(path) {
                self.port.deregister(registration);
                drop(self.link.reclaim(region));
            }
        }
    }

    /// Notes the incarnation of a peer. If the peer has no path yet, also resolves its address and queues a hello to
    /// it. Does nothing if this incarnation is not expected (see [`Link::expects`]).
    pub(super) fn connect(&mut self, peer: Peer, contact: &Contact) {
        if !self.link.expects(&mut self.stack, peer, contact.incarnation) {
            return;
        }
        // The paths of former incarnations must be fenced before an address is resolved: if the new incarnation has the
        // same address, the port would return the old path.
        self.fence_disconnected();
        let state = &mut self.link.peers[peer];
        state.incarnation = Some(contact.incarnation);
        if state.path.is_some() {
            return;
        }
        let path = match self.port.resolve(&contact.address) {
            Ok(path) => path,
            Err(PortError::Exhausted { what, hint }) => return self.no_path(peer, what, &hint),
            Err(error) => return self.fault(Fault::new(peer, Cause::from(error))),
        };
        state.path = Some(path);
        state.allowance.is_requested = true;
        self.stack.path_resolved(&mut self.link, peer, self.port.caps_for(path));
        self.greet(peer, Flags::empty());
        self.link.list_for_credit(peer);
    }

    /// Queues a hello to a peer, before everything else that waits to be sent to it.
    pub(super) fn greet(&mut self, peer: Peer, flags: Flags) {
        let link = &mut self.link;
        let state = &mut link.peers[peer];
        let address = self.port.address().0;
        let hello = Hello {
            secret: link.identity.secret,
            to_incarnation: state.incarnation.map_or(0, Incarnation::get).into(),
            number: peer.0.into(),
            address_len: u16::try_from(address.len()).unwrap_or(u16::MAX).into(),
            reserved: [0; 2],
        };
        let mut body = SmallVec::from_slice(hello.as_bytes());
        body.extend_from_slice(&address);
        let (protocol, kind) = (Protocol::Control, control::HELLO);
        state.packets.push_front(Packet { protocol, kind, flags, is_answer: false, body });
        link.list(peer);
    }

    /// Grants credit to peers that need it, within the budget. Sends a packet with the new credit to peers that have
    /// asked for credit or have little left. Other peers learn of the new credit from the next packet to them.
    pub(super) fn replenish(&mut self) {
        // With smaller grants, a packet with credit would be sent for every few bytes of data.
        let least = u32::try_from(self.link.config.window_min / 2).unwrap_or(u32::MAX);
        for _ in 0..self.link.needs_credit.len() {
            let link = &mut self.link;
            let Some(peer) = link.needs_credit.pop_front() else { break };
            let used = link.credit_out + link.held;
            let room = u32::try_from(link.config.credit_max.saturating_sub(used)).unwrap_or(u32::MAX);
            let state = &mut link.peers[peer];
            state.needs_credit = false;
            // Without a path no credit can be sent. `connect` puts the peer in this list again when it has a path.
            if !state.is_alive() || !state.heard || state.path.is_none() {
                continue;
            }
            let given = state.grant.refill(room, least);
            link.credit_out += u64::from(given);
            let is_short = state.grant.has_urgent_news() && state.packets.is_empty();
            if std::mem::take(&mut state.grant.is_requested) || is_short {
                let flags = if given == 0 { Flags::EXHAUSTED } else { Flags::empty() };
                // If a packet to the peer waits for room in the port, that packet carries the answer, so a peer that
                // asks repeatedly does not cause more packets. The carrier must be a hello until the peer has answered
                // this side's hello, because nothing else is sent before; afterwards it must not be one, because the
                // peer then ignores the credit in a hello.
                let answered = state.answered;
                let carrier = if answered { state.packets.back_mut() } else { state.packets.front_mut() };
                match carrier.filter(|packet| packet.is_hello() != answered) {
                    Some(packet) => packet.flags |= flags,
                    None if answered => link.enqueue(peer, Packet::credit(flags)),
                    None => self.greet(peer, flags),
                }
            }
            let link = &mut self.link;
            if link.peers[peer].grant.is_low() {
                // The budget allowed too little. Keep the peer in the list, to try again at the next drive.
                link.list_for_credit(peer);
            }
        }
    }

    /// Sends the packets that are queued for a peer, in order, as far as the port's room and the peer's credit allow.
    /// It does not send the bytes of long messages: [`Engine::push`] sends them.
    pub fn flush(&mut self, peer: Peer) {
        loop {
            let link = &mut self.link;
            let state = &mut link.peers[peer];
            // A peer without a path is listed again when it gets one.
            let Some(path) = state.path else { return };
            if state.has_no_packets_queued() {
                return;
            }
            // A queued packet may let this peer use memory that a failed peer could still write, for example pass on a
            // lock. So the failed peer's path is cut off before.
            self.fence_disconnected();
            let state = &self.link.peers[peer];
            let is_hello = state.packets.front().is_some_and(Packet::is_hello);
            // Until the peer has answered, only hellos are sent, all with number 0: any of them may be lost. The peer
            // is listed again when it answers.
            if !is_hello && !state.answered {
                return;
            }
            let link = &mut self.link;
            let has_bundle = !is_hello && link.peers[peer].limits.bundle_max > 0 && link.has_bundle_for(peer);
            let state = &mut link.peers[peer];
            let turn = if has_bundle {
                Out { port: &mut self.port, link }.send_bundle(peer, path).map(Turn::from)
            } else if !state.packets.is_empty() {
                self.send_packet(peer, path, is_hello)
            } else if let Some(protocol) = state.queued.next() {
                let mut out = Out { port: &mut self.port, link };
                self.stack.next(&mut out, peer, protocol)
            } else if state.queued.has_goodbye() && !self.stack.has_data_for(peer) {
                self.send_goodbye(peer, path)
            } else {
                return;
            };
            let state = &mut self.link.peers[peer];
            let is_first = state.sequence == Sequence::HELLO;
            match turn {
                Ok(Turn::Sent | Turn::Skipped) => {}
                Ok(Turn::NoRoom) => {
                    self.link.note_again();
                    return self.link.list(peer);
                }
                Ok(Turn::NoAnswer) => return,
                // The peer has been asked for credit. It is listed again when its answer comes.
                Ok(Turn::NoCredit) if state.allowance.is_requested => return,
                Ok(Turn::NoCredit) => {
                    state.allowance.is_requested = true;
                    state.packets.push_back(Packet::credit(Flags::STARVED));
                }
                // The peer has no room for another sender. Only the first packet to a peer can end in this way: it
                // makes the connection that later packets use.
                Err(PortError::Exhausted { what, hint }) if is_hello && is_first => {
                    return self.no_path(peer, what, &hint);
                }
                Err(error) => return self.fault(Fault::new(peer, Cause::from(error))),
            }
        }
    }

    /// Sends the first packet of the peer's queue of hellos, credit and answers.
    fn send_packet(&mut self, peer: Peer, path: PeerId, is_hello: bool) -> Result<Turn, PortError> {
        let link = &mut self.link;
        let Some(&Packet { protocol, kind, flags, .. }) = link.peers[peer].packets.front() else {
            return Ok(Turn::Skipped);
        };
        let mut header = link.header(peer, protocol, kind, flags, 0);
        if is_hello {
            header.sender = link.identity.rank.0.into();
            header.sequence = Sequence::HELLO.get().into();
        }
        let packets = &mut link.peers[peer].packets;
        let body = packets.front().map_or(&[][..], |packet| &packet.body);
        let post = self.port.send(path, header.as_bytes(), body)?;
        if post == Post::Done {
            packets.pop_front();
            match is_hello {
                true => link.greeted(peer),
                false => link.peers[peer].sent(),
            }
        }
        Ok(post.into())
    }

    /// Sends the goodbye to a peer.
    fn send_goodbye(&mut self, peer: Peer, path: PeerId) -> Result<Turn, PortError> {
        let link = &mut self.link;
        let header = link.header(peer, Protocol::Control, control::BYE, Flags::URGENT, 0);
        let post = self.port.send(path, header.as_bytes(), &[])?;
        if post == Post::Done {
            let state = &mut link.peers[peer];
            state.queued.remove_goodbye();
            state.bye = Some(state.sequence);
            state.sent();
            self.stack.said_goodbye(link, peer);
        }
        Ok(post.into())
    }

    /// Sends the bytes of long messages to a peer, as far as the port has room: see [`Stack::bulk`].
    pub fn push<L: Lent>(&mut self, peer: Peer, lent: &mut L) {
        let mut out = Out { port: &mut self.port, link: &mut self.link };
        match self.stack.bulk(&mut out, peer, lent) {
            Ok(Post::Done | Post::Over) => {}
            Ok(Post::Again) => self.link.list(peer),
            Err(error) => self.fault(Fault::new(peer, Cause::from(error))),
        }
    }

    /// Handles a lack of room for the connection to a peer, here or at the peer. Operations that need the path end. The
    /// peer has not failed: the next send asks for a path again, and so does a timer if messages still wait for the
    /// peer.
    ///
    /// The queued packets are dropped. The peer can wait only for an answer to its hello, because it sends nothing but
    /// hellos until this side has answered. It repeats its hello, and is then answered if there is room.
    fn no_path(&mut self, peer: Peer, what: &'static str, hint: &str) {
        crate::event!(WARN, peer = self.link.peers[peer].rank.0, what, hint, "no room for a peer");
        let state = &mut self.link.peers[peer];
        (state.path, state.sought) = (None, false);
        state.packets.clear();
        let is_closing = state.queued.has_goodbye();
        debug_assert!(!state.queued.has_bundle(), "messages are gathered only for a peer that has answered");
        state.queued.clear();
        self.stack.no_path(&mut self.link, peer, what, hint);
        if self.stack.has_data_for(peer) {
            if is_closing {
                self.link.peers[peer].queued.insert_goodbye();
            }
            self.link.repeat_later(peer, GREETINGS_MAX);
        }
    }
}

impl Link {
    /// Accounts for a hello that the port has accepted, and sets the timer to repeat it if no packet acknowledges it.
    /// The time doubles with each repetition.
    fn greeted(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        if state.sequence == Sequence::HELLO {
            state.sequence = Sequence::FIRST;
        }
        state.grant.note_told();
        self.repeat_later(peer, 20);
    }

    /// Sets the timer of the next hello to a peer. The time doubles with each hello, at most `doublings` times.
    fn repeat_later(&mut self, peer: Peer, doublings: u32) {
        let state = &mut self.peers[peer];
        let wait_ns = ANSWER_WITHIN_NS.saturating_mul(1 << state.greetings.min(doublings));
        state.greetings = state.greetings.saturating_add(1);
        let due = self.now.after(wait_ns);
        // If a timer that is due earlier is set, no other timer is added. Otherwise a peer that repeats its hello would
        // cause many timers, because each of its hellos is answered by a hello.
        if due < state.greeting_due {
            state.greeting_due = due;
            self.timers.set(due, Timer::Hello(peer));
        }
    }
}

/// The longest time by which the deadline of a receive may be put off while polls bring events. A poll takes a limited
/// number of packets, so it takes several polls to receive a long message that has arrived in time. The time is
/// limited, because otherwise a peer that never stops sending could put off a deadline for ever.
pub(super) const LATE_NS: u64 = 1_000_000;

/// The number of times that the time between two attempts to reach a peer doubles, if the port had no room for it: up
/// to 4 s. A port does not report that it has room again.
const GREETINGS_MAX: u32 = 4;

/// The time after which a hello without an answer is repeated. Even a peer that shares its core with dozens of
/// processes answers sooner.
///
/// A hello can be lost although the port has accepted it. libfabric's provider net, and the provider tcp of later
/// versions, can lose packets that are sent while both ends make a connection to each other, if one of the ends had a
/// connection to a process that has ended. That end uses the slot of the old connection again, and the slot still has
/// the number of the old process. The function xnet_process_connreq then mistakes the connection request that the other
/// end has withdrawn for the request of a new process, and closes the good connection in favour of it
/// (prov/net/src/xnet_rdm_cm.c at 1.17.0, prov/tcp up to 2.0.0).
const ANSWER_WITHIN_NS: u64 = 250_000_000;
