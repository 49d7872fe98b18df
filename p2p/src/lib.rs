//! Tagged messages over any port: eager messages and rendezvous, requests, flow control.
//!
//! An [`Engine`] is a state machine. Its inputs are calls, the events of its [`Port`](samite_fabric::Port) and
//! the time, and it acts on the port; it owns no thread and reads no clock. The facade (crate `samite`) puts it
//! behind a lock and drives it; tests drive the same code over a simulator.
//!
//! # Contract
//! * If several messages from one sender match the same receive, the receive takes the one that was sent first (MPI
//!   4.1, section 3.5), also if the receive has wildcards.
//! * Every operation ends: with success, or with an [`Error`] that contains the known fate of the message
//!   ([`Fate`]).
//! * A request owns its buffer ([`Memory`](samite_fabric::Memory)), or the caller keeps the buffer and *lends* it to
//!   the engine at each [`Engine::poll`] ([`Lent`]). So the engine keeps no reference to borrowed memory between calls,
//!   and none can dangle.
//! * A sender sends data before a receive for it is known only if the receiver has granted credit for it. So the data
//!   that a receiver must keep stays within its budget. See [`Config`].
//!
//! Where to look: the packets are in `wire`; the way of a send to the port in `tagged/outbound`; the way of a packet to
//! its receive in `tagged/inbound`; the bytes of long messages in `tagged/transfer`; messages that travel in parts in
//! `tagged/partitioned`; deadlines, cancels and the failure of peers in `tagged/ending`; the reports of failures to
//! receives from any source in `failures`; the groups of ranks that may use each context in `contexts`; the reuse of
//! the numbers of contexts in `names`; the creation of a context by several ranks in `agreement`. The state of peers,
//! their credit, and the decision that a peer has failed belong to the link: [`samite_fabric::link`].

#![forbid(unsafe_code)]

mod agreement;
mod choose;
mod config;
mod consensus;
mod contexts;
mod counters;
mod engine;
mod failures;
#[cfg(metered)]
mod metered;
mod names;
mod outbox;
mod pages;
mod request;
mod signatures;
mod store;
mod survivors;
mod tagged;
mod trace;
mod wire;

pub use agreement::{Agreed, AgreementId, Choice, Leader, Others, Progress, Proposal};
pub use choose::{Protocols, Threshold, protocols, thresholds, why_no_puts};
pub use config::{Config, Library, Parameter, Tuning};
pub use contexts::Incarnations;
pub use counters::{Counters, Usage};
pub use engine::{COLLECTIVE_TAG, Engine, Harvest, How, Mode, Received, Sent};
pub use outbox::{KEPT_OVERHEAD, SendBuffer, Untaken};
pub use samite_fabric::link::{
    Awaited, Cause, Comparison, Completion, Error, Fate, Group, Identity, Lent, Members, NoGroup, Operation,
    OtherTags, Outcome, Reading, Rejected, Report, RequestId, Status, TagPattern, Time, Traffic, WorldRank,
    Writing,
};
#[cfg(metered)]
pub use samite_matching::SearchStats;
pub use samite_matching::{Pattern, Source};
pub use signatures::Typed;
pub use survivors::Decision;
pub use tagged::{Claimed, HasTagged, PartitionedId, Tagged};
