//! Measures the time from the moment when the last partition becomes ready to the end of the receive: for partitions
//! that become ready one by one, for partitions that become ready together, and for an ordinary message that is sent at
//! that moment.
//!
//! A thread of rank 0 marks the partitions: one after the other in a random order with a sleep before each, or all
//! together after one sleep of the same total length. Meanwhile the main thread waits for the end of the round. Both
//! ranks run on one machine, so their times are from the same clock and can be subtracted. `../peers/peer.c` has the
//! same loop over MPI. Change both together.

use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use samite::bootstrap::Launch;
use samite::{Comm, Rank};
use samite_fabric::SplitMix64;

use crate::failure::now_ns;
use crate::peers::{self, Peer, Settings};
use crate::record::Record;
use crate::spread::Spread;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct PartitionedArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// The number of partitions
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    partitions: u32,
    /// Bytes of a partition
    #[arg(long, value_name = "N", default_value_t = 64 << 10)]
    bytes: usize,
    /// Time between two partitions, us
    #[arg(long, value_name = "US", default_value_t = 200)]
    gap: u64,
    /// Rounds, each of all kinds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
}

/// The tags of the messages.
const PARTS: u64 = 1;
const WHOLE: u64 = 2;
const READY: u64 = 3;
const ENDED: u64 = 4;

/// The ways to send the message: in partitions that become ready one by one, in partitions that become ready together,
/// and as an ordinary message.
const KINDS: [&str; 3] = ["partitions", "at once", "send"];

impl PartitionedArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        if Launch::detect(&|name| std::env::var_os(name))? != Launch::Alone {
            let world = samite::init()?;
            match world.comm().rank() {
                Rank(0) => self.send(world.comm())?,
                _ => self.receive(world.comm())?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let peers = if self.without_peers { Vec::new() } else { peers::find().peers };
        peers.iter().try_for_each(Peer::build)?;
        let Self { partitions, bytes, gap, rounds, .. } = self;
        if !self.json {
            say!(
                "{partitions} partitions of {bytes} bytes, {gap} us apart: us from the last one to the end of the \
                 receive, {rounds} rounds"
            );
            say!(
                "{:<14} {:<18} {:<12} {:>10} {:>10} {:>10} {:>8}",
                "transport",
                "",
                "",
                "median",
                "min",
                "max",
                "ratio"
            );
        }
        peers::run_beside(&self.transport, &peers, |peer, settings| self.measure_peer(peer, settings))
    }

    /// Runs a job of an MPI library.
    fn measure_peer(&self, peer: &Peer, settings: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Self { partitions, bytes, gap, rounds, .. } = self;
        let mut command = peer.command(settings, 2);
        command.arg("partitioned").stdin(Stdio::null());
        command.args(["--partitions", &partitions.to_string(), "--bytes", &bytes.to_string()]);
        command.args(["--gap", &gap.to_string(), "--rounds", &rounds.to_string()]);
        let output = command.output()?;
        let (transport, name) = (settings.transport, &peer.name);
        let said = String::from_utf8_lossy(&output.stdout);
        match spreads(&said) {
            Some(spreads) => self.print(transport, name, &spreads),
            None if said.trim() == "absent" => {
                eprintln!("samite-bench: {name} has no partitioned communication");
            }
            None => eprintln!("samite-bench: {name} over {transport} has failed: {}", output.status),
        }
        Ok(())
    }

    fn len(&self) -> usize {
        self.partitions as usize * self.bytes
    }

    fn send(&self, comm: &Comm) -> Result<(), samite::Error> {
        let (partitions, peer) = (self.partitions as usize, Rank(1));
        let (mut order, mut random) = ((0..partitions).collect::<Vec<_>>(), SplitMix64::new(1));
        let gap = Duration::from_micros(self.gap);
        let whole = vec![1_u8; self.len()];
        let mut send = comm.psend_init(vec![1_u8; self.len()], partitions, peer, PARTS)?;
        let mut times = KINDS.map(|_| Vec::new());
        for _ in 0..self.rounds {
            for (kind, times) in times.iter_mut().enumerate() {
                comm.recv(&mut [0_u8; 0], peer, READY)?;
                let begin_ns = if kind == 2 {
                    std::thread::sleep(gap * self.partitions);
                    let begin_ns = now_ns();
                    comm.send(&whole, peer, WHOLE)?;
                    begin_ns
                } else {
                    send.start()?;
                    (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
                    let parts: Result<Vec<_>, _> = order.iter().map(|&part| send.part(part)).collect();
                    let mut parts = parts?;
                    std::thread::scope(|threads| {
                        let marks = threads.spawn(|| {
                            let last = parts.split_off(if kind == 0 { partitions - 1 } else { 0 });
                            for part in parts {
                                std::thread::sleep(gap);
                                part.ready();
                            }
                            std::thread::sleep(gap * if kind == 0 { 1 } else { self.partitions });
                            let begin_ns = now_ns();
                            last.into_iter().for_each(samite::Part::ready);
                            begin_ns
                        });
                        send.wait().map(|_| marks.join().expect("it marks the partitions"))
                    })?
                };
                let mut ended_ns = [0_u64];
                comm.recv(&mut ended_ns, peer, ENDED)?;
                times.push((ended_ns[0] - begin_ns) as f64 / 1e3);
            }
        }
        let transport = comm.transport(peer).unwrap_or_default();
        let spreads = times.map(|times| Spread::of(times).expect("there is a round"));
        self.print(&transport, "samite", &spreads);
        Ok(())
    }

    /// Prints the times of each kind, in microseconds, with their ratios to the time of partitions that become ready
    /// together.
    fn print(&self, transport: &str, name: &str, spreads: &[Spread; KINDS.len()]) {
        for (kind, &spread) in KINDS.iter().zip(spreads) {
            let Spread { median, min, max } = spread;
            if self.json {
                let bench = format!("partitioned-{}", kind.replace(' ', "-"));
                let record = Record::of_job(&bench, name, transport, ("elapsed_us", "us"), spread);
                say!("{}", Record { bytes: Some(self.bytes), ..record }.to_json());
                continue;
            }
            let ratio = median / spreads[1].median;
            say!("{transport:<14} {name:<18} {kind:<12} {median:>10.1} {min:>10.1} {max:>10.1} {ratio:>8.2}");
        }
    }

    fn receive(&self, comm: &Comm) -> Result<(), samite::Error> {
        let peer = Rank(0);
        let mut whole = vec![0_u8; self.len()];
        let mut recv = comm.precv_init(vec![0_u8; self.len()], self.partitions as usize, peer, PARTS)?;
        for _ in 0..self.rounds {
            for kind in 0..KINDS.len() {
                if kind == 2 {
                    comm.send(&[0_u8; 0], peer, READY)?;
                    comm.recv(&mut whole, peer, WHOLE)?;
                } else {
                    recv.start()?;
                    comm.send(&[0_u8; 0], peer, READY)?;
                    recv.wait()?;
                }
                comm.send(&[now_ns()], peer, ENDED)?;
            }
        }
        Ok(())
    }
}

/// Parses the output of a peer: a line for each kind with its median, least and greatest time.
fn spreads(said: &str) -> Option<[Spread; KINDS.len()]> {
    let spread = |line: &str| {
        let times: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [median, min, max] = times.try_into().ok()?;
        Some(Spread { median, min, max })
    };
    said.lines().map(spread).collect::<Option<Vec<_>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_prints_a_line_for_each_kind() {
        let medians = spreads("2.5 1 9\n3 2 4e2\n4 4 4\n").map(|spreads| spreads.map(|spread| spread.median));
        assert_eq!(medians, Some([2.5, 3.0, 4.0]));
        assert!(spreads("2.5 1 9\n3 2 4\n").is_none() && spreads("absent\n").is_none());
    }
}
