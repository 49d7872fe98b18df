//! Signals that are read from a descriptor: signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::Signal;

/// A descriptor that becomes readable when one of its signals is sent to the process.
///
/// The signals are blocked in the thread that creates it, so create it at the start of `main`, before any other thread
/// exists. Children inherit the blocked mask: see [`unblock_in`].
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

impl SignalFd {
    /// Blocks `signals` and returns the descriptor that reports them.
    ///
    /// A signal that the process was started to ignore, as `nohup` does with SIGHUP, stays ignored and is
    /// never reported. SIGCHLD is the exception: ignoring it would make the kernel throw away the status of
    /// children.
    pub fn block(signals: &[Signal]) -> io::Result<SignalFd> {
        let mut set = empty_set();
        for &signal in signals {
            if is_ignored(signal)? {
                if signal != Signal::CHILD {
                    continue;
                }
                // Set the disposition only if the signal is ignored. A change to a disposition by which a signal has no
                // effect discards a pending signal (sigaction(2)). Then another thread of this process, which waits for
                // the end of a child, would miss it.
                // SAFETY: SIG_DFL is a valid disposition for SIGCHLD and installs no handler.
                if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_ERR {
                    return Err(io::Error::last_os_error());
                }
            }
            // SAFETY: `set` was initialised by `sigemptyset` and is borrowed for the call only.
            unsafe { libc::sigaddset(&mut set, signal.as_raw()) };
        }
        set_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: -1 asks for a new descriptor; `set` is initialised and outlives the call.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just returned this descriptor, so nothing else owns it.
        Ok(SignalFd { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Returns the next signal that has arrived, or `None` if no signal waits. The call never blocks.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            Ok(_) => {
                // `ssi_signo` is the first field of the record, which the kernel writes whole.
                let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
                Ok(Signal::from_named_raw(number as i32))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Unblocks `signals`, for example after [`SignalFd::block`], in this thread, so that they have their usual effect
/// again. A signal that has arrived and was not read takes effect at once.
pub fn unblock(signals: &[Signal]) -> io::Result<()> {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` was initialised by `sigemptyset` and is borrowed for the call only.
        unsafe { libc::sigaddset(&mut set, signal.as_raw()) };
    }
    set_mask(libc::SIG_UNBLOCK, &set)
}

/// Calls `body` while this thread blocks all signals except those of its own faults. A thread that is started by `body`
/// inherits the blocked signals, and keeps them blocked.
pub fn with_all_blocked<R>(body: impl FnOnce() -> R) -> R {
    struct Restored(libc::sigset_t);
    impl Drop for Restored {
        fn drop(&mut self) {
            let _ = set_mask(libc::SIG_SETMASK, &self.0);
        }
    }
    let (mut set, mut old) = (empty_set(), empty_set());
    // SAFETY: sigfillset and sigdelset change the set that they are given, and pthread_sigmask writes the old mask,
    // which outlives the call, before it returns.
    let blocked = unsafe {
        libc::sigfillset(&mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, &mut old)
    };
    let _restored = (blocked == 0).then(|| Restored(old));
    body()
}

/// Starts `command` with no signal blocked, regardless of the parent's mask.
pub fn unblock_in(command: &mut Command) -> &mut Command {
    let none = empty_set();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed; it makes
    // one, pthread_sigmask (signal-safety(7)), allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || set_mask(libc::SIG_SETMASK, &none)) }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set that it is given, and cannot fail on a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is initialised and outlives the call; a null old set is allowed.
    match unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action changes nothing; the kernel fills `action` when it returns 0.
    if unsafe { libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction returned 0, so it has initialised `action`.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_pending_survives_another_descriptor() {
        let first = SignalFd::block(&[Signal::CHILD]).unwrap();
        // SAFETY: raise sends a signal to this thread, which blocks it.
        assert_eq!(unsafe { libc::raise(libc::SIGCHLD) }, 0);
        drop(SignalFd::block(&[Signal::CHILD]).unwrap());
        assert_eq!(first.read().unwrap(), Some(Signal::CHILD));
    }
}
