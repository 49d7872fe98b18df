//! Many ranks on one host, and ranks for which shared memory has no room.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

use samite::{Cause, Error, Rank, Source};

use crate::ranks::{PATIENCE, is_rank, job_of_test, output_of};

const RING: u64 = 1;
const TO_ONE: u64 = 2;
const ANSWER: u64 = 3;

#[test]
fn five_hundred_ranks_talk_on_one_host() {
    if !is_rank() {
        let ranks = "-n 512 --timeout 100";
        output_of(job_of_test("crowd::five_hundred_ranks_talk_on_one_host", ranks));
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!(size, 512);
    // First the ranks exchange messages in a ring. Then all ranks send to rank 0, so that it has all other ranks as
    // peers.
    let mut from = [u32::MAX];
    let (left, right) = (Rank((rank.0 + size - 1) % size), Rank((rank.0 + 1) % size));
    comm.sendrecv(&[rank.0], right, RING, &mut from, left, RING).unwrap();
    assert_eq!(from, [left.0]);
    let all: u32 = (1..size).sum();
    if rank == 0 {
        let mut sum = 0_u32;
        for _ in 1..size {
            let mut number = [0];
            let status = comm.recv(&mut number, Source::ANY, TO_ONE).unwrap();
            assert_eq!(number, [status.peer.0]);
            sum += number[0];
        }
        assert_eq!(sum, all);
        (1..size).for_each(|to| comm.send(&[sum], Rank(to), ANSWER).unwrap());
    } else {
        comm.send(&[rank.0], Rank(0), TO_ONE).unwrap();
        let mut sum = [0];
        comm.recv(&mut sum, Rank(0), ANSWER).unwrap();
        assert_eq!(sum, [all]);
    }
}

#[test]
fn who_finds_no_room_in_shared_memory_hears_which_setting_to_raise() {
    if !is_rank() {
        for transport in ["", "--transport samite-shm"] {
            let test = "crowd::who_finds_no_room_in_shared_memory_hears_which_setting_to_raise";
            let mut job = job_of_test(test, &format!("-n 4 --timeout 100 {transport}"));
            job.command.env("SAMITE_SHM_PEERS_MAX", "1");
            output_of(job);
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    let is_told = |error: &Error| {
        let text = error.to_string();
        matches!(error, Error::Exhausted { .. }) && text.contains("raise SAMITE_SHM_PEERS_MAX")
    };
    // First the ranks of each pair connect. Afterwards no rank has room for a second peer.
    let pair = Rank(comm.rank().0 ^ 1);
    let exchange = |number: u32| {
        let mut from = [u32::MAX];
        patient.sendrecv(&[number], pair, RING, &mut from, pair, RING).unwrap();
        assert_eq!(from, [number]);
    };
    exchange(0);
    let other = comm.rank().0 ^ 2;
    if comm.rank() >= Rank(2) {
        // This rank stays until rank `other` has tried to reach it. The wait ends with an error when rank `other`
        // leaves.
        let left = comm.recv(&mut [0_u8], Rank(other), TO_ONE).unwrap_err();
        assert!(matches!(left, Error::PeerFailed { cause: Cause::Left, .. }), "{left}");
        return exchange(11);
    }
    for number in 1..10 {
        // A lack of room is no failure of the peer, so each of these sends ends at once with the same error. The long
        // message comes first: if a short message were the first to the peer, it would be copied to the outbox, and its
        // send would succeed. After a refused send, short messages are not copied either.
        let refused = comm.isend(vec![1_u8; 1 << 20], Rank(other), TO_ONE).unwrap().wait().unwrap_err();
        assert!(is_told(&refused.error), "{refused}");
        let refused = comm.send(&[1_u8], Rank(other), TO_ONE).unwrap_err();
        assert!(is_told(&refused), "{refused}");
        exchange(number);
    }
    assert_eq!(comm.stats().failed_peers, 0);
}
