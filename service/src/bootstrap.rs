//! Joining a job: this process's rank, the number of ranks, and their addresses.
//!
//! [`Launch::detect`] reads the environment and decides; [`init`](crate::init) joins. The launcher determines how the
//! death of a rank is reported, and what happens to the job:
//!
//! | started by | reports a death | further consequence |
//! | --- | --- | --- |
//! | `samite run` | the agents, within milliseconds for any process, and within the detection time for a host | as `--on-failure` says |
//! | a rendezvous: torchrun, Kubernetes, srun | the rendezvous's kernel, in the same times, without the cause | none; if rank 0 ran it (not `samite rendezvous`) and ends, as in the last line from then on |
//! | PMIx: Open MPI's `mpiexec`, `prterun`, `srun --mpi=pmix` | as in the last line | the launcher ends the job, unless configured otherwise (`prterun --runtime-options continuous`) |
//! | PMI: `mpiexec` of MPICH and Intel MPI, `srun --mpi=pmi2`, `flux run` | as in the last line | the launcher ends the job |
//! | | for ranks of the same host that this rank has sent to, the kernel; for others the transport, if it notices, and deadlines | |
//!
//! Only `samite run` knows how a process ended. Under it a rank has left in good order if it reported so
//! ([`World::leave`](crate::World::leave)), or if its process exits with code 0 after the world was dropped; any other
//! end is a failure, even after the goodbye. Elsewhere a rank that drops its world without a panic has left in good
//! order, whatever its exit code is.
//!
//! If a rank gives up a living peer, its agent or the rendezvous informs that peer, so the peer's operations end
//! too. Under PMI and PMIx no connection leads to the peer, and it is not informed.
//!
//! So an operation without a deadline always ends under the first two. Under the others this depends, for ranks of
//! other hosts, on the launcher, which ends the job.
//!
//! The job's secret, unknown to unauthenticated processes, comes in an inherited descriptor, in the launcher's
//! key-value space, or from the rendezvous. A rendezvous gives it to the first process that joins as a rank, so only
//! trusted processes should be able to reach its port.
//!
//! [`Invitation::accept`] is for programs that are started by `samite run` and communicate in their own way: a
//! [`Job`] holds the rank's connection to its node's agent, which knows the other ranks' addresses and reports
//! their deaths.

mod detect;
mod entry;
mod error;
mod job;
mod key_values;
mod pmi;
mod pmix;
mod rendezvous;

pub use detect::{Invitation, Launch};
#[cfg(fuzzing)]
pub(crate) use entry::Entry;
pub use error::BootstrapError;
pub use job::Job;
pub(crate) use key_values::Candidate;
#[cfg(fuzzing)]
pub(crate) use pmi::read_pmi;
pub use pmi::{PmiError, PmiJob};
pub use pmix::PmixJob;
pub(crate) use rendezvous::Met;
pub use rendezvous::Rendezvous;

pub use samite_control::{ChannelError, Connection, ControlError, Ending, JobId, Notice};
