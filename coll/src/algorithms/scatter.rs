//! Scatters.

use super::WINDOW;
use super::tree::{Child, Tree, blocks_on_the_way, wrapped};
use crate::schedule::{Blocks, Place, Span, Step, Steps};

/// An algorithm for a scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A binomial tree, in which each rank receives the blocks of its subtree from its parent. All blocks have the same
    /// length. Cost: ⌈log₂ n⌉ rounds, and one more if the blocks of a child of the root are at both ends of the input;
    /// the root sends n − 1 blocks (Thakur et al. 2005, section 4.2: the first phase of the broadcast).
    Binomial,
    /// The root sends a message to each rank, with a limited number of sends under way. Cost: n − 1 rounds; the root
    /// sends the blocks of the other ranks. The blocks may have different lengths, which only the root knows.
    Linear,
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, root: u32, blocks: Blocks, len: usize, in_place: bool) -> Steps {
        assert!(root < at.size(), "the root {root} is not one of {} ranks", at.size());
        let is_in_place = in_place && at.rank() == root;
        match (self, at.rank() == root) {
            (Self::Binomial, true) => Steps::new(binomial_root(at, len, is_in_place)),
            (Self::Binomial, false) => Steps::new(binomial(at, root, len)),
            (Self::Linear, true) => Steps::new(linear_root(at, blocks, len, is_in_place)),
            (Self::Linear, false) => {
                let receive = Step::Receive { from: root, round: 0, into: Span::output(0..len) };
                Steps::new([receive, Step::WAIT].into_iter())
            }
        }
    }

    pub(crate) fn scratch(self, at: Place, root: u32, len: usize) -> usize {
        match self {
            Self::Linear => 0,
            Self::Binomial => blocks_on_the_way(at, root) * len,
        }
    }
}

/// Returns the step that copies this rank's block out of the input; `None` if the block stays there.
fn own_block(at: Place, blocks: &Blocks, len: usize, in_place: bool) -> Option<Step> {
    let from = Span::input(blocks.get(at.rank()));
    (!in_place).then_some(Step::Copy { from, into: Span::output(0..len) })
}

fn binomial_root(at: Place, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let blocks = Blocks::Equal(len);
    let copy = own_block(at, &blocks, len, in_place);
    let send = move |child: Child| {
        let to = at.up(child.rank);
        let blocks = blocks.clone();
        wrapped(to, child.ranks, at.size()).map(move |ranks| Step::Send {
            to,
            round: 0,
            from: Span::input(blocks.run(ranks)),
        })
    };
    let tree = Tree::new(at.relative_to(at.rank()), 2);
    tree.largest_first().flat_map(send).chain(copy).chain([Step::WAIT])
}

fn binomial(at: Place, root: u32, len: usize) -> impl Iterator<Item = Step> + Send {
    let tree = Tree::new(at.relative_to(root), 2);
    let parent = tree.parent().expect("this rank is not the root");
    let from = Place::new(parent, at.size()).up(root);
    let is_leaf = tree.ranks() == 1;
    // The root's input has the order of ranks. So the blocks of a child of the root may come from two parts of it, at
    // its end and at its start, and then arrive in two messages. The scratch buffer contains the blocks of the subtree
    // in the order of the ranks relative to the root.
    let runs = match parent {
        0 => wrapped(at.rank(), tree.ranks(), at.size()).map(|ranks| ranks.len()),
        _ => [tree.ranks() as usize, 0],
    };
    let receives = [0..runs[0] * len, runs[0] * len..(runs[0] + runs[1]) * len].map(move |elements| {
        let into = if is_leaf { Span::output(elements) } else { Span::scratch(elements) };
        Step::Receive { from, round: 0, into }
    });
    let own = at.relative_to(root).rank();
    let send = move |child: Child| {
        let start = (child.rank - own) as usize * len;
        let from = Span::scratch(start..start + child.ranks as usize * len);
        Step::Send { to: Place::new(child.rank, at.size()).up(root), round: 0, from }
    };
    let copy = Step::Copy { from: Span::scratch(0..len), into: Span::output(0..len) };
    let own = (!is_leaf).then_some(copy);
    receives
        .into_iter()
        .chain([Step::WAIT])
        .chain(tree.largest_first().map(send))
        .chain(own)
        .chain([Step::WAIT])
}

fn linear_root(at: Place, blocks: Blocks, len: usize, in_place: bool) -> impl Iterator<Item = Step> + Send {
    let copy = own_block(at, &blocks, len, in_place);
    let send = move |distance| {
        let to = at.up(distance);
        let from = Span::input(blocks.get(to));
        [Step::Wait { except: WINDOW - 1 }, Step::Send { to, round: 0, from }]
    };
    copy.into_iter().chain((1..at.size()).flat_map(send)).chain([Step::WAIT])
}
