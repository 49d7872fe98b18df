//! A heap whose large allocations peers of the host can read where they lie.
//!
//! ```text
//!   ┌────────┬───────┬───────┬─────┬─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ keys   │ block │ block │  …  │  never used   │   the arena: one file in memory without a name
//!   └────────┴───────┴───────┴─────┴─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//! Any borrowed slice that lies in the arena can be *exposed*: a key is put in the file's table ([`keys`]), by which a
//! peer knows that it may read the slice, and knows after it has read whether it still might. Peers map the file for
//! reading ([`PeerHeap`]).
//!
//! # Soundness
//! Nobody but this process writes to the arena: the file can be opened for reading only (and to fork is unsafe). What
//! others read at the wrong time is their loss, and they find out.

mod arena;
mod blocks;
mod keys;
mod peer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use self::arena::Arena;
pub(crate) use self::arena::Exposed;
use self::blocks::GRANULE;
pub(crate) use self::peer::PeerHeap;

/// A global allocator from whose memory peers on the same host can read what they are sent where it lies.
///
/// Allocations of 16 KiB and more come from one file in memory, which peers map for reading (those of the same user,
/// who could read any memory of the process); the others, and those for which there is no room, from [`System`]. Where
/// the kernel gives no such file, or promises memory when it is asked for (vm.overcommit_memory = 2), or a limit
/// (`ulimit -v`, `ulimit -f`) leaves less than 1 GiB, all come from [`System`]: nothing fails for want of a file.
///
/// # Costs
/// A large allocation takes 20 ns more than from malloc where its pages are kept, and up to twice as long where each page
/// is new: those of a file are given one by one. It takes a power of two of address space, but memory only for pages
/// that were used; of blocks that are free again up to 32 MiB of each size keep theirs. To grow beyond a power of two
/// moves the bytes, so a vector had better be made with its capacity.
///
/// The memory is counted as shared (`RssShmem` in /proc/PID/status), also in peers that have read it. It is in pages of
/// 4 KiB unless /sys/kernel/mm/transparent_hugepage/shmem_enabled says `advise` or more. It is not in core dumps.
///
/// # Fork
/// A child made by fork(2) *shares* these blocks with its parent, where other memory is copied: what one of them
/// writes, the other sees. A child that goes on without exec(2) must not write to large allocations of before, unless
/// its parent is gone. (To keep the blocks from children would be worse: to read them would be a fault.) What it
/// allocates itself is its own, from [`System`], and what it frees of before stays with the parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: each call goes to `System` or to `Arena`, which decide by the size whose block it is, and `Arena` for one
// that is its own or not by its address: a block is always given back to whom it came from. Both are allocators.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match arena_for(layout.size()) {
            // SAFETY: the caller's promise.
            Some(arena) => unsafe { arena.alloc(layout) },
            // SAFETY: as above.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match arena_for(layout.size()) {
            // SAFETY: the caller's promise.
            Some(arena) => unsafe { arena.alloc_zeroed(layout) },
            // SAFETY: as above.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match arena_for(layout.size()) {
            // SAFETY: the caller's promise.
            Some(arena) => unsafe { arena.dealloc(block, layout) },
            // SAFETY: as above; there is no arena now, so there was none then, or it does not hold such sizes.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match arena_for(layout.size().max(new_size)) {
            // SAFETY: the caller's promise.
            Some(arena) => unsafe { arena.realloc(block, layout, new_size) },
            // SAFETY: as in `dealloc`.
            None => unsafe { System.realloc(block, layout, new_size) },
        }
    }
}

/// Lets who knows the key read the bytes, until what is returned is dropped. None if they do not lie in the arena, or
/// too much is exposed already.
pub(crate) fn expose(bytes: &[u8]) -> Option<Exposed> {
    ARENA.get()?.as_ref()?.expose(bytes)
}

#[inline]
fn arena_for(size: usize) -> Option<&'static Arena> {
    if size < GRANULE { None } else { arena() }
}

/// The arena, which the first large allocation makes. An allocation that comes before it is there goes to [`System`], and is
/// known by its address.
fn arena() -> Option<&'static Arena> {
    match ARENA.get() {
        Some(arena) => arena.as_ref(),
        None => ARENA.make(Arena::of_process),
    }
}

static ARENA: Once = Once::new();

/// A value that one thread makes. Others wait for it, but not for long: in the child of a fork that thread is not there.
struct Once<T = Arena> {
    progress: AtomicU8,
    made: OnceLock<Option<T>>,
}

impl<T> Once<T> {
    const fn new() -> Self {
        Self { progress: AtomicU8::new(UNBEGUN), made: OnceLock::new() }
    }

    #[inline]
    fn get(&self) -> Option<&Option<T>> {
        self.made.get()
    }

    /// Makes it, unless that was begun before. None if there is none, or not yet.
    #[cold]
    fn make(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        match self.progress.compare_exchange(UNBEGUN, AWAITED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // One thread comes here, so that it does not wait.
                let made = make();
                self.made.get_or_init(|| made).as_ref()
            }
            Err(AWAITED) => {
                for _ in 0..PATIENCE {
                    if let Some(made) = self.get() {
                        return made.as_ref();
                    }
                    std::thread::yield_now();
                }
                self.progress.store(UNAWAITED, Ordering::Relaxed);
                None
            }
            Err(_) => self.get()?.as_ref(),
        }
    }
}

/// States of [`Once::progress`]: one thread makes the value, and others wait for it, or have given that up.
const UNBEGUN: u8 = 0;
const AWAITED: u8 = 1;
const UNAWAITED: u8 = 2;

/// Turns that a thread gives to others before it goes on without: some milliseconds, while it takes a tenth of one.
const PATIENCE: u32 = 10_000;

#[cfg(test)]
mod tests;
