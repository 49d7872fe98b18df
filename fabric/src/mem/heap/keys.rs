//! The first part of an arena's file: the length in use, and the keys of exposures.
//!
//! ```text
//!   ┌───────────────────┬───────────────┬───────────────┬─────┬───────────────┐
//!   │ version · length  │ key 1         │ key 2         │  …  │ key SLOTS − 1 │   a cache line each
//!   └───────────────────┴───────────────┴───────────────┴─────┴───────────────┘
//! ```
//! A key stands for one exposure, and the low bits of the key are its place in the table. A reader looks for the key
//! before and after its copy. There is no other synchronization between reader and owner.
//!
//! # Proof
//! Assume that the copy has read a byte that the owner wrote after the end of the exposure. [`Keys::end`] stores 0, and
//! then executes a release fence, and the write comes after that fence. The reader's acquire fence
//! ([`is_exposed_still`]) comes after the copy. So the release fence synchronizes with the acquire fence: 0 was stored
//! before the reader's second look. The second look does not find the reader's key, since no key is reused, so the
//! reader discards the copy. Conversely, [`Keys::begin`] stores the key with release order, after all earlier writes of
//! the owner, and a reader that finds the key ([`is_exposed`]) sees those writes. (The copy itself is not an atomic
//! access in the sense of the language. It is a series of loads by the machine, which the fences order like any other
//! loads.)

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::blocks::GRANULE;

/// The owner's state of the table.
pub(super) struct Keys {
    /// Serial number of the next key.
    serial: AtomicU64,
    /// A slot that is probably free.
    likely_free: AtomicUsize,
}

impl Keys {
    /// Returns keys that start at `serial`, which differs between processes.
    pub(super) fn new(serial: u64) -> Self {
        Self { serial: AtomicU64::new(serial), likely_free: AtomicUsize::new(1) }
    }

    /// Puts a new key in a free slot of the table. Returns `None` if no slot is free.
    pub(super) fn begin<W: Word>(&self, words: &[W]) -> Option<u64> {
        let (likely, slots) = (self.likely_free.load(Ordering::Relaxed), words.len() / LINE);
        // The serial number wraps after 2^52 keys.
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) << SLOT_BITS;
        let mut keys = (likely..slots).chain(1..likely).map(|slot| (slot, serial | slot as u64));
        let (slot, key) = keys.find(|&(slot, key)| words[slot * LINE].replace_zero(key))?;
        self.likely_free.store(slot % (slots - 1) + 1, Ordering::Relaxed);
        Some(key)
    }

    /// Removes a key. If a reader still finds the key when it has copied the bytes, it has copied none of the caller's
    /// later writes.
    pub(super) fn end<W: Word>(&self, words: &[W], key: u64) {
        let slot = slot_of(key);
        words[slot * LINE].store_zero();
        W::fence(Ordering::Release);
        self.likely_free.store(slot, Ordering::Relaxed);
    }
}

/// Returns true if this key is in the table; then all writes of the owner before [`Keys::begin`] are visible.
pub(super) fn is_exposed<W: Word>(words: &[W], key: u64) -> bool {
    let found = find(words, key);
    W::fence(Ordering::Acquire);
    found
}

/// Returns true if this key is still in the table after all copies that the caller made before this call.
pub(super) fn is_exposed_still<W: Word>(words: &[W], key: u64) -> bool {
    W::fence(Ordering::Acquire);
    find(words, key)
}

fn find<W: Word>(words: &[W], key: u64) -> bool {
    let slot = slot_of(key);
    slot != 0 && words[slot * LINE].load() == key
}

fn slot_of(key: u64) -> usize {
    key as usize % SLOTS
}

/// A word of the table. It is a trait, so that the words of a model checker (loom) can be used instead.
pub(super) trait Word {
    /// Loads the word with relaxed order. In memory that is mapped for reading only, relaxed loads are the only atomic
    /// accesses that the standard library guarantees to work (std::sync::atomic).
    fn load(&self) -> u64;
    fn store_zero(&self);
    /// Stores `key` if the word is 0, with release order. Returns true if it was 0.
    fn replace_zero(&self, key: u64) -> bool;
    /// Executes a fence, as `std::sync::atomic::fence` does.
    fn fence(order: Ordering);
}

macro_rules! word {
    ($atomic:ident in $($module:ident)::+) => {
        impl Word for $($module)::+::$atomic {
            #[inline(always)]
            fn load(&self) -> u64 {
                self.load(Ordering::Relaxed)
            }

            #[inline(always)]
            fn store_zero(&self) {
                self.store(0, Ordering::Relaxed);
            }

            #[inline(always)]
            fn replace_zero(&self, key: u64) -> bool {
                self.load(Ordering::Relaxed) == 0
                    && self.compare_exchange(0, key, Ordering::Release, Ordering::Relaxed).is_ok()
            }

            #[inline(always)]
            fn fence(order: Ordering) {
                $($module)::+::fence(order);
            }
        }
    };
}

word!(AtomicU64 in std::sync::atomic);
#[cfg(all(test, loom))]
word!(AtomicU64 in loom::sync::atomic);

/// The version of the file's layout, which owner and readers must share.
pub(super) const VERSION: u64 = u64::from_le_bytes(*b"sm-heap\x01");
/// The index of the word that holds the version.
pub(super) const AT_VERSION: usize = 0;
/// The index of the word that holds the number of bytes in use.
pub(super) const AT_LEN: usize = 1;

/// The number of slots. Slot 0 is the header, so that no key is 0.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
/// The number of words in a cache line. Each key has a line of its own, so that processors that access different keys
/// do not share a line.
const LINE: usize = 8;

/// Bytes of the table.
pub(super) const BYTES: usize = SLOTS * LINE * size_of::<AtomicU64>();

const _: () = assert!(BYTES.is_multiple_of(GRANULE));

#[cfg(all(test, loom))]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<AtomicU64> {
        (0..SLOTS * LINE).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_key_is_there_from_its_beginning_to_its_end_and_never_again() {
        let (words, keys) = (table(), Keys::new(u64::MAX));
        let mut former = Vec::new();
        for _ in 0..3 * SLOTS {
            let key = keys.begin(&words).unwrap();
            assert!(is_exposed(&words, key) && is_exposed_still(&words, key));
            assert!(!former.contains(&key));
            former.push(key);
            keys.end(&words, key);
            assert!(!is_exposed(&words, key) && !is_exposed_still(&words, key));
            former.drain(..former.len().saturating_sub(10));
        }
        for forged in [0, u64::MAX, SLOTS as u64, 1] {
            assert!(!is_exposed(&words, forged));
        }
    }

    #[test]
    fn there_are_so_many_and_each_end_makes_room_for_one() {
        let (words, keys) = (table(), Keys::new(7));
        let all: Vec<_> = std::iter::from_fn(|| keys.begin(&words)).collect();
        assert_eq!(all.len(), SLOTS - 1);
        for &key in all.iter().step_by(1000) {
            keys.end(&words, key);
            let another = keys.begin(&words).unwrap();
            assert!(another != key && slot_of(another) == slot_of(key));
            assert_eq!(keys.begin(&words), None);
        }
        assert!(words[..LINE].iter().all(|word| word.load(Ordering::Relaxed) == 0), "the header is none");
    }

    #[test]
    fn threads_never_share_a_slot() {
        let (words, keys) = (table(), Keys::new(7));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 10 } else { 10_000 } {
                        let held = [(); 3].map(|()| keys.begin(&words).unwrap());
                        assert!(held.iter().all(|&key| is_exposed(&words, key)));
                        held.iter().for_each(|&key| keys.end(&words, key));
                    }
                });
            }
        });
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
