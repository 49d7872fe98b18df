//! Measures how much of a transfer is hidden behind the computation that the program does between its start and its
//! end.
//!
//! Rank 0 sends a message and rank 1 receives it, by nonblocking operations. Each rank starts its operation, computes
//! for a time, and waits for the end. Let `d` be the time from the start to the end without the computation, `t` the
//! same if there is no computation, and `e` that of an empty message without a computation. Then the part `1 - (d - e)
//! / (t - e)` of the transfer is hidden (Zounmevo's thesis, 2014, figure 3.7). The computation takes twice the time of
//! the transfer, and at least 1 ms. It sleeps, or keeps the core busy. `../peers/peer.c` has the same loop over MPI.
//! Change both together.

use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use samite::bootstrap::Launch;
use samite::{Comm, Rank};

use crate::failure::now_ns;
use crate::peers::{self, Peer, Settings};
use crate::spread::Spread;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct OverlapArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// The lengths of the message
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [64 << 10, 256 << 10, 1 << 20, 4 << 20])]
    bytes: Vec<usize>,
    /// Exchanges of each kind
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Keep the core busy instead of sleeping
    #[arg(long)]
    busy: bool,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
}

/// The tags of the messages.
const DATA: u64 = 1;
const STARTED: u64 = 2;
const TIMES: u64 = 3;

/// The operation that starts first. The other rank starts its operation when it knows that this one has started.
const ORDERS: [&str; 2] = ["send", "receive"];

/// The shortest computation.
const COMPUTED_MIN_NS: u64 = 1_000_000;

impl OverlapArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        if Launch::detect(&|name| std::env::var_os(name))? != Launch::Alone {
            let world = samite::init()?;
            for &bytes in &self.bytes {
                for order in 0..ORDERS.len() {
                    self.measure(world.comm(), bytes, order)?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let peers = if self.without_peers { Vec::new() } else { peers::find().peers };
        peers.iter().try_for_each(Peer::build)?;
        let kind = if self.busy { "keeps the core busy" } else { "sleeps" };
        say!(
            "the part of a transfer that is hidden behind a computation that {kind}, {} rounds",
            self.rounds
        );
        say!(
            "{:<14} {:<18} {:>9} {:<8} {:>12} {:>10} {:>12} {:>10}",
            "transport",
            "",
            "bytes",
            "first",
            "send us",
            "hidden",
            "receive us",
            "hidden"
        );
        peers::run_beside(&self.transport, &peers, |peer, settings| self.measure_peer(peer, settings))
    }

    /// Runs the jobs of an MPI library, whose lines [`print()`] prints.
    fn measure_peer(&self, peer: &Peer, settings: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
        for bytes in &self.bytes {
            let mut command = peer.command(settings, 2);
            command.arg("overlap").stdin(Stdio::null());
            command.args(["--bytes", &bytes.to_string(), "--rounds", &self.rounds.to_string()]);
            if self.busy {
                command.arg("--busy");
            }
            let output = command.output()?;
            let (transport, name) = (settings.transport, &peer.name);
            match sides(&String::from_utf8_lossy(&output.stdout)) {
                Some(orders) => {
                    for (order, sides) in orders.iter().enumerate() {
                        print(transport, name, *bytes, order, sides);
                    }
                }
                None => say!("{transport:<14} {name:<18} has failed: {}", output.status),
            }
        }
        Ok(())
    }

    /// Measures one length, with one operation first.
    fn measure(&self, comm: &Comm, bytes: usize, order: usize) -> Result<(), samite::Error> {
        let (empty, alone) = (self.median(comm, 0, order, 0)?, self.median(comm, bytes, order, 0)?);
        // Both ranks compute for the same time: twice the longer transfer.
        let other = Rank(1 - comm.rank().0);
        let mut theirs = [0_u64];
        comm.sendrecv(&[alone as u64], other, TIMES, &mut theirs, other, TIMES)?;
        let computed_ns = COMPUTED_MIN_NS.max(2 * (alone as u64).max(theirs[0]));
        let rest = self.median(comm, bytes, order, computed_ns)?;
        let hidden = 1.0 - (rest - empty) / (alone - empty);
        let mine = Side { alone_us: alone / 1e3, hidden };
        if comm.rank() == 1 {
            return comm.send(&[mine.alone_us, mine.hidden], other, TIMES);
        }
        let mut receiver = [0.0; 2];
        comm.recv(&mut receiver, other, TIMES)?;
        let receiver = Side { alone_us: receiver[0], hidden: receiver[1] };
        print(&comm.transport(other).unwrap_or_default(), "samite", bytes, order, &[mine, receiver]);
        Ok(())
    }

    /// Returns the median time of this rank from the start of its operation to its end, without the computation, in
    /// nanoseconds.
    fn median(
        &self,
        comm: &Comm,
        bytes: usize,
        order: usize,
        computed_ns: u64,
    ) -> Result<f64, samite::Error> {
        let other = Rank(1 - comm.rank().0);
        let is_first = order == comm.rank().0 as usize;
        let mut buffer = vec![1_u8; bytes];
        let mut times = Vec::new();
        // The first rounds touch the memory and establish the paths.
        for round in 0..self.rounds + WARM_UP {
            comm.sendrecv(&[0_u8; 0], other, STARTED, &mut [0_u8; 0], other, STARTED)?;
            if !is_first {
                comm.recv(&mut [0_u8; 0], other, STARTED)?;
            }
            let begin_ns = now_ns();
            let computed;
            buffer = if comm.rank() == 0 {
                let send = comm.isend(buffer, other, DATA)?;
                if is_first {
                    comm.send(&[0_u8; 0], other, STARTED)?;
                }
                computed = self.compute(computed_ns);
                send.wait()?.buffer
            } else {
                let receive = comm.irecv(buffer, other, DATA)?;
                if is_first {
                    comm.send(&[0_u8; 0], other, STARTED)?;
                }
                computed = self.compute(computed_ns);
                receive.wait()?.buffer
            };
            if round >= WARM_UP {
                times.push((now_ns() - begin_ns - computed) as f64);
            }
        }
        Ok(Spread::of(times).expect("there is a round").median)
    }

    /// Computes for a time, and returns the time that it has taken, which is longer if the system wakes a sleeper late.
    fn compute(&self, time_ns: u64) -> u64 {
        let begin_ns = now_ns();
        if !self.busy && time_ns > 0 {
            std::thread::sleep(Duration::from_nanos(time_ns));
        }
        while self.busy && now_ns() - begin_ns < time_ns {
            std::hint::spin_loop();
        }
        now_ns() - begin_ns
    }
}

/// The number of rounds that run first and are not measured.
const WARM_UP: u32 = 5;

/// The times of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    /// The time of the transfer without a computation.
    alone_us: f64,
    /// The part of it that is hidden.
    hidden: f64,
}

fn print(transport: &str, name: &str, bytes: usize, order: usize, [send, receive]: &[Side; 2]) {
    let first = ORDERS[order];
    say!(
        "{transport:<14} {name:<18} {bytes:>9} {first:<8} {:>12.1} {:>9.0}% {:>12.1} {:>9.0}%",
        send.alone_us,
        100.0 * send.hidden,
        receive.alone_us,
        100.0 * receive.hidden
    );
}

/// Parses the output of a peer: for each order a line with the time and the hidden part of the sender and of the
/// receiver.
fn sides(said: &str) -> Option<[[Side; 2]; ORDERS.len()]> {
    let line = |line: &str| {
        let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let side = |at: &[f64]| Side { alone_us: at[0], hidden: at[1] };
        (numbers.len() == 4).then(|| [side(&numbers[..2]), side(&numbers[2..])])
    };
    said.lines().map(line).collect::<Option<Vec<_>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_prints_a_line_for_each_order() {
        let parsed = sides("10 0.5 12 0.9\n11 1 13 -0.1\n").map(|orders| orders[1][1]);
        assert_eq!(parsed, Some(Side { alone_us: 13.0, hidden: -0.1 }));
        assert!(sides("10 0.5 12 0.9\n").is_none() && sides("absent\n").is_none());
    }
}
