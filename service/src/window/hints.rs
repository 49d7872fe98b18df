//! Hints: promises of a program about its use of a window.

use samite_rma::Reorder;

/// Promises of a program about its use of a window: see [`Comm::window_with`](crate::Comm::window_with). The ranks may
/// give different hints.
///
/// By default an epoch of a window waits inside the library until the earlier epochs that the program has closed are
/// complete. The four flags of Zounmevo (2014, section 5.6.2) permit an epoch beside such an earlier one. The program
/// promises that the operations of both touch different elements. The flags have no effect on epochs of
/// [`fence`](crate::Window::fence) and [`lock_all`](crate::Window::lock_all).
///
/// ```
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// use samite::{LockKind, Rank, WindowHints};
///
/// let window = comm.window_with(vec![0_u64; 3], WindowHints::NONE.access_after_access())?;
/// let own = comm.rank().index();
/// let mut ends = Vec::new();
/// // No update waits for the lock of another one.
/// for target in (0..3).map(Rank) {
///     let epoch = window.lock(target, LockKind::Exclusive)?;
///     epoch.put(target, own, &[7])?;
///     ends.push(epoch.iclose()?);
/// }
/// ends.into_iter().try_for_each(|end| end.wait().map(drop))?;
/// assert_eq!(window.free()?, [7; 3]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WindowHints(samite_rma::Hints);

impl WindowHints {
    /// No hint.
    pub const NONE: Self = Self(samite_rma::Hints {
        reorder: Reorder::empty(),
        overtake: false,
        aggregate: false,
        takes_part: false,
        unshared_accumulates: false,
    });

    /// Permits epochs of access beside earlier ones. A lock still waits for the earlier access to the same rank.
    #[must_use]
    pub const fn access_after_access(self) -> Self {
        self.reorder(Reorder::ACCESS_AFTER_ACCESS)
    }

    /// Permits epochs of access beside earlier exposures.
    #[must_use]
    pub const fn access_after_exposure(self) -> Self {
        self.reorder(Reorder::ACCESS_AFTER_EXPOSURE)
    }

    /// Permits exposures beside earlier ones.
    #[must_use]
    pub const fn exposure_after_exposure(self) -> Self {
        self.reorder(Reorder::EXPOSURE_AFTER_EXPOSURE)
    }

    /// Permits exposures beside earlier epochs of access.
    #[must_use]
    pub const fn exposure_after_access(self) -> Self {
        self.reorder(Reorder::EXPOSURE_AFTER_ACCESS)
    }

    /// Permits epochs beside earlier ones with other ranks, also if those wait themselves.
    #[must_use]
    pub const fn overtaking(mut self) -> Self {
        self.0.overtake = true;
        self
    }

    /// Sends a whole epoch of [`lock`](crate::Window::lock) in one packet, if its operations fit in a packet. The other
    /// rank applies them when it grants the lock, releases the lock at once, and answers with one packet. So the epoch
    /// takes one round trip, and the lock is not held while packets travel.
    ///
    /// For that, the operations wait inside the library until the epoch is closed. They are sent before that, in
    /// packets of their own, if they do not fit in one packet, after a flush, or if the program waits for one of them,
    /// as in [`Epoch::get`](crate::Epoch::get). Otherwise the requests of operations end when the epoch completes.
    ///
    /// Ranks that share memory gain nothing: without the hint they take an exclusive lock without any packet.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{LockKind, Rank, WindowHints, WindowOp};
    ///
    /// let window = comm.window_with(vec![0_u64; 2], WindowHints::NONE.aggregate())?;
    /// let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
    /// epoch.accumulate(Rank(0), 0, &[1, 2], WindowOp::Sum)?;
    /// epoch.iclose()?.wait()?;
    /// let part = window.free()?;
    /// assert!(comm.rank() != 0 || part == [2, 4]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub const fn aggregate(mut self) -> Self {
        self.0.aggregate = true;
        self
    }

    /// Permits slices of this rank's part: [`Window::part_mut`](crate::Window::part_mut) and
    /// [`Epoch::part_mut`](crate::Epoch::part_mut). All operations on the part then travel in packets, because neither
    /// another process nor the transport may reach memory that the program has a reference to. So long operations take
    /// more time, and operations between ranks of a host do too.
    #[must_use]
    pub const fn slices(mut self) -> Self {
        self.0.takes_part = true;
        self
    }

    /// Promises that no two ranks, and no two threads of a rank, change the same element at the same time by accumulates or
    /// fetches. Otherwise changes can be lost. Between ranks of a host this rank then combines whole pieces of memory,
    /// where it would else change each element by an atomic instruction. That makes operations of more than 8 bytes
    /// faster. It concerns the operations of this rank on memory that it shares with their target, and those that arrive
    /// here in packets.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, WindowHints, WindowOp};
    ///
    /// // Each rank has its own row of the sums.
    /// let hints = WindowHints::NONE.unshared_accumulates();
    /// let sums = comm.allocate_window_with::<f64>(3 * 100, hints)?;
    /// let epoch = sums.fence()?;
    /// epoch.accumulate(Rank(0), 100 * comm.rank().index(), &[1.0; 100], WindowOp::Sum)?;
    /// epoch.close()?;
    /// let part = sums.free()?;
    /// assert!(comm.rank() != 0 || part == [1.0; 300]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub const fn unshared_accumulates(mut self) -> Self {
        self.0.unshared_accumulates = true;
        self
    }

    const fn reorder(mut self, flag: Reorder) -> Self {
        self.0.reorder = self.0.reorder.union(flag);
        self
    }

    pub(super) fn of_protocol(self) -> samite_rma::Hints {
        self.0
    }
}
