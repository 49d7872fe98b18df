//! A message-passing runtime over libfabric: tagged messages, a deadline for every wait, safe Rust.
//!
//! ```
//! let results = samite::local(2, |world| {
//!     if world.rank() == 0 {
//!         world.send(&[1u64, 2, 3], 1, 7)?;
//!     } else {
//!         let mut numbers = [0u64; 3];
//!         let status = world.recv(&mut numbers, 0, 7)?;
//!         assert_eq!((numbers, status.bytes), ([1, 2, 3], 24));
//!     }
//!     Ok::<(), samite::Error>(())
//! });
//! assert!(results.iter().all(Result::is_ok));
//! ```
//! A program calls [`init`], and is started by `samite run -n N -- program` or by the launcher of a cluster;
//! [`local`] runs ranks as threads instead, for tests. [`bootstrap`] describes how a process joins its job.
//!
//! # Contract
//! * Messages from one rank that match the same receive are received in the order they were sent, wildcards
//!   included.
//! * Every operation ends. The error of a failed one names the cause, the peer, and the fate of the message ([`Fate`]).
//!   See [`Comm::within`] for deadlines.
//! * Any call that waits or tests makes progress, on behalf of the whole process.

#![forbid(unsafe_code)]

pub mod bootstrap;
mod cancel;
mod comm;
mod deal;
mod figures;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod init;
mod local;
mod patience;
mod request;
mod runtime;
mod scope;
mod select;
mod settings;
mod stats;
mod transport;
mod watch;
mod world;

pub use cancel::Cancel;
pub use comm::{Comm, Message};
pub use init::{InitError, init};
pub use local::local;
pub use request::{Done, Failed, Request, RequestSet};
pub use samite_control::{PeerStats, SettingError};
/// A global allocator with which long messages between ranks of a host are copied once instead of twice, whether their
/// buffers are owned or borrowed. One line in the program's main file enables it, for each rank that sends such
/// messages:
///
/// ```
/// #[global_allocator]
/// static HEAP: samite::Heap = samite::Heap;
///
/// fn main() {
///     let results = samite::local(2, |world| {
///         let mut numbers = vec![world.rank() as u64; 100_000];
///         match world.rank() {
///             0 => world.send(&numbers, 1, 7),
///             _ => world.recv(&mut numbers, 0, 7).map(|_| assert_eq!(numbers, vec![0; 100_000])),
///         }
///     });
///     assert!(results.iter().all(Result::is_ok));
/// }
/// ```
pub use samite_fabric::Heap;
pub use samite_fabric::mem::Element;
pub use samite_p2p::{Awaited, Cause, Error, Fate, Operation, OtherTags, Report, Status};
pub use scope::{Pending, Scope};
pub use select::{Source, Tag};
pub use settings::Settings;
pub use stats::Stats;
pub use world::World;
/// The crate with the traits that an [`Element`] derives. `#[zerocopy(crate = "samite::zerocopy")]` leads the derives
/// to it:
///
/// ```
/// use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "samite::zerocopy")]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     mass: f64,
/// }
///
/// let world = samite::local(1, |world| {
///     let particle = Particle { place: [0.0; 3], mass: 1.0 };
///     world.sendrecv(&[particle], 0, 7, &mut [particle], 0, 7).map(|status| status.bytes)
/// });
/// assert_eq!(world, [Ok(32)]);
/// ```
pub use zerocopy;
