//! Messages whose types the receiver checks.

use std::sync::Arc;

use samite_fabric::layout::Signature;
use samite_p2p::{Config, Error, Fate, How, Mode, SendBuffer, Status, Typed, WorldRank};

use crate::job::{Borrowed, Done, Job, Medium, NEVER, Op, Owned, Whose, bytes, exact};

/// Lengths of messages in one packet, in several packets, and longer than any credit. With 8,144 to 8,152 bytes a
/// message fits into one packet of many ports only without its signature.
const LENGTHS: [usize; 7] = [8, 3000, 8150, 16 << 10, 16 * 1024 - 8, 100_000, 400_000];

/// The number of modes that `send` knows.
const MODES: usize = 4;

fn pair<M: Medium>(medium: M) -> Job<M> {
    Job::new(medium, 2, &Config::default())
}

/// Returns the types of a call: bytes for the number 0, and a different type for each other number.
fn typed(number: u8) -> Typed {
    let signature = if number == 0 { Signature::BYTES } else { Signature::from_digest([number; 6]) };
    Typed { signature, call: "the receive" }
}

/// Starts a send from rank 0 to rank 1 in a mode, given by its number.
#[track_caller]
fn send<M: Medium>(job: &mut Job<M>, mode: usize, number: u8, bytes: &[u8], whose: Whose) -> Op {
    let buffer = Arc::new(SendBuffer::new(1 << 20));
    let modes = [Mode::Standard, Mode::Synchronous, Mode::Buffered(&buffer), Mode::Ready];
    let how = How { mode: modes[mode], typed: Some(typed(number)) };
    job.send_in(how, 0, 1, 5, bytes, whose).expect("it begins")
}

#[track_caller]
fn assert_refused(done: Done, sent: u8, expected: u8, bytes: usize) {
    let status = Status { source: WorldRank(0), tag: 5, bytes };
    let (sent, Typed { signature: expected, call }) = (typed(sent).signature, typed(expected));
    assert_eq!(done.result, Err(Error::TypesDiffer { status, call, sent, expected }));
    assert!(done.bytes.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0xee)), "the buffer is unchanged");
}

/// Calls `check` for each mode, length and owner of the buffers.
fn for_all<M: Medium>(medium: M, mut check: impl FnMut(&mut Job<M>, usize, usize, Whose)) {
    let mut job = pair(medium);
    for mode in 0..MODES {
        for len in LENGTHS {
            for whose in [Owned, Borrowed] {
                check(&mut job, mode, len, whose);
                job.assert_at_rest();
            }
        }
    }
}

pub(crate) fn a_message_of_other_types_is_an_error_of_its_receive_alone<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        let recv = job.recv_typed(typed(2), 1, exact(0, 5), len, whose);
        let other = send(job, mode, 1, &bytes(1, len), whose);
        assert_refused(job.wait(recv), 1, 2, len);
        assert!(job.wait(other).result.is_ok());
        // The next message of the same sender is received as usual.
        let recv = job.recv_typed(typed(2), 1, exact(0, 5), len + 1, whose);
        let same = send(job, mode, 2, &bytes(2, len), whose);
        assert!(job.wait(recv).message() == bytes(2, len), "mode {mode}, {len} bytes");
        assert!(job.wait(same).result.is_ok());
    });
}

pub(crate) fn a_waiting_message_keeps_its_types<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        if mode == MODES - 1 {
            return;
        }
        let sends = [1, 2].map(|number| send(job, mode, number, &bytes(number.into(), len), whose));
        job.settle();
        let recv = job.recv_typed(typed(2), 1, exact(0, 5), len, whose);
        assert_refused(job.wait(recv), 1, 2, len);
        let recv = job.recv_typed(typed(2), 1, exact(0, 5), len, whose);
        assert!(job.wait(recv).message() == bytes(2, len), "mode {mode}, {len} bytes");
        for send in sends {
            assert!(job.wait(send).result.is_ok());
        }
    });
}

pub(crate) fn a_claimed_message_keeps_its_types<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        if mode == MODES - 1 {
            return;
        }
        for (expected, settles) in [(1, false), (2, true), (2, false)] {
            let sent = send(job, mode, 1, &bytes(1, len), whose);
            job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
            let (_, claimed) = job.claim(1, exact(0, 5));
            if settles {
                job.settle();
            }
            let recv = job.recv_claim_as(Some(typed(expected)), 1, claimed, len, whose);
            let done = job.wait(recv);
            match expected {
                1 => assert!(done.message() == bytes(1, len), "mode {mode}, {len} bytes"),
                expected => assert_refused(done, 1, expected, len),
            }
            assert!(job.wait(sent).result.is_ok());
        }
    });
}

/// A rank that checks no types exchanges messages with a rank that checks them. Bytes agree with every type, and so
/// does a message without elements.
pub(crate) fn only_known_types_are_compared<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        for (sent, expected) in [(Some(1), None), (None, Some(1)), (Some(0), Some(1)), (Some(1), Some(0))] {
            let recv = match expected {
                Some(number) => job.recv_typed(typed(number), 1, exact(0, 5), len, whose),
                None => job.recv_as(1, exact(0, 5), len, whose, NEVER),
            };
            let sent = match sent {
                Some(number) => send(job, mode, number, &bytes(1, len), whose),
                None => job.send_as(0, 1, 0, 5, &bytes(1, len), whose, NEVER),
            };
            assert!(job.wait(recv).message() == bytes(1, len), "mode {mode}, {len} bytes");
            assert!(job.wait(sent).result.is_ok());
        }
        let recv = job.recv_typed(typed(1), 1, exact(0, 5), len, whose);
        let empty = send(job, mode, 2, &[], whose);
        assert!(job.wait(recv).message().is_empty());
        assert!(job.wait(empty).result.is_ok());
    });
}

/// If a message has other types and is too long too, the error reports the types, because they are the cause of the
/// length in most cases.
pub(crate) fn other_types_come_before_a_wrong_length<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        let recv = job.recv_typed(typed(2), 1, exact(0, 5), len - 1, whose);
        let sent = send(job, mode, 1, &bytes(1, len), whose);
        assert_refused(job.wait(recv), 1, 2, len);
        assert!(job.wait(sent).result.is_ok());
    });
}

pub(crate) fn a_cancelled_send_and_a_cancelled_receive_leave_nothing<M: Medium>(medium: M) {
    for_all(medium, |job, mode, len, whose| {
        let recv = job.recv_typed(typed(1), 1, exact(0, 5), len, whose);
        job.cancel(&recv);
        assert_eq!(job.wait(recv).result, Err(Error::Cancelled { fate: Fate::NotDelivered }));
        if mode == 1 {
            let sent = send(job, mode, 1, &bytes(1, len), whose);
            job.settle();
            job.cancel(&sent);
            let ended = job.wait(sent).result;
            assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
            job.settle();
        }
    });
}

/// A message that has arrived whole outlives its sender, and keeps its types.
pub(crate) fn a_message_of_a_rank_that_failed_keeps_its_types<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for _ in 0..2 {
        let sent = send(&mut job, 0, 1, &bytes(1, 100), Owned);
        assert!(job.wait(sent).result.is_ok());
    }
    let awaits = send(&mut job, 1, 1, &bytes(1, 100), Owned);
    job.settle();
    assert!(!job.is_over(&awaits));
    job.kill(0);
    for expected in [2, 1, 2] {
        let recv = job.recv_typed(typed(expected), 1, exact(0, 5), 100, Borrowed);
        let done = job.wait(recv);
        match expected {
            1 => assert!(done.message() == bytes(1, 100)),
            expected => assert_refused(done, 1, expected, 100),
        }
    }
    let none = job.try_recv(1, exact(0, 5), 100, Owned, NEVER).err();
    assert!(matches!(none, Some(Error::PeerFailed { .. })), "{none:?}");
}

/// The receiver's half ends with the error of the types, and the sender's half because the receiver has given up.
pub(crate) fn halves_of_other_types_are_no_pair<M: Medium>(medium: M) {
    let mut job = pair(medium);
    for receives_first in [false, true] {
        let now = job.now();
        let init_send = |job: &mut Job<M>, number: u8| {
            job.engine(0).psend_init(now, WorldRank(1), 0, 5, 100, 2, typed(number).signature).unwrap()
        };
        let init_recv = |job: &mut Job<M>, number: u8| {
            job.engine(1).precv_init(now, WorldRank(0), 0, 5, 100, Some(typed(number))).unwrap()
        };
        let (send, recv) = match receives_first {
            true => {
                let recv = init_recv(&mut job, 2);
                (init_send(&mut job, 1), recv)
            }
            false => {
                let send = init_send(&mut job, 1);
                job.settle();
                (send, init_recv(&mut job, 2))
            }
        };
        job.settle();
        let status = Status { source: WorldRank(0), tag: 5, bytes: 100 };
        let (sent, Typed { signature: expected, call }) = (typed(1).signature, typed(2));
        let differ = Error::TypesDiffer { status, call, sent, expected };
        assert_eq!(job.engine(1).partitioned_end(recv), Some(differ));
        let abandoned = Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered };
        assert_eq!(job.engine(0).partitioned_end(send), Some(abandoned));
        // The next pair is not affected.
        let (good, other) = (init_send(&mut job, 2), init_recv(&mut job, 2));
        job.settle();
        assert_eq!((job.engine(0).partitioned_end(good), job.engine(1).partitioned_end(other)), (None, None));
        for (rank, half) in [(0, send), (1, recv), (0, good), (1, other)] {
            job.engine(rank).free_partitioned(now, half);
        }
        job.assert_at_rest();
    }
}
