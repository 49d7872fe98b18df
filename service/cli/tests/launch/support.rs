//! Starts jobs, and finds all processes of a job.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The environment variable that marks the processes of one job, the launcher included.
const MARK: &str = "SAMITE_TEST_MARK";

/// The time limit of a wait: longer than any action of a test takes, even on a busy machine.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A job to run, whose processes can all be found.
pub(crate) struct Job {
    mark: String,
    pub(crate) command: Command,
}

impl Job {
    /// Returns `samite run` with these arguments, separated by spaces. The command starts with no signal ignored: if a
    /// script starts the test in the background, the test ignores interrupts, its children would inherit that, and a
    /// shell among them could not trap interrupts.
    pub(crate) fn new(arguments: &str) -> Job {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("env");
        command
            .args(["--default-signal", env!("CARGO_BIN_EXE_samite"), "run"])
            .args(arguments.split_whitespace())
            .env(MARK, &mark)
            .stdin(Stdio::null());
        Job { mark, command }
    }

    /// Returns a job whose ranks run `script`. `arguments` are the arguments of `samite run`, separated by spaces.
    pub(crate) fn shell(arguments: &str, script: &str) -> Job {
        let mut job = Job::new(arguments);
        job.command.args(["--", "sh", "-c", script]);
        job
    }

    /// Runs the job to its end, and checks that no process is left.
    pub(crate) fn output(mut self) -> Output {
        let output = self.command.output().unwrap();
        assert_eq!(processes(&self.mark), [], "nothing is left");
        output
    }

    pub(crate) fn start(mut self) -> Running {
        let mut child =
            self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running {
            stdout: BufReader::new(child.stdout.take().unwrap()),
            stderr: BufReader::new(child.stderr.take().unwrap()),
            coordinator: child,
            mark: self.mark,
        }
    }
}

/// A running job.
pub(crate) struct Running {
    pub(crate) coordinator: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) stderr: BufReader<ChildStderr>,
    mark: String,
}

impl Running {
    /// Returns the next `count` lines of the job's output, sorted.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = self.stdout.by_ref().lines().take(count).map(Result::unwrap).collect();
        assert_eq!(lines.len(), count, "the output ended early: {lines:?}");
        lines.sort();
        lines
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.coordinator_pid(), signal).unwrap();
    }

    pub(crate) fn coordinator_pid(&self) -> Pid {
        Pid::from_child(&self.coordinator)
    }

    /// Returns the agent, which is the coordinator's only child.
    pub(crate) fn agent_pid(&self) -> Pid {
        let coordinator = self.coordinator.id();
        let children =
            fs::read_to_string(format!("/proc/{coordinator}/task/{coordinator}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    /// Returns every process of the job.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        processes(&self.mark)
    }

    /// Returns handles of every process of the job.
    pub(crate) fn processes(&self) -> Processes {
        Processes(
            self.pids().into_iter().filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect(),
        )
    }

    /// Waits for the end and checks that no process is left. Returns the exit code and the rest of stdout and stderr.
    pub(crate) fn finish(mut self) -> (Option<i32>, String, String) {
        drop(self.coordinator.stdin.take());
        let mut texts = [String::new(), String::new()];
        self.stdout.read_to_string(&mut texts[0]).unwrap();
        self.stderr.read_to_string(&mut texts[1]).unwrap();
        let status = self.coordinator.wait().unwrap();
        assert_eq!(processes(&self.mark), [], "nothing is left");
        let [stdout, stderr] = texts;
        (status.code(), stdout, stderr)
    }
}

/// Handles of processes, with which a test can wait for the end of the processes.
pub(crate) struct Processes(Vec<OwnedFd>);

impl From<Vec<OwnedFd>> for Processes {
    fn from(handles: Vec<OwnedFd>) -> Processes {
        Processes(handles)
    }
}

impl Processes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Waits until all processes have ended.
    pub(crate) fn wait(&self) {
        for process in &self.0 {
            let ready = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&PATIENCE)).unwrap();
            assert_eq!(ready, 1, "a process of the job is still there");
        }
    }
}

/// A directory for one test, removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("samite-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Writes a script that can be started. A separate process writes it: a file written here would be open in any
    /// process that another test starts at that moment, and a file open for writing cannot be executed.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut writer = Command::new("sh");
        writer.args(["-c", r#"printf %s "$1" >"$2" && chmod 755 "$2""#, "sh", text]).arg(&path);
        assert!(writer.status().unwrap().success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the output as text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn processes(mark: &str) -> Vec<Pid> {
    let needle = format!("{MARK}={mark}");
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let has_mark = |pid: &i32| {
        // A zombie has an empty environment and counts as ended.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == needle.as_bytes())
    };
    numbers.filter(has_mark).filter_map(Pid::from_raw).collect()
}
