//! Activation and completion of epochs, and their barriers.

use std::sync::atomic::{Ordering, fence};

use samite_fabric::link::{Cause, Fate, Link, Peer, RequestId, WorldRank};
use samite_fabric::wire::Protocol;
use zerocopy::IntoBytes;

use super::{Core, Ranks, Violation};
use crate::activation::Kind;
use crate::outbox::Item;
use crate::window::{Absent, Barrier, Closing, Contact, Epoch, Member, Space, State, Step, Window};
use crate::wire::{HAS_LEFT, Named, Note, kind};
use crate::{Error, Name, barrier};

impl Core<'_> {
    /// Activates the deferred epochs that may be activated.
    pub(super) fn activate_deferred(&mut self) {
        let mut from = self.window.deferred;
        let mut are_active = true;
        while let Some(epoch) = self.window.epochs.from(from) {
            let (number, mut is_active) = (epoch.number, epoch.is_active);
            if !is_active && self.window.may_activate(epoch, are_active) {
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
        self.window.active.insert(number, ());
        let Some(epoch) = self.window.epochs.get_mut(number) else { return };
        epoch.is_active = true;
        self.window.tally.add(epoch.view());
        let is_exposure = matches!(epoch.kind, Kind::Post(_));
        let opening = if let Kind::Fence { opening } = epoch.kind { opening } else { 0 };
        let ranks: Ranks = epoch.parties.keys().collect();
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

    /// Notes that an opening fence is activated, and tells the members that have asked. In a window of at most 8 members
    /// tells all members, and none of them asks.
    pub(crate) fn open_fence(&mut self, opening: u64) {
        self.window.fences.opened = self.window.fences.opened.max(opening);
        let opening = self.window.fences.opened;
        if self.window.tells_all() {
            return self.others().for_each(|rank| self.note(rank, kind::OPENED, Note::new(opening, 0)));
        }
        let is_waiting = |member: &Member| member.asked > 0 && member.asked <= opening;
        let waiting = self.window.members.iter_mut().filter(|(_, member)| is_waiting(member));
        let waiting: Vec<_> =
            waiting.map(|(rank, member)| (rank, (member.asked, member.told) = (0, opening))).collect();
        for (rank, ()) in waiting {
            self.note(rank, kind::OPENED, Note::new(opening, 0));
        }
    }

    /// Begins the exposure of an epoch to one member.
    pub(super) fn expose(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(rank).filter(|party| party.state == State::Idle) else {
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
        let Some(epoch) = self.window.epochs.get_mut(number) else { return };
        self.window.tally.remove(epoch.view());
        epoch.closed = Some(calls);
        self.window.tally.add(epoch.view());
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

    pub(super) fn living_parties(&self, number: u64) -> Ranks {
        let Some(epoch) = self.window.epochs.get(number) else { return Ranks::new() };
        let living = epoch.parties.iter().filter(|(_, party)| party.state != State::Over);
        living.map(|(rank, _)| rank).collect()
    }

    pub(super) fn queue_close(&mut self, number: u64, rank: WorldRank, is_aborted: bool) {
        let is_silent = self.window.ends_silently(number, rank);
        let Some(party) = self.window.party(number, rank) else {
            return;
        };
        if is_silent && party.is_ready() && party.is_done() || self.give_back_by_lock_word(number, rank) {
            return self.end_party(number, rank, None);
        }
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
        self.note_missing(number);
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_last = matches!(epoch.kind, Kind::Free);
        if epoch.closed.is_none() || !epoch.is_active || epoch.left > 0 || !self.pass_barrier(number) {
            return;
        }
        // A member frees the window after its reads have ended, so only those of others can be under way, which have
        // failed or break the protocol.
        let is_used = || {
            self.window.members.values().any(|member| member.needs_window())
                || self.outbox.serves.concern(self.id)
        };
        if is_last && is_used() {
            return;
        }
        self.complete(number);
    }

    pub(super) fn complete(&mut self, number: u64) {
        let Some(epoch) = self.window.epochs.remove(number) else { return };
        self.window.tally.remove(epoch.view());
        let of_barrier = |barrier: Barrier| self.window.failure(barrier.space, barrier.number, Fate::Unknown);
        let failure = epoch.barrier.and_then(of_barrier);
        if failure.is_none() && epoch.barrier.is_some_and(|barrier| barrier.space == Space::Fence) {
            self.note_owed();
        }
        if let Some(id) = epoch.request {
            self.requests.end(id, epoch.error.or(failure).map_or(Ok(()), Err));
        }
        self.counters.epochs += 1;
        self.window.active.remove(number);
        self.rescan();
    }

    /// Notes the members that wait for messages of a fence which has completed here.
    fn note_owed(&mut self) {
        for round in 0..barrier::rounds(self.window.group.len()) {
            for partner in self.partners(barrier::successors, round) {
                let waiting = self.window.members.get_mut(partner);
                if let Some(member) = waiting.filter(|member| !member.held.is_empty() && !member.owes) {
                    member.owes = true;
                    self.outbox.of(member.peer).owed += 1;
                }
            }
        }
    }

    /// Takes the next steps of an epoch's barrier. Returns true if it has ended, or if there is none. Once a member has
    /// died, fences end with an error and do not wait: the members learn of the death in different fences, so some
    /// living members may never call this one. If a member has left, that holds for the fences that it has not called.
    pub(super) fn pass_barrier(&mut self, number: u64) -> bool {
        loop {
            let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier) else {
                return true;
            };
            let is_missing = |window: &Window| window.missing(barrier.space, barrier.number).is_some();
            if is_missing(self.window) {
                return match barrier.space {
                    Space::Fence => {
                        self.send_last_rounds(number, barrier, false);
                        true
                    }
                    Space::Free => self.pass_with_all(number, barrier),
                };
            }
            let size = self.window.group.len();
            let next = match barrier.round {
                None => 0,
                Some(round) => {
                    let has_heard_all = self.has_heard_all(barrier.space, barrier.number, round);
                    if is_missing(self.window) {
                        // The message of a member that has ended did not arrive.
                        continue;
                    }
                    if !has_heard_all {
                        return false;
                    }
                    round + 1
                }
            };
            self.set_round(number, next, false);
            if next >= barrier::rounds(size) {
                return true;
            }
            self.send_round(barrier, next);
            for partner in self.partners(barrier::predecessors, next) {
                self.contact(partner);
            }
        }
    }

    /// Passes the barrier that frees the window, if a member has failed. A message of the barrier stands for all
    /// members of which its sender has heard, and such messages are missing now. So this process asks all members,
    /// because none may access the memory after it was freed. Returns true if all of them free the window or have
    /// failed.
    fn pass_with_all(&mut self, number: u64, barrier: Barrier) -> bool {
        let rounds = barrier::rounds(self.window.group.len());
        let begun = barrier.round.map_or(0, |round| round + 1);
        if !barrier.asks_all {
            if begun > rounds {
                // The barrier had ended before the failure became known.
                return true;
            }
            self.send_last_rounds(number, barrier, true);
            let window = self.window.name;
            for rank in self.others() {
                let member = self.member(rank);
                if !member.frees() && member.failure.is_none() {
                    let peer = member.peer;
                    self.outbox.push(self.link, peer, Item::AskFreed { window });
                }
            }
        }
        self.others().all(|rank| {
            self.window.members.get(rank).is_some_and(|member| member.frees() || member.failure.is_some())
        })
    }

    /// Sends the messages of a barrier that were not sent. They inform the members that wait for them of a failure.
    fn send_last_rounds(&mut self, number: u64, barrier: Barrier, asks_all: bool) {
        let rounds = barrier::rounds(self.window.group.len());
        self.set_round(number, rounds, asks_all);
        let begun = barrier.round.map_or(0, |round| round + 1);
        (begun..rounds).for_each(|round| self.send_round(barrier, round));
    }

    /// Notes the failure of a member. Operations of fences that wait for a member to call the fence end: it may never
    /// call it.
    pub(super) fn note_failed(&mut self, rank: WorldRank) {
        if self.window.failed.is_some() {
            return;
        }
        self.window.failed = Some(rank);
        self.end_waiting_fences();
    }

    /// Ends the operations that wait for a member to call a fence, in epochs that end with a fence in which a member takes
    /// no part.
    fn end_waiting_fences(&mut self) {
        let ends = |epoch: &&Epoch| self.window.fence_failure(epoch.number).is_some();
        let fences = self.window.epochs.iter().filter(ends);
        let parties =
            fences.flat_map(|epoch| epoch.parties.iter().map(|(rank, party)| (epoch.number, rank, party)));
        let waiting = parties.filter(|(.., party)| party.state == State::Asked);
        let waiting: Vec<_> = waiting.map(|(number, rank, _)| (number, rank)).collect();
        waiting.into_iter().for_each(|(number, rank)| self.end_fence_access(number, rank));
    }

    /// Looks if a member has left and will not call the fence that ends an epoch. Then living members may never call the
    /// fence that begins it.
    pub(super) fn note_missing(&mut self, number: u64) {
        if !self.window.has_left || self.window.failed.is_some() {
            return;
        }
        let epoch = self.window.epochs.get(number);
        if let Some(ending) = epoch.and_then(|epoch| self.window.ending_fence(epoch)) {
            for round in 0..barrier::rounds(self.window.group.len()) {
                self.has_heard_all(Space::Fence, ending, round);
            }
        }
    }

    /// Notes that a member which has left is absent from the next fences, if it is a partner in the barrier. This process
    /// may call no fence any more, and is then the only one that can tell others.
    pub(super) fn note_left(&mut self, rank: WorldRank) {
        let rounds = barrier::rounds(self.window.group.len());
        let is_partner = (0..rounds).any(|round| self.partners(barrier::predecessors, round).contains(&rank));
        let member = self.member(rank);
        let (peer, from) = (member.peer, member.fenced[Space::Fence as usize] + 1);
        // A member that frees the window calls no fence either, and all members free it.
        let is_absent = is_partner && !member.frees();
        if is_absent && !self.link.peer(peer).was_told_goodbye() {
            self.note_absent(Space::Fence, Absent { rank, from });
        }
    }

    /// Notes that a member is absent from barriers. If they are fences, tells the own partners in the barrier: only the
    /// partners of the absent member know of the absence by themselves, and those that know of it may call no fence any
    /// more.
    pub(super) fn note_absent(&mut self, space: Space, absent: Absent) {
        if self.window.absent(space).is_some_and(|known| known.from <= absent.from) {
            return;
        }
        self.window.absent.get_or_insert_default()[space as usize] = Some(absent);
        self.touch_active();
        if space == Space::Free {
            return;
        }
        self.end_waiting_fences();
        let rounds = barrier::rounds(self.window.group.len());
        // In one round every member is a partner of every other one.
        for round in (0..rounds).filter(|_| rounds > 1) {
            for partner in self.partners(barrier::successors, round) {
                self.note(partner, kind::ABSENT, Note::new(absent.from, absent.rank.0.into()));
            }
        }
    }

    /// Handles the news of a member that a member is absent from a fence.
    pub(crate) fn absence_told(&mut self, note: &Note) -> Result<(), Violation> {
        let rank = u32::try_from(note.token.get()).map(WorldRank).map_err(|_| Violation("absent member"))?;
        if !self.window.group.contains(rank) {
            return Err(Violation("absent member"));
        }
        self.note_absent(Space::Fence, Absent { rank, from: note.number.get() });
        Ok(())
    }

    /// Ends a fence's operations on a member that may never call the fence, because another member has ended.
    pub(super) fn end_fence_access(&mut self, number: u64, rank: WorldRank) {
        let Some(error) = self.window.fence_failure(number) else { return };
        self.drop_steps(number, rank, &error);
        self.end_party(number, rank, Some(error));
    }

    /// Returns the other members.
    fn others(&self) -> impl Iterator<Item = WorldRank> + use<> {
        let (group, own) = (self.window.group.clone(), self.link.identity().rank);
        (0..group.len()).filter_map(move |index| group.rank(index)).filter(move |rank| *rank != own)
    }

    /// Notes the round of a barrier. At the first one of the barrier that frees the window, answers the members that
    /// have asked for it.
    fn set_round(&mut self, number: u64, round: u32, asks_all: bool) {
        let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier.as_mut()) else {
            return;
        };
        let is_first = barrier.round.is_none();
        (barrier.round, barrier.asks_all) = (Some(round), asks_all);
        if is_first && barrier.space == Space::Free {
            let is_asking = |member: &&mut Box<Member>| member.freeing.is_asked && member.failure.is_none();
            let asking = self.window.members.values_mut().filter(is_asking);
            let asking: Vec<_> = asking.map(|member| member.peer).collect();
            asking.into_iter().for_each(|peer| answer_freed(self.link, peer, self.window.name, false));
        }
    }

    /// Handles a member's question if this process frees the window.
    pub(crate) fn freed_asked(&mut self, rank: WorldRank) {
        let is_entered = |epoch: &Epoch| {
            epoch.barrier.is_some_and(|barrier| barrier.space == Space::Free && barrier.round.is_some())
        };
        let is_entered = self.window.epochs.iter().any(is_entered);
        let (name, member) = (self.window.name, self.member(rank));
        if member.failure.is_some() {
            return self.link.note_stale();
        }
        member.freeing.is_asked = true;
        let peer = member.peer;
        if is_entered {
            answer_freed(self.link, peer, name, false);
        }
    }

    /// Handles the news that a member frees the window, or has freed it. The member answers a question or an
    /// introduction, or had once no room to note a question.
    pub(crate) fn freed(&mut self, rank: WorldRank, is_gone: bool) {
        let member = self.member(rank);
        if member.failure.is_some() {
            return self.link.note_stale();
        }
        member.freeing.is_answered = true;
        if is_gone && matches!(member.contact, Contact::Asked) {
            // The packets that wait for the traits have no receiver. They are messages of the barrier, unless the
            // member violates the protocol.
            for item in self.take_held(rank) {
                self.drop_item(rank, item, &Cause::Left);
            }
        }
        self.touch_active();
    }

    /// Sends the messages of a round.
    fn send_round(&mut self, barrier: Barrier, round: u32) {
        let missing = self.window.missing(barrier.space, barrier.number);
        let has_left = missing.is_some() && self.window.failed.is_none();
        let token = missing.map_or(0, |rank| u64::from(rank.0) + 1);
        let flag = barrier.space as u32 | if has_left { HAS_LEFT } else { 0 };
        let note = Note::new(barrier.number, token).flagged(flag);
        for partner in self.partners(barrier::successors, round) {
            self.note(partner, kind::FENCED, note);
        }
    }

    /// Returns true if the messages of a round have arrived. Notes the end of a member whose message never arrives.
    pub(super) fn has_heard_all(&mut self, space: Space, number: u64, round: u32) -> bool {
        let is_heard = |member: &Member| member.fenced[space as usize] >= number;
        let partners = self.partners(barrier::predecessors, round);
        for rank in &partners {
            let member = self.member(*rank);
            if is_heard(member) {
                continue;
            }
            let (peer, from) = (member.peer, member.fenced[space as usize] + 1);
            let Some(cause) = member.failure.as_deref() else { continue };
            match matches!(cause, Cause::Left) {
                // This process leaves itself, and its partners go on.
                true if self.link.peer(peer).was_told_goodbye() => {}
                true => self.note_absent(space, Absent { rank: *rank, from }),
                false => self.note_failed(*rank),
            }
        }
        partners.into_iter().all(|rank| is_heard(self.member(rank)))
    }

    pub(super) fn partners<I: Iterator<Item = u32>>(&self, of: fn(u32, u32, u32) -> I, round: u32) -> Ranks {
        let group = &self.window.group;
        let own = group.index(self.link.identity().rank).expect("this process is a member");
        of(own, group.len(), round).filter_map(|index| group.rank(index)).collect()
    }
}

/// Tells a member that this process frees a window, or has freed it.
pub(crate) fn answer_freed(link: &mut Link, peer: Peer, window: Name, is_gone: bool) {
    link.answer(peer, Protocol::Rma, kind::FREED, Named::new(window, is_gone).as_bytes());
}
