//! The registrations of a port that moves bytes itself.

use std::ops::Range;

use crate::{Access, Failure, Local, PortError, Region, Registration, Remote, rng::SplitMix64};

/// Registered regions by slot, with keys that a peer must know and that are never reused.
#[derive(Debug)]
pub(crate) struct Registrations {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    keys: SplitMix64,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    /// `None` while the registration is suspended.
    region: Option<Region>,
    /// The address of the region.
    start: usize,
    /// The registered bytes of the region.
    span: Range<usize>,
    access: Access,
}

impl Entry {
    /// Converts an offset in the registered span to an offset in the region. Returns `None` if fewer than `len` bytes
    /// of the span follow there.
    fn place(&self, offset: usize, len: usize) -> Option<usize> {
        let end = offset.checked_add(len)?;
        (end <= self.span.len()).then_some(self.span.start + offset)
    }
}

impl Registrations {
    pub(crate) fn new(keys: SplitMix64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), keys }
    }

    /// Registers a span of a region, and returns the registration's name.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`] if the span leaves the region, [`PortError::Exhausted`].
    pub(crate) fn insert(
        &mut self,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        region.check_access(&span, access)?;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).map_err(|_| PortError::Exhausted {
                    what: "registrations",
                    hint: "deregister memory that is no longer used".into(),
                })?;
                self.slots.push(None);
                slot
            }
        };
        // The low half of the key is the slot of the entry. The high half is random and never 0; it distinguishes
        // successive uses of the slot.
        let key = (self.keys.next_u64() << 32).max(1 << 32) | u64::from(slot);
        let start = region.span(0, 0)?.addr().get();
        self.slots[slot as usize] = Some(Entry { key, region: Some(region.clone()), start, span, access });
        Ok(Registration { id: slot, key, base: 0 })
    }

    /// Removes a registration and returns its region, unless it has ended already.
    pub(crate) fn remove(&mut self, registration: Registration) -> Option<Region> {
        self.entry(registration.key)?;
        self.free.push(registration.key as u32);
        self.slots[registration.key as u32 as usize].take().and_then(|entry| entry.region)
    }

    /// See [`Port::suspend`](crate::Port::suspend).
    pub(crate) fn suspend(&mut self, registration: Registration) -> bool {
        match self.entry_mut(registration.key) {
            Some(entry) if !entry.access.intersects(Access::REMOTE) => {
                entry.region = None;
                true
            }
            _ => {
                self.remove(registration);
                false
            }
        }
    }

    /// See [`Port::resume`](crate::Port::resume).
    pub(crate) fn resume(&mut self, registration: Registration, region: &Region) -> bool {
        let Some(entry) = self.entry_mut(registration.key) else { return false };
        let is_same = entry.region.is_none()
            && entry.span == (0..region.len())
            && region.span(0, 0).is_ok_and(|first| first.addr().get() == entry.start)
            && region.check_access(&entry.span, entry.access).is_ok();
        if is_same {
            entry.region = Some(region.clone());
        }
        is_same
    }

    /// Returns the registrations that have not ended, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.slots.iter().flatten().filter_map(|entry| Some((entry.key, entry.region.as_ref()?)))
    }

    /// Returns the region and offset of a local span, if the span is registered for this access.
    pub(crate) fn local(&self, span: Local, access: Access) -> Result<(&Region, usize), PortError> {
        let outside = PortError::OutOfBounds { offset: span.offset, len: span.len };
        let entry = self.entry(span.registration.key).ok_or_else(|| outside.clone())?;
        if !entry.access.contains(access) {
            return Err(PortError::Unsupported { what: "use memory in a way it was not registered for" });
        }
        match (&entry.region, entry.place(span.offset, span.len)) {
            (Some(region), Some(offset)) => Ok((region, offset)),
            _ => Err(outside),
        }
    }

    /// Returns the region and offset of a peer's access, if the peer has the right.
    pub(crate) fn remote(
        &self,
        place: Remote,
        len: usize,
        access: Access,
    ) -> Result<(&Region, usize), Failure> {
        let entry = self.entry(place.key).filter(|entry| entry.access.contains(access));
        let offset = usize::try_from(place.address).map_err(|_| Failure::Refused)?;
        let found = entry.and_then(|entry| Some((entry.region.as_ref()?, entry.place(offset, len)?)));
        found.ok_or(Failure::Refused)
    }

    /// Returns the number of registrations that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn entry_mut(&mut self, key: u64) -> Option<&mut Entry> {
        self.slots.get_mut(key as u32 as usize)?.as_mut().filter(|entry| entry.key == key)
    }

    fn entry(&self, key: u64) -> Option<&Entry> {
        self.slots.get(key as u32 as usize)?.as_ref().filter(|entry| entry.key == key)
    }
}
