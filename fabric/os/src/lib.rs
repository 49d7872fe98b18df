//! Interfaces of the operating system for which std has no safe call: one module for each subject.
//!
//! Nothing here moves a message's bytes; ports, in the crate `samite-fabric`, do that. The crate depends on no other
//! crate of Samite, so each of them may use it. Every `unsafe` block has its proof beside it, and the functions are
//! safe.

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
