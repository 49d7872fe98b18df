//! Slabs: registered memory through which the bytes of borrowed buffers are copied, and which serves one message after
//! the other. The ports of the simulated network have puts and no gets.

use samite_fabric::Reach;
use samite_fabric::sim::{Config as SimConfig, Net, What};
use samite_p2p::{Config, Time, Usage, WorldRank};

use crate::Simulated;
use crate::job::{Borrowed, Job, NEVER, Op, Owned, Whose, bytes, exact, killed};

const LEN: usize = 100_000;
const CHUNK: usize = 10_000;
/// The time of a registration, which is longer than that of a message.
const REGISTRATION_NS: u64 = 1_000_000;

/// Three ranks with puts of at most [`CHUNK`] bytes, two of one message at a time, and at most `slabs` slabs each.
fn trio(slabs: usize) -> (Job<Simulated>, Net) {
    limited(slabs, usize::MAX)
}

/// Three ranks like those of [`trio`], whose ports permit `registrations` registrations.
fn limited(slabs: usize, registrations: usize) -> (Job<Simulated>, Net) {
    let mut sim = SimConfig { registrations_max: registrations, ..SimConfig::default() };
    sim.costs.registration_ns = REGISTRATION_NS;
    (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
    let net = Net::new(9, sim);
    let mut config = Config::default();
    (config.put_min, config.put_chunk, config.put_depth) = (20_000, CHUNK, 2);
    config.registered_max = slabs * CHUNK;
    (Job::new(Simulated(net.clone()), 3, &config), net)
}

/// Begins to move a message. Returns its receive and its send.
fn begin(job: &mut Job<Simulated>, [from, to]: [usize; 2], whose: Whose) -> [Op; 2] {
    let recv = job.recv_as(to, exact(from as u32, 5), LEN, whose, NEVER);
    [recv, job.send_as(from, to as u32, 0, 5, &bytes(from, LEN), whose, NEVER)]
}

/// Polls until a message has arrived, and checks the budget after each poll.
fn finish(job: &mut Job<Simulated>, from: usize, [recv, send]: [Op; 2]) {
    job.poll_until(|job| {
        let max = job.engine(1).config().registered_max as u64;
        let within = |usage: &Usage| usage.registered_used <= usage.registered && usage.registered <= max;
        assert!(job.usages().iter().all(within), "{:?}", job.usages());
        job.is_over(&recv) && job.is_over(&send)
    });
    assert!(job.wait(recv).message() == bytes(from, LEN));
    assert!(job.wait(send).result.is_ok());
}

fn exchange(job: &mut Job<Simulated>, ranks: [usize; 2], whose: Whose) {
    let ops = begin(job, ranks, whose);
    finish(job, ranks[0], ops);
}

fn registrations(job: &mut Job<Simulated>) -> Vec<u64> {
    (0..3).map(|rank| job.engine(rank).counters().registrations).collect()
}

/// Returns the number of puts since the last call.
fn puts(net: &Net) -> usize {
    net.take_trace().iter().filter(|event| matches!(event.what, What::Put { .. })).count()
}

#[test]
fn a_message_uses_the_slabs_of_earlier_messages() {
    let (mut job, _) = trio(100);
    assert!(
        job.usages().iter().all(|usage| usage.registrations == 0),
        "there are none before the first message"
    );
    let began = job.now();
    for _ in 0..100 {
        exchange(&mut job, [0, 1], Borrowed);
    }
    assert!(job.now().since(began) < 10 * REGISTRATION_NS, "less than a registration for each message");
    job.assert_at_rest();
    assert_eq!(registrations(&mut job), [2, 2, 0]);
    for rank in [0, 1] {
        let usage = &job.usages()[rank];
        assert_eq!((usage.registrations, usage.registered, usage.registered_used), (2, 2 * CHUNK as u64, 0));
        assert_eq!(job.engine(rank).port().registrations(), 2);
    }
}

/// Owned memory of any length is put at once. A slab of that length would not fit in the cache, or not in memory.
#[test]
fn slabs_are_short_even_if_a_put_may_be_long() {
    const LONG: usize = 1 << 20;
    const SLAB: usize = 256 << 10;
    for whose in [Borrowed, Owned] {
        let mut sim = SimConfig::default();
        (sim.caps.get, sim.caps.change, sim.caps.rma_max) = (Reach::None, Reach::None, 1 << 60);
        let net = Net::new(9, sim);
        let mut config = Config::default();
        (config.put_chunk, config.registered_max) = (1 << 60, usize::MAX);
        let mut job = Job::new(Simulated(net.clone()), 2, &config);
        net.record();
        let recv = job.recv_as(1, exact(0, 5), LONG, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), whose, NEVER);
        assert!(job.wait(recv).message() == bytes(1, LONG) && job.wait(send).result.is_ok());
        job.assert_at_rest();
        let (count, slabs) = if whose == Borrowed { (LONG / SLAB, config.put_depth) } else { (1, 0) };
        assert_eq!(puts(&net), count, "{whose:?}");
        assert!(job.usages().iter().all(|usage| usage.registered <= (slabs * SLAB) as u64), "{whose:?}");
    }
}

#[test]
fn no_sender_gets_the_key_of_another_senders_slab() {
    let (mut job, _) = trio(100);
    for from in [0, 2, 0, 2] {
        exchange(&mut job, [from, 1], Borrowed);
    }
    // A slab that only its owner accesses serves all receivers.
    exchange(&mut job, [0, 2], Borrowed);
    assert_eq!(registrations(&mut job), [2, 4, 4]);
}

#[test]
fn the_slabs_that_were_not_used_for_the_longest_time_make_room_for_others() {
    let (mut job, net) = trio(3);
    net.record();
    for from in [0, 0, 2, 2, 0] {
        exchange(&mut job, [from, 1], Borrowed);
    }
    assert_eq!(puts(&net), 50, "all messages were put");
    // The first message of rank 2 freed one of the two slabs of rank 0, and the last message one of rank 2.
    assert_eq!(registrations(&mut job), [2, 2 + 2 + 1, 2]);
    assert_eq!(job.usages()[1].registrations, 3);
}

#[test]
fn messages_beyond_the_budget_travel_in_packets() {
    let (mut job, net) = trio(2);
    // The receiver's buffers are not lent, so it keeps its slabs, and each sender stops after two puts.
    job.withhold(1, true);
    let first = begin(&mut job, [0, 1], Borrowed);
    job.poll_until(|job| job.usages()[1].registered_used == 2 * CHUNK as u64);
    net.record();
    let second = begin(&mut job, [2, 1], Borrowed);
    job.settle();
    assert_eq!(job.usages()[1].registrations, 2);
    job.withhold(1, false);
    finish(&mut job, 2, second);
    finish(&mut job, 0, first);
    assert!(puts(&net) <= 10, "only the first message was put");
    job.assert_at_rest();
    assert_eq!(registrations(&mut job), [2, 2, 0]);
}

#[test]
fn without_a_budget_only_owned_buffers_are_put() {
    let (mut job, net) = trio(0);
    net.record();
    exchange(&mut job, [0, 1], Borrowed);
    assert_eq!(puts(&net), 0);
    exchange(&mut job, [0, 1], Owned);
    assert_eq!(puts(&net), 10);
    assert!(job.usages().iter().all(|usage| usage.registrations == 0));
    assert!((0..3).all(|rank| job.engine(rank).port().registrations() == 0));
}

#[test]
fn idle_slabs_make_room_for_other_registrations() {
    let (mut job, net) = limited(100, 2);
    exchange(&mut job, [0, 1], Borrowed);
    assert_eq!(job.usages()[1].registrations, 2);
    net.record();
    exchange(&mut job, [0, 1], Owned);
    exchange(&mut job, [2, 1], Borrowed);
    assert_eq!(puts(&net), 20);
    job.assert_at_rest();
}

#[test]
fn the_slabs_of_a_peer_that_ends_are_freed() {
    for leaves in [false, true] {
        let (mut job, _) = trio(100);
        for from in [0, 2] {
            exchange(&mut job, [from, 1], Borrowed);
        }
        if leaves {
            job.leave(0);
        } else {
            job.engine(1).peer_failed(WorldRank(0), None, killed()).expect("a rank of the job");
            job.kill(0);
        }
        job.settle();
        let usage = job.engine(1).usage();
        assert_eq!((usage.registrations, usage.quarantined), (2, 0), "those for rank 2 are kept");
        assert_eq!(job.engine(1).port().registrations(), 2);
        exchange(&mut job, [2, 1], Borrowed);
    }
}

/// The time is that of the sender's link, which the chunks and the short message share.
#[test]
fn a_short_message_passes_between_the_chunks_of_a_long_one() {
    const LONG: usize = 16 << 20;
    let mut sim = SimConfig::default();
    (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
    for (whose, chunk) in [(Owned, Config::default().put_chunk), (Borrowed, 256 << 10)] {
        let chunk_ns = chunk as u64 * sim.costs.gap_per_byte_ps / 1000;
        let net = Net::new(10, sim.clone());
        let mut job = Job::new(Simulated(net.clone()), 2, &Config::default());
        let long = vec![7; LONG];
        let recv = job.recv_as(1, exact(0, 5), LONG, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &long, whose, NEVER);
        let mut longest = 0;
        while !job.is_over(&recv) {
            // Lets part of a chunk pass, so that the messages come at different points of a chunk.
            let then = job.now().after(chunk_ns * 3 / 7);
            job.poll_until(|job| job.now() >= then);
            let began = job.now();
            let short = [job.recv(1, exact(0, 6), 8), job.send(0, 1, 6, b"8 bytes!")];
            job.poll_until(|job| job.is_over(&short[0]));
            longest = longest.max(job.now().since(began));
            short.into_iter().for_each(|op| assert!(job.wait(op).result.is_ok()));
        }
        assert!(job.wait(recv).message() == long && job.wait(send).result.is_ok());
        assert!(longest <= 3 * chunk_ns, "{whose:?}: {longest} ns, and a chunk takes {chunk_ns} ns");
        assert!(job.now() > Time::from_nanos(LONG as u64 / 20), "the link was busy all the time");
    }
}
