//! Parts of a window that this rank reads and writes itself.

use samite_rma::{Action, View};
use zerocopy::IntoBytes as _;

use super::{Window, WindowError, WindowNumber, WindowOp};
use crate::element::Element;
use crate::error::{Error, Public as _};
use crate::runtime::{Then, WindowCall};
use crate::select::Rank;

/// A rank's part of a window in the memory of this rank: see [`Window::view`]. Other ranks may change its elements at
/// any time, so they are copied, and there are no references to them.
///
/// An access to a view is a few loads and stores of the processor: it makes no call of the runtime, needs no epoch, and
/// may be made in any thread.
///
/// # Order
/// The ranks agree among themselves when each may access the elements, by messages, barriers, or elements that serve as
/// flags. A rank that sees a store also sees the earlier stores of the same rank. A load may overtake an earlier store
/// of its own rank to another place: put [`fence(SeqCst)`](std::sync::atomic::fence) between the two where that matters.
/// An element whose size is 1, 2, 4 or 8 bytes is read and written whole. Accumulates in epochs and the atomic operations
/// of views are atomic with respect to each other. But accumulates by a rank with the hint
/// [`unshared_accumulates`](crate::WindowHints::unshared_accumulates) read elements and write them back: a change that a
/// view makes meanwhile can be lost.
///
/// A view makes no progress for other operations of its rank. So a loop that waits for an element also calls the
/// library, for example [`Comm::try_probe`](crate::Comm::try_probe).
#[derive(Debug)]
pub struct WindowView<'w, T: Element> {
    window: &'w Window<T>,
    rank: Rank,
    part: View,
}

impl<T: Element> Window<T> {
    /// Returns the part of a rank of this host as memory (`MPI_Win_shared_query`). All ranks have made the window by
    /// [`allocate_window`](crate::Comm::allocate_window), and their transport is `samite-shm`, which is the default
    /// between ranks of a host, but not in [`samite::local`](crate::local). The first view of a rank waits until that
    /// rank has made the window.
    ///
    /// The view stays valid when the rank fails, and then has what the rank has left there.
    ///
    /// ```
    /// use samite::{Rank, World};
    ///
    /// let mut settings = samite::Settings::default();
    /// settings.set_transport("samite-shm").unwrap();
    /// let body = |world: World| -> Result<(), samite::Error> {
    ///     let comm = world.comm();
    ///     // Each rank has one element, in memory that all of them share.
    ///     let window = comm.allocate_window::<u64>(1)?;
    ///     let next = window.view(Rank((comm.rank().0 + 1) % 3))?;
    ///     next.store(0, 7)?;
    ///     comm.barrier()?;
    ///     assert_eq!(window.read_vec(0..1)?, [7]);
    ///     Ok(())
    /// };
    /// settings.local(3, body).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// [`WindowError::NotShared`] if the part is not in memory that this rank can map; this rank's own part is no
    /// exception. [`Error::InvalidRank`]; [`Error::PeerFailed`] if the rank has failed before;
    /// [`WindowError::Unsuitable`] if the elements of the part do not have the size of `T`; [`WindowError::TimedOut`],
    /// [`Error::Cancelled`], [`Error::Closed`], [`Error::Forked`].
    pub fn view(&self, rank: Rank) -> Result<WindowView<'_, T>, Error> {
        const CALL: &str = "Window::view";
        if let Some(view) = self.comm().handle_result(CALL, self.view_of_met(rank))? {
            return Ok(view);
        }
        let begun = self.world_rank(rank).and_then(|target| {
            self.begin(Then::Waits, |WindowCall { windows, out, deadline }| {
                Ok((Some(windows.meet_member(out.link, self.id, target, deadline)?), ()))
            })
        });
        let (request, ()) = self.comm().handle_result(CALL, begun)?;
        self.request::<()>(request)?.wait_as(CALL)?;
        let view = self.view_of_met(rank).map(|view| view.expect("the two ranks have met"));
        self.comm().handle_result(CALL, view)
    }

    /// Returns the view of a rank's part, or `None` if the rank was not met yet.
    fn view_of_met(&self, rank: Rank) -> Result<Option<WindowView<'_, T>>, Error> {
        let target = self.world_rank(rank)?;
        let part =
            self.comm.runtime.on_windows(&self.comm.bounds, |WindowCall { windows, mut out, .. }| {
                windows.view(&mut out, self.id, target)
            });
        let Some(part) = part.map_err(|error| self.comm.local_error(error))? else { return Ok(None) };
        if part.unit() as usize != size_of::<T>().max(1) {
            let why =
                format!("the elements of rank {rank} have {} bytes, and not {}", part.unit(), size_of::<T>());
            return Err(Error::Window(Box::new(WindowError::Unsuitable(why))));
        }
        Ok(Some(WindowView { window: self, rank, part }))
    }
}

impl<T: Element> Window<T> {
    /// Returns the result of an access to the memory of another rank.
    #[inline]
    pub(super) fn handle_access(
        &self,
        call: &'static str,
        result: Result<(), samite_rma::Error>,
    ) -> Result<(), Error> {
        result.map_err(|error| self.comm().handle_world_error(call, error.public()))
    }
}

impl<T: Element> WindowView<'_, T> {
    /// Returns the rank whose part this is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.part.len().checked_div(size_of::<T>()).unwrap_or(0)
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies elements out, from index `at` on.
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`]; [`WindowError::Ended`] if the other rank has ended its part without this one: it has
    /// left the job, or this rank was declared failed; [`Error::Closed`], [`Error::Forked`].
    pub fn read(&self, at: usize, into: &mut [T]) -> Result<(), Error> {
        self.carry_out("WindowView::read", at, Action::Get, into)
    }

    /// Returns a copy of elements.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn read_vec(&self, range: std::ops::Range<usize>) -> Result<Vec<T>, Error> {
        // Before memory is allocated for them.
        let checked = self.window.bytes_of(self.rank, range.start, range.len(), self.len());
        self.window.comm().handle_result("WindowView::read_vec", checked)?;
        let mut elements = vec![T::new_zeroed(); range.len()];
        self.read(range.start, &mut elements)?;
        Ok(elements)
    }

    /// Copies elements in, from index `at` on. Ranks see them in the order of their places, whole words of 8 bytes at a
    /// time.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn write(&self, at: usize, from: &[T]) -> Result<(), Error> {
        self.put("WindowView::write", at, from.as_bytes())
    }

    /// Returns an element. Afterwards the stores are visible that its writer made before it wrote the element.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn load(&self, at: usize) -> Result<T, Error> {
        let mut element = [T::new_zeroed()];
        self.carry_out("WindowView::load", at, Action::Get, &mut element)?;
        let [element] = element;
        Ok(element)
    }

    /// Writes an element. It becomes visible after all earlier stores of this rank.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read).
    pub fn store(&self, at: usize, element: T) -> Result<(), Error> {
        self.put("WindowView::store", at, element.as_bytes())
    }

    fn put(&self, call: &'static str, at: usize, from: &[u8]) -> Result<(), Error> {
        self.check_open(call)?;
        let written = self.part.write(offset::<T>(at), Action::Put, from);
        self.window.handle_access(call, written)
    }

    fn carry_out(
        &self,
        call: &'static str,
        at: usize,
        action: Action,
        into: &mut [impl Element],
    ) -> Result<(), Error> {
        self.check_open(call)?;
        let fetched = self.part.fetch(offset::<T>(at), action, into.as_mut_bytes());
        self.window.handle_access(call, fetched)
    }

    /// Refuses the accesses of a rank that has left, and those of a child of fork(2).
    #[inline]
    fn check_open(&self, call: &'static str) -> Result<(), Error> {
        let comm = self.window.comm();
        if comm.runtime.is_open() { Ok(()) } else { Err(comm.handle_error(call, comm.runtime.refused())) }
    }
}

/// Atomic operations on elements of at most 8 bytes. Those on elements of 16 bytes need an epoch.
impl<T: WindowNumber> WindowView<'_, T> {
    /// Combines an element with `operand`, and returns the former element. See [`Epoch::fetch`](crate::Epoch::fetch).
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`WindowError::Unsuitable`] if the operation is not defined for the type, or if
    /// an element has more than 8 bytes.
    pub fn fetch(&self, at: usize, operand: T, op: WindowOp) -> Result<T, Error> {
        let action = Action::GetAccumulate { op: op.reduction(), element: T::element_type().0 };
        let mut element = [operand];
        self.carry_out("WindowView::fetch", at, action, &mut element)?;
        Ok(element[0])
    }

    /// Replaces an element by `new` if it is equal to `expected`, and returns the former element. See
    /// [`Epoch::compare_swap`](crate::Epoch::compare_swap).
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`WindowError::Unsuitable`] if an element has more than 8 bytes.
    pub fn compare_swap(&self, at: usize, expected: T, new: T) -> Result<T, Error> {
        let action = Action::CompareSwap { element: T::element_type().0 };
        let mut elements = [expected, new];
        self.carry_out("WindowView::compare_swap", at, action, &mut elements)?;
        Ok(elements[0])
    }
}

/// Returns the offset of an element, or one behind every part.
pub(super) fn offset<T>(at: usize) -> u64 {
    (at as u64).saturating_mul(size_of::<T>() as u64)
}
