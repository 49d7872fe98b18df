//! Memory that the provider may access.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use samite_fabric_sys as sys;

use super::endpoint::Domain;
use super::object::{Object, check, error};
use crate::rng::SplitMix64;
use crate::{Access, Local, MemoryKind, PeerId, PortError, Region, Registration};

/// The provider's rules for registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// True if local buffers need a descriptor too.
    pub local: bool,
    /// True if a peer specifies a place in this side's memory by its virtual address, and not by its offset.
    pub virtual_addresses: bool,
    /// True if the provider chooses the keys.
    pub provider_keys: bool,
    /// True if a registration must be bound to the endpoint, and enabled, before it is used.
    pub bound: bool,
    /// The bits that a key may use.
    pub key_mask: u64,
}

impl Mode {
    /// Derives the rules of registration from a domain's `mr_mode` and `mr_key_size`.
    pub(super) fn new(mr_mode: i32, key_bytes: usize) -> Self {
        let has = |bit| mr_mode & bit != 0;
        Self {
            local: has(sys::FI_MR_LOCAL),
            virtual_addresses: has(sys::FI_MR_VIRT_ADDR),
            provider_keys: has(sys::FI_MR_PROV_KEY),
            bound: has(sys::FI_MR_ENDPOINT),
            key_mask: u64::MAX.checked_shr(64 - 8 * key_bytes.min(8) as u32).unwrap_or(0),
        }
    }
}

/// The registrations that have not been ended, and those that have been ended but are still used by an operation.
#[derive(Debug)]
pub(super) struct Registrations {
    mode: Mode,
    keys: SplitMix64,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Memory to which a disconnected peer might still have access, because the fence could not close the peer's
    /// connection. The memory is freed when the port is dropped.
    kept: Vec<Registered>,
}

#[derive(Debug)]
struct Entry {
    registered: Registered,
    key: u64,
    /// Operations in flight.
    uses: u32,
    /// True if the user of the port has ended the registration.
    ended: bool,
    /// The only peer that has the key, or `None` if any peer may have it.
    peer: Option<PeerId>,
    /// True if a peer that was disconnected might still access this memory.
    tainted: bool,
}

/// A region and its registration, in the order of closing.
#[derive(Debug)]
pub(super) struct Registered {
    mr: Option<Object<sys::fid_mr>>,
    /// `None` while the registration is suspended.
    region: Option<Region>,
    /// The address of the registered bytes.
    start: usize,
    /// The registered bytes of the region.
    span: Range<usize>,
    access: Access,
}

/// A span of local memory, in the form in which operations pass it to the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    pub(super) descriptor: *mut c_void,
}

/// The maximum number of times that a random key is drawn, if the drawn keys are in use already. Keys of 64 bits never
/// collide in practice, but the short keys of some providers may.
const DRAWS_MAX: usize = 64;

impl Registrations {
    pub(super) fn new(mode: Mode, keys: SplitMix64) -> Self {
        Self { mode, keys, slots: Vec::new(), free: Vec::new(), kept: Vec::new() }
    }

    /// Registers a span for operations with `peer`, or with any peer if it is `None`.
    pub(super) fn register(
        &mut self,
        (domain, ep): (&Domain, &Object<sys::fid_ep>),
        region: &Region,
        span: Range<usize>,
        access: Access,
        peer: Option<PeerId>,
    ) -> Result<Registration, PortError> {
        let start = span.start;
        let (registered, key) = self.bind(domain, ep, region, span, access)?;
        let base = match self.mode.virtual_addresses {
            true => region.span(start, 0)?.as_ptr() as u64,
            false => 0,
        };
        let entry = Entry { registered, key, uses: 0, ended: false, peer, tainted: false };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(entry);
                id
            }
            None => {
                let id = u32::try_from(self.slots.len()).map_err(|_| PortError::Exhausted {
                    what: "registrations",
                    hint: "deregister memory that is no longer used".into(),
                })?;
                self.slots.push(Some(entry));
                id
            }
        };
        Ok(Registration { id, key, base })
    }

    /// Registers memory that belongs to the port, for local use.
    pub(super) fn bind_local(
        &mut self,
        domain: &Domain,
        ep: &Object<sys::fid_ep>,
        region: &Region,
    ) -> Result<Registered, PortError> {
        Ok(self.bind(domain, ep, region, 0..region.len(), Access::LOCAL_READ | Access::LOCAL_WRITE)?.0)
    }

    fn bind(
        &mut self,
        domain: &Domain,
        ep: &Object<sys::fid_ep>,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<(Registered, u64), PortError> {
        region.check_access(&span, access)?;
        let address = region.span(span.start, 0)?.addr().get();
        let registered =
            |mr| Registered { mr, region: Some(region.clone()), start: address, span: span.clone(), access };
        if region.kind() != MemoryKind::Host {
            return Err(PortError::Unsupported { what: "reach memory that is not the host's" });
        }
        let remote = access.intersects(Access::REMOTE);
        if span.is_empty() || !(remote || self.mode.local) {
            // The provider does not need a registration of this memory, because only this side uses it. The key is only
            // for the port: it distinguishes successive registrations in the same slot.
            return Ok((registered(None), self.keys.next_u64()));
        }
        let start = region.span(span.start, span.len())?;
        for _ in 0..DRAWS_MAX {
            let requested =
                if self.mode.provider_keys { 0 } else { self.keys.next_u64() & self.mode.key_mask };
            // SAFETY: the domain is live. The memory belongs to the region, and the clone of the region in `Registered`
            // keeps the memory until the registration is closed or suspended. The provider accesses the memory of a
            // suspended registration for no operation: it is for no peer's access, no operation uses it, and none can
            // be posted. By the order of the port's fields, the registration does not outlive the domain.
            let opened = unsafe {
                Object::open("fi_mr_reg", |mr| {
                    let (start, len) = (start.as_ptr().cast(), span.len());
                    sys::fi_mr_reg(
                        domain.as_ptr(),
                        start,
                        len,
                        flags(access),
                        0,
                        requested,
                        0,
                        mr,
                        null_mut(),
                    )
                })
            };
            let mr = match opened {
                Err(PortError::Provider { code: sys::FI_ENOKEY | sys::FI_EKEYREJECTED, .. })
                    if !self.mode.provider_keys =>
                {
                    continue;
                }
                opened => opened?,
            };
            if self.mode.bound {
                // SAFETY: registration and endpoint are live.
                unsafe {
                    check("fi_mr_bind", sys::fi_mr_bind(mr.as_ptr(), ep.fid(), 0))?;
                    check("fi_mr_enable", sys::fi_mr_enable(mr.as_ptr()))?;
                }
            }
            // SAFETY: the registration is live.
            let key = unsafe { sys::fi_mr_key(mr.as_ptr()) };
            return Ok((registered(Some(mr)), key));
        }
        Err(error("fi_mr_reg", sys::FI_ENOKEY))
    }

    /// Returns the checked span for an operation that needs `access`.
    pub(super) fn span(&self, local: Local, access: Access) -> Result<Span, PortError> {
        let outside = PortError::OutOfBounds { offset: local.offset, len: local.len };
        let entry = self.slots.get(local.registration.id as usize).and_then(Option::as_ref);
        let entry =
            entry.filter(|entry| entry.key == local.registration.key && !entry.ended).ok_or(outside)?;
        if !entry.registered.access.contains(access) {
            return Err(PortError::Unsupported { what: "use memory in a way it was not registered for" });
        }
        entry.registered.span(local.offset, local.len)
    }

    /// Notes that one more operation uses registration `id`. The operation accesses a span that [`span`](Self::span)
    /// has returned.
    pub(super) fn hold(&mut self, id: u32) {
        if let Some(Some(entry)) = self.slots.get_mut(id as usize) {
            entry.uses += 1;
        }
    }

    /// Notes that one operation has ended its use of registration `id`.
    pub(super) fn release(&mut self, id: u32) {
        if let Some(Some(entry)) = self.slots.get_mut(id as usize) {
            entry.uses -= 1;
            if entry.ended && entry.uses == 0 {
                self.remove(id);
            }
        }
    }

    pub(super) fn end(&mut self, registration: Registration) {
        let Some(Some(entry)) = self.slots.get_mut(registration.id as usize) else { return };
        if entry.key != registration.key || entry.ended {
            return;
        }
        entry.ended = true;
        if entry.uses == 0 {
            self.remove(registration.id);
        } else if !self.mode.local {
            // The provider's registration is ended at once, so that peers are refused from now on. The local operations
            // that still use the memory do not need the registration in this mode.
            entry.registered.close();
        }
    }

    /// See [`Port::suspend`](crate::Port::suspend).
    pub(super) fn suspend(&mut self, registration: Registration) -> bool {
        if let Some(Some(entry)) = self.slots.get_mut(registration.id as usize)
            && entry.key == registration.key
            && !(entry.ended || entry.tainted || entry.uses > 0)
            && entry.registered.mr.is_some()
            && !entry.registered.access.intersects(Access::REMOTE)
        {
            entry.registered.region = None;
            return true;
        }
        self.end(registration);
        false
    }

    /// See [`Port::resume`](crate::Port::resume).
    pub(super) fn resume(&mut self, registration: Registration, region: &Region) -> bool {
        let entry = self.slots.get_mut(registration.id as usize).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.key == registration.key && !entry.ended) else {
            return false;
        };
        let Registered { region: place, start, span, access, .. } = &mut entry.registered;
        let is_same = place.is_none()
            && *span == (0..region.len())
            && region.span(0, 0).is_ok_and(|first| first.addr().get() == *start)
            && region.check_access(span, *access).is_ok();
        if is_same {
            *place = Some(region.clone());
        }
        is_same
    }

    /// Notes that a disconnected peer may still access the memory for which it may have a key.
    pub(super) fn taint(&mut self, peer: PeerId) {
        for entry in self.slots.iter_mut().flatten() {
            let has_key = entry.peer.is_none_or(|holder| holder == peer);
            entry.tainted |= has_key && entry.registered.access.intersects(Access::REMOTE);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(mut entry) = self.slots[id as usize].take() else { return };
        self.free.push(id);
        if !entry.registered.close() || entry.tainted {
            self.kept.push(entry.registered);
        }
    }

    /// Leaks all registrations and their memory. The port calls this if the endpoint could not be closed, because the
    /// provider may then still access the memory.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
        std::mem::forget(std::mem::take(&mut self.kept));
    }
}

impl Registered {
    pub(super) fn span(&self, offset: usize, len: usize) -> Result<Span, PortError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.span.len());
        let Some(region) = self.region.as_ref().filter(|_| inside) else {
            return Err(PortError::OutOfBounds { offset, len });
        };
        let start = region.span(self.span.start + offset, len)?;
        // SAFETY: the registration is live.
        let descriptor = self.mr.as_ref().map_or(null_mut(), |mr| unsafe { sys::fi_mr_desc(mr.as_ptr()) });
        Ok(Span { start, len, descriptor })
    }

    /// Leaks the memory. The owner calls this if the endpoint could not be closed, because the provider may then still
    /// access the memory.
    pub(super) fn leak(&self) {
        std::mem::forget(self.region.clone());
    }

    /// Ends the provider's registration. Returns false if the provider refuses.
    fn close(&mut self) -> bool {
        match self.mr.take().map(Object::close) {
            Some(Err(mr)) => {
                self.mr = Some(mr);
                false
            }
            _ => true,
        }
    }
}

fn flags(access: Access) -> u64 {
    [
        (Access::LOCAL_READ, sys::FI_SEND | sys::FI_WRITE),
        (Access::LOCAL_WRITE, sys::FI_RECV | sys::FI_READ),
        (Access::REMOTE_READ, sys::FI_REMOTE_READ),
        (Access::REMOTE_WRITE, sys::FI_REMOTE_WRITE),
    ]
    .into_iter()
    .filter(|&(ours, _)| access.contains(ours))
    .fold(0, |flags, (_, theirs)| flags | theirs)
}
