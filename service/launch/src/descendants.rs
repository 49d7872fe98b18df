//! Kills all descendants of this process.

use std::{fs, io};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Makes this process the new parent of descendants whose parent dies.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills every descendant with SIGKILL and waits for each. On return this process, which must adopt orphans,
/// has no descendant left, except processes that the system does not allow it to kill.
///
/// Kills only children. When a child is gone, its own children become children of this process, and are killed in the
/// next round. A child's id cannot be reused before the child has been waited for, so no other process is ever killed.
pub(super) fn kill_all() -> io::Result<()> {
    loop {
        // Usually the job has ended by itself, and this loop costs one system call.
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut killed = 0;
        for child in children()? {
            match kill_process(child, Signal::KILL) {
                Ok(()) => killed += 1,
                Err(rustix::io::Errno::PERM | rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if killed == 0 {
            // The remaining processes run as another user.
            return Ok(());
        }
        wait(WaitOptions::empty())?;
    }
}

fn children() -> io::Result<Vec<Pid>> {
    let us = getpid();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // If the process has ended meanwhile, its file does not exist any more.
        let Ok(stat) = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) else { continue };
        if parent_of(&stat) == Some(us) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// Returns the parent in a line of `/proc/PID/stat`: the second field after the command's name, which stands in
/// parentheses and may contain any characters, parentheses and newlines included (proc_pid_stat(5)).
fn parent_of(stat: &[u8]) -> Option<Pid> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    Pid::from_raw(rest.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_whatever_the_command_is_called() {
        assert_eq!(parent_of(b"12 (sh) S 7 12 12 0"), Pid::from_raw(7));
        assert_eq!(parent_of(b"12 (a) S 9 (b\n) R 8 12"), Pid::from_raw(8));
        assert_eq!(parent_of(b"12 (\xff\xfe) S 7 12"), Pid::from_raw(7));
        assert_eq!(parent_of(b"1 (init) S 0 1"), None);
        assert_eq!(parent_of(b"garbage"), None);
    }
}
