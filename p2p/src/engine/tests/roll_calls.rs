//! Roll calls: the question if the members have begun a collective operation.

use samite_fabric::link::Members;

use super::*;

const CONTROL: u32 = 3;
const UNTIL: Time = Time::from_nanos(100);

/// Returns the engines of ranks 0 and 1. Rank 2 of the job does not answer. All three have the contexts 2 and 3.
fn members() -> [Engine<Loopback>; 2] {
    let mut engines = pair_of(3, &Config::default());
    for engine in &mut engines {
        assert!(engine.open_contexts(2, Group::range(WorldRank(0), 3)).unwrap());
    }
    engines
}

/// Lets rank 0 ask the other ranks, and returns the answers.
fn ask(engines: &mut [Engine<Loopback>; 2], number: u32, others: &[u32]) -> Members {
    let others = others.iter().copied().map(WorldRank);
    engines[0].set_now(Time::ZERO);
    let id = engines[0].call_roll(CONTROL, number, others, UNTIL);
    settle(engines);
    if engines[0].outcome(id) == Outcome::Pending {
        engines[0].poll(UNTIL, &mut ()).unwrap();
    }
    assert_eq!(engines[0].outcome(id), Outcome::Ready);
    engines[0].take_roll(id)
}

#[test]
fn members_that_have_not_begun_or_do_not_answer_are_named() {
    let mut engines = members();
    engines[1].note_begun(CONTROL, 4);
    let (absent, silent) = (vec![WorldRank(1)], vec![WorldRank(2)]);
    let none = Members::default();
    assert_eq!(ask(&mut engines, 5, &[1, 2]), Members { absent: absent.clone(), silent, ..none.clone() });
    assert_eq!(ask(&mut engines, 5, &[1]), Members { absent, ..none.clone() });
    engines[1].note_begun(CONTROL, 5);
    // A rank can begin operations in another order if several threads begin them.
    engines[1].note_begun(CONTROL, 3);
    assert_eq!(ask(&mut engines, 5, &[1]), none);
    assert_eq!(ask(&mut engines, 5, &[]), none);
    engines[1].close_contexts(Time::ZERO, CONTROL);
    assert_eq!(ask(&mut engines, 5, &[1]), Members { closed: vec![WorldRank(1)], ..none });
}

#[test]
fn contexts_of_the_job_have_members_too() {
    let mut engines = pair(&Config::default());
    let absent = vec![WorldRank(1)];
    let mut ask = |number| {
        let id = engines[0].call_roll(0, number, [WorldRank(0), WorldRank(1)].into_iter(), UNTIL);
        settle(&mut engines);
        engines[1].note_begun(0, number);
        engines[0].take_roll(id)
    };
    for number in 0..3 {
        assert_eq!(ask(number), Members { absent: absent.clone(), ..Members::default() });
    }
    assert_eq!(ask(0), Members::default());
}

#[test]
fn a_member_that_does_not_answer_is_asked_once() {
    let mut engines = members();
    for _ in 0..1000 {
        let id = engines[0].call_roll(CONTROL, 0, [WorldRank(1)].into_iter(), UNTIL);
        engines[0].poll(Time::ZERO, &mut ()).unwrap();
        assert_eq!(engines[0].take_roll(id).silent, [WorldRank(1)]);
    }
    settle(&mut engines);
    assert_eq!(engines[0].counters().stale, 0, "a second answer would be stale");
    assert_eq!(ask(&mut engines, 0, &[1]).absent, [WorldRank(1)], "it is asked again after its answer");
    at_rest(&engines);
}

#[test]
fn a_member_that_ends_is_awaited_no_longer() {
    let mut engines = members();
    let id = engines[0].call_roll(CONTROL, 0, [WorldRank(1)].into_iter(), NEVER);
    engines[0].peer_failed(WorldRank(1), None, Cause::Died("killed".into())).unwrap();
    assert_eq!(engines[0].outcome(id), Outcome::Ready);
    assert_eq!(engines[0].take_roll(id), Members::default());
    let id = engines[0].call_roll(CONTROL, 0, [WorldRank(1)].into_iter(), NEVER);
    assert_eq!(engines[0].outcome(id), Outcome::Ready, "it is not asked");
    engines[0].take_roll(id);
}

#[test]
fn only_members_may_ask() {
    let mut engines = pair_of(3, &Config::default());
    for engine in &mut engines {
        let members = if engine.inner.link().identity().rank.0 == 0 { 0..2 } else { 1..3 };
        assert!(engine.open_contexts(2, Group::range(WorldRank(members.start), 2)).unwrap());
    }
    let id = engines[0].call_roll(CONTROL, 0, [WorldRank(1)].into_iter(), NEVER);
    settle(&mut engines);
    engines[0].take_roll(id);
    assert!(!peer_state(&engines[1], WorldRank(0)).is_alive(), "rank 0 has violated the protocol");
}
