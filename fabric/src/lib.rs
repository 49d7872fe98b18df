//! Ports: what carries bytes for Samite.
//!
//! A [`Port`] is the narrow waist of the system. It sends packets, puts and gets registered memory, and
//! reports events; it knows nothing of tags, ranks, windows or epochs. Protocols (crates `samite-p2p`,
//! `samite-rma`) are state machines over a port, and run the same on every one of them.
//!
//! Start with [`Port`]: its file is meant to be read first. [`mem`] holds the types by which memory is handed
//! to a port without `unsafe`, [`wire`] the header that every packet begins with.
//!
//! `unsafe` is allowed in this crate and in the crates in its folder, `samite-os` and `samite-fabric-sys`. All other crates
//! forbid it.

mod caps;
mod copy;
mod error;
pub mod link;
pub mod loopback;
pub mod mem;
#[cfg(feature = "ofi")]
pub mod ofi;
pub mod port;
mod prefetch;
mod registry;
mod rng;
pub mod route;
pub mod shm;
pub mod sim;
#[cfg(test)]
mod testing;
mod trace;
pub mod wire;

pub use caps::{Caps, Order, Reach};
pub use error::{Failure, PortError};
pub use mem::{Heap, Memory, MemoryKind, Region, Window};
pub use port::{
    Access, Address, Body, Change, Changed, Exposure, Local, OpId, PathId, PeerId, Port, Post, Registration,
    Remote, Sink, Sleep,
};
pub use rng::SplitMix64;
