//! Packets to members.

use samite_fabric::layout::{Part, Readable};
use samite_fabric::link::{Link, Out, Peer, RequestId, Turn, WorldRank};
use samite_fabric::wire::{Flags, Header, Protocol};
use samite_fabric::{Access, Body, Port, PortError, Post, Remote};
use zerocopy::IntoBytes;

use super::Windows;
use crate::activation::Kind;
use crate::core::{Bytes, Core};
use crate::outbox::Item;
use crate::path::Limits;
use crate::regions::SPACE;
use crate::window::{Action, Contact, Exposed, Operation, Step, Window};
use crate::wire::{BY_WORD, Landing, Named, Note, OPERATION_HEAD, Place, Traits, Wanted, kind};
use crate::{Reduction, WindowId};

/// The result of an attempt to send an item.
pub(super) enum Progress {
    /// The item was sent completely, or its window has gone.
    Over,
    /// A packet was sent, and others follow.
    More,
    Waits(Turn),
}

impl Windows {
    /// Sends the next packet to a peer.
    pub(super) fn send_next<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer) -> Result<Turn, PortError> {
        // The reads of the peer come first. If the peer's own items waited for their end, and these items for the end
        // of this side's reads, neither would end.
        let served = self.serve_next(out, to)?;
        if served == Some(Turn::Sent) {
            self.clear_queued(out.link, to);
            return Ok(Turn::Sent);
        }
        let Some(mut item) = self.outbox.of(to).queue.pop_front() else {
            self.clear_queued(out.link, to);
            return Ok(served.unwrap_or(Turn::Skipped));
        };
        item = match self.carry_out_item(out, item) {
            Some(item) => item,
            None => {
                self.clear_queued(out.link, to);
                return Ok(Turn::Skipped);
            }
        };
        let progress = match self.advance_item(out, to, &mut item) {
            Ok(progress) => progress,
            Err(error) => {
                // The peer fails, and then its items end.
                self.outbox.of(to).queue.push_front(item);
                return Err(error);
            }
        };
        let turn = match progress {
            Progress::Over => {
                self.item_sent(out.link, to, item);
                Turn::Sent
            }
            Progress::More => {
                self.outbox.of(to).queue.push_front(item);
                Turn::Sent
            }
            Progress::Waits(turn) => {
                self.outbox.of(to).queue.push_front(item);
                // The end of an operation lists the peer again, and room in the port does not.
                if served == Some(Turn::NoRoom) { Turn::NoRoom } else { turn }
            }
        };
        self.clear_queued(out.link, to);
        Ok(turn)
    }

    /// Takes the peer out of the link's queue if nothing waits for it.
    fn clear_queued(&mut self, link: &mut Link, to: Peer) {
        if !self.outbox.has_work(to) {
            link.clear_queued(to, Protocol::Rma);
        }
    }

    fn item_sent(&mut self, link: &mut Link, to: Peer, item: Item) {
        match item {
            Item::Step { window, to, epoch, step } => {
                self.with(link, window.slot, |core| core.sent(epoch, to, step));
            }
            Item::Meet { window, is_answer: true } if self.window(window).is_ok() => {
                let rank = link.peer(to).rank();
                self.with(link, window.slot, |core| core.answered_introduction(rank));
            }
            Item::Applied { window, to: rank, cost, .. } => {
                self.outbox.attached -= cost;
                if self.window(window).is_ok() {
                    self.with(link, window.slot, |core| core.member(rank).is_answering = false);
                }
            }
            Item::Meet { .. } | Item::Note { .. } | Item::AskFreed { .. } => {}
        }
    }

    /// Carries out the operation of an item, if that is possible on mapped memory. Otherwise returns the item.
    fn carry_out_item<P: Port>(&mut self, out: &mut Out<'_, P>, item: Item) -> Option<Item> {
        let Item::Step { window, to, epoch, step: Step::Operation(operation) } = item else {
            return Some(item);
        };
        let port = &mut *out.port;
        let mut left = Some(operation);
        self.with(out.link, window.slot, |core| {
            if let Some(operation) = left.take_if(|operation| core.carry_out(port, to, operation, Bytes::Own))
            {
                core.carried_out(epoch, to, *operation);
            }
        });
        left.map(|operation| Item::Step { window, to, epoch, step: Step::Operation(operation) })
    }

    /// Returns true if the peer answers the packets of this item at once.
    fn has_answer(&mut self, item: &Item) -> bool {
        let Item::Step { window, to, epoch, step } = item else { return false };
        match step {
            Step::Operation(operation) => operation.action.has_reply(),
            // The target may answer much later, when others have released the lock.
            Step::Lock(_) => false,
            Step::Flush(_) => true,
            Step::Close(_) => {
                let Some(window) = self.windows.get_mut(window.slot as usize) else { return false };
                match window.epoch(*epoch).map(|epoch| &epoch.kind) {
                    Some(Kind::Start(_)) => window.is_dynamic_at(*to),
                    Some(_) => true,
                    None => false,
                }
            }
        }
    }

    /// Posts the next put or get of an item, or sends its next packet.
    fn advance_item<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        item: &mut Item,
    ) -> Result<Progress, PortError> {
        if let Some(progress) = self.direct_item(out, to, item)? {
            return Ok(progress);
        }
        let asks = self.has_answer(item);
        if asks && self.outbox.of(to).unanswered >= self.config.questions_max {
            return Ok(Progress::Waits(Turn::NoAnswer));
        }
        let progress = self.send_item(out, to, item)?;
        if asks && !matches!(progress, Progress::Waits(_)) {
            let state = self.outbox.of(to);
            state.unanswered += 1;
            if let Item::Step { window, epoch, step: Step::Flush(_), .. } = item {
                state.flushes.push_back((*window, *epoch));
            }
        }
        Ok(progress)
    }

    fn send_item<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        item: &mut Item,
    ) -> Result<Progress, PortError> {
        match item {
            Item::Meet { window, is_answer } => {
                let Some(traits) = self.traits_for(out, to, *window) else { return Ok(Progress::Over) };
                let kind = if *is_answer { kind::MET } else { kind::MEET };
                send(out, to, kind, 0, traits.as_bytes(), &[][..])
            }
            Item::Note { slot, kind, note } => send(out, to, *kind, *slot, note.as_bytes(), &[][..]),
            Item::AskFreed { window } => {
                send(out, to, kind::ASK_FREED, 0, Named::new(*window, false).as_bytes(), &[][..])
            }
            Item::Applied { slot, note, results, .. } => {
                send(out, to, kind::APPLIED, *slot, note.as_bytes(), &results[..])
            }
            Item::Step { window, to: rank, epoch, step } => {
                let Some(open) = self.windows.get_mut(window.slot as usize) else {
                    return Ok(Progress::Over);
                };
                let Some(Contact::Known(traits)) = open.members.get(*rank).map(|member| member.contact)
                else {
                    unreachable!("steps wait until the traits are known")
                };
                match step {
                    Step::Lock(is_attached) => {
                        let packet_max = self.outbox.of(to).limits.packet_max;
                        let (number, rank) = (*epoch, *rank);
                        let request = self.with(out.link, window.slot, |core| {
                            core.lock_request(number, rank, traits, packet_max)
                        });
                        let Some((note, attached)) = request.flatten() else { return Ok(Progress::Over) };
                        *is_attached = attached.is_some();
                        match attached {
                            Some(bytes) => {
                                send(out, to, kind::EPOCH, traits.slot.get(), note.as_bytes(), &bytes[..])
                            }
                            None => send_note(out, to, traits, kind::LOCK, note),
                        }
                    }
                    Step::Operation(operation) => {
                        let data = self.requests.data_of(operation).readable();
                        let len = next_piece(operation, traits, self.outbox.of(to).limits.packet_max);
                        let progress = send_operation(out, to, traits, *epoch, operation, data, len)?;
                        if !matches!(progress, Progress::Over) {
                            return Ok(progress);
                        }
                        operation.sent += len;
                        self.requests.note_sent(operation, len);
                        let is_whole = operation.sent == operation.len;
                        Ok(if is_whole { Progress::Over } else { Progress::More })
                    }
                    Step::Flush(id) => {
                        send_note(out, to, traits, kind::FLUSH, Note::new(*epoch, id.to_wire()))
                    }
                    Step::Close(is_aborted) => {
                        let (kind, note) = closing_note(open, *epoch, *rank, traits, *is_aborted);
                        send_note(out, to, traits, kind, note)
                    }
                }
            }
        }
    }

    /// Asks a target to put bytes of its part into memory of this process.
    pub(super) fn send_get_into<P: Port>(
        out: &mut Out<'_, P>,
        to: Peer,
        traits: Traits,
        at: u64,
        landing: &Landing,
    ) -> Result<Progress, PortError> {
        let (op, element, epoch) = (0, 0, 0.into());
        let place = Place { generation: traits.generation, op, element, epoch, at: at.into() };
        let mut head = [0; size_of::<Place>() + size_of::<Landing>()];
        let (first, rest) = head.split_at_mut(size_of::<Place>());
        first.copy_from_slice(place.as_bytes());
        rest.copy_from_slice(landing.as_bytes());
        send(out, to, kind::GET_INTO, traits.slot.get(), &head, &[][..])
    }

    /// Returns the description of this process's part of a window for a peer.
    fn traits_for<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer, id: WindowId) -> Option<Traits> {
        let limits = self.outbox.of(to).limits;
        self.window(id).ok()?;
        let window = &mut self.windows[id.slot as usize];
        let place = window.register(out, to, limits).unwrap_or(Remote { key: 0, address: 0 });
        let lock = window.own_lock_word().and_then(|_| window.part.lock_distance()).unwrap_or(0) as u64;
        Some(Traits {
            communicator: window.name.communicator.into(),
            number: window.name.number.into(),
            len: (if window.regions.is_some() { SPACE } else { window.part.len as u64 }).into(),
            unit: window.part.unit.into(),
            slot: id.slot.into(),
            generation: id.generation.into(),
            reply_max: u32::try_from(limits.reply_max()).unwrap_or(u32::MAX).into(),
            key: place.key.into(),
            address: place.address.into(),
            lock: lock.into(),
        })
    }
}

impl Window {
    /// Returns the place at which a peer reaches this process's part without packets, or `None` if it cannot. `limits`
    /// are those of the path to the peer.
    fn register<P: Port>(&mut self, out: &mut Out<'_, P>, peer: Peer, limits: Limits) -> Option<Remote> {
        if self.hints.takes_part {
            return None;
        }
        let of_peer = out.link.peer(peer).path()?;
        let is_mapped = self.exposed.as_ref().is_some_and(|exposed| exposed.mapped.is_some())
            && out.port.caps_for(of_peer).map;
        // Short puts after a flush are puts of the port too.
        let may_put = limits.put_max > 0 && self.part.len > 0;
        let is_direct = may_put || limits.get_min().is_some_and(|min| self.part.len >= min);
        if !is_mapped && !is_direct {
            return None;
        }
        let path = out.port.path(of_peer).ok()?;
        let part = &self.part;
        let exposed = self.exposed.get_or_insert_with(|| Exposed::unmapped(part));
        let known = exposed.registrations.iter().find(|(known, _)| *known == path);
        if let Some((_, registration)) = known {
            return Some(registration.remote(0));
        }
        let span = exposed.span.clone();
        let registration =
            out.port.register_span(path, &part.region, span, Access::REMOTE | Access::LOCAL_READ).ok()?;
        exposed.registrations.push((path, registration));
        Some(registration.remote(0))
    }
}

/// Returns the packet that ends an access.
fn closing_note(
    window: &mut Window,
    number: u64,
    rank: WorldRank,
    traits: Traits,
    is_aborted: bool,
) -> (u8, Note) {
    let Some(epoch) = window.epoch(number) else { unreachable!("an epoch waits for its last packets") };
    let party = epoch.parties.get(rank);
    let ordinal = party.map_or(0, |party| party.ordinal);
    match epoch.kind {
        _ if party.is_some_and(|party| party.is_by_lock_word) => {
            (kind::UNLOCK, Note::new(0, number).flagged(BY_WORD))
        }
        Kind::Start(_) => {
            let token = if traits.is_dynamic() { number + 1 } else { 0 };
            (kind::DONE, Note::new(ordinal, token).flagged(is_aborted))
        }
        Kind::Fence { .. } => (kind::FINISH, Note::new(0, number)),
        _ => (kind::UNLOCK, Note::new(ordinal, number)),
    }
}

fn send_note<P: Port>(
    out: &mut Out<'_, P>,
    to: Peer,
    traits: Traits,
    kind: u8,
    note: Note,
) -> Result<Progress, PortError> {
    let note = Note { generation: traits.generation, ..note };
    send(out, to, kind, traits.slot.get(), note.as_bytes(), &[][..])
}

impl Core<'_> {
    /// Sends an operation if the target has granted the access, nothing waits to be sent to it, and one packet is
    /// enough. Returns false if nothing was sent. `data` has the operands of a write that has no memory of its own.
    pub(super) fn send_at_once<P: Port>(
        &mut self,
        port: &mut P,
        number: u64,
        rank: WorldRank,
        operation: &Operation,
        data: Option<&[u8]>,
    ) -> bool {
        let Some((peer, traits)) = self.ready_target(number, rank) else { return false };
        let has_reply = operation.action.has_reply();
        let of_peer = self.outbox.of(peer);
        if next_piece(operation, traits, of_peer.limits.packet_max) < operation.len
            || has_reply && of_peer.unanswered >= self.config.questions_max
        {
            return false;
        }
        let data = data.map_or_else(|| self.requests.data_of(operation).readable(), Readable::from);
        let mut out = Out { port, link: self.link };
        // After an error the caller records the operation, and a persistent error recurs when the operation is sent.
        let sent = send_operation(&mut out, peer, traits, number, operation, data, operation.len);
        if !matches!(sent, Ok(Progress::Over)) {
            return false;
        }
        self.counters.operations += 1;
        self.requests.note_sent(operation, operation.len);
        self.outbox.of(peer).unanswered += u32::from(has_reply);
        let epoch = self.window.epoch(number);
        let party = epoch.and_then(|epoch| epoch.parties.get_mut(rank)).expect("it was found above");
        party.unanswered += usize::from(has_reply);
        party.has_packets = true;
        party.is_after_flush = false;
        true
    }

    /// Returns the peer and the traits of a target that has granted the access of an epoch, if no step and no packet
    /// waits to be sent to it.
    fn ready_target(&mut self, number: u64, rank: WorldRank) -> Option<(Peer, Traits)> {
        self.window.epoch(number)?.parties.get(rank).filter(|party| party.is_ready())?;
        let member = self.window.members.get(rank)?;
        let Contact::Known(traits) = member.contact else { return None };
        let state = self.link.peer(member.peer);
        (state.has_answered() && state.has_no_packets_queued()).then_some((member.peer, traits))
    }

    /// Carries out an operation if the target has granted the access, nothing waits to be sent to it, and its part is
    /// mapped. A step of an earlier epoch can still wait, if that epoch was cancelled: its operation must come first.
    pub(super) fn carry_out_at_once<P: Port>(
        &mut self,
        port: &mut P,
        number: u64,
        rank: WorldRank,
        operation: &Operation,
        bytes: Bytes<'_>,
    ) -> bool {
        let is_ready = self.window.party(number, rank).is_some_and(|party| party.is_ready());
        let peer = self.window.members.get(rank).map(|member| member.peer);
        is_ready
            && peer.is_none_or(|peer| !self.outbox.has_items(peer))
            && self.carry_out(port, rank, operation, bytes)
    }
}

/// Returns the number of bytes that the next packet of an operation concerns: the rest of a run, or as many as fit.
fn next_piece(operation: &Operation, traits: Traits, packet_max: usize) -> usize {
    let mut most = packet_max - OPERATION_HEAD;
    if operation.action.has_reply() {
        most = most.min(traits.reply_max.get() as usize).max(1);
    }
    let (_, left) = operation.run(operation.sent);
    // All packets but the last of a run carry whole elements of any type.
    if left <= most { left } else { most / PIECE_UNIT * PIECE_UNIT }
}

/// Sends the next packet of an operation, which concerns `len` bytes.
fn send_operation<P: Port>(
    out: &mut Out<'_, P>,
    to: Peer,
    traits: Traits,
    epoch: u64,
    operation: &Operation,
    data: Readable<'_>,
    len: usize,
) -> Result<Progress, PortError> {
    let (kind, head, data) = packet_of(traits, epoch, operation, data, operation.sent, len);
    send(out, to, kind, traits.slot.get(), head.as_bytes(), &data)
}

/// The bytes of an operation's packet between the header and the data.
pub(crate) struct Head {
    bytes: [u8; size_of::<Place>() + size_of::<Wanted>()],
    len: usize,
}

impl Head {
    fn new(place: Place, wanted: Option<Wanted>) -> Self {
        let mut head = Self { bytes: [0; size_of::<Place>() + size_of::<Wanted>()], len: size_of::<Place>() };
        let (first, rest) = head.bytes.split_at_mut(size_of::<Place>());
        first.copy_from_slice(place.as_bytes());
        if let Some(wanted) = wanted {
            rest.copy_from_slice(wanted.as_bytes());
            head.len += size_of::<Wanted>();
        }
        head
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the packet of an operation that concerns `len` bytes from `at` on, which follow each other at the target:
/// its kind, the bytes behind the header, and the data.
pub(crate) fn packet_of<'a>(
    traits: Traits,
    epoch: u64,
    operation: &Operation,
    data: Readable<'a>,
    at: usize,
    len: usize,
) -> (u8, Head, Part<'a>) {
    let (kind, op, element) = match operation.action {
        Action::Put => (kind::PUT, None, None),
        Action::Get => (kind::GET, None, None),
        Action::Accumulate { op, element } => (kind::ACCUMULATE, Some(op), Some(element)),
        Action::GetAccumulate { op: Reduction::NoOp, element } => (kind::GET, None, Some(element)),
        Action::GetAccumulate { op, element } => (kind::FETCH, Some(op), Some(element)),
        Action::CompareSwap { element } => (kind::COMPARE_SWAP, None, Some(element)),
    };
    let base = operation.displacement.wrapping_mul(traits.unit.get().into());
    let (first, _) = operation.run(at);
    let place = Place {
        generation: traits.generation,
        op: op.map_or(0, |op| op as u8),
        element: element.map_or(0, |element| element as u8),
        epoch: (epoch as u16).into(),
        at: operation.offset(base, first).into(),
    };
    let wanted = operation.request.filter(|_| operation.action.has_reply()).map(|id: RequestId| Wanted {
        request: id.to_wire().into(),
        offset: (at as u64).into(),
        len: (len as u32).into(),
    });
    let data = match kind {
        kind::GET => data.part(0, 0),
        kind::COMPARE_SWAP => data.part(0, 2 * len),
        _ => data.part(at, at + len),
    };
    (kind, Head::new(place, wanted), data)
}

/// Sends a packet.
fn send<P: Port>(
    out: &mut Out<'_, P>,
    to: Peer,
    kind: u8,
    slot: u32,
    head: &[u8],
    body: &(impl Body + ?Sized),
) -> Result<Progress, PortError> {
    let header = out.link.header(to, Protocol::Rma, kind, Flags::empty(), slot);
    let mut packet = [0; HEAD_MAX];
    let whole = Header::LEN + head.len();
    packet[..Header::LEN].copy_from_slice(header.as_bytes());
    packet[Header::LEN..whole].copy_from_slice(head);
    Ok(match out.send(to, &packet[..whole], body)? {
        Post::Done | Post::Over => Progress::Over,
        Post::Again => Progress::Waits(Turn::NoRoom),
    })
}

/// Bytes of a packet before its data, at most.
const HEAD_MAX: usize = Header::LEN + size_of::<Traits>();

const _: () = assert!(HEAD_MAX >= OPERATION_HEAD);

/// The sizes of all element types divide it.
const PIECE_UNIT: usize = 16;
