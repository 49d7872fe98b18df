//! Epochs: the spans in which a rank accesses other parts of a window, or exposes its own.

use std::marker::PhantomData;
use std::time::Duration;

use samite_fabric::layout::Room;
use samite_fabric::link::{Link, Time};
use samite_fabric::{Body as _, Memory};
use samite_p2p::{Group, RequestId};
use samite_rma::{Action, Assertions, EpochId, Places, Target, WindowId, Windows};
use zerocopy::{FromZeros, IntoBytes};

use super::direct::Direct;
use super::{LockKind, Window, WindowNumber, WindowOp, WindowPlace};
use crate::buffer::{Buffer, BufferMut, Held};
use crate::cancel::CancelToken;
use crate::element::Element;
use crate::error::Error;
use crate::layout::{IntoView, IntoViewMut, Layout, View};
use crate::request::Request;
use crate::runtime::{Then, WindowCall};
use crate::select::Rank;

/// An open epoch of a [`Window`]. Its kind `K` decides which calls it has: [`Fence`], [`Access`], [`Exposure`] or
/// [`Lock`].
///
/// [`close`](Self::close) consumes the epoch, and waits until it has completed: until all of its operations are done at
/// their targets. [`iclose`](Self::iclose) returns a request for that. Epochs that are closed without waiting complete
/// in the order in which they were opened; a later epoch waits inside the library, and not in a call.
///
/// An epoch that is dropped is closed, and its result is not reported. It ends at the latest when the window's
/// [time-out](Window::set_timeout) has passed, and at once if the window's cancel was called before. Without them, later
/// epochs wait for it as long as its targets let it wait.
///
/// The compiler refuses an operation in an epoch that is closed, or in one of exposure, and the end of a window that has
/// an open epoch:
///
/// ```compile_fail,E0382
/// # fn f(window: &samite::Window<u64>) -> Result<(), samite::Error> {
/// let epoch = window.fence()?;
/// epoch.close()?;
/// epoch.put(samite::Rank(0), 0, &[1])
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn f(window: &samite::Window<u64>) -> Result<(), samite::Error> {
/// let exposure = window.post(&[samite::Rank(0)])?;
/// exposure.put(samite::Rank(0), 0, &[1])
/// # }
/// ```
///
/// ```compile_fail,E0505
/// # fn f(window: samite::Window<u64>) -> Result<(), samite::Error> {
/// let epoch = window.lock_all()?;
/// window.free()?;
/// epoch.close()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an epoch that is dropped is closed"]
pub struct Epoch<'w, T: Element, K: EpochKind> {
    pub(super) window: &'w Window<T>,
    /// `None` once it is closed.
    pub(super) id: Option<EpochId>,
    /// The targets whose parts this rank accesses without the runtime.
    pub(super) direct: Direct,
    kind: PhantomData<K>,
}

/// The kind of an [`Epoch`]. The trait is sealed: other types cannot implement it.
pub trait EpochKind: Closing {}

/// The kind of an epoch that has operations: every kind except [`Exposure`]. The trait is sealed: other types cannot
/// implement it.
pub trait AccessKind: EpochKind {}

/// The epoch between two fences, in which each rank accesses all parts: [`Window::fence`].
#[derive(Debug)]
pub enum Fence {}

/// An epoch of access to the parts of some ranks: [`Window::start`].
#[derive(Debug)]
pub enum Access {}

/// An epoch in which some ranks access this rank's part: [`Window::post`].
#[derive(Debug)]
pub enum Exposure {}

/// An epoch of access under a lock at one rank, or at all: [`Window::lock`], [`Window::lock_all`].
#[derive(Debug)]
pub enum Lock {}

impl EpochKind for Fence {}
impl EpochKind for Access {}
impl EpochKind for Exposure {}
impl EpochKind for Lock {}
impl AccessKind for Fence {}
impl AccessKind for Access {}
impl AccessKind for Lock {}

/// The implementation of [`EpochKind`], hidden from other crates.
pub trait Closing {
    #[doc(hidden)]
    const IS_LOCK: bool;
    #[doc(hidden)]
    fn close(
        windows: &mut Windows,
        link: &mut Link,
        epoch: EpochId,
        deadline: Time,
    ) -> Result<Option<RequestId>, samite_rma::Error>;
}

impl Closing for Fence {
    const IS_LOCK: bool = false;

    fn close(
        windows: &mut Windows,
        link: &mut Link,
        epoch: EpochId,
        deadline: Time,
    ) -> Result<Option<RequestId>, samite_rma::Error> {
        Ok(windows.fence(link, epoch.window(), Assertions::NO_SUCCEED, deadline)?.completion)
    }
}

macro_rules! closed_alone {
    ($($kind:ident = $is_lock:literal)*) => {
        $(impl Closing for $kind {
            const IS_LOCK: bool = $is_lock;

            fn close(
                windows: &mut Windows,
                link: &mut Link,
                epoch: EpochId,
                deadline: Time,
            ) -> Result<Option<RequestId>, samite_rma::Error> {
                windows.close(link, epoch, deadline).map(Some)
            }
        })*
    };
}

closed_alone! { Access = false Exposure = false Lock = true }

impl<T: Element> Window<T> {
    /// Opens an epoch in which each rank accesses all parts. All ranks call it (`MPI_Win_fence`). It ends with
    /// [`Epoch::close`], or with [`Epoch::next`], which opens the next epoch.
    ///
    /// # Errors
    /// [`Error::Exhausted`]; [`WindowError::WrongState`](super::WindowError::WrongState) if another epoch of this rank is
    /// open.
    pub fn fence(&self) -> Result<Epoch<'_, T, Fence>, Error> {
        self.open("Window::fence", |windows, link, id| {
            let fenced = windows.fence(link, id, Assertions::NO_PRECEDE, Time::NEVER)?;
            fenced.epoch.ok_or(samite_rma::Error::NoSuchEpoch)
        })
    }

    /// Opens an epoch of access to the parts of these ranks (`MPI_Win_start`; closing it is `MPI_Win_complete`). Each
    /// of them exposes its part by [`post`](Self::post).
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Exhausted`]; [`WindowError::WrongState`](super::WindowError::WrongState) if
    /// another epoch of access is open.
    pub fn start(&self, targets: &[Rank]) -> Result<Epoch<'_, T, Access>, Error> {
        let targets = self.ranks("Window::start", targets)?;
        self.open("Window::start", |windows, link, id| windows.start(link, id, &targets))
    }

    /// Opens an epoch in which these ranks access this rank's part (`MPI_Win_post`; closing it is `MPI_Win_wait`). Each
    /// of them opens its epoch by [`start`](Self::start).
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Exhausted`]; [`WindowError::WrongState`](super::WindowError::WrongState) if
    /// another epoch of exposure is open.
    pub fn post(&self, origins: &[Rank]) -> Result<Epoch<'_, T, Exposure>, Error> {
        let origins = self.ranks("Window::post", origins)?;
        self.open("Window::post", |windows, link, id| windows.post(link, id, &origins))
    }

    /// Opens an epoch of access under a lock at a rank, which makes no call (`MPI_Win_lock`; closing it is
    /// `MPI_Win_unlock`). The call does not wait for the lock: the operations wait for it.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{LockKind, Rank, WindowOp};
    ///
    /// let counter = comm.window(vec![0_u64; 1])?;
    /// let epoch = counter.lock(Rank(0), LockKind::Shared)?;
    /// let ticket = epoch.fetch(Rank(0), 0, 1, WindowOp::Sum)?;
    /// epoch.close()?;
    /// assert!(ticket < 3);
    /// let counts = counter.free()?;
    /// assert!(comm.rank() != Rank(0) || counts == [3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Exhausted`]; [`WindowError::WrongState`](super::WindowError::WrongState) if
    /// this rank has a lock at that rank already, or another epoch of access or of a fence is open.
    pub fn lock(&self, rank: Rank, kind: LockKind) -> Result<Epoch<'_, T, Lock>, Error> {
        let target = self.comm().handle_result("Window::lock", self.world_rank(rank))?;
        let kind = match kind {
            LockKind::Shared => samite_rma::LockKind::Shared,
            LockKind::Exclusive => samite_rma::LockKind::Exclusive,
        };
        let mut is_bare = false;
        let mut epoch = self.open("Window::lock", |windows, link, id| {
            let epoch = windows.lock(link, id, target, kind)?;
            is_bare = windows.is_bare(epoch);
            Ok(epoch)
        })?;
        if is_bare {
            epoch.direct = Direct::bare(&self.views, rank);
        }
        Ok(epoch)
    }

    /// Opens an epoch of access under shared locks at all ranks (`MPI_Win_lock_all`; closing it is
    /// `MPI_Win_unlock_all`). A rank is asked for its lock at the first operation.
    ///
    /// # Errors
    /// Returns the errors of [`lock`](Self::lock).
    pub fn lock_all(&self) -> Result<Epoch<'_, T, Lock>, Error> {
        self.open("Window::lock_all", |windows, link, id| windows.lock_all(link, id))
    }

    fn open<K: EpochKind>(
        &self,
        call: &'static str,
        open: impl FnOnce(&mut Windows, &mut Link, WindowId) -> Result<EpochId, samite_rma::Error>,
    ) -> Result<Epoch<'_, T, K>, Error> {
        let id = self.id;
        let opened = self.comm().runtime.on_windows(self.bounds(), |WindowCall { windows, out, .. }| {
            // MPI's fence begins no epoch if another kind of epoch follows it. Here the epoch of the fence has a handle,
            // which would be useless then.
            if windows.is_in_fence(id)? {
                let call = call.strip_prefix("Window::").unwrap_or(call);
                return Err(samite_rma::Error::WrongState { call, open: "an epoch of a fence" });
            }
            open(windows, out.link, id)
        });
        match opened {
            Ok(id) => Ok(Epoch { window: self, id: Some(id), direct: Direct::default(), kind: PhantomData }),
            Err(error) => Err(self.comm().handle_world_error(call, error)),
        }
    }

    fn ranks(&self, call: &'static str, ranks: &[Rank]) -> Result<Group, Error> {
        let group = ranks.iter().map(|rank| self.world_rank(*rank)).collect::<Result<Vec<_>, _>>();
        let group = group.and_then(|ranks| {
            Group::new(ranks).map_err(|_| Error::Exhausted {
                what: "places of one rank in a group",
                hint: "name each rank once".into(),
            })
        });
        self.comm().handle_result(call, group)
    }
}

impl<'w, T: Element, K: EpochKind> Epoch<'w, T, K> {
    /// Closes the epoch, and waits until it has completed.
    ///
    /// # Errors
    /// The first error of its operations, for example
    /// [`WindowError::NotAttached`](super::WindowError::NotAttached); [`Error::PeerFailed`] if a rank has failed for
    /// which the epoch waits;
    /// [`WindowError::TimedOut`](super::WindowError::TimedOut), which names the awaited ranks; [`Error::Cancelled`],
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn close(mut self) -> Result<(), Error> {
        if self.close_bare() {
            return Ok(());
        }
        Ok(self.begin_close("Epoch::close", Then::Waits)?.wait_as("Epoch::close").map(|_| ())?)
    }

    /// Closes the epoch. The request ends when the epoch has completed, with the errors of [`close`](Self::close).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn iclose(mut self) -> Result<Request<()>, Error> {
        let window = self.window;
        if self.close_bare() {
            let ended = window.comm().runtime.begin_ended(window.comm().context, Memory::zeroed(0));
            return window.request(Some(window.comm().handle_result("Epoch::iclose", ended)?));
        }
        self.begin_close("Epoch::iclose", Then::Returns)
    }

    /// Begins to close the epoch.
    fn begin_close(&mut self, call: &'static str, then: Then) -> Result<Request<()>, Error> {
        let window = self.window;
        let Some(id) = self.id.take() else { return Err(Error::NoSuchRequest) };
        let closed = window.begin(then, |WindowCall { windows, out, deadline }| {
            self.report_direct(windows);
            Ok((K::close(windows, out.link, id, deadline)?, ()))
        });
        let (request, ()) = window.comm().handle_result(call, closed)?;
        window.request(request)
    }

    /// Closes the epoch, and returns true, if it is still bare and can give its lock back within the call. Then also makes
    /// progress if there is work: a loop of such epochs makes no other call, and another rank may wait for this one.
    fn close_bare(&mut self) -> bool {
        let Some(id) = self.id.filter(|_| self.direct.was_bare()) else { return false };
        let (window, mut is_closed) = (self.window, false);
        // An error of the progress is that of the next call too.
        let _ =
            window.comm().runtime.try_on_windows(window.bounds(), |WindowCall { windows, out, .. }| {
                self.report_direct(windows);
                is_closed = windows.close_bare(out.link, id);
                Ok(is_closed)
            });
        if is_closed {
            self.id = None;
        }
        is_closed
    }
}

impl<T: Element, K: EpochKind> Drop for Epoch<'_, T, K> {
    fn drop(&mut self) {
        if self.id.is_none() || self.close_bare() {
            return;
        }
        let Some(id) = self.id.take() else { return };
        let bounds = self.window.bounds();
        let is_cancelled = bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        // If the runtime was closed, the epoch has ended with it.
        let _ = self.window.comm().runtime.on_windows(bounds, |WindowCall { windows, out, deadline }| {
            self.report_direct(windows);
            if let Some(request) = K::close(windows, out.link, id, deadline)? {
                if is_cancelled {
                    windows.cancel(out.link, request);
                }
                windows.detach(request);
            }
            Ok(())
        });
        // A loop that drops its epochs makes no other call, and another rank may wait for this one's lock.
        let _ = self.window.comm().runtime.drive(&mut ());
    }
}

impl<'w, T: Element> Epoch<'w, T, Fence> {
    /// Closes the epoch by a fence, waits until it has completed, and returns the next epoch. All ranks call it or
    /// [`inext`](Self::inext), or all close the epoch. If the wait ends with an error, for example at its deadline, the
    /// next epoch has begun already, and is closed: this rank takes part in one more fence.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close); [`Error::Exhausted`].
    pub fn next(self) -> Result<Self, Error> {
        let (request, next) = self.begin_next("Epoch::next", Then::Waits)?;
        request.wait_as("Epoch::next")?;
        Ok(next)
    }

    /// Closes the epoch by a fence. Returns a request, which ends when the epoch has completed, and the next epoch,
    /// whose operations can be started before that. All ranks call it or [`next`](Self::next), or all close the epoch.
    ///
    /// # Errors
    /// Returns the errors of [`iclose`](Self::iclose); [`Error::Exhausted`].
    pub fn inext(self) -> Result<(Request<()>, Self), Error> {
        self.begin_next("Epoch::inext", Then::Returns)
    }

    fn begin_next(mut self, call: &'static str, then: Then) -> Result<(Request<()>, Self), Error> {
        let window = self.window;
        let Some(id) = self.id else { return Err(Error::NoSuchRequest) };
        let fenced = window.begin(then, |WindowCall { windows, out, deadline }| {
            let fenced = windows.fence(out.link, id.window(), Assertions::empty(), deadline)?;
            Ok((fenced.completion, fenced.epoch))
        });
        // After an error the epoch is still open, and dropping its handle closes it.
        let (request, next) = window.comm().handle_result(call, fenced)?;
        self.id = None;
        Ok((
            window.request(request)?,
            Self { window, id: next, direct: Direct::default(), kind: PhantomData },
        ))
    }
}

impl<T: Element> Epoch<'_, T, Exposure> {
    /// Makes progress, and returns true if the accesses of all origins are over, so that [`close`](Self::close) does
    /// not wait (`MPI_Win_test`).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], [`Error::Condemned`].
    pub fn is_finished(&self) -> Result<bool, Error> {
        let Some(id) = self.id else { return Ok(true) };
        let comm = self.window.comm();
        let over = comm.runtime.drive(&mut ()).and_then(|()| {
            comm.runtime.on_windows(self.window.bounds(), |WindowCall { windows, out, .. }| {
                windows.is_exposure_over(out.link, id)
            })
        });
        over.map_err(|error| comm.handle_world_error("Epoch::is_finished", error))
    }
}

impl<T: Element> Epoch<'_, T, Lock> {
    /// Waits until all operations of the epoch to one rank are done there (`MPI_Win_flush`).
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn flush(&self, target: Rank) -> Result<(), Error> {
        if self.flush_directly(target) || self.is_flushed("Epoch::flush", Some(target))? {
            return Ok(());
        }
        const CALL: &str = "Epoch::flush";
        Ok(self.begin_flush(CALL, Then::Waits, Some(target))?.wait_as(CALL).map(|_| ())?)
    }

    /// Begins a [`flush`](Self::flush), and returns its request.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`WindowError::NotATarget`](super::WindowError::NotATarget), [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn iflush(&self, target: Rank) -> Result<Request<()>, Error> {
        self.begin_flush("Epoch::iflush", Then::Returns, Some(target))
    }

    /// Waits until all operations of the epoch are done at their targets (`MPI_Win_flush_all`).
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn flush_all(&self) -> Result<(), Error> {
        if self.is_flushed("Epoch::flush_all", None)? {
            return Ok(());
        }
        const CALL: &str = "Epoch::flush_all";
        Ok(self.begin_flush(CALL, Then::Waits, None)?.wait_as(CALL).map(|_| ())?)
    }

    /// Begins a [`flush_all`](Self::flush_all), and returns its request.
    ///
    /// # Errors
    /// Returns the errors of [`iflush`](Self::iflush).
    pub fn iflush_all(&self) -> Result<Request<()>, Error> {
        self.begin_flush("Epoch::iflush_all", Then::Returns, None)
    }

    /// Returns true if a flush need not wait.
    fn is_flushed(&self, call: &'static str, target: Option<Rank>) -> Result<bool, Error> {
        let (window, comm) = (self.window, self.window.comm());
        let Some(id) = self.id else { return Err(Error::NoSuchRequest) };
        let flushed = target.map(|rank| window.world_rank(rank)).transpose().and_then(|target| {
            let flushed =
                comm.runtime.try_on_windows(window.bounds(), |WindowCall { windows, out, .. }| {
                    self.report_direct(windows);
                    windows.is_flushed(out.link, id, target)
                });
            flushed.map_err(|error| comm.local_error(error))
        });
        comm.handle_result(call, flushed)
    }

    fn begin_flush(
        &self,
        call: &'static str,
        then: Then,
        target: Option<Rank>,
    ) -> Result<Request<()>, Error> {
        let window = self.window;
        let Some(id) = self.id else { return Err(Error::NoSuchRequest) };
        let begun = target.map(|rank| window.world_rank(rank)).transpose().and_then(|target| {
            window.begin(then, |WindowCall { windows, out, deadline }| {
                Ok((Some(windows.flush(out.link, id, target, deadline)?), ()))
            })
        });
        let (request, ()) = window.comm().handle_result(call, begun)?;
        window.request(request)
    }
}

/// Operations. The elements of a slice are copied in the call. `at` is the index of an element of the target's part; in
/// a [dynamic window](crate::Comm::dynamic_window) it is a region and an index in this region.
///
/// The calls with a [`Layout`] access the elements that it selects in the target's part, counted from element `at`, in
/// the order of the layout (MPI's target datatype). The data is a slice, or a view of another layout (the origin
/// datatype): only the number of bytes must agree, as for messages. An operation with a layout travels as operations on
/// its blocks of contiguous elements, and has one request. So a layout of few long blocks takes less time than one of
/// many short blocks.
///
/// Operations of one epoch on the same elements have no order, except accumulates, fetches and swaps of one rank (MPI
/// 4.1, section 12.7.2). Put them into different epochs, or call [`Epoch::flush`] between them.
impl<T: Element, K: AccessKind> Epoch<'_, T, K> {
    /// Writes elements to a part (`MPI_Put`). They are there when the epoch has completed, or after a flush. A slice of 32
    /// KiB or more that cannot be written at once waits for that, at most 20 µs, before it is copied.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Exhausted`];
    /// [`WindowError::OutOfBounds`](super::WindowError::OutOfBounds) if the size of the part is known by now, otherwise
    /// [`close`](Self::close) returns it.
    pub fn put(&self, to: Rank, at: impl Into<WindowPlace>, data: &[T]) -> Result<(), Error> {
        self.write("Epoch::put", (to, at.into()), None, Action::Put, data.as_bytes())
    }

    /// Writes elements to a part as [`put`](Self::put) does (`MPI_Rput`). The request returns the vector when its
    /// elements were sent.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub fn iput(&self, to: Rank, at: impl Into<WindowPlace>, data: Vec<T>) -> Result<Request<Vec<T>>, Error> {
        self.start("Epoch::iput", Then::Returns, (to, at.into()), None, Action::Put, data)
    }

    /// Writes elements to the places of a layout in a part, as [`put`](Self::put) does (`MPI_Put` with datatypes).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank};
    ///
    /// // Each part is a matrix of 3 rows and 4 columns. Each rank writes its last column to the other's first one.
    /// let matrix: Vec<u32> = (0..12).map(|index| comm.rank().0 * 100 + index).collect();
    /// let window = comm.window(matrix.clone())?;
    /// let column = Layout::vector(3, 1, 4)?;
    /// let other = Rank(1 - comm.rank().0);
    /// let epoch = window.fence()?;
    /// epoch.put_view(other, 0, &column, column.of(&matrix[3..])?)?;
    /// epoch.close()?;
    /// let part = window.free()?;
    /// assert_eq!([part[0], part[4], part[8]], [3, 7, 11].map(|index| other.0 * 100 + index));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// The errors of [`put`](Self::put); [`WindowError::LayoutLength`](super::WindowError::LayoutLength) if the layout
    /// does not select as many bytes as the data has;
    /// [`WindowError::LayoutOverlap`](super::WindowError::LayoutOverlap) if it selects a byte twice.
    pub fn put_view<'v>(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        data: impl IntoView<'v, T>,
    ) -> Result<(), Error> {
        self.write_view("Epoch::put_view", (to, at.into()), layout, Action::Put, data.bound())
    }

    /// Writes elements to the places of a layout in a part, as [`put_view`](Self::put_view) does (`MPI_Rput` with
    /// datatypes). The data is a vector, or another buffer of as many bytes as the layout selects, for example of a
    /// [layout](Layout::of_owned). The request returns it when its elements were sent.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, LockKind, Rank};
    ///
    /// let window = comm.window(vec![0_u8; 6])?;
    /// let epoch = window.lock(Rank(1), LockKind::Shared)?;
    /// let ends = Layout::indexed([(0, 1), (5, 1)])?;
    /// let sent = epoch.iput_view(Rank(1), 0, &ends, vec![7_u8, 8])?;
    /// assert_eq!(sent.wait()?.buffer, [7, 8]);
    /// epoch.close()?;
    /// let part = window.free()?;
    /// assert!(comm.rank() != Rank(1) || part == [7, 0, 0, 0, 0, 8]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`put_view`](Self::put_view).
    pub fn iput_view<B: Buffer>(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        data: B,
    ) -> Result<Request<B>, Error> {
        self.start("Epoch::iput_view", Then::Returns, (to, at.into()), Some(layout), Action::Put, data)
    }

    /// Reads elements of a part, and waits for them.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put) and [`close`](Self::close).
    pub fn get(&self, from: Rank, at: impl Into<WindowPlace>, into: &mut [T]) -> Result<(), Error> {
        let at = at.into();
        if self.read("Epoch::get", (from, at), None, Action::Get, into.as_mut_bytes())? {
            return Ok(());
        }
        let into_vec = into.to_vec();
        let got = self.start("Epoch::get", Then::Waits, (from, at), None, Action::Get, into_vec)?;
        into.copy_from_slice(&got.wait_as("Epoch::get")?.buffer);
        Ok(())
    }

    /// Reads elements of a part, as many as `into` has (`MPI_Get`, `MPI_Rget`). The request returns them.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub fn iget(
        &self,
        from: Rank,
        at: impl Into<WindowPlace>,
        into: Vec<T>,
    ) -> Result<Request<Vec<T>>, Error> {
        self.start("Epoch::iget", Then::Returns, (from, at.into()), None, Action::Get, into)
    }

    /// Reads the elements at the places of a layout in a part into a slice or a view, and waits for them. The layout
    /// may select an element several times.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank};
    ///
    /// // The last column of the other rank's matrix of 3 rows and 4 columns.
    /// let window = comm.window((0..12).collect::<Vec<u32>>())?;
    /// let column = Layout::vector(3, 1, 4)?;
    /// let mut numbers = [0; 3];
    /// let epoch = window.lock_all()?;
    /// epoch.get_view(Rank(1 - comm.rank().0), 3, &column, &mut numbers)?;
    /// epoch.close()?;
    /// assert_eq!(numbers, [3, 7, 11]);
    /// # window.free()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`get`](Self::get); [`WindowError::LayoutLength`](super::WindowError::LayoutLength) if the
    /// layout does not select as many bytes as the view has.
    pub fn get_view<'v>(
        &self,
        from: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        into: impl IntoViewMut<'v, T>,
    ) -> Result<(), Error> {
        let (call, target, mut into) = ("Epoch::get_view", (from, at.into()), into.bound());
        let mut packed = vec![0; into.size()];
        if !self.read(call, target, Some(layout), Action::Get, &mut packed)? {
            let got = self.start(call, Then::Waits, target, Some(layout), Action::Get, packed)?;
            packed = got.wait_as(call)?.buffer;
        }
        into.bytes.put(0, &packed[..]);
        Ok(())
    }

    /// Reads the elements at the places of a layout in a part, as [`get_view`](Self::get_view) does (`MPI_Get` and
    /// `MPI_Rget` with datatypes). The request returns the buffer with these elements: a vector, or another buffer of
    /// as many bytes as the layout selects, for example of a [layout](Layout::of_owned).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, LockKind, Rank};
    ///
    /// let window = comm.window(vec![1_u8, 2, 3, 4, 5, 6])?;
    /// let epoch = window.lock(Rank(0), LockKind::Shared)?;
    /// let second = Layout::vector(3, 1, 2)?;
    /// let got = epoch.iget_view(Rank(0), 1, &second, vec![0_u8; 3])?;
    /// assert_eq!(got.wait()?.buffer, [2, 4, 6]);
    /// epoch.close()?;
    /// # window.free()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put); [`WindowError::LayoutLength`](super::WindowError::LayoutLength) if the
    /// layout does not select as many bytes as the buffer has.
    pub fn iget_view<B: BufferMut>(
        &self,
        from: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        into: B,
    ) -> Result<Request<B>, Error> {
        self.start("Epoch::iget_view", Then::Returns, (from, at.into()), Some(layout), Action::Get, into)
    }

    /// Starts an operation with a request.
    fn start<B: Held>(
        &self,
        call: &'static str,
        then: Then,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        data: B,
    ) -> Result<Request<B>, Error> {
        let window = self.window;
        let mut memory = data.into_memory();
        if !memory.is_scattered() {
            let len = memory.len();
            let access = |part: &samite_rma::View, at| match action.has_reply() {
                true => part.fetch(at, action, memory.as_bytes_mut()),
                false => part.write(at, action, memory.as_bytes()),
            };
            if let Some(done) = self.directly(call, target, layout, (action, len), access) {
                done?;
                let ended = window.comm().runtime.begin_ended(window.comm().context, memory);
                return window.request(Some(window.comm().handle_result(call, ended)?));
            }
        }
        let begun = self.places(target, layout).and_then(|(id, places)| {
            window.begin(then, |mut call| {
                let before = self.begin_by_runtime(call.windows, target.0);
                let WindowCall { windows, out, deadline } = &mut call;
                let started = windows.operate(out, id, places, action, memory, Some(*deadline))?;
                self.note_direct(&mut call, id, target.0, before);
                Ok((started, ()))
            })
        });
        let (request, ()) = window.comm().handle_result(call, begun)?;
        window.request(request)
    }

    /// Starts an operation without a result and without a request.
    #[inline]
    fn write(
        &self,
        call: &'static str,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        data: impl AsRef<[u8]> + Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let bytes = data.as_ref();
        let is_put = action == Action::Put && layout.is_none();
        if is_put && self.is_done_directly(target, |part, at| part.put(at, bytes)) {
            return Ok(());
        }
        let write = |part: &samite_rma::View, at| part.write(at, action, bytes);
        match self.directly(call, target, layout, (action, bytes.len()), write) {
            Some(written) => written,
            None => self.write_by_runtime(call, target, layout, action, data),
        }
    }

    #[inline(never)]
    fn write_by_runtime(
        &self,
        call: &'static str,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        data: impl AsRef<[u8]> + Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let comm = self.window.comm();
        if data.as_ref().len() >= LONG && self.writes_soon(target, layout, action, data.as_ref()) {
            return Ok(());
        }
        let done = self.places(target, layout).and_then(|(id, places)| {
            let bounds = self.window.bounds();
            let done = comm.runtime.on_windows(bounds, |mut call| {
                let before = self.begin_by_runtime(call.windows, target.0);
                let WindowCall { windows, out, .. } = &mut call;
                if !windows.try_write(out, id, places, action, data.as_ref())? {
                    let bytes: Vec<u8> = data.into();
                    windows.operate(out, id, places, action, Memory::new(bytes), None)?;
                }
                self.note_direct(&mut call, id, target.0, before);
                Ok(())
            });
            done.map_err(|error| comm.local_error(error))
        });
        comm.handle_result(call, done)
    }

    /// Carries out a write, and returns true, if that is possible within a short time: the target's permission may arrive,
    /// or the end of an earlier write. If there is an error, the call that follows finds it too.
    fn writes_soon(
        &self,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        data: &[u8],
    ) -> bool {
        let Ok((id, places)) = self.places(target, layout) else { return false };
        let at_most = WAIT_MAX.min(Duration::from_nanos(data.len() as u64 / WAITED_BYTES));
        let runtime = &self.window.comm().runtime;
        let written = runtime.retry_on_windows(self.window.bounds(), at_most, |mut call| {
            let before = self.begin_by_runtime(call.windows, target.0);
            let WindowCall { windows, out, .. } = &mut call;
            let is_written = windows.try_write(out, id, places, action, data)?;
            self.note_direct(&mut call, id, target.0, before);
            Ok(is_written)
        });
        written.is_ok_and(|is_written| is_written)
    }

    /// Starts an operation on the places of a layout, without a result and without a request.
    fn write_view(
        &self,
        call: &'static str,
        target: (Rank, WindowPlace),
        layout: &Layout<T>,
        action: Action,
        data: View<'_>,
    ) -> Result<(), Error> {
        if let Some(bytes) = data.as_slice() {
            return self.write(call, target, Some(layout), action, bytes);
        }
        let packed = self.window.comm().handle_result(call, packed(layout, &data))?;
        self.write(call, target, Some(layout), action, packed)
    }

    /// Carries out an operation with a result at once, if the part is mapped. Returns false if it is not.
    #[inline]
    fn read(
        &self,
        call: &'static str,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        bytes: &mut [u8],
    ) -> Result<bool, Error> {
        let is_get = action == Action::Get && layout.is_none();
        if is_get && self.is_done_directly(target, |part, at| part.get(at, bytes)) {
            return Ok(true);
        }
        let len = bytes.len();
        let fetch = |part: &samite_rma::View, at| part.fetch(at, action, &mut *bytes);
        match self.directly(call, target, layout, (action, len), fetch) {
            Some(read) => read.map(|()| true),
            None => self.read_by_runtime(call, target, layout, action, bytes),
        }
    }

    #[inline(never)]
    fn read_by_runtime(
        &self,
        call: &'static str,
        target: (Rank, WindowPlace),
        layout: Option<&Layout<T>>,
        action: Action,
        bytes: &mut [u8],
    ) -> Result<bool, Error> {
        let comm = self.window.comm();
        let done = self.places(target, layout).and_then(|(id, places)| {
            let done = comm.runtime.try_on_windows(self.window.bounds(), |mut call| {
                let before = self.begin_by_runtime(call.windows, target.0);
                let WindowCall { windows, out, .. } = &mut call;
                let is_done = windows.try_read(out, id, places, action, bytes)?;
                self.note_direct(&mut call, id, target.0, before);
                Ok(is_done)
            });
            done.map_err(|error| comm.local_error(error))
        });
        comm.handle_result(call, done)
    }

    /// Returns the epoch, and the place of an element, or the places of a layout from this element on.
    fn places<'l>(
        &self,
        (rank, at): (Rank, WindowPlace),
        layout: Option<&'l Layout<T>>,
    ) -> Result<(EpochId, Places<'l>), Error> {
        let id = self.id.ok_or(Error::NoSuchRequest)?;
        let WindowPlace { region, index } = at;
        // In a region the displacement counts bytes, and all elements without bytes are in one place.
        let unit = if region.is_some() || size_of::<T>() == 0 { size_of::<T>() } else { 1 };
        let displacement = (index as u64).saturating_mul(unit as u64);
        let target = Target { rank: self.window.world_rank(rank)?, displacement };
        let places = layout.map_or_else(|| target.into(), |layout| target.with_form(layout.form()));
        match region {
            None => Ok((id, places)),
            Some(region) => Ok((id, places.within(self.window.region_of(rank, region)?))),
        }
    }
}

/// Atomic operations. Operations of all ranks on one element take place one after another, and the operations of one
/// rank on it in the order of the calls.
impl<T: WindowNumber, K: AccessKind> Epoch<'_, T, K> {
    /// Combines elements of a part with the elements of `data` (`MPI_Accumulate`).
    ///
    /// # Errors
    /// The errors of [`put`](Self::put); [`WindowError::Unsuitable`](super::WindowError::Unsuitable) if the operation
    /// is not defined for the type.
    pub fn accumulate(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        data: &[T],
        op: WindowOp,
    ) -> Result<(), Error> {
        let action = accumulate::<T>(op);
        self.write("Epoch::accumulate", (to, at.into()), None, action, data.as_bytes())
    }

    /// Combines the elements at the places of a layout in a part with the elements of `data`, as
    /// [`accumulate`](Self::accumulate) does (`MPI_Accumulate` with datatypes). The bytes of `data` are elements of
    /// `T`.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank, WindowOp};
    ///
    /// // Each rank adds to the even elements of rank 0.
    /// let window = comm.window(vec![1_u64; 6])?;
    /// let even = Layout::vector(3, 1, 2)?;
    /// let epoch = window.fence()?;
    /// epoch.accumulate_view(Rank(0), 0, &even, &[10, 20, 30], WindowOp::Sum)?;
    /// epoch.close()?;
    /// let part = window.free()?;
    /// assert!(comm.rank() != Rank(0) || part == [21, 1, 41, 1, 61, 1]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// The errors of [`put_view`](Self::put_view); [`WindowError::Unsuitable`](super::WindowError::Unsuitable) if the
    /// operation is not defined for the type, or if the layout selects parts of elements.
    pub fn accumulate_view<'v>(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        data: impl IntoView<'v, T>,
        op: WindowOp,
    ) -> Result<(), Error> {
        let action = accumulate::<T>(op);
        self.write_view("Epoch::accumulate_view", (to, at.into()), layout, action, data.bound())
    }

    /// Combines elements of a part with the elements of `data`, as [`accumulate`](Self::accumulate) does
    /// (`MPI_Raccumulate`). The request returns the vector when its elements were sent.
    ///
    /// # Errors
    /// Returns the errors of [`accumulate`](Self::accumulate).
    pub fn iaccumulate(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        data: Vec<T>,
        op: WindowOp,
    ) -> Result<Request<Vec<T>>, Error> {
        let action = accumulate::<T>(op);
        self.start("Epoch::iaccumulate", Then::Returns, (to, at.into()), None, action, data)
    }

    /// Combines the elements at the places of a layout in a part with the elements of `data`, as
    /// [`accumulate_view`](Self::accumulate_view) does (`MPI_Raccumulate` with datatypes). The data is a vector, or
    /// another buffer of as many bytes as the layout selects. The request returns it when its elements were sent.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank, WindowOp};
    ///
    /// let window = comm.window(vec![1_u64; 6])?;
    /// let even = Layout::vector(3, 1, 2)?;
    /// let epoch = window.lock_all()?;
    /// let sent = epoch.iaccumulate_view(Rank(0), 0, &even, vec![10_u64, 20, 30], WindowOp::Sum)?;
    /// assert_eq!(sent.wait()?.buffer, [10, 20, 30]);
    /// epoch.close()?;
    /// let part = window.free()?;
    /// assert!(comm.rank() != Rank(0) || part == [21, 1, 41, 1, 61, 1]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`accumulate_view`](Self::accumulate_view).
    pub fn iaccumulate_view<B: Buffer>(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        data: B,
        op: WindowOp,
    ) -> Result<Request<B>, Error> {
        let action = accumulate::<T>(op);
        self.start("Epoch::iaccumulate_view", Then::Returns, (to, at.into()), Some(layout), action, data)
    }

    /// Combines elements of a part with the elements of `data`. The request returns the former elements of the part
    /// (`MPI_Get_accumulate`).
    ///
    /// # Errors
    /// Returns the errors of [`accumulate`](Self::accumulate).
    pub fn iget_accumulate(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        data: Vec<T>,
        op: WindowOp,
    ) -> Result<Request<Vec<T>>, Error> {
        let action = get_accumulate::<T>(op);
        self.start("Epoch::iget_accumulate", Then::Returns, (to, at.into()), None, action, data)
    }

    /// Combines the elements at the places of a layout in a part with the elements of `data`: a vector, or another
    /// buffer of as many bytes as the layout selects. The request returns the buffer with the former elements
    /// (`MPI_Get_accumulate` with datatypes). Each element is changed in one step, but not all of them together.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, LockKind, Rank, WindowOp};
    ///
    /// let window = comm.window(vec![1_u64, 2, 3, 4])?;
    /// let epoch = window.lock(Rank(0), LockKind::Shared)?;
    /// let ends = Layout::indexed([(3, 1), (0, 1)])?;
    /// let former = epoch.iget_accumulate_view(Rank(0), 0, &ends, vec![40_u64, 10], WindowOp::Sum)?;
    /// assert_eq!(former.wait()?.buffer, [4, 1]);
    /// epoch.close()?;
    /// assert_eq!(window.free()?, [11, 2, 3, 44]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`accumulate_view`](Self::accumulate_view).
    pub fn iget_accumulate_view<B: BufferMut>(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        layout: &Layout<T>,
        data: B,
        op: WindowOp,
    ) -> Result<Request<B>, Error> {
        let action = get_accumulate::<T>(op);
        self.start("Epoch::iget_accumulate_view", Then::Returns, (to, at.into()), Some(layout), action, data)
    }

    /// Combines an element of a part with `operand`, and waits for the former element (`MPI_Fetch_and_op`).
    ///
    /// # Errors
    /// Returns the errors of [`accumulate`](Self::accumulate) and [`close`](Self::close).
    pub fn fetch(&self, to: Rank, at: impl Into<WindowPlace>, operand: T, op: WindowOp) -> Result<T, Error> {
        let action = get_accumulate::<T>(op);
        let (at, mut element) = (at.into(), [operand]);
        if self.read("Epoch::fetch", (to, at), None, action, element.as_mut_bytes())? {
            return Ok(element[0]);
        }
        let before = self.start("Epoch::fetch", Then::Waits, (to, at), None, action, vec![operand])?;
        Ok(before.wait_as("Epoch::fetch")?.buffer[0])
    }

    /// Replaces an element of a part by `new` if it is equal to `expected`, and waits for the former element
    /// (`MPI_Compare_and_swap`). Elements are equal if their bits are, also numbers of floating point: zero and negative
    /// zero differ.
    ///
    /// # Errors
    /// Returns the errors of [`accumulate`](Self::accumulate) and [`close`](Self::close).
    pub fn compare_swap(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        expected: T,
        new: T,
    ) -> Result<T, Error> {
        let action = Action::CompareSwap { element: T::element_type().0 };
        let (at, mut elements) = (at.into(), [expected, new]);
        if self.read("Epoch::compare_swap", (to, at), None, action, elements.as_mut_bytes())? {
            return Ok(elements[0]);
        }
        const CALL: &str = "Epoch::compare_swap";
        let before = self.start(CALL, Then::Waits, (to, at), None, action, vec![expected, new])?;
        Ok(before.wait_as(CALL)?.buffer[0])
    }

    /// Begins a [`compare_swap`](Self::compare_swap). The request returns a vector whose first element is the former
    /// element; the second one is `new`.
    ///
    /// # Errors
    /// Returns the errors of [`accumulate`](Self::accumulate).
    pub fn icompare_swap(
        &self,
        to: Rank,
        at: impl Into<WindowPlace>,
        expected: T,
        new: T,
    ) -> Result<Request<Vec<T>>, Error> {
        let action = Action::CompareSwap { element: T::element_type().0 };
        self.start("Epoch::icompare_swap", Then::Returns, (to, at.into()), None, action, vec![expected, new])
    }
}

/// Returns the action of an accumulate.
fn accumulate<T: WindowNumber>(op: WindowOp) -> Action {
    Action::Accumulate { op: op.reduction(), element: T::element_type().0 }
}

/// Returns the action of an accumulate or a fetch that has a result.
fn get_accumulate<T: WindowNumber>(op: WindowOp) -> Action {
    Action::GetAccumulate { op: op.reduction(), element: T::element_type().0 }
}

/// A write of this length is copied only after a short wait: see [`Epoch::writes_soon`].
const LONG: usize = 32 << 10;

/// The number of bytes for which a write waits a nanosecond: about as many as a processor copies (the bandwidth of puts in
/// the guide's benchmarks), so the call takes at most twice as long.
const WAITED_BYTES: u64 = 16;

/// The longest such wait. A late target must not delay the caller.
const WAIT_MAX: Duration = Duration::from_micros(20);

/// Returns the bytes of a view for an operation on the places of a layout. A view may select an element several times,
/// so it can have far more bytes than its slice, and its length is checked before memory is allocated.
///
/// # Errors
/// [`LayoutLength`](super::WindowError::LayoutLength), [`Error::Exhausted`].
fn packed<T: Element>(layout: &Layout<T>, data: &View<'_>) -> Result<Vec<u8>, Error> {
    let (layout, data_len) = (layout.size(), data.size());
    if layout != data_len {
        return Err(Error::Window(Box::new(super::WindowError::LayoutLength { layout, data: data_len })));
    }
    let mut packed = u8::new_vec_zeroed(data_len).map_err(|_| Error::Exhausted {
        what: "memory for a copy of the data of an operation",
        hint: "start an operation for each part of the data".into(),
    })?;
    data.bytes.copy_to(&mut packed);
    Ok(packed)
}
