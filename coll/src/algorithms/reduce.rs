//! Reductions to one rank.

use super::tree::Tree;
use crate::schedule::{Buffer, Place, Span, Step, Steps, source};

/// An algorithm for a reduction to one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A binomial tree, in which each rank combines the results of its children in the order of ranks. If the reduction
    /// commutes, the tree's root is the root of the operation. Otherwise it is rank 0, which sends the result to the
    /// root. Cost: ⌈log₂ n⌉ rounds, and one more if the result is sent on; each rank sends the elements once.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    Binomial,
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, root: u32, len: usize, commutes: bool, in_place: bool) -> Steps {
        assert!(root < at.size(), "the root {root} is not one of {} ranks", at.size());
        let source = source(in_place && at.rank() == root);
        let Self::Binomial = self;
        match commutes {
            true => Box::new(binomial(at, root, len, source, at.rank() == root)),
            false => Box::new(in_order(at, root, len, source)),
        }
    }

    pub(crate) fn scratch(self, len: usize) -> usize {
        let Self::Binomial = self;
        2 * len
    }
}

/// Reduces along a tree with the root `root`. At the root of the tree, the result is in the output if `ends_in_output`
/// is true, and otherwise in the first elements of the scratch buffer. The other ranks send their result to their
/// parent.
///
/// The result of a child is the right operand, because the ranks of the child's subtree are higher. So the combined
/// result replaces the child's result. The results of the children are received in two places in turn: after a
/// reduction its left operand is not needed any more, so the next child's result is received there. The first place is
/// chosen such that the result of the last reduction is in `places[0]`. A rank without children has no reduction: its
/// result is its own data, which the root of the tree copies to `places[0]`.
fn binomial(
    at: Place,
    root: u32,
    len: usize,
    own: Buffer,
    ends_in_output: bool,
) -> impl Iterator<Item = Step> + Send {
    let tree = Tree::new(at.relative_to(root), 2);
    let children = tree.ascending().count();
    let first = if ends_in_output { Span::output(0..len) } else { Span::scratch(0..len) };
    let places = [first, Span::scratch(len..2 * len)];
    let own = Span { buffer: own, start: 0, len };
    // The place of the result after the results of `count` children were combined.
    let after = move |count: usize| if count == 0 { own } else { places[(children - count) % 2] };
    // In place, the data of this rank may lie where the result of the first child would be received.
    let moved = children % 2 == 1 && own == places[0];
    let start = if moved { places[1] } else { own };
    let copy = moved.then_some(Step::Copy { from: own, into: start });
    let combine = move |(count, child): (usize, super::tree::Child)| {
        let (left, right) = (if count == 0 { start } else { after(count) }, after(count + 1));
        let from = Place::new(child.rank, at.size()).up(root);
        [Step::Receive { from, round: 0, into: right }, Step::WAIT, Step::Reduce { from: left, into: right }]
    };
    let result = after(children);
    let send = tree.parent().map(|parent| {
        let to = Place::new(parent, at.size()).up(root);
        [Step::Send { to, round: 0, from: result }, Step::WAIT]
    });
    let alone = (tree.parent().is_none() && children == 0 && own != places[0])
        .then_some(Step::Copy { from: own, into: places[0] });
    let combines = tree.ascending().enumerate().flat_map(combine);
    copy.into_iter().chain(combines).chain(alone).chain(send.into_iter().flatten())
}

/// Reduces along a tree with the root 0, and sends the result to `root`.
fn in_order(at: Place, root: u32, len: usize, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let is_root = at.rank() == root;
    let reduces = binomial(at, 0, len, own, is_root && root == 0);
    let send = Step::Send { to: root, round: 1, from: Span::scratch(0..len) };
    let receive = Step::Receive { from: 0, round: 1, into: Span::output(0..len) };
    let last = match (at.rank() == 0, is_root) {
        (true, false) => Some(send),
        (false, true) => Some(receive),
        _ => None,
    };
    reduces.chain(last).chain([Step::WAIT])
}
