//! Requests: operations, flushes and the ends of epochs that the program waits for.

use std::collections::{BTreeSet, VecDeque};

use samite_fabric::layout::Room as _;
use samite_fabric::link::{Expiry, Link, Outcome, RequestId, Slot, Slots, Time, WorldRank};
use samite_fabric::wire::Protocol;
use samite_fabric::{Body, Memory, Region};

use crate::window::Operation;
use crate::{EpochId, Error};

/// The result of a request.
#[derive(Debug)]
pub struct Completion {
    /// Success, or the error.
    pub result: Result<(), Error>,
    /// The memory of an operation. `None` for other requests, and for an operation whose bytes are still awaited.
    pub memory: Option<Memory>,
}

/// The requests of all windows.
#[derive(Debug)]
pub(crate) struct Requests {
    all: Slots<Request>,
    /// The number of meetings that have not ended.
    meetings: usize,
    /// The bytes of operations that are recorded and not sent.
    pub(crate) recorded: usize,
    /// The numbers of watched requests that have ended.
    ended: VecDeque<u32>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) epoch: Option<EpochId>,
    begun: Time,
    pub(crate) deadline: Time,
    pub(crate) kind: Kind,
    result: Option<Result<(), Error>>,
    /// True while the request has memory that packets are read from or written to, or counts in an epoch.
    is_busy: bool,
    /// True if the program does not want the result.
    is_detached: bool,
    /// The number to report when the request ends.
    watcher: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// An operation with one member.
    Operation {
        rank: WorldRank,
        /// The memory that replies are written to, or the data of an operation that was sent.
        memory: Option<Memory>,
        /// The number of bytes that no reply has brought yet.
        left: usize,
        /// The number of these bytes that the member was asked for.
        asked: usize,
    },
    /// A flush, with the members whose answer is awaited.
    Flush(BTreeSet<WorldRank>),
    /// The end of an epoch.
    Close,
    /// The first contact with a member.
    Meeting(WorldRank),
}

impl Slot for Request {
    fn bare() -> Self {
        Self {
            epoch: None,
            begun: Time::ZERO,
            deadline: Time::NEVER,
            kind: Kind::Close,
            result: None,
            is_busy: false,
            is_detached: false,
            watcher: None,
        }
    }

    fn is_bare(&self) -> bool {
        matches!(self.kind, Kind::Close) && self.result.is_none()
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { all: Slots::new(Protocol::Rma), meetings: 0, recorded: 0, ended: VecDeque::new() }
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self, link: &mut Link, epoch: EpochId, kind: Kind, deadline: Time) -> RequestId {
        self.meetings += usize::from(matches!(kind, Kind::Meeting(_)));
        let begun = link.now();
        let request = Request { epoch: Some(epoch), begun, deadline, kind, is_busy: true, ..Request::bare() };
        let id = self.all.insert(request);
        let all = &self.all;
        let is_current = |id, due| all.get(id).is_some_and(|request: &Request| request.deadline == due);
        link.set_deadline(id, deadline, is_current);
        id
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&Request> {
        self.all.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the oldest request without a result, and the time at which it began.
    pub(crate) fn oldest(&self) -> Option<(RequestId, Time)> {
        let pending = self.all.iter().filter(|(_, request)| request.result.is_none() && !request.is_detached);
        pending.map(|(id, request)| (id, request.begun)).min_by_key(|(_, begun)| *begun)
    }

    /// Returns the memory of an operation that was not sent completely.
    pub(crate) fn data_of<'a>(&'a self, operation: &'a Operation) -> &'a Memory {
        let of_request = || match &self.all.get(operation.request?)?.kind {
            Kind::Operation { memory, .. } => memory.as_ref(),
            _ => None,
        };
        operation.memory.as_ref().or_else(of_request).expect("an operation or its request has the memory")
    }

    /// Returns the memory of an operation with a reply, so that the operation can be carried out in this process. From
    /// now on no reply is awaited.
    pub(crate) fn take_reply_now(&mut self, id: RequestId) -> &mut Memory {
        match self.all.get_mut(id).map(|request| &mut request.kind) {
            Some(Kind::Operation { memory: Some(memory), left, .. }) => {
                *left = 0;
                memory
            }
            _ => unreachable!("{HAS_MEMORY}"),
        }
    }

    /// Takes the memory for the result of an operation.
    pub(crate) fn take_memory(&mut self, id: RequestId) -> Memory {
        match self.all.get_mut(id).map(|request| &mut request.kind) {
            Some(Kind::Operation { memory, .. }) => memory.take().expect(HAS_MEMORY),
            _ => unreachable!("{HAS_MEMORY}"),
        }
    }

    /// Notes that the result of an operation does not arrive in replies.
    pub(crate) fn awaits_no_reply(&mut self, id: RequestId) {
        if let Some(Request { kind: Kind::Operation { left, .. }, .. }) = self.all.get_mut(id) {
            *left = 0;
        }
    }

    /// Copies `len` bytes from the start of a region to the memory of an operation. Nothing is copied if the request
    /// has been forgotten.
    pub(crate) fn land(&mut self, id: RequestId, offset: usize, from: &Region, len: usize) {
        let Some(Request { kind: Kind::Operation { memory: Some(memory), .. }, .. }) = self.all.get_mut(id)
        else {
            return;
        };
        let mut buffer = [0; COPY_BYTES];
        for done in (0..len).step_by(COPY_BYTES) {
            let piece = &mut buffer[..COPY_BYTES.min(len - done)];
            from.copy_out(done, piece).expect("a piece fits in its slab");
            memory.writable().put(offset + done, &*piece);
        }
    }

    /// Sets the result of a request that has none. Its memory may still be in use.
    pub(crate) fn decide(&mut self, id: RequestId, result: Result<(), Error>) {
        if let Some(request) = self.all.get_mut(id).filter(|request| request.result.is_none()) {
            request.result = Some(result);
            self.meetings -= usize::from(matches!(request.kind, Kind::Meeting(_)));
            self.ended.extend(request.watcher.take());
        }
    }

    /// Reports `number` when the request ends, or now if it has ended.
    pub(crate) fn watch(&mut self, id: RequestId, number: u32) {
        match self.all.get_mut(id).filter(|request| request.result.is_none()) {
            Some(request) => request.watcher = Some(number),
            None => self.ended.push_back(number),
        }
    }

    pub(crate) fn next_ended(&mut self) -> Option<u32> {
        self.ended.pop_front()
    }

    /// Ends a request: from now on nothing uses it except its owner.
    pub(crate) fn end(&mut self, id: RequestId, result: Result<(), Error>) {
        self.decide(id, result);
        if let Some(request) = self.all.get_mut(id) {
            request.is_busy = false;
            if request.is_detached {
                self.all.remove(id);
            }
        }
    }

    /// Gives the memory of an operation that was sent back to its request.
    pub(crate) fn give_back(&mut self, id: RequestId, data: Option<Memory>) {
        if let Some(Request { kind: Kind::Operation { memory, .. }, .. }) = self.all.get_mut(id) {
            *memory = data;
        }
    }

    /// Notes that a packet of an operation was sent, which concerns `len` bytes. If the operation has a result, the
    /// packet asks for these bytes.
    pub(crate) fn note_sent(&mut self, operation: &Operation, len: usize) {
        if operation.action.has_reply()
            && let Some(id) = operation.request
            && let Some(Request { kind: Kind::Operation { asked, .. }, .. }) = self.all.get_mut(id)
        {
            *asked += len;
        }
    }

    /// Takes a reply. Returns the epoch and true if it was the last one of its operation. Returns `None` if the sender
    /// owes no such reply.
    pub(crate) fn reply(
        &mut self,
        id: RequestId,
        from: WorldRank,
        offset: u64,
        bytes: &(impl Body + ?Sized),
    ) -> Option<(EpochId, bool)> {
        let request = self.all.get_mut(id)?;
        let Kind::Operation { rank, memory: Some(memory), left, asked } = &mut request.kind else {
            return None;
        };
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= memory.len());
        // The operation needs its request until all its packets are sent.
        if *rank != from || !fits || *asked < bytes.len() || bytes.len() == 0 {
            return None;
        }
        memory.writable().put(offset, bytes);
        *left -= bytes.len();
        *asked -= bytes.len();
        Some((request.epoch?, *left == 0))
    }

    /// Notes that a member has refused `len` bytes of an operation with a result. Returns the epoch and true if no other
    /// answer to the operation is awaited. Returns `None` if the member owes no such answer.
    pub(crate) fn refuse(
        &mut self,
        id: RequestId,
        from: WorldRank,
        len: usize,
        error: Error,
    ) -> Option<(EpochId, bool)> {
        let request = self.all.get_mut(id)?;
        let Kind::Operation { rank, left, asked, .. } = &mut request.kind else { return None };
        if *rank != from || *asked < len || len == 0 {
            return None;
        }
        *left -= len;
        *asked -= len;
        let (epoch, is_last) = (request.epoch?, *left == 0);
        self.decide(id, Err(error));
        Some((epoch, is_last))
    }

    /// Notes that a member has answered a flush, with the error of a write that it has refused. Returns false if its
    /// answer was not awaited.
    pub(crate) fn flushed(&mut self, id: RequestId, from: WorldRank, error: Option<Error>) -> bool {
        let Some(Request { kind: Kind::Flush(awaited), .. }) = self.all.get_mut(id) else { return false };
        let was_awaited = awaited.remove(&from);
        let is_last = awaited.is_empty();
        if let Some(error) = error.filter(|_| was_awaited) {
            self.decide(id, Err(error));
        }
        if is_last {
            self.end(id, Ok(()));
        }
        was_awaited
    }

    /// Returns the operations on a window and the flushes that await packets of this member.
    pub(crate) fn with_member(&self, window: crate::WindowId, member: WorldRank) -> Vec<RequestId> {
        self.all.select(|request| {
            let concerns = match &request.kind {
                Kind::Operation { rank, .. } => *rank == member && request.is_busy,
                Kind::Flush(awaited) => awaited.contains(&member),
                Kind::Close | Kind::Meeting(_) => false,
            };
            concerns && request.epoch.is_some_and(|epoch| epoch.window == window)
        })
    }

    /// Ends the meetings with a member of a window.
    pub(crate) fn end_meetings(
        &mut self,
        window: crate::WindowId,
        member: WorldRank,
        result: &Result<(), Error>,
    ) {
        if self.meetings == 0 {
            return;
        }
        let ended = self.all.select(|request| {
            let is_of = |epoch: EpochId| epoch.window == window;
            matches!(request.kind, Kind::Meeting(met) if met == member) && request.epoch.is_some_and(is_of)
        });
        for id in ended {
            self.end(id, result.clone());
        }
    }

    pub(crate) fn outcome(&self, id: RequestId) -> Outcome {
        match self.all.get(id) {
            Some(Request { result: None, .. }) => Outcome::Pending,
            _ => Outcome::Ready,
        }
    }

    /// Returns the result of a request, and forgets the request.
    pub(crate) fn collect(&mut self, id: RequestId) -> Option<Completion> {
        let request = self.all.get_mut(id)?;
        let result = request.result.take()?;
        if request.is_busy {
            request.is_detached = true;
            return Some(Completion { result, memory: None });
        }
        let memory = match &mut request.kind {
            Kind::Operation { memory, .. } => memory.take(),
            _ => None,
        };
        self.all.remove(id);
        Some(Completion { result, memory })
    }

    /// Forgets a request, now or when it ends.
    pub(crate) fn detach(&mut self, id: RequestId) {
        match self.all.get_mut(id) {
            Some(request) if request.is_busy => request.is_detached = true,
            _ => self.all.remove(id),
        }
    }

    /// Returns the answer to a deadline that is not the one of a pending request, or that is handled later.
    pub(crate) fn puts_off(&self, id: RequestId, due: Time, is_busy: bool) -> Option<Expiry> {
        match self.all.get(id) {
            Some(request) if request.deadline == due && request.result.is_none() => {
                is_busy.then_some(Expiry::Later)
            }
            _ => Some(Expiry::Done),
        }
    }
}

const HAS_MEMORY: &str = "the request of an operation with a result has its memory";

/// The number of bytes that are copied from a slab at a time.
const COPY_BYTES: usize = 4096;
