//! The system's memory: its size, its page size, and its policy of overcommitment.

use std::fs;
use std::io;

/// Returns the size of this machine's memory in bytes.
pub fn bytes() -> io::Result<usize> {
    Ok(configured(libc::_SC_PHYS_PAGES)?.saturating_mul(page()?))
}

/// Returns the bytes of a page.
pub fn page() -> io::Result<usize> {
    configured(libc::_SC_PAGESIZE)
}

fn configured(name: libc::c_int) -> io::Result<usize> {
    // SAFETY: sysconf(3) takes an integer.
    let value = unsafe { libc::sysconf(name) };
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// Returns true if the system commits memory at allocation, and refuses requests that it could not satisfy
/// (vm.overcommit_memory in proc_sys_vm(5)).
pub fn is_promised() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/sys/vm/overcommit_memory")?.trim() == "2")
}
