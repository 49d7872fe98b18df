//! A hash table from contexts to numbers, open-addressed.

use alloc::vec::Vec;
use core::mem;

/// An open-addressed table with linear probing. The number of cells is a power of two, and at most three quarters of
/// them are full. The table shrinks when it is sparse. Removal leaves no tombstones: later cells move up.
#[derive(Debug, Default)]
pub(super) struct Table {
    cells: Vec<Cell>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    context: u32,
    /// The stored number. In a vacant cell: the value of `VACANT`.
    value: u32,
}

const VACANT: Cell = Cell { context: 0, value: u32::MAX };

/// The minimum number of cells once there are any. These cells are kept when the table is empty.
const CELLS_MIN: usize = 4;

impl Table {
    pub(super) fn get(&self, context: u32) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(context);
        loop {
            let cell = self.cells[at];
            if cell.context == context && cell.value != VACANT.value {
                return Some(cell.value);
            }
            if cell.value == VACANT.value {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Stores a context that is not in the table.
    pub(super) fn insert(&mut self, context: u32, value: u32) {
        if self.is_full_with(self.len + 1) {
            self.resize((2 * self.cells.len()).max(CELLS_MIN));
        }
        self.len += 1;
        self.place(Cell { context, value });
    }

    /// Removes a context that is in the table.
    pub(super) fn remove(&mut self, context: u32) {
        let mut gap = self.home(context);
        while self.cells[gap].context != context || self.cells[gap].value == VACANT.value {
            gap = self.after(gap);
        }
        let mut at = gap;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell.value == VACANT.value {
                break;
            }
            // A cell may move into the gap, unless the place where the search for it begins (its home) lies after the
            // gap.
            let mask = self.cells.len() - 1;
            if at.wrapping_sub(self.home(cell.context)) & mask >= at.wrapping_sub(gap) & mask {
                self.cells[gap] = cell;
                gap = at;
            }
        }
        self.cells[gap] = VACANT;
        self.len -= 1;
        if self.cells.len() > CELLS_MIN && self.len * 8 < self.cells.len() {
            self.resize(self.cells.len() / 4);
        }
    }

    /// Returns the bytes in use: 0 if the table is empty.
    pub(super) fn bytes(&self) -> usize {
        if self.len == 0 { 0 } else { self.reserved() }
    }

    pub(super) fn reserved(&self) -> usize {
        self.cells.capacity() * mem::size_of::<Cell>()
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) when `contexts` contexts are added.
    pub(super) fn growth(&self, contexts: usize) -> usize {
        let mut cells = self.cells.len().max(CELLS_MIN);
        while (self.len + contexts) * 4 > cells * 3 {
            cells *= 2;
        }
        cells * mem::size_of::<Cell>() - self.bytes()
    }

    fn is_full_with(&self, len: usize) -> bool {
        len * 4 > self.cells.len() * 3
    }

    fn home(&self, context: u32) -> usize {
        // Multiplicative hashing: the upper bits of the product are well distributed.
        (context.wrapping_mul(0x9e37_79b9) >> (32 - self.cells.len().trailing_zeros())) as usize
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    fn place(&mut self, cell: Cell) {
        let mut at = self.home(cell.context);
        while self.cells[at].value != VACANT.value {
            at = self.after(at);
        }
        self.cells[at] = cell;
    }

    fn resize(&mut self, cells: usize) {
        let mut fresh = Vec::new();
        fresh.reserve_exact(cells);
        fresh.resize(cells, VACANT);
        for cell in mem::replace(&mut self.cells, fresh) {
            if cell.value != VACANT.value {
                self.place(cell);
            }
        }
    }
}
