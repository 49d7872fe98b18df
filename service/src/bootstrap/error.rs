//! The reasons why a process cannot join, with their fixes.

use std::io;

use samite_control::ChannelError;

/// An error of a lower layer: the cause of a [`Refusal`], whose text includes the error's text.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a process cannot join its job. Its message names a fix; [`kind`](Self::kind) is for programs.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BootstrapError(#[from] Refusal);

/// The kind of a [`BootstrapError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BootstrapErrorKind {
    /// Variables of a launcher are missing, malformed, or of two jobs.
    Environment,
    /// The launcher is not supported, or the variables of several launchers are set, so that it cannot be determined
    /// which of them started the process.
    UnsupportedLauncher,
    /// This process, or another process of the same rank, has joined the job before.
    AlreadyJoined,
    /// The launcher or the rendezvous cannot be reached, refuses this process, or closed the connection.
    Launcher,
    /// The launcher or another rank uses another version of Samite.
    Version,
    /// A system call failed.
    System,
}

impl BootstrapError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> BootstrapErrorKind {
        use BootstrapErrorKind as Kind;
        match self.0 {
            Refusal::Incomplete { .. }
            | Refusal::Malformed { .. }
            | Refusal::RankOutOfRange { .. }
            | Refusal::PmixRank { .. }
            | Refusal::Sizes { .. }
            | Refusal::Mismatch { .. } => Kind::Environment,
            Refusal::ForeignLauncher { .. } | Refusal::SeveralLaunchers { .. } => Kind::UnsupportedLauncher,
            Refusal::JoinedBefore | Refusal::AlreadyJoined { .. } => Kind::AlreadyJoined,
            Refusal::Pmix(_)
            | Refusal::NoRendezvous { .. }
            | Refusal::RefusedByRendezvous { .. }
            | Refusal::NoPmi { .. }
            | Refusal::Pmi(_)
            | Refusal::Exchange { .. }
            | Refusal::NoConnection { .. }
            | Refusal::Control(_) => Kind::Launcher,
            Refusal::Stranger { .. } | Refusal::Protocol { .. } => Kind::Version,
            Refusal::System(_) => Kind::System,
        }
    }
}

/// The reason why a process cannot join its job, with the facts for its message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Some of the launcher's variables are set and others are not.
    #[error("{present} is set but {missing} is not: {fix}")]
    Incomplete {
        /// A variable that is set.
        present: &'static str,
        /// The first variable that is missing.
        missing: &'static str,
        /// The fix.
        fix: &'static str,
    },
    /// A variable has an invalid value.
    #[error("{variable} is `{value}`, but must be {expected}: {fix}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// The variable's value.
        value: String,
        /// The valid values.
        expected: &'static str,
        /// The fix.
        fix: &'static str,
    },
    /// The rank lies outside the job.
    #[error(
        "{rank_variable} is {rank} but {size_variable} is {size}: ranks go from 0 to {size_variable} - 1; give each process \
         its own, or let the launcher set both"
    )]
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        size: u32,
        /// The source of the rank.
        rank_variable: &'static str,
        /// The source of the number of ranks.
        size_variable: &'static str,
    },
    /// Another launcher started this process, and samite does not support it.
    #[error(
        "{variable} is set, so {launcher} has started this process, and samite cannot join a job of that launcher: {fix} \
         (to run one process alone, set SAMITE_LAUNCHER=none)"
    )]
    ForeignLauncher {
        /// The variable by which the launcher was recognized.
        variable: &'static str,
        /// The launcher.
        launcher: &'static str,
        /// The way to start the program instead.
        fix: &'static str,
    },
    /// Two launchers have set their variables.
    #[error(
        "{first} is set by one launcher and {second} by another, and samite cannot tell which of them has started this \
         process: set SAMITE_LAUNCHER to `pmi` or `pmix`, or unset the variables of the other one"
    )]
    SeveralLaunchers {
        /// A variable of the first launcher.
        first: &'static str,
        /// A variable of the second launcher.
        second: &'static str,
    },
    /// The launcher's PMIx server cannot be used.
    #[error(
        "joining the job over PMIx failed: {0}; the library is that of the launcher: Debian's package libpmix2, or below \
         the folder in PMIX_PREFIX (or start it with `samite run -n N -- program`)"
    )]
    Pmix(#[source] Source),
    /// The environment and the PMIx server disagree.
    #[error(
        "PMIX_RANK is {variable}, and the launcher says that this is rank {rank} of {size}: variables of two jobs are \
         mixed; leave them as the launcher sets them"
    )]
    PmixRank {
        /// The value of `PMIX_RANK`.
        variable: u32,
        /// The server's value.
        rank: u32,
        /// The server's number of ranks.
        size: u32,
    },
    /// The rendezvous cannot be reached.
    #[error(
        "no rendezvous at {address} within {seconds} s: {why}. Rank 0 opens it there when it starts, or `samite rendezvous` \
         does: see that one of them runs, that the name leads to its host from here, that the port is open, and that no \
         other program has it"
    )]
    NoRendezvous {
        /// The host and port of the rendezvous.
        address: String,
        /// The time spent on attempts to connect.
        seconds: f64,
        /// The last error.
        why: String,
    },
    /// The rendezvous refuses this process.
    #[error("the rendezvous at {address} rejected this process: {why}")]
    RefusedByRendezvous {
        /// Host and port.
        address: String,
        /// The rendezvous's own text, with the fix.
        why: String,
    },
    /// This process has joined before.
    #[error("this process has joined its job already: `samite::init` is called once")]
    JoinedBefore,
    /// The descriptor that a PMI launcher passed is not there.
    #[error(
        "PMI_FD names descriptor {fd}, but the launcher's connection is not there: either this process or the one that \
         started it has joined as this rank already, which is possible only once, or a wrapper has closed the descriptor; let the \
         launcher start this program itself"
    )]
    NoPmi {
        /// The number in `PMI_FD`.
        fd: u32,
    },
    /// The PMI launcher did not answer the questions for this process's rank, the number of ranks or their hosts.
    #[error("joining the job over PMI failed: {0} (or start it with `samite run -n N -- program`)")]
    Pmi(#[source] Source),
    /// The ranks cannot exchange their addresses.
    #[error(
        "exchanging addresses over {launcher} failed: {source} (or start it with `samite run -n N -- program`)"
    )]
    Exchange {
        /// The launcher's protocol.
        launcher: &'static str,
        /// The error.
        source: Source,
    },
    /// The entry that a rank has published is malformed.
    #[error(
        "the entry that rank {rank} has published over {launcher} is not of this release of samite: build every program of the job \
         with the same one"
    )]
    Stranger {
        /// The launcher's protocol.
        launcher: &'static str,
        /// The rank.
        rank: u32,
    },
    /// This process and rank 0 expect different numbers of ranks.
    #[error(
        "this process expects {ours} ranks, but rank 0 has published {theirs} over {launcher}: \
         variables of two jobs are mixed; leave them as the launcher sets them"
    )]
    Sizes {
        /// The launcher's protocol.
        launcher: &'static str,
        /// The number of ranks by this process's variables.
        ours: u32,
        /// Rank 0's number.
        theirs: u32,
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
    /// Another process, or an earlier call in this process, has joined as this rank.
    #[error(
        "rank {rank} of this job has joined already: one process joins as a rank, once; start more ranks with \
         `samite run -n N`, and let wrappers start the program a single time"
    )]
    AlreadyJoined {
        /// The rank.
        rank: u32,
    },
    /// The environment and the launcher disagree.
    #[error(
        "the environment says rank {rank} of {size} in job {job}, the launcher says otherwise: SAMITE_ variables of two \
         jobs are mixed; leave them as `samite run` sets them"
    )]
    Mismatch {
        /// The value of SAMITE_RANK.
        rank: u32,
        /// The value of SAMITE_SIZE.
        size: u32,
        /// The value of SAMITE_JOB.
        job: String,
    },
    /// Launcher and program speak different versions of the control protocol.
    #[error(
        "this program speaks version {ours} of the launcher's protocol, `samite run` speaks {theirs}: use a `samite` \
         command of the release that the program is built with"
    )]
    Protocol {
        /// The version of this library.
        ours: u32,
        /// The launcher's version.
        theirs: u32,
    },
    /// The connection to the launcher failed.
    #[error(
        "the connection to the launcher failed: {0}: see what `samite run` says, and whether something else writes to the \
         descriptor in SAMITE_CONTROL"
    )]
    Control(#[source] Source),
    /// A system call failed.
    #[error("joining the job failed: {0}; `samite doctor` says what this host lacks")]
    System(#[from] io::Error),
}

// These are functions and not implementations of `From`, which would show users the types of the layers below.
impl Refusal {
    pub(crate) fn pmi(error: impl Into<Source>) -> Self {
        Self::Pmi(error.into())
    }
    pub(crate) fn pmix(error: impl Into<Source>) -> Self {
        Self::Pmix(error.into())
    }
    pub(crate) fn control(error: ChannelError) -> Self {
        Self::Control(error.into())
    }
}
