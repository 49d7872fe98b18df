//! Measures what an idle network adds to a poll of shared memory: `cargo run --release -p samite-fabric --example
//! idle_network`.
//!
//! The program polls three routes in turns: a route over shared memory alone; a route over shared memory and
//! libfabric's `tcp;ofi_rxm` without a connection; and such a route with a network connection over which a packet has
//! come.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::error::Error;
use std::time::Instant;

use samite_fabric::ofi::{OfiConfig, OfiPort};
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Failure, OpId, PeerId, Port, Post, Sink};

const POLLS: u32 = 10_000_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut alone, mut beside, mut connected) = (route(None)?, route(Some(1))?, route(Some(2))?);
    let sender = connect(&mut connected)?;
    println!("ns a poll: shared memory alone, with an idle network, with an idle connection");
    for _ in 0..ROUNDS {
        let [alone, beside, connected] = [&mut alone, &mut beside, &mut connected].map(poll_ns);
        println!("{:.2}  {:.2}  {:.2}", alone?, beside?, connected?);
    }
    drop(sender);
    Ok(())
}

/// Returns the mean time of a poll that finds nothing.
fn poll_ns(route: &mut Route) -> Result<f64, Box<dyn Error>> {
    let (start, mut received) = (Instant::now(), Count::default());
    for _ in 0..POLLS {
        route.poll(&mut received)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(POLLS))
}

fn route(network: Option<u64>) -> Result<Route, Box<dyn Error>> {
    let shm = Some(Shm::open(&Config::default())?);
    let ofi = network.map(open).transpose()?;
    Ok(Route::new(Ports { shm, ofi, ..Ports::default() })?)
}

fn open(seed: u64) -> Result<OfiPort, Box<dyn Error>> {
    Ok(OfiPort::open(&OfiConfig { stays_on_host: true, seed, ..OfiConfig::default() })?)
}

/// Returns a new route over the network alone, after this route has sent a packet to `receiver`.
fn connect(receiver: &mut Route) -> Result<Route, Box<dyn Error>> {
    let mut sender = Route::new(Ports { ofi: Some(open(3)?), ..Ports::default() })?;
    let mut received = Count::default();
    // The sender has no shared memory of its own, so it uses the network address of the receiver.
    let to = sender.resolve(&receiver.address())?;
    while sender.send(to, b"first", &[])? == Post::Again {
        sender.poll(&mut received)?;
        receiver.poll(&mut received)?;
    }
    while received.0 == 0 {
        sender.poll(&mut received)?;
        receiver.poll(&mut received)?;
    }
    Ok(sender)
}

/// Counts packets.
#[derive(Default)]
struct Count(u32);

impl Sink for Count {
    fn packet(&mut self, _: &[u8]) {
        self.0 += 1;
    }
    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
    fn notified(&mut self, _: u64) {}
    fn peer_lost(&mut self, _: PeerId) {}
}
