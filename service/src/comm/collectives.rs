//! Collective operations.

use std::panic::Location;
use std::sync::Arc;

use samite_coll::algorithms::between::Between;
use samite_coll::algorithms::hosts::Hosts;
use samite_coll::{Blocks, BorrowedBuffers, Check, Place, Plan, Selection, Situation, Table};
use zerocopy::{FromBytes, IntoBytes};

use super::between::{Part, used, used_mut};
use super::nonblocking::{Lens, present};
use super::{Called, Comm, Types};
use crate::element::Element;
use crate::error::Error;
use crate::reduction::ReduceOp;
use crate::runtime::{Operation, Reserved};
use crate::select::Root;
use crate::transport::Transport;

/// Collective operations (MPI 4.1, chapter 6).
///
/// All ranks of the communicator make the same calls in the same order, with the same root, lengths and operation. A
/// call returns when this rank has done its part and its slices may be used again. The other ranks may make the call
/// later. But if each rank needs data of all ranks, and in [`barrier`](Self::barrier), a call returns only after all
/// ranks have called. Messages of collective operations match no receive of the program.
///
/// On an intercommunicator the two groups exchange data: each rank gets the data of the other group, or a rank of one
/// group is the [`Root`] and exchanges data with the ranks of the other group (MPI 4.1, section 6.2.3). The blocks
/// belong to the ranks of the other group. Calls in place, scans and neighbourhood calls need a communicator of one
/// group.
///
/// A slice of a wrong length and an invalid root are errors at the rank that passes them. This rank then sends nothing.
/// If the ranks do not agree, some of them may wait for ever, or until their time-out. The time-out and the cancel of
/// the handle bound each call. A call that has failed at one rank may have succeeded at others.
/// [`barrier`](Self::barrier) lists the errors, which are the same for all calls.
impl Comm {
    /// Waits until all ranks have called it (`MPI_Barrier`).
    ///
    /// # Errors
    /// Every collective call can return these errors:
    ///
    /// * [`Error::PeerFailed`]: a rank of the communicator has failed, or has left although this rank needed its part,
    ///   and this rank had not finished. After a failure each later collective call on the communicator fails too, on
    ///   the world's communicator also if the failed rank was restarted. Create a communicator of the living ranks by
    ///   [`create_from_group`](Self::create_from_group). If the rank was restarted, you can also duplicate the world's
    ///   communicator.
    /// * [`Error::TimedOut`], [`Error::Cancelled`]: the bounds of this handle have ended the call. The content of the
    ///   slices for results is undefined.
    /// * [`Error::Abandoned`]: the named rank has given up the call, by a time-out, a cancel, an error or a panic, and
    ///   this rank needed the part of that rank.
    /// * [`Error::LengthsDiffer`]: another rank has passed another length.
    /// * [`Error::CallsDiffer`]: the ranks have made different calls. Only the check
    ///   [`Collectives`](crate::Check::Collectives) finds this.
    /// * [`Error::WrongLength`], [`Error::InvalidRank`], [`Error::NeedsOneGroup`], [`Error::NeedsTwoGroups`]: misuse at
    ///   this rank.
    /// * [`Error::Exhausted`]: there is no memory for intermediate data.
    /// * [`Error::Closed`], [`Error::Forked`], [`Error::Condemned`], [`Error::Transport`].
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// # static ARRIVED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    /// ARRIVED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    /// comm.barrier()?;
    /// assert_eq!(ARRIVED.load(std::sync::atomic::Ordering::Relaxed), 3);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        self.collective::<u8>("barrier", || Ok(self.barrier_plan()), &[], &mut [])
    }

    pub(super) fn barrier_plan(&self) -> Plan {
        self.table().barrier(&self.situation::<u8>(0, true)).plan(self.hosts(), Plan::Barrier)
    }

    /// Sends the elements of `root` to all ranks (`MPI_Bcast`). At the other ranks these elements replace the content
    /// of `buffer`.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut numbers = if comm.rank() == 1 { [1, 2, 3] } else { [0; 3] };
    /// comm.bcast(&mut numbers, samite::Rank(1))?;
    /// assert_eq!(numbers, [1, 2, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn bcast<T: Element>(&self, buffer: &mut [T], root: impl Into<Root>) -> Result<(), Error> {
        let root = root.into();
        let buffer = if root == Root::Beside { &mut [] } else { buffer };
        let len = buffer.len();
        self.collective("bcast", || self.bcast_plan::<T>(len, root), &[], buffer)
    }

    pub(super) fn bcast_plan<T: Element>(&self, len: usize, root: Root) -> Result<Plan, Error> {
        if let Some(groups) = self.groups() {
            return self.bcast_between::<T>(&groups, len, root);
        }
        let root = self.root(root)?;
        let choice = self.table().bcast(&self.situation::<T>(len, true));
        Ok(choice.plan(self.hosts(), |algorithm| Plan::Bcast { algorithm, root, len }))
    }

    /// Collects the elements of all ranks at `root`, in the order of ranks (`MPI_Gather`). All ranks pass the same
    /// number of elements as `input`. At the root, `output` has room for this number of elements from each rank. At the
    /// other ranks `output` is not used, and may be empty.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut ranks = if comm.rank() == 0 { vec![9; 3] } else { vec![] };
    /// comm.gather(&[comm.rank().0], &mut ranks, samite::Rank(0))?;
    /// assert!(comm.rank() != 0 || ranks == [0, 1, 2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn gather<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        root: impl Into<Root>,
    ) -> Result<(), Error> {
        let root = root.into();
        let Part { contributes, is_root } = self.part(root);
        let (input, output) = (used(input, contributes), used_mut(output, is_root));
        let len = if contributes { input.len() } else { output.len() / self.others() };
        self.collective("gather", || self.gather_plan::<T>(root, len, false), input, output)
    }

    /// Takes the part of the root in a [`gather`](Self::gather). The root's own elements are already in their place in
    /// `buffer` (`MPI_Gather` with `MPI_IN_PLACE`). The other ranks call `gather`, with this rank as the root.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// if comm.rank() == 2 {
    ///     let mut ranks = [9, 9, 2];
    ///     comm.gather_in_place(&mut ranks)?;
    ///     assert_eq!(ranks, [0, 1, 2]);
    /// } else {
    ///     comm.gather(&[comm.rank().0], &mut [], samite::Rank(2))?;
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn gather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<(), Error> {
        let len = buffer.len() / self.size() as usize;
        self.collective(
            "gather_in_place",
            || self.gather_plan::<T>(self.rank().into(), len, true),
            &[],
            buffer,
        )
    }

    pub(super) fn gather_plan<T: Element>(
        &self,
        root: Root,
        len: usize,
        in_place: bool,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(in_place)? {
            return self.gather_between::<T>(&groups, len, root);
        }
        let algorithm = self.table().gather(&self.situation::<T>(len, true)).algorithm;
        Ok(Plan::Gather { algorithm, root: self.root(root)?, blocks: Blocks::Equal(len), len, in_place })
    }

    /// Distributes the elements of `root` to all ranks in equal blocks, in the order of ranks (`MPI_Scatter`). All
    /// ranks pass the same number of elements as `output`. At the root, `input` has this number of elements for each
    /// rank. At the other ranks `input` is not used, and may be empty.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let input: &[i32] = if comm.rank() == 0 { &[10, 11, 12] } else { &[] };
    /// let mut mine = [0];
    /// comm.scatter(input, &mut mine, samite::Rank(0))?;
    /// assert_eq!(mine, [10 + comm.rank().0 as i32]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        root: impl Into<Root>,
    ) -> Result<(), Error> {
        let root = root.into();
        let Part { contributes: gets, is_root } = self.part(root);
        let (input, output) = (used(input, is_root), used_mut(output, gets));
        let len = if gets { output.len() } else { input.len() / self.others() };
        self.collective("scatter", || self.scatter_plan::<T>(root, len, false), input, output)
    }

    /// Takes the part of the root in a [`scatter`](Self::scatter) and leaves the root's own elements where they are
    /// (`MPI_Scatter` with `MPI_IN_PLACE`). The other ranks call `scatter`, with this rank as the root.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut mine = [10];
    /// match comm.rank().0 {
    ///     0 => comm.scatter_in_place(&[10, 11, 12])?,
    ///     _ => comm.scatter(&[], &mut mine, samite::Rank(0))?,
    /// }
    /// assert_eq!(mine, [10 + comm.rank().0]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scatter_in_place<T: Element>(&self, input: &[T]) -> Result<(), Error> {
        let len = input.len() / self.size() as usize;
        self.collective(
            "scatter_in_place",
            || self.scatter_plan::<T>(self.rank().into(), len, true),
            input,
            &mut [],
        )
    }

    pub(super) fn scatter_plan<T: Element>(
        &self,
        root: Root,
        len: usize,
        in_place: bool,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(in_place)? {
            return self.scatter_between::<T>(&groups, len, root);
        }
        let algorithm = self.table().scatter(&self.situation::<T>(len, true)).algorithm;
        Ok(Plan::Scatter { algorithm, root: self.root(root)?, blocks: Blocks::Equal(len), len, in_place })
    }

    /// Collects the elements of all ranks at each rank, in the order of ranks (`MPI_Allgather`). All ranks pass the
    /// same number of elements as `input`, and `output` has room for this number of elements from each rank.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut squares = [0; 3];
    /// comm.allgather(&[comm.rank().0 * comm.rank().0], &mut squares)?;
    /// assert_eq!(squares, [0, 1, 4]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let lens = [Some(input.len()), Some(output.len())];
        self.collective("allgather", || self.allgather_plan::<T>("allgather", lens), input, output)
    }

    /// Collects elements as [`allgather`](Self::allgather) does. This rank's elements are already in their place in
    /// `buffer` (`MPI_IN_PLACE`). All ranks call this form.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut ranks = [9; 3];
    /// ranks[comm.rank().0 as usize] = comm.rank().0;
    /// comm.allgather_in_place(&mut ranks)?;
    /// assert_eq!(ranks, [0, 1, 2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allgather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<(), Error> {
        let (call, lens) = ("allgather_in_place", [None, Some(buffer.len())]);
        self.collective(call, || self.allgather_plan::<T>(call, lens), &[], buffer)
    }

    /// Returns the plan of an allgather with these lengths of the input and the output.
    pub(super) fn allgather_plan<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
    ) -> Result<Plan, Error> {
        let output = present(call, output)?;
        if let Some(groups) = self.groups_unless(input.is_none())? {
            return Ok(self.allgather_between::<T>(&groups, input.unwrap_or(0), output));
        }
        let len = input.unwrap_or(output / self.size() as usize);
        let all = len.saturating_mul(self.size() as usize);
        let choice = self.table().allgather(&self.situation::<T>(all, true));
        let (blocks, in_place) = (Blocks::Equal(len), input.is_none());
        Ok(choice.plan(self.hosts(), |algorithm| Plan::Allgather { algorithm, blocks, in_place }))
    }

    /// Sends a block of `input` to each rank, and receives a block from each rank into `output`, both in the order of
    /// ranks (`MPI_Alltoall`). All blocks have the same length.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let rank = comm.rank().0;
    /// let mut received = [0; 3];
    /// comm.alltoall(&[10 * rank, 10 * rank + 1, 10 * rank + 2], &mut received)?;
    /// assert_eq!(received, [rank, 10 + rank, 20 + rank]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let lens = [Some(input.len()), Some(output.len())];
        self.collective("alltoall", || self.alltoall_plan::<T>("alltoall", lens), input, output)
    }

    /// Exchanges blocks as [`alltoall`](Self::alltoall) does. The received blocks replace the sent ones
    /// (`MPI_IN_PLACE`). All ranks call this form.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let mut blocks = [comm.rank().0; 2];
    /// comm.alltoall_in_place(&mut blocks)?;
    /// assert_eq!(blocks, [0, 1]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoall_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<(), Error> {
        let (call, lens) = ("alltoall_in_place", [None, Some(buffer.len())]);
        self.collective(call, || self.alltoall_plan::<T>(call, lens), &[], buffer)
    }

    /// Returns the plan of an exchange with these lengths of the input and the output.
    pub(super) fn alltoall_plan<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
    ) -> Result<Plan, Error> {
        let output = present(call, output)?;
        if let Some(groups) = self.groups_unless(input.is_none())? {
            let [sent, received] = [input.unwrap_or(0), output].map(|len| len / self.others());
            let block = |len| move |rank: u32| rank as usize * len..(rank as usize + 1) * len;
            return Ok(groups.all_pairs(block(sent), block(received)));
        }
        let len = input.unwrap_or(output) / self.size() as usize;
        let algorithm = self.table().alltoall(&self.situation::<T>(len, true)).algorithm;
        let (from, into) = (Blocks::Equal(len), Blocks::Equal(len));
        Ok(Plan::Alltoall { algorithm, from, into, in_place: input.is_none() })
    }

    /// Combines by `op` the elements of all ranks that have the same index, and returns the results at `root`
    /// (`MPI_Reduce`). At the root, `output` has the length of `input`. At the other ranks `output` is not used, and
    /// may be empty.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Max;
    ///
    /// let mut largest = [0.0; 2];
    /// comm.reduce(&[f64::from(comm.rank().0), -1.5], &mut largest, Max, samite::Rank(0))?;
    /// assert!(comm.rank() != 0 || largest == [2.0, -1.5]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl ReduceOp<T>,
        root: impl Into<Root>,
    ) -> Result<(), Error> {
        let root = root.into();
        let Part { contributes, is_root } = self.part(root);
        let (input, output) = (used(input, contributes), used_mut(output, is_root));
        let len = if contributes { input.len() } else { output.len() };
        let commutes = op.commutes();
        let plan = || self.reduce_plan::<T>(root, len, commutes, false);
        self.reducing("reduce", plan, input, output, &op)
    }

    /// Takes the part of the root in a [`reduce`](Self::reduce). The root's own elements are in `buffer`, and the
    /// results replace them (`MPI_Reduce` with `MPI_IN_PLACE`). The other ranks call `reduce`, with this rank as the
    /// root.
    ///
    /// # Panics
    /// If `op` panics.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut sum = [10];
    /// match comm.rank().0 {
    ///     0 => comm.reduce_in_place(&mut sum, Sum)?,
    ///     rank => comm.reduce(&[rank], &mut [], Sum, samite::Rank(0))?,
    /// }
    /// assert!(comm.rank() != 0 || sum == [13]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let (len, commutes) = (buffer.len(), op.commutes());
        let plan = || self.reduce_plan::<T>(self.rank().into(), len, commutes, true);
        self.reducing("reduce_in_place", plan, &[], buffer, &op)
    }

    pub(super) fn reduce_plan<T: Element>(
        &self,
        root: Root,
        len: usize,
        commutes: bool,
        in_place: bool,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(in_place)? {
            return self.reduce_between(&groups, root, len, commutes);
        }
        let root = self.root(root)?;
        let choice = self.table().reduce(&self.situation::<T>(len, commutes));
        Ok(choice.plan(self.hosts(), |algorithm| Plan::Reduce { algorithm, root, len, commutes, in_place }))
    }

    /// Combines by `op` the elements of all ranks that have the same index, and returns the results at all ranks
    /// (`MPI_Allreduce`). All ranks get the same bits.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut total = [0.0];
    /// comm.allreduce(&[1.5], &mut total, Sum)?;
    /// assert_eq!(total, [4.5]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allreduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (len, commutes) = (input.len(), op.commutes());
        let plan = || self.allreduce_plan::<T>(len, commutes, false);
        self.reducing("allreduce", plan, input, output, &op)
    }

    /// Combines elements as [`allreduce`](Self::allreduce) does. The results replace the elements (`MPI_IN_PLACE`).
    ///
    /// # Panics
    /// If `op` panics.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::{LocatedF64, MinLocation};
    ///
    /// let rank = comm.rank().0;
    /// let mut smallest = [LocatedF64 { value: [2.5, 0.5, 1.5][rank as usize], location: rank.into() }];
    /// comm.allreduce_in_place(&mut smallest, MinLocation)?;
    /// assert_eq!(smallest, [LocatedF64 { value: 0.5, location: 1 }]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allreduce_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (len, commutes) = (buffer.len(), op.commutes());
        let plan = || self.allreduce_plan::<T>(len, commutes, true);
        self.reducing("allreduce_in_place", plan, &[], buffer, &op)
    }

    pub(super) fn allreduce_plan<T: Element>(
        &self,
        len: usize,
        commutes: bool,
        in_place: bool,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(in_place)? {
            let bcast = self.table().bcast(&self.situation::<T>(len, true)).algorithm;
            return Ok(groups.allreduce(len, commutes, bcast));
        }
        let choice = self.table().allreduce(&self.situation::<T>(len, commutes));
        Ok(choice.plan(self.hosts(), |algorithm| Plan::Allreduce { algorithm, len, commutes, in_place }))
    }

    /// Combines by `op` the elements of all ranks that have the same index, and distributes the results to all ranks in
    /// equal blocks (`MPI_Reduce_scatter_block`). `input` has as many elements for each rank as `output`.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut mine = [0];
    /// comm.reduce_scatter(&[1, 10, 100], &mut mine, Sum)?;
    /// assert_eq!(mine, [[3, 30, 300][comm.rank().0 as usize]]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (len, commutes) = (output.len(), op.commutes());
        let plan = || self.reduce_scatter_plan::<T>(len, commutes, false);
        self.reducing("reduce_scatter", plan, input, output, &op)
    }

    /// Combines elements as [`reduce_scatter`](Self::reduce_scatter) does. This rank's results replace the first
    /// elements of `buffer` (`MPI_IN_PLACE`), and the values of the other elements are unspecified afterwards.
    ///
    /// # Panics
    /// If `op` panics.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Product;
    ///
    /// let mut buffer = [2, 3];
    /// comm.reduce_scatter_in_place(&mut buffer, Product)?;
    /// assert_eq!(buffer[0], if comm.rank() == 0 { 4 } else { 9 });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (len, commutes) = (buffer.len() / self.size() as usize, op.commutes());
        let plan = || self.reduce_scatter_plan::<T>(len, commutes, true);
        self.reducing("reduce_scatter_in_place", plan, &[], buffer, &op)
    }

    pub(super) fn reduce_scatter_plan<T: Element>(
        &self,
        len: usize,
        commutes: bool,
        in_place: bool,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(in_place)? {
            return Ok(self.reduce_scatter_between::<T>(&groups, Blocks::Equal(len), commutes));
        }
        let all = len.saturating_mul(self.size() as usize);
        let algorithm = self.table().reduce_scatter(&self.situation::<T>(all, commutes)).algorithm;
        Ok(Plan::ReduceScatter { algorithm, blocks: Blocks::Equal(len), commutes, in_place })
    }

    /// Combines by `op` the elements with the same index of the ranks from 0 up to and including this rank
    /// (`MPI_Scan`).
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut sum = [0];
    /// comm.scan(&[comm.rank().0 + 1], &mut sum, Sum)?;
    /// assert_eq!(sum, [[1, 3, 6][comm.rank().0 as usize]]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scan<T: Element>(&self, input: &[T], output: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let len = input.len();
        self.reducing("scan", || self.prefix_plan(SCAN, len, false), input, output, &op)
    }

    /// Combines elements as [`scan`](Self::scan) does. The results replace the elements (`MPI_IN_PLACE`).
    ///
    /// # Panics
    /// If `op` panics.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::in_rank_order;
    ///
    /// // Each rank has a 3 x 3 permutation. The result is the composition of those up to this rank.
    /// let compose = in_rank_order(|from: &[[u8; 3]], into: &mut [[u8; 3]]| {
    ///     for (first, then) in from.iter().zip(into) {
    ///         *then = first.map(|place| then[place as usize]);
    ///     }
    /// });
    /// let mut permutation = [[[1, 2, 0], [1, 0, 2], [2, 1, 0]][comm.rank().0 as usize]];
    /// comm.scan_in_place(&mut permutation, compose)?;
    /// assert_eq!(permutation, [[[1, 2, 0], [0, 2, 1], [2, 0, 1]][comm.rank().0 as usize]]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scan_in_place<T: Element>(&self, buffer: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let len = buffer.len();
        self.reducing("scan_in_place", || self.prefix_plan(SCAN, len, true), &[], buffer, &op)
    }

    /// Combines by `op` the elements with the same index of the ranks before this rank (`MPI_Exscan`). At rank 0
    /// `output` keeps its elements.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// // Each rank has some elements of one list. The result is the index of its first element in the list.
    /// let mut first = [0];
    /// comm.exscan(&[comm.rank().0 + 1], &mut first, Sum)?;
    /// assert_eq!(first, [[0, 1, 3][comm.rank().0 as usize]]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn exscan<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let len = input.len();
        self.reducing("exscan", || self.prefix_plan(EXSCAN, len, false), input, output, &op)
    }

    /// Combines elements as [`exscan`](Self::exscan) does. The results replace the elements (`MPI_IN_PLACE`), except at
    /// rank 0.
    ///
    /// # Panics
    /// If `op` panics.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut product = [comm.rank().0 + 2];
    /// comm.exscan_in_place(&mut product, samite::reduction::Product)?;
    /// assert_eq!(product, [[2, 2, 6][comm.rank().0 as usize]]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn exscan_in_place<T: Element>(&self, buffer: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let len = buffer.len();
        self.reducing("exscan_in_place", || self.prefix_plan(EXSCAN, len, true), &[], buffer, &op)
    }

    /// Returns the plan of a scan or an exscan.
    pub(super) fn prefix_plan(&self, prefix: Prefix, len: usize, in_place: bool) -> Result<Plan, Error> {
        self.check_one_group()?;
        Ok(prefix(len, in_place))
    }

    /// Returns the same communicator with a selection of algorithms for its collective calls: a list like
    /// `allreduce=ring,bcast=chain:65536`, which overrides the selection of
    /// [`Settings::set_coll_algorithms`](crate::Settings::set_coll_algorithms). To select the algorithm of one call,
    /// make that call on the returned handle. All ranks need the same selection. If a selected algorithm cannot carry
    /// out a call, Samite chooses the algorithm as usual.
    ///
    /// `samite info --parameters` lists the names, and `samite info --collectives` the choices.
    ///
    /// # Errors
    /// [`Error::NoSuchAlgorithm`].
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut sum = [1.5; 100];
    /// comm.with_coll_algorithms("allreduce=ring")?.allreduce_in_place(&mut sum, Sum)?;
    /// assert_eq!(sum, [4.5; 100]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn with_coll_algorithms(&self, selection: &str) -> Result<Self, Error> {
        let Some(selected) = Selection::parse(selection) else {
            let error = Error::NoSuchAlgorithm { selection: selection.to_owned() };
            return Err(self.handle_error("with_coll_algorithms", error));
        };
        let table = self.table();
        let selection = selected.or(&table.selection);
        let table = Arc::new(Table { selection, ..table.clone() });
        Ok(self.with_extras(|extras| extras.table = Some(table)))
    }

    /// Returns the table by which the calls choose their algorithms.
    pub(super) fn table(&self) -> &Table {
        let of_handle = self.extras.as_ref().and_then(|extras| extras.table.as_deref());
        of_handle.unwrap_or(&self.runtime.table)
    }

    /// Returns the number of the root of a call on a communicator of one group, or an error if it is not a rank of the
    /// communicator.
    pub(super) fn root(&self, root: Root) -> Result<u32, Error> {
        let Root::Rank(root) = root else { return Err(Error::NeedsTwoGroups) };
        self.check_rank(root).map(|()| root.0)
    }

    /// Returns the arguments on which the choice of an algorithm depends, for elements of type `T`.
    pub(super) fn situation<T: Element>(&self, elements: usize, commutes: bool) -> Situation {
        let bytes = elements.saturating_mul(size_of::<T>());
        let has_one_group = self.remote_size().is_none();
        let situation = Situation { ranks: self.size(), bytes, elements, commutes, ..Situation::default() };
        match self.hosts() {
            Some(hosts) => Situation {
                has_board: true,
                hosts: hosts.count(),
                has_even_hosts: hosts.is_even(),
                ..situation
            },
            None => Situation {
                has_board: has_one_group && self.runtime.shares_board(self.derived.as_deref()),
                ..situation
            },
        }
    }

    /// Returns the hosts of the ranks if operations have two levels.
    #[inline]
    fn hosts(&self) -> Option<&Arc<Hosts>> {
        self.remote_size().is_none().then(|| self.runtime.hosts(self.derived.as_deref())).flatten()
    }

    /// Carries out a collective operation with a reduction.
    #[track_caller]
    pub(super) fn reducing<T: Element>(
        &self,
        call: &'static str,
        plan: impl Fn() -> Result<Plan, Error>,
        input: &[T],
        output: &mut [T],
        op: &impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let reduce = |from: &[u8], into: &mut [u8]| reduce_bytes(op, from, into);
        let called = Called { call, types: Types::reducing::<T, _>(op), site: Location::caller() };
        let result = self.try_collective(called, plan, input, output, &reduce);
        self.handle_result(call, result)
    }

    /// Carries out a collective operation without a reduction.
    #[track_caller]
    pub(super) fn collective<T: Element>(
        &self,
        call: &'static str,
        plan: impl Fn() -> Result<Plan, Error>,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        let reduce = |_: &[u8], _: &mut [u8]| unreachable!("the operation has no reduction");
        let called = Called { call, types: Types::of::<T>(), site: Location::caller() };
        let result = self.try_collective(called, plan, input, output, &reduce);
        self.handle_result(call, result)
    }

    fn try_collective<T: Element>(
        &self,
        called: Called,
        choose: impl Fn() -> Result<Plan, Error>,
        input: &[T],
        output: &mut [T],
        reduce: &dyn Fn(&[u8], &mut [u8]),
    ) -> Result<(), Error> {
        let (lens, at) = ([input.len(), output.len()], self.place());
        let has_board = self.has_board();
        let mut plan = checked_plan(called.call, &choose, lens, at)?;
        let (mut reserved, mut settled) = (None, Ok(()));
        if self.must_settle(plan.synchronizes()) {
            let number = self.runtime.reserve(self.derived.as_deref(), self.control())?;
            settled = self.settle(&number, self.check_before_settling(called, &plan));
            reserved = Some(number);
            // The board may permit another algorithm.
            plan = checked_plan(called.call, &choose, lens, at)?;
        } else if has_board != self.has_board() {
            // Another thread has learned of the board since the algorithm was chosen. The other members may know it too,
            // and all of them must choose alike.
            plan = checked_plan(called.call, &choose, lens, at)?;
        }
        // The calls were compared before, if the number was reserved.
        let check = if reserved.is_some() { None } else { self.check_of(called, &plan) };
        let mut short = [0_u128; SHORT];
        let elements = plan.scratch(at);
        let mut long;
        let scratch = match short.as_mut_bytes().get_mut(..elements.saturating_mul(size_of::<T>())) {
            Some(short) if align_of::<T>() <= align_of::<u128>() => short,
            _ => {
                long = scratch::<T>(elements)?;
                long.as_mut_bytes()
            }
        };
        let buffers = BorrowedBuffers {
            input: input.as_bytes(),
            output: output.as_mut_bytes(),
            scratch,
            reduce,
            layouts: None,
        };
        let number = reserved.as_ref();
        let operation = self.operation(&plan, size_of::<T>(), buffers, check, number);
        let derived = self.derived.as_deref();
        let result = match settled {
            Ok(()) => self.runtime.collective(derived, operation, &self.bounds),
            // All members have this error.
            Err(error @ Error::CallsDiffer { .. }) => Err(error),
            Err(error) => Err(self.runtime.give_up_collective(derived, operation, error)),
        };
        result.map_err(|error| self.local_error(error))
    }

    /// Returns an operation on this communicator. `reserved` is its number if it was reserved.
    #[inline(always)]
    pub(crate) fn operation<'a, B>(
        &self,
        plan: &'a Plan,
        element: usize,
        buffers: B,
        check: Option<Check>,
        reserved: Option<&Reserved<'_, Transport>>,
    ) -> Operation<'a, B> {
        let (group, context, number) = (self.participants(), self.control(), reserved.map(Reserved::number));
        Operation { plan, group, context, element, buffers, check, number }
    }

    /// Returns true if a call must first learn if the members share a board. `synchronizes` is true if each member
    /// needs data of all others in the call.
    fn must_settle(&self, synchronizes: bool) -> bool {
        self.remote_size().is_none()
            && self.runtime.must_settle_board(self.derived.as_deref(), self.size(), synchronizes)
    }

    /// Returns true if the members share boards, so that an algorithm on them may be chosen.
    fn has_board(&self) -> bool {
        self.runtime.has_board(self.derived.as_deref())
    }

    /// Learns if the members share a board while it is being created. Gives up the creation if that is possible.
    /// Otherwise all members take part, and the result comes soon. Call it before the algorithm of a nonblocking or
    /// persistent operation is chosen.
    pub(super) fn await_board(&self) -> Result<(), Error> {
        if !self.must_settle(false) {
            return Ok(());
        }
        let (derived, bounds) = (self.derived.as_deref(), &self.bounds);
        self.runtime.decline_board(derived, &self.participants(), self.control());
        if !self.must_settle(false) {
            return Ok(());
        }
        let settled = self.runtime.settle_board(derived, &self.participants(), self.control(), None, bounds);
        settled.map_err(|error| self.local_error(error))
    }

    /// Learns if the members share a board, before the operation with a reserved number. First compares the calls, if
    /// they are checked: calls that do not match would not all take part in the creation of a board.
    #[cold]
    fn settle(&self, reserved: &Reserved<'_, Transport>, check: Option<Check>) -> Result<(), Error> {
        let (derived, bounds) = (self.derived.as_deref(), &self.bounds);
        let (group, context) = (self.participants(), self.control());
        if check.is_some() {
            let reduce = |_: &[u8], _: &mut [u8]| unreachable!("the operation has no reduction");
            let (input, output, scratch) = (&[][..], &mut [][..], &mut [][..]);
            let buffers = BorrowedBuffers { input, output, scratch, reduce: &reduce, layouts: None };
            let nothing = Between::nothing();
            let comparison = self.operation(&nothing, 1, buffers, check, Some(reserved));
            let compared = self.runtime.collective(derived, comparison, bounds);
            if let Err(error) = compared {
                if !matches!(error, Error::CallsDiffer { .. }) {
                    self.runtime.decline_board(derived, &group, context);
                }
                return Err(error);
            }
        }
        self.runtime.settle_board(derived, &group, context, Some(reserved), bounds)
    }
}

/// Checks a plan against the lengths of the input and the output of the rank at a place.
#[inline]
pub(super) fn checked_plan(
    call: &'static str,
    plan: impl FnOnce() -> Result<Plan, Error>,
    [input, output]: [usize; 2],
    at: Place,
) -> Result<Plan, Error> {
    let plan = plan()?;
    for (what, len, expected) in [("input", input, plan.input(at)), ("output", output, plan.output(at))] {
        if len != expected {
            return Err(Error::WrongLength { call, what, len, expected });
        }
    }
    Ok(plan)
}

/// Allocates the memory for intermediate data.
pub(super) fn scratch<T: Element>(elements: usize) -> Result<Vec<T>, Error> {
    T::new_vec_zeroed(elements).map_err(|_| Error::Exhausted {
        what: "memory for the intermediate data of a collective call",
        hint: "call it for parts of the data, one after the other".into(),
    })
}

/// The number of units of 16 bytes of intermediate data for which a blocking call allocates no memory.
const SHORT: usize = 16;

/// [`Plan::Scan`] or [`Plan::Exscan`] of a number of elements, which may be in place.
pub(super) type Prefix = fn(usize, bool) -> Plan;
pub(super) const SCAN: Prefix = |len, in_place| Plan::Scan { len, in_place };
pub(super) const EXSCAN: Prefix = |len, in_place| Plan::Exscan { len, in_place };

/// Reduces the elements of two spans of bytes.
pub(super) fn reduce_bytes<T: Element>(op: &impl ReduceOp<T>, from: &[u8], into: &mut [u8]) {
    let from = <[T]>::ref_from_bytes(from).expect("a span has whole elements in their place");
    let into = <[T]>::mut_from_bytes(into).expect("a span has whole elements in their place");
    op.reduce(from, into);
}
