//! Requests: what the engine remembers of an operation.

use std::collections::VecDeque;
use std::ops::Range;

use samite_fabric::{Body, Memory, Region, Registration, Remote};
use samite_matching::PostedId;
use slab::Slab;

use crate::error::{Cause, Error, Status};
use crate::store::append;
use crate::trace::event;

/// Names a request. Generational: once collected it names nothing, and never another's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    index: u32,
    generation: u32,
}

impl std::hash::Hash for RequestId {
    /// As one number: that is one step of a hasher.
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_wire());
    }
}

impl RequestId {
    /// As it travels.
    pub(crate) fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_wire(name: u64) -> Self {
        Self { index: name as u32, generation: (name >> 32) as u32 }
    }
}

/// One operation. `state` is what the protocol awaits; `result` is what the caller gets to know. An operation
/// that timed out has a result before its protocol is over, and stays until both are done with it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) state: State,
    pub(crate) buffer: Buffer,
    /// The peer's index; none for a receive from any source that is not matched.
    pub(crate) peer: Option<u32>,
    pub(crate) context: u32,
    pub(crate) tag: u64,
    pub(crate) born_ns: u64,
    pub(crate) deadline_ns: u64,
    /// The bytes that it moved. The other parts of its [`Status`] are in `peer` and `tag` then.
    pub(crate) result: Option<Result<usize, Box<Error>>>,
    /// The caller has its result, or wants none.
    pub(crate) collected: bool,
    /// Failed peers that the caller of a receive from any source is still to be told of; most have none, and room
    /// for a pointer.
    #[expect(clippy::box_collection, reason = "a request is kept small")]
    pub(crate) pending_failures: Option<Box<VecDeque<(u32, Cause)>>>,
}

/// What an operation awaits.
#[derive(Debug)]
pub(crate) enum State {
    /// Send: its turn in the peer's outbox.
    AwaitingRoom,
    /// Send: the envelope is out; FIN if the receiver gets the bytes, CTS if it calls for them.
    AwaitingMatch { revoked: bool },
    /// Send: room in the port for bytes that the receiver called for.
    Pushing(Box<Push>),
    /// Receive: a message.
    AwaitingMessage(PostedId),
    /// Receive: gets.
    Pulling(Box<Pull>),
    /// Receive: DATA packets.
    AwaitingData(Box<Inflow>),
    /// Nothing.
    Over,
}

/// A send whose bytes are called for.
#[derive(Debug)]
pub(crate) struct Push {
    /// The receiver's name for it.
    pub(crate) recv: u64,
    /// The bytes that are to go.
    pub(crate) called: Range<usize>,
}

/// A receive that gets its bytes.
#[derive(Debug)]
pub(crate) struct Pull {
    /// The sender's name for it.
    pub(crate) send: u64,
    pub(crate) status: Status,
    pub(crate) from: Remote,
    /// Where the gets land: the request's own memory, or a bounce buffer of `depth` chunks; none until
    /// registered.
    pub(crate) landing: Option<(Region, Registration)>,
    /// Bytes of one get.
    pub(crate) chunk: usize,
    /// Bytes asked for, and bytes that are with the caller (or, for owned memory, in place).
    pub(crate) asked: usize,
    pub(crate) landed: usize,
    /// Gets not completed.
    pub(crate) outstanding: usize,
    /// Chunks in the bounce buffer that wait for the caller to lend its buffer: offsets in the message and
    /// lengths.
    pub(crate) waiting: Vec<(usize, usize)>,
    /// No more gets: the operation has its result. FIN goes when those outstanding have completed.
    pub(crate) abandoned: bool,
}

/// A receive whose bytes are sent.
#[derive(Debug)]
pub(crate) struct Inflow {
    /// The sender's name for it.
    pub(crate) send: u64,
    pub(crate) status: Status,
    /// Bytes called for and bytes come.
    pub(crate) called: usize,
    pub(crate) received: usize,
}

/// Whose memory it is.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// The caller's, which lends it at each poll, and finds it at `place`. `staged` holds bytes that came while it
    /// was not at hand.
    Lent { len: usize, place: u32, staged: Option<Box<Staged>> },
    /// The request's.
    Owned(Memory),
    /// The request's, known to the port so that a peer can get it.
    Exposed { region: Region, registration: Registration },
    /// With a port that may still touch it, or given back.
    Gone,
}

/// Bytes of a message that wait for their buffer.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Where they begin in the message.
    at: usize,
    bytes: Vec<u8>,
}

impl Staged {
    /// Keeps bytes that begin at `at`, right behind those that are kept already.
    pub(crate) fn append(staged: &mut Option<Box<Self>>, at: usize, bytes: &(impl Body + ?Sized)) {
        let staged = staged.get_or_insert_with(|| Box::new(Self { at, bytes: Vec::new() }));
        append(&mut staged.bytes, bytes);
    }

    /// Puts the bytes where they belong.
    pub(crate) fn copy_to(&self, buffer: &mut [u8]) {
        buffer[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

impl Buffer {
    pub(crate) fn lent(len: usize) -> Self {
        Self::Lent { len, place: 0, staged: None }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Lent { len, .. } => *len,
            Self::Owned(memory) => memory.len(),
            Self::Exposed { region, .. } => region.len(),
            Self::Gone => 0,
        }
    }
}

impl Request {
    pub(crate) fn new(
        state: State,
        buffer: Buffer,
        peer: Option<u32>,
        context: u32,
        tag: u64,
        born_ns: u64,
    ) -> Self {
        Self {
            state,
            buffer,
            peer,
            context,
            tag,
            born_ns,
            deadline_ns: u64::MAX,
            result: None,
            collected: false,
            pending_failures: None,
        }
    }

    /// It has its result.
    #[inline]
    pub(crate) fn succeed(&mut self, status: Status) {
        self.peer = Some(status.source);
        self.tag = status.tag;
        self.result = Some(Ok(status.bytes));
        event!(TRACE, peer = status.source, tag = status.tag, bytes = status.bytes, "succeeded");
    }

    /// It has its result, unless it had one before.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.result.is_none() {
            event!(DEBUG, peer = self.peer, tag = self.tag, %error, "failed");
            self.result = Some(Err(Box::new(error)));
        }
    }

    /// Its result, if it has one that was not taken.
    #[inline]
    pub(crate) fn take_result(&mut self) -> Option<Result<Status, Box<Error>>> {
        let status = |bytes| Status { source: self.peer.unwrap_or(0), tag: self.tag, bytes };
        Some(self.result.take()?.map(status))
    }

    #[inline]
    pub(crate) fn has_pending_failures(&self) -> bool {
        self.pending_failures.as_ref().is_some_and(|pending| !pending.is_empty())
    }

    /// A failed peer that its caller is to be told of, each once.
    pub(crate) fn next_pending_failure(&mut self) -> Option<(u32, Cause)> {
        self.pending_failures.as_mut()?.pop_front()
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self.state, State::AwaitingRoom | State::AwaitingMatch { .. } | State::Pushing(_))
    }
}

/// All requests of an engine.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Slab<(u32, Request)>,
    generation: u32,
}

impl Requests {
    pub(crate) fn insert(&mut self, request: Request) -> RequestId {
        self.generation = self.generation.wrapping_add(1);
        // The slab holds fewer than 2^32 requests: each takes more than a byte of memory for every such
        // index.
        let index = self.slots.insert((self.generation, request)) as u32;
        RequestId { index, generation: self.generation }
    }

    #[inline]
    pub(crate) fn get(&self, id: RequestId) -> Option<&Request> {
        self.slots.get(id.index as usize).filter(|slot| slot.0 == id.generation).map(|slot| &slot.1)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.0 == id.generation).map(|slot| &mut slot.1)
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Request> {
        self.get(id)?;
        Some(self.slots.remove(id.index as usize).1)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().map(|(_, (_, request))| request)
    }

    /// The names of those that `wanted` accepts.
    pub(crate) fn select(&self, mut wanted: impl FnMut(&Request) -> bool) -> Vec<RequestId> {
        self.slots
            .iter()
            .filter(|(_, (_, request))| wanted(request))
            .map(|(index, (generation, _))| RequestId { index: index as u32, generation: *generation })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_names_nothing() {
        let mut requests = Requests::default();
        let request = || Request::new(State::Over, Buffer::Gone, None, 0, 0, 0);
        let old = requests.insert(request());
        requests.remove(old).unwrap();
        let new = requests.insert(request());
        assert_eq!(old.index, new.index, "the place is used again");
        assert!(requests.get(old).is_none() && requests.remove(old).is_none() && requests.get(new).is_some());
        assert_eq!(RequestId::from_wire(new.to_wire()), new);
    }

    #[test]
    fn a_request_stays_small() {
        assert!(size_of::<Request>() <= 128, "{}", size_of::<Request>());
    }
}
