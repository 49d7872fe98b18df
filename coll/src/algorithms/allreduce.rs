//! Reductions to all ranks.

use super::board::{self, OnBoard};
use super::fold::{Fold, Role};
use super::halving::{FOLD, Halving, Places};
use crate::schedule::{Blocks, Buffer, Place, Span, Step, Steps, source};

/// An algorithm for a reduction to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In round k each rank exchanges all elements with the rank whose number differs in bit k. If the number of ranks
    /// is not a power of two, some ranks give their elements to their neighbours in a round before these rounds, and
    /// get the result in a round after them. Cost: ⌊log₂ n⌋ rounds, and two more if n is not a power of two; a rank
    /// sends all elements in each of its rounds.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    RecursiveDoubling,
    /// A reduce-scatter, in whose round k each rank exchanges half of the elements that it still reduces with the rank
    /// whose number differs in bit k, and then an allgather by the same exchanges in the opposite order. Cost: 2⌊log₂
    /// n⌋ rounds; a rank sends about 2(n − 1)/n of the elements. If n is not a power of two, there are two more rounds,
    /// and some ranks send all elements once more.
    ///
    /// Source: Rabenseifner: *Optimization of Collective Reduction Operations*. ICCS 2004; Thakur et al. 2005, section
    /// 4.5.
    Rabenseifner,
    /// A reduce-scatter and an allgather, both along a ring. The reduction must commute. Cost: 2(n − 1) rounds; a rank
    /// sends about 2(n − 1)/n of the elements.
    ///
    /// Source: Patarasuk and Yuan: *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*. Journal of
    /// Parallel and Distributed Computing 69(2), 2009.
    Ring,
    /// Each rank publishes its elements on the board in pieces, and fetches and combines the elements of all ranks.
    /// Cost: p rounds for p pieces; each rank publishes its elements once, reads those of all other ranks, and combines
    /// all of them.
    Board {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, len: usize, commutes: bool, in_place: bool) -> Steps {
        let all = 0..len;
        let copy = Step::Copy { from: Span::input(all.clone()), into: Span::output(all) };
        let copy = (!in_place).then_some(copy).into_iter();
        match self {
            Self::Board { piece } => OnBoard::allreduce(at, source(in_place), len, piece).into(),
            Self::RecursiveDoubling => Steps::new(copy.chain(recursive_doubling(at, len, commutes))),
            Self::Rabenseifner => Steps::new(copy.chain(rabenseifner(at, len, commutes))),
            Self::Ring => {
                assert!(commutes, "a ring changes the order of ranks");
                Steps::new(copy.chain(ring(at, len)))
            }
        }
    }

    pub(crate) fn scratch(self, at: Place, len: usize) -> usize {
        match self {
            Self::RecursiveDoubling | Self::Rabenseifner => len,
            Self::Ring => parts(len, at.size()).longest(at.size()),
            Self::Board { piece } => board::scratch(at, len, piece),
        }
    }
}

fn parts(len: usize, parts: u32) -> Blocks {
    Blocks::Parts { total: len, parts }
}

/// Returns the steps of a rank in a [`Fold`]. A passive rank sends its elements to its actor and receives the result.
/// An acting rank with a passive rank receives these elements first and sends the result last. Between them it takes
/// the steps that `act` returns for its number. These steps begin with the partial result in the returned [`Places`],
/// and leave the result in the output.
fn folded<I: Iterator<Item = Step> + Send>(
    fold: Fold,
    len: usize,
    commutes: bool,
    act: impl FnOnce(u32, Places) -> I,
) -> impl Iterator<Item = Step> + Send {
    let mut places = Places::new(commutes, Buffer::Output, Buffer::Scratch);
    let (output, scratch) = (Span::output(0..len), Span::scratch(0..len));
    let (before, number, after) = match fold.role() {
        Role::Passive { actor } => {
            let send = Step::Send { to: actor, round: FOLD, from: output };
            let receive = Step::Receive { from: actor, round: FOLD, into: output };
            (Some([send, Step::WAIT, receive]), None, Some([None, Some(Step::WAIT)]))
        }
        Role::Active { number, passive } => {
            let before = passive.map(|from| {
                let receive = Step::Receive { from, round: FOLD, into: scratch };
                [receive, Step::WAIT, places.reduce(0..len, true)]
            });
            let send = passive.map(|to| Step::Send { to, round: FOLD, from: output });
            (before, Some(number), Some([send, Some(Step::WAIT)]))
        }
    };
    let act = number.map(|number| act(number, places)).into_iter().flatten();
    let after = after.into_iter().flatten().flatten();
    before.into_iter().flatten().chain(act).chain(after)
}

fn recursive_doubling(at: Place, len: usize, commutes: bool) -> impl Iterator<Item = Step> + Send {
    let fold = Fold::new(at);
    folded(fold, len, commutes, move |number, mut places| {
        let last = places.after(number, fold.log2());
        let exchange = move |round: u32| {
            let partner = number ^ (1 << round);
            let rank = fold.rank(partner);
            [
                Step::Send { to: rank, round, from: places.mine(0..len) },
                Step::Receive { from: rank, round, into: places.received(0..len) },
                Step::WAIT,
                places.reduce(0..len, partner > number),
            ]
        };
        (0..fold.log2()).flat_map(exchange).chain(last.finish(0..len))
    })
}

fn rabenseifner(at: Place, len: usize, commutes: bool) -> impl Iterator<Item = Step> + Send {
    let fold = Fold::new(at);
    folded(fold, len, commutes, move |number, places| {
        let halving = Halving::new(fold, number, len);
        let last = places.after(number, fold.log2());
        let finish = last.finish(halving.own());
        let gathering = halving.clone();
        let double = move |round: u32| {
            let (partner, kept, given) = gathering.divided(round);
            let (rank, round) = (fold.rank(partner), fold.log2() + round);
            [
                Step::Send { to: rank, round, from: Span::output(kept) },
                Step::Receive { from: rank, round, into: Span::output(given) },
                Step::WAIT,
            ]
        };
        halving.steps(places).chain(finish).chain((0..fold.log2()).rev().flat_map(double))
    })
}

fn ring(at: Place, len: usize) -> impl Iterator<Item = Step> + Send {
    let parts = parts(len, at.size());
    let gathered = parts.clone();
    let reduce = move |round: u32| {
        let (sent, kept) = (parts.get(at.down(round - 1)), parts.get(at.down(round)));
        let received = Span::scratch(0..kept.len());
        [
            Step::Send { to: at.up(1), round, from: Span::output(sent) },
            Step::Receive { from: at.down(1), round, into: received },
            Step::WAIT,
            Step::Reduce { from: received, into: Span::output(kept) },
        ]
    };
    // In the last round a rank completes the reduction of one part: the part with the number of the next rank.
    let next = Place::new(at.up(1), at.size());
    let gather = move |round: u32| {
        let (sent, received) = (gathered.get(next.down(round - 1)), gathered.get(next.down(round)));
        let (round, from, into) = (at.size() + round, Span::output(sent), Span::output(received));
        [
            Step::Send { to: at.up(1), round, from },
            Step::Receive { from: at.down(1), round, into },
            Step::WAIT,
        ]
    };
    (1..at.size()).flat_map(reduce).chain((1..at.size()).flat_map(gather))
}
