//! A rank gives up a living peer by its own decision, and cannot reach the peer any more. The agents or the rendezvous
//! inform the peer.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::env;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use samite::{Cause, Comm, Error, Mode, Rank, Settings, World};

use crate::hosts::shell;
use crate::ranks::{PATIENCE, is_rank, job_of_test};
use crate::support::{Job, Scratch, text};

/// The environment variable with the path of the socket by which ranks 0 and 1 communicate outside of Samite.
const ASIDE: &str = "TEST_GIVEN_UP_ASIDE";

/// Settings under which every message is announced by an RTS, and a rank keeps only few announcements. The rank refuses
/// each further announcement, by an answer that it sends at once. The sender does not wait for the acknowledgement of
/// its announcements, so they can cause more answers than the receiver keeps.
const SETTINGS: [(&str, &str); 4] = [
    ("SAMITE_EAGER_MAX", "0"),
    ("SAMITE_STREAM_MAX", "0"),
    ("SAMITE_ENVELOPES_MAX", "65536"),
    ("SAMITE_ANNOUNCED_MAX", "1048576"),
];

/// More announcements than rank 0 can keep and answer, so that rank 0 runs out of room for answers.
const MESSAGES: u64 = 100_000;

/// The tag of the first message between two ranks.
const FIRST: u64 = 1;
/// The tag of the announced messages.
const ANNOUNCED: u64 = 2;
/// The tag of messages that are never sent.
const NEVER: u64 = 3;

/// Rank 1 announces messages and takes no answers, so rank 0 runs out of room for answers and gives up rank 1. Rank 1
/// then has nothing left to send, so its port does not notice that the path is cut off. Rank 1 waits for rank 0 without
/// a deadline.
fn take_part() {
    // Without an outbox, so that the announcements of rank 1 are under way when it is given up, and so that each
    // message has been sent when a rank waits for something else than a message.
    let mut settings = Settings::from_environment().unwrap();
    settings.set_outbox_max(0).unwrap();
    let world = settings.init().unwrap();
    let comm = world.comm();
    match comm.rank() {
        Rank(0) => give_up_rank_1(&world),
        Rank(1) => be_given_up(comm),
        _ => {}
    }
    // Ranks 0 and 1 both go on to exchange messages with rank 2.
    let mut from = [0_u32];
    if comm.rank() == 2 {
        for partner in [0, 1] {
            // Send only after this message has come: until rank 0 has given up rank 1, rank 0 may have no room for
            // another announcement, and would refuse it.
            comm.recv(&mut from, Rank(partner), FIRST).unwrap();
            comm.send(&[partner + from[0]], Rank(partner), FIRST).unwrap();
        }
    } else {
        comm.send(&[7], Rank(2), FIRST).unwrap();
        comm.recv(&mut from, Rank(2), FIRST).unwrap();
        assert_eq!(from, [7 + comm.rank().0]);
    }
    println!("\nwent on {}", comm.rank());
}

/// Runs rank 0: takes each announcement as soon as it has been made, until there is no room for another answer.
fn give_up_rank_1(world: &World) {
    let listener = UnixListener::bind(aside()).unwrap();
    world.comm().send(&[1_u8], Rank(1), FIRST).unwrap();
    let (mut aside, _) = listener.accept().unwrap();
    for announced in 1.. {
        aside.read_exact(&mut [0]).unwrap();
        loop {
            match world.comm().try_probe(Rank(1), NEVER) {
                Ok(_) => {}
                Err(Error::PeerFailed { rank: Rank(1), cause: Cause::OutOfMemory, .. }) => {
                    // Rank 0 makes no other call until rank 1 has got the verdict, and stays alive.
                    aside.shutdown(Shutdown::Write).unwrap();
                    aside.read_to_end(&mut Vec::new()).unwrap();
                    return;
                }
                Err(error) => panic!("{error}"),
            }
            let stats = world.comm().stats();
            if stats.unexpected_messages as u64 + stats.refused >= announced {
                break;
            }
        }
        aside.write_all(&[0]).unwrap();
    }
}

/// Runs rank 1: announces messages one after the other, and makes no call that receives packets.
fn be_given_up(world: &Comm) {
    world.recv(&mut [0_u8], Rank(0), FIRST).unwrap();
    let mut aside = UnixStream::connect(aside()).unwrap();
    let mut sends = Vec::new();
    for _ in 0..MESSAGES {
        sends.push(world.isend(vec![1_u8], Rank(0), ANNOUNCED).unwrap());
        aside.write_all(&[0]).unwrap();
        // Rank 0 closes the connection when it has given up this rank.
        if aside.read_exact(&mut [0]).is_err() {
            break;
        }
    }
    let error = world.recv(&mut [0_u8], Rank(0), NEVER).unwrap_err();
    let Error::PeerFailed { rank: Rank(0), cause: Cause::GaveUp(why), .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(why, &Cause::OutOfMemory.to_string());
    // Every operation with rank 0 ends, and a new operation fails at once.
    for send in sends {
        send.wait().unwrap_err();
    }
    let error = world.send(&[1_u8], Rank(0), FIRST).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { rank: Rank(0), cause: Cause::GaveUp(_), .. }), "{error}");
}

#[expect(clippy::disallowed_methods, reason = "the test that started this rank says where")]
fn aside() -> std::ffi::OsString {
    env::var_os(ASIDE).unwrap()
}

#[test]
fn samite_run_informs_a_rank_that_is_given_up() {
    if is_rank() {
        return take_part();
    }
    let scratch = Scratch::new("given-up");
    let test = "given_up::samite_run_informs_a_rank_that_is_given_up";
    let mut job = job_of_test(test, "-n 3 --timeout 30 --transport samite-shm");
    job.command.envs(SETTINGS).env(ASIDE, scratch.0.join("aside"));
    check(job, 3, &Cause::OutOfMemory.to_string());
}

/// Checks that the job succeeds, that `ranks` ranks went on, and that the user gets one line about the verdict of rank
/// 0 on rank 1.
fn check(job: Job, ranks: usize, why: &str) {
    let output = job.output();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(stdout.matches("went on").count(), ranks, "{stdout}{stderr}");
    let told: Vec<&str> = stderr.lines().filter(|line| line.starts_with("samite run: ")).collect();
    let [told] = told[..] else { panic!("{stderr}") };
    assert!(told.contains("rank 0 gave up rank 1 ") && told.contains(why), "{told}");
}

#[test]
fn the_rendezvous_informs_a_rank_that_is_given_up() {
    if is_rank() {
        return take_part();
    }
    // Rank 0 is the rendezvous.
    meet("given_up::the_rendezvous_informs_a_rank_that_is_given_up", &address(94));
}

#[test]
fn the_rendezvous_command_informs_a_rank_that_is_given_up() {
    if is_rank() {
        return take_part();
    }
    let address = address(95);
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(env!("CARGO_BIN_EXE_samite"));
    command.args(["rendezvous", "-n", "3", &address]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut rendezvous = command.spawn().unwrap();
    // Wait until the rendezvous listens: otherwise rank 0 might open the address first.
    while TcpStream::connect(&address).is_err() {
        assert_eq!(rendezvous.try_wait().unwrap(), None);
    }
    meet("given_up::the_rendezvous_command_informs_a_rank_that_is_given_up", &address);
    // A rank that is given up has not failed.
    let output = rendezvous.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

fn address(test: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, test, high, low), 7000)).to_string()
}

/// Runs the three ranks of a test, whose rendezvous is at `address`.
fn meet(test: &str, address: &str) {
    let scratch = Scratch::new(&test.replace("::", "-"));
    let ranks = [0, 1, 2].map(|rank| start(test, address, rank, &scratch.0));
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.contains(&format!("went on {rank}")), "{stdout}{stderr}");
    }
}

/// Starts a rank of a job of three ranks, whose rendezvous is at `address`.
fn start(test: &str, address: &str, rank: u32, scratch: &Path) -> std::process::Child {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).envs(SETTINGS).env(ASIDE, scratch.join("aside"));
    let told = [("RENDEZVOUS", address), ("RANK", &rank.to_string()), ("SIZE", "3")];
    command.envs(told.map(|(name, value)| (format!("SAMITE_{name}"), value)));
    command.env("SAMITE_TRANSPORT", "samite-shm").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Shared memory does not reach another host, so rank 0 gives up rank 1 when it sends to rank 1. Rank 1 sends nothing,
/// so its port does not notice.
#[test]
fn a_rank_of_another_host_that_is_given_up_is_informed() {
    if is_rank() {
        let world = samite::init().unwrap();
        let comm = world.comm();
        let result = match comm.rank() {
            Rank(0) => {
                let listener = UnixListener::bind(aside()).unwrap();
                // A standard send would return before rank 0 has tried to reach rank 1.
                let result = comm.with_mode(Mode::Synchronous).send(&[1_u8], Rank(1), FIRST);
                // Rank 0 makes no other call until rank 1 has got the verdict, and stays alive.
                listener.accept().unwrap();
                result
            }
            _ => {
                let result = comm.recv(&mut [0_u8], Rank(0), FIRST).map(drop);
                UnixStream::connect(aside()).unwrap();
                result
            }
        };
        let is_told = match &result {
            Err(Error::PeerFailed { rank: Rank(1), cause: Cause::Unreachable(_), .. }) => comm.rank() == 0,
            Err(Error::PeerFailed { rank: Rank(0), cause: Cause::GaveUp(why), .. }) => {
                comm.rank() == 1 && why.contains("it runs on another host")
            }
            _ => false,
        };
        assert!(is_told, "{result:?}");
        println!("\nwent on {}", comm.rank());
        return;
    }
    let scratch = Scratch::new("given-up-hosts");
    let arguments = "-n 2 --timeout 30 --transport samite-shm --hosts 127.0.0.1,127.0.0.2 --ssh";
    let mut job = Job::new(arguments);
    job.command.arg(shell(&scratch)).arg("--").arg(env::current_exe().unwrap());
    let test = "given_up::a_rank_of_another_host_that_is_given_up_is_informed";
    job.command.env(ASIDE, scratch.0.join("aside"));
    job.command.args(["--exact", test, "--nocapture"]);
    check(job, 2, "it runs on another host");
}
