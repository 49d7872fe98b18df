//! A port that delays another port: a network whose latency and bandwidth are known, on one host.
//!
//! ```text
//!   sender                                                   receiver
//!   send ──▶ stamp: when the packet may arrive ──▶ inner ──▶ kept until the stamp's time ──▶ Sink
//! ```
//! The port follows the LogGP model (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995): a packet of `n` bytes
//! arrives `L + n·G` after it has left, and a port sends one byte after another, so the next packet leaves `n·G` later.
//! The model's overhead `o` is the real time of the calls. A put, a get or a change ends `2·L + n·G` after it has left,
//! because the origin waits for an answer. Its bytes may move earlier: by the contract of [`Port`] no process relies on
//! them before.
//!
//! Bytes wait in a queue until they leave, as in the send queue of a network card. So a sender need not call while they
//! leave. The queue has 4 MiB, and a packet that finds no room is refused.
//!
//! The sender computes the time and puts it in front of the packet, or in the high half of a notification's immediate
//! data. The receiver keeps events until their time. So all ports must read one clock, and a port reaches only the
//! ports of its host.
//!
//! Nothing bypasses the delay: the port maps no memory, exposes no buffers, reads no memory within a call, and shares
//! no boards.

mod queue;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use samite_os::process::Place;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::queue::{QUEUE_BYTES, Queue};
use crate::port::gather;
use crate::{
    Access, Address, Body, Caps, Change, Changed, Failure, Local, OpId, PathId, PeerId, Port, PortError,
    Post, Region, Registration, Remote, Sink, Sleep, SplitMix64,
};

/// The latency and the bandwidth of a [`Delay`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The latency of the first byte, in nanoseconds.
    pub latency_ns: f64,
    /// The time for each byte, in nanoseconds.
    pub byte_ns: f64,
}

impl Model {
    /// Splits the name of a delayed transport, like `delay(2us,0.33ns/B)+samite-shm`, into the model and the name of
    /// the transport that is delayed. Returns `None` if the name is not that of a delayed transport.
    ///
    /// # Errors
    /// A text that describes the form of the name, if the name begins like that of a delayed transport and goes on
    /// otherwise.
    pub fn split(transport: &str) -> Option<Result<(Self, &str), String>> {
        let rest = transport.strip_prefix("delay(")?;
        let parse = || {
            let (model, inner) = rest.split_once(")+")?;
            let (latency, byte) = model.split_once(',')?;
            let model =
                Self { latency_ns: time(latency.trim())?, byte_ns: time(byte.trim().strip_suffix("/B")?)? };
            let is_sane = model.latency_ns <= LATENCY_NS_MAX && model.byte_ns <= BYTE_NS_MAX;
            (is_sane && !inner.is_empty() && !inner.starts_with("delay(")).then_some((model, inner))
        };
        Some(parse().ok_or_else(|| {
            format!(
                "`{transport}` is not of the form delay(LATENCY,TIME/B)+TRANSPORT, for example \
                 delay(2us,0.33ns/B)+samite-shm, with at most 1s and 1us/B"
            )
        }))
    }

    fn bytes_ns(self, bytes: usize) -> u64 {
        (bytes as f64 * self.byte_ns).round() as u64
    }

    fn latency(self) -> u64 {
        self.latency_ns.round() as u64
    }
}

/// Returns the name of the transport that is delayed, or `transport` itself if it is not that of a delayed transport.
#[must_use]
pub fn undelayed(transport: &str) -> &str {
    match Model::split(transport) {
        Some(Ok((_, inner))) => inner,
        _ => transport,
    }
}

/// Writes the model as [`Model::split`] reads it.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay({},{}ns/B)", Time(self.latency_ns), self.byte_ns)
    }
}

/// A time in nanoseconds, written in the largest unit of which it has at least one.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, ns) = UNITS.into_iter().find(|(_, ns)| self.0 >= *ns).unwrap_or(UNITS[UNITS.len() - 1]);
        write!(f, "{}{unit}", self.0 / ns)
    }
}

fn time(text: &str) -> Option<f64> {
    let (number, ns) = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * ns)
}

/// The units of times, in nanoseconds. The first unit with which a text ends is its unit, so `s` is the last one.
const UNITS: [(&str, f64); 4] = [("ms", 1e6), ("us", 1e3), ("ns", 1.0), ("s", 1e9)];
const LATENCY_NS_MAX: f64 = 1e9;
const BYTE_NS_MAX: f64 = 1e3;

/// A port that delays the events of another. See the [module](self).
#[derive(Debug)]
pub struct Delay<P> {
    inner: P,
    model: Model,
    caps: Caps,
    /// The kernel's boot id: ports with the same one read the same clock.
    boot: [u8; 16],
    /// The name of this port in its packets.
    name: u64,
    /// The peers that were resolved.
    peers: HashMap<PeerId, Peer>,
    /// The names of the peers that were fenced. Their packets are dropped.
    fenced: HashSet<u64>,
    queue: Queue,
    /// The operations that have not ended, each with the name of its peer and the earliest time of its end.
    operations: HashMap<OpId, (u64, u64)>,
    kept: Kept,
    timer: OwnedFd,
}

#[derive(Debug)]
struct Peer {
    /// The name of the peer in its packets.
    name: u64,
    /// The capabilities towards the peer, if they differ from those of the port.
    caps: Option<Box<Caps>>,
}

/// The bytes in front of each packet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stamp {
    /// The time at which the packet arrives.
    due: U64,
    /// The name of the sender.
    from: U64,
}

/// Events that have not arrived yet, the earliest first.
#[derive(Debug, Default)]
struct Kept {
    events: BinaryHeap<Reverse<Event>>,
    /// The number of events so far, by which events of one time keep their order.
    count: u64,
}

#[derive(Debug)]
struct Event {
    due: u64,
    number: u64,
    /// The name of the peer that the event is of, or 0 if it is not known.
    from: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A packet, with its stamp.
    Packet(Vec<u8>),
    Completed(OpId, Result<(), Failure>),
    Changed(OpId, u64),
    Notified(u64),
    Lost(PeerId),
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl Kept {
    fn keep(&mut self, due: u64, from: u64, what: What) {
        self.count += 1;
        self.events.push(Reverse(Event { due, number: self.count, from, what }));
    }

    fn due(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.due)
    }

    /// Drops the packets of a peer, and lets its other events happen at the next poll.
    fn fence(&mut self, name: u64) {
        self.events = std::mem::take(&mut self.events)
            .into_iter()
            .filter(|Reverse(event)| event.from != name || !matches!(event.what, What::Packet(_)))
            .map(|Reverse(event)| {
                Reverse(Event { due: if event.from == name { 0 } else { event.due }, ..event })
            })
            .collect();
    }
}

impl<P: Port> Delay<P> {
    /// Delays `inner`.
    ///
    /// # Errors
    /// [`PortError::Provider`] if the system refuses a timer, or if /proc is not mounted.
    pub fn new(inner: P, model: Model) -> Result<Self, PortError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let failed = |call, error: std::io::Error| PortError::Provider {
            call,
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "a delayed transport needs a timer, and /proc".into(),
        };
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| failed("timerfd_create", error.into()))?;
        let boot = Place::current().map_err(|error| failed("open(/proc)", error))?.boot;
        let caps = caps(inner.caps(), model);
        Ok(Self {
            inner,
            model,
            caps,
            boot,
            name: SplitMix64::from_entropy().next_u64(),
            peers: HashMap::new(),
            fenced: HashSet::new(),
            queue: Queue::default(),
            operations: HashMap::new(),
            kept: Kept::default(),
            timer,
        })
    }

    /// Posts an operation that ends `latencies` latencies after `bytes` bytes have left.
    fn operate(
        &mut self,
        to: PeerId,
        op: OpId,
        (bytes, latencies): (usize, u64),
        post: impl FnOnce(&mut P) -> Result<Post, PortError>,
    ) -> Result<Post, PortError> {
        let Some(start) = self.queue.start(self.model, now(), bytes) else { return Ok(Post::Again) };
        let posted = post(&mut self.inner)?;
        if posted == Post::Again {
            return Ok(posted);
        }
        let end = self.queue.add(self.model, start, bytes) + latencies * self.model.latency();
        let name = name_of(&self.peers, to);
        if posted == Post::Over {
            self.kept.keep(end, name, What::Completed(op, Ok(())));
        } else {
            self.operations.insert(op, (name, end));
        }
        Ok(Post::Done)
    }

    fn stamp(&self, start: u64, bytes: usize) -> Stamp {
        let due = start + self.model.bytes_ns(bytes) + self.model.latency();
        Stamp { due: due.into(), from: self.name.into() }
    }
}

impl<P: Port> Port for Delay<P> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn caps_for(&self, peer: PeerId) -> &Caps {
        self.peers.get(&peer).and_then(|peer| peer.caps.as_deref()).unwrap_or(&self.caps)
    }

    fn address(&self) -> Address {
        let Address(inner) = self.inner.address();
        Address([&TAG[..], &self.boot, &self.name.to_le_bytes(), &inner].concat())
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        let bad = || PortError::BadAddress { why: "not of a delayed port, or of another version".into() };
        let rest = address.0.strip_prefix(&TAG).ok_or_else(bad)?;
        let (boot, rest) = rest.split_first_chunk::<16>().ok_or_else(bad)?;
        let (name, inner) = rest.split_first_chunk().ok_or_else(bad)?;
        if *boot != self.boot {
            let why = "it is on another host, and delayed ports compare clocks".into();
            return Err(PortError::Unreachable { why });
        }
        let peer = self.inner.resolve(&Address(inner.to_vec()))?;
        let caps = caps(self.inner.caps_for(peer), self.model);
        let caps = (caps != self.caps).then(|| Box::new(caps));
        self.peers.insert(peer, Peer { name: u64::from_le_bytes(*name), caps });
        Ok(peer)
    }

    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        let bytes = head.len() + body.len();
        let max = self.caps_for(to).packet_max;
        if bytes > max {
            return Err(PortError::TooLong { len: bytes, max });
        }
        let Some(start) = self.queue.start(self.model, now(), bytes) else { return Ok(Post::Again) };
        let stamped = [self.stamp(start, bytes).as_bytes(), head].concat();
        let posted = self.inner.send_body(to, &stamped, body)?;
        if posted != Post::Again {
            self.queue.add(self.model, start, bytes);
        }
        Ok(posted)
    }

    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError> {
        let bytes = head.len() + body.len;
        let max = self.caps_for(to).zcopy_max;
        if bytes > max {
            return Err(PortError::TooLong { len: bytes, max });
        }
        let Some(start) = self.queue.start(self.model, now(), bytes) else { return Ok(Post::Again) };
        let stamped = [self.stamp(start, bytes).as_bytes(), head].concat();
        self.operate(to, op, (bytes, 0), |inner| inner.send_zcopy(to, &stamped, body, op))
    }

    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError> {
        self.operate(to, op, (from.len, 2), |inner| inner.put(to, from, into, op))
    }

    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        self.operate(to, op, (from.len(), 2), |inner| inner.put_bytes(to, from, into, op))
    }

    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        let bytes = from.iter().map(|part| part.len).sum();
        self.operate(to, op, (bytes, 2), |inner| inner.put_v(to, from, into, op))
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        if self.caps.immediate_bits == 0 {
            return Err(PortError::Unsupported { what: "notify the target of a put" });
        }
        let Some(start) = self.queue.start(self.model, now(), from.len) else { return Ok(Post::Again) };
        let due = self.stamp(start, from.len).due.get() >> TICK_SHIFT;
        let immediate = due << IMMEDIATE_BITS | immediate & ((1 << IMMEDIATE_BITS) - 1);
        self.operate(to, op, (from.len, 2), |inner| inner.put_imm(to, from, into, immediate, op))
    }

    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError> {
        self.operate(to, op, (into.len, 2), |inner| inner.get(to, into, from, op))
    }

    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        let Some(start) = self.queue.start(self.model, now(), Change::BYTES) else {
            return Ok(Changed::Again);
        };
        let changed = self.inner.change(to, how, at, op)?;
        if changed == Changed::Again {
            return Ok(changed);
        }
        let end = self.queue.add(self.model, start, Change::BYTES) + 2 * self.model.latency();
        let name = name_of(&self.peers, to);
        if let Changed::Over(before) = changed {
            self.kept.keep(end, name, What::Changed(op, before));
        } else {
            self.operations.insert(op, (name, end));
        }
        Ok(Changed::Done)
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        self.inner.path(peer)
    }

    fn register_span(
        &mut self,
        path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        self.inner.register_span(path, region, span, access)
    }

    fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError> {
        self.inner.register(peer, region, access)
    }

    fn deregister(&mut self, registration: Registration) {
        self.inner.deregister(registration);
    }

    fn suspend(&mut self, registration: Registration) -> bool {
        self.inner.suspend(registration)
    }

    fn resume(&mut self, path: PathId, registration: Registration, region: &Region) -> bool {
        self.inner.resume(path, registration, region)
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let now = now();
        let Self { inner, model, peers, fenced, operations, kept, .. } = self;
        inner.poll(&mut Keeper { now, model: *model, peers, fenced, operations, kept })?;
        let mut events = 0;
        while self.kept.due().is_some_and(|due| due <= now) {
            let Some(Reverse(Event { what, .. })) = self.kept.events.pop() else { break };
            events += 1;
            match what {
                What::Packet(bytes) => sink.packet(&bytes[size_of::<Stamp>()..]),
                What::Completed(op, result) => sink.completed(op, result),
                What::Changed(op, before) => sink.changed(op, before),
                What::Notified(immediate) => sink.notified(immediate),
                What::Lost(peer) => sink.peer_lost(peer),
            }
        }
        Ok(events)
    }

    fn seems_idle(&self) -> bool {
        self.inner.seems_idle() && self.kept.due().is_none_or(|due| due > now())
    }

    fn has_unsent(&self) -> bool {
        self.inner.has_unsent()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = self.inner.descriptors();
        if !all.is_empty() {
            all.push(self.timer.as_fd());
        }
        all
    }

    fn arm(&mut self) -> Sleep {
        let due = self.kept.due();
        if due.is_some_and(|due| due <= now()) {
            return Sleep::NotNow;
        }
        let sleep = self.inner.arm();
        match due {
            Some(due) if sleep == Sleep::UntilReadable && !set_timer(&self.timer, due) => Sleep::Briefly,
            _ => sleep,
        }
    }

    fn disarm(&mut self) {
        set_timer(&self.timer, 0);
        self.inner.disarm();
    }

    fn fence_peer(&mut self, peer: PeerId) {
        self.inner.fence_peer(peer);
        if let Some(&Peer { name, .. }) = self.peers.get(&peer) {
            self.fenced.insert(name);
            self.kept.fence(name);
        }
    }
}

/// Keeps the events of the inner port until their time.
struct Keeper<'a> {
    now: u64,
    model: Model,
    peers: &'a HashMap<PeerId, Peer>,
    fenced: &'a HashSet<u64>,
    operations: &'a mut HashMap<OpId, (u64, u64)>,
    kept: &'a mut Kept,
}

impl Keeper<'_> {
    /// Returns the time of a stamp, but no later than a correct sender could have written for an event of this length:
    /// see [`Queue::start`].
    fn at_most(&self, due: u64, bytes: usize) -> u64 {
        let ahead = self.model.latency() + self.model.bytes_ns(bytes.max(QUEUE_BYTES));
        match due <= self.now + ahead {
            true => due,
            // The packet may have been sent after this poll began.
            false => due.min(now() + ahead),
        }
    }

    fn keep_packet(&mut self, packet: Vec<u8>) {
        // A packet without a stamp is not from a delayed port.
        let Ok((stamp, rest)) = Stamp::read_from_prefix(&packet) else { return };
        let from = stamp.from.get();
        if !self.fenced.contains(&from) {
            let due = self.at_most(stamp.due.get(), rest.len());
            self.kept.keep(due, from, What::Packet(packet));
        }
    }
}

impl Sink for Keeper<'_> {
    fn packet(&mut self, bytes: &[u8]) {
        self.keep_packet(bytes.to_vec());
    }

    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        self.keep_packet(gather(head, body));
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        let (name, due) = self.operations.remove(&op).unwrap_or_default();
        let due = if result.is_ok() { due } else { 0 };
        self.kept.keep(due, name, What::Completed(op, result));
    }

    fn changed(&mut self, op: OpId, before: u64) {
        let (name, due) = self.operations.remove(&op).unwrap_or_default();
        self.kept.keep(due, name, What::Changed(op, before));
    }

    fn notified(&mut self, immediate: u64) {
        // The immediate data has the low bits of the time alone.
        let ticks = (immediate >> IMMEDIATE_BITS) as u32;
        let ahead = ticks.wrapping_sub((self.now >> TICK_SHIFT) as u32) as i32;
        let due = self.now + (u64::from(ahead.max(0).unsigned_abs()) << TICK_SHIFT);
        let due = due.min(self.now + NOTE_NS_MAX);
        self.kept.keep(due, 0, What::Notified(immediate & ((1 << IMMEDIATE_BITS) - 1)));
    }

    fn peer_lost(&mut self, peer: PeerId) {
        // The peer's packets that have been sent arrive before the report that the peer is lost.
        let name = name_of(self.peers, peer);
        let of_peer = self.kept.events.iter().filter(|Reverse(event)| event.from == name);
        let due = of_peer.map(|Reverse(event)| event.due).max().unwrap_or(0);
        self.kept.keep(due, name, What::Lost(peer));
    }
}

/// Returns the name of a peer in its packets.
fn name_of(peers: &HashMap<PeerId, Peer>, peer: PeerId) -> u64 {
    peers.get(&peer).map_or(0, |peer| peer.name)
}

/// Returns the capabilities of a delayed port: none of them bypasses the delay.
fn caps(inner: &Caps, model: Model) -> Caps {
    let stamp = size_of::<Stamp>();
    Caps {
        name: format!("{model}+{}", inner.name),
        short_max: inner.short_max.saturating_sub(stamp),
        packet_max: inner.packet_max - stamp,
        fragment_max: inner.fragment_max.min(inner.packet_max - stamp),
        zcopy_max: inner.zcopy_max.saturating_sub(stamp),
        get_bytes_max: 0,
        map: false,
        immediate_bits: if inner.immediate_bits == u64::BITS { IMMEDIATE_BITS } else { 0 },
        ..inner.clone()
    }
}

/// Returns the time of the clock that all processes of the host share, in nanoseconds.
fn now() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

/// Makes the timer's descriptor readable at a time, or never if the time is 0. Returns false if that failed.
fn set_timer(timer: &OwnedFd, at: u64) -> bool {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
    let once = Itimerspec { it_interval: none, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).is_ok()
}

/// Identifies the address of a delayed port. The last character is the version of the format.
const TAG: [u8; 3] = *b"dl1";

/// The bits of immediate data that remain for the caller. The others hold the time of arrival, in ticks of 16 ns.
const IMMEDIATE_BITS: u32 = 32;
const TICK_SHIFT: u32 = 4;

/// The longest time for which a notification is kept. It bounds forged times; the ticks wrap around after 68 s.
const NOTE_NS_MAX: u64 = 30_000_000_000;

const _: () = assert!(
    LATENCY_NS_MAX + BYTE_NS_MAX * (QUEUE_BYTES as f64) < NOTE_NS_MAX as f64,
    "notifications behind a full queue are kept for their time"
);
