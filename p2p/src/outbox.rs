//! The outbox: copies of messages whose sends have returned before the messages could be sent.

use crate::config::Config;

/// The owner of a send's bytes, and the budget of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The caller owns or lends them.
    No,
    /// A copy whose caller waits for the send.
    Waiting,
    /// A copy in the outbox. The send has returned.
    Kept,
}

impl Copied {
    /// Returns true if the send has returned.
    pub(crate) fn is_kept(self) -> bool {
        self == Self::Kept
    }
}

/// The copies whose sends have returned. They wait in the queues of their peers, as requests without an owner.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The cost in bytes of all copies.
    cost: u64,
    /// Copies that were not delivered.
    pub(crate) lost: u64,
}

impl Outbox {
    /// Returns the cost in bytes of all copies.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns true if the copy of a message of `len` bytes is within the budget.
    pub(crate) fn has_room(&self, config: &Config, len: usize) -> bool {
        self.cost + cost(len) <= config.outbox_max as u64
    }

    /// Accounts for a new copy of `len` bytes.
    pub(crate) fn keep(&mut self, len: usize) {
        self.cost += cost(len);
    }

    /// Accounts for a copy that has gone, or is lost.
    pub(crate) fn release(&mut self, len: usize, is_lost: bool) {
        self.cost -= cost(len);
        self.lost += u64::from(is_lost);
    }
}

/// Returns the cost of a copy of `len` bytes.
pub(crate) fn cost(len: usize) -> u64 {
    (len + KEPT_OVERHEAD) as u64
}

/// The memory of a copy beyond its bytes: its request, its place in the queue, and the allocation.
const KEPT_OVERHEAD: usize = 192;
