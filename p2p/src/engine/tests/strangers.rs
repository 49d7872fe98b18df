//! Packets that no honest rank sends: refused and counted by cause, at the cost of nobody else.

use super::*;
use samite_fabric::Remote;

use crate::wire::{Data, Fin, Rts, Verdict, Way, kind};

fn arrive(receiver: &mut Engine<Loopback>, packet: &[u8]) {
    receiver.inner.sink(&mut ()).packet(packet);
}

/// A packet from rank 0 to rank 1, both in life 7.
fn packet(protocol: Protocol, kind: u8, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(protocol, kind, Flags::empty());
    (header.incarnation, header.to, header.sequence) = (7.into(), 7.into(), sequence.into());
    [header.as_bytes(), body].concat()
}

fn hello(secret: [u8; 16], to: u32, address_len: u16) -> Vec<u8> {
    let hello =
        Hello { secret, to_incarnation: to.into(), address_len: address_len.into(), reserved: [0; 2] };
    [hello.as_bytes(), b"here"].concat()
}

fn rts(send: u64) -> Vec<u8> {
    Rts::new(0, 100_000, send, Way::Push).as_bytes().to_vec()
}

/// Rank 1, which has heard rank 0's hello, and the number of the next packet it expects.
fn acquainted(config: &Config) -> (Engine<Loopback>, u32) {
    let mut engines = pair(config);
    settle(&mut engines);
    let [_, receiver] = engines;
    let expected = peer_state(&receiver, 0).expected();
    (receiver, expected)
}

#[test]
fn each_cause_has_its_counter() {
    let [_, mut receiver] = pair(&Config::default());
    let mut late = packet(Protocol::Control, control::CREDIT, 1, &[]);
    late[26] = 6;
    let mut other_version = late.clone();
    other_version[0] = 9;
    let mut from_nobody = packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4));
    from_nobody[4] = 2;
    let mut unknown = packet(Protocol::P2p, kind::EAGER, 5, &[0; 8]);
    unknown[8] = 8;
    let hello = |secret, to, len| packet(Protocol::Control, control::HELLO, 0, &hello(secret, to, len));
    let mut almost = [9; 16];
    almost[15] = 8;
    for stranger in [
        &other_version,
        &Vec::new(),
        &vec![1; 31],
        &packet(Protocol::Control, control::HELLO, 0, &[9; 23]),
        &late,
        &unknown,
        &hello([0; 16], 7, 4),
        &hello(almost, 7, 4),
        &hello([9; 16], 6, 4),
        &hello([9; 16], 7, 5),
        &from_nobody,
    ] {
        arrive(&mut receiver, stranger);
    }
    receiver.inner.sink(&mut ()).notified(1);
    let rejected = receiver.counters().rejected;
    let Rejected { version, malformed, misdirected, unknown, secret, hello: bad, notification, .. } =
        rejected;
    assert_eq!((version, malformed, misdirected, unknown), (1, 3, 1, 1));
    assert_eq!((secret, bad, notification), (2, 3, 1));
    assert_eq!((receiver.counters().failed_peers, rejected.total()), (0, 12));
    // And the one that all of them tried to be is still welcome.
    arrive(&mut receiver, &hello([9; 16], 7, 4));
    assert!(peer_state(&receiver, 0).is_heard());
}

#[test]
fn a_hello_told_again_changes_nothing() {
    let (mut receiver, expected) = acquainted(&Config::default());
    let before = receiver.usage();
    for _ in 0..1000 {
        arrive(&mut receiver, &packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4)));
    }
    assert_eq!((receiver.usage(), peer_state(&receiver, 0).expected()), (before, expected));
    assert_eq!((receiver.counters().stale, receiver.counters().failed_peers), (1000, 0));
}

#[test]
fn an_old_packet_told_again_changes_nothing() {
    let (mut receiver, expected) = acquainted(&Config::default());
    let rts_at = |number: u32| packet(Protocol::P2p, kind::RTS, number, &rts(number.into()));
    arrive(&mut receiver, &rts_at(expected));
    let before = receiver.usage();
    for number in [expected, expected.wrapping_sub(1), 1, expected.wrapping_sub(1 << 30)] {
        arrive(&mut receiver, &rts_at(number));
    }
    assert_eq!((receiver.usage(), peer_state(&receiver, 0).expected()), (before, expected + 1));
    assert_eq!((receiver.counters().stale, receiver.counters().failed_peers), (4, 0));
    arrive(&mut receiver, &rts_at(expected + 2));
    let gap = Cause::Gap { expected: expected + 1, got: expected + 2 };
    assert_eq!(peer_state(&receiver, 0).failure(), Some(gap));
}

#[test]
fn a_flood_of_strangers_costs_no_memory() {
    let (mut receiver, _) = acquainted(&Config::default());
    let before = receiver.usage();
    for n in 0..100_000u32 {
        let mut flood = packet(Protocol::Control, control::HELLO, 0, &hello([1; 16], 7, 4));
        flood[4..8].copy_from_slice(&n.to_le_bytes());
        flood[8] = 8;
        arrive(&mut receiver, &flood);
    }
    assert_eq!((receiver.usage(), receiver.counters().rejected.secret), (before, 100_000));
}

#[test]
fn two_messages_of_one_name_end_their_sender_and_leave_nothing() {
    let (mut receiver, expected) = acquainted(&Config::default());
    for number in 0..2 {
        arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected + number, &rts(77)));
    }
    assert!(matches!(peer_state(&receiver, 0).failure(), Some(Cause::Protocol(_))));
    assert_eq!((receiver.usage().envelopes, receiver.inner.stack().envelopes.len()), (0, 0));
}

/// One is called for, and given up; the bytes of the other follow its envelope.
#[test]
fn a_stream_outlives_a_message_of_its_name() {
    // Its sender lives, and says no more than this.
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let [_sender, mut receiver] = engines;
    let expected = peer_state(&receiver, 0).expected();
    let recv = receiver.irecv(0, Pattern::exact(0, 0, 0), Memory::zeroed(100_000), 10).unwrap();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected, &rts(77)));
    let stream = Rts::new(0, 1000, 77, Way::Stream).as_bytes().to_vec();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected + 1, &stream));
    receiver.poll(20, &mut ()).unwrap();
    assert!(matches!(receiver.collect(recv, &mut ()).unwrap().result, Err(Error::TimedOut { .. })));
    let recv = receiver.irecv(20, Pattern::exact(0, 0, 0), Memory::zeroed(1000), NEVER).unwrap();
    let data = Data { operation: 77.into(), offset: 0.into() };
    let bytes = [data.as_bytes(), &[5; 1000]].concat();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::STREAM, expected + 2, &bytes));
    assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), [5; 1000]);
}

#[test]
fn a_stream_that_breaks_its_promise_ends_its_sender_and_leaves_nothing() {
    let begins = |send, len| Rts::new(0, len, send, Way::Stream).as_bytes().to_vec();
    let more = |offset: u64, len: usize| {
        let data = Data { operation: 77.into(), offset: offset.into() };
        [data.as_bytes(), &vec![0; len]].concat()
    };
    let (begins_one, rest) = ((kind::RTS, begins(77, 1000)), (kind::STREAM, more(600, 400)));
    let (first, gap) = ((kind::STREAM, more(0, 600)), (kind::STREAM, more(601, 399)));
    let (empty, beyond) = ((kind::STREAM, more(600, 0)), (kind::STREAM, more(600, 401)));
    let (costly, endless) = ((kind::RTS, begins(78, 1 << 20)), (kind::RTS, begins(78, usize::MAX >> 1)));
    for (sound, packets) in [
        (true, vec![&begins_one, &first, &rest]),
        (true, vec![&first]),
        (true, vec![&begins_one, &first, &rest, &rest]),
        (false, vec![&begins_one, &first, &gap]),
        (false, vec![&begins_one, &first, &empty]),
        (false, vec![&begins_one, &first, &beyond]),
        (false, vec![&begins_one, &begins_one]),
        (false, vec![&costly]),
        (false, vec![&endless]),
    ] {
        let (mut receiver, expected) = acquainted(&Config::default());
        for (number, (kind, body)) in (expected..).zip(packets) {
            arrive(&mut receiver, &packet(Protocol::P2p, *kind, number, body));
        }
        let failed = peer_state(&receiver, 0).failure();
        assert_eq!(failed.is_none(), sound, "{failed:?}");
        if !sound {
            assert!(matches!(failed, Some(Cause::Protocol(_))));
            assert_eq!((receiver.usage().unexpected, receiver.usage().unexpected_messages), (0, 0));
        }
        assert!(receiver.inner.stack().streams.is_empty());
    }
}

#[test]
fn bytes_to_be_read_are_sent_when_they_are_called_for_and_not_before() {
    for called in [true, false] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        let [_, receiver] = &mut engines;
        let expected = peer_state(receiver, 0).expected();
        let recv = receiver.irecv(0, Pattern::exact(0, 0, 0), Memory::zeroed(100), NEVER).unwrap();
        let way = Way::Read(Remote { key: 1, address: 2 });
        let rts = Rts::new(0, 100, 77, way);
        arrive(receiver, &packet(Protocol::P2p, kind::RTS, expected, rts.as_bytes()));
        if called {
            // This port reads nobody's memory.
            receiver.poll(0, &mut ()).unwrap();
        }
        let data = Data { operation: recv.to_wire().into(), offset: 0.into() };
        let body = [data.as_bytes(), &bytes(100)].concat();
        arrive(receiver, &packet(Protocol::P2p, kind::DATA, expected + 1, &body));
        let failed = peer_state(receiver, 0).failure();
        assert_eq!(matches!(failed, Some(Cause::Protocol(_))), !called, "{failed:?}");
        let completion = receiver.collect(recv, &mut ()).unwrap();
        assert_eq!(completion.result.is_ok(), called);
        assert!(!called || completion.memory.unwrap().as_bytes() == bytes(100));
        assert!(receiver.inner.stack().movers.len() <= 1);
    }
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let config = Config { envelopes_max: 0, ..Config::default() };
    let (mut receiver, expected) = acquainted(&config);
    for number in 0..100_000 {
        arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected + number, &rts(number.into())));
        assert!(receiver.usage().queued < 2000);
    }
    assert_eq!(peer_state(&receiver, 0).failure(), Some(Cause::OutOfMemory));
    assert_eq!(receiver.usage().queued, 0);
}

#[test]
fn secrets_are_not_shown() {
    let [_, mut receiver] = pair(&Config::default());
    let body = hello([9; 16], 7, 4);
    let peer = peer_of(&receiver, 0);
    let link = receiver.inner.link_mut();
    link.answer(peer, Protocol::Control, control::HELLO, &body);
    let shown = format!("{link:?}");
    assert!(shown.contains("Identity") && shown.contains("Control 0"), "{shown}");
    assert!(!shown.contains("9, 9, 9"), "{shown}");
}

#[test]
fn answers_to_what_is_not_the_peers_are_ignored() {
    let (mut receiver, expected) = acquainted(&Config::default());
    let fin = Fin::new(u64::MAX, Verdict::Delivered);
    arrive(&mut receiver, &packet(Protocol::P2p, kind::FIN, expected, fin.as_bytes()));
    assert_eq!((receiver.counters().stale, receiver.counters().failed_peers), (1, 0));
}
