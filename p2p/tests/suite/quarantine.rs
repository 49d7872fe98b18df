//! Memory that a port may still access after the operation has ended. It exists only if the port has no fence. It is
//! counted and limited, and freed when the port releases it.

use samite_fabric::sim::{Config as SimConfig, Net};
use samite_p2p::{Config, WorldRank};

use crate::Simulated;
use crate::job::{Job, NEVER, Owned, bytes, exact, killed};

const LEN: usize = 100_000;

/// Three ranks in a network whose ports support gets. `fence` tells if the ports can fence peers. A get makes progress
/// only when its target polls.
fn trio(fence: bool, quarantine_max: usize) -> (Job<Simulated>, Net) {
    let mut network = SimConfig::default();
    (network.caps.fence, network.caps.passive) = (fence, false);
    let net = Net::new(11, network);
    let mut config = Config::default();
    config.quarantine_max = quarantine_max;
    (Job::new(Simulated(net.clone()), 3, &config), net)
}

fn quarantined(job: &Job<Simulated>) -> u64 {
    job.usages()[0].quarantined
}

/// Receives at rank 0 from rank 1, which is stopped before a byte has moved and is then reported as dead. Returns true
/// if the receive returned its memory.
fn lose_a_receive(job: &mut Job<Simulated>, net: &Net) -> bool {
    let recv = job.recv_as(0, exact(1, 5), LEN, Owned, NEVER);
    let send = job.send(1, 0, 5, &bytes(1, LEN));
    job.poll_until(|job| job.usages()[0].operations > 0);
    net.pause(1);
    job.engine(0).peer_failed(WorldRank(1), None, killed()).expect("a rank of the job");
    let done = job.wait(recv);
    assert!(done.result.is_err());
    job.forget(send);
    done.bytes.is_some()
}

#[test]
fn with_a_fence_nothing_is_held() {
    let (mut job, net) = trio(true, 1 << 30);
    lose_a_receive(&mut job, &net);
    job.settle();
    assert_eq!((quarantined(&job), job.engine(0).counters().quarantined), (0, 0));
}

#[test]
fn without_a_fence_memory_is_held_until_the_port_lets_go() {
    let (mut job, net) = trio(false, 1 << 30);
    assert!(!lose_a_receive(&mut job, &net), "the port may still write to it");
    job.settle();
    assert_eq!((quarantined(&job), job.engine(0).counters().quarantined), (LEN as u64, 1));
    // Rank 1 was alive: its answer arrives in the quarantined memory, which is used for nothing else.
    net.resume(1);
    job.settle();
    assert_eq!((quarantined(&job), job.engine(0).counters().quarantined), (0, 1));
}

#[test]
fn at_the_limit_long_messages_leave_nothing_behind() {
    let gets = |quarantine_max| {
        let (mut job, net) = trio(false, quarantine_max);
        lose_a_receive(&mut job, &net);
        net.record();
        for (from, to) in [(0, 2), (2, 0)] {
            let recv = job.recv(to, exact(from as u32, 6), LEN);
            let send = job.send(from, to as u32, 6, &bytes(from, LEN));
            assert!(job.wait(recv).message() == bytes(from, LEN));
            assert!(job.wait(send).result.is_ok());
        }
        assert_eq!(quarantined(&job), LEN as u64);
        let trace = net.take_trace();
        trace.iter().filter(|event| format!("{event:?}").contains("Got")).count()
    };
    assert_eq!((gets(LEN + 1), gets(LEN)), (2, 0));
}
