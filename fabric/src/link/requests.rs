//! Requests: their names, how they end, and a table of them.

use super::{Error, Status};
use crate::Memory;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not yet.
    Pending,
    /// Not yet, but a peer failed for which a receive from any source might have waited.
    FailurePending,
    /// The request has ended: collect it. If there is nothing to collect, its lender was informed by
    /// [`Lent::received`](super::Lent::received).
    Ready,
}

/// How a request ended.
#[derive(Debug)]
pub struct Completion {
    /// The message: of a receive, with its source; of a send, with its destination.
    pub result: Result<Status, Error>,
    /// The memory that the request owned. None if it was borrowed, or if a port may still touch it: then it is kept until
    /// that is over, and dropped.
    pub memory: Option<Memory>,
}

/// Names a request. Generational: once collected it names nothing, and never another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    index: u32,
    generation: u32,
}

impl std::hash::Hash for RequestId {
    /// As one number: that is one step of a hasher.
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_wire());
    }
}

impl RequestId {
    /// Returns its place in its [`Slots`], for tables that run parallel to them. Another request may have it later.
    #[inline]
    #[must_use]
    pub fn place(self) -> usize {
        self.index as usize
    }

    /// Returns the name as one number, as packets carry it.
    #[must_use]
    pub fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Reads a name from a packet. Any number is a name, perhaps of no request.
    #[must_use]
    pub fn from_wire(name: u64) -> Self {
        Self { index: name as u32, generation: (name >> 32) as u32 }
    }
}

/// A value in [`Slots`].
pub trait Slot {
    /// Makes a value without anything to be dropped.
    fn bare() -> Self;
    /// Returns true if dropping the value does nothing.
    fn is_bare(&self) -> bool;
}

/// The requests of one protocol.
///
/// Unlike a slab, it leaves a removed value in place until the next one is written over it, if there is nothing in it to be
/// dropped: the drop took longer than everything else at the end of a request.
#[derive(Debug)]
pub struct Slots<T> {
    all: Vec<Place<T>>,
    /// The first free place, or the number of places if none is free.
    free: u32,
    len: usize,
    generation: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: 0, len: 0, generation: 0 }
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Place<T> {
    /// That of the value in it, or [`FREE`].
    generation: u64,
    /// The next free place.
    next: u32,
    /// In a free place a bare one.
    value: T,
}

impl<T: Slot> Slots<T> {
    /// Bytes that each value takes.
    pub const BYTES: usize = size_of::<Place<T>>();

    /// Returns the name of the value that is inserted next.
    #[inline(always)]
    pub fn next_id(&self) -> RequestId {
        RequestId { index: self.free, generation: self.generation.wrapping_add(1) }
    }

    /// Inserts a value.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> RequestId {
        let id = self.next_id();
        self.generation = id.generation;
        self.len += 1;
        match self.all.get_mut(id.index as usize) {
            Some(place) => {
                self.free = place.next;
                place.generation = id.generation.into();
                // The old value is bare, see `remove`.
                std::mem::forget(std::mem::replace(&mut place.value, value));
            }
            None => {
                // There are fewer than 2^32: each takes more than a byte of memory for every such index.
                self.free += 1;
                self.all.push(Place { generation: id.generation.into(), next: 0, value });
            }
        }
        id
    }

    /// Returns the value of that name, if it still exists.
    #[inline(always)]
    pub fn get(&self, id: RequestId) -> Option<&T> {
        let place = self.all.get(id.index as usize)?;
        (place.generation == u64::from(id.generation)).then_some(&place.value)
    }

    /// As [`Slots::get`], to change it.
    #[inline(always)]
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let place = self.all.get_mut(id.index as usize)?;
        (place.generation == u64::from(id.generation)).then_some(&mut place.value)
    }

    /// Removes a value, if it still exists.
    #[inline]
    pub fn remove(&mut self, id: RequestId) {
        let Some(value) = self.get_mut(id) else { return };
        if !value.is_bare() {
            *value = T::bare();
        }
        self.remove_bare(id);
    }

    /// Removes a value that is known to exist, and to be [bare](Slot::is_bare).
    #[inline(always)]
    pub fn remove_bare(&mut self, id: RequestId) {
        let Some(place) = self.all.get_mut(id.index as usize) else { return };
        debug_assert!(place.generation == u64::from(id.generation) && place.value.is_bare());
        (place.generation, place.next) = (FREE, self.free);
        self.free = id.index;
        self.len -= 1;
    }

    /// Returns the number of values.
    #[expect(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Iterates over all values and their names.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        (0..)
            .zip(&self.all)
            .filter(|(_, place)| place.generation != FREE)
            .map(|(index, place)| (RequestId { index, generation: place.generation as u32 }, &place.value))
    }

    /// Returns the names of the values that `wanted` accepts.
    pub fn select(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<RequestId> {
        self.iter().filter(|(_, value)| wanted(value)).map(|(id, _)| id).collect()
    }
}

/// The generation of no value, which no name has.
const FREE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    impl Slot for Option<Rc<()>> {
        fn bare() -> Self {
            None
        }
        fn is_bare(&self) -> bool {
            self.is_none()
        }
    }

    type Values = Slots<Option<Rc<()>>>;

    #[test]
    fn a_stale_name_names_nothing() {
        let mut values = Values::default();
        let old = values.insert(None);
        values.remove(old);
        let new = values.insert(None);
        values.remove(old);
        assert_eq!(old.index, new.index, "the place is used again");
        assert!(values.get(old).is_none() && values.get(new).is_some() && values.len() == 1);
        assert_eq!(RequestId::from_wire(new.to_wire()), new);
    }

    #[test]
    fn a_removed_value_is_dropped() {
        let held = Rc::new(());
        let mut values = Values::default();
        for _ in 0..2 {
            let id = values.insert(Some(held.clone()));
            values.remove(id);
            assert_eq!(Rc::strong_count(&held), 1);
        }
    }

    #[test]
    fn no_name_is_that_of_a_free_place() {
        let mut values = Values { generation: u32::MAX - 2, ..Values::default() };
        for _ in 0..4 {
            let id = values.insert(None);
            values.remove(id);
            let names = [0, 1, id.generation, u32::MAX].map(|generation| RequestId { generation, ..id });
            assert!(names.iter().all(|&name| values.get(name).is_none()));
        }
    }
}
