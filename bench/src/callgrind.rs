//! Counts by valgrind's callgrind: what part of a process of our own does, instruction by instruction.

use std::process::{Command, Stdio};

/// What [`counted`] is called in callgrind's eyes.
const COUNTED: &str = "*callgrind::counted*";

/// Only what is done in here is counted.
#[inline(never)]
pub(crate) fn counted<R>(operation: impl FnOnce() -> R) -> R {
    std::hint::black_box(operation())
}

/// Runs this program with `args` under callgrind, and returns the counts of its events: instructions first, more if
/// `options` ask for them.
///
/// # Errors
/// [`CountError`].
pub(crate) fn collect(options: &[&str], args: &[&str]) -> Result<Vec<u64>, CountError> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .args(options)
        .arg(std::env::current_exe().map_err(CountError::Valgrind)?)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(CountError::Valgrind)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match parse(&said) {
        Some(counts) if output.status.success() && counts[0] > 0 => Ok(counts),
        _ => Err(CountError::Failed { args: args.join(" "), said: said.into_owned() }),
    }
}

/// The counts in what callgrind prints.
fn parse(said: &str) -> Option<Vec<u64>> {
    let counts = said.lines().find_map(|line| Some(line.split_once("Collected :")?.1))?;
    let counts: Vec<u64> = counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    (!counts.is_empty()).then_some(counts)
}

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountError {
    /// Most likely it is not installed.
    #[error("valgrind could not be started: {0}; ci/setup.sh installs it")]
    Valgrind(std::io::Error),
    /// What was to be counted, or valgrind.
    #[error("`{args}` was not counted: {said}")]
    Failed {
        /// The command.
        args: String,
        /// What valgrind printed.
        said: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_is_understood() {
        let said = |counts| {
            format!("==7== Callgrind, a call-graph generating cache profiler\n==7== Collected : {counts}\n")
        };
        assert_eq!(parse(&said("148437")), Some(vec![148_437]));
        assert_eq!(parse(&said("9 4 3 0 2 1")), Some(vec![9, 4, 3, 0, 2, 1]));
        assert_eq!(parse(&said("")), None);
        assert_eq!(parse("valgrind: ls: command not found"), None);
    }
}
