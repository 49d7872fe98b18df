//! Collective operations on two levels: ranks of several hosts.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use rustix::process::{Signal, getpid, kill_process};
use samite::reduction::{Sum, in_rank_order};
use samite::{Comm, Error, InPlace, Rank};

use crate::hosts;
use crate::ranks::{PATIENCE, is_rank, job_of_test, output_of};
use crate::support::{Job, Scratch, text};

/// Returns a job of five ranks of one host and two of another, whose ranks run the test called `name` of this file.
fn job_of(name: &str, scratch: &Scratch, arguments: &str) -> Job {
    let hosts = format!("--hosts 127.0.0.1:5,127.0.0.2:2 --ssh {}", hosts::shell(scratch).display());
    job_of_test(&format!("levels::{name}"), &format!("-n 7 {hosts} {arguments}"))
}

/// Returns element `index` of a rank's contribution.
fn element(rank: u32, index: usize) -> u64 {
    u64::from(rank) << 32 | index as u64
}

fn elements(rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|index| element(rank, index)).collect()
}

/// Carries out the operations that have two levels, and checks their results.
fn check(comm: &Comm) -> Result<(), Error> {
    let (rank, size) = (comm.rank().0, comm.size());
    for len in [1, 100, 3000, 20_000] {
        let sums: Vec<u64> = (0..len).map(|index| (0..size).map(|rank| element(rank, index)).sum()).collect();
        let all: Vec<_> = (0..size).flat_map(|rank| elements(rank, len)).collect();
        let mine = elements(rank, len);
        comm.barrier()?;
        for root in 0..size {
            let mut buffer = if rank == root { mine.clone() } else { vec![0; len] };
            comm.bcast(&mut buffer, Rank(root))?;
            assert!(buffer == elements(root, len), "bcast of {len} from {root}");
            let mut output = vec![0; if rank == root { len } else { 0 }];
            comm.reduce(&mine, &mut output, Sum, Rank(root))?;
            assert!(rank != root || output == sums, "reduce of {len} to {root}");
        }
        let mut output = vec![0; len];
        comm.allreduce(&mine, &mut output, Sum)?;
        assert!(output == sums, "allreduce of {len}");
        output.copy_from_slice(&mine);
        comm.allreduce_in_place(&mut output, Sum)?;
        assert!(output == sums, "allreduce in place of {len}");
        let mut output = vec![0; all.len()];
        comm.allgather(&mine, &mut output)?;
        assert!(output == all, "allgather of {len}");
        let allreduce = comm.iallreduce(InPlace, mine.clone(), Sum)?;
        let bcast = comm.ibcast(elements(rank, len), Rank(size - 1))?;
        let gather = comm.iallgather(mine, vec![0; all.len()])?;
        assert!(bcast.wait()?.buffer == elements(size - 1, len), "ibcast of {len}");
        assert!(gather.wait()?.buffer.1 == all && allreduce.wait()?.buffer.1 == sums, "of {len}");
    }
    // An operation that does not commute keeps the order of ranks.
    let then = |[m, c]: [u64; 2], [n, d]: [u64; 2]| [m * n, c * n + d];
    let compose = in_rank_order(move |from: &[[u64; 2]], into: &mut [[u64; 2]]| {
        from.iter().zip(into).for_each(|(first, second)| *second = then(*first, *second));
    });
    let of = |rank: u32| [u64::from(rank) + 2, u64::from(rank)];
    let mut function = [of(rank)];
    comm.allreduce_in_place(&mut function, compose)?;
    assert_eq!(function[0], (1..size).fold(of(0), |before, rank| then(before, of(rank))));
    Ok(())
}

#[test]
fn ranks_of_a_host_share_a_board_and_leaders_exchange_messages() {
    let name = "ranks_of_a_host_share_a_board_and_leaders_exchange_messages";
    if !is_rank() {
        let scratch = Scratch::new("levels");
        for check in ["", "SAMITE_CHECK=collectives"] {
            let mut job = job_of(name, &scratch, "");
            job.command.envs(check.split_once('='));
            output_of(job);
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    comm.barrier().unwrap();
    assert_eq!(comm.stats().boards, 1, "the ranks of this host share a board");
    check(&comm).unwrap();
    // The ranks of a host are not consecutive, and one rank is alone on its host.
    let orders: [&[u32]; 3] = [&[0, 5, 1, 6, 2, 3, 4], &[6, 4, 5, 0], &[3, 5, 2]];
    for order in orders {
        let group = comm.group().include(order.iter().copied()).unwrap();
        if !order.contains(&comm.rank().0) {
            continue;
        }
        let some = comm.create_from_group(&group, 0).unwrap().with_timeout(PATIENCE);
        check(&some).unwrap();
        let is_alone = order.len() == 3 && comm.rank().0 == 5;
        assert_eq!(comm.stats().boards, if is_alone { 1 } else { 2 });
    }
}

/// A rank is killed while the others are in an operation, and then the others go on in a smaller communicator.
#[test]
fn a_rank_that_is_killed_ends_an_operation_on_two_levels() {
    let name = "a_rank_that_is_killed_ends_an_operation_on_two_levels";
    if !is_rank() {
        let scratch = Scratch::new("levels_killed");
        // A leader, a rank beside it, and the other leader.
        for victim in ["0", "3", "5"] {
            let mut job = job_of(name, &scratch, "--on-failure continue");
            job.command.env("VICTIM", victim);
            let output = job.output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(stdout.matches("went on").count(), 6, "rank {victim} dies: {stdout}{stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    check(&comm).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test passes the rank by the environment")]
    let victim = std::env::var("VICTIM").unwrap();
    let victim = Rank(victim.parse().unwrap());
    let mut numbers = vec![1_u64; 7];
    for round in 0.. {
        if comm.rank() == victim && round == 3 {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        match comm.allreduce_in_place(&mut numbers, Sum) {
            Ok(()) => {}
            Err(Error::PeerFailed { rank, .. }) => {
                assert_eq!(rank, victim);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let rest = comm.shrink().unwrap().with_timeout(PATIENCE);
    assert_eq!(rest.size(), 6);
    check(&rest).unwrap();
    println!("\nwent on");
}
