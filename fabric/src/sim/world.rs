//! The state of a simulated network, its clock, and the delivery of packets.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Weak;

use super::trace::{Mark, Trace};
use super::{Config, Cut, Death, What, operation::Operation};
use crate::{Address, Failure, OpId, Order, PeerId, PortError, SplitMix64, registrations::Registrations};

/// One incarnation of a rank. A restart of the rank begins another one. Incarnations are counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The rank.
    pub rank: u32,
    /// The number of the incarnation.
    pub incarnation: u32,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.incarnation)
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) config: Config,
    pub(super) rng: SplitMix64,
    /// Random numbers that decide if an operation overtakes another one where no order is claimed. They are separate
    /// from `rng`, so that runs without puts and changes do not depend on them.
    orders: SplitMix64,
    pub(super) now: u64,
    pub(super) trace: Trace,
    pub(super) nodes: BTreeMap<u32, Node>,
    pub(super) pairs: BTreeMap<(u32, u32), Pair>,
    /// The operations under way, by serial number. A packet from registered memory is an operation too.
    pub(super) operations: BTreeMap<u64, Operation>,
    /// Exposures by key. Some of them may have ended.
    pub(super) exposures: BTreeMap<u64, Exposed>,
    agenda: BinaryHeap<Due>,
    scheduled: u64,
    serials: u64,
    token: u64,
}

/// Exposed bytes. `held` is alive until the exposure is dropped.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) bytes: Vec<u8>,
    pub(super) held: Weak<()>,
}

/// A rank in its latest incarnation.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) incarnation: u32,
    pub(super) alive: bool,
    pub(super) paused: bool,
    /// The time from which others know that the rank is dead.
    pub(super) missed_from: u64,
    pub(super) registrations: Registrations,
    pub(super) ready: VecDeque<Ready>,
    /// Operations of others that wait for this rank to poll.
    pub(super) waiting: Vec<u64>,
    /// The resolved peers by [`PeerId`].
    pub(super) peers: Vec<Peer>,
    /// For each fenced rank, the last incarnation whose packets are refused until the rank is resolved anew.
    pub(super) barred: BTreeMap<u32, u32>,
    /// The time from which the rank can send again.
    pub(super) sending_until: u64,
    pub(super) storm_until: u64,
    /// The number of puts and gets under way.
    pub(super) outstanding: usize,
}

/// An event that a poll will report.
#[derive(Debug)]
pub(super) enum Ready {
    /// A packet, and its sender unless the packet was injected.
    Packet(Option<Process>, Vec<u8>),
    Notified(Process, u64),
    Completed(OpId, Result<(), Failure>),
    Changed(OpId, u64),
    Lost(PeerId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) rank: u32,
    /// The incarnation that was present when the peer was resolved.
    pub(super) incarnation: u32,
    pub(super) standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Known,
    /// The port has reported the loss; operations under way to the peer wait for a fence.
    Lost,
    Fenced,
}

/// The packets and operations under way from one rank to another.
#[derive(Debug, Default)]
pub(super) struct Pair {
    /// Packets, each with the sender's incarnation and the packet's serial number.
    pub(super) packets: BTreeSet<(u32, u64)>,
    /// The number of packets that have arrived and wait to be polled.
    pub(super) unpolled: usize,
    /// Puts whose bytes have not landed, each with the origin's incarnation and the put's serial number.
    pub(super) puts: BTreeSet<(u32, u64)>,
    /// Changes that have not taken place, each with the origin's incarnation and the change's serial number.
    pub(super) changes: BTreeSet<(u32, u64)>,
    /// Events that must not happen before earlier packets or operations of the pair have ended.
    pub(super) parked: Vec<Event>,
    pub(super) cut: Option<Cut>,
    /// Events that wait for the network to heal.
    pub(super) stalled: Vec<Event>,
    /// Packets and operations that were lost with their sender or by a fence: the sender's incarnation, and a range of
    /// serial numbers without its end.
    pub(super) doomed: Vec<(u32, u64, u64)>,
}

impl Pair {
    /// Notes that a put or a change has landed or was lost.
    pub(super) fn forget(&mut self, incarnation: u32, serial: u64) {
        self.puts.remove(&(incarnation, serial));
        self.changes.remove(&(incarnation, serial));
    }

    pub(super) fn dooms(&self, incarnation: u32, serial: u64) -> bool {
        self.doomed
            .iter()
            .any(|&(doomed, first, end)| doomed == incarnation && (first..end).contains(&serial))
    }
}

#[derive(Debug)]
pub(super) enum Event {
    /// A packet arrives.
    Packet(Packet),
    /// An operation, given by its serial number, reaches its target.
    Begin(u64),
    /// The bytes of an operation move at its target.
    Land(u64),
    /// An operation ends.
    End(u64, Result<(), Failure>),
    /// A port learns of a peer's death.
    Loss(Process, PeerId),
    /// No event; it only moves the clock.
    Tick,
}

#[derive(Debug)]
pub(super) struct Packet {
    pub(super) serial: u64,
    pub(super) from: Process,
    pub(super) to: Process,
    pub(super) bytes: Vec<u8>,
    /// True if the operation with the same serial number appends bytes from registered memory.
    pub(super) zcopy: bool,
}

/// An event with its time; `number` orders events of the same time.
#[derive(Debug)]
struct Due {
    time: u64,
    number: u64,
    event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap returns the greatest first.
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl World {
    pub(super) fn new(seed: u64, config: Config) -> Self {
        let mut rng = SplitMix64::new(seed);
        Self {
            config,
            token: rng.next_u64(),
            rng,
            orders: SplitMix64::new(!seed),
            now: 0,
            trace: Trace::default(),
            nodes: BTreeMap::new(),
            pairs: BTreeMap::new(),
            operations: BTreeMap::new(),
            exposures: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            scheduled: 0,
            serials: 0,
        }
    }

    pub(super) fn address(&self, rank: u32) -> Address {
        let incarnation =
            self.nodes.get(&rank).filter(|_| self.config.moves).map_or(0, |node| node.incarnation);
        Address([&self.token.to_le_bytes()[..], &rank.to_le_bytes(), &incarnation.to_le_bytes()].concat())
    }

    pub(super) fn resolve(&mut self, me: Process, address: &Address) -> Result<PeerId, PortError> {
        let bad = |why: &str| PortError::BadAddress { why: why.into() };
        let rank = address.0.strip_prefix(&self.token.to_le_bytes()).ok_or_else(|| bad("of another net"))?;
        let (rank, place) = rank.split_at_checked(4).ok_or_else(|| bad("it is too short"))?;
        let number =
            |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| bad("it is too long"));
        let (rank, place) = (number(rank)?, number(place)?);
        let known = |(_, peer): &(usize, &Peer)| {
            let same_place = place == 0 || peer.incarnation == place;
            peer.rank == rank && same_place && peer.standing == Standing::Known
        };
        if let Some((index, _)) = self.node(me.rank).peers.iter().enumerate().find(known) {
            return Ok(PeerId(index as u32));
        }
        let (incarnation, dead) = match self.nodes.get(&rank) {
            Some(node) if place == 0 => (node.incarnation, !node.alive),
            Some(node) => (place, !node.alive || node.incarnation != place),
            None => (1, false),
        };
        let peers_max = self.config.caps.peers_max;
        let node = self.node(me.rank);
        if node.peers.iter().filter(|peer| peer.standing == Standing::Known).count() >= peers_max {
            return Err(PortError::Exhausted { what: "peers", hint: "raise Caps::peers_max".into() });
        }
        let peer = PeerId(node.peers.len() as u32);
        node.peers.push(Peer { rank, incarnation, standing: Standing::Known });
        node.barred.remove(&rank);
        if dead {
            self.announce_loss(me, peer);
        }
        Ok(peer)
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.agenda.peek().map(|due| due.time)
    }

    pub(super) fn advance_to(&mut self, now: u64) {
        while self.next().is_some_and(|time| time <= now) {
            let Some(due) = self.agenda.pop() else { break };
            self.now = self.now.max(due.time);
            self.happen(due.event);
        }
        self.now = self.now.max(now);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Packet(packet) => self.arrive(packet),
            Event::Begin(serial) => self.begin(serial, false),
            Event::Land(serial) => self.land(serial),
            Event::End(serial, result) => self.end(serial, result),
            Event::Loss(watcher, peer) => {
                if self.is_present(watcher)
                    && self.node(watcher.rank).peers[peer.0 as usize].standing == Standing::Known
                {
                    self.node(watcher.rank).ready.push_back(Ready::Lost(peer));
                }
            }
            Event::Tick => {}
        }
    }

    pub(super) fn schedule(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.agenda.push(Due { time: time.max(self.now), number: self.scheduled, event });
    }

    /// Returns the target if a post of `me` towards `peer` is accepted, or `None` if the post must be repeated later.
    pub(super) fn admit(&mut self, me: Process, peer: PeerId) -> Result<Option<Process>, PortError> {
        if !self.is_running(me) {
            return Ok(None);
        }
        let target = self.reached(me, peer)?;
        let is_held_back = self.storms(me);
        Ok(target.filter(|_| !is_held_back))
    }

    /// Returns the target if `me` reaches it by `peer`, or `None` if it does not reach it at present.
    pub(super) fn target(&mut self, me: Process, peer: PeerId) -> Result<Option<Process>, PortError> {
        if self.is_running(me) { self.reached(me, peer) } else { Ok(None) }
    }

    /// Returns what [`target`](Self::target) returns for a process that runs.
    fn reached(&mut self, me: Process, peer: PeerId) -> Result<Option<Process>, PortError> {
        let node = self.node(me.rank);
        let Some(&Peer { rank, incarnation, standing: Standing::Known }) = node.peers.get(peer.0 as usize)
        else {
            return Err(PortError::PeerGone(peer));
        };
        let (now, told) = (self.now, self.config.death != Death::Silent);
        let Some(target) = self.nodes.get(&rank) else { return Ok(None) };
        if target.alive && (target.incarnation == incarnation || !told && !self.config.moves) {
            return Ok(Some(Process { rank, incarnation: target.incarnation }));
        }
        // Posts to a dead process are accepted until others learn of its death.
        let noticed = target.incarnation > incarnation || now >= target.missed_from;
        Ok((!noticed).then_some(Process { rank, incarnation }))
    }

    /// Returns true if `me` is in a period in which all its posts return [`Post::Again`](crate::Post::Again). Such a
    /// period may begin with this call.
    fn storms(&mut self, me: Process) -> bool {
        let now = self.now;
        if self.node(me.rank).storm_until > now {
            return true;
        }
        let begins = self.rng.happens(self.config.storms_per_million);
        if begins {
            let until = now + 1 + self.rng.below(self.config.storm_ns);
            self.node(me.rank).storm_until = until;
            self.schedule(until, Event::Tick);
        }
        begins
    }

    /// Returns true if the channel takes no more packets now.
    pub(super) fn is_full(&mut self, from: Process, to: Process) -> bool {
        let depth = self.config.channel_depth;
        let pair = self.pair(from.rank, to.rank);
        pair.packets.len() + pair.unpolled >= depth
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// Returns the time of arrival of `len` bytes that `from` begins to send now.
    pub(super) fn arrival(&mut self, from: Process, len: usize) -> u64 {
        let costs = self.config.costs;
        let begin = self.node(from.rank).sending_until.max(self.now + costs.overhead_ns);
        let bytes = len as u64 * costs.gap_per_byte_ps / 1000;
        self.node(from.rank).sending_until = begin + costs.gap_ns + bytes;
        begin + bytes + costs.latency_ns + costs.overhead_ns + self.delay()
    }

    pub(super) fn delay(&mut self) -> u64 {
        let late = self.rng.happens(self.config.spikes_per_million);
        self.rng.below(1 + if late { self.config.spike_ns } else { self.config.jitter_ns })
    }

    /// Returns a random delay for a put or a change, so that later operations can overtake it unless an order is
    /// claimed.
    pub(super) fn lateness(&mut self) -> u64 {
        if self.config.caps.order == Order::all() || self.orders.below(2) == 0 {
            return 0;
        }
        let costs = self.config.costs;
        self.orders.below(8 * (costs.latency_ns + costs.overhead_ns))
    }

    pub(super) fn send(&mut self, packet: Packet, body_len: usize) {
        let (from, to, serial) = (packet.from, packet.to, packet.serial);
        let len = packet.bytes.len() + body_len;
        self.note(What::Sent { from, to, serial, packet: Mark::new(&packet.bytes, body_len) });
        self.pair(from.rank, to.rank).packets.insert((from.incarnation, serial));
        let arrival = self.arrival(from, len);
        self.schedule(arrival, Event::Packet(packet));
    }

    fn arrive(&mut self, packet: Packet) {
        let Packet { serial, from, to, .. } = packet;
        let overtakes_puts = !self.config.caps.order.contains(Order::SEND_AFTER_PUT);
        let pair = self.pair(from.rank, to.rank);
        let is_first = |set: &BTreeSet<(u32, u64)>| {
            set.range((from.incarnation, 0)..).next().is_none_or(|&first| first >= (from.incarnation, serial))
        };
        if !is_first(&pair.packets) || !(overtakes_puts || is_first(&pair.puts)) {
            return pair.parked.push(Event::Packet(packet));
        }
        if pair.cut == Some(Cut::Stall) {
            return pair.stalled.push(Event::Packet(packet));
        }
        let lost = pair.cut == Some(Cut::Drop) || pair.dooms(from.incarnation, serial);
        pair.packets.remove(&(from.incarnation, serial));
        match self.receiver(from, to) {
            Some(at) if !lost => {
                let mut bytes = packet.bytes;
                if packet.zcopy {
                    self.gather(serial, &mut bytes);
                }
                self.note(What::Arrived { at, serial, packet: Mark::new(&bytes, 0) });
                self.pair(from.rank, to.rank).unpolled += 1;
                self.node(to.rank).ready.push_back(Ready::Packet(Some(from), bytes));
            }
            _ => {
                self.note(What::Vanished { serial });
                if packet.zcopy {
                    self.lose(serial);
                }
            }
        }
        self.release(from.rank, to.rank);
    }

    /// Returns the process that receives packets from `from` to `to`: `to` itself or, if the provider identifies peers
    /// by address alone, the present incarnation of its rank. Returns `None` if there is no such process, or if it has
    /// fenced `from`.
    pub(super) fn receiver(&self, from: Process, to: Process) -> Option<Process> {
        let node = self.nodes.get(&to.rank)?;
        let barred = node.barred.get(&from.rank).is_some_and(|&last| from.incarnation <= last);
        let taken = node.alive && !barred && (node.incarnation == to.incarnation || self.config.stale);
        taken.then_some(Process { rank: to.rank, incarnation: node.incarnation })
    }

    /// Schedules the events that waited for a packet or an operation from `from` to `to`. Call it when such a packet or
    /// operation has ended.
    pub(super) fn release(&mut self, from: u32, to: u32) {
        let now = self.now;
        for event in std::mem::take(&mut self.pair(from, to).parked) {
            self.schedule(now, event);
        }
    }

    pub(super) fn announce_loss(&mut self, watcher: Process, peer: PeerId) {
        if let Death::Told { delay_ns } = self.config.death {
            let time = self.now + self.rng.below(1 + delay_ns);
            self.schedule(time, Event::Loss(watcher, peer));
        }
    }

    pub(super) fn has_events(&self, rank: u32) -> bool {
        let node = self.nodes.get(&rank).filter(|node| node.alive && !node.paused);
        node.is_some_and(|node| !node.ready.is_empty() || !node.waiting.is_empty())
    }

    /// Returns true if that incarnation is the present one.
    pub(super) fn is_present(&self, process: Process) -> bool {
        self.of_present(process).is_some()
    }

    /// Returns true if the process is present and not paused.
    pub(super) fn is_running(&self, process: Process) -> bool {
        self.of_present(process).is_some_and(|node| !node.paused)
    }

    /// Returns the state of the process's rank if that incarnation is the present one.
    fn of_present(&self, process: Process) -> Option<&Node> {
        let is_present = |node: &&Node| node.alive && node.incarnation == process.incarnation;
        self.nodes.get(&process.rank).filter(is_present)
    }

    /// Returns the state of a rank that was started at least once. Every rank that has a port was started.
    pub(super) fn node(&mut self, rank: u32) -> &mut Node {
        self.nodes.get_mut(&rank).expect("the rank was started")
    }

    pub(super) fn pair(&mut self, from: u32, to: u32) -> &mut Pair {
        self.pairs.entry((from, to)).or_default()
    }

    pub(super) fn note(&mut self, what: What) {
        self.trace.push(self.now, what);
    }
}
