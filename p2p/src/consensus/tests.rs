use std::collections::{BTreeMap, VecDeque};

use samite_fabric::SplitMix64;

use super::*;

/// Members whose messages a test delivers.
struct Job {
    members: Vec<Consensus>,
    /// For each member, the failed members of which it does not know yet. `None` if the member itself has failed.
    unknown: Vec<Option<VecDeque<WorldRank>>>,
    /// The decision of each member, also of members that failed later.
    decisions: BTreeMap<WorldRank, Value>,
}

/// A message under way: the sender, the receiver, and the words.
type Sent = (WorldRank, WorldRank, Vec<u64>);

impl Job {
    /// Returns the members of a group of `n` ranks, in which rank `r` votes against flag `r` of the first 64.
    fn new(n: u32) -> Self {
        let group = Group::range(WorldRank(0), n);
        let of = |rank: u32| {
            let flags = if rank < 64 { !(1 << rank) } else { !0 };
            Consensus::new(group.clone(), WorldRank(rank), (flags, rank.into()), Group::EMPTY)
        };
        let unknown = vec![Some(VecDeque::new()); n as usize];
        Self { members: (0..n).map(of).collect(), unknown, decisions: BTreeMap::new() }
    }

    fn begin(&mut self, rank: WorldRank) -> Vec<Sent> {
        self.learn(rank, &Group::EMPTY)
    }

    fn learn(&mut self, rank: WorldRank, failed: &Group) -> Vec<Sent> {
        self.members[rank.index()].know_failed(failed);
        self.take(rank)
    }

    /// Kills a member. Each other member has to learn of it.
    fn kill(&mut self, victim: WorldRank) {
        self.unknown[victim.index()] = None;
        self.unknown.iter_mut().flatten().for_each(|unknown| unknown.push_back(victim));
    }

    fn is_alive(&self, rank: WorldRank) -> bool {
        self.unknown[rank.index()].is_some()
    }

    /// Delivers a message to a living member. Returns the messages that the member sends.
    fn deliver(&mut self, (from, to, words): Sent) -> Vec<Sent> {
        if !self.is_alive(to) {
            return Vec::new();
        }
        let size = self.members.len() as u32;
        assert!(words.len() <= ConsensusMessage::words_max(size));
        let message = ConsensusMessage::from_words(&words, size).expect("it was written");
        assert!(self.members[to.index()].receive(from, message), "{from:?} sent it to {to:?}");
        self.take(to)
    }

    fn take(&mut self, rank: WorldRank) -> Vec<Sent> {
        let member = &mut self.members[rank.index()];
        if let Some(value) = member.decision() {
            let known = self.decisions.entry(rank).or_insert_with(|| value.clone());
            assert_eq!(known, value, "a decision stays");
        }
        let sent = member.take_messages().into_iter();
        sent.map(|(to, message)| (rank, to, message.to_words())).collect()
    }

    /// Checks that all decisions are equal, that all living members have one, and that none needs another member.
    /// `begun` are the members that began.
    fn check(&self, begun: &[bool]) {
        let mut values = self.decisions.values();
        let first = values.next().expect("a member has decided");
        assert!(values.all(|value| value == first), "{:?}", self.decisions);
        for (rank, member) in self.members.iter().enumerate() {
            let rank = WorldRank(rank as u32);
            if self.is_alive(rank) {
                assert!(self.decisions.contains_key(&rank), "{rank:?} has no decision: {member:?}");
                assert!(rank.0 >= 64 || first.flags >> rank.0 & 1 == 0, "the vote of {rank:?} counts");
                assert!(!first.failed.contains(rank));
            }
            // The vote of a member that never began does not count, and it is known to have failed.
            if !begun[rank.index()] {
                assert!(rank.0 >= 64 || first.flags >> rank.0 & 1 == 1);
                assert!(first.failed.contains(rank));
            }
        }
    }
}

/// Runs `n` members that begin, receive, fail and learn of failures in an order that follows from the seed.
fn run_in_any_order(seed: u64, n: u32) {
    let mut rng = SplitMix64::new(seed);
    let mut job = Job::new(n);
    let mut under_way: Vec<Sent> = Vec::new();
    let mut begun = vec![false; n as usize];
    let mut kills = if n == 1 { 0 } else { rng.below(u64::from(n)) };
    loop {
        let rank = WorldRank(rng.below(n.into()) as u32);
        let waiting = (0..n).filter(|rank| job.is_alive(WorldRank(*rank)) && !begun[*rank as usize]).count();
        let unknown = job.unknown.iter().flatten().any(|unknown| !unknown.is_empty());
        if under_way.is_empty() && waiting == 0 && !unknown {
            break;
        }
        match rng.below(8) {
            0 if job.is_alive(rank) && !begun[rank.index()] => {
                begun[rank.index()] = true;
                under_way.extend(job.begin(rank));
            }
            1 if kills > 0 && job.is_alive(rank) && rng.below(12) == 0 => {
                kills -= 1;
                // Of the victim's messages that are under way, any may be lost.
                under_way.retain(|(from, ..)| *from != rank || rng.below(2) == 0);
                job.kill(rank);
            }
            2 | 3 if begun[rank.index()] => {
                if let Some(failed) = job.unknown[rank.index()].as_mut().and_then(VecDeque::pop_front) {
                    under_way.extend(job.learn(rank, &Group::range(failed, 1)));
                }
            }
            _ if !under_way.is_empty() => {
                let at = rng.below(under_way.len() as u64) as usize;
                let to = under_way[at].1;
                // A message waits until its receiver begins.
                if begun[to.index()] || !job.is_alive(to) {
                    let sent = under_way.swap_remove(at);
                    let decided = job.decisions.len();
                    under_way.extend(job.deliver(sent));
                    // A member that fails right after its decision may have informed any of the others.
                    if job.decisions.len() > decided && kills > 0 && rng.below(2) == 0 {
                        kills -= 1;
                        under_way.retain(|(from, ..)| *from != to || rng.below(4) == 0);
                        job.kill(to);
                    }
                }
            }
            _ => {}
        }
    }
    if job.unknown.iter().flatten().count() > 0 {
        job.check(&begun);
    }
}

#[test]
fn all_survivors_decide_the_same_in_any_order() {
    for seed in 0..3_000 {
        run_in_any_order(seed, 1 + (seed % 13) as u32);
    }
}

/// Runs `n` members whose messages take one unit of time each. `kills` are the times and ranks of failures, of which
/// all members learn one unit later. Returns the time at which the last living member decides.
fn run_in_time(n: u32, kills: &[(u64, u32)]) -> u64 {
    let mut job = Job::new(n);
    let mut under_way: Vec<Sent> = (0..n).flat_map(|rank| job.begin(WorldRank(rank))).collect();
    let (mut now, mut last) = (0, 0);
    let mut told: Vec<WorldRank> = Vec::new();
    while !under_way.is_empty() || !told.is_empty() || kills.iter().any(|(at, _)| *at >= now) {
        now += 1;
        let decided = job.decisions.len();
        let mut next = Vec::new();
        for sent in under_way {
            next.extend(job.deliver(sent));
        }
        if let Ok(failed) = Group::new(std::mem::take(&mut told)) {
            for rank in (0..n).map(WorldRank).filter(|_| !failed.is_empty()) {
                if job.is_alive(rank) {
                    next.extend(job.learn(rank, &failed));
                }
            }
        }
        for (_, victim) in kills.iter().filter(|(at, _)| *at == now) {
            job.unknown[*victim as usize] = None;
            told.push(WorldRank(*victim));
        }
        if job.decisions.len() > decided {
            last = now;
        }
        under_way = next;
    }
    job.check(&vec![true; n as usize]);
    let is_over = |member: &Consensus| member.is_settled() || member.is_disrupted();
    assert!(job.members.iter().all(|member| is_over(member) || !job.is_alive(member.mine)));
    last
}

/// With 2^16 members, two rounds up and down the tree and one down take 80 steps. Each failure adds at most the two
/// steps in which it becomes known, and a round up and down.
#[test]
fn each_failure_costs_one_round_in_a_group_of_65536() {
    let (n, levels) = (1 << 16, 16);
    assert_eq!(run_in_time(n, &[]), 5 * levels);
    // The root, inner members and leaves; before and after the vote, and during the decision.
    for kills in [&[(31, 0), (33, 1), (65, 32_768)][..], &[(5, 40_000), (5, 40_001), (64, 0)]] {
        let taken = run_in_time(n, kills);
        let bound = 5 * levels + kills.len() as u64 * (2 * levels + 2);
        assert!(taken <= bound, "{kills:?} took {taken} steps, and the bound is {bound}");
    }
}

/// A member that has given up the root may pass that on, although the root lives.
#[test]
fn a_root_that_another_member_takes_for_failed_goes_on() {
    let group = Group::range(WorldRank(0), 2);
    let (root, other) = (WorldRank(0), WorldRank(1));
    let only_root = Group::range(root, 1);
    let mut member = Consensus::new(group, root, (1, 5), Group::EMPTY);
    member.know_failed(&Group::EMPTY);
    let mut answer = |stage, number, value| {
        let round = RoundId { root: 0, number };
        assert_eq!(member.take_messages().len(), 1, "round {number}");
        let (failed, is_complete) = (only_root.clone(), number > 1);
        let answer =
            ConsensusMessage { round, stage, is_answer: true, is_complete, is_bound: false, failed, value };
        assert!(member.receive(other, answer));
    };
    let vote = Value { flags: 3, number: 9, failed: only_root.clone(), acknowledged: Group::EMPTY };
    answer(Stage::Voting, 1, Some(vote.clone()));
    answer(Stage::Voting, 2, Some(vote.clone()));
    answer(Stage::Agreed, 3, None);
    answer(Stage::Committed, 4, None);
    answer(Stage::Settled, 5, None);
    assert!(member.is_settled());
    assert_eq!(member.decision(), Some(&Value { flags: 1, ..vote }));
}

#[test]
fn a_root_that_counts_as_failed_begins_no_further_round() {
    let (root, other) = (WorldRank(0), WorldRank(1));
    let mut member = Consensus::new(Group::range(root, 2), root, (1, 5), Group::EMPTY);
    member.know_failed(&Group::EMPTY);
    assert_eq!(member.take_messages().len(), 1);
    member.know_failed(&Group::range(root, 1));
    let round = RoundId { root: 0, number: 1 };
    let value = Value { flags: 3, number: 9, failed: Group::EMPTY, acknowledged: Group::EMPTY };
    let answer = ConsensusMessage {
        round,
        stage: Stage::Voting,
        is_answer: true,
        is_complete: true,
        is_bound: false,
        failed: Group::EMPTY,
        value: Some(value),
    };
    assert!(member.receive(other, answer));
    assert!(member.take_messages().is_empty());
}

#[test]
fn garbage_is_refused() {
    let mut rng = SplitMix64::new(1);
    let group = Group::range(WorldRank(0), 4);
    for _ in 0..50_000 {
        let len = rng.below(12) as usize;
        let words: Vec<u64> = (0..len).map(|_| rng.next_u64() >> rng.below(64)).collect();
        let Some(message) = ConsensusMessage::from_words(&words, 4) else { continue };
        assert_eq!(ConsensusMessage::from_words(&message.to_words(), 4).as_ref(), Some(&message));
        let mut member = Consensus::new(group.clone(), WorldRank(1), (0, 0), Group::EMPTY);
        member.know_failed(&Group::EMPTY);
        let _ = member.receive(WorldRank(rng.below(4) as u32), message);
    }
}
