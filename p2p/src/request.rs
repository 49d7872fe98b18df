//! Requests: what the engine remembers of an operation.

use std::ops::Range;

use samite_fabric::{Body, Exposure, Memory, Region, Registration, Remote};
use samite_matching::PostedId;

use crate::error::{Error, Status};
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
    pub(crate) partner: Partner,
    pub(crate) context: u32,
    pub(crate) tag: u64,
    pub(crate) born_ns: u64,
    pub(crate) deadline_ns: u64,
    /// The bytes that it moved. The other parts of its [`Status`] are in `partner` and `tag` then.
    pub(crate) result: Option<Result<usize, Box<Error>>>,
    /// The caller has its result, or wants none.
    pub(crate) collected: bool,
    /// Its memory is a copy of what the caller sends.
    pub(crate) is_copy: bool,
}

/// Who is at the other end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    Rank(u32),
    /// Whoever sends first: of a receive that has not been matched. So many failures need not be told to it any more.
    Any {
        told: u32,
    },
}

/// What an operation awaits.
#[derive(Debug)]
pub(crate) enum State {
    /// Send: its turn in the peer's outbox.
    AwaitingRoom { exposure: Option<Box<Exposure>> },
    /// Send: the envelope is out; FIN if the receiver gets or reads the bytes, CTS if it calls for them.
    AwaitingMatch { revoked: bool, exposure: Option<Box<Exposure>> },
    /// Send: room in the port for bytes that may go.
    Pushing(Box<Push>),
    /// Receive: a message.
    AwaitingMessage(PostedId),
    /// Receive: gets.
    Pulling(Box<Pull>),
    /// Receive: DATA or STREAM packets, or its buffer, to read the bytes to.
    AwaitingData(Box<Inflow>),
    /// Nothing.
    Over,
}

/// A send whose bytes are called for, or follow their envelope.
#[derive(Debug)]
pub(crate) struct Push {
    /// The receiver's name for it; none for a stream, which goes by the sender's.
    pub(crate) recv: Option<u64>,
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

/// A receive whose bytes are sent, or read.
#[derive(Debug)]
pub(crate) struct Inflow {
    /// The sender's name for it.
    pub(crate) send: u64,
    pub(crate) status: Status,
    /// Where they can be read.
    pub(crate) from: Option<Remote>,
    /// Bytes called for (of a stream all, by itself) and bytes come.
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
    Registered { region: Region, registration: Registration },
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
            Self::Registered { region, .. } => region.len(),
            Self::Gone => 0,
        }
    }
}

impl Request {
    #[inline(always)]
    pub(crate) fn new(
        state: State,
        buffer: Buffer,
        partner: Partner,
        context: u32,
        tag: u64,
        born_ns: u64,
    ) -> Self {
        Self {
            state,
            buffer,
            partner,
            context,
            tag,
            born_ns,
            deadline_ns: u64::MAX,
            result: None,
            collected: false,
            is_copy: false,
        }
    }

    /// The rank at the other end, once there is one.
    #[inline]
    pub(crate) fn rank(&self) -> Option<u32> {
        match self.partner {
            Partner::Rank(rank) => Some(rank),
            Partner::Any { .. } => None,
        }
    }

    /// It has its result.
    #[inline]
    pub(crate) fn succeed(&mut self, status: Status) {
        self.partner = Partner::Rank(status.source);
        self.tag = status.tag;
        self.result = Some(Ok(status.bytes));
        event!(TRACE, peer = status.source, tag = status.tag, bytes = status.bytes, "succeeded");
    }

    /// It has its result, unless it had one before.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.result.is_none() {
            event!(DEBUG, peer = self.rank(), tag = self.tag, %error, "failed");
            self.result = Some(Err(Box::new(error)));
        }
    }

    /// Whether there is nothing in it to be dropped.
    #[inline(always)]
    fn is_bare(&self) -> bool {
        matches!(self.buffer, Buffer::Lent { staged: None, .. } | Buffer::Gone)
            && match &self.state {
                State::AwaitingRoom { exposure } | State::AwaitingMatch { exposure, .. } => {
                    exposure.is_none()
                }
                State::AwaitingMessage(_) | State::Over => true,
                State::Pushing(_) | State::Pulling(_) | State::AwaitingData(_) => false,
            }
            && !matches!(self.result, Some(Err(_)))
    }

    /// Its result, if it has one that was not taken.
    #[inline]
    pub(crate) fn take_result(&mut self) -> Option<Result<Status, Box<Error>>> {
        let result = self.result.take()?;
        Some(result.map(|bytes| Status { source: self.rank().unwrap_or(0), tag: self.tag, bytes }))
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self.state, State::AwaitingRoom { .. } | State::AwaitingMatch { .. } | State::Pushing(_))
    }
}

/// All requests of an engine.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    /// The first free slot, as many as there are slots if none is.
    free: u32,
    len: usize,
    generation: u32,
}

/// As in a slab, but that a request lies there until the next one is written over it: to drop one that has nothing to
/// be dropped took longer than all else at its end. Two cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// That of the request in it, or [`FREE`].
    generation: u64,
    /// The next free slot.
    next: u32,
    /// A bare one, in a free slot.
    request: Request,
}

impl Requests {
    /// The name of the request that is inserted next.
    #[inline(always)]
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId { index: self.free, generation: self.generation.wrapping_add(1) }
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, request: Request) -> RequestId {
        let id = self.next_id();
        self.generation = id.generation;
        self.len += 1;
        match self.slots.get_mut(id.index as usize) {
            Some(slot) => {
                self.free = slot.next;
                slot.generation = id.generation.into();
                // What was there is bare, see `remove`.
                std::mem::forget(std::mem::replace(&mut slot.request, request));
            }
            None => {
                // There are fewer than 2^32: each takes more than a byte of memory for every such index.
                self.free += 1;
                self.slots.push(Slot { generation: id.generation.into(), next: 0, request });
            }
        }
        id
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: RequestId) -> Option<&Request> {
        let slot = self.slots.get(id.index as usize)?;
        (slot.generation == u64::from(id.generation)).then_some(&slot.request)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        let slot = self.slots.get_mut(id.index as usize)?;
        (slot.generation == u64::from(id.generation)).then_some(&mut slot.request)
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: RequestId) {
        let Some(request) = self.get_mut(id) else { return };
        if !request.is_bare() {
            *request = Request::new(State::Over, Buffer::Gone, Partner::Rank(0), 0, 0, 0);
        }
        self.remove_bare(id);
    }

    /// Removes one that is known to be there, and to be [bare](Request::is_bare).
    #[inline(always)]
    pub(crate) fn remove_bare(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else { return };
        debug_assert!(slot.generation == u64::from(id.generation) && slot.request.is_bare());
        (slot.generation, slot.next) = (FREE, self.free);
        self.free = id.index;
        self.len -= 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Request)> {
        (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.generation != FREE)
            .map(|(index, slot)| (RequestId { index, generation: slot.generation as u32 }, &slot.request))
    }

    /// The names of those that `wanted` accepts.
    pub(crate) fn select(&self, mut wanted: impl FnMut(&Request) -> bool) -> Vec<RequestId> {
        self.iter().filter(|(_, request)| wanted(request)).map(|(id, _)| id).collect()
    }
}

/// The generation of no request, which no name has.
const FREE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_names_nothing() {
        let mut requests = Requests::default();
        let request = || Request::new(State::Over, Buffer::Gone, Partner::Rank(0), 0, 0, 0);
        let old = requests.insert(request());
        requests.remove(old);
        let new = requests.insert(request());
        requests.remove(old);
        assert_eq!(old.index, new.index, "the place is used again");
        assert!(requests.get(old).is_none() && requests.get(new).is_some() && requests.len() == 1);
        assert_eq!(RequestId::from_wire(new.to_wire()), new);
    }

    #[test]
    fn what_a_request_holds_is_dropped_with_it() {
        let memory = Region::new(Memory::zeroed(8));
        let registration = Registration { id: 0, key: 0, base: 0 };
        let mut requests = Requests::default();
        for _ in 0..2 {
            let buffer = Buffer::Registered { region: memory.clone(), registration };
            let id = requests.insert(Request::new(State::Over, buffer, Partner::Rank(0), 0, 0, 0));
            requests.remove(id);
        }
        assert!(memory.reclaim().is_ok(), "nobody else has it");
    }

    #[test]
    fn no_name_is_that_of_a_free_place() {
        let mut requests = Requests { generation: u32::MAX - 2, ..Requests::default() };
        for _ in 0..4 {
            let id = requests.insert(Request::new(State::Over, Buffer::Gone, Partner::Rank(0), 0, 0, 0));
            requests.remove(id);
            let names = [0, 1, id.generation, u32::MAX].map(|generation| RequestId { generation, ..id });
            assert!(names.iter().all(|&name| requests.get(name).is_none()));
        }
    }

    #[test]
    fn a_request_stays_small() {
        assert_eq!(size_of::<Slot>(), 128);
    }
}
