//! The port: the interface between protocols and a medium that moves bytes.
//!
//! ```text
//!      protocol                         port                             peer's port
//!      resolve(address) ──────────────▶ PeerId
//!      send(peer, head, body) ────────▶ copied; no completion follows ──────▶ Sink::packet(bytes)
//!      send_zcopy(peer, head, local) ─▶ gathered from registered memory ────▶ Sink::packet(bytes)
//!      put / put_imm / get ───────────▶ registered memory, remote memory ───▶ (Sink::notified for put_imm)
//!      put_bytes / get_bytes ─────────▶ any memory, copied within the call
//!      change(peer, how, word) ───────▶ one atomic step; the word's former value
//!      map(peer, place) ──────────────▶ Window: loads and stores
//!      expose(peer, bytes) ───────────▶ Exposure                             peer: read(at, into), until it is dropped
//!      next_packet(sink) ◀──────────── one packet, if that is cheap
//!      poll(sink) ◀─────────────────── completed · changed · packet · notified · peer_lost
//!      fence_peer(peer) ──────────────▶ no more access to the memory of operations with that peer
//! ```
//!
//! # Contract
//!
//! * **Posting never waits.** A call that finds no room returns [`Post::Again`]: poll, then try once more.
//!   The caller keeps a deadline, since some providers can stay without room for ever.
//! * **Packets to one peer arrive whole, once and in the order of posting**
//!   ([`Order::SEND_AFTER_SEND`](crate::Order::SEND_AFTER_SEND) is required of every port). If the path to the peer
//!   fails, no packet arrives from some point on. Between packets and one-sided operations only the orders in
//!   [`Caps::order`] hold.
//! * **Every operation with an [`OpId`] ends exactly once**: in its call ([`Post::Over`], [`Changed::Over`]), or with
//!   [`Sink::completed`] or [`Sink::changed`]. The exception is an operation with a peer that is gone, on a port
//!   without a fence: it may never end, and the port keeps its memory (see [`Port::deregister`]) as long as the
//!   provider might access that memory.
//! * **Sinks post nothing.** [`Port::poll`] and [`Port::next_packet`] hold the port while they call the sink. The sink
//!   queues work, and its owner posts after the poll.
//! * **Arm before sleeping.** [`Port::arm`] returns how long the port may be left alone. If it returns
//!   [`Sleep::UntilReadable`], every later event makes one of [`Port::descriptors`] readable.
//! * A port has one caller at a time. It starts no thread and reads no clock, unless the medium itself
//!   works in real time.

use std::any::Any;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::shm::board::Slot;
use crate::{Caps, Failure, PortError, Region, Window, copy_bytes};

/// Moves bytes to and from peers. See the [module](self) for the contract.
pub trait Port {
    /// Returns the capabilities and limits of this port. They do not change.
    fn caps(&self) -> &Caps;

    /// Returns the capabilities towards one peer. They differ from [`Port::caps`] if the port has several paths, or if
    /// the peer receives only shorter packets than this port. Calls that concern a peer keep to these limits.
    fn caps_for(&self, _peer: PeerId) -> &Caps {
        self.caps()
    }

    /// Returns the address by which others reach this port. Only ports of the same kind can interpret it.
    fn address(&self) -> Address;

    /// Returns the id of the peer that listens at `address`. The call sends nothing and never waits: the path is built
    /// at first use.
    ///
    /// # Errors
    /// [`PortError::BadAddress`] if the bytes are not an address of this kind of port, [`PortError::Unreachable`] if
    /// the port knows already that no path exists, [`PortError::PeerEnded`] if it knows that the peer has ended,
    /// [`PortError::Exhausted`] if the port has as many peers as it can have, or the peer as many senders;
    /// [`PortError::Provider`].
    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError>;

    /// Sends a packet made of `head` then `body`, at most [`Caps::packet_max`] bytes together, with the capabilities
    /// [for the peer](Port::caps_for). Both are copied before the call returns, and no completion follows.
    ///
    /// # Errors
    /// [`PortError::TooLong`], [`PortError::PeerGone`] after a fence, [`PortError::Provider`]; [`PortError::Exhausted`]
    /// if the peer has no room for another sender, but only for the first packet to the peer.
    #[inline(always)]
    fn send(&mut self, to: PeerId, head: &[u8], body: &[u8]) -> Result<Post, PortError> {
        self.send_body(to, head, body)
    }

    /// Sends a packet as [`Port::send`] does, with a body that may be scattered over memory.
    ///
    /// # Errors
    /// Returns the errors of [`Port::send`].
    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError>;

    /// Sends a packet made of `head`, which is copied, and of registered memory, which is read until `op`
    /// completes. At most [`Caps::zcopy_max`] bytes together.
    ///
    /// # Errors
    /// The errors of [`Port::send`]; [`PortError::OutOfBounds`] if `body` leaves its registration;
    /// [`PortError::Unsupported`] if `zcopy_max` is 0, or if the registration does not permit this access to the
    /// memory.
    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError>;

    /// Writes registered local memory to the peer's memory: at most [`Caps::rma_max`] bytes. The operation ends when
    /// the bytes are visible at the target. Until then the port reads the local memory, so that memory must not change.
    ///
    /// Visible means: the target finds the bytes once it has learned that the operation ended, for example by a packet
    /// sent afterwards. Aligned words of 8 bytes are never visible in part.
    ///
    /// # Errors
    /// The errors of [`Port::send_zcopy`]; [`PortError::Unsupported`] if [`Caps::put`] is
    /// [`Reach::None`](crate::Reach::None). If the peer refuses key, right or bounds, the operation ends with
    /// [`Failure::Refused`], or with [`Failure::PeerLost`] on ports where a refusal breaks the connection.
    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError>;

    /// Writes as [`Port::put`] does, with at most [`Caps::put_bytes_max`] bytes of any memory. They are copied before
    /// the call returns; the caller may change them then.
    ///
    /// # Errors
    /// Returns the errors of [`Port::put`].
    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        let _ = (to, from, into, op);
        Err(PortError::Unsupported { what: "write bytes to a peer's memory" })
    }

    /// Writes as [`Port::put`] does, with several parts of registered local memory that are contiguous at the target:
    /// at most [`Caps::iov_max`] parts, and [`Caps::rma_max`] bytes together.
    ///
    /// # Errors
    /// The errors of [`Port::put`]; [`PortError::TooLong`] if there are too many parts: the error's numbers then count
    /// parts instead of bytes.
    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        let _ = (to, from, into, op);
        Err(PortError::Unsupported { what: "write several parts to a peer's memory" })
    }

    /// Writes as [`Port::put`] does, and then notifies the target with [`Sink::notified`] and `immediate`, of which the
    /// low [`Caps::immediate_bits`] are carried. The notification comes when the bytes are visible to the target.
    ///
    /// # Errors
    /// The errors of [`Port::put`]; [`PortError::Unsupported`] if `immediate_bits` is 0.
    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError>;

    /// Reads the peer's memory into registered local memory: at most [`Caps::rma_max`] bytes. The operation ends when
    /// they have arrived; until then the contents of the local memory are undefined.
    ///
    /// # Errors
    /// The errors of [`Port::put`]; [`PortError::Unsupported`] if [`Caps::get`] is [`Reach::None`](crate::Reach::None).
    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError>;

    /// Reads the peer's memory into any memory, within the call: returns [`Post::Over`] or [`Post::Again`]. Only ports
    /// on which the processor reaches the peer's memory have this call. It reads at most [`Caps::get_bytes_max`] bytes.
    ///
    /// # Errors
    /// The errors of [`Port::get`]; [`PortError::Refused`] if the peer refuses key, right or bounds: then the contents
    /// of `into` are undefined. [`PortError::Unsupported`] if `get_bytes_max` is 0.
    fn get_bytes(&mut self, to: PeerId, into: &mut [u8], from: Remote) -> Result<Post, PortError> {
        let _ = (to, into, from);
        Err(PortError::Unsupported { what: "read a peer's memory within a call" })
    }

    /// Changes a word of the peer's memory atomically, and returns its former value. The word has 8 bytes in the byte
    /// order of the peer's machine, and lies at a multiple of 8 bytes from the start of its region. The peer must have
    /// granted reading and writing. Other changes of the word come before or after this change, never in the middle of
    /// it.
    ///
    /// A change is atomic only with respect to changes by the same kind of executor: with shared memory that is a
    /// processor, otherwise it is the target's port. So use the same port for all changes of a word, also for those by
    /// its owner. With shared memory, [`Region::change`] and [`Window::change`] are equivalent.
    ///
    /// # Errors
    /// The errors of [`Port::put`]; [`PortError::Unsupported`] if [`Caps::change`] is
    /// [`Reach::None`](crate::Reach::None). A word that is not aligned is refused.
    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        let _ = (to, how, at, op);
        Err(PortError::Unsupported { what: "change a peer's memory in one step" })
    }

    /// Maps `len` bytes of the peer's memory for loads and stores, if the peer has granted reading and writing.
    /// Returns `None` if the port or the kind of memory does not allow that, if the peer refuses, or while there is
    /// no path to the peer yet. The memory stays mapped until the window is dropped, even if the peer ends.
    fn map(&mut self, to: PeerId, at: Remote, len: usize) -> Option<Window> {
        let _ = (to, at, len);
        None
    }

    /// Lets a peer [read](Port::read) borrowed memory of this process until the exposure is dropped. Returns `None` if
    /// the port or the kind of memory does not allow that, or if too much is exposed already.
    fn expose(&mut self, _to: PeerId, _bytes: &[u8]) -> Option<Exposure> {
        None
    }

    /// Copies bytes that a peer has [exposed](Port::expose), within the call. Returns false if the bytes were not
    /// exposed during the whole copy: then the copied bytes are meaningless.
    ///
    /// # Errors
    /// If this side cannot reach the peer's memory at all: [`PortError::Unsupported`], [`PortError::Unreachable`],
    /// [`PortError::PeerGone`], [`PortError::Exhausted`].
    fn read(&mut self, _from: PeerId, _at: Remote, _into: &mut [u8]) -> Result<bool, PortError> {
        Err(PortError::Unsupported { what: "read a peer's memory" })
    }

    /// Returns true if ranks that are reached by this port may share a [`Board`](crate::shm::board::Board). Ports of
    /// one configuration return the same value at all ranks.
    fn has_boards(&self) -> bool {
        false
    }

    /// Makes this rank's slot of a board.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], [`PortError::Exhausted`], [`PortError::Provider`].
    fn open_slot(&mut self) -> Result<Slot, PortError> {
        Err(PortError::Unsupported { what: "share a board" })
    }

    /// Returns the path that leads to a peer. A port of one kind has one path; [`Route`](crate::route::Route) has
    /// several.
    ///
    /// # Errors
    /// [`PortError::PeerGone`].
    fn path(&self, peer: PeerId) -> Result<PathId, PortError>;

    /// Registers a span of a region for operations with every peer that `path` leads to. Offsets of [`Local`] and
    /// [`Registration::remote`] count from the start of the span. Spans of several registrations may overlap. The port
    /// holds the region until the registration has ended *and* no operation accesses the region any more.
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

    /// Registers all of a region for operations with one peer. No other peer may get the key. So if the port cannot
    /// fence off a peer, it keeps only the memory that was registered for this peer, or by [`Port::register_span`].
    ///
    /// # Errors
    /// Returns the errors of [`Port::path`] and [`Port::register_span`].
    fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError> {
        let path = self.path(peer)?;
        self.register_span(path, region, 0..region.len(), access)
    }

    /// Ends a registration: remote access is refused from now on. The port releases the region at once if no operation
    /// can access it any more, otherwise when the operations that use it have completed or been fenced.
    /// Until then [`Region::reclaim`] fails, which prevents reuse of the memory.
    fn deregister(&mut self, registration: Registration);

    /// Ends the use of a registration, as [`Port::deregister`] does, but keeps the provider's registration, so that
    /// [`Port::resume`] can use it for the same memory again. Until then no operation can use it.
    ///
    /// Returns false if the port has ended the registration instead. A port keeps only registrations for access by this
    /// side alone, that no operation uses, and whose repetition would cost more than this call.
    fn suspend(&mut self, registration: Registration) -> bool {
        self.deregister(registration);
        false
    }

    /// Uses a suspended registration for a region. Returns false, and changes nothing, if the registration is for
    /// another path, or if the region's memory has another address or length than the registered memory. The caller
    /// knows that the memory was not freed since the registration was suspended: otherwise the provider may access
    /// other pages than those of the region.
    fn resume(&mut self, path: PathId, registration: Registration, region: &Region) -> bool {
        let _ = (path, registration, region);
        false
    }

    /// Drives progress and reports events to `sink`. Returns the number of events; 0 means that the port
    /// was idle.
    ///
    /// # Errors
    /// [`PortError::Provider`] if the port itself (not one operation, not one peer) is broken.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError>;

    /// Returns true if [`Port::next_packet`] would find a packet.
    fn has_packet(&self) -> bool {
        false
    }

    /// Delivers one packet to `sink` if that takes only a few instructions, for example a packet from the sender of the
    /// latest packet. Returns true if it delivered a packet. Only [`Port::poll`] finds all events.
    fn next_packet<S: Sink>(&mut self, _sink: &mut S) -> bool {
        false
    }

    /// Returns true if [`Port::poll`] would probably find nothing. The check is cheaper than a poll, and its result may
    /// be wrong. A port that has no cheaper check always returns false.
    fn seems_idle(&self) -> bool {
        false
    }

    /// Returns true if the port has taken packets whose bytes may leave only in later polls.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Returns the descriptors to sleep on while the port is armed. They never change. The list is empty if the port
    /// cannot wake a sleeper.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Prepares the port to be left alone until [`Port::disarm`] and then [`Port::poll`] are called. Returns how long
    /// the port may be left alone. After [`Sleep::NotNow`] it is not armed.
    fn arm(&mut self) -> Sleep {
        Sleep::Briefly
    }

    /// Ends the state that [`Port::arm`] began; harmless if the port is not armed.
    fn disarm(&mut self) {}

    /// Disconnects a peer. If [`Caps::fence`] is true, then after the call the provider accesses no memory of
    /// operations with the peer, nothing from the peer arrives any more, and the operations complete with
    /// [`Failure::Fenced`] at the next poll. Otherwise the operations stay outstanding, and the port keeps their
    /// memory. In both cases later posts to the peer return [`PortError::PeerGone`].
    fn fence_peer(&mut self, peer: PeerId);
}

/// Receives the events of a [`Port`].
pub trait Sink {
    /// A packet arrived. `bytes` are head and body as one, valid during the call. They come from outside
    /// and must not be trusted.
    fn packet(&mut self, bytes: &[u8]);

    /// Receives a long packet that the port need not copy. `head` is the first part of the packet, and `body` gives
    /// access to the rest, which is still in the receive buffer. A port may split a packet anywhere, but not within the
    /// `head` that was passed to [`Port::send`], if that has at most 48 bytes.
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        self.packet(&gather(head, body));
    }

    /// The operation `op` ended. After a failure the memory of a get has undefined contents.
    fn completed(&mut self, op: OpId, result: Result<(), Failure>);

    /// A [`Port::change`] succeeded; the word was `before`. A failed change ends with [`Sink::completed`]. Sinks that
    /// post no changes need not implement it.
    fn changed(&mut self, op: OpId, before: u64) {
        let _ = before;
        self.completed(op, Ok(()));
    }

    /// A peer's [`Port::put_imm`] is visible in local memory.
    fn notified(&mut self, immediate: u64);

    /// The port will not reach this peer again. Not every port can detect this, but no port reports it falsely.
    fn peer_lost(&mut self, peer: PeerId);
}

/// How long the caller may sleep without a poll of the port, the shortest time first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sleep {
    /// The caller must not sleep: there is an event to poll for.
    NotNow,
    /// The caller may sleep only briefly: nothing will wake it.
    Briefly,
    /// The caller may sleep until one of the port's descriptors is readable.
    UntilReadable,
}

/// The body of a packet: bytes to send, or bytes that have arrived and can be copied once to their destination.
#[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
pub trait Body {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Copies all bytes. Call it only once, because a port may release the memory of bytes that were copied.
    ///
    /// # Panics
    /// If the length of `into` is not [`Body::len`].
    #[inline]
    fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len(), "a body is copied whole");
        self.copy_part(0, into);
    }

    /// Copies the bytes from the offset `at` on, as many as `into` has. If the bytes have arrived in a packet, copy the
    /// parts in their order; all parts but the last must be whole lines of 64 bytes.
    ///
    /// # Panics
    /// If the body has fewer bytes from `at` on.
    fn copy_part(&self, at: usize, into: &mut [u8]);

    /// Returns the bytes if they are contiguous, and nothing else can change them.
    #[inline(always)]
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }
}

impl Body for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn copy_to(&self, into: &mut [u8]) {
        // Many messages consist of one word. This case is separate, because a copy of variable length is a call of some
        // 20 instructions.
        match (self.as_array::<8>(), into.as_mut_array()) {
            (Some(word), Some(into)) => *into = *word,
            _ => copy_bytes(self, into),
        }
    }

    #[inline(always)]
    fn copy_part(&self, at: usize, into: &mut [u8]) {
        copy_bytes(&self[at..at + into.len()], into);
    }

    #[inline(always)]
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<B: Body + ?Sized> Body for &B {
    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn copy_to(&self, into: &mut [u8]) {
        (**self).copy_to(into);
    }

    #[inline(always)]
    fn copy_part(&self, at: usize, into: &mut [u8]) {
        (**self).copy_part(at, into);
    }

    #[inline(always)]
    fn as_slice(&self) -> Option<&[u8]> {
        (**self).as_slice()
    }
}

/// Returns the packet of [`Sink::long_packet`] in one piece.
pub fn gather(head: &[u8], body: &(impl Body + ?Sized)) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.resize(head.len() + body.len(), 0);
    body.copy_to(&mut bytes[head.len()..]);
    bytes
}

/// The result of a call that posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Post::Again means that nothing was posted"]
pub enum Post {
    /// Accepted. If the call carries an [`OpId`], its completion follows.
    Done,
    /// The port has no room now, and nothing has happened. Poll, then call again.
    Again,
    /// The operation succeeded within the call; no completion follows. One-sided operations end in this way on ports
    /// where the processor moves the bytes. If such an operation fails, the call returns [`Post::Done`], and the
    /// completion says why.
    Over,
}

/// A port's name for a peer. An id is never reused: a process that restarts is resolved anew, and gets another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub u32);

/// A port's name for one of its paths. All peers on a path are reached in the same way, with the same registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathId(pub u32);

/// The caller's name for an operation, returned with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub u64);

/// A port's address, as bytes to send to others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub Vec<u8>);

/// A part of registered local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The registration that contains it.
    pub registration: Registration,
    /// First byte, counted from the start of the registered span.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
}

/// Returns the total number of bytes of the parts of a [`Port::put_v`]. Returns an error if there are more than
/// `iov_max` parts or `rma_max` bytes.
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

/// A peer's right to read some memory of this process. The right ends when this value is dropped. See [`Port::expose`].
#[derive(Debug)]
pub struct Exposure {
    /// The place of the first exposed byte, as the peer addresses it.
    pub at: Remote,
    /// Ends the exposure when dropped.
    _end: Box<dyn Any + Send>,
}

impl Exposure {
    /// Returns an exposure that ends when `end` is dropped.
    #[must_use]
    pub fn new(at: Remote, end: impl Any + Send) -> Self {
        Self { at, _end: Box::new(end) }
    }
}

/// A change of a word of 8 bytes by [`Port::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the operand, wrapping.
    Add(u64),
    /// Writes the operand.
    Swap(u64),
    /// Writes `new` if the word is `expected`.
    CompareSwap {
        /// The required value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// Keeps the bits that are set in the operand.
    And(u64),
    /// Sets the bits that are set in the operand.
    Or(u64),
    /// Inverts the bits that are set in the operand.
    Xor(u64),
    /// Writes the operand if it is less, as unsigned numbers.
    Min(u64),
    /// Writes the operand if it is greater, as unsigned numbers.
    Max(u64),
    /// Writes the operand if it is less, as signed numbers.
    MinSigned(i64),
    /// Writes the operand if it is greater, as signed numbers.
    MaxSigned(i64),
}

impl Change {
    /// Returns the new value of a word.
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

    /// Bytes of a word.
    pub const BYTES: usize = size_of::<u64>();
}

/// The result of a [`Port::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "Changed::Again means that nothing was posted"]
pub enum Changed {
    /// Accepted: [`Sink::changed`] follows, or [`Sink::completed`] with a failure.
    Done,
    /// The port has no room now, and nothing has happened. Poll, then call again.
    Again,
    /// The word was changed within the call. This is its former value.
    Over(u64),
}

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The port's own name for the registration.
    pub id: u32,
    /// The key by which a peer reaches the region.
    pub key: u64,
    /// The remote address of the first registered byte. It is 0, a virtual address, or the port's own notation.
    pub base: u64,
}

impl Registration {
    /// Returns the place `offset` bytes into the registered span, for use by a peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { key: self.key, address: self.base.wrapping_add(offset as u64) }
    }

    /// Returns a part of the registered span, for use on this side.
    #[must_use]
    pub fn local(&self, offset: usize, len: usize) -> Local {
        Local { registration: *self, offset, len }
    }
}

bitflags::bitflags! {
    /// Permitted accesses to registered memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// This side sends or puts from the memory.
        const LOCAL_READ = 1;
        /// This side receives or gets into the memory.
        const LOCAL_WRITE = 2;
        /// Peers get from the memory.
        const REMOTE_READ = 4;
        /// Peers put into the memory.
        const REMOTE_WRITE = 8;
        /// Any access by peers.
        const REMOTE = Self::REMOTE_READ.bits() | Self::REMOTE_WRITE.bits();
    }
}
