//! Standard output.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Prints a line.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

/// Prints a line. If standard output is a closed pipe (`| head`), the program ends with success. After any other error
/// it ends with failure.
pub(crate) fn line(words: Arguments<'_>) {
    if let Err(error) = writeln!(stdout().lock(), "{words}") {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("samite-bench: standard output: {error}");
        exit(1);
    }
}
