//! The `samite` command, as users and scripts call it.

mod doctor;
mod info;
mod messages;

use std::process::{Command, Output};

/// Returns the command with these arguments, separated by spaces, and without SAMITE_* variables.
fn samite(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
    command.args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAMITE_")) {
        command.env_remove(name);
    }
    command
}

/// Checks for success and returns the standard output.
fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    str::from_utf8(&output.stdout).unwrap()
}
