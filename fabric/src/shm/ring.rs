//! The rings: one producer sends packets to one consumer through memory that both map.
//!
//! A ring is an array of cache [`Line`]s: a word, and 56 bytes of payload. A packet takes as many consecutive lines as
//! its payload needs (at least one), and continues from the last line of the ring to the first. The word of the
//! packet's *first* line publishes the packet: it is the length of the packet plus 1, or 0 if there is no packet.
//!
//! The producer writes the payload, then stores that word with `Release`. The consumer polls the word of the line in
//! which the next packet will begin. So for a short packet the consumer loads only one cache line, which holds word and
//! payload.
//!
//! The body of a *long* packet takes whole lines and uses their words for payload too. So the body is contiguous,
//! except at the end of the ring. Either side copies the body in one or two plain copies, and the receiver copies it
//! directly to its destination.
//!
//! The consumer *clears* the lines that it has read: it sets their words to zero before it reports that the lines are
//! read. (It clears a body while it copies the body.) So the words of free lines are zero when the producer uses the
//! lines, and these lines are only in the consumer's cache (see below).
//!
//! The consumer reports its position only at intervals, in a separate word. The producer reads that word only when it
//! has used all the room that it knew of. The longest packet takes half of the ring, so it always fits when all packets
//! before it have been read.
//!
//! There are several rings ([`RINGS`]), of which one is the current one, initially the first. The producer can switch
//! to another ring at any time, and come back ([`Producer::move_to`]): after its latest packet it writes a mark with
//! the number of the next ring. One line of each ring is kept free of packets, so that the mark fits even in a full
//! ring.
//!
//! # Cache ownership of lines
//! If the consumer only read a line, it would be in the caches of both sides. The producer's next store to it would
//! have to wait until the copy in the consumer's cache is invalidated, for one line after the other. PREFETCHW cannot
//! start this earlier, since it does nothing for a line that is present in the processor's own cache (measured on AMD
//! Zen: 100 ns a line between cores that share no cache). If the consumer writes to a line, the line is no longer in
//! the producer's cache, and the producer can prefetch several such lines at a time. So clearing raises the rate of
//! 8-byte messages to 1.15 times the rate without clearing, and to 1.6 times between cores that share no cache. It
//! raises the bandwidth of 4 KiB messages to 2.2 times, and the bandwidth of long bodies to 3 times. The consumer
//! clears lines when it looks for the next packet, so that the answer to a packet does not have to wait for the
//! clearing. It clears bodies in the loop that copies them, which is the fastest way. (The idea that the entries of a
//! ring themselves show if they are free is from FastForward: Giacomoni, Moseley and Vachharajani, 2008.)
//!
//! # Soundness
//! The other side may be buggy or hostile, and write anything at any time. This is no data race, because all access is
//! by atomic loads and stores, or by instructions outside of the language. Payload is copied out before it is used.
//! Each word is read once, and checked: a length must fit in the ring in which it is found ([`Size::holds`]), and in
//! the receiver's buffer.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::word::Word;
use crate::copy::LINE;
use crate::layout::{BLOCK, with_block};
use crate::prefetch;

/// The unit of transfer between processors.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line<W = AtomicU64> {
    pub(super) word: W,
    pub(super) cells: [W; CELLS],
}

impl<W: Word> Line<W> {
    pub(super) fn words(&self) -> impl Iterator<Item = &W> {
        std::iter::once(&self.word).chain(&self.cells)
    }

    #[inline(always)]
    fn write(&self, payload: &[u8; PAYLOAD]) {
        for (cell, bytes) in self.cells.iter().zip(payload.as_chunks().0) {
            cell.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn read(&self, payload: &mut Payload) {
        for (cell, into) in self.cells.iter().zip(payload) {
            *into = cell.load(Ordering::Relaxed);
        }
    }

    /// Publishes the packet that begins here.
    #[inline(always)]
    pub(super) fn publish(&self, len: usize) {
        self.word.store(len as u64 + 1, Ordering::Release);
    }

    /// Marks the line as free.
    #[inline(always)]
    pub(super) fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Line {
    /// Writes the number of a notice or of a mark, or the lengths of a long packet.
    pub(super) fn forge_number(&self, number: u64) {
        self.cells.iter().for_each(|cell| cell.store(number, Ordering::Relaxed));
    }
}

/// The memory of the rings.
pub(super) trait Place {
    type Word: Word;

    /// The lines of the current ring.
    fn lines(&self) -> &[Line<Self::Word>];

    /// Returns the lines of any ring, and the word with the position up to which the consumer says that it has read the
    /// ring. The number of lines is a power of two, and not less than that of the first ring. Before the producer and
    /// the consumer start, all lines are zero and the position is 0.
    fn ring(&self, ring: usize) -> (&[Line<Self::Word>], &Self::Word);

    /// Makes a ring the current one.
    fn go_to(&mut self, ring: usize);
}

/// Number of rings.
pub(super) const RINGS: usize = 3;

/// Returns the longest packet through a ring of `lines`, in bytes.
pub(super) const fn packet_max(lines: usize) -> usize {
    lines / 2 * PAYLOAD
}

/// Returns the best packet size for a long message through a ring of `lines`, in bytes. It is an eighth of the ring, so
/// that the sender can be several packets ahead of the receiver. (Sizes from a tenth to a quarter of the ring are
/// equally fast.)
pub(super) const fn fragment_max(lines: usize) -> usize {
    lines / 8 * LINE + HEAD_MAX
}

/// The sending end.
pub(super) struct Producer<P> {
    place: P,
    ring: usize,
    /// The state of the current ring.
    at: Written,
    /// The states of all rings. The entry of the current ring is outdated.
    all: Box<[Written; RINGS]>,
    /// The position in the current ring from which on pushes return [`Push::AtCheck`].
    check_at: u64,
}

/// The producer's state of a ring.
#[derive(Clone, Copy, Debug)]
struct Written {
    size: Size,
    /// Lines written since the start.
    position: u64,
    /// The position up to which the producer knows that lines are free.
    room: u64,
    /// The lesser of `room` and `check_at`. A push of a short packet at an earlier position needs no other check.
    limit: u64,
}

impl Written {
    fn new<W>(lines: &[Line<W>]) -> Self {
        let size = Size::of(lines);
        Self { size, position: 0, room: size.room(), limit: size.room() }
    }

    /// Updates the room, given the position up to which the consumer says that it has read.
    fn make_room(&mut self, read: u64) {
        // A correct consumer's position is behind the producer's by no more than the ring, and never decreases. Any
        // other value gives no room.
        if self.position.checked_sub(read).is_some_and(|behind| behind <= self.size.room()) {
            self.room = self.room.max(read + self.size.room());
        }
    }
}

impl<P: Place> Producer<P> {
    /// Returns a producer whose current ring is the first one. Nothing may have been sent through the rings of `place`
    /// before.
    pub(super) fn new(place: P) -> Self {
        let all: Box<[_; RINGS]> = Box::new(std::array::from_fn(|ring| Written::new(place.ring(ring).0)));
        Self { place, ring: 0, at: all[0], all, check_at: u64::MAX }
    }

    pub(super) fn place(&self) -> &P {
        &self.place
    }

    /// Returns the current ring.
    pub(super) fn ring(&self) -> usize {
        self.ring
    }

    /// Returns the number of lines written to the current ring.
    pub(super) fn position(&self) -> u64 {
        self.at.position
    }

    /// Returns the number of lines of the current ring.
    pub(super) fn lines(&self) -> u64 {
        self.at.size.lines
    }

    /// Returns the number of lines of the current ring that the consumer has not reported as read.
    pub(super) fn unread(&self) -> u64 {
        self.at.position.saturating_sub(self.read())
    }

    fn read(&self) -> u64 {
        self.place.ring(self.ring).1.load(Ordering::Acquire)
    }

    /// Reads the consumer's position. Returns true if there is more room than was known before.
    pub(super) fn look(&mut self) -> bool {
        let known = self.at.room;
        self.at.make_room(self.read());
        self.at.room > known
    }

    /// Returns true if there is room for a short packet.
    pub(super) fn has_room(&mut self) -> bool {
        self.at.position < self.at.room || self.find_room(self.at.position + 1).is_none()
    }

    /// Sends a number instead of a packet, to announce bytes that were written elsewhere. When the receiver has read
    /// the number, it sees those bytes. The caller has checked that there is room.
    pub(super) fn notify(&mut self, number: u64) {
        self.write_number(number);
        self.publish(self.at.position + 1, NOTICE);
    }

    fn write_number(&self, number: u64) {
        let line = &self.place.lines()[self.at.size.index(self.at.position)];
        line.cells[0].store(number, Ordering::Relaxed);
    }

    /// Returns true if the consumer has announced that it reads no more.
    pub(super) fn is_shut(&self) -> bool {
        self.read() == SHUT
    }

    /// Sets the position in the current ring from which on pushes return [`Push::AtCheck`].
    pub(super) fn set_check_at(&mut self, position: u64) {
        self.check_at = position;
        self.set_limit();
    }

    pub(super) fn is_at_check(&self) -> bool {
        self.at.position >= self.check_at
    }

    fn set_limit(&mut self) {
        self.at.limit = self.at.room.min(self.check_at.max(self.at.position));
    }

    /// Continues in another ring, and removes the check position. The consumer follows when it has read everything sent
    /// before. Returns false if the other ring has no room.
    pub(super) fn move_to(&mut self, ring: usize) -> bool {
        let mut next = self.all[ring];
        next.make_room(self.place.ring(ring).1.load(Ordering::Acquire));
        if next.position >= next.room {
            return false;
        }
        self.write_number(ring as u64);
        let at = &mut self.at;
        self.place.lines()[at.size.index(at.position)].publish(MOVED);
        at.position += 1;
        self.all[self.ring] = std::mem::replace(at, next);
        self.ring = ring;
        self.place.go_to(ring);
        self.set_check_at(u64::MAX);
        true
    }

    /// Sends `head` and `body` as one packet of at most [`packet_max`] bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, head: &[u8], body: &(impl crate::Body + ?Sized)) -> Push {
        if head.len() + body.len() > PAYLOAD || self.at.position == self.at.limit {
            return self.push_slowly(head, body);
        }
        let line = &self.place.lines()[self.at.size.index(self.at.position)];
        let mut payload = [0; PAYLOAD];
        payload[..head.len()].copy_from_slice(head);
        body.copy_to(&mut payload[head.len()..][..body.len()]);
        line.write(&payload);
        line.publish(head.len() + body.len());
        prefetch::for_writing(&self.place.lines()[self.at.size.index(self.at.position + AHEAD)]);
        self.at.position += 1;
        Push::Done
    }

    /// Handles all cases of [`push`](Self::push) except a short packet for which there is room. It is not inlined, so
    /// that `push` stays short.
    #[inline(never)]
    fn push_slowly(&mut self, head: &[u8], body: &(impl crate::Body + ?Sized)) -> Push {
        let is_long = body.len() >= BODY_MIN && head.len() <= HEAD_MAX;
        let count = if is_long { lines_for_long(body.len()) } else { lines_for(head.len() + body.len()) };
        if self.is_at_check() {
            return Push::AtCheck;
        }
        if !self.at.size.holds(count) {
            return Push::TooLong;
        }
        let end = self.at.position + count;
        if end > self.at.room
            && let Some(obstacle) = self.find_room(end)
        {
            return obstacle;
        }
        let len = if is_long {
            self.write_long(head, body);
            LONG
        } else {
            match body.as_slice() {
                Some(body) => self.write(end, head, body),
                None => self.write_parts(end, head, body),
            }
            head.len() + body.len()
        };
        self.publish(end, len);
        Push::Done
    }

    /// Publishes the lines written up to `end`.
    fn publish(&mut self, end: u64, len: usize) {
        self.place.lines()[self.at.size.index(self.at.position)].publish(len);
        self.at.position = end;
        self.set_limit();
    }

    #[inline(always)]
    fn write(&self, end: u64, mut head: &[u8], mut body: &[u8]) {
        let lines = self.place.lines();
        for position in self.at.position..end {
            let line = &lines[self.at.size.index(position)];
            if head.is_empty()
                && let Some((whole, rest)) = body.split_first_chunk()
            {
                body = rest;
                line.write(whole);
            } else {
                let mut payload = [0; PAYLOAD];
                let rest = take(&mut head, &mut payload);
                take(&mut body, rest);
                line.write(&payload);
            }
        }
    }

    /// Writes a packet as [`write`](Self::write) does, with a body that is scattered over memory.
    #[cold]
    fn write_parts(&self, end: u64, mut head: &[u8], body: &(impl crate::Body + ?Sized)) {
        let mut at = 0;
        for position in self.at.position..end {
            let mut payload = [0; PAYLOAD];
            let rest = take(&mut head, &mut payload);
            let len = rest.len().min(body.len() - at);
            body.copy_part(at, &mut rest[..len]);
            at += len;
            self.place.lines()[self.at.size.index(position)].write(&payload);
        }
    }

    /// Writes the head and the two lengths to one line, and the body to the lines that follow.
    fn write_long(&self, head: &[u8], body: &(impl crate::Body + ?Sized)) {
        let mut payload = [0; PAYLOAD];
        payload[..head.len()].copy_from_slice(head);
        let lengths = (head.len() as u64) << 32 | body.len() as u64;
        payload[HEAD_MAX..].copy_from_slice(&lengths.to_ne_bytes());
        let lines = self.place.lines();
        lines[self.at.size.index(self.at.position)].write(&payload);
        let start = self.at.size.index(self.at.position + 1);
        let fill = |start: usize, bytes: &[u8]| {
            let (straight, around) = bytes.split_at(bytes.len().min((lines.len() - start) * LINE));
            P::Word::fill(&lines[start..], straight);
            P::Word::fill(lines, around);
        };
        if let Some(body) = body.as_slice() {
            return fill(start, body);
        }
        with_block(|block| {
            for at in (0..body.len()).step_by(BLOCK) {
                let block = &mut block[..BLOCK.min(body.len() - at)];
                body.copy_part(at, block);
                fill((start + at / LINE) % lines.len(), block);
            }
        });
    }

    #[cold]
    fn find_room(&mut self, end: u64) -> Option<Push> {
        let read = self.read();
        if read == SHUT {
            return Some(Push::Shut);
        }
        self.at.make_room(read);
        (end > self.at.room).then_some(Push::Full)
    }
}

/// The result of [`Producer::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    Done,
    /// There is no room until the consumer has read more lines.
    Full,
    /// The packet takes more than half of the current ring.
    TooLong,
    /// There is room, but the producer has reached the position at which the caller wants to check the ring.
    AtCheck,
    /// The consumer has shut the rings.
    Shut,
}

/// The receiving end.
pub(super) struct Consumer<P> {
    place: P,
    ring: usize,
    /// The state of the current ring.
    at: Read,
    /// The states of all rings. The entry of the current ring is outdated.
    all: Box<[Read; RINGS]>,
    /// True if the body of the latest long packet was copied, which clears its lines.
    body_copied: Cell<bool>,
    /// The number of lines that are read between two reports to the producer. It is half of the first ring: when
    /// everything was read, less than half is unreported, so there is room for the longest packet. The number is not
    /// larger in the other rings, because there the producer needs recent reports to decide if it can return to the
    /// first ring.
    report_after: u64,
}

/// The consumer's state of a ring.
#[derive(Clone, Copy, Debug)]
struct Read {
    size: Size,
    /// Lines read since the start.
    position: u64,
    /// The number of these lines that are cleared.
    cleared: u64,
    /// The latest position that was reported to the producer.
    reported: u64,
}

impl<P: Place> Consumer<P> {
    pub(super) fn new(place: P) -> Self {
        let at = |ring| Read { size: Size::of(place.ring(ring).0), position: 0, cleared: 0, reported: 0 };
        let all: Box<[_; RINGS]> = Box::new(std::array::from_fn(at));
        Self {
            place,
            ring: 0,
            at: all[0],
            report_after: all[0].size.lines / 2,
            all,
            body_copied: Cell::new(false),
        }
    }

    /// Copies the next packet to the start of `into`, a buffer made by [`scratch`]. Of a long packet it copies only the
    /// head; [`Consumer::body`] and [`Consumer::skip`] handle the body.
    #[inline(always)]
    pub(super) fn pop(&mut self, into: &mut [Payload]) -> Pop {
        self.clear();
        let first = &self.place.lines()[self.at.size.index(self.at.position)];
        let Some(len) = first.word.load(Ordering::Acquire).checked_sub(1) else { return Pop::Empty };
        let len = len as usize;
        if len <= PAYLOAD {
            first.read(&mut into[0]);
            self.at.position += 1;
        } else if len <= size_of_val(into) {
            if !self.pop_lines(len, into) {
                return Pop::Garbled;
            }
        } else {
            let number = first.cells[0].load(Ordering::Relaxed);
            let popped = match len {
                LONG => return self.pop_long(into),
                NOTICE => Pop::Notice { number },
                MOVED => Pop::Moved { ring: number as usize },
                _ => return Pop::Garbled,
            };
            self.at.position += 1;
            self.report_if_due();
            return popped;
        }
        self.report_if_due();
        Pop::Packet { len }
    }

    /// Clears the lines that were read.
    #[inline(always)]
    fn clear(&mut self) {
        let Read { size, position, cleared, .. } = &mut self.at;
        match *position - *cleared {
            0 => {}
            1 => {
                self.place.lines()[size.index(*cleared)].clear();
                *cleared += 1;
            }
            _ => self.clear_several(),
        }
    }

    /// Clears several lines as [`clear`](Self::clear) does, but without a check for the ring's end at each line. Such
    /// checks would double the time.
    #[inline(never)]
    fn clear_several(&mut self) {
        let Read { size, position, cleared, .. } = &mut self.at;
        let lines = self.place.lines();
        let (start, count) = (size.index(*cleared), (*position - *cleared) as usize);
        let straight = count.min(lines.len() - start);
        lines[start..start + straight].iter().for_each(Line::clear);
        lines[..count - straight].iter().for_each(Line::clear);
        *cleared = *position;
    }

    #[inline(always)]
    fn report_if_due(&mut self) {
        self.report_after_lines(self.report_after);
    }

    #[inline(always)]
    fn report_after_lines(&mut self, lines: u64) {
        if self.at.position - self.at.reported >= lines {
            self.report();
        }
    }

    #[inline(never)]
    fn pop_lines(&mut self, len: usize, into: &mut [Payload]) -> bool {
        let count = lines_for(len);
        if !self.at.size.holds(count) {
            return false;
        }
        let lines = self.place.lines();
        let end = self.at.position + count;
        for (position, into) in (self.at.position..end).zip(into) {
            lines[self.at.size.index(position)].read(into);
        }
        self.at.position = end;
        true
    }

    #[inline(never)]
    fn pop_long(&mut self, into: &mut [Payload]) -> Pop {
        self.place.lines()[self.at.size.index(self.at.position)].read(&mut into[0]);
        let lengths = into[0][CELLS - 1];
        let (head, body) = ((lengths >> 32) as usize, lengths as u32 as usize);
        let sound = head <= HEAD_MAX
            && (BODY_MIN..=size_of_val(into)).contains(&body)
            && self.at.size.holds(lines_for_long(body));
        if !sound {
            return Pop::Garbled;
        }
        // Prefetches the first lines of the body, before any of them is copied. The lines are fetched for writing,
        // since they will be cleared.
        for position in (1..=FETCHED.min(body.div_ceil(LINE) as u64)).map(|n| self.at.position + n) {
            prefetch::for_writing(&self.place.lines()[self.at.size.index(position)]);
        }
        Pop::Long { head, body }
    }

    /// Returns the body of the latest long packet.
    pub(super) fn body(&self, len: usize) -> Body<'_, P> {
        Body { consumer: self, len }
    }

    /// Continues after the body of the latest long packet.
    pub(super) fn skip(&mut self, len: usize) {
        let lines = len.div_ceil(LINE) as u64;
        self.at.position += 1;
        self.clear();
        self.at.position += lines;
        if self.body_copied.take() {
            self.at.cleared = self.at.position;
        }
        // Reports now if another body of this length would exceed the interval between reports. Few such bodies fit in
        // the ring, so the producer is probably waiting for the report.
        self.report_after_lines(self.report_after.saturating_sub(lines));
    }

    #[cold]
    fn report(&mut self) {
        self.clear();
        // The order is Release, so that the loads and stores above come before the writes that the producer makes to
        // these lines after it has seen the report.
        self.place.ring(self.ring).1.store(self.at.position, Ordering::Release);
        self.at.reported = self.at.position;
    }

    pub(super) fn place(&self) -> &P {
        &self.place
    }

    /// Returns the current ring.
    pub(super) fn ring(&self) -> usize {
        self.ring
    }

    /// Returns true if there is no packet.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.place.lines()[self.at.size.index(self.at.position)].word.load(Ordering::Acquire) == 0
    }

    /// Starts to load the line of the next packet.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch::for_reading(&self.place.lines()[self.at.size.index(self.at.position)]);
    }

    /// Follows the producer after [`Pop::Moved`].
    pub(super) fn move_to(&mut self, ring: usize) {
        self.report();
        self.all[self.ring] = std::mem::replace(&mut self.at, self.all[ring]);
        self.ring = ring;
        self.place.go_to(ring);
    }

    /// Tells the producer in each ring that nothing will be read any more.
    pub(super) fn shut(self) {
        for ring in 0..RINGS {
            self.place.ring(ring).1.store(SHUT, Ordering::Release);
        }
    }
}

/// The result of [`Consumer::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pop {
    Empty,
    /// A packet of this many bytes.
    Packet {
        len: usize,
    },
    /// A number that [`Producer::notify`] has sent.
    Notice {
        number: u64,
    },
    /// A long packet. `head` is the number of bytes of its head, which were copied, and `body` is the number of bytes
    /// of its body.
    Long {
        head: usize,
        body: usize,
    },
    /// The producer says that it continues in another ring, whose number must be checked.
    Moved {
        ring: usize,
    },
    /// A value that no producer writes. Nothing after it can be trusted.
    Garbled,
}

/// A long packet's body, in the ring.
pub(super) struct Body<'a, P> {
    consumer: &'a Consumer<P>,
    len: usize,
}

impl<P: Place> crate::Body for Body<'_, P> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_part(&self, at: usize, into: &mut [u8]) {
        assert!(at.is_multiple_of(LINE) && into.len() <= self.len - at, "a part of whole lines");
        let Consumer { place, at: Read { size, position, .. }, body_copied, .. } = self.consumer;
        if at + into.len() == self.len {
            let again = body_copied.replace(true);
            debug_assert!(!again, "a body is copied once");
        }
        let lines = place.lines();
        let start = size.index(position + 1 + (at / LINE) as u64);
        let (straight, around) = into.split_at_mut(into.len().min((lines.len() - start) * LINE));
        P::Word::take(&lines[start..], straight);
        P::Word::take(lines, around);
    }
}

/// Returns a buffer for [`Consumer::pop`].
pub(super) fn scratch(lines: usize) -> Box<[Payload]> {
    vec![[0; CELLS]; lines / 2].into()
}

/// Moves bytes from the start of `from` to the start of `into`, until `from` is empty or `into` is full. Returns the
/// rest of `into`.
fn take<'a>(from: &mut &[u8], into: &'a mut [u8]) -> &'a mut [u8] {
    let (taken, left) = from.split_at(from.len().min(into.len()));
    let (filled, rest) = into.split_at_mut(taken.len());
    filled.copy_from_slice(taken);
    *from = left;
    rest
}

/// The number of lines of a ring, which is a power of two, with arithmetic on positions in the ring.
#[derive(Clone, Copy, Debug)]
struct Size {
    lines: u64,
}

impl Size {
    fn of<W>(lines: &[Line<W>]) -> Self {
        let lines = lines.len();
        assert!(lines.is_power_of_two() && lines > 1, "a ring has a power of two of lines");
        Self { lines: lines as u64 }
    }

    /// Returns the number of lines available for packets.
    fn room(self) -> u64 {
        self.lines - 1
    }

    /// Returns true if a packet may take `lines` lines of this ring.
    #[inline(always)]
    fn holds(self, lines: u64) -> bool {
        lines <= self.lines / 2
    }

    #[inline(always)]
    fn index(self, position: u64) -> usize {
        (position & (self.lines - 1)) as usize
    }
}

fn lines_for(len: usize) -> u64 {
    len.div_ceil(PAYLOAD).max(1) as u64
}

/// Returns the number of lines of a long packet, including the line of its head.
fn lines_for_long(body: usize) -> u64 {
    1 + body.div_ceil(LINE) as u64
}

/// The number of payload cells in a line.
const CELLS: usize = 7;
/// The number of bytes of payload in a line.
const PAYLOAD: usize = size_of::<Payload>();

/// A packet is long if its body has at least this number of bytes and its head at most [`HEAD_MAX`]. For shorter
/// bodies, to start a plain copy takes more time than it saves.
const BODY_MIN: usize = if cfg!(loom) { 56 } else { 512 };
/// The largest head of a long packet, in bytes. It fits in one line together with the lengths of head and body.
const HEAD_MAX: usize = PAYLOAD - size_of::<u64>();

/// The payload of a line, in the form in which the receiver copies it out.
pub(super) type Payload = [u64; CELLS];

/// The producer prefetches the line that is this number of lines ahead of its position. That line is in the cache of
/// the consumer, which read it in the previous lap. The producer does not prefetch a nearer line, because the consumer
/// may be polling it.
const AHEAD: u64 = 4;

/// The number of lines of a long packet that are prefetched. While the first lines are copied, the processor prefetches
/// the others by itself.
const FETCHED: u64 = 16;

/// A value in place of a length, larger than the length of any packet. It means that the producer has continued in
/// another ring, whose number follows.
const MOVED: usize = u16::MAX as usize;
/// A value in place of a length. It means that a number from [`Producer::notify`] follows.
const NOTICE: usize = MOVED - 1;
/// A value in place of a length. It means that the packet is long: the line contains the head and, in its last payload
/// cell, the lengths of head and body. The body is in the lines after it.
const LONG: usize = MOVED - 2;

/// A value in place of the consumer's position. It means that the consumer reads no more.
const SHUT: u64 = u64::MAX;

// A line has 64 bytes, aligned. A packet of 48 bytes (header, tag and 8 bytes of data) fits in one line, together with
// the line's word.
const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64 && PAYLOAD >= 48);

// SAFETY: eight atomic words, `repr(C)`, 64 bytes: no padding.
unsafe impl samite_os::shared::Shareable for Line {}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod tests;
