//! The order of a window's epochs: which epoch may be activated while others are active.
//!
//! An epoch has two lifetimes (Zounmevo 2014, section 5.6). For the program it is *open* until it is closed. Inside it
//! is *active* from its activation until its completion. An epoch that cannot be activated when it is opened is
//! *deferred*. The rules are in sections 5.6.1 and 5.6.2. There are three differences. An epoch may be activated beside
//! one that was still open when it was opened: the blocking calls permit that too, for example `post`, `start`,
//! `complete`, `wait` in one process. The reorder flags are checked against every active epoch, and not only against the
//! preceding one: the preceding one may have been activated beside an epoch with which the new one must not be active.
//! And an epoch that was ended early holds up only epochs with the members whose answers it awaits: a stopped process
//! may never answer.

use samite_fabric::link::{Group, WorldRank};

use crate::small_map::SmallMap;
use crate::window::{Party, State};

bitflags::bitflags! {
    /// Permissions to activate an epoch while an earlier one is active (Zounmevo 2014, section 5.6.2). They have no
    /// effect on epochs of fences and of `lock_all`. The program must know that the operations of the two epochs touch
    /// different bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Reorder: u8 {
        /// An access epoch while an earlier access epoch is active.
        const ACCESS_AFTER_ACCESS = 1;
        /// An access epoch while an earlier exposure epoch is active.
        const ACCESS_AFTER_EXPOSURE = 2;
        /// An exposure epoch while an earlier exposure epoch is active.
        const EXPOSURE_AFTER_EXPOSURE = 4;
        /// An exposure epoch while an earlier access epoch is active.
        const EXPOSURE_AFTER_ACCESS = 8;
    }
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Several ranks may hold the lock at the same time.
    Shared,
    /// One rank holds the lock alone.
    Exclusive,
}

/// The kind of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An access epoch to the members of a group.
    Start(Group),
    /// An exposure epoch to the members of a group.
    Post(Group),
    /// An access epoch to one member, which holds a lock there.
    Lock { target: WorldRank, kind: LockKind },
    /// An access epoch to all members, with shared locks.
    LockAll,
    /// An access and exposure epoch of all members. `opening` is the number of the opening fence that a target must
    /// have called before operations go to it, or 0 if all targets are known to have called the fence.
    Fence { opening: u64 },
    /// The end of the window.
    Free,
}

/// The class of an epoch in the rules on its activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Access,
    Exposure,
    /// An epoch that waits for all earlier ones, and holds up all later ones (rules 18 and 19).
    Alone,
}

impl Kind {
    fn class(&self) -> Class {
        match self {
            Self::Start(_) | Self::Lock { .. } => Class::Access,
            Self::Post(_) => Class::Exposure,
            Self::LockAll | Self::Fence { .. } | Self::Free => Class::Alone,
        }
    }

    /// Returns true if no member takes part in both epochs.
    fn is_disjoint_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Start(a) | Self::Post(a), Self::Start(b) | Self::Post(b)) => {
                let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
                !small.iter().any(|member| large.contains(member))
            }
            (Self::Start(group) | Self::Post(group), &Self::Lock { target, .. })
            | (&Self::Lock { target, .. }, Self::Start(group) | Self::Post(group)) => !group.contains(target),
            (Self::Lock { target: a, .. }, Self::Lock { target: b, .. }) => a != b,
            _ => false,
        }
    }

    /// Returns true if the epoch has locks.
    pub(crate) fn has_locks(&self) -> bool {
        matches!(self, Self::Lock { .. } | Self::LockAll)
    }

    /// Returns true if the member is a target of this access epoch.
    pub(crate) fn has_target(&self, member: WorldRank) -> bool {
        match self {
            Self::Start(group) => group.contains(member),
            Self::Lock { target, .. } => *target == member,
            Self::LockAll | Self::Fence { .. } => true,
            Self::Post(_) | Self::Free => false,
        }
    }
}

/// An epoch as the rules see it. Times are numbers of the calls on the window that open or close an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) is_active: bool,
    pub(crate) opened: u64,
    /// `None` while the epoch is open.
    pub(crate) closed: Option<u64>,
    /// The parties of an epoch without a barrier that was ended early, by a cancel or a deadline.
    pub(crate) aborted: Option<&'a SmallMap<WorldRank, Party>>,
}

impl View<'_> {
    /// Returns true if the epoch was ended early, and waits only for members that have no part in an epoch of this kind.
    /// The program knows that it has failed, so it gives no order to that epoch.
    pub(crate) fn is_aborted_beside(&self, kind: &Kind) -> bool {
        let concerns = |member| match kind {
            Kind::Start(group) | Kind::Post(group) => group.contains(member),
            Kind::Lock { target, .. } => *target == member,
            Kind::LockAll | Kind::Fence { .. } | Kind::Free => true,
        };
        let is_beside = |parties: &SmallMap<WorldRank, Party>| {
            let mut parties = parties.iter();
            parties.all(|(member, party)| party.state == State::Over || !concerns(member))
        };
        self.aborted.is_some_and(is_beside)
    }
}

/// The permissions of a window for its epochs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Permissions {
    pub(crate) reorder: Reorder,
    /// True if epochs may pass earlier ones that are deferred, if no member takes part in both.
    pub(crate) overtake: bool,
}

/// The active epochs of a window, counted as the rules need it. With the counts most decisions on an epoch take the same
/// time, however many others are active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The access epochs that the program has closed.
    accesses: usize,
    /// The exposure epochs that the program has closed.
    exposures: usize,
    /// The epochs that hold up all later ones.
    alone: usize,
}

impl Tally {
    /// Returns the counts of these epochs.
    pub(crate) fn of<'a>(epochs: impl IntoIterator<Item = View<'a>>) -> Self {
        let mut tally = Self::default();
        epochs.into_iter().for_each(|epoch| tally.add(epoch));
        tally
    }

    /// Counts an epoch that was activated or closed.
    pub(crate) fn add(&mut self, epoch: View<'_>) {
        if let Some(count) = self.count(epoch) {
            *count += 1;
        }
    }

    /// Counts an epoch no more, because it has completed or is about to be closed.
    pub(crate) fn remove(&mut self, epoch: View<'_>) {
        if let Some(count) = self.count(epoch) {
            *count -= 1;
        }
    }

    fn count(&mut self, epoch: View<'_>) -> Option<&mut usize> {
        match epoch.kind.class() {
            _ if !epoch.is_active => None,
            Class::Alone => Some(&mut self.alone),
            _ if epoch.closed.is_none() => None,
            Class::Access => Some(&mut self.accesses),
            Class::Exposure => Some(&mut self.exposures),
        }
    }

    /// Returns true if an epoch may be activated beside these ones, which are all earlier epochs and were all activated.
    /// If it returns false, [`may_activate`] decides.
    pub(crate) fn permits(&self, kind: &Kind, is_locked: bool, reorder: Reorder) -> bool {
        // An epoch of a lock may pass other accesses if its target is none of theirs.
        let names_target = matches!(kind, Kind::Lock { .. });
        let pass = |before| {
            let is_free = before == Class::Exposure || !names_target;
            is_free
                && reorder_flag(kind.class(), before, is_locked).is_some_and(|flag| reorder.contains(flag))
        };
        kind.class() != Class::Alone
            && self.alone == 0
            && (self.accesses == 0 || pass(Class::Access))
            && (self.exposures == 0 || pass(Class::Exposure))
    }
}

/// Returns true if `epoch` may be activated. `earlier` are the epochs that were opened before it and have not
/// completed. `is_locked` is true if a member holds the lock of this process's part of the window.
pub(crate) fn may_activate<'a>(
    epoch: View<'_>,
    earlier: impl IntoIterator<Item = View<'a>>,
    is_locked: bool,
    permissions: Permissions,
) -> bool {
    earlier.into_iter().all(|other| {
        if other.is_aborted_beside(epoch.kind) {
            return true;
        }
        let (class, before) = (epoch.kind.class(), other.kind.class());
        if class == Class::Alone || before == Class::Alone {
            return false;
        }
        let passes = permissions.overtake && epoch.kind.is_disjoint_from(other.kind);
        if !other.is_active {
            return passes;
        }
        let was_open = other.closed.is_none_or(|closed| closed > epoch.opened);
        was_open || passes || is_reordered(epoch.kind, other.kind, is_locked, permissions.reorder)
    })
}

/// Returns true if a flag permits to activate an epoch of kind `kind` while one of kind `before` is active (rules 12 to
/// 17).
fn is_reordered(kind: &Kind, before: &Kind, is_locked: bool, reorder: Reorder) -> bool {
    // Rule 13 (a): the rank that would be locked is not a target.
    let is_free = !matches!(kind, &Kind::Lock { target, .. } if before.has_target(target));
    let flag = reorder_flag(kind.class(), before.class(), is_locked);
    is_free && flag.is_some_and(|flag| reorder.contains(flag))
}

/// Returns the flag that permits to activate an epoch of a class while one of class `before` is active, if one does.
fn reorder_flag(class: Class, before: Class, is_locked: bool) -> Option<Reorder> {
    match (class, before) {
        (Class::Access, Class::Access) => Some(Reorder::ACCESS_AFTER_ACCESS),
        (Class::Access, Class::Exposure) => Some(Reorder::ACCESS_AFTER_EXPOSURE),
        (Class::Exposure, Class::Exposure) if !is_locked => Some(Reorder::EXPOSURE_AFTER_EXPOSURE),
        (Class::Exposure, Class::Access) if !is_locked => Some(Reorder::EXPOSURE_AFTER_ACCESS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(members: impl IntoIterator<Item = u32>) -> Kind {
        Kind::Start(Group::new(members.into_iter().map(WorldRank)).unwrap())
    }

    fn post(members: impl IntoIterator<Item = u32>) -> Kind {
        Kind::Post(Group::new(members.into_iter().map(WorldRank)).unwrap())
    }

    fn lock(target: u32) -> Kind {
        Kind::Lock { target: WorldRank(target), kind: LockKind::Shared }
    }

    /// An epoch that was opened at 10, and an earlier one that was opened at 1 and closed at 2.
    fn after(kind: &Kind, before: &Kind, reorder: Reorder) -> bool {
        let epoch = View { kind, is_active: false, opened: 10, closed: None, aborted: None };
        let other = View { kind: before, is_active: true, opened: 1, closed: Some(2), aborted: None };
        may_activate(epoch, [other], false, Permissions { reorder, overtake: false })
    }

    #[test]
    fn without_flags_closed_epochs_are_waited_for() {
        let kinds = [start([1]), post([2]), lock(3), Kind::LockAll, Kind::Fence { opening: 0 }, Kind::Free];
        for kind in &kinds {
            assert!(may_activate(
                View { kind, is_active: false, opened: 1, closed: None, aborted: None },
                [],
                false,
                Permissions::default()
            ));
            assert!(kinds.iter().all(|before| !after(kind, before, Reorder::empty())));
        }
    }

    #[test]
    fn each_flag_permits_its_pair() {
        let (access, exposure) = ([start([1]), lock(2)], [post([3]), post([4])]);
        let pairs = [
            (Reorder::ACCESS_AFTER_ACCESS, &access, &access),
            (Reorder::ACCESS_AFTER_EXPOSURE, &access, &exposure),
            (Reorder::EXPOSURE_AFTER_EXPOSURE, &exposure, &exposure),
            (Reorder::EXPOSURE_AFTER_ACCESS, &exposure, &access),
        ];
        for (flag, kinds, befores) in pairs {
            for (kind, before) in
                kinds.iter().flat_map(|kind| befores.iter().map(move |before| (kind, before)))
            {
                let same_lock = matches!((kind, before), (Kind::Lock { .. }, Kind::Lock { .. }));
                assert_eq!(after(kind, before, flag), !same_lock, "{kind:?} after {before:?}");
                assert!(!after(kind, before, flag.complement()), "{kind:?} after {before:?}");
            }
        }
    }

    #[test]
    fn fences_and_lock_all_are_alone() {
        let kinds = [start([1]), post([2]), lock(3), Kind::LockAll, Kind::Fence { opening: 0 }];
        for alone in [Kind::LockAll, Kind::Fence { opening: 0 }, Kind::Free] {
            assert!(kinds.iter().all(|kind| !after(&alone, kind, Reorder::all())));
            assert!(kinds.iter().all(|kind| !after(kind, &alone, Reorder::all())));
        }
    }

    #[test]
    fn a_locked_rank_is_not_locked_again_nor_exposed() {
        assert!(!after(&lock(1), &start([1, 2]), Reorder::all()));
        assert!(!after(&lock(1), &lock(1), Reorder::all()));
        assert!(after(&lock(1), &lock(2), Reorder::all()));
        for before in [post([1]), start([1])] {
            let (kind, permissions) = (post([2]), Permissions { reorder: Reorder::all(), overtake: false });
            let epoch = View { kind: &kind, is_active: false, opened: 10, closed: None, aborted: None };
            let other = View { kind: &before, is_active: true, opened: 1, closed: Some(2), aborted: None };
            assert!(may_activate(epoch, [other], false, permissions));
            assert!(!may_activate(epoch, [other], true, permissions), "the lock is held");
        }
    }

    #[test]
    fn flags_count_against_every_active_epoch() {
        // The preceding epoch alone would permit the activation; the one before it does not.
        let (first, second, third) = (post([1]), start([2]), start([3]));
        let view = |kind, closed| View { kind, is_active: true, opened: 1, closed, aborted: None };
        let epoch = View { kind: &third, is_active: false, opened: 10, closed: None, aborted: None };
        let permissions = Permissions { reorder: Reorder::ACCESS_AFTER_ACCESS, overtake: false };
        assert!(may_activate(epoch, [view(&second, Some(3))], false, permissions));
        let both = [view(&first, Some(4)), view(&second, Some(3))];
        assert!(!may_activate(epoch, both, false, permissions));
    }

    #[test]
    fn an_epoch_stands_beside_those_that_were_open() {
        let (exposure, access) = (post([1]), start([1]));
        for (kind, before) in [(&access, &exposure), (&exposure, &access), (&lock(2), &lock(1))] {
            let epoch = View { kind, is_active: false, opened: 10, closed: None, aborted: None };
            for (closed, expected) in [(None, true), (Some(11), true), (Some(9), false)] {
                let other = View { kind: before, is_active: true, opened: 1, closed, aborted: None };
                assert_eq!(may_activate(epoch, [other], false, Permissions::default()), expected);
            }
        }
    }

    #[test]
    fn an_aborted_epoch_holds_up_those_with_the_members_that_it_awaits() {
        let mut parties = SmallMap::default();
        for (rank, state) in [(1, State::Asked), (2, State::Over)] {
            parties.insert(WorldRank(rank), Party { state, ..Party::default() });
        }
        for before in [start([1, 2]), post([1, 2]), Kind::LockAll] {
            let may = |kind: &Kind| {
                let epoch = View { kind, is_active: false, opened: 10, closed: None, aborted: None };
                let other = View {
                    kind: &before,
                    is_active: true,
                    opened: 1,
                    closed: Some(2),
                    aborted: Some(&parties),
                };
                may_activate(epoch, [other], false, Permissions::default())
            };
            assert!(may(&start([2, 3])) && may(&post([2])) && may(&lock(2)) && may(&lock(3)), "{before:?}");
            assert!(!may(&start([1, 3])) && !may(&post([1])) && !may(&lock(1)), "{before:?}");
            assert!(
                !may(&Kind::LockAll) && !may(&Kind::Fence { opening: 0 }) && !may(&Kind::Free),
                "{before:?}"
            );
        }
    }

    #[test]
    fn an_epoch_overtakes_those_with_other_peers_only() {
        let permissions = Permissions { reorder: Reorder::empty(), overtake: true };
        let may = |kind: &Kind, before: &Kind| {
            let epoch = View { kind, is_active: false, opened: 10, closed: None, aborted: None };
            let other = View { kind: before, is_active: false, opened: 1, closed: Some(2), aborted: None };
            may_activate(epoch, [other], false, permissions)
        };
        assert!(may(&start([1, 2]), &start([3])) && may(&lock(1), &post([2])) && may(&lock(1), &lock(2)));
        assert!(!may(&start([1, 2]), &post([2])) && !may(&lock(1), &lock(1)) && !may(&lock(1), &start([1])));
        assert!(!may(&lock(1), &Kind::LockAll) && !may(&Kind::Fence { opening: 0 }, &lock(1)));
    }

    #[test]
    fn the_counts_decide_as_the_epochs_do() {
        let kinds =
            [start([1]), start([2]), post([1]), lock(1), lock(2), Kind::LockAll, Kind::Fence { opening: 0 }];
        let active = kinds.iter().flat_map(|kind| [None, Some(5)].map(|closed| (kind, closed)));
        let active =
            active.map(|(kind, closed)| View { kind, is_active: true, opened: 1, closed, aborted: None });
        let mut decided = 0;
        for (first, second) in
            active.clone().flat_map(|first| active.clone().map(move |second| (first, second)))
        {
            for earlier in [&[][..], &[first], &[first, second]] {
                let tally = Tally::of(earlier.iter().copied());
                for (kind, bits, is_locked) in kinds
                    .iter()
                    .flat_map(|kind| (0..16).flat_map(move |bits| [false, true].map(|is| (kind, bits, is))))
                {
                    let reorder = Reorder::from_bits_retain(bits);
                    let epoch = View { kind, is_active: false, opened: 10, closed: None, aborted: None };
                    let permissions = Permissions { reorder, overtake: false };
                    let expected = may_activate(epoch, earlier.iter().copied(), is_locked, permissions);
                    let is_decided = tally.permits(kind, is_locked, reorder);
                    assert!(expected || !is_decided, "{kind:?} after {earlier:?}, {reorder:?}, {is_locked}");
                    let needs_look = matches!(kind, Kind::Lock { .. }) || earlier.is_empty();
                    assert!(is_decided || !expected || needs_look, "{kind:?} after {earlier:?}, {reorder:?}");
                    decided += u32::from(is_decided);
                }
            }
        }
        assert!(decided > 10_000, "{decided} decisions by the counts");
    }
}
