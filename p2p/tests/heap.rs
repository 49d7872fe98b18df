//! Messages from blocks of the [`Heap`] over a simulated port: the registrations of blocks are kept, and no
//! registration is used for a block that was freed in between.

use samite_fabric::link::Outcome;
use samite_fabric::sim::{Config as SimConfig, Net, SimPort};
use samite_fabric::{Heap, Memory, Port, Reach, SplitMix64};
use samite_p2p::{Config, Engine, Identity, Pattern, RequestId, Time, WorldRank};

#[global_allocator]
static HEAP: Heap = Heap;

/// Two ranks.
struct Pair {
    net: Net,
    engines: [Engine<SimPort>; 2],
}

impl Pair {
    /// Makes two ranks whose long messages travel by gets, or else by puts.
    fn new(has_gets: bool, registered_max: usize, registrations_max: usize) -> Self {
        let mut sim = SimConfig { registrations_max, ..SimConfig::default() };
        if !has_gets {
            (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
        }
        let mut config = Config::default();
        (config.put_min, config.registered_max, config.eager_max) = (1, registered_max, 1000);
        let net = Net::new(3, sim);
        let ports = [0, 1].map(|rank| net.start(rank));
        let addresses = ports.each_ref().map(Port::address);
        let mut rank = 0;
        let engines = ports.map(|port| {
            let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 7, secret: [9; 16] };
            let mut engine = Engine::new(port, identity, config.clone());
            let other = 1 - rank;
            engine.introduce(WorldRank(other), 7, addresses[other as usize].clone()).expect("a rank");
            rank += 1;
            engine
        });
        Self { net, engines }
    }

    /// Sends a message from rank 0, and returns the buffers of both ranks.
    fn exchange(&mut self, from: Vec<u8>, into: Vec<u8>) -> [Vec<u8>; 2] {
        let now = Time::from_nanos(self.net.now_ns());
        let [a, b] = &mut self.engines;
        let recv = b.irecv(now, Pattern::exact(0, 0, 5), Memory::new(into), Time::NEVER);
        let send = a.isend(now, WorldRank(1), 0, 5, Memory::new(from), Time::NEVER);
        let requests: [RequestId; 2] = [send.expect("it begins"), recv.expect("it begins")];
        while [0, 1].iter().any(|&rank| self.engines[rank].outcome(requests[rank]) != Outcome::Ready) {
            let now = Time::from_nanos(self.net.now_ns());
            for engine in &mut self.engines {
                engine.poll(now, &mut ()).expect("the port works");
            }
            self.net.advance();
        }
        self.engines.iter().for_each(Engine::check_invariants);
        [0, 1].map(|rank| {
            let completion = self.engines[rank].collect(requests[rank], &mut ()).expect("it has ended");
            completion.result.expect("it succeeds");
            let memory = completion.memory.expect("no operation uses it");
            memory.into_vec::<u8>().expect("it was a vector")
        })
    }

    fn registrations(&self, rank: usize) -> u64 {
        self.engines[rank].counters().registrations
    }
}

#[test]
fn a_buffer_that_is_sent_again_is_registered_once() {
    const LEN: usize = 300_000;
    for has_gets in [false, true] {
        let mut pair = Pair::new(has_gets, 1 << 20, usize::MAX);
        let [mut from, mut into] = [vec![7; LEN], vec![0; LEN]];
        for round in 0..1000 {
            from[round] = 8;
            [from, into] = pair.exchange(from, into);
            assert_eq!(from, into);
        }
        // The memory that the peer accesses is registered for each message.
        let expected = if has_gets { [1000, 1] } else { [1, 1000] };
        assert_eq!([0, 1].map(|rank| pair.registrations(rank)), expected);
        let local = usize::from(has_gets);
        assert_eq!(pair.engines[local].port().registrations(), 1, "it is kept");
        assert_eq!(pair.engines[1 - local].port().registrations(), 0);
        assert_eq!(pair.engines[local].usage().registered, LEN as u64);
    }
}

/// The expected cache of one rank: the kept registrations, the least recently used first.
struct Model {
    /// Each entry has the address, the length and the number of the allocation.
    kept: Vec<(usize, usize, u64)>,
    registrations: u64,
    registered_max: usize,
    registrations_max: usize,
}

impl Model {
    fn send(&mut self, buffer: &[u8], allocation: u64) {
        let (address, len) = (buffer.as_ptr().addr(), buffer.len());
        let place = self.kept.iter().position(|&(start, bytes, _)| (start, bytes) == (address, len));
        let found = place.map(|place| self.kept.remove(place).2);
        if found != Some(allocation) {
            self.registrations += 1;
            let most = self.registrations_max - 1;
            self.kept.drain(..self.kept.len().saturating_sub(most));
        }
        if len <= self.registered_max {
            while self.bytes() + len > self.registered_max {
                self.kept.remove(0);
            }
            self.kept.push((address, len, allocation));
        }
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|(_, len, _)| len).sum()
    }
}

/// Allocates, sends and frees buffers at random, and compares the registrations with those of a model.
#[test]
fn no_registration_is_used_for_a_block_that_was_freed() {
    for (steps, registered_max, registrations_max) in [(90_000, 400_000, 100), (10_000, 60_000, 5)] {
        let mut pair = Pair::new(false, registered_max, registrations_max);
        let mut model = Model { kept: Vec::new(), registrations: 0, registered_max, registrations_max };
        let mut rng = SplitMix64::new(steps);
        let mut buffers: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut into = vec![0; 70_000];
        for step in 0..steps {
            match rng.below(3) {
                0 => {
                    let len = [16 << 10, 20_000, 40_000, 70_000][rng.below(4) as usize];
                    buffers.push((vec![step as u8; len], step));
                }
                1 if !buffers.is_empty() => {
                    let (from, allocation) = buffers.swap_remove(rng.below(buffers.len() as u64) as usize);
                    model.send(&from, allocation);
                    let from_now;
                    [from_now, into] = pair.exchange(from, into);
                    assert!(into[..from_now.len()] == from_now, "step {step}");
                    buffers.push((from_now, allocation));
                    assert_eq!(pair.registrations(0), model.registrations, "step {step}");
                    let usage = pair.engines[0].usage();
                    let expected = (model.kept.len(), model.bytes() as u64);
                    assert_eq!((usage.registrations, usage.registered), expected, "step {step}");
                    assert_eq!(pair.engines[0].port().registrations(), model.kept.len());
                }
                _ if !buffers.is_empty() => {
                    buffers.swap_remove(rng.below(buffers.len() as u64) as usize);
                }
                _ => {}
            }
        }
        assert!(model.registrations > 1000);
    }
}
