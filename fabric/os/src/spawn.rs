//! Starting a process that does not outlive its parent, and handing it descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, FdFlags};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the process that `command` starts receive `signal` when the thread that spawns it ends for any reason.
///
/// The kernel sends the signal when the *thread* that spawns ends, so spawn from a thread that lasts as long as the
/// process. The child keeps this setting over `exec`, unless the new program is a set-user-id program. The child's own
/// children do not inherit the setting.
pub fn end_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = getpid();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. prctl and
    // getppid are plain system calls in rustix; building an `io::Error` from a number allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have died between fork and prctl. In this case the kernel never sends the signal, so the
            // start of the process fails.
            if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
        })
    }
}

/// Leaves `fd` open in the process that `command` starts, under the number returned.
///
/// `command` owns the descriptor from here on: drop it after the spawn to close the parent's copy.
pub fn pass_fd(command: &mut Command, fd: OwnedFd) -> RawFd {
    let number = fd.as_raw_fd();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. Its only call is
    // fcntl, which is such a call. The closure owns `fd`, so `fd` is open whenever the closure runs.
    unsafe { command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&fd, FdFlags::empty())?)) };
    number
}

/// Returns a duplicate of the descriptor that the parent passed to this process as `number`: see [`pass_fd`].
///
/// The original stays open, so that a child of this process finds it under the same number.
///
/// # Errors
/// `EBADF` if no descriptor has this number, or if this process has opened it itself.
pub fn inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // An inherited descriptor is not close-on-exec, because it has survived an exec. The descriptors that std opens are
    // close-on-exec, so the descriptors that values of this process own are refused here. (A wrong guess only
    // duplicates a descriptor, and closes none.)
    if fcntl(number, libc::F_GETFD, 0)? & libc::FD_CLOEXEC != 0 {
        return Err(Errno::BADF.into());
    }
    let duplicate = fcntl(number, libc::F_DUPFD_CLOEXEC, 0)?;
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Takes the descriptor that the parent passed to this process as `number`: neither a later call nor a child of this
/// process finds it again.
///
/// # Errors
/// Returns the errors of [`inherited_fd`].
pub fn take_inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    let duplicate = inherited_fd(number)?;
    fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC)?;
    Ok(duplicate)
}

/// Executes a command of fcntl(2) that takes an integer, on a descriptor that is possibly closed.
fn fcntl(fd: RawFd, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: fcntl(2) takes integers for the commands above, touches no memory, and fails with EBADF if the descriptor
    // is not open.
    let result = unsafe { libc::fcntl(fd, command, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes the kernel kill the calling process with SIGKILL when its parent dies, if the parent has only one thread.
///
/// This is for a rank that was started by a wrapper, for example a shell. The agent starts the wrapper with
/// [`end_with_parent`], so the kernel kills the wrapper when the agent dies. The wrapper's children do not inherit that
/// setting, and the rank must die too. If the parent has several threads, this does nothing, since the kernel would
/// send the signal when the forking thread ends, although the parent may still run.
pub fn end_with_simple_parent() -> io::Result<()> {
    let Some(parent) = getppid() else { return Ok(()) };
    let threads = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()))?.count();
    if threads == 1 {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_was_inherited_is_duplicated_and_taken_once() {
        // The descriptor is in the state of an inherited one after an exec: open, and not close-on-exec.
        let original: OwnedFd = rustix::pipe::pipe().unwrap().0;
        let number = original.as_raw_fd();
        let inode = |fd: OwnedFd| File::from(fd).metadata().unwrap().ino();
        assert_eq!(inode(inherited_fd(number).unwrap()), inode(inherited_fd(number).unwrap()));
        let taken = take_inherited_fd(number).unwrap();
        assert!(rustix::io::fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        for gone in [number, -1, i32::MAX] {
            assert_eq!(inherited_fd(gone).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
        // The duplicate outlives the original.
        drop(original);
        inode(taken);
    }

    #[test]
    fn what_this_process_opened_is_not_inherited() {
        let ours = File::open("/dev/null").unwrap();
        assert_eq!(inherited_fd(ours.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
