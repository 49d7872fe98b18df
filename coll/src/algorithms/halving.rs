//! Reductions by recursive halving in the order of ranks: the first phase of Rabenseifner's algorithms.

use std::ops::Range;

use super::fold::Fold;
use crate::schedule::{Blocks, Buffer, Span, Step};

/// The round in the messages between a passive rank and its actor. All other messages have smaller rounds.
pub(super) const FOLD: u32 = 64;

/// The place of all elements of an operation: a buffer, and the index of the first element in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    buffer: Buffer,
    start: usize,
}

impl Base {
    pub(super) fn new(buffer: Buffer, start: usize) -> Self {
        Self { buffer, start }
    }

    pub(super) fn span(self, elements: Range<usize>) -> Span {
        Span::of(self.buffer, self.start + elements.start..self.start + elements.end)
    }
}

/// The places of a rank's partial result and of received elements, which have the same index in both places. The result
/// of a reduction replaces the right operand. So if the order matters and the received elements are the right operand,
/// the partial result moves to the place of the received elements, and the next elements are received in the other
/// place.
#[derive(Clone, Copy)]
pub(super) struct Places {
    commutes: bool,
    /// The place of the partial result.
    mine: Base,
    received: Base,
    /// While the partial result is in the input, which no step may write: the place that is still free.
    free: Option<Base>,
}

impl Places {
    /// Returns the places of a rank whose own elements are in `mine`.
    pub(super) fn new(commutes: bool, mine: Buffer, received: Buffer) -> Self {
        let base = |buffer| Base { buffer, start: 0 };
        Self { commutes, mine: base(mine), received: base(received), free: None }
    }

    /// Returns the places of a rank whose own elements are in the input. The first elements are received in the first
    /// of the two places.
    pub(super) fn from_input(commutes: bool, [received, free]: [Base; 2]) -> Self {
        Self { commutes, mine: Base::new(Buffer::Input, 0), received, free: Some(free) }
    }

    pub(super) fn mine(&self, elements: Range<usize>) -> Span {
        self.mine.span(elements)
    }

    pub(super) fn received(&self, elements: Range<usize>) -> Span {
        self.received.span(elements)
    }

    /// Returns the step before a [reduction](Self::reduce), if it would write to the input: it copies the partial
    /// result.
    pub(super) fn before(&mut self, elements: Range<usize>, is_right: bool) -> Option<Step> {
        if self.commutes || is_right {
            return None;
        }
        let (from, free) = (self.mine(elements.clone()), self.free.take()?);
        self.mine = free;
        Some(Step::Copy { from, into: free.span(elements) })
    }

    /// Combines the partial result with received elements. `is_right` is true if they are from higher ranks.
    pub(super) fn reduce(&mut self, elements: Range<usize>, is_right: bool) -> Step {
        let (mine, received) = (self.mine(elements.clone()), self.received(elements));
        if let Some(free) = self.free.take() {
            assert!(self.commutes || is_right, "the input is not written");
            (self.mine, self.received) = (self.received, free);
            return Step::Reduce { from: mine, into: received };
        }
        if self.commutes || !is_right {
            return Step::Reduce { from: received, into: mine };
        }
        (self.mine, self.received) = (self.received, self.mine);
        Step::Reduce { from: mine, into: received }
    }

    /// Returns the places after this rank has taken part in an exchange for each of the lowest `bits` bits of `number`,
    /// in which it combined its partial result with elements from a higher rank if the bit is 0.
    pub(super) fn after(mut self, number: u32, bits: u32) -> Self {
        for bit in 0..bits {
            let is_right = number & (1 << bit) == 0;
            self.before(0..0, is_right);
            self.reduce(0..0, is_right);
        }
        self
    }

    /// Copies a result to the output if it is not there.
    pub(super) fn finish(&self, elements: Range<usize>) -> Option<Step> {
        let into = Span::output(elements.clone());
        (self.mine.buffer != Buffer::Output).then_some(Step::Copy { from: self.mine(elements), into })
    }
}

/// The division of the elements among the acting ranks of a [`Fold`]. In round k a rank exchanges half of the elements
/// that it still reduces with the acting rank whose number differs in bit k. So neighbours are combined first, and the
/// elements are combined by the tree of reductions.
#[derive(Clone, Debug)]
pub(super) struct Halving {
    fold: Fold,
    /// The number of this rank among the acting ranks.
    number: u32,
    parts: Blocks,
    /// The part that this rank completes. Its number has the bits of the rank's number in the opposite order, because
    /// the lowest bit decides between the two halves of all parts.
    own: u32,
}

impl Halving {
    pub(super) fn new(fold: Fold, number: u32, len: usize) -> Self {
        let own = (u64::from(number.reverse_bits()) >> (u32::BITS - fold.log2())) as u32;
        Self { fold, number, parts: Blocks::Parts { total: len, parts: fold.actors }, own }
    }

    /// Returns the elements whose reduction this rank completes.
    pub(super) fn own(&self) -> Range<usize> {
        self.parts.get(self.own)
    }

    /// In a round this rank and its partner divide the elements that both still reduce. Returns the partner's number,
    /// the elements of this rank, and the elements of the partner.
    pub(super) fn divided(&self, round: u32) -> (u32, Range<usize>, Range<usize>) {
        let half = self.fold.actors >> (round + 1);
        let first = self.own & !(half - 1);
        let given = first ^ half;
        let partner = self.number ^ (1 << round);
        (partner, self.parts.run(first..first + half), self.parts.run(given..given + half))
    }

    /// Returns the steps of all rounds. The partial result is in `places` before them.
    pub(super) fn steps(self, mut places: Places) -> impl Iterator<Item = Step> + Send {
        let rounds = 0..self.fold.log2();
        rounds.flat_map(move |round| {
            let (partner, kept, given) = self.divided(round);
            let (rank, is_right) = (self.fold.rank(partner), partner > self.number);
            let send = Step::Send { to: rank, round, from: places.mine(given) };
            let receive = Step::Receive { from: rank, round, into: places.received(kept.clone()) };
            let copy = places.before(kept.clone(), is_right);
            let reduce = places.reduce(kept, is_right);
            [Some(send), Some(receive), Some(Step::WAIT), copy, Some(reduce)].into_iter().flatten()
        })
    }
}
