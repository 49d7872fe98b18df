//! One queue of one context, at work.

use crate::key::Source;
use crate::meter::Meter;
use crate::pool::{Entry, Pool, Slot};
use crate::query::{Query, Side};

use super::Index;
use super::leads::QueueState;
use super::leaves::BinId;
use super::ring::{self, AdaptiveLinks, Bin, Head, Order, Through};
use super::tags::Lane;

/// What an operation on a queue of a context works with.
pub(super) struct Queue<'a> {
    pub(super) context: u32,
    pub(super) state: &'a mut QueueState,
    pub(super) index: &'a mut Index,
}

/// A queue with at most this many entries is a list.
pub(super) const LIST_MAX: u32 = 10;

/// Entries of a ring compared before it goes to the tag index.
pub(super) const SCAN_MAX: usize = 64;

impl Queue<'_> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.state.len == 0
    }

    /// Finds the first match and takes it out.
    #[inline(always)]
    pub(super) fn take<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        if self.state.is_binned {
            return self.take_binned(pool, query, spare, meter);
        }
        let slot = match Q::SIDE {
            Side::Posted => scan_all::<Bin, Q, T, M>(self.state.ring, pool, query, meter)?,
            Side::Unexpected => scan_all::<Order, Q, T, M>(self.state.ring, pool, query, meter)?,
        };
        let links = pool[slot].links;
        self.state.len -= 1;
        match Q::SIDE {
            _ if self.state.len == 0 => self.state.ring = None,
            Side::Posted => ring::unlink::<Bin, Q, T>(&mut self.state.ring, pool, slot, &links),
            Side::Unexpected => ring::unlink::<Order, Q, T>(&mut self.state.ring, pool, slot, &links),
        }
        Some(slot)
    }

    /// Takes the entry in, as the last.
    #[inline(always)]
    pub(super) fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        self.state.len += 1;
        if self.state.is_binned {
            return self.reborrow().insert_binned(pool, slot);
        }
        match Q::SIDE {
            Side::Posted => ring::push_back::<Bin, Q, T>(&mut self.state.ring, pool, slot),
            Side::Unexpected => ring::push_back::<Order, Q, T>(&mut self.state.ring, pool, slot),
        }
        if self.state.len > LIST_MAX {
            self.reborrow().sort_into_bins(pool);
        }
    }

    /// Takes the entry out.
    pub(super) fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let entry = &pool[slot];
        let bin = match self.state.is_binned && !is_from_any(entry) {
            true => self.index.leaves.find(self.context, entry.source),
            false => None,
        };
        self.detach(bin, pool, slot);
    }

    /// The first match, and its bin if it was found there.
    pub(super) fn search<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<(Slot, Option<BinId>)> {
        match Q::SIDE {
            Side::Posted => {
                let in_bin = match self.state.leaves.is_empty() {
                    true => None,
                    false => self.search_bin(pool, query, spare, meter),
                };
                let in_ring = self.search_ring::<Bin, Q, T, M>(pool, query, spare, meter);
                match (in_bin, in_ring) {
                    (Some((slot, bin)), Some(other)) => {
                        let is_first = pool[slot].links.serial() < pool[other].links.serial();
                        Some(if is_first { (slot, Some(bin)) } else { (other, None) })
                    }
                    (Some((slot, bin)), None) => Some((slot, Some(bin))),
                    (None, in_ring) => in_ring.map(|slot| (slot, None)),
                }
            }
            Side::Unexpected if self.state.is_binned && !query.source().is_any() => {
                let (slot, bin) = self.search_bin(pool, query, spare, meter)?;
                Some((slot, Some(bin)))
            }
            Side::Unexpected => Some((self.search_ring::<Order, Q, T, M>(pool, query, spare, meter)?, None)),
        }
    }

    fn take_binned<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let is_of_one_bin = match Q::SIDE {
            Side::Posted => self.state.ring.is_none(),
            Side::Unexpected => !query.source().is_any(),
        };
        if is_of_one_bin {
            return self.take_from_bin(pool, query, spare, meter);
        }
        let (slot, bin) = self.search(pool, query, spare, meter)?;
        match (Q::SIDE, bin) {
            (Side::Unexpected, None) => self.remove(pool, slot),
            _ => self.detach(bin, pool, slot),
        }
        Some(slot)
    }

    /// Takes the first match out of the bin of the source. This is the way of nearly every match in a long queue.
    #[inline(always)]
    fn take_from_bin<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        meter.hop();
        let bin = self.index.leaves.find(self.context, query.source().bits())?;
        let leaf = self.index.leaves.leaf_of(bin);
        let found = match leaf.is_tagged(bin) {
            true => Scan::Long,
            false => scan::<Bin, Q, T, M>(*leaf.head(bin), pool, query, meter),
        };
        let slot = match found {
            Scan::Found(slot) => slot,
            Scan::Absent => return None,
            Scan::Long => return self.reborrow().take_from_long_bin(bin, pool, query, spare, meter),
        };
        let (head, links) = (leaf.head(bin), pool[slot].links);
        ring::unlink::<Bin, Q, T>(head, pool, slot, &links);
        if head.is_none() && leaf.close() {
            self.index.leaves.park(bin, &mut self.state.leaves);
        }
        if Q::SIDE == Side::Unexpected {
            self.remove_from_ring::<Order, Q, T>(pool, slot, &links);
        }
        self.count_out();
        Some(slot)
    }

    #[cold]
    fn take_from_long_bin<Q: Query, T, M: Meter>(
        &mut self,
        bin: BinId,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let slot = self.search_long_bin(bin, pool, query, spare, meter)?;
        self.detach(Some(bin), pool, slot);
        Some(slot)
    }

    /// The first match in the bin of the source.
    #[inline(always)]
    fn search_bin<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<(Slot, BinId)> {
        meter.hop();
        let bin = self.index.leaves.find(self.context, query.source().bits())?;
        let leaf = self.index.leaves.leaf_of(bin);
        let found = match leaf.is_tagged(bin) {
            true => Scan::Long,
            false => scan::<Bin, Q, T, M>(*leaf.head(bin), pool, query, meter),
        };
        match found {
            Scan::Found(slot) => Some((slot, bin)),
            Scan::Absent => None,
            Scan::Long => Some((self.search_long_bin(bin, pool, query, spare, meter)?, bin)),
        }
    }

    #[cold]
    fn search_long_bin<Q: Query, T, M: Meter>(
        &mut self,
        bin: BinId,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let (source, head) = (query.source().bits(), self.index.leaves.head(bin));
        let mut is_tagged = self.index.leaves.leaf_of(bin).is_tagged(bin);
        if !is_tagged && self.tag::<Bin, Q, T>(source, head, pool, query, spare) {
            is_tagged = true;
            self.index.leaves.leaf_of(bin).set_tagged(bin, true);
        }
        self.search_long::<Bin, Q, T, M>(is_tagged, source, head, pool, query, meter)
    }

    /// The first match among the entries that are in no bin, or among all messages of the context.
    #[inline]
    fn search_ring<W: Through, Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let found = match self.state.is_tagged {
            true => Scan::Long,
            false => scan::<W, Q, T, M>(self.state.ring, pool, query, meter),
        };
        match found {
            Scan::Found(slot) => Some(slot),
            Scan::Absent => None,
            Scan::Long => self.search_long_ring::<W, Q, T, M>(pool, query, spare, meter),
        }
    }

    #[cold]
    fn search_long_ring<W: Through, Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let (source, head) = (Source::ANY.bits(), self.state.ring);
        if !self.state.is_tagged && self.tag::<W, Q, T>(source, head, pool, query, spare) {
            self.state.is_tagged = true;
        }
        self.search_long::<W, Q, T, M>(self.state.is_tagged, source, head, pool, query, meter)
    }

    /// The first match in a long ring: by the tag index if its entries are there and the query's tag is exact.
    fn search_long<W: Through, Q: Query, T, M: Meter>(
        &self,
        is_tagged: bool,
        source: u32,
        head: Head,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        if !is_tagged || !is_tag_exact(query) {
            return scan_all::<W, Q, T, M>(head, pool, query, meter);
        }
        let tags = &self.index.tags;
        let found = tags.masks().filter_map(|mask| {
            meter.hop();
            meter.compare();
            tags.first(&Lane { context: self.context, source, tag: query.tag() & mask, mask })
        });
        // Unexpected messages have one mask: there is nothing to compare.
        found.min_by_key(|&slot| pool[slot].links.serial())
    }

    /// Enters a ring into the tag index, if that helps the query and the bytes may be spent.
    fn tag<W: Through, Q: Query, T>(
        &mut self,
        source: u32,
        head: Head,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
    ) -> bool {
        let entries = ring::iter::<W, Q, T>(head, pool).count();
        if !is_tag_exact(query) || self.index.tags.growth(entries) > *spare {
            return false;
        }
        let before = self.index.bytes();
        for slot in ring::iter::<W, Q, T>(head, pool) {
            self.insert_tag(source, pool, slot);
        }
        *spare -= self.index.bytes() - before;
        true
    }

    /// Takes an entry out of its ring, and of its bin if it has one.
    #[inline(always)]
    fn detach<Q: Query, T>(&mut self, bin: Option<BinId>, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let links = pool[slot].links;
        match (Q::SIDE, bin) {
            (Side::Posted, None) => self.remove_from_ring::<Bin, Q, T>(pool, slot, &links),
            (Side::Posted, Some(_)) => {}
            (Side::Unexpected, _) => self.remove_from_ring::<Order, Q, T>(pool, slot, &links),
        }
        if let Some(bin) = bin {
            self.remove_from_bin(bin, pool, slot);
        }
        self.count_out();
    }

    /// Notes that an entry has left.
    #[inline(always)]
    fn count_out(&mut self) {
        self.state.len -= 1;
        if self.state.len == 0 {
            (self.state.is_binned, self.state.is_tagged) = (false, false);
            self.index.leaves.unpark(&mut self.state.leaves);
        }
    }

    /// The same queue, for a call of a function that is not inlined: so this one need not be in memory.
    #[inline(always)]
    fn reborrow(&mut self) -> Queue<'_> {
        Queue { context: self.context, state: self.state, index: self.index }
    }

    fn insert_binned<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        match Q::SIDE {
            Side::Posted if is_from_any(&pool[slot]) => self.insert_in_ring::<Bin, Q, T>(pool, slot),
            Side::Posted => self.insert_in_bin(pool, slot),
            Side::Unexpected => {
                self.insert_in_ring::<Order, Q, T>(pool, slot);
                self.insert_in_bin(pool, slot);
            }
        }
    }

    #[inline(always)]
    fn insert_in_bin<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let source = pool[slot].source;
        let bin = self.index.leaves.find_or_insert(self.context, source, &mut self.state.leaves);
        let leaf = self.index.leaves.leaf_of(bin);
        let is_new = leaf.head(bin).is_none();
        ring::push_back::<Bin, Q, T>(leaf.head(bin), pool, slot);
        if is_new {
            if leaf.open() {
                self.index.leaves.revive(bin, &mut self.state.leaves);
            }
        } else if leaf.is_tagged(bin) {
            self.reborrow().insert_tag(source, pool, slot);
        }
    }

    #[inline(always)]
    fn remove_from_bin<Q: Query, T>(&mut self, bin: BinId, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let leaf = self.index.leaves.leaf_of(bin);
        let (is_tagged, head, links) = (leaf.is_tagged(bin), leaf.head(bin), pool[slot].links);
        ring::unlink::<Bin, Q, T>(head, pool, slot, &links);
        if head.is_none() {
            leaf.set_tagged(bin, false);
            if leaf.close() {
                self.index.leaves.park(bin, &mut self.state.leaves);
            }
        }
        if is_tagged {
            self.remove_tag(pool[slot].source, pool, slot);
        }
    }

    #[inline(always)]
    fn insert_in_ring<W: Through, Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        ring::push_back::<W, Q, T>(&mut self.state.ring, pool, slot);
        if self.state.is_tagged {
            self.reborrow().insert_tag(Source::ANY.bits(), pool, slot);
        }
    }

    #[inline(always)]
    fn remove_from_ring<W: Through, Q: Query, T>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
        links: &AdaptiveLinks,
    ) {
        ring::unlink::<W, Q, T>(&mut self.state.ring, pool, slot, links);
        if self.state.is_tagged {
            self.reborrow().remove_tag(Source::ANY.bits(), pool, slot);
        }
    }

    #[cold]
    fn insert_tag<Q: Query, T>(&mut self, source: u32, pool: &Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let lane = self.lane_of(source, &pool[slot]);
        self.index.tags.push_back(lane, slot);
    }

    #[cold]
    fn remove_tag<Q: Query, T>(&mut self, source: u32, pool: &Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let lane = self.lane_of(source, &pool[slot]);
        self.index.tags.remove(&lane, slot);
    }

    /// A list has become long: its entries go to the bins of their ranks.
    #[cold]
    fn sort_into_bins<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        self.state.is_binned = true;
        let mut slots = [None; LIST_MAX as usize + 1];
        match Q::SIDE {
            Side::Posted => copy(ring::iter::<Bin, Q, T>(self.state.ring.take(), pool), &mut slots),
            Side::Unexpected => copy(ring::iter::<Order, Q, T>(self.state.ring, pool), &mut slots),
        }
        for slot in slots.into_iter().flatten() {
            if is_from_any(&pool[slot]) {
                self.insert_in_ring::<Bin, Q, T>(pool, slot);
            } else {
                self.insert_in_bin(pool, slot);
            }
        }
    }

    fn lane_of<Q: Query, T>(&self, source: u32, entry: &Entry<Q, AdaptiveLinks, T>) -> Lane {
        let mask = Q::entry_mask(entry.mask);
        Lane { context: self.context, source, tag: entry.tag & mask, mask }
    }
}

/// What a search of a ring came to.
enum Scan {
    Found(Slot),
    Absent,
    /// The limit was reached.
    Long,
}

/// Compares the first entries of a ring.
#[inline(always)]
fn scan<W: Through, Q: Query, T, M: Meter>(
    head: Head,
    pool: &Pool<Q, AdaptiveLinks, T>,
    query: &Q,
    meter: &mut M,
) -> Scan {
    let Some(first) = head else { return Scan::Absent };
    let mut slot = first;
    for _ in 0..SCAN_MAX {
        meter.hop();
        meter.compare();
        let entry = &pool[slot];
        if query.matches(entry) {
            return Scan::Found(slot);
        }
        match W::neighbours(&entry.links).1 {
            Some(next) if next != first => slot = next,
            _ => return Scan::Absent,
        }
    }
    Scan::Long
}

/// The first match of a ring.
#[inline(always)]
fn scan_all<W: Through, Q: Query, T, M: Meter>(
    head: Head,
    pool: &Pool<Q, AdaptiveLinks, T>,
    query: &Q,
    meter: &mut M,
) -> Option<Slot> {
    let mut slot = head?;
    loop {
        meter.hop();
        meter.compare();
        let entry = &pool[slot];
        if query.matches(entry) {
            return Some(slot);
        }
        slot = W::neighbours(&entry.links).1.filter(|&next| Some(next) != head)?;
    }
}

fn copy(slots: impl Iterator<Item = Slot>, to: &mut [Option<Slot>]) {
    for (to, slot) in to.iter_mut().zip(slots) {
        *to = Some(slot);
    }
}

/// Whether the tag index can answer the query: an arriving message has one tag, a receive may not.
fn is_tag_exact<Q: Query>(query: &Q) -> bool {
    query.mask() == !0
}

fn is_from_any<Q: Query, T>(entry: &Entry<Q, AdaptiveLinks, T>) -> bool {
    Q::SIDE == Side::Posted && entry.source == Source::ANY.bits()
}
