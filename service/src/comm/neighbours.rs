//! Collective operations between neighbours.

use std::ops::Range;
use std::sync::Arc;

use samite_coll::Plan;
use samite_coll::algorithms::exchange::Transfer;

use super::Comm;
use super::blocks::{check_apart, check_within};
use crate::element::Element;
use crate::error::Error;
use crate::select::Rank;
use crate::topology::Neighbourhood;

/// Collective operations between neighbours in a topology (MPI 4.1, section 8.6).
///
/// All ranks of the communicator make the same calls in the same order, each with its own [`Neighbourhood`]. A rank
/// that has no neighbours passes `Neighbourhood::default()` and empty slices. If a rank is several times among the
/// neighbours of another rank, it exchanges a message for each time. A call returns when this rank has exchanged its
/// messages with its neighbours; it does not wait for other ranks.
impl Comm {
    /// Sends the elements of `input` to each destination, and receives a block from each source into `output`, in the
    /// order of the sources (`MPI_Neighbor_allgather`). All blocks of `output` have the same length. The block of a
    /// neighbour beyond the edge of a grid keeps its elements.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Cartesian, Dimension};
    ///
    /// let line = Cartesian::new(&[Dimension::open(3)])?.neighbourhood(comm.rank())?;
    /// let mut beside = [9; 2];
    /// comm.neighbour_allgather(&line, &[comm.rank().0], &mut beside)?;
    /// assert_eq!(beside, [[9, 1], [0, 2], [1, 9]][comm.rank().0 as usize]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn neighbour_allgather<T: Element>(
        &self,
        neighbourhood: &Neighbourhood,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        let (call, lens) = ("neighbour_allgather", [input.len(), output.len()]);
        self.exchange_blocks(call, self.neighbour_allgather_plan(call, neighbourhood, lens), input, output)
    }

    /// Exchanges elements as [`neighbour_allgather`](Self::neighbour_allgather) does, where the blocks of `output` may
    /// have different lengths (`MPI_Neighbor_allgatherv`). `blocks` contains the block of each source.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Cartesian, Dimension};
    ///
    /// let line = Cartesian::new(&[Dimension::open(2)])?.neighbourhood(comm.rank())?;
    /// if comm.rank() == 0 {
    ///     let mut from_above = [0; 2];
    ///     comm.neighbour_allgatherv(&line, &[1], &mut from_above, &[0..0, 0..2])?;
    ///     assert_eq!(from_above, [2, 3]);
    /// } else {
    ///     let mut from_below = [0];
    ///     comm.neighbour_allgatherv(&line, &[2, 3], &mut from_below, &[0..1, 0..0])?;
    ///     assert_eq!(from_below, [1]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn neighbour_allgatherv<T: Element>(
        &self,
        neighbourhood: &Neighbourhood,
        input: &[T],
        output: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, lens) = ("neighbour_allgatherv", [input.len(), output.len()]);
        self.exchange_blocks(
            call,
            self.neighbour_allgatherv_plan(call, neighbourhood, lens, blocks),
            input,
            output,
        )
    }

    /// Sends a block of `input` to each destination, and receives a block from each source into `output`
    /// (`MPI_Neighbor_alltoall`). All blocks of `input` have the same length, and all blocks of `output` too.
    ///
    /// In a periodic dimension of a grid with one or two coordinates, both neighbours are the same rank. The block for
    /// the lower neighbour then arrives as the block from the receiver's upper neighbour.
    ///
    /// # Errors
    /// Returns the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Cartesian, Dimension};
    ///
    /// let ring = Cartesian::new(&[Dimension::periodic(3)])?.neighbourhood(comm.rank())?;
    /// let rank = comm.rank().0;
    /// let mut received = [0; 2];
    /// comm.neighbour_alltoall(&ring, &[10 * rank, 10 * rank + 1], &mut received)?;
    /// // From the lower neighbour the block for its upper neighbour, and the reverse.
    /// assert_eq!(received, [(rank + 2) % 3 * 10 + 1, (rank + 1) % 3 * 10]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn neighbour_alltoall<T: Element>(
        &self,
        neighbourhood: &Neighbourhood,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        let (call, lens) = ("neighbour_alltoall", [input.len(), output.len()]);
        self.exchange_blocks(call, self.neighbour_alltoall_plan(call, neighbourhood, lens), input, output)
    }

    /// Exchanges blocks as [`neighbour_alltoall`](Self::neighbour_alltoall) does, where the blocks may have different
    /// lengths (`MPI_Neighbor_alltoallv`). `sent` contains the block for each destination, and `received` the block
    /// from each source.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Graph, Neighbour, Neighbourhood, Rank};
    ///
    /// // Rank 0 sends two messages to rank 1.
    /// if comm.rank() == 0 {
    ///     let graph = Graph::new(2, [], [Neighbour::from(Rank(1)), Neighbour::from(Rank(1))])?;
    ///     comm.neighbour_alltoallv(&(&graph).into(), &[1, 2, 3], &[2..3, 0..2], &mut [], &[])?;
    /// } else {
    ///     let graph = Graph::new(2, [Neighbour::from(Rank(0)), Neighbour::from(Rank(0))], [])?;
    ///     let mut received = [0; 3];
    ///     comm.neighbour_alltoallv(&(&graph).into(), &[], &[], &mut received, &[0..1, 1..3])?;
    ///     assert_eq!(received, [3, 1, 2]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn neighbour_alltoallv<T: Element>(
        &self,
        neighbourhood: &Neighbourhood,
        input: &[T],
        sent: &[Range<usize>],
        output: &mut [T],
        received: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, lens) = ("neighbour_alltoallv", [input.len(), output.len()]);
        let plan = self.neighbour_alltoallv_plan(call, neighbourhood, lens, [sent, received]);
        self.exchange_blocks(call, plan, input, output)
    }

    /// Carries out an exchange, which uses the first elements of the slices.
    #[track_caller]
    pub(super) fn exchange_blocks<T: Element>(
        &self,
        call: &'static str,
        plan: Result<Plan, Error>,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        let [sent, received] = plan.as_ref().map_or([0, 0], used);
        let plan = self.handle_result(call, plan)?;
        self.collective(call, || Ok(plan.clone()), &input[..sent], &mut output[..received])
    }

    pub(super) fn neighbour_allgather_plan(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        [input, output]: [usize; 2],
    ) -> Result<Plan, Error> {
        let blocks = equal(call, "output", neighbourhood.sources().len(), output)?;
        self.neighbour_allgatherv_plan(call, neighbourhood, [input, output], &blocks)
    }

    pub(super) fn neighbour_allgatherv_plan(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        [input, output]: [usize; 2],
        blocks: &[Range<usize>],
    ) -> Result<Plan, Error> {
        let sent = vec![0..input; neighbourhood.destinations().len()];
        self.neighbour_alltoallv_plan(call, neighbourhood, [input, output], [&sent, blocks])
    }

    pub(super) fn neighbour_alltoall_plan(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        [input, output]: [usize; 2],
    ) -> Result<Plan, Error> {
        let sent = equal(call, "input", neighbourhood.destinations().len(), input)?;
        let received = equal(call, "output", neighbourhood.sources().len(), output)?;
        self.neighbour_alltoallv_plan(call, neighbourhood, [input, output], [&sent, &received])
    }

    pub(super) fn neighbour_alltoallv_plan(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        [input, output]: [usize; 2],
        [sent, received]: [&[Range<usize>]; 2],
    ) -> Result<Plan, Error> {
        self.check_one_group()?;
        let [receive_round, send_round] = neighbourhood.rounds();
        check_within(call, "input", sent, input)?;
        let sends = self.transfers(call, "input", neighbourhood.destinations(), sent, send_round)?;
        check_within(call, "output", received, output)?;
        check_apart(call, received)?;
        let receives = self.transfers(call, "output", neighbourhood.sources(), received, receive_round)?;
        Ok(Plan::Exchange { sends, receives })
    }

    /// Returns the messages with neighbours, each of which has a block.
    fn transfers(
        &self,
        call: &'static str,
        what: &'static str,
        neighbours: &[Option<Rank>],
        blocks: &[Range<usize>],
        round: impl Fn(usize) -> u32,
    ) -> Result<Arc<[Transfer]>, Error> {
        if neighbours.len() != blocks.len() {
            return Err(Error::WrongBlocks { call, what, why: "there must be one for each neighbour" });
        }
        let present = neighbours.iter().zip(blocks).enumerate();
        let present = present.filter_map(|(index, (neighbour, block))| Some((index, (*neighbour)?, block)));
        let transfer = |(index, neighbour, block): (usize, Rank, &Range<usize>)| {
            self.check_rank(neighbour)?;
            Ok(Transfer { partner: neighbour.0, round: round(index), elements: block.clone() })
        };
        present.map(transfer).collect()
    }
}

/// Returns the numbers of elements at the start of the input and the output that an exchange uses.
pub(super) fn used(plan: &Plan) -> [usize; 2] {
    // An exchange uses the same elements at every place.
    let at = samite_coll::Place::new(0, 1);
    [plan.input(at), plan.output(at)]
}

/// Divides a slice of `whole` elements into blocks of the same length for `count` neighbours.
fn equal(
    call: &'static str,
    what: &'static str,
    count: usize,
    whole: usize,
) -> Result<Vec<Range<usize>>, Error> {
    let len = whole.checked_div(count).unwrap_or(0);
    match len * count {
        expected if expected == whole => Ok((0..count).map(|index| index * len..(index + 1) * len).collect()),
        expected => Err(Error::WrongLength { call, what, len: whole, expected }),
    }
}
