//! The port within one process: for messages of a rank to itself, and for ranks that are threads.
//!
//! Ports of one [`Hub`] reach each other. A packet is copied into the receiver's inbox, which holds a bounded number of
//! bytes. Puts and gets copy between registered regions within the call, so every order holds and the target need not
//! poll.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use samite_os::alarm::Alarm;

use crate::{
    Access, Address, Body, Caps, Change, Changed, Failure, Local, OpId, Order, PathId, PeerId, Port,
    PortError, Post, Reach, Region, Registration, Remote, Sink, Sleep,
    port::{gather, total},
    registrations::Registrations,
    rng::SplitMix64,
};

const PACKET_MAX: usize = 8 << 10;
/// The longest one-sided operation, in bytes. Its copy holds a lock on the target's registrations, and a rank that waits
/// polls up to 64 times before it looks at its deadline, so it must end soon.
const RMA_MAX: usize = 256 << 10;
const RMA_DEPTH: usize = 1024;
/// The largest number of parts of one put. The port locks the registrations once for each part, so the number is
/// limited.
const IOV_MAX: usize = 64;
/// The largest number of bytes of packets in an inbox. At the limit its senders must wait.
const INBOX_BYTES_MAX: usize = 256 << 10;
/// The largest number of events in an inbox. At the limit its senders must wait.
const INBOX_EVENTS_MAX: usize = 4096;

/// The meeting place of loopback ports. Clones are the same hub.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Directory>);

#[derive(Debug)]
struct Directory {
    /// Distinguishes the addresses of this hub from those of others.
    token: u64,
    /// Every port ever made, by index; an index is never reused.
    ports: Mutex<Vec<Weak<Shared>>>,
}

impl Hub {
    /// Returns a hub without ports.
    #[must_use]
    pub fn new() -> Self {
        let token = SplitMix64::from_entropy().next_u64();
        Self(Arc::new(Directory { token, ports: Mutex::default() }))
    }

    /// Returns a new port, reachable by all others of the hub.
    #[must_use]
    pub fn port(&self) -> Loopback {
        let mut ports = lock(&self.0.ports);
        let index = u32::try_from(ports.len()).expect("a process makes fewer than 2^32 ports");
        let shared = Arc::new(Shared {
            index,
            pending: AtomicBool::new(false),
            alarm: Alarm::new().ok(),
            inbox: Mutex::default(),
            exposed: RwLock::new(Exposed {
                registrations: Registrations::new(SplitMix64::from_entropy()),
                barred: Barred::default(),
            }),
        });
        ports.push(Arc::downgrade(&shared));
        Loopback {
            hub: self.clone(),
            shared,
            peers: Vec::new(),
            by_index: HashMap::new(),
            completed: VecDeque::new(),
            batch: Batch::default(),
            caps: caps(),
        }
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

/// A port that reaches the ports of its [`Hub`], itself included.
///
/// When a port is dropped, each port that has resolved it gets [`Sink::peer_lost`], after the packets that were
/// sent before.
#[derive(Debug)]
pub struct Loopback {
    hub: Hub,
    shared: Arc<Shared>,
    /// The peers by [`PeerId`]. An entry is `None` once the peer was fenced or lost.
    peers: Vec<Option<Arc<Shared>>>,
    by_index: HashMap<u32, PeerId>,
    /// One-sided operations that have failed and have not been reported.
    completed: VecDeque<(OpId, Result<(), Failure>)>,
    /// Each poll swaps this batch with the inbox's batch, so that the memory of both is used again.
    batch: Batch,
    caps: Caps,
}

/// The part of a port that other ports access.
#[derive(Debug)]
struct Shared {
    index: u32,
    /// True if the inbox may hold something. A poll that finds false does not lock the inbox.
    pending: AtomicBool,
    /// Wakes the owner; `None` at the limit of open files.
    alarm: Option<Alarm>,
    inbox: Mutex<Inbox>,
    /// Each copy holds the read lock, so the holder of the write lock knows that no copy is under way.
    exposed: RwLock<Exposed>,
}

#[derive(Debug, Default)]
struct Inbox {
    batch: Batch,
    barred: Barred,
    /// True while the owner sleeps, and the next event has to wake it.
    armed: bool,
    /// Ports to notify when this port is dropped.
    watchers: Vec<Weak<Shared>>,
}

/// Events in the order of their arrival, each with its sender. `bytes` has the bytes of all packets.
#[derive(Debug, Default)]
struct Batch {
    events: Vec<(u32, Event)>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Packet { start: usize, end: usize },
    Notified(u64),
    Lost,
}

#[derive(Debug)]
struct Exposed {
    registrations: Registrations,
    barred: Barred,
}

/// The ports that may not access this port any more.
#[derive(Debug, Default)]
struct Barred {
    /// True if no port may access this port any more, because it was dropped.
    everyone: bool,
    /// The indices of the ports that this port has fenced.
    these: HashSet<u32>,
}

impl Barred {
    fn contains(&self, index: u32) -> bool {
        self.everyone || self.these.contains(&index)
    }
}

impl Batch {
    fn has_room(&self, bytes: usize) -> bool {
        self.events.len() < INBOX_EVENTS_MAX && self.bytes.len() + bytes <= INBOX_BYTES_MAX
    }
}

impl Shared {
    /// Returns the inbox, if `sender` may write to it.
    fn inbox_for(&self, sender: u32) -> Option<MutexGuard<'_, Inbox>> {
        Some(lock(&self.inbox)).filter(|inbox| !inbox.barred.contains(sender))
    }

    fn push(&self, inbox: &mut Inbox, from: u32, event: Event) {
        inbox.batch.events.push((from, event));
        self.pending.store(true, Ordering::Release);
        if std::mem::take(&mut inbox.armed)
            && let Some(alarm) = &self.alarm
        {
            alarm.ring();
        }
    }

    fn exposed(&self) -> RwLockReadGuard<'_, Exposed> {
        self.exposed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exposed_mut(&self) -> RwLockWriteGuard<'_, Exposed> {
        self.exposed.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loopback {
    fn send_slice(&mut self, to: PeerId, head: &[u8], body: &[u8]) -> Result<Post, PortError> {
        let len = head.len() + body.len();
        if len > PACKET_MAX {
            return Err(PortError::TooLong { len, max: PACKET_MAX });
        }
        let (target, me) = (self.peer(to)?, self.shared.index);
        let mut inbox = target.inbox_for(me).ok_or(PortError::PeerGone(to))?;
        if !inbox.batch.has_room(len) {
            return Ok(Post::Again);
        }
        let start = inbox.batch.bytes.len();
        inbox.batch.bytes.extend_from_slice(head);
        inbox.batch.bytes.extend_from_slice(body);
        target.push(&mut inbox, me, Event::Packet { start, end: start + len });
        Ok(Post::Done)
    }

    fn peer(&self, peer: PeerId) -> Result<&Arc<Shared>, PortError> {
        self.peers.get(peer.0 as usize).and_then(Option::as_ref).ok_or(PortError::PeerGone(peer))
    }

    /// Finds `place` in the peer's registered memory. If the peer permits the access to `len` bytes there, calls `act`
    /// with the region and the offset, and then delivers the immediate, if there is one. Returns `None` if there is no
    /// room now for a completion or for the immediate.
    fn reach<T>(
        &mut self,
        peer: PeerId,
        (place, len, access): (Remote, usize, Access),
        immediate: Option<u64>,
        act: impl FnOnce(&Region, usize) -> Result<T, PortError>,
    ) -> Result<Option<Result<T, Failure>>, PortError> {
        if len > RMA_MAX {
            return Err(PortError::TooLong { len, max: RMA_MAX });
        }
        let (target, me) = (self.peer(peer)?, self.shared.index);
        if self.completed.len() >= RMA_DEPTH {
            return Ok(None);
        }
        if immediate.is_some() && !target.inbox_for(me).ok_or(PortError::PeerGone(peer))?.batch.has_room(0) {
            return Ok(None);
        }
        let exposed = target.exposed();
        if exposed.barred.contains(me) {
            return Err(PortError::PeerGone(peer));
        }
        let result = match exposed.registrations.remote(place, len, access) {
            Ok((remote, offset)) => act(remote, offset).map_err(|_| Failure::Refused),
            Err(refused) => Err(refused),
        };
        drop(exposed);
        // Other ports may have filled the inbox during the copy. This event is delivered all the same: each port can
        // exceed the limit by one event at most, which does no harm.
        if let (Some(immediate), Ok(_), Some(mut inbox)) = (immediate, &result, target.inbox_for(me)) {
            target.push(&mut inbox, me, Event::Notified(immediate));
        }
        Ok(Some(result))
    }

    /// Returns the region and offset of a local span for an operation.
    fn local(&self, span: Local, access: Access) -> Result<(Region, usize), PortError> {
        let exposed = self.shared.exposed();
        let (region, offset) = exposed.registrations.local(span, access)?;
        Ok((region.clone(), offset))
    }

    /// Converts the result of an operation that ended within its posting call to the result of the call. `None` means
    /// that the operation found no room. Queues the completion of a failed operation.
    fn ended(&mut self, op: OpId, result: Option<Result<(), Failure>>) -> Post {
        match result {
            None => Post::Again,
            Some(Ok(())) => Post::Over,
            Some(failed) => {
                self.completed.push_back((op, failed));
                Post::Done
            }
        }
    }

    fn put_with(
        &mut self,
        to: PeerId,
        parts: &[Local],
        into: Remote,
        immediate: Option<u64>,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.peer(to)?;
        let sources: Vec<_> =
            parts.iter().map(|&part| self.local(part, Access::LOCAL_READ)).collect::<Result<_, _>>()?;
        let len = total(parts, IOV_MAX, RMA_MAX)?;
        let result = self.reach(to, (into, len, Access::REMOTE_WRITE), immediate, |remote, mut offset| {
            for ((local, start), part) in sources.iter().zip(parts) {
                Region::copy_between(local, *start, remote, offset, part.len)?;
                offset += part.len;
            }
            Ok(())
        })?;
        Ok(self.ended(op, result))
    }

    /// Removes a peer and returns it if it was known.
    fn forget(&mut self, peer: PeerId) -> Option<Arc<Shared>> {
        self.peers.get_mut(peer.0 as usize)?.take()
    }
}

impl Loopback {
    /// Returns the port, and declares its packets to be dear ([`Caps::dear_packets`]): for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_dear_packets(mut self) -> Self {
        self.caps.dear_packets = true;
        self
    }
}

impl Port for Loopback {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        let mut bytes = self.hub.0.token.to_le_bytes().to_vec();
        bytes.extend(self.shared.index.to_le_bytes());
        Address(bytes)
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        let index = self.hub.index(address)?;
        if let Some(&peer) = self.by_index.get(&index) {
            return Ok(peer);
        }
        let peer = PeerId(self.peers.len() as u32);
        let target = lock(&self.hub.0.ports)[index as usize].upgrade();
        match target.as_ref().and_then(|target| target.inbox_for(self.shared.index)) {
            Some(mut inbox) => inbox.watchers.push(Arc::downgrade(&self.shared)),
            None => self.shared.push(&mut lock(&self.shared.inbox), index, Event::Lost),
        }
        self.peers.push(target);
        self.by_index.insert(index, peer);
        Ok(peer)
    }

    #[inline(always)]
    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        match body.as_slice() {
            Some(body) => self.send_slice(to, head, body),
            None => self.send_slice(to, head, &gather(&[], body)),
        }
    }

    fn send_zcopy(&mut self, _: PeerId, _: &[u8], _: Local, _: OpId) -> Result<Post, PortError> {
        Err(PortError::Unsupported { what: "send from registered memory" })
    }

    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError> {
        self.put_with(to, &[from], into, None, op)
    }

    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        let theirs = (into, from.len(), Access::REMOTE_WRITE);
        let result = self.reach(to, theirs, None, |remote, offset| remote.copy_in(offset, from))?;
        Ok(self.ended(op, result))
    }

    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        self.put_with(to, from, into, None, op)
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        self.put_with(to, &[from], into, Some(immediate), op)
    }

    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError> {
        self.peer(to)?;
        let (local, start) = self.local(into, Access::LOCAL_WRITE)?;
        let result = self.reach(to, (from, into.len, Access::REMOTE_READ), None, |remote, offset| {
            Region::copy_between(remote, offset, &local, start, into.len)
        })?;
        Ok(self.ended(op, result))
    }

    fn get_bytes(&mut self, to: PeerId, into: &mut [u8], from: Remote) -> Result<Post, PortError> {
        let theirs = (from, into.len(), Access::REMOTE_READ);
        match self.reach(to, theirs, None, |remote, offset| remote.copy_out(offset, into))? {
            None => Ok(Post::Again),
            Some(result) => result.map(|()| Post::Over).map_err(|_| PortError::Refused),
        }
    }

    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        let theirs = (at, Change::BYTES, Access::REMOTE_READ | Access::REMOTE_WRITE);
        Ok(match self.reach(to, theirs, None, |remote, offset| remote.change(offset, how))? {
            None => Changed::Again,
            Some(Ok(before)) => Changed::Over(before),
            Some(Err(failure)) => {
                self.completed.push_back((op, Err(failure)));
                Changed::Done
            }
        })
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        self.peer(peer).map(|_| PathId::default())
    }

    fn register_span(
        &mut self,
        _path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        self.shared.exposed_mut().registrations.insert(region, span, access)
    }

    fn deregister(&mut self, registration: Registration) {
        self.shared.exposed_mut().registrations.remove(registration);
    }

    #[inline(always)]
    fn seems_idle(&self) -> bool {
        self.completed.is_empty() && !self.shared.pending.load(Ordering::Relaxed)
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let mut count = 0;
        while let Some((op, result)) = self.completed.pop_front() {
            sink.completed(op, result);
            count += 1;
        }
        if !self.shared.pending.load(Ordering::Acquire) {
            return Ok(count);
        }
        let mut batch = std::mem::take(&mut self.batch);
        {
            let mut inbox = lock(&self.shared.inbox);
            std::mem::swap(&mut inbox.batch, &mut batch);
            self.shared.pending.store(false, Ordering::Relaxed);
        }
        for (from, event) in batch.events.drain(..) {
            match event {
                Event::Packet { start, end } => sink.packet(&batch.bytes[start..end]),
                Event::Notified(immediate) => sink.notified(immediate),
                Event::Lost => {
                    let peer = self.by_index[&from];
                    self.forget(peer);
                    sink.peer_lost(peer);
                }
            }
            count += 1;
        }
        batch.bytes.clear();
        self.batch = batch;
        Ok(count)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.shared.alarm.iter().map(AsFd::as_fd).collect()
    }

    fn arm(&mut self) -> Sleep {
        let mut inbox = lock(&self.shared.inbox);
        if !self.completed.is_empty() || !inbox.batch.events.is_empty() {
            return Sleep::NotNow;
        }
        inbox.armed = true;
        if self.shared.alarm.is_some() { Sleep::UntilReadable } else { Sleep::Briefly }
    }

    fn disarm(&mut self) {
        // An event that arrives while the port is armed disarms it and rings the alarm, so a port that is already
        // disarmed may have an alarm to reset.
        if !std::mem::take(&mut lock(&self.shared.inbox).armed)
            && let Some(alarm) = &self.shared.alarm
        {
            alarm.silence();
        }
    }

    fn fence_peer(&mut self, peer: PeerId) {
        // In this port each operation ends within its posting call. So only events that the peer has sent can still
        // arrive.
        if let Some(target) = self.forget(peer) {
            self.shared.exposed_mut().barred.these.insert(target.index);
            let mut inbox = lock(&self.shared.inbox);
            inbox.barred.these.insert(target.index);
            inbox.batch.events.retain(|&(from, _)| from != target.index);
        }
    }
}

impl Hub {
    /// Returns the index in the address of one of this hub's ports.
    fn index(&self, address: &Address) -> Result<u32, PortError> {
        let bad = |why: &str| PortError::BadAddress { why: why.into() };
        let bytes: [u8; 12] = address.0.as_slice().try_into().map_err(|_| bad("it is not 12 bytes long"))?;
        let [token @ .., a, b, c, d] = bytes;
        let index = u32::from_le_bytes([a, b, c, d]);
        if u64::from_le_bytes(token) != self.0.token {
            return Err(PortError::Unreachable { why: "it is not in this process".into() });
        }
        if index as usize >= lock(&self.0.ports).len() {
            return Err(bad("there is no such port"));
        }
        Ok(index)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let watchers = {
            let mut inbox = lock(&self.shared.inbox);
            inbox.barred.everyone = true;
            inbox.batch = Batch::default();
            std::mem::take(&mut inbox.watchers)
        };
        let mut exposed = self.shared.exposed_mut();
        exposed.barred.everyone = true;
        exposed.registrations = Registrations::new(SplitMix64::from_entropy());
        drop(exposed);
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            if let Some(mut inbox) = watcher.inbox_for(self.shared.index) {
                watcher.push(&mut inbox, self.shared.index, Event::Lost);
            }
        }
    }
}

fn caps() -> Caps {
    Caps {
        name: "loopback".into(),
        short_max: PACKET_MAX,
        packet_max: PACKET_MAX,
        fragment_max: PACKET_MAX,
        zcopy_max: 0,
        rma_max: RMA_MAX,
        put_bytes_max: RMA_MAX,
        get_bytes_max: RMA_MAX,
        iov_max: IOV_MAX,
        rma_depth: RMA_DEPTH,
        put: Reach::Any,
        get: Reach::Any,
        change: Reach::Any,
        map: false,
        passive: true,
        immediate_bits: 64,
        order: Order::all(),
        fence: true,
        peers_max: u32::MAX as usize,
        dear_packets: false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
