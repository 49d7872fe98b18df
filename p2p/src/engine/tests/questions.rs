//! Tests of the limit of questions: packets that the peer must answer, and that it has not acknowledged yet.

use super::*;

/// The limit in these tests.
const MOST: u32 = 8;

/// Returns a configuration under which the first packet of each message is an envelope without data, a question.
fn announcing() -> Config {
    Config { announced_max: MOST as usize, eager_max: 0, stream_max: 0, outbox_max: 0, ..Config::default() }
}

fn isend(sender: &mut Engine<Loopback>, tag: u64, bytes: usize) -> RequestId {
    sender.isend(Time::ZERO, WorldRank(1), 0, tag, Memory::zeroed(bytes), NEVER).unwrap()
}

/// Starts sends of one byte at rank 0, which is not polled meanwhile. Returns the sends.
fn post(sender: &mut Engine<Loopback>, tags: std::ops::Range<u64>) -> Vec<RequestId> {
    tags.map(|tag| isend(sender, tag, 1)).collect()
}

/// Returns the number of packets to rank 1 that rank 1 has not acknowledged.
fn under_way(sender: &Engine<Loopback>) -> u32 {
    let state = peer_state(sender, WorldRank(1));
    state.unacknowledged(state.last_sent())
}

#[test]
fn announcements_wait_until_earlier_ones_have_arrived() {
    let mut engines = pair(&announcing());
    settle(&mut engines);
    let sends = post(&mut engines[0], 0..100);
    assert_eq!(under_way(&engines[0]), MOST);
    assert_eq!(engines[0].usage().queued, 100 - MOST as usize, "the rest waits");
    settle(&mut engines);
    assert_eq!(engines[1].usage().unexpected_messages, 100, "the rest is sent without another call");
    for (tag, send) in (0..).zip(sends) {
        let recv = engines[1].irecv(Time::ZERO, Pattern::exact(0, 0, tag), Memory::zeroed(1), NEVER).unwrap();
        settle(&mut engines);
        assert_eq!(engines[1].collect(recv, &mut ()).unwrap().memory.unwrap().as_bytes(), [0]);
        assert!(engines[0].collect(send, &mut ()).unwrap().result.is_ok());
    }
    at_rest(&engines);
}

#[test]
fn an_announcement_behind_data_asks_for_an_acknowledgement() {
    let mut engines = pair(&Config { eager_max: 16, ..announcing() });
    settle(&mut engines);
    for tag in 0..100 {
        let id = isend(&mut engines[0], tag, 1);
        assert!(engines[0].collect(id, &mut ()).is_some(), "data needs no acknowledgement");
    }
    let sends = [100, 101, 102].map(|tag| isend(&mut engines[0], tag, 17));
    assert_eq!(under_way(&engines[0]), 101, "one announcement is sent, and asks for an acknowledgement");
    settle(&mut engines);
    assert_eq!(engines[1].usage().unexpected_messages, 103);
    for send in sends {
        engines[0].forget(send);
    }
    settle(&mut engines);
    assert_eq!(engines[1].usage().unexpected_messages, 100);
}

#[test]
fn announcements_that_wait_end_at_their_deadline_and_with_their_peer() {
    let mut engines = pair(&announcing());
    settle(&mut engines);
    let due = Time::ZERO.after(10);
    let sent = post(&mut engines[0], 0..MOST.into());
    let late = engines[0].isend(Time::ZERO, WorldRank(1), 0, 9, Memory::zeroed(1), due).unwrap();
    let last = post(&mut engines[0], 10..11);
    engines[0].poll(due, &mut ()).unwrap();
    let ended = engines[0].collect(late, &mut ()).unwrap();
    assert!(matches!(ended.result, Err(Error::TimedOut { .. })), "{:?}", ended.result);
    engines[0].peer_failed(WorldRank(1), Some(7), Cause::Lost).unwrap();
    engines[0].poll(due, &mut ()).unwrap();
    for id in sent.into_iter().chain(last) {
        let ended = engines[0].collect(id, &mut ()).unwrap();
        assert!(matches!(ended.result, Err(Error::PeerFailed { .. })), "{:?}", ended.result);
    }
}
