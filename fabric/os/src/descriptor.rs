//! Files that another process has open.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

use super::process::Process;
use crate::OsError;

/// Opens the file that `owner` has open as descriptor `fd`, if `is_meant` returns true for that file. The calling
/// process needs the right to read the owner's state (PTRACE_MODE_READ in ptrace(2)): in general, both processes must
/// have the same user, and `owner` must not run a setuid program.
///
/// The descriptor may refer to any file: a named pipe that would block open(2), a device on which an open has an
/// effect, a file in a file system that never answers. So the file is examined before it is opened, and the open does
/// not block.
///
/// # Errors
/// The system's errors; `InvalidInput` if `is_meant` returns false.
pub fn open(
    owner: Process,
    fd: u32,
    flags: OFlags,
    is_meant: impl FnOnce(&Kind) -> bool,
) -> io::Result<File> {
    let found = openat(CWD, path(owner, fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !is_meant(&Kind::of(&found)?) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is another kind of file"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

/// Returns the error of a port for a file of a peer that could not be opened. The error is [`OsError::Exhausted`] if no
/// descriptor was free, and otherwise [`OsError::Unreachable`]. Both contain the reason `why`.
pub fn refused(error: &io::Error, why: String) -> OsError {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => OsError::Exhausted {
            what: "descriptors of open files",
            hint: format!("{why}: raise their limit (ulimit -n)"),
        },
        _ => OsError::Unreachable { why },
    }
}

/// Returns the error of a port for a peer whose file could not be opened. If the peer has ended or closed its port, it
/// does not have the file any more, and the error is [`OsError::Ended`].
pub fn lost(owner: Process, fd: u32, error: &io::Error) -> OsError {
    let path = path(owner, fd);
    let unreachable = |why: String| OsError::Unreachable { why };
    let ended = |why: String| OsError::Ended { why };
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => refused(error, format!("{path} cannot be opened: {error}")),
        _ if !owner.is_alive() => ended(format!("its process, {}, has ended", owner.pid)),
        Some(libc::EACCES | libc::EPERM) => unreachable(format!(
            "this process may not open its memory: all ranks must run as one user, and let each other be inspected \
             ({path}: {error})"
        )),
        Some(libc::ENOENT) => ended(format!("its process, {}, has left the job, or is ending", owner.pid)),
        _ if error.kind() == io::ErrorKind::InvalidInput => ended(format!(
            "the peer's descriptor is another file: the peer has ended or closed its port ({path})"
        )),
        _ => unreachable(format!("{path} cannot be opened: {error}")),
    }
}

/// Returns the path of the file that `owner` has open as descriptor `fd`.
pub fn path(owner: Process, fd: u32) -> String {
    format!("/proc/{}/fd/{fd}", owner.pid)
}

/// The type of a file, and the file's identity: its file system and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The type.
    pub file_type: FileType,
    /// The file system it lies in.
    pub device: (u32, u32),
    /// The inode within that file system.
    pub inode: u64,
}

impl Kind {
    /// Returns the identity of a file, as far as the kernel knows it without asking the file system.
    pub fn of(file: &impl std::os::fd::AsFd) -> io::Result<Self> {
        const ITSELF: &CStr = c"";
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let Statx { stx_mode, stx_dev_major, stx_dev_minor, stx_ino, .. } =
            statx(file, ITSELF, flags, StatxFlags::TYPE | StatxFlags::INO)?;
        Ok(Self {
            file_type: FileType::from_raw_mode(stx_mode.into()),
            device: (stx_dev_major, stx_dev_minor),
            inode: stx_ino,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lost_file_means_is_said() {
        let gone = |owner, fd| match lost(owner, fd, &open(owner, fd, OFlags::RDONLY, |_| true).unwrap_err())
        {
            OsError::Ended { why } => why,
            other => panic!("{other:?}"),
        };
        let this = Process::current().unwrap();
        // Tries a process that does not exist, and a process whose id was reused.
        for ended in [Process { pid: u32::MAX, ..this }, Process { start: this.start + 1, ..this }] {
            assert_eq!(gone(ended, u32::MAX), format!("its process, {}, has ended", ended.pid));
        }
        assert_eq!(
            gone(this, u32::MAX),
            format!("its process, {}, has left the job, or is ending", this.pid)
        );
        let denied = lost(this, 3, &io::Error::from_raw_os_error(libc::EACCES));
        assert!(matches!(&denied, OsError::Unreachable { why } if why.contains("as one user")), "{denied}");
        let full = lost(this, 3, &io::Error::from_raw_os_error(libc::EMFILE));
        assert!(matches!(full, OsError::Exhausted { .. }));
    }

    #[test]
    fn only_the_kind_that_is_meant_is_opened() {
        let this = Process::current().unwrap();
        let file = File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd() as u32;
        let is_device = |kind: &Kind| kind.file_type == FileType::CharacterDevice;
        assert!(open(this, fd, OFlags::RDONLY, is_device).is_ok());
        let refused = open(this, fd, OFlags::RDONLY, |kind| !is_device(kind)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(open(this, u32::MAX, OFlags::RDONLY, |_| true).is_err());
    }
}
