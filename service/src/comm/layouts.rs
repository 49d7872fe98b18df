//! Collective operations whose blocks have layouts.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use samite_coll::algorithms::exchange::all_pairs;
use samite_coll::{BorrowedBuffers, Layouts, Plan};
use samite_fabric::Memory;
use samite_fabric::layout::Form;
use zerocopy::IntoBytes;

use super::nonblocking::present;
use super::{Called, Comm, Types};
use crate::collective::{CollectiveInput, CollectiveOutput, PersistentCollective, Prepared, Started, packed};
use crate::element::Element;
use crate::error::Error;
use crate::layout::{Layout, LayoutError};
use crate::runtime::no_reduction;
use crate::topology::Neighbourhood;

/// Collective operations whose blocks have [`Layout`]s, one for each block. The elements of a block may lie anywhere in
/// the slice. Blocks into which a call receives must not overlap. The types of the elements and the layouts may differ
/// at the two sides of a message; only the sequence of bytes must agree.
///
/// To use a layout in another collective call, [pack](crate::View::pack) the data.
impl Comm {
    /// Sends a block of `input` to each rank, and receives a block from each rank into `output` (`MPI_Alltoallw`).
    /// `sent` and `received` contain the layouts of the blocks, by receiver and by sender.
    ///
    /// # Errors
    /// [`Error::WrongBlocks`], [`Error::Layout`] with [`LayoutError::BeyondSlice`] or [`LayoutError::Overlap`], and the
    /// errors of [`barrier`](Self::barrier).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::Layout;
    ///
    /// // Each rank has two rows of a matrix of 4 x 4, and gets two columns, as rows.
    /// let first = 2 * comm.rank().0;
    /// let rows: Vec<u32> = (4 * first..4 * first + 8).collect();
    /// let column = Layout::vector(2, 1, 4)?.resized(0, 1)?;
    /// let sent = [Layout::<u32>::indexed([(0, 2)])?, Layout::indexed([(2, 2)])?];
    /// let sent = [sent[0].nested(&column)?, sent[1].nested(&column)?];
    /// let received = [Layout::indexed([(0, 2), (4, 2)])?, Layout::indexed([(2, 2), (6, 2)])?];
    /// let mut columns = [0; 8];
    /// comm.alltoallw(&rows, &sent, &mut columns, &received)?;
    /// assert_eq!(columns[..4], [first, first + 4, first + 8, first + 12]);
    /// assert_eq!(columns[4..], [first + 1, first + 5, first + 9, first + 13]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoallw<T: Element, U: Element>(
        &self,
        input: &[T],
        sent: &[Layout<T>],
        output: &mut [U],
        received: &[Layout<U>],
    ) -> Result<(), Error> {
        let call = "alltoallw";
        let forms = forms(call, Some((sent, size_of_val(input))), received, size_of_val(output));
        let called = Called { call, types: Types::NONE, site: Location::caller() };
        let exchanged = forms.and_then(|forms| {
            let plan = self.alltoallw_plan(call, &forms)?;
            self.exchange_forms(called, plan, forms, (input.as_bytes(), output.as_mut_bytes()))
        });
        self.handle_result(call, exchanged)
    }

    /// Exchanges blocks as [`alltoallw`](Self::alltoallw) does. The received blocks replace the sent ones
    /// (`MPI_IN_PLACE`), so two ranks send each other blocks of the same number of bytes. All ranks call this form.
    ///
    /// # Errors
    /// As [`alltoallw`](Self::alltoallw).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::Layout;
    ///
    /// let rank = comm.rank().0;
    /// let mut numbers = [10 * rank, 10 * rank + 1, 10 * rank + 2, 10 * rank + 3];
    /// let every_second = Layout::vector(2, 1, 2)?;
    /// let between = Layout::indexed([(1, 1), (3, 1)])?;
    /// comm.alltoallw_in_place(&mut numbers, &[every_second, between])?;
    /// assert_eq!(numbers, if rank == 0 { [0, 10, 2, 12] } else { [1, 11, 3, 13] });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn alltoallw_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        blocks: &[Layout<T>],
    ) -> Result<(), Error> {
        let call = "alltoallw_in_place";
        let forms = forms::<T, T>(call, None, blocks, size_of_val(buffer));
        let called = Called { call, types: Types::NONE, site: Location::caller() };
        let exchanged = forms.and_then(|forms| {
            let plan = self.alltoallw_plan(call, &forms)?;
            self.exchange_forms(called, plan, forms, (&[], buffer.as_mut_bytes()))
        });
        self.handle_result(call, exchanged)
    }

    /// Starts the operation of [`alltoallw`](Self::alltoallw) (`MPI_Ialltoallw`). If the input is
    /// [`InPlace`](crate::InPlace), the layouts that are sent are not used, and may be empty.
    ///
    /// # Errors
    /// The errors of misuse of the blocking call, [`Error::NotInPlace`], [`Error::Exhausted`], [`Error::Closed`] and
    /// [`Error::Forked`], with the buffers. The request returns the other errors of the blocking call.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::Layout;
    ///
    /// let (all, none) = (Layout::contiguous(2)?, Layout::contiguous(0)?);
    /// // Each rank sends to the other rank alone.
    /// let other = |layout: &Layout<u32>| match comm.rank().0 {
    ///     0 => [none.clone(), layout.clone()],
    ///     _ => [layout.clone(), none.clone()],
    /// };
    /// let backwards = Layout::indexed([(1, 1), (0, 1)])?;
    /// let exchange = comm.ialltoallw(vec![1, 2], &other(&all), vec![0; 2], &other(&backwards))?;
    /// assert_eq!(exchange.wait()?.buffer.1, [2, 1]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn ialltoallw<T, U, I, O>(
        &self,
        input: I,
        sent: &[Layout<T>],
        output: O,
        received: &[Layout<U>],
    ) -> Started<I, O>
    where
        T: Element,
        U: Element,
        I: CollectiveInput<T>,
        O: CollectiveOutput<U>,
    {
        let (call, lens) = ("ialltoallw", [input.elements(), output.elements()]);
        self.start_once(call, self.prepare_alltoallw(call, lens, sent, received), input, output)
    }

    /// Prepares the operation of [`ialltoallw`](Self::ialltoallw) (`MPI_Alltoallw_init`).
    ///
    /// # Errors
    /// The errors of misuse of the blocking call, [`Error::NotInPlace`].
    #[track_caller]
    pub fn alltoallw_init<T, U, I, O>(
        &self,
        input: I,
        sent: &[Layout<T>],
        output: O,
        received: &[Layout<U>],
    ) -> Result<PersistentCollective<I, O>, Error>
    where
        T: Element,
        U: Element,
        I: CollectiveInput<T>,
        O: CollectiveOutput<U>,
    {
        let (call, lens) = ("alltoallw_init", [input.elements(), output.elements()]);
        let prepared = self.handle_result(call, self.prepare_alltoallw(call, lens, sent, received))?;
        Ok(PersistentCollective::new(self.clone(), prepared, input, output))
    }

    /// Sends a block of `input` to each destination, and receives a block from each source into `output`, as
    /// [`neighbour_alltoallv`](Self::neighbour_alltoallv) does, where the blocks have layouts
    /// (`MPI_Neighbor_alltoallw`).
    ///
    /// # Errors
    /// As [`alltoallw`](Self::alltoallw).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Cartesian, Dimension, Layout};
    ///
    /// // A part of 2 x 2 values with a border. The columns at the edges go to the borders of the neighbours.
    /// let mut part = [[comm.rank().0 + 1; 4]; 2].concat();
    /// let line = Cartesian::new(&[Dimension::open(2)])?.neighbourhood(comm.rank())?;
    /// let column = |number| Layout::indexed([(number, 1), (number + 4, 1)]);
    /// let input = part.clone();
    /// comm.neighbour_alltoallw(&line, &input, &[column(1)?, column(2)?], &mut part, &[column(0)?, column(3)?])?;
    /// assert_eq!(part[..4], if comm.rank() == 0 { [1, 1, 1, 2] } else { [1, 2, 2, 2] });
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[track_caller]
    pub fn neighbour_alltoallw<T: Element, U: Element>(
        &self,
        neighbourhood: &Neighbourhood,
        input: &[T],
        sent: &[Layout<T>],
        output: &mut [U],
        received: &[Layout<U>],
    ) -> Result<(), Error> {
        let call = "neighbour_alltoallw";
        let forms = forms(call, Some((sent, size_of_val(input))), received, size_of_val(output));
        let called = Called { call, types: Types::NONE, site: Location::caller() };
        let exchanged = forms.and_then(|forms| {
            let plan = self.neighbour_alltoallw_plan(call, neighbourhood, &forms)?;
            self.exchange_forms(called, plan, forms, (input.as_bytes(), output.as_mut_bytes()))
        });
        self.handle_result(call, exchanged)
    }

    /// Starts the operation of [`neighbour_alltoallw`](Self::neighbour_alltoallw) (`MPI_Ineighbor_alltoallw`).
    ///
    /// # Errors
    /// As [`ialltoallw`](Self::ialltoallw).
    #[track_caller]
    pub fn ineighbour_alltoallw<T, U, I, O>(
        &self,
        neighbourhood: &Neighbourhood,
        input: I,
        sent: &[Layout<T>],
        output: O,
        received: &[Layout<U>],
    ) -> Started<I, O>
    where
        T: Element,
        U: Element,
        I: CollectiveInput<T>,
        O: CollectiveOutput<U>,
    {
        let (call, lens) = ("ineighbour_alltoallw", [input.elements(), output.elements()]);
        let prepared = self.prepare_neighbour_alltoallw(call, neighbourhood, lens, sent, received);
        self.start_once(call, prepared, input, output)
    }

    /// Prepares the operation of [`ineighbour_alltoallw`](Self::ineighbour_alltoallw) (`MPI_Neighbor_alltoallw_init`).
    ///
    /// # Errors
    /// As [`alltoallw_init`](Self::alltoallw_init).
    #[track_caller]
    pub fn neighbour_alltoallw_init<T, U, I, O>(
        &self,
        neighbourhood: &Neighbourhood,
        input: I,
        sent: &[Layout<T>],
        output: O,
        received: &[Layout<U>],
    ) -> Result<PersistentCollective<I, O>, Error>
    where
        T: Element,
        U: Element,
        I: CollectiveInput<T>,
        O: CollectiveOutput<U>,
    {
        let (call, lens) = ("neighbour_alltoallw_init", [input.elements(), output.elements()]);
        let prepared = self.prepare_neighbour_alltoallw(call, neighbourhood, lens, sent, received);
        let prepared = self.handle_result(call, prepared)?;
        Ok(PersistentCollective::new(self.clone(), prepared, input, output))
    }

    fn prepare_alltoallw<T: Element, U: Element>(
        &self,
        call: &'static str,
        [input, output]: [Option<usize>; 2],
        sent: &[Layout<T>],
        received: &[Layout<U>],
    ) -> Result<Prepared, Error> {
        let from = input.map(|len| (sent, len * size_of::<T>()));
        let forms = forms(call, from, received, present(call, output)? * size_of::<U>())?;
        Ok(prepared(call, self.alltoallw_plan(call, &forms)?, forms))
    }

    fn prepare_neighbour_alltoallw<T: Element, U: Element>(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        [input, output]: [Option<usize>; 2],
        sent: &[Layout<T>],
        received: &[Layout<U>],
    ) -> Result<Prepared, Error> {
        let from = Some((sent, present(call, input)? * size_of::<T>()));
        let forms = forms(call, from, received, present(call, output)? * size_of::<U>())?;
        Ok(prepared(call, self.neighbour_alltoallw_plan(call, neighbourhood, &forms)?, forms))
    }

    fn alltoallw_plan(&self, call: &'static str, forms: &Forms) -> Result<Plan, Error> {
        let groups = self.groups_unless(forms.sent.is_none())?;
        let [sent, received] = forms.blocks();
        for (what, blocks) in [("input", &sent), ("output", &received)] {
            if blocks.len() != self.others() {
                return Err(Error::WrongBlocks { call, what, why: "there must be one for each rank" });
            }
        }
        let (sent, received) =
            (|to: u32| sent[to as usize].clone(), |from: u32| received[from as usize].clone());
        if let Some(groups) = groups {
            return Ok(groups.all_pairs(sent, received));
        }
        let at = self.place();
        if sent(at.rank()).len() != received(at.rank()).len() {
            let why =
                "the block that this rank sends to itself differs in length from the one that it receives";
            return Err(Error::WrongBlocks { call, what: "input", why });
        }
        let [sends, receives] = all_pairs(at, sent, received);
        Ok(Plan::Exchange { sends, receives })
    }

    fn neighbour_alltoallw_plan(
        &self,
        call: &'static str,
        neighbourhood: &Neighbourhood,
        forms: &Forms,
    ) -> Result<Plan, Error> {
        let [sent, received] = forms.blocks();
        let whole = [&sent, &received].map(|blocks| blocks.last().map_or(0, |block| block.end));
        self.neighbour_alltoallv_plan(call, neighbourhood, whole, [&sent, &received])
    }

    /// Carries out an exchange of blocks with layouts.
    fn exchange_forms(
        &self,
        called: Called,
        plan: Plan,
        forms: Forms,
        (input, output): (&[u8], &mut [u8]),
    ) -> Result<(), Error> {
        let layouts = Layouts::new(forms.sent, forms.received);
        let copy = if layouts.is_in_place() { packed(&layouts, output)? } else { Vec::new() };
        let input = if layouts.is_in_place() { &copy } else { input };
        let reduce = |_: &[u8], _: &mut [u8]| unreachable!("the operation has no reduction");
        let layouts = Some(&layouts);
        let check = self.check_of(called, &plan);
        let buffers = BorrowedBuffers { input, output, scratch: &mut [], reduce: &reduce, layouts };
        let operation = self.operation(&plan, 1, buffers, check, None);
        let result = self.runtime.collective(self.derived.as_deref(), operation, &self.bounds);
        result.map_err(|error| self.local_error(error))
    }
}

/// The places of the bytes of the blocks.
struct Forms {
    /// `None` in place.
    sent: Option<Vec<Form>>,
    received: Vec<Form>,
}

impl Forms {
    /// Returns the sent and the received blocks as ranges of the packed bytes.
    fn blocks(&self) -> [Vec<Range<usize>>; 2] {
        let sizes = |forms: &[Form]| super::consecutive(forms.iter().map(Form::size));
        let received = sizes(&self.received);
        [self.sent.as_deref().map_or_else(|| received.clone(), sizes), received]
    }
}

/// Checks the layouts of blocks against the numbers of bytes of their buffers. `sent` is `None` in place.
fn forms<T: Element, U: Element>(
    call: &'static str,
    sent: Option<(&[Layout<T>], usize)>,
    received: &[Layout<U>],
    output: usize,
) -> Result<Forms, Error> {
    let sent = sent.map(|(layouts, bytes)| within(call, layouts, bytes)).transpose()?;
    let received = within(call, received, output)?;
    let all = Form::list(received.iter().map(|form| (0, form)));
    match all.map_err(|error| LayoutError::of(call, error))?.is_disjoint() {
        true => Ok(Forms { sent, received }),
        false => Err(LayoutError::Overlap { call }.into()),
    }
}

fn within<T: Element>(
    call: &'static str,
    layouts: &[Layout<T>],
    bytes: usize,
) -> Result<Vec<Form>, LayoutError> {
    layouts.iter().map(|layout| layout.form_within(call, bytes).cloned()).collect()
}

/// Returns the arguments of an operation with layouts.
fn prepared(call: &'static str, plan: Plan, forms: Forms) -> Prepared {
    let end = |forms: &[Form]| forms.iter().map(|form| form.true_bounds()[1]).max().unwrap_or(0);
    let used = [forms.sent.as_deref().map_or(0, end), end(&forms.received)];
    let used = used.map(|end| usize::try_from(end).expect("a layout lies within its buffer"));
    let layouts = Some(Arc::new(Layouts::new(forms.sent, forms.received)));
    let scratch = Memory::zeroed(0);
    // No algorithm for layouts uses a board.
    let (types, reduce, settled) = (Types::NONE, no_reduction(), Ok(()));
    Prepared { call, types, plan, element: 1, used, scratch, reduce, layouts, settled }
}
