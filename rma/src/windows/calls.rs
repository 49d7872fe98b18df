//! The calls that open and close epochs, and the calls that start operations.

use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};

use samite_fabric::layout::Form;
use samite_fabric::link::{Fate, Group, Link, Out, RequestId, Time, WorldRank};
use samite_fabric::{Memory, Port, Region};

use super::Windows;
use crate::activation::Kind;
use crate::core::{Bytes, Core, check_place, check_span};
use crate::requests;
use crate::window::{Barrier, Contact, Open, Operation, Party, Space, State, Step};
use crate::{Action, Attached, EpochId, Error, LockKind, Reduction, View, WindowId};

bitflags::bitflags! {
    /// Assertions of a fence (MPI 4.1, section 12.5.5). Each of them must be given by all members or by none.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Assertions: u8 {
        /// The fence ends no epoch with operations. (`MPI_MODE_NOPRECEDE`)
        const NO_PRECEDE = 1;
        /// The fence begins no epoch. (`MPI_MODE_NOSUCCEED`)
        const NO_SUCCEED = 2;
    }
}

/// The result of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The request for the completion of the epoch that the fence has ended. `None` if it has ended none.
    pub completion: Option<RequestId>,
    /// The epoch that the fence has begun.
    pub epoch: Option<EpochId>,
}

/// The place of an operation's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The rank in the job.
    pub rank: WorldRank,
    /// The displacement, in the target's units.
    pub displacement: u64,
}

impl Target {
    /// Returns the places of a form, counted in bytes from this place.
    #[must_use]
    pub fn with_form(self, form: &Form) -> Places<'_> {
        Places { form: Some(form), ..self.into() }
    }
}

/// The places of an operation's bytes at its target: contiguous bytes from a [`Target`] on, or the places of a
/// [form](Target::with_form), in the order of its message.
///
/// An operation with a form consists of one operation for each of its *runs* of contiguous bytes, and of several for a
/// long run. It has one request, and one place in the order of accumulates.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    target: Target,
    form: Option<&'a Form>,
    region: Option<Attached>,
}

impl From<Target> for Places<'_> {
    fn from(target: Target) -> Self {
        Self { target, form: None, region: None }
    }
}

impl<'a> Places<'a> {
    /// Returns the places of a form, as [`Target::with_form`] does.
    #[must_use]
    pub fn with_form(self, form: &'a Form) -> Self {
        Self { form: Some(form), ..self }
    }

    /// Returns these places in memory that the target has attached to a dynamic window. The displacement then counts
    /// bytes from the start of this memory.
    #[must_use]
    pub fn within(self, region: Attached) -> Self {
        Self { region: Some(region), ..self }
    }

    /// Returns an operation of `len` bytes on these places.
    ///
    /// # Errors
    /// [`Error::FormLength`], [`Error::FormOverlap`], [`Error::PartialElements`]; in a region also
    /// [`Error::OutOfBounds`], [`Error::Misaligned`], [`Error::NotAttached`].
    // An operation is large, and a copy of it costs a short put much of its time.
    #[inline(always)]
    fn operation(self, action: Action, len: usize) -> Result<Operation, Error> {
        let operation = Operation::new(action, self.target.displacement, len);
        match self {
            Self { form: None, region: None, .. } => Ok(operation),
            _ => self.formed(operation),
        }
    }

    /// Returns an operation with the form and in the region of these places.
    #[inline(never)]
    fn formed(self, mut operation: Operation) -> Result<Operation, Error> {
        if let Some(form) = self.form {
            check_form(form, operation.action, operation.len)?;
            operation.form = Some(Box::new(form.clone()));
        }
        if let Some(region) = self.region {
            let rank = self.target.rank;
            if !region.is_possible() {
                return Err(Error::NotAttached { rank, region: region.place });
            }
            check_span(rank, 1, region.len, &operation)?;
            operation.displacement = region.place.wrapping_add(operation.displacement);
        }
        Ok(operation)
    }
}

impl Windows {
    /// Opens an access epoch to the members of a group (`MPI_Win_start`).
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NotAMember`], [`Error::WrongState`]; [`Error::Link`] if there are too many
    /// epochs.
    pub fn start(&mut self, link: &mut Link, window: WindowId, targets: &Group) -> Result<EpochId, Error> {
        self.check_epochs(window)?;
        self.call(link, window, |core| {
            core.check_members(targets)?;
            core.check_access("start")?;
            let number = core.window.open(Kind::Start(targets.clone()));
            core.window.open.access = Some(number);
            core.add_parties(number, targets);
            Ok(core.opened_epoch(number))
        })
    }

    /// Opens an exposure epoch for the members of a group (`MPI_Win_post`).
    ///
    /// # Errors
    /// Returns the errors of [`Windows::start`].
    pub fn post(&mut self, link: &mut Link, window: WindowId, origins: &Group) -> Result<EpochId, Error> {
        self.check_epochs(window)?;
        self.call(link, window, |core| {
            core.check_members(origins)?;
            core.drop_fence("post")?;
            if core.window.open.exposure.is_some() {
                return Err(Error::WrongState { call: "post", open: "an exposure epoch" });
            }
            if core.has_lock_all() {
                return Err(Error::WrongState { call: "post", open: "an epoch of lock_all" });
            }
            let number = core.window.open(Kind::Post(origins.clone()));
            core.window.open.exposure = Some(number);
            core.add_parties(number, origins);
            Ok(core.opened_epoch(number))
        })
    }

    /// Opens an access epoch with a lock at one member (`MPI_Win_lock`).
    ///
    /// # Errors
    /// Returns the errors of [`Windows::start`].
    pub fn lock(
        &mut self,
        link: &mut Link,
        window: WindowId,
        target: WorldRank,
        kind: LockKind,
    ) -> Result<EpochId, Error> {
        if kind == LockKind::Exclusive
            && let Some(epoch) = self.open_bare(link, window, target)
        {
            return Ok(epoch);
        }
        self.check_epochs(window)?;
        self.call(link, window, |core| {
            core.check_member(target)?;
            core.drop_fence("lock")?;
            if core.window.open.access.is_some() {
                return Err(Error::WrongState { call: "lock", open: "an access epoch" });
            }
            if core.window.open.locks.contains(target) {
                return Err(Error::WrongState {
                    call: "lock",
                    open: "an epoch with a lock of the same rank",
                });
            }
            let number = core.window.open(Kind::Lock { target, kind });
            core.window.open.locks.insert(target, number);
            core.add_party(number, target);
            Ok(core.opened_epoch(number))
        })
    }

    /// Opens an access epoch with shared locks at all members (`MPI_Win_lock_all`). A member is asked for its lock at
    /// the first operation.
    ///
    /// # Errors
    /// Returns the errors of [`Windows::start`].
    pub fn lock_all(&mut self, link: &mut Link, window: WindowId) -> Result<EpochId, Error> {
        self.check_epochs(window)?;
        self.call(link, window, |core| {
            core.check_access("lock_all")?;
            if core.window.open.exposure.is_some() {
                return Err(Error::WrongState { call: "lock_all", open: "an exposure epoch" });
            }
            let number = core.window.open(Kind::LockAll);
            core.window.open.access = Some(number);
            Ok(core.opened_epoch(number))
        })
    }

    /// Ends the epoch of the preceding fence, and begins another one (`MPI_Win_fence`).
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::WrongState`]; [`Error::Link`] if there are too many epochs.
    pub fn fence(
        &mut self,
        link: &mut Link,
        window: WindowId,
        assertions: Assertions,
        deadline: Time,
    ) -> Result<Fenced, Error> {
        // A fence that begins no epoch needs no room.
        if !assertions.contains(Assertions::NO_SUCCEED) {
            self.check_epochs(window)?;
        }
        self.call(link, window, |core| {
            if core.window.open.is_freed {
                return Err(Error::NoSuchWindow);
            }
            let closes = core.window.fences.precedes && !assertions.contains(Assertions::NO_PRECEDE);
            let open = core.open_fence_epoch();
            core.check_fence(open, closes)?;
            let completion = closes.then(|| core.close_fence(open, deadline));
            let opens = !assertions.contains(Assertions::NO_SUCCEED);
            core.window.fences.precedes = opens;
            let epoch = opens.then(|| core.begin_fence(closes));
            core.rescan();
            Ok(Fenced { completion, epoch })
        })
    }

    /// Closes an epoch (`MPI_Win_complete`, `MPI_Win_wait`, `MPI_Win_unlock`, `MPI_Win_unlock_all`). The returned
    /// request ends when the epoch has completed. Epochs of fences are closed by the next fence.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NoSuchEpoch`], [`Error::WrongState`] for an epoch of a fence.
    pub fn close(&mut self, link: &mut Link, epoch: EpochId, deadline: Time) -> Result<RequestId, Error> {
        self.call(link, epoch.window, |core| {
            let number = epoch.number;
            match core.open_kind(number)? {
                Kind::Fence { .. } | Kind::Free => {
                    return Err(Error::WrongState { call: "close", open: "an epoch of a fence" });
                }
                Kind::Lock { target, .. } => {
                    core.window.open.locks.remove(target);
                }
                Kind::Post(_) => core.window.open.exposure = None,
                Kind::Start(_) | Kind::LockAll => core.window.open.access = None,
            }
            let request = core.begin_close(number, deadline);
            core.close(number, Some(request));
            Ok(request)
        })
    }

    /// Closes all epochs that are open, and does not report their ends: for a program that has lost their names.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    pub fn close_all(&mut self, link: &mut Link, window: WindowId) -> Result<(), Error> {
        let numbers: Vec<_> = self.call(link, window, |core| {
            let Open { access, exposure, ref locks, .. } = core.window.open;
            Ok(access.into_iter().chain(exposure).chain(locks.values().copied()).collect())
        })?;
        for number in numbers {
            match self.close(link, EpochId { window, number }, Time::NEVER) {
                Ok(request) => self.detach(request),
                Err(Error::WrongState { .. }) => {
                    assert!(self.is_in_fence(window)?, "the next fence closes it")
                }
                Err(error) => return Err(error),
            }
        }
        if self.is_in_fence(window)? {
            let fenced = self.fence(link, window, Assertions::NO_SUCCEED, Time::NEVER)?;
            fenced.completion.into_iter().for_each(|request| self.detach(request));
        }
        Ok(())
    }

    /// Returns true if the next fence ends an epoch.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    pub fn is_in_fence(&self, window: WindowId) -> Result<bool, Error> {
        Ok(self.window(window)?.fences.precedes)
    }

    /// Returns true if the accesses of all origins to an open exposure epoch are over. The epoch then completes when it
    /// is closed (`MPI_Win_test`).
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NoSuchEpoch`].
    pub fn is_exposure_over(&mut self, link: &mut Link, epoch: EpochId) -> Result<bool, Error> {
        self.call(link, epoch.window, |core| {
            core.open_kind(epoch.number)?;
            let epoch = core.window.epoch(epoch.number).ok_or(Error::NoSuchEpoch)?;
            Ok(epoch.is_active && epoch.left == 0)
        })
    }

    /// Frees a window. The returned request ends when every member has freed it, and then the memory is not accessed
    /// any more.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::WrongState`].
    pub fn free(&mut self, link: &mut Link, window: WindowId, deadline: Time) -> Result<RequestId, Error> {
        self.call(link, window, |core| {
            core.drop_fence("free")?;
            let open = &core.window.open;
            if open.access.is_some() || open.exposure.is_some() || !open.locks.is_empty() {
                return Err(Error::WrongState { call: "free", open: "an epoch" });
            }
            if open.is_freed {
                return Err(Error::NoSuchWindow);
            }
            core.window.open.is_freed = true;
            let number = core.window.open(Kind::Free);
            let request = core.begin_close(number, deadline);
            core.set_barrier(number, Space::Free, 1);
            core.close(number, Some(request));
            Ok(request)
        })
    }

    /// Starts an operation in an open epoch. `memory` is the data, or the room for the result, or both. Returns a
    /// request if the operation has a result, or if `deadline` is given. The data can be used again when the request
    /// has ended: that of a write when it was sent. If the target has granted the access and nothing waits to be sent
    /// to it, an operation on mapped memory is carried out within the call, and one that fits in a packet is sent.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NoSuchEpoch`], [`Error::NotATarget`], [`Error::OutOfBounds`] if the part of
    /// the target is known, [`Error::Misaligned`], [`Error::WrongLength`], [`Error::Undefined`]; for a form
    /// [`Error::FormLength`], [`Error::FormOverlap`], [`Error::PartialElements`]; [`Error::Link`] if the target has
    /// failed, or if the budget is used up.
    pub fn operate<'f, P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        epoch: EpochId,
        places: impl Into<Places<'f>>,
        action: Action,
        memory: Memory,
        deadline: Option<Time>,
    ) -> Result<Option<RequestId>, Error> {
        let places = places.into();
        let rank = places.target.rank;
        let port = &mut *out.port;
        self.call(out.link, epoch.window, |core| {
            let has_reply = action.has_reply();
            if has_reply && memory.is_shared() {
                let hint = "pass memory that is not shared";
                return Err(Error::exhausted("memory that can be written", hint));
            }
            let len = check_action(action, memory.len())?;
            let mut operation = places.operation(action, len)?;
            core.check_operation(epoch.number, places, &operation)?;
            core.check_budget(&operation)?;
            let kept = if has_reply { Some(memory) } else { operation.memory.replace(memory) };
            if has_reply || deadline.is_some() {
                let left = if has_reply { len } else { 0 };
                let kind = requests::Kind::Operation { rank, memory: kept, left, asked: 0 };
                let deadline = deadline.unwrap_or(Time::NEVER);
                operation.request = Some(core.requests.begin(core.link, epoch, kind, deadline));
            }
            let request = operation.request;
            if len == 0 {
                core.end_empty(operation);
            } else if core.carry_out_at_once(port, epoch.number, rank, &operation, Bytes::Own) {
                core.end_carried_out(operation);
            } else if core.send_at_once(port, epoch.number, rank, &operation, None) {
                core.end_sending(operation);
            } else {
                core.requests.recorded += operation.cost();
                core.record(epoch.number, rank, Step::Operation(Box::new(operation)));
            }
            Ok(request)
        })
    }

    /// Carries out an operation without a result as [`Windows::operate`] does, if that is possible within the call: on
    /// mapped memory, or by a packet that leaves at once. Returns false otherwise: then use [`Windows::operate`].
    ///
    /// # Errors
    /// Returns the errors of [`Windows::operate`].
    ///
    /// # Panics
    /// If the operation has a result.
    pub fn try_write<'f, P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        epoch: EpochId,
        places: impl Into<Places<'f>>,
        action: Action,
        data: &[u8],
    ) -> Result<bool, Error> {
        assert!(!action.has_reply(), "a write has no result");
        let places = places.into();
        let port = &mut *out.port;
        self.call(out.link, epoch.window, |core| {
            let len = check_action(action, data.len())?;
            let operation = places.operation(action, len)?;
            let (number, rank) = (epoch.number, places.target.rank);
            core.check_operation(number, places, &operation)?;
            core.seek_access(number, rank);
            Ok(len == 0
                || core.carry_out_at_once(port, number, rank, &operation, Bytes::Data(data))
                || !core.puts_short(number, rank, &operation)
                    && core.send_at_once(port, number, rank, &operation, Some(data))
                || core.put_from_slabs(port, number, rank, operation, data))
        })
    }

    /// Carries out an operation with a result within the call, if the target has granted the access, nothing waits to
    /// be sent to it, and its part is mapped. Returns false otherwise: then use [`Windows::operate`]. `bytes` has the
    /// operands, and gets the result, as the memory of [`Windows::operate`].
    ///
    /// # Errors
    /// Returns the errors of [`Windows::operate`].
    ///
    /// # Panics
    /// If the operation has no result.
    pub fn try_read<'f, P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        epoch: EpochId,
        places: impl Into<Places<'f>>,
        action: Action,
        bytes: &mut [u8],
    ) -> Result<bool, Error> {
        assert!(action.has_reply(), "a read has a result");
        let places = places.into();
        let port = &mut *out.port;
        self.call(out.link, epoch.window, |core| {
            let len = check_action(action, bytes.len())?;
            let operation = places.operation(action, len)?;
            let (number, rank) = (epoch.number, places.target.rank);
            core.check_operation(number, places, &operation)?;
            core.seek_access(number, rank);
            Ok(len == 0 || core.carry_out_at_once(port, number, rank, &operation, Bytes::Room(bytes)))
        })
    }

    /// Begins a flush of the operations to one target of a passive epoch, or to all: the request ends when they are
    /// applied (`MPI_Win_flush`, `MPI_Win_flush_all`).
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NoSuchEpoch`], [`Error::NotATarget`]; [`Error::WrongState`] for an epoch
    /// without a lock; [`Error::Link`] if the target has failed.
    pub fn flush(
        &mut self,
        link: &mut Link,
        epoch: EpochId,
        target: Option<WorldRank>,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        self.call(link, epoch.window, |core| core.flush(epoch, target, deadline, |party| !party.is_flushed()))
    }

    /// Begins a flush as [`Windows::flush`] does, of which the request ends when the operations are complete at this
    /// side: when the data of all reads has arrived (`MPI_Win_flush_local`, `MPI_Win_flush_local_all`). The data of
    /// writes belongs to the window or to their requests.
    ///
    /// # Errors
    /// Returns the errors of [`Windows::flush`].
    pub fn flush_local(
        &mut self,
        link: &mut Link,
        epoch: EpochId,
        target: Option<WorldRank>,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        self.call(link, epoch.window, |core| {
            core.flush(epoch, target, deadline, |party| party.unanswered + party.reads > 0)
        })
    }

    /// Returns true if all operations so far to one target of a passive epoch, or to all, are complete at the targets:
    /// then a flush need not wait. They are if all of them were carried out on mapped memory.
    ///
    /// # Errors
    /// Returns the errors of [`Windows::flush`].
    pub fn is_flushed(
        &mut self,
        link: &mut Link,
        epoch: EpochId,
        target: Option<WorldRank>,
    ) -> Result<bool, Error> {
        self.call(link, epoch.window, |core| {
            core.check_flush(epoch.number, target)?;
            Ok(core.unflushed(epoch.number, target, |party| !party.is_flushed())?.is_empty())
        })
    }

    /// Begins to meet a member of a window: the request ends when this process knows its part. Then [`Windows::view`]
    /// answers.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NotAMember`]; [`Error::Link`] if the member has failed.
    pub fn meet_member(
        &mut self,
        link: &mut Link,
        window: WindowId,
        rank: WorldRank,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        self.call(link, window, |core| {
            core.check_member(rank)?;
            let is_met = matches!(core.member(rank).contact, Contact::Known(_));
            if !is_met {
                core.check_living(rank)?;
                core.contact(rank);
            }
            // A meeting belongs to no epoch, only to the window.
            let of = EpochId { window, number: 0 };
            let request = core.requests.begin(core.link, of, requests::Kind::Meeting(rank), deadline);
            if is_met {
                core.requests.end(request, Ok(()));
            }
            Ok(request)
        })
    }

    /// Returns a member's part in the memory of this process (`MPI_Win_shared_query`), or `None` if the two have not met
    /// yet: [`Windows::meet_member`]. The part stays there as long as this process does not free the window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NotAMember`]; [`Error::NotMapped`]; [`Error::Link`] if the member had failed
    /// before its part was mapped.
    pub fn view<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        window: WindowId,
        rank: WorldRank,
    ) -> Result<Option<View>, Error> {
        let port = &mut *out.port;
        self.call(out.link, window, |core| {
            core.check_member(rank)?;
            let Contact::Known(traits) = core.member(rank).contact else { return Ok(None) };
            let (len, unit) = (traits.len.get(), traits.unit.get());
            let memory = core.window.mapped(core.link, port, rank).cloned();
            if memory.is_none() && len > 0 {
                core.check_living(rank)?;
                return Err(Error::NotMapped { rank });
            }
            Ok(Some(View::new(rank, memory, len, unit)))
        })
    }

    fn check_epochs(&self, window: WindowId) -> Result<(), Error> {
        let open = self.window(window)?;
        if open.open.is_freed {
            return Err(Error::NoSuchWindow);
        }
        if open.epochs.len() >= self.config.epochs_max {
            return Err(Error::exhausted("epochs of a window", "wait for earlier epochs"));
        }
        Ok(())
    }
}

/// Checks that memory of this length suits an operation. Returns the number of bytes at the target.
pub(crate) fn check_action(action: Action, bytes: usize) -> Result<usize, Error> {
    let (op, element) = match action {
        Action::Put | Action::Get => return Ok(bytes),
        Action::Accumulate { op, element } | Action::GetAccumulate { op, element } => (op, element),
        Action::CompareSwap { element } => (Reduction::Replace, element),
    };
    if !op.accepts(element) {
        return Err(Error::Undefined { op, element });
    }
    let is_swap = matches!(action, Action::CompareSwap { .. });
    if !bytes.is_multiple_of(element.size()) || is_swap && bytes != 2 * element.size() {
        return Err(Error::WrongLength { len: bytes, element });
    }
    Ok(action.len_at_target(bytes))
}

/// Checks that a form suits an operation on `len` bytes of the target.
#[inline(never)]
fn check_form(form: &Form, action: Action, len: usize) -> Result<(), Error> {
    if form.size() != len {
        return Err(Error::FormLength { form: form.size(), len });
    }
    // The form has at most as many blocks as the data has bytes, which bounds the time of this search.
    if action != Action::Get && !form.is_disjoint() {
        return Err(Error::FormOverlap);
    }
    match action.element() {
        Some(element) if !form.consists_of(element.size()) => Err(Error::PartialElements { element }),
        _ => Ok(()),
    }
}

impl Core<'_> {
    /// Takes the memory of the part out of the window, in an epoch with its exclusive lock.
    pub(super) fn take_part(&mut self, number: u64) -> Result<Region, Error> {
        let call = "part_mut";
        let own = self.link.identity().rank;
        if !self.window.hints.takes_part || self.window.regions.is_some() {
            return Err(Error::NotTakeable);
        }
        if !matches!(self.open_kind(number)?, Kind::Lock { target, kind: LockKind::Exclusive } if target == own)
        {
            return Err(Error::WrongState {
                call,
                open: "an epoch without the exclusive lock of the own part",
            });
        }
        let party = self.window.party(number, own).expect("the target of a lock is a party");
        if party.state != State::Granted || !party.steps.is_empty() || !party.is_done() {
            return Err(Error::WrongState { call, open: "an epoch whose lock is not granted" });
        }
        let is_exposure = |number| {
            let epoch = self.window.epochs.get(number);
            epoch.is_some_and(|epoch| matches!(epoch.kind, Kind::Post(_) | Kind::Fence { .. }))
        };
        if self.window.active.keys().any(is_exposure) {
            return Err(Error::WrongState { call, open: "an exposure epoch" });
        }
        if self.window.is_taken {
            return Err(Error::WrongState { call, open: "a slice of the part" });
        }
        // A fence that has ended with the failure of a member does not show that the accesses of the others are over.
        let has_fences = self.window.fences.closing > 0 || self.window.fences.opening > 0;
        let last = self.window.fences.closing;
        let failure = self.window.failure(Space::Fence, last, Fate::NotDelivered);
        if let Some(failure) = failure.filter(|_| has_fences) {
            return Err(failure);
        }
        self.window.is_taken = true;
        Ok(std::mem::replace(&mut self.window.part.region, Region::new(Memory::zeroed(0))))
    }

    /// Returns the kind of an epoch that is open.
    fn open_kind(&mut self, number: u64) -> Result<Kind, Error> {
        let epoch = self.window.epoch(number).filter(|epoch| epoch.closed.is_none());
        epoch.map(|epoch| epoch.kind.clone()).ok_or(Error::NoSuchEpoch)
    }

    fn opened_epoch(&mut self, number: u64) -> EpochId {
        self.rescan();
        EpochId { window: self.id, number }
    }

    fn check_members(&self, group: &Group) -> Result<(), Error> {
        group.iter().try_for_each(|rank| self.check_member(rank))
    }

    fn check_member(&self, rank: WorldRank) -> Result<(), Error> {
        if self.window.group.contains(rank) { Ok(()) } else { Err(Error::NotAMember { rank }) }
    }

    /// Checks that an operation may be started in an epoch, and its place if the target's part is known.
    fn check_operation(
        &mut self,
        number: u64,
        Places { target: Target { rank, .. }, region, .. }: Places<'_>,
        operation: &Operation,
    ) -> Result<(), Error> {
        if region.is_some() != self.window.regions.is_some() {
            return Err(if region.is_some() { Error::NotDynamic } else { Error::NoRegion });
        }
        let epoch = self.window.epoch(number).filter(|epoch| epoch.closed.is_none());
        let has_target = epoch.ok_or(Error::NoSuchEpoch)?.kind.has_target(rank);
        if !has_target || !self.window.group.contains(rank) {
            return Err(Error::NotATarget { rank });
        }
        if self.window.is_taken && rank == self.link.identity().rank {
            return Err(Error::WrongState { call: "an access to the own part", open: "a slice of it" });
        }
        let member = self.member(rank);
        if let Some(cause) = member.failure.as_deref().cloned() {
            return Err(Error::peer_failed(rank, cause, Fate::NotDelivered));
        }
        match member.contact {
            Contact::Known(traits) => check_place(rank, traits, operation).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Checks that an operation may be recorded.
    pub(super) fn check_budget(&self, operation: &Operation) -> Result<(), Error> {
        let recorded = self.requests.recorded;
        if recorded > 0 && recorded + operation.cost() > self.config.recorded_max {
            let hint = "wait for operations, or close epochs, before you start more";
            return Err(Error::exhausted("the budget for recorded operations", hint));
        }
        Ok(())
    }

    /// Ends an operation on no bytes.
    fn end_empty(&mut self, operation: Operation) {
        let Some(id) = operation.request else { return };
        if !operation.action.has_reply() {
            self.requests.give_back(id, operation.memory);
        }
        self.requests.end(id, Ok(()));
    }

    fn has_lock_all(&mut self) -> bool {
        let Some(number) = self.window.open.access else { return false };
        self.window.epoch(number).is_some_and(|epoch| epoch.kind == Kind::LockAll)
    }

    /// Returns the epoch of the latest fence, if it is open.
    fn open_fence_epoch(&mut self) -> Option<u64> {
        let number = self.window.open.access?;
        let epoch = self.window.epoch(number)?;
        matches!(epoch.kind, Kind::Fence { .. }).then_some(number)
    }

    /// Checks that `start` or `lock_all` may open an access epoch.
    fn check_access(&mut self, call: &'static str) -> Result<(), Error> {
        self.drop_fence(call)?;
        if self.window.open.access.is_some() {
            return Err(Error::WrongState { call, open: "an access epoch" });
        }
        if !self.window.open.locks.is_empty() {
            return Err(Error::WrongState { call, open: "an epoch with a lock" });
        }
        Ok(())
    }

    /// Ends the epoch of a fence that no operation has used: the fence has begun nothing if another kind of epoch
    /// follows it.
    fn drop_fence(&mut self, call: &'static str) -> Result<(), Error> {
        let Some(number) = self.open_fence_epoch() else { return Ok(()) };
        if self.window.epoch(number).is_some_and(|epoch| !epoch.parties.is_empty()) {
            return Err(Error::WrongState { call, open: "an epoch of a fence, with operations," });
        }
        self.window.open.access = None;
        self.discard_fence(number);
        Ok(())
    }

    fn check_fence(&mut self, open: Option<u64>, closes: bool) -> Result<(), Error> {
        let call = "fence";
        if open.is_none() && self.window.open.access.is_some() {
            return Err(Error::WrongState { call, open: "an access epoch" });
        }
        if self.window.open.exposure.is_some() {
            return Err(Error::WrongState { call, open: "an exposure epoch" });
        }
        if !self.window.open.locks.is_empty() {
            return Err(Error::WrongState { call, open: "an epoch with a lock" });
        }
        if closes { Ok(()) } else { self.drop_fence(call) }
    }

    /// Ends the epoch of the preceding fence with a barrier.
    fn close_fence(&mut self, open: Option<u64>, deadline: Time) -> RequestId {
        self.window.fences.closing += 1;
        // The preceding fence may have been followed by another kind of epoch. The barrier takes place all the same,
        // because the other members cannot know that.
        let number = open.unwrap_or_else(|| self.window.open(Kind::Fence { opening: 0 }));
        self.window.open.access = None;
        let request = self.begin_close(number, deadline);
        self.set_barrier(number, Space::Fence, self.window.fences.closing);
        self.close(number, Some(request));
        request
    }

    fn set_barrier(&mut self, number: u64, space: Space, ordinal: u64) {
        if let Some(epoch) = self.window.epoch(number) {
            epoch.barrier = Some(Barrier { space, number: ordinal, round: None, asks_all: false });
        }
    }

    /// Begins the epoch of a fence. If the fence has ended an epoch, its barrier shows that all members have called it.
    /// Otherwise operations wait until the target has called it.
    fn begin_fence(&mut self, closes: bool) -> EpochId {
        let fences = &mut self.window.fences;
        fences.opening += u64::from(!closes);
        let opening = if closes { 0 } else { fences.opening };
        let number = self.window.open(Kind::Fence { opening });
        self.window.open.access = Some(number);
        EpochId { window: self.id, number }
    }

    /// Adds the parties of an epoch, with the next number for each of them.
    fn add_parties(&mut self, number: u64, group: &Group) {
        group.iter().for_each(|rank| self.add_party(number, rank));
    }

    fn add_party(&mut self, number: u64, rank: WorldRank) {
        let Some(kind) = self.window.epoch(number).map(|epoch| epoch.kind.clone()) else { return };
        let member = self.member(rank);
        let ordinal = match kind {
            Kind::Start(_) => {
                member.accesses += 1;
                member.accesses
            }
            Kind::Post(_) => {
                member.exposures += 1;
                member.exposures
            }
            _ => 0,
        };
        let failure = member.failure.as_deref().cloned();
        if let Some(epoch) = self.window.epoch(number) {
            epoch.add_party(rank, Party { ordinal, ..Default::default() });
        }
        if let Some(cause) = failure {
            self.fail_party(number, rank, &cause);
        }
    }

    /// Checks that a member has not failed. If it has, operations to it may have been lost.
    fn check_living(&mut self, rank: WorldRank) -> Result<(), Error> {
        match self.member(rank).failure.as_deref().cloned() {
            Some(cause) => Err(Error::peer_failed(rank, cause, Fate::Unknown)),
            None => Ok(()),
        }
    }

    fn flush(
        &mut self,
        epoch: EpochId,
        target: Option<WorldRank>,
        deadline: Time,
        is_needed: impl Fn(&Party) -> bool,
    ) -> Result<RequestId, Error> {
        self.check_flush(epoch.number, target)?;
        let awaited = self.unflushed(epoch.number, target, is_needed)?;
        let kind = requests::Kind::Flush(awaited.clone());
        let request = self.requests.begin(self.link, epoch, kind, deadline);
        if awaited.is_empty() {
            self.requests.end(request, Ok(()));
        }
        for rank in awaited {
            self.record(epoch.number, rank, Step::Flush(request));
        }
        Ok(request)
    }

    /// Checks that a flush of one target of an epoch, or of all, may be called.
    fn check_flush(&mut self, number: u64, target: Option<WorldRank>) -> Result<(), Error> {
        let kind = self.open_kind(number)?;
        if !matches!(kind, Kind::Lock { .. } | Kind::LockAll) {
            return Err(Error::WrongState { call: "flush", open: "an epoch without a lock" });
        }
        let Some(rank) = target else { return Ok(()) };
        if !kind.has_target(rank) || !self.window.group.contains(rank) {
            return Err(Error::NotATarget { rank });
        }
        self.check_living(rank)
    }

    /// Returns the targets of an epoch, or the one target, that must answer a flush. The stores to mapped memory become
    /// visible before any later load or store of this process.
    ///
    /// # Errors
    /// [`Error::Link`] if a target has failed.
    fn unflushed(
        &mut self,
        number: u64,
        target: Option<WorldRank>,
        is_needed: impl Fn(&Party) -> bool,
    ) -> Result<BTreeSet<WorldRank>, Error> {
        fence(Ordering::SeqCst);
        let parties = &self.window.epoch(number).ok_or(Error::NoSuchEpoch)?.parties;
        let is_chosen = |rank| target.is_none_or(|target| target == rank);
        let (over, living): (Vec<_>, Vec<_>) = parties
            .iter()
            .filter(|(rank, _)| is_chosen(*rank))
            .partition(|(_, party)| party.state == State::Over);
        let awaited =
            living.into_iter().filter(|(_, party)| is_needed(party)).map(|(rank, _)| rank).collect();
        let over: Vec<_> = over.into_iter().map(|(rank, _)| rank).collect();
        over.into_iter().try_for_each(|rank| self.check_living(rank))?;
        Ok(awaited)
    }
}
