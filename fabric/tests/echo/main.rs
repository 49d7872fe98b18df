//! Tests of a protocol over the link, alone and together with another protocol. The ports are loopback, the simulator
//! with faults, shared memory and `tcp;ofi_rxm`.

mod protocol;
mod slabs;
mod two;

use std::time::Instant;

use samite_fabric::link::{Cause, Config, Engine, Identity, Stack, Time, WorldRank};
use samite_fabric::loopback::Hub;
use samite_fabric::shm::Shm;
use samite_fabric::sim::{Config as SimConfig, Net};
use samite_fabric::wire::Protocol;
use samite_fabric::{Port, SplitMix64};

use self::protocol::{Echo, Ended};

/// Two ranks that know each other's address.
fn pair<P: Port, S: Stack>(ports: [P; 2], stack: impl Fn() -> S) -> [Engine<P, S>; 2] {
    let addresses = ports.each_ref().map(|port| port.address());
    let config = Config {
        credit_max: 1 << 20,
        window_min: 1 << 16,
        window_max: 1 << 20,
        questions_max: 50,
        answers_max: 100,
        quarantine_max: 0,
        gathered_max: 0,
        registered_max: 3000,
        gathered_ns: 0,
    };
    let mut rank = 0;
    ports.map(|port| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 7, secret: [3; 16] };
        let mut engine = Engine::new(port, identity, config.clone(), stack());
        engine.introduce(WorldRank(1 - rank), 7, addresses[1 - rank as usize].clone()).unwrap();
        rank += 1;
        engine
    })
}

/// Makes calls that are answered, a call that times out because its peer does not poll, and a call whose peer fails.
fn challenge<P: Port>(ports: [P; 2], now: impl Fn() -> Time, mut rest: impl FnMut()) {
    let [mut caller, mut echo] = pair(ports, || Echo::new(Protocol::Rpc));
    let start = |caller: &mut Engine<P, Echo>, bytes: &[u8], deadline| {
        let to = caller.link_mut().live_peer(WorldRank(1)).unwrap();
        let (out, stack) = caller.parts();
        stack.call(out.link, to, bytes, deadline)
    };
    for number in 0..100_u8 {
        let id = start(&mut caller, &[number; 40], Time::NEVER);
        let answer = loop {
            for engine in [&mut caller, &mut echo] {
                engine.poll(now(), &mut ()).unwrap();
                engine.check_invariants();
            }
            if let Some(answer) = caller.stack_mut().collect(id) {
                break answer;
            }
            rest();
        };
        assert_eq!(answer, Ok(vec![number; 40]));
    }
    for (deadline, ended) in
        [(now().after(1_000_000), Ended::TimedOut), (Time::NEVER, Ended::PeerFailed(Cause::Lost))]
    {
        let id = start(&mut caller, b"nobody polls there", deadline);
        if deadline == Time::NEVER {
            caller.peer_failed(WorldRank(1), None, Cause::Lost).unwrap();
        }
        let answer = loop {
            caller.poll(now(), &mut ()).unwrap();
            if let Some(answer) = caller.stack_mut().collect(id) {
                break answer;
            }
            rest();
        };
        assert_eq!(answer, Err(ended));
    }
    assert!(caller.link_mut().live_peer(WorldRank(1)).is_err(), "nothing is sent to a peer that failed");
    assert_eq!(caller.stack().calls.len(), 0);
}

/// Runs the challenge in real time.
#[expect(clippy::disallowed_methods, reason = "ports to the real world live in real time")]
fn challenge_now<P: Port>(ports: [P; 2]) {
    let begin = Instant::now();
    challenge(ports, || Time::from_nanos(begin.elapsed().as_nanos() as u64), std::thread::yield_now);
}

#[test]
fn over_loopback() {
    let hub = Hub::new();
    challenge_now([hub.port(), hub.port()]);
}

#[test]
fn over_shared_memory() {
    challenge_now([(); 2].map(|()| Shm::open(&Default::default()).unwrap()));
}

#[test]
#[cfg(feature = "ofi")]
fn over_tcp() {
    use samite_fabric::ofi::{OfiConfig, OfiPort};
    let open =
        |seed| OfiPort::open(&OfiConfig { stays_on_host: true, seed, ..OfiConfig::default() }).unwrap();
    challenge_now([open(1), open(2)]);
}

#[test]
fn over_the_simulator_with_faults() {
    for seed in 0..50 {
        let net = Net::new(seed, SimConfig::adverse(&mut SplitMix64::new(seed)));
        let rest = || {
            if !net.advance() {
                net.advance_to(net.now_ns() + 1_000);
            }
        };
        challenge([net.start(0), net.start(1)], || Time::from_nanos(net.now_ns()), rest);
    }
}
