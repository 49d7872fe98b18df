//! The command line.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use samite_launch as launch;

use crate::apps::AppsArgs;
use crate::behind::BehindArgs;
use crate::benchmark::Benchmark;
use crate::compare::{Comparison, Outcome};
use crate::completion::{self, CompletionArgs};
use crate::examples::ExamplesArgs;
use crate::failure::FailureArgs;
use crate::implementation::Implementation;
use crate::instructions;
use crate::layouts::LayoutsArgs;
use crate::limits::LimitsArgs;
use crate::matching::MatchingArgs;
use crate::once::{Once, Ours};
use crate::overlap::OverlapArgs;
use crate::partitioned::PartitionedArgs;
use crate::peers::{self, Found};
use crate::record::Line;
use crate::rma::RmaArgs;
use crate::simulate::SimulateArgs;
use crate::threads::ThreadsArgs;
use crate::tune::TuneArgs;
use crate::{hello, report, table};

/// Measurements of Samite, of raw libfabric and of MPI libraries
///
/// All ranks run on this machine. They are not bound to cores, unless --pin is given.
#[derive(Debug, Parser)]
#[command(name = "samite-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time of a message one way: half the time of a round trip, us
    Latency(OnceArgs),
    /// As latency, by nonblocking operations; each message arrives before its receive starts
    SenderFirst(OnceArgs),
    /// As latency, by nonblocking operations; each receive starts before its send
    ReceiverFirst(OnceArgs),
    /// Bytes per second with a window of messages in flight: 64, or fewer above 128 KiB
    Bandwidth(OnceArgs),
    /// Messages per second, 64 in flight
    Rate(OnceArgs),
    /// Time of a receive while many messages of distinct tags wait, received in reverse order, ns
    Depth(DepthArgs),
    /// Time of an exchange with both neighbours on a ring of all ranks, us
    Ring(OnceArgs),
    /// Time of an exchange of every rank with every other rank, us
    Pairs(OnceArgs),
    /// Time of a barrier, us
    Barrier(OnceArgs),
    /// Time of a broadcast, us
    Bcast(OnceArgs),
    /// Time of a sum to one rank, us
    Reduce(OnceArgs),
    /// Time of a sum to all ranks, us
    Allreduce(OnceArgs),
    /// Time of an allgather, us
    Allgather(OnceArgs),
    /// Time of an alltoall, us
    Alltoall(OnceArgs),
    /// Time of a put and of a flush that waits until it is visible at the target, us
    Put(OnceArgs),
    /// Time of a get, us
    Get(OnceArgs),
    /// Time of an addition to a number at the target that returns the former value, us
    FetchAdd(OnceArgs),
    /// Time of a comparison and swap of a number at the target, us
    CompareSwap(OnceArgs),
    /// Bytes per second of a window of puts and a flush
    PutBandwidth(OnceArgs),
    /// Bytes per second of a window of gets
    GetBandwidth(OnceArgs),
    /// The peak memory of a rank that has exchanged a message with every other rank, MB
    Memory(OnceArgs),
    /// Start ranks that greet rank 0: the program that `compare start-up` times
    Hello(OnceArgs),
    /// Time from the kill of a rank to the error at every other rank, ms
    Failure(FailureArgs),
    /// Time of a completion in a set of requests, by the number of pending requests, ns
    Completion(CompletionArgs),
    /// Messages per second of several threads with a lane each, of the same threads with one lane, and of as many
    /// processes
    Threads(ThreadsArgs),
    /// Time of scattered messages one way, beside MPI libraries with the same derived types, us
    Layouts(LayoutsArgs),
    /// Time from the moment when the last partition of a message becomes ready to the end of the receive, us
    Partitioned(PartitionedArgs),
    /// The part of a transfer that is hidden behind the computation between its start and its end
    Overlap(OverlapArgs),
    /// Time of 8 B one way while a long message to the same rank is under way, us
    Behind(BehindArgs),
    /// Epochs of windows: their time, the delays that they pass on, and their memory
    Rma(RmaArgs),
    /// The cost of the thread for progress: the latency of messages that need no help, with the thread and without it
    Overhead(OverheadArgs),
    /// The cost of the thread for progress in examples: their time, their memory, and the time of the thread
    Examples(ExamplesArgs),
    /// Measure where one protocol becomes faster than another on this machine, and write the thresholds to a tuning
    /// file
    Tune(TuneArgs),
    /// Rounds, bytes and virtual time of a collective operation of many ranks, by a simulation of each rank's schedule
    Simulate(SimulateArgs),
    /// The message queues of applications, and the searches in them, by the matching engine's structure
    Apps(AppsArgs),
    /// The memory of millions of communicators, pending operations and layouts, and the budgets that bound them
    Limits(LimitsArgs),
    /// Run all available implementations in turns, and compare their medians
    Compare(CompareArgs),
    /// Show the figures of comparisons, from the lines that `compare --json` prints: as tables, or as a page of HTML
    Report(ReportArgs),
    /// Count the instructions of hot operations, and compare them with the table in the repository
    Instructions(InstructionsArgs),
    /// The matching engine's structures: the published experiments, and the bounds of the default structure
    Matching(MatchingArgs),
    /// Start the agent of a host, and end with it; used by the measurements
    #[command(name = launch::SUPERVISOR_COMMAND, hide = true)]
    Supervisor,
    /// Start and watch the ranks; used by the measurements
    #[command(name = launch::AGENT_COMMAND, hide = true)]
    Agent {
        /// The descriptor of the connection to the parent process
        connection: i32,
    },
}

/// The options of one run of one implementation.
#[derive(Debug, Args)]
struct OnceArgs {
    /// The implementation to run
    #[arg(long = "impl", value_enum, default_value_t = Ours::Samite)]
    implementation: Ours,
    /// The transport, such as `samite-shm` or `tcp;ofi_rxm`; by default Samite chooses
    #[arg(long, value_name = "T")]
    transport: Option<String>,
    /// The number of ranks
    #[arg(short = 'n', long, value_name = "N")]
    ranks: Option<u32>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct DepthArgs {
    #[command(flatten)]
    once: OnceArgs,
    /// The number of waiting messages
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    depth: Vec<usize>,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The benchmark to run; `coll` stands for all collective operations
    #[arg(value_parser = compared)]
    benchmark: Compared,
    /// The transport, by Samite's name; other implementations use their nearest equivalent. May be repeated
    #[arg(long, value_name = "T", default_values = TRANSPORTS)]
    transport: Vec<String>,
    /// The number of waiting messages, for `depth`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    depth: Vec<usize>,
    /// Runs of each implementation at each point
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Run only these implementations
    #[arg(long = "impl", value_name = "LIST", value_delimiter = ',')]
    implementations: Vec<String>,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Run the implementations that have a thread for progress, each without it and with it, and compare these two
    #[arg(long)]
    progress: bool,
    /// The number of ranks
    #[arg(short = 'n', long, value_name = "LIST", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// The implementation that the ratios refer to; by default, at each point, the best one whose name does not start
    /// with `samite`
    #[arg(long, value_name = "IMPL")]
    baseline: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// The benchmarks of a comparison.
#[derive(Clone, Debug)]
struct Compared(Vec<Benchmark>);

/// Parses the name of a benchmark, or `coll`.
fn compared(text: &str) -> Result<Compared, String> {
    match text {
        "coll" => Ok(Compared(Benchmark::COLLECTIVE.to_vec())),
        _ => Benchmark::from_str(text, false).map(|benchmark| Compared(vec![benchmark])).map_err(|_| {
            let names = Benchmark::value_variants().iter().map(|benchmark| benchmark.name());
            format!("it is one of {}, coll", names.collect::<Vec<_>>().join(", "))
        }),
    }
}

/// The options of the measurement of (Zounmevo 2014, figure 3.6): blocking messages, and messages of nonblocking
/// operations without a computation, of which the send or the receive starts first.
#[derive(Debug, Args)]
struct OverheadArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = TRANSPORTS)]
    transport: Vec<String>,
    /// Runs of each implementation at each point
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Output of `compare --json`; the file may contain several comparisons
    figures: PathBuf,
    /// Write an HTML page with plots to this file, instead of printing tables
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct CommonArgs {
    /// Lengths of messages
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Bind rank 0 to the first core that this process may use, and rank 1 to the second
    #[arg(long)]
    pin: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct InstructionsArgs {
    /// Write the counts to the table
    #[arg(long)]
    bless: bool,
    /// Run this scenario without counting; the counting process starts it
    #[arg(long, hide = true, requires = "operations")]
    scenario: Option<String>,
    /// The number of operations
    #[arg(long, hide = true, default_value_t = 1)]
    operations: u64,
}

/// The default transports of a comparison.
const TRANSPORTS: &[&str] = &["samite-shm", "tcp;ofi_rxm"];

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match self.command {
            Command::Latency(args) => args.run(Benchmark::Latency, &[]),
            Command::SenderFirst(args) => args.run(Benchmark::SenderFirst, &[]),
            Command::ReceiverFirst(args) => args.run(Benchmark::ReceiverFirst, &[]),
            Command::Bandwidth(args) => args.run(Benchmark::Bandwidth, &[]),
            Command::Rate(args) => args.run(Benchmark::Rate, &[]),
            Command::Depth(args) => args.once.run(Benchmark::Depth, &args.depth),
            Command::Ring(args) => args.run(Benchmark::Ring, &[]),
            Command::Pairs(args) => args.run(Benchmark::Pairs, &[]),
            Command::Barrier(args) => args.run(Benchmark::Barrier, &[]),
            Command::Bcast(args) => args.run(Benchmark::Bcast, &[]),
            Command::Reduce(args) => args.run(Benchmark::Reduce, &[]),
            Command::Allreduce(args) => args.run(Benchmark::Allreduce, &[]),
            Command::Allgather(args) => args.run(Benchmark::Allgather, &[]),
            Command::Alltoall(args) => args.run(Benchmark::Alltoall, &[]),
            Command::Put(args) => args.run(Benchmark::Put, &[]),
            Command::Get(args) => args.run(Benchmark::Get, &[]),
            Command::FetchAdd(args) => args.run(Benchmark::FetchAdd, &[]),
            Command::CompareSwap(args) => args.run(Benchmark::CompareSwap, &[]),
            Command::PutBandwidth(args) => args.run(Benchmark::PutBandwidth, &[]),
            Command::GetBandwidth(args) => args.run(Benchmark::GetBandwidth, &[]),
            Command::Memory(args) => args.run(Benchmark::Memory, &[]),
            Command::Hello(args) => {
                let ranks = args.ranks(Benchmark::StartUp)?;
                hello::run(ranks, args.transport.as_deref())
            }
            Command::Failure(args) => args.run(),
            Command::Threads(args) => args.run(),
            Command::Completion(args) => {
                completion::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Layouts(args) => args.run(),
            Command::Partitioned(args) => args.run(),
            Command::Overlap(args) => args.run(),
            Command::Behind(args) => args.run(),
            Command::Rma(args) => args.run(),
            Command::Overhead(args) => args.run(),
            Command::Examples(args) => args.run(),
            Command::Tune(args) => args.run(),
            Command::Apps(args) => args.run(),
            Command::Simulate(args) => args.run(),
            Command::Limits(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Report(args) => {
                let lines = report::read(&args.figures)?;
                match &args.output {
                    Some(page) => report::write(&lines, page)?,
                    None => say!("{}", report::text(&lines).trim_end()),
                }
                Ok(ExitCode::SUCCESS)
            }
            Command::Instructions(args) => args.run(),
            Command::Matching(args) => Ok(if args.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            Command::Supervisor => {
                launch::serve_as_supervisor()?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Agent { connection } => {
                launch::serve_as_agent(connection)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl OnceArgs {
    fn run(self, benchmark: Benchmark, depths: &[usize]) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let ranks = self.ranks(benchmark)?;
        let Self { implementation, transport, common: CommonArgs { bytes, pin, json }, .. } = self;
        let points = benchmark.points(&[ranks], &bytes, depths);
        Once { benchmark, ranks, points, implementation, transport, pin, json }.run()
    }

    fn ranks(&self, benchmark: Benchmark) -> Result<u32, String> {
        let ranks = self.ranks.unwrap_or(benchmark.default_ranks()[0]);
        check_ranks(benchmark, ranks).map(|()| ranks)
    }
}

impl OverheadArgs {
    fn run(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let mut common = self.common;
        if common.bytes.is_empty() {
            common.bytes = vec![16 << 10, 64 << 10, 256 << 10, 1 << 20];
        }
        let mut code = ExitCode::SUCCESS;
        for benchmark in [Benchmark::Latency, Benchmark::SenderFirst, Benchmark::ReceiverFirst] {
            let compare = CompareArgs {
                benchmark: Compared(vec![benchmark]),
                transport: self.transport.clone(),
                depth: Vec::new(),
                runs: self.runs,
                implementations: Vec::new(),
                without_peers: self.without_peers,
                progress: true,
                ranks: Vec::new(),
                baseline: None,
                common: common.clone(),
            };
            if compare.run()? != ExitCode::SUCCESS {
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

impl InstructionsArgs {
    fn run(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let passed = match self.scenario {
            Some(scenario) => instructions::run(&scenario, self.operations).map(|()| true),
            None => instructions::check(self.bless),
        }?;
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl CompareArgs {
    fn run(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let mut code = ExitCode::SUCCESS;
        for benchmark in self.benchmark.0.clone() {
            if self.run_one(benchmark)? != ExitCode::SUCCESS {
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }

    fn run_one(&self, benchmark: Benchmark) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        self.ranks.iter().try_for_each(|&ranks| check_ranks(benchmark, ranks))?;
        let found = if self.without_peers { Found::default() } else { peers::find() };
        let comparisons = self.comparisons(benchmark, &found)?;

        // The bar is hidden if standard error is not a terminal.
        let bar = ProgressBar::new(comparisons.iter().map(Comparison::len).sum::<usize>() as u64)
            .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")?);
        let json = self.common.json;
        if json {
            for comparison in &comparisons {
                say!("{}", serde_json::to_string(&Line::Settings(comparison.settings(&found.absent)))?);
            }
        } else {
            let (metric, runs) = (benchmark.metric(), self.runs);
            let pinned = if self.common.pin { "pinned" } else { "not pinned" };
            say!("{}, {metric}: medians of {runs} interleaved runs, {pinned}", benchmark.name());
            for settings in comparisons.iter().flat_map(|comparison| comparison.settings(&[]).commands) {
                say!("  {}: {}", settings.implementation, settings.command);
            }
            if !found.absent.is_empty() {
                say!("  not on this machine (ci/peers.sh installs them): {}", found.absent.join(", "));
            }
            say!("{}", table::header(true));
        }
        let mut all_measured = true;
        for comparison in &comparisons {
            for &point in &comparison.points {
                let Outcome { records, failed, mark } = comparison.run(point, || bar.inc(1));
                all_measured &= check_rows(benchmark, &records, &failed)?;
                bar.suspend(|| {
                    failed.iter().for_each(|error| eprintln!("samite-bench: {error}"));
                    for record in &records {
                        if json {
                            say!("{}", record.to_json());
                        } else {
                            say!("{}", table::Row(record));
                        }
                    }
                    if let Some(mark) = mark {
                        eprintln!("samite-bench: {mark}");
                    }
                });
            }
        }
        bar.finish_and_clear();
        Ok(if all_measured { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn comparisons(
        &self,
        benchmark: Benchmark,
        found: &Found,
    ) -> Result<Vec<Comparison>, Box<dyn Error + Send + Sync>> {
        let mut comparisons = Vec::new();
        for transport in &self.transport {
            let mut implementations = Implementation::find(benchmark, transport, found, self.progress)?;
            let names: BTreeSet<_> = implementations.iter().map(|found| found.name.clone()).collect();
            let mut asked_for = self.implementations.iter().chain(&self.baseline);
            if let Some(missing) = asked_for.find(|&name| !names.contains(name)) {
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                let benchmark = benchmark.name();
                return Err(format!(
                    "no implementation {missing} for {benchmark} over {transport}: there is {names}"
                )
                .into());
            }
            if !self.implementations.is_empty() {
                implementations.retain(|found| self.implementations.contains(&found.name));
            }
            comparisons.push(Comparison {
                benchmark,
                points: benchmark.points(&self.ranks, &self.common.bytes, &self.depth),
                implementations,
                runs: self.runs as usize,
                pin: self.common.pin,
                baseline: self.baseline.clone(),
            });
        }
        Ok(comparisons)
    }
}

/// Returns true if all implementations were measured at a point, and false if some failed.
///
/// # Errors
/// The point has no row, and no failure explains why.
fn check_rows<R, E>(benchmark: Benchmark, records: &[R], failed: &[E]) -> Result<bool, String> {
    match (records, failed) {
        ([], []) => Err(format!(
            "nothing was measured: no implementation runs {} over this transport; `--transport` takes others",
            benchmark.name()
        )),
        _ => Ok(failed.is_empty()),
    }
}

fn check_ranks(benchmark: Benchmark, ranks: u32) -> Result<(), String> {
    if benchmark.takes(ranks) {
        return Ok(());
    }
    let least = if benchmark.takes(3) { "2 ranks or more" } else { "2 ranks" };
    Err(format!("{} is measured between {least}, not {ranks}", benchmark.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_rows_is_an_error() {
        let check = |records: &[u8], failed: &[u8]| check_rows(Benchmark::StartUp, records, failed);
        assert!(check(&[], &[]).unwrap_err().contains("start-up"));
        assert_eq!(check(&[], &[1]), Ok(false));
        assert_eq!(check(&[1], &[]), Ok(true));
    }
}
