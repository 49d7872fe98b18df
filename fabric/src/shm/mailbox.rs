//! The mailbox: the file in memory in which one port receives.
//!
//! ```text
//!   ┌────────┬────────┬────────┬─────┬─ ─ ─┬─────────┬─────────┬─────┐
//!   │ header │ slot 0 │ slot 1 │  …  │     │ rings 0 │ rings 1 │  …  │   rings are holes until they are used
//!   └────────┴────────┴────────┴─────┴─ ─ ─┴─────────┴─────────┴─────┘
//! ```
//! A sender reserves a slot by one compare-and-swap. This also records the sender's identity, so that the owner of a
//! reserved slot is always known. Then the sender allocates the slot's first rings, opens the slot, and rings the
//! [`Bell`]. Only the mailbox's owner frees a slot: when the sender has closed the slot, or is dead, and the ring has
//! been read to its end.
//!
//! ```text
//!          sender: CAS             sender                sender
//!   Free ───────────────▶ Reserved ───────▶ Open ───────────────▶ Closed
//!    ▲                        │               │ sender dead          │
//!    └────────────────────────┴───────────────┴──────────────────────┘   owner, all read
//! ```
//! So a sender that is killed at any point wastes at most its own slot, and only until a later sender finds
//! the table full and asks the owner to look for dead senders ([`Header::wanted`]).
//!
//! # Rings
//! Each slot has three rings, each at least as large as the one before: [`SMALL`], [`LARGE`] and [`EXTRA`]. The small
//! and the large ring are allocated at the start. The extra ring is at first a hole in the file. A sender that
//! repeatedly finds the large ring full requests its extra ring, once ([`Slot::wish`]). The owner allocates the ring
//! within a budget, or refuses ([`Slot::answer`]). [`super::outgoing`] describes the choice between the rings.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bell::Bell;
use super::doze::{Sleeper, Waker};
use super::ring::{Line, Place, RINGS, packet_max};
use super::{Config, address::Whereabouts};
use crate::PortError;
use samite_os::alarm::{Alarm, AlarmName};
use samite_os::fork::ForkMark;
use samite_os::process::Process;
use samite_os::shared::{PAGE, Shareable, SharedFile, View};
use samite_os::{barrier, descriptor};

/// The owner's view of its mailbox.
pub(super) struct Mailbox {
    file: SharedFile,
    layout: Layout,
    header: View<Header>,
    slots: View<Slot>,
    alarm: Alarm,
    sleeper: Sleeper,
    mark: ForkMark,
}

impl Mailbox {
    pub(super) fn create(config: &Config, token: u64) -> Result<Self, PortError> {
        let no_alarm = |error: io::Error| PortError::Provider {
            call: "pipe2",
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: "raise the limit of open files (ulimit -n)".into(),
        };
        let alarm = Alarm::new().map_err(no_alarm)?;
        let name = alarm.name().map_err(no_alarm)?;
        let layout = Layout::new(config)?;
        let file = SharedFile::create(c"samite-mailbox", layout.file_len())?;
        file.allocate(0..layout.table_len())?;
        let (header, slots) = layout.view(&file)?;
        let fields = &header[0];
        for (field, value) in [
            (&fields.version, VERSION),
            (&fields.token, token),
            (&fields.slots, layout.slots as u64),
            (&fields.lines[SMALL], layout.lines[SMALL] as u64),
            (&fields.lines[LARGE], layout.lines[LARGE] as u64),
            (&fields.lines[EXTRA], layout.lines[EXTRA] as u64),
            (&fields.alarm, name.fd.into()),
            (&fields.alarm_inode, name.inode),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        Ok(Self { file, layout, header, slots, alarm, sleeper: Sleeper::default(), mark: fork_mark()? })
    }

    /// Returns the alarm that wakes the owner.
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Announces that the owner sleeps. After this call the owner sees everything that a sender wrote before it could
    /// see the announcement. Returns false if a sender or the system cannot guarantee that.
    pub(super) fn lie_down(&mut self) -> bool {
        self.sleeper.lie_down(&self.header[0].asleep);
        barrier::everywhere() && self.header().unruly.load(Ordering::Acquire) == 0
    }

    /// Announces that the owner is awake.
    pub(super) fn get_up(&self) {
        self.sleeper.get_up(&self.header().asleep);
        self.alarm.silence();
    }

    pub(super) fn fd(&self) -> u32 {
        self.file.fd()
    }

    /// Returns the number of lines of each sender's large ring.
    pub(super) fn lines(&self) -> usize {
        self.layout.lines[LARGE]
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn header(&self) -> &Header {
        &self.header[0]
    }

    /// Maps the rings of a slot. The small ring is the current one.
    pub(super) fn rings(&self, slot: usize) -> Result<MappedRings, PortError> {
        MappedRings::map(&self.file, self.layout, &self.slots, slot)
    }

    /// Returns two sizes in bytes: first, the size of the small and the large ring of a sender together; second, the
    /// size of an extra ring.
    pub(super) fn ring_bytes(&self) -> [usize; 2] {
        [self.layout.first_rings(0).len(), self.layout.ring(0, EXTRA).len()]
    }

    /// Answers a sender that has requested its extra ring. Allocates the ring if `affordable` is true, and returns true
    /// if that succeeded.
    pub(super) fn grant_extra(&self, slot: usize, affordable: bool) -> bool {
        let granted = affordable && self.file.allocate(self.layout.ring(slot, EXTRA)).is_ok();
        let answer = if granted { GRANTED } else { REFUSED };
        self.slots[slot].answer.store(answer, Ordering::Release);
        granted
    }

    /// Frees a slot whose sender writes no more and whose rings are not mapped here any more. If
    /// the rings cannot be set to zero, the slot stays out of use.
    pub(super) fn free(&self, slot: usize) {
        if self.file.release(self.layout.rings(slot)).is_ok() {
            let fields = &self.slots[slot];
            for field in
                fields.read.iter().chain([&fields.quiet, &fields.answer, &fields.sender, &fields.wish])
            {
                field.store(0, Ordering::Relaxed);
            }
            self.header().bell.unmark(slot);
            fields.owner.store(FREE, Ordering::Release);
        }
    }
}

/// Closes the mailbox. In a child of fork(2), the mailbox stays open for the parent.
impl Drop for Mailbox {
    fn drop(&mut self) {
        if !self.mark.is_in_child() {
            self.header().closed.store(1, Ordering::Release);
        }
    }
}

/// A sender's view of another port's mailbox.
pub(super) struct Remote {
    file: SharedFile,
    layout: Layout,
    header: View<Header>,
    slots: View<Slot>,
    alarm: Arc<Alarm>,
}

impl Remote {
    /// Opens a mailbox and checks its token.
    pub(super) fn open(whereabouts: &Whereabouts) -> Result<Self, PortError> {
        let unreachable = |why: &str| PortError::Unreachable { why: why.into() };
        let file = SharedFile::open(whereabouts.owner, whereabouts.fd)?;
        if file.size() < PAGE {
            return Err(unreachable("the peer's descriptor is another file"));
        }
        let header = file.map(0..PAGE)?.view::<Header>(0, 1);
        let field = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let fields = &header[0];
        if field(&fields.token) != whereabouts.token {
            let why = "the peer's descriptor is another file: the peer has ended or closed its port";
            return Err(PortError::PeerEnded { why: why.into() });
        }
        if field(&fields.version) != VERSION {
            return Err(unreachable(
                "the peer's mailbox has another layout: use one version of samite in a job",
            ));
        }
        let lines = fields.lines.each_ref().map(field);
        let layout = Layout::from_header(field(&fields.slots), lines)
            .filter(|layout| layout.file_len() == file.size())
            .ok_or_else(|| unreachable("the peer's mailbox is damaged"))?;
        let name = AlarmName { fd: field(&fields.alarm) as u32, inode: field(&fields.alarm_inode) };
        let alarm = Alarm::open(whereabouts.owner, name)
            .map_err(|error| descriptor::lost(whereabouts.owner, name.fd, &error))?;
        if !barrier::join() {
            fields.unruly.store(1, Ordering::Release);
        }
        let (header, slots) = layout.view(&file)?;
        Ok(Self { file, layout, header, slots, alarm: Arc::new(alarm) })
    }

    fn header(&self) -> &Header {
        &self.header[0]
    }

    /// Returns true if the mailbox's owner has closed the mailbox.
    pub(super) fn is_closed(&self) -> bool {
        self.header().closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn packet_max(&self) -> usize {
        packet_max(self.layout.lines[LARGE])
    }

    /// Reserves a slot in which a port of process `owner` sends. `sender` is the token of that port's own mailbox.
    /// Returns `None` if no slot is free but one may become free.
    pub(super) fn reserve(&self, owner: Process, sender: u64) -> Result<Option<Connection>, PortError> {
        for (index, slot) in self.slots.iter().enumerate() {
            let reserved = slot.owner.load(Ordering::Relaxed) == FREE
                && slot
                    .owner
                    .compare_exchange(FREE, Phase::Reserved.word(owner), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if reserved {
                return self.open_slot(index, owner, sender).map(Some).inspect_err(|_| {
                    slot.owner.store(FREE, Ordering::Release);
                });
            }
        }
        self.ask_for_a_slot()?;
        Ok(None)
    }

    fn open_slot(&self, index: usize, owner: Process, sender: u64) -> Result<Connection, PortError> {
        self.file.allocate(self.layout.first_rings(index))?;
        let rings = MappedRings::map(&self.file, self.layout, &self.slots, index)?;
        let mark = fork_mark()?;
        self.slots[index].sender.store(sender, Ordering::Relaxed);
        self.slots[index].owner.store(Phase::Open.word(owner), Ordering::Release);
        let (header, alarm) = (self.header.part(0..1), Arc::clone(&self.alarm));
        let connection = Connection { rings, index, owner, header, alarm, waker: Waker::default(), mark };
        connection.ring_bell();
        Ok(connection)
    }

    /// Checks that a slot is free, or will be free once the owner has looked for dead senders.
    ///
    /// # Errors
    /// [`PortError::Exhausted`].
    pub(super) fn check_room(&self) -> Result<(), PortError> {
        let is_left = |slot: &Slot| match Phase::parse(slot.owner.load(Ordering::Acquire)) {
            Some((Phase::Reserved | Phase::Open, owner)) => !owner.is_alive(),
            Some((Phase::Closed, _)) | None => true,
        };
        // In most cases a slot is free, and no process has to be checked.
        let is_free = |slot: &Slot| slot.owner.load(Ordering::Relaxed) == FREE;
        if self.slots.iter().any(is_free) || self.slots.iter().any(is_left) {
            return Ok(());
        }
        Err(PortError::Exhausted {
            what: "places for senders in the peer's shared memory",
            hint: format!("{} are in use: raise SAMITE_SHM_PEERS_MAX", self.slots.len()),
        })
    }

    #[cold]
    fn ask_for_a_slot(&self) -> Result<(), PortError> {
        let header = self.header();
        if header.wanted.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.check_room()?;
        header.wanted.store(1, Ordering::Relaxed);
        // Ring the bell without setting a mark. The owner then sees `wanted`, and also finds the mark of a sender that
        // was killed after it had set the mark and before it could increment the count.
        header.bell.call();
        if Waker::default().must_ring(&header.asleep) {
            self.alarm.ring();
        }
        Ok(())
    }
}

/// An open slot of a sender. It is closed when this value is dropped, except in a child of fork(2).
pub(super) struct Connection {
    rings: MappedRings,
    index: usize,
    owner: Process,
    header: View<Header>,
    alarm: Arc<Alarm>,
    waker: Waker,
    mark: ForkMark,
}

impl Connection {
    /// Returns true if the mailbox's owner has closed the mailbox.
    pub(super) fn is_closed(&self) -> bool {
        self.header[0].closed.load(Ordering::Acquire) != 0
    }

    /// Returns true if the mailbox's owner does not poll the ring now, for example because the owner sleeps. Then the
    /// sender must ring the bell. The sender calls this after each packet.
    #[inline(always)]
    pub(super) fn is_quiet(&self) -> bool {
        barrier::light();
        self.slot().quiet.load(Ordering::Relaxed) != 0
    }

    /// Rings the bell for this slot, and wakes the mailbox's owner if it sleeps.
    #[cold]
    pub(super) fn ring_bell(&self) {
        self.header[0].bell.ring(self.index);
        if self.waker.must_ring(&self.header[0].asleep) {
            self.alarm.ring();
        }
    }

    /// Requests the extra ring at the first call. Returns true if the owner has granted the ring by now.
    pub(super) fn request_extra(&self) -> bool {
        let slot = self.slot();
        if slot.wish.load(Ordering::Relaxed) == 0 {
            slot.wish.store(1, Ordering::Relaxed);
            self.ring_bell();
        }
        slot.answer.load(Ordering::Acquire) == GRANTED
    }

    fn slot(&self) -> &Slot {
        &self.rings.slot[0]
    }

    /// Publishes a packet of `len` bytes, which begins with `number`, in `line` of the small ring.
    #[cfg(test)]
    pub(super) fn forge(&self, line: usize, len: usize, number: u64) {
        let line = &self.rings.all[SMALL][line];
        line.forge_number(number);
        line.publish(len);
    }
}

impl Place for Connection {
    type Word = AtomicU64;

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.rings.lines()
    }

    fn ring(&self, ring: usize) -> (&[Line], &AtomicU64) {
        self.rings.ring(ring)
    }

    fn go_to(&mut self, ring: usize) {
        self.rings.go_to(ring);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.mark.is_in_child() {
            self.slot().owner.store(Phase::Closed.word(self.owner), Ordering::Release);
            self.ring_bell();
        }
    }
}

fn fork_mark() -> Result<ForkMark, PortError> {
    ForkMark::new().map_err(|error| PortError::Provider {
        call: "madvise(MADV_WIPEONFORK)",
        code: error.raw_os_error().unwrap_or(0),
        text: error.to_string(),
        hint: "samite-shm needs Linux 4.14 or later".into(),
    })
}

/// The mapped rings of a slot, one of which is the current one.
pub(super) struct MappedRings {
    /// The lines of the current ring.
    lines: View<Line>,
    all: Box<[View<Line>; RINGS]>,
    slot: View<Slot>,
}

impl MappedRings {
    fn map(file: &SharedFile, layout: Layout, slots: &View<Slot>, slot: usize) -> Result<Self, PortError> {
        // Maps all rings together, although the extra ring is a hole until it is granted. No process touches the extra
        // ring before that, and the mapping of a hole costs only an entry in a table of the kernel.
        let mapping = file.map(layout.rings(slot))?;
        let ring = |ring: usize| {
            let start = layout.ring(slot, ring).start - layout.rings(slot).start;
            mapping.view(start, layout.lines[ring])
        };
        let all: Box<[_; RINGS]> = Box::new(std::array::from_fn(ring));
        let lines = whole(&all[SMALL]);
        Ok(Self { lines, all, slot: slots.part(slot..slot + 1) })
    }

    /// Tells the sender to ring the bell, or not to.
    pub(super) fn set_quiet(&self, quiet: bool) {
        self.slot[0].quiet.store(u64::from(quiet), Ordering::Relaxed);
    }
}

impl Place for MappedRings {
    type Word = AtomicU64;

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn ring(&self, ring: usize) -> (&[Line], &AtomicU64) {
        (&self.all[ring], &self.slot[0].read[ring])
    }

    fn go_to(&mut self, ring: usize) {
        self.lines = whole(&self.all[ring]);
    }
}

fn whole(ring: &View<Line>) -> View<Line> {
    ring.part(0..ring.len())
}

/// The ring that a sender uses first. It is so small that it stays in the first-level cache.
pub(super) const SMALL: usize = 0;
/// The ring that a sender uses for longer packets, and when the small ring is full.
pub(super) const LARGE: usize = 1;
/// The ring that replaces the large one if the sender has requested it and the owner has granted it.
pub(super) const EXTRA: usize = 2;

/// The layout of the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    slots: usize,
    /// The number of lines of each ring of a slot.
    lines: [usize; RINGS],
}

impl Layout {
    fn new(config: &Config) -> Result<Self, PortError> {
        let bytes = [config.ring_bytes_min, config.ring_bytes, config.ring_bytes_max];
        let lines = bytes.map(|bytes| (bytes / size_of::<Line>()) as u64);
        Self::from_header(config.peers_max as u64, lines)
            .filter(|_| bytes.iter().all(|bytes| bytes.is_multiple_of(size_of::<Line>())))
            .ok_or(PortError::Unsupported {
                what: "be built from this shm::Config: see the limits of its fields",
            })
    }

    fn from_header(slots: u64, lines: [u64; RINGS]) -> Option<Self> {
        let [small, large, extra] = lines;
        let fits = (1..=Config::PEERS_MAX as u64).contains(&slots)
            && lines.iter().all(|lines| lines.is_power_of_two())
            && (LINES_MIN..=LINES_MAX).contains(&large)
            && (SMALL_LINES_MIN..=large).contains(&small)
            && (large..=EXTRA_LINES_MAX).contains(&extra);
        fits.then_some(Self { slots: slots as usize, lines: lines.map(|lines| lines as usize) })
    }

    fn view(self, file: &SharedFile) -> Result<(View<Header>, View<Slot>), PortError> {
        let table = file.map(0..self.table_len())?;
        Ok((table.view(0, 1), table.view(size_of::<Header>(), self.slots)))
    }

    fn table_len(self) -> usize {
        (size_of::<Header>() + self.slots * size_of::<Slot>()).next_multiple_of(PAGE)
    }

    /// Returns the range of bytes of one ring of a slot.
    fn ring(self, slot: usize, ring: usize) -> Range<usize> {
        let [small, large, extra] = self.lines.map(|lines| lines * size_of::<Line>());
        let slot = self.table_len() + slot * (small + large + extra).next_multiple_of(PAGE);
        let start = slot + [0, small, small + large][ring];
        start..start + [small, large, extra][ring]
    }

    /// Returns the range of bytes of the rings that exist from the start.
    fn first_rings(self, slot: usize) -> Range<usize> {
        self.ring(slot, SMALL).start..self.ring(slot, LARGE).end
    }

    fn rings(self, slot: usize) -> Range<usize> {
        self.ring(slot, SMALL).start..self.ring(slot, EXTRA).end
    }

    fn file_len(self) -> usize {
        self.ring(self.slots, SMALL).start
    }
}

/// The part of the mailbox that the owner and all senders use. Each cache line is written either by senders or by the
/// owner, and not by both.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// This field and the following ones, up to `alarm_inode`, are written once, before the address is published.
    version: AtomicU64,
    token: AtomicU64,
    slots: AtomicU64,
    /// The number of lines of each ring of a slot.
    lines: [AtomicU64; RINGS],
    /// The number of the descriptor of the owner's alarm.
    alarm: AtomicU64,
    /// The inode of the alarm's pipe.
    alarm_inode: AtomicU64,
    /// Not 0: a sender found no free slot, but at least one slot of a dead sender. The owner of the mailbox should free
    /// the slots of dead senders.
    pub(super) wanted: AtomicU64,
    /// Not 0: the owner's barrier has no effect on at least one sender. That sender may fail to see that the owner
    /// sleeps; see [`super::doze`].
    unruly: AtomicU64,
    _senders: [AtomicU64; 6],
    /// Not 0: the owner has stopped reading.
    closed: AtomicU64,
    /// Not 0: the owner sleeps; see [`super::doze`].
    asleep: AtomicU64,
    _owner: [AtomicU64; 6],
    /// A sender rings the bell when it has opened or closed its slot, when it requests its extra ring, and when it has
    /// sent a packet to a quiet ring.
    pub(super) bell: Bell,
}

/// One sender's entry in the table.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// [`FREE`], or the phase and the owner.
    pub(super) owner: AtomicU64,
    /// The token of the mailbox in which the sender itself receives. It identifies the sender.
    pub(super) sender: AtomicU64,
    /// Not 0: the sender has requested the extra ring.
    pub(super) wish: AtomicU64,
    _senders: [AtomicU64; 5],
    /// The position up to which each ring has been read; see [`super::ring`]. The mailbox's owner writes these words
    /// and the words below. The positions have a cache line of their own, so that they do not share one with `quiet`,
    /// which senders read after each packet.
    read: [AtomicU64; RINGS],
    _reader: [AtomicU64; 5],
    /// Not 0: the rings are read only when the bell rings.
    quiet: AtomicU64,
    /// The answer to [`Slot::wish`]: none yet, [`GRANTED`] or [`REFUSED`].
    answer: AtomicU64,
    _owner: [AtomicU64; 6],
}

/// The phase of a slot that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Phase {
    Reserved = 1,
    Open = 2,
    Closed = 3,
}

impl Phase {
    /// Packs phase, process id and start time in one word, so that one compare-and-swap sets them all. Process ids have
    /// at most 22 bits (PID_MAX_LIMIT in the kernel's threads.h). The start time has 40 bits, which suffice for 348
    /// years of uptime at 100 ticks a second.
    fn word(self, owner: Process) -> u64 {
        owner.start << 24 | u64::from(owner.pid) << 2 | self as u64
    }

    pub(super) fn parse(word: u64) -> Option<(Self, Process)> {
        let phase = match word & 3 {
            1 => Self::Reserved,
            2 => Self::Open,
            3 => Self::Closed,
            _ => return None,
        };
        Some((phase, Process { pid: (word >> 2 & 0x3f_ffff) as u32, start: word >> 24 }))
    }
}

const FREE: u64 = 0;

const GRANTED: u64 = 1;
const REFUSED: u64 = 2;

/// The version of the layout of header, slots and rings.
const VERSION: u64 = u64::from_le_bytes(*b"samite\0\x06");

/// The limits of the number of lines of each ring. With the minimum, a small ring carries packets of up to 896 bytes,
/// and a large ring packets of up to 1792 bytes. With the maximum, the length of the longest packet is still less than
/// the special values that can stand in place of a length.
const SMALL_LINES_MIN: u64 = 32;
const LINES_MIN: u64 = 64;
const LINES_MAX: u64 = 2048;
const EXTRA_LINES_MAX: u64 = 1 << 17;

const _: () = {
    assert!(size_of::<Header>() == 768 && size_of::<Slot>() == 192);
    // Three values of a packet's length field have another meaning.
    assert!(packet_max(LINES_MAX as usize) < u16::MAX as usize - 2);
};

// SAFETY: 24 atomic words and a `Bell`, `repr(C)`, both of a multiple of 64 bytes.
unsafe impl Shareable for Header {}
// SAFETY: 24 atomic words, `repr(C)`, 192 bytes: no padding.
unsafe impl Shareable for Slot {}

#[cfg(test)]
mod tests;
