//! Messages, one-sided operations and completions under the imitated provider's rules.

use std::collections::{HashSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

use libc::iovec;
use samite_fabric_sys as sys;

use super::registration::{Mr, described};
use super::{Rules, State};

/// The status of an operation for which there is no room.
const AGAIN: isize = -(sys::FI_EAGAIN as isize);

/// A posted write.
pub(super) struct Write {
    ep: *mut sys::fid_ep,
    pieces: Vec<iovec>,
    descriptors: Vec<*mut c_void>,
    to: sys::fi_addr_t,
    remote: sys::fi_rma_iov,
    context: *mut c_void,
    data: u64,
    flags: u64,
}

// SAFETY: the pointers are only passed on to the provider, by the thread that owns the port then. A port may move to
// another thread, and its held writes move with it.
unsafe impl Send for Write {}

pub(super) fn messages(below: sys::fi_ops_msg) -> sys::fi_ops_msg {
    let (recv, send, sendmsg, inject) =
        (Some(recv as _), Some(send as _), Some(sendmsg as _), Some(inject as _));
    sys::fi_ops_msg { recv, send, sendmsg, inject, ..below }
}

pub(super) fn one_sided(below: sys::fi_ops_rma) -> sys::fi_ops_rma {
    sys::fi_ops_rma { read: Some(read), writemsg: Some(writemsg), ..below }
}

pub(super) fn completions(below: sys::fi_ops_cq) -> sys::fi_ops_cq {
    sys::fi_ops_cq { read: Some(read_completions), readerr: Some(read_error), ..below }
}

pub(super) fn object(below: sys::fi_ops) -> sys::fi_ops {
    sys::fi_ops { close: Some(close), ..below }
}

/// Returns the rules of an endpoint whose tables are ours.
///
/// # Safety
/// `ep` is open, and its tables are ours.
unsafe fn rules<'a>(ep: *mut sys::fid_ep) -> &'a Rules {
    // SAFETY: the table is the first part of its rules, which live for ever.
    unsafe { &*(*ep).msg.cast::<Rules>() }
}

impl Rules {
    /// Posts an operation on local memory by a call of `post`, to which it passes the descriptor of the provider below.
    ///
    /// # Safety
    /// The caller meets the conditions of the imitated call.
    unsafe fn post(
        &self,
        context: *mut c_void,
        (start, len, descriptor): (*const c_void, usize, *mut c_void),
        access: u64,
        post: impl FnOnce(*mut c_void) -> isize,
    ) -> isize {
        assert!(len <= self.offer.max_msg_size, "a longer operation than there is");
        // SAFETY: the caller passes only descriptors of open registrations.
        let found = unsafe { described(self, descriptor, start, len, access) };
        self.take_off(context, found.map(|(mr, _)| mr).into_iter().collect());
        let status = post(found.map_or(null_mut(), |(_, below)| below));
        if status != 0 {
            self.land(context);
        }
        status
    }

    /// Starts the writes that were held back. A write for which the provider below has no room is tried again later.
    /// One that it refuses, because the port has removed the peer's address, is cancelled.
    fn begin_writes(&self) {
        let in_order = self.offer.msg_order & (sys::FI_ORDER_WAW | sys::FI_ORDER_RMA_WAW) != 0;
        let mut writes = std::mem::take(&mut self.state().held);
        // The peers for which there was no room.
        let mut full = HashSet::new();
        let mut later = VecDeque::new();
        while let Some(write) = if in_order { writes.pop_front() } else { writes.pop_back() } {
            // SAFETY: the write was posted with memory and a context that stay until the write completes.
            let status = if full.contains(&write.to) { AGAIN } else { unsafe { self.begin(&write) } };
            match status {
                0 => {}
                AGAIN => {
                    full.insert(write.to);
                    if in_order { later.push_back(write) } else { later.push_front(write) }
                }
                _ => self.state().cancelled.push_back(write.context),
            }
        }
        self.state().held = later;
    }

    /// Passes a write to the provider below.
    ///
    /// # Safety
    /// The memory and the context of the write stay until it completes.
    unsafe fn begin(&self, write: &Write) -> isize {
        let mut descriptors = write.descriptors.clone();
        let message = sys::fi_msg_rma {
            msg_iov: write.pieces.as_ptr(),
            desc: descriptors.as_mut_ptr(),
            iov_count: write.pieces.len(),
            addr: write.to,
            rma_iov: &write.remote,
            rma_iov_count: 1,
            context: write.context,
            data: write.data,
        };
        let writemsg = self.below.rma.writemsg.expect("the provider writes");
        // SAFETY: the endpoint is open, since its completions are read; the caller guarantees the rest.
        unsafe { writemsg(write.ep, &message, write.flags) }
    }
}

unsafe extern "C" fn recv(
    ep: *mut sys::fid_ep,
    buf: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    from: sys::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller meets the conditions of the call, and the call is passed on.
    unsafe {
        let rules = rules(ep);
        rules.post(context, (buf, len, descriptor), sys::FI_RECV, |below| {
            rules.below.msg.recv.expect("the provider receives")(ep, buf, len, below, from, context)
        })
    }
}

unsafe extern "C" fn send(
    ep: *mut sys::fid_ep,
    buf: *const c_void,
    len: usize,
    descriptor: *mut c_void,
    to: sys::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let rules = rules(ep);
        rules.post(context, (buf, len, descriptor), sys::FI_SEND, |below| {
            rules.below.msg.send.expect("the provider sends")(ep, buf, len, below, to, context)
        })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut sys::fid_ep, message: *const sys::fi_msg, flags: u64) -> isize {
    // SAFETY: as in `recv`; the message has as many pieces and descriptors as it says.
    unsafe {
        let (rules, message) = (rules(ep), *message);
        let (_, mut below, used) =
            gathered(rules, message.msg_iov, message.desc, message.iov_count, sys::FI_SEND);
        let message = sys::fi_msg { desc: below.as_mut_ptr(), ..message };
        rules.take_off(message.context, used);
        let status = rules.below.msg.sendmsg.expect("the provider sends")(ep, &message, flags);
        if status != 0 {
            rules.land(message.context);
        }
        status
    }
}

unsafe extern "C" fn inject(
    ep: *mut sys::fid_ep,
    buf: *const c_void,
    len: usize,
    to: sys::fi_addr_t,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let rules = rules(ep);
        assert!(len <= rules.offer.inject_size, "more bytes than are injected");
        rules.below.msg.inject.expect("the provider injects")(ep, buf, len, to)
    }
}

unsafe extern "C" fn read(
    ep: *mut sys::fid_ep,
    buf: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    from: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let rules = rules(ep);
        rules.post(context, (buf, len, descriptor), sys::FI_READ, |below| {
            rules.below.rma.read.expect("the provider reads")(
                ep, buf, len, below, from, address, key, context,
            )
        })
    }
}

unsafe extern "C" fn writemsg(ep: *mut sys::fid_ep, message: *const sys::fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as in `recv`; the message has as many pieces and descriptors as it says.
    unsafe {
        let (rules, message) = (rules(ep), &*message);
        assert_eq!(message.rma_iov_count, 1, "more places than the port ever writes to");
        let (pieces, descriptors, used) =
            gathered(rules, message.msg_iov, message.desc, message.iov_count, sys::FI_WRITE);
        let remote = *message.rma_iov;
        let len: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        assert_eq!(remote.len, len, "a place of another length than its pieces");
        assert_eq!(flags & sys::FI_INJECT, 0, "an injected write has no completion to wait for");
        let bits = 8 * rules.offer.cq_data_size as u32;
        let data = message.data;
        assert_eq!(data.checked_shr(bits).unwrap_or(0), 0, "an immediate of more bits than are carried");
        let in_order = rules.offer.msg_order & sys::FI_ORDER_SAW != 0;
        let (to, context) = (message.addr, message.context);
        rules.take_off(context, used);
        let write = Write { ep, pieces, descriptors, to, remote, context, data, flags };
        if !in_order {
            rules.state().held.push_back(write);
            return 0;
        }
        let status = rules.begin(&write);
        if status != 0 {
            rules.land(context);
        }
        status
    }
}

/// Returns the pieces of an operation, their descriptors for the provider below, and the registrations that they use.
///
/// # Safety
/// There are `count` pieces and `count` descriptors. Each descriptor is null or belongs to an open registration.
unsafe fn gathered(
    rules: &Rules,
    pieces: *const iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    access: u64,
) -> (Vec<iovec>, Vec<*mut c_void>, Vec<*const Mr>) {
    assert!(count > 0 && count <= rules.offer.iov_limit, "more pieces than the provider takes, or none");
    // SAFETY: the caller guarantees it.
    unsafe {
        let pieces = std::slice::from_raw_parts(pieces, count).to_vec();
        let descriptors = std::slice::from_raw_parts(descriptors, count);
        let len: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        assert!(len <= rules.offer.max_msg_size, "a longer operation than there is");
        let found: Vec<_> = pieces
            .iter()
            .zip(descriptors)
            .map(|(piece, &descriptor)| described(rules, descriptor, piece.iov_base, piece.iov_len, access))
            .collect();
        let below = found.iter().map(|found| found.map_or(null_mut(), |(_, below)| below)).collect();
        (pieces, below, found.into_iter().flatten().map(|(mr, _)| mr).collect())
    }
}

unsafe extern "C" fn read_completions(cq: *mut sys::fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the queue's table is one of ours, and part of its rules. The caller gives room for `count` entries of the
    // format of the port's queues. The provider returns the number of entries that it has written.
    unsafe {
        let rules = &*(*cq).ops.byte_sub(offset_of!(Rules, cq)).cast::<Rules>();
        rules.begin_writes();
        if !rules.state().cancelled.is_empty() {
            return -(sys::FI_EAVAIL as isize);
        }
        let read = rules.below.cq.read.expect("the provider completes")(cq, buf, count);
        let entries = buf.cast::<sys::fi_cq_data_entry>();
        for index in 0..usize::try_from(read).unwrap_or(0) {
            rules.land((*entries.add(index)).op_context);
        }
        read
    }
}

unsafe extern "C" fn read_error(cq: *mut sys::fid_cq, entry: *mut sys::fi_cq_err_entry, flags: u64) -> isize {
    // SAFETY: as in `read_completions`, with one entry.
    unsafe {
        let rules = &*(*cq).ops.byte_sub(offset_of!(Rules, cq)).cast::<Rules>();
        let cancelled = rules.state().cancelled.pop_front();
        if let Some(context) = cancelled {
            rules.land(context);
            let err = sys::FI_ECANCELED as c_int;
            ((*entry).op_context, (*entry).err, (*entry).flags) = (context, err, sys::FI_RMA | sys::FI_WRITE);
            return 1;
        }
        let read = rules.below.cq.readerr.expect("the provider completes")(cq, entry, flags);
        if read > 0 {
            rules.land((*entry).op_context);
        }
        read
    }
}

unsafe extern "C" fn close(ep: *mut sys::fid) -> c_int {
    // SAFETY: an endpoint with this table has our other tables too, and the caller closes an open endpoint.
    unsafe {
        let rules = rules(ep.cast());
        let status = rules.below.fid.close.expect("objects can be closed")(ep);
        if status == 0 {
            *rules.state() = State::default();
        }
        status
    }
}
