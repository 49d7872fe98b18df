//! All ranks of a job.

use std::ops::Deref;

use crate::{Comm, Error};

/// This process's place in its job, and the communicator of all its ranks.
///
/// A rank leaves the job by [`leave`](Self::leave), or when this is dropped. Both say goodbye, and wait a limited time
/// (`SAMITE_LINGER_US`) for the others to take the messages sent to them. The report to the others depends on the way:
///
/// * After `leave` the rank has left in good order, whatever its process does then.
/// * After a drop, `samite run` waits for the process to end. Exit code 0: the rank has left in good order. Any other code or a
///   signal: it has failed, and is restarted under `--on-failure restart`. So a `main` that returns `Err` has
///   failed. If the process still runs a second later, the others learn that the rank has left, and of a failure if
///   one follows.
/// * Dropped while the thread panics, the rank has failed at once.
///
/// Launchers other than `samite run` do not report how a process ended: there a drop is the same as `leave`, unless the
/// thread panics.
///
/// Later calls on its communicators, and waiting calls of other threads, end with [`Error::Closed`]. It belongs to the
/// process that made it: dropped in a child of fork(2) it does nothing.
#[derive(Debug)]
pub struct World {
    comm: Comm,
}

impl World {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm }
    }

    /// Leaves the job in good order, and finally: whatever this process does afterwards is no failure for the others,
    /// and the rank is not restarted. Its exit code still counts for `samite run`, which ends the job for a code other
    /// than 0 unless it was started with `--on-failure continue` or `restart`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a rank has not taken the messages sent to it within `SAMITE_LINGER_US`; this rank has
    /// left all the same. [`Error::Condemned`] if it was given up before, [`Error::Forked`] in a child of fork(2).
    pub fn leave(self) -> Result<(), Error> {
        self.comm.runtime.leave()
    }
}

impl Deref for World {
    type Target = Comm;
    fn deref(&self) -> &Comm {
        &self.comm
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.comm.runtime.abandon();
        } else {
            self.comm.runtime.close();
        }
    }
}

/// The context of the world's messages.
pub(crate) const CONTEXT: u32 = 1;
