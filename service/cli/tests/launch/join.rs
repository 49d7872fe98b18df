//! The messages between a rank and its agent, with nothing above them.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

#![expect(clippy::print_stdout, reason = "ranks tell their test what they saw")]

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getppid, kill_process, set_parent_process_death_signal};
use samite::bootstrap::{Connection, Ending, Job, Launch, Notice};

use crate::support::{self, text};

/// Returns the joined job if this process is a rank, and `None` if it is the test.
#[expect(clippy::disallowed_methods, reason = "a rank finds its invitation in the environment")]
fn join() -> Option<Job> {
    match Launch::detect(&|name| std::env::var_os(name)).unwrap() {
        Launch::Invited(invitation) => Some(invitation.accept().unwrap()),
        _ => None,
    }
}

/// Returns a job whose ranks run the test called `name` of this file.
fn job_of(name: &str, arguments: &str) -> support::Job {
    let mut job = support::Job::new(arguments);
    job.command.arg("--").arg(std::env::current_exe().unwrap());
    job.command.args(["--exact", &format!("join::{name}"), "--nocapture"]);
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

#[test]
fn addresses_are_exchanged_between_all() {
    let Some(mut job) = join() else {
        let output = job_of("addresses_are_exchanged_between_all", "-n 4").output();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        return;
    };
    let address_of = |rank: u32| vec![rank as u8; 100 * rank as usize];
    // Odd ranks ask before they publish, so answers come early and late.
    if job.rank.is_multiple_of(2) {
        job.connection.publish(&address_of(job.rank)).unwrap();
    }
    for rank in 0..job.size {
        job.connection.request_address(rank).unwrap();
    }
    if !job.rank.is_multiple_of(2) {
        job.connection.publish(&address_of(job.rank)).unwrap();
    }
    // The highest rank leaves first, so that each rank gets the address of every lower one, however late it asks.
    let (mut unknown, mut above): (Vec<u32>, Vec<u32>) =
        ((0..=job.rank).collect(), (job.rank + 1..job.size).collect());
    while !unknown.is_empty() || !above.is_empty() {
        match next(&mut job.connection) {
            Notice::Address { rank, address, incarnation } => {
                assert_eq!(address, address_of(rank));
                assert!(rank != job.rank || incarnation == job.incarnation);
                unknown.retain(|&other| other != rank);
            }
            Notice::Died { rank, ending, .. } => {
                assert!(rank > job.rank && ending == Ending::Left, "rank {rank} {ending}");
                above.retain(|&other| other != rank);
            }
            notice => panic!("{notice:?}"),
        }
    }
    job.connection.leave().unwrap();
}

#[test]
fn a_rank_hears_that_its_launcher_is_gone() {
    let Some(mut job) = join() else {
        let output = job_of("a_rank_hears_that_its_launcher_is_gone", "-n 1").output();
        assert_eq!(output.status.code(), Some(137));
        return;
    };
    // As behind a wrapper, which receives the signal of the parent's death instead.
    set_parent_process_death_signal(None).unwrap();
    kill_process(getppid().unwrap(), Signal::KILL).unwrap();
    assert_eq!(next(&mut job.connection), Notice::LauncherGone);
    assert_eq!(job.connection.poll().unwrap(), None);
    // The coordinator kills this process now.
    rustix::event::pause();
}

#[test]
fn a_rank_that_talks_nonsense_is_cut_off_and_the_others_are_told() {
    let Some(mut job) = join() else {
        let name = "a_rank_that_talks_nonsense_is_cut_off_and_the_others_are_told";
        let output = job_of(name, "-n 3").output();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        assert!(
            stderr.contains("samite run: rank 0 broke the launcher's protocol and was cut off from it: "),
            "{stderr}"
        );
        assert_eq!(stdout.matches("heard of it").count(), 2);
        return;
    };
    if job.rank == 0 {
        rustix::io::write(job.connection.as_fd(), b"{\"publish\": \xff\n").unwrap();
        assert_eq!(next(&mut job.connection), Notice::LauncherGone);
        return;
    }
    loop {
        if let Notice::Died { rank: 0, ending, .. } = next(&mut job.connection) {
            assert_eq!(ending, Ending::Left);
            println!("\nheard of it");
            return job.connection.leave().unwrap();
        }
    }
}
