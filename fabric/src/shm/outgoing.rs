//! The sending side of a connection. It decides which ring of its slot to use.
//!
//! A transfer takes only two thirds of the time if the lines that it uses are still in the first-level cache of both
//! sides. So a sender begins in the *small* ring, which fits in that cache together with the data. If the small ring is
//! full and the receiver is reading, the sender waits for room. If the receiver does not read now, because it is busy
//! or shares the core with the sender, it is useless to wait: the sender continues in the *large* ring. The sender also
//! uses the large ring for packets that are too long for the small ring. After a number of lines in the large ring, the
//! sender returns to the small ring if the lines that the receiver still has to read are at most three quarters of the
//! number of lines of the small ring.

use super::mailbox::{Connection, EXTRA, LARGE, SMALL};
use super::ring::{Producer, Push, packet_max};
use crate::Body;

pub(super) struct Outgoing {
    producer: Producer<Connection>,
    /// The number of lines of the small ring.
    small_lines: u64,
    /// The position in the small ring at which the sender last returned to it.
    entered: u64,
    /// The ring that the sender uses beside the small one: [`LARGE`], or [`EXTRA`] once that was granted.
    large: usize,
    /// The number of lines that the sender writes in the large ring before it tries to return to the small one.
    stay: u64,
    /// The number of laps of the large ring in which the ring was found full.
    laps_full: u32,
    /// The first lap that `laps_full` has not counted.
    uncounted_lap: u64,
}

impl Outgoing {
    pub(super) fn new(connection: Connection) -> Self {
        let producer = Producer::new(connection);
        let small_lines = producer.lines();
        Self { producer, small_lines, entered: 0, large: LARGE, stay: 0, laps_full: 0, uncounted_lap: 0 }
    }

    pub(super) fn connection(&self) -> &Connection {
        self.producer.place()
    }

    /// Sends a packet of at most [`Remote::packet_max`](super::mailbox::Remote::packet_max) bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, head: &[u8], body: &(impl Body + ?Sized)) -> Push {
        self.producer.push(head, body)
    }

    /// Returns true if there is room for a notification.
    pub(super) fn has_room(&mut self) -> bool {
        self.producer.has_room()
    }

    /// Sends a notification, which consists of a number. The caller has checked that there is room for it.
    pub(super) fn notify(&mut self, number: u64) {
        self.producer.notify(number);
    }

    /// Returns true if the receiver has shut the rings.
    pub(super) fn is_shut(&self) -> bool {
        self.producer.is_shut()
    }

    /// Returns true if the small ring is in use.
    #[cfg(test)]
    pub(super) fn is_small(&self) -> bool {
        self.producer.ring() == SMALL
    }

    /// Handles a push that failed, for a packet of `len` bytes: waits a moment, or changes the ring. Returns false if
    /// the packet still has to wait.
    #[cold]
    pub(super) fn overcome(&mut self, obstacle: Push, len: usize) -> bool {
        match obstacle {
            Push::Full if self.producer.ring() == SMALL => self.sees_it_read() || self.go_to_large(),
            Push::Full => self.use_extra(),
            Push::TooLong => self.go_to_large(),
            Push::AtCheck => {
                self.look_back(len);
                true
            }
            Push::Shut | Push::Done => false,
        }
    }

    fn sees_it_read(&mut self) -> bool {
        (0..PATIENCE).any(|_| {
            std::hint::spin_loop();
            self.producer.look()
        })
    }

    /// Leaves the small ring.
    fn go_to_large(&mut self) -> bool {
        let carried = self.producer.position() - self.entered;
        if !self.producer.move_to(self.large) {
            return false;
        }
        // If the small ring was soon full again, the next stay in the large ring is longer.
        let lasted = carried >= self.stay;
        self.stay = if lasted { self.producer.lines() } else { (self.stay * 2).min(STAY_MAX) };
        self.look_back_after(self.stay);
        true
    }

    fn look_back_after(&mut self, lines: u64) {
        self.producer.set_check_at(self.producer.position() + lines);
    }

    fn look_back(&mut self, len: usize) {
        let fits = len <= packet_max(self.small_lines as usize);
        let may = fits && self.producer.unread() <= self.small_lines / 4 * 3;
        if may && self.producer.move_to(SMALL) {
            self.entered = self.producer.position();
        } else {
            self.look_back_after(self.small_lines);
        }
    }

    /// Handles a large ring that is full: if it has been full often enough, requests the extra ring, and continues
    /// there once that is granted. Returns true if the sender now uses the extra ring.
    fn use_extra(&mut self) -> bool {
        let lap = self.producer.position() / self.producer.lines();
        if lap >= self.uncounted_lap {
            self.laps_full += 1;
            self.uncounted_lap = lap + 1;
        }
        let may = self.large != EXTRA && self.laps_full >= LAPS_FULL && self.connection().request_extra();
        if !(may && self.producer.move_to(EXTRA)) {
            return false;
        }
        self.large = EXTRA;
        self.look_back_after(self.stay);
        true
    }
}

/// The number of checks of the receiver's position before the sender assumes that the receiver does not read. The
/// checks take 1 or 2 µs. In this time a receiver that reads has read several of the longest messages of the small
/// ring.
const PATIENCE: u32 = 64;

/// The longest stay in the large ring, in lines: 4 MiB. The limit is so large because sender and receiver may share a
/// core. Then the small ring is full soon after each return to it, and each time the core must switch to the receiver.
const STAY_MAX: u64 = 1 << 16;

/// The number of laps of the large ring in which it must have been full before the extra ring is requested. It is large
/// enough that one or two bursts, or a short pause of the receiver, are not a reason.
const LAPS_FULL: u32 = 4;
