//! The messages between a rank and its agent, with nothing above them.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getppid, kill_process, set_parent_process_death_signal};
use samite_control::{Channel, Connection, Ending, Notice, Ticket, variable};
use samite_os::spawn::inherited_fd;

use crate::support::{self, text};

/// Returns this rank's ticket and its connection to the agent; `None` if this process is the test.
#[expect(clippy::disallowed_methods, reason = "a rank finds its connection in the environment")]
fn join() -> Option<(Ticket, Connection)> {
    let control = std::env::var(variable::CONTROL).ok()?;
    let fd = control.strip_prefix("fd:").unwrap().parse().unwrap();
    let (ticket, stream) = Ticket::take(inherited_fd(fd).unwrap().as_fd()).unwrap();
    Some((ticket, Connection::new(Channel::new(stream))))
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
    let Some((ticket, mut connection)) = join() else {
        let output = job_of("addresses_are_exchanged_between_all", "-n 4").output();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        return;
    };
    let address_of = |rank: u32| vec![rank as u8; 100 * rank as usize];
    // Even ranks publish their address before they ask, and odd ranks afterwards. So addresses are requested before and
    // after they are known.
    if ticket.rank.is_multiple_of(2) {
        connection.publish(&address_of(ticket.rank)).unwrap();
    }
    for rank in 0..ticket.size {
        connection.request_address(rank).unwrap();
    }
    if !ticket.rank.is_multiple_of(2) {
        connection.publish(&address_of(ticket.rank)).unwrap();
    }
    // The highest rank leaves first, so that each rank gets the address of every lower rank, however late it asks.
    let (mut unknown, mut above): (Vec<u32>, Vec<u32>) =
        ((0..=ticket.rank).collect(), (ticket.rank + 1..ticket.size).collect());
    while !unknown.is_empty() || !above.is_empty() {
        match next(&mut connection) {
            Notice::Address { rank, address, incarnation } => {
                assert_eq!(address, address_of(rank));
                assert!(rank != ticket.rank || incarnation == ticket.incarnation);
                unknown.retain(|&other| other != rank);
            }
            Notice::Died { rank, ending, .. } => {
                assert!(rank > ticket.rank && ending == Ending::Left, "rank {rank} {ending}");
                above.retain(|&other| other != rank);
            }
            notice => panic!("{notice:?}"),
        }
    }
    connection.leave().unwrap();
}

#[test]
fn a_rank_hears_that_its_launcher_is_gone() {
    let Some((_, mut connection)) = join() else {
        let output = job_of("a_rank_hears_that_its_launcher_is_gone", "-n 1").output();
        assert_eq!(output.status.code(), Some(137));
        return;
    };
    // Turn off the signal that this process gets when its parent dies. A rank whose parent is a wrapper with several
    // threads does not get that signal either: see `end_with_simple_parent`.
    set_parent_process_death_signal(None).unwrap();
    kill_process(getppid().unwrap(), Signal::KILL).unwrap();
    assert_eq!(next(&mut connection), Notice::LauncherGone);
    assert_eq!(connection.poll().unwrap(), None);
    // The coordinator kills this process now.
    rustix::event::pause();
}

#[test]
fn a_rank_that_sends_garbage_is_cut_off_and_the_others_are_informed() {
    let Some((ticket, mut connection)) = join() else {
        let name = "a_rank_that_sends_garbage_is_cut_off_and_the_others_are_informed";
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
    if ticket.rank == 0 {
        rustix::io::write(connection.as_fd(), b"{\"publish\": \xff\n").unwrap();
        assert_eq!(next(&mut connection), Notice::LauncherGone);
        return;
    }
    loop {
        if let Notice::Died { rank: 0, ending, .. } = next(&mut connection) {
            assert_eq!(ending, Ending::Left);
            println!("\nheard of it");
            return connection.leave().unwrap();
        }
    }
}
