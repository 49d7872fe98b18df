//! The state of a window at one of its members.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::ops::Range;

use samite_fabric::layout::Form;
use samite_fabric::link::{Cause, Fate, Group, Peer, RequestId, WorldRank};
use samite_fabric::{Memory, PathId, PortError, Region, Registration};

use crate::activation::{self, Kind, Permissions, Tally, View};
use crate::barrier;
use crate::epochs::Epochs;
use crate::lock_word::LockWord;
use crate::locks::Lock;
use crate::mapped::Mapped;
use crate::ordinals::{Exposures, Ranges};
use crate::outbox::Item;
use crate::path::WORD;
use crate::regions::Regions;
use crate::small_map::SmallMap;
use crate::transfers::TransferId;
use crate::wire::{Entry, PASSES, Place, Traits, Wanted};
use crate::{ElementType, Error, LockKind, Reduction, Reorder};

/// The name of a window, which is the same at all members: the name of its communicator, and its number among the
/// windows of that communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The communicator.
    pub communicator: u64,
    /// The number of the window.
    pub number: u64,
}

/// The name of a window in this process. The default is the name of no window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The name of an epoch. The default is the name of no epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochId {
    pub(crate) window: WindowId,
    pub(crate) number: u64,
}

impl EpochId {
    /// Returns the window of the epoch.
    #[must_use]
    pub fn window(self) -> WindowId {
        self.window
    }
}

/// Properties of a window that the program guarantees or wants. They may differ between members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// Epochs that may be activated while an earlier one is active.
    pub reorder: Reorder,
    /// True if an epoch may be activated while an earlier one is deferred, if no member takes part in both. Epochs of
    /// fences and of `lock_all` neither overtake nor are overtaken.
    pub overtake: bool,
    /// True if the request for a lock waits until its epoch is closed, so that the operations travel with the request
    /// if they fit in a packet. The target then applies them, releases the lock, and answers with one packet. The
    /// request is sent earlier if the operations do not fit, or after a flush, or if the program waits for one of the
    /// operations ([`Windows::urge`](crate::Windows::urge)). The requests of all operations end with the answer.
    pub aggregate: bool,
    /// True if the program takes the memory of its part out of the window for a while
    /// ([`Windows::take_part`](crate::Windows::take_part)). The part is then neither mapped nor registered, so all
    /// operations on it travel in packets.
    pub takes_part: bool,
    /// True if no two members change the same element by accumulates at the same time. Then those of this process on mapped
    /// memory, and those of others that it applies, need no atomic instructions.
    pub unshared_accumulates: bool,
}

/// The memory of a window at one member: a part of a region.
#[derive(Clone, Debug)]
pub struct Part {
    /// The region that contains the part.
    pub region: Region,
    /// The first byte.
    pub start: usize,
    /// The number of bytes.
    pub len: usize,
    /// The number of bytes of a displacement unit.
    pub unit: u32,
    /// The offset in the region of the lock word, or `None`. If other processes map the region, they take the lock of the
    /// part by this word. It is 0 at first, and serves no other purpose. It begins at a multiple of 8 bytes from the first
    /// byte of the part, and less than [`GAP_MAX`](Self::GAP_MAX) bytes behind the last one.
    pub lock: Option<NonZeroUsize>,
}

impl Part {
    /// The lock word begins less than this number of bytes behind the end of its part.
    pub const GAP_MAX: usize = 256;

    /// Returns a part that is a whole region.
    #[must_use]
    pub fn whole(region: Region, unit: u32) -> Self {
        let len = region.len();
        Self { region, start: 0, len, unit, lock: None }
    }

    /// Returns the distance of the lock word from the first byte of the part.
    pub(crate) fn lock_distance(&self) -> Option<usize> {
        let distance = self.lock?.get() - self.start;
        assert!(
            is_lock_distance(distance as u64, self.len as u64),
            "the lock word lies shortly behind the part"
        );
        Some(distance)
    }

    /// Returns true if `len` bytes from `at` on lie in the part.
    pub(crate) fn contains(&self, at: u64, len: usize) -> bool {
        at.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`].
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> Result<(), PortError> {
        self.check(at, into.len())?;
        self.region.copy_out(self.start + at, into)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`PortError::OutOfBounds`], [`PortError::Unsupported`].
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Result<(), PortError> {
        self.check(at, from.len())?;
        self.region.copy_in(self.start + at, from)
    }

    /// Applies an operation to elements, and returns the former bytes.
    ///
    /// # Errors
    /// Returns the errors of [`Part::write`].
    pub(crate) fn accumulate(
        &self,
        at: usize,
        op: Reduction,
        element: ElementType,
        operands: &[u8],
    ) -> Result<Vec<u8>, PortError> {
        let mut before = vec![0; operands.len()];
        self.read(at, &mut before)?;
        let mut after = before.clone();
        if op.apply(element, operands, &mut after) {
            self.write(at, &after)?;
        }
        Ok(before)
    }

    fn check(&self, at: usize, len: usize) -> Result<(), PortError> {
        if self.contains(at as u64, len) { Ok(()) } else { Err(PortError::OutOfBounds { offset: at, len }) }
    }
}

/// Returns true if a word at this distance from the first byte of a part can be that of its lock.
pub(crate) fn is_lock_distance(distance: u64, len: u64) -> bool {
    let is_behind = distance.checked_sub(len).is_some_and(|gap| gap < Part::GAP_MAX as u64);
    is_behind && distance.is_multiple_of(WORD as u64)
}

/// The state of a part that other processes access without packets.
#[derive(Debug)]
pub(crate) struct Exposed {
    /// The part in the memory of this process, if other processes may map it.
    pub(crate) mapped: Option<Mapped>,
    /// The bytes of the region that are registered: the part. If it is mapped, also the rest of its last word, and the
    /// word of the lock.
    pub(crate) span: Range<usize>,
    /// The registration on each path that a member uses.
    pub(crate) registrations: Vec<(PathId, Registration)>,
}

impl Exposed {
    /// Returns the state of a part that other processes may map, or `None` for any other part.
    pub(crate) fn mapped(part: &Part) -> Option<Box<Self>> {
        let len = part.len.checked_next_multiple_of(WORD)?;
        let len = part.lock_distance().map_or(len, |distance| distance + WORD);
        let span = part.start..part.start.checked_add(len)?;
        let mapped = Mapped::new(part.region.window(span.clone())?)?;
        Some(Box::new(Self { mapped: Some(mapped), span, registrations: Vec::new() }))
    }

    /// Returns the state of a part that no other process may map.
    pub(crate) fn unmapped(part: &Part) -> Box<Self> {
        let span = part.start..part.start + part.len;
        Box::new(Self { mapped: None, span, registrations: Vec::new() })
    }
}

/// A window at one member.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) name: Name,
    pub(crate) group: Group,
    /// The part of this process. It is empty if the window is dynamic.
    pub(crate) part: Part,
    /// True while the program has taken the memory of the part out of the window. It then holds its own lock alone, and
    /// no exposure is activated.
    pub(crate) is_taken: bool,
    /// The memory that this process has attached to a dynamic window. `None` for any other window.
    pub(crate) regions: Option<Box<Regions>>,
    /// Set if other processes may map the part, or access it by puts and gets of the port.
    pub(crate) exposed: Option<Box<Exposed>>,
    pub(crate) generation: u32,
    pub(crate) hints: Hints,
    /// The number of calls so far that opened or closed an epoch.
    pub(crate) calls: u64,
    pub(crate) epochs: Epochs,
    /// The target of the epoch with the latest number, if this epoch is [bare](crate::Windows::is_bare).
    pub(crate) bare: Option<WorldRank>,
    pub(crate) active: SmallMap<u64, ()>,
    /// The counts of these epochs.
    pub(crate) tally: Tally,
    /// All epochs before this number were activated, or were ended without that.
    pub(crate) deferred: u64,
    pub(crate) open: Open,
    pub(crate) fences: Fences,
    /// The members that this process has to do with. They are boxed because they are large, and the first place of the
    /// map is in the window.
    pub(crate) members: SmallMap<WorldRank, Box<Member>>,
    pub(crate) lock: Lock,
    /// A member that has died. The next barriers end with it.
    pub(crate) failed: Option<WorldRank>,
    /// True if a member has left.
    pub(crate) has_left: bool,
    /// The members that are the first to be absent from barriers of each [`Space`], because they have left.
    pub(crate) absent: Option<Box<[Option<Absent>; 2]>>,
}

/// A member that has left without taking part in a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    pub(crate) rank: WorldRank,
    /// The number of the first barrier in which it takes no part.
    pub(crate) from: u64,
}

/// The epochs that the program has not closed.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// An epoch of `start`, `lock_all` or a fence.
    pub(crate) access: Option<u64>,
    pub(crate) exposure: Option<u64>,
    pub(crate) locks: SmallMap<WorldRank, u64>,
    pub(crate) is_freed: bool,
}

/// The fences of a window. These numbers are the same at all members.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// The number of fences so far that end an epoch.
    pub(crate) closing: u64,
    /// The number of fences so far that only begin an epoch.
    pub(crate) opening: u64,
    /// The number of the latest of these that was activated here.
    pub(crate) opened: u64,
    /// True if the next fence ends an epoch.
    pub(crate) precedes: bool,
}

impl Window {
    pub(crate) fn epoch(&mut self, number: u64) -> Option<&mut Epoch> {
        self.epochs.get_mut(number)
    }

    /// Returns the part of a member in an epoch.
    pub(crate) fn party(&mut self, number: u64, rank: WorldRank) -> Option<&mut Party> {
        self.epoch(number)?.parties.get_mut(rank)
    }

    /// Returns true if an epoch of fences needs no `FINISH` to a member: all operations so far that were sent or carried out
    /// are complete there. The barrier tells of the end of the epoch.
    pub(crate) fn ends_silently(&self, number: u64, rank: WorldRank) -> bool {
        let epoch = self.epochs.get(number).filter(|epoch| matches!(epoch.kind, Kind::Fence { .. }));
        let party = epoch.and_then(|epoch| epoch.parties.get(rank));
        party.is_some_and(|party| party.are_packets_applied() && party.transfers == 0)
    }

    /// Returns the memory of `len` bytes of this process from `at` on, and their offset in it. Returns `None` if they are
    /// not in the part, or not in memory that is attached to a dynamic window.
    pub(crate) fn find(&self, at: u64, len: usize) -> Option<(&Part, usize)> {
        match &self.regions {
            Some(regions) => regions.find(at, len),
            // The part is in memory, so the offset fits.
            None => self.part.contains(at, len).then_some((&self.part, at as usize)),
        }
    }

    /// Returns true if the window of a member is known to be dynamic.
    pub(crate) fn is_dynamic_at(&self, rank: WorldRank) -> bool {
        let contact = self.members.get(rank).map(|member| member.contact);
        matches!(contact, Some(Contact::Known(traits)) if traits.is_dynamic())
    }

    /// Returns the registration of the part for the members on a path.
    pub(crate) fn registration(&self, path: PathId) -> Option<Registration> {
        let registrations = &self.exposed.as_ref()?.registrations;
        registrations.iter().find(|(known, _)| *known == path).map(|(_, registration)| *registration)
    }

    /// Returns the flag of a request for the lock of an epoch of this kind: see [`LOCK`](crate::wire::kind::LOCK).
    pub(crate) fn lock_flag(&self, kind: &Kind) -> u32 {
        match kind {
            Kind::Lock { kind: LockKind::Exclusive, .. } => 1,
            Kind::Lock { .. } | Kind::LockAll if self.holds_lock() => PASSES,
            _ => 0,
        }
    }

    /// Returns the word of the lock of a member's part, if this process maps it.
    pub(crate) fn lock_word(&self, rank: WorldRank, own: WorldRank) -> Option<LockWord<'_>> {
        if rank == own {
            return self.own_lock_word();
        }
        let member = self.members.get(rank)?;
        let (Contact::Known(traits), Mapping::Mapped(mapped)) = (member.contact, &member.mapping) else {
            return None;
        };
        let distance = traits.lock_distance().filter(|_| mapped.is_open())?;
        Some(LockWord::new(mapped, distance))
    }

    /// Returns the word of the lock of the own part, if other processes may map it.
    pub(crate) fn own_lock_word(&self) -> Option<LockWord<'_>> {
        let mapped = self.exposed.as_ref()?.mapped.as_ref()?;
        Some(LockWord::new(mapped, self.part.lock_distance()?))
    }

    /// Returns true if each member sends `OPENED` to all others when it activates an opening fence: in a window of at most 8
    /// members, whose barrier has one round and reaches all of them anyway.
    pub(crate) fn tells_all(&self) -> bool {
        barrier::rounds(self.group.len()) <= 1
    }

    /// Returns true if this process holds a lock until the program closes its epoch.
    pub(crate) fn holds_lock(&self) -> bool {
        let is_held = |number: &u64| {
            let epoch = self.epochs.get(*number).filter(|epoch| epoch.kind.has_locks());
            epoch.is_some_and(|epoch| epoch.parties.values().any(|party| party.state == State::Granted))
        };
        self.open.locks.values().chain(&self.open.access).any(is_held)
    }

    /// Returns the member that is the first to be absent from barriers of a space.
    pub(crate) fn absent(&self, space: Space) -> Option<Absent> {
        self.absent.as_deref()?[space as usize]
    }

    /// Returns a member that takes no part in a barrier, because it has died or left.
    pub(crate) fn missing(&self, space: Space, number: u64) -> Option<WorldRank> {
        let absent = || self.absent(space).filter(|absent| absent.from <= number);
        self.failed.or_else(|| absent().map(|absent| absent.rank))
    }

    /// Returns the error that names a member which takes no part in a barrier, if there is one.
    pub(crate) fn failure(&self, space: Space, number: u64, fate: Fate) -> Option<Error> {
        let rank = self.missing(space, number)?;
        let known = self.members.get(rank).and_then(|member| member.failure.as_deref().cloned());
        let cause = known.unwrap_or_else(|| match self.failed {
            Some(_) => Cause::Died("reported by another member".into()),
            None => Cause::Left,
        });
        Some(Error::peer_failed(rank, cause, fate))
    }

    /// Returns the number of the closing fence that ends an epoch, if the epoch is one of fences.
    pub(crate) fn ending_fence(&self, epoch: &Epoch) -> Option<u64> {
        let is_fence = matches!(epoch.kind, Kind::Fence { .. });
        is_fence.then(|| epoch.barrier.map_or(self.fences.closing + 1, |barrier| barrier.number))
    }

    /// Returns the error that names a member which takes no part in the fence that ends an epoch, if there is one.
    pub(crate) fn fence_failure(&self, number: u64) -> Option<Error> {
        let ending = self.ending_fence(self.epochs.get(number)?)?;
        self.failure(Space::Fence, ending, Fate::NotDelivered)
    }

    /// Adds an epoch, and returns its number.
    pub(crate) fn open(&mut self, kind: Kind) -> u64 {
        self.calls += 1;
        self.epochs.open(kind, self.calls)
    }

    /// Returns true if the rules permit to activate an epoch now. `is_next` is true if all earlier ones were activated.
    pub(crate) fn may_activate(&self, epoch: &Epoch, is_next: bool) -> bool {
        if self.is_taken && matches!(epoch.kind, Kind::Post(_) | Kind::Fence { .. }) {
            return false;
        }
        let is_locked = self.lock.is_held();
        if is_next && self.tally.permits(&epoch.kind, is_locked, self.hints.reorder) {
            return true;
        }
        let earlier = self.epochs.before(epoch.number).map(Epoch::view);
        let permissions = Permissions { reorder: self.hints.reorder, overtake: self.hints.overtake };
        activation::may_activate(epoch.view(), earlier, is_locked, permissions)
    }
}

/// An epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) is_active: bool,
    opened: u64,
    pub(crate) closed: Option<u64>,
    /// The members that take part. For epochs of all members, those with operations.
    pub(crate) parties: SmallMap<WorldRank, Party>,
    /// The number of parties that are not over.
    pub(crate) left: usize,
    pub(crate) barrier: Option<Barrier>,
    /// The request that waits for the completion.
    pub(crate) request: Option<RequestId>,
    pub(crate) error: Option<Error>,
}

/// The barrier at the end of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) space: Space,
    pub(crate) number: u64,
    /// The round under way. `None` until all operations of the epoch are applied.
    pub(crate) round: Option<u32>,
    /// True if this process asks all members, because one has failed.
    pub(crate) asks_all: bool,
}

/// The barriers that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Fence = 0,
    Free = 1,
}

impl Epoch {
    pub(crate) fn new(number: u64, kind: Kind, opened: u64) -> Self {
        Self {
            number,
            kind,
            is_active: false,
            opened,
            closed: None,
            parties: SmallMap::default(),
            left: 0,
            barrier: None,
            request: None,
            error: None,
        }
    }

    pub(crate) fn view(&self) -> View<'_> {
        let aborted = (self.has_ended_early() && self.barrier.is_none()).then_some(&self.parties);
        let Self { kind, is_active, opened, closed, .. } = self;
        View { kind, is_active: *is_active, opened: *opened, closed: *closed, aborted }
    }

    /// Returns true if the epoch was ended early here. Its request has ended with that.
    pub(crate) fn has_ended_early(&self) -> bool {
        self.closed.is_some() && self.request.is_none()
    }

    /// Adds the part of a member that takes no part yet.
    pub(crate) fn add_party(&mut self, rank: WorldRank, party: Party) {
        self.parties.insert(rank, party);
        self.left += 1;
    }

    /// Returns true if operations of the epoch may have been carried out: see [`Party::has_begun`].
    pub(crate) fn has_begun(&self) -> bool {
        self.parties.values().any(|party| party.has_begun(&self.kind))
    }
}

/// The part of an epoch that concerns one member.
#[derive(Debug, Default)]
pub(crate) struct Party {
    /// The number of the access, exposure or lock.
    pub(crate) ordinal: u64,
    pub(crate) state: State,
    /// The steps that wait for the target's permission.
    pub(crate) steps: VecDeque<Step>,
    /// The number of steps that were passed on and are not sent.
    pub(crate) queued: usize,
    /// The number of operations whose reply is awaited.
    pub(crate) unanswered: usize,
    /// True if packets of operations were sent since the last packet of a flush. A flush then asks the target if they are
    /// applied.
    pub(crate) has_packets: bool,
    /// The number of packets of flushes whose answer is awaited.
    pub(crate) flushes: u32,
    /// True if the latest step was a flush. The program then probably flushes the next operation too.
    pub(crate) is_after_flush: bool,
    /// The number of operations of which a put or a get by the port was posted, and that have not ended.
    pub(crate) transfers: usize,
    /// The number of these operations that read. They do not count as `unanswered`.
    pub(crate) reads: usize,
    pub(crate) closing: Closing,
    /// The bytes of the operations so far in a packet, at most.
    pub(crate) recorded: usize,
    /// True if the program can wait for one of the operations, and the lock may wait for the end of the epoch.
    pub(crate) has_requests: bool,
    /// True if the lock no longer waits for the end of the epoch.
    pub(crate) is_urged: bool,
    pub(crate) attached: Attached,
    /// True if this process has taken the lock by its [word](crate::lock_word).
    pub(crate) is_by_lock_word: bool,
}

impl Party {
    /// Returns true if operations may have been carried out. An exposure that has begun may have been accessed, and
    /// operations that were sent may have been applied. `kind` is the kind of the epoch.
    pub(crate) fn has_begun(&self, kind: &Kind) -> bool {
        let has_begun =
            matches!((kind, self.state), (_, State::Granted | State::Over) | (Kind::Post(_), State::Asked));
        has_begun || self.attached != Attached::No
    }

    /// Returns true if the target has granted the access, and no step waits to be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Granted
            && self.steps.is_empty()
            && self.queued == 0
            && self.closing == Closing::No
    }

    /// Returns true if all operations that were passed on are complete at this side.
    pub(crate) fn is_done(&self) -> bool {
        self.unanswered == 0 && self.queued == 0 && self.transfers == 0
    }

    /// Returns true if all packets of operations that were sent are known to be applied.
    pub(crate) fn are_packets_applied(&self) -> bool {
        !self.has_packets && self.flushes == 0
    }

    /// Returns true if all operations so far are complete at the target.
    pub(crate) fn is_flushed(&self) -> bool {
        self.state == State::Over || self.is_ready() && self.are_packets_applied() && self.transfers == 0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The epoch is not active, or the target was not asked.
    #[default]
    Idle,
    /// The target's permission is awaited. In an exposure epoch: the end of the member's access.
    Asked,
    Granted,
    Over,
}

/// The progress of the end of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    #[default]
    No,
    /// [`Step::Close`] is among the steps.
    Queued,
    Sent,
    Answered,
}

/// The progress of steps that travel with the request for the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attached {
    /// No steps were sent with the request.
    #[default]
    No,
    /// The steps were sent. They stay in the party until the target has answered, because it may refuse them.
    Sent,
    /// The steps were sent, and the program has ended the epoch early.
    Withdrawn,
}

/// A step of an access, in the order of the program.
#[derive(Debug)]
pub(crate) enum Step {
    /// The request for the lock of an epoch that is closed. The steps of the epoch are attached if they fit in the
    /// packet. The flag is true if they were.
    Lock(bool),
    Operation(Box<Operation>),
    Flush(RequestId),
    /// The end of the access. It is aborted if the flag is true.
    Close(bool),
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes the memory to the target.
    Put,
    /// Reads from the target into the memory.
    Get,
    /// Combines elements of the target with elements of the memory.
    Accumulate {
        /// The operation on each element.
        op: Reduction,
        /// The type of the elements.
        element: ElementType,
    },
    /// Combines elements of the target with elements of the memory, which then gets the former elements. With one
    /// element it is MPI's `MPI_Fetch_and_op`.
    GetAccumulate {
        /// The operation on each element.
        op: Reduction,
        /// The type of the elements.
        element: ElementType,
    },
    /// Replaces an element of the target by the second element of the memory if it is equal to the first. The first
    /// element of the memory then is the former element.
    CompareSwap {
        /// The type of the element.
        element: ElementType,
    },
}

impl Action {
    /// Returns true if the target sends bytes back.
    #[must_use]
    pub fn has_reply(self) -> bool {
        matches!(self, Self::Get | Self::GetAccumulate { .. } | Self::CompareSwap { .. })
    }

    /// Returns the type of the elements, if the operation is atomic for each of them.
    pub(crate) fn element(self) -> Option<ElementType> {
        match self {
            Self::Put | Self::Get => None,
            Self::Accumulate { element, .. }
            | Self::GetAccumulate { element, .. }
            | Self::CompareSwap { element } => Some(element),
        }
    }

    /// Returns the number of bytes at the target.
    pub(crate) fn len_at_target(self, memory: usize) -> usize {
        if let Self::CompareSwap { .. } = self { memory / 2 } else { memory }
    }
}

/// An operation that was not sent completely.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    /// The displacement at the target, in the target's units.
    pub(crate) displacement: u64,
    /// The places of the bytes at the target, relative to the displacement. `None` if the bytes are contiguous there.
    pub(crate) form: Option<Box<Form>>,
    /// The number of bytes at the target.
    pub(crate) len: usize,
    /// The number of bytes whose packets were sent.
    pub(crate) sent: usize,
    /// The data. The data of an operation with a reply is in its request.
    pub(crate) memory: Option<Memory>,
    pub(crate) request: Option<RequestId>,
    /// The progress of an operation that travels by puts or gets of the port. It has the memory.
    pub(crate) transfer: Option<TransferId>,
}

impl Operation {
    /// Returns an operation of which nothing was sent, without memory and without a request.
    pub(crate) fn new(action: Action, displacement: u64, len: usize) -> Self {
        Self { action, displacement, form: None, len, sent: 0, memory: None, request: None, transfer: None }
    }

    /// Returns the place of a byte of the operation at the target, relative to the displacement, and the number of
    /// bytes from this one on that follow each other there: a *run*. A packet, a put or a get concerns one run.
    #[inline]
    pub(crate) fn run(&self, at: usize) -> (isize, usize) {
        match &self.form {
            // The operation lies in memory at the target.
            None => (at.cast_signed(), self.len - at),
            Some(form) => form.run(at),
        }
    }

    /// Calls a function for each run, with its offset in the target's part and the range of its bytes in the data.
    /// `base` is the offset of the displacement in the part. All runs lie in the part.
    #[inline]
    pub(crate) fn each_run(&self, base: u64, mut call: impl FnMut(usize, Range<usize>)) {
        let mut done = 0;
        while done < self.len {
            let (place, len) = self.run(done);
            call(self.offset(base, place) as usize, done..done + len);
            done += len;
        }
    }

    /// Returns the offset in the target's part of a place that [`Operation::run`] has returned. The displacement itself
    /// need not lie in the part.
    #[inline]
    pub(crate) fn offset(&self, base: u64, place: isize) -> u64 {
        base.wrapping_add_signed(place as i64)
    }

    /// Returns the length of the shortest run.
    #[inline]
    pub(crate) fn shortest_run(&self) -> usize {
        self.form.as_ref().map_or(self.len, |form| form.shortest_block())
    }

    /// Returns the first place at the target, relative to the displacement, and the number of bytes from there to the
    /// last place.
    #[inline]
    pub(crate) fn span(&self) -> (isize, u64) {
        match &self.form {
            None => (0, self.len as u64),
            Some(form) => {
                let [first, end] = form.true_bounds();
                (first, end.abs_diff(first) as u64)
            }
        }
    }

    /// Returns true if a reply is awaited, or will be. A read by gets of the port awaits none when the first get was
    /// posted.
    pub(crate) fn awaits_reply(&self) -> bool {
        self.action.has_reply() && !(self.transfer.is_some() && self.sent > 0)
    }

    /// Returns the memory that the operation takes while it is recorded.
    pub(crate) fn cost(&self) -> usize {
        size_of::<Self>() + self.len
    }

    /// Returns the bytes of the operation in an `EPOCH`, at most.
    pub(crate) fn attached_len(&self) -> usize {
        let operands = if let Action::CompareSwap { .. } = self.action { 2 } else { 1 };
        let head = size_of::<Entry>() + size_of::<Place>() + size_of::<Wanted>();
        self.len.div_ceil(self.shortest_run().max(1)) * head + operands * self.len
    }
}

/// A member that this process has to do with.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) peer: Peer,
    pub(crate) contact: Contact,
    pub(crate) mapping: Mapping,
    /// Packets that wait until the member's traits are known.
    pub(crate) held: VecDeque<Item>,
    /// True if `held` has messages of a fence that has completed here. The member waits for them, and this process does not
    /// say goodbye to it before.
    pub(crate) owes: bool,
    /// True while the answer to the member's introduction waits to be sent. The member can use no other packet of this
    /// process before it.
    pub(crate) is_unanswered: bool,
    pub(crate) failure: Option<Box<Cause>>,
    // As an origin of operations to the member.
    /// The number of access epochs to the member.
    pub(crate) accesses: u64,
    /// The number of the latest exposure that the member has granted.
    pub(crate) granted: u64,
    /// The exposures that the member has aborted and that are not granted.
    pub(crate) revoked: Ranges,
    /// The number of locks that were requested from the member.
    pub(crate) locks: u64,
    /// The number of the member's latest opening fence.
    pub(crate) opened: u64,
    // As a target of operations of the member.
    /// The number of exposure epochs for the member.
    pub(crate) exposures: u64,
    pub(crate) exposed: Exposures,
    /// The number of the lock that the member holds or has requested.
    pub(crate) lock: u64,
    /// The operations that came with the request for that lock, which waits.
    pub(crate) attached: Option<Attachment>,
    /// True if such operations were applied and the lock was released. The member may withdraw the request once,
    /// because it may not know that.
    pub(crate) is_applied: bool,
    /// True while the answer to such operations waits to be sent. The member waits for it before its next request.
    pub(crate) is_answering: bool,
    /// The epochs of the member with a write on memory that is not attached to a dynamic window.
    pub(crate) misses: Vec<Miss>,
    /// The opening fence for which the member waits, or 0.
    pub(crate) asked: u64,
    /// The latest opening fence of which the member was told that it is activated, or 0.
    pub(crate) told: u64,
    /// The number of the member's latest barrier, by [`Space`].
    pub(crate) fenced: [u64; 2],
    /// What the member and this process have told each other about the barrier that frees the window.
    pub(crate) freeing: Freeing,
}

/// Writes of a member's epoch on memory that is not attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    /// The low bits of the epoch's number at the member.
    pub(crate) epoch: u16,
    /// The place of the first write. The answer to the end of the epoch reports it.
    pub(crate) first: u64,
    /// The place of the first write since the last flush. The answer to the next flush reports it.
    pub(crate) untold: Option<u64>,
}

/// The largest number of epochs of one member with such a write. A member that has more fails.
pub(crate) const MISSES_MAX: usize = 4096;

/// The questions of two members to each other, after the failure of a third one, if the other one frees the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freeing {
    /// True if the member waits for the answer of this process.
    pub(crate) is_asked: bool,
    /// True if the member has told that it frees the window, or has freed it.
    pub(crate) is_answered: bool,
}

impl Member {
    /// Returns true if packets to the member would be lost with the window.
    pub(crate) fn needs_window(&self) -> bool {
        !self.held.is_empty() || self.is_unanswered
    }

    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            contact: Contact::None,
            mapping: Mapping::Untried,
            held: VecDeque::new(),
            owes: false,
            is_unanswered: false,
            failure: None,
            accesses: 0,
            granted: 0,
            revoked: Ranges::default(),
            locks: 0,
            opened: 0,
            exposures: 0,
            exposed: Exposures::default(),
            lock: 0,
            attached: None,
            is_applied: false,
            is_answering: false,
            misses: Vec::new(),
            asked: 0,
            told: 0,
            fenced: [0; 2],
            freeing: Freeing::default(),
        }
    }

    /// Returns true if the member is known to have entered the barrier that frees the window.
    pub(crate) fn frees(&self) -> bool {
        self.fenced[Space::Free as usize] > 0 || self.freeing.is_answered
    }
}

/// The operations of a whole epoch of a member, which wait for the lock. They were checked.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// The epoch at the member.
    pub(crate) epoch: u64,
    pub(crate) operations: Box<[u8]>,
    /// The number of bytes for which the operations ask.
    pub(crate) wanted: usize,
}

impl Attachment {
    /// Returns the memory that the operations and their results take until the answer is sent.
    pub(crate) fn cost(&self) -> usize {
        self.operations.len() + self.wanted
    }
}

/// The knowledge about a member's part of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contact {
    None,
    Asked,
    Known(Traits),
}

/// The member's part in the memory of this process.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// The first operation tries to map the part.
    Untried,
    Refused,
    Mapped(Mapped),
}

/// A process may have a million windows (`Config::windows_max`), so the state of one is small.
const _: () = assert!(size_of::<Window>() <= 456);
