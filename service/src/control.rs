//! What launcher, agents and ranks say to each other, and how.
//!
//! ```text
//! samite run (front) ── one connection ── agent of a host ── one connection each ── ranks
//! ```
//! Every connection carries JSON, one message a line, so that it can be read with any tool. Lines are
//! bounded, reading and writing never block, and malformed input is an error of that connection. A turn
//! reads a bounded number of bytes of a connection, so that none keeps its process from the others.

mod channel;
mod ending;
mod handshake;
mod listener;
pub(crate) mod liveness;
mod message;
mod ticket;

pub use channel::ChannelError;
pub(crate) use channel::{Channel, Incoming, LINE_BYTES_MAX};
pub use ending::Ending;
pub(crate) use handshake::{Answer, Challenge, Hello, Keys, Nonce, Side, Transcript};
pub(crate) use listener::{HELLO_BYTES_MAX, Identified, Listener};
pub use message::JobId;
pub(crate) use message::Secret;
pub(crate) use message::{
    FromAgent, FromRank, Invitation, Obituary, Plan, Stop, ToAgent, ToRank, Whereabouts,
};
pub(crate) use ticket::{PROTOCOL, Place, Ticket, TicketError};
