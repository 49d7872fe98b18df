//! How peers end: they fail, or leave in good order; and how this side leaves.

use super::inbound::is_later;
use super::peer::{Packet, PeerState, Standing};
use super::{Cause, Ending, Engine, Error, GivenUp, Link, Peer, Stack};
use crate::Port;

impl<P: Port, S: Stack> Engine<P, S> {
    /// Announces that the launcher reports how each rank ends, by [`Engine::peer_failed`] or [`Engine::peer_left`]. A goodbye
    /// is not final then: the process may still fail, and a failure after the goodbye counts as any other.
    pub fn expect_word(&mut self) {
        self.link.expects_word = true;
    }

    /// Returns since when, in nanoseconds, a rank takes no part whose end the launcher has not reported yet: the cause that
    /// is known so far is the goodbye or the lost connection, and how its process ended may say more.
    pub fn unexplained_since(&mut self, rank: u32) -> Option<u64> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        // A lost connection is worth a moment where the launcher may be silent, too.
        let may_come = self.link.expects_word || state.standing == Standing::Failed(Cause::Lost);
        (may_come && state.awaits_word()).then_some(state.ended_ns)
    }

    /// Tells that a rank is dead, on the word of the launcher. Final for the incarnation it had, which is the known one if
    /// `incarnation` is `None`; ignored for an earlier one. A rank that has said goodbye may still fail if the launcher
    /// reports ends ([`Engine::expect_word`]): what it sent stays until its next incarnation takes part.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_failed(&mut self, rank: u32, incarnation: Option<u32>, cause: Cause) -> Result<(), Error> {
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            self.link.fail(&mut self.stack, peer, cause);
            self.link.peers[peer].is_told = true;
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Tells that a living rank has given up this one, and why: [`Engine::given_up`] of that rank's engine returned it.
    /// That rank fails here too, since it exchanges nothing with this one any more. Ignored if the verdict is on
    /// another incarnation of this rank, or by an earlier incarnation of that rank than the known one.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_gave_up(
        &mut self,
        rank: u32,
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

    /// Tells whether the launcher starts a rank again that has failed. While it does, a receive from any source waits for
    /// that rank. Ignored if another incarnation is known by now.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_returns(&mut self, rank: u32, incarnation: u32, returns: bool) -> Result<(), Error> {
        let link = &mut self.link;
        link.check_rank(rank)?;
        if let Some(peer) = link.find(rank)
            && link.peers[peer].incarnation == Some(incarnation)
        {
            link.peers[peer].returns = returns;
        }
        Ok(())
    }

    /// Tells that a rank has ended in good order, on the word of the launcher. Poll before until nothing comes: a rank that
    /// closes its engine has said goodbye, and waited until that was heard; of one that ended without a goodbye, what has not
    /// come by now is lost. For `incarnation` see [`Engine::peer_failed`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_left(&mut self, rank: u32, incarnation: Option<u32>) -> Result<(), Error> {
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            crate::event!(DEBUG, peer = rank, "peer left");
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

    /// Tells that a rank's process is stopped, or goes on: operations that time out report it. It is no failure. Ignored if
    /// another incarnation is known.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_stopped(&mut self, rank: u32, incarnation: u32, is_stopped: bool) -> Result<(), Error> {
        let link = &mut self.link;
        link.check_rank(rank)?;
        let peer = match link.find(rank) {
            Some(peer) => peer,
            None if is_stopped => link.peers.meet(rank),
            None => return Ok(()),
        };
        let state = &mut link.peers[peer];
        if state.incarnation.is_none_or(|known| known == incarnation) {
            state.is_stopped = is_stopped;
        }
        Ok(())
    }

    /// Says goodbye to all peers. Poll until [`Engine::closed`]; nothing can be sent any more.
    pub fn close(&mut self, now_ns: u64) {
        let link = &mut self.link;
        link.now_ns = now_ns;
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

    /// Returns true if every peer that takes part has taken all that was sent to it.
    pub fn closed(&self) -> bool {
        self.not_closed().is_none()
    }

    /// Returns a rank that takes part, and has not taken all that was sent to it.
    pub fn not_closed(&self) -> Option<u32> {
        let is_closed = |state: &PeerState| match state.standing {
            Standing::Alive => {
                let acked = |bye: u32| (state.acked.wrapping_sub(bye) as i32) > 0;
                state.is_idle() && state.bye.is_none_or(acked)
            }
            Standing::Left => state.is_idle(),
            Standing::Failed(_) => true,
        };
        self.link.peers.iter().find(|(_, state)| !is_closed(state)).map(|(_, state)| state.rank)
    }

    /// Returns which incarnation of a rank takes part, as far as is known.
    pub fn incarnation(&mut self, rank: u32) -> Option<u32> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        state.incarnation.filter(|_| state.is_alive())
    }

    /// Returns true if a rank's process is stopped, as far as is known.
    pub fn is_stopped(&mut self, rank: u32) -> bool {
        self.link.find(rank).is_some_and(|peer| self.link.peers[peer].is_stopped)
    }

    /// Returns why a rank takes no part, as far as is known, and if so.
    pub fn failure(&mut self, rank: u32) -> Option<Cause> {
        let peer = self.link.find(rank)?;
        self.link.peers[peer].failure()
    }
}

impl Link {
    /// Resolves the report of a rank's end to a peer. Returns `None` for an earlier incarnation than the known one.
    fn whose_end<S: Stack>(
        &mut self,
        stack: &mut S,
        rank: u32,
        incarnation: Option<u32>,
    ) -> Result<Option<Peer>, Error> {
        let peer = self.find_or_meet(rank)?;
        match (incarnation, self.peers[peer].incarnation) {
            (Some(ended), Some(known)) if is_later(known, ended) => return Ok(None),
            (Some(ended), Some(known)) if is_later(ended, known) => {
                self.fail(stack, peer, Cause::Restarted);
                self.renew(stack, peer);
                self.peers[peer].incarnation = incarnation;
            }
            (Some(_), None) => self.peers[peer].incarnation = incarnation,
            _ => {}
        }
        Ok(Some(peer))
    }

    /// Ends a peer that failed, and everything that concerns it. A peer that has said goodbye fails only if the launcher says
    /// so, or has started it again.
    pub(super) fn fail<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let expects_word = self.expects_word;
        let state = &mut self.peers[peer];
        match (&state.standing, &cause) {
            (Standing::Alive, _) => {}
            // The launcher knows more than the port, which only noticed that the peer was gone.
            (Standing::Failed(Cause::Lost), Cause::Died(_) | Cause::GaveUp(_)) => {
                state.standing = Standing::Failed(cause.clone());
                stack.ended(self, peer, &Ending::Explained(&cause));
                return self.depart(peer);
            }
            (Standing::Left, Cause::Died(_)) if expects_word => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            // The launcher starts ranks again that failed, and its report of that is on its way.
            (Standing::Left, Cause::Restarted) if expects_word && !state.is_told => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            _ => return self.depart(peer),
        }
        if let Some(incarnation) = state.incarnation
            && cause.is_own_verdict()
            && state.rank != self.identity.rank
        {
            self.given_up.push(GivenUp { rank: state.rank, incarnation, cause: cause.clone() });
        }
        self.counters.failed_peers += 1;
        crate::event!(WARN, peer = state.rank, ?cause, "peer failed");
        self.end(peer, Standing::Failed(cause.clone()));
        self.depart(peer);
        stack.ended(self, peer, &Ending::Failed(&cause));
    }

    /// Ends a peer that failed after its goodbye. The goodbye has ended the operations that waited for it. Its messages stay:
    /// all of them have arrived.
    #[cold]
    fn fail_after_goodbye<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let state = &mut self.peers[peer];
        crate::event!(WARN, peer = state.rank, ?cause, "peer failed after its goodbye");
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
        self.credit_out -= u64::from(state.unused());
        state.given = state.charged;
        if state.is_alive() && state.rank != self.identity.rank {
            self.ended += 1;
        }
        state.standing = standing;
        state.ended_ns = self.now_ns;
        // The answer to a goodbye makes no sense without the hello before it.
        state.packets.retain(Packet::is_hello);
        state.lanes.clear();
    }

    /// Cuts off the path to a peer: its goodbye cannot be answered any more, nor bytes fetched from it.
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

    /// Returns true if an incarnation of a peer is the one known and did not fail, or news. If it is news, the known one is
    /// ended first.
    pub(super) fn expects<S: Stack>(&mut self, stack: &mut S, peer: Peer, incarnation: u32) -> bool {
        match self.peers[peer].incarnation {
            // A peer that has said goodbye right after its hello still waits for an answer.
            Some(known) if known == incarnation => !matches!(self.peers[peer].standing, Standing::Failed(_)),
            Some(known) if is_later(known, incarnation) => false,
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

    /// Returns true if no message can come but those that this rank may yet send to itself: every other rank has left or
    /// failed for good, and no message of this rank to itself is on its way.
    #[inline(always)]
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let others = self.identity.size - 1;
        others > 0 && self.ended == others && self.is_alone()
    }

    /// The rest of [`Link::is_deserted`], once no other rank takes part.
    #[cold]
    fn is_alone(&self) -> bool {
        self.peers.iter().all(|(_, state)| {
            if state.rank == self.identity.rank {
                // Both numbers count the packets of this engine to itself.
                return !state.is_alive() || state.is_idle() && state.sequence == state.expected;
            }
            let is_final = match state.standing {
                _ if state.is_told || !self.expects_word => true,
                Standing::Left => false,
                // The process may be alive, and then the launcher says nothing.
                Standing::Failed(Cause::Lost) => self.now_ns >= state.ended_ns + LOST_FOR_GOOD_NS,
                _ => true,
            };
            is_final && !state.returns
        })
    }
}

/// After so long a rank that the port lost, and of which the launcher says nothing, is not being started again. The launcher
/// reports the end of a process within milliseconds.
const LOST_FOR_GOOD_NS: u64 = 1_000_000_000;
