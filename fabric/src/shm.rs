//! Our own shared memory between processes, or threads, of one host: transport `samite-shm`.
//!
//! Each port receives in a *mailbox*: a file in memory without a name, which holds rings for each sender (the files
//! ring.rs, mailbox.rs and outgoing.rs describe the rings). A port's address contains its process and the descriptor of
//! its mailbox, and peers open the mailbox through /proc/PID/fd. So the port has no file in /dev/shm, which could be
//! full, or where the file could remain after the process has ended.
//!
//! A packet is written to a ring and copied out of it. A short packet travels in a single cache line. A long message is
//! copied twice, by two processors at the same time. In measurements this took a third of the time of a single copy
//! through the kernel (process_vm_readv(2)), which must lock each page first. No lock and no queue is shared by several
//! senders, so if a process is killed at any instruction, the other processes are unaffected.
//!
//! Peers map memory made by [`Region::shared`], and can put to it and get from it. Borrowed memory in
//! the process's [`Heap`](crate::Heap) can be exposed to peers. Its bytes are then copied once, directly from source to
//! destination.
//!
//! A peer is reachable if it runs on the same kernel and in the same pid namespace, and if this process may
//! read the peer's state (PTRACE_MODE_READ in ptrace(2); in general: same user). [`Port::resolve`] checks this,
//! and reports the obstacle.

mod address;
mod bell;
pub mod board;
mod doze;
mod inbox;
mod mailbox;
mod onesided;
mod outgoing;
mod ring;
mod word;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};

use self::address::Whereabouts;
use self::board::Slot;
use self::inbox::Inbox;
use self::mailbox::{Mailbox, Remote};
use self::onesided::{Heap, IOV_MAX, OneSided, RMA_DEPTH, RMA_MAX, Segments};
use self::outgoing::Outgoing;
use self::ring::{Push, fragment_max, packet_max};
use crate::mem::RIGHTS;
use crate::port::{
    Access, Address, Body, Change, Changed, Exposure, Local, OpId, PathId, PeerId, Port, Post, Registration,
    Sink, Sleep, total,
};
use crate::{Caps, Failure, Order, PortError, Reach, Region, Window};
use samite_os::process::{Place, Process};

/// The transport's name.
pub const NAME: &str = "samite-shm";

/// Sizes of a port's mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The maximum number of resolved peers, and also of senders that are connected at the same time: 1 to
    /// [`Config::PEERS_MAX`]. Each possible sender takes 192 bytes of the mailbox, and memory for its rings once it
    /// sends.
    pub peers_max: usize,
    /// Bytes of the ring that a sender uses while the receiver keeps up with it: a power of two from 2 KiB to
    /// [`Config::ring_bytes`]. Two such rings and the data should fit in the processor's first-level cache.
    pub ring_bytes_min: usize,
    /// Bytes of the ring that a sender uses if the receiver does not keep up: a power of two from 4 KiB to 128 KiB. A
    /// packet takes at most half of this ring. This ring and the smaller one are in the receiver's memory, and are
    /// allocated when the sender first sends.
    pub ring_bytes: usize,
    /// Bytes of the largest ring. It replaces the ring of `ring_bytes` for a sender that keeps finding that ring full.
    /// A power of two from [`Config::ring_bytes`] to 8 MiB.
    pub ring_bytes_max: usize,
    /// The limit for the bytes of the largest rings of all senders together, not counting the other rings. At the limit
    /// a sender keeps the rings that it has.
    pub growth_bytes_max: usize,
}

impl Config {
    /// The limit of [`Config::peers_max`].
    pub const PEERS_MAX: usize = 4096;
}

impl Default for Config {
    /// Returns a configuration for 256 peers. Each sender has rings of 8 and 64 KiB, which carry packets of up to 28
    /// KiB. These rings take 18 MiB together if every peer sends. A largest ring has 256 KiB, and all largest rings
    /// together have up to 16 MiB.
    fn default() -> Self {
        Self {
            peers_max: 256,
            ring_bytes_min: 8 << 10,
            ring_bytes: 64 << 10,
            ring_bytes_max: 256 << 10,
            growth_bytes_max: 16 << 20,
        }
    }
}

/// The present use of a port's mailbox; see [`Config`] for the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connected senders.
    pub rings: usize,
    /// Bytes of each sender's rings.
    pub ring_bytes: usize,
    /// Bytes of the largest rings, which only some senders have requested.
    pub growth_bytes: usize,
    /// The number of senders, since the port was opened, that were refused the largest ring because the limit for these
    /// rings was reached, or memory was lacking.
    pub growths_refused: u64,
}

/// The shared-memory port.
pub struct Shm {
    inbox: Inbox,
    peers: Vec<Peer>,
    /// Peers that are known to be dead, and that the next poll will report.
    lost: Vec<PeerId>,
    one_sided: OneSided,
    caps: Caps,
    whereabouts: Whereabouts,
}

impl Shm {
    /// Opens a port.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] for values outside of the limits of [`Config`], [`PortError::Exhausted`] without
    /// memory for the mailbox, [`PortError::Provider`] if /proc is missing or the system refuses a file in
    /// memory.
    pub fn open(config: &Config) -> Result<Self, PortError> {
        let proc = |error: io::Error| PortError::Provider {
            call: "read /proc",
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "samite-shm needs the /proc of its own pid namespace: mount it, or use another transport"
                .into(),
        };
        let token = samite_os::random()?;
        let mailbox = Mailbox::create(config, token)?;
        let whereabouts = Whereabouts {
            place: Place::current().map_err(proc)?,
            owner: Process::current().map_err(proc)?,
            uid: samite_os::process::user(),
            host: 0,
            fd: mailbox.fd(),
            token,
        };
        let packet_max = packet_max(mailbox.lines());
        let caps = Caps {
            name: NAME.into(),
            short_max: packet_max,
            packet_max,
            fragment_max: fragment_max(mailbox.lines()),
            zcopy_max: 0,
            rma_max: RMA_MAX,
            put_bytes_max: RMA_MAX,
            get_bytes_max: RMA_MAX,
            iov_max: IOV_MAX,
            rma_depth: RMA_DEPTH,
            put: Reach::Shared,
            get: Reach::Shared,
            change: Reach::Shared,
            map: true,
            passive: true,
            immediate_bits: 64,
            order: Order::all(),
            fence: true,
            peers_max: config.peers_max,
            dear_packets: false,
        };
        Ok(Self {
            inbox: Inbox::new(mailbox, config.growth_bytes_max),
            peers: Vec::new(),
            lost: Vec::new(),
            one_sided: OneSided::new(),
            caps,
            whereabouts,
        })
    }

    /// Returns the present use of the mailbox.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.inbox.usage()
    }

    /// Sets the port's host number. Peers with another host number are unreachable, even if memory could be shared with
    /// them. Call this before the port's address is published.
    #[must_use]
    pub fn on_host(mut self, host: u32) -> Self {
        self.whereabouts.host = host;
        self
    }

    /// Returns true if one-sided operations with a peer are possible now, false if they have to wait.
    #[inline]
    fn is_ready(&mut self, to: PeerId) -> Result<bool, PortError> {
        Ok(self.is_connected(to)? && self.one_sided.has_room())
    }

    /// Returns true if there is a path to a peer, false if it cannot be opened yet.
    #[inline]
    fn is_connected(&mut self, to: PeerId) -> Result<bool, PortError> {
        loop {
            let Some(Peer { path: Path::Connected(outgoing), .. }) = self.peers.get(to.0 as usize) else {
                match self.connect(to)? {
                    Some(()) => continue,
                    None => return Ok(false),
                }
            };
            // The peer has fenced this port, or has closed its mailbox.
            if outgoing.is_shut() || outgoing.connection().is_closed() {
                return self.lose(to);
            }
            return Ok(true);
        }
    }

    /// Returns true if the ring to a peer has room for an immediate.
    fn has_room(&mut self, to: PeerId) -> bool {
        match &mut self.peers[to.0 as usize].path {
            Path::Connected(outgoing) => outgoing.has_room(),
            _ => false,
        }
    }

    /// Puts parts of this side's memory, and then delivers the immediate, if any.
    fn put_parts(
        &mut self,
        to: PeerId,
        parts: &[Local],
        into: crate::Remote,
        immediate: Option<u64>,
        op: OpId,
    ) -> Result<Post, PortError> {
        let len = total(parts, IOV_MAX, RMA_MAX)?;
        if !self.is_ready(to)? {
            return Ok(Post::Again);
        }
        parts.iter().try_for_each(|&part| self.one_sided.local(part, Access::LOCAL_READ).map(|_| ()))?;
        while immediate.is_some() && !self.has_room(to) {
            if !self.make_room(to, Push::Full, 0)? {
                return Ok(Post::Again);
            }
        }
        let Self { one_sided, peers, .. } = self;
        let Peer { path, process, segments, .. } = &mut peers[to.0 as usize];
        let result = segments.access(*process, into, len, Access::REMOTE_WRITE, |segment, mut at| {
            for &part in parts {
                one_sided.put(part, segment, at).map_err(|_| Failure::Refused)?;
                at += part.len;
            }
            Ok(())
        });
        if let (Some(immediate), Ok(()), Path::Connected(outgoing)) = (immediate, &result, path) {
            outgoing.notify(immediate);
            if outgoing.connection().is_quiet() {
                outgoing.connection().ring_bell();
            }
        }
        Ok(one_sided.ended(op, result))
    }

    /// Returns the peer, or an error if it was fenced or lost.
    fn present(&mut self, peer: PeerId) -> Result<&mut Peer, PortError> {
        self.peers.get_mut(peer.0 as usize).filter(|peer| !peer.is_gone()).ok_or(PortError::PeerGone(peer))
    }

    /// Removes the obstacle to a packet of `len` bytes if possible. Returns `None` if the packet has to
    /// wait.
    #[cold]
    fn overcome(&mut self, to: PeerId, obstacle: Option<Push>, len: usize) -> Result<Option<()>, PortError> {
        match obstacle {
            None => self.connect(to),
            // The peer has fenced this port.
            Some(Push::Shut) => self.lose(to),
            Some(obstacle) => Ok(self.make_room(to, obstacle, len)?.then_some(())),
        }
    }

    /// Opens the path to a peer at first use. Returns `None` if the path cannot be opened yet.
    #[cold]
    fn connect(&mut self, to: PeerId) -> Result<Option<()>, PortError> {
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return Err(PortError::PeerGone(to)) };
        match &peer.path {
            Path::Gone => Err(PortError::PeerGone(to)),
            Path::Connected(_) => Ok(Some(())),
            Path::Opened(remote) => {
                if let Some(connection) = remote.reserve(self.whereabouts.owner, self.whereabouts.token)? {
                    peer.path = Path::Connected(Outgoing::new(connection));
                    return Ok(Some(()));
                }
                self.make_room(to, Push::Full, 0)?;
                Ok(None)
            }
        }
    }

    /// Tries to find room for a packet of `len` bytes after a push has found none. Returns true if there is room now.
    /// Checks once in [`REFUSALS`] calls if the peer is still alive.
    #[cold]
    fn make_room(&mut self, to: PeerId, obstacle: Push, len: usize) -> Result<bool, PortError> {
        let peer = &mut self.peers[to.0 as usize];
        let closed = match &mut peer.path {
            Path::Connected(outgoing) => {
                if outgoing.overcome(obstacle, len) {
                    return Ok(true);
                }
                outgoing.connection().is_closed()
            }
            Path::Opened(remote) => remote.is_closed(),
            Path::Gone => false,
        };
        peer.refusals = peer.refusals.wrapping_add(1);
        if closed || peer.refusals.is_multiple_of(REFUSALS) && !peer.process.is_alive() {
            return self.lose(to);
        }
        Ok(false)
    }

    #[cold]
    fn lose<T>(&mut self, to: PeerId) -> Result<T, PortError> {
        let peer = &mut self.peers[to.0 as usize];
        peer.cut_off();
        self.lost.push(to);
        Err(PortError::PeerGone(to))
    }

    #[cold]
    fn report<S: Sink>(&mut self, sink: &mut S) -> usize {
        for sender in self.inbox.garbled.drain(..) {
            let found = self.peers.iter().position(|peer| peer.token == sender);
            if let Some(index) = found.filter(|&index| !self.peers[index].is_gone()) {
                self.peers[index].cut_off();
                self.lost.push(PeerId(index as u32));
            }
        }
        let events = self.lost.len() + self.one_sided.report(sink);
        for peer in self.lost.drain(..) {
            sink.peer_lost(peer);
        }
        events
    }
}

impl Port for Shm {
    #[inline]
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        self.whereabouts.encode()
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        let theirs = Whereabouts::decode(address)?;
        let ours = &self.whereabouts;
        let unreachable = |why: &str| Err(PortError::Unreachable { why: why.into() });
        if theirs.place.boot != ours.place.boot || theirs.host != ours.host {
            return unreachable("it runs on another host");
        }
        if theirs.place.pid_namespace != ours.place.pid_namespace {
            return unreachable("it runs in another pid namespace (another container of this host)");
        }
        if let Some(known) = self.peers.iter().position(|peer| peer.token == theirs.token) {
            return Ok(PeerId(known as u32));
        }
        if self.peers.iter().filter(|peer| !peer.is_gone()).count() >= self.caps.peers_max {
            return Err(PortError::Exhausted {
                what: "peers of samite-shm",
                hint: format!("{} are in use: raise SAMITE_SHM_PEERS_MAX", self.caps.peers_max),
            });
        }
        let path = match Remote::open(&theirs) {
            _ if self.inbox.is_cut_off(theirs.token) => Path::Gone,
            Ok(remote) if remote.packet_max() < self.caps.packet_max => {
                return unreachable("its rings are smaller: use one shm::Config in a job");
            }
            Ok(remote) => {
                // If the mailbox has no room, an error now lets the caller choose another path.
                remote.check_room()?;
                Path::Opened(Box::new(remote))
            }
            // A process of another user may also seem to have ended, if the system hides it.
            Err(PortError::Unreachable { why } | PortError::PeerEnded { why }) if theirs.uid != ours.uid => {
                let why = format!("{why} (it runs as user {}, this process as {})", theirs.uid, ours.uid);
                return Err(PortError::Unreachable { why });
            }
            Err(error) => return Err(error),
        };
        let id = PeerId(self.peers.len() as u32);
        self.peers.push(Peer {
            path,
            refusals: 0,
            process: theirs.owner,
            token: theirs.token,
            segments: Segments::default(),
            heap: Heap::default(),
        });
        Ok(id)
    }

    /// This function is inlined, because callers know the length of the head at compile time, so that the copy of the
    /// head takes only a few instructions.
    #[inline(always)]
    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        let (len, max) = (head.len() + body.len(), self.caps.packet_max);
        if len > max {
            return Err(PortError::TooLong { len, max });
        }
        loop {
            let obstacle = match self.peers.get_mut(to.0 as usize) {
                Some(Peer { path: Path::Connected(outgoing), .. }) => match outgoing.push(head, body) {
                    Push::Done => {
                        if outgoing.connection().is_quiet() {
                            outgoing.connection().ring_bell();
                        }
                        return Ok(Post::Done);
                    }
                    obstacle => Some(obstacle),
                },
                _ => None,
            };
            if self.overcome(to, obstacle, len)?.is_none() {
                return Ok(Post::Again);
            }
        }
    }

    fn send_zcopy(&mut self, _: PeerId, _: &[u8], _: Local, _: OpId) -> Result<Post, PortError> {
        Err(PortError::Unsupported { what: "send registered memory" })
    }

    fn put(&mut self, to: PeerId, from: Local, into: crate::Remote, op: OpId) -> Result<Post, PortError> {
        self.put_parts(to, &[from], into, None, op)
    }

    fn put_bytes(
        &mut self,
        to: PeerId,
        from: &[u8],
        into: crate::Remote,
        op: OpId,
    ) -> Result<Post, PortError> {
        if from.len() > RMA_MAX {
            return Err(PortError::TooLong { len: from.len(), max: RMA_MAX });
        }
        if !self.is_ready(to)? {
            return Ok(Post::Again);
        }
        let Peer { process, segments, .. } = &mut self.peers[to.0 as usize];
        let result = segments.access(*process, into, from.len(), Access::REMOTE_WRITE, |segment, at| {
            segment.write(at, from);
            Ok(())
        });
        Ok(self.one_sided.ended(op, result))
    }

    fn put_v(
        &mut self,
        to: PeerId,
        from: &[Local],
        into: crate::Remote,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.put_parts(to, from, into, None, op)
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: crate::Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.put_parts(to, &[from], into, Some(immediate), op)
    }

    fn get(&mut self, to: PeerId, into: Local, from: crate::Remote, op: OpId) -> Result<Post, PortError> {
        if into.len > RMA_MAX {
            return Err(PortError::TooLong { len: into.len, max: RMA_MAX });
        }
        if !self.is_ready(to)? {
            return Ok(Post::Again);
        }
        let Self { one_sided, peers, .. } = self;
        let (local, start) = one_sided.local(into, Access::LOCAL_WRITE)?;
        let Peer { process, segments, .. } = &mut peers[to.0 as usize];
        let result = segments.access(*process, from, into.len, Access::REMOTE_READ, |segment, at| {
            // A load must not overtake this side's earlier puts.
            fence(Ordering::SeqCst);
            local.copy_from_mapped(start, into.len, segment, at).map_err(|_| Failure::Refused)
        });
        Ok(one_sided.ended(op, result))
    }

    fn get_bytes(&mut self, to: PeerId, into: &mut [u8], from: crate::Remote) -> Result<Post, PortError> {
        if into.len() > RMA_MAX {
            return Err(PortError::TooLong { len: into.len(), max: RMA_MAX });
        }
        if !self.is_ready(to)? {
            return Ok(Post::Again);
        }
        let Peer { process, segments, .. } = &mut self.peers[to.0 as usize];
        let result = segments.access(*process, from, into.len(), Access::REMOTE_READ, |segment, at| {
            fence(Ordering::SeqCst);
            segment.read(at, into);
            Ok(())
        });
        result.map(|()| Post::Over).map_err(|_| PortError::Refused)
    }

    fn change(&mut self, to: PeerId, how: Change, at: crate::Remote, op: OpId) -> Result<Changed, PortError> {
        if !self.is_ready(to)? {
            return Ok(Changed::Again);
        }
        let Peer { process, segments, .. } = &mut self.peers[to.0 as usize];
        let result = segments.access(*process, at, Change::BYTES, RIGHTS, |segment, at| {
            if at.is_multiple_of(Change::BYTES) { Ok(segment.change(at, how)) } else { Err(Failure::Refused) }
        });
        Ok(match result {
            Ok(before) => Changed::Over(before),
            Err(failure) => {
                self.one_sided.fail(op, failure);
                Changed::Done
            }
        })
    }

    fn map(&mut self, to: PeerId, at: crate::Remote, len: usize) -> Option<Window> {
        // A mapping is no operation, so it needs no room for its completion.
        if !self.is_connected(to).ok()? {
            return None;
        }
        let Peer { process, segments, .. } = &mut self.peers[to.0 as usize];
        segments.window(*process, at, len)
    }

    fn expose(&mut self, to: PeerId, bytes: &[u8]) -> Option<Exposure> {
        self.present(to).ok()?;
        onesided::expose(bytes)
    }

    fn read(&mut self, from: PeerId, at: crate::Remote, into: &mut [u8]) -> Result<bool, PortError> {
        let peer = self.present(from)?;
        peer.heap.read(peer.process, at, into)
    }

    fn has_boards(&self) -> bool {
        true
    }

    fn open_slot(&mut self) -> Result<Slot, PortError> {
        Slot::create(self.whereabouts.place, self.whereabouts.owner, self.whereabouts.host)
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        match self.peers.get(peer.0 as usize) {
            Some(known) if !known.is_gone() => Ok(PathId::default()),
            _ => Err(PortError::PeerGone(peer)),
        }
    }

    fn register_span(
        &mut self,
        _path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        self.one_sided.register(region, span, access)
    }

    fn deregister(&mut self, registration: Registration) {
        self.one_sided.deregister(registration);
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let packets = self.inbox.poll(sink)?;
        if self.inbox.garbled.is_empty() && self.lost.is_empty() && self.one_sided.is_idle() {
            return Ok(packets);
        }
        Ok(packets + self.report(sink))
    }

    #[inline(always)]
    fn has_packet(&self) -> bool {
        self.inbox.has_packet()
    }

    fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        self.inbox.next_packet(sink)
    }

    #[inline(always)]
    fn seems_idle(&self) -> bool {
        self.inbox.seems_idle() && self.lost.is_empty() && self.one_sided.is_idle()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.inbox.alarm().as_fd()]
    }

    fn arm(&mut self) -> Sleep {
        if self.lost.is_empty() && self.one_sided.is_idle() { self.inbox.arm() } else { Sleep::NotNow }
    }

    fn disarm(&mut self) {
        self.inbox.disarm();
    }

    fn fence_peer(&mut self, peer: PeerId) {
        if let Some(fenced) = self.peers.get_mut(peer.0 as usize) {
            fenced.cut_off();
            self.lost.retain(|&lost| lost != peer);
            self.inbox.cut_off(fenced.token);
        }
    }
}

impl std::fmt::Debug for Shm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shm").field("whereabouts", &self.whereabouts).finish_non_exhaustive()
    }
}

struct Peer {
    path: Path,
    /// Number of calls that found no room.
    refusals: u32,
    process: Process,
    /// The token of the peer's mailbox.
    token: u64,
    segments: Segments,
    heap: Heap,
}

impl Peer {
    fn is_gone(&self) -> bool {
        matches!(self.path, Path::Gone)
    }

    /// Unmaps all memory of the peer, except the memory that the inbox uses too.
    fn cut_off(&mut self) {
        self.path = Path::Gone;
        self.segments = Segments::default();
        self.heap = Heap::default();
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "most peers are connected, and a send must not follow one more pointer"
)]
enum Path {
    /// The peer's mailbox is mapped; the first send reserves a slot.
    Opened(Box<Remote>),
    Connected(Outgoing),
    /// The peer was fenced or lost.
    Gone,
}

/// Of the calls that find no room, one in this number asks the kernel if the peer is still alive. That takes three
/// system calls and some microseconds, which is negligible at this rate. A sender that retries without pause detects a
/// dead peer in less than a millisecond.
const REFUSALS: u32 = 4096;

#[cfg(test)]
mod tests;
