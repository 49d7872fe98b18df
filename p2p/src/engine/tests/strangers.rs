//! Tests with packets that no correct rank sends. They are refused and counted by cause, and harm no other peer.

use super::*;
use samite_fabric::Remote;
use samite_fabric::wire::Item;

use crate::wire::{
    AGREEMENTS_MAX, Abort, Data, Fin, Place, Rts, Synchronous, TransferMode, Unmatched, Verdict, kind,
};

pub(super) fn arrive(receiver: &mut Engine<Loopback>, packet: &[u8]) {
    receiver.inner.sink(&mut ()).packet(packet);
}

/// Returns a packet from rank 0 to rank 1, both in incarnation 7.
pub(super) fn packet(protocol: Protocol, kind: u8, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(protocol, kind, Flags::empty());
    (header.incarnation, header.to, header.sequence) = (7.into(), 7.into(), sequence.into());
    [header.as_bytes(), body].concat()
}

pub(super) fn hello(secret: [u8; 16], to: u32, address_len: u16) -> Vec<u8> {
    let (to_incarnation, number) = (to.into(), 0.into());
    let hello = Hello { secret, to_incarnation, number, address_len: address_len.into(), reserved: [0; 2] };
    [hello.as_bytes(), b"here"].concat()
}

fn rts(send: u64) -> Vec<u8> {
    Rts::new(0, 100_000, send, TransferMode::Push).as_bytes().to_vec()
}

/// Returns rank 1, which has received rank 0's hello, and the sequence number of the next packet that it expects from
/// rank 0.
fn acquainted(config: &Config) -> (Engine<Loopback>, u32) {
    let mut engines = pair(config);
    settle(&mut engines);
    let [_, receiver] = engines;
    let expected = peer_state(&receiver, WorldRank(0)).expected();
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
        &packet(Protocol::Control, control::HELLO, 0, &[9; 27]),
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
    // The rank that all these packets claimed to come from can still introduce itself.
    arrive(&mut receiver, &hello([9; 16], 7, 4));
    assert!(peer_state(&receiver, WorldRank(0)).is_heard());
}

/// A process of the job introduces itself as a later incarnation of the rank that gets the hello.
#[test]
fn a_rank_is_not_replaced_for_itself() {
    for version in [samite_fabric::wire::VERSION, 9] {
        let (mut receiver, _) = acquainted(&Config::default());
        receiver.send(Time::ZERO, WorldRank(1), 0, 5, b"before", NEVER).unwrap();
        let mut forged = packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4));
        (forged[0], forged[4], forged[8]) = (version, 1, 8);
        let rejected = receiver.counters().rejected.total();
        arrive(&mut receiver, &forged);
        receiver.poll(Time::ZERO, &mut ()).unwrap();
        assert_eq!(receiver.counters().rejected.total(), rejected + 1);
        assert_eq!(receiver.latest_failure(WorldRank(1)), None);
        receiver.send(Time::ZERO, WorldRank(1), 0, 6, b"after", NEVER).unwrap();
    }
}

#[test]
fn a_hello_told_again_changes_nothing() {
    let (mut receiver, expected) = acquainted(&Config::default());
    let before = receiver.usage();
    for _ in 0..1000 {
        arrive(&mut receiver, &packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4)));
    }
    assert_eq!((receiver.usage(), peer_state(&receiver, WorldRank(0)).expected()), (before, expected));
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
    assert_eq!((receiver.usage(), peer_state(&receiver, WorldRank(0)).expected()), (before, expected + 1));
    assert_eq!((receiver.counters().stale, receiver.counters().failed_peers), (4, 0));
    arrive(&mut receiver, &rts_at(expected + 2));
    let gap = Cause::Gap { expected: expected + 1, got: expected + 2 };
    assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), Some(gap));
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
    assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    assert_eq!((receiver.usage().envelopes, receiver.inner.tagged().envelopes.len()), (0, 0));
}

/// The bytes of the send are not lent, so its puts cannot begin.
#[test]
fn more_places_than_a_receiver_may_offer_end_the_receiver_alone() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let [_, sender] = &mut engines;
    let expected = peer_state(sender, WorldRank(0)).expected();
    let data = bytes(100_000);
    let Sent::Pending(id) = sender.send(Time::ZERO, WorldRank(0), 0, 5, &data, NEVER).unwrap() else {
        panic!("a long message is not sent at once")
    };
    let most = 256_u32;
    for number in 0..=most {
        assert_eq!(peer_state(sender, WorldRank(0)).failure(), None, "{number}");
        let numbers = [id.to_wire(), 1, u64::from(number), 1, 0, 0];
        let [send, recv, offset, len, key, address] = numbers.map(Into::into);
        let place = Place { send, recv, offset, len, key, address };
        arrive(sender, &packet(Protocol::P2p, kind::PLACE, expected + number, place.as_bytes()));
    }
    assert!(matches!(peer_state(sender, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    let ended = sender.collect(id, &mut ()).unwrap();
    assert!(matches!(ended.result, Err(Error::PeerFailed { .. })), "{:?}", ended.result);
}

#[test]
fn more_messages_of_agreements_than_a_rank_may_send_end_their_sender_alone() {
    let config = Config { envelopes_max: 0, ..Config::default() };
    let (mut receiver, expected) = acquainted(&config);
    let most = AGREEMENTS_MAX as u32;
    for number in 0..=most {
        assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), None, "{number}");
        let rts = Rts::new(0, 100, number.into(), TransferMode::Push).unless_matched(Unmatched::Agreement);
        arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected + number, rts.as_bytes()));
    }
    assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    assert_eq!((receiver.usage().envelopes, receiver.inner.tagged().envelopes.len()), (0, 0));
    receiver.check_invariants();
}

#[test]
fn two_synchronous_messages_of_one_name_end_their_sender_and_leave_the_first() {
    let (mut receiver, expected) = acquainted(&Config::default());
    for number in 0..2 {
        let sync = [synchronous(Unmatched::Waits).as_bytes(), b"message!"].concat();
        arrive(&mut receiver, &packet(Protocol::P2p, kind::SYNC, expected + number, &sync));
    }
    assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    receiver.check_invariants();
    let recv = receiver.irecv(Time::ZERO, Pattern::exact(0, 0, 0), Memory::zeroed(8), NEVER).unwrap();
    assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), b"message!");
    assert_eq!((receiver.usage().unexpected, receiver.usage().unexpected_messages), (0, 0));
}

/// Returns the beginning of a message of a synchronous send.
fn synchronous(unmatched: Unmatched) -> Synchronous {
    Synchronous::new(0, 77, Some(unmatched), Signature::BYTES)
}

#[test]
fn malformed_synchronous_messages_end_their_sender() {
    let confirmed = synchronous(Unmatched::Confirm);
    let dropped = Synchronous { is_silent: 1, ..synchronous(Unmatched::Drop) };
    let unknown = Synchronous { is_silent: 2, ..synchronous(Unmatched::Waits) };
    let all = [confirmed.as_bytes(), dropped.as_bytes(), unknown.as_bytes(), &[3; 24], &[0; 23]];
    for body in all {
        let (mut receiver, expected) = acquainted(&Config::default());
        arrive(&mut receiver, &packet(Protocol::P2p, kind::SYNC, expected, body));
        let failure = peer_state(&receiver, WorldRank(0)).failure();
        assert!(matches!(failure, Some(Cause::Protocol(_))), "{failure:?}");
        receiver.check_invariants();
    }
}

/// Returns rank 1, which has started two synchronous sends to rank 0; their requests; and the sequence number of the
/// next packet from rank 0. The first message was sent. If `waits` is true, the second one waits for credit.
fn sending(waits: bool) -> (Engine<Loopback>, [RequestId; 2], u32) {
    let config = Config { window_min: 1024, ..Config::default() };
    let mut engines = pair(&config);
    settle(&mut engines);
    let lengths = if waits { [900, 900] } else { [8, 8] };
    let sends = lengths.map(|len| {
        let memory = Memory::zeroed(len);
        engines[1].isend_with(Mode::Synchronous, Time::ZERO, WorldRank(0), 1, 5, memory, NEVER).unwrap()
    });
    let [_, sender] = engines;
    let expected = peer_state(&sender, WorldRank(0)).expected();
    (sender, sends, expected)
}

fn fin(send: u64, verdict: Verdict) -> Vec<u8> {
    Fin::new(send, verdict).as_bytes().to_vec()
}

#[test]
fn a_repeated_answer_to_a_synchronous_send_changes_nothing() {
    let (mut sender, sends, expected) = sending(false);
    for number in 0..3 {
        let answer = fin(sends[0].to_wire(), Verdict::Delivered);
        arrive(&mut sender, &packet(Protocol::P2p, kind::FIN, expected + number, &answer));
    }
    assert_eq!((sender.counters().stale, sender.counters().failed_peers), (2, 0));
    assert_eq!(sends.map(|id| sender.outcome(id)), [Outcome::Ready, Outcome::Pending]);
    sender.check_invariants();
}

#[test]
fn answers_for_other_requests_end_their_sender_alone() {
    // In each of the three cases rank 0 answers wrongly: to a message that was not sent yet, to a synchronous send as
    // if it were a ready one, and with the name of a receive.
    for forged in 0..3 {
        let (mut sender, sends, expected) = sending(forged == 0);
        let receive = sender.irecv(Time::ZERO, Pattern::exact(1, 0, 7), Memory::zeroed(8), NEVER).unwrap();
        let own = sender.irecv(Time::ZERO, Pattern::exact(1, 1, 7), Memory::zeroed(8), NEVER).unwrap();
        let answer = match forged {
            0 => fin(sends[1].to_wire(), Verdict::Delivered),
            1 => fin(sends[0].to_wire(), Verdict::Unposted),
            _ => fin(receive.to_wire(), Verdict::Delivered),
        };
        arrive(&mut sender, &packet(Protocol::P2p, kind::FIN, expected, &answer));
        let failure = peer_state(&sender, WorldRank(0)).failure();
        assert!(matches!(failure, Some(Cause::Protocol(_))), "{forged}: {failure:?}");
        for send in sends {
            let result = sender.collect(send, &mut ()).unwrap().result;
            assert!(matches!(result, Err(Error::PeerFailed { rank: WorldRank(0), .. })), "{result:?}");
        }
        assert_eq!(sender.outcome(own), Outcome::Pending, "that of another peer goes on");
        sender.check_invariants();
    }
}

#[test]
fn an_answer_that_names_no_request_of_its_sender_is_ignored() {
    let (mut sender, sends, expected) = sending(false);
    let own = sender.isend_with(Mode::Synchronous, Time::ZERO, WorldRank(1), 1, 5, Memory::zeroed(8), NEVER);
    let own = own.unwrap();
    for (number, name) in [(0, own.to_wire()), (1, u64::MAX), (2, 1 << 40)] {
        arrive(
            &mut sender,
            &packet(Protocol::P2p, kind::FIN, expected + number, &fin(name, Verdict::Delivered)),
        );
    }
    assert_eq!((sender.counters().stale, sender.counters().failed_peers), (3, 0));
    assert!([own, sends[0], sends[1]].into_iter().all(|id| sender.outcome(id) == Outcome::Pending));
}

/// The sender gives the name 77 to two messages. The receiver requests the bytes of the first message, and its receive
/// times out. The second message is a stream, and is received although the first message has the same name.
#[test]
fn a_stream_outlives_a_message_of_its_name() {
    // The sender is alive and sends nothing else.
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let [_sender, mut receiver] = engines;
    let expected = peer_state(&receiver, WorldRank(0)).expected();
    let recv = receiver
        .irecv(Time::ZERO, Pattern::exact(0, 0, 0), Memory::zeroed(100_000), Time::from_nanos(10))
        .unwrap();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected, &rts(77)));
    let stream = Rts::new(0, 1000, 77, TransferMode::Stream).as_bytes().to_vec();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected + 1, &stream));
    receiver.poll(Time::from_nanos(20), &mut ()).unwrap();
    assert!(matches!(receiver.collect(recv, &mut ()).unwrap().result, Err(Error::TimedOut { .. })));
    let recv =
        receiver.irecv(Time::from_nanos(20), Pattern::exact(0, 0, 0), Memory::zeroed(1000), NEVER).unwrap();
    let data = Data { operation: 77.into(), offset: 0.into() };
    let bytes = [data.as_bytes(), &[5; 1000]].concat();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::STREAM, expected + 2, &bytes));
    assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), [5; 1000]);
}

#[test]
fn a_stream_that_breaks_its_promise_ends_its_sender_and_leaves_nothing() {
    let begins = |send, len| Rts::new(0, len, send, TransferMode::Stream).as_bytes().to_vec();
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
        let failed = peer_state(&receiver, WorldRank(0)).failure();
        assert_eq!(failed.is_none(), sound, "{failed:?}");
        if !sound {
            assert!(matches!(failed, Some(Cause::Protocol(_))));
            assert_eq!((receiver.usage().unexpected, receiver.usage().unexpected_messages), (0, 0));
        }
        assert!(receiver.inner.tagged().streams.is_empty());
    }
}

/// Rank 0, which is alive, and rank 1. A receive of rank 1 has matched the envelope of a stream from rank 0. The name
/// of the stream is 77.
struct Streaming {
    _sender: Engine<Loopback>,
    receiver: Engine<Loopback>,
    recv: RequestId,
    /// The sequence number of the next packet from rank 0.
    expected: u32,
}

fn streaming(len: usize, receive: impl FnOnce(&mut Engine<Loopback>, Pattern) -> RequestId) -> Streaming {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let [_sender, mut receiver] = engines;
    let expected = peer_state(&receiver, WorldRank(0)).expected();
    let recv = receive(&mut receiver, Pattern::exact(0, 0, 0));
    let stream = Rts::new(0, len, 77, TransferMode::Stream).as_bytes().to_vec();
    arrive(&mut receiver, &packet(Protocol::P2p, kind::RTS, expected, &stream));
    assert_eq!(receiver.inner.tagged().streams.len(), 1);
    Streaming { _sender, receiver, recv, expected: expected + 1 }
}

#[test]
fn a_stream_does_not_end_as_a_message_that_was_called_for() {
    for kind in [kind::DATA, kind::ABORT] {
        let receive = |receiver: &mut Engine<Loopback>, pattern| {
            receiver.irecv(Time::ZERO, pattern, Memory::zeroed(100), NEVER).unwrap()
        };
        let Streaming { mut receiver, recv, expected, .. } = streaming(100, receive);
        let name = recv.to_wire().into();
        let body = match kind {
            kind::DATA => [Data { operation: name, offset: 0.into() }.as_bytes(), &bytes(100)].concat(),
            _ => Abort { recv: name }.as_bytes().to_vec(),
        };
        arrive(&mut receiver, &packet(Protocol::P2p, kind, expected, &body));
        assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
        assert!(receiver.inner.tagged().streams.is_empty());
        assert!(receiver.collect(recv, &mut ()).unwrap().result.is_err());
    }
}

#[test]
fn single_bytes_that_wait_for_their_buffer_are_one_piece_of_work() {
    let mut into = vec![0; 1000];
    let receive = |receiver: &mut Engine<Loopback>, pattern| {
        let begun = receiver.recv(Time::ZERO, pattern, &mut [0; 1000], 0, NEVER, &mut ());
        let Ok(Received::Pending(recv)) = begun else { panic!("{begun:?}") };
        recv
    };
    let Streaming { _sender, mut receiver, recv, expected } = streaming(1000, receive);
    for (number, (offset, byte)) in (expected..).zip(bytes(1000).into_iter().enumerate()) {
        let data = Data { operation: 77.into(), offset: (offset as u64).into() };
        let body = [data.as_bytes(), &[byte]].concat();
        arrive(&mut receiver, &packet(Protocol::P2p, kind::STREAM, number, &body));
        assert_eq!(receiver.inner.tagged().movers.len(), 1);
        if offset == 500 {
            receiver.poll(Time::ZERO, &mut Writing::new(recv, &mut into)).unwrap();
            assert!(receiver.inner.tagged().movers.is_empty() && into[..501] == bytes(501));
        }
    }
    let mut lent = Writing::new(recv, &mut into);
    let collected = receiver.collect(recv, &mut lent);
    assert_eq!(lent.result(collected).map(|status| status.bytes), Ok(1000));
    assert!(into == bytes(1000));
}

#[test]
fn bytes_to_be_read_are_sent_when_they_are_called_for_and_not_before() {
    for called in [true, false] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        let [_, receiver] = &mut engines;
        let expected = peer_state(receiver, WorldRank(0)).expected();
        let recv = receiver.irecv(Time::ZERO, Pattern::exact(0, 0, 0), Memory::zeroed(100), NEVER).unwrap();
        let mode = TransferMode::Read(Remote { key: 1, address: 2 });
        let rts = Rts::new(0, 100, 77, mode);
        arrive(receiver, &packet(Protocol::P2p, kind::RTS, expected, rts.as_bytes()));
        if called {
            // The receiver's port cannot read the memory of other processes, so the receiver requests the bytes.
            receiver.poll(Time::ZERO, &mut ()).unwrap();
        }
        let data = Data { operation: recv.to_wire().into(), offset: 0.into() };
        let body = [data.as_bytes(), &bytes(100)].concat();
        arrive(receiver, &packet(Protocol::P2p, kind::DATA, expected + 1, &body));
        let failed = peer_state(receiver, WorldRank(0)).failure();
        assert_eq!(matches!(failed, Some(Cause::Protocol(_))), !called, "{failed:?}");
        let completion = receiver.collect(recv, &mut ()).unwrap();
        assert_eq!(completion.result.is_ok(), called);
        assert!(!called || completion.memory.unwrap().as_bytes() == bytes(100));
        assert!(receiver.inner.tagged().movers.len() <= 1);
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
    assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::OutOfMemory));
    assert_eq!(receiver.usage().queued, 0);
}

#[test]
fn secrets_are_not_shown() {
    let [_, mut receiver] = pair(&Config::default());
    let body = hello([9; 16], 7, 4);
    let peer = peer_of(&receiver, WorldRank(0));
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

#[test]
fn a_rank_that_speaks_another_version_fails_with_both_versions() {
    let [_, mut receiver] = pair(&Config::default());
    let recv = receiver.irecv(Time::ZERO, Pattern::exact(0, 0, 0), Memory::zeroed(8), NEVER).unwrap();
    let of_version_1 = |kind, secret| {
        let mut packet = packet(Protocol::Control, kind, 0, &hello(secret, 7, 4));
        packet[0] = 1;
        packet
    };
    // The first packet has the wrong secret, and the second is not a hello, so rank 0 does not fail.
    for packet in [of_version_1(control::HELLO, [8; 16]), of_version_1(control::CREDIT, [9; 16])] {
        arrive(&mut receiver, &packet);
        assert!(peer_state(&receiver, WorldRank(0)).is_alive());
    }
    // Other versions may have another field in place of the sequence number, so its value must not matter.
    let mut hello_of_version_1 = of_version_1(control::HELLO, [9; 16]);
    hello_of_version_1[12..16].fill(5);
    arrive(&mut receiver, &hello_of_version_1);
    assert_eq!((receiver.counters().rejected.version, receiver.counters().failed_peers), (3, 1));
    let version = Cause::Version { theirs: 1, ours: 6 };
    let Err(Error::PeerFailed { rank: WorldRank(0), cause, .. }) =
        receiver.collect(recv, &mut ()).unwrap().result
    else {
        panic!("its sender has failed")
    };
    assert_eq!(cause, version);
    assert_eq!(receiver.given_up().map(|verdict| verdict.cause).collect::<Vec<_>>(), [version]);
    // A later incarnation may speak this version.
    let mut next = packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4));
    next[8] = 8;
    arrive(&mut receiver, &next);
    assert!(peer_state(&receiver, WorldRank(0)).is_heard());
}

#[test]
fn a_packet_is_of_the_rank_that_has_its_number() {
    let [_, mut receiver] = pair_of(5, &Config::default());
    let mut from_4 = packet(Protocol::Control, control::HELLO, 0, &hello([9; 16], 7, 4));
    from_4[4] = 4;
    from_4[Header::LEN + 20] = 77;
    arrive(&mut receiver, &from_4);
    let peer = peer_of(&receiver, WorldRank(4));
    assert_ne!(peer.index(), 4, "its number is not its rank");
    let header = receiver.inner.link().header(peer, Protocol::P2p, kind::FIN, Flags::empty(), 0);
    assert_eq!(header.sender.get(), 77, "the number that it has given to this side");
    let mut envelope = packet(Protocol::P2p, kind::RTS, 1, &rts(5));
    envelope[4] = peer.index() as u8;
    arrive(&mut receiver, &envelope);
    let status = receiver.probe(&Pattern { source: Source::ANY, ..Pattern::exact(0, 0, 0) }).unwrap();
    assert_eq!(status.map(|status| status.source), Some(WorldRank(4)));
    // No peer has any of these numbers.
    let before = receiver.counters().rejected.unknown;
    for number in [4, 77, u32::MAX] {
        envelope[4..8].copy_from_slice(&number.to_le_bytes());
        arrive(&mut receiver, &envelope);
    }
    assert_eq!((receiver.counters().rejected.unknown, receiver.counters().failed_peers), (before + 3, 0));
}

/// Returns an eager packet from rank 0 with this tag, and these flags.
pub(super) fn eager(sequence: u32, tag: u8, flags: Flags) -> Vec<u8> {
    let mut packet = packet(Protocol::P2p, kind::EAGER, sequence, &[tag, 0, 0, 0, 0, 0, 0, 0, b'x']);
    packet[3] = flags.bits();
    packet
}

#[test]
fn an_urgent_packet_is_answered_once() {
    let answers = |receiver: &Engine<Loopback>| peer_state(receiver, WorldRank(0)).packets_waiting();
    // The sender is alive and sends nothing else.
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let [_sender, mut receiver] = engines;
    let expected = peer_state(&receiver, WorldRank(0)).expected();
    arrive(&mut receiver, &eager(expected, 1, Flags::empty()));
    assert_eq!(answers(&receiver), 0, "nothing waits for it");
    for number in [1, 2] {
        arrive(&mut receiver, &eager(expected + number, 1, Flags::URGENT));
        assert_eq!(answers(&receiver), 1, "one packet acknowledges all that have arrived");
    }
    assert_eq!(receiver.usage().unexpected_messages, 3, "they were handled");
    receiver.poll(Time::ZERO, &mut ()).unwrap();
    assert_eq!(answers(&receiver), 0);
    let mut goodbye = packet(Protocol::Control, control::BYE, expected + 3, &[]);
    goodbye[3] = Flags::URGENT.bits();
    arrive(&mut receiver, &goodbye);
    assert_eq!((answers(&receiver), peer_state(&receiver, WorldRank(0)).failure()), (1, Some(Cause::Left)));
}

#[test]
fn the_messages_of_a_bundle_arrive_in_order() {
    let item = |kind, context: u32, body: &[u8]| {
        let (len, context) = ((body.len() as u16).into(), context.into());
        [Item { kind, reserved: 0, len, context }.as_bytes(), body].concat()
    };
    let eager = |context, byte| item(kind::EAGER, context, &[9, 0, 0, 0, 0, 0, 0, 0, byte]);
    let bundle = |sequence, items: &[u8]| {
        let mut packet = packet(Protocol::P2p, kind::EAGER, sequence, items);
        packet[3] = Flags::BUNDLE.bits();
        packet
    };
    let (mut receiver, expected) = acquainted(&Config::default());
    let items = [eager(0, b'a'), eager(1, b'b'), item(kind::RTS, 0, &rts(5)), eager(0, b'c')].concat();
    arrive(&mut receiver, &bundle(expected, &items));
    for (context, byte) in [(0, b'a'), (1, b'b'), (0, b'c')] {
        let pattern = Pattern::exact(context, 0, 9);
        let recv = receiver.irecv(Time::ZERO, pattern, Memory::zeroed(1), NEVER).unwrap();
        assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), [byte]);
    }
    assert_eq!(receiver.usage().unexpected_messages, 1, "the envelope");
    // A receive that is about to be posted takes no message out of a bundle. It gets the first message when it is
    // posted.
    let (mut receiver, expected) = acquainted(&Config::default());
    let (pattern, mut buffer) = (Pattern::exact(0, 0, 9), [0]);
    let mut unposted = Unposted { pattern, buffer: buffer.as_mut_slice(), got: None, lent: &mut () };
    let two = bundle(expected, &[eager(0, b'a'), eager(0, b'b')].concat());
    receiver.inner.sink(&mut unposted).packet(&two);
    assert!(unposted.got.is_none());
    for byte in [b'a', b'b'] {
        let recv = receiver.irecv(Time::ZERO, pattern, Memory::zeroed(1), NEVER).unwrap();
        assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), [byte]);
    }
    // The last item is cut in its body, in its head, or after its head; there is no item; or an item has no body.
    let last = Item::LEN + size_of::<crate::wire::Eager>() + 1;
    let cuts = [1, last - 1, last - Item::LEN].map(|cut| &items[..items.len() - cut]);
    for broken in cuts.into_iter().chain([[].as_slice(), &[0; Item::LEN]]) {
        let (mut receiver, expected) = acquainted(&Config::default());
        arrive(&mut receiver, &bundle(expected, broken));
        assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    }
    // Items after a goodbye are ignored.
    let (mut receiver, expected) = acquainted(&Config::default());
    let mut packet = packet(Protocol::Control, 0, expected, &[]);
    packet[3] = (Flags::BUNDLE | Flags::URGENT).bits();
    packet.extend([item(control::BYE, 0, &[]), item(control::HELLO, 0, &[])].concat());
    arrive(&mut receiver, &packet);
    assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Left));
    assert_eq!(peer_state(&receiver, WorldRank(0)).packets_waiting(), 1);
}

/// An item has no flags, so it cannot be a bundle. A whole packet in an item is the data of a message.
#[test]
fn a_bundle_in_a_bundle_is_data() {
    let item = |kind, reserved, body: &[u8]| {
        let (len, context) = ((body.len() as u16).into(), 0.into());
        [Item { kind, reserved, len, context }.as_bytes(), body].concat()
    };
    let eager = |reserved, data: &[u8]| {
        item(kind::EAGER, reserved, &[[9, 0, 0, 0, 0, 0, 0, 0].as_slice(), data].concat())
    };
    let bundle = |sequence, items: &[u8]| {
        let mut packet = packet(Protocol::P2p, kind::EAGER, sequence, items);
        packet[3] = Flags::BUNDLE.bits();
        packet
    };
    let (mut receiver, expected) = acquainted(&Config::default());
    let inner = [eager(0, b"a"), eager(0, b"b")].concat();
    let whole = bundle(expected + 1, &inner);
    // The byte of an item that is reserved has the value of the flag.
    let outer = [eager(0, &whole), eager(Flags::BUNDLE.bits(), &inner), eager(0, b"last")].concat();
    arrive(&mut receiver, &bundle(expected, &outer));
    assert_eq!(peer_state(&receiver, WorldRank(0)).expected(), expected + 1, "one packet has arrived");
    for data in [whole.as_slice(), &inner, b"last"] {
        let memory = Memory::zeroed(data.len());
        let recv = receiver.irecv(Time::ZERO, Pattern::exact(0, 0, 9), memory, NEVER).unwrap();
        assert_eq!(receiver.collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), data);
    }
    assert_eq!((receiver.usage().unexpected_messages, receiver.counters().failed_peers), (0, 0));
    // The items in place of another message's body are too many bytes for it.
    arrive(&mut receiver, &bundle(expected + 1, &item(kind::FIN, 0, &inner)));
    assert!(matches!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(_))));
    receiver.check_invariants();
}

#[test]
fn a_long_packet_of_another_protocol_is_no_message() {
    let (mut receiver, expected) = acquainted(&Config::default());
    let number = peer_of(&receiver, WorldRank(0)).index() as u8;
    let mut head = packet(Protocol::Rma, kind::EAGER, expected, &[5, 0, 0, 0, 0, 0, 0, 0]);
    head[4] = number;
    receiver.inner.sink(&mut ()).long_packet(&head, &&[0; 100][..]);
    let refused = samite_fabric::wire::WireError::Protocol { theirs: Protocol::Rma as u8 };
    assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), Some(Cause::Protocol(refused.to_string())));
}
