//! Memory that is attached to a dynamic window, and places in windows.

use samite_rma::{Attached, Name};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Window, WindowError};
use crate::element::Element;
use crate::error::{Error, Public as _};
use crate::select::Rank;

/// Memory that a rank has attached to a dynamic window: see [`Window::attach`]. It is an [`Element`], so a rank sends it
/// to the ranks that access the memory. Other windows of the same ranks refuse it. The default is no memory.
///
/// A place in the memory is a pair of a region and an index, for example `epoch.put(rank, (region, 3), &data)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct WindowRegion {
    /// The name of the window: its communicator and its number.
    communicator: u64,
    number: u64,
    place: u64,
    bytes: u64,
    /// The rank in the communicator of the window.
    rank: u32,
    /// Bytes of an element.
    unit: u32,
}

impl WindowRegion {
    /// Returns the rank that has attached the memory.
    #[must_use]
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.bytes / u64::from(self.unit.max(1))).unwrap_or(usize::MAX)
    }

    /// Returns true if the memory has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the region, by which [`WindowError::NotAttached`] names it. The regions of one rank in one
    /// window have different numbers, also if they exist one after another.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.place
    }

    /// Returns true if the memory is attached to the window of this name, whose elements have this many bytes.
    pub(super) fn is_of(self, name: Name, unit: usize) -> bool {
        (self.communicator, self.number) == (name.communicator, name.number) && self.unit as usize == unit
    }

    pub(super) fn attached(self) -> Attached {
        Attached { place: self.place, len: self.bytes }
    }

    pub(super) fn not_attached(self, rank: Rank) -> Error {
        Error::Window(Box::new(WindowError::NotAttached { rank, region: self.place }))
    }
}

/// The place of an element in the memory of a rank: its index in the rank's part, or a region of a dynamic window and
/// the index in this region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlace {
    pub(super) region: Option<WindowRegion>,
    pub(super) index: usize,
}

impl From<usize> for WindowPlace {
    fn from(index: usize) -> Self {
        Self { region: None, index }
    }
}

impl From<(WindowRegion, usize)> for WindowPlace {
    fn from((region, index): (WindowRegion, usize)) -> Self {
        Self { region: Some(region), index }
    }
}

impl<T: Element> Window<T> {
    /// Attaches memory to a window of [`Comm::dynamic_window`](crate::Comm::dynamic_window) (`MPI_Win_attach`). The call
    /// is local, and any rank may make it at any time, also in an epoch. Ranks that get the region in a message access
    /// the memory.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{LockKind, Rank, WindowRegion};
    ///
    /// let window = comm.dynamic_window::<u32>()?;
    /// let mut region = WindowRegion::default();
    /// if comm.rank() == 0 {
    ///     region = window.attach(vec![0; 100])?;
    /// }
    /// comm.bcast(std::slice::from_mut(&mut region), Rank(0))?;
    /// let epoch = window.lock(Rank(0), LockKind::Shared)?;
    /// epoch.put(Rank(0), (region, comm.rank().index()), &[7])?;
    /// epoch.close()?;
    /// comm.barrier()?;
    /// if comm.rank() == 0 {
    ///     assert_eq!(window.detach(region)?[..3], [7, 7, 0]);
    /// }
    /// window.free()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// [`Error::Exhausted`] if this rank has attached too much; [`WindowError::Unsuitable`] if the window is not dynamic;
    /// [`Error::Closed`], [`Error::Forked`]. The memory is then lost.
    pub fn attach(&self, memory: Vec<T>) -> Result<WindowRegion, Error> {
        let attached = self.attach_region(memory).map(|Attached { place, len }| WindowRegion {
            communicator: self.name.communicator,
            number: self.name.number,
            place,
            bytes: len,
            rank: self.comm().rank().0,
            unit: size_of::<T>() as u32,
        });
        self.comm().handle_result("Window::attach", attached)
    }

    /// Detaches memory that this rank has attached, and returns it (`MPI_Win_detach`). The call is local and does not
    /// wait. No rank reaches the memory afterwards: an operation that arrives later has no effect, also in an epoch that
    /// has begun, and fails at its origin with [`WindowError::NotAttached`]. A long operation that is under way may have
    /// written a part of its elements. So let the origins close their epochs or flush before, and for example wait for a
    /// message or a barrier.
    ///
    /// # Errors
    /// [`WindowError::NotAttached`] if the region is not one of this rank in this window, or was detached;
    /// [`WindowError::Unsuitable`] if the window is not dynamic; [`Error::Closed`], [`Error::Forked`].
    pub fn detach(&self, region: WindowRegion) -> Result<Vec<T>, Error> {
        let detached = self.own_region(region).and_then(|attached| self.detach_region(attached));
        self.comm().handle_result("Window::detach", detached)
    }

    /// Returns the name of a region, if it is one of this rank in this window.
    pub(super) fn own_region(&self, region: WindowRegion) -> Result<Attached, Error> {
        self.region_of(self.comm().rank(), region)
    }

    /// Returns the name of a region, if it is one of a rank in this window.
    pub(super) fn region_of(&self, rank: Rank, region: WindowRegion) -> Result<Attached, Error> {
        if !self.dynamic {
            return Err(samite_rma::Error::NotDynamic.public());
        }
        let is_here = region.rank() == rank && region.is_of(self.name, size_of::<T>());
        if is_here { Ok(region.attached()) } else { Err(region.not_attached(rank)) }
    }
}
