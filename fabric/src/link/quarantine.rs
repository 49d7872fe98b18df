//! Memory of operations that are over, which a port may still touch.

use crate::{Memory, Region};

/// Regions that ports have not released. There are none if the port can fence off a failed peer. Otherwise an operation
/// with a failed peer stays outstanding, perhaps for ever, and its region is kept here until the operation has ended.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    held: Vec<Region>,
    /// The number of regions that came into the quarantine so far.
    pub(super) count: u64,
}

impl Quarantine {
    /// Returns the memory of a deregistered region, unless a port still holds it.
    pub(super) fn reclaim(&mut self, region: Region) -> Option<Memory> {
        region
            .reclaim()
            .map_err(|held| {
                self.held.push(held);
                self.count += 1;
            })
            .ok()
    }

    /// Frees the regions that ports have released.
    #[inline]
    pub(super) fn release(&mut self) {
        if !self.held.is_empty() {
            self.held.retain(Region::is_held);
        }
    }

    /// Returns the number of bytes in the quarantine.
    pub(super) fn bytes(&self) -> u64 {
        self.held.iter().filter(|region| region.is_held()).map(|region| region.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_until_it_is_not() {
        let mut quarantine = Quarantine::default();
        let [free, held, later] = [10, 20, 30].map(|len| Region::new(Memory::zeroed(len)));
        let (by_port, also) = (held.clone(), later.clone());
        let back = [free, held, later].map(|region| quarantine.reclaim(region).map(|memory| memory.len()));
        assert_eq!(back, [Some(10), None, None]);
        assert_eq!((quarantine.bytes(), quarantine.count), (50, 2));
        drop(also);
        assert_eq!(quarantine.bytes(), 20);
        quarantine.release();
        assert_eq!(quarantine.held.len(), 1);
        drop(by_port);
        quarantine.release();
        assert_eq!(quarantine.held.len(), 0);
    }
}
