//! The rate of messages of several threads, with a lane for each thread and with one lane for all. For comparison, the
//! rates of as many pairs of processes, and of MPI libraries with `MPI_THREAD_MULTIPLE`.
//!
//! Each run is a separate job. Half of its processes send and half receive. A thread sends windows of messages to its
//! partner until the time is over, as in the benchmark `rate`, and the rate of a job is the sum over its senders.
//! `../peers/peer.c` has the same loop over MPI. Change both together.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use samite::bootstrap::Launch;
use samite::{Comm, Rank, Settings};
use samite_launch::{self as launch, Options};

use crate::peers;
use crate::record::{Ratio, Record};
use crate::spread::Spread;
use crate::table;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct ThreadsArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// Threads that send, and threads that receive
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Bytes of each message
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    bytes: u32,
    /// Runs of each implementation
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Run one job, and print its rate
    #[arg(long, hide = true)]
    once: Option<Kind>,
}

/// The use of threads and processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Two processes, with a lane for each thread.
    Lanes,
    /// Two processes, whose threads share a lane.
    Shared,
    /// Two processes for each pair of threads.
    Pairs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Lanes => "samite-lanes",
            Self::Shared => "samite-one-lane",
            Self::Pairs => "samite-processes",
        }
    }
}

/// Messages in flight from each thread, as in the benchmark `rate`.
const WINDOW: usize = 64;
/// The time for which a thread sends.
const TIME: Duration = Duration::from_millis(500);
/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The first tag of the replies to threads. It is greater than each tag of the messages to which threads reply.
const REPLIES: u64 = 1 << 32;
/// The tag of the messages that report rates to rank 0.
const RATES: u64 = 1 << 33;

impl ThreadsArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match (Launch::detect(&|name| std::env::var_os(name))?, self.once) {
            (Launch::Alone, Some(kind)) => self.launch(kind)?,
            (Launch::Alone, None) => self.measure()?,
            (_, kind) => self.take_part(kind.ok_or("a rank of this benchmark has --once")?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn launch(&self, kind: Kind) -> Result<(), Box<dyn Error + Send + Sync>> {
        let ranks = if kind == Kind::Pairs { 2 * u32::from(self.threads) } else { 2 };
        let options = Options {
            transport: self.transport.first().cloned(),
            timeout: Some(TIMEOUT),
            args: std::env::args_os().skip(1).collect(),
            ..Options::new(ranks, std::env::current_exe()?)
        };
        launch::run(options)?;
        Ok(())
    }

    fn measure(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if !self.json {
            let Self { threads, runs, bytes, .. } = self;
            say!(
                "threads, rate_per_s: messages of {bytes} bytes of {threads} threads to {threads} threads, {runs} runs"
            );
            say!("{}", table::header(true));
        }
        let peers = if self.without_peers { Vec::new() } else { peers::find().peers };
        peers.iter().try_for_each(peers::Peer::build)?;
        for transport in &self.transport {
            let kinds = [Kind::Lanes, Kind::Shared, Kind::Pairs];
            let names = kinds.iter().map(|kind| kind.name()).chain(peers.iter().map(|peer| &*peer.name));
            let mut rates: Vec<_> = names.map(|name| (name, Vec::new())).collect();
            for _ in 0..self.runs {
                for (&kind, (_, rates)) in kinds.iter().zip(&mut rates) {
                    rates.push(self.job(transport, kind)?);
                }
                for (peer, (_, rates)) in peers.iter().zip(&mut rates[kinds.len()..]) {
                    if let Some(settings) = peer.settings(transport) {
                        rates.push(rate_of(self.peer_command(peer.command(&settings, 2)))?);
                    }
                }
            }
            self.print(transport, rates);
        }
        Ok(())
    }

    /// Prints the figures, with their ratios to the figure of as many pairs of processes.
    fn print(&self, transport: &str, rates: Vec<(&str, Vec<f64>)>) {
        let processes = rates.iter().find(|(name, _)| *name == Kind::Pairs.name());
        let processes = processes.map_or(Vec::new(), |(_, rates)| rates.clone());
        for (implementation, rates) in rates {
            let quotients = rates.iter().zip(&processes).map(|(rate, processes)| rate / processes).collect();
            let ratio = Spread::of(quotients).map(|Spread { median, min, max }| {
                let to = Kind::Pairs.name().to_owned();
                Ratio { to, median, min, max }
            });
            let Some(spread) = Spread::of(rates) else { continue };
            let metric = ("rate_per_s", "1/s");
            let record = Record::of_job("threads", implementation, transport, metric, spread);
            let record =
                Record { bytes: Some(self.bytes as usize), runs: self.runs as usize, ratio, ..record };
            if self.json {
                say!("{}", record.to_json());
            } else {
                say!("{}", table::Row(&record));
            }
        }
    }

    /// Returns the rate of one job. A separate process runs its launcher.
    fn job(&self, transport: &str, kind: Kind) -> Result<f64, Box<dyn Error + Send + Sync>> {
        let mut command = Command::new(std::env::current_exe()?);
        let kind = kind.to_possible_value().ok_or("every kind has a name")?;
        command.args(["threads", "--once", kind.get_name(), "--transport", transport]);
        command.args(["--threads", &self.threads.to_string(), "--bytes", &self.bytes.to_string()]);
        rate_of(command)
    }

    fn peer_command(&self, mut command: Command) -> Command {
        command.args(["threads", "--threads", &self.threads.to_string(), "--bytes", &self.bytes.to_string()]);
        command
    }

    /// Runs a rank of the job.
    fn take_part(&self, kind: Kind) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut settings = Settings::from_environment()?;
        let threads = if kind == Kind::Pairs { 1 } else { usize::from(self.threads) };
        settings.set_lanes(if kind == Kind::Lanes { threads } else { 1 })?;
        let world = settings.init()?;
        let comm = world.comm();
        let (rank, half) = (comm.rank().0, comm.size() / 2);
        // The creation of a communicator ends after all ranks have joined. So the time does not include the start of
        // ranks.
        let _together = comm.dup()?;
        let partner = Rank((rank + half) % comm.size());
        let lanes = (0..threads).map(|number| comm.lane(if kind == Kind::Lanes { number } else { 0 }));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let rates = thread::scope(|scope| {
            let bytes = self.bytes as usize;
            let threads: Vec<_> = (0..)
                .zip(&lanes)
                .map(|(tag, lane)| {
                    scope.spawn(move || match rank < half {
                        true => send(lane, partner, tag, bytes),
                        false => receive(lane, partner, tag, bytes).map(|()| 0.0),
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
        });
        let rate: f64 = rates.into_iter().sum::<Result<f64, _>>()?;
        match rank {
            0 => {
                let mut all = rate;
                for from in 1..half {
                    let mut rate = [0.0];
                    comm.recv(&mut rate, Rank(from), RATES)?;
                    all += rate[0];
                }
                say!("{all}");
            }
            rank if rank < half => comm.send(&[rate], Rank(0), RATES)?,
            _ => {}
        }
        Ok(())
    }
}

/// Sends windows until the time is over, and returns the messages per second. The first byte of a window's messages
/// tells whether it is the last.
fn send(comm: &Comm, to: Rank, tag: u64, bytes: usize) -> Result<f64, samite::Error> {
    let mut data = vec![0_u8; bytes];
    let begin = Instant::now();
    let mut sent = 0;
    while data[0] == 0 {
        data[0] = u8::from(begin.elapsed() >= TIME);
        comm.scope(|scope| (0..WINDOW).try_for_each(|_| scope.isend(&data, to, tag).map(drop)))?;
        comm.recv(&mut [0_u8; 0], to, REPLIES | tag)?;
        sent += WINDOW;
    }
    Ok(sent as f64 / begin.elapsed().as_secs_f64())
}

fn receive(comm: &Comm, from: Rank, tag: u64, bytes: usize) -> Result<(), samite::Error> {
    let mut into = vec![vec![0_u8; bytes]; WINDOW];
    while into[0][0] == 0 {
        comm.scope(|scope| into.iter_mut().try_for_each(|into| scope.irecv(into, from, tag).map(drop)))?;
        comm.send(&[0_u8; 0], from, REPLIES | tag)?;
    }
    Ok(())
}

/// Runs a job that prints its rate.
fn rate_of(mut command: Command) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let output = command.stdin(Stdio::null()).output()?;
    let rate = String::from_utf8_lossy(&output.stdout).trim().parse();
    rate.map_err(|_| format!("no rate from {command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
