//! Work that is due at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::requests::GENERATION_STEP;
use super::{Peer, RequestId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The deadline of a request: the request ends, unless it has ended or got another deadline meanwhile.
    Deadline(RequestId),
    /// The time to repeat the hello to a peer, if the peer has not answered.
    Hello(Peer),
}

/// All timers that are set. A timer may be void by now: its request has ended, or its peer has answered.
#[derive(Debug)]
pub(super) struct Timers {
    all: BinaryHeap<Reverse<(Time, Timer)>>,
    /// The time at which the first timer is due, or an earlier time. Every poll reads it, so it is kept outside of the
    /// heap.
    next: Time,
    /// The deadlines of each protocol.
    deadlines: [Deadlines; PROTOCOLS],
}

/// Counts of one protocol's deadlines.
#[derive(Clone, Copy, Debug, Default)]
struct Deadlines {
    len: usize,
    /// The number of deadlines that were left when void ones were last dropped.
    kept: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Self { all: BinaryHeap::new(), next: Time::NEVER, deadlines: [Deadlines::default(); PROTOCOLS] }
    }
}

impl Timers {
    #[inline]
    pub(super) fn next(&self) -> Time {
        self.next
    }

    pub(super) fn set(&mut self, due: Time, timer: Timer) {
        self.all.push(Reverse((due, timer)));
        self.next = self.next.min(due);
    }

    /// Sets the deadline of a request. If the protocol's deadlines have more than doubled since void ones were last
    /// dropped, drops those for which `is_current` returns false: they are no longer the deadline of their request.
    pub(super) fn set_deadline(
        &mut self,
        request: RequestId,
        due: Time,
        is_current: impl Fn(RequestId, Time) -> bool,
    ) {
        self.set(due, Timer::Deadline(request));
        let number = request.protocol_number();
        let deadlines = &mut self.deadlines[number];
        deadlines.len += 1;
        // Most operations end long before their deadline, so most deadlines are void.
        if deadlines.len > 2 * deadlines.kept + SWEEP_MIN {
            let mut kept = 0;
            self.all.retain(|Reverse((due, timer))| match timer {
                Timer::Deadline(id) if id.protocol_number() == number => {
                    let keeps = is_current(*id, *due);
                    kept += usize::from(keeps);
                    keeps
                }
                Timer::Deadline(_) | Timer::Hello(_) => true,
            });
            *deadlines = Deadlines { len: kept, kept };
        }
    }

    /// Puts a deadline back that [`Timers::take`] returned.
    pub(super) fn put_off(&mut self, due: Time, request: RequestId) {
        self.set(due, Timer::Deadline(request));
        self.deadlines[request.protocol_number()].len += 1;
    }

    /// Removes the earliest timer and returns it with its due time, if it is due at `now`.
    pub(super) fn take(&mut self, now: Time) -> Option<(Time, Timer)> {
        self.next = self.all.peek().map_or(Time::NEVER, |Reverse((due, _))| *due);
        if self.next > now {
            return None;
        }
        let Reverse(first) = self.all.pop()?;
        if let (_, Timer::Deadline(request)) = first {
            self.deadlines[request.protocol_number()].len -= 1;
        }
        Some(first)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// If a protocol has fewer deadlines than this, no void ones are dropped: the search would cost more than the freed
/// memory is worth.
const SWEEP_MIN: usize = 1024;

/// The number of protocols that a [`RequestId`] can distinguish.
const PROTOCOLS: usize = GENERATION_STEP as usize;
