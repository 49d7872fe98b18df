//! Gathers.

use super::WINDOW;
use super::board::OnBoard;
use super::tree::{Child, Tree, blocks_on_the_way, wrapped};
use crate::schedule::{Blocks, Place, Span, Step, Steps};

/// An algorithm for a gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A binomial tree, in which each rank passes the blocks of its subtree on to its parent. All blocks have the same
    /// length. Cost: ⌈log₂ n⌉ rounds, and one more if the blocks of a child of the root are at both ends of the output;
    /// the root receives n − 1 blocks (Thakur et al. 2005, section 4.3, describes the reverse).
    Binomial,
    /// The root receives a message from each rank, with a limited number of receives posted at a time. Cost: n − 1
    /// rounds; the root receives the blocks of the other ranks. The blocks may have different lengths, which only the
    /// root knows.
    Linear,
    /// Each rank except the root publishes its block on the board in pieces, and the root fetches them. All blocks have
    /// the same length. Cost: p rounds for blocks of p pieces; each rank except the root publishes its block once.
    Board {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, root: u32, blocks: Blocks, len: usize, in_place: bool) -> Steps {
        assert!(root < at.size(), "the root {root} is not one of {} ranks", at.size());
        let is_in_place = in_place && at.rank() == root;
        match (self, at.rank() == root) {
            (Self::Board { piece }, _) => OnBoard::gather(at, root, len, piece, is_in_place).into(),
            (Self::Binomial, true) => Steps::new(binomial_root(at, len, is_in_place)),
            (Self::Binomial, false) => Steps::new(binomial(at, root, len)),
            (Self::Linear, true) => Steps::new(linear_root(at, blocks, len, is_in_place)),
            (Self::Linear, false) => {
                let send = Step::Send { to: root, round: 0, from: Span::input(0..len) };
                Steps::new([send, Step::WAIT].into_iter())
            }
        }
    }

    pub(crate) fn scratch(self, at: Place, root: u32, len: usize) -> usize {
        match self {
            Self::Linear | Self::Board { .. } => 0,
            Self::Binomial => blocks_on_the_way(at, root) * len,
        }
    }
}

/// Returns the step that copies this rank's block into the output; `None` if it is there already.
fn own_block(at: Place, blocks: &Blocks, len: usize, in_place: bool) -> Option<Step> {
    let into = Span::output(blocks.get(at.rank()));
    (!in_place).then_some(Step::Copy { from: Span::input(0..len), into })
}

fn binomial_root(at: Place, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let blocks = Blocks::Equal(len);
    let copy = own_block(at, &blocks, len, in_place);
    let receive = move |child: Child| {
        let from = at.up(child.rank);
        let blocks = blocks.clone();
        let runs = wrapped(from, child.ranks, at.size()).into_iter().filter(|ranks| !ranks.is_empty());
        runs.map(move |ranks| Step::Receive { from, round: 0, into: Span::output(blocks.run(ranks)) })
    };
    let tree = Tree::new(at.relative_to(at.rank()), 2);
    tree.ascending().flat_map(receive).chain(copy).chain([Step::WAIT])
}

fn binomial(at: Place, root: u32, len: usize) -> impl Iterator<Item = Step> + Send {
    let tree = Tree::new(at.relative_to(root), 2);
    let parent = tree.parent().expect("this rank is not the root");
    let to = Place::new(parent, at.size()).up(root);
    // The scratch buffer contains the blocks of the subtree, in the order of the ranks relative to the root. A leaf
    // sends its block from the input.
    let own = at.relative_to(root).rank();
    let receive = move |child: Child| {
        let start = (child.rank - own) as usize * len;
        let into = Span::scratch(start..start + child.ranks as usize * len);
        Step::Receive { from: Place::new(child.rank, at.size()).up(root), round: 0, into }
    };
    let is_leaf = tree.ranks() == 1;
    let copy = Step::Copy { from: Span::input(0..len), into: Span::scratch(0..len) };
    // The root's output has the order of ranks. So the blocks of a child of the root may belong to two parts of it, at
    // its end and at its start, and are then sent in two messages.
    let runs = match parent {
        0 => wrapped(at.rank(), tree.ranks(), at.size()).map(|ranks| ranks.len()),
        _ => [tree.ranks() as usize, 0],
    };
    let messages = [0..runs[0], runs[0]..runs[0] + runs[1]].into_iter().filter(|blocks| !blocks.is_empty());
    let sends = messages.map(move |blocks| {
        let elements = blocks.start * len..blocks.end * len;
        let from = if is_leaf { Span::input(elements) } else { Span::scratch(elements) };
        Step::Send { to, round: 0, from }
    });
    let own = (!is_leaf).then_some(copy);
    tree.ascending().map(receive).chain(own).chain([Step::WAIT]).chain(sends).chain([Step::WAIT])
}

fn linear_root(at: Place, blocks: Blocks, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let copy = own_block(at, &blocks, len, in_place);
    let receive = move |distance| {
        let from = at.up(distance);
        let into = Span::output(blocks.get(from));
        [Step::Wait { except: WINDOW - 1 }, Step::Receive { from, round: 0, into }]
    };
    copy.into_iter().chain((1..at.size()).flat_map(receive)).chain([Step::WAIT])
}
