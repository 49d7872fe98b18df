//! `samite rendezvous` among strangers.

#![expect(clippy::disallowed_methods, reason = "a test that would hang fails after a while")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::Instant;

use crate::ranks::PATIENCE;

#[test]
fn without_a_descriptor_left_it_sleeps_until_there_is_one() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.90.{high}.{low}:7000");
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" rendezvous -n 2 {address}");
    let server = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_samite")]).spawn().unwrap();
    let mut server = Server(server);
    let connect = || TcpStream::connect(&address).ok();
    let idle: Vec<TcpStream> = (0..2 * DESCRIPTORS).map(|_| until(connect)).collect();
    until(|| (server.descriptors() == DESCRIPTORS).then_some(()));
    // Who is woken at once each time never gives the core up of its own accord.
    let naps = server.naps();
    until(|| (server.naps() > naps + 2).then_some(()));

    drop(idle);
    let mut rank = until(connect);
    rank.write_all(b"{\"protocol\":0,\"rank\":0,\"size\":2,\"host\":\"\"}\n").unwrap();
    rank.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    BufReader::new(rank).read_line(&mut answer).unwrap();
    assert!(answer.contains("refused") && answer.contains("version 0"), "{answer}");
    assert_eq!(server.0.try_wait().unwrap(), None);
}

/// What `look` finds, as soon as it does.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come about");
    }
}

/// The process, which ends with the value.
struct Server(Child);

impl Server {
    /// Those below the limit; what it was started with may be above.
    fn descriptors(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap();
        let numbers = files.map(|file| file.unwrap().file_name().to_str().unwrap().parse::<usize>().unwrap());
        numbers.filter(|&number| number < DESCRIPTORS).count()
    }

    /// How often it has gone to sleep: proc_pid_status(5).
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
