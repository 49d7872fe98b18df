//! Measures how much of a transfer is hidden behind the computation that the program does between its start and its
//! end.
//!
//! Rank 0 sends a message and rank 1 receives it, by nonblocking operations. Each rank starts its operation, computes
//! for a time, and waits for the end. Let `d` be the time from the start to the end, less the time of the computation.
//! Let `t` be the time from the start to the end if the program does not compute, and `e` the same for an empty
//! message. Then the part `1 - (d - e) / (t - e)` of the transfer is hidden (Zounmevo's thesis, 2014, figure 3.7). The
//! computation takes twice the time of the transfer, and at least 1 ms. It sleeps, or keeps the core busy. Each
//! implementation is a separate job for each length. `../peers/peer.c` has the same loop over MPI. Change both
//! together.

mod collectives;

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use samite::bootstrap::Launch;
use samite::{Comm, Rank};

use self::collectives::{Operation, Times};
use crate::failure::now_ns;
use crate::implementation::WITH_PROGRESS;
use crate::once::run_ranks;
use crate::peers;
use crate::record::Record;
use crate::spread::Spread;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct OverlapArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// The lengths of the message, or of a block of a collective operation; by default 64 KiB to 4 MiB, or 256 KiB
    #[arg(long, value_name = "N", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Measure collective operations instead of messages
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    operation: Vec<Operation>,
    /// The number of ranks of collective operations
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..), requires = "operation")]
    ranks: u32,
    /// Exchanges of each kind
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Keep the core busy instead of sleeping
    #[arg(long)]
    busy: bool,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Run one job, and print its figures
    #[arg(long, hide = true)]
    once: Option<Owner>,
}

/// The owner of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Owner {
    /// The caller.
    Caller,
    /// The operation.
    Operation,
}

/// The tags of the messages.
const DATA: u64 = 1;
const STARTED: u64 = 2;
const TIMES: u64 = 3;

/// The operation that starts first. The other rank starts its operation when it knows that this one has started.
const ORDERS: [&str; 2] = ["send", "receive"];

/// The shortest computation.
const COMPUTED_MIN_NS: u64 = 1_000_000;

/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(120);

impl OverlapArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match (Launch::detect(&|name| std::env::var_os(name))?, self.once) {
            (Launch::Alone, Some(_)) => {
                return run_ranks(self.ranks, self.transport.first().cloned(), TIMEOUT);
            }
            (Launch::Alone, None) => self.compare()?,
            (_, owner) => {
                let owner = owner.ok_or("a rank of this benchmark has --once")?;
                let world = samite::init()?;
                let bytes = *self.bytes.first().ok_or("a rank of this benchmark has a length")?;
                if let Some(operation) = self.operation.first() {
                    self.measure_operation(world.comm(), *operation, bytes)?;
                    return Ok(ExitCode::SUCCESS);
                }
                for order in 0..ORDERS.len() {
                    self.measure(world.comm(), owner, bytes, order)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Runs the jobs of all implementations.
    fn compare(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let peers = if self.without_peers { Vec::new() } else { peers::find().peers };
        peers.iter().try_for_each(peers::Peer::build)?;
        if !self.operation.is_empty() {
            return self.compare_collectives(&peers);
        }
        if !self.json {
            let kind = if self.busy { "keeps the core busy" } else { "sleeps" };
            say!(
                "the part of a transfer that is hidden behind a computation that {kind}, {} rounds",
                self.rounds
            );
            say!(
                "{:<12} {:<27} {:>9} {:<8} {:>12} {:>10} {:>12} {:>10}",
                "transport",
                "",
                "bytes",
                "first",
                "send us",
                "hidden",
                "receive us",
                "hidden"
            );
        }
        for transport in &self.transport {
            for bytes in self.lengths(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]) {
                for (name, command) in self.commands(transport, &peers, &[Owner::Caller, Owner::Operation])? {
                    if let Some(orders) = self.job(transport, &name, bytes, command, sides)? {
                        self.print(transport, &name, bytes, &orders);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the jobs of all implementations for all collective operations.
    fn compare_collectives(&self, peers: &[peers::Peer]) -> Result<(), Box<dyn Error + Send + Sync>> {
        if !self.json {
            self.print_head_of_collectives();
        }
        for transport in &self.transport {
            for bytes in self.lengths(&[256 << 10]) {
                for operation in &self.operation {
                    for (name, mut command) in self.commands(transport, peers, &[Owner::Operation])? {
                        self.add_operation(&mut command, *operation);
                        if let Some(times) = self.job(transport, &name, bytes, command, Times::parse)? {
                            self.print_times(transport, &name, *operation, bytes, &times);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the lengths to measure.
    fn lengths(&self, default: &[usize]) -> Vec<usize> {
        if self.bytes.is_empty() { default.to_vec() } else { self.bytes.clone() }
    }

    /// Runs a job, and parses its output. Returns `None` if the job has failed, and reports that.
    fn job<T>(
        &self,
        transport: &str,
        name: &str,
        bytes: usize,
        mut command: Command,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Box<dyn Error + Send + Sync>> {
        command.args(["--bytes", &bytes.to_string(), "--rounds", &self.rounds.to_string()]);
        if self.busy {
            command.arg("--busy");
        }
        let output = command.stdin(Stdio::null()).output()?;
        let parsed = parse(&String::from_utf8_lossy(&output.stdout));
        if parsed.is_none() {
            let said = String::from_utf8_lossy(&output.stderr);
            let (status, said) = (output.status, said.trim());
            eprintln!("samite-bench: {name} over {transport} has failed: {status}: {said}");
        }
        Ok(parsed)
    }

    /// Returns the names of all implementations, and the commands of their jobs: of each one without a thread for
    /// progress and, if it has such a thread, with it.
    fn commands(
        &self,
        transport: &str,
        peers: &[peers::Peer],
        owners: &[Owner],
    ) -> Result<Vec<(String, Command)>, Box<dyn Error + Send + Sync>> {
        let mut commands = Vec::new();
        for owner in owners {
            let name = match owner {
                Owner::Operation if owners.len() > 1 => "samite-owned",
                _ => "samite",
            };
            for (progress, end) in [("off", ""), ("needed", WITH_PROGRESS)] {
                let mut command = Command::new(std::env::current_exe()?);
                let owner = owner.to_possible_value().ok_or("every owner has a name")?;
                command.args(["overlap", "--once", owner.get_name(), "--transport", transport]);
                command.env("SAMITE_PROGRESS", progress);
                if !self.operation.is_empty() {
                    command.args(["-n", &self.ranks.to_string()]);
                }
                commands.push((format!("{name}{end}"), command));
            }
        }
        for peer in peers {
            let Some(settings) = peer.settings(transport) else { continue };
            let plain = (String::new(), &[][..]);
            let threaded =
                Some((WITH_PROGRESS.to_owned(), peer.progress())).filter(|(_, env)| !env.is_empty());
            for (end, env) in [plain].into_iter().chain(threaded) {
                let mut command = peer.command(&settings, self.ranks);
                command.arg("overlap").envs(env.iter().copied());
                commands.push((format!("{}{end}", peer.name), command));
            }
        }
        Ok(commands)
    }

    /// Prints the figures of one job.
    fn print(&self, transport: &str, name: &str, bytes: usize, orders: &[[Side; 2]; ORDERS.len()]) {
        for (first, [send, receive]) in ORDERS.iter().zip(orders) {
            if self.json {
                // There is no part if the message takes as long as one without bytes. JSON has no such number.
                let sides = [("sender", send), ("receiver", receive)];
                for (side, Side { hidden, .. }) in
                    sides.into_iter().filter(|(_, side)| side.hidden.is_finite())
                {
                    let bench = format!("overlap-{first}-first-{side}");
                    let percent = 100.0 * hidden;
                    let spread = Spread { median: percent, min: percent, max: percent };
                    let record = Record::of_job(&bench, name, transport, ("hidden_percent", "%"), spread);
                    say!("{}", Record { bytes: Some(bytes), ..record }.to_json());
                }
                continue;
            }
            say!(
                "{transport:<12} {name:<27} {bytes:>9} {first:<8} {:>12.1} {:>9.0}% {:>12.1} {:>9.0}%",
                send.alone_us,
                100.0 * send.hidden,
                receive.alone_us,
                100.0 * receive.hidden
            );
        }
    }

    /// Measures one length, with one operation first. Rank 0 prints the times of both sides in the form of
    /// [`sides`].
    fn measure(&self, comm: &Comm, owner: Owner, bytes: usize, order: usize) -> Result<(), samite::Error> {
        let median = |bytes, computed_ns| self.median(comm, owner, bytes, order, computed_ns);
        let (empty, alone) = (median(0, 0)?, median(bytes, 0)?);
        // Both ranks compute for the same time: twice the longer transfer.
        let other = Rank(1 - comm.rank().0);
        let mut theirs = [0_u64];
        comm.sendrecv(&[alone as u64], other, TIMES, &mut theirs, other, TIMES)?;
        let computed_ns = COMPUTED_MIN_NS.max(2 * (alone as u64).max(theirs[0]));
        let rest = median(bytes, computed_ns)?;
        let hidden = 1.0 - (rest - empty) / (alone - empty);
        let mine = [alone / 1e3, hidden];
        if comm.rank() == 1 {
            return comm.send(&mine, other, TIMES);
        }
        let mut receiver = [0.0; 2];
        comm.recv(&mut receiver, other, TIMES)?;
        say!("{} {} {} {}", mine[0], mine[1], receiver[0], receiver[1]);
        Ok(())
    }

    /// Returns the median time of this rank from the start of its operation to its end, without the computation, in
    /// nanoseconds.
    fn median(
        &self,
        comm: &Comm,
        owner: Owner,
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
            let mut computed = 0;
            // Computes after the operation has started.
            let mut started = || -> Result<(), samite::Error> {
                if is_first {
                    comm.send(&[0_u8; 0], other, STARTED)?;
                }
                computed = self.compute(computed_ns);
                Ok(())
            };
            let begin_ns = now_ns();
            match owner {
                Owner::Caller => comm.scope(|scope| {
                    match comm.rank() {
                        Rank(0) => scope.isend(&buffer, other, DATA).map(drop),
                        _ => scope.irecv(&mut buffer, other, DATA).map(drop),
                    }?;
                    started()
                })?,
                Owner::Operation => {
                    let request = match comm.rank() {
                        Rank(0) => comm.isend(buffer, other, DATA),
                        _ => comm.irecv(buffer, other, DATA),
                    }?;
                    started()?;
                    buffer = request.wait()?.buffer;
                }
            }
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

/// Parses the output of a job: for each order a line with the time and the hidden part of the sender and of the
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
    fn a_job_prints_a_line_for_each_order() {
        let parsed = sides("10 0.5 12 0.9\n11 1 13 -0.1\n").map(|orders| orders[1][1]);
        assert_eq!(parsed, Some(Side { alone_us: 13.0, hidden: -0.1 }));
        assert!(sides("10 0.5 12 0.9\n").is_none() && sides("absent\n").is_none());
    }
}
