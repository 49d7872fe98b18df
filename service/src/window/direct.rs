//! Operations of an epoch under a lock that this rank carries out without the runtime.
//!
//! Once a target has granted its lock, and its part is in memory that this rank maps, an operation is a few loads and
//! stores, and a flush is a memory fence. The runtime's lock and tables would take ten times as long. So the runtime
//! says after each operation that it carries out if the next ones to this target may be *direct*: the operation was one
//! on mapped memory, and no earlier one to the target is under way. After [`CALLS_MAX`] direct calls the next one is a
//! call of the runtime: it makes progress for the program's other operations, notices the failure of the target, and
//! counts the operations. A direct operation with a request gets one that has ended. The operations of an epoch that is
//! [bare](Windows::is_bare) are direct from the start, if an earlier epoch has kept the target's part.
//!
//! Only a lock permits that. It is held until this rank closes the epoch or the target fails. An exposure may end
//! before, by a cancel or a deadline of the target.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use samite_fabric::Port;
use samite_rma::{Action, EpochId, View, Windows};

use super::epoch::{Epoch, EpochKind};
use super::view::offset;
use super::{WORD, WindowPlace};
use crate::element::Element;
use crate::error::Error;
use crate::layout::Layout;
use crate::runtime::WindowCall;
use crate::select::Rank;

/// The parts of a window that epochs have accessed directly. A rank has the slot of its number modulo [`SLOTS`], if no
/// other rank has taken it before.
#[derive(Debug, Default)]
pub(super) struct Views(OnceLock<Box<[Slot; SLOTS]>>);

type Slot = OnceLock<(Rank, View)>;

/// The targets of an epoch to which operations may be direct.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// The slots of these targets, a bit for each.
    slots: AtomicU64,
    /// The number of direct calls since the latest call of the runtime. Threads that share the epoch may miss some of
    /// each other's, which saves the price of an atomic addition.
    calls: AtomicU32,
    /// The number of these calls that have carried out an operation.
    operations: AtomicU32,
    /// True if the epoch was [bare](Windows::is_bare) when it was opened.
    was_bare: bool,
}

/// The number of ranks with direct access: a bit of [`Direct::slots`] for each.
const SLOTS: usize = u64::BITS as usize;

/// The number of direct calls after which the runtime is called: it then costs each call a nanosecond.
const CALLS_MAX: u32 = 64;

impl Views {
    fn slot_of(rank: Rank) -> usize {
        rank.index() % SLOTS
    }

    fn get(&self, rank: Rank) -> Option<&View> {
        let (of, view) = self.0.get()?[Self::slot_of(rank)].get()?;
        if *of == rank { Some(view) } else { None }
    }

    /// Keeps the view that `make` returns, unless the slot is taken. Returns true if it has a view of this rank.
    fn keep(&self, rank: Rank, make: impl FnOnce() -> Option<View>) -> bool {
        let slot =
            &self.0.get_or_init(|| Box::new(std::array::from_fn(|_| Slot::new())))[Self::slot_of(rank)];
        match slot.get() {
            Some((of, _)) => *of == rank,
            None => make().is_some_and(|view| slot.set((rank, view)).is_ok()),
        }
    }
}

impl Direct {
    /// Returns the state of a bare epoch. Its operations are direct from the start if an earlier epoch has kept the target's
    /// part.
    pub(super) fn bare(views: &Views, target: Rank) -> Self {
        let slots = views.get(target).map_or(0, |_| 1 << Views::slot_of(target));
        Self { slots: AtomicU64::new(slots), was_bare: true, ..Self::default() }
    }

    /// Returns true if the epoch was bare when it was opened.
    pub(super) fn was_bare(&self) -> bool {
        self.was_bare
    }
}

impl<T: Element, K: EpochKind> Epoch<'_, T, K> {
    /// Returns the part of a target if a call may be direct, and counts the call.
    #[inline]
    fn direct_part(&self, target: Rank) -> Option<&View> {
        let is_direct = self.direct.slots.load(Ordering::Acquire) >> Views::slot_of(target) & 1 != 0;
        // A runtime that is closed returns the error, also in a child of fork(2).
        let is_direct = is_direct && self.window.comm().runtime.is_open();
        let part = if is_direct { self.window.views.get(target)? } else { return None };
        if count(&self.direct.calls) < CALLS_MAX { Some(part) } else { None }
    }

    /// Puts or gets bytes by `access`, and returns true, if that may be direct and `access` has found the bytes in the
    /// part. This is a shorter way than [`directly`](Self::directly).
    #[inline]
    pub(super) fn is_done_directly(
        &self,
        (target, at): (Rank, WindowPlace),
        access: impl FnOnce(&View, u64) -> bool,
    ) -> bool {
        let part = if at.region.is_some() { return false } else { self.direct_part(target) };
        let is_done = part.is_some_and(|part| access(part, offset::<T>(at.index)));
        if is_done {
            count(&self.direct.operations);
        }
        is_done
    }

    /// Carries out an operation on `len` bytes, if it may be direct. `access` does it, in the target's part from an offset
    /// on.
    #[inline]
    pub(super) fn directly(
        &self,
        call: &'static str,
        (target, at): (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        (action, len): (Action, usize),
        access: impl FnOnce(&View, u64) -> Result<(), samite_rma::Error>,
    ) -> Option<Result<(), Error>> {
        let is_atomic = !matches!(action, Action::Put | Action::Get);
        // A view changes the elements of an accumulate one by one.
        let is_plain = is_atomic && len > WORD && self.window.is_unshared;
        let needs_runtime =
            layout.is_some() || at.region.is_some() || is_atomic && size_of::<T>() > WORD || is_plain;
        let part = if needs_runtime { return None } else { self.direct_part(target)? };
        let done = access(part, offset::<T>(at.index));
        if matches!(done, Err(samite_rma::Error::NoSuchWindow)) {
            // The target has ended its part without this rank. The runtime knows why.
            return None;
        }
        if len > 0 && done.is_ok() {
            count(&self.direct.operations);
        }
        Some(self.window.handle_access(call, done))
    }

    /// Flushes the operations to a target, and returns true, if all of them were direct since the runtime has found
    /// none under way. Stores then become visible before later loads and stores.
    #[inline]
    pub(super) fn flush_directly(&self, target: Rank) -> bool {
        let is_direct = self.direct_part(target).is_some();
        if is_direct {
            fence(Ordering::SeqCst);
        }
        is_direct
    }

    /// Begins an operation that the runtime carries out. The next operations to the target are not direct unless
    /// [`note_direct`](Self::note_direct) says so, which is not called if this one fails: a target that has failed keeps
    /// its memory, in which direct operations would succeed. Returns what [`report_direct`](Self::report_direct) returns.
    pub(super) fn begin_by_runtime(&self, windows: &mut Windows, target: Rank) -> u64 {
        let bit = 1 << Views::slot_of(target);
        if self.direct.slots.load(Ordering::Relaxed) & bit != 0 {
            self.direct.slots.fetch_and(!bit, Ordering::Relaxed);
        }
        self.report_direct(windows)
    }

    /// Reports the direct operations to the runtime. Returns the number of operations on mapped memory so far.
    pub(super) fn report_direct(&self, windows: &mut Windows) -> u64 {
        if self.direct.calls.load(Ordering::Relaxed) > 0 {
            self.direct.calls.store(0, Ordering::Relaxed);
            windows.count_mapped(self.direct.operations.swap(0, Ordering::Relaxed).into());
        }
        windows.counters().mapped
    }

    /// Notes if the next operations to a target may be direct. Call it under the runtime's lock, after an operation to
    /// this target. `before` is the value of [`begin_by_runtime`](Self::begin_by_runtime) before the operation.
    pub(super) fn note_direct<P: Port>(
        &self,
        call: &mut WindowCall<'_, P>,
        id: EpochId,
        target: Rank,
        before: u64,
    ) {
        let is_mapped = K::IS_LOCK && call.windows.counters().mapped > before;
        if is_mapped && self.becomes_direct(call, id, target) {
            self.direct.slots.fetch_or(1 << Views::slot_of(target), Ordering::Release);
        }
    }

    fn becomes_direct<P: Port>(&self, call: &mut WindowCall<'_, P>, id: EpochId, target: Rank) -> bool {
        let WindowCall { windows, out, .. } = call;
        let Ok(rank) = self.window.world_rank(target) else { return false };
        let is_idle = matches!(windows.is_flushed(out.link, id, Some(rank)), Ok(true));
        is_idle
            && self.window.views.keep(target, || {
                let part = windows.view(out, self.window.id, rank).ok()??;
                (part.unit() as usize == size_of::<T>()).then_some(part)
            })
    }
}

/// Adds 1 to a number, and returns its former value.
#[inline]
fn count(number: &AtomicU32) -> u32 {
    let before = number.load(Ordering::Relaxed);
    number.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}
