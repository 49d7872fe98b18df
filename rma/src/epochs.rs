//! The epochs of a window that have not completed.

use std::collections::VecDeque;

use crate::activation::Kind;
use crate::window::Epoch;

/// The epochs of a window that have not completed, in the order of their numbers. They are numbered in the order in
/// which they were opened. An epoch leaves when it completes, also if earlier ones have not completed: a program may
/// hold one lock for its whole time, and open millions of other epochs meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// They are boxed, because the queue keeps its memory when they have left.
    all: VecDeque<Box<Epoch>>,
    /// The number of the next epoch.
    next: u64,
}

impl Epochs {
    /// Adds an epoch that was opened at this time, and returns its number.
    pub(crate) fn open(&mut self, kind: Kind, opened: u64) -> u64 {
        self.reserve();
        self.open_reserved(kind, opened).number
    }

    /// Takes the number of an epoch that is added later, if at all: by [`open_reserved`](Self::open_reserved), and before
    /// any other one.
    pub(crate) fn reserve(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Adds the epoch with the number that was taken last.
    pub(crate) fn open_reserved(&mut self, kind: Kind, opened: u64) -> &mut Epoch {
        let number = self.next - 1;
        assert!(self.all.back().is_none_or(|last| last.number < number), "the number was not used");
        self.all.push_back(Box::new(Epoch::new(number, kind, opened)));
        self.all.back_mut().expect("it was added")
    }

    /// Returns true if this number was taken last.
    pub(crate) fn is_latest(&self, number: u64) -> bool {
        number + 1 == self.next
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Epoch> {
        self.all.get(self.place(number).ok()?).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Epoch> {
        let place = self.place(number).ok()?;
        self.all.get_mut(place).map(Box::as_mut)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Epoch> {
        let place = self.place(number).ok()?;
        self.all.remove(place).map(|epoch| *epoch)
    }

    /// Returns the first epoch with this number or a later one.
    pub(crate) fn from(&self, number: u64) -> Option<&Epoch> {
        self.all.get(self.place(number).unwrap_or_else(|place| place)).map(Box::as_ref)
    }

    /// Returns the epochs before this number.
    pub(crate) fn before(&self, number: u64) -> impl Iterator<Item = &Epoch> {
        self.all.range(..self.place(number).unwrap_or_else(|place| place)).map(Box::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Epoch> {
        self.all.iter().map(Box::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the place of an epoch. If it has completed, returns the place of the next one.
    fn place(&self, number: u64) -> Result<usize, usize> {
        // Most epochs complete in their order, and then there are no gaps.
        let first = self.all.front().map_or(number, |epoch| epoch.number);
        let guess = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        match self.all.get(guess) {
            Some(epoch) if epoch.number == number => Ok(guess),
            _ => self.all.binary_search_by_key(&number, |epoch| epoch.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_leave_in_any_order() {
        let mut epochs = Epochs::default();
        let numbers: Vec<_> = (0..6).map(|opened| epochs.open(Kind::LockAll, opened)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        for number in [2, 0, 5] {
            assert_eq!(epochs.remove(number).map(|epoch| epoch.number), Some(number));
            assert!(epochs.remove(number).is_none() && epochs.get(number).is_none());
        }
        let left: Vec<_> = epochs.iter().map(|epoch| epoch.number).collect();
        assert_eq!((left, epochs.len()), (vec![1, 3, 4], 3));
        assert_eq!(epochs.open(Kind::LockAll, 6), 6);
        assert_eq!(epochs.get_mut(4).map(|epoch| epoch.number), Some(4));
        let from = [0, 1, 2, 3, 5, 6, 7].map(|number| epochs.from(number).map(|epoch| epoch.number));
        assert_eq!(from, [Some(1), Some(1), Some(3), Some(3), Some(6), Some(6), None]);
        let before: Vec<_> = epochs.before(4).map(|epoch| epoch.number).collect();
        assert_eq!(before, [1, 3]);
    }
}
