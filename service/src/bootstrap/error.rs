//! Why a process cannot join, and what to do about it.

use std::io;

use crate::control::ChannelError;

/// Why a process cannot join its job. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Some of the launcher's variables are set and others are not.
    #[error(
        "{present} is set but {missing} is not: start the program with `samite run -n N -- program`, or unset every \
         SAMITE_ variable to run it alone"
    )]
    Incomplete {
        /// A variable that is set.
        present: &'static str,
        /// The first one that is not.
        missing: &'static str,
    },
    /// A variable of the launcher has a value that it never gives.
    #[error(
        "{variable} is `{value}` where {expected} is expected: `samite run` sets it, so leave it alone, or unset every \
         SAMITE_ variable to run the program alone"
    )]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The rank lies outside the job.
    #[error(
        "SAMITE_RANK is {rank} but SAMITE_SIZE is {size}: ranks go from 0 to SAMITE_SIZE - 1; let `samite run` set both"
    )]
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        size: u32,
    },
    /// Another launcher started this process, and samite does not know how to join it.
    #[error(
        "{variable} is set, so {launcher} has started this process, and samite cannot join a job of that launcher: start \
         the program with `samite run -n N -- program` (to run one process alone, unset {variable})"
    )]
    ForeignLauncher {
        /// The variable that gave it away.
        variable: &'static str,
        /// The launcher.
        launcher: &'static str,
    },
    /// The descriptor that the launcher passed is not there.
    #[error(
        "SAMITE_CONTROL names descriptor {fd}, but the launcher's connection is not there: a program between `samite run` \
         and this one has closed it, or SAMITE_CONTROL was copied from another job; start this program by `samite run` \
         itself or through a wrapper that keeps descriptors open"
    )]
    NoConnection {
        /// The number in SAMITE_CONTROL.
        fd: i32,
    },
    /// Another process, or an earlier call in this one, has joined as this rank.
    #[error(
        "rank {rank} of this job has joined already: one process joins as a rank, once; start more ranks with \
         `samite run -n N`, and let wrappers start the program a single time"
    )]
    AlreadyJoined {
        /// The rank in question.
        rank: u32,
    },
    /// The environment says one thing, the launcher's own word another.
    #[error(
        "the environment says rank {rank} of {size} in job {job}, the launcher says otherwise: SAMITE_ variables of two \
         jobs are mixed; leave them as `samite run` sets them"
    )]
    Mismatch {
        /// As in SAMITE_RANK.
        rank: u32,
        /// As in SAMITE_SIZE.
        size: u32,
        /// As in SAMITE_JOB.
        job: String,
    },
    /// Launcher and program speak different versions of the control protocol.
    #[error(
        "this program speaks version {ours} of the launcher's protocol, `samite run` speaks {theirs}: use a `samite` \
         command of the release that the program is built with"
    )]
    Protocol {
        /// This library's version.
        ours: u32,
        /// The launcher's version.
        theirs: u32,
    },
    /// The connection to the launcher failed.
    #[error("the connection to the launcher failed: {0}")]
    Control(#[from] ChannelError),
    /// The operating system refused something.
    #[error("joining the job failed: {0}")]
    System(#[from] io::Error),
}
