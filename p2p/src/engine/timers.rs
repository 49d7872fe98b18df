//! What is to be done at some time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Core;
use crate::RequestId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A request ends, if that is its deadline still.
    Deadline(RequestId),
    /// A peer is greeted again, if it has not answered.
    Greeting(u32),
}

/// Timers, some of which may have become void.
#[derive(Debug)]
pub(super) struct Timers {
    all: BinaryHeap<Reverse<(u64, Timer)>>,
    /// When the first is due, or before: every poll asks.
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

    /// Takes the next that is due, with the time when it was.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(u64, Timer)> {
        self.next_ns = self.all.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
        if self.next_ns > now_ns {
            return None;
        }
        self.all.pop().map(|Reverse(first)| first)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

impl Core {
    #[inline(always)]
    pub(super) fn set_deadline(&mut self, id: RequestId, deadline_ns: u64) {
        if deadline_ns != u64::MAX {
            self.set_timer(id, deadline_ns);
        }
    }

    fn set_timer(&mut self, id: RequestId, deadline_ns: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.deadline_ns = deadline_ns;
            self.timers.set(deadline_ns, Timer::Deadline(id));
        }
        // Most operations end long before their deadline: their timers are swept when they are the most.
        if self.timers.all.len() > 2 * self.requests.len() + KEPT {
            let requests = &self.requests;
            self.timers.all.retain(|Reverse((due_ns, timer))| match timer {
                Timer::Deadline(id) => {
                    requests.get(*id).is_some_and(|request| request.deadline_ns == *due_ns)
                }
                Timer::Greeting(_) => true,
            });
        }
    }
}

/// Timers of operations that are over that are not worth a sweep.
const KEPT: usize = 1024;
