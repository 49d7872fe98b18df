//! The command line.

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use samite::launch;

use crate::benchmark::Benchmark;
use crate::compare::Comparison;
use crate::implementation::Implementation;
use crate::instructions;
use crate::matching::MatchingArgs;
use crate::once::{Once, Ours};
use crate::table;

/// Measurements of Samite beside raw libfabric and its peers
///
/// Both ranks run on this machine. They are not bound to cores, unless --pin is given.
#[derive(Debug, Parser)]
#[command(name = "samite-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time of a message one way: half the time to and fro, us
    Latency(OnceArgs),
    /// Bytes for each second, a window of messages in flight: 64, fewer of those above 128 KiB
    Bandwidth(OnceArgs),
    /// Messages for each second, 64 in flight
    Rate(OnceArgs),
    /// Time of a receive while many messages of distinct tags wait, received in reverse, ns
    Depth(DepthArgs),
    /// Run all implementations found in turns, and set their medians side by side
    Compare(CompareArgs),
    /// Count the instructions of hot operations, and hold them to the table in the repository
    Instructions(InstructionsArgs),
    /// The matching engine's structures: the published experiments, and what is asked of the default one
    Matching(MatchingArgs),
    /// Start and watch the ranks; the measurements start it
    #[command(name = launch::AGENT_COMMAND, hide = true)]
    Agent {
        /// The descriptor of the connection to its starter
        connection: i32,
    },
}

/// One run, of one implementation.
#[derive(Debug, Args)]
struct OnceArgs {
    /// Whose loops to run
    #[arg(long = "impl", value_enum, default_value_t = Ours::Samite)]
    implementation: Ours,
    /// What carries the bytes, like `samite-shm` or `tcp;ofi_rxm`; by default what Samite chooses
    #[arg(long, value_name = "T")]
    transport: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct DepthArgs {
    #[command(flatten)]
    once: OnceArgs,
    /// How many messages wait
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    depth: Vec<usize>,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// What to measure
    benchmark: Benchmark,
    /// What carries the bytes; where an implementation has another name for the same, it takes that. May be
    /// repeated
    #[arg(long, value_name = "T", default_values = TRANSPORTS)]
    transport: Vec<String>,
    /// How many messages wait, for `depth`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    depth: Vec<usize>,
    /// Runs of each implementation at each point
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Take only these implementations
    #[arg(long = "impl", value_name = "LIST", value_delimiter = ',')]
    implementations: Vec<String>,
    /// The implementation that the ratios refer to; by default the first found that is not `samite`
    #[arg(long, value_name = "IMPL")]
    baseline: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Lengths of messages
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Bind rank 0 to the first core that this process may use, and rank 1 to the second
    #[arg(long)]
    pin: bool,
    /// Print an object for each figure, one on a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct InstructionsArgs {
    /// Write the counts to the table
    #[arg(long)]
    bless: bool,
    /// Run this scenario, without counting: what is counted does it
    #[arg(long, hide = true, requires = "operations")]
    scenario: Option<String>,
    /// How often
    #[arg(long, hide = true, default_value_t = 1)]
    operations: u64,
}

/// What is compared by default.
const TRANSPORTS: &[&str] = &["samite-shm", "tcp;ofi_rxm"];

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// Whatever stood in the way, ready to be printed.
    pub(crate) fn run(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match self.command {
            Command::Latency(args) => args.run(Benchmark::Latency, &[]),
            Command::Bandwidth(args) => args.run(Benchmark::Bandwidth, &[]),
            Command::Rate(args) => args.run(Benchmark::Rate, &[]),
            Command::Depth(args) => args.once.run(Benchmark::Depth, &args.depth),
            Command::Compare(args) => args.run(),
            Command::Instructions(args) => args.run(),
            Command::Matching(args) => Ok(if args.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            Command::Agent { connection } => {
                launch::serve_as_agent(connection)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl OnceArgs {
    fn run(self, benchmark: Benchmark, depths: &[usize]) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let Self { implementation, transport, common: CommonArgs { bytes, pin, json } } = self;
        let points = benchmark.points(&bytes, depths);
        Once { benchmark, points, implementation, transport, pin, json }.run()
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
        let CommonArgs { bytes, pin, json } = self.common;
        let mut comparisons = Vec::new();
        for transport in &self.transport {
            let mut implementations = Implementation::find(self.benchmark, transport)?;
            let found: BTreeSet<_> = implementations.iter().map(|found| found.name.clone()).collect();
            if let Some(missing) =
                self.implementations.iter().chain(&self.baseline).find(|&name| !found.contains(name))
            {
                let found = found.into_iter().collect::<Vec<_>>().join(", ");
                let benchmark = self.benchmark.name();
                return Err(format!(
                    "no implementation {missing} for {benchmark} over {transport}: there is {found}"
                )
                .into());
            }
            if !self.implementations.is_empty() {
                implementations.retain(|found| self.implementations.contains(&found.name));
            }
            comparisons.push(Comparison {
                points: self.benchmark.points(&bytes, &self.depth),
                implementations,
                runs: self.runs as usize,
                pin,
            });
        }

        // Hidden where nobody watches.
        let bar = ProgressBar::new(comparisons.iter().map(Comparison::len).sum::<usize>() as u64)
            .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")?);
        if !json {
            let (benchmark, metric) = (self.benchmark.name(), self.benchmark.metric());
            let (runs, pinned) = (self.runs, if pin { "pinned" } else { "not pinned" });
            println!("{benchmark}, {metric}: medians of {runs} interleaved runs, {pinned}");
            println!("{}", table::header(true));
        }
        for comparison in &comparisons {
            for records in comparison.run(|| bar.inc(1))? {
                let is_baseline = |name: &str| match &self.baseline {
                    Some(baseline) => name == baseline,
                    None => name != "samite",
                };
                let baseline = records.iter().find(|record| is_baseline(&record.implementation));
                bar.suspend(|| {
                    for record in &records {
                        if json {
                            println!("{}", record.to_json());
                        } else {
                            println!("{}", table::Row::new(record, baseline));
                        }
                    }
                });
            }
        }
        bar.finish_and_clear();
        Ok(ExitCode::SUCCESS)
    }
}
