//! Boards: memory in which the ranks of a host publish the data of collective operations.
//!
//! A communicator's board consists of a *slot* for each rank, which its owner alone writes and all other ranks map for
//! reading. So no lock exists, and a process that is killed at any instruction leaves nothing undone in the slot of
//! another process. A slot is a file in memory without a name, which the kernel frees with its last mapping.
//!
//! ```text
//!   ┌──────────┬──────────┬────────┬────────┬────────┬─────┐
//!   │ constant │ finished │ asleep │ bank 0 │ bank 1 │  …  │
//!   └──────────┴──────────┴────────┴────────┴────────┴─────┘
//! ```
//! A [`Tick`] is the number of an operation and the number of a piece of data in it. All ranks number the operations
//! alike, and have finished an operation before they use the board for the next one. In each tick a rank publishes one
//! piece at most. The tick determines the bank. The first word of a bank contains the tick. The owner stores this word
//! after the data, and other ranks load it before they copy the data out.
//!
//! A rank stores in `finished` the first tick that it has not finished: it reads nothing that was published earlier
//! any more. A rank writes to a bank again only when all ranks have finished the tick for which the rank used the bank
//! before. So data is never overwritten while a rank copies it. The owner of a slot keeps the earliest of these ticks
//! that it has seen, and loads the words of the other ranks again when that one does not suffice.
//!
//! # Sleep
//! A rank that sleeps while it waits for another rank stores the number of that rank in `asleep`. The other rank looks
//! at this word after it has published or finished something, and then wakes the sleeper by a message. As in
//! `doze.rs`, the sleeping rank pays for the memory barrier, and looks at the board once more before it sleeps.
//!
//! # Soundness
//! Another process may write anything to its own slot at any time. That is no data race, because all access is by
//! atomics, or by instructions outside of the language. Data is copied out before it is used, and the length in a bank
//! is compared with the expected length, which the caller knows.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::address::Whereabouts;
use super::ring::Line;
use super::word::Word;
use crate::copy::LINE;
use crate::port::Sleep;
use crate::{Address, PortError};
use samite_os::barrier;
use samite_os::process::{Place, Process};
use samite_os::shared::{SharedFile, View};

/// The largest number of bytes that a rank publishes in one tick.
pub const PIECE: usize = 8 << 10;

/// The largest number of ranks that share a board. Each rank reads the slots of all others.
pub const RANKS_MAX: u32 = 64;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = (FIRST_BANK + BANKS * BANK_LINES) * LINE;

/// The bytes of the address of a slot.
pub const ADDRESS_BYTES: usize = 64;

/// A rank's own slot of a board that is not complete yet.
#[derive(Debug)]
pub struct Slot {
    file: SharedFile,
    lines: View<Line>,
    whereabouts: Whereabouts,
}

impl Slot {
    /// Makes a slot. `host` is the host number of the port: see [`Shm::on_host`](super::Shm::on_host).
    pub(super) fn create(place: Place, owner: Process, host: u32) -> Result<Self, PortError> {
        if !barrier::join() {
            return Err(PortError::Unsupported {
                what: "wake the ranks that wait at a board: no membarrier(2)",
            });
        }
        let token = samite_os::random()?;
        let file = SharedFile::create(c"samite-board", SLOT_BYTES)?;
        file.allocate(0..SLOT_BYTES)?;
        let lines = file.map(0..SLOT_BYTES)?.view::<Line>(0, SLOT_BYTES / LINE);
        file.make_read_only()?;
        lines[CONSTANT].cells[0].store(token, Ordering::Relaxed);
        lines[CONSTANT].word.store(VERSION, Ordering::Relaxed);
        let uid = samite_os::process::user();
        let whereabouts = Whereabouts { place, owner, uid, host, fd: file.fd(), token };
        Ok(Self { file, lines, whereabouts })
    }

    /// Returns the address by which the other ranks find the slot.
    #[must_use]
    pub fn address(&self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        let encoded = self.whereabouts.encode().0;
        bytes[..encoded.len()].copy_from_slice(&encoded);
        bytes
    }

    /// Maps the slot that another rank has published.
    fn map(&self, address: &[u8; ADDRESS_BYTES]) -> Result<View<Line>, PortError> {
        let unreachable = |why: &str| PortError::Unreachable { why: why.into() };
        let (encoded, rest) = address.split_at(self.whereabouts.encode().0.len());
        let theirs = Whereabouts::decode(&Address(encoded.to_vec()))?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(PortError::BadAddress { why: "not of a slot of a board".into() });
        }
        if theirs.place != self.whereabouts.place || theirs.host != self.whereabouts.host {
            return Err(unreachable("it runs on another host, or in another pid namespace"));
        }
        let file = SharedFile::open_to_read(theirs.owner, theirs.fd)?;
        if file.size() != SLOT_BYTES {
            return Err(unreachable("the peer's descriptor is no slot of a board"));
        }
        let lines = file.map_to_read(0..SLOT_BYTES)?.view::<Line>(0, SLOT_BYTES / LINE);
        let constant = &lines[CONSTANT];
        let found = (constant.word.load(Ordering::Relaxed), constant.cells[0].load(Ordering::Relaxed));
        match found == (VERSION, theirs.token) {
            true => Ok(lines),
            false => Err(unreachable("the peer's descriptor is another file")),
        }
    }
}

/// One rank's view of the slots of the ranks of a communicator that share a host. They are the *members* of the board.
#[derive(Debug)]
pub struct Board {
    /// The descriptor of the own slot, until all other ranks have mapped it.
    file: Option<SharedFile>,
    /// The slots of all members. Only the own slot is mapped for writing.
    slots: Box<[View<Line>]>,
    /// The ranks of the members in the communicator, in ascending order; `None` if all ranks are members.
    ranks: Option<Box<[u32]>>,
    rank: usize,
    /// The operations that have begun at this rank or have a place, and have not ended, in their order. The first one
    /// uses the board.
    begun: Vec<u64>,
    /// The number behind that of the latest operation.
    next: u64,
    /// The first tick that this rank has not finished.
    finished: Tick,
    /// All ranks have finished the ticks before this one.
    room: Tick,
    /// The tick for which this rank has used each bank latest.
    used: [Option<Tick>; BANKS],
    /// The event for which this rank waits.
    awaited: Option<Awaited>,
    /// The number of this rank's latest sleep.
    naps: u16,
    /// True if this rank has announced a sleep since the latest call of [`take_slept`](Self::take_slept).
    slept: bool,
    /// The latest word of each rank for which this rank has sent a message.
    woken: Box<[u64]>,
}

/// Returns a number for the host of each slot. Slots with the same number are on the same host, and in the same pid
/// namespace. Returns `None` if an address is not that of a slot.
#[must_use]
pub fn hosts(addresses: &[[u8; ADDRESS_BYTES]]) -> Option<Vec<u32>> {
    let mut known = HashMap::new();
    let host = |address: &[u8; ADDRESS_BYTES]| {
        let encoded = address[..Whereabouts::BYTES].to_vec();
        let Whereabouts { place, host, .. } = Whereabouts::decode(&Address(encoded)).ok()?;
        let next = known.len() as u32;
        Some(*known.entry((place, host)).or_insert(next))
    };
    addresses.iter().map(host).collect()
}

/// The number of an operation, and of a piece of data in the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    /// Returns a tick. `operation` is the result of [`Board::begin`].
    ///
    /// # Panics
    /// If `piece` is not below [`PIECES_MAX`].
    #[inline]
    #[must_use]
    pub fn new(operation: u64, piece: u32) -> Self {
        assert!(piece < PIECES_MAX, "an operation has fewer pieces");
        Self(operation << PIECES_MAX.ilog2() | u64::from(piece))
    }

    /// Returns the number of the bank for the data.
    fn bank(self) -> usize {
        let (operation, piece) = (self.0 >> PIECES_MAX.ilog2(), self.0 % u64::from(PIECES_MAX));
        // Consecutive operations of one piece use different banks, and so do consecutive pieces.
        ((operation + piece) % BANKS as u64) as usize
    }
}

/// An event for which a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The member whose event it is.
    pub member: usize,
    /// The event.
    pub event: Event,
    /// A number that the other rank gets with [`Board::next_sleeper`].
    pub cookie: u32,
}

/// An event at another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The rank publishes in this tick or a later one.
    Published(Tick),
    /// The rank finishes this tick.
    Finished(Tick),
}

/// The result of [`Board::fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The data was copied.
    Done,
    /// The other rank has not published in this tick.
    NotYet,
    /// The other rank has published another number of bytes.
    Length(usize),
    /// The other rank has left this tick out.
    Skipped,
}

impl Board {
    /// Maps the slots of all ranks. `addresses` contains the address of each slot, and `rank` is the index of this
    /// rank.
    ///
    /// # Errors
    /// [`PortError::BadAddress`], [`PortError::Unreachable`]: a slot cannot be mapped here, for example because the
    /// rank runs on another host; [`PortError::Exhausted`], [`PortError::Provider`].
    pub fn open(slot: Slot, rank: usize, addresses: &[[u8; ADDRESS_BYTES]]) -> Result<Self, PortError> {
        let map = |(other, address)| match other == rank {
            true => Ok(slot.lines.part(0..slot.lines.len())),
            false => slot.map(address),
        };
        let slots = addresses.iter().enumerate().map(map).collect::<Result<Box<_>, _>>()?;
        let woken = vec![0; slots.len()].into();
        Ok(Self {
            file: Some(slot.file),
            slots,
            ranks: None,
            rank,
            begun: Vec::new(),
            next: 0,
            finished: Tick(0),
            room: Tick(0),
            used: [None; BANKS],
            awaited: None,
            naps: 0,
            slept: false,
            woken,
        })
    }

    /// Maps the slots of some ranks of a communicator, for example of those on one host. `ranks` are these ranks in
    /// ascending order. `addresses` contains the addresses of the slots of all ranks.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    ///
    /// # Panics
    /// If `rank` is not one of `ranks`.
    pub fn open_some(
        slot: Slot,
        rank: u32,
        ranks: &[u32],
        addresses: &[[u8; ADDRESS_BYTES]],
    ) -> Result<Self, PortError> {
        let member = ranks.binary_search(&rank).expect("this rank is one of those that share the board");
        let addresses: Vec<_> = ranks.iter().map(|&rank| addresses[rank as usize]).collect();
        let board = Self::open(slot, member, &addresses)?;
        Ok(Self { ranks: Some(ranks.into()), ..board })
    }

    /// Returns the number of a rank of the communicator among the members of the board.
    ///
    /// # Panics
    /// If the rank is no member.
    #[inline]
    #[must_use]
    pub fn member(&self, rank: u32) -> usize {
        match &self.ranks {
            None => rank as usize,
            Some(ranks) => ranks.binary_search(&rank).expect("a rank fetches from members of its board"),
        }
    }

    /// Returns the rank of a member in the communicator.
    #[inline]
    #[must_use]
    pub fn rank_of(&self, member: usize) -> u32 {
        self.ranks.as_ref().map_or(member as u32, |ranks| ranks[member])
    }

    /// Returns the ranks of the members.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len()).map(|member| self.rank_of(member))
    }

    /// Closes the descriptor of the own slot. Call it when all ranks have mapped the slot.
    pub fn complete(&mut self) {
        self.file = None;
    }

    /// Begins an operation, and returns its number without a limit of 32 bits. Operations begin in the order of their
    /// numbers, except those that have a [place](Self::reserve). Numbers may be left out, at all ranks or at some.
    #[inline]
    pub fn begin(&mut self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.next as u32);
        if ahead > u32::MAX / 2
            && let Some(operation) = self.place(number)
        {
            return operation;
        }
        self.append(number)
    }

    /// Keeps a place for an operation that begins later: the operations that begin before it use the board after it.
    /// Call [`release`](Self::release) after its end, or if it does not begin.
    #[cold]
    pub fn reserve(&mut self, number: u32) {
        self.append(number);
    }

    /// Gives up the place of an operation, unless the operation has ended.
    #[cold]
    pub fn release(&mut self, number: u32) {
        if let Some(operation) = self.place(number) {
            self.end(operation);
        }
    }

    /// Returns the number without a limit of 32 bits of an operation that has begun or has a place.
    #[cold]
    fn place(&self, number: u32) -> Option<u64> {
        self.begun.iter().copied().find(|begun| *begun as u32 == number)
    }

    #[inline]
    fn append(&mut self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.next as u32);
        let number = self.next + u64::from(ahead);
        self.next = number + 1;
        self.begun.push(number);
        number
    }

    /// Returns true if all earlier operations have ended, so that this one may use the board.
    #[inline]
    #[must_use]
    pub fn is_first(&self, operation: u64) -> bool {
        self.begun.first() == Some(&operation)
    }

    /// Finishes all ticks before this one, which belongs to the first operation. Returns true if one of them was not
    /// finished.
    #[inline]
    pub fn advance(&mut self, tick: Tick) -> bool {
        let is_new = tick > self.finished;
        if is_new {
            self.finished = tick;
            // Keeps the loads of earlier copies before this store.
            self.slots[self.rank][FINISHED].word.store(tick.0, Ordering::Release);
        }
        is_new
    }

    /// Ends an operation, after its last tick or because this rank gives it up.
    #[inline]
    pub fn end(&mut self, operation: u64) {
        self.begun.retain(|&begun| begun != operation);
        let first = self.begun.first().copied().unwrap_or(self.next);
        self.advance(Tick::new(first, 0));
    }

    /// Publishes at most [`PIECE`] bytes. Returns the rank for which this rank must wait first, and the event, if the
    /// bank is still in use.
    ///
    /// # Panics
    /// If there are more bytes.
    #[inline]
    pub fn publish(&mut self, tick: Tick, data: &[u8]) -> Result<(), (usize, Event)> {
        if let Some(used) = self.used[tick.bank()].filter(|used| *used >= self.room) {
            self.find_room(used)?;
        }
        assert!(data.len() <= PIECE, "a rank publishes one piece at a time");
        self.used[tick.bank()] = Some(tick);
        write(self.bank(self.rank, tick), data);
        announce(self.bank(self.rank, tick), tick, data.len());
        Ok(())
    }

    /// Looks if all ranks have finished a tick.
    fn find_room(&mut self, used: Tick) -> Result<(), (usize, Event)> {
        let mut room = Tick(u64::MAX);
        for (member, slot) in self.slots.iter().enumerate() {
            if member != self.rank {
                // After this load, the stores to the bank come after the loads of the other rank.
                room = room.min(Tick(slot[FINISHED].word.load(Ordering::Acquire)));
                if room <= used {
                    return Err((member, Event::Finished(used)));
                }
            }
        }
        self.room = room;
        Ok(())
    }

    /// Copies bytes that another rank has published in a tick, from byte `start` on, until `into` is full. `whole` is
    /// the number of bytes that it has published, if both ranks carry out the same operation.
    ///
    /// # Panics
    /// If the copy does not stay inside.
    #[inline]
    pub fn fetch(&self, member: usize, tick: Tick, whole: usize, start: usize, into: &mut [u8]) -> Fetched {
        assert!(whole <= PIECE && start + into.len() <= whole, "a copy stays inside");
        fetch(self.bank(member, tick), tick, whole, start, into)
    }

    /// Returns the lines of a bank.
    #[inline]
    fn bank(&self, member: usize, tick: Tick) -> &[Line] {
        let first = FIRST_BANK + tick.bank() * BANK_LINES;
        &self.slots[member][first..first + BANK_LINES]
    }

    /// Notes the event for which this rank waits, or that it waits for none.
    #[inline]
    pub fn set_awaited(&mut self, awaited: Option<Awaited>) {
        self.awaited = awaited;
    }

    /// Returns the event for which this rank waits.
    #[must_use]
    pub fn awaited(&self) -> Option<Awaited> {
        self.awaited
    }

    /// Returns true if the awaited event has happened.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.awaited.is_some_and(|Awaited { member, event, .. }| self.has_happened(member, event))
    }

    /// Returns true if an event of a member has happened.
    #[inline]
    #[must_use]
    pub fn has_happened(&self, member: usize, event: Event) -> bool {
        match event {
            Event::Published(tick) => {
                published(self.bank(member, tick)).is_some_and(|published| published >= tick)
            }
            Event::Finished(tick) => self.slots[member][FINISHED].word.load(Ordering::Acquire) > tick.0,
        }
    }

    /// Announces that this rank may sleep, and returns true, if it waits for an event.
    fn lie_down(&mut self) -> bool {
        let Some(Awaited { member, cookie, .. }) = self.awaited else { return false };
        self.naps = self.naps.wrapping_add(1);
        self.slept = true;
        let word = u64::from(self.naps) << 48 | (member as u64 + 1) << 32 | u64::from(cookie);
        self.slots[self.rank][ASLEEP].word.store(word, Ordering::Relaxed);
        true
    }

    /// Returns true if this rank has announced that it may sleep.
    fn is_announced(&self) -> bool {
        self.slots[self.rank][ASLEEP].word.load(Ordering::Relaxed) != AWAKE
    }

    /// Ends the announcement.
    fn get_up(&mut self) {
        self.slots[self.rank][ASLEEP].word.store(AWAKE, Ordering::Relaxed);
    }

    /// Returns true if this rank has announced a sleep since the latest call. Another rank may have sent a message
    /// because of it.
    #[inline]
    pub fn take_slept(&mut self) -> bool {
        std::mem::take(&mut self.slept)
    }

    /// Returns a rank that sleeps and waits for an event at this rank, and the cookie of its wait. Returns each rank
    /// once for each of its sleeps. Call it until it returns `None` after this rank has published data or has finished
    /// ticks.
    #[inline]
    pub fn next_sleeper(&mut self) -> Option<(usize, u32)> {
        barrier::light();
        let word_of = |slot: &View<Line>| slot[ASLEEP].word.load(Ordering::Relaxed);
        let waits = |word: u64| (word >> 32) as u16 as usize == self.rank + 1;
        let is_new = |&(member, slot): &(usize, &View<Line>)| {
            let word = word_of(slot);
            word != AWAKE && waits(word) && self.woken[member] != word
        };
        let (member, word) =
            self.slots.iter().enumerate().find(is_new).map(|(member, slot)| (member, word_of(slot)))?;
        self.woken[member] = word;
        Some((member, word as u32))
    }
}

/// The boards of a rank, by the context of their communicator.
#[derive(Debug)]
pub struct Boards {
    boards: Vec<(u32, Board)>,
    /// The largest number of bytes of this rank's slots.
    bytes_max: usize,
    /// The slots that were made for boards that are not complete.
    reserved: usize,
    refused: u64,
}

impl Boards {
    /// Returns boards whose slots of this rank have at most `bytes_max` bytes together.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { boards: Vec::new(), bytes_max, reserved: 0, refused: 0 }
    }

    /// Counts one more slot that is made. Returns false if there is no room for it. Call [`release`](Self::release) in
    /// either case.
    pub fn reserve(&mut self) -> bool {
        self.reserved += 1;
        (self.boards.len() + self.reserved) * SLOT_BYTES <= self.bytes_max
    }

    /// Counts a slot that was not made, because there was no room or because the system refused it.
    pub fn refuse(&mut self) {
        self.refused += 1;
    }

    /// Ends a count that [`reserve`](Self::reserve) began. The slot is dropped, or part of a board.
    pub fn release(&mut self) {
        self.reserved -= 1;
    }

    /// Adds the board of a communicator.
    pub fn insert(&mut self, context: u32, board: Board) {
        assert!(self.get(context).is_none(), "a communicator has one board");
        self.boards.push((context, board));
    }

    /// Returns the board of a communicator.
    #[inline]
    #[must_use]
    pub fn get(&self, context: u32) -> Option<&Board> {
        self.boards.iter().find(|(of, _)| *of == context).map(|(_, board)| board)
    }

    /// Returns the board of a communicator for changes.
    #[inline]
    pub fn get_mut(&mut self, context: u32) -> Option<&mut Board> {
        self.boards.iter_mut().find(|(of, _)| *of == context).map(|(_, board)| board)
    }

    /// Drops the board of a communicator.
    pub fn remove(&mut self, context: u32) {
        self.boards.retain(|(of, _)| *of != context);
    }

    /// Returns the number of boards, and the number of slots for which there was no room.
    #[must_use]
    pub fn usage(&self) -> (usize, u64) {
        (self.boards.len(), self.refused)
    }

    /// Returns true if an awaited event has happened on a board.
    #[inline]
    #[must_use]
    pub fn have_news(&self) -> bool {
        self.boards.iter().any(|(_, board)| board.has_news())
    }

    /// Returns true if a sleep is announced on all boards at which this rank waits.
    pub fn have_announced_waits(&self) -> bool {
        self.boards.iter().all(|(_, board)| board.awaited.is_none() || board.is_announced())
    }

    /// Announces a sleep on all boards at which this rank waits. Returns how long the rank may sleep. Until
    /// [`get_up`](Self::get_up), each awaited event makes its rank find this one by [`Board::next_sleeper`].
    pub fn lie_down(&mut self) -> Sleep {
        let waiting = self.boards.iter_mut().filter_map(|(_, board)| board.lie_down().then_some(())).count();
        if waiting == 0 {
            return Sleep::UntilReadable;
        }
        // Either this rank sees the event now, or the other rank sees the announcement.
        let is_seen = barrier::everywhere();
        match self.have_news() {
            true => Sleep::NotNow,
            false if is_seen => Sleep::UntilReadable,
            false => Sleep::Briefly,
        }
    }

    /// Ends the announcements.
    pub fn get_up(&mut self) {
        self.boards.iter_mut().for_each(|(_, board)| board.get_up());
    }
}

/// Writes data to a bank of this rank, which no rank reads now.
#[inline]
fn write<W: Word>(bank: &[Line<W>], data: &[u8]) {
    let (first, rest) = bank.split_first().expect("a bank has lines");
    if data.len() > INLINE_MAX {
        return W::fill(rest, data);
    }
    let (words, tail) = data.as_chunks();
    let cells = &first.cells[1..];
    for (cell, bytes) in cells.iter().zip(words) {
        cell.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        cells[words.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Publishes the data of a bank.
#[inline]
fn announce<W: Word>(bank: &[Line<W>], tick: Tick, len: usize) {
    bank[0].cells[0].store(len as u64, Ordering::Relaxed);
    bank[0].word.store(tick.0 + 1, Ordering::Release);
}

/// Returns the latest tick in which a rank has published in a bank.
#[inline]
fn published<W: Word>(bank: &[Line<W>]) -> Option<Tick> {
    bank[0].word.load(Ordering::Acquire).checked_sub(1).map(Tick)
}

/// See [`Board::fetch`].
#[inline]
fn fetch<W: Word>(bank: &[Line<W>], tick: Tick, whole: usize, start: usize, into: &mut [u8]) -> Fetched {
    match published(bank) {
        Some(published) if published == tick => {}
        Some(published) if published > tick => return Fetched::Skipped,
        _ => return Fetched::NotYet,
    }
    let [len, cells @ ..] = &bank[0].cells;
    match len.load(Ordering::Relaxed) {
        len if len == whole as u64 => {}
        len => return Fetched::Length(len.min(PIECE as u64) as usize),
    }
    if whole > INLINE_MAX {
        W::read(&bank[1..], start, into);
    } else if let (0, Some(into)) = (start, into.as_mut_array::<8>()) {
        *into = cells[0].load(Ordering::Relaxed).to_ne_bytes();
    } else if !into.is_empty() {
        let words = cells.each_ref().map(|cell| cell.load(Ordering::Relaxed).to_ne_bytes());
        into.copy_from_slice(&words.as_flattened()[start..start + into.len()]);
    }
    Fetched::Done
}

/// The number of pieces that a rank can publish before the slowest rank has finished the first of them.
pub const BANKS: usize = 4;

/// An operation has fewer pieces.
pub const PIECES_MAX: u32 = 1 << 20;

/// The data of this length is in the line of the tick and the length. Longer data begins in the next line.
const INLINE_MAX: usize = LINE - 2 * size_of::<u64>();

/// The lines of a slot. Each of them is written by the owner for other readers, so they do not share lines.
const CONSTANT: usize = 0;
const FINISHED: usize = 1;
const ASLEEP: usize = 2;
const FIRST_BANK: usize = 3;
const BANK_LINES: usize = 1 + PIECE / LINE;

/// The value of `asleep` of a rank that is awake. A rank that sleeps stores the number of its sleep in the high 16
/// bits, 1 more than the awaited rank in the next 16 bits, and the cookie.
const AWAKE: u64 = 0;

/// The version of the layout.
const VERSION: u64 = u64::from_le_bytes(*b"board\0\0\x01");

const _: () = assert!(RANKS_MAX < 1 << 16 && PIECE.is_multiple_of(LINE));

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
