//! The number of times that each block of an arena was freed. A cache of facts about a block's memory keeps this number
//! with each fact, and compares it before it uses the fact.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// One count for each granule; the count of a block is that of its first granule. It is not a `Vec`, whose memory would
/// come from the allocator that contains it. Untouched counts take no memory.
pub(super) struct Frees(NonNull<[AtomicU64]>);

impl Frees {
    /// Returns the counts of `granules` granules, or `None` if there is no memory for them.
    pub(super) fn new(granules: usize) -> Option<Self> {
        let layout = Layout::array::<AtomicU64>(granules).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not 0.
        let counts = NonNull::new(unsafe { System.alloc_zeroed(layout) })?;
        Some(Self(NonNull::slice_from_raw_parts(counts.cast(), granules)))
    }

    /// Notes that the block which begins with this granule is freed. Call it before the block can be allocated again.
    pub(super) fn note(&self, granule: usize) {
        // The lock of the blocks orders this before the next allocation of the block.
        self.counts()[granule].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the block which begins with this granule was freed. The caller owns the block.
    pub(super) fn of(&self, granule: usize) -> u64 {
        self.counts()[granule].load(Ordering::Relaxed)
    }

    fn counts(&self) -> &[AtomicU64] {
        // SAFETY: `new` allocated that many words of zero, which this value owns, and zero is a value of an atomic.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        // SAFETY: `new` allocated them with this layout.
        unsafe { System.dealloc(self.0.as_ptr().cast(), Layout::for_value(self.counts())) }
    }
}

// SAFETY: the type owns its counts.
unsafe impl Send for Frees {}
// SAFETY: a shared reference permits atomic accesses only.
unsafe impl Sync for Frees {}
