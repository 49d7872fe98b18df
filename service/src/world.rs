//! A process's place in its job.

use std::sync::Arc;

use crate::lanes::Lanes;
use crate::{Comm, Error};

/// This process's place in its job. Its messages go through the communicator of all ranks, [`comm`](Self::comm).
///
/// ```
/// let world = samite::init()?;
/// let comm = world.comm();
/// println!("rank {} of {}", comm.rank(), comm.size());
/// world.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// A `World` is not a `Comm`, and does not dereference to one: it exists once and ends the rank's part in the job,
/// while a `Comm` is a handle that programs clone, bound by deadlines and keep. So a call shows which of the two it
/// concerns.
///
/// A rank leaves the job by [`leave`](Self::leave), or when its `World` is dropped. In both cases it says goodbye to
/// its peers, and waits a limited time (`SAMITE_LINGER_US`) for them to take the messages sent to them. It waits longer
/// for messages whose sends have returned before the messages could be sent (see [`Comm::send`]), as `MPI_Finalize`
/// does: until the receivers have taken them, have failed or have left, at most until the time-outs of the sends. So a
/// send without a time-out can make this rank wait as long as its receiver makes no call. The two ways differ in the
/// report to the other ranks:
///
/// * After `leave` the rank has left in good order. The later end of its process makes no difference.
/// * After a drop, `samite run` waits for the process to end. If the exit code is 0, the rank has left in good order.
///   After any other code or a signal the rank has failed, and is restarted under `--on-failure restart`. So a `main`
///   that returns `Err` has failed; the error is printed when the drop has ended. If the process still runs a second
///   later, the other ranks are informed that the rank has left, and later of a failure if one follows.
/// * If the `World` is dropped while the thread panics, the rank has failed at once.
///
/// Launchers other than `samite run` do not report how a process ended: there a drop is the same as `leave`, unless the
/// thread panics.
///
/// A [`Comm`] may outlive its `World`, and so may requests, sets and messages: then every call on them returns
/// [`Error::Closed`] at once, calls that wait in other threads included, and [`Comm::stats`] returns the statistics at
/// the time of the drop. A `World` belongs to the process that made it: dropped in a child of fork(2) it does nothing.
#[derive(Debug)]
pub struct World {
    comm: Comm,
    lanes: Arc<Lanes>,
}

impl World {
    pub(crate) fn new(lanes: Arc<Lanes>) -> Self {
        Self { comm: Comm::world(Arc::clone(lanes.first())), lanes }
    }

    /// Returns the communicator of all ranks. It can be cloned and may outlive the `World`.
    #[must_use]
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Leaves the job in good order. This is final: the other ranks see no failure even if the process then ends with
    /// an error or a signal, and the rank is not restarted. Its exit code still counts for `samite run`, which ends the
    /// job for a code other than 0 unless it was started with `--on-failure continue` or `restart`.
    ///
    /// # Errors
    /// This rank has left all the same. [`Error::Undelivered`] if messages of the outbox were not delivered, or if
    /// their fate is unknown: it contains each receiver with its number of messages. [`Error::TimedOut`] if a rank has
    /// not taken the other messages sent to it within `SAMITE_LINGER_US`.
    /// [`WindowError::TimedOut`](crate::WindowError::TimedOut) if an epoch or a window that was dropped did not end in
    /// this time; requests of windows that still exist end with [`Error::Closed`] instead. [`Error::Condemned`] if this
    /// rank was given up before, [`Error::Forked`] in a child of fork(2).
    pub fn leave(self) -> Result<(), Error> {
        self.lanes.say_goodbye(|directory| directory.leave())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lanes.abandon();
        } else {
            // A drop cannot return an error. A lost message shows in `Stats::lost` and in the trace.
            if let Err(_error) = self.lanes.say_goodbye(|directory| directory.close()) {
                #[cfg(feature = "tracing")]
                tracing::warn!(target: "samite", rank = %self.comm.rank(), error = %_error, "left with an error");
            }
        }
    }
}

/// The context of the world's messages.
pub(crate) const CONTEXT: u32 = 1;

/// The context in which the ranks of the world agree on new communicators.
pub(crate) const CONTROL: u32 = 0;
