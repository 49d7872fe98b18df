//! Claimed messages whose senders end before the receive.

use rustix::process::{Signal, getpid, kill_process};
use samite::{Cause, Done, Error, Rank, Settings};

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::text;

/// The longest message whose bytes may follow its envelope without a request by the receiver (`stream_max`). The rings
/// of shared memory hold less.
const LONG: usize = 256 << 10;

/// After this number of messages of `LONG` bytes a sender has credit for one more such message.
const WARM_UP: u64 = 8;

fn data() -> Vec<u8> {
    (0..LONG).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Runs the part of each rank: rank 0 sends a long message, and calls `end` when rank 1, which has claimed the message,
/// knows that all of it was sent.
fn claim_of_one_that_ends(end: impl FnOnce(), expected: impl FnOnce(&Cause) -> bool) {
    let mut settings = Settings::from_environment().unwrap();
    // Over tcp too the bytes follow the envelope: the sender puts no message of this length.
    settings.set_put_min(LONG + 1).unwrap();
    let world = settings.init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    if comm.rank() == 0 {
        for _ in 0..WARM_UP {
            comm.send(&data(), Rank(1), 0).unwrap();
        }
        comm.recv(&mut [0_u8], Rank(1), 0).unwrap();
        comm.send(&data(), Rank(1), 1).unwrap();
        comm.send(&[0_u8], Rank(1), 2).unwrap();
        comm.recv(&mut [0_u8], Rank(1), 2).unwrap();
        return end();
    }
    for _ in 0..WARM_UP {
        assert!(comm.recv_vec::<u8>(Rank(0), 0).unwrap().buffer == data());
    }
    comm.send(&[0_u8], Rank(0), 0).unwrap();
    let message = comm.claim(Rank(0), 1).unwrap();
    comm.recv(&mut [0_u8], Rank(0), 2).unwrap();
    comm.send(&[0_u8], Rank(0), 2).unwrap();
    let Err(Error::PeerFailed { rank: Rank(0), cause, .. }) = comm.probe(Rank(0), 3) else {
        panic!("rank 0 ends")
    };
    assert!(expected(&cause), "{cause}");
    let Done { buffer: received, status } = message.recv::<u8>().unwrap();
    assert!(status.bytes == LONG && received == data());
}

#[test]
fn what_was_claimed_of_one_that_left_is_received() {
    let name = "claims::what_was_claimed_of_one_that_left_is_received";
    if is_rank() {
        return claim_of_one_that_ends(|| (), |cause| *cause == Cause::Left);
    }
    for transport in TRANSPORTS {
        output_of(job_of_test(name, &format!("-n 2 {transport}")));
    }
}

#[test]
fn what_was_claimed_of_one_that_was_killed_is_received() {
    let name = "claims::what_was_claimed_of_one_that_was_killed_is_received";
    if is_rank() {
        let end = || kill_process(getpid(), Signal::KILL).unwrap();
        return claim_of_one_that_ends(end, |cause| matches!(cause, Cause::Died(_) | Cause::Lost));
    }
    for transport in TRANSPORTS {
        let output = job_of_test(name, &format!("-n 2 --on-failure continue {transport}")).output();
        let errors = text(&output.stderr);
        assert!(!errors.contains("panicked"), "{errors}");
        assert_eq!(output.status.code(), Some(137), "{errors}");
    }
}
