//! `libpmix.so.2`: the functions used here and their types, as the PMIx standard declares
//! them (`pmix.h`, `pmix_common.h`; unchanged from version 3 to 5; `layout.c` beside this file checks them
//! against a header).

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// PMIX_MAX_NSLEN plus one for the final NUL.
pub(super) const NAMESPACE_BYTES: usize = 256;
/// PMIX_MAX_KEYLEN plus one for the final NUL.
pub(super) const KEY_BYTES: usize = 512;

pub(super) const SUCCESS: c_int = 0;
pub(super) const ERR_TIMEOUT: c_int = -24;
pub(super) const ERR_NOT_FOUND: c_int = -46;

/// PMIX_GLOBAL: for all ranks.
pub(super) const GLOBAL: u8 = 3;
/// PMIX_RANK_WILDCARD: stands for a rank where a value of the whole job is requested.
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;

pub(super) const TYPE_BOOL: u16 = 1;
pub(super) const TYPE_INT: u16 = 6;
pub(super) const TYPE_UINT32: u16 = 14;
pub(super) const TYPE_BYTE_OBJECT: u16 = 27;

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) namespace: [c_char; NAMESPACE_BYTES],
    pub(super) rank: u32,
}

/// `pmix_value_t`
#[repr(C)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

/// The union in `pmix_value_t`. It has the members that are used here, and the largest member (`pmix_envar_t`).
#[repr(C)]
pub(super) union Data {
    pub(super) flag: bool,
    pub(super) integer: c_int,
    pub(super) uint32: u32,
    pub(super) bytes: ByteObject,
    pub(super) largest: [usize; 3],
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ByteObject {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

/// `pmix_info_t`
#[repr(C)]
pub(super) struct Info {
    pub(super) key: [c_char; KEY_BYTES],
    pub(super) flags: u32,
    pub(super) value: Value,
}

const _: () = {
    assert!(size_of::<Proc>() == 260);
    assert!(size_of::<Value>() == 32);
    assert!(size_of::<Info>() == 552);
};

/// Declares the functions.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),*) -> $result:ty;)*) => {
        /// The functions of a loaded library; it is never unloaded.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Library {
            /// # Safety
            /// `handle` belongs to a `libpmix.so.2`.
            unsafe fn resolve(handle: *mut c_void) -> Result<Library, String> {
                $(
                    // SAFETY: the caller promises that `handle` belongs to a `libpmix.so.2`; the name is a C string.
                    let address = unsafe { libc::dlsym(handle, $name.as_ptr()) };
                    if address.is_null() {
                        return Err(last_error());
                    }
                    // SAFETY: the function of this name has this signature in every version of this library.
                    let $field = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(address)
                    };
                )*
                Ok(Library { $($field),* })
            }
        }
    };
}

functions! {
    init = c"PMIx_Init": fn(*mut Proc, *const Info, usize) -> c_int;
    finalize = c"PMIx_Finalize": fn(*const Info, usize) -> c_int;
    put = c"PMIx_Put": fn(u8, *const c_char, *mut Value) -> c_int;
    commit = c"PMIx_Commit": fn() -> c_int;
    fence = c"PMIx_Fence": fn(*const Proc, usize, *const Info, usize) -> c_int;
    get = c"PMIx_Get": fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
    error_string = c"PMIx_Error_string": fn(c_int) -> *const c_char;
    version = c"PMIx_Get_version": fn() -> *const c_char;
}

impl Library {
    /// Loads the first of `files` that can be loaded. Returns an error if that library is too old or lacks a function.
    /// If no file can be loaded, returns the error of the last one.
    pub(super) fn load(files: impl IntoIterator<Item = CString>) -> Result<Library, String> {
        let mut failure = "no file to load".to_owned();
        for file in files {
            // SAFETY: the name is a C string. Loading runs the library's initializers, as in any program that is
            // linked to it.
            let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if handle.is_null() {
                failure = last_error();
                continue;
            }
            // SAFETY: by its name, the loaded library is `libpmix.so.2`.
            let library = unsafe { Library::resolve(handle) }?;
            let version = library.version_text();
            return match major(&version) {
                Some(major) if major >= VERSION_MIN => Ok(library),
                _ => Err(format!(
                    "{} is `{version}`, and at least version {VERSION_MIN} is needed",
                    file.to_string_lossy()
                )),
            };
        }
        Err(failure)
    }

    fn version_text(&self) -> String {
        // SAFETY: no preconditions; the result is a constant C string.
        unsafe { CStr::from_ptr((self.version)()) }.to_string_lossy().into_owned()
    }

    pub(super) fn describe(&self, status: c_int) -> String {
        // SAFETY: every number is valid; the result is a constant C string.
        unsafe { CStr::from_ptr((self.error_string)(status)) }.to_string_lossy().into_owned()
    }
}

/// Parses the major version of a text like `OpenPMIx 4.2.2, repo rev: v4.2.2`.
fn major(version: &str) -> Option<u32> {
    let number = version.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?;
    number.parse().ok()
}

fn last_error() -> String {
    // SAFETY: the result is null or a C string that lasts until this thread's next call. The string is copied.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error of the dynamic linker".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The first version with the types above.
const VERSION_MIN: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("OpenPMIx 4.2.2, repo rev: v4.2.2"), Some(4));
        assert_eq!(major("OpenPMIx 5.0.11rc1 (PMIx Standard: 5.1)"), Some(5));
        assert_eq!(major("PMIx"), None);
    }

    #[test]
    fn what_cannot_be_loaded_says_why() {
        let missing = Library::load([c"/nonexistent/libpmix.so.2".to_owned()]).err().unwrap();
        assert!(missing.contains("/nonexistent/libpmix.so.2"), "{missing}");
        let another = Library::load([c"/nonexistent".to_owned(), c"libc.so.6".to_owned()]).err().unwrap();
        assert!(another.contains("PMIx_Init"), "{another}");
    }
}
