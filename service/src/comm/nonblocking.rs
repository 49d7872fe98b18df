//! Nonblocking and persistent collective operations.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use samite_coll::{OwnedBuffers, Plan, Reduction};
use samite_fabric::Memory;

use super::between::{Part, used as slice_if};
use super::blocks::end_of;
use super::collectives::{EXSCAN, Prefix, SCAN, checked_plan, reduce_bytes, scratch};
use super::neighbours::used;
use super::{Called, Comm, Types};
use crate::buffer::Held;
use crate::collective::{CollectiveInput, CollectiveOutput, PersistentCollective, Prepared, Started};
use crate::element::Element;
use crate::error::Error;
use crate::reduction::ReduceOp;
use crate::request::{Failed, Request};
use crate::runtime::no_reduction;
use crate::select::Root;
use crate::topology::Neighbourhood;

/// Defines the nonblocking and the persistent form of blocking calls that have an input and an output. `$prepare`
/// checks the arguments.
macro_rules! calls {
    ($(
        $blocking:ident: $call:ident ($nonblocking:literal), $init:ident ($persistent:literal)
        ($($name:ident: $type:ty),*), by $prepare:ident[$input:ident, $output:ident]($($argument:expr),*);
        $(#[$doc:meta])*
    )*) => {
        /// Nonblocking collective operations (MPI 4.1, section 6.12). A call starts an operation, and returns a
        /// [`Request`] at once. The request owns the buffers until it ends, and then returns them as a pair of the
        /// input and the output. See [`iallreduce`](Self::iallreduce).
        impl Comm {
            $(
                #[doc = concat!("Starts the operation of [`", stringify!($blocking), "`](Self::", stringify!($blocking), ") (`", $nonblocking, "`).")]
                $(#[$doc])*
                ///
                /// # Errors
                /// The errors of misuse of the blocking call, [`Error::NotInPlace`], [`Error::Exhausted`],
                /// [`Error::Closed`] and [`Error::Forked`], with the buffers. The request returns the other errors of
                /// the blocking call. After a time-out or a cancel of an earlier blocking call this call may return
                /// them too, and then has given up the operation, as that call did.
                #[track_caller]
                pub fn $call<T, I, O>(&self, $($name: $type),*) -> Result<Request<(I, O)>, Failed<(I, O)>>
                where
                    T: Element,
                    I: CollectiveInput<T>,
                    O: CollectiveOutput<T>,
                {
                    let lens = [$input.elements(), $output.elements()];
                    let prepared = self.$prepare::<T>(stringify!($call), lens, $($argument),*);
                    self.start_once(stringify!($call), prepared, $input, $output)
                }
            )*
        }

        /// Persistent collective operations (MPI 4.1, section 6.13). A call prepares an operation, which can then be
        /// started any number of times: see [`PersistentCollective`]. The call itself sends nothing.
        impl Comm {
            $(
                #[doc = concat!("Prepares the operation of [`", stringify!($call), "`](Self::", stringify!($call), ") (`", $persistent, "`).")]
                ///
                /// # Errors
                /// The errors of misuse of the blocking call, [`Error::NotInPlace`], [`Error::Exhausted`].
                #[track_caller]
                pub fn $init<T, I, O>(&self, $($name: $type),*) -> Result<PersistentCollective<I, O>, Error>
                where
                    T: Element,
                    I: CollectiveInput<T>,
                    O: CollectiveOutput<T>,
                {
                    let lens = [$input.elements(), $output.elements()];
                    let prepared = self.$prepare::<T>(stringify!($init), lens, $($argument),*);
                    let prepared =
                        self.handle_result(stringify!($init), prepared.and_then(Prepared::settled))?;
                    Ok(PersistentCollective::new(self.clone(), prepared, $input, $output))
                }
            )*
        }
    };
}

calls! {
    gather: igather ("MPI_Igather"), gather_init ("MPI_Gather_init")
        (input: I, output: O, root: impl Into<Root>), by prepare_gather[input, output](root);
    /// In place, the root passes [`InPlace`](crate::InPlace) as its input.

    scatter: iscatter ("MPI_Iscatter"), scatter_init ("MPI_Scatter_init")
        (input: I, output: O, root: impl Into<Root>), by prepare_scatter[input, output](root);
    /// In place, the root passes [`InPlace`](crate::InPlace) as its output.

    allgather: iallgather ("MPI_Iallgather"), allgather_init ("MPI_Allgather_init")
        (input: I, output: O), by prepare_allgather[input, output]();

    alltoall: ialltoall ("MPI_Ialltoall"), alltoall_init ("MPI_Alltoall_init")
        (input: I, output: O), by prepare_alltoall[input, output]();

    reduce: ireduce ("MPI_Ireduce"), reduce_init ("MPI_Reduce_init")
        (input: I, output: O, op: impl ReduceOp<T>, root: impl Into<Root>), by prepare_reduce[input, output](op, root);
    /// In place, the root passes [`InPlace`](crate::InPlace) as its input.

    allreduce: iallreduce ("MPI_Iallreduce"), allreduce_init ("MPI_Allreduce_init")
        (input: I, output: O, op: impl ReduceOp<T>), by prepare_allreduce[input, output](op);
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::{Max, Sum};
    ///
    /// let rank = comm.rank().0;
    /// let sum = comm.iallreduce(vec![rank, 1], vec![0; 2], Sum)?;
    /// // With `InPlace` as the input, the results replace the elements of the output. Any number of operations can be
    /// // under way, if all ranks start them in the same order.
    /// let largest = comm.iallreduce(samite::InPlace, vec![rank], Max)?;
    /// // Compute here.
    /// let (_, largest) = largest.wait()?.buffer;
    /// let (input, sum) = sum.wait()?.buffer;
    /// assert_eq!((input, sum, largest), (vec![rank, 1], vec![3, 3], vec![2]));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Progress
    /// Each call that waits or tests makes progress with all operations of the process, or of its lane. While the
    /// program makes no such call, a thread of the library makes it, unless
    /// [`Settings::set_progress`](crate::Settings::set_progress) forbids that.
    ///
    /// # Ends
    /// A request that is dropped or cancelled ends the operation at this rank. The other ranks get [`Error::Abandoned`]
    /// if they need this rank's part, as after each error. A reduction that panics does so in the call that makes
    /// progress, and the panic continues in the call that takes the result.

    reduce_scatter: ireduce_scatter ("MPI_Ireduce_scatter_block"), reduce_scatter_init ("MPI_Reduce_scatter_block_init")
        (input: I, output: O, op: impl ReduceOp<T>), by prepare_reduce_scatter[input, output](op);

    scan: iscan ("MPI_Iscan"), scan_init ("MPI_Scan_init")
        (input: I, output: O, op: impl ReduceOp<T>), by prepare_prefix[input, output](SCAN, op);

    exscan: iexscan ("MPI_Iexscan"), exscan_init ("MPI_Exscan_init")
        (input: I, output: O, op: impl ReduceOp<T>), by prepare_prefix[input, output](EXSCAN, op);

    gatherv: igatherv ("MPI_Igatherv"), gatherv_init ("MPI_Gatherv_init")
        (input: I, output: O, blocks: &[Range<usize>], root: impl Into<Root>), by prepare_gatherv[input, output](blocks, root);
    /// In place, the root passes [`InPlace`](crate::InPlace) as its input.

    scatterv: iscatterv ("MPI_Iscatterv"), scatterv_init ("MPI_Scatterv_init")
        (input: I, blocks: &[Range<usize>], output: O, root: impl Into<Root>), by prepare_scatterv[input, output](blocks, root);
    /// In place, the root passes [`InPlace`](crate::InPlace) as its output.

    allgatherv: iallgatherv ("MPI_Iallgatherv"), allgatherv_init ("MPI_Allgatherv_init")
        (input: I, output: O, blocks: &[Range<usize>]), by prepare_allgatherv[input, output](blocks);

    alltoallv: ialltoallv ("MPI_Ialltoallv"), alltoallv_init ("MPI_Alltoallv_init")
        (input: I, sent: &[Range<usize>], output: O, received: &[Range<usize>]),
        by prepare_alltoallv[input, output](sent, received);
    /// In place, the blocks that are sent are not used, and may be empty.

    reduce_scatterv: ireduce_scatterv ("MPI_Ireduce_scatter"), reduce_scatterv_init ("MPI_Reduce_scatter_init")
        (input: I, output: O, lens: &[usize], op: impl ReduceOp<T>), by prepare_reduce_scatterv[input, output](lens, op);

    neighbour_allgather: ineighbour_allgather ("MPI_Ineighbor_allgather"),
        neighbour_allgather_init ("MPI_Neighbor_allgather_init")
        (neighbourhood: &Neighbourhood, input: I, output: O),
        by prepare_neighbour_allgather[input, output](neighbourhood);

    neighbour_allgatherv: ineighbour_allgatherv ("MPI_Ineighbor_allgatherv"),
        neighbour_allgatherv_init ("MPI_Neighbor_allgatherv_init")
        (neighbourhood: &Neighbourhood, input: I, output: O, blocks: &[Range<usize>]),
        by prepare_neighbour_allgatherv[input, output](neighbourhood, blocks);

    neighbour_alltoall: ineighbour_alltoall ("MPI_Ineighbor_alltoall"),
        neighbour_alltoall_init ("MPI_Neighbor_alltoall_init")
        (neighbourhood: &Neighbourhood, input: I, output: O),
        by prepare_neighbour_alltoall[input, output](neighbourhood);

    neighbour_alltoallv: ineighbour_alltoallv ("MPI_Ineighbor_alltoallv"),
        neighbour_alltoallv_init ("MPI_Neighbor_alltoallv_init")
        (neighbourhood: &Neighbourhood, input: I, sent: &[Range<usize>], output: O, received: &[Range<usize>]),
        by prepare_neighbour_alltoallv[input, output](neighbourhood, sent, received);
}

/// Nonblocking and persistent operations without an input.
impl Comm {
    /// Starts a [`barrier`](Self::barrier) (`MPI_Ibarrier`). The request ends when all ranks have started it.
    ///
    /// # Errors
    /// [`Error::NeedsOneGroup`], [`Error::Closed`], [`Error::Forked`]. The request returns the other errors of the
    /// blocking call.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut barrier = comm.ibarrier()?;
    /// while barrier.test().transpose()?.is_none() {
    ///     // Compute here.
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn ibarrier(&self) -> Result<Request<()>, Failed<()>> {
        self.start_alone("ibarrier", self.prepare_barrier("ibarrier"), ())
    }

    /// Starts a [`bcast`](Self::bcast) (`MPI_Ibcast`).
    ///
    /// # Errors
    /// The errors of misuse of the blocking call, [`Error::NotInPlace`], [`Error::Closed`] and [`Error::Forked`], with
    /// the buffer. The request returns the other errors of the blocking call.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let data = if comm.rank() == 1 { vec![1, 2, 3] } else { vec![0; 3] };
    /// let bcast = comm.ibcast(data, samite::Rank(1))?;
    /// assert_eq!(bcast.wait()?.buffer, [1, 2, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn ibcast<T: Element, B: CollectiveOutput<T>>(
        &self,
        buffer: B,
        root: impl Into<Root>,
    ) -> Result<Request<B>, Failed<B>> {
        let prepared = self.prepare_bcast::<T>("ibcast", buffer.elements(), root);
        self.start_alone("ibcast", prepared, buffer)
    }

    /// Prepares the operation of [`ibarrier`](Self::ibarrier) (`MPI_Barrier_init`).
    ///
    /// # Errors
    /// [`Error::NeedsOneGroup`].
    #[track_caller]
    pub fn barrier_init(&self) -> Result<PersistentCollective<(), ()>, Error> {
        let prepared = self.prepare_barrier("barrier_init").and_then(Prepared::settled);
        let prepared = self.handle_result("barrier_init", prepared)?;
        Ok(PersistentCollective::new(self.clone(), prepared, (), ()))
    }

    /// Prepares the operation of [`ibcast`](Self::ibcast) (`MPI_Bcast_init`). The buffer is the output of the
    /// operation, at the root too.
    ///
    /// # Errors
    /// The errors of misuse of the blocking call, [`Error::NotInPlace`].
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let mut bcast = comm.bcast_init(vec![0; 3], samite::Rank(1))?;
    /// for round in 0..10 {
    ///     if comm.rank() == 1 {
    ///         bcast.output_mut()?.fill(round);
    ///     }
    ///     bcast.start()?;
    ///     bcast.wait()?;
    ///     assert_eq!(*bcast.output()?, [round; 3]);
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn bcast_init<T: Element, B: CollectiveOutput<T>>(
        &self,
        buffer: B,
        root: impl Into<Root>,
    ) -> Result<PersistentCollective<(), B>, Error> {
        let prepared = self.prepare_bcast::<T>("bcast_init", buffer.elements(), root);
        let prepared = self.handle_result("bcast_init", prepared.and_then(Prepared::settled))?;
        Ok(PersistentCollective::new(self.clone(), prepared, (), buffer))
    }
}

/// The lengths of the input and the output in elements. `None` stands for [`InPlace`](crate::InPlace).
pub(super) type Lens = [Option<usize>; 2];

/// The checks of the arguments.
impl Comm {
    fn prepare_barrier(&self, call: &'static str) -> Result<Prepared, Error> {
        let plan = || Ok(self.barrier_plan());
        self.prepare::<u8>(call, plan, [0, 0], (Types::NONE, no_reduction()))
    }

    fn prepare_bcast<T: Element>(
        &self,
        call: &'static str,
        len: Option<usize>,
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let len = if root == Root::Beside { 0 } else { present(call, len)? };
        self.prepare::<T>(call, || self.bcast_plan::<T>(len, root), [0, len], plain::<T>())
    }

    fn prepare_gather<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let Part { contributes, is_root } = self.part(root);
        let output = if is_root { present(call, output)? } else { 0 };
        let (input, in_place) = passed(call, input, contributes, is_root)?;
        let len = input.unwrap_or(output / self.others());
        let plan = || self.gather_plan::<T>(root, len, in_place);
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], plain::<T>())
    }

    fn prepare_scatter<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let Part { contributes: gets, is_root } = self.part(root);
        let input = if is_root { present(call, input)? } else { 0 };
        let (output, in_place) = passed(call, output, gets, is_root)?;
        let len = output.unwrap_or(input / self.others());
        let plan = || self.scatter_plan::<T>(root, len, in_place);
        self.prepare::<T>(call, plan, [input, output.unwrap_or(0)], plain::<T>())
    }

    fn prepare_allgather<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
    ) -> Result<Prepared, Error> {
        let used = [input, output].map(|len| len.unwrap_or(0));
        self.prepare::<T>(call, || self.allgather_plan::<T>(call, [input, output]), used, plain::<T>())
    }

    fn prepare_alltoall<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
    ) -> Result<Prepared, Error> {
        let used = [input, output].map(|len| len.unwrap_or(0));
        self.prepare::<T>(call, || self.alltoall_plan::<T>(call, [input, output]), used, plain::<T>())
    }

    fn prepare_reduce<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        op: impl ReduceOp<T>,
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let Part { contributes, is_root } = self.part(root);
        let output = if is_root { present(call, output)? } else { 0 };
        let (input, in_place) = passed(call, input, contributes, is_root)?;
        let (len, commutes) = (input.unwrap_or(output), op.commutes());
        let plan = || self.reduce_plan::<T>(root, len, commutes, in_place);
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], reduction::<T>(op))
    }

    fn prepare_allreduce<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        op: impl ReduceOp<T>,
    ) -> Result<Prepared, Error> {
        let (output, commutes) = (present(call, output)?, op.commutes());
        let plan = || self.allreduce_plan::<T>(input.unwrap_or(output), commutes, input.is_none());
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], reduction::<T>(op))
    }

    fn prepare_reduce_scatter<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        op: impl ReduceOp<T>,
    ) -> Result<Prepared, Error> {
        let (output, commutes) = (present(call, output)?, op.commutes());
        let len = if input.is_none() { output / self.size() as usize } else { output };
        let plan = || self.reduce_scatter_plan::<T>(len, commutes, input.is_none());
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], reduction::<T>(op))
    }

    fn prepare_prefix<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        prefix: Prefix,
        op: impl ReduceOp<T>,
    ) -> Result<Prepared, Error> {
        let output = present(call, output)?;
        let plan = || self.prefix_plan(prefix, input.unwrap_or(output), input.is_none());
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], reduction::<T>(op))
    }

    fn prepare_gatherv<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        blocks: &[Range<usize>],
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let Part { contributes, is_root } = self.part(root);
        let whole = if is_root { present(call, output)? } else { 0 };
        let (input, in_place) = passed(call, input, contributes, is_root)?;
        let (len, blocks) = (input.or((!in_place).then_some(0)), slice_if(blocks, is_root));
        let plan = || self.gatherv_plan(call, root, len, blocks, whole);
        let used = [input.unwrap_or(0), end_of(blocks, whole)];
        self.prepare::<T>(call, plan, used, plain::<T>())
    }

    fn prepare_scatterv<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        blocks: &[Range<usize>],
        root: impl Into<Root>,
    ) -> Result<Prepared, Error> {
        let root = root.into();
        let Part { contributes: gets, is_root } = self.part(root);
        let whole = if is_root { present(call, input)? } else { 0 };
        let (output, in_place) = passed(call, output, gets, is_root)?;
        let (len, blocks) = (output.or((!in_place).then_some(0)), slice_if(blocks, is_root));
        let plan = || self.scatterv_plan(call, root, len, blocks, whole);
        let used = [end_of(blocks, whole), output.unwrap_or(0)];
        self.prepare::<T>(call, plan, used, plain::<T>())
    }

    fn prepare_allgatherv<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        blocks: &[Range<usize>],
    ) -> Result<Prepared, Error> {
        let whole = present(call, output)?;
        let plan = || self.allgatherv_plan::<T>(call, input, blocks, whole);
        let used = [input.unwrap_or(0), end_of(blocks, whole)];
        self.prepare::<T>(call, plan, used, plain::<T>())
    }

    fn prepare_alltoallv<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        sent: &[Range<usize>],
        received: &[Range<usize>],
    ) -> Result<Prepared, Error> {
        let whole = present(call, output)?;
        let from = input.map(|of_input| (sent, of_input));
        let plan = || self.alltoallv_plan(call, from, received, whole);
        let used = [input.map_or(0, |of_input| end_of(sent, of_input)), end_of(received, whole)];
        self.prepare::<T>(call, plan, used, plain::<T>())
    }

    fn prepare_reduce_scatterv<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        lens: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<Prepared, Error> {
        let (output, commutes) = (present(call, output)?, op.commutes());
        let (whole, in_place) = (input.unwrap_or(output), input.is_none());
        let plan = || self.reduce_scatterv_plan::<T>(call, whole, lens, commutes, in_place);
        self.prepare::<T>(call, plan, [input.unwrap_or(0), output], reduction::<T>(op))
    }

    fn prepare_neighbour_allgather<T: Element>(
        &self,
        call: &'static str,
        lens: Lens,
        neighbourhood: &Neighbourhood,
    ) -> Result<Prepared, Error> {
        self.prepare_exchange::<T>(call, lens, |lens| {
            self.neighbour_allgather_plan(call, neighbourhood, lens)
        })
    }

    fn prepare_neighbour_allgatherv<T: Element>(
        &self,
        call: &'static str,
        lens: Lens,
        neighbourhood: &Neighbourhood,
        blocks: &[Range<usize>],
    ) -> Result<Prepared, Error> {
        self.prepare_exchange::<T>(call, lens, |lens| {
            self.neighbour_allgatherv_plan(call, neighbourhood, lens, blocks)
        })
    }

    fn prepare_neighbour_alltoall<T: Element>(
        &self,
        call: &'static str,
        lens: Lens,
        neighbourhood: &Neighbourhood,
    ) -> Result<Prepared, Error> {
        self.prepare_exchange::<T>(call, lens, |lens| self.neighbour_alltoall_plan(call, neighbourhood, lens))
    }

    fn prepare_neighbour_alltoallv<T: Element>(
        &self,
        call: &'static str,
        lens: Lens,
        neighbourhood: &Neighbourhood,
        sent: &[Range<usize>],
        received: &[Range<usize>],
    ) -> Result<Prepared, Error> {
        self.prepare_exchange::<T>(call, lens, |lens| {
            self.neighbour_alltoallv_plan(call, neighbourhood, lens, [sent, received])
        })
    }

    fn prepare_exchange<T: Element>(
        &self,
        call: &'static str,
        [input, output]: Lens,
        plan: impl FnOnce([usize; 2]) -> Result<Plan, Error>,
    ) -> Result<Prepared, Error> {
        let plan = plan([present(call, input)?, present(call, output)?])?;
        let used = used(&plan);
        self.prepare::<T>(call, || Ok(plan), used, plain::<T>())
    }

    /// Checks a plan against the numbers of elements of the input and the output that it uses, and allocates the memory
    /// for intermediate data.
    fn prepare<T: Element>(
        &self,
        call: &'static str,
        plan: impl FnOnce() -> Result<Plan, Error>,
        used: [usize; 2],
        (types, reduce): (Types, Reduction),
    ) -> Result<Prepared, Error> {
        let settled = self.await_board();
        let at = self.place();
        let plan = checked_plan(call, plan, used, at)?;
        let (element, used) = (size_of::<T>(), used.map(|elements| elements * size_of::<T>()));
        let scratch = Memory::new(scratch::<T>(plan.scratch(at))?);
        Ok(Prepared { call, types, plan, element, used, scratch, reduce, layouts: None, settled })
    }

    /// Starts an operation that is not repeated.
    #[track_caller]
    pub(super) fn start_once<I: Held, O: Held>(
        &self,
        call: &'static str,
        prepared: Result<Prepared, Error>,
        input: I,
        output: O,
    ) -> Started<I, O> {
        let mut prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                return Err(Failed { error: self.handle_error(call, error), buffer: Some((input, output)) });
            }
        };
        let settled = std::mem::replace(&mut prepared.settled, Ok(()));
        let mut operation = PersistentCollective::new(self.clone(), prepared, input, output);
        match operation.start_settled(settled) {
            Ok(()) => Ok(operation.into_only_request()),
            Err(error) => {
                Err(Failed { error: self.handle_error(call, error), buffer: operation.into_buffers() })
            }
        }
    }

    /// Starts an operation that has no input and is not repeated.
    #[track_caller]
    fn start_alone<B: Held>(
        &self,
        call: &'static str,
        prepared: Result<Prepared, Error>,
        buffer: B,
    ) -> Result<Request<B>, Failed<B>> {
        let Prepared { types, plan, element, used: lens, scratch, reduce, layouts, settled, .. } =
            match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    return Err(Failed { error: self.handle_error(call, error), buffer: Some(buffer) });
                }
            };
        let called = Called { call, types, site: Location::caller() };
        let (input, output) = (Memory::zeroed(0), buffer.into_memory());
        let buffers = OwnedBuffers { input, output, scratch, lens, reduce, layouts };
        let started = match settled {
            Ok(()) => self.begin_owned(called, &plan, element, buffers),
            Err(error) => Err(self.give_up_owned(&plan, element, buffers, error)),
        };
        match started {
            Ok(id) => Ok(Request::started(self.clone(), id)),
            Err(refused) => {
                let (error, buffers) = *refused;
                Err(Failed::new(self.handle_error(call, error), Some(buffers.output)))
            }
        }
    }
}

/// Returns the length of a buffer that is not [`InPlace`](crate::InPlace).
pub(super) fn present(call: &'static str, len: Option<usize>) -> Result<usize, Error> {
    len.ok_or(Error::NotInPlace { call })
}

/// Returns the length of the buffer that a rank contributes to an operation with a root, or in which it gets its block;
/// `None` if it has none. Returns also if the operation is in place at this rank.
fn passed(
    call: &'static str,
    len: Option<usize>,
    contributes: bool,
    is_root: bool,
) -> Result<(Option<usize>, bool), Error> {
    match len {
        _ if !contributes => Ok((None, false)),
        None if is_root => Ok((None, true)),
        len => Ok((Some(present(call, len)?), false)),
    }
}

/// Returns the types of an operation without a reduction, and the function for it.
fn plain<T: Element>() -> (Types, Reduction) {
    (Types::of::<T>(), no_reduction())
}

/// Returns the types of an operation with a reduction, and the reduction of bytes.
fn reduction<T: Element>(op: impl ReduceOp<T>) -> (Types, Reduction) {
    let types = Types::reducing::<T, _>(&op);
    (types, Arc::new(move |from: &[u8], into: &mut [u8]| reduce_bytes(&op, from, into)))
}
