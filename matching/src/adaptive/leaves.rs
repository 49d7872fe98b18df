//! The bins of one queue, by context and rank, in blocks of 16 neighbouring ranks. A block is found by one hash.

use alloc::vec::Vec;
use core::mem;

use super::list::Head;

/// The number of ranks in a leaf.
const SPAN: u32 = 16;

/// The bins, in leaves of 16 neighbouring ranks. A leaf is allocated when one of its bins is first used, and freed some
/// time after all of them are empty.
///
/// Neighbouring ranks share a cache line, so a walk through the ranks in any direction touches a new line only
/// every 16 ranks. If all ranks are in use, a bin costs little more than its 4 bytes.
///
/// The removal of a bin's last entry is not recorded, because every match would pay for that. Leaves without entries
/// are freed by a *sweep*: when the queue is empty, or when it has twice as many leaves as after the last sweep.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    leaves: Vec<Leaf>,
    /// The first leaf of each chain. The number of chains is a power of two, and at least the number of leaves in use.
    buckets: Vec<u32>,
    free: Vec<u32>,
    /// For each leaf, one bit for each of its bins, which is set if the bin's entries are also in the tag index. The
    /// leaves after the last leaf that had such a bin have no element.
    tagged: Vec<u16>,
    /// The bytes of the leaves, the buckets and `tagged`.
    bytes: usize,
}

/// A context and a block of ranks in it, in one word because they are compared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

/// The leaves of one queue of one context.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafList {
    first: u32,
    len: u32,
    /// The number of leaves at which the next insertion of a leaf first frees the leaves without entries.
    len_max: u32,
    /// The leaf that was found most recently. It is tried first, because most searches are for a rank near the previous
    /// rank.
    last: u32,
    /// The block of the leaf `last`.
    last_block: u32,
}

impl LeafList {
    pub(super) const EMPTY: Self =
        Self { first: NO_LEAF, len: 0, len_max: LEAVES_MIN, last: NO_LEAF, last_block: NO_BLOCK };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// The first entry of each bin.
    heads: [Head; SPAN as usize],
    context: u32,
    block: u32,
    /// The next leaf of the bucket.
    chain: u32,
    /// The previous leaf in the [`LeafList`] of the context.
    prev: u32,
    /// The next leaf in the [`LeafList`] of the context.
    next: u32,
}

/// A bin, identified by the position of its list's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BinId {
    leaf: u32,
    place: u32,
}

/// The index that stands for no leaf.
const NO_LEAF: u32 = u32::MAX;

pub(super) const LEAF_BYTES: usize = mem::size_of::<Leaf>();

/// A number that no block has. The block of a rank is the rank divided by `SPAN`, so every block is less than this.
const NO_BLOCK: u32 = u32::MAX;

/// A queue with fewer leaves than this is not swept for leaves without entries.
const LEAVES_MIN: u32 = 8;

/// The minimum number of buckets once there are any. These buckets are kept when there is no leaf.
const BUCKETS_MIN: usize = 4;

impl Key {
    const fn of(context: u32, rank: u32) -> Self {
        Self((context as u64) << 32 | (rank / SPAN) as u64)
    }

    /// Hashes by multiplication with the golden ratio, which puts consecutive blocks into different buckets (Knuth, The
    /// Art of Computer Programming, section 6.4).
    fn bucket(self, buckets: usize) -> usize {
        let scattered = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(scattered) * buckets as u128) >> 64) as usize
    }
}

impl Leaf {
    const fn key(&self) -> Key {
        Key((self.context as u64) << 32 | self.block as u64)
    }

    fn is_empty(&self) -> bool {
        self.heads.iter().all(Option::is_none)
    }
}

impl Leaves {
    /// Returns the bin of a rank if its leaf exists.
    #[inline(always)]
    pub(super) fn find(&self, context: u32, rank: u32, list: &mut LeafList) -> Option<BinId> {
        if list.last_block != rank / SPAN {
            list.last = self.find_leaf(Key::of(context, rank), list)?;
            list.last_block = rank / SPAN;
        }
        Some(BinId { leaf: list.last, place: rank % SPAN })
    }

    /// Returns the bin of a rank, and creates its leaf if necessary.
    #[inline]
    pub(super) fn find_or_insert(&mut self, context: u32, rank: u32, list: &mut LeafList) -> BinId {
        match self.find(context, rank, list) {
            Some(bin) => bin,
            None => self.insert(context, rank, list),
        }
    }

    /// Returns the head of a rank's bin, or `None` if the rank has no entries.
    pub(super) fn peek(&self, context: u32, rank: u32) -> Head {
        let leaf = self.look_up(Key::of(context, rank))?;
        self.head(BinId { leaf, place: rank % SPAN })
    }

    /// Returns the head of a bin.
    #[inline]
    pub(super) fn head(&self, bin: BinId) -> Head {
        self.leaves[bin.leaf as usize].heads[bin.place as usize]
    }

    #[inline]
    pub(super) fn head_mut(&mut self, bin: BinId) -> &mut Head {
        &mut self.leaves[bin.leaf as usize].heads[bin.place as usize]
    }

    /// Returns true if the entries of a bin are also in the tag index.
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

    /// Clears everything that [`set_tagged`](Self::set_tagged) has recorded.
    pub(super) fn forget_tagged(&mut self) {
        self.tagged.clear();
        self.count_bytes();
    }

    /// Iterates over the heads of all bins in the leaves of a list.
    pub(super) fn heads(&self, list: LeafList) -> impl Iterator<Item = Head> {
        self.blocks(list).flatten().copied()
    }

    /// Iterates over the heads that [`heads`](Self::heads) returns, leaf by leaf.
    #[inline]
    pub(super) fn blocks(&self, list: LeafList) -> impl Iterator<Item = &[Head; SPAN as usize]> {
        let exists = |leaf: u32| (leaf != NO_LEAF).then_some(leaf);
        let leaves =
            core::iter::successors(exists(list.first), move |&leaf| exists(self.leaves[leaf as usize].next));
        leaves.map(|leaf| &self.leaves[leaf as usize].heads)
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        self.leaves.capacity() * mem::size_of::<Leaf>()
            + (self.buckets.capacity() + self.free.capacity()) * mem::size_of::<u32>()
            + self.tagged.capacity() * mem::size_of::<u16>()
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) when `leaves` leaves are added.
    pub(super) fn growth(&self, leaves: usize) -> usize {
        let leaves = self.len() + leaves;
        let buckets = self.buckets.len().max(leaves.next_power_of_two()).max(BUCKETS_MIN);
        leaves * LEAF_BYTES + buckets * mem::size_of::<u32>() + self.tagged.len() * mem::size_of::<u16>()
            - self.bytes
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) when a bin is tagged.
    pub(super) fn growth_of_tagged(&self) -> usize {
        (self.leaves.len() - self.tagged.len()) * mem::size_of::<u16>()
    }

    /// Returns the number of leaves in use.
    fn len(&self) -> usize {
        self.leaves.len() - self.free.len()
    }

    /// Returns the leaf of a block. First tries the leaf that is stored beside the most recently found leaf. It is the
    /// right leaf if ranks are used and searched in order.
    #[inline(never)]
    fn find_leaf(&self, key: Key, list: &LeafList) -> Option<u32> {
        let is_later = key.0 as u32 > list.last_block;
        let beside = if is_later { list.last.wrapping_add(1) } else { list.last.wrapping_sub(1) };
        match self.leaves.get(beside as usize) {
            Some(leaf) if leaf.key() == key => Some(beside),
            _ => self.look_up(key),
        }
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

    /// Frees the leaves of an empty queue.
    #[inline(always)]
    pub(super) fn clear(&mut self, list: &mut LeafList) {
        if list.first != NO_LEAF {
            self.clear_list(list);
        }
    }

    #[cold]
    fn clear_list(&mut self, list: &mut LeafList) {
        if list.len as usize == self.len() {
            // No other queue has leaves, so later leaves are again stored in the order of creation.
            self.leaves.clear();
            self.free.clear();
            self.tagged.clear();
            self.buckets.truncate(BUCKETS_MIN);
            self.buckets.fill(NO_LEAF);
            self.count_bytes();
        } else {
            while list.first != NO_LEAF {
                self.remove(list.first, list);
            }
        }
        *list = LeafList::EMPTY;
    }

    /// Frees those leaves of a queue in which all bins are empty.
    fn sweep(&mut self, list: &mut LeafList) {
        let mut next = list.first;
        while next != NO_LEAF {
            let leaf = next;
            next = self.leaves[leaf as usize].next;
            if self.leaves[leaf as usize].is_empty() {
                self.remove(leaf, list);
            }
        }
        list.len_max = LEAVES_MIN.max(2 * list.len);
    }

    #[cold]
    fn insert(&mut self, context: u32, rank: u32, list: &mut LeafList) -> BinId {
        if list.len == list.len_max {
            self.sweep(list);
        }
        let key = Key::of(context, rank);
        if self.len() == self.buckets.len() {
            self.resize((2 * self.buckets.len()).max(BUCKETS_MIN));
        }
        let bucket = key.bucket(self.buckets.len());
        let fresh = Leaf {
            heads: [None; SPAN as usize],
            context,
            block: rank / SPAN,
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
                (self.leaves.len() - 1) as u32
            }
        };
        if list.first != NO_LEAF {
            self.leaves[list.first as usize].prev = leaf;
        }
        list.first = leaf;
        list.len += 1;
        self.buckets[bucket] = leaf;
        (list.last, list.last_block) = (leaf, rank / SPAN);
        self.count_bytes();
        BinId { leaf, place: rank % SPAN }
    }

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
        self.leaves[leaf as usize].block = NO_BLOCK;
        self.free.push(leaf);
        if self.buckets.len() > BUCKETS_MIN && self.len() * 8 < self.buckets.len() {
            self.resize(self.buckets.len() / 4);
        }
        list.len -= 1;
        if list.last == leaf {
            list.last_block = NO_BLOCK;
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
