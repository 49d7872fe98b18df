//! The atomics of what processes share: traits, so that a model checker's can take their place.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{LINE, Line};

/// A 64-bit atomic.
pub(super) trait Word: Sized {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;

    /// Writes bytes to lines, their words included. What is left of the last line has no defined value.
    fn fill(lines: &[Line<Self>], from: &[u8]) {
        for (line, bytes) in lines.iter().zip(from.chunks(LINE)) {
            let mut words = [0; LINE];
            words[..bytes.len()].copy_from_slice(bytes);
            for (word, bytes) in line.words().zip(words.as_chunks().0) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
        }
    }

    /// Reads what [`Word::fill`] wrote.
    fn drain(lines: &[Line<Self>], into: &mut [u8]) {
        for (line, bytes) in lines.iter().zip(into.chunks_mut(LINE)) {
            let mut words = [0; LINE];
            for (word, bytes) in line.words().zip(words.as_chunks_mut().0) {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            bytes.copy_from_slice(&words[..bytes.len()]);
        }
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
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn fill(lines: &[Line], from: &[u8]) {
        crate::os::shared::copy_in(from, lines);
    },
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn drain(lines: &[Line], into: &mut [u8]) {
        crate::os::shared::copy_out(lines, into);
    }
);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64);
