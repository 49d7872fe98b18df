//! The tag index: entries of long bins, lists and logs, by tag.

use alloc::vec::Vec;
use core::mem;

use crate::pool::Slot;

/// The key of a lane: entries with the same context, source and tag, in insertion order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    /// The upper half is the context. The lower half is the rank or, for entries of a list or log that mixes sources,
    /// the bits of [`Source::ANY`](crate::Source::ANY).
    place: u64,
    /// The tag with the bits outside the mask cleared.
    tag: u64,
    mask: u64,
}

/// A chained hash table of lanes. A lane is a circular list of nodes; its first node is in the chain.
///
/// The index contains only the entries of groups (a bin, list or log) in which a search was long. To append an entry to
/// a lane, and to find or remove the first entry of a lane, takes O(1). To remove another entry, the lane is searched
/// from both ends.
#[derive(Debug)]
pub(super) struct TagIndex {
    /// The first node of each chain. The number of chains is a power of two, and at least the number of lanes. It does
    /// not shrink, but returns to 0 when the index becomes empty.
    buckets: Vec<u32>,
    nodes: Vec<Node>,
    /// The first free node. `chain` links it to the other free nodes.
    free: u32,
    lanes: usize,
    /// The masks of the entries, with the number of entries for each. All unexpected messages have the full mask.
    masks: Vec<(u64, u32)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    lane: Lane,
    slot: Slot,
    prev: u32,
    next: u32,
    /// In the first node of a lane: the first node of the next lane in the bucket. In a free node: the next free node.
    chain: u32,
}

const NO_NODE: u32 = u32::MAX;

/// The minimum number of buckets once there are any.
const BUCKETS_MIN: usize = 64;

pub(super) const NODE_BYTES: usize = mem::size_of::<Node>();
const MASK_BYTES: usize = mem::size_of::<(u64, u32)>();

impl Lane {
    pub(super) const fn new(context: u32, source: u32, tag: u64, mask: u64) -> Self {
        Self { place: (context as u64) << 32 | source as u64, tag: tag & mask, mask }
    }

    /// Hashes a lane. 64 neighbouring tags have neighbouring buckets, which is good for the cache; the groups of 64 are
    /// distributed over all buckets by a folded multiplication.
    #[inline]
    fn bucket(&self, buckets: usize) -> usize {
        let a = self.place ^ 0x9e37_79b9_7f4a_7c15;
        let b = (self.tag / 64) ^ self.mask ^ 0xd1b5_4a32_d192_ed03;
        let product = u128::from(a) * u128::from(b);
        let scattered = product as u64 ^ (product >> 64) as u64;
        scattered.wrapping_add(self.tag) as usize & (buckets - 1)
    }
}

impl Default for TagIndex {
    fn default() -> Self {
        Self { buckets: Vec::new(), nodes: Vec::new(), free: NO_NODE, lanes: 0, masks: Vec::new(), bytes: 0 }
    }
}

impl TagIndex {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes == 0
    }

    /// Returns the first entry of the lane. Call this function only if at least one entry has the mask of the lane.
    #[inline]
    pub(super) fn first(&self, lane: &Lane) -> Option<Slot> {
        let first = self.find(lane, lane.bucket(self.buckets.len()))?;
        Some(self.nodes[first as usize].slot)
    }

    /// Returns the mask of the entries, if all entries have the same mask.
    #[inline]
    pub(super) fn sole_mask(&self) -> Option<u64> {
        match self.masks[..] {
            [(mask, _)] => Some(mask),
            _ => None,
        }
    }

    /// Iterates over the masks of the entries.
    #[inline]
    pub(super) fn masks(&self) -> impl Iterator<Item = u64> {
        self.masks.iter().map(|&(mask, _)| mask)
    }

    /// Allocates memory for `entries` more entries. Call it before the first of them is added.
    pub(super) fn reserve(&mut self, entries: usize) {
        let buckets = self.buckets_for(self.lanes + entries);
        if buckets > self.buckets.len() {
            self.grow(buckets);
        }
    }

    /// Adds an entry as the last of its lane.
    #[inline]
    pub(super) fn push_back(&mut self, lane: Lane, slot: Slot) {
        if self.lanes == self.buckets.len() {
            self.grow(2 * self.buckets.len());
        }
        self.bytes += NODE_BYTES;
        match self.masks.iter_mut().find(|(mask, _)| *mask == lane.mask) {
            Some((_, entries)) => *entries += 1,
            None => self.add_mask(lane.mask),
        }
        let bucket = lane.bucket(self.buckets.len());
        match self.find(&lane, bucket) {
            Some(first) => {
                let last = self.nodes[first as usize].prev;
                let node = self.add(|_| Node { lane, slot, prev: last, next: first, chain: NO_NODE });
                self.nodes[first as usize].prev = node;
                self.nodes[last as usize].next = node;
            }
            None => {
                self.lanes += 1;
                let chain = self.buckets[bucket];
                self.buckets[bucket] = self.add(|node| Node { lane, slot, prev: node, next: node, chain });
            }
        }
    }

    /// Removes the first entry of the lane, if there is one.
    #[inline]
    pub(super) fn pop_front(&mut self, lane: &Lane) -> Option<Slot> {
        let bucket = lane.bucket(self.buckets.len());
        let (before, first) = self.find_with_before(lane, bucket)?;
        let slot = self.nodes[first as usize].slot;
        self.unlink(bucket, before, first, first);
        Some(slot)
    }

    /// Removes an entry of the lane. The entry must be in the lane.
    #[inline]
    pub(super) fn remove(&mut self, lane: &Lane, slot: Slot) {
        let bucket = lane.bucket(self.buckets.len());
        if let Some((before, first)) = self.find_with_before(lane, bucket) {
            self.unlink(bucket, before, first, self.find_in_lane(first, slot));
        }
    }

    /// Removes a node from its lane. `first` is the first node of the lane. `before` is the first node of the previous
    /// lane in the bucket, or `NO_NODE`.
    #[inline]
    fn unlink(&mut self, bucket: usize, before: u32, first: u32, node: u32) {
        let Node { lane: Lane { mask, .. }, prev, next, chain, .. } = self.nodes[node as usize];
        if node == first {
            // If the node is the first of its lane, the second node of the lane takes its place in the chain, or the
            // next lane if there is no second node.
            let heir = if next == node { chain } else { next };
            if heir == next {
                self.nodes[next as usize].chain = chain;
            } else {
                self.lanes -= 1;
            }
            match before {
                NO_NODE => self.buckets[bucket] = heir,
                before => self.nodes[before as usize].chain = heir,
            }
        }
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        self.nodes[node as usize].chain = mem::replace(&mut self.free, node);
        self.bytes -= NODE_BYTES;
        if let Some(at) = self.masks.iter().position(|&(other, _)| other == mask) {
            self.masks[at].1 -= 1;
            if self.masks[at].1 == 0 {
                self.remove_mask(at);
            }
        }
    }

    /// Returns the bytes in use.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        self.nodes.capacity() * NODE_BYTES
            + self.buckets.capacity() * mem::size_of::<u32>()
            + self.masks.capacity() * MASK_BYTES
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) when `entries` entries are added.
    pub(super) fn growth(&self, entries: usize) -> usize {
        let buckets = self.buckets_for(self.lanes + entries);
        entries * (NODE_BYTES + MASK_BYTES) + (buckets - self.buckets.len()) * mem::size_of::<u32>()
    }

    /// Returns the number of buckets for that many lanes, which is at least the present number of buckets.
    fn buckets_for(&self, lanes: usize) -> usize {
        lanes.next_power_of_two().max(BUCKETS_MIN).max(self.buckets.len())
    }

    /// Returns the first node of the lane, which can only be in that bucket.
    #[inline]
    fn find(&self, lane: &Lane, bucket: usize) -> Option<u32> {
        self.find_with_before(lane, bucket).map(|(_, first)| first)
    }

    /// Returns the first node of the previous lane in the bucket ([`NO_NODE`] if the lane is the first one), and the
    /// first node of the lane. Returns `None` if the bucket does not contain the lane.
    #[inline]
    fn find_with_before(&self, lane: &Lane, bucket: usize) -> Option<(u32, u32)> {
        let (mut before, mut first) = (NO_NODE, self.buckets[bucket]);
        while first != NO_NODE {
            let node = &self.nodes[first as usize];
            if node.lane == *lane {
                return Some((before, first));
            }
            (before, first) = (first, node.chain);
        }
        None
    }

    /// Returns the node of the entry, searched from both ends of its lane.
    #[inline]
    fn find_in_lane(&self, first: u32, slot: Slot) -> u32 {
        let (mut ahead, mut behind) = (first, self.nodes[first as usize].prev);
        loop {
            for node in [ahead, behind] {
                if self.nodes[node as usize].slot == slot {
                    return node;
                }
            }
            ahead = self.nodes[ahead as usize].next;
            behind = self.nodes[behind as usize].prev;
        }
    }

    /// Stores a node, and returns its index. `node` makes the node from the index.
    #[inline]
    fn add(&mut self, node: impl FnOnce(u32) -> Node) -> u32 {
        if self.free == NO_NODE {
            let at = self.nodes.len() as u32;
            self.nodes.push(node(at));
            return at;
        }
        let at = self.free;
        self.free = self.nodes[at as usize].chain;
        self.nodes[at as usize] = node(at);
        at
    }

    /// Records the first entry with a mask.
    #[cold]
    fn add_mask(&mut self, mask: u64) {
        self.masks.push((mask, 1));
        self.bytes += MASK_BYTES;
    }

    /// Records that no entry with a mask remains.
    #[cold]
    fn remove_mask(&mut self, at: usize) {
        self.masks.swap_remove(at);
        self.bytes -= MASK_BYTES;
        if self.is_empty() {
            // Later nodes are again stored in the order of insertion.
            self.nodes.clear();
            self.buckets.clear();
            (self.free, self.bytes) = (NO_NODE, 0);
        }
    }

    /// Increases the number of buckets.
    #[cold]
    fn grow(&mut self, buckets: usize) {
        let before = self.buckets.len();
        self.bytes += (buckets - before) * mem::size_of::<u32>();
        self.buckets.reserve_exact(buckets - before);
        self.buckets.resize(buckets, NO_NODE);
        // Both numbers of buckets are powers of two, so each lane stays in its bucket or moves to one of the new
        // buckets, which the loop does not visit.
        for bucket in 0..before {
            let mut first = mem::replace(&mut self.buckets[bucket], NO_NODE);
            while first != NO_NODE {
                let bucket = self.nodes[first as usize].lane.bucket(buckets);
                let next = mem::replace(&mut self.nodes[first as usize].chain, self.buckets[bucket]);
                self.buckets[bucket] = first;
                first = next;
            }
        }
    }
}
