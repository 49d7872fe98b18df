//! The `samite` command, as users and scripts call it.

mod doctor;
mod info;
mod messages;

use std::process::{Command, Output};

/// The command with these arguments, separated by spaces, and none of our variables.
fn samite(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
    command.args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAMITE_")) {
        command.env_remove(name);
    }
    command
}

/// What it printed, if all went well.
fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    str::from_utf8(&output.stdout).unwrap()
}
