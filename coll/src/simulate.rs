//! The virtual time of an operation in the LogGP model.
//!
//! [`simulate`] takes the steps of all ranks, as [`check::cost`](crate::check::cost) does, and computes the time of
//! each message. Each rank has an iterator over its steps, so a million ranks need some hundred bytes each.
//!
//! ```
//! use samite_coll::algorithms::barrier::Algorithm;
//! use samite_coll::{LogGp, Plan, simulate};
//!
//! let network = LogGp { latency: 1000, overhead: 100, gap: 0, gap_per_byte: 0 };
//! let end = simulate(8, |_| Plan::Barrier(Algorithm::Dissemination), 1, network).expect("the schedule is valid");
//! // Three rounds of a send, the network, and a receive.
//! assert_eq!((end.time, end.messages), (3 * 1200, 24));
//! ```

use std::collections::{HashMap, VecDeque};

use crate::check::Violation;
use crate::schedule::{Place, Plan, Step, Steps};

/// The parameters of a network, in picoseconds.
///
/// Source: Alexandrov, Ionescu, Schauser and Scheiman: *LogGP: Incorporating Long Messages into the LogP Model*.
/// Journal of Parallel and Distributed Computing 44(1), 1997.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGp {
    /// The time from the moment when the last byte has left the sender until it is at the receiver (L).
    pub latency: u64,
    /// The time for which a processor is busy with a message that it sends or receives (o).
    pub overhead: u64,
    /// The shortest time between two messages that a rank sends, and between two that it receives (g).
    pub gap: u64,
    /// The time of each byte after the first (G).
    pub gap_per_byte: u64,
}

impl LogGp {
    /// Returns the time between the first and the last byte of a message.
    fn bytes(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_sub(1) * self.gap_per_byte
    }
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// The time at which the last rank has taken its last step, in picoseconds. Copies and reductions take no time.
    pub time: u64,
    /// The number of messages.
    pub messages: u64,
    /// The number of bytes that each rank sends.
    pub sent: Vec<u64>,
}

/// Simulates an operation of `size` ranks on elements of `element` bytes. `plan` returns the plan of each rank.
///
/// # Errors
/// [`Violation::Stuck`] and [`Violation::Length`] if the schedules do not fit together.
pub fn simulate(
    size: u32,
    plan: impl Fn(u32) -> Plan,
    element: usize,
    network: LogGp,
) -> Result<Simulation, Violation> {
    let rank_of = |rank| Rank::new(plan(rank).steps(Place::new(rank, size)));
    let mut job = Job {
        ranks: (0..size).map(rank_of).collect(),
        on_the_way: HashMap::new(),
        waiting: HashMap::new(),
        element,
        network,
        messages: 0,
    };
    job.run()?;
    if let Some(stuck) = job.ranks.iter().position(|rank| !rank.has_ended) {
        return Err(Violation::Stuck(stuck as u32));
    }
    let time = job.ranks.iter().map(|rank| rank.now).max().unwrap_or(0);
    Ok(Simulation { time, messages: job.messages, sent: job.ranks.iter().map(|rank| rank.sent).collect() })
}

/// The sender, the receiver and the round of messages.
type Key = (u32, u32, u32);

struct Job {
    ranks: Vec<Rank>,
    /// The sent messages that no receiver has waited for: their arrivals and lengths.
    on_the_way: HashMap<Key, VecDeque<(u64, usize)>>,
    /// The rank that waits for a message with this key.
    waiting: HashMap<Key, u32>,
    element: usize,
    network: LogGp,
    messages: u64,
}

/// The state of a rank.
struct Rank {
    steps: Steps,
    /// The step that the rank cannot take yet.
    blocked: Option<Step>,
    /// The messages that no step has waited for, in the order in which they began.
    under_way: VecDeque<Side>,
    now: u64,
    /// The first time at which the rank can send.
    may_send: u64,
    /// The first time at which the rank can receive.
    may_receive: u64,
    sent: u64,
    has_ended: bool,
}

/// This rank's side of a message.
enum Side {
    /// The time at which the last byte has left.
    Sent(u64),
    /// The key and the number of elements.
    Awaited(Key, usize),
    /// The arrival.
    Arrived(u64),
}

impl Job {
    fn run(&mut self) -> Result<(), Violation> {
        let mut ready: Vec<u32> = (0..self.ranks.len() as u32).collect();
        while let Some(rank) = ready.pop() {
            self.advance(rank, &mut ready)?;
        }
        Ok(())
    }

    /// Takes the steps of a rank until it must wait for a message that is not sent. Adds the ranks that can continue to
    /// `ready`.
    fn advance(&mut self, number: u32, ready: &mut Vec<u32>) -> Result<(), Violation> {
        loop {
            let rank = &mut self.ranks[number as usize];
            let (step, is_last) = match rank.blocked.take().or_else(|| rank.steps.next()) {
                Some(step) => (step, false),
                None => (Step::WAIT, true),
            };
            match step {
                Step::Send { to, round, from } => ready.extend(self.send(number, to, round, from.len)),
                Step::Receive { from, round, into } => {
                    rank.under_way.push_back(Side::Awaited((from, number, round), into.len));
                }
                Step::Wait { except } if !self.wait(number, except as usize)? => {
                    // At the end of the steps a rank waits again for all messages.
                    self.ranks[number as usize].blocked = (!is_last).then_some(step);
                    return Ok(());
                }
                // Other steps exchange no message, and take no time.
                _ => {}
            }
            if is_last {
                self.ranks[number as usize].has_ended = true;
                return Ok(());
            }
        }
    }

    /// Sends a message. Returns the rank that waits for it.
    fn send(&mut self, number: u32, to: u32, round: u32, len: usize) -> Option<u32> {
        let (network, bytes) = (self.network, len * self.element);
        let rank = &mut self.ranks[number as usize];
        let begun = rank.now.max(rank.may_send);
        let left = begun + network.overhead + network.bytes(bytes);
        rank.now = begun + network.overhead;
        rank.may_send = begun + network.gap.max(network.overhead + network.bytes(bytes));
        rank.sent += bytes as u64;
        rank.under_way.push_back(Side::Sent(left));
        self.messages += 1;
        let key = (number, to, round);
        self.on_the_way.entry(key).or_default().push_back((left + network.latency, len));
        self.waiting.remove(&key)
    }

    /// Waits until at most `except` messages are under way. Returns false if a message is not sent yet.
    fn wait(&mut self, number: u32, except: usize) -> Result<bool, Violation> {
        let rank = &mut self.ranks[number as usize];
        let awaited = rank.under_way.len().saturating_sub(except);
        for side in rank.under_way.iter_mut().take(awaited) {
            let Side::Awaited(key, len) = *side else { continue };
            let Some(queue) = self.on_the_way.get_mut(&key) else {
                self.waiting.insert(key, number);
                return Ok(false);
            };
            let (arrival, sent) = queue.pop_front().expect("a queue has a message");
            if queue.is_empty() {
                self.on_the_way.remove(&key);
            }
            let (from, to, round) = key;
            if sent != len {
                return Err(Violation::Length { from, to, round });
            }
            *side = Side::Arrived(arrival);
        }
        rank.end(awaited, self.network);
        Ok(true)
    }
}

impl Rank {
    fn new(steps: Steps) -> Self {
        let (blocked, under_way) = (None, VecDeque::new());
        Self { steps, blocked, under_way, now: 0, may_send: 0, may_receive: 0, sent: 0, has_ended: false }
    }

    /// Ends the first messages: the rank receives messages in the order of their arrivals.
    fn end(&mut self, awaited: usize, network: LogGp) {
        let mut arrivals = Vec::new();
        for side in self.under_way.drain(..awaited) {
            match side {
                Side::Sent(left) => self.now = self.now.max(left),
                Side::Arrived(arrival) => arrivals.push(arrival),
                Side::Awaited(..) => unreachable!("all messages have arrived"),
            }
        }
        arrivals.sort_unstable();
        for arrival in arrivals {
            let begun = arrival.max(self.may_receive).max(self.now);
            self.may_receive = begun + network.gap.max(network.overhead);
            self.now = begun + network.overhead;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{allgather, allreduce, bcast, gather};
    use crate::check;
    use crate::schedule::Blocks;

    const NETWORK: LogGp = LogGp { latency: 1000, overhead: 100, gap: 300, gap_per_byte: 2 };

    fn broadcast(len: usize) -> Plan {
        Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len }
    }

    #[test]
    fn a_message_takes_the_time_of_the_model() {
        let end = simulate(2, |_| broadcast(11), 1, NETWORK).unwrap();
        // o + (k - 1) G + L + o
        assert_eq!(end, Simulation { time: 100 + 10 * 2 + 1000 + 100, messages: 1, sent: vec![11, 0] });
    }

    #[test]
    fn a_sender_keeps_the_gap_between_messages() {
        // The root sends to ranks 2 and 1. The second message leaves g later, and rank 2 passes its message on to rank
        // 3.
        let end = simulate(4, |_| broadcast(1), 1, NETWORK).unwrap();
        assert_eq!(end.time, 2 * (100 + 1000 + 100));
        let slow = LogGp { gap: 5000, ..NETWORK };
        assert_eq!(simulate(4, |_| broadcast(1), 1, slow).unwrap().time, 5000 + 1200);
    }

    #[test]
    fn a_receiver_keeps_the_gap_between_messages() {
        let plan = |_| Plan::Gather {
            algorithm: gather::Algorithm::Linear,
            root: 0,
            blocks: Blocks::Equal(1),
            len: 1,
            in_place: false,
        };
        // All messages arrive at the same time.
        assert_eq!(simulate(4, plan, 1, NETWORK).unwrap().time, 1100 + 2 * 300 + 100);
    }

    #[test]
    fn the_bytes_are_those_of_the_verified_schedules() {
        for size in 1..=17 {
            let plan = |_| Plan::Allreduce {
                algorithm: allreduce::Algorithm::Rabenseifner,
                len: 64,
                commutes: true,
                in_place: false,
            };
            let cost = check::verify(size, plan).unwrap();
            let sent = simulate(size, plan, 8, NETWORK).unwrap().sent;
            assert!(sent.iter().zip(cost.sent).all(|(bytes, elements)| *bytes == 8 * elements as u64));
        }
    }

    #[test]
    fn schedules_that_do_not_fit_together_are_found() {
        let lengths = |rank| broadcast(1 + rank as usize);
        assert_eq!(simulate(2, lengths, 1, NETWORK), Err(Violation::Length { from: 0, to: 1, round: 0 }));
        let roots = |_| Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len: 1 };
        let other = |_| Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 1, len: 1 };
        let both = |rank| if rank == 0 { other(rank) } else { roots(rank) };
        assert_eq!(simulate(2, both, 1, NETWORK), Err(Violation::Stuck(0)));
    }

    /// With this many ranks, each message still has its own time.
    #[test]
    fn many_ranks_take_a_logarithmic_time() {
        let size = 1 << 14;
        let plan = |_| Plan::Allgather {
            algorithm: allgather::Algorithm::Bruck,
            blocks: Blocks::Equal(1),
            in_place: false,
        };
        let free = LogGp { gap_per_byte: 0, gap: 0, ..NETWORK };
        let end = simulate(size, plan, 1, free).unwrap();
        assert_eq!((end.time, end.messages), (14 * 1200, 14 << 14));
    }
}
