//! The outbox: short sends return before their message can be sent.

use samite_fabric::layout::Form;
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};

use super::*;
use crate::Untaken;

/// Returns rank 0 of a job of two ranks, which does not know the address of rank 1 yet, and the hub for the port of
/// rank 1.
fn alone(config: &Config) -> (Hub, Engine<Loopback>) {
    let hub = Hub::new();
    let identity = Identity { rank: WorldRank(0), size: 2, incarnation: 7, secret: [9; 16] };
    let engine = Engine::new(hub.port(), identity, config.clone());
    (hub, engine)
}

fn receive(engines: &mut [Engine<Loopback>; 2], tag: u64, len: usize) -> Vec<u8> {
    let id = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, tag), Memory::zeroed(len), NEVER).unwrap();
    settle(engines);
    let Completion { result, memory } = engines[1].collect(id, &mut ()).expect("its message comes");
    assert_eq!(result.unwrap().bytes, len);
    memory.unwrap().as_bytes().to_vec()
}

#[test]
fn a_short_send_to_an_unknown_peer_returns() {
    let (hub, mut engine) = alone(&Config::default());
    assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, b"first", NEVER), Ok(Sent::Copied));
    let id = engine.isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(b"second".to_vec()), NEVER).unwrap();
    let done = engine.collect(id, &mut ()).expect("it has ended");
    assert_eq!(done.result, Ok(Status { source: WorldRank(1), tag: 5, bytes: 6 }));
    assert_eq!(done.memory.unwrap().as_bytes(), b"second", "the memory comes back");
    let every_second = Form::block(1).unwrap().strided(5, 2).unwrap();
    let scattered = every_second.read(b"t-h-i-r-d").unwrap();
    assert_eq!(engine.send_from(Time::ZERO, WorldRank(1), 1, 5, &scattered, NEVER), Ok(Sent::Copied));
    assert_eq!(engine.usage().outbox, (5 + 192) + (6 + 192) + (5 + 192));
    engine.check_invariants();

    let port = hub.port();
    let identity = Identity { rank: WorldRank(1), size: 2, incarnation: 7, secret: [9; 16] };
    let addresses = [engine.port().address(), port.address()];
    let mut engines = [engine, Engine::new(port, identity, Config::default())];
    engines[0].introduce(WorldRank(1), 7, addresses[1].clone()).unwrap();
    engines[1].introduce(WorldRank(0), 7, addresses[0].clone()).unwrap();
    assert_eq!(receive(&mut engines, 5, 5), b"first");
    assert_eq!(receive(&mut engines, 5, 6), b"second");
    assert_eq!(receive(&mut engines, 5, 5), b"third");
    at_rest(&engines);
    assert_eq!(engines[0].counters().lost, 0);
}

#[test]
fn a_message_that_is_short_on_one_transport_is_copied() {
    let tuning = |eager_max| crate::Tuning {
        transport: "loopback".to_owned(),
        library: crate::Library::Samite,
        version: String::new(),
        values: vec![("eager_max", eager_max)],
    };
    for (tuned, longest) in [(200, 200), (50, 100)] {
        let config = Config { eager_max: 100, tunings: vec![tuning(tuned)], ..Config::default() };
        let (_, mut engine) = alone(&config);
        let send =
            |engine: &mut Engine<_>, len| engine.send(Time::ZERO, WorldRank(1), 1, 5, &bytes(len), NEVER);
        assert_eq!(send(&mut engine, longest), Ok(Sent::Copied));
        assert!(matches!(send(&mut engine, longest + 1), Ok(Sent::Pending(_))));
    }
}

#[test]
fn a_send_beyond_the_budget_waits() {
    let config = Config { outbox_max: 3 * (100 + 192), ..Config::default() };
    let (_, mut engine) = alone(&config);
    let data = bytes(100);
    for _ in 0..3 {
        assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, &data, NEVER), Ok(Sent::Copied));
    }
    let Ok(Sent::Pending(waits)) = engine.send(Time::ZERO, WorldRank(1), 1, 5, &data, Time::from_nanos(10))
    else {
        panic!("there is no room")
    };
    let owned = engine.isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(data.clone()), NEVER).unwrap();
    assert_eq!(engine.outcome(owned), Outcome::Pending);
    engine.poll(Time::from_nanos(10), &mut ()).unwrap();
    let ended = engine.collect(waits, &mut ()).expect("its deadline has passed").result;
    assert!(matches!(ended, Err(Error::TimedOut { fate: Fate::NotDelivered, .. })), "{ended:?}");
    engine.cancel(owned);
    let ended = engine.collect(owned, &mut ()).expect("it has ended").result;
    assert_eq!(ended, Err(Error::Cancelled { fate: Fate::NotDelivered }));
    assert_eq!(engine.usage().outbox, 3 * (100 + 192));
}

#[test]
fn a_long_send_waits() {
    let (_, mut engine) = alone(&Config::default());
    let data = bytes(Config::default().eager_max + 1);
    assert!(matches!(engine.send(Time::ZERO, WorldRank(1), 1, 5, &data, NEVER), Ok(Sent::Pending(_))));
    assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, &data[1..], NEVER), Ok(Sent::Copied));
}

#[test]
fn the_messages_to_a_peer_that_fails_are_lost_and_counted() {
    let (_, mut engine) = alone(&Config::default());
    for _ in 0..3 {
        assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, b"message", NEVER), Ok(Sent::Copied));
    }
    engine.peer_failed(WorldRank(1), None, Cause::Lost).unwrap();
    engine.check_invariants();
    assert_eq!((engine.counters().lost, engine.usage().outbox, engine.usage().requests), (3, 0, 0));
    let next = engine.send(Time::ZERO, WorldRank(1), 1, 5, b"message", NEVER);
    assert!(matches!(next, Err(Error::PeerFailed { rank: WorldRank(1), .. })), "{next:?}");
}

#[test]
fn a_goodbye_comes_after_the_messages_in_the_outbox() {
    // The receiver grants no credit, so only the envelopes of the messages are sent before the receives are posted.
    let config = Config { unexpected_max: 0, ..Config::default() };
    let mut engines = pair(&config);
    for tag in 0..3 {
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, tag, b"message", NEVER), Ok(Sent::Copied));
    }
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    assert_eq!(engines[0].not_closed(), Some(WorldRank(1)));
    for tag in [2, 0, 1] {
        assert_eq!(receive(&mut engines, tag, 7), b"message");
    }
    settle(&mut engines);
    assert!(engines[0].closed());
    at_rest(&engines);
}

#[test]
fn an_envelope_beyond_the_budget_waits_for_its_confirmation() {
    let config = Config { unexpected_max: 0, envelopes_max: 2 * 96, ..Config::default() };
    let mut engines = pair(&config);
    for tag in 0..6 {
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, tag, b"message", NEVER), Ok(Sent::Copied));
    }
    settle(&mut engines);
    assert_eq!(engines[1].usage().envelopes, 3 * 96, "one envelope exceeds the budget");
    let posted =
        engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 9), Memory::zeroed(100_000), NEVER).unwrap();
    let long = engines[0].isend(Time::ZERO, WorldRank(1), 1, 9, Memory::new(bytes(100_000)), NEVER).unwrap();
    settle(&mut engines);
    assert_eq!(engines[0].outcome(long), Outcome::Pending, "it does not overtake the others");
    for tag in 0..6 {
        assert_eq!(receive(&mut engines, tag, 7), b"message");
    }
    assert!(engines[1].collect(posted, &mut ()).unwrap().result.is_ok());
    assert!(engines[0].collect(long, &mut ()).unwrap().result.is_ok());
    at_rest(&engines);
    assert_eq!((engines[1].counters().refused, engines[0].counters().lost), (0, 0));
}

#[test]
fn a_peer_that_does_not_wait_for_confirmations_fails() {
    let config = Config { unexpected_max: 0, envelopes_max: 0, ..Config::default() };
    let mut engines = pair(&config);
    assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"message", NEVER), Ok(Sent::Copied));
    settle(&mut engines);
    let peer = peer_of(&engines[0], WorldRank(1));
    // Lets the sender go on as if the receiver had confirmed the first message.
    engines[0].inner.tagged_mut().queues(peer).unconfirmed = None;
    assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"message", NEVER), Ok(Sent::Copied));
    settle(&mut engines);
    let failure = engines[1].failure(WorldRank(0));
    assert!(matches!(failure, Some(Cause::Protocol(_))), "{failure:?}");
}

#[test]
fn ranks_that_leave_do_not_wait_for_messages_to_each_other_or_themselves() {
    let config = Config { unexpected_max: 0, ..Config::default() };
    let mut engines = pair(&config);
    for to in [1, 0, 0] {
        for engine in &mut engines {
            assert_eq!(engine.send(Time::ZERO, WorldRank(to), 1, 5, b"message", NEVER), Ok(Sent::Copied));
        }
    }
    settle(&mut engines);
    assert_eq!(engines[0].untaken().map(|untaken| untaken.messages).sum::<u64>(), 1, "its own do not count");
    engines[0].close(Time::ZERO);
    for tag in 0..2 {
        assert_eq!(engines[1].send(Time::ZERO, WorldRank(0), 1, tag, b"message", NEVER), Ok(Sent::Copied));
    }
    engines[1].close(Time::ZERO);
    settle(&mut engines);
    assert!(engines.iter().all(Engine::closed));
    assert_eq!(engines.each_ref().map(|engine| engine.counters().lost), [3, 5]);
    at_rest(&engines);
}

#[test]
fn an_initialization_that_meets_its_receive_makes_room_for_an_envelope() {
    let config = Config { unexpected_max: 0, envelopes_max: 96, ..Config::default() };
    let mut engines = pair(&config);
    let half = engines[0].psend_init(Time::ZERO, WorldRank(1), 1, 7, 8, 2, Signature::BYTES).unwrap();
    settle(&mut engines);
    for tag in 0..2 {
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, tag, b"message", NEVER), Ok(Sent::Copied));
    }
    settle(&mut engines);
    assert_eq!(engines[1].usage().envelopes, 2 * 96);
    let other = engines[1].precv_init(Time::ZERO, WorldRank(0), 1, 7, 8, None).unwrap();
    settle(&mut engines);
    assert_eq!(receive(&mut engines, 1, 7), b"message", "the first message is within the budget now");
    assert_eq!(receive(&mut engines, 0, 7), b"message");
    engines[0].free_partitioned(Time::ZERO, half);
    engines[1].free_partitioned(Time::ZERO, other);
    settle(&mut engines);
    at_rest(&engines);
}

#[test]
fn messages_keep_their_order_with_later_sends_of_every_mode_and_size() {
    const SIZES: [usize; 4] = [8, 16 << 10, 100_000, 400_000];
    let (hub, mut engine) = alone(&Config::default());
    let buffer = Arc::new(SendBuffer::new(8 << 20));
    let message = |at: usize| vec![at as u8; SIZES[at % SIZES.len()]];
    let mut pending = Vec::new();
    for at in 0..32 {
        let (now, to, memory) = (Time::ZERO, WorldRank(1), Memory::new(message(at)));
        pending.push(match at / SIZES.len() % 3 {
            0 => engine.isend(now, to, 1, 5, memory, NEVER),
            1 => engine.isend_with(Mode::Synchronous, now, to, 1, 5, memory, NEVER),
            _ => engine.isend_with(Mode::Buffered(&buffer), now, to, 1, 5, memory, NEVER),
        });
    }
    let port = hub.port();
    let identity = Identity { rank: WorldRank(1), size: 2, incarnation: 7, secret: [9; 16] };
    let addresses = [engine.port().address(), port.address()];
    let mut engines = [engine, Engine::new(port, identity, Config::default())];
    engines[0].introduce(WorldRank(1), 7, addresses[1].clone()).unwrap();
    engines[1].introduce(WorldRank(0), 7, addresses[0].clone()).unwrap();
    for at in 0..32 {
        assert!(receive(&mut engines, 5, message(at).len()) == message(at), "message {at}");
    }
    settle(&mut engines);
    for id in pending {
        assert!(engines[0].collect(id.unwrap(), &mut ()).expect("it has ended").result.is_ok());
    }
    at_rest(&engines);
}

#[test]
fn the_messages_that_a_peer_has_not_acknowledged_are_untaken() {
    let (hub, mut engine) = alone(&Config::default());
    for deadline in [10, 30, 20].map(Time::from_nanos) {
        assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, b"message", deadline), Ok(Sent::Copied));
    }
    let untaken =
        |messages| Vec::from([Untaken { rank: WorldRank(1), messages, until: Time::from_nanos(30) }]);
    let of = |engine: &Engine<Loopback>| engine.untaken().collect::<Vec<_>>();
    assert_eq!(of(&engine), untaken(3));
    engine.poll(Time::from_nanos(40), &mut ()).unwrap();
    assert_eq!(of(&engine), untaken(3), "a deadline does not end a message in the outbox");

    let port = hub.port();
    let identity = Identity { rank: WorldRank(1), size: 2, incarnation: 7, secret: [9; 16] };
    let addresses = [engine.port().address(), port.address()];
    let mut peer = Engine::new(port, identity, Config::default());
    engine.introduce(WorldRank(1), 7, addresses[1].clone()).unwrap();
    peer.introduce(WorldRank(0), 7, addresses[0].clone()).unwrap();
    while engine.usage().outbox > 0 {
        peer.poll(Time::ZERO, &mut ()).unwrap();
        engine.poll(Time::ZERO, &mut ()).unwrap();
    }
    assert_eq!(of(&engine), untaken(3), "they are in the port, and not acknowledged");
    engine.close(Time::ZERO);
    let mut engines = [engine, peer];
    settle(&mut engines);
    assert_eq!((of(&engines[0]), engines[0].closed()), (Vec::new(), true));
}

#[test]
fn a_lost_message_is_counted_for_its_receiver() {
    let (_, mut engine) = alone(&Config::default());
    for _ in 0..2 {
        assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, b"message", NEVER), Ok(Sent::Copied));
    }
    assert!(engine.lost().is_empty());
    engine.peer_left(WorldRank(1), None).unwrap();
    assert_eq!(engine.lost().iter().collect::<Vec<_>>(), [(&WorldRank(1), &2)]);
    assert_eq!(engine.untaken().count(), 0);
}

/// A port does not report that it has room again, and here no later operation seeks the peer.
#[test]
fn messages_wait_for_room_in_the_port() {
    let mut network = NetConfig::default();
    network.caps.peers_max = 1;
    let net = Net::new(1, network);
    let mut engines = [0, 1].map(|rank| {
        let identity = Identity { rank: WorldRank(rank), size: 3, incarnation: 7, secret: [9; 16] };
        Engine::new(net.start(rank), identity, Config::default())
    });
    let send = |engines: &mut [Engine<SimPort>; 2]| {
        engines[0].send(Time::from_nanos(net.now_ns()), WorldRank(1), 1, 5, b"message", NEVER).unwrap()
    };
    assert_eq!([send(&mut engines), send(&mut engines)], [Sent::Copied; 2]);
    // The only place is taken when rank 0 learns the address of rank 1.
    engines[0].introduce(WorldRank(2), 7, net.address(2)).unwrap();
    assert_eq!(engines[0].wanted().collect::<Vec<_>>(), [WorldRank(1)]);
    engines[0].introduce(WorldRank(1), 7, net.address(1)).unwrap();
    let untaken = Untaken { rank: WorldRank(1), messages: 2, until: Time::ZERO };
    assert_eq!(engines[0].untaken().collect::<Vec<_>>(), [untaken], "a leaving rank need not wait");
    let Sent::Pending(later) = send(&mut engines) else { panic!("a later send waits, to report the cause") };
    let seeks = |engines: &mut [Engine<SimPort>; 2]| {
        while engines[0].wanted().next().is_none() {
            net.advance_to(net.now_ns() + 1_000_000);
            for engine in engines.iter_mut() {
                engine.poll(Time::from_nanos(net.now_ns()), &mut ()).unwrap();
                engine.check_invariants();
            }
        }
        engines[0].introduce(WorldRank(1), 7, net.address(1)).unwrap();
    };
    for _ in 0..6 {
        seeks(&mut engines);
    }
    let ended = engines[0].collect(later, &mut ()).expect("it has ended").result;
    assert!(matches!(ended, Err(Error::Exhausted { what: "peers", .. })), "{ended:?}");
    engines[0].peer_failed(WorldRank(2), None, Cause::Lost).unwrap();
    seeks(&mut engines);
    while engines[1].usage().unexpected_messages < 2 {
        net.advance_to(net.now_ns() + 1_000_000);
        for engine in &mut engines {
            engine.poll(Time::from_nanos(net.now_ns()), &mut ()).unwrap();
        }
    }
    assert_eq!((engines[0].usage().outbox, engines[0].counters().lost), (0, 0));
}
