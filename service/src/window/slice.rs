//! Slices of this rank's part of a window.

use std::ops::{Deref, DerefMut};

use samite_fabric::{Memory, Region};

use super::{Lock, LockKind, Window};
use crate::Epoch;
use crate::element::Element;
use crate::error::Error;
use crate::runtime::{Bounds, WindowCall};

/// The elements of this rank's part of a window, without a copy: see [`Window::part_mut`] and [`Epoch::part_mut`]. While
/// it exists, the memory belongs to this value and not to the window. When it is dropped, the memory is part of the
/// window again.
#[derive(Debug)]
pub struct WindowSlice<'e, T: Element> {
    window: &'e Window<T>,
    elements: Vec<T>,
    /// The lock of a slice that has one of its own. It is given back after the memory.
    _lock: Option<Epoch<'e, T, Lock>>,
}

impl<T: Element> Deref for WindowSlice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements
    }
}

impl<T: Element> DerefMut for WindowSlice<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements
    }
}

impl<T: Element> Drop for WindowSlice<'_, T> {
    fn drop(&mut self) {
        let region = Region::new(Memory::new(std::mem::take(&mut self.elements)));
        let id = self.window.id;
        // If the runtime was closed, the window has ended with it.
        let _ = self
            .window
            .comm()
            .runtime
            .on_windows(&Bounds::default(), |WindowCall { windows, out, .. }| {
                windows.put_part(out.link, id, region)
            });
    }
}

impl<T: Element> Window<T> {
    /// Returns this rank's part as a slice, without a copy, between epochs. The window has the hint
    /// [`slices`](crate::WindowHints::slices). Waits until the epochs that this rank has closed are complete, and until
    /// no other rank has a lock of the part. It does not wait for epochs beside which a lock is permitted, by a hint or
    /// because they were cancelled or have reached their deadlines, and an exposure among them is an error.
    ///
    /// No other rank has access while the slice exists: the others wait for their locks, and this rank can open no epoch
    /// meanwhile. In an open epoch of a lock use [`Epoch::part_mut`].
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, WindowHints};
    ///
    /// let mut window = comm.window_with(vec![0_u32; 3], WindowHints::NONE.slices())?;
    /// for step in 1..=3 {
    ///     let epoch = window.fence()?;
    ///     epoch.put(Rank(1 - comm.rank().0), 2, &[step])?;
    ///     epoch.close()?;
    ///     window.part_mut()?.rotate_left(1);
    /// }
    /// assert_eq!(window.free()?, [2, 3, 1]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// No epoch is open meanwhile:
    ///
    /// ```compile_fail,E0502
    /// # samite::local(1, |world| {
    /// # let mut window = world.comm().window_with(vec![0_u32; 3], samite::WindowHints::NONE.slices())?;
    /// let part = window.part_mut()?;
    /// let epoch = window.fence()?;
    /// drop(part);
    /// # epoch.close()
    /// # });
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`lock`](Self::lock) and of [`Epoch::part_mut`].
    pub fn part_mut(&mut self) -> Result<WindowSlice<'_, T>, Error> {
        let lock = self.lock(self.comm().rank(), LockKind::Exclusive)?;
        let elements = lock.take_part("Window::part_mut")?;
        Ok(WindowSlice { window: self, elements, _lock: Some(lock) })
    }
}

impl<T: Element> Epoch<'_, T, Lock> {
    /// Returns this rank's part as a slice, without a copy. The epoch is one of
    /// [`lock`](Window::lock) at this rank with [`LockKind::Exclusive`](crate::LockKind::Exclusive), and the window has
    /// the hint [`slices`](crate::WindowHints::slices). Waits for the lock, and until the operations of the epoch are
    /// done.
    ///
    /// No other rank has access while the slice exists: others wait for the lock, and an exposure of
    /// [`post`](Window::post) begins when the slice is dropped. So do not wait for an exposure before. If the slice is
    /// leaked, the memory is lost, and other ranks wait for the part until their time-outs.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{LockKind, WindowHints, WindowOp};
    ///
    /// let window = comm.window_with(vec![3_u32, 1, 2], WindowHints::NONE.slices())?;
    /// let mut epoch = window.lock(comm.rank(), LockKind::Exclusive)?;
    /// epoch.part_mut()?.sort_unstable();
    /// epoch.close()?;
    /// assert_eq!(window.free()?, [1, 2, 3]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`flush`](Self::flush); [`WindowError::WrongState`](crate::WindowError::WrongState) if the
    /// epoch does not have the exclusive lock of this rank's part, or if the part is exposed;
    /// [`WindowError::Unsuitable`](crate::WindowError::Unsuitable) if the window does not have the hint, or is dynamic;
    /// [`Error::PeerFailed`] if the window had fences and a rank has failed: its last fence then does not show that the
    /// accesses of the others are over.
    pub fn part_mut(&mut self) -> Result<WindowSlice<'_, T>, Error> {
        let elements = self.take_part("Epoch::part_mut")?;
        Ok(WindowSlice { window: self.window, elements, _lock: None })
    }

    /// Takes this rank's part out of the window.
    fn take_part(&self, call: &'static str) -> Result<Vec<T>, Error> {
        let comm = self.window.comm();
        self.flush(comm.rank())?;
        let id = self.id.ok_or(Error::NoSuchRequest)?;
        let taken = comm.runtime.on_windows(self.window.bounds(), |WindowCall { windows, out, .. }| {
            windows.take_part(out.link, id)
        });
        let region = taken.map_err(|error| comm.handle_world_error(call, error))?;
        let memory = region.reclaim().expect("nothing else holds memory of a window with this hint");
        Ok(memory.into_vec().expect("the part was made of such a vector"))
    }
}
