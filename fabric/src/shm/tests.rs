use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::testing::onesided::{Ends, all_cases};
use crate::testing::{Heard, Recorder, bytes_of};
use crate::{Failure, Memory};
use samite_os::fork::in_a_child;
use samite_os::shared::SharedFile;

const SMALL: Config = Config {
    peers_max: 4,
    ring_bytes_min: 2 << 10,
    ring_bytes: 8 << 10,
    ring_bytes_max: 32 << 10,
    growth_bytes_max: 64 << 10,
};

fn port() -> Shm {
    Shm::open(&SMALL).unwrap()
}

/// Returns all events that a port has to report.
fn heard(port: &mut Shm) -> Vec<Heard> {
    let mut sink = Recorder::default();
    while port.poll(&mut sink).unwrap() > 0 {}
    sink.0
}

fn packets(port: &mut Shm) -> Vec<Vec<u8>> {
    let packet = |heard| match heard {
        Heard::Packet(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    heard(port).into_iter().map(packet).collect()
}

#[test]
fn packets_arrive_in_order_from_all_peers() {
    let mut receiver = port();
    let address = receiver.address();
    let mut senders: Vec<_> = (0..4).map(|_| port()).collect();
    let mut expected = Vec::new();
    for round in 0..500u32 {
        for (index, sender) in senders.iter_mut().enumerate() {
            let to = sender.resolve(&address).unwrap();
            let body = vec![round as u8; (round as usize * 7 + index) % 3500];
            let head = [&[index as u8][..], &round.to_le_bytes()].concat();
            assert_eq!(sender.send(to, &head, &body), Ok(Post::Done));
            expected.push([head, body].concat());
        }
        let mut got = packets(&mut receiver);
        got.sort();
        assert_eq!(got, expected.split_off(0));
    }
}

#[test]
fn a_glance_tells_what_a_poll_would_find() {
    let (mut sender, mut receiver) = (port(), port());
    let to = sender.resolve(&receiver.address()).unwrap();
    for _ in 0..3 {
        assert!(receiver.seems_idle());
        // The sender rings the bell for its first packet. The receiver then polls the ring, so it finds the next packet
        // without the bell.
        assert_eq!(sender.send(to, b"", b"news"), Ok(Post::Done));
        assert!(!receiver.seems_idle());
        assert_eq!(packets(&mut receiver), [b"news"]);
    }
    drop(sender);
    assert!(!receiver.seems_idle(), "its slot is to be freed");
    assert_eq!(heard(&mut receiver), []);
    assert!(receiver.seems_idle());
}

#[test]
fn a_port_reaches_itself() {
    let mut this = port();
    let to = this.resolve(&this.address()).unwrap();
    assert_eq!(this.send(to, b"to", b"me"), Ok(Post::Done));
    assert_eq!(packets(&mut this), [b"tome"]);
}

#[test]
fn limits_are_those_of_the_caps() {
    let (mut sender, receiver) = (port(), port());
    let max = sender.caps().packet_max;
    assert_eq!(max, 3584);
    let to = sender.resolve(&receiver.address()).unwrap();
    let body = vec![1; max];
    assert_eq!(sender.send(to, &[], &body), Ok(Post::Done));
    assert_eq!(sender.send(to, &[0], &body), Err(PortError::TooLong { len: max + 1, max }));
    let stranger = PeerId(9);
    assert_eq!(sender.send(stranger, &[], &[]), Err(PortError::PeerGone(stranger)));
    for (peers_max, ring_bytes_min, ring_bytes, ring_bytes_max) in [
        (0, 8192, 8192, 8192),
        (4097, 8192, 8192, 8192),
        (4, 2048, 2048, 8192),
        (4, 1024, 8192, 8192),
        (4, 2048 + 64, 8192, 8192),
        (4, 16384, 8192, 16384),
        (4, 8192, 8193, 16384),
        (4, 8192, 8192 + 64, 16384),
        (4, 8192, 8192, 4096),
        (4, 8192, 8192, 8192 + 64),
        (4, 8192, 8192, 16 << 20),
        (4, 8192, 256 << 10, 256 << 10),
        (4, 0, 0, 0),
    ] {
        let config = Config { peers_max, ring_bytes_min, ring_bytes, ring_bytes_max, growth_bytes_max: 0 };
        assert!(matches!(Shm::open(&config), Err(PortError::Unsupported { .. })), "{config:?}");
    }
}

#[test]
fn a_full_ring_says_again_until_it_is_read() {
    let (mut sender, mut receiver) = (port(), port());
    let to = sender.resolve(&receiver.address()).unwrap();
    let mut sent = 0;
    while sender.send(to, &[0; 40], &[]).unwrap() == Post::Done {
        sent += 1;
    }
    // Each ring keeps one line free.
    assert_eq!(sent, SMALL.ring_bytes_min / 64 - 1 + SMALL.ring_bytes / 64 - 1);
    assert_eq!(packets(&mut receiver).len(), sent);
    assert_eq!(sender.send(to, &[0; 40], &[]), Ok(Post::Done));
}

#[test]
fn what_was_sent_before_a_port_closed_arrives_and_its_slot_is_used_again() {
    let mut receiver = port();
    let address = receiver.address();
    for round in 0..20u8 {
        let mut sender = port();
        let to = sender.resolve(&address).unwrap();
        for _ in 0..=round {
            assert_eq!(sender.send(to, &[round], &[]), Ok(Post::Done));
        }
        drop(sender);
        assert_eq!(packets(&mut receiver), vec![vec![round]; round as usize + 1]);
    }
}

#[test]
fn a_full_table_is_an_error_and_then_is_not() {
    let mut receiver = port();
    let address = receiver.address();
    let connected = |receiver: &mut Shm| {
        let mut sender = port();
        let post = sender.resolve(&address).and_then(|to| {
            let post = sender.send(to, &[], &[]);
            if post != Ok(Post::Again) {
                return post;
            }
            packets(receiver);
            sender.send(to, &[], &[])
        });
        (post, sender)
    };
    let mut senders: Vec<_> = (0..4).map(|_| connected(&mut receiver)).collect();
    assert!(senders.iter().all(|(post, _)| *post == Ok(Post::Done)));
    let refused = connected(&mut receiver).0.unwrap_err();
    insta::assert_snapshot!(refused, @"out of places for senders in the peer's shared memory: 4 are in use: raise SAMITE_SHM_PEERS_MAX");
    // Another sender may take the last slot between `resolve` and the first send.
    senders.pop();
    assert!(packets(&mut receiver).len() == 4);
    let (mut first, mut second) = (port(), port());
    let [to_first, to_second] = [&mut first, &mut second].map(|sender| sender.resolve(&address).unwrap());
    assert_eq!(first.send(to_first, &[], &[]), Ok(Post::Done));
    assert!(matches!(second.send(to_second, &[], &[]), Err(PortError::Exhausted { .. })));
    drop(first);
    assert_eq!(connected(&mut receiver).0, Ok(Post::Done), "a slot was given back");
    assert_eq!(packets(&mut receiver).len(), 1);
}

#[test]
fn a_closed_port_is_reported_once_its_ring_is_full() {
    let (mut sender, receiver) = (port(), port());
    let to = sender.resolve(&receiver.address()).unwrap();
    drop(receiver);
    let error = loop {
        match sender.send(to, &[], &[]) {
            Ok(post) => assert_eq!(post, Post::Done),
            Err(error) => break error,
        }
    };
    assert_eq!(error, PortError::PeerGone(to));
    assert_eq!(heard(&mut sender), [Heard::Lost(to)]);
    assert_eq!(heard(&mut sender), []);
}

#[test]
fn a_fenced_peer_is_heard_no_more_and_learns_of_it() {
    let (mut a, mut b, mut c) = (port(), port(), port());
    let (a_to_b, b_to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    let c_to_a = c.resolve(&a.address()).unwrap();
    let b_address = b.address();
    assert_eq!(b.send(b_to_a, b"1", &[]), Ok(Post::Done));
    assert_eq!(packets(&mut a), [b"1"]);
    assert_eq!(b.send(b_to_a, b"2", &[]), Ok(Post::Done));
    a.fence_peer(a_to_b);
    assert_eq!(c.send(c_to_a, b"3", &[]), Ok(Post::Done));
    assert_eq!(packets(&mut a), [b"3"]);
    assert_eq!(a.send(a_to_b, &[], &[]), Err(PortError::PeerGone(a_to_b)));
    assert_eq!(a.resolve(&b_address), Ok(a_to_b), "and stays cut off");
    while b.send(b_to_a, &[], &[]) == Ok(Post::Done) {}
    assert_eq!(b.send(b_to_a, &[], &[]), Err(PortError::PeerGone(b_to_a)));
    drop(b);
    assert_eq!(packets(&mut a), Vec::<Vec<u8>>::new());
}

#[test]
fn a_peer_fenced_before_it_sent_is_not_heard_either() {
    let (mut a, mut b) = (port(), port());
    let a_to_b = a.resolve(&b.address()).unwrap();
    a.fence_peer(a_to_b);
    let b_to_a = b.resolve(&a.address()).unwrap();
    assert_eq!(b.send(b_to_a, b"1", &[]), Ok(Post::Done));
    assert_eq!(packets(&mut a), Vec::<Vec<u8>>::new());
}

#[test]
fn a_peer_that_writes_garbage_is_lost_and_others_are_not() {
    let (mut receiver, mut bad, mut good) = (port(), port(), port());
    let bad_peer = receiver.resolve(&bad.address()).unwrap();
    let to = bad.resolve(&receiver.address()).unwrap();
    assert_eq!(bad.send(to, b"fine", &[]), Ok(Post::Done));
    assert_eq!(packets(&mut receiver), [b"fine"]);
    let Path::Connected(outgoing) = &bad.peers[to.0 as usize].path else { panic!("sent") };
    outgoing.connection().forge(1, 0xfffc, 0);
    let to = good.resolve(&receiver.address()).unwrap();
    assert_eq!(good.send(to, b"fine", &[]), Ok(Post::Done));
    let mut all = heard(&mut receiver);
    all.sort_by_key(|heard| matches!(heard, Heard::Lost(_)));
    assert_eq!(all, [Heard::Packet(b"fine".to_vec()), Heard::Lost(bad_peer)]);
    assert_eq!(receiver.send(bad_peer, &[], &[]), Err(PortError::PeerGone(bad_peer)));
}

#[test]
fn addresses_that_lead_nowhere_say_why() {
    let mut this = port();
    let other = port();
    let reach = |this: &mut Shm, change: fn(&mut Whereabouts)| {
        let mut whereabouts = other.whereabouts;
        change(&mut whereabouts);
        match this.resolve(&whereabouts.encode()) {
            Err(PortError::Unreachable { why } | PortError::PeerEnded { why }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(reach(&mut this, |at| at.place.boot[0] ^= 1).contains("another host"));
    assert!(reach(&mut this, |at| at.host += 1).contains("another host"));
    assert!(reach(&mut this, |at| at.place.pid_namespace ^= 1).contains("container"));
    assert!(reach(&mut this, |at| at.token ^= 1).contains("another file"));
    assert!(reach(&mut this, |at| at.fd = 0).contains("/fd/0"));
    assert!(reach(&mut this, |at| at.owner.pid = u32::MAX).contains("has ended"));
    // Tries the address of a port that was closed while its process continues.
    assert!(reach(&mut this, |at| at.fd = 9999).contains("has left the job, or is ending"));
    assert!(reach(&mut this, |at| (at.fd, at.uid) = (9999, 7)).contains("as user 7"));
    let gone = Whereabouts { fd: 9999, ..other.whereabouts };
    assert!(matches!(this.resolve(&gone.encode()), Err(PortError::PeerEnded { .. })));
    let bytes = Address(b"tcp://somewhere".to_vec());
    assert!(matches!(this.resolve(&bytes), Err(PortError::BadAddress { .. })));
    let larger = Shm::open(&Config::default()).unwrap();
    let smaller = other.address();
    let mut larger_to_smaller = larger;
    assert!(matches!(larger_to_smaller.resolve(&smaller), Err(PortError::Unreachable { .. })));
}

#[test]
fn another_file_of_the_owner_is_no_mailbox() {
    let mut this = port();
    for len in [4096, 1 << 20] {
        let file = SharedFile::create(c"other", len).unwrap();
        let whereabouts = Whereabouts { fd: file.fd(), token: 0, ..this.whereabouts };
        assert!(matches!(this.resolve(&whereabouts.encode()), Err(PortError::Unreachable { .. })), "{len}");
    }
}

#[test]
fn peers_are_limited_and_known_again() {
    let mut this = port();
    let others: Vec<_> = (0..5).map(|_| port()).collect();
    let ids: Vec<_> = others[..4].iter().map(|other| this.resolve(&other.address()).unwrap()).collect();
    assert_eq!(this.resolve(&others[2].address()), Ok(ids[2]));
    assert!(matches!(this.resolve(&others[4].address()), Err(PortError::Exhausted { .. })));
    this.fence_peer(ids[0]);
    assert_eq!(this.resolve(&others[4].address()), Ok(PeerId(4)));
}

/// Runs in a child process, which has its own limit of open files.
#[test]
fn a_peer_is_not_out_of_reach_for_lack_of_descriptors() {
    // Run the one-time checks before the fork.
    let other = port();
    port().resolve(&other.address()).unwrap();
    let is_told = in_a_child(|| {
        let (mut this, other) = (port(), port());
        let set = |current| setrlimit(Resource::Nofile, Rlimit { current, ..getrlimit(Resource::Nofile) });
        let before = getrlimit(Resource::Nofile).current;
        set(Some(3)).unwrap();
        let refused = this.resolve(&other.address()).unwrap_err();
        set(before).unwrap();
        let is_told = |text: String| text.contains("raise their limit (ulimit -n)");
        matches!(&refused, PortError::Exhausted { hint, .. } if is_told(hint.clone()))
            && this.resolve(&other.address()).is_ok()
    });
    assert!(is_told.unwrap());
}

#[test]
fn silent_peers_become_active_again() {
    let mut receiver = port();
    let mut senders: Vec<_> = (0..4).map(|_| port()).collect();
    for round in 0..3u8 {
        for sender in &mut senders {
            let to = sender.resolve(&receiver.address()).unwrap();
            assert_eq!(sender.send(to, &[round], &[]), Ok(Post::Done));
        }
        // All senders have rung the bell.
        let mut sink = Recorder::default();
        receiver.poll(&mut sink).unwrap();
        assert_eq!(sink.0, vec![Heard::Packet(vec![round]); senders.len()]);
        for _ in 0..3000 {
            assert_eq!(receiver.poll(&mut sink), Ok(0));
        }
    }
}

/// Sends packets until the port has no room, then receives them. Repeats this until `enough` returns true for the
/// receiver.
fn stream(sender: &mut Shm, receiver: &mut Shm, mut enough: impl FnMut(&Shm) -> bool) {
    let to = sender.resolve(&receiver.address()).unwrap();
    let mut round = 0u32;
    while !enough(receiver) {
        let first = round;
        while sender.send(to, &round.to_le_bytes(), &[7; 1000]).unwrap() == Post::Done {
            round += 1;
        }
        let rounds =
            packets(receiver).into_iter().map(|packet| u32::from_le_bytes(*packet.first_chunk().unwrap()));
        assert!(rounds.eq(first..round), "nothing is lost or overtaken while a ring grows");
    }
}

#[test]
fn rings_grow_with_traffic_under_a_budget() {
    let mut receiver = port();
    let mut senders: Vec<_> = (0..3).map(|_| port()).collect();
    // Two extra rings fit in the budget.
    for (count, sender) in senders.iter_mut().take(2).enumerate() {
        // Before its stream, the second sender sends 10,000 packets one at a time through the small ring. One long
        // packet among them makes it leave that ring for a while.
        let to = sender.resolve(&receiver.address()).unwrap();
        for packet in 0..count * 10_000 {
            let len = if packet == 5000 { 2000 } else { 0 };
            assert_eq!(sender.send(to, &[], &vec![0; len]), Ok(Post::Done));
            assert_eq!(packets(&mut receiver).len(), 1);
        }
        stream(sender, &mut receiver, |receiver| receiver.usage().growth_bytes == (count + 1) * (32 << 10));
    }
    let mut laps = 0;
    stream(&mut senders[2], &mut receiver, |_| {
        laps += 1;
        laps > 100
    });
    let usage = Usage { rings: 3, ring_bytes: 30 << 10, growth_bytes: 64 << 10, growths_refused: 1 };
    assert_eq!(receiver.usage(), usage);
    // A sender with an extra ring can send more packets before the receiver reads any than a sender without one.
    let fill = |sender: &mut Shm, receiver: &mut Shm| {
        let to = sender.resolve(&receiver.address()).unwrap();
        let sent = (0..).take_while(|_| sender.send(to, &[], &[]).unwrap() == Post::Done).count();
        assert_eq!(packets(receiver).len(), sent);
        sent
    };
    let filled: Vec<_> = senders
        .iter_mut()
        .map(|sender| {
            fill(sender, &mut receiver);
            fill(sender, &mut receiver) * 64
        })
        .collect();
    let without_extra = SMALL.ring_bytes_min + SMALL.ring_bytes;
    assert!(
        filled[0] > 2 * without_extra && filled[1] > 2 * without_extra && filled[2] < without_extra,
        "{filled:?}"
    );
    // The freed budget is available to others.
    senders.clear();
    assert_eq!(packets(&mut receiver).len(), 0);
    assert_eq!(receiver.usage(), Usage { growths_refused: 1, ..Usage::default() });
    stream(&mut port(), &mut receiver, |receiver| receiver.usage().growth_bytes > 0);
}

#[test]
fn a_way_to_a_ring_that_is_not_there_is_garbage() {
    // Forges the number of the current ring, of a ring that was not granted, and invalid numbers.
    for ring in [0, 2, 3, u64::MAX] {
        let (mut receiver, mut bad) = (port(), port());
        let bad_peer = receiver.resolve(&bad.address()).unwrap();
        let to = bad.resolve(&receiver.address()).unwrap();
        assert_eq!(bad.send(to, b"fine", &[]), Ok(Post::Done));
        let Path::Connected(outgoing) = &bad.peers[to.0 as usize].path else { panic!("sent") };
        outgoing.connection().forge(1, 0xffff, ring);
        assert_eq!(heard(&mut receiver), [Heard::Packet(b"fine".to_vec()), Heard::Lost(bad_peer)]);
    }
}

#[test]
fn a_sender_keeps_to_the_small_ring_as_long_as_the_receiver_keeps_up() {
    let (mut sender, mut receiver) = (port(), port());
    let to = sender.resolve(&receiver.address()).unwrap();
    // Sends packets and reads them. Returns true if the sender is in its small ring.
    let mut burst = |count: usize, len: usize| {
        for _ in 0..count {
            assert_eq!(sender.send(to, &[], &vec![0; len]), Ok(Post::Done));
        }
        assert_eq!(packets(&mut receiver).len(), count);
        matches!(&sender.peers[to.0 as usize].path, Path::Connected(outgoing) if outgoing.is_small())
    };
    let lap = SMALL.ring_bytes / 64;
    for _ in 0..1000 {
        assert!(burst(5, 8));
    }
    // The small ring is full before the receiver reads. The next packets go through the large ring, for one lap of it.
    let full = SMALL.ring_bytes_min / 64;
    assert!(!burst(full, 8));
    let left = (1..).find(|_| burst(1, 8));
    assert!(left.is_some_and(|left| (lap - full..=lap).contains(&left)), "{left:?} of {lap}");
    // A packet that is too long for the small ring follows soon after, so the sender uses the large ring for two laps.
    assert!(!burst(1, 2000));
    assert!((0..2 * lap - 33).all(|_| !burst(1, 8)));
    assert!(burst(1, 8));
    // The next long packet follows more than two laps later, so the sender uses the large ring for one lap only.
    assert!((0..2 * lap).all(|_| burst(1, 8)));
    assert!(!burst(1, 2000));
    assert!((0..lap - 33).all(|_| !burst(1, 8)));
    assert!(burst(1, 8));
}

/// Tests the patrol. A ring may become quiet just when a packet is written to it, so that the receiver does not see the
/// packet, and the sender does not see that it must ring the bell.
#[test]
fn a_packet_that_rang_no_bell_is_found() {
    let (mut receiver, mut sender) = (port(), port());
    let to = sender.resolve(&receiver.address()).unwrap();
    assert_eq!(sender.send(to, b"1", &[]), Ok(Post::Done));
    assert_eq!(packets(&mut receiver), [b"1"]);
    let mut sink = Recorder::default();
    for _ in 0..3000 {
        assert_eq!(receiver.poll(&mut sink), Ok(0));
    }
    let Path::Connected(outgoing) = &mut sender.peers[to.0 as usize].path else { panic!("sent") };
    assert!(outgoing.connection().is_quiet());
    assert_eq!(outgoing.push(b"2", [].as_slice()), Push::Done);
    let polls = (0..10_000).position(|_| receiver.poll(&mut sink).unwrap() > 0);
    assert!(polls.is_some_and(|polls| polls < 64 * SMALL.peers_max), "{polls:?}");
    assert!(
        !matches!(&sender.peers[to.0 as usize].path, Path::Connected(outgoing) if outgoing.connection().is_quiet())
    );
}

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Two ports, each the other's peer.
fn pair() -> (Shm, PeerId, Shm, PeerId) {
    let (mut a, mut b) = (port(), port());
    let (to_b, to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    (a, to_b, b, to_a)
}

#[test]
fn puts_and_gets_reach_shared_memory() {
    let (mut a, to_b, mut b, to_a) = pair();
    let (ours, theirs) = (Region::new(Memory::new(vec![1u8; 8])), Region::shared(8).unwrap());
    let mine = a.register(to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    assert_eq!(a.put_imm(to_b, mine.local(0, 3), exposed.remote(5), u64::MAX, OpId(1)), Ok(Post::Over));
    assert_eq!(a.send(to_b, b"after", &[]), Ok(Post::Done));
    assert_eq!(a.get(to_b, mine.local(2, 6), exposed.remote(2), OpId(2)), Ok(Post::Over));
    assert_eq!(
        a.put(to_b, mine.local(8, 0), exposed.remote(8), OpId(3)),
        Ok(Post::Over),
        "nothing, anywhere"
    );
    assert_eq!(heard(&mut a), [], "no completion follows");
    assert_eq!(heard(&mut b), [Heard::Notified(u64::MAX), Heard::Packet(b"after".to_vec())]);
    assert_eq!(bytes_of(&theirs), [0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(bytes_of(&ours), [1, 1, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn long_puts_of_any_alignment_arrive() {
    let (mut a, to_b, mut b, to_a) = pair();
    let len = RMA_MAX + 100;
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 300) as u8).collect();
    let (ours, theirs) = (Region::new(Memory::new(bytes.clone())), Region::shared(len).unwrap());
    let mine = a.register(to_b, &ours, Access::LOCAL_READ).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    for (from, into, len) in [(0, 0, RMA_MAX), (1, 3, 5000), (7, 1, RMA_MAX), (13, 64, 4097)] {
        assert_eq!(a.put(to_b, mine.local(from, len), exposed.remote(into), OpId(0)), Ok(Post::Over));
        assert!(bytes_of(&theirs)[into..into + len] == bytes[from..from + len], "{from}, {into}, {len}");
    }
    let error = PortError::TooLong { len: RMA_MAX + 1, max: RMA_MAX };
    assert_eq!(a.put(to_b, mine.local(0, RMA_MAX + 1), exposed.remote(0), OpId(0)), Err(error));
}

#[test]
fn access_takes_the_key_the_right_and_bounds() {
    let (mut a, to_b, mut b, to_a) = pair();
    let (ours, theirs) = (Region::new(Memory::zeroed(8)), Region::shared(8).unwrap());
    let mine = a.register(to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
    let read_only = b.register(to_a, &theirs, Access::REMOTE_READ).unwrap();
    let exposed = b.register(to_a, &theirs, Access::REMOTE_WRITE).unwrap();
    let refused = |a: &mut Shm, post: Result<Post, PortError>| {
        assert_eq!(post, Ok(Post::Done));
        assert_eq!(heard(a), [Heard::Completed(OpId(0), Err(Failure::Refused))]);
    };
    let remotes = [
        exposed.remote(1),
        exposed.remote(usize::MAX - 7),
        read_only.remote(0),
        crate::Remote { key: exposed.key ^ 1 << 40, ..exposed.remote(0) },
        crate::Remote { key: 0, ..exposed.remote(0) },
        crate::Remote { address: 999 << 40, ..exposed.remote(0) },
        crate::Remote { address: 0, ..exposed.remote(0) },
    ];
    for remote in remotes {
        let post = a.put(to_b, mine.local(0, 8), remote, OpId(0));
        refused(&mut a, post);
    }
    let post = a.get(to_b, mine.local(0, 8), exposed.remote(0), OpId(0));
    refused(&mut a, post);
    assert_eq!(a.put(to_b, mine.local(0, 8), exposed.remote(0), OpId(1)), Ok(Post::Over));
    // The end of one registration does not end the others.
    b.deregister(exposed);
    let post = a.put(to_b, mine.local(0, 8), exposed.remote(0), OpId(0));
    refused(&mut a, post);
    assert_eq!(a.get(to_b, mine.local(0, 8), read_only.remote(0), OpId(1)), Ok(Post::Over));
    // A call returns an error for a mistake of its own side.
    let outside = a.put(to_b, mine.local(1, 8), read_only.remote(0), OpId(0));
    assert_eq!(outside, Err(PortError::OutOfBounds { offset: 1, len: 8 }));
    assert!(matches!(b.register(to_a, &ours, Access::REMOTE_READ), Err(PortError::Unsupported { .. })));
}

#[test]
fn one_sided_calls_do_what_they_say() {
    all_cases(|| Ends::new(port(), port(), || {}));
}

#[test]
fn a_window_is_what_its_peer_granted() {
    let (mut a, to_b, mut b, to_a) = pair();
    let theirs = Region::shared(256).unwrap();
    let exposed = register_span(&mut b, to_a, &theirs, 64..192, RIGHTS);
    let read_only = register_span(&mut b, to_a, &theirs, 0..256, Access::REMOTE_READ);
    let window = a.map(to_b, exposed.remote(8), 64).unwrap();
    window.write(3, b"bytes").unwrap();
    window.store(16, 77).unwrap();
    assert_eq!(bytes_of(&theirs)[75..80], *b"bytes");
    assert_eq!(theirs.change(88, Change::Add(1)), Ok(77));
    assert_eq!(window.load(16), Ok(78));
    // Puts and stores reach the same memory.
    assert_eq!(a.put_bytes(to_b, &[9; 8], exposed.remote(24), OpId(0)), Ok(Post::Over));
    assert_eq!(window.load(16), Ok(u64::from_ne_bytes([9; 8])));
    for (place, len) in [
        (exposed.remote(0), 129),
        (exposed.remote(128), 1),
        (exposed.remote(1), usize::MAX),
        (crate::Remote { address: exposed.base - 1, ..exposed.remote(0) }, 8),
        (crate::Remote { key: exposed.key ^ 1, ..exposed.remote(0) }, 8),
        (crate::Remote { address: u64::MAX, ..exposed.remote(0) }, 8),
        (read_only.remote(0), 8),
    ] {
        assert!(a.map(to_b, place, len).is_none(), "{place:?}, {len}");
    }
    assert!(a.map(PeerId(9), exposed.remote(0), 8).is_none());
    b.deregister(exposed);
    assert!(!window.is_open() && a.map(to_b, exposed.remote(0), 8).is_none());
    drop((a, b, theirs));
    window.store(16, 5).unwrap();
    assert_eq!(window.load(16), Ok(5), "the memory lives as long as the window");
}

fn register_span(
    port: &mut Shm,
    peer: PeerId,
    region: &Region,
    span: Range<usize>,
    access: Access,
) -> Registration {
    let path = port.path(peer).unwrap();
    port.register_span(path, region, span, access).unwrap()
}

#[test]
fn many_windows_share_a_segment_each_with_its_key() {
    const WINDOWS: usize = 600;
    let (mut a, to_b, mut b, to_a) = pair();
    let theirs = Region::shared(8 * WINDOWS).unwrap();
    let places: Vec<_> = (0..WINDOWS)
        .map(|window| register_span(&mut b, to_a, &theirs, 8 * window..8 * window + 8, RIGHTS))
        .collect();
    for (number, place) in places.iter().enumerate() {
        assert_eq!(a.put_bytes(to_b, &number.to_ne_bytes(), place.remote(0), OpId(0)), Ok(Post::Over));
        assert_eq!(a.put_bytes(to_b, &[1; 8], place.remote(1), OpId(0)), Ok(Post::Done), "refused");
    }
    assert_eq!(bytes_of(&theirs), (0..WINDOWS).flat_map(usize::to_ne_bytes).collect::<Vec<_>>());
    assert_eq!(a.peers[to_b.0 as usize].segments.count(), 1);
}

/// Several threads, each with its own port, change words of one memory, by their ports and through windows. Meanwhile
/// another thread reads lines that these threads write.
#[test]
fn threads_change_one_memory_and_words_do_not_appear_in_parts() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 5000;
    let mut b = port();
    let theirs = Region::shared(64 + 64).unwrap();
    let mut writers: Vec<_> = (0..THREADS).map(|_| port()).collect();
    let to_a = b.resolve(&writers[0].address()).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    let address = b.address();
    std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter_mut()
            .enumerate()
            .map(|(number, port)| {
                let address = &address;
                scope.spawn(move || {
                    let to = port.resolve(address).unwrap();
                    let window = port.map(to, exposed.remote(0), 64).unwrap();
                    let mine = Region::new(Memory::zeroed(56));
                    let local = port.register(to, &mine, Access::LOCAL_READ).unwrap();
                    for round in 0..ROUNDS {
                        let byte = [round as u8 ^ (number as u8) << 6; 56];
                        let changed = port.change(to, Change::Add(1), exposed.remote(0), OpId(0));
                        assert!(matches!(changed, Ok(Changed::Over(_))), "{changed:?}");
                        window.change(8, Change::Max(round)).unwrap();
                        mine.copy_in(0, &byte).unwrap();
                        // Puts whole words, at an offset that is not the start of a cache line.
                        let put = port.put(to, local.local(0, 56), exposed.remote(72), OpId(0));
                        assert_eq!(put, Ok(Post::Over));
                    }
                })
            })
            .collect();
        let mut line = [0; 64];
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            theirs.copy_out(64, &mut line).unwrap();
            for word in line.as_chunks::<8>().0 {
                assert_eq!(*word, [word[0]; 8], "a word in parts");
            }
        }
    });
    assert_eq!(theirs.change(0, Change::Or(0)), Ok(THREADS as u64 * ROUNDS));
    assert_eq!(theirs.change(8, Change::Or(0)), Ok(ROUNDS - 1));
}

#[test]
fn a_descriptor_that_means_another_segment_is_looked_at_anew() {
    let (mut a, to_b, mut b, to_a) = pair();
    let ours = Region::new(Memory::new(vec![5u8; 8]));
    let mine = a.register(to_b, &ours, Access::LOCAL_READ).unwrap();
    let mut fds = std::collections::HashSet::new();
    for round in 0..10 {
        let theirs = Region::shared(8).unwrap();
        fds.insert(theirs.segment().unwrap().fd());
        let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
        assert_eq!(a.put(to_b, mine.local(0, 8), exposed.remote(0), OpId(round)), Ok(Post::Over));
        assert_eq!(bytes_of(&theirs), [5; 8]);
        b.deregister(exposed);
    }
    assert!(fds.len() < 10, "numbers are used again");
    assert_eq!(a.peers[to_b.0 as usize].segments.count(), 1, "and what is left of the former ones goes");
}

#[test]
fn a_fenced_peer_puts_no_more() {
    let (mut a, to_b, mut b, to_a) = pair();
    let (ours, theirs) = (Region::new(Memory::new(vec![1u8; 8])), Region::shared(8).unwrap());
    let mine = a.register(to_b, &ours, Access::LOCAL_READ).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    assert_eq!(a.put_imm(to_b, mine.local(0, 1), exposed.remote(0), 7, OpId(0)), Ok(Post::Over));
    assert_eq!(heard(&mut b), [Heard::Notified(7)]);
    b.fence_peer(to_a);
    assert_eq!(a.put(to_b, mine.local(0, 8), exposed.remote(0), OpId(1)), Err(PortError::PeerGone(to_b)));
    assert_eq!(bytes_of(&theirs), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(heard(&mut a), [Heard::Lost(to_b)]);
    // Puts to a closed port are refused too.
    let (mut a, to_b, mut b, to_a) = pair();
    let mine = a.register(to_b, &ours, Access::LOCAL_READ).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    drop(b);
    assert_eq!(a.put(to_b, mine.local(0, 8), exposed.remote(0), OpId(1)), Err(PortError::PeerGone(to_b)));
}

#[test]
fn a_full_ring_makes_notices_wait_and_operations_are_limited() {
    let (mut a, to_b, mut b, to_a) = pair();
    let (ours, theirs) = (Region::new(Memory::new(vec![1u8; 8])), Region::shared(8).unwrap());
    let mine = a.register(to_b, &ours, Access::LOCAL_READ).unwrap();
    let exposed = b.register(to_a, &theirs, RIGHTS).unwrap();
    let put = |a: &mut Shm| a.put_imm(to_b, mine.local(0, 8), exposed.remote(0), 3, OpId(0));
    while a.send(to_b, &[], &[]) == Ok(Post::Done) {}
    assert_eq!(put(&mut a), Ok(Post::Again));
    assert_eq!(bytes_of(&theirs), [0; 8], "nothing happened");
    heard(&mut b);
    assert_eq!(put(&mut a), Ok(Post::Over));
    assert_eq!(heard(&mut b), [Heard::Notified(3)]);
    // Refused operations have a completion.
    let refused = |a: &mut Shm| a.put(to_b, mine.local(0, 8), exposed.remote(1), OpId(0));
    for _ in 0..RMA_DEPTH {
        assert_eq!(refused(&mut a), Ok(Post::Done));
    }
    assert_eq!((refused(&mut a), put(&mut a)), (Ok(Post::Again), Ok(Post::Again)));
    assert_eq!(heard(&mut a).len(), RMA_DEPTH);
}
