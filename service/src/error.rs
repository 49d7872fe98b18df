//! Errors of operations, by cause: misuse by the caller, failure of a peer, exhaustion of a resource, failure of the
//! transport.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use samite_fabric::PortError;
use samite_p2p::TagPattern;

use crate::layout::LayoutError;
use crate::select::Rank;
use crate::signature::name_of;
#[cfg(feature = "serde")]
use crate::value::DecodeError;
use crate::window::WindowError;

/// The reason why an operation did not succeed.
///
/// `Debug` prints the same text as `Display`, so that a `main` that returns the error prints its message.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::{Cause, Error, Rank};
///
/// if comm.rank() == 0 {
///     // Rank 1 leaves without a message.
///     match comm.recv(&mut [0u8], Rank(1), 7) {
///         Err(Error::PeerFailed { rank, cause: Cause::Left, fate, .. }) => println!("rank {rank} has left; {fate}"),
///         other => panic!("{other:?}"),
///     }
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Misuse: the communicator has no such rank.
    #[error("{}", no_such_rank(*rank, *size))]
    InvalidRank {
        /// The named rank.
        rank: Rank,
        /// The number of ranks in the communicator.
        size: u32,
    },
    /// Misuse: the message is longer than the buffer, or than the limit of a receive of a value. The message is
    /// consumed, and the buffer is unchanged.
    #[error("the message from rank {} with tag {} has {} bytes, and the receive accepts only {room}: use a larger buffer or limit, or probe first", .status.peer, .status.tag, .status.bytes)]
    Truncated {
        /// The message.
        status: Status,
        /// Bytes in the buffer, or the limit.
        room: usize,
    },
    /// Misuse: the message does not consist of whole elements of the receiving type. The message is consumed, and the
    /// contents of the buffer are undefined.
    #[error("the message from rank {} with tag {} has {} bytes, which is not a multiple of the {element} bytes of an element: receive it as the type it was sent as, or as bytes", .status.peer, .status.tag, .status.bytes)]
    PartialElement {
        /// The message.
        status: Status,
        /// Bytes of an element.
        element: usize,
    },
    /// Misuse: the message was sent as elements of other types than the call receives. The message is
    /// consumed, and the buffer is unchanged. Only programs under the check `types` get this error: see
    /// [`Check::Types`](crate::Check::Types).
    #[error("the message from rank {} with tag {} has {} bytes of `{}`, and `{call}` receives `{}`: receive it as the type it was sent as, or as bytes", .status.peer, .status.tag, .status.bytes, .types.sent, .types.expected)]
    TypesDiffer {
        /// The message.
        status: Status,
        /// The call that has started the receive.
        call: &'static str,
        /// The types.
        types: Box<ElementTypes>,
    },
    /// Misuse: the bytes of an element are not a valid value of the receiving type. The message is consumed, and a
    /// borrowed buffer is unchanged.
    #[error("the message from rank {} with tag {} has {} bytes, of which element {index} is no value of `{element}`: receive it as the type it was sent as, or as bytes", .status.peer, .status.tag, .status.bytes)]
    InvalidValue {
        /// The message.
        status: Status,
        /// The index of the first element whose bytes are not a valid value.
        index: usize,
        /// The receiving type.
        element: &'static str,
    },
    /// Misuse: the bytes of a message are not the encoding of a value of the receiving type. The message is consumed.
    #[cfg(feature = "serde")]
    #[error("the message from rank {} with tag {} has {} bytes, which are no value of `{value}`: {why}; receive it as the type it was sent as, or as bytes", .status.peer, .status.tag, .status.bytes)]
    Undecodable {
        /// The message.
        status: Status,
        /// The receiving type.
        value: &'static str,
        /// The reason.
        why: Box<DecodeError>,
    },
    /// Misuse: a value cannot be serialized. Nothing was sent.
    #[cfg(feature = "serde")]
    #[error("a value of `{value}` cannot be serialized: {why}; nothing was sent")]
    Unencodable {
        /// The type of the value.
        value: &'static str,
        /// The reason.
        why: String,
    },
    /// Misuse: a rank is not a member of the group or communicator that the call concerns. Only the members of a group
    /// may create its communicator, and each of them must be a member of the communicator on which it is created.
    #[error(
        "rank {world_rank} of the job is no member: only the members of a group create its communicator, and all of them must be members of the communicator on which they create it"
    )]
    NotAMember {
        /// The rank, in the job.
        world_rank: Rank,
    },
    /// Misuse: a rank is in both groups of an intercommunicator.
    #[error(
        "rank {world_rank} of the job is in both groups: an intercommunicator has two groups without a common rank"
    )]
    InBothGroups {
        /// The rank, in the job.
        world_rank: Rank,
    },
    /// Misuse: the call needs a communicator of one group, and this is an intercommunicator.
    #[error(
        "the call needs a communicator of one group, and this is an intercommunicator: call merge first, or use the communicator that it was created on"
    )]
    NeedsOneGroup,
    /// Misuse: the call needs an intercommunicator, and this communicator has one group.
    #[error(
        "the call needs an intercommunicator, and this communicator has one group: call create_intercomm first"
    )]
    NeedsTwoGroups,
    /// A call on a window, or a request of one, has failed for a reason that only windows have.
    #[error("{0}")]
    Window(Box<WindowError>),
    /// Misuse: a rank has no such lane.
    #[error("there is no lane {lane} among {lanes}: lanes count from 0, and SAMITE_LANES sets their number")]
    NoSuchLane {
        /// The named lane.
        lane: usize,
        /// The number of lanes of each rank.
        lanes: usize,
    },
    /// Misuse: a buffer cannot be cut into so many equal partitions. A message without bytes has at most 65,536.
    #[error(
        "{elements} elements cannot be cut into {partitions} equal partitions: the number must divide the elements, and be at most 65536 if they have no bytes"
    )]
    UnevenPartitions {
        /// The elements of the buffer.
        elements: usize,
        /// The requested number of partitions.
        partitions: usize,
    },
    /// Misuse: the two sides of a partitioned message, or of a message of a collective call, have different lengths.
    /// Nothing of it was copied.
    #[error(
        "the message with rank {rank} has {ours} bytes here and {theirs} bytes there: pass one length on both sides (of collective calls SAMITE_CHECK=collectives names the two that differ)"
    )]
    LengthsDiffer {
        /// The other rank.
        rank: Rank,
        /// Bytes on this side.
        ours: usize,
        /// Bytes on the other side.
        theirs: usize,
    },
    /// Misuse, found by the check [`Collectives`](crate::Check::Collectives): the ranks of a communicator have made
    /// collective calls that do not match. Every rank of the communicator gets this error, and no data was sent.
    #[error(
        "the ranks of the communicator made collective calls that do not match: {difference}: all ranks make the same calls in the same order, with the same arguments"
    )]
    CallsDiffer {
        /// Two of the calls, with their ranks and places in the program, and the difference between them.
        difference: Box<str>,
    },
    /// Misuse: a slice does not have the length that a collective call needs. Nothing was sent.
    #[error(
        "`{call}` needs {expected} elements of {what}, and the slice has {len}: pass a slice of that length at each rank where the call uses it"
    )]
    WrongLength {
        /// The call.
        call: &'static str,
        /// The slice: `input` or `output`.
        what: &'static str,
        /// The elements of the slice.
        len: usize,
        /// The elements that the call needs.
        expected: usize,
    },
    /// Misuse: a selection names an algorithm or an operation that does not exist.
    #[error(
        "`{selection}` selects no algorithms of collective operations: the selection is {}",
        samite_coll::Selection::NAMES
    )]
    NoSuchAlgorithm {
        /// The selection.
        selection: String,
    },
    /// Misuse: a collective call cannot work in place at this rank, or without both buffers. Nothing was sent.
    #[error("`{call}` cannot use InPlace there: see its documentation")]
    NotInPlace {
        /// The call.
        call: &'static str,
    },
    /// Misuse: the blocks of a collective call do not divide its slice among the ranks. Nothing was sent.
    #[error("`{call}` cannot use these blocks of its {what}: {why}")]
    WrongBlocks {
        /// The call.
        call: &'static str,
        /// The slice: `input` or `output`.
        what: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// Misuse: there are no such partitions.
    #[error("{} must be below {partitions}, the number of partitions in the message", partitions_of(range))]
    NoSuchPartition {
        /// The named partitions.
        range: Range<usize>,
        /// The number of partitions.
        partitions: usize,
    },
    /// Misuse: one of the partitions is already marked as ready in this round, or a [`Part`](crate::Part) of it exists.
    #[error(
        "{}: one is marked as ready already, or a thread has it; mark each partition once in a round",
        partitions_of(range)
    )]
    PartitionTaken {
        /// The named partitions.
        range: Range<usize>,
    },
    /// Misuse: a round of a partitioned send or receive has begun and not ended, or a [`Part`](crate::Part) of it
    /// exists.
    #[error(
        "the operation is active: wait for its end, and mark or drop its partitions, before its next use"
    )]
    RoundActive,
    /// Misuse of a layout.
    #[error(transparent)]
    Layout(Box<LayoutError>),
    /// Misuse: the result of the request was already returned.
    #[error(
        "no such request: its result was returned before; call test no more once it has returned a result"
    )]
    NoSuchRequest,
    /// Misuse: the call is permitted only between two rounds of the persistent operation, and a round is active.
    /// Nothing was sent or posted, and the round goes on.
    #[error(
        "the persistent operation is active: call wait, or test until it returns a result, before {call}"
    )]
    Active {
        /// The call.
        call: &'static str,
    },
    /// Misuse: no round of the persistent operation was started.
    #[error("the persistent operation is not active: call start before wait or test")]
    Inactive,
    /// A peer or a port may still access the buffer of an operation that has ended: of a persistent operation whose
    /// latest round failed, or of a message that was delivered before its receiver ended. The buffer is freed when no
    /// access is possible any more.
    #[error(
        "the operation has ended, and the network may still access its buffer: give a persistent operation another one \
         with replace_buffer"
    )]
    BufferKept,
    /// The caller cancelled the operation. A receive with this error has taken no message, and its buffer is unchanged.
    #[error("cancelled; {fate}")]
    Cancelled {
        /// The known fate of the message.
        fate: Fate,
    },
    /// The deadline passed. The buffer of a receive is unchanged, unless the receive waited for the bytes of its
    /// message ([`Awaited::Bytes`]): then the message is lost, and a part of it may be in the buffer.
    #[error("timed out: {report}; {fate}")]
    TimedOut {
        /// The known fate of the message.
        fate: Fate,
        /// The operation, and the event that it waited for.
        report: Box<Report>,
    },
    /// The operation failed because its peer has failed.
    #[error("{}{}; {fate}", failed(*rank, *world_rank, cause), during(report.as_deref()))]
    PeerFailed {
        /// The peer's rank in the communicator. In an intercommunicator this is its rank in its own group: in the other
        /// group, or in this rank's group if it takes part in a creation.
        rank: Rank,
        /// Its rank in the job.
        world_rank: Rank,
        /// The cause of the peer's failure.
        cause: Cause,
        /// The known fate of the message.
        fate: Fate,
        /// The operation, and the event that it waited for. `None` if the peer's failure was known before the operation
        /// started.
        report: Option<Box<Report>>,
    },
    /// A peer failed that a receive or probe from any source might have waited for. Each failure is reported once, also
    /// if it became known before the call: a loop that receives from any source learns of all failures. After
    /// [`Request::test`](crate::Request::test) a nonblocking receive stays posted (the rule of MPI's ULFM); a wait or a
    /// set ends it.
    #[error(
        "{}; a receive from any source may wait for it: post it again if others may still send",
        failed(*rank, *world_rank, cause)
    )]
    FailurePending {
        /// The peer's rank in the communicator.
        rank: Rank,
        /// Its rank in the job.
        world_rank: Rank,
        /// The cause of its failure.
        cause: Cause,
    },
    /// A receive or probe from any source cannot end: every other rank has left, or has failed and is not restarted,
    /// and no message of this rank to itself is under way. Each failure was reported before, by
    /// [`Error::FailurePending`]. Samite cannot know if another thread of this rank will send to this rank: a thread
    /// that waits for such messages names its own rank as their source, and such a receive never ends with this error.
    #[error(
        "every other rank has left or failed, and no message of this rank to itself is on its way: nothing can come from \
         any source"
    )]
    Deserted,
    /// The other ranks have given up this rank: they treat it as failed, and the launcher is about to end its process.
    /// This rank must write no more results on which the other ranks rely.
    #[error("this rank was given up: {why}")]
    Condemned {
        /// The reason.
        why: String,
    },
    /// Misuse: this rank has left the job, since its [`World`](crate::World) was dropped. A call that waits in another
    /// thread ends with this error too.
    #[error(
        "this rank has left the job: its World was dropped, so keep the value of init until the last call; {fate}"
    )]
    Closed {
        /// The known fate of the message.
        fate: Fate,
    },
    /// Misuse: this process was forked from a rank, and is no rank itself. The rank's state is unchanged.
    #[error(
        "this process was forked from a rank and is none: send and receive in the process that joined the job"
    )]
    Forked,
    /// Misuse: the lane has a [`Driver`](crate::Driver) already.
    #[error("this lane has a Driver already: keep one for each lane, and drop it before another is made")]
    DriverExists,
    /// This rank has left the job, and some messages of the outbox were not delivered, or their fate is unknown. The
    /// sends of these messages had returned. Their receivers failed, left, or made no call in time: see
    /// [`World::leave`](crate::World::leave).
    #[error(
        "this rank has left the job, and {} not taken: they may or may not have been delivered",
        undelivered(messages)
    )]
    Undelivered {
        /// The receivers, by their ranks in the job, and the number of such messages to each.
        messages: Vec<(Rank, u64)>,
    },
    /// A member has revoked the communicator: see [`Comm::revoke`](crate::Comm::revoke). The fate of the message is
    /// unknown.
    #[error(
        "the communicator was revoked by one of its members: go on with Comm::shrink, or with another communicator"
    )]
    Revoked,
    /// The survivors of a communicator cannot agree, because the launcher does not report the failures of all ranks:
    /// see the table in the module [`bootstrap`](crate::bootstrap).
    #[error(
        "this launcher does not report the failures of all ranks, so survivors cannot agree: start the job with \
         `samite run`, or with `samite rendezvous`"
    )]
    NoFailureReports,
    /// The sender gave up the message after it had been matched, or the receiver gave up before it had all bytes. A
    /// part of the message may be in the receiver's buffer. Also the error of a send that waited for its receive when
    /// the receiver dropped the communicator.
    #[error(
        "rank {rank} gave up before the message had been transferred (the error of its own call gives the reason); {fate}"
    )]
    Abandoned {
        /// The rank that gave up.
        rank: Rank,
        /// The known fate of the message.
        fate: Fate,
    },
    /// Misuse: a ready send whose message arrived before a receive for it was posted. Only programs under the check
    /// `modes` get this error: see [`Mode::Ready`](crate::Mode::Ready).
    #[error(
        "no receive was posted at rank {rank} for the message of a ready send: post it first, or send in another mode; \
         the data was not delivered"
    )]
    NotPosted {
        /// The receiver.
        rank: Rank,
    },
    /// Misuse: the call has a wildcard that a hint of the communicator rules out: see
    /// [`Comm::dup_with`](crate::Comm::dup_with). Nothing was posted or received.
    #[error(
        "`{call}` has a wildcard, and its communicator has the hint {hint}: name one source and one tag as the hint \
         promises, or create the communicator without the hint"
    )]
    BrokenHint {
        /// The call.
        call: &'static str,
        /// The hint that it breaks.
        hint: crate::Hints,
    },
    /// Misuse: the message is shorter than the buffer, and the communicator has the hint
    /// [`exact_length`](crate::Hints::exact_length). The message is in the buffer. Only programs under the check
    /// `hints` get this error.
    #[error("the message from rank {} with tag {} has {} bytes, the buffer {room}, and the communicator has the hint exact_length: receive into a buffer of the message's length, or create the communicator without the hint", .status.peer, .status.tag, .status.bytes)]
    NotExact {
        /// The message.
        status: Status,
        /// Bytes in the buffer.
        room: usize,
    },
    /// A budget is used up.
    #[error("out of {what}: {hint}")]
    Exhausted {
        /// The exhausted resource.
        what: &'static str,
        /// The fix.
        hint: Cow<'static, str>,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(TransportError),
}

/// The types of a message's elements, at its two ends: see [`Error::TypesDiffer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElementTypes {
    /// The type as which the message was sent. If this rank does not use the type, it does not know its name, and this
    /// text contains the digest of the type.
    pub sent: String,
    /// The type that the call receives.
    pub expected: String,
}

/// The failure of a transport: of libfabric, of shared memory, or of the operating system below. Its text names the
/// failed call and a fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TransportError(pub(crate) PortError);

/// The known fate of the data of an operation that did not succeed: of its message, or of what it does to a window. For a
/// receive: the fate of a message that it could have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fate {
    /// The message has not been received, and will not be. Operations on a window have not been carried out.
    #[error("the data was not delivered")]
    NotDelivered,
    /// The message may have been received, or the operations on a window carried out, or not.
    #[error("the data may or may not have been delivered")]
    Unknown,
}

/// The cause of a peer's failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The process of the peer has ended. The text is the report of the launcher.
    #[error("{0}")]
    Died(String),
    /// The peer has left the job, and exchanges no more messages. If its process still runs, it may fail later, unless
    /// the peer called [`World::leave`](crate::World::leave): see [`World`](crate::World).
    #[error("it has left the job")]
    Left,
    /// The transport lost the connection.
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
    /// The peer speaks another version of the wire.
    #[error(
        "it speaks version {theirs} of the wire, this rank version {ours}: use one version of samite in a job"
    )]
    Version {
        /// The peer's version.
        theirs: u8,
        /// The version of this rank.
        ours: u8,
    },
    /// The peer sent a malformed or impossible packet.
    #[error("it broke the protocol: {0}")]
    Protocol(String),
    /// The transport cannot reach the peer, for this reason.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The peer sent a message that it had credit for, and this side has no memory left to keep it in; or the peer
    /// sends without pause, and does not take the answers.
    #[error("this side is out of memory for its messages")]
    OutOfMemory,
    /// A process that was started later has replaced the peer's process.
    #[error("it was restarted")]
    Restarted,
    /// The peer is not in the communicator, because it gave up the creation.
    #[error("it gave up creating the communicator")]
    LeftComm,
    /// The peer is alive and has given up this rank, for the reason that it reports. It exchanges nothing with this
    /// incarnation of this rank any more. `samite run` and rendezvous pass the report on; other launchers do not.
    #[error("it has given up this rank and reports: {0}")]
    GaveUp(String),
}

/// A message: the result of a send, a receive or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The other rank: the sender of a message that this rank receives, the destination of one that it sends.
    /// [`Rank::ABSENT`] if there was none: see [`Destination`](crate::Destination).
    pub peer: Rank,
    /// The message's tag.
    pub tag: u64,
    /// The message's length in bytes.
    pub bytes: usize,
}

impl Status {
    /// Returns the status of an operation whose partner is absent.
    pub(crate) const fn absent(tag: u64) -> Self {
        Self { peer: Rank::ABSENT, tag, bytes: 0 }
    }
}

/// An operation that timed out, or whose peer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Send or receive.
    pub operation: Operation,
    /// The peer's rank in the communicator; `None` for a receive from any source.
    pub peer: Option<Rank>,
    /// The peer's rank in the job.
    pub world_peer: Option<Rank>,
    /// The tag of the operation.
    pub tag: u64,
    /// The bits of the tag that count: `!0` for an exact tag, 0 for any tag.
    pub mask: u64,
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Time since it began.
    pub age: Duration,
    /// The event that it waited for.
    pub awaited: Awaited,
    /// For a receive without its message: the messages from the peer that wait here under other tags. `None` if there
    /// are no such messages, or so many messages wait here that counting them would be slow.
    pub other_tags: Option<OtherTags>,
    /// True if the peer's process was stopped (by SIGSTOP, for example), as the launcher last saw it.
    pub is_stopped: bool,
    /// For a collective call that timed out: the other members, according to their answers at the deadline. `None` for
    /// other operations.
    pub members: Option<Box<Members>>,
}

/// The members of a communicator that have not begun a collective call, as far as they have answered.
///
/// A rank whose collective call times out asks the other members: those for which it waits, and others, up to 256. A
/// member answers in any call that waits or tests. The rank waits for the answers for a tenth of the time-out, or for
/// 10 ms if that is longer, and never for more than a second. Members that are not listed have begun the call. If all
/// have begun it, they may have made different calls, or wait for each other elsewhere: see
/// [`Check::Collectives`](crate::Check::Collectives).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// Members that have not begun the call.
    pub absent: Vec<Member>,
    /// Members that have not answered: they compute, are stopped, or cannot be reached.
    pub silent: Vec<Member>,
    /// Members that have dropped the communicator.
    pub closed: Vec<Member>,
    /// The number of members that were not asked.
    pub unasked: u32,
}

/// A member of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its rank in the communicator. In an intercommunicator this is its rank in its own group.
    pub rank: Rank,
    /// Its rank in the job.
    pub world_rank: Rank,
}

/// Messages that a receive does not match only because of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherTags {
    /// The number of messages.
    pub messages: usize,
    /// The tag of the message that arrived first.
    pub first: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A search for a message of any length: a probe, a claim, or [`recv_vec`](crate::Comm::recv_vec).
    Search,
    /// The creation of a communicator, which waits for a message of one of its ranks.
    Creation,
    /// An agreement of the surviving members of a communicator: see [`Comm::agree`](crate::Comm::agree) and
    /// [`Comm::shrink`](crate::Comm::shrink).
    Agreement,
    /// A collective call, which waits for a message of one of the ranks.
    Collective,
}

/// The event that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// The peer's address.
    Address,
    /// Room in the transport, or the sending of earlier messages.
    Room,
    /// The receiver's match of the message.
    Match,
    /// A message that matches.
    Message,
    /// The rest of the message's bytes.
    Bytes,
    /// The receiver's confirmation that it has all bytes.
    Fin,
    /// Partitions that this side has not marked as ready.
    Marks,
}

impl Error {
    /// Translates the ranks in the error from ranks of the job to ranks of a communicator.
    #[cold]
    pub(crate) fn in_comm(self, local: impl Fn(Rank) -> Rank) -> Self {
        let status = |status: Status| Status { peer: local(status.peer), ..status };
        let report = |mut report: Box<Report>| {
            report.peer = report.world_peer.map(&local);
            for member in report.members.iter_mut().flat_map(|members| members.all_mut()) {
                member.rank = local(member.world_rank);
            }
            report
        };
        match self {
            Self::Truncated { status: of, room } => Self::Truncated { status: status(of), room },
            Self::PartialElement { status: of, element } => {
                Self::PartialElement { status: status(of), element }
            }
            Self::TypesDiffer { status: of, call, types } => {
                Self::TypesDiffer { status: status(of), call, types }
            }
            Self::NotExact { status: of, room } => Self::NotExact { status: status(of), room },
            Self::InvalidValue { status: of, index, element } => {
                Self::InvalidValue { status: status(of), index, element }
            }
            #[cfg(feature = "serde")]
            Self::Undecodable { status: of, value, why } => {
                Self::Undecodable { status: status(of), value, why }
            }
            Self::TimedOut { fate, report: of } => Self::TimedOut { fate, report: report(of) },
            Self::PeerFailed { world_rank, cause, fate, report: of, .. } => {
                Self::PeerFailed { rank: local(world_rank), world_rank, cause, fate, report: of.map(report) }
            }
            Self::FailurePending { world_rank, cause, .. } => {
                Self::FailurePending { rank: local(world_rank), world_rank, cause }
            }
            Self::Abandoned { rank, fate } => Self::Abandoned { rank: local(rank), fate },
            Self::NotPosted { rank } => Self::NotPosted { rank: local(rank) },
            Self::Window(why) => Self::Window(Box::new(why.in_comm(local))),
            Self::LengthsDiffer { rank, ours, theirs } => {
                Self::LengthsDiffer { rank: local(rank), ours, theirs }
            }
            other => other,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Operation::Send => write!(f, "send of {} bytes to ", self.bytes)?,
            Operation::Receive => write!(f, "receive of {} bytes from ", self.bytes)?,
            Operation::Search => write!(f, "search for a message from ")?,
            Operation::Creation => write!(f, "creation of a communicator, with the next step from ")?,
            Operation::Agreement => write!(f, "agreement of survivors, with the next step from ")?,
            Operation::Collective => write!(f, "collective call, with the next step from ")?,
        }
        match self.peer {
            Some(rank) => f.write_str(&named(rank, self.world_peer.unwrap_or(rank)))?,
            None => write!(f, "any rank")?,
        }
        if let Operation::Creation | Operation::Agreement | Operation::Collective = self.operation {
            write!(f, ", after {} ms still waiting", self.age.as_millis())?;
            self.write_stop(f)?;
            return self.members.as_ref().map_or(Ok(()), |members| write!(f, "; {members}"));
        }
        let awaited = match self.awaited {
            Awaited::Address => "the peer's address",
            Awaited::Room => "room to send",
            Awaited::Match => "a matching receive",
            Awaited::Message => "a matching message",
            Awaited::Bytes => "the message's bytes",
            Awaited::Fin => "the receiver's confirmation",
            Awaited::Marks => "partitions that are not marked as ready",
        };
        let tag = TagPattern { tag: self.tag, mask: self.mask };
        write!(f, ", {tag}, after {} ms still waiting for {awaited}", self.age.as_millis())?;
        match self.other_tags {
            Some(OtherTags { messages: 1, first }) => {
                write!(f, "; a message waits here under another tag, {first}")?;
            }
            Some(OtherTags { messages, first }) => {
                write!(f, "; {messages} messages wait here under other tags, the first under {first}")?;
            }
            None => {}
        }
        self.write_stop(f)
    }
}

impl Report {
    fn write_stop(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(rank) if self.is_stopped => {
                write!(f, "; the process of {} is stopped", named(rank, self.world_peer.unwrap_or(rank)))
            }
            _ => Ok(()),
        }
    }
}

impl Members {
    fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        [&mut self.absent, &mut self.silent, &mut self.closed].into_iter().flatten()
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { absent, silent, closed, unasked } = self;
        let parts =
            [(absent, "not begun the call"), (silent, "not answered"), (closed, "dropped the communicator")];
        let named = parts.into_iter().filter(|(members, _)| !members.is_empty());
        let mut texts: Vec<_> = named.map(|(members, what)| have(members, what)).collect();
        if texts.is_empty() {
            let whole = if *unasked == 0 { "all ranks" } else { "all ranks that were asked" };
            texts.push(format!("{whole} have begun the call"));
        }
        if *unasked > 0 {
            texts.push(format!("{unasked} others were not asked"));
        }
        f.write_str(&texts.join("; "))
    }
}

/// Returns the part of an error's text about members that `what` is true of. Names the first [`NAMED_MAX`] of them.
fn have(members: &[Member], what: &str) -> String {
    if let [Member { rank, world_rank }] = *members {
        return format!("{} has {what}", named(rank, world_rank));
    }
    let shown = &members[..members.len().min(NAMED_MAX)];
    let names = match shown.iter().all(|member| member.rank == member.world_rank) {
        true => {
            let ranks = shown.iter().map(|member| member.rank.to_string());
            format!("ranks {}", ranks.collect::<Vec<_>>().join(", "))
        }
        false => {
            let names = shown.iter().map(|member| named(member.rank, member.world_rank));
            names.collect::<Vec<_>>().join(", ")
        }
    };
    match members.len() - shown.len() {
        0 => format!("{names} have {what}"),
        others => format!("{names} and {others} others have {what}"),
    }
}

/// The largest number of members that the text of an error names for one reason.
const NAMED_MAX: usize = 16;

/// Returns the text for a rank that the communicator does not have.
fn no_such_rank(rank: Rank, size: u32) -> String {
    match rank {
        Rank::ABSENT => "Rank::ABSENT names no rank: a send, receive or probe without a partner takes `None` in its place; a \
                         message in partitions needs a partner"
            .to_owned(),
        rank => format!("there is no rank {rank} in a communicator of {size}: ranks count from 0 to {}", size - 1),
    }
}

/// Returns the text of a peer's end. A rank that has left in good order has not failed.
fn failed(rank: Rank, world_rank: Rank, cause: &Cause) -> String {
    let name = named(rank, world_rank);
    match cause {
        Cause::Left => format!("{name} has left the job"),
        Cause::LeftComm => format!("{name} gave up creating the communicator"),
        cause => format!("{name} failed: {cause}"),
    }
}

/// Returns the name of a range of partitions. A range without a partition is named by its start.
fn partitions_of(range: &Range<usize>) -> String {
    match range.len() {
        0 | 1 => format!("partition {}", range.start),
        _ => format!("partitions {} to {}", range.start, range.end - 1),
    }
}

/// Returns the text for the number of messages of each receiver.
fn undelivered(messages: &[(Rank, u64)]) -> String {
    let of_rank = |&(rank, number): &(Rank, u64)| match number {
        1 => format!("1 message to rank {rank}"),
        number => format!("{number} messages to rank {rank}"),
    };
    let verb = if let [(_, 1)] = messages { "was" } else { "were" };
    format!("{} {verb}", messages.iter().map(of_rank).collect::<Vec<_>>().join(" and "))
}

/// Returns the name of a rank: its rank in its communicator, and also its rank in the job if that differs.
fn named(rank: Rank, world_rank: Rank) -> String {
    match rank == world_rank {
        true => format!("rank {rank}"),
        false => format!("rank {rank} (rank {world_rank} of the job)"),
    }
}

fn during(report: Option<&Report>) -> String {
    report.map_or_else(String::new, |report| format!("; {report}"))
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::Layout(Box::new(error))
    }
}

/// Conversion of the engine's types into the types of this crate, which users see.
pub(crate) trait Public {
    type Type;
    /// Returns the same value as this crate's type.
    fn public(self) -> Self::Type;
}

impl<T: Public, E: Public> Public for Result<T, E> {
    type Type = Result<T::Type, E::Type>;
    #[inline(always)]
    fn public(self) -> Self::Type {
        match self {
            Ok(value) => Ok(value.public()),
            Err(error) => Err(error.public()),
        }
    }
}

impl Public for samite_p2p::Status {
    type Type = Status;
    #[inline(always)]
    fn public(self) -> Status {
        Status { peer: Rank(self.source.0), tag: self.tag, bytes: self.bytes }
    }
}

impl Public for Box<samite_p2p::Error> {
    type Type = Error;
    #[cold]
    fn public(self) -> Error {
        (*self).public()
    }
}

impl Public for samite_p2p::Error {
    type Type = Error;
    #[cold]
    fn public(self) -> Error {
        use samite_p2p::Error as E;
        match self {
            E::InvalidRank { rank, size } => Error::InvalidRank { rank: Rank(rank.0), size },
            E::InBothGroups { rank } => Error::InBothGroups { world_rank: Rank(rank.0) },
            E::Truncated { status, room } => Error::Truncated { status: status.public(), room },
            E::PartialElement { status, element } => {
                Error::PartialElement { status: status.public(), element }
            }
            E::TypesDiffer { status, call, sent, expected } => {
                let (sent, expected) = (name_of(sent), name_of(expected));
                let types = Box::new(ElementTypes { sent, expected });
                Error::TypesDiffer { status: status.public(), call, types }
            }
            E::LengthsDiffer { rank, ours, theirs } => {
                Error::LengthsDiffer { rank: Rank(rank.0), ours, theirs }
            }
            E::CallsDiffer { difference } => Error::CallsDiffer { difference },
            E::NoSuchRequest => Error::NoSuchRequest,
            E::Cancelled { fate } => Error::Cancelled { fate: fate.public() },
            E::TimedOut { fate, report } => {
                Error::TimedOut { fate: fate.public(), report: Box::new(report.public()) }
            }
            E::PeerFailed { rank, cause, fate, report } => Error::PeerFailed {
                rank: Rank(rank.0),
                world_rank: Rank(rank.0),
                cause: cause.public(),
                fate: fate.public(),
                report: report.map(|report| Box::new(report.public())),
            },
            E::FailurePending { rank, cause } => {
                Error::FailurePending { rank: Rank(rank.0), world_rank: Rank(rank.0), cause: cause.public() }
            }
            E::Deserted => Error::Deserted,
            E::Revoked => Error::Revoked,
            E::Condemned { why } => Error::Condemned { why },
            E::Closed { fate } => Error::Closed { fate: fate.public() },
            E::Forked => Error::Forked,
            E::Abandoned { rank, fate } => Error::Abandoned { rank: Rank(rank.0), fate: fate.public() },
            E::NotPosted { rank } => Error::NotPosted { rank: Rank(rank.0) },
            E::Exhausted { what, hint } => Error::Exhausted { what, hint },
            E::Port(error) => Error::Transport(TransportError(error)),
        }
    }
}

impl Public for samite_p2p::Fate {
    type Type = Fate;
    fn public(self) -> Fate {
        match self {
            Self::NotDelivered => Fate::NotDelivered,
            Self::Unknown => Fate::Unknown,
        }
    }
}

impl Public for samite_p2p::Cause {
    type Type = Cause;
    fn public(self) -> Cause {
        match self {
            Self::Died(how) => Cause::Died(how),
            Self::Left => Cause::Left,
            Self::Lost => Cause::Lost,
            Self::Gap { expected, got } => Cause::Gap { expected, got },
            Self::Version { theirs, ours } => Cause::Version { theirs, ours },
            Self::Protocol(what) => Cause::Protocol(what),
            Self::Unreachable(why) => Cause::Unreachable(why),
            Self::OutOfMemory => Cause::OutOfMemory,
            Self::Restarted => Cause::Restarted,
            Self::LeftContext => Cause::LeftComm,
            Self::GaveUp(why) => Cause::GaveUp(why),
        }
    }
}

impl Public for samite_p2p::Report {
    type Type = Report;
    fn public(self) -> Report {
        Report {
            operation: match self.operation {
                samite_p2p::Operation::Send => Operation::Send,
                samite_p2p::Operation::Receive => Operation::Receive,
                samite_p2p::Operation::Search => Operation::Search,
                samite_p2p::Operation::Creation => Operation::Creation,
                samite_p2p::Operation::Agreement => Operation::Agreement,
                samite_p2p::Operation::Collective => Operation::Collective,
            },
            peer: self.peer.map(|rank| Rank(rank.0)),
            world_peer: self.peer.map(|rank| Rank(rank.0)),
            tag: self.tag,
            mask: self.mask,
            bytes: self.bytes,
            age: Duration::from_nanos(self.age_ns),
            awaited: self.awaited.public(),
            other_tags: self
                .other_tags
                .map(|samite_p2p::OtherTags { messages, first }| OtherTags { messages, first }),
            is_stopped: self.is_stopped,
            members: self.members.map(|members| Box::new(members.public())),
        }
    }
}

impl Public for samite_p2p::Members {
    type Type = Members;
    fn public(self) -> Members {
        let all = |ranks: Vec<samite_p2p::WorldRank>| {
            let member =
                |rank: samite_p2p::WorldRank| Member { rank: Rank(rank.0), world_rank: Rank(rank.0) };
            ranks.into_iter().map(member).collect()
        };
        let Self { absent, silent, closed, unasked } = self;
        Members { absent: all(absent), silent: all(silent), closed: all(closed), unasked }
    }
}

impl Public for samite_p2p::Awaited {
    type Type = Awaited;
    fn public(self) -> Awaited {
        match self {
            Self::Address => Awaited::Address,
            Self::Room => Awaited::Room,
            Self::Match => Awaited::Match,
            Self::Message => Awaited::Message,
            Self::Bytes => Awaited::Bytes,
            Self::Fin => Awaited::Fin,
            Self::Marks => Awaited::Marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use samite_fabric::layout::Signature;
    use samite_p2p::{self as engine, WorldRank};

    use super::*;

    #[test]
    fn a_rank_that_left_has_not_failed() {
        let fate = Fate::NotDelivered;
        let world_rank = Rank(2);
        let error =
            |cause| Error::PeerFailed { rank: Rank(2), world_rank, cause, fate, report: None }.to_string();
        assert_eq!(error(Cause::Left), "rank 2 has left the job; the data was not delivered");
        assert_eq!(error(Cause::Lost), "rank 2 failed: the connection was lost; the data was not delivered");
    }

    #[test]
    fn every_error_says_what_happened() {
        let status = engine::Status { source: WorldRank(3), tag: 7, bytes: 10 };
        let report = engine::Report {
            operation: engine::Operation::Receive,
            peer: Some(WorldRank(3)),
            tag: 7,
            mask: !0,
            bytes: 8,
            age_ns: 1_500_000_000,
            awaited: engine::Awaited::Message,
            other_tags: Some(engine::OtherTags { messages: 1, first: 9 }),
            is_stopped: true,
            members: None,
        };
        let mut reports = vec![report.clone()];
        for awaited in [
            engine::Awaited::Address,
            engine::Awaited::Room,
            engine::Awaited::Match,
            engine::Awaited::Bytes,
            engine::Awaited::Fin,
            engine::Awaited::Marks,
        ] {
            let (operation, mask) = (engine::Operation::Send, 0xff);
            reports.push(engine::Report { operation, mask, awaited, other_tags: None, ..report.clone() });
        }
        let others = Some(engine::OtherTags { messages: 2, first: 9 });
        reports.push(engine::Report { peer: None, mask: 0, other_tags: others, ..report.clone() });
        for operation in
            [engine::Operation::Search, engine::Operation::Creation, engine::Operation::Agreement]
        {
            reports.push(engine::Report { operation, bytes: 0, ..report.clone() });
        }
        let (absent, silent) = (vec![WorldRank(1), WorldRank(3)], (0..20).map(WorldRank).collect());
        for members in [
            engine::Members::default(),
            engine::Members { absent, closed: vec![WorldRank(5)], ..engine::Members::default() },
            engine::Members { silent, unasked: 7, ..engine::Members::default() },
        ] {
            let members = Some(Box::new(members));
            let operation = engine::Operation::Collective;
            reports.push(engine::Report { operation, members, is_stopped: false, ..report.clone() });
        }
        let causes = [
            engine::Cause::Died("killed by SIGKILL".into()),
            engine::Cause::Left,
            engine::Cause::Lost,
            engine::Cause::Gap { expected: 4, got: 6 },
            engine::Cause::Version { theirs: 1, ours: 2 },
            engine::Cause::Protocol("an unknown packet".into()),
            engine::Cause::Unreachable("another host".into()),
            engine::Cause::OutOfMemory,
            engine::Cause::Restarted,
            engine::Cause::LeftContext,
            engine::Cause::GaveUp("packets were lost".into()),
        ];
        let fate = engine::Fate::Unknown;
        let mut errors = vec![
            engine::Error::InvalidRank { rank: WorldRank(4), size: 4 },
            engine::Error::InvalidRank { rank: WorldRank(Rank::ABSENT.0), size: 4 },
            engine::Error::InBothGroups { rank: WorldRank(4) },
            engine::Error::Truncated { status, room: 8 },
            engine::Error::PartialElement { status, element: 8 },
            engine::Error::TypesDiffer {
                status,
                call: "recv",
                sent: Signature::of_type("f32", 4),
                expected: Signature::of_type("u32", 4),
            },
            engine::Error::LengthsDiffer { rank: engine::WorldRank(3), ours: 8, theirs: 10 },
            engine::Error::CallsDiffer { difference: "rank 0 ..., and rank 2 ...".into() },
            engine::Error::NoSuchRequest,
            engine::Error::Cancelled { fate: engine::Fate::NotDelivered },
            engine::Error::Deserted,
            engine::Error::Condemned { why: "its host was lost".into() },
            engine::Error::Closed { fate },
            engine::Error::Forked,
            engine::Error::Abandoned { rank: WorldRank(3), fate },
            engine::Error::NotPosted { rank: WorldRank(3) },
            engine::Error::Exhausted { what: "memory", hint: "use less".into() },
            engine::Error::Port(PortError::Unsupported { what: "put" }),
        ];
        for report in reports {
            let report = Some(Box::new(report));
            errors.push(engine::Error::PeerFailed {
                rank: WorldRank(3),
                cause: causes[0].clone(),
                fate,
                report,
            });
        }
        errors.push(engine::Error::TimedOut { fate, report: Box::new(report) });
        for cause in causes {
            errors.push(engine::Error::PeerFailed {
                rank: WorldRank(3),
                cause: cause.clone(),
                fate,
                report: None,
            });
            errors.push(engine::Error::FailurePending { rank: WorldRank(3), cause });
        }
        let mut texts: Vec<_> = errors.into_iter().map(|error| error.public().to_string()).collect();
        let invalid = Error::InvalidValue { status: status.public(), index: 4, element: "bool" };
        texts.push(invalid.to_string());
        insta::assert_snapshot!(texts.join("\n"));
    }
}
