//! The ordinals by which epochs of two processes find each other.
//!
//! An access epoch matches the exposure epoch with the same number, counted from 1 for each pair of processes at the
//! opening of the epochs (Zounmevo 2014, section 5.7.3). A target announces its exposures in their order, so the number
//! of the latest one is the whole history. Locks and fences are counted apart: with one counter, an early exposure
//! would pass for a granted lock.

use std::collections::VecDeque;

/// A set of numbers, as ranges in ascending order that do not touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<(u64, u64)>);

impl Ranges {
    /// The largest number of ranges. A member cannot abort more ranges of epochs, because between two of them is an
    /// epoch that it has not aborted, and it has at most [`epochs_max`](crate::Config::epochs_max) of these.
    const MAX: usize = crate::Config::EPOCHS_MAX;

    /// Adds a number. Returns false if it is in the set already, or if there are too many ranges.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let next = self.0.partition_point(|&(_, last)| last < number);
        let follows = next > 0 && self.0[next - 1].1 + 1 == number;
        let precedes = self.0.get(next).is_some_and(|&(first, _)| first - 1 == number);
        match (follows, precedes) {
            (true, true) => {
                self.0[next - 1].1 = self.0[next].1;
                self.0.remove(next);
            }
            (true, false) => self.0[next - 1].1 = number,
            (false, true) => self.0[next].0 = number,
            (false, false) if self.0.len() >= Self::MAX => return false,
            (false, false) => self.0.insert(next, (number, number)),
        }
        true
    }

    /// Returns true if the number is in the set.
    pub(crate) fn contains(&self, number: u64) -> bool {
        let next = self.0.partition_point(|&(_, last)| last < number);
        self.0.get(next).is_some_and(|&(first, _)| first <= number)
    }

    /// Takes a number out of the set, if it is there. All smaller numbers leave the set too.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        let next = self.0.partition_point(|&(_, last)| last < number);
        self.0.drain(..next);
        match self.0.front_mut() {
            Some(first) if first.0 <= number => {
                *first = (number + 1, first.1);
                if first.0 > first.1 {
                    self.0.pop_front();
                }
                true
            }
            _ => false,
        }
    }
}

/// The exposures to one member that have begun and whose access is not over. The value of an exposure is its epoch.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    /// The number of the latest exposure that has begun.
    latest: u64,
    /// The exposures up to `latest`. `None` for one whose access is over.
    under_way: VecDeque<Option<u64>>,
    /// The accesses that were aborted before their exposure began.
    aborted: Ranges,
}

/// The effect of the end of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The access to the exposure of this epoch.
    Of(u64),
    /// The access was aborted before its exposure began.
    Early,
    /// The access was aborted, and so was its exposure.
    Stale,
    /// There is no such access: the sender violates the protocol.
    Invalid,
}

impl Exposures {
    /// Begins exposure `number`. The exposures between the latest one and this one were aborted. Returns false if the
    /// access to this exposure was aborted before.
    pub(crate) fn begin(&mut self, number: u64, epoch: u64) -> bool {
        assert!(number > self.latest, "exposures to one member begin in their order");
        if !self.under_way.is_empty() {
            self.under_way.extend((self.latest + 1..number).map(|_| None));
        }
        self.latest = number;
        let is_awaited = !self.aborted.take(number);
        self.under_way.push_back(is_awaited.then_some(epoch));
        self.trim();
        is_awaited
    }

    /// Notes that an access is over. An aborted one may be over before its exposure has begun.
    pub(crate) fn end(&mut self, number: u64, is_aborted: bool) -> Over {
        if number > self.latest {
            return if is_aborted && self.aborted.insert(number) { Over::Early } else { Over::Invalid };
        }
        let behind = usize::try_from(self.latest - number).unwrap_or(usize::MAX);
        let place = self.under_way.len().checked_sub(1).and_then(|last| last.checked_sub(behind));
        let epoch = place.and_then(|place| self.under_way[place].take());
        self.trim();
        match epoch {
            Some(epoch) => Over::Of(epoch),
            None if is_aborted => Over::Stale,
            None => Over::Invalid,
        }
    }

    /// Returns true if the member may access the memory.
    pub(crate) fn is_open(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn trim(&mut self) {
        while self.under_way.front().is_some_and(Option::is_none) {
            self.under_way.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_a_set() {
        let mut ranges = Ranges::default();
        for number in [5, 3, 9, 4, 7, 8] {
            assert!(ranges.insert(number));
            assert!(!ranges.insert(number) && ranges.contains(number), "it is there");
        }
        assert_eq!(ranges.0, [(3, 5), (7, 9)]);
        assert!(![2, 6, 10].into_iter().any(|number| ranges.contains(number)));
        assert!(!ranges.take(6));
        assert_eq!(ranges.0, [(7, 9)]);
        assert!(ranges.take(7) && ranges.take(9));
        assert!(ranges.0.is_empty());
        let number = Ranges::MAX as u64;
        assert!((0..number).all(|number| ranges.insert(2 * number + 1)) && !ranges.insert(2 * number + 1));
    }

    #[test]
    fn accesses_end_in_any_order_and_once() {
        let mut exposures = Exposures::default();
        assert_eq!(exposures.end(1, false), Over::Invalid, "it has not begun");
        assert!(exposures.begin(1, 10) && exposures.begin(2, 11) && exposures.begin(3, 12));
        assert_eq!(exposures.end(2, false), Over::Of(11));
        assert_eq!(exposures.end(2, false), Over::Invalid);
        assert_eq!(exposures.end(1, true), Over::Of(10));
        assert_eq!(exposures.end(1, false), Over::Invalid);
        assert!(exposures.is_open());
        assert_eq!(exposures.end(3, false), Over::Of(12));
        assert_eq!((exposures.is_open(), exposures.end(0, false)), (false, Over::Invalid));
    }

    #[test]
    fn an_access_may_be_aborted_before_its_exposure() {
        let mut exposures = Exposures::default();
        assert_eq!(exposures.end(2, true), Over::Early);
        assert_eq!(exposures.end(2, true), Over::Invalid);
        assert!(exposures.begin(1, 10));
        assert!(!exposures.begin(2, 11), "nothing is awaited");
        assert_eq!(exposures.end(2, false), Over::Invalid);
        assert_eq!(exposures.end(1, false), Over::Of(10));
        assert!(!exposures.is_open());
    }

    #[test]
    fn aborted_exposures_keep_their_numbers() {
        let mut exposures = Exposures::default();
        assert!(exposures.begin(3, 30) && exposures.begin(5, 50));
        assert_eq!([1, 2, 4].map(|number| exposures.end(number, false)), [Over::Invalid; 3]);
        assert_eq!([1, 2, 4].map(|number| exposures.end(number, true)), [Over::Stale; 3]);
        assert_eq!([5, 3].map(|number| exposures.end(number, false)), [Over::Of(50), Over::Of(30)]);
        assert!(!exposures.is_open());
    }
}
