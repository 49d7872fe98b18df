//! The outbox: copies of messages whose sends have returned before the messages could be sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use samite_fabric::link::{PeerState, RequestId, Time, WorldRank};

use crate::config::Config;

/// The state of a send's bytes: if they were copied, and for a copy, if the caller still waits for the send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The bytes were not copied: the request owns them, or the caller lends them.
    No,
    /// The bytes were copied, and the caller waits for the end of the send.
    Waiting,
    /// The bytes are a copy in the outbox. The send has returned to its caller.
    Kept,
}

impl Copied {
    /// Returns true for a copy in the outbox, whose send has returned.
    pub(crate) fn is_kept(self) -> bool {
        self == Self::Kept
    }
}

/// The accounts of the copies whose sends have returned. Each copy is the buffer of a request that no caller waits for,
/// until the message has been sent or is lost.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The cost in bytes of the copies of standard sends.
    standard: u64,
    /// The cost in bytes of the copies of buffered sends.
    buffered: u64,
    /// The buffers of the copies of buffered sends.
    buffers: BTreeMap<RequestId, Arc<SendBuffer>>,
    /// The number of copies that were made before the first contact with their receivers.
    pub(crate) early: usize,
    /// The number of copies that were not delivered, by receiver.
    pub(crate) lost: BTreeMap<WorldRank, u64>,
}

impl Outbox {
    /// Returns the cost in bytes of all copies.
    pub(crate) fn cost(&self) -> u64 {
        self.standard + self.buffered
    }

    /// Returns true if the budget has room for a copy of a standard send's message of `len` bytes.
    pub(crate) fn has_room(&self, config: &Config, len: usize) -> bool {
        self.standard + cost(len) <= config.outbox_max as u64
    }

    /// Accounts for a new copy of `len` bytes. If it is a copy of a buffered send's message, `buffer` is the buffer in
    /// which [`SendBuffer::keep`] has made room for it.
    pub(crate) fn keep(&mut self, id: RequestId, len: usize, buffer: Option<Arc<SendBuffer>>) {
        match buffer {
            None => self.standard += cost(len),
            Some(buffer) => {
                self.buffered += cost(len);
                self.buffers.insert(id, buffer);
            }
        }
    }

    /// Accounts for a copy that was sent or is lost.
    pub(crate) fn release(&mut self, id: RequestId, len: usize) {
        // Usually there are no buffered sends, and then the search in the map is skipped.
        let buffer = if self.buffers.is_empty() { None } else { self.buffers.remove(&id) };
        match buffer {
            None => self.standard -= cost(len),
            Some(buffer) => {
                self.buffered -= cost(len);
                buffer.release(len);
            }
        }
    }

    /// Asserts that the request of each copy of a buffered send exists.
    pub(crate) fn check_invariants(&self, mut is_kept: impl FnMut(RequestId) -> bool) {
        assert!(self.buffers.keys().all(|id| is_kept(*id)), "a copy is kept by its request");
    }
}

/// The messages from the outbox to one peer that were passed to the port, and that the peer has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    /// Ranges of sequence numbers, first and last, in order. Each number is that of the last packet of one message.
    runs: VecDeque<(u32, u32)>,
}

impl Unacknowledged {
    /// Notes that the last packet which was sent to the peer completes a message.
    pub(crate) fn sent(&mut self, peer: &PeerState) {
        while self.runs.front().is_some_and(|run| peer.unacknowledged(run.1) == 0) {
            self.runs.pop_front();
        }
        let last = peer.last_sent();
        match self.runs.back_mut() {
            Some(run) if run.1.wrapping_add(1) == last => run.1 = last,
            _ => self.runs.push_back((last, last)),
        }
    }

    /// Returns the number of messages.
    pub(crate) fn len(&self, peer: &PeerState) -> u64 {
        let of_run = |run: &(u32, u32)| {
            let len = run.1.wrapping_sub(run.0).wrapping_add(1);
            u64::from(len.min(peer.unacknowledged(run.1)))
        };
        self.runs.iter().map(of_run).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }
}

/// The messages from the outbox that a peer has not taken, see [`Engine::untaken`](crate::Engine::untaken).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untaken {
    /// The receiver.
    pub rank: WorldRank,
    /// The number of messages.
    pub messages: u64,
    /// The latest deadline of the sends of these messages; [`Time::ZERO`] if the port has no room for the receiver.
    pub until: Time,
}

/// A budget for the copies of the messages of buffered sends, like the buffer that an MPI program attaches (MPI 4.1,
/// section 3.6). Several engines of a process may share one buffer.
#[derive(Debug)]
pub struct SendBuffer {
    max: u64,
    used: AtomicU64,
}

impl SendBuffer {
    /// Makes a buffer of `bytes` bytes. A message in it counts its bytes and [`KEPT_OVERHEAD`] more.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { max: bytes as u64, used: AtomicU64::new(0) }
    }

    /// Returns the size of the buffer in bytes.
    pub fn max(&self) -> usize {
        self.max as usize
    }

    /// Returns the cost in bytes of the messages in the buffer.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Reserves room for a message of `len` bytes. Returns false if the buffer has too little room.
    pub(crate) fn keep(&self, len: usize) -> bool {
        let with = |used: u64| Some(used + cost(len)).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).is_ok()
    }

    fn release(&self, len: usize) {
        self.used.fetch_sub(cost(len), Ordering::AcqRel);
    }
}

/// Returns the cost of a copy of `len` bytes.
pub(crate) fn cost(len: usize) -> u64 {
    (len + KEPT_OVERHEAD) as u64
}

/// The assumed memory of a copy beyond its bytes: its request, its entry in the queue, and the allocation.
pub const KEPT_OVERHEAD: usize = 192;
