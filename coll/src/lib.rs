//! Collective operations: schedules of messages between the ranks of a group.
//!
//! A [`Plan`] names an operation, the algorithm that carries it out, and its arguments. The plan and the [`Place`] of a
//! rank determine the [`Step`]s of that rank: messages, copies and reductions of parts of its buffers. The steps are
//! computed one by one, so a schedule needs little memory for any number of ranks.
//!
//! ```
//! use samite_coll::algorithms::bcast::Algorithm;
//! use samite_coll::{Place, Plan, Step};
//!
//! // In a broadcast to 4 ranks, the root sends to rank 2 first, which passes the data on to rank 3.
//! let plan = Plan::Bcast { algorithm: Algorithm::KNomial { k: 2 }, root: 0, len: 100 };
//! let receivers = plan.steps(Place::new(0, 4)).filter_map(|step| match step {
//!     Step::Send { to, .. } => Some(to),
//!     _ => None,
//! });
//! assert_eq!(receivers.collect::<Vec<_>>(), [2, 1]);
//! ```
//!
//! A [`Collective`] executes a schedule at one rank, with the tagged messages of a [`samite_p2p::Engine`]. Like the
//! engine, it owns no thread and reads no clock.
//!
//! Where to look: the steps and plans are in `schedule`; the algorithms, with their sources and costs, in
//! [`algorithms`]; the choice between them in `choose`; the verification of schedules in [`check`]; their virtual time
//! in `simulate`; the execution, and the effects of failures, in `collective`.

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod check;
mod choose;
mod collective;
mod schedule;
mod simulate;

pub use choose::{Choice, Row, Rows, Selection, Situation, Table, Way};
pub use collective::{
    Begun, BorrowedBuffers, Buffers, Call, Check, Collective, Failed, Layouts, OwnedBuffers, ReduceBytes,
    Reduction, RollCall, Series, Slices, discard_before,
};
pub use schedule::{Blocks, Buffer, Place, Plan, Ranks, Span, Stage, Step, Steps};
pub use simulate::{LogGp, Simulation, simulate};
