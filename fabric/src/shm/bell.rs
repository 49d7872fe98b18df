//! The doorbell: how a sender makes itself heard by a port that does not look at its ring.
//!
//! A mark for each slot of the mailbox, and a count of the rings of the bell. A sender marks its slot, then
//! adds to the count; the owner of the mailbox compares the count with that of its last round, one load in
//! each poll, and goes to the marked slots when it has changed.
//!
//! A sender that is killed between the two leaves a mark, which the next ring of the bell takes along, or
//! the freeing of the slot.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Config, word::Word};

/// The bell of a mailbox, which all senders ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bell<W = AtomicU64> {
    count: W,
    _alone: [W; 7],
    /// A bit for each slot.
    marks: [W; MARKS],
}

impl<W: Default> Default for Bell<W> {
    fn default() -> Self {
        Self {
            count: W::default(),
            _alone: std::array::from_fn(|_| W::default()),
            marks: std::array::from_fn(|_| W::default()),
        }
    }
}

impl<W: Word> Bell<W> {
    /// Calls the owner to `slot`. It will see all that was written before.
    pub(super) fn ring(&self, slot: usize) {
        if self.mark(slot) {
            self.call();
        }
    }

    /// The first half of [`Bell::ring`]: whether there was no mark.
    pub(super) fn mark(&self, slot: usize) -> bool {
        let mark = 1 << (slot % 64);
        // Release, here and below: what was written before is seen by whoever takes the mark.
        self.marks[slot / 64].fetch_or(mark, Ordering::Release) & mark == 0
    }

    /// Calls the owner, to all that is marked.
    pub(super) fn call(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The count of rings.
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The next marked slot among the first `slots` (rounded up to whole words). Its mark is gone.
    pub(super) fn answer(&self, slots: usize) -> Option<usize> {
        let (word, marks) = self.marks[..slots.div_ceil(64)]
            .iter()
            .enumerate()
            .map(|(word, marks)| (word, marks.load(Ordering::Relaxed)))
            .find(|&(_, marks)| marks != 0)?;
        let bit = marks.trailing_zeros();
        let slot = word * 64 + bit as usize;
        self.unmark(slot);
        Some(slot)
    }

    /// Takes a mark away, if there is one.
    pub(super) fn unmark(&self, slot: usize) {
        self.marks[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Acquire);
    }
}

/// Words of marks.
const MARKS: usize = Config::PEERS_MAX.div_ceil(64);

const _: () = assert!(size_of::<Bell>() == (8 + MARKS) * size_of::<AtomicU64>());

// SAFETY: atomic words, `repr(C)`, in whole lines of 64 bytes: no padding.
unsafe impl samite_os::shared::Shareable for Bell {}

#[cfg(all(test, loom))]
mod model;
