//! What the program has to say, on standard output.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Says a line.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

/// Says a line. A reader that has seen enough (`| head`) ends the program, which is no failure.
pub(crate) fn line(words: Arguments<'_>) {
    if let Err(error) = writeln!(stdout().lock(), "{words}") {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("samite-bench: standard output: {error}");
        exit(1);
    }
}
