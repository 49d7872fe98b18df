//! The default structure.

mod leads;
mod leaves;
mod ring;
mod table;
mod tags;

use alloc::vec::Vec;
use core::mem;

use smallvec::SmallVec;

use crate::config::Config;
use crate::key::Source;
use crate::meter::Meter;
use crate::pool::{Entry, Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::{Selection, Structure};

use leads::{Leads, Queue};
use leaves::Leaves;
use ring::{Bin, Head, Order, Through};
use tags::{Lane, TagIndex};

pub(crate) use ring::AdaptiveLinks;

/// A list that grows an index when it pays, and no more of it than pays.
#[derive(Debug)]
pub struct Adaptive {
    leads: Leads,
    indexes: [Index; 2],
    /// The serial number of the receive posted last.
    serial: u64,
    /// The masks of posted receives in the tag index, with how many have each.
    masks: Vec<(u64, u32)>,
}

/// What finds the entries of one queue, in all contexts.
#[derive(Debug, Default)]
struct Index {
    leaves: Leaves,
    tags: TagIndex,
}

/// A queue of a context with at most this many entries is searched as a list.
const LIST_MAX: u32 = 6;

/// Entries of a bin compared before the bin goes to the tag index.
const SCAN_MAX: usize = 16;

impl Structure for Adaptive {
    type Links<Q: Query> = AdaptiveLinks;

    fn new(_: &Config) -> Self {
        Self { leads: Leads::default(), indexes: Default::default(), serial: 0, masks: Vec::new() }
    }

    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let at = self.leads.find(query.context())?;
        meter.hop();
        let queue = self.leads[at].queues[Q::SIDE as usize];
        match Q::SIDE {
            _ if queue.len == 0 => None,
            Side::Posted => {
                let of_rank =
                    if queue.binned_len == 0 { None } else { self.find_in_bin(pool, query, spare, meter) };
                let of_any = self.find_in_ring::<Bin, Q, T, M>(at, pool, query, spare, meter);
                match (of_rank, of_any) {
                    (Some(a), Some(b)) if pool[a].links.serial() < pool[b].links.serial() => Some(a),
                    (found, None) => found,
                    (_, found) => found,
                }
            }
            Side::Unexpected if queue.is_binned && !query.source().is_any() => {
                self.find_in_bin(pool, query, spare, meter)
            }
            Side::Unexpected => self.find_in_ring::<Order, Q, T, M>(at, pool, query, spare, meter),
        }
    }

    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        let at = self.leads.find_or_insert(context);
        let queue = &mut self.leads[at].queues[Q::SIDE as usize];
        queue.len += 1;
        match Q::SIDE {
            Side::Posted => {
                self.serial += 1;
                pool[slot].links.set_serial(self.serial);
                if queue.is_binned && !is_from_any(&pool[slot]) {
                    self.insert_in_bin(at, pool, slot);
                } else {
                    self.insert_in_ring::<Bin, Q, T>(at, pool, slot);
                }
            }
            Side::Unexpected => {
                let is_binned = queue.is_binned;
                self.insert_in_ring::<Order, Q, T>(at, pool, slot);
                if is_binned {
                    self.insert_in_bin(at, pool, slot);
                }
            }
        }
        let queue = &self.leads[at].queues[Q::SIDE as usize];
        if !queue.is_binned && queue.len > LIST_MAX {
            self.sort_into_bins(at, pool);
        }
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, context: u32) {
        let at = self.leads.find(context).expect("an entry's context has a lead");
        let is_binned = self.leads[at].queues[Q::SIDE as usize].is_binned;
        match Q::SIDE {
            Side::Posted if is_binned && !is_from_any(&pool[slot]) => self.remove_from_bin(at, pool, slot),
            Side::Posted => self.remove_from_ring::<Bin, Q, T>(at, pool, slot),
            Side::Unexpected => {
                self.remove_from_ring::<Order, Q, T>(at, pool, slot);
                if is_binned {
                    self.remove_from_bin(at, pool, slot);
                }
            }
        }
        let lead = &mut self.leads[at];
        let queue = &mut lead.queues[Q::SIDE as usize];
        queue.len -= 1;
        if queue.len == 0 {
            *queue = Queue::EMPTY;
            if lead.queues.iter().all(|queue| queue.len == 0) {
                self.leads.relax(at);
            }
        }
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
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
                    let heads = self.indexes[Q::SIDE as usize].leaves.heads(queue.leaf);
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
        if let Some(at) = self.leads.find(context) {
            self.leads.remove(at);
        }
    }

    fn bytes(&self) -> usize {
        let indexes: usize = self.indexes.iter().map(|index| index.leaves.bytes() + index.tags.bytes()).sum();
        self.leads.bytes() + indexes + mem::size_of_val(&self.masks[..])
    }

    fn reserved(&self) -> usize {
        let indexes: usize =
            self.indexes.iter().map(|index| index.leaves.reserved() + index.tags.reserved()).sum();
        self.leads.reserved() + indexes + self.masks.capacity() * MASK_BYTES
    }

    fn growth<Q: Query>(&self, context: u32, _: u32) -> usize {
        let index = &self.indexes[Q::SIDE as usize];
        // A list that is sorted into bins may need a leaf for each entry; an entry may go to two lanes.
        let leaves = LIST_MAX as usize + 1;
        self.leads.growth(context) + index.leaves.growth(leaves) + index.tags.growth(2) + MASK_BYTES
    }
}

const MASK_BYTES: usize = mem::size_of::<(u64, u32)>();

impl Adaptive {
    /// The first match in the bin of the source.
    fn find_in_bin<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let index = &mut self.indexes[Q::SIDE as usize];
        let source = query.source().bits();
        meter.hop();
        let bin = index.leaves.find(query.context(), source)?;
        let head = index.leaves.head(bin);
        match scan::<Bin, Q, T, M>(head, SCAN_MAX, pool, query, meter) {
            Scan::Found(slot) => return Some(slot),
            Scan::Absent => return None,
            Scan::Long => {}
        }
        if !index.leaves.is_tagged(bin)
            && is_tag_exact(query)
            && self.tag::<Bin, Q, T>(query.context(), source, head, pool, spare)
        {
            self.indexes[Q::SIDE as usize].leaves.set_tagged(bin);
        }
        let is_tagged = self.indexes[Q::SIDE as usize].leaves.is_tagged(bin);
        self.find_beyond_scan::<Bin, Q, T, M>(is_tagged, source, head, pool, query, meter)
    }

    /// The first match among the entries that are in no bin, or among all messages of the context.
    fn find_in_ring<W: Through, Q: Query, T, M: Meter>(
        &mut self,
        at: usize,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let queue = self.leads[at].queues[Q::SIDE as usize];
        match scan::<W, Q, T, M>(queue.ring, SCAN_MAX, pool, query, meter) {
            Scan::Found(slot) => return Some(slot),
            Scan::Absent => return None,
            Scan::Long => {}
        }
        let source = Source::ANY.bits();
        let mut is_tagged = queue.is_tagged;
        if !is_tagged && is_tag_exact(query) {
            is_tagged = self.tag::<W, Q, T>(query.context(), source, queue.ring, pool, spare);
            self.leads[at].queues[Q::SIDE as usize].is_tagged = is_tagged;
        }
        self.find_beyond_scan::<W, Q, T, M>(is_tagged, source, queue.ring, pool, query, meter)
    }

    /// The first match in a long ring: by the tag index if its entries are there and the query's tag is exact.
    fn find_beyond_scan<W: Through, Q: Query, T, M: Meter>(
        &self,
        is_tagged: bool,
        source: u32,
        ring: Head,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        if !is_tagged || !is_tag_exact(query) {
            return match scan::<W, Q, T, M>(ring, usize::MAX, pool, query, meter) {
                Scan::Found(slot) => Some(slot),
                Scan::Absent | Scan::Long => None,
            };
        }
        let tags = &self.indexes[Q::SIDE as usize].tags;
        let mut first = |mask: u64| {
            meter.hop();
            meter.compare();
            tags.first(&Lane { context: query.context(), source, tag: query.tag() & mask, mask })
        };
        match Q::SIDE {
            Side::Posted => {
                let found = self.masks.iter().filter_map(|&(mask, _)| first(mask));
                found.min_by_key(|&slot| pool[slot].links.serial())
            }
            Side::Unexpected => first(!0),
        }
    }

    /// Enters a ring into the tag index, if the bytes may be spent.
    fn tag<W: Through, Q: Query, T>(
        &mut self,
        context: u32,
        source: u32,
        ring: Head,
        pool: &Pool<Q, AdaptiveLinks, T>,
        spare: usize,
    ) -> bool {
        let tags = &self.indexes[Q::SIDE as usize].tags;
        if spare < usize::MAX {
            let entries = ring::iter::<W, Q, T>(ring, pool).count();
            if tags.growth(entries) + entries * MASK_BYTES > spare {
                return false;
            }
        }
        for slot in ring::iter::<W, Q, T>(ring, pool) {
            self.insert_tag(context, source, pool, slot);
        }
        true
    }

    fn insert_in_bin<Q: Query, T>(&mut self, at: usize, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let lead = &mut self.leads[at];
        let queue = &mut lead.queues[Q::SIDE as usize];
        let leaves = &mut self.indexes[Q::SIDE as usize].leaves;
        let source = pool[slot].source;
        queue.binned_len += 1;
        let bin = leaves.find_or_insert(lead.context, source, &mut queue.leaf);
        let mut head = leaves.head(bin);
        if head.is_some() && leaves.is_tagged(bin) {
            let context = lead.context;
            ring::push_back::<Bin, Q, T>(&mut head, pool, slot);
            self.insert_tag(context, source, pool, slot);
        } else {
            let was_empty = head.is_none();
            ring::push_back::<Bin, Q, T>(&mut head, pool, slot);
            if was_empty {
                leaves.set_head(bin, head, &mut queue.leaf);
            }
        }
    }

    fn remove_from_bin<Q: Query, T>(&mut self, at: usize, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let lead = &mut self.leads[at];
        let context = lead.context;
        let queue = &mut lead.queues[Q::SIDE as usize];
        let leaves = &mut self.indexes[Q::SIDE as usize].leaves;
        let source = pool[slot].source;
        queue.binned_len -= 1;
        let bin = leaves.find(context, source).expect("an entry's bin has a leaf");
        let before = leaves.head(bin);
        let mut head = before;
        ring::unlink::<Bin, Q, T>(&mut head, pool, slot);
        let is_tagged = leaves.is_tagged(bin);
        if head != before {
            leaves.set_head(bin, head, &mut queue.leaf);
        }
        if is_tagged {
            self.remove_tag(context, source, pool, slot);
        }
    }

    fn insert_in_ring<W: Through, Q: Query, T>(
        &mut self,
        at: usize,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
    ) {
        let lead = &mut self.leads[at];
        let queue = &mut lead.queues[Q::SIDE as usize];
        ring::push_back::<W, Q, T>(&mut queue.ring, pool, slot);
        if queue.is_tagged {
            let context = lead.context;
            self.insert_tag(context, Source::ANY.bits(), pool, slot);
        }
    }

    fn remove_from_ring<W: Through, Q: Query, T>(
        &mut self,
        at: usize,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
    ) {
        let lead = &mut self.leads[at];
        let queue = &mut lead.queues[Q::SIDE as usize];
        ring::unlink::<W, Q, T>(&mut queue.ring, pool, slot);
        if queue.is_tagged {
            let context = lead.context;
            self.remove_tag(context, Source::ANY.bits(), pool, slot);
        }
    }

    fn insert_tag<Q: Query, T>(
        &mut self,
        context: u32,
        source: u32,
        pool: &Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
    ) {
        let lane = lane_of(context, source, &pool[slot]);
        self.indexes[Q::SIDE as usize].tags.push_back(lane, slot);
        if Q::SIDE == Side::Posted {
            match self.masks.iter_mut().find(|(mask, _)| *mask == lane.mask) {
                Some((_, entries)) => *entries += 1,
                None => self.masks.push((lane.mask, 1)),
            }
        }
    }

    fn remove_tag<Q: Query, T>(
        &mut self,
        context: u32,
        source: u32,
        pool: &Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
    ) {
        let lane = lane_of(context, source, &pool[slot]);
        self.indexes[Q::SIDE as usize].tags.remove(&lane, slot);
        if Q::SIDE == Side::Posted
            && let Some(at) = self.masks.iter().position(|&(mask, _)| mask == lane.mask)
        {
            self.masks[at].1 -= 1;
            if self.masks[at].1 == 0 {
                self.masks.swap_remove(at);
            }
        }
    }

    /// A list has become long: its entries go to the bins of their ranks.
    fn sort_into_bins<Q: Query, T>(&mut self, at: usize, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        let queue = &mut self.leads[at].queues[Q::SIDE as usize];
        queue.is_binned = true;
        let mut slots = SmallVec::<[Slot; LIST_MAX as usize + 1]>::new();
        match Q::SIDE {
            Side::Posted => slots.extend(ring::iter::<Bin, Q, T>(queue.ring.take(), pool)),
            Side::Unexpected => slots.extend(ring::iter::<Order, Q, T>(queue.ring, pool)),
        }
        for slot in slots {
            if Q::SIDE == Side::Posted && is_from_any(&pool[slot]) {
                self.insert_in_ring::<Bin, Q, T>(at, pool, slot);
            } else {
                self.insert_in_bin(at, pool, slot);
            }
        }
    }
}

/// What a search of a ring came to.
enum Scan {
    Found(Slot),
    Absent,
    /// The limit was reached.
    Long,
}

/// Compares the entries of a ring, first to last, at most `limit` of them.
fn scan<W: Through, Q: Query, T, M: Meter>(
    head: Head,
    limit: usize,
    pool: &Pool<Q, AdaptiveLinks, T>,
    query: &Q,
    meter: &mut M,
) -> Scan {
    for (compared, slot) in ring::iter::<W, Q, T>(head, pool).enumerate() {
        if compared == limit {
            return Scan::Long;
        }
        meter.hop();
        meter.compare();
        if query.matches(&pool[slot]) {
            return Scan::Found(slot);
        }
    }
    Scan::Absent
}

/// Whether the tag index can answer the query: an arriving message has one tag, a receive may not.
fn is_tag_exact<Q: Query>(query: &Q) -> bool {
    query.mask() == !0
}

fn is_from_any<Q: Query, T>(entry: &Entry<Q, AdaptiveLinks, T>) -> bool {
    Q::SIDE == Side::Posted && entry.source == Source::ANY.bits()
}

fn lane_of<Q: Query, T>(context: u32, source: u32, entry: &Entry<Q, AdaptiveLinks, T>) -> Lane {
    let mask = Q::entry_mask(entry.mask);
    Lane { context, source, tag: entry.tag & mask, mask }
}
