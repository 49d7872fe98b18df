//! Joining a job: who am I, how many are we, and where are the others?
//!
//! [`Launch::detect`] reads the environment and decides; [`Invitation::accept`] joins. A [`Job`] then holds the rank's
//! connection to its node's agent, which knows the other ranks' addresses and tells when one of them dies.

mod connection;
mod detect;
mod error;
mod job;
pub(crate) mod variable;

pub use connection::ControlError;
pub(crate) use connection::{Connection, Notice};
pub(crate) use detect::{Invitation, Launch};
pub use error::BootstrapError;
pub(crate) use job::Job;
