//! Removes signal handlers that libraries install unasked.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// The signals that end a process by default, and whose handling a program expects to control.
const ENDING: [c_int; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGILL, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];

/// Restores the default handling of every signal in `ENDING` whose handler is a function of the shared library `name`
/// (the name of the library's file, without folder and version).
pub fn remove_those_of(name: &str) {
    for signal in ENDING {
        let mut current = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the call only reads the signal's disposition, and stores it if the call returns 0.
        let current = unsafe {
            if libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr()) != 0 {
                continue;
            }
            current.assume_init()
        };
        let handler = current.sa_sigaction;
        if handler != libc::SIG_DFL
            && handler != libc::SIG_IGN
            && library_of(handler).as_deref() == Some(name)
        {
            // SAFETY: a disposition of all zero is the default one, with no flags and an empty mask.
            unsafe {
                let default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                libc::sigaction(signal, &default, null_mut());
            }
        }
    }
}

/// Returns the name of the shared library that has the code at `address`, up to the first dot of its file's name.
fn library_of(address: usize) -> Option<String> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address. The results of a non-zero return live as long as the library is loaded, and
    // are copied here.
    let path = unsafe {
        if libc::dladdr(address as *const _, found.as_mut_ptr()) == 0 {
            return None;
        }
        let path = found.assume_init().dli_fname;
        if path.is_null() {
            return None;
        }
        CStr::from_ptr(path).to_string_lossy().into_owned()
    };
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split('.').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_its_library() {
        assert_eq!(library_of(libc::getpid as *const () as usize).as_deref(), Some("libc"));
        assert_eq!(library_of(1), None);
    }

    #[test]
    fn only_handlers_of_the_library_are_removed() {
        extern "C" fn ours(_: c_int) {}
        let handler = || {
            let mut current = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: the call only queries.
            unsafe {
                libc::sigaction(libc::SIGFPE, std::ptr::null(), current.as_mut_ptr());
                current.assume_init().sa_sigaction
            }
        };
        // SAFETY: the handlers are async-signal-safe: one returns, the other is never run.
        unsafe { libc::signal(libc::SIGFPE, ours as *const () as usize) };
        remove_those_of("libc");
        assert_eq!(handler(), ours as *const () as usize);
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGFPE, libc::abs as *const () as usize) };
        remove_those_of("libc");
        assert_eq!(handler(), libc::SIG_DFL);
    }
}
