//! The free blocks of an arena. This module only computes with numbers of granules, and never accesses the memory of
//! the arena.
//!
//! An arena consists of *granules*. The number of granules in a block is a power of two, which is the block's
//! [`Class`]. Blocks are never joined or split. Joining and splitting would only save address space, of which there is
//! enough, since untouched pages take no memory.
//!
//! There is no cache colouring: all blocks begin at the start of a page. All caches but the first-level cache are
//! indexed by physical addresses, and the first-level cache has enough ways for the arrays of a loop. When the arrays
//! began at different places of a page, sums over 2 to 8 arrays of 64 KiB took the same time. Sums over 16 arrays, more
//! than the cache's 12 ways, then took half as long. On the other hand, a copy by string instructions from block to
//! block finds both ends aligned. A copy to an address 16 bytes behind the start of a cache line, where malloc puts its
//! mapped blocks, took 1.4 times as long (an EPYC of 2024).

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use samite_os::shared::PAGE;

/// The free blocks of an arena, and the part of the arena that has never been in a block.
pub(super) struct Blocks {
    /// At the index of a free block's first granule: the first granule of the next block in the same list, or 0 at the
    /// end of the list.
    next: Links,
    /// The granules from here to `len` have never been in a block.
    top: usize,
    /// Number of usable granules.
    len: usize,
    lists: [Lists; CLASSES],
}

/// The free blocks of a class.
#[derive(Clone, Copy, Default)]
struct Lists {
    /// The first block of the list of blocks with pages, which have old contents. 0 if the list is empty.
    warm: u32,
    /// The number of blocks with pages.
    warm_count: usize,
    /// The first block of the list of blocks without pages, which read as zero. 0 if the list is empty.
    empty: u32,
}

impl Blocks {
    /// Returns the blocks of an arena of at most `most` granules. No granule is usable before [`extend`](Self::extend).
    /// The first `reserved` granules, at least one, are never in a block. Returns `None` if there is no memory for the
    /// lists.
    pub(super) fn new(most: usize, reserved: usize) -> Option<Self> {
        assert!(reserved > 0 && u32::try_from(most).is_ok());
        Some(Self {
            next: Links::new(most)?,
            top: reserved,
            len: reserved,
            lists: [Lists::default(); CLASSES],
        })
    }

    /// Returns the number of usable granules.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first granule from which on no granule has ever been in a block.
    #[cfg(test)]
    fn top(&self) -> usize {
        self.top
    }

    /// Returns the number of granules that must be usable for a new block of this class.
    pub(super) fn needed_for(&self, class: Class) -> usize {
        self.start_of_new(class) + class.granules()
    }

    /// Makes more granules usable.
    pub(super) fn extend(&mut self, len: usize) {
        self.len = len.clamp(self.len, self.next.len());
    }

    /// Allocates a block. Returns its first granule, and true if all its bytes are zero. Returns `None` if there is no
    /// room.
    pub(super) fn take(&mut self, class: Class) -> Option<(usize, bool)> {
        let lists = &mut self.lists[class.index()];
        // Blocks with pages are taken first, because overwriting them costs less than getting new pages.
        if lists.warm != 0 {
            let granule = lists.warm as usize;
            lists.warm = self.next[granule];
            lists.warm_count -= 1;
            return Some((granule, false));
        }
        if lists.empty != 0 {
            let granule = lists.empty as usize;
            lists.empty = self.next[granule];
            return Some((granule, true));
        }
        let (start, end) = (self.start_of_new(class), self.needed_for(class));
        (end <= self.len).then(|| {
            self.top = end;
            (start, true)
        })
    }

    /// Returns true if a freed block of this class should keep its pages.
    pub(super) fn is_kept(&self, class: Class) -> bool {
        (self.lists[class.index()].warm_count + 1) * class.bytes() <= KEPT
    }

    /// Frees a block. `is_zero` is true if the block has no pages any more.
    pub(super) fn give(&mut self, class: Class, granule: usize, is_zero: bool) {
        let lists = &mut self.lists[class.index()];
        let list = if is_zero {
            &mut lists.empty
        } else {
            lists.warm_count += 1;
            &mut lists.warm
        };
        self.next[granule] = std::mem::replace(list, granule as u32);
    }

    fn start_of_new(&self, class: Class) -> usize {
        // A block of at least a page begins at a page boundary on every machine.
        self.top.next_multiple_of(class.granules().min(PAGE / GRANULE))
    }
}

/// The size of a block, as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// Returns the class of blocks for this layout, or `None` if an arena does not serve the layout. A block can be
    /// resized in place to any layout of the same class.
    pub(super) fn of(layout: Layout) -> Option<Self> {
        if layout.size() < GRANULE || layout.align() > ALIGN {
            return None;
        }
        let class = layout.size().div_ceil(GRANULE).next_power_of_two().trailing_zeros() as usize;
        (class < CLASSES).then_some(Self(class as u8))
    }

    /// Returns the bytes of a block.
    pub(super) fn bytes(self) -> usize {
        GRANULE << self.0
    }

    fn granules(self) -> usize {
        1 << self.0
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An array of one word for each granule. It is not a `Vec`, whose memory would come from the allocator that contains
/// it. Untouched words take no memory.
struct Links(NonNull<[u32]>);

impl Links {
    fn new(count: usize) -> Option<Self> {
        let layout = Layout::array::<u32>(count).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not 0.
        let words = NonNull::new(unsafe { System.alloc_zeroed(layout) })?;
        Some(Self(NonNull::slice_from_raw_parts(words.cast(), count)))
    }
}

impl Deref for Links {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: `new` allocated that many words of zero, which this value owns.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Links {
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above; they are exclusively borrowed with this value.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // SAFETY: `new` allocated them with this layout.
        unsafe { System.dealloc(self.0.as_ptr().cast(), Layout::for_value::<[u32]>(self)) }
    }
}

// SAFETY: the type owns its words.
unsafe impl Send for Links {}

/// The size in bytes of the smallest block, and of the smallest allocation that an arena serves. Smaller sizes gain
/// nothing: short messages are faster through the ring than by direct reads, and malloc is faster for small blocks.
pub(super) const GRANULE: usize = 16 << 10;

/// Alignment of blocks: a divisor of every machine's page size.
pub(super) const ALIGN: usize = 4096;

/// The number of bytes of pages that the free blocks of each class keep. It is the maximum of malloc's threshold for
/// mapped blocks (DEFAULT_MMAP_THRESHOLD_MAX in mallopt(3)). Each class has its own limit, so that many free blocks of
/// one class do not make a block of another class lose its pages at each message.
const KEPT: usize = 32 << 20;

/// The number of size classes: one for each power of two up to the largest arena.
const CLASSES: usize = (super::arena::BYTES_MAX / GRANULE).ilog2() as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RESERVED: usize = 3;

    #[test]
    fn a_class_holds_its_layouts_in_place() {
        let class = |size, align| Class::of(Layout::from_size_align(size, align).unwrap());
        assert_eq!(class(GRANULE - 1, 1), None);
        assert_eq!(class(GRANULE, 2 * ALIGN), None);
        assert_eq!(class(super::super::arena::BYTES_MAX + 1, 1), None);
        for shift in 0..CLASSES {
            let bytes = GRANULE << shift;
            assert_eq!(class(bytes, ALIGN), Some(Class(shift as u8)));
            assert_eq!(class(bytes, 1).unwrap().bytes(), bytes);
            assert_eq!(class(bytes + 1, 1), (shift + 1 < CLASSES).then_some(Class(shift as u8 + 1)));
        }
    }

    #[test]
    fn a_full_arena_has_no_room_until_it_is_extended_or_given_back() {
        let mut blocks = Blocks::new(64, RESERVED).unwrap();
        assert_eq!(blocks.take(Class(0)), None);
        assert_eq!(blocks.needed_for(Class(0)), RESERVED + 1);
        blocks.extend(16);
        assert_eq!(blocks.take(Class(3)), Some((4, true)));
        assert_eq!((blocks.take(Class(3)), blocks.needed_for(Class(3))), (None, 20));
        blocks.give(Class(3), 4, true);
        assert_eq!(blocks.take(Class(3)), Some((4, true)));
        blocks.give(Class(3), 4, false);
        assert_eq!(blocks.take(Class(3)), Some((4, false)));
        blocks.extend(1000);
        assert_eq!((blocks.len(), blocks.take(Class(5))), (64, Some((12, true))));
        assert_eq!((blocks.take(Class(5)), blocks.top()), (None, 44));
    }

    #[test]
    fn each_class_keeps_some_pages() {
        let mut blocks = Blocks::new(1 << 20, RESERVED).unwrap();
        blocks.extend(1 << 20);
        let class = Class(8);
        let count = KEPT / class.bytes();
        let taken: Vec<_> = (0..=count).map(|_| blocks.take(class).unwrap().0).collect();
        let kept = taken.iter().map(|&granule| {
            let is_kept = blocks.is_kept(class);
            blocks.give(class, granule, !is_kept);
            is_kept
        });
        assert_eq!(kept.filter(|kept| *kept).count(), count);
        assert!(blocks.is_kept(Class(7)) && !blocks.is_kept(Class(20)));
        // Blocks are reused last in, first out, and blocks with pages before blocks without pages.
        assert_eq!(blocks.take(class), Some((taken[count - 1], false)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// Compares the results with a list of the owners of all granules.
        #[test]
        fn no_granule_is_given_twice(
            steps in prop::collection::vec((0u8..5, any::<Option<prop::sample::Index>>(), any::<bool>()), 0..200)
        ) {
            let mut blocks = Blocks::new(400, RESERVED).unwrap();
            blocks.extend(400);
            let mut owned: Vec<(Class, usize)> = Vec::new();
            let mut zero = vec![true; 400];
            for (class, give, is_zero) in steps {
                let class = Class(class);
                match give.filter(|_| !owned.is_empty()) {
                    Some(index) => {
                        let (class, granule) = owned.swap_remove(index.index(owned.len()));
                        zero[granule..granule + class.granules()].fill(is_zero);
                        blocks.give(class, granule, is_zero);
                    }
                    None => {
                        let Some((granule, is_zero)) = blocks.take(class) else { continue };
                        let range = granule..granule + class.granules();
                        prop_assert!(range.start >= RESERVED && range.end <= blocks.top());
                        prop_assert!(range.start.is_multiple_of(class.granules().min(4)));
                        prop_assert_eq!(zero[range.clone()].iter().all(|&zero| zero), is_zero);
                        for &(class, other) in &owned {
                            prop_assert!(other >= range.end || other + class.granules() <= range.start);
                        }
                        owned.push((class, granule));
                    }
                }
            }
        }
    }
}
