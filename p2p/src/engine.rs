//! The engine: calls in, events in, packets out.

mod claims;
mod ending;
mod inbound;
mod observe;
mod outbound;
mod timers;
mod transfer;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;

use samite_fabric::{Address, Memory, PeerId, Port, Region, Registration};
use samite_matching::{Envelope, Matcher, Pattern, Posting, UnexpectedId};
use slab::Slab;

use self::claims::Claim;
pub use self::claims::Claimed;
use self::inbound::{Inbound, Unposted};
use self::timers::Timers;
use crate::choose::Limits;
use crate::error::{Cause, Error, Fate, Status};
use crate::failures::Failures;
use crate::peer::{Peers, Place};
use crate::quarantine::Quarantine;
use crate::request::{Buffer, Partner, Request, Requests, State};
use crate::store::{Bytes, Store};
use crate::trace::event;
use crate::wire::Way;
use crate::{Config, Counters, Lent, Reading, RequestId, Writing};

/// Who this engine is in its job.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// This rank.
    pub rank: u32,
    /// Ranks in the job.
    pub size: u32,
    /// This life of the rank: larger, wrapping, than that of any process that had the rank before. Strangers
    /// must not be able to guess the first: by it, and its number, a packet is known to be this rank's.
    pub incarnation: u32,
    /// Known to the ranks of the job only.
    pub secret: [u8; 16],
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

/// Sends and receives tagged messages over a port. See the [crate](crate) for the contract.
///
/// All times are nanoseconds of one monotonic clock of the caller's; a deadline of `u64::MAX` is none.
#[derive(Debug)]
pub struct Engine<P> {
    port: P,
    core: Core,
}

/// What became of a send whose data is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way, and the data free.
    Now,
    /// It waits: lend the data at each poll until there is an outcome, then collect.
    Pending(RequestId),
}

/// What became of a receive whose buffer is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message is in the buffer.
    Now(Status),
    /// It waits: lend the buffer at each poll until there is an outcome, then collect.
    Pending(RequestId),
}

/// Whether a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not yet.
    Pending,
    /// Not yet, but a peer failed that a receive from any source might have waited for: see
    /// [`Engine::failure_pending`].
    FailurePending,
    /// It has: collect it. If there is nothing to collect, its lender has been told: see [`Lent::received`].
    Ready,
}

/// How a request ended.
#[derive(Debug)]
pub struct Completion {
    /// What was received; or, for a send, to whom, with which tag and how much.
    pub result: Result<Status, Error>,
    /// The memory that the request owned. None if it was borrowed, or if a port may still touch it: then it
    /// is kept until it is safe, and dropped.
    pub memory: Option<Memory>,
}

/// All of the engine but the port.
#[derive(Debug)]
struct Core {
    identity: Identity,
    config: Config,
    now_ns: u64,
    peers: Peers,
    matcher: Matcher<RequestId, Unexpected>,
    requests: Requests,
    failures: Failures,
    store: Store,
    /// Gets at the port, by [`OpId`](samite_fabric::OpId).
    operations: Slab<Operation>,
    timers: Timers,
    /// Envelopes without data that wait for their receive, by the sender's index and name.
    envelopes: HashMap<(u32, u64), UnexpectedId>,
    /// Messages of incarnations that left and did not fail, noted when the next incarnation of their rank takes part.
    /// Some may have been received since.
    inherited: HashSet<UnexpectedId>,
    /// Messages whose bytes follow their envelope, and have not all come, by the sender's index and name.
    streams: BTreeMap<(u32, u64), Stream>,
    /// Claimed messages whose bytes follow their envelope.
    claims: Slab<Claim>,

    // Work that an event or call left for the next time the port is at hand.
    /// Peers with something to send.
    senders: VecDeque<u32>,
    /// Peers that should have more credit.
    starving: VecDeque<u32>,
    /// Receives with bytes to move.
    movers: VecDeque<RequestId>,
    /// Paths to peers that failed, to be cut off.
    severed: Vec<PeerId>,
    /// Peers that told their address.
    callers: Vec<(u32, Place)>,
    /// Memory that nobody collects, and its registrations.
    retired: Vec<(Region, Registration)>,
    quarantine: Quarantine,

    /// Packets that receives have taken since the last poll.
    taken: usize,
    /// Ranks whose address is wanted.
    wanted: Vec<u32>,
    /// Costs of what waits for its receive, and credit that peers hold: see [`Config::unexpected_max`].
    unexpected_cost: u64,
    envelopes_cost: u64,
    credit_out: u64,
    /// Without what is counted by peer.
    counters: Counters,
    /// Other ranks that take no part: they have left or failed.
    ended: u32,
    /// Whether the launcher tells how each rank ends.
    expects_word: bool,
}

/// One get.
#[derive(Clone, Copy, Debug)]
struct Operation {
    request: RequestId,
    /// In the message.
    offset: usize,
    len: usize,
}

/// A message that came before its receive.
#[derive(Debug)]
enum Unexpected {
    Eager(Bytes),
    Rts(Rendezvous),
}

/// What an RTS says of a message.
#[derive(Clone, Copy, Debug)]
struct Rendezvous {
    send: u64,
    bytes: usize,
    way: Way,
}

/// Where the bytes of a message go that follow their envelope.
#[derive(Debug)]
enum Stream {
    /// To their receive.
    Matched(RequestId),
    /// With those that wait for it.
    Kept { unexpected: UnexpectedId, total: usize, bytes: Vec<u8> },
    /// To their place among the claims.
    Claimed(usize),
}

impl Unexpected {
    fn bytes(&self) -> usize {
        match self {
            Self::Eager(data) => data.len(),
            Self::Rts(rendezvous) => rendezvous.bytes,
        }
    }
}

impl<P: Port> Engine<P> {
    /// An engine over `port`.
    pub fn new(port: P, identity: Identity, config: Config) -> Self {
        let core = Core {
            identity,
            config,
            now_ns: 0,
            peers: Peers::default(),
            matcher: Matcher::new(&samite_matching::Config::default()),
            requests: Requests::default(),
            failures: Failures::default(),
            store: Store::default(),
            operations: Slab::new(),
            timers: Timers::default(),
            envelopes: HashMap::new(),
            inherited: HashSet::new(),
            streams: BTreeMap::new(),
            claims: Slab::new(),
            senders: VecDeque::new(),
            starving: VecDeque::new(),
            movers: VecDeque::new(),
            severed: Vec::new(),
            callers: Vec::new(),
            retired: Vec::new(),
            quarantine: Quarantine::default(),
            taken: 0,
            wanted: Vec::new(),
            unexpected_cost: 0,
            envelopes_cost: 0,
            credit_out: 0,
            counters: Counters::default(),
            ended: 0,
            expects_word: false,
        };
        Self { port, core }
    }

    /// Starts to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    #[inline(always)]
    pub fn send(
        &mut self,
        now_ns: u64,
        to: u32,
        context: u32,
        tag: u64,
        data: &[u8],
        deadline_ns: u64,
    ) -> Result<Sent, Error> {
        self.core.now_ns = now_ns;
        let peer = self.core.peer(to)?;
        if self.send_at_once(peer, context, tag, data) {
            return Ok(Sent::Now);
        }
        Ok(self.send_in_turn(peer, context, tag, data, deadline_ns))
    }

    /// Starts to send what cannot go at once.
    #[inline(never)]
    fn send_in_turn(&mut self, peer: u32, context: u32, tag: u64, data: &[u8], deadline_ns: u64) -> Sent {
        // What may go eagerly is copied, so that it never holds up the messages behind it while its owner is
        // elsewhere.
        let buffer = if data.len() <= self.core.config.eager_max {
            Buffer::Owned(Memory::new(data.to_vec()))
        } else {
            Buffer::lent(data.len())
        };
        let exposure = self.expose(peer, data);
        let id = self.send_later(peer, context, tag, buffer, exposure, deadline_ns);
        if let Some(request) = self.core.requests.get_mut(id) {
            request.is_copy = data.len() <= self.core.config.eager_max;
        }
        self.stream_at_once(peer, id, &Reading(id, data));
        if self.core.requests.get(id).is_some_and(|request| matches!(request.result, Some(Ok(_)))) {
            self.core.requests.remove(id);
            return Sent::Now;
        }
        Sent::Pending(id)
    }

    /// Starts to send `memory`, which comes back with the completion.
    ///
    /// # Errors
    /// As [`Engine::send`]; the memory is given back.
    pub fn isend(
        &mut self,
        now_ns: u64,
        to: u32,
        context: u32,
        tag: u64,
        memory: Memory,
        deadline_ns: u64,
    ) -> Result<RequestId, (Error, Memory)> {
        self.core.now_ns = now_ns;
        let peer = match self.core.peer(to) {
            Ok(peer) => peer,
            Err(error) => return Err((error, memory)),
        };
        if self.send_at_once(peer, context, tag, memory.as_bytes()) {
            let status = Status { source: to, tag, bytes: memory.len() };
            let mut request =
                Request::new(State::Over, Buffer::Owned(memory), Partner::Rank(to), context, tag, now_ns);
            request.succeed(status);
            return Ok(self.core.requests.insert(request));
        }
        let exposure = self.expose(peer, memory.as_bytes());
        let id = self.send_later(peer, context, tag, Buffer::Owned(memory), exposure, deadline_ns);
        self.stream_at_once(peer, id, &());
        Ok(id)
    }

    /// Starts to receive to a borrowed buffer, which its lender finds at `place`, among those `lent`: see [`Lent`].
    ///
    /// First it looks at what the port has at hand: a message that is there goes straight to its buffer, and its receive
    /// need not be queued. So other requests may end in this call.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Truncated`].
    #[inline(always)]
    pub fn recv<L: Lent>(
        &mut self,
        now_ns: u64,
        pattern: Pattern,
        buffer: &mut [u8],
        place: u32,
        deadline_ns: u64,
        lent: &mut L,
    ) -> Result<Received, Error> {
        let len = buffer.len();
        event!(TRACE, peer = pattern.source.as_rank(), tag = pattern.tag, bytes = len, "receive begins");
        self.core.check_source(&pattern)?;
        self.core.now_ns = now_ns;
        if self.core.may_take()
            && self.port.has_packet()
            && let Some(status) = self.receive_unposted(pattern, buffer, lent)
        {
            let fits = status.bytes <= len;
            return if fits {
                Ok(Received::Now(status))
            } else {
                Err(Error::Truncated { status, room: len })
            };
        }
        let lent = || Buffer::Lent { len, place, staged: None };
        let mut lender = Writing::new(self.core.requests.next_id(), buffer);
        let (request, outcome) = self.post(now_ns, pattern, lent, deadline_ns, &mut lender)?;
        if let Some(status) = lender.received {
            return Ok(Received::Now(status));
        }
        if outcome != Outcome::Ready {
            return Ok(Received::Pending(request));
        }
        let collected = self.collect(request, &mut lender);
        lender.result(collected).map(Received::Now)
    }

    /// Starts to receive to `memory`, which comes back with the completion.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`]; the memory is given back.
    pub fn irecv(
        &mut self,
        now_ns: u64,
        pattern: Pattern,
        memory: Memory,
        deadline_ns: u64,
    ) -> Result<RequestId, (Error, Memory)> {
        if let Err(error) = self.core.check_source(&pattern) {
            return Err((error, memory));
        }
        event!(
            TRACE,
            peer = pattern.source.as_rank(),
            tag = pattern.tag,
            bytes = memory.len(),
            "receive begins"
        );
        let mut memory = Some(memory);
        let buffer = || memory.take().map_or(Buffer::Gone, Buffer::Owned);
        let posted = self.post(now_ns, pattern, buffer, deadline_ns, &mut ());
        posted.map(|(id, _)| id).map_err(|error| (error, memory.unwrap_or_else(|| Memory::zeroed(0))))
    }

    /// The first message that `pattern` matches, if one has arrived. It stays.
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; if none has, [`Error::PeerFailed`] when none will, and from any source
    /// [`Error::FailurePending`], once for each failure that nobody was told of, and then [`Error::Deserted`] when none will.
    pub fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Error> {
        self.core.check_source(pattern)?;
        match self.core.matcher.probe(pattern) {
            Some((_, envelope, message)) => Ok(Some(status_of(&envelope, message.bytes()))),
            None => self.core.nothing_from(pattern),
        }
    }

    /// Tells the place of a send's borrowed data among its lender's, by which [`Lent`] is asked for it.
    pub fn set_place(&mut self, request: RequestId, to: u32) {
        if let Some(Request { buffer: Buffer::Lent { place, .. }, .. }) = self.core.requests.get_mut(request)
        {
            *place = to;
        }
    }

    /// Whether a request has ended.
    #[inline]
    pub fn outcome(&self, request: RequestId) -> Outcome {
        match self.core.requests.get(request) {
            Some(request) if request.result.is_some() => Outcome::Ready,
            Some(Request { partner: Partner::Any { told }, .. }) if self.core.failures.more_than(*told) => {
                Outcome::FailurePending
            }
            Some(request) if self.core.is_in_vain(request) => Outcome::Ready,
            Some(_) => Outcome::Pending,
            None => Outcome::Ready,
        }
    }

    /// A failure that [`Outcome::FailurePending`] speaks of, each once. It need not have become known during the request: one
    /// that nobody was told of before is told too.
    pub fn failure_pending(&mut self, request: RequestId) -> Option<Error> {
        let (rank, cause) = self.core.tell_failure(request)?;
        Some(Error::FailurePending { rank, cause })
    }

    /// The end of a request, once it has ended. `lent` is where a borrowed buffer gets what came while it was
    /// not at hand.
    #[inline(always)]
    pub fn collect<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let Some(result) = self.core.requests.get_mut(id)?.take_result() else {
            return self.collect_deserted(id, lent);
        };
        let request = self.core.requests.get_mut(id)?;
        let is_over = matches!(request.state, State::Over);
        let memory = match &mut request.buffer {
            Buffer::Lent { staged, place, .. } => {
                if let (Ok(_), Some(staged)) = (&result, staged.take())
                    && let Some(buffer) = lent.write(id, *place)
                {
                    staged.copy_to(buffer);
                }
                None
            }
            // The receiver may be getting it: kept until it says FIN.
            Buffer::Registered { .. } if !is_over => None,
            buffer => match std::mem::replace(buffer, Buffer::Gone) {
                Buffer::Owned(memory) => Some(memory),
                Buffer::Registered { region, registration } => {
                    self.port.deregister(registration);
                    self.core.quarantine.reclaim(region)
                }
                Buffer::Lent { .. } | Buffer::Gone => None,
            },
        };
        if is_over {
            self.core.requests.remove(id);
        } else {
            request.collected = true;
            if let Buffer::Lent { .. } = request.buffer {
                request.buffer = Buffer::Gone;
            }
            if let State::AwaitingMatch { exposure, .. } = &mut request.state {
                // From here on the bytes may change.
                *exposure = None;
            }
        }
        Some(match result {
            Ok(status) => Completion { result: Ok(status), memory },
            Err(error) => Completion { result: Err(*error), memory },
        })
    }

    /// Ends a receive from any source for which nothing can come. It is decided here, when it is asked for, and not when
    /// it is posted: a receive may be posted before the send to this rank itself that it is meant for.
    #[cold]
    fn collect_deserted<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let core = &mut self.core;
        let request = core.requests.get(id)?;
        if let State::AwaitingMessage(posted) = request.state
            && core.is_in_vain(request)
        {
            core.matcher.cancel(posted);
            core.finish(id, Err(Error::Deserted));
            return self.collect(id, lent);
        }
        None
    }

    /// Lets go of a request whose end nobody wants to know. It ends unless it was matched; a matched one goes on if it owns
    /// its memory.
    pub fn forget(&mut self, id: RequestId) {
        self.withdraw_unmatched(id);
        let lent = |request: &Request| matches!(request.buffer, Buffer::Lent { .. });
        if self.core.requests.get(id).is_some_and(|request| request.result.is_none() && lent(request)) {
            // Matched, it would go on; but nobody will lend it its buffer any more.
            self.core.give_up(id, Error::Cancelled { fate: Fate::Unknown });
            self.drive(&mut ());
        }
        if self.collect(id, &mut ()).is_none()
            && let Some(request) = self.core.requests.get_mut(id)
        {
            request.collected = true;
        }
    }

    /// Lets go of all requests whose buffers are the callers', which may take those back: nothing reads or writes them any more.
    pub fn forget_lent(&mut self) {
        let lent = |request: &Request| matches!(request.buffer, Buffer::Lent { .. });
        for id in self.core.requests.select(lent) {
            self.forget(id);
        }
    }

    /// Lets no peer read any more what sends have exposed, and says nothing of it: those that try find out.
    pub fn conceal(&mut self) {
        for id in self.core.requests.select(Request::is_send) {
            let request = self.core.requests.get_mut(id);
            if let Some(State::AwaitingRoom { exposure } | State::AwaitingMatch { exposure, .. }) =
                request.map(|request| &mut request.state)
            {
                *exposure = None;
            }
        }
    }

    /// Drives everything: the port's events, queued packets, transfers, deadlines. Returns the number of
    /// events; 0 means idle.
    ///
    /// # Errors
    /// [`Error::Port`] if the port is broken.
    #[inline]
    pub fn poll<L: Lent>(&mut self, now_ns: u64, lent: &mut L) -> Result<usize, Error> {
        self.core.now_ns = now_ns;
        self.core.taken = 0;
        let events = self.port.poll(&mut Inbound::new(&mut self.core, lent))?;
        if self.core.has_work() {
            self.drive_timed(lent, events);
        }
        Ok(events)
    }

    /// Whether it seems that [`Engine::poll`] would find nothing to do: see [`Port::seems_idle`].
    #[inline(always)]
    pub fn seems_idle(&self) -> bool {
        self.port.seems_idle() && !self.core.has_work()
    }

    /// When to call [`Engine::poll`] at the latest, whatever the port reports: at the next deadline or repeated hello,
    /// at once (0) if there is work left that the port had no room for, an address is wanted, or [`Engine::recv`] has taken
    /// packets, which may have ended other requests; never (`u64::MAX`).
    pub fn due_ns(&self) -> u64 {
        let core = &self.core;
        if core.taken > 0 || core.has_work() || !core.wanted.is_empty() {
            return 0;
        }
        core.timers.next_ns()
    }

    /// Wants the address of a rank that has not been met: as a message to it does.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn seek(&mut self, rank: u32) -> Result<(), Error> {
        self.core.check_rank(rank)?;
        let index = self.core.peers.find(rank).unwrap_or_else(|| self.core.peers.meet(rank));
        if self.core.peers[index].is_alive() {
            self.core.seek(index);
        }
        Ok(())
    }

    /// Ranks whose address is wanted: give it with [`Engine::introduce`].
    pub fn wanted(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.core.wanted.drain(..)
    }

    /// Tells where a rank is, and in which life. News of an earlier life than the known one is ignored; of a
    /// later one, the known one has failed.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn introduce(&mut self, rank: u32, incarnation: u32, address: Address) -> Result<(), Error> {
        self.core.check_rank(rank)?;
        let index = self.core.peers.find(rank).unwrap_or_else(|| self.core.peers.meet(rank));
        self.core.callers.push((index, Place { incarnation, address }));
        self.drive(&mut ());
        Ok(())
    }

    /// Takes packets that the port has at hand, until one is the message that a receive asks for: which message that is, if
    /// one came. Those come before it that were sent before, and the receives that are posted.
    #[inline(never)]
    fn receive_unposted<L: Lent>(
        &mut self,
        pattern: Pattern,
        buffer: &mut [u8],
        lent: &mut L,
    ) -> Option<Status> {
        let unposted = Some(Unposted { pattern, buffer, got: None });
        let mut inbound = Inbound { core: &mut self.core, lent, unposted };
        let mut got = None;
        while got.is_none() && inbound.core.may_take() && self.port.next_packet(&mut inbound) {
            inbound.core.taken += 1;
            got = inbound.unposted.as_ref().and_then(|unposted| unposted.got);
        }
        if self.core.has_work() {
            self.drive(lent);
        }
        got
    }

    #[inline(always)]
    fn post<L: Lent>(
        &mut self,
        now_ns: u64,
        pattern: Pattern,
        buffer: impl FnOnce() -> Buffer,
        deadline_ns: u64,
        lent: &mut L,
    ) -> Result<(RequestId, Outcome), Error> {
        let core = &mut self.core;
        core.now_ns = now_ns;
        let Pattern { context, source, tag, .. } = pattern;
        let id = core.requests.next_id();
        match core.matcher.post(pattern, id) {
            Posting::Queued(posted) => {
                if let Some(failure) = core.source_failure(&pattern) {
                    core.matcher.cancel(posted);
                    return Err(failure);
                }
                let state = State::AwaitingMessage(posted);
                let told = || Partner::Any { told: core.failures.told(context) };
                let partner = source.as_rank().map_or_else(told, Partner::Rank);
                core.requests.insert(Request::new(state, buffer(), partner, context, tag, now_ns));
                core.set_deadline(id, deadline_ns);
                Ok((id, Outcome::Pending))
            }
            Posting::Matched { envelope, unexpected, .. } => {
                let (state, partner) = (State::Over, Partner::Rank(envelope.source));
                core.requests.insert(Request::new(state, buffer(), partner, context, tag, now_ns));
                core.set_deadline(id, deadline_ns);
                core.matched(&envelope, &unexpected);
                core.accept(id, &envelope, unexpected, lent);
                if self.core.has_work() {
                    self.drive(lent);
                }
                Ok((id, self.outcome(id)))
            }
            Posting::Refused(_) => {
                let (what, hint) = ("memory for posted receives", "post fewer at a time");
                Err(Error::Exhausted { what, hint: hint.into() })
            }
        }
    }
}

impl Core {
    /// The index of a peer that takes part.
    #[inline(always)]
    fn peer(&mut self, rank: u32) -> Result<u32, Error> {
        let index = match self.peers.find(rank) {
            Some(index) => index,
            None => {
                self.check_rank(rank)?;
                self.peers.meet(rank)
            }
        };
        if self.peers[index].is_alive() {
            return Ok(index);
        }
        let cause = self.peers[index].failure().unwrap_or(Cause::Lost);
        Err(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    fn check_rank(&self, rank: u32) -> Result<(), Error> {
        let size = self.identity.size;
        if rank < size { Ok(()) } else { Err(Error::InvalidRank { rank, size }) }
    }

    fn check_source(&self, pattern: &Pattern) -> Result<(), Error> {
        pattern.source.as_rank().map_or(Ok(()), |rank| self.check_rank(rank))
    }

    /// Why nothing will come from the source, if it is one rank.
    #[inline(always)]
    fn source_failure(&mut self, pattern: &Pattern) -> Option<Error> {
        let rank = pattern.source.as_rank()?;
        let index = self.peers.find(rank)?;
        if self.peers[index].is_alive() {
            return None;
        }
        let cause = self.peers[index].failure()?;
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// What is to be said where no message has arrived.
    fn nothing_from<T>(&mut self, pattern: &Pattern) -> Result<Option<T>, Error> {
        let failure = match self.source_failure(pattern) {
            None if pattern.source.is_any() => {
                let told = self.failures.tell_next(pattern.context);
                told.or_else(|| self.is_deserted().then_some(Error::Deserted))
            }
            failure => failure,
        };
        failure.map_or(Ok(None), Err)
    }

    /// Ends a request, unless it has its result already: then only the protocol's part of it ends.
    fn finish(&mut self, id: RequestId, result: Result<Status, Error>) {
        let Some(request) = self.requests.get_mut(id) else { return };
        request.state = State::Over;
        if request.collected {
            if let Buffer::Registered { region, registration } =
                std::mem::replace(&mut request.buffer, Buffer::Gone)
            {
                self.retired.push((region, registration));
            }
            self.requests.remove(id);
        } else if request.result.is_none() {
            match result {
                Ok(status) => request.succeed(status),
                Err(error) => request.fail(error),
            }
        }
    }

    /// Whether memory may be left with a port until its operation has ended, which may be never.
    fn leaves_memory(&self, limits: &Limits) -> bool {
        limits.fence || self.quarantine.bytes() < self.config.quarantine_max as u64
    }

    /// Whether a receive may take packets by itself: no message waits that could be its own.
    #[inline]
    fn may_take(&self) -> bool {
        self.matcher.unexpected_len() == 0 && self.taken < TAKEN_MAX
    }

    /// Whether [`Engine::drive`] would find anything to do.
    #[inline]
    fn has_work(&self) -> bool {
        // Every poll asks: one branch for all of them.
        let lists = self.senders.len()
            | self.movers.len()
            | self.starving.len()
            | self.severed.len()
            | self.callers.len()
            | self.retired.len();
        lists != 0 || self.timers.next_ns() <= self.now_ns
    }
}

/// What an envelope says of a message of so many bytes.
fn status_of(envelope: &Envelope, bytes: usize) -> Status {
    Status { source: envelope.source, tag: envelope.tag, bytes }
}

/// Packets that receives take between two polls: however many come from one peer, the others have their turn.
const TAKEN_MAX: usize = 1024;

#[cfg(test)]
mod tests;
