//! Runs seeds of the simulation on all cores, and prints at once how to replay the first seeds that fail.
//!
//! A run executes the whole stack of N ranks in one thread: the engines of `samite-p2p` over the port `sim` of
//! `samite-fabric`, with random traffic and faults, checked by an oracle ([`ledger`]). Everything follows from the
//! seed.

#![forbid(unsafe_code)]

mod collectives;
mod comms;
mod ledger;
mod parts;
mod rank;
mod run;
mod windows;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use run::{Summary, run};

/// Simulates ranks from seeds.
#[derive(Parser)]
struct Arguments {
    /// Number of seeds to run.
    #[arg(default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(default_value_t = 0)]
    first: u64,
    /// Runs as many seeds as it takes to reach N faults.
    #[arg(long, value_name = "N")]
    faults: Option<u64>,
    /// Lets ranks create and close communicators too, with contexts whose numbers have BITS bits, so that they are
    /// reused.
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(3..=32))]
    names: Option<u32>,
    /// Simulates collective calls instead: ranks are killed, and the survivors agree, shrink and go on.
    #[arg(long, conflicts_with = "names")]
    collectives: bool,
    /// Simulates windows instead: random programs of epochs, with kills, cancels and deadlines.
    #[arg(long, conflicts_with_all = ["names", "collectives"])]
    rma: bool,
    /// Number of cores to use; all by default.
    #[arg(long, value_name = "N")]
    cores: Option<NonZero<usize>>,
    /// Runs this seed alone and prints each event.
    #[arg(long)]
    replay: Option<u64>,
}

/// Returns the seeds that failed once. They are the first words of the lines of `seeds.txt`.
fn once_failed() -> impl Iterator<Item = u64> {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        line.split_whitespace().next().and_then(|seed| seed.parse().ok()).expect("a line is a seed")
    })
}

/// One in this many runs is repeated, to check that a run is deterministic.
const TWICE: u64 = 50;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
fn main() -> ExitCode {
    let Arguments { seeds, first, faults, names, collectives, rma, cores, replay } = Arguments::parse();
    let one = |seed, verbose| match (collectives, rma) {
        (true, _) => guarded(|| collectives::run(seed, verbose)),
        (_, true) => guarded(|| windows::run(seed, verbose)),
        _ => guarded(|| run(seed, names, verbose)),
    };
    if let Some(seed) = replay {
        return match one(seed, true) {
            Ok(summary) => {
                println!("seed {seed} passes: {summary:?}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                println!("seed {seed} FAILS: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let names = names.map(|bits| format!("--names {bits} ")).unwrap_or_default();
    let kind = match (collectives, rma) {
        (true, _) => "--collectives ",
        (_, true) => "--rma ",
        _ => "",
    };
    let fails = |sum: &mut Sum, options: &str, seed: u64, error: String| {
        sum.failed += 1;
        if sum.failed <= SHOWN {
            eprintln!("seed {seed} FAILS: {error}");
            eprintln!("  replay it: ci/sim.sh {options}--replay {seed}");
        }
    };
    let mut sum = Sum::default();
    for seed in once_failed() {
        if let Err(error) = guarded(|| run(seed, None, false)) {
            fails(&mut sum, "", seed, error);
        }
    }
    println!("{} seeds that failed once: {} failed", once_failed().count(), sum.failed);
    let (next, sum) = (AtomicU64::new(first), Mutex::new(sum));
    let lock = || sum.lock().expect("no thread panics with it");
    let cores = cores.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let is_enough = |seed: u64| match faults {
        None => seed >= first + seeds,
        Some(faults) => lock().total.faults() as u64 >= faults,
    };
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if is_enough(seed) {
                        break;
                    }
                    let once = one(seed, false);
                    let result = match (once, seed % TWICE == 0) {
                        (Ok(once), true) => match one(seed, false) {
                            Ok(twice) if twice.hash == once.hash => Ok(once),
                            _ => Err("the same seed gives another run".into()),
                        },
                        (once, _) => once,
                    };
                    let mut sum = lock();
                    sum.seeds += 1;
                    match result {
                        Ok(summary) => sum.total.add(&summary),
                        Err(error) => fails(&mut sum, &format!("{names}{kind}"), seed, error),
                    }
                    if sum.seeds.is_multiple_of(LINE) {
                        println!("so far: {}", sum.result(first));
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no thread panics with it");
    println!("{} in all", sum.result(first));
    println!("{:?}", sum.total);
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Failing seeds that are printed.
const SHOWN: usize = 10;
/// The number of seeds between two lines about the seeds so far.
const LINE: u64 = 5000;

/// The seeds so far.
#[derive(Default)]
struct Sum {
    total: Summary,
    seeds: u64,
    failed: usize,
}

impl Sum {
    fn result(&self, first: u64) -> String {
        let Self { total, seeds, failed, .. } = self;
        format!("{seeds} seeds from {first}, {} faults: {failed} failed", total.faults())
    }
}

/// Turns a panic of a run into a failure.
fn guarded(run: impl FnOnce() -> Result<Summary, String>) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

impl Summary {
    /// Adds another run's numbers.
    fn add(&mut self, other: &Self) {
        self.hash ^= other.hash;
        self.virtual_ns += other.virtual_ns;
        self.messages += other.messages;
        self.received += other.received;
        self.truncated += other.truncated;
        self.mistyped += other.mistyped;
        self.rounds += other.rounds;
        self.epochs += other.epochs;
        self.not_delivered += other.not_delivered;
        self.unknown += other.unknown;
        self.unmatched += other.unmatched;
        self.killed += other.killed;
        self.restarted += other.restarted;
        self.paused += other.paused;
        self.cut += other.cut;
        self.left += other.left;
        self.forged += other.forged;
        self.bundles += other.bundles;
        self.created.add(&other.created);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_failed_once_pass() {
        assert!(once_failed().count() > 0);
        for seed in once_failed() {
            assert_eq!(run(seed, None, false).map(|_| ()), Ok(()), "seed {seed}");
        }
        // The news that a rank had closed a communicator overtook its last message of an agreement there. The seed makes
        // another program now, because more operations are drawn. The defect has a test of its own in p2p.
        assert_eq!(collectives::run(200_003_260, false).map(|_| ()), Ok(()));
    }

    #[test]
    fn seeds_pass_and_are_repeatable() {
        let mut total = Summary::default();
        for seed in 0..10 {
            let once = run(seed, None, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            total.add(&once);
            if seed % 5 == 0 {
                assert_eq!(run(seed, None, false).map(|twice| twice.hash), Ok(once.hash), "seed {seed}");
            }
        }
        assert!(total.truncated > 2 && total.mistyped > 2 && total.rounds > 15, "{total:?}");
    }

    #[test]
    fn survivors_of_collective_calls_go_on() {
        let mut total = Summary::default();
        for seed in 0..30 {
            let run = || collectives::run(seed, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let once = run();
            total.add(&once);
            if seed % 10 == 0 {
                assert_eq!(run().hash, once.hash, "seed {seed}");
            }
        }
        assert!(total.killed > 30 && total.created.comms > 30 && total.received > 300, "{total:?}");
    }

    #[test]
    fn windows_have_the_memory_of_a_sequential_program() {
        let mut total = Summary::default();
        for seed in 0..30 {
            let run = || windows::run(seed, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let once = run();
            total.add(&once);
            if seed % 10 == 0 {
                assert_eq!(run().hash, once.hash, "seed {seed}");
            }
        }
        assert!(total.killed > 3 && total.received > 150 && total.messages > 300, "{total:?}");
    }

    #[test]
    fn names_of_contexts_come_round() {
        let mut total = Summary::default();
        for seed in 0..10 {
            total.add(&run(seed, Some(6), false).unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
        assert!(total.created.reused > 15 && total.created.inter > 15, "{total:?}");
    }
}
