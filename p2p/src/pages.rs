//! A table of values by number, for numbers that are mostly consecutive.
//!
//! An entry takes little more memory than its value, even if the neighbouring numbers are not in use. The table grows
//! without copying all values, of which there may be millions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A map from numbers to values.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    /// The pages that contain values, by the upper bits of their numbers.
    pages: BTreeMap<u32, Page<T>>,
    len: usize,
}

/// The values of [`NUMBERS`] consecutive numbers.
#[derive(Debug)]
struct Page<T> {
    /// A bit for each number, which is set if the number is in use.
    used: u64,
    /// The values of the numbers in use, in ascending order of numbers.
    values: Vec<T>,
}

const NUMBERS: u32 = u64::BITS;

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T> Pages<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let page = self.pages.get(&(number / NUMBERS))?;
        Some(&page.values[page.place(number).ok()?])
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(&(number / NUMBERS))?;
        let place = page.place(number).ok()?;
        Some(&mut page.values[place])
    }

    /// Inserts the value of a number that is not in use.
    pub(crate) fn insert(&mut self, number: u32, value: T) {
        let page = self.pages.entry(number / NUMBERS).or_insert_with(Page::new);
        let place = page.place(number).expect_err("the number is not in use");
        page.used |= 1 << (number % NUMBERS);
        page.values.insert(place, value);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let page = self.pages.get_mut(&(number / NUMBERS))?;
        let value = page.values.remove(page.place(number).ok()?);
        page.used &= !(1 << (number % NUMBERS));
        // Afterwards half of the room is free, so that alternating insertions and removals allocate nothing.
        if page.values.len() <= page.values.capacity() / 4 {
            page.values.shrink_to(2 * page.values.len());
        }
        if page.used == 0 {
            self.pages.remove(&(number / NUMBERS));
        }
        self.len -= 1;
        Some(value)
    }

    /// Iterates over the values in ascending order of numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.pages.iter().flat_map(|(at, page)| page.iter(*at))
    }

    /// Iterates over the values of the numbers in a range, in ascending order. Visits at most as many other values as
    /// two pages have.
    pub(crate) fn range(&self, numbers: RangeInclusive<u32>) -> impl Iterator<Item = &T> {
        let (first, last) = numbers.into_inner();
        let pages = (first <= last).then(|| self.pages.range(first / NUMBERS..=last / NUMBERS));
        let all = pages.into_iter().flatten().flat_map(|(at, page)| page.iter(*at));
        all.filter(move |(number, _)| (first..=last).contains(number)).map(|(_, value)| value)
    }
}

impl<T> Page<T> {
    fn new() -> Self {
        // By default a vector's first allocation has room for 4 values, but a page may never have more than one.
        Self { used: 0, values: Vec::with_capacity(1) }
    }

    /// Returns the index of a number's value in `values`. If the number is not in use, returns as an error the index at
    /// which its value must be inserted.
    fn place(&self, number: u32) -> Result<usize, usize> {
        let bit = 1 << (number % NUMBERS);
        let place = (self.used & (bit - 1)).count_ones() as usize;
        if self.used & bit != 0 { Ok(place) } else { Err(place) }
    }

    fn iter(&self, at: u32) -> impl Iterator<Item = (u32, &T)> {
        let numbers = (0..NUMBERS).filter(|number| self.used >> number & 1 == 1);
        numbers.map(move |number| at * NUMBERS + number).zip(&self.values)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = || prop_oneof![0u32..200, u32::MAX - 70..=u32::MAX, any::<u32>()];
        prop::collection::vec(
            prop_oneof![number().prop_map(Step::Insert), number().prop_map(Step::Remove)],
            0..300,
        )
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in steps(), range in prop_oneof![(0u32..200, 0u32..200), (any::<u32>(), any::<u32>())]) {
            let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
            for (value, step) in (0..).zip(steps) {
                match step {
                    Step::Insert(number) => {
                        if let Entry::Vacant(free) = map.entry(number) {
                            pages.insert(number, value);
                            free.insert(value);
                        }
                    }
                    Step::Remove(number) => prop_assert_eq!(pages.remove(number), map.remove(&number)),
                }
                prop_assert_eq!(pages.len(), map.len());
            }
            prop_assert!(pages.iter().eq(map.iter().map(|(number, value)| (*number, value))));
            for number in (0..200).chain(u32::MAX - 70..=u32::MAX) {
                prop_assert_eq!(pages.get(number), map.get(&number));
                prop_assert_eq!(pages.get_mut(number), map.get_mut(&number));
                prop_assert_eq!(pages.contains(number), map.contains_key(&number));
            }
            let (first, last) = range;
            let within = map.iter().filter(|(number, _)| (first..=last).contains(*number));
            prop_assert!(pages.range(first..=last).eq(within.map(|(_, value)| value)));
            map.keys().for_each(|number| { pages.remove(*number); });
            prop_assert!(pages.len() == 0 && pages.pages.is_empty());
        }
    }

    /// Consecutive numbers need room for their values only, and a number alone in its page needs room for one value.
    #[test]
    fn room_is_that_of_the_values() {
        let room =
            |pages: &Pages<[u64; 6]>| pages.pages.values().map(|page| page.values.capacity()).sum::<usize>();
        let mut dense = Pages::default();
        (0..64 * 100).for_each(|number| dense.insert(number, [0; 6]));
        assert_eq!((room(&dense), dense.pages.len()), (dense.len(), 100));
        let mut sparse = Pages::default();
        (0..100).for_each(|number| sparse.insert(number * 64, [0; 6]));
        assert_eq!((room(&sparse), sparse.pages.len()), (100, 100));
        for number in 0..64 * 100 {
            if number % 64 > 0 {
                dense.remove(number);
            }
        }
        assert!(room(&dense) <= 4 * dense.len(), "{} for {}", room(&dense), dense.len());
    }
}
