//! The subcommands that tell: of what there is, of what is wrong, and of the command itself.

pub(crate) mod doctor;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod manual;
pub(crate) mod top;

use std::io::{self, Write};

/// Writes to standard output. A reader that has seen enough is no failure.
fn print(text: &str) -> u8 {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => 0,
    }
}
