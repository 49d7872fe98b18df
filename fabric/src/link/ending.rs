//! The end of peers, by failure or in good order, and this side's goodbye.

use super::numbers::{Incarnation, Sequence};
use super::peer::{Packet, PeerState, Standing};
use super::{Cause, Ending, Engine, Error, GivenUp, Link, Peer, Stack, Time, WorldRank};
use crate::Port;

impl<P: Port, S: Stack> Engine<P, S> {
    /// Announces that the launcher reports how each rank ends, by [`Engine::peer_failed`] or [`Engine::peer_left`]. A
    /// goodbye is not final then: the process may still fail, and a failure after the goodbye counts as any other.
    pub fn expect_word(&mut self) {
        self.link.expects_word = true;
    }

    /// Returns the time at which a rank ended, if the launcher has not reported its end yet. Until then the known cause
    /// is the goodbye or the lost connection. The report may give a more precise one.
    pub fn unexplained_since(&mut self, rank: WorldRank) -> Option<Time> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        // After a lost connection a short wait is worth it, even if it is not known that the launcher reports ends.
        let may_come = self.link.expects_word || state.standing == Standing::Failed(Cause::Lost);
        (may_come && state.awaits_word()).then_some(state.ended_at)
    }

    /// Notes the launcher's report that a rank is dead. Final for the reported incarnation, or for the known one if
    /// `incarnation` is `None`; ignored for an earlier one. A rank that has said goodbye may still fail if the launcher
    /// reports ends ([`Engine::expect_word`]); its messages stay until its next incarnation takes part.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_failed(
        &mut self,
        rank: WorldRank,
        incarnation: Option<u32>,
        cause: Cause,
    ) -> Result<(), Error> {
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            self.link.fail(&mut self.stack, peer, cause);
            self.link.peers[peer].is_told = true;
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Notes that a living rank has given up this one, with its reason: [`Engine::given_up`] of that rank's engine
    /// returned it. That rank fails here too, since it exchanges nothing with this one any more. Ignored if the verdict
    /// is on another incarnation of this rank, or by an earlier incarnation of that rank than the known one.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_gave_up(
        &mut self,
        rank: WorldRank,
        incarnation: u32,
        verdict_on: u32,
        why: String,
    ) -> Result<(), Error> {
        let link = &mut self.link;
        link.check_rank(rank)?;
        if verdict_on != link.identity.incarnation || rank == link.identity.rank {
            return Ok(());
        }
        if let Some(peer) = link.whose_end(&mut self.stack, rank, Some(incarnation))? {
            link.fail(&mut self.stack, peer, Cause::GaveUp(why));
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Notes whether the launcher restarts a failed rank. If so, a receive from any source waits for that rank. Ignored
    /// if another incarnation is known.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_returns(&mut self, rank: WorldRank, incarnation: u32, returns: bool) -> Result<(), Error> {
        let link = &mut self.link;
        link.check_rank(rank)?;
        if let Some(peer) = link.find(rank)
            && link.peers[peer].incarnation == Some(Incarnation::new(incarnation))
        {
            link.peers[peer].returns = returns;
        }
        Ok(())
    }

    /// Notes the launcher's report that a rank has ended in good order. First poll until there are no more events: a
    /// rank that closes its engine has said goodbye and waited for the answer; if one ended without a goodbye, data
    /// that has not arrived by now is lost. For `incarnation` see [`Engine::peer_failed`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_left(&mut self, rank: WorldRank, incarnation: Option<u32>) -> Result<(), Error> {
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            crate::event!(DEBUG, peer = rank.0, "peer left");
            self.link.farewell(&mut self.stack, peer);
            let state = &mut self.link.peers[peer];
            state.is_told = true;
            if state.standing == Standing::Failed(Cause::Lost) {
                state.standing = Standing::Failed(Cause::Left);
                self.stack.ended(&mut self.link, peer, &Ending::Explained(&Cause::Left));
            }
            self.link.depart(peer);
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Notes whether a rank's process is stopped. Operations that time out report it. It is no failure. Ignored if
    /// another incarnation is known.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_stopped(&mut self, rank: WorldRank, incarnation: u32, is_stopped: bool) -> Result<(), Error> {
        let link = &mut self.link;
        link.check_rank(rank)?;
        let peer = match link.find(rank) {
            Some(peer) => peer,
            None if is_stopped => link.peers.meet(rank),
            None => return Ok(()),
        };
        let state = &mut link.peers[peer];
        if state.incarnation.is_none_or(|known| known.get() == incarnation) {
            state.is_stopped = is_stopped;
        }
        Ok(())
    }

    /// Says goodbye to all peers. Poll until [`Engine::closed`]; nothing can be sent any more.
    pub fn close(&mut self, now: Time) {
        let link = &mut self.link;
        link.now = now;
        let all: Vec<Peer> = link.peers.iter().map(|(peer, _)| peer).collect();
        for peer in all {
            let state = &mut link.peers[peer];
            if state.is_alive() && (state.path.is_some() || !state.is_idle()) {
                state.lanes.insert_goodbye();
                link.list(peer);
            }
        }
        self.drive(&mut ());
    }

    /// Returns true if every peer that takes part has taken all data that was sent to it.
    pub fn closed(&self) -> bool {
        self.not_closed().is_none()
    }

    /// Returns a rank that takes part and has not taken all data that was sent to it.
    pub fn not_closed(&self) -> Option<WorldRank> {
        let is_closed = |state: &PeerState| match state.standing {
            Standing::Alive => {
                let acked = |bye: Sequence| state.acked.is_after(bye);
                state.is_idle() && state.bye.is_none_or(acked)
            }
            Standing::Left => state.is_idle(),
            Standing::Failed(_) => true,
        };
        self.link.peers.iter().find(|(_, state)| !is_closed(state)).map(|(_, state)| state.rank)
    }

    /// Returns the incarnation of a rank that takes part, if known.
    pub fn incarnation(&mut self, rank: WorldRank) -> Option<u32> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        state.incarnation.filter(|_| state.is_alive()).map(Incarnation::get)
    }

    /// Returns why no process of a rank takes part any more, or `None` if one does or may.
    pub fn gone(&mut self, rank: WorldRank) -> Option<Cause> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        state.failure().filter(|_| self.link.is_gone(state))
    }

    /// Returns true if a rank's process is known to be stopped.
    pub fn is_stopped(&mut self, rank: WorldRank) -> bool {
        self.link.find(rank).is_some_and(|peer| self.link.peers[peer].is_stopped)
    }

    /// Returns why a rank takes no part, or `None` if it takes part or is unknown.
    pub fn failure(&mut self, rank: WorldRank) -> Option<Cause> {
        let peer = self.link.find(rank)?;
        self.link.peers[peer].failure()
    }
}

impl Link {
    /// Resolves the report of a rank's end to a peer. Returns `None` for an earlier incarnation than the known one.
    fn whose_end<S: Stack>(
        &mut self,
        stack: &mut S,
        rank: WorldRank,
        incarnation: Option<u32>,
    ) -> Result<Option<Peer>, Error> {
        let peer = self.find_or_meet(rank)?;
        let incarnation = incarnation.map(Incarnation::new);
        match (incarnation, self.peers[peer].incarnation) {
            (Some(ended), Some(known)) if known.is_after(ended) => return Ok(None),
            (Some(ended), Some(known)) if ended.is_after(known) => {
                self.fail(stack, peer, Cause::Restarted);
                self.renew(stack, peer);
                self.peers[peer].incarnation = incarnation;
            }
            (Some(_), None) => self.peers[peer].incarnation = incarnation,
            _ => {}
        }
        Ok(Some(peer))
    }

    /// Ends a peer that failed, with its operations. A peer that has said goodbye fails only by the launcher's report
    /// or its restart.
    pub(super) fn fail<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let expects_word = self.expects_word;
        let state = &mut self.peers[peer];
        match (&state.standing, &cause) {
            (Standing::Alive, _) => {}
            // The launcher knows more than the port, which only noticed the lost connection.
            (Standing::Failed(Cause::Lost), Cause::Died(_) | Cause::GaveUp(_)) => {
                state.standing = Standing::Failed(cause.clone());
                stack.ended(self, peer, &Ending::Explained(&cause));
                return self.depart(peer);
            }
            (Standing::Left, Cause::Died(_)) if expects_word => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            // The launcher restarts failed ranks, and its report of the failure is on its way.
            (Standing::Left, Cause::Restarted) if expects_word && !state.is_told => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            _ => return self.depart(peer),
        }
        if let Some(incarnation) = state.incarnation
            && cause.is_own_verdict()
            && state.rank != self.identity.rank
        {
            self.given_up.push(GivenUp {
                rank: state.rank,
                incarnation: incarnation.get(),
                cause: cause.clone(),
            });
        }
        self.counters.failed_peers += 1;
        crate::event!(WARN, peer = state.rank.0, ?cause, "peer failed");
        self.end(peer, Standing::Failed(cause.clone()));
        self.depart(peer);
        stack.ended(self, peer, &Ending::Failed(&cause));
    }

    /// Ends a peer that failed after its goodbye. The goodbye has ended the operations that waited for it. Its messages
    /// stay: all of them have arrived.
    #[cold]
    fn fail_after_goodbye<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let state = &mut self.peers[peer];
        crate::event!(WARN, peer = state.rank.0, ?cause, "peer failed after its goodbye");
        self.counters.failed_peers += 1;
        state.standing = Standing::Failed(cause.clone());
        stack.ended(self, peer, &Ending::FailedAfterGoodbye(&cause));
        self.depart(peer);
    }

    /// Handles the goodbye of a peer: its messages stay, operations that wait for it end.
    pub(super) fn farewell<S: Stack>(&mut self, stack: &mut S, peer: Peer) {
        if !self.peers[peer].is_alive() {
            return;
        }
        self.end(peer, Standing::Left);
        stack.ended(self, peer, &Ending::Left);
    }

    fn end(&mut self, peer: Peer, standing: Standing) {
        let state = &mut self.peers[peer];
        self.credit_out -= u64::from(state.grant.revoke());
        if state.is_alive() && state.rank != self.identity.rank {
            self.ended += 1;
        }
        state.standing = standing;
        state.ended_at = self.now;
        // The answer to a goodbye makes no sense without the hello before it.
        state.packets.retain(Packet::is_hello);
        state.lanes.clear();
    }

    /// Cuts off the path to a peer: this side can neither answer the peer's goodbye any more nor fetch bytes from the
    /// peer.
    fn depart(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        state.packets.clear();
        state.lanes.clear();
        self.severed.extend(state.path.take());
        self.has_work |= !self.severed.is_empty();
    }

    /// Makes a peer that has ended ready for its next incarnation.
    pub(super) fn renew<S: Stack>(&mut self, stack: &mut S, peer: Peer) {
        let state = &self.peers[peer];
        let has_failed = matches!(state.standing, Standing::Failed(_));
        if !state.is_alive() && state.rank != self.identity.rank {
            self.ended -= 1;
        }
        stack.ended(self, peer, &Ending::Renewed { has_failed });
        self.peers.renew(peer);
    }

    /// Returns true if packets of this incarnation of a peer may be admitted: it is the known one and has not failed,
    /// or a later one. For a later one the known incarnation is ended first.
    pub(super) fn expects<S: Stack>(&mut self, stack: &mut S, peer: Peer, incarnation: Incarnation) -> bool {
        match self.peers[peer].incarnation {
            // A peer that has said goodbye right after its hello still waits for an answer.
            Some(known) if known == incarnation => !matches!(self.peers[peer].standing, Standing::Failed(_)),
            Some(known) if known.is_after(incarnation) => false,
            Some(_) => {
                self.fail(stack, peer, Cause::Restarted);
                self.renew(stack, peer);
                true
            }
            None => {
                if !self.peers[peer].is_alive() {
                    self.renew(stack, peer);
                }
                true
            }
        }
    }

    /// Returns true if only messages of this rank to itself can still arrive: every other rank has left or failed for
    /// good, and no message of this rank to itself is under way.
    #[inline(always)]
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let others = self.identity.size - 1;
        others > 0 && self.ended == others && self.is_alone()
    }

    /// Returns true if no message of this rank to itself is under way.
    #[must_use]
    pub fn is_idle_to_itself(&self) -> bool {
        self.peers.iter().all(|(_, state)| state.rank != self.identity.rank || state.has_taken_its_own())
    }

    /// The rest of [`Link::is_deserted`], once no other rank takes part.
    #[cold]
    fn is_alone(&self) -> bool {
        self.peers.iter().all(|(_, state)| {
            if state.rank == self.identity.rank { state.has_taken_its_own() } else { self.is_gone(state) }
        })
    }

    /// Returns true if a peer that has ended is not being restarted, as far as is known.
    fn is_gone(&self, state: &PeerState) -> bool {
        let is_final = match state.standing {
            _ if state.is_told || !self.expects_word => true,
            Standing::Left => false,
            // The process may be alive, and then the launcher says nothing.
            Standing::Failed(Cause::Lost) => self.now >= state.ended_at.after(LOST_FOR_GOOD_NS),
            _ => true,
        };
        is_final && !state.returns
    }
}

/// The time after which a rank that the port lost, and about which the launcher is silent, is not being restarted. The
/// launcher reports the end of a process within milliseconds.
const LOST_FOR_GOOD_NS: u64 = 1_000_000_000;
