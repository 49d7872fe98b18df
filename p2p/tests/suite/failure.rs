//! Ranks that die, leave, or restart, in every state of their operations.

use samite_fabric::Port;
use samite_p2p::{Cause, Config, Error, Fate, Outcome, Pattern, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Op, Owned, bytes, exact, killed};

const LONG: usize = 400_000;

fn trio<M: Medium>(medium: M) -> Job<M> {
    let mut config = Config::default();
    // Less than a long message, so that a transfer can be stopped midway.
    (config.push_window, config.pull_chunk) = (50_000, 20_000);
    (config.put_min, config.put_chunk, config.put_depth) = (1 << 16, 10_000, 4);
    Job::new(medium, 3, &config)
}

/// Checks that an error reports the kill of rank 1, and the expected fate of the message.
#[track_caller]
fn assert_killed(error: &Error, expected: Fate) {
    let Error::PeerFailed { rank: WorldRank(1), cause, fate, .. } = error else { panic!("{error:?}") };
    // The port may notice the lost connection before the launcher reports the cause.
    assert!(*cause == killed() || *cause == Cause::Lost, "{error:?}");
    assert_eq!(*fate, expected, "{error:?}");
}

/// Checks that ranks 0 and 2 can still exchange messages, and that no operation is left.
#[track_caller]
fn assert_unharmed<M: Medium>(job: &mut Job<M>) {
    for len in [3, 200_000] {
        let recv = job.recv(2, exact(0, 99), len);
        let send = job.send(0, 2, 99, &bytes(9, len));
        assert!(job.wait(recv).message() == bytes(9, len));
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn death_ends_a_receive<M: Medium>(medium: M) {
    let mut job = trio(medium);
    for whose in [Owned, Borrowed] {
        let recv = job.recv_as(0, exact(1, 5), 10, whose, NEVER);
        if whose == Borrowed {
            job.kill(1);
            let done = job.wait(recv);
            assert_eq!(done.bytes, Some(vec![0xee; 10]));
            assert_killed(&done.result.unwrap_err(), Fate::NotDelivered);
        } else {
            job.forget(recv);
        }
    }
    assert_unharmed(&mut job);
}

pub(crate) fn death_ends_a_long_send<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let sends = [Owned, Borrowed].map(|whose| job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER));
    job.settle();
    job.kill(1);
    for send in sends {
        assert_killed(&job.wait(send).error(), Fate::Unknown);
    }
    assert_unharmed(&mut job);
}

pub(crate) fn death_ends_a_matched_send<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv_as(1, exact(0, 5), LONG, Borrowed, NEVER);
    job.withhold(1, true);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Borrowed, NEVER);
    job.settle();
    assert!(!job.is_over(&recv) && !job.is_over(&send));
    job.kill(1);
    // If the receiver reads the message in the sender's exposed memory, the sender does not learn of the read.
    let fate = if job.medium.exposes() { Fate::Unknown } else { Fate::NotDelivered };
    assert_killed(&job.wait(send).error(), fate);
    assert_unharmed(&mut job);
}

pub(crate) fn death_ends_a_matched_receive<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, exact(1, 5), LONG);
    job.withhold(1, true);
    let send = job.send_as(1, 0, 0, 5, &bytes(1, LONG), Borrowed, NEVER);
    job.settle();
    if job.medium.reads() {
        assert_eq!(job.wait(recv).message(), bytes(1, LONG));
        assert!(job.wait(send).result.is_ok());
        return assert_unharmed(&mut job);
    }
    assert!(!job.is_over(&recv) && !job.is_over(&send));
    job.kill(1);
    assert_killed(&job.wait(recv).error(), Fate::NotDelivered);
    assert_unharmed(&mut job);
}

pub(crate) fn death_ends_a_claimed_receive<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let send = job.send(1, 0, 5, &bytes(1, LONG));
    job.poll_until(|job| job.engine(0).probe(&exact(1, 5)).unwrap().is_some());
    let (_, claimed) = job.engine(0).claim(&exact(1, 5)).unwrap().unwrap();
    assert!(!job.is_over(&send));
    job.kill(1);
    let now = job.now();
    let id = job.engine(0).recv_claimed(now, claimed, Err(LONG), NEVER);
    job.poll_until(|job| job.engine(0).outcome(id) == Outcome::Ready);
    let completion = job.engine(0).collect(id, &mut ()).unwrap();
    assert_killed(&completion.result.unwrap_err(), Fate::NotDelivered);
    assert_unharmed(&mut job);
}

/// A message that has arrived whole can be received without its sender. A long message cannot, because only its
/// envelope has arrived.
pub(crate) fn death_spares_what_has_arrived_whole<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let sends = [10, LONG].map(|len| job.send(1, 0, 5, &bytes(1, len)));
    job.settle();
    assert!(job.usages()[0].unexpected > 0 && job.usages()[0].envelopes > 0);
    assert!(job.is_over(&sends[0]) && !job.is_over(&sends[1]));
    job.kill(1);
    let recv = job.recv(0, exact(1, 5), 10);
    assert_eq!(job.wait(recv).message(), bytes(1, 10));
    assert_killed(&job.engine(0).probe(&exact(1, 5)).unwrap_err(), Fate::NotDelivered);
    let told = job.engine(0).probe(&Pattern::any(0));
    assert!(matches!(told, Err(Error::FailurePending { rank: WorldRank(1), .. })), "{told:?}");
    assert_eq!(job.engine(0).probe(&Pattern::any(0)), Ok(None));
    assert_unharmed(&mut job);
}

pub(crate) fn death_spares_what_was_received<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, exact(1, 5), 10);
    let send = job.send(1, 0, 5, b"x");
    job.poll_until(|job| job.is_over(&recv) && job.is_over(&send));
    job.kill(1);
    job.settle();
    assert_eq!(job.wait(recv).message(), b"x");
    assert_unharmed(&mut job);
}

pub(crate) fn death_is_pending_for_any_source<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, Pattern::any(0), 10);
    let id = recv.id.unwrap();
    job.kill(1);
    job.poll_until(|job| job.engine(0).outcome(id) == Outcome::FailurePending);
    let told = job.engine(0).failure_pending(id);
    assert!(matches!(told, Some(Error::FailurePending { rank: WorldRank(1), .. })), "{told:?}");
    assert_eq!(job.engine(0).outcome(id), Outcome::Pending, "told once, and still posted");
    assert!(job.engine(0).failure_pending(id).is_none());
    let send = job.send(2, 0, 5, b"x");
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(&mut job);
}

/// A program that receives from any source in a loop has no receive posted at some moments. A peer may die at such a
/// moment.
pub(crate) fn death_between_two_receives_is_pending<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 4, &Config::default());
    job.kill(1);
    job.kill(2);
    job.settle();
    let send = job.send(3, 0, 5, b"x");
    job.settle();
    let recv = job.recv(0, Pattern::any(0), 10);
    assert_eq!(job.wait(recv).message(), b"x", "a message comes first");
    let mut told = Vec::new();
    for _ in 0..2 {
        // Like a waiting call, this receive is abandoned at the first failure.
        let recv = job.recv(0, Pattern::any(0), 10);
        let id = recv.id.unwrap();
        assert_eq!(job.engine(0).outcome(id), Outcome::FailurePending);
        let Some(Error::FailurePending { rank, .. }) = job.engine(0).failure_pending(id) else { panic!() };
        told.push(rank);
        job.engine(0).cancel(id);
        assert!(matches!(job.wait(recv).error(), Error::Cancelled { .. }));
    }
    assert_eq!(told, [1, 2].map(WorldRank));
    let recv = job.recv(0, Pattern::any(0), 10);
    assert_eq!(job.engine(0).outcome(recv.id.unwrap()), Outcome::Pending, "each was told once");
    let elsewhere = job.engine(0).probe(&Pattern::any(1));
    assert!(
        matches!(elsewhere, Err(Error::FailurePending { rank: WorldRank(1), .. })),
        "and in each context: {elsewhere:?}"
    );
    let send = (send, job.send(3, 0, 5, b"y"));
    assert_eq!(job.wait(recv).message(), b"y");
    assert!(job.wait(send.0).result.is_ok() && job.wait(send.1).result.is_ok());
    job.assert_at_rest();
}

/// A receive from any source that has matched its message does not report the failures of other ranks.
pub(crate) fn death_spares_a_matched_receive_from_any_source<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let send = job.send(2, 0, 5, &bytes(2, LONG));
    job.poll_until(|job| job.engine(0).probe(&Pattern::any(0)).unwrap().is_some());
    let recv = job.recv(0, Pattern::any(0), LONG);
    let id = recv.id.unwrap();
    job.engine(0).peer_failed(WorldRank(1), None, killed()).unwrap();
    assert_ne!(job.engine(0).outcome(id), Outcome::FailurePending);
    assert!(job.wait(recv).message() == bytes(2, LONG));
    assert!(job.wait(send).result.is_ok());
    job.kill(1);
    assert_unharmed(&mut job);
}

/// Checks that a receive from any source reports these failures, each once.
#[track_caller]
fn assert_told<M: Medium>(job: &mut Job<M>, recv: &Op, ranks: &[u32]) {
    let id = recv.id.unwrap();
    for rank in ranks {
        assert_eq!(job.engine(0).outcome(id), Outcome::FailurePending);
        let told = job.engine(0).failure_pending(id);
        assert!(matches!(&told, Some(Error::FailurePending { rank: of, .. }) if of.0 == *rank), "{told:?}");
    }
}

pub(crate) fn death_of_all_others_ends_any_source<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, Pattern::any(0), 10);
    job.kill(1);
    job.kill(2);
    assert_told(&mut job, &recv, &[1, 2]);
    assert_eq!(job.wait(recv).error(), Error::Deserted);
    let again = job.recv(0, Pattern::any(0), 10);
    assert_eq!(job.wait(again).error(), Error::Deserted);
    assert_eq!(job.engine(0).probe(&Pattern::any(0)), Err(Error::Deserted));
    let elsewhere = job.engine(0).probe(&Pattern::any(1));
    assert!(
        matches!(elsewhere, Err(Error::FailurePending { rank: WorldRank(1), .. })),
        "first of the failures: {elsewhere:?}"
    );
    job.assert_at_rest();
}

/// A rank that the launcher restarts may still send.
pub(crate) fn a_rank_that_returns_is_waited_for<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, Pattern::any(0), 10);
    job.kill(1);
    job.kill(2);
    for (incarnation, returns) in [(7, true), (6, false), (8, false)] {
        job.engine(0).peer_returns(WorldRank(2), incarnation, returns).unwrap();
    }
    assert_told(&mut job, &recv, &[1, 2]);
    job.settle();
    assert!(!job.is_over(&recv));
    job.restart(2);
    let send = job.send(2, 0, 5, b"back");
    assert_eq!(job.wait(recv).message(), b"back");
    assert!(job.wait(send).result.is_ok());

    // The second incarnation fails too, and the rank is not restarted again.
    let recv = job.recv(0, Pattern::any(0), 10);
    job.kill(2);
    job.engine(0).peer_returns(WorldRank(2), 8, true).unwrap();
    assert_told(&mut job, &recv, &[2]);
    assert!(!job.is_over(&recv));
    job.engine(0).peer_returns(WorldRank(2), 8, false).unwrap();
    assert_eq!(job.wait(recv).error(), Error::Deserted);
    job.assert_at_rest();
}

/// A rank's messages to itself arrive, even if the receive was posted first.
pub(crate) fn own_messages_come_without_others<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.kill(1);
    job.kill(2);
    let recv = job.recv(0, Pattern::any(0), LONG);
    assert_told(&mut job, &recv, &[1, 2]);
    job.forget(recv);
    for len in [10, LONG] {
        let recv = job.recv(0, Pattern::any(0), LONG);
        let send = job.send(0, 0, 5, &bytes(1, len));
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
        // As if another thread had sent it, this message is sent before the receive is posted, and has not yet arrived.
        let send = job.send(0, 0, 5, &bytes(1, len));
        let recv = job.recv(0, Pattern::any(0), LONG);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    }
    let named = job.recv(0, exact(0, 6), 10);
    job.settle();
    assert!(!job.is_over(&named), "another thread may send it");
    let recv = job.recv(0, Pattern::any(0), 10);
    assert_eq!(job.wait(recv).error(), Error::Deserted, "everything has arrived");
    job.forget(named);
    job.assert_at_rest();
}

/// A process may fail after it has said goodbye, for example if its main function returns an error.
pub(crate) fn failing_after_goodbye<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.engine(0).expect_word();
    let recv = job.recv(0, Pattern::any(0), 10);
    job.kill(2);
    assert_told(&mut job, &recv, &[2]);
    let named = job.recv(0, exact(1, 1), 10);
    let sends = [2, 3].map(|tag| job.send(1, 0, tag, b"last"));
    assert_eq!(job.wait(recv).message(), b"last");
    assert!(sends.map(|send| job.wait(send).result.is_ok()).iter().all(|&sent| sent));
    job.leave(1);
    let Error::PeerFailed { rank: WorldRank(1), cause: Cause::Left, .. } = job.wait(named).error() else {
        panic!("it has said goodbye")
    };
    assert!(job.engine(0).unexplained_since(WorldRank(1)).is_some());
    let any = job.recv(0, Pattern::any(0), 10);
    let wanted = job.recv(0, Pattern { tag: 9, mask: !0, ..Pattern::any(0) }, 10);
    assert_eq!(job.wait(any).message(), b"last");
    job.settle();
    assert!(!job.is_over(&wanted), "how the process ends is not known yet");

    job.engine(0).peer_failed(WorldRank(1), Some(7), killed()).unwrap();
    assert_eq!(
        (job.engine(0).unexplained_since(WorldRank(1)), job.engine(0).failure(WorldRank(1))),
        (None, Some(killed()))
    );
    assert_told(&mut job, &wanted, &[1]);
    assert_eq!(job.wait(wanted).error(), Error::Deserted);
    assert_killed(&job.engine(0).probe(&exact(1, 1)).unwrap_err(), Fate::NotDelivered);
    job.assert_at_rest();
}

/// Messages sent before a goodbye can be received, but not by receives that are meant for the next incarnation.
pub(crate) fn messages_of_a_goodbye_end_with_the_next_incarnation<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.engine(0).expect_word();
    let sends = [5, 6].map(|tag| job.send(1, 0, tag, b"old"));
    job.settle();
    assert!(sends.map(|send| job.wait(send).result.is_ok()).iter().all(|&sent| sent));
    job.leave(1);
    job.settle();
    job.engine(0).peer_failed(WorldRank(1), Some(7), killed()).unwrap();
    let recv = job.recv(0, exact(1, 5), 10);
    assert_eq!(job.wait(recv).message(), b"old");
    job.restart(1);
    let recv = job.recv(0, exact(1, 6), 10);
    let send = job.send(1, 0, 6, b"new");
    assert_eq!(job.wait(recv).message(), b"new");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

/// A killed rank's messages can be received, but not by receives that are meant for the next incarnation.
pub(crate) fn messages_of_the_dead_end_with_the_next_incarnation<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let sends = [5, 6].map(|tag| job.send(1, 0, tag, b"old"));
    job.settle();
    assert!(sends.map(|send| job.wait(send).result.is_ok()).iter().all(|&sent| sent));
    job.kill(1);
    let recv = job.recv(0, exact(1, 5), 10);
    assert_eq!(job.wait(recv).message(), b"old");
    job.restart(1);
    let recv = job.recv(0, exact(1, 6), 10);
    let send = job.send(1, 0, 6, b"new");
    assert_eq!(job.wait(recv).message(), b"new");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

/// A rank that left in good order has sent its messages, even if a later process of the rank fails.
pub(crate) fn messages_of_a_goodbye_outlive_the_failure_of_later_incarnations<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let sends = [5, 6].map(|tag| job.send(1, 0, tag, b"first"));
    job.settle();
    assert!(sends.map(|send| job.wait(send).result.is_ok()).iter().all(|&sent| sent));
    job.leave(1);
    job.settle();
    job.restart(1);
    let send = job.send(1, 0, 7, b"second");
    job.settle();
    assert!(job.wait(send).result.is_ok());
    job.kill(1);
    let recv = job.recv(0, exact(1, 5), 10);
    assert_eq!(job.wait(recv).message(), b"first");
    job.restart(1);
    let recv = job.recv(0, exact(1, 6), 10);
    assert_eq!(job.wait(recv).message(), b"first");
    assert_eq!(job.engine(0).probe(&exact(1, 7)), Ok(None), "it was of the incarnation that failed");
    assert_unharmed(&mut job);
}

/// A restarted rank says hello before the launcher has reported how its earlier process ended.
pub(crate) fn a_hello_tells_of_a_failure_after_goodbye<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.engine(0).expect_word();
    let recv = job.recv(0, Pattern::any(0), 10);
    let send = job.send(1, 0, 5, b"x");
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    job.leave(1);
    job.settle();
    let recv = job.recv(0, Pattern::any(0), 10);
    job.restart(1);
    job.engine(0).peer_failed(WorldRank(1), Some(7), killed()).unwrap();
    assert_told(&mut job, &recv, &[1]);
    job.settle();
    assert_eq!(job.engine(0).outcome(recv.id.unwrap()), Outcome::Pending, "told once");
    let send = job.send(1, 0, 5, b"y");
    assert_eq!(job.wait(recv).message(), b"y");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(&mut job);
}

pub(crate) fn death_spares_other_pairs<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(2, exact(0, 5), LONG);
    let send = job.send(0, 2, 5, &bytes(1, LONG));
    job.poll();
    job.kill(1);
    assert!(job.wait(recv).message() == bytes(1, LONG));
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(&mut job);
}

pub(crate) fn death_refuses_new_operations<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.kill(1);
    job.settle();
    for whose in [Owned, Borrowed] {
        let send = job.try_send(0, 1, 0, 5, b"x", whose, NEVER).map(|_| ());
        assert_killed(&send.unwrap_err(), Fate::NotDelivered);
        let recv = job.try_recv(0, exact(1, 5), 10, whose, NEVER).map(|_| ());
        assert_killed(&recv.unwrap_err(), Fate::NotDelivered);
    }
    assert_killed(&job.engine(0).probe(&exact(1, 5)).unwrap_err(), Fate::NotDelivered);
    assert_unharmed(&mut job);
}

pub(crate) fn news_of_an_earlier_incarnation<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.kill(1);
    job.restart(1);
    for engine in [0, 2] {
        job.engine(engine).peer_failed(WorldRank(1), Some(7), killed()).unwrap();
        job.engine(engine).peer_left(WorldRank(1), Some(6)).unwrap();
        let address = job.engine(1).port().address();
        job.engine(engine).introduce(WorldRank(1), 6, address).unwrap();
    }
    let recv = job.recv(0, exact(1, 5), 10);
    let send = job.send(1, 0, 5, b"alive");
    assert_eq!(job.wait(recv).message(), b"alive");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(&mut job);
}

pub(crate) fn a_restarted_rank_talks<M: Medium>(medium: M) {
    let mut job = trio(medium);
    for _ in 0..2 {
        job.kill(1);
        job.settle();
        job.restart(1);
        for (from, to) in [(0, 1), (1, 0), (2, 1), (1, 2)] {
            for len in [5, LONG] {
                let recv = job.recv(to, exact(from as u32, 5), len);
                let send = job.send(from, to as u32, 5, &bytes(from, len));
                assert!(job.wait(recv).message() == bytes(from, len));
                assert!(job.wait(send).result.is_ok());
            }
        }
    }
    assert_unharmed(&mut job);
}

/// A restarted rank counts as a possible sender for a receive from any source.
pub(crate) fn a_restarted_rank_can_be_waited_for<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.kill(1);
    job.restart(1);
    let told = job.engine(0).probe(&Pattern::any(0));
    assert!(matches!(told, Err(Error::FailurePending { rank: WorldRank(1), .. })), "{told:?}");
    assert_eq!(job.engine(0).probe(&Pattern::any(0)), Ok(None), "nobody is missing");
    job.kill(2);
    let told = job.engine(0).probe(&Pattern::any(0));
    assert!(matches!(told, Err(Error::FailurePending { rank: WorldRank(2), .. })), "{told:?}");
    assert_eq!(job.engine(0).probe(&Pattern::any(0)), Ok(None), "rank 1 is there");
    let recv = job.recv(0, Pattern::any(0), 5);
    let send = job.send(1, 0, 5, b"again");
    assert_eq!(job.wait(recv).message(), b"again");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

pub(crate) fn a_restarted_rank_gets_nothing_old<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let old: Vec<_> = (0..20).map(|tag| job.send(0, 1, tag, &bytes(1, 20_000))).collect();
    job.poll();
    job.kill(1);
    job.restart(1);
    let recv = job.recv(1, Pattern::any(0), 20_000);
    let send = job.send(0, 1, 77, b"new");
    assert_eq!(job.wait(recv).message(), b"new");
    assert!(job.wait(send).result.is_ok());
    for send in old {
        if let Err(error) = job.wait(send).result {
            let Error::PeerFailed { rank: WorldRank(1), .. } = error else { panic!("{error:?}") };
        }
    }
    assert_unharmed(&mut job);
}

pub(crate) fn a_restart_overtakes_news_of_the_death<M: Medium>(medium: M) {
    let mut job = trio(medium);
    for (from, to) in [(0, 1), (1, 0)] {
        let recv = job.recv(to, exact(from as u32, 5), 5);
        let send = job.send(from, to as u32, 5, b"old");
        assert_eq!(job.wait(recv).message(), b"old");
        assert!(job.wait(send).result.is_ok());
    }
    let waiting = job.recv(0, exact(1, 6), 5);
    job.vanish(1);
    job.restart(1);
    let error = job.wait(waiting).error();
    let Error::PeerFailed { rank: WorldRank(1), cause: Cause::Restarted | Cause::Lost, .. } = error else {
        panic!("{error:?}")
    };
    for (from, to) in [(0, 1), (1, 0)] {
        let recv = job.recv(to, exact(from as u32, 5), LONG);
        let send = job.send(from, to as u32, 5, &bytes(from, LONG));
        assert!(job.wait(recv).message() == bytes(from, LONG));
        assert!(job.wait(send).result.is_ok());
    }
    assert_unharmed(&mut job);
}

pub(crate) fn leaving_amid_a_receive_delivers_what_was_sent<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv_as(1, exact(0, 5), LONG, Borrowed, NEVER);
    job.withhold(1, true);
    let send = job.send(0, 1, 5, &bytes(1, LONG));
    job.settle();
    assert!(!job.is_over(&recv) && !job.is_over(&send));
    let sends: Vec<_> = (0..50).map(|tag| job.send(1, 0, tag, &bytes(tag as usize, 100))).collect();
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.leave(1);
    let Error::PeerFailed { rank: WorldRank(1), cause: Cause::Left, .. } = job.wait(send).error() else {
        panic!("it has left")
    };
    for tag in 0..50 {
        let recv = job.recv(0, exact(1, tag), 100);
        assert_eq!(job.wait(recv).message(), bytes(tag as usize, 100));
    }
    assert_unharmed(&mut job);
}

pub(crate) fn leaving_delivers_what_was_sent<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let sends: Vec<_> = (0..50).map(|tag| job.send(1, 0, tag, &bytes(tag as usize, 100))).collect();
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.leave(1);
    job.settle();
    for tag in 0..50 {
        let recv = job.recv(0, exact(1, tag), 100);
        assert_eq!(job.wait(recv).message(), bytes(tag as usize, 100));
    }
    let none = job.try_recv(0, exact(1, 5), 100, Owned, NEVER).map(|_| ());
    assert_eq!(
        none,
        Err(Error::PeerFailed {
            rank: WorldRank(1),
            cause: Cause::Left,
            fate: Fate::NotDelivered,
            report: None
        })
    );
    assert_unharmed(&mut job);
}

pub(crate) fn leaving_ends_what_waits<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let recv = job.recv(0, exact(1, 5), 10);
    let send = job.send(0, 1, 5, &bytes(1, LONG));
    job.settle();
    job.leave(1);
    for op in [recv, send] {
        let Error::PeerFailed { rank: WorldRank(1), cause: Cause::Left, .. } = job.wait(op).error() else {
            panic!("it has left")
        };
    }
    assert_unharmed(&mut job);
}

pub(crate) fn leaving_withdraws_long_sends<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let send = job.send(1, 0, 5, &bytes(1, LONG));
    job.poll_until(|job| job.engine(0).probe(&exact(1, 5)).unwrap().is_some());
    assert!(!job.is_over(&send));
    job.leave(1);
    job.settle();
    assert_eq!(job.engine(0).probe(&Pattern::any(0)), Ok(None), "its bytes are gone with it");
    assert_unharmed(&mut job);
}

/// A receive may request the bytes of a message while the sender says goodbye. The send and the receive must report the
/// same fate.
pub(crate) fn leaving_amid_a_send_delivers_it_or_says_that_it_does_not<M: Medium>(medium: M) {
    let mut job = trio(medium);
    for (tag, withheld) in [(5, true), (6, false)] {
        job.withhold(1, withheld);
        let send = job.send_as(1, 0, 0, tag, &bytes(1, LONG), Borrowed, NEVER);
        job.poll_until(|job| job.engine(0).probe(&exact(1, tag)).unwrap().is_some());
        let recv = job.recv(0, exact(1, tag), LONG);
        if withheld {
            // The receiver has requested the bytes, and they have not arrived.
            job.settle();
        }
        let now = job.now();
        job.engine(1).close(now);
        job.withhold(1, false);
        job.settle();
        assert!(job.engine(1).closed());
        let received = job.wait(recv).result;
        assert!(job.is_over(&send) || job.medium.exposes(), "{received:?}");
        if job.is_over(&send) {
            let sent = job.wait(send).result;
            assert_eq!(sent.is_ok(), received.is_ok(), "{sent:?}, {received:?}");
        }
        job.vanish(1);
        job.restart(1);
    }
    assert_unharmed(&mut job);
}

pub(crate) fn leaving_all_at_once<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 4, &Config::default());
    for from in 0..4 {
        for to in 0..4 {
            let recv = job.recv(to, exact(from as u32, 5), 10);
            let send = job.send(from, to as u32, 5, b"x");
            assert_eq!(job.wait(recv).message(), b"x");
            assert!(job.wait(send).result.is_ok());
        }
    }
    let now = job.now();
    for rank in 0..4 {
        job.engine(rank).close(now);
    }
    job.poll_until(|job| (0..4).all(|rank| job.engine(rank).closed()));
}

pub(crate) fn leaving_after_claim<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let send = job.send(1, 0, 5, &bytes(1, LONG));
    job.poll_until(|job| job.engine(0).probe(&exact(1, 5)).unwrap().is_some());
    let (_, claimed) = job.engine(0).claim(&exact(1, 5)).unwrap().unwrap();
    assert!(!job.is_over(&send));
    job.leave(1);
    job.settle();
    let now = job.now();
    let id = job.engine(0).recv_claimed(now, claimed, Err(LONG), NEVER);
    job.poll_until(|job| job.engine(0).outcome(id) == Outcome::Ready);
    let result = job.engine(0).collect(id, &mut ()).unwrap().result;
    assert_eq!(
        result,
        Err(Error::PeerFailed {
            rank: WorldRank(1),
            cause: Cause::Left,
            fate: Fate::NotDelivered,
            report: None
        })
    );
    assert_unharmed(&mut job);
}

pub(crate) fn leave_without_contact<M: Medium>(medium: M) {
    let mut job = trio(medium);
    job.leave(1);
    for rank in [0, 2] {
        job.engine(rank).peer_left(WorldRank(1), Some(7)).unwrap();
    }
    assert_unharmed(&mut job);
}
