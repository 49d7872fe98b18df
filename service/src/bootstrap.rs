//! Joining a job: this process's rank, the number of ranks, and their addresses.
//!
//! [`Launch::detect`] reads the environment and decides; [`init`](crate::init) joins. The launcher determines how the
//! death of a rank is reported, and the consequence for the job:
//!
//! | started by | reports a death | further consequence |
//! | --- | --- | --- |
//! | `samite run` | the agents, within milliseconds for any process, and within the detection time for a host | the consequence that `--on-failure` selects |
//! | a rendezvous: torchrun, Kubernetes, srun | the rendezvous, when the kernel of its host reports the rank's connection as closed or lost: within the same times, but without the cause | none. If the rendezvous is served by rank 0 (and not by `samite rendezvous`), deaths after the end of rank 0 are reported as under PMI |
//! | PMIx: Open MPI's `mpiexec`, `prterun`, `srun --mpi=pmix` | as under PMI | the launcher ends the job, unless configured otherwise (`prterun --runtime-options continuous`) |
//! | PMI: `mpiexec` of MPICH and Intel MPI, `srun --mpi=pmi2`, `flux run` | for ranks of the same host that this rank has sent to, the kernel; for other ranks the transport, if it notices the death; otherwise an operation ends only at its deadline | the launcher ends the job |
//!
//! Only `samite run` knows how a process ended. Under `samite run` a rank has left in good order if it reported so
//! ([`World::leave`](crate::World::leave)), or if its process exits with code 0 after the world was dropped; any other
//! end is a failure, even after the goodbye. Under the other launchers a rank that drops its world without a panic has
//! left in good order, regardless of its exit code.
//!
//! If a rank gives up a living peer, its agent or the rendezvous informs that peer, so the peer's operations end
//! too. Under PMI and PMIx no connection leads to the peer, and it is not informed.
//!
//! So under `samite run` and a rendezvous an operation without a deadline always ends. Under PMIx and PMI an operation
//! with a rank of another host may wait until the launcher ends the job.
//!
//! The job's secret, unknown to unauthenticated processes, comes in an inherited descriptor, in the launcher's
//! key-value space, or from the rendezvous. A rendezvous gives it to the first process that joins as a rank, so only
//! trusted processes should be able to reach its port.

mod detect;
mod entry;
mod error;
mod job;
mod key_values;
mod pmi;
mod pmix;
mod rendezvous;

use std::ffi::OsString;

pub(crate) use detect::{Detected, Invitation};
#[cfg(fuzzing)]
pub(crate) use entry::Entry;
pub(crate) use error::Refusal;
pub use error::{BootstrapError, BootstrapErrorKind};
pub(crate) use key_values::Candidate;
#[cfg(fuzzing)]
pub(crate) use pmi::read_pmi;
pub(crate) use rendezvous::Met;

/// The way in which a process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launch {
    /// The process was started by `samite run`.
    Run,
    /// The process was started by a launcher that speaks PMI: `mpiexec` of MPICH or Intel MPI (Hydra), `srun
    /// --mpi=pmi2`, `flux run`.
    Pmi,
    /// The process was started by a launcher with a PMIx server: `mpiexec` of Open MPI, `prterun`, `srun --mpi=pmix`.
    Pmix,
    /// The process was started by a launcher that gives each process its rank, the number of ranks, and the address of
    /// a rendezvous.
    Rendezvous,
    /// No launcher started the process: it is a job of one rank.
    Alone,
}

impl Launch {
    /// Determines how this process was started, from the variables that `env` returns, as [`init`](crate::init) does.
    /// This function changes no state, and opens no file or connection.
    ///
    /// The variables of `samite run` have precedence, since it may run inside a job of another launcher. Next come the
    /// launcher that `SAMITE_LAUNCHER` names, `SAMITE_RENDEZVOUS`, and the launcher whose own variables are set.
    ///
    /// # Errors
    /// [`BootstrapError`] if variables of a launcher are missing or malformed, if two launchers have set theirs,
    /// or if the launcher is not supported, so that each process would otherwise form a job of its own.
    ///
    /// ```
    /// use samite::bootstrap::Launch;
    ///
    /// let launch = Launch::detect(&|name| std::env::var_os(name))?;
    /// assert_eq!(launch, Launch::Alone);
    /// # Ok::<(), samite::bootstrap::BootstrapError>(())
    /// ```
    pub fn detect(env: &impl Fn(&str) -> Option<OsString>) -> Result<Launch, BootstrapError> {
        Ok(match Detected::from_variables(env)? {
            Detected::Invited(_) => Launch::Run,
            Detected::Pmi(_) => Launch::Pmi,
            Detected::Pmix(_) => Launch::Pmix,
            Detected::Rendezvous(_) => Launch::Rendezvous,
            Detected::Alone => Launch::Alone,
        })
    }
}
