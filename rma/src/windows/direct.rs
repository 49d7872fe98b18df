//! Operations that travel by puts and gets of the port.
//!
//! The origin accesses the registered part of a target that has granted the access. The target takes no part. A put ends
//! when its bytes are visible at the target, and a get when they have arrived, so a flush of both needs no answer of the
//! target. The packet that ends the access follows the gets when they have ended: later accesses of other members might
//! change the bytes. It follows the puts at once if the port keeps
//! [`Order::SEND_AFTER_PUT`](samite_fabric::Order), and otherwise when they have ended. A party of an epoch is over when
//! its puts and gets have ended.
//!
//! The part stays registered until all members have freed the window or have failed, and a member frees the window when
//! its epochs are over. The path of a failed member is cut off before the registration ends.

use samite_fabric::link::{Cause, Done, Fate, Fault, Link, Out, Peer, Slab, Turn, WorldRank};
use samite_fabric::wire::Protocol;
use samite_fabric::{Access, Failure, Memory, PeerId, Port, PortError, Post, Region, Remote};

use super::Windows;
use super::outbound::Progress;
use crate::core::{Core, check_place};
use crate::outbox::Item;
use crate::path::Path;
use crate::transfers::{Buffer, LandingSlab, Transfer, TransferId};
use crate::window::{Contact, Operation, State, Step};
use crate::wire::Traits;
use crate::{Error, WindowId};

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
        let open = self.windows.get_mut(window.slot as usize);
        let Some(party) = open.and_then(|open| open.party(*epoch, *rank)) else { return Ok(None) };
        let are_under_way = party.transfers > 0;
        let may_follow = follows_puts && party.reads == 0;
        Ok(match step {
            Step::Flush(_) if are_under_way => Some(Progress::Waits(Turn::NoAnswer)),
            Step::Flush(request) if !party.has_packets => {
                self.requests.flushed(*request, *rank);
                Some(Progress::Over)
            }
            Step::Close(_) if are_under_way && !may_follow => Some(Progress::Waits(Turn::NoAnswer)),
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
        let state = self.outbox.of(to);
        let limits = state.limits;
        if state.pieces >= self.config.puts_max || state.flushes > 0 {
            return Ok(Some(Progress::Waits(Turn::NoAnswer)));
        }
        let traits = reached.traits;
        let at = check_place(place.2, traits, operation).expect("it was checked") + operation.sent as u64;
        let remote = Remote { key: traits.key.get(), address: traits.address.get().wrapping_add(at) };
        let is_read = reached.way == Path::Get;
        let len = if is_read { limits.get_max } else { limits.put_max }.min(operation.len - operation.sent);
        let Some((local, slab)) = self.outbox.transfers.of(id).buffer.local(operation.sent, len) else {
            // The end of a get frees a slab, and then the peer is listed again.
            return Ok(Some(Progress::Waits(Turn::NoAnswer)));
        };
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
        let transfer = self.outbox.transfers.of(id);
        transfer.buffer.begin_piece(slab, operation.sent, local.len);
        if operation.sent == 0 {
            transfer.has_begun = true;
            let (window, epoch, rank) = place;
            self.with(out.link, window.slot, |core| core.transfer_begun(epoch, rank, is_read));
        }
        if posted == Post::Done {
            self.outbox.transfers.of(id).outstanding += 1;
            self.outbox.of(to).pieces += 1;
        } else {
            self.copy_piece(id, slab, true);
        }
        operation.sent += local.len;
        let is_whole = operation.sent == operation.len;
        Ok(Some(if is_whole { Progress::Over } else { Progress::More }))
    }

    /// Returns the target and the way to it, if an operation travels by puts or gets of the port.
    fn reached(
        &mut self,
        link: &Link,
        peer: Peer,
        (window, _, rank): (WindowId, u64, WorldRank),
        operation: &Operation,
    ) -> Option<Reached> {
        let member = self.window(window).ok()?.members.get(&rank)?;
        let Contact::Known(traits) = member.contact else { return None };
        // The rest of an operation takes the way of its first bytes.
        if operation.sent > 0 && operation.transfer.is_none() {
            return None;
        }
        let way = self.outbox.way(peer, traits, operation);
        let memory = operation.memory.as_ref();
        let is_possible = match way {
            Path::Get => true,
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
            Path::Get => self.register_result(out, reached, operation)?,
            _ => {
                let own = register_own(out, reached.path, operation.memory.take()?, Access::LOCAL_READ);
                own.map_err(|memory| operation.memory = Some(memory)).ok()?
            }
        };
        let transfer = Transfer::new(window, epoch, (rank, reached.peer), buffer, operation);
        let id = self.outbox.transfers.begin(transfer);
        operation.transfer = Some(id);
        Some(id)
    }

    /// Registers the memory for the result of a read, or takes slabs. Returns `None` if neither is possible.
    fn register_result<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        reached: Reached,
        operation: &Operation,
    ) -> Option<Buffer> {
        let request = operation.request.expect("a read has a request");
        let memory = self.requests.take_memory(request);
        let own = match memory.is_scattered() {
            true => Err(memory),
            false => register_own(out, reached.path, memory, Access::LOCAL_WRITE),
        };
        let buffer = match own {
            Ok(own) => own,
            Err(memory) => {
                self.requests.give_back(request, Some(memory));
                self.take_landing_slabs(out, reached.peer, operation.len)?
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
        peer: Peer,
        len: usize,
    ) -> Option<Buffer> {
        let part = self.outbox.of(peer).limits.get_max;
        let most = self.config.puts_max.saturating_sub(self.outbox.of(peer).slabs);
        let mut slabs = Vec::new();
        while slabs.len() < most.min(len.div_ceil(part)) {
            let Ok(slab) = out.take_slab(peer, part, Access::LOCAL_WRITE) else { break };
            slabs.push(LandingSlab { slab, piece: None });
        }
        self.outbox.of(peer).slabs += slabs.len();
        (!slabs.is_empty()).then_some(Buffer::Landing { slabs, part })
    }

    /// Handles the end of a put or a get.
    pub(super) fn piece_ended(&mut self, link: &mut Link, done: Done) -> Result<(), Fault> {
        let (id, slab) = TransferId::of_key(done.key);
        self.copy_piece(id, slab, done.result.is_ok());
        let peer = self.outbox.transfers.piece_ended(id, done.result.is_err());
        self.outbox.of(peer).pieces -= 1;
        link.defer();
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
            window,
            epoch,
            rank,
            peer,
            buffer,
            request,
            is_read,
            cost,
            mut has_failed,
            has_begun,
            ..
        } = transfer;
        let slabs: Vec<_> = match buffer {
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
        slabs.into_iter().for_each(|slab| out.link.give_slab(slab));
        self.requests.recorded -= cost;
        if let Some(id) = request {
            let cause = out.link.peer(peer).failure().unwrap_or(Cause::Left);
            let failed = || Err(Error::peer_failed(rank, cause, Fate::Unknown));
            self.requests.end(id, if has_failed { failed() } else { Ok(()) });
        }
        if has_begun && self.window(window).is_ok() {
            self.with(out.link, window.slot, |core| core.transferred(epoch, rank, is_read));
        }
        if self.outbox.has_items(peer) {
            out.link.list(peer);
        }
    }
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
        let Some(member) = self.window.members.get(&rank) else { return false };
        let (Contact::Known(traits), peer) = (member.contact, member.peer) else { return false };
        if self.outbox.way(peer, traits, &operation) != Path::Put || self.check_budget(&operation).is_err() {
            return false;
        }
        let part = self.outbox.of(peer).limits.put_max;
        let most = self.config.puts_max.saturating_sub(self.outbox.of(peer).slabs);
        let Some(slabs) = fill_slabs(&mut Out { port, link: self.link }, peer, part, most, data) else {
            return false;
        };
        self.outbox.of(peer).slabs += slabs.len();
        let buffer = Buffer::Copies { slabs, part };
        let transfer = Transfer::new(self.id, number, (rank, peer), buffer, &operation);
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
