//! The operating system: what std has no safe call for, one file a subject.

pub mod alarm;
pub(crate) mod barrier;
pub(crate) mod copy;
pub(crate) mod descriptor;
pub mod env;
#[doc(hidden)]
pub mod fork;
#[cfg(feature = "ofi")]
pub(crate) mod handlers;
pub mod hwloc;
pub(crate) mod memory;
pub(crate) mod prefetch;
pub mod process;
pub(crate) mod shared;
pub mod signal;
pub mod spawn;

use crate::PortError;

/// A random number, fit to be guessed by nobody.
pub(crate) fn random() -> Result<u64, PortError> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is exclusively borrowed, and as long as said. Requests of up to 256 bytes are never
    // cut short (getrandom(2)).
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if filled == bytes.len() as isize {
        Ok(u64::from_ne_bytes(bytes))
    } else {
        Err(failed("getrandom", "samite needs Linux 3.17 or later"))
    }
}

/// The error that the last system call of this thread left, as a port reports it.
pub(crate) fn failed(call: &'static str, hint: impl Into<String>) -> PortError {
    let error = std::io::Error::last_os_error();
    PortError::Provider {
        call,
        code: error.raw_os_error().unwrap_or(0),
        text: error.to_string(),
        hint: hint.into(),
    }
}
