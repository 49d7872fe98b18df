//! Atomic operations on remote memory (`rdma/fi_atomic.h`, `man 3 fi_atomic`).
//!
//! Each transfer returns 0, or `-FI_EAGAIN` when queues are full: read completions, and try again. Counts are in
//! elements of the datatype, not in bytes.

use core::ffi::{c_int, c_void};

use crate::table::{newer_op, through_table};
use crate::*;

through_table! {
    /// Applies `op` to remote memory.
    fi_atomic = (*ep).atomic => write(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Applies `op` to remote memory, with operands from several pieces.
    fi_atomicv = (*ep).atomic => writev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Applies an operation to remote memory, with flags.
    fi_atomicmsg = (*ep).atomic => writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize;

    /// Applies `op` to remote memory: the buffer is free on return, and no completion follows.
    fi_inject_atomic = (*ep).atomic => inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
    ) -> isize;

    /// Applies `op` to remote memory, and returns the previous value.
    fi_fetch_atomic = (*ep).atomic => readwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_fetch_atomic`] does, with operands and results in several pieces.
    fi_fetch_atomicv = (*ep).atomic => readwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_fetch_atomic`] does, with flags.
    fi_fetch_atomicmsg = (*ep).atomic => readwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize;

    /// Replaces remote memory if the comparison `op` with `compare` holds, and returns the previous value.
    fi_compare_atomic = (*ep).atomic => compwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        compare: *const c_void,
        compare_desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_compare_atomic`] does, with operands and results in several pieces.
    fi_compare_atomicv = (*ep).atomic => compwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        comparev: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_compare_atomic`] does, with flags.
    fi_compare_atomicmsg = (*ep).atomic => compwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        comparev: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize;

    /// Reports if [`fi_atomic`] supports this datatype and operation, and for how many elements in one call.
    fi_atomicvalid = (*ep).atomic => writevalid(
        ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int;

    /// Reports if [`fi_fetch_atomic`] supports this datatype and operation, and for how many elements in one call.
    fi_fetch_atomicvalid = (*ep).atomic => readwritevalid(
        ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int;

    /// Reports if [`fi_compare_atomic`] supports this datatype and operation, and for how many elements in one call.
    fi_compare_atomicvalid = (*ep).atomic => compwritevalid(
        ep: *mut fid_ep,
        datatype: fi_datatype,
        op: fi_op,
        count: *mut usize,
    ) -> c_int;
}

/// Stores in `attr` which elements and sizes a domain's atomic operation `op` supports for `datatype`. Returns
/// `-FI_ENOSYS` if the provider does not offer this query.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_query_atomic(
    domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    // SAFETY: the domain is live, so its table is; the entry is checked.
    unsafe {
        match newer_op!((*domain).ops, fi_ops_domain, query_atomic) {
            Some(query_atomic) => query_atomic(domain, datatype, op, attr, flags),
            None => -FI_ENOSYS,
        }
    }
}
