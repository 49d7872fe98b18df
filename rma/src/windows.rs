//! All windows of a process: creation, calls, and the protocol on the link.

mod bare;
mod calls;
mod direct;
mod ending;
mod inbound;
mod outbound;

use std::collections::HashMap;

use samite_fabric::link::{
    Cause, Done, Ending, Expiry, Fault, Group, Lent, Link, Out, Outcome, Peer, RequestId, Stack, Time, Turn,
    WorldRank,
};
use samite_fabric::wire::{Header, Protocol};
use samite_fabric::{Body, Caps, Memory, Port, PortError, Region};
use slab::Slab;

use crate::activation::Tally;
use crate::core::Core;
use crate::counters::Counters;
use crate::ordinals::Ranges;
use crate::outbox::Outbox;
use crate::path::Limits;
use crate::regions::Regions;
use crate::requests::{Completion, Requests};
use crate::window::{Attachment, Contact, Epoch, Exposed, Fences, Open, Window};
use crate::wire::Traits;
use crate::{Attached, EpochId, Error, Hints, Name, Part, Reorder, WindowId};

pub(crate) use self::calls::check_action;
pub use self::calls::{Assertions, Fenced, Places, Target};
pub(crate) use self::outbound::packet_of;

/// Limits of [`Windows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The budget, in bytes, for operations that are recorded and not sent. An operation of any length is accepted if
    /// no other one is recorded.
    pub recorded_max: usize,
    /// The largest number of epochs of one window that have not completed.
    pub epochs_max: usize,
    /// The largest number of windows.
    pub windows_max: usize,
    /// The largest number of regions of this process that are attached to one dynamic window.
    pub regions_max: usize,
    /// The largest number of requests of one peer for windows that do not exist yet.
    pub early_max: usize,
    /// The largest number of packets to one peer whose answer is awaited. It must be at most
    /// [`answers_max`](samite_fabric::link::Config::answers_max) of the peer's link.
    pub questions_max: u32,
    /// The largest number of bytes of one put or get by the port. A longer operation consists of several.
    pub put_chunk: usize,
    /// The same for operations whose bytes are copied to or from registered memory.
    pub copy_chunk: usize,
    /// The largest number of puts and gets by the port to one peer that are under way, if they have at most `copy_chunk`
    /// bytes. Of longer ones fewer are under way, in proportion to their length, but at least one.
    pub puts_max: usize,
    /// The budget, in bytes, for operations that came with requests for locks ([`Hints::aggregate`]) and whose answers
    /// are not sent. If it is used up, this process ignores the operations and grants the lock, and the member sends
    /// them again.
    pub attached_max: usize,
}

impl Config {
    /// The default of [`epochs_max`](Self::epochs_max).
    pub(crate) const EPOCHS_MAX: usize = 4 << 20;

    /// Returns the largest number of puts or gets that may be under way to one peer when one of this length is posted.
    fn pieces_max(&self, len: usize) -> usize {
        (self.puts_max.saturating_mul(self.copy_chunk) / len.max(self.copy_chunk).max(1)).max(1)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recorded_max: 256 << 20,
            epochs_max: Self::EPOCHS_MAX,
            windows_max: 1 << 20,
            regions_max: 1 << 20,
            early_max: 4096,
            questions_max: 64,
            put_chunk: 1 << 20,
            copy_chunk: 256 << 10,
            puts_max: 16,
            attached_max: 64 << 20,
        }
    }
}

/// The windows of a process: see the [crate](crate).
#[derive(Debug)]
pub struct Windows {
    config: Config,
    windows: Slab<Window>,
    names: HashMap<Name, u32>,
    /// The numbers of the windows of each communicator that were created. One that does not exist any more was freed.
    created: HashMap<u64, Ranges>,
    /// The generation of the latest window.
    generation: u32,
    /// The requests for windows that do not exist yet: the traits of a member that wants to use the window, or `None`
    /// if the member asks if this process frees it.
    early: HashMap<Name, Vec<(Peer, Option<Traits>)>>,
    outbox: Outbox,
    requests: Requests,
    counters: Counters,
    /// The number of windows with active epochs.
    active: usize,
    /// The number of regions that are attached to dynamic windows.
    attached: usize,
}

impl Windows {
    /// Returns a process without windows.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            windows: Slab::new(),
            names: HashMap::new(),
            created: HashMap::new(),
            generation: 0,
            early: HashMap::new(),
            outbox: Outbox::default(),
            requests: Requests::new(),
            counters: Counters::default(),
            active: 0,
            attached: 0,
        }
    }

    /// Creates a window with these members, one of which is this process. The call sends nothing unless a member has
    /// already asked for the window.
    ///
    /// # Errors
    /// [`Error::NameInUse`] if a window of this name exists or has existed; [`Error::NotAMember`]; [`Error::Link`] if a
    /// member is no rank of the job, or if there are too many windows.
    pub fn create(
        &mut self,
        link: &mut Link,
        name: Name,
        members: Group,
        part: Part,
        hints: Hints,
    ) -> Result<WindowId, Error> {
        self.create_with(link, name, members, (part, None), hints)
    }

    /// Creates a window as [`Windows::create`] does, of which the members have no memory at first
    /// (`MPI_Win_create_dynamic`). All members create it by this call. [`Windows::attach_memory`] adds memory of this process.
    /// Operations name a place by a region ([`Places::within`]).
    ///
    /// # Errors
    /// Returns the errors of [`Windows::create`].
    pub fn create_dynamic(
        &mut self,
        link: &mut Link,
        name: Name,
        members: Group,
        hints: Hints,
    ) -> Result<WindowId, Error> {
        let none = Part::whole(Region::new(Memory::zeroed(0)), 1);
        self.create_with(link, name, members, (none, Some(Box::new(Regions::new()))), hints)
    }

    fn create_with(
        &mut self,
        link: &mut Link,
        name: Name,
        members: Group,
        (mut part, regions): (Part, Option<Box<Regions>>),
        hints: Hints,
    ) -> Result<WindowId, Error> {
        let own = link.identity().rank;
        if !members.contains(own) {
            return Err(Error::NotAMember { rank: own });
        }
        if let Some((_, last)) = members.bounds() {
            link.check_rank(last)?;
        }
        if self.was_created(name) {
            return Err(Error::NameInUse);
        }
        if self.windows.len() >= self.config.windows_max {
            return Err(Error::exhausted("windows", "free windows that are not used any more"));
        }
        self.generation = self.generation.wrapping_add(1);
        if hints.reorder.intersects(Reorder::EXPOSURE_AFTER_EXPOSURE | Reorder::EXPOSURE_AFTER_ACCESS) {
            // An exposure that passes others waits for the lock, so this process must know if a member holds it.
            part.lock = None;
        }
        let entry = self.windows.vacant_entry();
        let slot = u32::try_from(entry.key()).expect("windows_max windows have slots of 32 bits");
        let id = WindowId { slot, generation: self.generation };
        entry.insert(Window {
            name,
            group: members,
            exposed: if hints.takes_part { None } else { Exposed::mapped(&part) },
            part,
            is_taken: false,
            regions,
            generation: self.generation,
            hints,
            calls: 0,
            epochs: Default::default(),
            bare: None,
            active: Default::default(),
            tally: Tally::default(),
            deferred: 0,
            open: Open::default(),
            fences: Fences::default(),
            members: Default::default(),
            lock: Default::default(),
            failed: None,
            has_left: false,
            absent: None,
        });
        self.names.insert(name, slot);
        self.created.entry(name.communicator).or_default().insert(name.number);
        self.welcome(link, id);
        Ok(id)
    }

    /// Ends the part of a member in a window. The call is needed for a member whose process has been replaced before
    /// the window was created: the link then reports no end, but the new process is no member.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    pub fn fail_member(
        &mut self,
        link: &mut Link,
        window: WindowId,
        rank: WorldRank,
        cause: &Cause,
    ) -> Result<(), Error> {
        self.call(link, window, |core| {
            core.fail_member(rank, cause);
            Ok(())
        })
    }

    /// Answers the members that have asked for a window before it was created.
    fn welcome(&mut self, link: &mut Link, id: WindowId) {
        let early = self.early.remove(&self.windows[id.slot as usize].name).unwrap_or_default();
        for (peer, traits) in early {
            self.outbox.of(peer).early -= 1;
            // This refuses a peer that is no member. Nothing has checked that before, because the window did not exist
            // when the packet arrived.
            let _ = match traits {
                Some(traits) => self.introduced(link, peer, id.slot, traits),
                None => self.freed_asked_of(link, peer, id.slot),
            };
        }
        let refused: Vec<_> = link
            .peers()
            .filter(|(peer, _)| self.outbox.was_refused(*peer))
            .map(|(_, state)| state.rank())
            .collect();
        for rank in refused {
            self.with(link, id.slot, |core| {
                if core.window.group.contains(rank) {
                    core.contact(rank);
                    // Its question may be among the requests that were refused.
                    core.freed_asked(rank);
                }
            });
        }
    }

    /// Returns true if a window of this name exists, or has existed.
    fn was_created(&self, name: Name) -> bool {
        self.created.get(&name.communicator).is_some_and(|numbers| numbers.contains(name.number))
    }

    /// Returns the number of bytes of this process's part of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    pub fn len(&self, window: WindowId) -> Result<usize, Error> {
        Ok(self.window(window)?.part.len)
    }

    /// Takes the memory of this process's part out of a window, so that the program can use it as its own. `epoch` is an
    /// open epoch with the exclusive lock of this part. The lock is granted, and the operations of the epoch are applied,
    /// for example after a flush. No other member has access meanwhile: locks are not granted, and no exposure begins.
    /// [`Windows::put_part`] ends that.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], [`Error::NoSuchEpoch`]; [`Error::NotTakeable`] without [`Hints::takes_part`], and for a
    /// dynamic window; [`Error::WrongState`] if others can have access; [`Error::Link`] if the window had fences and a
    /// member has failed, because the last fence then does not show that the accesses of the other members are over.
    pub fn take_part(&mut self, link: &mut Link, epoch: EpochId) -> Result<Region, Error> {
        self.call(link, epoch.window, |core| core.take_part(epoch.number))
    }

    /// Puts memory back that [`Windows::take_part`] has taken: a region of the same length.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    ///
    /// # Panics
    /// If the memory was not taken, or if the region has another length.
    pub fn put_part(&mut self, link: &mut Link, window: WindowId, region: Region) -> Result<(), Error> {
        self.call(link, window, |core| {
            assert!(core.window.is_taken && region.len() == core.window.part.len, "the memory of the part");
            core.window.part.region = region;
            core.window.is_taken = false;
            core.rescan();
            Ok(())
        })
    }

    /// Returns the region of this process's part of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`]; [`Error::WrongState`] while the memory is taken.
    pub fn part(&self, window: WindowId) -> Result<&Region, Error> {
        let window = self.window(window)?;
        if window.is_taken {
            return Err(Error::WrongState { call: "an access to the own part", open: "a slice of it" });
        }
        Ok(&window.part.region)
    }

    /// Attaches memory of this process to a dynamic window, so that other members can access it (`MPI_Win_attach`). The
    /// call is local: send the name of the memory to the members that access it.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`]; [`Error::NotDynamic`]; [`Error::Link`] if too much memory is attached.
    pub fn attach_memory(&mut self, window: WindowId, region: Region) -> Result<Attached, Error> {
        let max = self.config.regions_max;
        let regions = self.regions(window)?;
        if regions.len() >= max {
            return Err(Error::exhausted("regions of a window", "detach memory that is not used any more"));
        }
        let hint = "create another dynamic window";
        let attached = regions.attach(Part::whole(region, 1));
        let attached = attached.map_err(|_| Error::exhausted("places in a window", hint))?;
        self.attached += 1;
        Ok(attached)
    }

    /// Detaches memory of this process from a dynamic window, and returns it (`MPI_Win_detach`). The call is local, and
    /// no member reaches the memory afterwards, because this process applies the operations on it. It refuses those that
    /// arrive later, also in an epoch that has begun.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`]; [`Error::NotDynamic`]; [`Error::NotAttached`].
    pub fn detach_memory(
        &mut self,
        link: &Link,
        window: WindowId,
        region: Attached,
    ) -> Result<Region, Error> {
        let not_attached = Error::NotAttached { rank: link.identity().rank, region: region.place };
        let part = self.regions(window)?.detach(region).ok_or(not_attached)?;
        self.attached -= 1;
        Ok(part.region)
    }

    /// Returns the memory of this process that is attached to a dynamic window under a name.
    ///
    /// # Errors
    /// Returns the errors of [`Windows::detach_memory`].
    pub fn attached(&mut self, link: &Link, window: WindowId, region: Attached) -> Result<&Region, Error> {
        let not_attached = Error::NotAttached { rank: link.identity().rank, region: region.place };
        self.regions(window)?.get(region).map(|part| &part.region).ok_or(not_attached)
    }

    fn regions(&mut self, window: WindowId) -> Result<&mut Regions, Error> {
        self.window(window)?;
        self.windows[window.slot as usize].regions.as_deref_mut().ok_or(Error::NotDynamic)
    }

    /// Returns the number of regions of the process that are attached to dynamic windows.
    #[must_use]
    pub fn attached_count(&self) -> usize {
        self.attached
    }

    /// Returns the number of windows of the process.
    #[must_use]
    pub fn count(&self) -> usize {
        self.windows.len()
    }

    /// Returns true if the process has no windows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the members of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`].
    pub fn members(&self, window: WindowId) -> Result<&Group, Error> {
        Ok(&self.window(window)?.group)
    }

    /// Copies bytes of this process's part of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`]; [`Error::Link`] if the bytes are not in the part.
    pub fn read(&self, window: WindowId, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        let read = self.window(window)?.part.read(offset, into);
        read.map_err(|error| Error::Link(error.into()))
    }

    /// Writes bytes of this process's part of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`]; [`Error::Link`] if the bytes are not in the part, or if the memory cannot be written.
    pub fn write(&mut self, window: WindowId, offset: usize, from: &[u8]) -> Result<(), Error> {
        let written = self.window(window)?.part.write(offset, from);
        written.map_err(|error| Error::Link(error.into()))
    }

    /// Returns the progress of a request.
    #[must_use]
    pub fn outcome(&self, request: RequestId) -> Outcome {
        self.requests.outcome(request)
    }

    /// Returns the result of a request that has ended, and forgets the request.
    pub fn collect(&mut self, request: RequestId) -> Option<Completion> {
        self.requests.collect(request)
    }

    /// Reports the end of a request by [`Windows::next_ended`], under this number, also if the request has already
    /// ended.
    pub fn watch(&mut self, request: RequestId, number: u32) {
        self.requests.watch(request, number);
    }

    /// Returns the number of the next watched request that has ended.
    pub fn next_ended(&mut self) -> Option<u32> {
        self.requests.next_ended()
    }

    /// Requests the locks that wait for the ends of their epochs ([`Hints::aggregate`]), if the program may wait for an
    /// operation of these epochs. Call it before a poll for a program that waits.
    pub fn urge(&mut self, link: &mut Link) {
        for (window, number, rank) in std::mem::take(&mut self.outbox.recording) {
            if self.window(window).is_ok() {
                self.with(link, window.slot, |core| core.urge(number, rank));
            }
        }
    }

    /// Forgets a request: when it ends, its result is dropped.
    pub fn detach(&mut self, request: RequestId) {
        self.requests.detach(request);
    }

    /// Returns the counts of events so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts operations that the caller has carried out by a [`View`](crate::View).
    pub fn count_mapped(&mut self, operations: u64) {
        self.counters.mapped += operations;
    }

    /// Returns the number of requests that were not collected.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Returns the bytes of operations that are recorded and not sent.
    #[must_use]
    pub fn recorded(&self) -> usize {
        self.requests.recorded
    }

    /// Returns true while an epoch, a flush or an operation is under way: then the process must make progress.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.requests.len() > 0 || self.active > 0
    }

    /// Returns true if members read from this process's parts by puts of this process. Then the port may move bytes in
    /// polls that bring no event.
    #[must_use]
    pub fn serves_reads(&self) -> bool {
        !self.outbox.serves.is_empty()
    }

    /// Checks the invariants that hold between two calls, and panics if one is broken: for tests, simulation and
    /// fuzzing.
    pub fn check_invariants(&self) {
        let (mut active, mut attached, mut regions) = (0, self.outbox.applied(), 0);
        for (_, window) in &self.windows {
            window.check_invariants();
            regions += window.regions.as_ref().map_or(0, |regions| regions.len());
            active += usize::from(!window.active.is_empty());
            let waiting = window.members.values().filter_map(|member| member.attached.as_ref());
            attached += waiting.map(Attachment::cost).sum::<usize>();
        }
        assert_eq!(self.outbox.attached, attached, "bytes of operations that came with requests for locks");
        assert_eq!(self.active, active, "windows with active epochs");
        assert_eq!(self.attached, regions, "attached regions");
        let members = self.windows.iter().flat_map(|(_, window)| window.members.values());
        let owing = members.filter(|member| member.owes).count();
        assert_eq!(self.outbox.owed(), owing, "members to which messages of completed fences wait");
    }

    fn window(&self, id: WindowId) -> Result<&Window, Error> {
        let window = self.windows.get(id.slot as usize);
        window.filter(|window| window.generation == id.generation).ok_or(Error::NoSuchWindow)
    }

    /// Calls a function with the state machine of a window, and then settles it. Removes the window when it is freed.
    fn with<R>(&mut self, link: &mut Link, slot: u32, body: impl FnOnce(&mut Core<'_>) -> R) -> Option<R> {
        let window = self.windows.get_mut(slot as usize)?;
        let id = WindowId { slot, generation: window.generation };
        let mut core = Core::new(
            id,
            &self.config,
            window,
            &mut self.outbox,
            &mut self.requests,
            &mut self.counters,
            link,
        );
        let was_active = !core.window.active.is_empty();
        core.record_bare();
        let result = body(&mut core);
        core.settle();
        self.active += usize::from(!window.active.is_empty());
        self.active -= usize::from(was_active);
        if window.open.is_freed && window.epochs.is_empty() {
            self.names.remove(&window.name);
            let Window { exposed, members, regions, .. } = self.windows.remove(slot as usize);
            self.attached -= regions.map_or(0, |regions| regions.len());
            // Only a member that breaks the protocol waits for the lock of a window that it has freed.
            let attached = members.values().filter_map(|member| member.attached.as_ref());
            self.outbox.attached -= attached.map(Attachment::cost).sum::<usize>();
            let registrations = exposed.into_iter().flat_map(|exposed| exposed.registrations);
            registrations.for_each(|(_, registration)| link.retire_registration(registration));
        }
        Some(result)
    }

    /// Calls a function with the state machine of a window.
    ///
    /// # Errors
    /// [`Error::NoSuchWindow`], and the errors of the function.
    fn call<R>(
        &mut self,
        link: &mut Link,
        id: WindowId,
        body: impl FnOnce(&mut Core<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.window(id)?;
        self.with(link, id.slot, body).ok_or(Error::NoSuchWindow)?
    }
}

impl Window {
    fn check_invariants(&self) {
        for epoch in self.epochs.iter() {
            let number = epoch.number;
            let left =
                epoch.parties.values().filter(|party| party.state != crate::window::State::Over).count();
            assert_eq!(epoch.left, left, "the parties of epoch {number} that are not over");
            assert_eq!(self.active.contains(number), epoch.is_active, "epoch {number}");
            assert!(
                !epoch.is_active || number < self.deferred || self.hints.overtake,
                "epochs before {number} are activated"
            );
        }
        let active = self.epochs.iter().filter(|epoch| epoch.is_active);
        assert_eq!(self.tally, Tally::of(active.map(Epoch::view)), "the counts of active epochs");
        assert!(self.bare.is_none() || self.epochs.is_empty(), "a bare epoch is alone");
        let are_active = self.epochs.before(self.deferred).all(|epoch| epoch.is_active);
        assert!(are_active, "epochs before {} are activated", self.deferred);
        for (rank, member) in self.members.iter() {
            assert!(
                member.held.is_empty() || matches!(member.contact, Contact::Asked),
                "packets to rank {rank} wait for its answer"
            );
        }
    }
}

impl Stack for Windows {
    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        _: &mut L,
    ) -> Result<(), Fault> {
        self.packet_of(link, from, header, body)
    }

    fn long_packet<B: Body, L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        head: &[u8],
        body: &B,
        _: &mut L,
    ) -> Result<(), Fault> {
        self.long_packet_of(link, from, header, head, body)
    }

    fn completed<L: Lent>(&mut self, link: &mut Link, done: Done, _: &mut L) -> Result<(), Fault> {
        self.piece_ended(link, done)
    }

    fn path_resolved(&mut self, _: &mut Link, peer: Peer, caps: &Caps) {
        self.outbox.of(peer).limits = Limits::new(caps, &self.config);
    }

    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        self.end_of_peer(link, peer, ending);
    }

    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        self.no_path_to(link, peer, what, hint);
    }

    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry {
        self.deadline_passed(link, request, due, busy)
    }

    fn next<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer, _: Protocol) -> Result<Turn, PortError> {
        self.send_next(out, to)
    }

    fn backlog(&self) -> usize {
        self.outbox.transfers.finished()
    }

    fn drive<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        pieces: &mut usize,
        _: &mut L,
    ) -> Result<(), Fault> {
        while *pieces > 0
            && let Some(transfer) = self.outbox.transfers.take_finished()
        {
            self.end_transfer(out, transfer);
            *pieces -= 1;
        }
        if self.backlog() == 0 {
            *pieces = 0;
        }
        Ok(())
    }

    fn has_data_for(&self, peer: Peer) -> bool {
        self.outbox.has_work(peer) || self.outbox.has_pieces(peer) || self.outbox.owes(peer)
    }

    fn said_goodbye(&mut self, link: &mut Link, peer: Peer) {
        self.goodbye_to(link, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_pieces_are_under_way_if_they_are_long() {
        let config = Config { copy_chunk: 600, puts_max: 3, ..Config::default() };
        let most = [0, 1, 600, 601, 900, 901, 1801, usize::MAX].map(|len| config.pieces_max(len));
        assert_eq!(most, [3, 3, 3, 2, 2, 1, 1, 1]);
        assert_eq!(Config { puts_max: usize::MAX, ..config }.pieces_max(600), usize::MAX / 600);
    }
}
