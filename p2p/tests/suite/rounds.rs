//! Persistent operations: a message is sent at once, without a request, or is queued behind earlier messages.

use samite_p2p::{Config, Error, Status, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, Started, bytes, exact};

pub(crate) fn rounds_of_every_kind<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    for len in [0, 8, 1000, 100_000] {
        for round in 0..6 {
            let data = bytes(round, len);
            let post = |job: &mut Job<M>| job.recv_as(1, exact(0, 5), len, Started, NEVER);
            let early = (round % 2 == 0).then(|| post(&mut job));
            let send = job.send_as(0, 1, 0, 5, &data, Started, NEVER);
            let receive = early.unwrap_or_else(|| {
                job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
                post(&mut job)
            });
            let received = job.wait(receive);
            assert_eq!(
                received.result,
                Ok(Status { source: WorldRank(0), tag: 5, bytes: len }),
                "{len} {round}"
            );
            assert!(received.message() == data, "{len} {round}");
            assert_eq!(job.wait(send).result, Ok(Status { source: WorldRank(1), tag: 5, bytes: len }));
        }
    }
    job.assert_at_rest();
}

/// A message that could be sent at once does not overtake earlier messages that wait.
pub(crate) fn rounds_keep_order<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    let kinds = [Started, Owned, Borrowed];
    // Before the ranks have exchanged a packet, all messages wait.
    let sends: Vec<_> = (0..60)
        .map(|number| {
            let len = if number % 7 == 3 { 50_000 } else { number };
            job.send_as(0, 1, 0, 5, &bytes(number, len), kinds[number % 3], NEVER)
        })
        .collect();
    for number in 0..60 {
        let len = if number % 7 == 3 { 50_000 } else { number };
        let receive = job.recv_as(1, exact(0, 5), 50_000, Owned, NEVER);
        assert!(job.wait(receive).message() == bytes(number, len), "{number}");
    }
    for send in sends {
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn a_start_to_the_dead_is_refused<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &Config::default());
    let receive = job.recv(1, exact(0, 5), 8);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, 8), Started, NEVER);
    assert!(job.wait(receive).result.is_ok() && job.wait(send).result.is_ok());
    job.kill(1);
    let refused = job.try_send(0, 1, 0, 5, &bytes(1, 8), Started, NEVER);
    assert!(matches!(refused, Err(Error::PeerFailed { rank: WorldRank(1), .. })), "{refused:?}");
    let refused = job.try_send(0, 2, 0, 5, &bytes(1, 8), Started, NEVER);
    assert!(matches!(refused, Err(Error::InvalidRank { rank: WorldRank(2), size: 2 })), "{refused:?}");
}
