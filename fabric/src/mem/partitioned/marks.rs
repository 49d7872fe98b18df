//! The marks of partitions. They say who may write and who may read each partition.

use std::ops::Range;
use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, AtomicUsize};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, AtomicUsize};

/// Two bits for each partition, and the number of readers.
///
/// Memory orders: a writer marks a partition or gives it back by a store with release order, and every load of the
/// marks has acquire order. So the writer's last access happens before any access of the thread that sees the mark. In
/// the same way, a reader's last access happens before the owner sees that the reader is gone.
#[derive(Debug)]
pub(super) struct Marks {
    len: usize,
    /// The partitions that are written or marked.
    taken: Box<[AtomicU64]>,
    marked: Box<[AtomicU64]>,
    /// The first word in which a partition may have been marked since a reader looked, or [`NONE`].
    news: AtomicUsize,
    readers: AtomicUsize,
}

/// Stands for no word.
const NONE: usize = usize::MAX;

impl Marks {
    pub(super) fn new(len: usize) -> Self {
        let words = || (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (news, readers) = (AtomicUsize::new(NONE), AtomicUsize::new(0));
        Self { len, taken: words(), marked: words(), news, readers }
    }

    /// Returns the number of partitions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes partitions, all or none.
    pub(super) fn take(&self, parts: Range<usize>) -> bool {
        for word in words_of(&parts) {
            let bits = bits_of(word, &parts);
            let former = self.taken[word].fetch_or(bits, Ordering::AcqRel);
            if former & bits != 0 {
                self.taken[word].fetch_and(!(bits & !former), Ordering::Release);
                for earlier in words_of(&parts).start..word {
                    self.taken[earlier].fetch_and(!bits_of(earlier, &parts), Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    /// Gives back the partitions that are not marked. The caller has taken all of them.
    pub(super) fn give_back(&self, parts: Range<usize>) {
        for word in words_of(&parts) {
            let bits = bits_of(word, &parts) & !self.marked[word].load(Ordering::Acquire);
            self.taken[word].fetch_and(!bits, Ordering::Release);
        }
    }

    /// Marks partitions that the caller has taken. Returns the number of those that were not marked before.
    pub(super) fn mark(&self, parts: Range<usize>) -> usize {
        let mut count = 0;
        for word in words_of(&parts) {
            let bits = bits_of(word, &parts);
            let former = self.marked[word].fetch_or(bits, Ordering::Release);
            count += (bits & !former).count_ones() as usize;
        }
        self.news.fetch_min(words_of(&parts).start, Ordering::Release);
        count
    }

    /// Returns the first word in which a partition may have been marked since the last call.
    pub(super) fn take_news(&self) -> Option<usize> {
        Some(self.news.swap(NONE, Ordering::AcqRel)).filter(|word| *word != NONE)
    }

    /// Returns a word of the marks.
    pub(super) fn word(&self, word: usize) -> u64 {
        self.marked[word].load(Ordering::Acquire)
    }

    pub(super) fn are_marked(&self, parts: Range<usize>) -> bool {
        words_of(&parts).all(|word| bits_of(word, &parts) & !self.word(word) == 0)
    }

    pub(super) fn are_unmarked(&self, parts: Range<usize>) -> bool {
        words_of(&parts).all(|word| bits_of(word, &parts) & self.word(word) == 0)
    }

    pub(super) fn add_reader(&self) {
        let former = self.readers.fetch_add(1, Ordering::Relaxed);
        assert_eq!(former, 0, "the news is for one reader");
    }

    pub(super) fn remove_reader(&self) {
        self.readers.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if no reader is left, and all partitions that are taken are marked. Only the owner calls this. The
    /// result stays true until the owner makes a reader or takes a partition, since only the owner can do so.
    pub(super) fn is_quiet(&self) -> bool {
        self.readers.load(Ordering::Acquire) == 0
            && (0..self.taken.len())
                .all(|word| self.taken[word].load(Ordering::Acquire) & !self.word(word) == 0)
    }

    /// Forgets all marks. The caller has checked that the memory is quiet.
    pub(super) fn reset(&self) {
        for word in self.taken.iter().chain(&self.marked) {
            word.store(0, Ordering::Relaxed);
        }
        self.news.store(NONE, Ordering::Relaxed);
    }
}

/// Returns the indices of the words that contain the bits of the partitions `parts`.
fn words_of(parts: &Range<usize>) -> Range<usize> {
    if parts.is_empty() { 0..0 } else { parts.start / 64..parts.end.div_ceil(64) }
}

/// Returns a mask of the bits of the partitions `parts` in the word with index `word`.
pub(super) fn bits_of(word: usize, parts: &Range<usize>) -> u64 {
    let base = word * 64;
    let (start, end) = (parts.start.max(base), parts.end.min(base + 64));
    if start >= end {
        return 0;
    }
    (u64::MAX >> (64 - (end - start))) << (start - base)
}

#[cfg(all(test, loom))]
mod model;
