//! Reductions to all ranks.

use std::ops::Range;

use super::board::{self, OnBoard};
use super::fold::{Fold, Role};
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

/// The round in the messages between a passive rank and its actor ([`Role`]). All other messages have smaller rounds.
const FOLD: u32 = 64;

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
    let mut places = Places { commutes, mine: Buffer::Output };
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

/// The places of a rank's partial result and of received elements, which have the same index in both buffers. The
/// result of a reduction replaces the right operand. So if the order matters and the received elements are the right
/// operand, the partial result moves to the buffer of the received elements, and the next elements are received in the
/// other buffer.
#[derive(Clone, Copy)]
struct Places {
    commutes: bool,
    /// The buffer that contains the partial result.
    mine: Buffer,
}

impl Places {
    fn mine(&self, elements: Range<usize>) -> Span {
        Span::of(self.mine, elements)
    }

    fn received(&self, elements: Range<usize>) -> Span {
        let other = if self.mine == Buffer::Output { Buffer::Scratch } else { Buffer::Output };
        Span::of(other, elements)
    }

    /// Combines the partial result with received elements. `is_right` is true if they are from higher ranks.
    fn reduce(&mut self, elements: Range<usize>, is_right: bool) -> Step {
        let (mine, received) = (self.mine(elements.clone()), self.received(elements));
        if self.commutes || !is_right {
            return Step::Reduce { from: received, into: mine };
        }
        self.mine = received.buffer;
        Step::Reduce { from: mine, into: received }
    }

    /// Returns the places after this rank has taken part in an exchange for each of the lowest `bits` bits of `number`,
    /// in which it combined its partial result with elements from a higher rank if the bit is 0.
    fn after(&self, number: u32, bits: u32) -> Self {
        let has_moved = !self.commutes && (bits - number.count_ones()) % 2 == 1;
        Self { mine: if has_moved { self.received(0..0).buffer } else { self.mine }, ..*self }
    }

    /// Copies a result to the output if it is not there.
    fn finish(&self, elements: Range<usize>) -> Option<Step> {
        let into = Span::output(elements.clone());
        (self.mine != Buffer::Output).then_some(Step::Copy { from: self.mine(elements), into })
    }
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
    folded(fold, len, commutes, move |number, mut places| {
        let parts = parts(len, fold.actors);
        let last = places.after(number, fold.log2());
        // The part that this rank completes. Its number has the bits of the rank's number in the opposite order,
        // because the lowest bit decides between the two halves of all parts.
        let own = (u64::from(number.reverse_bits()) >> (u32::BITS - fold.log2())) as u32;
        let finish = last.finish(parts.get(own));
        // In round k this rank and its partner divide the parts that both still reduce. Returns the partner, the parts
        // of this rank, and the parts of the partner.
        let divided = move |round: u32| {
            let half = fold.actors >> (round + 1);
            let first = own & !(half - 1);
            let partner = number ^ (1 << round);
            let given = first ^ half;
            (partner, parts.run(first..first + half), parts.run(given..given + half))
        };
        let gathered = divided.clone();
        let halve = move |round: u32| {
            let (partner, kept, given) = divided(round);
            let rank = fold.rank(partner);
            [
                Step::Send { to: rank, round, from: places.mine(given) },
                Step::Receive { from: rank, round, into: places.received(kept.clone()) },
                Step::WAIT,
                places.reduce(kept, partner > number),
            ]
        };
        let double = move |round: u32| {
            let (partner, kept, given) = gathered(round);
            let (rank, round) = (fold.rank(partner), fold.log2() + round);
            [
                Step::Send { to: rank, round, from: Span::output(kept) },
                Step::Receive { from: rank, round, into: Span::output(given) },
                Step::WAIT,
            ]
        };
        (0..fold.log2()).flat_map(halve).chain(finish).chain((0..fold.log2()).rev().flat_map(double))
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
