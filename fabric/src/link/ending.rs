//! The end of peers, by failure or in good order, and this side's goodbye.

use super::numbers::{Incarnation, Sequence};
use super::peer::{PeerState, Standing};
use super::{Cause, Ending, Engine, Error, GivenUp, Link, Peer, Stack, Time, WorldRank};
use crate::Port;

/// The knowledge about the end of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finality {
    /// The process has ended, or has left the job. All other ranks learn that too.
    Final,
    /// The connection was lost, or one side has given up the other one. The launcher may soon report that the process
    /// has ended.
    Awaited,
    /// As [`Awaited`](Self::Awaited), but the launcher has reported nothing for a while. The peer may be alive, and
    /// other ranks may exchange messages with both.
    Disputed,
}

impl<P: Port, S: Stack> Engine<P, S> {
    /// Announces that the launcher reports how each rank ends: the caller will pass each report to
    /// [`Engine::peer_failed`] or [`Engine::peer_left`]. Then a goodbye is not final: if the process fails after its
    /// goodbye, the rank has failed.
    pub fn expect_word(&mut self) {
        self.link.expects_report = true;
    }

    /// Returns the time at which a rank said goodbye or its connection was lost, if the launcher's report of its end
    /// may still come. The report may give a more precise cause, so it can be worth waiting for.
    pub fn unexplained_since(&mut self, rank: WorldRank) -> Option<Time> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        // After a lost connection a short wait can be worthwhile even without `expect_word`: a report may come although
        // none was announced.
        let may_come = self.link.expects_report || state.standing == Standing::Failed(Cause::Lost);
        (may_come && state.awaits_word()).then_some(state.ended_at)
    }

    /// Notes the launcher's report that an incarnation of a rank is dead, before the packets that are still in the port
    /// are received. Call [`Engine::peer_failed`] afterwards. If one of these packets is from a later incarnation, then
    /// the dead one ends with this cause, and not with [`Cause::Restarted`].
    pub fn announce_failure(&mut self, rank: WorldRank, incarnation: u32, cause: Cause) {
        self.link.announced = Some((rank, Incarnation::new(incarnation), cause));
    }

    /// Notes the launcher's report that a rank is dead. The report is final for `incarnation` or, if that is `None`,
    /// for the incarnation that this engine knows. A report about an earlier incarnation than the known one is ignored.
    /// If the launcher reports ends ([`Engine::expect_word`]), a rank can fail even after its goodbye; the messages
    /// that it sent can then be received until its next incarnation takes part.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_failed(
        &mut self,
        rank: WorldRank,
        incarnation: Option<u32>,
        cause: Cause,
    ) -> Result<(), Error> {
        self.link.announced = None;
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            self.link.fail(&mut self.stack, peer, cause);
            self.link.peers[peer].has_report = true;
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Notes that `rank`, which is alive, has given up this rank for the reason `why`: its engine has returned this
    /// rank from [`Engine::given_up`]. `rank` then fails here too, since it exchanges nothing with this rank any more.
    /// The call has no effect if `verdict_on` is another incarnation than that of this process, if a later incarnation
    /// than `incarnation` of `rank` is known, or if `rank` is this rank.
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

    /// Notes whether the launcher restarts a failed rank. While a restart is announced, a receive from any source does
    /// not end with [`Error::Deserted`], since the restarted rank may send to it. The call has no effect unless
    /// `incarnation` is the known incarnation of the rank.
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

    /// Notes the launcher's report that a rank has ended in good order. Poll until there are no more events before you
    /// call this, because it cuts off the path to the rank, and data that has not been taken from the port is lost. A
    /// rank that closed its engine has said goodbye and waited for the answer, so all its data has been taken. For
    /// `incarnation` see [`Engine::peer_failed`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_left(&mut self, rank: WorldRank, incarnation: Option<u32>) -> Result<(), Error> {
        if let Some(peer) = self.link.whose_end(&mut self.stack, rank, incarnation)? {
            crate::event!(DEBUG, peer = rank.0, "peer left");
            self.link.peer_left(&mut self.stack, peer);
            let state = &mut self.link.peers[peer];
            state.has_report = true;
            if state.standing == Standing::Failed(Cause::Lost) {
                state.standing = Standing::Failed(Cause::Left);
                self.stack.peer_ended(&mut self.link, peer, &Ending::Explained(&Cause::Left));
            }
            self.link.disconnect(peer);
            self.drive(&mut ());
        }
        Ok(())
    }

    /// Notes whether a rank's process is stopped, for example by SIGSTOP. A stopped rank has not failed, but the error
    /// of an operation that times out mentions it. The call has no effect if another incarnation is known.
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

    /// Begins to say goodbye to each peer that takes part, if this side has a path to it or something is queued for it.
    /// A goodbye is sent after the messages that are queued for the peer. After this call poll until [`Engine::closed`]
    /// returns true. Send nothing new after this call.
    pub fn close(&mut self, now: Time) {
        let link = &mut self.link;
        link.now = now;
        let all: Vec<Peer> = link.peers.iter().map(|(peer, _)| peer).collect();
        for peer in all {
            let state = &mut link.peers[peer];
            if state.is_alive() && (state.path.is_some() || !state.has_no_packets_queued()) {
                state.queued.insert_goodbye();
                link.list(peer);
            }
        }
        self.drive(&mut ());
    }

    /// Returns true if nothing is queued for a peer that takes part or has left, and each peer that takes part has
    /// acknowledged this side's goodbye, if one was sent to it. The acknowledgement means that the peer has received
    /// all packets that were sent before the goodbye. For a peer that has left, the acknowledgement of its own goodbye
    /// may be queued.
    pub fn closed(&self) -> bool {
        self.not_closed().is_none()
    }

    /// Returns a rank because of which [`Engine::closed`] returns false, or `None` if there is no such rank.
    pub fn not_closed(&self) -> Option<WorldRank> {
        let is_closed = |state: &PeerState| match state.standing {
            Standing::Alive => {
                let acked = |bye: Sequence| state.acked.is_after(bye);
                state.has_no_packets_queued() && state.bye.is_none_or(acked)
            }
            Standing::Left => state.has_no_packets_queued(),
            Standing::Failed(_) => true,
        };
        self.link.peers.iter().find(|(_, state)| !is_closed(state)).map(|(_, state)| state.rank)
    }

    /// Returns the incarnation of a rank, if the rank takes part and its incarnation is known.
    pub fn incarnation(&mut self, rank: WorldRank) -> Option<u32> {
        let peer = self.link.find(rank)?;
        let state = &self.link.peers[peer];
        state.incarnation.filter(|_| state.is_alive()).map(Incarnation::get)
    }

    /// Returns why a rank has ended for good: no process of it takes part, and none is expected to be restarted.
    /// Returns `None` if a process takes part or may still do so.
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
    /// Ends the known incarnation of a peer, because a later one has appeared.
    pub(super) fn replace<S: Stack>(&mut self, stack: &mut S, peer: Peer) {
        let PeerState { rank, incarnation, .. } = self.peers[peer];
        let announced =
            self.announced.as_ref().filter(|(whom, which, _)| (*whom, Some(*which)) == (rank, incarnation));
        let cause = announced.map_or(Cause::Restarted, |(.., cause)| cause.clone());
        self.fail(stack, peer, cause);
        self.renew(stack, peer);
    }

    /// Returns the peer whose end a report is about. Returns `None` if the report is about an earlier incarnation than
    /// the known one. If it is about a later one, the known one fails first.
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
                self.replace(stack, peer);
                self.peers[peer].incarnation = incarnation;
            }
            (Some(ended), None) => {
                if self.peers[peer].is_alive() {
                    self.begin(stack, peer, ended);
                }
                self.peers[peer].incarnation = incarnation;
            }
            _ => {}
        }
        Ok(Some(peer))
    }

    /// Ends a peer that failed, and the operations with it. A peer that has said goodbye can fail only if the launcher
    /// reports how ranks end ([`Engine::expect_word`]): when it reports that the process died, or when a later
    /// incarnation appears before that report.
    pub(super) fn fail<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let expects_report = self.expects_report;
        let state = &mut self.peers[peer];
        match (&state.standing, &cause) {
            (Standing::Alive, _) => {}
            // The launcher knows more than the port, which only noticed the lost connection.
            (Standing::Failed(Cause::Lost), Cause::Died(_) | Cause::GaveUp(_)) => {
                state.standing = Standing::Failed(cause.clone());
                stack.peer_ended(self, peer, &Ending::Explained(&cause));
                return self.disconnect(peer);
            }
            (Standing::Left, Cause::Died(_)) if expects_report => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            // A later incarnation has appeared. So the known one has failed, although it said goodbye: the launcher
            // restarts only failed ranks. The launcher's report of the failure has not arrived yet.
            (Standing::Left, Cause::Restarted) if expects_report && !state.has_report => {
                return self.fail_after_goodbye(stack, peer, cause);
            }
            _ => return self.disconnect(peer),
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
        self.disconnect(peer);
        stack.peer_ended(self, peer, &Ending::Failed(&cause));
    }

    /// Ends a peer that failed after its goodbye. The operations that waited for the peer have ended at the goodbye.
    /// The messages that it sent can still be received: the goodbye is its last packet, so all of them have arrived.
    #[cold]
    fn fail_after_goodbye<S: Stack>(&mut self, stack: &mut S, peer: Peer, cause: Cause) {
        let state = &mut self.peers[peer];
        crate::event!(WARN, peer = state.rank.0, ?cause, "peer failed after its goodbye");
        self.counters.failed_peers += 1;
        state.standing = Standing::Failed(cause.clone());
        stack.peer_ended(self, peer, &Ending::FailedAfterGoodbye(&cause));
        self.disconnect(peer);
    }

    /// Handles the goodbye of a peer: operations that wait for the peer end, and the messages that it has sent can
    /// still be received.
    pub(super) fn peer_left<S: Stack>(&mut self, stack: &mut S, peer: Peer) {
        if !self.peers[peer].is_alive() {
            return;
        }
        self.end(peer, Standing::Left);
        stack.peer_ended(self, peer, &Ending::Left);
    }

    fn end(&mut self, peer: Peer, standing: Standing) {
        self.drop_bundle(peer);
        let state = &mut self.peers[peer];
        self.credit_out -= u64::from(state.grant.revoke());
        if state.is_alive() && state.rank != self.identity.rank {
            self.ended_peers += 1;
        }
        state.standing = standing;
        state.ended_at = self.now;
        // A queued hello is kept: the peer accepts the acknowledgement of its goodbye only after this side's hello.
        state.packets.keep_hellos();
        state.queued.clear();
    }

    /// Drops the packets that are queued for a peer that has ended, and cuts off the path to the peer. Afterwards this
    /// side can neither acknowledge the peer's goodbye nor fetch bytes of its messages.
    fn disconnect(&mut self, peer: Peer) {
        let state = &mut self.peers[peer];
        state.packets.clear();
        state.queued.clear();
        self.to_fence.extend(state.path.take());
        self.has_work |= !self.to_fence.is_empty();
    }

    /// Makes a peer that has ended ready for its next incarnation.
    pub(super) fn renew<S: Stack>(&mut self, stack: &mut S, peer: Peer) {
        let state = &self.peers[peer];
        let has_failed = matches!(state.standing, Standing::Failed(_));
        if !state.is_alive() && state.rank != self.identity.rank {
            self.ended_peers -= 1;
        }
        stack.peer_ended(self, peer, &Ending::Renewed { has_failed });
        self.peers.renew(peer);
    }

    /// Returns true if packets of this incarnation of a peer may be admitted: it is the known incarnation and has not
    /// failed, it is a later one, or no incarnation is known. If it is a later one, this call ends the known
    /// incarnation.
    pub(super) fn expects<S: Stack>(&mut self, stack: &mut S, peer: Peer, incarnation: Incarnation) -> bool {
        match self.peers[peer].incarnation {
            // A peer that has left is included: if it said goodbye right after its hello, it still waits for an answer.
            Some(known) if known == incarnation => !matches!(self.peers[peer].standing, Standing::Failed(_)),
            Some(known) if known.is_after(incarnation) => false,
            Some(_) => {
                self.replace(stack, peer);
                true
            }
            None => {
                self.begin(stack, peer, incarnation);
                true
            }
        }
    }

    /// Ends the earlier incarnations of a peer of which no incarnation is known, because this one has appeared. If the
    /// peer has ended, this side never knew the number of its incarnation, and assumes that this is a later one.
    pub(super) fn begin<S: Stack>(&mut self, stack: &mut S, peer: Peer, incarnation: Incarnation) {
        let rank = self.peers[peer].rank;
        if !self.peers[peer].is_alive() {
            self.renew(stack, peer);
        } else if rank != self.identity.rank && incarnation != self.identity.first_incarnation(rank) {
            stack.peer_ended(self, peer, &Ending::Unmet);
        }
    }

    /// Returns true if only messages of this rank to itself can still arrive: there are other ranks, each of them has
    /// left or failed for good, and no message of this rank to itself is under way.
    #[inline(always)]
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let others = self.identity.size - 1;
        others > 0 && self.ended_peers == others && self.is_alone()
    }

    /// Returns true if no message of this rank to itself is under way.
    #[must_use]
    pub fn is_idle_to_itself(&self) -> bool {
        self.peers.iter().all(|(_, state)| state.rank != self.identity.rank || state.has_taken_its_own())
    }

    /// The last condition of [`Link::is_deserted`]. It is evaluated only when all other ranks have left or failed,
    /// because it looks at every peer.
    #[cold]
    fn is_alone(&self) -> bool {
        self.peers.iter().all(|(_, state)| {
            if state.rank == self.identity.rank { state.has_taken_its_own() } else { self.is_gone(state) }
        })
    }

    /// Returns what is known about the end of a peer. Returns `None` if the peer takes part.
    #[must_use]
    pub fn finality(&self, peer: Peer) -> Option<Finality> {
        let state = &self.peers[peer];
        match &state.standing {
            Standing::Alive => None,
            _ if state.has_report => Some(Finality::Final),
            Standing::Left => Some(Finality::Final),
            Standing::Failed(Cause::Lost | Cause::GaveUp(_)) => Some(self.finality_without_report(state)),
            Standing::Failed(cause) if cause.is_own_verdict() => Some(self.finality_without_report(state)),
            Standing::Failed(_) => Some(Finality::Final),
        }
    }

    /// Returns the finality of the end of a peer whose process may have ended. The launcher gets some time to report
    /// that.
    fn finality_without_report(&self, state: &PeerState) -> Finality {
        let is_awaited = self.now < state.ended_at.after(LOST_FOR_GOOD_NS);
        if is_awaited { Finality::Awaited } else { Finality::Disputed }
    }

    /// Returns true if a peer that has ended is gone for good: no report of the launcher is awaited that could still
    /// explain its end, and no restart is announced.
    fn is_gone(&self, state: &PeerState) -> bool {
        let is_final = match state.standing {
            _ if state.has_report || !self.expects_report => true,
            Standing::Left => false,
            // The process may be alive although its connection is lost, and then the launcher never reports its end. So
            // the launcher's report is awaited for a limited time.
            Standing::Failed(Cause::Lost) => self.now >= state.ended_at.after(LOST_FOR_GOOD_NS),
            _ => true,
        };
        is_final && !state.returns
    }
}

/// The time that the launcher gets to report the end of a rank whose connection the port has lost. If there is no
/// report by then, the rank is taken to be gone for good. The launcher reports the end of a process within
/// milliseconds.
const LOST_FOR_GOOD_NS: u64 = 1_000_000_000;
