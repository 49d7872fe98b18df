//! Tests of repeated hellos, and of peers to which this side has no path.

use super::strangers::{arrive, eager, hello, packet};
use super::*;
use crate::wire::{Rts, TransferMode, kind};
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};

/// Returns the hello that rank 0 sends before it has received any packet.
fn first_hello() -> Vec<u8> {
    packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4))
}

#[test]
fn questions_of_a_peer_that_takes_no_answers_cost_no_memory() {
    for answered in [true, false] {
        let mut engines = pair(&Config::default());
        if answered {
            settle(&mut engines);
        }
        let [_sender, mut receiver] = engines;
        let timers = receiver.inner.link().timers();
        for round in 0..10_000 {
            arrive(&mut receiver, &first_hello());
            receiver.poll(Time::from_nanos(round), &mut ()).unwrap();
            assert!(peer_state(&receiver, WorldRank(0)).packets_waiting() <= 1, "one answer waits");
        }
        assert!(receiver.counters().again > 0, "the port is full");
        assert!(receiver.inner.link().timers() <= timers + 1, "one timer repeats the hello");
        let expected = peer_state(&receiver, WorldRank(0)).expected();
        for number in expected..expected + 1000 {
            arrive(&mut receiver, &eager(number, 1, Flags::STARVED));
            receiver.poll(Time::ZERO, &mut ()).unwrap();
        }
        assert!(peer_state(&receiver, WorldRank(0)).packets_waiting() <= 2);
        assert_eq!(receiver.usage().unexpected_messages, 1000);
        receiver.check_invariants();
    }
}

/// A sink that keeps the total of granted credit that each arriving credit packet states.
#[derive(Default)]
struct Grants(Vec<u32>);

impl Sink for Grants {
    fn packet(&mut self, bytes: &[u8]) {
        let (header, _) = Header::decode(bytes).unwrap();
        if header.kind == control::CREDIT {
            self.0.push(header.grant.get());
        }
    }
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

/// The peer has received a hello, so it ignores the credit in a repeated hello. A credit packet that was queued behind
/// the hello must be sent too.
#[test]
fn a_hello_that_waits_for_room_does_not_replace_an_answer_about_credit() {
    let [mut sender, mut receiver] = pair(&Config::default());
    while peer_state(&receiver, WorldRank(0)).packets_waiting() == 0 {
        arrive(&mut receiver, &first_hello());
        receiver.poll(Time::ZERO, &mut ()).unwrap();
    }
    let mut starved = packet(Protocol::Control, control::CREDIT, 1, &[]);
    (starved[3], starved[16]) = (Flags::STARVED.bits(), 1);
    arrive(&mut receiver, &starved);
    let mut grants = Grants::default();
    for _ in 0..3 {
        receiver.poll(Time::ZERO, &mut ()).unwrap();
        sender.port_mut().poll(&mut grants).unwrap();
    }
    assert_eq!(grants.0, [2 * Config::default().window_min as u32]);
}

/// Returns ranks 0 and 1 of a job of three ranks. The port of rank 0 has room for one peer, and rank 2 is that peer.
fn crowded() -> (Net, [Engine<SimPort>; 2]) {
    let mut config = NetConfig::default();
    config.caps.peers_max = 1;
    let net = Net::new(1, config);
    let mut engines = [0, 1].map(|rank| {
        let identity = Identity { rank: WorldRank(rank), size: 3, incarnation: 7, secret: [9; 16] };
        // Without an outbox, so that a send ends when its message is sent.
        Engine::new(net.start(rank), identity, Config { outbox_max: 0, ..Config::default() })
    });
    engines[0].introduce(WorldRank(2), 7, net.address(2)).unwrap();
    engines[1].introduce(WorldRank(0), 7, net.address(0)).unwrap();
    (net, engines)
}

fn run(net: &Net, engines: &mut [Engine<SimPort>; 2]) {
    for _ in 0..1000 {
        net.advance_to(net.now_ns() + 1_000);
        for engine in engines.iter_mut() {
            engine.poll(Time::from_nanos(net.now_ns()), &mut ()).unwrap();
            engine.check_invariants();
        }
    }
}

#[test]
fn a_rank_that_leaves_does_not_wait_for_a_peer_that_it_never_reached() {
    let (net, mut engines) = crowded();
    run(&net, &mut engines);
    assert!(
        peer_state(&engines[0], WorldRank(1)).is_heard()
            && peer_state(&engines[0], WorldRank(1)).path().is_none()
    );
    engines[0].peer_failed(WorldRank(2), None, Cause::Lost).unwrap();
    engines[0].close(Time::from_nanos(net.now_ns()));
    assert_eq!(engines[0].not_closed(), None);
}

#[test]
fn a_peer_that_is_reached_late_gets_its_credit() {
    let (net, mut engines) = crowded();
    let sent = engines[1].isend(Time::ZERO, WorldRank(0), 1, 5, Memory::new(bytes(8)), NEVER).unwrap();
    run(&net, &mut engines);
    assert_eq!((engines[1].outcome(sent), engines[0].usage().credit_granted), (Outcome::Pending, 0));
    engines[0].peer_failed(WorldRank(2), None, Cause::Lost).unwrap();
    engines[0].introduce(WorldRank(1), 7, net.address(1)).unwrap();
    run(&net, &mut engines);
    assert_eq!(engines[1].outcome(sent), Outcome::Ready);
    assert!(engines[0].usage().credit_granted > 0);
}

/// The first answer to a hello reports that there is no credit, and is lost. The answer is repeated with the same
/// report, although the peer does not ask again.
#[test]
fn a_repeated_hello_says_that_there_is_no_credit() {
    let config = Config { unexpected_max: 0, ..Config::default() };
    let mut engines = pair(&config);
    let send = engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(bytes(8)), NEVER).unwrap();
    engines[1].poll(Time::ZERO, &mut ()).unwrap();
    while engines[0].port_mut().poll(&mut Lost).unwrap() > 0 {}
    engines[1].poll(Time::from_nanos(250_000_000), &mut ()).unwrap();
    settle(&mut engines);
    let recv = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), NEVER).unwrap();
    settle(&mut engines);
    assert_eq!([engines[0].outcome(send), engines[1].outcome(recv)], [Outcome::Ready; 2]);
}

#[test]
fn of_several_incarnations_in_one_poll_only_the_last_has_messages() {
    let [_sender, mut receiver] = pair_of(5, &Config::default());
    let peer = peer_of(&receiver, WorldRank(0));
    let of = |incarnation: u8, mut packet: Vec<u8>| {
        packet[8] = incarnation;
        packet
    };
    let envelope = |incarnation, number, tag| {
        let rts = Rts::new(tag, 100_000, tag, TransferMode::Push);
        let mut packet = of(incarnation, packet(Protocol::P2p, kind::RTS, number, rts.as_bytes()));
        packet[4] = peer.index() as u8;
        packet
    };
    for incarnation in [7, 8, 9] {
        arrive(&mut receiver, &of(incarnation, first_hello()));
        arrive(&mut receiver, &envelope(incarnation, 1, incarnation.into()));
        assert_eq!(peer_of(&receiver, WorldRank(0)), peer, "a rank keeps its number");
    }
    let before = receiver.counters();
    // Packets of earlier incarnations arrive late: a hello, and two envelopes with the number that the receiver has
    // given to the sender. One of the envelopes has the sequence number that is expected next.
    for late in [of(8, first_hello()), envelope(8, 2, 20), envelope(7, 1, 21)] {
        arrive(&mut receiver, &late);
    }
    let rejected = receiver.counters().rejected;
    assert_eq!((rejected.hello, rejected.unknown), (before.rejected.hello + 1, before.rejected.unknown + 2));
    assert_eq!((before.failed_peers, receiver.counters().failed_peers), (2, 2));
    let waiting: Vec<_> = (0..30).filter(|&tag| is_waiting(&mut receiver, tag)).collect();
    assert_eq!(waiting, [9]);
    receiver.check_invariants();
}

fn is_waiting(receiver: &mut Engine<Loopback>, tag: u64) -> bool {
    receiver.probe(&Pattern::exact(0, 0, tag)).unwrap().is_some()
}
