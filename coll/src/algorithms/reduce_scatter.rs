//! Reductions whose result is scattered.

use super::fold::{Fold, Role};
use crate::schedule::{Blocks, Buffer, Place, Span, Step, Steps, source};

/// An algorithm for a reduce-scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In each round each rank exchanges half of the elements that it still reduces with a partner. The reduction must
    /// commute. Cost: ⌊log₂ n⌋ rounds; a rank sends (n − 1)/n of the elements. If n is not a power of two, there are
    /// two more rounds, in which some ranks first give all elements to their neighbours, and at the end get their
    /// blocks.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    RecursiveHalving,
    /// In round k each rank sends to the rank that is k higher the block of that rank. Cost: n − 1 rounds; a rank sends
    /// all blocks except its own one. If the reduction does not commute, each rank keeps the received blocks, and
    /// reduces them at the end, by the same tree as the other operations.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    Pairwise,
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, blocks: Blocks, commutes: bool, in_place: bool) -> Steps {
        let own = source(in_place);
        match self {
            Self::RecursiveHalving => {
                assert!(commutes, "recursive halving changes the order of ranks");
                Steps::new(recursive_halving(at, blocks, own))
            }
            Self::Pairwise if commutes => Steps::new(pairwise(at, blocks, own)),
            Self::Pairwise => Steps::new(pairwise_in_order(at, blocks, own)),
        }
    }

    pub(crate) fn scratch(self, at: Place, blocks: &Blocks, commutes: bool) -> usize {
        let block = blocks.get(at.rank()).len();
        match self {
            Self::RecursiveHalving => 2 * blocks.run(0..at.size()).end,
            Self::Pairwise if commutes => 2 * block,
            Self::Pairwise => at.size() as usize * block,
        }
    }
}

/// The round in the messages between the ranks of a pair ([`Fold`]), before and after all other rounds, which have
/// smaller numbers.
const LAST: u32 = 64;

/// The scratch buffer contains the partial results of all blocks, and behind them the received elements.
fn recursive_halving(at: Place, blocks: Blocks, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let total = blocks.run(0..at.size()).end;
    let block = blocks.get(at.rank());
    let output = Span::output(0..block.len());
    let fold = Fold::new(at);
    let (passive_steps, act) = match fold.role() {
        Role::Passive { actor } => {
            let send = Step::Send { to: actor, round: LAST, from: Span::of(own, 0..total) };
            let receive = Step::Receive { from: actor, round: LAST, into: output };
            (Some([send, Step::WAIT, receive, Step::WAIT]), None)
        }
        Role::Active { number, passive } => {
            (None, Some(halving_of_actor(at, blocks, own, fold, number, passive)))
        }
    };
    passive_steps.into_iter().flatten().chain(act.into_iter().flatten())
}

fn halving_of_actor(
    at: Place,
    blocks: Blocks,
    own: Buffer,
    fold: Fold,
    number: u32,
    passive: Option<u32>,
) -> impl Iterator<Item = Step> + Send {
    let total = blocks.run(0..at.size()).end;
    let behind =
        move |elements: &std::ops::Range<usize>| Span::scratch(total + elements.start..total + elements.end);
    let all = Span::scratch(0..total);
    let copy = Step::Copy { from: Span::of(own, 0..total), into: all };
    let before = passive.map(|from| {
        let received = behind(&(0..total));
        let reduce = Step::Reduce { from: received, into: all };
        [Step::Receive { from, round: LAST, into: received }, Step::WAIT, reduce]
    });
    let block = blocks.get(at.rank());
    let finish = Step::Copy { from: Span::scratch(block.clone()), into: Span::output(0..block.len()) };
    let send = passive.map(|to| Step::Send { to, round: LAST, from: Span::scratch(blocks.get(to)) });
    let halve = move |round: u32| {
        let half = fold.actors >> (round + 1);
        let first = number & !(half - 1);
        let partner = fold.rank(number ^ half);
        let kept = blocks.run(fold.ranks(first..first + half));
        let given = blocks.run(fold.ranks((first ^ half)..(first ^ half) + half));
        let received = behind(&kept);
        [
            Step::Send { to: partner, round, from: Span::scratch(given) },
            Step::Receive { from: partner, round, into: received },
            Step::WAIT,
            Step::Reduce { from: received, into: Span::scratch(kept) },
        ]
    };
    let rounds = (0..fold.log2()).flat_map(halve);
    [copy]
        .into_iter()
        .chain(before.into_iter().flatten())
        .chain(rounds)
        .chain(send)
        .chain([finish, Step::WAIT])
}

fn pairwise(at: Place, blocks: Blocks, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let block = blocks.get(at.rank());
    let len = block.len();
    // The result is not computed in the output, because in place its start contains elements that are still to be sent.
    let (result, received) = (Span::scratch(0..len), Span::scratch(len..2 * len));
    let copy = Step::Copy { from: Span::of(own, block), into: result };
    let finish = Step::Copy { from: result, into: Span::output(0..len) };
    let exchange = move |round: u32| {
        let to = at.up(round);
        [
            Step::Send { to, round, from: Span::of(own, blocks.get(to)) },
            Step::Receive { from: at.down(round), round, into: received },
            Step::WAIT,
            Step::Reduce { from: received, into: result },
        ]
    };
    [copy].into_iter().chain((1..at.size()).flat_map(exchange)).chain([finish])
}

fn pairwise_in_order(at: Place, blocks: Blocks, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let block = blocks.get(at.rank());
    let len = block.len();
    let of_rank = move |rank: u32| Span::scratch(rank as usize * len..(rank as usize + 1) * len);
    let copy = Step::Copy { from: Span::of(own, block), into: of_rank(at.rank()) };
    let exchange = move |round: u32| {
        let (to, from) = (at.up(round), at.down(round));
        [
            Step::Send { to, round, from: Span::of(own, blocks.get(to)) },
            Step::Receive { from, round, into: of_rank(from) },
            Step::WAIT,
        ]
    };
    let result = of_rank(at.size() - 1);
    let reduce = move |(left, right)| Step::Reduce { from: of_rank(left), into: of_rank(right) };
    let finish = Step::Copy { from: result, into: Span::output(0..len) };
    [copy]
        .into_iter()
        .chain((1..at.size()).flat_map(exchange))
        .chain(Fold::new(at).tree().map(reduce))
        .chain([finish])
}
