//! Raw bindings to [libfabric](https://ofiwg.github.io/libfabric/) 1.17 and later.
//!
//! Every item has its name and meaning in C; the manual pages (`man 7 fabric`) are the reference. The declarations are
//! generated from the headers of version 1.17 and committed, with the layout of every structure asserted at compile
//! time. libfabric exports only a dozen functions; the first call of one of them loads the library (see [`load`]). The
//! others are `static inline` in its headers and use tables of function pointers; here they are equivalent `#[inline]`
//! Rust functions.
//!
//! Request [`API_VERSION`] from [`fi_getinfo`]: the structures that the library writes are then the ones declared here,
//! also if a later version is installed (from 1.20 on it would otherwise write a larger [`fi_cq_err_entry`]).
//! Structures that the library reads also grow at their end in later versions, so take a [`fi_info`] only from
//! [`fi_getinfo`], [`fi_dupinfo`] or [`fi_allocinfo`].
//!
//! # Safety
//!
//! The contract of every unsafe function here, unless it says more:
//!
//! - Each object (`fid_ep`, `fid_cq`, …) is live: the function that opens objects of its kind has returned it, and it
//!   has not been closed since. At most as many threads use it at a time as its domain's [`fi_threading`] level allows.
//! - The object offers the operation: its capabilities, as returned in its [`fi_info`], include the operation's
//!   class. Otherwise its table is absent or short, and the pointer read from it is invalid.
//! - Each pointer is valid for the access and the length that the manual page states. If an operation completes later,
//!   its buffers and its context stay valid and are not moved until its completion was read, or until the endpoint was
//!   closed. Until then, no other code accesses buffers that the operation writes. If the mode bits [`FI_CONTEXT`] or
//!   [`FI_CONTEXT2`] were returned, a context is at least a [`fi_context`] or [`fi_context2`].
//! - Any process that has the key of registered memory may read or write that memory, if the memory is registered for
//!   that access, until the registration ends.
//!
//! # Examples
//!
//! ```
//! use std::ffi::CStr;
//! use samite_fabric_sys::*;
//!
//! load()?;
//! // SAFETY: no preconditions.
//! let version = unsafe { fi_version() };
//! assert!(version >= API_VERSION);
//! // SAFETY: any number is valid; the text of a known one is static.
//! let text = unsafe { CStr::from_ptr(fi_strerror(FI_EAGAIN)) };
//! assert_eq!(text.to_str(), Ok("Resource temporarily unavailable"));
//! # Ok::<(), &'static LoadError>(())
//! ```

#![allow(clippy::too_many_arguments, reason = "signatures are as in C")]

#[cfg(not(all(target_pointer_width = "64", unix)))]
compile_error!("samite-fabric-sys declares libfabric's structures for 64-bit Unix only");

mod atomic;
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "generated from C, where the names and their documentation are"
)]
#[rustfmt::skip]
mod bindings;
mod completion;
mod control;
mod domain;
mod endpoint;
mod library;
mod message;
mod rma;
mod table;
mod tagged;

pub use atomic::*;
pub use bindings::*;
pub use completion::*;
pub use control::*;
pub use domain::*;
pub use endpoint::*;
// These are exported by name, so that they hide the declarations of the same names in `bindings`. Those declarations
// cannot be called, because libfabric is not linked.
pub use library::{
    LoadError, fi_dupinfo, fi_fabric, fi_freeinfo, fi_freeparams, fi_getinfo, fi_getparams, fi_open,
    fi_strerror, fi_tostr, fi_tostr_r, fi_version, load,
};
pub use message::*;
pub use rma::*;
pub use tagged::*;
