//! Messages (`rdma/fi_endpoint.h`, `man 3 fi_msg`).
//!
//! Each function returns 0, or `-FI_EAGAIN` when queues are full: read completions, and try again.

use core::ffi::c_void;

use libc::iovec;

use crate::table::through_table;
use crate::*;

through_table! {
    /// Posts a buffer for one message, from `src_addr` or, if that is [`FI_ADDR_UNSPEC`], from any peer.
    fi_recv = (*ep).msg => recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize;

    /// Posts a buffer in several pieces for one message.
    fi_recvv = (*ep).msg => recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize;

    /// Posts a buffer for one message, or for many with [`FI_MULTI_RECV`].
    fi_recvmsg = (*ep).msg => recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize;

    /// Sends a message.
    fi_send = (*ep).msg => send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize;

    /// Sends a message gathered from several pieces.
    fi_sendv = (*ep).msg => sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize;

    /// Sends a message, with flags.
    fi_sendmsg = (*ep).msg => sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize;

    /// Sends a message of at most `inject_size` bytes. The buffer may be reused on return, and no completion follows.
    fi_inject = (*ep).msg => inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
    ) -> isize;

    /// Sends a message with immediate data.
    fi_senddata = (*ep).msg => senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_inject`] does, with immediate data.
    fi_injectdata = (*ep).msg => injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
    ) -> isize;
}
