//! The port: the one interface between protocols and whatever moves bytes.
//!
//! ```text
//!      protocol                         port                             peer's port
//!      resolve(address) ──────────────▶ PeerId
//!      send(peer, head, body) ────────▶ copied; nothing more to wait for ───▶ Sink::packet(bytes)
//!      send_zcopy(peer, head, local) ─▶ gathered from registered memory ────▶ Sink::packet(bytes)
//!      put / put_imm / get ───────────▶ registered memory, remote memory ───▶ (Sink::notified for put_imm)
//!      put_bytes / get_bytes ─────────▶ any memory, copied within the call
//!      change(peer, how, word) ───────▶ one step; what the word was before
//!      map(peer, place) ──────────────▶ Window: loads and stores
//!      expose(peer, bytes) ───────────▶ Exposure                             peer: read(at, into), until it is dropped
//!      next_packet(sink) ◀──────────── packet, if one is at hand
//!      poll(sink) ◀─────────────────── completed · changed · packet · notified · peer_lost
//!      fence_peer(peer) ──────────────▶ nothing of that peer's is touched any more
//! ```
//!
//! # Contract
//!
//! * **Posting never waits.** A call that finds no room answers [`Post::Again`]: poll, then try once more.
//!   The caller keeps a deadline, since on some providers "again" can be for ever.
//! * **Packets to one peer arrive whole, once and in the order posted**
//!   ([`Order::SEND_AFTER_SEND`](crate::Order::SEND_AFTER_SEND) is required of every port), or from some
//!   point on not at all. Only what [`Caps::order`] claims holds between packets and one-sided operations.
//! * **Every operation that carries an [`OpId`] ends exactly once**: in its call ([`Post::Over`],
//!   [`Changed::Over`]), or with [`Sink::completed`] or [`Sink::changed`]. The exception is a port without a fence
//!   whose peer is gone: then the port keeps the memory (see [`Port::deregister`]) for as long as the provider
//!   might touch it.
//! * **Nothing is posted from inside [`Port::poll`] or [`Port::next_packet`]**: a sink has no port at hand. What an
//!   event calls for is noted, and posted after.
//! * **Whoever sleeps arms first.** [`Port::arm`] tells how long the port may be left alone; if it says until a
//!   descriptor is readable, whatever it would report later makes one of [`Port::descriptors`] readable.
//! * A port has one caller at a time. It starts no thread and reads no clock, but where the medium itself
//!   lives in real time.

use std::any::Any;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::{Caps, Failure, PortError, Region, Window};

/// Moves bytes to and from peers. See the [module](self) for the contract.
pub trait Port {
    /// What this port can do, and its limits. They do not change.
    fn caps(&self) -> &Caps;

    /// What this port can do with one peer. Differs from [`Port::caps`] only for a port of several paths.
    fn caps_for(&self, _peer: PeerId) -> &Caps {
        self.caps()
    }

    /// The bytes by which others reach this port; opaque to all but ports of the same kind.
    fn address(&self) -> Address;

    /// Names the peer that listens at `address`. No traffic, no wait: the path is built when first used.
    ///
    /// # Errors
    /// [`PortError::BadAddress`] if the bytes are not an address of this kind of port,
    /// [`PortError::Unreachable`] if the port can tell at once that there is no way, [`PortError::Exhausted`]
    /// at the limit of peers.
    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError>;

    /// Sends a packet made of `head` then `body`, at most [`Caps::packet_max`] bytes together. Both are
    /// copied before the call returns, and no completion follows.
    ///
    /// # Errors
    /// [`PortError::TooLong`], [`PortError::PeerGone`] after a fence, [`PortError::Provider`].
    fn send(&mut self, to: PeerId, head: &[u8], body: &[u8]) -> Result<Post, PortError>;

    /// Sends a packet made of `head`, which is copied, and of registered memory, which is read until `op`
    /// completes. At most [`Caps::zcopy_max`] bytes together.
    ///
    /// # Errors
    /// As [`Port::send`]; [`PortError::OutOfBounds`] if `body` leaves its registration;
    /// [`PortError::Unsupported`] where `zcopy_max` is 0.
    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError>;

    /// Writes registered local memory to the peer's: at most [`Caps::rma_max`] bytes. The operation ends when the
    /// bytes are visible at the target. Until then the port reads the local memory, so it must not change.
    ///
    /// Visible means: the target finds the bytes once it has learned that the operation ended, by a packet that was
    /// sent afterwards, say. Aligned words of 8 bytes never appear in parts.
    ///
    /// # Errors
    /// As [`Port::send_zcopy`]; [`PortError::Unsupported`] where [`Caps::put`] is [`Reach::None`](crate::Reach::None).
    /// If the peer refuses key, right or bounds, the operation ends with [`Failure::Refused`]. It ends with
    /// [`Failure::Refused`] or [`Failure::PeerLost`] on ports where a refusal breaks the connection.
    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError>;

    /// As [`Port::put`], of at most [`Caps::put_bytes_max`] bytes of any memory. They are copied before the call
    /// returns, so the caller may change them then.
    ///
    /// # Errors
    /// As [`Port::put`].
    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        let _ = (to, from, into, op);
        Err(PortError::Unsupported { what: "write bytes to a peer's memory" })
    }

    /// As [`Port::put`], of several parts of registered local memory that lie one after the other at the target: at
    /// most [`Caps::iov_max`] parts, and [`Caps::rma_max`] bytes together.
    ///
    /// # Errors
    /// As [`Port::put`]; [`PortError::TooLong`] for more parts, too: then it counts parts.
    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        let _ = (to, from, into, op);
        Err(PortError::Unsupported { what: "write several parts to a peer's memory" })
    }

    /// As [`Port::put`], and then tells the target by [`Sink::notified`] with `immediate`, of which the low
    /// [`Caps::immediate_bits`] are carried. The target is told when the bytes are visible to it.
    ///
    /// # Errors
    /// As [`Port::put`]; [`PortError::Unsupported`] where `immediate_bits` is 0.
    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError>;

    /// Reads the peer's memory into registered local memory: at most [`Caps::rma_max`] bytes. The operation ends when
    /// they are there; until then the contents of the local memory are undefined.
    ///
    /// # Errors
    /// As [`Port::put`]; [`PortError::Unsupported`] where [`Caps::get`] is [`Reach::None`](crate::Reach::None).
    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError>;

    /// Reads the peer's memory into any memory, within the call: it returns [`Post::Over`] or [`Post::Again`]. At most
    /// [`Caps::get_bytes_max`] bytes, on ports where the processor reaches the peer's memory.
    ///
    /// # Errors
    /// As [`Port::get`]; [`PortError::Refused`] if the peer refuses key, right or bounds: then the contents of `into`
    /// are undefined. [`PortError::Unsupported`] where `get_bytes_max` is 0.
    fn get_bytes(&mut self, to: PeerId, into: &mut [u8], from: Remote) -> Result<Post, PortError> {
        let _ = (to, into, from);
        Err(PortError::Unsupported { what: "read a peer's memory within a call" })
    }

    /// Changes a word of the peer's memory in one step, and returns its former value. The word has 8 bytes in the
    /// order of the peer's machine, and lies at a multiple of 8 bytes from the start of its region. The peer has
    /// granted reading and writing. Other changes of the word come before or after this one, never between.
    ///
    /// One side executes the changes of a word: on shared memory the processors, elsewhere the port of the
    /// target. Use the same port for all changes of a word; local ones too, unless the port is
    /// shared memory, where [`Region::change`] and [`Window::change`] are as good.
    ///
    /// # Errors
    /// As [`Port::put`]; [`PortError::Unsupported`] where [`Caps::change`] is [`Reach::None`](crate::Reach::None). A
    /// word that is not aligned is refused.
    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        let _ = (to, how, at, op);
        Err(PortError::Unsupported { what: "change a peer's memory in one step" })
    }

    /// Maps `len` bytes of the peer's memory for loads and stores, if the peer has granted reading and writing.
    /// `None` where the port or the kind of memory does not allow that, where the peer refuses, and where there is
    /// no way to the peer yet. The memory stays mapped until the window is dropped, even if the peer ends.
    fn map(&mut self, to: PeerId, at: Remote, len: usize) -> Option<Window> {
        let _ = (to, at, len);
        None
    }

    /// Lets a peer [read](Port::read) borrowed memory of this process, until the exposure is dropped. None where the
    /// port, or the kind of memory, does not allow that, or too much is exposed already.
    fn expose(&mut self, _to: PeerId, _bytes: &[u8]) -> Option<Exposure> {
        None
    }

    /// Copies bytes that a peer has [exposed](Port::expose), before it returns. False if they were not exposed all the
    /// time: then what was copied means nothing.
    ///
    /// # Errors
    /// Where this side cannot reach the peer's memory at all: [`PortError::Unsupported`], [`PortError::Unreachable`],
    /// [`PortError::PeerGone`], [`PortError::Exhausted`].
    fn read(&mut self, _from: PeerId, _at: Remote, _into: &mut [u8]) -> Result<bool, PortError> {
        Err(PortError::Unsupported { what: "read a peer's memory" })
    }

    /// Returns the path that leads to a peer. A port of one kind has one path; [`Route`](crate::route::Route) has
    /// several.
    ///
    /// # Errors
    /// [`PortError::PeerGone`].
    fn path(&self, peer: PeerId) -> Result<PathId, PortError>;

    /// Registers a span of a region, so that operations on `path` can use it: all operations with all peers there.
    /// Offsets of [`Local`] and [`Registration::remote`] count from the start of the span. Spans of several
    /// registrations may overlap. The port holds the region until the registration has ended *and* nothing
    /// touches the region any more.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`] if the span leaves the region, [`PortError::Unsupported`] for a kind of memory that
    /// the port cannot reach, [`PortError::Exhausted`], [`PortError::Provider`].
    fn register_span(
        &mut self,
        path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError>;

    /// Registers all of a region on the path to a peer.
    ///
    /// # Errors
    /// As [`Port::path`] and [`Port::register_span`].
    fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError> {
        let path = self.path(peer)?;
        self.register_span(path, region, 0..region.len(), access)
    }

    /// Ends a registration: remote access is refused from here on. The port lets go of the region at once if
    /// nothing can touch it any more, else when the operations that use it have completed or been fenced:
    /// until then [`Region::reclaim`] fails, and that is what keeps the memory from being reused too early.
    fn deregister(&mut self, registration: Registration);

    /// Drives progress and hands what happened to `sink`. Returns the number of events; 0 means that the port
    /// was idle.
    ///
    /// # Errors
    /// [`PortError::Provider`] if the port itself (not one operation, not one peer) is broken.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError>;

    /// Whether [`Port::next_packet`] would find one.
    fn has_packet(&self) -> bool {
        false
    }

    /// Hands `sink` one packet, if one has come that can be had for a few instructions: from the peer that sent the
    /// last one, say. Whether it did. Only [`Port::poll`] finds all that there is.
    fn next_packet<S: Sink>(&mut self, _sink: &mut S) -> bool {
        false
    }

    /// Whether it seems that [`Port::poll`] would find nothing: a glance at less than a poll looks at, for whoever takes
    /// many in vain. Only polls find all that there is. False where a glance is no cheaper, or tells nothing.
    fn seems_idle(&self) -> bool {
        false
    }

    /// What to sleep on while the port is armed; the same over its life, none where it cannot wake anybody.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Prepares to be left alone: how long, until [`Port::disarm`] is called and then [`Port::poll`]. If it
    /// is not at all, the port is not armed.
    fn arm(&mut self) -> Sleep {
        Sleep::Briefly
    }

    /// Ends what [`Port::arm`] began; harmless where nothing was begun.
    fn disarm(&mut self) {}

    /// Cuts a peer off. Where [`Caps::fence`] holds, on return the provider touches no memory on behalf of
    /// its operations, which complete with [`Failure::Fenced`] at the next poll; nothing of it arrives later.
    /// Elsewhere its operations stay outstanding and their memory stays held. Either way later posts to it
    /// answer [`PortError::PeerGone`].
    fn fence_peer(&mut self, peer: PeerId);
}

/// Takes what a [`Port`] reports.
pub trait Sink {
    /// A packet arrived; `bytes` are head and body as one, valid during the call. They come from outside:
    /// nothing in them can be trusted.
    fn packet(&mut self, bytes: &[u8]);

    /// As [`Sink::packet`], for a long packet that the port need not copy: its first bytes, and the rest, which
    /// lies where it arrived. Ports may split packets as they like, but keep `head` of [`Port::send`] whole
    /// where it has at most 48 bytes.
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        self.packet(&gather(head, body));
    }

    /// The operation `op` ended. After a failure the memory of a get has undefined contents.
    fn completed(&mut self, op: OpId, result: Result<(), Failure>);

    /// A [`Port::change`] ended well; the word was `before`. A failed one ends with [`Sink::completed`]. Sinks that
    /// post no changes need not implement it.
    fn changed(&mut self, op: OpId, before: u64) {
        let _ = before;
        self.completed(op, Ok(()));
    }

    /// A peer's [`Port::put_imm`] is visible in local memory.
    fn notified(&mut self, immediate: u64);

    /// The port will not reach this peer again. Not every port can tell; none tells falsely.
    fn peer_lost(&mut self, peer: PeerId);
}

/// How long a port may be left alone. The shortest come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sleep {
    /// Not at all: there is something to poll for.
    NotNow,
    /// For as long as what comes meanwhile may be late: nothing will tell of it.
    Briefly,
    /// Until one of the descriptors is readable.
    UntilReadable,
}

/// Bytes that arrived, and can be copied once to where they belong.
#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Body {
    /// Bytes.
    fn len(&self) -> usize;

    /// Copies all of them, once: what is copied may be gone.
    ///
    /// # Panics
    /// If `into` has another length.
    fn copy_to(&self, into: &mut [u8]);
}

impl Body for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn copy_to(&self, into: &mut [u8]) {
        // One word is what many a message carries, and a copy of any length is a call, some 20 instructions.
        match (self.as_array::<8>(), into.as_mut_array()) {
            (Some(word), Some(into)) => *into = *word,
            _ => into.copy_from_slice(self),
        }
    }
}

/// The packet of [`Sink::long_packet`] in one piece.
pub fn gather(head: &[u8], body: &(impl Body + ?Sized)) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.resize(head.len() + body.len(), 0);
    body.copy_to(&mut bytes[head.len()..]);
    bytes
}

/// What became of a call that posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Post::Again means that nothing was posted"]
pub enum Post {
    /// Accepted. If the call carries an [`OpId`], its completion follows.
    Done,
    /// No room now; nothing happened. Poll, then call again.
    Again,
    /// The operation succeeded within the call; no completion follows. One-sided operations end so on ports where
    /// the processor moves the bytes. If such an operation fails, the call returns [`Post::Done`], and the
    /// completion says why.
    Over,
}

/// A peer as one port names it. Never reused: a process that comes back is resolved anew, and gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub u32);

/// One of a port's paths: the peers on it are reached in the same way, and with the same registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathId(pub u32);

/// The caller's name for an operation, given back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub u64);

/// A port's address, as bytes that travel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub Vec<u8>);

/// A part of registered local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The registration it lies in.
    pub registration: Registration,
    /// First byte, counted from the start of the registered span.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// Bytes of the parts of a [`Port::put_v`], if they are at most `iov_max` and `rma_max`.
pub(crate) fn total(parts: &[Local], iov_max: usize, rma_max: usize) -> Result<usize, PortError> {
    if parts.len() > iov_max {
        return Err(PortError::TooLong { len: parts.len(), max: iov_max });
    }
    let len = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len));
    match len {
        Some(len) if len <= rma_max => Ok(len),
        len => Err(PortError::TooLong { len: len.unwrap_or(usize::MAX), max: rma_max }),
    }
}

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's [`Registration::key`].
    pub key: u64,
    /// The peer's [`Registration::base`] plus the offset into its span.
    pub address: u64,
}

/// Memory of this process that a peer may read until this is dropped. See [`Port::expose`].
#[derive(Debug)]
pub struct Exposure {
    /// Where the peer finds the first byte.
    pub at: Remote,
    /// Ends it.
    _end: Box<dyn Any + Send>,
}

impl Exposure {
    /// One that ends when `end` is dropped.
    #[must_use]
    pub fn new(at: Remote, end: impl Any + Send) -> Self {
        Self { at, _end: Box::new(end) }
    }
}

/// How [`Port::change`] changes a word of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, around zero.
    Add(u64),
    /// Writes.
    Swap(u64),
    /// Writes `new` if the word is `expected`.
    CompareSwap {
        /// What it must be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// Keeps the bits that are set in the operand.
    And(u64),
    /// Sets the bits that are set in the operand.
    Or(u64),
    /// Inverts the bits that are set in the operand.
    Xor(u64),
    /// Writes the operand if it is less, as numbers without a sign.
    Min(u64),
    /// Writes the operand if it is greater, as numbers without a sign.
    Max(u64),
    /// Writes the operand if it is less, as numbers with a sign.
    MinSigned(i64),
    /// Writes the operand if it is greater, as numbers with a sign.
    MaxSigned(i64),
}

impl Change {
    /// What a word becomes.
    #[must_use]
    pub fn apply(self, word: u64) -> u64 {
        match self {
            Self::Add(operand) => word.wrapping_add(operand),
            Self::Swap(new) => new,
            Self::CompareSwap { expected, new } => {
                if word == expected {
                    new
                } else {
                    word
                }
            }
            Self::And(operand) => word & operand,
            Self::Or(operand) => word | operand,
            Self::Xor(operand) => word ^ operand,
            Self::Min(operand) => word.min(operand),
            Self::Max(operand) => word.max(operand),
            Self::MinSigned(operand) => word.cast_signed().min(operand).cast_unsigned(),
            Self::MaxSigned(operand) => word.cast_signed().max(operand).cast_unsigned(),
        }
    }

    /// The bytes of a word.
    pub const BYTES: usize = size_of::<u64>();
}

/// What became of a [`Port::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Changed::Again means that nothing was posted"]
pub enum Changed {
    /// Accepted: [`Sink::changed`] follows, or [`Sink::completed`] with a failure.
    Done,
    /// No room now; nothing happened. Poll, then call again.
    Again,
    /// The word was changed within the call. It was this before.
    Over(u64),
}

/// A region made known to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The port's own name for it.
    pub id: u32,
    /// What a peer needs to reach it.
    pub key: u64,
    /// The remote address of the first registered byte. It is 0, a virtual address, or the port's own notation.
    pub base: u64,
}

impl Registration {
    /// The place `offset` bytes into the registered span, as a peer names it.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { key: self.key, address: self.base.wrapping_add(offset as u64) }
    }

    /// A part of the registered span, for use on this side.
    #[must_use]
    pub fn local(&self, offset: usize, len: usize) -> Local {
        Local { registration: *self, offset, len }
    }
}

bitflags::bitflags! {
    /// Who may do what with registered memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// This side sends or puts from it.
        const LOCAL_READ = 1;
        /// This side receives or gets into it.
        const LOCAL_WRITE = 2;
        /// Peers get from it.
        const REMOTE_READ = 4;
        /// Peers put into it.
        const REMOTE_WRITE = 8;
    }
}
