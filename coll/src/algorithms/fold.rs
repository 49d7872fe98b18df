//! Groups whose size is not a power of two.

use std::ops::Range;

use crate::schedule::Place;

/// The division of a group into passive and acting ranks. The number of acting ranks is a power of two. The first ranks
/// of the group form pairs, and the even rank of each pair acts for both (Thakur et al. 2005, section 4.5, where the
/// odd rank acts). The odd rank gives its data to the even rank before the operation, and gets the result afterwards.
/// The ranks of a pair are neighbours, so the order of ranks is kept. In a division [with a root](Fold::with_root), the
/// root acts, also if it is an odd rank.
///
/// The division also defines the *tree of reductions* of a group. All algorithms combine the elements by this tree if
/// the reduction does not commute, so the results have the same bits. First the elements of each pair are combined,
/// then the results of the acting ranks `2i` and `2i + 1`, then the results of two such neighbours, and so on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    at: Place,
    /// The number of acting ranks, a power of two.
    pub(super) actors: u32,
    /// The number of pairs.
    pairs: u32,
    /// The odd rank that acts for its pair; 0 if there is none.
    odd_actor: u32,
}

/// The part that a rank plays in a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A rank of a pair for which the other rank acts.
    Passive {
        /// The other rank of the pair.
        actor: u32,
    },
    /// A rank that acts.
    Active {
        /// The number of this rank among the acting ranks.
        number: u32,
        /// The other rank of the pair, if this rank acts for two ranks.
        passive: Option<u32>,
    },
}

impl Fold {
    pub(super) fn new(at: Place) -> Self {
        let actors = 1 << at.size().ilog2();
        Self { at, actors, pairs: at.size() - actors, odd_actor: 0 }
    }

    /// Returns the division in which `root` acts.
    pub(super) fn with_root(at: Place, root: u32) -> Self {
        let fold = Self::new(at);
        let is_odd_of_pair = root < 2 * fold.pairs && !root.is_multiple_of(2);
        Self { odd_actor: if is_odd_of_pair { root } else { 0 }, ..fold }
    }

    pub(super) fn role(&self) -> Role {
        let rank = self.at.rank();
        let number = self.number(rank);
        match rank < 2 * self.pairs {
            true if rank == self.rank(number) => Role::Active { number, passive: Some(rank ^ 1) },
            true => Role::Passive { actor: rank ^ 1 },
            false => Role::Active { number, passive: None },
        }
    }

    /// Returns the number of the acting rank that is `rank` or acts for it.
    pub(super) fn number(&self, rank: u32) -> u32 {
        if rank < 2 * self.pairs { rank / 2 } else { rank - self.pairs }
    }

    /// Returns the rank that has a number among the acting ranks.
    pub(super) fn rank(&self, number: u32) -> u32 {
        let first = self.ranks(number..number).start;
        if first + 1 == self.odd_actor { self.odd_actor } else { first }
    }

    /// Returns the ranks for which the acting ranks with these numbers act, including the acting ranks.
    pub(super) fn ranks(&self, numbers: Range<u32>) -> Range<u32> {
        let first = |number: u32| number + number.min(self.pairs);
        first(numbers.start)..first(numbers.end)
    }

    /// Returns the reductions of the tree of reductions, in an order in which they can be carried out: see
    /// [`reduction`](Self::reduction).
    pub(super) fn tree(self) -> impl Iterator<Item = (u32, u32)> + Send {
        (0..self.at.size()).map_while(move |index| self.reduction(index))
    }

    /// Returns reduction `index` of the tree of reductions; `None` if there are fewer. The pair names the highest ranks
    /// of the left and of the right operand, and the highest rank of the right operand is the highest rank of the
    /// result.
    pub(super) fn reduction(&self, index: u32) -> Option<(u32, u32)> {
        let Some(mut node) = index.checked_sub(self.pairs) else { return Some((2 * index, 2 * index + 1)) };
        let last = |number| self.ranks(number..number + 1).end - 1;
        for level in 0..self.log2() {
            let nodes = self.actors >> (level + 1);
            if node < nodes {
                let middle = (2 * node + 1) << level;
                return Some((last(middle - 1), last(middle - 1 + (1 << level))));
            }
            node -= nodes;
        }
        None
    }

    /// Returns the logarithm of the number of acting ranks to base 2.
    pub(super) fn log2(&self) -> u32 {
        self.actors.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_an_actor_or_has_one() {
        for size in 1..100 {
            let fold = |rank| Fold::new(Place::new(rank, size));
            let mut next = 0;
            for number in 0..fold(0).actors {
                let ranks = fold(0).ranks(number..number + 1);
                let rank = fold(0).rank(number);
                let passive = (ranks.len() == 2).then_some(ranks.end - 1);
                assert_eq!(fold(rank).role(), Role::Active { number, passive });
                if let Some(passive) = passive {
                    assert_eq!(fold(passive).role(), Role::Passive { actor: rank });
                }
                assert_eq!((ranks.start, rank), (next, next));
                next = ranks.end;
            }
            assert_eq!(next, size);
        }
    }

    #[test]
    fn a_root_acts_and_changes_no_number() {
        for (size, root) in (1..40).flat_map(|size| (0..size).map(move |root| (size, root))) {
            for rank in 0..size {
                let at = Place::new(rank, size);
                let (usual, fold) = (Fold::new(at), Fold::with_root(at, root));
                let number = fold.number(rank);
                assert_eq!(usual.number(rank), number);
                let acts = match rank ^ 1 {
                    other if other < 2 * fold.pairs && rank < 2 * fold.pairs => {
                        rank == root || other != root && rank.is_multiple_of(2)
                    }
                    _ => true,
                };
                assert_eq!(fold.rank(number) == rank, acts);
                match fold.role() {
                    Role::Active { number: found, passive } => {
                        assert_eq!((acts, found), (true, number));
                        assert_eq!(passive, (rank < 2 * fold.pairs).then_some(rank ^ 1));
                    }
                    Role::Passive { actor } => assert_eq!((acts, actor), (false, rank ^ 1)),
                }
            }
        }
    }
}
