//! Messages that are gathered for one packet, where packets are dear.

use samite_fabric::sim::{Config as NetConfig, Net};

use super::*;

const TO: WorldRank = WorldRank(1);

/// Returns two engines that know each other, over ports whose packets are dear.
fn dear(config: &Config) -> [Engine<Loopback>; 2] {
    let hub = Hub::new();
    let ports = [hub.port(), hub.port()].map(Loopback::with_dear_packets);
    let mut engines = pair_over(2, ports, config);
    settle(&mut engines);
    engines
}

/// Returns the number of packets that rank 0 has sent to rank 1.
fn packets(engines: &[Engine<Loopback>; 2]) -> u32 {
    peer_state(&engines[0], TO).last_sent()
}

fn send(engine: &mut Engine<impl Port>, tag: u64, data: &[u8]) {
    assert_eq!(engine.send(Time::ZERO, TO, 1, tag, data, NEVER), Ok(Sent::Now));
    engine.check_invariants();
}

/// Receives the next message with a tag at rank 1.
fn receive(engines: &mut [Engine<Loopback>; 2], tag: u64) -> Vec<u8> {
    let pattern = Pattern::exact(1, 0, tag);
    let id = engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(100_000), NEVER).unwrap();
    settle(engines);
    let Completion { result, memory } = engines[1].collect(id, &mut ()).expect("its message comes");
    memory.unwrap().as_bytes()[..result.unwrap().bytes].to_vec()
}

/// Lets rank 1 acknowledge everything, by a message to rank 0.
fn acknowledge(engines: &mut [Engine<Loopback>; 2]) {
    settle(engines);
    assert_eq!(engines[1].send(Time::ZERO, WorldRank(0), 1, 99, b"", NEVER), Ok(Sent::Now));
    settle(engines);
    let pattern = Pattern::exact(1, 1, 99);
    let id = engines[0].irecv(Time::ZERO, pattern, Memory::zeroed(0), NEVER).unwrap();
    assert!(engines[0].collect(id, &mut ()).is_some());
}

#[test]
fn the_messages_of_a_burst_share_a_packet() {
    let mut engines = dear(&Config::default());
    let before = packets(&engines);
    for number in 0..10u8 {
        send(&mut engines[0], 5, &[number; 8]);
    }
    assert_eq!(packets(&engines), before + 1, "the first message leaves at once");
    assert_eq!(engines[0].usage().gathered, 9 * (8 + 8 + 8));
    assert_eq!(engines[0].due(), Time::ZERO.after(Config::default().bundle_delay_us * 1000));
    assert!(!engines[0].keeps_messages(), "they are not messages of the outbox");
    settle(&mut engines);
    assert_eq!((packets(&engines), engines[0].counters().bundles), (before + 2, 1));
    let hello_is_due = Time::from_nanos(250_000_000);
    assert_eq!((engines[0].usage().gathered, engines[0].due()), (0, hello_is_due));
    for number in 0..10u8 {
        assert_eq!(receive(&mut engines, 5), [number; 8]);
    }
    at_rest(&engines);
}

#[test]
fn a_message_to_a_peer_that_has_answered_leaves_at_once() {
    let mut engines = dear(&Config::default());
    for _ in 0..3 {
        let before = packets(&engines);
        send(&mut engines[0], 5, b"alone");
        assert_eq!((packets(&engines), engines[0].usage().gathered), (before + 1, 0));
        acknowledge(&mut engines);
        assert_eq!(receive(&mut engines, 5), b"alone");
    }
    assert_eq!(engines[0].counters().bundles, 0);
    at_rest(&engines);
}

#[test]
fn a_single_gathered_message_is_an_ordinary_packet() {
    let mut engines = dear(&Config::default());
    send(&mut engines[0], 5, b"first");
    send(&mut engines[0], 6, b"second");
    assert_eq!(engines[0].usage().gathered, 8 + 8 + 6);
    engines[0].send_gathered(Time::ZERO);
    assert_eq!((engines[0].usage().gathered, engines[0].counters().bundles), (0, 0));
    assert_eq!(receive(&mut engines, 6), b"second");
    assert_eq!(receive(&mut engines, 5), b"first");
    at_rest(&engines);
}

/// A peer that never answers acknowledges nothing. If messages to such a peer are rare, a gathered message is sent
/// alone at the end of its time. The next 64 messages then leave at once.
#[test]
fn a_message_that_waited_without_company_is_followed_by_packets() {
    let mut engines = dear(&Config::default());
    let late = Time::from_nanos(200_000);
    let mut waited = Vec::new();
    for number in 0..200u8 {
        let before = packets(&engines);
        send(&mut engines[0], 5, &[number]);
        if packets(&engines) == before {
            waited.push(number);
            assert!(engines[0].take_new_gathering());
        }
        engines[0].poll(late, &mut ()).unwrap();
        assert!(!engines[0].has_new_gathering());
        assert_eq!(packets(&engines), before + 1);
    }
    assert_eq!(waited, [1, 66, 131, 196]);
    // Of a burst, some messages still leave at once, and the rest is gathered again.
    acknowledge(&mut engines);
    for burst in 0..100u8 {
        send(&mut engines[0], 5, &[burst]);
    }
    assert!(engines[0].usage().gathered > 0);
    for number in (0..200).chain(0..100) {
        assert_eq!(receive(&mut engines, 5), [number]);
    }
    at_rest(&engines);
}

/// A bundle that is full leaves in the call. A message that is gathered after it needs a poll again, in its own time.
#[test]
fn a_message_behind_a_full_bundle_calls_for_a_poll_too() {
    let mut engines = dear(&Config::default());
    let (data, delay) = ([7; 900], Config::default().bundle_delay_us * 1000);
    for round in 1..4 {
        let now = Time::from_nanos(round * 1_000_000);
        send(&mut engines[0], 5, &data);
        let mut gathered = 0;
        while engines[0].usage().gathered >= gathered {
            gathered = engines[0].usage().gathered;
            assert_eq!(engines[0].send(now, TO, 1, 5, data.as_slice(), NEVER), Ok(Sent::Now));
        }
        assert_eq!(engines[0].usage().gathered, 0, "a full bundle leaves");
        engines[0].take_new_gathering();
        assert_eq!(engines[0].send(now, TO, 1, 5, data.as_slice(), NEVER), Ok(Sent::Now));
        assert!(engines[0].usage().gathered > 0 && engines[0].take_new_gathering());
        assert_eq!(engines[0].due(), now.after(delay));
        engines[0].check_invariants();
        acknowledge(&mut engines);
    }
}

/// A program sends a long message, and a short one behind it, and then polls. The short message is gathered each time,
/// and nothing joins it. So it is gathered less and less often.
#[test]
fn messages_without_company_are_gathered_less_and_less_often() {
    let mut engines = dear(&Config::default());
    let mut gathered = Vec::new();
    let mut round = |engines: &mut [Engine<Loopback>; 2], number: u16, others: u8| {
        send(&mut engines[0], 5, &bytes(5000));
        let before = packets(engines);
        send(&mut engines[0], 6, b"behind it");
        if packets(engines) == before {
            gathered.push(number);
        }
        (0..others).for_each(|_| send(&mut engines[0], 6, b"company"));
        settle(engines);
        receive(engines, 5);
        (0..=others).for_each(|_| drop(receive(engines, 6)));
        acknowledge(engines);
    };
    (0..400).for_each(|number| round(&mut engines, number, 0));
    // The long message counts as one that leaves at once only while the one before it is not acknowledged.
    round(&mut engines, 400, 200);
    (401..405).for_each(|number| round(&mut engines, number, 0));
    assert_eq!(gathered, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264, 329, 394, 401, 403]);
    at_rest(&engines);
}

#[test]
fn a_full_bundle_leaves_in_the_call() {
    let mut engines = dear(&Config { bundle_max: 100, ..Config::default() });
    let before = packets(&engines);
    // Of these messages, with 16 bytes before each, four have room in a bundle.
    for number in 0..10u8 {
        send(&mut engines[0], 5, &[number; 8]);
    }
    assert_eq!(packets(&engines), before + 3);
    assert_eq!(engines[0].usage().gathered, 24);
    // A message with more than a quarter of the room has a packet of its own, behind the gathered messages.
    send(&mut engines[0], 5, &[10; 10]);
    assert_eq!((packets(&engines), engines[0].usage().gathered), (before + 5, 0));
    for number in 0..10u8 {
        assert_eq!(receive(&mut engines, 5), [number; 8]);
    }
    assert_eq!(receive(&mut engines, 5), [10; 10]);
    at_rest(&engines);
}

#[test]
fn gathered_messages_keep_their_place_among_others() {
    let mut engines = dear(&Config { window_min: 1 << 20, ..without_puts() });
    let long = bytes(70_000);
    let mut sends = Vec::new();
    for round in 0..4u8 {
        for number in 0..3 {
            send(&mut engines[0], 5, &[round, number]);
        }
        let memory = Memory::new(long[..usize::from(round) * 20_000 + 20].to_vec());
        sends.push(match round {
            0 => engines[0].isend_with(Mode::Synchronous, Time::ZERO, TO, 1, 5, memory, NEVER).unwrap(),
            _ => engines[0].isend(Time::ZERO, TO, 1, 5, memory, NEVER).unwrap(),
        });
        engines[0].check_invariants();
    }
    for round in 0..4u8 {
        for number in 0..3 {
            assert_eq!(receive(&mut engines, 5), [round, number]);
        }
        assert_eq!(receive(&mut engines, 5), long[..usize::from(round) * 20_000 + 20]);
    }
    settle(&mut engines);
    for id in sends {
        assert!(engines[0].collect(id, &mut ()).expect("it has ended").result.is_ok());
    }
    at_rest(&engines);
}

#[test]
fn a_gathered_send_has_ended() {
    let mut engines = dear(&Config::default());
    send(&mut engines[0], 5, b"first");
    let data = Memory::new(b"second".to_vec());
    let id = engines[0].isend(Time::ZERO, TO, 1, 5, data, Time::from_nanos(1)).unwrap();
    assert_eq!(engines[0].outcome(id), Outcome::Ready);
    engines[0].cancel(id);
    engines[0].poll(Time::from_nanos(10), &mut ()).unwrap();
    assert!(engines[0].collect(id, &mut ()).expect("it has ended").result.is_ok());
    assert_eq!(receive(&mut engines, 5), b"first");
    assert_eq!(receive(&mut engines, 5), b"second");
    at_rest(&engines);
}

#[test]
fn the_goodbye_comes_after_the_gathered_messages() {
    let mut engines = dear(&Config::default());
    for number in 0..5u8 {
        send(&mut engines[0], 5, &[number]);
    }
    assert_eq!(engines[0].usage().gathered, 4 * 17);
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    assert!(engines[0].closed());
    for number in 0..5u8 {
        assert_eq!(receive(&mut engines, 5), [number]);
    }
}

#[test]
fn the_gathered_messages_to_a_peer_that_fails_are_dropped() {
    let mut engines = dear(&Config::default());
    for number in 0..5u8 {
        send(&mut engines[0], 5, &[number]);
    }
    engines[0].peer_failed(TO, None, Cause::Lost).unwrap();
    engines[0].check_invariants();
    assert_eq!(engines[0].usage().gathered, 0);
    let next = engines[0].send(Time::ZERO, TO, 1, 5, b"next", NEVER);
    assert!(matches!(next, Err(Error::PeerFailed { .. })), "{next:?}");
    // The next incarnation gets none of them.
    engines[0].inner.peer_takes_part(TO, 8).unwrap();
    assert_eq!(engines[0].send(Time::ZERO, TO, 1, 5, b"next", NEVER), Ok(Sent::Copied));
    engines[0].poll(Time::ZERO, &mut ()).unwrap();
    engines[0].check_invariants();
    assert_eq!(engines[0].usage().gathered, 0);
}

#[test]
fn beyond_the_budget_each_message_has_its_packet() {
    for (outbox_max, gathered) in [(0, 0), (50, 2 * 17)] {
        let mut engines = dear(&Config { outbox_max, ..Config::default() });
        send(&mut engines[0], 5, &[0]);
        for number in 1..3u8 {
            send(&mut engines[0], 5, &[number]);
        }
        assert_eq!(engines[0].usage().gathered, gathered, "of {outbox_max} bytes");
        send(&mut engines[0], 5, &[3]);
        assert_eq!(engines[0].usage().gathered, 0, "of {outbox_max} bytes");
        for number in 0..4u8 {
            assert_eq!(receive(&mut engines, 5), [number]);
        }
        at_rest(&engines);
    }
}

#[test]
fn nothing_is_gathered_without_permission() {
    for (permits, bundle_max) in [(true, 0), (false, 4096)] {
        let mut engines = dear(&Config { bundle_max, ..Config::default() });
        engines[0].set_gathering(permits);
        let before = packets(&engines);
        for number in 0..5u8 {
            send(&mut engines[0], 5, &[number]);
        }
        assert_eq!((packets(&engines), engines[0].usage().gathered), (before + 5, 0));
        for number in 0..5u8 {
            assert_eq!(receive(&mut engines, 5), [number]);
        }
        at_rest(&engines);
    }
}

#[test]
fn answers_share_a_packet() {
    for bundle_max in [0, 4096] {
        let mut engines = dear(&Config { bundle_max, ..Config::default() });
        let receives = [5; 6].map(|tag| {
            engines[0].irecv(Time::ZERO, Pattern::exact(1, 1, tag), Memory::zeroed(8), NEVER).unwrap()
        });
        let sends = [5; 6].map(|tag| {
            let (data, to) = (Memory::new(vec![0u8; 8]), WorldRank(0));
            engines[1].isend_with(Mode::Synchronous, Time::ZERO, to, 1, tag, data, NEVER).unwrap()
        });
        let before = packets(&engines);
        while engines[0].poll(Time::ZERO, &mut ()).unwrap() == 0 {
            engines[1].poll(Time::ZERO, &mut ()).unwrap();
        }
        settle(&mut engines);
        let answers = packets(&engines) - before;
        assert_eq!(answers, if bundle_max == 0 { 6 } else { 1 });
        for (engine, ids) in [(0, receives), (1, sends)] {
            for id in ids {
                let end = engines[engine].collect(id, &mut ()).expect("it has ended");
                assert!(end.result.is_ok(), "{:?}", end.result);
            }
        }
        at_rest(&engines);
    }
}

/// A rank whose questions wait for an acknowledgement notices the acknowledgement even if it comes with a single
/// gathered message.
#[test]
fn a_single_message_with_an_acknowledgement_is_noticed() {
    let mut engines = dear(&Config { announced_max: 2, ..Config::default() });
    let questions = [6, 7, 8].map(|tag| {
        let (data, to) = (Memory::new(vec![0u8; 8]), WorldRank(0));
        engines[1].isend_with(Mode::Synchronous, Time::ZERO, to, 1, tag, data, NEVER).unwrap()
    });
    send(&mut engines[0], 5, b"first");
    send(&mut engines[0], 5, b"second");
    settle(&mut engines);
    assert_eq!(engines[0].counters().bundles, 1, "the acknowledgement travels with the message");
    assert_eq!(engines[0].usage().unexpected_messages, 3, "all questions have arrived");
    for tag in [6, 7, 8] {
        let pattern = Pattern::exact(1, 1, tag);
        let id = engines[0].irecv(Time::ZERO, pattern, Memory::zeroed(8), NEVER).unwrap();
        settle(&mut engines);
        assert!(engines[0].collect(id, &mut ()).expect("its message waits").result.is_ok());
    }
    for id in questions {
        assert!(engines[1].collect(id, &mut ()).expect("it has ended").result.is_ok());
    }
    assert_eq!(receive(&mut engines, 5), b"first");
    assert_eq!(receive(&mut engines, 5), b"second");
    at_rest(&engines);
}

#[test]
fn a_bundle_for_which_there_is_no_room_waits_and_stays_first() {
    let mut config = NetConfig { channel_depth: 1, ..NetConfig::default() };
    config.caps.dear_packets = true;
    let net = Net::new(1, config);
    let mut engines = [0, 1].map(|rank| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 7, secret: [9; 16] };
        Engine::new(net.start(rank), identity, Config { bundle_max: 100, ..Config::default() })
    });
    engines[0].introduce(TO, 7, net.address(1)).unwrap();
    engines[1].introduce(WorldRank(0), 7, net.address(0)).unwrap();
    let run = |engines: &mut [Engine<_>; 2]| {
        for _ in 0..100 {
            net.advance_to(net.now_ns() + 1_000);
            for engine in engines.iter_mut() {
                engine.poll(Time::from_nanos(net.now_ns()), &mut ()).unwrap();
                engine.check_invariants();
            }
        }
    };
    run(&mut engines);
    // The channel has room for one packet, which the first message takes. The next four messages fill the bundle, and
    // the others wait in the outbox.
    let mut ends = Vec::new();
    for number in 0..9u8 {
        ends.push(engines[0].send(Time::ZERO, TO, 1, 5, &[number; 8], NEVER).unwrap());
        engines[0].check_invariants();
    }
    assert_eq!(ends, [[Sent::Now; 5].as_slice(), &[Sent::Copied; 4]].concat());
    assert_eq!(engines[0].due(), Time::ZERO, "it must be tried again");
    run(&mut engines);
    for number in 0..9u8 {
        let (pattern, memory) = (Pattern::exact(1, 0, 5), Memory::zeroed(8));
        let id = engines[1].irecv(Time::ZERO, pattern, memory, NEVER).unwrap();
        run(&mut engines);
        let memory = engines[1].collect(id, &mut ()).expect("it has arrived").memory.unwrap();
        assert_eq!(memory.as_bytes(), [number; 8]);
    }
    assert_eq!(engines[0].usage().gathered, 0);
}
