//! The simulated port.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::operation::{Kind, Operation, Part};
use super::world::{Exposed, Packet, Process, Ready, Standing, World};
use super::{What, lock};
use crate::mem::RIGHTS;
use crate::port::{gather, total};
use crate::{
    Access, Address, Body, Caps, Change, Changed, Exposure, Local, OpId, PathId, PeerId, Port, PortError,
    Post, Region, Registration, Remote, Sink, Window,
};

/// The port of one incarnation of a rank in a simulated network. After the end of the incarnation, or while it is
/// paused, posts return [`Post::Again`] and polls find nothing. If the port is dropped, the incarnation ends in good
/// order: its posted operations still arrive.
pub struct SimPort {
    world: Arc<Mutex<World>>,
    me: Process,
    caps: Caps,
}

impl SimPort {
    pub(super) fn new(world: Arc<Mutex<World>>, me: Process, caps: Caps) -> Self {
        Self { world, me, caps }
    }

    /// Returns the rank and incarnation of this port.
    #[must_use]
    pub fn process(&self) -> Process {
        self.me
    }

    /// Returns the number of registrations that have not ended.
    #[must_use]
    pub fn registrations(&self) -> usize {
        let world = lock(&self.world);
        if world.is_present(self.me) { world.nodes[&self.me.rank].registrations.len() } else { 0 }
    }

    /// Posts an operation on parts of registered memory, or on `data`. A change uses neither.
    fn post(
        &mut self,
        peer: PeerId,
        kind: Kind,
        head: &[u8],
        (parts, access): (&[Local], Access),
        data: Option<Vec<u8>>,
        id: OpId,
    ) -> Result<Post, PortError> {
        let mut world = lock(&self.world);
        let Some(target) = world.admit(self.me, peer)? else { return Ok(Post::Again) };
        let node = world.node(self.me.rank);
        let part = |part: &Local| {
            let (region, offset) = node.registrations.local(*part, access)?;
            Ok(Part { region: region.clone(), offset, len: part.len })
        };
        let local: Vec<_> = parts.iter().map(part).collect::<Result<_, PortError>>()?;
        let full = match kind {
            Kind::Send => world.is_full(self.me, target),
            _ => node.outstanding >= self.caps.rma_depth,
        };
        if full {
            return Ok(Post::Again);
        }
        let len = match (&data, kind) {
            (Some(data), _) => data.len(),
            (None, Kind::Change { .. }) => Change::BYTES,
            (None, _) => local.iter().map(|part| part.len).sum(),
        };
        let operation = Operation {
            id,
            peer,
            origin: self.me,
            target,
            kind,
            awaited: true,
            local,
            len,
            data,
            place: None,
            hangs: false,
        };
        world.post(operation, head);
        Ok(Post::Done)
    }

    fn check(&self, able: bool, what: &'static str, len: usize, max: usize) -> Result<(), PortError> {
        match able {
            false => Err(PortError::Unsupported { what }),
            true if len > max => Err(PortError::TooLong { len, max }),
            true => Ok(()),
        }
    }
}

impl Port for SimPort {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        lock(&self.world).address(self.me.rank)
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        lock(&self.world).resolve(self.me, address)
    }

    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        self.check(true, "", head.len() + body.len(), self.caps.packet_max)?;
        let mut world = lock(&self.world);
        let Some(target) = world.admit(self.me, to)? else { return Ok(Post::Again) };
        if world.is_full(self.me, target) {
            return Ok(Post::Again);
        }
        let serial = world.serial();
        let bytes = gather(head, body);
        world.send(Packet { serial, from: self.me, to: target, bytes, zcopy: false }, 0);
        Ok(Post::Done)
    }

    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError> {
        let max = self.caps.zcopy_max;
        self.check(max > 0, "send from registered memory", head.len() + body.len, max)?;
        self.post(to, Kind::Send, head, (&[body], Access::LOCAL_READ), None, op)
    }

    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError> {
        self.check(self.caps.put.is_some(), "put", from.len, self.caps.rma_max)?;
        self.post(to, Kind::Put { into, immediate: None }, &[], (&[from], Access::LOCAL_READ), None, op)
    }

    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        let max = self.caps.put_bytes_max;
        self.check(self.caps.put.is_some() && max > 0, "put bytes", from.len(), max)?;
        let kind = Kind::Put { into, immediate: None };
        self.post(to, kind, &[], (&[], Access::empty()), Some(from.to_vec()), op)
    }

    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        self.check(self.caps.put.is_some() && self.caps.iov_max > 0, "put several parts", 0, 0)?;
        total(from, self.caps.iov_max, self.caps.rma_max)?;
        self.post(to, Kind::Put { into, immediate: None }, &[], (from, Access::LOCAL_READ), None, op)
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        let bits = self.caps.immediate_bits;
        self.check(
            self.caps.put.is_some() && bits > 0,
            "put with an immediate",
            from.len,
            self.caps.rma_max,
        )?;
        let immediate = Some(immediate & (u64::MAX >> (64 - bits.min(64))));
        self.post(to, Kind::Put { into, immediate }, &[], (&[from], Access::LOCAL_READ), None, op)
    }

    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError> {
        self.check(self.caps.get.is_some(), "get", into.len, self.caps.rma_max)?;
        self.post(to, Kind::Get { from }, &[], (&[into], Access::LOCAL_WRITE), None, op)
    }

    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        self.check(self.caps.change.is_some(), "change memory in one step", 0, 0)?;
        let posted = self.post(to, Kind::Change { how, at }, &[], (&[], Access::empty()), None, op)?;
        Ok(if posted == Post::Again { Changed::Again } else { Changed::Done })
    }

    fn map(&mut self, to: PeerId, at: Remote, len: usize) -> Option<Window> {
        if !self.caps.map {
            return None;
        }
        let mut world = lock(&self.world);
        // A mapping needs no room in the network, so a storm does not prevent it.
        let target = world.target(self.me, to).ok()??;
        let registrations = &world.node(target.rank).registrations;
        let (region, offset) = registrations.remote(at, len, RIGHTS).ok()?;
        region.window(offset..offset + len)
    }

    fn expose(&mut self, to: PeerId, bytes: &[u8]) -> Option<Exposure> {
        let mut world = lock(&self.world);
        world.admit(self.me, to).ok()??;
        world.exposures.retain(|_, exposed| exposed.held.strong_count() > 0);
        if world.exposures.len() >= world.config.exposures_max {
            return None;
        }
        let (key, end) = (world.serial(), Arc::new(()));
        let exposed = Exposed { bytes: bytes.to_vec(), held: Arc::downgrade(&end) };
        world.exposures.insert(key, exposed);
        Some(Exposure::new(Remote { key, address: 0 }, end))
    }

    /// Returns false for bytes that are not exposed any more.
    fn read(&mut self, from: PeerId, at: Remote, into: &mut [u8]) -> Result<bool, PortError> {
        let mut world = lock(&self.world);
        if world.admit(self.me, from)?.is_none() || !world.config.reads {
            return Err(PortError::Unreachable { why: "its memory is out of reach".into() });
        }
        let exposed = world.exposures.get(&at.key).filter(|exposed| exposed.held.strong_count() > 0);
        let start = usize::try_from(at.address).unwrap_or(usize::MAX);
        let bytes = exposed.and_then(|exposed| exposed.bytes.get(start..)?.get(..into.len()));
        match bytes {
            Some(bytes) => into.copy_from_slice(bytes),
            None => into.fill(0xe5),
        }
        Ok(bytes.is_some())
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        let mut world = lock(&self.world);
        let alive = world.is_present(self.me);
        match world.node(self.me.rank).peers.get(peer.0 as usize) {
            Some(known) if alive && known.standing == Standing::Known => Ok(PathId::default()),
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
        let mut world = lock(&self.world);
        if !world.is_present(self.me) {
            return Err(PortError::Unsupported { what: "register memory of an incarnation that has ended" });
        }
        let max = world.config.registrations_max;
        let registrations = &mut world.node(self.me.rank).registrations;
        if registrations.len() >= max {
            let hint = "raise `registrations_max` of the simulated network".into();
            return Err(PortError::Exhausted { what: "registrations", hint });
        }
        let registration = registrations.insert(region, span, access)?;
        let (cost, now) = (world.config.costs.registration_ns, world.now);
        let sending_until = &mut world.node(self.me.rank).sending_until;
        *sending_until = now.max(*sending_until) + cost;
        Ok(registration)
    }

    fn deregister(&mut self, registration: Registration) {
        let mut world = lock(&self.world);
        if world.is_present(self.me) {
            world.node(self.me.rank).registrations.remove(registration);
        }
    }

    fn suspend(&mut self, registration: Registration) -> bool {
        let mut world = lock(&self.world);
        world.is_present(self.me) && world.node(self.me.rank).registrations.suspend(registration)
    }

    fn resume(&mut self, _: PathId, registration: Registration, region: &Region) -> bool {
        let mut world = lock(&self.world);
        world.is_present(self.me) && world.node(self.me.rank).registrations.resume(registration, region)
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let batch = lock(&self.world).take_ready(self.me);
        let count = batch.len();
        for ready in batch {
            match ready {
                Ready::Packet(_, bytes) => sink.packet(&bytes),
                Ready::Notified(_, immediate) => sink.notified(immediate),
                Ready::Completed(op, result) => sink.completed(op, result),
                Ready::Changed(op, before) => sink.changed(op, before),
                Ready::Lost(peer) => sink.peer_lost(peer),
            }
        }
        Ok(count)
    }

    /// Returns true if the next poll would begin with a packet. Even then it returns false at random, which a port may
    /// do.
    fn has_packet(&self) -> bool {
        let mut world = lock(&self.world);
        world.begins_with_packet(self.me) && world.rng.below(2) > 0
    }

    fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        let packet = lock(&self.world).take_packet(self.me);
        packet.map(|bytes| sink.packet(&bytes)).is_some()
    }

    fn fence_peer(&mut self, peer: PeerId) {
        let mut world = lock(&self.world);
        if world.is_present(self.me) {
            world.fence(self.me, peer);
        }
    }
}

impl fmt::Debug for SimPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPort").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        // During a panic this thread may hold the lock, so it must not wait for the lock.
        if let Ok(mut world) = self.world.try_lock() {
            world.retire(self.me);
        }
    }
}

impl World {
    /// Takes the events that the next poll of `me` reports.
    fn take_ready(&mut self, me: Process) -> Vec<Ready> {
        if !self.is_running(me) {
            return Vec::new();
        }
        for serial in std::mem::take(&mut self.node(me.rank).waiting) {
            self.begin(serial, true);
        }
        let count = 1 + self.rng.below(self.config.poll_batch as u64) as usize;
        self.take(me, count)
    }

    fn begins_with_packet(&mut self, me: Process) -> bool {
        self.is_running(me) && matches!(self.node(me.rank).ready.front(), Some(Ready::Packet(..)))
    }

    /// Takes the packet with which the next poll would begin.
    fn take_packet(&mut self, me: Process) -> Option<Vec<u8>> {
        if !self.begins_with_packet(me) {
            return None;
        }
        match self.take(me, 1).pop() {
            Some(Ready::Packet(_, bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn take(&mut self, me: Process, count: usize) -> Vec<Ready> {
        let ready = &mut self.node(me.rank).ready;
        let batch: Vec<_> = ready.drain(..count.min(ready.len())).collect();
        for ready in &batch {
            match *ready {
                Ready::Packet(Some(from), _) => self.pair(from.rank, me.rank).unpolled -= 1,
                Ready::Lost(peer) => {
                    self.node(me.rank).peers[peer.0 as usize].standing = Standing::Lost;
                    self.note(What::Lost { at: me, peer: peer.0 });
                }
                _ => {}
            }
        }
        batch
    }
}
