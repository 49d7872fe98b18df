//! Long messages that the sender puts into the receiver's memory, over a simulated port that has puts and no gets. The
//! cases of the other files run over such ports too; here is what only puts can do wrong.

use samite_fabric::Reach;
use samite_fabric::sim::{Config as SimConfig, Net, What};
use samite_p2p::{Config, Error, Fate, WorldRank};

use crate::Simulated;
use crate::job::{Borrowed, Job, NEVER, Owned, Whose, bytes, exact, killed};

const LEN: usize = 100_000;

/// Three ranks, with puts of at most 10,000 bytes, two of one message at a time.
fn trio(keeps_order: bool) -> (Job<Simulated>, Net) {
    let medium = Simulated::puts(keeps_order);
    let net = medium.0.clone();
    (Job::new(medium, 3, &config()), net)
}

fn config() -> Config {
    let mut config = Config::default();
    (config.put_min, config.put_chunk, config.put_depth) = (20_000, 10_000, 2);
    config
}

/// Returns the number of puts and of packets in the trace.
fn posted(net: &Net) -> (usize, usize) {
    let trace = net.take_trace();
    let count = |is_one: fn(&What) -> bool| trace.iter().filter(|event| is_one(&event.what)).count();
    (count(|what| matches!(what, What::Put { .. })), count(|what| matches!(what, What::Sent { .. })))
}

#[test]
fn long_messages_are_put_and_few_packets_are_sent() {
    for (keeps_order, whose) in [(true, Owned), (true, Borrowed), (false, Owned), (false, Borrowed)] {
        let (mut job, net) = trio(keeps_order);
        // The ranks meet first.
        let hello = (job.recv(1, exact(0, 4), 1), job.send(0, 1, 4, b"x"));
        assert!(job.wait(hello.0).result.is_ok() && job.wait(hello.1).result.is_ok());
        job.settle();
        net.record();
        let recv = job.recv_as(1, exact(0, 5), LEN + 7, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
        assert!(job.wait(recv).bytes.unwrap()[..LEN] == bytes(1, LEN));
        assert!(job.wait(send).result.is_ok());
        let (puts, packets) = posted(&net);
        assert_eq!(puts, 10, "{keeps_order} {whose:?}");
        // RTS, a PLACE for the message or for each put, and at most one LANDED for each put.
        assert!(packets <= 21, "{keeps_order} {whose:?}: {packets}");
        job.assert_at_rest();
    }
}

/// Between LANDED and LANDED the receiver's port has no events, so the receiver rests longer and longer.
#[test]
fn a_receiver_hears_of_slow_puts_every_10_ms() {
    let medium = Simulated::slow_puts(true, 6_000_000);
    let net = medium.0.clone();
    let mut job = Job::new(medium, 2, &config());
    let hello = (job.recv(1, exact(0, 4), 1), job.send(0, 1, 4, b"x"));
    assert!(job.wait(hello.0).result.is_ok() && job.wait(hello.1).result.is_ok());
    job.settle();
    net.record();
    let begun = job.now();
    const LONG: usize = 5 * LEN;
    let recv = job.recv_as(1, exact(0, 5), LONG, Owned, NEVER);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LONG), Owned, NEVER);
    assert!(job.wait(recv).message() == bytes(1, LONG) && job.wait(send).result.is_ok());
    let took_ms = job.now().since(begun) / 1_000_000;
    let trace = net.take_trace();
    let of_sender =
        trace.iter().filter(|event| matches!(event.what, What::Sent { from, .. } if from.rank == 0));
    // RTS, and LANDED: at the end, and before at most every 10 ms, whenever a put has completed.
    let packets = of_sender.count() as u64;
    assert!((took_ms / 16..=took_ms / 10 + 2).contains(&packets) && packets > 4, "{packets} in {took_ms} ms");
    job.assert_at_rest();
}

/// Otherwise the receiver would copy nothing to its buffer until all slabs are full.
#[test]
fn a_receiver_learns_of_each_full_slab_before_the_next_one_is_written() {
    let (mut job, net) = trio(true);
    let hello = (job.recv(1, exact(0, 4), 1), job.send(0, 1, 4, b"x"));
    assert!(job.wait(hello.0).result.is_ok() && job.wait(hello.1).result.is_ok());
    job.settle();
    net.record();
    let recv = job.recv_as(1, exact(0, 5), LEN, Borrowed, NEVER);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), Borrowed, NEVER);
    assert!(job.wait(recv).message() == bytes(1, LEN) && job.wait(send).result.is_ok());
    let trace = net.take_trace();
    let is_put = trace.iter().filter_map(|event| match event.what {
        What::Put { .. } => Some(true),
        What::Sent { from, .. } if from.rank == 0 => Some(false),
        _ => None,
    });
    let is_put: Vec<_> = is_put.collect();
    assert_eq!(is_put.iter().filter(|is_put| **is_put).count(), 10);
    assert!(is_put.windows(2).all(|pair| pair != [true, true]), "{is_put:?}");
}

/// Begins to move a message of which the sender stops in the middle.
fn stop_amid_puts(job: &mut Job<Simulated>, net: &Net, whose: Whose) -> [crate::job::Op; 2] {
    let recv = job.recv_as(1, exact(0, 5), LEN, whose, NEVER);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
    job.poll_until(|job| job.usages()[0].operations > 0);
    net.pause(0);
    [send, recv]
}

#[test]
fn a_receive_ends_at_its_deadline_and_its_memory_stays_until_the_sender_has_stopped() {
    for (keeps_order, whose) in [(true, Owned), (true, Borrowed), (false, Owned), (false, Borrowed)] {
        let (mut job, net) = trio(keeps_order);
        let [send, recv] = stop_amid_puts(&mut job, &net, whose);
        job.hurry(&recv);
        let done = job.wait(recv);
        assert!(
            matches!(done.result, Err(Error::TimedOut { fate: Fate::NotDelivered, .. })),
            "{:?}",
            done.result
        );
        assert!(whose == Borrowed || done.bytes.is_none(), "puts may still reach it");
        assert_eq!(job.usages()[1].requests, 1, "the memory is kept");
        net.resume(0);
        assert!(matches!(
            job.wait(send).error(),
            Error::Abandoned { rank: WorldRank(1), fate: Fate::NotDelivered }
        ));
        job.assert_at_rest();
        // Both go on with each other.
        let pair = (
            job.recv_as(1, exact(0, 6), LEN, whose, NEVER),
            job.send_as(0, 1, 0, 6, &bytes(2, LEN), whose, NEVER),
        );
        assert!(job.wait(pair.0).message() == bytes(2, LEN));
        assert!(job.wait(pair.1).result.is_ok());
        job.assert_at_rest();
    }
}

#[test]
fn a_send_that_ends_amid_puts_ends_the_receive_and_not_the_peer() {
    for (keeps_order, whose) in [(true, Owned), (true, Borrowed), (false, Owned), (false, Borrowed)] {
        let (mut job, net) = trio(keeps_order);
        let recv = job.recv_as(1, exact(0, 5), LEN, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
        job.poll_until(|job| job.usages()[0].operations > 0);
        net.pause(1);
        job.cancel(&send);
        assert!(job.is_over(&send), "a send ends at once");
        let done = job.wait(send);
        assert!(
            matches!(done.result, Err(Error::Cancelled { fate: Fate::NotDelivered })),
            "{:?}",
            done.result
        );
        net.resume(1);
        assert!(matches!(
            job.wait(recv).error(),
            Error::Abandoned { rank: WorldRank(0), fate: Fate::NotDelivered }
        ));
        job.assert_at_rest();
    }
}

#[test]
fn the_death_of_either_side_amid_puts_leaves_nothing_behind() {
    for (victim, whose) in [(0, Owned), (0, Borrowed), (1, Owned), (1, Borrowed)] {
        let (mut job, net) = trio(true);
        let [send, recv] = stop_amid_puts(&mut job, &net, whose);
        net.resume(0);
        let survivor = if victim == 0 { recv } else { send };
        job.engine(1 - victim)
            .peer_failed(WorldRank(victim as u32), None, killed())
            .expect("a rank of the job");
        job.kill(victim as u32);
        assert!(matches!(job.wait(survivor).error(), Error::PeerFailed { .. }));
        job.settle();
        let usage = &job.usages()[1 - victim];
        assert_eq!((usage.requests, usage.operations, usage.quarantined), (0, 0, 0), "{victim} {whose:?}");
    }
}

/// The receiver leaves when it has the message, before its sender has learned that the last put has ended.
#[test]
fn a_message_that_was_put_is_sent_though_its_receiver_leaves_at_once() {
    for whose in [Owned, Borrowed] {
        let (mut job, _) = trio(true);
        let recv = job.recv_as(1, exact(0, 5), LEN, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
        job.poll_until(|job| job.is_over(&recv));
        assert!(!job.is_over(&send), "the end of its last puts is under way");
        assert!(job.wait(recv).message() == bytes(1, LEN));
        job.leave(1);
        assert!(job.wait(send).result.is_ok());
    }
}

/// A message is sent while one of its two ranks has all the registrations that its port permits. The limit falls on the
/// sender or on the receiver, and the message would travel by a get or by puts.
#[test]
fn a_message_whose_memory_cannot_be_registered_travels_in_packets() {
    for (limited, has_gets, whose) in [0, 1].into_iter().flat_map(|limited| {
        [(true, Owned), (true, Borrowed), (false, Owned), (false, Borrowed)]
            .map(|(has_gets, whose)| (limited, has_gets, whose))
    }) {
        let mut sim = SimConfig { registrations_max: 1, ..SimConfig::default() };
        if !has_gets {
            (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
        }
        let net = Net::new(7, sim);
        let mut job = Job::new(Simulated(net.clone()), 3, &config());
        // The registration is for a message whose other rank stops.
        let busy = match has_gets {
            true => job.send(limited, 2, 6, &bytes(2, LEN)),
            false => job.recv(limited, exact(2, 6), LEN),
        };
        let other = (!has_gets).then(|| job.send(2, limited as u32, 6, &bytes(2, LEN)));
        job.poll_until(|job| job.engine(limited).port().registrations() == 1);
        net.pause(2);
        net.record();
        let recv = job.recv_as(1, exact(0, 5), LEN, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
        let done = (job.wait(recv), job.wait(send));
        assert!(done.0.message() == bytes(1, LEN) && done.1.bytes == Some(bytes(1, LEN)));
        assert_eq!(done.1.result.map(|status| status.bytes), Ok(LEN), "{limited} {has_gets} {whose:?}");
        let one_sided = |what: &What| matches!(what, What::Put { .. } | What::Got { .. });
        assert!(
            !net.take_trace().iter().any(|event| one_sided(&event.what)),
            "{limited} {has_gets} {whose:?}"
        );
        assert_eq!(job.engine(limited).port().registrations(), 1);
        net.resume(2);
        let other = other.unwrap_or_else(|| job.recv(2, exact(limited as u32, 6), LEN));
        assert!(job.wait(busy).result.is_ok() && job.wait(other).result.is_ok());
        job.assert_at_rest();
    }
}

/// The sender cannot register its memory, and one of the two ranks gives the message up before the receiver has
/// requested packets.
#[test]
fn a_message_that_is_given_up_before_its_packets_leaves_nothing_behind() {
    for (quitter, whose) in [(0, Owned), (0, Borrowed), (1, Owned), (1, Borrowed)] {
        let mut sim = SimConfig { registrations_max: 1, ..SimConfig::default() };
        (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
        let net = Net::new(8, sim);
        let mut job = Job::new(Simulated(net.clone()), 3, &config());
        let busy = [job.recv(0, exact(2, 6), LEN), job.send(2, 0, 6, &bytes(2, LEN))];
        job.poll_until(|job| job.engine(0).port().registrations() == 1);
        net.pause(2);
        let recv = job.recv_as(1, exact(0, 5), LEN, whose, NEVER);
        let send = job.send_as(0, 1, 0, 5, &bytes(1, LEN), whose, NEVER);
        job.poll_until(|job| job.engine(1).port().registrations() == 1);
        net.pause(1);
        // The sender receives the places of the first bytes, and answers that it cannot put them.
        job.poll_alone(0, |_| false);
        let (own, now) = (if quitter == 0 { send.id } else { recv.id }, job.now());
        job.engine(quitter).set_deadline(own.expect("it is under way"), now);
        job.poll_alone(quitter, |_| false);
        net.resume(1);
        net.resume(2);
        let (sent, received) = (job.wait(send), job.wait(recv));
        let (own, other) =
            if quitter == 0 { (&sent.result, &received.result) } else { (&received.result, &sent.result) };
        assert!(matches!(own, Err(Error::TimedOut { .. })), "{quitter} {whose:?}: {own:?}");
        assert!(matches!(other, Err(Error::Abandoned { .. })), "{quitter} {whose:?}: {other:?}");
        assert!(sent.bytes.is_none_or(|sent| sent == bytes(1, LEN)));
        for op in busy {
            assert!(job.wait(op).result.is_ok());
        }
        job.assert_at_rest();
    }
}
