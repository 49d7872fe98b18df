//! Counts instructions and other events with valgrind's callgrind, for a part of a process that this program starts.

use std::process::{Command, Stdio};

/// The pattern by which callgrind recognizes [`counted`].
const COUNTED: &str = "*callgrind::counted*";

/// Runs the operation. Callgrind counts only inside this function.
#[inline(never)]
pub(crate) fn counted<R>(operation: impl FnOnce() -> R) -> R {
    std::hint::black_box(operation())
}

/// Runs this program with `args` under callgrind, and returns the counts of its events: instructions first, then the
/// events that `options` request.
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

/// Parses the counts in callgrind's output. Returns `None` if the output contains no counts.
fn parse(said: &str) -> Option<Vec<u64>> {
    let counts = said.lines().find_map(|line| Some(line.split_once("Collected :")?.1))?;
    let counts: Vec<u64> = counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    (!counts.is_empty()).then_some(counts)
}

/// The reason why a count failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountError {
    /// Valgrind did not start; usually it is not installed.
    #[error("valgrind could not be started: {0}; ci/setup.sh installs it")]
    Valgrind(std::io::Error),
    /// The counted process or valgrind failed.
    #[error("`{args}` was not counted: {said}")]
    Failed {
        /// The command.
        args: String,
        /// The output of valgrind.
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
