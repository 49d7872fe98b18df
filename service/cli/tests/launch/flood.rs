//! Floods each listening socket of a job with unauthenticated connections while the job works.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]
#![expect(clippy::disallowed_methods, reason = "a flood lasts some seconds, and events during it take time")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::Value;

use crate::ranks::{PATIENCE, is_rank, job_of_test};
use crate::strangers::listeners;
use crate::support::{Job, Running, Scratch};
use samite::Rank;

/// The behaviour of an unauthenticated client.
#[derive(Clone, Copy)]
enum Kind {
    /// Writes these bytes over and over.
    Streams(&'static [u8]),
    /// Writes these bytes once, and keeps the connection open.
    Keeps(&'static [u8]),
}

const KINDS: [Kind; 4] =
    [Kind::Streams(b"\n"), Kind::Streams(b"\xff"), Kind::Keeps(b"{\"hello\":{\"host\":0,"), Kind::Keeps(b"")];

/// Number of open connections of each kind of client that keeps its connections: more than a listener has room for.
const KEPT: usize = 300;

/// The least number of connections of each kind in a flood.
const CONNECTIONS_MIN: usize = 5;

/// Clients that flood some addresses until the value is dropped.
struct Flood<'a> {
    began: Instant,
    is_over: &'a AtomicBool,
    connections: &'a [AtomicUsize; 4],
}

impl<'a> Flood<'a> {
    /// Starts the flood. `kept` limits the number of open connections of a kind.
    fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        is_over: &'a AtomicBool,
        connections: &'a [AtomicUsize; 4],
        addresses: &[SocketAddr],
        kept: usize,
    ) -> Flood<'a>
    where
        'a: 'scope,
    {
        for (kind, count) in KINDS.into_iter().zip(connections) {
            let addresses = addresses.to_vec();
            scope.spawn(move || {
                let mut open = VecDeque::new();
                for address in addresses.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // The listener may be gone. The short time-out lets the flood end although a listener is slow.
                    let Ok(mut stream) = TcpStream::connect_timeout(address, SLOW) else {
                        thread::yield_now();
                        continue;
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    stream.set_write_timeout(Some(SLOW)).unwrap();
                    match kind {
                        Kind::Streams(byte) => {
                            let bytes = byte.repeat(64 << 10);
                            while !is_over.load(Ordering::Relaxed) && stream.write_all(&bytes).is_ok() {}
                        }
                        Kind::Keeps(bytes) => {
                            let _ = stream.write_all(bytes);
                            open.push_back(stream);
                            open.drain(..open.len().saturating_sub(kept));
                        }
                    }
                }
            });
        }
        Flood { began: Instant::now(), is_over, connections }
    }

    /// Waits until the flood has lasted for `time`.
    fn last(&self, time: Duration) {
        thread::sleep(time.saturating_sub(self.began.elapsed()));
    }

    /// Checks that there was a flood of every kind.
    fn check(&self) {
        assert!(
            self.connections.iter().all(|count| count.load(Ordering::Relaxed) >= CONNECTIONS_MIN),
            "{:?}",
            self.connections
        );
    }
}

impl Drop for Flood<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Time-out of a client's connection, and of its writes.
const SLOW: Duration = Duration::from_millis(100);

/// Duration of the flood at each socket.
const FLOOD: Duration = Duration::from_secs(5);

/// Time-out of an action that takes milliseconds without a flood.
const SOON: Duration = Duration::from_secs(1);

/// Time for processes to start and join, on a machine that the flood keeps busy.
const JOINED_WITHIN: Duration = Duration::from_secs(5);

/// Starts a thread that reads lines, and returns the channel to which it sends them.
fn lines<'scope>(scope: &'scope Scope<'scope, '_>, from: impl Read + Send + 'scope) -> Receiver<String> {
    let (sender, receiver) = channel();
    scope.spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Returns the rest of the next line that begins with `beginning`. Skips other lines.
fn next(lines: &Receiver<String>, beginning: &str, within: Duration) -> String {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).unwrap_or_else(|_| panic!("no `{beginning}` within {within:?}"));
        if let Some(rest) = line.strip_prefix(beginning) {
            return rest.to_owned();
        }
    }
}

/// Runs a rank. Rank 0 waits until each other rank has failed, and with `talks` it exchanges messages with them
/// meanwhile. The other ranks answer it.
fn take_part(talks: bool) {
    // A rank that cannot join prints nothing, which fails the test.
    let Ok(world) = samite::init() else { return };
    println!("\njoined {} {}", world.comm().rank(), std::process::id());
    let others = 1..world.comm().size();
    if world.comm().rank() != 0 {
        while world.comm().recv(&mut [0_u8], Rank(0), 7).is_ok() {
            world.comm().send(&[1_u8], Rank(0), 7).unwrap();
        }
        return;
    }
    let mut alive: Vec<u32> = others.collect();
    while !alive.is_empty() {
        alive.retain(|&rank| {
            let sent = if talks { world.comm().send(&[1_u8], Rank(rank), 7) } else { Ok(()) };
            let received = sent.and_then(|()| world.comm().recv(&mut [0_u8], Rank(rank), 7).map(drop));
            match received {
                Ok(()) => true,
                Err(samite::Error::PeerFailed { .. }) => {
                    println!("\nfailed {rank}");
                    false
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
}

/// A process that is killed when the value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_flooded_rendezvous_lets_ranks_join_and_tells_of_their_ends() {
    if is_rank() {
        return take_part(false);
    }
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = SocketAddr::from((Ipv4Addr::new(127, 92, high, low), 7000));
    let serve = |ranks: &str, patience: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
        command.args(["rendezvous", "-n", ranks, &address.to_string()]).env("SAMITE_JOIN_TIMEOUT", patience);
        let server = Killed(command.stderr(Stdio::piped()).spawn().unwrap());
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "it does not listen");
        }
        server
    };
    let join = |number: u32, ranks: &str| {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "flood::a_flooded_rendezvous_lets_ranks_join_and_tells_of_their_ends";
        command.args(["--exact", test, "--nocapture"]);
        let text = number.to_string();
        let told = [("RENDEZVOUS", &address.to_string()[..]), ("RANK", &text), ("SIZE", ranks)];
        command.envs(told.map(|(name, value)| (format!("SAMITE_{name}"), value)));
        Killed(command.env("SAMITE_TRANSPORT", "samite-shm").stdout(Stdio::piped()).spawn().unwrap())
    };
    let (is_over, connections) = (AtomicBool::new(false), Default::default());
    let mut server = serve("5", "60");
    thread::scope(|scope| {
        let flood = Flood::start(scope, &is_over, &connections, &[address], KEPT);
        flood.last(SOON);
        let mut ranks: Vec<Killed> = (0..5).map(|number| join(number, "5")).collect();
        let mut told: Vec<_> =
            ranks.iter_mut().map(|rank| lines(scope, rank.0.stdout.take().unwrap())).collect();
        for (number, told) in told.iter().enumerate() {
            let joined = next(told, "joined ", JOINED_WITHIN);
            assert_eq!(joined, format!("{number} {}", ranks[number].0.id()));
        }
        for (number, rank) in (1..5).zip(&mut ranks[1..]) {
            flood.last(SOON * (number + 1));
            rank.0.kill().unwrap();
            assert_eq!(next(&told[0], "failed ", SOON), number.to_string());
        }
        told.clear();
        // All ranks have exited, so the rendezvous exits too.
        let stderr = lines(scope, server.0.stderr.take().unwrap());
        next(&stderr, "samite rendezvous: ", SOON);
        assert_eq!(server.0.wait().unwrap().code(), Some(1));

        // The rendezvous waits for a missing rank only until its own time-out.
        let mut server = serve("2", "2");
        let _first = join(1, "2");
        let stderr = lines(scope, server.0.stderr.take().unwrap());
        let said = next(&stderr, "samite: ", SOON * 2 + JOINED_WITHIN);
        assert!(said.contains("1 of 2 ranks have come within 2 s"), "{said}");
        flood.last(FLOOD);
        flood.check();
    });
}

/// Writes a remote shell that hands the invitation of each host to the test, and continues with the test's answer.
pub(crate) fn shell_that_asks(scratch: &Scratch, hosts: &[&str]) -> PathBuf {
    for host in hosts {
        for pipe in ["invited", "go"] {
            let pipe = scratch.0.join(format!("{pipe}-{host}"));
            assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
    }
    let at = scratch.0.display();
    scratch.script(
        "shell",
        &format!(
            "#!/bin/bash\nread -r line; echo \"$line\" >{at}/invited-$1; read -r line <{at}/go-$1; shift\n\
             exec \"$@\" < <(echo \"$line\"; cat)\n"
        ),
    )
}

/// Returns the invitation of a host. Call it once for each host, since the remote shell hands each invitation over
/// once.
pub(crate) fn invitation(scratch: &Scratch, host: &str) -> Value {
    serde_json::from_slice(&fs::read(scratch.0.join(format!("invited-{host}"))).unwrap()).unwrap()
}

const HOSTS: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// Returns the invitations of the hosts, and the address of the coordinator's listener.
fn invitations(scratch: &Scratch) -> ([Value; 2], SocketAddr) {
    let invitations = HOSTS.map(|host| invitation(scratch, host));
    let port = invitations[0]["port"].as_u64().unwrap() as u16;
    (invitations, (Ipv4Addr::LOCALHOST, port).into())
}

/// Lets the agent of a host start.
fn go(scratch: &Scratch, host: &str, invitation: &Value) {
    fs::write(scratch.0.join(format!("go-{host}")), format!("{invitation}\n")).unwrap();
}

fn kill(process: &str) {
    kill_process(Pid::from_raw(process.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_flooded_coordinator_lets_agents_in_and_tells_of_ranks_that_are_killed() {
    let scratch = Scratch::new("flood");
    let mut job = Job::new("-n 6 --on-failure continue --hosts 127.0.0.1:5,127.0.0.2:1 --ssh");
    job.command.arg(shell_that_asks(&scratch, &HOSTS)).args([
        "--",
        "sh",
        "-c",
        "echo $SAMITE_RANK $$; exec sleep 1000",
    ]);
    let mut job = job.start();
    let (invited, coordinator) = invitations(&scratch);
    let (is_over, connections) = (AtomicBool::new(false), Default::default());
    thread::scope(|scope| {
        let flood = Flood::start(scope, &is_over, &connections, &[coordinator], KEPT);
        let Running { stdout, stderr, .. } = &mut job;
        let (stdout, stderr) = (lines(scope, stdout), lines(scope, stderr));
        let mut processes = vec![String::new(); 6];
        let mut start = |host: usize, ranks: usize| {
            go(&scratch, HOSTS[host], &invited[host]);
            for _ in 0..ranks {
                let line = next(&stdout, "", JOINED_WITHIN);
                let (rank, process) = line.split_once(' ').unwrap();
                processes[rank.parse::<usize>().unwrap()] = process.to_owned();
            }
            processes.clone()
        };
        flood.last(SOON);
        let processes = start(0, 5);
        for (rank, process) in (1..5).zip(&processes[1..]) {
            flood.last(SOON * (rank + 1));
            kill(process);
            next(&stderr, &format!("samite run: rank {rank} was killed by SIGKILL"), SOON);
        }
        flood.last(FLOOD);
        flood.check();
        let processes = start(1, 1);
        for rank in [0, 5] {
            kill(&processes[rank]);
            next(&stderr, &format!("samite run: rank {rank} was killed by SIGKILL"), SOON);
        }
        drop(flood);
    });
    assert_eq!(job.finish().0, Some(137));
}

#[test]
fn a_flooded_coordinator_keeps_its_deadline() {
    let scratch = Scratch::new("flood-deadline");
    let mut job = Job::new("-n 2 --timeout 2 --hosts 127.0.0.1,127.0.0.2 --ssh");
    job.command.arg(shell_that_asks(&scratch, &HOSTS)).args(["--", "sleep", "1000"]);
    let began = Instant::now();
    let mut job = job.start();
    let (invited, coordinator) = invitations(&scratch);
    let (is_over, connections) = (AtomicBool::new(false), Default::default());
    thread::scope(|scope| {
        let _flood = Flood::start(scope, &is_over, &connections, &[coordinator], KEPT);
        go(&scratch, HOSTS[0], &invited[0]);
        assert_eq!(job.coordinator.wait().unwrap().code(), Some(124));
    });
    // The launcher gives the ranks half a second to report their waits.
    assert!(began.elapsed() < 4 * SOON, "{:?}", began.elapsed());
    assert_eq!(job.finish().0, Some(124));
}

#[test]
fn ranks_whose_ports_are_flooded_talk_and_hear_of_failures() {
    if is_rank() {
        return take_part(true);
    }
    let test = "flood::ranks_whose_ports_are_flooded_talk_and_hear_of_failures";
    let mut job = job_of_test(test, "-n 5 --transport tcp;ofi_rxm --on-failure continue").start();
    let (is_over, connections) = (AtomicBool::new(false), Default::default());
    thread::scope(|scope| {
        let stdout = lines(scope, &mut job.stdout);
        let mut processes = vec![String::new(); 5];
        for _ in 0..5 {
            let line = next(&stdout, "joined ", PATIENCE);
            let (rank, process) = line.split_once(' ').unwrap();
            processes[rank.parse::<usize>().unwrap()] = process.to_owned();
        }
        let ports: Vec<_> = processes
            .iter()
            .flat_map(|process| listeners(Pid::from_raw(process.parse().unwrap()).unwrap()))
            .collect();
        assert!(ports.len() >= 5, "{ports:?}");
        let flood = Flood::start(scope, &is_over, &connections, &ports, KEPT_AT_PORTS);
        for (rank, process) in (1..5).zip(&processes[1..]) {
            flood.last(SOON * (rank + 1));
            kill(process);
            assert_eq!(next(&stdout, "failed ", SOON), rank.to_string());
        }
        flood.check();
    });
    assert_eq!(job.finish().0, Some(137));
}

/// The number of open connections to each port of a rank. libfabric does not close connections that their clients keep
/// open, and a larger number would use up the descriptors of the rank's process.
const KEPT_AT_PORTS: usize = 100;
