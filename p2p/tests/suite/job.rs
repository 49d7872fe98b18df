//! A job whose ranks all live in one thread and are polled in turn, over any port.

use std::collections::BTreeMap;

use samite_fabric::layout::{Elements, Form, Readable, Room, Writable};
use samite_fabric::port::gather;
use samite_fabric::{Caps, Memory, Port, Reach};
use samite_p2p::{
    Cause, Claimed, Completion, Config, Engine, Error, How, Identity, Lent, Outcome, Pattern, Received,
    RequestId, Sent, Status, Time, Typed, Usage, WorldRank,
};

pub(crate) const NEVER: Time = Time::NEVER;
/// If nothing happens for this time, nothing more will happen.
pub(crate) const SOON_NS: u64 = 5_000_000;
const QUIET_POLLS: u32 = 300;
/// Time limit of a case.
const PATIENCE_NS: u64 = 60_000_000_000;
pub(crate) const INCARNATION: u32 = 7;
const UNTOUCHED: u8 = 0xee;
/// The bytes between the blocks of scattered messages.
const GAP: u8 = 0xdd;

/// The source of ports, and their clock.
pub(crate) trait Medium {
    type Port: Port;
    fn open(&mut self, rank: u32) -> Self::Port;
    fn now_ns(&self) -> u64;
    /// Called when no rank has anything to do.
    fn rest(&mut self);
    /// Kills a rank without notice.
    fn kill(&mut self, _rank: u32) {}
    /// Returns true if long messages are exposed for reading.
    fn exposes(&self) -> bool {
        false
    }
    /// Returns true if polls find all arrived packets without an empty poll in between.
    fn is_prompt(&self) -> bool {
        true
    }
    /// Returns true if borrowed messages are scattered over the memory of their sender.
    fn scatters_sent(&self) -> bool {
        false
    }
    /// Returns true if borrowed messages are scattered over the memory of their receiver.
    fn scatters_received(&self) -> bool {
        false
    }
    /// Returns true if exposed memory can be read.
    fn reads(&self) -> bool {
        false
    }
}

pub(crate) struct Job<M: Medium> {
    pub(crate) medium: M,
    config: Config,
    engines: Vec<Option<Engine<M::Port>>>,
    buffers: Vec<Buffers>,
    incarnations: Vec<u32>,
    /// The number of polls of all ranks, and of those since the latest check after which a check was due.
    polls: usize,
    unchecked: usize,
}

/// The invariants are checked after each poll that brings an event, and after one in this many polls in any case.
const CHECK_EVERY: usize = 8;

/// A check takes time in proportion to the operations and messages of the rank. So if there are more than this number,
/// the invariants are checked after fewer polls.
const CHECKED_OFTEN: usize = 200;

/// An operation that is under way or has ended.
#[derive(Debug)]
#[must_use]
pub(crate) struct Op {
    pub(crate) rank: usize,
    pub(crate) id: Option<RequestId>,
    done: Option<Done>,
}

impl Op {
    /// Returns an operation that was started at the engine.
    pub(crate) fn of(rank: usize, id: RequestId) -> Self {
        Self { rank, id: Some(id), done: None }
    }
}

/// The result of an operation, and the contents of its memory.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) result: Result<Status, Error>,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Done {
    /// Returns the bytes of a received message, and checks that nothing follows them.
    #[track_caller]
    pub(crate) fn message(self) -> Vec<u8> {
        let status = self.result.expect("it succeeds");
        let mut bytes = self.bytes.expect("its memory came back");
        assert!(bytes[status.bytes..].iter().all(|&byte| byte == UNTOUCHED), "written beyond the message");
        bytes.truncate(status.bytes);
        bytes
    }

    #[track_caller]
    pub(crate) fn error(self) -> Error {
        self.result.expect_err("it fails")
    }
}

/// The owner of an operation's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Owned,
    /// The request owns the memory, but a send makes a request only if its message cannot be sent at once, as a
    /// persistent send does.
    Started,
    Lent,
}

pub(crate) use Whose::{Lent as Borrowed, Owned, Started};

/// The buffers lent to an engine at each poll.
#[derive(Default)]
struct Buffers {
    all: BTreeMap<RequestId, Buffer>,
    /// Messages received into these buffers while they were lent.
    received: BTreeMap<RequestId, Status>,
    withheld: bool,
}

/// Memory, and the form that selects the bytes of a message if they are scattered.
#[derive(Clone)]
struct Buffer {
    memory: Vec<u8>,
    form: Option<Form>,
}

impl Buffer {
    /// Returns a buffer with these bytes.
    fn new(bytes: &[u8], scatters: bool) -> Self {
        let form = scatters.then(|| form(bytes.len()));
        let memory = match &form {
            None => bytes.to_vec(),
            Some(form) => {
                let mut memory = vec![GAP; form.true_bounds()[1].cast_unsigned() + 3];
                form.write(&mut memory).expect("it fits").put(0, bytes);
                memory
            }
        };
        Self { memory, form }
    }

    fn into_memory(self) -> Memory {
        let memory = Memory::new(self.memory);
        match self.form {
            None => memory,
            Some(form) => Memory::scattered::<Vec<u8>>(memory, form, 1, Elements::BYTES).expect("it fits"),
        }
    }

    fn of_memory(memory: Memory) -> Self {
        let form = memory.is_scattered().then(|| form(memory.len()));
        let memory = memory.into_whole().unwrap_or_else(|memory| memory);
        Self { memory: memory.into_vec().expect("bytes"), form }
    }

    fn read(&self) -> Readable<'_> {
        match &self.form {
            None => self.memory.as_slice().into(),
            Some(form) => form.read(&self.memory).expect("it fits"),
        }
    }

    fn write(&mut self) -> Writable<'_> {
        match &self.form {
            None => self.memory.as_mut_slice().into(),
            Some(form) => form.write(&mut self.memory).expect("it fits"),
        }
    }

    /// Returns the bytes of the message, and checks that nothing was written between its blocks.
    #[track_caller]
    fn into_bytes(self) -> Vec<u8> {
        let bytes = gather(&[], &self.read());
        assert!(Self::new(&bytes, self.form.is_some()).memory == self.memory, "written between the blocks");
        bytes
    }
}

/// Returns the form of a scattered message: blocks of 3 bytes, whose starts are 7 bytes apart, and then
/// the remaining bytes.
fn form(len: usize) -> Form {
    let block = |len| Form::block(len).expect("it is short");
    let blocks = block(3).strided(len / 3, 7).expect("it is short");
    Form::list([(2, &blocks), (2 + (len / 3 * 7).cast_signed(), &block(len % 3))]).expect("it is short")
}

impl Lent for Buffers {
    fn read(&self, id: RequestId, _: u32) -> Option<Readable<'_>> {
        self.all.get(&id).filter(|_| !self.withheld).map(Buffer::read)
    }

    fn write(&mut self, id: RequestId, _: u32) -> Option<Writable<'_>> {
        self.all.get_mut(&id).filter(|_| !self.withheld).map(Buffer::write)
    }

    fn received(&mut self, id: RequestId, _: u32, status: Status) -> bool {
        assert!(self.received.insert(id, status).is_none(), "once only");
        true
    }
}

impl<M: Medium> Job<M> {
    pub(crate) fn new(mut medium: M, size: u32, config: &Config) -> Self {
        let ports: Vec<_> = (0..size).map(|rank| medium.open(rank)).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        let mut job = Self {
            medium,
            config: config.clone(),
            engines: Vec::new(),
            buffers: Vec::new(),
            incarnations: vec![INCARNATION; size as usize],
            polls: 0,
            unchecked: 0,
        };
        for (rank, port) in (0..).zip(ports) {
            let identity =
                Identity { rank: WorldRank(rank), size, incarnation: INCARNATION, secret: [9; 16] };
            let mut engine = Engine::new(port, identity, config.clone());
            for (other, address) in (0..).zip(&addresses) {
                engine.introduce(WorldRank(other), INCARNATION, address.clone()).unwrap();
            }
            job.engines.push(Some(engine));
            job.buffers.push(Buffers::default());
        }
        job.settle();
        job
    }

    pub(crate) fn size(&self) -> usize {
        self.engines.len()
    }

    #[track_caller]
    pub(crate) fn engine(&mut self, rank: usize) -> &mut Engine<M::Port> {
        self.engines[rank].as_mut().expect("the rank lives")
    }

    pub(crate) fn caps(&self) -> &Caps {
        self.engines.iter().flatten().next().expect("a rank lives").port().caps()
    }

    /// Returns true if the receiver fetches the bytes of long messages with gets.
    pub(crate) fn pulls(&self) -> bool {
        self.caps().get == Reach::Any
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.medium.now_ns())
    }

    #[track_caller]
    pub(crate) fn send(&mut self, from: usize, to: u32, tag: u64, bytes: &[u8]) -> Op {
        self.send_as(from, to, 0, tag, bytes, Owned, NEVER)
    }

    #[expect(clippy::too_many_arguments, reason = "all that a send can be given")]
    #[track_caller]
    pub(crate) fn send_as(
        &mut self,
        from: usize,
        to: u32,
        context: u32,
        tag: u64,
        bytes: &[u8],
        whose: Whose,
        deadline: Time,
    ) -> Op {
        self.try_send(from, to, context, tag, bytes, whose, deadline).expect("the send begins")
    }

    #[expect(clippy::too_many_arguments, reason = "all that a send can be given")]
    pub(crate) fn try_send(
        &mut self,
        from: usize,
        to: u32,
        context: u32,
        tag: u64,
        bytes: &[u8],
        whose: Whose,
        deadline: Time,
    ) -> Result<Op, Error> {
        let now = self.now();
        let buffer = Buffer::new(bytes, self.medium.scatters_sent());
        let engine = self.engine(from);
        let sent = match whose {
            Started
                if engine.try_send(now, WorldRank(to), context, tag, &buffer.clone().into_memory())? =>
            {
                Sent::Now
            }
            Owned | Started => engine
                .isend(now, WorldRank(to), context, tag, buffer.clone().into_memory(), deadline)
                .map(Sent::Pending)
                .map_err(|(error, _)| error)?,
            Borrowed => engine.send_from(now, WorldRank(to), context, tag, &buffer.read(), deadline)?,
        };
        Ok(self.sent(from, (to, tag), (bytes.len(), buffer), whose, sent))
    }

    /// Starts a send in a mode, or with a signature.
    pub(crate) fn send_in<'a>(
        &mut self,
        how: impl Into<How<'a>>,
        from: usize,
        to: u32,
        tag: u64,
        bytes: &[u8],
        whose: Whose,
    ) -> Result<Op, Error> {
        let now = self.now();
        let buffer = Buffer::new(bytes, whose == Borrowed && self.medium.scatters_sent());
        let engine = self.engine(from);
        let sent = match whose {
            Borrowed => engine.send_with(how, now, WorldRank(to), 0, tag, &buffer.read(), NEVER)?,
            Owned | Started => engine
                .isend_with(how, now, WorldRank(to), 0, tag, Memory::new(bytes.to_vec()), NEVER)
                .map(Sent::Pending)
                .map_err(|(error, _)| error)?,
        };
        Ok(self.sent(from, (to, tag), (bytes.len(), buffer), whose, sent))
    }

    /// Returns the operation of a send that has begun.
    fn sent(
        &mut self,
        from: usize,
        (to, tag): (u32, u64),
        (bytes, buffer): (usize, Buffer),
        whose: Whose,
        sent: Sent,
    ) -> Op {
        match sent {
            Sent::Now | Sent::Copied => {
                let result = Ok(Status { source: WorldRank(to), tag, bytes });
                Op { rank: from, id: None, done: Some(Done { result, bytes: None }) }
            }
            Sent::Pending(id) => {
                if whose == Borrowed {
                    self.buffers[from].all.insert(id, buffer);
                }
                Op { rank: from, id: Some(id), done: None }
            }
        }
    }

    #[track_caller]
    pub(crate) fn recv(&mut self, at: usize, pattern: Pattern, room: usize) -> Op {
        self.recv_as(at, pattern, room, Owned, NEVER)
    }

    #[track_caller]
    pub(crate) fn recv_as(
        &mut self,
        at: usize,
        pattern: Pattern,
        room: usize,
        whose: Whose,
        deadline: Time,
    ) -> Op {
        self.try_recv(at, pattern, room, whose, deadline).expect("the receive begins")
    }

    pub(crate) fn try_recv(
        &mut self,
        at: usize,
        pattern: Pattern,
        room: usize,
        whose: Whose,
        deadline: Time,
    ) -> Result<Op, Error> {
        let now = self.now();
        let mut buffer = Buffer::new(&vec![UNTOUCHED; room], self.medium.scatters_received());
        if whose != Borrowed {
            let posted = self.engine(at).irecv(now, pattern, buffer.into_memory(), deadline);
            return posted.map(|id| Op { rank: at, id: Some(id), done: None }).map_err(|(error, _)| error);
        }
        let engine = self.engines[at].as_mut().expect("the rank lives");
        let lent = &mut self.buffers[at];
        let received = engine.recv_into(now, pattern, &mut buffer.write(), 0, deadline, lent);
        self.received(at, buffer, received)
    }

    /// Starts a receive that checks types.
    #[track_caller]
    pub(crate) fn recv_typed(
        &mut self,
        typed: Typed,
        at: usize,
        pattern: Pattern,
        room: usize,
        whose: Whose,
    ) -> Op {
        let now = self.now();
        let mut buffer = Buffer::new(&vec![UNTOUCHED; room], self.medium.scatters_received());
        let engine = self.engines[at].as_mut().expect("the rank lives");
        if whose != Borrowed {
            let posted = engine.irecv_typed(typed, now, pattern, buffer.into_memory(), NEVER);
            return Op { rank: at, id: Some(posted.expect("the receive begins")), done: None };
        }
        let received = engine.recv_typed(typed, now, pattern, &mut buffer.write(), 0, NEVER);
        self.received(at, buffer, received).expect("the receive begins")
    }

    /// Returns the operation of a receive to a borrowed buffer that has begun.
    fn received(
        &mut self,
        at: usize,
        buffer: Buffer,
        received: Result<Received, Error>,
    ) -> Result<Op, Error> {
        Ok(match received {
            Ok(Received::Now(status)) => Op {
                rank: at,
                id: None,
                done: Some(Done { result: Ok(status), bytes: Some(buffer.into_bytes()) }),
            },
            Ok(Received::Pending(id)) => {
                self.buffers[at].all.insert(id, buffer);
                Op { rank: at, id: Some(id), done: None }
            }
            Err(error @ (Error::Truncated { .. } | Error::TypesDiffer { .. })) => Op {
                rank: at,
                id: None,
                done: Some(Done { result: Err(error), bytes: Some(buffer.into_bytes()) }),
            },
            Err(error) => return Err(error),
        })
    }

    /// Claims the message that `pattern` matches, which must exist.
    #[track_caller]
    pub(crate) fn claim(&mut self, at: usize, pattern: Pattern) -> (Status, Claimed) {
        self.engine(at).claim(&pattern).expect("the source lives").expect("a message waits")
    }

    /// Receives a claimed message of `bytes` bytes.
    #[track_caller]
    pub(crate) fn recv_claim(&mut self, at: usize, claimed: Claimed, bytes: usize, whose: Whose) -> Op {
        self.recv_claim_as(None, at, claimed, bytes, whose)
    }

    /// Receives a claimed message, and checks its types if some are given.
    #[track_caller]
    pub(crate) fn recv_claim_as(
        &mut self,
        typed: Option<Typed>,
        at: usize,
        claimed: Claimed,
        bytes: usize,
        whose: Whose,
    ) -> Op {
        let now = self.now();
        let buffer = Buffer::new(&vec![UNTOUCHED; bytes], self.medium.scatters_received());
        let into = if whose != Borrowed { Ok(buffer.clone().into_memory()) } else { Err(bytes) };
        let id = self.engine(at).recv_claimed_as(typed, now, claimed, into, NEVER);
        if whose == Borrowed {
            self.buffers[at].all.insert(id, buffer);
        }
        Op { rank: at, id: Some(id), done: None }
    }

    /// Claims and receives the message that `pattern` matches, which must exist.
    #[track_caller]
    pub(crate) fn recv_claimed(&mut self, at: usize, pattern: Pattern, whose: Whose) -> (Status, Op) {
        let (status, claimed) = self.claim(at, pattern);
        (status, self.recv_claim(at, claimed, status.bytes, whose))
    }

    /// Withholds the borrowed buffers of a rank from its engine, as if their owners made no call.
    pub(crate) fn withhold(&mut self, rank: usize, withheld: bool) {
        self.buffers[rank].withheld = withheld;
    }

    pub(crate) fn cancel(&mut self, op: &Op) {
        if let Some(id) = op.id {
            self.engine(op.rank).cancel(id);
        }
    }

    pub(crate) fn forget(&mut self, op: Op) {
        if let (Some(id), None) = (op.id, op.done) {
            self.engine(op.rank).forget(id);
            self.buffers[op.rank].all.remove(&id);
        }
    }

    /// Polls all ranks once. Returns the number of events.
    pub(crate) fn poll(&mut self) -> usize {
        let now = self.now();
        let mut events = 0;
        for (engine, buffers) in self.engines.iter_mut().zip(&mut self.buffers) {
            if let Some(engine) = engine {
                let of_rank = engine.poll(now, buffers).expect("the port works");
                events += of_rank;
                self.polls += 1;
                if of_rank == 0 && !self.polls.is_multiple_of(CHECK_EVERY) {
                    continue;
                }
                self.unchecked += 1;
                let Usage { requests, unexpected_messages, .. } = engine.usage();
                if self.unchecked * CHECKED_OFTEN > requests + unexpected_messages {
                    self.unchecked = 0;
                    engine.check_invariants();
                }
            }
        }
        if events == 0 {
            self.medium.rest();
        }
        events
    }

    /// Polls one rank alone until `done`, or until everything under way must have arrived. Returns true if `done`.
    pub(crate) fn poll_alone(&mut self, rank: usize, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let (end, mut polls) = (self.now().after(SOON_NS), 0);
        loop {
            if done(self) {
                return true;
            }
            if self.now() >= end && polls >= QUIET_POLLS {
                return false;
            }
            polls += 1;
            let now = self.now();
            let buffers = &mut self.buffers[rank];
            let engine = self.engines[rank].as_mut().expect("the rank lives");
            if engine.poll(now, buffers).expect("the port works") == 0 {
                self.medium.rest();
            }
        }
    }

    /// Polls all ranks until `done`.
    #[track_caller]
    pub(crate) fn poll_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now().after(PATIENCE_NS);
        while !done(self) {
            self.poll();
            assert!(self.now() < end, "it never ends: {:?}", self.usages());
        }
    }

    /// Polls all ranks until nothing more will happen: until many polls in some time have found nothing. Both the
    /// number and the time are needed, since on a busy machine neither alone guarantees that the other threads and
    /// processes have run.
    pub(crate) fn settle(&mut self) {
        let (mut quiet_from, mut quiet_polls) = (self.now(), 0);
        while self.now() < quiet_from.after(SOON_NS) || quiet_polls < QUIET_POLLS {
            quiet_polls += 1;
            if self.poll() > 0 {
                (quiet_from, quiet_polls) = (self.now(), 0);
            }
        }
    }

    pub(crate) fn is_over(&mut self, op: &Op) -> bool {
        let Some(id) = op.id.filter(|_| op.done.is_none()) else { return true };
        self.engine(op.rank).outcome(id) == Outcome::Ready
    }

    /// Waits for the end of an operation.
    #[track_caller]
    pub(crate) fn wait(&mut self, op: Op) -> Done {
        self.poll_until(|job| job.is_over(&op));
        let (Some(id), None) = (op.id, &op.done) else { return op.done.expect("over without a request") };
        let engine = self.engines[op.rank].as_mut().expect("the rank lives");
        let buffers = &mut self.buffers[op.rank];
        let collected = engine.collect(id, buffers);
        assert!(engine.collect(id, &mut ()).is_none(), "once only");
        let Completion { result, memory } = match (buffers.received.remove(&id), collected) {
            (Some(status), None) => Completion { result: Ok(status), memory: None },
            (None, Some(completion)) => completion,
            both => panic!("its lender and the engine know of its end: {both:?}"),
        };
        let lent = buffers.all.remove(&id).map(Buffer::into_bytes);
        Done { result, bytes: lent.or_else(|| memory.map(|memory| Buffer::of_memory(memory).into_bytes())) }
    }

    /// Ends a rank as SIGKILL does.
    pub(crate) fn vanish(&mut self, rank: u32) {
        self.medium.kill(rank);
        self.engines[rank as usize] = None;
        self.buffers[rank as usize] = Buffers::default();
    }

    /// Ends a rank as SIGKILL does, and informs the other ranks.
    pub(crate) fn kill(&mut self, rank: u32) {
        self.vanish(rank);
        let incarnation = Some(self.incarnations[rank as usize]);
        for engine in self.engines.iter_mut().flatten() {
            engine.peer_failed(WorldRank(rank), incarnation, killed()).unwrap();
        }
    }

    /// Starts another incarnation of a dead rank, and introduces it and the other ranks to each other.
    pub(crate) fn restart(&mut self, rank: u32) {
        self.incarnations[rank as usize] += 1;
        let incarnation = self.incarnations[rank as usize];
        let port = self.medium.open(rank);
        let address = port.address();
        let identity =
            Identity { rank: WorldRank(rank), size: self.size() as u32, incarnation, secret: [9; 16] };
        self.engines[rank as usize] = Some(Engine::new(port, identity, self.config.clone()));
        let addresses: Vec<_> =
            self.engines.iter().map(|engine| engine.as_ref().map(|engine| engine.port().address())).collect();
        for (other, other_address) in (0..).zip(addresses) {
            let Some(other_address) = other_address else { continue };
            let other_incarnation = self.incarnations[other as usize];
            self.engine(other as usize).introduce(WorldRank(rank), incarnation, address.clone()).unwrap();
            self.engine(rank as usize).introduce(WorldRank(other), other_incarnation, other_address).unwrap();
        }
        self.settle();
    }

    /// Ends a rank in good order.
    #[track_caller]
    pub(crate) fn leave(&mut self, rank: usize) {
        let now = self.now();
        self.engine(rank).close(now);
        self.poll_until(|job| job.engine(rank).closed());
        self.engines[rank] = None;
    }

    pub(crate) fn usages(&self) -> Vec<Usage> {
        self.engines.iter().flatten().map(Engine::usage).collect()
    }

    /// Gives an operation a near deadline, and returns the deadline.
    #[track_caller]
    pub(crate) fn hurry(&mut self, op: &Op) -> Time {
        let deadline = self.now().after(SOON_NS);
        self.engine(op.rank).set_deadline(op.id.expect("it is under way"), deadline);
        deadline
    }

    /// Checks that no operation is under way, and that no message waits.
    #[track_caller]
    pub(crate) fn assert_at_rest(&mut self) {
        self.settle();
        for usage in self.usages() {
            let Usage { requests, operations, queued, unexpected, envelopes, .. } = usage;
            assert_eq!((requests, operations, queued, unexpected, envelopes), (0, 0, 0, 0, 0), "{usage:?}");
        }
    }
}

/// Returns the reported cause of a killed rank's end.
pub(crate) fn killed() -> Cause {
    Cause::Died("signal 9".into())
}

/// Returns a message's bytes, which differ for different seeds and lengths.
pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(151) + len + at.wrapping_mul(31) + at / 255) as u8).collect()
}

/// Returns the pattern of exactly this source and tag, in context 0.
pub(crate) fn exact(source: u32, tag: u64) -> Pattern {
    Pattern::exact(0, source, tag)
}
