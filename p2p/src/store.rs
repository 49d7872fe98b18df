//! Storage of data that arrived before its receive.

use samite_fabric::Body;
use smallvec::SmallVec;

/// The bytes of an unexpected message that has arrived whole. The bytes of a message of at most `INLINE` bytes are
/// stored in this value itself: for `Unexpected::Eager` in the entry of the matching engine, for `Unexpected::Whole` in
/// its box. The bytes of a longer message are in an allocated buffer.
pub(crate) type Bytes = SmallVec<[u8; INLINE]>;

const INLINE: usize = 24;

/// Buffers for the bytes of longer messages. Free buffers are kept for reuse, so that a steady flow of unexpected
/// messages does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Store {
    free: [Vec<Vec<u8>>; CLASSES.len()],
}

impl Store {
    /// Returns a copy of `data`.
    pub(crate) fn keep(&mut self, data: &(impl Body + ?Sized)) -> Bytes {
        if data.len() <= INLINE {
            let mut bytes = Bytes::from_buf_and_len([0; INLINE], data.len());
            data.copy_to(&mut bytes);
            return bytes;
        }
        let class = CLASSES.iter().position(|&size| data.len() <= size);
        let mut buffer = class
            .and_then(|class| self.free[class].pop())
            .unwrap_or_else(|| Vec::with_capacity(class.map_or(data.len(), |class| CLASSES[class])));
        append(&mut buffer, data);
        Bytes::from_vec(buffer)
    }

    /// Drops a copy, and keeps its buffer for reuse if the buffer has one of the sizes and few of that size are free.
    pub(crate) fn release(&mut self, bytes: Bytes) {
        if !bytes.spilled() {
            return;
        }
        let mut buffer = bytes.into_vec();
        if let Some(class) = CLASSES.iter().position(|&size| buffer.capacity() == size)
            && self.free[class].len() < KEPT
        {
            buffer.clear();
            self.free[class].push(buffer);
        }
    }
}

/// Appends bytes to a buffer.
pub(crate) fn append(buffer: &mut Vec<u8>, bytes: &(impl Body + ?Sized)) {
    let start = buffer.len();
    buffer.resize(start + bytes.len(), 0);
    bytes.copy_to(&mut buffer[start..]);
}

/// The sizes in bytes of the buffers that are reused.
const CLASSES: [usize; 4] = [128, 512, 2048, 16 << 10];
/// The largest number of free buffers that are kept of each size.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again() {
        let mut store = Store::default();
        for len in [0, INLINE, INLINE + 1, 2048, 16384, 100_000] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let bytes = store.keep(data.as_slice());
            assert_eq!(bytes.as_slice(), data);
            let origin = bytes.as_ptr();
            store.release(bytes);
            let again = store.keep(data.as_slice());
            assert!(len <= INLINE || len > 16384 || again.as_ptr() == origin, "{len}");
            store.release(again);
        }
    }
}
