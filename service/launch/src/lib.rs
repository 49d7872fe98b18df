//! The launcher of jobs: the work of `samite run`.
//!
//! ```text
//!   samite run  ─┬─ agent ── ranks                                  on this host: a pair of sockets
//!  (coordinator) └─ remote shell ── supervisor ── agent ── ranks    on others: TCP, the supervisor connects
//! ```
//! [`run`] is the coordinator process. On each host an *agent* starts the ranks, forwards their output, and keeps the
//! registry of their addresses and exits. The coordinator decides the consequences of a failure, a timeout or a signal,
//! and the agents act. If the connection between coordinator and agent is lost, both sides detect it by themselves: the
//! coordinator reports to all other agents that the ranks of that host have failed, and the agent there kills them.
//!
//! **No process is left behind if the coordinator, a supervisor or an agent is killed.** All three are child
//! subreapers. If the coordinator dies, or is cut off, its connections to the agents fail, and each agent kills every
//! descendant. If an agent dies, the ranks die with it (`PR_SET_PDEATHSIG`). Other processes that the ranks have
//! started are reparented to the coordinator or the supervisor, which kills them.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "timeouts, grace periods and facts of the environment about the caller are the launcher's business"
)]

mod agent;
mod agent_handle;
mod agent_listener;
mod check;
mod coordinator;
mod descendants;
mod failures;
mod hosts;
mod observe;
mod output;
mod place;
mod profile;
mod rank;
mod say;
mod supervisor;
mod terminal;
mod topology;
mod wait;
mod waits;

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::Signal;
use rustix::rand::{GetRandomFlags, getrandom};

pub use agent::serve as serve_as_agent;
pub use coordinator::{descriptors_for, run};
pub use hosts::Host;
pub use observe::{ObserveError, RankView, RunningJob, Snapshot, running_jobs, unsafe_places};
pub use supervisor::serve as serve_as_supervisor;
pub use topology::{Core, NumaNode, Topology, TopologyError};

use samite_control::liveness::DETECTION_DEFAULT;
use samite_control::{Bind, ChannelError};

use self::say::say;

/// Largest number of ranks of a job.
pub const RANKS_MAX: u32 = 4096;

/// The subcommand that makes `samite` an agent. The first argument of the subcommand is the connection's descriptor.
pub const AGENT_COMMAND: &str = "agent";

/// The subcommand that makes `samite` the supervisor of a host.
pub const SUPERVISOR_COMMAND: &str = "supervisor";

/// The exit code of `samite run` after a timeout. timeout(1) returns the same code.
const EXIT_TIMED_OUT: u8 = 124;

/// The exit code if the job's output could not be written, for example on a full disk.
const EXIT_OUTPUT_LOST: u8 = 1;

/// The time for survivors to act on the report of a failure before the job is ended.
const FAREWELL: Duration = Duration::from_millis(500);

/// The time for ranks to act on SIGTERM before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The largest number of turns in which the last messages of an ended process are received. This number of turns reads
/// more than a socket holds.
const LAST_TURNS_MAX: u32 = 64;

/// The signals by which a user or a batch system ends a job.
const ENDING_SIGNALS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// The options of `samite run`.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of ranks.
    pub ranks: u32,
    /// The hosts on which to start the ranks; `None` to start all ranks on this host.
    pub remote: Option<Remote>,
    /// The time within which a crashed or unreachable host is detected, at least
    /// [`DETECTION_MIN`](samite_control::liveness::DETECTION_MIN). An interruption of the network of this length is
    /// always detected. An interruption of less than a quarter of this length is never detected.
    pub detection: Duration,
    /// The part of a host to which each rank is bound.
    pub bind: Bind,
    /// The value of `SAMITE_TRANSPORT` for the ranks.
    pub transport: Option<String>,
    /// Variables to set for the ranks.
    pub env: Vec<(String, String)>,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// Start each line of output with the rank that wrote it.
    pub prefix: bool,
    /// The destination of statistics at the end of the job; `None` for no statistics.
    pub stats: Option<Stats>,
    /// The consequence of a rank's failure for the other ranks.
    pub on_failure: OnFailure,
    /// The rank whose exit code becomes the job's exit code.
    pub exit_code: ExitCodeOf,
    /// The program. A name without a slash is searched in `PATH`.
    pub program: OsString,
    /// The program's arguments.
    pub args: Vec<OsString>,
}

impl Options {
    /// Returns options that start a program as `ranks` ranks on this host, with defaults for all other options.
    pub fn new(ranks: u32, program: impl Into<OsString>) -> Options {
        Options {
            ranks,
            remote: None,
            detection: DETECTION_DEFAULT,
            bind: Bind::None,
            transport: None,
            env: Vec::new(),
            timeout: None,
            prefix: false,
            stats: None,
            on_failure: OnFailure::End,
            exit_code: ExitCodeOf::FirstFailed,
            program: program.into(),
            args: Vec::new(),
        }
    }
}

/// The hosts on which ranks are started, and how to reach them.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The hosts, each once. On each host, the program of this process must be at the same path as here, and the
    /// current directory of this process must exist.
    pub hosts: Vec<Host>,
    /// The remote shell and its options: it is run with the name of a host, a command, and the command's
    /// arguments.
    pub shell: Vec<String>,
    /// The address of the launcher to which the hosts connect. By default each host gets the address from which this
    /// host sends packets to that host.
    pub address: Option<IpAddr>,
}

/// The destination of statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stats {
    /// A table on standard error.
    Table,
    /// A file: an HTML page if its name ends in `.html`, otherwise JSON.
    File(PathBuf),
}

/// The consequence of a rank's failure for the other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// End the job, after a moment for the survivors to act on the report.
    End,
    /// Let the survivors go on.
    Continue,
    /// Restart the rank on the same host, as a new process. The survivors can send to it after the report that the
    /// former process has failed. Restarts after the first follow a pause, which doubles from 0.1 s to 10 s. A rank
    /// that fails more often than `max` times is not restarted again, and neither are the ranks of a lost host. The
    /// survivors go on without such ranks.
    Restart {
        /// The largest number of restarts of each rank.
        max: u32,
    },
}

/// The largest number of restarts of each rank, unless the user gives a number.
const RESTARTS_DEFAULT: u32 = 3;

/// The rank whose exit code becomes the job's exit code. It is 128 + the signal if the rank was killed. A job that was
/// ended by its time limit or by a second interrupt has a code of its own: see [`run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCodeOf {
    /// The rank that failed first. The code is 0 if no rank failed. A failure that was followed by a restart does not
    /// count.
    FirstFailed,
    /// Rank 0. If it was restarted, the code is that of its last process.
    Rank0,
}

/// Parses `first-failed` or `rank0`.
impl FromStr for ExitCodeOf {
    type Err = String;

    fn from_str(text: &str) -> Result<ExitCodeOf, String> {
        match text {
            "first-failed" => Ok(ExitCodeOf::FirstFailed),
            "rank0" => Ok(ExitCodeOf::Rank0),
            _ => Err("it is `first-failed` or `rank0`".to_owned()),
        }
    }
}

/// Parses `end`, `continue`, `restart` or `restart=N`, where N is the largest number of restarts, by default 3.
impl FromStr for OnFailure {
    type Err = String;

    fn from_str(text: &str) -> Result<OnFailure, String> {
        let restart = text.strip_prefix("restart=").map(str::parse);
        match (text, restart) {
            ("end", _) => Ok(OnFailure::End),
            ("continue", _) => Ok(OnFailure::Continue),
            ("restart", _) => Ok(OnFailure::Restart { max: RESTARTS_DEFAULT }),
            (_, Some(Ok(max))) => Ok(OnFailure::Restart { max }),
            _ => Err("it is `end`, `continue`, `restart` or `restart=N`".to_owned()),
        }
    }
}

/// The reason why no job was started, or why it could not be supervised to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Fewer than one rank, or more than the limit.
    #[error("cannot start {0} ranks: give a number from 1 to {RANKS_MAX} with -n")]
    RankCount(u32),
    /// The limit of open descriptors is too low.
    #[error(
        "{ranks} ranks need {needed} open descriptors, but the limit is {limit}: raise it with `ulimit -n {needed}`"
    )]
    Descriptors {
        /// The requested ranks.
        ranks: u32,
        /// The needed number.
        needed: u64,
        /// The limit of this process.
        limit: u64,
    },
    /// The program could not be started.
    #[error("{}", describe_spawn_error(program, *errno))]
    Program {
        /// The program.
        program: String,
        /// The system's error.
        errno: i32,
    },
    /// The hosts have fewer slots than there are ranks.
    #[error(
        "{ranks} ranks do not fit into the {slots} slots of the hosts: name more hosts, or more slots, as in `--hosts a:4,b:4`"
    )]
    Slots {
        /// The requested ranks.
        ranks: u32,
        /// The available slots.
        slots: u32,
    },
    /// The remote shell could not be started.
    #[error("the remote shell `{shell}` cannot be started: {source}; name another with --ssh or SAMITE_SSH")]
    RemoteShell {
        /// The remote shell, as given by the user.
        shell: String,
        /// The system's error.
        source: io::Error,
    },
    /// The remote shell ended before an agent connected.
    #[error(
        "no agent was started on host {host}: `{shell} {host}` {ending}; its output is above. Try `{shell} {host} true`, \
         and see that {program} is there too"
    )]
    NotThere {
        /// The host.
        host: String,
        /// The remote shell.
        shell: String,
        /// The way in which the remote shell ended.
        ending: String,
        /// The program that the remote shell should have started.
        program: String,
    },
    /// Agents did not connect in time.
    #[error(
        "no answer from {hosts} after {seconds} s: can they reach this host at {addresses}? If not, give an address that they \
         can with --address, and open its ports to them"
    )]
    NoAnswer {
        /// The hosts.
        hosts: String,
        /// The time waited.
        seconds: u64,
        /// The addresses to which the hosts should have connected.
        addresses: String,
    },
    /// The coordinator could not be reached from a host.
    #[error(
        "host {host} cannot reach `samite run` ({tried}): give an address that it can with `samite run --address`, and open \
         its ports to it"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// The tried addresses, with the errors.
        tried: String,
    },
    /// The current directory does not exist on a host.
    #[error(
        "host {host} has no directory {directory}, the current directory of `samite run`: {source}; start the job from a directory that exists on every host"
    )]
    Directory {
        /// The directory.
        directory: String,
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The ranks of a host cannot be bound.
    #[error(
        "the ranks cannot be bound on {host} as --bind {bind} demands: {why}; without --bind they run unbound"
    )]
    Bind {
        /// The requested binding.
        bind: Bind,
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// There is no transport of this name.
    #[error("no transport `{name}`: {why}; `samite info` shows those of this host")]
    Transport {
        /// The transport's name, as given by the user.
        name: String,
        /// The reason, with the available names if libfabric has listed them.
        why: String,
    },
    /// A variable for the ranks has an invalid value.
    #[error(transparent)]
    Setting(#[from] samite_control::SettingError),
    /// The connection between coordinator and agent failed.
    #[error("the connection to the agent failed: {0}")]
    Control(#[from] ChannelError),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The launcher's action.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl LaunchError {
    /// Returns the exit code of `samite run`. If the program could not be started, it is the code that a shell returns:
    /// 127 if the program was not found, 126 for other reasons. Otherwise it is 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Program { errno: libc_errno::ENOENT, .. } => 127,
            LaunchError::Program { .. } => 126,
            _ => 1,
        }
    }

    fn system(doing: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
        move |source| LaunchError::System { doing, source }
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

fn describe_spawn_error(program: &str, errno: i32) -> String {
    match errno {
        libc_errno::ENOENT if program.contains('/') => {
            format!("program `{program}` not found (or, if it is a script, its interpreter is not)")
        }
        libc_errno::ENOENT => {
            format!("program `{program}` not found in PATH; give a path with a slash, like `./{program}`")
        }
        libc_errno::EACCES => {
            format!("program `{program}` may not be executed: is it a file with execute permission?")
        }
        libc_errno::ENOEXEC => {
            format!("`{program}` is not a program for this machine, nor a script that begins with `#!`")
        }
        _ => format!("cannot start `{program}`: {}", io::Error::from_raw_os_error(errno)),
    }
}

/// The error numbers of execve(2).
mod libc_errno {
    use rustix::io::Errno;

    pub(super) const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub(super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(super) const ENOEXEC: i32 = Errno::NOEXEC.raw_os_error();
}
