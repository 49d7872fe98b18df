//! Registered memory that serves messages, one after another.
//!
//! Ports access registered memory only, and borrowed buffers are never registered. So the bytes of a borrowed buffer
//! are copied through *slabs*. The allocation of a slab, the first access to its pages and its registration take longer
//! than the copy. So a slab stays registered when its message has ended, and later messages use it again.
//!
//! A slab that a peer may access belongs to this peer as long as it is registered: no other peer gets its key. A slab
//! that only this side accesses serves all peers of one path. A message gives its slab back when no operation of this
//! side or of the peer can access the slab any more. When the peer ends, its slabs are deregistered after its path is
//! cut off. If the port holds one of them longer, it is in quarantine like other memory.
//!
//! All slabs together, and the memory of kept registrations ([`leases`](super::leases)), have at most
//! [`Config::registered_max`](super::Config::registered_max) bytes. If a message needs more, the slabs and
//! registrations that were not used for the longest time are freed.

use std::collections::VecDeque;

use super::{Link, Out, Peer};
use crate::{Access, Local, Memory, PathId, PeerId, Port, PortError, Region, Registration, Remote};

/// A piece of registered memory that serves messages, one after another. It serves one peer, or all peers of a path.
#[derive(Debug)]
#[must_use = "`Link::give_slab` and `Link::retire_slab` take slabs back"]
pub struct Slab {
    region: Region,
    registration: Registration,
    access: Access,
    user: User,
    /// The time of the last use, on the link's clock of uses.
    used_at: u64,
}

/// The peers for whose operations a slab is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// All peers on a path. Only this side accesses the slab.
    Path(PathId),
    /// One peer, and the path to it.
    Peer(Peer, PeerId),
}

impl Slab {
    /// Returns the memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns a part of the slab, for operations of this side.
    #[must_use]
    pub fn local(&self, offset: usize, len: usize) -> Local {
        self.registration.local(offset, len)
    }

    /// Returns the place of a byte of the slab, for operations of the peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        self.registration.remote(offset)
    }
}

/// The slabs of a link that no message uses, and the sizes of all slabs.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// The slab that was not used for the longest time is the first.
    idle: VecDeque<Slab>,
    /// The bytes of the slabs in `idle`.
    idle_bytes: u64,
    /// The number of slabs that messages use.
    used: usize,
    /// The bytes of the slabs that messages use.
    pub(super) used_bytes: u64,
}

impl Slabs {
    fn take(&mut self, user: User, len: usize, access: Access) -> Option<Slab> {
        let fits = |slab: &Slab| slab.user == user && slab.access == access && slab.region.len() == len;
        // The latest slab is probably still in the cache.
        let slab = self.idle.remove(self.idle.iter().rposition(fits)?)?;
        self.idle_bytes -= len as u64;
        self.lend(len);
        Some(slab)
    }

    fn lend(&mut self, len: usize) {
        self.used += 1;
        self.used_bytes += len as u64;
    }

    fn end_use(&mut self, slab: &Slab) {
        self.used -= 1;
        self.used_bytes -= slab.region.len() as u64;
    }

    /// Returns the time of the last use of the idle slab that was not used for the longest time.
    fn oldest(&self) -> Option<u64> {
        self.idle.front().map(|slab| slab.used_at)
    }

    fn remove_oldest(&mut self) -> Option<(Region, Registration)> {
        let Slab { region, registration, .. } = self.idle.pop_front()?;
        self.idle_bytes -= region.len() as u64;
        Some((region, registration))
    }

    /// Removes the idle slabs that belong to a peer.
    pub(super) fn of_peer(&mut self, path: PeerId) -> Vec<(Region, Registration)> {
        let is_theirs = |slab: &Slab| matches!(slab.user, User::Peer(_, theirs) if theirs == path);
        let (theirs, idle): (VecDeque<_>, _) =
            std::mem::take(&mut self.idle).into_iter().partition(is_theirs);
        self.idle = idle;
        self.idle_bytes -= theirs.iter().map(|slab| slab.region.len() as u64).sum::<u64>();
        theirs.into_iter().map(|slab| (slab.region, slab.registration)).collect()
    }
}

impl Link {
    /// Takes back a slab that no operation of this side or of the peer can access any more.
    pub fn give_slab(&mut self, mut slab: Slab) {
        if let User::Peer(peer, path) = slab.user
            && self.peers[peer].path != Some(path)
        {
            return self.retire_slab(slab);
        }
        self.slabs.end_use(&slab);
        self.slabs.idle_bytes += slab.region.len() as u64;
        slab.used_at = self.next_use();
        self.slabs.idle.push_back(slab);
    }

    /// Takes back a slab that operations of a peer that has ended may still access. The slab serves no other message.
    pub fn retire_slab(&mut self, slab: Slab) {
        self.slabs.end_use(&slab);
        self.retired_slabs.push((slab.region, slab.registration));
        self.has_work = true;
    }

    /// Returns the next time on the clock of uses, which only orders the uses of registered memory.
    pub(super) fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Returns true if messages use registered memory. Then the port may move bytes in polls that bring no event.
    #[must_use]
    pub fn uses_registered_memory(&self) -> bool {
        self.slabs.used + self.leases.used > 0
    }

    /// Returns the numbers and sizes of the slabs, and of the memory whose registrations are kept.
    #[must_use]
    pub fn registered(&self) -> Registered {
        let idle = self.slabs.idle.len() + self.leases.len();
        Registered {
            used: self.slabs.used,
            used_bytes: self.slabs.used_bytes,
            idle,
            bytes: self.registered_bytes(),
        }
    }

    fn registered_bytes(&self) -> u64 {
        self.slabs.used_bytes + self.slabs.idle_bytes + self.leases.bytes
    }
}

/// The sizes of a link's registered memory that serves several messages: slabs, and memory of the program whose
/// registration is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The number of slabs that messages use.
    pub used: usize,
    /// The bytes of these slabs.
    pub used_bytes: u64,
    /// The number of slabs that no message uses, and of kept registrations.
    pub idle: usize,
    /// The bytes of all slabs, and of the memory of the kept registrations.
    pub bytes: u64,
}

impl<P: Port> Out<'_, P> {
    /// Takes a slab of `len` bytes for a message to or from a peer.
    ///
    /// # Errors
    /// [`PortError::PeerGone`] if there is no path to the peer; [`PortError::Exhausted`] if messages use all memory for
    /// slabs, or if the process cannot get more memory; the errors of [`register`](Self::register).
    pub fn take_slab(&mut self, peer: Peer, len: usize, access: Access) -> Result<Slab, PortError> {
        let Some(path) = self.link.peers[peer].path else {
            return Err(PortError::PeerGone(PeerId(u32::MAX)));
        };
        let user = match access.intersects(Access::REMOTE) {
            true => User::Peer(peer, path),
            false => User::Path(self.port.path(path)?),
        };
        if let Some(slab) = self.link.slabs.take(user, len, access) {
            return Ok(slab);
        }
        let (max, needed) = (self.link.config.registered_max, self.link.slabs.used_bytes + len as u64);
        if needed > max {
            let hint = format!("messages use all of the {max} bytes that `registered_max` permits");
            return Err(PortError::Exhausted { what: "registered memory", hint });
        }
        self.make_room(len);
        let memory = Memory::try_zeroed(len).ok_or_else(|| PortError::Exhausted {
            what: "memory",
            hint: format!("a slab has {len} bytes: lower `put_chunk`"),
        })?;
        let region = Region::new(memory);
        let registration = self.register_anew(path, &region, access)?;
        self.link.slabs.lend(len);
        Ok(Slab { region, registration, access, user, used_at: 0 })
    }

    /// Frees idle registered memory until there is room for `len` bytes more within the budget. Memory that messages
    /// use does not become free.
    pub(super) fn make_room(&mut self, len: usize) {
        let max = self.link.config.registered_max;
        while self.link.registered_bytes() + len as u64 > max && self.free_oldest() {}
    }

    /// Registers memory for operations with a peer. If the port has no room for another registration, frees idle
    /// registered memory until it has.
    #[inline]
    pub(super) fn register_anew(
        &mut self,
        path: PeerId,
        region: &Region,
        access: Access,
    ) -> Result<Registration, PortError> {
        let mut registered = self.port.register(path, region, access);
        while matches!(registered, Err(PortError::Exhausted { .. } | PortError::Provider { .. }))
            && self.free_oldest()
        {
            registered = self.port.register(path, region, access);
        }
        self.link.counters.registrations += u64::from(registered.is_ok());
        registered
    }

    /// Frees the idle slab or the kept registration that was not used for the longest time. Returns false if there is
    /// none.
    #[cold]
    fn free_oldest(&mut self) -> bool {
        match (self.link.slabs.oldest(), self.link.leases.oldest()) {
            (None, None) => return false,
            (slab, Some(lease)) if slab.is_none_or(|slab| lease < slab) => {
                self.link.leases.remove_oldest().into_iter().for_each(|kept| self.port.deregister(kept));
            }
            _ => {
                if let Some((region, registration)) = self.link.slabs.remove_oldest() {
                    self.port.deregister(registration);
                    drop(self.link.reclaim(region));
                }
            }
        }
        true
    }
}
