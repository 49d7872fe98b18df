//! Reductions over the ranks up to each rank.

use crate::schedule::{Place, Span, Step, Steps, source};

/// Returns the steps of recursive doubling: in round k each rank sends its partial result to the rank that is 2^k
/// higher. The receiver combines it, as the left operand, with its own partial result. Cost: ⌈log₂ n⌉ rounds; a rank
/// sends all elements in each round in which it has a receiver. The operands stay in the order of ranks.
///
/// Source: Hillis and Steele: *Data Parallel Algorithms*. Communications of the ACM 29(12), 1986.
pub(crate) fn steps(at: Place, len: usize, in_place: bool) -> Steps {
    let (result, received) = (Span::output(0..len), Span::scratch(0..len));
    let own = Span { buffer: source(in_place), ..result };
    let copy = (!in_place).then_some(Step::Copy { from: own, into: result });
    let exchange = move |round: u32| {
        let partners = Partners::new(at, round);
        let send = partners.to.map(|to| Step::Send { to, round, from: result });
        let receive = partners.from.map(|from| Step::Receive { from, round, into: received });
        let reduce = partners.from.map(|_| Step::Reduce { from: received, into: result });
        [send, receive, Some(Step::WAIT), reduce].into_iter().flatten()
    };
    Steps::new(copy.into_iter().chain((0..at.log2()).flat_map(exchange)))
}

/// The partners of a rank in a round.
pub(super) struct Partners {
    pub(super) to: Option<u32>,
    pub(super) from: Option<u32>,
}

impl Partners {
    pub(super) fn new(at: Place, round: u32) -> Self {
        let (rank, distance) = (u64::from(at.rank()), 1_u64 << round);
        // Both are ranks of the group, so they fit in 32 bits.
        let to = Some(rank + distance).filter(|to| *to < at.size().into()).map(|to| to as u32);
        Self { to, from: rank.checked_sub(distance).map(|from| from as u32) }
    }
}
