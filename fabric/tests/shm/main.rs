//! The shared-memory port between processes. Each test is both sides: it starts its own binary again, with the parent's
//! address in the environment.

mod heap;
mod killed;
mod limits;
mod windows;

use std::env;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};

use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Address, Failure, OpId, PeerId, Port, PortError, Post, Sink};

/// The allocator of all these tests.
#[global_allocator]
static HEAP: samite_fabric::Heap = samite_fabric::Heap;

const PARENT: &str = "SAMITE_TEST_PARENT";
const CONFIG: Config = Config {
    peers_max: 4,
    ring_bytes_min: 2 << 10,
    ring_bytes: 8 << 10,
    ring_bytes_max: 32 << 10,
    growth_bytes_max: 128 << 10,
};

#[test]
fn two_processes_exchange_packets_of_all_lengths() {
    let test = "two_processes_exchange_packets_of_all_lengths";
    let mut port = Shm::open(&CONFIG).unwrap();
    let rounds = 2000;
    if let Some(parent) = parent() {
        let parent = port.resolve(&parent).unwrap();
        let address = port.address().0;
        send(&mut port, parent, &address).unwrap();
        for round in 0..rounds {
            let packet = receive(&mut port);
            assert_eq!(packet, packet_of(round));
            send(&mut port, parent, &packet).unwrap();
        }
        return;
    }
    let mut child = spawn(test, &port);
    let to = Address(receive(&mut port));
    let to = port.resolve(&to).unwrap();
    for round in 0..rounds {
        send(&mut port, to, &packet_of(round)).unwrap();
        assert_eq!(receive(&mut port), packet_of(round));
    }
    assert!(child.wait().unwrap().success());
}

/// Starts more children than there are slots, and kills each in the middle of sending. The packets received from each
/// child are a prefix of the packets that it sent, slots are reused, and packets of a child that is not killed arrive
/// throughout.
#[test]
fn killed_senders_leave_the_others_unharmed() {
    let test = "killed_senders_leave_the_others_unharmed";
    let mut port = Shm::open(&CONFIG).unwrap();
    if let Some(parent) = parent() {
        let parent = port.resolve(&parent).unwrap();
        let mut round = 0;
        while send(&mut port, parent, &[&std::process::id().to_le_bytes()[..], &packet_of(round)].concat())
            .is_ok()
        {
            round += 1;
        }
        return;
    }
    let mut survivor = spawn(test, &port);
    let mut heard = Rounds::default();
    for victim in 0..24 {
        let mut child = spawn(test, &port);
        // Each child dies at another point of its sending.
        heard.until(&mut port, child.id(), 100 + 37 * victim);
        child.kill().unwrap();
        child.wait().unwrap();
        heard.until(&mut port, survivor.id(), 50);
    }
    // Closing the port ends the survivor: the survivor's ring becomes full, and the survivor then finds that the
    // mailbox is closed.
    drop(port);
    assert!(survivor.wait().unwrap().success());
}

#[test]
fn a_sender_learns_of_a_killed_receiver() {
    let test = "a_sender_learns_of_a_killed_receiver";
    let mut port = Shm::open(&CONFIG).unwrap();
    if let Some(parent) = parent() {
        let parent = port.resolve(&parent).unwrap();
        let address = port.address().0;
        send(&mut port, parent, &address).unwrap();
        loop {
            receive(&mut port);
        }
    }
    let mut child = spawn(test, &port);
    let to = Address(receive(&mut port));
    let to = port.resolve(&to).unwrap();
    send(&mut port, to, b"while it lives").unwrap();
    child.kill().unwrap();
    // The process is not reaped yet. A zombie counts as dead.
    let error = (0..).find_map(|round| send(&mut port, to, &packet_of(round)).err());
    assert_eq!(error, Some(PortError::PeerGone(to)));
    let mut log = Log::default();
    assert_eq!(port.poll(&mut log), Ok(1));
    assert_eq!(log.lost, [to]);
    child.wait().unwrap();
}

/// The number of the next round that must arrive, by process.
#[derive(Default)]
struct Rounds {
    next: std::collections::HashMap<u32, usize>,
}

impl Rounds {
    /// Polls until `count` more rounds of `process` have arrived. Checks that the rounds of each process arrive without
    /// a gap.
    fn until(&mut self, port: &mut Shm, process: u32, count: usize) {
        let target = self.next.get(&process).copied().unwrap_or(0) + count;
        while self.next.get(&process).copied().unwrap_or(0) < target {
            let mut log = Log::default();
            port.poll(&mut log).unwrap();
            for packet in log.packets {
                let (process, body) = packet.split_first_chunk().expect("process id first");
                let next = self.next.entry(u32::from_le_bytes(*process)).or_default();
                assert_eq!(body, packet_of(*next));
                *next += 1;
            }
        }
    }
}

fn parent() -> Option<Address> {
    #[expect(clippy::disallowed_methods, reason = "how a test tells its other half what to do")]
    let hex = env::var(PARENT).ok()?;
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal");
    Some(Address((0..hex.len() / 2).map(byte).collect()))
}

fn spawn(test: &str, port: &Shm) -> Spawned {
    Spawned(command(test, port).stdout(Stdio::null()).spawn().unwrap())
}

/// A child that is killed when dropped.
struct Spawned(Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Spawned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Spawned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

fn command(test: &str, port: &Shm) -> Command {
    let address: String = port.address().0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(PARENT, address);
    command
}

/// Returns the same command under a limit of ulimit(1).
fn limited(limit: &str, command: &Command) -> Command {
    let environment = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(environment);
    limited
}

fn packet_of(round: usize) -> Vec<u8> {
    (0..round * 31 % 3400).map(|i| (i * 3 + round) as u8).collect()
}

fn send(port: &mut Shm, to: PeerId, packet: &[u8]) -> Result<(), PortError> {
    let (head, body) = packet.split_at(packet.len().min(32));
    while port.send(to, head, body)? == Post::Again {
        std::thread::yield_now();
    }
    Ok(())
}

fn receive(port: &mut Shm) -> Vec<u8> {
    let mut log = Log::default();
    while port.poll(&mut log).unwrap() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(log.packets.len(), 1);
    log.packets.remove(0)
}

#[derive(Default)]
struct Log {
    packets: Vec<Vec<u8>>,
    completed: Vec<Result<(), Failure>>,
    notified: Vec<u64>,
    lost: Vec<PeerId>,
}

impl Sink for Log {
    fn packet(&mut self, bytes: &[u8]) {
        self.packets.push(bytes.to_vec());
    }

    fn completed(&mut self, _: OpId, result: Result<(), Failure>) {
        self.completed.push(result);
    }

    fn notified(&mut self, immediate: u64) {
        self.notified.push(immediate);
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.lost.push(peer);
    }
}
