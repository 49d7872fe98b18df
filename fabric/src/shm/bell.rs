//! The bell of a mailbox. With it a sender informs the mailbox's owner of a packet in a ring that the owner does not
//! poll.
//!
//! The bell has a mark for each slot of the mailbox, and a count of the times that it was rung. A sender marks its
//! slot, then increments the count. At each poll, the owner of the mailbox loads the count, and visits the marked slots
//! if the count has changed since the last visit.
//!
//! If a sender is killed between the two steps, its mark is found only when another sender increments the count. The
//! mark is removed at the latest when the slot is freed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Config, word::Word};

/// The bell of a mailbox, which all senders use.
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
    /// Marks `slot` and increments the count, so that the owner visits the slot. The owner then sees everything that
    /// this sender has written before.
    pub(super) fn ring(&self, slot: usize) {
        if self.mark(slot) {
            self.call();
        }
    }

    /// Sets the mark of a slot, which is the first step of [`Bell::ring`]. Returns true if the mark was not set before.
    pub(super) fn mark(&self, slot: usize) -> bool {
        let mark = 1 << (slot % 64);
        // The order is Release, here and below, so that the process that takes the mark sees all earlier writes.
        self.marks[slot / 64].fetch_or(mark, Ordering::Release) & mark == 0
    }

    /// Increments the count, so that the owner visits all marked slots. This is the second step of [`Bell::ring`].
    pub(super) fn call(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of times that the bell was rung.
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Takes the next mark among the first `slots` slots (rounded up to whole words), and returns its slot.
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

    /// Removes a mark, if there is one.
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
