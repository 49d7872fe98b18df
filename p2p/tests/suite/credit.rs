//! Budgets: data that is sent ahead of its receive, and messages for which there is no credit or no room.

use samite_fabric::layout::Signature;
use samite_p2p::{Config, Error, Mode, Pattern, WorldRank};

use crate::job::{Job, Medium, NEVER, Op, Owned, bytes, exact};

fn budget(bytes: usize) -> Config {
    let mut config = Config::default();
    // With the default window, the first peer, such as the rank itself, could get the whole budget as its credit.
    (config.unexpected_max, config.window_min) = (bytes, bytes / 16);
    config
}

/// Sends `count` messages of 400 bytes with tags from 0 on, and polls until all messages that the budget permits have
/// arrived.
fn flood<M: Medium>(job: &mut Job<M>, from: usize, count: u64) -> Vec<Op> {
    let sends = (0..count).map(|tag| job.send(from, 1, tag, &bytes(tag as usize, 400))).collect();
    job.settle();
    sends
}

fn drain<M: Medium>(job: &mut Job<M>, from: u32, count: u64, sends: Vec<Op>) {
    for tag in 0..count {
        let recv = job.recv(1, exact(from, tag), 400);
        assert_eq!(job.wait(recv).message(), bytes(tag as usize, 400));
    }
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
}

#[track_caller]
fn assert_within<M: Medium>(job: &Job<M>, budget: u64) {
    for usage in job.usages() {
        assert!(usage.unexpected + usage.credit_granted <= budget, "{usage:?}");
    }
}

pub(crate) fn without_credit_envelopes_wait<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget(10_000));
    let sends = flood(&mut job, 0, 100);
    assert_within(&job, 10_000);
    let usage = job.usages()[1];
    assert!(usage.unexpected > 0 && usage.envelopes > 0, "{usage:?}");
    assert!(job.engine(0).counters().rendezvous > 0);
    drain(&mut job, 0, 100, sends);
    job.assert_at_rest();
}

pub(crate) fn credit_recovers<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget(10_000));
    for _ in 0..3 {
        let sends = flood(&mut job, 0, 50);
        drain(&mut job, 0, 50, sends);
        job.settle();
    }
    let before = job.engine(0).counters();
    let sends = flood(&mut job, 0, 2);
    let usage = job.usages()[1];
    assert_eq!(job.engine(0).counters().eager, before.eager + 2, "there is credit again: {usage:?}");
    drain(&mut job, 0, 2, sends);
    job.assert_at_rest();
}

pub(crate) fn the_budget_holds_for_many_senders<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 5, &budget(8_000));
    let sends: Vec<_> = [0, 2, 3, 4].map(|from| (from, flood(&mut job, from, 30))).into();
    assert_within(&job, 8_000);
    for (from, sends) in sends {
        drain(&mut job, from as u32, 30, sends);
        assert_within(&job, 8_000);
    }
    job.assert_at_rest();
}

pub(crate) fn no_budget_at_all<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget(0));
    let sends = flood(&mut job, 0, 20);
    assert_eq!(job.usages()[1].unexpected, 0);
    assert_eq!(job.engine(0).counters().eager, 0);
    drain(&mut job, 0, 20, sends);
    job.assert_at_rest();
}

pub(crate) fn envelopes_are_bounded<M: Medium>(medium: M) {
    let mut config = budget(0);
    // Without an outbox, the sends wait for the receiver's answer, so the receiver can refuse their envelopes.
    (config.envelopes_max, config.outbox_max) = (1000, 0);
    let mut job = Job::new(medium, 2, &config);
    let sends = flood(&mut job, 0, 30);
    let usage = job.usages()[1];
    assert!(usage.envelopes > 500 && usage.envelopes <= 1000, "{usage:?}");
    let refused = job.engine(1).counters().refused;
    assert!(refused >= 20, "{refused}");
    let kept = 30 - refused;
    for tag in 0..kept {
        let recv = job.recv(1, exact(0, tag), 400);
        assert_eq!(job.wait(recv).message(), bytes(tag as usize, 400), "the first are kept");
    }
    for (tag, send) in sends.into_iter().enumerate() {
        let done = job.wait(send);
        if (tag as u64) < kept {
            assert!(done.result.is_ok());
        } else {
            assert_eq!(done.bytes, Some(bytes(tag, 400)), "the memory comes back");
            assert!(matches!(done.result, Err(Error::Exhausted { .. })));
        }
    }
    job.assert_at_rest();
}

pub(crate) fn a_refused_send_can_be_repeated<M: Medium>(medium: M) {
    let mut config = budget(0);
    // Without an outbox, the send waits for the receiver's answer.
    (config.envelopes_max, config.outbox_max) = (0, 0);
    let mut job = Job::new(medium, 2, &config);
    let send = job.send(0, 1, 5, b"x");
    assert!(matches!(job.wait(send).error(), Error::Exhausted { .. }));
    let recv = job.recv(1, exact(0, 5), 1);
    let send = job.send(0, 1, 5, b"x");
    assert_eq!(job.wait(recv).message(), b"x", "a posted receive needs no budget");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

/// Starts so many sends that the receiver cannot keep all envelopes, and that the ports have no room for all answers.
/// Only the receiver is polled meanwhile.
fn announce_many<M: Medium>(job: &mut Job<M>) -> Vec<Op> {
    (0..6_000)
        .map(|tag| {
            let send = job.send(0, 1, tag, b"x");
            let now = job.now();
            job.engine(1).poll(now, &mut ()).expect("the port works");
            send
        })
        .collect()
}

/// Polls both ranks until the last of many operations of rank 0 has ended. [`Job::poll`] would be slow here, because it
/// checks all operations at each poll.
fn end_last<M: Medium>(job: &mut Job<M>, ops: &[Op]) {
    let last = ops.last().expect("there are operations");
    let mut poll_both = |job: &mut Job<M>| {
        let now = job.now();
        job.engine(1).poll(now, &mut ()).expect("the port works");
        job.is_over(last)
    };
    assert!((0..100).any(|_| job.poll_alone(0, &mut poll_both)), "it never ends: {:?}", job.usages());
}

fn budget_for_few_envelopes() -> Config {
    let mut config = budget(0);
    // Without an outbox, the sends wait for the receiver's answer, so the receiver can refuse their envelopes.
    (config.envelopes_max, config.outbox_max) = (1000, 0);
    config
}

pub(crate) fn refusals_that_are_not_taken_fail_nobody<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget_for_few_envelopes());
    let mut sends = announce_many(&mut job).into_iter();
    end_last(&mut job, sends.as_slice());
    let kept = job.usages()[1].envelopes / 96;
    assert!(kept > 0);
    for (tag, send) in (0..kept).zip(sends.by_ref()) {
        let recv = job.recv(1, exact(0, tag), 1);
        assert_eq!(job.wait(recv).message(), b"x", "the first are kept");
        assert!(job.wait(send).result.is_ok());
    }
    for send in sends {
        assert!(matches!(job.wait(send).error(), Error::Exhausted { .. }));
    }
    job.assert_at_rest();
}

pub(crate) fn revocations_that_are_not_taken_fail_nobody<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget_for_few_envelopes());
    let sends = announce_many(&mut job);
    for send in &sends {
        job.cancel(send);
    }
    end_last(&mut job, &sends);
    for send in sends {
        let ended = job.wait(send).result;
        assert!(matches!(ended, Err(Error::Exhausted { .. } | Error::Cancelled { .. })), "{ended:?}");
    }
    job.settle();
    let recv = job.recv(1, exact(0, 1), 1);
    let send = job.send(0, 1, 1, b"y");
    assert_eq!(job.wait(recv).message(), b"y", "the ranks still exchange messages");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

/// Many synchronous messages wait at their receiver. It posts the receives while the sender is not polled, so the
/// sender takes no answers.
pub(crate) fn confirmations_that_are_not_taken_fail_nobody<M: Medium>(medium: M) {
    let mut config = Config::default();
    (config.envelopes_max, config.outbox_max) = (1000, 0);
    let mut job = Job::new(medium, 2, &config);
    let issend = |job: &mut Job<M>, tag| job.send_in(Mode::Synchronous, 0, 1, tag, b"x", Owned).unwrap();
    let sends: Vec<_> = (0..6_000).map(|tag| issend(&mut job, tag)).collect();
    let all_have_come = |job: &mut Job<M>| {
        let now = job.now();
        job.engine(1).poll(now, &mut ()).expect("the port works");
        job.engine(1).usage().unexpected_messages == 6_000
    };
    assert!((0..100).any(|_| job.poll_alone(0, all_have_come)), "they do not come: {:?}", job.usages());
    let recvs: Vec<_> = (0..6_000).map(|tag| job.recv(1, exact(0, tag), 1)).collect();
    let last = issend(&mut job, 6_000);
    job.poll_alone(1, |_| false);
    let recv = job.recv(1, exact(0, 6_000), 1);
    for op in recvs.into_iter().chain(sends).chain([recv, last]) {
        assert!(job.wait(op).result.is_ok());
    }
    job.assert_at_rest();
}

/// A rank initializes many partitioned sends that no receive matches, and is not polled, so it takes no answers.
pub(crate) fn initializations_that_get_no_answer_fail_nobody<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget_for_few_envelopes());
    let init = |tag| {
        let now = job.now();
        let id = job.engine(0).psend_init(now, WorldRank(1), 0, tag, 8, 1, Signature::BYTES).unwrap();
        job.engine(1).poll(now, &mut ()).expect("the port works");
        id
    };
    let halves: Vec<_> = (0..3_000).map(init).collect();
    let send = job.send(0, 1, 1, b"y");
    let recv = job.recv(1, exact(0, 1), 1);
    assert_eq!(job.wait(recv).message(), b"y", "the ranks still exchange messages");
    assert!(job.wait(send).result.is_ok());
    let now = job.now();
    for half in halves {
        job.engine(0).free_partitioned(now, half);
    }
    // Match the initializations that the receiver has kept, in order.
    for tag in 0..job.usages()[1].envelopes / 96 {
        let half = job.engine(1).precv_init(now, WorldRank(0), 0, tag, 8, None).unwrap();
        job.engine(1).free_partitioned(now, half);
    }
    job.settle();
    job.assert_at_rest();
}

/// Peers that send nothing keep their credit. If they hold all the credit, the messages of other peers travel as
/// envelopes: all arrive, each a round trip later. When a peer leaves, its credit becomes available to the other peers.
pub(crate) fn nobody_starves_for_idle_peers<M: Medium>(medium: M) {
    let mut config = Config::default();
    (config.unexpected_max, config.window_min) = (10_000, 5_000);
    let mut job = Job::new(medium, 5, &config);
    assert!(job.usages()[1].credit_granted > 7_500, "idle peers hold nearly all of it");
    let stream = |job: &mut Job<M>, from: usize| {
        let before = job.engine(from).counters();
        for number in 0..40 {
            // The three cases take turns: before the sends, both receives are posted, or one of the receives, or none.
            let late = number % 3;
            let recvs = (late..2).map(|tag| job.recv(1, exact(from as u32, tag), 400)).collect::<Vec<_>>();
            let sends = [0, 1].map(|tag| job.send(from, 1, tag, &bytes(from, 400)));
            if late > 0 {
                job.poll_until(|job| {
                    (0..late).all(|tag| job.engine(1).probe(&exact(from as u32, tag)) != Ok(None))
                });
            }
            let recvs = recvs
                .into_iter()
                .chain((0..late.min(2)).map(|tag| job.recv(1, exact(from as u32, tag), 400)));
            for recv in recvs.collect::<Vec<_>>() {
                assert_eq!(job.wait(recv).message(), bytes(from, 400));
            }
            for send in sends {
                assert!(job.wait(send).result.is_ok());
            }
            assert_within(job, 10_000);
        }
        let after = job.engine(from).counters();
        (after.eager - before.eager, after.rendezvous - before.rendezvous)
    };
    let went: Vec<_> = [0, 2, 3, 4].map(|from| (from, stream(&mut job, from))).into();
    assert!(went.iter().all(|&(_, (eager, rendezvous))| eager + rendezvous == 80), "{went:?}");
    let poorest = went.iter().min_by_key(|(_, (eager, _))| *eager).map_or(0, |(from, _)| *from);
    assert!(went.iter().any(|&(_, (_, rendezvous))| rendezvous > 40), "someone had no credit: {went:?}");
    for rank in [0, 2, 3, 4].into_iter().filter(|&rank| rank != poorest) {
        job.leave(rank);
        job.settle();
    }
    let (eager, rendezvous) = stream(&mut job, poorest);
    assert!(eager > rendezvous, "{eager} {rendezvous}");
    job.assert_at_rest();
}

pub(crate) fn credit_grows_with_use<M: Medium>(medium: M) {
    let mut config = Config::default();
    config.window_min = 1000;
    let mut job = Job::new(medium, 2, &config);
    let first = job.usages()[1].credit_granted;
    let sends = flood(&mut job, 0, 200);
    drain(&mut job, 0, 200, sends);
    job.settle();
    let last = job.usages()[1].credit_granted;
    assert!(last > first, "{first} {last}");
    job.assert_at_rest();
}

pub(crate) fn order_without_credit<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &budget(2_000));
    let sends: Vec<_> =
        (0..60).map(|number| job.send_as(0, 1, 0, 5, &bytes(number, number * 17), Owned, NEVER)).collect();
    for number in 0..60 {
        let recv = job.recv(1, Pattern::any(0), 1100);
        assert_eq!(job.wait(recv).message(), bytes(number, number * 17));
    }
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}
