//! Packets of synchronization from members.

use samite_fabric::link::{Fate, WorldRank};

use super::{Core, Numbers, Violation};
use crate::activation::Kind;
use crate::locks::{Lock, Released};
use crate::ordinals::Over;
use crate::window::{Absent, Attached, Attachment, Closing, Contact, Epoch, Space, State};
use crate::wire::{BY_WORD, HAS_LEFT, Note, PASSES, kind};
use crate::{Error, LockKind};

impl Core<'_> {
    /// Handles the message of a member's barrier.
    pub(crate) fn fenced(&mut self, rank: WorldRank, note: &Note) -> Result<(), Violation> {
        let has_left = note.flag.get() & HAS_LEFT != 0;
        let space = if note.flag.get() & !HAS_LEFT == 0 { Space::Fence } else { Space::Free };
        let heard = &mut self.member(rank).fenced[space as usize];
        if note.number.get() != *heard + 1 {
            return Err(Violation("number of a barrier"));
        }
        *heard += 1;
        if let Some(failed) = note.token.get().checked_sub(1) {
            let failed = WorldRank(u32::try_from(failed).unwrap_or(u32::MAX));
            if !self.window.group.contains(failed) {
                return Err(Violation("failed member"));
            }
            match has_left {
                true => self.note_absent(space, Absent { rank: failed, from: note.number.get() }),
                false => self.note_failed(failed),
            }
        }
        self.touch_active();
        Ok(())
    }

    pub(crate) fn touch_active(&mut self) {
        self.touched.extend(self.window.active.keys());
    }

    /// Handles a lock that was granted.
    pub(crate) fn locked(&mut self, rank: WorldRank, ordinal: u64) -> Result<(), Violation> {
        if ordinal == 0 || ordinal > self.member(rank).locks {
            return Err(Violation("number of a lock"));
        }
        let held = self.window.holds_lock();
        for number in self.waiting(rank, Kind::has_locks, |party_ordinal| party_ordinal == ordinal) {
            self.grant(number, rank);
        }
        self.lock_obtained(held);
        Ok(())
    }

    /// Passes shared locks that are awaited, if this process holds a lock now. `held` is true if it has held one before, or
    /// if no other epoch awaits a lock.
    pub(super) fn lock_obtained(&mut self, held: bool) {
        if !held && self.window.holds_lock() {
            let active: Numbers = self.window.active.keys().collect();
            for number in active {
                for rank in self.living_parties(number) {
                    self.pass_lock(number, rank);
                }
            }
        }
    }

    /// Handles the news of an exposure.
    pub(crate) fn granted(
        &mut self,
        rank: WorldRank,
        ordinal: u64,
        is_revoked: bool,
    ) -> Result<(), Violation> {
        let is_of = |kind: &Kind| matches!(kind, Kind::Start(_));
        let member = self.member(rank);
        if is_revoked {
            return self.revoked(rank, ordinal);
        }
        if ordinal <= member.granted {
            return Err(Violation("number of an exposure"));
        }
        member.granted = ordinal;
        for number in self.waiting(rank, is_of, |party_ordinal| party_ordinal <= ordinal) {
            self.grant(number, rank);
        }
        Ok(())
    }

    /// Handles the news that an exposure was aborted. If it had begun, the member awaits the end of the access, which
    /// may not have begun here.
    pub(super) fn revoked(&mut self, rank: WorldRank, ordinal: u64) -> Result<(), Violation> {
        let member = self.member(rank);
        let is_opened = ordinal <= member.accesses;
        let is_awaited = !is_opened && ordinal <= member.granted;
        if !is_opened && !member.revoked.insert(ordinal) {
            return Err(Violation("number of an exposure"));
        }
        if is_awaited {
            self.note(rank, kind::DONE, Note::new(ordinal, 0).flagged(true));
        }
        let is_access = |epoch: &&Epoch| {
            let party = epoch.parties.get(rank);
            matches!(epoch.kind, Kind::Start(_)) && party.is_some_and(|party| party.ordinal == ordinal)
        };
        let access = self.window.epochs.iter().find(is_access).map(|epoch| epoch.number);
        if let Some(number) = access.filter(|_| is_opened) {
            self.end_access(number, rank);
        }
        Ok(())
    }

    /// Handles the news that a member has activated an opening fence.
    pub(crate) fn opened(&mut self, rank: WorldRank, opening: u64) {
        let member = self.member(rank);
        member.opened = member.opened.max(opening);
        let opened = member.opened;
        let is_of = |kind: &Kind| matches!(kind, Kind::Fence { opening } if *opening <= opened);
        for number in self.waiting(rank, is_of, |_| true) {
            self.grant(number, rank);
        }
    }

    /// Returns the active epochs that wait for the permission of a member.
    pub(super) fn waiting(
        &self,
        rank: WorldRank,
        is_of: impl Fn(&Kind) -> bool,
        has_ordinal: impl Fn(u64) -> bool,
    ) -> Numbers {
        let is_waiting = |number: &u64| {
            self.window.epochs.get(*number).is_some_and(|epoch| {
                let party = epoch.parties.get(rank);
                is_of(&epoch.kind)
                    && party.is_some_and(|party| party.state == State::Asked && has_ordinal(party.ordinal))
            })
        };
        self.window.active.keys().filter(is_waiting).collect()
    }

    pub(super) fn grant(&mut self, number: u64, rank: WorldRank) {
        if let Some(party) = self.window.party(number, rank) {
            party.state = State::Granted;
            // If steps came with the request for a lock, the target had no room for them.
            party.attached = Attached::No;
        }
        self.release(number, rank);
    }

    /// Handles the answer to the end of an access. `error` is that of a write that the member has refused.
    pub(crate) fn closed(
        &mut self,
        rank: WorldRank,
        number: u64,
        error: Option<Error>,
    ) -> Result<(), Violation> {
        if error.is_some() && !self.window.is_dynamic_at(rank) {
            return Err(Violation("refused write"));
        }
        let Some(epoch) = self.window.epoch(number) else {
            self.link.note_stale();
            return Ok(());
        };
        match epoch.parties.get_mut(rank) {
            Some(party) if party.closing == Closing::Sent => {
                party.closing = Closing::Answered;
                if let Some(error) = error {
                    epoch.error.get_or_insert(error);
                }
            }
            Some(party) if party.state == State::Over => {}
            _ => return Err(Violation("end of an epoch")),
        }
        self.check_party(number, rank);
        Ok(())
    }

    /// Handles the end of a member's access to an exposure.
    pub(crate) fn done(&mut self, rank: WorldRank, ordinal: u64, is_aborted: bool) -> Result<(), Violation> {
        match self.member(rank).exposed.end(ordinal, is_aborted) {
            Over::Of(number) => {
                let error = is_aborted.then_some(Error::Aborted { rank, fate: Fate::Unknown });
                self.end_party(number, rank, error);
                Ok(())
            }
            Over::Early | Over::Stale => Ok(()),
            Over::Invalid => Err(Violation("number of an access")),
        }
    }

    /// Handles the request of this process's lock, and the operations that came with it.
    pub(crate) fn lock_requested(
        &mut self,
        rank: WorldRank,
        note: &Note,
        attached: Option<Attachment>,
    ) -> Result<(), Violation> {
        let passes = note.flag.get() == PASSES;
        let kind = if note.flag.get() == 0 || passes { LockKind::Shared } else { LockKind::Exclusive };
        let member = self.member(rank);
        if passes && member.lock > 0 && note.number.get() == member.lock {
            self.window.lock.pass(rank);
            self.grant_locks();
            return Ok(());
        }
        if note.number.get() != member.lock + 1 {
            return Err(Violation("number of a lock"));
        }
        if member.is_answering {
            return Err(Violation("lock before the answer to the last one"));
        }
        member.lock += 1;
        member.is_applied = false;
        self.suspend_word();
        if self.window.lock.is_held_by_lock_word(rank) {
            // A member asks after it has given the lock back. Another member has written its rank to the word.
            self.link.note_stale();
            self.window.lock.release(rank);
        }
        if !self.window.lock.request(rank, kind) {
            return Err(Violation("second lock"));
        }
        if passes {
            self.window.lock.pass(rank);
        }
        if let Some(attached) = attached {
            self.attach(rank, attached);
        }
        self.grant_locks();
        self.resume_word();
        Ok(())
    }

    /// Suspends this process's lock word, and notes who holds the lock by it. A member that has failed holds it no more.
    pub(super) fn suspend_word(&mut self) {
        if self.window.lock.is_suspended {
            return;
        }
        let Some(word) = self.window.own_lock_word() else { return };
        let holder = word.suspend();
        self.window.lock.is_suspended = true;
        if let Some(holder) = holder.filter(|holder| self.window.group.contains(*holder))
            && self.member(holder).failure.is_none()
        {
            self.window.lock.adopt(holder);
        }
    }

    /// Resumes this process's lock word if nobody holds or awaits the lock.
    pub(super) fn resume_word(&mut self) {
        let Lock { is_suspended, stays_suspended, .. } = self.window.lock;
        let may_resume = is_suspended && !stays_suspended && self.window.lock.is_idle();
        if let Some(word) = self.window.own_lock_word().filter(|_| may_resume) {
            word.resume();
            self.window.lock.is_suspended = false;
        }
    }

    /// Looks into this process's lock word, and returns true if a member holds the lock by it. If somebody does, the word
    /// is suspended from now on.
    pub(crate) fn ask_word_for(&mut self, rank: WorldRank) -> bool {
        self.suspend_word();
        self.resume_word();
        self.window.lock.is_held_by_lock_word(rank)
    }

    /// Handles the release of this process's lock, or the withdrawal of a request for it. Returns false if the answer
    /// is queued, because the operations that came with the request were applied, and the answer to them is earlier.
    pub(crate) fn unlocked(&mut self, rank: WorldRank, note: &Note) -> Result<bool, Violation> {
        if note.flag.get() == BY_WORD {
            if note.number.get() != 0 {
                return Err(Violation("release of a lock by its word"));
            }
            match self.ask_word_for(rank) {
                true => drop(self.release_lock(rank)),
                // Another member has overwritten the word.
                false => self.link.note_stale(),
            }
            return Ok(true);
        }
        let member = self.member(rank);
        let is_known = note.number.get() == member.lock;
        if is_known && std::mem::take(&mut member.is_applied) {
            let Contact::Known(traits) = member.contact else {
                unreachable!("packets of unknown members are refused")
            };
            let answer = Note { flag: traits.slot, ..Note::new(0, note.token.get()) };
            self.note(rank, kind::CLOSED, answer);
            return Ok(false);
        }
        if !is_known || !self.release_lock(rank) {
            return Err(Violation("release of a lock"));
        }
        Ok(true)
    }

    /// Ends a member's lock or its request. Returns false if it has none.
    pub(super) fn release_lock(&mut self, rank: WorldRank) -> bool {
        let released = self.window.lock.release(rank);
        let attached = self.window.members.get_mut(rank).and_then(|member| member.attached.take());
        self.outbox.attached -= attached.map_or(0, |attached| attached.cost());
        self.grant_locks();
        self.resume_word();
        self.rescan();
        released != Released::Neither
    }

    pub(super) fn grant_locks(&mut self) {
        // While the program has the memory, only this process has its lock, unless a slice was leaked.
        while !self.window.is_taken
            && let Some(rank) = self.window.lock.grant()
        {
            self.counters.locks += 1;
            let member = self.member(rank);
            let (peer, ordinal) = (member.peer, member.lock);
            match member.attached.take() {
                Some(attached) if self.can_apply_all(peer, &attached) => {
                    self.apply_attached(rank, attached);
                    self.window.lock.release(rank);
                }
                ignored => {
                    // Operations on memory that is not attached are sent again, and each gets its own answer.
                    self.outbox.attached -= ignored.map_or(0, |attached| attached.cost());
                    self.note(rank, kind::LOCKED, Note::new(ordinal, 0));
                }
            }
        }
    }

    /// Handles the question for an opening fence. The question needs no answer if an earlier answer tells of this fence
    /// or a later one, and that answer may still wait to be sent.
    pub(crate) fn asked(&mut self, rank: WorldRank, opening: u64) {
        let opened = self.window.fences.opened;
        let member = self.member(rank);
        if opened < opening {
            member.asked = opening;
        } else if member.told < opening {
            member.told = opened;
            self.note(rank, kind::OPENED, Note::new(opened, 0));
        }
    }
}
