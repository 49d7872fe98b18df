//! The default structure of a matcher.

mod leads;
mod leaves;
mod list;
mod log;
mod queue;
mod table;
mod tags;

use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;
use crate::structure::{NotShort, Selection, Structure};
use alloc::vec::Vec;
use core::num::NonZeroU64;

use leads::{Lead, Leads};
use leaves::Leaves;
use queue::Queue;
use tags::TagIndex;

pub(crate) use list::AdaptiveLinks;

/// A list that builds an index only for queues that are long enough to benefit from one.
///
/// A single entry in a queue is stored outside all structures. Up to 10 entries of a context form a list. Above that,
/// each entry goes to the *bin* of its rank: a list of that rank's entries in insertion order, with one 32-bit slot as
/// its head. The bins of 16 neighbouring ranks form a *leaf*, which is found by one hash. So memory depends on the
/// number of ranks in use, neighbouring ranks share a cache line, and a search reaches the bin of a rank in three
/// steps, however many ranks there are. When a search for an exact tag has compared 32 entries of a list or bin without
/// a match, its entries are also added to the *tag index*, a hash table of their tags, unless that would exceed the
/// byte budget. They stay there until they are removed from the queue. This costs about as much as a second insertion,
/// once for each entry.
///
/// Wildcards keep MPI's order as follows. Receives from any source form a separate list in each context. A message
/// compares the serial numbers of two entries: the first match in that list, and the first match in the bin of its
/// source. While a context has at most 64 messages, a receive from any source compares the serial numbers of the first
/// match of each bin. Above that, the messages are also in the context's *log*, an array of their slots in order of
/// arrival. A message stores its place in the log, so its removal is one store. When the gaps in the log outnumber the
/// messages by more than 64, or by any number when the log's memory is full, the gaps are closed. When a search for an
/// exact tag has looked at 256 places of the log without a match, all messages of the log are also added to the tag
/// index. A receive with a mask is in the tag index under its masked tag, and a message searches the tag index once for
/// each mask in use.
///
/// `m` is the number of distinct masks of receives in the tag index:
///
/// | operation | steps |
/// | --- | --- |
/// | arrive | O(1), O(m) in long lists |
/// | post, take, probe: any tag, with a source or any source | O(1) |
/// | post, take, probe: a tag, with a source or any source | O(1), except the search that adds a long bin or log to the tag index |
/// | post, take, probe: a partial mask | O(messages of the source; with any source, of the context) |
/// | cancel, remove | O(1); for an entry in the tag index O(distance from the nearer end of the entries with its source and tag) |
/// | purge of a source | O(contexts + entries handed back) |
/// | purge of a context | O(n log n) for n entries handed back |
///
/// An entry has 16 bytes of links. A leaf takes 84 bytes and 4 to 8 bytes of its bucket; a leaf without entries is kept
/// until its queue is empty or the number of the queue's leaves has doubled. A message in a log takes 4 bytes, and as
/// much again for gaps. An entry in the tag index takes 40 bytes and 4 to 8 bytes of its bucket. Memory does not depend
/// on the number of ranks or contexts that could be used.
#[derive(Debug)]
pub struct Adaptive {
    leads: Leads,
    indexes: [Index; 2],
    /// The only entry of each of the two queues, or `None` if the queue has no entry or several. The entry is in no
    /// list, and its context may have no [`Lead`].
    lone: [Option<Lone>; 2],
    /// The serial number of the entry that was inserted most recently.
    serial: u64,
}

/// A single entry of a queue: its slot and its context. They are in one word, so that one store writes both and one
/// load reads both. A load of one word soon after two stores of its halves would be slow.
#[derive(Clone, Copy, Debug)]
struct Lone(NonZeroU64);

/// The index over the entries of one of the two queues, in all contexts.
#[derive(Debug, Default)]
struct Index {
    leaves: Leaves,
    tags: TagIndex,
    /// The number of messages in the logs.
    logged: usize,
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
        meter.hop();
        self.queue::<Q>(query.context())?.search(pool, query, spare, meter)
    }

    #[inline(always)]
    fn take<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        if let Some(lone) = self.lone[Q::SIDE as usize] {
            let Some(slot) = lone.matching(pool, query, meter) else { return Ok(None) };
            self.lone[Q::SIDE as usize] = None;
            return Ok(Some(slot));
        }
        meter.hop();
        let Some(mut queue) = self.queue::<Q>(query.context()) else { return Ok(None) };
        let slot = queue.take(pool, query, meter)?;
        if slot.is_some() && queue.is_empty() {
            queue.restart();
            self.leads.relax();
        }
        Ok(slot)
    }

    #[inline]
    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        if pool.len() == 1 {
            self.lone[Q::SIDE as usize] = Some(Lone::new(slot, context));
            return;
        }
        if self.lone[Q::SIDE as usize].is_some() {
            self.enqueue_lone(pool);
        }
        self.enqueue(pool, slot, context);
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        if self.lone[Q::SIDE as usize].take().is_some() {
            return;
        }
        let mut queue = self.queue::<Q>(context).expect("an entry's context has a lead");
        queue.remove(pool, slot);
        if queue.is_empty() {
            queue.restart();
            self.leads.relax();
        }
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        if let Some(lone) = self.lone[Q::SIDE as usize]
            && selection.includes(lone.context(), pool[lone.slot()].source)
        {
            found.push((lone.slot(), lone.context()));
        }
        for lead in self.leads.select(selection) {
            let start = found.len();
            let queue = &lead.queues[Q::SIDE as usize];
            let mut add = |slot| found.push((slot, lead.context));
            let leaves = &self.indexes[Q::SIDE as usize].leaves;
            match selection {
                Selection::Context(_) if queue.is_logged => lead.log.iter().for_each(&mut add),
                Selection::Context(_) => {
                    let lists = leaves.heads(queue.leaves).chain([queue.list]);
                    lists.for_each(|head| list::iter(head, pool).for_each(&mut add));
                    found[start..].sort_unstable_by_key(|&(slot, _)| pool[slot].links.order);
                }
                Selection::Source(source) => {
                    list::iter(leaves.peek(lead.context, source), pool).for_each(&mut add);
                    let list = list::iter(queue.list, pool);
                    list.filter(|&slot| pool[slot].source == source).for_each(&mut add);
                }
            }
        }
    }

    fn drop_context(&mut self, context: u32) {
        if self.leads.find(context).is_some() {
            self.leads.remove_last();
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
    /// Moves an entry that was stored alone into the structures, before a second entry is added.
    #[cold]
    fn enqueue_lone<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        if let Some(lone) = self.lone[Q::SIDE as usize].take() {
            self.enqueue(pool, lone.slot(), lone.context());
        }
    }

    /// Adds an entry to the queue of its context.
    #[inline]
    fn enqueue<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        self.serial += 1;
        let lead = self.leads.find_or_insert(context);
        queue_of::<Q>(lead, &mut self.indexes).insert(pool, slot, self.serial);
    }

    /// Returns the queue of a context, or `None` if the context has no [`Lead`].
    #[inline]
    fn queue<Q: Query>(&mut self, context: u32) -> Option<Queue<'_>> {
        Some(queue_of::<Q>(self.leads.find(context)?, &mut self.indexes))
    }
}

#[inline]
fn queue_of<'a, Q: Query>(lead: &'a mut Lead, indexes: &'a mut [Index; 2]) -> Queue<'a> {
    let Lead { context, queues, log } = lead;
    let side = Q::SIDE as usize;
    Queue { context: *context, state: &mut queues[side], log, index: &mut indexes[side] }
}

impl Lone {
    /// Returns the single entry if it matches.
    #[inline]
    fn matching<Q: Query, T, M: Meter>(
        self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        meter.hop();
        meter.compare();
        (self.context() == query.context() && query.matches(&pool[self.slot()])).then_some(self.slot())
    }

    fn new(slot: Slot, context: u32) -> Self {
        Self(NonZeroU64::from(slot.number()) | u64::from(context) << 32)
    }

    fn slot(self) -> Slot {
        Slot::new(self.0.get() as u32).expect("it was made from a slot")
    }

    fn context(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

impl Index {
    #[inline]
    fn bytes(&self) -> usize {
        self.leaves.bytes() + self.tags.bytes() + self.logged * log::CELL_BYTES
    }

    fn reserved(&self) -> usize {
        self.leaves.reserved() + self.tags.reserved()
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) for one more entry. In the worst case the insertion sorts a
    /// list into bins, with a new leaf for each entry, moves all messages to the log, and adds the entry to two lanes
    /// of the tag index.
    fn growth(&self) -> usize {
        let (sorted, logged) = (queue::LIST_MAX as usize + 1, queue::UNLOGGED_MAX as usize + 1);
        self.leaves.growth(sorted) + logged * log::CELL_BYTES + self.tags.growth(2)
    }
}

#[cfg(test)]
mod tests;
