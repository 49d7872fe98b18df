//! Queue entries in reusable slots, which have 32-bit numbers.

use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU32;

use crate::query::Query;

/// The index of an entry in its [`Pool`]. It is non-zero, so that an `Option` of it has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// Returns the slot's number, from 1.
    pub(crate) const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the slot's number as a type that excludes 0.
    pub(crate) const fn number(self) -> NonZeroU32 {
        self.0
    }

    /// Returns the slot with that number, or `None` for 0.
    pub(crate) const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the slot of the last cell of a pool with `cells` cells.
    fn last_of(cells: usize) -> Self {
        Self::new(cells as u32).expect("there is a cell")
    }

    const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// An item of one of the two queues. The context is not stored; a structure that needs it keeps it in its links.
#[derive(Debug)]
pub struct Entry<Q: Query, L, T> {
    /// The number of entries that the slot has held so far, this entry included. It is never zero, so the compiler can
    /// use the value zero to distinguish free cells from used ones, without additional memory.
    generation: NonZeroU32,
    /// [`Source`](crate::Source) as 32 bits: a rank, or `u32::MAX` in receives from any source.
    pub(crate) source: u32,
    pub(crate) tag: u64,
    pub(crate) mask: Q::Mask,
    pub(crate) links: L,
    pub(crate) payload: T,
}

/// The entries of one queue.
///
/// A free slot stores the generation of its next entry, so a handle of (slot, generation) never refers to another
/// entry. A slot that has used all generations is retired: it is not used again.
///
/// The slot that was freed most recently is reused first. A pool that becomes empty is *reset* if more than `ANEW_MIN`
/// of its cells have been used: it starts again with its first slot that is not retired. New entries are then stored in
/// the order of insertion, regardless of the order in which older entries were removed.
#[derive(Debug)]
pub struct Pool<Q: Query, L, T> {
    cells: Vec<Cell<Q, L, T>>,
    /// The first slot of the list of free slots: the slot that was freed most recently. The list contains only slots
    /// that were freed since the latest reset.
    free: Option<Slot>,
    /// The number of cells, from the first, that have been used since the latest reset or were skipped as retired. The
    /// cells behind them are free and not in the list of free slots.
    begun: usize,
    /// The number of consecutive retired cells at the start of `cells`, as counted at the latest reset.
    retired: usize,
    len: usize,
}

#[derive(Debug)]
enum Cell<Q: Query, L, T> {
    Used(Entry<Q, L, T>),
    Free {
        /// The generation of the cell's next entry, or `RETIRED`.
        generation: NonZeroU32,
        /// The next slot of the list of free slots, which was freed before this slot.
        next: Option<Slot>,
    },
}

/// The maximum number of used cells at which a pool that becomes empty is not reset.
const ANEW_MIN: usize = 64;

/// The highest generation that an entry can have.
const LAST: NonZeroU32 = NonZeroU32::new(u32::MAX - 1).expect("it is not 0");

/// The generation of a retired slot; no entry has it.
const RETIRED: NonZeroU32 = NonZeroU32::MAX;

impl<Q: Query, L, T> Pool<Q, L, T> {
    /// The bytes of one entry.
    pub(crate) const ENTRY_BYTES: usize = mem::size_of::<Cell<Q, L, T>>();

    /// Returns an empty pool, which holds no memory.
    pub(crate) const fn new() -> Self {
        Self { cells: Vec::new(), free: None, begun: 0, retired: 0, len: 0 }
    }

    /// Returns the number of entries in use.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the payloads of the entries in use, in the order of their slots.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &T> {
        self.cells.iter().filter_map(|cell| match cell {
            Cell::Used(entry) => Some(&entry.payload),
            Cell::Free { .. } => None,
        })
    }

    /// Returns the bytes of the entries in use.
    pub(crate) const fn bytes(&self) -> usize {
        self.len * Self::ENTRY_BYTES
    }

    /// Returns the bytes obtained from the allocator.
    pub(crate) fn reserved(&self) -> usize {
        self.cells.capacity() * Self::ENTRY_BYTES
    }

    /// Ensures that there is room for one more entry, and allocates if necessary. Returns false if allocation fails, or
    /// if all slot numbers are in use.
    pub(crate) fn make_room(&mut self) -> bool {
        self.free.is_some()
            || self.begun < self.cells.len()
            || (self.cells.len() < u32::MAX as usize - 1 && self.cells.try_reserve(1).is_ok())
    }

    /// Stores an entry, and returns its slot and generation. Call [`make_room`](Self::make_room) first.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        source: u32,
        tag: u64,
        mask: Q::Mask,
        links: L,
        payload: T,
    ) -> (Slot, NonZeroU32) {
        self.len += 1;
        let (slot, generation) = match self.free {
            Some(slot) => {
                let Cell::Free { generation, next } = self.cells[slot.index()] else { in_use(slot) };
                self.free = next;
                (slot, generation)
            }
            None => self.begin_cell(),
        };
        self.cells[slot.index()] = Cell::Used(Entry { generation, source, tag, mask, links, payload });
        (slot, generation)
    }

    /// Takes an entry out and frees its slot.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: Slot) -> Entry<Q, L, T> {
        let cell = &mut self.cells[slot.index()];
        let Cell::Used(Entry { generation, .. }) = cell else { not_in_use(slot) };
        let freed = if *generation < LAST {
            Cell::Free { generation: generation.saturating_add(1), next: self.free.replace(slot) }
        } else {
            // The retired slot is neither on the free list nor reachable by a handle.
            Cell::Free { generation: RETIRED, next: None }
        };
        let Cell::Used(entry) = mem::replace(cell, freed) else { not_in_use(slot) };
        self.len -= 1;
        if self.begun > ANEW_MIN && self.len == 0 {
            self.begin_anew();
        }
        entry
    }

    /// Returns the first slot that has not been used since the latest reset, and the generation of its next entry.
    /// Skips retired slots.
    #[inline(always)]
    fn begin_cell(&mut self) -> (Slot, NonZeroU32) {
        self.begun += 1;
        match self.cells.get(self.begun - 1) {
            Some(Cell::Free { generation: RETIRED, .. }) => self.begin_later_cell(),
            Some(&Cell::Free { generation, .. }) => (Slot::last_of(self.begun), generation),
            Some(Cell::Used(_)) => in_use(Slot::last_of(self.begun)),
            None => {
                self.cells.push(Cell::Free { generation: NonZeroU32::MIN, next: None });
                (Slot::last_of(self.begun), NonZeroU32::MIN)
            }
        }
    }

    /// Continues [`begin_cell`](Self::begin_cell) after a retired cell.
    #[cold]
    fn begin_later_cell(&mut self) -> (Slot, NonZeroU32) {
        self.begin_cell()
    }

    /// Resets the pool after its last entry was taken out.
    #[cold]
    fn begin_anew(&mut self) {
        while let Some(Cell::Free { generation: RETIRED, .. }) = self.cells.get(self.retired) {
            self.retired += 1;
        }
        (self.free, self.begun) = (None, self.retired);
    }

    /// Returns the generation of the entry in a used slot.
    pub(crate) fn generation(&self, slot: Slot) -> NonZeroU32 {
        self[slot].generation
    }

    /// Returns true if the slot still holds the entry of that generation.
    pub(crate) fn holds(&self, slot: Slot, generation: NonZeroU32) -> bool {
        matches!(self.cells.get(slot.index()), Some(Cell::Used(entry)) if entry.generation == generation)
    }
}

impl<Q: Query, L, T> core::ops::Index<Slot> for Pool<Q, L, T> {
    type Output = Entry<Q, L, T>;

    #[inline(always)]
    fn index(&self, slot: Slot) -> &Entry<Q, L, T> {
        match &self.cells[slot.index()] {
            Cell::Used(entry) => entry,
            Cell::Free { .. } => not_in_use(slot),
        }
    }
}

impl<Q: Query, L, T> core::ops::IndexMut<Slot> for Pool<Q, L, T> {
    #[inline(always)]
    fn index_mut(&mut self, slot: Slot) -> &mut Entry<Q, L, T> {
        match &mut self.cells[slot.index()] {
            Cell::Used(entry) => entry,
            Cell::Free { .. } => not_in_use(slot),
        }
    }
}

/// Panics because a queued slot holds no entry. The slot is passed by value: if it were passed by reference, the
/// callers would have to keep it in memory instead of a register.
#[cold]
fn not_in_use(slot: Slot) -> ! {
    unreachable!("{slot:?} is in a queue")
}

/// Panics because a slot on the free list holds an entry.
#[cold]
fn in_use(slot: Slot) -> ! {
    unreachable!("{slot:?} is on the free list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Envelope, Pattern};
    use crate::query::Exact;

    /// Checks that a cell needs no additional space to mark it as free: an entry's generation is never zero.
    #[test]
    fn a_cell_is_as_large_as_its_entry() {
        assert_eq!(
            Pool::<Pattern, [u32; 4], u64>::ENTRY_BYTES,
            mem::size_of::<Entry<Pattern, [u32; 4], u64>>()
        );
        assert_eq!(Pool::<Pattern, [u32; 4], u64>::ENTRY_BYTES, 40);
        assert_eq!(Pool::<Envelope, [u32; 4], u64>::ENTRY_BYTES, 48);
    }

    #[test]
    fn slots_are_reused_under_a_new_generation() {
        let mut pool = Pool::<Pattern, (), &str>::new();
        let (first, generation) = pool.insert(0, 0, Exact, (), "first");
        assert_eq!(pool.take(first).payload, "first");
        let (second, next_generation) = pool.insert(0, 0, Exact, (), "second");
        assert_eq!(first, second);
        assert!(!pool.holds(first, generation));
        assert!(pool.holds(second, next_generation));
    }

    const MANY: usize = ANEW_MIN + 1;

    /// Inserts `count` entries and returns their slots.
    fn insert(pool: &mut Pool<Pattern, (), ()>, count: usize) -> Vec<Slot> {
        (0..count).map(|_| pool.insert(0, 0, Exact, (), ()).0).collect()
    }

    fn take(pool: &mut Pool<Pattern, (), ()>, slots: &[Slot]) {
        for &slot in slots {
            pool.take(slot);
        }
    }

    #[test]
    fn a_pool_that_was_empty_uses_its_slots_in_order() {
        let mut pool = Pool::new();
        let slots = insert(&mut pool, MANY);
        take(&mut pool, &slots);
        assert_eq!(insert(&mut pool, MANY), slots);
        let (middle, ends) = slots.split_at(MANY / 2);
        take(&mut pool, ends);
        take(&mut pool, middle);
        assert_eq!(insert(&mut pool, MANY), slots);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let mut pool = Pool::new();
        let mut slots = insert(&mut pool, MANY);
        // First retires the second slot, and then the first slot.
        for at in [1, 0] {
            let used_up = slots.remove(at);
            pool[used_up].generation = LAST;
            take(&mut pool, &[used_up]);
            assert!(!pool.holds(used_up, LAST) && !pool.holds(used_up, RETIRED));
            take(&mut pool, &slots);
            assert_eq!(insert(&mut pool, slots.len()), slots);
        }
        assert_eq!(pool.retired, 2);
        assert_eq!(insert(&mut pool, 1)[0].index(), MANY);
    }
}
