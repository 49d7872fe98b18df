//! The log: all messages of a context in order of arrival.

use alloc::vec::Vec;
use core::mem;

use crate::pool::{Pool, Slot};
use crate::query::Query;

use super::list::AdaptiveLinks;

/// The slots of a context's messages in order of arrival: a ring buffer with 4 bytes for each message.
///
/// A message stores its place in the log, so its removal is one store and touches no other message. The removal leaves
/// a gap. Gaps before the first message are skipped by the next search, or by an insertion that needs room. The other
/// gaps are closed when a message arrives and the gaps outnumber the messages, if also the ring buffer is full or the
/// surplus of gaps is more than `CELLS_MIN`.
#[derive(Debug)]
pub(super) struct Log {
    /// Place `p` is in cell `p` modulo the number of cells, which is a power of two, or 0.
    cells: Vec<Option<Slot>>,
    /// The first place in use.
    front: u32,
    /// The place after the last place in use. `front` and `back` wrap around.
    back: u32,
}

pub(super) const CELL_BYTES: usize = mem::size_of::<Option<Slot>>();

/// The minimum number of cells once there are any. In a log with free cells, the gaps are closed only when they
/// outnumber the messages by more than this number.
const CELLS_MIN: usize = 64;

impl Log {
    pub(super) const EMPTY: Self = Self { cells: Vec::new(), front: 0, back: 0 };

    /// Returns the number of places in use, gaps included.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.back.wrapping_sub(self.front) as usize
    }

    /// Returns the bytes obtained from the allocator.
    pub(super) fn reserved(&self) -> usize {
        self.cells.capacity() * CELL_BYTES
    }

    /// Appends the message at `slot`, and returns its place. `messages` is the number of messages in the queue, the new
    /// message included.
    #[inline(always)]
    pub(super) fn push_back<Q: Query, T>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
        messages: u32,
    ) -> u32 {
        if self.len() == self.cells.len() || self.len() >= 2 * messages as usize + CELLS_MIN {
            self.make_room(pool, messages);
        }
        let place = self.back;
        let cell = self.cell(place);
        self.cells[cell] = Some(slot);
        self.back = place.wrapping_add(1);
        place
    }

    /// Removes the message at a place.
    #[inline(always)]
    pub(super) fn remove(&mut self, place: u32) {
        let cell = self.cell(place);
        self.cells[cell] = None;
    }

    /// Clears all places after every message has been removed.
    pub(super) fn clear(&mut self) {
        self.front = self.back;
    }

    /// Skips the gaps before the first message. Each gap is skipped once.
    pub(super) fn skip_gaps(&mut self) {
        while self.front != self.back && self.cells[self.cell(self.front)].is_none() {
            self.front = self.front.wrapping_add(1);
        }
    }

    /// Iterates over the places in use, oldest first. An item is the slot of a message, or `None` for a gap.
    pub(super) fn places(&self) -> impl Iterator<Item = Option<Slot>> {
        (0..self.len() as u32).map(|at| self.cells[self.cell(self.front.wrapping_add(at))])
    }

    /// Iterates over the messages, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.places().flatten()
    }

    #[inline(always)]
    fn cell(&self, place: u32) -> usize {
        place as usize & self.cells.len().wrapping_sub(1)
    }

    /// Makes room for a message: skips the gaps before the first message, closes the other gaps if they outnumber the
    /// messages, and allocates more cells if the log is still full.
    #[cold]
    fn make_room<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, messages: u32) {
        self.skip_gaps();
        let has_gaps = self.len() >= 2 * messages as usize;
        if has_gaps {
            let mut back = self.front;
            for at in 0..self.len() as u32 {
                let from = self.cell(self.front.wrapping_add(at));
                if let Some(slot) = self.cells[from].take() {
                    pool[slot].links.order = u64::from(back);
                    let to = self.cell(back);
                    self.cells[to] = Some(slot);
                    back = back.wrapping_add(1);
                }
            }
            self.back = back;
        }
        if self.len() == self.cells.len() {
            let mut fresh = Vec::new();
            let cells = (2 * self.cells.len()).max(CELLS_MIN);
            fresh.reserve_exact(cells);
            fresh.resize(cells, None);
            for (at, slot) in self.places().enumerate() {
                fresh[self.front.wrapping_add(at as u32) as usize & (cells - 1)] = slot;
            }
            self.cells = fresh;
        }
    }
}
