use super::*;
use crate::Memory;
use crate::testing::onesided::{Ends, all_cases};
use crate::testing::{Heard, Recorder, bytes_of};
use std::thread;

fn pair() -> (Loopback, PeerId, Loopback, PeerId) {
    let hub = Hub::new();
    let (mut a, mut b) = (hub.port(), hub.port());
    let (to_b, to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    (a, to_b, b, to_a)
}

fn heard(port: &mut Loopback) -> Vec<Heard> {
    let mut recorder = Recorder::default();
    let count = port.poll(&mut recorder).unwrap();
    assert_eq!(count, recorder.0.len());
    recorder.0
}

#[test]
fn packets_arrive_whole_and_in_order() {
    let (mut a, to_b, mut b, _) = pair();
    assert_eq!(heard(&mut b), []);
    let full = vec![7; PACKET_MAX - 1];
    for (head, body) in [(&b"one"[..], &b"1"[..]), (b"", b""), (b"h", &full)] {
        assert_eq!(a.send(to_b, head, body), Ok(Post::Done));
    }
    let last = [b"h", full.as_slice()].concat();
    assert_eq!(heard(&mut b), [Heard::Packet(b"one1".to_vec()), Heard::Packet(vec![]), Heard::Packet(last)]);
    assert_eq!(heard(&mut b), []);
    let error = PortError::TooLong { len: PACKET_MAX + 1, max: PACKET_MAX };
    assert_eq!(a.send(to_b, &[0; 2], &full), Err(error));
}

#[test]
fn one_sided_calls_do_what_they_say() {
    all_cases(|| {
        let hub = Hub::new();
        Ends::new(hub.port(), hub.port(), || {})
    });
}

#[test]
fn a_full_inbox_makes_senders_wait() {
    let (mut a, to_b, mut b, _) = pair();
    for bytes in [PACKET_MAX, 0] {
        let mut sent = 0;
        while a.send(to_b, &[], &vec![1; bytes]).unwrap() == Post::Done {
            sent += 1;
        }
        assert_eq!(sent, if bytes == 0 { INBOX_EVENTS_MAX } else { INBOX_BYTES_MAX / PACKET_MAX });
        assert_eq!(heard(&mut b).len(), sent);
        assert_eq!(a.send(to_b, &[], &[]), Ok(Post::Done));
        assert_eq!(heard(&mut b).len(), 1);
    }
}

#[test]
fn a_port_sends_and_puts_to_itself() {
    let mut a = Hub::new().port();
    let to_self = a.resolve(&a.address()).unwrap();
    let region = Region::new(Memory::new(vec![1u8, 2, 3, 4]));
    let all = Access::all();
    let registration = a.register(to_self, &region, all).unwrap();
    assert_eq!(a.send(to_self, b"x", b"y"), Ok(Post::Done));
    assert_eq!(a.put(to_self, registration.local(0, 2), registration.remote(1), OpId(5)), Ok(Post::Over));
    assert_eq!(heard(&mut a), [Heard::Packet(b"xy".to_vec())]);
    assert_eq!(bytes_of(&region), [1, 1, 2, 4]);
}

#[test]
fn one_sided_operations_move_registered_memory() {
    let (mut a, to_b, mut b, to_a) = pair();
    let (ours, theirs) = (Region::new(Memory::new(vec![1u8; 8])), Region::new(Memory::zeroed(8)));
    let mine = a.register(to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
    let exposed = b.register(to_a, &theirs, Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap();
    assert_eq!(a.put_imm(to_b, mine.local(0, 3), exposed.remote(5), u64::MAX, OpId(1)), Ok(Post::Over));
    assert_eq!(a.get(to_b, mine.local(2, 6), exposed.remote(2), OpId(2)), Ok(Post::Over));
    assert_eq!(heard(&mut a), [], "no completion follows");
    assert_eq!(heard(&mut b), [Heard::Notified(u64::MAX)]);
    assert_eq!(bytes_of(&theirs), [0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(bytes_of(&ours), [1, 1, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn access_is_refused_without_the_right_key_place_and_right() {
    let (mut a, to_b, mut b, to_a) = pair();
    let region = Region::new(Memory::zeroed(8));
    let mine = a.register(to_b, &region, Access::LOCAL_READ).unwrap();
    let readable = b.register(to_a, &region, Access::REMOTE_READ).unwrap();
    let ended = b.register(to_a, &region, Access::REMOTE_WRITE).unwrap();
    b.deregister(ended);
    b.deregister(ended);
    let again = b.register(to_a, &region, Access::REMOTE_WRITE).unwrap();
    assert_eq!(again.id, ended.id, "the slot is used anew, the key is not");
    for place in [
        readable.remote(0),
        ended.remote(0),
        again.remote(1),
        Remote { key: again.key ^ (1 << 40), address: 0 },
        Remote { key: again.key, address: u64::MAX },
    ] {
        assert_eq!(a.put_imm(to_b, mine.local(0, 8), place, 1, OpId(3)), Ok(Post::Done));
        assert_eq!(heard(&mut a), [Heard::Completed(OpId(3), Err(Failure::Refused))]);
    }
    assert_eq!(heard(&mut b), [], "what was refused is not notified");
    let outside = PortError::OutOfBounds { offset: 1, len: 8 };
    assert_eq!(a.put(to_b, mine.local(1, 8), again.remote(0), OpId(4)), Err(outside));
    let misuse = a.get(to_b, mine.local(0, 8), readable.remote(0), OpId(4));
    assert!(matches!(misuse, Err(PortError::Unsupported { .. })));
    a.deregister(mine);
    b.deregister(readable);
    b.deregister(again);
    assert!(region.reclaim().is_ok());
}

#[test]
fn operations_not_reported_are_bounded() {
    let (mut a, to_b, mut b, to_a) = pair();
    let region = Region::new(Memory::zeroed(1));
    let mine = a.register(to_b, &region, Access::LOCAL_READ).unwrap();
    let theirs = b.register(to_a, &region, Access::REMOTE_WRITE).unwrap();
    for _ in 0..RMA_DEPTH {
        assert_eq!(a.put(to_b, mine.local(0, 1), theirs.remote(1), OpId(0)), Ok(Post::Done), "refused");
    }
    assert_eq!(a.put(to_b, mine.local(0, 1), theirs.remote(0), OpId(0)), Ok(Post::Again));
    assert_eq!(heard(&mut a).len(), RMA_DEPTH);
    assert_eq!(a.put(to_b, mine.local(0, 1), theirs.remote(0), OpId(0)), Ok(Post::Over));
}

/// Uses private memory, where the changes of all ports take one lock.
#[test]
fn threads_change_one_memory_and_words_do_not_appear_in_parts() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 5000;
    let hub = Hub::new();
    let mut b = hub.port();
    let theirs = Region::new(Memory::zeroed(64));
    let (address, to_self) = (b.address(), b.resolve(&b.address()).unwrap());
    let exposed = b.register(to_self, &theirs, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
    let (hub, address) = (&hub, &address);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(move || {
                    let mut port = hub.port();
                    let to = port.resolve(address).unwrap();
                    for round in 0..ROUNDS {
                        let changed = port.change(to, Change::Add(1), exposed.remote(0), OpId(0));
                        assert!(matches!(changed, Ok(Changed::Over(_))), "{changed:?}");
                        let put = port.put_bytes(to, &[round as u8; 56], exposed.remote(8), OpId(0));
                        assert_eq!(put, Ok(Post::Over));
                    }
                })
            })
            .collect();
        let mut line = [0; 56];
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            assert_eq!(b.get_bytes(to_self, &mut line, exposed.remote(8)), Ok(Post::Over));
            assert_eq!(line, [line[0]; 56]);
        }
    });
    assert_eq!(theirs.change(0, Change::Or(0)), Ok(THREADS as u64 * ROUNDS));
}

#[test]
fn a_dropped_port_is_lost_once_to_those_who_knew_it() {
    let hub = Hub::new();
    let (mut a, mut b, mut stranger) = (hub.port(), hub.port(), hub.port());
    let (to_b, to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    let address = b.address();
    assert_eq!(b.send(to_a, b"last", b"words"), Ok(Post::Done));
    drop(b);
    assert_eq!(a.send(to_b, b"", b""), Err(PortError::PeerGone(to_b)));
    assert_eq!(heard(&mut a), [Heard::Packet(b"lastwords".to_vec()), Heard::Lost(to_b)]);
    assert_eq!(heard(&mut a), []);
    assert_eq!(heard(&mut stranger), []);
    let late = stranger.resolve(&address).unwrap();
    assert_eq!(heard(&mut stranger), [Heard::Lost(late)]);
    assert_eq!(stranger.resolve(&address), Ok(late));
    assert_eq!(heard(&mut stranger), []);
}

#[test]
fn a_fence_silences_a_peer() {
    let (mut a, to_b, mut b, to_a) = pair();
    let region = Region::new(Memory::zeroed(4));
    let theirs = b.register(to_a, &region, Access::LOCAL_READ).unwrap();
    let mine = a.register(to_b, &region, Access::REMOTE_WRITE).unwrap();
    assert_eq!(b.send(to_a, b"on its way", b""), Ok(Post::Done));
    a.fence_peer(to_b);
    assert_eq!(heard(&mut a), []);
    assert_eq!(a.send(to_b, b"", b""), Err(PortError::PeerGone(to_b)));
    assert_eq!(b.send(to_a, b"", b""), Err(PortError::PeerGone(to_a)));
    assert_eq!(b.put(to_a, theirs.local(0, 1), mine.remote(0), OpId(0)), Err(PortError::PeerGone(to_a)));
    drop(b);
    assert_eq!(heard(&mut a), [], "who was cut off is not lost as well");
}

#[test]
fn only_addresses_of_the_hub_resolve() {
    let hub = Hub::new();
    let mut port = hub.port();
    let mut beyond = port.address();
    beyond.0[8] = 1;
    for address in [Address(vec![]), beyond] {
        assert!(matches!(port.resolve(&address), Err(PortError::BadAddress { .. })), "{address:?}");
    }
    let elsewhere = port.resolve(&Hub::new().port().address());
    assert!(matches!(elsewhere, Err(PortError::Unreachable { .. })), "{elsewhere:?}");
}

#[test]
fn threads_lose_nothing() {
    const THREADS: usize = 8;
    const MESSAGES: u64 = 2000;
    let hub = Hub::new();
    let ports: Vec<_> = (0..THREADS).map(|_| hub.port()).collect();
    let addresses: Vec<_> = ports.iter().map(Port::address).collect();
    thread::scope(|scope| {
        for (rank, mut port) in ports.into_iter().enumerate() {
            let addresses = &addresses;
            scope.spawn(move || {
                let peers: Vec<_> = addresses.iter().map(|a| port.resolve(a).unwrap()).collect();
                let mut next = [0; THREADS];
                let mut sent = [0; THREADS];
                // Every thread stays until all have finished, so that none sends to a dropped port.
                let mut done = [false; THREADS];
                let mut told = [false; THREADS];
                while done != [true; THREADS] || told != [true; THREADS] {
                    let all_heard = next == [MESSAGES; THREADS];
                    for to in 0..THREADS {
                        let number = if sent[to] < MESSAGES { sent[to] } else { u64::MAX };
                        if number == u64::MAX && (told[to] || !all_heard) {
                            continue;
                        }
                        match port.send(peers[to], &[rank as u8], &number.to_le_bytes()).unwrap() {
                            Post::Done if number == u64::MAX => told[to] = true,
                            Post::Done => sent[to] += 1,
                            Post::Again | Post::Over => {}
                        }
                    }
                    for event in heard(&mut port) {
                        let Heard::Packet(bytes) = event else { continue };
                        let from = bytes[0] as usize;
                        match u64::from_le_bytes(bytes[1..].try_into().unwrap()) {
                            u64::MAX => done[from] = true,
                            number => {
                                assert_eq!(number, next[from]);
                                next[from] += 1;
                            }
                        }
                    }
                    thread::yield_now();
                }
            });
        }
    });
}
