//! Broadcasts.

use super::board::OnBoard;
use super::tree::Tree;
use crate::schedule::{Blocks, Place, Span, Step, Steps};

/// An algorithm for a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A k-nomial tree, in which each rank passes all elements on to its children. With k = 2 it is the binomial tree.
    /// Cost: at most (k − 1)⌈log_k n⌉ rounds; the root sends the elements at most as many times. For k = 2 these are
    /// ⌈log₂ n⌉ rounds, which is the minimum (Thakur et al. 2005, section 4.2).
    KNomial {
        /// The base of the tree: at least 2.
        k: u32,
    },
    /// The root scatters the elements in n parts along a binomial tree, and the ranks gather all parts along a ring.
    /// Cost: ⌈log₂ n⌉ + n − 1 rounds; each rank sends and receives at most about 2(n − 1)/n of the elements.
    ///
    /// Source: van de Geijn's algorithm, in Thakur et al. 2005, section 4.2.
    ScatterAllgather,
    /// The ranks form a chain, along which the elements travel in pieces. Cost: n − 1 + p − 1 rounds for p pieces; each
    /// rank except the last one sends the elements once.
    ///
    /// Source: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel and Dongarra: *Performance Analysis of MPI Collective
    /// Operations*. Cluster Computing 10, 2007 (pipeline).
    Chain {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
    /// The root publishes the elements on the board in pieces, and each other rank copies them. Cost: p rounds for p
    /// pieces; the root publishes the elements once.
    Board {
        /// The number of elements in a piece: at least 1.
        piece: usize,
    },
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place, root: u32, len: usize) -> Steps {
        assert!(root < at.size(), "the root {root} is not one of {} ranks", at.size());
        match self {
            Self::KNomial { k } => Steps::new(k_nomial(at, root, len, k)),
            Self::ScatterAllgather => Steps::new(scatter_allgather(at, root, len)),
            Self::Chain { piece } => Steps::new(chain(at, root, len, piece)),
            Self::Board { piece } => OnBoard::bcast(at, root, len, piece).into(),
        }
    }
}

fn k_nomial(at: Place, root: u32, len: usize, k: u32) -> impl Iterator<Item = Step> + Send {
    let all = Span::output(0..len);
    let tree = Tree::new(at.relative_to(root), k);
    let absolute = move |rank| Place::new(rank, at.size()).up(root);
    let receive = move |parent| [Step::Receive { from: absolute(parent), round: 0, into: all }, Step::WAIT];
    let send = move |child: super::tree::Child| Step::Send { to: absolute(child.rank), round: 0, from: all };
    let from_parent = tree.parent().into_iter().flat_map(receive);
    from_parent.chain(tree.largest_first().map(send)).chain([Step::WAIT])
}

fn scatter_allgather(at: Place, root: u32, len: usize) -> impl Iterator<Item = Step> + Send {
    let parts = Blocks::Parts { total: len, parts: at.size() };
    let relative = at.relative_to(root);
    let tree = Tree::new(relative, 2);
    let absolute = move |rank| Place::new(rank, at.size()).up(root);
    let own = parts.run(relative.rank()..relative.rank() + tree.ranks());
    let receive = move |parent| {
        [Step::Receive { from: absolute(parent), round: 0, into: Span::output(own.clone()) }, Step::WAIT]
    };
    let subtree = parts.clone();
    let send = move |child: super::tree::Child| {
        let of_child = subtree.run(child.rank..child.rank + child.ranks);
        Step::Send { to: absolute(child.rank), round: 0, from: Span::output(of_child) }
    };
    let scatter = tree.parent().into_iter().flat_map(receive).chain(tree.largest_first().map(send));
    let ring = (1..at.size()).flat_map(move |round| {
        [
            Step::Send { to: at.up(1), round, from: Span::output(parts.get(relative.down(round - 1))) },
            Step::Receive { from: at.down(1), round, into: Span::output(parts.get(relative.down(round))) },
            Step::WAIT,
        ]
    });
    scatter.chain([Step::WAIT]).chain(ring)
}

fn chain(at: Place, root: u32, len: usize, piece: usize) -> impl Iterator<Item = Step> + Send {
    assert!(piece > 0, "a piece has elements");
    let pieces = len.div_ceil(piece) as u64;
    let relative = at.relative_to(root);
    let (receives, sends) = (relative.rank() > 0, relative.rank() + 1 < at.size());
    // Messages of the same round are received in the order in which they were sent. So the numbers of the pieces may be
    // truncated to 32 bits.
    let span = move |number: u64| {
        let start = number as usize * piece;
        Span::output(start..start.saturating_add(piece).min(len))
    };
    let receive = move |number: u64| {
        let step = || Step::Receive { from: at.down(1), round: number as u32, into: span(number) };
        (receives && number < pieces).then(step)
    };
    // The next piece is received while this piece is sent. The wait for this piece leaves the receive of the next piece
    // under way, and the send of the previous piece.
    let pass_on = move |number: u64| {
        let under_way = u32::from(receives && number + 1 < pieces) + u32::from(sends && number > 0);
        let send = Step::Send { to: at.up(1), round: number as u32, from: span(number) };
        [receive(number + 1), Some(Step::Wait { except: under_way }), sends.then_some(send)]
    };
    receive(0).into_iter().chain((0..pieces).flat_map(pass_on).flatten()).chain([Step::WAIT])
}
