//! The state of a peer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

use super::bundle::Bundle;
use super::credit::{Allowance, Grant};
use super::numbers::{Incarnation, Sequence};
use super::{Cause, Time, Traffic, WorldRank, control};
use crate::wire::{Flags, Protocol};
use crate::{Address, PeerId};

/// The index of a peer in a [`Link`](super::Link). All incarnations of a rank have the same index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub(super) u32);

impl Peer {
    /// Returns the index, for a protocol's own table with one entry for each peer.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One peer, in one of its incarnations.
#[derive(Debug)]
pub struct PeerState {
    pub(super) rank: WorldRank,
    /// The peer's incarnation. `None` until the peer's hello arrives, or the caller provides it with the address.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) standing: Standing,
    /// True if the peer's process is stopped, according to the launcher's last report.
    pub(super) is_stopped: bool,
    /// The time at which the peer ceased to take part.
    pub(super) ended_at: Time,
    /// True if the launcher has reported how the peer's process ended.
    pub(super) has_report: bool,
    /// True if the launcher has announced that it restarts the peer.
    pub(super) returns: bool,
    /// The port's name for the peer, once the peer's address is known.
    pub(super) path: Option<PeerId>,
    /// True if the peer's address was requested from the caller of the engine.
    pub(super) sought: bool,
    /// Tagged messages shorter than this may be passed to the port without further checks of the path. It is 0 if there
    /// is no path, or if messages to the peer may be gathered.
    pub(super) immediate_end: usize,
    /// The limits of the path, once it is known.
    pub(super) limits: PathLimits,
    /// The messages that are gathered for the peer.
    pub(super) bundle: Bundle,
    /// The number of the latest packet to the peer with messages. It is kept only if messages to the peer may be
    /// gathered.
    pub(super) latest: Sequence,
    /// The number of messages that will leave at once before messages are gathered again.
    pub(super) alone: u8,
    /// The value that `alone` was set to when the latest bundle was sent.
    pub(super) alone_before: u8,
    /// The context in which a protocol has last found the peer to be a living member: see
    /// [`PeerState::set_known_in`].
    known_in: u64,

    /// The number that the peer has given to this side, in its hello. Each packet to the peer carries it, so that the
    /// peer finds its state for this side.
    pub(super) number: u32,
    /// The number of the next packet to the peer.
    pub(super) sequence: Sequence,
    /// The number of the packet that the peer expects next, according to the latest packet from the peer.
    pub(super) acked: Sequence,
    /// The number of the latest [question](super::Link::flags_of_question) whose acknowledgement was requested, until
    /// the acknowledgement arrives.
    pub(super) asked: Option<Sequence>,
    /// True if a protocol has a question that must not be sent before the acknowledgement of the question in `asked`.
    pub(super) awaits_acknowledgement: bool,
    /// The number of the goodbye to the peer, once that is sent.
    pub(super) bye: Option<Sequence>,
    /// Hellos sent to the peer.
    pub(super) greetings: u32,
    /// The time at which the hello will be repeated, or [`Time::NEVER`].
    pub(super) greeting_due: Time,
    /// True if a packet from the peer has acknowledged a hello.
    pub(super) answered: bool,
    /// The credit for data to the peer.
    pub(super) allowance: Allowance,
    /// The link's own packets and the protocols' answers that wait for room in the port. They are sent before
    /// everything else.
    pub(super) packets: PacketQueue,
    /// The protocols with something to send.
    pub(super) queued: QueuedProtocols,
    /// True if the peer is in the link's list of peers with something to send.
    pub(super) listed: bool,
    /// True if the peer is in the link's list of peers with gathered messages.
    pub(super) is_gatherer: bool,

    /// The number of the next packet from the peer.
    pub(super) expected: Sequence,
    /// True if the peer's hello has arrived.
    pub(super) heard: bool,
    /// The credit for the peer's data.
    pub(super) grant: Grant,
    /// True if the peer is in the link's list of peers that need credit.
    pub(super) needs_credit: bool,
    /// Counts of messages exchanged with the rank, in all its incarnations.
    pub(super) traffic: Traffic,
}

/// The limits of the path to a peer, for tagged messages that a send sends or gathers within its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLimits {
    /// The length of the longest tagged message that is sent in one packet.
    pub immediate_max: usize,
    /// The largest number of bytes in a bundle: its messages, with an [`Item`](crate::wire::Item) before each. It is 0
    /// if messages to the peer are never gathered.
    pub bundle_max: usize,
}

/// Tells whether a peer takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer takes part.
    Alive,
    /// The peer said goodbye: its messages can be received, and nothing can be sent to it.
    Left,
    /// The peer failed.
    Failed(Cause),
}

/// The set of protocols that have something to send to one peer, a bit for the bundle and a bit for the goodbye. The
/// bundle comes first. Then the protocols take turns; the goodbye comes after all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueuedProtocols {
    set: u8,
    /// The protocol that was served last.
    last: u8,
}

/// The value of [`PeerState::known_in`] for no context. It exceeds all numbers of contexts, because a peer chooses the
/// number in the header of its packet.
const NOWHERE: u64 = u64::MAX;

/// The bits of the bundle and of the goodbye are not the bit of any protocol.
const _: () = assert!((1_u32 << Protocol::LAST as u32) < QueuedProtocols::BUNDLE as u32);

impl QueuedProtocols {
    const GOODBYE: u8 = 1 << 7;
    const BUNDLE: u8 = 1 << 6;

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.set == 0
    }

    #[inline]
    pub(super) fn insert(&mut self, protocol: Protocol) {
        self.set |= 1 << protocol as u8;
    }

    #[inline]
    pub(super) fn remove(&mut self, protocol: Protocol) {
        self.set &= !(1 << protocol as u8);
    }

    pub(super) fn insert_goodbye(&mut self) {
        self.set |= Self::GOODBYE;
    }

    pub(super) fn remove_goodbye(&mut self) {
        self.set &= !Self::GOODBYE;
    }

    /// Returns the protocol whose turn it is: the next one after the one served last.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Protocol> {
        let queued = self.set & !(Self::GOODBYE | Self::BUNDLE);
        if queued == 0 {
            return None;
        }
        let behind = queued & !((2 << self.last) - 1);
        let chosen = if behind == 0 { queued } else { behind };
        self.last = chosen.trailing_zeros() as u8;
        Protocol::from_number(self.last)
    }

    pub(super) fn has_goodbye(self) -> bool {
        self.set & Self::GOODBYE != 0
    }

    /// Sets the bit of the bundle, or clears it.
    pub(super) fn set_bundle(&mut self, has_one: bool) {
        self.set = self.set & !Self::BUNDLE | if has_one { Self::BUNDLE } else { 0 };
    }

    pub(super) fn has_bundle(self) -> bool {
        self.set & Self::BUNDLE != 0
    }

    fn has_only_bundle(self) -> bool {
        self.set & !Self::BUNDLE == 0
    }

    pub(super) fn clear(&mut self) {
        self.set = 0;
    }
}

/// A packet that waits for room in the port. It is sent before the packets in the protocols' queues.
pub(super) struct Packet {
    pub(super) protocol: Protocol,
    pub(super) kind: u8,
    pub(super) flags: Flags,
    /// True if the packet was queued while a packet from a peer was handled, so that it counts against
    /// [`Config::answers_max`].
    ///
    /// [`Config::answers_max`]: super::Config::answers_max
    pub(super) is_answer: bool,
    pub(super) body: SmallVec<[u8; 32]>,
}

impl fmt::Debug for Packet {
    /// Does not print the body, because the body of a hello contains the job's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, kind, flags, is_answer: _, body } = self;
        write!(f, "{protocol:?} {kind} {flags:?}, {} bytes", body.len())
    }
}

impl Packet {
    /// Returns a packet without a body, whose header carries credit and an acknowledgement.
    pub(super) fn credit(flags: Flags) -> Self {
        Self {
            protocol: Protocol::Control,
            kind: control::CREDIT,
            flags,
            is_answer: false,
            body: SmallVec::new(),
        }
    }

    /// Returns true for a hello, which must be sent before all other packets.
    pub(super) fn is_hello(&self) -> bool {
        (self.protocol, self.kind) == (Protocol::Control, control::HELLO)
    }
}

/// The packets that wait for room in the port, and the number of answers among them.
#[derive(Debug, Default)]
pub(super) struct PacketQueue {
    packets: VecDeque<Packet>,
    answers: usize,
}

impl PacketQueue {
    /// Returns the number of answers in the queue.
    #[inline]
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Packet> {
        self.packets.front()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Packet> {
        self.packets.front_mut()
    }

    pub(super) fn back(&self) -> Option<&Packet> {
        self.packets.back()
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut Packet> {
        self.packets.back_mut()
    }

    pub(super) fn push_back(&mut self, packet: Packet) {
        self.answers += usize::from(packet.is_answer);
        self.packets.push_back(packet);
    }

    pub(super) fn push_front(&mut self, packet: Packet) {
        self.answers += usize::from(packet.is_answer);
        self.packets.push_front(packet);
    }

    pub(super) fn pop_front(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.answers -= usize::from(packet.is_answer);
        Some(packet)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes all packets except hellos.
    pub(super) fn keep_hellos(&mut self) {
        self.packets.retain(Packet::is_hello);
        self.answers = 0;
    }
}

impl PeerState {
    fn new(rank: WorldRank) -> Self {
        Self {
            rank,
            incarnation: None,
            standing: Standing::Alive,
            is_stopped: false,
            ended_at: Time::ZERO,
            has_report: false,
            returns: false,
            path: None,
            sought: false,
            immediate_end: 0,
            limits: PathLimits::default(),
            bundle: Bundle::default(),
            latest: Sequence::HELLO,
            alone: 0,
            alone_before: 0,
            known_in: NOWHERE,
            number: 0,
            sequence: Sequence::HELLO,
            acked: Sequence::HELLO,
            asked: None,
            awaits_acknowledgement: false,
            bye: None,
            greetings: 0,
            greeting_due: Time::NEVER,
            answered: false,
            allowance: Allowance::default(),
            packets: PacketQueue::default(),
            queued: QueuedProtocols::default(),
            listed: false,
            is_gatherer: false,
            expected: Sequence::HELLO,
            heard: false,
            grant: Grant::default(),
            needs_credit: false,
            traffic: Traffic::default(),
        }
    }

    /// Returns the peer's rank.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> WorldRank {
        self.rank
    }

    /// Returns the peer's incarnation, if it is known.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    /// Returns the port's name for the peer, if the peer's address is known.
    #[inline]
    #[must_use]
    pub fn path(&self) -> Option<PeerId> {
        self.path
    }

    /// Returns the number that the peer has given to this side in its hello; 0 before that has arrived.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if the peer's process is stopped, according to the launcher's last report.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns true if the peer has answered a hello, so that packets can be sent to it.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Returns true if the peer's hello has arrived.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.heard
    }

    /// Returns true if this side has said goodbye to the peer.
    #[must_use]
    pub fn was_told_goodbye(&self) -> bool {
        self.bye.is_some()
    }

    /// Returns the number of the next packet from the peer.
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.expected.get()
    }

    /// Returns the sequence number of the last packet that was sent to the peer.
    #[must_use]
    pub fn last_sent(&self) -> u32 {
        self.sequence.get().wrapping_sub(1)
    }

    /// Returns the number of packets up to number `last` that the peer has not acknowledged. Numbers wrap.
    #[must_use]
    pub fn unacknowledged(&self, last: u32) -> u32 {
        // Numbers wrap, so a comparison with `acked` does not show if packet `last` was sent long ago. It is not
        // acknowledged if it is one of the packets under way.
        let behind = last.wrapping_sub(self.acked.get());
        if behind < self.under_way() { behind + 1 } else { 0 }
    }

    /// Returns the number of packets to the peer that it has not acknowledged.
    #[inline]
    fn under_way(&self) -> u32 {
        self.sequence.get().wrapping_sub(self.acked.get())
    }

    /// See [`Link::flags_of_question`](super::Link::flags_of_question). `most` is the limit
    /// [`Config::questions_max`](super::Config::questions_max).
    #[inline]
    pub(super) fn flags_of_question(&mut self, most: u32) -> Option<Flags> {
        let under_way = self.under_way();
        if under_way < most / 2 {
            return Some(Flags::empty());
        }
        match (self.asked, under_way < most) {
            (None, _) => Some(Flags::URGENT),
            (Some(_), true) => Some(Flags::empty()),
            (Some(_), false) => {
                self.awaits_acknowledgement = true;
                None
            }
        }
    }

    /// Notes that a question with these flags was sent: see [`sent`](Self::sent).
    #[inline]
    pub fn sent_question(&mut self, flags: Flags) {
        if flags.contains(Flags::URGENT) {
            self.asked = Some(self.sequence);
        }
        self.sent();
    }

    /// Notes that a packet from the peer was handled. Returns true if the packet has acknowledged the question in
    /// `asked`, and questions wait for that. (This function is not called for packets that take the fast path. The
    /// packet with a requested acknowledgement does not take it.)
    #[inline]
    pub(super) fn may_ask_again(&mut self) -> bool {
        let Some(asked) = self.asked else { return false };
        if self.unacknowledged(asked.get()) > 0 {
            return false;
        }
        self.asked = None;
        std::mem::take(&mut self.awaits_acknowledgement)
    }

    /// Returns the bytes of data that may be sent to the peer before it grants more credit.
    #[inline]
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.allowance.left()
    }

    /// Returns true if the peer was asked for credit and has not answered.
    #[must_use]
    pub fn is_credit_requested(&self) -> bool {
        self.allowance.is_requested
    }

    /// Returns true if the peer has answered that it can grant no credit for now.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.allowance.is_exhausted
    }

    /// Returns true if a tagged message of `len` bytes may be passed to the port without further checks of the path:
    /// the path is known, one packet is enough, and messages to the peer are never gathered.
    #[inline(always)]
    #[must_use]
    pub fn is_immediate(&self, len: usize) -> bool {
        len < self.immediate_end
    }

    /// Returns the limits of the path to the peer. They are 0 until the path is known.
    #[must_use]
    pub fn limits(&self) -> PathLimits {
        self.limits
    }

    /// Returns true if nothing except gathered messages is queued for the peer.
    #[must_use]
    pub fn has_only_gathered(&self) -> bool {
        self.packets.is_empty() && self.queued.has_only_bundle()
    }

    /// Returns the context of the last call of [`set_known_in`](Self::set_known_in).
    #[must_use]
    pub fn known_in(&self) -> Option<u32> {
        u32::try_from(self.known_in).ok()
    }

    /// Returns true if [`known_in`](Self::known_in) is `context`.
    #[inline(always)]
    #[must_use]
    pub fn is_known_in(&self, context: u32) -> bool {
        self.known_in == u64::from(context)
    }

    /// Returns true if no packets are queued for the peer. Bytes of long messages may still wait to be sent to it.
    #[inline]
    #[must_use]
    pub fn has_no_packets_queued(&self) -> bool {
        self.packets.is_empty() && self.queued.is_empty()
    }

    /// Returns true if every packet that this engine has sent to itself has arrived. Call it only for the state of this
    /// rank as its own peer: there `sequence` and `expected` count the same packets.
    pub(super) fn has_taken_its_own(&self) -> bool {
        !self.is_alive() || self.has_no_packets_queued() && self.sequence == self.expected
    }

    /// Returns how many of the link's packets and the protocols' answers wait for room in the port.
    #[must_use]
    pub fn packets_waiting(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if the peer takes part.
    #[inline]
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.standing, Standing::Alive)
    }

    /// Returns why the peer no longer takes part, or `None` if it takes part.
    #[cold]
    #[must_use]
    pub fn failure(&self) -> Option<Cause> {
        match &self.standing {
            Standing::Alive => None,
            Standing::Left => Some(Cause::Left),
            Standing::Failed(cause) => Some(cause.clone()),
        }
    }

    /// Returns the counts of messages exchanged with the peer's rank.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the counts of messages exchanged with the peer, which the protocols increase.
    #[inline]
    pub fn traffic_mut(&mut self) -> &mut Traffic {
        &mut self.traffic
    }

    /// Takes `price` bytes from the credit for data to the peer.
    #[inline]
    pub fn spend(&mut self, price: u32) {
        self.allowance.spend(price);
    }

    /// Sets the limits of the path to the peer.
    pub fn set_limits(&mut self, limits: PathLimits) {
        self.immediate_end = if limits.bundle_max == 0 { limits.immediate_max + 1 } else { 0 };
        self.limits = limits;
    }

    /// Notes that the peer is a living member of a context, for a protocol that would otherwise search for it at each
    /// message. The protocol notes `None` when that is not certain any more. The next incarnation of the peer begins
    /// with `None`.
    pub fn set_known_in(&mut self, context: Option<u32>) {
        self.known_in = context.map_or(NOWHERE, u64::from);
    }

    /// Notes that a packet has asked the peer for credit.
    pub fn set_credit_requested(&mut self) {
        self.allowance.is_requested = true;
    }

    /// Records that the port has accepted a packet to the peer: advances the sequence number, and notes that the peer
    /// will know of all granted credit, because each header carries the total.
    #[inline]
    pub fn sent(&mut self) {
        self.sequence = self.sequence.next();
        self.grant.note_told();
    }

    /// Returns true if the peer has said goodbye or the port has lost it, and the launcher has not yet reported how its
    /// process ended.
    pub(super) fn awaits_word(&self) -> bool {
        !self.has_report && matches!(self.standing, Standing::Left | Standing::Failed(Cause::Lost))
    }
}

/// The peers that this rank has had contact with, found by index and by rank. The size of this table grows with the
/// number of these peers, and not with the number of ranks in the job.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: Vec<PeerState>,
    by_rank: HashMap<WorldRank, Peer, BuildHasherDefault<RankHasher>>,
    recent: Recent,
}

/// A cache of ranks that were looked up recently, with their peers. The place of a rank in the cache is the rank modulo
/// the number of places. Most traffic is with few ranks, so most lookups need not search the map.
#[derive(Debug)]
struct Recent([(WorldRank, Peer); 16]);

impl Default for Recent {
    fn default() -> Self {
        // An empty entry has a rank that belongs to another place, so no lookup finds it.
        Self(std::array::from_fn(|place| (WorldRank(place as u32 + 1), Peer(0))))
    }
}

impl Recent {
    #[inline]
    fn of(&mut self, rank: WorldRank) -> &mut (WorldRank, Peer) {
        &mut self.0[rank.index() % self.0.len()]
    }
}

impl Peers {
    /// Returns the peer of a rank, if there is state for it.
    #[inline]
    pub(super) fn find(&mut self, rank: WorldRank) -> Option<Peer> {
        let recent = self.recent.of(rank);
        if recent.0 != rank {
            *recent = (rank, *self.by_rank.get(&rank)?);
        }
        Some(recent.1)
    }

    /// Returns the peer to which this side has given `number`, and its state. Returns `None` if no peer has the number:
    /// packets carry it, so it may be wrong.
    #[inline(always)]
    pub(super) fn numbered(&mut self, number: u32) -> Option<(Peer, &mut PeerState)> {
        Some((Peer(number), self.all.get_mut(number as usize)?))
    }

    pub(super) fn meet(&mut self, rank: WorldRank) -> Peer {
        let peer = Peer(self.all.len() as u32);
        self.all.push(PeerState::new(rank));
        self.by_rank.insert(rank, peer);
        *self.recent.of(rank) = (rank, peer);
        peer
    }

    /// Resets the state of a peer for its next incarnation. Keeps the rank, the counts of its traffic, and the fields
    /// that record the peer's place in the link's lists and its timer.
    pub(super) fn renew(&mut self, peer: Peer) {
        let state = &mut self[peer];
        // The peer stays in the link's lists, and its timer stays set, so the fields that say so are kept. The code
        // that handles the lists and the timer accepts a peer that has nothing to send.
        let PeerState { rank, listed, is_gatherer, needs_credit, traffic, greeting_due, .. } = *state;
        let fresh = PeerState::new(rank);
        *state = PeerState { listed, is_gatherer, needs_credit, traffic, greeting_due, ..fresh };
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Peer, &PeerState)> {
        (0..).map(Peer).zip(&self.all)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PeerState> {
        self.all.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the peer of a rank as [`Peers::find`] does, but without the cache.
    pub(super) fn find_slowly(&self, rank: WorldRank) -> Option<Peer> {
        self.by_rank.get(&rank).copied()
    }

    /// Returns the peer at the other end of a port's path.
    pub(super) fn on_path(&self, path: PeerId) -> Option<Peer> {
        self.iter().find(|(_, state)| state.path == Some(path)).map(|(peer, _)| peer)
    }
}

impl std::ops::Index<Peer> for Peers {
    type Output = PeerState;
    #[inline]
    fn index(&self, peer: Peer) -> &PeerState {
        &self.all[peer.0 as usize]
    }
}

impl std::ops::IndexMut<Peer> for Peers {
    #[inline]
    fn index_mut(&mut self, peer: Peer) -> &mut PeerState {
        &mut self.all[peer.0 as usize]
    }
}

/// Hashes a rank by one multiplication. Such a weak hash is safe here: only processes that have the job's secret can
/// make ranks known, so no attacker can choose ranks that collide.
#[derive(Default)]
struct RankHasher(u64);

impl Hasher for RankHasher {
    fn write_u32(&mut self, rank: u32) {
        // The golden ratio in 64 bits: Fibonacci hashing (Knuth, vol. 3, section 6.4).
        self.0 = u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(self.0 as u32 ^ u32::from(byte));
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// An address with the incarnation of the process that listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contact {
    pub(super) incarnation: Incarnation,
    pub(super) address: Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_take_turns() {
        let mut queued = QueuedProtocols::default();
        assert_eq!(queued.next(), None);
        let all = [Protocol::P2p, Protocol::Rma, Protocol::Coll];
        all.into_iter().for_each(|protocol| queued.insert(protocol));
        queued.insert_goodbye();
        for protocol in [all, all].concat() {
            assert_eq!(queued.next(), Some(protocol));
        }
        queued.remove(Protocol::Rma);
        assert_eq!([queued.next(), queued.next(), queued.next()], [all[0], all[2], all[0]].map(Some));
        queued.remove(Protocol::P2p);
        queued.remove(Protocol::Coll);
        assert_eq!(queued.next(), None);
        assert!(queued.has_goodbye() && !queued.is_empty(), "the goodbye comes after all of them");
        queued.remove_goodbye();
        assert!(queued.is_empty());
    }

    /// So many packets may be sent between two questions that, in wrapping order, the number of the first question is
    /// later than the number of the second one.
    #[test]
    fn questions_are_limited_whatever_came_before() {
        for before in [0, 1, 1 << 20, 0x7fff_fff0, 0x8000_0000, 0x9000_0000, u32::MAX - 5] {
            let mut state = PeerState::new(WorldRank(1));
            let mut asked = 0;
            for _ in 0..3 {
                for _ in 0..8 {
                    let flags = state.flags_of_question(8).expect("fewer than the limit are under way");
                    asked += u32::from(flags.contains(Flags::URGENT));
                    state.sent_question(flags);
                }
                assert_eq!(state.flags_of_question(8), None);
                assert!(!state.may_ask_again());
                state.acked = state.sequence;
                assert!(state.may_ask_again() && !state.may_ask_again());
                // Short messages follow, which the peer acknowledges without another answer.
                state.sequence = Sequence::new(state.sequence.get().wrapping_add(before));
                state.acked = state.sequence;
                let last = state.last_sent().wrapping_sub(before);
                assert_eq!(state.unacknowledged(last), 0);
            }
            assert_eq!(asked, 3);
        }
    }

    #[test]
    fn a_rank_keeps_its_name_through_its_incarnations() {
        let mut peers = Peers::default();
        let names: Vec<_> =
            (0..100).map(|rank| WorldRank(rank * 7)).map(|rank| (rank, peers.meet(rank))).collect();
        for &(rank, peer) in &names {
            peers[peer].incarnation = Some(Incarnation::new(3));
            peers[peer].traffic.bytes_sent = u64::from(rank.0);
            peers.renew(peer);
            assert_eq!((peers[peer].rank, peers[peer].incarnation), (rank, None));
            assert_eq!(peers[peer].traffic.bytes_sent, rank.0.into());
        }
        for (rank, peer) in names {
            assert_eq!((peers.find(rank), peers.find_slowly(rank)), (Some(peer), Some(peer)));
            assert_eq!(peers.find(WorldRank(rank.0 + 1)), None);
        }
    }
}
