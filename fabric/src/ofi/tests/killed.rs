//! Tests with a victim: a peer in another process that ends or stops in the middle of puts. `ci/put-kill.sh` repeats
//! them at thousands of random moments.
//!
//! Memory that the port has returned is filled with a pattern and checked at the end of the victim: no process may
//! have written to it, and none of the pattern may have reached the victim.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::rng::SplitMix64;

/// The environment variable with the path at which a victim, which runs this same program, finds its parent.
const RENDEZVOUS: &str = "SAMITE_TEST_RENDEZVOUS";
/// The environment variable with the number of moments.
const MOMENTS: &str = "SAMITE_PUT_KILLS";
/// The environment variable with the seed of the moments.
const SEED: &str = "SAMITE_PUT_KILLS_SEED";
/// Each end of a victim, with each direction of the puts.
const MOMENTS_BY_DEFAULT: u64 = (ENDS.len() * ROLES.len()) as u64;
/// The number of moments that one port of the survivor lives through. It is closed in the middle of the last one. It is
/// no multiple of the number of ends, so that it is closed beside victims of each end.
const MOMENTS_PER_PORT: u64 = 7;

/// The number of puts to the next incarnation of a victim, of which one must succeed. Without a fence, the first one
/// may go to the connection of the old incarnation.
const GREETINGS_MAX: usize = 2;

/// The number of victims that are started before they are needed.
const VICTIMS_AHEAD: usize = 2;

const LEN: usize = 4 << 20;
/// The lengths of packets, as far as the port carries them.
const PACKETS: [usize; 2] = [9_000, 60_000];
const PACKET: &[u8] = &[SENT; PACKETS[1]];
const HEAD: &[u8] = b"head";
/// The bytes of memory that puts read.
const SENT: u8 = 0x11;
/// The bytes of memory that puts write, at first.
const FRESH: u8 = 0x22;
/// The bytes of memory that the port has returned.
const RETURNED: u8 = 0xa5;

/// The first incarnations of victims take their network ports from this range, each from the next window, so that no
/// other victim has had the port. The range lies below the ports that Linux gives to other sockets, so that the next
/// incarnation can have the same port.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
const WINDOW: u16 = 8;
/// The variables in which the providers tcp and net take their range of network ports.
const PORT_RANGES: [[&str; 2]; 2] = [
    ["FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE"],
    ["FI_NET_PORT_LOW_RANGE", "FI_NET_PORT_HIGH_RANGE"],
];

/// The end of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// SIGKILL.
    Killed,
    /// SIGSTOP. The victim continues after the survivor has fenced it.
    Stopped,
    /// The victim closes its port.
    Closed,
    /// SIGKILL. Its next incarnation has the same address, and starts before the survivor fences the old one.
    Restarted,
}

const ENDS: [End; 4] = [End::Killed, End::Stopped, End::Closed, End::Restarted];

/// The part of the victim in the puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Role {
    Origin,
    Target,
    Both,
}

const ROLES: [Role; 3] = [Role::Origin, Role::Target, Role::Both];

/// The parent's commands to a victim.
const CLOSE: u8 = b'c';
const FINISH: u8 = b'f';
/// The number of steps that a victim makes after [`FINISH`].
const STEPS_AFTER: u64 = 200;

#[derive(Debug)]
struct Moment {
    end: End,
    role: Role,
    /// True if the steps begin when the first put has arrived. Otherwise most of them make the connection.
    connected: bool,
    /// The steps of the survivor before the end, and between the end and the fence.
    steps: [u64; 2],
    /// True if the survivor closes its port instead of a fence.
    closes: bool,
}

#[test]
fn a_killed_peer_takes_nobody_with_it() {
    if let Some(path) = samite_os::env::get(RENDEZVOUS) {
        return Victim::run(UnixStream::connect(path).expect("the parent listens"));
    }
    with_cleanup(NAME, || {
        let number =
            |name, default| samite_os::env::get(name).map_or(default, |n| n.parse().expect("a number"));
        let (moments, seed) = (number(MOMENTS, MOMENTS_BY_DEFAULT), number(SEED, 1));
        let mut rng = SplitMix64::new(seed);
        let mut out = std::io::stdout();
        let mut survivor = Survivor::new();
        for n in 0..moments {
            let moment = Moment::draw(n, &mut rng);
            writeln!(out, "{n} of seed {seed}: {moment:?}").expect("stdout");
            survivor.live_through(&moment, &mut rng);
        }
        let Survivor { posted, cut_off, .. } = survivor;
        writeln!(out, "{moments} moments; {cut_off} of {posted} operations cut off").expect("stdout");
    });
}

const NAME: &str = "ofi::tests::killed::a_killed_peer_takes_nobody_with_it";

impl Moment {
    fn draw(n: u64, rng: &mut SplitMix64) -> Self {
        let ends = ENDS.len() as u64;
        Self {
            end: ENDS[(n % ends) as usize],
            role: ROLES[(n / ends) as usize % ROLES.len()],
            connected: rng.below(4) > 0,
            steps: [rng.log_below(12), rng.log_below(10)],
            closes: n % MOMENTS_PER_PORT == MOMENTS_PER_PORT - 1,
        }
    }
}

impl SplitMix64 {
    /// Returns a number below 2^`bits`. All lengths in bits are equally probable.
    fn log_below(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.below(bits);
        self.below(1 << bits)
    }
}

/// The operations that a process has posted to a peer, and their results.
struct Traffic {
    to: PeerId,
    from: Registration,
    into: Remote,
    posted: std::ops::Range<u64>,
    results: HashMap<u64, Result<(), Failure>>,
    /// True after a report that the peer is lost, or a refused post.
    lost: bool,
}

impl Traffic {
    fn new(to: PeerId, from: Registration, into: Remote, first: u64) -> Self {
        Self { to, from, into, posted: first..first, results: HashMap::new(), lost: false }
    }

    /// Posts an operation, or tries to.
    fn post(&mut self, node: &mut Node, rng: &mut SplitMix64) {
        if self.lost {
            return;
        }
        let (to, into, op) = (self.to, self.into, OpId(self.posted.end));
        let part = |len| self.from.local(0, len);
        let len = rng.log_below(22) as usize;
        let packet = PACKETS[rng.below(2) as usize].min(node.port.caps_for(to).packet_max - HEAD.len());
        let post = match rng.below(6) {
            0 | 1 => node.port.put(to, part(len), into, op),
            2 => node.port.put_imm(to, part(len), into, op.0, op),
            3 => node.port.put_bytes(to, &PACKET[..len.min(packet)], into, op),
            4 => node.port.send(to, &PACKET[..packet], &[]).map(|_| Post::Over),
            _ => node.port.send_zcopy(to, HEAD, part(packet), op),
        };
        match post {
            Ok(Post::Done) => self.posted.end += 1,
            Ok(Post::Again | Post::Over) | Err(PortError::Unsupported { .. }) => {}
            // On a port without a fence, a post may be the first call to detect the end of the peer.
            Err(error) => {
                assert!(error == PortError::PeerGone(to) || !node.port.caps().fence, "{error}");
                self.lost = true;
            }
        }
    }

    /// Returns true if an operation has succeeded.
    fn succeeded(&self) -> bool {
        self.results.values().any(Result::is_ok)
    }

    fn poll(&mut self, node: &mut Node) {
        node.poll();
        for heard in node.heard.0.drain(..) {
            match heard {
                Heard::Completed(op, result) if self.posted.contains(&op.0) => {
                    assert_eq!(self.results.insert(op.0, result), None, "{op:?} has completed twice");
                }
                Heard::Lost(peer) => self.lost |= peer == self.to,
                _ => {}
            }
        }
    }
}

/// The process whose peers end.
struct Survivor {
    listener: UnixListener,
    path: std::path::PathBuf,
    node: Node,
    /// The start of the last window of network ports.
    ports: u16,
    /// The victims of the next moments, which start meanwhile: this takes longer than most moments.
    next: VecDeque<Process>,
    /// Memory that the port has not returned.
    held: Vec<Region>,
    /// The number of posted operations, and how many of them did not succeed.
    posted: u64,
    cut_off: u64,
}

impl Survivor {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("samite-killed-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a fresh path");
        let windows = u32::from(PORTS.len() as u16 / WINDOW);
        let ports = PORTS.start + (std::process::id() % windows) as u16 * WINDOW;
        let next = VecDeque::new();
        Self { listener, path, node: Node::open(1), ports, next, held: Vec::new(), posted: 0, cut_off: 0 }
    }

    fn live_through(&mut self, moment: &Moment, rng: &mut SplitMix64) {
        let (target, ours) = self.node.region(vec![FRESH; LEN], ALL);
        let (source, from) = self.node.region(vec![SENT; LEN], Access::LOCAL_READ);
        let mut victim = self.next_victim();
        victim.begin(moment.role);
        let (address, into) = meet(&self.node, &victim.stream, ours);
        let to = self.node.port.resolve(&address).expect("an address of the same kind");
        let mut traffic = Traffic::new(to, from, into, self.posted);
        let arrived = |traffic: &Traffic| traffic.succeeded() || has_arrived(&target);
        if moment.connected {
            // One side makes the connection. If both do, the provider net may close it (see the module `ofi`).
            let role = if moment.role == Role::Both { Role::Origin } else { moment.role };
            self.go_on(&mut traffic, role, POLLS_MAX as u64, rng, arrived);
            assert!(arrived(&traffic), "no put arrives");
        }
        self.go_on(&mut traffic, moment.role, moment.steps[0], rng, |_| false);
        victim.end(moment.end);
        let mut next = (moment.end == End::Restarted).then(|| {
            let mut victim = self.spawn(port_of(&address).map_or([0; 2], |port| [port; 2]));
            victim.begin(Role::Target);
            let (next, into) = meet(&self.node, &victim.stream, ours);
            assert!(next == address || port_of(&address).is_none(), "the same address");
            (victim, next, into)
        });
        self.go_on(&mut traffic, moment.role, moment.steps[1], rng, |_| false);
        self.part(&mut traffic, &[ours, from], moment.closes);
        let returned = self.take_back([target, source], moment.closes);
        if moment.end == End::Stopped {
            victim.signal(libc::SIGCONT);
        }
        if [End::Stopped, End::Closed].contains(&moment.end) {
            victim.finish(&mut self.node, &mut traffic);
        }
        self.settle(traffic, moment);
        if let Some((victim, address, into)) = &mut next {
            self.greet(victim, address, *into);
        }
        for memory in returned {
            assert!(memory.as_bytes() == vec![RETURNED; LEN], "returned memory was written to");
        }
    }

    /// Returns the victim of this moment, and starts those of the next.
    fn next_victim(&mut self) -> Process {
        while self.next.len() <= VICTIMS_AHEAD {
            let next = self.ports + WINDOW;
            self.ports = if PORTS.contains(&next) { next } else { PORTS.start };
            let victim = self.spawn([self.ports, self.ports + WINDOW - 1]);
            self.next.push_back(victim);
        }
        self.next.pop_front().expect("just filled")
    }

    /// Starts a victim whose network port is in a range.
    fn spawn(&self, ports: [u16; 2]) -> Process {
        let ports = ports.map(|port| port.to_string());
        let process = Command::new(std::env::current_exe().expect("the path of this program"))
            .args(["--exact", NAME])
            .env(RENDEZVOUS, &self.path)
            .envs(PORT_RANGES.iter().flat_map(|names| names.iter().copied().zip(&ports)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts");
        let (stream, _) = self.listener.accept().expect("the victim comes");
        Process { process, stream }
    }

    /// Posts and polls, for some steps, until the victim is known to be lost, or until `done` returns true.
    fn go_on(
        &mut self,
        traffic: &mut Traffic,
        role: Role,
        steps: u64,
        rng: &mut SplitMix64,
        done: impl Fn(&Traffic) -> bool,
    ) {
        for _ in 0..steps {
            if role != Role::Origin {
                traffic.post(&mut self.node, rng);
            }
            traffic.poll(&mut self.node);
            if traffic.lost || done(traffic) {
                return;
            }
        }
    }

    /// Fences the victim and ends the registrations, or closes the port.
    fn part(&mut self, traffic: &mut Traffic, registrations: &[Registration], closes: bool) {
        if closes {
            self.node = Node::open(1);
            return;
        }
        self.node.port.fence_peer(traffic.to);
        registrations.iter().for_each(|&registration| self.node.port.deregister(registration));
        traffic.poll(&mut self.node);
    }

    /// Takes back the memory that the port has returned, and fills it with the pattern.
    fn take_back(&mut self, regions: [Region; 2], closed: bool) -> Vec<Memory> {
        let all = closed || self.node.port.caps().fence;
        let mut returned = Vec::new();
        for region in std::mem::take(&mut self.held).into_iter().chain(regions) {
            match region.reclaim() {
                Ok(mut memory) => {
                    memory.as_bytes_mut().fill(RETURNED);
                    returned.push(memory);
                }
                Err(region) => {
                    assert!(!all, "memory is held");
                    self.held.push(region);
                }
            }
        }
        returned
    }

    /// Puts to the next incarnation of a victim, and lets it finish.
    fn greet(&mut self, victim: &mut Process, address: &Address, into: Remote) {
        let (region, from) = self.node.region(vec![SENT; LEN], ALL);
        let mut ends = Vec::new();
        for _ in 0..GREETINGS_MAX {
            let to = self.node.port.resolve(address).expect("an address of the same kind");
            let mut traffic = Traffic::new(to, from, into, self.posted);
            self.posted += 1;
            for _ in 0..POLLS_MAX {
                let op = OpId(traffic.posted.start);
                if traffic.posted.is_empty()
                    && self.node.port.put(to, from.local(0, LEN), into, op) == Ok(Post::Done)
                {
                    traffic.posted.end += 1;
                }
                traffic.poll(&mut self.node);
                if traffic.lost || !traffic.results.is_empty() {
                    break;
                }
            }
            if traffic.succeeded() {
                victim.finish(&mut self.node, &mut traffic);
                self.part(&mut traffic, &[from], false);
                self.held.extend(region.reclaim().err());
                return;
            }
            ends.push((traffic.lost, traffic.results));
            // The provider net reports an error for each put that it tries to send on the dead connection. It makes a
            // new connection only after it has read the end of the dead one (xnet_progress_tx and xnet_ep_disable at
            // v1.17.0), and it reads only while no completion waits.
            while self.node.port.poll(&mut self.node.heard).expect("the port works") > 0 {}
        }
        panic!("no put reaches the next incarnation: {ends:?}");
    }

    /// Checks the results of a victim's operations.
    fn settle(&mut self, traffic: Traffic, moment: &Moment) {
        let complete = self.node.port.caps().fence && !moment.closes;
        for op in traffic.posted.clone() {
            match traffic.results.get(&op) {
                Some(Ok(())) => continue,
                Some(Err(Failure::PeerLost | Failure::Fenced)) => {}
                // The put of an old key was refused by the next incarnation.
                Some(Err(Failure::Refused)) if moment.end == End::Restarted => {}
                None if !complete => {}
                other => panic!("operation {op} ended as {other:?}"),
            }
            self.cut_off += 1;
        }
        self.posted = traffic.posted.end;
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A victim's process, as its parent sees it. It is killed on drop.
struct Process {
    process: Child,
    stream: UnixStream,
}

impl Process {
    fn begin(&mut self, role: Role) {
        self.stream.write_all(&[role as u8]).expect("the victim reads");
    }

    fn end(&mut self, end: End) {
        match end {
            End::Killed | End::Restarted => {
                self.process.kill().expect("it runs");
                self.process.wait().expect("it was a child");
            }
            End::Stopped => self.signal(libc::SIGSTOP),
            End::Closed => self.stream.write_all(&[CLOSE]).expect("the victim reads"),
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that was not waited for, so the number is not another process's.
        let status = unsafe { libc::kill(self.process.id() as libc::pid_t, signal) };
        assert_eq!(status, 0);
    }

    /// Lets the victim go on for some steps and close its port. Checks that it survives this.
    fn finish(&mut self, node: &mut Node, traffic: &mut Traffic) {
        // A victim that was told to close its port may have ended already.
        let _ = self.stream.write_all(&[FINISH]);
        self.stream.set_nonblocking(true).expect("a socket");
        while self.stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
            traffic.poll(node);
        }
        let status = self.process.wait().expect("it was a child");
        assert!(status.success(), "the victim ended with {status}");
        traffic.poll(node);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls do nothing after the process was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The victim itself.
struct Victim;

impl Victim {
    /// Puts and sends to the parent until it gets a command.
    fn run(mut stream: UnixStream) {
        let mut node = Node::open(2);
        let mut role = [0];
        if stream.read_exact(&mut role).is_err() {
            // The parent needs no more victims.
            return;
        }
        let (region, ours) = node.region(vec![FRESH; LEN], ALL);
        let (source, from) = node.region(vec![SENT; LEN], Access::LOCAL_READ);
        let (address, into) = meet(&node, &stream, ours);
        let to = node.port.resolve(&address).expect("an address of the same kind");
        let mut traffic = Traffic::new(to, from, into, 0);
        let mut rng = SplitMix64::from_entropy();
        stream.set_nonblocking(true).expect("a socket");
        let mut left = u64::MAX;
        while left > 0 {
            left -= 1;
            if role[0] != Role::Target as u8 {
                traffic.post(&mut node, &mut rng);
            }
            traffic.poll(&mut node);
            let mut command = [0];
            match stream.read(&mut command) {
                Ok(1) if command[0] == FINISH => left = left.min(STEPS_AFTER),
                // The parent has ended, or wants the port closed.
                Ok(_) => left = 0,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        drop(node);
        let memory = region.reclaim().expect("the port is closed");
        assert!(!memory.as_bytes().contains(&RETURNED), "a put has read returned memory");
        assert!(source.reclaim().expect("the port is closed").as_bytes() == vec![SENT; LEN]);
    }
}

/// Returns true if a put has written the first byte.
fn has_arrived(target: &Region) -> bool {
    let mut first = [0];
    target.copy_out(0, &mut first).expect("within the region");
    first == [SENT]
}

/// Returns the network port in an address of IPv4.
fn port_of(address: &Address) -> Option<u16> {
    let (format, rest) = address.0.split_at(FORMAT_LEN);
    let name = &rest[size_of::<u32>()..];
    let is_v4 = format[4..] == sys::FI_SOCKADDR_IN.to_le_bytes() && tcp_family();
    is_v4.then(|| u16::from_be_bytes([name[2], name[3]]))
}

/// Returns true if the provider takes its network port from [`PORT_RANGES`].
fn tcp_family() -> bool {
    ["tcp;ofi_rxm", "tcp", "net"].contains(&&*config().provider)
}

/// Exchanges addresses and keys of registrations with the other side.
fn meet(node: &Node, mut stream: &UnixStream, registration: Registration) -> (Address, Remote) {
    let address = node.port.address().0;
    let keys = [registration.key, registration.base].map(u64::to_le_bytes);
    stream.write_all(&[&address[..], &keys.concat()].concat()).expect("the other side reads");
    let (mut theirs, mut keys) = (vec![0; address.len()], [[0; 8]; 2]);
    stream.read_exact(&mut theirs).expect("the other side writes");
    keys.iter_mut().for_each(|key| stream.read_exact(key).expect("the other side writes"));
    let [key, address] = keys.map(u64::from_le_bytes);
    (Address(theirs), Remote { key, address })
}
