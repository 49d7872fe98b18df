//! The algorithms on the communicator's board.
//!
//! The steps of short operations must cost little, so they have one type for all operations, which needs no allocation.
//! A step is a function of the number of its piece and of its index among the steps of the piece.

use std::ops::Range;

use super::fold::{Fold, Role};
use crate::schedule::{Blocks, Buffer, Place, Span, Step, piece_of, pieces, source};

/// The steps of an operation on the board at one rank.
#[derive(Clone, Debug)]
pub(crate) struct OnBoard {
    at: Place,
    operation: Operation,
    /// The pieces that are left.
    pieces: Range<u32>,
    /// The index of the next step of the first of these pieces.
    index: u32,
    /// True if steps without elements are left out.
    skips_empty: bool,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Barrier,
    Bcast { root: u32, len: usize, piece: usize },
    Gather { root: u32, len: usize, piece: usize, in_place: bool },
    Reduce { root: u32, contributions: Contributions },
    Allreduce(Contributions),
    Allgather { len: usize, piece: usize, in_place: bool },
    Alltoall { len: usize, in_place: bool },
}

impl OnBoard {
    pub(super) fn barrier(at: Place) -> Self {
        Self::new(at, Operation::Barrier, 1)
    }

    pub(super) fn bcast(at: Place, root: u32, len: usize, piece: usize) -> Self {
        Self::new(at, Operation::Bcast { root, len, piece }, pieces_of(len, piece))
    }

    /// `in_place` is true if the root's block is in its place.
    pub(super) fn gather(at: Place, root: u32, len: usize, piece: usize, in_place: bool) -> Self {
        Self::new(at, Operation::Gather { root, len, piece, in_place }, pieces_of(len, piece))
    }

    /// `own` is the buffer that contains this rank's elements.
    pub(super) fn reduce(at: Place, root: u32, own: Buffer, len: usize, piece: usize) -> Self {
        let contributions = Contributions::new(at, own, len, piece);
        Self::new(at, Operation::Reduce { root, contributions }, pieces(len, piece))
    }

    /// `own` is the buffer that contains this rank's elements.
    pub(super) fn allreduce(at: Place, own: Buffer, len: usize, piece: usize) -> Self {
        let contributions = Contributions::new(at, own, len, piece);
        Self::new(at, Operation::Allreduce(contributions), pieces(len, piece))
    }

    pub(super) fn allgather(at: Place, len: usize, piece: usize, in_place: bool) -> Self {
        Self::new(at, Operation::Allgather { len, piece, in_place }, pieces(len, piece))
    }

    pub(super) fn alltoall(at: Place, len: usize, in_place: bool) -> Self {
        Self::new(at, Operation::Alltoall { len, in_place }, 1)
    }

    fn new(at: Place, operation: Operation, pieces: u32) -> Self {
        Self { at, operation, pieces: 0..pieces, index: 0, skips_empty: true }
    }

    /// Returns the same steps, with those that have no elements.
    pub(crate) fn with_empty(self) -> Self {
        Self { skips_empty: false, ..self }
    }
}

impl Iterator for OnBoard {
    type Item = Step;

    #[inline(always)]
    fn next(&mut self) -> Option<Step> {
        while !self.pieces.is_empty() {
            match self.operation.step(self.at, self.pieces.start, self.index) {
                Some(step) => {
                    self.index += 1;
                    if !(self.skips_empty && step.is_empty()) {
                        return Some(step);
                    }
                }
                None => {
                    self.pieces.start += 1;
                    self.index = 0;
                }
            }
        }
        None
    }
}

impl Operation {
    /// Returns a step of a piece; `None` if the piece has fewer steps.
    #[inline(always)]
    fn step(&self, at: Place, piece: u32, index: u32) -> Option<Step> {
        match *self {
            Self::Barrier => {
                let nothing = Span::NOTHING;
                match index {
                    0 => Some(publish(at, piece, nothing)),
                    _ => fetch_all(at, index - 1, |from| whole(from, piece, nothing)),
                }
            }
            Self::Bcast { root, len, piece: longest } => {
                let span = Span::output(piece_of(len, longest, piece));
                let step =
                    if at.rank() == root { publish(at, piece, span) } else { whole(root, piece, span) };
                (index == 0).then_some(step)
            }
            Self::Gather { root, len, piece: longest, in_place } => {
                let part = piece_of(len, longest, piece);
                let block = |rank: u32| block_of(len, &part, rank);
                let own = if in_place { block(root) } else { Span::input(part.clone()) };
                match index {
                    0 if at.rank() == root => Some(copy(own, block(root))),
                    0 => Some(publish(at, piece, own)),
                    _ if at.rank() == root => {
                        fetch_all(at, index - 1, |from| whole(from, piece, block(from)))
                    }
                    _ => None,
                }
            }
            Self::Reduce { root, ref contributions } if at.rank() == root => {
                contributions.combine(at, piece, index)
            }
            Self::Reduce { ref contributions, .. } => {
                (index == 0).then(|| publish(at, piece, contributions.own(piece)))
            }
            Self::Allreduce(ref contributions) => match index {
                0 => Some(publish(at, piece, contributions.own(piece))),
                _ => contributions.combine(at, piece, index - 1),
            },
            Self::Allgather { len, piece: longest, in_place } => {
                let part = piece_of(len, longest, piece);
                let block = |rank: u32| block_of(len, &part, rank);
                let own = if in_place { block(at.rank()) } else { Span::input(part.clone()) };
                match index {
                    0 => Some(publish(at, piece, own)),
                    1 => Some(copy(own, block(at.rank()))),
                    _ => fetch_all(at, index - 2, |from| whole(from, piece, block(from))),
                }
            }
            Self::Alltoall { len, in_place } => {
                let (blocks, all) = (Blocks::Equal(len), len * at.size() as usize);
                let own = blocks.get(at.rank());
                let from = source(in_place);
                match index {
                    0 => Some(publish(at, piece, Span::of(from, 0..all))),
                    1 => Some(copy(Span::of(from, own.clone()), Span::output(own))),
                    _ => fetch_all(at, index - 2, |from| {
                        let into = Span::output(blocks.get(from));
                        Step::Fetch { from, piece, whole: all, start: own.start, into }
                    }),
                }
            }
        }
    }
}

/// Returns the number of pieces of a broadcast or a gather. If it has no elements, it has one empty piece, because a
/// barrier on two levels consists of such operations.
pub(super) fn pieces_of(len: usize, piece: usize) -> u32 {
    pieces(len, piece).max(1)
}

/// Returns a part of the block of a rank in the output.
fn block_of(len: usize, part: &Range<usize>, rank: u32) -> Span {
    let start = rank as usize * len;
    Span::output(start + part.start..start + part.end)
}

/// Publishes a piece if other ranks exist.
fn publish(at: Place, piece: u32, from: Span) -> Step {
    if at.size() > 1 { Step::Publish { piece, from } } else { Step::NONE }
}

/// Fetches a whole piece.
fn whole(from: u32, piece: u32, into: Span) -> Step {
    Step::Fetch { from, piece, whole: into.len, start: 0, into }
}

/// Copies a span to its place if it is not there.
fn copy(from: Span, into: Span) -> Step {
    if from == into { Step::NONE } else { Step::Copy { from, into } }
}

/// Returns the fetch with this index, of the fetches from all other ranks; `None` if there are fewer.
#[inline]
fn fetch_all(at: Place, index: u32, fetch: impl Fn(u32) -> Step) -> Option<Step> {
    (index + 1 < at.size()).then(|| fetch(at.up(index + 1)))
}

/// The places of the contributions of all ranks in a reduction. Every rank that reduces combines them by the tree of
/// reductions. So all ranks get the same bits.
///
/// The contribution of the last rank is fetched to the output, because the last reduction leaves its result there. The
/// contributions of the other ranks are in the scratch buffer, which has room for a piece of each of them. A rank's own
/// contribution stays where it is if no reduction writes to it.
#[derive(Clone, Copy, Debug)]
struct Contributions {
    /// The buffer that contains this rank's contribution.
    own: Buffer,
    len: usize,
    piece: usize,
    /// True if this rank's own contribution is not copied to the scratch buffer.
    stays: bool,
}

/// Returns the number of elements of the scratch buffer of a rank that reduces.
pub(super) fn scratch(at: Place, len: usize, piece: usize) -> usize {
    (at.size() as usize - 1) * len.min(piece)
}

impl Contributions {
    fn new(at: Place, own: Buffer, len: usize, piece: usize) -> Self {
        // A rank whose contribution is a left operand at first is in no other reduction.
        let is_read_only = at.rank() + 1 < at.size()
            && match Fold::new(at).role() {
                Role::Passive { .. } => false,
                Role::Active { number, passive } => passive.is_some() || number.is_multiple_of(2),
            };
        // The contribution of the last rank would replace a contribution in the output.
        Self { own, len, piece, stays: is_read_only && own == Buffer::Input }
    }

    /// Returns this rank's contribution to a piece.
    fn own(&self, piece: u32) -> Span {
        Span::of(self.own, piece_of(self.len, self.piece, piece))
    }

    /// Returns the place of the contribution of a rank to a piece.
    fn place(&self, at: Place, piece: u32, rank: u32) -> Span {
        let own = self.own(piece);
        match rank {
            _ if rank + 1 == at.size() => Span::output(own.start..own.end()),
            _ if rank == at.rank() && self.stays => own,
            _ => Span::scratch(rank as usize * own.len..(rank as usize + 1) * own.len),
        }
    }

    /// Returns a step of the reduction of a piece: the steps fetch the contributions of the other ranks, and reduce
    /// them to the output.
    #[inline]
    fn combine(&self, at: Place, piece: u32, index: u32) -> Option<Step> {
        let place = |rank| self.place(at, piece, rank);
        match index.checked_sub(at.size()) {
            None if index == 0 => Some(copy(self.own(piece), place(at.rank()))),
            None => fetch_all(at, index - 1, |from| whole(from, piece, place(from))),
            Some(reduction) => {
                let (left, right) = Fold::new(at).reduction(reduction)?;
                Some(Step::Reduce { from: place(left), into: place(right) })
            }
        }
    }
}
