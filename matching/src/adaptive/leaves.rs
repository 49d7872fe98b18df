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
    table: Table,
    heads: Vec<[Head; SPAN as usize]>,
    about: Vec<About>,
    free: Vec<u32>,
    /// The leaf found last: most searches are for a neighbour.
    last: (Key, u32),
}

/// What is known of a leaf besides its heads.
#[derive(Clone, Copy, Debug)]
struct About {
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
pub(super) const NO_LEAF: u32 = u32::MAX;

impl Default for Leaves {
    fn default() -> Self {
        let last = (Key { context: 0, block: 0 }, NO_LEAF);
        Self { table: Table::default(), heads: Vec::new(), about: Vec::new(), free: Vec::new(), last }
    }
}

impl Leaves {
    /// Bytes of one leaf, its share of the table apart.
    pub(super) const LEAF_BYTES: usize = mem::size_of::<[Head; SPAN as usize]>() + mem::size_of::<About>();

    /// The bin of a rank, if its leaf exists.
    pub(super) fn find(&mut self, context: u32, rank: u32) -> Option<BinId> {
        let key = Key { context, block: rank / SPAN };
        let place = rank % SPAN;
        if self.last.0 == key && self.last.1 != NO_LEAF {
            return Some(BinId { leaf: self.last.1, place });
        }
        let leaf = self.table.get(key)?;
        self.last = (key, leaf);
        Some(BinId { leaf, place })
    }

    /// The bin of a rank; a new leaf becomes the first of the context's leaves.
    pub(super) fn find_or_insert(&mut self, context: u32, rank: u32, first: &mut u32) -> BinId {
        if let Some(bin) = self.find(context, rank) {
            return bin;
        }
        let key = Key { context, block: rank / SPAN };
        let about = About { key, used: 0, tagged: 0, prev: NO_LEAF, next: *first };
        let leaf = match self.free.pop() {
            Some(leaf) => {
                self.about[leaf as usize] = about;
                leaf
            }
            None => {
                self.heads.push([None; SPAN as usize]);
                self.about.push(about);
                (self.about.len() - 1) as u32
            }
        };
        if *first != NO_LEAF {
            self.about[*first as usize].prev = leaf;
        }
        *first = leaf;
        self.table.insert(key, leaf);
        self.last = (key, leaf);
        BinId { leaf, place: rank % SPAN }
    }

    pub(super) fn head(&self, bin: BinId) -> Head {
        self.heads[bin.leaf as usize][bin.place as usize]
    }

    /// Changes the head of a bin, and frees the leaf with its last bin.
    pub(super) fn set_head(&mut self, bin: BinId, head: Head, first: &mut u32) {
        let before = mem::replace(&mut self.heads[bin.leaf as usize][bin.place as usize], head);
        if before.is_some() == head.is_some() {
            return;
        }
        let about = &mut self.about[bin.leaf as usize];
        about.used ^= 1 << bin.place;
        about.tagged &= about.used;
        if about.used == 0 {
            self.remove(bin.leaf, first);
        }
    }

    pub(super) fn is_tagged(&self, bin: BinId) -> bool {
        self.about[bin.leaf as usize].tagged >> bin.place & 1 != 0
    }

    pub(super) fn set_tagged(&mut self, bin: BinId) {
        self.about[bin.leaf as usize].tagged |= 1 << bin.place;
    }

    /// The head of the bin of a rank, if there is one.
    pub(super) fn peek(&self, context: u32, rank: u32) -> Head {
        let leaf = self.table.get(Key { context, block: rank / SPAN })?;
        self.heads[leaf as usize][(rank % SPAN) as usize]
    }

    /// The heads of all bins in a context's leaves, from its first leaf.
    pub(super) fn heads(&self, first: u32) -> impl Iterator<Item = Head> {
        let exists = |leaf: u32| (leaf != NO_LEAF).then_some(leaf);
        let leaves =
            core::iter::successors(exists(first), move |&leaf| exists(self.about[leaf as usize].next));
        leaves.flat_map(|leaf| self.heads[leaf as usize])
    }

    pub(super) fn bytes(&self) -> usize {
        (self.about.len() - self.free.len()) * Self::LEAF_BYTES + self.table.bytes()
    }

    pub(super) fn reserved(&self) -> usize {
        self.heads.capacity() * mem::size_of::<[Head; SPAN as usize]>()
            + self.about.capacity() * mem::size_of::<About>()
            + self.free.capacity() * mem::size_of::<u32>()
            + self.table.reserved()
    }

    /// The most by which [`bytes`](Self::bytes) grows when that many leaves are added.
    pub(super) fn growth(&self, leaves: usize) -> usize {
        leaves * Self::LEAF_BYTES + self.table.growth(leaves)
    }

    fn remove(&mut self, leaf: u32, first: &mut u32) {
        let About { key, prev, next, .. } = self.about[leaf as usize];
        if prev == NO_LEAF {
            *first = next;
        } else {
            self.about[prev as usize].next = next;
        }
        if next != NO_LEAF {
            self.about[next as usize].prev = prev;
        }
        self.table.remove(key);
        self.free.push(leaf);
        self.last.1 = NO_LEAF;
    }
}
