//! Ranks that exchange messages, and are informed when another rank ends.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::process::Command;

use rustix::process::{Signal, getpid, kill_process};
use samite::bootstrap::{BootstrapError, BootstrapErrorKind};
use samite::{Cause, Error, InitError, LockKind, Rank, Source, World};

use crate::hosts;
use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::{Job, Scratch, text};

/// Returns a job whose ranks run the test called `name` of this file.
fn job_of(name: &str, arguments: &str) -> Job {
    job_of_test(&format!("world::{name}"), arguments)
}

#[test]
fn all_talk_to_all_in_every_size() {
    if !is_rank() {
        for transport in TRANSPORTS {
            output_of(job_of("all_talk_to_all_in_every_size", &format!("-n 4 {transport}")));
        }
        return;
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    // Lengths of eager messages, of a stream, and of a message by rendezvous.
    for length in [0_u32, 1, 1000, 16 << 10, 1_000_000] {
        let data = |from: u32, to: u32| -> Vec<u32> {
            (0..length).map(|index| index.wrapping_mul(from + 1).wrapping_add(to)).collect()
        };
        let ranks = 0..world.size();
        let outgoing: Vec<_> = ranks.clone().map(|to| data(world.rank().0, to)).collect();
        let mut incoming = vec![vec![u32::MAX; length as usize]; world.size() as usize];
        world
            .scope(|scope| {
                for (from, buffer) in ranks.clone().zip(&mut incoming) {
                    scope.irecv(buffer, Rank(from), 7)?;
                }
                for (to, data) in ranks.clone().zip(&outgoing) {
                    scope.isend(data, Rank(to), 7)?;
                }
                Ok(())
            })
            .unwrap();
        for (from, received) in ranks.zip(incoming) {
            assert_eq!(received, data(from, world.rank().0));
        }
    }
}

/// Rank 0 ends by calling `end` while the other ranks wait for a message from it. They must get the cause of its end,
/// and be able to continue without rank 0.
fn survivors_hear(name: &str, end: impl FnOnce(World), cause: &Cause, code: i32) {
    if !is_rank() {
        for transport in TRANSPORTS {
            let output = job_of(name, &format!("-n 3 --on-failure continue {transport}")).output();
            let heard = text(&output.stdout).matches("heard of it").count();
            assert_eq!(heard, 2, "{transport}: {}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(code));
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    if comm.rank() == 0 {
        // Both other ranks have communicated with this rank before it ends.
        for _ in 1..comm.size() {
            patient.recv(&mut [0_u8], Source::ANY, 1).unwrap();
        }
        return end(world);
    }
    patient.send(&[0_u8], Rank(0), 1).unwrap();
    match patient.recv(&mut [0_u8], Rank(0), 2).unwrap_err() {
        Error::PeerFailed { rank: Rank(0), cause: seen, .. } => assert_eq!(&seen, cause),
        other => panic!("{other}"),
    }
    // A new operation fails too, and the other survivor is reachable.
    assert!(matches!(patient.send(&[0_u8], Rank(0), 1), Err(Error::PeerFailed { rank: Rank(0), .. })));
    let other = Rank(3 - comm.rank().0);
    let mut received = [0];
    patient.sendrecv(&[comm.rank().0], other, 3, &mut received, other, 3).unwrap();
    assert_eq!(received, [other.0]);
    println!("\nheard of it");
}

#[test]
fn survivors_hear_of_a_kill() {
    let end = |_world: World| kill_process(getpid(), Signal::KILL).unwrap();
    let cause = Cause::Died("it was killed by SIGKILL (signal 9)".to_owned());
    survivors_hear("survivors_hear_of_a_kill", end, &cause, 137);
}

#[test]
fn survivors_hear_of_an_exit() {
    let cause = Cause::Died("it exited with code 5".to_owned());
    survivors_hear("survivors_hear_of_an_exit", |_world| std::process::exit(5), &cause, 5);
}

/// The process ends in the way of a process whose main function returns an error.
#[test]
fn survivors_hear_of_an_exit_after_the_goodbye() {
    let end = |world| {
        drop(world);
        std::process::exit(5)
    };
    let cause = Cause::Died("it exited with code 5".to_owned());
    survivors_hear("survivors_hear_of_an_exit_after_the_goodbye", end, &cause, 5);
}

#[test]
fn what_follows_a_leave_is_no_failure_for_the_others() {
    let end = |world: World| {
        world.leave().unwrap();
        std::process::exit(5)
    };
    survivors_hear("what_follows_a_leave_is_no_failure_for_the_others", end, &Cause::Left, 5);
}

#[test]
fn survivors_hear_of_a_panic() {
    let cause = Cause::Died("it panicked".to_owned());
    survivors_hear("survivors_hear_of_a_panic", |_world| panic!("as the test wants"), &cause, 101);
}

#[test]
fn survivors_hear_of_one_that_left() {
    survivors_hear("survivors_hear_of_one_that_left", drop, &Cause::Left, 0);
}

#[test]
fn survivors_hear_of_one_that_left_without_a_word() {
    let end = |_world| std::process::exit(0);
    survivors_hear("survivors_hear_of_one_that_left_without_a_word", end, &Cause::Left, 0);
}

/// Rank 0 receives from any source while all other ranks except the last die. A death can come at any point of rank 0's
/// loop: while it waits, together with another rank's message, or while no receive is posted. So the same job runs
/// several times.
#[test]
fn who_receives_from_anybody_hears_of_every_death() {
    const RANKS: u32 = 6;
    let name = "who_receives_from_anybody_hears_of_every_death";
    if !is_rank() {
        for transport in TRANSPORTS {
            for _ in 0..5 {
                let arguments = format!("-n {RANKS} --on-failure continue {transport}");
                let output = job_of(name, &arguments).output();
                let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
                assert!(stdout.contains("heard of all"), "{transport}: {stdout}{stderr}");
            }
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    if comm.rank() != 0 {
        for round in 0_u32.. {
            patient.send(&[round], Rank(0), 1).unwrap();
            patient.recv(&mut [0_u32], Rank(0), 2).unwrap();
            if round == comm.rank() && comm.rank() < Rank(RANKS - 1) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            if round == RANKS {
                // Stay until rank 0 has finished. If rank 0 were the only rank left, its receives would report only
                // that.
                patient.recv(&mut [0_u32], Rank(0), 3).unwrap();
                return;
            }
        }
    }
    let (mut heard_of, mut served) = (Vec::new(), 0);
    while heard_of.len() < RANKS as usize - 2 || served <= RANKS {
        match patient.recv(&mut [0_u32], Source::ANY, 1) {
            // If this send fails because the rank has died, a later receive reports the failure.
            Ok(status) => {
                let _ = patient.send(&[0_u32], status.peer, 2);
                served += u32::from(status.peer == RANKS - 1);
            }
            Err(Error::FailurePending { rank, .. }) => heard_of.push(rank),
            Err(error) => panic!("{error}; {served} served, heard of {heard_of:?}"),
        }
    }
    heard_of.sort_unstable();
    assert_eq!(heard_of, [1, 2, 3, 4], "each once");
    patient.send(&[0_u32], Rank(RANKS - 1), 3).unwrap();
    println!("\nheard of all");
}

#[test]
fn a_rank_that_is_started_again_is_reached_again() {
    let name = "a_rank_that_is_started_again_is_reached_again";
    if !is_rank() {
        let scratch = Scratch::new("again");
        let hosts = format!("--hosts 127.0.0.1,127.0.0.2 --ssh {}", hosts::shell(&scratch).display());
        for place in [TRANSPORTS[1], TRANSPORTS[2], &hosts] {
            let output = job_of(name, &format!("-n 4 --on-failure restart=1 {place}")).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{place}: {stdout}{stderr}");
            assert_eq!(stdout.matches("reached again").count(), 3, "{place}: {stdout}{stderr}");
            let message = "samite run: rank 0 was killed by SIGKILL (signal 9); it was started again\n";
            assert_eq!(stderr, message, "{place}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    let incarnation = comm.incarnation(comm.rank()).unwrap();
    // This rank has exchanged no message with the next rank.
    let next = (comm.rank().0 + 1) % comm.size();
    assert_eq!(comm.wait_for_restart(Rank(next), PATIENCE), Ok(1));
    if comm.rank() == 0 {
        for _ in 1..comm.size() {
            patient.recv(&mut [0_u8], Source::ANY, 1).unwrap();
        }
        if incarnation == Some(1) {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        assert_eq!(incarnation, Some(2));
        // The new process is no member of windows on the communicator of all ranks.
        let error = comm.window(vec![0_u8; 1]).map(drop).unwrap_err();
        assert!(matches!(error, Error::PeerFailed { rank: Rank(0), cause: Cause::Restarted, .. }), "{error}");
        for rank in 1..comm.size() {
            patient.send(&[rank], Rank(rank), 2).unwrap();
        }
        return;
    }
    assert_eq!(incarnation, Some(1));
    patient.send(&[1_u8], Rank(0), 1).unwrap();
    let error = patient.recv(&mut [0_u32], Rank(0), 2).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: Rank(0), .. }), "{error}");
    assert_eq!(comm.wait_for_restart(Rank(0), PATIENCE), Ok(2));
    patient.send(&[1_u8], Rank(0), 1).unwrap();
    let mut received = [0];
    patient.recv(&mut received, Rank(0), 2).unwrap();
    assert_eq!(received, [comm.rank().0]);
    let window = patient.window(vec![0_u8; 1]).unwrap();
    let error = window.lock(Rank(0), LockKind::Shared).unwrap().close().unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: Rank(0), .. }), "{error}");
    println!("\nreached again");
}

#[test]
fn who_ends_before_it_joins_is_heard_of_too() {
    let name = "who_ends_before_it_joins_is_heard_of_too";
    if !is_rank() {
        // Rank 0 never joins.
        let exe = std::env::current_exe().unwrap();
        let rank = format!("exec {} --exact world::{name} --nocapture", exe.display());
        let script = format!("test $SAMITE_RANK = 0 && exit 6; {rank}");
        let output = Job::shell("-n 2 --on-failure continue", &script).output();
        assert_eq!(output.status.code(), Some(6), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stdout).contains("heard of it"));
        return;
    }
    let world = samite::init().unwrap();
    let error = world.comm().with_timeout(PATIENCE).recv(&mut [0_u8], Rank(0), 1).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: Rank(0), cause: Cause::Died(_), .. }), "{error}");
    println!("\nheard of it");
}

/// Returns the error with which this process is refused as a rank of the test's job.
fn refusal() -> BootstrapError {
    match samite::init() {
        Err(InitError::Bootstrap(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_process_joins_as_a_rank_once() {
    let name = "one_process_joins_as_a_rank_once";
    // An argument that changes nothing for the test harness marks a rank's child.
    let child = "--show-output";
    if !is_rank() {
        assert_eq!(output_of(job_of(name, "-n 2")).matches("refused as a child").count(), 2);
        return;
    }
    if std::env::args().any(|argument| argument == child) {
        assert_eq!(refusal().kind(), BootstrapErrorKind::AlreadyJoined);
        println!("\nrefused as a child");
        return;
    }
    let _world = samite::init().unwrap();
    // This process cannot join again, nor can a child that has inherited its environment and descriptors.
    assert_eq!(refusal().kind(), BootstrapErrorKind::AlreadyJoined);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("world::{name}"), "--nocapture", child]);
    assert!(command.status().unwrap().success());
}

#[test]
fn a_lost_descriptor_is_explained() {
    let name = "a_lost_descriptor_is_explained";
    if is_rank() {
        let error = refusal();
        assert_eq!(error.kind(), BootstrapErrorKind::Launcher);
        assert!(error.to_string().contains("connection is not there"), "{error}");
        return;
    }
    // The rank starts behind a wrapper that closes descriptors which it does not know.
    let exe = std::env::current_exe().unwrap();
    let rank = format!("exec {} --exact world::{name} --nocapture", exe.display());
    output_of(Job::shell("-n 1", &format!("eval \"exec ${{SAMITE_CONTROL#fd:}}<&-\"; {rank}")));
}

#[test]
fn mixed_variables_are_refused() {
    let name = "mixed_variables_are_refused";
    if is_rank() {
        let error = refusal();
        assert_eq!(error.kind(), BootstrapErrorKind::Environment);
        assert!(error.to_string().contains("of 5 in job"), "{error}");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    output_of(Job::shell(
        "-n 2",
        &format!("SAMITE_SIZE=5 exec {} --exact world::{name} --nocapture", exe.display()),
    ));
}

#[test]
fn a_transport_that_is_not_there_is_named() {
    let name = "a_transport_that_is_not_there_is_named";
    if is_rank() {
        println!("\n{}", samite::init().unwrap_err());
        return;
    }
    let refused = job_of(name, "-n 3 --transport pigeons").output();
    let message = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""), "{message}");
    assert!(message.starts_with("samite: no transport `pigeons`: "), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    // With variables for the provider, only a rank can tell what libfabric will find.
    let output = output_of(job_of(name, "-n 1 --transport pigeons --env FI_LOG_LEVEL=warn"));
    assert!(
        output.contains(
            "the transport `pigeons`, which SAMITE_TRANSPORT or --transport asks for, does not open"
        ),
        "{output}"
    );
}
