//! The bins of one queue, by context and rank: blocks of 16 neighbouring ranks, found by one hash.

use alloc::vec::Vec;
use core::mem;

use super::list::Head;

/// Ranks in a leaf.
const SPAN: u32 = 16;

/// The bins of 16 neighbouring ranks each, allocated while at least one of them is in use.
///
/// Neighbouring ranks share a cache line, so that a walk through the ranks in any direction touches a new line only
/// every 16 ranks; and where all ranks are in use a bin costs little more than its 4 bytes.
#[derive(Debug)]
pub(super) struct Leaves {
    /// The leaf found last: most searches are for a neighbour.
    last: (Key, u32),
    leaves: Vec<Leaf>,
    /// The first entries of each leaf's bins, apart from the rest since a search needs nothing else.
    heads: Vec<[Head; SPAN as usize]>,
    /// The first leaf of each chain: a power of two, at least as many as leaves are in use.
    buckets: Vec<u32>,
    free: Vec<u32>,
    /// The bins whose entries are also in the tag index, a bit each: of the leaves up to the last that has one.
    tagged: Vec<u16>,
    /// Bytes of the leaves and the buckets.
    bytes: usize,
}

/// A context, and within it a block of ranks: in one word, since they are compared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

/// The leaves of one queue of one context.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafList {
    first: u32,
    /// A leaf whose last bin was closed, kept until the next one is: a queue that has one entry of a distant rank
    /// again and again does not make and free its leaf each time.
    parked: u32,
}

impl LeafList {
    pub(super) const EMPTY: Self = Self { first: NO_LEAF, parked: NO_LEAF };

    /// Whether there is no leaf, and so no entry in a bin.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NO_LEAF
    }
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    context: u32,
    /// The block, and in the lower 4 bits how many bins are in use, less one: a leaf without is parked.
    block_and_open: u32,
    /// The next leaf of the bucket.
    chain: u32,
    /// Neighbours in the list of the context's leaves.
    prev: u32,
    next: u32,
}

/// A bin: the place of a list's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BinId {
    leaf: u32,
    place: u32,
}

/// No leaf.
const NO_LEAF: u32 = u32::MAX;

pub(super) const LEAF_BYTES: usize = mem::size_of::<Leaf>() + mem::size_of::<[Head; SPAN as usize]>();

/// A key that no leaf has: ranks end below it.
const NO_KEY: Key = Key(u64::MAX);

/// The fewest buckets once there are any; they are kept while there is no leaf.
const BUCKETS_MIN: usize = 4;

impl Default for Leaves {
    fn default() -> Self {
        Self {
            last: (NO_KEY, NO_LEAF),
            leaves: Vec::new(),
            heads: Vec::new(),
            buckets: Vec::new(),
            free: Vec::new(),
            tagged: Vec::new(),
            bytes: 0,
        }
    }
}

impl Key {
    const fn of(context: u32, rank: u32) -> Self {
        Self((context as u64) << 32 | (rank / SPAN) as u64)
    }

    const fn parts(self) -> (u32, u32) {
        ((self.0 >> 32) as u32, self.0 as u32)
    }

    /// Blocks that are neighbours have neighbouring buckets, in groups of 64; the groups are scattered.
    fn bucket(self, buckets: usize) -> usize {
        let group = self.0 >> 32 << 32 | u64::from(self.0 as u32 / 64);
        let scattered = (group ^ group >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (scattered as usize).wrapping_add(self.0 as u32 as usize) & (buckets - 1)
    }
}

impl Leaf {
    const fn key(&self) -> Key {
        Key((self.context as u64) << 32 | (self.block_and_open / SPAN) as u64)
    }
}

impl Leaves {
    /// The bin of a rank, if its leaf exists.
    #[inline(always)]
    pub(super) fn find(&mut self, context: u32, rank: u32) -> Option<BinId> {
        let key = Key::of(context, rank);
        if self.last.0 != key {
            self.last = (key, self.look_up(key)?);
        }
        Some(BinId { leaf: self.last.1, place: rank % SPAN })
    }

    /// The bin of a rank, for whose leaf there may be a new one in the list.
    #[inline]
    pub(super) fn find_or_insert(&mut self, context: u32, rank: u32, list: &mut LeafList) -> BinId {
        match self.find(context, rank) {
            Some(bin) => bin,
            None => BinId { leaf: self.insert(Key::of(context, rank), list), place: rank % SPAN },
        }
    }

    /// The head of the bin of a rank, if there is one.
    pub(super) fn peek(&self, context: u32, rank: u32) -> Head {
        let leaf = self.look_up(Key::of(context, rank))?;
        *self.head(BinId { leaf, place: rank % SPAN })
    }

    #[inline]
    pub(super) fn head(&self, bin: BinId) -> &Head {
        &self.heads[bin.leaf as usize][bin.place as usize]
    }

    #[inline]
    pub(super) fn head_mut(&mut self, bin: BinId) -> &mut Head {
        &mut self.heads[bin.leaf as usize][bin.place as usize]
    }

    /// Whether the entries of a bin are also in the tag index.
    #[inline]
    pub(super) fn is_tagged(&self, bin: BinId) -> bool {
        self.tagged.get(bin.leaf as usize).is_some_and(|tagged| tagged & 1 << bin.place != 0)
    }

    pub(super) fn set_tagged(&mut self, bin: BinId, is_tagged: bool) {
        let leaf = bin.leaf as usize;
        if self.tagged.len() <= leaf {
            self.tagged.resize(leaf + 1, 0);
        }
        self.tagged[leaf] = self.tagged[leaf] & !(1 << bin.place) | u16::from(is_tagged) << bin.place;
        self.count_bytes();
    }

    /// Forgets all that [`set_tagged`](Self::set_tagged) has noted.
    pub(super) fn forget_tagged(&mut self) {
        self.tagged.clear();
        self.count_bytes();
    }

    /// Notes that a bin has its first entry.
    #[inline]
    pub(super) fn open(&mut self, bin: BinId, list: &mut LeafList) {
        if list.parked == bin.leaf {
            list.parked = NO_LEAF;
        } else {
            self.leaves[bin.leaf as usize].block_and_open += 1;
        }
    }

    /// Notes that a bin has lost its last entry.
    #[inline(always)]
    pub(super) fn close(&mut self, bin: BinId, list: &mut LeafList) {
        let block_and_open = &mut self.leaves[bin.leaf as usize].block_and_open;
        if block_and_open.is_multiple_of(SPAN) {
            self.park(bin.leaf, list);
        } else {
            *block_and_open -= 1;
        }
    }

    /// The heads of all bins in the leaves of a list.
    pub(super) fn heads(&self, list: LeafList) -> impl Iterator<Item = Head> {
        self.blocks(list).flatten().copied()
    }

    /// The same, leaf by leaf.
    #[inline]
    pub(super) fn blocks(&self, list: LeafList) -> impl Iterator<Item = &[Head; SPAN as usize]> {
        let exists = |leaf: u32| (leaf != NO_LEAF).then_some(leaf);
        let leaves =
            core::iter::successors(exists(list.first), move |&leaf| exists(self.leaves[leaf as usize].next));
        leaves.map(|leaf| &self.heads[leaf as usize])
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        self.leaves.capacity() * mem::size_of::<Leaf>()
            + self.heads.capacity() * mem::size_of::<[Head; SPAN as usize]>()
            + (self.buckets.capacity() + self.free.capacity()) * mem::size_of::<u32>()
            + self.tagged.capacity() * mem::size_of::<u16>()
    }

    /// The most by which [`bytes`](Self::bytes) grows when that many leaves are added.
    pub(super) fn growth(&self, leaves: usize) -> usize {
        let leaves = self.len() + leaves;
        let buckets = self.buckets.len().max(leaves.next_power_of_two()).max(BUCKETS_MIN);
        leaves * LEAF_BYTES + buckets * mem::size_of::<u32>() + self.tagged.len() * mem::size_of::<u16>()
            - self.bytes
    }

    /// The most by which it grows when a bin is tagged.
    pub(super) fn growth_of_tagged(&self) -> usize {
        (self.leaves.len() - self.tagged.len()) * mem::size_of::<u16>()
    }

    /// Leaves in use.
    fn len(&self) -> usize {
        self.leaves.len() - self.free.len()
    }

    fn look_up(&self, key: Key) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut leaf = self.buckets[key.bucket(self.buckets.len())];
        while leaf != NO_LEAF && self.leaves[leaf as usize].key() != key {
            leaf = self.leaves[leaf as usize].chain;
        }
        (leaf != NO_LEAF).then_some(leaf)
    }

    /// Keeps the leaf that has just become empty, until the next one does.
    #[cold]
    fn park(&mut self, leaf: u32, list: &mut LeafList) {
        self.unpark(list);
        list.parked = leaf;
    }

    /// Frees the parked leaf of a list whose queue is empty.
    #[inline]
    pub(super) fn unpark(&mut self, list: &mut LeafList) {
        if list.parked != NO_LEAF {
            self.remove(list.parked, list);
            list.parked = NO_LEAF;
        }
    }

    #[cold]
    fn insert(&mut self, key: Key, list: &mut LeafList) -> u32 {
        if self.len() == self.buckets.len() {
            self.resize((2 * self.buckets.len()).max(BUCKETS_MIN));
        }
        let bucket = key.bucket(self.buckets.len());
        // A leaf that was used before has no heads left.
        let (context, block) = key.parts();
        let fresh = Leaf {
            context,
            block_and_open: block * SPAN,
            chain: self.buckets[bucket],
            prev: NO_LEAF,
            next: list.first,
        };
        let leaf = match self.free.pop() {
            Some(leaf) => {
                self.leaves[leaf as usize] = fresh;
                leaf
            }
            None => {
                self.leaves.push(fresh);
                self.heads.push([None; SPAN as usize]);
                (self.leaves.len() - 1) as u32
            }
        };
        if list.first != NO_LEAF {
            self.leaves[list.first as usize].prev = leaf;
        }
        list.first = leaf;
        self.buckets[bucket] = leaf;
        self.last = (key, leaf);
        self.count_bytes();
        // Until its first bin is opened.
        self.park(leaf, list);
        leaf
    }

    #[cold]
    fn remove(&mut self, leaf: u32, list: &mut LeafList) {
        let Leaf { chain, prev, next, .. } = self.leaves[leaf as usize];
        let key = self.leaves[leaf as usize].key();
        if prev == NO_LEAF {
            list.first = next;
        } else {
            self.leaves[prev as usize].next = next;
        }
        if next != NO_LEAF {
            self.leaves[next as usize].prev = prev;
        }
        let bucket = key.bucket(self.buckets.len());
        if self.buckets[bucket] == leaf {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.leaves[before as usize].chain != leaf {
                before = self.leaves[before as usize].chain;
            }
            self.leaves[before as usize].chain = chain;
        }
        self.free.push(leaf);
        if self.buckets.len() > BUCKETS_MIN && self.len() * 8 < self.buckets.len() {
            self.resize(self.buckets.len() / 4);
        }
        if self.last.1 == leaf {
            self.last.0 = NO_KEY;
        }
        self.count_bytes();
    }

    fn resize(&mut self, buckets: usize) {
        let mut fresh = Vec::new();
        fresh.reserve_exact(buckets);
        fresh.resize(buckets, NO_LEAF);
        for mut leaf in mem::replace(&mut self.buckets, fresh) {
            while leaf != NO_LEAF {
                let bucket = self.leaves[leaf as usize].key().bucket(buckets);
                let next = mem::replace(&mut self.leaves[leaf as usize].chain, self.buckets[bucket]);
                self.buckets[bucket] = leaf;
                leaf = next;
            }
        }
    }

    fn count_bytes(&mut self) {
        let buckets = if self.len() == 0 { 0 } else { self.buckets.len() };
        self.bytes = self.len() * LEAF_BYTES
            + buckets * mem::size_of::<u32>()
            + self.tagged.len() * mem::size_of::<u16>();
    }
}
