//! Prints the Rust declarations of libfabric's headers; run by `ci/bindings.sh`.
//!
//! Usage: `samite-fabric-sys-bindgen INCLUDE_DIR`, the directory that holds `rdma/fabric.h`.

use std::io::{self, Write};

use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{Builder, EnumVariation, RustTarget};

const HEADERS: [&str; 7] =
    ["fabric.h", "fi_atomic.h", "fi_cm.h", "fi_domain.h", "fi_endpoint.h", "fi_rma.h", "fi_tagged.h"];

/// The functions that the shared library exports; the other `fi_*` functions are `static inline` and written in Rust.
const EXPORTED: &str =
    "fi_(getinfo|freeinfo|dupinfo|fabric|open|version|strerror|tostr|tostr_r|getparams|freeparams)";

const PREAMBLE: &str = "// The declarations of libfabric 1.17's headers, written by ci/bindings.sh: do not edit.

use libc::{iovec, pollfd};
";

fn main() {
    let include = std::env::args().nth(1).expect("usage: samite-fabric-sys-bindgen INCLUDE_DIR");
    let includes: String = HEADERS.iter().map(|header| format!("#include <rdma/{header}>\n")).collect();
    let bindings = Builder::default()
        .header_contents("libfabric.h", &includes)
        .clang_arg(format!("-I{include}"))
        .allowlist_file(".*/rdma/(fabric|fi_[a-z]+)\\.h")
        .allowlist_recursively(false)
        .allowlist_function(EXPORTED)
        // The mutex and condition of FI_WAIT_MUTEX_COND would require pthread's layouts.
        .blocklist_type("fi_mutex_cond")
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .parse_callbacks(Box::new(MacroTypes))
        .clang_macro_fallback()
        .derive_default(true)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .use_core()
        .disable_header_comment()
        .raw_line(PREAMBLE)
        .rust_target(RustTarget::stable(85, 0).expect("a version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .expect("libfabric's headers parse")
        .to_string();
    io::stdout().write_all(with_signed_errors(bindings).as_bytes()).expect("standard output is writable");
}

/// Changes the type of the error numbers in the enumeration (the ones that are not errno values) to the type of the
/// macros.
fn with_signed_errors(bindings: String) -> String {
    let (_, constant) = bindings.split_once("pub const FI_EOTHER: ").expect("an error of that name");
    let (name, _) = constant.split_once(' ').expect("a type, then a value");
    let [unsigned, signed] = ["c_uint", "c_int"].map(|int| format!("pub type {name} = ::core::ffi::{int};"));
    assert!(bindings.contains(&unsigned), "{name} is no longer unsigned");
    bindings.replace(&unsigned, &signed)
}

/// Assigns to each macro the type of its parameter or field, because macros in C have no type.
#[derive(Debug)]
struct MacroTypes;

impl ParseCallbacks for MacroTypes {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        Some(match name {
            "FI_EVENT" => IntKind::U64,
            "FI_SHARED_CONTEXT" => IntKind::Custom { name: "usize", is_signed: false },
            // Functions return error numbers as an int, and fi_domain_attr::mr_mode is an int.
            _ if ["FI_E", "FI_SUCCESS", "FI_MR_"].iter().any(|prefix| name.starts_with(prefix)) => IntKind::Int,
            _ if name.ends_with("_VERSION") || name == "FI_PROV_SPECIFIC" => IntKind::U32,
            // Capabilities, flags, orders and mode bits.
            _ => IntKind::U64,
        })
    }
}
