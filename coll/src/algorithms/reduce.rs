//! Reductions to one rank.

use super::board::{self, OnBoard};
use super::fold::{Fold, Role};
use super::halving::{Base, FOLD, Halving, Places};
use super::tree::Tree;
use crate::schedule::{Buffer, Place, Span, Step, Steps, source};

/// An algorithm for a reduction to one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A binomial tree, in which each rank combines the results of its children in the order of ranks. If the reduction
    /// commutes, the tree's root is the root of the operation. Otherwise it is rank 0, which sends the result to the
    /// root; and if the number of ranks is not a power of two, some ranks first give their elements to their
    /// neighbours, and only the other ranks form the tree. Cost: ⌈log₂ n⌉ rounds, and one more if the result is sent
    /// on; each rank sends the elements once.
    ///
    /// Source: Thakur et al. 2005, section 4.5.
    Binomial,
    /// A reduce-scatter, in whose round k each rank exchanges half of the elements that it still reduces with the rank
    /// whose number differs in bit k, and then a gather of the parts along a binomial tree, from the last of these
    /// partners to the first. Cost: 2⌊log₂ n⌋ rounds; the root receives 2(n − 1)/n of the elements, and a rank sends
    /// 3/2 − 1/n of them at most. If n is not a power of two, there is one more round at the start, in which some ranks
    /// send all their elements and take no further part; the root always takes part, and may receive all elements of
    /// another rank. The rest is as for the largest power of two.
    ///
    /// Source: Rabenseifner: *Optimization of Collective Reduction Operations*. ICCS 2004; Thakur et al. 2005, section
    /// 4.5.
    Rabenseifner,
    /// Each rank except the root publishes its elements on the board in pieces, and the root fetches and combines them.
    /// Cost: p rounds for p pieces; each rank publishes its elements once, and the root reads those of all other ranks.
    Board {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, root: u32, len: usize, commutes: bool, in_place: bool) -> Steps {
        assert!(root < at.size(), "the root {root} is not one of {} ranks", at.size());
        let source = source(in_place && at.rank() == root);
        match self {
            Self::Binomial if commutes => Steps::new(from_root(at, root, len, source)),
            Self::Binomial => Steps::new(in_order(at, root, len, source)),
            Self::Rabenseifner => Steps::new(rabenseifner(at, root, len, commutes, source)),
            Self::Board { piece } => OnBoard::reduce(at, root, source, len, piece).into(),
        }
    }

    pub(crate) fn scratch(self, at: Place, root: u32, len: usize) -> usize {
        match self {
            Self::Binomial => 2 * len,
            Self::Rabenseifner => match Fold::with_root(at, root).role() {
                Role::Passive { .. } => 0,
                Role::Active { .. } if at.rank() == root => len,
                Role::Active { .. } => 2 * len,
            },
            Self::Board { .. } if at.rank() != root => 0,
            Self::Board { piece } => board::scratch(at, len, piece),
        }
    }
}

/// Reduces along a tree, given as the parent of this rank and its children in ascending order. At the root of the tree,
/// the result is in the output if `ends_in_output` is true, and otherwise in the first elements of the scratch buffer.
/// The other ranks send their result to their parent.
///
/// The result of a child is the right operand, because the ranks of the child's subtree are higher. So the combined
/// result replaces the child's result. The results of the children are received in two places in turn: after a
/// reduction its left operand is not needed any more, so the next child's result is received there. The first place is
/// chosen such that the result of the last reduction is in `places[0]`. A rank without children has no reduction: its
/// result is its own data, which the root of the tree copies to `places[0]`.
fn along_tree(
    parent: Option<u32>,
    ranks: impl Iterator<Item = u32> + Clone + Send,
    len: usize,
    own: Buffer,
    ends_in_output: bool,
) -> impl Iterator<Item = Step> + Send {
    let children = ranks.clone().count();
    let first = if ends_in_output { Span::output(0..len) } else { Span::scratch(0..len) };
    let places = [first, Span::scratch(len..2 * len)];
    let own = Span { buffer: own, start: 0, len };
    // The place of the result after the results of `count` children were combined.
    let after = move |count: usize| if count == 0 { own } else { places[(children - count) % 2] };
    // In place, the data of this rank may lie where the result of the first child would be received.
    let moved = children % 2 == 1 && own == places[0];
    let start = if moved { places[1] } else { own };
    let copy = moved.then_some(Step::Copy { from: own, into: start });
    let combine = move |(count, from): (usize, u32)| {
        let (left, right) = (if count == 0 { start } else { after(count) }, after(count + 1));
        [Step::Receive { from, round: 0, into: right }, Step::WAIT, Step::Reduce { from: left, into: right }]
    };
    let result = after(children);
    let send = parent.map(|to| [Step::Send { to, round: 0, from: result }, Step::WAIT]);
    let alone = (parent.is_none() && children == 0 && own != places[0])
        .then_some(Step::Copy { from: own, into: places[0] });
    let combines = ranks.enumerate().flat_map(combine);
    copy.into_iter().chain(combines).chain(alone).chain(send.into_iter().flatten())
}

/// Reduces along a binomial tree of all ranks with the root `root`.
fn from_root(at: Place, root: u32, len: usize, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let tree = Tree::new(at.relative_to(root), 2);
    let rank = move |relative| Place::new(relative, at.size()).up(root);
    let children = tree.ascending().map(move |child| rank(child.rank));
    along_tree(tree.parent().map(rank), children, len, own, at.rank() == root)
}

/// Reduces along a binomial tree of the acting ranks of a [`Fold`], whose root is rank 0, and sends the result to
/// `root`. A passive rank is a child of its actor. So the elements are combined by the tree of reductions.
fn in_order(at: Place, root: u32, len: usize, own: Buffer) -> impl Iterator<Item = Step> + Send {
    let is_root = at.rank() == root;
    let fold = Fold::new(at);
    let (parent, tree, passive) = match fold.role() {
        Role::Passive { actor } => (Some(actor), None, None),
        Role::Active { number, passive } => {
            let tree = Tree::new(Place::new(number, fold.actors), 2);
            (tree.parent().map(|parent| fold.rank(parent)), Some(tree), passive)
        }
    };
    let actors = tree.into_iter().flat_map(Tree::ascending).map(move |child| fold.rank(child.rank));
    let reduces = along_tree(parent, passive.into_iter().chain(actors), len, own, is_root && root == 0);
    let send = Step::Send { to: root, round: 1, from: Span::scratch(0..len) };
    let receive = Step::Receive { from: 0, round: 1, into: Span::output(0..len) };
    let last = match (at.rank() == 0, is_root) {
        (true, false) => Some(send),
        (false, true) => Some(receive),
        _ => None,
    };
    reduces.chain(last).chain([Step::WAIT])
}

/// Reduces by recursive halving among the acting ranks of a [`Fold`], and gathers the parts at the root. A rank receives
/// the parts that it passes on beside its own part, in the place where its reductions ended.
fn rabenseifner(
    at: Place,
    root: u32,
    len: usize,
    commutes: bool,
    own: Buffer,
) -> impl Iterator<Item = Step> + Send {
    let fold = Fold::with_root(at, root);
    let is_root = at.rank() == root;
    let bases = match is_root {
        true => [Base::new(Buffer::Output, 0), Base::new(Buffer::Scratch, 0)],
        false => [Base::new(Buffer::Scratch, 0), Base::new(Buffer::Scratch, len)],
    };
    let mut places = match own {
        Buffer::Input => Places::from_input(commutes, bases),
        _ => Places::new(commutes, own, Buffer::Scratch),
    };
    let (number, before) = match fold.role() {
        Role::Passive { actor } => {
            let send = Step::Send { to: actor, round: FOLD, from: places.mine(0..len) };
            (None, [Some(send), Some(Step::WAIT), None, None])
        }
        Role::Active { number, passive: None } => (Some(number), [None; 4]),
        Role::Active { number, passive: Some(from) } => {
            let receive = Step::Receive { from, round: FOLD, into: places.received(0..len) };
            let is_right = from > at.rank();
            let copy = places.before(0..len, is_right);
            (Some(number), [Some(receive), Some(Step::WAIT), copy, Some(places.reduce(0..len, is_right))])
        }
    };
    let act = number.map(|number| {
        let halving = Halving::new(fold, number, len);
        let last = places.after(number, fold.log2());
        let finish = is_root.then(|| last.finish(halving.own())).flatten();
        let gathered = if is_root { Places::new(commutes, Buffer::Output, Buffer::Scratch) } else { last };
        let gathering = halving.clone();
        let top = fold.number(root);
        let gather = move |round: u32| {
            let (partner, kept, given) = gathering.divided(round);
            let (rank, bit) = (fold.rank(partner), 1 << round);
            let round = fold.log2() + round;
            // The ranks whose numbers differ from the root's in a higher bit have sent their parts in an earlier round.
            let step = match number ^ top {
                different if different >= 2 * bit => Step::NONE,
                different if different >= bit => Step::Send { to: rank, round, from: gathered.mine(kept) },
                _ => Step::Receive { from: rank, round, into: gathered.mine(given) },
            };
            [step, Step::WAIT]
        };
        halving.steps(places).chain(finish).chain((0..fold.log2()).rev().flat_map(gather))
    });
    before.into_iter().flatten().chain(act.into_iter().flatten())
}
