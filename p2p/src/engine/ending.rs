//! How operations end that do not succeed: deadlines, cancels, the failure of peers; and how the engine
//! itself ends in good order.
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
//!  AwaitingMessage   timed out, not delivered              cancelled, not delivered     not delivered
//!  Pulling           timed out, not delivered; FIN(aban-   too late: goes on            not delivered
//!                    doned) after the gets outstanding
//!  AwaitingData      timed out, not delivered;             too late: goes on            not delivered
//!                    FIN(abandoned)
//! ```
//!
//! A send whose request is dropped without a wait is not cancelled but withdrawn: REVOKE ends it where it is unmatched, and
//! else it goes on, if it owns its memory.
//!
//! A message that has arrived whole can be received though its sender has left or failed. If the sender failed, its
//! messages are dropped when its next incarnation takes part. A message of which bytes are missing ends with its
//! sender's incarnation.
//!
//! A send whose bytes the receiver calls for is not delivered if the goodbye is sent before the last of them: the
//! receiver ends the receive at the goodbye.
//!
//! A sender that lets its bytes be read ends that before it gives them back. Who reads them meanwhile finds out, and has
//! received nothing.

use samite_fabric::Port;
use samite_matching::{Pattern, PostedId};

use super::inbound::is_later;
use super::{Core, Engine, Stream, Unexpected};
use crate::RequestId;
use crate::choose::cost;
use crate::error::{Awaited, Cause, Error, Fate, Operation, OtherTags, Report};
use crate::peer::{Outgoing, Packet, Peer, Standing};
use crate::request::{Buffer, Partner, Request, State};
use crate::trace::event;
use crate::wire::{Abort, Fin, Revoke, Verdict, kind};

impl<P: Port> Engine<P> {
    /// Ends a request, if it can end before its peer answers. A send ends at once, whatever its peer does, unless a
    /// provider may still read its memory: then the receiver is asked to give the message back, and the completion tells
    /// whether it did. A receive that was matched goes on.
    pub fn cancel(&mut self, id: RequestId) {
        let Some(request) = self.core.requests.get(id) else { return };
        // A receiver that calls for the bytes of registered memory does not get them. A copy is kept for as long as it takes.
        let is_read_by_provider = matches!(request.buffer, Buffer::Registered { .. })
            && !request.is_copy
            && matches!(request.state, State::AwaitingMatch { .. });
        if !request.is_send() || request.result.is_some() || is_read_by_provider {
            return self.withdraw_unmatched(id);
        }
        let fate = request.fate();
        self.core.give_up(id, Error::Cancelled { fate });
        self.drive(&mut ());
    }

    /// Ends a request that has not been matched. The receiver of a message whose envelope is out is asked whether it has.
    pub(super) fn withdraw_unmatched(&mut self, id: RequestId) {
        let core = &mut self.core;
        let Some(request) = core.requests.get(id) else { return };
        let cancelled = Error::Cancelled { fate: Fate::NotDelivered };
        match request.state {
            State::AwaitingRoom { .. } => core.withdraw(id, cancelled),
            State::AwaitingMessage(posted) => {
                core.matcher.cancel(posted);
                core.finish(id, Err(cancelled));
            }
            State::AwaitingMatch { revoked: false, .. } => {
                core.revoke_send(id);
                self.drive(&mut ());
            }
            _ => {}
        }
    }

    /// Moves the deadline of a request; `u64::MAX` takes it away.
    pub fn set_deadline(&mut self, id: RequestId, deadline_ns: u64) {
        if let Some(request) = self.core.requests.get_mut(id) {
            // The timer of the one before will find that it is not the request's.
            request.deadline_ns = deadline_ns;
        }
        self.core.set_deadline(id, deadline_ns);
    }

    /// Announces that the launcher tells how each rank ends, by [`Engine::peer_failed`] or [`Engine::peer_left`]. A
    /// goodbye is not final then: the process may still fail, and a failure after the goodbye counts as any other.
    pub fn expect_word(&mut self) {
        self.core.expects_word = true;
    }

    /// Returns since when, in nanoseconds, a rank takes no part whose end the launcher has not told yet: the cause that
    /// is known so far is the goodbye or the lost connection, and how its process ended may say more.
    pub fn unexplained_since(&mut self, rank: u32) -> Option<u64> {
        let core = &mut self.core;
        let index = core.peers.find(rank)?;
        let peer = &core.peers[index];
        // A lost connection is worth a moment where the launcher may be silent, too.
        let may_come = core.expects_word || peer.standing == Standing::Failed(Cause::Lost);
        (may_come && peer.awaits_word()).then_some(peer.ended_ns)
    }

    /// Returns why a rank takes no part, or why its latest incarnation failed that took part before.
    pub fn latest_failure(&mut self, rank: u32) -> Option<Cause> {
        self.failure(rank).or_else(|| self.core.failures.latest(rank).cloned())
    }

    /// Whoever watches over the ranks says that one is dead. Final for the life it had, which is the known
    /// one if `incarnation` is not told; nothing for a later one. A rank that has said goodbye may still fail if the
    /// launcher tells of ends ([`Engine::expect_word`]). The messages that have arrived whole can be received until the
    /// next incarnation takes part.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_failed(&mut self, rank: u32, incarnation: Option<u32>, cause: Cause) -> Result<(), Error> {
        if let Some(index) = self.core.whose_end(rank, incarnation)? {
            self.core.bury(index, cause);
            self.core.peers[index].is_told = true;
            self.drive(&mut ());
        }
        Ok(())
    }

    /// The launcher says whether it starts a rank again that has failed. While it does, a receive from any source waits
    /// for that rank. Ignored if another incarnation is known by now.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_returns(&mut self, rank: u32, incarnation: u32, returns: bool) -> Result<(), Error> {
        let core = &mut self.core;
        core.check_rank(rank)?;
        if let Some(index) = core.peers.find(rank)
            && core.peers[index].incarnation == Some(incarnation)
        {
            core.peers[index].returns = returns;
        }
        Ok(())
    }

    /// Whoever watches over the ranks says that one has ended in good order. Poll before until nothing comes:
    /// one that closes its engine has said goodbye, and waited until that was heard; of one that ended
    /// without, what has not come by now is lost. As to its life see [`Engine::peer_failed`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_left(&mut self, rank: u32, incarnation: Option<u32>) -> Result<(), Error> {
        if let Some(index) = self.core.whose_end(rank, incarnation)? {
            event!(DEBUG, peer = rank, "peer left");
            self.core.farewell(index);
            let peer = &mut self.core.peers[index];
            peer.is_told = true;
            if peer.standing == Standing::Failed(Cause::Lost) {
                peer.standing = Standing::Failed(Cause::Left);
                self.core.failures.amend(rank, &Cause::Left);
            }
            self.core.depart(index);
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Whoever watches over the ranks says that one is stopped, or goes on: operations that time out tell. It is no
    /// failure. Nothing if it is not the known life that is meant.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_stopped(&mut self, rank: u32, incarnation: u32, is_stopped: bool) -> Result<(), Error> {
        let core = &mut self.core;
        core.check_rank(rank)?;
        let index = match core.peers.find(rank) {
            Some(index) => index,
            None if is_stopped => core.peers.meet(rank),
            None => return Ok(()),
        };
        let peer = &mut core.peers[index];
        if peer.incarnation.is_none_or(|known| known == incarnation) {
            peer.is_stopped = is_stopped;
        }
        Ok(())
    }

    /// Says goodbye to all peers. Poll until [`Engine::closed`]; nothing can be sent any more.
    pub fn close(&mut self, now_ns: u64) {
        let core = &mut self.core;
        core.now_ns = now_ns;
        for index in 0..core.peers.len() as u32 {
            let peer = &core.peers[index];
            if peer.standing == Standing::Alive && (peer.path.is_some() || !peer.is_idle()) {
                core.peers[index].messages.push_back(Outgoing::Goodbye);
                core.list(index);
            }
        }
        self.drive(&mut ());
    }

    /// Whether every peer that takes part has taken all that was sent to it.
    pub fn closed(&self) -> bool {
        self.not_closed().is_none()
    }

    /// Returns a rank that takes part, and has not taken all that was sent to it.
    pub fn not_closed(&self) -> Option<u32> {
        let is_closed = |peer: &Peer| match peer.standing {
            Standing::Alive => {
                let acked = |bye: u32| (peer.acked.wrapping_sub(bye) as i32) > 0;
                peer.is_idle() && peer.bye.is_none_or(acked)
            }
            Standing::Left => peer.is_idle(),
            Standing::Failed(_) => true,
        };
        self.core.peers.iter().find(|(_, peer)| !is_closed(peer)).map(|(_, peer)| peer.rank)
    }
}

impl Core {
    /// Ends a request, if this is its deadline: it may be over, or have another by now.
    pub(super) fn expire(&mut self, id: RequestId, deadline_ns: u64) {
        let Some(request) = self.requests.get(id) else { return };
        if request.deadline_ns != deadline_ns || request.result.is_some() {
            return;
        }
        let fate = request.fate();
        let Some(report) = self.report(id, self.now_ns) else { return };
        self.give_up(id, Error::TimedOut { fate, report: Box::new(report) });
    }

    /// Returns whether a request is a receive that has not ended.
    pub(super) fn is_receiving(&self, id: RequestId) -> bool {
        self.requests.get(id).is_some_and(|request| {
            let receives = matches!(
                request.state,
                State::AwaitingMessage(_) | State::AwaitingData(_) | State::Pulling(_)
            );
            receives && request.result.is_none()
        })
    }

    /// Ends an operation here with `error`, whatever it awaits, and lets the peer know where it takes part.
    pub(super) fn give_up(&mut self, id: RequestId, error: Error) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let index = request.rank().and_then(|rank| self.peers.find(rank));
        match &mut request.state {
            State::AwaitingMatch { revoked, .. } => {
                // Not over: the receiver has the envelope, and perhaps the key to the memory.
                let revoked = *revoked;
                request.fail(error);
                if !revoked {
                    self.revoke_send(id);
                }
            }
            State::Pulling(pull) => {
                pull.abandoned = true;
                request.fail(error);
                self.movers.push_back(id);
            }
            State::Pushing(push) => {
                let recv = push.recv;
                match (index, recv) {
                    (Some(index), Some(recv)) => {
                        self.answer(index, kind::ABORT, &Abort { recv: recv.into() })
                    }
                    (Some(index), None) => {
                        self.answer(index, kind::REVOKE, &Revoke { send: id.to_wire().into() });
                    }
                    (None, _) => {}
                }
                self.finish(id, Err(error));
            }
            State::AwaitingData(inflow) => {
                let send = inflow.send;
                if let Some(index) = index {
                    // One that is called for may have the name of a stream, if its sender is not honest.
                    if matches!(self.streams.get(&(index, send)), Some(Stream::Matched(own)) if *own == id) {
                        self.streams.remove(&(index, send));
                    }
                    self.answer(index, kind::FIN, &Fin::new(send, Verdict::Abandoned));
                }
                self.finish(id, Err(error));
            }
            State::AwaitingMessage(posted) => {
                self.matcher.cancel(*posted);
                self.finish(id, Err(error));
            }
            State::AwaitingRoom { .. } => self.withdraw(id, error),
            State::Over => self.finish(id, Err(error)),
        }
    }

    /// Ends a send that waits for its turn, and takes it out of the queue where that costs nothing: of those that end in
    /// vain while their peer does not answer, no trace is left.
    fn withdraw(&mut self, id: RequestId, error: Error) {
        let peer = self.requests.get(id).and_then(Request::rank);
        self.finish(id, Err(error));
        let Some(index) = peer.and_then(|rank| self.peers.find(rank)) else { return };
        let requests = &self.requests;
        let waits = |outgoing: &Outgoing| match outgoing {
            Outgoing::Message(id) => {
                requests.get(*id).is_some_and(|request| matches!(request.state, State::AwaitingRoom { .. }))
            }
            Outgoing::Goodbye => true,
        };
        let messages = &mut self.peers[index].messages;
        while messages.front().is_some_and(|first| !waits(first)) {
            messages.pop_front();
        }
        while messages.back().is_some_and(|last| !waits(last)) {
            messages.pop_back();
        }
    }

    /// Asks the receiver to give an envelope back.
    fn revoke_send(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if let State::AwaitingMatch { revoked, .. } = &mut request.state {
            *revoked = true;
        }
        if let Some(index) = request.rank().and_then(|rank| self.peers.find(rank)) {
            self.answer(index, kind::REVOKE, &Revoke { send: id.to_wire().into() });
        }
    }

    /// The peer that is meant by news of the end of a rank's life; none if that is long over.
    fn whose_end(&mut self, rank: u32, incarnation: Option<u32>) -> Result<Option<u32>, Error> {
        self.check_rank(rank)?;
        let index = self.peers.find(rank).unwrap_or_else(|| self.peers.meet(rank));
        match (incarnation, self.peers[index].incarnation) {
            (Some(ended), Some(known)) if is_later(known, ended) => return Ok(None),
            (Some(ended), Some(known)) if is_later(ended, known) => {
                self.bury(index, Cause::Restarted);
                self.renew(index);
                self.peers[index].incarnation = incarnation;
            }
            (Some(_), None) => self.peers[index].incarnation = incarnation,
            _ => {}
        }
        Ok(Some(index))
    }

    /// Ends everything that waits for a failed peer. Its messages that have arrived whole can be received until its
    /// next incarnation takes part. A peer that has said goodbye fails only if the launcher says so, or has started it
    /// again.
    pub(super) fn bury(&mut self, index: u32, cause: Cause) {
        let expects_word = self.expects_word;
        let Peer { standing, rank, is_told, .. } = &mut self.peers[index];
        match (&*standing, &cause) {
            (Standing::Alive, _) => {}
            // The launcher knows more than the port, which only noticed that the peer was gone.
            (Standing::Failed(Cause::Lost), Cause::Died(_)) => {
                self.failures.amend(*rank, &cause);
                *standing = Standing::Failed(cause);
                return self.depart(index);
            }
            (Standing::Left, Cause::Died(_)) if expects_word => return self.fail_after_goodbye(index, cause),
            // The launcher starts ranks again that failed, and its word of that is on its way.
            (Standing::Left, Cause::Restarted) if expects_word && !*is_told => {
                return self.fail_after_goodbye(index, cause);
            }
            _ => return self.depart(index),
        }
        self.counters.failed_peers += 1;
        event!(WARN, peer = self.peers[index].rank, ?cause, "peer failed");
        self.end_peer(index, Standing::Failed(cause.clone()));
        self.depart(index);
        let rank = self.peers[index].rank;
        self.drop_envelopes(index);
        self.fail_requests(rank, &cause);
        self.end_streams(index);
        self.failures.add(rank, cause);
    }

    /// A peer failed after its goodbye. What waits for it has ended by the goodbye, and what it sent stays: all of it had
    /// arrived.
    #[cold]
    fn fail_after_goodbye(&mut self, index: u32, cause: Cause) {
        let peer = &mut self.peers[index];
        event!(WARN, peer = peer.rank, ?cause, "peer failed after its goodbye");
        self.counters.failed_peers += 1;
        peer.standing = Standing::Failed(cause.clone());
        self.failures.add(peer.rank, cause);
        self.depart(index);
    }

    /// Drops the envelopes of a peer that wait for their receive: their bytes are gone with their sender.
    fn drop_envelopes(&mut self, index: u32) {
        let rank = self.peers[index].rank;
        let sends: Vec<u64> =
            self.envelopes.keys().filter(|(sender, _)| *sender == index).map(|(_, send)| *send).collect();
        for send in sends {
            if let Some(&unexpected) = self.envelopes.get(&(index, send)) {
                self.matcher.remove(unexpected);
                self.forget_envelope(rank, send);
            }
        }
    }

    /// Decides about the messages of an ended incarnation that wait for their receive, before the next one takes part.
    /// All of them have arrived whole. Those of a failed incarnation are dropped, so that no receive takes them for the
    /// next one's. Those of an incarnation that left in good order stay, also when a later incarnation fails.
    fn settle_messages(&mut self, rank: u32, has_failed: bool) {
        let matcher = &self.matcher;
        self.inherited.retain(|id| matcher.unexpected(*id).is_some());
        let mut waiting = Vec::new();
        self.matcher.visit_source(rank, |id, _, _| waiting.push(id));
        if !has_failed {
            return self.inherited.extend(waiting);
        }
        for id in waiting {
            if !self.inherited.contains(&id)
                && let Some((_, Unexpected::Eager(data))) = self.matcher.remove(id)
            {
                self.unexpected_cost -= u64::from(cost(data.len()));
                self.store.release(data);
            }
        }
    }

    /// A peer says goodbye: what it sent stays, what waits for it ends.
    pub(super) fn farewell(&mut self, index: u32) {
        if self.peers[index].standing != Standing::Alive {
            return;
        }
        self.end_peer(index, Standing::Left);
        let rank = self.peers[index].rank;
        self.drop_envelopes(index);
        self.fail_requests(rank, &Cause::Left);
        self.end_streams(index);
    }

    /// Ends the sends whose bytes a peer calls for, once the goodbye to it is sent. The peer ends its receives at the
    /// goodbye, and ignores bytes that come after it.
    pub(super) fn end_called_for(&mut self, index: u32) {
        let rank = self.peers[index].rank;
        let is_called_for =
            |request: &Request| request.rank() == Some(rank) && matches!(request.state, State::Pushing(_));
        for id in self.requests.select(is_called_for) {
            self.end_after_goodbye(id);
        }
    }

    /// Ends a send whose peer has been sent the goodbye before all of the bytes.
    pub(super) fn end_after_goodbye(&mut self, id: RequestId) {
        let abandoned = Error::Abandoned { rank: self.identity.rank, fate: Fate::NotDelivered };
        self.finish(id, Err(abandoned));
    }

    /// Tells the next failure to a receive from any source, if it waits and there is one.
    pub(super) fn tell_failure(&mut self, id: RequestId) -> Option<(u32, Cause)> {
        let request = self.requests.get_mut(id)?;
        let Partner::Any { told } = &mut request.partner else { return None };
        let next = self.failures.tell(request.context, *told)?;
        *told += 1;
        Some(next)
    }

    fn end_peer(&mut self, index: u32, standing: Standing) {
        let peer = &mut self.peers[index];
        self.credit_out -= u64::from(peer.unused());
        peer.given = peer.charged;
        if peer.standing == Standing::Alive && peer.rank != self.identity.rank {
            self.ended += 1;
        }
        peer.standing = standing;
        peer.ended_ns = self.now_ns;
        // The answer to a goodbye makes no sense without the hello before it.
        peer.packets.retain(Packet::is_hello);
        peer.messages.clear();
        peer.pushes.clear();
    }

    /// Nobody is there any more whose goodbye could be answered, or to get bytes from.
    fn depart(&mut self, index: u32) {
        let peer = &mut self.peers[index];
        peer.packets.clear();
        peer.messages.clear();
        peer.pushes.clear();
        self.severed.extend(peer.path.take().map(|(path, _)| path));
    }

    /// A peer that has ended begins another life.
    pub(super) fn renew(&mut self, index: u32) {
        let peer = &self.peers[index];
        let (rank, standing) = (peer.rank, &peer.standing);
        let has_failed = matches!(standing, Standing::Failed(_));
        if *standing != Standing::Alive && rank != self.identity.rank {
            self.ended -= 1;
        }
        self.settle_messages(rank, has_failed);
        self.peers.renew(index);
    }

    /// Returns true if no message can come but those that this rank may yet send to itself: every other rank has left or
    /// failed for good, and no message of this rank to itself is on its way.
    #[inline(always)]
    pub(super) fn is_deserted(&self) -> bool {
        let others = self.identity.size - 1;
        others > 0 && self.ended == others && self.is_alone()
    }

    /// What [`Core::is_deserted`] asks once no other rank takes part.
    #[cold]
    fn is_alone(&self) -> bool {
        self.peers.iter().all(|(_, peer)| {
            if peer.rank == self.identity.rank {
                // Both numbers count the packets of this engine to itself.
                return !peer.is_alive() || peer.is_idle() && peer.sequence == peer.expected;
            }
            let is_final = match peer.standing {
                _ if peer.is_told || !self.expects_word => true,
                Standing::Left => false,
                // The process may be alive, and then the launcher says nothing.
                Standing::Failed(Cause::Lost) => self.now_ns >= peer.ended_ns + LOST_FOR_GOOD_NS,
                _ => true,
            };
            is_final && !peer.returns
        })
    }

    /// Returns true if a receive from any source has been told of all failures, and nothing can come for it.
    pub(super) fn is_in_vain(&self, request: &Request) -> bool {
        matches!(request.partner, Partner::Any { told } if !self.failures.more_than(told))
            && matches!(request.state, State::AwaitingMessage(_))
            && self.is_deserted()
    }

    /// Ends the requests that have to do with a rank.
    fn fail_requests(&mut self, rank: u32, cause: &Cause) {
        let mine = self.requests.select(|request| {
            request.rank() == Some(rank)
                && (request.result.is_none() || !matches!(request.state, State::Over))
        });
        let index = self.peers.find(rank);
        for id in mine {
            let Some(request) = self.requests.get_mut(id) else { continue };
            let peer = index.map(|index| &self.peers[index]);
            let mask =
                request.posted().and_then(|posted| self.matcher.posted(posted)).map(|(asked, _)| asked.mask);
            let report = request.report(self.now_ns, peer, mask.unwrap_or(!0));
            let report = Some(Box::new(report));
            let fate = request.fate();
            match &mut request.state {
                State::AwaitingMessage(posted) => {
                    self.matcher.cancel(*posted);
                }
                State::Pulling(pull) => {
                    // The port keeps the region until nothing can write to it any more.
                    self.retired.extend(pull.landing.take());
                }
                _ => {}
            }
            self.finish(id, Err(Error::PeerFailed { rank, cause: cause.clone(), fate, report }));
        }
    }

    /// The port has no room for another peer. That is no failure of the peer: operations that need the path end, and the next
    /// send looks for one again.
    pub(super) fn exhausted(&mut self, index: u32, what: &'static str, hint: &str) {
        let rank = self.peers[index].rank;
        event!(WARN, peer = rank, what, hint, "no room for a peer");
        let waiting =
            self.requests.select(|request| request.rank() == Some(rank) && request.result.is_none());
        for id in waiting {
            self.give_up(id, Error::Exhausted { what, hint: hint.to_owned().into() });
        }
        let peer = &mut self.peers[index];
        (peer.path, peer.sought) = (None, false);
        peer.packets.clear();
        peer.messages.clear();
    }

    /// Whether an incarnation of a peer is the one known and did not fail, or news; if it is news, the known
    /// one is ended first.
    pub(super) fn expects(&mut self, index: u32, incarnation: u32) -> bool {
        match self.peers[index].incarnation {
            // Who has said goodbye right after its hello still waits for an answer.
            Some(known) if known == incarnation => !matches!(self.peers[index].standing, Standing::Failed(_)),
            Some(known) if is_later(known, incarnation) => false,
            Some(_) => {
                self.bury(index, Cause::Restarted);
                self.renew(index);
                true
            }
            None => {
                if self.peers[index].standing != Standing::Alive {
                    self.renew(index);
                }
                true
            }
        }
    }
}

impl<P: Port> Engine<P> {
    /// What the operation waits for that was begun first, of those that have not ended.
    pub fn oldest(&mut self, now_ns: u64) -> Option<Report> {
        let requests = self.core.requests.iter();
        let pending = requests.filter(|(_, request)| request.result.is_none());
        let (oldest, _) = pending.min_by_key(|(_, request)| request.born_ns)?;
        self.core.report(oldest, now_ns)
    }

    /// Returns which messages wait here that the pattern would match if their tags were others.
    pub fn other_tags(&self, pattern: &Pattern) -> Option<OtherTags> {
        self.core.other_tags(pattern)
    }
}

impl Core {
    /// Describes a request and what it waits for. Call it only if the request is told of: it may be slow.
    fn report(&mut self, id: RequestId, now_ns: u64) -> Option<Report> {
        let request = self.requests.get(id)?;
        let peer = request.rank().and_then(|rank| self.peers.find(rank)).map(|index| &self.peers[index]);
        let posted = request.posted().and_then(|posted| self.matcher.posted(posted));
        Some(match posted {
            Some((pattern, _)) => {
                Report { other_tags: self.other_tags(&pattern), ..request.report(now_ns, peer, pattern.mask) }
            }
            None => request.report(now_ns, peer, !0),
        })
    }

    fn other_tags(&self, pattern: &Pattern) -> Option<OtherTags> {
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

/// After so long a rank that the port lost, and of which the launcher says nothing, is not being started again. The
/// launcher tells of the end of a process within milliseconds.
const LOST_FOR_GOOD_NS: u64 = 1_000_000_000;

/// How many messages that wait for their receive are gone through for a report. A program may have many receives
/// time out in a row, so the limit bounds what each costs to some 10 us.
const COUNTED_MAX: usize = 1024;

impl Request {
    /// What can be said of its message if it ends now.
    fn fate(&self) -> Fate {
        match &self.state {
            State::AwaitingMatch { .. } => Fate::Unknown,
            // The envelope may have met a receive that is too short, and has ended by it.
            State::Pushing(push) if push.recv.is_none() => Fate::Unknown,
            _ => Fate::NotDelivered,
        }
    }

    /// Returns its place among the posted receives, if it has one.
    const fn posted(&self) -> Option<PostedId> {
        match self.state {
            State::AwaitingMessage(posted) => Some(posted),
            _ => None,
        }
    }

    /// What it is, and what it waits for; `peer` is its peer, as far as that is known.
    fn report(&self, now_ns: u64, peer: Option<&Peer>, mask: u64) -> Report {
        let (operation, awaited) = match &self.state {
            State::AwaitingRoom { .. } if peer.is_none_or(|peer| peer.path.is_none()) => {
                (Operation::Send, Awaited::Address)
            }
            State::AwaitingRoom { .. } => (Operation::Send, Awaited::Room),
            State::AwaitingMatch { exposure: Some(_), .. } => (Operation::Send, Awaited::Fin),
            State::AwaitingMatch { .. } if matches!(self.buffer, Buffer::Registered { .. }) => {
                (Operation::Send, Awaited::Fin)
            }
            State::AwaitingMatch { .. } => (Operation::Send, Awaited::Match),
            State::Pushing(push) if push.recv.is_none() => (Operation::Send, Awaited::Room),
            State::Pushing(_) => (Operation::Send, Awaited::Bytes),
            State::AwaitingMessage(_) | State::Over => (Operation::Receive, Awaited::Message),
            State::Pulling(_) | State::AwaitingData(_) => (Operation::Receive, Awaited::Bytes),
        };
        Report {
            operation,
            peer: self.rank(),
            tag: self.tag,
            mask,
            other_tags: None,
            bytes: self.buffer.len(),
            age_ns: now_ns.saturating_sub(self.born_ns),
            awaited,
            is_stopped: peer.is_some_and(|peer| peer.is_stopped),
        }
    }
}
