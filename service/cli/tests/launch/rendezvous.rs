//! `samite rendezvous` with unauthenticated clients.

#![expect(clippy::disallowed_methods, reason = "a test that would hang fails after a while")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::ranks::PATIENCE;

/// Starts a rendezvous that may open fewer descriptors than it has ranks. Returns it with a function that connects to
/// it.
fn serve(test: u8) -> (Server, impl Fn() -> TcpStream) {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.{test}.{high}.{low}:7000");
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" rendezvous -n {RANKS} {address}");
    let server = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_samite")]).spawn().unwrap();
    (Server(server), move || until(|| TcpStream::connect(&address).ok()))
}

/// Returns the answer to a rank of another version. The answer and the end of the connection must come within the time
/// `within`.
fn refused(mut rank: TcpStream, within: Duration) -> String {
    rank.write_all(b"{\"protocol\":0,\"rank\":0,\"size\":2,\"host\":\"\"}\n").unwrap();
    rank.set_read_timeout(Some(within)).unwrap();
    let mut answer = String::new();
    rank.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("refused") && answer.contains("version 0"), "{answer}");
    answer
}

/// Returns the protocol version of the rendezvous.
fn version(connect: impl Fn() -> TcpStream) -> String {
    let answer = refused(connect(), PATIENCE);
    answer.split("and the rendezvous ").nth(1).unwrap().split(':').next().unwrap().to_owned()
}

/// Joins as a rank.
fn join(mut member: TcpStream, version: &str, rank: usize) -> TcpStream {
    let join = format!("{{\"protocol\":{version},\"rank\":{rank},\"size\":{RANKS},\"host\":\"\"}}\n");
    member.write_all(join.as_bytes()).unwrap();
    member
}

#[test]
fn without_a_descriptor_left_it_sleeps_until_there_is_one() {
    let (mut server, connect) = serve(90);
    let version = version(&connect);
    let members: Vec<TcpStream> = (1..RANKS).map(|rank| join(connect(), &version, rank)).collect();
    until(|| (server.descriptors() == DESCRIPTORS).then_some(()));
    // A process that spins never goes to sleep, so its count of voluntary context switches does not change.
    let naps = server.naps();
    until(|| (server.naps() > naps + 2).then_some(()));

    drop(members);
    refused(connect(), PATIENCE);
    assert_eq!(server.0.try_wait().unwrap(), None);
}

#[test]
fn the_last_descriptor_is_kept_for_a_hello_that_comes_late() {
    let (server, connect) = serve(94);
    let version = version(&connect);
    let mut members = Vec::new();
    while server.descriptors() < DESCRIPTORS - 1 {
        let before = server.descriptors();
        members.push(join(connect(), &version, members.len() + 1));
        until(|| (server.descriptors() > before).then_some(()));
    }
    let last = connect();
    until(|| (server.descriptors() == DESCRIPTORS).then_some(()));
    refused(last, PATIENCE);
    drop(members);
}

#[test]
fn strangers_that_say_nothing_keep_no_descriptor_from_a_rank() {
    let (_server, connect) = serve(91);
    let strangers: Vec<TcpStream> = (0..2 * DESCRIPTORS).map(|_| connect()).collect();
    // The time limit is half the time after which the rendezvous closes the strangers' connections in any case.
    refused(connect(), Duration::from_secs(5));
    drop(strangers);
}

#[test]
fn three_hundred_strangers_that_say_nothing_do_not_keep_a_rank_out() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.93.{high}.{low}:7000");
    let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
    let _server = Server(command.args(["rendezvous", "-n", "2", &address]).spawn().unwrap());
    let connect = || until(|| TcpStream::connect(&address).ok());
    let strangers: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
    refused(connect(), Duration::from_secs(5));
    drop(strangers);
}

/// Repeats `look` until it finds something.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come about");
    }
}

/// A process that is killed when the value is dropped.
struct Server(Child);

impl Server {
    /// Returns the number of the server's open descriptors below the limit. Inherited descriptors may be above it.
    fn descriptors(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap();
        let numbers = files.map(|file| file.unwrap().file_name().to_str().unwrap().parse::<usize>().unwrap());
        numbers.filter(|&number| number < DESCRIPTORS).count()
    }

    /// Returns how often the server has gone to sleep, as proc_pid_status(5) counts it.
    fn naps(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DESCRIPTORS: usize = 12;

/// More ranks than the rendezvous has descriptors for.
const RANKS: usize = 24;
