//! Agreements in which a member sends values that no correct rank sends.

use samite_fabric::SplitMix64;
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};

use super::*;
use crate::agreement::{AgreementId, Choice, Leader, Progress, Proposal};
use crate::wire::AGREEMENTS_MAX;

/// The values that encode votes in the messages of an agreement.
const YES: u64 = 0;
const AGAIN: u64 = 1 << 32;

/// Begins a creation at rank 0. Its messages are in context 0, and its number is 0.
fn begin(engine: &mut Engine<impl Port>, choice: Choice, deadline: Time) -> AgreementId {
    let ranks = Group::range(WorldRank(0), 2);
    engine.begin_agreement(Time::ZERO, Proposal { ranks, control: 0, tag: None, choice }, deadline)
}

/// Sends an answer as rank 1. `words` are a vote, a name and further words. The stamp of the message is
/// `Stamp::default()`.
fn answer(engine: &mut Engine<Loopback>, words: &[u64]) {
    let memory = Memory::new([&words[..2], &[0; 3], &words[2..]].concat());
    engine.isend(Time::ZERO, WorldRank(0), 0, 0, memory, NEVER).unwrap();
}

fn end_of(engine: &mut Engine<impl Port>, id: AgreementId) -> Option<Error> {
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

/// A receive takes the packets that have arrived before it is posted. One of them may belong to an agreement.
#[test]
fn an_agreement_notices_a_message_that_arrives_in_a_receive() {
    let ports = [(); 2].map(|()| Shm::open(&Default::default()).unwrap());
    let mut engines = pair_over(2, ports, &Config::default());
    // The ranks meet, so that later messages leave at once.
    let met = engines[0].irecv(Time::ZERO, Pattern::exact(1, 1, 4), Memory::zeroed(1), NEVER).unwrap();
    engines[1].send(Time::ZERO, WorldRank(0), 1, 4, &[0], NEVER).unwrap();
    settle(&mut engines);
    engines[0].collect(met, &mut ()).unwrap();
    let choice = Choice::Group(Group::range(WorldRank(0), 2));
    let ids = [0, 1].map(|rank| begin(&mut engines[rank], choice.clone(), NEVER));
    // Rank 1 has sent its answer, and the port of rank 0 has it.
    let received = engines[0].recv(Time::ZERO, Pattern::exact(1, 1, 5), &mut [0], 0, NEVER, &mut ()).unwrap();
    let Received::Pending(receive) = received else { panic!("nothing was sent to it") };
    assert_eq!(engines[0].due(), Time::ZERO);
    settle(&mut engines);
    for (engine, id) in engines.iter_mut().zip(ids) {
        assert!(matches!(engine.agreement(id), Some(Progress::Ended(Ok(Some(_))))));
    }
    engines[0].cancel(receive);
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
        for words in [&[&[YES, 2, 1, 0, 0, 0], group].concat()[..], &[YES, 0, 1, 1, 1]] {
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

/// Begins the creation of a communicator of ranks 0 and 1 at an engine. If there is no tag, the agreement has a number.
fn create(engine: &mut Engine<impl Port>, tag: Option<u32>, deadline: Time) -> AgreementId {
    let ranks = Group::range(WorldRank(0), 2);
    let choice = Choice::Group(ranks.clone());
    engine.begin_agreement(Time::ZERO, Proposal { ranks, control: 0, tag, choice }, deadline)
}

fn is_created(engine: &mut Engine<impl Port>, id: AgreementId) -> bool {
    matches!(engine.agreement(id), Some(Progress::Ended(Ok(Some(_)))))
}

/// Messages of the program that are not received use up the budget for envelopes, or wait in the outbox until their
/// envelope is confirmed.
#[test]
fn a_creation_does_not_wait_until_messages_are_received() {
    let budget = Config { envelopes_max: 2 * 96, ..Config::default() };
    for (config, messages) in [
        (Config { eager_max: 0, stream_max: 0, outbox_max: 0, ..budget.clone() }, 2),
        (Config { unexpected_max: 0, outbox_max: 0, ..budget.clone() }, 2),
        (Config { unexpected_max: 0, ..budget }, 6),
    ] {
        let mut engines = pair(&config);
        settle(&mut engines);
        let mut sends = Vec::new();
        for (rank, engine) in engines.iter_mut().enumerate() {
            for tag in 0..messages {
                let (to, message) = (WorldRank(1 - rank as u32), Memory::new(b"message".to_vec()));
                sends.push((rank, engine.isend(Time::ZERO, to, 1, tag, message, NEVER).unwrap()));
            }
        }
        settle(&mut engines);
        assert!(engines[0].usage().envelopes >= 2 * 96, "the budget is used up");
        for _ in 0..3 {
            let made = [0, 1].map(|rank: usize| create(&mut engines[rank], None, NEVER));
            settle(&mut engines);
            for (rank, id) in made.into_iter().enumerate() {
                assert!(is_created(&mut engines[rank], id), "{config:?}: rank {rank}");
            }
        }
        for (rank, engine) in [(0, 1), (1, 0)] {
            for tag in 0..messages {
                let pattern = Pattern::exact(1, rank, tag);
                let id = engines[engine].irecv(Time::ZERO, pattern, Memory::zeroed(7), NEVER).unwrap();
                settle(&mut engines);
                let received = engines[engine].collect(id, &mut ()).unwrap();
                assert_eq!(received.memory.unwrap().as_bytes(), b"message");
            }
        }
        sends.into_iter().for_each(|(rank, id)| assert!(engines[rank].collect(id, &mut ()).is_some()));
        at_rest(&engines);
        assert_eq!(engines.map(|engine| engine.counters().refused), [0, 0]);
    }
}

/// Beyond the budget a rank keeps [`AGREEMENTS_MAX`] envelopes of agreements of one sender, and refuses further ones.
#[test]
fn a_receiver_keeps_a_limited_number_of_messages_of_agreements() {
    let none = Config { unexpected_max: 0, envelopes_max: 0, ..Config::default() };
    let mut engines = pair(&none);
    settle(&mut engines);
    let begin = |engines: &mut [Engine<Loopback>; 2], tags: std::ops::Range<u32>| -> Vec<AgreementId> {
        tags.map(|tag| create(&mut engines[1], Some(tag), NEVER)).collect()
    };
    let begun = begin(&mut engines, 0..AGREEMENTS_MAX as u32);
    settle(&mut engines);
    assert_eq!(engines[0].usage().unexpected_messages, AGREEMENTS_MAX);
    for id in begin(&mut engines, AGREEMENTS_MAX as u32..AGREEMENTS_MAX as u32 + 3) {
        settle(&mut engines);
        let end = end_of(&mut engines[1], id).expect("its message was refused");
        assert!(matches!(end, Error::Exhausted { .. }), "{end:?}");
    }
    for (tag, id) in (0..AGREEMENTS_MAX as u32).zip(begun).rev() {
        let other = create(&mut engines[0], Some(tag), NEVER);
        settle(&mut engines);
        assert!(is_created(&mut engines[0], other) && is_created(&mut engines[1], id), "{tag}");
    }
    at_rest(&engines);
}

/// A rank that cannot reach its parent gives the creation up with the error of its send, and informs its children.
#[test]
fn a_creation_without_room_for_a_member_ends_with_that_error() {
    let mut network = NetConfig::default();
    network.caps.peers_max = 1;
    let net = Net::new(5, network);
    // The parent of rank 3 is rank 2, and the parent of rank 2 is rank 0. The port of rank 2 has room for one peer,
    // which is rank 3.
    let mut engines = [3, 2].map(|rank| {
        let identity = Identity { rank: WorldRank(rank), size: 4, incarnation: 7, secret: [9; 16] };
        Engine::new(net.start(rank), identity, Config::default())
    });
    let introduce = |engine: &mut Engine<SimPort>, rank: u32| {
        engine.introduce(WorldRank(rank), 7, net.address(rank)).unwrap();
    };
    introduce(&mut engines[0], 2);
    introduce(&mut engines[1], 3);
    let run = |engines: &mut [Engine<SimPort>; 2]| {
        for _ in 0..100 {
            let now = Time::from_nanos(net.now_ns());
            engines.iter_mut().for_each(|engine| _ = engine.poll(now, &mut ()).unwrap());
            net.advance();
        }
    };
    let ranks = Group::range(WorldRank(0), 4);
    let [child, parent] = [0, 1].map(|at: usize| {
        let (choice, ranks) = (Choice::Group(ranks.clone()), ranks.clone());
        let proposal = Proposal { ranks, control: 0, tag: None, choice };
        let id = engines[at].begin_agreement(Time::ZERO, proposal, NEVER);
        run(&mut engines);
        id
    });
    introduce(&mut engines[1], 0);
    run(&mut engines);
    let end = end_of(&mut engines[1], parent).expect("it has ended");
    assert!(matches!(end, Error::Exhausted { what: "peers", .. }), "{end:?}");
    let end = end_of(&mut engines[0], child).expect("it has ended");
    let expected = Error::PeerFailed {
        rank: WorldRank(2),
        cause: Cause::LeftContext,
        fate: Fate::NotDelivered,
        report: None,
    };
    assert_eq!(end, expected);
}

/// Ranks that repeat a creation with the same tag until it succeeds never get different communicators, and no rank
/// considers the other one failed.
#[test]
fn creations_with_a_repeated_tag_end_with_one_name() {
    let (mut made, mut alone) = (0, 0);
    for seed in 0..2_000 {
        let mut random = SplitMix64::new(seed);
        let mut engines = pair(&Config::default());
        settle(&mut engines);
        let (mut under_way, mut names) = ([None; 2], [None; 2]);
        for now in 0..400 {
            let now = Time::from_nanos(now);
            let rank = random.below(2) as usize;
            engines[rank].poll(now, &mut ()).unwrap();
            match under_way[rank]
                .map(|id| (id, engines[rank].agreement(id).expect("its result was not taken")))
            {
                None if names[rank].is_none() && random.below(3) == 0 => {
                    under_way[rank] = Some(create(&mut engines[rank], Some(0), NEVER));
                }
                // From time 200 on no rank gives up.
                Some((id, Progress::Awaits { .. }))
                    if random.below(5) == 0 && now < Time::from_nanos(200) =>
                {
                    engines[rank].quit_agreement(now, id, Error::Cancelled { fate: Fate::NotDelivered });
                }
                Some((_, Progress::Ended(end))) => {
                    under_way[rank] = None;
                    names[rank] = end.ok().flatten().map(|agreed| agreed.name);
                }
                _ => {}
            }
        }
        for engine in &engines {
            engine.check_invariants();
            assert_eq!(engine.counters().failed_peers, 0, "seed {seed}");
        }
        match names {
            [Some(here), Some(there)] => {
                assert_eq!(here, there, "seed {seed}");
                made += 1;
            }
            // One rank already had the communicator when the other rank gave up.
            [None, None] => panic!("seed {seed}: the ranks have not agreed"),
            _ => alone += 1,
        }
    }
    assert!(made > 1_000 && alone > 0, "{made} were made, {alone} by one rank alone");
}
