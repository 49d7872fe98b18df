//! A balanced search tree over context and rank.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use crate::chain::{Chains, SequencedLinks, earlier, sort_by_sequence};
use crate::config::Config;
use crate::key::Source;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::{Selection, Structure};

/// The standard library's B-tree from (context, rank) to the rank's two lists, of posted receives and of unexpected
/// messages. Zounmevo (2014, section 4.5) uses a red-black tree.
///
/// A search descends in O(log ranks in use) and compares the entries of the rank. A receive from any source visits
/// every rank in use. Receives from any source are in a separate list, which every arriving message compares.
///
/// The reported memory is an estimate, because the nodes are not accessible: it assumes the lowest fill that a B-tree
/// allows.
#[derive(Debug)]
pub struct BTree {
    ranks: BTreeMap<Key, Chains>,
    sequence: u64,
}

/// A context and the 32 bits of a source; receives from any source sort last.
type Key = (u32, u32);

/// The minimum number of keys in a node of the standard library's B-tree, except in its root. The maximum is 11.
const KEYS_MIN: usize = 5;

/// Bytes of a node: 11 keys and values, a parent and two counts. An inner node also has 12 pointers to children. At
/// most every sixth node is an inner node, so each node counts a sixth of these pointers.
const NODE_BYTES: usize = 11 * (mem::size_of::<Key>() + mem::size_of::<Chains>()) + 16 + 12 * 8 / 6;

impl Structure for BTree {
    type Links<Q: Query> = SequencedLinks;

    fn new(_: &Config) -> Self {
        Self { ranks: BTreeMap::new(), sequence: 0 }
    }

    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, SequencedLinks, T>,
        query: &Q,
        _: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let side = Q::SIDE as usize;
        let any = Source::ANY.bits();
        if Q::SIDE == Side::Unexpected && query.source().is_any() {
            let ranks = self.ranks.range((query.context(), 0)..=(query.context(), any));
            let found = ranks.filter_map(|(_, chains)| {
                meter.hop();
                chains[side].find(pool, query, meter)
            });
            return found.min_by_key(|&slot| pool[slot].links.sequence);
        }
        let mut of_source = |source| {
            meter.hop();
            self.ranks.get(&(query.context(), source))?[side].find(pool, query, meter)
        };
        let of_rank = of_source(query.source().bits());
        match Q::SIDE {
            Side::Posted => earlier(pool, of_rank, of_source(any)),
            Side::Unexpected => of_rank,
        }
    }

    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        self.sequence += 1;
        pool[slot].links.sequence = self.sequence;
        let chains = self.ranks.entry((context, pool[slot].source)).or_default();
        chains[Q::SIDE as usize].push_back(pool, slot);
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        let key = (context, pool[slot].source);
        let chains = self.ranks.get_mut(&key).expect("an entry's source is in the tree");
        chains[Q::SIDE as usize].unlink(pool, slot);
        if chains.iter().all(|chain| chain.is_empty()) {
            self.ranks.remove(&key);
        }
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, SequencedLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        let side = Q::SIDE as usize;
        match selection {
            Selection::Context(context) => {
                for (_, chains) in self.ranks.range((context, 0)..=(context, u32::MAX)) {
                    chains[side].select(pool, selection, context, found);
                }
                sort_by_sequence(pool, found);
            }
            Selection::Source(source) => {
                for (&(context, of), chains) in &self.ranks {
                    if of == source {
                        chains[side].select(pool, selection, context, found);
                    }
                }
            }
        }
    }

    fn drop_context(&mut self, _: u32) {}

    fn bytes(&self) -> usize {
        self.ranks.len().div_ceil(KEYS_MIN) * NODE_BYTES
    }

    fn reserved(&self) -> usize {
        self.bytes()
    }

    fn growth<Q: Query>(&self, _: u32, _: u32) -> usize {
        NODE_BYTES
    }
}
