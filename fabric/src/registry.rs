//! The registrations of a port that moves bytes itself.

use std::ops::Range;

use crate::{Access, Failure, Local, PortError, Region, Registration, Remote, rng::SplitMix64};

/// Regions by slot, with keys that a peer must know and that are never given twice.
#[derive(Debug)]
pub(crate) struct Registry {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    keys: SplitMix64,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    region: Region,
    /// The bytes of it that are registered.
    span: Range<usize>,
    access: Access,
}

impl Entry {
    /// Where the registered bytes lie in the region from `offset` on, if there are `len` of them.
    fn place(&self, offset: usize, len: usize) -> Option<usize> {
        let end = offset.checked_add(len)?;
        (end <= self.span.len()).then_some(self.span.start + offset)
    }
}

impl Registry {
    pub(crate) fn new(keys: SplitMix64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), keys }
    }

    /// # Errors
    /// [`PortError::OutOfBounds`] if the span leaves the region, [`PortError::Exhausted`].
    pub(crate) fn insert(
        &mut self,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        region.check_span(&span)?;
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
        // The slot finds the entry, the random half tells this life of the slot from the others. It is
        // never 0.
        let key = (self.keys.next_u64() << 32).max(1 << 32) | u64::from(slot);
        self.slots[slot as usize] = Some(Entry { key, region: region.clone(), span, access });
        Ok(Registration { id: slot, key, base: 0 })
    }

    /// Forgets a registration: its region, unless it has ended already.
    pub(crate) fn remove(&mut self, registration: Registration) -> Option<Region> {
        self.entry(registration.key)?;
        self.free.push(registration.key as u32);
        self.slots[registration.key as u32 as usize].take().map(|entry| entry.region)
    }

    /// All that have not ended, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.slots.iter().flatten().map(|entry| (entry.key, &entry.region))
    }

    /// The region and the offset that the owner means, if the span is registered.
    pub(crate) fn local(&self, span: Local, access: Access) -> Result<(&Region, usize), PortError> {
        let outside = PortError::OutOfBounds { offset: span.offset, len: span.len };
        let entry = self.entry(span.registration.key).ok_or_else(|| outside.clone())?;
        if !entry.access.contains(access) {
            return Err(PortError::Unsupported { what: "use memory in a way it was not registered for" });
        }
        Ok((&entry.region, entry.place(span.offset, span.len).ok_or(outside)?))
    }

    /// The region and the offset that a peer means, if it may.
    pub(crate) fn remote(
        &self,
        place: Remote,
        len: usize,
        access: Access,
    ) -> Result<(&Region, usize), Failure> {
        let entry = self.entry(place.key).filter(|entry| entry.access.contains(access));
        let offset = usize::try_from(place.address).map_err(|_| Failure::Refused)?;
        let found = entry.and_then(|entry| Some((&entry.region, entry.place(offset, len)?)));
        found.ok_or(Failure::Refused)
    }

    /// Registrations that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn entry(&self, key: u64) -> Option<&Entry> {
        self.slots.get(key as u32 as usize)?.as_ref().filter(|entry| entry.key == key)
    }
}
