//! Domains, address vectors and memory regions (`rdma/fi_domain.h`).

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;

use libc::iovec;

use crate::table::{newer_op, op, through_table};
use crate::*;

through_table! {
    /// Opens a domain: a network interface with its resources.
    fi_domain = (*fabric).ops => domain(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        context: *mut c_void,
    ) -> c_int;

    /// Opens an address vector, which turns the addresses of peers into [`fi_addr_t`].
    fi_av_open = (*domain).ops => av_open(
        domain: *mut fid_domain,
        attr: *mut fi_av_attr,
        av: *mut *mut fid_av,
        context: *mut c_void,
    ) -> c_int;

    /// Inserts `count` addresses. Returns the number of addresses that could be inserted, or an error.
    fi_av_insert = (*av).ops => insert(
        av: *mut fid_av,
        addr: *const c_void,
        count: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int;

    /// Inserts the address of a node and service by name.
    fi_av_insertsvc = (*av).ops => insertsvc(
        av: *mut fid_av,
        node: *const c_char,
        service: *const c_char,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int;

    /// Inserts the addresses of a range of nodes and services by name.
    fi_av_insertsym = (*av).ops => insertsym(
        av: *mut fid_av,
        node: *const c_char,
        nodecnt: usize,
        service: *const c_char,
        svccnt: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int;

    /// Removes addresses.
    fi_av_remove = (*av).ops => remove(
        av: *mut fid_av,
        fi_addr: *mut fi_addr_t,
        count: usize,
        flags: u64,
    ) -> c_int;

    /// Copies an inserted address to `addr`. Before the call, `addrlen` is the room at `addr`; after it, the address's
    /// length.
    fi_av_lookup = (*av).ops => lookup(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        addr: *mut c_void,
        addrlen: *mut usize,
    ) -> c_int;

    /// Prints an address to `buf`. Before the call, `len` is the room at `buf`; after it, the length of the whole text.
    fi_av_straddr = (*av).ops => straddr(
        av: *mut fid_av,
        addr: *const c_void,
        buf: *mut c_char,
        len: *mut usize,
    ) -> *const c_char;
}

/// Opens a domain, with flags. Returns `-FI_ENOSYS` if `flags` is not 0 and the provider does not support flags.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the fabric is live, so its table is; the entry is checked.
    unsafe {
        if flags == 0 {
            return fi_domain(fabric, info, domain, context);
        }
        match newer_op!((*fabric).ops, fi_ops_fabric, domain2) {
            Some(domain2) => domain2(fabric, info, domain, flags, context),
            None => -FI_ENOSYS,
        }
    }
}

/// Binds an event queue or a memory region cache to a domain.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_domain_bind(domain: *mut fid_domain, fid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the domain is live, so its table is, and every kind of object has this entry.
    unsafe { op!((*domain).fid.ops, bind)(&raw mut (*domain).fid, fid, flags) }
}

/// Binds an event queue to an address vector, so that addresses are inserted asynchronously.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_av_bind(av: *mut fid_av, fid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the vector is live, so its table is, and every kind of object has this entry.
    unsafe { op!((*av).fid.ops, bind)(&raw mut (*av).fid, fid, flags) }
}

/// Returns the address of receive context `rx_index` of the scalable endpoint at `fi_addr`.
///
/// `rx_ctx_bits` is from 1 to 63, as given to [`fi_av_open`].
#[inline]
pub const fn fi_rx_addr(fi_addr: fi_addr_t, rx_index: u32, rx_ctx_bits: u32) -> fi_addr_t {
    (rx_index as u64) << (64 - rx_ctx_bits) | fi_addr
}

/// Registers memory: `len` bytes at `buf`, for the accesses in `acs`.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buf: *const c_void,
    len: usize,
    acs: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the domain is live, so its tables are, and it registers memory.
    unsafe {
        op!((*domain).mr, reg)(
            &raw mut (*domain).fid,
            buf,
            len,
            acs,
            offset,
            requested_key,
            flags,
            mr,
            context,
        )
    }
}

/// Registers memory in several pieces as one region.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_regv(
    domain: *mut fid_domain,
    iov: *const iovec,
    count: usize,
    acs: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the domain is live, so its tables are, and it registers memory.
    unsafe {
        op!((*domain).mr, regv)(
            &raw mut (*domain).fid,
            iov,
            count,
            acs,
            offset,
            requested_key,
            flags,
            mr,
            context,
        )
    }
}

/// Registers memory of any kind, described by `attr`.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_regattr(
    domain: *mut fid_domain,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the domain is live, so its tables are, and it registers memory.
    unsafe { op!((*domain).mr, regattr)(&raw mut (*domain).fid, attr, flags, mr) }
}

/// Returns the descriptor to pass with a local buffer in this region.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the region is live.
    unsafe { (*mr).mem_desc }
}

/// Returns the key by which peers refer to this region, or [`FI_KEY_NOTAVAIL`] if the key has more than 64 bits.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the region is live.
    unsafe { (*mr).key }
}

/// Reads the base address and the raw key, of any length, of a region ([`FI_MR_RAW`]).
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_raw_attr(
    mr: *mut fid_mr,
    base_addr: *mut u64,
    raw_key: *mut u8,
    key_size: *mut usize,
    flags: u64,
) -> c_int {
    let mut attr = fi_mr_raw_attr { flags, base_addr, raw_key, key_size };
    // SAFETY: the command reads a fi_mr_raw_attr during the call.
    unsafe { fi_control(&raw mut (*mr).fid, FI_GET_RAW_MR as c_int, (&raw mut attr).cast()) }
}

/// Turns a peer's raw key into a 64-bit key for use here ([`FI_MR_RAW`]).
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_map_raw(
    domain: *mut fid_domain,
    base_addr: u64,
    raw_key: *mut u8,
    key_size: usize,
    key: *mut u64,
    flags: u64,
) -> c_int {
    let mut map = fi_mr_map_raw { flags, base_addr, raw_key, key_size, key };
    // SAFETY: the command reads a fi_mr_map_raw during the call.
    unsafe { fi_control(&raw mut (*domain).fid, FI_MAP_RAW_MR as c_int, (&raw mut map).cast()) }
}

/// Gives back a key from [`fi_mr_map_raw()`].
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_unmap_key(domain: *mut fid_domain, mut key: u64) -> c_int {
    // SAFETY: the command reads a 64-bit key during the call.
    unsafe { fi_control(&raw mut (*domain).fid, FI_UNMAP_KEY as c_int, (&raw mut key).cast()) }
}

/// Binds a region to an endpoint ([`FI_MR_ENDPOINT`]) or a counter.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_bind(mr: *mut fid_mr, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the region is live, so its table is, and every kind of object has this entry.
    unsafe { op!((*mr).fid.ops, bind)(&raw mut (*mr).fid, bfid, flags) }
}

/// Tells the provider that pages of a region have changed ([`FI_MR_MMU_NOTIFY`]).
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_refresh(mr: *mut fid_mr, iov: *const iovec, count: usize, flags: u64) -> c_int {
    let attr = fi_mr_attr { mr_iov: iov, iov_count: count, ..Default::default() };
    let mut modify = fi_mr_modify { flags, attr };
    // SAFETY: the command reads a fi_mr_modify during the call.
    unsafe { fi_control(&raw mut (*mr).fid, FI_REFRESH as c_int, (&raw mut modify).cast()) }
}

/// Enables a region that had to be bound first.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_mr_enable(mr: *mut fid_mr) -> c_int {
    // SAFETY: the region is live; the command takes no argument.
    unsafe { fi_control(&raw mut (*mr).fid, FI_ENABLE as c_int, null_mut()) }
}
