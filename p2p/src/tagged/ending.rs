//! The end of operations that do not succeed: deadlines, cancels, the failure of peers; and the end of the engine
//! itself in good order.
//!
//! ```text
//!  state             deadline                              cancel                       peer fails
//!  ────────────────  ────────────────────────────────────  ───────────────────────────  ──────────────────
//!  AwaitingRoom      timed out, not delivered              cancelled, not delivered     not delivered
//!  AwaitingMatch     timed out, unknown; REVOKE            cancelled, unknown; REVOKE   unknown
//!   registered       timed out, unknown; REVOKE; the       REVOKE: FIN(withdrawn)       unknown
//!                    memory is kept until FIN              cancels, else it goes on
//!  Pushing           timed out, not delivered; ABORT       cancelled, not delivered;    not delivered
//!                                                          ABORT
//!   a stream         timed out, unknown; REVOKE            cancelled, unknown; REVOKE   unknown
//!  Putting           timed out, not delivered; ABORT      cancelled, not delivered;    not delivered
//!                    after the outstanding puts            ABORT likewise
//!  AwaitingMessage   timed out, not delivered              cancelled, not delivered     not delivered
//!  Pulling           timed out, not delivered; FIN(aban-   too late: goes on            not delivered
//!                    doned) after the gets outstanding
//!  Landing           timed out, not delivered; FIN(aban-   too late: goes on            not delivered
//!                    doned); the memory is kept until the
//!                    sender has stopped
//!  AwaitingData      timed out, not delivered;             too late: goes on            not delivered
//!                    FIN(abandoned)
//!  Partitioned       timed out, not delivered;             cancelled, not delivered;    not delivered
//!                    PART_END                              PART_END
//! ```
//!
//! If the caller drops the request of a send without waiting for it, the send is not cancelled but withdrawn: REVOKE
//! ends the send if its message has not been matched. Otherwise the send continues, if it owns its memory.
//!
//! A message that has arrived whole can be received even if its sender has left or failed. If the sender failed, its
//! messages are dropped when its next incarnation takes part. A message of which bytes are missing is lost when the
//! incarnation of its sender ends.
//!
//! A send whose bytes the receiver requests is not delivered if the sender's goodbye is sent before the last of these
//! bytes: the receiver ends its receive when the goodbye arrives.
//!
//! A message in the outbox is a send whose caller does not wait for it. It is not cancelled, and its deadline does not
//! end it: the deadline limits how long a leaving rank waits for the receiver. If its peer fails or leaves, the message
//! is lost, and counted as lost. The goodbye to the peer waits for the message. A rank that begins to leave gives up
//! the messages from the outboxes of other ranks that it has not received, with FIN(abandoned), and the messages to
//! itself in its own outbox.
//!
//! A send that waits for the match when its receiver closes the communicator ends as abandoned and not delivered.
//!
//! A sender that exposes its bytes ends the exposure before it returns the buffer to its owner. A receiver that is
//! reading the bytes at that moment detects this, and its message counts as not received.

use samite_fabric::link::{
    Awaited, Cause, Ending, Error, Fate, Link, Operation, OtherTags, Peer, PeerState, Report, RequestId,
    Time, WorldRank,
};
use samite_fabric::wire::WireError;
use samite_matching::{Pattern, PostedId};

use super::{Stream, Tagged, Unexpected};
use crate::choose::cost;
use crate::contexts::FIRST;
use crate::failures::Failure;
use crate::outbox::Copied;
use crate::request::{Buffer, Partner, Request, State};
use crate::store::Bytes;
use crate::wire::{Abort, Fin, Leave, Revoke, Unmatched, Verdict, kind};

impl Tagged {
    /// Ends a request, if it can end before its peer answers: see [`Engine::cancel`](crate::Engine::cancel).
    /// Returns true if the engine must be driven, to inform the peer.
    pub(crate) fn cancel(&mut self, link: &mut Link, id: RequestId) -> bool {
        let Some(request) = self.requests.get(id) else { return false };
        // If the memory is registered and the match is awaited, a provider may be reading it for the receiver's gets,
        // so the send cannot end at once. In the state `Pushing` the receiver has requested packets instead of gets. A
        // send of a copy can always end, because no caller waits for its memory.
        let is_read_by_provider = matches!(request.buffer, Buffer::Registered { .. })
            && request.copied == Copied::No
            && matches!(request.state, State::AwaitingMatch { .. });
        if !request.is_send() || request.result.is_some() || is_read_by_provider {
            return self.withdraw_unmatched(link, id);
        }
        let fate = request.fate();
        self.give_up(link, id, Error::Cancelled { fate });
        true
    }

    /// Ends a request that has not been matched. If the request is a send whose envelope was sent, only the receiver
    /// knows if it was matched. Then this rank asks the receiver, and the function returns true as [`Tagged::cancel`]
    /// does.
    pub(crate) fn withdraw_unmatched(&mut self, link: &mut Link, id: RequestId) -> bool {
        let Some(request) = self.requests.get(id) else { return false };
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        match request.state {
            State::AwaitingRoom { .. } => self.withdraw(link, id, cancelled),
            State::AwaitingMessage(posted) => {
                self.matcher.cancel(posted);
                self.finish(link, id, Err(cancelled));
            }
            State::AwaitingMatch { revoked: false, .. } => {
                self.revoke_send(link, id);
                return true;
            }
            State::Partitioned { half, .. } => {
                self.end_half(link, half, cancelled, true);
                return true;
            }
            State::Composite => drop(self.unwanted.insert(id)),
            _ => {}
        }
        false
    }

    /// Ends a request whose deadline has passed. Does nothing if the request has ended or has another deadline by now.
    pub(super) fn expire(&mut self, link: &mut Link, id: RequestId, deadline: Time) {
        let Some(request) = self.requests.get(id) else { return };
        if request.deadline != deadline || request.result.is_some() {
            return;
        }
        let fate = request.fate();
        let Some(report) = self.report(link, id, link.now()) else { return };
        self.give_up(link, id, Error::TimedOut { fate, report: Box::new(report) });
    }

    /// Returns true if a request is a receive that has not ended.
    pub(super) fn is_receiving(&self, id: RequestId) -> bool {
        self.requests.get(id).is_some_and(|request| {
            let receives = matches!(
                request.state,
                State::AwaitingMessage(_)
                    | State::AwaitingData(_)
                    | State::Pulling(_)
                    | State::Landing(_)
                    | State::Partitioned { sends: false, .. }
            );
            receives && request.result.is_none()
        })
    }

    /// Ends an operation at this side with `error`, in any state, and informs the peer if the peer takes part in it.
    pub(crate) fn give_up(&mut self, link: &mut Link, id: RequestId, error: Error) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let peer = request.rank().and_then(|rank| link.find(rank));
        match &mut request.state {
            State::AwaitingMatch { revoked, .. } => {
                // For the caller the operation ends now. The request and its memory stay until the receiver has
                // answered the revocation, because the receiver has the envelope, and perhaps the key to the memory.
                let revoked = *revoked;
                request.fail(error);
                self.note_end(id);
                if !revoked {
                    self.revoke_send(link, id);
                }
            }
            State::Landing(landing) => {
                let send = landing.send;
                if let Some(peer) = peer.filter(|_| !landing.abandoned) {
                    self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Abandoned));
                }
                self.abandon(link, id, error);
            }
            State::Pulling(_) | State::Putting(_) => self.abandon(link, id, error),
            State::Pushing(push) => {
                let recv = push.recv;
                match (peer, recv) {
                    (Some(peer), Some(recv)) => {
                        self.answer(link, peer, kind::ABORT, &Abort { recv: recv.into() })
                    }
                    (Some(peer), None) => {
                        self.answer(link, peer, kind::REVOKE, &Revoke { send: id.to_wire().into() });
                    }
                    (None, _) => {}
                }
                self.finish(link, id, Err(error));
            }
            State::AwaitingData(inflow) => {
                let send = inflow.send;
                if let Some(peer) = peer {
                    // The stream with this name may belong to another receive: a sender that violates the protocol can
                    // use one name for two messages.
                    if matches!(self.streams.get(&(peer, send)), Some(Stream::Matched(own)) if *own == id) {
                        self.streams.remove(&(peer, send));
                    }
                    self.answer(link, peer, kind::FIN, &Fin::new(send, Verdict::Abandoned));
                }
                self.finish(link, id, Err(error));
            }
            State::AwaitingMessage(posted) => {
                self.matcher.cancel(*posted);
                self.finish(link, id, Err(error));
            }
            State::AwaitingRoom { .. } => self.withdraw(link, id, error),
            State::Partitioned { half, .. } => {
                let half = *half;
                self.end_half(link, half, error, true);
            }
            State::Composite | State::Over => self.finish(link, id, Err(error)),
        }
    }

    /// Ends an operation by gets or puts for its caller. The request and its memory stay until neither side accesses
    /// the memory any more.
    pub(super) fn abandon(&mut self, link: &mut Link, id: RequestId, error: Error) {
        let Some(request) = self.requests.get_mut(id) else { return };
        match &mut request.state {
            State::Pulling(pull) => pull.abandoned = true,
            State::Landing(landing) => landing.abandoned = true,
            State::Putting(put) => put.abandoned = true,
            _ => unreachable!("{id:?} moves no bytes by gets or puts"),
        }
        // The peer may give up the operation too, after this side has, or say so twice. A collected operation has no
        // watcher that waits for its end.
        if request.result.is_none() && !request.collected {
            request.fail(error);
            self.note_end(id);
        }
        self.move_later(link, id);
    }

    /// Ends a send that waits for its turn, and removes it from the queue if that is cheap. So sends that expire while
    /// their peer does not answer do not stay in the queue.
    fn withdraw(&mut self, link: &mut Link, id: RequestId, error: Error) {
        let rank = self.requests.get(id).and_then(Request::rank);
        self.finish(link, id, Err(error));
        let Some(peer) = rank.and_then(|rank| link.find(rank)) else { return };
        let requests = &self.requests;
        let waits = |id: &RequestId| {
            requests.get(*id).is_some_and(|request| matches!(request.state, State::AwaitingRoom { .. }))
        };
        let Some(queues) = self.queues.get_mut(peer.index()) else { return };
        let messages = &mut queues.messages;
        while messages.front().is_some_and(|first| !waits(first)) {
            messages.pop_front();
        }
        while messages.back().is_some_and(|last| !waits(last)) {
            messages.pop_back();
        }
        self.note_queue(link, peer);
    }

    /// Asks the receiver of a send to give up the message if it has not been matched.
    fn revoke_send(&mut self, link: &mut Link, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if let State::AwaitingMatch { revoked, .. } = &mut request.state {
            *revoked = true;
        }
        if let Some(peer) = request.rank().and_then(|rank| link.find(rank)) {
            self.answer(link, peer, kind::REVOKE, &Revoke { send: id.to_wire().into() });
        }
    }

    /// Handles the end of a peer, or later news about it: see [`Ending`]. If the peer has left or failed, ends the
    /// operations that wait for it and drops its state, except messages that have arrived whole.
    pub(super) fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        let rank = link.peer(peer).rank();
        match ending {
            Ending::Left => {
                self.contexts.rank_ended(link, peer);
                self.contexts.closed.rank_ended(rank);
                self.ask_next_members(link);
                self.clear_queues(peer);
                self.drop_envelopes(link, peer);
                self.keep_synchronous(peer);
                self.note_delivered(rank);
                self.fail_requests(link, rank, |_| true, &Cause::Left);
                self.fail_halves(link, peer, |_| true, &Cause::Left);
                self.end_streams(link, peer);
                self.pass_revocations(link, rank, None);
                self.end_in_roll_calls(link, rank);
            }
            Ending::Failed(cause) => {
                let names = self.contexts.rank_ended(link, peer);
                self.contexts.closed.rank_ended(rank);
                self.ask_next_members(link);
                self.clear_queues(peer);
                self.drop_envelopes(link, peer);
                self.keep_synchronous(peer);
                self.fail_requests(link, rank, |_| true, cause);
                self.fail_halves(link, peer, |_| true, cause);
                self.end_streams(link, peer);
                self.failures.add(rank, (*cause).clone(), names);
                self.note_failure();
                self.pass_revocations(link, rank, None);
                self.end_in_roll_calls(link, rank);
            }
            Ending::FailedAfterGoodbye(cause) => {
                // A collective operation that began after the goodbye may go on, but not after a failure.
                self.contexts.ends += 1;
                let names = self.contexts.names_ended(rank);
                self.failures.add(rank, (*cause).clone(), names);
                self.note_failure();
            }
            Ending::Explained(cause) => {
                // An agreement of survivors may wait for this report.
                self.contexts.ends += 1;
                self.failures.amend(rank, cause);
            }
            Ending::Renewed { has_failed } => {
                // In a context of all ranks, a restarted rank counts as failed.
                self.contexts.ends += 1;
                self.settle_messages(link, rank, *has_failed);
            }
            Ending::Unmet => {
                // Nothing was sent to the peer yet. The messages that wait for it in contexts of the job go to the
                // incarnation that takes part. In other contexts that incarnation is not a member.
                let names = self.contexts.rank_ended(link, peer);
                self.fail_requests(link, rank, |context| context >= FIRST, &Cause::Restarted);
                self.fail_halves(link, peer, |context| context >= FIRST, &Cause::Restarted);
                self.failures.add_unmet(rank, names);
                self.note_failure();
                self.pass_revocations(link, rank, None);
            }
        }
    }

    /// Notes that the messages whose bytes are all in the memory of a peer that leaves have been delivered. Their sends
    /// still await the end of their puts. That comes soon, because the path to the peer is cut off.
    fn note_delivered(&mut self, rank: WorldRank) {
        for id in self.requests.select(|request| request.rank() == Some(rank)) {
            if let Some(Request { state: State::Putting(put), .. }) = self.requests.get_mut(id) {
                put.is_delivered = put.is_whole();
            }
        }
    }

    fn clear_queues(&mut self, peer: Peer) {
        let queues = self.queues(peer);
        queues.messages.clear();
        queues.agreements.clear();
        queues.announced.clear();
        queues.pushes.clear();
        queues.inits.clear();
        queues.partitioned.clear();
        queues.unconfirmed = None;
        queues.has_no_room = false;
        queues.unacknowledged.clear();
        self.unconfirmed.retain(|(sender, _)| *sender != peer);
        self.awaiting_leave.retain(|(awaiting, _)| *awaiting != peer);
    }

    /// Drops the envelopes without data of a peer that has ended: their bytes cannot be fetched any more.
    fn drop_envelopes(&mut self, link: &mut Link, peer: Peer) {
        let rank = link.peer(peer).rank();
        let sends: Vec<u64> =
            self.envelopes.keys().filter(|(sender, _)| *sender == peer).map(|(_, send)| *send).collect();
        for send in sends {
            if let Some(&unexpected) = self.envelopes.get(&(peer, send)) {
                self.matcher.remove(unexpected);
                self.forget_envelope(link, rank, send);
            }
        }
    }

    /// Notes that no answer is due for the waiting messages of a peer's synchronous and ready sends. These messages
    /// have arrived whole, so they can be received, but the peer has ended and waits for no answer.
    fn keep_synchronous(&mut self, peer: Peer) {
        let matcher = &mut self.matcher;
        self.synchronous.retain(|(sender, _), unexpected| {
            if *sender == peer
                && let Some(message) = matcher.unexpected_mut(*unexpected)
                && let Unexpected::Whole(whole) = message
            {
                whole.send = None;
            }
            *sender != peer
        });
    }

    /// Keeps or drops the messages of an ended incarnation that wait for their receive, before the next incarnation
    /// takes part. All these messages have arrived whole. Messages of a failed incarnation are dropped, so that no
    /// receive takes them for messages of the next one. Messages of an incarnation that left in good order stay, also
    /// when a later incarnation fails.
    fn settle_messages(&mut self, link: &mut Link, rank: WorldRank, has_failed: bool) {
        let matcher = &self.matcher;
        self.inherited.retain(|id| matcher.unexpected(*id).is_some());
        let mut waiting = Vec::new();
        self.matcher.visit_source(rank.0, |id, _, _| waiting.push(id));
        if !has_failed {
            return self.inherited.extend(waiting);
        }
        for id in waiting {
            if self.inherited.contains(&id) {
                continue;
            }
            match self.matcher.remove(id) {
                Some((_, Unexpected::Eager(data))) => self.drop_whole(link, data),
                Some((_, Unexpected::Whole(whole))) => self.drop_whole(link, whole.data),
                _ => {}
            }
        }
    }

    /// Drops the data of an unexpected message that has arrived whole.
    pub(super) fn drop_whole(&mut self, link: &mut Link, data: Bytes) {
        link.release(cost(data.len()).into());
        self.store.release(data);
    }

    /// Ends the sends whose bytes a peer has requested, or for which it has offered memory, after the goodbye to the
    /// peer was sent. The peer ends its receives of these messages when the goodbye arrives, and ignores later bytes.
    pub(super) fn end_called_for(&mut self, link: &mut Link, peer: Peer) {
        let rank = link.peer(peer).rank();
        let is_called_for = |request: &Request| {
            request.rank() == Some(rank) && matches!(request.state, State::Pushing(_) | State::Putting(_))
        };
        for id in self.requests.select(is_called_for) {
            self.end_after_goodbye(link, id);
        }
    }

    /// Gives up unreceived messages for which the goodbye of this rank or of another rank waits, because this rank
    /// begins to leave and will not receive them. Otherwise two ranks that leave could wait for each other.
    #[cold]
    pub(crate) fn receive_nothing(&mut self, link: &mut Link) {
        self.is_leaving = true;
        let mine = link.identity().rank;
        for id in self.requests.select(|request| request.copied.is_kept() && request.rank() == Some(mine)) {
            self.finish(link, id, Err(Error::Cancelled { fate: Fate::NotDelivered }));
        }
        let mut holding: Vec<_> =
            self.envelopes.iter().map(|(name, unexpected)| (*name, *unexpected)).collect();
        holding.sort_unstable_by_key(|(name, _)| *name);
        for (_, unexpected) in holding {
            if let Some((_, Unexpected::Rts(rendezvous))) = self.matcher.unexpected(unexpected)
                && rendezvous.unmatched == Unmatched::Confirm
            {
                self.drop_unmatched(link, unexpected, Verdict::Abandoned);
            }
        }
    }

    /// Ends a send because the goodbye to its peer was sent before all of its bytes.
    pub(super) fn end_after_goodbye(&mut self, link: &mut Link, id: RequestId) {
        let abandoned = Error::Abandoned { rank: link.identity().rank, fate: Fate::NotDelivered };
        match self.requests.get(id).map(|request| &request.state) {
            Some(State::Putting(_)) => self.abandon(link, id, abandoned),
            _ => self.finish(link, id, Err(abandoned)),
        }
    }

    /// Returns the next failure that a receive from any source must report, and notes that it is reported. Returns
    /// `None` if the receive does not wait any more, or if there is no such failure.
    pub(crate) fn tell_failure(&mut self, id: RequestId) -> Option<Failure> {
        let request = self.requests.get_mut(id)?;
        let Partner::Any { told } = &mut request.partner else { return None };
        let context = request.context;
        let (number, failure) = self.failures.tell(context, *told, &self.contexts)?;
        *told = number + 1;
        Some(failure)
    }

    /// Notes that receives from any source in a context need not report the failures that are known now.
    #[cold]
    pub(crate) fn acknowledge(&mut self, context: u32) {
        let known = self.failures.acknowledge(context);
        let waits =
            |request: &Request| request.context == context && matches!(request.partner, Partner::Any { .. });
        for id in self.requests.select(waits) {
            if let Some(Request { partner: Partner::Any { told }, .. }) = self.requests.get_mut(id) {
                *told = known;
            }
        }
    }

    /// Returns true if a receive from any source has reported all failures, and no message can come for it.
    pub(crate) fn is_in_vain(&self, link: &Link, request: &Request) -> bool {
        matches!(request.state, State::AwaitingMessage(_))
            && matches!(request.partner, Partner::Any { told } if !self.has_failure(request.context, told))
            && self.is_deserted(link, request.context)
    }

    /// Leaves the contexts of a communicator: informs their other members, and closes them.
    #[cold]
    pub(crate) fn leave_contexts(&mut self, link: &mut Link, context: u32) {
        let Some(name) = self.contexts.name(context) else { return };
        let Some(members) = self.contexts.members(context).cloned() else { return };
        let mine = link.identity().rank;
        for rank in members.iter().filter(|rank| *rank != mine) {
            // Only members that take part are informed.
            if let Ok(peer) = link.live_peer(rank) {
                self.answer(link, peer, kind::LEAVE, &Leave { name: name.into() });
                link.seek(peer);
            }
        }
        self.close_contexts(link, context);
    }

    /// Notes that a peer has left the contexts of a communicator.
    #[cold]
    pub(super) fn leave(&mut self, link: &mut Link, peer: Peer, leave: &Leave) -> Result<(), WireError> {
        let rank = link.peer(peer).rank();
        let Some(first) = self.contexts.member_left(link, leave.name.get(), peer)? else { return Ok(()) };
        for context in [first, first + 1] {
            self.fail_requests(link, rank, |of| of == context, &Cause::LeftContext);
            self.fail_halves(link, peer, |of| of == context, &Cause::LeftContext);
            self.failures.add_in(context, rank, Cause::LeftContext);
        }
        self.note_failure();
        self.pass_revocations(link, rank, Some(first));
        Ok(())
    }

    /// Ends all requests that involve a rank, in the contexts for which `is_in` returns true.
    #[cold]
    fn fail_requests(
        &mut self,
        link: &mut Link,
        rank: WorldRank,
        is_in: impl Fn(u32) -> bool,
        cause: &Cause,
    ) {
        let mine = self.requests.select(|request| {
            request.rank() == Some(rank)
                && is_in(request.context)
                && !matches!(request.state, State::Partitioned { .. } | State::Composite)
                && !matches!(&request.state, State::Landing(landing) if landing.is_whole())
                && !matches!(&request.state, State::Putting(put) if put.is_delivered)
                && (request.result.is_none() || !matches!(request.state, State::Over))
        });
        let peer = link.find(rank);
        for id in mine {
            let Some(request) = self.requests.get_mut(id) else { continue };
            let peer = peer.map(|peer| link.peer(peer));
            let mask =
                request.posted().and_then(|posted| self.matcher.posted(posted)).map(|(asked, _)| asked.mask);
            let report = request.report(link.now(), peer, mask.unwrap_or(!0));
            let report = Some(Box::new(report));
            let fate = request.fate();
            match &mut request.state {
                State::AwaitingMessage(posted) => {
                    self.matcher.cancel(*posted);
                }
                State::Pulling(pull) => {
                    // A get may still write to the memory. The port keeps it until that is impossible.
                    pull.target.take().into_iter().for_each(|target| target.retire(link));
                }
                // The port keeps the memory until no put can reach it any more.
                State::Landing(landing) => {
                    landing.target.take().into_iter().for_each(|target| target.retire(link));
                }
                State::Putting(put) => put.slabs.drain(..).for_each(|slab| link.retire_slab(slab)),
                _ => {}
            }
            self.finish(link, id, Err(Error::PeerFailed { rank, cause: cause.clone(), fate, report }));
        }
    }
}

impl Tagged {
    /// Describes a request and the event that it awaits. Only for reports, because it may be slow.
    pub(crate) fn report(&mut self, link: &mut Link, id: RequestId, now: Time) -> Option<Report> {
        let request = self.requests.get(id)?;
        let peer = request.rank().and_then(|rank| link.find(rank)).map(|peer| link.peer(peer));
        let posted = request.posted().and_then(|posted| self.matcher.posted(posted));
        Some(match posted {
            Some((pattern, _)) => {
                Report { other_tags: self.other_tags(&pattern), ..request.report(now, peer, pattern.mask) }
            }
            None => {
                let report = request.report(now, peer, !0);
                match request.state {
                    State::Partitioned { half, .. } => {
                        let (bytes, awaited) = self.partitioned.awaited(half);
                        Report { bytes, awaited, ..report }
                    }
                    _ => report,
                }
            }
        })
    }

    pub(crate) fn other_tags(&self, pattern: &Pattern) -> Option<OtherTags> {
        if self.matcher.unexpected_len() > COUNTED_MAX {
            return None;
        }
        let mut found = None;
        self.matcher.visit_unexpected(pattern.context, |envelope| {
            let has_source = pattern.source.as_rank().is_none_or(|rank| rank == envelope.source);
            if has_source && (envelope.tag ^ pattern.tag) & pattern.mask != 0 {
                found.get_or_insert(OtherTags { messages: 0, first: envelope.tag }).messages += 1;
            }
        });
        found
    }
}

/// The largest number of waiting unexpected messages with which a report counts those that have other tags. If more
/// wait, it counts none. The limit bounds the cost of a report to some 10 µs, because many receives of a program may
/// time out one after the other.
const COUNTED_MAX: usize = 1024;

impl Request {
    /// Returns the fate of the request's message if the request ends now.
    fn fate(&self) -> Fate {
        match &self.state {
            State::AwaitingMatch { .. } => Fate::Unknown,
            // A stream: its envelope may have matched a receive with a buffer that was too short, which consumes the
            // message.
            State::Pushing(push) if push.recv.is_none() => Fate::Unknown,
            // The receiver has perhaps all bytes, and only the end of the last put is awaited.
            State::Putting(put) if put.is_whole() => Fate::Unknown,
            _ => Fate::NotDelivered,
        }
    }

    /// Returns the name of the request among the posted receives, if it is a receive that waits for a message.
    const fn posted(&self) -> Option<PostedId> {
        match self.state {
            State::AwaitingMessage(posted) => Some(posted),
            _ => None,
        }
    }

    /// Describes the operation and the event that it awaits. `peer` is the operation's peer, if known.
    fn report(&self, now: Time, peer: Option<&PeerState>, mask: u64) -> Report {
        let (operation, awaited) = match &self.state {
            State::AwaitingRoom { .. } if peer.is_none_or(|peer| peer.path().is_none()) => {
                (Operation::Send, Awaited::Address)
            }
            State::AwaitingRoom { .. } => (Operation::Send, Awaited::Room),
            State::AwaitingMatch { exposure: Some(_), .. } => (Operation::Send, Awaited::Fin),
            State::AwaitingMatch { .. } if matches!(self.buffer, Buffer::Registered { .. }) => {
                (Operation::Send, Awaited::Fin)
            }
            State::AwaitingMatch { .. } => (Operation::Send, Awaited::Match),
            State::Pushing(push) if push.recv.is_none() => (Operation::Send, Awaited::Room),
            State::Pushing(_) | State::Putting(_) => (Operation::Send, Awaited::Bytes),
            // These two events are only placeholders: the caller replaces them by the result of `Partitioned::awaited`.
            State::Partitioned { sends: true, .. } => (Operation::Send, Awaited::Match),
            State::Partitioned { sends: false, .. } => (Operation::Receive, Awaited::Bytes),
            // No composite operation is described: its messages are.
            State::AwaitingMessage(_) | State::Composite | State::Over => {
                (Operation::Receive, Awaited::Message)
            }
            State::Pulling(_) | State::Landing(_) | State::AwaitingData(_) => {
                (Operation::Receive, Awaited::Bytes)
            }
        };
        let bytes = match &self.state {
            // The memory of the receive is with the transfer, which knows the length of the message.
            State::Landing(landing) if matches!(self.buffer, Buffer::Gone) => landing.status.bytes,
            State::Pulling(pull) if matches!(self.buffer, Buffer::Gone) => pull.status.bytes,
            _ => self.buffer.len(),
        };
        Report {
            operation,
            peer: self.rank(),
            tag: self.tag,
            mask,
            other_tags: None,
            bytes,
            age_ns: now.since(self.born),
            awaited,
            is_stopped: peer.is_some_and(PeerState::is_stopped),
            members: None,
        }
    }
}
