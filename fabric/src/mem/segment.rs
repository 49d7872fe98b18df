//! Memory that other processes of the host can map: the bytes of a shared [`Region`](super::Region).
//!
//! ```text
//!   ┌───────────────────────────┬──────────────┐
//!   │ header: length, grants    │ the bytes    │   a file in memory without a name
//!   └───────────────────────────┴──────────────┘
//! ```
//! A *grant* is a key, a span of bytes, and the accesses that the key permits to the span. The owner writes a grant
//! when it registers the span, and removes the grant when it deregisters the span. A process that maps the segment
//! looks for its key among the grants before it touches a byte, and after, so that an access with a revoked key does
//! not count as success. This prevents mistakes, not attacks: a process that may map the file could as well read and
//! write all the owner's memory. A grant never contains addresses: an access is checked against the length of the
//! mapping, which was read once.
//!
//! The upper half of a key, which is random, gives the place in the table where the search for its grant begins.
//!
//! # Soundness
//! Any process may write the bytes at any time. They are accessed only by 64-bit atomics. A copy that begins or
//! ends within a word preserves the rest of the word by compare-and-swap. No reference to the bytes is ever given
//! out, and they never become a [`Memory`](super::Memory) again.

use std::ops::Range;
use std::ptr::copy_nonoverlapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::copy::{copy_apart, load_words, store_words};
use crate::{Access, Change, PortError};
use samite_os::fork::ForkMark;
use samite_os::process::Process;
use samite_os::shared::{PAGE, Shareable, SharedFile, View};

/// A segment of this process.
#[derive(Debug)]
pub(crate) struct Segment {
    file: SharedFile,
    mapped: Arc<Mapped>,
    mark: ForkMark,
}

impl Segment {
    /// Creates a segment of `len` bytes of zero, all of them allocated.
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
        let words = mapping.view(size_of::<Header>(), len.div_ceil(WORD));
        let mapped = Arc::new(Mapped { words, header, len });
        let mark = ForkMark::new().map_err(|error| PortError::Provider {
            call: "madvise(MADV_WIPEONFORK)",
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "shared memory needs Linux 4.14 or later".into(),
        })?;
        Ok(Self { file, mapped, mark })
    }

    /// Returns the descriptor by which other processes find the segment.
    pub(crate) fn fd(&self) -> u32 {
        self.file.fd()
    }

    /// Returns the bytes.
    pub(crate) fn mapped(&self) -> &Arc<Mapped> {
        &self.mapped
    }

    /// Lets processes that know `key` access the bytes of `span`. The upper half of the key is not 0. Returns false if
    /// the table of grants is full.
    pub(crate) fn grant(&self, key: u64, access: Access, span: &Range<usize>) -> bool {
        let claim = |grant: &&Grant| {
            // Ports of several threads may register parts of one segment at the same time.
            grant.key.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(free) = self.mapped.places(key).find(claim) else { return false };
        free.access.store(access.bits().into(), Ordering::Relaxed);
        free.start.store(span.start as u64, Ordering::Relaxed);
        free.end.store(span.end as u64, Ordering::Relaxed);
        free.key.store(key, Ordering::Release);
        true
    }

    /// Revokes a key. In a child of fork(2) it does nothing, because the grants belong to the parent.
    pub(crate) fn revoke(&self, key: u64) {
        if self.mark.is_in_child() {
            return;
        }
        if let Some(grant) = self.mapped.places(key).find(|grant| grant.key.load(Ordering::Relaxed) == key) {
            grant.key.store(0, Ordering::Release);
        }
    }
}

/// The result of a search for a grant: a place in the table, where the key is if it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    key: u64,
    place: usize,
}

/// A segment of this or another process, mapped in this process.
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
        // Only whole words count, though the file may end within one.
        let room = (file.size() - size_of::<Header>()) / WORD * WORD;
        match usize::try_from(header[0].len.load(Ordering::Relaxed)) {
            Ok(len) if header[0].version.load(Ordering::Relaxed) == VERSION && len <= room => {
                Ok(Self { words: mapping.view(size_of::<Header>(), len.div_ceil(WORD)), header, len })
            }
            _ => Err(unreachable()),
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if `key` permits this access to `len` bytes from `offset` on.
    #[inline]
    pub(crate) fn permits(&self, key: u64, access: Access, offset: usize, len: usize) -> bool {
        // Prevents the processor and the compiler from moving earlier copies to a time after this check.
        fence(Ordering::Acquire);
        let is_meant = |grant: &&Grant| grant.key.load(Ordering::Acquire) == key;
        // The grant is nearly always at the place where the search begins.
        let first = &self.header[0].grants[home(key)];
        let grant = if is_meant(&first) { Some(first) } else { self.places(key).find(is_meant) };
        let Some(grant) = grant.filter(|_| key > CLAIMED) else { return false };
        let (start, end) = (grant.start.load(Ordering::Relaxed), grant.end.load(Ordering::Relaxed));
        let access_granted = Access::from_bits_truncate(grant.access.load(Ordering::Relaxed) as u8);
        let past = offset.checked_add(len).filter(|&past| past <= self.len);
        access_granted.contains(access)
            && start <= offset as u64
            && past.is_some_and(|past| past as u64 <= end)
    }

    /// Looks for the grant of `key`.
    pub(crate) fn find(&self, key: u64) -> Found {
        let is_meant = |grant: &Grant| grant.key.load(Ordering::Relaxed) == key;
        Found { key, place: self.header[0].grants.iter().position(is_meant).unwrap_or(0) }
    }

    /// Returns true as long as the owner has not revoked the grant. What a grant permits does not change meanwhile.
    #[inline]
    pub(crate) fn is_valid(&self, Found { key, place }: Found) -> bool {
        key > CLAIMED && self.header[0].grants[place].key.load(Ordering::Acquire) == key
    }

    /// Iterates over all grants, in the order of a search for the grant of `key`: the most likely place comes first.
    fn places(&self, key: u64) -> impl Iterator<Item = &Grant> {
        let (before, from) = self.header[0].grants.split_at(home(key));
        from.iter().chain(before)
    }

    /// Returns true if there is any grant.
    pub(crate) fn is_granted(&self) -> bool {
        self.header[0].grants.iter().any(|grant| grant.key.load(Ordering::Relaxed) != 0)
    }

    /// Returns the words for atomic access. The bytes within a word are in the machine's order.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Copies the bytes at `offset` into `into`. Afterwards, the writes are visible that the writers of these bytes have
    /// made before them.
    ///
    /// # Panics
    /// If the bytes are not all in the segment.
    #[inline]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        if offset.is_multiple_of(WORD)
            && let Ok(into) = <&mut [u8; WORD]>::try_from(&mut *into)
        {
            *into = self.word(offset).load(Ordering::Acquire).to_ne_bytes();
            return;
        }
        self.read_bytes(offset, into);
    }

    fn read_bytes(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.len, "a copy stays inside");
        load_words(&self.words, offset, into);
        fence(Ordering::Acquire);
    }

    /// Copies bytes in, from `offset` on. They become visible after the bytes of earlier copies.
    ///
    /// # Panics
    /// If the bytes do not lie in the segment.
    #[inline]
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        // SAFETY: a slice can be read for its length.
        unsafe { self.write_from(offset, from.as_ptr(), from.len()) }
    }

    /// Writes `len` bytes from `from`, as [`Mapped::write`] does.
    ///
    /// # Panics
    /// If the bytes do not lie in the segment.
    ///
    /// # Safety
    /// `len` bytes can be read at `from`.
    #[inline]
    pub(crate) unsafe fn write_from(&self, offset: usize, from: *const u8, len: usize) {
        if len == WORD && offset.is_multiple_of(WORD) {
            // SAFETY: the caller guarantees the bytes of a word.
            let word = unsafe { from.cast::<u64>().read_unaligned() };
            self.word(offset).store(word, Ordering::Release);
            return;
        }
        // SAFETY: as the caller guarantees.
        unsafe { self.write_bytes_from(offset, from, len) }
    }

    unsafe fn write_bytes_from(&self, offset: usize, from: *const u8, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a copy stays inside");
        fence(Ordering::Release);
        let (first, skipped) = (offset / WORD, offset % WORD);
        let head = head_of(skipped, len);
        if head > 0 {
            // SAFETY: `head` is at most `len`, and at most the rest of the word.
            unsafe { merge(&self.words[first], skipped, from, head) };
        }
        let words = &self.words[first + usize::from(head > 0)..];
        let (whole, tail) = words.split_at((len - head) / WORD);
        // SAFETY: after the head, `from` has as many words as the split says.
        unsafe { store_words(whole, from.add(head)) };
        let copied = head + WORD * whole.len();
        if copied < len {
            // SAFETY: fewer bytes than a word are left.
            unsafe { merge(&tail[0], 0, from.add(copied), len - copied) };
        }
    }

    /// Copies `len` bytes out, from `offset` on, to the memory at `into`.
    ///
    /// # Panics
    /// If the bytes do not lie in the segment.
    ///
    /// # Safety
    /// `len` bytes can be written at `into`, and no other code accesses them during the call.
    pub(crate) unsafe fn read_into(&self, offset: usize, into: *mut u8, len: usize) {
        let mut piece = [0; PIECE];
        for at in (0..len).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(len - at)];
            self.read(offset + at, piece);
            // SAFETY: by the bounds of the loop there is room for the piece from `at` on, which no other code accesses.
            // The piece is a local array, so the two do not overlap.
            unsafe { copy_apart(piece.as_ptr(), into.add(at), piece.len()) };
        }
    }

    /// Changes the word of 8 bytes at `offset`, a multiple of 8, atomically, and returns its former value. A process
    /// that sees the change sees earlier writes too.
    ///
    /// # Panics
    /// If the word is not aligned, or does not lie in the segment.
    #[inline]
    pub(crate) fn change(&self, offset: usize, how: Change) -> u64 {
        const ORDER: Ordering = Ordering::SeqCst;
        let word = self.word(offset);
        let either = |result: Result<u64, u64>| result.unwrap_or_else(|unchanged| unchanged);
        match how {
            Change::Add(operand) => word.fetch_add(operand, ORDER),
            Change::Swap(new) => word.swap(new, ORDER),
            Change::CompareSwap { expected, new } => {
                either(word.compare_exchange(expected, new, ORDER, ORDER))
            }
            Change::And(operand) => word.fetch_and(operand, ORDER),
            Change::Or(operand) => word.fetch_or(operand, ORDER),
            Change::Xor(operand) => word.fetch_xor(operand, ORDER),
            Change::Min(operand) => word.fetch_min(operand, ORDER),
            Change::Max(operand) => word.fetch_max(operand, ORDER),
            Change::MinSigned(_) | Change::MaxSigned(_) => {
                either(word.fetch_update(ORDER, ORDER, |before| Some(how.apply(before))))
            }
        }
    }

    /// Returns the word at `offset`, a multiple of 8.
    ///
    /// # Panics
    /// If the word is not aligned, or does not lie in the segment.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let inside = offset.checked_add(WORD).is_some_and(|end| end <= self.len);
        assert!(offset.is_multiple_of(WORD) && inside, "a word stays inside");
        &self.words[offset / WORD]
    }
}

/// Returns how many of the `len` bytes of a copy lie in its first word, if the copy begins at byte `skipped` of that
/// word. Returns 0 if the copy begins at the start of a word: then there is no partial word to treat separately.
fn head_of(skipped: usize, len: usize) -> usize {
    if skipped == 0 { 0 } else { len.min(WORD - skipped) }
}

/// Writes `len` bytes of a word, from byte `at` of the word on, and preserves the word's other bytes.
///
/// # Safety
/// `len` bytes can be read at `from`, and `at + len` is at most a word.
#[inline]
unsafe fn merge(word: &AtomicU64, at: usize, from: *const u8, len: usize) {
    let mut bytes = [0; WORD];
    // SAFETY: the caller guarantees `from`; the array is as long as a word.
    unsafe { copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
    let with = |old: u64| {
        let mut all = old.to_ne_bytes();
        all[at..at + len].copy_from_slice(&bytes[..len]);
        Some(u64::from_ne_bytes(all))
    };
    // The closure always returns a value.
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
    /// 0 if the grant is free.
    key: AtomicU64,
    /// Bits of [`Access`].
    access: AtomicU64,
    /// The first byte that the key opens.
    start: AtomicU64,
    /// The end of the bytes that the key opens.
    end: AtomicU64,
}

/// The largest number of registrations of one segment at a time. It allows for the spans of many windows, each
/// registered with several ports. The table takes 32 KiB of each segment.
const GRANTS: usize = 1024;

/// Returns the place where the search for a key's grant begins.
#[inline]
fn home(key: u64) -> usize {
    (key >> 32) as usize % GRANTS
}

/// The value of a grant's key while the grant is written. Every real key is greater.
const CLAIMED: u64 = 1;

/// The number of bytes that are copied to this process's memory in one step. They stay in a first-level cache.
const PIECE: usize = 4096;

const WORD: usize = size_of::<AtomicU64>();

const VERSION: u64 = u64::from_le_bytes(*b"segment\x02");

const _: () = assert!(size_of::<Header>() == (8 + 4 * GRANTS) * WORD);

// SAFETY: atomic words, `repr(C)`, whose sizes add up to the struct's: no padding.
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
        let key = |number: u64| number << 32;
        let permits = |number, access| theirs.permits(key(number), access, 0, 100);
        assert!(segment.grant(key(7), Access::REMOTE_READ, &(0..100)));
        assert!(segment.grant(key(8), Access::REMOTE_WRITE, &(0..100)));
        assert!(permits(7, Access::REMOTE_READ) && !permits(7, Access::REMOTE_WRITE));
        assert!(permits(8, Access::REMOTE_WRITE) && !permits(9, Access::REMOTE_READ));
        segment.revoke(key(7));
        assert!(!permits(7, Access::REMOTE_READ) && theirs.is_granted());
        segment.revoke(key(8));
        assert!(!theirs.is_granted() && !permits(0, Access::empty()));
        assert!(!theirs.permits(CLAIMED, Access::empty(), 0, 0));
    }

    #[test]
    fn a_key_opens_its_span_and_no_other() {
        let segment = Segment::create(100).unwrap();
        let theirs = Mapped::open(Process::current().unwrap(), segment.fd()).unwrap();
        // The search for each of these keys begins at the same place.
        let key = |number: usize| 1 << 50 | number as u64;
        let span = |number: usize| number % 50..number % 50 + 10;
        for number in 0..GRANTS {
            assert!(segment.grant(key(number), Access::all(), &span(number)));
        }
        assert!(!segment.grant(key(GRANTS), Access::all(), &(0..1)), "there are no more");
        for number in 0..GRANTS {
            let (start, permits) =
                (span(number).start, |at, len| theirs.permits(key(number), Access::all(), at, len));
            assert!(permits(start, 10) && permits(start + 9, 1) && permits(start + 10, 0));
            assert!(!permits(start, 11) && !permits(start + 10, 1) && !permits(start + 1, usize::MAX));
            assert!(start == 0 || !permits(start - 1, 1));
        }
        segment.revoke(key(3));
        assert!(segment.grant(key(GRANTS), Access::all(), &(95..200)));
        assert!(theirs.permits(key(GRANTS), Access::all(), 95, 5));
        assert!(
            !theirs.permits(key(GRANTS), Access::all(), 95, 6),
            "the segment ends, whatever the grant says"
        );
        assert!(theirs.permits(key(GRANTS - 1), Access::all(), span(GRANTS - 1).start, 1));
    }

    #[test]
    fn threads_grant_and_revoke_at_once() {
        let segment = Segment::create(8).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let segment = &segment;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let key = 7 << 50 | thread << 33 | round << 8;
                        assert!(segment.grant(key, Access::all(), &(0..8)));
                        assert!(
                            segment.mapped.permits(key, Access::all(), 0, 8),
                            "nobody else has written it over"
                        );
                        segment.revoke(key);
                        assert!(!segment.mapped.permits(key, Access::all(), 0, 8));
                    }
                });
            }
        });
        assert!(!segment.mapped.is_granted());
    }

    #[test]
    fn other_files_are_no_segments() {
        let this = Process::current().unwrap();
        let file = SharedFile::create(c"other", PAGE).unwrap();
        assert!(matches!(Mapped::open(this, file.fd()), Err(PortError::Unreachable { .. })));
        // Writes a greater length to the header than the file has.
        let segment = Segment::create(8).unwrap();
        segment.mapped.header[0].len.store(u64::MAX, Ordering::Relaxed);
        assert!(matches!(Mapped::open(this, segment.fd()), Err(PortError::Unreachable { .. })));
        // Makes a file that ends within a word.
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
    fn writes_begin_and_end_anywhere() {
        let segment = Segment::create(1000).unwrap();
        let mapped = segment.mapped();
        let bytes: Vec<u8> = (0..700).map(|index| (index % 251) as u8 + 1).collect();
        let mut expected = vec![0xee; 1000];
        for offset in (0..18).chain(60..70) {
            for len in (0..=80).chain(240..=340).chain([511, 512, 513, 700]) {
                expected.fill(0xee);
                mapped.write(0, &expected);
                mapped.write(offset, &bytes[700 - len..]);
                expected[offset..][..len].copy_from_slice(&bytes[700 - len..]);
                let mut all = vec![0; 1000];
                mapped.read(0, &mut all);
                assert_eq!(all, expected, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn neighbours_of_a_copy_keep_what_others_write() {
        let segment = Segment::create(16).unwrap();
        std::thread::scope(|scope| {
            // Each thread writes its own bytes of the same two words.
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
        let segment = Segment::create(24).unwrap();
        let mapped = segment.mapped();
        let operands = [0, 1, 5, u64::MAX, 1 << 63, u64::MAX >> 1, 0xf0f0];
        for (before, operand) in operands.into_iter().flat_map(|a| operands.map(|b| (a, b))) {
            let signed = operand.cast_signed();
            for (how, after) in [
                (Change::Add(operand), before.wrapping_add(operand)),
                (Change::Swap(operand), operand),
                (Change::CompareSwap { expected: before, new: operand }, operand),
                (Change::CompareSwap { expected: !before, new: operand }, before),
                (Change::And(operand), before & operand),
                (Change::Or(operand), before | operand),
                (Change::Xor(operand), before ^ operand),
                (Change::Min(operand), before.min(operand)),
                (Change::Max(operand), before.max(operand)),
                (Change::MinSigned(signed), if before.cast_signed() < signed { before } else { operand }),
                (Change::MaxSigned(signed), if before.cast_signed() > signed { before } else { operand }),
            ] {
                mapped.write(8, &before.to_ne_bytes());
                assert_eq!(mapped.change(8, how), before, "{how:?}");
                assert_eq!(mapped.word(8).load(Ordering::Relaxed), after, "{how:?} of {before}");
                assert_eq!(how.apply(before), after, "{how:?} of {before}");
            }
        }
        assert_eq!([0, 16].map(|at| mapped.word(at).load(Ordering::Relaxed)), [0, 0], "and no other word");
    }

    #[test]
    fn changes_of_many_threads_sum_up() {
        let segment = Segment::create(16).unwrap();
        let mapped = segment.mapped();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        mapped.change(0, Change::Add(3));
                        mapped
                            .change(8, Change::MaxSigned(mapped.change(8, Change::Or(0)).cast_signed() + 1));
                    }
                });
            }
        });
        assert_eq!(mapped.change(0, Change::Swap(0)), 12_000);
        assert!((1000..=4000).contains(&mapped.change(8, Change::Swap(0))));
    }

    #[test]
    #[should_panic(expected = "a word stays inside")]
    fn a_word_lies_whole_in_a_segment() {
        Segment::create(12).unwrap().mapped().change(8, Change::Or(1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// Compares with a vector: copies of any alignment and length.
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
