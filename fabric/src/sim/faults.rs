//! The faults that the caller of [`Net`](super::Net) injects, and fences.

use std::collections::{BTreeMap, VecDeque};

use super::operation::{Kind, Operation};
use super::world::{Node, Process, Ready, Standing, World};
use super::{Cut, What};
use crate::{Failure, PeerId, SplitMix64, registrations::Registrations};

impl World {
    pub(super) fn start(&mut self, rank: u32) -> Process {
        let number = self.nodes.get(&rank).map_or(1, |node| node.incarnation + 1);
        let node = Node {
            incarnation: number,
            alive: true,
            paused: false,
            missed_from: 0,
            registrations: Registrations::new(SplitMix64::new(self.rng.next_u64())),
            ready: VecDeque::new(),
            waiting: Vec::new(),
            peers: Vec::new(),
            barred: BTreeMap::new(),
            sending_until: 0,
            storm_until: 0,
            outstanding: 0,
        };
        self.nodes.insert(rank, node);
        self.note(What::Started { process: Process { rank, incarnation: number } });
        Process { rank, incarnation: number }
    }

    /// Ends an incarnation in the midst of its operations.
    pub(super) fn kill(&mut self, rank: u32) {
        if let Some(process) = self.present(rank) {
            self.note(What::Killed { process });
            self.end_process(process, false);
        }
    }

    /// Ends a process whose port was closed: its posted operations still arrive.
    pub(super) fn retire(&mut self, process: Process) {
        if self.is_present(process) {
            self.end_process(process, true);
        }
    }

    fn end_process(&mut self, process: Process, all_arrives: bool) {
        let rank = process.rank;
        let notice = self.rng.below(1 + 4 * self.config.costs.latency_ns);
        let (now, registrations) = (self.now, Registrations::new(SplitMix64::new(0)));
        let node = self.node(rank);
        node.alive = false;
        node.missed_from = now + notice;
        node.ready.clear();
        node.waiting.clear();
        node.registrations = registrations;
        for to in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.pair(to, rank).unpolled = 0;
            self.end_stream(process, to, None, all_arrives);
        }
        // All one-sided operations on this process fail, also those that would have begun only at its next poll.
        for serial in
            self.operations_where(|operation| operation.target == process && operation.is_one_sided())
        {
            self.lose(serial);
        }
        let watchers = self.nodes.iter().filter(|(_, node)| node.alive).flat_map(|(&watcher, node)| {
            let known = node
                .peers
                .iter()
                .enumerate()
                .filter(|(_, peer)| peer.standing == Standing::Known && peer.rank == rank);
            known.map(move |(index, _)| {
                (Process { rank: watcher, incarnation: node.incarnation }, PeerId(index as u32))
            })
        });
        for (watcher, peer) in watchers.collect::<Vec<_>>() {
            self.announce_loss(watcher, peer);
        }
    }

    pub(super) fn pause(&mut self, rank: u32, paused: bool) {
        if self.present(rank).is_some() {
            self.node(rank).paused = paused;
            self.note(if paused { What::Paused { rank } } else { What::Resumed { rank } });
        }
    }

    pub(super) fn partition(&mut self, a: u32, b: u32, cut: Cut) {
        self.note(What::Cut { a, b, cut });
        for (from, to) in [(a, b), (b, a)] {
            self.pair(from, to).cut = Some(cut);
        }
    }

    pub(super) fn heal(&mut self, a: u32, b: u32) {
        self.note(What::Healed { a, b });
        for (from, to) in [(a, b), (b, a)] {
            self.pair(from, to).cut = None;
            for event in std::mem::take(&mut self.pair(from, to).stalled) {
                let time = self.now + self.config.costs.latency_ns + self.delay();
                self.schedule(time, event);
            }
        }
    }

    pub(super) fn inject(&mut self, rank: u32, bytes: &[u8]) {
        if self.present(rank).is_some() {
            self.node(rank).ready.push_back(Ready::Packet(None, bytes.to_vec()));
        }
    }

    pub(super) fn fence(&mut self, me: Process, peer: PeerId) {
        let Some(known) = self
            .node(me.rank)
            .peers
            .get_mut(peer.0 as usize)
            .filter(|known| known.standing != Standing::Fenced)
        else {
            return;
        };
        known.standing = Standing::Fenced;
        let (rank, resolved) = (known.rank, known.incarnation);
        self.note(What::Fenced { by: me, peer: peer.0 });
        if !self.config.caps.fence {
            return;
        }
        // An incarnation that started after the peer was resolved is another peer.
        let last = match self.nodes.get(&rank) {
            _ if self.config.moves => resolved,
            Some(node) if node.alive && node.incarnation > resolved => node.incarnation - 1,
            Some(node) => node.incarnation,
            None => resolved,
        };
        self.end_stream(me, rank, Some(peer), false);
        // Everything that these incarnations of the peer have sent so far is lost, even if the peer is resolved again.
        let until = self.serial();
        self.pair(rank, me.rank).doomed.extend((1..=last).map(|incarnation| (incarnation, 0, until)));
        let theirs = |from: Process| from.rank == rank && from.incarnation <= last;
        for serial in self.operations_where(|operation| theirs(operation.origin) && operation.target == me) {
            self.lose(serial);
        }
        let node = self.node(me.rank);
        node.barred.insert(rank, last);
        let before = node.ready.iter().filter(|ready| matches!(ready, Ready::Packet(..))).count();
        node.ready.retain(|ready| match ready {
            Ready::Packet(Some(from), _) | Ready::Notified(from, _) => !theirs(*from),
            Ready::Lost(lost) => *lost != peer,
            _ => true,
        });
        let after = node.ready.iter().filter(|ready| matches!(ready, Ready::Packet(..))).count();
        self.pair(rank, me.rank).unpolled -= before - after;
    }

    /// Ends the operations under way from `from` to rank `to`: those that were posted to `peer`, or all of them if it
    /// is `None`. The packets, puts and changes before a random point (all of them if `all_arrives`) still arrive,
    /// without use of the sender's memory. The later ones are lost, and so are all gets.
    fn end_stream(&mut self, from: Process, to: u32, peer: Option<PeerId>, all_arrives: bool) {
        let mine = |operation: &Operation| {
            operation.origin == from
                && operation.target.rank == to
                && peer.is_none_or(|peer| operation.peer == peer)
        };
        let serials = self.operations_where(mine);
        let packets =
            self.pair(from.rank, to).packets.range((from.incarnation, 0)..=(from.incarnation, u64::MAX));
        let first = packets.map(|packet| packet.1).chain(serials.first().copied()).min();
        let end = self.serial();
        let first = first.unwrap_or(end);
        let cut = if all_arrives { end } else { first + self.rng.below(1 + end - first) };
        self.pair(from.rank, to).doomed.push((from.incarnation, cut, end));
        for serial in serials {
            let Some(operation) = self.operations.get_mut(&serial) else { continue };
            operation.read();
            let drop = operation.hangs || serial >= cut || matches!(operation.kind, Kind::Get { .. });
            self.complete(serial, Err(Failure::Fenced));
            if drop {
                self.operations.remove(&serial);
                self.pair(from.rank, to).forget(from.incarnation, serial);
            }
        }
        self.release(from.rank, to);
    }

    fn operations_where(&self, is_meant: impl Fn(&Operation) -> bool) -> Vec<u64> {
        self.operations
            .iter()
            .filter(|(_, operation)| is_meant(operation))
            .map(|(&serial, _)| serial)
            .collect()
    }

    fn present(&self, rank: u32) -> Option<Process> {
        self.nodes
            .get(&rank)
            .filter(|node| node.alive)
            .map(|node| Process { rank, incarnation: node.incarnation })
    }
}
