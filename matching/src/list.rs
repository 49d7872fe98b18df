//! The plain linked list: the structure of MPICH and its derivatives, with which the other structures are compared.

use alloc::vec::Vec;

use crate::chain::{Chain, ChainLinks, Chained, Chains};
use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;
use crate::structure::{Selection, Structure};

/// One doubly linked list for each queue. The list contains the entries of all contexts, sources and tags.
///
/// A search compares every entry before the match, and all entries if there is none (Zounmevo 2014,
/// equation 4.6): O(entries of all contexts). Insertion and removal are O(1). It needs no memory beside the entries.
/// Pointers are 64 bits wide, as in the published structure.
#[derive(Debug)]
pub struct LinkedList {
    chains: Chains,
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

    #[inline(always)]
    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, ListLinks, T>,
        query: &Q,
        _: &mut usize,
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

    #[inline(always)]
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

    fn drop_context(&mut self, _: u32) {}

    fn bytes(&self) -> usize {
        0
    }

    fn reserved(&self) -> usize {
        0
    }

    fn growth<Q: Query>(&self, _: u32, _: u32) -> usize {
        0
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
