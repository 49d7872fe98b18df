//! Joining a job: who am I, how many are we, and where are the others?
//!
//! [`Launch::detect`] reads the environment and decides; [`init`](crate::init) joins. What is known of the
//! death of a rank, and what becomes of the job, is a matter of what has started it:
//!
//! | started by | who tells of a death | what else becomes of it |
//! | --- | --- | --- |
//! | `samite run` | the agents, within milliseconds of any process, and within the detection time of a host | as `--on-failure` says |
//! | a rendezvous: torchrun, Kubernetes, srun | its kernel, the same; without saying how | nothing; if it was at rank 0 (not `samite rendezvous`), what is left is as in the last line |
//! | PMIx: Open MPI's `mpiexec`, `prterun`, `srun --mpi=pmix` | as in the last line | the launcher ends the job, unless told otherwise (`prterun --runtime-options continuous`) |
//! | PMI: `mpiexec` of MPICH and Intel MPI, `srun --mpi=pmi2`, `flux run` | as in the last line | the launcher ends the job |
//! | | for ranks of the same host that were sent to, the kernel; for others the transport, if it notices, and deadlines | |
//!
//! How a process ended tells `samite run` alone. There a rank has left in good order if it said so
//! ([`World::leave`](crate::World::leave)), or its process exits with code 0 after the world was dropped; any other end
//! is a failure, also one after the goodbye. Elsewhere a rank that drops its world without a panic has left in good
//! order, whatever its exit code is.
//!
//! A rank that gives up a living peer has that peer told by its agent or the rendezvous, so the peer's operations end
//! too. Under PMI and PMIx no connection leads to the peer, and it is not told.
//!
//! Thus an operation without a deadline always ends under the first two. Under the others that rests on the
//! launcher, which ends the job, for ranks of other hosts.
//!
//! The job's secret, which strangers do not know, comes in an inherited descriptor, in the launcher's key-value
//! space, or from the rendezvous: that gives it to whoever comes first as a rank, so its port is for those to
//! reach who may be trusted.
//!
//! [`Invitation::accept`] is for programs that are started by `samite run` and bring their own way to talk: a
//! [`Job`] holds the rank's connection to its node's agent, which knows the other ranks' addresses and tells
//! when one of them dies.

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
