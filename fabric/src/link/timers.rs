//! Work that is due at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::requests::GENERATION_STEP;
use super::{Peer, RequestId, Time};

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
    all: BinaryHeap<Reverse<(Time, Timer)>>,
    /// When the first is due, or a time before that. Every poll reads it.
    next: Time,
    /// The deadlines of each protocol.
    deadlines: [Deadlines; PROTOCOLS],
}

/// Counts of one protocol's deadlines.
#[derive(Clone, Copy, Debug, Default)]
struct Deadlines {
    len: usize,
    /// The number of deadlines that the last sweep kept.
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

    /// Sets the deadline of a request. `is_current` tells whether a deadline is still that of its request, for requests
    /// of the same protocol. If the protocol has many deadlines, the void ones among them are dropped.
    pub(super) fn set_deadline(
        &mut self,
        request: RequestId,
        due: Time,
        is_current: impl Fn(RequestId, Time) -> bool,
    ) {
        self.set(due, Timer::Deadline(request));
        let lane = request.lane();
        let deadlines = &mut self.deadlines[lane];
        deadlines.len += 1;
        // Most operations end long before their deadline.
        if deadlines.len > 2 * deadlines.kept + SWEEP_MIN {
            let mut kept = 0;
            self.all.retain(|Reverse((due, timer))| match timer {
                Timer::Deadline(id) if id.lane() == lane => {
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
        self.deadlines[request.lane()].len += 1;
    }

    /// Takes the next timer that is due, with the time when it was.
    pub(super) fn take(&mut self, now: Time) -> Option<(Time, Timer)> {
        self.next = self.all.peek().map_or(Time::NEVER, |Reverse((due, _))| *due);
        if self.next > now {
            return None;
        }
        let Reverse(first) = self.all.pop()?;
        if let (_, Timer::Deadline(request)) = first {
            self.deadlines[request.lane()].len -= 1;
        }
        Some(first)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// The number of a protocol's deadlines below which a sweep does not pay.
const SWEEP_MIN: usize = 1024;

/// The number of protocols that names of requests can distinguish.
const PROTOCOLS: usize = GENERATION_STEP as usize;
