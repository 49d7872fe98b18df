//! Tests of tagged messages with two engines over the loopback port. The suites in `p2p/tests` test tagged messages
//! over every port.

mod agreements;
mod beside;
mod bundles;
mod contexts;
mod given_up;
mod hellos;
mod incarnations;
mod long_messages;
mod outbox;
mod questions;
mod roll_calls;
mod strangers;
mod streams;
mod survivors;
mod unmet;

use samite_fabric::link::{Awaited, Hello, Operation, OtherTags, PeerState, Rejected, Report, control};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::shm::Shm;
use samite_fabric::wire::{Flags, Header, Protocol};
use samite_fabric::{Failure, Memory, OpId, PeerId, Sink};
use samite_matching::Source;

use super::*;
use crate::Usage;
use zerocopy::IntoBytes;

const NEVER: Time = Time::NEVER;

fn pair(config: &Config) -> [Engine<Loopback>; 2] {
    pair_of(2, config)
}

/// Returns the engines of ranks 0 and 1 of a job of `size` ranks.
fn pair_of(size: u32, config: &Config) -> [Engine<Loopback>; 2] {
    let hub = Hub::new();
    pair_over(size, [hub.port(), hub.port()], config)
}

fn pair_over<P: Port>(size: u32, ports: [P; 2], config: &Config) -> [Engine<P>; 2] {
    let addresses = ports.each_ref().map(|port| port.address());
    let mut rank = 0;
    ports.map(|port| {
        let identity = Identity { rank: WorldRank(rank), size, incarnation: 7, secret: [9; 16] };
        rank += 1;
        let mut engine = Engine::new(port, identity, config.clone());
        for (rank, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(rank), 7, address.clone()).unwrap();
        }
        engine
    })
}

fn settle(engines: &mut [Engine<impl Port>; 2]) {
    let mut idle = 0;
    while idle < 4 {
        let events: usize = engines.iter_mut().map(|engine| engine.poll(Time::ZERO, &mut ()).unwrap()).sum();
        idle = if events == 0 { idle + 1 } else { 0 };
    }
}

fn at_rest(engines: &[Engine<impl Port>; 2]) {
    for engine in engines {
        let Usage { requests, operations, queued, outbox, unexpected, envelopes, .. } = engine.usage();
        assert_eq!((requests, operations, queued, outbox, unexpected, envelopes), (0, 0, 0, 0, 0, 0));
        engine.check_invariants();
        let tagged = engine.inner.tagged();
        assert!(tagged.envelopes.is_empty() && tagged.streams.is_empty());
        assert!(tagged.claims.is_empty() && tagged.movers.is_empty());
    }
}

fn peer_of<P: Port>(engine: &Engine<P>, rank: WorldRank) -> Peer {
    engine.inner.link().peers().find(|(_, state)| state.rank() == rank).expect("they have met").0
}

fn peer_state<P: Port>(engine: &Engine<P>, rank: WorldRank) -> &PeerState {
    engine.inner.link().peer(peer_of(engine, rank))
}

/// Returns a configuration with which no message is put into the receiver's memory.
fn without_puts() -> Config {
    Config { put_min: 1 << 40, ..Config::default() }
}

/// Returns the number of messages that are queued to a rank.
fn messages_to<P: Port>(engine: &mut Engine<P>, rank: WorldRank) -> usize {
    let peer = peer_of(engine, rank);
    engine.inner.tagged_mut().queues(peer).messages.len()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn every_length_crosses_owned_and_lent_before_and_after_its_receive() {
    let config = Config { push_window: 40_000, pull_chunk: 30_000, ..Config::default() };
    let mut engines = pair(&config);
    settle(&mut engines);
    for len in [0, 1, 8, 4000, 8152, 8153, 16_384, 50_000, 100_000, 300_000, 5_000_001] {
        for (owned_send, owned_recv, first) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)) {
            let data = bytes(len);
            let mut into = vec![0xee; len + 3];
            let pattern = Pattern::exact(1, 0, 5);
            let mut recv = None;
            let mut post = |engines: &mut [Engine<Loopback>; 2], into: &mut [u8]| {
                recv = Some(if owned_recv {
                    Received::Pending(
                        engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(len + 3), NEVER).unwrap(),
                    )
                } else {
                    engines[1].recv(Time::ZERO, pattern, into, 0, NEVER, &mut ()).unwrap()
                });
            };
            if first {
                post(&mut engines, &mut into);
            }
            let send = if owned_send {
                Sent::Pending(
                    engines[0]
                        .isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(data.clone()), NEVER)
                        .unwrap(),
                )
            } else {
                engines[0].send(Time::ZERO, WorldRank(1), 1, 5, &data, NEVER).unwrap()
            };
            if !first {
                settle(&mut engines);
                post(&mut engines, &mut into);
            }
            let mut send_done = send == Sent::Now;
            let mut status = None;
            for _ in 0..10_000 {
                if let (Sent::Pending(id), false) = (send, send_done) {
                    let mut lent = Reading::new(id, &data[..]);
                    engines[0].poll(Time::ZERO, &mut lent).unwrap();
                    if engines[0].outcome(id) == Outcome::Ready {
                        let completion = engines[0].collect(id, &mut lent).unwrap();
                        assert_eq!(
                            completion.result,
                            Ok(Status { source: WorldRank(1), tag: 5, bytes: len })
                        );
                        if owned_send {
                            assert_eq!(completion.memory.unwrap().as_bytes(), data);
                        }
                        send_done = true;
                    }
                } else {
                    engines[0].poll(Time::ZERO, &mut ()).unwrap();
                }
                match recv.unwrap() {
                    Received::Now(now) => status = Some(now),
                    Received::Pending(id) if status.is_none() => {
                        let mut lent = Writing::new(id, &mut into);
                        engines[1].poll(Time::ZERO, &mut lent).unwrap();
                        if engines[1].outcome(id) == Outcome::Ready {
                            let mut completion = engines[1].collect(id, &mut lent);
                            let memory = completion.as_mut().and_then(|completion| completion.memory.take());
                            status = Some(lent.result(completion).unwrap());
                            if let Some(memory) = memory {
                                into = memory.into_vec().unwrap();
                            }
                        }
                    }
                    Received::Pending(_) => {}
                }
                if send_done && status.is_some() {
                    break;
                }
            }
            assert_eq!(
                status,
                Some(Status { source: WorldRank(0), tag: 5, bytes: len }),
                "{len} {owned_send} {owned_recv} {first}"
            );
            assert!(into[..len] == data, "{len} {owned_send} {owned_recv} {first}");
            settle(&mut engines);
            at_rest(&engines);
        }
    }
}

#[test]
fn a_message_too_long_is_an_error_of_its_receive_alone() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    for len in [9, 100_000] {
        let long = engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(bytes(len)), NEVER).unwrap();
        engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"next", NEVER).unwrap();
        let recv = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), NEVER).unwrap();
        settle(&mut engines);
        let status = Status { source: WorldRank(0), tag: 5, bytes: len };
        let completion = engines[1].collect(recv, &mut ()).unwrap();
        assert_eq!(completion.result, Err(Error::Truncated { status, room: 8 }));
        assert_eq!(completion.memory.unwrap().as_bytes(), [0; 8]);
        assert!(engines[0].collect(long, &mut ()).unwrap().result.is_ok());
        let mut next = [0; 4];
        engines[1].recv(Time::ZERO, Pattern::exact(1, 0, 5), &mut next, 0, NEVER, &mut ()).unwrap();
        assert_eq!(&next, b"next");
        settle(&mut engines);
        at_rest(&engines);
    }
}

#[test]
fn deadlines_and_cancels_end_operations_in_every_state() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let recv = engines[1]
        .irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), Time::from_nanos(100))
        .unwrap();
    let send = engines[0]
        .isend(Time::ZERO, WorldRank(1), 1, 6, Memory::zeroed(100_000), Time::from_nanos(100))
        .unwrap();
    for engine in &mut engines {
        // A receive does not time out while polls bring events.
        while engine.poll(Time::from_nanos(200), &mut ()).unwrap() > 0 {}
    }
    let Err(Error::TimedOut { fate: Fate::NotDelivered, report }) =
        engines[1].collect(recv, &mut ()).unwrap().result
    else {
        panic!("no time-out")
    };
    let told = (report.operation, report.bytes, report.peer, report.tag, report.awaited);
    assert_eq!(told, (Operation::Receive, 8, Some(WorldRank(0)), 5, Awaited::Message));
    let sent = engines[0].collect(send, &mut ()).unwrap();
    let Err(Error::TimedOut { fate: Fate::Unknown, report }) = sent.result else { panic!("no time-out") };
    assert_eq!(report.awaited, Awaited::Fin);
    assert!(sent.memory.is_none(), "the receiver may still get it");
    settle(&mut engines);
    assert_eq!(engines[1].probe(&Pattern::any(1)), Ok(None), "withdrawn");
    at_rest(&engines);

    let recv = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), NEVER).unwrap();
    let send = engines[0].isend(Time::ZERO, WorldRank(1), 1, 6, Memory::zeroed(100_000), NEVER).unwrap();
    settle(&mut engines);
    engines[1].cancel(recv);
    engines[0].cancel(send);
    settle(&mut engines);
    for (engine, id) in [(1, recv), (0, send)] {
        let completion = engines[engine].collect(id, &mut ()).unwrap();
        assert_eq!(completion.result, Err(Error::Cancelled { fate: Fate::NotDelivered }));
        assert!(completion.memory.is_some());
    }
    at_rest(&engines);
}

#[test]
fn without_credit_only_envelopes_travel() {
    let config = Config { unexpected_max: 10_000, window_min: 4_000, ..Config::default() };
    let mut engines = pair(&config);
    settle(&mut engines);
    let sends: Vec<_> = (0..100)
        .map(|tag| {
            engines[0].isend(Time::ZERO, WorldRank(1), 1, tag, Memory::new(bytes(1000)), NEVER).unwrap()
        })
        .collect();
    settle(&mut engines);
    let usage = engines[1].usage();
    assert!(usage.unexpected + usage.credit_granted <= 10_000 && usage.unexpected > 5_000, "{usage:?}");
    assert!(usage.envelopes > 0 && engines[0].counters().rendezvous > 80);
    let recvs: Vec<_> = (0..100)
        .map(|tag| {
            engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 99 - tag), Memory::zeroed(1000), NEVER).unwrap()
        })
        .collect();
    settle(&mut engines);
    for (engine, ids) in [(0, sends), (1, recvs)] {
        for id in ids {
            assert_eq!(engines[engine].collect(id, &mut ()).unwrap().result.unwrap().bytes, 1000);
        }
    }
    at_rest(&engines);
}

#[test]
fn a_stream_one_way_never_runs_out_of_credit() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    for _ in 0..5_000 {
        let mut into = [0; 8];
        let Received::Pending(id) =
            engines[1].recv(Time::ZERO, Pattern::exact(1, 0, 5), &mut into, 0, NEVER, &mut ()).unwrap()
        else {
            panic!("nothing was sent")
        };
        engines[0].poll(Time::ZERO, &mut ()).unwrap();
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"8 bytes!", NEVER), Ok(Sent::Now));
        let mut lent = Writing::new(id, &mut into);
        engines[1].poll(Time::ZERO, &mut lent).unwrap();
        assert_eq!(lent.result(None), Ok(Status { source: WorldRank(0), tag: 5, bytes: 8 }));
        assert_eq!((engines[1].outcome(id), engines[1].usage().requests), (Outcome::Ready, 0));
        assert_eq!(&into, b"8 bytes!");
    }
    assert_eq!(engines[0].counters().rendezvous, 0);
}

#[test]
fn the_death_of_a_peer_ends_what_waits_for_it() {
    let mut engines = pair_of(3, &Config::default());
    settle(&mut engines);
    let [mut survivor, dead] = engines;
    let recv = survivor.irecv(Time::ZERO, Pattern::exact(1, 1, 5), Memory::zeroed(8), NEVER).unwrap();
    let any = survivor.irecv(Time::ZERO, Pattern::any(1), Memory::zeroed(8), NEVER).unwrap();
    let send = survivor.isend(Time::ZERO, WorldRank(1), 1, 6, Memory::zeroed(100_000), NEVER).unwrap();
    survivor.poll(Time::from_nanos(7), &mut ()).unwrap();
    drop(dead);
    survivor.peer_failed(WorldRank(1), None, Cause::Died("signal 9".into())).unwrap();
    survivor.poll(Time::ZERO, &mut ()).unwrap();
    let receive = Report {
        operation: Operation::Receive,
        peer: Some(WorldRank(1)),
        tag: 5,
        mask: !0,
        other_tags: None,
        bytes: 8,
        age_ns: 7,
        awaited: Awaited::Message,
        is_stopped: false,
        members: None,
    };
    let send_report = Report {
        operation: Operation::Send,
        tag: 6,
        bytes: 100_000,
        awaited: Awaited::Fin,
        ..receive.clone()
    };
    for (id, fate, report) in [(recv, Fate::NotDelivered, receive), (send, Fate::Unknown, send_report)] {
        let completion = survivor.collect(id, &mut ()).unwrap();
        let (cause, report) = (Cause::Died("signal 9".into()), Some(Box::new(report)));
        assert_eq!(completion.result, Err(Error::PeerFailed { rank: WorldRank(1), cause, fate, report }));
    }
    assert_eq!(survivor.outcome(any), Outcome::FailurePending);
    assert!(matches!(survivor.failure_pending(any), Some(Error::FailurePending { rank: WorldRank(1), .. })));
    assert_eq!(survivor.outcome(any), Outcome::Pending, "told once, and still posted");
    survivor.forget(any);
    assert!(matches!(
        survivor.send(Time::ZERO, WorldRank(1), 1, 5, b"late", NEVER),
        Err(Error::PeerFailed { rank: WorldRank(1), .. })
    ));
    assert_eq!(survivor.usage().requests, 0);
}

#[test]
fn a_packet_for_another_incarnation_is_refused_and_a_lost_hello_is_a_gap() {
    let [sender, mut receiver] = pair(&Config::default());
    // Each engine knows the other, but neither has polled, so neither has received a hello.
    let (protocol, flags) = (Protocol::Control, Flags::empty());
    let to = peer_of(&sender, WorldRank(1));
    let mut header = sender.inner.link().header(to, protocol, control::CREDIT, flags, 0);
    (header.sequence, header.to) = (1.into(), 6.into());
    let arrive = |receiver: &mut Engine<Loopback>, header: &Header| {
        receiver.inner.sink(&mut ()).packet(header.as_bytes());
    };
    arrive(&mut receiver, &header);
    let counters = receiver.counters();
    assert_eq!((counters.rejected.misdirected, counters.rejected.total(), counters.failed_peers), (1, 1, 0));
    header.to = 7.into();
    arrive(&mut receiver, &header);
    let gap = Cause::Gap { expected: 0, got: 1 };
    assert_eq!(peer_state(&receiver, WorldRank(0)).failure(), Some(gap));
}

#[test]
fn sends_that_end_before_their_turn_leave_nothing() {
    // No address is ever provided for rank 2, so all sends to it wait, since there is no outbox.
    let [mut engine, _] = pair_of(3, &Config { outbox_max: 0, ..Config::default() });
    let first = engine.isend(Time::ZERO, WorldRank(2), 1, 5, Memory::zeroed(8), NEVER).unwrap();
    for now_ns in 1..1000 {
        let id = engine
            .isend(Time::from_nanos(now_ns), WorldRank(2), 1, 5, Memory::zeroed(8), Time::from_nanos(now_ns))
            .unwrap();
        engine.poll(Time::from_nanos(now_ns), &mut ()).unwrap();
        assert!(matches!(engine.collect(id, &mut ()).unwrap().result, Err(Error::TimedOut { .. })));
        let id =
            engine.isend(Time::from_nanos(now_ns), WorldRank(2), 1, 5, Memory::zeroed(8), NEVER).unwrap();
        engine.forget(id);
    }
    assert_eq!(messages_to(&mut engine, WorldRank(2)), 1);
    engine.forget(first);
    assert_eq!(messages_to(&mut engine, WorldRank(2)), 0);
}

/// A sink that drops all packets, like a provider that loses them.
struct Lost;

impl Sink for Lost {
    fn packet(&mut self, _: &[u8]) {}
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}

#[test]
fn a_hello_is_repeated_until_it_is_answered() {
    let mut engines = pair(&Config::default());
    let send = engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(bytes(8)), NEVER).unwrap();
    // The hellos that the two engines sent when they met are lost, and so are the first repetitions.
    for (now_ns, due) in [(249_999_999, 250_000_000), (250_000_000, 750_000_000)] {
        for engine in &mut engines {
            while engine.port_mut().poll(&mut Lost).unwrap() > 0 {}
            engine.poll(Time::from_nanos(now_ns), &mut ()).unwrap();
            assert_eq!(engine.due(), Time::from_nanos(due));
        }
    }
    for engine in &mut engines {
        while engine.port_mut().poll(&mut Lost).unwrap() > 0 {}
    }
    // Both engines repeat their hello at the same time, and each answers the other's.
    for engine in &mut engines {
        engine.poll(Time::from_nanos(750_000_000), &mut ()).unwrap();
    }
    settle(&mut engines);
    assert_eq!(engines[0].outcome(send), Outcome::Ready);
    assert_eq!(engines[1].probe(&Pattern::exact(1, 0, 5)).unwrap().map(|status| status.bytes), Some(8));
    for engine in &mut engines {
        engine.poll(Time::from_nanos(5_000_000_000), &mut ()).unwrap();
        assert_eq!(engine.due(), NEVER);
        assert_eq!((engine.counters().stale, engine.counters().failed_peers), (0, 0));
    }
}

/// The first answer to a hello is lost. The sender repeats its hello, and gets another answer.
#[test]
fn an_answer_that_is_lost_is_repeated() {
    let mut engines = pair(&Config::default());
    let send = engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, Memory::new(bytes(8)), NEVER).unwrap();
    while engines[0].port_mut().poll(&mut Lost).unwrap() > 0 {}
    for _ in 0..4 {
        engines[1].poll(Time::ZERO, &mut ()).unwrap();
        while engines[0].port_mut().poll(&mut Lost).unwrap() > 0 {}
    }
    assert!(
        peer_state(&engines[1], WorldRank(0)).is_heard()
            && !peer_state(&engines[1], WorldRank(0)).has_answered()
    );
    engines[0].poll(Time::from_nanos(250_000_000), &mut ()).unwrap();
    settle(&mut engines);
    assert_eq!(engines[0].outcome(send), Outcome::Ready);
    assert_eq!((engines[0].counters().failed_peers, engines[1].counters().failed_peers), (0, 0));
}

#[test]
fn timers_of_what_is_over_do_not_pile_up() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    for _ in 0..10_000 {
        let id = engines[0]
            .irecv(Time::ZERO, Pattern::exact(1, 1, 5), Memory::zeroed(0), Time::from_nanos(1_000_000_000))
            .unwrap();
        engines[0].forget(id);
    }
    assert!(engines[0].inner.link().timers() < 3_000);
}

#[test]
fn a_receive_from_any_source_ends_when_nobody_is_left() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let any = engines[1].irecv(Time::ZERO, Pattern::any(1), Memory::zeroed(8), NEVER).unwrap();
    engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"last one", NEVER).unwrap();
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    assert_eq!(engines[1].collect(any, &mut ()).unwrap().memory.unwrap().as_bytes(), b"last one");
    let any = engines[1].irecv(Time::ZERO, Pattern::any(1), Memory::zeroed(8), NEVER).unwrap();
    assert_eq!(engines[1].outcome(any), Outcome::Ready);
    assert_eq!(engines[1].collect(any, &mut ()).unwrap().result, Err(Error::Deserted));
}

/// A single buffer that is lent to all sends.
struct Common<'a>(&'a [u8]);

impl Lent for Common<'_> {
    fn read(&self, _: RequestId, _: u32) -> Option<Readable<'_>> {
        Some(self.0.into())
    }
}

#[test]
fn however_many_sends_wait_for_room_a_poll_tries_one() {
    const MANY: u64 = 1000;
    let mut engines = pair(&Config { stream_max: 0, ..Config::default() });
    settle(&mut engines);
    let data = bytes(20_000);
    let into: Vec<_> = (0..MANY)
        .map(|tag| {
            engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, tag), Memory::zeroed(20_000), NEVER).unwrap()
        })
        .collect();
    let sends: Vec<_> = (0..MANY)
        .map(|tag| match engines[0].send(Time::ZERO, WorldRank(1), 1, tag, &data, NEVER).unwrap() {
            Sent::Pending(id) => id,
            Sent::Now | Sent::Copied => panic!("it is too long to be sent at once"),
        })
        .collect();
    // The receiver requests the bytes of all sends, but no buffer is lent.
    settle(&mut engines);
    assert_eq!(engines[0].usage().queued, sends.len());
    let before = engines[0].counters().again;
    for polls in 1..=10 {
        engines[0].poll(Time::ZERO, &mut Common(&data)).unwrap();
        assert_eq!(engines[0].counters().again, before + polls, "the port is full at the end of each");
    }
    let peer = peer_of(&engines[0], WorldRank(1));
    let last = engines[0].inner.tagged_mut().queues(peer).pushes.len();
    assert!(last < sends.len(), "some went before it was");
    while engines[0].usage().queued > 0 {
        engines[0].poll(Time::ZERO, &mut Common(&data)).unwrap();
        engines[1].poll(Time::ZERO, &mut ()).unwrap();
    }
    settle(&mut engines);
    for id in sends {
        assert_eq!(engines[0].collect(id, &mut ()).unwrap().result.unwrap().bytes, data.len());
    }
    for id in into {
        assert_eq!(engines[1].collect(id, &mut ()).unwrap().memory.unwrap().as_bytes(), data);
    }
    at_rest(&engines);
}

#[test]
fn what_is_at_hand_is_received_without_a_request() {
    let ports = [(); 2].map(|()| Shm::open(&Default::default()).unwrap());
    let mut engines = pair_over(2, ports, &Config::default());
    let pattern = Pattern::exact(1, 0, 5);
    let send = |engines: &mut [Engine<Shm>; 2], data: &[u8]| {
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, 5, data, NEVER), Ok(Sent::Now));
    };
    let status = Status { source: WorldRank(0), tag: 5, bytes: 8 };
    settle(&mut engines);
    // After this message the receiver looks for the next packet from this peer first, so `next_packet` will find one.
    send(&mut engines, &[0; 8]);
    settle(&mut engines);

    let mut buffers = [[9; 8]; 3];
    let [first, second, third] = &mut buffers;
    assert_eq!(engines[1].recv(Time::ZERO, pattern, first, 0, NEVER, &mut ()), Ok(Received::Now(status)));
    let posted = engines[1].recv(Time::ZERO, pattern, first, 0, NEVER, &mut ()).unwrap();
    let Received::Pending(id) = posted else { panic!("nothing was sent") };
    send(&mut engines, &[1; 8]);
    send(&mut engines, &[2; 8]);
    send(&mut engines, &[3; 4]);
    let mut lent = Writing::new(id, first);
    assert_eq!(engines[1].recv(Time::ZERO, pattern, second, 0, NEVER, &mut lent), Ok(Received::Now(status)));
    assert_eq!(lent.result(None), Ok(status));
    assert_eq!(engines[1].due(), Time::ZERO, "another may wait for what has come");
    let too_short = engines[1].recv(Time::ZERO, pattern, &mut third[..3], 0, NEVER, &mut ());
    assert_eq!(too_short, Err(Error::Truncated { status: Status { bytes: 4, ..status }, room: 3 }));
    assert_eq!(buffers, [[1; 8], [2; 8], [9; 8]]);
    engines[1].poll(Time::ZERO, &mut ()).unwrap();
    assert!(engines[1].due() > Time::ZERO);
    assert_eq!(engines[1].counters().unexpected, 1, "only the first one waited");
    at_rest(&engines);
}

#[test]
fn what_was_sent_before_a_goodbye_is_received_after_it() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    engines[0].send(Time::ZERO, WorldRank(1), 1, 5, b"last", NEVER).unwrap();
    engines[0].close(Time::ZERO);
    settle(&mut engines);
    assert!(engines[0].closed());
    let mut last = [0; 4];
    let pattern = Pattern::exact(1, 0, 5);
    assert!(matches!(
        engines[1].recv(Time::ZERO, pattern, &mut last, 0, NEVER, &mut ()),
        Ok(Received::Now(_))
    ));
    assert_eq!(&last, b"last");
    let none = engines[1].recv(Time::ZERO, pattern, &mut last, 0, NEVER, &mut ());
    assert_eq!(
        none,
        Err(Error::PeerFailed {
            rank: WorldRank(0),
            cause: Cause::Left,
            fate: Fate::NotDelivered,
            report: None
        })
    );
}

#[test]
fn misuse_is_an_error() {
    let mut engines = pair(&Config::default());
    assert_eq!(
        engines[0].send(Time::ZERO, WorldRank(2), 1, 5, b"", NEVER),
        Err(Error::InvalidRank { rank: WorldRank(2), size: 2 })
    );
    assert_eq!(
        engines[0].probe(&Pattern::exact(1, 9, 5)),
        Err(Error::InvalidRank { rank: WorldRank(9), size: 2 })
    );
    let (error, memory) =
        engines[0].irecv(Time::ZERO, Pattern::exact(1, 3, 5), Memory::zeroed(4), NEVER).unwrap_err();
    assert_eq!((error, memory.len()), (Error::InvalidRank { rank: WorldRank(3), size: 2 }, 4));
}

#[test]
fn a_time_out_tells_wildcards_and_what_waits_under_other_tags() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    for tag in [7, 8, 0x1ff] {
        assert!(matches!(engines[0].send(Time::ZERO, WorldRank(1), 1, tag, b"hello", NEVER), Ok(Sent::Now)));
    }
    settle(&mut engines);
    let [_, receiver] = &mut engines;
    let exact = Pattern::exact(1, 0, 5);
    let masked = Pattern { tag: 0x200, mask: 0xff00, ..exact };
    let other_context = Pattern { context: 0, tag: 0, mask: 0, ..exact };
    let elsewhere = Some(OtherTags { messages: 3, first: 7 });
    for (pattern, other_tags) in [
        (exact, elsewhere),
        (Pattern { source: Source::ANY, ..exact }, elsewhere),
        (masked, elsewhere),
        (other_context, None),
    ] {
        let id = receiver.irecv(Time::ZERO, pattern, Memory::zeroed(8), Time::from_nanos(1)).unwrap();
        receiver.poll(Time::from_nanos(1), &mut ()).unwrap();
        let Err(Error::TimedOut { report, .. }) = receiver.collect(id, &mut ()).unwrap().result else {
            panic!("{pattern:?}");
        };
        let wanted = (report.peer, report.tag, report.mask, report.other_tags);
        assert_eq!(wanted, (pattern.source.as_rank().map(WorldRank), pattern.tag, pattern.mask, other_tags));
    }
}

#[test]
fn a_watcher_hears_of_each_end_once_and_nothing_of_it_is_left() {
    let mut engines = pair(&Config::default());
    settle(&mut engines);
    let receiver = &mut engines[1];
    let watcher = receiver.add_watcher();
    let mut receives: Vec<_> = (0..10)
        .map(|tag| receiver.irecv(Time::ZERO, Pattern::exact(1, 0, tag), Memory::zeroed(8), NEVER).unwrap())
        .collect();
    receives.iter().zip(10..).for_each(|(&id, key)| receiver.watch(id, watcher, key));
    assert_eq!(receiver.take_end(watcher), None);
    for tag in (0..10).rev() {
        assert_eq!(engines[0].send(Time::ZERO, WorldRank(1), 1, tag, b"message!", NEVER), Ok(Sent::Now));
    }
    settle(&mut engines);
    let receiver = &mut engines[1];
    // Collect one request by its name, forget another one, and unwatch a third one.
    receiver.collect(receives.swap_remove(9), &mut ()).unwrap().result.unwrap();
    receiver.forget(receives.pop().unwrap());
    let unwatched = receives.pop().unwrap();
    receiver.unwatch(unwatched);
    let receives: Vec<_> = receives.into_iter().zip(10..).collect();
    for (id, key) in receives.into_iter().rev() {
        assert_eq!(receiver.take_end(watcher), Some((id, key)), "in the order of their ends");
        receiver.collect(id, &mut ()).unwrap().result.unwrap();
    }
    assert_eq!(receiver.take_end(watcher), None);
    receiver.collect(unwatched, &mut ()).unwrap().result.unwrap();
    let late = receiver.irecv(Time::ZERO, Pattern::any(1), Memory::zeroed(8), NEVER).unwrap();
    receiver.watch(late, watcher, 7);
    receiver.peer_failed(WorldRank(0), None, Cause::Died("signal 9".into())).unwrap();
    assert_eq!(receiver.take_end(watcher), Some((late, 7)), "it is to hear of a failure");
    receiver.failure_pending(late).unwrap();
    assert_eq!(receiver.take_end(watcher), Some((late, 7)), "and that nothing can come any more");
    receiver.remove_watcher(watcher);
    assert_eq!(receiver.take_end(watcher), None);
    receiver.forget(late);
    receiver.check_invariants();
    assert_eq!(receiver.usage().requests, 0);
}

/// The user of the engine ends a composite operation. Until then its owner can cancel it, forget it or watch it.
#[test]
fn a_composite_operation_ends_when_its_user_says_so() {
    let mut engines = pair(&Config::default());
    let engine = &mut engines[0];
    let watcher = engine.add_watcher();
    let [done, cancelled, forgotten] = [(); 3].map(|()| engine.begin_composite(Time::ZERO, 0));
    engine.watch(done, watcher, 7);
    assert!(engine.needs_progress() && engine.outcome(done) == Outcome::Pending);
    assert_eq!((engine.oldest(Time::ZERO), engine.take_unwanted()), (None, None));
    engine.cancel(cancelled);
    engine.cancel(cancelled);
    engine.forget(forgotten);
    let unwanted: Vec<_> = std::iter::from_fn(|| engine.take_unwanted()).collect();
    assert_eq!(unwanted, [cancelled, forgotten]);
    let error = || Err(Error::Cancelled { fate: Fate::Unknown });
    engine.end_composite(forgotten, error(), Memory::zeroed(1));
    engine.end_composite(cancelled, error(), Memory::zeroed(2));
    let end = engine.collect(cancelled, &mut ()).unwrap();
    assert_eq!(
        (end.result, end.memory.map(|memory| memory.len())),
        (error().map(|()| unreachable!()), Some(2))
    );
    assert_eq!((engine.take_end(watcher), engine.needs_progress()), (None, true));
    engine.end_composite(done, Ok(()), Memory::new(vec![1_u16; 3]));
    assert_eq!((engine.take_end(watcher), engine.needs_progress()), (Some((done, 7)), false));
    let end = engine.collect(done, &mut ()).unwrap();
    assert_eq!(end.result, Ok(Status { source: WorldRank(0), tag: 0, bytes: 6 }));
    assert_eq!(end.memory.and_then(|memory| memory.into_vec().ok()), Some(vec![1_u16; 3]));
    at_rest(&engines);
}

#[test]
fn the_number_of_a_watcher_that_exists_is_not_given_again() {
    let [mut engine, _] = pair(&Config::default());
    let first = engine.add_watcher();
    let second = engine.add_watcher();
    let ended = engine.irecv(Time::ZERO, Pattern::exact(1, 1, 5), Memory::zeroed(8), NEVER).unwrap();
    engine.watch(ended, first, 7);
    engine.cancel(ended);
    engine.remove_watcher(second);
    engine.inner.tagged_mut().next_watcher = first;
    assert_eq!(engine.add_watcher(), second);
    assert_eq!(engine.take_end(first), Some((ended, 7)));
}
