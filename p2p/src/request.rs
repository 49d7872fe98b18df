//! Requests: the engine's state of an operation.

use std::ops::Range;

use samite_fabric::layout::{Room, Writable};
use samite_fabric::link::{Error, Lent, RequestId, Slot, Slots, Status, Time, WorldRank};
use samite_fabric::{Body, Exposure, Memory, Region, Registration, Remote};
use samite_matching::PostedId;

use crate::outbox::Copied;
use crate::store::append;
use crate::tagged::PartitionedId;
use crate::trace::event;
use crate::wire::{TransferMode, Unmatched};

/// One operation. `state` is the protocol's part, `result` the caller's. An operation that timed out has a result
/// before its protocol has ended; it stays until both have finished.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) state: State,
    pub(crate) buffer: Buffer,
    pub(crate) partner: Partner,
    pub(crate) context: u32,
    pub(crate) tag: u64,
    pub(crate) born: Time,
    pub(crate) deadline: Time,
    /// The number of bytes that it moved. Until then `partner` and `tag` hold the other parts of its [`Status`].
    pub(crate) result: Option<Result<usize, Box<Error>>>,
    /// True if the caller has the result or wants none.
    pub(crate) collected: bool,
    /// The kind of copy that its memory is.
    pub(crate) copied: Copied,
    /// If it is a send that ends with its match (a synchronous or ready one): the treatment of its message if no receive
    /// is posted.
    pub(crate) answered: Option<Unmatched>,
    /// See [`Engine::watch`](crate::Engine::watch).
    pub(crate) watch: Watch,
}

/// The watcher that is informed when a request ends, and the watcher's key for the request. It is a part of the
/// request, because the cache lines of the request are loaded anyway at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The watcher's number; 0 in [`Watch::NONE`].
    pub(crate) watcher: u32,
    pub(crate) key: u32,
}

impl Watch {
    /// The value in a request that has no watcher.
    pub(crate) const NONE: Self = Self { watcher: 0, key: 0 };
}

/// The rank at the other end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    Rank(WorldRank),
    /// Any rank, for a receive that has not matched. Failures before the one with number `told` need no report.
    Any {
        told: u32,
    },
}

/// The event that an operation awaits.
#[derive(Debug)]
pub(crate) enum State {
    /// A send awaits its turn in the peer's queue.
    AwaitingRoom { exposure: Option<Box<Exposure>> },
    /// A send, whose envelope was sent, awaits FIN if the receiver gets or reads the bytes, or CTS if it requests them.
    AwaitingMatch { revoked: bool, exposure: Option<Box<Exposure>> },
    /// A send awaits room in the port for its next bytes.
    Pushing(Box<Push>),
    /// A receive awaits a message that matches.
    AwaitingMessage(PostedId),
    /// A receive awaits the completion of its gets.
    Pulling(Box<Pull>),
    /// A receive awaits DATA or STREAM packets; or, if it reads the bytes from exposed memory, that its buffer is lent.
    AwaitingData(Box<Inflow>),
    /// A round of a partitioned send or receive awaits its partitions. Its state is in its half.
    Partitioned { half: PartitionedId, sends: bool },
    /// The operation has ended.
    Over,
}

/// A send whose bytes were requested, or follow their envelope.
#[derive(Debug)]
pub(crate) struct Push {
    /// The receiver's name for the transfer; `None` for a stream, which uses the sender's.
    pub(crate) recv: Option<u64>,
    /// The bytes still to send.
    pub(crate) called: Range<usize>,
}

/// A receive that gets its bytes.
#[derive(Debug)]
pub(crate) struct Pull {
    /// The sender's name for the transfer.
    pub(crate) send: u64,
    pub(crate) status: Status,
    pub(crate) from: Remote,
    /// The target of the gets: the request's own memory, or a bounce buffer of `depth` chunks; `None` until
    /// registered.
    pub(crate) landing: Option<(Region, Registration)>,
    /// Bytes of one get.
    pub(crate) chunk: usize,
    /// Bytes requested, and bytes that the caller has (or, for owned memory, in place).
    pub(crate) asked: usize,
    pub(crate) landed: usize,
    /// Gets not completed.
    pub(crate) outstanding: usize,
    /// Chunks in the bounce buffer that wait for the caller's buffer: offsets in the message and
    /// lengths.
    pub(crate) waiting: Vec<(usize, usize)>,
    /// True if no more gets are posted: the operation has its result. FIN is sent when the outstanding gets have
    /// completed.
    pub(crate) abandoned: bool,
}

/// A receive whose bytes are sent or read.
#[derive(Debug)]
pub(crate) struct Inflow {
    /// The sender's name for the transfer.
    pub(crate) send: u64,
    pub(crate) status: Status,
    /// How they come; never a pull.
    pub(crate) mode: TransferMode,
    /// Bytes requested (all, for a stream) and bytes received.
    pub(crate) called: usize,
    pub(crate) received: usize,
}

/// The owner of a request's memory.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// The caller, who lends it at each poll under the number `place`. `staged` holds bytes that arrived while it was
    /// not lent.
    Lent { len: usize, place: u32, staged: Option<Box<Staged>> },
    /// The request.
    Owned(Memory),
    /// The request, registered with the port so that a peer can get it.
    Registered { region: Region, registration: Registration },
    /// A port that may still access it, or the caller again.
    Gone,
}

/// Bytes of a message that wait until their buffer is lent.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The offset of the bytes in the message.
    at: usize,
    bytes: Vec<u8>,
}

impl Staged {
    /// Keeps bytes for the offset `at`, directly after the kept ones.
    pub(crate) fn append(staged: &mut Option<Box<Self>>, at: usize, bytes: &(impl Body + ?Sized)) {
        let staged = staged.get_or_insert_with(|| Box::new(Self { at, bytes: Vec::new() }));
        append(&mut staged.bytes, bytes);
    }

    /// Copies the bytes to their offset.
    pub(crate) fn copy_to(&self, buffer: &mut (impl Room + ?Sized)) {
        buffer.put(self.at, self.bytes.as_slice());
    }
}

impl Buffer {
    pub(crate) fn lent(len: usize) -> Self {
        Self::Lent { len, place: 0, staged: None }
    }

    /// Returns true if ports may access the memory itself.
    pub(crate) fn is_region(&self) -> bool {
        match self {
            Self::Owned(memory) => !memory.is_scattered(),
            Self::Registered { .. } => true,
            Self::Lent { .. } | Self::Gone => false,
        }
    }

    /// Returns the place for a message's bytes. `None` if the caller has it and does not lend it.
    #[inline(always)]
    pub(crate) fn room<'a>(&'a mut self, id: RequestId, lent: &'a mut impl Lent) -> Option<Writable<'a>> {
        match self {
            Self::Owned(memory) => Some(memory.writable()),
            Self::Lent { place, .. } => lent.write(id, *place),
            Self::Registered { .. } | Self::Gone => no_buffer(id),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Lent { len, .. } => *len,
            Self::Owned(memory) => memory.len(),
            Self::Registered { region, .. } => region.len(),
            Self::Gone => 0,
        }
    }
}

/// A receive has its buffer until it has its result. Only gets take an owned one, for their own request, and only sends
/// register theirs.
#[cold]
pub(crate) fn no_buffer(id: RequestId) -> ! {
    unreachable!("{id:?} receives without a buffer")
}

impl Request {
    #[inline(always)]
    pub(crate) fn new(
        state: State,
        buffer: Buffer,
        partner: Partner,
        context: u32,
        tag: u64,
        born: Time,
    ) -> Self {
        Self {
            state,
            buffer,
            partner,
            context,
            tag,
            born,
            deadline: Time::NEVER,
            result: None,
            collected: false,
            copied: Copied::No,
            answered: None,
            watch: Watch::NONE,
        }
    }

    /// Returns the rank at the other end, once there is one.
    #[inline]
    pub(crate) fn rank(&self) -> Option<WorldRank> {
        match self.partner {
            Partner::Rank(rank) => Some(rank),
            Partner::Any { .. } => None,
        }
    }

    /// Sets its result.
    #[inline]
    pub(crate) fn succeed(&mut self, status: Status) {
        self.partner = Partner::Rank(status.source);
        self.tag = status.tag;
        self.result = Some(Ok(status.bytes));
        event!(TRACE, peer = status.source.0, tag = status.tag, bytes = status.bytes, "succeeded");
    }

    /// Sets an error as its result, unless it has a result.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.result.is_none() {
            event!(DEBUG, peer = self.rank().map(|rank| rank.0), tag = self.tag, ?error, "failed");
            self.result = Some(Err(Box::new(error)));
        }
    }

    /// Takes its result, if it has one.
    #[inline]
    pub(crate) fn take_result(&mut self) -> Option<Result<Status, Box<Error>>> {
        let result = self.result.take()?;
        Some(result.map(|bytes| Status { source: self.rank().unwrap_or(WorldRank(0)), tag: self.tag, bytes }))
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self.state, State::AwaitingRoom { .. } | State::AwaitingMatch { .. } | State::Pushing(_))
    }
}

impl Slot for Request {
    fn bare() -> Self {
        Self::new(State::Over, Buffer::Gone, Partner::Rank(WorldRank(0)), 0, 0, Time::ZERO)
    }

    #[inline(always)]
    fn is_bare(&self) -> bool {
        matches!(self.buffer, Buffer::Lent { staged: None, .. } | Buffer::Gone)
            && match &self.state {
                State::AwaitingRoom { exposure } | State::AwaitingMatch { exposure, .. } => {
                    exposure.is_none()
                }
                State::AwaitingMessage(_) | State::Partitioned { .. } | State::Over => true,
                State::Pushing(_) | State::Pulling(_) | State::AwaitingData(_) => false,
            }
            && !matches!(self.result, Some(Err(_)))
    }
}

/// Two cache lines.
const _: () = assert!(Slots::<Request>::BYTES == 128);
