//! What can be seen of an engine.

use samite_fabric::{Caps, PeerId, Port};

use super::Engine;
use crate::error::Cause;
use crate::peer::Standing;
use crate::{Config, Counters, Traffic, Usage};

impl<P: Port> Engine<P> {
    /// What the engine did so far.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters { quarantined: self.core.quarantine.count, ..self.core.counters };
        for (_, traffic) in self.traffic() {
            counters.eager += traffic.eager_sent;
            counters.rendezvous += traffic.rendezvous_sent;
            counters.unexpected += traffic.unexpected;
        }
        counters
    }

    /// What was exchanged with each rank that was met.
    pub fn traffic(&self) -> impl Iterator<Item = (u32, Traffic)> + '_ {
        self.core.peers.iter().map(|(_, peer)| (peer.rank, peer.traffic))
    }

    /// What the engine holds.
    pub fn usage(&self) -> Usage {
        let core = &self.core;
        Usage {
            peers: core.peers.len(),
            requests: core.requests.len(),
            operations: core.operations.len(),
            queued: core.peers.iter().map(|(_, peer)| peer.queued()).sum(),
            credit_granted: core.credit_out,
            unexpected_messages: core.matcher.unexpected_len(),
            unexpected: core.unexpected_cost,
            envelopes: core.envelopes_cost,
            quarantined: core.quarantine.bytes(),
        }
    }

    /// What the port can do with a rank; none before the way to it is known.
    pub fn caps_for(&mut self, rank: u32) -> Option<&Caps> {
        let index = self.core.peers.find(rank)?;
        let (path, _) = self.core.peers[index].path?;
        Some(self.port.caps_for(path))
    }

    /// The port's name for a rank; none before the way to it is known.
    pub fn peer_id(&mut self, rank: u32) -> Option<PeerId> {
        let index = self.core.peers.find(rank)?;
        self.core.peers[index].path.map(|(path, _)| path)
    }

    /// Which life of a rank takes part, as far as is known: none if that has failed or left, or nothing is
    /// known of the rank.
    pub fn incarnation(&mut self, rank: u32) -> Option<u32> {
        let index = self.core.peers.find(rank)?;
        let peer = &self.core.peers[index];
        peer.incarnation.filter(|_| peer.standing == Standing::Alive)
    }

    /// Whether a rank's process is stopped, as far as is known.
    pub fn is_stopped(&mut self, rank: u32) -> bool {
        self.core.peers.find(rank).is_some_and(|index| self.core.peers[index].is_stopped)
    }

    /// Why a rank takes no part, as far as is known, and if so.
    pub fn failure(&mut self, rank: u32) -> Option<Cause> {
        let index = self.core.peers.find(rank)?;
        self.core.peers[index].failure()
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port, to be steered; what the engine posted must be left alone.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}
