//! Reductions over the ranks before each rank.

use super::scan::Partners;
use crate::schedule::{Place, Span, Step, Steps, source};

/// Returns the steps of recursive doubling as in [`scan`](super::scan), with two partial results. One contains this
/// rank's elements, and is sent. The other does not contain them, and becomes the result. Cost: ⌈log₂ n⌉ rounds; a rank
/// sends all elements in each round in which it has a receiver, and reduces at most twice in a round. The operands stay
/// in the order of ranks.
///
/// Source: Hillis and Steele 1986; with two results as in MPICH's `MPIR_Exscan_intra_recursive_doubling`.
pub(crate) fn steps(at: Place, len: usize, in_place: bool) -> Steps {
    let (result, with_own, received) =
        (Span::output(0..len), Span::scratch(0..len), Span::scratch(len..2 * len));
    let own = Span { buffer: source(in_place), ..result };
    let copy = Step::Copy { from: own, into: with_own };
    let exchange = move |round: u32| {
        let Partners { to, from } = Partners::new(at, round);
        // The first message contains the elements of the preceding rank. They are the first value of the result.
        let into = if round == 0 { result } else { received };
        let is_sent_later = Partners::new(at, round + 1).to.is_some();
        let add = (round > 0 && from.is_some()).then_some(Step::Reduce { from: into, into: result });
        let add_to_sent =
            (is_sent_later && from.is_some()).then_some(Step::Reduce { from: into, into: with_own });
        let send = to.map(|to| Step::Send { to, round, from: with_own });
        let receive = from.map(|from| Step::Receive { from, round, into });
        [send, receive, Some(Step::WAIT), add, add_to_sent].into_iter().flatten()
    };
    Steps::new([copy].into_iter().chain((0..at.log2()).flat_map(exchange)))
}
