//! Ranks that leave, fail after they have closed their world, or fail again and again: the reports to the other ranks,
//! and the end of a receive from any source.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::collections::VecDeque;
use std::io::{BufRead, Read, Write};
use std::process::{abort, exit};
use std::thread;

use rustix::process::Signal;
use samite::{Cause, Comm, Error, Rank, Source};

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test};
use crate::support::{Job, Scratch, text};

const ASK: u64 = 1;
const TASK: u64 = 2;

#[expect(clippy::disallowed_methods, reason = "how a rank is to end, its test tells by the environment")]
fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Rank 0 of the guide's task farm: a task stays open until its result has come, and rank 0 goes on until all other
/// ranks have left.
fn hand_out(world: &Comm) {
    let mut open: VecDeque<u64> = (1..=20).collect();
    let (mut sum, mut failures) = (0, 0);
    loop {
        let mut result = [0_u64; 2];
        match world.recv(&mut result, Source::ANY, ASK) {
            Ok(status) => {
                let [task, square] = result;
                if let Some(place) = open.iter().position(|&open| open == task) {
                    open.remove(place);
                    sum += square;
                }
                let next = open.pop_front().unwrap_or(0);
                open.extend(Some(next).filter(|&next| next != 0));
                let _ = world.send(&[next], status.peer, TASK);
            }
            Err(Error::FailurePending { rank: Rank(1), .. }) => failures += 1,
            Err(Error::Deserted) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    println!("\nsum {sum}, {failures} failures");
}

/// Rank 1 fails with its first task, in each incarnation, in one of the ways in which a process can fail.
#[test]
fn a_farm_survives_every_way_to_fail() {
    let name = "leaving::a_farm_survives_every_way_to_fail";
    if !is_rank() {
        for (on_failure, incarnations) in [("continue", 1), ("restart=2", 3)] {
            for (how, code) in [("abort", 134), ("exit", 3), ("err", 1)] {
                for transport in &TRANSPORTS[1..] {
                    let arguments = format!("-n 4 --on-failure {on_failure} --timeout 60 {transport}");
                    let mut job = job_of_test(name, &arguments);
                    job.command.env("TEST_HOW", how);
                    let output = job.output();
                    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
                    let expected = format!("sum 2870, {incarnations} failures");
                    assert!(stdout.contains(&expected), "{arguments} {how}: {stdout}{stderr}");
                    assert_eq!(output.status.code(), Some(code), "{arguments} {how}: {stderr}");
                }
            }
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    if comm.rank() == 0 {
        return hand_out(comm);
    }
    let mut result = [0_u64; 2];
    loop {
        comm.send(&result, Rank(0), ASK).unwrap();
        let mut task = [0_u64];
        comm.recv(&mut task, Rank(0), TASK).unwrap();
        let [task] = task;
        if comm.rank() == 1 {
            match &told("TEST_HOW")[..] {
                "abort" => abort(),
                "exit" => exit(3),
                // This process ends like a `main` that returns an error.
                _ => {
                    drop(world);
                    exit(1);
                }
            }
        }
        if task == 0 {
            return;
        }
        result = [task, task * task];
    }
}

/// Rank 0 first sends to rank 1 when that has been killed. The ranks have exchanged nothing before.
#[test]
fn the_first_contact_with_a_killed_rank_ends_with_the_report_of_its_end() {
    let name = "leaving::the_first_contact_with_a_killed_rank_ends_with_the_report_of_its_end";
    if !is_rank() {
        for transport in TRANSPORTS {
            for _ in 0..3 {
                let scratch = Scratch::new(name.trim_start_matches("leaving::"));
                let mut job =
                    job_of_test(name, &format!("-n 2 --on-failure continue --timeout 60 {transport}"));
                job.command.env("TEST_SIGN", scratch.0.join("sign"));
                let output = job.output();
                let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
                assert!(stdout.contains("the report came"), "{transport}: {stdout}{stderr}");
            }
        }
        return;
    }
    let world = samite::init().unwrap();
    let sign = std::path::PathBuf::from(told("TEST_SIGN"));
    if world.comm().rank() == 1 {
        let part = sign.with_extension("part");
        std::fs::write(&part, std::process::id().to_string()).unwrap();
        std::fs::rename(part, sign).unwrap();
        abort();
    }
    let pid = loop {
        match std::fs::read_to_string(&sign) {
            Ok(pid) => break pid,
            Err(_) => std::thread::yield_now(),
        }
    };
    // The process has closed its files when it is a zombie.
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z")) {
        std::thread::yield_now();
    }
    let patient = world.comm().with_timeout(PATIENCE);
    let error = patient.recv(&mut [0_u8], Rank(1), TASK).unwrap_err();
    let Error::PeerFailed { cause: Cause::Died(how), .. } = &error else { panic!("{error}") };
    assert!(how.contains("SIGABRT"), "{error}");
    println!("\nthe report came");
}

/// Rank 0 closes its world and runs on until its standard input ends; then it fails.
#[test]
fn a_failure_long_after_the_goodbye_is_reported() {
    let name = "leaving::a_failure_long_after_the_goodbye_is_reported";
    if !is_rank() {
        for transport in &TRANSPORTS[1..] {
            let mut job = job_of_test(name, &format!("-n 2 --on-failure continue {transport}")).start();
            let deserted = job.stdout.by_ref().lines().map(Result::unwrap).any(|line| line == "deserted");
            assert!(deserted, "{transport}: {}", job.finish().2);
            let (code, stdout, stderr) = job.finish();
            assert!(stdout.contains("heard of it"), "{transport}: {stdout}{stderr}");
            assert_eq!(code, Some(3), "{transport}: {stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    if comm.rank() == 0 {
        patient.send(&[1_u8], Rank(1), 1).unwrap();
        drop(world);
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        exit(3);
    }
    patient.recv(&mut [0_u8], Rank(0), 1).unwrap();
    let error = patient.recv(&mut [0_u8], Rank(0), 1).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: Rank(0), cause: Cause::Left, .. }), "{error}");
    assert_eq!(patient.recv(&mut [0_u8], Source::ANY, 1), Err(Error::Deserted));
    println!("\ndeserted");
    let error = loop {
        match patient.recv(&mut [0_u8], Source::ANY, 1).unwrap_err() {
            Error::Deserted => thread::yield_now(),
            error => break error,
        }
    };
    let cause = Cause::Died("it exited with code 3".to_owned());
    assert_eq!(error, Error::FailurePending { rank: Rank(0), world_rank: Rank(0), cause: cause.clone() });
    let error = patient.send(&[0_u8], Rank(0), 1).unwrap_err();
    assert!(
        matches!(&error, Error::PeerFailed { rank: Rank(0), cause: told, .. } if *told == cause),
        "{error}"
    );
    println!("\nheard of it");
}

/// Rank 0 fails in its first two incarnations. Rank 1 receives from any source, and can receive from rank 0 only.
#[test]
fn a_receive_waits_for_a_rank_that_is_started_again() {
    let name = "leaving::a_receive_waits_for_a_rank_that_is_started_again";
    if !is_rank() {
        for transport in &TRANSPORTS[1..] {
            let output = job_of_test(name, &format!("-n 2 --on-failure restart {transport}")).output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert!(stdout.contains("served by incarnation 3"), "{transport}: {stdout}{stderr}");
            let again = ["it was started again", "it is started again in 0.1 s"];
            let expected = again.map(|again| format!("samite run: rank 0 exited with code 7; {again}\n"));
            assert_eq!(stderr, expected.concat(), "{transport}");
            assert_eq!(output.status.code(), Some(0), "{transport}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    let incarnation = comm.incarnation(comm.rank()).unwrap().unwrap();
    if comm.rank() == 0 {
        patient.send(&[incarnation], Rank(1), 1).unwrap();
        patient.recv(&mut [0_u32], Rank(1), 2).unwrap();
        if incarnation < 3 {
            drop(world);
            exit(7);
        }
        return;
    }
    let mut seen = Vec::new();
    let mut from = [0_u32];
    loop {
        match patient.recv(&mut from, Source::ANY, 1) {
            Ok(status) => {
                seen.push(format!("incarnation {}", from[0]));
                patient.send(&from, status.peer, 2).unwrap();
            }
            Err(Error::FailurePending { rank: Rank(0), cause: Cause::Died(how), .. }) => seen.push(how),
            Err(Error::Deserted) => break,
            Err(error) => panic!("{error}: {seen:?}"),
        }
    }
    // The launcher reports an end before it starts the next incarnation. On a busy machine this rank may still receive
    // the message of the next incarnation before it reads the report.
    let at = |what: &str, count: usize| {
        let places: Vec<_> = (0..seen.len()).filter(|&at| seen[at] == what).collect();
        assert_eq!(places.len(), count, "{what}: {seen:?}");
        places
    };
    let incarnations = [1, 2, 3].map(|number| at(&format!("incarnation {number}"), 1)[0]);
    let exits = at("it exited with code 7", 2);
    assert!(
        incarnations.is_sorted() && exits.iter().zip(incarnations).all(|(exit, begin)| *exit > begin),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 5, "{seen:?}");
    println!("\nserved by incarnation {}", from[0]);
}

/// A job can be ended at any time, also during the pause before a rank is restarted.
#[test]
fn a_job_ends_while_a_rank_waits_to_be_started_again() {
    // Each incarnation adds a line to a file and fails. Wait until the pause before a restart is long.
    let scratch = Scratch::new("pause");
    let script = format!("echo >> {0}/incarnations; exit 3", scratch.0.display());
    let mut job = Job::shell("-n 1 --on-failure restart=1000", &script).start();
    let mut line = String::new();
    while !line.contains("again in 0.8 s") {
        line.clear();
        job.stderr.read_line(&mut line).unwrap();
        assert!(line.contains("started again"), "{line}");
    }
    job.signal(Signal::INT);
    let (code, _, stderr) = job.finish();
    assert_eq!((code, &stderr[..]), (Some(3), "samite run: rank 0 exited with code 3; the others go on\n"));
    assert_eq!(std::fs::read_to_string(scratch.0.join("incarnations")).unwrap().len(), 5);
}

#[test]
fn a_rank_that_is_not_started_again_has_used_up_its_restarts() {
    for (restarts, last) in [(1, "1 restart"), (2, "2 restarts")] {
        let job = Job::shell(&format!("-n 1 --on-failure restart={restarts}"), "exit 3");
        let (code, _, stderr) = job.start().finish();
        assert_eq!(code, Some(3), "{stderr}");
        let last = format!("samite run: rank 0 exited with code 3, after {last}; the others go on");
        assert_eq!(stderr.lines().last(), Some(&last[..]), "{stderr}");
        assert_eq!(stderr.lines().count(), restarts + 1, "{stderr}");
    }
}

/// Rank 1 removes the program and fails. Rank 0 exits when the test has read the report that rank 1 cannot be
/// restarted.
#[test]
fn a_rank_that_cannot_be_started_again_does_not_end_the_others() {
    let scratch = Scratch::new("removed");
    let up = scratch.0.join("up").display().to_string();
    let program = scratch.script(
        "program",
        &format!(
            "#!/bin/sh\nif [ $SAMITE_RANK = 1 ]; then until [ -e {up} ]; do :; done; rm \"$0\"; exit 3; fi\n\
             touch {up}; read line; echo survived\n"
        ),
    );
    let mut job = Job::new("-n 2 --on-failure restart");
    job.command.arg(program);
    let mut job = job.start();
    let mut told = Vec::new();
    while !told.last().is_some_and(|line: &String| line.contains("the others go on")) {
        told.push(String::new());
        assert_ne!(job.stderr.read_line(told.last_mut().unwrap()).unwrap(), 0, "{told:?}");
    }
    let why = "samite agent: rank 1 cannot be started again: No such file or directory (os error 2)\n";
    assert!(told.iter().any(|line| line == why), "{told:?}");
    assert_eq!(job.finish(), (Some(3), "survived\n".to_owned(), String::new()));
}

/// Rank 1 fails, and rank 0 exits after that report; the user chooses which of the two exit codes counts. A rank that
/// catches its panic and exits with code 0 still counts as failed, since the other ranks got the report of its failure.
#[test]
fn a_panic_that_is_caught_is_a_failure() {
    let name = "leaving::a_panic_that_is_caught_is_a_failure";
    if !is_rank() {
        for (on_failure, told) in [
            ("end", "samite run: rank 1 panicked; ending the job\n"),
            ("continue", "samite run: rank 1 panicked; the others go on\n"),
            ("restart=1", "samite run: rank 1 panicked"),
        ] {
            let output = job_of_test(name, &format!("-n 2 --on-failure {on_failure} --timeout 60")).output();
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(101), "{on_failure}: {stderr}");
            assert!(stderr.contains(told), "{on_failure}: {stderr}");
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    if comm.rank() == 1 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _world = world;
            panic!("on purpose");
        }));
        assert!(caught.is_err());
        return;
    }
    loop {
        match comm.recv(&mut [0_u8], Source::ANY, 0) {
            Err(Error::FailurePending { rank: Rank(1), .. }) => {}
            result => return assert_eq!(result.unwrap_err(), Error::Deserted),
        }
    }
}

#[test]
fn the_exit_code_is_that_of_the_first_failed_rank_or_of_rank_0() {
    let script = "test $SAMITE_RANK = 1 && kill -KILL $$; read line; exit $line";
    for (arguments, ends_with, code) in [
        ("--on-failure continue", "0", 137),
        ("--on-failure continue --exit-code first-failed", "5", 137),
        ("--on-failure continue --exit-code rank0", "0", 0),
        ("--on-failure continue --exit-code rank0", "5", 5),
    ] {
        let mut job = Job::shell(&format!("-n 2 {arguments}"), script).start();
        let mut message = String::new();
        job.stderr.read_line(&mut message).unwrap();
        assert!(message.contains("was killed by SIGKILL"), "{message}");
        job.coordinator.stdin.take().unwrap().write_all(ends_with.as_bytes()).unwrap();
        assert_eq!(job.finish().0, Some(code), "{arguments} {ends_with}");
    }
    // The exit code of rank 0's last process counts, unless a time-out ends the job.
    let scratch = Scratch::new("exit-code");
    let script = format!("test -e {0}/again && exit 0; touch {0}/again; exit 9", scratch.0.display());
    let output = Job::shell("-n 1 --on-failure restart=1 --exit-code rank0", &script).output();
    assert_eq!(output.status.code(), Some(0));
    let output = Job::shell("-n 1 --exit-code rank0 --timeout 0.2", "sleep 1000").output();
    assert_eq!(output.status.code(), Some(124));
    let output = Job::shell("-n 2 --exit-code rank0", "test $SAMITE_RANK = 1 && exit 7; sleep 1000").output();
    assert_eq!(output.status.code(), Some(143), "it was ended because of rank 1");
}
