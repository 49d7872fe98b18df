//! What the system says of its memory.

use std::fs;
use std::io;

/// Bytes of memory of this machine.
pub(crate) fn bytes() -> io::Result<usize> {
    // SAFETY: sysconf(3) takes an integer.
    let [pages, page] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) => Ok(pages.saturating_mul(page)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the system promises memory when it is asked for, and refuses what it could not give
/// (vm.overcommit_memory in proc_sys_vm(5)).
pub(crate) fn is_promised() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/sys/vm/overcommit_memory")?.trim() == "2")
}
