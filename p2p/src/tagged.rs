//! Tagged messages: a protocol over the link.

mod claims;
mod ending;
mod inbound;
mod outbound;
mod partitioned;
mod put;
mod revocation;
mod roll_call;
mod target;
mod transfer;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use samite_fabric::layout::Signature;
use samite_fabric::link::{
    Cause, Done, Ending, Error, Expiry, Fate, Fault, Group, Lent, Link, Out, Outcome, PathLimits, Peer,
    RequestId, Slots, Stack, Status, Time, Turn, WorldRank,
};
use samite_fabric::port::gather;
use samite_fabric::wire::{Header, Protocol, WireError, exact};
use samite_fabric::{Body, Caps, PeerId, Port, PortError, Post};
use samite_matching::{Envelope, Pattern, UnexpectedId};
use slab::Slab;

use self::claims::Claim;
pub use self::claims::Claimed;
pub(crate) use self::outbound::{Way, gather_or_send, send_at_once, send_memory_at_once};
use self::partitioned::Partitioned;
pub use self::partitioned::PartitionedId;
use self::roll_call::RollCalls;
pub(crate) use self::target::Target;
use crate::Config;
use crate::choose::{Limits, cost};
use crate::config::OVERHEAD;
use crate::contexts::{Contexts, FIRST, Incarnations};
use crate::failures::Failures;
#[cfg(metered)]
use crate::metered::MessageQueues;
use crate::names::name_in;
use crate::outbox::{Outbox, Unacknowledged, Untaken};
use crate::request::{Buffer, Partner, Request, State, Watch};
use crate::signatures::Signatures;
use crate::store::{Bytes, Store};
use crate::wire::{Confirm, EagerHead, Inquire, PartData, Synchronous, TransferMode, Unmatched, kind};

/// The posted receives that have no message yet, and the messages that arrived before a receive for them.
#[cfg(not(metered))]
type MessageQueues = samite_matching::Matcher<RequestId, Unexpected>;

/// A stack of protocols that includes tagged messages.
///
/// The implementation passes each event to the protocols that it concerns, and the most frequent packet to
/// [`Tagged`]'s [`Stack::fast`] first.
pub trait HasTagged: Stack {
    /// Returns the protocol of tagged messages.
    fn tagged(&self) -> &Tagged;
    /// Returns the protocol of tagged messages for changes.
    fn tagged_mut(&mut self) -> &mut Tagged;
}

impl HasTagged for Tagged {
    #[inline(always)]
    fn tagged(&self) -> &Tagged {
        self
    }

    #[inline(always)]
    fn tagged_mut(&mut self) -> &mut Tagged {
        self
    }
}

/// The protocol of tagged messages: posted receives, unexpected messages, and all requests. Its calls are those of an
/// [`Engine`](crate::Engine).
#[derive(Debug)]
pub struct Tagged {
    pub(crate) config: Config,
    pub(crate) matcher: MessageQueues,
    pub(crate) requests: Slots<Request>,
    /// The number of requests with [`Request::travels`].
    pub(crate) travelling: usize,
    /// The number of requests so far with [`Request::travels`], including requests that have ended.
    pub(crate) ever_travelling: u64,
    pub(crate) signatures: Signatures,
    pub(crate) contexts: Contexts,
    pub(crate) failures: Failures,
    store: Store,
    /// Gets and puts that are under way at the port. The index is the key that their completion will carry.
    pub(crate) one_sided: Slab<OneSided>,
    /// Envelopes without data that wait for a receive, by the sender and the sender's name for the message.
    pub(crate) envelopes: HashMap<(Peer, u64), UnexpectedId>,
    /// Messages of synchronous and ready sends that have arrived whole and wait for a receive, by the sender and the
    /// sender's name for the message. Their senders wait for the match.
    synchronous: HashMap<(Peer, u64), UnexpectedId>,
    /// Envelopes that exceed the budget and that their senders want confirmed, in the order of arrival: the sender, and
    /// the sender's name for the message.
    unconfirmed: VecDeque<(Peer, u64)>,
    /// Peers that await LEAVE, and the names of the contexts: see [`Tagged::leave_behind_messages`].
    awaiting_leave: Vec<(Peer, u64)>,
    /// True once this rank has begun to leave.
    pub(crate) is_leaving: bool,
    /// Unexpected messages of incarnations that left in good order. They are added here when the next incarnation of
    /// their rank takes part, and stay even if that incarnation fails. Some of them may have been received since.
    inherited: HashSet<UnexpectedId>,
    /// Streams of which bytes are still missing, by the sender and the sender's name for the message.
    pub(crate) streams: BTreeMap<(Peer, u64), Stream>,
    /// Claimed messages that arrive as streams.
    pub(crate) claims: Slab<Claim>,
    /// Cost in bytes of the claimed messages that were not received yet and had arrived whole when they were claimed.
    /// Messages that were claimed while they arrived as streams count by their entries in `claims` instead.
    claimed_cost: u64,
    pub(crate) partitioned: Partitioned,
    pub(crate) outbox: Outbox,
    /// Receives with bytes to move in the next drive: gets to post, memory to read, or staged bytes to copy.
    pub(crate) movers: VecDeque<RequestId>,
    /// The sends that wait for each peer, by the peer's index. For a peer without an entry no send waits.
    pub(crate) queues: Vec<Queues>,
    /// Watched requests that have ended or must report a failure, by watcher. Some may have been collected since.
    ends: HashMap<u32, VecDeque<RequestId>>,
    /// The number that the next watcher gets, unless it is in use.
    pub(crate) next_watcher: u32,
    /// Cost in bytes of the envelopes and of the initializations of partitioned sends that wait for a receive.
    pub(crate) envelopes_cost: u64,
    /// The largest number of messages that waited for a receive at the same time.
    pub(crate) unexpected_max: u64,
    /// Messages and initializations of partitioned sends that were refused for lack of budget or memory.
    pub(crate) refused: u64,
    /// Composite operations that their owners have cancelled or forgotten.
    pub(crate) unwanted: BTreeSet<RequestId>,
    roll_calls: RollCalls,
}

/// The sends that wait for one peer.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The limits of the path to the peer, once there is a path.
    limits: Option<Limits>,
    /// Sends whose first packet waits for its turn, in order. When it is sent, it is EAGER, SYNC or RTS.
    pub(crate) messages: VecDeque<RequestId>,
    /// Messages of agreements whose first packet waits for its turn, in order. They are sent before `messages`, and do
    /// not wait until the receiver has confirmed the envelope in `unconfirmed`. So an agreement makes progress while
    /// messages of the program wait.
    pub(crate) agreements: VecDeque<RequestId>,
    /// Messages of agreements whose envelopes were sent without data. The peer may already have matched some of them.
    /// The list has at most [`AGREEMENTS_MAX`](crate::wire::AGREEMENTS_MAX) messages.
    announced: Vec<RequestId>,
    /// The peer's names for the messages of agreements whose envelopes wait here for a receive. These envelopes do not
    /// count against the budget for envelopes.
    from_agreements: BTreeSet<u64>,
    /// Partitioned sends to be announced, in order.
    inits: VecDeque<PartitionedId>,
    /// Sends whose bytes the peer has requested, and streams. Their bytes are sent after the first packets of
    /// `messages`, which are shorter.
    pub(crate) pushes: VecDeque<RequestId>,
    /// Partitioned sends with marked partitions that can be sent.
    partitioned: VecDeque<PartitionedId>,
    /// The number of messages to the peer in the outbox, in any state.
    kept: usize,
    /// The messages from the outbox that were passed to the port and that the peer has not acknowledged.
    unacknowledged: Unacknowledged,
    /// The latest deadline of the sends whose messages `kept` and `unacknowledged` count. The deadline does not end the
    /// messages: it is the time until which a leaving rank waits for the peer to take them.
    until: Time,
    /// True if the port had no room for the peer at the last attempt to reach it.
    pub(crate) has_no_room: bool,
    /// A message of the outbox whose envelope was sent without data (an RTS, but not of a stream), and which the peer
    /// has neither matched nor confirmed. Its send has returned, so the peer must not refuse it, even beyond its
    /// budget. Until the peer answers, no further message to it is begun. So a peer keeps at most one unconfirmed
    /// envelope of each sender.
    pub(crate) unconfirmed: Option<RequestId>,
}

impl Queues {
    /// Returns true if packets wait that are sent before `messages`.
    #[inline]
    fn has_precedence(&self) -> bool {
        !(self.agreements.is_empty() & self.inits.is_empty())
    }

    /// Returns the number of partitioned sends that wait.
    pub(crate) fn partitioned(&self) -> usize {
        self.inits.len() + self.partitioned.len()
    }
}

/// A get or a put that this process has posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneSided {
    request: RequestId,
    /// Of a get, the offset of the bytes in the message; of a put, the number of its slab.
    offset: usize,
    len: usize,
}

/// A message that arrived before its receive.
#[derive(Debug)]
pub(crate) enum Unexpected {
    Eager(Bytes),
    /// A message that has arrived whole, and whose sender awaits the match or has sent a signature. Boxed, so that the
    /// other variants stay small.
    Whole(Box<Whole>),
    Rts(Rendezvous),
}

/// A message that has arrived in a SYNC packet, or as a stream with a signature.
#[derive(Debug)]
pub(crate) struct Whole {
    /// The sender's name for the message, if the sender awaits the match.
    send: Option<u64>,
    signature: Signature,
    data: Bytes,
}

/// The contents of an RTS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendezvous {
    send: u64,
    bytes: usize,
    mode: TransferMode,
    unmatched: Unmatched,
    signature: Signature,
}

/// The destination of the bytes of a stream.
#[derive(Debug)]
pub(crate) enum Stream {
    /// The request of the receive that the message matched.
    Matched(RequestId),
    /// The message has no receive yet: its bytes are kept in this buffer.
    Kept { unexpected: UnexpectedId, total: usize, bytes: Vec<u8> },
    /// The message was claimed. This is its index in [`Tagged::claims`].
    Claimed(usize),
}

impl Unexpected {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Eager(data) => data.len(),
            Self::Whole(whole) => whole.data.len(),
            Self::Rts(rendezvous) => rendezvous.bytes,
        }
    }

    /// Returns true if the sender waits for the match.
    pub(crate) fn awaits_match(&self) -> bool {
        match self {
            Self::Eager(_) => false,
            Self::Whole(whole) => whole.send.is_some(),
            Self::Rts(rendezvous) => rendezvous.mode != TransferMode::Stream,
        }
    }
}

impl Tagged {
    /// Makes the protocol without any messages.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            contexts: Contexts::new(config.communicators_max),
            config,
            matcher: MessageQueues::new(&samite_matching::Config::default()),
            requests: Slots::new(Protocol::P2p),
            travelling: 0,
            ever_travelling: 0,
            signatures: Signatures::default(),
            failures: Failures::default(),
            store: Store::default(),
            one_sided: Slab::new(),
            envelopes: HashMap::new(),
            synchronous: HashMap::new(),
            unconfirmed: VecDeque::new(),
            awaiting_leave: Vec::new(),
            is_leaving: false,
            inherited: HashSet::new(),
            streams: BTreeMap::new(),
            claims: Slab::new(),
            claimed_cost: 0,
            partitioned: Partitioned::default(),
            outbox: Outbox::default(),
            movers: VecDeque::new(),
            queues: Vec::new(),
            ends: HashMap::new(),
            next_watcher: 1,
            envelopes_cost: 0,
            unexpected_max: 0,
            refused: 0,
            unwanted: BTreeSet::new(),
            roll_calls: RollCalls::default(),
        }
    }

    /// Returns the queues of the sends that wait for a peer.
    #[inline]
    pub(crate) fn queues(&mut self, peer: Peer) -> &mut Queues {
        let index = peer.index();
        if index >= self.queues.len() {
            self.queues.resize_with(index + 1, Queues::default);
        }
        &mut self.queues[index]
    }

    #[cfg(test)]
    pub(crate) fn inherited(&self) -> &HashSet<UnexpectedId> {
        &self.inherited
    }

    /// Returns the path to a peer, and the limits of the path; `None` if there is no path yet.
    fn path_to(&self, link: &Link, peer: Peer) -> Option<(PeerId, Limits)> {
        let path = link.peer(peer).path()?;
        Some((path, self.queues.get(peer.index())?.limits?))
    }

    /// Returns an error if the pattern names one source and no message can come from that rank: it is not a member of
    /// the context, or it no longer takes part in the job or in the context.
    #[inline(always)]
    pub(crate) fn source_failure(&mut self, link: &mut Link, pattern: &Pattern) -> Option<Error> {
        let Some(rank) = pattern.source.as_rank().map(WorldRank) else {
            return self.contexts.is_revoked(pattern.context).then_some(Error::Revoked);
        };
        if let Some(peer) = link.find(rank) {
            let peer = link.peer(peer);
            if peer.is_alive() && self.contexts.is_known(peer, pattern.context) {
                return None;
            }
        }
        self.failure_of(link, pattern.context, rank)
    }

    /// Returns an error if a rank is not a member of a context, or no longer takes part in the job or in the context.
    #[cold]
    fn failure_of(&mut self, link: &mut Link, context: u32, rank: WorldRank) -> Option<Error> {
        if rank.0 >= link.identity().size || !self.contexts.is_member(context, rank) {
            return Some(link.invalid_rank(rank));
        }
        if self.contexts.is_revoked(context) {
            return Some(Error::Revoked);
        }
        let peer = link.find(rank)?;
        let state = link.peer(peer);
        let cause = match state.is_alive() {
            true => self.contexts.member(link, context, peer)??,
            false => state.failure()?,
        };
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Opens the contexts with a name. Returns false if the name or a later one was used before, if their numbers are
    /// in use, or if no more contexts may be open.
    pub(crate) fn open_contexts(
        &mut self,
        link: &mut Link,
        name: u64,
        group: Group,
        remote: Option<&Group>,
        incarnations: &Incarnations,
    ) -> bool {
        let Some(ended) = self.contexts.open(link, name, group, remote, incarnations) else { return false };
        let context = self.contexts.closed.number(name);
        for (rank, cause) in ended {
            (context..=context + 1).for_each(|context| self.failures.add_in(context, rank, cause.clone()));
        }
        if self.contexts.take_early_revocation(name) {
            self.revoke_contexts(link, context);
        }
        true
    }

    /// If the numbers of contexts that this rank has closed will be needed again soon, asks the members of these
    /// contexts if they still send there.
    pub(crate) fn ask_members(&mut self, link: &mut Link) {
        let next = self.contexts.free_name(0);
        self.contexts.closed.ask(next);
        self.ask_next_members(link);
    }

    /// Asks the next members, if any are to be asked.
    #[cold]
    pub(crate) fn ask_next_members(&mut self, link: &mut Link) {
        while !self.is_leaving
            && let Some((rank, from, until)) = self.contexts.closed.next_question()
        {
            match link.live_peer(rank) {
                // This rank asks itself too, because messages to itself may be under way.
                Ok(peer) => {
                    let inquire = Inquire { from: from.into(), until: until.into() };
                    self.answer(link, peer, kind::INQUIRE, &inquire);
                    link.seek(peer);
                }
                Err(_) => {
                    self.contexts.closed.answer(rank, from, until, until);
                }
            }
        }
    }

    /// Answers a member's question about contexts.
    #[cold]
    fn inquire(&mut self, link: &mut Link, peer: Peer, inquire: &Inquire) -> Result<(), WireError> {
        let (from, until) = (inquire.from.get(), inquire.until.get());
        if from >= until || until - from > self.contexts.closed.space() {
            return Err(WireError::Value { field: "until" });
        }
        let used = self.first_used(link, from, until, link.peer(peer).rank()).into();
        let confirm = Confirm { from: inquire.from, until: inquire.until, used };
        self.answer(link, peer, kind::CONFIRM, &confirm);
        Ok(())
    }

    /// Takes a member's answer to a question about contexts.
    #[cold]
    fn confirm(&mut self, link: &mut Link, peer: Peer, confirm: &Confirm) {
        let (from, until, used) = (confirm.from.get(), confirm.until.get(), confirm.used.get());
        if !self.contexts.closed.answer(link.peer(peer).rank(), from, until, used) {
            link.note_stale();
        }
        self.ask_next_members(link);
    }

    /// Returns the first name from `from` on in whose contexts this rank may still send to `rank`; `until` if there is
    /// none before it. If `rank` is this rank, contexts in which this rank still receives count too.
    fn first_used(&self, link: &Link, from: u64, until: u64, rank: WorldRank) -> u64 {
        let space = self.contexts.closed.space();
        let receives = rank == link.identity().rank;
        let under_way = self.requests.iter().map(|(_, request)| request).filter(|request| {
            receives && !request.is_send() && !matches!(request.state, State::Over)
                || request.is_send() && request.rank() == Some(rank)
        });
        let numbers = under_way.map(|request| request.context & !1);
        let sends = numbers.filter_map(|number| name_in(from, until, number, space)).min();
        let open = self.contexts.first_open(from, until, rank);
        [sends, open].into_iter().flatten().min().unwrap_or(until)
    }

    /// Returns an error if no message can be sent to a peer in a context.
    #[inline(always)]
    pub(crate) fn check_member(&mut self, link: &mut Link, context: u32, peer: Peer) -> Result<(), Error> {
        match self.contexts.is_known(link.peer(peer), context) {
            true => Ok(()),
            false => self.check_opened_member(link, context, peer),
        }
    }

    #[cold]
    fn check_opened_member(&mut self, link: &mut Link, context: u32, peer: Peer) -> Result<(), Error> {
        match self.contexts.is_revoked(context) {
            true => Err(Error::Revoked),
            false => self.check_despite_revocation(link, context, peer),
        }
    }

    /// Returns an error if no message of an agreement of survivors can be sent to a peer in a context.
    #[cold]
    pub(crate) fn check_despite_revocation(
        &mut self,
        link: &mut Link,
        context: u32,
        peer: Peer,
    ) -> Result<(), Error> {
        let rank = link.peer(peer).rank();
        match self.contexts.member(link, context, peer) {
            Some(None) => Ok(()),
            Some(Some(cause)) => {
                Err(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
            }
            None => Err(Error::InvalidRank { rank, size: link.identity().size }),
        }
    }

    /// Returns the result of a probe or claim that found no message.
    pub(crate) fn nothing_from<T>(&mut self, link: &mut Link, pattern: &Pattern) -> Result<Option<T>, Error> {
        let failure = match self.source_failure(link, pattern) {
            None if pattern.source.is_any() => {
                let context = pattern.context;
                let told = self.failures.tell_next(context, &self.contexts);
                told.or_else(|| self.is_deserted(link, context).then_some(Error::Deserted))
            }
            failure => failure,
        };
        failure.map_or(Ok(None), Err)
    }

    /// Returns true if no message can come to a receive from any source in a context: there was at least one other rank
    /// that could send there, each of them has ended, and no message of this rank to itself is under way.
    pub(crate) fn is_deserted(&self, link: &Link, context: u32) -> bool {
        if context < FIRST {
            link.is_deserted()
        } else {
            self.contexts.is_deserted(context) && link.is_idle_to_itself()
        }
    }

    /// Ends the transfer of a request, and sets its result unless it has one already. Removes the request if its result
    /// was collected before, or if no caller wants it.
    pub(crate) fn finish(&mut self, link: &mut Link, id: RequestId, result: Result<Status, Error>) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let was_awaiting_match = matches!(request.state, State::AwaitingMatch { .. });
        let has_travelled = request.end_travel();
        self.travelling -= usize::from(has_travelled);
        self.outbox.early -= usize::from(has_travelled && request.copied.is_kept());
        if request.collected {
            if request.copied.is_kept() {
                self.release_copy(link, id, was_awaiting_match, result.is_ok());
            }
            let Some(request) = self.requests.get_mut(id) else { return };
            if let Buffer::Registered { region, lease } = std::mem::replace(&mut request.buffer, Buffer::Gone)
            {
                link.retire(region, lease);
            }
            self.requests.remove(id);
        } else if request.result.is_none() {
            match result {
                Ok(status) => request.succeed(status),
                Err(error) => request.fail(error),
            }
            self.note_end(id);
        }
        if !self.awaiting_leave.is_empty() {
            self.send_late_leaves(link);
        }
    }

    /// Returns true if an operation with a buffer of `len` bytes of its own needs progress between the program's calls,
    /// and counts it. Its request keeps the answer.
    #[inline(always)]
    pub(crate) fn begins_travel(&mut self, len: usize) -> bool {
        self.note_travel(len >= self.config.overlap_min)
    }

    /// Counts an operation if it needs progress between the program's calls. Its request keeps the answer.
    #[inline(always)]
    pub(crate) fn note_travel(&mut self, travels: bool) -> bool {
        self.travelling += usize::from(travels);
        self.ever_travelling += u64::from(travels);
        travels
    }

    /// Accounts for the end of a message of the outbox. `was_awaiting_match` is true if the message awaited its match
    /// until now.
    #[cold]
    fn release_copy(&mut self, link: &mut Link, id: RequestId, was_awaiting_match: bool, is_sent: bool) {
        let Some(request) = self.requests.get(id) else { return };
        let rank = request.rank().expect("a send has a receiver");
        self.outbox.release(id, request.buffer.len());
        if !is_sent {
            *self.outbox.lost.entry(rank).or_default() += 1;
        }
        let peer = link.find(rank).expect("the receiver was met");
        self.queues(peer).kept -= 1;
        // A message that awaited its match succeeds by an answer of the receiver, so the receiver has taken it.
        if is_sent && !was_awaiting_match {
            self.queues(peer).unacknowledged.sent(link.peer(peer));
        }
        self.confirmed(link, peer, id);
        if self.is_leaving {
            // The goodbye to the peer may have waited for this message.
            link.list(peer);
        }
    }

    /// Notes a new message of the outbox to a peer.
    pub(crate) fn note_copy(&mut self, link: &Link, peer: Peer, deadline: Time) {
        let queues = self.queues(peer);
        let is_first = queues.kept == 0 && queues.unacknowledged.len(link.peer(peer)) == 0;
        queues.kept += 1;
        queues.until = if is_first { deadline } else { deadline.max(queues.until) };
    }

    /// Returns the messages of the outbox that other living ranks have not taken, by receiver.
    pub(crate) fn untaken(&self, link: &Link) -> impl Iterator<Item = Untaken> {
        let mine = link.identity().rank;
        link.peers().filter_map(move |(peer, state)| {
            let queues = self.queues.get(peer.index())?;
            let messages = queues.kept as u64 + queues.unacknowledged.len(state);
            let until = if queues.has_no_room { Time::ZERO } else { queues.until };
            let rank = state.rank();
            (messages > 0 && rank != mine).then_some(Untaken { rank, messages, until })
        })
    }

    /// Reports the end of a request to its watcher, if it has one.
    #[inline]
    pub(crate) fn note_end(&mut self, id: RequestId) {
        if let Some(Request { watch: Watch { watcher: watcher @ 1.., .. }, .. }) = self.requests.get(id)
            && let Some(ends) = self.ends.get_mut(watcher)
        {
            ends.push_back(id);
        }
    }

    /// Registers a watcher for the end of a request. `take_end` then returns the request with `key`.
    pub(crate) fn watch(&mut self, link: &Link, id: RequestId, watcher: u32, key: u32) {
        let Some(request) = self.requests.get_mut(id) else { return };
        request.watch = Watch { watcher, key };
        if self.outcome(link, id) != Outcome::Pending {
            self.note_end(id);
        }
    }

    /// Returns a watched request that has ended or must report a failure, with its key.
    pub(crate) fn take_end(&mut self, link: &Link, watcher: u32) -> Option<(RequestId, u32)> {
        while let Some(id) = self.ends.get_mut(&watcher)?.pop_front() {
            // The request may have been collected, or have another watcher by now.
            let Some(Request { watch, .. }) = self.requests.get(id) else { continue };
            if watch.watcher == watcher && self.outcome(link, id) != Outcome::Pending {
                return Some((id, watch.key));
            }
        }
        if self.contexts.deserted > 0 || link.is_deserted() {
            // No event puts receives in `ends` when the last possible sender ends, so they are searched for here.
            let in_vain = self.watched_by(watcher).find(|(_, request)| self.is_in_vain(link, request));
            return in_vain.map(|(id, request)| (id, request.watch.key));
        }
        None
    }

    /// Returns true if `take_end` may return a request.
    pub(crate) fn has_ends(&self, watcher: u32) -> bool {
        self.ends.get(&watcher).is_some_and(|ends| !ends.is_empty())
    }

    fn watched_by(&self, watcher: u32) -> impl Iterator<Item = (RequestId, &Request)> {
        self.requests.iter().filter(move |(_, request)| request.watch.watcher == watcher)
    }

    /// Stops reporting the end of a request.
    pub(crate) fn unwatch(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get_mut(id) {
            request.watch = Watch::NONE;
        }
    }

    /// Creates a watcher, and returns its number.
    pub(crate) fn add_watcher(&mut self) -> u32 {
        loop {
            let watcher = self.next_watcher;
            self.next_watcher = watcher.checked_add(1).unwrap_or(1);
            // A number may be in use when its turn comes again, because a watcher may exist while 2^32 later ones are
            // added.
            if let Entry::Vacant(entry) = self.ends.entry(watcher) {
                entry.insert(VecDeque::new());
                return watcher;
            }
        }
    }

    /// Removes a watcher.
    pub(crate) fn remove_watcher(&mut self, watcher: u32) {
        self.ends.remove(&watcher);
        let watched: Vec<_> = self.watched_by(watcher).map(|(id, _)| id).collect();
        watched.into_iter().for_each(|id| self.unwatch(id));
    }

    /// Reports a failure of a peer to the watchers of receives from any source.
    fn note_failure(&mut self) {
        let is_watched = |request: &Request| {
            request.watch != Watch::NONE && matches!(request.partner, Partner::Any { .. })
        };
        for id in self.requests.select(is_watched) {
            self.note_end(id);
        }
    }

    /// Returns the progress of a request.
    #[inline(always)]
    pub(crate) fn outcome(&self, link: &Link, request: RequestId) -> Outcome {
        match self.requests.get(request) {
            Some(request) if request.result.is_some() => Outcome::Ready,
            Some(Request { partner: Partner::Any { .. }, .. }) => self.outcome_from_any(link, request),
            Some(_) => Outcome::Pending,
            None if request == RequestId::PENDING => Outcome::Pending,
            None => Outcome::Ready,
        }
    }

    /// Returns the outcome of a receive from any source that has no result. Not inlined, because a thread that waits
    /// calls `outcome` after each poll, and that should take few instructions.
    #[inline(never)]
    fn outcome_from_any(&self, link: &Link, request: RequestId) -> Outcome {
        match self.requests.get(request) {
            Some(Request { partner: Partner::Any { told }, context, .. })
                if self.has_failure(*context, *told) =>
            {
                Outcome::FailurePending
            }
            Some(request) if !self.is_in_vain(link, request) => Outcome::Pending,
            _ => Outcome::Ready,
        }
    }

    /// Returns true if a receive from any source must report a failure: if one of the failures after the first `told`
    /// ones is the failure of a member of the context.
    #[inline]
    pub(crate) fn has_failure(&self, context: u32, told: u32) -> bool {
        self.failures.more_than(told) && self.failures.next(context, told, &self.contexts).is_some()
    }

    /// Sends the first packet of the next message of an agreement or, if none waits, the next initialization: see
    /// [`Stack::next`].
    #[cold]
    fn next_with_precedence<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer) -> Result<Turn, PortError> {
        let Queues { agreements, inits, .. } = self.queues(to);
        let (turn, is_agreement) = match (agreements.front(), inits.front()) {
            (Some(&id), _) => (self.begin_message(out, to, id)?, true),
            (None, Some(&id)) => (self.announce(out, to, id)?, false),
            (None, None) => return Ok(Turn::Skipped),
        };
        if let Turn::Sent | Turn::Skipped = turn {
            let Queues { agreements, inits, .. } = self.queues(to);
            match is_agreement {
                true => drop(agreements.pop_front()),
                false => drop(inits.pop_front()),
            }
            self.note_queue(out.link, to);
        }
        Ok(turn)
    }

    /// Returns true if a receive may take packets before it is posted. It may not if any message waits, because the
    /// waiting messages may contain an earlier message for this receive.
    #[inline]
    pub(crate) fn may_take(&self, link: &Link) -> bool {
        self.matcher.unexpected_len() == 0 && link.may_take()
    }

    /// Notes that a receive has bytes to move.
    fn move_later(&mut self, link: &mut Link, id: RequestId) {
        self.movers.push_back(id);
        link.defer();
    }

    #[inline(always)]
    pub(crate) fn set_deadline(&mut self, link: &mut Link, id: RequestId, deadline: Time) {
        if deadline != Time::NEVER {
            self.set_timer(link, id, deadline);
        }
    }

    fn set_timer(&mut self, link: &mut Link, id: RequestId, deadline: Time) {
        if let Some(request) = self.requests.get_mut(id) {
            request.deadline = deadline;
        }
        let requests = &self.requests;
        link.set_deadline(id, deadline, |id, due| {
            requests.get(id).is_some_and(|request| request.deadline == due)
        });
    }

    /// Asserts the invariants that hold between two calls.
    pub(crate) fn check_invariants(&self, link: &Link) {
        let mut held = self.claimed_cost;
        let (mut envelopes, mut synchronous) = (0, 0);
        for message in self.matcher.unexpected_payloads() {
            match message {
                Unexpected::Eager(data) => held += u64::from(cost(data.len())),
                Unexpected::Whole(whole) => {
                    held += u64::from(cost(whole.data.len()));
                    synchronous += usize::from(whole.send.is_some());
                }
                Unexpected::Rts(Rendezvous { mode: TransferMode::Stream, bytes, .. }) => {
                    held += u64::from(cost(*bytes));
                }
                Unexpected::Rts(_) => envelopes += 1,
            }
        }
        let claims = self.claims.iter().filter(|(_, claim)| !claim.is_lost());
        held += claims.map(|(_, claim)| u64::from(cost(claim.total))).sum::<u64>();
        assert_eq!(link.held(), held, "what is held is what waits for its receive, and what was claimed");
        assert_eq!(self.envelopes.len(), envelopes, "each envelope that waits has its entry");
        assert_eq!(
            self.synchronous.len(),
            synchronous,
            "each message whose sender awaits the match has its entry"
        );
        for (name, &unexpected) in &self.synchronous {
            let waiting = self.matcher.unexpected(unexpected);
            let is_its_own = |(envelope, message): (Envelope, &Unexpected)| match message {
                Unexpected::Whole(whole) => {
                    (link.peer(name.0).rank(), Some(name.1)) == (WorldRank(envelope.source), whole.send)
                }
                _ => false,
            };
            assert!(waiting.is_some_and(is_its_own), "{name:?} is the name of a message that waits");
        }
        let of_agreements: usize = self.queues.iter().map(|queues| queues.from_agreements.len()).sum();
        let counted = envelopes - of_agreements + self.partitioned.len().1;
        assert_eq!(self.envelopes_cost, (counted * OVERHEAD) as u64);
        self.check_halves(link);
        for (&(peer, _), &unexpected) in &self.envelopes {
            let (envelope, _) = self.matcher.unexpected(unexpected).expect("an envelope that waits exists");
            assert_eq!(
                WorldRank(envelope.source),
                link.peer(peer).rank(),
                "an envelope waits under its sender"
            );
        }
        let travel = |request: &Request| request.travels && !matches!(request.state, State::Over);
        let travelling = self.requests.iter().filter(|(_, request)| request.travels).count();
        assert_eq!(self.travelling, travelling, "the operations that need progress are counted");
        assert!(
            self.requests.iter().all(|(_, request)| !request.travels || travel(request)),
            "none has ended"
        );
        let is_early = |request: &Request| request.travels && request.copied.is_kept();
        let early = self.requests.iter().filter(|(_, request)| is_early(request)).count();
        assert_eq!(self.outbox.early, early, "the copies from before the first contact are counted");
        let slabs = |request: &Request| match &request.state {
            State::Putting(put) => put.slabs.len(),
            State::Pulling(pull) => pull.target.as_ref().map_or(0, Target::slabs),
            State::Landing(landing) => landing.target.as_ref().map_or(0, Target::slabs),
            _ => 0,
        };
        let used: usize = self.requests.iter().map(|(_, request)| slabs(request)).sum();
        assert_eq!(link.registered().used, used, "the slabs that are in use are those of requests");
        self.contexts.check_invariants(link);
        let mut kept = vec![0; self.queues.len()];
        let mut outbox = 0;
        for (id, request) in self.requests.iter().filter(|(_, request)| request.copied.is_kept()) {
            let rank = request.rank().expect("a send has a receiver");
            let (peer, _) = link.peers().find(|(_, state)| state.rank() == rank).expect("it was met");
            assert!(request.collected && request.is_send(), "{id:?} is a message in the outbox");
            kept[peer.index()] += 1;
            outbox += crate::outbox::cost(request.buffer.len());
        }
        assert!(self.queues.iter().map(|queues| queues.kept).eq(kept), "messages in the outbox by peer");
        assert_eq!(self.outbox.cost(), outbox, "the cost of the outbox");
        self.outbox
            .check_invariants(|id| self.requests.get(id).is_some_and(|request| request.copied.is_kept()));
        for (id, request) in self.requests.iter().filter(|(_, request)| request.watch != Watch::NONE) {
            assert!(!request.collected, "{id:?} is watched, so its end is wanted");
            assert!(self.ends.contains_key(&request.watch.watcher), "{id:?} has a watcher that exists");
        }
        for (peer, state) in link.peers() {
            let Some(queues) = self.queues.get(peer.index()) else { continue };
            assert!(
                !state.has_no_packets_queued() || queues.messages.is_empty() && queues.agreements.is_empty(),
                "{peer:?} has messages, and its queue is set"
            );
            assert!(
                state.is_alive()
                    || queues.messages.is_empty() && queues.agreements.is_empty() && queues.pushes.is_empty(),
                "{peer:?} ended"
            );
        }
    }
}

/// Returns the status of a message with this envelope and number of bytes.
pub(crate) fn status_of(envelope: &Envelope, bytes: usize) -> Status {
    Status { source: WorldRank(envelope.source), tag: envelope.tag, bytes }
}

impl Stack for Tagged {
    #[inline(always)]
    fn fast<L: Lent>(&mut self, link: &mut Link, packet: &[u8], lent: &mut L) -> Result<bool, Fault> {
        let Some((EagerHead { header, eager }, data)) = EagerHead::split(packet) else { return Ok(false) };
        let Some(peer) = link.admit(header) else { return Ok(false) };
        match self.eager(link, peer, header, eager, data, true, lent) {
            Ok(()) => Ok(true),
            Err(cause) => Err(Fault::new(peer, cause)),
        }
    }

    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        lent: &mut L,
    ) -> Result<(), Fault> {
        self.other_packet(link, from, header, body, lent).map_err(|cause| Fault::new(from, cause))
    }

    fn long_packet<B: Body, L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        head: &[u8],
        body: &B,
        lent: &mut L,
    ) -> Result<(), Fault> {
        let handled = match (header.kind, exact(head), exact(head)) {
            // A packet of another protocol is refused, as a short one is.
            _ if header.protocol() != Protocol::P2p => {
                self.other_packet(link, from, header, &gather(head, body), lent)
            }
            (kind::EAGER, Ok(eager), _) => self.eager(link, from, header, eager, body, true, lent),
            (kind @ (kind::DATA | kind::STREAM), _, Ok(data)) => {
                self.data(link, from, kind, data, body, lent).map_err(Box::<Cause>::from)
            }
            (kind::SYNC, ..) if let Ok(sync) = exact::<Synchronous>(head) => {
                self.synchronous(link, from, header, sync, body, lent)
            }
            (kind::PART_DATA, ..) if let Ok(data) = exact::<PartData>(head) => {
                self.part_data(link, from, data, body).map_err(Box::<Cause>::from)
            }
            _ => self.other_packet(link, from, header, &gather(head, body), lent),
        };
        handled.map_err(|cause| Fault::new(from, cause))
    }

    fn completed<L: Lent>(&mut self, link: &mut Link, done: Done, lent: &mut L) -> Result<(), Fault> {
        self.one_sided_ended(link, done, lent)
    }

    fn path_resolved(&mut self, link: &mut Link, peer: Peer, caps: &Caps) {
        let limits = Limits::new(caps, &self.config);
        let (immediate_max, bundle_max) = (limits.eager_max, limits.bundle_max);
        link.peer_mut(peer).set_limits(PathLimits { immediate_max, bundle_max });
        let queues = self.queues(peer);
        (queues.limits, queues.has_no_room) = (Some(limits), false);
    }

    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        self.peer_ended(link, peer, ending);
    }

    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        let rank = link.peer(peer).rank();
        let waiting = self.requests.select(|request| {
            request.rank() == Some(rank) && request.result.is_none() && !request.copied.is_kept()
        });
        for id in waiting {
            self.give_up(link, id, Error::Exhausted { what, hint: hint.to_owned().into() });
        }
        self.end_halves(link, peer, &Error::Exhausted { what, hint: hint.to_owned().into() });
        // The messages in the outbox stay queued, and are sent when a later attempt finds a path.
        let Self { requests, queues, .. } = self;
        if let Some(queues) = queues.get_mut(peer.index()) {
            queues.has_no_room = true;
            queues.agreements.clear();
            queues.messages.retain(|id| requests.get(*id).is_some_and(|request| request.copied.is_kept()));
        }
        self.note_queue(link, peer);
    }

    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry {
        if busy && self.is_receiving(request) {
            return Expiry::Later;
        }
        self.expire(link, request, due);
        Expiry::Done
    }

    fn next<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer, _: Protocol) -> Result<Turn, PortError> {
        let queues = self.queues(to);
        if queues.has_precedence() {
            return self.next_with_precedence(out, to);
        }
        if queues.unconfirmed.is_some() {
            return Ok(Turn::NoAnswer);
        }
        let first = queues.messages.front().copied();
        let turn = match first {
            Some(id) => self.begin_message(out, to, id)?,
            None => Turn::Skipped,
        };
        if let Turn::Sent | Turn::Skipped = turn {
            self.queues(to).messages.pop_front();
            self.note_queue(out.link, to);
        }
        Ok(turn)
    }

    fn bulk<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let pushed = self.push(out, to, lent)?;
        // Partitions are sent even if `pushed` is `Again`: perhaps the buffers of the other messages are not lent,
        // while the memory of partitions can always be read.
        match self.push_partitions(out, to)? {
            Post::Again => Ok(Post::Again),
            Post::Done | Post::Over => Ok(pushed),
        }
    }

    fn backlog(&self) -> usize {
        self.movers.len()
    }

    fn drive<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        pieces: &mut usize,
        lent: &mut L,
    ) -> Result<(), Fault> {
        while *pieces > 0 {
            *pieces -= 1;
            let Some(id) = self.movers.pop_front() else { break };
            self.advance(out, id, lent)?;
        }
        Ok(())
    }

    /// The senders of streams that have begun and of messages in the outbox count on their delivery, so the goodbye
    /// waits for their bytes. It also waits for the end of puts: a put that arrived after the goodbye would find memory
    /// that its receiver has taken back.
    fn has_data_for(&self, peer: Peer) -> bool {
        let is_stream = |request: &Request| match &request.state {
            State::Pushing(push) => push.recv.is_none(),
            _ => false,
        };
        let Some(queues) = self.queues.get(peer.index()) else { return false };
        let puts = |request: &Request| matches!(&request.state, State::Putting(put) if put.to == peer);
        queues.kept > 0
            || queues.pushes.iter().any(|&id| self.requests.get(id).is_some_and(is_stream))
            || self.one_sided.iter().any(|(_, posted)| self.requests.get(posted.request).is_some_and(puts))
    }

    fn said_goodbye(&mut self, link: &mut Link, peer: Peer) {
        self.end_called_for(link, peer);
        self.end_sends_after_goodbye(link, peer);
    }
}
