//! Sends in modes other than standard mode.

use std::sync::Arc;

use samite_p2p::{Cause, Config, Error, Fate, KEPT_OVERHEAD, Mode, SendBuffer, Status, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Op, Owned, Whose, bytes, exact, killed};

/// Lengths of messages in one packet, in several packets, and longer than any credit.
const LENGTHS: [usize; 6] = [0, 8, 3000, 16 << 10, 100_000, 400_000];

fn pair<M: Medium>(medium: M) -> Job<M> {
    Job::new(medium, 2, &Config::default())
}

/// Starts a synchronous send from rank 0 to rank 1.
#[track_caller]
fn ssend<M: Medium>(job: &mut Job<M>, tag: u64, bytes: &[u8], whose: Whose) -> Op {
    job.send_in(Mode::Synchronous, 0, 1, tag, bytes, whose).expect("it begins")
}

/// Calls `check` for each length and each owner of the sent data.
fn for_all<M: Medium>(medium: M, mut check: impl FnMut(&mut Job<M>, usize, Whose)) {
    let mut job = pair(medium);
    for len in LENGTHS {
        for whose in [Owned, Borrowed] {
            check(&mut job, len, whose);
            job.assert_at_rest();
        }
    }
}

pub(crate) fn a_synchronous_send_ends_with_its_match<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        assert!(!job.is_over(&send), "{len} bytes, without a receive");
        assert_eq!(job.engine(1).probe(&exact(0, 5)).unwrap().map(|status| status.bytes), Some(len));
        job.settle();
        assert!(!job.is_over(&send), "{len} bytes, and a probe");
        let recv = job.recv(1, exact(0, 5), len);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert_eq!(job.wait(send).result, Ok(Status { source: WorldRank(1), tag: 5, bytes: len }));
    });
}

pub(crate) fn a_synchronous_send_ends_with_a_posted_receive<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let recv = job.recv_as(1, exact(0, 5), len, whose, NEVER);
        let send = ssend(job, 5, &bytes(1, len), whose);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn a_synchronous_send_ends_with_the_receive_of_its_claim<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        let (status, claimed) = job.claim(1, exact(0, 5));
        job.settle();
        assert!(!job.is_over(&send), "{len} bytes, claimed only");
        let recv = job.recv_claim(1, claimed, status.bytes, whose);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn a_discarded_synchronous_message_was_received<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        let (_, claimed) = job.claim(1, exact(0, 5));
        let now = job.now();
        job.engine(1).discard(now, claimed);
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn a_synchronous_send_to_a_shorter_buffer_ends<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let Some(room) = len.checked_sub(1) else { return };
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        let recv = job.recv_as(1, exact(0, 5), room, whose, NEVER);
        assert!(matches!(job.wait(recv).error(), Error::Truncated { .. }));
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn synchronous_messages_keep_their_order<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let message = |at: usize| bytes(at, LENGTHS[at % LENGTHS.len()]);
    let sends: Vec<_> = (0..24)
        .map(|at| match at % 3 {
            0 => job.send_as(0, 1, 0, 5, &message(at), Borrowed, NEVER),
            1 => ssend(&mut job, 5, &message(at), Owned),
            _ => ssend(&mut job, 5, &message(at), Borrowed),
        })
        .collect();
    job.settle();
    for at in 0..24 {
        let recv = job.recv(1, exact(0, 5), 400_000);
        assert!(job.wait(recv).message() == message(at), "message {at}");
    }
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn a_synchronous_send_is_withdrawn<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        job.cancel(&send);
        let done = job.wait(send);
        assert!(matches!(done.result, Err(Error::Cancelled { .. })), "{:?}", done.result);
        job.settle();
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "{len} bytes");
        let send = ssend(job, 5, &bytes(2, len), whose);
        job.settle();
        let deadline = job.hurry(&send);
        job.poll_until(|job| job.now() >= deadline);
        assert!(matches!(job.wait(send).result, Err(Error::TimedOut { fate: Fate::Unknown, .. })));
        job.settle();
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "{len} bytes");
        let send = ssend(job, 5, &bytes(3, len), whose);
        job.settle();
        job.forget(send);
        job.settle();
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "{len} bytes");
    });
}

/// A cancel that comes after the match does not take the message away from its receive.
pub(crate) fn a_synchronous_send_that_matched_is_delivered<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let send = ssend(job, 5, &bytes(1, len), whose);
        job.settle();
        let recv = job.recv(1, exact(0, 5), len);
        job.settle();
        job.cancel(&send);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok(), "{len} bytes");
    });
}

pub(crate) fn a_synchronous_message_outlives_its_sender<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    let _send = ssend(&mut job, 5, &bytes(1, 300), Owned);
    job.settle();
    job.kill(0);
    let recv = job.recv(1, exact(0, 5), 300);
    assert!(job.wait(recv).message() == bytes(1, 300));
    job.assert_at_rest();
}

/// If the sender restarts before its claimed message is received, the receive sends no answer to the new incarnation.
pub(crate) fn a_claimed_synchronous_message_outlives_its_sender<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    let _send = ssend(&mut job, 5, &bytes(1, 300), Owned);
    job.settle();
    let (_, claimed) = job.claim(1, exact(0, 5));
    job.kill(0);
    job.restart(0);
    // The restarted sender gives this message the number that the claimed message had.
    let send = ssend(&mut job, 6, &bytes(2, 300), Owned);
    job.settle();
    let recv = job.recv_claim(1, claimed, 300, Owned);
    assert!(job.wait(recv).message() == bytes(1, 300));
    job.settle();
    assert!(!job.is_over(&send));
    let recv = job.recv(1, exact(0, 6), 300);
    assert!(job.wait(recv).message() == bytes(2, 300));
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

pub(crate) fn death_ends_a_synchronous_send<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    let sends: Vec<_> = LENGTHS.map(|len| ssend(&mut job, 5, &bytes(1, len), Owned)).into();
    job.settle();
    job.kill(1);
    for send in sends {
        let Error::PeerFailed { rank: WorldRank(1), cause, fate: Fate::Unknown, .. } = job.wait(send).error()
        else {
            panic!()
        };
        assert_eq!(cause, killed());
    }
    let refused = job.send_in(Mode::Synchronous, 0, 1, 5, b"", Owned).map(|_| ());
    assert!(matches!(refused, Err(Error::PeerFailed { fate: Fate::NotDelivered, .. })), "{refused:?}");
}

pub(crate) fn synchronous_sends_without_credit<M: Medium>(medium: M) {
    let mut config = Config::default();
    config.unexpected_max = 0;
    let mut job = Job::new(medium, 2, &config);
    let sends = LENGTHS.map(|len| ssend(&mut job, len as u64, &bytes(1, len), Borrowed));
    job.settle();
    for (send, len) in sends.into_iter().zip(LENGTHS) {
        assert!(!job.is_over(&send));
        let recv = job.recv(1, exact(0, len as u64), len);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn a_synchronous_send_to_self<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for len in LENGTHS {
        let send = job.send_in(Mode::Synchronous, 1, 1, 5, &bytes(1, len), Owned).unwrap();
        job.settle();
        assert!(!job.is_over(&send));
        let recv = job.recv(1, exact(1, 5), len);
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn a_ready_send_needs_its_receive<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let other = job.recv(1, exact(0, 6), 8);
        let send = job.send_in(Mode::Ready, 0, 1, 5, &bytes(1, len), whose).unwrap();
        assert_eq!(job.wait(send).error(), Error::NotPosted { rank: WorldRank(1) });
        assert_eq!(job.engine(1).probe(&exact(0, 5)), Ok(None), "it is dropped");
        let send = job.send(0, 1, 6, &bytes(1, 8));
        assert!(job.wait(other).message() == bytes(1, 8));
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn a_ready_send_that_meets_a_receive<M: Medium>(medium: M) {
    for_all(medium, |job, len, whose| {
        let recv = job.recv_as(1, exact(0, 5), len, whose, NEVER);
        job.settle();
        let send = job.send_in(Mode::Ready, 0, 1, 5, &bytes(1, len), whose).unwrap();
        assert!(job.wait(recv).message() == bytes(1, len));
        assert!(job.wait(send).result.is_ok());
    });
}

pub(crate) fn buffered_sends_end_at_once<M: Medium>(medium: M) {
    let buffer = Arc::new(SendBuffer::new(1 << 20));
    for_all(medium, |job, len, whose| {
        for tag in 0..2 {
            let send = job.send_in(Mode::Buffered(&buffer), 0, 1, tag, &bytes(1, len), whose).unwrap();
            assert!(job.is_over(&send), "{len} bytes");
            assert!(job.wait(send).result.is_ok());
        }
        for tag in [1, 0] {
            let recv = job.recv(1, exact(0, tag), len);
            assert!(job.wait(recv).message() == bytes(1, len));
        }
        job.poll_until(|_| buffer.used() == 0);
    });
}

pub(crate) fn a_buffer_has_a_budget<M: Medium>(medium: M) {
    let mut config = Config::default();
    // No message can be sent at once.
    config.unexpected_max = 0;
    let mut job = Job::new(medium, 2, &config);
    let buffer = Arc::new(SendBuffer::new(2 * (100 + KEPT_OVERHEAD)));
    let send = |job: &mut Job<M>, len, whose| {
        let sent = job.send_in(Mode::Buffered(&buffer), 0, 1, 5, &bytes(len, len), whose);
        sent.map(|op| assert!(job.wait(op).result.is_ok()))
    };
    assert_eq!(send(&mut job, 100, Owned), Ok(()));
    assert_eq!(send(&mut job, 99, Borrowed), Ok(()));
    for whose in [Owned, Borrowed] {
        assert!(matches!(send(&mut job, 100, whose), Err(Error::Exhausted { .. })));
    }
    assert_eq!(job.usages()[0].outbox, buffer.used());
    for len in [100, 99] {
        let recv = job.recv(1, exact(0, 5), len);
        assert!(job.wait(recv).message() == bytes(len, len), "what was refused is not sent");
    }
    job.poll_until(|_| buffer.used() == 0);
    assert_eq!(send(&mut job, 200 + KEPT_OVERHEAD, Owned), Ok(()), "all of it is free again");
    let recv = job.recv(1, exact(0, 5), 1000);
    assert!(job.wait(recv).message() == bytes(200 + KEPT_OVERHEAD, 200 + KEPT_OVERHEAD));
    job.assert_at_rest();
}

pub(crate) fn buffered_messages_keep_their_order<M: Medium>(medium: M) {
    let mut job = pair(medium);
    let buffer = Arc::new(SendBuffer::new(8 << 20));
    let message = |at: usize| bytes(at, LENGTHS[at % LENGTHS.len()]);
    let sends: Vec<_> = (0..24)
        .map(|at| match at % 3 {
            0 => job.send_as(0, 1, 0, 5, &message(at), Borrowed, NEVER),
            1 => ssend(&mut job, 5, &message(at), Owned),
            _ => job.send_in(Mode::Buffered(&buffer), 0, 1, 5, &message(at), Borrowed).unwrap(),
        })
        .collect();
    job.settle();
    for at in 0..24 {
        let recv = job.recv(1, exact(0, 5), 400_000);
        assert!(job.wait(recv).message() == message(at), "message {at}");
    }
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
    assert_eq!(buffer.used(), 0);
}

pub(crate) fn buffered_messages_to_the_dead_leave_the_buffer<M: Medium>(medium: M) {
    let mut config = Config::default();
    config.unexpected_max = 0;
    let mut job = Job::new(medium, 2, &config);
    let buffer = Arc::new(SendBuffer::new(1 << 20));
    for len in LENGTHS {
        let send = job.send_in(Mode::Buffered(&buffer), 0, 1, 5, &bytes(1, len), Borrowed).unwrap();
        assert!(job.wait(send).result.is_ok());
    }
    job.settle();
    job.kill(1);
    job.settle();
    assert_eq!((buffer.used(), job.engine(0).counters().lost), (0, LENGTHS.len() as u64));
}

pub(crate) fn a_goodbye_comes_after_buffered_messages<M: Medium>(medium: M) {
    let mut config = Config::default();
    config.unexpected_max = 0;
    let mut job = Job::new(medium, 2, &config);
    let buffer = Arc::new(SendBuffer::new(1 << 20));
    let lengths = [8, 16 << 10, 400_000];
    for len in lengths {
        let send = job.send_in(Mode::Buffered(&buffer), 0, 1, 5, &bytes(1, len), Borrowed).unwrap();
        assert!(job.wait(send).result.is_ok());
    }
    let receives = lengths.map(|len| job.recv(1, exact(0, 5), len));
    job.leave(0);
    for (recv, len) in receives.into_iter().zip(lengths) {
        assert!(job.wait(recv).message() == bytes(1, len));
    }
    let none = job.try_recv(1, exact(0, 5), 8, Owned, NEVER).map(|_| ());
    assert!(matches!(none, Err(Error::PeerFailed { cause: Cause::Left, .. })), "{none:?}");
}
