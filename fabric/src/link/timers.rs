//! Work that is due at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Peer, RequestId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A request ends, if that is still its deadline.
    Deadline(RequestId),
    /// A peer gets another hello, if it has not answered.
    Hello(Peer),
}

/// Timers, some of which may be void by now.
#[derive(Debug)]
pub(super) struct Timers {
    all: BinaryHeap<Reverse<(u64, Timer)>>,
    /// When the first is due, or a time before that. Every poll reads it.
    next_ns: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { all: BinaryHeap::new(), next_ns: u64::MAX }
    }
}

impl Timers {
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    pub(super) fn set(&mut self, due_ns: u64, timer: Timer) {
        self.all.push(Reverse((due_ns, timer)));
        self.next_ns = self.next_ns.min(due_ns);
    }

    /// Takes the next timer that is due, with the time when it was.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(u64, Timer)> {
        self.next_ns = self.all.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
        if self.next_ns > now_ns {
            return None;
        }
        self.all.pop().map(|Reverse(first)| first)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Drops the deadlines of which `is_current` says that they are void.
    pub(super) fn sweep(&mut self, is_current: impl Fn(RequestId, u64) -> bool) {
        self.all.retain(|Reverse((due_ns, timer))| match timer {
            Timer::Deadline(id) => is_current(*id, *due_ns),
            Timer::Hello(_) => true,
        });
    }
}
