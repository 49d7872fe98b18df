use std::alloc::{GlobalAlloc, Layout};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex};

use rustix::fs::{MemfdFlags, memfd_create};

use super::arena::Arena;
use super::blocks::{ALIGN, GRANULE};
use super::*;
use crate::{PortError, SplitMix64};
use samite_os::fork::in_a_child;
use samite_os::process::Process;
use samite_os::shared::SharedFile;

fn arena_of(bytes: usize) -> &'static Arena {
    arena_of_pages(bytes, samite_os::memory::page().unwrap())
}

fn arena_of_pages(bytes: usize, page: usize) -> &'static Arena {
    Box::leak(Box::new(Arena::create(bytes, page).unwrap()))
}

fn peer(arena: &Arena) -> PeerHeap {
    PeerHeap::open(Process::current().unwrap(), arena.file.fd()).unwrap()
}

/// Allocates a slice of an arena for the rest of the test.
#[expect(clippy::mut_from_ref, reason = "of another block each time")]
fn slice(arena: &'static Arena, len: usize) -> &'static mut [u8] {
    let layout = Layout::from_size_align(len, 1).unwrap();
    // SAFETY: the length is not 0. The allocation has that length, is initialized, and is never freed.
    let bytes = unsafe { std::slice::from_raw_parts_mut(arena.alloc_zeroed(layout), len) };
    assert!(arena.offset_of(bytes.as_ptr()).is_some());
    bytes
}

/// A block with a pattern in it.
struct Block {
    address: usize,
    layout: Layout,
    seed: u8,
}

impl Block {
    fn new(arena: &Arena, rng: &mut SplitMix64) -> Self {
        let layout = Layout::from_size_align(size(rng), 1 << rng.below(ALIGN.ilog2() as u64 + 3)).unwrap();
        let is_zeroed = rng.below(2) == 0;
        // SAFETY: the size is not 0.
        let block = unsafe { if is_zeroed { arena.alloc_zeroed(layout) } else { arena.alloc(layout) } };
        assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
        let block = Self { address: block.expose_provenance(), layout, seed: rng.next_u64() as u8 };
        assert!(!is_zeroed || block.bytes() == &ZEROS[..layout.size()]);
        block.fill();
        block
    }

    #[expect(clippy::mut_from_ref, reason = "one thread at a time has a block, and one slice of it")]
    fn bytes(&self) -> &mut [u8] {
        let block = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the block has this length and no other owner. It is read only after it was written, or if it is
        // zeroed.
        unsafe { std::slice::from_raw_parts_mut(block, self.layout.size()) }
    }

    fn fill(&self) {
        self.bytes().copy_from_slice(&PATTERN[self.seed.into()..][..self.layout.size()]);
    }

    fn check(&self, len: usize) {
        assert!(self.bytes()[..len] == PATTERN[self.seed.into()..][..len]);
    }

    fn resize(&mut self, arena: &Arena, rng: &mut SplitMix64) {
        let (old, new) = (self.layout, size(rng));
        // SAFETY: the block is of this layout, and the new size is not 0.
        let block = unsafe { arena.realloc(self.bytes().as_mut_ptr(), old, new) };
        self.address = block.expose_provenance();
        self.layout = Layout::from_size_align(new, old.align()).unwrap();
        self.check(old.size().min(new));
        self.fill();
    }

    fn free(self, arena: &Arena) {
        self.check(self.layout.size());
        // SAFETY: the block is of this layout, and not used again.
        unsafe { arena.dealloc(self.bytes().as_mut_ptr(), self.layout) }
    }
}

static ZEROS: [u8; SIZE_MAX] = [0; SIZE_MAX];
/// A pattern with a long period, so that slices of it that begin at different seeds differ.
static PATTERN: [u8; SIZE_MAX + 256] = {
    let mut bytes = [0; SIZE_MAX + 256];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (i % 251 + i / 251) as u8;
        i += 1;
    }
    bytes
};
const SIZE_MAX: usize = 512 << 10;

/// Returns a size from 1 to [`SIZE_MAX`].
fn size(rng: &mut SplitMix64) -> usize {
    let shift = rng.below(SIZE_MAX.ilog2() as u64 + 1);
    1 + rng.below(1 << shift) as usize
}

/// Threads allocate blocks, resize them, free them and pass them to each other. Each block keeps its contents, and
/// zeroed blocks are zero. The arena is too small for all blocks, so that both allocators are used.
#[test]
fn threads_keep_what_they_write() {
    for page in PAGES {
        threads_share(arena_of_pages(4 << 20, page));
    }
}

fn threads_share(arena: &'static Arena) {
    let pool = Mutex::new(Vec::new());
    let rounds = 10_000;
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                let put = |block: Block, rng: &mut SplitMix64| {
                    let mut pool = pool.lock().unwrap();
                    pool.push(block);
                    // At most 40 blocks stay in the pool. The caller frees the returned block.
                    let index = rng.below(pool.len() as u64) as usize;
                    (pool.len() > 40).then(|| pool.swap_remove(index))
                };
                for _ in 0..rounds {
                    let left = match rng.below(2) {
                        0 => put(Block::new(arena, &mut rng), &mut rng),
                        _ => {
                            let popped = pool.lock().unwrap().pop();
                            let Some(mut block) = popped else { continue };
                            block.resize(arena, &mut rng);
                            put(block, &mut rng)
                        }
                    };
                    if let Some(block) = left {
                        block.free(arena);
                    }
                }
            });
        }
    });
    let left: Vec<Block> = pool.into_inner().unwrap();
    let inside = |block: &&Block| arena.offset_of(block.bytes().as_ptr()).is_some();
    assert!(left.iter().any(|block| inside(&block)) && !left.iter().all(|block| inside(&block)));
    left.into_iter().for_each(|block| block.free(arena));
}

#[test]
fn a_block_stays_where_it_is_within_its_class() {
    let arena = arena_of(64 << 20);
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    // SAFETY: each layout is that of the block at that time, and no size is 0.
    unsafe {
        let block = arena.alloc(layout(5 * GRANULE));
        assert_eq!(arena.realloc(block, layout(5 * GRANULE), 8 * GRANULE), block);
        let moved = arena.realloc(block, layout(8 * GRANULE), 4 * GRANULE);
        assert_ne!(moved, block);
        assert_eq!(arena.alloc(layout(8 * GRANULE)), block, "its place is free");
        let small = arena.realloc(moved, layout(4 * GRANULE), 100);
        assert_eq!(arena.offset_of(small), None);
        let moved = arena.realloc(small, layout(100), GRANULE);
        assert!(arena.offset_of(moved).is_some());
        arena.dealloc(moved, layout(GRANULE));
    }
}

#[test]
fn what_is_not_kept_goes_back_to_the_system() {
    let arena = arena_of(256 << 20);
    let used = || {
        let file = fs::metadata(format!("/proc/self/fd/{}", arena.file.fd())).unwrap();
        file.blocks() as usize * 512
    };
    let len = 40 << 20;
    let layout = Layout::from_size_align(len, 1).unwrap();
    let before = used();
    for _ in 0..3 {
        // SAFETY: the layout is that of the block, which is zeroed, and not used after it is freed.
        unsafe {
            let block = arena.alloc_zeroed(layout);
            let bytes = std::slice::from_raw_parts_mut(block, len);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            assert!(used() >= before + len);
            arena.dealloc(block, layout);
        }
        assert!(used() < before + GRANULE);
    }
}

/// Page sizes that are multiples of this machine's page size. If an arena requests only whole pages of such a size,
/// this kernel behaves like the kernel of a machine with pages of that size.
const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

#[test]
fn only_whole_pages_go_back_to_the_system() {
    for page in PAGES {
        let arena = arena_of_pages(256 << 20, page);
        let used =
            || fs::metadata(format!("/proc/self/fd/{}", arena.file.fd())).unwrap().blocks() as usize * 512;
        for len in [GRANULE, 2 * GRANULE, 4 * GRANULE] {
            // Every second block is freed. These are more blocks than a free list keeps with their pages.
            let layout = Layout::from_size_align(len, 1).unwrap();
            let blocks: Vec<_> = (0..(34 << 20) / len * 2).map(|_| slice(arena, len)).collect();
            let (mut freed, mut left) = (Vec::new(), Vec::new());
            for (i, block) in blocks.into_iter().enumerate() {
                block.fill(7);
                if i % 2 == 0 { freed.push(block.as_mut_ptr()) } else { left.push(block) }
            }
            let before = used();
            for &block in &freed {
                // SAFETY: the block was allocated with this layout, and is not used again.
                unsafe { arena.dealloc(block, layout) };
            }
            assert_eq!(used() < before, len >= page, "{len} in pages of {page}");
            assert!(left.iter().all(|block| block.iter().all(|&byte| byte == 7)), "{len} in pages of {page}");
            let zeroed = slice(arena, len);
            assert!(zeroed.iter().all(|&byte| byte == 0));
            for block in left {
                // SAFETY: as above.
                unsafe { arena.dealloc(block.as_mut_ptr(), layout) };
            }
        }
    }
}

/// Tests a retired arena. An arena is retired in a child of fork(2), which shares the blocks with its parent.
#[test]
fn a_retired_arena_gives_nothing_and_takes_nothing() {
    let arena = arena_of(1 << 20);
    let bytes = slice(arena, GRANULE);
    let exposed = arena.expose(bytes).unwrap();
    arena.retire();
    let layout = Layout::new::<[u8; GRANULE]>();
    assert!(arena.expose(bytes).is_none());
    let (at, key) = (exposed.offset, exposed.key);
    drop(exposed);
    assert_eq!(peer(arena).read(key, at, &mut [0; 8]), Ok(true), "it is the parent's");
    // SAFETY: as above; the blocks are not used after they are freed.
    unsafe {
        let block = arena.realloc(bytes.as_mut_ptr(), layout, 2 * GRANULE);
        assert_eq!(arena.offset_of(block), None);
        arena.dealloc(block, Layout::new::<[u8; 2 * GRANULE]>());
        let block = arena.alloc(layout);
        assert_eq!(arena.offset_of(block), None);
        arena.dealloc(block, layout);
    }
}

#[test]
fn children_of_forks_allocate_elsewhere_while_threads_allocate() {
    let layout = Layout::new::<[u8; 2 * GRANULE]>();
    let is_inside = || {
        // SAFETY: the size is not 0.
        let block = unsafe { Heap.alloc(layout) };
        let is_inside = ARENA.get().is_some_and(|made| made.as_ref().unwrap().offset_of(block).is_some());
        // SAFETY: the block was allocated with this layout.
        unsafe { Heap.dealloc(block, layout) };
        is_inside
    };
    // Another test's thread may be making the arena.
    while !is_inside() {
        std::thread::yield_now();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(is_inside())
                }
            });
        }
        let answers: Vec<_> = (0..100).map(|_| in_a_child(|| !is_inside()).unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(answers.into_iter().all(|elsewhere| elsewhere));
    });
    assert!(is_inside());
}

#[test]
fn nobody_waits_long_for_the_arena_to_be_made() {
    let once = MadeOnce::new();
    let (begun, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            once.make(|| {
                begun.wait();
                end.wait();
                Some(7)
            })
        });
        begun.wait();
        let unexpected = || -> Option<i32> { unreachable!("it is made once") };
        let absent = once.make(unexpected).is_none();
        // The thread that makes the value does not exist in the child.
        let absent_in_child = in_a_child(|| once.get().is_none() && once.make(unexpected).is_none()).unwrap();
        end.wait();
        assert!(absent && absent_in_child);
    });
    assert_eq!(once.get(), Some(&Some(7)));
}

#[test]
fn what_is_exposed_is_read_until_the_end() {
    let arena = arena_of(256 << 20);
    let mut theirs = peer(arena);
    let bytes = slice(arena, 100_000);
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 256) as u8);
    for (start, len) in [(0, 100_000), (1, 1), (13, 99_900), (99_999, 1), (64, 4096)] {
        let exposed = arena.expose(&bytes[start..start + len]).unwrap();
        let mut read = vec![0; len];
        assert_eq!(theirs.read(exposed.key, exposed.offset, &mut read), Ok(true));
        assert_eq!(read, bytes[start..start + len]);
        let (key, offset) = (exposed.key, exposed.offset);
        drop(exposed);
        assert_eq!(theirs.read(key, offset, &mut read), Ok(false), "a stale key");
    }
    // This block lies beyond the part of the arena that was in use when the peer mapped it.
    let far = slice(arena, 100 << 20);
    far[99 << 20] = 9;
    let exposed = arena.expose(&far[99 << 20..]).unwrap();
    let mut read = [0];
    assert_eq!((theirs.read(exposed.key, exposed.offset, &mut read), read), (Ok(true), [9]));
}

#[test]
fn but_what_lies_in_the_arena_is_not_exposed() {
    let arena = arena_of(4 << 20);
    let bytes = slice(arena, GRANULE);
    assert!(arena.expose(&[]).is_none() && arena.expose(&bytes[..0]).is_none());
    assert!(arena.expose(&[1; 100]).is_none());
    let all: Vec<_> = std::iter::from_fn(|| arena.expose(bytes)).collect();
    assert_eq!(all.len(), 4095);
    drop(all);
    assert!(arena.expose(bytes).is_some());
}

#[test]
fn a_reader_believes_nothing() {
    let arena = arena_of(4 << 20);
    let mut theirs = peer(arena);
    let exposed = arena.expose(slice(arena, GRANULE)).unwrap();
    let len = arena.mapping.size();
    let mut read = |key, offset, len| theirs.read(key, offset, &mut vec![0; len]);
    for forged in [u64::MAX, 0, usize::MAX as u64 / 2, len as u64 + 8, 13] {
        arena.table[keys::AT_LEN].store(forged, Ordering::Relaxed);
        for (offset, len) in [(len - 1, 2), (len, 1), (usize::MAX, 1), (usize::MAX - 7, 8), (1 << 40, 100)] {
            assert_eq!(read(exposed.key, offset, len), Ok(false), "{forged} {offset} {len}");
        }
        for key in [0, 1, u64::MAX, exposed.key ^ 1 << 63, exposed.key ^ 1] {
            assert_eq!(read(key, exposed.offset, 8), Ok(false));
        }
    }
    // A forged length is limited to the size of the file, so a read succeeds up to the file's end. The part of the file
    // that was never used is a hole, and reads as zeros.
    arena.table[keys::AT_LEN].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(read(exposed.key, len - 8, 8), Ok(true));
}

#[test]
fn other_files_are_no_heaps() {
    let this = Process::current().unwrap();
    let unreachable = |fd| {
        let opened = PeerHeap::open(this, fd);
        matches!(opened, Err(PortError::Unreachable { .. } | PortError::PeerEnded { .. }))
    };
    let plain = fs::File::open("/proc/self/stat").unwrap();
    let (short, other) = (SharedFile::create(c"a", 100).unwrap(), SharedFile::create(c"b", 1 << 20).unwrap());
    // The owner of an unsealed file could truncate it while a peer reads it.
    let unsealed = fs::File::from(memfd_create("c", MemfdFlags::ALLOW_SEALING).unwrap());
    unsealed.set_len(1 << 20).unwrap();
    unsealed.write_all_at(&keys::VERSION.to_ne_bytes(), 0).unwrap();
    let [plain, unsealed] = [&plain, &unsealed].map(|file| file.as_raw_fd() as u32);
    for fd in [plain, unsealed, u32::MAX, short.fd(), other.fd()] {
        assert!(unreachable(fd));
    }
    let arena = arena_of(1 << 20);
    assert!(!unreachable(arena.file.fd()));
    arena.table[keys::AT_VERSION].fetch_add(1, Ordering::Relaxed);
    assert!(unreachable(arena.file.fd()), "another version");
}

#[test]
fn others_cannot_even_open_it_for_writing() {
    let arena = arena_of(1 << 20);
    let mode = fs::metadata(format!("/proc/self/fd/{}", arena.file.fd())).unwrap().mode();
    assert_eq!(mode & 0o777, 0o400);
}
