//! The `samite` command.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use samite::launch::{self, AGENT_COMMAND, OnFailure, Options, RANKS_MAX};

/// A message-passing runtime over libfabric
#[derive(Debug, Parser)]
#[command(name = "samite", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a program as the ranks of a job on this machine
    ///
    /// The exit code is that of the first rank that failed (128 + signal if it was killed), 124 after a
    /// timeout, 127 if the program is not found, and 0 if no rank failed. Rank 0 reads standard input unless
    /// that is a terminal; the others read nothing. Signals are forwarded to all ranks; a second interrupt
    /// kills them.
    Run(Run),
    /// Start and watch the ranks of a node; `samite run` starts it
    #[command(name = AGENT_COMMAND, hide = true)]
    Agent {
        /// The descriptor of the connection to `samite run`
        connection: i32,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// How many ranks to start
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
    ranks: u32,
    /// The transport for the ranks to use, like `samite-shm` or `tcp;ofi_rxm`
    #[arg(long, value_name = "T")]
    transport: Option<String>,
    /// Set a variable for the ranks; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// End the job after S seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Begin each line of output with `[rank] `
    #[arg(long)]
    prefix: bool,
    /// What to do when a rank fails
    #[arg(long, value_enum, default_value_t = OnFailure::End)]
    on_failure: OnFailure,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(run) => launch::run(run.into()),
        Command::Agent { connection } => launch::serve_as_agent(connection).map(|()| 0),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "samite: {error}");
            error.exit_code().into()
        }
    }
}

impl From<Run> for Options {
    fn from(run: Run) -> Options {
        let mut program = run.program.into_iter();
        Options {
            ranks: run.ranks,
            transport: run.transport,
            env: run.env,
            timeout: run.timeout,
            prefix: run.prefix,
            on_failure: run.on_failure,
            program: program.next().unwrap_or_default(),
            args: program.collect(),
        }
    }
}

fn ranks(text: &str) -> Result<u32, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    ranks.ok_or_else(|| format!("a job has at least 1 rank and at most {RANKS_MAX}"))
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a variable is given as NAME=VALUE".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a timeout is a number of seconds above 0".to_owned())
}
