//! Memory that several processes of a host access by loads and stores.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Mapped;
use super::segment::Found;
use crate::{Access, Change, PortError};

/// Shared memory of a peer, or of this process, accessed by loads and stores: see [`Port::map`](crate::Port::map) and
/// [`Region::window`](crate::Region::window). Clones refer to the same memory.
///
/// Other processes may write the bytes at any time. So they are copied, whole aligned words of 8 bytes at a time, and no
/// reference to them is given out. Peers see stores in program order. A load may
/// overtake an earlier store to another place: where that matters, put
/// [`fence(SeqCst)`](std::sync::atomic::fence) between the two.
#[derive(Clone, Debug)]
pub struct Window {
    segment: Arc<Mapped>,
    /// The grant by which the peer's memory was mapped; `None` for memory of this process.
    grant: Option<Found>,
    span: Range<usize>,
}

impl Window {
    /// Returns a window of `span`, which lies in the segment. `key` permits access to it in a peer's segment.
    pub(crate) fn new(segment: Arc<Mapped>, key: Option<u64>, span: Range<usize>) -> Self {
        let grant = key.map(|key| segment.find(key));
        Self { segment, grant, span }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.span.len()
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// Returns true until the peer ends its registration. After that, loads and stores still work, but the peer may
    /// reuse the memory. A killed peer ends no registration. A window of this process's own memory is always open.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.grant.is_none_or(|grant| self.segment.is_valid(grant))
    }

    /// Copies `into.len()` bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`].
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), PortError> {
        self.segment.read(self.place(offset, into.len())?, into);
        Ok(())
    }

    /// Copies `from` into the window, from `offset` on.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`].
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), PortError> {
        self.segment.write(self.place(offset, from.len())?, from);
        Ok(())
    }

    /// Loads the word of 8 bytes at `offset`. Afterwards, the stores that the word's writer made before it stored the
    /// word are visible.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`], also if the word is not at a multiple of 8 bytes from the start of its region.
    #[inline]
    pub fn load(&self, offset: usize) -> Result<u64, PortError> {
        Ok(self.segment.word(self.word(offset)?).load(Ordering::Acquire))
    }

    /// Stores the word of 8 bytes at `offset`. It becomes visible after all earlier stores.
    ///
    /// # Errors
    /// Returns the errors of [`Window::load`].
    #[inline]
    pub fn store(&self, offset: usize, word: u64) -> Result<(), PortError> {
        self.segment.word(self.word(offset)?).store(word, Ordering::Release);
        Ok(())
    }

    /// Changes the word of 8 bytes at `offset` atomically, and returns its former value. A process that sees the change
    /// sees earlier stores too.
    ///
    /// # Errors
    /// Returns the errors of [`Window::load`].
    #[inline]
    pub fn change(&self, offset: usize, how: Change) -> Result<u64, PortError> {
        Ok(self.segment.change(self.word(offset)?, how))
    }

    /// Returns the place in the segment of `len` bytes from `offset` on.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Result<usize, PortError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.span.len() => Ok(self.span.start + offset),
            _ => Err(PortError::OutOfBounds { offset, len }),
        }
    }

    #[inline]
    fn word(&self, offset: usize) -> Result<usize, PortError> {
        let place = self.place(offset, Change::BYTES)?;
        if place.is_multiple_of(Change::BYTES) {
            Ok(place)
        } else {
            Err(PortError::OutOfBounds { offset, len: Change::BYTES })
        }
    }
}

/// The rights that a peer grants to processes that map its memory.
pub(crate) const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn a_window_is_its_span_and_no_more() {
        let region = Region::shared(64).unwrap();
        let window = region.window(8..29).unwrap();
        assert_eq!((window.len(), window.is_empty(), window.is_open()), (21, false, true));
        window.write(1, &[1, 2, 3]).unwrap();
        window.store(8, 7).unwrap();
        assert_eq!((window.load(8), window.change(8, Change::Add(1)), window.load(8)), (Ok(7), Ok(7), Ok(8)));
        let mut bytes = [0; 12];
        region.copy_out(8, &mut bytes).unwrap();
        assert_eq!(bytes[..8], [0, 1, 2, 3, 0, 0, 0, 0]);
        window.read(9, &mut bytes).unwrap();
        let outside = |offset, len| Err(PortError::OutOfBounds { offset, len });
        for (offset, len) in [(21, 1), (0, 22), (usize::MAX, 2), (22, 0)] {
            assert_eq!(window.write(offset, &vec![0; len]), outside(offset, len));
            assert_eq!(window.read(offset, &mut vec![0; len]), outside(offset, len));
        }
        for offset in [14, 16, 4, usize::MAX - 7, usize::MAX] {
            assert_eq!(window.load(offset), outside(offset, 8).map(|()| 0), "{offset}");
            assert_eq!(window.store(offset, 1), outside(offset, 8));
            assert_eq!(window.change(offset, Change::Or(1)), outside(offset, 8).map(|()| 0));
        }
        // Words are aligned in the region, not in the window.
        let shifted = region.window(4..64).unwrap();
        assert_eq!(
            (shifted.load(0).is_err(), shifted.load(4)),
            (true, Ok(u64::from_ne_bytes([0, 1, 2, 3, 0, 0, 0, 0])))
        );
        assert!(region.window(0..65).is_none() && region.window(65..65).is_none());
        assert!(Region::new(crate::Memory::zeroed(8)).window(0..8).is_none(), "no other process reaches it");
        drop(region);
        assert_eq!(window.load(8), Ok(8), "the memory lives as long as the window");
    }
}
