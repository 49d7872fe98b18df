//! The receiving side of a port: the rings of all its senders, and the order in which they are read.
//!
//! Rings with recent packets are *active*. Each poll reads only a few packets from each active ring, so that no ring
//! delays the others for long. The other rings are *quiet*: their senders ring the bell when they send. So polls take
//! no time for peers that send nothing, however many such peers there are.
//!
//! The bell alone is not reliable. The owner may declare a ring quiet just when the sender writes a packet to the ring.
//! Neither side waits until the other has seen its store, since that would need a fence in each send. So a ring may
//! become quiet although it contains a packet for which the bell was not rung. The sender's next packet rings the bell.
//! If no packet follows, the *patrol* finds the first packet: at intervals a poll looks at one of the quiet rings, and
//! so in time at all of them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::Usage;
use super::mailbox::{EXTRA, Mailbox, MappedRings, Phase};
use super::ring::{Consumer, Payload, Pop, RINGS, scratch};
use crate::{PortError, Sink, Sleep};
use samite_os::alarm::Alarm;

pub(super) struct Inbox {
    mailbox: Mailbox,
    /// The rings, indexed by slot, up to the highest slot that has been in use.
    rings: Vec<Option<Incoming>>,
    /// Slots of the rings that each poll reads.
    active: Vec<usize>,
    /// The slot at which the patrol has looked last.
    patrol: usize,
    /// The number of polls until the patrol looks at the next slot.
    patrol_in: u32,
    /// The slot of the ring from which the latest packet was read.
    last: usize,
    /// The bell's count when the marked slots were visited last.
    answered: u64,
    scratch: Box<[Payload]>,
    /// The tokens of senders that were fenced, or that wrote garbage. Their packets are not read.
    cut: HashSet<u64>,
    /// The tokens of senders that wrote garbage and that have not been reported yet.
    pub(super) garbled: Vec<u64>,
    /// The limit for the bytes of all extra rings together.
    extra_max: usize,
    usage: Usage,
}

impl Inbox {
    pub(super) fn new(mailbox: Mailbox, extra_max: usize) -> Self {
        Self {
            rings: Vec::new(),
            active: Vec::new(),
            patrol: 0,
            patrol_in: PATROL,
            last: 0,
            answered: 0,
            scratch: scratch(mailbox.lines()),
            cut: HashSet::new(),
            garbled: Vec::new(),
            extra_max,
            usage: Usage::default(),
            mailbox,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    #[inline]
    pub(super) fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        if self.active.len() > 1 {
            self.prefetch();
        }
        let count = self.mailbox.header().bell.count();
        if count != self.answered {
            self.answer(count)?;
        }
        self.patrol_in -= 1;
        if self.patrol_in == 0 {
            self.patrol();
        }
        let mut packets = 0;
        let mut index = 0;
        while let Some(&slot) = self.active.get(index) {
            let outcome = match &mut self.rings[slot] {
                Some(incoming) => incoming.read(BATCH, &mut self.scratch, self.active.len(), sink),
                None => Read::Nothing { more: false },
            };
            match outcome {
                Read::Packets(count) => {
                    packets += count;
                    self.last = slot;
                }
                Read::Nothing { more: true } => {}
                // The last active ring takes its place.
                outcome => {
                    self.active.swap_remove(index);
                    self.retire(slot, outcome);
                    continue;
                }
            }
            index += 1;
        }
        Ok(packets)
    }

    /// Returns true if the ring from which the latest packet was read contains another packet.
    #[inline(always)]
    pub(super) fn has_packet(&self) -> bool {
        match self.rings.get(self.last) {
            Some(Some(Incoming { ring: Some(ring), .. })) => !ring.is_empty(),
            _ => false,
        }
    }

    /// Reads one packet from the ring from which the latest packet was read. Returns true if there was one.
    #[inline(always)]
    pub(super) fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        match self.rings.get_mut(self.last) {
            // Other outcomes, such as a ring that was closed, recur at the next poll, which handles them.
            Some(Some(incoming)) => incoming.read(1, &mut self.scratch, 1, sink) == Read::Packets(1),
            _ => false,
        }
    }

    /// Starts to load the lines that are read next in the active rings. To load a line that another core has written
    /// takes as long as to handle several messages. With the prefetch, the lines of all rings are loaded at the same
    /// time.
    #[inline(never)]
    fn prefetch(&self) {
        for &slot in &self.active {
            if let Some(Incoming { ring: Some(ring), .. }) = &self.rings[slot] {
                ring.prefetch();
            }
        }
    }

    /// Returns true if a poll would find nothing, not counting the patrol.
    #[inline(always)]
    pub(super) fn seems_idle(&self) -> bool {
        if self.active.len() > 1 {
            self.prefetch();
        }
        self.mailbox.header().bell.count() == self.answered
            && self.garbled.is_empty()
            && !self.active.iter().any(|&slot| self.rings[slot].as_ref().is_some_and(Incoming::wants_poll))
    }

    /// Returns the alarm. Its descriptor is readable when the owner of an armed inbox has something to poll for.
    pub(super) fn alarm(&self) -> &Alarm {
        self.mailbox.alarm()
    }

    /// Makes all rings quiet, so that senders ring the bell and wake the owner. Returns [`Sleep::NotNow`] if there is
    /// something to poll for.
    pub(super) fn arm(&mut self) -> Sleep {
        for slot in self.active.drain(..) {
            if let Some(Incoming { ring: Some(ring), .. }) = &self.rings[slot] {
                ring.place().set_quiet(true);
            }
        }
        let woken = self.mailbox.lie_down();
        let is_idle = self.garbled.is_empty()
            && self.mailbox.header().bell.count() == self.answered
            && !self.rings.iter().flatten().any(Incoming::wants_poll);
        match (is_idle, woken) {
            (true, true) => Sleep::UntilReadable,
            (true, false) => Sleep::Briefly,
            (false, _) => {
                self.disarm();
                Sleep::NotNow
            }
        }
    }

    pub(super) fn disarm(&mut self) {
        self.mailbox.get_up();
        for slot in 0..self.rings.len() {
            if self.rings[slot].as_ref().is_some_and(Incoming::wants_poll) {
                self.activate(slot);
            }
        }
    }

    /// Stops reading from a sender.
    pub(super) fn cut_off(&mut self, sender: u64) {
        self.cut.insert(sender);
        for slot in 0..self.rings.len() {
            if self.rings[slot].as_ref().is_some_and(|incoming| incoming.sender == sender) {
                self.shut(slot);
            }
        }
    }

    pub(super) fn is_cut_off(&self, sender: u64) -> bool {
        self.cut.contains(&sender)
    }

    /// Visits the slots for which the bell was rung.
    #[cold]
    fn answer(&mut self, count: u64) -> Result<(), PortError> {
        self.answered = count;
        let slots = self.mailbox.slots().len();
        // The number of visits is bounded, even if the bell is rung again meanwhile.
        for _ in 0..slots {
            let Some(slot) = self.mailbox.header().bell.answer(slots) else { break };
            if slot < slots {
                self.visit(slot, false)?;
            }
        }
        if self.mailbox.header().wanted.swap(0, Ordering::Relaxed) != 0 {
            for slot in 0..slots {
                self.visit(slot, true)?;
            }
        }
        Ok(())
    }

    /// Handles the mark of a slot: takes in the ring of a new sender, makes the ring active, answers a request for the
    /// extra ring, and frees the slot if the sender has closed it. If `doubting` is true, also checks if the sender is
    /// alive, and frees the slot if the sender is dead.
    fn visit(&mut self, slot: usize, doubting: bool) -> Result<(), PortError> {
        let fields = &self.mailbox.slots()[slot];
        let Some((phase, owner)) = Phase::parse(fields.owner.load(Ordering::Acquire)) else { return Ok(()) };
        let ended = phase == Phase::Closed || doubting && !owner.is_alive();
        if phase != Phase::Reserved && !self.is_known(slot) {
            self.take_in(slot, fields.sender.load(Ordering::Relaxed))?;
        }
        let wish = self.mailbox.slots()[slot].wish.load(Ordering::Relaxed) != 0;
        match self.rings.get_mut(slot).and_then(Option::as_mut) {
            Some(Incoming { ring: Some(_), ended: ending, has_requested, .. }) => {
                // The ring may still hold packets: the slot is freed when they have been read.
                *ending |= ended;
                if wish && !std::mem::replace(has_requested, true) {
                    self.answer_wish(slot);
                }
                self.activate(slot);
            }
            _ if ended => self.free(slot),
            _ => {}
        }
        Ok(())
    }

    fn is_known(&self, slot: usize) -> bool {
        self.rings.get(slot).is_some_and(Option::is_some)
    }

    fn take_in(&mut self, slot: usize, sender: u64) -> Result<(), PortError> {
        let ring = Consumer::new(self.mailbox.rings(slot)?);
        let incoming = Incoming {
            ring: Some(ring),
            sender,
            empty_polls: 0,
            ended: false,
            has_requested: false,
            has_extra: false,
        };
        if self.rings.len() <= slot {
            self.rings.resize_with(slot + 1, || None);
        }
        self.rings[slot] = Some(incoming);
        self.usage.rings += 1;
        self.usage.ring_bytes += self.mailbox.ring_bytes()[0];
        self.active.push(slot);
        if self.cut.contains(&sender) {
            self.shut(slot);
        }
        Ok(())
    }

    fn answer_wish(&mut self, slot: usize) {
        let [_, bytes] = self.mailbox.ring_bytes();
        let affordable = self.usage.growth_bytes + bytes <= self.extra_max;
        let granted = self.mailbox.grant_extra(slot, affordable);
        if let Some(incoming) = self.rings[slot].as_mut() {
            incoming.has_extra = granted;
        }
        if granted {
            self.usage.growth_bytes += bytes;
        } else {
            self.usage.growths_refused += 1;
        }
    }

    /// Makes a ring active.
    fn activate(&mut self, slot: usize) {
        if let Some(Incoming { ring: Some(ring), empty_polls, .. }) = &mut self.rings[slot]
            && !self.active.contains(&slot)
        {
            *empty_polls = 0;
            ring.place().set_quiet(false);
            self.active.push(slot);
        }
    }

    /// Handles a ring that has just been removed from the active rings.
    #[cold]
    fn retire(&mut self, slot: usize, outcome: Read) {
        let Some(incoming) = &mut self.rings[slot] else { return };
        let sender = incoming.sender;
        match (outcome, &mut incoming.ring) {
            (Read::Garbage, _) => {
                self.cut_off(sender);
                self.garbled.push(sender);
            }
            _ if incoming.ended => self.free(slot),
            (_, Some(ring)) => ring.place().set_quiet(true),
            _ => {}
        }
    }

    /// Looks at the next quiet ring.
    #[cold]
    fn patrol(&mut self) {
        self.patrol_in = PATROL;
        self.patrol = if self.patrol + 1 < self.rings.len() { self.patrol + 1 } else { 0 };
        let patrolled = self.rings.get(self.patrol).and_then(Option::as_ref);
        if patrolled.is_some_and(Incoming::wants_poll) {
            self.activate(self.patrol);
        }
    }

    /// Stops reading a ring. Its slot stays taken until the sender has closed it or is dead.
    fn shut(&mut self, slot: usize) {
        self.active.retain(|&active| active != slot);
        if let Some(ring) = self.rings[slot].as_mut().and_then(|incoming| incoming.ring.take()) {
            ring.shut();
        }
    }

    fn free(&mut self, slot: usize) {
        if let Some(incoming) = self.rings.get_mut(slot).and_then(Option::take) {
            let [first, second] = self.mailbox.ring_bytes();
            self.usage.rings -= 1;
            self.usage.ring_bytes -= first;
            self.usage.growth_bytes -= if incoming.has_extra { second } else { 0 };
        }
        self.mailbox.free(slot);
    }
}

/// A ring with its reader's state.
struct Incoming {
    /// `None` once it has been shut.
    ring: Option<Consumer<MappedRings>>,
    /// The token of the sender's own mailbox.
    sender: u64,
    empty_polls: u32,
    /// True if the sender will write no more.
    ended: bool,
    /// True if the sender has requested its extra ring.
    has_requested: bool,
    /// True if the sender has got its extra ring.
    has_extra: bool,
}

impl Incoming {
    /// Returns true if there is a packet, or the slot must be freed.
    #[inline(always)]
    fn wants_poll(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| self.ended || !ring.is_empty())
    }

    /// Delivers at most `most` packets.
    #[inline(always)]
    fn read<S: Sink>(&mut self, most: usize, scratch: &mut [Payload], active: usize, sink: &mut S) -> Read {
        let Some(ring) = &mut self.ring else { return Read::Nothing { more: false } };
        let mut packets = 0;
        for _ in 0..most {
            match ring.pop(scratch) {
                Pop::Packet { len } => sink.packet(&scratch.as_bytes()[..len]),
                Pop::Notice { number } => sink.notified(number),
                Pop::Long { head, body } => {
                    sink.long_packet(&scratch.as_bytes()[..head], &ring.body(body));
                    ring.skip(body);
                }
                // The reader moves only to a ring whose memory has been allocated.
                Pop::Moved { ring: next }
                    if next != ring.ring() && next < if self.has_extra { RINGS } else { EXTRA } =>
                {
                    ring.move_to(next);
                    continue;
                }
                Pop::Garbled | Pop::Moved { .. } => return Read::Garbage,
                Pop::Empty if packets == 0 => {
                    self.empty_polls += 1;
                    return Read::Nothing { more: !self.ended && self.empty_polls as usize * active < QUIET };
                }
                Pop::Empty => break,
            }
            packets += 1;
        }
        self.empty_polls = 0;
        if packets > 0 { Read::Packets(packets) } else { Read::Nothing { more: true } }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// The ring had no packet. If `more` is true, the ring stays active nevertheless.
    Nothing {
        more: bool,
    },
    Packets(usize),
    Garbage,
}

/// The largest number of packets and notices that a poll reads from one ring.
const BATCH: usize = 16;

/// The number of polls without a packet after which a ring becomes quiet, if it is the only active ring. The number is
/// divided by the number of active rings. The polls take some 10 µs. That is much longer than a round trip between
/// active peers, and much shorter than the time for which the scheduler gives a core to another process.
const QUIET: usize = 1000;

/// The number of polls between two looks at a quiet ring by the patrol.
const PATROL: u32 = 64;
