//! Endpoints, active and passive, and connections (`rdma/fi_endpoint.h`, `rdma/fi_cm.h`).

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::table::{newer_op, op, through_table};
use crate::*;

// The functions that take a `fid` and find the table of an endpoint work on passive endpoints too.
const _: () = assert!(offset_of!(fid_ep, ops) == offset_of!(fid_pep, ops));
const _: () = assert!(offset_of!(fid_ep, cm) == offset_of!(fid_pep, cm));
// A pointer to the `fid` of an endpoint is a pointer to the endpoint.
const _: () = assert!(offset_of!(fid_ep, fid) == 0);

through_table! {
    /// Opens an endpoint.
    fi_endpoint = (*domain).ops => endpoint(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int;

    /// Opens a passive endpoint, which listens for connections.
    fi_passive_ep = (*fabric).ops => passive_ep(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        pep: *mut *mut fid_pep,
        context: *mut c_void,
    ) -> c_int;

    /// Opens an endpoint with several transmit and receive contexts.
    fi_scalable_ep = (*domain).ops => scalable_ep(
        domain: *mut fid_domain,
        info: *mut fi_info,
        sep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int;

    /// Opens transmit context `idx` of a scalable endpoint.
    fi_tx_context = (*ep).ops => tx_ctx(
        ep: *mut fid_ep,
        idx: c_int,
        attr: *mut fi_tx_attr,
        tx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int;

    /// Opens receive context `idx` of a scalable endpoint.
    fi_rx_context = (*ep).ops => rx_ctx(
        ep: *mut fid_ep,
        idx: c_int,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int;

    /// Opens a transmit context that endpoints share.
    fi_stx_context = (*domain).ops => stx_ctx(
        domain: *mut fid_domain,
        attr: *mut fi_tx_attr,
        stx: *mut *mut fid_stx,
        context: *mut c_void,
    ) -> c_int;

    /// Opens a receive context that endpoints share.
    fi_srx_context = (*domain).ops => srx_ctx(
        domain: *mut fid_domain,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int;

    /// Copies the address of the peer of a connected endpoint to `addr`. Before the call, `addrlen` is the room at
    /// `addr`; after it, the address's length.
    fi_getpeer = (*ep).cm => getpeer(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int;

    /// Starts listening.
    fi_listen = (*pep).cm => listen(pep: *mut fid_pep) -> c_int;

    /// Starts connecting.
    fi_connect = (*ep).cm => connect(
        ep: *mut fid_ep,
        addr: *const c_void,
        param: *const c_void,
        paramlen: usize,
    ) -> c_int;

    /// Accepts a connection request, on an endpoint opened with the request's [`fi_info`].
    fi_accept = (*ep).cm => accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int;

    /// Rejects a connection request.
    fi_reject = (*pep).cm => reject(
        pep: *mut fid_pep,
        handle: fid_t,
        param: *const c_void,
        paramlen: usize,
    ) -> c_int;

    /// Disconnects.
    fi_shutdown = (*ep).cm => shutdown(ep: *mut fid_ep, flags: u64) -> c_int;
}

/// Opens an endpoint, with flags. Returns `-FI_ENOSYS` if `flags` is not 0 and the provider does not support flags.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the domain is live, so its table is; the entry is checked.
    unsafe {
        if flags == 0 {
            return fi_endpoint(domain, info, ep, context);
        }
        match newer_op!((*domain).ops, fi_ops_domain, endpoint2) {
            Some(endpoint2) => endpoint2(domain, info, ep, flags, context),
            None => -FI_ENOSYS,
        }
    }
}

/// Binds a completion queue, event queue, counter or address vector to an endpoint.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the endpoint is live, so its table is, and every kind of object has this entry.
    unsafe { op!((*ep).fid.ops, bind)(&raw mut (*ep).fid, bfid, flags) }
}

/// Binds an event queue to a passive endpoint.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_pep_bind(pep: *mut fid_pep, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the endpoint is live, so its table is, and every kind of object has this entry.
    unsafe { op!((*pep).fid.ops, bind)(&raw mut (*pep).fid, bfid, flags) }
}

/// Binds an address vector to a scalable endpoint.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_scalable_ep_bind(sep: *mut fid_ep, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller meets the contract of this function.
    unsafe { fi_ep_bind(sep, bfid, flags) }
}

/// Makes an endpoint ready for transfers. All objects that the endpoint needs must be bound to it before.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: the endpoint is live; the command takes no argument.
    unsafe { fi_control(&raw mut (*ep).fid, FI_ENABLE as c_int, null_mut()) }
}

/// Requests that the operation with this context be cancelled. The completion of the operation shows if it was.
///
/// # Safety
///
/// See [the crate's contract](crate#safety); `fid` belongs to an endpoint.
#[inline]
pub unsafe fn fi_cancel(fid: fid_t, context: *mut c_void) -> isize {
    let ep = fid.cast::<fid_ep>();
    // SAFETY: the fid is the first field of a live endpoint.
    unsafe { op!((*ep).ops, cancel)(fid, context) }
}

/// Sets an option of an endpoint.
///
/// # Safety
///
/// See [the crate's contract](crate#safety); `fid` belongs to an endpoint.
#[inline]
pub unsafe fn fi_setopt(
    fid: fid_t,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: usize,
) -> c_int {
    let ep = fid.cast::<fid_ep>();
    // SAFETY: the fid is the first field of a live endpoint.
    unsafe { op!((*ep).ops, setopt)(fid, level, optname, optval, optlen) }
}

/// Reads an option of an endpoint.
///
/// # Safety
///
/// See [the crate's contract](crate#safety); `fid` belongs to an endpoint.
#[inline]
pub unsafe fn fi_getopt(
    fid: fid_t,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut usize,
) -> c_int {
    let ep = fid.cast::<fid_ep>();
    // SAFETY: the fid is the first field of a live endpoint.
    unsafe { op!((*ep).ops, getopt)(fid, level, optname, optval, optlen) }
}

/// Opens another handle to an endpoint, with other default flags.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_ep_alias(ep: *mut fid_ep, alias_ep: *mut *mut fid_ep, flags: u64) -> c_int {
    // SAFETY: the alias of an endpoint is an endpoint, whose first field is its fid.
    unsafe { fi_alias(&raw mut (*ep).fid, alias_ep.cast(), flags) }
}

/// Gives an endpoint, active or passive, an address before it is enabled.
///
/// # Safety
///
/// See [the crate's contract](crate#safety); `fid` belongs to an endpoint.
#[inline]
pub unsafe fn fi_setname(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int {
    let ep = fid.cast::<fid_ep>();
    // SAFETY: the fid is the first field of a live endpoint, whose tables are at the same place in both kinds.
    unsafe { op!((*ep).cm, setname)(fid, addr, addrlen) }
}

/// Copies the address of an endpoint, active or passive, to `addr`. Before the call, `addrlen` is the room at `addr`;
/// after it, the address's length.
///
/// # Safety
///
/// See [the crate's contract](crate#safety); `fid` belongs to an endpoint.
#[inline]
pub unsafe fn fi_getname(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    let ep = fid.cast::<fid_ep>();
    // SAFETY: the fid is the first field of a live endpoint, whose tables are at the same place in both kinds.
    unsafe { op!((*ep).cm, getname)(fid, addr, addrlen) }
}
