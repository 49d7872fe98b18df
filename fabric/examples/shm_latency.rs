//! Measures the bare shared-memory port: one-way latency between two processes, packet after packet back and forth.
//!
//! ```sh
//! cargo run --release -p samite-fabric --example shm_latency -- [BYTES [ROUNDS]]
//! ```
//! BYTES is the whole packet; its first 40 bytes are its head, as long as the header and the tag of a message.
//!
//! With `self` as the third argument, one process sends to itself. The instructions of a send and a poll follow from
//! the difference between two runs with different numbers of rounds (`valgrind --tool=callgrind
//! target/release/examples/shm_latency 48 10000 self`, then 20000).

use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Address, Failure, OpId, PeerId, Port, PortError, Post, Sink};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize| args.get(index).map(String::as_str);
    let bytes: usize = arg(0).unwrap_or("48").parse()?;
    let rounds: usize = arg(1).unwrap_or("1000000").parse()?;
    let mut port = Shm::open(&Config::default())?;
    match arg(2) {
        None => ping(&mut port, bytes, rounds),
        Some("self") => {
            let to = port.resolve(&port.address())?;
            let (packet, mut last) = (vec![0; bytes], Last::default());
            for _ in 0..rounds {
                send(&mut port, to, &packet)?;
                receive(&mut port, &mut last)?;
            }
            Ok(())
        }
        Some(address) => pong(&mut port, address, bytes, rounds),
    }
}

fn ping(port: &mut Shm, bytes: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let address: String = port.address().0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .args([bytes.to_string(), rounds.to_string(), address])
        .spawn()?;
    let mut last = Last::default();
    receive(port, &mut last)?;
    let to = port.resolve(&Address(last.packet.clone()))?;
    let packet = vec![1; bytes];
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        #[expect(clippy::disallowed_methods, reason = "this is where time is measured")]
        let start = Instant::now();
        for _ in 0..rounds / SAMPLES {
            send(port, to, &packet)?;
            receive(port, &mut last)?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / (2 * (rounds / SAMPLES)) as f64);
    }
    assert!(last.packet == packet && child.wait()?.success());
    samples.sort_by(f64::total_cmp);
    let (min, median, max) = (samples[0], samples[SAMPLES / 2], samples[SAMPLES - 1]);
    writeln!(
        std::io::stdout(),
        "samite-shm, bare port, {bytes} B: one way {median:.0} ns (min {min:.0}, max {max:.0})"
    )?;
    Ok(())
}

fn pong(port: &mut Shm, address: &str, bytes: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let address: Result<Vec<u8>, _> =
        (0..address.len() / 2).map(|i| u8::from_str_radix(&address[2 * i..2 * i + 2], 16)).collect();
    let to = port.resolve(&Address(address?))?;
    let own = port.address().0;
    send(port, to, &own)?;
    let mut last = Last::default();
    for _ in 0..rounds / SAMPLES * SAMPLES {
        receive(port, &mut last)?;
        assert_eq!(last.packet.len(), bytes);
        send(port, to, &last.packet)?;
    }
    Ok(())
}

fn send(port: &mut Shm, to: PeerId, packet: &[u8]) -> Result<(), Box<dyn Error>> {
    let (head, body) = packet.split_first_chunk::<HEAD>().ok_or("packets have 40 bytes at least")?;
    while port.send(to, head, body)? == Post::Again {
        std::hint::spin_loop();
    }
    Ok(())
}

fn receive(port: &mut Shm, last: &mut Last) -> Result<(), PortError> {
    while port.poll(last)? == 0 {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Keeps the latest received packet.
#[derive(Default)]
struct Last {
    packet: Vec<u8>,
}

impl Sink for Last {
    fn packet(&mut self, bytes: &[u8]) {
        self.packet.clear();
        self.packet.extend_from_slice(bytes);
    }

    fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}

    fn notified(&mut self, _: u64) {}

    fn peer_lost(&mut self, _: PeerId) {}
}

const SAMPLES: usize = 20;
const HEAD: usize = 40;
