//! The engine owns the port and the link. The caller's calls and polls go in, and packets for peers come out.

use super::inbound::Inbound;
use super::numbers::Incarnation;
use super::outbound::LATE_NS;
use super::{
    Config, Contact, Error, Expiry, Fault, GivenUp, Identity, Lent, Link, Out, Stack, Time, Timer, WorldRank,
};
use crate::wire::Flags;
use crate::{Address, Caps, Port};

/// A port, its link, and the protocols over it. See the [module](super).
///
/// All times are nanoseconds of one monotonic clock of the caller; the deadline [`Time::NEVER`] means none.
#[derive(Debug)]
pub struct Engine<P, S> {
    /// The port.
    pub(super) port: P,
    /// The link.
    pub(super) link: Link,
    /// The protocols.
    pub(super) stack: S,
}

impl<P: Port, S: Stack> Engine<P, S> {
    /// Makes an engine over `port`.
    pub fn new(port: P, identity: Identity, config: Config, stack: S) -> Self {
        Self { port, link: Link::new(identity, config), stack }
    }

    /// Handles the port's events, and then sends queued packets, continues transfers and ends requests whose deadline
    /// has passed. Returns the number of events of the port; 0 means that the port was idle.
    ///
    /// # Errors
    /// [`Error::Port`] if the port is broken.
    #[inline]
    pub fn poll<L: Lent>(&mut self, now: Time, lent: &mut L) -> Result<usize, Error> {
        self.link.now = now;
        self.link.taken = 0;
        let mut inbound = Inbound { link: &mut self.link, stack: &mut self.stack, lent };
        let events = self.port.poll(&mut inbound)?;
        if self.link.has_work() {
            self.drain(lent, Some(events));
        }
        Ok(events)
    }

    /// Takes one packet if the port can deliver one cheaply: see [`Port::next_packet`]. Returns true if it took one.
    /// Call it only while [`Link::may_take`] returns true: `may_take` limits the number of packets between two polls.
    #[inline(always)]
    pub fn next_packet<L: Lent>(&mut self, lent: &mut L) -> bool {
        let mut inbound = Inbound { link: &mut self.link, stack: &mut self.stack, lent };
        let took = self.port.next_packet(&mut inbound);
        self.link.taken += usize::from(took);
        took
    }

    /// Returns true if [`Engine::poll`] would probably find nothing. The check is cheaper than a poll, and its result
    /// may be wrong: see [`Port::seems_idle`].
    #[inline(always)]
    pub fn seems_idle(&self) -> bool {
        self.port.seems_idle() && !self.link.has_work()
    }

    /// Returns a number that grows when queued packets leave, and when bytes are read in a sender's memory. A poll that
    /// moves such bytes may return no event. A waiting caller compares two values, so that it does not rest while bytes
    /// move.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.link.moves
    }

    /// Returns the time at which [`Engine::poll`] must be called next, even if the port has no events. It is
    /// [`Time::ZERO`] (immediately) if there is work left, for example packets that wait for room in the port, if a
    /// deadline has passed, if an address is wanted, or if [`Engine::next_packet`] has taken packets, which may have
    /// ended requests. Otherwise it is the earliest of the next deadline, the next repeated hello and the time by which
    /// gathered messages must be sent, or [`Time::NEVER`] if there are none of these.
    pub fn due(&self) -> Time {
        let link = &self.link;
        let has_timer = link.timers.next() <= link.now;
        let has_work = link.has_lists()
            || !link.retired.is_empty()
            || !link.retired_slabs.is_empty()
            || !link.retired_registrations.is_empty()
            || self.stack.backlog() > 0;
        if link.taken > 0 || has_timer || has_work || !link.wanted.is_empty() {
            return Time::ZERO;
        }
        link.timers.next().min(link.gathered_due)
    }

    /// Does the work that events and calls have queued. Timers are left for the next poll.
    ///
    /// A deadline that has passed must not end a receive whose message has arrived and still lies in the port. So only
    /// polls handle timers, after they have taken events from the port. While polls bring events, a protocol may put
    /// deadlines off to the next poll ([`Expiry::Later`]), for a bounded time.
    pub fn drive<L: Lent>(&mut self, lent: &mut L) {
        self.drain(lent, None);
    }

    /// Does the queued work. `polled` is the number of events of the poll that calls this, or `None` outside of a poll;
    /// then no timer is taken.
    fn drain<L: Lent>(&mut self, lent: &mut L, polled: Option<usize>) {
        while let Some((peer, contact)) = self.link.contacts.pop() {
            self.connect(peer, &contact);
        }
        self.fence_disconnected();
        if !self.link.gatherers.is_empty() {
            self.link.list_gatherers();
        }
        self.replenish();
        let mut pieces = self.stack.backlog().min(PIECES_MAX);
        while pieces > 0 {
            let mut out = Out { port: &mut self.port, link: &mut self.link };
            if let Err(fault) = self.stack.drive(&mut out, &mut pieces, lent) {
                self.fault(fault);
            }
        }
        if let Some(events) = polled {
            // Timers are handled after `Stack::drive`. In `drive` receives take the bytes that have arrived, and a
            // receive that has all its bytes ends before its deadline is checked.
            self.take_timers(events > 0);
        }
        for _ in 0..self.link.senders.len() {
            let Some(peer) = self.link.senders.pop_front() else { break };
            let before = self.link.peers[peer].sequence;
            self.link.peers[peer].listed = false;
            self.flush(peer);
            // If the port had no room, `flush` has listed the peer again. Then no bytes of long messages are sent: the
            // queued packets must go first.
            if !self.link.peers[peer].listed {
                self.push(peer, lent);
                // A goodbye that waited for these bytes can be sent now.
                self.flush(peer);
            }
            self.link.moves += u64::from(self.link.peers[peer].sequence != before);
        }
        // A peer may have failed in this call. Its path must be cut off before the memory of its operations is used for
        // anything else.
        self.fence_disconnected();
        for (region, registration) in std::mem::take(&mut self.link.retired_slabs) {
            self.port.deregister(registration);
            self.link.quarantine.reclaim(region);
        }
        for registration in std::mem::take(&mut self.link.retired_registrations) {
            self.port.deregister(registration);
        }
        for (region, lease) in std::mem::take(&mut self.link.retired) {
            Out { port: &mut self.port, link: &mut self.link }.end_lease(region, lease);
        }
        self.link.quarantine.release();
        self.link.has_work = self.link.has_lists() || self.stack.backlog() > 0;
    }

    /// Handles the timers that are due.
    fn take_timers(&mut self, has_events: bool) {
        let now = self.link.now;
        let mut put_off = Vec::new();
        while let Some((due, timer)) = self.link.timers.take(now) {
            match timer {
                Timer::Deadline(id) => {
                    let busy = has_events && now.since(due) < LATE_NS;
                    if self.stack.expired(&mut self.link, id, due, busy) == Expiry::Later {
                        put_off.push((due, id));
                    }
                }
                Timer::Hello(peer) => {
                    let state = &mut self.link.peers[peer];
                    // A different due time means that the timer is void: it was set for a former incarnation of the
                    // peer.
                    if state.greeting_due != due {
                        continue;
                    }
                    state.greeting_due = Time::NEVER;
                    if state.is_alive() && state.path.is_none() && self.stack.has_data_for(peer) {
                        // The port had no room for the peer, and may have room by now.
                        self.link.seek(peer);
                        continue;
                    }
                    let waits = state.packets.front().is_some_and(super::Packet::is_hello);
                    if state.is_alive() && state.path.is_some() && !state.answered && !waits {
                        // If the lost hello reported that there is no credit, the repeated one must report it too.
                        let has_none = state.heard && state.grant.given() == 0;
                        self.greet(peer, if has_none { Flags::EXHAUSTED } else { Flags::empty() });
                    }
                }
            }
        }
        for (due, id) in put_off {
            self.link.timers.put_off(due, id);
        }
    }

    /// Requests the address of a rank, as the first message to that rank would. The call has no effect if there is a
    /// path to the rank, if its address was requested before, or if the rank has ended.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn seek(&mut self, rank: WorldRank) -> Result<(), Error> {
        let peer = self.link.find_or_meet(rank)?;
        if self.link.peers[peer].is_alive() {
            self.link.seek(peer);
        }
        Ok(())
    }

    /// Notes that this incarnation of a rank takes part. Earlier incarnations end, and later reports about them are
    /// ignored. The call has no effect if a later incarnation is known. The address of the rank is requested when it is
    /// needed.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_takes_part(&mut self, rank: WorldRank, incarnation: u32) -> Result<(), Error> {
        let peer = self.link.find_or_meet(rank)?;
        let incarnation = Incarnation::new(incarnation);
        if self.link.peers[peer].incarnation != Some(incarnation)
            && self.link.expects(&mut self.stack, peer, incarnation)
        {
            self.fence_disconnected();
            self.link.peers[peer].incarnation = Some(incarnation);
        }
        Ok(())
    }

    /// Returns the ranks whose address the engine needs, and forgets them. The caller finds the address and passes it
    /// to [`Engine::introduce`].
    pub fn wanted(&mut self) -> impl Iterator<Item = WorldRank> + '_ {
        self.link.wanted.drain(..)
    }

    /// Returns the peers that this rank has given up since the last call. The engine can send nothing to them any more,
    /// because it has cut off the path, so the caller must inform them by other means: see [`Engine::peer_gave_up`].
    pub fn given_up(&mut self) -> impl Iterator<Item = GivenUp> + '_ {
        self.link.given_up.drain(..)
    }

    /// Returns true if [`Engine::given_up`] would return a peer.
    #[inline(always)]
    pub fn has_given_up(&self) -> bool {
        !self.link.given_up.is_empty()
    }

    /// Sets the address and the incarnation of a rank. The call has no effect if the engine knows a later incarnation
    /// of the rank. If it knows an earlier one, that incarnation fails.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn introduce(&mut self, rank: WorldRank, incarnation: u32, address: Address) -> Result<(), Error> {
        let peer = self.link.find_or_meet(rank)?;
        self.link.contacts.push((peer, Contact { incarnation: Incarnation::new(incarnation), address }));
        self.drive(&mut ());
        Ok(())
    }

    /// Returns the port and the link in one value, and the protocols. The calls of a protocol need all three.
    #[inline(always)]
    pub fn parts(&mut self) -> (Out<'_, P>, &mut S) {
        (Out { port: &mut self.port, link: &mut self.link }, &mut self.stack)
    }

    /// Ends the peer that a protocol has reported as failed.
    #[cold]
    pub fn fault(&mut self, fault: Fault) {
        self.link.fail(&mut self.stack, fault.peer, *fault.cause);
    }

    /// Returns the link.
    #[inline(always)]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the link for changes.
    #[inline(always)]
    pub fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Returns the protocols.
    #[inline(always)]
    pub fn stack(&self) -> &S {
        &self.stack
    }

    /// Returns the protocols for changes.
    #[inline(always)]
    pub fn stack_mut(&mut self) -> &mut S {
        &mut self.stack
    }

    /// Returns the port.
    #[inline(always)]
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the port for changes. Use it only for settings and for waiting: the engine relies on the completions of
    /// the operations that it has posted.
    #[inline(always)]
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the port's capabilities for a rank, once the path to it is known.
    pub fn caps_for(&mut self, rank: WorldRank) -> Option<&Caps> {
        let peer = self.link.find(rank)?;
        Some(self.port.caps_for(self.link.peers[peer].path?))
    }

    /// Checks the invariants that hold between two calls, and panics if one is broken: for tests, simulation and
    /// fuzzing.
    pub fn check_invariants(&self) {
        self.link.check_invariants();
    }

    /// Passes a packet to the engine as if the port had received it: for tests with forged packets.
    #[doc(hidden)]
    pub fn sink<'a, L: Lent>(&'a mut self, lent: &'a mut L) -> impl crate::Sink + 'a {
        Inbound { link: &mut self.link, stack: &mut self.stack, lent }
    }
}

impl Link {
    /// Returns true if a peer has something to send or needs credit, if a path must be fenced, or if a peer must be
    /// connected to. Gathered messages do not count, because they may wait.
    fn has_lists(&self) -> bool {
        !(self.senders.is_empty()
            && self.needs_credit.is_empty()
            && self.to_fence.is_empty()
            && self.contacts.is_empty())
    }

    /// Checks that the sums and lists of the link agree with the states of its peers.
    fn check_invariants(&self) {
        let unused: u64 = self.peers.iter().map(|(_, state)| u64::from(state.grant.unused())).sum();
        assert_eq!(self.credit_out, unused, "the credit that is out is the sum over all peers");
        let mut listed = vec![0; self.peers.len()];
        self.senders.iter().for_each(|peer| listed[peer.index()] += 1);
        let mut needs_credit = vec![0; self.peers.len()];
        self.needs_credit.iter().for_each(|peer| needs_credit[peer.index()] += 1);
        let mut ended = 0;
        for (peer, state) in self.peers.iter() {
            assert_eq!(listed[peer.index()], usize::from(state.listed), "{peer:?} in the list of senders");
            assert_eq!(
                needs_credit[peer.index()],
                usize::from(state.needs_credit),
                "{peer:?} in the list of peers that need credit"
            );
            assert_eq!(self.peers.find_slowly(state.rank), Some(peer), "the name of rank {}", state.rank);
            assert!(
                !(state.answered && state.incarnation.is_none()),
                "{peer:?} answered without an incarnation"
            );
            ended += u32::from(!state.is_alive() && state.rank != self.identity.rank);
        }
        assert_eq!(self.ended_peers, ended, "ranks that have ended");
        assert!(self.has_work || !self.has_lists() && self.gatherers.is_empty(), "work is noted");
        self.check_bundles();
    }
}

/// The maximum number of pieces of deferred work in one drive of the engine. It bounds the duration of a drive.
const PIECES_MAX: usize = 64;
