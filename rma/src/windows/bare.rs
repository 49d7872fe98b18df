//! Bare locks: epochs of which a window keeps only the target.
//!
//! Many epochs take a free lock in mapped memory for one operation, while their window has no other epoch. Opening such
//! an epoch takes the lock by its [word](crate::lock_word), its operations are loads, stores and atomic instructions, and
//! closing it gives the lock back. No other part of the window need know of it. So the epoch is *bare* at first: it has a
//! number, and the window has its target. Every other call and every event of the window first adds it to the window's
//! epochs ([`Core::record_bare`]). From then on it is as any other epoch whose lock was taken by the word.

use samite_fabric::link::{Link, WorldRank};

use super::Windows;
use crate::activation::{Kind, LockKind};
use crate::core::Core;
use crate::window::{Party, State};
use crate::{EpochId, WindowId};

impl Windows {
    /// Opens an epoch with an exclusive lock, and returns it, if the lock is free, can be taken by its word, and the window
    /// has no other epoch.
    pub(super) fn open_bare(&mut self, link: &Link, id: WindowId, target: WorldRank) -> Option<EpochId> {
        let window = self.windows.get_mut(id.slot as usize)?;
        let is_alone =
            window.generation == id.generation && window.bare.is_none() && window.epochs.is_empty();
        let may_take = is_alone && !window.open.is_freed && !window.hints.aggregate;
        let is_living = may_take && window.members.get(target).is_some_and(|member| member.failure.is_none());
        let own = link.identity().rank;
        if !is_living || !window.lock_word(target, own)?.take(own) {
            return None;
        }
        window.bare = Some(target);
        window.calls += 1;
        self.counters.mapped_locks += 1;
        Some(EpochId { window: id, number: window.epochs.reserve() })
    }

    /// Returns true if an epoch has taken its lock without a message, and its window has not recorded it: only a
    /// [`View`](crate::View) of its target was used.
    #[must_use]
    pub fn is_bare(&self, epoch: EpochId) -> bool {
        let window = self.window(epoch.window);
        window.is_ok_and(|window| window.bare.is_some() && window.epochs.is_latest(epoch.number))
    }

    /// Closes an epoch, and returns true, if it is [bare](Self::is_bare) and its lock can be given back within the call.
    /// Otherwise use [`Windows::close`].
    pub fn close_bare(&mut self, link: &Link, epoch: EpochId) -> bool {
        if !self.is_bare(epoch) {
            return false;
        }
        let window = &mut self.windows[epoch.window.slot as usize];
        let own = link.identity().rank;
        let word = window.bare.and_then(|target| window.lock_word(target, own));
        if !word.is_some_and(|word| word.give_back(own)) {
            return false;
        }
        window.bare = None;
        self.counters.epochs += 1;
        true
    }
}

impl Core<'_> {
    /// Adds a bare epoch to the epochs of the window, as one that is active and has its lock.
    #[inline]
    pub(super) fn record_bare(&mut self) {
        if let Some(target) = self.window.bare.take() {
            self.record_lock(target);
        }
    }

    #[cold]
    fn record_lock(&mut self, target: WorldRank) {
        let kind = Kind::Lock { target, kind: LockKind::Exclusive };
        let epoch = self.window.epochs.open_reserved(kind, self.window.calls);
        let number = epoch.number;
        let party = Party { state: State::Granted, is_by_lock_word: true, ..Default::default() };
        epoch.is_active = true;
        epoch.add_party(target, party);
        self.window.active.insert(number, ());
        self.window.deferred = number + 1;
        self.window.open.locks.insert(target, number);
    }
}
