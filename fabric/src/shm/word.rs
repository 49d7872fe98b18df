//! The atomics in memory that processes share. They are traits, so that a model checker can use its own atomics in
//! their place.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::Line;
use crate::copy::{self, LINE};

/// A 64-bit atomic.
pub(super) trait Word: Sized {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;

    /// Writes bytes to whole lines, including the first word of each line. (In other lines that word shows if a packet
    /// begins there.) The contents of the last line after the bytes are undefined.
    fn fill(lines: &[Line<Self>], from: &[u8]) {
        fill_words(lines, from);
    }

    /// Reads bytes that [`Word::fill`] wrote, and sets the first word of each line to zero.
    fn take(lines: &[Line<Self>], into: &mut [u8]) {
        take_words(lines, into);
    }

    /// Reads bytes that [`Word::fill`] wrote, from byte `start` on, and changes nothing.
    fn read(lines: &[Line<Self>], start: usize, into: &mut [u8]) {
        read_words(lines, start, into);
    }
}

fn fill_words<W: Word>(lines: &[Line<W>], from: &[u8]) {
    for (line, bytes) in lines.iter().zip(from.chunks(LINE)) {
        let mut words = [0; LINE];
        words[..bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in line.words().zip(words.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
}

fn take_words<W: Word>(lines: &[Line<W>], into: &mut [u8]) {
    for (line, bytes) in lines.iter().zip(into.chunks_mut(LINE)) {
        let mut words = [0; LINE];
        for (word, bytes) in line.words().zip(words.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        bytes.copy_from_slice(&words[..bytes.len()]);
        line.clear();
    }
}

fn read_words<W: Word>(lines: &[Line<W>], start: usize, into: &mut [u8]) {
    let bytes =
        lines.iter().flat_map(Line::words).flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    for (byte, into) in bytes.skip(start).zip(into) {
        *into = byte;
    }
}

macro_rules! word {
    ($atomic:ty $(, $copies:item)*) => {
        impl Word for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
                self.fetch_or(bits, order)
            }

            #[inline(always)]
            fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
                self.fetch_and(bits, order)
            }

            #[inline(always)]
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                self.fetch_add(value, order)
            }

            $($copies)*
        }
    };
}

word!(
    AtomicU64,
    fn fill(lines: &[Line], from: &[u8]) {
        let filled = copy::fill(lines, from);
        fill_words(&lines[filled..], &from[filled * LINE..]);
    },
    fn take(lines: &[Line], into: &mut [u8]) {
        let taken = copy::take(lines, into);
        take_words(&lines[taken..], &mut into[taken * LINE..]);
    },
    fn read(lines: &[Line], start: usize, into: &mut [u8]) {
        const { assert!(size_of::<Line>() == LINE && align_of::<Line>() >= align_of::<Self>()) };
        let count = size_of_val(lines) / size_of::<Self>();
        // SAFETY: a line is `repr(C)` and consists of 8 words without padding, by the assertion on its size. So the
        // lines are `count` words, which the slice borrows for the same time.
        let words = unsafe { std::slice::from_raw_parts(lines.as_ptr().cast::<Self>(), count) };
        copy::copy_out(words, start, into);
    }
);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64);
