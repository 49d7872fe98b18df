//! The memory that a process has attached to a dynamic window (MPI 4.1, section 12.2.4).
//!
//! A dynamic window is one space of 2^64 bytes, in which each region has a place that no other region of the window ever
//! gets. The place tells the region to which it belongs, also if the region was detached: the 6 highest bits are the
//! *class* of the region, that is the logarithm of its length, rounded up. So a class has room for 2^58 bytes, and only
//! that much memory uses up its places. Short regions have the class of the longest element: each place is aligned.

use std::collections::BTreeMap;

use crate::window::Part;

/// Memory that a member has attached to a dynamic window: a name, which another process gets in a message. The default
/// is the name of no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attached {
    /// The place of the first byte in the window.
    pub place: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Attached {
    /// Returns true if memory of this length can have this name.
    pub(crate) fn is_possible(self) -> bool {
        let is_start = region_of(self.place) == self.place && self.place << (u64::BITS - CLASS_AT) != 0;
        is_start && self.len <= 1 << class_of(self.place)
    }
}

/// The number of bytes of a dynamic window, as its members announce it.
pub(crate) const SPACE: u64 = u64::MAX;

/// The number of bits of a place below the class.
const CLASS_AT: u32 = 58;

/// The class of the shortest regions: elements of an accumulate have at most 16 bytes.
const CLASS_MIN: u32 = 4;

/// The number of classes. The length of a region of a higher class is more than the memory of a machine.
const CLASSES: usize = CLASS_AT as usize;

fn class_of(place: u64) -> u32 {
    (place >> CLASS_AT) as u32
}

/// Returns the place of the region to which a place belongs.
pub(crate) fn region_of(place: u64) -> u64 {
    place >> class_of(place) << class_of(place)
}

/// The regions of a process in a dynamic window.
#[derive(Debug)]
pub(crate) struct Regions {
    /// The attached memory, by its place.
    parts: BTreeMap<u64, Part>,
    /// The number of regions of each class so far.
    counts: [u64; CLASSES],
}

impl Regions {
    pub(crate) fn new() -> Self {
        Self { parts: BTreeMap::new(), counts: [0; CLASSES] }
    }

    /// Returns the number of regions that are attached.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Attaches memory. Returns the memory if its class has no places left.
    pub(crate) fn attach(&mut self, part: Part) -> Result<Attached, Part> {
        let len = part.len as u64;
        let class =
            len.checked_next_power_of_two().map_or(u64::BITS, |len| len.trailing_zeros()).max(CLASS_MIN);
        let Some(count) = self.counts.get_mut(class as usize) else { return Err(part) };
        // No region begins at the start of its class. So 0, of a program that knows of no region, is none.
        let offset = (*count + 1) << class;
        if offset >> CLASS_AT > 0 {
            return Err(part);
        }
        *count += 1;
        let place = u64::from(class) << CLASS_AT | offset;
        self.parts.insert(place, part);
        Ok(Attached { place, len })
    }

    /// Returns the memory of a name.
    pub(crate) fn get(&self, region: Attached) -> Option<&Part> {
        self.parts.get(&region.place).filter(|part| part.len as u64 == region.len)
    }

    /// Takes memory out of the window.
    pub(crate) fn detach(&mut self, region: Attached) -> Option<Part> {
        self.get(region)?;
        self.parts.remove(&region.place)
    }

    /// Returns the memory that contains `len` bytes from `at` on, and their offset in it.
    pub(crate) fn find(&self, at: u64, len: usize) -> Option<(&Part, usize)> {
        let place = region_of(at);
        let part = self.parts.get(&place)?;
        let offset = at - place;
        part.contains(offset, len).then_some((part, offset as usize))
    }
}

#[cfg(test)]
mod tests {
    use samite_fabric::{Memory, Region};

    use super::*;

    fn part(len: usize) -> Part {
        Part::whole(Region::new(Memory::zeroed(len)), 1)
    }

    #[test]
    fn each_place_belongs_to_one_region() {
        let mut regions = Regions::new();
        let lens = [0, 1, 2, 3, 4, 5, 100, 128, 129, 100, 0, 1];
        let attached: Vec<_> = lens.iter().map(|len| regions.attach(part(*len)).unwrap()).collect();
        for (region, len) in attached.iter().zip(lens) {
            assert!(region.is_possible() && region.len == len as u64 && region.place > 0);
            assert!(region.place.is_multiple_of(16));
            for offset in 0..len {
                let at = region.place + offset as u64;
                let found = regions.find(at, len - offset).map(|(part, offset)| (part.len, offset));
                assert_eq!(found, Some((len, offset)));
                assert!(regions.find(at, len - offset + 1).is_none());
                assert_eq!(region_of(at), region.place);
            }
        }
        let mut spans: Vec<_> =
            attached.iter().map(|region| (region.place, region.place + region.len.max(1))).collect();
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:x?}");
        assert!(regions.find(0, 0).is_none() && regions.find(u64::MAX, 1).is_none());
    }

    #[test]
    fn a_place_is_not_used_again() {
        let mut regions = Regions::new();
        let first = regions.attach(part(10)).unwrap();
        let forged = Attached { len: 9, ..first };
        assert!(regions.get(forged).is_none() && regions.detach(forged).is_none());
        assert_eq!(regions.detach(first).map(|part| part.len), Some(10));
        assert!(regions.detach(first).is_none() && regions.find(first.place, 1).is_none());
        let second = regions.attach(part(10)).unwrap();
        assert_ne!(first, second);
        assert_eq!((region_of(first.place + 9), regions.len()), (first.place, 1));
    }

    #[test]
    fn a_class_without_places_refuses_memory() {
        let mut regions = Regions::new();
        regions.counts[5] = (1 << (CLASS_AT - 5)) - 2;
        let last = regions.attach(part(32)).unwrap();
        assert_eq!((class_of(last.place), region_of(last.place + 31)), (5, last.place));
        assert_eq!(regions.attach(part(32)).map_err(|part| part.len), Err(32));
        assert!(regions.attach(part(33)).is_ok(), "other classes have places");
    }

    #[test]
    fn forged_names_are_no_memory() {
        let mut regions = Regions::new();
        let region = regions.attach(part(5)).unwrap();
        assert!(!Attached { len: 17, ..region }.is_possible());
        assert!(!Attached { place: region.place + 1, ..region }.is_possible());
        for place in [u64::MAX, 63 << CLASS_AT, 1 << 63] {
            let _ = Attached { place, len: u64::MAX }.is_possible();
            assert!(regions.find(place, 1).is_none());
        }
    }
}
