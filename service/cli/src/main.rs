//! The `samite` command.

#![forbid(unsafe_code)]

mod command;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use samite_control::liveness::DETECTION_MIN;
use samite_control::{Bind, REMOTE_SHELL_DEFAULT, Settings, detection_time, rendezvous};
use samite_launch::{
    self as launch, AGENT_COMMAND, ExitCodeOf, Host, LaunchError, OnFailure, Options, RANKS_MAX, Remote,
    SUPERVISOR_COMMAND, Stats,
};

use crate::command::doctor::{Doctor, SELF_TEST_COMMAND};
use crate::command::info::Info;
use crate::command::jobs::Ps;
use crate::command::top::Top;

/// A message-passing runtime over libfabric
#[derive(Debug, Parser)]
#[command(name = "samite", arg_required_else_help = true, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Print the versions of samite and of libfabric
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a program as the ranks of a job, on this machine or on several hosts
    ///
    /// The exit code is that of the first rank that failed (128 + signal if it was killed), or of rank 0 with
    /// `--exit-code rank0`; 124 after a timeout; 127 if the program is not found; 1 if the output cannot be written;
    /// and 0 if no rank failed. Rank 0 reads standard input (from a terminal only while the job is in the foreground);
    /// the other ranks read nothing. Signals are forwarded to all ranks; a second interrupt kills them.
    Run(Box<Run>),
    /// Serve as the meeting point of the ranks of one job, which have this address in SAMITE_RENDEZVOUS
    ///
    /// Without this command rank 0 does so itself. Exits when all ranks have exited, with code 1 if one of them failed.
    Rendezvous {
        /// The number of ranks to wait for
        #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
        ranks: u32,
        /// The address to listen at, like `0.0.0.0:7000`
        #[arg(value_name = "IP:PORT", value_parser = listening)]
        address: SocketAddr,
    },
    /// List your jobs that `samite run` runs on this host
    Ps(Ps),
    /// Show the activity of the ranks of a job: rates, queues, and the rank that each waits for
    ///
    /// A rank answers when it waits or polls. While it computes, its figures are as old as `age` says. On a terminal
    /// you can sort the ranks and follow the selected one to the rank that it waits for; the last line lists the keys.
    Top(Top),
    /// Show the transports of this host, the default choice, and all settings
    Info(Info),
    /// Check this host for anything that prevents or slows down jobs, and name the fixes
    ///
    /// Each check passes, warns or fails, with the fix. The exit code is 1 if one failed, else 0.
    Doctor(Doctor),
    /// Run one of two ranks that exchange messages: `samite run -n 2 --hosts a:1,b:1 -- samite self-test`
    ///
    /// `samite doctor` tests each transport of this host with it.
    #[command(name = SELF_TEST_COMMAND)]
    SelfTest,
    /// Print completions for a shell; save them where the shell looks for them
    Completions { shell: Shell },
    /// Print the manual page, or write one for each subcommand into a directory
    Man { directory: Option<PathBuf> },
    /// Start and watch the ranks of a node; `samite run` starts it
    #[command(name = AGENT_COMMAND, hide = true)]
    Agent {
        /// The descriptor of the connection to `samite run`
        connection: i32,
    },
    /// Start and watch the agent of a host; `samite run --hosts` starts it, through the remote shell
    #[command(name = SUPERVISOR_COMMAND, hide = true)]
    Supervisor,
}

#[derive(Debug, Args)]
struct Run {
    /// The number of ranks to start
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
    ranks: u32,
    /// Start the ranks on these hosts, over ssh; `:SLOTS` limits the number of ranks on a host
    ///
    /// Each host runs consecutive ranks, in the given order. On every host the program, the `samite` command and the
    /// current directory must have the same paths. The variables SAMITE_* and FI_* are set as here.
    #[arg(long, value_name = "HOST[:SLOTS],…", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// Read the hosts from a file: one host a line, `HOST`, `HOST:SLOTS` or `HOST slots=SLOTS`
    #[arg(long, value_name = "FILE", conflicts_with = "hosts", value_parser = hostfile, value_hint = ValueHint::FilePath)]
    hostfile: Option<Hostfile>,
    /// The remote shell, with its options
    #[arg(long, value_name = "CMD", env = "SAMITE_SSH", default_value = REMOTE_SHELL_DEFAULT)]
    ssh: String,
    /// The address of this host for the other hosts; by default the one from which it would send to them
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// The time within which a dead or unreachable host is detected, in seconds, 0.2 or more
    ///
    /// A network cut of this length is always detected, and one shorter than a quarter of it never.
    #[arg(long, value_name = "S", env = "SAMITE_DETECTION_TIME", value_parser = detection, default_value = "10")]
    detection_time: Duration,
    /// Bind each rank to a core of its own, or to the cores of a NUMA node, or to none
    ///
    /// Neighbouring ranks get neighbouring cores. Needs libhwloc on every host.
    #[arg(long, value_name = "core|numa|none", default_value = "none", value_parser = one_of::<Bind>(&["core", "numa", "none"]))]
    bind: Bind,
    /// The transport for the ranks to use, like `samite-shm` or `tcp;ofi_rxm`
    #[arg(long, value_name = "T", value_parser = one_of::<String>(&["samite-shm", "tcp;ofi_rxm", "verbs;ofi_rxm", "efa", "cxi", "psm3"]))]
    transport: Option<String>,
    /// Set a variable for the ranks; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// End the job after S seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Start each line of output with `[rank] `
    #[arg(long)]
    prefix: bool,
    /// Print each rank's statistics at the end, on standard error; with FILE, write it there as JSON
    ///
    /// Messages, bytes, messages that came before their receive, the longest queue of those, and the time spent
    /// waiting. A file whose name ends in .html becomes a page with a plot of the traffic between ranks.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,
    /// What to do when a rank fails: `end` the job, `continue` without it, or `restart` it, at most N times (default 3)
    ///
    /// A rank fails if it is killed, panics, or exits with a code other than 0. The first restart is immediate; the
    /// next ones follow after a pause that doubles from 0.1 s to 10 s.
    #[arg(long, value_name = "end|continue|restart[=N]", default_value = "end", value_parser = one_of::<OnFailure>(&["end", "continue", "restart"]))]
    on_failure: OnFailure,
    /// Whose exit code becomes the job's: that of the rank that failed first, or that of rank 0 in any case
    ///
    /// A timeout gives 124 and a second interrupt 130 with either choice.
    #[arg(long, value_name = "first-failed|rank0", default_value = "first-failed", value_parser = one_of::<ExitCodeOf>(&["first-failed", "rank0"]))]
    exit_code: ExitCodeOf,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let Cli { version, command } = Cli::parse_from(arguments(std::env::args_os()));
    let Some(command) = command.filter(|_| !version) else { return command::manual::version().into() };
    let told = match command {
        Command::Run(run) => return launched(launch::run((*run).into())),
        Command::Agent { connection } => return launched(launch::serve_as_agent(connection).map(|()| 0)),
        Command::Supervisor => return launched(launch::serve_as_supervisor()),
        Command::Doctor(what) => Ok(command::doctor::doctor(&what)),
        Command::Rendezvous { ranks, address } => serve_rendezvous(address, ranks),
        Command::SelfTest => command::doctor::self_test_rank(),
        Command::Ps(what) => command::jobs::ps(&what),
        Command::Top(what) => command::top::top(&what),
        Command::Info(what) => command::info::info(&what),
        Command::Completions { shell } => Ok(command::manual::completions(shell, Cli::command())),
        Command::Man { directory } => command::manual::man(directory.as_deref(), Cli::command())
            .map_err(|error| format!("writing the pages: {error}")),
    };
    match told {
        Ok(code) => code.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "samite: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments. Replaces `-np` of `samite run` by `-n`, because users of mpiexec are used to `-np`. Arguments
/// after the program's name belong to the program and are unchanged.
fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut given: Vec<OsString> = given.collect();
    if given.get(1).is_none_or(|command| command != "run") || !given.iter().any(|argument| argument == "-np")
    {
        return given;
    }
    let cli = Cli::command();
    // Before the program, an argument is an option or the value of the previous option.
    let mut is_value = false;
    for argument in &mut given[2..] {
        match () {
            () if is_value => is_value = false,
            () if argument == "--" || !argument.as_encoded_bytes().starts_with(b"-") => break,
            () => {
                if argument == "-np" {
                    *argument = "-n".into();
                }
                is_value = is_before_its_value(argument, &cli);
            }
        }
    }
    given
}

/// Returns true if this option of `samite run` takes the next argument as its value.
fn is_before_its_value(option: &OsStr, cli: &clap::Command) -> bool {
    let mut known = cli.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let is_meant = |known: &clap::Arg| {
        known.get_short().is_some_and(|short| *option == *format!("-{short}"))
            || known.get_long().is_some_and(|long| *option == *format!("--{long}"))
    };
    known.any(|known| is_meant(known) && known.get_action().takes_values() && !known.is_require_equals_set())
}

fn serve_rendezvous(address: SocketAddr, ranks: u32) -> Result<u8, String> {
    let settings = Settings::from_environment().map_err(|error| error.to_string())?;
    let failed = rendezvous::serve(address, ranks, &settings).map_err(|error| match error.kind() {
        // The error says what to do.
        ErrorKind::TimedOut => format!("the rendezvous at {address} ends: {error}"),
        _ => format!(
            "no rendezvous can be opened at {address}: {error}. It takes an address of this host, or 0.0.0.0 for all of \
             them, and a port that is free and may be opened"
        ),
    })?;
    for rank in &failed {
        let _ = writeln!(std::io::stderr(), "samite rendezvous: rank {rank} failed");
    }
    Ok(u8::from(!failed.is_empty()))
}

fn launched(outcome: Result<u8, LaunchError>) -> ExitCode {
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
        let hosts = run.hostfile.map_or(run.hosts, |Hostfile(hosts)| hosts);
        let shell = run.ssh.split_whitespace().map(str::to_owned).collect();
        let remote = Remote { hosts, shell, address: run.address };
        let options = Options::new(run.ranks, program.next().unwrap_or_default());
        Options {
            remote: Some(remote).filter(|remote| !remote.hosts.is_empty()),
            detection: run.detection_time,
            bind: run.bind,
            transport: run.transport,
            env: run.env,
            timeout: run.timeout,
            prefix: run.prefix,
            stats: run.stats.map(|file| file.map_or(Stats::Table, Stats::File)),
            on_failure: run.on_failure,
            exit_code: run.exit_code,
            args: program.collect(),
            ..options
        }
    }
}

/// The hosts of a file.
#[derive(Debug, Clone)]
struct Hostfile(Vec<Host>);

fn hostfile(path: &str) -> Result<Hostfile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    match Host::read_all(&text)? {
        hosts if hosts.is_empty() => Err("it names no host".to_owned()),
        hosts => Ok(Hostfile(hosts)),
    }
}

fn detection(text: &str) -> Result<Duration, String> {
    detection_time(text)
        .ok_or_else(|| format!("it is a number of seconds, {} or more", DETECTION_MIN.as_secs_f64()))
}

fn listening(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is an address of this host and a port, like `0.0.0.0:7000`".to_owned())
}

fn ranks(text: &str) -> Result<u32, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    ranks.ok_or_else(|| format!("a job has at least 1 rank and at most {RANKS_MAX}, as in `-n 4`"))
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

/// Returns a parser that uses the `FromStr` of the value's type, and offers some values to the shell for completion.
fn one_of<T>(values: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    Offering { values, parse: StringValueParser::new().try_map(|text| text.parse::<T>()) }
}

/// A parser with values that the shell offers. Other values may be valid too.
#[derive(Clone)]
struct Offering<P> {
    values: &'static [&'static str],
    parse: P,
}

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().map(|&value| PossibleValue::new(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn np_is_n_before_the_program_only() {
        let of = |text: &str| {
            let told = arguments(text.split(' ').map(OsString::from));
            told.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(of("samite run -np 4 p -np 4"), "samite run -n 4 p -np 4");
        assert_eq!(of("samite run --env A=1 --prefix -np 4 p"), "samite run --env A=1 --prefix -n 4 p");
        assert_eq!(of("samite run -n 4 -- p -np"), "samite run -n 4 -- p -np");
        // After the last of these options, which takes no separate value, the next argument is the program.
        for options in
            ["-n4", "--ranks=4", "-n 4 --prefix", "-n 4 --stats", "--prefix --stats=f -n 4 --env=A=1"]
        {
            let all = format!("samite run {options} p -np 4");
            assert_eq!(of(&all), all);
        }
        assert_eq!(of("samite run --hosts -np -np 4 p"), "samite run --hosts -np -n 4 p");
        assert_eq!(of("samite top -np"), "samite top -np");
    }

    #[test]
    fn completions_offer_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "samite", &mut script);
            let script = String::from_utf8(script).unwrap();
            for value in ["samite-shm", "continue", "numa"] {
                assert!(script.contains(value), "{shell} {value}");
            }
        }
    }
}
