//! Races of cancels with matches: each case is repeated with the cancel after 0, 1, 2, … polls.

use samite_p2p::{Awaited, Config, Error, Fate, Mode};

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, Whose, bytes, exact};

/// The number of repetitions of each case, with the cancel after 0 polls to `POLLS - 1` polls. On a prompt port every
/// transfer of these tests takes fewer polls.
const POLLS: usize = 16;
const LENGTHS: [usize; 3] = [100, 5000, 100_000];

/// The operation that begins first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Send,
    Receive,
}

/// Runs races for each length and mode, with owned memory and the send first, and with borrowed memory and the receive
/// first. Each race is repeated with each number of polls before the cancel. `cancels` tells if the send or the receive
/// is cancelled.
fn race<M: Medium>(medium: M, cancels: First) {
    let mut config = Config::default();
    (config.push_window, config.pull_chunk) = (20_000, 20_000);
    (config.put_min, config.put_chunk) = (1 << 16, 20_000);
    let mut job = Job::new(medium, 2, &config);
    for len in LENGTHS {
        for mode in [None, Some(Mode::Synchronous)] {
            for (whose, first) in [(Owned, First::Send), (Borrowed, First::Receive)] {
                (0..POLLS).for_each(|polls| one(&mut job, (len, mode, whose, first), polls, cancels));
            }
        }
    }
    job.assert_at_rest();
}

/// Runs one race, and checks its result.
fn one<M: Medium>(
    job: &mut Job<M>,
    (len, mode, whose, first): (usize, Option<Mode<'_>>, Whose, First),
    polls: usize,
    cancels: First,
) {
    let case =
        format!("{len} bytes, {mode:?}, {whose:?}, {first:?} first, {cancels:?} cancelled after {polls}");
    let data = bytes(polls, len);
    let recv = (first == First::Receive).then(|| job.recv_as(1, exact(0, 5), len, whose, NEVER));
    let send = match mode {
        Some(mode) => job.send_in(mode, 0, 1, 5, &data, whose).expect("it begins"),
        None => job.send_as(0, 1, 0, 5, &data, whose, NEVER),
    };
    let recv = recv.unwrap_or_else(|| job.recv_as(1, exact(0, 5), len, whose, NEVER));
    (0..polls).for_each(|_| _ = job.poll());
    job.cancel(if cancels == First::Send { &send } else { &recv });
    job.settle();
    if cancels == First::Receive && !job.is_over(&send) {
        // The receive was cancelled before it had matched the message.
        job.cancel(&send);
        job.settle();
    }
    let sent = job.wait(send).result;
    let is_pending = !job.is_over(&recv);
    job.cancel(&recv);
    let received = job.wait(recv);
    match &received.result {
        Ok(_) => {
            assert!(received.bytes.as_ref() == Some(&data), "{case}: it has all of it");
            let fate = match &sent {
                Ok(_) | Err(Error::Cancelled { fate: Fate::Unknown }) => None,
                other => Some(other),
            };
            assert_eq!(fate, None, "{case}");
        }
        Err(Error::Cancelled { fate: Fate::NotDelivered }) => {
            assert!(received.bytes.unwrap().iter().all(|&byte| byte == 0xee), "{case}: it has nothing of it");
            let is_told = match cancels {
                First::Send => is_pending && matches!(sent, Err(Error::Cancelled { .. })),
                // The message waits for another receive, or was taken back.
                First::Receive => matches!(sent, Ok(_) | Err(Error::Cancelled { .. })),
            };
            assert!(is_told, "{case}: {sent:?}");
        }
        // The send was cancelled after the receiver had requested the bytes, or while the bytes followed their
        // envelope.
        Err(Error::Abandoned { .. }) => {
            assert_eq!(cancels, First::Send, "{case}");
            assert!(matches!(sent, Err(Error::Cancelled { .. })), "{case}: {sent:?}");
        }
        other => panic!("{case}: {other:?}"),
    }
    job.settle();
    if let Ok(Some((status, claimed))) = job.engine(1).claim(&exact(0, 5)) {
        assert!(cancels == First::Receive && sent.is_ok() && status.bytes == len, "{case}");
        let recv = job.recv_claim(1, claimed, len, Owned);
        assert!(job.wait(recv).message() == data, "{case}: another receive has all of it");
    }
}

/// Each case is repeated with the deadline of the receive after 0, 1, 2, … polls. If a part of the message may be in
/// the buffer, the error says that the receive waited for the message's bytes.
pub(crate) fn a_receive_that_timed_out_tells_if_it_has_a_part<M: Medium>(medium: M) {
    let mut config = Config::default();
    (config.push_window, config.pull_chunk) = (20_000, 20_000);
    let mut job = Job::new(medium, 2, &config);
    for (len, polls) in LENGTHS.into_iter().flat_map(|len| (0..POLLS).map(move |polls| (len, polls))) {
        for (whose, first) in [(Owned, First::Send), (Borrowed, First::Receive)] {
            let case = format!("{len} bytes, {whose:?}, {first:?} first, after {polls}");
            let data = bytes(polls, len);
            let recv = (first == First::Receive).then(|| job.recv_as(1, exact(0, 5), len, whose, NEVER));
            let send = job.send_as(0, 1, 0, 5, &data, whose, NEVER);
            let recv = recv.unwrap_or_else(|| job.recv_as(1, exact(0, 5), len, whose, NEVER));
            (0..polls).for_each(|_| _ = job.poll());
            if let (false, Some(id)) = (job.is_over(&recv), recv.id) {
                let now = job.now();
                job.engine(1).set_deadline(id, now);
                // The sender sends no more bytes before the receive has ended.
                job.poll_alone(1, |job| job.is_over(&recv));
            }
            let received = job.wait(recv);
            match received.result {
                Ok(_) => assert!(received.bytes.as_ref() == Some(&data), "{case}: it has all of it"),
                Err(Error::TimedOut { fate: Fate::NotDelivered, report }) => {
                    let is_untouched =
                        received.bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0xee));
                    assert!(report.awaited == Awaited::Bytes || is_untouched, "{case}: {report:?}");
                }
                other => panic!("{case}: {other:?}"),
            }
            job.settle();
            if let Ok(Some((_, claimed))) = job.engine(1).claim(&exact(0, 5)) {
                let recv = job.recv_claim(1, claimed, len, Owned);
                assert!(job.wait(recv).message() == data, "{case}: another receive has all of it");
            }
            let sent = job.wait(send).result;
            assert!(matches!(sent, Ok(_) | Err(Error::Abandoned { .. })), "{case}: {sent:?}");
        }
    }
    job.assert_at_rest();
}

pub(crate) fn a_cancelled_send_is_whole_or_nothing<M: Medium>(medium: M) {
    race(medium, First::Send);
}

pub(crate) fn a_cancelled_receive_is_whole_or_nothing<M: Medium>(medium: M) {
    race(medium, First::Receive);
}
