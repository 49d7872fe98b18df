//! The link: everything that protocols share about their peers.
//!
//! ```text
//!   calls                 Engine<P, S>
//!     │      ┌──────────────────────────────────────┐
//!     ▼      │  stack S: the protocols              │   tagged messages, windows, calls: each a state machine
//!   engine ─▶│    ▲ packet, completed, ended …      │
//!            │    │ events, with &mut Link          │
//!            │    ▼ sends, gets, with Out           │
//!            │  Link: peers, hello, sequence,       │   one sequence of packets each way per peer,
//!            │    credit, timers, verdicts          │   one verdict per incarnation
//!            │  port P: moves bytes                 │
//!            └──────────────────────────────────────┘
//! ```
//!
//! An [`Engine`] owns a port, a [`Link`] and a [`Stack`] of protocols. It is a state machine: it takes calls, the
//! events of its port and the time, and acts on the port. It owns no thread and reads no clock.
//!
//! # A packet's way in
//! [`Port::poll`] hands the packet to the engine. The link admits the packet if its sender is a peer that takes part,
//! in the incarnation that this side knows, and if it has the next number in the sequence from that peer. The link then
//! takes the acknowledgement and the credit from the header, and the header's protocol byte decides which protocol
//! handles the packet. A hello is never admitted: it introduces its sender. A repetition is ignored. A packet with a
//! later number than the next means that packets were lost, and makes the peer fail. Packets of an unknown sender, and
//! packets for or from another incarnation, are only counted.
//!
//! # A packet's way out
//! A protocol that has something to send to a peer marks its queue for that peer as not empty ([`Link::set_queued`]),
//! puts the peer in the link's list of peers with something to send ([`Link::list`]), and asks for the peer's address
//! if that is unknown ([`Link::seek`]). Each drive of the engine goes through the peers in the list: first the link's
//! own packets and the protocols' answers ([`Link::answer`]), then each protocol's queue in turn ([`Stack::next`]),
//! then the bytes of long messages ([`Stack::bulk`]). A goodbye comes after all of them. Until a peer has answered a
//! hello, only hellos are sent to it.
//!
//! # Failures
//! A protocol never decides that a peer has failed. It returns a [`Fault`], and the engine ends the peer: it sets the
//! peer's standing, cuts its path off and tells the protocols ([`Stack::peer_ended`]), before any packet of a later
//! incarnation is admitted. A peer that has failed stays failed until a hello or the launcher names a later
//! incarnation of its rank.
//!
//! # A new protocol
//! Implement [`Stack`]: take the packets of one [`Protocol`] number, send through [`Out`], and end your requests in
//! [`Stack::peer_ended`] and [`Stack::expired`]. `fabric/tests/echo/protocol.rs` is a complete protocol.

mod bundle;
mod config;
mod counters;
mod credit;
mod ending;
mod engine;
mod error;
mod group;
mod inbound;
mod leases;
mod lent;
mod numbers;
mod outbound;
mod peer;
mod quarantine;
mod requests;
mod slabs;
mod timers;

use std::collections::VecDeque;
use std::fmt;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::peer::{Contact, Packet, Peers};
use self::quarantine::Quarantine;
use self::slabs::Slabs;
use self::timers::{Timer, Timers};
use crate::wire::{Flags, Header, Numbers, Protocol, WireError};
use crate::{Body, Caps, Failure, Local, OpId, PeerId, Port, PortError, Post, Region, Registration, Remote};

pub use self::bundle::Gathered;
pub use self::config::Config;
pub use self::counters::{Counters, Rejected, Traffic};
pub use self::ending::Finality;
pub use self::engine::Engine;
pub use self::error::{
    Awaited, Cause, Error, Fate, Members, Operation, OtherTags, Report, Status, TagPattern,
};
pub use self::group::{Comparison, Group, Indices, NoGroup};
pub use self::leases::Lease;
pub use self::lent::{Lent, Reading, Writing};
pub use self::numbers::{Incarnation, Time, WorldRank, first_incarnation};
pub use self::peer::{PathLimits, Peer, PeerState, Standing};
pub use self::requests::{Completion, Outcome, RequestId, Slot, Slots};
pub use self::slabs::{Registered, Slab};

/// The protocols over a link: one protocol, or a struct of several that passes each event to the protocol concerned.
///
/// The handlers of events get the link and not the port, so they post nothing during a poll. They queue work for
/// [`Stack::next`], [`Stack::bulk`] and [`Stack::drive`].
pub trait Stack {
    /// Handles `packet` if it is of the kind that the protocol receives most often: decodes it, lets the link admit it
    /// ([`Link::admit`]), and processes it. Returns false for any other packet, and for one that the link does not
    /// admit.
    ///
    /// # Errors
    /// The sender has failed.
    #[inline(always)]
    fn fast<L: Lent>(&mut self, _: &mut Link, _packet: &[u8], _: &mut L) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Handles an admitted packet of any protocol except [`Protocol::Control`]. The link does not know which protocols
    /// the stack has. So a stack returns [`WireError::Protocol`] for a packet of a protocol that it does not have.
    /// `body` is the rest of the packet after the header.
    ///
    /// # Errors
    /// The sender has failed: it violated the protocol, or this side has no memory left for its data.
    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        lent: &mut L,
    ) -> Result<(), Fault>;

    /// Handles a long packet that the port has not copied, as [`Stack::packet`] handles other packets. `head` is the
    /// first part of the packet after the header, and `body` is the rest. See
    /// [`Sink::long_packet`](crate::Sink::long_packet).
    ///
    /// # Errors
    /// Returns the faults of [`Stack::packet`].
    fn long_packet<B: Body, L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        head: &[u8],
        body: &B,
        lent: &mut L,
    ) -> Result<(), Fault> {
        self.packet(link, from, header, &crate::port::gather(head, body), lent)
    }

    /// Handles the end of an operation that a protocol posted through [`Out`]. The operation may end after its peer has
    /// ended.
    ///
    /// # Errors
    /// The operation's peer has failed.
    fn completed<L: Lent>(&mut self, link: &mut Link, done: Done, lent: &mut L) -> Result<(), Fault>;

    /// Handles a notified put. Returns false if no protocol expects it.
    fn notified(&mut self, _: &mut Link, _immediate: u64) -> bool {
        false
    }

    /// Notes the port's capabilities for a peer. The link calls this when it has resolved the peer's address to a path.
    fn path_resolved(&mut self, link: &mut Link, peer: Peer, caps: &Caps);

    /// Ends the operations with a peer. See [`Ending`].
    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>);

    /// Ends the operations that need a path to a peer, because the port or the peer has no room for another connection.
    /// The peer has not failed, and later operations may get a path. `what` is the resource that ran out, and `hint`
    /// the remedy.
    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str);

    /// Handles a deadline that has passed. The stack ends the request if `due` is still the request's deadline, and
    /// otherwise does nothing. [`RequestId::protocol`] returns the protocol of the request. `busy` is true while polls
    /// still bring events: the message for the request may be among the next ones, and then the protocol can answer
    /// [`Expiry::Later`] instead of ending the request.
    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry;

    /// Sends the next packet that `protocol` has queued for a peer. When the queue is empty, the protocol must say so
    /// by [`Link::clear_queued`].
    ///
    /// # Errors
    /// The errors of the port: the peer has failed.
    fn next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        protocol: Protocol,
    ) -> Result<Turn, PortError>;

    /// Sends bytes of long messages to a peer, as many as the port has room for. Returns [`Post::Again`] if bytes
    /// remain that must be sent later: the port has no room for them, or their buffers are not lent.
    ///
    /// # Errors
    /// The errors of the port: the peer has failed.
    fn bulk<P: Port, L: Lent>(
        &mut self,
        _: &mut Out<'_, P>,
        _to: Peer,
        _: &mut L,
    ) -> Result<Post, PortError> {
        Ok(Post::Done)
    }

    /// Returns the number of pieces of work that wait for [`Stack::drive`].
    fn backlog(&self) -> usize {
        0
    }

    /// Does at most `pieces` pieces of the waiting work, and subtracts 1 from `pieces` for each of them, also for a
    /// piece that fails. Sets `pieces` to 0 if no work is left. The engine calls this until `pieces` is 0, also after
    /// an error.
    ///
    /// # Errors
    /// A peer has failed.
    fn drive<P: Port, L: Lent>(
        &mut self,
        _: &mut Out<'_, P>,
        pieces: &mut usize,
        _: &mut L,
    ) -> Result<(), Fault> {
        *pieces = 0;
        Ok(())
    }

    /// Returns true while a protocol of the stack has messages for the peer that must be sent before the goodbye. If
    /// the port has no room for the peer, the link tries again as long as this is true.
    fn has_data_for(&self, _peer: Peer) -> bool {
        false
    }

    /// Ends the operations that would need to send more packets to a peer. The goodbye to the peer has just been sent,
    /// and the peer ignores every packet after it.
    fn said_goodbye(&mut self, _: &mut Link, _peer: Peer) {}
}

/// The way in which a peer ends, or later news about its end.
#[derive(Clone, Copy, Debug)]
pub enum Ending<'a> {
    /// The peer said goodbye. Messages that have arrived whole can still be received; operations that wait for the peer
    /// end.
    Left,
    /// The peer failed. Operations that wait for the peer end.
    Failed(&'a Cause),
    /// The peer failed after its goodbye. The operations that waited for the peer ended already, at the goodbye; the
    /// messages that it sent before can still be received.
    FailedAfterGoodbye(&'a Cause),
    /// The peer failed earlier, and the launcher has now reported why.
    Explained(&'a Cause),
    /// A later incarnation of the rank is about to take part. If the former incarnation failed, drop the messages that
    /// it sent, so that no receive takes one of them for a message of the later incarnation.
    Renewed {
        /// True if the former incarnation failed, false if it left.
        has_failed: bool,
    },
    /// The first incarnation of the rank that this link knows is not the rank's first one. So earlier incarnations have
    /// ended with which this process had no contact. The peer takes part.
    Unmet,
}

/// A protocol's report that a peer has failed.
#[derive(Debug)]
pub struct Fault {
    /// The peer.
    pub peer: Peer,
    /// The cause. Boxed, so that the results of handlers stay small: faults are rare.
    pub cause: Box<Cause>,
}

impl Fault {
    /// Returns the report that `peer` has failed for this cause.
    #[cold]
    #[must_use]
    pub fn new(peer: Peer, cause: impl Into<Box<Cause>>) -> Self {
        Self { peer, cause: cause.into() }
    }
}

/// The completion of an operation that a protocol has posted to the port.
#[derive(Clone, Debug)]
pub struct Done {
    /// The protocol that posted it.
    pub protocol: Protocol,
    /// The number by which the protocol knows the operation.
    pub key: u64,
    /// The result of the operation.
    pub result: Result<(), Failure>,
}

/// The result of a protocol's turn to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A packet was sent.
    Sent,
    /// Nothing was sent. The protocol must have taken something off its queue, for example a request that had ended, or
    /// have called [`Link::clear_queued`]. Otherwise the engine would repeat the same turn without end.
    Skipped,
    /// The port has no room. The protocol keeps the packet, and the link gives it another turn later.
    NoRoom,
    /// The peer must grant credit before the protocol can send more to it. The link asks the peer, and gives the
    /// protocol another turn when credit arrives.
    NoCredit,
    /// The peer must first answer a packet that the protocol has sent. When the answer arrives, the protocol lists the
    /// peer again ([`Link::list`]).
    NoAnswer,
}

impl From<Post> for Turn {
    fn from(post: Post) -> Self {
        match post {
            Post::Done | Post::Over => Self::Sent,
            Post::Again => Self::NoRoom,
        }
    }
}

/// The result of [`Stack::expired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The deadline is handled.
    Done,
    /// The engine calls [`Stack::expired`] with this deadline again at the next poll.
    Later,
}

/// An incarnation of a peer that this rank considers failed by its own judgement, although its process may be alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The rank of the peer.
    pub rank: WorldRank,
    /// The incarnation of the peer.
    pub incarnation: u32,
    /// The cause: [`Cause::Protocol`], [`Cause::Version`], [`Cause::OutOfMemory`], [`Cause::Gap`] or
    /// [`Cause::Unreachable`].
    pub cause: Cause,
}

/// The process that an engine belongs to.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The rank of this process.
    pub rank: WorldRank,
    /// Ranks in the job.
    pub size: u32,
    /// The incarnation of this process: later, in wrapping order, than that of any earlier process with the same rank.
    /// The number of the first incarnation must be hard to guess for processes outside the job: a packet that carries
    /// it, and the right sequence number, is accepted as a packet of this rank.
    /// [`first_incarnation`] returns such a number.
    pub incarnation: u32,
    /// A secret that only the ranks of the job know. It authenticates hellos.
    pub secret: [u8; 16],
}

impl Identity {
    /// Returns the first incarnation of a rank of the job.
    #[must_use]
    pub fn first_incarnation(&self, rank: WorldRank) -> Incarnation {
        Incarnation::new(first_incarnation(&self.secret, rank))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, size, incarnation, secret: _ } = self;
        f.debug_struct("Identity")
            .field("rank", rank)
            .field("size", size)
            .field("incarnation", incarnation)
            .finish_non_exhaustive()
    }
}

/// The state that protocols share about their peers: see the [module](self).
#[derive(Debug)]
pub struct Link {
    identity: Identity,
    config: Config,
    now: Time,
    peers: Peers,
    timers: Timers,
    counters: Counters,

    // Work that events and calls leave for the next drive of the engine.
    /// True if one of the lists below, or a protocol's backlog, may have an entry.
    has_work: bool,
    /// Peers with something to send.
    senders: VecDeque<Peer>,
    /// Peers with gathered messages.
    gatherers: Vec<Peer>,
    /// Peers to which more credit should be granted.
    needs_credit: VecDeque<Peer>,
    /// Paths of peers that have ended, to be fenced.
    to_fence: Vec<PeerId>,
    /// Peers whose address has become known, to be connected to.
    contacts: Vec<(Peer, Contact)>,
    /// Regions that no request needs any more, with the leases that the next drive ends.
    retired: Vec<(Region, Lease)>,
    /// Slabs that no request needs any more, and whose registrations the next drive ends.
    retired_slabs: Vec<(Region, Registration)>,
    /// Registrations that no protocol needs any more.
    retired_registrations: Vec<Registration>,
    slabs: Slabs,
    leases: leases::Cache,
    /// The number of uses of slabs and leases so far.
    uses: u64,
    quarantine: Quarantine,

    /// True if messages may be gathered: see [`Out::gather`].
    gathers: bool,
    /// The number of bytes of all gathered messages and their items.
    gathered: u64,
    /// See [`Link::has_new_gathering`].
    has_new_gathering: bool,
    /// The time by which the engine must be polled to send gathered messages, or [`Time::NEVER`].
    gathered_due: Time,
    /// True while a packet is handled outside of the fast path. (The fast path queues no answers.)
    is_handling: bool,
    /// The number of packets that [`Engine::next_packet`] has taken since the last poll.
    taken: usize,
    /// The number of times that queued packets left, or bytes moved without an event of the port: see
    /// [`Engine::moves`].
    moves: u64,
    /// Ranks whose address the caller of the engine must provide.
    wanted: Vec<WorldRank>,
    /// Peers that this link has given up. The launcher must inform their processes. At most one entry for each
    /// incarnation.
    given_up: Vec<GivenUp>,
    /// The credit that peers hold and have not used, in bytes. The sum of this and `held` stays within
    /// [`Config::credit_max`].
    credit_out: u64,
    /// The price of the data that protocols keep for later receives. The price is the credit that the data has cost.
    held: u64,
    /// The number of other ranks that have left or failed.
    ended_peers: u32,
    /// True if the launcher reports how each rank ends.
    expects_report: bool,
    /// The launcher's report that an incarnation of a rank is dead, with the cause. It is kept while the engine
    /// receives the packets that are still in the port: see [`Engine::announce_failure`].
    announced: Option<(WorldRank, Incarnation, Cause)>,
}

impl Link {
    fn new(identity: Identity, config: Config) -> Self {
        Self {
            identity,
            config,
            now: Time::ZERO,
            peers: Peers::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            has_work: false,
            senders: VecDeque::new(),
            gatherers: Vec::new(),
            needs_credit: VecDeque::new(),
            to_fence: Vec::new(),
            contacts: Vec::new(),
            retired: Vec::new(),
            retired_slabs: Vec::new(),
            retired_registrations: Vec::new(),
            slabs: Slabs::default(),
            leases: leases::Cache::default(),
            uses: 0,
            quarantine: Quarantine::default(),
            gathers: true,
            gathered: 0,
            has_new_gathering: false,
            gathered_due: Time::NEVER,
            is_handling: false,
            taken: 0,
            moves: 0,
            wanted: Vec::new(),
            given_up: Vec::new(),
            credit_out: 0,
            held: 0,
            ended_peers: 0,
            expects_report: false,
            announced: None,
        }
    }

    /// Returns the process that this link belongs to.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the time of the current call.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the time of the current call.
    #[inline]
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Returns the counts of events so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a packet that came too late: the operation that it concerns is over.
    pub fn note_stale(&mut self) {
        self.counters.stale += 1;
    }

    /// Notes that bytes of a long message have moved without an event of the port: see [`Engine::moves`].
    pub fn note_move(&mut self) {
        self.moves += 1;
    }

    /// Counts an attempt to post for which the port had no room.
    pub fn note_again(&mut self) {
        self.counters.again += 1;
    }

    /// Returns the peer of a rank, if the link has state for it.
    #[inline(always)]
    pub fn find(&mut self, rank: WorldRank) -> Option<Peer> {
        self.peers.find(rank)
    }

    /// Returns the peer of a rank, and creates its state if this is the first contact. The peer may have left or
    /// failed.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn find_or_meet(&mut self, rank: WorldRank) -> Result<Peer, Error> {
        self.check_rank(rank)?;
        Ok(self.peers.find(rank).unwrap_or_else(|| self.peers.meet(rank)))
    }

    /// Returns the peer of a rank, if it takes part.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    #[inline(always)]
    pub fn live_peer(&mut self, rank: WorldRank) -> Result<Peer, Error> {
        let peer = match self.peers.find(rank) {
            Some(peer) => peer,
            None => self.find_or_meet(rank)?,
        };
        if self.peers[peer].is_alive() {
            return Ok(peer);
        }
        let cause = self.peers[peer].failure().unwrap_or(Cause::Lost);
        Err(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Checks that the job has such a rank.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn check_rank(&self, rank: WorldRank) -> Result<(), Error> {
        if rank.0 < self.identity.size { Ok(()) } else { Err(self.invalid_rank(rank)) }
    }

    /// Returns the error of a call that names a rank which the job does not have.
    #[cold]
    #[must_use]
    pub fn invalid_rank(&self, rank: WorldRank) -> Error {
        Error::InvalidRank { rank, size: self.identity.size }
    }

    /// Returns the state of a peer.
    #[inline(always)]
    #[must_use]
    pub fn peer(&self, peer: Peer) -> &PeerState {
        &self.peers[peer]
    }

    /// Returns the state of a peer for changes, to account for sent data.
    #[inline(always)]
    pub fn peer_mut(&mut self, peer: Peer) -> &mut PeerState {
        &mut self.peers[peer]
    }

    /// Iterates over the peers met so far.
    pub fn peers(&self) -> impl Iterator<Item = (Peer, &PeerState)> {
        self.peers.iter()
    }

    /// Iterates over the states of the peers met so far, for changes.
    pub fn peers_mut(&mut self) -> impl Iterator<Item = &mut PeerState> {
        self.peers.iter_mut()
    }

    /// Notes that a protocol has work for [`Stack::drive`]. The next drive of the engine then calls it.
    #[inline]
    pub fn defer(&mut self) {
        self.has_work = true;
    }

    /// Returns true if a drive of the engine would find something to do.
    #[inline(always)]
    #[must_use]
    pub fn has_work(&self) -> bool {
        // Every poll calls this. `|` instead of `||` avoids a branch.
        self.has_work | (self.timers.next() <= self.now)
    }

    /// Returns true if [`Engine::next_packet`] may be called again before the next poll.
    #[inline]
    #[must_use]
    pub fn may_take(&self) -> bool {
        self.taken < TAKEN_MAX
    }

    /// Puts a peer in the list of peers with something to send, unless it is there already. The next drive sends to it.
    pub fn list(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        if !state.listed {
            state.listed = true;
            self.senders.push_back(peer);
            self.has_work = true;
        }
    }

    /// Notes that a protocol has queued packets for a peer. When the peer is served, [`Stack::next`] is called for this
    /// protocol. The caller must also [list](Link::list) or [flush](Engine::flush) the peer.
    pub fn set_queued(&mut self, peer: Peer, protocol: Protocol) {
        self.peers[peer].queued.insert(protocol);
    }

    /// Notes that a protocol has nothing queued for a peer any more.
    pub fn clear_queued(&mut self, peer: Peer, protocol: Protocol) {
        self.peers[peer].queued.remove(protocol);
    }

    /// Queues a short packet to a peer. It is sent before the packets in the protocols' queues. The path must be able
    /// to take its header and `body` in one packet: a longer one ends the peer.
    ///
    /// The packet counts as an answer if it is queued while a packet from a peer is handled. A peer for which more than
    /// [`Config::answers_max`] answers wait fails. When a peer says goodbye, the packets that still wait are dropped. A
    /// packet to a peer that has ended is dropped at once: it would never leave, and a goodbye would wait for it.
    pub fn answer(&mut self, peer: Peer, protocol: Protocol, kind: u8, body: &[u8]) {
        if !self.peers[peer].is_alive() {
            return;
        }
        let (flags, is_answer) = (Flags::empty(), self.is_handling);
        self.enqueue(peer, Packet { protocol, kind, flags, is_answer, body: body.into() });
    }

    /// Returns the flags for a *question*: a packet that the peer answers, now or later. The flags of some questions
    /// request an acknowledgement ([`Flags::URGENT`]). Returns `None` if the question must wait, because the peer has
    /// not acknowledged [`Config::questions_max`] packets or more, and a requested acknowledgement has not arrived. The
    /// protocol then returns [`Turn::NoAnswer`], and gets another turn when that acknowledgement arrives.
    ///
    /// Without this limit the answers of a peer would fill its memory while this side sends questions and receives
    /// nothing, and the peer would have to end the connection ([`Config::answers_max`]).
    ///
    /// When the port has accepted the packet, call [`PeerState::sent_question`] instead of [`PeerState::sent`].
    #[inline]
    pub fn flags_of_question(&mut self, peer: Peer) -> Option<Flags> {
        self.peers[peer].flags_of_question(self.config.questions_max)
    }

    fn enqueue(&mut self, peer: Peer, packet: Packet) {
        self.peers[peer].packets.push_back(packet);
        self.list(peer);
    }

    /// Asks the caller of the engine for the address of a peer ([`Engine::wanted`]), unless the address is known or was
    /// requested before.
    pub fn seek(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        if state.path.is_none() && !std::mem::replace(&mut state.sought, true) {
            self.wanted.push(state.rank);
        }
    }

    /// Takes `price` bytes from the credit of a peer that sent data. If the peer has little credit left, the next drive
    /// grants more.
    ///
    /// # Errors
    /// The peer has sent more data than its credit allowed.
    #[inline(always)]
    pub fn charge(&mut self, peer: Peer, price: u32) -> Result<(), WireError> {
        let state = &mut self.peers[peer];
        if !state.grant.charge(price) {
            return Err(WireError::Value { field: "credit" });
        }
        self.credit_out -= u64::from(price);
        if state.grant.runs_short() {
            self.list_for_credit(peer);
        }
        Ok(())
    }

    /// Accounts for data that a protocol keeps until a receive takes it. The data was [charged](Link::charge) when it
    /// arrived. As long as it is kept, its price counts against the budget for credit and cannot be granted to any
    /// peer.
    #[inline]
    pub fn hold(&mut self, price: u32) {
        self.held += u64::from(price);
    }

    /// Gives back the price of data that was [held](Link::hold).
    #[inline]
    pub fn release(&mut self, price: u64) {
        self.held -= price;
    }

    /// Returns the price of all data that is held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the credit that peers hold and have not used.
    #[must_use]
    pub fn credit_out(&self) -> u64 {
        self.credit_out
    }

    /// Sets the deadline of a request. [`Stack::expired`] is called at that time, or never if it is [`Time::NEVER`]. A
    /// request that ends early leaves its deadline in the link's list of timers. To drop such deadlines, this call may
    /// ask `is_current` about every deadline of the same protocol: `is_current` returns true if the time is still the
    /// deadline of the request.
    pub fn set_deadline(
        &mut self,
        request: RequestId,
        due: Time,
        is_current: impl Fn(RequestId, Time) -> bool,
    ) {
        self.timers.set_deadline(request, due, is_current);
    }

    /// Returns the number of timers, including void ones, for example the deadlines of requests that have already
    /// ended.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Takes memory that no request needs any more. The next drive ends its lease.
    pub fn retire(&mut self, region: Region, lease: Lease) {
        self.retired.push((region, lease));
        self.has_work = true;
    }

    /// Takes a registration that no protocol needs any more, of memory that peers may access. The next drive ends it,
    /// after it has cut off the paths of peers that have ended: their operations may still be under way.
    pub fn retire_registration(&mut self, registration: Registration) {
        self.retired_registrations.push(registration);
        self.has_work = true;
    }

    /// Returns the memory of a region that was deregistered. If the port still holds the region, returns `None`, and
    /// keeps the memory until the port has released it.
    pub fn reclaim(&mut self, region: Region) -> Option<crate::Memory> {
        self.quarantine.reclaim(region)
    }

    /// Returns true if an operation that accesses memory of this side may be posted. `fence` is true if the port can
    /// fence off the peer of the operation. Without a fence, if the peer fails, the port keeps the memory until the
    /// operation has ended, perhaps for ever. So the answer is then false while ports keep too many bytes in this way
    /// ([`Config::quarantine_max`]).
    #[inline]
    #[must_use]
    pub fn may_use_memory(&self, fence: bool) -> bool {
        fence || self.quarantine.bytes() < self.config.quarantine_max
    }

    /// Returns the number of regions, since the start, that a port still held when their operation was over. The second
    /// number is the number of bytes that ports hold in this way now.
    #[must_use]
    pub fn quarantined(&self) -> (u64, u64) {
        (self.quarantine.count, self.quarantine.bytes())
    }

    /// Builds the header of the next packet to a peer.
    #[inline(always)]
    #[must_use]
    pub fn header(&self, peer: Peer, protocol: Protocol, kind: u8, flags: Flags, context: u32) -> Header {
        let state = &self.peers[peer];
        let numbers = Numbers {
            sender: state.number,
            incarnation: self.identity.incarnation,
            sequence: state.sequence.get(),
            ack: state.expected.get(),
            grant: state.grant.given(),
            // The incarnation is known here: packets are sent only after the peer's address has arrived, and the
            // incarnation arrives with the address.
            to: state.incarnation.map_or(0, Incarnation::low),
            context,
        };
        Header::with(protocol, kind, flags, numbers)
    }

    /// Puts a peer in the list of peers to which the next drive grants credit.
    fn list_for_credit(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        if !state.needs_credit {
            state.needs_credit = true;
            self.needs_credit.push_back(peer);
            self.has_work = true;
        }
    }
}

/// A port and its link. Calls and drives of the engine get both, so they can post; handlers of events get the link
/// alone.
#[derive(Debug)]
pub struct Out<'a, P> {
    /// The port.
    pub port: &'a mut P,
    /// The link.
    pub link: &'a mut Link,
}

impl<P: Port> Out<'_, P> {
    /// Sends a packet to a peer. If the port accepts it, the next packet to the peer has the next sequence number.
    /// `head` begins with the header that [`Link::header`] built.
    ///
    /// # Errors
    /// [`PortError::PeerGone`] if the peer has no path; the errors of [`Port::send`].
    #[inline(always)]
    pub fn send(&mut self, to: Peer, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        let Some(path) = self.link.peers[to].path else { return Err(PortError::PeerGone(PeerId(u32::MAX))) };
        let post = self.port.send_body(path, head, body);
        if matches!(post, Ok(Post::Done)) {
            self.link.peers[to].sent();
        }
        post
    }

    /// Sends a short packet to a peer before the operations that the caller posts next, if the port has room and no
    /// other packet waits for the peer. Otherwise queues it, as [`Link::answer`] does.
    pub fn answer(&mut self, to: Peer, protocol: Protocol, kind: u8, body: &[u8]) {
        let state = &self.link.peers[to];
        if state.has_answered() && state.has_no_packets_queued() {
            let header = self.link.header(to, protocol, kind, Flags::empty(), 0);
            // An error recurs when the queue is flushed, and is handled then.
            if matches!(self.send(to, header.as_bytes(), body), Ok(Post::Done)) {
                return;
            }
        }
        self.link.answer(to, protocol, kind, body);
    }

    /// Posts a get. Unless the get ends within the call ([`Post::Over`]), its end is reported to [`Stack::completed`]
    /// with the same `key`, which has at most 60 bits.
    ///
    /// # Errors
    /// Returns the errors of [`Port::get`].
    pub fn get(
        &mut self,
        path: PeerId,
        into: Local,
        from: Remote,
        by: Protocol,
        key: u64,
    ) -> Result<Post, PortError> {
        self.port.get(path, into, from, operation(by, key))
    }

    /// Posts a put. Unless the put ends within the call ([`Post::Over`]), its end is reported to [`Stack::completed`]
    /// with the same `key`, which has at most 60 bits.
    ///
    /// # Errors
    /// Returns the errors of [`Port::put`].
    pub fn put(
        &mut self,
        path: PeerId,
        from: Local,
        into: Remote,
        by: Protocol,
        key: u64,
    ) -> Result<Post, PortError> {
        self.port.put(path, from, into, operation(by, key))
    }
}

/// Returns the name of an operation for the port: the protocol's number in the high four bits, and the protocol's own
/// key in the low 60.
fn operation(by: Protocol, key: u64) -> OpId {
    debug_assert!(key >> KEY_BITS == 0, "the key has {KEY_BITS} bits");
    OpId((by as u64) << KEY_BITS | key)
}

const KEY_BITS: u32 = 60;

/// The number of packets that [`Engine::next_packet`] may take between two polls. It may take all of them from one
/// peer, so without a limit a peer that never pauses would keep all others waiting.
const TAKEN_MAX: usize = 1024;

/// Kinds of packets of [`Protocol::Control`].
pub mod control {
    /// The first packet to a peer: see [`Hello`](super::Hello).
    pub const HELLO: u8 = 0;
    /// A packet without a body. Its header carries an acknowledgement and credit.
    pub const CREDIT: u8 = 1;
    /// The goodbye: the sender leaves, and sends no packet after this one.
    pub const BYE: u8 = 2;
}

/// The body of the first packet to a peer. The packet has sequence number 0 and is repeated until a packet acknowledges
/// it. The sender's address follows in the packet, `address_len` bytes. The type has no `Debug`, so that no log can
/// contain the secret.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// The job's secret, which only the ranks of the job know.
    pub secret: [u8; 16],
    /// The incarnation that the sender means to reach, or 0 if the sender does not know it.
    pub to_incarnation: U32,
    /// The number that the sender has given to the receiver: the receiver puts it in the field `sender` of the header
    /// of each packet that it sends back, except for hellos.
    pub number: U32,
    /// Bytes of the address.
    pub address_len: U16,
    /// Zero.
    pub reserved: [u8; 2],
}

const _: () = assert!(size_of::<Hello>() == 28 && std::mem::offset_of!(Hello, secret) == 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the layout that the version number identifies: if it must change, so must
    /// [`VERSION`](crate::wire::VERSION).
    #[test]
    fn version_6_is_laid_out_like_this() {
        assert_eq!(crate::wire::VERSION, 6);
        assert_eq!([control::HELLO, control::CREDIT, control::BYE], [0, 1, 2]);
        let to_incarnation = [16, 17, 18, 19].into();
        let secret = std::array::from_fn(|index| index as u8);
        let (number, address_len, reserved) = ([20, 21, 22, 23].into(), [24, 25].into(), [26, 27]);
        let hello = Hello { secret, to_incarnation, number, address_len, reserved };
        assert_eq!(hello.as_bytes(), (0..28).collect::<Vec<u8>>());
    }

    #[test]
    fn an_operation_is_named_by_its_protocol_and_its_key() {
        let names = [(Protocol::P2p, 0), (Protocol::Rma, 0), (Protocol::Rma, (1 << KEY_BITS) - 1)];
        assert_eq!(names.map(|(by, key)| operation(by, key).0 >> KEY_BITS), [1, 2, 2]);
        assert_eq!(names.map(|(by, key)| operation(by, key).0 << 4 >> 4), names.map(|(_, key)| key));
    }
}
