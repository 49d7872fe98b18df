//! Barriers.

use super::board::OnBoard;
use crate::schedule::{Place, Span, Step, Steps};

/// An algorithm for a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In round k each rank sends an empty message to the rank that is 2^k higher, and receives an empty message from
    /// the rank that is 2^k lower. Cost: ⌈log₂ n⌉ rounds.
    ///
    /// Source: Hensgen, Finkel and Manber: *Two Algorithms for Barrier Synchronization*. International Journal of
    /// Parallel Programming 17(1), 1988.
    Dissemination,
    /// Each rank publishes an empty piece on the board, and waits for the pieces of all other ranks. Cost: 1 round.
    Board,
}

impl Algorithm {
    pub(crate) fn steps(self, at: Place) -> Steps {
        match self {
            Self::Dissemination => Steps::new(dissemination(at)),
            Self::Board => OnBoard::barrier(at).into(),
        }
    }
}

fn dissemination(at: Place) -> impl Iterator<Item = Step> + Send {
    let nothing = Span::NOTHING;
    (0..at.log2()).flat_map(move |round| {
        let distance = 1 << round;
        [
            Step::Send { to: at.up(distance), round, from: nothing },
            Step::Receive { from: at.down(distance), round, into: nothing },
            Step::WAIT,
        ]
    })
}
