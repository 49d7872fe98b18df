//! Tests of peers that a rank gives up although they are alive: what the rank reports about them, and what that report
//! changes at such a peer.

use super::*;
use samite_fabric::link::{Fault, GivenUp};

/// The causes for which a rank gives up a peer by its own judgement.
fn own() -> [Cause; 4] {
    [
        Cause::Gap { expected: 3, got: 5 },
        Cause::Protocol("nonsense".to_owned()),
        Cause::Unreachable("no route".to_owned()),
        Cause::OutOfMemory,
    ]
}

fn others() -> [Cause; 5] {
    [
        Cause::Died("it was killed".to_owned()),
        Cause::Left,
        Cause::Lost,
        Cause::Restarted,
        Cause::GaveUp("a gap".to_owned()),
    ]
}

/// Returns ranks 0 and 1 of a job of three, which know each other, and a port for the next incarnation of one of them.
fn acquainted() -> ([Engine<Loopback>; 2], Loopback) {
    let hub = Hub::new();
    let mut engines = pair_over(3, [hub.port(), hub.port()], &Config::default());
    settle(&mut engines);
    (engines, hub.port())
}

fn noted(engine: &mut Engine<Loopback>) -> Vec<GivenUp> {
    let has_given_up = engine.has_given_up();
    let noted: Vec<_> = engine.given_up().collect();
    assert_eq!(has_given_up, !noted.is_empty());
    noted
}

fn fault(engine: &mut Engine<Loopback>, rank: WorldRank, cause: &Cause) {
    let peer = peer_of(engine, rank);
    engine.inner.fault(Fault::new(peer, cause.clone()));
}

#[test]
fn a_verdict_of_this_rank_is_noted_once() {
    for cause in own() {
        let ([mut engine, _other], next) = acquainted();
        fault(&mut engine, WorldRank(1), &cause);
        let given_up = GivenUp { rank: WorldRank(1), incarnation: 7, cause: cause.clone() };
        assert_eq!(noted(&mut engine), [given_up]);
        for again in own().into_iter().chain(others()) {
            fault(&mut engine, WorldRank(1), &again);
        }
        assert_eq!(noted(&mut engine), []);
        assert_eq!(peer_state(&engine, WorldRank(1)).failure(), Some(cause.clone()));

        // A verdict on the rank's next incarnation is noted separately.
        engine.introduce(WorldRank(1), 8, next.address()).unwrap();
        fault(&mut engine, WorldRank(1), &cause);
        assert_eq!(noted(&mut engine), [GivenUp { rank: WorldRank(1), incarnation: 8, cause }]);
    }
}

#[test]
fn a_failure_that_is_no_verdict_of_this_rank_is_not_noted() {
    for cause in others() {
        let ([mut engine, _other], _) = acquainted();
        fault(&mut engine, WorldRank(1), &cause);
        for again in own() {
            fault(&mut engine, WorldRank(1), &again);
        }
        assert_eq!(noted(&mut engine), [], "{cause:?}");
    }
}

#[test]
fn a_verdict_on_a_peer_that_has_left_or_on_this_rank_itself_is_not_noted() {
    for cause in own() {
        let (mut engines, _) = acquainted();
        engines[1].close(Time::ZERO);
        settle(&mut engines);
        let [mut engine, _other] = engines;
        assert_eq!(peer_state(&engine, WorldRank(1)).failure(), Some(Cause::Left));
        fault(&mut engine, WorldRank(1), &cause);
        fault(&mut engine, WorldRank(0), &cause);
        assert_eq!(noted(&mut engine), []);
    }
}

/// Polls, and returns the result of a receive, or `None` if it has not ended.
fn end(engine: &mut Engine<Loopback>, recv: RequestId) -> Option<Result<Status, Error>> {
    engine.poll(Time::ZERO, &mut ()).unwrap();
    match engine.outcome(recv) {
        Outcome::Pending => None,
        _ => engine.collect(recv, &mut ()).map(|completion| completion.result),
    }
}

#[test]
fn operations_with_a_rank_that_gave_this_one_up_end_and_no_others() {
    let ([_other, mut engine], next) = acquainted();
    let recv = |engine: &mut Engine<Loopback>, from| {
        engine.irecv(Time::ZERO, Pattern::exact(0, from, 0), Memory::zeroed(8), NEVER).unwrap()
    };
    let [from_0, from_2] = [0, 2].map(|from| recv(&mut engine, from));

    // These verdicts concern other incarnations of this rank, or come from an earlier incarnation of rank 0 or from
    // this rank.
    let cases = [(0, 7, 6), (0, 7, 8), (0, 6, 7), (1, 7, 7)];
    for (rank, incarnation, verdict_on) in cases {
        engine.peer_gave_up(WorldRank(rank), incarnation, verdict_on, "stale".to_owned()).unwrap();
    }
    assert!(engine.peer_gave_up(WorldRank(3), 7, 7, String::new()).is_err(), "there is no such rank");
    assert_eq!(end(&mut engine, from_0), None);
    assert_eq!(engine.counters().failed_peers, 0);

    engine.peer_gave_up(WorldRank(0), 7, 7, "packets were lost".to_owned()).unwrap();
    let Some(Err(Error::PeerFailed { rank: WorldRank(0), cause, .. })) = end(&mut engine, from_0) else {
        panic!("ended")
    };
    assert_eq!(cause, Cause::GaveUp("packets were lost".to_owned()));
    assert_eq!(end(&mut engine, from_2), None);
    // The engine has no report to send to rank 0.
    assert_eq!(noted(&mut engine), []);

    // The rank takes part again in its next incarnation.
    engine.introduce(WorldRank(0), 8, next.address()).unwrap();
    let from_0 = recv(&mut engine, 0);
    engine.peer_gave_up(WorldRank(0), 7, 7, "late".to_owned()).unwrap();
    assert_eq!(end(&mut engine, from_0), None);
    engine.check_invariants();
}

#[test]
fn the_verdict_of_a_peer_explains_a_lost_connection_and_nothing_else() {
    let gave_up = Cause::GaveUp("a gap".to_owned());
    for cause in own().into_iter().chain(others()) {
        let ([_other, mut engine], _) = acquainted();
        fault(&mut engine, WorldRank(0), &cause);
        engine.peer_gave_up(WorldRank(0), 7, 7, "a gap".to_owned()).unwrap();
        let known = if cause == Cause::Lost { gave_up.clone() } else { cause };
        assert_eq!(peer_state(&engine, WorldRank(0)).failure(), Some(known));
        engine.check_invariants();
    }
}

/// A rank may end before the first contact with it. Then its address leads to no process.
#[test]
fn the_launcher_explains_an_end_before_the_first_contact() {
    let died = || Cause::Died("it was killed".to_owned());
    let open = || Shm::open(&samite_fabric::shm::Config::default()).unwrap();
    for cause in [died(), Cause::Left] {
        let address = open().address();
        let identity = Identity { rank: WorldRank(0), size: 2, incarnation: 7, secret: [9; 16] };
        let mut engine = Engine::new(open(), identity, Config::default());
        engine.expect_word();
        engine.introduce(WorldRank(1), 7, address).unwrap();
        assert_eq!(peer_state(&engine, WorldRank(1)).failure(), Some(Cause::Lost));
        assert!(engine.unexplained_since(WorldRank(1)).is_some());
        assert!(!engine.has_given_up(), "the rank is not alive");
        match &cause {
            Cause::Left => engine.peer_left(WorldRank(1), Some(7)).unwrap(),
            cause => engine.peer_failed(WorldRank(1), Some(7), cause.clone()).unwrap(),
        }
        assert_eq!(peer_state(&engine, WorldRank(1)).failure(), Some(cause));
        engine.check_invariants();
    }
}
