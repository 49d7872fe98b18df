use super::*;
use crate::testing::onesided::{Ends, ORDERS, all_cases, overtakes};
use crate::testing::{Heard, Recorder, bytes_of};
use crate::{
    Access, Failure, Local, Memory, OpId, Order, PeerId, Port, PortError, Post, Reach, Region, Registration,
    Remote, SplitMix64,
};

/// Two ranks that have resolved each other.
struct Pair {
    net: Net,
    a: SimPort,
    b: SimPort,
    to_a: PeerId,
    to_b: PeerId,
}

impl Pair {
    fn new(seed: u64, config: Config) -> Self {
        let net = Net::new(seed, config);
        let (mut a, mut b) = (net.start(0), net.start(1));
        let (to_a, to_b) = (b.resolve(&a.address()).unwrap(), a.resolve(&b.address()).unwrap());
        Self { net, a, b, to_a, to_b }
    }

    /// Returns memory of a, and memory of b to which a has all rights.
    fn memory(&mut self, bytes: usize) -> (Region, Registration, Region, Registration) {
        let (ours, theirs) = (Region::new(Memory::zeroed(bytes)), Region::new(Memory::zeroed(bytes)));
        let local = self.a.register(self.to_b, &ours, Access::LOCAL_READ | Access::LOCAL_WRITE).unwrap();
        let remote = self.b.register(self.to_a, &theirs, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
        (ours, local, theirs, remote)
    }

    /// Polls both ports until no event is left. Returns the events of a, and of b.
    fn settle(&mut self) -> (Vec<Heard>, Vec<Heard>) {
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        loop {
            let (from_a, from_b) = (heard(&mut self.a), heard(&mut self.b));
            let idle = from_a.is_empty() && from_b.is_empty();
            at_a.extend(from_a);
            at_b.extend(from_b);
            if !self.net.advance() && idle {
                return (at_a, at_b);
            }
        }
    }
}

fn heard(port: &mut SimPort) -> Vec<Heard> {
    let mut recorder = Recorder::default();
    while port.poll(&mut recorder).unwrap() > 0 {}
    recorder.0
}

fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

fn packets(heard: &[Heard]) -> Vec<u8> {
    heard
        .iter()
        .filter_map(|heard| if let Heard::Packet(bytes) = heard { Some(bytes[0]) } else { None })
        .collect()
}

const ENDED: Heard = Heard::Completed(OpId(1), Ok(()));
const JITTER: u64 = 10_000;

#[test]
fn a_packet_costs_what_the_model_says() {
    let mut pair = Pair::new(1, Config::default());
    let Costs { latency_ns, overhead_ns, gap_ns, gap_per_byte_ps, .. } = Config::default().costs;
    let one = latency_ns + 2 * overhead_ns + 100 * gap_per_byte_ps / 1000;
    for _ in 0..2 {
        assert_eq!(pair.a.send(pair.to_b, &[0; 60], &[0; 40]), Ok(Post::Done));
    }
    assert!(pair.net.advance());
    assert_eq!(pair.net.now_ns(), one);
    assert_eq!(heard(&mut pair.b).len(), 1);
    assert!(pair.net.advance());
    assert_eq!(pair.net.now_ns(), one + gap_ns + 100 * gap_per_byte_ps / 1000);
    assert_eq!(heard(&mut pair.b).len(), 1);
    assert!(!pair.net.advance());
    assert_eq!(pair.net.next_ns(), None);
    pair.net.advance_to(1 << 40);
    assert_eq!(pair.net.now_ns(), 1 << 40);
}

#[test]
fn one_sided_calls_do_what_they_say() {
    for seed in 0..6 {
        all_cases(|| {
            let config = with(|config| {
                config.caps.passive = seed % 2 == 0;
                config.jitter_ns = JITTER * (seed % 3);
                config.completion_delay_ns = 1000;
                config.storms_per_million = 10_000;
                config.storm_ns = 1000;
            });
            let net = Net::new(seed, config);
            Ends::new(net.start(0), net.start(1), move || _ = net.advance())
        });
    }
}

#[test]
fn packets_of_a_pair_keep_their_order_and_others_do_not() {
    let net = Net::new(3, with(|config| config.jitter_ns = JITTER));
    let (mut a, mut b, mut c) = (net.start(0), net.start(1), net.start(2));
    let (a_to_c, b_to_c) = (a.resolve(&c.address()).unwrap(), b.resolve(&c.address()).unwrap());
    for number in 0..30 {
        assert_eq!(a.send(a_to_c, &[number], &[]), Ok(Post::Done));
        assert_eq!(b.send(b_to_c, &[100 + number], &[]), Ok(Post::Done));
    }
    while net.advance() {}
    let all = packets(&heard(&mut c));
    let (from_a, from_b): (Vec<u8>, Vec<u8>) = all.iter().partition(|&&number| number < 100);
    assert_eq!(from_a, (0..30).collect::<Vec<_>>());
    assert_eq!(from_b, (100..130).collect::<Vec<_>>());
    assert!(!all.is_sorted_by_key(|number| (number % 100, number / 100)), "{all:?}");
}

#[test]
fn operations_overtake_as_far_as_the_claimed_order_allows() {
    let claims = ORDERS.into_iter().map(|order| Order::SEND_AFTER_SEND | order);
    for claimed in claims.chain([Order::SEND_AFTER_SEND, Order::all()]) {
        // The network runs with random delays, and without.
        for jitter_ns in [0, JITTER] {
            for order in ORDERS {
                let overtaken = (0..60).filter(|&seed| {
                    let config = with(|config| (config.caps.order, config.jitter_ns) = (claimed, jitter_ns));
                    let net = Net::new(seed, config);
                    let mut ends = Ends::new(net.start(0), net.start(1), move || _ = net.advance());
                    overtakes(&mut ends, order).expect("it has all calls")
                });
                let overtaken = overtaken.count();
                assert_eq!(
                    overtaken == 0,
                    claimed.contains(order),
                    "{order:?} of {claimed:?}: {overtaken} of 60"
                );
            }
        }
    }
}

#[test]
fn memory_is_read_and_written_late() {
    let (mut read_late, mut written_late) = (0, 0);
    for seed in 0..40 {
        let mut pair = Pair::new(seed, with(|config| config.jitter_ns = JITTER));
        let (ours, local, theirs, remote) = pair.memory(2);
        assert_eq!(pair.a.put(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1)), Ok(Post::Done));
        assert_eq!(pair.a.send_zcopy(pair.to_b, b"", local.local(0, 1), OpId(1)), Ok(Post::Done));
        // Changes the byte before the operations have ended, which is too early.
        ours.copy_in(0, &[9]).unwrap();
        let (at_a, at_b) = pair.settle();
        assert_eq!(at_a, [ENDED, ENDED]);
        read_late += u32::from(bytes_of(&theirs)[0] == 9) + u32::from(packets(&at_b) == [9]);

        assert_eq!(pair.a.get(pair.to_b, local.local(1, 1), remote.remote(1), OpId(1)), Ok(Post::Done));
        theirs.copy_in(1, &[7]).unwrap();
        pair.a.deregister(local);
        let ours = ours.reclaim().expect_err("the operation holds it");
        assert_eq!(bytes_of(&ours)[1], 0);
        assert_eq!(pair.settle().0, [ENDED]);
        assert_eq!(ours.reclaim().unwrap().as_bytes()[1], 7);

        // The target ends its registration while a put is under way. Then either the bytes are still written, or the
        // put is refused.
        let (_, local, theirs, remote) = pair.memory(1);
        assert_eq!(pair.a.put(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1)), Ok(Post::Done));
        assert!(pair.net.advance());
        pair.b.deregister(remote);
        match theirs.reclaim() {
            Ok(_) => {
                assert_eq!(pair.settle().0, [Heard::Completed(OpId(1), Err(Failure::Refused))]);
            }
            Err(held) => {
                written_late += 1;
                assert_eq!(pair.settle().0, [ENDED]);
                assert!(held.reclaim().is_ok());
            }
        }
    }
    assert!((20..60).contains(&read_late), "{read_late} of 80");
    assert!(written_late > 0);
}

#[test]
fn limits_are_kept() {
    let mut pair = Pair::new(
        1,
        with(|config| {
            config.channel_depth = 2;
            config.caps.rma_depth = 1;
            config.caps.immediate_bits = 4;
            config.caps.rma_max = 100;
            config.caps.peers_max = 1;
            config.poll_batch = 1;
        }),
    );
    let (_, local, _, remote) = pair.memory(200);
    let Pair { net, a, b, to_b, .. } = &mut pair;
    assert_eq!(a.send(*to_b, &[0; 8 << 10], b"!"), Err(PortError::TooLong { len: 8193, max: 8192 }));
    let long = a.put(*to_b, local.local(0, 101), remote.remote(0), OpId(1));
    assert_eq!(long, Err(PortError::TooLong { len: 101, max: 100 }));
    let outside = a.put(*to_b, local.local(150, 51), remote.remote(0), OpId(1));
    assert_eq!(outside, Err(PortError::OutOfBounds { offset: 150, len: 51 }));
    assert!(matches!(a.resolve(&a.address()), Err(PortError::Exhausted { .. })));
    for expected in [Post::Done, Post::Done, Post::Again] {
        assert_eq!(a.send(*to_b, b"x", b""), Ok(expected));
    }
    for expected in [Post::Done, Post::Again] {
        assert_eq!(a.put_imm(*to_b, local.local(0, 1), remote.remote(0), 0xff, OpId(1)), Ok(expected));
    }
    while net.advance() {}
    assert_eq!(b.poll(&mut Recorder::default()), Ok(1), "one event a poll");
    assert_eq!(a.send(*to_b, b"x", b""), Ok(Post::Done), "what is polled makes room");
    assert_eq!(
        pair.settle(),
        (vec![ENDED], vec![Heard::Packet(b"x".to_vec()), Heard::Notified(0xf), Heard::Packet(b"x".to_vec())])
    );
    let all_refused = with(|config| {
        (config.caps.put, config.caps.get, config.caps.zcopy_max) = (Reach::None, Reach::None, 0);
    });
    let mut pair = Pair::new(1, all_refused);
    let (_, local, _, remote) = pair.memory(1);
    let (span, place) = (local.local(0, 1), remote.remote(0));
    for refused in [
        pair.a.put(pair.to_b, span, place, OpId(1)),
        pair.a.put_imm(pair.to_b, span, place, 1, OpId(1)),
        pair.a.get(pair.to_b, span, place, OpId(1)),
        pair.a.send_zcopy(pair.to_b, b"", span, OpId(1)),
    ] {
        assert!(matches!(refused, Err(PortError::Unsupported { .. })), "{refused:?}");
    }
}

#[test]
fn foreign_addresses_and_keys_are_refused() {
    let mut pair = Pair::new(1, Config::default());
    let other = Net::new(2, Config::default());
    for address in [other.address(0), Address(vec![]), Address(vec![0; 12])] {
        assert!(matches!(pair.a.resolve(&address), Err(PortError::BadAddress { .. })));
    }
    assert_eq!(pair.a.resolve(&pair.net.address(1)), Ok(pair.to_b));
    let (_, local, _, remote) = pair.memory(4);
    for place in [Remote { key: remote.key ^ (1 << 50), address: 0 }, remote.remote(3)] {
        assert_eq!(pair.a.put_imm(pair.to_b, local.local(0, 2), place, 1, OpId(1)), Ok(Post::Done));
        let refused = Heard::Completed(OpId(1), Err(Failure::Refused));
        assert_eq!(pair.settle(), (vec![refused], vec![]));
    }
}

#[test]
fn storms_come_and_go() {
    let mut pair =
        Pair::new(1, with(|config| (config.storms_per_million, config.storm_ns) = (100_000, 5_000)));
    let (mut done, mut again) = (0, 0);
    while done < 200 {
        match pair.a.send(pair.to_b, &[done], b"").unwrap() {
            Post::Done => done += 1,
            Post::Again | Post::Over => {
                again += 1;
                assert!(pair.net.advance(), "the clock has a reason to move");
            }
        }
        heard(&mut pair.b);
    }
    assert!((10..1000).contains(&again), "{again}");
}

#[test]
fn death_is_told_once_or_never() {
    let told = Config::default();
    let silent = with(|config| config.death = Death::Silent);
    for (config, is_told) in [(told, true), (silent, false)] {
        let mut pair = Pair::new(1, config);
        pair.net.kill(1);
        let (at_a, at_b) = pair.settle();
        assert_eq!(at_a, if is_told { vec![Heard::Lost(pair.to_b)] } else { vec![] });
        assert_eq!(at_b, []);
        pair.net.advance_to(1 << 40);
        let after = if is_told { Err(PortError::PeerGone(pair.to_b)) } else { Ok(Post::Again) };
        assert_eq!(pair.a.send(pair.to_b, b"", b""), after);
        assert_eq!(pair.b.send(pair.to_a, b"", b""), Ok(Post::Again), "the dead do nothing");
        let again = pair.a.resolve(&pair.net.address(1)).unwrap();
        assert_eq!(again == pair.to_b, !is_told, "a peer that was lost has another name");
    }
}

#[test]
fn a_fence_ends_what_the_dead_left_and_frees_its_memory() {
    let mut hung = 0;
    for seed in 0..40 {
        let mut pair = Pair::new(seed, with(|config| config.jitter_ns = JITTER));
        let (ours, local, _, remote) = pair.memory(8);
        let (span, place) = (local.local(0, 8), remote.remote(0));
        assert_eq!(pair.a.put(pair.to_b, span, place, OpId(0)), Ok(Post::Done));
        assert_eq!(pair.a.get(pair.to_b, span, place, OpId(1)), Ok(Post::Done));
        assert_eq!(pair.a.send_zcopy(pair.to_b, b"", span, OpId(2)), Ok(Post::Done));
        pair.net.advance_to(seed * 200);
        pair.net.kill(1);
        let mut ended = pair.settle().0;
        hung += 4 - ended.len();
        pair.a.fence_peer(pair.to_b);
        pair.a.deregister(local);
        assert!(ours.reclaim().is_ok(), "at once, before any poll");
        ended.extend(pair.settle().0);
        let mut ids: Vec<_> = ended
            .iter()
            .filter_map(|heard| if let Heard::Completed(id, _) = heard { Some(id.0) } else { None })
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2], "each once");
        assert_eq!(pair.a.send(pair.to_b, b"", b""), Err(PortError::PeerGone(pair.to_b)));
    }
    assert!(hung > 10, "{hung}");
}

#[test]
fn a_fence_silences_the_living_too() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, with(|config| config.jitter_ns = JITTER));
        let region = Region::new(Memory::zeroed(1));
        let mine = pair.a.register(pair.to_b, &region, Access::REMOTE_WRITE).unwrap();
        let other = Region::new(Memory::new(vec![1u8]));
        let theirs = pair.b.register(pair.to_a, &other, Access::LOCAL_READ).unwrap();
        assert_eq!(pair.b.send(pair.to_a, b"x", b""), Ok(Post::Done));
        assert_eq!(pair.b.put_imm(pair.to_a, theirs.local(0, 1), mine.remote(0), 1, OpId(1)), Ok(Post::Done));
        assert_eq!(pair.b.send(pair.to_a, b"y", b""), Ok(Post::Done));
        pair.net.advance_to(seed * 300);
        pair.a.fence_peer(pair.to_b);
        let before = bytes_of(&region);
        let (at_a, at_b) = pair.settle();
        assert_eq!((at_a, bytes_of(&region)), (vec![], before));
        assert!(matches!(at_b[..], [Heard::Completed(OpId(1), _)]), "{at_b:?}");
        assert_eq!(pair.b.send(pair.to_a, b"z", b""), Ok(Post::Done));
        assert_eq!(pair.settle(), (vec![], vec![]));
    }
}

#[test]
fn without_a_fence_completions_come_late_and_memory_stays_held() {
    let mut pair = Pair::new(1, with(|config| config.caps.fence = false));
    let (ours, local, theirs, remote) = pair.memory(1);
    theirs.copy_in(0, &[5]).unwrap();
    assert_eq!(pair.a.get(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1)), Ok(Post::Done));
    assert_eq!(pair.b.send(pair.to_a, b"late", b""), Ok(Post::Done));
    pair.a.fence_peer(pair.to_b);
    pair.a.deregister(local);
    let ours = ours.reclaim().expect_err("the operation holds it");
    assert_eq!(pair.a.send(pair.to_b, b"", b""), Err(PortError::PeerGone(pair.to_b)));
    let mut at_a = pair.settle().0;
    at_a.sort_by_key(|heard| *heard == ENDED);
    assert_eq!(at_a, [Heard::Packet(b"late".to_vec()), ENDED]);
    assert_eq!(ours.reclaim().unwrap().as_bytes(), [5]);
}

#[test]
fn a_paused_target_is_reached_unless_it_must_poll() {
    for must_poll in [false, true] {
        let mut pair = Pair::new(1, with(|config| config.caps.passive = !must_poll));
        let (_, local, _, remote) = pair.memory(1);
        pair.net.pause(1);
        assert_eq!(pair.a.get(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1)), Ok(Post::Done));
        assert_eq!(pair.a.send(pair.to_b, b"x", b""), Ok(Post::Done));
        let expected = if must_poll { vec![] } else { vec![ENDED] };
        assert_eq!(pair.settle(), (expected, vec![]));
        assert_eq!(pair.b.send(pair.to_a, b"", b""), Ok(Post::Again));
        pair.net.resume(1);
        let expected = if must_poll { vec![ENDED] } else { vec![] };
        assert_eq!(pair.settle(), (expected, vec![Heard::Packet(b"x".to_vec())]));
    }
}

#[test]
fn a_cut_network_loses_or_holds_what_it_carries() {
    for (cut, expected) in [(Cut::Drop, vec![1, 4]), (Cut::Stall, vec![1, 2, 3, 4])] {
        let mut pair = Pair::new(1, with(|config| config.jitter_ns = JITTER));
        let (_, local, _, remote) = pair.memory(1);
        let get = |pair: &mut Pair| pair.a.get(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1));
        assert_eq!(pair.a.send(pair.to_b, &[1], b""), Ok(Post::Done));
        let mut at_b = pair.settle().1;
        pair.net.partition(0, 1, cut);
        for number in [2, 3] {
            assert_eq!(pair.a.send(pair.to_b, &[number], b""), Ok(Post::Done));
        }
        assert_eq!(get(&mut pair), Ok(Post::Done));
        let lost = Heard::Completed(OpId(1), Err(Failure::PeerLost));
        let ended = if cut == Cut::Drop { vec![lost] } else { vec![] };
        assert_eq!(pair.settle(), (ended, vec![]));
        pair.net.heal(0, 1);
        assert_eq!(pair.a.send(pair.to_b, &[4], b""), Ok(Post::Done));
        let (at_a, rest) = pair.settle();
        at_b.extend(rest);
        assert_eq!(at_a, if cut == Cut::Drop { vec![] } else { vec![ENDED] });
        assert_eq!(packets(&at_b), expected);
    }
}

#[test]
fn a_new_incarnation_gets_packets_for_the_old_only_where_addresses_alone_count() {
    for (stale, death) in
        [(false, Death::Silent), (true, Death::Silent), (false, Death::Told { delay_ns: 0 })]
    {
        let mut pair = Pair::new(1, with(|config| (config.stale, config.death) = (stale, death)));
        let (_, local, _, remote) = pair.memory(1);
        assert_eq!(pair.a.send(pair.to_b, b"old", b""), Ok(Post::Done));
        assert_eq!(pair.a.get(pair.to_b, local.local(0, 1), remote.remote(0), OpId(1)), Ok(Post::Done));
        pair.b = pair.net.start(1);
        assert_eq!((pair.b.process().incarnation, pair.b.address()), (2, pair.net.address(1)));
        let new = pair.a.send(pair.to_b, b"new", b"").unwrap();
        assert_eq!(new == Post::Done, death == Death::Silent);
        let (at_a, at_b) = pair.settle();
        assert!(!at_a.contains(&ENDED), "keys die with their owner");
        let expected: &[u8] = match (stale, death) {
            (true, _) => b"on",
            (_, Death::Silent) => b"n",
            _ => b"",
        };
        assert_eq!(packets(&at_b), expected);
        if death != Death::Silent {
            assert!(at_a.contains(&Heard::Lost(pair.to_b)));
            let anew = pair.a.resolve(&pair.b.address()).unwrap();
            assert_ne!(anew, pair.to_b);
            assert_eq!(pair.a.send(anew, b"hello", b""), Ok(Post::Done));
            assert_eq!(packets(&pair.settle().1), b"h");
        }
    }
}

#[test]
fn a_closed_port_delivers_what_it_posted() {
    let mut pair = Pair::new(1, with(|config| config.jitter_ns = JITTER));
    for number in 0..10 {
        assert_eq!(pair.b.send(pair.to_a, &[number], b""), Ok(Post::Done));
    }
    pair.b = pair.net.start(9);
    let at_a = pair.settle().0;
    assert_eq!(packets(&at_a), (0..10).collect::<Vec<_>>());
    assert!(at_a.contains(&Heard::Lost(pair.to_b)));
}

#[test]
fn strangers_may_write() {
    let mut pair = Pair::new(1, Config::default());
    pair.net.inject(1, b"garbage");
    assert_eq!(pair.settle().1, [Heard::Packet(b"garbage".to_vec())]);
}

#[test]
fn one_seed_is_one_run() {
    let runs: Vec<_> = [7, 7, 8].into_iter().map(adverse_run).collect();
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].0, runs[2].0);
    assert!(runs[0].1.iter().any(|line| line.ends_with("step 3")), "{:?}", runs[0].1);
}

#[test]
fn whatever_goes_wrong_packets_keep_order_and_operations_end_once() {
    for seed in 0..300 {
        adverse_run(seed);
    }
}

/// Runs random traffic between four ranks in a random network, with a rank killed, one paused and one cut off.
fn adverse_run(seed: u64) -> (u64, Vec<String>) {
    const RANKS: u32 = 4;
    let mut rng = SplitMix64::new(seed);
    // Each rank has one registration.
    let config = Config { registrations_max: 1, ..Config::adverse(&mut rng) };
    let caps = config.caps.clone();
    let net = Net::new(rng.next_u64(), config);
    net.record();
    let mut ports: Vec<_> = (0..RANKS).map(|rank| net.start(rank)).collect();
    let mut peers: Vec<Vec<PeerId>> = Vec::new();
    let mut spans: Vec<(Region, Registration)> = Vec::new();
    for port in &mut ports {
        peers.push((0..RANKS).map(|rank| port.resolve(&net.address(rank)).unwrap()).collect());
        let region = Region::new(Memory::zeroed(caps.rma_max.max(caps.zcopy_max)));
        let registration = port.register(PeerId(0), &region, Access::all()).unwrap();
        spans.push((region, registration));
    }
    // For each rank: `ended` has the number of ends of each of its posted operations; `sent` has the number of packets
    // that it has sent to each rank; and `last` has the last packet that it has received from each rank.
    let mut ended: Vec<Vec<u32>> = vec![Vec::new(); RANKS as usize];
    let mut sent = [[0u64; RANKS as usize]; RANKS as usize];
    let mut last = [[0u64; RANKS as usize]; RANKS as usize];
    let listen = |ports: &mut [SimPort], ended: &mut [Vec<u32>], last: &mut [[u64; 4]; 4]| {
        let mut count = 0;
        for (rank, port) in ports.iter_mut().enumerate() {
            let heard = heard(port);
            count += heard.len();
            for heard in heard {
                match heard {
                    Heard::Packet(bytes) => {
                        let from = bytes[0] as usize;
                        let number = u64::from_le_bytes(bytes[1..9].try_into().unwrap());
                        assert!(number > last[rank][from], "seed {seed}");
                        last[rank][from] = number;
                    }
                    Heard::Completed(op, _) => ended[rank][op.0 as usize] += 1,
                    _ => {}
                }
            }
        }
        count
    };
    for step in 0..400 {
        net.note(format!("step {step}"));
        let (rank, to) = (rng.below(4) as usize, rng.below(4) as usize);
        let (peer, mine, theirs) = (peers[rank][to], spans[rank].1, spans[to].1);
        let number = sent[rank][to] + 1;
        let head = [&[rank as u8][..], &number.to_le_bytes()].concat();
        let span = |rng: &mut SplitMix64, max: usize| Local {
            registration: mine,
            offset: 0,
            len: rng.below(1 + max as u64) as usize,
        };
        let op = OpId(ended[rank].len() as u64);
        let mut posted = |result: Result<Post, PortError>, is_packet: bool, is_operation: bool| match result {
            Ok(Post::Done) => {
                sent[rank][to] += u64::from(is_packet);
                if is_operation {
                    ended[rank].push(0);
                }
            }
            Ok(Post::Again) | Err(PortError::PeerGone(_)) => {}
            other => panic!("seed {seed}: {other:?}"),
        };
        let port = &mut ports[rank];
        match rng.below(6) {
            0 if caps.put.is_some() => {
                posted(port.put(peer, span(&mut rng, caps.rma_max), theirs.remote(0), op), false, true);
            }
            1 if caps.immediate_bits > 0 => {
                posted(
                    port.put_imm(peer, span(&mut rng, caps.rma_max), theirs.remote(0), 1, op),
                    false,
                    true,
                );
            }
            2 if caps.get.is_some() => {
                posted(port.get(peer, span(&mut rng, caps.rma_max), theirs.remote(0), op), false, true);
            }
            3 if caps.zcopy_max > 0 => {
                let span = span(&mut rng, caps.zcopy_max - head.len());
                posted(port.send_zcopy(peer, &head, span, op), true, true);
            }
            _ => posted(port.send(peer, &head, &[]), true, false),
        }
        if rng.below(3) == 0 {
            listen(&mut ports, &mut ended, &mut last);
            net.advance();
        }
        match step {
            100 => net.partition(0, 1, if rng.below(2) == 0 { Cut::Drop } else { Cut::Stall }),
            150 => net.pause(2),
            200 => net.kill(3),
            250 => net.heal(0, 1),
            300 => net.resume(2),
            _ => {}
        }
    }
    while listen(&mut ports, &mut ended, &mut last) > 0 || net.advance() {}
    for rank in 0..3 {
        let dead = peers[rank][3];
        ports[rank].fence_peer(dead);
    }
    while listen(&mut ports, &mut ended, &mut last) > 0 || net.advance() {}
    for rank in 0..3 {
        let counts = &ended[rank];
        assert!(counts.iter().all(|&count| count <= 1), "seed {seed} rank {rank}");
        if caps.fence {
            assert!(counts.iter().all(|&count| count == 1), "seed {seed} rank {rank}: {counts:?}");
        }
        ports[rank].deregister(spans[rank].1);
    }
    for (rank, (region, _)) in spans.into_iter().enumerate() {
        assert!(!caps.fence || region.reclaim().is_ok(), "seed {seed} rank {rank}");
    }
    (net.trace_hash(), net.take_trace().iter().map(ToString::to_string).collect())
}
