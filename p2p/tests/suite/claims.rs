//! Claimed messages whose senders leave, die or restart before the receive.

use samite_p2p::{Cause, Claimed, Config, Error, Fate, Status, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, bytes, exact, killed};

/// The largest number of bytes of a message that its sender may send right after the envelope. Most ports have room for
/// only a part of them.
const LONG: usize = 256 << 10;

fn trio<M: Medium>(medium: M) -> Job<M> {
    let mut config = Config::default();
    // With this credit several long messages can be sent ahead of their receives.
    config.window_min = 1 << 20;
    Job::new(medium, 3, &config)
}

/// Claims a long message of rank 1 at rank 0 as soon as its envelope is there. Returns the claim, and true if the
/// sender had sent the whole message when no more packets arrived.
fn claim_long<M: Medium>(job: &mut Job<M>, tag: u64) -> (bool, Claimed) {
    let send = job.send_as(1, 0, 0, tag, &bytes(1, LONG), Borrowed, NEVER);
    job.poll_until(|job| job.engine(0).probe(&exact(1, tag)).unwrap().is_some());
    let (status, claimed) = job.claim(0, exact(1, tag));
    assert_eq!(status, Status { source: WorldRank(1), tag, bytes: LONG });
    job.settle();
    let is_sent = job.is_over(&send);
    if is_sent {
        assert!(job.wait(send).result.is_ok());
        assert!(job.usages()[0].unexpected >= LONG as u64, "it is kept, and charged to the budget");
    }
    (is_sent, claimed)
}

/// Makes two claims at rank 0, and ends their sender by `end` before the claimed messages are received.
fn end_after_claims<M: Medium>(mut job: Job<M>, expected: &[Cause], end: impl FnOnce(&mut Job<M>)) {
    let claims = [(5, Owned), (6, Borrowed)].map(|(tag, whose)| (claim_long(&mut job, tag), whose));
    end(&mut job);
    job.settle();
    for ((is_sent, claimed), whose) in claims {
        let recv = job.recv_claim(0, claimed, LONG, whose);
        if is_sent {
            assert!(job.wait(recv).message() == bytes(1, LONG), "it arrived whole");
        } else {
            assert!(job.is_over(&recv), "what cannot arrive any more is an error at once");
            let Error::PeerFailed { rank: WorldRank(1), cause, fate, .. } = job.wait(recv).error() else {
                panic!()
            };
            assert!(expected.contains(&cause) && fate == Fate::NotDelivered, "{cause:?}");
        }
    }
    let recv = job.recv(2, exact(0, 99), 3);
    let send = job.send(0, 2, 99, b"yes");
    assert_eq!(job.wait(recv).message(), b"yes");
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}

pub(crate) fn a_claimed_message_outlives_its_senders_departure<M: Medium>(medium: M) {
    end_after_claims(trio(medium), &[Cause::Left], |job| job.leave(1));
}

pub(crate) fn a_claimed_message_outlives_its_senders_death<M: Medium>(medium: M) {
    end_after_claims(trio(medium), &[killed(), Cause::Lost], |job| job.kill(1));
}

/// Each incarnation numbers its messages anew, so messages of the next incarnation have the numbers of the claimed
/// messages.
pub(crate) fn a_claimed_message_outlives_its_senders_next_incarnation<M: Medium>(medium: M) {
    let restarted = [killed(), Cause::Lost, Cause::Restarted];
    end_after_claims(trio(medium), &restarted, |job| {
        job.kill(1);
        job.restart(1);
        for tag in [5, 6] {
            let send = job.send_as(1, 0, 0, tag, &bytes(2, LONG), Borrowed, NEVER);
            job.poll_until(|job| job.engine(0).probe(&exact(1, tag)).unwrap().is_some());
            let (_, recv) = job.recv_claimed(0, exact(1, tag), Owned);
            assert!(job.wait(recv).message() == bytes(2, LONG));
            assert!(job.wait(send).result.is_ok());
        }
    });
}

pub(crate) fn a_claimed_message_may_be_discarded_after_its_senders_end<M: Medium>(medium: M) {
    let mut job = trio(medium);
    let (_, claimed) = claim_long(&mut job, 5);
    job.kill(1);
    let now = job.now();
    job.engine(0).discard(now, claimed);
    job.assert_at_rest();
}
