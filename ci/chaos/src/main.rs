//! Runs jobs of real processes under all kinds of traffic, and harms them: kills ranks with SIGKILL, one or several at
//! once, from their first instruction on, stops them and lets them go on. The survivors check each byte they receive,
//! end every operation, know who died, and leave nothing behind. In every third job the killed are started again, and
//! nothing of one life may reach another.
//!
//! This program is both: `run` is the driver ([`driver`]), which starts `samite run` for each job and decides from a
//! seed what is done to it; `rank` is one rank of a job ([`rank`]), whose traffic follows from the same seed. When what
//! happens is left to the kernel's scheduler: a seed gives the same plan, and not the same run.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
#![expect(clippy::disallowed_methods, reason = "it starts processes and watches them with the clock")]

mod comeback;
mod content;
mod driver;
mod job;
mod rank;
mod report;
mod traffic;
mod watchdog;

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
    /// Is one rank of a job
    #[command(hide = true)]
    Rank {
        /// What its traffic follows from
        #[arg(long)]
        seed: u64,
        /// Where the driver tells that the job ends
        #[arg(long)]
        dir: PathBuf,
        /// Ranks that are killed are started again
        #[arg(long)]
        returns: bool,
    },
}

/// So that long messages are read where they lie, unless the driver says otherwise.
#[global_allocator]
static HEAP: samite::Heap = samite::Heap;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => driver::run(&options),
        Command::Rank { seed, dir, returns } => rank::run(seed, &dir, returns).map(|()| true),
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
