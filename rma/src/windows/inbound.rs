//! Packets from members.

use samite_fabric::link::{Fault, Link, Peer, RequestId, WorldRank};
use samite_fabric::port::gather;
use samite_fabric::wire::{Header, Protocol, WireError, exact, prefix};
use samite_fabric::{Body, PortError, Remote};
use zerocopy::IntoBytes;

use super::Windows;
use crate::core::{Core, Violation, answer_freed, is_aligned};
use crate::outbox::Item;
use crate::path::{self, Means, Path};
use crate::regions::region_of;
use crate::serves::{SERVES_MAX, Serve};
use crate::window::{Attachment, Contact, MISSES_MAX, Miss, Part, Window, is_lock_distance};
use crate::wire::{
    EPOCH_HEAD, Entry, Landed, Landing, Named, Note, Place, Refused, Reply, Traits, Wanted, kind,
};
use crate::{Action, ElementType, Error, Name, Reduction, WindowId};

impl From<Violation> for WireError {
    fn from(violation: Violation) -> Self {
        Self::Value { field: violation.0 }
    }
}

impl Windows {
    /// Handles a packet.
    pub(super) fn packet_of(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Fault> {
        if header.protocol() != Protocol::Rma {
            return Err(Fault::new(from, WireError::Protocol { theirs: header.protocol() as u8 }));
        }
        self.handle(link, from, header, body).map_err(|error| Fault::new(from, error))
    }

    /// Handles a packet whose bytes are still in the receive buffer. The bytes of a put and of a reply, which are the
    /// long ones, are copied from there to their destination.
    pub(super) fn long_packet_of<B: Body>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        head: &[u8],
        body: &B,
    ) -> Result<(), Fault> {
        let is_rma = header.protocol() == Protocol::Rma;
        let handled = match (header.kind, prefix::<Place>(head), prefix::<Reply>(head)) {
            (kind::PUT, Ok((place, [])), _) if is_rma => {
                let (slot, place) = (header.context.get(), *place);
                self.with_member(link, from, slot, place.generation.get(), |core| {
                    core.put_long(from, &place, body)
                })
            }
            (kind::REPLY, _, Ok((reply, []))) if is_rma => {
                self.outbox.answered(link, from);
                self.reply(link, from, reply, body)
            }
            _ => return self.packet_of(link, from, header, &gather(head, body)),
        };
        handled.map_err(|error| Fault::new(from, error))
    }

    fn handle(&mut self, link: &mut Link, from: Peer, header: &Header, body: &[u8]) -> Result<(), WireError> {
        let slot = header.context.get();
        if let kind::REPLY | kind::REFUSED | kind::FLUSHED | kind::CLOSED = header.kind {
            self.outbox.answered(link, from);
        }
        match header.kind {
            kind::MEET => self.meet(link, from, traits_of(body)?),
            kind::MET => self.met(link, from, traits_of(body)?),
            kind::ASK_FREED => self.freed_asked(link, from, exact::<Named>(body)?),
            kind::FREED => self.freed(link, from, exact::<Named>(body)?),
            kind::PUT | kind::ACCUMULATE | kind::GET | kind::FETCH | kind::COMPARE_SWAP => {
                let (place, data) = prefix::<Place>(body)?;
                let place = *place;
                self.with_member(link, from, slot, place.generation.get(), |core| {
                    core.apply(from, header.kind, &place, data)
                })
            }
            kind::EPOCH => {
                let (note, operations) = prefix::<Note>(body)?;
                let note = *note;
                self.with_member(link, from, slot, note.generation.get(), |core| {
                    core.epoch_received(from, &note, operations)
                })
            }
            kind::APPLIED => {
                let (note, results) = prefix::<Note>(body)?;
                let note = *note;
                self.with_member(link, from, slot, note.generation.get(), |core| {
                    let rank = core.link.peer(from).rank();
                    Ok(core.applied(rank, &note, results)?)
                })
            }
            kind::REPLY => {
                let (reply, data) = prefix::<Reply>(body)?;
                self.reply(link, from, reply, data)
            }
            kind::GET_INTO => {
                let (place, landing) = prefix::<Place>(body)?;
                let landing = exact::<Landing>(landing)?;
                self.with_member(link, from, slot, place.generation.get(), |core| {
                    core.get_into(from, place.at.get(), landing)
                })
            }
            kind::REFUSED => self.refused(link, from, exact::<Refused>(body)?),
            kind::LANDED => self.landed(link, from, exact::<Landed>(body)?.name.get()),
            // The arrival is all that counts: after an event the program polls more often.
            kind::UNDER_WAY => exact::<()>(body).copied(),
            kind::FLUSHED => {
                let note = exact::<Note>(body)?;
                let (id, rank) = (RequestId::from_wire(note.token.get()), link.peer(from).rank());
                let flushed = self.outbox.of(from).flushes.pop_front();
                if let Some((window, number)) = flushed.filter(|(window, _)| self.window(*window).is_ok())
                    && let Some(party) = self.windows[window.slot as usize].party(number, rank)
                {
                    party.flushes = party.flushes.saturating_sub(1);
                }
                if !self.requests.flushed(id, rank, miss_of(rank, note)) {
                    link.note_stale();
                }
                Ok(())
            }
            kind::CLOSED => {
                let note = *exact::<Note>(body)?;
                self.with_member(link, from, note.flag.get(), note.generation.get(), |core| {
                    let rank = core.link.peer(from).rank();
                    Ok(core.closed(rank, note.token.get(), miss_of(rank, &note))?)
                })
            }
            kind::FLUSH..=kind::OPENED | kind::ABSENT => {
                let note = *exact::<Note>(body)?;
                self.with_member(link, from, slot, note.generation.get(), |core| {
                    core.note_received(from, header.kind, &note)
                })
            }
            theirs => Err(WireError::Kind { theirs }),
        }
    }

    /// Handles the introduction of a peer that wants to use this process's part of a window.
    fn meet(&mut self, link: &mut Link, from: Peer, traits: Traits) -> Result<(), WireError> {
        let name = name_of(&traits);
        if let Some(&slot) = self.names.get(&name) {
            self.introduced(link, from, slot, traits)?;
            return Ok(());
        }
        if self.was_created(name) {
            answer_freed(link, from, name, true);
            return Ok(());
        }
        self.keep_early(from, name, Some(traits));
        Ok(())
    }

    /// Keeps a request for a window that does not exist yet: the sender's traits, or its question if this process frees
    /// the window.
    fn keep_early(&mut self, from: Peer, window: Name, traits: Option<Traits>) {
        let early = &mut self.outbox.of(from).early;
        if *early >= self.config.early_max {
            self.outbox.of(from).was_refused = true;
            self.counters.refused += 1;
            return;
        }
        *early += 1;
        self.early.entry(window).or_default().push((from, traits));
    }

    /// Handles the question if this process frees a window.
    fn freed_asked(&mut self, link: &mut Link, from: Peer, named: &Named) -> Result<(), WireError> {
        let window = named.name();
        match self.names.get(&window) {
            Some(&slot) => self.freed_asked_of(link, from, slot)?,
            None if self.was_created(window) => answer_freed(link, from, window, true),
            None => self.keep_early(from, window, None),
        }
        Ok(())
    }

    pub(super) fn freed_asked_of(&mut self, link: &mut Link, from: Peer, slot: u32) -> Result<(), WireError> {
        let rank = link.peer(from).rank();
        if !self.windows[slot as usize].group.contains(rank) {
            return Err(WireError::Value { field: "window" });
        }
        self.with(link, slot, |core| core.freed_asked(rank));
        Ok(())
    }

    /// Handles the answer of a member that it frees a window.
    fn freed(&mut self, link: &mut Link, from: Peer, named: &Named) -> Result<(), WireError> {
        let Some(&slot) = self.names.get(&named.name()) else {
            link.note_stale();
            return Ok(());
        };
        let rank = link.peer(from).rank();
        if !self.windows[slot as usize].group.contains(rank) {
            return Err(WireError::Value { field: "window" });
        }
        self.with(link, slot, |core| core.freed(rank, named.is_gone.get() != 0));
        Ok(())
    }

    /// Notes the traits of a member that has introduced itself, and answers.
    pub(super) fn introduced(
        &mut self,
        link: &mut Link,
        from: Peer,
        slot: u32,
        traits: Traits,
    ) -> Result<(), WireError> {
        let generation = self.windows[slot as usize].generation;
        let window = WindowId { slot, generation };
        let rank = link.peer(from).rank();
        if !self.windows[slot as usize].group.contains(rank) {
            return Err(WireError::Value { field: "window" });
        }
        let introduced = self.with(link, slot, |core| {
            if core.member(rank).failure.is_some() {
                // A restarted rank is no member.
                core.link.note_stale();
                return Ok(());
            }
            if core.member(rank).is_unanswered {
                // A member introduces itself once. It must not fill the memory with answers that wait to be sent.
                return Err(WireError::Value { field: "window" });
            }
            // The answer goes before the packets that waited, because it introduces this process to the member.
            core.outbox.push(core.link, from, Item::Meet { window, is_answer: true });
            core.member(rank).is_unanswered = true;
            core.met(rank, traits);
            Ok(())
        });
        introduced.unwrap_or(Ok(()))
    }

    /// Handles a member's answer to the introduction of this process.
    fn met(&mut self, link: &mut Link, from: Peer, traits: Traits) -> Result<(), WireError> {
        let rank = link.peer(from).rank();
        let Some(&slot) = self.names.get(&name_of(&traits)) else {
            link.note_stale();
            return Ok(());
        };
        let met = self.with(link, slot, |core| {
            let is_asked = core.window.group.contains(rank)
                && core
                    .window
                    .members
                    .get(rank)
                    .is_some_and(|member| !matches!(member.contact, Contact::None));
            if is_asked {
                core.met(rank, traits);
            }
            is_asked
        });
        if met == Some(true) { Ok(()) } else { Err(WireError::Value { field: "window" }) }
    }

    /// Calls a function with a window, after a packet from one of its members. A packet for a window that was freed is
    /// ignored.
    fn with_member(
        &mut self,
        link: &mut Link,
        from: Peer,
        slot: u32,
        generation: u32,
        body: impl FnOnce(&mut Core<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let window = self.windows.get(slot as usize).filter(|window| window.generation == generation);
        let Some(window) = window else {
            link.note_stale();
            return Ok(());
        };
        let rank = link.peer(from).rank();
        match window.members.get(rank) {
            Some(member) if member.failure.is_some() => {
                link.note_stale();
                Ok(())
            }
            Some(member) if matches!(member.contact, Contact::Known(_)) => {
                self.with(link, slot, body).unwrap_or(Ok(()))
            }
            _ => Err(WireError::Value { field: "window" }),
        }
    }

    fn reply(
        &mut self,
        link: &mut Link,
        from: Peer,
        reply: &Reply,
        data: &(impl Body + ?Sized),
    ) -> Result<(), WireError> {
        let id = RequestId::from_wire(reply.request.get());
        let rank = link.peer(from).rank();
        if self.requests.get(id).is_none() {
            link.note_stale();
            return Ok(());
        }
        let Some((epoch, is_last)) = self.requests.reply(id, rank, reply.offset.get(), data) else {
            return Err(WireError::Value { field: "reply" });
        };
        if is_last {
            self.requests.end(id, Ok(()));
            self.with(link, epoch.window.slot, |core| core.answered(epoch.number, rank));
        }
        Ok(())
    }

    /// Handles the answer to a read that the memory is not attached.
    fn refused(&mut self, link: &mut Link, from: Peer, refused: &Refused) -> Result<(), WireError> {
        let id = RequestId::from_wire(refused.request.get());
        let rank = link.peer(from).rank();
        if self.requests.get(id).is_none() {
            link.note_stale();
            return Ok(());
        }
        let error = Error::NotAttached { rank, region: region_of(refused.at.get()) };
        let Some((epoch, is_last)) = self.requests.refuse(id, rank, refused.len.get() as usize, error) else {
            return Err(WireError::Value { field: "refusal" });
        };
        if is_last {
            self.requests.end(id, Ok(()));
            self.with(link, epoch.window.slot, |core| core.answered(epoch.number, rank));
        }
        Ok(())
    }
}

/// Returns the error of a write that was refused, of which a member tells in its answer to a flush or to the end of an
/// epoch.
fn miss_of(rank: WorldRank, answer: &Note) -> Option<Error> {
    let at = answer.number.get().checked_sub(1)?;
    Some(Error::NotAttached { rank, region: region_of(at) })
}

/// Reads the description of a member's part.
fn traits_of(body: &[u8]) -> Result<Traits, WireError> {
    let traits = exact::<Traits>(body)?;
    if traits.reply_max.get() < REPLY_MAX_LEAST {
        return Err(WireError::Value { field: "reply_max" });
    }
    let lock = traits.lock.get();
    if lock > 0 && !is_lock_distance(lock, traits.len.get()) {
        return Err(WireError::Value { field: "lock" });
    }
    Ok(*traits)
}

/// Every packet has room for a reply of this length: see [`Caps::packet_max`](samite_fabric::Caps::packet_max).
const REPLY_MAX_LEAST: u32 = 256;

fn name_of(traits: &Traits) -> Name {
    Name { communicator: traits.communicator.get(), number: traits.number.get() }
}

impl Core<'_> {
    /// Handles a packet of synchronization.
    fn note_received(&mut self, from: Peer, kind: u8, note: &Note) -> Result<(), WireError> {
        let rank = self.link.peer(from).rank();
        let (number, flag) = (note.number.get(), note.flag.get() != 0);
        match kind {
            kind::FLUSH => {
                let missed = self.tell_miss(rank, number);
                let answer = Note::new(missed, note.token.get());
                self.link.answer(from, Protocol::Rma, kind::FLUSHED, answer.as_bytes());
            }
            kind::LOCK => self.lock_requested(rank, note, None)?,
            kind::LOCKED => self.locked(rank, number)?,
            kind::UNLOCK => {
                if self.unlocked(rank, note)? {
                    self.answer_closed(from, note.token.get());
                }
            }
            kind::FINISH => self.answer_closed(from, note.token.get()),
            kind::GRANT => self.granted(rank, number, flag)?,
            kind::DONE => {
                self.done(rank, number, flag)?;
                if let Some(epoch) = note.token.get().checked_sub(1) {
                    self.answer_closed(from, epoch);
                }
            }
            kind::FENCED => self.fenced(rank, note)?,
            kind::ASK => self.asked(rank, number),
            kind::OPENED => self.opened(rank, number),
            kind::ABSENT => self.absence_told(note)?,
            theirs => return Err(WireError::Kind { theirs }),
        }
        Ok(())
    }

    /// Answers the end of a member's epoch.
    fn answer_closed(&mut self, from: Peer, epoch: u64) {
        let rank = self.link.peer(from).rank();
        let Contact::Known(traits) = self.member(rank).contact else {
            unreachable!("packets of unknown members are refused")
        };
        let missed = self.take_miss(rank, epoch);
        let answer = Note { generation: traits.generation, flag: traits.slot, ..Note::new(missed, epoch) };
        self.link.answer(from, Protocol::Rma, kind::CLOSED, answer.as_bytes());
    }

    /// Returns true if a member may access the memory now.
    fn is_accessible_to(&mut self, rank: samite_fabric::link::WorldRank) -> bool {
        let fences = &self.window.fences;
        fences.opened > 0
            || fences.closing > 0
            || self.window.lock.is_held_by(rank)
            || self.member(rank).exposed.is_open()
            || self.ask_word_for(rank)
    }

    /// Applies an operation of a member.
    fn apply(&mut self, from: Peer, kind: u8, place: &Place, data: &[u8]) -> Result<(), WireError> {
        let rank = self.link.peer(from).rank();
        if !self.is_accessible_to(rank) {
            return Err(WireError::Value { field: "access" });
        }
        let operation = self.check_received(from, kind, place, data)?;
        let Some(before) = self.change(&operation)? else {
            return self.refuse_received(from, place, &operation);
        };
        if let Some(wanted) = operation.wanted {
            self.counters.read += operation.len as u64;
            let head = Reply { request: wanted.request, offset: wanted.offset };
            self.link.answer(from, Protocol::Rma, kind::REPLY, &[head.as_bytes(), &before].concat());
        }
        Ok(())
    }

    /// Handles a whole epoch of a member: its request for the lock, and its operations.
    fn epoch_received(&mut self, from: Peer, note: &Note, operations: &[u8]) -> Result<(), WireError> {
        let rank = self.link.peer(from).rank();
        if operations.is_empty() {
            return Err(WireError::Value { field: "operations" });
        }
        let mut wanted = 0;
        for entry in Entries(operations) {
            let (kind, place, data) = entry?;
            if place.generation.get() != self.id.generation {
                return Err(WireError::Value { field: "generation" });
            }
            let operation = self.check_received(from, kind, place, data)?;
            wanted += operation.wanted.map_or(0, |_| operation.len);
            // The operation must not fail when the lock is granted. The memory of a region can be written, and so can
            // memory that the program has taken.
            let is_certain = self.window.regions.is_some() || self.window.is_taken;
            if operation.action != Action::Get && !is_certain {
                let writable = self.window.part.write(operation.at as usize, &[]);
                writable.map_err(|_| WireError::Value { field: "memory" })?;
            }
        }
        // The member knows this limit from the traits.
        if EPOCH_HEAD + wanted > self.outbox.of(from).limits.packet_max {
            return Err(WireError::Value { field: "length" });
        }
        let (epoch, operations) = (note.token.get(), operations.into());
        Ok(self.lock_requested(rank, note, Some(Attachment { epoch, operations, wanted }))?)
    }

    /// Applies the operations of a whole epoch, which were checked, and returns the former bytes that they ask for.
    pub(crate) fn apply_all(&mut self, from: Peer, attached: &Attachment) -> Vec<u8> {
        let mut results = Vec::with_capacity(attached.wanted);
        for entry in Entries(&attached.operations) {
            let (kind, place, data) = entry.expect(CHECKED);
            let operation = self.check_received(from, kind, place, data).expect(CHECKED);
            let before = self.change(&operation).expect(CHECKED).expect(CHECKED);
            if operation.wanted.is_some() {
                self.counters.read += operation.len as u64;
                results.extend(before);
            }
        }
        results
    }

    /// Returns true if the operations of a whole epoch can be applied: if their memory is attached.
    pub(crate) fn can_apply_all(&mut self, from: Peer, attached: &Attachment) -> bool {
        self.window.regions.is_none()
            || Entries(&attached.operations).all(|entry| {
                let (kind, place, data) = entry.expect(CHECKED);
                let operation = self.check_received(from, kind, place, data).expect(CHECKED);
                self.window.find(operation.at, operation.len).is_some()
            })
    }

    /// Answers a read on memory that is not attached, or notes a write on it for the answer to the end of the epoch.
    fn refuse_received(
        &mut self,
        from: Peer,
        place: &Place,
        operation: &Received<'_>,
    ) -> Result<(), WireError> {
        let (at, len) = (operation.at, operation.len as u32);
        self.counters.missed += 1;
        if let Some(wanted) = operation.wanted {
            let refused = Refused { request: wanted.request, at: at.into(), len: len.into() };
            self.link.answer(from, Protocol::Rma, kind::REFUSED, refused.as_bytes());
            return Ok(());
        }
        let (rank, epoch) = (self.link.peer(from).rank(), place.epoch.get());
        let misses = &mut self.member(rank).misses;
        if let Some(miss) = misses.iter_mut().find(|miss| miss.epoch == epoch) {
            miss.untold.get_or_insert(at);
            return Ok(());
        }
        if misses.len() >= MISSES_MAX {
            return Err(WireError::Value { field: "number of epochs with refused writes" });
        }
        misses.push(Miss { epoch, first: at, untold: Some(at) });
        Ok(())
    }

    /// Returns 1 more than the place of the first write of a member's epoch that was refused since the last flush, or 0
    /// if there is none.
    fn tell_miss(&mut self, rank: WorldRank, epoch: u64) -> u64 {
        let miss = self.member(rank).misses.iter_mut().find(|miss| miss.epoch == epoch as u16);
        let untold = miss.and_then(|miss| miss.untold.take());
        untold.map_or(0, |at| at.saturating_add(1))
    }

    /// Returns 1 more than the place of the first write of a member's epoch that was refused, and forgets it. Returns 0
    /// if there is none.
    fn take_miss(&mut self, rank: WorldRank, epoch: u64) -> u64 {
        let misses = &mut self.member(rank).misses;
        let found = misses.iter().position(|miss| miss.epoch == epoch as u16);
        found.map_or(0, |found| misses.swap_remove(found).first.saturating_add(1))
    }

    /// Checks an operation of a member, except that its memory is attached to a dynamic window.
    fn check_received<'a>(
        &mut self,
        from: Peer,
        kind: u8,
        place: &Place,
        data: &'a [u8],
    ) -> Result<Received<'a>, WireError> {
        let (wanted, data) = match kind {
            kind::GET | kind::FETCH | kind::COMPARE_SWAP => {
                let (wanted, data) = prefix::<Wanted>(data)?;
                (Some(*wanted), data)
            }
            _ => (None, data),
        };
        let len = match (kind, wanted) {
            (kind::GET, Some(wanted)) if data.is_empty() => wanted.len.get() as usize,
            (kind::GET, _) => return Err(WireError::Long { extra: data.len() }),
            (kind::COMPARE_SWAP, _) => data.len() / 2,
            _ => data.len(),
        };
        let at = place.at.get();
        if self.window.regions.is_none() && !self.window.part.contains(at, len)
            || wanted.is_some_and(|wanted| wanted.len.get() as usize != len)
        {
            return Err(WireError::Value { field: "place" });
        }
        // The member knows this limit from the traits.
        if wanted.is_some() && len > self.outbox.of(from).limits.reply_max() {
            return Err(WireError::Value { field: "length" });
        }
        let action = action_of(kind, place, data.len())?;
        Ok(Received { action, at, len, data, wanted })
    }

    /// Notes the read of a member that asks for puts into its memory.
    fn get_into(&mut self, from: Peer, at: u64, landing: &Landing) -> Result<(), WireError> {
        let rank = self.link.peer(from).rank();
        if !self.is_accessible_to(rank) {
            return Err(WireError::Value { field: "access" });
        }
        let len = usize::try_from(landing.len.get()).ok().filter(|len| *len > 0);
        let len = len.filter(|len| self.window.part.contains(at, *len));
        let len = len.ok_or(WireError::Value { field: "place" })?;
        let state = self.outbox.of(from);
        if state.limits.put_max == 0 || self.window.exposed.is_none() {
            return Err(WireError::Value { field: "kind" });
        }
        if state.serving >= SERVES_MAX {
            return Err(WireError::Value { field: "number of reads" });
        }
        let serve = Serve {
            peer: from,
            window: self.id,
            // The part is in memory, so the offset fits.
            at: at as usize,
            len,
            into: Remote { key: landing.key.get(), address: landing.address.get() },
            name: landing.name.get(),
            posted: 0,
            outstanding: 0,
            is_dropped: false,
        };
        self.outbox.serve(self.link, serve);
        Ok(())
    }

    /// Copies the bytes of a put from the receive buffer.
    fn put_long<B: Body>(&mut self, from: Peer, place: &Place, body: &B) -> Result<(), WireError> {
        let rank = self.link.peer(from).rank();
        if !self.is_accessible_to(rank) {
            return Err(WireError::Value { field: "access" });
        }
        let (at, len) = (place.at.get(), body.len());
        let Some((part, at)) = self.window.find(at, len) else {
            if self.window.regions.is_none() {
                return Err(WireError::Value { field: "place" });
            }
            let put = Received { action: Action::Put, at, len, data: &[], wanted: None };
            return self.refuse_received(from, place, &put);
        };
        let mut buffer = [0; COPY_BYTES];
        for done in (0..len).step_by(COPY_BYTES) {
            let piece = &mut buffer[..COPY_BYTES.min(len - done)];
            body.copy_part(done, piece);
            let written = part.write(at + done, piece);
            written.map_err(|_| WireError::Value { field: "memory" })?;
        }
        self.counters.written += len as u64;
        Ok(())
    }

    /// Changes this process's memory, and returns the former bytes. Returns `None` if the memory is not attached.
    fn change(&mut self, operation: &Received<'_>) -> Result<Option<Vec<u8>>, WireError> {
        let &Received { action, at, len, data, .. } = operation;
        let Some((part, at)) = self.window.find(at, len) else { return Ok(None) };
        self.counters.written += if action == Action::Get { 0 } else { len as u64 };
        let changed = match action {
            Action::Put => part.write(at, data).map(|()| Vec::new()),
            Action::Get => {
                let mut before = vec![0; len];
                part.read(at, &mut before).map(|()| before)
            }
            _ => change_elements(self.window, part, (at, len), action, data),
        };
        changed.map(Some).map_err(|_| WireError::Value { field: "memory" })
    }
}

/// Carries out an atomic operation on `len` bytes of this process's memory from `at` on, and returns the former bytes if
/// the operation has a result.
fn change_elements(
    window: &Window,
    part: &Part,
    (at, len): (usize, usize),
    action: Action,
    data: &[u8],
) -> Result<Vec<u8>, PortError> {
    let mapped = window.exposed.as_ref().and_then(|exposed| exposed.mapped.as_ref());
    let mapped = mapped.filter(|_| path::choose(action, len, Means::MAPPED) == Path::Memory);
    match (action, mapped) {
        (Action::Accumulate { .. }, Some(mapped)) => {
            mapped.write(at, action, data, window.hints.unshared_accumulates);
            Ok(Vec::new())
        }
        (_, Some(mapped)) => {
            let mut bytes = data.to_vec();
            mapped.fetch(at, action, &mut bytes, window.hints.unshared_accumulates);
            bytes.truncate(len);
            Ok(bytes)
        }
        (Action::CompareSwap { .. }, None) => {
            let (expected, new) = data.split_at(len);
            let mut before = vec![0; len];
            part.read(at, &mut before)?;
            if before == expected {
                part.write(at, new)?;
            }
            Ok(before)
        }
        (Action::Accumulate { op, element } | Action::GetAccumulate { op, element }, None) => {
            part.accumulate(at, op, element, data)
        }
        (Action::Put | Action::Get, None) => unreachable!("they have no elements"),
    }
}

/// An operation of a member that was checked, except for the right to access the memory, and whether that is attached.
struct Received<'a> {
    action: Action,
    /// The offset in the part, or the place in a dynamic window.
    at: u64,
    /// The number of bytes of the part.
    len: usize,
    /// The operands.
    data: &'a [u8],
    wanted: Option<Wanted>,
}

/// Returns the action of an operation of a member with this number of bytes of operands.
fn action_of(kind: u8, place: &Place, operands: usize) -> Result<Action, WireError> {
    match kind {
        kind::PUT => return Ok(Action::Put),
        kind::GET => return Ok(Action::Get),
        _ => {}
    }
    let element = ElementType::from_number(place.element).ok_or(WireError::Value { field: "element" })?;
    let op = Reduction::from_number(place.op).filter(|op| op.accepts(element));
    let action = match (kind, op) {
        (kind::COMPARE_SWAP, _) if operands == 2 * element.size() => Action::CompareSwap { element },
        (kind::ACCUMULATE, Some(op)) => Action::Accumulate { op, element },
        (kind::FETCH, Some(op)) => Action::GetAccumulate { op, element },
        _ => return Err(WireError::Value { field: "elements" }),
    };
    if !operands.is_multiple_of(element.size()) || !is_aligned(place.at.get(), element) {
        return Err(WireError::Value { field: "elements" });
    }
    Ok(action)
}

/// The operations of an `EPOCH`, each with its kind, its place, and the bytes behind the place. Nothing follows an
/// error.
struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// Reads the next operation.
    fn read(&mut self) -> Result<(u8, &'a Place, &'a [u8]), WireError> {
        let (entry, rest) = prefix::<Entry>(std::mem::take(&mut self.0))?;
        let split = rest.split_at_checked(entry.len.get() as usize);
        let (operation, rest) = split.ok_or(WireError::Short { len: rest.len() })?;
        let (kind::PUT | kind::ACCUMULATE | kind::GET | kind::FETCH | kind::COMPARE_SWAP) = entry.kind else {
            return Err(WireError::Kind { theirs: entry.kind });
        };
        let (place, data) = prefix::<Place>(operation)?;
        self.0 = rest;
        Ok((entry.kind, place, data))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u8, &'a Place, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.read())
    }
}

const CHECKED: &str = "the operations were checked when they arrived";

/// The number of bytes of a put that are copied at a time. It is a multiple of 64, as [`Body::copy_part`] demands.
const COPY_BYTES: usize = 4096;
