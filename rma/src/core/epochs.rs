//! Activation and completion of epochs, and their barriers.

use std::sync::atomic::{Ordering, fence};

use samite_fabric::link::{Cause, Fate, RequestId, WorldRank};

use super::Core;
use crate::activation::Kind;
use crate::window::{Closing, Member, Space, State, Step};
use crate::wire::{Note, kind};
use crate::{Error, barrier};

impl Core<'_> {
    /// Activates the deferred epochs that may be activated.
    pub(super) fn activate_deferred(&mut self) {
        let mut from = self.window.deferred;
        let mut are_active = true;
        while let Some(epoch) = self.window.epochs.from(from) {
            let (number, mut is_active) = (epoch.number, epoch.is_active);
            if !is_active && self.window.may_activate(epoch) {
                self.activate(number);
                is_active = true;
            }
            are_active &= is_active;
            from = number + 1;
            if are_active {
                self.window.deferred = from;
            } else if !self.window.hints.overtake {
                return;
            }
        }
    }

    pub(super) fn activate(&mut self, number: u64) {
        self.window.active.insert(number);
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.is_active = true;
        let is_exposure = matches!(epoch.kind, Kind::Post(_));
        let opening = if let Kind::Fence { opening } = epoch.kind { opening } else { 0 };
        let ranks: Vec<_> = epoch.parties.keys().copied().collect();
        if opening > 0 {
            self.open_fence(opening);
        }
        for rank in ranks {
            if is_exposure {
                self.expose(number, rank);
            } else {
                self.ask(number, rank);
                self.release(number, rank);
            }
        }
        self.touch(number);
    }

    /// Notes that an opening fence is activated, and answers the members that wait for it.
    pub(crate) fn open_fence(&mut self, opening: u64) {
        self.window.fences.opened = self.window.fences.opened.max(opening);
        let opening = self.window.fences.opened;
        let is_waiting = |member: &Member| member.asked > 0 && member.asked <= opening;
        let waiting = self.window.members.iter_mut().filter(|(_, member)| is_waiting(member));
        let waiting: Vec<_> =
            waiting.map(|(rank, member)| (*rank, (member.asked, member.told) = (0, opening))).collect();
        for (rank, ()) in waiting {
            self.note(rank, kind::OPENED, Note::new(opening, 0));
        }
    }

    /// Begins the exposure of an epoch to one member.
    pub(super) fn expose(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(&rank).filter(|party| party.state == State::Idle) else {
            return;
        };
        party.state = State::Asked;
        let ordinal = party.ordinal;
        let member = self.member(rank);
        if let Some(cause) = member.failure.as_deref().cloned() {
            return self.end_party(number, rank, Some(Error::peer_failed(rank, cause, Fate::Unknown)));
        }
        if member.exposed.begin(ordinal, number) {
            self.note(rank, kind::GRANT, Note::new(ordinal, 0));
        } else {
            self.end_party(number, rank, Some(Error::Aborted { rank, fate: Fate::NotDelivered }));
        }
    }

    /// Closes an epoch. Its request ends when the epoch completes.
    pub(crate) fn close(&mut self, number: u64, request: Option<RequestId>) {
        self.window.calls += 1;
        let calls = self.window.calls;
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.closed = Some(calls);
        epoch.request = request;
        let has_steps = !matches!(epoch.kind, Kind::Post(_));
        if has_steps {
            // The packets that end the access, to any rank on any path, must not overtake stores to mapped memory.
            fence(Ordering::SeqCst);
            for rank in self.living_parties(number) {
                self.queue_close(number, rank, false);
            }
        }
        self.touch(number);
        self.rescan();
    }

    pub(super) fn living_parties(&mut self, number: u64) -> Vec<WorldRank> {
        let Some(epoch) = self.window.epoch(number) else { return Vec::new() };
        let living = epoch.parties.iter().filter(|(_, party)| party.state != State::Over);
        living.map(|(rank, _)| *rank).collect()
    }

    pub(super) fn queue_close(&mut self, number: u64, rank: WorldRank, is_aborted: bool) {
        let Some(party) = self.window.party(number, rank) else {
            return;
        };
        if party.closing == Closing::No {
            party.closing = Closing::Queued;
            self.record(number, rank, Step::Close(is_aborted));
        }
    }

    /// Completes an epoch if all its parties are over, and its barrier.
    pub(super) fn check_completion(&mut self, number: u64) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_last = matches!(epoch.kind, Kind::Free);
        if epoch.closed.is_none() || !epoch.is_active || epoch.left > 0 || !self.pass_barrier(number) {
            return;
        }
        // A member frees the window after its reads have ended, so only those of others can be under way, which have
        // failed or break the protocol.
        let is_used =
            || self.window.members.values().any(Member::needs_window) || self.outbox.serves.concern(self.id);
        if is_last && is_used() {
            return;
        }
        self.complete(number);
    }

    pub(super) fn complete(&mut self, number: u64) {
        let failed = self.window.failed;
        let Some(epoch) = self.window.epochs.remove(number) else { return };
        let has_barrier = epoch.barrier.is_some();
        let error = epoch.error.or_else(|| {
            let rank = failed.filter(|_| has_barrier)?;
            let known = self.window.members.get(&rank).and_then(|member| member.failure.as_deref().cloned());
            let cause = known.unwrap_or_else(|| Cause::Died("reported by another member".into()));
            Some(Error::peer_failed(rank, cause, Fate::Unknown))
        });
        if let Some(id) = epoch.request {
            self.requests.end(id, error.map_or(Ok(()), Err));
        }
        self.counters.epochs += 1;
        self.window.active.remove(&number);
        self.rescan();
    }

    /// Takes the next steps of an epoch's barrier. Returns true if it has ended, or if there is none.
    pub(super) fn pass_barrier(&mut self, number: u64) -> bool {
        loop {
            let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier) else {
                return true;
            };
            let size = self.window.group.len();
            let next = match barrier.round {
                None => 0,
                Some(round) if self.has_heard_all(barrier.space, barrier.number, round) => round + 1,
                Some(_) => return false,
            };
            if let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier.as_mut()) {
                barrier.round = Some(next);
            }
            if next >= barrier::rounds(size) {
                return true;
            }
            let token = self.window.failed.map_or(0, |rank| u64::from(rank.0) + 1);
            let note = Note::new(barrier.number, token).flagged(barrier.space == Space::Free);
            for partner in self.partners(barrier::successors, next) {
                self.note(partner, kind::FENCED, note);
            }
            for partner in self.partners(barrier::predecessors, next) {
                self.contact(partner);
            }
        }
    }

    /// Returns true if the messages of a round have arrived. That of a member which has failed never arrives.
    pub(super) fn has_heard_all(&mut self, space: Space, number: u64, round: u32) -> bool {
        self.partners(barrier::predecessors, round).into_iter().all(|rank| {
            let member = self.member(rank);
            let is_heard = member.fenced[space as usize] >= number;
            if !is_heard && member.failure.is_some() {
                self.window.failed.get_or_insert(rank);
                return true;
            }
            is_heard
        })
    }

    pub(super) fn partners<I: Iterator<Item = u32>>(
        &self,
        of: fn(u32, u32, u32) -> I,
        round: u32,
    ) -> Vec<WorldRank> {
        let group = &self.window.group;
        let own = group.index(self.link.identity().rank).expect("this process is a member");
        of(own, group.len(), round).filter_map(|index| group.rank(index)).collect()
    }
}
