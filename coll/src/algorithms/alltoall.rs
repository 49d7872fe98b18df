//! Exchanges of all ranks with all ranks.

use super::board::OnBoard;
use crate::schedule::{Blocks, Buffer, Place, Span, Step, Steps, source};

/// An algorithm for an alltoall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A block for the rank at distance d travels over the distances 2^k for which bit k of d is set. All blocks have
    /// the same length. Cost: ⌈log₂ n⌉ rounds; each rank sends about n/2 blocks in each round. A block is copied twice
    /// for each round in which it is sent, and twice more: at most 2⌈log₂ n⌉ + 2 times.
    ///
    /// Source: Bruck et al. 1997; Thakur et al. 2005, section 4.4.
    Bruck,
    /// In round k each rank sends to the rank that is k higher, and receives from the rank that is k lower. Cost: n − 1
    /// rounds; each rank sends all its blocks except its own one.
    ///
    /// In place, each rank exchanges blocks with one rank in each round, so that no block is overwritten before it is
    /// sent. Then there are n rounds, and each rank has no partner in one of them.
    ///
    /// Source: Thakur et al. 2005, section 4.4.
    Pairwise,
    /// Each rank publishes all its blocks on the board in one piece, and fetches its block from each other rank. All
    /// blocks have the same length. Cost: 1 round; each rank publishes n blocks.
    Board {
        /// The largest number of elements in a piece: at least that of all blocks of a rank.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, from: Blocks, into: Blocks, in_place: bool) -> Steps {
        match self {
            Self::Bruck => {
                let (Blocks::Equal(len), true) = (&from, from == into) else {
                    panic!("Bruck's algorithm needs blocks of the same length");
                };
                Steps::new(bruck(at, *len, in_place))
            }
            Self::Board { piece } => {
                let (Blocks::Equal(len), true) = (&from, from == into) else {
                    panic!("this algorithm needs blocks of the same length");
                };
                assert!(len * at.size() as usize <= piece, "all blocks are published in one piece");
                OnBoard::alltoall(at, *len, in_place).into()
            }
            Self::Pairwise if in_place => {
                assert_eq!(from, into, "in place, blocks are received where they are sent from");
                Steps::new(pairwise_in_place(at, into))
            }
            Self::Pairwise => Steps::new(pairwise(at, from, into)),
        }
    }

    pub(crate) fn scratch(self, at: Place, into: &Blocks, in_place: bool) -> usize {
        match self {
            Self::Bruck => (at.size() as usize + 2 * packed(at)) * into.longest(at.size()),
            Self::Pairwise if in_place => into.longest(at.size()),
            Self::Pairwise | Self::Board { .. } => 0,
        }
    }
}

/// Returns the largest number of blocks that [`bruck`] sends in a round.
fn packed(at: Place) -> usize {
    (0..at.log2()).map(|bit| blocks_with(at.size(), bit)).max().unwrap_or(0) as usize
}

/// Returns the number of numbers below `size` in which a bit is set.
fn blocks_with(size: u32, bit: u32) -> u32 {
    runs_with(size, bit).map(|(first, end)| end - first).sum()
}

/// Returns the runs of numbers below `size` in which a bit is set: the first number, and the number behind the last.
fn runs_with(size: u32, bit: u32) -> impl Iterator<Item = (u32, u32)> + Send {
    let unit = 1_u64 << bit;
    let starts = (unit..u64::from(size)).step_by(2 * unit as usize);
    starts.map(move |first| (first as u32, (first + unit).min(u64::from(size)) as u32))
}

/// The scratch buffer contains the blocks in the order of the whole distance over which each must travel, then the
/// packed blocks that are sent in a round, and then the packed blocks that are received.
fn bruck(at: Place, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let (rank, size) = (at.rank() as usize, at.size() as usize);
    let from = source(in_place);
    let before_end = (size - rank) * len;
    let rotate = [
        Step::Copy { from: Span::of(from, rank * len..size * len), into: Span::scratch(0..before_end) },
        Step::Copy { from: Span::of(from, 0..rank * len), into: Span::scratch(before_end..size * len) },
    ];
    let sent = size * len;
    let received = sent + packed(at) * len;
    let exchange = move |round: u32| {
        let distance = 1_u32 << round;
        let bytes = blocks_with(at.size(), round) as usize * len;
        let messages = [
            Step::Send { to: at.up(distance), round, from: Span::scratch(sent..sent + bytes) },
            Step::Receive { from: at.down(distance), round, into: Span::scratch(received..received + bytes) },
            Step::WAIT,
        ];
        let pack = pieces(at.size(), round, len).map(move |(blocks, packed)| Step::Copy {
            from: Span::scratch(blocks),
            into: Span::scratch(sent + packed.start..sent + packed.end),
        });
        let unpack = pieces(at.size(), round, len).map(move |(blocks, packed)| Step::Copy {
            from: Span::scratch(received + packed.start..received + packed.end),
            into: Span::scratch(blocks),
        });
        pack.chain(messages).chain(unpack)
    };
    // The block that has travelled over distance `i` is from the rank that is `i` lower.
    let place = move |distance: u32| {
        let (start, from) = (distance as usize * len, at.down(distance) as usize * len);
        Step::Copy { from: Span::scratch(start..start + len), into: Span::output(from..from + len) }
    };
    rotate.into_iter().chain((0..at.log2()).flat_map(exchange)).chain((0..at.size()).map(place))
}

/// Returns, for each run of blocks in whose number a bit is set, the elements of the run and their place among the
/// packed blocks.
fn pieces(
    size: u32,
    bit: u32,
    len: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, std::ops::Range<usize>)> + Send {
    let mut packed = 0;
    runs_with(size, bit).map(move |(first, end)| {
        let blocks = first as usize * len..end as usize * len;
        let start = packed;
        packed += blocks.len();
        (blocks, start..packed)
    })
}

fn pairwise(at: Place, from: Blocks, into: Blocks) -> impl Iterator<Item = Step> + Send {
    let own = Step::Copy { from: Span::input(from.get(at.rank())), into: Span::output(into.get(at.rank())) };
    let exchange = move |round: u32| {
        let (to, source) = (at.up(round), at.down(round));
        [
            Step::Send { to, round, from: Span::input(from.get(to)) },
            Step::Receive { from: source, round, into: Span::output(into.get(source)) },
            Step::WAIT,
        ]
    };
    [own].into_iter().chain((1..at.size()).flat_map(exchange))
}

/// In round k, two ranks whose numbers add up to k modulo n are partners.
fn pairwise_in_place(at: Place, blocks: Blocks) -> impl Iterator<Item = Step> + Send {
    let exchange = move |round: u32| {
        let partner = Place::new(round, at.size()).down(at.rank());
        let block = Span::output(blocks.get(partner));
        let received = Span { buffer: Buffer::Scratch, start: 0, len: block.len };
        let steps = [
            Step::Send { to: partner, round, from: block },
            Step::Receive { from: partner, round, into: received },
            Step::WAIT,
            Step::Copy { from: received, into: block },
        ];
        (partner != at.rank()).then_some(steps).into_iter().flatten()
    };
    (0..at.size()).flat_map(exchange)
}
