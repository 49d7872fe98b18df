//! Operations by loads, stores and atomic instructions on memory that several processes map.

use samite_fabric::layout::Room as _;
use samite_fabric::{Body as _, Change, Memory, Window};
use smallvec::SmallVec;

use crate::path::WORD;
use crate::window::Operation;
use crate::{Action, ElementType, Reduction};

/// A part of a window that several processes map. It consists of whole, aligned words, so each element of at most 8
/// bytes lies in one word, and a change of that word is a change of the element.
#[derive(Clone, Debug)]
pub(crate) struct Mapped(Window);

impl Mapped {
    /// Takes mapped memory. Returns `None` if it does not consist of whole, aligned words.
    pub(crate) fn new(memory: Window) -> Option<Self> {
        let is_whole = memory.len().is_multiple_of(WORD) && memory.load(0).is_ok();
        is_whole.then_some(Self(memory))
    }

    /// Returns true as long as the member keeps the part in its window.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the bytes do not lie in the part.
    #[inline]
    pub(crate) fn put(&self, at: usize, data: &[u8]) {
        self.0.write(at, data).expect(INSIDE);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the bytes do not lie in the part.
    #[inline]
    pub(crate) fn get(&self, at: usize, into: &mut [u8]) {
        self.0.read(at, into).expect(INSIDE);
    }

    /// Loads a word.
    ///
    /// # Panics
    /// If the word does not lie in the memory.
    #[inline]
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.0.load(at).expect(INSIDE)
    }

    /// Stores a word.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    #[inline]
    pub(crate) fn store(&self, at: usize, word: u64) {
        self.0.store(at, word).expect(INSIDE);
    }

    /// Changes a word, and returns its former value.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    #[inline]
    pub(crate) fn change(&self, at: usize, how: Change) -> u64 {
        self.0.change(at, how).expect(INSIDE)
    }

    /// Carries out an operation without a result. If it `is_unshared`, no other process changes the same elements meanwhile,
    /// and they are not changed one by one by atomic instructions.
    ///
    /// # Panics
    /// If the bytes do not lie in the part, or if the operation has a result or elements of more than a word.
    pub(crate) fn write(&self, at: usize, action: Action, data: &[u8], is_unshared: bool) {
        match action {
            Action::Put | Action::Accumulate { op: Reduction::Replace, .. } => self.put(at, data),
            Action::Accumulate { op: Reduction::NoOp, .. } => {}
            Action::Accumulate { op, element } if is_unshared && data.len() > WORD => {
                self.write_unshared((op, element), at, data);
            }
            Action::Accumulate { op, element } => {
                if let Some(change) = change_of(op, element, data) {
                    self.change(at, change);
                    return;
                }
                self.each_word(at, data.len(), |offset, range, word| {
                    combine(op, element, word, offset, &data[range]);
                    true
                });
            }
            _ => unreachable!("{action:?} has a result"),
        }
    }

    /// Carries out an operation with a result. `bytes` has the operands, and gets the result as [`Action`] says.
    /// `is_unshared` has the meaning of [`write`](Self::write).
    ///
    /// # Panics
    /// If the bytes do not lie in the part, or if the operation has no result or elements of more than a word.
    pub(crate) fn fetch(&self, at: usize, action: Action, bytes: &mut [u8], is_unshared: bool) {
        match action {
            Action::Get | Action::GetAccumulate { op: Reduction::NoOp, .. } => self.get(at, bytes),
            Action::GetAccumulate { op, element } if is_unshared && bytes.len() > WORD => {
                self.fetch_unshared((op, element), at, bytes);
            }
            Action::GetAccumulate { op, element } => {
                if let Some(change) = change_of(op, element, bytes) {
                    let before = self.change(at, change);
                    bytes.copy_from_slice(&before.to_ne_bytes());
                    return;
                }
                self.fetch_elements((op, element), at, bytes);
            }
            Action::CompareSwap { element } => {
                let (expected, new) = bytes.split_at_mut(element.size());
                if let (Some(old), Some(new)) = (word_of(expected), word_of(new)) {
                    let swap = Change::CompareSwap { expected: old, new };
                    let before = self.change(at, swap);
                    expected.copy_from_slice(&before.to_ne_bytes());
                    return;
                }
                self.swap_element(element, at, expected, new);
            }
            _ => unreachable!("{action:?} has no result"),
        }
    }

    /// Carries out each run of an operation as [`write`](Self::write) does. `base` is the offset of its displacement.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub(crate) fn write_runs(&self, base: u64, operation: &Operation, data: &[u8], is_unshared: bool) {
        operation.each_run(base, |at, range| self.write(at, operation.action, &data[range], is_unshared));
    }

    /// Carries out each run of an operation as [`fetch`](Self::fetch) does. `base` is the offset of its displacement.
    ///
    /// # Panics
    /// As [`fetch`](Self::fetch).
    pub(crate) fn fetch_runs(&self, base: u64, operation: &Operation, bytes: &mut [u8], is_unshared: bool) {
        operation.each_run(base, |at, range| {
            // A swap has one run, and twice as many bytes as that.
            let is_whole = range.len() == operation.len;
            let bytes = if is_whole { &mut *bytes } else { &mut bytes[range] };
            self.fetch(at, operation.action, bytes, is_unshared);
        });
    }

    /// Carries out an operation as [`fetch_runs`](Self::fetch_runs) does, with memory that may be scattered.
    pub(crate) fn fetch_into(
        &self,
        base: u64,
        operation: &Operation,
        memory: &mut Memory,
        is_unshared: bool,
    ) {
        if !memory.is_scattered() {
            return self.fetch_runs(base, operation, memory.as_bytes_mut(), is_unshared);
        }
        let mut bytes = vec![0; memory.len()];
        memory.readable().copy_to(&mut bytes);
        self.fetch_runs(base, operation, &mut bytes, is_unshared);
        memory.writable().put(0, &bytes[..]);
    }

    /// Carries out an operation as [`write_runs`](Self::write_runs) does, with memory that may be scattered.
    pub(crate) fn write_from(&self, base: u64, operation: &Operation, memory: &Memory, is_unshared: bool) {
        if !memory.is_scattered() {
            return self.write_runs(base, operation, memory.as_bytes(), is_unshared);
        }
        let mut bytes = vec![0; memory.len()];
        memory.readable().copy_to(&mut bytes);
        self.write_runs(base, operation, &bytes, is_unshared);
    }

    /// Combines elements that no other process changes meanwhile. A function of its own, so that short operations need no
    /// room for a piece on the stack.
    #[inline(never)]
    fn write_unshared(&self, by: (Reduction, ElementType), at: usize, data: &[u8]) {
        let mut piece = [0; PIECE];
        for (index, operands) in data.chunks(PIECE).enumerate() {
            self.combine_piece(by, at + index * PIECE, operands, &mut piece, |_| {});
        }
    }

    /// Combines elements as [`write_unshared`](Self::write_unshared) does, and returns the former ones in `bytes`.
    #[inline(never)]
    fn fetch_unshared(&self, by: (Reduction, ElementType), at: usize, bytes: &mut [u8]) {
        let (mut piece, mut before) = ([0; PIECE], [0; PIECE]);
        for (index, bytes) in bytes.chunks_mut(PIECE).enumerate() {
            let before = &mut before[..bytes.len()];
            let keep = |found: &[u8]| before.copy_from_slice(found);
            self.combine_piece(by, at + index * PIECE, bytes, &mut piece, keep);
            bytes.copy_from_slice(before);
        }
    }

    /// Changes elements one by one, and returns the former ones in `bytes`. A function of its own, as the next one, so that
    /// operations on one word stay short.
    #[inline(never)]
    fn fetch_elements(&self, (op, element): (Reduction, ElementType), at: usize, bytes: &mut [u8]) {
        let operands = SmallVec::<[u8; 8 * WORD]>::from_slice(bytes);
        self.each_word(at, operands.len(), |offset, range, word| {
            bytes[range.clone()].copy_from_slice(&word[offset..offset + range.len()]);
            combine(op, element, word, offset, &operands[range]);
            true
        });
    }

    /// Swaps an element that is shorter than a word, if it is equal to `expected`, and returns the former one there.
    #[inline(never)]
    fn swap_element(&self, element: ElementType, at: usize, expected: &mut [u8], new: &[u8]) {
        let mut before = [0; WORD];
        self.each_word(at, element.size(), |offset, _, word| {
            let place = &mut word[offset..offset + expected.len()];
            before[..expected.len()].copy_from_slice(place);
            let is_equal = place == expected;
            place.copy_from_slice(new);
            is_equal
        });
        expected.copy_from_slice(&before[..expected.len()]);
    }

    /// Copies a piece out, passes it to `keep`, combines it with operands, and copies it in.
    fn combine_piece(
        &self,
        (op, element): (Reduction, ElementType),
        at: usize,
        operands: &[u8],
        piece: &mut [u8; PIECE],
        keep: impl FnOnce(&[u8]),
    ) {
        let piece = &mut piece[..operands.len()];
        self.get(at, piece);
        keep(piece);
        assert!(op.apply(element, operands, piece), "{op:?} is defined for {element:?}");
        self.put(at, piece);
    }

    /// Changes each word that has some of the `len` bytes from `at` on, atomically. `change` gets the offset of the
    /// first of these bytes in the word, their range among the `len` bytes, and the bytes of the word, which it
    /// changes. If it returns false, the word stays. It is called again if another process has changed the word
    /// meanwhile.
    fn each_word(
        &self,
        at: usize,
        len: usize,
        mut change: impl FnMut(usize, std::ops::Range<usize>, &mut [u8; WORD]) -> bool,
    ) {
        let mut done = 0;
        while done < len {
            let offset = (at + done) % WORD;
            let range = done..len.min(done + WORD - offset);
            let place = at + done - offset;
            let mut before = self.load(place);
            loop {
                let mut word = before.to_ne_bytes();
                if !change(offset, range.clone(), &mut word) {
                    break;
                }
                let new = u64::from_ne_bytes(word);
                let swap = Change::CompareSwap { expected: before, new };
                let found = self.change(place, swap);
                if found == before {
                    break;
                }
                before = found;
            }
            done = range.end;
        }
    }
}

/// Returns the bytes of a word as a number, or `None` if these are not the bytes of a word.
fn word_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Returns the atomic instruction that has the effect of an operation on one element of a word, if there is one.
fn change_of(op: Reduction, element: ElementType, operand: &[u8]) -> Option<Change> {
    let operand = word_of(operand)?;
    match (op, element) {
        (Reduction::Replace, _) if element.size() == WORD => Some(Change::Swap(operand)),
        (Reduction::Sum, ElementType::U64 | ElementType::I64) => Some(Change::Add(operand)),
        (Reduction::BitAnd, ElementType::U64 | ElementType::I64) => Some(Change::And(operand)),
        (Reduction::BitOr, ElementType::U64 | ElementType::I64) => Some(Change::Or(operand)),
        (Reduction::BitXor, ElementType::U64 | ElementType::I64) => Some(Change::Xor(operand)),
        _ => None,
    }
}

/// Combines the elements of a word, from a byte on, with operands.
fn combine(op: Reduction, element: ElementType, word: &mut [u8; WORD], offset: usize, operands: &[u8]) {
    let is_defined = op.apply(element, operands, &mut word[offset..offset + operands.len()]);
    assert!(is_defined, "{op:?} is defined for {element:?}");
}

/// Bytes that are combined at a time if no other process changes them: whole elements, and few enough for the
/// first-level cache.
const PIECE: usize = 4 << 10;

const INSIDE: &str = "the operation was checked to lie in the part";

#[cfg(test)]
mod tests {
    use samite_fabric::{Region, SplitMix64};

    use super::*;
    use crate::window::Part;

    fn mapped(region: &Region) -> Mapped {
        Mapped::new(region.window(0..region.len()).unwrap()).unwrap()
    }

    #[test]
    fn only_whole_words_are_mapped() {
        let region = Region::shared(32).unwrap();
        let is_mapped = |span| Mapped::new(region.window(span).unwrap()).is_some();
        assert!(is_mapped(0..32) && is_mapped(8..16));
        assert!(!is_mapped(0..31) && !is_mapped(4..12) && !is_mapped(0..0));
    }

    /// Compares operations with the same ones on memory of one process.
    #[test]
    fn operations_have_the_effects_of_packets() {
        const BYTES: usize = 64;
        let mut rng = SplitMix64::new(7);
        let (shared, private) = (Region::shared(BYTES).unwrap(), Region::new(Memory::zeroed(BYTES)));
        let (mapped, part) = (mapped(&shared), Part::whole(private, 1));
        let both = || {
            let (mut a, mut b) = ([0; BYTES], [0; BYTES]);
            shared.copy_out(0, &mut a).unwrap();
            part.read(0, &mut b).unwrap();
            (a, b)
        };
        for _ in 0..20_000 {
            let element = ElementType::ALL[rng.below(20) as usize];
            let op = Reduction::ALL[rng.below(14) as usize];
            if element.size() > WORD || !op.accepts(element) {
                continue;
            }
            let size = element.size();
            let at = rng.below((BYTES / size) as u64) as usize * size;
            let len = size * (1 + rng.below(((BYTES - at) / size) as u64) as usize);
            let operands: Vec<u8> = (0..len).map(|_| rng.below(4) as u8).collect();
            let before = part.accumulate(at, op, element, &operands).unwrap();
            let is_unshared = rng.below(2) == 0;
            if rng.below(2) == 0 {
                mapped.write(at, Action::Accumulate { op, element }, &operands, is_unshared);
            } else {
                let mut bytes = operands;
                mapped.fetch(at, Action::GetAccumulate { op, element }, &mut bytes, is_unshared);
                assert_eq!(bytes, before, "{op:?} of {element:?}");
            }
            let (a, b) = both();
            assert_eq!(a, b, "{op:?} of {element:?} at {at}");
        }
    }

    #[test]
    fn puts_gets_and_swaps_touch_their_bytes_alone() {
        let region = Region::shared(16).unwrap();
        let mapped = mapped(&region);
        mapped.write(3, Action::Put, &[1, 2, 3, 4, 5, 6, 7], false);
        let mut bytes = [0xff; 9];
        mapped.fetch(2, Action::Get, &mut bytes, false);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
        let element = ElementType::U16;
        let mut lost = [9, 9, 8, 8];
        mapped.fetch(4, Action::CompareSwap { element }, &mut lost, false);
        assert_eq!(lost, [2, 3, 8, 8]);
        let mut won = [2, 3, 8, 9];
        mapped.fetch(4, Action::CompareSwap { element }, &mut won, false);
        assert_eq!(won, [2, 3, 8, 9]);
        mapped.fetch(2, Action::Get, &mut bytes, false);
        assert_eq!(bytes, [0, 1, 8, 9, 4, 5, 6, 7, 0]);
    }

    #[test]
    fn changes_of_several_threads_are_atomic() {
        let region = Region::shared(8).unwrap();
        std::thread::scope(|scope| {
            for byte in 0..8 {
                let mapped = mapped(&region);
                let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U8 };
                scope
                    .spawn(move || (0..100).for_each(|_| mapped.write(byte / 2 * 2, action, &[1, 2], false)));
            }
        });
        let mut bytes = [0; 8];
        region.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [200, 144].repeat(4)[..]);
    }
}
