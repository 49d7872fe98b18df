//! Registrations of the memory of messages, and a cache of those for blocks of the [`Heap`](crate::Heap).
//!
//! With a network card a registration takes longer than a message of some 10 KiB, and programs often send the same
//! buffer again. So when a message ends, the port suspends the registration of its memory ([`Port::suspend`]), and the
//! next message from the same memory resumes it. Only registrations for access by this side are kept: a peer never has
//! a key to memory that the program has back.
//!
//! The memory must not have been freed in between, because then the registration may be for other pages. The heap
//! counts how often each block was freed, and an entry of the cache is used only if the count is the same. No such
//! count exists for other memory, so its registrations end with their messages. (A library that replaces malloc could
//! count all frees, but it would conflict with programs that replace malloc too.)
//!
//! Slabs and the memory of the entries have at most [`Config::registered_max`](super::Config::registered_max) bytes.
//! The entry or the idle slab that was not used for the longest time is freed first.

use std::collections::{BTreeMap, HashMap};

use super::Out;
use crate::{Access, Local, Memory, PeerId, Port, PortError, Region, Registration, Remote};

/// The right to use a registration of a message's memory. See [`Out::register`].
// The fields are those of a `Registration`, and `access`, which together take no more than a `Registration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    key: u64,
    base: u64,
    id: u32,
    access: Access,
}

impl Lease {
    fn new(Registration { id, key, base }: Registration, access: Access) -> Self {
        Self { key, base, id, access }
    }

    fn registration(&self) -> Registration {
        Registration { id: self.id, key: self.key, base: self.base }
    }

    /// Returns a part of the memory, for operations of this side.
    #[must_use]
    pub fn local(&self, offset: usize, len: usize) -> Local {
        self.registration().local(offset, len)
    }

    /// Returns the place of a byte of the memory, for operations of the peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        self.registration().remote(offset)
    }
}

/// The suspended registrations.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
    /// The keys of the entries, by the time of their last use.
    order: BTreeMap<u64, Key>,
    /// The bytes of the memory of all entries.
    pub(super) bytes: u64,
    /// The number of leases that have not ended.
    pub(super) used: usize,
}

/// The memory and the use of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: usize,
    len: usize,
    access: u8,
}

#[derive(Debug)]
struct Entry {
    registration: Registration,
    /// The number of times that the heap had freed the block when it was registered.
    frees: u64,
    /// The time of the last use, on the link's clock of uses.
    used_at: u64,
}

impl Cache {
    /// Removes an entry. Returns its registration, and true if the block was not freed since it was registered.
    fn remove(&mut self, key: Key, frees: u64) -> Option<(Registration, bool)> {
        let entry = self.entries.remove(&key)?;
        self.order.remove(&entry.used_at);
        self.bytes -= key.len as u64;
        Some((entry.registration, entry.frees == frees))
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        self.bytes += key.len as u64;
        self.order.insert(entry.used_at, key);
        let former = self.entries.insert(key, entry);
        assert!(former.is_none(), "the caller has removed the former entry");
    }

    /// Returns the time of the last use of the entry that was not used for the longest time.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.first_key_value().map(|(used_at, _)| *used_at)
    }

    /// Removes the entry that was not used for the longest time.
    pub(super) fn remove_oldest(&mut self) -> Option<Registration> {
        let (_, &key) = self.order.first_key_value()?;
        self.remove(key, 0).map(|(registration, _)| registration)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<P: Port> Out<'_, P> {
    /// Registers a message's memory for operations with a peer, or resumes a registration of the same memory.
    ///
    /// # Errors
    /// Returns the errors of [`Port::path`] and [`Port::register`].
    #[inline]
    pub fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Lease, PortError> {
        let registration = match self.resume(peer, region, access) {
            Some(registration) => registration,
            None => self.register_anew(peer, region, access)?,
        };
        self.link.leases.used += 1;
        Ok(Lease::new(registration, access))
    }

    /// Ends the use of a message's memory. Returns the memory, unless the port still holds it.
    #[inline]
    pub fn end_lease(&mut self, region: Region, lease: Lease) -> Option<Memory> {
        self.link.leases.used -= 1;
        if self.port.suspend(lease.registration()) {
            self.keep(lease, &region);
        }
        self.link.reclaim(region)
    }

    /// Resumes a registration, if the cache has one for the memory of a region.
    #[inline]
    fn resume(&mut self, peer: PeerId, region: &Region, access: Access) -> Option<Registration> {
        if self.link.leases.entries.is_empty() || access.intersects(Access::REMOTE) {
            return None;
        }
        let path = self.port.path(peer).ok()?;
        let (address, frees) = region.heap_block()?;
        let key = Key { address, len: region.len(), access: access.bits() };
        let (registration, is_same) = self.link.leases.remove(key, frees)?;
        if is_same && self.port.resume(path, registration, region) {
            return Some(registration);
        }
        self.port.deregister(registration);
        None
    }

    /// Keeps a suspended registration, if its memory is a block of the heap and within the budget, or else ends it.
    #[inline(never)]
    fn keep(&mut self, lease: Lease, region: &Region) {
        let (registration, len) = (lease.registration(), region.len());
        let (max, used_bytes) = (self.link.config.registered_max, self.link.slabs.used_bytes);
        let has_room = used_bytes + len as u64 <= max;
        let Some((address, frees)) = region.heap_block().filter(|_| has_room) else {
            return self.port.deregister(registration);
        };
        let key = Key { address, len, access: lease.access.bits() };
        if let Some((former, _)) = self.link.leases.remove(key, frees) {
            // Two messages have sent the same shared memory at the same time, or on different paths.
            self.port.deregister(former);
        }
        self.make_room(len);
        let used_at = self.link.next_use();
        self.link.leases.insert(key, Entry { registration, frees, used_at });
    }
}
