//! Signals that end a job, in every state of the launcher.

use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, mkfifoat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use samite_os::spawn::pass_fd;

use crate::support::{Job, Processes, Running, Scratch};

/// Returns a job whose remote shell is the script `shell`, and whose ranks run `script`. `arguments` name the hosts.
fn remote(scratch: &Scratch, arguments: &str, shell: &str, script: &str) -> Job {
    let mut job = Job::new(&format!("{arguments} --ssh"));
    job.command.arg(scratch.script("shell", shell)).args(["--", "sh", "-c", script]);
    job
}

fn await_stderr(job: &mut Running) -> String {
    let mut line = String::new();
    job.stderr.read_line(&mut line).unwrap();
    line
}

#[test]
fn each_signal_ends_the_wait_for_agents() {
    let scratch = Scratch::new("awaited");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        // The remote shell runs, but starts no agent.
        let shell = "#!/bin/sh\necho $1 >&2\nexec sleep 1000\n";
        let mut job = remote(&scratch, "-n 2 --hosts 127.0.0.1,127.0.0.2", shell, "true").start();
        for _ in 0..2 {
            await_stderr(&mut job);
        }
        job.signal(signal);
        let (ended, _, stderr) = job.finish();
        assert_eq!(
            (ended, &stderr[..]),
            (
                Some(code),
                "samite run: interrupted while the agents of 127.0.0.1, 127.0.0.2 were awaited; ending the job\n"
            )
        );
    }
}

#[test]
fn each_signal_ends_a_job_of_stopped_ranks() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut job = Job::shell("-n 2 --timeout 60", "echo $$; kill -STOP $$").start();
        let ranks = job.lines(2);
        let is_stopped = |pid: &String| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !ranks.iter().all(is_stopped) {}
        job.signal(signal);
        let (ended, _, stderr) = job.finish();
        assert_eq!(ended, Some(code), "{stderr}");
    }
}

#[test]
fn ranks_that_were_started_end_with_the_wait_for_other_agents() {
    let scratch = Scratch::new("half");
    let shell = "#!/bin/sh\n[ $1 = 127.0.0.2 ] && exec sleep 1000\nshift\nexec \"$@\"\n";
    // The rank that runs the first script ignores the signal, so it is killed.
    for (script, signal, code) in [
        ("trap '' TERM INT; echo ready; while :; do sleep 1000; done", Signal::INT, 130),
        ("echo ready; exec sleep 1000", Signal::TERM, 143),
    ] {
        let mut job = remote(&scratch, "-n 2 --hosts 127.0.0.1,127.0.0.2", shell, script).start();
        job.lines(1);
        job.signal(signal);
        let (ended, _, stderr) = job.finish();
        assert_eq!(ended, Some(code), "{stderr}");
        assert!(stderr.contains("the agents of 127.0.0.2 were awaited; ending the job\n"), "{stderr}");
    }
}

#[test]
fn a_second_interrupt_kills_while_agents_are_awaited() {
    let scratch = Scratch::new("twice");
    let shell = "#!/bin/sh\n[ $1 = 127.0.0.2 ] && exec sleep 1000\nshift\nexec \"$@\"\n";
    let script = "trap '' TERM INT; echo ready; while :; do sleep 1000; done";
    let mut job = remote(&scratch, "-n 2 --hosts 127.0.0.1,127.0.0.2", shell, script).start();
    job.lines(1);
    job.signal(Signal::INT);
    assert!(await_stderr(&mut job).contains("were awaited"));
    job.signal(Signal::INT);
    let (code, _, stderr) = job.finish();
    assert_eq!((code, &stderr[..]), (Some(130), "samite run: interrupted twice; killing the job\n"));
}

#[test]
fn a_remote_shell_that_stays_behind_is_ended() {
    let scratch = Scratch::new("lingering");
    // This shell does not end after its command, like ssh while a process on the other host keeps the output of ssh
    // open.
    let shell = "#!/bin/sh\nshift\n\"$@\"\nexec sleep 1000\n";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut job = remote(&scratch, "-n 1 --hosts 127.0.0.1", shell, "echo ready").start();
        job.lines(1);
        let lingers = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
            line.starts_with(b"sleep\0")
        };
        while !job.pids().iter().any(lingers) {}
        job.signal(signal);
        let processes = job.processes();
        processes.wait();
        // If the coordinator reads the agent's last message before the signal, the job ends with the exit code of its
        // rank, 0.
        let (ended, _, _) = job.finish();
        assert!(ended == Some(code) || ended == Some(0), "{ended:?}");
    }
}

#[test]
fn output_that_is_not_taken_does_not_hold_up_the_end() {
    let job = Job::shell("-n 2", "exec yes").start();
    fill(job.stdout.get_ref());
    let processes = job.processes();
    job.signal(Signal::TERM);
    processes.wait();
    assert_eq!(job.finish().0, Some(143));
}

#[test]
fn messages_that_are_not_taken_do_not_hold_up_the_end() {
    let mut job = Job::shell("-n 2", "yes >&2 & read line; exit 3").start();
    fill(job.stderr.get_ref());
    let processes = job.processes();
    job.coordinator.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    job.signal(Signal::TERM);
    processes.wait();
    job.coordinator.wait().unwrap();
}

#[test]
fn an_error_that_is_not_taken_does_not_hold_up_the_end() {
    for arguments in ["-n 1 --hosts 127.0.0.1 --ssh /nonexistent true", "-n 1 /nonexistent"] {
        let mut job = Job::new(arguments);
        let (_reader, stderr) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&stderr, true).unwrap();
        for part in [4096, 1] {
            while rustix::io::write(&stderr, &vec![b'x'; part]).is_ok() {}
        }
        rustix::io::ioctl_fionbio(&stderr, false).unwrap();
        let mut coordinator = job.command.stderr(stderr).spawn().unwrap();
        await_that_signals_are_left_to_the_system(&coordinator);
        let process = Pid::from_child(&coordinator);
        kill_process(process, Signal::TERM).unwrap();
        Processes::from(vec![pidfd_open(process, PidfdFlags::empty()).unwrap()]).wait();
        assert_eq!(coordinator.wait().unwrap().signal(), Some(15), "{arguments}");
    }
}

#[test]
fn a_stopped_agent_does_not_hold_up_a_second_interrupt() {
    let mut job = Job::shell("-n 2", "echo ready; exec sleep 1000").start();
    job.lines(2);
    let processes = job.processes();
    kill_process(job.agent_pid(), Signal::STOP).unwrap();
    job.signal(Signal::INT);
    // Two pending signals of a kind count as one.
    while signals(&job.coordinator, "ShdPnd").is_some_and(|pending| pending & bit(Signal::INT) != 0) {}
    job.signal(Signal::INT);
    processes.wait();
    assert_eq!(job.finish().0, Some(130));
}

#[test]
fn statistics_that_are_not_read_do_not_hold_up_the_end() {
    let scratch = Scratch::new("fifo");
    let file = scratch.0.join("stats");
    mkfifoat(rustix::fs::CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
    let job = Job::shell(&format!("-n 1 --stats={}", file.display()), "true").start();
    let process = pidfd_open(job.coordinator_pid(), PidfdFlags::empty()).unwrap();
    await_that_signals_are_left_to_the_system(&job.coordinator);
    job.signal(Signal::INT);
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap(), 1);
    assert_eq!(job.finish().0, None);
}

/// Waits until interrupts are unblocked in the launcher. It unblocks them before it waits for a reader of its output,
/// so that the system ends the launcher at an interrupt.
#[expect(clippy::disallowed_methods, reason = "the test waits a limited time")]
fn await_that_signals_are_left_to_the_system(coordinator: &Child) {
    let is_left_to_the_system = || {
        let blocked = signals(coordinator, "SigBlk");
        blocked.is_some_and(|blocked| blocked != 0 && blocked & bit(Signal::INT) == 0)
    };
    let begin = std::time::Instant::now();
    while !is_left_to_the_system() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the coordinator blocks interrupts");
    }
}

/// Fills a pipe.
fn fill(pipe: &impl AsRawFd) {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let writer = File::options().write(true).open(path).unwrap();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).unwrap() != 0 {}
}

/// Returns the set of signals in a line of the process's status file. Some lines are about a single thread, which is
/// the process's first thread.
fn signals(process: &Child, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let mask = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[test]
fn an_agent_that_waits_for_its_plan_ends_on_a_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // A shell starts background commands with interrupts ignored, and nohup with hang-ups ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_samite")]);
        let fd = pass_fd(&mut command, theirs.into());
        let mut agent = command.args(["agent", &fd.to_string()]).spawn().unwrap();
        drop(command);
        while signals(&agent, "SigBlk") == Some(0) {}
        kill_process(Pid::from_child(&agent), signal).unwrap();
        let handle = pidfd_open(Pid::from_child(&agent), PidfdFlags::empty()).unwrap();
        Processes::from(vec![handle]).wait();
        assert!(agent.wait().unwrap().success());
        drop(ours);
    }
}
