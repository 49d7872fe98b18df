//! One-sided windows: a process reads, writes and accumulates in the memory of others, and opens and closes every kind
//! of epoch without waiting.
//!
//! [`Windows`] is a protocol on the link ([`samite_fabric::link::Stack`]), with the number
//! [`Protocol::Rma`](samite_fabric::wire::Protocol::Rma). It is a state machine: it takes calls, packets and deadlines,
//! owns no thread and reads no clock. Its calls take the [`Link`](samite_fabric::link::Link), and those that start
//! operations also the port, because a short operation may leave within the call. Drive the engine afterwards: it sends
//! everything else.
//!
//! # Contract
//! * **No call waits.** A call that opens an epoch returns at once. A call that closes one returns a request, which
//!   ends when the epoch has completed. In between, a late process delays only the epochs that depend on it.
//! * **Epochs of a window are activated in order** (Zounmevo 2014, section 5.6): unless a flag permits more, an epoch
//!   is activated when those before it have completed. So a program whose calls do not wait writes the same bytes as
//!   the program whose calls wait.
//! * **Every request ends**, with success or with an [`Error`] that names the rank and the cause.
//! * **The creation of a window is local.** A window has the same [`Name`] at all members. A member learns the place
//!   and size of another member's part at their first contact. A request for a window that the other member has not
//!   created waits there. Such requests are limited in number ([`Config::early_max`]).
//! * **Memory is reached by copies alone** ([`samite_fabric::Region`]), so no reference to it changes its value.
//! * **Operations on memory that the origin can map** ([`Caps::map`](samite_fabric::Caps::map)) are carried out by
//!   the origin's loads, stores and atomic instructions, once the target has granted the access. The target takes no
//!   part. That concerns parts in memory made by [`Region::shared`](samite_fabric::Region::shared).
//! * **A process reads and writes such a part without an epoch** by a [`View`] of it. The members agree on the order.
//! * **Long puts and gets on memory that the origin cannot map**, and short puts after a flush if nothing else is under
//!   way to the target, are puts and gets of the port ([`Caps::put`](samite_fabric::Caps::put),
//!   [`Caps::get`](samite_fabric::Caps::get)), if the port can fence off a peer. The target has registered its part,
//!   and takes no part in the operation. If the port has puts and no gets, the target answers a long get by puts into
//!   registered memory of the origin. Several puts and gets have no order among each other, nor with packets. A flush,
//!   also one whose end is not awaited, separates them, and so does the end of an epoch.
//! * **An operation may have a form at the target** ([`Target::with_form`]): it then is an operation on each run of
//!   contiguous bytes, with one request. All runs lie in the part, or nothing is sent.
//! * **Other operations travel in packets**, make no entry in a queue of messages, and need no credit: the target
//!   applies them on arrival, by atomic instructions if others can map its part. So accumulates are atomic, except
//!   with [`Hints::unshared_accumulates`].
//! * **An exclusive lock of a part that the origin maps** needs no message while nobody else holds or awaits the lock
//!   ([`Part::lock`]).
//! * **Memory is attached to a dynamic window, and detached, at any time** ([`Windows::create_dynamic`]). Its operations
//!   travel in packets. A target refuses an operation on memory that is not attached: the request of a read ends with
//!   [`Error::NotAttached`], and so does the epoch of a write, and the next flush of its target.
//! * **With [`Hints::aggregate`] an epoch under a lock travels as one packet**, if its operations fit in one. A program
//!   that waits for an operation of an open epoch of such a window calls [`Windows::urge`] before it polls.
//!
//! # Where to look
//! The rules on the activation of epochs are in `activation`, the lock in `locks`, the numbers by which epochs of two
//! processes match in `ordinals`, the barrier of fences in `barrier`, the element types in `element`, the way of an
//! operation to its target in `path`: all of these are pure. `lock_word` is the word by which others take the lock in
//! mapped memory, and `windows/bare` has the epochs of such locks while they are alone. `mapped` carries out operations
//! on mapped memory, also for `view`, `windows/direct` those by puts and gets of the port, and `transfers` has the
//! memory of the latter. `serves` has the reads that this process answers by puts, and `regions` the memory that is
//! attached to a dynamic window. `window` is the state of a window, `core` its state machine, `wire` the packets, and
//! `windows` the calls and the packets of all windows. `core/aggregate` has the epochs that travel as one packet.

#![forbid(unsafe_code)]

mod activation;
mod barrier;
mod core;
mod counters;
mod element;
mod epochs;
mod error;
mod lock_word;
mod locks;
mod mapped;
mod ordinals;
mod outbox;
mod path;
mod regions;
mod requests;
mod serves;
mod small_map;
mod transfers;
mod view;
mod window;
mod windows;
mod wire;

pub use activation::{LockKind, Reorder};
pub use counters::Counters;
pub use element::{ElementType, Reduction};
pub use error::{AWAITED_MAX, Awaiting, Error, Event};
pub use regions::Attached;
pub use requests::Completion;
pub use view::View;
pub use window::{Action, EpochId, Hints, Name, Part, WindowId};
pub use windows::{Assertions, Config, Fenced, Places, Target, Windows};
