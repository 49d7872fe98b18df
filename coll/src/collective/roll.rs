//! The question to the members after the deadline: which of them have not begun the operation?

use std::collections::BTreeSet;

use samite_fabric::Port;
use samite_p2p::{Engine, Error, Group, HasTagged, Members, Operation, Outcome, RequestId, Time, WorldRank};

use super::{Buffers, Collective, Failed};

/// A question to the members of a communicator that is under way: see [`Engine::call_roll`]. Dropping it leaves its
/// request in the engine.
#[derive(Debug)]
pub struct RollCall {
    request: RequestId,
    /// The number of members that are not asked.
    unasked: u32,
}

impl RollCall {
    /// Asks the members of a group if they have begun the operation with this number, which began at the time `begun`
    /// and has reached its deadline now. Asks the ranks in `first`, then the other members from the next rank on, up to
    /// a limit. `first` are members, and may contain ranks twice.
    #[cold]
    pub fn begin<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        (context, number): (u32, u32),
        group: &Group,
        mine: WorldRank,
        begun: Time,
        first: impl Iterator<Item = WorldRank>,
    ) -> Self {
        let (at, size) = (group.index(mine).expect("this rank is a member"), group.len());
        let others = (at + 1..size).chain(0..at).filter_map(|index| group.rank(index));
        let mut asked = BTreeSet::new();
        for rank in first.chain(others).filter(|rank| *rank != mine) {
            asked.insert(rank);
            if asked.len() == ASKED_MAX {
                break;
            }
        }
        let unasked = size - 1 - asked.len() as u32;
        let allowed_ns = (engine.now().since(begun) / 10).clamp(ANSWER_MIN_NS, ANSWER_MAX_NS);
        let until = engine.now().after(allowed_ns);
        let request = engine.call_roll(context, number, asked.into_iter(), until);
        Self { request, unasked }
    }

    /// Returns a request that ends with the last answer, or when this rank waits no longer.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Ends the question, and returns the answers so far.
    pub fn end<P: Port, S: HasTagged>(self, engine: &mut Engine<P, S>) -> Members {
        Members { unasked: self.unasked, ..engine.take_roll(self.request) }
    }
}

/// The question of an operation that has ended at its deadline.
#[derive(Debug)]
pub(super) struct Roll {
    pub(super) call: RollCall,
    /// The error of the operation, without the answers.
    timed_out: Error,
}

impl<B: Buffers> Collective<B> {
    /// Ends the operation with a failure. At the deadline asks the members first.
    #[cold]
    pub(super) fn fail_or_ask<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, failed: Failed) {
        let Failed::Error(Error::TimedOut { fate, mut report }) = failed else {
            return self.fail(engine, failed);
        };
        report.operation = Operation::Collective;
        report.age_ns = engine.now().since(self.begun);
        let timed_out = Error::TimedOut { fate, report };
        let under_way = self.messages.iter().filter(|message| message.request.is_some());
        let partners: Vec<_> = under_way.map(|message| message.partner).collect();
        // The partners get the notice of this rank's end before the question.
        self.fail(engine, timed_out.clone().into());
        self.result = None;
        let (of, mine) = ((self.context, self.number), self.world_rank(self.at.rank()));
        let call = RollCall::begin(engine, of, &self.group, mine, self.begun, partners.into_iter());
        self.roll = Some(Roll { call, timed_out });
        self.end_roll(engine);
    }

    /// Ends the operation if the members have answered, or if this rank waits no longer.
    pub(super) fn end_roll<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let ended = self.roll.take_if(|roll| engine.outcome(roll.call.request) != Outcome::Pending);
        let Some(Roll { call, mut timed_out }) = ended else { return };
        let members = call.end(engine);
        if let Error::TimedOut { report, .. } = &mut timed_out {
            report.members = Some(Box::new(members));
        }
        self.result = Some(Err(timed_out.into()));
    }

    /// Drops the question if one is under way.
    pub(super) fn drop_roll<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        if let Some(roll) = self.roll.take() {
            roll.call.end(engine);
        }
    }
}

/// The largest number of members that a rank asks. All ranks of a communicator may reach their deadlines at the same
/// time, so the number of questions in the job is at most this number times the number of ranks.
const ASKED_MAX: usize = 256;

/// The shortest time for answers: a rank that waits answers within a switch between processes, and a sleeping one
/// within some milliseconds.
const ANSWER_MIN_NS: u64 = 10_000_000;

/// The longest time for answers. A rank that does not answer for a second does not make calls.
const ANSWER_MAX_NS: u64 = 1_000_000_000;
