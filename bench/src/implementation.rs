//! The implementations that can be compared, each a command.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

use crate::benchmark::{Benchmark, Point};
use crate::record::Record;

/// Our own shared memory, for which libfabric has a provider of another name.
const SAMITE_SHM: &str = "samite-shm";

/// A command that measures: with `BENCH --bytes N [--depth N] [--pin] --json` behind it, it prints a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Implementation {
    /// As records name it.
    pub(crate) name: String,
    program: OsString,
    args: Vec<String>,
}

impl Implementation {
    /// The command `program`, with `args` before all others.
    pub(crate) fn new<'a>(
        name: &str,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let args = args.into_iter().map(str::to_owned).collect();
        Self { name: name.to_owned(), program: program.into(), args }
    }

    /// Those that can run a benchmark over a transport, or over what comes nearest to it.
    ///
    /// # Errors
    /// The path of this program is not known.
    pub(crate) fn find(benchmark: Benchmark, transport: &str) -> io::Result<Vec<Self>> {
        let program = std::env::current_exe()?.into_os_string();
        let ours = |name: &str, transport: &str| {
            Self::new(name, &program, [benchmark.name(), "--impl", name, "--transport", transport])
        };
        let mut found = vec![ours("samite", transport)];
        if cfg!(feature = "ofi") && benchmark != Benchmark::Depth {
            found.push(ours("libfabric", if transport == SAMITE_SHM { "shm" } else { transport }));
        }
        Ok(found)
    }

    /// Runs it once.
    ///
    /// # Errors
    /// [`RunError`].
    pub(crate) fn run(&self, point: Point, pin: bool) -> Result<Record, RunError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).arg("--json").args(["--bytes", &point.bytes.to_string()]);
        if let Some(depth) = point.depth {
            command.args(["--depth", &depth.to_string()]);
        }
        if pin {
            command.arg("--pin");
        }
        command.stdin(Stdio::null());
        let output = command.output();
        let failed = |cause| RunError { name: self.name.clone(), command: format!("{command:?}"), cause };
        let output = output.map_err(|error| failed(Cause::NotStarted(error)))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(failed(Cause::Failed { status: output.status, stderr }));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(Cause::NoRecord(error)))
    }
}

/// An implementation that could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{name} was not measured: {cause}\n  {command}")]
pub(crate) struct RunError {
    name: String,
    command: String,
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("it could not be started: {0}")]
    NotStarted(io::Error),
    #[error("{status}: {stderr}")]
    Failed { status: ExitStatus, stderr: String },
    #[error("it printed something else than one record: {0}")]
    NoRecord(serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Implementation {
        Implementation::new("shell", "sh", ["-c", script, "sh"])
    }

    #[test]
    fn a_command_is_told_what_to_measure_and_prints_a_record() {
        let echo = r#"
            echo '{"bench":"depth","impl":"'"$*"'","transport":"t","ranks":2,"bytes":3,"depth":5,"metric":"m","unit":"u",
                   "median":2,"min":1,"max":3,"runs":1}'"#;
        let point = Point { bytes: 3, depth: Some(5) };
        let record = shell(echo).run(point, true).unwrap();
        assert_eq!(
            (record.implementation.as_str(), record.median),
            ("--json --bytes 3 --depth 5 --pin", 2.0)
        );
    }

    #[test]
    fn failures_say_what_was_run_and_what_it_said() {
        let point = Point { bytes: 3, depth: None };
        let message = |script| shell(script).run(point, false).unwrap_err().to_string();
        let failed = message("echo out of luck >&2; exit 3");
        assert!(failed.starts_with("shell was not measured: exit status: 3: out of luck\n"), "{failed}");
        assert!(failed.contains("\"--bytes\" \"3\""), "{failed}");
        assert!(message("echo hello").contains("something else than one record"));
    }
}
