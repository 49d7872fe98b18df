//! The parts shared by the ranks of a job, its launcher and the `samite` command.
//!
//! Ranks and launcher speak the control protocol:
//! ```text
//! samite run (coordinator) ── one connection ── agent of a host ── one connection each ── ranks
//! ```
//! Every connection carries JSON, one message a line, so that any tool can read it. Lines are bounded, reading and
//! writing never block, and malformed input is an error of that connection. A turn reads a bounded number of bytes from
//! a connection, so that no connection keeps a process from its other connections.
//!
//! A rendezvous speaks the control protocol with ranks that have no launcher, and one of the ranks may serve it. So its
//! server and the [`Registry`] are here too, and so is the table of all settings, which a launcher checks before it
//! starts ranks.
//!
//! The crate is internal to Samite: programs depend on `samite`.

#![forbid(unsafe_code)]

mod bind;
mod channel;
mod connection;
mod ending;
mod figures;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod listener;
pub mod liveness;
mod message;
pub mod printable;
mod registry;
pub mod rendezvous;
mod settings;
mod ticket;
pub mod tuning;
pub mod variable;

pub use bind::Bind;
pub use channel::{Channel, ChannelError, Incoming, LINE_BYTES_MAX};
pub use connection::{Connection, ControlError, Notice};
pub use ending::Ending;
pub use figures::{Awaits, Figures, PeerStats};
pub use handshake::{Answer, Challenge, Hello, Keys, Nonce, Side, Transcript};
pub use listener::{HELLO_BYTES_MAX, Identified, Listener};
pub use message::{
    FromAgent, FromRank, GivenUp, Invitation, JobId, Plan, RankExit, Secret, Stop, ToAgent, ToRank,
    WHY_BYTES_MAX, Whereabouts,
};
pub use registry::{Post, Registry, Urgent};
pub use settings::{
    Checks, LANES_MAX, Origin, Parameter, Progress, REMOTE_SHELL_DEFAULT, Reader, SettingError, Settings,
    detection_time, environment, is_known_variable,
};
pub use ticket::{PROTOCOL, Place, Ticket, TicketError};
