//! The way of a packet: to the receive that it matches, to the operation that it answers, or to the unexpected
//! messages.

use samite_fabric::Body;
use samite_fabric::layout::{Room, Signature};
use samite_fabric::link::{Cause, Error, Fate, Lent, Link, Peer, RequestId, Status, WorldRank};
use samite_fabric::wire::{Header, Protocol, WireError, exact, prefix};
use samite_matching::{Arrival, Envelope, UnexpectedId};
use zerocopy::little_endian::U64;
use zerocopy::{Immutable, IntoBytes};

use super::put::part_of;
use super::{Rendezvous, Stream, Tagged, Unexpected, Whole, status_of};
use crate::choose::cost;
use crate::config::OVERHEAD;
use crate::request::{Buffer, Push, Staged, State, no_buffer};
use crate::trace::event;
use crate::wire::{
    AGREEMENTS_MAX, Abort, Cts, Data, Eager, Fin, Revoke, Rts, Synchronous, TransferMode, Unmatched, Verdict,
    kind,
};

impl Tagged {
    /// Handles a message whose bytes are all in its packet. If `is_alone` is true the packet contains no other message,
    /// and the bytes may be copied directly to a receive that is about to be posted.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "a constant of each caller, which costs nothing at run time"
    )]
    pub(super) fn eager<L: Lent>(
        &mut self,
        link: &mut Link,
        peer: Peer,
        header: &Header,
        eager: &Eager,
        data: &(impl Body + ?Sized),
        is_alone: bool,
        lent: &mut L,
    ) -> Result<(), Box<Cause>> {
        let price = cost(data.len());
        link.charge(peer, price)?;
        let sender = link.peer_mut(peer);
        let source = sender.rank();
        let traffic = sender.traffic_mut();
        traffic.eager_received += 1;
        traffic.bytes_received = traffic.bytes_received.wrapping_add(data.len() as u64);
        let envelope = Envelope { context: header.context.get(), source: source.0, tag: eager.tag.get() };
        if !self.contexts.is_known(sender, envelope.context)
            && !self.contexts.admit(link, envelope.context, envelope.tag, peer)?
        {
            return Ok(());
        }
        // Not in metered builds: there every message must be searched for in the matcher, so that it is counted.
        if cfg!(not(metered))
            && is_alone
            && self.matcher.posted_len() == 0
            && lent.take(envelope.context, source, envelope.tag, data)
        {
            return Ok(());
        }
        let store = &mut self.store;
        match self.matcher.arrive(envelope, || Unexpected::Eager(store.keep(data))) {
            Arrival::Matched(id) => self.deliver(link, id, envelope, data, lent),
            Arrival::Queued(_) => {
                link.peer_mut(peer).traffic_mut().unexpected += 1;
                self.note_unexpected();
                event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "unexpected");
                link.hold(price);
            }
            // The message must not be dropped: its sender's operation has succeeded already, so no error could be
            // reported for it. So the peer fails instead.
            Arrival::Refused => return Err(Cause::OutOfMemory.into()),
        }
        Ok(())
    }

    /// Handles a SYNC packet: a message of a synchronous or ready send, or with a signature, whose bytes are all in its
    /// packet.
    pub(super) fn synchronous<L: Lent>(
        &mut self,
        link: &mut Link,
        peer: Peer,
        header: &Header,
        sync: &Synchronous,
        data: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), Box<Cause>> {
        let (send, unmatched, price) = (sync.awaits_match()?, sync.unmatched()?, cost(data.len()));
        if send.is_some_and(|send| self.synchronous.contains_key(&(peer, send))) {
            // The sender violates the protocol: two of its waiting messages have one name. Only one of them would be
            // found when the sender ends.
            return Err(WireError::Value { field: "send" }.into());
        }
        link.charge(peer, price)?;
        let sender = link.peer_mut(peer);
        let source = sender.rank();
        let traffic = sender.traffic_mut();
        traffic.eager_received += 1;
        traffic.bytes_received = traffic.bytes_received.wrapping_add(data.len() as u64);
        let envelope = Envelope { context: header.context.get(), source: source.0, tag: sync.tag.get() };
        if !self.contexts.admit(link, envelope.context, envelope.tag, peer)? {
            if let Some(send) = send {
                self.tell_revoked(link, peer, envelope.context);
                self.answer(link, peer, kind::FIN, &Fin::new(send, unmatched.when_closed()));
            }
            return Ok(());
        }
        let (store, signature) = (&mut self.store, Signature::from_digest(sync.signature));
        let keep = || Unexpected::Whole(Box::new(Whole { send, signature, data: store.keep(data) }));
        match self.matcher.arrive(envelope, keep) {
            Arrival::Matched(id) => {
                self.confirm_match(link, peer, send);
                self.deliver_typed(link, id, &envelope, signature, data, lent);
            }
            Arrival::Queued(unexpected) if let (Unmatched::Drop, Some(send)) = (unmatched, send) => {
                self.drop_unposted(link, peer, unexpected, send);
            }
            Arrival::Queued(unexpected) => {
                link.peer_mut(peer).traffic_mut().unexpected += 1;
                self.note_unexpected();
                event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "unexpected");
                link.hold(price);
                if let Some(send) = send {
                    self.synchronous.insert((peer, send), unexpected);
                }
            }
            Arrival::Refused if let Some(send) = send => self.refuse(link, peer, send),
            // The peer fails, as for an eager message: the sender's operation has succeeded already.
            Arrival::Refused => return Err(Cause::OutOfMemory.into()),
        }
        Ok(())
    }

    /// Informs the sender of a message that its message was matched, if the sender awaits that.
    fn confirm_match(&self, link: &mut Link, peer: Peer, send: Option<u64>) {
        if let Some(send) = send {
            self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Delivered));
        }
    }

    /// Drops the message of a ready send for which no receive was posted, and informs the sender.
    fn drop_unposted(&mut self, link: &mut Link, peer: Peer, unexpected: UnexpectedId, send: u64) {
        if let Some((_, Unexpected::Whole(whole))) = self.matcher.remove(unexpected) {
            self.store.release(whole.data);
        }
        self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Unposted));
    }

    /// Handles every packet except eager messages.
    pub(super) fn other_packet<L: Lent>(
        &mut self,
        link: &mut Link,
        peer: Peer,
        header: &Header,
        body: &[u8],
        lent: &mut L,
    ) -> Result<(), Box<Cause>> {
        if header.protocol() != Protocol::P2p {
            return Err(WireError::Protocol { theirs: header.protocol() as u8 }.into());
        }
        match header.kind {
            // An eager message that the fast path does not take, because it has the flag `URGENT` or is in a bundle.
            kind::EAGER => {
                let (eager, data) = prefix(body)?;
                self.eager(link, peer, header, eager, &Rare(data), false, lent)?;
            }
            kind @ (kind::DATA | kind::STREAM) => {
                let (data, bytes) = prefix(body)?;
                self.data(link, peer, kind, data, bytes, lent)?;
            }
            kind::SYNC => {
                let (sync, data) = prefix(body)?;
                self.synchronous(link, peer, header, sync, data, lent)?;
            }
            kind::RTS => {
                let rts = exact::<Rts>(body)?;
                let bytes =
                    usize::try_from(rts.len.get()).map_err(|_| WireError::Value { field: "length" })?;
                if isize::try_from(bytes).is_err() {
                    return Err(WireError::Value { field: "length" }.into());
                }
                let mode = rts.mode()?;
                let source = link.peer(peer).rank();
                let envelope =
                    Envelope { context: header.context.get(), source: source.0, tag: rts.tag.get() };
                let (send, unmatched) = (rts.send.get(), rts.unmatched()?);
                let signature = Signature::from_digest(rts.signature);
                let rendezvous = Rendezvous { send, bytes, mode, unmatched, signature };
                self.accept_rts(link, peer, envelope, rendezvous)?;
            }
            kind::CTS => self.cts(link, peer, exact(body)?)?,
            kind::PLACE => self.place(link, peer, exact(body)?)?,
            kind::LANDED => self.landed(link, peer, exact(body)?)?,
            kind::FIN => self.fin(link, peer, exact(body)?)?,
            kind::REVOKE => self.revoke(link, peer, exact(body)?),
            kind::ABORT => self.abort(link, peer, exact(body)?)?,
            kind::LEAVE => self.leave(link, peer, exact(body)?)?,
            kind::RETIRE => self.retire(link, peer, exact(body)?)?,
            kind::VOID => self.void(link, peer, exact(body)?)?,
            kind::ROLL_CALL => self.roll_called(link, peer, exact(body)?)?,
            kind::PRESENT => self.present(link, peer, exact(body)?)?,
            kind::INQUIRE => self.inquire(link, peer, exact(body)?)?,
            kind::CONFIRM => self.confirm(link, peer, exact(body)?),
            kind::PART_INIT => self.part_init(link, peer, header.context.get(), exact(body)?)?,
            kind::PART_ACCEPT => self.part_accept(link, peer, exact(body)?)?,
            kind::PART_START => self.part_start(link, peer, exact(body)?)?,
            kind::PART_DATA => {
                let (data, bytes) = prefix(body)?;
                self.part_data(link, peer, data, bytes)?;
            }
            kind::PART_END => self.part_end(link, peer, exact(body)?)?,
            theirs => return Err(WireError::Kind { theirs }.into()),
        }
        Ok(())
    }

    pub(super) fn data<L: Lent>(
        &mut self,
        link: &mut Link,
        peer: Peer,
        kind: u8,
        data: &Data,
        bytes: &(impl Body + ?Sized),
        lent: &mut L,
    ) -> Result<(), WireError> {
        if kind == kind::STREAM {
            return self.stream(link, peer, data, bytes, lent);
        }
        let Some(id) = self.answered(link, peer, data.operation.get()) else { return Ok(()) };
        if self.is_unnamed(id) {
            return Err(WireError::Value { field: "operation" });
        }
        self.inflow(link, id, data.offset.get(), bytes, lent)
    }

    /// Handles an RTS: matches the message with a posted receive, lets it wait for a receive, or drops or refuses it.
    fn accept_rts(
        &mut self,
        link: &mut Link,
        peer: Peer,
        envelope: Envelope,
        rendezvous: Rendezvous,
    ) -> Result<(), Box<Cause>> {
        let is_stream = rendezvous.mode == TransferMode::Stream;
        if is_stream {
            if self.streams.contains_key(&(peer, rendezvous.send)) {
                return Err(WireError::Value { field: "send" }.into());
            }
            let price = u32::try_from(rendezvous.bytes.saturating_add(OVERHEAD)).unwrap_or(u32::MAX);
            link.charge(peer, price)?;
            link.peer_mut(peer).traffic_mut().eager_received += 1;
        } else {
            link.peer_mut(peer).traffic_mut().rendezvous_received += 1;
        }
        let traffic = link.peer_mut(peer).traffic_mut();
        traffic.bytes_received = traffic.bytes_received.wrapping_add(rendezvous.bytes as u64);
        let is_wanted = self.contexts.admit(link, envelope.context, envelope.tag, peer)?;
        if !is_wanted && !is_stream {
            let verdict = rendezvous.unmatched.when_closed();
            self.tell_revoked(link, peer, envelope.context);
            self.answer(link, peer, kind::FIN, &Fin::new(rendezvous.send, verdict));
            return Ok(());
        }
        match self.matcher.arrive(envelope, || Unexpected::Rts(rendezvous)) {
            Arrival::Matched(id) => self.begin(link, id, &envelope, rendezvous),
            Arrival::Queued(unexpected) if rendezvous.unmatched == Unmatched::Drop && !is_stream => {
                self.drop_unposted(link, peer, unexpected, rendezvous.send);
            }
            Arrival::Queued(unexpected) => {
                link.peer_mut(peer).traffic_mut().unexpected += 1;
                self.note_unexpected();
                event!(
                    TRACE,
                    peer = envelope.source,
                    tag = envelope.tag,
                    bytes = rendezvous.bytes,
                    "unexpected"
                );
                if is_stream {
                    let total = rendezvous.bytes;
                    link.hold(cost(total));
                    let kept = Stream::Kept { unexpected, total, bytes: Vec::new() };
                    self.streams.insert((peer, rendezvous.send), kept);
                } else if self.is_leaving && rendezvous.unmatched == Unmatched::Confirm {
                    self.matcher.remove(unexpected);
                    self.answer(link, peer, kind::FIN, &Fin::new(rendezvous.send, Verdict::Abandoned));
                    return Ok(());
                } else {
                    let may_wait = self.may_wait(link, peer, rendezvous);
                    if may_wait != Ok(true) {
                        self.matcher.remove(unexpected);
                    }
                    match may_wait? {
                        true => self.keep_envelope(peer, rendezvous, unexpected),
                        false => self.refuse(link, peer, rendezvous.send),
                    }
                }
                if !is_wanted {
                    self.discard_unexpected(link, unexpected);
                }
            }
            // The peer fails, as for an eager message: the sender's operation may have succeeded already.
            Arrival::Refused if is_stream => return Err(Cause::OutOfMemory.into()),
            Arrival::Refused => self.refuse(link, peer, rendezvous.send),
        }
        Ok(())
    }

    /// Adds an envelope that waits for a receive to the lists of such envelopes, and counts its cost unless it belongs
    /// to an agreement.
    fn keep_envelope(&mut self, peer: Peer, rendezvous: Rendezvous, unexpected: UnexpectedId) {
        self.envelopes.insert((peer, rendezvous.send), unexpected);
        match rendezvous.unmatched {
            Unmatched::Agreement => _ = self.queues(peer).from_agreements.insert(rendezvous.send),
            _ => self.envelopes_cost += OVERHEAD as u64,
        }
    }

    /// Returns true if an envelope that no receive matches may be kept. If its sender wants a confirmation, the
    /// confirmation is sent now, or when the budget is no longer exceeded.
    ///
    /// # Errors
    /// [`WireError::Value`] if another envelope of the sender with this name waits here, if the sender did not wait for
    /// the confirmation of an earlier envelope, or if [`AGREEMENTS_MAX`] envelopes of its agreements wait here already.
    fn may_wait(&mut self, link: &mut Link, peer: Peer, rendezvous: Rendezvous) -> Result<bool, WireError> {
        let has_room = self.envelopes_cost + OVERHEAD as u64 <= self.config.envelopes_max as u64;
        let invalid = |field| Err(WireError::Value { field });
        if self.envelopes.contains_key(&(peer, rendezvous.send)) {
            // Two waiting messages would have the same name, and only one of them would be found when the sender ends.
            return invalid("send");
        }
        match rendezvous.unmatched {
            Unmatched::Waits | Unmatched::Drop => return Ok(has_room),
            Unmatched::Agreement => {
                let waiting = self.queues(peer).from_agreements.len();
                return if waiting < AGREEMENTS_MAX { Ok(true) } else { invalid("unmatched") };
            }
            _ if self.unconfirmed.iter().any(|(sender, _)| *sender == peer) => {
                return invalid("unmatched");
            }
            Unmatched::Confirm if has_room => {
                self.answer(link, peer, kind::FIN, &Fin::new(rendezvous.send, Verdict::Waits));
            }
            Unmatched::Confirm => self.unconfirmed.push_back((peer, rendezvous.send)),
        }
        Ok(true)
    }

    #[inline]
    fn note_unexpected(&mut self) {
        let waiting = self.matcher.unexpected_len() as u64;
        self.unexpected_max = self.unexpected_max.max(waiting);
    }

    fn refuse(&mut self, link: &mut Link, peer: Peer, send: u64) {
        self.refused += 1;
        self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Refused));
    }

    /// Delivers an unexpected message to the receive that has matched it.
    #[inline]
    pub(crate) fn accept<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        message: Unexpected,
        lent: &mut L,
    ) {
        match message {
            Unexpected::Eager(data) => {
                link.release(cost(data.len()).into());
                self.deliver(link, id, *envelope, data.as_slice(), lent);
                self.store.release(data);
            }
            Unexpected::Whole(whole) => self.accept_whole(link, id, envelope, *whole, lent),
            Unexpected::Rts(rendezvous) if rendezvous.mode == TransferMode::Stream => {
                self.take_stream(link, id, envelope, rendezvous, lent);
            }
            Unexpected::Rts(rendezvous) => self.begin(link, id, envelope, rendezvous),
        }
    }

    /// Delivers an unexpected message that has arrived whole to the receive that has matched it, and informs its sender
    /// of the match if the sender awaits that.
    #[inline(never)]
    fn accept_whole<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        Whole { send, signature, data }: Whole,
        lent: &mut L,
    ) {
        if let Some(peer) = link.find(WorldRank(envelope.source)) {
            self.confirm_match(link, peer, send);
        }
        self.deliver_typed(link, id, envelope, signature, data.as_slice(), lent);
        self.drop_whole(link, data);
    }

    /// Completes a receive with a message that has arrived whole, unless the types of message and receive differ.
    pub(super) fn deliver_typed<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: &Envelope,
        signature: Signature,
        data: &(impl Body + ?Sized),
        lent: &mut L,
    ) {
        match self.signatures.conflict(id, status_of(envelope, data.len()), signature) {
            Some(conflict) => self.finish(link, id, Err(conflict)),
            None => self.deliver(link, id, *envelope, data, lent),
        }
    }

    /// Removes an unexpected message that a receive has matched from the lists by which the sender's packets find it.
    /// So the sender can no longer withdraw it, even if its bytes were not sent yet.
    #[inline]
    pub(crate) fn matched(&mut self, link: &mut Link, envelope: &Envelope, message: &Unexpected) {
        match message {
            Unexpected::Eager(_) | Unexpected::Rts(Rendezvous { mode: TransferMode::Stream, .. }) => {}
            Unexpected::Rts(Rendezvous { send, .. }) => {
                self.forget_envelope(link, WorldRank(envelope.source), *send)
            }
            Unexpected::Whole(whole) => self.forget_synchronous(link, envelope, whole.send),
        }
    }

    /// Removes a message of a synchronous or ready send from the list of such messages that wait for a receive.
    #[inline(never)]
    fn forget_synchronous(&mut self, link: &mut Link, envelope: &Envelope, send: Option<u64>) {
        if let (Some(send), Some(peer)) = (send, link.find(WorldRank(envelope.source))) {
            self.synchronous.remove(&(peer, send));
        }
    }

    /// Removes an envelope without data from the lists of envelopes that wait for a receive.
    pub(super) fn forget_envelope(&mut self, link: &mut Link, rank: WorldRank, send: u64) {
        if let Some(peer) = link.find(rank) {
            self.envelopes.remove(&(peer, send));
            if self.queues(peer).from_agreements.remove(&send) {
                return;
            }
            // No confirmation is needed: the envelope was matched, and the sender is informed of that.
            self.unconfirmed.retain(|name| *name != (peer, send));
        }
        self.release_envelope(link);
    }

    /// Accounts for an envelope or initialization that no longer waits. If all waiting envelopes are within the budget
    /// again, sends the confirmations that were put off.
    pub(super) fn release_envelope(&mut self, link: &mut Link) {
        self.envelopes_cost -= OVERHEAD as u64;
        if self.envelopes_cost <= self.config.envelopes_max as u64 {
            while let Some((peer, send)) = self.unconfirmed.pop_front() {
                self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Waits));
            }
        }
    }

    /// Completes a receive with a message that has arrived whole. If its buffer is lent and long enough, the receive
    /// ends here, and the lender is informed.
    #[inline(always)]
    pub(super) fn deliver<L: Lent>(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: Envelope,
        data: &(impl Body + ?Sized),
        lent: &mut L,
    ) {
        let Some(request) = self.requests.get_mut(id) else { no_receive(id) };
        if let Buffer::Lent { len, place, staged: None } = request.buffer
            && data.len() <= len
            && let Some(mut buffer) = lent.write(id, place)
        {
            buffer.put(0, data);
            event!(TRACE, peer = envelope.source, tag = envelope.tag, bytes = data.len(), "succeeded");
            let status = status_of(&envelope, data.len());
            if lent.received(id, place, status) {
                debug_assert!(
                    self.requests.get(id).is_none_or(|request| !request.travels),
                    "see `lends_always`"
                );
                self.requests.remove_bare(id);
            } else {
                self.finish(link, id, Ok(status));
            }
        } else {
            self.deliver_unlent(link, id, envelope, data);
        }
    }

    /// Delivers a message as [`deliver`](Self::deliver) does, to a receive that owns its buffer, or whose buffer is not
    /// lent or too short. The request keeps the result, and the bytes if they fit, until it is collected.
    #[inline(never)]
    fn deliver_unlent(
        &mut self,
        link: &mut Link,
        id: RequestId,
        envelope: Envelope,
        data: &(impl Body + ?Sized),
    ) {
        let Some(request) = self.requests.get_mut(id) else { no_receive(id) };
        let status = status_of(&envelope, data.len());
        let room = request.buffer.len();
        if data.len() > room {
            return self.finish(link, id, Err(Error::Truncated { status, room }));
        }
        match &mut request.buffer {
            Buffer::Owned(memory) => memory.writable().put(0, data),
            Buffer::Lent { staged, .. } => Staged::append(staged, 0, data),
            Buffer::Registered { .. } | Buffer::Gone => no_buffer(id),
        }
        if request.collected {
            return self.finish(link, id, Ok(status));
        }
        self.travelling -= usize::from(request.end_travel());
        request.succeed(status);
        self.note_end(id);
    }

    /// Returns the request that a packet of a peer names, if the request still exists and is an operation with that
    /// peer. Otherwise counts the packet as stale.
    pub(super) fn answered(&mut self, link: &mut Link, peer: Peer, name: u64) -> Option<RequestId> {
        let id = RequestId::from_wire(name);
        let rank = link.peer(peer).rank();
        let found = self.requests.get(id).is_some_and(|request| request.rank() == Some(rank));
        if !found {
            link.note_stale();
        }
        found.then_some(id)
    }

    /// Returns the send whose bytes the receiver asks for, by CTS or PLACE. If the send has ended, or ends now, informs
    /// the receiver and returns `None`.
    pub(super) fn called_for(
        &mut self,
        link: &mut Link,
        peer: Peer,
        send: u64,
        recv: U64,
    ) -> Option<RequestId> {
        let Some(id) = self.answered(link, peer, send) else {
            self.answer(link, peer, kind::ABORT, &Abort { recv });
            return None;
        };
        let request = self.requests.get_mut(id)?;
        let (is_matched, is_over) =
            (!matches!(request.state, State::AwaitingMatch { .. }), matches!(request.state, State::Over));
        let is_abandoned = matches!(&request.state, State::Putting(put) if put.abandoned);
        if is_over || is_abandoned {
            // The send was given up while its bytes were being sent, and the receiver is informed of that.
            link.note_stale();
            return None;
        }
        if is_matched {
            return Some(id);
        }
        let is_gone = matches!(request.buffer, Buffer::Lent { .. } | Buffer::Gone);
        if request.result.is_some() || (request.collected && is_gone) {
            // The send has timed out, or its owner has dropped the data. The receiver has no bytes yet.
            self.answer(link, peer, kind::ABORT, &Abort { recv });
            self.finish(link, id, Err(Error::Cancelled { fate: Fate::NotDelivered }));
            return None;
        }
        if link.peer(peer).was_told_goodbye() {
            // The receiver ends its receive when this rank's goodbye arrives, and that is before any byte that is sent
            // from now on.
            self.end_after_goodbye(link, id);
            return None;
        }
        Some(id)
    }

    fn cts(&mut self, link: &mut Link, peer: Peer, cts: &Cts) -> Result<(), WireError> {
        let Some(id) = self.called_for(link, peer, cts.send.get(), cts.recv) else { return Ok(()) };
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let (offset, requested) = part_of(cts.offset, cts.len, request.buffer.len())?;
        match &mut request.state {
            State::AwaitingMatch { .. } if offset == 0 => {
                let recv = Some(cts.recv.get());
                request.state = State::Pushing(Box::new(Push { recv, to_send: 0..requested }));
                self.queues(peer).pushes.push_back(id);
            }
            State::Pushing(push) if push.recv == Some(cts.recv.get()) && push.to_send.end == offset => {
                let was_served = push.to_send.is_empty();
                push.to_send.end = requested;
                if was_served {
                    self.queues(peer).pushes.push_back(id);
                }
            }
            _ => return Err(WireError::Value { field: "offset" }),
        }
        link.list(peer);
        self.confirmed(link, peer, id);
        Ok(())
    }

    fn fin(&mut self, link: &mut Link, peer: Peer, fin: &Fin) -> Result<(), Box<Cause>> {
        let verdict = fin.verdict()?;
        let Some(id) = self.answered(link, peer, fin.send.get()) else { return Ok(()) };
        let rank = link.peer(peer).rank();
        let Some(request) = self.requests.get(id) else { return Ok(()) };
        if matches!(request.state, State::Over) {
            // All bytes were sent, and the receiver has given up the message meanwhile.
            link.note_stale();
            return Ok(());
        }
        if !request.is_send() || matches!(request.state, State::AwaitingRoom { .. }) {
            return Err(WireError::Value { field: "send" }.into());
        }
        if verdict == Verdict::Unposted && request.answered != Some(Unmatched::Drop) {
            return Err(WireError::Value { field: "verdict" }.into());
        }
        if verdict == Verdict::Refused && request.copied.is_kept() {
            // The message is from the outbox. Its send has returned to the caller, so no error could be reported for
            // it; the peer fails instead.
            return Err(Cause::OutOfMemory.into());
        }
        if verdict == Verdict::Waits {
            self.confirmed(link, peer, id);
            return Ok(());
        }
        let status = Status { source: rank, tag: request.tag, bytes: request.buffer.len() };
        let result = match verdict {
            Verdict::Delivered | Verdict::Waits => Ok(status),
            Verdict::Withdrawn => Err(Error::Cancelled { fate: Fate::NotDelivered }),
            Verdict::Abandoned => Err(Error::Abandoned { rank, fate: Fate::NotDelivered }),
            Verdict::Unposted => Err(Error::NotPosted { rank }),
            Verdict::Refused => Err(Error::Exhausted {
                what: "the receiver's memory for messages that wait for a receive",
                hint: "have it receive them, or raise its envelopes_max".into(),
            }),
        };
        match (result, &request.state) {
            // The port may be reading the memory for puts, so the request ends when they have ended.
            (Err(error), State::Putting(_)) => self.abandon(link, id, error),
            (Ok(_), State::Putting(_)) => return Err(WireError::Value { field: "verdict" }.into()),
            (result, _) => self.finish(link, id, result),
        }
        Ok(())
    }

    fn revoke(&mut self, link: &mut Link, peer: Peer, revoke: &Revoke) {
        let send = revoke.send.get();
        if self.end_stream(link, peer, send) {
            return;
        }
        let waiting = self.synchronous.get(&(peer, send)).or_else(|| self.envelopes.get(&(peer, send)));
        // If the message is not among the unexpected ones any more, a receive has matched it, and that receive
        // continues.
        if let Some(&unexpected) = waiting {
            self.drop_unmatched(link, unexpected, Verdict::Withdrawn);
        }
    }

    fn abort(&mut self, link: &mut Link, peer: Peer, abort: &Abort) -> Result<(), WireError> {
        let Some(id) = self.answered(link, peer, abort.recv.get()) else { return Ok(()) };
        match self.requests.get(id).map(|request| &request.state) {
            Some(State::AwaitingData(_)) if !self.is_unnamed(id) => {
                let rank = link.peer(peer).rank();
                self.finish(link, id, Err(Error::Abandoned { rank, fate: Fate::NotDelivered }));
            }
            Some(State::Landing(_)) => self.end_landing(link, id),
            // The receive has ended: it was given up, or this is a further ABORT, since each CTS and each PLACE for a
            // send that has ended is answered by one.
            Some(State::Over) => link.note_stale(),
            _ => return Err(WireError::Value { field: "recv" }),
        }
        Ok(())
    }

    /// Returns true for a receive of a stream, and for a receive that reads its bytes in the sender's memory. A correct
    /// sender never names such a receive in a packet, because the receive's name is not sent to it.
    fn is_unnamed(&self, id: RequestId) -> bool {
        self.requests.get(id).is_some_and(|request| {
            matches!(
                &request.state,
                State::AwaitingData(inflow) if matches!(inflow.mode, TransferMode::Stream | TransferMode::Read(_))
            )
        })
    }

    /// Queues a short packet to a peer: see [`Link::answer`].
    pub(super) fn answer(&self, link: &mut Link, peer: Peer, kind: u8, body: &(impl IntoBytes + Immutable)) {
        link.answer(peer, Protocol::P2p, kind, body.as_bytes());
    }
}

/// The bytes of an eager message that does not take the fast path. This type exists for the compiler: the generic code
/// is compiled separately for it, so the copy for the fast path has only one caller and is inlined there.
struct Rare<'a>(&'a [u8]);

impl Body for Rare<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn copy_part(&self, at: usize, into: &mut [u8]) {
        self.0.copy_part(at, into);
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self.0)
    }
}

/// Panics because the matcher has returned a receive that does not exist. A receive is removed from the matcher when it
/// ends, so this is a bug.
#[cold]
pub(super) fn no_receive(id: RequestId) -> ! {
    unreachable!("{id:?} has met its message, and does not exist")
}
