//! A caller that waits rests longer, the longer nothing happens. Bytes may move without an event of the port: then
//! [`Engine::moves`](samite_p2p::Engine::moves) grows, or an event comes from time to time.

use samite_p2p::Config;

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, Whose, bytes, exact};
use crate::{Exposing, Simulated};

/// Moves a message from rank 0 to rank 1. Returns by how much `moves` has grown at both ranks.
fn moves<M: Medium>(medium: M, len: usize, whose: Whose) -> [u64; 2] {
    let mut job = Job::new(medium, 2, &Config::default());
    let hello = (job.recv(1, exact(0, 4), 1), job.send(0, 1, 4, b"x"));
    assert!(job.wait(hello.0).result.is_ok() && job.wait(hello.1).result.is_ok());
    job.settle();
    let before = [0, 1].map(|rank| job.engine(rank).moves());
    let recv = job.recv_as(1, exact(0, 5), len, whose, NEVER);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, len), whose, NEVER);
    assert!(job.wait(recv).message() == bytes(1, len));
    assert!(job.wait(send).result.is_ok());
    [0, 1].map(|rank| job.engine(rank).moves() - before[rank])
}

#[test]
fn a_sender_moves_while_its_packets_leave() {
    for whose in [Owned, Borrowed] {
        let [sender, _] = moves(Simulated::poor(), 100_000, whose);
        assert!(sender > 50, "{whose:?}: {sender}");
    }
}

/// Otherwise a sender would never rest while its receiver is stopped.
#[test]
fn a_sender_without_room_does_not_move() {
    let medium = Simulated::poor();
    let net = medium.0.clone();
    let mut job = Job::new(medium, 2, &Config::default());
    let hello = (job.recv(1, exact(0, 4), 1), job.send(0, 1, 4, b"x"));
    assert!(job.wait(hello.0).result.is_ok() && job.wait(hello.1).result.is_ok());
    let recv = job.recv_as(1, exact(0, 5), 100_000, Owned, NEVER);
    let send = job.send_as(0, 1, 0, 5, &bytes(1, 100_000), Owned, NEVER);
    net.pause(1);
    assert!(!job.poll_alone(0, |_| false));
    let before = job.engine(0).moves();
    assert!(!job.poll_alone(0, |_| false) && !job.is_over(&send));
    assert_eq!(job.engine(0).moves(), before);
    net.resume(1);
    assert!(job.wait(recv).message() == bytes(1, 100_000) && job.wait(send).result.is_ok());
}

#[test]
fn a_receiver_moves_while_it_reads_in_the_senders_memory() {
    let [_, receiver] = moves(Exposing::new(true), 5 << 20, Borrowed);
    assert!(receiver >= 4, "{receiver}");
}
