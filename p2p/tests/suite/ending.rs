//! Operations that do not succeed: truncation, cancels and deadlines, in every state of an operation.

use samite_fabric::Memory;
use samite_p2p::{Awaited, Config, Error, Fate, Operation, Pattern, Status, Time, WorldRank};

use crate::job::{Borrowed, Done, Job, Medium, NEVER, Op, Owned, SOON_NS, Whose, bytes, exact};

/// Longer than the windows below, so that a transfer can be stopped midway.
const LONG: usize = 400_000;

fn pair<M: Medium>(medium: M) -> Job<M> {
    let mut config = Config::default();
    (config.push_window, config.pull_chunk) = (50_000, 20_000);
    (config.put_min, config.put_chunk, config.put_depth) = (1 << 16, 10_000, 4);
    Job::new(medium, 2, &config)
}

/// Checks that later operations succeed, and that no state of any operation is left.
fn assert_unharmed<M: Medium>(mut job: Job<M>) {
    for len in [3, 200_000] {
        let recv = job.recv(1, Pattern::any(0), len);
        let send = job.send(0, 1, 5, &bytes(9, len));
        assert!(job.wait(recv).message() == bytes(9, len));
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

fn truncated<M: Medium>(medium: M, len: usize, room: usize, whose: Whose, posted_first: bool) {
    let mut job = pair(medium);
    let posted = posted_first.then(|| job.recv_as(1, exact(0, 5), room, whose, NEVER));
    let send = job.send(0, 1, 5, &bytes(1, len));
    let next = job.send(0, 1, 5, b"next");
    let recv = posted.unwrap_or_else(|| {
        job.settle();
        job.recv_as(1, exact(0, 5), room, whose, NEVER)
    });
    let done = job.wait(recv);
    let status = Status { source: WorldRank(0), tag: 5, bytes: len };
    assert_eq!(done.result, Err(Error::Truncated { status, room }));
    assert!(done.bytes.unwrap().iter().all(|&byte| byte == 0xee), "the buffer is left as it was");
    assert!(job.wait(send).result.is_ok(), "what the receiver's buffer is like is not the sender's matter");
    let recv = job.recv(1, exact(0, 5), 4);
    assert_eq!(job.wait(recv).message(), b"next");
    assert!(job.wait(next).result.is_ok());
    assert_unharmed(job);
}

pub(crate) fn truncated_eager<M: Medium>(medium: M) {
    truncated(medium, 10, 9, Owned, true);
}

pub(crate) fn truncated_eager_unexpected<M: Medium>(medium: M) {
    truncated(medium, 10, 9, Owned, false);
}

pub(crate) fn truncated_long<M: Medium>(medium: M) {
    truncated(medium, 200_000, 199_999, Owned, true);
}

pub(crate) fn truncated_long_unexpected<M: Medium>(medium: M) {
    truncated(medium, 200_000, 10, Owned, false);
}

pub(crate) fn truncated_borrowed<M: Medium>(medium: M) {
    truncated(medium, 200_000, 199_999, Borrowed, true);
}

pub(crate) fn truncated_to_nothing<M: Medium>(medium: M) {
    truncated(medium, 1, 0, Borrowed, false);
}

const CANCELLED: Error = Error::Cancelled { fate: Fate::NotDelivered };

pub(crate) fn cancel_a_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let recv = job.recv_as(1, exact(0, 5), 10, whose, NEVER);
        job.cancel(&recv);
        let done = job.wait(recv);
        assert_eq!(done.bytes, Some(vec![0xee; 10]));
        assert_eq!(done.result, Err(CANCELLED));
    }
    assert_unharmed(job);
}

/// The receive is cancelled too late: it has already been matched with its message.
pub(crate) fn cancel_a_receive_late<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for len in [10, 200_000] {
        let recv = job.recv(1, exact(0, 5), len);
        let send = job.send(0, 1, 5, &bytes(1, len));
        assert!(job.wait(send).result.is_ok());
        job.settle();
        job.cancel(&recv);
        assert!(job.wait(recv).message() == bytes(1, len));
    }
    assert_unharmed(job);
}

/// Returns true if the cancel of a long send from memory of this owner takes effect only with the receiver's answer,
/// because the provider may still read the memory.
fn is_registered<M: Medium>(job: &Job<M>, whose: Whose) -> bool {
    whose == Owned && job.pulls() && !job.medium.exposes()
}

pub(crate) fn cancel_a_long_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER);
        job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
        job.cancel(&send);
        let fate = if is_registered(&job, whose) { Fate::NotDelivered } else { Fate::Unknown };
        assert!(fate == Fate::NotDelivered || job.is_over(&send), "at once");
        let done = job.wait(send);
        assert_eq!(done.result, Err(Error::Cancelled { fate }));
        assert!(done.bytes.unwrap() == bytes(1, LONG));
        job.settle();
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "it was taken back");
    }
    assert_unharmed(job);
}

/// The send is cancelled after its receive has matched, and before the sender learns of the match.
pub(crate) fn cancel_a_long_send_late<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER);
        job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
        let recv = job.recv(1, exact(0, 5), LONG);
        job.cancel(&send);
        if is_registered(&job, whose) {
            assert!(job.wait(recv).message() == bytes(1, LONG));
            assert!(job.wait(send).result.is_ok());
            continue;
        }
        assert!(job.is_over(&send), "at once");
        let done = job.wait(send);
        assert_eq!(done.result, Err(Error::Cancelled { fate: Fate::Unknown }));
        assert!(done.bytes.unwrap() == bytes(1, LONG));
        match job.wait(recv) {
            Done {
                result: Err(Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }), ..
            } => {}
            read => assert!(job.medium.reads() && read.message() == bytes(1, LONG)),
        }
    }
    assert_unharmed(job);
}

/// A long send whose receiver stops polling ends at a cancel and at its deadline, in each of its states, and returns
/// its memory. Only memory that a provider may still read is kept.
pub(crate) fn a_send_ends_though_its_receiver_does_not_poll<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let cases =
        [Owned, Borrowed].into_iter().flat_map(|whose| [1 << 14, 60_000, LONG].map(|len| (whose, len)));
    for ((whose, len), (matched, by_deadline)) in
        cases.flat_map(|case| (0..4).map(move |bits| (case, (bits & 1 > 0, bits & 2 > 0))))
    {
        let recv = matched.then(|| job.recv_as(1, exact(0, 5), len, Borrowed, NEVER));
        // Some of these sends fill the port or use up the credit. The last send waits for its turn.
        let sends: Vec<_> = (0..5).map(|_| job.send_as(0, 1, 0, 5, &bytes(1, len), whose, NEVER)).collect();
        if matched {
            // The receiver requests the first bytes, and takes none.
            job.poll();
        }
        job.poll_alone(0, |_| false);
        let (over, pending): (Vec<_>, Vec<_>) = sends.into_iter().partition(|send| job.is_over(send));
        over.into_iter().for_each(|send| assert!(job.wait(send).result.is_ok()));
        for send in pending {
            let is_registered = is_registered(&job, whose);
            if by_deadline {
                let deadline = job.now();
                job.engine(0).set_deadline(send.id.unwrap(), deadline);
                job.poll_alone(0, |_| false);
            } else {
                job.cancel(&send);
            }
            if !job.is_over(&send) {
                assert!(is_registered && !by_deadline, "{whose:?} {len} {matched} {by_deadline}");
                job.settle();
            }
            let Done { result, bytes: memory } = job.wait(send);
            assert!(is_registered || memory.is_some_and(|memory| memory == bytes(1, len)));
            match result {
                Err(Error::Cancelled { .. }) => assert!(!by_deadline),
                Err(Error::TimedOut { .. }) => assert!(by_deadline),
                // The receiver received the message before the cancel arrived, so the send has succeeded.
                other => assert!(other.is_ok() && is_registered && !by_deadline, "{other:?}"),
            }
        }
        job.settle();
        recv.into_iter().for_each(|recv| drop(job.wait(recv)));
        while let Some((_, claimed)) = job.engine(1).claim(&Pattern::any(0)).unwrap() {
            let now = job.now();
            job.engine(1).discard(now, claimed);
            job.settle();
        }
        job.settle();
    }
    assert_unharmed(job);
}

pub(crate) fn cancel_one_of_many_receives<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let mut recvs: Vec<_> = (0..5).map(|_| job.recv(1, exact(0, 5), 10)).collect();
    let cancelled = recvs.remove(2);
    job.cancel(&cancelled);
    assert_eq!(job.wait(cancelled).error(), CANCELLED);
    for (number, recv) in recvs.into_iter().enumerate() {
        let send = job.send(0, 1, 5, &bytes(number, 10));
        assert_eq!(job.wait(recv).message(), bytes(number, 10));
        assert!(job.wait(send).result.is_ok());
    }
    assert_unharmed(job);
}

pub(crate) fn cancel_twice<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = job.send(0, 1, 5, &bytes(1, LONG));
    let recv = job.recv(1, exact(0, 6), 10);
    job.settle();
    for _ in 0..2 {
        job.cancel(&send);
        job.cancel(&recv);
    }
    let fate = if is_registered(&job, Owned) { Fate::NotDelivered } else { Fate::Unknown };
    assert_eq!(job.wait(send).error(), Error::Cancelled { fate });
    assert_eq!(job.wait(recv).error(), CANCELLED);
    job.settle();
    assert_unharmed(job);
}

pub(crate) fn cancel_what_is_over<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 5), 10);
    let send = job.send(0, 1, 5, b"x");
    job.poll_until(|job| job.is_over(&recv) && job.is_over(&send));
    job.cancel(&send);
    job.cancel(&recv);
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}

pub(crate) fn forget_a_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let recv = job.recv_as(1, exact(0, 5), 10, whose, NEVER);
        job.forget(recv);
    }
    assert_unharmed(job);
}

pub(crate) fn forget_a_long_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = job.send(0, 1, 5, &bytes(1, LONG));
    job.settle();
    job.forget(send);
    job.settle();
    assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "it was taken back");
    assert_unharmed(job);
}

pub(crate) fn forget_a_borrowed_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Borrowed, NEVER);
    // The receive matches the envelope before the receiver learns that the send was abandoned.
    job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
    let recv = job.recv(1, exact(0, 5), LONG);
    if job.medium.reads() {
        // The receive read the whole message when it matched.
        assert_eq!(job.wait(recv).message(), bytes(1, LONG));
        job.forget(send);
        return assert_unharmed(job);
    }
    job.forget(send);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert_unharmed(job);
}

#[test]
fn what_is_concealed_is_not_read() {
    let mut job = pair(crate::Exposing::new(true));
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Borrowed, NEVER);
    job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
    job.engine(0).conceal();
    job.settle();
    assert!(job.engine(1).probe(&exact(0, 5)).unwrap().is_some(), "nothing was said of it");
    let recv = job.recv(1, exact(0, 5), LONG);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert!(matches!(job.wait(send).error(), Error::Abandoned { rank: WorldRank(1), .. }));
    assert_unharmed(job);
}

/// Returns a borrowed send that was matched and waits for its data to be lent, with its receive; `None` if the receiver
/// reads the exposed data, because then the send does not wait.
fn stuck_in_sending<M: Medium>(job: &mut Job<M>) -> Option<(Op, Op)> {
    let recv = job.recv_as(1, exact(0, 5), LONG, Owned, NEVER);
    job.withhold(0, true);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Borrowed, NEVER);
    job.settle();
    if job.medium.reads() {
        assert!(job.wait(send).result.is_ok());
        assert_eq!(job.wait(recv).message(), bytes(1, LONG));
        return None;
    }
    assert!(!job.is_over(&send) && !job.is_over(&recv));
    Some((send, recv))
}

/// Returns a send that was matched by a borrowed receive, which waits for its buffer to be lent.
fn stuck_in_receiving<M: Medium>(job: &mut Job<M>, whose: Whose) -> (Op, Op) {
    let recv = job.recv_as(1, exact(0, 5), LONG, Borrowed, NEVER);
    job.withhold(1, true);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER);
    job.settle();
    assert!(!job.is_over(&send) && !job.is_over(&recv));
    (send, recv)
}

pub(crate) fn forget_a_matched_borrowed_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let Some((send, recv)) = stuck_in_sending(&mut job) else { return };
    job.forget(send);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert_unharmed(job);
}

pub(crate) fn forget_a_matched_borrowed_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let (send, recv) = stuck_in_receiving(&mut job, whose);
        job.forget(recv);
        job.withhold(1, false);
        assert!(matches!(
            job.wait(send).error(),
            Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered }
        ));
    }
    assert_unharmed(job);
}

pub(crate) fn forget_a_send_whose_receiver_is_not_ready<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let (send, recv) = stuck_in_receiving(&mut job, Borrowed);
    job.forget(send);
    job.withhold(1, false);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert_unharmed(job);
}

/// An exposed message is not also copied, even if `eager_max` is more than a packet holds.
#[test]
fn what_was_forgotten_is_not_read() {
    let mut config = Config::default();
    // Without an outbox, the receiver reads the message in the sender's exposed buffer.
    (config.eager_max, config.outbox_max) = (LONG, 0);
    let mut job = Job::new(crate::Exposing::new(true), 2, &config);
    let (send, recv) = stuck_in_receiving(&mut job, Borrowed);
    job.forget(send);
    job.withhold(1, false);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert_unharmed(job);
}

fn soon<M: Medium>(job: &Job<M>) -> Time {
    job.now().after(SOON_NS)
}

#[track_caller]
fn timed_out(error: Error, awaited: &[Awaited]) -> Fate {
    let Error::TimedOut { fate, report } = error else { panic!("not timed out: {error:?}") };
    assert!(awaited.contains(&report.awaited), "{report:?}");
    fate
}

pub(crate) fn deadline_of_a_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let deadline = soon(&job);
        let recv = job.recv_as(1, exact(0, 5), 10, whose, deadline);
        let done = job.wait(recv);
        assert!(job.now() >= deadline);
        assert_eq!(done.bytes, Some(vec![0xee; 10]));
        assert_eq!(timed_out(done.result.unwrap_err(), &[Awaited::Message]), Fate::NotDelivered);
    }
    assert_unharmed(job);
}

pub(crate) fn deadline_of_a_receive_from_any<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let deadline = soon(&job);
    let recv = job.recv_as(1, Pattern::any(0), 10, Owned, deadline);
    let Error::TimedOut { report, .. } = job.wait(recv).error() else { panic!("not timed out") };
    assert_eq!((report.operation, report.peer, report.bytes), (Operation::Receive, None, 10));
    assert_unharmed(job);
}

pub(crate) fn deadline_of_a_long_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER);
        job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
        job.hurry(&send);
        let error = job.wait(send).error();
        assert_eq!(timed_out(error, &[Awaited::Match, Awaited::Fin]), Fate::Unknown);
        job.settle();
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "it was taken back");
    }
    assert_unharmed(job);
}

pub(crate) fn deadline_of_a_matched_send<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let Some((send, recv)) = stuck_in_sending(&mut job) else { return };
    job.hurry(&send);
    assert_eq!(timed_out(job.wait(send).error(), &[Awaited::Bytes]), Fate::NotDelivered);
    assert!(matches!(
        job.wait(recv).error(),
        Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
    ));
    assert_unharmed(job);
}

pub(crate) fn deadline_of_a_matched_receive<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for whose in [Owned, Borrowed] {
        let (send, recv) = stuck_in_receiving(&mut job, whose);
        job.hurry(&recv);
        assert_eq!(timed_out(job.wait(recv).error(), &[Awaited::Bytes]), Fate::NotDelivered);
        job.withhold(1, false);
        assert!(matches!(
            job.wait(send).error(),
            Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered }
        ));
    }
    assert_unharmed(job);
}

pub(crate) fn deadline_already_passed<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv_as(1, exact(0, 5), 10, Owned, Time::ZERO);
    timed_out(job.wait(recv).error(), &[Awaited::Message]);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Owned, Time::ZERO);
    timed_out(job.wait(send).error(), &[Awaited::Room, Awaited::Match, Awaited::Fin]);
    job.settle();
    assert_unharmed(job);
}

/// The envelope has arrived, and the other bytes of the message wait in the port. A receive whose deadline has passed
/// must still get these bytes.
fn passed<M: Medium>(medium: M, len: usize, claims: bool) {
    let mut config = Config::default();
    config.window_min = 1 << 20;
    let mut job = Job::new(medium, 2, &config);
    let ahead = job.send(0, 1, 4, b"ahead");
    let recv = job.recv(1, exact(0, 4), 5);
    assert!(job.wait(ahead).result.is_ok() && job.wait(recv).result.is_ok());
    job.settle();

    let send = job.send_as(0, 1, 0, 5, &bytes(1, len), Borrowed, NEVER);
    let knows = |job: &mut Job<M>| job.engine(1).probe(&exact(0, 5)).expect("the sender lives").is_some();
    if !job.poll_alone(1, knows) {
        // The envelope is sent when the sender polls next.
        job.poll_alone(0, |_| false);
        assert!(job.poll_alone(1, knows), "it has come");
    }
    // False if the rest of the message can be sent only after the receiver has polled.
    let is_sent = job.poll_alone(0, |job| job.is_over(&send));
    job.poll_alone(0, |_| false);

    let now = job.now();
    let recv = match claims {
        true => {
            let (_, claimed) = job.engine(1).claim(&exact(0, 5)).unwrap().unwrap();
            let id = job.engine(1).recv_claimed(now, claimed, Ok(Memory::zeroed(len)), now);
            Op::of(1, id)
        }
        false => job.recv_as(1, exact(0, 5), len, Owned, now),
    };
    let done = job.wait(recv);
    match done.result {
        Ok(_) => assert!(done.message() == bytes(1, len)),
        Err(error) => {
            let is_there = is_sent && job.medium.is_prompt();
            assert!(!is_there && matches!(error, Error::TimedOut { .. }), "{error:?}");
        }
    }
    assert!(job.wait(send).result.is_ok() || !is_sent);
    assert_unharmed(job);
}

pub(crate) fn deadline_passed_but_eager_arrived<M: Medium>(medium: M) {
    passed(medium, 10, false);
}

pub(crate) fn deadline_passed_but_eager_claimed<M: Medium>(medium: M) {
    passed(medium, 10, true);
}

pub(crate) fn deadline_passed_but_long_arrived<M: Medium>(medium: M) {
    passed(medium, 50_000, false);
}

pub(crate) fn deadline_passed_but_long_claimed<M: Medium>(medium: M) {
    passed(medium, 50_000, true);
}

pub(crate) fn deadline_passed_but_longer_arrived<M: Medium>(medium: M) {
    passed(medium, 250_000, false);
}

pub(crate) fn deadline_passed_but_longer_claimed<M: Medium>(medium: M) {
    passed(medium, 250_000, true);
}

pub(crate) fn deadline_after_the_end<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 5), 10);
    let send = job.send(0, 1, 5, b"x");
    job.poll_until(|job| job.is_over(&recv) && job.is_over(&send));
    let deadline = job.hurry(&recv).max(job.hurry(&send));
    job.poll_until(|job| job.now() > deadline);
    job.poll();
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}

pub(crate) fn deadline_moved<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 5), 10);
    let deadline = job.hurry(&recv);
    timed_out(job.wait(recv).error(), &[Awaited::Message]);
    assert!(job.now() >= deadline);
    assert_unharmed(job);
}

pub(crate) fn deadline_removed_by_moving<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 5), 10);
    let first = job.hurry(&recv);
    job.engine(1).set_deadline(recv.id.unwrap(), NEVER);
    job.poll_until(|job| job.now() > first);
    job.poll();
    assert!(!job.is_over(&recv));
    let send = job.send(0, 1, 5, b"x");
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}

pub(crate) fn a_timed_out_receive_takes_nothing<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let deadline = soon(&job);
    let early = job.recv_as(1, exact(0, 5), 10, Owned, deadline);
    timed_out(job.wait(early).error(), &[Awaited::Message]);
    let recv = job.recv(1, exact(0, 5), 10);
    let send = job.send(0, 1, 5, b"x");
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}

pub(crate) fn reports_say_what_was_awaited<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let send = job.send(0, 1, 77, &bytes(1, LONG));
    job.poll_until(|job| job.engine(1).probe(&exact(0, 77)).unwrap().is_some());
    job.hurry(&send);
    let Error::TimedOut { report, .. } = job.wait(send).error() else { panic!("not timed out") };
    assert_eq!(
        (report.operation, report.peer, report.tag, report.bytes),
        (Operation::Send, Some(WorldRank(1)), 77, LONG)
    );
    assert!(report.age_ns >= SOON_NS, "{report:?}");
    assert_eq!(report.awaited, if job.pulls() { Awaited::Fin } else { Awaited::Match });
    job.settle();
    assert_unharmed(job);
}

pub(crate) fn collect_once<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let recv = job.recv(1, exact(0, 5), 10);
    let id = recv.id.unwrap();
    let send = job.send(0, 1, 5, b"x");
    assert!(job.engine(1).collect(id, &mut ()).is_none(), "not before it has ended");
    assert_eq!(job.wait(recv).message(), b"x");
    assert!(job.engine(1).collect(id, &mut ()).is_none());
    job.engine(1).cancel(id);
    job.engine(1).forget(id);
    assert!(job.wait(send).result.is_ok());
    assert_unharmed(job);
}
