//! Requests: their names, their results, and a table of requests.

use super::{Error, Status};
use crate::Memory;
use crate::wire::Protocol;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request has not ended.
    Pending,
    /// The request is a receive from any source and has not ended, but a peer has failed that might have sent its
    /// message.
    FailurePending,
    /// The request has ended: collect it. If there is nothing to collect, the result was reported to the lender of its
    /// buffer by [`Lent::received`](super::Lent::received).
    Ready,
}

/// The result of a request.
#[derive(Debug)]
pub struct Completion {
    /// The envelope of the message, or the error. `Status::source` is the sender if the request was a receive, and the
    /// destination if it was a send.
    pub result: Result<Status, Error>,
    /// The memory that the request owned. `None` if the memory was borrowed, or if a port may still access it. In the
    /// second case the memory is dropped when the port has finished.
    pub memory: Option<Memory>,
}

/// The name of a request: its place in the table of its protocol, and a generation that distinguishes successive
/// requests in that place. After the request is collected, the name refers to no request. The same name can come again
/// only after 2^29 further requests of the protocol. The generation contains the protocol's number, so requests of two
/// protocols never share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    index: u32,
    /// The low [`PROTOCOL_BITS`] are the protocol's number.
    generation: u32,
}

impl std::hash::Hash for RequestId {
    /// Hashes the name as one number, so that the hasher needs only one step.
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_wire());
    }
}

impl RequestId {
    /// The name of no request: the protocol with the number 0 has none.
    pub const NONE: Self = Self { index: 0, generation: 0 };

    /// The name of no request either, for a wait that no request ends.
    pub const PENDING: Self = Self { index: u32::MAX, generation: 0 };

    /// Returns the protocol of the request. Returns `None` if there is no such protocol: a packet can contain any
    /// number as a name.
    #[must_use]
    pub fn protocol(self) -> Option<Protocol> {
        Protocol::from_number(self.protocol_number() as u8)
    }

    /// Returns the number of the request's protocol. If the name comes from a packet, this may be a number that no
    /// protocol has.
    #[inline]
    pub(super) fn protocol_number(self) -> usize {
        (self.generation % GENERATION_STEP) as usize
    }

    /// Returns the name as one number, as packets carry it.
    #[must_use]
    pub fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Reads a name from a packet. Every number is accepted, so there may be no request with the name.
    #[must_use]
    pub fn from_wire(name: u64) -> Self {
        Self { index: name as u32, generation: (name >> 32) as u32 }
    }
}

/// A value in [`Slots`].
pub trait Slot {
    /// Makes a value that owns nothing, so that dropping it does nothing.
    fn bare() -> Self;
    /// Returns true if dropping the value does nothing.
    fn is_bare(&self) -> bool;
}

/// The requests of one protocol.
///
/// Unlike a slab, the table does not drop a removed value that owns nothing ([`Slot::is_bare`]). It leaves the value in
/// its place until the next value overwrites it. Even the drop of such a value took longer than everything else at the
/// end of a request.
#[derive(Debug)]
pub struct Slots<T> {
    all: Vec<Entry<T>>,
    /// The first free place, or the number of places if none is free.
    free: u32,
    len: usize,
    /// The generation of the latest name. Its low bits are the protocol's number.
    generation: u32,
}

#[derive(Debug)]
#[repr(align(64))]
struct Entry<T> {
    /// The generation of the value in this place. In a free place: [`FREE`], combined with the index of the next free
    /// place.
    generation: u64,
    /// In a free place, a bare value.
    value: T,
}

impl<T: Slot> Slots<T> {
    /// Bytes that each value takes.
    pub const BYTES: usize = size_of::<Entry<T>>();

    /// Makes an empty table for the requests of a protocol.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self { all: Vec::new(), free: 0, len: 0, generation: u32::from(protocol as u8) }
    }

    /// Returns the name of the value that is inserted next.
    #[inline(always)]
    pub fn next_id(&self) -> RequestId {
        RequestId { index: self.free, generation: self.generation.wrapping_add(GENERATION_STEP) }
    }

    /// Inserts a value.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> RequestId {
        let id = self.next_id();
        self.generation = id.generation;
        self.len += 1;
        match self.all.get_mut(id.index as usize) {
            Some(place) => {
                self.free = place.generation as u32;
                place.generation = id.generation.into();
                // The old value is bare (see `remove`), so nothing leaks if it is not dropped.
                std::mem::forget(std::mem::replace(&mut place.value, value));
            }
            None => {
                // The index fits in 32 bits: 2^32 places would not fit in memory.
                self.free += 1;
                self.all.push(Entry { generation: id.generation.into(), value });
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

    /// Returns the value as [`Slots::get`] does, for changes.
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
        place.generation = FREE | u64::from(self.free);
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
            .filter(|(_, place)| place.generation < FREE)
            .map(|(index, place)| (RequestId { index, generation: place.generation as u32 }, &place.value))
    }

    /// Returns the names of the values that `wanted` accepts.
    pub fn select(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<RequestId> {
        self.iter().filter(|(_, value)| wanted(value)).map(|(id, _)| id).collect()
    }
}

/// The number of low bits of a generation that hold the protocol's number. Generations are counted in the bits above,
/// so these bits never change, also when the generation wraps.
const PROTOCOL_BITS: u32 = 3;
pub(super) const GENERATION_STEP: u32 = 1 << PROTOCOL_BITS;

const _: () = assert!((Protocol::LAST as u32) < GENERATION_STEP);

/// The mark of a free place. It is larger than every generation, so no name matches a free place.
const FREE: u64 = 1 << 32;

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
        let mut values = Values::new(Protocol::P2p);
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
        let mut values = Values::new(Protocol::P2p);
        for _ in 0..2 {
            let id = values.insert(Some(held.clone()));
            values.remove(id);
            assert_eq!(Rc::strong_count(&held), 1);
        }
    }

    #[test]
    fn no_name_is_that_of_a_free_place() {
        let mut values = Values::new(Protocol::P2p);
        values.generation = values.generation.wrapping_sub(2 * GENERATION_STEP);
        for _ in 0..4 {
            let id = values.insert(None);
            values.remove(id);
            let names = [0, 1, id.generation, u32::MAX].map(|generation| RequestId { generation, ..id });
            assert!(names.iter().all(|&name| values.get(name).is_none()));
            assert_eq!(id.protocol(), Some(Protocol::P2p), "also when the generation wraps");
        }
    }

    #[test]
    fn a_name_is_of_one_protocol() {
        let mut tables =
            [Protocol::P2p, Protocol::Rma, Protocol::Coll].map(|protocol| (protocol, Values::new(protocol)));
        for _ in 0..100 {
            let names = tables.each_mut().map(|(protocol, values)| (*protocol, values.insert(None)));
            for (own, values) in &mut tables {
                for (protocol, name) in names {
                    assert_eq!(name.protocol(), Some(protocol));
                    assert_eq!(values.get(name).is_some(), protocol == *own, "the places are the same");
                }
            }
        }
        assert_eq!(RequestId::from_wire(u64::MAX).protocol(), None);
    }
}
