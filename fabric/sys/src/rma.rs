//! Remote memory access (`rdma/fi_rma.h`, `man 3 fi_rma`).
//!
//! Each function returns 0, or `-FI_EAGAIN` when queues are full: read completions, and try again. `addr` is a virtual
//! address if the domain's mode has [`FI_MR_VIRT_ADDR`], and an offset into the region otherwise.

use core::ffi::c_void;

use libc::iovec;

use crate::table::through_table;
use crate::*;

through_table! {
    /// Reads from remote memory.
    fi_read = (*ep).rma => read(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;

    /// Reads from remote memory, scattering to several pieces.
    fi_readv = (*ep).rma => readv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;

    /// Reads from remote memory, with flags.
    fi_readmsg = (*ep).rma => readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize;

    /// Writes to remote memory.
    fi_write = (*ep).rma => write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;

    /// Writes to remote memory, gathering from several pieces.
    fi_writev = (*ep).rma => writev(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;

    /// Writes to remote memory, with flags.
    fi_writemsg = (*ep).rma => writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize;

    /// Writes at most `inject_size` bytes. The buffer may be reused on return, and no completion follows.
    fi_inject_write = (*ep).rma => inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize;

    /// Writes to remote memory, and gives immediate data to the target's completion queue.
    fi_writedata = (*ep).rma => writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_inject_write`] does, with immediate data.
    fi_inject_writedata = (*ep).rma => injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize;
}
