//! The default structure.

mod leads;
mod leaves;
mod queue;
mod ring;
mod table;
mod tags;

use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::{Selection, Structure};
use alloc::vec::Vec;

use leads::Leads;
use leaves::Leaves;
use queue::Queue;
use ring::{Bin, Order};
use tags::TagIndex;

pub(crate) use ring::AdaptiveLinks;

/// A list that grows an index when it pays, and no more of it than pays.
#[derive(Debug)]
pub struct Adaptive {
    leads: Leads,
    indexes: [Index; 2],
    /// The only entry of each queue, while it is alone: it is in no ring, and its context has no need to be known.
    lone: [Option<Lone>; 2],
    /// The serial number of the receive posted last.
    serial: u64,
}

/// An entry that is alone in its queue.
#[derive(Clone, Copy, Debug)]
struct Lone {
    slot: Slot,
    context: u32,
}

/// What finds the entries of one queue, in all contexts.
#[derive(Debug, Default)]
struct Index {
    leaves: Leaves,
    tags: TagIndex,
}

impl Structure for Adaptive {
    type Links<Q: Query> = AdaptiveLinks;

    fn new(_: &Config) -> Self {
        Self { leads: Leads::new(), indexes: Default::default(), lone: [None; 2], serial: 0 }
    }

    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        if let Some(lone) = self.lone[Q::SIDE as usize] {
            return lone.matching(pool, query, meter);
        }
        let lead = self.leads.find(query.context())?;
        meter.hop();
        Some(self.queue::<Q>(lead).search(pool, query, spare, meter)?.0)
    }

    #[inline]
    fn take<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        if let Some(lone) = self.lone[Q::SIDE as usize] {
            let slot = lone.matching(pool, query, meter)?;
            self.lone[Q::SIDE as usize] = None;
            return Some(slot);
        }
        let lead = self.leads.find(query.context())?;
        meter.hop();
        let mut queue = self.queue::<Q>(lead);
        let slot = queue.take(pool, query, spare, meter)?;
        if queue.is_empty() {
            self.leads.relax(lead);
        }
        Some(slot)
    }

    #[inline]
    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        if pool.len() == 1 {
            self.lone[Q::SIDE as usize] = Some(Lone { slot, context });
            return;
        }
        if self.lone[Q::SIDE as usize].is_some() {
            self.enqueue_lone(pool);
        }
        self.enqueue(pool, Lone { slot, context });
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        if self.lone[Q::SIDE as usize].take().is_some() {
            return;
        }
        let lead = self.leads.find(context).expect("an entry's context has a lead");
        let mut queue = self.queue::<Q>(lead);
        queue.remove(pool, slot);
        if queue.is_empty() {
            self.leads.relax(lead);
        }
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        if let Some(Lone { slot, context }) = self.lone[Q::SIDE as usize]
            && selection.includes(context, pool[slot].source)
        {
            found.push((slot, context));
        }
        for lead in self.leads.iter() {
            let start = found.len();
            let queue = &lead.queues[Q::SIDE as usize];
            let mut add = |slot| found.push((slot, lead.context));
            match (selection, Q::SIDE) {
                (Selection::Context(context), _) if context != lead.context => continue,
                (_, Side::Unexpected) if !queue.is_binned => {
                    let ring = ring::iter::<Order, Q, T>(queue.ring, pool);
                    ring.filter(|&slot| selection.has_source(pool[slot].source)).for_each(&mut add);
                }
                (Selection::Context(_), Side::Unexpected) => {
                    ring::iter::<Order, Q, T>(queue.ring, pool).for_each(&mut add);
                }
                (Selection::Context(_), Side::Posted) => {
                    let heads = self.indexes[Q::SIDE as usize].leaves.heads(queue.leaves);
                    let rings = heads.chain([queue.ring]);
                    rings.for_each(|head| ring::iter::<Bin, Q, T>(head, pool).for_each(&mut add));
                    found[start..].sort_unstable_by_key(|&(slot, _)| pool[slot].links.serial());
                }
                (Selection::Source(source), side) => {
                    let bin = self.indexes[Q::SIDE as usize].leaves.peek(lead.context, source);
                    ring::iter::<Bin, Q, T>(bin, pool).for_each(&mut add);
                    if side == Side::Posted {
                        let ring = ring::iter::<Bin, Q, T>(queue.ring, pool);
                        ring.filter(|&slot| pool[slot].source == source).for_each(&mut add);
                    }
                }
            }
        }
    }

    fn drop_context(&mut self, context: u32) {
        if let Some(lead) = self.leads.find(context) {
            self.leads.remove(lead);
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        let [posted, unexpected] = &self.indexes;
        self.leads.bytes() + posted.bytes() + unexpected.bytes()
    }

    fn reserved(&self) -> usize {
        let [posted, unexpected] = &self.indexes;
        self.leads.reserved() + posted.reserved() + unexpected.reserved()
    }

    fn growth<Q: Query>(&self, _: u32, _: u32) -> usize {
        self.leads.growth() + self.indexes[Q::SIDE as usize].growth()
    }
}

impl Adaptive {
    /// An entry is alone no more.
    #[cold]
    fn enqueue_lone<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        if let Some(lone) = self.lone[Q::SIDE as usize].take() {
            self.enqueue(pool, lone);
        }
    }

    /// Takes an entry into the queue of its context.
    #[inline]
    fn enqueue<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, Lone { slot, context }: Lone) {
        let lead = self.leads.find_or_insert(context);
        if Q::SIDE == Side::Posted {
            self.serial += 1;
            pool[slot].links.set_serial(self.serial);
        }
        self.queue::<Q>(lead).insert(pool, slot);
    }

    #[inline]
    fn queue<Q: Query>(&mut self, lead: usize) -> Queue<'_> {
        let lead = &mut self.leads[lead];
        Queue {
            context: lead.context,
            state: &mut lead.queues[Q::SIDE as usize],
            index: &mut self.indexes[Q::SIDE as usize],
        }
    }
}

impl Lone {
    /// The entry, if it matches.
    #[inline]
    fn matching<Q: Query, T, M: Meter>(
        self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        meter.hop();
        meter.compare();
        (self.context == query.context() && query.matches(&pool[self.slot])).then_some(self.slot)
    }
}

impl Index {
    #[inline]
    fn bytes(&self) -> usize {
        self.leaves.bytes() + self.tags.bytes()
    }

    fn reserved(&self) -> usize {
        self.leaves.reserved() + self.tags.reserved()
    }

    /// The most by which [`bytes`](Self::bytes) grows with one more entry: a list that is sorted into bins may need a
    /// leaf for each of its entries, and an entry may go to two lanes.
    fn growth(&self) -> usize {
        self.leaves.growth(queue::LIST_MAX as usize + 1) + self.tags.growth(2)
    }
}
