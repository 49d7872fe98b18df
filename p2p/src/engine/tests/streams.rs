//! Tests of streams: messages whose bytes follow their envelope. Events occur between the first byte and the last.

use super::*;
use crate::choose::cost;

const LEN: usize = 200_000;

/// Returns two engines with credit for many messages of `LEN` bytes.
fn rich() -> [Engine<Loopback>; 2] {
    let mut engines = pair(&Config { window_min: 1 << 20, ..without_puts() });
    settle(&mut engines);
    engines
}

fn send(engines: &mut [Engine<Loopback>; 2], tag: u64, deadline: Time) -> Sent {
    engines[0].send(Time::ZERO, WorldRank(1), 1, tag, &bytes(LEN), deadline).unwrap()
}

fn receive(engines: &mut [Engine<Loopback>; 2], tag: u64, len: usize) -> RequestId {
    engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, tag), Memory::zeroed(len), NEVER).unwrap()
}

/// Sends a message, and then a part of a second one: the bytes that are sent within one call, until the port is full.
/// The receiver gets these bytes. Returns the request of the second send.
fn begin(engines: &mut [Engine<Loopback>; 2], deadline: Time) -> RequestId {
    assert_eq!(send(engines, 1, NEVER), Sent::Now);
    let Sent::Pending(begun) = send(engines, 2, deadline) else { panic!("the port has room for both") };
    engines[1].poll(Time::ZERO, &mut ()).unwrap();
    begun
}

/// Receives the first message that [`begin`] sends.
fn take_first(engines: &mut [Engine<Loopback>; 2]) {
    let first = receive(engines, 1, LEN);
    settle(engines);
    assert_eq!(engines[1].collect(first, &mut ()).unwrap().memory.unwrap().as_bytes(), bytes(LEN));
}

/// Sends the rest of the second message.
fn go_on(engines: &mut [Engine<Loopback>; 2], id: RequestId) {
    let data = bytes(LEN);
    while engines[0].outcome(id) != Outcome::Ready {
        engines[0].poll(Time::ZERO, &mut Reading::new(id, &data[..])).unwrap();
        engines[1].poll(Time::ZERO, &mut ()).unwrap();
    }
    assert!(engines[0].collect(id, &mut ()).unwrap().result.is_ok());
    settle(engines);
}

fn result(engine: &mut Engine<Loopback>, id: RequestId) -> Result<Status, Error> {
    engine.collect(id, &mut ()).unwrap().result
}

fn is_abandoned(engine: &mut Engine<Loopback>, id: RequestId, rank: WorldRank) -> bool {
    result(engine, id) == Err(Error::Abandoned { rank, fate: Fate::NotDelivered })
}

#[test]
fn a_receive_may_come_before_the_first_byte_among_them_or_after_the_last() {
    for when in 0..3 {
        let mut engines = rich();
        let early = (when == 0).then(|| receive(&mut engines, 2, LEN));
        let begun = begin(&mut engines, NEVER);
        let status = Status { source: WorldRank(0), tag: 2, bytes: LEN };
        let found = engines[1].probe(&Pattern::exact(1, 0, 2));
        assert_eq!(found, Ok(early.is_none().then_some(status)), "its envelope is there");
        let among = (when == 1).then(|| receive(&mut engines, 2, LEN));
        go_on(&mut engines, begun);
        let late = (when == 2).then(|| receive(&mut engines, 2, LEN));
        let completion = engines[1].collect(early.or(among).or(late).unwrap(), &mut ()).unwrap();
        assert_eq!(completion.result, Ok(status));
        assert_eq!(completion.memory.unwrap().as_bytes(), bytes(LEN));
        take_first(&mut engines);
        at_rest(&engines);
        let counters = engines[0].counters();
        assert_eq!((counters.eager, counters.rendezvous), (2, 0), "nobody called for anything");
    }
}

#[test]
fn a_lent_buffer_gets_what_came_while_it_was_away() {
    let mut engines = rich();
    let mut into = vec![0; LEN];
    let recv = engines[1].recv(Time::ZERO, Pattern::exact(1, 0, 2), &mut into, 0, NEVER, &mut ()).unwrap();
    let Received::Pending(recv) = recv else { panic!("nothing was sent") };
    let begun = begin(&mut engines, NEVER);
    go_on(&mut engines, begun);
    let mut lent = Writing::new(recv, &mut into);
    let completion = engines[1].collect(recv, &mut lent);
    assert_eq!(lent.result(completion), Ok(Status { source: WorldRank(0), tag: 2, bytes: LEN }));
    assert!(into == bytes(LEN));
    take_first(&mut engines);
    at_rest(&engines);
}

#[test]
fn a_sender_that_gives_up_takes_back_what_has_come() {
    for matched in [false, true] {
        let mut engines = rich();
        let recv = matched.then(|| receive(&mut engines, 2, LEN));
        let begun = begin(&mut engines, Time::from_nanos(100));
        engines[0].poll(Time::from_nanos(200), &mut ()).unwrap();
        settle(&mut engines);
        let Err(Error::TimedOut { fate: Fate::Unknown, report }) = result(&mut engines[0], begun) else {
            panic!("no time-out")
        };
        assert_eq!(report.awaited, Awaited::Room);
        assert_eq!(engines[1].probe(&Pattern::exact(1, 0, 2)), Ok(None));
        assert!(recv.is_none_or(|recv| is_abandoned(&mut engines[1], recv, WorldRank(0))));
        take_first(&mut engines);
        at_rest(&engines);
    }
}

#[test]
fn a_sender_is_told_that_nobody_wants_the_rest() {
    // The receive times out before all of the message has arrived, or its buffer is too short for the message.
    for (len, given_up) in [(LEN, true), (8, false)] {
        let mut engines = rich();
        let recv = receive(&mut engines, 2, len);
        let begun = begin(&mut engines, NEVER);
        if given_up {
            engines[1].set_deadline(recv, Time::from_nanos(100));
            engines[1].poll(Time::from_nanos(200), &mut ()).unwrap();
        }
        settle(&mut engines);
        let received = result(&mut engines[1], recv);
        if given_up {
            assert!(matches!(received, Err(Error::TimedOut { fate: Fate::NotDelivered, .. })));
            assert!(is_abandoned(&mut engines[0], begun, WorldRank(1)));
        } else {
            let status = Status { source: WorldRank(0), tag: 2, bytes: LEN };
            assert_eq!(received, Err(Error::Truncated { status, room: 8 }));
            assert!(result(&mut engines[0], begun).is_ok());
        }
        take_first(&mut engines);
        at_rest(&engines);
    }
}

#[test]
fn the_death_of_a_sender_ends_what_has_not_come_whole() {
    for matched in [false, true] {
        let mut engines = rich();
        let recv = matched.then(|| receive(&mut engines, 2, LEN));
        begin(&mut engines, NEVER);
        engines[1].peer_failed(WorldRank(0), None, Cause::Died("signal 9".into())).unwrap();
        if let Some(recv) = recv {
            assert!(matches!(
                result(&mut engines[1], recv),
                Err(Error::PeerFailed { rank: WorldRank(0), .. })
            ));
        }
        take_first(&mut engines);
        let Usage { requests, unexpected, unexpected_messages, .. } = engines[1].usage();
        assert_eq!((requests, unexpected, unexpected_messages), (0, 0, 0));
        assert!(engines[1].inner.tagged().streams.is_empty());
    }
}

#[test]
fn of_one_that_leaves_the_whole_messages_stay() {
    let mut engines = rich();
    let begun = begin(&mut engines, NEVER);
    engines[0].forget(begun);
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    assert!(engines[0].closed());
    assert!(matches!(
        engines[1].probe(&Pattern::exact(1, 0, 2)),
        Err(Error::PeerFailed { rank: WorldRank(0), .. })
    ));
    take_first(&mut engines);
    assert_eq!((engines[1].usage().requests, engines[1].usage().unexpected), (0, 0));
}

#[test]
fn a_goodbye_comes_after_what_has_begun() {
    let mut engines = rich();
    let begun = begin(&mut engines, NEVER);
    engines[0].close(Time::ZERO);
    assert!(!engines[0].closed());
    go_on(&mut engines, begun);
    assert!(engines[0].closed());
    let recv = receive(&mut engines, 2, LEN);
    assert_eq!(engines[1].collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), bytes(LEN));
}

#[test]
fn a_claimed_message_goes_on_coming() {
    for gives_up in [false, true] {
        let mut engines = rich();
        let begun = begin(&mut engines, NEVER);
        let (status, claimed) = engines[1].claim(&Pattern::exact(1, 0, 2)).unwrap().unwrap();
        assert_eq!(status.bytes, LEN);
        if gives_up {
            engines[0].forget(begun);
            settle(&mut engines);
        } else {
            go_on(&mut engines, begun);
        }
        let recv = engines[1].recv_claimed(Time::ZERO, claimed, Ok(Memory::zeroed(LEN)), NEVER);
        settle(&mut engines);
        if gives_up {
            assert!(is_abandoned(&mut engines[1], recv, WorldRank(0)));
        } else {
            let completion = engines[1].collect(recv, &mut ()).unwrap();
            assert_eq!(completion.memory.unwrap().as_bytes(), bytes(LEN));
        }
        take_first(&mut engines);
        at_rest(&engines);
    }
}

/// Ends a sender in one of three ways: 0, the sender leaves; 1, the launcher reports its death; 2, its next incarnation
/// is introduced.
fn end_sender(engines: &mut [Engine<Loopback>; 2], way: usize) {
    match way {
        0 => {
            engines[0].close(Time::ZERO);
            settle(engines);
            assert!(engines[0].closed());
        }
        1 => engines[1].peer_failed(WorldRank(0), None, Cause::Died("signal 9".into())).unwrap(),
        _ => {
            let address = engines[0].port().address();
            engines[1].introduce(WorldRank(0), 8, address).unwrap();
        }
    }
}

#[test]
fn a_claimed_message_that_is_whole_needs_no_sender() {
    for (way, owned) in (0..6).map(|case| (case / 2, case % 2 == 0)) {
        let mut engines = rich();
        let begun = begin(&mut engines, NEVER);
        let (_, claimed) = engines[1].claim(&Pattern::exact(1, 0, 2)).unwrap().unwrap();
        go_on(&mut engines, begun);
        take_first(&mut engines);
        end_sender(&mut engines, way);
        assert_eq!(engines[1].usage().unexpected, u64::from(cost(LEN)), "it is kept within the budget");
        let into = if owned { Ok(Memory::zeroed(LEN)) } else { Err(LEN) };
        let recv = engines[1].recv_claimed(Time::ZERO, claimed, into, NEVER);
        let mut buffer = vec![0; if owned { 0 } else { LEN }];
        let completion = engines[1].collect(recv, &mut Writing::new(recv, &mut buffer)).unwrap();
        assert_eq!(completion.result, Ok(Status { source: WorldRank(0), tag: 2, bytes: LEN }));
        let got = completion.memory.map_or(buffer, |memory| memory.as_bytes().to_vec());
        assert!(got == bytes(LEN));
        let Usage { requests, unexpected, .. } = engines[1].usage();
        assert_eq!((requests, unexpected, engines[1].inner.tagged().claims.len()), (0, 0, 0));
    }
}

/// Each incarnation numbers its messages from the beginning, so the messages of two incarnations have the same names.
#[test]
fn a_claimed_message_of_a_former_incarnation_leaves_one_of_the_same_name_alone() {
    let hub = Hub::new();
    let config = Config { window_min: 1 << 20, ..without_puts() };
    let mut engines = pair_over(2, [hub.port(), hub.port()], &config);
    settle(&mut engines);
    let begun = begin(&mut engines, NEVER);
    let (_, claimed) = engines[1].claim(&Pattern::exact(1, 0, 2)).unwrap().unwrap();
    go_on(&mut engines, begun);
    take_first(&mut engines);

    let identity = Identity { incarnation: 8, ..engines[0].inner.link().identity().clone() };
    let mut next = Engine::new(hub.port(), identity, config);
    next.introduce(WorldRank(1), 7, engines[1].port().address()).unwrap();
    engines[1].introduce(WorldRank(0), 8, next.port().address()).unwrap();
    engines[0] = next;
    settle(&mut engines);
    let again = begin(&mut engines, NEVER);
    assert_eq!(again, begun, "the name is the same");
    let recv = engines[1].recv_claimed(Time::ZERO, claimed, Ok(Memory::zeroed(LEN)), NEVER);
    assert_eq!(engines[1].collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), bytes(LEN));
    let recv = receive(&mut engines, 2, LEN);
    go_on(&mut engines, again);
    assert_eq!(engines[1].collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), bytes(LEN));
    take_first(&mut engines);
    at_rest(&engines);
}

#[test]
fn a_claimed_message_that_cannot_become_whole_is_an_error_at_once() {
    for way in 0..3 {
        let mut engines = rich();
        let begun = begin(&mut engines, NEVER);
        let (_, claimed) = engines[1].claim(&Pattern::exact(1, 0, 2)).unwrap().unwrap();
        if way == 0 {
            engines[0].forget(begun);
        }
        end_sender(&mut engines, way);
        let kept = if way == 2 { 0 } else { cost(LEN).into() };
        assert_eq!(
            engines[1].usage().unexpected,
            kept,
            "nothing of it is kept, and the first until the next incarnation takes part"
        );
        let recv = engines[1].recv_claimed(Time::ZERO, claimed, Ok(Memory::zeroed(LEN)), NEVER);
        let Err(Error::PeerFailed { rank: WorldRank(0), cause, fate: Fate::NotDelivered, .. }) =
            result(&mut engines[1], recv)
        else {
            panic!("its sender has ended")
        };
        let died = Cause::Died("signal 9".into());
        // For `way` 2 the sender is restarted, and the next incarnation has the same address. The port has fenced that
        // address, so it reports the peer as lost.
        assert_eq!(cause, [Cause::Left, died, Cause::Lost][way]);
        assert_eq!((engines[1].usage().requests, engines[1].inner.tagged().claims.len()), (0, 0));
    }
}

#[test]
fn claimed_messages_are_kept_within_the_budget() {
    // The budget has room for two messages, claimed or not.
    let budget = 2 * (LEN + 96);
    let mut engines = pair(&Config { window_min: 1 << 20, unexpected_max: budget, ..without_puts() });
    settle(&mut engines);
    let mut claims = Vec::new();
    for tag in 0..6 {
        if let Sent::Pending(id) = send(&mut engines, tag, NEVER) {
            let data = bytes(LEN);
            for _ in 0..20 {
                engines[0].poll(Time::ZERO, &mut Reading::new(id, &data[..])).unwrap();
                engines[1].poll(Time::ZERO, &mut ()).unwrap();
            }
            if engines[0].outcome(id) == Outcome::Ready {
                assert!(result(&mut engines[0], id).is_ok());
            } else {
                engines[0].forget(id);
            }
        }
        settle(&mut engines);
        claims.extend(engines[1].claim(&Pattern::exact(1, 0, tag)).unwrap());
        let Usage { unexpected, credit_granted, .. } = engines[1].usage();
        assert!(unexpected + credit_granted <= budget as u64);
    }
    assert_eq!(claims.len(), 2);
    for (_, claimed) in claims {
        engines[1].discard(Time::ZERO, claimed);
    }
    settle(&mut engines);
    at_rest(&engines);
}

#[test]
fn one_for_which_there_is_no_credit_waits_with_its_sender_and_the_next_ones_need_not() {
    let mut engines = pair(&Config { window_min: 10_000, ..without_puts() });
    settle(&mut engines);
    for round in 0..6 {
        let recv = receive(&mut engines, 2, LEN);
        if let Sent::Pending(id) = send(&mut engines, 2, NEVER) {
            go_on(&mut engines, id);
        } else {
            assert!(round >= 5, "the window has doubled often enough");
        }
        settle(&mut engines);
        assert!(result(&mut engines[1], recv).is_ok());
    }
    let counters = engines[0].counters();
    assert_eq!((counters.eager, counters.rendezvous), (1, 5));
    at_rest(&engines);
}

#[test]
fn a_short_message_does_not_overtake_one_that_waits_for_credit() {
    // Without an outbox, the sends that lack credit wait.
    let config = Config { window_min: 4000, eager_max: 3000, stream_max: 0, outbox_max: 0, ..without_puts() };
    let mut engines = pair(&config);
    settle(&mut engines);
    // The credit suffices for the first message and the last, but not for the second.
    let sends = [3000, 3000, 1].map(|len| {
        let memory = Memory::new(bytes(len));
        engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, memory, NEVER).unwrap()
    });
    assert_eq!(sends.map(|id| engines[0].outcome(id)), [Outcome::Ready, Outcome::Pending, Outcome::Pending]);
    settle(&mut engines);
    for len in [3000, 3000, 1] {
        let recv = receive(&mut engines, 5, 3000);
        settle(&mut engines);
        assert_eq!(result(&mut engines[1], recv).unwrap().bytes, len);
    }
    for id in sends {
        assert!(result(&mut engines[0], id).is_ok());
    }
    at_rest(&engines);
}

#[test]
fn an_address_is_asked_for_once() {
    let hub = Hub::new();
    let identity = Identity { rank: WorldRank(0), size: 3, incarnation: 7, secret: [9; 16] };
    let mut engine = Engine::new(hub.port(), identity, Config::default());
    engine.seek(WorldRank(1)).unwrap();
    assert_eq!(engine.send(Time::ZERO, WorldRank(1), 1, 5, b"x", NEVER), Ok(Sent::Copied));
    engine.seek(WorldRank(2)).unwrap();
    assert_eq!(engine.wanted().collect::<Vec<_>>(), [1, 2].map(WorldRank));
    engine.seek(WorldRank(1)).unwrap();
    assert_eq!(engine.wanted().count(), 0);
}

#[test]
fn a_connection_lost_amid_a_message_is_no_verdict_of_its_sender() {
    let mut engines = rich();
    let send = begin(&mut engines, NEVER);
    let [mut sender, receiver] = engines;
    drop(receiver);
    let data = bytes(LEN);
    sender.inner.drive(&mut Reading::new(send, &data[..]));
    assert_eq!(peer_state(&sender, WorldRank(1)).failure(), Some(Cause::Lost));
    assert_eq!(sender.given_up().count(), 0);
    sender.peer_failed(WorldRank(1), None, Cause::Died("killed by SIGKILL".to_owned())).unwrap();
    let failed = peer_state(&sender, WorldRank(1)).failure();
    assert!(matches!(failed, Some(Cause::Died(_))), "the launcher's report explains it: {failed:?}");
}
