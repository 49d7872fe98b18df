//! Agreements in which a member sends values that no correct rank sends.

use super::*;
use crate::agreement::{AgreementId, Choice, Leader, Progress, Proposal};

/// The values that encode votes in the messages of an agreement.
const YES: u64 = 0;
const AGAIN: u64 = 1 << 32;

/// Begins a creation at rank 0. Its messages are in context 0, and its number is 0.
fn begin(engine: &mut Engine<Loopback>, choice: Choice, deadline: Time) -> AgreementId {
    let ranks = Group::range(WorldRank(0), 2);
    engine.begin_agreement(Time::ZERO, Proposal { ranks, control: 0, tag: None, choice }, deadline)
}

/// Sends an answer as rank 1.
fn answer(engine: &mut Engine<Loopback>, words: &[u64]) {
    let memory = Memory::new(words.to_vec());
    engine.isend(Time::ZERO, WorldRank(0), 0, 0, memory, NEVER).unwrap();
}

fn end_of(engine: &mut Engine<Loopback>, id: AgreementId) -> Option<Error> {
    match engine.agreement(id) {
        Some(Progress::Ended(end)) => Some(end.unwrap_err()),
        _ => None,
    }
}

#[test]
fn a_member_that_always_wants_another_context_delays_no_deadline() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let deadline = Time::from_nanos(1_000_000_000);
    let ranks = Choice::Group(Group::range(WorldRank(0), 2));
    let id = begin(&mut engines[0], ranks, deadline);
    let late = deadline.after(1_000_000);
    let mut answers = 0;
    let end = loop {
        // Rank 0 never has to wait: the next message has always arrived.
        for _ in 0..4 {
            answer(&mut engines[1], &[YES, 2 + 2 * answers, 0]);
            answer(&mut engines[1], &[AGAIN, 0]);
            answers += 1;
        }
        assert!(answers < 100_000, "the agreement continues after its deadline");
        let _ = engines[1].poll(late, &mut ());
        let _ = engines[0].poll(late, &mut ());
        if let Some(end) = end_of(&mut engines[0], id) {
            break end;
        }
    };
    let Error::TimedOut { report, .. } = &end else { panic!("{end:?}") };
    assert_eq!((report.operation, report.peer), (Operation::Creation, Some(WorldRank(1))));
}

#[test]
fn forged_choices_end_a_split_with_an_error() {
    let rows = |rows: u64, lines: u64| rows << 32 | lines;
    for forged in [
        &[][..],
        &[rows(1, 1)],
        &[rows(1, 1), 1, 5],
        // The choices of two ranks instead of one.
        &[rows(1, 1), 2, 5, 0, 0, 0],
        &[rows(1, 2), 1, 5, 0, 1, 5, 0],
        // Lines without pairs, tiles without rows or lines, and more pairs or lines than fit in the words.
        &[rows(1, 1), 0, 5, 0],
        &[rows(0, 1), 1, 5, 0],
        &[rows(1, 0), rows(1, 1), 1, 5, 0],
        &[rows(u32::MAX.into(), 1), 0, 0, u32::MAX.into(), 5, 0, 0, 0],
        &[rows(1, u32::MAX.into()), 1, 5, 0],
        &[rows(1, 1), u64::MAX, 5, 0, 0, 0],
    ] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        let id = begin(&mut engines[0], Choice::Colour(Some(5), 0), NEVER);
        answer(&mut engines[1], &[&[YES, 2, 0], forged].concat());
        settle(&mut engines);
        let end = end_of(&mut engines[0], id).expect("it has ended");
        let expected = (WorldRank(1), Cause::LeftContext);
        assert!(
            matches!(&end, Error::PeerFailed { rank, cause, .. } if (*rank, cause) == (expected.0, &expected.1)),
            "{forged:?}: {end:?}"
        );
    }
    // Rank 1 answers as in a split, but rank 0 has begun a creation with a given group.
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let id = begin(&mut engines[0], Choice::Group(Group::range(WorldRank(0), 2)), NEVER);
    answer(&mut engines[1], &[YES, 2, 0, rows(1, 1), 1, 5, 0]);
    settle(&mut engines);
    assert!(matches!(end_of(&mut engines[0], id), Some(Error::PeerFailed { .. })));
}

#[test]
fn a_leader_without_a_group_ends_an_intercommunicator_with_an_error() {
    for (group, is_valid) in [(&[][..], false), (&[1, 1], false), (&[1 << 32 | 1, 1], true)] {
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        let ranks = Group::range(WorldRank(0), 1);
        let other = Some(Leader { rank: WorldRank(1), control: 0, tag: 5 });
        let choice = Choice::Remote { leader: 0, other };
        let proposal = Proposal { ranks, control: 0, tag: None, choice };
        let id = engines[0].begin_agreement(Time::ZERO, proposal, NEVER);
        for words in [&[&[YES, 2, 0], group].concat()[..], &[YES, 0]] {
            let tag = 3 << 62 | 5;
            engines[1].isend(Time::ZERO, WorldRank(0), 0, tag, Memory::new(words.to_vec()), NEVER).unwrap();
        }
        settle(&mut engines);
        let Some(Progress::Ended(end)) = engines[0].agreement(id) else {
            panic!("{group:?}: it has not ended")
        };
        assert_eq!(end.is_ok(), is_valid, "{group:?}: {end:?}");
    }
}

/// Begins two creations at both ranks, in opposite orders, and polls until both have ended. Returns, for each rank, the
/// number of communicators that it has made.
fn made_of_two_that_cross(config: &Config) -> [usize; 2] {
    let mut engines = pair(config);
    settle(&mut engines);
    let begin = |engine: &mut Engine<Loopback>, tag: u32| {
        let ranks = Group::range(WorldRank(0), 2);
        let (choice, tag) = (Choice::Group(ranks.clone()), Some(tag));
        engine.begin_agreement(Time::ZERO, Proposal { ranks, control: 0, tag, choice }, NEVER)
    };
    let mut under_way: [Vec<AgreementId>; 2] = std::array::from_fn(|rank| {
        let tags = if rank == 0 { [1, 2] } else { [2, 1] };
        tags.map(|tag| begin(&mut engines[rank], tag)).into()
    });
    let mut made = [0; 2];
    for _ in 0..2_000 {
        for (rank, engine) in engines.iter_mut().enumerate() {
            engine.poll(Time::ZERO, &mut ()).unwrap();
            engine.check_invariants();
            under_way[rank].retain(|&id| match engine.agreement(id) {
                Some(Progress::Ended(end)) => {
                    let exhausted = matches!(end, Err(Error::Exhausted { .. }));
                    assert!(end.is_ok() || exhausted, "{end:?}");
                    made[rank] += usize::from(end.is_ok());
                    false
                }
                _ => true,
            });
        }
        if under_way.iter().all(Vec::is_empty) {
            return made;
        }
    }
    panic!("the creations hinder each other for ever");
}

#[test]
fn creations_that_cross_in_lockstep_both_end() {
    assert_eq!(made_of_two_that_cross(&Config::default()), [2, 2]);
}

#[test]
fn creations_that_cross_share_a_budget_and_end() {
    let budget = |communicators_max| Config { communicators_max, ..Config::default() };
    assert_eq!(made_of_two_that_cross(&budget(2)), [2, 2]);
    let [here, there] = made_of_two_that_cross(&budget(1));
    assert!(here == there && here <= 1, "{here} and {there} were made");
}
