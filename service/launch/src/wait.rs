//! Waits for several descriptors at the same time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use samite_control::Channel;

/// A descriptor to wait for, with the caller's name for it.
pub(super) struct Interest<'fd, T> {
    name: T,
    fd: PollFd<'fd>,
}

impl<'fd, T> Interest<'fd, T> {
    pub(super) fn read(name: T, fd: &'fd impl AsFd) -> Interest<'fd, T> {
        Interest { name, fd: PollFd::new(fd, PollFlags::IN) }
    }

    /// Returns an interest in reading from a channel, and in writing to it if it is backed up. Two interests would be
    /// too many: poll(2) fails if it gets more entries than the process may have descriptors.
    pub(super) fn exchange(name: T, channel: &'fd Channel) -> Interest<'fd, T> {
        let events = match channel.is_backed_up() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        Interest { name, fd: PollFd::new(channel, events) }
    }

    /// Returns an interest in reading from a borrowed descriptor.
    pub(super) fn of(name: T, fd: BorrowedFd<'fd>) -> Interest<'fd, T> {
        Interest { name, fd: PollFd::from_borrowed_fd(fd, PollFlags::IN) }
    }

    pub(super) fn write(name: T, fd: &'fd impl AsFd) -> Interest<'fd, T> {
        Interest { name, fd: PollFd::new(fd, PollFlags::OUT) }
    }
}

/// Waits until a descriptor in `interests` is ready or was closed by its other end, or until `timeout` has passed.
/// Returns the names of such descriptors, in the given order. Returns no names if a signal interrupts the wait.
pub(super) fn wait<T>(interests: Vec<Interest<'_, T>>, timeout: Option<Duration>) -> io::Result<Vec<T>> {
    let (names, mut fds): (Vec<T>, Vec<PollFd<'_>>) =
        interests.into_iter().map(|interest| (interest.name, interest.fd)).unzip();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let ready = names.into_iter().zip(fds).filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|(name, _)| name).collect())
}

/// Waits until `fd` can be written to.
pub(super) fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    wait(vec![Interest::write((), &fd)], None).map(drop)
}
