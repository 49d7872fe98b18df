//! The parts that all objects share (`rdma/fabric.h`), and constants that are casts or functions in C.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null;

use crate::table::{newer_op, through_table};
use crate::*;

/// `FI_VERSION(major, minor)`: an interface version as [`fi_getinfo`] takes it and [`fi_version`] returns it.
#[allow(non_snake_case, reason = "a macro in C")]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// `FI_MAJOR(version)`.
#[allow(non_snake_case, reason = "a macro in C")]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// `FI_MINOR(version)`.
#[allow(non_snake_case, reason = "a macro in C")]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

/// The interface version of these declarations. Pass it to [`fi_getinfo`].
pub const API_VERSION: u32 = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

/// No address. As a source it means any peer.
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;

/// The value that [`fi_av_insert`] stores for an address that it could not insert.
pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;

/// The key of a region that has no key, or whose key has more than 64 bits ([`FI_MR_RAW`]).
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

/// Returns a new [`fi_info`] with its attributes, all zero, to be freed by [`fi_freeinfo`]. Returns null if memory is
/// exhausted.
///
/// # Safety
///
/// None beyond [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_allocinfo() -> *mut fi_info {
    // SAFETY: null is documented to mean a fresh, zeroed structure.
    unsafe { fi_dupinfo(null()) }
}

through_table! {
    /// Closes an object of any kind. Returns `-FI_EBUSY` if other objects still depend on it.
    fi_close = (*fid).ops => close(fid: *mut fid) -> c_int;

    /// Performs `command` on an object, with an argument of the command's own type.
    fi_control = (*fid).ops => control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int;

    /// Opens a provider's own table of operations by name.
    fi_open_ops = (*fid).ops => ops_open(
        fid: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut *mut c_void,
        context: *mut c_void,
    ) -> c_int;
}

/// Replaces a provider's own table of operations, which is specified by its name. Returns `-FI_ENOSYS` if the provider
/// does not support this.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_set_ops(
    fid: *mut fid,
    name: *const c_char,
    flags: u64,
    ops: *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the object is live, so its table is; the entry is checked.
    unsafe {
        match newer_op!((*fid).ops, fi_ops, ops_set) {
            Some(ops_set) => ops_set(fid, name, flags, ops, context),
            None => -FI_ENOSYS,
        }
    }
}

/// Opens another handle to the same object, with other default flags.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_alias(fid: *mut fid, alias_fid: *mut *mut fid, flags: u64) -> c_int {
    let mut alias = fi_alias { fid: alias_fid, flags };
    // SAFETY: the command reads a fi_alias during the call.
    unsafe { fi_control(fid, FI_ALIAS as c_int, (&raw mut alias).cast()) }
}

/// Reads a value of an object by its provider-specific name.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_get_val(fid: *mut fid, name: c_int, val: *mut c_void) -> c_int {
    let mut var = fi_fid_var { name, val };
    // SAFETY: the command reads a fi_fid_var during the call.
    unsafe { fi_control(fid, FI_GET_VAL as c_int, (&raw mut var).cast()) }
}

/// Sets a value of an object by its provider-specific name.
///
/// # Safety
///
/// See [the crate's contract](crate#safety).
#[inline]
pub unsafe fn fi_set_val(fid: *mut fid, name: c_int, val: *mut c_void) -> c_int {
    let mut var = fi_fid_var { name, val };
    // SAFETY: the command reads a fi_fid_var during the call.
    unsafe { fi_control(fid, FI_SET_VAL as c_int, (&raw mut var).cast()) }
}
