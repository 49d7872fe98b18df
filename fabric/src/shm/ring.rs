//! The ring: one producer sends packets to one consumer through memory that both reach.
//!
//! The memory is an array of cache [`Line`]s: a word, and 56 bytes of payload. A packet takes as many consecutive lines as its
//! payload needs (one at least), going round at the end. The word of its *first* line publishes it:
//!
//! ```text
//!   bits 63 … 16: lap      how often the ring has been filled before, plus 1     bits 15 … 0: length in bytes
//! ```
//! The producer writes the payload, then stores that word with `Release`. The consumer polls the word of the line it expects a
//! packet to begin in: one load, of the very line that holds the payload of a short packet. Words of other lines are left as they
//! are, and a word that was stored before is of an earlier lap; so a line announces a packet if, and only if, its word bears
//! the current lap. (Laps have 48 bits: at 100 GB/s through the smallest ring they last for centuries.)
//!
//! The consumer tells its position only once per quarter of the ring, in a word apart; the producer looks there only when it has
//! used up the room it knew of. The longest packet takes an eighth of the ring, so that it always fits once all is read.
//!
//! # Soundness
//! The other side may be buggy or hostile, and write anything at any time. All access is by atomic loads and stores, so that
//! is no data race; payload is copied out before anybody looks at it; each word is read once, and checked.

use std::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit atomic. A trait, so that a model checker's can take its place.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// The unit that processors exchange.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line<W = AtomicU64> {
    word: W,
    cells: [W; CELLS],
}

#[cfg(test)]
impl Line {
    /// Writes any word.
    pub(super) fn forge(&self, word: u64) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// Where a ring lies.
pub(super) trait Place {
    type Word: Word;

    /// The lines: a power of two of them, all zero before the producer starts.
    fn lines(&self) -> &[Line<Self::Word>];

    /// The position up to which the consumer has read, as far as it has told; 0 before it starts.
    fn read(&self) -> &Self::Word;
}

/// The longest packet through a ring of `lines`, in bytes.
pub(super) const fn packet_max(lines: usize) -> usize {
    lines / 8 * PAYLOAD
}

/// The sending end.
pub(super) struct Producer<P> {
    place: P,
    size: Size,
    /// Lines written since the start.
    position: u64,
    /// Where the room that we know of ends.
    limit: u64,
}

impl<P: Place> Producer<P> {
    pub(super) fn new(place: P) -> Self {
        let size = Size::of(&place);
        Self { place, size, position: 0, limit: size.lines }
    }

    pub(super) fn place(&self) -> &P {
        &self.place
    }

    /// Sends `head` and `body` as one packet of at most [`packet_max`] bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, head: &[u8], body: &[u8]) -> Push {
        let len = head.len() + body.len();
        let count = lines_for(len);
        if self.position + count > self.limit
            && let Some(obstacle) = self.find_room(count)
        {
            return obstacle;
        }
        let lines = self.place.lines();
        let first = &lines[self.size.index(self.position)];
        if len <= PAYLOAD {
            let mut writer = Writer { cells: first.cells.iter(), carry: 0, carried: 0 };
            writer.bytes(head);
            writer.bytes(body);
            writer.finish();
        } else {
            let (end, start) = self.size.spans(lines, self.position, count);
            let cells = end.iter().chain(start).flat_map(|line| &line.cells);
            let mut writer = Writer { cells, carry: 0, carried: 0 };
            writer.bytes(head);
            writer.bytes(body);
            writer.finish();
        }
        first.word.store(self.size.lap(self.position) << LEN_BITS | len as u64, Ordering::Release);
        self.position += count;
        Push::Done
    }

    #[cold]
    fn find_room(&mut self, count: u64) -> Option<Push> {
        let read = self.place.read().load(Ordering::Acquire);
        if read == SHUT {
            return Some(Push::Shut);
        }
        // A sound consumer is behind us, by no more than the ring; anything else gives no room.
        if self.position.checked_sub(read).is_some_and(|behind| behind <= self.size.lines) {
            self.limit = read + self.size.lines;
        }
        (self.position + count > self.limit).then_some(Push::Full)
    }
}

/// What became of [`Producer::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    Done,
    /// No room until the consumer reads on.
    Full,
    /// The consumer has shut the ring.
    Shut,
}

/// The receiving end.
pub(super) struct Consumer<P> {
    place: P,
    size: Size,
    /// Lines read since the start.
    position: u64,
    /// The position the producer has been told of.
    told: u64,
}

impl<P: Place> Consumer<P> {
    pub(super) fn new(place: P) -> Self {
        let size = Size::of(&place);
        Self { place, size, position: 0, told: 0 }
    }

    /// Copies the next packet to the start of `into`, a buffer made by [`scratch`].
    #[inline(always)]
    pub(super) fn pop(&mut self, into: &mut [u64]) -> Pop {
        let lines = self.place.lines();
        let first = &lines[self.size.index(self.position)];
        let word = first.word.load(Ordering::Acquire);
        if word >> LEN_BITS != self.size.lap(self.position) {
            return Pop::Empty;
        }
        let len = (word & LEN_MASK) as usize;
        let count = lines_for(len);
        if len <= PAYLOAD {
            copy_out(first, &mut into[..CELLS]);
        } else if len <= packet_max(lines.len()) {
            let (end, start) = self.size.spans(lines, self.position, count);
            for (line, into) in end.iter().chain(start).zip(into.chunks_exact_mut(CELLS)) {
                copy_out(line, into);
            }
        } else {
            return Pop::Garbled;
        }
        self.position += count;
        if self.position - self.told >= self.size.lines / 4 {
            self.tell();
        }
        Pop::Packet { len }
    }

    #[cold]
    fn tell(&mut self) {
        // Release: the loads above come before whatever the producer writes to the lines once it has seen this.
        self.place.read().store(self.position, Ordering::Release);
        self.told = self.position;
    }

    /// Tells the producer that nothing will be read any more.
    pub(super) fn shut(self) {
        self.place.read().store(SHUT, Ordering::Release);
    }
}

/// What [`Consumer::pop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pop {
    Empty,
    /// A packet of so many bytes.
    Packet {
        len: usize,
    },
    /// What no producer writes. Nothing after it can be trusted.
    Garbled,
}

/// A buffer for [`Consumer::pop`].
pub(super) fn scratch(lines: usize) -> Box<[u64]> {
    vec![0; packet_max(lines) / size_of::<u64>()].into()
}

#[inline(always)]
fn copy_out<W: Word>(line: &Line<W>, into: &mut [u64]) {
    for (cell, into) in line.cells.iter().zip(into) {
        *into = cell.load(Ordering::Relaxed).to_le();
    }
}

/// Writes bytes to consecutive cells, whatever their number in each call.
struct Writer<I> {
    cells: I,
    /// Bytes that do not fill a cell yet, from the least significant on, and how many bits they have.
    carry: u64,
    carried: u32,
}

impl<'a, W: Word + 'a, I: Iterator<Item = &'a W>> Writer<I> {
    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        if self.carried == 0 {
            for (word, cell) in words.iter().zip(&mut self.cells) {
                cell.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
        } else {
            for (word, cell) in words.iter().zip(&mut self.cells) {
                let word = u64::from_le_bytes(*word);
                cell.store(self.carry | word << self.carried, Ordering::Relaxed);
                self.carry = word >> (64 - self.carried);
            }
        }
        for &byte in rest {
            self.carry |= u64::from(byte) << self.carried;
            self.carried += 8;
            if self.carried == 64 {
                self.cell();
            }
        }
    }

    #[inline(always)]
    fn finish(mut self) {
        if self.carried > 0 {
            self.cell();
        }
    }

    #[inline(always)]
    fn cell(&mut self) {
        if let Some(cell) = self.cells.next() {
            cell.store(self.carry, Ordering::Relaxed);
        }
        (self.carry, self.carried) = (0, 0);
    }
}

/// The number of lines, a power of two, and arithmetic on positions.
#[derive(Clone, Copy, Debug)]
struct Size {
    lines: u64,
    log2: u32,
}

impl Size {
    fn of(place: &impl Place) -> Self {
        let lines = place.lines().len();
        assert!(lines.is_power_of_two(), "a ring has a power of two of lines");
        Self { lines: lines as u64, log2: lines.trailing_zeros() }
    }

    #[inline(always)]
    fn index(self, position: u64) -> usize {
        (position & (self.lines - 1)) as usize
    }

    #[inline(always)]
    fn lap(self, position: u64) -> u64 {
        (position >> self.log2) + 1
    }

    /// The `count` lines from `position` on: those up to the end of the ring, and those from its start.
    #[inline(always)]
    fn spans<T>(self, lines: &[T], position: u64, count: u64) -> (&[T], &[T]) {
        let (start, end) = lines.split_at(self.index(position));
        let in_end = end.len().min(count as usize);
        (&end[..in_end], &start[..count as usize - in_end])
    }
}

#[inline(always)]
fn lines_for(len: usize) -> u64 {
    if len <= PAYLOAD { 1 } else { len.div_ceil(PAYLOAD) as u64 }
}

/// Cells of payload in a line, and their bytes.
const CELLS: usize = 7;
const PAYLOAD: usize = CELLS * size_of::<u64>();

const LEN_BITS: u32 = 16;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;

/// In place of the consumer's position: it has shut the ring.
const SHUT: u64 = u64::MAX;

// A whole line is one unit of 64 bytes, and a packet of 48 bytes (header, tag and 8 bytes) fits one with its word.
const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64 && PAYLOAD >= 48);

// SAFETY: eight atomic words, `repr(C)`, 64 bytes: no padding.
unsafe impl crate::os::shared::Shareable for Line {}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod tests;
