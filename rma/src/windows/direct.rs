//! Operations that travel by puts and gets of the port.
//!
//! The origin accesses the registered part of a target that has granted the access. The target takes no part. A put
//! ends when its bytes are visible at the target, and a get when they have arrived, so a flush of both needs no answer
//! of the target. The packet that ends the access follows the gets when they have ended: later accesses of other
//! members might change the bytes. It follows the puts at once if the port keeps
//! [`Order::SEND_AFTER_PUT`](samite_fabric::Order), and otherwise when they have ended. A party of an epoch is over
//! when its puts and gets have ended.
//!
//! If the port has no gets, the origin of a long read sends the place of registered memory of its own, and the target
//! puts the bytes there. The answer of the target says that all of its puts have ended. Then the origin withdraws the
//! key. If the target ends before, the origin withdraws the key after the path is cut off, and does not give the memory
//! back.
//!
//! The part stays registered until all members have freed the window or have failed, and a member frees the window when
//! its epochs are over. The path of a failed member is cut off before the registration ends.

use std::sync::atomic::{Ordering, fence};

use samite_fabric::link::{Cause, Done, Fate, Fault, Link, Out, Peer, Slab, Turn, WorldRank};
use samite_fabric::wire::{Protocol, WireError};
use samite_fabric::{Access, Failure, Memory, PeerId, Port, PortError, Post, Region, Remote};
use zerocopy::IntoBytes;

use super::Windows;
use super::outbound::Progress;
use crate::core::{Core, check_place};
use crate::outbox::Item;
use crate::path::Path;
use crate::serves::{SERVES_MAX, ServeId};
use crate::transfers::{Buffer, LandingSlab, SLABS_MAX, Transfer, TransferId};
use crate::window::{Contact, Operation, State, Step};
use crate::wire::{Landed, Landing, Traits, kind};
use crate::{Action, Error, WindowId};

/// A target that an operation reaches by puts or gets of the port.
#[derive(Clone, Copy)]
struct Reached {
    peer: Peer,
    path: PeerId,
    traits: Traits,
    way: Path,
}

impl Windows {
    /// Takes the next step of an item that concerns puts and gets of the port: posts one, or lets the item wait for the
    /// end of others. Returns `None` if the item travels in packets, and nothing holds it up.
    pub(super) fn direct_item<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        item: &mut Item,
    ) -> Result<Option<Progress>, PortError> {
        let Item::Step { window, to: rank, epoch, step } = item else { return Ok(None) };
        if let Step::Operation(operation) = step {
            return self.post_next(out, to, (*window, *epoch, *rank), operation);
        }
        let follows_puts = self.outbox.of(to).limits.send_after_put;
        let Some(open) = self.windows.get_mut(window.slot as usize) else { return Ok(None) };
        let is_silent = open.ends_silently(*epoch, *rank);
        let Some(party) = open.party(*epoch, *rank) else { return Ok(None) };
        let are_under_way = party.transfers > 0;
        let may_follow = follows_puts && party.reads == 0;
        Ok(match step {
            Step::Flush(_) if are_under_way => Some(Progress::Waits(Turn::NoAnswer)),
            Step::Flush(request) if party.are_packets_applied() => {
                self.requests.flushed(*request, *rank, None);
                Some(Progress::Over)
            }
            Step::Close(_) if are_under_way && !may_follow => Some(Progress::Waits(Turn::NoAnswer)),
            Step::Close(_) if is_silent => {
                // The messages of the barrier, to any rank on any path, must not overtake stores to mapped memory.
                fence(Ordering::SeqCst);
                Some(Progress::Over)
            }
            _ => None,
        })
    }

    /// Posts the next put or get of an operation. Returns `None` if the operation travels in packets.
    fn post_next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        place: (WindowId, u64, WorldRank),
        operation: &mut Operation,
    ) -> Result<Option<Progress>, PortError> {
        let Some(reached) = self.reached(out.link, to, place, operation) else { return Ok(None) };
        let id = match operation.transfer {
            Some(id) => id,
            None => match self.begin_transfer(out, reached, place, operation) {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        if reached.way == Path::PutBack {
            return self.ask_next(out, reached, place, operation, id).map(Some);
        }
        let state = self.outbox.of(to);
        let limits = state.limits;
        let traits = reached.traits;
        let (at, left) = next_run(place.2, traits, operation);
        let remote = Remote { key: traits.key.get(), address: traits.address.get().wrapping_add(at) };
        let is_read = reached.way == Path::Get;
        let len = if is_read { limits.get_max } else { limits.put_max }.min(left);
        let (pieces, is_flushing) = (state.pieces, !state.flushes.is_empty());
        let Some((local, slab)) = self.outbox.transfers.of(id).buffer.local(operation.sent, len) else {
            // The end of a get frees a slab, and then the peer is listed again.
            return Ok(Some(Progress::Waits(Turn::NoAnswer)));
        };
        if pieces >= self.config.pieces_max(local.len) || is_flushing {
            return Ok(Some(Progress::Waits(Turn::NoAnswer)));
        }
        let posted = match is_read {
            true => out.get(reached.path, local, remote, Protocol::Rma, id.key(slab))?,
            false => out.put(reached.path, local, remote, Protocol::Rma, id.key(slab))?,
        };
        match posted {
            // The end of a piece of this side makes room, and then the peer is listed again.
            Post::Again if self.outbox.of(to).pieces > 0 => {
                return Ok(Some(Progress::Waits(Turn::NoAnswer)));
            }
            Post::Again => return Ok(Some(Progress::Waits(Turn::NoRoom))),
            Post::Done | Post::Over => {}
        }
        let progress = self.piece_begun(out.link, place, operation, id, (slab, local.len));
        if posted == Post::Done {
            self.outbox.transfers.of(id).outstanding += 1;
            self.outbox.of(to).pieces += 1;
            self.tell_under_way(out.link, to);
        } else {
            self.copy_piece(id, slab, true);
        }
        Ok(Some(progress))
    }

    /// Tells a peer that puts or gets on its memory are under way, unless it was told a short time ago.
    fn tell_under_way(&mut self, link: &mut Link, to: Peer) {
        let now = link.now();
        let told = &mut self.outbox.of(to).told;
        if told.is_none_or(|told| now.since(told) >= TELL_EVERY_NS) {
            *told = Some(now);
            link.answer(to, Protocol::Rma, kind::UNDER_WAY, &[]);
        }
    }

    /// Tells a peer, after the end of a put or a get, if others are under way. During a flush none is posted any more, and
    /// the target would begin to sleep.
    fn tell_of_others(&mut self, link: &mut Link, peer: Peer) {
        let state = self.outbox.of(peer);
        if state.pieces + state.serve_pieces > 0 && link.peer(peer).is_alive() {
            self.tell_under_way(link, peer);
        }
    }

    /// Asks the target to put the next bytes of a read into memory of this process.
    fn ask_next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        Reached { peer, traits, .. }: Reached,
        place: (WindowId, u64, WorldRank),
        operation: &mut Operation,
        id: TransferId,
    ) -> Result<Progress, PortError> {
        if self.outbox.of(peer).asked >= SERVES_MAX {
            return Ok(Progress::Waits(Turn::NoAnswer));
        }
        let (at, left) = next_run(place.2, traits, operation);
        let Some((into, slab, len)) = self.outbox.transfers.of(id).buffer.remote(operation.sent, left) else {
            // The answer to an earlier question frees a slab, and then the peer is listed again.
            return Ok(Progress::Waits(Turn::NoAnswer));
        };
        let landing = Landing {
            name: id.key(slab).into(),
            len: (len as u64).into(),
            key: into.key.into(),
            address: into.address.into(),
        };
        let sent = Self::send_get_into(out, peer, traits, at, &landing)?;
        if !matches!(sent, Progress::Over) {
            return Ok(sent);
        }
        let progress = self.piece_begun(out.link, place, operation, id, (slab, len));
        self.outbox.transfers.of(id).outstanding += 1;
        self.outbox.of(peer).asked += 1;
        Ok(progress)
    }

    /// Notes that a piece of an operation was posted, of this length and in this slab.
    fn piece_begun(
        &mut self,
        link: &mut Link,
        (window, epoch, rank): (WindowId, u64, WorldRank),
        operation: &mut Operation,
        id: TransferId,
        (slab, len): (usize, usize),
    ) -> Progress {
        let transfer = self.outbox.transfers.of(id);
        transfer.buffer.begin_piece(slab, operation.sent, len);
        if !std::mem::replace(&mut transfer.has_begun, true) {
            let is_read = transfer.way != Path::Put;
            self.with(link, window.slot, |core| core.transfer_begun(epoch, rank, is_read));
        }
        operation.sent += len;
        if operation.sent == operation.len { Progress::Over } else { Progress::More }
    }

    /// Handles the report of a target that it has put all bytes of a piece of a read into memory of this process.
    pub(super) fn landed(&mut self, link: &mut Link, from: Peer, name: u64) -> Result<(), WireError> {
        let (id, slab) = TransferId::of_key(name);
        if !self.outbox.transfers.is_awaited(id, slab, from) {
            return Err(WireError::Value { field: "name of a read" });
        }
        self.copy_piece(id, slab, true);
        self.outbox.transfers.piece_ended(id, false);
        self.outbox.of(from).asked -= 1;
        link.defer();
        link.list(from);
        Ok(())
    }

    /// Posts the next put for a read of a peer. Returns `None` if there is none to post.
    pub(super) fn serve_next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
    ) -> Result<Option<Turn>, PortError> {
        let state = self.outbox.of(to);
        let Some(&id) = state.serves.front() else { return Ok(None) };
        let (put_max, pieces) = (state.limits.put_max, state.serve_pieces);
        let serve = self.outbox.serves.of(id);
        let len = put_max.min(serve.len - serve.posted);
        if pieces >= self.config.pieces_max(len) {
            return Ok(Some(Turn::NoAnswer));
        }
        let not_registered = PortError::Unsupported { what: "put from memory that is not registered" };
        let Some(path) = out.link.peer(to).path() else { return Ok(Some(Turn::NoAnswer)) };
        let registered = self.windows[serve.window.slot as usize].registration(out.port.path(path)?);
        let registration = registered.ok_or(not_registered)?;
        let from = registration.local(serve.at + serve.posted, len);
        let address = serve.into.address.wrapping_add(serve.posted as u64);
        match out.put(path, from, Remote { address, ..serve.into }, Protocol::Rma, id.key())? {
            Post::Done => {
                serve.outstanding += 1;
                self.outbox.of(to).serve_pieces += 1;
                self.tell_under_way(out.link, to);
            }
            Post::Over => {}
            // The end of a put of this side makes room, and then the peer is listed again.
            Post::Again if pieces > 0 => return Ok(Some(Turn::NoAnswer)),
            Post::Again => return Ok(Some(Turn::NoRoom)),
        }
        let serve = self.outbox.serves.of(id);
        serve.posted += len;
        if serve.posted == serve.len {
            self.outbox.of(to).serves.pop_front();
            self.end_serve(out.link, id);
        }
        Ok(Some(Turn::Sent))
    }

    /// Handles the end of a put for a read of a peer.
    fn serve_piece_ended(&mut self, link: &mut Link, id: ServeId, done: Done) -> Result<(), Fault> {
        let serve = self.outbox.serves.of(id);
        let peer = serve.peer;
        serve.outstanding -= 1;
        serve.is_dropped |= done.result.is_err();
        self.outbox.of(peer).serve_pieces -= 1;
        self.tell_of_others(link, peer);
        self.outbox.of(peer).serves.retain(|other| *other != id || done.result.is_ok());
        self.end_serve(link, id);
        Self::check_piece(link, peer, done)
    }

    /// Answers a read of a peer if all its puts have ended.
    fn end_serve(&mut self, link: &mut Link, id: ServeId) {
        let Some(serve) = self.outbox.serves.take_if_over(id) else { return };
        self.outbox.of(serve.peer).serving -= 1;
        if !serve.is_dropped {
            let landed = Landed { name: serve.name.into() };
            link.answer(serve.peer, Protocol::Rma, kind::LANDED, landed.as_bytes());
        }
        // The window may have waited for the end of the read before it was freed.
        if self.window(serve.window).is_ok() {
            self.with(link, serve.window.slot, |core| core.touch_active());
        }
    }

    /// Returns the target and the way to it, if an operation travels by puts or gets of the port.
    fn reached(
        &mut self,
        link: &Link,
        peer: Peer,
        (window, _, rank): (WindowId, u64, WorldRank),
        operation: &Operation,
    ) -> Option<Reached> {
        let member = self.window(window).ok()?.members.get(rank)?;
        let Contact::Known(traits) = member.contact else { return None };
        // The rest of an operation takes the way of its first bytes.
        if operation.sent > 0 && operation.transfer.is_none() {
            return None;
        }
        let way = match operation.transfer {
            Some(id) => self.outbox.transfers.of(id).way,
            None => self.outbox.way(peer, traits, operation),
        };
        let memory = operation.memory.as_ref();
        let is_possible = match way {
            Path::Get | Path::PutBack => true,
            Path::Put => operation.transfer.is_some() || memory.is_some_and(|own| !own.is_scattered()),
            Path::Memory | Path::Packets => false,
        };
        let path = link.peer(peer).path().filter(|_| is_possible)?;
        Some(Reached { peer, path, traits, way })
    }

    /// Registers memory for an operation. If that fails, the operation keeps its memory, and travels in packets.
    fn begin_transfer<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        reached: Reached,
        (window, epoch, rank): (WindowId, u64, WorldRank),
        operation: &mut Operation,
    ) -> Option<TransferId> {
        let buffer = match reached.way {
            Path::Get => self.register_result(out, reached, Access::LOCAL_WRITE, operation)?,
            Path::PutBack => self.register_result(out, reached, Access::REMOTE_WRITE, operation)?,
            _ => {
                let own = register_own(out, reached.path, operation.memory.take()?, Access::LOCAL_READ);
                own.map_err(|memory| operation.memory = Some(memory)).ok()?
            }
        };
        let transfer = Transfer::new(window, epoch, (rank, reached.peer), reached.way, buffer, operation);
        let id = self.outbox.transfers.begin(transfer);
        operation.transfer = Some(id);
        Some(id)
    }

    /// Registers the memory for the result of a read, or takes slabs. Returns `None` if neither is possible.
    fn register_result<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        reached: Reached,
        access: Access,
        operation: &Operation,
    ) -> Option<Buffer> {
        let request = operation.request.expect("a read has a request");
        let memory = self.requests.take_memory(request);
        let own = match memory.is_scattered() {
            true => Err(memory),
            false => register_own(out, reached.path, memory, access),
        };
        let buffer = match own {
            Ok(own) => own,
            Err(memory) => {
                self.requests.give_back(request, Some(memory));
                self.take_landing_slabs(out, reached, access, operation.len)?
            }
        };
        self.requests.awaits_no_reply(request);
        Some(buffer)
    }

    /// Takes slabs for the pieces of a read, at least one. They stay with the read until it has ended, so a read that
    /// has begun waits for no other operation's slab.
    fn take_landing_slabs<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        Reached { peer, way, .. }: Reached,
        access: Access,
        len: usize,
    ) -> Option<Buffer> {
        let limits = self.outbox.of(peer).limits;
        let part = if way == Path::Get { limits.get_slab_len } else { limits.put_slab_len };
        let most = self.config.puts_max.min(SLABS_MAX).saturating_sub(self.outbox.of(peer).slabs);
        let mut slabs = Vec::new();
        while slabs.len() < most.min(len.div_ceil(part)) {
            let Ok(slab) = out.take_slab(peer, part, access) else { break };
            slabs.push(LandingSlab { slab, piece: None });
        }
        self.outbox.of(peer).slabs += slabs.len();
        (!slabs.is_empty()).then_some(Buffer::Landing { slabs, part })
    }

    /// Handles the end of a put or a get.
    pub(super) fn piece_ended(&mut self, link: &mut Link, done: Done) -> Result<(), Fault> {
        if let Some(id) = ServeId::of_key(done.key) {
            return self.serve_piece_ended(link, id, done);
        }
        let (id, slab) = TransferId::of_key(done.key);
        self.copy_piece(id, slab, done.result.is_ok());
        let peer = self.outbox.transfers.piece_ended(id, done.result.is_err());
        self.outbox.of(peer).pieces -= 1;
        self.tell_of_others(link, peer);
        link.defer();
        Self::check_piece(link, peer, done)
    }

    /// Lists a peer after the end of a put or a get.
    ///
    /// # Errors
    /// The fault of the peer, if the operation has failed.
    fn check_piece(link: &mut Link, peer: Peer, done: Done) -> Result<(), Fault> {
        if !link.peer(peer).is_alive() {
            return Ok(());
        }
        // Another piece may wait for the end of this one, or the goodbye.
        link.list(peer);
        match done.result {
            Err(failure) if !link.peer(peer).was_told_goodbye() => {
                // Bytes are lost although the peer seems to be alive, so the peer fails. If its process has ended, the
                // launcher's report will replace the cause.
                let cause = match failure {
                    Failure::PeerLost => Cause::Lost,
                    failure => Cause::Unreachable(failure.to_string()),
                };
                Err(Fault::new(peer, cause))
            }
            _ => Ok(()),
        }
    }

    /// Frees the slab of a piece that has ended, after copying its bytes to the memory of the request.
    fn copy_piece(&mut self, id: TransferId, slab: usize, has_arrived: bool) {
        let transfer = self.outbox.transfers.of(id);
        if let Some((region, offset, len)) = transfer.buffer.end_piece(slab)
            && let Some(request) = transfer.request.filter(|_| has_arrived)
        {
            self.requests.land(request, offset, region, len);
        }
    }

    /// Ends an operation of which no piece is under way.
    pub(super) fn end_transfer<P: Port>(&mut self, out: &mut Out<'_, P>, transfer: Transfer) {
        let Transfer {
            window, epoch, rank, peer, buffer, request, way, cost, mut has_failed, has_begun, ..
        } = transfer;
        let is_read = way != Path::Put;
        // The peer has ended, and its puts may still be under way until its path is cut off.
        let is_reached = way == Path::PutBack && has_failed;
        let slabs: Vec<_> = match buffer {
            Buffer::Own { region, lease } if is_reached => {
                out.link.retire(region, lease);
                Vec::new()
            }
            Buffer::Own { region, lease } => {
                let mut memory = out.end_lease(region, lease);
                // A result that the port does not return cannot be read.
                has_failed |= is_read && memory.is_none();
                request.into_iter().for_each(|id| self.requests.give_back(id, memory.take()));
                Vec::new()
            }
            Buffer::Copies { slabs, .. } => slabs,
            Buffer::Landing { slabs, .. } => slabs.into_iter().map(|landing| landing.slab).collect(),
        };
        self.outbox.of(peer).slabs -= slabs.len();
        for slab in slabs {
            if is_reached { out.link.retire_slab(slab) } else { out.link.give_slab(slab) }
        }
        self.requests.recorded -= cost;
        if let Some(id) = request {
            let cause = out.link.peer(peer).failure().unwrap_or(Cause::Left);
            let failed = || Err(Error::peer_failed(rank, cause, Fate::Unknown));
            self.requests.end(id, if has_failed { failed() } else { Ok(()) });
        }
        if has_begun && self.window(window).is_ok() {
            self.with(out.link, window.slot, |core| core.transferred(epoch, rank, is_read));
        }
        if self.outbox.has_work(peer) {
            out.link.list(peer);
        }
    }
}

/// How often a peer is told that puts or gets are under way. A process that waits begins to sleep 2 ms after an event.
const TELL_EVERY_NS: u64 = 1_000_000;

/// Returns the offset of the next bytes of an operation in the target's part, and the number of bytes that follow each
/// other there.
fn next_run(rank: WorldRank, traits: Traits, operation: &Operation) -> (u64, usize) {
    let base = check_place(rank, traits, operation).expect("it was checked");
    let (first, left) = operation.run(operation.sent);
    (operation.offset(base, first), left)
}

/// Registers the own memory of an operation.
///
/// # Errors
/// Returns the memory if the port does not register it.
fn register_own<P: Port>(
    out: &mut Out<'_, P>,
    path: PeerId,
    memory: Memory,
    access: Access,
) -> Result<Buffer, Memory> {
    let region = Region::new(memory);
    match out.register(path, &region, access) {
        Ok(lease) => Ok(Buffer::Own { region, lease }),
        Err(_) => {
            let memory = region.reclaim().ok();
            Err(memory.expect("the port does not hold memory that it has not registered"))
        }
    }
}

impl Core<'_> {
    /// Returns true if a put is carried out by the port although it fits in a packet: nothing else is under way to the
    /// target, and the program will probably flush. The flush then ends with the put. After a packet it would need a
    /// question and an answer.
    pub(super) fn puts_short(&mut self, number: u64, rank: WorldRank, operation: &Operation) -> bool {
        let party = self.window.party(number, rank);
        let is_alone = party.is_some_and(|party| party.is_after_flush && party.is_flushed());
        let is_put = operation.action == Action::Put && operation.form.is_none();
        let member = self.window.members.get(rank).filter(|_| is_alone && is_put);
        member.is_some_and(|member| {
            let is_registered = matches!(member.contact, Contact::Known(traits) if traits.key.get() != 0);
            is_registered && self.outbox.of(member.peer).limits.put_max > 0
        })
    }

    /// Copies the bytes of a put to slabs, and passes it on to be sent. Returns false if the target has not granted the
    /// access, if the operation does not travel by puts, or if there are not enough slabs.
    pub(super) fn put_from_slabs<P: Port>(
        &mut self,
        port: &mut P,
        number: u64,
        rank: WorldRank,
        mut operation: Operation,
        data: &[u8],
    ) -> bool {
        let is_granted = self.window.party(number, rank).is_some_and(|party| party.state == State::Granted);
        if !is_granted || self.window.mapped(self.link, port, rank).is_some() {
            return false;
        }
        let Some(member) = self.window.members.get(rank) else { return false };
        let (Contact::Known(traits), peer) = (member.contact, member.peer) else { return false };
        let is_put = self.outbox.way(peer, traits, &operation) == Path::Put
            || self.puts_short(number, rank, &operation);
        if !is_put || self.check_budget(&operation).is_err() {
            return false;
        }
        let part = self.outbox.of(peer).limits.put_slab_len;
        let most = self.config.puts_max.saturating_sub(self.outbox.of(peer).slabs);
        let Some(slabs) = fill_slabs(&mut Out { port, link: self.link }, peer, part, most, data) else {
            return false;
        };
        self.outbox.of(peer).slabs += slabs.len();
        let buffer = Buffer::Copies { slabs, part };
        let transfer = Transfer::new(self.id, number, (rank, peer), Path::Put, buffer, &operation);
        operation.transfer = Some(self.outbox.transfers.begin(transfer));
        self.requests.recorded += operation.cost();
        self.record(number, rank, Step::Operation(Box::new(operation)));
        true
    }
}

/// Copies bytes to at most `most` slabs of `part` bytes. Returns `None` if they are not enough.
fn fill_slabs<P: Port>(
    out: &mut Out<'_, P>,
    peer: Peer,
    part: usize,
    most: usize,
    data: &[u8],
) -> Option<Vec<Slab>> {
    if data.len().div_ceil(part) > most {
        return None;
    }
    let mut slabs = Vec::new();
    for bytes in data.chunks(part) {
        let filled = out.take_slab(peer, part, Access::LOCAL_READ).inspect(|slab| {
            slab.region().copy_in(0, bytes).expect("the bytes fit in the slab");
        });
        match filled {
            Ok(slab) => slabs.push(slab),
            Err(_) => {
                slabs.into_iter().for_each(|slab| out.link.give_slab(slab));
                return None;
            }
        }
    }
    Some(slabs)
}
