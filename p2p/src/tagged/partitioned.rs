//! Partitioned communication (MPI 4.1, chapter 4): a send and a receive are initialized once. In each round a message
//! travels from one to the other in partitions, each when the sender marks it as ready.
//!
//! ```text
//!  sender                                       receiver
//!  PART_INIT tag, length, partitions ─────────▶ matched in order with a receive, or kept within a budget
//!                  ◀─ PART_ACCEPT name, length  if the lengths differ, both halves end
//!
//!                  ◀───────── PART_START round  the receiver has begun a round: its memory is ready
//!  PART_DATA round, offset, bytes ────────────▶ … for marked partitions, in any order, until all have arrived
//!
//!  ◀── PART_END, in either direction ─────────▶ the half of the packet's sender has ended, or was dropped
//! ```
//! The two *halves* of a pair are matched by context, rank and tag, in the order of their initialization, and never
//! match ordinary messages. PART_START shows that the receiver has memory for the whole round, so data needs no credit.
//!
//! A sender sends all bytes of a run of neighbouring partitions before it begins another run. So the receiver needs
//! little state to detect a byte that arrives twice: one bit for each of the sender's partitions, and, if the last
//! packet ended within a partition, the offset of the next byte.
//!
//! A round that ends with an error ends its pair: each later round returns the same error. The receiver keeps the
//! partitions that had arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use samite_fabric::layout::Signature;
use samite_fabric::link::{
    Awaited, Cause, Error, Fate, Link, Out, Peer, RequestId, Status, Time, Turn, WorldRank,
};
use samite_fabric::mem::{Marked, PartitionsMut};
use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Body, Port, PortError, Post};
use samite_matching::{Pattern, Source};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::{Queues, Tagged};
use crate::config::OVERHEAD;
use crate::request::{Buffer, Partner, Request, State};
use crate::signatures::Typed;
use crate::wire::{PartAccept, PartData, PartEnd, PartInit, PartStart, kind};

/// The name of a half in its engine. No two halves of an engine have the same name, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionedId(u64);

/// The halves of this rank, and initializations from other ranks that wait for a receive of this rank.
#[derive(Debug, Default)]
pub(crate) struct Partitioned {
    halves: BTreeMap<PartitionedId, Half>,
    /// Receives that wait for the initialization of a send.
    receives: BTreeMap<Waiting, Posted>,
    /// Initializations that wait for a receive. For any envelope only one of the maps `receives` and `inits` has
    /// entries, because a new receive is matched with the first waiting initialization, and a new initialization with
    /// the first waiting receive.
    inits: BTreeMap<Waiting, Init>,
    /// Initializations that wait for a receive, and receives that were matched with an initialization, by the sender
    /// and the sender's name for its half.
    senders: BTreeMap<(Peer, u64), Met>,
    /// Sends whose round is under way.
    sending: BTreeSet<PartitionedId>,
    /// The last number that was given to a half or to a waiting initialization.
    last: u64,
}

/// The key of a waiting half or initialization: context, source, tag, and a number that is larger for each later entry.
type Waiting = (u32, WorldRank, u64, u64);

/// The initialization of a send of another rank that waits for a receive of this rank.
#[derive(Clone, Copy, Debug)]
struct Init {
    sender: Peer,
    send: u64,
    bytes: usize,
    partitions: usize,
    signature: Signature,
    /// True if the send has ended. The entry stays, because sends and receives are paired in order: the receive with
    /// which the send is paired later ends as soon as that receive is initialized.
    has_ended: bool,
}

/// An entry in the ordered map of receives that wait for an initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Half(PartitionedId),
    /// This number of receives that ended before their sends were announced. Each of these receives is paired with a
    /// later initialization, and then the send of that initialization ends.
    Ended(u64),
}

/// The half of another rank's send, as this rank knows it: its initialization waits for a receive, or is paired with
/// one.
#[derive(Clone, Copy, Debug)]
enum Met {
    Waiting(Waiting),
    Half(PartitionedId),
}

/// One side of a pair.
#[derive(Debug)]
struct Half {
    peer: Peer,
    context: u32,
    tag: u64,
    bytes: usize,
    /// The other half's name, once known.
    theirs: Option<u64>,
    /// The number of rounds that have begun.
    rounds: u64,
    /// The request of the latest round, until the request has ended.
    round: Option<RequestId>,
    /// The error of the pair, after which no round can begin. `None` while the pair exists.
    ended: Option<Error>,
    /// True if the user has dropped this send. It is kept until its PART_INIT has been sent.
    is_dropped: bool,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Send {
        partitions: usize,
        signature: Signature,
        is_announced: bool,
        /// True if the send has ended before its PART_INIT was sent. Then both PART_INIT and PART_END must still be
        /// sent, because the receiver pairs sends and receives in order.
        owes_end: bool,
        /// True while the send is in the queue of its peer.
        is_queued: bool,
        /// The number of rounds that the receiver has begun.
        cleared: u64,
        flow: Option<Outflow>,
    },
    Receive {
        waits_at: Option<Waiting>,
        /// The types of the receive, if the types of the send must agree with them.
        typed: Option<Typed>,
        /// Bytes of one of the sender's partitions.
        part_len: usize,
        /// A bit for each of the sender's partitions, which is set when its first bytes arrive in this round.
        begun: Vec<u64>,
        /// The number of missing bytes of each of the receiver's partitions.
        missing: Vec<usize>,
        flow: Option<Inflow>,
    },
}

/// A round of a send.
#[derive(Debug)]
struct Outflow {
    marked: Marked,
    /// The bytes of the present run of marked partitions that are still to be sent.
    run: Range<usize>,
    /// The number of partitions that were not seen to be marked yet.
    unmarked: usize,
    /// The number of bytes that are still to be sent.
    left: usize,
}

/// A round of a receive.
#[derive(Debug)]
struct Inflow {
    memory: PartitionsMut,
    /// The offset at which the next bytes must start, if the last packet ended within a partition.
    next: Option<usize>,
    /// The number of bytes that have not arrived.
    left: usize,
}

impl Partitioned {
    /// Returns the number of halves, and the number of waiting initializations.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.halves.len(), self.inits.len())
    }

    /// Returns the number of bytes of a round, and the event that the round awaits.
    pub(crate) fn awaited(&self, id: PartitionedId) -> (usize, Awaited) {
        let Some(half) = self.halves.get(&id) else { return (0, Awaited::Match) };
        let awaited = match &half.side {
            Side::Send { cleared, .. } if half.theirs.is_none() || *cleared < half.rounds => Awaited::Match,
            Side::Send { flow: Some(flow), .. } if flow.run.is_empty() && flow.unmarked > 0 => Awaited::Marks,
            Side::Send { .. } => Awaited::Room,
            Side::Receive { .. } if half.theirs.is_none() => Awaited::Message,
            Side::Receive { .. } => Awaited::Bytes,
        };
        (half.bytes, awaited)
    }

    /// Returns the error with which a half has ended, or `None` if it has not ended.
    pub(crate) fn end(&self, id: PartitionedId) -> Option<Error> {
        self.halves.get(&id)?.ended.clone()
    }

    fn insert(&mut self, half: Half) -> PartitionedId {
        self.last += 1;
        let id = PartitionedId(self.last);
        self.halves.insert(id, half);
        id
    }

    /// Returns the half with this name if it belongs to a pair with the peer and has not ended. Otherwise the packet
    /// that names it is counted as stale.
    fn answered(&mut self, link: &mut Link, peer: Peer, name: u64) -> Option<(PartitionedId, &mut Half)> {
        let id = PartitionedId(name);
        let half = self.halves.get_mut(&id).filter(|half| half.peer == peer && half.ended.is_none());
        if half.is_none() {
            link.note_stale();
        }
        half.map(|half| (id, half))
    }
}

/// Calls of the user.
impl Tagged {
    /// Initializes a send, and queues its PART_INIT.
    pub(crate) fn psend_init(
        &mut self,
        link: &mut Link,
        peer: Peer,
        (context, tag): (u32, u64),
        bytes: usize,
        (partitions, signature): (usize, Signature),
    ) -> PartitionedId {
        let (is_announced, owes_end, is_queued, cleared, flow) = (false, false, false, 0, None);
        let side = Side::Send { partitions, signature, is_announced, owes_end, is_queued, cleared, flow };
        let id = self.partitioned.insert(Half::new(peer, context, tag, bytes, side));
        self.queues(peer).inits.push_back(id);
        self.note_queue(link, peer);
        id
    }

    /// Initializes a receive.
    pub(crate) fn precv_init(
        &mut self,
        link: &mut Link,
        peer: Peer,
        (context, tag): (u32, u64),
        bytes: usize,
        typed: Option<Typed>,
    ) -> Result<PartitionedId, Error> {
        let source = link.peer(peer).rank();
        let (waits_at, begun, missing) = (None, Vec::new(), Vec::new());
        let side = Side::Receive { waits_at, typed, part_len: 0, begun, missing, flow: None };
        let half = Half::new(peer, context, tag, bytes, side);
        if let Some((&place, &init)) = first_of(&self.partitioned.inits, context, source, tag) {
            self.partitioned.inits.remove(&place);
            self.release_envelope(link);
            let id = self.partitioned.insert(half);
            self.pair(link, id, init);
            return Ok(id);
        }
        let pattern = Pattern { context, source: Source::rank(source.0), tag, mask: !0 };
        if let Some(failure) = self.source_failure(link, &pattern) {
            return Err(failure);
        }
        let id = self.partitioned.insert(half);
        let place = (context, source, tag, id.0);
        self.partitioned.receives.insert(place, Posted::Half(id));
        if let Some(Half { side: Side::Receive { waits_at, .. }, .. }) = self.partitioned.halves.get_mut(&id)
        {
            *waits_at = Some(place);
        }
        Ok(id)
    }

    /// Begins a round of a send. Returns its request.
    pub(crate) fn start_psend(
        &mut self,
        link: &mut Link,
        id: PartitionedId,
        marked: Marked,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let request = self.begin_round(link, id, true, deadline)?;
        let Some(half) = self.partitioned.halves.get_mut(&id) else { no_half(id) };
        let Side::Send { partitions, flow, cleared, .. } = &mut half.side else { no_half(id) };
        assert!(
            marked.total() == half.bytes && marked.partitions() == *partitions,
            "other memory than announced"
        );
        *flow = Some(Outflow { marked, run: 0..0, unmarked: *partitions, left: half.bytes });
        let (peer, is_cleared) = (half.peer, *cleared == half.rounds);
        self.partitioned.sending.insert(id);
        if is_cleared {
            self.queue_partitions(link, peer, id);
        }
        Ok(request)
    }

    /// Begins a round of a receive. Returns its request.
    pub(crate) fn start_precv(
        &mut self,
        link: &mut Link,
        id: PartitionedId,
        memory: PartitionsMut,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let request = self.begin_round(link, id, false, deadline)?;
        let Some(half) = self.partitioned.halves.get_mut(&id) else { no_half(id) };
        let Side::Receive { begun, missing, flow, .. } = &mut half.side else { no_half(id) };
        assert_eq!(memory.total(), half.bytes, "other memory than initialized");
        begun.fill(0);
        missing.clear();
        missing.resize(memory.partitions(), half.bytes / memory.partitions());
        *flow = Some(Inflow { memory, next: None, left: half.bytes });
        let (peer, round) = (half.peer, half.rounds);
        if let Some(send) = half.theirs {
            let start = PartStart { send: send.into(), round: round.into() };
            self.answer(link, peer, kind::PART_START, &start);
        }
        Ok(request)
    }

    fn begin_round(
        &mut self,
        link: &mut Link,
        id: PartitionedId,
        sends: bool,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let Some(half) = self.partitioned.halves.get_mut(&id) else { return Err(Error::NoSuchRequest) };
        if let Some(error) = &half.ended {
            return Err(error.clone());
        }
        assert!(half.round.is_none(), "a round begins when the one before it has ended");
        half.rounds += 1;
        let rank = link.peer(half.peer).rank();
        let state = State::Partitioned { half: id, sends };
        let (partner, context, tag) = (Partner::Rank(rank), half.context, half.tag);
        let request = Request::new(state, Buffer::Gone, partner, context, tag, link.now());
        let request = self.requests.insert(request);
        half.round = Some(request);
        self.set_deadline(link, request, deadline);
        Ok(request)
    }

    /// Returns the number of sends whose round is under way.
    pub(crate) fn sending(&self) -> usize {
        self.partitioned.sending.len()
    }

    /// Queues the partitions that were marked since the last call. Returns true if partitions were marked that cannot
    /// be sent yet, because their receiver's PART_START has not arrived.
    pub(crate) fn harvest(&mut self, link: &mut Link) -> bool {
        let mut has_waiting = false;
        let mut fresh = Vec::new();
        for id in &self.partitioned.sending {
            let Some(half) = self.partitioned.halves.get_mut(id) else { no_half(*id) };
            let Side::Send { cleared, flow: Some(flow), .. } = &mut half.side else { no_half(*id) };
            if flow.marked.has_news() {
                match *cleared == half.rounds {
                    true => fresh.push((half.peer, *id)),
                    false => has_waiting = true,
                }
            }
        }
        for (peer, id) in fresh {
            self.queue_partitions(link, peer, id);
        }
        has_waiting
    }

    /// Removes a half, and cancels its round if one is under way. A send that was not announced yet is removed later,
    /// when its PART_INIT and PART_END were sent. The engine does not use the memory of the half afterwards.
    pub(crate) fn free_half(&mut self, link: &mut Link, id: PartitionedId) {
        self.end_half(link, id, Error::Cancelled { fate: Fate::NotDelivered }, true);
        match self.partitioned.halves.get_mut(&id) {
            Some(half) if half.owes_end() => half.is_dropped = true,
            _ => _ = self.partitioned.halves.remove(&id),
        }
    }
}

/// Sending.
impl Tagged {
    /// Sends the PART_INIT of a send, even if the send has ended: the other side pairs sends and receives in order, and
    /// would otherwise pair the next send with the wrong receive.
    pub(super) fn announce<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        peer: Peer,
        id: PartitionedId,
    ) -> Result<Turn, PortError> {
        let Some(half) = self.partitioned.halves.get_mut(&id) else { return Ok(Turn::Skipped) };
        let Side::Send { partitions, signature, is_announced, owes_end, .. } = &mut half.side else {
            no_half(id)
        };
        if half.ended.is_some() && !*owes_end {
            return Ok(Turn::Skipped);
        }
        let init = PartInit {
            tag: half.tag.into(),
            send: id.0.into(),
            len: (half.bytes as u64).into(),
            partitions: (*partitions as u64).into(),
            signature: signature.digest(),
            reserved: [0; 2],
        };
        let Some(flags) = out.link.flags_of_question(peer) else { return Ok(Turn::NoAnswer) };
        let Some(path) = out.link.peer(peer).path() else { return Ok(Turn::NoRoom) };
        let header = out.link.header(peer, Protocol::P2p, kind::PART_INIT, flags, half.context);
        let post = out.port.send(path, header.as_bytes(), init.as_bytes())?;
        if post == Post::Done {
            out.link.peer_mut(peer).sent_question(flags);
        }
        *is_announced |= post == Post::Done;
        if post == Post::Done && std::mem::take(owes_end) {
            if half.is_dropped {
                self.partitioned.halves.remove(&id);
            }
            self.answer(out.link, peer, kind::PART_END, &PartEnd::of_sender(id.0));
        }
        Ok(post.into())
    }

    fn queue_partitions(&mut self, link: &mut Link, peer: Peer, id: PartitionedId) {
        let Some(Half { side: Side::Send { is_queued, .. }, .. }) = self.partitioned.halves.get_mut(&id)
        else {
            return;
        };
        if !std::mem::replace(is_queued, true) {
            self.queues(peer).partitioned.push_back(id);
            link.list(peer);
        }
    }

    /// Sends the marked partitions of the queued sends to one peer. Returns `Again` if the port has no room for all.
    pub(super) fn push_partitions<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        peer: Peer,
    ) -> Result<Post, PortError> {
        loop {
            let Some(Queues { partitioned, limits: Some(limits), .. }) = self.queues.get_mut(peer.index())
            else {
                return Ok(Post::Done);
            };
            let Some(&id) = partitioned.front() else { return Ok(Post::Done) };
            let data_max = limits.part_max;
            if self.send_partitions(out, id, data_max)? == Post::Again {
                out.link.note_again();
                return Ok(Post::Again);
            }
            self.queues(peer).partitioned.pop_front();
            if let Some(Half { side: Side::Send { is_queued, .. }, .. }) =
                self.partitioned.halves.get_mut(&id)
            {
                *is_queued = false;
            }
        }
    }

    /// Sends the marked partitions of one send.
    fn send_partitions<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        id: PartitionedId,
        data_max: usize,
    ) -> Result<Post, PortError> {
        let Some(half) = self.partitioned.halves.get_mut(&id) else { return Ok(Post::Done) };
        let (Side::Send { flow: Some(flow), .. }, Some(recv), Some(request)) =
            (&mut half.side, half.theirs, half.round)
        else {
            return Ok(Post::Done);
        };
        loop {
            if flow.run.is_empty() {
                match flow.marked.next_run() {
                    Some(parts) => {
                        flow.unmarked -= parts.len();
                        let part_len = flow.marked.part_len();
                        flow.run = parts.start * part_len..parts.end * part_len;
                        continue;
                    }
                    // A message without bytes is one empty packet, sent when all partitions are marked.
                    None if half.bytes == 0 && flow.unmarked == 0 => {}
                    None => return Ok(Post::Done),
                }
            }
            let (start, end) = (flow.run.start, flow.run.end.min(flow.run.start + data_max));
            let Some(bytes) = flow.marked.bytes(start..end) else {
                unreachable!("the partitions of a run are marked")
            };
            let head = PartDataHead {
                header: out.link.header(
                    half.peer,
                    Protocol::P2p,
                    kind::PART_DATA,
                    Flags::empty(),
                    half.context,
                ),
                data: PartData {
                    recv: recv.into(),
                    round: half.rounds.into(),
                    offset: (start as u64).into(),
                },
            };
            if out.send(half.peer, head.as_bytes(), bytes)? == Post::Again {
                return Ok(Post::Again);
            }
            flow.run.start = end;
            flow.left -= end - start;
            if flow.left == 0 && flow.unmarked == 0 {
                break;
            }
        }
        let status = Status { source: out.link.peer(half.peer).rank(), tag: half.tag, bytes: half.bytes };
        let traffic = out.link.peer_mut(half.peer).traffic_mut();
        traffic.rendezvous_sent += 1;
        traffic.bytes_sent += half.bytes as u64;
        half.end_round();
        self.partitioned.sending.remove(&id);
        self.finish(out.link, request, Ok(status));
        Ok(Post::Done)
    }
}

/// Receiving.
impl Tagged {
    /// Handles PART_INIT: matches it with the first waiting receive, or keeps it until such a receive is initialized.
    /// Answers with PART_END if this rank has closed the context, if that receive has ended, or if there is no room to
    /// keep it.
    pub(super) fn part_init(
        &mut self,
        link: &mut Link,
        peer: Peer,
        context: u32,
        init: &PartInit,
    ) -> Result<(), WireError> {
        let (send, tag, source) = (init.send.get(), init.tag.get(), link.peer(peer).rank());
        let invalid = |field| WireError::Value { field };
        let bytes = usize::try_from(init.len.get()).map_err(|_| invalid("length"))?;
        let partitions = usize::try_from(init.partitions.get()).map_err(|_| invalid("partitions"))?;
        if isize::try_from(bytes).is_err() {
            return Err(invalid("length"));
        }
        if partitions == 0 || !bytes.is_multiple_of(partitions) {
            return Err(invalid("partitions"));
        }
        if self.partitioned.senders.contains_key(&(peer, send)) {
            return Err(invalid("send"));
        }
        if !self.contexts.admit(link, context, tag, peer)? {
            self.tell_revoked(link, peer, context);
            self.answer(link, peer, kind::PART_END, &PartEnd::of_receiver(send, false));
            return Ok(());
        }
        let signature = Signature::from_digest(init.signature);
        let init = Init { sender: peer, send, bytes, partitions, signature, has_ended: false };
        if let Some((&place, &posted)) = first_of(&self.partitioned.receives, context, source, tag) {
            match posted {
                Posted::Half(_) | Posted::Ended(..=1) => _ = self.partitioned.receives.remove(&place),
                Posted::Ended(n) => _ = self.partitioned.receives.insert(place, Posted::Ended(n - 1)),
            }
            match posted {
                Posted::Half(id) => self.pair(link, id, init),
                Posted::Ended(_) => {
                    self.answer(link, peer, kind::PART_END, &PartEnd::of_receiver(send, false));
                }
            }
        } else if self.envelopes_cost + OVERHEAD as u64 > self.config.envelopes_max as u64 {
            self.refused += 1;
            self.answer(link, peer, kind::PART_END, &PartEnd::of_receiver(send, true));
        } else {
            self.envelopes_cost += OVERHEAD as u64;
            self.partitioned.last += 1;
            let place = (context, source, tag, self.partitioned.last);
            self.partitioned.inits.insert(place, init);
            self.partitioned.senders.insert((peer, send), Met::Waiting(place));
        }
        Ok(())
    }

    /// Makes a pair of a receive and an initialization, and answers with PART_ACCEPT. If the types of the two differ,
    /// ends the receive and answers with PART_END. If the send has ended before, ends the receive without an answer.
    fn pair(&mut self, link: &mut Link, id: PartitionedId, init: Init) {
        let Init { sender, send, bytes, partitions, signature, has_ended } = init;
        let Some(half) = self.partitioned.halves.get_mut(&id) else { no_half(id) };
        let Side::Receive { waits_at, typed, part_len, begun, .. } = &mut half.side else { no_half(id) };
        *waits_at = None;
        half.theirs = Some(send);
        let (ours, is_active, round) = (half.bytes, half.round.is_some(), half.rounds);
        let status = Status { source: link.peer(sender).rank(), tag: half.tag, bytes };
        let conflict = typed.and_then(|typed| typed.conflict(status, signature));
        if bytes == ours {
            *part_len = bytes / partitions;
            // The peer cannot make this allocation large at will: both lengths are equal here, and each partition has
            // at least one byte.
            *begun = vec![0; if bytes == 0 { 0 } else { partitions.div_ceil(64) }];
        }
        if has_ended {
            self.partitioned.senders.remove(&(sender, send));
            half.theirs = None;
            let rank = link.peer(sender).rank();
            self.end_half(link, id, Error::Abandoned { rank, fate: Fate::NotDelivered }, false);
            return;
        }
        if let Some(conflict) = conflict {
            self.partitioned.senders.remove(&(sender, send));
            half.theirs = None;
            self.answer(link, sender, kind::PART_END, &PartEnd::of_receiver(send, false));
            self.end_half(link, id, conflict, false);
            return;
        }
        self.partitioned.senders.insert((sender, send), Met::Half(id));
        let accept = PartAccept { send: send.into(), recv: id.0.into(), len: (ours as u64).into() };
        self.answer(link, sender, kind::PART_ACCEPT, &accept);
        if bytes != ours {
            let rank = link.peer(sender).rank();
            self.end_half(link, id, Error::LengthsDiffer { rank, ours, theirs: bytes }, false);
        } else if is_active {
            let start = PartStart { send: send.into(), round: round.into() };
            self.answer(link, sender, kind::PART_START, &start);
        }
    }

    pub(super) fn part_accept(
        &mut self,
        link: &mut Link,
        peer: Peer,
        accept: &PartAccept,
    ) -> Result<(), WireError> {
        let Some((id, half)) = self.partitioned.answered(link, peer, accept.send.get()) else {
            return Ok(());
        };
        let (Side::Send { is_announced: true, .. }, None) = (&half.side, half.theirs) else {
            return Err(WireError::Value { field: "send" });
        };
        half.theirs = Some(accept.recv.get());
        let (ours, theirs) = (half.bytes, accept.len.get());
        if ours as u64 != theirs {
            let (rank, theirs) = (link.peer(peer).rank(), usize::try_from(theirs).unwrap_or(usize::MAX));
            self.end_half(link, id, Error::LengthsDiffer { rank, ours, theirs }, false);
        }
        Ok(())
    }

    pub(super) fn part_start(
        &mut self,
        link: &mut Link,
        peer: Peer,
        start: &PartStart,
    ) -> Result<(), WireError> {
        let Some((id, half)) = self.partitioned.answered(link, peer, start.send.get()) else { return Ok(()) };
        let sent = half.rounds - u64::from(half.round.is_some());
        let Side::Send { cleared, .. } = &mut half.side else {
            return Err(WireError::Value { field: "send" });
        };
        // A correct receiver begins a round only after it has received the whole previous round.
        if half.theirs.is_none() || *cleared != sent || start.round.get() != sent + 1 {
            return Err(WireError::Value { field: "round" });
        }
        *cleared += 1;
        if half.round.is_some() {
            self.queue_partitions(link, peer, id);
        }
        Ok(())
    }

    pub(super) fn part_data(
        &mut self,
        link: &mut Link,
        peer: Peer,
        data: &PartData,
        bytes: &(impl Body + ?Sized),
    ) -> Result<(), WireError> {
        let Some((id, half)) = self.partitioned.answered(link, peer, data.recv.get()) else { return Ok(()) };
        let invalid = |field| WireError::Value { field };
        let (Side::Receive { part_len, begun, missing, flow: Some(flow), .. }, Some(_), Some(request)) =
            (&mut half.side, half.theirs, half.round)
        else {
            return Err(invalid("recv"));
        };
        if data.round.get() != half.rounds {
            return Err(invalid("round"));
        }
        let start = usize::try_from(data.offset.get()).map_err(|_| invalid("offset"))?;
        let end = start.checked_add(bytes.len()).filter(|&end| end <= half.bytes).ok_or(invalid("offset"))?;
        if (start == end) != (half.bytes == 0) {
            return Err(invalid("length"));
        }
        if start < end {
            flow.admit(start..end, *part_len, begun).ok_or(invalid("offset"))?;
            // These bytes have not arrived before, so none of their partitions is complete, and the span is writable.
            let into = flow.memory.span_mut(start..end).ok_or(invalid("offset"))?;
            bytes.copy_to(into);
            flow.arrived(start..end, half.bytes / missing.len(), missing);
        }
        if flow.left == 0 {
            if half.bytes == 0 {
                flow.memory.mark(0..missing.len());
            }
            let status = Status { source: link.peer(peer).rank(), tag: half.tag, bytes: half.bytes };
            let traffic = link.peer_mut(peer).traffic_mut();
            traffic.rendezvous_received += 1;
            traffic.bytes_received = traffic.bytes_received.wrapping_add(half.bytes as u64);
            half.end_round();
            debug_assert!(self.partitioned.halves.contains_key(&id));
            self.finish(link, request, Ok(status));
        }
        Ok(())
    }

    /// Handles PART_END: the other half has ended.
    pub(super) fn part_end(&mut self, link: &mut Link, peer: Peer, end: &PartEnd) -> Result<(), WireError> {
        let (by_receiver, is_refused) = end.read()?;
        let (rank, send) = (link.peer(peer).rank(), end.send.get());
        let abandoned = Error::Abandoned { rank, fate: Fate::NotDelivered };
        if by_receiver {
            let Some((id, half)) = self.partitioned.answered(link, peer, send) else { return Ok(()) };
            if !matches!(half.side, Side::Send { .. }) {
                return Err(WireError::Value { field: "send" });
            }
            let refused = || Error::Exhausted {
                what: "the receiver's memory for messages that wait for a receive",
                hint: "have it receive them, or raise its envelopes_max".into(),
            };
            self.end_half(link, id, if is_refused { refused() } else { abandoned }, false);
            return Ok(());
        }
        match self.partitioned.senders.get(&(peer, send)) {
            Some(&Met::Waiting(place)) => {
                if let Some(init) = self.partitioned.inits.get_mut(&place) {
                    init.has_ended = true;
                }
            }
            Some(&Met::Half(id)) => self.end_half(link, id, abandoned, false),
            None => link.note_stale(),
        }
        Ok(())
    }

    fn drop_init(&mut self, link: &mut Link, place: Waiting) {
        let Some(init) = self.partitioned.inits.remove(&place) else { return };
        self.partitioned.senders.remove(&(init.sender, init.send));
        self.release_envelope(link);
    }
}

/// Ending.
impl Tagged {
    /// Ends a half, and its round if one is under way. Informs the peer if `tells` is true and the peer is alive.
    pub(super) fn end_half(&mut self, link: &mut Link, id: PartitionedId, error: Error, tells: bool) {
        let Some(half) = self.partitioned.halves.get_mut(&id) else { return };
        if half.ended.is_some() {
            return;
        }
        half.ended = Some(error.clone());
        let (peer, theirs, request) = (half.peer, half.theirs, half.end_round());
        let tells = tells && link.peer(peer).is_alive();
        let end = match &mut half.side {
            Side::Send { is_announced, owes_end, .. } => {
                *owes_end = tells && !*is_announced;
                is_announced.then(|| PartEnd::of_sender(id.0))
            }
            Side::Receive { waits_at, begun, missing, .. } => {
                if let Some(place) = waits_at.take() {
                    self.partitioned.receives.remove(&place);
                    if tells {
                        note_ended(&mut self.partitioned.receives, place);
                    }
                }
                (*begun, *missing) = (Vec::new(), Vec::new());
                theirs.map(|send| {
                    self.partitioned.senders.remove(&(peer, send));
                    PartEnd::of_receiver(send, false)
                })
            }
        };
        self.partitioned.sending.remove(&id);
        if let (Some(end), true) = (end, tells) {
            self.answer(link, peer, kind::PART_END, &end);
        }
        if let Some(request) = request {
            self.finish(link, request, Err(error));
        }
    }

    /// Ends all halves with a peer that has ended, and drops the peer's waiting initializations, in the contexts for
    /// which `is_in` returns true.
    pub(super) fn fail_halves(
        &mut self,
        link: &mut Link,
        peer: Peer,
        is_in: impl Fn(u32) -> bool,
        cause: &Cause,
    ) {
        let rank = link.peer(peer).rank();
        for id in self.halves_of(|half| half.peer == peer && is_in(half.context)) {
            let request = self.partitioned.halves.get(&id).and_then(|half| half.round);
            let report = request.and_then(|request| self.report(link, request, link.now())).map(Box::new);
            let (cause, fate) = (cause.clone(), Fate::NotDelivered);
            self.end_half(link, id, Error::PeerFailed { rank, cause, fate, report }, false);
        }
        // The peer needs no PART_INIT and no PART_END any more, so the sends that were kept only for these are removed.
        self.partitioned.halves.retain(|_, half| {
            if let (Side::Send { owes_end, .. }, true) =
                (&mut half.side, half.peer == peer && is_in(half.context))
            {
                *owes_end = false;
            }
            !half.is_dropped || half.owes_end()
        });
        self.partitioned.receives.retain(|place, posted| {
            !(matches!(posted, Posted::Ended(_)) && place.1 == rank && is_in(place.0))
        });
        let inits = self.partitioned.inits.iter();
        let of_peer = inits.filter(|(place, init)| init.sender == peer && is_in(place.0));
        let places: Vec<_> = of_peer.map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.drop_init(link, place));
    }

    /// Returns the halves in some contexts that have not ended.
    pub(super) fn halves_in(&self, is_in: impl Fn(u32) -> bool) -> Vec<PartitionedId> {
        self.halves_of(|half| is_in(half.context))
    }

    /// Drops the initializations that wait for their receives in some contexts, and informs their senders.
    pub(super) fn drop_inits_in(&mut self, link: &mut Link, is_in: impl Fn(u32) -> bool) {
        let inits = self.partitioned.inits.iter().filter(|(place, _)| is_in(place.0));
        let waiting: Vec<_> = inits.map(|(place, init)| (*place, init.sender, init.send)).collect();
        for (place, sender, send) in waiting {
            self.drop_init(link, place);
            self.tell_revoked(link, sender, place.0);
            self.answer(link, sender, kind::PART_END, &PartEnd::of_receiver(send, false));
        }
    }

    /// Informs the peer of a half that its context is revoked, if it is.
    pub(super) fn tell_peer_of_half(&self, link: &mut Link, id: PartitionedId) {
        if let Some(half) = self.partitioned.halves.get(&id) {
            self.tell_revoked(link, half.peer, half.context);
        }
    }

    /// Ends all halves with a peer with `error`, and informs the peer.
    pub(super) fn end_halves(&mut self, link: &mut Link, peer: Peer, error: &Error) {
        for id in self.halves_of(|half| half.peer == peer) {
            self.end_half(link, id, error.clone(), true);
        }
    }

    /// Ends the halves whose round is under way. The engine does not use their memory afterwards.
    pub(crate) fn end_rounds(&mut self, link: &mut Link, tells: bool) {
        for id in self.halves_of(|half| half.round.is_some()) {
            self.end_half(link, id, Error::Cancelled { fate: Fate::NotDelivered }, tells);
        }
    }

    /// Ends the partitioned sends to a peer after the goodbye to it was sent, because the peer ignores later packets.
    pub(super) fn end_sends_after_goodbye(&mut self, link: &mut Link, peer: Peer) {
        let abandoned = Error::Abandoned { rank: link.identity().rank, fate: Fate::NotDelivered };
        for id in self.halves_of(|half| half.peer == peer && matches!(half.side, Side::Send { .. })) {
            self.end_half(link, id, abandoned.clone(), false);
        }
    }

    /// Ends the halves of a context that is closed here.
    pub(super) fn close_halves(&mut self, link: &mut Link, context: u32) {
        for id in self.halves_of(|half| half.context == context) {
            self.end_half(link, id, Error::Cancelled { fate: Fate::NotDelivered }, true);
        }
        // Initializations that arrive later are refused, because the context is closed.
        self.partitioned.receives.retain(|place, _| place.0 != context);
        let inits: Vec<_> = self
            .partitioned
            .inits
            .range((context, WorldRank(0), 0, 0)..=(context, WorldRank(!0), !0, !0))
            .collect();
        let inits: Vec<_> = inits.into_iter().map(|(place, init)| (*place, *init)).collect();
        for (place, init) in inits {
            self.drop_init(link, place);
            if !init.has_ended {
                self.answer(link, init.sender, kind::PART_END, &PartEnd::of_receiver(init.send, false));
            }
        }
    }

    fn halves_of(&self, is_one: impl Fn(&Half) -> bool) -> Vec<PartitionedId> {
        let live = self.partitioned.halves.iter().filter(|(_, half)| half.ended.is_none() && is_one(half));
        live.map(|(id, _)| *id).collect()
    }

    /// Asserts the invariants that hold between two calls.
    pub(super) fn check_halves(&self, link: &Link) {
        let Partitioned { halves, receives, inits, senders, sending, last } = &self.partitioned;
        for (place, init) in inits {
            assert!(matches!(senders.get(&(init.sender, init.send)), Some(Met::Waiting(at)) if at == place));
            assert!(place.3 <= *last && place.1 == link.peer(init.sender).rank());
            assert!(first_of(receives, place.0, place.1, place.2).is_none(), "a receive waits for {init:?}");
            assert!(link.peer(init.sender).is_alive(), "the sender of {init:?} has ended");
        }
        let (mut waiting, mut met, mut rounds) = (0, inits.len(), 0);
        for (id, half) in halves {
            let (is_active, has_flow) = match &half.side {
                Side::Send { flow, .. } => {
                    assert_eq!(sending.contains(id), flow.is_some());
                    rounds += usize::from(flow.is_some());
                    assert!(!half.is_dropped || half.owes_end(), "{id:?} has no reason to exist");
                    (half.round.is_some(), flow.is_some())
                }
                Side::Receive { waits_at, flow, .. } => {
                    waiting += usize::from(waits_at.is_some());
                    met += usize::from(half.ended.is_none() && half.theirs.is_some());
                    (half.round.is_some(), flow.is_some())
                }
            };
            assert_eq!(is_active, has_flow, "{id:?} has memory while it has a round");
            assert!(half.ended.is_none() || !is_active, "the round of {id:?} ended with it");
            assert!(half.ended.is_some() || link.peer(half.peer).is_alive(), "{id:?} ended with its peer");
            if let Some(request) = half.round {
                let state = self.requests.get(request).map(|request| &request.state);
                assert!(matches!(state, Some(State::Partitioned { half, .. }) if half == id));
            }
        }
        let posted = receives.values().filter(|posted| matches!(posted, Posted::Half(_))).count();
        assert_eq!((posted, senders.len(), sending.len()), (waiting, met, rounds));
    }
}

impl Half {
    fn new(peer: Peer, context: u32, tag: u64, bytes: usize, side: Side) -> Self {
        let (theirs, rounds, round, ended, is_dropped) = (None, 0, None, None, false);
        Self { peer, context, tag, bytes, theirs, rounds, round, ended, is_dropped, side }
    }

    /// Returns true if the receiver must still learn of the send and of its end.
    fn owes_end(&self) -> bool {
        matches!(self.side, Side::Send { owes_end: true, .. })
    }

    /// Ends a round: drops its memory, and returns its request.
    fn end_round(&mut self) -> Option<RequestId> {
        match &mut self.side {
            Side::Send { flow, .. } => *flow = None,
            Side::Receive { flow, .. } => *flow = None,
        }
        self.round.take()
    }
}

impl Inflow {
    /// Notes that the bytes of `span` have arrived. Returns `None` if the sender violates the protocol: if one of the
    /// bytes has arrived before, or if `span` does not continue the partition in which the last packet ended.
    fn admit(&mut self, span: Range<usize>, part_len: usize, begun: &mut [u64]) -> Option<()> {
        let first = match self.next {
            Some(next) if next == span.start => span.start / part_len + 1,
            None if span.start.is_multiple_of(part_len) => span.start / part_len,
            _ => return None,
        };
        for part in first..span.end.div_ceil(part_len) {
            let (word, bit) = (&mut begun[part / 64], 1 << (part % 64));
            if *word & bit != 0 {
                return None;
            }
            *word |= bit;
        }
        self.next = (!span.end.is_multiple_of(part_len)).then_some(span.end);
        Some(())
    }

    /// Counts bytes that were copied to the memory, and marks the partitions that they complete.
    fn arrived(&mut self, span: Range<usize>, part_len: usize, missing: &mut [usize]) {
        self.left -= span.len();
        let (mut at, mut done) = (span.start, None::<Range<usize>>);
        while at < span.end {
            let part = at / part_len;
            let end = span.end.min((part + 1) * part_len);
            missing[part] -= end - at;
            if missing[part] == 0 {
                done = Some(done.map_or(part, |done| done.start)..part + 1);
            }
            at = end;
        }
        if let Some(done) = done {
            self.memory.mark(done);
        }
    }
}

/// Returns the first of the waiting entries with this envelope.
fn first_of<T>(
    waiting: &BTreeMap<Waiting, T>,
    context: u32,
    source: WorldRank,
    tag: u64,
) -> Option<(&Waiting, &T)> {
    waiting.range((context, source, tag, 0)..=(context, source, tag, u64::MAX)).next()
}

/// Keeps the place of a receive that has ended in the order of the waiting receives. Neighbouring entries of ended
/// receives become one.
fn note_ended(receives: &mut BTreeMap<Waiting, Posted>, place: Waiting) {
    let (context, source, tag, number) = place;
    let mut count = 1;
    let after = receives.range((context, source, tag, number)..=(context, source, tag, u64::MAX)).next();
    if let Some((&at, &Posted::Ended(n))) = after {
        receives.remove(&at);
        count += n;
    }
    let before = receives.range_mut((context, source, tag, 0)..place).next_back();
    match before {
        Some((_, Posted::Ended(n))) => *n += count,
        _ => _ = receives.insert(place, Posted::Ended(count)),
    }
}

/// Panics because a list names a half that does not exist or has the wrong side. A dropped half is removed from all
/// lists, so this is a bug.
#[cold]
fn no_half(id: PartitionedId) -> ! {
    unreachable!("{id:?} is in a list, and is no such half")
}

/// Header and body head of a PART_DATA packet.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct PartDataHead {
    header: Header,
    data: PartData,
}
