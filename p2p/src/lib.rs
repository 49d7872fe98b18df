//! Tagged messages over any port: eager and rendezvous protocols, requests, flow control.
//!
//! An [`Engine`] is a state machine. Its inputs are calls, the events of its [`Port`](samite_fabric::Port) and
//! the time, and it acts on the port; it owns no thread and reads no clock. The facade (crate `samite`) puts it
//! behind a lock and drives it; tests drive the same code over a simulator.
//!
//! # Contract
//! * Messages from one sender that match the same receive are taken in the order they were sent (MPI 4.1,
//!   section 3.5), wildcards included.
//! * Every operation ends: with success, or with an [`Error`] that contains the known fate of the message
//!   ([`Fate`]).
//! * A request owns its buffer ([`Memory`](samite_fabric::Memory)), or leaves it with the caller, who *lends*
//!   it at each [`Engine::poll`] ([`Lent`]): the engine keeps no reference to borrowed memory between calls,
//!   so none can dangle.
//! * Data is sent ahead of its receive only against credit that the receiver granted, so its budget holds.
//!   See [`Config`].
//!
//! Where to look: `wire` has the packets and their senders, `tagged/outbound` a send's way to the port,
//! `tagged/inbound` a packet's way to its receive, `contexts` the groups of ranks that may use each
//! context, `names` when its number may be used again, `agreement` how ranks create one together, `tagged/transfer` the bytes of long messages, `tagged/partitioned`
//! messages that travel in parts, `tagged/ending` deadlines, cancels and the failure of peers, `failures` the reports of
//! failures. Peers, credit and verdicts are the link's:
//! [`samite_fabric::link`].

#![forbid(unsafe_code)]

mod agreement;
mod choose;
mod config;
mod contexts;
mod counters;
mod engine;
mod failures;
#[cfg(metered)]
mod metered;
mod names;
mod outbox;
mod request;
mod store;
mod tagged;
mod trace;
mod wire;

pub use agreement::{Agreed, AgreementId, Choice, Leader, Others, Progress, Proposal};
pub use choose::{Protocols, protocols};
pub use config::{Config, Parameter};
pub use counters::{Counters, Usage};
pub use engine::{Engine, Harvest, Mode, Received, Sent};
pub use outbox::{KEPT_OVERHEAD, SendBuffer};
pub use samite_fabric::link::{
    Awaited, Cause, Comparison, Completion, Error, Fate, Group, Identity, Lent, Operation, OtherTags,
    Outcome, Reading, Rejected, Report, RequestId, Status, TagPattern, Time, Traffic, WorldRank, Writing,
};
#[cfg(metered)]
pub use samite_matching::SearchStats;
pub use samite_matching::{Pattern, Source};
pub use tagged::{Claimed, PartitionedId};
