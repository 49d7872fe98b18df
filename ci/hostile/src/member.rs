//! A hostile member that knows the protocol, the secret and its own rank, beside two honest ranks that communicate with
//! each other and with it.

use std::collections::VecDeque;

use samite_fabric::sim::{Config as NetConfig, Net, SimPort};
use samite_fabric::{
    Access, Failure, Memory, OpId, PeerId, Port, Post, Reach, Region, Registration, Remote, Sink,
};
use samite_p2p::{Cause, Config, Engine, Identity, Outcome, Pattern, RequestId, Source, Time, WorldRank};

use crate::engine::drain;
use crate::forge::{self, INCARNATION, SECRET, Seen};
use crate::input::Input;

/// The hostile rank; the honest ranks have larger numbers.
const HOSTILE: u32 = 0;
const HONEST: [u32; 2] = [1, 2];
const SIZE: u32 = 3;
/// Tag of the messages between the honest ranks.
const ASIDE: u64 = 1000;
const NEVER: Time = Time::NEVER;
/// The number of rounds of polls within which every operation that can end must have ended.
const ROUNDS_MAX: usize = 50_000;

/// Runs the program of `bytes`, then kills the hostile rank.
///
/// # Panics
/// If a message between honest ranks is lost, changed or never received, if an honest rank takes the other for failed,
/// if an operation does not end, or if an engine holds anything at the end.
pub fn member(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new(&mut input);
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.end();
}

struct Run {
    net: Net,
    hostile: Hostile,
    honest: [Honest; 2],
}

struct Hostile {
    port: SimPort,
    paths: [PeerId; 2],
    /// Sequence numbers of the next packets to the honest ranks.
    sequences: [u32; 2],
    seen: Seen,
    last: Vec<u8>,
    memory: Registration,
}

struct Honest {
    engine: Engine<SimPort>,
    /// The sends to the other honest rank, in order.
    sends: Vec<RequestId>,
    /// The lengths of all messages whose sends to the other honest rank have started, in order.
    lengths: Vec<usize>,
    /// The receives from the other honest rank that have not ended, in order.
    recvs: VecDeque<RequestId>,
    /// The number of messages received from the other honest rank.
    received: usize,
    /// Operations that involve the hostile rank.
    others: Vec<RequestId>,
}

impl Sink for Seen {
    fn packet(&mut self, bytes: &[u8]) {
        Seen::packet(self, bytes);
    }
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let choice = input.byte();
        let mut net_config = NetConfig::default();
        let mut config = Config::default();
        let packet_max = [1024, 512][usize::from(choice & 1)];
        (net_config.caps.packet_max, net_config.caps.fragment_max) = (packet_max, packet_max);
        net_config.caps.zcopy_max = 0;
        if choice & 2 != 0 {
            (net_config.caps.get, net_config.caps.put, net_config.caps.rma_max) =
                (Reach::None, Reach::None, 0);
        }
        if choice & 4 != 0 {
            (config.unexpected_max, config.window_min) = (4000, 1000);
        }
        if choice & 8 != 0 {
            (config.pull_chunk, config.pull_depth, config.push_window) = (700, 2, 1500);
            (config.put_min, config.put_chunk, config.put_depth) = (600, 700, 2);
        }
        let net = Net::new(u64::from(choice), net_config);
        let mut port = net.start(HOSTILE);
        let honest = HONEST.map(|rank| {
            let identity =
                Identity { rank: WorldRank(rank), size: SIZE, incarnation: INCARNATION, secret: SECRET };
            let mut engine = Engine::new(net.start(rank), identity, config.clone());
            for other in 0..SIZE {
                engine
                    .introduce(WorldRank(other), INCARNATION, net.address(other))
                    .expect("a rank of the job");
            }
            forge::open_contexts(&mut engine, SIZE);
            Honest {
                engine,
                sends: Vec::new(),
                lengths: Vec::new(),
                recvs: VecDeque::new(),
                received: 0,
                others: Vec::new(),
            }
        });
        let paths = HONEST.map(|rank| port.resolve(&net.address(rank)).expect("it is there"));
        let memory = port.register(paths[0], &Region::new(Memory::zeroed(1000)), Access::all());
        let memory = memory.expect("there is room for one");
        let (seen, last) = (Seen::default(), Vec::new());
        Self { net, hostile: Hostile { port, paths, sequences: [0; 2], seen, last, memory }, honest }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let to = usize::from(choice >> 7);
        match choice & 31 {
            0..=11 => self.hostile.speak(input, to),
            12 => {
                // Repeat the last packet. From then on every packet of this member is out of order.
                let last = self.hostile.last.clone();
                self.net.inject(HONEST[to], &last);
            }
            13 => self.net.inject(HONEST[to], input.take(64)),
            14 => self.hostile.reach(input, to),
            15..=18 => self.talk(to, LENGTHS[input.below(LENGTHS.len())]),
            19..=21 => self.listen(to),
            22 | 23 => self.talk_to_hostile(to, input),
            24 | 25 => self.listen_to_hostile(to, input),
            _ => (0..=input.below(8)).for_each(|_| {
                self.round();
            }),
        }
    }

    /// Starts a send from one honest rank to the other honest rank.
    fn talk(&mut self, from: usize, len: usize) {
        let now = Time::from_nanos(self.net.now_ns());
        let honest = &mut self.honest[from];
        let memory = Memory::new(content(from, honest.lengths.len(), len).to_vec());
        let sent = honest.engine.isend(now, WorldRank(HONEST[1 - from]), 0, ASIDE, memory, NEVER);
        honest.sends.push(sent.expect("the other is alive"));
        honest.lengths.push(len);
    }

    /// Starts a receive at one honest rank from the other honest rank.
    fn listen(&mut self, at: usize) {
        let now = Time::from_nanos(self.net.now_ns());
        let pattern = Pattern::exact(0, HONEST[1 - at], ASIDE);
        let honest = &mut self.honest[at];
        let posted = honest.engine.irecv(now, pattern, Memory::zeroed(LENGTH_MAX), NEVER);
        honest.recvs.push_back(posted.expect("the other is alive"));
    }

    fn talk_to_hostile(&mut self, from: usize, input: &mut Input<'_>) {
        let now = Time::from_nanos(self.net.now_ns());
        let (tag, len) = (input.below(4) as u64, LENGTHS[input.below(LENGTHS.len())]);
        let deadline = [NEVER, now.after(100_000)][input.below(2)];
        let honest = &mut self.honest[from];
        let sent = honest.engine.isend(now, WorldRank(HOSTILE), 0, tag, Memory::zeroed(len), deadline);
        honest.others.extend(sent.ok());
    }

    fn listen_to_hostile(&mut self, at: usize, input: &mut Input<'_>) {
        let now = Time::from_nanos(self.net.now_ns());
        let source = [Source::rank(HOSTILE), Source::ANY][input.below(2)];
        let pattern = Pattern { source, ..Pattern::exact(0, HOSTILE, input.below(4) as u64) };
        let memory = Memory::zeroed(LENGTHS[input.below(LENGTHS.len())]);
        let deadline = [NEVER, now.after(100_000)][input.below(2)];
        let honest = &mut self.honest[at];
        honest.others.extend(honest.engine.irecv(now, pattern, memory, deadline).ok());
    }

    /// Polls all ranks once, or advances the clock. Returns the number of events.
    fn round(&mut self) -> usize {
        self.hostile.port.poll(&mut self.hostile.seen).expect("the port works");
        let now = Time::from_nanos(self.net.now_ns());
        let polls = self.honest.iter_mut().map(|honest| honest.engine.poll(now, &mut ()));
        let events = polls.map(|events| events.expect("the port works")).sum();
        if events == 0 && !self.net.advance() {
            self.net.advance_to(now.after(200_000).as_nanos());
        }
        for at in 0..2 {
            self.collect(at);
        }
        events
    }

    /// Collects the messages that one honest rank has received from the other honest rank, and checks their bytes.
    fn collect(&mut self, at: usize) {
        let [first, second] = &mut self.honest;
        let (honest, other) = if at == 0 { (first, second) } else { (second, first) };
        while let Some(&id) = honest.recvs.front()
            && honest.engine.outcome(id) == Outcome::Ready
        {
            honest.recvs.pop_front();
            let completion = honest.engine.collect(id, &mut ()).expect("it has ended");
            let status = completion.result.expect("the other is alive and well");
            let memory = completion.memory.expect("nobody else has it");
            let sent = content(1 - at, honest.received, other.lengths[honest.received]);
            assert!(&memory.as_bytes()[..status.bytes] == sent, "message {}: {status:?}", honest.received);
            honest.received += 1;
        }
    }

    fn end(mut self) {
        // Start the missing receives and sends, so that each message has a receive and each receive has a message.
        for at in 0..2 {
            let sent = self.honest[1 - at].lengths.len();
            while self.honest[at].received + self.honest[at].recvs.len() < sent {
                self.listen(at);
            }
            while self.honest[1 - at].lengths.len() < self.honest[at].received + self.honest[at].recvs.len() {
                self.talk(1 - at, 8);
            }
        }
        self.run_until("messages between honest ranks", |run| {
            run.honest.iter().all(|honest| {
                let ended = |id: &RequestId| honest.engine.outcome(*id) == Outcome::Ready;
                honest.recvs.is_empty() && honest.sends.iter().all(ended)
            })
        });
        self.net.kill(HOSTILE);
        for honest in &mut self.honest {
            honest.engine.peer_failed(WorldRank(HOSTILE), None, Cause::Lost).expect("a rank of the job");
            honest.others.iter().for_each(|&id| honest.engine.cancel(id));
        }
        self.run_until("operations with the hostile rank", |run| {
            run.honest
                .iter()
                .all(|honest| honest.others.iter().all(|&id| honest.engine.outcome(id) == Outcome::Ready))
        });
        for honest in &mut self.honest {
            for &id in honest.sends.iter().chain(&honest.others) {
                let completion = honest.engine.collect(id, &mut ()).expect("it has ended");
                let to_hostile = honest.others.contains(&id);
                assert!(to_hostile || completion.result.is_ok(), "{:?}", completion.result);
            }
        }
        for honest in &mut self.honest {
            drain(&mut honest.engine, Time::from_nanos(self.net.now_ns()));
        }
        self.run_until("rest", |run| run.honest.iter().all(|honest| is_at_rest(&honest.engine)));
        for honest in &self.honest {
            assert!(honest.engine.counters().failed_peers <= 1, "{:?}", honest.engine.counters());
        }
    }

    fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if done(self) {
                return;
            }
            self.round();
        }
        panic!("{what}: not in {ROUNDS_MAX} rounds: {:?}", self.honest.each_ref().map(|at| &at.engine));
    }
}

impl Hostile {
    /// Sends a packet, in most cases the next in sequence.
    fn speak(&mut self, input: &mut Input<'_>, to: usize) {
        let next = self.sequences[to];
        let sequence = if input.below(32) == 0 { input.u32() } else { next };
        let mut packet = forge::packet(input, &self.seen, HOSTILE, sequence);
        packet.truncate(512);
        let posted = self.port.send(self.paths[to], &packet, &[]);
        if posted == Ok(Post::Done) && sequence == next {
            self.sequences[to] = next.wrapping_add(1);
        }
        self.last = packet;
    }

    /// Reads or writes memory of an honest rank with a received or an invented key.
    fn reach(&mut self, input: &mut Input<'_>, to: usize) {
        let [key, address] = [(); 2].map(|()| self.seen.number(input));
        let (local, remote) = (self.memory.local(0, input.byte().into()), Remote { key, address });
        let _ = if input.below(2) == 0 {
            self.port.get(self.paths[to], local, remote, OpId(0))
        } else {
            self.port.put(self.paths[to], local, remote, OpId(0))
        };
    }
}

fn is_at_rest(engine: &Engine<SimPort>) -> bool {
    let usage = engine.usage();
    (usage.requests, usage.operations, usage.queued, usage.unexpected, usage.envelopes) == (0, 0, 0, 0, 0)
}

/// Returns the bytes of the message with this number.
fn content(from: usize, number: usize, len: usize) -> &'static [u8] {
    static ALL: [u8; 256 + LENGTH_MAX] = {
        let mut all = [0; 256 + LENGTH_MAX];
        let mut at = 0;
        while at < all.len() {
            all[at] = (at + (at >> 8)) as u8;
            at += 1;
        }
        all
    };
    &ALL[(from * 101 + number * 37) % 256..][..len]
}

/// Lengths of messages that need one packet, and of messages that need several packets.
const LENGTHS: [usize; 6] = [0, 8, 400, 800, 1500, LENGTH_MAX];
const LENGTH_MAX: usize = 4000;
