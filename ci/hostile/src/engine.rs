//! One engine whose port and user both act as arbitrary bytes direct them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use samite_fabric::layout::{Readable, Signature, Writable};
use samite_fabric::mem::Partitioned;
use samite_fabric::{Access, Address, Failure, Memory, PeerId, Port};
use samite_p2p::{
    Agreed, AgreementId, Cause, Choice, Config, Engine, Error, Group, How, Identity, Leader, Lent, Mode,
    Outcome, PartitionedId, Pattern, Progress, Proposal, Received, RequestId, SendBuffer, Sent, Source,
    Status, Time, Typed, WorldRank,
};

use crate::forge::{self, INCARNATION, SECRET, Seen};
use crate::input::Input;
use crate::tape::{Event, Tape};

/// Number of ranks in the job; the engine has the last rank.
const SIZE: u32 = 4;
const ME: u32 = SIZE - 1;
const NEVER: Time = Time::NEVER;

/// Runs the program of `bytes`, then lets every other rank fail.
///
/// # Panics
/// If an operation does not end, a budget is exceeded, or the engine holds anything at the end.
pub fn engine(bytes: &[u8]) {
    let mut run = Run::new(&mut Input::new(bytes));
    let mut input = Input::new(bytes.get(1..).unwrap_or_default());
    while !input.is_empty() {
        run.step(&mut input);
        run.check_budgets();
    }
    run.end();
}

struct Run {
    engine: Engine<Tape>,
    config: Config,
    now: Time,
    seen: Seen,
    /// Sequence numbers of the other ranks' next packets.
    sequences: [u32; ME as usize],
    buffers: Buffers,
    /// The buffer of buffered sends.
    buffer: Arc<SendBuffer>,
    requests: Vec<RequestId>,
    halves: Vec<Half>,
    agreements: Vec<AgreementId>,
}

/// A partitioned send or receive.
struct Half {
    id: PartitionedId,
    memory: Partitioned,
    sends: bool,
    round: Option<RequestId>,
}

#[derive(Default)]
struct Buffers {
    all: BTreeMap<RequestId, Vec<u8>>,
    /// The requests in `all` whose buffers have received their message.
    received: BTreeSet<RequestId>,
    withheld: bool,
}

impl Lent for Buffers {
    fn read(&self, id: RequestId, _: u32) -> Option<Readable<'_>> {
        self.all.get(&id).filter(|_| !self.withheld).map(|bytes| bytes.as_slice().into())
    }

    fn write(&mut self, id: RequestId, _: u32) -> Option<Writable<'_>> {
        self.all.get_mut(&id).filter(|_| !self.withheld).map(|bytes| bytes.as_mut_slice().into())
    }

    fn received(&mut self, id: RequestId, _: u32, _: Status) -> bool {
        assert!(self.received.insert(id), "it has ended before");
        true
    }
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let choice = input.byte();
        let mut config = Config::default();
        if choice & 1 != 0 {
            (config.unexpected_max, config.window_min, config.envelopes_max) = (2000, 500, 300);
            config.announced_max = 3;
        }
        if choice & 2 != 0 {
            (config.pull_chunk, config.pull_depth, config.push_window) = (300, 2, 700);
            (config.put_min, config.put_chunk, config.put_depth) = (500, 300, 2);
        }
        config.bundle_max = if choice & 16 != 0 { 300 } else { 0 };
        let identity = Identity { rank: WorldRank(ME), size: SIZE, incarnation: INCARNATION, secret: SECRET };
        let mut engine = Engine::new(Tape::new(choice & 4 != 0, choice & 8 != 0), identity, config.clone());
        // Make contact with the ranks in order, so that the number by which the engine knows a peer equals the rank of
        // the peer.
        (0..SIZE).for_each(|rank| engine.seek(WorldRank(rank)).expect("a rank of the job"));
        engine.wanted().for_each(drop);
        forge::open_contexts(&mut engine, SIZE);
        Self {
            engine,
            config,
            now: Time::ZERO,
            seen: Seen::default(),
            sequences: [0; ME as usize],
            buffers: Buffers::default(),
            buffer: Arc::new(SendBuffer::new(5000)),
            requests: Vec::new(),
            halves: Vec::new(),
            agreements: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let rank = u32::from(choice >> 6);
        match choice & 31 {
            0..=8 => self.deliver_packet(input, WorldRank(rank.min(ME - 1))),
            9 => {
                let bytes = input.take(64).to_vec();
                self.engine.port_mut().events.push_back(Event::Packet(bytes));
            }
            10..=12 => self.recv(input, WorldRank(rank)),
            13..=15 => self.send(input, WorldRank(rank)),
            16 => {
                let address = Address(input.take(20).to_vec());
                let incarnation =
                    [INCARNATION, INCARNATION, INCARNATION + 1, INCARNATION - 1][input.below(4)];
                let _ = self.engine.introduce(WorldRank(rank), incarnation, address);
            }
            17 => self.each(input, |run, id| run.engine.cancel(id)),
            18 => self.each(input, |run, id| {
                run.engine.forget(id);
                run.buffers.all.remove(&id);
                run.buffers.received.remove(&id);
                run.requests.retain(|&other| other != id);
            }),
            19 => self.each(input, |run, id| {
                if run.engine.outcome(id) == Outcome::Ready {
                    run.collect(id);
                }
            }),
            20 => self.each(input, |run, id| run.engine.set_deadline(id, run.now.after(1000))),
            21 => self.engine.port_mut().has_room = choice & 32 != 0,
            22 => self.buffers.withheld = choice & 32 != 0,
            23 => self.engine.port_mut().complete(Ok(())),
            24 => self.engine.port_mut().complete(Err(Failure::Refused)),
            25 => self.engine.port_mut().events.push_back(Event::Lost(PeerId(input.below(8) as u32))),
            26 => self.engine.port_mut().events.push_back(Event::Notified(input.u64())),
            27 => {
                let incarnation =
                    [None, Some(INCARNATION), Some(INCARNATION + 1), Some(INCARNATION - 1)][input.below(4)];
                let _ = self.engine.peer_failed(WorldRank(rank), incarnation, Cause::Lost);
            }
            28 => {
                let incarnation =
                    [None, Some(INCARNATION), Some(INCARNATION + 1), Some(INCARNATION - 1)][input.below(4)];
                let _ = self.engine.peer_left(WorldRank(rank), incarnation);
            }
            29 => {
                if let Ok(Some((status, claimed))) = self.engine.claim(&pattern(input, rank)) {
                    let now = self.now;
                    let id = self.engine.recv_claimed(now, claimed, Err(status.bytes.min(4096)), NEVER);
                    self.buffers.all.insert(id, vec![0; status.bytes.min(4096)]);
                    self.requests.push(id);
                }
            }
            30 if choice & 32 != 0 => {
                let context = forge::CONTEXTS.start + rank % 2;
                match choice & 64 {
                    0 => self.engine.close_contexts(self.now, context),
                    _ => self.engine.leave_contexts(self.now, context),
                }
            }
            30 => self.partitioned(input, WorldRank(rank)),
            _ if choice & 0xa0 == 0x20 => self.agree(input),
            _ => self.poll(u64::from(input.byte())),
        }
    }

    /// Begins the creation of a communicator and answers for other ranks, or drops a creation. The engine's rank is the
    /// root of the tree, a leaf, or between them.
    fn agree(&mut self, input: &mut Input<'_>) {
        let now = self.now;
        if !self.agreements.is_empty() && input.below(4) == 0 {
            let id = self.agreements.swap_remove(input.below(self.agreements.len().min(256)));
            return self.engine.drop_agreement(now, id);
        }
        let ranks = [[3, 0, 1, 2], [0, 1, 2, 3], [0, 1, 3, 2]][input.below(3)].map(WorldRank);
        let ranks = Group::new(ranks).expect("they differ");
        let other = Some(Leader { rank: WorldRank(1), control: 0, tag: 0 });
        let alone = Group::range(WorldRank(ME), 1);
        let (ranks, choice) = match input.below(8) {
            0 => (alone, Choice::Remote { leader: 0, other }),
            1 => (ranks.clone(), Choice::Group(ranks)),
            2 => (ranks, Choice::Colour(None, 0)),
            3 => {
                let (own, remote) = (alone, Group::range(WorldRank(0), ME));
                (ranks, Choice::ColourBetween { colour: Some(0), key: 0, own, remote })
            }
            key => (ranks, Choice::Colour(Some([0, 1, 3][input.below(3)]), key as i64 - 3)),
        };
        let tag = [None, None, Some(0)][input.below(3)];
        let deadline = [NEVER, now.after(5000)][input.below(2)];
        let proposal = Proposal { ranks, control: 0, tag, choice };
        let id = self.engine.begin_agreement(now, proposal, deadline);
        for _ in 0..input.below(8) {
            match self.engine.agreement(id).expect("its result was not taken") {
                Progress::Awaits { rank, tag } => {
                    let rank = rank.0.min(ME - 1);
                    if self.sequences[rank as usize] == 0 {
                        self.sequences[rank as usize] = 1;
                        self.engine.port_mut().events.push_back(Event::Packet(forge::greeting(rank)));
                        // The engine grants credit.
                        self.poll(1);
                    }
                    let next = &mut self.sequences[rank as usize];
                    let packet = forge::answer(input, rank, ME, *next, tag);

                    *next = next.wrapping_add(1);
                    self.engine.port_mut().events.push_back(Event::Packet(packet));
                    self.poll(1);
                }
                Progress::Ended(end) => return self.close(end),
                Progress::Decided(_) => unreachable!("no agreement on flags was begun"),
            }
        }
        self.agreements.push(id);
    }

    fn close(&mut self, end: Result<Option<Agreed>, Error>) {
        if let Ok(Some(made)) = end {
            self.engine.close_contexts(self.now, made.context);
        }
    }

    /// Makes a call of partitioned communication.
    fn partitioned(&mut self, input: &mut Input<'_>, rank: WorldRank) {
        let (choice, now) = (input.below(8), self.now);
        if choice < 2 || self.halves.is_empty() {
            let (context, tag, sends) = (input.below(4) as u32, input.below(4) as u64, choice == 0);
            let memory =
                Partitioned::new(vec![1_u8; 96], [1, 2, 3, 96][input.below(4)]).expect("equal parts");
            let (partitions, typed) = (memory.partitions(), typed(tag));
            let signature = typed.map_or(Signature::BYTES, |typed| typed.signature);
            let made = match sends {
                true => self.engine.psend_init(now, rank, context, tag, 96, partitions, signature),
                false => self.engine.precv_init(now, rank, context, tag, 96, typed),
            };
            self.halves.extend(made.map(|id| Half { id, memory, sends, round: None }));
            return;
        }
        let at = input.below(self.halves.len().min(256));
        let Half { id, memory, sends, round } = &mut self.halves[at];
        if round.is_some_and(|round| !self.requests.contains(&round)) {
            *round = None;
        }
        match choice {
            2..=4 if round.is_none() => {
                assert!(memory.begin(), "the round before has left nothing");
                let begun = match sends {
                    true => self.engine.start_psend(now, *id, memory.marked(), now.after(5000)),
                    false => {
                        let all = memory.take(0..memory.partitions()).expect("none is taken");
                        self.engine.start_precv(now, *id, all, NEVER)
                    }
                };
                *round = begun.ok();
                self.requests.extend(*round);
            }
            2..=6 if *sends => {
                let part = input.below(memory.partitions());
                if let Some(part) = memory.take(part..part + 1) {
                    part.mark_all();
                }
                self.engine.harvest();
            }
            7 => {
                self.engine.free_partitioned(now, *id);
                assert!(memory.as_mut_slice::<u8>().is_some(), "its memory is free");
                self.halves.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Delivers a packet from `rank`, in most cases the next in sequence.
    fn deliver_packet(&mut self, input: &mut Input<'_>, rank: WorldRank) {
        let next = &mut self.sequences[rank.index()];
        let sequence = if input.below(16) == 0 { input.u32() } else { *next };
        let packet = forge::packet(input, &self.seen, rank.0, sequence);
        *next = next.wrapping_add(u32::from(sequence == *next));
        self.engine.port_mut().events.push_back(Event::Packet(packet));
    }

    fn recv(&mut self, input: &mut Input<'_>, rank: WorldRank) {
        let (pattern, len) = (pattern(input, rank.0), LENGTHS[input.below(LENGTHS.len())]);
        let mut buffer = vec![0; len];
        let (now, typed) = (self.now, typed(pattern.tag));
        let posted = if input.below(2) == 0 {
            let memory = Memory::new(buffer);
            match typed {
                None => self.engine.irecv(now, pattern, memory, NEVER).ok(),
                Some(typed) => self.engine.irecv_typed(typed, now, pattern, memory, NEVER).ok(),
            }
        } else {
            let deadline = now.after(5000);
            let received = match typed {
                None => self.engine.recv(now, pattern, &mut buffer, 0, deadline, &mut self.buffers),
                Some(typed) => self.engine.recv_typed(typed, now, pattern, &mut buffer[..], 0, deadline),
            };
            match received {
                Ok(Received::Pending(id)) => {
                    self.buffers.all.insert(id, buffer);
                    Some(id)
                }
                Ok(Received::Now(_)) | Err(_) => None,
            }
        };
        self.requests.extend(posted);
    }

    fn send(&mut self, input: &mut Input<'_>, rank: WorldRank) {
        let context = input.below(4) as u32;
        let (tag, data) = (input.below(4) as u64, vec![1; LENGTHS[input.below(LENGTHS.len())]]);
        let (now, deadline, buffer) = (self.now, self.now.after(5000), Arc::clone(&self.buffer));
        let mode = match input.below(8) {
            0 | 1 => Some(Mode::Synchronous),
            2 => Some(Mode::Buffered(&buffer)),
            3 => Some(Mode::Ready),
            _ => typed(tag).map(|_| Mode::Standard),
        };
        let how = mode.map(|mode| How { mode, typed: typed(tag) });
        let posted = if input.below(2) == 0 {
            let memory = Memory::new(data);
            match how {
                None => self.engine.isend(now, rank, context, tag, memory, NEVER).ok(),
                Some(how) => self.engine.isend_with(how, now, rank, context, tag, memory, NEVER).ok(),
            }
        } else {
            let sent = match how {
                None => self.engine.send(now, rank, context, tag, &data, deadline),
                Some(how) => self.engine.send_with(how, now, rank, context, tag, data.as_slice(), deadline),
            };
            match sent {
                Ok(Sent::Pending(id)) => {
                    self.buffers.all.insert(id, data);
                    Some(id)
                }
                Ok(Sent::Now | Sent::Copied) | Err(_) => None,
            }
        };
        self.requests.extend(posted);
    }

    fn each(&mut self, input: &mut Input<'_>, act: impl FnOnce(&mut Self, RequestId)) {
        if !self.requests.is_empty() {
            let id = self.requests[input.below(self.requests.len().min(256))];
            act(self, id);
        }
    }

    fn poll(&mut self, ns: u64) {
        self.now = self.now.after(100 * ns);
        self.engine.poll(self.now, &mut self.buffers).expect("the port works");
        self.engine.check_invariants();
        for packet in std::mem::take(&mut self.engine.port_mut().sent) {
            self.seen.packet(&packet);
        }
        // `failure_pending` returns each failure once for an operation, so this loop ends.
        for &id in &self.requests {
            while self.engine.failure_pending(id).is_some() {}
        }
    }

    fn collect(&mut self, id: RequestId) {
        let collected = self.engine.collect(id, &mut self.buffers).is_some();
        assert_ne!(collected, self.buffers.received.remove(&id), "its end is told, and once");
        self.buffers.all.remove(&id);
        self.requests.retain(|&other| other != id);
    }

    fn check_budgets(&self) {
        let usage = self.engine.usage();
        assert!(usage.unexpected + usage.credit_granted <= self.config.unexpected_max as u64, "{usage:?}");
        assert!(usage.envelopes <= self.config.envelopes_max as u64, "{usage:?}");
        assert!(usage.peers <= SIZE as usize, "{usage:?}");
        assert!(usage.gathered <= u64::from(SIZE) * self.config.bundle_max as u64, "{usage:?}");
    }

    fn end(mut self) {
        self.buffers.withheld = false;
        self.engine.port_mut().has_room = true;
        // Handle all packets before the ranks fail: a hello that is handled later would begin another incarnation.
        (0..4).for_each(|_| self.poll(1));
        for rank in 0..SIZE {
            self.engine.peer_failed(WorldRank(rank), None, Cause::Lost).expect("a rank of the job");
        }
        (0..4).for_each(|_| self.poll(1));
        for half in &mut self.halves {
            self.engine.free_partitioned(self.now, half.id);
            assert!(half.memory.as_mut_slice::<u8>().is_some(), "its memory is free");
        }
        for id in std::mem::take(&mut self.agreements) {
            match self.engine.agreement(id) {
                Some(Progress::Ended(end)) => self.close(end),
                progress => panic!("{progress:?}: {:?}", self.engine),
            }
        }
        for id in self.requests.clone() {
            assert_eq!(self.engine.outcome(id), Outcome::Ready, "{:?}", self.engine);
            self.collect(id);
        }
        // Messages of ranks that had left before they failed can still be received.
        drain(&mut self.engine, self.now);
        (0..4).for_each(|_| self.poll(1));
        let usage = self.engine.usage();
        assert_eq!((usage.partitioned, usage.outbox, self.buffer.used()), (0, 0, 0), "{usage:?}");
        let held = (usage.requests, usage.operations, usage.queued, usage.unexpected, usage.envelopes);
        assert_eq!(held, (0, 0, 0, 0, 0), "{:?}", self.engine);
        assert_eq!((usage.credit_granted, usage.registered_used), (0, 0), "{:?}", self.engine);
        // Slabs that only this rank accesses serve other peers later.
        let kept = self.engine.port().registered();
        assert_eq!(kept.len(), usage.registrations, "{:?}", self.engine);
        assert!(!kept.iter().any(|access| access.intersects(Access::REMOTE)), "{:?}", self.engine);
    }
}

/// Receives all messages that have arrived in the forged contexts.
pub(crate) fn drain<P: Port>(engine: &mut Engine<P>, now: Time) {
    for context in 0..forge::CONTEXTS.end {
        let all = Pattern { source: Source::ANY, mask: 0, ..Pattern::exact(context, 0, 0) };
        while let Ok(Some((_, claimed))) = engine.claim(&all) {
            engine.discard(now, claimed);
        }
    }
}

/// Returns the types of an operation with this tag. Operations with tag 0 have none; each of the tags 1 to 3 has types
/// of its own.
fn typed(tag: u64) -> Option<Typed> {
    let signature = |number| Signature::from_digest([number; 6]);
    (tag > 0).then(|| Typed { signature: signature(tag.min(9) as u8), call: "the operation" })
}

fn pattern(input: &mut Input<'_>, rank: u32) -> Pattern {
    let choice = input.byte();
    let source = if choice & 4 == 0 { Source::rank(rank) } else { Source::ANY };
    let context = u32::from(choice >> 3 & 3);
    Pattern { source, ..Pattern::exact(context, rank, u64::from(choice & 3)) }
}

const LENGTHS: [usize; 6] = [0, 8, 400, 1000, 5000, 63_000];
