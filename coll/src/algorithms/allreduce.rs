//! Reductions to all ranks.

use super::fold::{Fold, Role};
use crate::schedule::{Blocks, Place, Span, Step, Steps};

/// An algorithm for a reduction to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In round k each rank exchanges all elements with the rank whose number differs in bit k. If the number of ranks
    /// is not a power of two, some ranks give their elements to their neighbours in a round before these rounds, and
    /// get the result in a round after them. Cost: ⌊log₂ n⌋ rounds, and two more if n is not a power of two; a rank
    /// sends all elements in each of its rounds. If the reduction does not commute, the operands stay in the order of
    /// ranks.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    RecursiveDoubling,
    /// A reduce-scatter by recursive halving, and an allgather by recursive doubling. The reduction must commute. Cost:
    /// 2⌊log₂ n⌋ rounds; a rank sends about 2(n − 1)/n of the elements. If n is not a power of two, there are two more
    /// rounds, and some ranks send all elements once more.
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
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, len: usize, commutes: bool, in_place: bool) -> Steps {
        let all = 0..len;
        let copy = Step::Copy { from: Span::input(all.clone()), into: Span::output(all) };
        let copy = (!in_place).then_some(copy).into_iter();
        match self {
            Self::RecursiveDoubling => Box::new(copy.chain(recursive_doubling(at, len, commutes))),
            Self::Rabenseifner | Self::Ring if !commutes => {
                panic!("this algorithm changes the order of ranks")
            }
            Self::Rabenseifner => Box::new(copy.chain(rabenseifner(at, len))),
            Self::Ring => Box::new(copy.chain(ring(at, len))),
        }
    }

    pub(crate) fn scratch(self, at: Place, len: usize) -> usize {
        match self {
            Self::RecursiveDoubling | Self::Rabenseifner => len,
            Self::Ring => parts(len, at.size()).longest(at.size()),
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
/// the steps that `act` returns for its number.
fn folded<I: Iterator<Item = Step> + Send>(
    fold: Fold,
    len: usize,
    act: impl FnOnce(u32) -> I,
) -> impl Iterator<Item = Step> + Send {
    let (output, scratch) = (Span::output(0..len), Span::scratch(0..len));
    let (before, number, after) = match fold.role() {
        Role::Passive { actor } => {
            let send = Step::Send { to: actor, round: FOLD, from: output };
            let receive = Step::Receive { from: actor, round: FOLD, into: output };
            (Some([send, Step::WAIT, receive]), None, Some([None, Some(Step::WAIT)]))
        }
        Role::Active { number, passive } => {
            let before = passive.map(|from| {
                let reduce = Step::Reduce { from: scratch, into: output };
                [Step::Receive { from, round: FOLD, into: scratch }, Step::WAIT, reduce]
            });
            let send = passive.map(|to| Step::Send { to, round: FOLD, from: output });
            (before, Some(number), Some([send, Some(Step::WAIT)]))
        }
    };
    let act = number.map(act).into_iter().flatten();
    let after = after.into_iter().flatten().flatten();
    before.into_iter().flatten().chain(act).chain(after)
}

fn recursive_doubling(at: Place, len: usize, commutes: bool) -> impl Iterator<Item = Step> + Send {
    let fold = Fold::new(at);
    folded(fold, len, move |number| {
        let places = [Span::output(0..len), Span::scratch(0..len)];
        // The index in `places` of this rank's partial result. The result replaces the right operand, so it moves to
        // the place of the received elements if these are from higher ranks and the order matters.
        let mut mine = 0;
        let exchange = move |round: u32| {
            let partner = number ^ (1 << round);
            let (own, received) = (places[mine], places[1 - mine]);
            let moves = partner > number && !commutes;
            let (from, into) = if moves { (own, received) } else { (received, own) };
            mine = if moves { 1 - mine } else { mine };
            [
                Step::Send { to: fold.rank(partner), round, from: own },
                Step::Receive { from: fold.rank(partner), round, into: received },
                Step::WAIT,
                Step::Reduce { from, into },
            ]
        };
        // If the reduction does not commute, the result has moved once for each bit of the number that is 0.
        let moved = !commutes && (fold.log2() - number.count_ones()) % 2 == 1;
        let copy = moved.then_some(Step::Copy { from: places[1], into: places[0] });
        (0..fold.log2()).flat_map(exchange).chain(copy)
    })
}

fn rabenseifner(at: Place, len: usize) -> impl Iterator<Item = Step> + Send {
    let fold = Fold::new(at);
    folded(fold, len, move |number| {
        let parts = parts(len, fold.actors);
        // Of the parts that this rank still reduces, it keeps half, from `first` on.
        let halve = {
            let parts = parts.clone();
            move |round: u32| {
                let half = fold.actors >> (round + 1);
                let first = number & !(half - 1);
                let partner = fold.rank(number ^ half);
                let kept = parts.run(first..first + half);
                let given = parts.run((first ^ half)..(first ^ half) + half);
                let received = Span::scratch(kept.clone());
                [
                    Step::Send { to: partner, round, from: Span::output(given) },
                    Step::Receive { from: partner, round, into: received },
                    Step::WAIT,
                    Step::Reduce { from: received, into: Span::output(kept) },
                ]
            }
        };
        let double = move |round: u32| {
            let count = 1 << round;
            let first = number & !(count - 1);
            let partner = fold.rank(number ^ count);
            let run = |first| Span::output(parts.run(first..first + count));
            let round = fold.log2() + round;
            [
                Step::Send { to: partner, round, from: run(first) },
                Step::Receive { from: partner, round, into: run(first ^ count) },
                Step::WAIT,
            ]
        };
        (0..fold.log2()).flat_map(halve).chain((0..fold.log2()).flat_map(double))
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
