//! Random numbers of the kernel.

use crate::OsError;

/// Returns a random number that no other process can guess.
///
/// # Errors
/// [`OsError::Failed`] before Linux 3.17.
pub fn random() -> Result<u64, OsError> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is exclusively borrowed, and has the given length. Requests of up to 256 bytes are never
    // cut short (getrandom(2)).
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if filled == bytes.len() as isize {
        Ok(u64::from_ne_bytes(bytes))
    } else {
        Err(OsError::last("getrandom", "samite needs Linux 3.17 or later"))
    }
}
