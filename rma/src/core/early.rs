//! Early ends of epochs and operations: aborts, and failures of members.

use samite_fabric::link::{Cause, Fate, RequestId, Time, WorldRank};

use super::Core;
use crate::Error;
use crate::activation::Kind;
use crate::outbox::Item;
use crate::requests;
use crate::window::{Attached, Closing, State, Step};
use crate::wire::{Note, kind};

impl Core<'_> {
    /// Ends the open epoch of a fence, which has no operations and no request.
    pub(crate) fn discard_fence(&mut self, number: u64) {
        let Some(epoch) = self.window.epoch(number) else { return };
        if let Kind::Fence { opening } = epoch.kind
            && opening > 0
        {
            self.open_fence(opening);
        }
        self.complete(number);
    }

    /// Ends an access that the target has aborted.
    pub(super) fn end_access(&mut self, number: u64, rank: WorldRank) {
        let party = self.window.party(number, rank);
        if party.is_none_or(|party| party.state == State::Over) {
            return;
        }
        self.drop_steps(number, rank, &Error::Aborted { rank, fate: Fate::NotDelivered });
        if let Some(epoch) = self.window.epoch(number) {
            epoch.error.get_or_insert(Error::Aborted { rank, fate: Fate::Unknown });
        }
        self.abort_party(number, rank);
    }

    /// Drops the steps of a party that wait for permission. Their requests end with an error.
    pub(super) fn drop_steps(&mut self, number: u64, rank: WorldRank, error: &Error) {
        let Some(party) = self.window.party(number, rank) else {
            return;
        };
        let steps = std::mem::take(&mut party.steps);
        if party.attached == Attached::Sent {
            party.attached = Attached::Withdrawn;
        }
        if matches!(steps.back(), Some(Step::Close(_))) {
            party.closing = Closing::No;
        }
        for step in steps {
            self.drop_step(number, rank, step, error);
        }
    }

    pub(super) fn drop_step(&mut self, number: u64, rank: WorldRank, step: Step, error: &Error) {
        match step {
            Step::Operation(operation) => self.drop_operation(number, rank, *operation, error.clone()),
            Step::Flush(id) => self.requests.end(id, Err(error.clone())),
            Step::Lock(_) | Step::Close(_) => {}
        }
    }

    /// Ends the access of a party whose steps were dropped: withdraws it if it was not granted, otherwise ends it as
    /// aborted.
    pub(super) fn abort_party(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let (is_start, is_active) = (matches!(epoch.kind, Kind::Start(_)), epoch.is_active);
        let Some(party) = epoch.parties.get_mut(rank) else { return };
        if party.closing != Closing::No || party.state == State::Over {
            return;
        }
        match party.state {
            State::Idle if is_start => {
                let note = Note::new(party.ordinal, 0).flagged(true);
                self.note(rank, kind::DONE, note);
                self.end_party(number, rank, None);
            }
            State::Idle => self.end_party(number, rank, None),
            State::Asked | State::Granted => {
                assert!(is_active, "only active epochs ask");
                party.closing = Closing::Queued;
                self.pass(number, rank, Step::Close(true));
            }
            State::Over => {}
        }
    }

    /// Ends an epoch early. Its request has ended with `error`. Operations that were sent run to their end.
    pub(crate) fn abort(&mut self, number: u64, error: &Error) {
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.request = None;
        if epoch.closed.is_none() {
            self.close(number, None);
        }
        let Some(epoch) = self.window.epoch(number) else { return };
        let (is_exposure, is_active) = (matches!(epoch.kind, Kind::Post(_)), epoch.is_active);
        let has_barrier = epoch.barrier.is_some();
        for rank in self.living_parties(number) {
            if is_exposure {
                self.abort_exposure(number, rank);
                continue;
            }
            self.drop_steps(number, rank, error);
            if has_barrier {
                self.queue_close(number, rank, false);
            } else {
                self.abort_party(number, rank);
            }
        }
        // The other members wait for this process's barrier, so an epoch with a barrier completes after the epochs
        // before it.
        if !is_active && !has_barrier && self.window.epoch(number).is_some_and(|epoch| epoch.left == 0) {
            self.complete(number);
        }
        // Later epochs with other members wait for it no more.
        self.rescan();
        self.touch(number);
    }

    /// Ends the exposure to a member early. If it has begun, the member's answer is awaited.
    pub(super) fn abort_exposure(&mut self, number: u64, rank: WorldRank) {
        let Some(party) = self.window.party(number, rank) else {
            return;
        };
        let note = Note::new(party.ordinal, 0).flagged(true);
        let has_begun = party.state != State::Idle;
        self.note(rank, kind::GRANT, note);
        if !has_begun {
            self.end_party(number, rank, None);
        }
    }

    /// Ends a party whose member has failed.
    pub(crate) fn fail_party(&mut self, number: u64, rank: WorldRank, cause: &Cause) {
        let error = |fate| Error::peer_failed(rank, cause.clone(), fate);
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(rank) else { return };
        let fate = if party.has_begun(&epoch.kind) { Fate::Unknown } else { Fate::NotDelivered };
        let of_steps = if party.attached != Attached::No { Fate::Unknown } else { Fate::NotDelivered };
        for step in std::mem::take(&mut party.steps) {
            self.drop_step(number, rank, step, &error(of_steps));
        }
        if let Some(party) = self.window.party(number, rank) {
            (party.unanswered, party.queued) = (0, 0);
        }
        self.end_party(number, rank, Some(error(fate)));
    }

    /// Handles the end of a member.
    pub(crate) fn fail_member(&mut self, rank: WorldRank, cause: &Cause) {
        match cause {
            Cause::Left => {
                self.window.has_left = true;
                self.note_left(rank);
            }
            _ => self.note_failed(rank),
        }
        self.touch_active();
        let member = self.member(rank);
        if member.failure.is_some() {
            return;
        }
        member.failure = Some(Box::new(cause.clone()));
        member.is_unanswered = false;
        member.misses = Vec::new();
        for item in self.take_held(rank) {
            self.drop_item(rank, item, cause);
        }
        for number in self.epochs_with(rank) {
            self.fail_party(number, rank, cause);
        }
        let never_met = Err(Error::peer_failed(rank, cause.clone(), Fate::NotDelivered));
        self.requests.end_meetings(self.id, rank, &never_met);
        for id in self.requests.with_member(self.id, rank) {
            self.requests.end(id, Err(Error::peer_failed(rank, cause.clone(), Fate::Unknown)));
        }
        self.suspend_word();
        self.window.lock.stays_suspended |= !matches!(cause, Cause::Died(_) | Cause::Left | Cause::Restarted);
        self.release_lock(rank);
    }

    /// Returns the epochs in which a member takes part.
    fn epochs_with(&self, rank: WorldRank) -> Vec<u64> {
        let epochs = self.window.epochs.iter().filter(|epoch| epoch.parties.contains(rank));
        epochs.map(|epoch| epoch.number).collect()
    }

    /// Ends the step of an item that was queued for a member which has failed.
    pub(crate) fn drop_item(&mut self, rank: WorldRank, item: Item, cause: &Cause) {
        if let Item::Step { epoch, step, .. } = item {
            let fate = match &step {
                Step::Operation(operation) if operation.sent == 0 => Fate::NotDelivered,
                // A flush concerns operations that were sent before.
                _ => Fate::Unknown,
            };
            self.drop_step(epoch, rank, step, &Error::peer_failed(rank, cause.clone(), fate));
        }
    }

    /// Drops the operations to a member that are not sent. Synchronization with the member stays queued.
    pub(crate) fn drop_operations(&mut self, rank: WorldRank, error: &Error) {
        let Some(member) = self.window.members.get_mut(rank) else { return };
        for item in std::mem::take(&mut member.held) {
            match item {
                Item::Step { epoch, step: Step::Operation(operation), .. } => {
                    self.refuse(epoch, rank, *operation, error.clone());
                }
                item => self.member(rank).held.push_back(item),
            }
        }
        for number in self.epochs_with(rank) {
            // Steps that were sent with the request for the lock have ended when its answer arrives.
            let Some(party) =
                self.window.party(number, rank).filter(|party| party.attached != Attached::Sent)
            else {
                continue;
            };
            for step in std::mem::take(&mut party.steps) {
                match step {
                    Step::Operation(operation) => {
                        self.drop_operation(number, rank, *operation, error.clone())
                    }
                    step => {
                        if let Some(party) = self.window.party(number, rank) {
                            party.steps.push_back(step);
                        }
                    }
                }
            }
        }
    }

    /// Removes an operation that is recorded. Returns false if it was passed on, or sent with the request for the lock.
    pub(crate) fn withdraw(&mut self, number: u64, rank: WorldRank, id: RequestId, error: &Error) -> bool {
        let Some(party) = self.window.party(number, rank).filter(|party| party.attached != Attached::Sent)
        else {
            return false;
        };
        let is_that = |step: &Step| match step {
            Step::Operation(operation) => operation.request == Some(id),
            Step::Flush(flush) => *flush == id,
            Step::Lock(_) | Step::Close(_) => false,
        };
        let Some(place) = party.steps.iter().position(is_that) else { return false };
        if let Some(step) = party.steps.remove(place) {
            self.drop_step(number, rank, step, error);
        }
        true
    }

    /// Begins the request that ends when an epoch has completed.
    pub(crate) fn begin_close(&mut self, number: u64, deadline: Time) -> RequestId {
        let epoch = self.epoch_id(number);
        self.requests.begin(self.link, epoch, requests::Kind::Close, deadline)
    }
}
