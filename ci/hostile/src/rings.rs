//! A member that writes arbitrary values to another member's mailbox, which every member can map.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Body, Failure, OpId, PeerId, Port, PortError, Post, Sink};

use crate::input::Input;

/// Runs a program. Each step writes to the receiver's mailbox, sends to the receiver, polls it, or puts it to sleep.
/// The receiver must deliver only packets within its limit, return typed errors for everything else, and still send to
/// another member.
pub fn ring(bytes: &[u8]) {
    thread_local! {
        static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
    }
    BENCH.with_borrow_mut(|kept| {
        // The next program uses the same ports, unless one of them has failed.
        let mut bench = kept.take().filter(Bench::is_whole).unwrap_or_else(Bench::open);
        let mut input = Input::new(bytes);
        while !input.is_empty() {
            bench.step(&mut input);
        }
        bench.check_the_honest();
        *kept = Some(bench);
    });
}

struct Bench {
    receiver: Shm,
    hostile: Shm,
    /// Another member, to which the receiver sends.
    honest: Shm,
    mailbox: File,
    /// The hostile port's name for the receiver.
    there: PeerId,
    /// The receiver's name for the hostile port.
    back: PeerId,
    /// The receiver's name for the honest port.
    forth: PeerId,
    lost: bool,
    packets: usize,
}

const CONFIG: Config = Config {
    peers_max: 3,
    ring_bytes_min: 2 << 10,
    ring_bytes: 8 << 10,
    ring_bytes_max: 32 << 10,
    growth_bytes_max: 64 << 10,
};

impl Bench {
    fn open() -> Self {
        let open = || Shm::open(&CONFIG).expect("a port opens");
        let (mut receiver, mut hostile, honest) = (open(), open(), open());
        let there = hostile.resolve(&receiver.address()).expect("it is here");
        let back = receiver.resolve(&hostile.address()).expect("it is here");
        let forth = receiver.resolve(&honest.address()).expect("it is here");
        let mailbox = mailbox(&receiver);
        let (lost, packets) = (false, 0);
        let mut bench = Self { receiver, hostile, honest, mailbox, there, back, forth, lost, packets };
        // The first send creates the rings.
        assert_eq!(bench.hostile.send(there, b"hello", &[]), Ok(Post::Done));
        bench.poll();
        bench
    }

    fn is_whole(&self) -> bool {
        !self.lost
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            // Every line of a ring announces the same packet, so that the receiver finds a packet at any position.
            0 | 1 => {
                let (start, len) = RINGS[input.below(RINGS.len())];
                let (announced, content) = (value(input), value(input));
                let line = [[announced].as_slice(), &[content; 7]].concat();
                let line: Vec<u8> = line.into_iter().flat_map(u64::to_ne_bytes).collect();
                self.write(start, &line.repeat(len / LINE));
            }
            2 => {
                let (start, len) = RINGS[input.below(RINGS.len())];
                let at = start + input.below(len / LINE) * LINE + 8 * input.below(8);
                self.write(at, &value(input).to_ne_bytes());
            }
            // Overwrites a word of the header, of the bell or of the slots.
            3 | 4 => {
                let at = 8 * input.below(TABLE_WORDS);
                self.write(at, &value(input).to_ne_bytes());
            }
            5 => {
                let body = vec![7; usize::from(input.byte()) * 14];
                let sent = self.hostile.send(self.there, &[1; 8], &body);
                assert!(
                    matches!(
                        sent,
                        Ok(Post::Done | Post::Again)
                            | Err(PortError::PeerGone(_) | PortError::Exhausted { .. })
                    ),
                    "{sent:?}"
                );
            }
            6 => {
                let _ = self.receiver.seems_idle();
                self.receiver.arm();
                self.receiver.disarm();
            }
            _ => self.poll(),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.mailbox.write_all_at(bytes, at as u64).expect("a file in memory");
    }

    fn poll(&mut self) {
        let mut sink = Heard { packet_max: self.receiver.caps().packet_max, packets: 0, lost: Vec::new() };
        for _ in 0..4 {
            let polled = self.receiver.poll(&mut sink);
            assert!(matches!(polled, Ok(_) | Err(PortError::Exhausted { .. })), "{polled:?}");
        }
        self.packets += sink.packets;
        assert!(sink.lost.iter().all(|&peer| peer == self.back), "{:?}", sink.lost);
        if !sink.lost.is_empty() {
            self.lost = true;
            assert_eq!(self.receiver.send(self.back, &[], &[]), Err(PortError::PeerGone(self.back)));
        }
    }

    /// Checks that the receiver still sends.
    fn check_the_honest(&mut self) {
        self.poll();
        assert_eq!(self.receiver.send(self.forth, b"still there", &[]), Ok(Post::Done));
        let mut sink = Heard { packet_max: 11, packets: 0, lost: Vec::new() };
        assert_eq!(self.honest.poll(&mut sink), Ok(1));
        assert_eq!(sink.packets, 1);
    }
}

/// Returns the file in which a port receives: the descriptor's number is in its address.
fn mailbox(port: &Shm) -> File {
    let address = port.address().0;
    let (_, fd) = address.split_last_chunk().expect("an address of samite-shm");
    let path = format!("/proc/self/fd/{}", u32::from_le_bytes(*fd));
    OpenOptions::new().read(true).write(true).open(path).expect("the port's own descriptor")
}

/// Returns a number that is in most cases a valid word of the mailbox, or nearly valid.
fn value(input: &mut Input<'_>) -> u64 {
    match input.below(8) {
        0 => input.u64(),
        1 => 0,
        2 => input.byte().into(),
        // The word that announces a packet of some length.
        3 => u64::from(input.byte()) << 4 | 1,
        // A word that announces a long packet, a notice, or a switch to another ring.
        4 => 0xfffc + u64::from(input.byte() % 6),
        // The lengths of a head and of a body, in one word.
        5 => u64::from(input.byte() % 64) << 32 | u64::from(input.u32() & 0x3fff),
        6 => 1 << (input.byte() % 64),
        _ => u64::MAX - u64::from(input.byte()),
    }
}

#[derive(Debug)]
struct Heard {
    packet_max: usize,
    packets: usize,
    lost: Vec<PeerId>,
}

impl Sink for Heard {
    fn packet(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.packet_max);
        self.packets += 1;
    }

    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        assert!(head.len() <= 48 && body.len() <= self.packet_max);
        body.copy_to(&mut vec![0; body.len()]);
        self.packets += 1;
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        panic!("{op:?} was never begun: {result:?}");
    }

    fn notified(&mut self, _: u64) {}

    fn peer_lost(&mut self, peer: PeerId) {
        self.lost.push(peer);
    }
}

/// The position and the length of the small ring and of the large ring of the first slot. Both lie behind the table of
/// slots.
const RINGS: [(usize, usize); 2] =
    [(64 << 10, CONFIG.ring_bytes_min), ((64 << 10) + CONFIG.ring_bytes_min, CONFIG.ring_bytes)];
const LINE: usize = 64;
/// Words of the header and the slots.
const TABLE_WORDS: usize = 168;
