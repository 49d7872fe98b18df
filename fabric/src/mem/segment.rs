//! Memory that other processes of the host can map: the bytes of a shared [`Region`](super::Region).
//!
//! ```text
//!   ┌───────────────────────────┬──────────────┐
//!   │ header: length, grants    │ the bytes    │   a file in memory without a name
//!   └───────────────────────────┴──────────────┘
//! ```
//! A *grant* says which key opens the bytes, and for what. Its owner writes it when it registers the memory,
//! and takes it away when it deregisters. Who maps the segment looks for its key there before it touches a
//! byte, and after, so that what a revoked key did is not taken for success. That keeps out mistakes; a process
//! that may map the file at all could as well read and write all the owner's memory.
//!
//! # Soundness
//! Anybody may write the bytes at any time. They are reached by 64-bit atomics only; where a copy begins or
//! ends within a word, the rest of the word is kept by compare-and-swap. No reference to them is ever given
//! out, and they never become a [`Memory`](super::Memory) again.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::copy::load_words;
use crate::{Access, Atomic, PortError};
use samite_os::fork::ForkMark;
use samite_os::process::Process;
use samite_os::shared::{PAGE, Shareable, SharedFile, View};

/// A segment of this process.
#[derive(Debug)]
pub(crate) struct Segment {
    file: SharedFile,
    mapped: Mapped,
    mark: ForkMark,
}

impl Segment {
    /// `len` bytes of zero, all of them allocated.
    pub(crate) fn create(len: usize) -> Result<Self, PortError> {
        let total = len
            .checked_next_multiple_of(size_of::<AtomicU64>())
            .and_then(|bytes| bytes.checked_add(size_of::<Header>())?.checked_next_multiple_of(PAGE))
            .filter(|&total| i64::try_from(total).is_ok());
        let Some(total) = total else {
            return Err(PortError::Exhausted {
                what: "address space",
                hint: format!("{len} bytes cannot be mapped"),
            });
        };
        let file = SharedFile::create(c"samite-segment", total)?;
        file.allocate(0..size_of::<Header>() + len)?;
        let mapping = file.map(0..total)?;
        let header = mapping.view::<Header>(0, 1);
        header[0].version.store(VERSION, Ordering::Relaxed);
        header[0].len.store(len as u64, Ordering::Relaxed);
        let mapped = Mapped { words: mapping.view(size_of::<Header>(), len.div_ceil(WORD)), header, len };
        let mark = ForkMark::new().map_err(|error| PortError::Provider {
            call: "madvise(MADV_WIPEONFORK)",
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "shared memory needs Linux 4.14 or later".into(),
        })?;
        Ok(Self { file, mapped, mark })
    }

    /// The descriptor by which others find it.
    pub(crate) fn fd(&self) -> u32 {
        self.file.fd()
    }

    /// The bytes.
    pub(crate) fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Lets those in who know `key`, which is not 0. False if there are too many grants already. The caller
    /// sees to it that nobody grants or revokes at the same time.
    pub(crate) fn grant(&self, key: u64, access: Access) -> bool {
        let grants = &self.mapped.header[0].grants;
        let Some(free) = grants.iter().find(|grant| grant.key.load(Ordering::Relaxed) == 0) else {
            return false;
        };
        free.access.store(access.bits().into(), Ordering::Relaxed);
        free.key.store(key, Ordering::Release);
        true
    }

    /// Lets nobody in any more by this key. Nothing in a child of fork(2): the grants are the parent's.
    pub(crate) fn revoke(&self, key: u64) {
        if self.mark.is_in_child() {
            return;
        }
        for grant in &self.mapped.header[0].grants {
            if grant.key.load(Ordering::Relaxed) == key {
                grant.key.store(0, Ordering::Release);
            }
        }
    }
}

/// A segment, of whichever process, in this one's memory.
#[derive(Debug)]
pub(crate) struct Mapped {
    header: View<Header>,
    words: View<AtomicU64>,
    len: usize,
}

impl Mapped {
    /// Maps the segment that another process has open as descriptor `fd`.
    pub(crate) fn open(owner: Process, fd: u32) -> Result<Self, PortError> {
        let unreachable = || PortError::Unreachable { why: "the peer's descriptor is no segment".into() };
        let file = SharedFile::open(owner, fd)?;
        if file.size() < PAGE {
            return Err(unreachable());
        }
        let mapping = file.map(0..file.size())?;
        let header = mapping.view::<Header>(0, 1);
        // Of whole words, though the file may end within one.
        let room = (file.size() - size_of::<Header>()) / WORD * WORD;
        match usize::try_from(header[0].len.load(Ordering::Relaxed)) {
            Ok(len) if header[0].version.load(Ordering::Relaxed) == VERSION && len <= room => {
                Ok(Self { words: mapping.view(size_of::<Header>(), len.div_ceil(WORD)), header, len })
            }
            _ => Err(unreachable()),
        }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether `key` lets its holder do that.
    pub(crate) fn permits(&self, key: u64, access: Access) -> bool {
        // What was copied before is not moved behind this look.
        fence(Ordering::Acquire);
        self.header[0].grants.iter().any(|grant| {
            key != 0
                && grant.key.load(Ordering::Acquire) == key
                && Access::from_bits_truncate(grant.access.load(Ordering::Relaxed) as u8).contains(access)
        })
    }

    /// Whether there is a key at all.
    pub(crate) fn is_granted(&self) -> bool {
        self.header[0].grants.iter().any(|grant| grant.key.load(Ordering::Relaxed) != 0)
    }

    /// The words, for what reaches them as one: the bytes lie in them as in the machine's memory.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// If they leave the segment.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.len, "a copy stays inside");
        load_words(&self.words, offset, into);
    }

    /// Copies bytes in, to `offset` on. They are seen after those of earlier copies.
    ///
    /// # Panics
    /// If they leave the segment.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.len, "a copy stays inside");
        fence(Ordering::Release);
        let (words, skipped) = (&self.words[offset / WORD..], offset % WORD);
        let (head, rest) = from.split_at(head_of(skipped, from.len()));
        if !head.is_empty() {
            merge(&words[0], skipped, head);
        }
        let words = &words[usize::from(skipped > 0).min(words.len())..];
        let (whole, tail) = rest.as_chunks();
        for (from, word) in whole.iter().zip(words) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            merge(&words[whole.len()], 0, tail);
        }
    }
}

impl Mapped {
    /// Changes the word of `width` bytes (4 or 8) at `offset`, a multiple of that, in one step; what it was
    /// before. Who sees the change sees earlier writes too.
    ///
    /// # Panics
    /// If it leaves the segment.
    pub(crate) fn change(&self, offset: usize, width: usize, change: Atomic) -> u64 {
        assert!(offset.is_multiple_of(width) && offset + width <= self.len, "a word stays inside");
        let at = offset % WORD;
        let part = |word: u64| word_of(&word.to_ne_bytes()[at..][..width]);
        let with = |word: u64| {
            let mut all = word.to_ne_bytes();
            write_word(change.apply(part(word), width)?, &mut all[at..][..width]);
            Some(u64::from_ne_bytes(all))
        };
        let before = self.words[offset / WORD].fetch_update(Ordering::AcqRel, Ordering::Acquire, with);
        part(before.unwrap_or_else(|unchanged| unchanged))
    }
}

/// The word of 4 or 8 bytes that they are.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    match bytes.try_into() {
        Ok(bytes) => u64::from_ne_bytes(bytes),
        Err(_) => bytes.try_into().map_or(0, |bytes| u32::from_ne_bytes(bytes).into()),
    }
}

/// Writes a word over 4 or 8 bytes.
pub(crate) fn write_word(word: u64, into: &mut [u8]) {
    match into.len() {
        8 => into.copy_from_slice(&word.to_ne_bytes()),
        // Of a word of 4 bytes the upper half is 0.
        _ => into.copy_from_slice(&(word as u32).to_ne_bytes()),
    }
}

/// How many of `len` bytes lie in the first word, of which so many are skipped, if that is not copied whole.
fn head_of(skipped: usize, len: usize) -> usize {
    if skipped == 0 { 0 } else { len.min(WORD - skipped) }
}

/// Writes some bytes of a word, and no other.
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let with = |old: u64| {
        let mut all = old.to_ne_bytes();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(all))
    };
    // It never declines.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Header {
    version: AtomicU64,
    len: AtomicU64,
    _constant: [AtomicU64; 6],
    grants: [Grant; GRANTS],
}

#[derive(Debug)]
#[repr(C)]
struct Grant {
    /// 0 where there is none.
    key: AtomicU64,
    /// Bits of [`Access`].
    access: AtomicU64,
}

/// Registrations of one region for peers at one time.
const GRANTS: usize = 60;

const WORD: usize = size_of::<AtomicU64>();

const VERSION: u64 = u64::from_le_bytes(*b"segment\x01");

const _: () = assert!(size_of::<Header>() == 1024);

// SAFETY: 128 atomic words, `repr(C)`, 1024 bytes: no padding.
unsafe impl Shareable for Header {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_opens_it_until_it_is_revoked() {
        let segment = Segment::create(100).unwrap();
        let theirs = Mapped::open(Process::current().unwrap(), segment.fd()).unwrap();
        assert_eq!(theirs.len(), 100);
        assert!(segment.grant(7, Access::REMOTE_READ) && segment.grant(8, Access::REMOTE_WRITE));
        assert!(theirs.permits(7, Access::REMOTE_READ) && !theirs.permits(7, Access::REMOTE_WRITE));
        assert!(theirs.permits(8, Access::REMOTE_WRITE) && !theirs.permits(9, Access::REMOTE_READ));
        segment.revoke(7);
        assert!(!theirs.permits(7, Access::REMOTE_READ) && theirs.is_granted());
        segment.revoke(8);
        assert!(!theirs.is_granted() && !theirs.permits(0, Access::empty()));
        assert_eq!((1..100).take_while(|&key| segment.grant(key, Access::all())).count(), GRANTS);
    }

    #[test]
    fn other_files_are_no_segments() {
        let this = Process::current().unwrap();
        let file = SharedFile::create(c"other", PAGE).unwrap();
        assert!(matches!(Mapped::open(this, file.fd()), Err(PortError::Unreachable { .. })));
        // It says to be longer than it is.
        let segment = Segment::create(8).unwrap();
        segment.mapped.header[0].len.store(u64::MAX, Ordering::Relaxed);
        assert!(matches!(Mapped::open(this, segment.fd()), Err(PortError::Unreachable { .. })));
        // It ends within a word.
        let file = SharedFile::create(c"odd", PAGE + 3).unwrap();
        let header = file.map(0..PAGE).unwrap().view::<Header>(0, 1);
        header[0].version.store(VERSION, Ordering::Relaxed);
        for past_the_last_word in 0..8 {
            header[0].len.store((PAGE - size_of::<Header>() + past_the_last_word) as u64, Ordering::Relaxed);
            assert_eq!(Mapped::open(this, file.fd()).is_ok(), past_the_last_word == 0);
        }
        for len in [usize::MAX, usize::MAX / 2, usize::MAX / 2 - PAGE] {
            assert!(Segment::create(len).is_err(), "{len}");
        }
    }

    #[test]
    fn neighbours_of_a_copy_keep_what_others_write() {
        let segment = Segment::create(16).unwrap();
        std::thread::scope(|scope| {
            // Each writes its own bytes of the same two words.
            for at in 0..4usize {
                let mapped = segment.mapped();
                scope.spawn(move || (0..=100u8).for_each(|i| mapped.write(4 * at, &[i; 3])));
            }
        });
        let mut bytes = [0; 16];
        segment.mapped().read(0, &mut bytes);
        assert_eq!(bytes, std::array::from_fn(|i| if i % 4 < 3 { 100 } else { 0 }));
    }

    #[test]
    fn a_word_is_changed_in_one_step() {
        let segment = Segment::create(16).unwrap();
        let mapped = segment.mapped();
        std::thread::scope(|scope| {
            // Two halves of one word, and the whole of another.
            for (offset, width) in [(0, 4), (4, 4), (8, 8)].repeat(2) {
                scope.spawn(move || (0..1000).for_each(|_| _ = mapped.change(offset, width, Atomic::Add(3))));
            }
        });
        let swap = |expected, new| mapped.change(4, 4, Atomic::CompareSwap { expected, new });
        assert_eq!([swap(5, 9), swap(6000, 9), swap(9, u64::MAX)], [6000, 6000, 9]);
        assert_eq!(mapped.change(4, 4, Atomic::Add(1)), u32::MAX.into());
        assert_eq!(
            [(0, 4), (4, 4), (8, 8)].map(|(at, width)| mapped.change(at, width, Atomic::Add(0))),
            [6000, 0, 6000]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// Against a vector: copies of any alignment and length.
        #[test]
        fn a_segment_is_memory(
            len in 0usize..70,
            copies in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30)
        ) {
            let segment = Segment::create(len).unwrap();
            let mut model = vec![0u8; len];
            for (i, (a, b)) in copies.into_iter().enumerate() {
                let (a, b) = (a.index(len + 1), b.index(len + 1));
                let (start, end) = (a.min(b), a.max(b));
                let bytes: Vec<u8> = (start..end).map(|j| (i * 31 + j + 1) as u8).collect();
                segment.mapped().write(start, &bytes);
                model[start..end].copy_from_slice(&bytes);
                let mut all = vec![0xff; end - start];
                segment.mapped().read(start, &mut all);
                prop_assert_eq!(&all, &bytes);
            }
            let mut all = vec![0xff; len];
            segment.mapped().read(0, &mut all);
            prop_assert_eq!(all, model);
        }
    }
}
