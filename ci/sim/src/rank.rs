//! A simulated rank: its engine and its pending requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use samite_fabric::layout::{Readable, Writable};
use samite_fabric::sim::SimPort;
use samite_fabric::{Memory, Port, Reach};
use samite_p2p::{
    Cause, Claimed, Completion, Engine, Error, How, Lent, Mode as SendMode, Outcome, Pattern, Received,
    RequestId, SendBuffer, Sent, Source, Status, Time, Typed, WorldRank,
};

use crate::comms::Comms;
use crate::ledger::{
    CLASS_BITS, Ledger, Message, Mode, Process, Receive, RecvEnd, SendEnd, UNTOUCHED, content, require,
};
use crate::parts::Half;

pub(crate) const NEVER: u64 = u64::MAX;

/// One incarnation of a rank.
pub(crate) struct Rank {
    pub(crate) process: Process,
    pub(crate) engine: Engine<SimPort>,
    /// The buffer of the rank's buffered sends.
    buffer: Arc<SendBuffer>,
    pub(crate) paused: bool,
    pub(crate) leaving: bool,
    /// The engine's count of failed peers when it was last read.
    pub(crate) peers_failed: u64,
    /// The number of polls, which decides when the invariants are checked.
    polls: u64,
    pub(crate) pending: BTreeMap<RequestId, Pending>,
    /// Messages claimed and not yet received, each with its index among the receives.
    pub(crate) claimed: Vec<(usize, Claimed)>,
    /// Requests that must have ended after the next poll, each with the reason: its peer has ended, the sender of its
    /// claimed message has ended, or the request was cancelled.
    doomed: Vec<(RequestId, &'static str)>,
    /// Incarnations of other ranks that this rank knows to have ended.
    ends: BTreeSet<Process>,
    /// Groups of requests that were started together: if one fails, the others of its group are given up.
    groups: Vec<BTreeSet<RequestId>>,
    /// The number of requests started so far. Of three consecutive requests, the first is not watched, and the other
    /// two are watched by watchers 1 and 2.
    started: u32,
    /// Pairs of context and rank: some receive or probe from any source in that context has reported that rank's
    /// failure.
    told: BTreeSet<(u32, u32)>,
    pub(crate) comms: Comms,
    /// The partitioned sends and receives.
    pub(crate) halves: Vec<Half>,
}

/// A request that has not been collected.
pub(crate) struct Pending {
    what: What,
    /// The lent buffer, with the bytes received so far.
    lent: Option<Vec<u8>>,
    received: Option<Status>,
    pub(crate) deadline_ns: u64,
    /// The watcher of the request, and the key by which that watcher knows the request.
    watch: Option<(u32, u32)>,
    /// True if the watcher has reported the request.
    is_reported: bool,
}

impl Pending {
    pub(crate) fn new(what: What, lent: Option<Vec<u8>>, deadline_ns: u64) -> Self {
        Self { what, lent, received: None, deadline_ns, watch: None, is_reported: false }
    }
}

const WATCHERS: u32 = 2;

/// The invariants are checked after each poll that brings an event, and after one in this many polls in any case. Most
/// polls bring none, and a check after each of them takes half of the time of a simulation.
const CHECK_IDLE: u64 = 8;

/// The number of repeated reports after which one call of `take_reports` asks a watcher no more. Reports are repeated
/// because a receive is reported for each failure and at its end, and because a receive from any rank is reported until
/// it is collected, if all other ranks have left.
const REPEATS_MAX: usize = 300;

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Send(usize),
    Receive(usize),
    /// A round of a partitioned message.
    Round {
        partner: u32,
    },
}

/// The owner of a request's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffer {
    Owned,
    Lent,
}

impl Rank {
    pub(crate) fn new(process: Process, mut engine: Engine<SimPort>, buffer_max: usize) -> Self {
        (1..=WATCHERS).for_each(|watcher| assert_eq!(engine.add_watcher(), watcher));
        Self {
            process,
            engine,
            buffer: Arc::new(SendBuffer::new(buffer_max)),
            paused: false,
            leaving: false,
            peers_failed: 0,
            polls: 0,
            pending: BTreeMap::new(),
            claimed: Vec::new(),
            doomed: Vec::new(),
            ends: BTreeSet::new(),
            groups: Vec::new(),
            started: 0,
            told: BTreeSet::new(),
            comms: Comms::default(),
            halves: Vec::new(),
        }
    }

    /// Returns true if the rank takes part in the traffic.
    pub(crate) fn acts(&self) -> bool {
        !self.paused && !self.leaving
    }

    pub(crate) fn send(
        &mut self,
        ledger: &mut Ledger,
        now_ns: u64,
        message: Message,
        buffer: Buffer,
        deadline_ns: u64,
    ) -> Result<(), String> {
        let index = ledger.messages.len();
        let (to, context, tag, typed) = (message.to, message.context, message.tag(index), message.typed);
        let space = Arc::clone(&self.buffer);
        let mode = match message.mode {
            Mode::Standard => typed.map(|_| SendMode::Standard),
            Mode::Synchronous => Some(SendMode::Synchronous),
            Mode::Buffered => Some(SendMode::Buffered(&space)),
            Mode::Ready => Some(SendMode::Ready),
        };
        let how = mode.map(|mode| How { mode, typed });
        let status = Status { source: WorldRank(to), tag, bytes: message.bytes };
        let data = content(index, message.bytes);
        ledger.messages.push(message);
        let sent = match buffer {
            Buffer::Lent if let Some(how) = how => {
                let (now, deadline) = (Time::from_nanos(now_ns), Time::from_nanos(deadline_ns));
                self.engine.send_with(how, now, WorldRank(to), context, tag, data.as_slice(), deadline)
            }
            Buffer::Owned if let Some(how) = how => {
                let (now, deadline) = (Time::from_nanos(now_ns), Time::from_nanos(deadline_ns));
                let memory = Memory::new(data.clone());
                let sent = self.engine.isend_with(how, now, WorldRank(to), context, tag, memory, deadline);
                sent.map(Sent::Pending).map_err(|(error, _)| error)
            }
            Buffer::Lent => self.engine.send(
                Time::from_nanos(now_ns),
                WorldRank(to),
                context,
                tag,
                &data,
                Time::from_nanos(deadline_ns),
            ),
            // Send as a persistent send does: try to send at once, and start a request if that is not possible.
            Buffer::Owned if index.is_multiple_of(2) => {
                let memory = Memory::new(data.clone());
                match self.engine.try_send(Time::from_nanos(now_ns), WorldRank(to), context, tag, &memory) {
                    Ok(true) => Ok(Sent::Now),
                    Ok(false) => self.isend(now_ns, (to, context, tag), &data, deadline_ns),
                    Err(error) => Err(error),
                }
            }
            Buffer::Owned => self.isend(now_ns, (to, context, tag), &data, deadline_ns),
        };
        match sent {
            Ok(Sent::Pending(id)) => {
                let lent = (buffer == Buffer::Lent).then_some(data);
                self.add(id, Pending::new(What::Send(index), lent, deadline_ns));
                Ok(())
            }
            Ok(Sent::Now | Sent::Copied) => ledger.sent(index, &Ok(status)),
            Err(error) => ledger.sent(index, &Err(error)),
        }
    }

    fn isend(
        &mut self,
        now_ns: u64,
        (to, context, tag): (u32, u32, u64),
        data: &[u8],
        deadline_ns: u64,
    ) -> Result<Sent, Error> {
        let memory = Memory::new(data.to_vec());
        let (now, deadline) = (Time::from_nanos(now_ns), Time::from_nanos(deadline_ns));
        let sent = self.engine.isend(now, WorldRank(to), context, tag, memory, deadline);
        sent.map(Sent::Pending).map_err(|(error, _)| error)
    }

    pub(crate) fn receive(
        &mut self,
        ledger: &mut Ledger,
        now_ns: u64,
        pattern: Pattern,
        (room, typed): (usize, Option<Typed>),
        buffer: Buffer,
        deadline_ns: u64,
    ) -> Result<(), String> {
        let index = ledger.receives.len();
        let name = self.comms.name(pattern.context);
        ledger.receives.push(Receive {
            at: self.process,
            pattern,
            name,
            room,
            claims: None,
            typed,
            end: None,
        });
        let mut memory = vec![UNTOUCHED; room];
        let (now, deadline) = (Time::from_nanos(now_ns), Time::from_nanos(deadline_ns));
        let received = match (buffer, typed) {
            (Buffer::Lent, None) => self.engine.recv(now, pattern, &mut memory, 0, deadline, &mut ()),
            (Buffer::Lent, Some(typed)) => {
                self.engine.recv_typed(typed, now, pattern, memory.as_mut_slice(), 0, deadline)
            }
            (Buffer::Owned, typed) => {
                let owned = Memory::new(std::mem::take(&mut memory));
                let received = match typed {
                    None => self.engine.irecv(now, pattern, owned, deadline),
                    Some(typed) => self.engine.irecv_typed(typed, now, pattern, owned, deadline),
                };
                received.map(Received::Pending).map_err(|(error, _)| error)
            }
        };
        let lent = (buffer == Buffer::Lent).then_some(memory);
        match received {
            Ok(Received::Pending(id)) => {
                self.add(id, Pending::new(What::Receive(index), lent, deadline_ns));
                Ok(())
            }
            Ok(Received::Now(status)) => {
                ledger.received(index, &Ok(status), lent.as_deref(), deadline_ns, now_ns)
            }
            Err(Error::PeerFailed { .. } | Error::Deserted) => {
                ledger.receives[index].end = Some(RecvEnd::Unmatched { until_ns: now_ns });
                Ok(())
            }
            Err(error) => ledger.received(index, &Err(error), lent.as_deref(), deadline_ns, now_ns),
        }
    }

    pub(crate) fn add(&mut self, id: RequestId, mut pending: Pending) {
        let (key, watcher) = (self.started, self.started % (WATCHERS + 1));
        self.started += 1;
        if watcher > 0 {
            self.engine.watch(id, watcher, key);
            pending.watch = Some((watcher, key));
        }
        self.pending.insert(id, pending);
    }

    /// Takes the reports of the watchers. Each must be about a watched request that has ended or has a failure to
    /// report.
    fn take_reports(&mut self) -> Result<(), String> {
        for watcher in 1..=WATCHERS {
            let mut repeats = 0;
            while repeats < REPEATS_MAX
                && let Some((id, key)) = self.engine.take_end(watcher)
            {
                let is_over = self.engine.outcome(id) != Outcome::Pending;
                let Some(pending) = self.pending.get_mut(&id) else {
                    return Err(format!("the end of {id:?} was reported, which is not pending"));
                };
                repeats += usize::from(std::mem::replace(&mut pending.is_reported, true));
                require(is_over && pending.watch == Some((watcher, key)), || {
                    format!(
                        "watcher {watcher} reported {id:?} with key {key}, watched as {:?}",
                        pending.watch
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Probes for a message and claims it. Returns true if there was one.
    pub(crate) fn claim(&mut self, ledger: &mut Ledger, pattern: Pattern) -> Result<bool, String> {
        let mut probed = self.engine.probe(&pattern);
        while let Err(Error::FailurePending { rank, .. }) = probed {
            self.told.insert((pattern.context, rank.0));
            probed = self.engine.probe(&pattern);
        }
        // A receive that has ended may have reported a failure, which this rank knows only after it has collected the
        // receive.
        let all_collected = || self.pending.keys().all(|&id| self.engine.outcome(id) != Outcome::Ready);
        if let (Ok(None), true) = (&probed, pattern.source.is_any())
            && all_collected()
        {
            self.check_told(pattern.context)?;
        }
        match (probed, self.engine.claim(&pattern)) {
            (Ok(Some(probed)), Ok(Some((status, claimed)))) => {
                require(probed == status, || format!("probed {probed:?}, claimed {status:?}"))?;
                self.claimed.push((ledger.receives.len(), claimed));
                let claims = Some((status.tag >> CLASS_BITS) as usize);
                let (at, room) = (self.process, status.bytes);
                let name = self.comms.name(pattern.context);
                ledger.receives.push(Receive { at, pattern, name, room, claims, typed: None, end: None });
                Ok(true)
            }
            (Ok(None), Ok(None)) => Ok(false),
            (Err(probed @ (Error::PeerFailed { .. } | Error::Deserted)), Err(claimed))
                if probed == claimed =>
            {
                Ok(false)
            }
            (probed, claimed) => Err(format!("probed {probed:?}, claimed {claimed:?}")),
        }
    }

    /// Checks that receives and probes from any source in this context have reported every failure.
    fn check_told(&mut self, context: u32) -> Result<(), String> {
        if context >= 2 {
            // In a context of a communicator, only those failures of members are reported that came after the context
            // was opened.
            return Ok(());
        }
        let met: Vec<u32> = self.engine.traffic().map(|(rank, _)| rank.0).collect();
        for rank in met {
            match self.engine.failure(WorldRank(rank)) {
                None => self.told.retain(|&(_, told)| told != rank),
                Some(Cause::Left) => {}
                Some(cause) => require(self.told.contains(&(context, rank)), || {
                    format!("of rank {rank} ({cause:?}) nobody was told in context {context}")
                })?,
            }
        }
        Ok(())
    }

    /// Receives one of the claimed messages, or discards it if there is no buffer.
    pub(crate) fn receive_claimed(
        &mut self,
        ledger: &mut Ledger,
        now_ns: u64,
        which: u64,
        buffer: Option<Buffer>,
        typed: Option<Typed>,
    ) -> Result<(), String> {
        if self.claimed.is_empty() {
            return Ok(());
        }
        let (index, claimed) = self.claimed.remove(which as usize % self.claimed.len());
        let Some(buffer) = buffer else {
            ledger.receives[index].end = Some(RecvEnd::GivenUp);
            self.engine.discard(Time::from_nanos(now_ns), claimed);
            return Ok(());
        };
        let room = ledger.receives[index].room;
        let memory = vec![UNTOUCHED; room];
        let (into, lent) = match buffer {
            Buffer::Owned => (Ok(Memory::new(memory)), None),
            Buffer::Lent => (Err(room), Some(memory)),
        };
        ledger.receives[index].typed = typed;
        let now = Time::from_nanos(now_ns);
        let id = self.engine.recv_claimed_as(typed, now, claimed, into, Time::NEVER);
        if let Some(message) = ledger.receives[index].claims
            && self.ends.contains(&ledger.messages[message].from)
        {
            self.doomed.push((id, "the sender of its claim had ended"));
        }
        self.add(id, Pending::new(What::Receive(index), lent, NEVER));
        Ok(())
    }

    /// Gives up the claimed messages of a communicator.
    pub(crate) fn give_up_claims(&mut self, ledger: &mut Ledger, now_ns: u64, name: u64) {
        let is_in = |(index, _): &mut (usize, Claimed)| ledger.receives[*index].name == name;
        let given_up: Vec<_> = self.claimed.extract_if(.., is_in).collect();
        for (index, claimed) in given_up {
            ledger.receives[index].end = Some(RecvEnd::GivenUp);
            self.engine.discard(Time::from_nanos(now_ns), claimed);
        }
    }

    /// Returns true if this rank keeps no message whose send has returned, in the outbox or in a buffer.
    pub(crate) fn has_sent(&self) -> bool {
        self.engine.usage().outbox == 0
    }

    /// Leaves in good order. Gives up the claimed messages, because a rank that leaves may wait until they are
    /// received.
    pub(crate) fn leave(&mut self, ledger: &mut Ledger, now_ns: u64) {
        self.leaving = true;
        self.comms.give_up();
        self.free_halves(&mut ledger.sides, Time::from_nanos(now_ns));
        for (index, claimed) in self.claimed.drain(..) {
            ledger.receives[index].end = Some(RecvEnd::GivenUp);
            self.engine.discard(Time::from_nanos(now_ns), claimed);
        }
        self.engine.close(Time::from_nanos(now_ns));
    }

    /// Cancels a request. A send ends at once unless its receiver may be reading the sender's memory through the port.
    pub(crate) fn cancel(&mut self, ledger: &mut Ledger, id: RequestId) {
        self.give_up_round(&mut ledger.sides, id);
        self.engine.cancel(id);
        if let Some(Pending { what: What::Send(_), lent, .. }) = self.pending.get(&id)
            && (lent.is_some() || self.engine.port().caps().get == Reach::None)
        {
            self.doomed.push((id, "it was cancelled"));
        }
    }

    pub(crate) fn forget(&mut self, ledger: &mut Ledger, now_ns: u64, id: RequestId) {
        if self.engine.outcome(id) == Outcome::Ready {
            // The request has ended, perhaps with a failure that is reported only once. The next poll handles it.
            return;
        }
        if let Some(What::Round { .. }) = self.pending.get(&id).map(|pending| pending.what) {
            self.forget_round(&mut ledger.sides, Time::from_nanos(now_ns), id);
            return;
        }
        self.engine.forget(id);
        match self.pending.remove(&id).map(|pending| pending.what) {
            Some(What::Send(index)) => ledger.messages[index].end = Some(SendEnd::Unknown),
            Some(What::Receive(index)) => ledger.receives[index].end = Some(RecvEnd::GivenUp),
            Some(What::Round { .. }) | None => {}
        }
    }

    /// Groups the requests that are not in `before`.
    pub(crate) fn group(&mut self, before: &BTreeSet<RequestId>) {
        self.groups.push(self.pending.keys().filter(|id| !before.contains(id)).copied().collect());
    }

    /// Gives up the requests that were started together with a failed request.
    fn give_up_group(&mut self, ledger: &mut Ledger, now_ns: u64, failed: RequestId) {
        let Some(at) = self.groups.iter().position(|group| group.contains(&failed)) else { return };
        for id in self.groups.swap_remove(at) {
            self.forget(ledger, now_ns, id);
        }
    }

    /// Notes the end of an incarnation. Pending requests with it must end.
    pub(crate) fn note_end(&mut self, ledger: &Ledger, process: Process) {
        self.ends.insert(process);
        for (id, pending) in &self.pending {
            let with = match pending.what {
                What::Send(index) => Some(ledger.messages[index].to),
                What::Receive(index) => ledger.receives[index].pattern.source.as_rank(),
                What::Round { partner } => Some(partner),
            };
            if with == Some(process.rank) {
                self.doomed.push((*id, "its peer had ended"));
            }
        }
    }

    pub(crate) fn set_deadline(&mut self, ledger: &mut Ledger, id: RequestId, deadline_ns: u64) {
        self.give_up_round(&mut ledger.sides, id);
        self.engine.set_deadline(id, Time::from_nanos(deadline_ns));
        self.pending.entry(id).and_modify(|pending| pending.deadline_ns = deadline_ns);
    }

    /// Polls and collects the requests that have ended. Returns the number of events and ends.
    pub(crate) fn poll(&mut self, ledger: &mut Ledger, now_ns: u64, lends: bool) -> Result<usize, String> {
        let mut lender = Lender { pending: &mut self.pending, lends };
        let mut events =
            self.engine.poll(Time::from_nanos(now_ns), &mut lender).map_err(|error| format!("{error:?}"))?;
        self.polls += 1;
        if events > 0 || self.polls.is_multiple_of(CHECK_IDLE) {
            self.engine.check_invariants();
        }
        self.take_reports()?;
        events += self.take_created()?;
        let ids: Vec<_> = self.pending.keys().copied().collect();
        let mut failed = Vec::new();
        for id in ids {
            match self.engine.outcome(id) {
                Outcome::Pending => {}
                Outcome::FailurePending => {
                    let told = self.engine.failure_pending(id);
                    let (Some(Error::FailurePending { rank, .. }), What::Receive(index)) =
                        (&told, self.pending[&id].what)
                    else {
                        return Err(format!("told {told:?}"));
                    };
                    self.told.insert((ledger.receives[index].pattern.context, rank.0));
                    events += 1;
                }
                Outcome::Ready => {
                    if !self.collect(ledger, now_ns, id)? {
                        failed.push(id);
                    }
                    events += 1;
                }
            }
        }
        for id in failed {
            self.give_up_group(ledger, now_ns, id);
        }
        for (id, why) in std::mem::take(&mut self.doomed) {
            require(!self.pending.contains_key(&id), || format!("{id:?} goes on, though {why}"))?;
        }
        self.groups.retain(|group| group.iter().any(|id| self.pending.contains_key(id)));
        Ok(events)
    }

    /// Collects a request that has ended, and records its result. Returns true if the request has succeeded.
    fn collect(&mut self, ledger: &mut Ledger, now_ns: u64, id: RequestId) -> Result<bool, String> {
        let mut lender = Lender { pending: &mut self.pending, lends: true };
        let collected = self.engine.collect(id, &mut lender);
        let again = self.engine.collect(id, &mut ());
        require(again.is_none(), || format!("{id:?} was collected twice"))?;
        let Some(pending) = self.pending.remove(&id) else {
            return Ok(true);
        };
        let Pending { what, lent, received, deadline_ns, watch, is_reported } = pending;
        let (result, memory) = match (received, collected) {
            (Some(status), None) => (Ok(status), None),
            (None, Some(Completion { result, memory })) => (result, memory),
            (received, collected) => {
                return Err(format!("{id:?}: its lender knows {received:?}, the engine {collected:?}"));
            }
        };
        // The end of a watched request must be reported, with two exceptions. The lender of its buffer has the result
        // already. Or the result is the error `Deserted`: the engine records no event when the last possible sender
        // ends, and checks for it only when the caller asks, so the end may be collected before it is reported.
        let must_be_reported = watch.is_some() && received.is_none() && result != Err(Error::Deserted);
        require(is_reported || !must_be_reported, || {
            format!("the end of {id:?} was not reported: {result:?}")
        })?;
        let owned = memory.map(|memory| memory.as_bytes().to_vec());
        let succeeded = result.is_ok();
        match what {
            What::Send(index) => {
                if let (Ok(_), None) = (&result, &lent) {
                    let bytes = content(index, ledger.messages[index].bytes);
                    require(owned == Some(bytes), || {
                        format!("message {index}: its memory did not come back")
                    })?;
                }
                ledger.sent(index, &result)?;
            }
            What::Receive(index) => {
                if let Err(Error::Deserted) = &result {
                    self.check_told(ledger.receives[index].pattern.context)?;
                }
                let got = matches!(result, Ok(_) | Err(Error::Truncated { .. } | Error::TypesDiffer { .. }));
                require(lent.is_some() || owned.is_some() || !got, || {
                    format!("receive {index}: its memory did not come back")
                })?;
                ledger.received(index, &result, lent.or(owned).as_deref(), deadline_ns, now_ns)?;
            }
            What::Round { .. } => self.end_round(&mut ledger.sides, id, result)?,
        }
        Ok(succeeded)
    }
}

/// Lends the buffers of all requests if `lends` is true, and otherwise none.
struct Lender<'a> {
    pending: &'a mut BTreeMap<RequestId, Pending>,
    lends: bool,
}

impl Lent for Lender<'_> {
    fn read(&self, request: RequestId, _: u32) -> Option<Readable<'_>> {
        self.pending.get(&request).filter(|_| self.lends)?.lent.as_deref().map(Readable::from)
    }

    fn write(&mut self, request: RequestId, _: u32) -> Option<Writable<'_>> {
        self.pending.get_mut(&request).filter(|_| self.lends)?.lent.as_deref_mut().map(Writable::from)
    }

    fn received(&mut self, request: RequestId, _: u32, status: Status) -> bool {
        self.pending.entry(request).and_modify(|pending| pending.received = Some(status));
        true
    }
}

/// Returns the pattern of a receive. `None` stands for any source, and for any class of messages.
pub(crate) fn pattern(context: u32, source: Option<u32>, class: Option<u64>) -> Pattern {
    Pattern {
        context,
        source: source.map_or(Source::ANY, Source::rank),
        tag: class.unwrap_or(0),
        mask: if class.is_some() { (1 << CLASS_BITS) - 1 } else { 0 },
    }
}
