//! Errors, by cause: misuse by the caller, failure of a peer, exhaustion of a resource, failure of the
//! provider.

use std::borrow::Cow;

use super::WorldRank;
use crate::PortError;
use crate::layout::Signature;

/// The reason why an operation did not succeed. The crate `samite` converts it to an error with a text for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Misuse: the job has no such rank.
    InvalidRank {
        /// The requested rank.
        rank: WorldRank,
        /// Ranks in the job.
        size: u32,
    },
    /// Misuse: the message is longer than the buffer. The message is consumed, and the buffer is unchanged.
    Truncated {
        /// The message.
        status: Status,
        /// Bytes in the buffer.
        room: usize,
    },
    /// Misuse: the message does not consist of whole elements of the requested type. The message is consumed, and the
    /// contents of the buffer are undefined.
    PartialElement {
        /// The message.
        status: Status,
        /// Bytes of an element.
        element: usize,
    },
    /// Misuse: the message was sent as elements of other types than those of the receive. The message is consumed, and
    /// the buffer is unchanged.
    TypesDiffer {
        /// The message.
        status: Status,
        /// The call that has started the receive.
        call: &'static str,
        /// The signature of the message.
        sent: Signature,
        /// The signature of the receive.
        expected: Signature,
    },
    /// Misuse: the two halves of a partitioned message have different lengths. No byte was sent.
    LengthsDiffer {
        /// The other rank.
        rank: WorldRank,
        /// Bytes on this side.
        ours: usize,
        /// Bytes on the other side.
        theirs: usize,
    },
    /// The members of a communicator have made collective calls that do not match.
    CallsDiffer {
        /// The calls, and what differs between them.
        difference: Box<str>,
    },
    /// Misuse: the request was collected before, or belongs to another engine.
    NoSuchRequest,
    /// Cancelled by the caller.
    Cancelled {
        /// The fate of the message.
        fate: Fate,
    },
    /// The deadline passed.
    TimedOut {
        /// The fate of the message.
        fate: Fate,
        /// The operation, and the event that it waited for.
        report: Box<Report>,
    },
    /// A peer failed, and the operation ended with it.
    PeerFailed {
        /// The failed rank.
        rank: WorldRank,
        /// The cause of the failure.
        cause: Cause,
        /// The fate of the message.
        fate: Fate,
        /// The operation, and the event that it waited for. `None` if the failure was known before the operation began.
        report: Option<Box<Report>>,
    },
    /// A peer failed that might have sent the message for a receive or probe from any source. Such operations report
    /// each failure once, even if it was known before they began, so a loop of receives from any source learns of all
    /// failures. A nonblocking receive stays posted after this error, as in ULFM, MPI's proposal for fault tolerance.
    FailurePending {
        /// The failed rank.
        rank: WorldRank,
        /// The cause of the failure.
        cause: Cause,
    },
    /// A receive or probe from any source can get no message: every other rank has left, or has failed and is not
    /// restarted, and no message of this rank to itself is under way. Each failure was reported before by
    /// [`Error::FailurePending`]. Another thread of this rank may still send to this rank. To wait for such messages,
    /// name this rank as the source: such a receive never ends with this error.
    Deserted,
    /// The other ranks gave up this rank: they consider it dead, and the launcher will end its process. This rank must
    /// write no further results to a place that the other ranks rely on.
    Condemned {
        /// The reason.
        why: String,
    },
    /// Misuse: this rank has left the job, since its `World` was dropped. Calls that wait in other threads at that time
    /// end with this error too.
    Closed {
        /// The fate of the message.
        fate: Fate,
    },
    /// Misuse: this process is a child that a rank has forked, and cannot use the rank's state. That state is
    /// unchanged.
    Forked,
    /// Misuse: a rank is a member of both groups of an intercommunicator, which must be disjoint.
    InBothGroups {
        /// The rank.
        rank: WorldRank,
    },
    /// A member has revoked the communicator: no operation on it can succeed any more, except those by which the
    /// surviving members agree.
    Revoked,
    /// The other side ended its operation early, for example by a cancel or a deadline: the sender after the match, or
    /// the receiver before all bytes had arrived.
    Abandoned {
        /// The rank that gave up.
        rank: WorldRank,
        /// The fate of the message.
        fate: Fate,
    },
    /// Misuse: no receive was posted for the message of a ready send.
    NotPosted {
        /// The receiver.
        rank: WorldRank,
    },
    /// A budget is used up.
    Exhausted {
        /// The resource that ran out.
        what: &'static str,
        /// The fix.
        hint: Cow<'static, str>,
    },
    /// The port failed.
    Port(PortError),
}

impl From<PortError> for Error {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

/// The fate of the message of an operation that did not succeed. The message of a receive is the one that it would have
/// received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The message has not been received and will not be.
    NotDelivered,
    /// The message may have been received.
    Unknown,
}

/// The cause of a peer's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The launcher reported that the peer is dead. The text says why.
    Died(String),
    /// The peer left the job in good order.
    Left,
    /// The port lost the connection to the peer.
    Lost,
    /// Packets from the peer were lost: the sequence number of a packet is later than the expected one.
    Gap {
        /// The expected number.
        expected: u32,
        /// The received number.
        got: u32,
    },
    /// The peer speaks another version of the wire.
    Version {
        /// The peer's version.
        theirs: u8,
        /// The version of this rank.
        ours: u8,
    },
    /// The peer sent an invalid packet.
    Protocol(String),
    /// The port cannot send to the peer, for the reason in the text.
    Unreachable(String),
    /// The peer sent a message within its credit, and this side has no memory left for it; or the peer keeps sending
    /// and does not take the answers.
    OutOfMemory,
    /// A later incarnation has replaced the peer.
    Restarted,
    /// The peer gave up the creation of the operation's communicator, so it is not in that communicator. It may still
    /// take part in other communicators.
    LeftContext,
    /// The peer is alive, but has given up this rank, for the reason in the text. The peer exchanges nothing with this
    /// incarnation of this rank any more. `samite run` and a rendezvous report the decision to this rank; other
    /// launchers do not.
    GaveUp(String),
}

impl Cause {
    /// Returns true if this cause means that the link itself has given up the peer. Then the peer may be alive and not
    /// know that it has failed here.
    pub(super) fn is_own_verdict(&self) -> bool {
        match self {
            Self::Gap { .. }
            | Self::Version { .. }
            | Self::Protocol(_)
            | Self::Unreachable(_)
            | Self::OutOfMemory => true,
            Self::Died(_)
            | Self::Left
            | Self::Lost
            | Self::Restarted
            | Self::LeftContext
            | Self::GaveUp(_) => false,
        }
    }
}

impl From<crate::PortError> for Cause {
    /// Returns the cause of failure of a peer for which a call of the port returned this error. If the port has lost
    /// the connection, or the peer has ended, the cause is [`Cause::Lost`], which the launcher's report can later
    /// replace.
    #[cold]
    fn from(error: crate::PortError) -> Self {
        match error {
            crate::PortError::PeerGone(_) | crate::PortError::PeerEnded { .. } => Self::Lost,
            error => Self::Unreachable(error.to_string()),
        }
    }
}

/// The cause is boxed, so that the results of handlers stay small: such errors are rare.
impl From<crate::wire::WireError> for Box<Cause> {
    #[cold]
    #[inline(never)]
    fn from(error: crate::wire::WireError) -> Self {
        Self::new(Cause::Protocol(error.to_string()))
    }
}

/// The envelope of a message: the result of a receive or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender.
    pub source: WorldRank,
    /// The message's tag.
    pub tag: u64,
    /// The message's length in bytes.
    pub bytes: usize,
}

/// The state of an operation when it timed out or its peer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Send or receive.
    pub operation: Operation,
    /// The peer; `None` for a receive from any source.
    pub peer: Option<WorldRank>,
    /// The requested tag.
    pub tag: u64,
    /// The bits of the tag that are compared: `!0` for an exact tag, 0 for any tag.
    pub mask: u64,
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Time since the operation began, in nanoseconds.
    pub age_ns: u64,
    /// The event that the operation waited for.
    pub awaited: Awaited,
    /// For a receive that got no message: the messages from the same peer that have arrived with other tags, since a
    /// wrong tag is a common mistake. `None` if there are no such messages, or if so many messages wait that counting
    /// them would be slow.
    pub other_tags: Option<OtherTags>,
    /// True if the peer's process was stopped (for example by SIGSTOP) at the launcher's last report.
    pub is_stopped: bool,
    /// For an operation of all members of a group: the members that have not begun it, according to their answers at
    /// the deadline. `None` if they were not asked.
    pub members: Option<Box<Members>>,
}

/// The answers of members to the question if they have begun an operation. The members that have begun it are not
/// listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The members that have not begun the operation.
    pub absent: Vec<WorldRank>,
    /// The members that have not answered.
    pub silent: Vec<WorldRank>,
    /// The members that have closed the communicator.
    pub closed: Vec<WorldRank>,
    /// The number of members that were not asked, because there are very many members.
    pub unasked: u32,
}

/// Messages that have arrived, and that a receive would match if they had its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherTags {
    /// The number of messages.
    pub messages: usize,
    /// The tag of the first of these messages.
    pub first: u64,
}

/// Displays the tag and mask of a receive: `tag 7`, `any tag`, or `tag 0x100 & 0xff00`.
#[derive(Clone, Copy, Debug)]
pub struct TagPattern {
    /// The requested tag.
    pub tag: u64,
    /// The bits of the tag that are compared.
    pub mask: u64,
}

impl std::fmt::Display for TagPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.mask {
            u64::MAX => write!(f, "tag {}", self.tag),
            0 => f.write_str("any tag"),
            mask => write!(f, "tag {:#x} & {mask:#x}", self.tag),
        }
    }
}

/// The kind of operation that a [`Report`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A search for a message of any length: a probe, a claim, or the first step of a receive into new memory.
    Search,
    /// The creation of a communicator.
    Creation,
    /// An agreement of the surviving members of a communicator.
    Agreement,
    /// A collective operation.
    Collective,
}

/// The event that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The peer's address.
    Address,
    /// Room in the port, or the end of earlier messages that must be sent first.
    Room,
    /// A receive that matches the message, at the receiver.
    Match,
    /// A message that matches the receive.
    Message,
    /// The rest of the message's bytes.
    Bytes,
    /// The receiver's confirmation that it has all bytes.
    Fin,
    /// Partitions that this side has not marked as ready.
    Marks,
}
