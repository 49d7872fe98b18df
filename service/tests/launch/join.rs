//! Joining the job: addresses, notices, and who is refused.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

#![expect(clippy::print_stdout, reason = "ranks tell their test what they saw")]

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use samite::Ending;
use samite::bootstrap::{BootstrapError, Connection, Launch, Notice};

use crate::support::{Job, text};

/// As a rank: the job that it has joined. As a test: `None`.
fn join() -> Option<samite::bootstrap::Job> {
    match detect() {
        Launch::Invited(invitation) => Some(invitation.accept().unwrap()),
        Launch::Alone { .. } => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "a rank finds its invitation in the environment")]
fn detect() -> Launch {
    Launch::detect(&|name| std::env::var_os(name)).unwrap()
}

/// A job whose ranks run the test called `name` of this binary.
fn job_of(name: &str, arguments: &str) -> Job {
    let mut job = Job::new(arguments);
    job.command.arg("--").arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    job
}

fn next(connection: &mut Connection) -> Notice {
    loop {
        if let Some(notice) = connection.poll().unwrap() {
            return notice;
        }
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let fd = connection.as_fd();
        assert_eq!(
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap(),
            1,
            "no notice came"
        );
    }
}

fn succeeds(job: Job) {
    let output = job.output();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn addresses_are_exchanged_between_all() {
    let Some(mut job) = join() else {
        return succeeds(job_of("join::addresses_are_exchanged_between_all", "-n 4"));
    };
    let address_of = |rank: u32| vec![rank as u8; 100 * rank as usize];
    // Odd ranks ask before they publish, so answers come early and late.
    if job.rank % 2 == 0 {
        job.connection.publish(&address_of(job.rank)).unwrap();
    }
    for rank in 0..job.size {
        job.connection.request_address(rank).unwrap();
    }
    if job.rank % 2 == 1 {
        job.connection.publish(&address_of(job.rank)).unwrap();
    }
    let mut unknown: Vec<u32> = (0..job.size).collect();
    while !unknown.is_empty() {
        match next(&mut job.connection) {
            Notice::Address { rank, address, incarnation } => {
                assert_eq!((address, incarnation), (address_of(rank), 1));
                unknown.retain(|&other| other != rank);
            }
            // The others may be done before us.
            Notice::Died { ending, .. } => assert_eq!(ending, Ending::Left),
            Notice::LauncherGone => panic!("the launcher is there"),
        }
    }
    job.connection.leave().unwrap();
}

/// Rank 0 ends as told, and the survivors hear of it.
fn survivors_hear(name: &str, end: impl FnOnce(samite::bootstrap::Job), expected: Ending) {
    let Some(mut job) = join() else {
        let output = job_of(name, "-n 3 --on-failure continue --prefix").output();
        let heard = text(&output.stdout).matches(&format!("heard: rank 0 {expected}\n")).count();
        assert_eq!(heard, 2, "{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(expected.exit_code().into()));
        return;
    };
    if job.rank == 0 {
        return end(job);
    }
    loop {
        if let Notice::Died { rank: 0, ending } = next(&mut job.connection) {
            println!("\nheard: rank 0 {ending}");
            return job.connection.leave().unwrap();
        }
    }
}

#[test]
fn a_killed_rank_is_told_to_the_survivors() {
    survivors_hear(
        "join::a_killed_rank_is_told_to_the_survivors",
        |_job| kill_process(getpid(), Signal::KILL).unwrap(),
        Ending::Killed { signal: 9, core: false },
    );
}

#[test]
fn an_exit_code_is_told_to_the_survivors() {
    let end = |_job| std::process::exit(5);
    survivors_hear("join::an_exit_code_is_told_to_the_survivors", end, Ending::Exited { code: 5 });
}

#[test]
fn leaving_is_told_to_the_survivors() {
    let end = |job: samite::bootstrap::Job| job.connection.leave().unwrap();
    survivors_hear("join::leaving_is_told_to_the_survivors", end, Ending::Left);
}

#[test]
fn leaving_without_a_word_is_told_to_the_survivors() {
    survivors_hear("join::leaving_without_a_word_is_told_to_the_survivors", drop, Ending::Left);
}

#[test]
fn a_rank_hears_that_its_launcher_is_gone() {
    let name = "join::a_rank_hears_that_its_launcher_is_gone";
    let Some(mut job) = join() else {
        assert_eq!(job_of(name, "-n 1").output().status.code(), Some(137));
        return;
    };
    // A rank that moves to another parent is out of reach of PR_SET_PDEATHSIG; the connection still tells it.
    rustix::process::set_parent_process_death_signal(None).unwrap();
    let agent = rustix::process::getppid().unwrap();
    kill_process(agent, Signal::KILL).unwrap();
    assert_eq!(next(&mut job.connection), Notice::LauncherGone);
    assert_eq!(job.connection.poll().unwrap(), None);
    // The front ends us now.
    next(&mut job.connection);
}

/// An argument that changes nothing for the test harness.
const IS_CHILD: &str = "--show-output";

#[test]
fn one_process_joins_as_a_rank_once() {
    let name = "join::one_process_joins_as_a_rank_once";
    let Launch::Invited(invitation) = detect() else {
        let output = job_of(name, "-n 2").output();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(text(&output.stdout).matches("refused as a child").count(), 2);
        return;
    };
    if std::env::args().any(|argument| argument == IS_CHILD) {
        let error = invitation.accept().unwrap_err();
        assert!(matches!(error, BootstrapError::AlreadyJoined { .. }), "{error}");
        println!("\nrefused as a child");
        return;
    }
    let job = invitation.accept().unwrap();
    // The same process again, and another that has inherited everything.
    let Launch::Invited(again) = detect() else { panic!("the variables are still there") };
    assert!(matches!(again.accept(), Err(BootstrapError::AlreadyJoined { rank }) if rank == job.rank));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    assert!(child.args(["--exact", name, "--nocapture", IS_CHILD]).status().unwrap().success());
    job.connection.leave().unwrap();
}

#[test]
fn a_lost_descriptor_is_explained() {
    let name = "join::a_lost_descriptor_is_explained";
    let Launch::Invited(invitation) = detect() else {
        // A wrapper that closes what it does not know.
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "eval \"exec ${{SAMITE_CONTROL#fd:}}<&-\"; exec {} --exact {name} --nocapture",
            exe.display()
        );
        return succeeds(Job::shell("-n 1", &script));
    };
    assert!(matches!(invitation.accept(), Err(BootstrapError::NoConnection { .. })));
}

#[test]
fn mixed_variables_are_refused() {
    let name = "join::mixed_variables_are_refused";
    let Launch::Invited(invitation) = detect() else {
        let exe = std::env::current_exe().unwrap();
        let script = format!("SAMITE_SIZE=5 exec {} --exact {name} --nocapture", exe.display());
        return succeeds(Job::shell("-n 2", &script));
    };
    assert!(matches!(invitation.accept(), Err(BootstrapError::Mismatch { size: 5, .. })));
}
