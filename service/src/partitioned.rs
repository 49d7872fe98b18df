//! Partitioned communication: messages that travel in parts, as threads finish them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::task::Poll;

use samite_fabric::layout::Signature;
use samite_fabric::mem::{Partitioned, PartitionsMut};
use samite_p2p::{PartitionedId, RequestId, Time, WorldRank};

use crate::error::{Error, Public, Status};
use crate::owned::{Kept, Operation, returned};
use crate::request::{Failed, Request};
use crate::runtime::{Completion, Runtime};
use crate::select::Rank;
use crate::signature::signature_of;
use crate::stack::Engine;
use crate::transport::Transport;
use crate::{Comm, Element};

/// A send whose message travels in partitions, each when it is ready, and which can be repeated (MPI 4.1, chapter 4).
/// Made by [`Comm::psend_init`].
///
/// [`start`](Self::start) begins a round. Then each partition is written and marked as [ready](Part::ready) once, by
/// any threads and in any order; it travels at once, if the receiver has begun its round too. [`wait`](Self::wait) or
/// [`test`](Self::test) ends the round, when all partitions are marked and sent. The buffer is accessible between two
/// rounds.
///
/// A round that fails ends the pair of send and receive: each later `start` on either side fails too. Dropping one side
/// has the same effect. The memory of the dropped side is freed when no thread has a [`Part`] of it.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::Rank;
///
/// const CELLS: u64 = 7;
/// if comm.rank() == 0 {
///     let mut send = comm.psend_init(vec![0u64; 4000], 4, Rank(1), CELLS)?;
///     for step in 0..3 {
///         send.start()?;
///         std::thread::scope(|threads| {
///             for mut part in send.parts()? {
///                 threads.spawn(move || {
///                     part.fill(step);
///                     part.ready();
///                 });
///             }
///             Ok::<(), samite::Error>(())
///         })?;
///         send.wait()?;
///     }
/// } else {
///     // The receiver may cut the message differently.
///     let mut recv = comm.precv_init(vec![0u64; 4000], 2, Rank(0), CELLS)?;
///     for step in 0..3 {
///         recv.start()?;
///         while !recv.arrived(0..1)? {}
///         assert_eq!(recv.partition(0)?.unwrap(), [step; 2000]);
///         recv.wait()?;
///         assert_eq!(recv.buffer_mut()?, [step; 4000]);
///     }
/// }
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[must_use = "dropped, it ends the pair"]
pub struct PartitionedSend<T: Element>(Half<T>);

/// A receive whose message arrives in partitions, and which can be repeated (MPI 4.1, chapter 4). Made by
/// [`Comm::precv_init`].
///
/// [`start`](Self::start) begins a round. [`arrived`](Self::arrived) tests partitions, and
/// [`partition`](Self::partition) reads a partition that has arrived. [`wait`](Self::wait) or [`test`](Self::test) ends
/// the round, when all partitions have arrived. The buffer is accessible between two rounds.
///
/// A round that fails ends the pair of send and receive, as [`PartitionedSend`] describes. The partitions that had
/// arrived stay readable until the next [`start`](Self::start).
#[must_use = "dropped, it ends the pair"]
pub struct PartitionedRecv<T: Element>(Half<T>);

/// A partition of a [`PartitionedSend`] in one round, which one thread writes and marks as ready. If the `Part` is
/// dropped before it is marked, the partition can be taken again.
///
/// A `Part` may outlive its `PartitionedSend`. It may also outlive its round, if the round fails. While a `Part`
/// exists, no other round can begin.
///
/// A partition cannot be marked twice:
/// ```compile_fail,E0382
/// fn twice(part: samite::Part<u8>) {
///     part.ready();
///     part.ready();
/// }
/// ```
/// nor written after it was marked:
/// ```compile_fail,E0382
/// fn late(mut part: samite::Part<u8>) {
///     part.ready();
///     part.fill(0);
/// }
/// ```
#[must_use = "a partition that is never marked holds up its message"]
pub struct Part<T: Element> {
    memory: PartitionsMut,
    index: usize,
    runtime: Arc<Runtime<Transport>>,
    element: PhantomData<fn() -> T>,
}

/// One side of a pair.
struct Half<T: Element> {
    comm: Comm,
    id: PartitionedId,
    /// The buffer; `None` after the owner has taken it.
    memory: Option<Partitioned>,
    /// The request of the present round; `None` outside of rounds.
    round: Option<RequestId>,
    element: PhantomData<fn() -> T>,
}

impl Comm {
    /// Initializes a send of `buffer` in `partitions` equal partitions to rank `to`: see [`PartitionedSend`]. Sends no
    /// data yet, and does not wait.
    ///
    /// The sends and receives ([`precv_init`](Self::precv_init)) between two ranks with the same tag are paired in the
    /// order in which they are initialized: the first send with the first receive, and so on. A send or receive that
    /// has ended or was dropped before its partner was initialized still counts, unless it is a send that ended with
    /// [`Error::Exhausted`]: its receiver had no memory to note it. Partitioned messages never match other messages.
    /// Both buffers must have the same length in bytes, but their elements and partitions may differ.
    ///
    /// After the first call, each call of this process takes some nanoseconds longer, because it shares its lock with
    /// the threads that mark partitions.
    ///
    /// MPI: `MPI_Psend_init`.
    ///
    /// # Errors
    /// [`Error::UnevenPartitions`], [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Closed`],
    /// [`Error::Forked`]; returns the buffer.
    pub fn psend_init<T: Element>(
        &self,
        buffer: Vec<T>,
        partitions: usize,
        to: Rank,
        tag: u64,
    ) -> Result<PartitionedSend<T>, Failed<Vec<T>>> {
        let half = self.half(buffer, partitions, to, |engine, now, rank, bytes| {
            let signature =
                self.typed("psend_init", signature_of::<T>).map_or(Signature::BYTES, |typed| typed.signature);
            engine.psend_init(now, rank, self.context, tag, bytes, partitions, signature)
        });
        self.handle_result("psend_init", half).map(PartitionedSend)
    }

    /// Initializes a receive of a message from rank `from` into `buffer`, in `partitions` equal partitions: see
    /// [`PartitionedRecv`] and [`psend_init`](Self::psend_init). There are no wildcards.
    ///
    /// MPI: `MPI_Precv_init`.
    ///
    /// # Errors
    /// [`Error::UnevenPartitions`], [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Closed`],
    /// [`Error::Forked`]; returns the buffer.
    pub fn precv_init<T: Element>(
        &self,
        buffer: Vec<T>,
        partitions: usize,
        from: Rank,
        tag: u64,
    ) -> Result<PartitionedRecv<T>, Failed<Vec<T>>> {
        let half = self.half(buffer, partitions, from, |engine, now, rank, bytes| {
            let typed = self.typed("precv_init", signature_of::<T>);
            engine.precv_init(now, rank, self.context, tag, bytes, typed)
        });
        self.handle_result("precv_init", half).map(PartitionedRecv)
    }

    fn half<T: Element>(
        &self,
        buffer: Vec<T>,
        partitions: usize,
        partner: Rank,
        init: impl FnOnce(
            &mut Engine<Transport>,
            Time,
            WorldRank,
            usize,
        ) -> Result<PartitionedId, samite_p2p::Error>,
    ) -> Result<Half<T>, Failed<Vec<T>>> {
        let elements = buffer.len();
        let memory = Partitioned::new(buffer, partitions).map_err(|buffer| Failed {
            error: Error::UnevenPartitions { elements, partitions },
            buffer: Some(buffer),
        })?;
        let begin = || {
            let rank = self.world_rank(partner)?;
            self.runtime.share()?;
            let Some(mut call) = self.runtime.enter(&self.bounds) else { return Err(self.runtime.refused()) };
            call.start(|engine, now, _| init(engine, now, rank, memory.len())).map_err(Public::public)
        };
        match begin() {
            Ok(id) => {
                Ok(Half { comm: self.clone(), id, memory: Some(memory), round: None, element: PhantomData })
            }
            Err(error) => Err(Failed::new(self.local_error(error), memory.into_memory().ok())),
        }
    }
}

impl<T: Element> PartitionedSend<T> {
    /// Returns the number of partitions.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.0.partitions()
    }

    /// Begins a round. The time-out of the [`Comm`] applies to the round, from this call on. Does not wait.
    ///
    /// MPI: `MPI_Start`.
    ///
    /// # Errors
    /// [`Error::RoundActive`] if the previous round has not ended, or a [`Part`] of it exists. [`Error::Closed`],
    /// [`Error::Forked`]. Otherwise the error with which the pair has ended: [`Error::LengthsDiffer`],
    /// [`Error::Abandoned`], [`Error::Exhausted`], [`Error::PeerFailed`], or the error of the latest round.
    pub fn start(&mut self) -> Result<(), Error> {
        let started = self.0.start(|memory, half, engine, now, deadline| {
            engine.start_psend(now, half, memory.marked(), deadline)
        });
        self.0.comm.handle_result("PartitionedSend::start", started)
    }

    /// Takes a partition, to write it and mark it as ready. Several threads may call it at the same time.
    ///
    /// # Errors
    /// [`Error::Inactive`] outside of a round, [`Error::NoSuchPartition`], [`Error::PartitionTaken`].
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let mut send = comm.psend_init(vec![0u8; 6], 3, comm.rank(), 7)?;
    /// send.start()?;
    /// let mut part = send.part(2)?;
    /// part.copy_from_slice(&[1, 2]);
    /// assert!(matches!(send.part(2), Err(samite::Error::PartitionTaken { .. })));
    /// part.ready();
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn part(&self, index: usize) -> Result<Part<T>, Error> {
        let range = index..index.saturating_add(1);
        let memory = self.0.comm.handle_result("PartitionedSend::part", self.0.take(range))?;
        Ok(self.part_of(index, memory))
    }

    /// Takes all partitions that are neither marked nor taken.
    ///
    /// # Errors
    /// [`Error::Inactive`] outside of a round.
    pub fn parts(&self) -> Result<impl Iterator<Item = Part<T>> + '_, Error> {
        let memory = self.0.comm.handle_result("PartitionedSend::parts", self.0.active())?;
        let parts =
            (0..memory.partitions()).filter_map(|index| Some((index, memory.take(index..index + 1)?)));
        Ok(parts.map(|(index, memory)| self.part_of(index, memory)))
    }

    /// Marks all partitions of a range as ready, or none of them if one cannot be marked. Several threads may call it
    /// at the same time. Does not wait.
    ///
    /// MPI: `MPI_Pready`, `MPI_Pready_range`.
    ///
    /// # Errors
    /// [`Error::Inactive`] outside of a round, [`Error::NoSuchPartition`], [`Error::PartitionTaken`].
    pub fn ready(&self, range: Range<usize>) -> Result<(), Error> {
        self.0.comm.handle_result("PartitionedSend::ready", self.0.take(range))?.mark_all();
        self.0.comm.runtime.harvest();
        Ok(())
    }

    /// Waits until all partitions of the round are marked and sent.
    ///
    /// MPI: `MPI_Wait`.
    ///
    /// # Errors
    /// [`Error::Inactive`] outside of a round. [`Error::TimedOut`], [`Error::Cancelled`], [`Error::PeerFailed`],
    /// [`Error::Abandoned`] if the receiver gave up, [`Error::LengthsDiffer`], [`Error::Exhausted`]: these errors end
    /// the pair. The receiver may have received some of the partitions, but not all.
    pub fn wait(&mut self) -> Result<Status, Error> {
        let end = self.0.wait();
        self.0.comm.handle_result("PartitionedSend::wait", end)
    }

    /// Makes progress, and returns the result of the round if it has ended: see [`wait`](Self::wait).
    ///
    /// MPI: `MPI_Test`.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<Status, Error>> {
        let end = self.0.test()?;
        Some(self.0.comm.handle_result("PartitionedSend::test", end))
    }

    /// Returns a request for the round, which owns this send until the round ends and then returns it: see
    /// [`PersistentSend::into_request`](crate::PersistentSend::into_request). The partitions can be marked by
    /// [`Part`]s that were taken before, and by [`Request::operation`] and
    /// [`RequestSet::operation`](crate::RequestSet::operation). After an error the pair has ended, and `start` of the
    /// returned send fails.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{AnyBuffer, PartitionedSend, Rank};
    ///
    /// if comm.rank() == 0 {
    ///     let mut set = comm.request_set::<AnyBuffer>();
    ///     let mut send = comm.psend_init(vec![0u32; 40], 4, Rank(1), 7)?;
    ///     for step in 0..3 {
    ///         send.start()?;
    ///         let parts: Vec<_> = send.parts()?.collect();
    ///         let key = set.insert(send.into_request().into_any()).expect("a request of this world");
    ///         set.insert(comm.irecv(vec![0u8], Rank(1), 8)?.into_any()).expect("a request of this world");
    ///         for mut part in parts {
    ///             part.fill(step);
    ///             part.ready();
    ///         }
    ///         let mut back = None;
    ///         while let Some((ended, end)) = set.wait_any() {
    ///             let buffer = end?.buffer;
    ///             if ended == key {
    ///                 back = buffer.downcast::<PartitionedSend<u32>>().ok();
    ///             }
    ///         }
    ///         send = back.expect("the round has ended");
    ///     }
    /// } else {
    ///     let mut receive = comm.precv_init(vec![0u32; 40], 1, Rank(0), 7)?;
    ///     for step in 0..3 {
    ///         receive.start()?;
    ///         receive.wait()?;
    ///         assert_eq!(receive.buffer_mut()?, [step; 40]);
    ///         comm.send(&[step as u8], Rank(0), 8)?;
    ///     }
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn into_request(self) -> Request<Self> {
        Request::of_round(self.0.comm.clone(), self.0.round, Kept::new(self))
    }

    /// Cancels the round, and with it the pair; [`wait`](Self::wait) returns the result.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns the buffer, between two rounds.
    ///
    /// # Errors
    /// [`Error::RoundActive`] during a round, or while a [`Part`] exists.
    pub fn buffer_mut(&mut self) -> Result<&mut [T], Error> {
        self.0.buffer_mut("PartitionedSend::buffer_mut")
    }

    /// Returns the buffer, and ends the pair.
    ///
    /// # Errors
    /// Returns this send unchanged during a round, or while a [`Part`] exists.
    pub fn into_buffer(mut self) -> Result<Vec<T>, Self> {
        self.0.take_buffer().ok_or(self)
    }

    fn part_of(&self, index: usize, memory: PartitionsMut) -> Part<T> {
        Part { memory, index, runtime: Arc::clone(&self.0.comm.runtime), element: PhantomData }
    }
}

impl<T: Element> PartitionedRecv<T> {
    /// Returns the number of partitions.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.0.partitions()
    }

    /// Begins a round. The time-out of the [`Comm`] applies to the round, from this call on. Does not wait.
    ///
    /// MPI: `MPI_Start`.
    ///
    /// # Errors
    /// Returns the errors of [`PartitionedSend::start`].
    pub fn start(&mut self) -> Result<(), Error> {
        let started = self.0.start(|memory, half, engine, now, deadline| {
            let Some(all) = memory.take(0..memory.partitions()) else {
                unreachable!("a round begins with all partitions free")
            };
            engine.start_precv(now, half, all, deadline)
        });
        self.0.comm.handle_result("PartitionedRecv::start", started)
    }

    /// Returns true if all partitions of a range have arrived in the present round or, between two rounds, in the
    /// latest round. Makes progress if they have not. Several threads may call it at the same time.
    ///
    /// MPI: `MPI_Parrived`.
    ///
    /// # Errors
    /// [`Error::NoSuchPartition`]. If the partitions have not arrived and the pair has ended, the error of
    /// [`wait`](Self::wait), so that a loop that calls this until they arrive ends too.
    pub fn arrived(&self, range: Range<usize>) -> Result<bool, Error> {
        self.0.comm.handle_result("PartitionedRecv::arrived", self.have_arrived(range))
    }

    fn have_arrived(&self, range: Range<usize>) -> Result<bool, Error> {
        let memory = self.0.memory();
        self.0.check(&range)?;
        if memory.are_marked(range.clone()) {
            return Ok(true);
        }
        let runtime = &self.0.comm.runtime;
        if let Some(cancel) = &self.0.comm.bounds.cancel
            && cancel.is_cancelled()
        {
            self.0.cancel();
        }
        let end = runtime.look(|engine| engine.partitioned_end(self.0.id).map_or(Ok(()), Err));
        // The call above may have received the last partitions and then the end of the pair, so look at the partitions
        // first.
        match (memory.are_marked(range), end) {
            (true, _) => Ok(true),
            (false, end) => end.map(|()| false).map_err(|error| self.0.comm.local_error(error)),
        }
    }

    /// Returns the elements of a partition if it has arrived in the present round or, between two rounds, in the latest
    /// round. Returns `None` if it has not arrived. Makes no progress. Several threads may call it at the same time.
    ///
    /// # Errors
    /// [`Error::NoSuchPartition`].
    pub fn partition(&self, index: usize) -> Result<Option<&[T]>, Error> {
        let range = index..index.saturating_add(1);
        self.0.comm.handle_result("PartitionedRecv::partition", self.0.check(&range))?;
        Ok(self.0.memory().read(range))
    }

    /// Waits until all partitions of the round have arrived.
    ///
    /// MPI: `MPI_Wait`.
    ///
    /// # Errors
    /// [`Error::Inactive`] outside of a round. [`Error::TimedOut`], [`Error::Cancelled`], [`Error::PeerFailed`],
    /// [`Error::Abandoned`] if the sender gave up, [`Error::LengthsDiffer`]: these errors end the pair. The contents of
    /// partitions that have not arrived are undefined.
    pub fn wait(&mut self) -> Result<Status, Error> {
        let end = self.0.wait();
        self.0.comm.handle_result("PartitionedRecv::wait", end)
    }

    /// Makes progress, and returns the result of the round if it has ended: see [`wait`](Self::wait).
    ///
    /// MPI: `MPI_Test`.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<Status, Error>> {
        let end = self.0.test()?;
        Some(self.0.comm.handle_result("PartitionedRecv::test", end))
    }

    /// Returns a request for the round, which owns this receive until the round ends and then returns it: see
    /// [`PartitionedSend::into_request`]. During the round the partitions can be tested and read by
    /// [`Request::operation`] and [`RequestSet::operation`](crate::RequestSet::operation).
    pub fn into_request(self) -> Request<Self> {
        Request::of_round(self.0.comm.clone(), self.0.round, Kept::new(self))
    }

    /// Cancels the round, and with it the pair; [`wait`](Self::wait) returns the result.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns the buffer, between two rounds.
    ///
    /// # Errors
    /// [`Error::RoundActive`] during a round.
    ///
    /// The elements of a partition cannot be used beyond the round:
    /// ```compile_fail,E0502
    /// fn outlives(recv: &mut samite::PartitionedRecv<u8>) {
    ///     let part = recv.partition(0).unwrap().unwrap();
    ///     recv.wait().unwrap();
    ///     assert_eq!(part, [0]);
    /// }
    /// ```
    pub fn buffer_mut(&mut self) -> Result<&mut [T], Error> {
        self.0.buffer_mut("PartitionedRecv::buffer_mut")
    }

    /// Returns the buffer, and ends the pair.
    ///
    /// # Errors
    /// Returns this receive unchanged during a round.
    pub fn into_buffer(mut self) -> Result<Vec<T>, Self> {
        self.0.take_buffer().ok_or(self)
    }
}

impl<T: Element> Part<T> {
    /// Returns the number of the partition, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Marks the partition as ready. It is sent at once if its receiver has begun the round. Does not wait: if another
    /// thread is in a call of the library, that thread sends the partition when it leaves the call or pauses in it.
    ///
    /// MPI: `MPI_Pready`.
    pub fn ready(self) {
        let Self { memory, runtime, .. } = self;
        memory.mark_all();
        runtime.harvest();
    }
}

impl<T: Element> Deref for Part<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self.memory.as_slice() {
            Some(elements) => elements,
            None => unreachable!("the mark consumes the partition"),
        }
    }
}

impl<T: Element> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self.memory.as_mut_slice() {
            Some(elements) => elements,
            None => unreachable!("the mark consumes the partition"),
        }
    }
}

impl<T: Element> Half<T> {
    fn memory(&self) -> &Partitioned {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("the memory is taken with the value"),
        }
    }

    fn memory_mut(&mut self) -> &mut Partitioned {
        match &mut self.memory {
            Some(memory) => memory,
            None => unreachable!("the memory is taken with the value"),
        }
    }

    fn partitions(&self) -> usize {
        self.memory().partitions()
    }

    /// Returns the memory if a round is active, and an error otherwise.
    fn active(&self) -> Result<&Partitioned, Error> {
        self.round.map(|_| self.memory()).ok_or(Error::Inactive)
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Error> {
        let partitions = self.partitions();
        match range.start <= range.end && range.end <= partitions {
            true => Ok(()),
            false => Err(Error::NoSuchPartition { range: range.clone(), partitions }),
        }
    }

    fn take(&self, range: Range<usize>) -> Result<PartitionsMut, Error> {
        let memory = self.active()?;
        self.check(&range)?;
        memory.take(range.clone()).ok_or(Error::PartitionTaken { range })
    }

    fn start(
        &mut self,
        start: impl FnOnce(
            &Partitioned,
            PartitionedId,
            &mut Engine<Transport>,
            Time,
            Time,
        ) -> Result<RequestId, samite_p2p::Error>,
    ) -> Result<(), Error> {
        if self.round.is_some() || !self.memory_mut().begin() {
            return Err(Error::RoundActive);
        }
        let runtime = &self.comm.runtime;
        let Some(mut call) = runtime.enter(&self.comm.bounds) else { return Err(runtime.refused()) };
        let started =
            call.start(|engine, now, deadline| start(self.memory(), self.id, engine, now, deadline));
        drop(call);
        match started {
            Ok(round) => self.round = Some(round),
            Err(error) => return Err(self.comm.local_error(error.public())),
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Status, Error> {
        let round = self.round.ok_or(Error::Inactive)?;
        let end = self.comm.runtime.finish(round, &mut (), &self.comm.bounds);
        self.end_round(end)
    }

    /// Ends the round, whose request has ended with `completion`, and returns its result.
    fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
        self.round.take().ok_or(Error::Inactive)?;
        self.comm.local(completion.map_or(Err(Error::NoSuchRequest), |end| end.result))
    }

    fn test(&mut self) -> Option<Result<Status, Error>> {
        let Some(round) = self.round else { return Some(Err(Error::Inactive)) };
        match self.comm.runtime.test(round, &mut (), &self.comm.bounds) {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(end)) => Some(self.end_round(end)),
            // After this error the request cannot be tested again, so the round ends here, as in `wait`.
            Err(error) => {
                self.round = None;
                self.comm.runtime.forget(round);
                Some(Err(self.comm.local_error(error)))
            }
        }
    }

    fn cancel(&self) {
        if let Some(round) = self.round
            && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.start(|engine, _, _| engine.cancel(round));
        }
    }

    fn buffer_mut(&mut self, call: &'static str) -> Result<&mut [T], Error> {
        let Self { comm, memory, round, .. } = self;
        let Some(memory) = memory else { unreachable!("the memory is taken with the value") };
        let buffer = if round.is_some() { None } else { memory.as_mut_slice() };
        buffer.ok_or_else(|| comm.handle_world_error(call, Error::RoundActive))
    }

    fn take_buffer(&mut self) -> Option<Vec<T>> {
        if self.round.is_some() {
            return None;
        }
        match self.memory.take()?.into_memory() {
            Ok(memory) => memory.into_vec().ok(),
            Err(memory) => {
                self.memory = Some(memory);
                None
            }
        }
    }
}

impl<T: Element> Operation for PartitionedSend<T> {
    fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
        self.0.end_round(completion)
    }
}

impl<T: Element> Operation for PartitionedRecv<T> {
    fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error> {
        self.0.end_round(completion)
    }
}

returned!(PartitionedSend<T: Element>);
returned!(PartitionedRecv<T: Element>);

impl<T: Element> Drop for Half<T> {
    fn drop(&mut self) {
        self.comm.runtime.free_partitioned(self.id, self.round);
    }
}

impl<T: Element> fmt::Debug for Half<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitioned")
            .field("partitions", &self.memory.as_ref().map_or(0, Partitioned::partitions))
            .field("is_active", &self.round.is_some())
            .finish_non_exhaustive()
    }
}

impl<T: Element> fmt::Debug for PartitionedSend<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Element> fmt::Debug for PartitionedRecv<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Element> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("index", &self.index).finish_non_exhaustive()
    }
}
