use super::*;

const SECRET: Secret = Secret([5; 16]);
const KILLED: Ending = Ending::Killed { signal: 9, core: false };

fn publish(registry: &mut Registry, rank: u32) {
    registry.handle(rank, FromRank::Publish { address: vec![rank as u8] }).unwrap();
}

fn request(registry: &mut Registry, rank: u32, wanted: u32) {
    registry.handle(rank, FromRank::Request { rank: wanted }).unwrap();
}

fn sent(registry: &mut Registry) -> Vec<Post> {
    std::mem::take(&mut registry.outbox)
}

fn reported(registry: &mut Registry) -> Vec<Post> {
    registry.report();
    sent(registry)
}

fn whereabouts(rank: u32) -> Whereabouts {
    Whereabouts { rank, incarnation: SECRET.first_incarnation(rank), address: vec![rank as u8] }
}

fn address(to: u32, rank: u32) -> Post {
    Post::Rank(to, ToRank::Address(whereabouts(rank)))
}

fn exit(rank: u32, ending: Ending) -> RankExit {
    RankExit { rank, incarnation: SECRET.first_incarnation(rank), ending, returns: false }
}

#[test]
fn a_question_is_answered_once_whether_it_comes_early_or_late() {
    let mut registry = Registry::new(3, 0..3, SECRET);
    for _ in 0..2 {
        request(&mut registry, 0, 2);
    }
    assert_eq!(sent(&mut registry), []);
    publish(&mut registry, 2);
    assert_eq!(sent(&mut registry), [address(0, 2)]);
    request(&mut registry, 1, 2);
    assert_eq!(sent(&mut registry), [address(1, 2)]);
}

/// Counts the messages of a job like `samite run -n 64`, whose program sends from all ranks to rank 0.
#[test]
fn a_job_costs_each_rank_the_same_few_messages() {
    let mut registry = Registry::new(64, 0..64, SECRET);
    let mut from_ranks = 0;
    let mut say = |registry: &mut Registry, rank, message| {
        from_ranks += 1;
        registry.handle(rank, message).unwrap();
    };
    for rank in 0..64 {
        say(&mut registry, rank, FromRank::Publish { address: vec![1] });
    }
    for rank in 1..64 {
        say(&mut registry, rank, FromRank::Request { rank: 0 });
    }
    // Half of the ranks leave before the first report, and the other half before the second report.
    for half in [32..64, 0..32] {
        half.for_each(|rank| say(&mut registry, rank, FromRank::Leave));
        registry.report();
    }
    let posts = sent(&mut registry);
    let to_ranks = posts.iter().filter(|post| matches!(post, Post::Rank(..))).count();
    assert_eq!((from_ranks, to_ranks, posts.len() - to_ranks), (3 * 64 - 1, 63 + 32, 2));
}

#[test]
fn a_rank_of_another_agent_is_asked_for_once_and_remembered() {
    let mut registry = Registry::new(4, 0..2, SECRET);
    request(&mut registry, 0, 3);
    request(&mut registry, 1, 3);
    assert_eq!(sent(&mut registry), [Post::Coordinator(FromAgent::Question { rank: 3 })]);
    registry.store_remote_address(whereabouts(3));
    assert_eq!(sent(&mut registry), [address(0, 3), address(1, 3)]);
    request(&mut registry, 0, 3);
    assert_eq!(sent(&mut registry), [address(0, 3)]);
}

#[test]
fn another_agent_is_answered_as_a_rank_is() {
    let mut registry = Registry::new(4, 0..2, SECRET);
    registry.handle_question(1, 0);
    assert_eq!(sent(&mut registry), []);
    publish(&mut registry, 0);
    let answer = FromAgent::Answer { host: 1, whereabouts: whereabouts(0) };
    assert_eq!(sent(&mut registry), [Post::Coordinator(answer)]);
}

#[test]
fn exits_are_reported_together_to_the_remaining_ranks_and_the_coordinator() {
    let mut registry = Registry::new(6, 0..4, SECRET);
    registry.handle(3, FromRank::Leave).unwrap();
    assert!(registry.unreported().is_some_and(|Urgent(urgent)| !urgent));
    registry.end(1, KILLED, false);
    assert!(registry.unreported().is_some_and(|Urgent(urgent)| urgent));
    registry.note_remote_exits(vec![exit(5, Ending::Panicked)]);
    let ours = vec![exit(3, Ending::Left), exit(1, KILLED)];
    let all = [&ours[..], &[exit(5, Ending::Panicked)]].concat();
    let to = |rank| Post::Rank(rank, ToRank::Ended(all.clone()));
    assert_eq!(reported(&mut registry), [to(0), to(2), Post::Coordinator(FromAgent::Ended(ours))]);
    assert!(registry.unreported().is_none());

    // Ranks 1 and 5 have failed. Other ends of the same incarnations do not count any more.
    registry.end(1, Ending::Left, false);
    registry.note_remote_exits(vec![exit(5, KILLED)]);
    assert!(registry.unreported().is_none());
}

/// A process may fail after its rank was reported as left, unless the rank has announced that it leaves.
#[test]
fn a_failure_counts_after_a_leaving_that_was_not_announced() {
    let mut registry = Registry::new(4, 0..3, SECRET);
    registry.end(0, Ending::Left, false);
    registry.handle(1, FromRank::Leave).unwrap();
    reported(&mut registry);
    let failed = RankExit { returns: true, ..exit(0, KILLED) };
    registry.end(0, KILLED, true);
    registry.end(1, KILLED, false);
    assert!(registry.unreported().is_some_and(|Urgent(urgent)| urgent));
    let news = |exit: &RankExit| {
        [
            Post::Rank(2, ToRank::Ended(vec![exit.clone()])),
            Post::Coordinator(FromAgent::Ended(vec![exit.clone()])),
        ]
    };
    assert_eq!(reported(&mut registry), news(&failed));
    assert!(registry.has_left(1) && !registry.has_left(0));

    // The restart of rank 0 is cancelled twice. The registry reports that once.
    registry.cancel_restart(0);
    registry.cancel_restart(0);
    assert_eq!(reported(&mut registry), news(&exit(0, KILLED)));
    // A cancelled restart of a rank of another agent is reported once too.
    for returns in [true, false] {
        let elsewhere = RankExit { returns, ..exit(3, KILLED) };
        registry.note_remote_exits(vec![elsewhere.clone()]);
        registry.note_remote_exits(vec![elsewhere.clone()]);
        assert_eq!(reported(&mut registry), news(&elsewhere)[..1]);
    }
}

#[test]
fn a_rank_that_has_ended_is_not_reachable_any_more() {
    let mut registry = Registry::new(3, 0..2, SECRET);
    publish(&mut registry, 1);
    registry.end(1, Ending::Left, false);
    registry.note_remote_exits(vec![exit(2, KILLED)]);
    reported(&mut registry);
    registry.store_remote_address(whereabouts(2));
    for wanted in [1, 2] {
        request(&mut registry, 0, wanted);
    }
    assert_eq!(sent(&mut registry), []);
}

#[test]
fn a_restarted_rank_is_informed_of_ended_ranks_and_is_announced() {
    let mut registry = Registry::new(5, 0..4, SECRET);
    publish(&mut registry, 2);
    registry.end(1, Ending::Left, false);
    reported(&mut registry);
    registry.end(2, KILLED, false);
    reported(&mut registry);
    registry.restart(2);
    let ended = ToRank::Ended(vec![exit(1, Ending::Left)]);
    assert_eq!(sent(&mut registry), [Post::Rank(2, ended)]);
    // Reports about the former incarnation do not affect the new incarnation.
    registry.note_remote_exits(vec![exit(2, KILLED)]);
    assert!(registry.unreported().is_none());
    request(&mut registry, 0, 2);
    assert_eq!(sent(&mut registry), []);

    publish(&mut registry, 2);
    let second = Whereabouts { incarnation: SECRET.first_incarnation(2) + 1, ..whereabouts(2) };
    let to = |rank| Post::Rank(rank, ToRank::Address(second.clone()));
    let coordinator = Post::Coordinator(FromAgent::Returned(second.clone()));
    assert_eq!(sent(&mut registry), [to(0), to(2), to(3), coordinator, to(0)]);
}

#[test]
fn a_rank_of_another_agent_that_returns_is_announced() {
    let mut registry = Registry::new(3, 0..2, SECRET);
    registry.note_remote_exits(vec![exit(2, KILLED)]);
    reported(&mut registry);
    let second = Whereabouts { incarnation: SECRET.first_incarnation(2) + 1, ..whereabouts(2) };
    registry.note_remote_restart(second.clone());
    let to = |rank| Post::Rank(rank, ToRank::Address(second.clone()));
    assert_eq!(sent(&mut registry), [to(0), to(1)]);
    request(&mut registry, 0, 2);
    assert_eq!(sent(&mut registry), [to(0)]);
    registry.end(1, KILLED, false);
    registry.note_remote_exits(vec![exit(2, KILLED)]);
    assert!(!registry.has_ended(2));
}

#[test]
fn nonsense_is_refused() {
    let mut registry = Registry::new(2, 0..2, SECRET);
    publish(&mut registry, 0);
    assert!(registry.handle(0, FromRank::Publish { address: vec![] }).is_err());
    assert!(registry.handle(0, FromRank::Request { rank: 2 }).is_err());
    registry.handle_question(1, 2);
    registry.store_remote_address(whereabouts(7));
    registry.note_remote_exits(vec![exit(7, KILLED)]);
    assert_eq!(sent(&mut registry), []);
}

#[test]
fn a_stop_is_reported_to_all_other_present_ranks() {
    let mut registry = Registry::new(4, 0..3, SECRET);
    registry.end(2, Ending::Left, false);
    reported(&mut registry);
    registry.stop(0, true);
    let stop = Stop { rank: 0, incarnation: SECRET.first_incarnation(0), is_stopped: true };
    assert_eq!(
        sent(&mut registry),
        [Post::Rank(1, ToRank::Stopped(stop)), Post::Coordinator(FromAgent::Stopped(stop))]
    );
    let elsewhere = Stop { rank: 3, is_stopped: false, ..stop };
    registry.report_stop(elsewhere);
    assert_eq!(sent(&mut registry), [0, 1].map(|to| Post::Rank(to, ToRank::Stopped(elsewhere))));
}

fn verdict(by: u32, rank: u32) -> GivenUp {
    let [by_incarnation, incarnation] = [by, rank].map(|rank| SECRET.first_incarnation(rank));
    GivenUp { by, by_incarnation, rank, incarnation, why: "packets were lost".to_owned() }
}

/// Returns the two messages about a verdict on a rank of this agent: one to the rank, one to the coordinator.
fn posts_of(verdict: GivenUp) -> [Post; 2] {
    let to_coordinator = Post::Coordinator(FromAgent::GaveUp(verdict.clone()));
    [Post::Rank(verdict.rank, ToRank::GaveUp(verdict)), to_coordinator]
}

/// Lets rank `by` report a verdict on an incarnation of `rank`. `later` is the number of restarts of `rank` before that
/// incarnation.
fn give_up(registry: &mut Registry, by: u32, rank: u32, later: u32) -> Result<(), String> {
    let incarnation = SECRET.first_incarnation(rank).wrapping_add(later);
    registry.handle(by, FromRank::GaveUp { rank, incarnation, why: "packets were lost".to_owned() })
}

#[test]
fn only_a_rank_that_is_given_up_is_informed() {
    let mut registry = Registry::new(4, 0..3, SECRET);
    give_up(&mut registry, 0, 2, 0).unwrap();
    assert_eq!(sent(&mut registry), posts_of(verdict(0, 2)));
    // Two ranks may have given up each other.
    give_up(&mut registry, 2, 0, 0).unwrap();
    assert_eq!(sent(&mut registry), posts_of(verdict(2, 0)));
    give_up(&mut registry, 0, 3, 0).unwrap();
    assert_eq!(sent(&mut registry), [Post::Coordinator(FromAgent::GaveUp(verdict(0, 3)))]);
    registry.inform_given_up(verdict(3, 1));
    assert_eq!(sent(&mut registry), [Post::Rank(1, ToRank::GaveUp(verdict(3, 1)))]);
    assert!(registry.unreported().is_none() && (0..4).all(|rank| !registry.has_ended(rank)));
}

#[test]
fn only_the_incarnation_that_is_given_up_is_informed() {
    let mut registry = Registry::new(4, 0..3, SECRET);
    registry.end(1, KILLED, true);
    reported(&mut registry);
    give_up(&mut registry, 0, 1, 0).unwrap();
    registry.restart(1);
    registry.inform_given_up(verdict(3, 1));
    assert_eq!(sent(&mut registry), []);
    give_up(&mut registry, 0, 1, 1).unwrap();
    let second =
        |given_up: GivenUp| GivenUp { incarnation: given_up.incarnation.wrapping_add(1), ..given_up };
    assert_eq!(sent(&mut registry), posts_of(second(verdict(0, 1))));
    // The next incarnation of rank 0 gives up the same incarnation of rank 1.
    registry.end(0, KILLED, true);
    registry.restart(0);
    reported(&mut registry);
    give_up(&mut registry, 0, 1, 1).unwrap();
    let by_second = GivenUp { by_incarnation: SECRET.first_incarnation(0).wrapping_add(1), ..verdict(0, 1) };
    assert_eq!(sent(&mut registry), posts_of(second(by_second)));
}

#[test]
fn a_rank_cannot_flood_others_with_verdicts() {
    let mut registry = Registry::new(4, 0..3, SECRET);
    // A rank cannot give up a rank that does not exist, or itself.
    assert!(give_up(&mut registry, 0, 0, 0).is_err());
    let nowhere = FromRank::GaveUp { rank: 4, incarnation: 0, why: String::new() };
    assert!(registry.handle(0, nowhere).is_err());
    let long = |bytes| FromRank::GaveUp {
        rank: 2,
        incarnation: SECRET.first_incarnation(2),
        why: "y".repeat(bytes),
    };
    assert!(registry.handle(0, long(WHY_BYTES_MAX + 1)).is_err());
    assert_eq!(sent(&mut registry), []);
    registry.handle(0, long(WHY_BYTES_MAX)).unwrap();
    sent(&mut registry);
    // Rank 0 has given up this incarnation before.
    assert!(registry.handle(0, long(1)).is_err());
    // Verdicts on incarnations that cannot be known yet, or that are over, are ignored.
    for later in [INCARNATIONS_AHEAD + 1, u32::MAX / 2, u32::MAX] {
        give_up(&mut registry, 0, 3, later).unwrap();
    }
    assert_eq!(sent(&mut registry), []);
    let accepted = (0..1000).filter(|later| give_up(&mut registry, 0, 3, later % 100).is_ok()).count();
    assert!(accepted < 1000 && sent(&mut registry).len() <= INCARNATIONS_AHEAD as usize + 1);
    // Wrong messages of an agent are ignored.
    for (by, rank) in [(4, 1), (1, 1), (0, 3)] {
        registry.inform_given_up(GivenUp { by, by_incarnation: 0, ..verdict(0, rank) });
    }
    assert_eq!(sent(&mut registry), []);
}
