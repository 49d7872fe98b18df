//! Errors of ports, by cause.

use samite_os::OsError;

use crate::PeerId;

/// Why a port refused a call, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The caller asked for more than [`Caps`](crate::Caps) allows in one operation.
    #[error("{len} bytes are more than the {max} that one operation of this port carries: split it")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The span leaves the registered region, or its registration has ended.
    #[error("offset {offset} and length {len} leave the registered memory")]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// The port has no such operation; look at its caps first.
    #[error("this port cannot {what}")]
    Unsupported {
        /// What it cannot do.
        what: &'static str,
    },
    /// The bytes are not an address of this kind of port.
    #[error("not an address of this port ({why}): were the ranks started with different transports?")]
    BadAddress {
        /// What is wrong with it.
        why: String,
    },
    /// The address is sound, but this port has no way to it: another host, another container, no permission.
    #[error("this port cannot reach the peer: {why}")]
    Unreachable {
        /// What stands in the way.
        why: String,
    },
    /// The peer refused an access that ends within its call: key, right or bounds.
    #[error("the peer refused the access: the key has ended, or does not open these bytes for that")]
    Refused,
    /// The peer was fenced, or the port lost it.
    #[error("peer {} was cut off", .0.0)]
    PeerGone(PeerId),
    /// A limit of the port or of the machine was reached.
    #[error("out of {what}: {hint}")]
    Exhausted {
        /// What ran out.
        what: &'static str,
        /// What to do about it.
        hint: String,
    },
    /// The provider or the operating system failed.
    #[error("{call} failed: {text} ({code}); {hint}")]
    Provider {
        /// The call that failed.
        call: &'static str,
        /// Its error number, positive.
        code: i32,
        /// The provider's own words for it.
        text: String,
        /// What to do about it.
        hint: String,
    },
}

impl From<OsError> for PortError {
    fn from(error: OsError) -> Self {
        match error {
            OsError::Unreachable { why } => Self::Unreachable { why },
            OsError::Exhausted { what, hint } => Self::Exhausted { what, hint },
            OsError::Failed { call, code, text, hint } => Self::Provider { call, code, text, hint },
        }
    }
}

/// Why an accepted operation did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Its peer was fenced.
    #[error("its peer was cut off")]
    Fenced,
    /// The provider lost the peer.
    #[error("its peer was lost")]
    PeerLost,
    /// The peer refused the access: key or bounds.
    #[error("the peer refused the access")]
    Refused,
    /// The provider says why.
    #[error("{text} ({code})")]
    Provider {
        /// Its error number, positive.
        code: i32,
        /// Its own words.
        text: String,
    },
}
