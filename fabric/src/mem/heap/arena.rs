//! The memory of the heap: a file in memory, from which blocks are allocated. It is mapped once and never unmapped.

use std::alloc::{GlobalAlloc, Layout, System};
use std::iter;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};

use super::blocks::{Blocks, Class, GRANULE};
use super::frees::Frees;
use super::keys::{self, Keys};
use crate::PortError;
use crate::copy::copy_apart;
use samite_os::fork::ForkMark;
use samite_os::shared::{Mapping, PAGE, SharedFile, View};

/// An allocator that takes large blocks from one file, and others from [`System`].
pub(super) struct Arena {
    pub(super) file: SharedFile,
    pub(super) mapping: Arc<Mapping>,
    /// The first part of the file.
    pub(super) table: View<AtomicU64>,
    keys: Keys,
    blocks: Mutex<Blocks>,
    frees: Frees,
    /// The size of a page of the operating system in bytes. The system takes back only whole pages.
    page: usize,
    /// Identifies the owner: in a child of fork(2) the arena allocates, frees and exposes nothing.
    owner: ForkMark,
}

impl Arena {
    /// Creates the arena of a process. Its address space is several times the machine's memory. Blocks never change
    /// their size class, and the blocks of each class together may at some time have filled most of the memory, so each
    /// class may need as much address space as the machine has memory. The address space is at most [`BYTES_MAX`], and
    /// at most a quarter of the process's limit. Returns `None` if the system provides no address space or no file in
    /// memory of this size, or if it commits memory at allocation.
    pub(super) fn of_process() -> Option<Self> {
        // With strict overcommit the kernel reserves memory for each allocation, but not for the holes in a file. So an
        // access to a new page of the arena could fail later.
        if samite_os::memory::is_promised().ok()? {
            return None;
        }
        let page = samite_os::memory::page().ok()?;
        let allowed = getrlimit(Resource::As).current.map_or(usize::MAX, |limit| limit as usize);
        let bytes = samite_os::memory::bytes().ok()?.saturating_mul(8).min(BYTES_MAX).min(allowed / 4);
        // A file size limit, or a tool that runs the program, may refuse this size. A smaller size may succeed.
        let sizes = iter::successors(Some(bytes), |bytes| Some(bytes / 2));
        sizes.take_while(|&bytes| bytes >= BYTES_MIN).find_map(|bytes| Self::create(bytes, page).ok())
    }

    /// Creates an arena of `bytes` bytes, rounded up to [`PAGE`], for system pages of `page` bytes. The size includes
    /// the table of keys.
    pub(super) fn create(bytes: usize, page: usize) -> Result<Self, PortError> {
        let bytes = bytes.clamp(2 * keys::BYTES, BYTES_MAX).next_multiple_of(PAGE);
        let file = SharedFile::create(c"samite-heap", bytes)?;
        // Unused parts stay inaccessible, so that nothing that touches all memory, such as mlockall(2), fills them.
        let mapping = file.map_shut(0..bytes)?;
        mapping.leave_out_of_dumps();
        mapping.prefer_huge_pages();
        mapping.open(0..keys::BYTES)?;
        file.make_read_only()?;
        let table = mapping.view::<AtomicU64>(0, keys::BYTES / size_of::<AtomicU64>());
        let no_memory =
            || PortError::Exhausted { what: "memory", hint: "for the bookkeeping of the heap".into() };
        let blocks = Blocks::new(bytes / GRANULE, keys::BYTES / GRANULE).ok_or_else(no_memory)?;
        let frees = Frees::new(bytes / GRANULE).ok_or_else(no_memory)?;
        table[keys::AT_LEN].store(keys::BYTES as u64, Ordering::Relaxed);
        table[keys::AT_VERSION].store(keys::VERSION, Ordering::Relaxed);
        Ok(Self {
            file,
            mapping,
            table,
            keys: Keys::new(samite_os::random()?),
            blocks: Mutex::new(blocks),
            frees,
            page,
            owner: ForkMark::new().map_err(|error| PortError::Provider {
                call: "madvise",
                code: error.raw_os_error().unwrap_or(0),
                text: error.to_string(),
                hint: "pages that children of a fork do not share".into(),
            })?,
        })
    }

    /// Makes the arena behave as in a child of fork(2).
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

    /// Returns a block for this layout, and true if all its bytes are zero.
    fn take(&self, layout: Layout) -> Option<(NonNull<u8>, bool)> {
        let class = Class::of(layout)?;
        // In a child of fork(2), the lock may be held by a thread of the parent that does not exist in the child.
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

    /// Makes more of the file usable: the next power of two that is enough for a block of this class, or the whole
    /// file.
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
    /// The block was allocated for a layout of this class, and is not used any more.
    unsafe fn give(&self, class: Class, offset: usize) {
        if self.is_retired() {
            return;
        }
        let granule = offset / GRANULE;
        self.frees.note(granule);
        let mut blocks = self.lock();
        if blocks.is_kept(class) {
            blocks.give(class, granule, false);
            return;
        }
        drop(blocks);
        // The kernel takes long for a large block, so the lock is not held meanwhile.
        // SAFETY: the block is not used any more, as the caller guarantees, and it is in no list yet.
        let is_zero = unsafe { self.mapping.empty(offset..offset + class.bytes(), self.page) };
        self.lock().give(class, granule, is_zero);
    }

    /// See [`super::frees_of`].
    pub(super) fn frees_of(&self, start: *const u8) -> Option<u64> {
        Some(self.frees.of(self.offset_of(start)? / GRANULE))
    }

    /// Returns the offset of an address in the file, or `None` if the address does not lie in the arena.
    pub(super) fn offset_of(&self, address: *const u8) -> Option<usize> {
        let offset = address.addr().checked_sub(self.mapping.origin().addr().get())?;
        (offset < self.mapping.size()).then_some(offset)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a block has its class's size, which is at least the layout's, and is aligned at least as the start of a page.
// It belongs to one caller at a time, since `Blocks` gives no block twice, and the mapping lives as long as the arena.
// The address of a block tells its allocator: it lies in the mapping or is `System`'s. Nothing unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some((block, _)) => block.as_ptr(),
            // SAFETY: the caller guarantees it.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some((block, is_zero)) = self.take(layout) else {
            // SAFETY: the caller guarantees it.
            return unsafe { System.alloc_zeroed(layout) };
        };
        if !is_zero {
            // SAFETY: the block is that long, and has no other owner.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block.as_ptr()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (self.offset_of(block), Class::of(layout)) {
            // SAFETY: the caller gives up a block of this layout, which has this class.
            (Some(offset), Some(class)) => unsafe { self.give(class, offset) },
            // SAFETY: the block does not lie in the arena, so it is `System`'s.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees it.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let is_ours = self.offset_of(block).is_some();
        if is_ours && Class::of(new_layout) == Class::of(layout) {
            return block;
        }
        let moved = match self.take(new_layout) {
            Some((moved, _)) => moved.as_ptr(),
            // SAFETY: the caller guarantees the layout, and the block is `System`'s.
            None if !is_ours => return unsafe { System.realloc(block, layout, new_size) },
            // SAFETY: the new size is not 0, as the caller guarantees.
            None => unsafe { System.alloc(new_layout) },
        };
        if !moved.is_null() {
            // SAFETY: both blocks have at least this length, and two allocations never overlap. The caller guarantees
            // what `dealloc` requires of the old block.
            unsafe {
                copy_apart(block, moved, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

/// An exposure of some bytes, which ends when it is dropped.
pub(crate) struct Exposed {
    /// The descriptor of the file that contains the bytes.
    pub(crate) fd: u32,
    /// The offset of the bytes in the file.
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

/// The largest size of an arena. An offset in a remote address must be less (shm/onesided.rs).
pub(super) const BYTES_MAX: usize = 1 << 40;

/// A smaller arena would not be worthwhile.
const BYTES_MIN: usize = 1 << 30;

/// The usable size of the file at first. The size doubles at each extension, so that there are few extensions: after
/// each one, readers map the file again.
const FIRST: usize = 64 << 20;
