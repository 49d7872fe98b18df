//! The embedded launcher: what `samite run` does.
//!
//! [`run`] is the front process. It re-executes itself as the *agent* of this node, which starts the ranks,
//! reads their output and is their rendezvous. The front holds the policy (what happens after a failure, on a
//! timeout, on a signal), the agent the mechanism, so that one front can have agents on several nodes.
//!
//! **No process is left, whichever is killed.** Front and agent are both child subreapers. If the front dies
//! its connection to the agent closes, and the agent kills every descendant. If the agent dies, the ranks die
//! with it (`PR_SET_PDEATHSIG`), whatever they had started is reparented to the front, and the front kills
//! that.

#![expect(clippy::disallowed_methods, reason = "timeouts and grace periods are the launcher's business")]

mod agent;
mod descendants;
mod front;
mod output;
mod rank;
mod registry;
mod wait;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

pub use agent::serve as serve_as_agent;
pub use front::run;

use crate::control::ChannelError;

/// The most ranks that one agent starts.
pub const RANKS_MAX: u32 = 4096;

/// The argument by which `samite` knows that it is to be an agent; its own first argument is the connection's
/// number.
pub const AGENT_COMMAND: &str = "agent";

/// The exit code of `samite run` after a timeout, as timeout(1) has it.
const EXIT_TIMED_OUT: u8 = 124;

/// How long survivors may act on the news of a failure before the job is ended.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long ranks may act on SIGTERM before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// What `samite run` is asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of ranks.
    pub ranks: u32,
    /// The value of `SAMITE_TRANSPORT` for the ranks.
    pub transport: Option<String>,
    /// Variables to set for the ranks.
    pub env: Vec<(String, String)>,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// Begin each line of output with its rank.
    pub prefix: bool,
    /// What a rank's failure means for the others.
    pub on_failure: OnFailure,
    /// The program, found as a shell would.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What a rank's failure means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "command", derive(clap::ValueEnum))]
pub enum OnFailure {
    /// End the job, after a moment for the survivors to act on the news
    End,
    /// Let the survivors go on
    Continue,
}

/// Why no job was started, or why it could not be watched to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Fewer than one rank, or more than the limit.
    #[error("cannot start {0} ranks: a job has at least one and at most {RANKS_MAX}")]
    RankCount(u32),
    /// The limit of open descriptors is too low.
    #[error(
        "{ranks} ranks need {needed} open descriptors, but the limit is {limit}: raise it with `ulimit -n {needed}`"
    )]
    Descriptors {
        /// The ranks asked for.
        ranks: u32,
        /// What they need.
        needed: u64,
        /// The limit of this process.
        limit: u64,
    },
    /// The program could not be started.
    #[error("{}", describe_spawn_error(program, *errno))]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        errno: i32,
    },
    /// The connection between front and agent failed.
    #[error("the connection to the agent failed: {0}")]
    Control(#[from] ChannelError),
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What the launcher was doing.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code of `samite run`: as a shell's where the program could not be started, otherwise 1.
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

/// The numbers that execve(2) answers with.
mod libc_errno {
    use rustix::io::Errno;

    pub(super) const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub(super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(super) const ENOEXEC: i32 = Errno::NOEXEC.raw_os_error();
}
