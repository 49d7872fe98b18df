//! Tests with several ports of one process over tcp;ofi_rxm on the loopback interface. No thread drives the ports: a
//! port makes progress only when the test polls it. So a test can simulate a stopped peer by not polling its port.

mod killed;

use super::*;
use crate::copy::is_slow;
use crate::delay::{Delay, Model};
use crate::route::{Ports, Route};
use crate::testing::onesided::{Ends, cases_of_refusal, honest_cases};
use crate::testing::{Heard, Recorder, bytes_of};
use crate::{Failure, Memory, Reach};

/// The number of polls after which a message counts as lost. Each poll makes at least one system call.
const POLLS_MAX: usize = 3_000_000;

struct Node {
    port: OfiPort,
    heard: Recorder,
}

impl Node {
    fn open(seed: u64) -> Self {
        Self::with(OfiConfig { seed, ..config() })
    }

    fn with(config: OfiConfig) -> Self {
        Self { port: OfiPort::open(&config).expect("the provider is there"), heard: Recorder::default() }
    }

    fn poll(&mut self) {
        self.port.poll(&mut self.heard).expect("the port works");
    }

    fn peer(&mut self, other: &Node) -> PeerId {
        self.port.resolve(&other.port.address()).expect("an address of the same kind")
    }

    fn region(&mut self, bytes: Vec<u8>, access: Access) -> (Region, Registration) {
        let region = Region::new(Memory::new(bytes));
        let all = 0..region.len();
        let registration = self.port.register_span(PathId::default(), &region, all, access);
        (region, registration.expect("host memory"))
    }

    fn result(&self, op: u64) -> Option<Result<(), Failure>> {
        let mut results = self.heard.0.iter().filter_map(|heard| match heard {
            Heard::Completed(id, result) if *id == OpId(op) => Some(result.clone()),
            _ => None,
        });
        let result = results.next();
        assert_eq!(results.next(), None, "operation {op} completed twice");
        result
    }

    fn packets(&self) -> Vec<&[u8]> {
        let packets = self.heard.0.iter().filter_map(|heard| match heard {
            Heard::Packet(bytes) => Some(&bytes[..]),
            _ => None,
        });
        packets.collect()
    }
}

/// Returns a configuration for the provider and the rules that ci/providers.sh selects, by default tcp;ofi_rxm on the
/// loopback interface.
fn config() -> OfiConfig {
    let rules = samite_os::env::get("SAMITE_TEST_RULES")
        .map(|name| offer::recorded::of(&name).expect("it is recorded"));
    match samite_os::env::get("SAMITE_TEST_PROVIDER") {
        Some(provider) => OfiConfig { provider, rules, stays_on_host: true, ..OfiConfig::default() },
        None => OfiConfig { interface: Some("lo".into()), rules, ..OfiConfig::default() },
    }
}

/// Polls both ports until `done` returns true.
fn pump(a: &mut Node, b: &mut Node, what: &str, mut done: impl FnMut(&mut Node, &mut Node) -> bool) {
    for _ in 0..POLLS_MAX {
        if done(a, b) {
            return;
        }
        a.poll();
        b.poll();
    }
    panic!("{what}: not in {POLLS_MAX} polls; heard {:?} and {:?}", a.heard, b.heard);
}

/// Calls `post` until there is room and it succeeds. Polls both ports meanwhile.
fn post(a: &mut Node, b: &mut Node, mut post: impl FnMut(&mut OfiPort) -> Result<Post, PortError>) {
    pump(a, b, "room to post", |a, _| post(&mut a.port).expect("accepted") == Post::Done);
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + salt) as u8).collect()
}

const ALL: Access = Access::all();

#[test]
fn packets_of_all_lengths_arrive_whole_and_in_order() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    let short = a.port.caps().short_max;
    let lengths = [0, 1, short - 1, short, short + 1, 511, 4096, a.port.caps().packet_max];
    let packets: Vec<_> = (0..400).map(|i| pattern(lengths[i % lengths.len()], i)).collect();
    for (i, packet) in packets.iter().enumerate() {
        let (head, body) = packet.split_at(packet.len() * (i % 3) / 2);
        post(&mut a, &mut b, |port| port.send(to, head, body));
    }
    pump(&mut a, &mut b, "all packets", |_, b| b.heard.0.len() == packets.len());
    assert!(b.packets().iter().eq(&packets));
    assert_eq!(a.heard.0, [], "a packet has no completion");
}

/// In a process without threads the port sets the variable that permits longer packets to rxm.
#[test]
fn long_packets_arrive() {
    with_cleanup("ofi::tests::long_packets_arrive", || {
        let (mut a, mut b) = (Node::open(1), Node::open(2));
        let mut c = Node::with(OfiConfig { packet_max: 16 << 10, seed: 3, ..config() });
        let packet_max = a.port.caps().packet_max;
        if config().rules.is_none() && config().provider == "tcp;ofi_rxm" {
            let asks = ["1.15", "1.16", "1.17"].contains(&&*survey::library().expect("it is loaded").version);
            assert_eq!(packet_max, if asks { PACKET_MAX } else { 16 << 10 });
        }
        let (to_b, to_c) = (a.peer(&b), a.peer(&c));
        let packets: Vec<_> = (0..100).map(|i| pattern(packet_max - i % 7 * 5_000 % packet_max, i)).collect();
        for packet in &packets {
            post(&mut a, &mut b, |port| port.send(to_b, &packet[..40], &packet[40..]));
        }
        pump(&mut a, &mut b, "all packets", |_, b| b.heard.0.len() == packets.len());
        assert!(b.packets().iter().eq(&packets));
        // A peer gets no packet that is longer than its buffers.
        let max = (16 << 10).min(packet_max);
        assert_eq!((a.port.caps_for(to_b).packet_max, a.port.caps_for(to_c).packet_max), (packet_max, max));
        let longest = pattern(max, 1);
        post(&mut a, &mut c, |port| port.send(to_c, b"", &longest));
        pump(&mut a, &mut c, "the packet", |_, c| !c.heard.0.is_empty());
        assert_eq!(c.packets(), [&longest]);
        let error = a.port.send(to_c, b"1", &longest).expect_err("it is too long");
        assert!(matches!(error, PortError::TooLong { .. }), "{error}");
    });
}

#[test]
fn buffers_begin_where_no_header_leads_to_a_slow_copy() {
    for packet_max in [1000, 4096, PACKET_MAX] {
        let port = Node::with(OfiConfig { packet_max, ..config() }).port;
        for (buffers, count) in [(&port.receives, port.slots.receives()), (&port.sends, 2)] {
            let mut end = 0;
            for buffer in 0..count as u32 {
                let span = buffers.span(buffer, buffers.size()).expect("the whole buffer");
                let start = span.start.as_ptr().addr();
                assert!(start >= end, "buffers do not overlap");
                end = start + buffers.size();
                for header in [16, 24, 80, 88] {
                    assert!(!is_slow(start, header) && !is_slow(header, start), "{header} bytes");
                }
            }
        }
    }
}

#[test]
fn few_receives_are_posted_while_few_packets_arrive() {
    with_cleanup("ofi::tests::few_receives_are_posted_while_few_packets_arrive", || {
        let (mut a, mut b) = (Node::open(1), Node::open(2));
        let to = a.peer(&b);
        let least = b.port.wanted;
        let mut largest = least;
        let packets: Vec<_> = (0..600).map(|i| pattern(100, i)).collect();
        let (burst, single) = packets.split_at(300);
        for packet in burst {
            post(&mut a, &mut b, |port| port.send(to, packet, &[]));
        }
        pump(&mut a, &mut b, "the burst", |_, b| {
            largest = largest.max(b.port.wanted);
            b.heard.0.len() == burst.len()
        });
        for (i, packet) in single.iter().enumerate() {
            post(&mut a, &mut b, |port| port.send(to, packet, &[]));
            pump(&mut a, &mut b, "the packet", |_, b| b.heard.0.len() == burst.len() + i + 1);
        }
        assert!(b.packets().iter().eq(&packets));
        b.poll();
        assert_eq!((b.port.wanted, b.port.posted_receives()), (least, least));
        if config().rules.is_none() && config().provider == "tcp;ofi_rxm" && least < 16 {
            assert!(largest > least, "a burst gets more receives");
        }
    });
}

#[test]
fn the_longest_packet_of_rxm_depends_on_its_version_and_environment() {
    let with = |version, variables: &[(&str, &str)]| {
        rxm_packet_max(version, &|name| {
            let value = variables.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| (*value).to_owned())
        })
    };
    let limit = (EAGER_LIMIT, "66560");
    assert_eq!(with((1, 17), &[limit]), 66_560);
    assert_eq!(with((1, 17), &[limit, ("FI_OFI_RXM_ENABLE_DYN_RBUF", "1")]), 66_560);
    for (version, variables) in [
        ((1, 17), &[][..]),
        ((1, 14), &[limit]),
        ((1, 18), &[limit]),
        ((2, 5), &[limit]),
        ((1, 17), &[(EAGER_LIMIT, "1000")]),
        ((1, 17), &[(EAGER_LIMIT, "1M")]),
        ((1, 17), &[limit, ("FI_OFI_RXM_ENABLE_DYN_RBUF", "0")]),
        ((1, 17), &[limit, ("FI_OFI_RXM_ENABLE_DIRECT_SEND", "no")]),
        ((1, 17), &[(EAGER_LIMIT, "040000")]),
    ] {
        assert_eq!(with(version, variables), 16 << 10, "{version:?} {variables:?}");
    }
    assert_eq!(with((1, 17), &[(EAGER_LIMIT, "0x10400")]), 66_560);
    let size = |size| (BUFFER_SIZE, size);
    assert_eq!(with((2, 5), &[limit, size("8192")]), 8 << 10);
    assert_eq!(with((1, 17), &[size("32768"), (EAGER_LIMIT, "20000")]), 32 << 10);
    assert_eq!(with((1, 17), &[size("8192"), limit]), 66_560);
}

#[test]
fn a_number_is_read_as_libfabric_reads_it() {
    for text in [
        "66560",
        "0x10400",
        "0X10400",
        "0202000",
        "+66560",
        " \t66560",
        "66560 ",
        "66560K",
        "-1",
        "-0x10",
        "",
        "K",
        "0",
        "00",
        "08",
        "0x",
        "0xg",
        "+",
        "-",
        "--1",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999",
        "-9223372036854775807",
        "0xffffffffffffffffff",
        "1\u{e9}",
    ] {
        let value = std::ffi::CString::new(text).expect("it has no NUL");
        // SAFETY: the string ends with a NUL, and no end is stored.
        let expected = unsafe { libc::strtol(value.as_ptr(), null_mut(), 0) };
        assert_eq!(number_of(text), expected as usize, "{text}");
    }
}

#[test]
fn both_may_speak_first() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let (to_b, to_a) = (a.peer(&b), b.peer(&a));
    let (mut from_a, mut from_b) = (false, false);
    pump(&mut a, &mut b, "simultaneous connections", |a, b| {
        from_a = from_a || a.port.send(to_b, b"from ", b"a").unwrap() == Post::Done;
        from_b = from_b || b.port.send(to_a, b"from ", b"b").unwrap() == Post::Done;
        !a.heard.0.is_empty() && !b.heard.0.is_empty()
    });
    assert_eq!((a.packets(), b.packets()), (vec![&b"from b"[..]], vec![&b"from a"[..]]));
}

/// Until then its bytes may lie in the provider, which sends them in polls. The ports above must tell that too.
#[test]
fn a_packet_is_unsent_until_its_completion() {
    let open = |seed| {
        let port = Node::open(seed).port;
        let (is_passive, packet) = (port.caps.passive, pattern(port.caps.packet_max / 2, 1));
        let inner = Route::new(Ports { ofi: Some(port), ..Ports::default() }).unwrap();
        let delay = Delay::new(inner, Model { latency_ns: 0.0, byte_ns: 0.0 }).unwrap();
        (Route::new(Ports { delay: Some(delay), ..Ports::default() }).unwrap(), is_passive, packet)
    };
    let ((mut a, is_passive, packet), (mut b, ..)) = (open(1), open(2));
    let to = a.resolve(&b.address()).unwrap();
    let mut heard = Recorder::default();
    let (mut is_posted, mut was_unsent) = (false, false);
    for _ in 0..POLLS_MAX {
        is_posted = is_posted || a.send(to, &packet, &[]).expect("accepted") == Post::Done;
        was_unsent |= a.has_unsent();
        a.poll(&mut Recorder::default()).unwrap();
        b.poll(&mut heard).unwrap();
        if is_posted && !heard.0.is_empty() && !a.has_unsent() {
            return assert_eq!(was_unsent, !is_passive);
        }
    }
    panic!("posted: {is_posted}, heard: {heard:?}, unsent: {}", a.has_unsent());
}

#[test]
fn a_receiver_that_does_not_poll_loses_nothing() {
    let (mut a, mut b) = (Node::open(1), Node::with(OfiConfig { receive_buffers: 4, ..config() }));
    let to = a.peer(&b);
    post(&mut a, &mut b, |port| port.send(to, b"hello", &[]));
    let mut sent = 1;
    for i in 0..2000u32 {
        if a.port.send(to, &i.to_le_bytes(), &[7; 300]).unwrap() == Post::Done {
            sent += 1;
        }
        a.poll();
    }
    pump(&mut a, &mut b, "what was accepted", |_, b| b.heard.0.len() == sent);
    let packets = b.packets();
    let numbers = packets[1..].iter().map(|packet| u32::from_le_bytes(packet[..4].try_into().unwrap()));
    assert!(numbers.is_sorted());
}

/// A peer that does not poll keeps the long packets to it in their buffers. The packets to other peers still find some.
#[test]
fn a_receiver_that_does_not_poll_leaves_buffers_to_others() {
    let config =
        |seed| OfiConfig { send_buffers: 8, receive_buffers: 4, operations_max: 8, seed, ..config() };
    let (mut a, mut b, mut c) = (Node::with(config(1)), Node::with(config(2)), Node::with(config(3)));
    let (to_b, to_c) = (a.peer(&b), a.peer(&c));
    post(&mut a, &mut b, |port| port.send(to_b, b"hello", &[]));
    post(&mut a, &mut c, |port| port.send(to_c, b"hello", &[]));
    pump(&mut a, &mut b, "the first packet", |_, b| !b.heard.0.is_empty());
    pump(&mut a, &mut c, "the first packet", |_, c| !c.heard.0.is_empty());
    let long = pattern(a.port.caps().packet_max, 7);
    // The kernel and the provider take the first packets from their buffers.
    let mut refused = 0;
    while refused < 1_000 {
        refused = if a.port.send(to_b, &long, &[]).unwrap() == Post::Done { 0 } else { refused + 1 };
        a.poll();
    }
    assert_eq!(a.port.send(to_c, &long, &[]), Ok(Post::Done));
    pump(&mut a, &mut c, "the long packet", |_, c| c.heard.0.len() == 2);
    assert_eq!(c.packets()[1], &long);
}

#[test]
fn a_packet_is_gathered_from_registered_memory() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    let (_region, registration) = a.region(pattern(9000, 5), Access::LOCAL_READ);
    if a.port.caps().zcopy_max == 0 {
        let refused = a.port.send_zcopy(to, b"head", registration.local(100, 8000), OpId(1));
        assert_eq!(refused, Err(PortError::Unsupported { what: "gather a packet from two places" }));
        return;
    }
    post(&mut a, &mut b, |port| port.send_zcopy(to, b"head", registration.local(100, 8000), OpId(1)));
    pump(&mut a, &mut b, "packet and completion", |a, b| a.result(1).is_some() && !b.heard.0.is_empty());
    assert_eq!(a.result(1), Some(Ok(())));
    assert_eq!(b.packets(), [&[b"head", &pattern(9000, 5)[100..8100]].concat()[..]]);
}

#[test]
fn memory_is_put() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    let len = (5 << 20) + 3;
    let (_source, from) = a.region(pattern(len, 1), Access::LOCAL_READ);
    let (target, remote) = b.region(vec![0; len + 10], Access::REMOTE_READ | Access::REMOTE_WRITE);
    post(&mut a, &mut b, |port| port.put(to, from.local(0, len), remote.remote(10), OpId(1)));
    post(&mut a, &mut b, |port| port.put(to, from.local(7, 3), remote.remote(1), OpId(2)));
    post(&mut a, &mut b, |port| port.put(to, from.local(0, 0), remote.remote(0), OpId(3)));
    pump(&mut a, &mut b, "the puts", |a, _| (1..=3).all(|op| a.result(op).is_some()));
    assert!((1..=3).all(|op| a.result(op) == Some(Ok(()))));
    assert_eq!(bytes_of(&target)[10..], pattern(len, 1));
    assert_eq!(bytes_of(&target)[..5], [&[0], &pattern(len, 1)[7..10], &[0]].concat());
}

#[test]
fn a_put_is_seen_by_the_packet_after_it() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let ordered = a.port.caps().order.contains(crate::Order::SEND_AFTER_PUT);
    let to = a.peer(&b);
    let len = 1 << 20;
    let (_source, from) = a.region(vec![9; len], Access::LOCAL_READ);
    let (target, remote) = b.region(vec![0; len], Access::REMOTE_WRITE);
    for round in 0..20 {
        target.copy_in(0, &vec![0; len]).unwrap();
        post(&mut a, &mut b, |port| port.put(to, from.local(0, len), remote.remote(0), OpId(round)));
        if !ordered {
            pump(&mut a, &mut b, "the put", |a, _| a.result(round).is_some());
        }
        post(&mut a, &mut b, |port| port.send(to, b"written", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| b.heard.0.len() > round as usize);
        assert!(bytes_of(&target) == vec![9; len], "round {round}");
    }
}

#[test]
fn a_notification_comes_after_its_data() {
    let (mut a, mut b) = (Node::with(OfiConfig { operations_max: 4, ..config() }), Node::open(2));
    let to = a.peer(&b);
    let len = 1 << 20;
    let (_source, from) = a.region(vec![9; len], Access::LOCAL_READ);
    let (target, remote) = b.region(vec![0; len], Access::REMOTE_WRITE);
    for round in 0..20 {
        target.copy_in(0, &vec![0; len]).unwrap();
        let immediate = u64::MAX - round;
        let put = |port: &mut OfiPort| {
            port.put_imm(to, from.local(0, len), remote.remote(0), immediate, OpId(round))
        };
        post(&mut a, &mut b, put);
        pump(&mut a, &mut b, "the notification", |_, b| b.heard.0.len() > round as usize);
        let carried = immediate & (u64::MAX >> (64 - a.port.caps().immediate_bits));
        assert_eq!(b.heard.0.last(), Some(&Heard::Notified(carried)));
        assert!(bytes_of(&target) == vec![9; len], "round {round}");
    }
    // Posts more puts than the port has room for at the same time. Some of them are empty.
    for op in 20..100 {
        let len = [0, 1, 70_000][op as usize % 3];
        post(&mut a, &mut b, |port| port.put_imm(to, from.local(0, len), remote.remote(0), op, OpId(op)));
    }
    pump(&mut a, &mut b, "all", |a, b| a.heard.0.len() == 100 && b.heard.0.len() == 100);
    assert!((0..100).all(|op| a.result(op) == Some(Ok(()))));
    assert!((20..100).all(|op| b.heard.0[20..].contains(&Heard::Notified(op))));
}

#[test]
fn memory_is_got_and_notified_where_the_provider_can() {
    let sockets = |seed| OfiConfig { provider: "sockets".into(), seed, ..config() };
    let (mut a, mut b) = (Node::with(sockets(1)), Node::with(sockets(2)));
    let immediate = (u64::MAX >> (64 - a.port.caps().immediate_bits)) - 1;
    assert!(a.port.caps().get.is_some());
    let to = a.peer(&b);
    let len = (5 << 20) + 3;
    let (_source, from) = a.region(pattern(len, 1), Access::LOCAL_READ);
    let (back, into) = a.region(vec![0; len], Access::LOCAL_WRITE);
    let (target, remote) = b.region(pattern(len, 2), Access::REMOTE_READ | Access::REMOTE_WRITE);

    post(&mut a, &mut b, |port| port.get(to, into.local(0, len), remote.remote(0), OpId(1)));
    pump(&mut a, &mut b, "the get", |a, _| a.result(1).is_some());
    assert_eq!(a.result(1), Some(Ok(())));
    assert_eq!(bytes_of(&back), pattern(len, 2));

    post(&mut a, &mut b, |port| port.put_imm(to, from.local(5, 3), remote.remote(1), immediate, OpId(2)));
    pump(&mut a, &mut b, "the notification", |a, b| !b.heard.0.is_empty() && a.result(2).is_some());
    assert_eq!((a.result(2), &b.heard.0[..]), (Some(Ok(())), &[Heard::Notified(immediate)][..]));
    assert_eq!(bytes_of(&target)[1..4], pattern(len, 1)[5..8]);
}

#[test]
fn memory_is_held_until_its_operations_have_ended() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    let len = 16 << 20;
    let (region, from) = a.region(pattern(len, 3), Access::LOCAL_READ);
    let (target, remote) = b.region(vec![0; len], Access::REMOTE_WRITE);
    post(&mut a, &mut b, |port| port.put(to, from.local(0, len), remote.remote(0), OpId(1)));
    a.port.deregister(from);
    let region = region.reclaim().expect_err("the put is in flight");
    assert_eq!(
        a.port.put(to, from.local(0, 8), remote.remote(0), OpId(2)),
        Err(PortError::OutOfBounds { offset: 0, len: 8 }),
        "the registration has ended"
    );
    pump(&mut a, &mut b, "the put", |a, _| a.result(1).is_some());
    assert!(bytes_of(&target) == pattern(len, 3));
    assert!(region.reclaim().expect("nobody else holds it").as_bytes() == pattern(len, 3));
}

#[test]
fn one_sided_calls_do_what_they_say() {
    with_cleanup("ofi::tests::one_sided_calls_do_what_they_say", || honest_cases(one_sided_ends));
}

/// ci/providers.sh leaves out tests whose names begin with `access_without_a_valid_key` if the provider never answers
/// such an access.
#[test]
fn access_without_a_valid_key_is_refused_in_every_one_sided_call() {
    let name = "ofi::tests::access_without_a_valid_key_is_refused_in_every_one_sided_call";
    with_cleanup(name, || cases_of_refusal(one_sided_ends));
}

fn one_sided_ends() -> Ends<OfiPort> {
    let open = |seed| OfiPort::open(&OfiConfig { seed, ..config() }).expect("the provider is there");
    Ends::new(open(1), open(2), || {})
}

#[test]
fn access_without_a_valid_key_is_refused_and_touches_nothing() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let (_source, from) = a.region(vec![1; 64], Access::LOCAL_READ);
    let (target, remote) = b.region(vec![0; 64], Access::REMOTE_WRITE);
    let ended = remote.remote(0);
    b.port.deregister(remote);
    let (other, other_remote) = b.region(vec![0; 64], Access::REMOTE_READ);
    let to = a.peer(&b);
    for (op, place) in
        [ended, other_remote.remote(0), Remote { key: 12345, address: 0 }].into_iter().enumerate()
    {
        // The target closes the connection at each refusal, so the peer is lost each time, and resolved again.
        let to = if op == 0 { to } else { a.peer(&b) };
        post(&mut a, &mut b, |port| port.put(to, from.local(0, 64), place, OpId(op as u64)));
        pump(&mut a, &mut b, "the refusal", |a, _| a.result(op as u64).is_some());
        assert!(
            matches!(a.result(op as u64), Some(Err(Failure::Refused | Failure::PeerLost))),
            "{:?}",
            a.heard
        );
    }
    assert_eq!((bytes_of(&target), bytes_of(&other)), (vec![0; 64], vec![0; 64]));
}

#[test]
fn a_peer_that_ends_is_lost() {
    let (mut a, mut b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    let (_region, from) = a.region(vec![0; 16 << 20], ALL);
    let (_target, remote) = b.region(vec![0; 16 << 20], Access::REMOTE_WRITE);
    post(&mut a, &mut b, |port| port.send(to, b"hello", &[]));
    pump(&mut a, &mut b, "the packet", |_, b| !b.heard.0.is_empty());
    assert_eq!(a.port.put(to, from.local(0, 16 << 20), remote.remote(0), OpId(1)), Ok(Post::Done));
    // A provider may start the operation only at the next poll.
    a.poll();
    (0..20).for_each(|_| b.poll());
    drop(b);
    for _ in 0..POLLS_MAX {
        if a.heard.0.len() == 2 {
            break;
        }
        a.poll();
    }
    assert_eq!(a.heard.0, [Heard::Completed(OpId(1), Err(Failure::PeerLost)), Heard::Lost(to)]);
    assert_eq!(a.port.send(to, b"hello", &[]), Err(PortError::PeerGone(to)));
}

#[test]
fn a_port_may_end_in_the_middle_of_everything() {
    for a_first in [true, false] {
        let (mut a, mut b) = (Node::open(1), Node::open(2));
        let (to_b, to_a) = (a.peer(&b), b.peer(&a));
        let (region, from) = a.region(vec![1; 16 << 20], ALL);
        let (_target, remote) = b.region(vec![0; 16 << 20], ALL);
        post(&mut a, &mut b, |port| port.send(to_b, b"hello", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| !b.heard.0.is_empty());
        assert_eq!(
            a.port.put_imm(to_b, from.local(0, 16 << 20), remote.remote(0), 1, OpId(1)),
            Ok(Post::Done)
        );
        let _ = a.port.send(to_b, &[0; 10_000], &[]).unwrap();
        let _ = b.port.send(to_a, &[0; 10_000], &[]).unwrap();
        (0..20).for_each(|_| b.poll());
        let (first, mut last) = if a_first { (a, b) } else { (b, a) };
        drop(first);
        (0..1000).for_each(|_| last.poll());
        drop(last);
        region.reclaim().expect("the ports have let go of it");
    }
}

/// Runs `test` in a process that has the variables of [`environment`] from the start. A launcher gives them to each
/// rank.
fn with_cleanup(name: &str, test: impl FnOnce()) {
    if samite_os::env::get("FI_AV_REMOVE_CLEANUP").as_deref() == Some("1") {
        return test();
    }
    let this = std::env::current_exe().expect("the path of this program");
    let output = std::process::Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .envs(environment(Some(&config().provider)))
        .env("FI_AV_REMOVE_CLEANUP", "1")
        .output()
        .expect("this program starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_port_takes_little_memory() {
    with_cleanup("ofi::tests::a_port_takes_little_memory", || {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux process");
            let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
            pages.expect("a number") * 4096
        };
        // The first port loads libfabric and its providers.
        let _first = Node::open(1);
        let before = resident();
        let _second = Node::open(2);
        let taken = resident().saturating_sub(before);
        assert!(taken < 32 << 20, "{taken} bytes");
    });
}

#[test]
fn variables_of_rxm_over_tcp_are_not_for_other_providers() {
    let names = |provider| environment(provider).map(|(name, _)| name).collect::<Vec<_>>();
    let only_over_tcp = |provider| names(provider).contains(&"FI_OFI_RXM_MSG_RX_SIZE");
    assert!(only_over_tcp(None) && only_over_tcp(Some("tcp;ofi_rxm")));
    assert!(!only_over_tcp(Some("verbs;ofi_rxm")) && !only_over_tcp(Some("samite-shm")));
}

#[test]
fn after_a_fence_nothing_of_the_peer_is_touched() {
    with_cleanup("ofi::tests::after_a_fence_nothing_of_the_peer_is_touched", || {
        let (mut a, mut b) = (Node::open(1), Node::open(2));
        let fence = a.port.caps().fence;
        let to = a.peer(&b);
        let len = 8 << 20;
        let (put, from) = a.region(vec![0xbb; len], Access::LOCAL_READ);
        let (target, remote) = b.region(vec![0xcc; len], Access::REMOTE_READ | Access::REMOTE_WRITE);
        post(&mut a, &mut b, |port| port.send(to, b"hello", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| !b.heard.0.is_empty());

        // From here on b is stopped in the middle of a transfer: a's socket is full, and b's socket is half read.
        let mut accepted = Vec::new();
        for op in 0..40 {
            let post = match op % 3 {
                0 => a.port.put(to, from.local(0, len), remote.remote(0), OpId(op)),
                1 => a.port.put_imm(to, from.local(0, len), remote.remote(0), 1, OpId(op)),
                _ => a.port.send_zcopy(to, b"head", from.local(0, 10_000), OpId(op)),
            };
            if post == Ok(Post::Done) {
                accepted.push(op);
            }
            // These packets are too long to be injected, so they are copied, and queued between the operations.
            let _ = a.port.send(to, &[0; 5000], &[]).expect("accepted, or no room");
            a.poll();
            if op == 20 {
                (0..50).for_each(|_| b.poll());
            }
        }
        assert!(accepted.len() > 10, "{accepted:?}");

        a.port.fence_peer(to);
        a.port.deregister(from);
        assert_eq!(a.port.send(to, b"x", &[]), Err(PortError::PeerGone(to)));
        if !fence {
            put.reclaim().expect_err("the operations are not over");
            return;
        }
        // The operations have ended already, so only this test holds their memory.
        put.reclaim().expect("released").as_bytes_mut().fill(0x22);
        a.poll();
        for op in &accepted {
            let result = a.result(*op).expect("completed at the next poll");
            assert!(matches!(result, Ok(()) | Err(Failure::Fenced)), "{result:?}");
        }
        assert_eq!(a.result(accepted[accepted.len() - 1]), Some(Err(Failure::Fenced)));
        assert!(!a.heard.0.contains(&Heard::Lost(to)), "cut off by this side, not lost");

        // b continues, and nothing that it sends reaches a.
        let heard = a.heard.0.len();
        for _ in 0..20_000 {
            a.poll();
            b.poll();
        }
        assert_eq!(a.heard.0[heard..], []);
        assert!(
            bytes_of(&target).iter().all(|byte| [0xcc, 0xbb].contains(byte)),
            "never what was written after the fence"
        );

        // After the fence, the same address is resolved to another peer, which is reached over a new connection.
        let again = a.peer(&b);
        assert_ne!(again, to);
        let before = b.packets().len();
        post(&mut a, &mut b, |port| port.send(again, b"anew", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| b.packets().len() > before);
        assert_eq!(b.packets().last(), Some(&&b"anew"[..]));
    });
}

#[test]
fn after_a_fence_the_peer_writes_no_more() {
    with_cleanup("ofi::tests::after_a_fence_the_peer_writes_no_more", || {
        let (mut a, mut b) = (Node::open(1), Node::open(2));
        let (to_b, to_a) = (a.peer(&b), b.peer(&a));
        let len = 16 << 20;
        let (_source, from) = a.region(vec![0xbb; len], Access::LOCAL_READ);
        let (target, remote) = b.region(vec![0xcc; len], Access::REMOTE_WRITE);
        post(&mut a, &mut b, |port| port.send(to_b, b"hello", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| !b.heard.0.is_empty());
        assert_eq!(a.port.put_imm(to_b, from.local(0, len), remote.remote(0), 1, OpId(1)), Ok(Post::Done));
        pump(&mut a, &mut b, "the first bytes", |_, _| bytes_of(&target)[0] == 0xbb);
        assert_eq!(bytes_of(&target)[len - 1], 0xcc, "the put is half done");

        b.port.fence_peer(to_a);
        b.port.deregister(remote);
        if !b.port.caps().fence {
            target.reclaim().expect_err("the put goes on");
            return;
        }
        let mut target = target.reclaim().expect("let go of at once");
        target.as_bytes_mut().fill(0xdd);
        for _ in 0..20_000 {
            a.poll();
            b.poll();
        }
        assert!(target.as_bytes().iter().all(|&byte| byte == 0xdd));
        assert_eq!(a.result(1), Some(Err(Failure::PeerLost)));
        assert!(a.heard.0.contains(&Heard::Lost(to_b)) && a.heard.0.len() == 2, "{:?}", a.heard);
    });
}

#[test]
fn a_peer_that_cannot_be_fenced_off_keeps_only_the_memory_that_it_knew() {
    let (mut a, b, c) = (Node::open(1), Node::open(2), Node::open(3));
    let fence = a.port.caps().fence;
    let [to_b, to_c] = [&b, &c].map(|other| a.peer(other));
    let mut register = |peer, access| {
        let region = Region::new(Memory::zeroed(100));
        let registration = a.port.register(peer, &region, access).expect("host memory");
        (region, registration)
    };
    let for_b = [Access::REMOTE_WRITE, Access::REMOTE_READ].map(|access| register(to_b, access));
    let others = [register(to_b, Access::LOCAL_READ), register(to_c, Access::REMOTE_WRITE)];
    let for_all = a.region(vec![0; 100], Access::REMOTE_WRITE);
    a.port.fence_peer(to_b);
    let mut is_released = |(region, registration): (Region, Registration)| {
        a.port.deregister(registration);
        region.reclaim().is_ok()
    };
    assert_eq!(for_b.map(&mut is_released), [fence; 2]);
    assert_eq!(others.map(&mut is_released), [true; 2]);
    assert_eq!(is_released(for_all), fence, "any peer may have its key");
}

#[test]
fn a_fence_is_safe_whatever_the_connection_is_about() {
    with_cleanup("ofi::tests::a_fence_is_safe_whatever_the_connection_is_about", || {
        let mut a = Node::open(1);
        // Without a fence, the port may accept a post before there is a connection.
        let fence = a.port.caps().fence;
        // Fences a peer in several states: its path was never used; the connection is being made while the peer is
        // stopped; the peer refused the connection; only the peer has used it; and the peer was fenced before.
        let mut b = Node::open(2);
        let unused = a.peer(&b);
        a.port.fence_peer(unused);
        let connecting = a.peer(&b);
        let posted = a.port.send(connecting, b"x", &[]);
        assert!(posted == Ok(Post::Again) || !fence, "{posted:?}");
        a.port.fence_peer(connecting);
        a.port.fence_peer(connecting);

        let refused = a.peer(&b);
        drop(std::mem::replace(&mut b, Node::open(3)));
        for _ in 0..1000 {
            let posted = a.port.send(refused, b"x", &[]);
            assert!(posted == Ok(Post::Again) || !fence, "refused is again, for ever: {posted:?}");
            a.poll();
        }
        a.port.fence_peer(refused);

        let to_a = b.peer(&a);
        post(&mut b, &mut a, |port| port.send(to_a, b"hello", &[]));
        pump(&mut a, &mut b, "the packet", |a, _| !a.heard.0.is_empty());
        let to_b = a.peer(&b);
        a.port.fence_peer(to_b);
        for _ in 0..1000 {
            a.poll();
            b.poll();
        }
        // The two ends fence each other at the same time, while each connects to the other.
        let (to_b, to_a) = (a.peer(&b), b.peer(&a));
        for _ in 0..50 {
            let _ = (a.port.send(to_b, b"x", &[]), b.port.send(to_a, b"x", &[]));
        }
        a.port.fence_peer(to_b);
        b.port.fence_peer(to_a);
        let to_b = a.peer(&b);
        let before = b.packets().len();
        post(&mut a, &mut b, |port| port.send(to_b, b"still there", &[]));
        pump(&mut a, &mut b, "the packet", |_, b| b.packets()[before..].contains(&&b"still there"[..]));
    });
}

#[test]
fn misuse_is_an_error() {
    let (mut a, b) = (Node::open(1), Node::open(2));
    let to = a.peer(&b);
    assert_eq!(a.peer(&b), to, "one peer at one address");
    let (_region, here) = a.region(vec![0; 100], Access::LOCAL_READ);
    let there = Remote { key: 0, address: 0 };
    let caps = a.port.caps().clone();
    let port = &mut a.port;

    let (len, max) = (caps.packet_max + 1, caps.packet_max);
    assert_eq!(port.send(to, &vec![0; len], &[]), Err(PortError::TooLong { len, max }));
    if caps.zcopy_max > 0 {
        assert_eq!(
            port.send_zcopy(to, &vec![0; len], here.local(0, 0), OpId(0)),
            Err(PortError::TooLong { len, max })
        );
    }
    let huge = caps.rma_max + 1;
    assert_eq!(
        port.put(to, here.local(0, huge), there, OpId(0)),
        Err(PortError::TooLong { len: huge, max: huge - 1 })
    );
    for (offset, len) in [(0, 101), (100, 1), (usize::MAX, 2)] {
        let error = Err(PortError::OutOfBounds { offset, len });
        assert_eq!(port.put(to, here.local(offset, len), there, OpId(0)), error);
    }
    assert!(
        matches!(port.get(to, here.local(0, 1), there, OpId(0)), Err(PortError::Unsupported { .. })),
        "read only"
    );
    let stale = Registration { key: here.key ^ 1, ..here };
    assert_eq!(
        port.put(to, stale.local(0, 1), there, OpId(0)),
        Err(PortError::OutOfBounds { offset: 0, len: 1 })
    );
    assert_eq!(port.send(PeerId(77), b"", b""), Err(PortError::PeerGone(PeerId(77))));

    let good = b.port.address().0;
    for bad in [vec![], good[1..].to_vec(), [&good[..], &[0]].concat(), [&[1], &good[1..]].concat()] {
        assert!(matches!(port.resolve(&Address(bad)), Err(PortError::BadAddress { .. })));
    }
    port.deregister(here);
    port.deregister(here);
    port.fence_peer(PeerId(77));
}

#[test]
fn peers_are_limited() {
    let (mut a, b, c) = (Node::with(OfiConfig { peers_max: 1, ..config() }), Node::open(2), Node::open(3));
    let _ = a.peer(&b);
    assert!(matches!(a.port.resolve(&c.port.address()), Err(PortError::Exhausted { what: "peers", .. })));
}

#[test]
fn operations_are_limited() {
    let (mut a, mut b) = (Node::with(OfiConfig { operations_max: 3, ..config() }), Node::open(2));
    let to = a.peer(&b);
    let (_region, from) = a.region(pattern(3000, 1), Access::LOCAL_READ);
    let (_target, remote) = b.region(vec![0; 3000], Access::REMOTE_WRITE);
    let put = |op| move |port: &mut OfiPort| port.put(to, from.local(0, 3000), remote.remote(0), OpId(op));
    post(&mut a, &mut b, put(0));
    // Operation 0 was posted before. So the last of these three posts, or an earlier one, exceeds a limit of the
    // configuration or of the provider.
    let posts = [1, 2, 3].map(|op| put(op)(&mut a.port).expect("accepted, or no room"));
    assert_eq!(posts[2], Post::Again);
    let rest = (1..4).zip(posts).filter(|(_, posted)| *posted == Post::Again);
    rest.for_each(|(op, _)| post(&mut a, &mut b, put(op)));
    pump(&mut a, &mut b, "all puts", |a, _| (0..4).all(|op| a.result(op) == Some(Ok(()))));
}

#[test]
fn what_cannot_be_opened_says_why_and_what_to_do() {
    let said = |config: OfiConfig| OfiPort::open(&config).expect_err("cannot be opened").to_string();
    let provider = said(OfiConfig { provider: "no-such-provider".into(), ..config() });
    assert!(
        provider.contains("no provider `no-such-provider`") && provider.contains("fi_info"),
        "{provider}"
    );
    let interface = said(OfiConfig { interface: Some("no-such-interface".into()), ..config() });
    assert!(
        interface.contains("no interface or address `no-such-interface`")
            && interface.contains("choose one of"),
        "{interface}"
    );
    let packets = said(OfiConfig { packet_max: 511, ..config() });
    assert!(packets.contains("512"), "{packets}");
    assert!(said(OfiConfig { send_buffers: 0, ..config() }).contains("without buffers"));
    for config in [
        OfiConfig { packet_max: usize::MAX, ..config() },
        OfiConfig { receive_buffers: u32::MAX, ..config() },
        OfiConfig { operations_max: usize::MAX, ..config() },
    ] {
        assert!(said(config).contains("over a million"));
    }
}

#[test]
fn an_interface_is_found_by_name_and_by_address() {
    let provider = config().provider;
    let (interfaces, get): (&[&str], _) = match provider.as_str() {
        "tcp;ofi_rxm" | "tcp" | "net" => (&["lo", "127.0.0.1"], Reach::None),
        "sockets" => (&["lo", "127.0.0.1"], Reach::Any),
        "shm" => (&["shm"], Reach::Any),
        _ => panic!("what {provider} can do is not known here"),
    };
    for interface in interfaces {
        let node = Node::with(OfiConfig { interface: Some((*interface).into()), ..config() });
        let caps = node.port.caps();
        if let Some(rules) = config().rules {
            assert_eq!((&caps.name, caps.get), (&rules.provider, get));
            assert!(caps.short_max <= rules.inject_size && (caps.zcopy_max == 0 || rules.iov_limit > 1));
            continue;
        }
        // This process has threads, so it has not set the variable that permits longer packets to rxm.
        let packet_max = if ["tcp", "net"].contains(&&*provider) { PACKET_MAX } else { 16 << 10 };
        let expected = Caps {
            name: provider.clone(),
            packet_max,
            fragment_max: packet_max,
            zcopy_max: packet_max,
            immediate_bits: 64,
            put: Reach::Any,
            get,
            change: Reach::None,
            passive: false,
            fence: caps.fence && provider == "tcp;ofi_rxm",
            ..caps.clone()
        };
        assert_eq!(*caps, expected);
        assert!(caps.order.contains(crate::Order::SEND_AFTER_SEND), "{caps:?}");
        assert_eq!(caps.order.contains(crate::Order::SEND_AFTER_PUT), provider != "shm", "{caps:?}");
    }
}

#[test]
fn an_address_is_of_this_provider_and_whole() {
    let (mut a, b) = (Node::open(1), Node::open(2));
    let good = b.port.address().0;
    let others: [&[u8]; 4] =
        [&good[..FORMAT_LEN], &good[..good.len() - 1], &[&good[..], b"\0"].concat(), b""];
    for address in others {
        let error = a.port.resolve(&Address(address.to_vec())).expect_err("not an address");
        assert!(matches!(error, PortError::BadAddress { .. }), "{error}");
    }
}

#[test]
fn an_address_with_another_limit_names_the_fix() {
    let (mut a, b) = (Node::open(1), Node::open(2));
    // Any difference counts, because rxm compares the limits in bytes.
    for byte in 2..6 {
        let mut other = b.port.address().0;
        other[byte] ^= 1;
        let error = a.port.resolve(&Address(other)).expect_err("rxm would reject the connection").to_string();
        assert!(error.contains("set FI_OFI_RXM_EAGER_LIMIT=16384 for all ranks"), "{error}");
    }
}

#[test]
fn no_library_catches_the_signals_that_end_a_process() {
    let _node = Node::open(1);
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux process");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a line of that name");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("hexadecimal");
    // The shm provider unlinks its files in its signal handlers, and then calls the handlers that were there before.
    let passed_on: &[_] = if config().provider == "shm" { &[libc::SIGINT, libc::SIGTERM] } else { &[] };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGABRT, libc::SIGILL] {
        assert_eq!(caught >> (signal - 1) & 1 == 1, passed_on.contains(&signal), "signal {signal}");
    }
}
