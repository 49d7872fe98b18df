//! libhwloc, loaded at first use, and its description of this host.
//!
//! Only five functions of hwloc are used, and none of its structures: hwloc exports a topology as XML, a format that it
//! keeps stable for files (hwloc's manual, "Importing and exporting topologies from/to XML files"). So building needs
//! no part of hwloc, and a process that never requests the topology does not load hwloc.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::io;
use std::ptr;
use std::slice;

/// The reason why hwloc returned no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HwlocError {
    /// The library is missing, or cannot be loaded.
    #[error("libhwloc cannot be loaded ({why}): install it (Debian: libhwloc15, Fedora and Spack: hwloc)")]
    NotThere {
        /// The dynamic loader's message.
        why: String,
    },
    /// The library lacks a function.
    #[error("libhwloc has no `{name}`: version 2 is needed")]
    TooOld {
        /// The function.
        name: String,
    },
    /// A function of the library failed.
    #[error("{call} of libhwloc failed: {why}")]
    Failed {
        /// The function.
        call: &'static str,
        /// The system's message.
        why: String,
    },
}

/// Returns this host's topology, as XML of hwloc's version 2: machine, packages, NUMA nodes, caches, cores and
/// processors, in the order of their places in the machine. The variables `HWLOC_SYNTHETIC` and `HWLOC_XMLFILE` select
/// another topology, as in all programs that use hwloc.
///
/// # Errors
/// [`HwlocError`].
pub fn topology_xml() -> Result<String, HwlocError> {
    let hwloc = Hwloc::load()?;
    let mut topology = ptr::null_mut();
    // SAFETY: the call writes one pointer to our exclusive variable.
    checked("hwloc_topology_init", unsafe { (hwloc.topology_init)(&mut topology) })?;
    let topology = Topology { hwloc: &hwloc, topology };
    // SAFETY: the topology was initialized, and is loaded this once.
    checked("hwloc_topology_load", unsafe { (hwloc.topology_load)(topology.topology) })?;
    topology.export()
}

/// A topology between `hwloc_topology_init` and `hwloc_topology_destroy`.
struct Topology<'a> {
    hwloc: &'a Hwloc,
    topology: *mut c_void,
}

impl Topology<'_> {
    fn export(&self) -> Result<String, HwlocError> {
        let (mut xml, mut len) = (ptr::null_mut::<c_char>(), 0);
        // SAFETY: the topology is loaded. A pointer and a length are written to our variables. (The flags are 0, which
        // selects the format of the library's own version.)
        let status = unsafe { (self.hwloc.topology_export_xmlbuffer)(self.topology, &mut xml, &mut len, 0) };
        checked("hwloc_topology_export_xmlbuffer", status)?;
        // The length includes a final NUL (hwloc/export.h).
        let len = usize::try_from(len).unwrap_or(0).saturating_sub(1);
        // SAFETY: on success `xml` points to `len` bytes. They do not change before they are freed below, and they are
        // copied here.
        let text = String::from_utf8_lossy(unsafe { slice::from_raw_parts(xml.cast(), len) }).into_owned();
        // SAFETY: the buffer came from this topology, and is not used any more.
        unsafe { (self.hwloc.free_xmlbuffer)(self.topology, xml) };
        Ok(text)
    }
}

impl Drop for Topology<'_> {
    fn drop(&mut self) {
        // SAFETY: the topology was initialized, and is not used any more.
        unsafe { (self.hwloc.topology_destroy)(self.topology) };
    }
}

fn checked(call: &'static str, status: c_int) -> Result<(), HwlocError> {
    match status {
        0 => Ok(()),
        _ => Err(HwlocError::Failed { call, why: io::Error::last_os_error().to_string() }),
    }
}

/// Declares a table of functions, and its `load`, which looks the functions up by their names.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        struct Hwloc {
            $($field: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Hwloc {
            /// Loads the library, and never unloads it. It may have started threads or set handlers, so it would not be
            /// safe to unload it. A process calls this at most once.
            fn load() -> Result<Self, HwlocError> {
                let handle = open()?;
                Ok(Self {
                    $($field: {
                        // SAFETY: the handle belongs to a library that stays loaded, and the name ends with a NUL.
                        let address = unsafe { libc::dlsym(handle, $name.as_ptr()) };
                        if address.is_null() {
                            return Err(HwlocError::TooOld { name: $name.to_string_lossy().into_owned() });
                        }
                        // SAFETY: the symbol of this name in libhwloc is a function of this type, by hwloc.h and
                        // hwloc/export.h. These declarations are the same in all releases of version 2.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    topology_init = c"hwloc_topology_init": fn(*mut *mut c_void) -> c_int;
    topology_load = c"hwloc_topology_load": fn(*mut c_void) -> c_int;
    topology_export_xmlbuffer = c"hwloc_topology_export_xmlbuffer":
        fn(*mut c_void, *mut *mut c_char, *mut c_int, c_ulong) -> c_int;
    free_xmlbuffer = c"hwloc_free_xmlbuffer": fn(*mut c_void, *mut c_char);
    topology_destroy = c"hwloc_topology_destroy": fn(*mut c_void);
}

fn open() -> Result<*mut c_void, HwlocError> {
    // The ABI of version 2 has the number 15.
    // SAFETY: the name ends with a NUL. The library's initializers are trusted like those of other system libraries.
    let handle = unsafe { libc::dlopen(c"libhwloc.so.15".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: dlerror takes no arguments. The result is null or a string of the loader, which is copied before the next
    // call of the loader.
    let error = unsafe { libc::dlerror() };
    let why = match error.is_null() {
        true => "for no reason that the loader tells".to_owned(),
        // SAFETY: a result that is not null is a string that ends with a NUL, and lives until this thread's next call
        // of the loader.
        false => unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned(),
    };
    Err(HwlocError::NotThere { why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_processor() {
        let xml = topology_xml().unwrap();
        assert!(xml.contains("<topology ") && xml.contains("type=\"PU\""), "{xml}");
        assert!(xml.trim_end().ends_with("</topology>"));
    }
}
