//! Allgathers.

use super::board::OnBoard;
use crate::schedule::{Blocks, Place, Span, Step, Steps, source};

/// An algorithm for an allgather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In round k each rank sends up to 2^k blocks to the rank that is 2^k lower. All blocks have the same length.
    /// Cost: ⌈log₂ n⌉ rounds; each rank sends n − 1 blocks, and copies all blocks at the end.
    ///
    /// Source: Bruck et al. 1997; Thakur et al. 2005, section 4.1.
    Bruck,
    /// In round k each rank exchanges 2^k blocks with the rank whose number differs in bit k. The number of ranks is a
    /// power of two, and all blocks have the same length. Cost: log₂ n rounds; each rank sends n − 1 blocks.
    ///
    /// Source: Thakur et al. 2005, section 4.1.
    RecursiveDoubling,
    /// In each round each rank passes the block that it received in the round before on to the next rank. Cost: n − 1
    /// rounds; each rank sends all blocks except one.
    ///
    /// Source: Thakur et al. 2005, section 4.1.
    Ring,
    /// Each rank publishes its block on the board in pieces, and fetches the blocks of all other ranks. All blocks have
    /// the same length. Cost: p rounds for blocks of p pieces; each rank publishes one block.
    Board {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, blocks: Blocks, in_place: bool) -> Steps {
        match self {
            Self::Bruck => Steps::new(bruck(at, equal(&blocks), in_place)),
            Self::RecursiveDoubling => Steps::new(recursive_doubling(at, equal(&blocks), in_place)),
            Self::Ring => Steps::new(ring(at, blocks, in_place)),
            Self::Board { piece } => OnBoard::allgather(at, equal(&blocks), piece, in_place).into(),
        }
    }

    pub(crate) fn scratch(self, at: Place, blocks: &Blocks) -> usize {
        match self {
            Self::Bruck => at.size() as usize * equal(blocks),
            Self::RecursiveDoubling | Self::Ring | Self::Board { .. } => 0,
        }
    }
}

/// Returns the length of the blocks.
fn equal(blocks: &Blocks) -> usize {
    let Blocks::Equal(len) = blocks else { panic!("this algorithm needs blocks of the same length") };
    *len
}

/// Returns the step that copies this rank's block to its place in the output; `None` if it is there already.
fn own_block(at: Place, blocks: &Blocks, in_place: bool) -> Option<Step> {
    let own = blocks.get(at.rank());
    let copy = Step::Copy { from: Span::input(0..own.len()), into: Span::output(own) };
    (!in_place).then_some(copy)
}

/// Block `i` of the scratch buffer is the block of the rank that is `i` higher.
fn bruck(at: Place, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let (rank, size) = (at.rank() as usize, at.size() as usize);
    let own = if in_place { rank * len..(rank + 1) * len } else { 0..len };
    let copy = Step::Copy { from: Span::of(source(in_place), own), into: Span::scratch(0..len) };
    let exchange = move |round: u32| {
        let distance = 1_u32 << round;
        let blocks = distance.min(at.size() - distance) as usize;
        let start = distance as usize * len;
        [
            Step::Send { to: at.down(distance), round, from: Span::scratch(0..blocks * len) },
            Step::Receive { from: at.up(distance), round, into: Span::scratch(start..start + blocks * len) },
            Step::WAIT,
        ]
    };
    let before_end = (size - rank) * len;
    let rotate = [
        Step::Copy { from: Span::scratch(0..before_end), into: Span::output(rank * len..size * len) },
        Step::Copy { from: Span::scratch(before_end..size * len), into: Span::output(0..rank * len) },
    ];
    [copy].into_iter().chain((0..at.log2()).flat_map(exchange)).chain(rotate)
}

fn recursive_doubling(at: Place, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    assert!(at.size().is_power_of_two(), "recursive doubling needs a power of two of ranks");
    let blocks = Blocks::Equal(len);
    let copy = own_block(at, &blocks, in_place);
    let exchange = move |round: u32| {
        let distance = 1_u32 << round;
        let first = at.rank() & !(distance - 1);
        let run = |first| Span::output(blocks.run(first..first + distance));
        let partner = at.rank() ^ distance;
        [
            Step::Send { to: partner, round, from: run(first) },
            Step::Receive { from: partner, round, into: run(first ^ distance) },
            Step::WAIT,
        ]
    };
    copy.into_iter().chain((0..at.log2()).flat_map(exchange))
}

fn ring(at: Place, blocks: Blocks, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let copy = own_block(at, &blocks, in_place);
    let exchange = move |round: u32| {
        [
            Step::Send { to: at.up(1), round, from: Span::output(blocks.get(at.down(round - 1))) },
            Step::Receive { from: at.down(1), round, into: Span::output(blocks.get(at.down(round))) },
            Step::WAIT,
        ]
    };
    copy.into_iter().chain((1..at.size()).flat_map(exchange))
}
