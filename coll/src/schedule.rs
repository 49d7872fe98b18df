//! Schedules: the steps that a rank takes in a collective operation.
//!
//! A schedule is a pure function of a [`Plan`] and a [`Place`]. The plans of all ranks of an operation must agree, so
//! that each message that a rank receives is sent by its partner. [`check`](crate::check) verifies that.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::algorithms::board::OnBoard;
use crate::algorithms::exchange::{self, Transfer};
use crate::algorithms::hosts::TwoLevels;
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, exscan, gather, reduce, reduce_scatter, scan, scatter,
};

/// The number of a rank in a group, and the size of the group. The ranks of a group are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    rank: u32,
    size: u32,
}

impl Place {
    /// Returns the place of `rank` among `size` ranks.
    ///
    /// # Panics
    /// If `rank` is not below `size`.
    #[must_use]
    pub fn new(rank: u32, size: u32) -> Self {
        assert!(rank < size, "there is no rank {rank} of {size} ranks");
        Self { rank, size }
    }

    /// Returns the rank.
    #[must_use]
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(self) -> u32 {
        self.size
    }

    /// Returns the logarithm of the number of ranks to base 2, rounded up.
    pub(crate) fn log2(self) -> u32 {
        u32::BITS - (self.size - 1).leading_zeros()
    }

    /// Returns the rank that is `distance` higher than this rank. Rank 0 follows the last rank.
    #[inline]
    pub(crate) fn up(self, distance: u32) -> u32 {
        let (sum, size) = (u64::from(self.rank) + u64::from(distance), u64::from(self.size));
        // A division takes as long as a step on the board.
        (if sum < size { sum } else { sum % size }) as u32
    }

    /// Returns the rank that is `distance` lower than this rank. The last rank precedes rank 0.
    pub(crate) fn down(self, distance: u32) -> u32 {
        self.up(self.size - distance % self.size)
    }

    /// Returns the place that this rank has if the ranks are counted from `root`, so that `root` is rank 0.
    pub(crate) fn relative_to(self, root: u32) -> Self {
        Self { rank: self.down(root), ..self }
    }
}

/// A buffer of an operation at one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The data that this rank contributes. A schedule does not write to it. A rank whose operation is in place has no
    /// input, because its data is in the output. The root of a scatter in place has an input, and no output.
    Input,
    /// The result. For a broadcast it is the only buffer, and at the root it contains the data from the start.
    Output,
    /// Memory for intermediate data, whose length is [`Plan::scratch`]. It has no defined content at the start.
    Scratch,
}

/// A part of a buffer. All numbers count elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The buffer.
    pub buffer: Buffer,
    /// The index of the first element.
    pub start: usize,
    /// The number of elements.
    pub len: usize,
}

impl Span {
    pub(crate) fn of(buffer: Buffer, elements: Range<usize>) -> Self {
        Self { buffer, start: elements.start, len: elements.len() }
    }

    pub(crate) fn input(elements: Range<usize>) -> Self {
        Self::of(Buffer::Input, elements)
    }

    pub(crate) fn output(elements: Range<usize>) -> Self {
        Self::of(Buffer::Output, elements)
    }

    pub(crate) fn scratch(elements: Range<usize>) -> Self {
        Self::of(Buffer::Scratch, elements)
    }

    /// No elements.
    pub(crate) const NOTHING: Self = Self { buffer: Buffer::Scratch, start: 0, len: 0 };

    /// Returns the index behind the last element.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.len
    }

    /// Returns true if the spans have an element in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.end() && other.start < self.end()
    }
}

/// A step of a schedule. A rank takes its steps in order. [`Send`](Self::Send) and [`Receive`](Self::Receive) start a
/// message and do not wait for its end. Until a [`Wait`](Self::Wait) has waited for a message, no step writes to the
/// span of a sent message, and no step reads or writes the span of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts to send a span.
    Send {
        /// The receiver.
        to: u32,
        /// The number that distinguishes this message from the other messages of the operation to this receiver. If
        /// several messages have the same number, they are received in the order in which they were sent.
        round: u32,
        /// The data.
        from: Span,
    },
    /// Starts to receive a message of the span's length.
    Receive {
        /// The sender.
        from: u32,
        /// The round of the sender's step.
        round: u32,
        /// The place for the data.
        into: Span,
    },
    /// Combines two spans of the same length: each element `b` of `into` becomes `a ∘ b`, where `a` is the element of
    /// `from`. So the operand from lower ranks is in `from`, unless the reduction commutes.
    Reduce {
        /// The left operand.
        from: Span,
        /// The right operand, and then the result.
        into: Span,
    },
    /// Copies a span. The spans have the same length and do not overlap.
    Copy {
        /// The source.
        from: Span,
        /// The destination.
        into: Span,
    },
    /// Publishes a span on the communicator's [board](samite_fabric::shm::board), where all ranks of the same host can
    /// read it. The steps of a rank name the pieces in ascending order, and a rank publishes each piece once at most.
    /// The step waits while the room for the data is in use: until all these ranks have finished an earlier piece. A
    /// rank has finished a piece when it takes a step of a later piece.
    Publish {
        /// The number of the piece.
        piece: u32,
        /// The data.
        from: Span,
    },
    /// Copies data that another rank publishes, after a wait for the publication.
    Fetch {
        /// The rank that publishes.
        from: u32,
        /// The number of the piece.
        piece: u32,
        /// The number of published elements.
        whole: usize,
        /// The index of the first fetched element among them.
        start: usize,
        /// The place for the data.
        into: Span,
    },
    /// Waits until all messages that this rank has started in this operation have ended, except the most recent ones.
    Wait {
        /// The number of the most recent messages that may be under way afterwards.
        except: u32,
    },
}

impl Step {
    /// Waits for all messages.
    pub(crate) const WAIT: Self = Self::Wait { except: 0 };

    /// Does nothing.
    pub(crate) const NONE: Self = Self::Copy { from: Span::NOTHING, into: Span::NOTHING };

    /// Returns true if the step is taken on the board.
    #[inline]
    pub(crate) fn is_on_board(&self) -> bool {
        matches!(self, Self::Publish { .. } | Self::Fetch { .. })
    }

    /// Returns true if the step processes no element. Both partners of a message see the same length, so such a step
    /// can be left out. Only in a barrier is an empty message itself the information.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Send { from: span, .. }
            | Self::Receive { into: span, .. }
            | Self::Publish { from: span, .. }
            | Self::Fetch { into: span, .. } => span.len == 0,
            Self::Reduce { into, .. } | Self::Copy { into, .. } => into.len == 0,
            Self::Wait { .. } => false,
        }
    }
}

/// The steps of one rank. The iterator computes each step when it is taken, and holds no list of steps.
pub struct Steps(Source);

enum Source {
    /// Needs no allocation.
    OnBoard(OnBoard),
    Boxed {
        steps: Box<dyn Iterator<Item = Step> + Send>,
        /// True if steps without elements are left out.
        skips_empty: bool,
    },
}

impl Steps {
    /// Returns the steps that process elements.
    pub(crate) fn new(steps: impl Iterator<Item = Step> + Send + 'static) -> Self {
        Self(Source::Boxed { steps: Box::new(steps), skips_empty: true })
    }

    /// Returns the same steps, with the steps that process no element.
    pub(crate) fn with_empty(self) -> Self {
        Self(match self.0 {
            Source::OnBoard(steps) => Source::OnBoard(steps.with_empty()),
            Source::Boxed { steps, .. } => Source::Boxed { steps, skips_empty: false },
        })
    }

    /// Returns the steps if each of them is at the board or concerns the buffers of this rank alone.
    #[inline(always)]
    pub(crate) fn on_board(&mut self) -> Option<&mut OnBoard> {
        match &mut self.0 {
            Source::OnBoard(steps) => Some(steps),
            Source::Boxed { .. } => None,
        }
    }
}

impl From<OnBoard> for Steps {
    #[inline]
    fn from(steps: OnBoard) -> Self {
        Self(Source::OnBoard(steps))
    }
}

impl Iterator for Steps {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        match &mut self.0 {
            Source::OnBoard(steps) => steps.next(),
            Source::Boxed { steps, skips_empty } => {
                let skips_empty = *skips_empty;
                steps.find(|step| !(skips_empty && step.is_empty()))
            }
        }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

/// The division of a buffer into a block for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks of this many elements, one behind the other.
    Equal(usize),
    /// The elements `0..total` in `parts` parts, whose lengths differ by one element at most.
    Parts {
        /// The number of elements.
        total: usize,
        /// The number of parts.
        parts: u32,
    },
    /// Any division: the elements of each block.
    Listed(Arc<[Range<usize>]>),
}

impl Blocks {
    /// Returns the elements of block `number`.
    #[must_use]
    pub fn get(&self, number: u32) -> Range<usize> {
        match self {
            Self::Listed(blocks) => blocks[number as usize].clone(),
            _ => self.run(number..number + 1),
        }
    }

    /// Returns the range of elements of consecutive blocks. The blocks must lie one behind the other in the buffer.
    pub(crate) fn run(&self, numbers: Range<u32>) -> Range<usize> {
        if numbers.is_empty() {
            return 0..0;
        }
        let start_of = |number: u32| match self {
            Self::Equal(len) => *len * number as usize,
            // The product may exceed 64 bits, and the quotient is at most `total`.
            Self::Parts { total, parts } => {
                (*total as u128 * u128::from(number) / u128::from(*parts)) as usize
            }
            Self::Listed(blocks) => match number as usize {
                number if number < blocks.len() => blocks[number].start,
                _ => blocks[blocks.len() - 1].end,
            },
        };
        start_of(numbers.start)..start_of(numbers.end)
    }

    /// Returns the length that a buffer needs to contain the first `count` blocks.
    pub(crate) fn end(&self, count: u32) -> usize {
        match self {
            Self::Listed(blocks) => blocks[..count as usize].iter().map(|block| block.end).max().unwrap_or(0),
            _ => self.run(0..count).end,
        }
    }

    /// Returns the length of the longest of `count` blocks.
    pub(crate) fn longest(&self, count: u32) -> usize {
        match self {
            Self::Equal(len) => *len,
            Self::Parts { total, parts } => total.div_ceil(*parts as usize),
            Self::Listed(blocks) => blocks[..count as usize].iter().map(Range::len).max().unwrap_or(0),
        }
    }
}

/// A collective operation, the algorithm that carries it out, and the arguments on which its schedule depends. Lengths
/// count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No rank continues before all ranks have called it (MPI 4.1, section 6.3).
    Barrier(barrier::Algorithm),
    /// All ranks get the root's elements (section 6.4).
    Bcast {
        /// The algorithm.
        algorithm: bcast::Algorithm,
        /// The root.
        root: u32,
        /// The number of elements.
        len: usize,
    },
    /// The root gets a block from each rank (section 6.5).
    Gather {
        /// The algorithm.
        algorithm: gather::Algorithm,
        /// The root.
        root: u32,
        /// The blocks of the root's output. Other ranks ignore them.
        blocks: Blocks,
        /// The length of this rank's block.
        len: usize,
        /// True if the root's own block is already in its place in the output. Other ranks ignore it.
        in_place: bool,
    },
    /// Each rank gets its block of the root's elements (section 6.6).
    Scatter {
        /// The algorithm.
        algorithm: scatter::Algorithm,
        /// The root.
        root: u32,
        /// The blocks of the root's input. Other ranks ignore them.
        blocks: Blocks,
        /// The length of this rank's block.
        len: usize,
        /// True if the root's own block stays in the input, and the root has no output. Other ranks ignore it.
        in_place: bool,
    },
    /// Each rank gets a block from each rank (section 6.7).
    Allgather {
        /// The algorithm.
        algorithm: allgather::Algorithm,
        /// The blocks of the output.
        blocks: Blocks,
        /// True if this rank's block is already in its place in the output.
        in_place: bool,
    },
    /// Each rank sends a block to each rank, and gets a block from each rank (section 6.8).
    Alltoall {
        /// The algorithm.
        algorithm: alltoall::Algorithm,
        /// The blocks of the input: block i is for rank i. In place, these are blocks of the output.
        from: Blocks,
        /// The blocks of the output: block i is from rank i.
        into: Blocks,
        /// True if the data is in the output. Then `from` and `into` must be equal.
        in_place: bool,
    },
    /// The root gets the reduction of the elements of all ranks (section 6.9.1).
    Reduce {
        /// The algorithm.
        algorithm: reduce::Algorithm,
        /// The root.
        root: u32,
        /// The number of elements.
        len: usize,
        /// True if the reduction commutes.
        commutes: bool,
        /// True if the root's elements are in its output. Other ranks ignore it.
        in_place: bool,
    },
    /// All ranks get the reduction of the elements of all ranks (section 6.9.6).
    Allreduce {
        /// The algorithm.
        algorithm: allreduce::Algorithm,
        /// The number of elements.
        len: usize,
        /// True if the reduction commutes.
        commutes: bool,
        /// True if the elements are in the output.
        in_place: bool,
    },
    /// Each rank gets its block of the reduction of the elements of all ranks (section 6.10). The block is at the start
    /// of the output.
    ReduceScatter {
        /// The algorithm.
        algorithm: reduce_scatter::Algorithm,
        /// The blocks into which the elements are divided. They lie one behind the other.
        blocks: Blocks,
        /// True if the reduction commutes.
        commutes: bool,
        /// True if the elements are in the output.
        in_place: bool,
    },
    /// Each rank gets the reduction of the elements of the ranks up to and including itself (section 6.11.1).
    Scan {
        /// The number of elements.
        len: usize,
        /// True if the elements are in the output.
        in_place: bool,
    },
    /// Each rank gets the reduction of the elements of the ranks before it (section 6.11.2). Rank 0 gets nothing.
    Exscan {
        /// The number of elements.
        len: usize,
        /// True if the elements are in the output.
        in_place: bool,
    },
    /// Each rank sends and receives the messages that it lists: the exchanges of neighbours (section 8.6), and those
    /// between the groups of an intercommunicator.
    Exchange {
        /// The sent messages, which are in the input and may overlap.
        sends: Arc<[Transfer]>,
        /// The received messages, which are in the output and do not overlap.
        receives: Arc<[Transfer]>,
    },
    /// Operations one after the other, each among some of the ranks: those between the groups of an intercommunicator.
    /// Each rank lists the operations in which it takes part.
    Stages(Arc<[Stage]>),
    /// An operation on two levels: within each host, and between the hosts.
    TwoLevels(TwoLevels),
}

/// Some of the ranks of an operation. A part of the operation counts them from 0, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// Consecutive ranks.
    Consecutive(Range<u32>),
    /// Any ranks.
    Listed(Arc<[u32]>),
}

impl Ranks {
    /// Returns the number of ranks.
    fn count(&self) -> u32 {
        match self {
            Self::Consecutive(ranks) => ranks.len() as u32,
            Self::Listed(ranks) => ranks.len() as u32,
        }
    }

    /// Returns the rank with a number.
    fn get(&self, number: u32) -> u32 {
        match self {
            Self::Consecutive(ranks) => ranks.start + number,
            Self::Listed(ranks) => ranks[number as usize],
        }
    }

    /// Returns the place of a rank among these ranks.
    fn place(&self, rank: u32) -> Place {
        let number = match self {
            Self::Consecutive(ranks) => rank - ranks.start,
            Self::Listed(ranks) => {
                let number = ranks.iter().position(|&listed| listed == rank);
                number.expect("a rank takes part in its stages") as u32
            }
        };
        Place::new(number, self.count())
    }
}

/// An operation that is a part of another operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The operation among `ranks`.
    pub plan: Plan,
    /// The ranks of the whole operation that take part. This rank is one of them.
    pub ranks: Ranks,
    /// The place of each buffer of `plan`, in the order of [`Buffer`]: a buffer of the whole operation, and the index
    /// of the first element.
    pub buffers: [(Buffer, usize); 3],
    /// The number of pieces that the stages before publish on the board.
    pub pieces_before: u32,
    /// True if also the steps without elements are taken, as in a barrier.
    pub keeps_empty: bool,
}

impl Stage {
    /// The buffers of a stage that uses the buffers of the whole operation.
    pub(crate) const WHOLE: [(Buffer, usize); 3] =
        [(Buffer::Input, 0), (Buffer::Output, 0), (Buffer::Scratch, 0)];

    /// Returns a stage that publishes nothing before, and takes no steps without elements.
    pub(crate) fn new(plan: Plan, ranks: Ranks, buffers: [(Buffer, usize); 3]) -> Self {
        Self { plan, ranks, buffers, pieces_before: 0, keeps_empty: false }
    }

    /// Returns the steps in terms of the ranks and the buffers of the whole operation.
    ///
    /// The messages of two stages may have the same round: a rank begins a stage after it has received all messages of
    /// the stages before. Two messages from one rank to another that have the same round are received in their order.
    pub(crate) fn steps(&self, at: Place) -> Steps {
        let (ranks, buffers, before) = (self.ranks.clone(), self.buffers, self.pieces_before);
        let whole = move |span: Span| {
            let (buffer, start) = buffers[span.buffer as usize];
            Span { buffer, start: start + span.start, len: span.len }
        };
        let steps = self.plan.steps(self.ranks.place(at.rank()));
        let steps = if self.keeps_empty { steps.with_empty() } else { steps };
        let steps = steps.map(move |step| match step {
            Step::Send { to, round, from } => Step::Send { to: ranks.get(to), round, from: whole(from) },
            Step::Receive { from, round, into } => {
                Step::Receive { from: ranks.get(from), round, into: whole(into) }
            }
            Step::Reduce { from, into } => Step::Reduce { from: whole(from), into: whole(into) },
            Step::Copy { from, into } => Step::Copy { from: whole(from), into: whole(into) },
            Step::Publish { piece, from } => Step::Publish { piece: before + piece, from: whole(from) },
            Step::Fetch { from, piece, whole: all, start, into } => Step::Fetch {
                from: ranks.get(from),
                piece: before + piece,
                whole: all,
                start,
                into: whole(into),
            },
            wait @ Step::Wait { .. } => wait,
        });
        Steps::new(steps).with_empty()
    }

    /// Returns the number of elements of a buffer of the whole operation that the stage needs.
    fn end(&self, at: Place, whole: Buffer) -> usize {
        let at = self.ranks.place(at.rank());
        let lens = [self.plan.input(at), self.plan.output(at), self.plan.scratch(at)];
        let ends = self.buffers.iter().zip(lens).filter(|((buffer, _), _)| *buffer == whole);
        ends.map(|((_, start), len)| if len == 0 { 0 } else { start + len }).max().unwrap_or(0)
    }
}

/// Returns the number of elements of a buffer that the stages need.
pub(crate) fn end_of(stages: &[Stage], at: Place, buffer: Buffer) -> usize {
    stages.iter().map(|stage| stage.end(at, buffer)).max().unwrap_or(0)
}

impl Plan {
    /// Returns the steps of the rank at a place.
    ///
    /// # Panics
    /// If the root is not a rank, or if the algorithm cannot carry out the operation: because the reduction does not
    /// commute, because the blocks have different lengths, because the number of ranks is not a power of two, or
    /// because a number of the algorithm (`k`, `piece`) is too small. The documentation of each algorithm states its
    /// conditions.
    #[must_use]
    pub fn steps(&self, at: Place) -> Steps {
        match self {
            // The messages of a barrier are empty.
            Self::Barrier(algorithm) => algorithm.steps(at).with_empty(),
            Self::Bcast { algorithm, root, len } => algorithm.steps(at, *root, *len),
            Self::Gather { algorithm, root, blocks, len, in_place } => {
                algorithm.steps(at, *root, blocks.clone(), *len, *in_place)
            }
            Self::Scatter { algorithm, root, blocks, len, in_place } => {
                algorithm.steps(at, *root, blocks.clone(), *len, *in_place)
            }
            Self::Allgather { algorithm, blocks, in_place } => algorithm.steps(at, blocks.clone(), *in_place),
            Self::Alltoall { algorithm, from, into, in_place } => {
                algorithm.steps(at, from.clone(), into.clone(), *in_place)
            }
            Self::Reduce { algorithm, root, len, commutes, in_place } => {
                algorithm.steps(at, *root, *len, *commutes, *in_place)
            }
            Self::Allreduce { algorithm, len, commutes, in_place } => {
                algorithm.steps(at, *len, *commutes, *in_place)
            }
            Self::ReduceScatter { algorithm, blocks, commutes, in_place } => {
                algorithm.steps(at, blocks.clone(), *commutes, *in_place)
            }
            Self::Scan { len, in_place } => scan::steps(at, *len, *in_place),
            Self::Exscan { len, in_place } => exscan::steps(at, *len, *in_place),
            Self::Exchange { sends, receives } => exchange::steps(Arc::clone(sends), Arc::clone(receives)),
            Self::Stages(stages) => {
                let stages = Arc::clone(stages);
                Steps::new((0..stages.len()).flat_map(move |index| stages[index].steps(at))).with_empty()
            }
            Self::TwoLevels(levels) => levels.steps(at),
        }
    }

    /// Returns the number of elements of [`Buffer::Input`] at a place.
    #[must_use]
    pub fn input(&self, at: Place) -> usize {
        let is_root = |root: &u32| *root == at.rank();
        match self {
            Self::Barrier(_) | Self::Bcast { .. } => 0,
            Self::Gather { root, in_place: true, .. } if is_root(root) => 0,
            Self::Gather { len, .. } => *len,
            Self::Scatter { root, blocks, .. } if is_root(root) => blocks.end(at.size()),
            Self::Scatter { .. } => 0,
            Self::Reduce { root, in_place: true, .. } if is_root(root) => 0,
            Self::Reduce { len, .. } => *len,
            Self::Allgather { in_place: true, .. }
            | Self::Alltoall { in_place: true, .. }
            | Self::Allreduce { in_place: true, .. }
            | Self::ReduceScatter { in_place: true, .. }
            | Self::Scan { in_place: true, .. }
            | Self::Exscan { in_place: true, .. } => 0,
            Self::Allgather { blocks, .. } => blocks.get(at.rank()).len(),
            Self::Alltoall { from, .. } => from.end(at.size()),
            Self::ReduceScatter { blocks, .. } => blocks.end(at.size()),
            Self::Allreduce { len, .. } | Self::Scan { len, .. } | Self::Exscan { len, .. } => *len,
            Self::Exchange { sends, .. } => exchange::end(sends),
            Self::Stages(stages) => end_of(stages, at, Buffer::Input),
            Self::TwoLevels(levels) => levels.operation.input(at),
        }
    }

    /// Returns the number of elements of [`Buffer::Output`] at a place.
    #[must_use]
    pub fn output(&self, at: Place) -> usize {
        let is_root = |root: &u32| *root == at.rank();
        match self {
            Self::Barrier(_) => 0,
            Self::Gather { root, blocks, .. } if is_root(root) => blocks.end(at.size()),
            Self::Scatter { root, in_place: true, .. } if is_root(root) => 0,
            Self::Scatter { len, .. } => *len,
            Self::Reduce { root, len, .. } if is_root(root) => *len,
            Self::Gather { .. } | Self::Reduce { .. } => 0,
            Self::Allgather { blocks, .. } | Self::Alltoall { into: blocks, .. } => blocks.end(at.size()),
            Self::ReduceScatter { blocks, in_place: true, .. } => blocks.end(at.size()),
            Self::ReduceScatter { blocks, .. } => blocks.get(at.rank()).len(),
            Self::Bcast { len, .. }
            | Self::Allreduce { len, .. }
            | Self::Scan { len, .. }
            | Self::Exscan { len, .. } => *len,
            Self::Exchange { receives, .. } => exchange::end(receives),
            Self::Stages(stages) => end_of(stages, at, Buffer::Output),
            Self::TwoLevels(levels) => levels.operation.output(at),
        }
    }

    /// Returns the number of elements of [`Buffer::Scratch`] at a place.
    #[must_use]
    pub fn scratch(&self, at: Place) -> usize {
        match self {
            Self::Barrier(_) | Self::Bcast { .. } | Self::Exchange { .. } => 0,
            Self::Gather { algorithm, root, len, .. } => algorithm.scratch(at, *root, *len),
            Self::Scatter { algorithm, root, len, .. } => algorithm.scratch(at, *root, *len),
            Self::Allgather { algorithm, blocks, .. } => algorithm.scratch(at, blocks),
            Self::Alltoall { algorithm, into, in_place, .. } => algorithm.scratch(at, into, *in_place),
            Self::Reduce { algorithm, root, len, .. } => algorithm.scratch(at, *root, *len),
            Self::Allreduce { algorithm, len, .. } => algorithm.scratch(at, *len),
            Self::ReduceScatter { algorithm, blocks, commutes, .. } => {
                algorithm.scratch(at, blocks, *commutes)
            }
            Self::Scan { len, .. } => *len,
            Self::Exscan { len, .. } => 2 * *len,
            Self::Stages(stages) => end_of(stages, at, Buffer::Scratch),
            Self::TwoLevels(levels) => levels.scratch(at),
        }
    }

    /// Returns true if the rank at a place uses a board.
    #[must_use]
    #[inline]
    pub fn uses_board(&self, at: Place) -> bool {
        match self {
            Self::TwoLevels(levels) => levels.uses_board(at),
            _ => self.is_on_board(),
        }
    }

    /// Returns true if the ranks exchange all data on one board.
    #[must_use]
    #[inline]
    pub fn is_on_board(&self) -> bool {
        match self {
            Self::Barrier(algorithm) => *algorithm == barrier::Algorithm::Board,
            Self::Bcast { algorithm, .. } => matches!(algorithm, bcast::Algorithm::Board { .. }),
            Self::Gather { algorithm, .. } => matches!(algorithm, gather::Algorithm::Board { .. }),
            Self::Reduce { algorithm, .. } => matches!(algorithm, reduce::Algorithm::Board { .. }),
            Self::Allreduce { algorithm, .. } => matches!(algorithm, allreduce::Algorithm::Board { .. }),
            Self::Allgather { algorithm, .. } => matches!(algorithm, allgather::Algorithm::Board { .. }),
            Self::Alltoall { algorithm, .. } => matches!(algorithm, alltoall::Algorithm::Board { .. }),
            _ => false,
        }
    }

    /// Returns the operation that an operation on two levels carries out, and every other operation itself.
    #[must_use]
    pub fn operation(&self) -> &Self {
        match self {
            Self::TwoLevels(levels) => &levels.operation,
            _ => self,
        }
    }

    /// Returns true if each rank needs data of all other ranks. Then no rank can finish the operation before all ranks
    /// have begun it.
    #[must_use]
    pub fn synchronizes(&self) -> bool {
        match self {
            Self::Barrier(_) => true,
            Self::Allreduce { len, .. } => *len > 0,
            Self::Allgather { blocks: Blocks::Equal(len), .. }
            | Self::Alltoall { into: Blocks::Equal(len), .. } => *len > 0,
            Self::TwoLevels(levels) => levels.operation.synchronizes(),
            _ => false,
        }
    }

    /// Returns true if the operation has no reduction, or one that commutes. Scans keep the order of ranks for every
    /// reduction, so for them the function returns false.
    #[must_use]
    pub fn commutes(&self) -> bool {
        match self {
            Self::Reduce { commutes, .. }
            | Self::Allreduce { commutes, .. }
            | Self::ReduceScatter { commutes, .. } => *commutes,
            Self::Scan { .. } | Self::Exscan { .. } => false,
            Self::Stages(stages) => stages.iter().all(|stage| stage.plan.commutes()),
            Self::TwoLevels(levels) => levels.operation.commutes(),
            _ => true,
        }
    }
}

/// Returns the number of pieces of `len` elements.
pub(crate) fn pieces(len: usize, piece: usize) -> u32 {
    u32::try_from(len.div_ceil(piece)).expect("the length is limited")
}

/// Returns the elements of piece `number` of `len` elements.
pub(crate) fn piece_of(len: usize, piece: usize, number: u32) -> Range<usize> {
    let start = number as usize * piece;
    start.min(len)..(start + piece).min(len)
}

/// Returns the buffer that contains this rank's data at the start.
pub(crate) fn source(in_place: bool) -> Buffer {
    if in_place { Buffer::Output } else { Buffer::Input }
}
