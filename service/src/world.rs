//! All ranks of a job.

use std::ops::Deref;

use crate::Comm;

/// This process's place in its job, and the communicator of all its ranks.
///
/// When it is dropped this rank says goodbye, and waits a limited time for the others to take what was sent
/// to them. Calls on what is left of it, and calls of other threads that wait, end with [`Error::Closed`](crate::Error).
///
/// It belongs to the process that made it. Dropped in a child of fork(2) it does nothing.
#[derive(Debug)]
pub struct World {
    comm: Comm,
}

impl World {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm }
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
