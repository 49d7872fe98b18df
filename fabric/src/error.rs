//! Errors of ports, by cause.

use samite_os::OsError;

use crate::PeerId;

/// The reason why a port refuses a call, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The caller asked for more than [`Caps`](crate::Caps) allows in one operation.
    #[error("{len} bytes are more than the {max} that one operation of this port carries: split it")]
    TooLong {
        /// Requested bytes.
        len: usize,
        /// Permitted bytes.
        max: usize,
    },
    /// The span leaves the registered region, or the registration has ended.
    #[error("offset {offset} and length {len} leave the registered memory")]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Number of bytes.
        len: usize,
    },
    /// The port has no such operation, as its caps say.
    #[error("this port cannot {what}")]
    Unsupported {
        /// The missing operation.
        what: &'static str,
    },
    /// The bytes are not an address of this kind of port.
    #[error("not an address of this port ({why}): were the ranks started with different transports?")]
    BadAddress {
        /// The defect of the address.
        why: String,
    },
    /// The peer's process has ended, or has closed its port.
    #[error("the peer has ended: {why}")]
    PeerEnded {
        /// The sign of that.
        why: String,
    },
    /// The address is valid, but this port has no path to it: another host, another container, no permission.
    #[error("this port cannot reach the peer: {why}")]
    Unreachable {
        /// The obstacle.
        why: String,
    },
    /// The peer refused the access of a call without a completion, such as [`Port::get_bytes`](crate::Port::get_bytes):
    /// the key, the right or the bounds are wrong.
    #[error("the peer refused the access: the key has ended, or does not open these bytes for that")]
    Refused,
    /// The peer was fenced, or the port lost it.
    #[error("peer {} was cut off", .0.0)]
    PeerGone(PeerId),
    /// A limit of the port or of the machine was reached.
    #[error("out of {what}: {hint}")]
    Exhausted {
        /// The exhausted resource.
        what: &'static str,
        /// The way to get more.
        hint: String,
    },
    /// The provider or the operating system failed.
    #[error("{call} failed: {text} ({code}); {hint}")]
    Provider {
        /// The call that failed.
        call: &'static str,
        /// The call's error number, positive.
        code: i32,
        /// The provider's own text.
        text: String,
        /// The way to mend it.
        hint: String,
    },
}

impl From<OsError> for PortError {
    fn from(error: OsError) -> Self {
        match error {
            OsError::Ended { why } => Self::PeerEnded { why },
            OsError::Unreachable { why } => Self::Unreachable { why },
            OsError::Exhausted { what, hint } => Self::Exhausted { what, hint },
            OsError::Failed { call, code, text, hint } => Self::Provider { call, code, text, hint },
        }
    }
}

/// The reason why an accepted operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The operation's peer was fenced.
    #[error("its peer was cut off")]
    Fenced,
    /// The provider lost the peer.
    #[error("its peer was lost")]
    PeerLost,
    /// The peer refused the access: the key, the right or the bounds are wrong.
    #[error("the peer refused the access")]
    Refused,
    /// The provider reported an error.
    #[error("{text} ({code})")]
    Provider {
        /// The call's error number, positive.
        code: i32,
        /// The provider's own text.
        text: String,
    },
}
