//! Collective operations with blocks of different lengths.

use std::ops::Range;

use samite_coll::algorithms::{alltoall, gather, scatter};
use samite_coll::{Blocks, Plan};

use super::Comm;
use super::between::{Part, used, used_mut};
use crate::element::Element;
use crate::error::Error;
use crate::reduction::ReduceOp;
use crate::select::Root;

/// Returns consecutive blocks with these lengths, as arguments of [`Comm::gatherv`] and similar calls.
///
/// ```
/// assert_eq!(samite::consecutive([2, 0, 3]), [0..2, 2..2, 2..5]);
/// ```
#[must_use]
pub fn consecutive(lens: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0_usize;
    let block = |len| {
        let start = end;
        end = start.saturating_add(len);
        start..end
    };
    lens.into_iter().map(block).collect()
}

/// Collective operations with blocks of different lengths. A block is a range of elements of a slice, one for each
/// rank. The blocks may lie anywhere in the slice and in any order; the elements between them are left as they are.
/// Blocks into which a call receives must not overlap.
impl Comm {
    /// Collects the elements of all ranks at `root` (`MPI_Gatherv`). At the root, `blocks` contains, for each rank, the
    /// range of `output` for its elements. This range is as long as the rank's `input`. At the other ranks `output` and
    /// `blocks` are not used, and may be empty.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// if comm.rank() == 0 {
    ///     let mut all = [0; 4];
    ///     comm.gatherv(&[10], &mut all, &[3..4, 0..2], samite::Rank(0))?;
    ///     assert_eq!(all, [20, 21, 0, 10]);
    /// } else {
    ///     comm.gatherv(&[20, 21], &mut [], &[], samite::Rank(0))?;
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn gatherv<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        blocks: &[Range<usize>],
        root: impl Into<Root>,
    ) -> Result<(), Error> {
        let (call, root) = ("gatherv", root.into());
        let Part { contributes, is_root } = self.part(root);
        let (input, output, blocks) =
            (used(input, contributes), used_mut(output, is_root), used(blocks, is_root));
        let (len, whole) = (input.len(), output.len());
        let plan = || self.gatherv_plan(call, root, Some(len), blocks, whole);
        self.collective(call, plan, input, &mut output[..end_of(blocks, whole)])
    }

    /// Takes the part of the root in a [`gatherv`](Self::gatherv) whose own elements are already in their block of
    /// `buffer` (`MPI_Gatherv` with `MPI_IN_PLACE`). The other ranks call `gatherv`, with this rank as the root.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// if comm.rank() == 0 {
    ///     let mut all = [10, 0, 0];
    ///     comm.gatherv_in_place(&mut all, &samite::consecutive([1, 2]))?;
    ///     assert_eq!(all, [10, 20, 21]);
    /// } else {
    ///     comm.gatherv(&[20, 21], &mut [], &[], samite::Rank(0))?;
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn gatherv_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, whole) = ("gatherv_in_place", buffer.len());
        let plan = || self.gatherv_plan(call, self.rank().into(), None, blocks, whole);
        self.collective(call, plan, &[], &mut buffer[..end_of(blocks, whole)])
    }

    /// Returns the plan of a gather of blocks. `len` is the number of this rank's elements, or `None` in place.
    /// `blocks` are blocks of `whole` elements, at the root.
    pub(super) fn gatherv_plan(
        &self,
        call: &'static str,
        root: Root,
        len: Option<usize>,
        blocks: &[Range<usize>],
        whole: usize,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(len.is_none())? {
            let len = len.unwrap_or(0);
            let received =
                if root == Root::This { self.listed(self.places(call, blocks, whole)?) } else { vec![] };
            let member = |root| groups.exchange(&[(root, 0..len)], &[]);
            return self.rooted(root, member, || groups.exchange(&[], &received));
        }
        let (algorithm, number, in_place) = (gather::Algorithm::Linear, self.root(root)?, len.is_none());
        let divide = || self.places(call, blocks, whole);
        let (blocks, len) = self.division(call, root, ("input", len), blocks, divide)?;
        Ok(Plan::Gather { algorithm, root: number, blocks, len, in_place })
    }

    /// Returns the blocks of a gather or a scatter, and the number of this rank's elements. `divide` checks the blocks
    /// of the root. `len` is the length of this rank's buffer, or `None` in place, and `buffer` is the buffer's name.
    fn division(
        &self,
        call: &'static str,
        root: Root,
        (buffer, len): (&'static str, Option<usize>),
        blocks: &[Range<usize>],
        divide: impl FnOnce() -> Result<Blocks, Error>,
    ) -> Result<(Blocks, usize), Error> {
        let is_root = Root::Rank(self.rank()) == root;
        let divided = if is_root { divide()? } else { Blocks::Equal(len.unwrap_or(0)) };
        if let (Some(len), true) = (len, is_root) {
            self.check_own(call, buffer, len, blocks)?;
        }
        Ok((divided, len.unwrap_or_else(|| self.own(blocks).len())))
    }

    /// Distributes blocks of the elements of `root` to all ranks (`MPI_Scatterv`). At the root, `blocks` contains, for
    /// each rank, the range of `input` that the rank gets. This range is as long as the rank's `output`. At the other
    /// ranks `input` and `blocks` are not used, and may be empty.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let mut mine = vec![0; 2 + comm.rank().0 as usize];
    /// if comm.rank() == 0 {
    ///     // Blocks that are only read may overlap.
    ///     comm.scatterv(&[1, 2, 3, 4], &[0..2, 1..4], &mut mine, samite::Rank(0))?;
    ///     assert_eq!(mine, [1, 2]);
    /// } else {
    ///     comm.scatterv(&[], &[], &mut mine, samite::Rank(0))?;
    ///     assert_eq!(mine, [2, 3, 4]);
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scatterv<T: Element>(
        &self,
        input: &[T],
        blocks: &[Range<usize>],
        output: &mut [T],
        root: impl Into<Root>,
    ) -> Result<(), Error> {
        let (call, root) = ("scatterv", root.into());
        let Part { contributes: gets, is_root } = self.part(root);
        let (input, output, blocks) = (used(input, is_root), used_mut(output, gets), used(blocks, is_root));
        let (len, whole) = (output.len(), input.len());
        let plan = || self.scatterv_plan(call, root, Some(len), blocks, whole);
        self.collective(call, plan, &input[..end_of(blocks, whole)], output)
    }

    /// Takes the part of the root in a [`scatterv`](Self::scatterv) and leaves the root's own elements where they are
    /// (`MPI_Scatterv` with `MPI_IN_PLACE`). The other ranks call `scatterv`, with this rank as the root.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let mut mine = [0; 2];
    /// match comm.rank().0 {
    ///     0 => comm.scatterv_in_place(&[1, 2, 3], &samite::consecutive([1, 2]))?,
    ///     _ => comm.scatterv(&[], &[], &mut mine, samite::Rank(0))?,
    /// }
    /// assert!(comm.rank() == 0 || mine == [2, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn scatterv_in_place<T: Element>(&self, input: &[T], blocks: &[Range<usize>]) -> Result<(), Error> {
        let (call, whole) = ("scatterv_in_place", input.len());
        let plan = || self.scatterv_plan(call, self.rank().into(), None, blocks, whole);
        self.collective(call, plan, &input[..end_of(blocks, whole)], &mut [])
    }

    /// Returns the plan of a scatter of blocks. `len` is the number of elements for this rank, or `None` in place.
    /// `blocks` are blocks of `whole` elements, at the root.
    pub(super) fn scatterv_plan(
        &self,
        call: &'static str,
        root: Root,
        len: Option<usize>,
        blocks: &[Range<usize>],
        whole: usize,
    ) -> Result<Plan, Error> {
        if let Some(groups) = self.groups_unless(len.is_none())? {
            let len = len.unwrap_or(0);
            let sent =
                if root == Root::This { self.listed(self.sources(call, blocks, whole)?) } else { vec![] };
            let member = |root| groups.exchange(&[], &[(root, 0..len)]);
            return self.rooted(root, member, || groups.exchange(&sent, &[]));
        }
        let (algorithm, number, in_place) = (scatter::Algorithm::Linear, self.root(root)?, len.is_none());
        let divide = || self.sources(call, blocks, whole);
        let (blocks, len) = self.division(call, root, ("output", len), blocks, divide)?;
        Ok(Plan::Scatter { algorithm, root: number, blocks, len, in_place })
    }

    /// Collects the elements of all ranks at each rank (`MPI_Allgatherv`). `blocks` contains, for each rank, the range
    /// of `output` for its elements. This range is as long as the rank's `input`. All ranks pass ranges of the same
    /// lengths.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// // Each rank has as many elements as its number. The ranks first exchange these numbers.
    /// let mine = vec![comm.rank().0; comm.rank().0 as usize];
    /// let mut lens = [0; 3];
    /// comm.allgather(&[mine.len()], &mut lens)?;
    /// let mut all = vec![9; lens.iter().sum()];
    /// comm.allgatherv(&mine, &mut all, &samite::consecutive(lens))?;
    /// assert_eq!(all, [1, 2, 2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allgatherv<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, len, whole) = ("allgatherv", input.len(), output.len());
        let plan = || self.allgatherv_plan::<T>(call, Some(len), blocks, whole);
        self.collective(call, plan, input, &mut output[..end_of(blocks, whole)])
    }

    /// Collects elements as [`allgatherv`](Self::allgatherv) does. This rank's elements are already in their block of
    /// `buffer` (`MPI_IN_PLACE`). All ranks call this form.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let mut all = if comm.rank() == 0 { [10, 0, 0] } else { [0, 20, 21] };
    /// comm.allgatherv_in_place(&mut all, &[0..1, 1..3])?;
    /// assert_eq!(all, [10, 20, 21]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn allgatherv_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, whole) = ("allgatherv_in_place", buffer.len());
        let plan = || self.allgatherv_plan::<T>(call, None, blocks, whole);
        self.collective(call, plan, &[], &mut buffer[..end_of(blocks, whole)])
    }

    /// Returns the plan of an allgather of blocks of `whole` elements. `len` is the number of this rank's elements, or
    /// `None` in place.
    pub(super) fn allgatherv_plan<T: Element>(
        &self,
        call: &'static str,
        len: Option<usize>,
        blocks: &[Range<usize>],
        whole: usize,
    ) -> Result<Plan, Error> {
        let divided = self.places(call, blocks, whole)?;
        if let Some(groups) = self.groups_unless(len.is_none())? {
            let len = len.unwrap_or(0);
            return Ok(groups.all_pairs(|_| 0..len, |from| divided.get(from)));
        }
        len.map_or(Ok(()), |len| self.check_own(call, "input", len, blocks))?;
        let situation = self.uneven::<T>(blocks.iter().map(Range::len).sum(), true);
        let algorithm = self.table().allgather(&situation).algorithm;
        Ok(Plan::Allgather { algorithm, blocks: divided, in_place: len.is_none() })
    }

    /// Sends a block of `input` to each rank, and receives a block from each rank into `output` (`MPI_Alltoallv`).
    /// `sent` and `received` contain the blocks, by receiver and by sender. The block that a rank sends to another one
    /// is as long as the block into which the other one receives it.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// // Each rank sends one element to rank 0 and two elements to rank 1.
    /// let rank = comm.rank().0;
    /// let lens = [1 + rank as usize; 2];
    /// let mut received = vec![0; lens.iter().sum()];
    /// let input = [10 * rank, 10 * rank + 1, 10 * rank + 2];
    /// comm.alltoallv(&input, &[0..1, 1..3], &mut received, &samite::consecutive(lens))?;
    /// assert_eq!(received, if rank == 0 { vec![0, 10] } else { vec![1, 2, 11, 12] });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoallv<T: Element>(
        &self,
        input: &[T],
        sent: &[Range<usize>],
        output: &mut [T],
        received: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, of_input, of_output) = ("alltoallv", input.len(), output.len());
        let plan = || self.alltoallv_plan(call, Some((sent, of_input)), received, of_output);
        let (input, output) = (&input[..end_of(sent, of_input)], &mut output[..end_of(received, of_output)]);
        self.collective(call, plan, input, output)
    }

    /// Exchanges blocks as [`alltoallv`](Self::alltoallv) does. The received blocks replace the sent ones
    /// (`MPI_IN_PLACE`), so two ranks send each other blocks of the same length. All ranks call this form.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let mut blocks = [comm.rank().0; 3];
    /// // The block for the other rank has two elements.
    /// let ranges = if comm.rank() == 0 { [0..1, 1..3] } else { [1..3, 0..1] };
    /// comm.alltoallv_in_place(&mut blocks, &ranges)?;
    /// assert_eq!(blocks, if comm.rank() == 0 { [0, 1, 1] } else { [1, 0, 0] });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoallv_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let (call, whole) = ("alltoallv_in_place", buffer.len());
        let plan = || self.alltoallv_plan(call, None, blocks, whole);
        self.collective(call, plan, &[], &mut buffer[..end_of(blocks, whole)])
    }

    /// Returns the plan of an exchange of blocks. `sent` are the blocks of the input and its length, or `None` in
    /// place. `received` are blocks of an output of `whole` elements.
    pub(super) fn alltoallv_plan(
        &self,
        call: &'static str,
        sent: Option<(&[Range<usize>], usize)>,
        received: &[Range<usize>],
        whole: usize,
    ) -> Result<Plan, Error> {
        let algorithm = alltoall::Algorithm::Pairwise;
        let groups = self.groups_unless(sent.is_none())?;
        let Some((sent, of_input)) = sent else {
            let from = self.places(call, received, whole)?;
            return Ok(Plan::Alltoall { algorithm, into: from.clone(), from, in_place: true });
        };
        let from = self.sources(call, sent, of_input)?;
        let into = self.places(call, received, whole)?;
        if let Some(groups) = groups {
            return Ok(groups.all_pairs(|to| from.get(to), |sender| into.get(sender)));
        }
        self.check_own(call, "input", self.own(sent).len(), received)?;
        Ok(Plan::Alltoall { algorithm, from, into, in_place: false })
    }

    /// Combines by `op` the elements of all ranks that have the same index, and distributes the results to all ranks in
    /// consecutive blocks of these lengths (`MPI_Reduce_scatter`). All ranks pass the same lengths. `output` is as long
    /// as the block of this rank.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut mine = vec![0; 1 + comm.rank().0 as usize];
    /// comm.reduce_scatterv(&[1, 10, 100], &mut mine, &[1, 2], Sum)?;
    /// assert_eq!(mine, if comm.rank() == 0 { vec![2] } else { vec![20, 200] });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce_scatterv<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        lens: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (call, commutes) = ("reduce_scatterv", op.commutes());
        let plan = || self.reduce_scatterv_plan::<T>(call, input.len(), lens, commutes, false);
        self.reducing(call, plan, input, output, &op)
    }

    /// Combines elements as [`reduce_scatterv`](Self::reduce_scatterv) does. This rank's results replace the first
    /// elements of `buffer` (`MPI_IN_PLACE`), and the values of the other elements are unspecified afterwards.
    ///
    /// # Panics
    /// If `op` panics. The other ranks that have not finished get [`Error::Abandoned`].
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], and the errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::Sum;
    ///
    /// let mut buffer = [1, 10, 100];
    /// comm.reduce_scatterv_in_place(&mut buffer, &[1, 2], Sum)?;
    /// assert!(if comm.rank() == 0 { buffer[0] == 2 } else { buffer[..2] == [20, 200] });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn reduce_scatterv_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        lens: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let (call, whole, commutes) = ("reduce_scatterv_in_place", buffer.len(), op.commutes());
        let plan = || self.reduce_scatterv_plan::<T>(call, whole, lens, commutes, true);
        self.reducing(call, plan, &[], buffer, &op)
    }

    pub(super) fn reduce_scatterv_plan<T: Element>(
        &self,
        call: &'static str,
        whole: usize,
        lens: &[usize],
        commutes: bool,
        in_place: bool,
    ) -> Result<Plan, Error> {
        let what = if in_place { "output" } else { "input" };
        if lens.len() != self.size() as usize {
            return Err(Error::WrongBlocks { call, what, why: "there must be one for each rank" });
        }
        let blocks = consecutive(lens.iter().copied());
        check_within(call, what, &blocks, whole)?;
        let blocks = Blocks::Listed(blocks.into());
        if let Some(groups) = self.groups_unless(in_place)? {
            return Ok(self.reduce_scatter_between::<T>(&groups, blocks, commutes));
        }
        let algorithm = self.table().reduce_scatter(&self.uneven::<T>(whole, commutes)).algorithm;
        Ok(Plan::ReduceScatter { algorithm, blocks, commutes, in_place })
    }

    /// Returns this rank's block. There is a block for each rank.
    fn own<'a>(&self, blocks: &'a [Range<usize>]) -> &'a Range<usize> {
        &blocks[self.rank().0 as usize]
    }

    /// Checks that a slice of this rank is as long as its block.
    fn check_own(
        &self,
        call: &'static str,
        what: &'static str,
        len: usize,
        blocks: &[Range<usize>],
    ) -> Result<(), Error> {
        let expected = self.own(blocks).len();
        if len == expected { Ok(()) } else { Err(Error::WrongLength { call, what, len, expected }) }
    }

    /// Returns the blocks of an input of `whole` elements.
    fn sources(&self, call: &'static str, blocks: &[Range<usize>], whole: usize) -> Result<Blocks, Error> {
        self.divided(call, "input", blocks, whole)
    }

    /// Returns the blocks of an output of `whole` elements.
    fn places(&self, call: &'static str, blocks: &[Range<usize>], whole: usize) -> Result<Blocks, Error> {
        let divided = self.divided(call, "output", blocks, whole)?;
        check_apart(call, blocks)?;
        Ok(divided)
    }

    fn divided(
        &self,
        call: &'static str,
        what: &'static str,
        blocks: &[Range<usize>],
        whole: usize,
    ) -> Result<Blocks, Error> {
        if blocks.len() != self.others() {
            return Err(Error::WrongBlocks { call, what, why: "there must be one for each rank" });
        }
        check_within(call, what, blocks, whole)?;
        Ok(Blocks::Listed(blocks.into()))
    }

    /// Returns the blocks with the ranks of the other group to which they belong.
    fn listed(&self, blocks: Blocks) -> Vec<(u32, Range<usize>)> {
        (0..self.others() as u32).map(|rank| (rank, blocks.get(rank))).collect()
    }

    /// Returns the arguments on which the choice of an algorithm depends, for blocks of different lengths.
    pub(super) fn uneven<T: Element>(&self, elements: usize, commutes: bool) -> samite_coll::Situation {
        samite_coll::Situation { has_equal_blocks: false, ..self.situation::<T>(elements, commutes) }
    }
}

/// Checks that the blocks are ranges of a slice of `whole` elements.
pub(super) fn check_within(
    call: &'static str,
    what: &'static str,
    blocks: &[Range<usize>],
    whole: usize,
) -> Result<(), Error> {
    let why = "one of them ends before its start, or behind the slice";
    match blocks.iter().any(|block| block.start > block.end || block.end > whole) {
        true => Err(Error::WrongBlocks { call, what, why }),
        false => Ok(()),
    }
}

/// Checks that the blocks of an output do not overlap.
pub(super) fn check_apart(call: &'static str, blocks: &[Range<usize>]) -> Result<(), Error> {
    let mut sorted: Vec<&Range<usize>> = blocks.iter().filter(|block| !block.is_empty()).collect();
    sorted.sort_unstable_by_key(|block| block.start);
    match sorted.windows(2).any(|pair| pair[1].start < pair[0].end) {
        true => Err(Error::WrongBlocks { call, what: "output", why: "two of them overlap" }),
        false => Ok(()),
    }
}

/// Returns the number of elements that contain all blocks, at most `whole`.
pub(super) fn end_of(blocks: &[Range<usize>], whole: usize) -> usize {
    blocks.iter().map(|block| block.end).max().unwrap_or(0).min(whole)
}
