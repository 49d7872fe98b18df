//! The shared library, loaded on first use.
//!
//! The library is not linked, because loading it takes long if it is built with all its providers: 200 ms with Debian's
//! library, whose dependencies libpsm2 and libinfinipath both calibrate a clock for 100 ms. A program whose processes
//! all run on one machine would spend this time for nothing. libfabric reads its parameters from the environment when
//! it is loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::*;

/// Loads libfabric, unless it is already loaded. All functions of this crate load it if necessary. If it cannot be
/// loaded, they fail with `-FI_ENOSYS`, null or 0. Call `load` first to get the reason for such a failure.
///
/// `libfabric.so.1` is searched in the dynamic linker's path, then in the folder that pkg-config named when this crate
/// was built.
///
/// # Errors
/// [`LoadError`] if libfabric is not found, or if it is older than [`API_VERSION`].
pub fn load() -> Result<(), &'static LoadError> {
    library().map(|_| ())
}

/// The reason why libfabric could not be loaded, as the dynamic linker reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(String);

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

fn library() -> Result<&'static Library, &'static LoadError> {
    static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| open(c"libfabric.so.1").or_else(|first| open(BUILT_WITH).map_err(|_| first)))
        .as_ref()
}

/// The file that pkg-config named when this crate was built.
const BUILT_WITH: &CStr = match CStr::from_bytes_with_nul(concat!(env!("LIBFABRIC_FILE"), "\0").as_bytes()) {
    Ok(file) => file,
    Err(_) => panic!("a path has no NUL"),
};

fn open(file: &CStr) -> Result<Library, LoadError> {
    // SAFETY: the name is a C string. Loading runs the initializers of libfabric and its dependencies, as in any
    // program linked to it. It is never unloaded.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(last_error());
    }
    // SAFETY: the handle belongs to libfabric, by its name.
    let library = unsafe { Library::resolve(handle) }?;
    // SAFETY: no preconditions.
    let version = unsafe { (library.fi_version)() };
    if version < API_VERSION {
        let [theirs, ours] = [version, API_VERSION].map(|v| format!("{}.{}", FI_MAJOR(v), FI_MINOR(v)));
        return Err(LoadError(format!("{} is version {theirs}, older than {ours}", file.to_string_lossy())));
    }
    Ok(library)
}

/// Returns the address of the function `name` with the interface version `version`.
///
/// # Safety
/// `handle` comes from `dlopen`.
unsafe fn symbol(handle: *mut c_void, name: &CStr, version: &CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: the caller promises that `handle` comes from `dlopen`; both names are C strings.
    #[cfg(target_env = "gnu")]
    let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    #[cfg(not(target_env = "gnu"))]
    // SAFETY: the caller promises that `handle` comes from `dlopen`; the name is a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    #[cfg(not(target_env = "gnu"))]
    let _ = version;
    if address.is_null() { Err(last_error()) } else { Ok(address) }
}

fn last_error() -> LoadError {
    // SAFETY: the result is null or a C string that lasts until this thread's next call. The string is copied.
    let text = unsafe { libc::dlerror() };
    LoadError(match text.is_null() {
        true => "unknown error of the dynamic linker".into(),
        // SAFETY: as above.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    })
}

/// Declares the functions that libfabric exports. For each it states the interface version and the result if the
/// library could not be loaded. The interface version is the default of libfabric 1.17, so that a later library uses
/// the structures declared here.
macro_rules! exported {
    ($(
        $(#[$doc:meta])*
        $version:literal $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty, or $absent:expr;
    )*) => {
        struct Library {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Library {
            /// # Safety
            /// `handle` belongs to libfabric.
            unsafe fn resolve(handle: *mut c_void) -> Result<Self, LoadError> {
                $(
                    // The signatures are the ones in the headers.
                    const _: unsafe extern "C" fn($($type),*) -> $result = bindings::$name;
                    let name = concat!(stringify!($name), "\0");
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
                    // SAFETY: the caller promises that `handle` belongs to libfabric.
                    let address = unsafe { symbol(handle, name, $version) }?;
                    // SAFETY: libfabric's function of this name and version has this signature (see above).
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(address)
                    };
                )*
                Ok(Self { $($name),* })
            }
        }

        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// See [the crate's contract](crate#safety).
            pub unsafe fn $name($($arg: $type),*) -> $result {
                match library() {
                    // SAFETY: the caller meets the contract of this function.
                    Ok(library) => unsafe { (library.$name)($($arg),*) },
                    Err(_) => $absent,
                }
            }
        )*
    };
}

exported! {
    /// Returns the interfaces that match the hints, as a list to be freed by [`fi_freeinfo`].
    c"FABRIC_1.3" fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int, or -FI_ENOSYS;

    /// Frees a list of interfaces.
    c"FABRIC_1.3" fi_freeinfo(info: *mut fi_info) -> (), or ();

    /// Returns a copy of one [`fi_info`], to be freed by [`fi_freeinfo`]. For null it returns a new [`fi_info`].
    /// Returns null if memory is exhausted.
    c"FABRIC_1.3" fi_dupinfo(info: *const fi_info) -> *mut fi_info, or std::ptr::null_mut();

    /// Opens a fabric: a set of interfaces that reach one another.
    c"FABRIC_1.1" fi_fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int, or -FI_ENOSYS;

    /// Opens an object of the library itself by name.
    c"FABRIC_1.5" fi_open(
        version: u32,
        name: *const c_char,
        attr: *mut c_void,
        attr_len: usize,
        flags: u64,
        fid: *mut *mut fid,
        context: *mut c_void,
    ) -> c_int, or -FI_ENOSYS;

    /// Returns the library's version: see [`FI_MAJOR`] and [`FI_MINOR`].
    c"FABRIC_1.0" fi_version() -> u32, or 0;

    /// Returns the text of an error number, which may be positive or negative.
    c"FABRIC_1.0" fi_strerror(errnum: c_int) -> *const c_char, or c"libfabric could not be loaded".as_ptr();

    /// Formats a structure or flags as text, in a buffer that the next call reuses.
    c"FABRIC_1.0" fi_tostr(data: *const c_void, datatype: fi_type) -> *mut c_char, or std::ptr::null_mut();

    /// Formats a structure or flags as text, in `buf`.
    c"FABRIC_1.4" fi_tostr_r(
        buf: *mut c_char,
        len: usize,
        data: *const c_void,
        datatype: fi_type,
    ) -> *mut c_char, or std::ptr::null_mut();

    /// Returns the parameters that libfabric reads from the environment, to be freed by [`fi_freeparams`].
    c"FABRIC_1.0" fi_getparams(params: *mut *mut fi_param, count: *mut c_int) -> c_int, or -FI_ENOSYS;

    /// Frees a list of parameters.
    c"FABRIC_1.0" fi_freeparams(params: *mut fi_param) -> (), or ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_loaded_says_why() {
        let missing = open(c"/nonexistent/libfabric.so.1").err().expect("there is no such file");
        assert!(missing.to_string().contains("/nonexistent/libfabric.so.1"), "{missing}");
        let another = open(c"libc.so.6").err().expect("has no such functions");
        assert!(another.to_string().contains("fi_getinfo"), "{another}");
    }

    #[test]
    fn the_file_that_pkg_config_named_is_libfabric() {
        assert!(open(BUILT_WITH).is_ok(), "{BUILT_WITH:?}");
        assert_eq!(load(), Ok(()));
    }
}
