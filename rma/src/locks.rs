//! The lock of a process's part of a window, at its owner.

use std::collections::{BTreeSet, VecDeque};

use samite_fabric::link::WorldRank;

use crate::LockKind;

/// The holders of the lock, and the members that wait for it, first in, first out. A member holds or awaits the lock at
/// most once. Members that hold locks of other parts pass those that wait ([`Lock::pass`]).
#[derive(Debug, Default)]
pub(crate) struct Lock {
    exclusive: Option<WorldRank>,
    shared: BTreeSet<WorldRank>,
    waiting: VecDeque<(WorldRank, LockKind)>,
    /// True if the owner has suspended the [lock word](crate::lock_word).
    pub(crate) is_suspended: bool,
    /// True if the owner must not resume the word: it has given up a member that may be alive, and may take the lock.
    pub(crate) stays_suspended: bool,
    /// True if the holder of the exclusive lock has taken it by the lock word.
    is_by_lock_word: bool,
}

/// The effect of [`Lock::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The member held the lock.
    Held,
    /// The member waited for the lock.
    Waited,
    /// The member neither held nor awaited the lock.
    Neither,
}

impl Lock {
    /// Adds a request. Returns false if the member already holds or awaits the lock.
    pub(crate) fn request(&mut self, member: WorldRank, kind: LockKind) -> bool {
        let is_known = self.is_held_by(member) || self.waiting.iter().any(|(waiting, _)| *waiting == member);
        if !is_known {
            self.waiting.push_back((member, kind));
        }
        !is_known
    }

    /// Notes that a member holds the lock by the word. Nobody else holds or awaits the lock.
    pub(crate) fn adopt(&mut self, member: WorldRank) {
        assert!(self.is_idle(), "the lock word was not suspended before");
        (self.exclusive, self.is_by_lock_word) = (Some(member), true);
    }

    /// Gives the lock to the next member in the queue, if the present holders permit that.
    pub(crate) fn grant(&mut self) -> Option<WorldRank> {
        let &(member, kind) = self.waiting.front()?;
        match kind {
            LockKind::Exclusive if self.is_held() => return None,
            LockKind::Shared if self.exclusive.is_some() => return None,
            LockKind::Exclusive => (self.exclusive, self.is_by_lock_word) = (Some(member), false),
            LockKind::Shared => {
                self.shared.insert(member);
            }
        }
        self.waiting.pop_front();
        Some(member)
    }

    /// Lets a member's request for a shared lock pass all others, because the member holds the lock of another part. If it
    /// waited behind a request for an exclusive lock, and that one for a third member which waits for the other part in
    /// the same way, none of them would ever get a lock, although all locks that are held are shared.
    pub(crate) fn pass(&mut self, member: WorldRank) {
        let place = self.waiting.iter().position(|request| *request == (member, LockKind::Shared));
        if let Some(request) = place.and_then(|place| self.waiting.remove(place)) {
            self.waiting.push_front(request);
        }
    }

    /// Ends a member's hold of the lock, or its request.
    pub(crate) fn release(&mut self, member: WorldRank) -> Released {
        if self.exclusive == Some(member) {
            self.exclusive = None;
            return Released::Held;
        }
        if self.shared.remove(&member) {
            return Released::Held;
        }
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == member);
        match place.and_then(|place| self.waiting.remove(place)) {
            Some(_) => Released::Waited,
            None => Released::Neither,
        }
    }

    /// Returns true if a member holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        self.exclusive.is_some() || !self.shared.is_empty()
    }

    /// Returns true if nobody holds or awaits the lock.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_held() && self.waiting.is_empty()
    }

    /// Returns true if this member holds the lock by the word.
    pub(crate) fn is_held_by_lock_word(&self, member: WorldRank) -> bool {
        self.exclusive == Some(member) && self.is_by_lock_word
    }

    /// Returns true if this member holds the lock.
    pub(crate) fn is_held_by(&self, member: WorldRank) -> bool {
        self.exclusive == Some(member) || self.shared.contains(&member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(lock: &mut Lock) -> Vec<u32> {
        std::iter::from_fn(|| lock.grant()).map(|member| member.0).collect()
    }

    #[test]
    fn locks_are_granted_in_the_order_of_requests() {
        let mut lock = Lock::default();
        let requests = [
            (1, LockKind::Shared),
            (2, LockKind::Shared),
            (3, LockKind::Exclusive),
            (4, LockKind::Shared),
            (5, LockKind::Shared),
        ];
        assert!(requests.into_iter().all(|(member, kind)| lock.request(WorldRank(member), kind)));
        assert!(
            !lock.request(WorldRank(1), LockKind::Shared) && !lock.request(WorldRank(4), LockKind::Exclusive)
        );
        assert_eq!(grants(&mut lock), [1, 2]);
        assert_eq!(lock.release(WorldRank(1)), Released::Held);
        assert_eq!(grants(&mut lock), []);
        assert_eq!(lock.release(WorldRank(2)), Released::Held);
        assert_eq!(grants(&mut lock), [3]);
        assert!(lock.is_held_by(WorldRank(3)) && !lock.is_held_by(WorldRank(4)));
        assert_eq!(lock.release(WorldRank(3)), Released::Held);
        assert_eq!(grants(&mut lock), [4, 5]);
        assert_eq!(
            [lock.release(WorldRank(4)), lock.release(WorldRank(5)), lock.release(WorldRank(5))],
            [Released::Held, Released::Held, Released::Neither]
        );
        assert!(!lock.is_held());
    }

    #[test]
    fn a_shared_lock_passes_exclusive_ones() {
        let mut lock = Lock::default();
        for (member, kind) in [(1, LockKind::Shared), (2, LockKind::Exclusive), (3, LockKind::Shared)] {
            assert!(lock.request(WorldRank(member), kind));
        }
        assert_eq!(grants(&mut lock), [1]);
        lock.pass(WorldRank(2));
        lock.pass(WorldRank(1));
        assert_eq!(grants(&mut lock), []);
        lock.pass(WorldRank(3));
        assert_eq!(grants(&mut lock), [3]);
        assert_eq!([1, 3].map(|member| lock.release(WorldRank(member))), [Released::Held; 2]);
        assert_eq!(grants(&mut lock), [2]);
    }

    #[test]
    fn a_withdrawn_request_lets_later_ones_pass() {
        let mut lock = Lock::default();
        for (member, kind) in [(1, LockKind::Shared), (2, LockKind::Exclusive), (3, LockKind::Shared)] {
            assert!(lock.request(WorldRank(member), kind));
        }
        assert_eq!(grants(&mut lock), [1]);
        assert_eq!(lock.release(WorldRank(2)), Released::Waited);
        assert_eq!(grants(&mut lock), [3]);
    }
}
