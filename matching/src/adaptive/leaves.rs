//! The bins of one queue, by context and rank: blocks of 16 neighbouring ranks, found by one hash.

use alloc::vec::Vec;
use core::mem;

use super::ring::Head;
use super::table::{Key, Table};

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
    table: Table,
    free: Vec<u32>,
    /// Bytes of the leaves and the table.
    bytes: usize,
}

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
    heads: [Head; SPAN as usize],
    key: Key,
    /// Bins in use, one bit each.
    used: u16,
    /// Bins whose entries are also in the tag index.
    tagged: u16,
    /// Neighbours in the list of the context's leaves.
    prev: u32,
    next: u32,
}

/// A bin: the place of a ring's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BinId {
    leaf: u32,
    place: u32,
}

/// No leaf.
const NO_LEAF: u32 = u32::MAX;

const LEAF_BYTES: usize = mem::size_of::<Leaf>();

/// A key that no leaf has: ranks end below it.
const NO_KEY: Key = Key::new(u32::MAX, u32::MAX);

impl Default for Leaves {
    fn default() -> Self {
        Self {
            last: (NO_KEY, NO_LEAF),
            leaves: Vec::new(),
            table: Table::default(),
            free: Vec::new(),
            bytes: 0,
        }
    }
}

impl Leaves {
    /// The bin of a rank, if its leaf exists.
    #[inline]
    pub(super) fn find(&mut self, context: u32, rank: u32) -> Option<BinId> {
        let key = Key::new(context, rank / SPAN);
        if self.last.0 != key {
            self.last = (key, self.table.get(key)?);
        }
        Some(BinId { leaf: self.last.1, place: rank % SPAN })
    }

    /// The bin of a rank, for whose leaf there may be a new one in the list.
    #[inline]
    pub(super) fn find_or_insert(&mut self, context: u32, rank: u32, list: &mut LeafList) -> BinId {
        match self.find(context, rank) {
            Some(bin) => bin,
            None => BinId { leaf: self.insert(Key::new(context, rank / SPAN), list), place: rank % SPAN },
        }
    }

    /// The head of the bin of a rank, if there is one.
    pub(super) fn peek(&self, context: u32, rank: u32) -> Head {
        let leaf = self.table.get(Key::new(context, rank / SPAN))?;
        self.head(BinId { leaf, place: rank % SPAN })
    }

    #[inline]
    pub(super) fn head(&self, bin: BinId) -> Head {
        self.leaves[bin.leaf as usize].heads[bin.place as usize]
    }

    /// Gives a bin another first entry.
    #[inline]
    pub(super) fn set_head(&mut self, bin: BinId, head: Head) {
        self.leaves[bin.leaf as usize].heads[bin.place as usize] = head;
    }

    /// Puts the first entry into an empty bin.
    #[inline]
    pub(super) fn open(&mut self, bin: BinId, head: Head, list: &mut LeafList) {
        let leaf = &mut self.leaves[bin.leaf as usize];
        leaf.heads[bin.place as usize] = head;
        leaf.used |= 1 << bin.place;
        if list.parked == bin.leaf {
            list.parked = NO_LEAF;
        }
    }

    /// Takes the last entry out of a bin. Tells whether the bin was tagged.
    #[inline]
    pub(super) fn close(&mut self, bin: BinId, list: &mut LeafList) -> bool {
        let leaf = &mut self.leaves[bin.leaf as usize];
        leaf.heads[bin.place as usize] = None;
        let was_tagged = leaf.tagged & 1 << bin.place != 0;
        leaf.used &= !(1 << bin.place);
        leaf.tagged &= leaf.used;
        if leaf.used == 0 {
            self.park(bin.leaf, list);
        }
        was_tagged
    }

    #[inline]
    pub(super) fn is_tagged(&self, bin: BinId) -> bool {
        self.leaves[bin.leaf as usize].tagged & 1 << bin.place != 0
    }

    pub(super) fn set_tagged(&mut self, bin: BinId) {
        self.leaves[bin.leaf as usize].tagged |= 1 << bin.place;
    }

    /// The heads of all bins in the leaves of a list.
    pub(super) fn heads(&self, list: LeafList) -> impl Iterator<Item = Head> {
        let exists = |leaf: u32| (leaf != NO_LEAF).then_some(leaf);
        let leaves =
            core::iter::successors(exists(list.first), move |&leaf| exists(self.leaves[leaf as usize].next));
        leaves.flat_map(|leaf| self.leaves[leaf as usize].heads)
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        self.leaves.capacity() * LEAF_BYTES
            + self.free.capacity() * mem::size_of::<u32>()
            + self.table.reserved()
    }

    /// The most by which [`bytes`](Self::bytes) grows when that many leaves are added.
    pub(super) fn growth(&self, leaves: usize) -> usize {
        leaves * LEAF_BYTES + self.table.growth(leaves)
    }

    /// Frees the parked leaf of a list whose queue is empty.
    #[inline]
    pub(super) fn unpark(&mut self, list: &mut LeafList) {
        if list.parked != NO_LEAF {
            self.remove(list.parked, list);
            list.parked = NO_LEAF;
        }
    }

    fn park(&mut self, leaf: u32, list: &mut LeafList) {
        self.unpark(list);
        list.parked = leaf;
    }

    #[cold]
    fn insert(&mut self, key: Key, list: &mut LeafList) -> u32 {
        let heads = [None; SPAN as usize];
        let fresh = Leaf { heads, key, used: 0, tagged: 0, prev: NO_LEAF, next: list.first };
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
        self.table.insert(key, leaf);
        self.last = (key, leaf);
        self.count_bytes();
        leaf
    }

    #[cold]
    fn remove(&mut self, leaf: u32, list: &mut LeafList) {
        let Leaf { key, prev, next, .. } = self.leaves[leaf as usize];
        if prev == NO_LEAF {
            list.first = next;
        } else {
            self.leaves[prev as usize].next = next;
        }
        if next != NO_LEAF {
            self.leaves[next as usize].prev = prev;
        }
        self.table.remove(key);
        self.free.push(leaf);
        if self.last.1 == leaf {
            self.last.0 = NO_KEY;
        }
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.bytes = (self.leaves.len() - self.free.len()) * LEAF_BYTES + self.table.bytes();
    }
}
