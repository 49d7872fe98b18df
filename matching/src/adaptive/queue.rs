//! The operations on one queue of one context.

use core::iter;

use crate::key::Source;
use crate::meter::Meter;
use crate::pool::{Entry, Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::NotShort;

use super::Index;
use super::leads::QueueState;
use super::leaves::{BinId, Leaves};
use super::list::{self, AdaptiveLinks};
use super::log::Log;
use super::tags::Lane;

/// One queue of one context, with the parts of the structure that its operations use.
pub(super) struct Queue<'a> {
    pub(super) context: u32,
    pub(super) state: &'a mut QueueState,
    /// The log of the context, which holds only messages.
    pub(super) log: &'a mut Log,
    pub(super) index: &'a mut Index,
}

/// The maximum number of entries of a queue without bins.
pub(super) const LIST_MAX: u32 = 10;

/// The maximum number of messages of a context that has no log (an array of all its messages in order of arrival).
/// Without a log, a receive from any source must compare the first match in the bin (the list of messages) of every
/// source, and take the one with the smallest serial number. This limit bounds that work.
pub(super) const UNLOGGED_MAX: u32 = 64;

/// The number of entries of a list or bin that a search compares before it adds all entries to the tag index.
pub(super) const SCAN_MAX: usize = 32;

/// The number of places of a log that a search visits before it adds all messages to the tag index. It is larger than
/// [`SCAN_MAX`], because once the messages of a log are in the tag index, every later match in the context costs more:
/// its message must also be removed from the tag index.
pub(super) const LOG_SCAN_MAX: usize = 256;

/// The result of a search that compares a limited number of entries.
enum Scan {
    Found(Slot, AdaptiveLinks),
    Absent,
    /// The search reached the limit.
    Long,
}

/// A part of a queue whose entries are searched together, in their order.
#[derive(Clone, Copy)]
enum Group {
    /// The entries of one rank.
    Bin(BinId),
    /// The entries in no bin.
    List,
    /// All messages. They are in bins, and perhaps also in the log.
    All,
}

impl Queue<'_> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.state.len == 0
    }

    /// Finds the first match and takes it out. If that needs a long search, changes nothing and returns `NotShort`.
    #[inline(always)]
    pub(super) fn take<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        if !self.index.tags.is_empty() {
            return self.reborrow().take_by_tag(pool, query, meter);
        }
        if let Some(first) = self.state.list {
            let slot = self.take_from_list(first, pool, query, meter)?;
            if slot.is_some() || !self.state.is_binned {
                return Ok(slot);
            }
        } else if Q::SIDE == Side::Unexpected && query.source().is_any() {
            return self.reborrow().take_from_all_bins(pool, query, meter);
        }
        self.take_from_bin(pool, query, meter)
    }

    /// Appends a new entry, which has the highest serial number so far.
    #[inline(always)]
    pub(super) fn insert<Q: Query, T>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
        serial: u64,
    ) {
        self.state.len += 1;
        if self.state.is_binned {
            return self.insert_binned(pool, slot, serial);
        }
        list::push_back(&mut self.state.list, pool, slot, serial);
        if self.state.len > LIST_MAX {
            self.reborrow().sort_into_bins(pool);
        }
    }

    /// Takes an entry out of the queue.
    #[inline(always)]
    pub(super) fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let source = pool[slot].source;
        let bin = (self.state.is_binned && !is_any::<Q>(source)).then(|| self.bin(source));
        self.take_out(pool, slot, bin);
    }

    /// Takes an entry out of the queue. `bin` is the entry's bin, or `None` if the entry is in the list.
    #[inline(always)]
    fn take_out<Q: Query, T>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
        bin: Option<BinId>,
    ) {
        if !self.index.tags.is_empty() {
            self.untag(bin.map_or(Group::List, Group::Bin), pool, slot);
        }
        self.detach(pool, slot, bin);
    }

    /// Takes an entry that is not in the tag index out of the queue. `bin` is the entry's bin, or `None` if the entry
    /// is in the list.
    #[inline(always)]
    fn detach<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, bin: Option<BinId>) {
        let links = pool[slot].links;
        self.state.len -= 1;
        match bin {
            Some(bin) => {
                self.leave_log::<Q>(&links);
                self.unlink_from_bin(bin, pool, slot, &links);
            }
            None => list::unlink(&mut self.state.list, pool, slot, &links),
        }
    }

    /// Turns the queue back into a list after its last entry was removed.
    #[inline(always)]
    pub(super) fn restart(&mut self) {
        (self.state.is_binned, self.state.is_logged, self.state.is_tagged) = (false, false, false);
        self.index.leaves.clear(&mut self.state.leaves);
    }

    /// Takes out the first match if the list, which starts with `first`, has a match. Returns `None` if it has none:
    /// the bin of the source may still have a match. The tag index is empty.
    #[inline(always)]
    fn take_from_list<Q: Query, T, M: Meter>(
        &mut self,
        first: Slot,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        // If there are bins, the list has only the receives from any source, so only tags are compared.
        let found = match self.state.is_binned {
            true => scan(first, 0..SCAN_MAX, pool, meter, |entry| query.matches_tag(entry)),
            false => scan(first, 0..SCAN_MAX, pool, meter, |entry| query.matches(entry)),
        };
        let (slot, links) = match found {
            Scan::Found(slot, links) => (slot, links),
            Scan::Absent => return Ok(None),
            Scan::Long => return Err(NotShort),
        };
        // The bin of the source may have an earlier match: a receive that names this source.
        if !self.state.leaves.is_empty()
            && let Some(bin) = self.find_bin(query.source().bits())
            && let Some(first) = self.index.leaves.head(bin)
        {
            meter.hop();
            match scan(first, 0..SCAN_MAX, pool, meter, |entry| query.matches_tag(entry)) {
                Scan::Found(slot, in_bin) if in_bin.order < links.order => {
                    self.state.len -= 1;
                    self.unlink_from_bin(bin, pool, slot, &in_bin);
                    return Ok(Some(slot));
                }
                Scan::Long => return Err(NotShort),
                Scan::Found(..) | Scan::Absent => {}
            }
        }
        self.state.len -= 1;
        list::unlink(&mut self.state.list, pool, slot, &links);
        Ok(Some(slot))
    }

    /// Takes the first match out of the bin of the source while the tag index is empty. Nearly every match in a long
    /// queue uses this path.
    #[inline(always)]
    fn take_from_bin<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        meter.hop();
        let Some(bin) = self.find_bin(query.source().bits()) else { return Ok(None) };
        let head = self.index.leaves.head_mut(bin);
        let Some(first) = *head else { return Ok(None) };
        meter.hop();
        meter.compare();
        let entry = &pool[first];
        let links = entry.links;
        // All entries of a bin have its source.
        if query.matches_tag(entry) {
            self.state.len -= 1;
            list::pop_front(head, pool, &links);
            self.leave_log::<Q>(&links);
            return Ok(Some(first));
        }
        let Some(second) = links.next else { return Ok(None) };
        match scan(second, 0..SCAN_MAX - 1, pool, meter, |entry| query.matches_tag(entry)) {
            Scan::Found(slot, links) => {
                self.state.len -= 1;
                list::unlink_behind(first, pool, &links);
                self.leave_log::<Q>(&links);
                Ok(Some(slot))
            }
            Scan::Absent => Ok(None),
            Scan::Long => Err(NotShort),
        }
    }

    /// Takes out the first match if all entries that could match are in the tag index. Otherwise returns `NotShort`.
    #[inline(never)]
    fn take_by_tag<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        let group = if Q::SIDE == Side::Unexpected && query.source().is_any() {
            Group::All
        } else if self.state.list.is_none() {
            let Some(bin) = self.find_bin(query.source().bits()) else { return Ok(None) };
            Group::Bin(bin)
        } else {
            return Err(NotShort);
        };
        if query.mask() != !0 || !self.is_tagged(group) {
            return Err(NotShort);
        }
        meter.hop();
        if let (Group::Bin(bin), Some(mask)) = (group, self.index.tags.sole_mask()) {
            meter.hop();
            meter.compare();
            let lane = Lane::new(self.context, query.source().bits(), query.tag(), mask);
            let slot = self.index.tags.pop_front(&lane);
            if let Some(slot) = slot {
                self.untagged(group, pool, slot);
                self.detach(pool, slot, Some(bin));
            }
            return Ok(slot);
        }
        let slot = self.search_tags(group, pool, query, meter);
        if let Some(slot) = slot {
            let bin = if let Group::Bin(bin) = group { bin } else { self.bin(pool[slot].source) };
            self.take_out(pool, slot, Some(bin));
        }
        Ok(slot)
    }

    /// Takes out the first match in any bin while the tag index is empty. Returns `NotShort` if the messages are in the
    /// log.
    #[inline(never)]
    fn take_from_all_bins<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        if self.state.is_logged {
            return Err(NotShort);
        }
        let slot = self.search_all_bins(pool, query, meter);
        if let Some(slot) = slot {
            self.remove(pool, slot);
        }
        Ok(slot)
    }

    /// Takes an entry out of the log, if its queue has a log. `links` are the links of the entry.
    #[inline(always)]
    fn leave_log<Q: Query>(&mut self, links: &AdaptiveLinks) {
        if Q::SIDE == Side::Unexpected && self.state.is_logged {
            self.log.remove(links.order as u32);
            self.index.logged -= 1;
        }
    }

    /// Takes the entry at `slot` out of its bin. `links` are the links of the entry.
    #[inline(always)]
    fn unlink_from_bin<Q: Query, T>(
        &mut self,
        bin: BinId,
        pool: &mut Pool<Q, AdaptiveLinks, T>,
        slot: Slot,
        links: &AdaptiveLinks,
    ) {
        list::unlink(self.index.leaves.head_mut(bin), pool, slot, links);
    }

    /// Returns the bin of a source if its leaf exists.
    #[inline(always)]
    fn find_bin(&mut self, source: u32) -> Option<BinId> {
        self.index.leaves.find(self.context, source, &mut self.state.leaves)
    }

    /// Returns the bin of a source that is known to have entries.
    #[inline]
    fn bin(&mut self, source: u32) -> BinId {
        self.find_bin(source).expect("an entry's bin has a leaf")
    }

    /// Returns the first match in any part of the queue.
    pub(super) fn search<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        if Q::SIDE == Side::Unexpected && self.state.is_binned {
            return match query.source().is_any() {
                true => self.search_all(pool, query, spare, meter),
                false => self.search_bin(pool, query, spare, meter),
            };
        }
        let in_list = self.search_list(pool, query, spare, meter);
        let in_bin = self.search_bin(pool, query, spare, meter);
        match (in_list, in_bin) {
            (Some(one), Some(other)) => {
                Some(if pool[one].links.order < pool[other].links.order { one } else { other })
            }
            (in_list, in_bin) => in_list.or(in_bin),
        }
    }

    /// Returns the first match in the bin of the source.
    #[inline]
    fn search_bin<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        meter.hop();
        let bin = self.find_bin(query.source().bits())?;
        let found = match self.is_tagged(Group::Bin(bin)) {
            true => Scan::Long,
            false => {
                let first = self.index.leaves.head(bin)?;
                scan(first, 0..SCAN_MAX, pool, meter, |entry| query.matches_tag(entry))
            }
        };
        self.conclude(found, Group::Bin(bin), pool, query, spare, meter)
    }

    /// Returns the first match among the entries that are in no bin.
    #[inline]
    fn search_list<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let found = match self.is_tagged(Group::List) {
            true => Scan::Long,
            false => scan(self.state.list?, 0..SCAN_MAX, pool, meter, |entry| query.matches(entry)),
        };
        self.conclude(found, Group::List, pool, query, spare, meter)
    }

    /// Returns the first match among all messages.
    #[inline]
    fn search_all<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        if !self.state.is_logged {
            return self.search_all_bins(pool, query, meter);
        }
        let mut found = Scan::Long;
        if !self.is_tagged(Group::All) {
            self.log.skip_gaps();
            let first = find(self.log.places().take(LOG_SCAN_MAX).flatten(), pool, query, meter);
            found = match first {
                Some(slot) => Scan::Found(slot, pool[slot].links),
                None if self.log.len() <= LOG_SCAN_MAX => Scan::Absent,
                None => Scan::Long,
            };
        }
        self.conclude(found, Group::All, pool, query, spare, meter)
    }

    /// Returns the first match in all bins.
    #[inline(always)]
    fn search_all_bins<Q: Query, T, M: Meter>(
        &self,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        // The matching entries are unpredictable, so this selects by conditional moves. `min_by_key` would compile to
        // branches.
        let (mut earliest, mut order) = (None, u64::MAX);
        for heads in self.index.leaves.blocks(self.state.leaves) {
            for &first in heads.iter().flatten() {
                if let Scan::Found(slot, links) =
                    scan(first, iter::repeat(0), pool, meter, |entry| query.matches_tag(entry))
                    && links.order < order
                {
                    (earliest, order) = (Some(slot), links.order);
                }
            }
        }
        earliest
    }

    /// Returns the result of a short search if it is conclusive. Otherwise makes a long search.
    #[inline(always)]
    fn conclude<Q: Query, T, M: Meter>(
        &mut self,
        found: Scan,
        group: Group,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        match found {
            Scan::Found(slot, _) => Some(slot),
            Scan::Absent => None,
            Scan::Long => self.search_long(group, pool, query, spare, meter),
        }
    }

    /// Returns the first match in a long group. Uses the tag index if the query has an exact tag and the budget allows
    /// the memory.
    #[cold]
    fn search_long<Q: Query, T, M: Meter>(
        &mut self,
        group: Group,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        // The tag index can answer only queries with one exact tag. A message has one exact tag, but a receive may
        // accept several tags.
        if query.mask() == !0 && (self.is_tagged(group) || self.enter(group, pool, spare)) {
            return self.search_tags(group, pool, query, meter);
        }
        find(entries(group, self.state, self.log, &self.index.leaves, pool), pool, query, meter)
    }

    /// Returns the first match in a group that is in the tag index.
    #[inline(always)]
    fn search_tags<Q: Query, T, M: Meter>(
        &self,
        group: Group,
        pool: &Pool<Q, AdaptiveLinks, T>,
        query: &Q,
        meter: &mut M,
    ) -> Option<Slot> {
        let source = if let Group::Bin(_) = group { query.source() } else { Source::ANY };
        let mut first = None;
        for mask in self.index.tags.masks() {
            meter.hop();
            meter.compare();
            let lane = Lane::new(self.context, source.bits(), query.tag(), mask);
            if let Some(slot) = self.index.tags.first(&lane)
                && first.is_none_or(|first| pool[slot].links.order < pool[first].links.order)
            {
                first = Some(slot);
            }
        }
        first
    }

    /// Copies the references in this value for a call that is not inlined. The callee needs the address of a `Queue`;
    /// with a copy, this value itself can stay in registers.
    #[inline(always)]
    fn reborrow(&mut self) -> Queue<'_> {
        Queue { context: self.context, state: self.state, log: self.log, index: self.index }
    }

    #[inline(always)]
    fn insert_binned<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>, slot: Slot, serial: u64) {
        let source = pool[slot].source;
        let mut order = serial;
        if Q::SIDE == Side::Unexpected && self.state.is_logged {
            self.index.logged += 1;
            order = u64::from(self.log.push_back(pool, slot, self.state.len));
        }
        let group = match is_any::<Q>(source) {
            true => {
                list::push_back(&mut self.state.list, pool, slot, order);
                Group::List
            }
            false => {
                let bin = self.index.leaves.find_or_insert(self.context, source, &mut self.state.leaves);
                list::push_back(self.index.leaves.head_mut(bin), pool, slot, order);
                Group::Bin(bin)
            }
        };
        if Q::SIDE == Side::Unexpected && !self.state.is_logged && self.state.len > UNLOGGED_MAX {
            self.reborrow().begin_log(pool);
        }
        if !self.index.tags.is_empty() {
            self.reborrow().tag(group, pool, slot);
        }
    }

    /// Moves the entries of a long list to the bins of their ranks. Receives from any source stay in the list.
    #[cold]
    fn sort_into_bins<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        self.state.is_binned = true;
        let mut next = self.state.list.take();
        while let Some(slot) = next {
            let links = pool[slot].links;
            next = links.next;
            self.insert_binned(pool, slot, links.order);
        }
    }

    /// Adds all messages, which are in bins, to the log, because they have become many.
    #[cold]
    fn begin_log<Q: Query, T>(&mut self, pool: &mut Pool<Q, AdaptiveLinks, T>) {
        self.state.is_logged = true;
        self.log.clear();
        let mut slots = [None; UNLOGGED_MAX as usize + 1];
        let heads = self.index.leaves.heads(self.state.leaves);
        let queued = heads.flat_map(|head| list::iter(head, pool));
        slots.iter_mut().zip(queued).for_each(|(to, slot)| *to = Some(slot));
        slots.sort_unstable_by_key(|&slot| slot.map(|slot| pool[slot].links.order));
        for slot in slots.into_iter().flatten() {
            self.index.logged += 1;
            pool[slot].links.order = u64::from(self.log.push_back(pool, slot, self.state.len));
        }
    }

    /// Adds all entries of a group to the tag index if they need at most `spare` bytes. Returns false if they need
    /// more.
    fn enter<Q: Query, T>(
        &mut self,
        group: Group,
        pool: &Pool<Q, AdaptiveLinks, T>,
        spare: &mut usize,
    ) -> bool {
        let before = self.index.bytes();
        let Index { leaves, tags, .. } = &mut *self.index;
        let count = entries(group, self.state, self.log, leaves, pool).count();
        if tags.growth(count) + leaves.growth_of_tagged() > *spare {
            return false;
        }
        tags.reserve(count);
        for slot in entries(group, self.state, self.log, leaves, pool) {
            tags.push_back(lane(self.context, group, &pool[slot]), slot);
        }
        self.set_tagged(group, true);
        *spare -= self.index.bytes() - before;
        true
    }

    /// Adds a new entry of a group to the tag index, if the group's entries are there.
    #[cold]
    fn tag<Q: Query, T>(&mut self, group: Group, pool: &Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        if self.is_tagged(group) {
            self.index.tags.push_back(lane(self.context, group, &pool[slot]), slot);
        }
        if Q::SIDE == Side::Unexpected && self.is_tagged(Group::All) {
            self.index.tags.push_back(lane(self.context, Group::All, &pool[slot]), slot);
        }
    }

    /// Removes an entry from the tag index before it leaves the queue.
    #[inline(always)]
    fn untag<Q: Query, T>(&mut self, group: Group, pool: &Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        if self.is_tagged(group) {
            self.index.tags.remove(&lane(self.context, group, &pool[slot]), slot);
        }
        self.untagged(group, pool, slot);
    }

    /// Updates the state after an entry was removed from its group's part of the tag index. A message that is also in
    /// the tag index as part of [`Group::All`] is removed from there.
    #[inline(always)]
    fn untagged<Q: Query, T>(&mut self, group: Group, pool: &Pool<Q, AdaptiveLinks, T>, slot: Slot) {
        let entry = &pool[slot];
        if self.is_tagged(group) && entry.links.is_alone(slot) {
            // The group has no other entry. Entries that come later are not in the tag index until a long search adds
            // them.
            self.set_tagged(group, false);
        }
        if Q::SIDE == Side::Unexpected && self.is_tagged(Group::All) {
            self.index.tags.remove(&lane(self.context, Group::All, entry), slot);
        }
        if self.index.tags.is_empty() {
            self.index.leaves.forget_tagged();
        }
    }

    /// Returns true if the entries of a group are in the tag index: either all are, or none.
    fn is_tagged(&self, group: Group) -> bool {
        match group {
            Group::Bin(bin) => self.index.leaves.is_tagged(bin),
            Group::List | Group::All => self.state.is_tagged,
        }
    }

    fn set_tagged(&mut self, group: Group, is_tagged: bool) {
        match group {
            Group::Bin(bin) => self.index.leaves.set_tagged(bin, is_tagged),
            Group::List | Group::All => self.state.is_tagged = is_tagged,
        }
    }
}

/// Iterates over the entries of a group, first to last.
fn entries<Q: Query, T>(
    group: Group,
    state: &QueueState,
    log: &Log,
    leaves: &Leaves,
    pool: &Pool<Q, AdaptiveLinks, T>,
) -> impl Iterator<Item = Slot> {
    let (head, log) = match group {
        Group::Bin(bin) => (leaves.head(bin), None),
        Group::List => (state.list, None),
        Group::All => (None, Some(log.iter())),
    };
    list::iter(head, pool).chain(log.into_iter().flatten())
}

/// Returns the lane of an entry of that group in the tag index.
fn lane<Q: Query, T>(context: u32, group: Group, entry: &Entry<Q, AdaptiveLinks, T>) -> Lane {
    let source = if let Group::Bin(_) = group { entry.source } else { Source::ANY.bits() };
    Lane::new(context, source, entry.tag, Q::entry_mask(entry.mask))
}

/// Returns the first matching entry.
#[inline(always)]
fn find<Q: Query, T, M: Meter>(
    mut slots: impl Iterator<Item = Slot>,
    pool: &Pool<Q, AdaptiveLinks, T>,
    query: &Q,
    meter: &mut M,
) -> Option<Slot> {
    slots.find(|&slot| {
        meter.hop();
        meter.compare();
        query.matches(&pool[slot])
    })
}

/// Compares the entries of a list from `first` on, one for each item of `steps`, until an entry matches.
#[inline(always)]
fn scan<Q: Query, T, M: Meter>(
    first: Slot,
    steps: impl Iterator<Item = usize>,
    pool: &Pool<Q, AdaptiveLinks, T>,
    meter: &mut M,
    matches: impl Fn(&Entry<Q, AdaptiveLinks, T>) -> bool,
) -> Scan {
    let mut slot = first;
    for _ in steps {
        meter.hop();
        meter.compare();
        let entry = &pool[slot];
        if matches(entry) {
            return Scan::Found(slot, entry.links);
        }
        match entry.links.next {
            Some(next) => slot = next,
            None => return Scan::Absent,
        }
    }
    Scan::Long
}

/// Returns true if an entry of the queue that `Q` searches is a receive from any source.
fn is_any<Q: Query>(source: u32) -> bool {
    Q::SIDE == Side::Posted && source == Source::ANY.bits()
}
