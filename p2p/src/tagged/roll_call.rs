//! Roll calls: a rank whose collective operation has reached its deadline asks the other members if they have begun it.
//!
//! A member counts the operations that it has begun in each pair of contexts, and answers with this number whenever it
//! polls. So the answers of one member serve all roll calls in the same contexts, also if it answers late. A member
//! that has not answered is not asked again: a rank that is stopped for long gets one question for each pair of
//! contexts.

use std::collections::{BTreeMap, BTreeSet};

use samite_fabric::link::{Link, Members, Peer, RequestId, Status, Time, WorldRank};
use samite_fabric::wire::WireError;

use super::Tagged;
use crate::contexts::{Opened, has_begun};
use crate::request::{Buffer, Partner, Request, State};
use crate::wire::{Present, RollCall, kind};

/// The roll calls of this rank.
#[derive(Debug, Default)]
pub(super) struct RollCalls {
    under_way: BTreeMap<RequestId, Roll>,
    /// The members that were asked and have not answered, each with the name of the contexts.
    asked: BTreeSet<(WorldRank, u64)>,
}

/// One roll call.
#[derive(Debug)]
struct Roll {
    name: u64,
    /// The number of the operation.
    number: u32,
    /// The members that have not answered.
    awaited: BTreeSet<WorldRank>,
    /// The answers so far.
    answers: Members,
}

impl Tagged {
    /// Asks members if they have begun an operation. Returns a request that ends when all have answered, or at the time
    /// `until`. [`take_roll`](Self::take_roll) returns the answers.
    #[cold]
    pub(crate) fn call_roll(
        &mut self,
        link: &mut Link,
        (context, number): (u32, u32),
        members: impl Iterator<Item = WorldRank>,
        until: Time,
    ) -> RequestId {
        let (mine, name) = (link.identity().rank, self.name_of(context));
        let (buffer, partner) = (Buffer::Gone, Partner::Rank(mine));
        let request = Request::new(State::Composite, buffer, partner, context, 0, link.now());
        let id = self.requests.insert(request);
        let mut roll = Roll { name, number, awaited: BTreeSet::new(), answers: Members::default() };
        for rank in members.filter(|rank| *rank != mine) {
            // A member that takes part no more has an end that other operations report.
            let Ok(peer) = link.live_peer(rank) else { continue };
            roll.awaited.insert(rank);
            if self.roll_calls.asked.insert((rank, name)) {
                self.answer(link, peer, kind::ROLL_CALL, &RollCall { name: name.into() });
                link.seek(peer);
            }
        }
        let is_complete = roll.awaited.is_empty();
        self.roll_calls.under_way.insert(id, roll);
        match is_complete {
            true => self.end_roll(link, id),
            false => self.set_deadline(link, id, until),
        }
        id
    }

    /// Ends a roll call, and returns the answers.
    pub(crate) fn take_roll(&mut self, id: RequestId) -> Members {
        self.requests.remove(id);
        let Some(Roll { awaited, answers, .. }) = self.roll_calls.under_way.remove(&id) else {
            return Members::default();
        };
        let Members { mut absent, mut closed, .. } = answers;
        absent.sort_unstable();
        closed.sort_unstable();
        Members { absent, closed, silent: awaited.into_iter().collect(), unasked: 0 }
    }

    /// Answers a member that asks how many operations this rank has begun.
    #[cold]
    pub(super) fn roll_called(
        &mut self,
        link: &mut Link,
        peer: Peer,
        call: &RollCall,
    ) -> Result<(), WireError> {
        let begun = match self.contexts.of_member(call.name.get(), link.peer(peer).rank())? {
            Opened::Now(context) => Some(self.contexts.begun(context)),
            Opened::Never => Some(0),
            Opened::Before => None,
        };
        self.answer(link, peer, kind::PRESENT, &Present::new(call.name, begun));
        Ok(())
    }

    /// Takes the answer of a member.
    #[cold]
    pub(super) fn present(
        &mut self,
        link: &mut Link,
        peer: Peer,
        present: &Present,
    ) -> Result<(), WireError> {
        let (rank, name, begun) = (link.peer(peer).rank(), present.name.get(), present.begun()?);
        if !self.roll_calls.asked.remove(&(rank, name)) {
            link.note_stale();
            return Ok(());
        }
        self.answer_rolls(link, rank, |roll| {
            let answers = &mut roll.answers;
            match begun {
                _ if roll.name != name => return false,
                None => answers.closed.push(rank),
                Some(begun) if !has_begun(roll.number, begun) => answers.absent.push(rank),
                Some(_) => {}
            }
            true
        });
        Ok(())
    }

    /// Notes that a rank will answer no roll call, because it has ended.
    #[cold]
    pub(super) fn end_in_roll_calls(&mut self, link: &mut Link, rank: WorldRank) {
        self.roll_calls.asked.retain(|(asked, _)| *asked != rank);
        self.answer_rolls(link, rank, |_| true);
    }

    /// Gives an answer of a rank to all roll calls that await it. `answer` returns false if it is no answer to a call.
    fn answer_rolls(&mut self, link: &mut Link, rank: WorldRank, mut answer: impl FnMut(&mut Roll) -> bool) {
        let mut complete = Vec::new();
        for (id, roll) in &mut self.roll_calls.under_way {
            if roll.awaited.contains(&rank) && answer(roll) {
                roll.awaited.remove(&rank);
                if roll.awaited.is_empty() {
                    complete.push(*id);
                }
            }
        }
        complete.into_iter().for_each(|id| self.end_roll(link, id));
    }

    fn end_roll(&mut self, link: &mut Link, id: RequestId) {
        let status = Status { source: link.identity().rank, tag: 0, bytes: 0 };
        self.finish(link, id, Ok(status));
    }
}
