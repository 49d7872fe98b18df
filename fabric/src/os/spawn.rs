//! Starting a process that does not outlive its parent, and handing it descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, FdFlags};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the process that `command` starts receive `signal` when the calling thread ends, however that
/// happens.
///
/// The kernel ties this to the *thread* that spawns, so spawn from one that lasts as long as the process. The
/// child keeps it over `exec`, except of a set-user-id program; its own children do not inherit it.
pub fn end_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = getpid();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. prctl and
    // getppid are plain system calls in rustix; building an `io::Error` from a number allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have died between fork and prctl: then the signal will never come.
            if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
        })
    }
}

/// Leaves `fd` open in the process that `command` starts, under the number returned.
///
/// `command` owns the descriptor from here on: drop it after the spawn to close the parent's copy.
pub fn pass_fd(command: &mut Command, fd: OwnedFd) -> RawFd {
    let number = fd.as_raw_fd();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed; it makes
    // one, fcntl. It owns `fd`, which is therefore open whenever it runs.
    unsafe { command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&fd, FdFlags::empty())?)) };
    number
}

/// The descriptor that the parent passed to this process as `number`; see [`pass_fd`].
///
/// It is borrowed for good and stays open, so that a child which inherits the same number finds the same
/// thing.
///
/// # Errors
/// `EBADF` when nothing is open there, or when it is a descriptor that this process opened itself.
pub fn inherited_fd(number: RawFd) -> io::Result<BorrowedFd<'static>> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: used for one fcntl, which fails with EBADF if the number is not open and changes nothing if it
    // is.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    // What survived an exec is not close-on-exec, and what Rust's std opens is: a descriptor that some other
    // value of this process owns, and could close, is refused here.
    if rustix::io::fcntl_getfd(fd)?.contains(FdFlags::CLOEXEC) {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the descriptor is open and was inherited through exec, so no owning value in this program
    // exists for it: it stays open for the life of the process.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Makes the calling process die with SIGKILL when its parent does, if the parent is a process of one thread.
///
/// For a rank that a wrapper started: a shell dies with its own parent, and the rank should follow. With a
/// parent of several threads nothing is changed, since the signal would come when the one that forked ends.
pub fn end_with_simple_parent() -> io::Result<()> {
    let Some(parent) = getppid() else { return Ok(()) };
    let threads = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()))?.count();
    if threads == 1 {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    Ok(())
}
