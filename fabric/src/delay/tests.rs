use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::Memory;
use crate::loopback::{Hub, Loopback};
use crate::route::{Ports, Route};
use crate::shm::{self, Shm};
use crate::testing::onesided::{Ends, all_cases};
use crate::testing::{Heard, Recorder};

const MODEL: Model = Model { latency_ns: 50_000.0, byte_ns: 1.0 };

fn pair(model: Model) -> (Delay<Loopback>, PeerId, Delay<Loopback>, PeerId) {
    let hub = Hub::new();
    let [mut a, mut b] = [0; 2].map(|_| Delay::new(hub.port(), model).unwrap());
    let (to_b, to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    (a, to_b, b, to_a)
}

/// Returns all events until `count` have come.
fn heard<P: Port>(port: &mut Delay<P>, count: usize) -> Vec<Heard> {
    let mut sink = Recorder::default();
    while sink.0.len() < count {
        port.poll(&mut sink).unwrap();
    }
    sink.0
}

fn waits_for(port: &Delay<impl Port>, patience_ms: i64) -> bool {
    let descriptors = port.descriptors();
    let mut all: Vec<_> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let patience = Timespec { tv_sec: 0, tv_nsec: patience_ms * 1_000_000 };
    poll(&mut all, Some(&patience)).unwrap() > 0
}

#[test]
fn names_are_read_and_written() {
    for (name, latency_ns, byte_ns, inner) in [
        ("delay(2us,0.33ns/B)+samite-shm", 2e3, 0.33, "samite-shm"),
        ("delay(1.5ms,0ns/B)+tcp;ofi_rxm", 1.5e6, 0.0, "tcp;ofi_rxm"),
        ("delay(900ns,1us/B)+net", 900.0, 1e3, "net"),
        ("delay(0ns, 2ns/B)+net", 0.0, 2.0, "net"),
        ("delay(1s,0ns/B)+net", 1e9, 0.0, "net"),
    ] {
        let (model, rest) = Model::split(name).unwrap().unwrap();
        assert_eq!((model.latency_ns, model.byte_ns, rest), (latency_ns, byte_ns, inner), "{name}");
        let again = format!("{model}+{rest}");
        assert_eq!(Model::split(&again), Some(Ok((model, inner))), "{again}");
    }
    for bad in ["2us", "2us,1ns/B", "2us,1ns/B)", "2us,1ns/B)+", "2,1ns/B)+x", "2us,1ns)+x", "2s,1ns/B)+x"] {
        let bad = format!("delay({bad}");
        assert!(Model::split(&bad).unwrap().is_err(), "{bad}");
    }
    let twice = "delay(2us,1ns/B)+delay(2us,1ns/B)+x";
    assert!(Model::split(twice).unwrap().is_err());
    assert_eq!(Model::split("samite-shm"), None);
}

#[test]
fn one_sided_calls_do_what_they_say() {
    let model = Model { latency_ns: 300.0, byte_ns: 0.01 };
    all_cases(move || {
        let hub = Hub::new();
        let [a, b] = [0; 2].map(|_| Delay::new(hub.port(), model).unwrap());
        Ends::new(a, b, || {})
    });
}

#[test]
fn one_sided_calls_do_what_they_say_below_a_route() {
    let model = Model { latency_ns: 300.0, byte_ns: 0.01 };
    all_cases(move || {
        let [a, b] = [0; 2].map(|_| {
            let shm = Some(Shm::open(&shm::Config::default()).unwrap());
            let inner = Route::new(Ports { shm, ..Ports::default() }).unwrap();
            let delay = Some(Delay::new(inner, model).unwrap());
            Route::new(Ports { delay, ..Ports::default() }).unwrap()
        });
        Ends::new(a, b, || {})
    });
}

#[test]
fn packets_arrive_in_order_and_not_before_their_time() {
    let (mut a, to_b, mut b, _) = pair(MODEL);
    let mut sent = Vec::new();
    for len in [0, 5000, 1, 3000, 40] {
        let begun = now();
        assert_eq!(a.send(to_b, b"head", &vec![len as u8; len]), Ok(Post::Done));
        sent.push((begun, len));
    }
    let (mut left, mut arrived) = (0, Vec::new().into_iter());
    for (begun, len) in sent {
        if arrived.as_slice().is_empty() {
            arrived = heard(&mut b, 1).into_iter();
        }
        let packet = [&b"head"[..], &vec![len as u8; len]].concat();
        assert!(arrived.next() == Some(Heard::Packet(packet)), "{len} bytes are next");
        // The packets before it have left first.
        left = begun.max(left) + 4 + len as u64;
        assert!(now() >= left + 50_000, "{len} bytes");
    }
}

#[test]
fn operations_end_after_a_round_trip_and_notifications_after_a_trip() {
    let (mut a, to_b, mut b, to_a) = pair(MODEL);
    let region = |bytes: &[u8]| Region::new(Memory::new(bytes.to_vec()));
    let (ours, theirs) = (region(&[7; 100]), region(&[0; 104]));
    let local = a.register(to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
    let remote = b.register(to_a, &theirs, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap().remote(0);
    let from = Local { registration: local, offset: 0, len: 100 };
    let begun = now();
    assert_eq!(a.put_imm(to_b, from, remote, 0xffff_1234_5678, OpId(1)), Ok(Post::Done));
    assert_eq!(heard(&mut b, 1), [Heard::Notified(0x1234_5678)]);
    // The time of a notification is cut to ticks.
    assert!(now() + 16 >= begun + 100 + 50_000);
    assert_eq!(heard(&mut a, 1), [Heard::Completed(OpId(1), Ok(()))]);
    assert!(now() >= begun + 100 + 100_000);
    let begun = now();
    assert_eq!(a.change(to_b, Change::Add(1), remote, OpId(2)), Ok(Changed::Done));
    assert_eq!(heard(&mut a, 1), [Heard::Changed(OpId(2), 0x0707_0707_0707_0707)]);
    assert!(now() >= begun + 100_000);
}

#[test]
fn a_burst_that_fills_the_queue_is_taken_without_a_poll_and_arrives_in_order_and_in_time() {
    const LEN: usize = 4 << 10;
    let (mut a, to_b, mut b, _) = pair(MODEL);
    let packet = |number: usize| vec![number as u8; LEN];
    let (begun, mut recorder, mut arrived) = (now(), Recorder::default(), 0);
    let mut receive = |recorder: &mut Recorder| {
        b.poll(recorder).unwrap();
        for heard in recorder.0.drain(..) {
            assert!(heard == Heard::Packet(packet(arrived)), "packet {arrived} is next");
            arrived += 1;
            // The packets before it have left first.
            assert!(now() >= begun + 50_000 + (arrived * LEN) as u64, "packet {arrived} is early");
        }
        arrived
    };
    for number in 0..QUEUE_BYTES / LEN {
        assert_eq!(a.send(to_b, b"", &packet(number)), Ok(Post::Done), "packet {number}");
        // The inner port has room for some packets alone, so the receiver takes them.
        receive(&mut recorder);
    }
    while receive(&mut recorder) < QUEUE_BYTES / LEN {}
}

#[test]
fn a_full_queue_makes_senders_wait() {
    const LEN: usize = 4 << 10;
    let model = Model { latency_ns: 1e3, byte_ns: 100.0 };
    let (mut a, to_b, mut b, _) = pair(model);
    let (begun, mut sent) = (now(), 0);
    while a.send(to_b, b"", &[0; LEN]).unwrap() == Post::Done {
        sent += 1;
        assert!(sent < 10_000, "each packet takes 0.4 ms, and 0.4 s of them fill the queue");
        b.inner.poll(&mut Recorder::default()).unwrap();
    }
    assert!(sent >= QUEUE_BYTES / LEN, "{sent} packets are fewer than have room");
    while a.send(to_b, b"", &[1; LEN]).unwrap() == Post::Again {}
    let left = begun + model.bytes_ns((sent + 1) * LEN);
    assert!(now() + model.bytes_ns(QUEUE_BYTES) >= left, "more bytes wait than have room");
    assert_eq!(heard(&mut b, 1), [Heard::Packet(vec![1; LEN])]);
    assert!(now() >= left + 1000);
}

#[test]
fn a_sleeper_is_woken_when_an_event_is_due() {
    let [mut a, mut b] = [0; 2].map(|_| {
        let inner = Shm::open(&shm::Config::default()).unwrap();
        Delay::new(inner, Model { latency_ns: 5e6, byte_ns: 0.0 }).unwrap()
    });
    let to_b = a.resolve(&b.address()).unwrap();
    b.resolve(&a.address()).unwrap();
    while b.arm() == Sleep::NotNow {
        b.poll(&mut Recorder::default()).unwrap();
    }
    let begun = now();
    assert_eq!(a.send(to_b, b"wake", b""), Ok(Post::Done));
    let mut recorder = Recorder::default();
    // The first wake-up comes from the ring, as a rule before the packet is due. The next one comes from the timer.
    while recorder.0.is_empty() {
        assert!(waits_for(&b, 900), "the sleeper is woken");
        b.disarm();
        b.poll(&mut recorder).unwrap();
        assert!(recorder.0.is_empty() || now() >= begun + 5_000_000);
        while recorder.0.is_empty() && b.arm() == Sleep::NotNow {
            b.poll(&mut recorder).unwrap();
        }
    }
    assert_eq!(recorder.0, [Heard::Packet(b"wake".to_vec())]);
    b.disarm();
    assert_eq!(b.kept.due(), None);
    while b.arm() == Sleep::NotNow {
        b.poll(&mut recorder).unwrap();
    }
    assert!(!waits_for(&b, 0), "nothing is left");
}

#[test]
fn an_event_that_is_kept_does_not_seem_idle_once_it_is_due() {
    let (mut a, to_b, mut b, _) = pair(MODEL);
    assert_eq!(a.send(to_b, b"", b"x"), Ok(Post::Done));
    while b.kept.due().is_none() {
        b.poll(&mut Recorder::default()).unwrap();
    }
    let due = b.kept.due().unwrap();
    while now() < due {}
    assert!(!b.seems_idle());
    assert_eq!(b.arm(), Sleep::NotNow);
}

#[test]
fn nothing_arrives_from_a_fenced_peer() {
    let (mut a, to_b, mut b, to_a) = pair(MODEL);
    assert_eq!(a.send(to_b, b"", b"kept"), Ok(Post::Done));
    while b.kept.due().is_none() {
        b.poll(&mut Recorder::default()).unwrap();
    }
    b.fence_peer(to_a);
    assert_eq!(b.kept.due(), None);
    assert!(b.send(to_a, b"", b"").is_err());
}

#[test]
fn the_end_of_a_peer_comes_after_its_packets() {
    let (mut a, to_b, mut b, to_a) = pair(MODEL);
    assert_eq!(a.send(to_b, b"", b"last"), Ok(Post::Done));
    drop(a);
    assert_eq!(heard(&mut b, 2), [Heard::Packet(b"last".to_vec()), Heard::Lost(to_a)]);
}

/// Returns a port, another port that is not delayed, and the first one as the other one's peer.
fn stranger(model: Model) -> (Delay<Loopback>, Loopback, PeerId) {
    let hub = Hub::new();
    let port = Delay::new(hub.port(), model).unwrap();
    let mut stranger = hub.port();
    let Address(address) = port.address();
    let to_port = stranger.resolve(&Address(address[3 + 16 + 8..].to_vec())).unwrap();
    (port, stranger, to_port)
}

/// The longest time from the poll that takes a packet to its arrival, for packets that are shorter than the queue.
fn longest_ns(model: Model) -> u64 {
    model.latency() + model.bytes_ns(QUEUE_BYTES)
}

#[test]
fn forged_stamps_delay_no_longer_than_honest_ones() {
    let (mut b, mut stranger, to_b) = stranger(MODEL);
    for due in [u64::MAX, now() + 1_000_000_000] {
        let stamp = Stamp { due: due.into(), from: 1.into() };
        assert_eq!(stranger.send(to_b, stamp.as_bytes(), b"late"), Ok(Post::Done));
        assert_eq!(stranger.send(to_b, b"short", b""), Ok(Post::Done));
        let before = now();
        while b.kept.due().is_none() {
            b.poll(&mut Recorder::default()).unwrap();
        }
        let kept = b.kept.due().unwrap();
        assert!(kept >= before + longest_ns(MODEL) && kept <= now() + longest_ns(MODEL));
        assert_eq!(heard(&mut b, 1), [Heard::Packet(b"late".to_vec())]);
        b.poll(&mut Recorder::default()).unwrap();
        assert_eq!(b.kept.due(), None, "the short packet was dropped");
    }
}

#[test]
fn the_stamps_of_a_full_queue_are_not_taken_for_forged_ones() {
    let (_, _, mut b, _) = pair(MODEL);
    let Delay { model, peers, fenced, operations, kept, .. } = &mut b;
    let now = now();
    let longer = QUEUE_BYTES + 1000;
    let due_of = |len: usize| now + 50_000 + QUEUE_BYTES.max(len) as u64;
    let mut keeper = Keeper { now, model: *model, peers, fenced, operations, kept };
    for len in [0, 1000, longer] {
        let stamp = Stamp { due: due_of(len).into(), from: 1.into() };
        keeper.packet(&[stamp.as_bytes(), &vec![0; len]].concat());
    }
    let due = std::iter::from_fn(|| b.kept.events.pop()).map(|Reverse(event)| event.due);
    assert_eq!(due.collect::<Vec<_>>(), [0, 1000, longer].map(due_of));
}

#[test]
fn a_port_of_another_host_is_unreachable() {
    let hub = Hub::new();
    let [mut a, b] = [0; 2].map(|_| Delay::new(hub.port(), MODEL).unwrap());
    let Address(mut address) = b.address();
    address[5] ^= 1;
    assert!(matches!(a.resolve(&Address(address)), Err(PortError::Unreachable { .. })));
    assert!(matches!(a.resolve(&hub.port().address()), Err(PortError::BadAddress { .. })));
}

#[test]
fn a_packet_that_is_sent_during_a_poll_keeps_its_time() {
    let (_, _, mut b, _) = pair(MODEL);
    let due = now() + 60_000;
    let stamp = Stamp { due: due.into(), from: 1.into() };
    let Delay { model, peers, fenced, operations, kept, .. } = &mut b;
    // The poll began long ago.
    Keeper { now: 0, model: *model, peers, fenced, operations, kept }.packet(stamp.as_bytes());
    assert_eq!(b.kept.due(), Some(due));
}

#[test]
fn packets_of_all_lengths_keep_their_order_while_the_receiver_polls() {
    const PACKETS: u32 = 3000;
    let model = Model { latency_ns: 2e3, byte_ns: 0.33 };
    let [mut a, mut b] =
        [0; 2].map(|_| Delay::new(Shm::open(&shm::Config::default()).unwrap(), model).unwrap());
    let to_b = a.resolve(&b.address()).unwrap();
    b.resolve(&a.address()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for number in 0..PACKETS {
                let body = vec![0; (number as usize * 7919) % 3000];
                while a.send(to_b, &number.to_le_bytes(), &body).unwrap() == Post::Again {}
            }
        });
        let mut expected = 0..PACKETS;
        while !expected.is_empty() {
            for heard in heard(&mut b, 1) {
                let Heard::Packet(packet) = heard else { continue };
                let number = packet.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
                assert_eq!(number, expected.next());
            }
        }
    });
}

#[test]
#[cfg(feature = "ofi")]
fn a_peer_with_shorter_buffers_gets_shorter_packets() {
    use crate::ofi::{OfiConfig, OfiPort};

    let [mut a, mut b] = [1, 2].map(|number| {
        let config = OfiConfig { stays_on_host: true, packet_max: number << 10, ..OfiConfig::default() };
        Delay::new(OfiPort::open(&config).unwrap(), MODEL).unwrap()
    });
    let (to_a, to_b) = (b.resolve(&a.address()).unwrap(), a.resolve(&b.address()).unwrap());
    let max = (1 << 10) - size_of::<Stamp>();
    assert_eq!([a.caps_for(to_b).packet_max, b.caps_for(to_a).packet_max], [max; 2]);
    let error = b.send(to_a, b"h", &vec![1; max]).expect_err("it is too long");
    assert!(matches!(error, PortError::TooLong { max: most, .. } if most == max), "{error}");
}
