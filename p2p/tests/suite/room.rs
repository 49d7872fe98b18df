//! Ports that have no room for another peer: operations with the peer return an error, and the peer has not failed.

use samite_fabric::Port;
use samite_fabric::sim::{Config as SimConfig, Net};
use samite_p2p::{Config, Error, Pattern, WorldRank};

use crate::Simulated;
use crate::job::{Done, INCARNATION, Job, NEVER, Op, Owned, bytes, exact, killed};

/// Waits until an operation of rank 0 has ended. Whenever rank 0 asks for the address of rank 2, provides it.
fn ended(job: &mut Job<Simulated>, op: Op) -> Done {
    let address = job.engine(2).port().address();
    job.poll_until(|job| {
        let wanted: Vec<WorldRank> = job.engine(0).wanted().collect();
        for rank in wanted {
            assert_eq!(rank, WorldRank(2));
            job.engine(0).introduce(WorldRank(rank.0), INCARNATION, address.clone()).unwrap();
        }
        job.is_over(&op)
    });
    job.wait(op)
}

/// A configuration without an outbox, with which a send waits until the port has room for the receiver.
fn without_outbox() -> Config {
    let mut config = Config::default();
    config.outbox_max = 0;
    config
}

#[test]
fn a_peer_that_the_port_has_no_room_for_has_not_failed() {
    let mut network = SimConfig::default();
    // There is room for two peers: rank 0 itself, and rank 1.
    network.caps.peers_max = 2;
    let mut job = Job::new(Simulated(Net::new(5, network)), 3, &without_outbox());
    let both_ways = |job: &mut Job<Simulated>, to: u32| {
        for len in [3, 200_000] {
            let recv = job.recv(to as usize, exact(0, 5), len);
            let send = job.send(0, to, 5, &bytes(1, len));
            assert_eq!(ended(job, recv).message(), bytes(1, len));
            assert!(ended(job, send).result.is_ok());
        }
    };
    both_ways(&mut job, 1);
    for len in [3, 200_000, 3] {
        let recv = job.recv_as(0, exact(2, 5), 10, Owned, NEVER);
        let send = job.send(0, 2, 5, &bytes(1, len));
        let error = ended(&mut job, send).error();
        assert!(matches!(&error, Error::Exhausted { what: "peers", .. }), "{error:?}");
        assert!(matches!(ended(&mut job, recv).error(), Error::Exhausted { .. }), "nothing can come");
    }
    assert_eq!((job.engine(0).failure(WorldRank(2)), job.engine(0).counters().failed_peers), (None, 0));
    both_ways(&mut job, 1);
    // A failed peer makes room for another peer.
    job.engine(0).peer_failed(WorldRank(1), None, killed()).unwrap();
    both_ways(&mut job, 2);
}

#[test]
fn a_peer_that_had_no_room_answers_once_it_has() {
    let mut network = SimConfig::default();
    network.caps.peers_max = 2;
    let mut job = Job::new(Simulated(Net::new(5, network)), 3, &without_outbox());
    // The port of rank 1 has room for two peers, which are ranks 0 and 1.
    let send = job.send(2, 1, 5, &bytes(1, 3));
    job.settle();
    assert!(!job.is_over(&send), "it has no answer");
    let recv = job.recv(1, exact(2, 5), 3);
    assert!(matches!(job.wait(recv).error(), Error::Exhausted { what: "peers", .. }), "nothing can come");
    let recv = job.recv(1, exact(2, 5), 3);
    job.engine(1).peer_failed(WorldRank(0), None, killed()).unwrap();
    assert_eq!(job.wait(recv).message(), bytes(1, 3));
    assert!(job.wait(send).result.is_ok());
}

#[test]
fn a_long_message_of_a_peer_without_room_moves_once_there_is_room() {
    for reads in [false, true] {
        let mut network = SimConfig::default();
        (network.caps.peers_max, network.reads) = (2, reads);
        let mut job = Job::new(Simulated(Net::new(5, network)), 3, &Config::default());
        // The port of rank 1 has room for two peers, which are ranks 0 and 1.
        let recv = job.recv_as(1, Pattern::exact(0, 0, 5).any_source(), 200_000, Owned, NEVER);
        let send = job.send(2, 1, 5, &bytes(1, 200_000));
        job.settle();
        assert!(!job.is_over(&recv), "its sender cannot be reached");
        job.engine(1).peer_failed(WorldRank(0), None, killed()).unwrap();
        assert_eq!(job.wait(recv).message(), bytes(1, 200_000));
        assert!(job.wait(send).result.is_ok());
    }
}
