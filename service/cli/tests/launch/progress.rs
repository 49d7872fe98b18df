//! Ranks that fork or are killed while the library's thread makes progress for a long message.
//!
//! Each test runs a job of its own binary: in a rank of that job, the same test function runs the code of the rank.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::fs;

use rustix::process::{Signal, getpid, kill_process};
use samite::{Cause, Error, Progress, Rank, Settings, World};
use samite_os::fork::in_a_child;

use crate::calls::refusals;
use crate::ranks::{TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::text;

const LONG: usize = 64 << 20;
const BEGIN: u64 = 1;
const DATA: u64 = 2;

fn join() -> World {
    let mut settings = Settings::from_environment().unwrap();
    settings.set_progress(Progress::Needed).unwrap();
    settings.init().unwrap()
}

/// Returns the processor time of the thread that makes progress, in nanoseconds. It is 0 if there is no such thread.
fn driver_time() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let is_driver = |name: String| name.trim() == "samite-driver";
    let mut drivers = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(is_driver));
    let times = drivers.next().map(|task| fs::read_to_string(task.join("schedstat")).unwrap());
    times.map_or(0, |times| times.split_whitespace().next().unwrap().parse().unwrap())
}

/// Computes until the thread's processor time is 0.2 ms more than `before`. The thread needs some milliseconds for the
/// whole message, so the message is then under way.
fn compute(before: u64) {
    while driver_time() < before + 200_000 {}
}

#[test]
fn a_child_that_is_forked_in_a_turn_changes_nothing() {
    if !is_rank() {
        for transport in TRANSPORTS {
            let test = "progress::a_child_that_is_forked_in_a_turn_changes_nothing";
            output_of(job_of_test(test, &format!("-n 2 --timeout 100 {transport}")));
        }
        return;
    }
    let world = join();
    let (comm, peer) = (world.comm(), Rank(1 - world.comm().rank().0));
    let mut buffer = vec![0_u8; LONG / 4];
    for round in 0..10_u8 {
        if comm.rank() == 1 {
            comm.recv(&mut [0_u8; 0], peer, BEGIN).unwrap();
            buffer.fill(round);
            buffer = comm.isend(buffer, peer, DATA).unwrap().wait().unwrap().buffer;
            continue;
        }
        let receive = comm.irecv(buffer, peer, DATA).unwrap();
        let before = driver_time();
        comm.send(&[0_u8; 0], peer, BEGIN).unwrap();
        compute(before);
        let all_refused = || refusals(comm).iter().all(|(_, error)| *error == Error::Forked);
        assert!(in_a_child(all_refused).unwrap());
        buffer = receive.wait().unwrap().buffer;
        assert!(buffer.iter().all(|byte| *byte == round), "in round {round}");
    }
}

#[test]
fn a_rank_that_is_killed_in_a_turn_fails_at_its_peer() {
    if !is_rank() {
        for transport in TRANSPORTS {
            let test = "progress::a_rank_that_is_killed_in_a_turn_fails_at_its_peer";
            let output =
                job_of_test(test, &format!("-n 2 --timeout 100 --on-failure continue {transport}")).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert!(stdout.contains("rank 0 went on"), "{transport}: {stdout}{stderr}");
        }
        return;
    }
    let world = join();
    let (comm, peer) = (world.comm(), Rank(1 - world.comm().rank().0));
    if comm.rank() == 1 {
        comm.recv(&mut [0_u8; 0], peer, BEGIN).unwrap();
        let _send = comm.isend(vec![1_u8; LONG], peer, DATA).unwrap();
        compute(0);
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    let receive = comm.irecv(vec![0_u8; LONG], peer, DATA).unwrap();
    comm.send(&[0_u8; 0], peer, BEGIN).unwrap();
    match receive.wait() {
        Ok(received) => assert!(received.buffer.iter().all(|byte| *byte == 1)),
        Err(failed) => assert!(
            matches!(&failed.error, Error::PeerFailed { cause: Cause::Died(_) | Cause::Lost, .. }),
            "{}",
            failed.error
        ),
    }
    let next = comm.recv(&mut [0_u8; 1], peer, DATA).unwrap_err();
    assert!(matches!(next, Error::PeerFailed { .. }), "{next}");
    println!("rank 0 went on");
}
