//! Sleeping on a port: every event wakes the sleeper.

use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use samite_fabric::loopback::Hub;
use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Address, Failure, OpId, PeerId, Port, Post, Sink, Sleep, SplitMix64};

#[test]
fn loopback_wakes() {
    let hub = Hub::new();
    exchange(hub.port(), hub.port(), 20_000);
}

#[test]
fn shm_wakes() {
    let config = Config { peers_max: 4, ..Config::default() };
    let port = || Shm::open(&config).unwrap();
    exchange(port(), port(), 20_000);
}

#[cfg(feature = "ofi")]
#[test]
fn a_provider_with_a_descriptor_wakes() {
    use samite_fabric::ofi::{OfiConfig, OfiPort};
    let port =
        |seed| OfiPort::open(&OfiConfig { stays_on_host: true, seed, ..OfiConfig::default() }).unwrap();
    exchange(port(1), port(2), 2_000);
}

/// Several senders wake the same sleeping receiver.
#[test]
fn several_senders_wake_one_sleeper() {
    let config = Config { peers_max: 8, ..Config::default() };
    let mut receiver = Shm::open(&config).unwrap();
    let address = receiver.address();
    let (senders, packets) = (4, 2_000);
    thread::scope(|scope| {
        for seed in 0..senders {
            let (config, address) = (&config, &address);
            scope.spawn(move || {
                let mut port = Shm::open(config).unwrap();
                let to = port.resolve(address).unwrap();
                let mut random = SplitMix64::new(seed);
                for _ in 0..packets {
                    pause(&mut random);
                    send(&mut port, to, &[1]);
                }
            });
        }
        let mut inbox = Inbox::default();
        for _ in 0..senders * packets {
            inbox.next(&mut receiver);
        }
    });
}

/// Sends packets back and forth, each after a pause. The side that waits for a packet sleeps.
fn exchange(a: impl Port + Send, b: impl Port + Send, rounds: u32) {
    let (to_a, to_b) = (a.address(), b.address());
    thread::scope(|scope| {
        scope.spawn(move || side(a, &to_b, 1, rounds, true));
        scope.spawn(move || side(b, &to_a, 2, rounds, false));
    });
}

fn side(mut port: impl Port, peer: &Address, seed: u64, rounds: u32, first: bool) {
    let mut random = SplitMix64::new(seed);
    let peer = port.resolve(peer).unwrap();
    let mut inbox = Inbox::default();
    for round in 0..rounds {
        pause(&mut random);
        if first {
            send(&mut port, peer, &round.to_le_bytes());
        }
        assert_eq!(inbox.next(&mut port), round.to_le_bytes());
        if !first {
            pause(&mut random);
            send(&mut port, peer, &round.to_le_bytes());
        }
    }
}

/// Pauses for a random time, from zero to longer than the other side needs to fall asleep.
fn pause(random: &mut SplitMix64) {
    let spins = [0, 10, 100, 1_000, 10_000][(random.next_u64() % 5) as usize];
    for _ in 0..random.next_u64() % (spins + 1) {
        std::hint::spin_loop();
    }
}

fn send(port: &mut impl Port, to: PeerId, packet: &[u8]) {
    while port.send(to, packet, &[]).unwrap() == Post::Again {
        port.poll(&mut Inbox::default()).unwrap();
        thread::yield_now();
    }
}

#[derive(Default)]
struct Inbox(std::collections::VecDeque<Vec<u8>>);

impl Inbox {
    /// Returns the next packet. Sleeps until it comes.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wake-up that is lost must be told from one that is late"
    )]
    fn next(&mut self, port: &mut impl Port) -> Vec<u8> {
        let start = Instant::now();
        loop {
            if let Some(packet) = self.0.pop_front() {
                return packet;
            }
            if port.poll(self).unwrap() > 0 {
                continue;
            }
            if port.arm() == Sleep::UntilReadable {
                let descriptors = port.descriptors();
                let mut watched: Vec<_> =
                    descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
                let readable = poll(&mut watched, Some(&PATIENCE)).unwrap();
                assert_eq!(readable, 1, "asleep for ever");
            }
            port.disarm();
            assert!(start.elapsed() < Duration::from_secs(60), "awake for nothing");
        }
    }
}

impl Sink for Inbox {
    fn packet(&mut self, bytes: &[u8]) {
        self.0.push_back(bytes.to_vec());
    }
    fn completed(&mut self, op: OpId, _: Result<(), Failure>) {
        panic!("{op:?} was never posted");
    }
    fn notified(&mut self, immediate: u64) {
        panic!("{immediate} was never posted");
    }
    fn peer_lost(&mut self, _: PeerId) {}
}

/// A time that is longer than any action in this test takes, even on a busy machine.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
