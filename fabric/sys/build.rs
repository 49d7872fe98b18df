//! Finds libfabric by pkg-config. If the dynamic linker does not find the library when it is needed, it is loaded from
//! the folder that pkg-config has named.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(clippy::disallowed_methods, reason = "a build script is told what to do by its environment")]
    let for_docs_only = std::env::var_os("DOCS_RS").is_some();
    let found = match for_docs_only {
        true => Ok(String::new()),
        false => libfabric(),
    };
    match found {
        Ok(folder) => println!("cargo::rustc-env=LIBFABRIC_FILE={folder}/libfabric.so.1"),
        Err(cause) => println!(
            "cargo::error=libfabric 1.17 or newer was not found by pkg-config ({}): install pkg-config with \
             libfabric-dev (Debian, Ubuntu), libfabric-devel (Fedora) or libfabric (Spack), or build without the \
             feature `ofi`.",
            reason(&cause)
        ),
    }
}

/// Returns the folder of the library.
fn libfabric() -> Result<String, pkg_config::Error> {
    pkg_config::Config::new().atleast_version("1.17").cargo_metadata(false).probe("libfabric")?;
    pkg_config::get_variable("libfabric", "libdir")
}

/// Returns the reason of pkg-config's failure in a few words. The text of pkg-config itself takes a page.
fn reason(cause: &pkg_config::Error) -> &'static str {
    match cause {
        pkg_config::Error::Command { .. } => "pkg-config itself is missing",
        pkg_config::Error::CrossCompilation => "it is not set up for cross-compilation",
        pkg_config::Error::EnvNoPkgConfig(_) => "an environment variable forbids its use",
        _ => "it is missing or too old",
    }
}
