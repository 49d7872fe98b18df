//! The steps of access epochs: recorded, passed on when the target permits, and sent.

use samite_fabric::link::{Fate, WorldRank};

use super::Core;
use crate::activation::Kind;
use crate::outbox::Item;
use crate::window::{Closing, Operation, State, Step};
use crate::wire::{Note, kind};
use crate::{Error, LockKind};

impl Core<'_> {
    /// Adds a step to an access epoch.
    pub(crate) fn record(&mut self, number: u64, rank: WorldRank, step: Step) {
        let failure = self.member(rank).failure.clone();
        let Some(epoch) = self.window.epoch(number) else { return };
        let mut is_new = false;
        let party = epoch.parties.entry(rank).or_insert_with(|| {
            is_new = true;
            Default::default()
        });
        epoch.left += usize::from(is_new);
        if let Step::Operation(operation) = &step {
            party.unanswered += usize::from(operation.action.has_reply());
        }
        // The target has aborted the access.
        let is_over =
            party.state == State::Over || party.closing != Closing::No && !matches!(step, Step::Close(_));
        let is_active = epoch.is_active;
        if is_over && failure.is_none() {
            let error = Error::Aborted { rank, fate: Fate::NotDelivered };
            return self.drop_step(number, rank, step, &error);
        }
        party.steps.push_back(step);
        if let Some(cause) = failure {
            self.fail_party(number, rank, &cause);
        } else if is_active {
            self.ask(number, rank);
            self.release(number, rank);
        }
    }

    /// Asks a target for its permission, unless that was done, or is given already.
    pub(super) fn ask(&mut self, number: u64, rank: WorldRank) {
        let (kind, ordinal) = {
            let Some(epoch) = self.window.epoch(number) else { return };
            let Some(party) = epoch.parties.get(&rank).filter(|party| party.state == State::Idle) else {
                return;
            };
            (epoch.kind.clone(), party.ordinal)
        };
        let member = self.member(rank);
        let mut asked = (State::Asked, ordinal);
        match kind {
            Kind::Start(_) if member.revoked.take(ordinal) => return self.end_access(number, rank),
            Kind::Start(_) if member.granted >= ordinal => asked.0 = State::Granted,
            Kind::Start(_) => self.contact(rank),
            Kind::Lock { .. } | Kind::LockAll => {
                let kind = if let Kind::Lock { kind, .. } = kind { kind } else { LockKind::Shared };
                member.locks += 1;
                asked.1 = member.locks;
                let note = Note::new(asked.1, 0).flagged(kind == LockKind::Exclusive);
                self.note(rank, kind::LOCK, note);
            }
            Kind::Fence { opening } if member.opened >= opening => asked.0 = State::Granted,
            Kind::Fence { opening } => self.note(rank, kind::ASK, Note::new(opening, 0)),
            Kind::Post(_) | Kind::Free => unreachable!("they have no steps"),
        }
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            (party.state, party.ordinal) = asked;
        }
    }

    /// Passes on the steps to a target that has given its permission.
    pub(super) fn release(&mut self, number: u64, rank: WorldRank) {
        loop {
            let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
                return;
            };
            if party.state != State::Granted {
                return;
            }
            let Some(step) = party.steps.pop_front() else { return };
            self.pass(number, rank, step);
        }
    }

    /// Passes a step on, to be sent.
    pub(super) fn pass(&mut self, number: u64, rank: WorldRank, step: Step) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.queued += 1;
        }
        let window = self.id;
        self.send(rank, Item::Step { window, to: rank, epoch: number, step });
    }

    /// Notes that all packets of a step were sent.
    pub(crate) fn sent(&mut self, number: u64, rank: WorldRank, step: Step) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.queued -= 1;
            if let Step::Close(_) = step {
                party.closing = Closing::Sent;
            }
        }
        if let Step::Operation(operation) = step {
            self.requests.recorded -= operation.cost();
            self.counters.operations += 1;
            self.end_sending(*operation);
        }
        self.check_party(number, rank);
    }

    /// Ends the request of a write whose packets were all sent.
    pub(crate) fn end_sending(&mut self, operation: Operation) {
        if let Some(id) = operation.request
            && !operation.action.has_reply()
        {
            self.requests.give_back(id, operation.memory);
            self.requests.end(id, Ok(()));
        }
    }

    /// Notes that all replies to an operation have arrived.
    pub(crate) fn answered(&mut self, number: u64, rank: WorldRank) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.unanswered -= 1;
        }
        self.check_party(number, rank);
    }

    /// Notes that a party is over, if it is.
    pub(super) fn check_party(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_start = matches!(epoch.kind, Kind::Start(_));
        let Some(party) = epoch.parties.get_mut(&rank) else { return };
        let is_closed = party.closing == Closing::Answered || is_start && party.closing == Closing::Sent;
        if is_closed && party.unanswered == 0 && party.queued == 0 && party.state != State::Over {
            party.state = State::Over;
            epoch.left -= 1;
            self.touch(number);
        }
    }

    /// Ends a party in any state.
    pub(super) fn end_party(&mut self, number: u64, rank: WorldRank, error: Option<Error>) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(&rank).filter(|party| party.state != State::Over) else {
            return;
        };
        party.state = State::Over;
        epoch.left -= 1;
        if let Some(error) = error {
            epoch.error.get_or_insert(error);
        }
        self.touch(number);
    }
}
