//! Tests with as many ports as a node has ranks, and on machines that have too little of a resource.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use samite_fabric::Region;
use samite_fabric::shm::Usage;

use super::*;

/// Starts 5 child processes of 51 ports each. Each port sends to all ports of its own process and to the parent's port.
#[test]
fn ports_of_256_ranks_reach_one_another() {
    let test = "limits::ports_of_256_ranks_reach_one_another";
    let config = Config { ring_bytes_min: 2 << 10, ring_bytes: 4 << 10, ..Config::default() };
    let (processes, ports) = (5, 51);
    if let Some(parent) = parent() {
        // Each port holds a descriptor for each resolved peer, and the default limit of descriptors is 1024.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let mut ports: Vec<_> = (0..ports).map(|_| Shm::open(&config).unwrap()).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        for port in &mut ports {
            for address in &addresses {
                let to = port.resolve(address).unwrap();
                send(port, to, b"among us").unwrap();
            }
            let to = port.resolve(&parent).unwrap();
            send(port, to, b"from afar").unwrap();
        }
        for port in &mut ports {
            assert_eq!(heard(port, addresses.len()), vec![b"among us".to_vec(); addresses.len()]);
        }
        // Send until the parent has closed its port.
        let to = ports[0].resolve(&parent).unwrap();
        while send(&mut ports[0], to, b"more").is_ok() {}
        return;
    }
    let mut port = Shm::open(&config).unwrap();
    let alone = idle_poll_ns(&mut port);
    let mut children: Vec<_> = (0..processes).map(|_| spawn(test, &port)).collect();
    let mut first = 0;
    while first < processes * ports {
        let mut log = Log::default();
        if port.poll(&mut log).unwrap() == 0 {
            assert!(
                children.iter_mut().all(|child| child.try_wait().unwrap().is_none()),
                "a child has ended"
            );
            std::thread::yield_now();
        }
        first += log.packets.iter().filter(|packet| *packet == b"from afar").count();
    }
    let usage = Usage { rings: 255, ring_bytes: 255 * (6 << 10), ..port.usage() };
    assert_eq!(port.usage(), usage);
    assert!(usage.growth_bytes <= config.growth_bytes_max);
    for child in &children {
        kill_process(Pid::from_child(child), Signal::STOP).unwrap();
    }
    let among = idle_poll_ns(&mut port);
    for child in &children {
        kill_process(Pid::from_child(child), Signal::CONT).unwrap();
    }
    drop(port);
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    writeln!(std::io::stdout(), "an idle poll: {alone:.1} ns alone, {among:.1} ns with 255 silent peers")
        .unwrap();
}

/// If the system refuses a resource, the port returns an error with a fix when it requests the resource, and the
/// process gets no signal later.
#[test]
fn limits_of_the_system_are_errors_that_say_what_to_do() {
    let test = "limits::limits_of_the_system_are_errors_that_say_what_to_do";
    if parent().is_some() {
        // Open as many ports as possible.
        let mut ports = Vec::new();
        let port = loop {
            match Shm::open(&Config::default()) {
                Ok(port) => ports.push(port),
                Err(error) => break error,
            }
        };
        let mut regions = Vec::new();
        let region = loop {
            match Region::shared(64 << 20) {
                Ok(region) => regions.push(region),
                Err(error) => break error,
            }
        };
        write!(std::io::stderr(), "port: {port}; region: {region}").unwrap();
        return;
    }
    let port = Shm::open(&CONFIG).unwrap();
    let null = || File::open("/dev/null").unwrap();
    for (limit, advice) in
        [("-f 100", "ulimit -f"), ("-n 16", "ulimit -n"), ("-n 17", "ulimit -n"), ("-n 18", "ulimit -n")]
    {
        let output = limited(limit, &command(test, &port)).stdin(null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{limit}: {said}");
        assert_eq!(said.matches(advice).count(), 2, "{limit}: {said}");
    }
}

fn heard(port: &mut Shm, count: usize) -> Vec<Vec<u8>> {
    let mut log = Log::default();
    while log.packets.len() < count {
        if port.poll(&mut log).unwrap() == 0 {
            std::thread::yield_now();
        }
    }
    log.packets
}

/// Returns the least of many measurements.
fn idle_poll_ns(port: &mut Shm) -> f64 {
    let mut log = Log::default();
    let polls = 10_000;
    let times = (0..50).map(|_| {
        #[expect(clippy::disallowed_methods, reason = "a figure to print")]
        let start = Instant::now();
        for _ in 0..polls {
            port.poll(&mut log).unwrap();
        }
        start.elapsed().as_nanos() as f64 / f64::from(polls)
    });
    times.fold(f64::INFINITY, f64::min)
}
