//! The subcommands that print information: about jobs, about this host, and about the command itself.

pub(crate) mod doctor;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod manual;
pub(crate) mod top;

use std::io::{self, Write};

/// Writes to standard output. Returns the exit code: 1 if that failed, otherwise 0. If the reader has closed the pipe,
/// that is no failure.
fn print(text: &str) -> u8 {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => 0,
    }
}
