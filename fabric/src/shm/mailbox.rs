//! The mailbox: the file in memory in which one port receives.
//!
//! ```text
//!   ┌────────┬────────┬────────┬─────┬─ ─ ─┬────────┬────────┬─────┐
//!   │ header │ slot 0 │ slot 1 │  …  │     │ ring 0 │ ring 1 │  …  │   rings are holes until claimed
//!   └────────┴────────┴────────┴─────┴─ ─ ─┴────────┴────────┴─────┘
//! ```
//! A sender claims a slot by one compare-and-swap, which also says who it is, so that a claim never lacks an
//! owner; allocates the ring, and opens the slot. Only the mailbox's owner frees a slot: once its sender has
//! closed it, or is dead, and the ring has been read to its end.
//!
//! ```text
//!          sender: CAS            sender                sender
//!   Free ───────────────▶ Claimed ───────▶ Open ───────────────▶ Closed
//!    ▲                       │               │ sender dead          │
//!    └───────────────────────┴───────────────┴──────────────────────┘   owner, all read
//! ```
//! So a sender that is killed at any point wastes its own slot at most, and that only until a later one finds
//! the table full and asks for a look around ([`Header::wanted`]).

use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{Line, Place, packet_max};
use super::{Config, address::Whereabouts};
use crate::PortError;
use crate::os::process::Process;
use crate::os::shared::{PAGE, Shareable, SharedFile, View};

/// The receiver's end.
pub(super) struct Mailbox {
    file: SharedFile,
    layout: Layout,
    header: View<Header>,
    slots: View<Slot>,
}

impl Mailbox {
    pub(super) fn create(config: &Config, token: u64) -> Result<Self, PortError> {
        let layout = Layout::new(config)?;
        let file = SharedFile::create(c"samite-mailbox", layout.file_len())?;
        file.allocate(0..layout.table_len())?;
        let (header, slots) = layout.view(&file)?;
        let fields = &header[0];
        for (field, value) in [
            (&fields.version, VERSION),
            (&fields.token, token),
            (&fields.slots, layout.slots as u64),
            (&fields.lines, layout.lines as u64),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        Ok(Self { file, layout, header, slots })
    }

    pub(super) fn fd(&self) -> u32 {
        self.file.fd()
    }

    pub(super) fn lines(&self) -> usize {
        self.layout.lines
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn header(&self) -> &Header {
        &self.header[0]
    }

    pub(super) fn ring(&self, slot: usize) -> Result<MappedRing, PortError> {
        MappedRing::map(&self.file, self.layout, &self.slots, slot)
    }

    /// Makes a slot free, whose sender writes no more and whose ring nobody here has mapped any more. Where
    /// the ring cannot be made zero again, the slot stays out of use.
    pub(super) fn free(&self, slot: usize) {
        if self.file.release(self.layout.ring(slot)).is_ok() {
            self.slots[slot].read.store(0, Ordering::Relaxed);
            self.slots[slot].sender.store(0, Ordering::Relaxed);
            self.slots[slot].owner.store(FREE, Ordering::Release);
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.header().closed.store(1, Ordering::Release);
    }
}

/// A sender's view of another's mailbox.
pub(super) struct Remote {
    file: SharedFile,
    layout: Layout,
    header: View<Header>,
    slots: View<Slot>,
}

impl Remote {
    /// Opens a mailbox and makes sure that it is the one meant.
    pub(super) fn open(whereabouts: &Whereabouts) -> Result<Self, PortError> {
        let unreachable = |why: &str| PortError::Unreachable { why: why.into() };
        let file = SharedFile::open(whereabouts.owner, whereabouts.fd)?;
        if file.len() < PAGE {
            return Err(unreachable("the peer's descriptor is another file"));
        }
        let header = file.map(0..PAGE)?.view::<Header>(0, 1);
        let field = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let fields = &header[0];
        if field(&fields.token) != whereabouts.token {
            return Err(unreachable(
                "the peer's descriptor is another file: the peer has ended or closed its port",
            ));
        }
        if field(&fields.version) != VERSION {
            return Err(unreachable(
                "the peer's mailbox has another layout: use one version of samite in a job",
            ));
        }
        let layout = Layout::from_header(field(&fields.slots), field(&fields.lines))
            .filter(|layout| layout.file_len() == file.len())
            .ok_or_else(|| unreachable("the peer's mailbox is damaged"))?;
        let (header, slots) = layout.view(&file)?;
        Ok(Self { file, layout, header, slots })
    }

    fn header(&self) -> &Header {
        &self.header[0]
    }

    /// Whether the mailbox's owner has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.header().closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn packet_max(&self) -> usize {
        packet_max(self.layout.lines)
    }

    /// Claims a slot for the port of process `owner` that receives under `sender`. None while there is none,
    /// but one may become free.
    pub(super) fn claim(&self, owner: Process, sender: u64) -> Result<Option<Claim>, PortError> {
        for (index, slot) in self.slots.iter().enumerate() {
            let claimed = slot.owner.load(Ordering::Relaxed) == FREE
                && slot
                    .owner
                    .compare_exchange(FREE, Phase::Claimed.word(owner), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if claimed {
                return self.open_slot(index, owner, sender).map(Some).inspect_err(|_| {
                    slot.owner.store(FREE, Ordering::Release);
                });
            }
        }
        self.ask_for_a_slot()?;
        Ok(None)
    }

    fn open_slot(&self, index: usize, owner: Process, sender: u64) -> Result<Claim, PortError> {
        self.file.allocate(self.layout.ring(index))?;
        let ring = MappedRing::map(&self.file, self.layout, &self.slots, index)?;
        self.slots[index].sender.store(sender, Ordering::Relaxed);
        self.slots[index].owner.store(Phase::Open.word(owner), Ordering::Release);
        self.header().changes.fetch_add(1, Ordering::Release);
        Ok(Claim { ring, owner, header: self.header.part(0..1) })
    }

    #[cold]
    fn ask_for_a_slot(&self) -> Result<(), PortError> {
        let header = self.header();
        if header.wanted.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let any_left = self.slots.iter().any(|slot| match Phase::parse(slot.owner.load(Ordering::Acquire)) {
            Some((Phase::Claimed | Phase::Open, owner)) => !owner.is_alive(),
            Some((Phase::Closed, _)) | None => true,
        });
        if !any_left {
            return Err(PortError::Exhausted {
                what: "slots in the peer's mailbox",
                hint: format!(
                    "{} senders are connected to it: raise shm::Config::peers_max",
                    self.slots.len()
                ),
            });
        }
        header.wanted.store(1, Ordering::Relaxed);
        header.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// An open slot, which closes when dropped.
pub(super) struct Claim {
    ring: MappedRing,
    owner: Process,
    header: View<Header>,
}

impl Claim {
    /// Whether the mailbox's owner has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.header[0].closed.load(Ordering::Acquire) != 0
    }

    /// Announces a packet of `len` bytes in `line` of the first lap, whatever is there.
    #[cfg(test)]
    pub(super) fn forge_length(&self, line: usize, len: u16) {
        self.ring.lines[line].forge(1 << 16 | u64::from(len));
    }
}

impl Place for Claim {
    type Word = AtomicU64;

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.ring.lines()
    }

    #[inline(always)]
    fn read(&self) -> &AtomicU64 {
        self.ring.read()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ring.slot[0].owner.store(Phase::Closed.word(self.owner), Ordering::Release);
        self.header[0].changes.fetch_add(1, Ordering::Release);
    }
}

/// A ring in a mailbox, mapped.
pub(super) struct MappedRing {
    lines: View<Line>,
    slot: View<Slot>,
}

impl MappedRing {
    fn map(file: &SharedFile, layout: Layout, slots: &View<Slot>, slot: usize) -> Result<Self, PortError> {
        let lines = file.map(layout.ring(slot))?.view(0, layout.lines);
        Ok(Self { lines, slot: slots.part(slot..slot + 1) })
    }
}

impl Place for MappedRing {
    type Word = AtomicU64;

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        &self.lines
    }

    #[inline(always)]
    fn read(&self) -> &AtomicU64 {
        &self.slot[0].read
    }
}

/// Where what lies in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    slots: usize,
    /// Per ring.
    lines: usize,
}

impl Layout {
    fn new(config: &Config) -> Result<Self, PortError> {
        let lines = config.ring_bytes / size_of::<Line>();
        Self::from_header(config.peers_max as u64, lines as u64)
            .filter(|_| config.ring_bytes.is_multiple_of(size_of::<Line>()))
            .ok_or(PortError::Unsupported {
                what: "be built from this shm::Config: see the limits of its fields",
            })
    }

    fn from_header(slots: u64, lines: u64) -> Option<Self> {
        let fits = (1..=Config::PEERS_MAX as u64).contains(&slots)
            && lines.is_power_of_two()
            && (LINES_MIN..=LINES_MAX).contains(&lines);
        fits.then_some(Self { slots: slots as usize, lines: lines as usize })
    }

    fn view(self, file: &SharedFile) -> Result<(View<Header>, View<Slot>), PortError> {
        let table = file.map(0..self.table_len())?;
        Ok((table.view(0, 1), table.view(size_of::<Header>(), self.slots)))
    }

    fn table_len(self) -> usize {
        (size_of::<Header>() + self.slots * size_of::<Slot>()).next_multiple_of(PAGE)
    }

    fn ring(self, slot: usize) -> std::ops::Range<usize> {
        let len = self.lines * size_of::<Line>();
        let start = self.table_len() + slot * len.next_multiple_of(PAGE);
        start..start + len
    }

    fn file_len(self) -> usize {
        self.ring(self.slots).start
    }
}

/// What the owner and all senders share. Each line has one kind of writer.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// Written once, before the address is known to anybody.
    version: AtomicU64,
    token: AtomicU64,
    slots: AtomicU64,
    lines: AtomicU64,
    _constant: [AtomicU64; 4],
    /// Counts the times a slot was opened or closed; the owner looks at the table when it has changed.
    /// Written by senders.
    pub(super) changes: AtomicU64,
    /// Not 0: a sender found no free slot, and some whose owner is dead.
    pub(super) wanted: AtomicU64,
    _senders: [AtomicU64; 6],
    /// Not 0: the owner reads no more.
    closed: AtomicU64,
    _owner: [AtomicU64; 7],
}

/// One sender's place in the table.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// [`FREE`], or the phase and whose it is.
    pub(super) owner: AtomicU64,
    /// The token of the mailbox in which the sender itself receives: its name.
    pub(super) sender: AtomicU64,
    _senders: [AtomicU64; 6],
    /// How far the ring has been read; see [`super::ring`]. Written by the mailbox's owner.
    read: AtomicU64,
    _owner: [AtomicU64; 7],
}

/// The phase of a slot that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Phase {
    Claimed = 1,
    Open = 2,
    Closed = 3,
}

impl Phase {
    /// Phase, process id and start time in one word, so that one compare-and-swap tells all. Ids have at most
    /// 22 bits (PID_MAX_LIMIT in the kernel's threads.h); 40 bits of start time last for 348 years at 100
    /// ticks a second.
    fn word(self, owner: Process) -> u64 {
        owner.start << 24 | u64::from(owner.pid) << 2 | self as u64
    }

    pub(super) fn parse(word: u64) -> Option<(Self, Process)> {
        let phase = match word & 3 {
            1 => Self::Claimed,
            2 => Self::Open,
            3 => Self::Closed,
            _ => return None,
        };
        Some((phase, Process { pid: (word >> 2 & 0x3f_ffff) as u32, start: word >> 24 }))
    }
}

const FREE: u64 = 0;

/// Of the layout of header, slots and rings.
const VERSION: u64 = u64::from_le_bytes(*b"samite\0\x01");

/// The smallest ring carries packets of 896 bytes; in the largest, a packet's length still fits its 16 bits.
const LINES_MIN: u64 = 128;
const LINES_MAX: u64 = 8192;

const _: () = {
    assert!(size_of::<Header>() == 192 && size_of::<Slot>() == 128);
    assert!(packet_max(LINES_MAX as usize) <= u16::MAX as usize);
};

// SAFETY: 24 atomic words, `repr(C)`, 192 bytes: no padding.
unsafe impl Shareable for Header {}
// SAFETY: 16 atomic words, `repr(C)`, 128 bytes: no padding.
unsafe impl Shareable for Slot {}

#[cfg(test)]
mod tests;
