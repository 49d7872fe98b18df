//! k-nomial trees.

use std::ops::Range;

use crate::schedule::Place;

/// The position of a rank in a k-nomial tree, whose root is rank 0. The subtree of a rank consists of consecutive ranks
/// from that rank on.
///
/// In base k, the number of a rank's parent is the number of the rank with a 0 in place of the lowest digit that is not
/// 0. For k = 2 the tree is the binomial tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    rank: u64,
    size: u64,
    k: u64,
    /// The number of zeros at the end of the rank's number in base k. For the root, the number of digits of the largest
    /// rank.
    level: u32,
}

/// A child in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) rank: u32,
    /// The number of ranks in the child's subtree.
    pub(super) ranks: u32,
}

/// Returns consecutive ranks from `first` on, where rank 0 follows the last rank, as one or two ranges. The second
/// range may be empty.
pub(super) fn wrapped(first: u32, ranks: u32, size: u32) -> [Range<u32>; 2] {
    let before_end = ranks.min(size - first);
    [first..first + before_end, 0..ranks - before_end]
}

/// Returns the number of blocks that a rank keeps in its scratch memory during a gather to the root or a scatter from
/// it along a binomial tree: those of its subtree. The root and a rank without children keep none.
pub(super) fn blocks_on_the_way(at: Place, root: u32) -> usize {
    match Tree::new(at.relative_to(root), 2).ranks() {
        ranks if ranks == 1 || at.rank() == root => 0,
        ranks => ranks as usize,
    }
}

impl Tree {
    pub(super) fn new(at: Place, k: u32) -> Self {
        assert!(k >= 2, "a tree with fewer than two ranks at a level has no end");
        let (rank, size, k) = (u64::from(at.rank()), u64::from(at.size()), u64::from(k));
        let mut level = 0;
        while k.pow(level) < size && rank.is_multiple_of(k.pow(level + 1)) {
            level += 1;
        }
        Self { rank, size, k, level }
    }

    /// Returns the parent; `None` for the root.
    pub(super) fn parent(&self) -> Option<u32> {
        let unit = self.k.pow(self.level);
        // The result is at most a rank, so it fits in 32 bits.
        (self.rank > 0).then(|| (self.rank - self.rank / unit % self.k * unit) as u32)
    }

    /// Returns the number of ranks in the subtree of this rank.
    pub(super) fn ranks(&self) -> u32 {
        self.ranks_at(self.rank, self.level)
    }

    fn ranks_at(&self, rank: u64, level: u32) -> u32 {
        self.k.pow(level).min(self.size - rank) as u32
    }

    /// Returns the children in ascending order, so those with the smallest subtrees first.
    pub(super) fn ascending(self) -> impl Iterator<Item = Child> + Clone + Send {
        (0..self.level).flat_map(move |level| self.at(level))
    }

    /// Returns the children with the largest subtrees first.
    pub(super) fn largest_first(self) -> impl Iterator<Item = Child> + Send {
        (0..self.level).rev().flat_map(move |level| self.at(level))
    }

    fn at(self, level: u32) -> impl Iterator<Item = Child> + Clone + Send {
        let children = (1..self.k).map(move |digit| self.rank + digit * self.k.pow(level));
        children
            .take_while(move |child| *child < self.size)
            .map(move |child| Child { rank: child as u32, ranks: self.ranks_at(child, level) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree_and_subtrees_cover_all_ranks() {
        for (k, size) in (2..9).flat_map(|k| (1..100).map(move |size| (k, size))) {
            let tree = |rank| Tree::new(Place::new(rank, size), k);
            assert_eq!((tree(0).parent(), tree(0).ranks()), (None, size));
            for rank in 0..size {
                let mut next = rank + 1;
                for child in tree(rank).ascending() {
                    assert_eq!((child.rank, tree(child.rank).parent()), (next, Some(rank)));
                    assert_eq!(tree(child.rank).ranks(), child.ranks);
                    next += child.ranks;
                }
                assert_eq!(next, rank + tree(rank).ranks(), "rank {rank} of {size}, k = {k}");
            }
        }
    }
}
