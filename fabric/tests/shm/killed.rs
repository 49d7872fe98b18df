//! Processes killed at any instruction, under traffic in both directions. `ci/shm-kill.sh 5000` kills more of them.
//!
//! The parent exchanges packets with victims and with one survivor. It kills the victims at random moments, from before
//! they have opened their port to the middle of a stream. It checks that the packets of each process arrive, up to the
//! kill, without a gap or a changed byte; that puts to the parent's memory are complete; that packets of the survivor
//! arrive throughout; that sends to dead processes fail; and that nothing of them remains: no descriptor, no mapping,
//! no slot, no file, no process.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::Write;

use samite_fabric::{Access, Local, Memory, Region, Registration, Remote, SplitMix64};

use super::*;

const TEST: &str = "killed::survivors_go_on_when_processes_are_killed";
/// The environment variable with the number of kills.
const KILLS: &str = "SAMITE_SHM_KILLS";
/// The number of victims alive at one time. Together with the survivor, and with dead processes whose slots have not
/// been freed yet, they are more than there are slots.
const VICTIMS: usize = 3;

/// The environment variable that is set in the process in which this test runs alone. The test counts descriptors, and
/// other tests in the same process would open ports too.
const ALONE: &str = "SAMITE_TEST_ALONE";

#[test]
fn survivors_go_on_when_processes_are_killed() {
    if let Some(parent) = parent() {
        return talk(&parent);
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "how a test knows that it is alone, and ci/shm-kill.sh says how often"
    )]
    let (alone, kills) = (env::var_os(ALONE), env::var(KILLS));
    if alone.is_none() {
        let test = Command::new(env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(ALONE, "")
            .status();
        assert!(test.unwrap().success());
        return;
    }
    let kills = kills.map_or(60, |kills| kills.parse().expect("a number"));
    let mut rng = SplitMix64::new(kills);
    let mut parent = Parent::new();
    let mut survivor = spawn(TEST, &parent.port);
    parent.hear(&mut survivor, 200);
    let mut victims: VecDeque<Spawned> = (0..VICTIMS).map(|_| spawn(TEST, &parent.port)).collect();
    for kill in 0..kills {
        let mut victim = victims.remove(rng.below(VICTIMS as u64) as usize).expect("there are so many");
        match rng.below(4) {
            // Kills the child at once: it may not have started to run.
            0 => {}
            1 => parent.polls(rng.below(3000)),
            _ => parent.hear(&mut victim, 1 + rng.below(400) as usize),
        }
        victim.kill().unwrap();
        parent.fail_process(victim.id(), kill % 2 == 0);
        victim.wait().unwrap();
        victims.push_back(spawn(TEST, &parent.port));
        parent.hear(&mut survivor, 20);
        // The parent keeps a mailbox and rings open for each living process, and for each dead process whose slot has
        // not been needed again.
        let (descriptors, mappings) = traces();
        assert!(descriptors <= 4 + CONFIG.peers_max && mappings <= 3 + 3 * CONFIG.peers_max + VICTIMS);
    }
    let Parent { port, packets, shared, .. } = parent;
    drop((port, shared));
    // The remaining processes find the mailbox closed.
    for mut child in victims.into_iter().chain([survivor]) {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(traces(), (0, 0), "descriptors and mappings left");
    let ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains("samite");
    assert!(!fs::read_dir("/dev/shm").unwrap().flatten().any(ours), "a file was left");
    writeln!(std::io::stdout(), "{kills} processes killed, {packets} packets checked").unwrap();
}

/// The parent's state.
struct Parent {
    port: Shm,
    /// The remote ports, by the process and the number of the port within it.
    ports: HashMap<(u32, u32), RemotePort>,
    /// Number of packets, by process.
    heard: HashMap<u32, usize>,
    packets: u64,
    /// The target of all puts; each port has its own area.
    shared: Region,
    registration: Option<Registration>,
}

/// A port of a child.
struct RemotePort {
    peer: PeerId,
    /// The number of the next round from the peer.
    from: usize,
    /// The number of the next round to the peer.
    to: usize,
    /// Number of notices from the peer.
    notices: u32,
    area: usize,
}

impl Parent {
    fn new() -> Self {
        Self {
            port: Shm::open(&CONFIG).unwrap(),
            ports: HashMap::new(),
            heard: HashMap::new(),
            packets: 0,
            shared: Region::shared(AREAS * AREA).unwrap(),
            registration: None,
        }
    }

    /// Polls until `count` more packets of a process have arrived.
    fn hear(&mut self, child: &mut Child, count: usize) {
        let heard = |parent: &Self, child: &Child| parent.heard.get(&child.id()).copied().unwrap_or(0);
        let target = heard(self, child) + count;
        while heard(self, child) < target {
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
            self.polls(10);
            std::thread::yield_now();
        }
    }

    /// Polls `count` times. Checks the packets that arrive, and answers each.
    fn polls(&mut self, count: u64) {
        for _ in 0..count {
            let mut log = Log::default();
            self.port.poll(&mut log).unwrap();
            for packet in log.packets {
                self.packets += 1;
                let Some(key) = self.take(&packet) else { continue };
                self.answer(key);
            }
            for notice in log.notified {
                let key = ((notice >> 40) as u32, (notice >> 20) as u32 & 0xf_ffff);
                if let Some(port) = self.ports.get_mut(&key) {
                    assert_eq!(notice as u32 & 0xf_ffff, port.notices, "a notice was lost");
                    port.notices += 1;
                }
            }
        }
    }

    fn take(&mut self, packet: &[u8]) -> Option<(u32, u32)> {
        let (head, body) = packet.split_at(8);
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let key = (number(&head[..4]), number(&head[4..]));
        if let Some(port) = self.ports.get_mut(&key) {
            assert_eq!(body, packet_of(port.from), "a gap, or a changed byte");
            port.from += 1;
        } else if self.ports.keys().any(|&(process, number)| process == key.0 && number > key.1) {
            // The packet came from a port that was closed before this process received its first packet.
            return None;
        } else {
            // The first packet contains the port's address. The port replaces the process's former port, if that is
            // still known.
            self.fail_process(key.0, false);
            let peer = self.port.resolve(&Address(body.to_vec())).ok()?;
            let taken = |area: &usize| self.ports.values().any(|port| port.area == *area);
            let area =
                (0..AREAS).map(|index| index * AREA).find(|area| !taken(area)).expect("enough for all");
            self.ports.insert(key, RemotePort { peer, from: 1, to: 0, notices: 0, area });
        }
        *self.heard.entry(key.0).or_default() += 1;
        Some(key)
    }

    /// Sends one packet, if there is room.
    fn answer(&mut self, key: (u32, u32)) {
        let Some(port) = self.ports.get_mut(&key) else { return };
        let packet = match (port.to, self.registration) {
            (0, None) => {
                let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
                let Ok(registration) = self.port.register(port.peer, &self.shared, access) else { return };
                self.registration = Some(registration);
                place_of(registration.remote(port.area))
            }
            (0, Some(registration)) => place_of(registration.remote(port.area)),
            (round, _) => packet_of(round),
        };
        match self.port.send(port.peer, &packet, &[]) {
            Ok(Post::Done) => port.to += 1,
            Ok(Post::Again | Post::Over) | Err(PortError::PeerGone(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Notes that a process was killed, or has closed its port. If `sending` is true, sends to the process until a send
    /// fails.
    fn fail_process(&mut self, process: u32, sending: bool) {
        let keys: Vec<_> = self.ports.keys().copied().filter(|key| key.0 == process).collect();
        for RemotePort { peer, .. } in keys.iter().filter_map(|key| self.ports.remove(key)) {
            while sending && self.port.send(peer, &[0; 40], &[]) != Err(PortError::PeerGone(peer)) {}
            self.port.fence_peer(peer);
        }
    }
}

/// Runs a victim, or the survivor: streams to the parent and checks the parent's stream, until the parent closes.
/// Victims close their ports and open others at intervals.
fn talk(parent: &Address) {
    let process = std::process::id();
    for number in 0u32.. {
        let mut port = Shm::open(&CONFIG).unwrap();
        let Ok(to) = port.resolve(parent) else { return };
        let head = [process.to_le_bytes(), number.to_le_bytes()].concat();
        let mut echo = 0;
        let mut putter = None;
        let rounds = 500 + 300 * number as usize;
        for round in 0..rounds {
            let body = if round == 0 { port.address().0 } else { packet_of(round) };
            loop {
                match port.send(to, &head, &body) {
                    Ok(Post::Done | Post::Over) => break,
                    Ok(Post::Again) => std::thread::yield_now(),
                    // No slot is free until those of dead processes are freed.
                    Err(PortError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(PortError::PeerGone(_)) => return,
                    Err(error) => panic!("{error}"),
                }
                let mut log = Log::default();
                port.poll(&mut log).unwrap();
                for packet in log.packets {
                    if echo == 0 {
                        putter = Some(Putter::new(&mut port, to, &packet));
                    } else {
                        assert_eq!(packet, packet_of(echo), "a gap, or a changed byte");
                    }
                    echo += 1;
                }
                assert!(log.completed.iter().all(Result::is_ok), "{:?}", log.completed);
            }
            if let Some(putter) = &mut putter
                && round % 4 == 0
                && putter.put_and_get(&mut port, u64::from(process) << 40 | u64::from(number) << 20).is_none()
            {
                return;
            }
        }
    }
}

/// Puts to the parent's memory, and checks the result.
struct Putter {
    to: PeerId,
    place: Remote,
    ours: Region,
    local: Local,
    count: u64,
}

impl Putter {
    fn new(port: &mut Shm, to: PeerId, place: &[u8]) -> Self {
        let (key, address) = place.split_first_chunk().expect("two numbers");
        let [key, address] =
            [key, address.as_array().expect("two numbers")].map(|&bytes| u64::from_le_bytes(bytes));
        let ours = Region::new(Memory::zeroed(AREA));
        let registration = port.register(to, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
        Self { to, place: Remote { key, address }, ours, local: registration.local(0, AREA), count: 0 }
    }

    /// Returns `None` if the parent has closed.
    fn put_and_get(&mut self, port: &mut Shm, notice: u64) -> Option<()> {
        let bytes = [self.count.wrapping_add(1) as u8; AREA];
        self.ours.copy_in(0, &bytes).unwrap();
        match port.put_imm(self.to, self.local, self.place, notice | self.count, OpId(0)) {
            Ok(Post::Done | Post::Over) => {}
            Ok(Post::Again) => return Some(()),
            Err(PortError::PeerGone(_)) => return None,
            Err(error) => panic!("{error}"),
        }
        self.count += 1;
        self.ours.copy_in(0, &[0; AREA]).unwrap();
        match port.get(self.to, self.local, self.place, OpId(1)) {
            Ok(post) => assert_eq!(post, Post::Over),
            Err(PortError::PeerGone(_)) => return None,
            Err(error) => panic!("{error}"),
        }
        let mut got = [0; AREA];
        self.ours.copy_out(0, &mut got).unwrap();
        assert_eq!(got, bytes);
        Some(())
    }
}

fn place_of(remote: Remote) -> Vec<u8> {
    [remote.key.to_le_bytes(), remote.address.to_le_bytes()].concat()
}

/// The number of areas of the parent's memory. It is larger than the number of ports that exist at one time.
const AREAS: usize = 16;
/// The size of an area in bytes. It is not a multiple of a word.
const AREA: usize = 301;

/// Returns the number of descriptors and the number of mappings of samite's memory files in this process.
fn traces() -> (usize, usize) {
    // This process's own heap stays.
    let counts = |line: &str| line.contains("memfd:samite-") && !line.contains("memfd:samite-heap");
    let links =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let descriptors = links.filter(|link| counts(&link.to_string_lossy())).count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| counts(line)).count())
}
