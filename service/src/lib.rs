//! A message-passing runtime over libfabric: tagged messages, deadlines everywhere, safe Rust.
//!
//! [`launch`] is the embedded launcher behind `samite run`, [`bootstrap`] how a process that it started joins its job.

#![forbid(unsafe_code)]

pub mod bootstrap;
mod control;
pub mod launch;

pub use control::{ChannelError, Ending, JobId, Secret};
