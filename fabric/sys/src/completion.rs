//! Completion queues, counters, event queues, wait and poll sets (`rdma/fi_eq.h`).

use core::ffi::{c_char, c_int, c_void};

use crate::table::{newer_op, through_table};
use crate::*;

through_table! {
    /// Opens a completion queue.
    fi_cq_open = (*domain).ops => cq_open(
        domain: *mut fid_domain,
        attr: *mut fi_cq_attr,
        cq: *mut *mut fid_cq,
        context: *mut c_void,
    ) -> c_int;

    /// Reads up to `count` completions, in the queue's format, into `buf`. Returns their number, `-FI_EAGAIN` if there
    /// is none, or `-FI_EAVAIL` if the next entry is an error, which [`fi_cq_readerr`] reads.
    fi_cq_read = (*cq).ops => read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize;

    /// Works as [`fi_cq_read`] does, with the source address of each received message.
    fi_cq_readfrom = (*cq).ops => readfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        src_addr: *mut fi_addr_t,
    ) -> isize;

    /// Reads the entry of one failed operation into `buf`. The fields `err_data` and `err_data_size` of `buf` are also
    /// inputs.
    fi_cq_readerr = (*cq).ops => readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize;

    /// Works as [`fi_cq_read`] does, but waits up to `timeout` milliseconds (negative: for ever).
    fi_cq_sread = (*cq).ops => sread(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize;

    /// Works as [`fi_cq_readfrom`] does, but waits up to `timeout` milliseconds (negative: for ever).
    fi_cq_sreadfrom = (*cq).ops => sreadfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        src_addr: *mut fi_addr_t,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize;

    /// Wakes the threads that wait on the queue.
    fi_cq_signal = (*cq).ops => signal(cq: *mut fid_cq) -> c_int;

    /// Returns the text of a provider's own error number, which is in `buf` or static.
    fi_cq_strerror = (*cq).ops => strerror(
        cq: *mut fid_cq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char;

    /// Opens a counter of completed operations.
    fi_cntr_open = (*domain).ops => cntr_open(
        domain: *mut fid_domain,
        attr: *mut fi_cntr_attr,
        cntr: *mut *mut fid_cntr,
        context: *mut c_void,
    ) -> c_int;

    /// Returns the number of successful operations.
    fi_cntr_read = (*cntr).ops => read(cntr: *mut fid_cntr) -> u64;

    /// Returns the number of failed operations.
    fi_cntr_readerr = (*cntr).ops => readerr(cntr: *mut fid_cntr) -> u64;

    /// Adds to the number of successes.
    fi_cntr_add = (*cntr).ops => add(cntr: *mut fid_cntr, value: u64) -> c_int;

    /// Sets the number of successes.
    fi_cntr_set = (*cntr).ops => set(cntr: *mut fid_cntr, value: u64) -> c_int;

    /// Waits up to `timeout` milliseconds (negative: for ever) until the number of successes reaches `threshold`.
    fi_cntr_wait = (*cntr).ops => wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int;

    /// Opens an event queue.
    fi_eq_open = (*fabric).ops => eq_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_eq_attr,
        eq: *mut *mut fid_eq,
        context: *mut c_void,
    ) -> c_int;

    /// Reads one event. Returns the event's length, `-FI_EAGAIN` if there is none, or `-FI_EAVAIL` if the next entry is
    /// an error.
    fi_eq_read = (*eq).ops => read(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
    ) -> isize;

    /// Reads one failed control operation.
    fi_eq_readerr = (*eq).ops => readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize;

    /// Writes an event of the user's own.
    fi_eq_write = (*eq).ops => write(
        eq: *mut fid_eq,
        event: u32,
        buf: *const c_void,
        len: usize,
        flags: u64,
    ) -> isize;

    /// Works as [`fi_eq_read`] does, but waits up to `timeout` milliseconds (negative: for ever).
    fi_eq_sread = (*eq).ops => sread(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        timeout: c_int,
        flags: u64,
    ) -> isize;

    /// Returns the text of a provider's own error number, which is in `buf` or static.
    fi_eq_strerror = (*eq).ops => strerror(
        eq: *mut fid_eq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char;

    /// Checks if it is safe to block on the wait objects of these queues. Returns 0 if it is, or `-FI_EAGAIN` if there
    /// are unread events.
    fi_trywait = (*fabric).ops => trywait(
        fabric: *mut fid_fabric,
        fids: *mut *mut fid,
        count: c_int,
    ) -> c_int;

    /// Opens a wait set, which several queues and counters can share.
    fi_wait_open = (*fabric).ops => wait_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_wait_attr,
        waitset: *mut *mut fid_wait,
    ) -> c_int;

    /// Waits up to `timeout` milliseconds (negative: for ever) until a member of the set is signalled.
    fi_wait = (*waitset).ops => wait(waitset: *mut fid_wait, timeout: c_int) -> c_int;

    /// Opens a poll set.
    fi_poll_open = (*domain).ops => poll_open(
        domain: *mut fid_domain,
        attr: *mut fi_poll_attr,
        pollset: *mut *mut fid_poll,
    ) -> c_int;

    /// Drives progress, and stores the contexts of the members that have events. Returns the number of these members.
    fi_poll = (*pollset).ops => poll(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int;

    /// Adds a queue or counter to a poll set.
    fi_poll_add = (*pollset).ops => poll_add(
        pollset: *mut fid_poll,
        event_fid: *mut fid,
        flags: u64,
    ) -> c_int;

    /// Removes a queue or counter from a poll set.
    fi_poll_del = (*pollset).ops => poll_del(
        pollset: *mut fid_poll,
        event_fid: *mut fid,
        flags: u64,
    ) -> c_int;
}

/// Adds `value` to the counter's number of failures. Returns `-FI_ENOSYS` if the provider does not support this.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_cntr_adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is live, so its table is; the entry is checked.
    unsafe {
        match newer_op!((*cntr).ops, fi_ops_cntr, adderr) {
            Some(adderr) => adderr(cntr, value),
            None => -FI_ENOSYS,
        }
    }
}

/// Sets the counter's number of failures. Returns `-FI_ENOSYS` if the provider does not support this.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_cntr_seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the counter is live, so its table is; the entry is checked.
    unsafe {
        match newer_op!((*cntr).ops, fi_ops_cntr, seterr) {
            Some(seterr) => seterr(cntr, value),
            None => -FI_ENOSYS,
        }
    }
}
