//! Loops that copy bytes between a user's memory and a message.

use crate::copy_bytes;

/// One direction of a copy. It goes through the message from its start to its end.
pub(super) trait Copier {
    /// Returns the number of bytes of the message that are still to be copied.
    fn left(&self) -> usize;

    /// Copies the block of `len` bytes at `at` in memory, or its first part if fewer bytes are left to copy.
    fn block(&mut self, at: usize, len: usize);

    /// Copies `count` blocks of `len` bytes, the first at `at`, at distances of `stride`. The caller
    /// guarantees that at least `count * len` bytes of the message are left.
    fn blocks(&mut self, at: usize, len: usize, stride: isize, count: usize);
}

/// Copies from memory to a message.
pub(super) struct Gather<'a, 'b> {
    pub(super) memory: &'a [u8],
    pub(super) into: &'b mut [u8],
}

/// Copies from a message to memory.
pub(super) struct Scatter<'a, 'b> {
    pub(super) memory: &'a mut [u8],
    pub(super) from: &'b [u8],
}

/// Calls `$loop` with the length of the blocks as a constant, if it is one of `$bytes`, and also with the distance as a
/// constant, if it is twice the length. With these constants the compiler can use vector instructions. For other
/// lengths, and for overlapping or descending blocks, evaluates `$other`.
macro_rules! by_length {
    ($len:ident, $stride:ident, $($bytes:literal)*; $loop:ident($memory:expr, $message:expr); $other:block) => {
        match ($len, usize::try_from($stride)) {
            $(
                ($bytes, Ok(stride)) if stride == 2 * $bytes => $loop::<$bytes>($memory, $message, 2 * $bytes),
                ($bytes, Ok(stride)) if stride >= $bytes => $loop::<$bytes>($memory, $message, stride),
            )*
            _ => $other
        }
    };
}

impl Copier for Gather<'_, '_> {
    #[inline(always)]
    fn left(&self) -> usize {
        self.into.len()
    }

    #[inline(always)]
    fn block(&mut self, at: usize, len: usize) {
        let len = len.min(self.left());
        let (into, rest) = std::mem::take(&mut self.into).split_at_mut(len);
        copy(&self.memory[at..][..into.len()], into);
        self.into = rest;
    }

    fn blocks(&mut self, mut at: usize, len: usize, stride: isize, count: usize) {
        let (into, rest) = std::mem::take(&mut self.into).split_at_mut(len * count);
        self.into = rest;
        by_length!(len, stride, 1 2 4 8 12 16 24 32; gather(&self.memory[at..], into); {
            for into in into.chunks_exact_mut(len) {
                copy_bytes(&self.memory[at..at + len], into);
                at = at.wrapping_add_signed(stride);
            }
        });
    }
}

impl Copier for Scatter<'_, '_> {
    #[inline(always)]
    fn left(&self) -> usize {
        self.from.len()
    }

    #[inline(always)]
    fn block(&mut self, at: usize, len: usize) {
        let (from, rest) = self.from.split_at(len.min(self.left()));
        copy(from, &mut self.memory[at..][..from.len()]);
        self.from = rest;
    }

    fn blocks(&mut self, mut at: usize, len: usize, stride: isize, count: usize) {
        let (from, rest) = self.from.split_at(len * count);
        self.from = rest;
        by_length!(len, stride, 1 2 4 8 12 16 24 32; scatter(&mut self.memory[at..], from); {
            for from in from.chunks_exact(len) {
                copy_bytes(from, &mut self.memory[at..at + len]);
                at = at.wrapping_add_signed(stride);
            }
        });
    }
}

/// Copies a block whose length is not known at compile time. For common short lengths it uses copies of constant
/// length, which need no call: for a short block the call would take most of the time.
#[inline(always)]
fn copy(from: &[u8], into: &mut [u8]) {
    macro_rules! short {
        ($($len:literal)*) => {
            match into.len() {
                $($len => into.copy_from_slice(&from[..$len]),)*
                _ => copy_bytes(from, into),
            }
        };
    }
    short!(8 4 16 12 24 32 2 1);
}

#[inline(always)]
fn gather<const N: usize>(memory: &[u8], into: &mut [u8], stride: usize) {
    assert!(stride >= N, "blocks do not overlap");
    let Some((last, into)) = into.as_chunks_mut::<N>().0.split_last_mut() else { return };
    let end = into.len() * stride;
    for (into, from) in into.iter_mut().zip(memory[..end].chunks_exact(stride)) {
        into.copy_from_slice(&from[..N]);
    }
    last.copy_from_slice(&memory[end..end + N]);
}

#[inline(always)]
fn scatter<const N: usize>(memory: &mut [u8], from: &[u8], stride: usize) {
    assert!(stride >= N, "blocks do not overlap");
    let Some((last, from)) = from.as_chunks::<N>().0.split_last() else { return };
    let end = from.len() * stride;
    for (from, into) in from.iter().zip(memory[..end].chunks_exact_mut(stride)) {
        into[..N].copy_from_slice(from);
    }
    memory[end..end + N].copy_from_slice(last);
}
