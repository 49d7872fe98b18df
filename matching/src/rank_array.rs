//! An array over the ranks: the structure of Open MPI, and the fastest of the published structures.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::chain::{Chain, Chains, SequencedLinks, earlier, sort_by_sequence};
use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::{Selection, Structure};

/// An array for each context, with two lists for every rank (Zounmevo 2014, section 4.4, figure 4.4).
///
/// A search walks through the contexts, indexes the rank's list, and compares the entries of that list: O(contexts +
/// entries of the rank). A receive from any source visits every rank: O(ranks + entries). Receives from any
/// source are in a separate list, which every arriving message compares.
///
/// The array has [`Config::ranks`] elements of 32 bytes. It is allocated at the first use of the context and kept until
/// the context is purged. Entries of ranks without an element, from [`Config::ranks`] on, share the list of receives
/// from any source.
#[derive(Debug)]
pub struct RankArray {
    leads: Vec<Lead>,
    ranks: usize,
    sequence: u64,
}

/// The lists of a context: 56 bytes, as published (table 4.4).
#[derive(Debug)]
struct Lead {
    context: u32,
    /// The entries whose source has no element in the array: receives from any source, and entries of ranks from
    /// [`Config::ranks`] on.
    apart: Chains,
    heads: Box<[RankHead]>,
}

/// A rank's two lists: 32 bytes, as published.
type RankHead = Chains;

impl Structure for RankArray {
    type Links<Q: Query> = SequencedLinks;

    fn new(config: &Config) -> Self {
        Self { leads: Vec::new(), ranks: config.ranks as usize, sequence: 0 }
    }

    #[inline(always)]
    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, SequencedLinks, T>,
        query: &Q,
        _: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let side = Q::SIDE as usize;
        let lead = self.leads.iter().find(|lead| {
            meter.hop();
            lead.context == query.context()
        })?;
        if side == Side::Unexpected as usize && query.source().is_any() {
            let chains = lead.heads.iter().chain([&lead.apart]);
            let found = chains.filter_map(|chains| {
                meter.hop();
                chains[side].find(pool, query, meter)
            });
            return found.min_by_key(|&slot| pool[slot].links.sequence);
        }
        let of_rank = lead.heads.get(query.source().bits() as usize).and_then(|chains| {
            meter.hop();
            chains[side].find(pool, query, meter)
        });
        earlier(pool, of_rank, lead.apart[side].find(pool, query, meter))
    }

    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        if !self.leads.iter().any(|lead| lead.context == context) {
            let heads = alloc::vec![Chains::default(); self.ranks].into_boxed_slice();
            self.leads.push(Lead { context, apart: Chains::default(), heads });
        }
        self.sequence += 1;
        pool[slot].links.sequence = self.sequence;
        self.chain::<Q>(context, pool[slot].source).push_back(pool, slot);
    }

    #[inline(always)]
    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        self.chain::<Q>(context, pool[slot].source).unlink(pool, slot);
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, SequencedLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        let side = Q::SIDE as usize;
        for lead in &self.leads {
            let start = found.len();
            let apart = [&lead.apart];
            let heads = match selection {
                Selection::Context(context) if context != lead.context => continue,
                Selection::Context(_) => &lead.heads[..],
                Selection::Source(source) => {
                    lead.heads.get(source as usize).map_or(&[][..], core::slice::from_ref)
                }
            };
            for chains in heads.iter().chain(apart) {
                chains[side].select(pool, selection, lead.context, found);
            }
            sort_by_sequence(pool, &mut found[start..]);
        }
    }

    fn drop_context(&mut self, context: u32) {
        self.leads.retain(|lead| lead.context != context);
    }

    fn bytes(&self) -> usize {
        self.leads.len() * self.lead_bytes()
    }

    fn reserved(&self) -> usize {
        let spare = self.leads.capacity() - self.leads.len();
        self.bytes() + spare * mem::size_of::<Lead>()
    }

    fn growth<Q: Query>(&self, context: u32, _: u32) -> usize {
        if self.leads.iter().any(|lead| lead.context == context) { 0 } else { self.lead_bytes() }
    }
}

impl RankArray {
    fn lead_bytes(&self) -> usize {
        mem::size_of::<Lead>() + self.ranks * mem::size_of::<RankHead>()
    }

    /// Returns the chain of a source in a context that has a lead.
    #[inline(always)]
    fn chain<Q: Query>(&mut self, context: u32, source: u32) -> &mut Chain {
        let lead = self.leads.iter_mut().find(|lead| lead.context == context);
        let Lead { apart, heads, .. } = lead.expect("an entry's context has a lead");
        &mut heads.get_mut(source as usize).unwrap_or(apart)[Q::SIDE as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the sizes in (Zounmevo 2014, table 4.4).
    #[test]
    fn objects_have_the_published_sizes() {
        assert_eq!(mem::size_of::<RankHead>(), 32);
        assert_eq!(mem::size_of::<Lead>(), 56);
    }
}
