//! Interfaces of the operating system for which std has no safe call: one module for each subject.
//!
//! No code here moves the bytes of messages; the ports do, in the crate `samite-fabric`. This crate depends on no other
//! crate of Samite, so every other crate may use it. Every `unsafe` block has its proof beside it. The public functions
//! are safe, except [`shared::Mapping::empty`].

pub mod alarm;
pub mod barrier;
mod biased;
pub mod descriptor;
pub mod env;
mod error;
#[doc(hidden)]
pub mod fork;
pub mod handlers;
pub mod hwloc;
pub mod libraries;
pub mod memory;
pub mod pmi;
pub mod process;
mod random;
pub mod shared;
pub mod signal;
pub mod spawn;

pub use biased::{BiasedGuard, BiasedMutex, Event, Refused};
pub use error::OsError;
pub use random::random;
