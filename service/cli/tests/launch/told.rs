//! The messages at the end of a job that did not succeed.

#![expect(clippy::print_stdout, reason = "ranks tell their test where they are")]

use std::io::{BufRead, Read};

use rustix::process::Signal;
use samite::{LockKind, Rank, Settings, Tag, WindowOp};

use crate::ranks::{is_rank, job_of_test};
use crate::support::{Job, text};

/// Ranks 0 and 1 wait for messages from each other, rank 2 waits for a message from rank 0 with another tag than rank 0
/// has sent, and rank 3 makes no calls.
fn deadlock() {
    // Without an outbox, so that the message of rank 0 has been sent when rank 0 is ready.
    let mut settings = Settings::from_environment().unwrap();
    settings.set_outbox_max(0).unwrap();
    let world = settings.init().unwrap();
    let comm = world.comm();
    let mut into = [0_u8; 8];
    let rank = comm.rank();
    if rank == 0 {
        comm.send(&[1_u8], Rank(2), 9).unwrap();
    }
    println!("ready");
    match rank {
        // Rank 3 makes no calls until the launcher ends it.
        Rank(3) => {
            let (mut read, _write) = std::io::pipe().unwrap();
            let _ = read.read(&mut into);
        }
        Rank(2) => drop(comm.recv(&mut into, Rank(0), 5)),
        _ => drop(comm.recv(&mut into, Rank(1 - rank.0), Tag::ANY)),
    }
}

fn check_told(stderr: &str) {
    let cycle =
        stderr.split_once("waits of the ranks:\n  they wait for each other, for ").unwrap_or_default().1;
    assert!(cycle.lines().next().unwrap_or_default().ends_with(" s: 0 -> 1 -> 0"), "{stderr}");
    assert!(stderr.contains("\n  rank 0: recv from 1, any tag, 8 bytes, "), "{stderr}");
    assert!(stderr.contains("\n  rank 2: recv from 0, tag 5, 8 bytes, "), "{stderr}");
    assert!(stderr.contains(": message (1 under other tags, first 9)\n"), "{stderr}");
    assert!(stderr.contains("\n  not answering: computing, or not in a call: 3\n"), "{stderr}");
}

#[test]
fn a_time_out_prints_the_waits_of_the_ranks() {
    if is_rank() {
        return deadlock();
    }
    let output = job_of_test("told::a_time_out_prints_the_waits_of_the_ranks", "-n 4 --timeout 2").output();
    assert_eq!(output.status.code(), Some(124));
    check_told(text(&output.stderr));
}

#[test]
fn a_signal_prints_the_waits_of_the_ranks() {
    if is_rank() {
        return deadlock();
    }
    for (signal, expected) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut job = job_of_test("told::a_signal_prints_the_waits_of_the_ranks", "-n 4").start();
        let ready = job.stdout.by_ref().lines().map(Result::unwrap).filter(|line| line.ends_with("ready"));
        assert_eq!(ready.take(4).count(), 4);
        job.signal(signal);
        let (code, _, stderr) = job.finish();
        assert_eq!(code, Some(expected));
        check_told(&stderr);
    }
}

/// Rank 0 has its own lock, for which rank 1 waits, and waits itself for rank 1 to call a fence.
#[test]
fn the_waits_for_windows_are_printed() {
    if is_rank() {
        let world = samite::init().unwrap();
        let comm = world.comm();
        let (locked, fenced) = (comm.window(vec![0_u8]).unwrap(), comm.window(vec![0_u8]).unwrap());
        let lock = (comm.rank() == 0).then(|| locked.lock(Rank(0), LockKind::Exclusive).unwrap());
        lock.iter().for_each(|lock| lock.fetch(Rank(0), 0, 1, WindowOp::Sum).map(drop).unwrap());
        comm.barrier().unwrap();
        let end = match lock {
            Some(_) => fenced.fence().unwrap().close(),
            None => locked.lock(Rank(0), LockKind::Shared).unwrap().close(),
        };
        unreachable!("the launcher ends the job: {end:?}");
    }
    let output = job_of_test("told::the_waits_for_windows_are_printed", "-n 2 --timeout 2").output();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{stderr}");
    let cycle =
        stderr.split_once("waits of the ranks:\n  they wait for each other, for ").unwrap_or_default().1;
    assert!(cycle.lines().next().unwrap_or_default().ends_with(" s: 0 -> 1 -> 0"), "{stderr}");
    let line =
        |rank: &str| stderr.lines().find(|line| line.trim_start().starts_with(rank)).unwrap_or_default();
    let (first, second) = (line("rank 0: window of 1, "), line("rank 1: window of 0, "));
    assert!(first.ends_with(" s: barrier") && second.ends_with(" s: lock"), "{stderr}");
}

#[test]
fn many_failures_are_a_cause_and_a_sum() {
    let script = "[ $SAMITE_RANK = 5 ] && exit 3; sleep 1000 & wait";
    let output = Job::shell("-n 64", script).output();
    let stderr = text(&output.stderr);
    assert_eq!(stderr, "samite run: rank 5 exited with code 3; ending the job\n");

    let output = Job::shell("-n 64", "exit 3").output();
    let lines: Vec<_> = text(&output.stderr).lines().collect();
    assert!(lines[0].ends_with("exited with code 3; ending the job"), "{lines:?}");
    assert_eq!(lines[1..], ["samite run: 63 more ranks failed: 63 exited with code 3"]);

    let output = Job::shell("-n 64 --on-failure continue", "exit 3").output();
    let lines: Vec<_> = text(&output.stderr).lines().collect();
    assert_eq!(lines.len(), 9, "{lines:?}");
    assert_eq!(lines[8], "samite run: 56 more ranks failed: 56 exited with code 3");
}

#[test]
fn a_wrong_transport_or_setting_is_reported_once_before_the_start() {
    for (arguments, told) in [
        ("-n 4 --transport tpc;ofi_rxm", "samite: no transport `tpc;ofi_rxm`: "),
        ("-n 4 --transport samite-shmm", "samite: no transport `samite-shmm`: "),
        ("-n 4 --env SAMITE_EAGER_MAX=much", "samite: SAMITE_EAGER_MAX is `much`, "),
    ] {
        let output = Job::shell(arguments, "echo started").output();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{stderr}");
        assert!(stderr.starts_with(told) && stderr.lines().count() == 1, "{stderr}");
    }
    let output = Job::shell("-n 4 --env SAMITE_EAGR_MAX=4K", "echo started").output();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("SAMITE_EAGR_MAX is set") && stderr.contains("SAMITE_EAGER_MAX"), "{stderr}");
    assert_eq!((stderr.lines().count(), text(&output.stdout).lines().count()), (1, 4), "{stderr}");
}
