//! Alarms, which wake a sleeping thread of this or another process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{FileType, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::descriptor::{self, Kind};
use super::process::Process;

/// An alarm: a descriptor that becomes readable when it is rung, and stays readable until it is silenced.
///
/// It is a pipe that one descriptor holds open for reading and writing, so that a write to the pipe never fails for
/// lack of a reader. An eventfd would suffice within a process, but unlike a pipe it cannot be opened from another
/// process through /proc/PID/fd.
#[derive(Debug)]
pub struct Alarm(File);

impl Alarm {
    /// Returns a new alarm.
    ///
    /// # Errors
    /// If the limit of open files is reached, or if /proc is not mounted.
    pub fn new() -> io::Result<Self> {
        let (end, _other) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        let both = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)?;
        Ok(Self(both))
    }

    /// Returns the name by which other processes find the alarm.
    ///
    /// # Errors
    /// If the system cannot determine the pipe's identity.
    pub fn name(&self) -> io::Result<AlarmName> {
        Ok(AlarmName { fd: self.0.as_raw_fd() as u32, inode: self.0.metadata()?.ino() })
    }

    /// Opens another process's alarm. This process needs the right to read the other process's state (PTRACE_MODE_READ
    /// in ptrace(2)).
    ///
    /// # Errors
    /// If this process does not have that right, or the other process has closed the alarm.
    pub fn open(owner: Process, name: AlarmName) -> io::Result<Self> {
        let is_meant = |kind: &Kind| kind.file_type == FileType::Fifo && kind.inode == name.inode;
        descriptor::open(owner, name.fd, OFlags::RDWR, is_meant).map(Self)
    }

    /// Makes the descriptor readable. This takes one system call, which never blocks.
    #[cold]
    pub fn ring(&self) {
        // The write fails only if the pipe is full: then the pipe is readable already.
        let _ = (&self.0).write(&[0]);
    }

    /// Makes the descriptor unreadable, unless the alarm is rung meanwhile. The call reads little more than a full pipe
    /// contains, so that a process that rings without end does not keep the caller busy.
    pub fn silence(&self) {
        let mut rings = [0; 256];
        for _ in 0..=PIPE_BYTES / rings.len() {
            if !(&self.0).read(&mut rings).is_ok_and(|count| count == rings.len()) {
                break;
            }
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The default capacity of a pipe, in bytes: pipe(7).
const PIPE_BYTES: usize = 64 << 10;

/// An alarm's descriptor in its owner's process, and the identity of the pipe, so that a reused descriptor number
/// is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmName {
    /// The number of the descriptor.
    pub fd: u32,
    /// The inode of the pipe.
    pub inode: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(alarm: &Alarm) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn it_is_readable_from_a_ring_to_the_next_hush() {
        let alarm = Alarm::new().unwrap();
        let elsewhere = Alarm::open(Process::current().unwrap(), alarm.name().unwrap()).unwrap();
        assert!(!is_readable(&alarm));
        // `ring` must not block, even if it is called more times than the pipe holds bytes.
        for rings in [1, 300, 100_000] {
            (0..rings).for_each(|_| elsewhere.ring());
            assert!(is_readable(&alarm));
            alarm.silence();
            assert!(!is_readable(&alarm));
        }
        drop(alarm);
        elsewhere.ring();
    }

    #[test]
    fn another_file_is_not_taken_for_it() {
        let this = Process::current().unwrap();
        let (alarm, other) = (Alarm::new().unwrap(), Alarm::new().unwrap());
        let name = alarm.name().unwrap();
        let fd = other.name().unwrap().fd;
        assert!(Alarm::open(this, AlarmName { fd, ..name }).is_err());
        drop(alarm);
        assert!(Alarm::open(this, name).is_err());
    }
}
