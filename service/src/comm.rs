//! Communicators: the calls that send and receive.

mod attributes;
mod between;
mod blocks;
mod checking;
mod collectives;
mod creation;
mod derived;
mod handler;
mod hints;
mod inter;
mod layouts;
mod mode;
mod neighbours;
mod nonblocking;
mod place;
mod survivors;
mod views;

use std::sync::Arc;
use std::time::Duration;

use samite_fabric::Memory;
use samite_fabric::layout::{Room, Signature};
use samite_p2p::{Claimed, Pattern, RequestId, Time, WorldRank};
use zerocopy::IntoBytes;

pub(crate) use attributes::Attached;
pub use attributes::{Attribute, Inherited};
pub use blocks::consecutive;
pub(crate) use checking::{Called, Types};
pub use creation::Creation;
pub(crate) use derived::Derived;
pub use handler::{ErrorHandler, Raised};
pub(crate) use handler::{Extras, outside_handler};
pub use hints::Hints;
pub(crate) use mode::Sends;
pub use mode::{BUFFERED_OVERHEAD, Mode};
pub use place::Locality;
pub use survivors::Agreement;

use crate::buffer::{Buffer, BufferMut};
use crate::cancel::CancelToken;
use crate::checked::CheckedElement;
use crate::element::Element;
use crate::error::{Error, Public, Status};
use crate::future::{ClaimFuture, ProbeFuture};
use crate::group::Group;
use crate::owned::Owned;
use crate::request::{Done, Exchange, ExchangeFailed, Failed, Request, RequestSet, whole};
use crate::runtime::{Bounds, Runtime};
use crate::scope::Scope;
use crate::select::{Accepted, Destination, Rank, Source, Tag};
use crate::signature::{ElementType, Of, signature_of};
use crate::stack::Engine;
use crate::stats::Stats;
use crate::transport::Transport;
use crate::world::CONTEXT;

/// A group of ranks that send messages to each other, separate from the messages of other communicators.
///
/// Ranks count from 0. A tag is any 64-bit number. A `Comm` can be cloned, and several threads can use it at the same
/// time.
///
/// Every call ends with success or with an [`Error`]. The time-out and the cancel of the `Comm` bound each call on it:
/// see [`with_timeout`](Self::with_timeout) and [`with_cancel`](Self::with_cancel). A call without bounds still ends
/// when its peer fails. The lists of errors below do not always repeat the following: any call may return
/// [`Error::Closed`], [`Error::Forked`], [`Error::Condemned`] and [`Error::Transport`], a send or receive the errors of
/// a [`Check`](crate::Check) that is enabled, and a call with a wildcard [`Error::BrokenHint`].
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::Rank;
///
/// match comm.rank() {
///     Rank(0) => comm.send(&[1u8, 2, 3], Rank(1), 7)?,
///     _ => assert_eq!(comm.recv(&mut [0u8; 3], Rank(0), 7)?.bytes, 3),
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// A `Comm` may outlive its [`World`](crate::World): then every call ends at once with [`Error::Closed`], and so does a
/// call that waits in another thread when the `World` is dropped. In a child of fork(2) every call ends with
/// [`Error::Forked`], and drops there have no effect on the rank.
#[derive(Clone)]
pub struct Comm {
    pub(crate) runtime: Arc<Runtime<Transport>>,
    /// The members and contexts of a communicator that was created by its members; `None` for the communicator of all
    /// ranks.
    pub(crate) derived: Option<Arc<Derived>>,
    pub(crate) context: u32,
    pub(crate) sends: Sends,
    /// True if receives check the lengths or the types of their messages.
    pub(crate) checks_receives: bool,
    pub(crate) bounds: Bounds,
    /// The error handler, and the buffer of buffered sends. They are in an allocation of their own, because few handles
    /// have any.
    pub(crate) extras: Option<Arc<Extras>>,
}

impl Comm {
    /// Returns the communicator of all ranks.
    pub(crate) fn world(runtime: Arc<Runtime<Transport>>) -> Self {
        let (checks_receives, bounds) = (runtime.checks.types, Bounds::default());
        let sends = Sends::new(Mode::Standard, runtime.checks);
        Self { runtime, derived: None, context: CONTEXT, sends, checks_receives, bounds, extras: None }
    }

    /// Returns this rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.derived.as_ref().map_or(Rank(self.runtime.rank.0), |derived| derived.rank)
    }

    /// Returns the number of ranks in this communicator. For an intercommunicator it is the number of ranks in this
    /// rank's group.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.derived.as_ref().map_or(self.runtime.size, |derived| derived.own().len())
    }

    /// Returns the group of this communicator's ranks: the member with index 0 is rank 0 of this communicator. For an
    /// intercommunicator it is the group to which this rank belongs.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// let group = world.comm().group();
    /// assert_eq!(group, samite::Group::range(samite::Rank(0), 3));
    /// # });
    /// ```
    #[must_use]
    pub fn group(&self) -> Group {
        Group(self.members())
    }

    /// Returns the same communicator on another lane: a handle whose messages go through a port and a lock of their
    /// own. Threads that each use their own lane do not wait for each other. A message on a lane matches only receives
    /// on the same lane of its destination, and has no order relative to messages on other lanes.
    ///
    /// A job has one lane unless [`Settings::set_lanes`](crate::Settings::set_lanes) or `SAMITE_LANES` asks for more;
    /// all ranks have the same number of lanes. A call makes progress only in the lane of its handle. So a rank that
    /// leaves may wait for a rank whose threads make calls only on other lanes, at most for the time of the parameter
    /// `linger_us`. All ranks create communicators in the same order, over all lanes together. A new communicator has
    /// all lanes too; the handle that its creation returns is on the lane of the handle that created it.
    ///
    /// The concept resembles the endpoints that were proposed for MPI, and the virtual communication interfaces of
    /// MPICH.
    ///
    /// # Errors
    /// [`Error::NoSuchLane`]; [`Error::Closed`] after the [`World`](crate::World) was dropped.
    ///
    /// ```
    /// let mut settings = samite::Settings::default();
    /// settings.set_lanes(2)?;
    /// settings.local(2, |world| {
    ///     let comm = world.comm();
    ///     let other = samite::Rank(1 - comm.rank().0);
    ///     std::thread::scope(|threads| {
    ///         for number in 0..2 {
    ///             let lane = comm.lane(number)?;
    ///             threads.spawn(move || {
    ///                 let mut from_other = [0];
    ///                 lane.sendrecv(&[number], other, 7, &mut from_other, other, 7).unwrap();
    ///                 assert_eq!(from_other, [number], "lanes are apart");
    ///             });
    ///         }
    ///         Ok::<(), samite::Error>(())
    ///     })
    /// }).into_iter().for_each(Result::unwrap);
    /// # Ok::<(), samite::SettingError>(())
    /// ```
    pub fn lane(&self, number: usize) -> Result<Self, Error> {
        let runtime = self.handle_result("lane", self.runtime.lane(number))?;
        let lane = match self.buffer() {
            Some(buffer) => self.with_buffer(buffer.max()),
            None => self.clone(),
        };
        Ok(Self { runtime, ..lane })
    }

    /// Returns the incarnation of `rank` that takes part, as far as this rank knows: 1 for the first process of the
    /// rank, one more for each restart (`samite run --on-failure restart`). Returns `None` if the rank has failed or
    /// left, or no message was exchanged with it.
    ///
    /// Operations under way with an incarnation that failed end with [`Error::PeerFailed`]. Once the next incarnation
    /// is known, new operations address the next incarnation. It does not have the state of the failed incarnation, so
    /// compare incarnations if your protocol depends on that state.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Condemned`].
    pub fn incarnation(&self, rank: Rank) -> Result<Option<u32>, Error> {
        let world_rank = self.check_rank(rank).and_then(|()| self.world_rank(rank));
        let incarnation = world_rank.and_then(|rank| self.runtime.incarnation(rank));
        incarnation.map_err(|error| self.handle_world_error("incarnation", error))
    }

    /// Waits until a failed rank has restarted, and returns its new incarnation: see
    /// [`incarnation`](Self::incarnation). If the rank has not failed, the call waits only until that rank has joined
    /// the job. It waits at most for `timeout`, and no longer than the time-out of this `Comm`.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if the rank is not restarted: it has left, or has failed for good. [`Error::TimedOut`],
    /// [`Error::Cancelled`], [`Error::InvalidRank`].
    pub fn wait_for_restart(&self, rank: Rank, timeout: Duration) -> Result<u32, Error> {
        let timeout = self.bounds.timeout.map_or(timeout, |bound| bound.min(timeout));
        let bounds = Bounds { timeout: Some(timeout), ..self.bounds.clone() };
        let restarted = self.world_rank(rank).and_then(|rank| self.runtime.wait_for_restart(rank, &bounds));
        restarted.map_err(|error| self.handle_world_error("wait_for_restart", error))
    }

    /// Returns the name of the transport of messages to `rank`: `samite-shm`, `tcp;ofi_rxm`… Returns `None` if there is
    /// no connection to that rank: until a message to it has left or a message from it has arrived, after it has
    /// failed or left, after the [`World`](crate::World) was dropped, in a child of fork(2), and for an invalid rank. The
    /// end of a send does not show that its message has left.
    #[must_use]
    pub fn transport(&self, rank: Rank) -> Option<String> {
        let rank = self.world_rank(rank).ok()?;
        let mut call = self.runtime.enter(&Bounds::default())?;
        call.start(|engine, _, _| Some(engine.caps_for(rank)?.name.clone()))
    }

    /// Explains in words the choice of the transport to `rank`: names the transport, and the obstacles to better
    /// transports. Returns `None` in the same cases as [`transport`](Self::transport).
    #[must_use]
    pub fn explain(&self, rank: Rank) -> Option<String> {
        let rank = self.world_rank(rank).ok()?;
        self.runtime.enter(&Bounds::default())?.start(|engine, _, _| {
            let peer = engine.peer_id(rank)?;
            engine.port().explain(peer)
        })
    }

    /// Returns statistics of this handle's [lane](Self::lane): counts of messages since the process started, and the
    /// lane's present state. The counts are over all communicators, and are kept for each rank of the job. After the
    /// [`World`](crate::World) was dropped, this returns the statistics at that time.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let myself = comm.rank();
    /// comm.sendrecv(&[1u8, 2], myself, 7, &mut [0u8; 2], myself, 7)?;
    /// let traffic = &comm.stats().peers[0];
    /// assert_eq!((traffic.rank, traffic.eager_sent, traffic.bytes_received), (myself, 1, 2));
    /// # Ok::<(), samite::Error>(())
    /// # });
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.runtime.stats()
    }

    /// Returns the same communicator with a time-out: every operation on it takes at most `timeout` from the call that
    /// starts it, and then ends with [`Error::TimedOut`]. For a nonblocking operation this includes the time in which the
    /// program computes before it waits. To bound several calls together, give each call the time that is left:
    /// `comm.with_timeout(deadline.saturating_duration_since(Instant::now()))`.
    ///
    /// A receive that times out while the bytes of its message arrive ([`Awaited::Bytes`](crate::Awaited::Bytes)) has
    /// consumed the message, which is lost; the send may have ended without an error. To look for messages with a short
    /// time-out, use [`claim`](Self::claim) or [`probe`](Self::probe), and receive with a longer time-out.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let nothing = comm.with_timeout(Duration::from_millis(10)).recv(&mut [0u8], comm.rank(), 7);
    /// assert!(matches!(nothing, Err(samite::Error::TimedOut { .. })));
    /// # });
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { bounds: Bounds { timeout: Some(timeout), ..self.bounds.clone() }, ..self.clone() }
    }

    /// Returns the same communicator with a cancel token: operations on it end with [`Error::Cancelled`] when the
    /// program calls [`CancelToken::cancel`] on `cancel`.
    ///
    /// A cancelled send ends at once, in any state of its receiver, and its data can be used again; the error says if
    /// the message may have arrived. There is one exception: if the network itself reads the buffer that a send owns,
    /// the cancelled send waits for its receiver's answer. A receive that has matched its message runs to its end;
    /// [`with_timeout`](Self::with_timeout) bounds it.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use samite::{CancelToken, Error};
    ///
    /// let cancel = CancelToken::new();
    /// let bounded = comm.with_cancel(&cancel);
    /// std::thread::scope(|threads| {
    ///     let waits = threads.spawn(|| bounded.recv(&mut [0u8], comm.rank(), 7));
    ///     cancel.cancel();
    ///     assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
    /// });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub fn with_cancel(&self, cancel: &CancelToken) -> Self {
        Self { bounds: Bounds { cancel: Some(cancel.clone()), ..self.bounds.clone() }, ..self.clone() }
    }

    /// Sends `data` to rank `to`, and returns when `data` may be changed again: the message is then under way,
    /// received, or in the outbox.
    ///
    /// A short message that cannot be sent at once is copied to an outbox, and the send returns (MPI 4.1, section 3.4:
    /// standard mode). A message is short if it has at most `eager_max` bytes and fits in one packet of the transport,
    /// and if it has at most 16 KiB over shared memory. So a short send does not wait for a receiver that makes no call,
    /// also if the two ranks have not communicated before. The message is sent by a later call, or while this rank
    /// leaves: [`World::leave`](crate::World::leave) waits until it is taken. If it waits only for the first contact
    /// with the receiver, a thread of the library sends it ([`Progress::Needed`](crate::Progress::Needed)). The
    /// parameter `outbox_max` is the size of the outbox, 1 MiB by default. A send beyond it waits, and so does every
    /// send of a rank with several [lanes](Self::lane), because a thread that waits in one lane would not send the
    /// messages of another.
    ///
    /// If the receiver fails or leaves before it has taken the message, the message is lost although the send has
    /// returned `Ok`: [`Stats::lost`] counts it, later operations with the receiver end with [`Error::PeerFailed`], and
    /// `leave` returns [`Error::Undelivered`] if the message is lost then. If this rank is stopped or killed, messages
    /// in its outbox are lost. A send in mode [`Synchronous`](crate::Mode::Synchronous) ends only when the message is
    /// received. The same holds for [`isend`](Self::isend) and sends in a [`Scope`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::TimedOut`], [`Error::Cancelled`], [`Error::Closed`],
    /// [`Error::Forked`]. [`Error::Exhausted`] if the receiver or the buffer of a [buffered](crate::Mode::Buffered)
    /// send has no room for the message. [`Error::Abandoned`] if the receiver gave up before it had all bytes, or
    /// dropped the communicator before it received the message.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::Rank;
    ///
    /// const NUMBERS: u64 = 7;
    /// if comm.rank() == 0 {
    ///     comm.send(&[1.5, 2.5], Rank(1), NUMBERS)?;
    /// } else {
    ///     comm.recv(&mut [0.0; 2], Rank(0), NUMBERS)?;
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[inline]
    pub fn send<T: CheckedElement>(
        &self,
        data: &[T],
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<(), Error> {
        let Some(to) = to.into().0 else { return self.handle_result("send", self.absent(tag).map(drop)) };
        match self.world_rank(to) {
            Ok(rank) => self.send_bytes("send", rank, tag, data.as_bytes(), signature_of::<T>),
            Err(error) => Err(self.handle_world_error("send", error)),
        }
    }

    /// Receives the first message that matches, into the beginning of `buffer`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Truncated`] if the message is longer than the buffer, [`Error::PartialElement`]
    /// if it is not made of whole elements, [`Error::PeerFailed`], [`Error::FailurePending`], [`Error::Deserted`],
    /// [`Error::TimedOut`], [`Error::Cancelled`], [`Error::Abandoned`]; [`Error::Exhausted`] if there is no memory to
    /// post the receive.
    ///
    /// After [`Error::Abandoned`] the buffer may contain a part of the message. The same holds after
    /// [`Error::TimedOut`] and [`Error::PeerFailed`] if the receive waited for the bytes of its message
    /// ([`Awaited::Bytes`](crate::Awaited::Bytes)). Otherwise these two errors leave the buffer unchanged.
    /// [`Error::FailurePending`], [`Error::Deserted`] and [`Error::Cancelled`] always leave it unchanged.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, Source, Tag};
    ///
    /// if comm.rank() == 1 {
    ///     comm.send(&[1u32, 2, 3], Rank(0), 7)?;
    /// } else {
    ///     let mut numbers = [0u32; 8];
    ///     let status = comm.recv(&mut numbers, Source::ANY, Tag::ANY)?;
    ///     let count = status.bytes / size_of::<u32>();
    ///     assert_eq!((status.peer, status.tag), (Rank(1), 7));
    ///     assert_eq!(numbers[..count], [1, 2, 3]);
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[inline]
    pub fn recv<T: Element>(
        &self,
        buffer: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status, Error> {
        self.recv_bytes("recv", buffer.as_mut_bytes(), Of::<T>::new(), from.into(), tag.into())
    }

    /// Receives a message of elements into `buffer`, for the public call of the name `call`.
    #[inline(always)]
    pub(crate) fn recv_bytes(
        &self,
        call: &'static str,
        buffer: &mut (impl Room + ?Sized),
        elements: impl ElementType,
        from: Source,
        tag: Tag,
    ) -> Result<Status, Error> {
        match self.checks_receives {
            false => self.recv_as::<false>(call, buffer, elements, from, tag),
            true => self.recv_checking(call, buffer, elements, from, tag),
        }
    }

    /// Receives as [`recv_bytes`](Self::recv_bytes) does, and checks the length and the types of the message.
    #[cold]
    #[inline(never)]
    fn recv_checking(
        &self,
        call: &'static str,
        buffer: &mut (impl Room + ?Sized),
        elements: impl ElementType,
        from: Source,
        tag: Tag,
    ) -> Result<Status, Error> {
        self.recv_as::<true>(call, buffer, elements, from, tag)
    }

    #[inline(always)]
    fn recv_as<const CHECKS: bool>(
        &self,
        call: &'static str,
        buffer: &mut (impl Room + ?Sized),
        elements: impl ElementType,
        from: Source,
        tag: Tag,
    ) -> Result<Status, Error> {
        let pattern = match self.pattern(call, from, tag) {
            Ok(Some(pattern)) => pattern,
            Ok(None) => return self.handle_result(call, self.absent(tag.tag)),
            Err(error) => return Err(self.handle_world_error(call, error)),
        };
        let typed = if CHECKS { self.typed(call, || elements.signature()) } else { None };
        let received = match typed {
            None => self.runtime.recv(pattern, buffer, &self.bounds),
            Some(typed) => self.runtime.recv_typed(typed, pattern, buffer, &self.bounds),
        };
        match received {
            Ok(status) => {
                let status = self.received(status, from);
                let exact = if CHECKS { self.exact(status, buffer.len()) } else { Ok(status) };
                let checked = exact.and_then(|status| whole(status, elements.bytes()));
                checked.map_err(|error| self.handle_error(call, error))
            }
            Err(error) => Err(self.handle_world_error(call, error)),
        }
    }

    /// Receives the first message that matches, of any length.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), without [`Error::Truncated`]; [`Error::Exhausted`] if there is no memory for a message
    /// of its length. In that case the message is consumed.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// if comm.rank() == 0 {
    ///     comm.send(&[1.0, 2.0, 3.0], samite::Rank(1), 7).unwrap();
    /// } else {
    ///     let message = comm.recv_vec::<f64>(samite::Source::ANY, 7).unwrap();
    ///     assert_eq!((message.buffer, message.status.peer), (vec![1.0, 2.0, 3.0], samite::Rank(0)));
    /// }
    /// # });
    /// ```
    pub fn recv_vec<T: Element>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Done<Vec<T>>, Error> {
        let (call, receive) =
            ("recv_vec", |message: &mut Message| message.receive("recv_vec", signature_of::<T>));
        self.handle_result(call, self.find_and(call, from.into(), tag.into(), receive))
    }

    /// Claims a message and receives it, both within the bounds of this handle.
    #[inline]
    pub(crate) fn find_and<R>(
        &self,
        call: &'static str,
        from: Source,
        tag: Tag,
        receive: impl FnOnce(&mut Message) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let begun = self.runtime.now();
        let mut message = self.find(call, from, tag)?;
        message.comm.bounds = self.runtime.rest_of(&self.bounds, begun);
        receive(&mut message)
    }

    /// Sends and receives at the same time, so that neither operation waits for the other: two ranks may call this to
    /// exchange messages with each other. If one of the two operations fails, the other is cancelled.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`recv`](Self::recv): the error of the operation that failed first.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(1 - comm.rank().0);
    /// let mut theirs = [0];
    /// comm.sendrecv(&[comm.rank().0], other, 7, &mut theirs, other, 7)?;
    /// assert_eq!(theirs, [other.0]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn sendrecv<T: Element, U: Element>(
        &self,
        data: &[T],
        to: impl Into<Destination>,
        tag: u64,
        buffer: &mut [U],
        from: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status, Error> {
        let (to, from) = ((to.into(), tag), (from.into(), recv_tag.into()));
        self.handle_result("sendrecv", self.exchange("sendrecv", data, to, buffer, from))
    }

    fn exchange<T: Element, U: Element>(
        &self,
        call: &'static str,
        data: &[T],
        (to, tag): (Destination, u64),
        buffer: &mut [U],
        (from, recv_tag): (Source, Tag),
    ) -> Result<Status, Error> {
        // The destination is checked before the receive is posted. If a check failed afterwards, the receive could
        // already have taken a message, which would be lost.
        to.0.map_or(Ok(()), |rank| self.check_rank(rank))?;
        self.run_scope(self.quiet(), false, |scope| {
            let bytes = buffer.as_mut_bytes();
            let receive = scope.begin_receive(call, bytes, Of::<U>::new(), from, recv_tag)?;
            scope.isend(data, to, tag)?;
            scope.wait_rest()?;
            scope.wait(receive)
        })
    }

    /// Sends the elements of `buffer`, and receives into it: [`sendrecv`](Self::sendrecv) with one buffer
    /// (`MPI_Sendrecv_replace`; MPI 4.1, section 3.11). The data is copied before it is sent.
    ///
    /// # Errors
    /// As [`sendrecv`](Self::sendrecv); [`Error::Exhausted`] if there is no memory for the copy.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(1 - comm.rank().0);
    /// let mut numbers = [comm.rank().0; 3];
    /// comm.sendrecv_replace(&mut numbers, other, 7, other, 7)?;
    /// assert_eq!(numbers, [other.0; 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn sendrecv_replace<T: Element>(
        &self,
        buffer: &mut [T],
        to: impl Into<Destination>,
        tag: u64,
        from: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status, Error> {
        let (to, from) = ((to.into(), tag), (from.into(), recv_tag.into()));
        let call = "sendrecv_replace";
        let exchanged = copy_of(buffer).and_then(|data| self.exchange(call, &data, to, buffer, from));
        self.handle_result(call, exchanged)
    }

    /// Starts to send `data` and to receive into the elements of `buffer`, as one operation (`MPI_Isendrecv`; MPI 4.1,
    /// section 3.11). If the send or the receive fails, the other is cancelled.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], and the errors of [`irecv`](Self::irecv); returns both buffers. If the receive starts
    /// and the send does not, this call succeeds, and [`Exchange::wait`] returns the send's error.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(1 - comm.rank().0);
    /// let exchange = comm.isendrecv(vec![comm.rank().0], other, 7, vec![0.0], other, 8)?;
    /// comm.sendrecv(&[0.5], other, 8, &mut [0], other, 7)?;
    /// assert_eq!(exchange.wait()?.buffer, [0.5]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn isendrecv<S: Buffer, R: BufferMut>(
        &self,
        data: S,
        to: impl Into<Destination>,
        tag: u64,
        buffer: R,
        from: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Exchange<S, R>, ExchangeFailed<S, R>> {
        let (to, from) = ((to.into(), tag), (from.into(), recv_tag.into()));
        self.handle_result("isendrecv", self.begin_exchange("isendrecv", data, to, buffer, from))
    }

    fn begin_exchange<S: Buffer, R: BufferMut>(
        &self,
        call: &'static str,
        data: S,
        (to, tag): (Destination, u64),
        buffer: R,
        (from, recv_tag): (Source, Tag),
    ) -> Result<Exchange<S, R>, ExchangeFailed<S, R>> {
        // The destination is checked before the receive is posted. If a check failed afterwards, the receive could
        // already have taken a message, which would be lost.
        if let Err(error) = to.0.map_or(Ok(()), |rank| self.check_rank(rank)) {
            return Err(ExchangeFailed { error, data: Some(data), buffer: Some(buffer) });
        }
        let quiet = self.quiet();
        match quiet.post(call, buffer, R::signature, from, recv_tag) {
            Ok(receive) => Ok(Exchange::new(self.clone(), quiet.isend(data, to, tag), receive)),
            Err(Failed { error, buffer }) => Err(ExchangeFailed { error, data: Some(data), buffer }),
        }
    }

    /// Starts to send the elements of `buffer` and to receive into it: [`isendrecv`](Self::isendrecv) with one buffer
    /// (`MPI_Isendrecv_replace`). The sent data is a copy, which the exchange returns too.
    ///
    /// # Errors
    /// As [`isendrecv`](Self::isendrecv); [`Error::Exhausted`] if there is no memory for the copy.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(1 - comm.rank().0);
    /// let exchange = comm.isendrecv_replace(vec![comm.rank().0], other, 7, other, 7)?;
    /// let exchanged = exchange.wait()?;
    /// assert_eq!((exchanged.data, exchanged.buffer), (vec![comm.rank().0], vec![other.0]));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn isendrecv_replace<T: Element>(
        &self,
        buffer: Vec<T>,
        to: impl Into<Destination>,
        tag: u64,
        from: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> BegunExchange<Vec<T>> {
        let (to, from) = ((to.into(), tag), (from.into(), recv_tag.into()));
        let call = "isendrecv_replace";
        let begun = match copy_of(&buffer) {
            Ok(data) => self.begin_exchange(call, data, to, buffer, from),
            Err(error) => Err(ExchangeFailed { error, data: None, buffer: Some(buffer) }),
        };
        self.handle_result(call, begun)
    }

    /// Returns an empty set of requests, whose results can be taken in the order in which they end. The time-out of
    /// this handle does not apply to the set: each request has the time-out of the handle that started it.
    #[must_use]
    pub fn request_set<B: Owned>(&self) -> RequestSet<B> {
        RequestSet::new(self.clone())
    }

    /// Starts to send `data`. The request returns `data` when the send has ended.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Closed`], [`Error::Forked`]; [`Error::Exhausted`] if the
    /// buffer of a [buffered](crate::Mode::Buffered) send has no room. The error returns the data.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let request = comm.isend(vec![1u8, 2, 3], comm.rank(), 7)?;
    /// comm.recv(&mut [0u8; 3], comm.rank(), 7)?;
    /// let done = request.wait()?;
    /// assert_eq!(done.buffer, [1, 2, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn isend<B: Buffer>(
        &self,
        data: B,
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<Request<B>, Failed<B>> {
        self.start_send("isend", data, B::signature, to.into(), tag)
    }

    #[inline(always)]
    pub(crate) fn start_send<B: Buffer>(
        &self,
        call: &'static str,
        data: B,
        signature: SignatureOf,
        to: Destination,
        tag: u64,
    ) -> Result<Request<B>, Failed<B>> {
        let rank = match to.0.map(|to| self.world_rank(to)) {
            Some(Ok(rank)) => rank,
            Some(Err(error)) => {
                return Err(Failed { error: self.handle_world_error(call, error), buffer: Some(data) });
            }
            None => return self.begin_absent(call, data, tag),
        };
        self.begin(call, data, |engine, now, memory, deadline| match self.how(call, || signature(&memory)) {
            None => engine.isend(now, rank, self.context, tag, memory, deadline),
            Some(how) => engine.isend_with(how, now, rank, self.context, tag, memory, deadline),
        })
    }

    /// Starts to receive into the elements of `buffer`. The request returns the buffer when the receive has ended.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Closed`], [`Error::Forked`]; [`Error::Exhausted`] if there is no memory to post
    /// the receive. The error returns the buffer. A failure of the sender is an error of the request.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let request = comm.irecv(vec![0u8; 3], comm.rank(), 7)?;
    /// comm.send(&[1u8, 2, 3], comm.rank(), 7)?;
    /// let done = request.wait()?;
    /// assert_eq!((done.buffer, done.status.bytes), (vec![1, 2, 3], 3));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn irecv<B: BufferMut>(
        &self,
        buffer: B,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<B>, Failed<B>> {
        self.post("irecv", buffer, B::signature, from.into(), tag.into())
    }

    #[inline(always)]
    pub(crate) fn post<B: BufferMut>(
        &self,
        call: &'static str,
        buffer: B,
        signature: SignatureOf,
        from: Source,
        tag: Tag,
    ) -> Result<Request<B>, Failed<B>> {
        let pattern = match self.pattern(call, from, tag) {
            Ok(Some(pattern)) => pattern,
            Ok(None) => return self.begin_absent(call, buffer, tag.tag),
            Err(error) => {
                return Err(Failed { error: self.handle_world_error(call, error), buffer: Some(buffer) });
            }
        };
        self.begin(call, buffer, |engine, now, memory, deadline| {
            match self.typed(call, || signature(&memory)) {
                None => engine.irecv(now, pattern, memory, deadline),
                Some(typed) => engine.irecv_typed(typed, now, pattern, memory, deadline),
            }
        })
    }

    /// Runs `body` with a [`Scope`], in which several sends and receives with borrowed buffers can be under way at the
    /// same time. All of them have ended when this call returns. If `body` fails, or if an operation fails that `body`
    /// did not wait for, the other operations are abandoned: a message that has matched a receive is lost, and a part
    /// of it may be in the buffer.
    ///
    /// # Errors
    /// Returns the error of `body`, or otherwise the error of the first operation that failed among those that `body`
    /// did not wait for.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(comm.rank().0 ^ 1);
    /// let (mine, mut theirs) = ([comm.rank().0], [0]);
    /// comm.scope(|scope| {
    ///     scope.irecv(&mut theirs, other, 7)?;
    ///     scope.isend(&mine, other, 7)?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(theirs, [other.0]);
    /// # Ok::<(), samite::Error>(()) }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn scope<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // The calls in the body have reported their errors, so an error of `body` is not reported again.
        let mut is_reported = true;
        let result = self.run_scope(self.clone(), true, |scope| {
            let value = body(scope)?;
            is_reported = false;
            Ok(value)
        });
        if is_reported { result } else { self.handle_result("scope", result) }
    }

    /// Runs `body` with a scope whose operations start on `handle`: a clone of this handle, or one without its error
    /// handler. If `lends_always` is true, the buffers of long messages are lent to every call, and not only to those
    /// of the scope.
    fn run_scope<'env, R>(
        &self,
        handle: Self,
        lends_always: bool,
        body: impl for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = self.runtime.loans.scope(|lender| {
            let mut scope = Scope::new(handle, lends_always.then_some(lender));
            let result = body(&mut scope);
            result.and_then(|value| scope.wait_rest().map(|()| value))
        });
        result.map_err(|error| match error {
            // An operation that could not start returns this error without a report. For other operations the launcher
            // was already asked for the cause of the failure; for this operation it is asked here.
            Error::PeerFailed { report: None, .. } => {
                self.local_error(self.runtime.explain(error, &self.bounds))
            }
            error => error,
        })
    }

    /// Waits until a message that matches has arrived, and returns its status. The message is not received.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::FailurePending`], [`Error::Deserted`],
    /// [`Error::TimedOut`], [`Error::Cancelled`].
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// comm.send(&[0u8; 5], comm.rank(), 7)?;
    /// let status = comm.probe(samite::Source::ANY, samite::Tag::ANY)?;
    /// assert_eq!((status.tag, status.bytes), (7, 5));
    /// comm.recv(&mut vec![0u8; status.bytes], status.peer, status.tag)?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status, Error> {
        let (from, tag) = (from.into(), tag.into());
        let found = self.pattern("probe", from, tag).and_then(|pattern| match pattern {
            Some(pattern) => self.local(self.runtime.probe(&pattern, &self.bounds)),
            None => self.absent(tag.tag),
        });
        self.handle_result("probe", found)
    }

    /// Returns the status of the first message that matches and has arrived, if any. The message is not received.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::FailurePending`], [`Error::Deserted`].
    pub fn try_probe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>, Error> {
        let (from, tag) = (from.into(), tag.into());
        let found = self.pattern("try_probe", from, tag).and_then(|pattern| match pattern {
            Some(pattern) => match self.runtime.look(|engine| engine.probe(&pattern)) {
                Ok(found) => found.map(|status| self.local(Ok(status.public()))).transpose(),
                Err(error) => Err(self.local_error(error)),
            },
            None => self.absent(tag.tag).map(Some),
        });
        self.handle_result("try_probe", found)
    }

    /// Waits until a message that matches has arrived, and claims it: no other receive can match it any more. MPI calls
    /// this a matched probe (`MPI_Mprobe`; [`Message::recv`] is `MPI_Mrecv`).
    ///
    /// # Errors
    /// Returns the errors of [`probe`](Self::probe).
    pub fn claim(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message, Error> {
        self.handle_result("claim", self.find("claim", from.into(), tag.into()))
    }

    fn find(&self, call: &'static str, from: Source, tag: Tag) -> Result<Message, Error> {
        let Some(pattern) = self.pattern(call, from, tag)? else { return self.claim_absent(tag) };
        let claimed = self.runtime.claim(&pattern, &self.bounds);
        let (status, claimed) = claimed.map_err(|error| self.local_error(error))?;
        Ok(Message { comm: self.clone(), status: self.local(Ok(status))?, claimed: Some(claimed) })
    }

    /// Claims a message as [`claim`](Self::claim) does, without waiting (`MPI_Improbe`).
    ///
    /// # Errors
    /// Returns the errors of [`try_probe`](Self::try_probe).
    pub fn try_claim(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Message>, Error> {
        self.handle_result("try_claim", self.try_find(from.into(), tag.into()))
    }

    fn try_find(&self, from: Source, tag: Tag) -> Result<Option<Message>, Error> {
        let Some(pattern) = self.pattern("try_claim", from, tag)? else {
            return self.claim_absent(tag).map(Some);
        };
        let found = self.runtime.look(|engine| engine.claim(&pattern));
        let Some((status, claimed)) = found.map_err(|error| self.local_error(error))? else {
            return Ok(None);
        };
        let status = self.local(Ok(status.public()))?;
        Ok(Some(Message { comm: self.clone(), status, claimed: Some(claimed) }))
    }

    /// Returns the future of the first message that matches: [`probe`](Self::probe) for asynchronous programs. The
    /// time-out counts from this call. Like [`try_probe`](Self::try_probe), the future does not wait for the launcher's
    /// report of why a peer failed, so the cause in an error may be less precise.
    ///
    /// ```
    /// # async fn example(comm: &samite::Comm) -> Result<(), samite::Error> {
    /// let status = comm.probe_async(samite::Source::ANY, samite::Tag::ANY).await?;
    /// println!("rank {} has sent {} bytes", status.peer, status.bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn probe_async(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> ProbeFuture {
        let tag = tag.into();
        ProbeFuture::new(self, self.pattern("probe_async", from.into(), tag), tag.tag)
    }

    /// Returns the future of a claimed message: [`claim`](Self::claim) for asynchronous programs. No message is claimed
    /// before the future returns it, so dropping the future loses no message.
    ///
    /// ```
    /// # async fn example(comm: &samite::Comm) -> Result<(), samite::Error> {
    /// let message = comm.claim_async(samite::Source::ANY, 7).await?;
    /// let buffer = vec![0u8; message.status().bytes];
    /// let done = message.irecv(buffer)?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim_async(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> ClaimFuture {
        let tag = tag.into();
        ClaimFuture::new(self, self.pattern("claim_async", from.into(), tag), tag.tag)
    }

    pub(crate) fn check_rank(&self, rank: Rank) -> Result<(), Error> {
        let size = self.partners();
        if rank.0 < size { Ok(()) } else { Err(Error::InvalidRank { rank, size }) }
    }

    /// Returns the pattern of the messages that a receive accepts; `None` if its source is absent.
    #[inline(always)]
    pub(crate) fn pattern(
        &self,
        call: &'static str,
        from: Source,
        tag: Tag,
    ) -> Result<Option<Pattern>, Error> {
        if (from.0 == Accepted::Any || tag.is_wildcard())
            && let Some(derived) = &self.derived
        {
            derived.check_wildcards(call, from, tag)?;
        }
        let source = match from.0 {
            // In the engine the number of `Rank::ABSENT` means any source, so this rank must not reach the engine.
            Accepted::Rank(rank @ Rank::ABSENT) => {
                return Err(Error::InvalidRank { rank, size: self.partners() });
            }
            Accepted::Rank(rank) => samite_p2p::Source::rank(self.world_rank(rank)?.0),
            Accepted::Any => samite_p2p::Source::ANY,
            Accepted::Absent => return Ok(None),
        };
        Ok(Some(Pattern { context: self.context, source, tag: tag.tag, mask: tag.mask }))
    }

    /// Returns the result of an operation whose partner is absent.
    #[cold]
    pub(crate) fn absent(&self, tag: u64) -> Result<Status, Error> {
        match self.runtime.enter(&self.bounds) {
            Some(_) => Ok(Status::absent(tag)),
            None => Err(self.runtime.refused()),
        }
    }

    /// Starts an operation whose partner is absent.
    #[cold]
    fn begin_absent<B: Buffer>(
        &self,
        call: &'static str,
        buffer: B,
        tag: u64,
    ) -> Result<Request<B>, Failed<B>> {
        let status = samite_p2p::Status { source: WorldRank(Rank::ABSENT.0), tag, bytes: 0 };
        self.begin(call, buffer, |engine, now, memory, _| Ok(engine.ended(now, self.context, status, memory)))
    }

    #[cold]
    fn claim_absent(&self, tag: Tag) -> Result<Message, Error> {
        Ok(Message { comm: self.clone(), status: self.absent(tag.tag)?, claimed: None })
    }

    /// Returns the members' ranks in the job.
    pub(crate) fn members(&self) -> samite_p2p::Group {
        let all = || samite_p2p::Group::range(WorldRank(0), self.runtime.size);
        self.derived.as_ref().map_or_else(all, |derived| derived.own().clone())
    }

    /// Returns the number of ranks to which messages can be sent.
    fn partners(&self) -> u32 {
        self.derived.as_ref().map_or(self.runtime.size, |derived| derived.group.len())
    }

    /// Translates a rank of this communicator to its rank in the job.
    #[inline(always)]
    pub(crate) fn world_rank(&self, rank: Rank) -> Result<WorldRank, Error> {
        match &self.derived {
            None => Ok(WorldRank(rank.0)),
            Some(derived) => derived.world_rank(rank),
        }
    }

    /// Translates the ranks in a result from ranks of the job to ranks of this communicator.
    #[inline(always)]
    pub(crate) fn local(&self, result: Result<Status, Error>) -> Result<Status, Error> {
        match result {
            Ok(status) => Ok(self.local_status(status)),
            Err(error) => Err(self.local_error(error)),
        }
    }

    #[inline(always)]
    fn local_status(&self, Status { peer, tag, bytes }: Status) -> Status {
        let peer = self.derived.as_ref().map_or(peer, |derived| derived.local_rank(peer));
        Status { peer, tag, bytes }
    }

    /// Returns the status of a receive from `from` with the sender's rank in this communicator. If the program named
    /// the source, that rank is used, because a search for the sender's rank costs more.
    #[inline(always)]
    fn received(&self, status: Status, from: Source) -> Status {
        match from.rank() {
            Some(peer) => Status { peer, ..status },
            None => self.local_status(status),
        }
    }

    /// Translates the ranks in an error from ranks of the job to ranks of this communicator.
    #[cold]
    pub(crate) fn local_error(&self, error: Error) -> Error {
        match &self.derived {
            None => error,
            Some(derived) => error.in_comm(|rank| derived.local_rank(rank)),
        }
    }

    /// Starts an operation that owns its buffer. `call` is the name of the public call that starts it.
    fn begin<B: Buffer>(
        &self,
        call: &'static str,
        buffer: B,
        start: impl FnOnce(
            &mut Engine<Transport>,
            Time,
            Memory,
            Time,
        ) -> Result<RequestId, (samite_p2p::Error, Memory)>,
    ) -> Result<Request<B>, Failed<B>> {
        let memory = buffer.into_memory();
        let Some(mut entered) = self.runtime.enter(&self.bounds) else {
            return Err(Failed::new(self.handle_world_error(call, self.runtime.refused()), Some(memory)));
        };
        match entered.start(|engine, now, deadline| start(engine, now, memory, deadline)) {
            Ok(id) => Ok(Request::started(self.clone(), id)),
            Err((error, memory)) => {
                // An error handler may call Samite, so the lock is released first.
                drop(entered);
                Err(Failed::new(self.handle_world_error(call, error.public()), Some(memory)))
            }
        }
    }
}

/// A function that returns the signature of the elements in the memory that was made from a buffer.
type SignatureOf = fn(&Memory) -> Signature;

/// An exchange between two buffers of one type, or the reason why it did not start.
type BegunExchange<B> = Result<Exchange<B, B>, ExchangeFailed<B, B>>;

/// Returns a copy of the data of a buffer that is both sent and received into.
fn copy_of<T: Element>(data: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(data.len()).map_err(|_| Error::Exhausted {
        what: "memory for a copy of the data to send",
        hint: "send and receive in parts, or with two buffers".into(),
    })?;
    copy.extend_from_slice(data);
    Ok(copy)
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Comm");
        if let Some(name) = self.name() {
            debug.field("name", &name);
        }
        debug.field("rank", &self.rank()).field("size", &self.size()).finish_non_exhaustive()
    }
}

/// A claimed message, made by [`Comm::claim`]. Dropping it discards the message, which then counts as received for its
/// sender.
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// comm.send(&[1u64, 2], comm.rank(), 7)?;
/// let message = comm.claim(samite::Source::ANY, 7)?;
/// // No other receive can match it, so its length is known before its buffer is made.
/// assert_eq!(message.status().bytes, 16);
/// assert_eq!(message.recv::<u64>()?.buffer, [1, 2]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Debug)]
pub struct Message {
    pub(crate) comm: Comm,
    status: Status,
    /// The claim; `None` if the source is absent, so that there is no message.
    claimed: Option<Claimed>,
}

impl Message {
    pub(crate) fn new(comm: Comm, status: Status, claimed: Option<Claimed>) -> Self {
        Self { comm, status, claimed }
    }

    /// Returns the status of the message.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Starts to receive the message into the elements of `buffer` (`MPI_Imrecv`; MPI 4.1, section 3.8.3).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`]; returns the buffer. The request ends with [`Error::Truncated`] if the
    /// message is longer than the buffer.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// comm.send(&[1u64, 2], comm.rank(), 7)?;
    /// let message = comm.claim(samite::Source::ANY, 7)?;
    /// let request = message.irecv(vec![0u64; 2])?;
    /// assert_eq!(request.wait()?.buffer, [1, 2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn irecv<B: BufferMut>(self, buffer: B) -> Result<Request<B>, Failed<B>> {
        self.start_recv("Message::irecv", buffer, B::signature)
    }

    pub(crate) fn start_recv<B: BufferMut>(
        mut self,
        call: &'static str,
        buffer: B,
        signature: SignatureOf,
    ) -> Result<Request<B>, Failed<B>> {
        match self.claimed.take() {
            None => self.comm.begin_absent(call, buffer, self.status.tag),
            Some(claimed) => self.comm.begin(call, buffer, |engine, now, memory, deadline| {
                let typed = self.comm.typed(call, || signature(&memory));
                Ok(engine.recv_claimed_as(typed, now, claimed, Ok(memory), deadline))
            }),
        }
    }

    /// Receives the message into a new vector of its length.
    ///
    /// # Errors
    /// [`Error::PartialElement`] if the message is not made of whole elements, [`Error::Exhausted`] if there is no
    /// memory for its length; the message is consumed then. [`Error::PeerFailed`], [`Error::Abandoned`],
    /// [`Error::TimedOut`].
    pub fn recv<T: Element>(mut self) -> Result<Done<Vec<T>>, Error> {
        let received = self.receive("Message::recv", signature_of::<T>);
        self.comm.handle_result("Message::recv", received)
    }

    pub(crate) fn receive<T: Element>(
        &mut self,
        call: &'static str,
        signature: fn() -> Signature,
    ) -> Result<Done<Vec<T>>, Error> {
        let status = whole(self.status, size_of::<T>())?;
        // The length is only the peer's announcement, which may be false. The memory is allocated as zero pages, and
        // pages that no data reaches take no memory.
        let buffer =
            T::new_vec_zeroed(status.bytes / size_of::<T>().max(1)).map_err(|_| Error::Exhausted {
                what: "memory for the length that a message announces",
                hint: "receive it in parts, or find out why its sender announces so much".into(),
            })?;
        let Some(claimed) = self.claimed.take() else {
            return self.comm.absent(status.tag).map(|status| Done { buffer, status });
        };
        let memory = Memory::new(buffer);
        let (runtime, typed) = (&self.comm.runtime, self.comm.typed(call, signature));
        let Some(mut entered) = runtime.enter(&self.comm.bounds) else { return Err(runtime.refused()) };
        let id = entered
            .start(|engine, now, deadline| engine.recv_claimed_as(typed, now, claimed, Ok(memory), deadline));
        drop(entered);
        let completion = self.comm.runtime.finish(id, &mut (), &self.comm.bounds);
        let completion = completion.ok_or(Error::NoSuchRequest)?;
        self.comm.local(completion.result)?;
        let buffer = completion.memory.and_then(|memory| memory.into_vec().ok());
        buffer.map(|buffer| Done { buffer, status }).ok_or(Error::NoSuchRequest)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed.take()
            && let Some(mut call) = self.comm.runtime.enter(&Bounds::default())
        {
            call.start(|engine, now, _| engine.discard(now, claimed));
        }
    }
}
