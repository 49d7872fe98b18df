//! Tagged messages over any port: eager and rendezvous protocols, requests, flow control.
//!
//! An [`Engine`] is a state machine. It is handed calls, the events of its [`Port`](samite_fabric::Port) and
//! the time, and acts on the port; it owns no thread and reads no clock. The facade (crate `samite`) puts it
//! behind a lock and drives it; tests drive the same code over a simulator.
//!
//! # Contract
//! * Messages from one sender that match the same receive are taken in the order they were sent (MPI 4.1,
//!   section 3.5), wildcards included.
//! * Every operation ends: with success, or with an [`Error`] that says what is known of the message
//!   ([`Fate`]).
//! * A request owns its buffer ([`Memory`](samite_fabric::Memory)), or leaves it with the caller, who *lends*
//!   it at each [`Engine::poll`] ([`Lent`]): the engine keeps no reference to borrowed memory between calls,
//!   so there is none that could dangle.
//! * Data is sent ahead of its receive only against credit that the receiver granted, so its budget holds.
//!   See [`Config`].
//!
//! Where to look: `wire` has the packets and who sends which when, `engine/outbound` the way of a send to the
//! port, `engine/inbound` that of a packet to its receive, `engine/transfer` the bytes of long messages,
//! `engine/ending` deadlines, cancels and the death of peers, `failures` who is told of those.

#![forbid(unsafe_code)]

mod choose;
mod config;
mod counters;
mod engine;
mod error;
mod failures;
mod lent;
mod peer;
mod quarantine;
mod request;
mod store;
mod trace;
mod wire;

pub use choose::{Protocols, protocols};
pub use config::{Config, Parameter};
pub use counters::{Counters, Rejected, Traffic, Usage};
pub use engine::{Claimed, Completion, Engine, Identity, Outcome, Received, Sent};
pub use error::{Awaited, Cause, Error, Fate, Operation, OtherTags, Report, Status, TagPattern};
pub use lent::{Lent, Reading, Writing};
pub use request::RequestId;
pub use samite_matching::{Pattern, Source};
