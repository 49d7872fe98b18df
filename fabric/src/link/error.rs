//! Errors, by cause: misuse by the caller, failure of a peer, exhaustion of a resource, failure of the
//! provider.

use std::borrow::Cow;

use crate::PortError;

/// Why an operation did not succeed. In the debug format too it is its message, so that a `main` that returns
/// it tells its user what happened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Misuse: no such rank.
    #[error("there is no rank {rank} in a job of {size}: ranks count from 0 to {}", size - 1)]
    InvalidRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// Misuse: the message is longer than the buffer. The message is used up, and the buffer left as it was.
    #[error("the message from rank {} with tag {} has {} bytes, the buffer only {room}: make it larger, or probe first", .status.source, .status.tag, .status.bytes)]
    Truncated {
        /// The message.
        status: Status,
        /// Bytes in the buffer.
        room: usize,
    },
    /// Misuse: the message does not consist of whole elements of the type that it is received as. The message is used up;
    /// what is in the buffer is undefined.
    #[error("the message from rank {} with tag {} has {} bytes, which is not a multiple of the {element} bytes of an element: receive it as the type it was sent as, or as bytes", .status.source, .status.tag, .status.bytes)]
    PartialElement {
        /// The message.
        status: Status,
        /// Bytes of an element.
        element: usize,
    },
    /// Misuse: the request was already finished, or is another engine's.
    #[error("no such request: it was finished before")]
    NoSuchRequest,
    /// Cancelled by the caller.
    #[error("cancelled; {fate}")]
    Cancelled {
        /// What is known of the message.
        fate: Fate,
    },
    /// The deadline passed.
    #[error("timed out: {report}; {fate}")]
    TimedOut {
        /// What is known of the message.
        fate: Fate,
        /// What the operation was, and what it waited for.
        report: Box<Report>,
    },
    /// A peer failed, and the operation with it.
    #[error("rank {rank} failed ({cause}){}; {fate}", during(report))]
    PeerFailed {
        /// Who.
        rank: u32,
        /// How.
        cause: Cause,
        /// What is known of the message.
        fate: Fate,
        /// What the operation was, and what it waited for; none if it was known before that the peer had failed.
        report: Option<Box<Report>>,
    },
    /// A peer failed that a receive, or probe, from any source might have waited for. Told once for each failure, also if
    /// it became known before: whoever receives from any source in a loop hears of all. A nonblocking receive
    /// stays posted (the rule of MPI's ULFM).
    #[error(
        "rank {rank} failed ({cause}), and a receive from any source may wait for it: post it again if others may still send"
    )]
    FailurePending {
        /// Who.
        rank: u32,
        /// How.
        cause: Cause,
    },
    /// A receive or probe from any source waits for nothing: every other rank has left, or has failed and is not started
    /// again, and no message of this rank to itself is on its way. Each failure was told before, by
    /// [`Error::FailurePending`]. Whether another thread of this rank will send to it cannot be known: a thread that waits
    /// for such messages names its own rank as their source, and such a receive never ends with this error.
    #[error(
        "every other rank has left or failed, and no message of this rank to itself is on its way: nothing can come from \
         any source"
    )]
    Deserted,
    /// This rank itself was given up: the others take it for dead, and it is about to be ended. What it still
    /// computes must not be written anywhere that the others rely on.
    #[error("this rank was given up: {why}")]
    Condemned {
        /// What happened.
        why: String,
    },
    /// Misuse: this rank has left the job, since its `World` was dropped. A call that waits in another thread ends with it
    /// too.
    #[error("this rank has left the job, its World was dropped; {fate}")]
    Closed {
        /// What is known of the message.
        fate: Fate,
    },
    /// Misuse: this process was forked from a rank, and is none itself. What the rank has is left as it was.
    #[error(
        "this process was forked from a rank and is none: send and receive in the process that joined the job"
    )]
    Forked,
    /// The sender gave up on the message after it had been matched, or the receiver before it had all of it.
    #[error("rank {rank} gave up before the message was across; {fate}")]
    Abandoned {
        /// Who gave up.
        rank: u32,
        /// What is known of the message.
        fate: Fate,
    },
    /// A budget is used up.
    #[error("out of {what}: {hint}")]
    Exhausted {
        /// What ran out.
        what: &'static str,
        /// What to do about it.
        hint: Cow<'static, str>,
    },
    /// The port failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// What is known of a message whose operation did not succeed. (For a receive: of a message for it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fate {
    /// It has not been received, and will not be.
    #[error("the message was not delivered")]
    NotDelivered,
    /// It may have been received, or not.
    #[error("the message may or may not have been delivered")]
    Unknown,
}

/// How a peer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// It is dead, as told by whoever watches over it.
    #[error("{0}")]
    Died(String),
    /// It left the job in good order, and takes no more part.
    #[error("it has left the job")]
    Left,
    /// The port lost it.
    #[error("the connection was lost")]
    Lost,
    /// Packets from it are missing.
    #[error("packets were lost: number {got} came where {expected} was due")]
    Gap {
        /// The number due.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// It sent something that makes no sense.
    #[error("it broke the protocol: {0}")]
    Protocol(String),
    /// The port refuses to reach it.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It sent a message that it had credit for, and this side has no memory left to keep it in; or it sends
    /// on and on, and does not take the answers.
    #[error("this side is out of memory for its messages")]
    OutOfMemory,
    /// Its place was taken by a process that was started later.
    #[error("it was restarted")]
    Restarted,
    /// It is alive and has given up this rank, for the reason that it reports. It exchanges nothing with this
    /// incarnation of this rank any more. `samite run` and rendezvous pass the report on; other launchers do not.
    #[error("it has given up this rank and reports: {0}")]
    GaveUp(String),
}

impl Cause {
    /// Returns true if a link gives up a peer for this cause by its own judgement. The peer may be alive and not know.
    pub(super) fn is_own_verdict(&self) -> bool {
        match self {
            Self::Gap { .. } | Self::Protocol(_) | Self::Unreachable(_) | Self::OutOfMemory => true,
            Self::Died(_) | Self::Left | Self::Lost | Self::Restarted | Self::GaveUp(_) => false,
        }
    }
}

/// Boxed, so that the results of handlers stay small: such an error is rare.
impl From<crate::wire::WireError> for Box<Cause> {
    #[cold]
    #[inline(never)]
    fn from(error: crate::wire::WireError) -> Self {
        Self::new(Cause::Protocol(error.to_string()))
    }
}

/// What a message was: the result of a receive or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

/// What an operation was, told when it times out or its peer fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Send or receive.
    pub operation: Operation,
    /// The peer; none for a receive from any source.
    pub peer: Option<u32>,
    /// The tag as it was asked for.
    pub tag: u64,
    /// The bits of the tag that count: `!0` for an exact tag, 0 for any tag.
    pub mask: u64,
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Time since it began, nanoseconds.
    pub age_ns: u64,
    /// What it waited for.
    pub awaited: Awaited,
    /// For a receive without its message: the messages from the peer that wait here under other tags. None if there are
    /// no such messages, or so many messages wait here that counting them would be slow.
    pub other_tags: Option<OtherTags>,
    /// Whether the peer's process was stopped (by SIGSTOP, say), as whoever watches over it saw last.
    pub is_stopped: bool,
}

/// Messages that a receive does not match only because of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherTags {
    /// How many.
    pub messages: usize,
    /// The tag of the one that came first.
    pub first: u64,
}

/// The tag of a pattern, for people: `tag 7`, `any tag`, or `tag 0x100 & 0xff00`.
#[derive(Clone, Copy, Debug)]
pub struct TagPattern {
    /// The tag as it was asked for.
    pub tag: u64,
    /// The bits of it that count.
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

/// The side that an operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// A receive.
    Receive,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// The peer's address.
    Address,
    /// Room in the port, or messages sent before it.
    Room,
    /// The receiver to match the message.
    Match,
    /// A message to match.
    Message,
    /// The rest of the message's bytes.
    Bytes,
    /// The receiver's word that it has them all.
    Fin,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (operation, preposition) = match self.operation {
            Operation::Send => ("send", "to"),
            Operation::Receive => ("receive", "from"),
        };
        write!(f, "{operation} of {} bytes {preposition} ", self.bytes)?;
        match self.peer {
            Some(rank) => write!(f, "rank {rank}")?,
            None => write!(f, "any rank")?,
        }
        let awaited = match self.awaited {
            Awaited::Address => "the peer's address",
            Awaited::Room => "room to send",
            Awaited::Match => "a matching receive",
            Awaited::Message => "a matching message",
            Awaited::Bytes => "the message's bytes",
            Awaited::Fin => "the receiver's confirmation",
        };
        let tag = TagPattern { tag: self.tag, mask: self.mask };
        write!(f, ", {tag}, after {} ms still waiting for {awaited}", self.age_ns / 1_000_000)?;
        match self.other_tags {
            Some(OtherTags { messages: 1, first }) => {
                write!(f, "; a message waits here under another tag, {first}")?;
            }
            Some(OtherTags { messages, first }) => {
                write!(f, "; {messages} messages wait here under other tags, the first under {first}")?;
            }
            None => {}
        }
        match self.peer {
            Some(rank) if self.is_stopped => write!(f, "; the process of rank {rank} is stopped"),
            _ => Ok(()),
        }
    }
}

fn during(report: &Option<Box<Report>>) -> String {
    report.as_ref().map_or_else(String::new, |report| format!(" during a {report}"))
}
