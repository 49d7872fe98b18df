//! Libfabric's objects, closed when dropped, and the conversion of its errors.

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null_mut};

use samite_fabric_sys as sys;

use crate::PortError;
use samite_os::fork::ForkMark;

/// An open libfabric object. A struct must declare its objects in the order in which they must be closed: an object
/// comes before the objects that it depends on. In a child of fork(2) an object is not closed, since that would end the
/// parent's connections.
#[derive(Debug)]
pub(super) struct Object<T>(NonNull<T>, ForkMark);

impl<T> Object<T> {
    /// Opens an object by `open`, which stores it through its argument and returns 0 or a negative error
    /// number.
    ///
    /// # Safety
    /// `T` is one of the `fid_*` structures. `open` stores a newly opened object that has no other
    /// owner and does not outlive the objects that it depends on.
    pub(super) unsafe fn open(
        call: &'static str,
        open: impl FnOnce(&mut *mut T) -> c_int,
    ) -> Result<Self, PortError> {
        let mark = ForkMark::new().map_err(|_| error("madvise(MADV_WIPEONFORK)", sys::FI_ENOSYS))?;
        let mut object = null_mut();
        let status = open(&mut object);
        check(call, status)?;
        NonNull::new(object).map(|object| Self(object, mark)).ok_or_else(|| error(call, sys::FI_EOTHER))
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Returns the pointer for calls that take an object of any kind.
    pub(super) fn fid(&self) -> *mut sys::fid {
        self.0.as_ptr().cast()
    }

    /// Closes the object now. Returns the object if the provider refuses, and in a child of fork(2).
    pub(super) fn close(self) -> Result<(), Self> {
        if self.1.is_in_child() {
            return Err(self);
        }
        // SAFETY: every `fid_*` begins with a `fid`; the object is open (see `open`). It is forgotten below, so
        // it is not closed a second time.
        if unsafe { sys::fi_close(self.fid()) } == 0 {
            std::mem::forget(self);
            Ok(())
        } else {
            Err(self)
        }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        if self.1.is_in_child() {
            return;
        }
        // SAFETY: as in `close`; a value is dropped once. A refusal leaves the object open, which does no
        // harm: all memory that it might access depends on objects whose closing is checked.
        unsafe { sys::fi_close(self.fid()) };
    }
}

/// A list of fabric interfaces from libfabric.
#[derive(Debug)]
pub(super) struct InfoList(NonNull<sys::fi_info>);

impl InfoList {
    /// # Safety
    /// `list` comes from `fi_getinfo`, `fi_dupinfo` or `fi_allocinfo`, and is not freed elsewhere.
    pub(super) unsafe fn new(list: *mut sys::fi_info) -> Option<Self> {
        NonNull::new(list).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fi_info {
        self.0.as_ptr()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &sys::fi_info> {
        // SAFETY: the list and everything it links to lives as long as `self` and is not written
        // meanwhile.
        std::iter::successors(Some(unsafe { self.0.as_ref() }), |info| unsafe { info.next.as_ref() })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: owned since `new`, and not used any more.
        unsafe { sys::fi_freeinfo(self.0.as_ptr()) };
    }
}

/// Converts libfabric's return value, which is 0 or a negative error number, to a result.
pub(super) fn check(call: &'static str, status: c_int) -> Result<(), PortError> {
    if status == 0 { Ok(()) } else { Err(error(call, -status)) }
}

/// Converts an error of libfabric, with its text and a fix.
pub(super) fn error(call: &'static str, code: c_int) -> PortError {
    let hint = match code {
        sys::FI_ENOMEM | sys::FI_ENOSPC => "free memory, or lower the number of buffers",
        sys::FI_EMFILE => "raise the limit of open files (`ulimit -n`)",
        sys::FI_EACCES | sys::FI_EPERM => "the process lacks a permission that the provider needs",
        // Other processes use all TCP ports of the range. The system reports this at bind or at listen.
        sys::FI_EADDRNOTAVAIL | sys::FI_EADDRINUSE => {
            "all ports of its range are in use: widen the range, FI_TCP_PORT_LOW_RANGE to FI_TCP_PORT_HIGH_RANGE"
        }
        sys::FI_ENETUNREACH | sys::FI_EHOSTUNREACH | sys::FI_ENETDOWN => {
            "there is no way to the peer from the chosen interface: choose another"
        }
        _ => "run again with FI_LOG_LEVEL=warn to see the provider's reasons",
    };
    PortError::Provider { call, code, text: text(code), hint: hint.into() }
}

/// Returns libfabric's text for an error number.
pub(super) fn text(code: c_int) -> String {
    // SAFETY: any number is valid. The text lives at least until this thread calls `fi_strerror` again, and is copied
    // before that.
    unsafe { CStr::from_ptr(sys::fi_strerror(code)) }.to_string_lossy().into_owned()
}
