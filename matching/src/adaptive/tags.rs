//! The tag index: entries of long bins, by tag.

use alloc::vec::Vec;
use core::mem;

use crate::pool::Slot;

/// Entries that agree in context, source and tag, in order of insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) context: u32,
    /// The rank, or the bits of any source where a bin mixes sources.
    pub(super) source: u32,
    /// The tag with the bits outside the mask cleared.
    pub(super) tag: u64,
    pub(super) mask: u64,
}

/// A chained hash table of lanes; a lane is a circular list of nodes, and its first node is in the chain.
///
/// Only entries of bins in which a search was long are here. Finding, adding and removing the first of a lane is O(1);
/// removing another one takes the shorter way from the lane's ends.
#[derive(Debug, Default)]
pub(super) struct TagIndex {
    buckets: Vec<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    lanes: usize,
    /// The masks of the entries, with how many have each: unexpected messages all have the full one.
    masks: Vec<(u64, u32)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    lane: Lane,
    slot: Slot,
    prev: u32,
    next: u32,
    /// In the first node of a lane: the next lane of the bucket.
    chain: u32,
}

const NO_NODE: u32 = u32::MAX;

/// The fewest buckets once there are any; they are kept while the index is empty.
const BUCKETS_MIN: usize = 64;

pub(super) const NODE_BYTES: usize = mem::size_of::<Node>();
const MASK_BYTES: usize = mem::size_of::<(u64, u32)>();

impl Lane {
    /// A folded multiplication of the two halves of the key.
    fn hash(&self) -> u64 {
        let place = u64::from(self.context) << 32 | u64::from(self.source);
        let a = place ^ self.mask.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15;
        let b = self.tag ^ 0xd1b5_4a32_d192_ed03;
        let product = u128::from(a) * u128::from(b);
        (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl TagIndex {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes == 0
    }

    /// The first entry of the lane.
    pub(super) fn first(&self, lane: &Lane) -> Option<Slot> {
        let first = self.find(lane)?;
        Some(self.nodes[first as usize].slot)
    }

    /// The masks of the entries.
    pub(super) fn masks(&self) -> impl Iterator<Item = u64> {
        self.masks.iter().map(|&(mask, _)| mask)
    }

    /// Adds an entry as the last of its lane.
    pub(super) fn push_back(&mut self, lane: Lane, slot: Slot) {
        match self.masks.iter_mut().find(|(mask, _)| *mask == lane.mask) {
            Some((_, entries)) => *entries += 1,
            None => self.masks.push((lane.mask, 1)),
        }
        match self.find(&lane) {
            Some(first) => {
                let last = self.nodes[first as usize].prev;
                let node = self.add(Node { lane, slot, prev: last, next: first, chain: NO_NODE });
                self.nodes[first as usize].prev = node;
                self.nodes[last as usize].next = node;
            }
            None => {
                if self.lanes == self.buckets.len() {
                    self.resize((2 * self.buckets.len()).max(BUCKETS_MIN));
                }
                self.lanes += 1;
                let bucket = self.bucket(&lane);
                let node = self.add(Node { lane, slot, prev: 0, next: 0, chain: self.buckets[bucket] });
                let added = &mut self.nodes[node as usize];
                (added.prev, added.next) = (node, node);
                self.buckets[bucket] = node;
            }
        }
        self.count_bytes();
    }

    /// Removes an entry that is in that lane.
    pub(super) fn remove(&mut self, lane: &Lane, slot: Slot) {
        let bucket = self.bucket(lane);
        let mut before = NO_NODE;
        let mut first = self.buckets[bucket];
        while self.nodes[first as usize].lane != *lane {
            before = first;
            first = self.nodes[first as usize].chain;
        }
        let node = self.find_in_lane(first, slot);
        let Node { prev, next, chain, .. } = self.nodes[node as usize];
        if node == first {
            // The second node of the lane, or the next lane, takes its place in the chain.
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
        self.free.push(node);
        self.masks.retain_mut(|(mask, entries)| {
            *entries -= u32::from(*mask == lane.mask);
            *entries > 0
        });
        if self.buckets.len() > BUCKETS_MIN && self.lanes * 8 < self.buckets.len() {
            self.resize(self.buckets.len() / 4);
        }
        self.count_bytes();
    }

    /// Bytes in use: none while the index is empty.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        self.nodes.capacity() * NODE_BYTES
            + (self.buckets.capacity() + self.free.capacity()) * mem::size_of::<u32>()
            + self.masks.capacity() * MASK_BYTES
    }

    /// The most by which [`bytes`](Self::bytes) grows when that many entries are added.
    pub(super) fn growth(&self, entries: usize) -> usize {
        let mut buckets = self.buckets.len().max(BUCKETS_MIN);
        while self.lanes + entries > buckets {
            buckets *= 2;
        }
        let nodes = self.nodes.len() - self.free.len() + entries;
        let masks = self.masks.len() + entries;
        nodes * NODE_BYTES + buckets * mem::size_of::<u32>() + masks * MASK_BYTES - self.bytes()
    }

    /// The first node of the lane.
    fn find(&self, lane: &Lane) -> Option<u32> {
        if self.lanes == 0 {
            return None;
        }
        let mut first = self.buckets[self.bucket(lane)];
        while first != NO_NODE {
            let node = &self.nodes[first as usize];
            if node.lane == *lane {
                return Some(first);
            }
            first = node.chain;
        }
        None
    }

    /// The node of the entry, looked for from both ends of its lane.
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

    fn count_bytes(&mut self) {
        let nodes = self.nodes.len() - self.free.len();
        let buckets = if nodes == 0 { 0 } else { self.buckets.len() };
        self.bytes = nodes * NODE_BYTES + buckets * mem::size_of::<u32>() + self.masks.len() * MASK_BYTES;
    }

    fn bucket(&self, lane: &Lane) -> usize {
        (lane.hash() >> (64 - self.buckets.len().trailing_zeros())) as usize
    }

    fn add(&mut self, node: Node) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    fn resize(&mut self, buckets: usize) {
        let mut fresh = Vec::new();
        fresh.reserve_exact(buckets);
        fresh.resize(buckets, NO_NODE);
        for mut first in mem::replace(&mut self.buckets, fresh) {
            while first != NO_NODE {
                let bucket = self.bucket(&self.nodes[first as usize].lane);
                let next = mem::replace(&mut self.nodes[first as usize].chain, self.buckets[bucket]);
                self.buckets[bucket] = first;
                first = next;
            }
        }
    }
}
