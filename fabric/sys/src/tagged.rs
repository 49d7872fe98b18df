//! Messages that the provider matches by tag (`rdma/fi_tagged.h`, `man 3 fi_tagged`).
//!
//! Each function returns 0, or `-FI_EAGAIN` when queues are full: read completions, and try again.

use core::ffi::c_void;

use libc::iovec;

use crate::table::through_table;
use crate::*;

through_table! {
    /// Posts a buffer for one message whose tag equals `tag` in all bits outside `ignore`.
    fi_trecv = (*ep).tagged => recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize;

    /// Posts a buffer in several pieces for one tagged message.
    fi_trecvv = (*ep).tagged => recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize;

    /// Posts a buffer for a tagged message. With flags, it peeks at a message, claims or discards it instead.
    fi_trecvmsg = (*ep).tagged => recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize;

    /// Sends a tagged message.
    fi_tsend = (*ep).tagged => send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize;

    /// Sends a tagged message gathered from several pieces.
    fi_tsendv = (*ep).tagged => sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize;

    /// Sends a tagged message, with flags.
    fi_tsendmsg = (*ep).tagged => sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize;

    /// Sends a tagged message of at most `inject_size` bytes. The buffer may be reused on return, and no completion
    /// follows.
    fi_tinject = (*ep).tagged => inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize;

    /// Sends a tagged message with immediate data.
    fi_tsenddata = (*ep).tagged => senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize;

    /// Works as [`fi_tinject`] does, with immediate data.
    fi_tinjectdata = (*ep).tagged => injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize;
}
