//! Lanes of ranks that are processes.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::thread;

use rustix::process::{Signal, getpid, kill_process};
use samite::{Cause, Error, Rank, Settings};

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::{Job, text};

const LANES: usize = 3;

fn job_of(name: &str, arguments: &str) -> Job {
    let mut job = job_of_test(&format!("lanes::{name}"), arguments);
    job.command.env("SAMITE_LANES", LANES.to_string());
    job
}

#[test]
fn all_lanes_exchange_messages_of_all_lengths_at_a_time() {
    if !is_rank() {
        for transport in TRANSPORTS {
            let name = "all_lanes_exchange_messages_of_all_lengths_at_a_time";
            output_of(job_of(name, &format!("-n 3 {transport}")));
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    let (rank, size) = (comm.rank().0, comm.size());
    let apart = comm.dup().unwrap();
    thread::scope(|threads| {
        for number in 0..LANES {
            let (lane, apart) = (comm.lane(number).unwrap(), apart.lane(number).unwrap());
            threads.spawn(move || {
                for length in [0_usize, 1, 1000, 16 << 10, 1_000_000] {
                    for comm in [&lane, &apart] {
                        let data = |from: u32| vec![from as usize * LANES + number; length];
                        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
                        let mut got = vec![0; length];
                        comm.sendrecv(&data(rank), Rank(to), 7, &mut got, Rank(from), 7).unwrap();
                        assert_eq!(got, data(from));
                    }
                }
            });
        }
    });
    drop(apart);
    world.leave().unwrap();
}

#[test]
fn every_lane_learns_of_a_kill_and_of_the_next_incarnation() {
    if !is_rank() {
        for transport in TRANSPORTS {
            let name = "every_lane_learns_of_a_kill_and_of_the_next_incarnation";
            output_of(job_of(name, &format!("-n 2 --on-failure restart {transport}")));
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    let lanes: Vec<_> = (0..LANES).map(|number| comm.lane(number).unwrap()).collect();
    if comm.rank() == 1 {
        let is_first = comm.incarnation(Rank(1)).unwrap() == Some(1);
        for lane in &lanes {
            lane.send(&[u32::from(is_first)], Rank(0), 7).unwrap();
        }
        if is_first {
            comm.recv(&mut [0u8], Rank(0), 8).unwrap();
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        return;
    }
    let mut is_first = [0];
    for lane in &lanes {
        lane.recv(&mut is_first, Rank(1), 7).unwrap();
        assert_eq!(is_first, [1]);
    }
    thread::scope(|threads| {
        for lane in &lanes {
            threads.spawn(|| {
                let killed = lane.recv(&mut [0u8], Rank(1), 9);
                let Err(Error::PeerFailed { cause, .. }) = &killed else { panic!("{killed:?}") };
                // On a busy machine the lane may hear of the next incarnation before it reads the launcher's report.
                let is_told = match cause {
                    Cause::Died(how) => how.contains("SIGKILL"),
                    cause => *cause == Cause::Restarted,
                };
                assert!(is_told, "{killed:?}");
            });
        }
        comm.send(&[1u8], Rank(1), 8).unwrap();
    });
    for lane in &lanes {
        lane.wait_for_restart(Rank(1), PATIENCE).unwrap();
        lane.recv(&mut is_first, Rank(1), 7).unwrap();
        assert_eq!(is_first, [0]);
    }
}

#[test]
fn ranks_with_different_numbers_of_lanes_say_so() {
    if !is_rank() {
        let job = job_of("ranks_with_different_numbers_of_lanes_say_so", "-n 2 --on-failure continue");
        let output = job.output();
        let told = text(&output.stdout).matches("set SAMITE_LANES alike in all ranks").count();
        assert_eq!(told, 2, "{}{}", text(&output.stdout), text(&output.stderr));
        return;
    }
    let mut settings = Settings::from_environment().unwrap();
    settings.set_lanes(if rank_of_environment() == "0" { 1 } else { 2 }).unwrap();
    let world = settings.init().unwrap();
    let other = Rank(1 - world.comm().rank().0);
    let failed = world.comm().with_timeout(PATIENCE).sendrecv(&[1u8], other, 7, &mut [0u8], other, 7);
    println!("\n{}", failed.unwrap_err());
}

#[expect(clippy::disallowed_methods, reason = "the test sets another number of lanes in each rank")]
fn rank_of_environment() -> String {
    std::env::var("SAMITE_RANK").unwrap()
}
