//! The steps of access epochs: recorded, passed on when the target permits, and sent.

use samite_fabric::link::{Fate, Link, WorldRank};
use samite_fabric::{Port, Remote};

use super::{Core, check_place};
use crate::activation::Kind;
use crate::mapped::Mapped;
use crate::outbox::Item;
use crate::path::{self, Means, Path, WORD};
use crate::transfers::TransferId;
use crate::window::{Attached, Closing, Contact, Mapping, Operation, Party, State, Step, Window};
use crate::wire::{Note, PASSES, kind};
use crate::{Error, LockKind};

/// The bytes of an operation that is carried out within a call.
pub(crate) enum Bytes<'a> {
    /// The memory of the operation or of its request.
    Own,
    /// The operands of an operation without a result.
    Data(&'a [u8]),
    /// The operands of an operation with a result, and the room for the result.
    Room(&'a mut [u8]),
}

impl Core<'_> {
    /// Adds a step to an access epoch.
    pub(crate) fn record(&mut self, number: u64, rank: WorldRank, step: Step) {
        let failure = self.member(rank).failure.clone();
        let of_fence = self.window.fence_failure(number);
        let aggregates = self.window.hints.aggregate;
        let Some(epoch) = self.window.epoch(number) else { return };
        let mut is_new = false;
        let party = epoch.parties.get_or_insert_with(rank, || {
            is_new = true;
            Default::default()
        });
        epoch.left += usize::from(is_new);
        party.is_after_flush = matches!(step, Step::Flush(_));
        match &step {
            Step::Operation(operation) => {
                party.unanswered += usize::from(operation.action.has_reply());
                party.recorded = party.recorded.saturating_add(operation.attached_len());
                let may_wait = aggregates && operation.request.is_some();
                if may_wait && !std::mem::replace(&mut party.has_requests, true) {
                    self.outbox.recording.push((self.id, number, rank));
                }
            }
            Step::Flush(_) => party.is_urged = true,
            Step::Lock(_) | Step::Close(_) => {}
        }
        // The target has aborted the access.
        let is_over =
            party.state == State::Over || party.closing != Closing::No && !matches!(step, Step::Close(_));
        let is_active = epoch.is_active;
        if is_over && failure.is_none() {
            let aborted = Error::Aborted { rank, fate: Fate::NotDelivered };
            let error = of_fence.unwrap_or(aborted);
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

    /// Asks a target for its permission at the first operation of an epoch that names no targets when it is opened. The
    /// operation can then be carried out within the call, if the permission is there.
    pub(crate) fn seek_access(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number).filter(|epoch| epoch.is_active) else { return };
        if !epoch.parties.contains(rank) {
            epoch.add_party(rank, Party::default());
            self.ask(number, rank);
        }
    }

    /// Asks a target for its permission, unless that was done, or is given already.
    pub(super) fn ask(&mut self, number: u64, rank: WorldRank) {
        let (kind, ordinal) = {
            let Some(epoch) = self.window.epoch(number) else { return };
            let Some(party) = epoch.parties.get(rank).filter(|party| party.state == State::Idle) else {
                return;
            };
            (epoch.kind.clone(), party.ordinal)
        };
        if self.is_recording(number, rank) {
            // The introduction is over when the epoch is closed.
            return self.contact(rank);
        }
        self.note_missing(number);
        let is_missing = self.window.fence_failure(number).is_some();
        if self.take_by_lock_word(number, rank, &kind) {
            return;
        }
        let may_attach = self.may_attach(number, rank);
        let own = self.link.identity().rank;
        let flag = self.window.lock_flag(&kind);
        let member = self.member(rank);
        let mut asked = (State::Asked, ordinal);
        match kind {
            Kind::Start(_) if member.revoked.take(ordinal) => return self.end_access(number, rank),
            Kind::Start(_) if member.granted >= ordinal => asked.0 = State::Granted,
            Kind::Start(_) => self.contact(rank),
            Kind::Lock { .. } | Kind::LockAll => {
                member.locks += 1;
                asked.1 = member.locks;
                if may_attach {
                    self.pass(number, rank, Step::Lock(false));
                } else {
                    self.note(rank, kind::LOCK, Note::new(asked.1, 0).flagged(flag));
                }
            }
            Kind::Fence { opening } if opening > 0 && member.opened >= opening => asked.0 = State::Granted,
            // The barrier before may have ended although the target has not called it.
            Kind::Fence { .. } if is_missing => return self.end_fence_access(number, rank),
            Kind::Fence { opening: 0 } => asked.0 = State::Granted,
            Kind::Fence { .. } if rank != own && self.window.tells_all() => self.contact(rank),
            Kind::Fence { opening } => self.note(rank, kind::ASK, Note::new(opening, 0)),
            Kind::Post(_) | Kind::Free => unreachable!("they have no steps"),
        }
        if let Some(party) = self.window.party(number, rank) {
            (party.state, party.ordinal) = asked;
        }
    }

    /// Takes the lock of an epoch by the lock word, if it is exclusive and free. Returns false otherwise.
    fn take_by_lock_word(&mut self, number: u64, rank: WorldRank, kind: &Kind) -> bool {
        if !matches!(kind, Kind::Lock { kind: LockKind::Exclusive, .. }) || self.window.hints.aggregate {
            return false;
        }
        let own = self.link.identity().rank;
        // With one active epoch no shared lock is awaited.
        let held = self.window.active.len() == 1 || self.window.holds_lock();
        let may_take = self.member(rank).failure.is_none();
        if !may_take || !self.window.lock_word(rank, own).is_some_and(|word| word.take(own)) {
            return false;
        }
        self.counters.mapped_locks += 1;
        if let Some(party) = self.window.party(number, rank) {
            (party.state, party.is_by_lock_word) = (State::Granted, true);
        }
        self.lock_obtained(held);
        true
    }

    /// Gives a lock back that was taken by the lock word, if all operations under it are complete, and the owner has not
    /// suspended the word. Returns false otherwise.
    pub(super) fn give_back_by_lock_word(&mut self, number: u64, rank: WorldRank) -> bool {
        let party = self.window.party(number, rank);
        let is_complete =
            party.is_some_and(|party| party.is_by_lock_word && party.is_flushed() && party.is_done());
        let own = self.link.identity().rank;
        is_complete && self.window.lock_word(rank, own).is_some_and(|word| word.give_back(own))
    }

    /// Tells a target whose shared lock is awaited that this process holds another lock now. The target then grants its
    /// lock before those of members that may wait for this process.
    pub(super) fn pass_lock(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epochs.get(number) else { return };
        let flag = self.window.lock_flag(&epoch.kind);
        let party = epoch.parties.get(rank).filter(|party| flag == PASSES && party.state == State::Asked);
        if let Some(ordinal) = party.map(|party| party.ordinal) {
            self.note(rank, kind::LOCK, Note::new(ordinal, 0).flagged(flag));
        }
    }

    /// Passes on the steps to a target that has given its permission.
    pub(super) fn release(&mut self, number: u64, rank: WorldRank) {
        loop {
            let Some(party) = self.window.party(number, rank) else {
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
        if let Some(party) = self.window.party(number, rank) {
            party.queued += 1;
        }
        let window = self.id;
        self.send(rank, Item::Step { window, to: rank, epoch: number, step });
    }

    /// Notes that all packets of a step were sent.
    pub(crate) fn sent(&mut self, number: u64, rank: WorldRank, step: Step) {
        let is_silent = self.window.ends_silently(number, rank);
        if let Some(party) = self.window.party(number, rank) {
            party.queued -= 1;
            match step {
                Step::Lock(true) => party.attached = Attached::Sent,
                Step::Lock(false) => {}
                Step::Close(_) if is_silent => party.closing = Closing::Answered,
                Step::Close(_) => party.closing = Closing::Sent,
                Step::Operation(ref operation) => party.has_packets |= operation.transfer.is_none(),
                Step::Flush(_) if party.are_packets_applied() => {}
                Step::Flush(_) => {
                    party.has_packets = false;
                    party.flushes += 1;
                }
            }
        }
        match step {
            Step::Operation(operation) => match operation.transfer {
                Some(id) => {
                    let is_read = operation.action.has_reply();
                    *if is_read { &mut self.counters.got } else { &mut self.counters.put } += 1;
                    self.close_transfer(id, false);
                }
                None => {
                    self.requests.recorded -= operation.cost();
                    self.counters.operations += 1;
                    self.end_sending(*operation);
                }
            },
            Step::Lock(_) | Step::Close(_) | Step::Flush(_) => {}
        }
        self.check_party(number, rank);
    }

    /// Notes that no further piece of an operation is posted. The operation ends when its pieces have ended.
    pub(super) fn close_transfer(&mut self, id: TransferId, has_failed: bool) {
        self.outbox.transfers.close(id, has_failed);
        self.link.defer();
    }

    /// Notes that the first piece of an operation was posted.
    pub(crate) fn transfer_begun(&mut self, number: u64, rank: WorldRank, is_read: bool) {
        if let Some(party) = self.window.party(number, rank) {
            party.transfers += 1;
            party.reads += usize::from(is_read);
            party.unanswered -= usize::from(is_read);
        }
    }

    /// Notes that all pieces of an operation have ended.
    pub(crate) fn transferred(&mut self, number: u64, rank: WorldRank, is_read: bool) {
        if let Some(party) = self.window.party(number, rank) {
            party.transfers -= 1;
            party.reads -= usize::from(is_read);
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

    /// Carries out an operation on mapped memory. Returns false if the target's part is not mapped, or if the operation
    /// must take the way of packets. The target has granted the access.
    pub(crate) fn carry_out<P: Port>(
        &mut self,
        port: &mut P,
        rank: WorldRank,
        operation: &Operation,
        bytes: Bytes<'_>,
    ) -> bool {
        let action = operation.action;
        if path::choose(action, operation.len, Means::MAPPED) != Path::Memory {
            return false;
        }
        let Some(Contact::Known(traits)) = self.window.members.get(rank).map(|member| member.contact) else {
            return false;
        };
        let base = check_place(rank, traits, operation).expect("it was checked");
        let is_unshared = self.window.hints.unshared_accumulates;
        let mapped = self.window.mapped(self.link, port, rank);
        // A target that has ended its part without this process may use the memory for something else. Packets to it
        // fail as soon as its end is known here.
        let Some(mapped) = mapped.filter(|mapped| mapped.is_open()) else { return false };
        match (bytes, operation.request) {
            (Bytes::Data(data), _) => mapped.write_runs(base, operation, data, is_unshared),
            (Bytes::Room(room), _) => mapped.fetch_runs(base, operation, room, is_unshared),
            (Bytes::Own, Some(id)) if action.has_reply() => {
                mapped.fetch_into(base, operation, self.requests.take_reply_now(id), is_unshared);
            }
            (Bytes::Own, _) => {
                mapped.write_from(base, operation, self.requests.data_of(operation), is_unshared)
            }
        }
        self.counters.mapped += 1;
        true
    }

    /// Notes that a step was carried out on mapped memory.
    pub(crate) fn carried_out(&mut self, number: u64, rank: WorldRank, operation: Operation) {
        let has_reply = operation.action.has_reply();
        if let Some(party) = self.window.party(number, rank) {
            party.queued -= 1;
            party.unanswered -= usize::from(has_reply);
        }
        self.requests.recorded -= operation.cost();
        self.end_carried_out(operation);
        self.check_party(number, rank);
    }

    /// Ends the request of an operation that was carried out on mapped memory.
    pub(crate) fn end_carried_out(&mut self, operation: Operation) {
        match operation.request {
            Some(id) if operation.action.has_reply() => self.requests.end(id, Ok(())),
            _ => self.end_sending(operation),
        }
    }

    /// Notes that all replies to an operation have arrived.
    pub(crate) fn answered(&mut self, number: u64, rank: WorldRank) {
        // After the goodbye to a peer, its last answers concern parties that have ended.
        if let Some(party) = self.window.party(number, rank).filter(|party| party.state != State::Over) {
            party.unanswered -= 1;
        }
        self.check_party(number, rank);
    }

    /// Notes that a party is over, if it is.
    pub(super) fn check_party(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_start = matches!(epoch.kind, Kind::Start(_));
        let Some(party) = epoch.parties.get_mut(rank) else { return };
        let is_sent = is_start && party.closing == Closing::Sent;
        let is_closed = party.closing == Closing::Answered || is_sent;
        if !is_closed || !party.is_done() || party.state == State::Over {
            return;
        }
        // The answer of a target with a dynamic window is awaited, because it may tell of a write that was refused.
        if !is_sent || !self.window.is_dynamic_at(rank) {
            self.end_party(number, rank, None);
        }
    }

    /// Ends a party in any state.
    pub(super) fn end_party(&mut self, number: u64, rank: WorldRank, error: Option<Error>) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(rank).filter(|party| party.state != State::Over) else {
            return;
        };
        party.state = State::Over;
        epoch.left -= 1;
        if let Some(error) = error {
            epoch.error.get_or_insert(error);
        }
        if epoch.has_ended_early() {
            // A later epoch may have waited for this member alone.
            self.rescan();
        }
        self.touch(number);
    }
}

impl Window {
    /// Returns a target's part in the memory of this process. The first call tries to map it.
    pub(crate) fn mapped<P: Port>(&mut self, link: &Link, port: &mut P, rank: WorldRank) -> Option<&Mapped> {
        let member = self.members.get_mut(rank)?;
        let Contact::Known(traits) = member.contact else { return None };
        if matches!(member.mapping, Mapping::Untried) {
            let at = Remote { key: traits.key.get(), address: traits.address.get() };
            let len = usize::try_from(traits.len.get()).ok()?.checked_next_multiple_of(WORD);
            let len = traits.lock_distance().map_or(len, |distance| distance.checked_add(WORD));
            let path = link.peer(member.peer).path().filter(|_| at.key != 0);
            let memory = path.zip(len).and_then(|(path, len)| port.map(path, at, len));
            member.mapping = memory.and_then(Mapped::new).map_or(Mapping::Refused, Mapping::Mapped);
        }
        let own = self.exposed.as_ref().and_then(|exposed| exposed.mapped.as_ref());
        match (own, &member.mapping) {
            (Some(mapped), _) if rank == link.identity().rank => Some(mapped),
            (_, Mapping::Mapped(mapped)) => Some(mapped),
            _ => None,
        }
    }
}
