//! Calls on windows in the table, and the peer's part of them.

use samite::{
    Access, Comm, Epoch, Error, Exposure, Fence, Layout, Lock, LockKind, Rank, Window, WindowError,
    WindowRegion,
};

use crate::table::PEER;

/// The number of elements in a rank's part.
const LEN: usize = 4;

/// Creates a window, which is created by the peer too.
pub(crate) fn made(comm: &Comm) -> Result<Window<u64>, Error> {
    comm.window(vec![0; LEN])
}

pub(crate) fn elements() -> Vec<u64> {
    vec![1; LEN]
}

/// Selects the elements of a part from the last one to the first one, counted from the last one.
pub(crate) fn backwards() -> Layout<u64> {
    Layout::vector(LEN, 1, -1).expect("a layout of few elements")
}

/// The peer's part if it makes no call for an epoch.
pub(crate) fn has_a_window(comm: &Comm) -> Result<(), Error> {
    made(comm)?.free().map(drop)
}

/// Writes to memory that the other rank has attached to a dynamic window.
pub(crate) fn attaches(window: Window<u64>) -> Result<(), Error> {
    let mut regions = [WindowRegion::default(); 2];
    window.comm().allgather(&[window.attach(elements())?], &mut regions)?;
    let other = regions[1 - window.comm().rank().index()];
    let epoch = window.fence()?;
    epoch.put(other.rank(), (other, 0), &elements())?;
    epoch.close()?;
    window.free().map(drop)
}

/// The peer's part of an epoch between two fences.
pub(crate) fn fences(comm: &Comm) -> Result<(), Error> {
    in_a_fence(made(comm)?, |epoch| epoch.close())
}

/// The peer's part of two epochs between three fences.
pub(crate) fn fences_twice(comm: &Comm) -> Result<(), Error> {
    in_a_fence(made(comm)?, |epoch| epoch.next()?.close())
}

/// The peer's part of an access to it.
pub(crate) fn is_exposed(comm: &Comm) -> Result<(), Error> {
    let window = made(comm)?;
    window.post(&[Rank(0)])?.close()?;
    window.free().map(drop)
}

/// The peer's part of an exposure to it.
pub(crate) fn accesses(comm: &Comm) -> Result<(), Error> {
    let window = made(comm)?;
    window.start(&[Rank(0)])?.close()?;
    window.free().map(drop)
}

/// Closes an epoch of a fence in which the peer's part is written.
pub(crate) fn in_a_fence(
    window: Window<u64>,
    close: impl FnOnce(Epoch<'_, u64, Fence>) -> Result<(), Error>,
) -> Result<(), Error> {
    let epoch = window.fence()?;
    epoch.put(Rank(1 - window.comm().rank().0), 0, &elements())?;
    close(epoch)?;
    window.free().map(drop)
}

/// Closes an epoch of access in which the peer's part is written.
pub(crate) fn in_an_access(
    window: Window<u64>,
    close: impl FnOnce(Epoch<'_, u64, Access>) -> Result<(), Error>,
) -> Result<(), Error> {
    let epoch = window.start(&[PEER])?;
    epoch.put(PEER, 0, &elements())?;
    close(epoch)?;
    window.free().map(drop)
}

/// Calls a function with an exposure to the peer.
pub(crate) fn exposed(
    window: Window<u64>,
    call: impl FnOnce(Epoch<'_, u64, Exposure>) -> Result<(), Error>,
) -> Result<(), Error> {
    call(window.post(&[PEER])?)
}

/// Calls a function under the lock of the peer's part.
pub(crate) fn locked(
    window: Window<u64>,
    call: impl FnOnce(&Epoch<'_, u64, Lock>) -> Result<(), Error>,
) -> Result<(), Error> {
    let epoch = window.lock(PEER, LockKind::Exclusive)?;
    call(&epoch)?;
    epoch.close()?;
    window.free().map(drop)
}

/// The peer's part of a view of its part.
pub(crate) fn has_an_allocated_window(comm: &Comm) -> Result<(), Error> {
    comm.allocate_window::<u64>(LEN)?.free().map(drop)
}

/// Writes to the peer's part by a view, if the transport shares memory.
pub(crate) fn viewed(window: Window<u64>) -> Result<(), Error> {
    match window.view(PEER) {
        Ok(view) => view.store(0, 3)?,
        Err(Error::Window(why)) if *why == (WindowError::NotShared { rank: PEER }) => {}
        Err(error) => return Err(error),
    }
    window.free().map(drop)
}

/// Writes to a slice of the own part, and to the peer's part.
pub(crate) fn sliced(window: Window<u64>) -> Result<(), Error> {
    let mut epoch = window.lock(window.comm().rank(), LockKind::Exclusive)?;
    epoch.part_mut()?.fill(3);
    epoch.close()?;
    locked(window, |epoch| epoch.put(PEER, 0, &elements()))
}

/// Writes to a slice of the own part between epochs, and to the peer's part.
pub(crate) fn sliced_between(mut window: Window<u64>) -> Result<(), Error> {
    window.part_mut()?.fill(3);
    locked(window, |epoch| epoch.put(PEER, 0, &elements()))
}

/// Calls a function under the locks of all parts.
pub(crate) fn all_locked(
    window: Window<u64>,
    call: impl FnOnce(&Epoch<'_, u64, Lock>) -> Result<(), Error>,
) -> Result<(), Error> {
    let epoch = window.lock_all()?;
    call(&epoch)?;
    epoch.close()?;
    window.free().map(drop)
}
