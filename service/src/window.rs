//! Windows: memory that the ranks of a communicator read, write and change without messages.

mod direct;
mod epoch;
mod error;
mod hints;
mod number;
mod region;
mod slice;
mod view;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::time::Duration;

use samite_fabric::{Memory, Port as _, Region};
use samite_p2p::{Cause, Fate, RequestId, WorldRank};
use samite_rma::{Attached, Name, Part, WindowId};
use zerocopy::IntoBytes;

use crate::buffer::Held;
use crate::cancel::CancelToken;
use crate::comm::Comm;
use crate::element::Element;
use crate::error::{Error, Public};
use crate::request::Request;
use crate::runtime::{Bounds, Freed, Then, WindowCall};
use crate::select::Rank;
use crate::transport::Transport;

use self::direct::Views;
pub use epoch::{Access, AccessKind, Epoch, EpochKind, Exposure, Fence, Lock};
pub use error::{AwaitedRank, WindowError, WindowEvent};
pub use hints::WindowHints;
pub use number::{WindowNumber, WindowOp};
pub use region::{WindowPlace, WindowRegion};
pub use slice::WindowSlice;
pub use view::WindowView;

/// A window: each rank of a communicator has a part of it, in which the other ranks read, write and accumulate
/// (MPI 4.1, chapter 12). [`Comm::window`], [`Comm::allocate_window`] and [`Comm::dynamic_window`] create one.
///
/// Operations are methods of an [`Epoch`]. Opening an epoch never waits. Closing it waits until its operations are
/// complete, or returns a [`Request`] that ends at that time: a late rank delays only the epochs that depend on it. If
/// the request of an epoch or an operation is dropped, the epoch or the operation continues.
///
/// A window that is dropped is freed without waiting for the other ranks. The [`World`](crate::World) waits for them
/// when it ends, a limited time.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::Rank;
///
/// let window = comm.window(vec![0_u64; 4])?;
/// let other = Rank(1 - comm.rank().0);
/// let epoch = window.fence()?;
/// epoch.put(other, 2, &[7, 8])?;
/// epoch.close()?;
/// assert_eq!(window.read_vec(0..4)?, [0, 0, 7, 8]);
/// assert_eq!(window.free()?, [0, 0, 7, 8]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Debug)]
pub struct Window<T: Element> {
    comm: Comm,
    id: WindowId,
    /// The name of the window at all ranks.
    name: Name,
    /// Whether the window has regions.
    dynamic: bool,
    /// The memory of this rank's part. `None` once the window is freed.
    own: Option<Own>,
    /// The number of elements in this rank's part.
    len: usize,
    /// The operation that lasts as long as other ranks may access this rank's part: see
    /// [`Runtime::admit_accesses`](crate::runtime::Runtime::admit_accesses).
    admits: RequestId,
    /// See [`WindowHints::unshared_accumulates`].
    is_unshared: bool,
    /// The parts that epochs access without the runtime.
    views: Views,
    element: PhantomData<T>,
}

/// The memory of this rank's part of a window.
#[derive(Debug)]
enum Own {
    /// The runtime has it too. It is empty if the window is dynamic.
    Shared(Region),
    /// The runtime has it alone, so that it can be taken out of the window: [`WindowHints::slices`].
    OfRuntime,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Several ranks may hold the lock at the same time (`MPI_LOCK_SHARED`).
    Shared,
    /// One rank holds the lock alone (`MPI_LOCK_EXCLUSIVE`).
    Exclusive,
}

impl Comm {
    /// Creates a window of which `data` is this rank's part. The parts may have different lengths (`MPI_Win_create`).
    /// Operations count in elements of the target's part.
    ///
    /// All ranks of this communicator call it, in the same order relative to other windows. The call does not wait for
    /// them. The window's calls have the time-out, the cancel and the error handler of this handle.
    ///
    /// A rank that was started again is no member of the windows on the communicator of all ranks, like a rank that has
    /// failed: create a communicator, and a window on it.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] with the cause [`Cause::Restarted`](crate::Cause::Restarted) if this rank was started
    /// again. [`Error::NeedsOneGroup`] on an intercommunicator; [`Error::Exhausted`] if there are too many windows;
    /// [`Error::Closed`], [`Error::Forked`]. A call that returns [`Error::Exhausted`] counts: the next window of this
    /// rank is also the next one of the other ranks. They may have the missing window, and wait for this rank's part of
    /// it until their time-out.
    pub fn window<T: Element>(&self, data: Vec<T>) -> Result<Window<T>, Error> {
        self.window_with(data, WindowHints::NONE)
    }

    /// Creates a window as [`window`](Self::window) does, with hints (`MPI_Win_create` with an info object).
    ///
    /// # Errors
    /// Returns the errors of [`window`](Self::window).
    pub fn window_with<T: Element>(&self, data: Vec<T>, hints: WindowHints) -> Result<Window<T>, Error> {
        let len = data.len();
        let created = self.next_window().and_then(|name| {
            self.create_window(name, Some((Region::new(Memory::new(data)), None)), len, hints)
        });
        self.handle_result("window", created)
    }

    /// Creates a window as [`window`](Self::window) does, of which this rank's part is `len` elements of zero
    /// (`MPI_Win_allocate`). If the transport permits it, the part is in memory that the ranks of this host share: they
    /// then read, write and change it without this rank, which takes a fraction of the time of a packet.
    /// [`Window::free`] returns a copy of such a part.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, WindowOp};
    ///
    /// let counter = comm.allocate_window::<u64>(1)?;
    /// let epoch = counter.lock_all()?;
    /// epoch.fetch(Rank(0), 0, 1, WindowOp::Sum)?;
    /// epoch.close()?;
    /// let counts = counter.free()?;
    /// assert!(comm.rank() != Rank(0) || counts == [2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`window`](Self::window); [`Error::Exhausted`] also if there is no memory.
    pub fn allocate_window<T: Element>(&self, len: usize) -> Result<Window<T>, Error> {
        self.allocate_window_with(len, WindowHints::NONE)
    }

    /// Creates a window as [`allocate_window`](Self::allocate_window) does, with hints (`MPI_Win_allocate` with an info
    /// object).
    ///
    /// # Errors
    /// Returns the errors of [`allocate_window`](Self::allocate_window).
    pub fn allocate_window_with<T: Element>(
        &self,
        len: usize,
        hints: WindowHints,
    ) -> Result<Window<T>, Error> {
        let created = self.next_window().and_then(|name| {
            let part = self.allocate_part::<T>(len, hints)?;
            self.create_window(name, Some(part), len, hints)
        });
        self.handle_result("allocate_window", created)
    }

    /// Creates a window of which the ranks have no memory at first (`MPI_Win_create_dynamic`). A rank attaches memory by
    /// [`Window::attach`] when it needs it, and gets it back by [`Window::detach`]. All ranks of this communicator call
    /// it, as they call [`window`](Self::window).
    ///
    /// All kinds of epochs and operations are as on other windows. Each operation names a place by a
    /// [region](WindowRegion) and an index in it: `epoch.put(rank, (region, index), &data)`. The operations travel in
    /// packets, so long ones take more time than on other windows. The rank that has attached the memory applies them.
    ///
    /// An operation on memory that is not attached any more, or never was, has no effect, and fails with
    /// [`WindowError::NotAttached`]: the request of a read, and for a write the next [`flush`](crate::Epoch::flush) of
    /// the rank and the end of the epoch. Other operations and ranks are not disturbed.
    ///
    /// [`Window::free`] drops the memory that is still attached.
    ///
    /// # Errors
    /// Returns the errors of [`window`](Self::window).
    pub fn dynamic_window<T: Element>(&self) -> Result<Window<T>, Error> {
        self.dynamic_window_with(WindowHints::NONE)
    }

    /// Creates a window as [`dynamic_window`](Self::dynamic_window) does, with hints (`MPI_Win_create_dynamic` with an
    /// info object).
    ///
    /// # Errors
    /// Returns the errors of [`window`](Self::window).
    pub fn dynamic_window_with<T: Element>(&self, hints: WindowHints) -> Result<Window<T>, Error> {
        let created = self.next_window().and_then(|name| self.create_window(name, None, 0, hints));
        self.handle_result("dynamic_window", created)
    }

    /// Returns the name of the next window. If this rank then fails to create it, the next window has another name, as
    /// at the other ranks.
    fn next_window(&self) -> Result<Name, Error> {
        self.check_one_group()?;
        // A process that has replaced another one does not know the windows that the other ranks have created.
        let own = self.runtime.rank;
        if let Some(cause) = self.ended_members()?.remove(&own) {
            let error =
                samite_p2p::Error::PeerFailed { rank: own, cause, fate: Fate::NotDelivered, report: None };
            return Err(self.local_error(error.public()));
        }
        // A later communicator may have the same number of its contexts, but not their name.
        let communicator = self.runtime.peek(|engine| engine.context_name(self.context))?;
        let communicator = communicator.ok_or(Error::Closed { fate: crate::Fate::NotDelivered })?;
        let number = self.runtime.next_window(self.derived.as_deref());
        Ok(Name { communicator, number })
    }

    /// Allocates zeros for a part of a window. If they are in shared memory, returns also the offset of the word of the
    /// part's lock, which has a cache line of its own.
    fn allocate_part<T: Element>(
        &self,
        len: usize,
        hints: WindowHints,
    ) -> Result<(Region, Option<NonZeroUsize>), Error> {
        let exhausted = || Error::Exhausted { what: "memory", hint: "allocate a shorter part".into() };
        let bytes = size_of::<T>().checked_mul(len).and_then(|bytes| bytes.checked_next_multiple_of(LINE));
        let lock = bytes.map(|bytes| bytes.max(LINE)).and_then(NonZeroUsize::new).ok_or_else(exhausted)?;
        let maps = self.runtime.on_windows(&self.bounds, |call| Ok(call.out.port.caps().map))?;
        let maps = maps && !hints.of_protocol().takes_part;
        // If the system provides no memory that can be shared, the other ranks use packets.
        let shared = maps.then(|| Region::shared(lock.get().checked_add(LINE)?).ok()).flatten();
        match shared {
            Some(region) => Ok((region, Some(lock))),
            None => Ok((Region::new(Memory::new(T::new_vec_zeroed(len).map_err(|_| exhausted())?)), None)),
        }
    }

    /// Creates a window, which is dynamic if it has no part.
    fn create_window<T: Element>(
        &self,
        name: Name,
        part: Option<(Region, Option<NonZeroUsize>)>,
        len: usize,
        hints: WindowHints,
    ) -> Result<Window<T>, Error> {
        let unit = u32::try_from(size_of::<T>().max(1)).map_err(|_| Error::Exhausted {
            what: "bytes of an element",
            hint: "use smaller elements in windows".into(),
        })?;
        let (members, hints) = (self.members(), hints.of_protocol());
        let dynamic = part.is_none();
        let own = match &part {
            Some(_) if hints.takes_part => Own::OfRuntime,
            Some((region, _)) => Own::Shared(region.clone()),
            None => Own::Shared(Region::new(Memory::new(Vec::<T>::new()))),
        };
        let id = self.runtime.on_windows(&self.bounds, |WindowCall { windows, out, .. }| match part {
            Some((region, lock)) => {
                let part = Part { region, start: 0, len: len * size_of::<T>(), unit, lock };
                windows.create(out.link, name, members, part, hints)
            }
            None => windows.create_dynamic(out.link, name, members, hints),
        });
        let id = id.map_err(|error| self.local_error(error))?;
        self.exclude_ended(id).map_err(|error| self.local_error(error))?;
        let admits = self.runtime.admit_accesses(self.context)?;
        let comm = self.clone();
        let (views, element) = (Views::default(), PhantomData);
        let is_unshared = hints.unshared_accumulates;
        Ok(Window { comm, id, name, dynamic, own: Some(own), len, admits, is_unshared, views, element })
    }
}

/// The bytes that an atomic instruction changes.
const WORD: usize = 8;

/// A cache line, or two that processors fetch together.
const LINE: usize = 128;

/// Returns the part of a window that was freed. A part that other ranks have mapped is copied.
///
/// # Errors
/// [`Error::Exhausted`] if there is no memory for the copy.
fn take_part<T: Element>(region: Region, len: usize) -> Result<Memory, Error> {
    region.reclaim().or_else(|region| {
        let mut part = T::new_vec_zeroed(len).map_err(|_| Error::Exhausted {
            what: "memory for a copy of the part of a freed window",
            hint: "read the part in pieces before the window is freed".into(),
        })?;
        region.copy_out(0, part.as_mut_bytes()).expect("the region has the part");
        Ok(Memory::new(part))
    })
}

impl Comm {
    fn ended_members(&self) -> Result<BTreeMap<WorldRank, Cause>, Error> {
        self.runtime.peek(|engine| engine.ended_members(self.control(), &self.members()))
    }

    /// Ends the parts of ranks whose processes have ended before the window was created, or were replaced.
    fn exclude_ended(&self, id: WindowId) -> Result<(), Error> {
        let ended = self.ended_members()?;
        if ended.is_empty() {
            return Ok(());
        }
        self.runtime.on_windows(&self.bounds, |WindowCall { windows, out, .. }| {
            ended.iter().try_for_each(|(rank, cause)| windows.fail_member(out.link, id, *rank, cause))
        })
    }
}

impl<T: Element> Window<T> {
    /// Returns the communicator whose ranks share the window.
    #[must_use]
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Returns the number of elements in this rank's part. Attached memory does not count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if this rank's part has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bounds the calls of this window and of epochs that are opened later: each ends at most this time after the call
    /// that starts it, and an epoch that is dropped at most this time after that. If the close of an epoch of
    /// [`start`](Self::start) or [`post`](Self::post) ends at its deadline, the epoch has ended at both sides.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.comm.bounds.timeout = timeout;
    }

    /// Lets a cancel end the waits of this window, and of epochs that are opened later, with
    /// [`Error::Cancelled`].
    pub fn set_cancel(&mut self, cancel: &CancelToken) {
        self.comm.bounds.cancel = Some(cancel.clone());
    }

    /// Copies elements of this rank's part, or of memory that it has attached, from a place on. Other ranks may change
    /// them meanwhile.
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`]; [`WindowError::NotAttached`]; [`Error::Forked`].
    pub fn read(&self, at: impl Into<WindowPlace>, into: &mut [T]) -> Result<(), Error> {
        let result = self.on_own(at.into(), into.len(), |region, offset| {
            // Through bytes, because the elements need not be aligned in the region.
            let copied = region.copy_out(offset, into.as_mut_bytes());
            copied.map_err(samite_p2p::Error::from)
        });
        self.comm.handle_result("Window::read", result)
    }

    /// Returns a copy of elements of this rank's part.
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`]; [`Error::Forked`].
    pub fn read_vec(&self, range: std::ops::Range<usize>) -> Result<Vec<T>, Error> {
        // Before memory is allocated for them.
        let checked = self.own_bytes(range.start, range.len(), self.len);
        self.comm.handle_result("Window::read_vec", checked)?;
        let mut elements = vec![T::new_zeroed(); range.len()];
        self.read(range.start, &mut elements)?;
        Ok(elements)
    }

    /// Writes elements of this rank's part, or of memory that it has attached, from a place on.
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`]; [`WindowError::NotAttached`]; [`Error::Forked`].
    pub fn write(&self, at: impl Into<WindowPlace>, from: &[T]) -> Result<(), Error> {
        let result = self.on_own(at.into(), from.len(), |region, offset| {
            region.copy_in(offset, from.as_bytes()).map_err(samite_p2p::Error::from)
        });
        self.comm.handle_result("Window::write", result)
    }

    /// Calls a function with the memory of `len` elements of this rank, and their offset.
    fn on_own(
        &self,
        at: WindowPlace,
        len: usize,
        body: impl FnOnce(&Region, usize) -> Result<(), samite_p2p::Error>,
    ) -> Result<(), Error> {
        // A child of fork(2) may share the memory, and its copy of the region's lock may never be released.
        self.comm.runtime.check_process()?;
        let Some(region) = at.region else {
            let offset = self.own_bytes(at.index, len, self.len)?;
            return match self.own.as_ref().expect("only a consumed window has no part") {
                Own::Shared(region) => body(region, offset).map_err(Public::public),
                Own::OfRuntime => self.comm.runtime.on_windows(&self.comm.bounds, |call| {
                    body(call.windows.part(self.id)?, offset).map_err(samite_rma::Error::Link)
                }),
            };
        };
        let (attached, offset) = (self.own_region(region)?, self.own_bytes(at.index, len, region.len())?);
        let done = self.comm.runtime.on_windows(&self.comm.bounds, |WindowCall { windows, out, .. }| {
            let memory = windows.attached(out.link, self.id, attached)?;
            body(memory, offset).map_err(samite_rma::Error::Link)
        });
        done.map_err(|error| self.comm.local_error(error))
    }

    fn attach_region(&self, memory: Vec<T>) -> Result<Attached, Error> {
        let attached = self.comm.runtime.on_windows(&self.comm.bounds, |WindowCall { windows, .. }| {
            windows.attach_memory(self.id, Region::new(Memory::new(memory)))
        });
        attached.map_err(|error| self.comm.local_error(error))
    }

    fn detach_region(&self, attached: Attached) -> Result<Vec<T>, Error> {
        let detached =
            self.comm.runtime.on_windows(&self.comm.bounds, |WindowCall { windows, out, .. }| {
                windows.detach_memory(out.link, self.id, attached)
            });
        let memory = detached.map_err(|error| self.comm.local_error(error))?.reclaim();
        let vec = memory.expect("no port gets the memory of a region").into_vec();
        Ok(vec.expect("all memory of the window was made of such vectors"))
    }

    /// Returns the offset of `len` elements in memory of `size` elements of this rank.
    fn own_bytes(&self, at: usize, len: usize, size: usize) -> Result<usize, Error> {
        self.bytes_of(self.comm.rank(), at, len, size)
    }

    /// Returns the offset of `len` elements in memory of `size` elements of a rank.
    fn bytes_of(&self, rank: Rank, at: usize, len: usize, size: usize) -> Result<usize, Error> {
        match at.checked_add(len) {
            Some(end) if end <= size => Ok(at * size_of::<T>()),
            _ => Err(Error::Window(Box::new(WindowError::OutOfBounds {
                rank,
                at: (at as u64).saturating_mul(size_of::<T>() as u64),
                bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
                size: (size as u64).saturating_mul(size_of::<T>() as u64),
            }))),
        }
    }

    /// Frees the window, and returns this rank's part (`MPI_Win_free`). Waits until all ranks have freed it: from then
    /// on no rank accesses the part.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank has failed before it freed the window; [`WindowError::TimedOut`],
    /// [`Error::Cancelled`], [`Error::Closed`], [`Error::Forked`]; [`Error::Exhausted`] if there is no memory for a copy
    /// of a part in shared memory. Then the part is lost: copy it before by
    /// [`read_vec`](Self::read_vec) if it is needed.
    pub fn free(self) -> Result<Vec<T>, Error> {
        Ok(self.begin_freeing(false)?.wait_as("Window::free")?.buffer)
    }

    /// Begins to free the window. The request returns this rank's part when all ranks have freed the window. If it
    /// fails, its error has the part too ([`Failed::buffer`](crate::Failed::buffer)): a copy, if other ranks may still
    /// access the part.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn ifree(self) -> Result<Request<Vec<T>>, Error> {
        self.begin_freeing(true)
    }

    fn begin_freeing(mut self, keeps_part: bool) -> Result<Request<Vec<T>>, Error> {
        let begun = self.begin_to_free(&self.comm.bounds.clone(), keeps_part);
        self.comm.handle_result("Window::ifree", begun)
    }

    /// Begins to free the window. `keeps_part` is true if an error must return the part too. The part may have to be
    /// copied for that, which can take seconds after a deadline.
    fn begin_to_free(&mut self, bounds: &Bounds, keeps_part: bool) -> Result<Request<Vec<T>>, Error> {
        let (id, len, comm) = (self.id, self.len, &self.comm);
        let region = match self.own.take() {
            Some(Own::Shared(region)) => Some(region),
            // If a slice of the part was leaked, its memory is lost.
            Some(Own::OfRuntime) => {
                let none = || Region::new(Memory::new(Vec::<T>::new()));
                let part = comm.runtime.on_windows(bounds, |call| Ok(call.windows.part(id).cloned()));
                Some(part.map_or_else(|_| none(), |part| part.unwrap_or_else(|_| none())))
            }
            None => None,
        };
        let freed = region.map(|region| -> Freed {
            Box::new(move |is_freed| match is_freed || keeps_part {
                true => take_part::<T>(region, len),
                false => Ok(Memory::zeroed(0)),
            })
        });
        let begun = comm.runtime.begin_on_windows(
            comm.context,
            bounds,
            freed,
            Then::Returns,
            |WindowCall { windows, out, deadline }| {
                // No handle of an epoch exists any more. An epoch whose handle was leaked would never be closed, and
                // the other ranks would wait for it.
                windows.close_all(out.link, id)?;
                Ok((Some(windows.free(out.link, id, deadline)?), ()))
            },
        );
        comm.runtime.end_accesses(self.admits);
        let (request, ()) = begun.map_err(|error| comm.local_error(error))?;
        self.request(request)
    }

    /// Returns the request of an operation or epoch of this window.
    fn request<B: Held>(&self, request: Option<RequestId>) -> Result<Request<B>, Error> {
        Ok(Request::started(self.comm.clone(), request.ok_or(Error::NoSuchRequest)?))
    }

    /// Carries out a call that may begin a request.
    fn begin<R>(
        &self,
        then: Then,
        call: impl FnOnce(WindowCall<'_, Transport>) -> Result<(Option<RequestId>, R), samite_rma::Error>,
    ) -> Result<(Option<RequestId>, R), Error> {
        let Comm { runtime, context, bounds, .. } = &self.comm;
        let begun = runtime.begin_on_windows(*context, bounds, None, then, call);
        begun.map_err(|error| self.comm.local_error(error))
    }

    /// Returns the rank in the job of a rank.
    fn world_rank(&self, rank: Rank) -> Result<WorldRank, Error> {
        self.comm.check_rank(rank)?;
        self.comm.world_rank(rank)
    }

    fn bounds(&self) -> &Bounds {
        &self.comm.bounds
    }
}

impl<T: Element> Drop for Window<T> {
    fn drop(&mut self) {
        if self.own.is_some() {
            // The request continues when it is dropped. Until it ends, a thread answers the accesses of ranks that have
            // not freed the window. If the runtime was closed, there is nothing to do.
            drop(self.begin_to_free(&Bounds::default(), false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_for_which_there_is_no_memory_is_an_error() {
        let shared = || Region::shared(WORD).unwrap();
        assert_eq!(take_part::<u64>(shared(), 1).unwrap().as_bytes(), [0; WORD]);
        let taken = take_part::<u64>(shared(), usize::MAX / 32);
        assert!(matches!(taken, Err(Error::Exhausted { .. })), "{:?}", taken.err());
    }
}
