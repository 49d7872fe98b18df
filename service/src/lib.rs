//! A message-passing runtime over libfabric: tagged messages, collective operations and one-sided windows, a deadline
//! for every wait, safe Rust.
//!
//! ```
//! use samite::Rank;
//!
//! let results = samite::local(2, |world| {
//!     let comm = world.comm();
//!     if comm.rank() == 0 {
//!         comm.send(&[1u64, 2, 3], Rank(1), 7)?;
//!     } else {
//!         let mut numbers = [0u64; 3];
//!         let status = comm.recv(&mut numbers, Rank(0), 7)?;
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
//! * Messages from one rank that match the same receive are received in the order they were sent, wildcards included.
//! * Every operation can have a deadline ([`Comm::with_timeout`]). Without one it still ends if its peer fails. The
//!   error of a failed operation names the cause, the peer, and the fate of the message ([`Fate`]).
//! * Any call that waits or tests makes progress with all operations of the process, or of its lane if there are
//!   several [lanes](Comm::lane). A call that finds its result at once, such as the wait for a request that has ended,
//!   may make none.
//!
//! # Overview
//! | topic | items |
//! | --- | --- |
//! | joining a job | [`init`], [`World`], [`local`], [`bootstrap`], [`InitError`] |
//! | messages | [`Comm`], [`Rank`], [`Destination`], [`Source`], [`Tag`], [`Status`], [`Message`] |
//! | modes of sends | [`Comm::with_mode`], [`Mode`], [`Comm::with_buffer`], [`Comm::flush_buffer`] |
//! | communicators and groups | [`Comm::dup`], [`Comm::split`], [`Comm::create_from_group`], [`Comm::split_by`], [`Comm::dup_with`], [`Hints`], [`Creation`], [`Group`], [`Attribute`] |
//! | going on after a failure | [`Comm::revoke`], [`Comm::shrink`], [`Comm::agree`], [`Comm::failed`], [`Comm::acknowledge`] |
//! | intercommunicators | [`Comm::create_intercomm`], [`Comm::merge`] |
//! | types of data | [`Element`], [`CheckedElement`], [`CheckedVec`], [`zerocopy`], [`Buffer`], [`BufferMut`], [`AnyBuffer`] |
//! | collective operations | [`Comm::barrier`], [`Comm::bcast`], [`Comm::gather`], [`Comm::scatter`], [`Comm::allgather`], [`Comm::alltoall`], [`Comm::reduce`], [`Comm::allreduce`], [`Comm::reduce_scatter`], [`Comm::scan`], [`Comm::exscan`], [`reduction`]; with blocks of different lengths: [`Comm::gatherv`], [`Comm::scatterv`], [`Comm::allgatherv`], [`Comm::alltoallv`], [`Comm::reduce_scatterv`], [`consecutive`]; with layouts: [`Comm::alltoallw`]; between neighbours: [`Comm::neighbour_alltoall`] and others, [`Neighbourhood`]; on intercommunicators: [`Root`]; nonblocking and persistent: [`Comm::iallreduce`], [`Comm::allreduce_init`] and others, [`InPlace`], [`PersistentCollective`], [`CollectiveInput`], [`CollectiveOutput`] |
#![cfg_attr(
    feature = "serde",
    doc = "| values of any type, with the feature `serde` | [`Comm::send_value`], [`Comm::recv_value`], [`ValueRequest`] |"
)]
#![cfg_attr(
    not(feature = "serde"),
    doc = "| values of any type, with the feature `serde` | `Comm::send_value`, `Comm::recv_value`, `ValueRequest` |"
)]
//! | scattered data | [`Layout`], [`View`], [`ViewMut`], [`OwnedView`] |
//! | several operations at a time | [`Request`], [`RequestSet`], [`Owned`], [`Exchange`], [`Scope`], [`Pending`], [`PendingSet`] |
//! | asynchronous programs | [`RequestFuture`], [`Comm::probe_async`], [`Comm::claim_async`], [`Driver`] |
//! | operations that repeat | [`Comm::send_init`], [`PersistentSend`], [`PersistentRecv`], [`start_all`] |
//! | messages in partitions | [`PartitionedSend`], [`PartitionedRecv`], [`Part`] |
//! | one-sided operations | [`Comm::window`], [`Comm::allocate_window`], [`Comm::dynamic_window`], [`Window`], [`Epoch`], [`LockKind`], [`WindowOp`], [`WindowView`], [`WindowSlice`], [`WindowHints`], [`WindowRegion`], [`WindowError`] |
//! | topologies | [`Cartesian`], [`SubGrids`], [`Graph`], [`balanced`] |
//! | threads | [`Comm::lane`] |
//! | deadlines and cancels | [`Comm::with_timeout`], [`Comm::with_cancel`], [`CancelToken`] |
//! | failures | [`Error`], [`Cause`], [`Fate`], [`Report`], [`Comm::with_error_handler`], [`Comm::wait_for_restart`] |
//! | configuration | [`Settings`], [`Check`], [`Progress`], [`SettingError`] |
//! | observation | [`Stats`], [`PeerStats`], [`Comm::explain`], the feature `tracing` |
//! | long messages on one host | [`Heap`] |
//!
//! # More
//! * [The guide](https://github.com/samite-project/samite/blob/main/docs/pages/SUMMARY.md):
//!   [installation](https://github.com/samite-project/samite/blob/main/docs/pages/install.md),
//!   [MPI's calls in Samite](https://github.com/samite-project/samite/blob/main/docs/pages/coming-from-mpi.md),
//!   [futures](https://github.com/samite-project/samite/blob/main/docs/pages/async.md),
//!   [transports](https://github.com/samite-project/samite/blob/main/docs/pages/transports.md),
//!   [launchers](https://github.com/samite-project/samite/blob/main/docs/pages/launchers.md),
//!   [failures](https://github.com/samite-project/samite/blob/main/docs/pages/failures.md),
//!   [tuning](https://github.com/samite-project/samite/blob/main/docs/pages/tuning.md),
//!   [parameters](https://github.com/samite-project/samite/blob/main/docs/pages/parameters.md),
//!   [benchmarks](https://github.com/samite-project/samite/blob/main/docs/pages/benchmarks.md).
//! * [Examples](https://github.com/samite-project/samite/tree/main/service/examples) that verify their results.
//! * [The architecture](https://github.com/samite-project/samite/blob/main/ARCHITECTURE.md),
//!   [security](https://github.com/samite-project/samite/blob/main/SECURITY.md), the
//!   [roadmap](https://github.com/samite-project/samite/blob/main/ROADMAP.md) and the
//!   [changelog](https://github.com/samite-project/samite/blob/main/CHANGELOG.md).
//!
//! The command `samite` is the crate `samite-cli`. The matching engine, `samite-matching`, is usable alone. The other
//! crates named `samite-…` are parts of this crate, without a stable interface.

#![forbid(unsafe_code)]

pub mod bootstrap;
mod buffer;
mod cancel;
mod checked;
mod collective;
mod comm;
mod deal;
mod driver;
mod element;
mod error;
mod figures;
mod future;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod init;
mod lanes;
mod layout;
mod local;
mod members;
#[cfg(metered)]
mod metered;
mod owned;
mod partitioned;
mod patience;
mod persistent;
pub mod reduction;
mod request;
mod runtime;
mod scope;
mod select;
mod settings;
mod signature;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;
mod stack;
mod stats;
mod topology;
mod transport;
#[cfg(feature = "serde")]
mod value;
mod watch;
mod window;
mod world;

pub use buffer::{Buffer, BufferMut};
pub use cancel::CancelToken;
pub use checked::{CheckedElement, CheckedVec};
pub use collective::{CollectiveInput, CollectiveOutput, InPlace, PersistentCollective};
pub use comm::{
    Agreement, Attribute, BUFFERED_OVERHEAD, Comm, Creation, ErrorHandler, Hints, Inherited, Locality,
    Message, Mode, Raised, consecutive,
};
pub use driver::Driver;
pub use element::Element;
pub use error::{
    Awaited, Cause, ElementTypes, Error, Fate, Member, Members, Operation, OtherTags, Report, Status,
    TransportError,
};
pub use future::{ClaimFuture, ProbeFuture, RequestFuture};
pub use group::{Comparison, Group, GroupError};
pub use init::{InitError, init};
pub use layout::{Field, IntoView, IntoViewMut, Layout, LayoutError, OwnedView, StorageOrder, View, ViewMut};
pub use local::local;
pub use owned::{AnyBuffer, Owned};
pub use partitioned::{Part, PartitionedRecv, PartitionedSend};
pub use persistent::{Persistent, PersistentRecv, PersistentSend, start_all};
pub use request::{Done, Exchange, ExchangeFailed, Exchanged, Failed, Request, RequestSet};
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
///         let comm = world.comm();
///         let mut numbers = vec![u64::from(comm.rank().0); 100_000];
///         match comm.rank() {
///             samite::Rank(0) => comm.send(&numbers, samite::Rank(1), 7),
///             _ => comm.recv(&mut numbers, samite::Rank(0), 7).map(|_| assert_eq!(numbers, vec![0; 100_000])),
///         }
///     });
///     assert!(results.iter().all(Result::is_ok));
/// }
/// ```
pub use samite_fabric::Heap;
pub use scope::{Pending, PendingSet, Scope};
pub use select::{Destination, Rank, Root, Source, Tag};
pub use settings::{Check, Progress, SettingError, Settings};
pub use stats::{PeerStats, Stats, WindowStats};
pub use topology::{
    Cartesian, Dimension, Edge, Graph, Neighbour, Neighbourhood, Shift, SubGrids, TopologyError, balanced,
};
#[cfg(feature = "serde")]
pub use value::{DecodeError, ValueFuture, ValueRequest};
pub use window::{
    Access, AccessKind, AwaitedRank, Epoch, EpochKind, Exposure, Fence, Lock, LockKind, Window, WindowError,
    WindowEvent, WindowHints, WindowNumber, WindowOp, WindowPlace, WindowRegion, WindowSlice, WindowView,
};
pub use world::World;
/// The crate with the traits that an [`Element`] derives. `#[zerocopy(crate = "samite::zerocopy")]` makes the derive
/// macros use this crate, so a program needs no dependency on zerocopy:
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
///     let comm = world.comm();
///     let particle = Particle { place: [0.0; 3], mass: 1.0 };
///     comm.sendrecv(&[particle], comm.rank(), 7, &mut [particle], comm.rank(), 7).map(|status| status.bytes)
/// });
/// assert_eq!(world, [Ok(32)]);
/// ```
pub use zerocopy;
