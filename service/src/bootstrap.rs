//! Joining a job: who am I, how many are we, and where are the others?
//!
//! [`Launch::detect`] reads the environment and decides; [`Invitation::accept`] joins. A [`Job`] then holds
//! the rank's connection to its node's agent, which knows the other ranks' addresses and tells when one of
//! them dies.
//!
//! [`init`](crate::init) does all of it. This is for programs that are started by `samite run` and bring
//! their own way to talk.

mod connection;
mod detect;
mod entry;
mod error;
mod job;
mod key_values;
mod pmi;
mod pmix;
pub(crate) mod variable;

pub use connection::{Connection, ControlError, Notice};
pub use detect::{Invitation, Launch};
pub use error::BootstrapError;
pub use job::Job;
pub(crate) use key_values::Candidate;
pub use pmi::{PmiError, PmiJob};
pub use pmix::PmixJob;
pub use variable::{OF_JOINING, OF_THE_LAUNCHER};

pub use crate::control::{ChannelError, Ending, JobId};
