//! Checks the public interface of Samite against the rules of MPI 4.1, over loopback, in simulated networks and over
//! real transports. `ci/conformance.sh` runs it.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod case;
mod cases;
mod over;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use case::{Case, Cases};
use clap::{Parser, Subcommand};
use over::Failures;

#[derive(Parser)]
struct Args {
    /// Print name, section of MPI 4.1 and rule of each case.
    #[arg(long)]
    list: bool,
    /// Use only cases with this text in their name.
    #[arg(long, global = true, default_value = "")]
    filter: String,
    #[command(subcommand)]
    over: Option<Over>,
}

#[derive(Subcommand)]
enum Over {
    /// Ranks as threads of this process.
    Loopback,
    /// Ranks in simulated networks with faults.
    Sim {
        /// Number of seeds for each case.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// Ranks as processes over a transport: one job for all cases, and a job for each case of which ranks end.
    Jobs {
        /// The transport.
        transport: String,
        /// The `samite` command.
        #[arg(long)]
        samite: PathBuf,
    },
    /// This process is a rank of a job that runs all cases in turn.
    #[command(hide = true)]
    InTurn,
    /// This process is a rank of a job for one case.
    #[command(hide = true)]
    Alone {
        /// The name of the case.
        name: String,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut cases = Cases::default();
    cases::add(&mut cases);
    let mut cases = cases.all;
    over::check_names(&cases);
    cases.retain(|case| case.name.contains(&args.filter));
    if args.list {
        // A reader such as `head` may close the pipe before the end.
        let _ = list(&cases);
        return ExitCode::SUCCESS;
    }
    over::catch_panics();
    over::watch();
    let failures = match args.over {
        None | Some(Over::Loopback) => over::loopback(&cases),
        Some(Over::Sim { seeds, first }) => over::sim(&cases, first..first + seeds),
        Some(Over::Jobs { transport, samite }) => over::jobs(&cases, &args.filter, &transport, &samite),
        Some(Over::InTurn) => over::in_turn(&cases),
        Some(Over::Alone { name }) => over::alone(&cases, &name),
    };
    match failures {
        Failures { failed: 0, .. } => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn list(cases: &[Case]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for case in cases {
        writeln!(out, "{:40} {:10} {}", case.name, case.section, case.rule)?;
    }
    writeln!(out, "{} cases", cases.len())
}
