//! The implementations that can be compared. Each is a command.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use samite_coll::Selection;

use crate::benchmark::{Benchmark, Point};
use crate::beside;
use crate::peers::{Found, Peer, Settings};
use crate::record::Record;
use crate::spread::Spread;

/// The name of Samite's shared memory as a transport. libfabric's provider for shared memory has another name.
const SAMITE_SHM: &str = "samite-shm";

/// The number of starts in a run of the start-up benchmark. The first start is not counted.
const START_UPS: usize = 6;

/// A command that measures. With the arguments of [`command`](Self::command) and an optional `--pin` it prints a
/// record, except for the start-up benchmark, where the time of the command is measured.
#[derive(Clone, Debug)]
pub(crate) struct Implementation {
    /// The name in records.
    pub(crate) name: String,
    /// The implementation's name for the transport.
    transport: String,
    starter: Starter,
    /// True if a thread of the implementation makes progress while the program computes, false if none does. `None`
    /// leaves that to the user's environment.
    has_progress: Option<bool>,
    /// The selection of an algorithm for collective calls.
    algorithm: Option<String>,
}

/// The suffix of the names of implementations with a thread for progress. Without the suffix it is the name of the same
/// implementation without the thread.
pub(crate) const WITH_PROGRESS: &str = "+progress";

/// The command that starts the processes.
#[derive(Clone, Debug)]
enum Starter {
    /// This program, which starts itself.
    Itself(PathBuf),
    /// The launcher of an MPI library.
    Peer(Peer, Settings),
}

impl Implementation {
    /// Finds the implementations that can run a benchmark over a transport, or over its nearest equivalent. With
    /// `progress` the implementations that have a thread for progress are in the list twice, without the thread and
    /// with it, and no other implementation is.
    ///
    /// # Errors
    /// The path of this program is unknown, or a peer's program does not build.
    pub(crate) fn find(
        benchmark: Benchmark,
        transport: &str,
        found: &Found,
        progress: bool,
    ) -> io::Result<Vec<Self>> {
        let all = Self::find_all(benchmark, transport, found)?;
        if !progress {
            return Ok(all);
        }
        let variants = |found: &Self| {
            let of = |has_progress, end| Self {
                name: format!("{}{end}", found.name),
                has_progress: Some(has_progress),
                ..found.clone()
            };
            [of(false, ""), of(true, WITH_PROGRESS)]
        };
        Ok(all.iter().filter(|found| found.can_progress()).flat_map(variants).collect())
    }

    fn find_all(benchmark: Benchmark, transport: &str, found: &Found) -> io::Result<Vec<Self>> {
        let program = std::env::current_exe()?;
        let ours = |name: &str, transport: &str| Self {
            name: name.to_owned(),
            transport: transport.to_owned(),
            starter: Starter::Itself(program.clone()),
            has_progress: None,
            algorithm: None,
        };
        let mut all = vec![ours("samite", transport)];
        if benchmark.is_collective() {
            let algorithms = algorithms_of(benchmark);
            all.extend(algorithms.map(|(name, selection)| Self {
                algorithm: Some(selection),
                ..ours(&format!("samite={name}"), transport)
            }));
        }
        if benchmark.is_of_transfers() || benchmark == Benchmark::PutBandwidth {
            all.push(ours("samite-owned", transport));
        }
        let is_plain = matches!(benchmark, Benchmark::Latency | Benchmark::Bandwidth | Benchmark::Rate)
            || matches!(benchmark, Benchmark::Put | Benchmark::PutBandwidth);
        if cfg!(feature = "ofi") && is_plain {
            if benchmark == Benchmark::Latency && transport == beside::TRANSPORT {
                all.push(ours("samite+shm", transport));
            }
            let transport = if transport == SAMITE_SHM { "shm" } else { transport };
            all.push(ours("libfabric", transport));
            if benchmark == Benchmark::Bandwidth {
                all.push(ours("libfabric-owned", transport));
            }
        }
        for peer in &found.peers {
            let Some(settings) = peer.settings(transport) else { continue };
            peer.build()?;
            all.push(Self {
                name: peer.name.clone(),
                transport: settings.transport.to_owned(),
                starter: Starter::Peer(peer.clone(), settings),
                has_progress: None,
                algorithm: None,
            });
        }
        Ok(all)
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        let starter = Starter::Itself(PathBuf::from("true"));
        Self {
            name: name.to_owned(),
            transport: "t".to_owned(),
            starter,
            has_progress: None,
            algorithm: None,
        }
    }

    /// Returns true if a thread of the implementation can make progress while the program computes.
    fn can_progress(&self) -> bool {
        match &self.starter {
            Starter::Itself(_) => matches!(self.name.as_str(), "samite" | "samite-owned"),
            Starter::Peer(peer, _) => !peer.progress().is_empty(),
        }
    }

    /// Runs the command once.
    ///
    /// # Errors
    /// [`RunError`].
    pub(crate) fn run(&self, benchmark: Benchmark, point: Point, pin: bool) -> Result<Record, RunError> {
        let mut command = self.command(benchmark, point);
        if pin {
            command.arg("--pin");
        }
        if benchmark == Benchmark::StartUp {
            return self.time_starts(command, point);
        }
        let output = self.finish(&mut command)?;
        let record: Record = serde_json::from_slice(&output.stdout)
            .map_err(|error| self.failed(&command, Cause::NoRecord(error)))?;
        // A program does not know if its name has an end.
        let implementation = match self.algorithm {
            Some(_) => self.name.clone(),
            None => record.implementation + self.end(),
        };
        Ok(Record { implementation, ..record })
    }

    /// Returns the command for a point.
    pub(crate) fn command(&self, benchmark: Benchmark, point: Point) -> Command {
        let Point { ranks, bytes, depth } = point;
        let what = if benchmark == Benchmark::StartUp { "hello" } else { benchmark.name() };
        let mut command = match &self.starter {
            Starter::Itself(program) => {
                let mut command = Command::new(program);
                command.args([what, "--ranks", &ranks.to_string()]);
                if let Some(has_progress) = self.has_progress {
                    command.env("SAMITE_PROGRESS", if has_progress { "needed" } else { "off" });
                }
                command
            }
            Starter::Peer(peer, settings) => {
                let mut command = peer.command(settings, ranks);
                command.arg(what);
                if self.has_progress == Some(true) {
                    command.envs(peer.progress().iter().copied());
                }
                command
            }
        };
        if let Some(selection) = &self.algorithm {
            command.env("SAMITE_COLL_ALGORITHMS", selection);
        }
        let name = self.name.split('=').next().unwrap_or_default().trim_end_matches(WITH_PROGRESS);
        command.args(["--impl", name, "--transport", &self.transport, "--json"]);
        command.args(["--bytes", &bytes.to_string()]);
        if let Some(depth) = depth {
            command.args(["--depth", &depth.to_string()]);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Returns the end of the name that stands for a thread for progress, if the implementation has one.
    fn end(&self) -> &'static str {
        if self.has_progress == Some(true) { WITH_PROGRESS } else { "" }
    }

    fn time_starts(&self, mut command: Command, point: Point) -> Result<Record, RunError> {
        let mut figures = Vec::new();
        for _ in 0..START_UPS {
            let begin = Instant::now();
            self.finish(&mut command)?;
            figures.push(Benchmark::StartUp.figure(point, begin.elapsed()));
        }
        let spread = Spread::of(figures.split_off(1)).expect("it was started more than once");
        Ok(Record::new(Benchmark::StartUp, &self.name, &self.transport, point, spread))
    }

    fn finish(&self, command: &mut Command) -> Result<Output, RunError> {
        let output = command.output().map_err(|error| self.failed(command, Cause::NotStarted(error)))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(self.failed(command, Cause::Failed { status: output.status, stderr }));
        }
        Ok(output)
    }

    fn failed(&self, command: &Command, cause: Cause) -> RunError {
        RunError { name: self.name.clone(), command: format!("{command:?}"), cause }
    }
}

/// The error of an implementation that could not be measured.
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

/// Returns the names of Samite's algorithms for a collective operation, each with the selection of the algorithm.
pub(crate) fn algorithms_of(benchmark: Benchmark) -> impl Iterator<Item = (String, String)> {
    let operation = format!("{}=", benchmark.name());
    let entries = Selection::NAMES.split('`').filter(move |text| text.starts_with(&operation));
    // The measured ranks are on one host.
    let entries = entries.filter(|text| !text.ends_with("=two-levels"));
    let degrees = |text: &str| if text.ends_with(":K") { &[":2", ":4"][..] } else { &[""] };
    entries.flat_map(move |text| {
        degrees(text).iter().map(move |degree| {
            let selection = text.replace(":K", degree).replace(":BYTES", ":65536");
            let name = selection.split('=').next_back().unwrap_or_default().to_owned();
            (name, selection)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an implementation that runs `script`. A child process writes the script. If this process wrote it, a
    /// child of another test that starts at that moment would inherit the open file, and a file that is open for
    /// writing cannot be executed.
    fn shell(script: &str) -> Implementation {
        let file = std::env::temp_dir().join(format!("samite-bench-{}-{}", std::process::id(), script.len()));
        let mut writer = Command::new("sh");
        writer
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$2" && chmod 700 "$2""#, "sh", script])
            .arg(&file);
        assert!(writer.status().unwrap().success());
        Implementation { starter: Starter::Itself(file), ..Implementation::named("shell") }
    }

    #[test]
    fn a_command_is_told_what_to_measure_and_prints_a_record() {
        let echo = r#"
            echo '{"bench":"depth","impl":"'"$*"'","transport":"t","ranks":2,"bytes":3,"depth":5,"metric":"m","unit":"u",
                   "median":2,"min":1,"max":3,"runs":1}'"#;
        let point = Point { ranks: 2, bytes: 3, depth: Some(5) };
        let record = shell(echo).run(Benchmark::Depth, point, true).unwrap();
        let args = "depth --ranks 2 --impl shell --transport t --json --bytes 3 --depth 5 --pin";
        assert_eq!((record.implementation.as_str(), record.median), (args, 2.0));
    }

    #[test]
    fn starts_are_timed_from_outside() {
        let point = Point { ranks: 8, bytes: 8, depth: None };
        let record =
            shell(r#"test "$1 $2 $3" = "hello --ranks 8""#).run(Benchmark::StartUp, point, false).unwrap();
        assert!(record.median > 0.0);
        assert_eq!((record.ranks, record.unit.as_str()), (8, "ms"));
    }

    #[test]
    fn failures_say_what_was_run_and_what_it_said() {
        let point = Point { ranks: 2, bytes: 3, depth: None };
        let message = |script| shell(script).run(Benchmark::Rate, point, false).unwrap_err().to_string();
        let failed = message("echo out of luck >&2; exit 3");
        assert!(failed.starts_with("shell was not measured: exit status: 3: out of luck\n"), "{failed}");
        assert!(failed.contains("\"--bytes\" \"3\""), "{failed}");
        assert!(message("echo hello").contains("something else than one record"));
    }
}
