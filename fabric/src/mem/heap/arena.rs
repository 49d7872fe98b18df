//! The memory of the heap: a file in memory, mapped once for good, of which blocks are given out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::iter;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};

use super::blocks::{Blocks, Class, GRANULE};
use super::keys::{self, Keys};
use crate::PortError;
use samite_os::fork::ForkMark;
use samite_os::shared::{Mapping, PAGE, SharedFile, View};

/// An allocator of large blocks in one file, and of others by [`System`].
pub(super) struct Arena {
    pub(super) file: SharedFile,
    pub(super) mapping: Arc<Mapping>,
    /// Its first part.
    pub(super) table: View<AtomicU64>,
    keys: Keys,
    blocks: Mutex<Blocks>,
    /// Bytes of a page of the system, which takes back whole ones.
    page: usize,
    /// Whose it is: in a child of fork(2) it gives out, takes back and exposes nothing.
    owner: ForkMark,
}

impl Arena {
    /// The arena of a process: several times the machine's memory of address space, for each class of blocks to have
    /// had most of it once, but at most [`BYTES_MAX`]; and a quarter of what the process may have, for others to have
    /// room. None where the system has none to give.
    pub(super) fn of_process() -> Option<Self> {
        // What the system promises does not hold for holes in a file.
        if samite_os::memory::is_promised().ok()? {
            return None;
        }
        let page = samite_os::memory::page().ok()?;
        let allowed = getrlimit(Resource::As).current.map_or(usize::MAX, |limit| limit as usize);
        let bytes = samite_os::memory::bytes().ok()?.saturating_mul(8).min(BYTES_MAX).min(allowed / 4);
        // Where that is refused, by a limit of files or by a tool that the program runs under, less may do.
        let sizes = iter::successors(Some(bytes), |bytes| Some(bytes / 2));
        sizes.take_while(|&bytes| bytes >= BYTES_MIN).find_map(|bytes| Self::create(bytes, page).ok())
    }

    /// Of so many bytes, to the next multiple of [`PAGE`], the table included, where the system's pages are of `page` bytes.
    pub(super) fn create(bytes: usize, page: usize) -> Result<Self, PortError> {
        let bytes = bytes.clamp(2 * keys::BYTES, BYTES_MAX).next_multiple_of(PAGE);
        let file = SharedFile::create(c"samite-heap", bytes)?;
        // A part that is not in use stays shut, so that nothing that touches all memory fills it: mlockall(2), say.
        let mapping = file.map_shut(0..bytes)?;
        mapping.leave_out_of_dumps();
        mapping.prefer_huge_pages();
        mapping.open(0..keys::BYTES)?;
        file.make_read_only()?;
        let table = mapping.view::<AtomicU64>(0, keys::BYTES / size_of::<AtomicU64>());
        let blocks = Blocks::new(bytes / GRANULE, keys::BYTES / GRANULE).ok_or_else(|| {
            PortError::Exhausted { what: "memory", hint: "for the bookkeeping of the heap".into() }
        })?;
        table[keys::AT_LEN].store(keys::BYTES as u64, Ordering::Relaxed);
        table[keys::AT_VERSION].store(keys::VERSION, Ordering::Relaxed);
        Ok(Self {
            file,
            mapping,
            table,
            keys: Keys::new(samite_os::random()?),
            blocks: Mutex::new(blocks),
            page,
            owner: ForkMark::new().map_err(|error| PortError::Provider {
                call: "madvise",
                code: error.raw_os_error().unwrap_or(0),
                text: error.to_string(),
                hint: "pages that children of a fork do not share".into(),
            })?,
        })
    }

    /// Makes this process look like a child.
    #[cfg(test)]
    pub(super) fn retire(&self) {
        self.owner.wipe();
    }

    /// See [`super::expose`].
    pub(super) fn expose(&'static self, bytes: &[u8]) -> Option<Exposed> {
        let offset = self.offset_of(bytes.as_ptr())?;
        let end = offset.checked_add(bytes.len())?;
        if bytes.is_empty() || end > self.mapping.size() || self.is_retired() {
            return None;
        }
        let key = self.keys.begin(&self.table)?;
        Some(Exposed { fd: self.file.fd(), offset, key, arena: self })
    }

    fn is_retired(&self) -> bool {
        self.owner.is_in_child()
    }

    /// A block for this layout, and whether it is zero.
    fn take(&self, layout: Layout) -> Option<(NonNull<u8>, bool)> {
        let class = Class::of(layout)?;
        // A child's lock may be held by a thread that it does not have.
        if self.is_retired() {
            return None;
        }
        let mut blocks = self.lock();
        let (granule, is_zero) = match blocks.take(class) {
            Some(block) => block,
            None => {
                self.extend(&mut blocks, class)?;
                blocks.take(class)?
            }
        };
        // SAFETY: the block lies in the mapping.
        Some((unsafe { self.mapping.origin().add(granule * GRANULE) }, is_zero))
    }

    /// Opens as much more as a block of this class takes, and at least as much as there was.
    #[cold]
    fn extend(&self, blocks: &mut Blocks, class: Class) -> Option<()> {
        let needed = blocks.needed_for(class).checked_mul(GRANULE)?;
        if needed > self.mapping.size() {
            return None;
        }
        let len = needed.next_power_of_two().max(FIRST).min(self.mapping.size());
        self.mapping.open(blocks.len() * GRANULE..len).ok()?;
        blocks.extend(len / GRANULE);
        self.table[keys::AT_LEN].store(len as u64, Ordering::Relaxed);
        Some(())
    }

    /// Takes back the block that begins at `offset`.
    ///
    /// # Safety
    /// It was given out for a layout of this class, and is not used any more.
    unsafe fn give(&self, class: Class, offset: usize) {
        if self.is_retired() {
            return;
        }
        let granule = offset / GRANULE;
        let mut blocks = self.lock();
        if blocks.is_kept(class) {
            blocks.give(class, granule, false);
            return;
        }
        drop(blocks);
        // It takes the kernel long for a large block; nobody waits for that.
        // SAFETY: nobody uses the block, by the caller's promise, and it is in no list yet.
        let is_zero = unsafe { self.mapping.empty(offset..offset + class.bytes(), self.page) };
        self.lock().give(class, granule, is_zero);
    }

    /// Where an address lies in the file, if it does.
    pub(super) fn offset_of(&self, address: *const u8) -> Option<usize> {
        let offset = address.addr().checked_sub(self.mapping.origin().addr().get())?;
        (offset < self.mapping.size()).then_some(offset)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a block is of its class's size, at least the layout's, and aligned as the start of a page is at least; it
// belongs to one caller at a time, as `Blocks` gives none twice, and the mapping is as old as the arena. Whose a block
// is, is decided by its address, which is `System`'s or in the mapping. Nothing unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some((block, _)) => block.as_ptr(),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some((block, is_zero)) = self.take(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        };
        if !is_zero {
            // SAFETY: the block is that long, and nobody else's.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block.as_ptr()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (self.offset_of(block), Class::of(layout)) {
            // SAFETY: the caller gives up a block of this layout, which is of this class.
            (Some(offset), Some(class)) => unsafe { self.give(class, offset) },
            // SAFETY: it is not ours, so it is `System`'s.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let is_ours = self.offset_of(block).is_some();
        if is_ours && Class::of(new_layout) == Class::of(layout) {
            return block;
        }
        let moved = match self.take(new_layout) {
            Some((moved, _)) => moved.as_ptr(),
            // SAFETY: the caller's promise, and the block is `System`'s.
            None if !is_ours => return unsafe { System.realloc(block, layout, new_size) },
            // SAFETY: the new size is not 0, by the caller's promise.
            None => unsafe { System.alloc(new_layout) },
        };
        if !moved.is_null() {
            // SAFETY: both are as long, and no two allocations overlap; the old one is given up with all that the
            // caller promised.
            unsafe {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

/// An exposure of some bytes, which ends when it is dropped.
pub(crate) struct Exposed {
    /// The descriptor of the file they lie in.
    pub(crate) fd: u32,
    /// Where in the file.
    pub(crate) offset: usize,
    pub(crate) key: u64,
    arena: &'static Arena,
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if !self.arena.is_retired() {
            self.arena.keys.end(&self.arena.table, self.key);
        }
    }
}

/// A remote address has so much room for an offset (shm/onesided.rs).
pub(super) const BYTES_MAX: usize = 1 << 40;

/// An arena of less would not be worth its trouble.
const BYTES_MIN: usize = 1 << 30;

/// Of this much use is announced first, and then twice as much each time: who reads maps it anew each time.
const FIRST: usize = 64 << 20;
