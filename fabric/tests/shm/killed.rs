//! Processes killed at any instruction, under traffic in both directions. `ci/shm-kill.sh 5000` kills more of them.
//!
//! The parent talks to victims, which it kills at random moments, from before they have opened their port to
//! the midst of a stream, and to one survivor. What it hears of anybody comes without a gap, a loss or a
//! changed byte, up to the kill; the survivor is heard on; senders to the dead are told; and nothing is left
//! behind: no descriptor, no mapping, no slot, no file, no process.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::Write;

use samite_fabric::SplitMix64;

use super::*;

const TEST: &str = "killed::survivors_go_on_whoever_is_killed";
/// How many to kill, by the environment.
const KILLS: &str = "SAMITE_SHM_KILLS";
/// Living at one time. With the survivor and the dead whose slots nobody has asked for yet they are more than
/// there are slots.
const VICTIMS: usize = 3;

#[test]
fn survivors_go_on_whoever_is_killed() {
    if let Some(parent) = parent() {
        return talk(&parent);
    }
    #[expect(clippy::disallowed_methods, reason = "how ci/shm-kill.sh says how often")]
    let kills = env::var(KILLS).map_or(60, |kills| kills.parse().expect("a number"));
    let mut rng = SplitMix64::new(kills);
    let mut house = House::new();
    let survivor = spawn(TEST, &house.port);
    house.hear(survivor.id(), 200);
    let mut victims: VecDeque<Child> = (0..VICTIMS).map(|_| spawn(TEST, &house.port)).collect();
    for kill in 0..kills {
        let mut victim = victims.remove(rng.below(VICTIMS as u64) as usize).expect("there are so many");
        match rng.below(4) {
            // It may not have begun to run.
            0 => {}
            1 => house.polls(rng.below(3000)),
            _ => house.hear(victim.id(), 1 + rng.below(400) as usize),
        }
        victim.kill().unwrap();
        house.bury(victim.id(), kill % 2 == 0);
        victim.wait().unwrap();
        victims.push_back(spawn(TEST, &house.port));
        house.hear(survivor.id(), 20);
        // A mailbox and rings for each of those that live, or whose slot nobody has wanted since.
        let (descriptors, mappings) = traces();
        assert!(descriptors <= 3 + CONFIG.peers_max && mappings <= 2 + 3 * CONFIG.peers_max + VICTIMS);
    }
    let House { port, packets, .. } = house;
    drop(port);
    // They find the mailbox closed.
    for mut child in victims.into_iter().chain([survivor]) {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(traces(), (0, 0), "descriptors and mappings left");
    let ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains("samite");
    assert!(!fs::read_dir("/dev/shm").unwrap().flatten().any(ours), "a file was left");
    writeln!(std::io::stdout(), "{kills} processes killed, {packets} packets checked").unwrap();
}

/// The parent.
struct House {
    port: Shm,
    /// By process and the number of its port.
    lives: HashMap<(u32, u32), Life>,
    /// Packets, by process.
    heard: HashMap<u32, usize>,
    packets: u64,
}

struct Life {
    peer: PeerId,
    /// Next round from it, and to it.
    from: usize,
    to: usize,
}

impl House {
    fn new() -> Self {
        Self { port: Shm::open(&CONFIG).unwrap(), lives: HashMap::new(), heard: HashMap::new(), packets: 0 }
    }

    /// Polls until `count` more packets of a process came.
    fn hear(&mut self, process: u32, count: usize) {
        let target = self.heard.get(&process).copied().unwrap_or(0) + count;
        while self.heard.get(&process).copied().unwrap_or(0) < target {
            self.polls(1);
            std::thread::yield_now();
        }
    }

    /// Checks what has come, and answers each.
    fn polls(&mut self, count: u64) {
        for _ in 0..count {
            let mut log = Log::default();
            self.port.poll(&mut log).unwrap();
            for packet in log.packets {
                self.packets += 1;
                let Some(life) = self.take(&packet) else { continue };
                self.answer(life);
            }
            // Only those that closed a port and opened another can be lost here.
            for peer in log.lost {
                self.lives.retain(|_, life| life.peer != peer);
            }
        }
    }

    fn take(&mut self, packet: &[u8]) -> Option<(u32, u32)> {
        let (head, body) = packet.split_at(8);
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let key = (number(&head[..4]), number(&head[4..]));
        if let Some(life) = self.lives.get_mut(&key) {
            assert_eq!(body, packet_of(life.from), "a gap, or a changed byte");
            life.from += 1;
        } else {
            // The first packet is its address. It takes the place of its former port, if it is not gone itself.
            self.bury(key.0, false);
            let peer = self.port.resolve(&Address(body.to_vec())).ok()?;
            self.lives.insert(key, Life { peer, from: 1, to: 0 });
        }
        *self.heard.entry(key.0).or_default() += 1;
        Some(key)
    }

    /// Sends one packet, if there is room.
    fn answer(&mut self, key: (u32, u32)) {
        let Some(life) = self.lives.get_mut(&key) else { return };
        match self.port.send(life.peer, &packet_of(life.to), &[]) {
            Ok(Post::Done) => life.to += 1,
            Ok(Post::Again) | Err(PortError::PeerGone(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A process was killed, or has closed its port. `sending`: go on to send to it, and learn of it by that.
    fn bury(&mut self, process: u32, sending: bool) {
        let keys: Vec<_> = self.lives.keys().copied().filter(|key| key.0 == process).collect();
        for Life { peer, .. } in keys.iter().filter_map(|key| self.lives.remove(key)) {
            while sending && self.port.send(peer, &[0; 40], &[]) != Err(PortError::PeerGone(peer)) {}
            self.port.fence_peer(peer);
        }
    }
}

/// A victim, or the survivor: streams to the parent and checks what it streams back, until the parent closes.
/// Victims close their ports and open others now and then.
fn talk(parent: &Address) {
    let process = std::process::id();
    for life in 0u32.. {
        let mut port = Shm::open(&CONFIG).unwrap();
        let Ok(to) = port.resolve(parent) else { return };
        let head = [process.to_le_bytes(), life.to_le_bytes()].concat();
        let mut echo = 0;
        let rounds = 500 + 300 * life as usize;
        for round in 0..rounds {
            let body = if round == 0 { port.address().0 } else { packet_of(round) };
            loop {
                match port.send(to, &head, &body) {
                    Ok(Post::Done) => break,
                    Ok(Post::Again) => std::thread::yield_now(),
                    // No slot is free, until the dead ones' are given back.
                    Err(PortError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(PortError::PeerGone(_)) => return,
                    Err(error) => panic!("{error}"),
                }
                let mut log = Log::default();
                port.poll(&mut log).unwrap();
                for packet in log.packets {
                    assert_eq!(packet, packet_of(echo), "a gap, or a changed byte");
                    echo += 1;
                }
            }
        }
    }
}

/// Descriptors and mappings of mailboxes in this process.
fn traces() -> (usize, usize) {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let descriptors = links.filter(|link| link.to_string_lossy().contains("samite-mailbox")).count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("samite-mailbox")).count())
}
