//! Groups whose size is not a power of two.

use std::ops::Range;

use crate::schedule::Place;

/// The division of a group into passive and acting ranks. The number of acting ranks is a power of two. The first ranks
/// of the group form pairs, and the odd rank of each pair acts for both (Thakur et al. 2005, section 4.5). The even
/// rank gives its data to the odd rank before the operation, and gets the result afterwards. The ranks of a pair are
/// neighbours, so the order of ranks is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    at: Place,
    /// The number of acting ranks, a power of two.
    pub(super) actors: u32,
    /// The number of pairs.
    pairs: u32,
}

/// The part that a rank plays in a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The even rank of a pair. The odd rank acts for it.
    Passive {
        /// The odd rank of the pair.
        actor: u32,
    },
    /// A rank that acts.
    Active {
        /// The number of this rank among the acting ranks.
        number: u32,
        /// The even rank of the pair, if this rank acts for two ranks.
        passive: Option<u32>,
    },
}

impl Fold {
    pub(super) fn new(at: Place) -> Self {
        let actors = 1 << at.size().ilog2();
        Self { at, actors, pairs: at.size() - actors }
    }

    pub(super) fn role(&self) -> Role {
        let rank = self.at.rank();
        match rank < 2 * self.pairs {
            true if rank.is_multiple_of(2) => Role::Passive { actor: rank + 1 },
            true => Role::Active { number: rank / 2, passive: Some(rank - 1) },
            false => Role::Active { number: rank - self.pairs, passive: None },
        }
    }

    /// Returns the rank that has a number among the acting ranks.
    pub(super) fn rank(&self, number: u32) -> u32 {
        if number < self.pairs { 2 * number + 1 } else { number + self.pairs }
    }

    /// Returns the ranks for which the acting ranks with these numbers act, including the acting ranks.
    pub(super) fn ranks(&self, numbers: Range<u32>) -> Range<u32> {
        let first = |number: u32| number + number.min(self.pairs);
        first(numbers.start)..first(numbers.end)
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
                let passive = (ranks.len() == 2).then_some(ranks.start);
                assert_eq!(fold(rank).role(), Role::Active { number, passive });
                if let Some(passive) = passive {
                    assert_eq!(fold(passive).role(), Role::Passive { actor: rank });
                }
                assert_eq!((ranks.start, ranks.end), (next, rank + 1));
                next = ranks.end;
            }
            assert_eq!(next, size);
        }
    }
}
