//! Ports: what carries bytes for Samite.
//!
//! A [`Port`] is the narrow waist of the system. It sends packets, puts and gets registered memory, and
//! reports events; it knows nothing of tags, ranks, windows or epochs. Protocols (crates `samite-p2p`,
//! `samite-rma`) are state machines over a port, and run the same on every one of them.
//!
//! Start with [`Port`]: its file is meant to be read first. [`mem`] holds the types by which memory is handed
//! to a port without `unsafe`, [`wire`] the header that every packet begins with.
//!
//! `unsafe` has its only home in this crate; the crates above forbid it.

mod biased;
mod caps;
mod error;
pub mod loopback;
pub mod mem;
#[cfg(feature = "ofi")]
pub mod ofi;
pub mod os;
pub mod pmi;
pub mod port;
mod registry;
mod rng;
pub mod route;
pub mod shm;
pub mod sim;
#[cfg(test)]
mod testing;
pub mod wire;

pub use biased::{BiasedGuard, BiasedMutex, Refused};
pub use caps::{Caps, Order};
pub use error::{Failure, PortError};
pub use mem::{Heap, Memory, MemoryKind, Region};
pub use port::{
    Access, Address, Atomic, Body, Exposure, Local, OpId, PeerId, Port, Post, Registration, Remote, Sink,
    Sleep,
};
pub use rng::SplitMix64;
