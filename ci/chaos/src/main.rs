//! Runs jobs of real processes with mixed traffic and injects faults: kills ranks with SIGKILL, one or several at the
//! same time, from their first instruction on, or stops and continues them. The survivors check each received byte,
//! finish every operation, report the right failures, and leave nothing behind. About one job in three restarts the
//! killed ranks and checks that no message of an earlier incarnation reaches a later one.
//!
//! Beside the traffic of the world ([`traffic`], [`restarts`]) the ranks make and drop derived communicators, and
//! exchange messages there in all modes ([`derived`]). The driver compares the ends of their creations ([`creations`]).
//!
//! With `--collectives` or `--rma`, jobs of 8 ranks make collective calls ([`collectives`]) or open epochs of windows
//! ([`windows`]) instead, and one or two ranks are killed. The survivors go on together ([`survivors`]).
//!
//! This program has two parts. `run` is the driver ([`driver`]): it starts `samite run` for each job and chooses the
//! faults from a seed. `rank` is one rank of a job ([`rank`]), whose traffic follows from the same seed. The kernel's
//! scheduler decides the timing, so a seed repeats the plan but not the exact run.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
#![expect(clippy::disallowed_methods, reason = "it starts processes and watches them with the clock")]

mod collectives;
mod content;
mod creations;
mod derived;
mod driver;
mod job;
mod rank;
mod report;
mod restarts;
mod survivors;
mod traffic;
mod watchdog;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kills and stops the ranks of jobs under traffic.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs job after job
    Run(driver::Options),
    /// Runs one rank of a job
    #[command(hide = true)]
    Rank {
        /// Seed of its traffic
        #[arg(long)]
        seed: u64,
        /// Folder in which the driver announces the end of the job
        #[arg(long)]
        dir: PathBuf,
        /// The time at which the job began
        #[arg(long)]
        began_ns: u64,
        /// Killed ranks are restarted
        #[arg(long)]
        returns: bool,
        /// It makes these calls instead of other traffic
        #[arg(long, value_enum)]
        together: Option<Together>,
    },
}

/// Calls that all ranks of a job make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Together {
    /// Collective operations
    Collectives,
    /// Epochs of windows
    Rma,
}

/// Lets receivers read long messages in the sender's memory, unless the driver disables it.
#[global_allocator]
static HEAP: samite::Heap = samite::Heap;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => driver::run(&options),
        Command::Rank { seed, dir, together: Some(together), .. } => {
            rank::run_together(together, seed, &dir).map(|()| true)
        }
        Command::Rank { seed, dir, began_ns, returns, .. } => {
            rank::run(seed, &dir, began_ns, returns).map(|()| true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("samite-chaos: {error}");
            ExitCode::FAILURE
        }
    }
}
