//! The receiving half: which rings there are, and the order in which they are read.
//!
//! Rings that had packets of late are *active*, and each is read in each poll, a few packets at a time, so
//! that none starves another. Of the *quiet* ones, one is looked at in each poll, in turn: silent peers cost
//! one load, however many they are.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::mailbox::{Mailbox, MappedRing, Phase};
use super::ring::{Consumer, Payload, Pop, scratch};
use crate::{PortError, Sink};

pub(super) struct Inbox {
    mailbox: Mailbox,
    /// The active ones first.
    rings: Vec<Incoming>,
    active: usize,
    /// Whose turn it is among the quiet.
    turn: usize,
    /// The count of changes at which the table was last looked at.
    seen: u64,
    /// By slot: whether it has been taken in (and perhaps cut off since).
    known: Box<[bool]>,
    scratch: Box<[Payload]>,
    /// Senders that nothing is taken from.
    cut: HashSet<u64>,
    /// Senders found to write garbage, cut off and not yet reported.
    pub(super) garbled: Vec<u64>,
}

impl Inbox {
    pub(super) fn new(mailbox: Mailbox) -> Self {
        Self {
            rings: Vec::new(),
            active: 0,
            turn: 0,
            seen: 0,
            known: vec![false; mailbox.slots().len()].into(),
            scratch: scratch(mailbox.lines()),
            cut: HashSet::new(),
            garbled: Vec::new(),
            mailbox,
        }
    }

    #[inline]
    pub(super) fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let changes = self.mailbox.header().changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.look_around(changes)?;
        }
        let mut packets = 0;
        let mut index = 0;
        while index < self.active {
            match self.rings[index].read(&mut self.scratch, sink) {
                Read::Packets(count) => packets += count,
                Read::Nothing if !self.rings[index].is_quiet() => {}
                // Another takes its place among the active.
                outcome => {
                    self.retire(index, outcome);
                    continue;
                }
            }
            index += 1;
        }
        if self.rings.len() > self.active {
            self.turn = if self.active + self.turn + 1 < self.rings.len() { self.turn + 1 } else { 0 };
            let index = self.active + self.turn;
            match self.rings[index].read(&mut self.scratch, sink) {
                Read::Nothing => {}
                Read::Packets(count) => {
                    packets += count;
                    self.activate(index);
                }
                Read::Garbage => self.retire(index, Read::Garbage),
            }
        }
        Ok(packets)
    }

    /// Takes nothing more from a sender.
    pub(super) fn cut_off(&mut self, sender: u64) {
        self.cut.insert(sender);
        while let Some(index) = self.rings.iter().position(|ring| ring.sender == sender) {
            self.remove(index).ring.shut();
        }
    }

    pub(super) fn is_cut_off(&self, sender: u64) -> bool {
        self.cut.contains(&sender)
    }

    #[cold]
    fn look_around(&mut self, changes: u64) -> Result<(), PortError> {
        let wanted = self.mailbox.header().wanted.swap(0, Ordering::Relaxed) != 0;
        for slot in 0..self.known.len() {
            let fields = &self.mailbox.slots()[slot];
            let Some((phase, owner)) = Phase::parse(fields.owner.load(Ordering::Acquire)) else { continue };
            let sender = fields.sender.load(Ordering::Relaxed);
            if phase != Phase::Claimed && !self.known[slot] {
                let ring = Consumer::new(self.mailbox.ring(slot)?);
                self.known[slot] = true;
                if self.cut.contains(&sender) {
                    ring.shut();
                } else {
                    self.rings.push(Incoming { ring, slot, sender, empty_polls: 0, ended: false });
                    self.activate(self.rings.len() - 1);
                }
            }
            if phase == Phase::Closed || wanted && !owner.is_alive() {
                match self.rings.iter().position(|ring| ring.slot == slot) {
                    // It may hold packets still: the slot is freed when they have been read.
                    Some(index) => {
                        self.rings[index].ended = true;
                        self.activate(index);
                    }
                    None => self.free(slot),
                }
            }
        }
        self.seen = changes;
        Ok(())
    }

    /// Moves a ring to the active ones.
    fn activate(&mut self, index: usize) {
        if index >= self.active {
            self.rings[index].empty_polls = 0;
            self.rings.swap(index, self.active);
            self.active += 1;
        }
    }

    /// Takes a ring out of the active ones, or out of all.
    #[cold]
    fn retire(&mut self, index: usize, outcome: Read) {
        if outcome == Read::Garbage {
            let sender = self.rings[index].sender;
            self.cut_off(sender);
            self.garbled.push(sender);
        } else if self.rings[index].ended {
            let slot = self.remove(index).slot;
            self.free(slot);
        } else {
            self.active -= 1;
            self.rings.swap(index, self.active);
        }
    }

    fn remove(&mut self, mut index: usize) -> Incoming {
        if index < self.active {
            self.active -= 1;
            self.rings.swap(index, self.active);
            index = self.active;
        }
        self.rings.swap_remove(index)
    }

    fn free(&mut self, slot: usize) {
        self.known[slot] = false;
        self.mailbox.free(slot);
    }
}

/// A ring that is read.
struct Incoming {
    ring: Consumer<MappedRing>,
    slot: usize,
    /// The sender's own mailbox, by its token.
    sender: u64,
    empty_polls: u32,
    /// The sender will write no more.
    ended: bool,
}

impl Incoming {
    #[inline(always)]
    fn read<S: Sink>(&mut self, scratch: &mut [Payload], sink: &mut S) -> Read {
        for count in 0..BATCH {
            match self.ring.pop(scratch) {
                Pop::Packet { len } => sink.packet(&scratch.as_bytes()[..len]),
                Pop::Garbled => return Read::Garbage,
                Pop::Empty if count == 0 => {
                    self.empty_polls += 1;
                    return Read::Nothing;
                }
                Pop::Empty => {
                    self.empty_polls = 0;
                    return Read::Packets(count);
                }
            }
        }
        self.empty_polls = 0;
        Read::Packets(BATCH)
    }

    fn is_quiet(&self) -> bool {
        self.ended || self.empty_polls >= QUIET
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Nothing,
    Packets(usize),
    Garbage,
}

/// Packets read from one ring before the next has its turn.
const BATCH: usize = 16;

/// Polls in a row without a packet after which a ring counts as quiet: some 10 us of polling, well above the
/// round trip of peers that talk, and little against the time the scheduler takes away at once.
const QUIET: u32 = 1000;
