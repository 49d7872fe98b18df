//! Information about the command itself: version, completions, manual pages.

use std::fs::File;
use std::io;
use std::path::Path;

use clap_complete::Shell;
use clap_mangen::Man;

use super::print;

/// Prints the versions of samite and of libfabric.
pub(crate) fn version() -> u8 {
    print(&format!("samite {}\nlibfabric {}\n", env!("CARGO_PKG_VERSION"), libfabric()))
}

#[cfg(feature = "ofi")]
fn libfabric() -> String {
    samite_fabric::ofi::survey::library()
        .map_or_else(|error| format!("cannot be used: {error}"), |library| library.version)
}

#[cfg(not(feature = "ofi"))]
fn libfabric() -> String {
    "not built in (without the feature `ofi`)".to_owned()
}

/// Prints completions for a shell.
pub(crate) fn completions(shell: Shell, mut command: clap::Command) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "samite", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of the command. If a directory is given, writes that page and the pages of all subcommands
/// into the directory instead.
pub(crate) fn man(directory: Option<&Path>, command: clap::Command) -> io::Result<u8> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        return Ok(print(&String::from_utf8_lossy(&page)));
    };
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = format!("samite-{}", subcommand.get_name());
        let page = subcommand.clone().name(name.clone());
        Man::new(page).render(&mut create(&directory.join(name + ".1"))?)?;
    }
    Man::new(command).render(&mut create(&directory.join("samite.1"))?)?;
    Ok(0)
}

/// Creates a file. An error names the file.
fn create(file: &Path) -> io::Result<File> {
    File::create(file).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}
