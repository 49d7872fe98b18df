//! Sleep and wake-up of a mailbox's owner.
//!
//! ```text
//!   owner of the mailbox                         sender
//!   declares all rings quiet                     publishes a packet
//!   word ← nap (not 0, another each time)        (ordered by the owner's barrier)
//!   full barrier, for all senders too            ring quiet? ─ no ─▶ done
//!   looks for packets ─ some ─▶ word ← 0           yes: marks its slot, reads the word
//!      none ─▶ sleeps on the alarm                 ├ 0 ─▶ done
//!   woken: word ← 0, silences the alarm            └ a nap ─▶ sets off the alarm; each sender once for a nap
//! ```
//! The barrier guarantees two things. Either the owner sees the packet, or the sender sees that its ring is quiet. And
//! either the owner sees the mark of the slot, or the sender sees the nap, and sets off the alarm. A sender whose ring
//! is not quiet only reads one word. Each sender decides alone whether it sets off the alarm: its own memory holds the
//! latest nap for which it has set off the alarm. So if a sender is killed or stopped before it sets off the alarm,
//! only its own packet is not noticed, and the other senders still wake the owner.

use std::cell::Cell;
use std::sync::atomic::Ordering;

#[cfg(all(test, loom))]
use self::model::barrier;
use super::word::Word;
#[cfg(not(all(test, loom)))]
use samite_os::barrier;

/// The owner's state.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    naps: u64,
}

impl Sleeper {
    /// Announces the owner's sleep. After this call, the owner must execute a barrier for all processes, and then look
    /// for packets.
    pub(super) fn lie_down(&mut self, word: &impl Word) {
        self.naps += 1;
        word.store(self.naps, Ordering::Relaxed);
    }

    pub(super) fn get_up(&self, word: &impl Word) {
        word.store(AWAKE, Ordering::Relaxed);
    }
}

/// A sender's state.
#[derive(Debug, Default)]
pub(super) struct Waker {
    /// The latest nap for which this sender has set off the alarm.
    rung: Cell<u64>,
}

impl Waker {
    /// Returns true if the alarm must be set off. Call it after a slot was marked.
    pub(super) fn must_ring(&self, word: &impl Word) -> bool {
        barrier::light();
        let nap = word.load(Ordering::Relaxed);
        nap != AWAKE && self.rung.replace(nap) != nap
    }
}

const AWAKE: u64 = 0;

#[cfg(all(test, loom))]
mod model;
