//! Exchanges whose messages are arguments: each rank lists the messages that it sends and receives.

use std::ops::Range;
use std::sync::Arc;

use crate::schedule::{Place, Span, Step, Steps};

/// A message of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank that receives it, or that sends it. A rank may exchange messages with itself.
    pub partner: u32,
    /// The number that distinguishes this message from the other messages between the two ranks: see
    /// [`Step::Send`]. Messages with the same number are received in the order in which they are listed.
    pub round: u32,
    /// The elements of the input that are sent, or the elements of the output that are received.
    pub elements: Range<usize>,
}

/// Returns the steps: a rank first starts all its receives and then all its sends. So an exchange ends for any lists
/// that agree, and its cost is the largest number of messages that a rank sends or receives.
pub(crate) fn steps(sends: Arc<[Transfer]>, receives: Arc<[Transfer]>) -> Steps {
    let receive = each(receives).map(|Transfer { partner: from, round, elements }| Step::Receive {
        from,
        round,
        into: Span::output(elements),
    });
    let send = each(sends).map(|Transfer { partner: to, round, elements }| Step::Send {
        to,
        round,
        from: Span::input(elements),
    });
    Steps::new(receive.chain(send).chain([Step::WAIT]))
}

/// Returns the length that a buffer needs to contain the elements of all messages.
pub(crate) fn end(transfers: &[Transfer]) -> usize {
    transfers.iter().map(|transfer| transfer.elements.end).max().unwrap_or(0)
}

/// Returns the messages of an exchange of all ranks with all ranks, in rounds in which each rank sends one message and
/// receives one: the sent and the received messages.
#[must_use]
pub fn all_pairs(
    at: Place,
    sent: impl Fn(u32) -> Range<usize>,
    received: impl Fn(u32) -> Range<usize>,
) -> [Arc<[Transfer]>; 2] {
    let transfer = |partner, elements| Transfer { partner, round: 0, elements };
    let sends = (0..at.size()).map(|distance| transfer(at.up(distance), sent(at.up(distance))));
    let receives = (0..at.size()).map(|distance| transfer(at.down(distance), received(at.down(distance))));
    [sends.collect(), receives.collect()]
}

fn each(transfers: Arc<[Transfer]>) -> impl Iterator<Item = Transfer> + Send {
    (0..transfers.len()).map(move |index| transfers[index].clone())
}
