//! A heap whose large allocations peers on the host can read directly.
//!
//! ```text
//!   ┌────────┬───────┬───────┬─────┬─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ keys   │ block │ block │  …  │  never used   │   the arena: one file in memory without a name
//!   └────────┴───────┴───────┴─────┴─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//! Any borrowed slice in the arena can be *exposed*: a key is written to the file's table ([`keys`]). A peer looks for
//! the key before it reads the slice, to learn that it may read, and again after the read, to learn that the slice
//! was exposed all the time. Peers map the file for reading ([`PeerHeap`]).
//!
//! # Soundness
//! Only this process writes to the arena: other processes can open the file for reading only. (A child of fork(2) could
//! write too, but to call fork is `unsafe`.) A peer that reads at the wrong time gets meaningless bytes, and detects
//! it.

mod arena;
mod blocks;
mod frees;
mod keys;
mod peer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use self::arena::Arena;
pub(crate) use self::arena::Exposed;
use self::blocks::GRANULE;
pub(crate) use self::peer::PeerHeap;

/// A global allocator whose memory peers on the same host can read directly, so that sent data is copied once.
///
/// Allocations of 16 KiB and more come from one file in memory, which peers map for reading (peers of the same user,
/// who could read any memory of the process). Smaller allocations come from [`System`], and so do large ones when the
/// file is full. On networks where the registration of memory takes time, a block that was sent or received also stays
/// registered for later messages. All allocations come from [`System`] if the kernel offers no such file, if it commits
/// memory at allocation (vm.overcommit_memory = 2), or if a limit (`ulimit -v`, `ulimit -f`) leaves less than 1 GiB.
/// The lack of a file makes no allocation fail.
///
/// # Costs
/// A large allocation takes 20 ns more than malloc if a free block with pages can be reused. It takes up to twice as
/// long as malloc if all pages are new, because the kernel provides the pages of a file one by one. An allocation takes
/// a power of two of address space, but memory only for used pages. The free blocks of each size together keep up to 32
/// MiB of pages. Growth beyond a power of two copies the bytes, so make a vector with its final capacity.
///
/// The memory counts as shared (`RssShmem` in /proc/PID/status), also in peers that have read it. Its pages have
/// 4 KiB unless /sys/kernel/mm/transparent_hugepage/shmem_enabled says `advise` or more. Core dumps do not contain it.
///
/// # Fork
/// A child made by fork(2) *shares* the blocks of the file with its parent, while other memory is copied: in these
/// blocks, parent and child see each other's writes. A child that continues without exec(2) must not write to earlier
/// large allocations unless its parent has ended. (The blocks could be hidden from children, but then a child that
/// reads one would be killed by a fault.) The child's own allocations come from [`System`]. Blocks of the file that
/// the child frees stay allocated in the parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: each call goes to `System` or to `Arena`. The size decides which one allocates, and `Arena` recognizes its
// own blocks by their address, so a block always returns to its allocator. Both are allocators.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match arena_for(layout.size()) {
            // SAFETY: the caller guarantees it.
            Some(arena) => unsafe { arena.alloc(layout) },
            // SAFETY: as above.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match arena_for(layout.size()) {
            // SAFETY: the caller guarantees it.
            Some(arena) => unsafe { arena.alloc_zeroed(layout) },
            // SAFETY: as above.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match arena_for(layout.size()) {
            // SAFETY: the caller guarantees it.
            Some(arena) => unsafe { arena.dealloc(block, layout) },
            // SAFETY: as above. If there is no arena for this size now, there was none at the allocation, so the block
            // is `System`'s.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match arena_for(layout.size().max(new_size)) {
            // SAFETY: the caller guarantees it.
            Some(arena) => unsafe { arena.realloc(block, layout, new_size) },
            // SAFETY: as in `dealloc`.
            None => unsafe { System.realloc(block, layout, new_size) },
        }
    }
}

/// Exposes bytes: until the returned value is dropped, peers that know its key may read them. Returns `None` if there
/// are no bytes, if they do not lie in the arena, if too many exposures exist already, or in a child of fork(2).
pub(crate) fn expose(bytes: &[u8]) -> Option<Exposed> {
    ARENA.get()?.as_ref()?.expose(bytes)
}

/// Returns how often the block in which an allocation begins was freed before. Returns `None` if the allocation is not
/// a block of the arena. `start` is the address of the allocation, or of data that begins in its first [`GRANULE`]. The
/// caller owns the allocation.
#[inline]
pub(crate) fn frees_of(start: *const u8) -> Option<u64> {
    ARENA.get()?.as_ref()?.frees_of(start)
}

#[inline]
fn arena_for(size: usize) -> Option<&'static Arena> {
    if size < GRANULE { None } else { arena() }
}

/// Returns the arena. The first large allocation creates it. Blocks that were allocated before come from [`System`];
/// when they are freed, they are recognized because their address is not in the arena.
fn arena() -> Option<&'static Arena> {
    match ARENA.get() {
        Some(arena) => arena.as_ref(),
        None => ARENA.make(Arena::of_process),
    }
}

static ARENA: MadeOnce = MadeOnce::new();

/// A value that is made once, by one thread. Other threads wait for it, but only for a limited time: in a child that
/// was forked while the value was being made, the thread that makes it does not exist, and a wait without limit would
/// never end.
struct MadeOnce<T = Arena> {
    progress: AtomicU8,
    made: OnceLock<Option<T>>,
}

impl<T> MadeOnce<T> {
    const fn new() -> Self {
        Self { progress: AtomicU8::new(UNBEGUN), made: OnceLock::new() }
    }

    #[inline]
    fn get(&self) -> Option<&Option<T>> {
        self.made.get()
    }

    /// Makes the value, unless a thread has begun to make it before. Returns `None` if `make` returned `None`, or if
    /// the value is not ready yet.
    #[cold]
    fn make(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        match self.progress.compare_exchange(UNBEGUN, AWAITED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // Only one thread reaches this line, so `get_or_init` does not wait.
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

/// A state of [`MadeOnce::progress`]: no thread has begun to make the value.
const UNBEGUN: u8 = 0;
/// A state of [`MadeOnce::progress`]: a thread has begun to make the value, and others wait until it is ready.
const AWAITED: u8 = 1;
/// A state of [`MadeOnce::progress`]: a thread has given up waiting for the value, and from now on no thread waits.
const UNAWAITED: u8 = 2;

/// The number of yields after which a thread continues without the value. The yields take some milliseconds together,
/// ten times as long as `make`.
const PATIENCE: u32 = 10_000;

#[cfg(test)]
mod tests;
