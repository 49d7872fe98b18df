//! A mark that the children of a process do not have.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the process that made it from the children of fork(2), whichever library function called it.
///
/// It is a page that the kernel gives to children as zeros (MADV_WIPEONFORK in madvise(2)), so that no handler has to run
/// first: those of pthread_atfork(3) run in turn, and not at all after `_Fork` or clone(2).
#[derive(Debug)]
pub(crate) struct ForkMark(NonNull<AtomicU64>);

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// Those of mmap(2) and madvise(2): Linux before 4.14 has no such pages.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice changes no memory in use.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mark = Self(NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: it is the mapping made above, in which nothing is written yet.
        if unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// True in a child of the process that made the mark.
    #[inline]
    pub(crate) fn is_in_child(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 0
    }

    /// Makes this process look like a child.
    #[cfg(test)]
    pub(crate) fn wipe(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the start of a page that is mapped until the mark is dropped, of which any bytes are a number.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and the reference that `word` gives out lives as long as a borrow of the mark.
        unsafe { libc::munmap(self.0.as_ptr().cast(), LEN) };
    }
}

// SAFETY: the page belongs to the process, not to a thread, and holds an atomic.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

/// Of the mark; the kernel maps the whole page.
const LEN: usize = size_of::<AtomicU64>();
