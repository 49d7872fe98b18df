//! Runs job after job and sums up their results.

use std::error::Error;
use std::time::{Duration, Instant};

use samite_fabric::SplitMix64;
use serde::Serialize;

use crate::Together;
use crate::job::{Job, Outcome};

/// The jobs to run, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Transport of the messages, like `samite-shm` or `tcp;ofi_rxm`; `route` is Samite's default choice
    #[arg(long, value_name = "T", default_value = "route")]
    transport: String,
    /// Stop after M minutes
    #[arg(long, value_name = "M", default_value_t = 2.0)]
    minutes: f64,
    /// Stop after N faults
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    faults: u64,
    /// Kill ranks during collective calls
    #[arg(long)]
    collectives: bool,
    /// Kill ranks during epochs of windows
    #[arg(long, conflicts_with = "collectives")]
    rma: bool,
    /// Seed of the first job; later jobs use the numbers after it. By default random
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

impl Options {
    /// Returns the calls that the ranks of a job make together, if they make such calls.
    fn together(&self) -> Option<Together> {
        match self {
            Self { collectives: true, .. } => Some(Together::Collectives),
            Self { rma: true, .. } => Some(Together::Rma),
            _ => None,
        }
    }
}

/// The sums over all jobs.
#[derive(Debug, Default, Serialize)]
struct Summary {
    transport: String,
    /// The seed of the first job. Each later job has the next number.
    seed: u64,
    jobs: u64,
    faults: u64,
    killed: u64,
    stopped: u64,
    restarted: u64,
    hangs: u64,
    wrong: u64,
    leaks: u64,
    other_troubles: u64,
    messages: u64,
    bytes: u64,
    comms: u64,
    failed_creations: u64,
    seconds: f64,
    /// Time from a kill to the error at a survivor that was not stopped meanwhile, in ms: median, 99th percentile,
    /// maximum.
    error_ms: Option<(f64, f64, f64)>,
    /// Time from the detection of a failure to the grant of a lock that was awaited then, in ms: median, 99th
    /// percentile, maximum.
    lock_ms: Option<(f64, f64, f64)>,
}

/// The largest median time from the detection of a failure to the grant of an awaited lock. A single grant may be later
/// on a machine with more ranks than cores.
const PASSING_MS: f64 = 50.0;

/// The run stops after this number of jobs with trouble.
const TROUBLED_MAX: u32 = 20;

/// Runs jobs. Returns true if all went well.
///
/// # Errors
/// If no job can be started.
pub(crate) fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let seed = options.seed.unwrap_or_else(|| SplitMix64::from_entropy().next_u64() >> 32);
    let begin = Instant::now();
    let end = begin + Duration::try_from_secs_f64(options.minutes * 60.0)?;
    let mut summary = Summary { transport: options.transport.clone(), seed, ..Summary::default() };
    let (mut delays, mut passed) = (Vec::new(), Vec::new());
    let mut troubled = 0;
    while summary.jobs == 0 || Instant::now() < end && summary.faults < options.faults {
        if troubled >= TROUBLED_MAX {
            break;
        }
        let outcome = Job::start(seed + summary.jobs, &options.transport, options.together())?.run()?;
        println!("{}", serde_json::to_string(&outcome)?);
        delays.extend_from_slice(&outcome.delays_ns);
        passed.extend_from_slice(&outcome.passed_ns);
        troubled += u32::from(!outcome.is_well());
        summary.add(&outcome);
    }
    summary.seconds = begin.elapsed().as_secs_f64();
    (summary.error_ms, summary.lock_ms) = (spread_ms(delays), spread_ms(passed));
    println!("{}", serde_json::to_string(&summary)?);
    let is_prompt = summary.lock_ms.is_none_or(|(median, ..)| median <= PASSING_MS);
    Ok(is_prompt && summary.hangs + summary.wrong + summary.leaks + summary.other_troubles == 0)
}

/// Returns the median, the 99th percentile and the maximum of times, in milliseconds.
fn spread_ms(mut times_ns: Vec<u64>) -> Option<(f64, f64, f64)> {
    times_ns.sort_unstable();
    let at = |share: f64| times_ns[((times_ns.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    (!times_ns.is_empty()).then(|| (at(0.5), at(0.99), at(1.0)))
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.jobs += 1;
        self.faults += outcome.killed + outcome.stopped;
        self.killed += outcome.killed;
        self.stopped += outcome.stopped;
        self.restarted += outcome.restarted;
        self.hangs += outcome.hangs.len() as u64;
        self.wrong += outcome.wrong.len() as u64;
        self.leaks += outcome.leaks.len() as u64;
        self.other_troubles += outcome.other_troubles.len() as u64;
        self.messages += outcome.messages;
        self.bytes += outcome.bytes;
        self.comms += outcome.comms;
        self.failed_creations += outcome.failed_creations;
    }
}
