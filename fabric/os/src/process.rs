//! The identity of a process, and the check that it is alive.
//!
//! A process id alone is not an identity: ids are reused, and each pid namespace counts its own. A [`Place`] identifies
//! the boot and namespace within which ids are comparable. A [`Process`] adds the start time, which distinguishes two
//! users of one id.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

/// One pid namespace in one boot of one kernel. Within a place, a process id means the same process to all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The kernel's boot id, which is random and differs after each boot. It is the same in all containers of a host.
    pub boot: [u8; 16],
    /// The inode of the pid namespace.
    pub pid_namespace: u64,
}

impl Place {
    /// Returns the place in which this process runs.
    ///
    /// # Errors
    /// If /proc is not mounted, or the file there is not as proc(5) says.
    pub fn current() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = parse_boot_id(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/sys/kernel/random/boot_id"))?;
        Ok(Self { boot, pid_namespace: fs::metadata("/proc/self/ns/pid")?.ino() })
    }
}

/// The identity of a process. Within a [`Place`] no other process ever has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The time at which the process started, in clock ticks since boot (proc(5), field 22 of stat).
    pub start: u64,
}

impl Process {
    /// Returns the calling process.
    ///
    /// # Errors
    /// If /proc is not mounted, or belongs to another pid namespace.
    pub fn current() -> io::Result<Self> {
        let pid = std::process::id();
        // In the /proc of another namespace, `self` is still this process, but `pid` may be a different one.
        if fs::read_link("/proc/self")?.to_str() != Some(&pid.to_string()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "/proc is of another pid namespace"));
        }
        Ok(Self { pid, start: start_of(pid)? })
    }

    /// Returns the process that has this id now, in the pid namespace whose /proc is mounted.
    ///
    /// # Errors
    /// `NotFound` if no process has this id.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, start: start_of(pid)? })
    }

    /// Returns true if any thread of the process still runs, or if the system refuses the query. A result of `false` is
    /// certain and final. A result of `true` may be outdated when the caller reads it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let pidfd = match open_pidfd(self.pid) {
            Ok(pidfd) => Some(pidfd),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return false,
            Err(_) => None,
        };
        // The start is read after the descriptor was opened. If the id belongs to the process now, it belonged to the
        // process then, so the descriptor refers to the process.
        match start_of(self.pid) {
            Ok(start) if start != self.start => return false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            _ => {}
        }
        !pidfd.is_some_and(|pidfd| has_ended(&pidfd))
    }

    /// Returns a descriptor that becomes readable when the process has ended, in all its threads.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended already; otherwise the error of pidfd_open(2), which Linux before 5.3 does not
    /// have.
    pub fn end(&self) -> io::Result<OwnedFd> {
        let pidfd = open_pidfd(self.pid)?;
        // The start is read after the descriptor was opened. If the id belongs to the process now, it belonged to the
        // process then, so the descriptor refers to the process.
        if self.is_alive() { Ok(pidfd) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }
}

/// Returns the number of the user as whom this process acts.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: geteuid(2) takes nothing, cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Returns true if this process may use fewer cores than `ranks`, so that `ranks` ranks would have to share cores.
#[must_use]
pub fn is_crowded(ranks: u32) -> bool {
    ranks as usize > std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns true if a child that has not been waited for is exiting or dead: it executes no more code of its program,
/// but the kernel may take long to free its resources on a busy machine.
///
/// # Errors
/// If /proc is not mounted, or the file there is not as proc(5) says.
pub fn is_exiting(pid: u32) -> io::Result<bool> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_exiting(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat"))
}

/// Parses fields 3 and 9 of /proc/PID/stat, which are the state and the flags of the process.
fn parse_exiting(stat: &[u8]) -> Option<bool> {
    // The kernel sets this flag before the process closes its descriptors (Linux, include/linux/sched.h).
    const PF_EXITING: u32 = 0x4;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let flags: u32 = fields.nth(9 - 4)?.parse().ok()?;
    Some(matches!(state, "Z" | "X") || flags & PF_EXITING != 0)
}

fn start_of(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_start(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat"))
}

/// Parses field 22 of /proc/PID/stat. Fields are counted from the last parenthesis, because the second field is the
/// program's name in parentheses, and the name may contain any characters.
fn parse_start(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.trim().bytes().filter(|&byte| byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).ok()?;
    (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())?.map(u128::to_be_bytes)
}

fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the process has ended with all its threads. Then its pidfd is readable, even before the process is
/// reaped (pidfd_open(2)).
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one initialized pollfd, exclusively borrowed; a timeout of 0 does not wait.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_where_it_is_and_alive() {
        assert_eq!(Place::current().unwrap(), Place::current().unwrap());
        let this = Process::current().unwrap();
        assert!(this.is_alive());
        assert!(!Process { start: this.start + 1, ..this }.is_alive(), "another life of the same id");
    }

    #[test]
    fn a_killed_process_is_dead_before_it_is_reaped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        let end = process.end().unwrap();
        assert!(!has_ended(&end));
        child.kill().unwrap();
        // The process is alive until the signal is delivered, and no other thread reaps it meanwhile.
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(has_ended(&end));
        assert_eq!(process.end().unwrap_err().raw_os_error(), Some(libc::ESRCH));
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn a_dead_child_is_exiting_until_it_is_reaped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!is_exiting(child.id()).unwrap());
        child.kill().unwrap();
        while !is_exiting(child.id()).unwrap() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(is_exiting(child.id()).unwrap_err().kind(), io::ErrorKind::NotFound);
        for (stat, exiting) in [
            (&b"7 (a) R 1 2 3 4 5 4194560 6"[..], Some(false)),
            (b"7 (a) R 1 2 3 4 5 4194564 6", Some(true)),
            (b"7 (a) R) Z 1 2 3 4 5 0 6", Some(true)),
            (b"7 (a) R 1 2", None),
            (b"", None),
        ] {
            assert_eq!(parse_exiting(stat), exiting);
        }
    }

    #[test]
    fn a_name_cannot_forge_the_start_time() {
        let stat = b"77 (a) R 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse_start(stat), Some(4242));
        for bad in [&b""[..], b"77 (a", b"77 (a) R 1 2", b"77 (a) \xff"] {
            assert_eq!(parse_start(bad), None);
        }
    }

    #[test]
    fn boot_ids_are_parsed() {
        let boot = parse_boot_id("00010203-0405-0607-0809-0a0b0c0d0e0f\n").unwrap();
        assert_eq!(boot, std::array::from_fn(|i| i as u8));
        for bad in
            ["", "00010203", "0001020g-0405-0607-0809-0a0b0c0d0e0f", "é0010203-0405-0607-0809-0a0b0c0d0e0"]
        {
            assert_eq!(parse_boot_id(bad), None);
        }
    }
}
