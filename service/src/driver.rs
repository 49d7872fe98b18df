//! The program as the driver of its futures.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::transport::Transport;
use crate::watch::Bell;
use crate::{Comm, Error};

/// A handle by which the program itself, on its executor, makes progress for the futures of a lane. Without it a thread
/// of the runtime makes this progress. Made by [`Comm::driver`].
///
/// A `Driver` has a file descriptor ([`AsFd`]), which is readable when there is something to do. [`drive`](Self::drive)
/// does that work without blocking, and wakes the futures that can continue. So a program that waits for the descriptor
/// in its executor, and then drives, has no other thread:
///
/// ```
/// use samite::{Driver, Error};
/// use tokio::io::unix::AsyncFd;
///
/// /// Drives until the `World` is dropped.
/// #[allow(deprecated)] // tokio 1.54 adds AsyncFd::register, which is unsafe. A Driver fulfils its conditions.
/// async fn drive(driver: Driver) -> Result<(), Error> {
///     let driver = AsyncFd::new(driver).expect("a runtime with I/O");
///     loop {
///         driver.get_ref().drive()?;
///         driver.readable().await.expect("the runtime runs").clear_ready();
///     }
/// }
///
/// samite::local(2, |world| {
///     let comm = world.comm();
///     let other = samite::Rank(1 - comm.rank().0);
///     let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
///     tokio.block_on(async {
///         let driving = tokio::spawn(drive(comm.driver()?));
///         let receive = comm.irecv(vec![0; 1], other, 7)?;
///         comm.isend(vec![comm.rank().0], other, 7)?.await?;
///         assert_eq!(receive.await?.buffer, [other.0]);
///         driving.abort();
///         Ok::<(), Error>(())
///     })
/// }).into_iter().for_each(Result::unwrap);
/// ```
/// With smol, a program waits by `Async::new(driver)?.readable().await?`.
///
/// While a `Driver` exists, no thread is started for futures, and a running one ends. So futures continue only while
/// the program drives; a task that blocks the executor keeps them waiting. Calls that block, in any thread, do not
/// depend on the `Driver`: they make progress themselves. When the `Driver` is dropped, a thread takes over for the
/// futures that still wait. If the program forgets the `Driver` (`mem::forget`), these futures keep waiting.
///
/// A lane has one `Driver` at a time. Each further lane ([`Comm::lane`]) has a driver of its own: a thread, or a
/// `Driver` made from a [`Comm`] of that lane.
#[must_use = "dropped, it hands the futures over to a thread"]
pub struct Driver {
    runtime: Arc<Runtime<Transport>>,
    bell: Arc<Bell>,
}

impl Comm {
    /// Makes the program the driver of the futures in this handle's lane: see [`Driver`]. The futures of all
    /// communicators in the lane then depend on the program.
    ///
    /// # Errors
    /// [`Error::DriverExists`] while the lane has another `Driver`. [`Error::Exhausted`] at the limit of open files.
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn driver(&self) -> Result<Driver, Error> {
        let bell = self.handle_result("driver", self.runtime.lend_driver())?;
        Ok(Driver { runtime: Arc::clone(&self.runtime), bell })
    }
}

impl Driver {
    /// Makes progress until nothing is left to do, and wakes the futures that can continue. Then the descriptor is not
    /// readable, and becomes readable with the next event, or when a deadline passes. Does not block. After some work
    /// it returns early, and leaves the descriptor readable, so that other tasks get their turn.
    ///
    /// Functions of [`Request::on_end`](crate::Request::on_end) run in this call.
    ///
    /// # Errors
    /// Errors of the runtime itself: [`Error::Closed`] after the [`World`](crate::World) was dropped,
    /// [`Error::Forked`], [`Error::Condemned`], [`Error::Transport`]. The futures that wait have been woken and return
    /// the error too. After `Condemned` and `Transport`, the descriptor becomes readable some milliseconds later, so
    /// the program may continue to drive. No [`ErrorHandler`](crate::ErrorHandler) is called: the operations report the
    /// error.
    pub fn drive(&self) -> Result<(), Error> {
        self.runtime.drive_for_program(&self.bell)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.runtime.take_driver_back();
    }
}

/// The descriptor of an epoll instance. It becomes readable when [`drive`](Driver::drive) has something to do, for
/// level-triggered and edge-triggered interest alike. The program may only wait for it, and must not change it.
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("descriptor", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
