//! Bundles: several short messages to one peer in one packet, on paths where packets are dear
//! ([`Caps::dear_packets`](crate::Caps::dear_packets)).
//!
//! ```text
//!                               the latest packet with messages to the peer
//!                        is acknowledged                   is not acknowledged
//!  a short message ────────────┬──────────────────────────────────┐
//!                              ▼                                  ▼
//!                            port ◀── a poll, another packet ── Bundle
//!                                     to the peer, or no room
//! ```
//! So a single message leaves at once, and the messages of a burst travel together (as with Nagle's algorithm, RFC
//! 896). A gathered message counts as sent: its operation has ended, and it has used credit. A bundle is sent before
//! all other packets that wait for the peer. Of these only answers can have been passed to the link before the messages
//! of the bundle. Answers that wait for the peer, and news of credit, travel in the bundle too.
//!
//! The arrival of an acknowledgement need not cause the sending of a bundle: the acknowledgement is in a packet of the
//! peer, a poll handles that packet, and each poll sends all bundles.

use zerocopy::IntoBytes;

use super::numbers::Sequence;
use super::peer::{Packet, PeerState};
use super::{Link, Out, Peer, Time, control};
use crate::wire::{Flags, Item, Protocol};
use crate::{Body, PeerId, Port, PortError, Post};

/// The messages that are gathered for one peer.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// The protocol of all messages; `None` if there are no messages.
    protocol: Option<Protocol>,
    /// The messages. Before each of them is its [`Item`].
    items: Vec<u8>,
    /// The flags of the packets that were dropped because the header of the bundle carries their news of credit. `None`
    /// if no packet was dropped.
    news: Option<Flags>,
    /// The time by which the first message must be sent.
    due: Time,
}

impl Bundle {
    /// Returns the number of bytes of the messages and their items.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Adds a message.
    fn push(&mut self, protocol: Protocol, item: Item, head: &[u8], body: &(impl Body + ?Sized)) {
        self.protocol = Some(protocol);
        self.items.extend_from_slice(item.as_bytes());
        self.items.extend_from_slice(head);
        let start = self.items.len();
        self.items.resize(start + body.len(), 0);
        body.copy_to(&mut self.items[start..]);
    }
}

/// The result of [`Out::gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// The message is in the bundle, and counts as sent.
    Yes,
    /// The message must be sent in a packet of its own. It can be sent now, because no gathered message waits for the
    /// peer.
    No,
    /// The message must wait in its protocol's queue, because the bundle must be sent first and the port has no room
    /// for it.
    NoRoom,
}

impl<P: Port> Out<'_, P> {
    /// Adds a short message to the bundle for a peer, if the peer has not acknowledged the latest packet with messages.
    /// If the bundle has no room for the message, sends the bundle first. If the bundle is full afterwards, sends it
    /// too.
    ///
    /// The message is not added if the peer has acknowledged that packet, if gathering is forbidden
    /// ([`Link::set_gathering`]), if the message is long, if the budget is used up
    /// ([`Config::gathered_max`](super::Config::gathered_max)), or if an earlier message has waited and no other
    /// message has joined it. Then sends the bundle, if there is one, so that the message can be sent after it.
    ///
    /// `head` and `body` are the bytes of the message after its header. Call this function only if nothing except
    /// gathered messages is queued for the peer ([`PeerState::has_only_gathered`]), and if the
    /// [`bundle_max`](super::PathLimits::bundle_max) of its path is not 0.
    pub fn gather(
        &mut self,
        to: Peer,
        protocol: Protocol,
        (kind, context): (u8, u32),
        head: &[u8],
        body: &(impl Body + ?Sized),
    ) -> Gathered {
        let len = head.len() + body.len();
        let with_item = Item::LEN + len;
        let gathers = self.link.gathers && self.link.peers[to].expects_company();
        let state = &self.link.peers[to];
        let bundle_max = state.limits.bundle_max;
        let is_gathered = gathers
            && with_item <= bundle_max / SHARE
            && self.link.gathered + with_item as u64 <= self.link.config.gathered_max;
        let has_room = state.bundle.takes(protocol) && state.bundle.len() + with_item <= bundle_max;
        let is_next = is_gathered && has_room;
        if !is_next && !self.send_gathered(to) {
            return Gathered::NoRoom;
        }
        if !is_gathered {
            return Gathered::No;
        }
        let item = Item { kind, reserved: 0, len: (len as u16).into(), context: context.into() };
        let is_first = self.link.gathered == 0;
        self.link.bundle(to, protocol, item, head, body);
        self.link.list_gatherer(to, is_first);
        if self.link.peers[to].bundle.len() + with_item > bundle_max {
            // Probably the next message has no room. If the port has no room now, the next poll sends the bundle.
            let _ = self.send_gathered(to);
        }
        Gathered::Yes
    }

    /// Sends the messages that are gathered for a peer. Returns false if the port does not take them now.
    fn send_gathered(&mut self, to: Peer) -> bool {
        let state = &self.link.peers[to];
        match state.path {
            Some(path) if state.queued.has_bundle() => {
                // An error of the port recurs at the next poll, which handles it.
                self.send_bundle(to, path).is_ok_and(|post| post == Post::Done)
            }
            _ => true,
        }
    }

    /// Sends the bundle for a peer. A single message is sent as an ordinary packet, unless the bundle also carries news
    /// of credit from dropped packets. The peer may wait for such news, and an ordinary packet may take the fast path
    /// ([`Stack::fast`]), in which the peer would not notice them.
    ///
    /// [`Stack::fast`]: super::Stack::fast
    pub(super) fn send_bundle(&mut self, to: Peer, path: PeerId) -> Result<Post, PortError> {
        let link = &mut *self.link;
        let Bundle { protocol: Some(protocol), news, .. } = link.peers[to].bundle else {
            unreachable!("a bundle is noted only while it has messages")
        };
        let flags = news.unwrap_or(Flags::empty()) | Flags::BUNDLE;
        let header = link.header(to, protocol, 0, flags, 0);
        let items = &link.peers[to].bundle.items;
        let Ok((first, body, rest)) = header.split_item(items) else {
            unreachable!("a bundle consists of whole items")
        };
        let is_single = rest.is_empty() && news.is_none();
        let post = match is_single {
            true => self.port.send(path, first.as_bytes(), body)?,
            false => self.port.send(path, header.as_bytes(), items)?,
        };
        if post == Post::Done {
            link.counters.bundles += u64::from(!is_single);
            let now = link.now;
            let state = &mut link.peers[to];
            state.alone_before = match is_single {
                true if now >= state.bundle.due => ALONE_MAX,
                true => (2 * state.alone_before).clamp(1, ALONE_MAX),
                false => 0,
            };
            state.alone = state.alone_before;
            state.sent();
            state.note_message();
            link.drop_bundle(to);
        }
        Ok(post)
    }
}

impl Link {
    /// Permits the gathering of messages, or forbids it. Returns true if it was permitted before. A new link permits
    /// it. While it is permitted, the caller must poll the engine within
    /// [`Config::gathered_ns`](super::Config::gathered_ns) after each call that may have gathered a message.
    pub fn set_gathering(&mut self, gathers: bool) -> bool {
        std::mem::replace(&mut self.gathers, gathers)
    }

    /// Returns true if, since the latest call of [`take_new_gathering`](Self::take_new_gathering), a message was gathered
    /// while no other one was. The time [`Config::gathered_ns`](super::Config::gathered_ns) for it, and for those that are
    /// gathered after it, begins then. The next poll or drive of the engine sends them.
    #[inline(always)]
    #[must_use]
    pub fn has_new_gathering(&self) -> bool {
        self.has_new_gathering
    }

    /// Returns the value of [`has_new_gathering`](Self::has_new_gathering), and sets it to false.
    pub fn take_new_gathering(&mut self) -> bool {
        std::mem::take(&mut self.has_new_gathering)
    }

    /// Returns the number of bytes of all gathered messages and their items.
    #[inline(always)]
    #[must_use]
    pub fn gathered(&self) -> u64 {
        self.gathered
    }

    /// Moves answers that wait for a peer to the bundle for it, in order, as far as the bundle has room. Drops packets
    /// whose news of credit the header of the bundle carries. If no message is gathered, a single answer stays a packet
    /// of its own. Returns true if there is a bundle for the peer afterwards. Call this function only if messages to
    /// the peer may be gathered.
    #[inline(never)]
    pub(super) fn has_bundle_for(&mut self, peer: Peer) -> bool {
        let state = &self.peers[peer];
        let are_several = || state.packets.iter().take_while(|packet| packet.is_plain()).nth(1).is_some();
        if state.bundle.protocol.is_none() && !are_several() {
            return false;
        }
        while self.takes_first_answer(peer) {
            let state = &mut self.peers[peer];
            let Some(Packet { protocol, kind, flags, body, .. }) = state.packets.pop_front() else { break };
            if protocol == Protocol::Control {
                *state.bundle.news.get_or_insert(flags) |= flags;
            } else {
                let item = Item { kind, reserved: 0, len: (body.len() as u16).into(), context: 0.into() };
                self.bundle(peer, protocol, item, &body, [].as_slice());
            }
        }
        self.peers[peer].queued.has_bundle()
    }

    /// Returns true if the first packet that waits for a peer can be moved to the bundle for the peer, or can be
    /// dropped because the bundle carries its news.
    fn takes_first_answer(&self, peer: Peer) -> bool {
        let PeerState { bundle, packets, limits, .. } = &self.peers[peer];
        let Some(packet) = packets.front() else { return false };
        let len = Item::LEN + packet.body.len();
        let has_room =
            bundle.len() + len <= limits.bundle_max && self.gathered + len as u64 <= self.config.gathered_max;
        // The header of the bundle carries the credit that this packet would bring.
        let is_news = (packet.protocol, packet.kind) == (Protocol::Control, control::CREDIT);
        is_news && bundle.protocol.is_some() || packet.is_plain() && bundle.takes(packet.protocol) && has_room
    }

    /// Adds a message to the bundle for a peer.
    fn bundle(&mut self, to: Peer, protocol: Protocol, item: Item, head: &[u8], body: &(impl Body + ?Sized)) {
        let state = &mut self.peers[to];
        if state.bundle.items.is_empty() {
            state.bundle.items.reserve_exact(state.limits.bundle_max);
            state.bundle.due = self.now.after(self.config.gathered_ns);
            state.queued.set_bundle(true);
        }
        let before = state.bundle.len();
        state.bundle.push(protocol, item, head, body);
        self.gathered += (state.bundle.len() - before) as u64;
    }

    /// Adds a peer to the list of peers with gathered messages, unless it is in the list. The next poll sends the
    /// messages. `is_first` is true if no other message is gathered. The list may contain peers all the same: a full
    /// bundle leaves at once, and its peer stays in the list.
    fn list_gatherer(&mut self, peer: Peer, is_first: bool) {
        if is_first || self.gatherers.is_empty() {
            self.gathered_due = self.now.after(self.config.gathered_ns);
            self.has_new_gathering = true;
        }
        if !std::mem::replace(&mut self.peers[peer].is_gatherer, true) {
            self.gatherers.push(peer);
            self.has_work = true;
        }
    }

    /// Lists the peers with gathered messages as peers with something to send.
    pub(super) fn list_gatherers(&mut self) {
        while let Some(peer) = self.gatherers.pop() {
            self.peers[peer].is_gatherer = false;
            self.list(peer);
        }
        self.gathered_due = Time::NEVER;
    }

    /// Removes the messages of the bundle for a peer, because they were sent, or because the peer has ended.
    pub(super) fn drop_bundle(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        self.gathered -= state.bundle.len() as u64;
        state.bundle = Bundle::default();
        state.queued.set_bundle(false);
    }

    /// Asserts that the bundles agree with the sums and lists of the link.
    pub(super) fn check_bundles(&self) {
        let mut gathered = 0;
        let mut listed = vec![0; self.peers.len()];
        self.gatherers.iter().for_each(|peer| listed[peer.index()] += 1);
        for (peer, state) in self.peers.iter() {
            let Bundle { protocol, items, news, due: _ } = &state.bundle;
            gathered += items.len() as u64;
            assert!(items.len() <= state.limits.bundle_max, "{peer:?} has a bundle within its limit");
            assert_eq!(protocol.is_some(), !items.is_empty(), "{peer:?} has a protocol for its bundle");
            assert_eq!(protocol.is_some(), state.queued.has_bundle(), "the bundle of {peer:?} is noted");
            assert_eq!(
                listed[peer.index()],
                usize::from(state.is_gatherer),
                "{peer:?} in the list of gatherers"
            );
            assert!(protocol.is_some() || news.is_none(), "{peer:?} has no news without messages");
            assert!(
                protocol.is_none()
                    || state.is_alive() && state.answered && (state.is_gatherer || state.listed),
                "the bundle of {peer:?} will be sent"
            );
        }
        assert_eq!(self.gathered, gathered, "the gathered bytes are the sum over all peers");
        assert!(gathered <= self.config.gathered_max, "the gathered bytes are within the budget");
    }
}

impl Bundle {
    /// Returns true if a message of a protocol may be added.
    fn takes(&self, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|own| own == protocol)
    }
}

impl Packet {
    /// Returns true if the packet can be a message of a bundle.
    fn is_plain(&self) -> bool {
        self.flags.is_empty() && self.protocol != Protocol::Control
    }
}

impl PeerState {
    /// Returns true if the next message to the peer should be gathered: the peer has not acknowledged the latest packet
    /// with messages, and the messages that must leave at once ([`ALONE_MAX`]) were sent. Otherwise, if the peer has not
    /// acknowledged that packet, counts the message as one of these.
    fn expects_company(&mut self) -> bool {
        let awaits_ack = self.unacknowledged(self.latest.get()) > 0;
        let is_alone = awaits_ack && self.alone > 0;
        self.alone -= u8::from(is_alone);
        awaits_ack && !is_alone
    }

    /// Notes that the latest packet to the peer contained messages. Call this function only if messages to the peer may
    /// be gathered: until the peer acknowledges the packet, further messages are.
    pub fn note_message(&mut self) {
        self.latest = Sequence::new(self.last_sent());
    }
}

/// A message of a send is gathered only if it takes at most 1/`SHARE` of the room of a bundle. Longer messages leave in
/// packets of their own: the system call for such a packet takes little more time than the copy to the bundle.
const SHARE: usize = 4;

/// The largest number of messages that leave at once after a gathered message was sent alone. To gather a message costs
/// more than it saves if no other message joins it: the thread for progress must be ready to send it. So the number
/// doubles with each gathered message that is sent alone, from 1 on, and begins again after a bundle of several
/// messages. If the message was sent at the end of its time, the number is `ALONE_MAX` at once: a peer that never answers
/// acknowledges nothing, and if messages to such a peer are rare, each of them would otherwise be late.
const ALONE_MAX: u8 = 64;
