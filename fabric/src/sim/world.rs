//! The state of a simulated network, its clock, and the way of a packet.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Weak;

use super::trace::{Mark, Trace};
use super::{Config, Cut, Death, What, operation::Operation};
use crate::{Address, Failure, OpId, Order, PeerId, PortError, SplitMix64, registry::Registry};

/// One life of a rank: restarting begins another. Lives count from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// The rank.
    pub rank: u32,
    /// Which of its lives.
    pub number: u32,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.number)
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) config: Config,
    pub(super) rng: SplitMix64,
    /// Chances of the orders that are not claimed. They are apart, so that runs without puts and changes do not depend
    /// on them.
    orders: SplitMix64,
    pub(super) now: u64,
    pub(super) trace: Trace,
    pub(super) nodes: BTreeMap<u32, Node>,
    pub(super) pairs: BTreeMap<(u32, u32), Pair>,
    /// By serial number. Packets from registered memory are operations too.
    pub(super) operations: BTreeMap<u64, Operation>,
    /// What may be read, by key; some of it perhaps no longer.
    pub(super) exposures: BTreeMap<u64, Exposed>,
    agenda: BinaryHeap<Due>,
    scheduled: u64,
    serials: u64,
    token: u64,
}

/// Bytes that were exposed, and whether they are still.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) bytes: Vec<u8>,
    pub(super) lives: Weak<()>,
}

/// A rank, in its present or last life.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) life: u32,
    pub(super) alive: bool,
    pub(super) paused: bool,
    /// From when on others know that nobody is there.
    pub(super) missed_from: u64,
    pub(super) registry: Registry,
    pub(super) ready: VecDeque<Ready>,
    /// Operations of others that wait for this rank to poll.
    pub(super) waiting: Vec<u64>,
    /// By [`PeerId`].
    pub(super) peers: Vec<Peer>,
    /// By rank: the last life from which nothing is let in, until the rank is resolved anew.
    pub(super) barred: BTreeMap<u32, u32>,
    /// When it can begin to send again.
    pub(super) sending_until: u64,
    pub(super) storm_until: u64,
    /// Puts and gets under way.
    pub(super) outstanding: usize,
}

/// What a poll will report.
#[derive(Debug)]
pub(super) enum Ready {
    /// From whom, unless injected.
    Packet(Option<Life>, Vec<u8>),
    Notified(Life, u64),
    Completed(OpId, Result<(), Failure>),
    Changed(OpId, u64),
    Lost(PeerId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) rank: u32,
    /// The life that was there when the peer was resolved.
    pub(super) life: u32,
    pub(super) standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Known,
    /// The port has told so; what is under way to it waits for a fence.
    Lost,
    Fenced,
}

/// What is under way from one rank to another.
#[derive(Debug, Default)]
pub(super) struct Pair {
    /// Packets, by life of the sender and serial number.
    pub(super) packets: BTreeSet<(u32, u64)>,
    /// Packets that have arrived and wait to be polled.
    pub(super) unpolled: usize,
    /// Puts whose bytes have not landed, likewise.
    pub(super) puts: BTreeSet<(u32, u64)>,
    /// Changes that have not taken place, likewise.
    pub(super) changes: BTreeSet<(u32, u64)>,
    /// Events that must not happen before others have.
    pub(super) parked: Vec<Event>,
    pub(super) cut: Option<Cut>,
    /// Events that wait for the network to heal.
    pub(super) stalled: Vec<Event>,
    /// Life of the sender and serial numbers, from and below, of packets that were lost with their sender or
    /// by a fence.
    pub(super) doomed: Vec<(u32, u64, u64)>,
}

impl Pair {
    /// Nothing waits any more for a put or a change.
    pub(super) fn forget(&mut self, life: u32, serial: u64) {
        self.puts.remove(&(life, serial));
        self.changes.remove(&(life, serial));
    }

    pub(super) fn dooms(&self, life: u32, serial: u64) -> bool {
        self.doomed.iter().any(|&(doomed, first, end)| doomed == life && (first..end).contains(&serial))
    }
}

#[derive(Debug)]
pub(super) enum Event {
    /// A packet arrives.
    Packet(Packet),
    /// An operation, by its serial number, reaches its target.
    Begin(u64),
    /// Its bytes move there.
    Land(u64),
    /// It ends.
    End(u64, Result<(), Failure>),
    /// A port hears of a peer's death.
    Loss(Life, PeerId),
    /// The clock has a reason to move.
    Tick,
}

#[derive(Debug)]
pub(super) struct Packet {
    pub(super) serial: u64,
    pub(super) from: Life,
    pub(super) to: Life,
    pub(super) bytes: Vec<u8>,
    /// Whether the operation of the same serial number adds bytes from registered memory.
    pub(super) zcopy: bool,
}

/// An event with its time; `number` keeps those of one time in order.
#[derive(Debug)]
struct Due {
    time: u64,
    number: u64,
    event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives the greatest first.
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
        let life = self.nodes.get(&rank).filter(|_| self.config.moves).map_or(0, |node| node.life);
        Address([&self.token.to_le_bytes()[..], &rank.to_le_bytes(), &life.to_le_bytes()].concat())
    }

    pub(super) fn resolve(&mut self, me: Life, address: &Address) -> Result<PeerId, PortError> {
        let bad = |why: &str| PortError::BadAddress { why: why.into() };
        let rank = address.0.strip_prefix(&self.token.to_le_bytes()).ok_or_else(|| bad("of another net"))?;
        let (rank, place) = rank.split_at_checked(4).ok_or_else(|| bad("it is too short"))?;
        let number =
            |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| bad("it is too long"));
        let (rank, place) = (number(rank)?, number(place)?);
        let known = |(_, peer): &(usize, &Peer)| {
            let same_place = place == 0 || peer.life == place;
            peer.rank == rank && same_place && peer.standing == Standing::Known
        };
        if let Some((index, _)) = self.node(me.rank).peers.iter().enumerate().find(known) {
            return Ok(PeerId(index as u32));
        }
        let (life, dead) = match self.nodes.get(&rank) {
            Some(node) if place == 0 => (node.life, !node.alive),
            Some(node) => (place, !node.alive || node.life != place),
            None => (1, false),
        };
        let peers_max = self.config.caps.peers_max;
        let node = self.node(me.rank);
        if node.peers.iter().filter(|peer| peer.standing == Standing::Known).count() >= peers_max {
            return Err(PortError::Exhausted { what: "peers", hint: "raise Caps::peers_max".into() });
        }
        let peer = PeerId(node.peers.len() as u32);
        node.peers.push(Peer { rank, life, standing: Standing::Known });
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
                if self.lives(watcher)
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

    /// Whether a post of `me` towards `peer` is taken up, and who is meant; `None` is "again".
    pub(super) fn admit(&mut self, me: Life, peer: PeerId) -> Result<Option<Life>, PortError> {
        if !self.runs(me) {
            return Ok(None);
        }
        let node = self.node(me.rank);
        let Some(&Peer { rank, life, standing: Standing::Known }) = node.peers.get(peer.0 as usize) else {
            return Err(PortError::PeerGone(peer));
        };
        if self.storms(me) {
            return Ok(None);
        }
        let (now, told) = (self.now, self.config.death != Death::Silent);
        let Some(target) = self.nodes.get(&rank) else { return Ok(None) };
        if target.alive && (target.life == life || !told && !self.config.moves) {
            return Ok(Some(Life { rank, number: target.life }));
        }
        // The dead are written to until it is noticed.
        let noticed = target.life > life || now >= target.missed_from;
        Ok((!noticed).then_some(Life { rank, number: life }))
    }

    /// Whether `me` is in a time of "again" to all, which may begin now.
    fn storms(&mut self, me: Life) -> bool {
        let now = self.now;
        if self.node(me.rank).storm_until <= now && self.rng.happens(self.config.storms_per_million) {
            let until = now + 1 + self.rng.below(self.config.storm_ns);
            self.node(me.rank).storm_until = until;
            self.schedule(until, Event::Tick);
        }
        self.node(me.rank).storm_until > now
    }

    /// Whether the channel takes no more packets now.
    pub(super) fn is_full(&mut self, from: Life, to: Life) -> bool {
        let depth = self.config.channel_depth;
        let pair = self.pair(from.rank, to.rank);
        pair.packets.len() + pair.unpolled >= depth
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// When `len` bytes that `from` begins to send now have arrived.
    pub(super) fn arrival(&mut self, from: Life, len: usize) -> u64 {
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

    /// By how much a put or a change lands late, so that what follows overtakes it where that may be.
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
        self.pair(from.rank, to.rank).packets.insert((from.number, serial));
        let arrival = self.arrival(from, len);
        self.schedule(arrival, Event::Packet(packet));
    }

    fn arrive(&mut self, packet: Packet) {
        let Packet { serial, from, to, .. } = packet;
        let overtakes_puts = !self.config.caps.order.contains(Order::SEND_AFTER_PUT);
        let pair = self.pair(from.rank, to.rank);
        let is_first = |set: &BTreeSet<(u32, u64)>| {
            set.range((from.number, 0)..).next().is_none_or(|&first| first >= (from.number, serial))
        };
        if !is_first(&pair.packets) || !(overtakes_puts || is_first(&pair.puts)) {
            return pair.parked.push(Event::Packet(packet));
        }
        if pair.cut == Some(Cut::Stall) {
            return pair.stalled.push(Event::Packet(packet));
        }
        let lost = pair.cut == Some(Cut::Drop) || pair.dooms(from.number, serial);
        pair.packets.remove(&(from.number, serial));
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

    /// Who takes in what `from` sent to `to`: that life, or the next one where addresses alone count, or
    /// nobody.
    pub(super) fn receiver(&self, from: Life, to: Life) -> Option<Life> {
        let node = self.nodes.get(&to.rank)?;
        let barred = node.barred.get(&from.rank).is_some_and(|&last| from.number <= last);
        let taken = node.alive && !barred && (node.life == to.number || self.config.stale);
        taken.then_some(Life { rank: to.rank, number: node.life })
    }

    /// Something under way from `from` to `to` is no more: what waited for it is due.
    pub(super) fn release(&mut self, from: u32, to: u32) {
        let now = self.now;
        for event in std::mem::take(&mut self.pair(from, to).parked) {
            self.schedule(now, event);
        }
    }

    pub(super) fn announce_loss(&mut self, watcher: Life, peer: PeerId) {
        if let Death::Told { delay_ns } = self.config.death {
            let time = self.now + self.rng.below(1 + delay_ns);
            self.schedule(time, Event::Loss(watcher, peer));
        }
    }

    /// Whether that life of the rank is the present one.
    pub(super) fn lives(&self, life: Life) -> bool {
        self.nodes.get(&life.rank).is_some_and(|node| node.alive && node.life == life.number)
    }

    /// Whether it also runs.
    pub(super) fn runs(&self, life: Life) -> bool {
        self.lives(life) && !self.nodes[&life.rank].paused
    }

    /// A rank that has been started once, as those have whose ports call.
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
