//! Agreements of survivors, and revoked contexts, with several engines over the loopback port.

use samite_fabric::SplitMix64;
use samite_fabric::link::first_incarnation;

use super::*;
use crate::agreement::{Agreed, AgreementId, Choice, LAST, Progress, Proposal};
use crate::survivors::{Decision, SURVIVORS_TAG};
use crate::wire::{Void, kind};

const SECRET: [u8; 16] = [9; 16];

/// The engines of a job. An engine that is `None` has failed.
struct Job(Vec<Option<Engine<Loopback>>>);

/// The end of an agreement.
type Ended = Result<Result<Agreed, Decision>, Error>;

impl Job {
    fn new(size: u32) -> Self {
        let hub = Hub::new();
        let ports: Vec<_> = (0..size).map(|_| hub.port()).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        let of = |rank: u32| first_incarnation(&SECRET, WorldRank(rank));
        let engines = (0..size).zip(ports).map(|(rank, port)| {
            let identity = Identity { rank: WorldRank(rank), size, incarnation: of(rank), secret: SECRET };
            let mut engine = Engine::new(port, identity, Config::default());
            for (rank, address) in (0..).zip(&addresses) {
                engine.introduce(WorldRank(rank), of(rank), address.clone()).unwrap();
            }
            Some(engine)
        });
        let mut job = Self(engines.collect());
        job.settle();
        job
    }

    fn living(&self) -> Vec<u32> {
        (0..self.0.len() as u32).filter(|rank| self.0[*rank as usize].is_some()).collect()
    }

    fn engine(&mut self, rank: u32) -> &mut Engine<Loopback> {
        self.0[rank as usize].as_mut().expect("it lives")
    }

    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 4 {
            let living = self.0.iter_mut().flatten();
            let events: usize = living.map(|engine| engine.poll(Time::ZERO, &mut ()).unwrap()).sum();
            idle = if events == 0 { idle + 1 } else { 0 };
        }
    }

    /// Ends a rank, and lets the launcher report that to the others.
    fn kill(&mut self, victim: u32) {
        self.0[victim as usize] = None;
        for rank in self.living() {
            self.tell(rank, victim);
        }
    }

    fn tell(&mut self, rank: u32, victim: u32) {
        let cause = Cause::Died("killed".into());
        self.engine(rank).peer_failed(WorldRank(victim), None, cause).unwrap();
    }

    /// Opens the contexts 2 and 3 for all ranks.
    fn open(&mut self) -> Group {
        let all = Group::range(WorldRank(0), self.0.len() as u32);
        for engine in self.0.iter_mut().flatten() {
            assert!(engine.open_contexts(2, all.clone()).unwrap());
        }
        all
    }

    /// Returns the ends of agreements by rank, in the order of the living ranks.
    fn ends(&mut self, ids: &[(u32, AgreementId)]) -> Vec<Ended> {
        self.settle();
        let living = self.living();
        let ids = ids.iter().filter(|(rank, _)| living.contains(rank));
        ids.map(|&(rank, id)| match self.engine(rank).agreement(id) {
            Some(Progress::Ended(end)) => end.map(|agreed| Ok(agreed.expect("it is a member"))),
            Some(Progress::Decided(decision)) => Ok(Err(decision)),
            other => panic!("rank {rank}: {other:?}"),
        })
        .collect()
    }

    fn agree(&mut self, members: &Group, rank: u32, flags: u64) -> (u32, AgreementId) {
        (rank, self.engine(rank).begin_agree(Time::ZERO, 3, members.clone(), flags, NEVER))
    }

    fn shrink(&mut self, members: &Group, rank: u32) -> (u32, AgreementId) {
        (rank, self.engine(rank).begin_shrink(Time::ZERO, 3, members.clone(), NEVER))
    }

    fn at_rest(&self) {
        for engine in self.0.iter().flatten() {
            assert!(!engine.agreements.is_active, "{:?}", engine.survivors);
            engine.check_invariants();
            let Usage { requests, unexpected, envelopes, .. } = engine.usage();
            assert_eq!((requests, unexpected, envelopes), (0, 0, 0));
        }
    }
}

fn ranks(ranks: impl IntoIterator<Item = u32>) -> Group {
    Group::new(ranks.into_iter().map(WorldRank)).unwrap()
}

fn all_same<T: std::fmt::Debug + PartialEq>(values: Vec<T>) -> T {
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    values.into_iter().next().expect("there is one")
}

#[test]
fn survivors_agree_on_flags_and_failed_members() {
    for n in [1, 2, 3, 5, 8] {
        let mut job = Job::new(n);
        let all = job.open();
        let ids: Vec<_> = (0..n).map(|rank| job.agree(&all, rank, !(1 << rank))).collect();
        let expected = Ok(Err(Decision { flags: !0 << n, failed: Group::EMPTY }));
        assert_eq!(all_same(job.ends(&ids)), expected);
        // A member that has already called fails before the others call.
        let victim = n / 2;
        let mut ids = vec![job.agree(&all, victim, !(1 << victim))];
        job.settle();
        if n > 1 {
            job.kill(victim);
        }
        ids.extend((0..n).filter(|rank| *rank != victim).map(|rank| job.agree(&all, rank, !(1 << rank))));
        if n > 1 {
            ids.remove(0);
        }
        let Ok(Err(Decision { flags, failed })) = all_same(job.ends(&ids)) else { panic!("they agree") };
        let flags_of_living = (0..n).filter(|rank| n == 1 || *rank != victim).map(|rank| !(1 << rank));
        assert_eq!(flags | 1 << victim, flags_of_living.fold(!0, |all, flags| all & flags) | 1 << victim);
        assert_eq!(failed, if n > 1 { ranks([victim]) } else { Group::EMPTY });
        job.at_rest();
    }
}

#[test]
fn acknowledged_failures_are_not_reported_again() {
    let mut job = Job::new(4);
    let all = job.open();
    job.kill(1);
    let living = [0, 2, 3];
    let agree = |job: &mut Job| {
        let ids: Vec<_> = living.iter().map(|rank| job.agree(&all, *rank, 0)).collect();
        let Ok(Err(Decision { failed, .. })) = all_same(job.ends(&ids)) else { panic!("they agree") };
        failed
    };
    // As long as one member has not acknowledged the failure, it is reported.
    assert_eq!(job.engine(0).acknowledge([2, 3], &all), ranks([1]));
    assert_eq!(job.engine(2).acknowledge([2, 3], &all), ranks([1]));
    assert_eq!(agree(&mut job), ranks([1]));
    let any = Pattern { source: Source::ANY, ..Pattern::exact(2, 0, 5) };
    let engine = job.engine(3);
    assert!(matches!(engine.probe(&any), Err(Error::FailurePending { rank: WorldRank(1), .. })));
    assert_eq!(engine.acknowledge([2, 3], &all), ranks([1]));
    assert_eq!(agree(&mut job), Group::EMPTY);
    // Receives from any source, also those that wait already, do not report the failure either.
    let engine = job.engine(0);
    assert_eq!(engine.probe(&any), Ok(None));
    let waits = engine.irecv(Time::ZERO, any, Memory::zeroed(1), NEVER).unwrap();
    assert_eq!(engine.outcome(waits), Outcome::Pending);
    job.kill(2);
    let engine = job.engine(0);
    assert_eq!(engine.outcome(waits), Outcome::FailurePending);
    engine.acknowledge([2, 3], &all);
    assert_eq!(engine.outcome(waits), Outcome::Pending);
    engine.cancel(waits);
    engine.collect(waits, &mut ()).unwrap();
}

/// Shrinks the communicator while a random member fails after a random number of polls, and is reported to each other
/// member at a random time.
fn shrink_under_failures(seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let n = 2 + rng.below(6) as u32;
    let mut job = Job::new(n);
    let all = job.open();
    // One member has used further names, so that the members must agree on a later one.
    if rng.below(2) == 0 {
        let rank = rng.below(n.into()) as u32;
        assert!(job.engine(rank).open_contexts(8, ranks([rank])).unwrap());
    }
    let mut ids = Vec::new();
    let mut untold: Vec<(u32, u32)> = Vec::new();
    let mut kills = rng.below(u64::from(n)) as u32;
    let mut polls = 0;
    loop {
        let living = job.living();
        let rank = living[rng.below(living.len() as u64) as usize];
        match rng.below(10) {
            0 if kills > 0 && living.len() > 1 => {
                kills -= 1;
                job.0[rank as usize] = None;
                untold.retain(|(to, _)| *to != rank);
                untold.extend(job.living().into_iter().map(|to| (to, rank)));
            }
            1 | 2 if !untold.is_empty() => {
                let (to, victim) = untold.swap_remove(rng.below(untold.len() as u64) as usize);
                job.tell(to, victim);
            }
            3 | 4 if !ids.iter().any(|(of, _)| *of == rank) => ids.push(job.shrink(&all, rank)),
            _ => _ = job.engine(rank).poll(Time::ZERO, &mut ()).unwrap(),
        }
        polls += 1;
        let have_begun = job.living().iter().all(|rank| ids.iter().any(|(of, _)| of == rank));
        if polls > 200 && have_begun && untold.is_empty() {
            break;
        }
    }
    let Ok(Ok(agreed)) = all_same(job.ends(&ids)) else { panic!("they have a communicator") };
    let living = job.living();
    assert!(living.iter().all(|rank| agreed.members.contains(WorldRank(*rank))));
    // The members can use the new communicator, and shrink it to the living ones if it has failed members.
    for rank in &living {
        let engine = job.engine(*rank);
        let failed = engine.failed_members(agreed.context + 1, &agreed.members);
        assert_eq!(agreed.members.difference(&failed), ranks(living.iter().copied()), "seed {seed}");
        engine.close_contexts(Time::ZERO, 2);
    }
    job.settle();
    for rank in &living {
        assert_eq!(
            job.engine(*rank).inner.tagged().contexts.name(2),
            None,
            "seed {seed}: the old one is closed"
        );
    }
    job.at_rest();
}

#[test]
fn survivors_get_one_communicator_whenever_members_fail() {
    (0..1_000).for_each(shrink_under_failures);
}

#[test]
fn a_closed_communicator_serves_the_others_until_they_have_the_result() {
    let mut job = Job::new(3);
    let all = job.open();
    let ids: Vec<_> = (0..3).map(|rank| job.agree(&all, rank, 1)).collect();
    // Rank 0 is the root: it gets the result first.
    let mut has_it = false;
    while !has_it {
        for rank in 0..3 {
            job.engine(rank).poll(Time::ZERO, &mut ()).unwrap();
        }
        has_it = job.engine(0).survivors.decides(ids[0].1);
    }
    assert!(matches!(job.engine(0).agreement(ids[0].1), Some(Progress::Decided(_))));
    job.engine(0).close_contexts(Time::ZERO, 2);
    assert_eq!(job.engine(0).inner.tagged().contexts.name(2), Some(2), "others may need it");
    job.settle();
    assert_eq!(job.engine(0).inner.tagged().contexts.name(2), None);
    assert_eq!(all_same(job.ends(&ids[1..])), Ok(Err(Decision { flags: 1, failed: Group::EMPTY })));
    job.at_rest();
}

#[test]
fn of_two_members_that_gave_each_other_up_the_later_one_is_excluded() {
    let mut job = Job::new(4);
    let all = job.open();
    let of = |rank| first_incarnation(&SECRET, WorldRank(rank));
    // Rank 2 is a child of rank 0 in the tree.
    job.engine(0).peer_gave_up(WorldRank(2), of(2), of(0), "packets were lost".into()).unwrap();
    job.engine(2).peer_gave_up(WorldRank(0), of(0), of(2), "packets were lost".into()).unwrap();
    let ids: Vec<_> = (0..4).map(|rank| job.agree(&all, rank, 1)).collect();
    job.settle();
    assert!(!job.engine(0).survivors.decides(ids[0].1), "the launcher may report that one of them has ended");
    for rank in (0..4).cycle().take(100) {
        job.engine(rank).poll(Time::from_nanos(2_000_000_000), &mut ()).unwrap();
    }
    let mut ends = job.ends(&ids);
    let excluded = ends.remove(2);
    assert!(matches!(excluded, Err(Error::PeerFailed { rank: WorldRank(0), .. })), "{excluded:?}");
    assert_eq!(all_same(ends), Ok(Err(Decision { flags: 1, failed: ranks([2]) })));
}

/// A rank that gives up a process that has just ended does not know that it has ended.
#[test]
fn a_member_that_was_given_up_and_has_ended_excludes_no_other() {
    let mut job = Job::new(4);
    let all = job.open();
    let of = |rank| first_incarnation(&SECRET, WorldRank(rank));
    job.engine(3).peer_gave_up(WorldRank(1), of(1), of(3), "it cannot be reached".into()).unwrap();
    let ids: Vec<_> = [0, 2, 3].map(|rank| job.agree(&all, rank, 1)).into();
    job.settle();
    job.kill(1);
    for rank in [0, 2, 3].into_iter().cycle().take(100) {
        job.engine(rank).poll(Time::from_nanos(3_000_000), &mut ()).unwrap();
    }
    assert_eq!(all_same(job.ends(&ids)), Ok(Err(Decision { flags: 1, failed: ranks([1]) })));
}

#[test]
fn a_deadline_ends_the_call_and_not_the_agreement() {
    let mut job = Job::new(3);
    let all = job.open();
    let deadline = Time::from_nanos(1_000);
    let early = job.engine(1).begin_agree(Time::ZERO, 3, all.clone(), 2, deadline);
    job.engine(1).poll(deadline.after(10_000_000), &mut ()).unwrap();
    let Some(Progress::Ended(Err(Error::TimedOut { report, .. }))) = job.engine(1).agreement(early) else {
        panic!("its time is over")
    };
    assert_eq!((report.operation, report.peer), (Operation::Agreement, Some(WorldRank(0))));
    let ids = [job.agree(&all, 0, 3), job.agree(&all, 2, 6)];
    assert_eq!(all_same(job.ends(&ids)), Ok(Err(Decision { flags: 2, failed: Group::EMPTY })));
    job.at_rest();
}

#[test]
fn forged_messages_fail_their_sender_alone() {
    for words in [vec![], vec![1, 2, 3], vec![0; 5], vec![u64::MAX; 4], vec![0; 10_000]] {
        let mut job = Job::new(3);
        let all = job.open();
        let (_, id) = job.agree(&all, 0, 1);
        job.agree(&all, 2, 1);
        let forged = Memory::new(words);
        job.engine(1).isend(Time::ZERO, WorldRank(0), 3, SURVIVORS_TAG, forged, NEVER).unwrap();
        job.settle();
        assert!(matches!(job.engine(0).latest_failure(WorldRank(1)), Some(Cause::Protocol(_))));
        assert_eq!(job.engine(0).latest_failure(WorldRank(2)), None);
        // The launcher does not report the end of rank 1.
        for rank in [0, 2].into_iter().cycle().take(100) {
            job.engine(rank).poll(Time::from_nanos(2_000_000_000), &mut ()).unwrap();
        }
        let decided = job.engine(0).agreement(id);
        let Some(Progress::Decided(decision)) = decided else { panic!("{decided:?}") };
        assert_eq!(decision, Decision { flags: 1, failed: ranks([1]) });
    }
}

/// Rank 1 answers in an agreement on a communicator as a member does, but votes for a name that cannot be used.
#[test]
fn a_forged_name_of_contexts_ends_the_agreement_alone() {
    for name in [u64::MAX - 1, LAST + 1, LAST + 3] {
        let mut job = Job::new(2);
        let all = job.open();
        let (_, id) = job.shrink(&all, 0);
        job.settle();
        let vote_and_name = [11, 1, 0, 3, name, 0, 0];
        for words in [&vote_and_name[..], &[19, 2, 0]] {
            let memory = Memory::new(words.to_vec());
            job.engine(1).isend(Time::ZERO, WorldRank(0), 3, SURVIVORS_TAG, memory, NEVER).unwrap();
            job.settle();
        }
        let ended = job.engine(0).agreement(id);
        assert!(matches!(ended, Some(Progress::Ended(Err(Error::Exhausted { .. })))), "{name}: {ended:?}");
        assert_eq!(job.engine(0).free_name(Time::ZERO, 0), Some(4));
        job.engine(0).check_invariants();
    }
}

#[test]
fn a_revoked_communicator_ends_every_operation_at_every_member() {
    for n in [2, 3, 6, 9] {
        for revoker in 0..n {
            let mut job = Job::new(n);
            let all = job.open();
            let mut pending = Vec::new();
            for rank in 0..n {
                let engine = job.engine(rank);
                let any = Pattern { source: Source::ANY, ..Pattern::exact(2, 0, 5) };
                let other = WorldRank((rank + 1) % n);
                let one = Pattern::exact(2, other.0, 5);
                pending.extend([any, one].map(|pattern| {
                    (rank, engine.irecv(Time::ZERO, pattern, Memory::zeroed(8), NEVER).unwrap())
                }));
                let long = Memory::zeroed(1 << 20);
                let send = engine.isend(Time::ZERO, other, 2, 6, long, NEVER).unwrap();
                let short = Memory::zeroed(8);
                let sync =
                    engine.isend_with(Mode::Synchronous, Time::ZERO, other, 2, 7, short, NEVER).unwrap();
                pending.extend([(rank, send), (rank, sync)]);
            }
            let ranks = all.clone();
            let proposal = Proposal { choice: Choice::Group(ranks.clone()), ranks, control: 3, tag: None };
            let creation = job.engine(revoker).begin_agreement(Time::ZERO, proposal.clone(), NEVER);
            job.settle();
            job.engine(revoker).revoke(Time::ZERO, 2);
            job.settle();
            for (rank, id) in pending {
                let end = job.engine(rank).collect(id, &mut ()).expect("it has ended");
                assert_eq!(end.result, Err(Error::Revoked), "rank {rank}");
            }
            let ended = job.engine(revoker).agreement(creation);
            assert!(matches!(ended, Some(Progress::Ended(Err(Error::Revoked)))), "{ended:?}");
            for rank in 0..n {
                let engine = job.engine(rank);
                let other = WorldRank((rank + 1) % n);
                assert_eq!(engine.send(Time::ZERO, other, 2, 5, &[0], NEVER), Err(Error::Revoked));
                let any = Pattern { source: Source::ANY, ..Pattern::exact(2, 0, 5) };
                for pattern in [any, Pattern::exact(2, other.0, 5)] {
                    let received = engine.recv(Time::ZERO, pattern, &mut [0], 0, NEVER, &mut ());
                    assert_eq!(received, Err(Error::Revoked));
                    assert_eq!(engine.probe(&pattern), Err(Error::Revoked));
                }
                let end = engine.begin_agreement(Time::ZERO, proposal.clone(), NEVER);
                let end = engine.agreement(end);
                assert!(matches!(end, Some(Progress::Ended(Err(Error::Revoked)))), "{end:?}");
                // Other contexts are not revoked.
                assert!(engine.send(Time::ZERO, other, 1, 5, &[0], NEVER).is_ok());
            }
            let ids: Vec<_> = (0..n).map(|rank| job.shrink(&all, rank)).collect();
            let Ok(Ok(agreed)) = all_same(job.ends(&ids)) else { panic!("they have a communicator") };
            assert_eq!(agreed.members, all);
            assert!(job.engine(0).send(Time::ZERO, WorldRank(1), agreed.context, 5, &[0], NEVER).is_ok());
        }
    }
}

#[test]
fn the_contexts_of_the_job_can_be_revoked() {
    let mut job = Job::new(3);
    let all = job.open();
    job.engine(1).revoke(Time::ZERO, 1);
    job.settle();
    for rank in 0..3 {
        let engine = job.engine(rank);
        let other = WorldRank((rank + 1) % 3);
        assert_eq!(engine.send(Time::ZERO, other, 1, 5, &[0], NEVER), Err(Error::Revoked));
        let received = engine.recv(Time::ZERO, Pattern::exact(1, other.0, 5), &mut [0], 0, NEVER, &mut ());
        assert_eq!(received, Err(Error::Revoked));
        // The control context is revoked too.
        assert_eq!(engine.send(Time::ZERO, other, 0, COLLECTIVE_TAG, &[0], NEVER), Err(Error::Revoked));
        assert!(engine.send(Time::ZERO, other, 2, 5, &[0], NEVER).is_ok());
        engine.check_invariants();
    }
    let shrink =
        |job: &mut Job, rank| (rank, job.engine(rank).begin_shrink(Time::ZERO, 0, all.clone(), NEVER));
    let ids: Vec<_> = (0..3).map(|rank| shrink(&mut job, rank)).collect();
    let Ok(Ok(agreed)) = all_same(job.ends(&ids)) else { panic!("they have a communicator") };
    assert_eq!(agreed.members, all);
}

/// The revoker and any other members fail right after the revocation, at any number of polls. The other members learn
/// of it if one of them did.
#[test]
fn a_revocation_that_one_survivor_knows_gets_to_all() {
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let n = 3 + rng.below(8) as u32;
        let mut job = Job::new(n);
        job.open();
        job.engine(0).revoke(Time::ZERO, 2);
        for _ in 0..rng.below(30) {
            let living = job.living();
            job.engine(living[rng.below(living.len() as u64) as usize]).poll(Time::ZERO, &mut ()).unwrap();
        }
        job.kill(0);
        for _ in 0..rng.below(u64::from(n) - 2) {
            let living = job.living();
            job.kill(living[rng.below(living.len() as u64) as usize]);
        }
        job.settle();
        let living = job.living();
        let revoked =
            living.iter().filter(|rank| job.0[**rank as usize].as_ref().unwrap().is_revoked(2)).count();
        assert!(revoked == 0 || revoked == living.len(), "seed {seed}: {revoked} of {living:?}");
    }
}

#[test]
fn a_revocation_that_arrives_before_the_contexts_are_open_takes_effect_then() {
    let mut job = Job::new(3);
    let all = ranks([0, 1, 2]);
    for rank in [0, 1] {
        assert!(job.engine(rank).open_contexts(2, all.clone()).unwrap());
    }
    job.engine(0).revoke(Time::ZERO, 2);
    job.settle();
    let engine = job.engine(2);
    assert!(engine.open_contexts(2, all).unwrap());
    assert!(engine.is_revoked(2));
    assert_eq!(engine.send(Time::ZERO, WorldRank(0), 2, 5, &[0], NEVER), Err(Error::Revoked));
    engine.check_invariants();
}

/// A rank that revokes contexts of which it is no member, before they are open, changes nothing there. However many
/// names it revokes, the revocations of other ranks count.
#[test]
fn early_revocations_by_other_ranks_than_members_have_no_effect() {
    let void = |name: u64| Void { name: name.into() };
    let send = |job: &mut Job, from: u32, name| {
        let (out, _) = job.engine(from).inner.parts();
        let to = out.link.find(WorldRank(2)).unwrap();
        out.link.answer(to, Protocol::P2p, kind::VOID, void(name).as_bytes());
        job.settle();
    };
    let mut job = Job::new(3);
    for from in [0, 1] {
        job.engine(from).isend(Time::ZERO, WorldRank(2), 0, 0, Memory::zeroed(0), NEVER).unwrap();
    }
    job.settle();
    send(&mut job, 0, 4);
    send(&mut job, 1, 6);
    send(&mut job, 1, 8);
    for name in 0..1000 {
        send(&mut job, 0, 1000 + 2 * name);
    }
    let engine = job.engine(2);
    for (name, members, is_revoked) in [(4, [1, 2], false), (6, [0, 2], false), (8, [1, 2], true)] {
        assert!(engine.open_contexts(name, ranks(members)).unwrap());
        assert_eq!(engine.is_revoked(name as u32), is_revoked, "{name}");
    }
    assert_eq!(engine.latest_failure(WorldRank(0)), None);
    engine.check_invariants();
}
