//! The engine of tagged messages, and perhaps of further protocols: the calls of its users, and their results.

mod observe;
mod shared;

use std::sync::Arc;

use samite_fabric::layout::{Data, Readable, Room, Signature, Writable};
use samite_fabric::link::{
    self, Cause, Completion, Error, Fate, Group, Identity, Lent, Out, Outcome, Peer, Reading, RequestId,
    Status, Time, WorldRank, Writing,
};
use samite_fabric::mem::{Marked, PartitionsMut};
use samite_fabric::port::{Sleep, gather};
use samite_fabric::shm::board::Boards;
use samite_fabric::{Address, Body, Exposure, Memory, Port};
use samite_matching::{Envelope, Pattern, Posting};

use crate::Config;
use crate::agreement::Agreements;
use crate::contexts::Incarnations;
use crate::failures::Failure;
use crate::outbox::{Copied, SendBuffer};
use crate::request::{Buffer, Partner, Request, State, Watch};
use crate::signatures::Typed;
use crate::survivors::{Survivors, is_of_survivors};
use crate::tagged::{
    Claimed, HasTagged, PartitionedId, Tagged, Way, gather_or_send, send_at_once, send_memory_at_once,
    status_of,
};
use crate::trace::event;
use crate::wire::Unmatched;

pub use shared::COLLECTIVE_TAG;

/// Sends and receives tagged messages over a port. See the [crate](crate) for the contract.
///
/// All times are of one monotonic clock of the caller. A deadline of [`Time::NEVER`] means no deadline.
///
/// `S` is the stack of protocols that share the port. The calls of the other protocols use [`Engine::parts`].
#[derive(Debug)]
pub struct Engine<P, S = Tagged> {
    pub(crate) inner: link::Engine<P, S>,
    pub(crate) agreements: Agreements,
    pub(crate) survivors: Survivors,
    boards: Boards,
}

/// The result of starting a send of borrowed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message was sent, and the data is free.
    Now,
    /// The message was copied to the outbox, and the data is free. It is sent at a later call.
    Copied,
    /// The send waits: lend the data at each poll until there is an outcome, then collect.
    Pending(RequestId),
}

/// The mode of a send (MPI 4.1, section 3.4).
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// The send ends when its data is free.
    Standard,
    /// The send ends when its message has been matched.
    Synchronous,
    /// The send ends at once. If its message cannot be sent at once, it is copied to this buffer.
    Buffered(&'a Arc<SendBuffer>),
    /// The send ends when its message has been matched, as a synchronous send does. If the message arrives before a
    /// receive for it is posted, the message is dropped, and the send ends with [`Error::NotPosted`].
    Ready,
}

impl Mode<'_> {
    /// Returns the value of [`Request::answered`] for a send in this mode.
    fn answered(self) -> Option<Unmatched> {
        match self {
            Self::Synchronous => Some(Unmatched::Waits),
            Self::Ready => Some(Unmatched::Drop),
            Self::Standard | Self::Buffered(_) => None,
        }
    }
}

/// How a send is carried out that is not a plain standard send.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// The mode.
    pub mode: Mode<'a>,
    /// The types of the message's elements, if the receiver is to check them.
    pub typed: Option<Typed>,
}

impl<'a> From<Mode<'a>> for How<'a> {
    fn from(mode: Mode<'a>) -> Self {
        Self { mode, typed: None }
    }
}

/// The result of starting a receive to a borrowed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message is in the buffer.
    Now(Status),
    /// The receive waits: lend the buffer at each poll until there is an outcome, then collect.
    Pending(RequestId),
}

/// The result of [`Engine::harvest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harvest {
    /// True if marked partitions cannot be sent yet, because the receiver's packet that it has begun the round has not
    /// arrived. Then the engine must be polled to receive that packet.
    pub must_poll: bool,
    /// True if requests have ended.
    pub has_ends: bool,
}

/// Access to the tagged messages of an engine's stack.
pub(crate) trait WithTagged<P> {
    /// Returns the port with the link, and the tagged messages.
    fn with_tagged(&mut self) -> (Out<'_, P>, &mut Tagged);
    /// Returns the tagged messages.
    fn tagged(&self) -> &Tagged;
    /// Returns the tagged messages for changes.
    fn tagged_mut(&mut self) -> &mut Tagged;
}

impl<P: Port, S: HasTagged> WithTagged<P> for link::Engine<P, S> {
    #[inline(always)]
    fn with_tagged(&mut self) -> (Out<'_, P>, &mut Tagged) {
        let (out, stack) = self.parts();
        (out, stack.tagged_mut())
    }

    #[inline(always)]
    fn tagged(&self) -> &Tagged {
        self.stack().tagged()
    }

    #[inline(always)]
    fn tagged_mut(&mut self) -> &mut Tagged {
        self.stack_mut().tagged_mut()
    }
}

impl<P: Port> Engine<P> {
    /// Makes an engine of tagged messages alone over `port`.
    pub fn new(port: P, identity: Identity, config: Config) -> Self {
        Self::with_stack(port, identity, Tagged::new(config))
    }
}

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Makes an engine over `port` whose stack of protocols is `stack`. The configuration is that of its tagged
    /// messages.
    pub fn with_stack(port: P, identity: Identity, stack: S) -> Self {
        let config = &stack.tagged().config;
        let (boards, link) = (Boards::new(config.board_max), config.link());
        let inner = link::Engine::new(port, identity, link, stack);
        let (agreements, survivors) = (Agreements::default(), Survivors::default());
        Self { inner, agreements, survivors, boards }
    }

    /// Returns the port with the link, and the stack, for calls of other protocols than tagged messages. After a call
    /// that has left work ([`Link::has_work`](link::Link::has_work)), call [`Engine::drive`].
    #[inline(always)]
    pub fn parts(&mut self) -> (Out<'_, P>, &mut S) {
        self.inner.parts()
    }

    /// Returns the stack of protocols.
    #[inline(always)]
    pub fn stack(&self) -> &S {
        self.inner.stack()
    }

    /// Does the work that calls have queued, and takes no events: see [`link::Engine::drive`].
    pub fn drive<L: Lent>(&mut self, lent: &mut L) {
        self.inner.drive(lent);
    }

    /// Returns a name for new contexts. The search skips the first `skipped` names that this rank has not used, free or
    /// not, and returns the first later name whose context numbers are free. Returns `None` if there is none. If the
    /// numbers of closed contexts will be needed again soon, first asks the other members of those contexts if they
    /// still use them (see [`names`](crate::names)).
    pub(crate) fn free_name(&mut self, now: Time, skipped: u64) -> Option<u64> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        tagged.ask_members(out.link);
        self.inner.drive(&mut ());
        self.inner.tagged().contexts.free_name(skipped)
    }

    /// Returns the name that this rank proposes for the contexts of an agreement: see [`free_name`](Self::free_name).
    /// Returns `None` if there is none, or if this rank must open the contexts and has as many as it may have.
    pub(crate) fn propose_name(&mut self, now: Time, must_open: bool, skipped: u64) -> Option<u64> {
        let name = self.free_name(now, skipped);
        name.filter(|_| !(must_open && self.has_all_contexts()))
    }

    /// Returns true if this rank has as many contexts open as it may have.
    pub(crate) fn has_all_contexts(&self) -> bool {
        self.inner.tagged().contexts.are_full()
    }

    /// Returns the number of different context numbers that packets can carry.
    pub(crate) fn contexts_max(&self) -> u64 {
        self.inner.tagged().contexts.closed.space()
    }

    /// Returns the number on the wire of the contexts with a name.
    pub(crate) fn context_of(&self, name: u64) -> u32 {
        self.inner.tagged().contexts.closed.number(name)
    }

    /// Limits the numbers of contexts to `bits` bits, so that they are reused soon. For simulations, which must do so
    /// in all ranks.
    pub fn cut_names(&mut self, bits: u32) {
        self.inner.tagged_mut().contexts.closed.cut(bits);
    }

    /// Returns an error if a rank of `group` has ended for this context, so that an operation which needs all ranks of
    /// the group cannot succeed.
    #[must_use]
    pub(crate) fn ended_among(&self, context: u32, group: &Group) -> Option<Error> {
        let (link, contexts) = (self.inner.link(), &self.inner.tagged().contexts);
        let of_job = || {
            link.peers().find_map(|(_, peer)| {
                Some((peer.rank(), peer.failure()?)).filter(|(rank, _)| group.contains(*rank))
            })
        };
        let of_context = || {
            let ended = contexts.ended(context).filter(|(rank, _)| group.contains(*rank));
            ended.min_by_key(|(rank, _)| *rank)
        };
        let (rank, cause) = of_job().or_else(of_context)?;
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Opens the two contexts with a name for a group of ranks, their members: the context with the name's number, and
    /// the next one, which [`Proposal::control`](crate::Proposal) can name. Returns false if this rank has used the
    /// name or a later one before, if the numbers are in use, if this rank has as many contexts open as it may have, or
    /// if the name is odd. The number on the wire is the low 32 bits of the name.
    ///
    /// The contexts 0 and 1 are always open to all ranks. In any other context, operations that name a rank which is
    /// not a member end with [`Error::InvalidRank`], and receives from any source concern the members alone. The
    /// members are the incarnations that this engine knows, and the first ones of the other ranks. After a member has
    /// ended, operations with it end with [`Error::PeerFailed`], even if its rank is restarted. A peer that sends in a
    /// context that is not open, or of which it is not a member, has failed. So the members agree on a context first,
    /// and each opens it before any other member can send in that context.
    ///
    /// # Errors
    /// [`Error::InvalidRank`] if the job has no such member.
    #[cold]
    pub fn open_contexts(&mut self, name: u64, members: Group) -> Result<bool, Error> {
        let peers = self.inner.link().peers();
        let known = peers.filter_map(|(_, peer)| Some((peer.rank(), peer.incarnation()?.get()))).collect();
        self.open_between(name, members, None, &known)
    }

    /// Opens two contexts as [`open_contexts`](Self::open_contexts) does, for these incarnations of the members. With
    /// `remote`, the members are the ranks of two groups: `group`, which contains this rank, and `remote`. In the first
    /// context the members of each group exchange messages with the members of the other group.
    ///
    /// The engine takes note of the incarnations: of each member, earlier ones have ended. If a later incarnation of a
    /// member is known, the member has ended in these contexts.
    ///
    /// # Errors
    /// [`Error::InvalidRank`] if the job has no such member.
    #[cold]
    pub fn open_between(
        &mut self,
        name: u64,
        group: Group,
        remote: Option<&Group>,
        incarnations: &Incarnations,
    ) -> Result<bool, Error> {
        let Identity { rank: mine, size, .. } = *self.inner.link().identity();
        let bounds = [Some(&group), remote].into_iter().flatten().filter_map(Group::bounds);
        if let Some(rank) = bounds.map(|(_, largest)| largest).find(|rank| rank.0 >= size) {
            return Err(self.inner.link().invalid_rank(rank));
        }
        let is_other = |rank| {
            rank != mine && (group.contains(rank) || remote.is_some_and(|remote| remote.contains(rank)))
        };
        for (&rank, &incarnation) in incarnations.iter().filter(|(rank, _)| is_other(**rank)) {
            self.inner.peer_takes_part(rank, incarnation)?;
        }
        let (out, tagged) = self.inner.with_tagged();
        Ok(tagged.open_contexts(out.link, name, group, remote, incarnations))
    }

    /// Closes the two contexts of a communicator at this rank. Cancels this rank's receives there, and drops its
    /// unexpected messages. Messages that arrive later are dropped too. A send that waits for the match of a dropped
    /// message ends with [`Error::Abandoned`], or with [`Error::NotPosted`] if it is a ready send. Other senders of
    /// dropped messages see them as received. This rank's sends under way continue.
    ///
    /// If the other members may still need this rank for an agreement of survivors that has ended here, the contexts
    /// are closed later.
    #[cold]
    pub fn close_contexts(&mut self, now: Time, context: u32) {
        self.part(now, context);
    }

    #[cold]
    pub(crate) fn close_contexts_now(&mut self, now: Time, context: u32) {
        self.end_contexts(now, context, |tagged, link| tagged.close_contexts(link, context));
    }

    /// Closes the two contexts of a communicator at this rank, and informs the other members: their operations with
    /// this rank in these contexts end with [`Cause::LeftContext`]. A rank that has given up the agreement on the
    /// contexts calls this, because the other members may have completed the agreement and use the contexts.
    #[cold]
    pub fn leave_contexts(&mut self, now: Time, context: u32) {
        self.end_contexts(now, context, |tagged, link| tagged.leave_contexts(link, context));
    }

    /// Closes two contexts that were opened for a communicator, because no rank has created the communicator. So the
    /// other members need not be informed.
    #[cold]
    pub fn withdraw_contexts(&mut self, now: Time, context: u32) {
        self.end_contexts(now, context, |tagged, link| tagged.withdraw_contexts(link, context));
    }

    fn end_contexts(&mut self, now: Time, context: u32, end: impl FnOnce(&mut Tagged, &mut link::Link)) {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        end(tagged, out.link);
        self.agreements.forget_context(context | 1);
        self.survivors.forget_context(context | 1);
        self.boards.remove(context | 1);
        self.inner.drive(&mut ());
    }

    /// Starts to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    #[inline(always)]
    pub fn send(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        data: &[u8],
        deadline: Time,
    ) -> Result<Sent, Error> {
        self.send_from(now, to, context, tag, data, deadline)
    }

    /// Starts to send borrowed data as [`Engine::send`] does, which may be scattered over memory.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::send`].
    #[inline(always)]
    pub fn send_from(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        data: &(impl Data + ?Sized),
        deadline: Time,
    ) -> Result<Sent, Error> {
        let peer = self.receiver(now, to, context)?;
        let (mut out, _) = self.inner.with_tagged();
        if send_at_once(&mut out, peer, context, tag, data) {
            return Ok(Sent::Now);
        }
        Ok(self.send_in_turn(peer, (context, tag), data, None, deadline))
    }

    /// Sends the bytes of `memory`, without a request, if that is possible at once. Returns false if nothing was sent:
    /// then use [`Engine::isend`], which queues them.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::send`].
    #[inline(always)]
    pub fn try_send(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        memory: &Memory,
    ) -> Result<bool, Error> {
        let peer = self.receiver(now, to, context)?;
        let (mut out, _) = self.inner.with_tagged();
        Ok(send_memory_at_once(&mut out, peer, context, tag, memory))
    }

    /// Sets the time of the call, and returns the peer for `to` if messages can be sent to it in this context.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    #[inline(always)]
    fn receiver(&mut self, now: Time, to: WorldRank, context: u32) -> Result<Peer, Error> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let peer = out.link.live_peer(to)?;
        tagged.check_member(out.link, context, peer)?;
        Ok(peer)
    }

    /// Returns the peer for `to` as [`receiver`](Self::receiver) does, also in a context that is revoked.
    #[cold]
    fn surviving_receiver(&mut self, now: Time, to: WorldRank, context: u32) -> Result<Peer, Error> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let peer = out.link.live_peer(to)?;
        tagged.check_despite_revocation(out.link, context, peer)?;
        Ok(peer)
    }

    /// Starts a send that cannot be sent at once.
    #[inline(never)]
    fn send_in_turn(
        &mut self,
        peer: Peer,
        envelope: (u32, u64),
        data: &(impl Data + ?Sized),
        typed: Option<Typed>,
        deadline: Time,
    ) -> Sent {
        let (mut out, tagged) = self.inner.with_tagged();
        if typed.is_none() && gather_or_send(&mut out, peer, envelope, data) {
            return Sent::Now;
        }
        if tagged.may_keep(peer, data.len()) {
            self.keep(peer, envelope, data, Way { typed, ..Way::standard(Copied::Kept) }, deadline);
            return Sent::Copied;
        }
        self.send_pending(peer, envelope, data, (None, typed), deadline)
    }

    /// Starts a send of borrowed `data` that is queued behind earlier messages. For `answered` see
    /// [`Request::answered`].
    fn send_pending(
        &mut self,
        peer: Peer,
        envelope: (u32, u64),
        data: &(impl Data + ?Sized),
        (answered, typed): (Option<Unmatched>, Option<Typed>),
        deadline: Time,
    ) -> Sent {
        let (mut out, tagged) = self.inner.with_tagged();
        let exposure = tagged.expose(&mut out, peer, data);
        // A short message is copied, so that the messages behind it never have to wait until the caller lends the
        // buffer. A message in exposed memory is not copied: the receiver reads the owner's memory, so the send ends
        // only when the receiver has read it.
        let (buffer, copied) = match exposure.is_none() && data.len() <= tagged.short_max(peer) {
            true => (Buffer::Owned(Memory::new(gather(&[], data))), Copied::Waiting),
            false => (Buffer::lent(data.len()), Copied::No),
        };
        let way = Way { answered, typed, ..Way::standard(copied) };
        let id = self.send_later(peer, envelope, (buffer, way), exposure, deadline);
        self.stream_at_once(peer, id, &mut Reading::new(id, data));
        let requests = &mut self.inner.tagged_mut().requests;
        if requests.get(id).is_some_and(|request| matches!(request.result, Some(Ok(_)))) {
            requests.remove(id);
            return Sent::Now;
        }
        Sent::Pending(id)
    }

    /// Copies a message to the outbox, or to a buffer of buffered sends. The caller has checked that there is room.
    fn keep(
        &mut self,
        peer: Peer,
        envelope: (u32, u64),
        data: &(impl Body + ?Sized),
        way: Way,
        deadline: Time,
    ) {
        let copy = Buffer::Owned(Memory::new(gather(&[], data)));
        self.send_later(peer, envelope, (copy, way), None, deadline);
    }

    /// Starts to send borrowed `data` in a mode, or with a signature.
    ///
    /// # Errors
    /// As [`Engine::send`]; [`Error::Exhausted`] if the buffer of a buffered send has no room.
    #[expect(clippy::too_many_arguments, reason = "those of a standard send, and the mode")]
    pub fn send_with<'a>(
        &mut self,
        how: impl Into<How<'a>>,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        data: &(impl Data + ?Sized),
        deadline: Time,
    ) -> Result<Sent, Error> {
        let peer = self.receiver(now, to, context)?;
        let How { mode, typed } = how.into();
        match mode {
            Mode::Standard => Ok(self.send_in_turn(peer, (context, tag), data, typed, deadline)),
            Mode::Buffered(buffer) => self.buffer(peer, (context, tag), data, buffer, typed, deadline),
            Mode::Synchronous | Mode::Ready => {
                Ok(self.send_pending(peer, (context, tag), data, (mode.answered(), typed), deadline))
            }
        }
    }

    /// Carries out a buffered send: sends `data` at once, or else copies it to the buffer.
    fn buffer(
        &mut self,
        peer: Peer,
        (context, tag): (u32, u64),
        data: &(impl Data + ?Sized),
        buffer: &Arc<SendBuffer>,
        typed: Option<Typed>,
        deadline: Time,
    ) -> Result<Sent, Error> {
        let (mut out, _) = self.inner.with_tagged();
        if typed.is_none()
            && (send_at_once(&mut out, peer, context, tag, data)
                || gather_or_send(&mut out, peer, (context, tag), data))
        {
            return Ok(Sent::Now);
        }
        if !buffer.keep(data.len()) {
            let (what, hint) = ("room for buffered sends", "flush the buffer first, or make it larger");
            return Err(Error::Exhausted { what, hint: hint.into() });
        }
        let way = Way { kept_in: Some(Arc::clone(buffer)), typed, ..Way::standard(Copied::Kept) };
        self.keep(peer, (context, tag), data, way, deadline);
        Ok(Sent::Copied)
    }

    /// Queues a message, and sends what can be sent. Returns its request.
    fn send_later(
        &mut self,
        peer: Peer,
        envelope: (u32, u64),
        buffer: (Buffer, Way),
        exposure: Option<Exposure>,
        deadline: Time,
    ) -> RequestId {
        let (mut out, tagged) = self.inner.with_tagged();
        let (id, flush) = tagged.send_later(&mut out, peer, envelope, buffer, exposure, deadline);
        if flush {
            self.inner.flush(peer);
        }
        id
    }

    /// Starts to send `memory`, which the completion returns. A message that [`Engine::send`] would copy to the outbox
    /// is copied there too, and then the returned request has already ended.
    ///
    /// # Errors
    /// Returns an error of [`Engine::send`], and the memory.
    pub fn isend(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        memory: Memory,
        deadline: Time,
    ) -> Result<RequestId, (Error, Memory)> {
        self.isend_standard(now, to, (context, tag), memory, deadline, true)
    }

    /// Starts to send a message of an agreement. The message overtakes waiting messages of the program. It is not
    /// copied to the outbox, whose budget is for the messages of the program.
    ///
    /// # Errors
    /// Returns an error of [`Engine::send`].
    #[cold]
    pub(crate) fn isend_agreement(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        memory: Memory,
    ) -> Result<RequestId, Error> {
        let peer = match is_of_survivors(tag) {
            true => self.surviving_receiver(now, to, context)?,
            false => self.receiver(now, to, context)?,
        };
        let (mut out, tagged) = self.inner.with_tagged();
        if send_memory_at_once(&mut out, peer, context, tag, &memory)
            || gather_or_send(&mut out, peer, (context, tag), &memory.readable())
        {
            let status = Status { source: to, tag, bytes: memory.len() };
            return Ok(self.ended(now, context, status, memory));
        }
        let exposure = tagged.expose(&mut out, peer, &memory.readable());
        let way = Way { is_agreement: true, ..Way::standard(Copied::No) };
        let id = self.send_later(peer, (context, tag), (Buffer::Owned(memory), way), exposure, Time::NEVER);
        self.stream_at_once(peer, id, &mut ());
        Ok(id)
    }

    /// Starts a standard send of `memory`. If `keeps`, the message may be copied to the outbox.
    #[inline(always)]
    fn isend_standard(
        &mut self,
        now: Time,
        to: WorldRank,
        (context, tag): (u32, u64),
        memory: Memory,
        deadline: Time,
        keeps: bool,
    ) -> Result<RequestId, (Error, Memory)> {
        let peer = match self.receiver(now, to, context) {
            Ok(peer) => peer,
            Err(error) => return Err((error, memory)),
        };
        let (mut out, tagged) = self.inner.with_tagged();
        let mut is_sent = send_memory_at_once(&mut out, peer, context, tag, &memory)
            || gather_or_send(&mut out, peer, (context, tag), &memory.readable());
        if !is_sent && keeps && tagged.may_keep(peer, memory.len()) {
            self.keep(peer, (context, tag), &memory.readable(), Way::standard(Copied::Kept), deadline);
            is_sent = true;
        }
        if is_sent {
            let status = Status { source: to, tag, bytes: memory.len() };
            return Ok(self.ended(now, context, status, memory));
        }
        Ok(self.isend_pending(peer, (context, tag), memory, (None, None), deadline))
    }

    /// Starts to send `memory` as [`Engine::isend`] does, in a mode, or with a signature.
    ///
    /// # Errors
    /// Returns an error of [`Engine::send_with`], and the memory.
    #[expect(clippy::too_many_arguments, reason = "those of a standard send, and the mode")]
    pub fn isend_with<'a>(
        &mut self,
        how: impl Into<How<'a>>,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        memory: Memory,
        deadline: Time,
    ) -> Result<RequestId, (Error, Memory)> {
        let peer = match self.receiver(now, to, context) {
            Ok(peer) => peer,
            Err(error) => return Err((error, memory)),
        };
        let How { mode, typed } = how.into();
        let kept = match mode {
            Mode::Buffered(buffer) => {
                self.buffer(peer, (context, tag), &memory.readable(), buffer, typed, deadline).map(|_| true)
            }
            Mode::Standard if self.inner.tagged().may_keep(peer, memory.len()) => {
                let way = Way { typed, ..Way::standard(Copied::Kept) };
                self.keep(peer, (context, tag), &memory.readable(), way, deadline);
                Ok(true)
            }
            _ => Ok(false),
        };
        match kept {
            Ok(true) => {
                let status = Status { source: to, tag, bytes: memory.len() };
                Ok(self.ended(now, context, status, memory))
            }
            Ok(false) => {
                Ok(self.isend_pending(peer, (context, tag), memory, (mode.answered(), typed), deadline))
            }
            Err(error) => Err((error, memory)),
        }
    }

    /// Starts a send of `memory` that is queued behind earlier messages. For `answered` see [`Request::answered`].
    fn isend_pending(
        &mut self,
        peer: Peer,
        envelope: (u32, u64),
        memory: Memory,
        (answered, typed): (Option<Unmatched>, Option<Typed>),
        deadline: Time,
    ) -> RequestId {
        let (mut out, tagged) = self.inner.with_tagged();
        let exposure = tagged.expose(&mut out, peer, &memory.readable());
        let way = Way { answered, typed, ..Way::standard(Copied::No) };
        let id = self.send_later(peer, envelope, (Buffer::Owned(memory), way), exposure, deadline);
        self.stream_at_once(peer, id, &mut ());
        id
    }

    /// Returns a request that owns `memory` and has already ended with `status`, without any communication.
    pub fn ended(&mut self, now: Time, context: u32, status: Status, memory: Memory) -> RequestId {
        let buffer = Buffer::Owned(memory);
        let partner = Partner::Rank(status.source);
        let mut request = Request::new(State::Over, buffer, partner, context, status.tag, now);
        request.succeed(status);
        self.inner.tagged_mut().requests.insert(request)
    }

    /// Returns the request of an operation that consists of other operations of this engine, and that the caller
    /// carries out (a generalized request; MPI 4.1, section 13.2). The request ends with
    /// [`end_composite`](Self::end_composite). Until then it counts as an operation that needs progress:
    /// [`needs_progress`](Self::needs_progress).
    pub fn begin_composite(&mut self, now: Time, context: u32) -> RequestId {
        let partner = Partner::Rank(self.inner.link().identity().rank);
        let tagged = self.inner.tagged_mut();
        let mut request = Request::new(State::Composite, Buffer::Gone, partner, context, 0, now);
        request.travels = true;
        tagged.travelling += 1;
        tagged.ever_travelling += 1;
        tagged.requests.insert(request)
    }

    /// Ends a request that [`begin_composite`](Self::begin_composite) has returned. On success the length of the
    /// message in its status is that of `memory`. If the request was [forgotten](Self::forget), the memory is freed.
    /// Returns true if the result can be collected.
    pub fn end_composite(&mut self, id: RequestId, result: Result<(), Error>, memory: Memory) -> bool {
        let (out, tagged) = self.inner.with_tagged();
        let Some(request) = tagged.requests.get_mut(id) else { return false };
        assert!(matches!(request.state, State::Composite), "{id:?} is a composite operation under way");
        let source = out.link.identity().rank;
        let status = Status { source, tag: 0, bytes: memory.len() };
        request.buffer = Buffer::Owned(memory);
        tagged.finish(out.link, id, result.map(|()| status));
        tagged.requests.get(id).is_some()
    }

    /// Returns the request of an operation that the caller has carried out. It has ended, and its result has `memory`.
    pub fn begin_ended(&mut self, now: Time, context: u32, memory: Memory) -> RequestId {
        let (out, tagged) = self.inner.with_tagged();
        let source = out.link.identity().rank;
        let status = Status { source, tag: 0, bytes: memory.len() };
        let buffer = Buffer::Owned(memory);
        let request = Request::new(State::Composite, buffer, Partner::Rank(source), context, 0, now);
        let id = tagged.requests.insert(request);
        tagged.finish(out.link, id, Ok(status));
        id
    }

    /// Returns a composite operation that its owner has [cancelled](Self::cancel) or [forgotten](Self::forget). The
    /// caller ends it.
    pub fn take_unwanted(&mut self) -> Option<RequestId> {
        self.inner.tagged_mut().unwanted.pop_first()
    }

    /// Returns true if a request that has not ended was [forgotten](Self::forget).
    pub fn is_forgotten(&self, id: RequestId) -> bool {
        self.inner.tagged().requests.get(id).is_some_and(|request| request.collected)
    }

    /// If a message has just started as a stream, sends its bytes in this call, as far as the port has room. So the
    /// receiver can copy the first bytes out of the port while this side copies the next ones in.
    fn stream_at_once<L: Lent>(&mut self, peer: Peer, id: RequestId, lent: &mut L) {
        let requests = &self.inner.tagged().requests;
        if requests.get(id).is_some_and(|request| matches!(request.state, State::Pushing(_))) {
            self.inner.push(peer, lent);
        }
    }

    /// Starts to receive to `buffer`. If the receive does not end in this call, later calls lend the buffer under the
    /// number `place`: see [`Lent`]. In this call `lent` lends the buffers of other requests.
    ///
    /// Before the receive is posted, this call takes packets that have arrived, unless an unexpected message waits,
    /// which could be an earlier match. If the message is in one of the packets, it is copied directly to the buffer,
    /// and the receive need not be posted. The other packets are handled as in a poll, so other requests may end in
    /// this call.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Truncated`]; [`Error::Exhausted`] if there is no memory
    /// to post the receive.
    #[inline(always)]
    pub fn recv<L: Lent>(
        &mut self,
        now: Time,
        pattern: Pattern,
        buffer: &mut [u8],
        place: u32,
        deadline: Time,
        lent: &mut L,
    ) -> Result<Received, Error> {
        self.recv_into(now, pattern, buffer, place, deadline, lent)
    }

    /// Starts to receive as [`Engine::recv`] does, to a buffer that may be scattered over memory.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::recv`].
    #[inline(always)]
    pub fn recv_into<L: Lent>(
        &mut self,
        now: Time,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        place: u32,
        deadline: Time,
        lent: &mut L,
    ) -> Result<Received, Error> {
        let len = buffer.len();
        event!(TRACE, peer = pattern.source.as_rank(), tag = pattern.tag, bytes = len, "receive begins");
        self.inner.link_mut().set_now(now);
        if self.inner.tagged().may_take(self.inner.link())
            && self.inner.port().has_packet()
            && let Some(status) = self.receive_unposted(pattern, buffer, lent)
        {
            let fits = status.bytes <= len;
            return if fits {
                Ok(Received::Now(status))
            } else {
                Err(Error::Truncated { status, room: len })
            };
        }
        self.post_lent(now, pattern, buffer, place, deadline)
    }

    /// Starts to receive as [`Engine::recv_into`] does, and checks the types of the message.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::recv`], and [`Error::TypesDiffer`].
    pub fn recv_typed(
        &mut self,
        typed: Typed,
        now: Time,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        place: u32,
        deadline: Time,
    ) -> Result<Received, Error> {
        self.check_source(&pattern)?;
        self.post_typed(typed, |engine| engine.post_lent(now, pattern, buffer, place, deadline))
    }

    /// Calls `post`, which posts a receive, for a receive of elements of these types.
    fn post_typed<R, E>(
        &mut self,
        typed: Typed,
        post: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let tagged = self.inner.tagged_mut();
        let id = tagged.requests.next_id();
        tagged.signatures.insert(id, typed, &tagged.requests);
        let posted = post(self);
        if posted.is_err() {
            self.inner.tagged_mut().signatures.remove(id);
        }
        posted
    }

    /// Posts a receive to a borrowed buffer.
    #[inline(always)]
    fn post_lent(
        &mut self,
        now: Time,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        place: u32,
        deadline: Time,
    ) -> Result<Received, Error> {
        let len = buffer.len();
        let lent = || Buffer::Lent { len, place, staged: None };
        let mut lender = Writing::of(self.inner.tagged().requests.next_id(), buffer);
        let (request, outcome) = self.post(now, pattern, lent, deadline, &mut lender)?;
        if let Some(status) = lender.received() {
            return Ok(Received::Now(status));
        }
        if outcome != Outcome::Ready {
            return Ok(Received::Pending(request));
        }
        let collected = self.collect(request, &mut lender);
        lender.result(collected).map(Received::Now)
    }

    /// Starts to receive to `memory`, which the completion returns.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`]; [`Error::Exhausted`] if there is no memory to post the receive.
    /// Returns the memory.
    pub fn irecv(
        &mut self,
        now: Time,
        pattern: Pattern,
        memory: Memory,
        deadline: Time,
    ) -> Result<RequestId, (Error, Memory)> {
        event!(
            TRACE,
            peer = pattern.source.as_rank(),
            tag = pattern.tag,
            bytes = memory.len(),
            "receive begins"
        );
        let mut memory = Some(memory);
        let buffer = || memory.take().map_or(Buffer::Gone, Buffer::Owned);
        let posted = self.post(now, pattern, buffer, deadline, &mut ());
        posted.map(|(id, _)| id).map_err(|error| (error, memory.unwrap_or_else(|| Memory::zeroed(0))))
    }

    /// Starts to receive as [`Engine::irecv`] does, and checks the types of the message.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::irecv`]. The request ends with [`Error::TypesDiffer`] if they differ.
    pub fn irecv_typed(
        &mut self,
        typed: Typed,
        now: Time,
        pattern: Pattern,
        memory: Memory,
        deadline: Time,
    ) -> Result<RequestId, (Error, Memory)> {
        self.post_typed(typed, |engine| engine.irecv(now, pattern, memory, deadline))
    }

    /// Returns the envelope of the first message that has arrived and that `pattern` matches. The message can still be
    /// received.
    ///
    /// # Errors
    /// [`Error::InvalidRank`]. If no message has arrived: with one source, [`Error::PeerFailed`] if none can come; with
    /// any source, [`Error::FailurePending`] once for each failure that was not reported to this context, and then
    /// [`Error::Deserted`] if none can come.
    pub fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Error> {
        self.check_source(pattern)?;
        let (out, tagged) = self.inner.with_tagged();
        match tagged.matcher.probe(pattern) {
            Some((_, envelope, message)) => Ok(Some(status_of(&envelope, message.bytes()))),
            None => tagged.nothing_from(out.link, pattern),
        }
    }

    /// Returns true if [`Engine::probe`] would return a message or an error. Unlike `probe`, it does not count a
    /// failure as reported.
    pub fn has_news_for(&mut self, pattern: &Pattern) -> bool {
        if self.check_source(pattern).is_err() {
            return true;
        }
        let (out, tagged) = self.inner.with_tagged();
        let Pattern { context, source, .. } = *pattern;
        let is_deserted = |tagged: &Tagged| {
            tagged.has_failure(context, tagged.failures.told(context))
                || tagged.is_deserted(out.link, context)
        };
        tagged.matcher.probe(pattern).is_some()
            || source.is_any() && is_deserted(tagged)
            || tagged.source_failure(out.link, pattern).is_some()
    }

    /// Claims the first message that `pattern` matches, if one has arrived.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::probe`].
    pub fn claim(&mut self, pattern: &Pattern) -> Result<Option<(Status, Claimed)>, Error> {
        self.check_source(pattern)?;
        let (out, tagged) = self.inner.with_tagged();
        match tagged.matcher.take(pattern) {
            Some((envelope, message)) => {
                let status = status_of(&envelope, message.bytes());
                Ok(Some((status, tagged.claimed(out.link, envelope, message))))
            }
            None => tagged.nothing_from(out.link, pattern),
        }
    }

    /// Starts to receive a claimed message. `into` is the memory, or, as an error, the length of a borrowed buffer that
    /// is lent at each poll.
    pub fn recv_claimed(
        &mut self,
        now: Time,
        claimed: Claimed,
        into: Result<Memory, usize>,
        deadline: Time,
    ) -> RequestId {
        self.recv_claimed_as(None, now, claimed, into, deadline)
    }

    /// Starts to receive a claimed message as [`Engine::recv_claimed`] does, and checks its types if some are given.
    pub fn recv_claimed_as(
        &mut self,
        typed: Option<Typed>,
        now: Time,
        claimed: Claimed,
        into: Result<Memory, usize>,
        deadline: Time,
    ) -> RequestId {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let buffer = into.map_or_else(Buffer::lent, Buffer::Owned);
        let Envelope { source, context, tag } = *claimed.envelope();
        let partner = Partner::Rank(WorldRank(source));
        let mut request = Request::new(State::Over, buffer, partner, context, tag, now);
        request.travels = request.buffer.own_len().is_some_and(|len| tagged.begins_travel(len));
        let id = tagged.requests.insert(request);
        if let Some(typed) = typed {
            tagged.signatures.insert(id, typed, &tagged.requests);
        }
        tagged.set_deadline(out.link, id, deadline);
        tagged.accept_claimed(out.link, id, claimed);
        self.inner.drive(&mut ());
        id
    }

    /// Drops a claimed message. Its sender sees it as received.
    pub fn discard(&mut self, now: Time, claimed: Claimed) {
        let id = self.recv_claimed(now, claimed, Ok(Memory::zeroed(0)), Time::NEVER);
        self.forget(id);
    }

    /// Initializes a partitioned send of `bytes` bytes in `partitions` equal partitions. Sends and receives of two
    /// ranks with the same context and tag are paired in the order of their initialization.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    ///
    /// # Panics
    /// If `bytes` cannot be divided into that many equal partitions.
    #[expect(clippy::too_many_arguments, reason = "those of a send, and its partitions")]
    pub fn psend_init(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        bytes: usize,
        partitions: usize,
        signature: Signature,
    ) -> Result<PartitionedId, Error> {
        assert!(
            partitions > 0 && bytes.is_multiple_of(partitions),
            "{bytes} bytes in {partitions} partitions"
        );
        let peer = self.receiver(now, to, context)?;
        let (out, tagged) = self.inner.with_tagged();
        let id = tagged.psend_init(out.link, peer, (context, tag), bytes, (partitions, signature));
        if out.link.peer(peer).path().is_none() {
            out.link.seek(peer);
        } else {
            self.inner.flush(peer);
        }
        Ok(id)
    }

    /// Initializes a partitioned receive of `bytes` bytes: see [`Engine::psend_init`]. If the sender announces another
    /// length, both halves end with [`Error::LengthsDiffer`]. If it announces other types, this half ends with
    /// [`Error::TypesDiffer`], and the sender's with [`Error::Abandoned`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    pub fn precv_init(
        &mut self,
        now: Time,
        from: WorldRank,
        context: u32,
        tag: u64,
        bytes: usize,
        typed: Option<Typed>,
    ) -> Result<PartitionedId, Error> {
        let pattern = Pattern { context, source: samite_matching::Source::rank(from.0), tag, mask: !0 };
        self.check_source(&pattern)?;
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let peer = out.link.find_or_meet(from)?;
        let id = tagged.precv_init(out.link, peer, (context, tag), bytes, typed)?;
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
        Ok(id)
    }

    /// Begins a round of a partitioned send. The request of the round ends when all partitions are marked and sent, or
    /// with an error. In both cases the engine has dropped `marked` by then. Call [`Engine::harvest`] after each mark.
    /// A round that fails ends the pair of send and receive: each later round returns the same error.
    ///
    /// # Errors
    /// The error with which the pair has ended; [`Error::NoSuchRequest`] if the send was dropped.
    ///
    /// # Panics
    /// If the previous round has not ended, or the memory does not have the initialized length and partitions.
    pub fn start_psend(
        &mut self,
        now: Time,
        id: PartitionedId,
        marked: Marked,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let request = tagged.start_psend(out.link, id, marked, deadline)?;
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
        Ok(request)
    }

    /// Begins a round of a partitioned receive into `memory`, which contains all partitions. Each partition is marked
    /// when its bytes have arrived. The request ends when all partitions are marked, or with an error. In both cases
    /// the engine has dropped `memory` by then.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::start_psend`].
    ///
    /// # Panics
    /// Panics in the cases in which [`Engine::start_psend`] panics.
    pub fn start_precv(
        &mut self,
        now: Time,
        id: PartitionedId,
        memory: PartitionsMut,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let request = tagged.start_precv(out.link, id, memory, deadline)?;
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
        Ok(request)
    }

    /// Sends the partitions that were marked since the last call.
    pub fn harvest(&mut self) -> Harvest {
        let (out, tagged) = self.inner.with_tagged();
        let rounds = tagged.sending();
        let must_poll = tagged.harvest(out.link);
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
        Harvest { must_poll, has_ends: self.inner.tagged().sending() < rounds }
    }

    /// Returns the error with which a pair has ended, or `None` if a round can begin.
    pub fn partitioned_end(&self, id: PartitionedId) -> Option<Error> {
        self.inner.tagged().partitioned.end(id)
    }

    /// Drops a partitioned send or receive. Cancels its round if one is under way, and informs the rank at the other
    /// side.
    pub fn free_partitioned(&mut self, now: Time, id: PartitionedId) {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        tagged.free_half(out.link, id);
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
    }

    /// Sets the `place` that is passed to [`Lent`] for a send, by which the lender finds the data.
    pub fn set_place(&mut self, request: RequestId, to: u32) {
        let request = self.inner.tagged_mut().requests.get_mut(request);
        if let Some(Request { buffer: Buffer::Lent { place, .. }, .. }) = request {
            *place = to;
        }
    }

    /// Notes that every poll lends the buffer of a request, including the polls of other threads. So a long message
    /// makes progress between the program's calls, like a message whose request owns its buffer. Returns false, and
    /// notes nothing, if the message is short, if the receiver reads it in the sender's memory, or if the request has
    /// ended. If this function returns true, [`Lent::received`] must return false for the request.
    pub fn lends_always(&mut self, request: RequestId) -> bool {
        let tagged = self.inner.tagged_mut();
        let shortest = tagged.config.overlap_min;
        let Some(request) = tagged.requests.get_mut(request) else { return false };
        let is_exposed = matches!(
            &request.state,
            State::AwaitingRoom { exposure: Some(_) } | State::AwaitingMatch { exposure: Some(_), .. }
        );
        let is_lent = matches!(&request.buffer, Buffer::Lent { len, .. } if *len >= shortest);
        request.travels = is_lent && !is_exposed && !matches!(request.state, State::Over);
        tagged.travelling += usize::from(request.travels);
        tagged.ever_travelling += u64::from(request.travels);
        request.travels
    }

    /// Returns the progress of a request.
    #[inline]
    pub fn outcome(&self, request: RequestId) -> Outcome {
        self.inner.tagged().outcome(self.inner.link(), request)
    }

    /// Creates a watcher, to which the ends of requests can be reported ([`Engine::watch`]), and returns its number.
    pub fn add_watcher(&mut self) -> u32 {
        self.inner.tagged_mut().add_watcher()
    }

    /// Removes a watcher. The requests that it watches continue.
    pub fn remove_watcher(&mut self, watcher: u32) {
        self.inner.tagged_mut().remove_watcher(watcher);
    }

    /// Stops reporting the end of a request to its watcher.
    pub fn unwatch(&mut self, request: RequestId) {
        self.inner.tagged_mut().unwatch(request);
    }

    /// Lets a watcher learn of the end of a request: when the request has ended, [`Engine::take_end`] returns it
    /// together with `key`.
    pub fn watch(&mut self, request: RequestId, watcher: u32, key: u32) {
        let (out, tagged) = self.inner.with_tagged();
        tagged.watch(out.link, request, watcher, key);
    }

    /// Returns a watched request whose outcome is not [`Outcome::Pending`] any more, with its key. The end of a request
    /// is returned once, and the cost does not depend on the number of watched requests. There is one exception:
    /// receives from any source for which no message can come any more are found by a search of all requests, and such
    /// a receive is returned again until it is collected.
    pub fn take_end(&mut self, watcher: u32) -> Option<(RequestId, u32)> {
        let (out, tagged) = self.inner.with_tagged();
        tagged.take_end(out.link, watcher)
    }

    /// Returns true if [`Engine::take_end`] may return a request.
    pub fn has_ends(&self, watcher: u32) -> bool {
        self.inner.tagged().has_ends(watcher)
    }

    /// Returns a failure that has caused [`Outcome::FailurePending`]. Each failure is returned once. The failure may be
    /// older than the request, if no operation in the same context has reported it yet.
    pub fn failure_pending(&mut self, request: RequestId) -> Option<Error> {
        let Failure { rank, cause, .. } = self.inner.tagged_mut().tell_failure(request)?;
        Some(Error::FailurePending { rank, cause })
    }

    /// Returns the result of a finished request, or `None` if the request has not finished or does not exist. If bytes
    /// of its message arrived while its buffer was not lent, copies them to the buffer in `lent`.
    #[inline(always)]
    pub fn collect<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let (mut out, tagged) = self.inner.with_tagged();
        let Some(result) = tagged.requests.get_mut(id)?.take_result() else {
            return self.collect_deserted(id, lent);
        };
        let request = tagged.requests.get_mut(id)?;
        let is_over = matches!(request.state, State::Over);
        request.watch = Watch::NONE;
        let memory = match &mut request.buffer {
            Buffer::Lent { staged, place, .. } => {
                if let (Ok(_), Some(staged)) = (&result, staged.take())
                    && let Some(mut buffer) = lent.write(id, *place)
                {
                    staged.copy_to(&mut buffer);
                }
                None
            }
            // The receiver may be reading the buffer, so the engine keeps it until FIN.
            Buffer::Registered { .. } if !is_over => None,
            buffer => match std::mem::replace(buffer, Buffer::Gone) {
                Buffer::Owned(memory) => Some(memory),
                Buffer::Registered { region, lease } => out.end_lease(region, lease),
                Buffer::Lent { .. } | Buffer::Gone => None,
            },
        };
        if is_over {
            tagged.requests.remove(id);
        } else {
            request.collected = true;
            if let Buffer::Lent { .. } = request.buffer {
                request.buffer = Buffer::Gone;
            }
            if let State::AwaitingMatch { exposure, .. } = &mut request.state {
                // The peer's right to read ends here, before the caller gets the bytes back and may change them.
                *exposure = None;
            }
        }
        Some(match result {
            Ok(status) => Completion { result: Ok(status), memory },
            Err(error) => Completion { result: Err(*error), memory },
        })
    }

    /// Ends a receive from any source for which no message can come. This is decided when the caller asks for the
    /// result, and not when the receive is posted, because this rank itself may send the message after it has posted
    /// the receive.
    #[cold]
    fn collect_deserted<L: Lent>(&mut self, id: RequestId, lent: &mut L) -> Option<Completion> {
        let (out, tagged) = self.inner.with_tagged();
        let request = tagged.requests.get(id)?;
        if let State::AwaitingMessage(posted) = request.state
            && tagged.is_in_vain(out.link, request)
        {
            tagged.matcher.cancel(posted);
            tagged.finish(out.link, id, Err(Error::Deserted));
            return self.collect(id, lent);
        }
        None
    }

    /// Cancels a request. A receive that has been matched continues. A send ends at once, unless a provider may still
    /// read its memory: then the receiver is asked to give up the message, and the completion says if the receiver did.
    pub fn cancel(&mut self, id: RequestId) {
        let (out, tagged) = self.inner.with_tagged();
        if tagged.cancel(out.link, id) {
            self.inner.drive(&mut ());
        }
    }

    /// Abandons a request whose result is not wanted. The request ends, unless it owns its memory and may have been
    /// matched: then it continues without a caller. In this case the receiver of a send is asked to give up the
    /// message.
    pub fn forget(&mut self, id: RequestId) {
        let (out, tagged) = self.inner.with_tagged();
        if tagged.withdraw_unmatched(out.link, id) {
            self.inner.drive(&mut ());
        }
        let (out, tagged) = self.inner.with_tagged();
        let lent = |request: &Request| matches!(request.buffer, Buffer::Lent { .. });
        if tagged.requests.get(id).is_some_and(|request| request.result.is_none() && lent(request)) {
            // The request was matched, but cannot continue, because its buffer is not lent any more.
            tagged.give_up(out.link, id, Error::Cancelled { fate: Fate::Unknown });
            self.inner.drive(&mut ());
        }
        if self.collect(id, &mut ()).is_none() {
            let tagged = self.inner.tagged_mut();
            tagged.unwatch(id);
            if let Some(request) = tagged.requests.get_mut(id) {
                request.collected = true;
            }
        }
    }

    /// Abandons all requests with the callers' buffers and all rounds of partitioned messages. The callers may take the
    /// memory back: nothing reads or writes it any more.
    pub fn forget_lent(&mut self) {
        let (out, tagged) = self.inner.with_tagged();
        tagged.end_rounds(out.link, true);
        let lent = |request: &Request| matches!(request.buffer, Buffer::Lent { .. });
        for id in self.inner.tagged().requests.select(lent) {
            self.forget(id);
        }
    }

    /// Ends all exposures of send buffers, so that peers can no longer read them. Sends no packet: a peer that reads at
    /// this moment detects the end by itself. Also ends all rounds of partitioned messages, without informing the other
    /// sides.
    pub fn conceal(&mut self) {
        let (out, tagged) = self.inner.with_tagged();
        tagged.end_rounds(out.link, false);
        let requests = &mut self.inner.tagged_mut().requests;
        for id in requests.select(Request::is_send) {
            let state = requests.get_mut(id).map(|request| &mut request.state);
            if let Some(State::AwaitingRoom { exposure } | State::AwaitingMatch { exposure, .. }) = state {
                *exposure = None;
            }
        }
    }

    /// Changes the deadline of a request; [`Time::NEVER`] removes it.
    pub fn set_deadline(&mut self, id: RequestId, deadline: Time) {
        let (out, tagged) = self.inner.with_tagged();
        if let Some(request) = tagged.requests.get_mut(id) {
            // When the timer of the earlier deadline fires, it will find that the request has another deadline.
            request.deadline = deadline;
        }
        tagged.set_deadline(out.link, id, deadline);
    }

    /// Drives the port, the link and the messages: see [`link::Engine::poll`].
    ///
    /// # Errors
    /// [`Error::Port`] if the port is broken.
    #[inline]
    pub fn poll<L: Lent>(&mut self, now: Time, lent: &mut L) -> Result<usize, Error> {
        let events = self.inner.poll(now, lent)?;
        // Without agreements this costs one check of a flag. `inner.poll` must have only one call here, because the
        // compiler then inlines it.
        match self.agreements.is_active {
            false => Ok(events),
            true => Ok(events + self.advance_agreements(now, events)),
        }
    }

    /// Returns a number that grows while polls move bytes without an event: see [`link::Engine::moves`].
    #[inline]
    pub fn moves(&self) -> u64 {
        self.inner.moves()
    }

    /// Returns true if [`Engine::poll`] would probably find nothing. Cheaper than a poll; may be wrong.
    #[inline(always)]
    pub fn seems_idle(&self) -> bool {
        self.inner.seems_idle() && !self.boards.have_news()
    }

    /// Prepares the port to be left alone, as [`Port::arm`] does, unless an event for which this rank waits has
    /// happened on a [`Board`](samite_fabric::shm::board::Board). From then on such an event wakes the rank too.
    pub fn arm(&mut self) -> Sleep {
        let of_port = self.inner.port_mut().arm();
        if of_port == Sleep::NotNow {
            return of_port;
        }
        let of_boards = self.boards.lie_down();
        if of_boards == Sleep::NotNow {
            self.disarm();
        }
        of_port.min(of_boards)
    }

    /// Ends the state that [`arm`](Self::arm) began.
    pub fn disarm(&mut self) {
        self.boards.get_up();
        self.inner.port_mut().disarm();
    }

    /// Returns the boards of this rank's communicators, by their control contexts. A board is dropped when the contexts
    /// are closed.
    #[inline]
    pub fn boards_mut(&mut self) -> &mut Boards {
        &mut self.boards
    }

    /// See [`boards_mut`](Self::boards_mut).
    #[inline]
    pub fn boards(&self) -> &Boards {
        &self.boards
    }

    /// Returns true if messages wait in the outbox. These are copies of messages whose sends have already returned.
    #[inline(always)]
    pub fn keeps_messages(&self) -> bool {
        self.inner.tagged().outbox.cost() > 0
    }

    /// Returns true if a message waits in the outbox that was put there before the first contact with its receiver.
    pub fn awaits_contact(&self) -> bool {
        self.inner.tagged().outbox.early > 0
    }

    /// Permits the engine to gather several short messages to a peer for one packet, where packets are dear, or forbids
    /// it. Returns true if it was permitted before. A new engine permits it. While it is permitted, call
    /// [`Engine::poll`] or [`Engine::send_gathered`] within [`Config::bundle_delay_us`] after a call that may have
    /// gathered a message: see [`Engine::due`].
    pub fn set_gathering(&mut self, gathers: bool) -> bool {
        self.inner.link_mut().set_gathering(gathers)
    }

    /// Returns true if gathered messages wait to be sent.
    #[inline(always)]
    pub fn has_gathered(&self) -> bool {
        self.inner.link().gathered() > 0
    }

    /// Returns true if, since the latest call of [`Engine::take_new_gathering`], a message was gathered while no other one
    /// was. Then polls are needed even if the program makes no call.
    #[inline(always)]
    pub fn has_new_gathering(&self) -> bool {
        self.inner.link().has_new_gathering()
    }

    /// Returns the value of [`Engine::has_new_gathering`], and sets it to false.
    pub fn take_new_gathering(&mut self) -> bool {
        self.inner.link_mut().take_new_gathering()
    }

    /// Sends the gathered messages, as far as the port has room.
    pub fn send_gathered(&mut self, now: Time) {
        self.inner.link_mut().set_now(now);
        if self.has_gathered() {
            self.inner.drive(&mut ());
        }
    }

    /// Returns true if long messages of nonblocking operations are under way, or may arrive, or if messages wait for the
    /// first contact with their receivers, so that polls are needed even while the program makes no call.
    #[inline(always)]
    pub fn needs_progress(&self) -> bool {
        self.inner.tagged().travelling > 0
    }

    /// Returns true if the port may move bytes of long messages in polls that bring no event.
    pub fn uses_registered_memory(&self) -> bool {
        self.inner.link().uses_registered_memory()
    }

    /// Returns the number of operations that have needed progress so far ([`needs_progress`](Self::needs_progress)),
    /// including operations that have ended.
    pub fn operations_that_need_progress(&self) -> u64 {
        self.inner.tagged().ever_travelling
    }

    /// Returns when to call [`Engine::poll`] at the latest: see [`link::Engine::due`].
    pub fn due(&self) -> Time {
        let agreements = if self.has_sent_answers() { Time::ZERO } else { self.agreements.due() };
        self.inner.due().min(agreements)
    }

    /// Takes packets that have arrived until one of them contains a message for the receive that is about to be posted.
    /// Copies that message to the buffer and returns its envelope, or `None` if it has not arrived. Other packets are
    /// handled as in a poll.
    #[inline(never)]
    fn receive_unposted<L: Lent>(
        &mut self,
        pattern: Pattern,
        buffer: &mut (impl Room + ?Sized),
        lent: &mut L,
    ) -> Option<Status> {
        let mut unposted = Unposted { pattern, buffer, got: None, lent };
        while self.inner.tagged().may_take(self.inner.link())
            && self.inner.next_packet(&mut unposted)
            && unposted.got.is_none()
        {
            // The packet may contain a message of an agreement, and the next poll may find no further packet.
            self.agreements.note_packet();
        }
        let got = unposted.got;
        if self.inner.link().has_work() {
            self.inner.drive(lent);
        }
        got
    }

    #[inline(always)]
    fn post<L: Lent>(
        &mut self,
        now: Time,
        pattern: Pattern,
        buffer: impl FnOnce() -> Buffer,
        deadline: Time,
        lent: &mut L,
    ) -> Result<(RequestId, Outcome), Error> {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        let Pattern { context, source, tag, .. } = pattern;
        let id = tagged.requests.next_id();
        match tagged.matcher.post(pattern, id) {
            Posting::Queued(posted) => {
                // The source is checked only now: a message that has matched was sent by a member.
                if let Some(failure) = tagged.source_failure(out.link, &pattern) {
                    tagged.matcher.cancel(posted);
                    return Err(failure);
                }
                let state = State::AwaitingMessage(posted);
                let told = || Partner::Any { told: tagged.failures.told(context) };
                let partner = source.as_rank().map_or_else(told, |rank| Partner::Rank(WorldRank(rank)));
                let mut request = Request::new(state, buffer(), partner, context, tag, now);
                request.travels = request.buffer.own_len().is_some_and(|len| tagged.begins_travel(len));
                tagged.requests.insert(request);
                tagged.set_deadline(out.link, id, deadline);
                Ok((id, Outcome::Pending))
            }
            Posting::Matched { envelope, unexpected, .. } => {
                let (state, partner) = (State::Over, Partner::Rank(WorldRank(envelope.source)));
                let mut request = Request::new(state, buffer(), partner, context, tag, now);
                request.travels = request.buffer.own_len().is_some_and(|len| tagged.begins_travel(len));
                tagged.requests.insert(request);
                tagged.set_deadline(out.link, id, deadline);
                tagged.matched(out.link, &envelope, &unexpected);
                tagged.accept(out.link, id, &envelope, unexpected, lent);
                if out.link.has_work() {
                    self.inner.drive(lent);
                }
                Ok((id, self.outcome(id)))
            }
            Posting::Refused(_) => {
                let (what, hint) = ("memory for posted receives", "post fewer at a time");
                Err(Error::Exhausted { what, hint: hint.into() })
            }
        }
    }

    #[inline(always)]
    fn check_source(&self, pattern: &Pattern) -> Result<(), Error> {
        let Some(rank) = pattern.source.as_rank().map(WorldRank) else { return Ok(()) };
        let link = self.inner.link();
        if rank.0 < link.identity().size && self.inner.tagged().contexts.is_member(pattern.context, rank) {
            return Ok(());
        }
        Err(link.invalid_rank(rank))
    }
}

/// The lender for a receive that is about to be posted. It takes the first message that arrives for the receive, and
/// passes all other calls on to the caller's lender.
struct Unposted<'a, L, R: ?Sized> {
    pattern: Pattern,
    buffer: &'a mut R,
    /// The envelope and length of the message that this lender has taken. A message that is longer than the buffer is
    /// taken, but not copied.
    got: Option<Status>,
    lent: &'a mut L,
}

impl<L: Lent, R: Room + ?Sized> Lent for Unposted<'_, L, R> {
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        self.lent.read(request, place)
    }

    #[inline(always)]
    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        self.lent.write(request, place)
    }

    #[inline(always)]
    fn received(&mut self, request: RequestId, place: u32, status: Status) -> bool {
        self.lent.received(request, place, status)
    }

    #[inline(always)]
    fn take(&mut self, context: u32, source: WorldRank, tag: u64, body: &(impl Body + ?Sized)) -> bool {
        let envelope = Envelope { context, source: source.0, tag };
        // No message was taken before. Packets are taken from the port one at a time, and none after the packet with
        // the message. The messages of a bundle are never offered to `take`.
        debug_assert!(self.got.is_none());
        if !self.pattern.matches(&envelope) {
            return false;
        }
        if body.len() <= self.buffer.len() {
            self.buffer.put(0, body);
            event!(TRACE, peer = source.0, tag, bytes = body.len(), "succeeded");
        }
        self.got = Some(status_of(&envelope, body.len()));
        true
    }
}

/// Peers: their addresses, and the launcher's reports about them.
impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Requests the address of a rank, as the first message to that rank would: see [`link::Engine::seek`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn seek(&mut self, rank: WorldRank) -> Result<(), Error> {
        self.inner.seek(rank)
    }

    /// Returns the ranks whose address the engine needs, and forgets them. Pass the address to [`Engine::introduce`].
    pub fn wanted(&mut self) -> impl Iterator<Item = WorldRank> + '_ {
        self.inner.wanted()
    }

    /// Returns the peers that this rank has given up by its own judgement since the last call: see
    /// [`link::Engine::given_up`].
    pub fn given_up(&mut self) -> impl Iterator<Item = link::GivenUp> + '_ {
        self.inner.given_up()
    }

    /// Returns true if [`Engine::given_up`] would return a peer.
    #[inline(always)]
    pub fn has_given_up(&self) -> bool {
        self.inner.has_given_up()
    }

    /// Sets the address and the incarnation of a rank: see [`link::Engine::introduce`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn introduce(&mut self, rank: WorldRank, incarnation: u32, address: Address) -> Result<(), Error> {
        self.inner.introduce(rank, incarnation, address)
    }

    /// Announces that the launcher reports how each rank ends: see [`link::Engine::expect_word`].
    pub fn expect_word(&mut self) {
        self.inner.expect_word();
    }

    /// Returns the time at which a rank ended, if the launcher's report of its end may still come: see
    /// [`link::Engine::unexplained_since`].
    pub fn unexplained_since(&mut self, rank: WorldRank) -> Option<Time> {
        self.inner.unexplained_since(rank)
    }

    /// Returns the cause for which a rank takes no part. If the rank takes part, returns the cause for which the latest
    /// failed incarnation of the rank has failed.
    pub fn latest_failure(&mut self, rank: WorldRank) -> Option<Cause> {
        self.inner.failure(rank).or_else(|| self.inner.tagged().failures.latest(rank).cloned())
    }

    /// Notes the cause of a rank's failure before the packets that are in the port are received: see
    /// [`link::Engine::announce_failure`].
    pub fn announce_failure(&mut self, rank: WorldRank, incarnation: u32, cause: Cause) {
        self.inner.announce_failure(rank, incarnation, cause);
    }

    /// Ends a peer because the launcher reports that its rank has failed: see [`link::Engine::peer_failed`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_failed(
        &mut self,
        rank: WorldRank,
        incarnation: Option<u32>,
        cause: Cause,
    ) -> Result<(), Error> {
        self.inner.peer_failed(rank, incarnation, cause)
    }

    /// Ends a peer because it has given up this rank: see [`link::Engine::peer_gave_up`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_gave_up(
        &mut self,
        rank: WorldRank,
        incarnation: u32,
        verdict_on: u32,
        why: String,
    ) -> Result<(), Error> {
        self.inner.peer_gave_up(rank, incarnation, verdict_on, why)
    }

    /// Records if the launcher restarts a failed rank: see [`link::Engine::peer_returns`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_returns(&mut self, rank: WorldRank, incarnation: u32, returns: bool) -> Result<(), Error> {
        self.inner.peer_returns(rank, incarnation, returns)
    }

    /// Ends a peer because the launcher reports that its rank has left: see [`link::Engine::peer_left`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_left(&mut self, rank: WorldRank, incarnation: Option<u32>) -> Result<(), Error> {
        self.inner.peer_left(rank, incarnation)
    }

    /// Records that a rank's process was stopped or continued: see [`link::Engine::peer_stopped`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn peer_stopped(&mut self, rank: WorldRank, incarnation: u32, is_stopped: bool) -> Result<(), Error> {
        self.inner.peer_stopped(rank, incarnation, is_stopped)
    }

    /// Begins to say goodbye to all peers: see [`link::Engine::close`].
    pub fn close(&mut self, now: Time) {
        self.agreements.close();
        self.survivors.close();
        let (out, tagged) = self.inner.with_tagged();
        tagged.receive_nothing(out.link);
        self.inner.close(now);
    }

    /// Returns true if every peer that takes part has received everything that was sent to it: see
    /// [`link::Engine::closed`].
    pub fn closed(&self) -> bool {
        self.inner.closed()
    }

    /// Returns a rank that prevents [`Engine::closed`]: see [`link::Engine::not_closed`].
    pub fn not_closed(&self) -> Option<WorldRank> {
        self.inner.not_closed()
    }
}

#[cfg(test)]
mod tests;
