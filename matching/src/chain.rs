//! Linked lists with 64-bit pointers, which the published structures share.

use alloc::vec::Vec;
use core::mem;

use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;
use crate::structure::Selection;

/// A doubly linked list through the entries of a pool, in insertion order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    head: Pointer,
    tail: Pointer,
}

/// The links of an entry in a [`Chain`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChainLinks {
    prev: Pointer,
    next: Pointer,
}

/// An optional index, as wide as the pointers of the published structures, so that the measured memory can be compared
/// with the published figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointer(usize);

/// Link types that can hold an entry in a [`Chain`].
pub(crate) trait Chained {
    fn chain(&self) -> &ChainLinks;
    fn chain_mut(&mut self) -> &mut ChainLinks;
}

/// Links of an entry in a structure that keeps several chains for a context. The sequence number tells which of two
/// matches in different chains was inserted first (Zounmevo 2014, section 4.3.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct SequencedLinks {
    chain: ChainLinks,
    pub(crate) sequence: u64,
}

/// The two chains of a rank or a group of ranks, by [`Side`](crate::Side).
pub(crate) type Chains = [Chain; 2];

impl Pointer {
    pub(crate) const NONE: Self = Self(0);

    /// Returns a pointer to the object at `index` of its arena.
    pub(crate) const fn to(index: usize) -> Self {
        Self(index + 1)
    }

    /// Returns the index of the object, or `None` for [`Pointer::NONE`].
    pub(crate) const fn index(self) -> Option<usize> {
        self.0.checked_sub(1)
    }

    fn slot(self) -> Option<Slot> {
        Slot::new(self.0 as u32)
    }
}

impl From<Slot> for Pointer {
    fn from(slot: Slot) -> Self {
        Self(slot.get() as usize)
    }
}

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == Pointer::NONE
    }

    pub(crate) fn push_back<Q: Query, L: Chained, T>(&mut self, pool: &mut Pool<Q, L, T>, slot: Slot) {
        let last = mem::replace(&mut self.tail, slot.into());
        match last.slot() {
            Some(last) => pool[last].links.chain_mut().next = slot.into(),
            None => self.head = slot.into(),
        }
        *pool[slot].links.chain_mut() = ChainLinks { prev: last, next: Pointer::NONE };
    }

    pub(crate) fn unlink<Q: Query, L: Chained, T>(&mut self, pool: &mut Pool<Q, L, T>, slot: Slot) {
        let ChainLinks { prev, next } = *pool[slot].links.chain();
        match prev.slot() {
            Some(prev) => pool[prev].links.chain_mut().next = next,
            None => self.head = next,
        }
        match next.slot() {
            Some(next) => pool[next].links.chain_mut().prev = prev,
            None => self.tail = prev,
        }
    }

    pub(crate) fn iter<'p, Q: Query, L: Chained, T>(
        &self,
        pool: &'p Pool<Q, L, T>,
    ) -> impl Iterator<Item = Slot> + use<'p, Q, L, T> {
        core::iter::successors(self.head.slot(), |&slot| pool[slot].links.chain().next.slot())
    }

    /// Returns the first entry whose source and tag match the query.
    pub(crate) fn find<Q: Query, L: Chained, T, M: Meter>(
        &self,
        pool: &Pool<Q, L, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        self.iter(pool).find(|&slot| {
            meter.hop();
            meter.compare();
            query.matches(&pool[slot])
        })
    }

    /// Appends the selected entries to `found`, with `context`.
    pub(crate) fn select<Q: Query, L: Chained, T>(
        &self,
        pool: &Pool<Q, L, T>,
        selection: Selection,
        context: u32,
        found: &mut Vec<(Slot, u32)>,
    ) {
        let selected = self.iter(pool).filter(|&slot| selection.has_source(pool[slot].source));
        found.extend(selected.map(|slot| (slot, context)));
    }
}

/// Returns the match that was inserted first.
pub(crate) fn earlier<Q: Query, T>(
    pool: &Pool<Q, SequencedLinks, T>,
    one: Option<Slot>,
    other: Option<Slot>,
) -> Option<Slot> {
    one.into_iter().chain(other).min_by_key(|&slot| pool[slot].links.sequence)
}

/// Sorts the entries of `found` by insertion order.
pub(crate) fn sort_by_sequence<Q: Query, T>(pool: &Pool<Q, SequencedLinks, T>, found: &mut [(Slot, u32)]) {
    found.sort_unstable_by_key(|&(slot, _)| pool[slot].links.sequence);
}

impl Chained for SequencedLinks {
    fn chain(&self) -> &ChainLinks {
        &self.chain
    }

    fn chain_mut(&mut self) -> &mut ChainLinks {
        &mut self.chain
    }
}
