//! Observing an engine: counters, usage, reports.

use std::collections::BTreeMap;

use samite_fabric::link::{Cause, Error, Fate, OtherTags, Report, Time, Traffic, WorldRank};
use samite_fabric::{Caps, PeerId, Port};
use samite_matching::Pattern;

use super::{Engine, WithTagged as _};
use crate::request::State;
use crate::tagged::HasTagged;
use crate::{Config, Counters, Untaken, Usage};

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Returns the counts of events so far.
    pub fn counters(&self) -> Counters {
        let (link, tagged) = (self.inner.link(), self.inner.tagged());
        let samite_fabric::link::Counters {
            rejected,
            stale,
            again,
            failed_peers,
            bundles,
            registrations,
            ..
        } = *link.counters();
        let mut counters = Counters {
            unexpected_max: tagged.unexpected_max,
            refused: tagged.refused,
            lost: tagged.outbox.lost.values().sum(),
            quarantined: link.quarantined().0,
            rejected,
            stale,
            again,
            failed_peers,
            bundles,
            registrations,
            ..Counters::default()
        };
        for (_, traffic) in self.traffic() {
            counters.eager += traffic.eager_sent;
            counters.rendezvous += traffic.rendezvous_sent;
            counters.unexpected += traffic.unexpected;
        }
        counters
    }

    /// Returns the counts of messages exchanged with each rank that this rank has had contact with.
    pub fn traffic(&self) -> impl Iterator<Item = (WorldRank, Traffic)> + '_ {
        self.inner.link().peers().map(|(_, state)| (state.rank(), *state.traffic()))
    }

    /// Returns the resources that the engine holds.
    pub fn usage(&self) -> Usage {
        let (link, tagged) = (self.inner.link(), self.inner.tagged());
        let packets: usize = link.peers().map(|(_, state)| state.packets_waiting()).sum();
        let queues = tagged.queues.iter().map(|queues| {
            queues.messages.len() + queues.agreements.len() + queues.pushes.len() + queues.partitioned()
        });
        let registered = link.registered();
        Usage {
            peers: link.peers().count(),
            requests: tagged.requests.len(),
            operations: tagged.one_sided.len(),
            queued: packets + queues.sum::<usize>(),
            credit_granted: link.credit_out(),
            outbox: tagged.outbox.cost(),
            gathered: link.gathered(),
            unexpected_messages: tagged.matcher.unexpected_len(),
            unexpected: link.held(),
            envelopes: tagged.envelopes_cost,
            registrations: registered.used + registered.idle,
            registered: registered.bytes,
            registered_used: registered.used_bytes,
            partitioned: tagged.partitioned.len().0,
            quarantined: link.quarantined().1,
        }
    }

    /// Returns the messages that other ranks have not taken although their sends have returned, by receiver. They are
    /// the messages in the outbox, and the messages from the outbox that the port has accepted and the receiver has not
    /// acknowledged.
    pub fn untaken(&self) -> impl Iterator<Item = Untaken> {
        self.inner.tagged().untaken(self.inner.link())
    }

    /// Returns the number of messages from the outbox that were not delivered, by receiver.
    pub fn lost(&self) -> &BTreeMap<WorldRank, u64> {
        &self.inner.tagged().outbox.lost
    }

    /// Checks the invariants that hold between two calls, and panics if one is broken: for tests, simulation and
    /// fuzzing.
    pub fn check_invariants(&self) {
        self.inner.check_invariants();
        self.inner.tagged().check_invariants(self.inner.link());
    }

    /// Describes the oldest operation that has not ended, and the event that it awaits.
    pub fn oldest(&mut self, now: Time) -> Option<Report> {
        let (out, tagged) = self.inner.with_tagged();
        let pending = tagged
            .requests
            .iter()
            .filter(|(_, request)| request.result.is_none() && !request.copied.is_kept())
            // A composite operation waits for its messages, which have requests of their own.
            .filter(|(_, request)| !matches!(request.state, State::Composite));
        let (oldest, _) = pending.min_by_key(|(_, request)| request.born)?;
        tagged.report(out.link, oldest, now)
    }

    /// Counts the unexpected messages that the pattern does not match only because they have another tag. Returns their
    /// number, and the tag of the first one.
    pub fn other_tags(&self, pattern: &Pattern) -> Option<OtherTags> {
        self.inner.tagged().other_tags(pattern)
    }

    /// Returns the port's capabilities for a rank, once the path to it is known.
    pub fn caps_for(&mut self, rank: WorldRank) -> Option<&Caps> {
        self.inner.caps_for(rank)
    }

    /// Returns the path to a rank, once it is known.
    pub fn peer_id(&mut self, rank: WorldRank) -> Option<PeerId> {
        let link = self.inner.link_mut();
        let peer = link.find(rank)?;
        link.peer(peer).path()
    }

    /// Returns the incarnation of a rank that takes part, if known.
    pub fn incarnation(&mut self, rank: WorldRank) -> Option<u32> {
        self.inner.incarnation(rank)
    }

    /// Returns the error of an operation with a rank that has ended for good, or `None` if a process of the rank takes
    /// part or may still do so.
    pub fn gone(&mut self, rank: WorldRank) -> Option<Error> {
        let cause = self.inner.gone(rank)?;
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Returns true if a rank's process is known to be stopped.
    pub fn is_stopped(&mut self, rank: WorldRank) -> bool {
        self.inner.is_stopped(rank)
    }

    /// Returns why a rank takes no part, or `None` if it takes part or is unknown.
    pub fn failure(&mut self, rank: WorldRank) -> Option<Cause> {
        self.inner.failure(rank)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.inner.tagged().config
    }

    /// Returns the port.
    pub fn port(&self) -> &P {
        self.inner.port()
    }

    /// Returns the port for changes: see [`link::Engine::port_mut`](samite_fabric::link::Engine::port_mut).
    pub fn port_mut(&mut self) -> &mut P {
        self.inner.port_mut()
    }
}
