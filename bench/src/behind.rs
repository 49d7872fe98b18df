//! Measures the time of short messages to a peer while a long one to the same peer is under way.
//!
//! Rank 0 starts a long message, and exchanges short ones with rank 1 until the long one has ended. Both ranks run on
//! this machine, so a short message can carry the time at which its send began, and rank 1 subtracts it from the time
//! at which the receive has ended. The rate of the long message then tells how many of its bytes move while a short one
//! travels.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use samite::bootstrap::Launch;
use samite::{Comm, Rank};

use crate::failure::now_ns;
use crate::once::run_two_ranks;
use crate::record::Record;
use crate::spread::Spread;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct BehindArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// The length of the long message
    #[arg(long, value_name = "N", default_value_t = 64 << 20)]
    bytes: usize,
    /// Long messages
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
}

/// The tags of the messages.
const LONG: u64 = 1;
const SHORT: u64 = 2;
const BACK: u64 = 3;
const TIME: u64 = 4;

/// A short message with this content is the last one of its round.
const LAST: u64 = 0;

/// The short messages of a measurement without a long one.
const ALONE: u32 = 1000;

/// The number of rounds that run first and are not measured.
const WARM_UP: u32 = 3;

/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(120);

impl BehindArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        if !matches!(Launch::detect(&|name| std::env::var_os(name))?, Launch::Alone) {
            let world = samite::init()?;
            match world.comm().rank() {
                Rank(0) => self.send(world.comm())?,
                _ => self.receive(world.comm())?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        if !self.json {
            let (bytes, rounds) = (self.bytes, self.rounds);
            say!(
                "a message of 8 B, one way, alone and behind one of {bytes} B, which is sent {rounds} times"
            );
            say!(
                "{:<12} {:>10} {:>12} {:>10} {:>10} {:>14}",
                "transport",
                "alone us",
                "behind us",
                "min",
                "max",
                "KiB that pass"
            );
        }
        for transport in &self.transport {
            let code = run_two_ranks(Some(transport.clone()), TIMEOUT)?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Sends the messages, and after each long one its time in nanoseconds.
    fn send(&self, comm: &Comm) -> Result<(), samite::Error> {
        let exchange = |content: u64| -> Result<(), samite::Error> {
            comm.send(&[content], Rank(1), SHORT)?;
            comm.recv(&mut [0_u8; 0], Rank(1), BACK).map(drop)
        };
        // The first exchanges establish the path.
        for _ in 0..2 {
            for _ in 0..ALONE {
                exchange(now_ns())?;
            }
            exchange(LAST)?;
        }
        let mut buffer = vec![1_u8; self.bytes];
        for _ in 0..WARM_UP + self.rounds {
            let begin_ns = now_ns();
            let mut request = comm.isend(buffer, Rank(1), LONG)?;
            let end = loop {
                exchange(now_ns())?;
                if let Some(end) = request.test() {
                    break end;
                }
            };
            buffer = end?.buffer;
            let long_ns = now_ns() - begin_ns;
            exchange(LAST)?;
            comm.send(&[long_ns], Rank(1), TIME)?;
        }
        Ok(())
    }

    /// Receives the messages, and prints the figures.
    fn receive(&self, comm: &Comm) -> Result<(), samite::Error> {
        // Returns the times of the short messages of a round.
        let round = || -> Result<Vec<f64>, samite::Error> {
            let mut times = Vec::new();
            loop {
                let mut content = [0];
                comm.recv(&mut content, Rank(0), SHORT)?;
                let now_ns = now_ns();
                comm.send(&[0_u8; 0], Rank(0), BACK)?;
                match content[0] {
                    LAST => return Ok(times),
                    sent_ns => times.push((now_ns - sent_ns) as f64),
                }
            }
        };
        round()?;
        let alone = Spread::of(round()?).expect("short messages were sent");
        let (mut buffer, mut behind, mut long) = (vec![0_u8; self.bytes], Vec::new(), Vec::new());
        for number in 0..WARM_UP + self.rounds {
            let request = comm.irecv(buffer, Rank(0), LONG)?;
            let times = round()?;
            buffer = request.wait()?.buffer;
            let mut long_ns = [0_u64];
            comm.recv(&mut long_ns, Rank(0), TIME)?;
            if number >= WARM_UP {
                // The first short message may have been sent before the first bytes of the long one, and the last one
                // after its last bytes.
                behind.extend_from_slice(times.get(1..times.len() - 1).unwrap_or_default());
                long.push(long_ns[0] as f64);
            }
        }
        let Some(behind) = Spread::of(behind) else {
            say!("no short message was sent during a long one: try a longer one");
            return Ok(());
        };
        let transport = comm.transport(Rank(0)).unwrap_or_default();
        let long = Spread::of(long).expect("there is a round");
        self.print(&transport, alone, behind, behind.median / long.median * self.bytes as f64);
        Ok(())
    }

    /// Prints the figures, which are times in nanoseconds, and the bytes of the long message that pass in the median
    /// time of a short one.
    fn print(&self, transport: &str, alone: Spread, behind: Spread, passed: f64) {
        let us = |ns: f64| ns / 1e3;
        if !self.json {
            let (alone, median, min, max) =
                (us(alone.median), us(behind.median), us(behind.min), us(behind.max));
            let kib = passed / 1024.0;
            say!("{transport:<12} {alone:>10.1} {median:>12.1} {min:>10.1} {max:>10.1} {kib:>14.0}");
            return;
        }
        let passed = Spread::of(vec![passed]).expect("there is a figure");
        let in_us = |Spread { median, min, max }| Spread { median: us(median), min: us(min), max: us(max) };
        for (bench, metric, spread) in [
            ("behind-alone", ("latency_us", "us"), in_us(alone)),
            ("behind", ("latency_us", "us"), in_us(behind)),
            ("behind-passed", ("bytes", "B"), passed),
        ] {
            let record = Record::of_job(bench, "samite", transport, metric, spread);
            say!("{}", Record { bytes: Some(self.bytes), ..record }.to_json());
        }
    }
}
