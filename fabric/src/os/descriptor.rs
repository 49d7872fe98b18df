//! Files that another process has open.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

use super::process::Process;
use crate::PortError;

/// Opens the file that `owner` has open as descriptor `fd`, if `is_meant` says so. It takes the right to read that process's
/// state (PTRACE_MODE_READ in ptrace(2)): in general, the same user and no setuid program.
///
/// The owner may have anything there: a named pipe that would make open(2) wait, a device on which it would have an effect,
/// a file of a file system that never answers. So the file is looked at before it is opened, and the open does not wait.
///
/// # Errors
/// Those of the system; `InvalidInput` if another file is meant.
pub(crate) fn open(
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

/// What a port says of a file of a peer that does not open: `why`, unless this process has no room for another file.
pub(crate) fn refused(error: &io::Error, why: String) -> PortError {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => PortError::Exhausted {
            what: "descriptors of open files",
            hint: format!("{why}: raise their limit (ulimit -n)"),
        },
        _ => PortError::Unreachable { why },
    }
}

/// Where it is found.
pub(crate) fn path(owner: Process, fd: u32) -> String {
    format!("/proc/{}/fd/{fd}", owner.pid)
}

/// The type of a file, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) file_type: FileType,
    /// The file system it lies in.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
}

impl Kind {
    /// As far as the system knows without a question to the file system.
    pub(crate) fn of(file: &impl std::os::fd::AsFd) -> io::Result<Self> {
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
