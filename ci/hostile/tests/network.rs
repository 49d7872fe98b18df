//! Unauthenticated clients at the network ports of a running job whose ranks exchange messages meanwhile: arbitrary
//! bytes on tcp, and over libfabric packets that belong to no job.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use samite_fabric::ofi::{OfiConfig, OfiPort};
use samite_fabric::wire::{Flags, Header, Protocol};
use samite_fabric::{Address, Failure, Memory, OpId, PeerId, Port, Post, Sink, SplitMix64};
use samite_p2p::{Config, Engine, Identity, Outcome, Pattern, Rejected, Time, WorldRank};
use zerocopy::IntoBytes;

const SIZE: u32 = 3;
const SECRET: [u8; 16] = [9; 16];
const NEVER: Time = Time::NEVER;
/// The number of polls of every rank after which a message that has not arrived counts as lost.
const POLLS_MAX: usize = 1_000_000;

/// Returns the incarnation that these tests use for a rank, even for a rank that does not exist.
fn incarnation(rank: u32) -> u32 {
    rank.wrapping_add(1000)
}

/// A job in one thread, over tcp.
struct Job {
    engines: Vec<Engine<OfiPort>>,
    rounds: usize,
}

impl Job {
    fn start() -> Self {
        let ports: Vec<_> = (0..SIZE).map(port).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        let engine = |(rank, port)| {
            let identity = Identity {
                rank: WorldRank(rank),
                size: SIZE + 1,
                incarnation: incarnation(rank),
                secret: SECRET,
            };
            let mut engine = Engine::new(port, identity, Config::default());
            for (other, address) in (0..).zip(&addresses) {
                engine
                    .introduce(WorldRank(other), incarnation(other), address.clone())
                    .expect("a rank of the job");
            }
            engine
        };
        Self { engines: (0..).zip(ports).map(engine).collect(), rounds: 0 }
    }

    fn poll(&mut self) {
        for engine in &mut self.engines {
            engine.poll(Time::ZERO, &mut ()).expect("the port works");
        }
    }

    /// Sends short and long messages from each rank to each rank, itself included, and checks that all arrive.
    fn exchange(&mut self) {
        self.rounds += 1;
        let mut requests = Vec::new();
        let message = |from: usize, to: usize, len| vec![(self.rounds * 9 + from * 3 + to) as u8; len];
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            for (tag, len) in [(1, 30), (2, 40_000)] {
                let into = Memory::zeroed(len);
                let recv =
                    self.engines[to].irecv(Time::ZERO, Pattern::exact(0, from as u32, tag), into, NEVER);
                let what = Memory::new(message(from, to, len));
                let send = self.engines[from].isend(Time::ZERO, WorldRank(to as u32), 0, tag, what, NEVER);
                requests.push((to, recv.expect("the source lives"), message(from, to, len)));
                requests.push((from, send.expect("the target lives"), message(from, to, len)));
            }
        }
        for _ in 0..POLLS_MAX {
            let engines = &self.engines;
            if requests.iter().all(|(rank, id, _)| engines[*rank].outcome(*id) == Outcome::Ready) {
                break;
            }
            self.poll();
        }
        for (rank, id, expected) in requests {
            let done = self.engines[rank].collect(id, &mut ()).expect("it ends");
            done.result.expect("it succeeds");
            assert!(
                done.memory.expect("nobody else holds it").as_bytes() == expected,
                "round {}",
                self.rounds
            );
        }
    }

    fn rejected(&self, rank: usize) -> Rejected {
        self.engines[rank].counters().rejected
    }

    /// Checks that no rank has declared another rank failed, and that no rank holds requests or unexpected messages.
    fn assert_unharmed(&mut self) {
        self.exchange();
        for engine in &self.engines {
            let (counters, usage) = (engine.counters(), engine.usage());
            assert_eq!((counters.failed_peers, usage.requests, usage.unexpected), (0, 0, 0), "{counters:?}");
        }
    }
}

fn port(seed: u32) -> OfiPort {
    let config = OfiConfig { interface: Some("lo".into()), seed: seed.into(), ..OfiConfig::default() };
    OfiPort::open(&config).expect("libfabric works here")
}

/// The bytes of the address of a port over tcp before its `sockaddr_in`: 8 identify its kind, and 4 are the longest packet.
const BEFORE: usize = 12;

/// Returns the address at which a port over tcp listens.
fn socket_address(address: &Address) -> SocketAddr {
    let &[_, _, high, low, a, b, c, d, ..] = &address.0[BEFORE..] else { panic!("{address:?}") };
    (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into()
}

struct Deaf;

impl Sink for Deaf {
    fn packet(&mut self, _: &[u8]) {}
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

/// Returns the first bytes that a port sends to a peer to which it connects.
fn recorded_hello() -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let mut port = port(77);
    let mut address = port.address();
    let number = listener.local_addr().expect("bound").port().to_be_bytes();
    address.0[BEFORE + 2..BEFORE + 4].copy_from_slice(&number);
    let to = port.resolve(&address).expect("an address of its kind");
    let mut accepted = None;
    let mut hello = vec![0; 4096];
    for _ in 0..POLLS_MAX {
        let posted = port.send(to, b"anybody?", &[]).expect("it waits for a connection");
        assert_eq!(posted, Post::Again);
        port.poll(&mut Deaf).expect("the port works");
        match &mut accepted {
            None => accepted = listener.accept().ok().map(|(stream, _)| stream),
            Some(stream) => match stream.read(&mut hello) {
                Ok(len) => {
                    hello.truncate(len);
                    return hello;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            },
        }
    }
    panic!("no hello came");
}

/// Returns byte sequences that any client could send.
fn garbage() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(4);
    let mut random = |len: usize| (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let hello = recorded_hello();
    let mut all = vec![Vec::new(), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 5000], vec![0xff; 5000]];
    all.extend([1, 7, 64, 500, 5000, 100_000].map(&mut random));
    // A recorded hello: replayed, truncated, changed, and with bytes appended.
    all.push(hello.clone());
    all.extend((1..hello.len()).map(|len| hello[..len].to_vec()));
    for at in 0..hello.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = hello.clone();
            changed[at] ^= change;
            all.push(changed);
        }
    }
    all.extend([10, 1000].map(|len| [&hello[..], &random(len)].concat()));
    all.push([&hello[..], &hello[..]].concat());
    all
}

#[test]
fn garbage_at_a_port_disturbs_no_rank() {
    let mut job = Job::start();
    job.exchange();
    let addresses: Vec<_> =
        job.engines.iter().map(|engine| socket_address(&engine.port().address())).collect();
    let mut left_open = Vec::new();
    for (number, bytes) in garbage().iter().enumerate() {
        let mut strangers: Vec<_> = addresses
            .iter()
            .map(|address| {
                let mut stranger =
                    TcpStream::connect_timeout(address, Duration::from_secs(10)).expect("it listens");
                stranger.set_nonblocking(true).expect("a socket");
                // The port may accept any number of the bytes.
                let _ = stranger.write(bytes);
                stranger
            })
            .collect();
        job.exchange();
        for stranger in &mut strangers {
            // Write once more, if the connection is still open.
            let _ = stranger.write(&bytes[..bytes.len().min(100)]);
        }
        job.exchange();
        if number % 8 == 0 {
            left_open.extend(strangers);
        }
    }
    job.assert_unharmed();
    drop(left_open);
    job.assert_unharmed();
}

/// A sink that collects the received packets.
#[derive(Default)]
struct Ear(Vec<Vec<u8>>);

impl Sink for Ear {
    fn packet(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

/// Returns a packet of `sender`, with its incarnation, to rank 0.
fn packet(protocol: Protocol, sender: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(protocol, 0, Flags::empty());
    (header.sender, header.incarnation, header.sequence) =
        (sender.into(), incarnation(sender).into(), sequence.into());
    header.to = (incarnation(0) as u16).into();
    [header.as_bytes(), body].concat()
}

fn hello(secret: [u8; 16], to: u32, address_len: u16) -> Vec<u8> {
    [&secret[..], &to.to_le_bytes(), &[0; 4], &address_len.to_le_bytes(), &[0; 2], b"nowhere"].concat()
}

#[test]
fn packets_of_strangers_are_refused_and_counted() {
    let mut job = Job::start();
    job.exchange();
    let mut stranger = port(99);
    let to = stranger.resolve(&job.engines[0].port().address()).expect("an address of its kind");

    // Rank 1 sends a packet to a process that pretends to be rank 3. That process replays the packet to rank 0.
    job.engines[1].introduce(WorldRank(3), incarnation(3), stranger.address()).expect("a rank of the job");
    let mut ear = Ear::default();
    for _ in 0..POLLS_MAX {
        if !ear.0.is_empty() {
            break;
        }
        job.poll();
        stranger.poll(&mut ear).expect("the port works");
    }
    let overheard = ear.0.swap_remove(0);

    let mut wrong_version = packet(Protocol::Control, 1, 0, &[]);
    wrong_version[0] = 1;
    let mut to_another_incarnation = packet(Protocol::P2p, 1, 5, &[0; 8]);
    to_another_incarnation[26] ^= 1;
    let mut another_incarnation = packet(Protocol::P2p, 1, 5, &[0; 8]);
    another_incarnation[8] ^= 64;
    let right = hello(SECRET, incarnation(0), 7);
    let packets = [
        wrong_version,
        vec![],
        vec![1; 31],
        packet(Protocol::Control, 3, 0, &right[..27]),
        to_another_incarnation,
        overheard,
        another_incarnation,
        packet(Protocol::P2p, 3, 0, &[0xff; 400]),
        packet(Protocol::Control, 3, 0, &hello([0; 16], incarnation(0), 7)),
        packet(Protocol::Control, 3, 0, &hello([8; 16], incarnation(0), 7)),
        packet(Protocol::Control, 3, 0, &hello(SECRET, incarnation(0) - 1, 7)),
        packet(Protocol::Control, 3, 0, &hello(SECRET, incarnation(0), u16::MAX)),
        packet(Protocol::Control, u32::MAX, 0, &right),
    ];
    let expected =
        [("version", 1), ("malformed", 3), ("misdirected", 2), ("unknown", 2), ("secret", 2), ("hello", 3)];
    let rounds: u64 = 50;
    for bytes in packets.iter().cycle().take(packets.len() * rounds as usize) {
        while stranger.send(to, bytes, &[]).expect("accepted, or no room") == Post::Again {
            job.poll();
            stranger.poll(&mut Deaf).expect("the port works");
        }
    }
    for _ in 0..POLLS_MAX {
        if job.rejected(0).total() == rounds * packets.len() as u64 {
            break;
        }
        job.poll();
        stranger.poll(&mut Deaf).expect("the port works");
    }
    let Rejected { version, malformed, misdirected, unknown, secret, hello, .. } = job.rejected(0);
    let counted = [version, malformed, misdirected, unknown, secret, hello];
    assert_eq!(counted, expected.map(|(_, count)| count * rounds), "{expected:?}");
    assert_eq!([1, 2].map(|rank| job.rejected(rank).total()), [0, 0]);
    job.assert_unharmed();
}
