//! The plain linked list: the structure of MPICH and its derivatives, and the measure of the others.

use alloc::vec::Vec;
use core::mem;

use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;
use crate::structure::{Selection, Structure};

/// One doubly linked list for each queue, through all contexts, sources and tags.
///
/// A search compares every entry before the one it finds, and all of them when it finds none (Zounmevo 2014,
/// equation 4.6): O(entries of all contexts). Insertion and removal are O(1). No memory beyond the entries.
/// The published structure's pointers are 64 bits wide, and so are these.
#[derive(Debug)]
pub struct LinkedList {
    chains: [Chain; 2],
}

/// Links of an entry in a [`LinkedList`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ListLinks {
    chain: ChainLinks,
    context: u32,
}

impl Structure for LinkedList {
    type Links<Q: Query> = ListLinks;

    fn new(_: &Config) -> Self {
        Self { chains: [Chain::default(); 2] }
    }

    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, ListLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        self.chains[Q::SIDE as usize].iter(pool).find(|&slot| {
            meter.hop();
            meter.compare();
            let entry = &pool[slot];
            entry.links.context == query.context() && query.matches(entry)
        })
    }

    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, ListLinks, T>, slot: Slot, context: u32) {
        pool[slot].links.context = context;
        self.chains[Q::SIDE as usize].push_back(pool, slot);
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, ListLinks, T>, slot: Slot, _: u32) {
        self.chains[Q::SIDE as usize].unlink(pool, slot);
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, ListLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        let entries = self.chains[Q::SIDE as usize].iter(pool).map(|slot| (slot, pool[slot].links.context));
        match selection {
            Selection::Source(source) => {
                found.extend(entries.filter(|&(slot, _)| pool[slot].source == source));
            }
            Selection::Context(context) => found.extend(entries.filter(|&(_, of)| of == context)),
        }
    }

    fn bytes(&self) -> usize {
        mem::size_of::<Self>()
    }

    fn reserved(&self) -> usize {
        self.bytes()
    }

    fn growth<Q: Query>(&self, _: u32, _: u32) -> usize {
        0
    }
}

/// A doubly linked list through the entries of a pool, in the order of insertion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    head: Pointer,
    tail: Pointer,
}

/// An entry's place in a [`Chain`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChainLinks {
    prev: Pointer,
    next: Pointer,
}

/// A slot or none, as wide as the pointers of the published structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointer(usize);

/// Links that hold an entry in a [`Chain`].
pub(crate) trait Chained {
    fn chain(&self) -> &ChainLinks;
    fn chain_mut(&mut self) -> &mut ChainLinks;
}

impl Pointer {
    fn get(self) -> Option<Slot> {
        Slot::new(self.0 as u32)
    }
}

impl From<Option<Slot>> for Pointer {
    fn from(slot: Option<Slot>) -> Self {
        Self(slot.map_or(0, |slot| slot.get() as usize))
    }
}

impl Chain {
    pub(crate) fn push_back<Q: Query, L: Chained, T>(&mut self, pool: &mut Pool<Q, L, T>, slot: Slot) {
        let last = mem::replace(&mut self.tail, Some(slot).into());
        match last.get() {
            Some(last) => pool[last].links.chain_mut().next = Some(slot).into(),
            None => self.head = Some(slot).into(),
        }
        *pool[slot].links.chain_mut() = ChainLinks { prev: last, next: None.into() };
    }

    pub(crate) fn unlink<Q: Query, L: Chained, T>(&mut self, pool: &mut Pool<Q, L, T>, slot: Slot) {
        let ChainLinks { prev, next } = *pool[slot].links.chain();
        match prev.get() {
            Some(prev) => pool[prev].links.chain_mut().next = next,
            None => self.head = next,
        }
        match next.get() {
            Some(next) => pool[next].links.chain_mut().prev = prev,
            None => self.tail = prev,
        }
    }

    pub(crate) fn iter<'p, Q: Query, L: Chained, T>(
        &self,
        pool: &'p Pool<Q, L, T>,
    ) -> impl Iterator<Item = Slot> + use<'p, Q, L, T> {
        core::iter::successors(self.head.get(), |&slot| pool[slot].links.chain().next.get())
    }
}

impl Chained for ListLinks {
    fn chain(&self) -> &ChainLinks {
        &self.chain
    }

    fn chain_mut(&mut self) -> &mut ChainLinks {
        &mut self.chain
    }
}
