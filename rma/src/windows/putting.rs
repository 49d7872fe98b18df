//! Operations that travel by puts of the port.
//!
//! The origin writes to the registered part of a target that has granted the access. The target takes no part. A put
//! ends when its bytes are visible at the target, so a flush of puts needs no answer of the target. The packet that ends
//! the access follows the puts at once if the port keeps [`Order::SEND_AFTER_PUT`](samite_fabric::Order), and otherwise
//! when they have ended. A party of an epoch is over when its puts have ended.
//!
//! The part stays registered until all members have freed the window or have failed, and a member frees the window when
//! its epochs are over. The path of a failed member is cut off before the registration ends.

use samite_fabric::link::{Cause, Done, Fate, Fault, Link, Out, Peer, Slab, Turn, WorldRank};
use samite_fabric::wire::Protocol;
use samite_fabric::{Access, Failure, PeerId, Port, PortError, Post, Region, Remote};

use super::Windows;
use super::outbound::Progress;
use crate::core::{Core, check_place};
use crate::outbox::Item;
use crate::transfers::{Source, Transfer, TransferId};
use crate::window::{Contact, Operation, State, Step};
use crate::wire::Traits;
use crate::{Error, WindowId};

impl Windows {
    /// Takes the next step of an item that concerns puts: posts a put, or lets the item wait for the end of puts.
    /// Returns `None` if the item travels in packets, and nothing holds it up.
    pub(super) fn put_item<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        item: &mut Item,
    ) -> Result<Option<Progress>, PortError> {
        let Item::Step { window, to: rank, epoch, step } = item else { return Ok(None) };
        if let Step::Operation(operation) = step {
            return self.put_next(out, to, (*window, *epoch, *rank), operation);
        }
        let follows_puts = self.outbox.of(to).limits.send_after_put;
        let open = self.windows.get_mut(window.slot as usize);
        let Some(party) = open.and_then(|open| open.party(*epoch, *rank)) else { return Ok(None) };
        let are_under_way = party.transfers > 0;
        Ok(match step {
            Step::Flush(_) if are_under_way => Some(Progress::Waits(Turn::NoAnswer)),
            Step::Flush(request) if !party.has_packets => {
                self.requests.flushed(*request, *rank);
                Some(Progress::Over)
            }
            Step::Close(_) if are_under_way && !follows_puts => Some(Progress::Waits(Turn::NoAnswer)),
            _ => None,
        })
    }

    /// Posts the next put of an operation. Returns `None` if the operation travels in packets.
    fn put_next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        place: (WindowId, u64, WorldRank),
        operation: &mut Operation,
    ) -> Result<Option<Progress>, PortError> {
        let Some((path, traits)) = self.puts_into(out.link, to, place, operation) else { return Ok(None) };
        let id = match operation.transfer {
            Some(id) => id,
            None => match self.begin_put(out, to, path, place, operation) {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        let state = self.outbox.of(to);
        let limits = state.limits;
        if state.puts >= self.config.puts_max || state.flushes > 0 {
            return Ok(Some(Progress::Waits(Turn::NoAnswer)));
        }
        let at = check_place(place.2, traits, operation).expect("it was checked") + operation.sent as u64;
        let into = Remote { key: traits.key.get(), address: traits.address.get().wrapping_add(at) };
        let len = limits.put_max.min(operation.len - operation.sent);
        let from = self.outbox.transfers.of(id).source.local(operation.sent, len);
        match out.put(path, from, into, Protocol::Rma, id.key())? {
            Post::Done => {
                self.outbox.transfers.of(id).outstanding += 1;
                self.outbox.of(to).puts += 1;
            }
            Post::Over => {}
            // The end of a put of this side makes room, and then the peer is listed again.
            Post::Again if self.outbox.of(to).puts > 0 => {
                return Ok(Some(Progress::Waits(Turn::NoAnswer)));
            }
            Post::Again => return Ok(Some(Progress::Waits(Turn::NoRoom))),
        }
        if operation.sent == 0 {
            self.outbox.transfers.of(id).has_begun = true;
            let open = self.windows.get_mut(place.0.slot as usize);
            if let Some(party) = open.and_then(|open| open.party(place.1, place.2)) {
                party.transfers += 1;
            }
        }
        operation.sent += from.len;
        let is_whole = operation.sent == operation.len;
        Ok(Some(if is_whole { Progress::Over } else { Progress::More }))
    }

    /// Returns the path to the target and its traits, if an operation travels by puts.
    fn puts_into(
        &mut self,
        link: &Link,
        to: Peer,
        (window, _, rank): (WindowId, u64, WorldRank),
        operation: &Operation,
    ) -> Option<(PeerId, Traits)> {
        let member = self.window(window).ok()?.members.get(&rank)?;
        let Contact::Known(traits) = member.contact else { return None };
        let memory = operation.memory.as_ref();
        let is_contiguous = operation.transfer.is_some() || memory.is_some_and(|own| !own.is_scattered());
        // The rest of an operation takes the way of its first bytes.
        let is_in_packets = operation.sent > 0 && operation.transfer.is_none();
        let is_put = is_contiguous && !is_in_packets && self.outbox.is_put(to, traits, operation);
        link.peer(to).path().filter(|_| is_put).map(|path| (path, traits))
    }

    /// Registers the memory of an operation. If that fails, the operation keeps its memory, and travels in packets.
    fn begin_put<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        path: PeerId,
        (window, epoch, rank): (WindowId, u64, WorldRank),
        operation: &mut Operation,
    ) -> Option<TransferId> {
        let region = Region::new(operation.memory.take()?);
        let Ok(lease) = out.register(path, &region, Access::LOCAL_READ) else {
            let memory = region.reclaim().ok();
            operation.memory =
                Some(memory.expect("the port does not hold memory that it has not registered"));
            return None;
        };
        let source = Source::Own { region, lease };
        let transfer = Transfer::new(window, epoch, (rank, to), source, operation);
        let id = self.outbox.transfers.begin(transfer);
        operation.transfer = Some(id);
        Some(id)
    }

    /// Handles the end of a put.
    pub(super) fn put_ended(&mut self, link: &mut Link, done: Done) -> Result<(), Fault> {
        let peer = self.outbox.transfers.put_ended(done.key, done.result.is_err());
        self.outbox.of(peer).puts -= 1;
        link.defer();
        if !link.peer(peer).is_alive() {
            return Ok(());
        }
        // Another put may wait for the end of this one, or the goodbye.
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

    /// Ends an operation of which no put is under way.
    pub(super) fn end_transfer<P: Port>(&mut self, out: &mut Out<'_, P>, transfer: Transfer) {
        let Transfer { window, epoch, rank, peer, source, request, cost, has_failed, has_begun, .. } =
            transfer;
        let memory = match source {
            Source::Own { region, lease } => out.end_lease(region, lease),
            Source::Slabs { slabs, .. } => {
                self.outbox.of(peer).slabs -= slabs.len();
                slabs.into_iter().for_each(|slab| out.link.give_slab(slab));
                None
            }
        };
        self.requests.recorded -= cost;
        if let Some(id) = request {
            let cause = out.link.peer(peer).failure().unwrap_or(Cause::Left);
            let failed = || Err(Error::peer_failed(rank, cause, Fate::Unknown));
            self.requests.give_back(id, memory);
            self.requests.end(id, if has_failed { failed() } else { Ok(()) });
        }
        if has_begun && self.window(window).is_ok() {
            self.with(out.link, window.slot, |core| core.transferred(epoch, rank));
        }
        if self.outbox.has_items(peer) {
            out.link.list(peer);
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
        if !self.outbox.is_put(peer, traits, &operation) || self.check_budget(&operation).is_err() {
            return false;
        }
        let part = self.outbox.of(peer).limits.put_max;
        let most = self.config.puts_max.saturating_sub(self.outbox.of(peer).slabs);
        let Some(slabs) = fill_slabs(&mut Out { port, link: self.link }, peer, part, most, data) else {
            return false;
        };
        self.outbox.of(peer).slabs += slabs.len();
        let source = Source::Slabs { slabs, part };
        let transfer = Transfer::new(self.id, number, (rank, peer), source, &operation);
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
