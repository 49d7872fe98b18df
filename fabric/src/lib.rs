//! Ports, which carry bytes for Samite, and the link above them.
//!
//! A [`Port`] is the narrow interface below all protocols. It sends packets, puts and gets registered memory, and
//! reports events; it knows no tags, ranks, windows or epochs. Protocols (such as crate `samite-p2p`)
//! are state machines over a port, and run unchanged on every one of them.
//!
//! Read [`Port`] first. The module [`mem`] has the types by which protocols pass memory to a port without `unsafe`, and
//! [`wire`] has the header with which every packet begins.
//!
//! `unsafe` is allowed in this crate and in the crates in its folder, `samite-os` and `samite-fabric-sys`. All other
//! crates forbid it.

mod caps;
mod copy;
pub mod delay;
mod error;
pub mod layout;
pub mod link;
pub mod loopback;
pub mod mem;
#[cfg(feature = "ofi")]
pub mod ofi;
pub mod port;
mod prefetch;
mod registrations;
mod rng;
pub mod route;
pub mod shm;
pub mod sim;
#[cfg(test)]
mod testing;
mod trace;
pub mod wire;

pub use caps::{Caps, Order, Reach};
pub use copy::copy_bytes;
pub use error::{Failure, PortError};
pub use mem::{Heap, Memory, MemoryKind, Region, Window};
pub use port::{
    Access, Address, Body, Change, Changed, Exposure, Local, OpId, PathId, PeerId, Port, Post, Registration,
    Remote, Sink, Sleep,
};
pub use rng::SplitMix64;
