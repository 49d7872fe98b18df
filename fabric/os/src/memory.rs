//! What the system says of its memory.

use std::fs;
use std::io;

/// Bytes of memory of this machine.
pub fn bytes() -> io::Result<usize> {
    Ok(configured(libc::_SC_PHYS_PAGES)?.saturating_mul(page()?))
}

/// Bytes of a page.
pub fn page() -> io::Result<usize> {
    configured(libc::_SC_PAGESIZE)
}

fn configured(name: libc::c_int) -> io::Result<usize> {
    // SAFETY: sysconf(3) takes an integer.
    let value = unsafe { libc::sysconf(name) };
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// Whether the system promises memory when it is asked for, and refuses what it could not give
/// (vm.overcommit_memory in proc_sys_vm(5)).
pub fn is_promised() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/sys/vm/overcommit_memory")?.trim() == "2")
}
