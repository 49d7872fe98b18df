//! Requests: the engine's state of an operation.

use std::collections::VecDeque;
use std::ops::Range;

use samite_fabric::layout::{Readable, Room, Writable};
use samite_fabric::link::{Error, Lease, Lent, Peer, RequestId, Slab, Slot, Slots, Status, Time, WorldRank};
use samite_fabric::{Body, Exposure, Memory, Region, Remote};
use samite_matching::PostedId;

use crate::outbox::Copied;
use crate::store::append;
use crate::tagged::{PartitionedId, Target};
use crate::trace::event;
use crate::wire::{TransferMode, Unmatched};

/// One operation. `state` is the progress of its packets and transfers, `result` the outcome for the caller. An
/// operation that timed out has a result while its transfer may still have to be finished. The request is removed when
/// the transfer has ended and the result was collected.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) state: State,
    pub(crate) buffer: Buffer,
    pub(crate) partner: Partner,
    pub(crate) context: u32,
    pub(crate) tag: u64,
    pub(crate) born: Time,
    pub(crate) deadline: Time,
    /// The outcome for the caller; `None` until there is one. Of a success only the number of bytes is kept: `partner`
    /// and `tag` hold the other parts of the [`Status`].
    pub(crate) result: Option<Result<usize, Box<Error>>>,
    /// True if the caller has collected the result or does not want it.
    pub(crate) collected: bool,
    /// True if the operation needs progress between the program's calls: its message may be long, and it owns its
    /// buffer, or all polls lend the buffer ([`Engine::lends_always`](crate::Engine::lends_always)). A send whose
    /// receiver reads the bytes itself needs none. False once the operation has ended.
    pub(crate) travels: bool,
    /// States if the request's memory is a copy, and if the caller still waits for the send.
    pub(crate) copied: Copied,
    /// For a synchronous or ready send, which ends with the match: what the receiver does with the message if no
    /// receive for it is posted. `None` for all other operations.
    pub(crate) answered: Option<Unmatched>,
    /// See [`Engine::watch`](crate::Engine::watch).
    pub(crate) watch: Watch,
}

/// The watcher that is informed when a request ends, and the watcher's key for the request. This value is
/// stored in the request, because the request's cache lines are loaded anyway when the request ends.
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
    /// Any rank, for a receive that has not matched. The receive need not report the first `told` failures of
    /// [`Failures`](crate::failures::Failures).
    Any {
        told: u32,
    },
}

/// The event that an operation awaits.
#[derive(Debug)]
pub(crate) enum State {
    /// A send awaits its turn in the peer's queue.
    AwaitingRoom { exposure: Option<Box<Exposure>> },
    /// A send whose envelope was sent awaits the receiver's answer. This is CTS if the receiver requests the bytes,
    /// PLACE if it offers memory for puts, and otherwise FIN: when the receiver has matched a SYNC, has got or read the
    /// bytes itself, or does not accept the message. `revoked` is true once REVOKE was queued.
    AwaitingMatch { revoked: bool, exposure: Option<Box<Exposure>> },
    /// A send whose bytes travel in packets awaits that it can send the next bytes: that the receiver requests them,
    /// that their buffer is lent, and that the port has room.
    Pushing(Box<Push>),
    /// A send awaits the end of its puts, or the place of more bytes in the receiver's memory.
    Putting(Box<Put>),
    /// A receive awaits a message that matches.
    AwaitingMessage(PostedId),
    /// A receive awaits the completion of its gets.
    Pulling(Box<Pull>),
    /// A receive awaits the bytes that its sender puts into its memory.
    Landing(Box<Landing>),
    /// A receive awaits DATA or STREAM packets. Or it reads the bytes from exposed memory, and awaits its next turn, in
    /// which its buffer must be lent.
    AwaitingData(Box<Inflow>),
    /// A round of a partitioned send or receive awaits its partitions. The state of the round is in the half.
    Partitioned { half: PartitionedId, sends: bool },
    /// An operation awaits its end, which the engine's user reports: see
    /// [`Engine::begin_composite`](crate::Engine::begin_composite).
    Composite,
    /// The operation has ended.
    Over,
}

/// The progress of a send whose bytes are sent in packets: because the receiver has requested them, or as a stream.
#[derive(Debug)]
pub(crate) struct Push {
    /// The receiver's name for the transfer. `None` for a stream, whose packets carry the sender's name.
    pub(crate) recv: Option<u64>,
    /// The bytes still to send.
    pub(crate) to_send: Range<usize>,
}

/// The progress of a receive that fetches its bytes by gets.
#[derive(Debug)]
pub(crate) struct Pull {
    /// The sender's name for the transfer.
    pub(crate) send: u64,
    pub(crate) status: Status,
    pub(crate) from: Remote,
    /// The memory that the gets write. `None` until it is registered.
    pub(crate) target: Option<Target>,
    /// The number of bytes for which gets were posted.
    pub(crate) posted: usize,
    /// The number of fetched bytes that are in the caller's buffer or in the request's own memory.
    pub(crate) landed: usize,
    /// The number of gets that have not completed.
    pub(crate) outstanding: usize,
    /// Parts that have arrived in slabs and wait until the caller lends its buffer: their offset in the
    /// message, and their length.
    pub(crate) waiting: Vec<(usize, usize)>,
    /// True if the receive was given up, and so has its result already. Then no more gets are posted, and FIN is sent
    /// when the outstanding gets have completed.
    pub(crate) abandoned: bool,
}

/// The progress of a send whose bytes are put into the receiver's memory.
#[derive(Debug)]
pub(crate) struct Put {
    /// The receiver.
    pub(crate) to: Peer,
    /// The receiver's name for the transfer.
    pub(crate) recv: u64,
    /// The length of the message.
    pub(crate) total: usize,
    /// The parts for which the receiver has offered memory, and that were not posted whole.
    pub(crate) parts: VecDeque<Part>,
    /// The number of bytes for which the receiver has offered memory so far.
    pub(crate) offered: usize,
    /// The number of bytes for which puts were posted.
    pub(crate) posted: usize,
    /// The number of bytes that the last LANDED has reported to the receiver.
    pub(crate) reported: usize,
    /// The time of that LANDED, or of the first PLACE.
    pub(crate) reported_at: Time,
    /// Memory with copies of the bytes that are being put. Each slab has the bytes of one put. Empty if the request's
    /// own memory is registered.
    pub(crate) slabs: Vec<Slab>,
    /// The numbers of the slabs that no put uses.
    pub(crate) free: Vec<usize>,
    /// The number of puts that have not ended.
    pub(crate) outstanding: usize,
    /// True if the receiver has left after it was informed that all bytes are in its memory. So the message has been
    /// delivered, whatever the result of the outstanding puts.
    pub(crate) is_delivered: bool,
    /// True if the operation has its result already. Then no more puts are posted. ABORT is sent when the outstanding
    /// puts have ended.
    pub(crate) abandoned: bool,
}

impl Put {
    pub(crate) fn new(to: Peer, recv: u64, total: usize, first: Part, now: Time) -> Self {
        Self {
            to,
            recv,
            total,
            offered: first.end,
            parts: VecDeque::from([first]),
            posted: 0,
            reported: 0,
            reported_at: now,
            slabs: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            is_delivered: false,
            abandoned: false,
        }
    }

    /// Returns true if the receiver has been informed that all bytes are in its memory. Then only the end of the last
    /// puts is awaited, because the port may still read this side's memory.
    pub(crate) fn is_whole(&self) -> bool {
        self.reported == self.total
    }

    /// Returns the number of bytes of the parts whose puts were all posted.
    pub(crate) fn posted_parts(&self) -> usize {
        self.parts.front().map_or(self.posted, |part| part.start)
    }

    /// Notes that the put with this slab has ended. Without slabs the number means nothing.
    pub(crate) fn release(&mut self, slab: usize) {
        if !self.slabs.is_empty() {
            self.free.push(slab);
        }
    }
}

/// A part of a message, and the receiver's memory for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The offset of its first byte in the message.
    pub(crate) start: usize,
    /// The offset behind its last byte.
    pub(crate) end: usize,
    /// The place of the first byte.
    pub(crate) into: Remote,
}

/// The progress of a receive into whose memory the sender puts the bytes.
#[derive(Debug)]
pub(crate) struct Landing {
    /// The sender's name for the transfer.
    pub(crate) send: u64,
    pub(crate) status: Status,
    /// The memory that the sender's puts write. `None` until it is registered.
    pub(crate) target: Option<Target>,
    /// The number of bytes for which memory was offered to the sender.
    pub(crate) offered: usize,
    /// The number of bytes that the sender has put.
    pub(crate) landed: usize,
    /// The number of bytes that are in the caller's buffer or in the request's own memory.
    pub(crate) copied: usize,
    /// True if the sender cannot put the bytes, because it cannot register its memory.
    pub(crate) is_refused: bool,
    /// True if the operation has its result already. Then no more memory is offered, and the request ends when the
    /// sender can write to its memory no more.
    pub(crate) abandoned: bool,
}

impl Landing {
    /// Returns true if all bytes of the message are in memory of this side, so that its sender is needed no more.
    pub(crate) fn is_whole(&self) -> bool {
        self.landed == self.status.bytes
    }
}

/// The progress of a receive whose bytes arrive in packets, or are read from exposed memory.
#[derive(Debug)]
pub(crate) struct Inflow {
    /// The sender's name for the transfer.
    pub(crate) send: u64,
    pub(crate) status: Status,
    /// The transfer mode of the bytes: `Push`, `Stream` or `Read`. A receive by gets is in the state [`State::Pulling`]
    /// instead, and a receive by puts in the state [`State::Landing`].
    pub(crate) mode: TransferMode,
    /// The number of bytes that the sender may send: the bytes that were requested, or for a stream all bytes.
    pub(crate) requested: usize,
    /// The number of bytes that have arrived or were read.
    pub(crate) received: usize,
}

/// The owner of a request's memory.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// The caller owns the memory, and lends it at each poll under the number `place`. `staged` holds bytes that
    /// arrived while the memory was not lent.
    Lent { len: usize, place: u32, staged: Option<Box<Staged>> },
    /// The request owns the memory.
    Owned(Memory),
    /// The request owns the memory, and it is registered with the port: a send's memory, so that the receiver can get
    /// the bytes or the port can put them.
    Registered { region: Region, lease: Lease },
    /// The request has no memory: the memory was returned to the caller, is the [`Target`] of gets or puts, or is kept
    /// by a port that may still access it; or the operation is a round of a partitioned half.
    Gone,
}

/// Bytes of a message that wait until the buffer of their receive is lent.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The offset of the bytes in the message.
    at: usize,
    bytes: Vec<u8>,
}

impl Staged {
    /// Stages bytes that belong at the offset `at` of the message, directly behind the bytes that are staged already.
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

    /// Returns the memory into which a message is to be received. Returns `None` if the caller owns it and does not
    /// lend it now.
    #[inline(always)]
    pub(crate) fn room<'a>(&'a mut self, id: RequestId, lent: &'a mut impl Lent) -> Option<Writable<'a>> {
        match self {
            Self::Owned(memory) => Some(memory.writable()),
            Self::Lent { place, .. } => lent.write(id, *place),
            Self::Registered { .. } | Self::Gone => no_buffer(id),
        }
    }

    /// Returns the bytes of a message that is sent. Returns `None` if the caller owns them and does not lend them now.
    pub(crate) fn bytes<'a>(&'a self, id: RequestId, lent: &'a impl Lent) -> Option<Readable<'a>> {
        match self {
            Self::Owned(memory) => Some(memory.readable()),
            Self::Lent { place, .. } => lent.read(id, *place),
            Self::Registered { .. } | Self::Gone => None,
        }
    }

    /// Returns the length of memory that the request owns.
    #[inline(always)]
    pub(crate) fn own_len(&self) -> Option<usize> {
        if let Self::Owned(memory) = self { Some(memory.len()) } else { None }
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

/// Panics because a receive without a result has no buffer into which its message can be copied, which is a bug. A
/// receive keeps its buffer until it has a result, and only sends register their buffers. If the buffer of a receive is
/// the target of gets or puts, no bytes are copied into it, so this function is not called.
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
            travels: false,
            copied: Copied::No,
            answered: None,
            watch: Watch::NONE,
        }
    }

    /// Returns the rank at the other end, or `None` for a receive from any source that has not been matched.
    #[inline]
    pub(crate) fn rank(&self) -> Option<WorldRank> {
        match self.partner {
            Partner::Rank(rank) => Some(rank),
            Partner::Any { .. } => None,
        }
    }

    /// Sets a success as the result, and the rank and tag of the message as those of the request.
    #[inline]
    pub(crate) fn succeed(&mut self, status: Status) {
        self.partner = Partner::Rank(status.source);
        self.tag = status.tag;
        self.result = Some(Ok(status.bytes));
        event!(TRACE, peer = status.source.0, tag = status.tag, bytes = status.bytes, "succeeded");
    }

    /// Sets an error as the result, unless there is a result already.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.result.is_none() {
            event!(DEBUG, peer = self.rank().map(|rank| rank.0), tag = self.tag, ?error, "failed");
            self.result = Some(Err(Box::new(error)));
        }
    }

    /// Takes the result, if there is one.
    #[inline]
    pub(crate) fn take_result(&mut self) -> Option<Result<Status, Box<Error>>> {
        let result = self.result.take()?;
        Some(result.map(|bytes| Status { source: self.rank().unwrap_or(WorldRank(0)), tag: self.tag, bytes }))
    }

    /// Sets the state to [`State::Over`]. Returns true if the operation needed progress until now.
    #[inline(always)]
    pub(crate) fn end_travel(&mut self) -> bool {
        self.state = State::Over;
        std::mem::take(&mut self.travels)
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(
            self.state,
            State::AwaitingRoom { .. } | State::AwaitingMatch { .. } | State::Pushing(_) | State::Putting(_)
        )
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
                State::AwaitingMessage(_) | State::Partitioned { .. } | State::Composite | State::Over => {
                    true
                }
                State::Pushing(_)
                | State::Putting(_)
                | State::Pulling(_)
                | State::Landing(_)
                | State::AwaitingData(_) => false,
            }
            && !matches!(self.result, Some(Err(_)))
    }
}

/// A request with its generation takes exactly two cache lines.
const _: () = assert!(Slots::<Request>::BYTES == 128);
