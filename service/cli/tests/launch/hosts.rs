//! Jobs on several hosts, which are addresses of this host. The remote shell runs its commands on this host.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::observe::top;
use crate::support::{Job, Running, Scratch, text};

/// Writes a remote shell that runs the command on this host.
pub(crate) fn shell(scratch: &Scratch) -> PathBuf {
    scratch.script("shell", "#!/bin/sh\nshift\nexec \"$@\"\n")
}

/// Returns a job of four ranks on two hosts. Each rank runs `script`.
fn job(scratch: &Scratch, arguments: &str, script: &str) -> Job {
    let mut job = Job::new("-n 4 --hosts 127.0.0.1,127.0.0.2 --ssh");
    job.command.arg(shell(scratch)).args(arguments.split_whitespace()).args(["--", "sh", "-c", script]);
    job
}

/// Finds the job's processes whose second word on the command line is `word`, sorts their ids, and returns the id at
/// index `number`.
fn process(job: &Running, word: &str, number: usize) -> Pid {
    let mut found: Vec<Pid> = job.pids().into_iter().filter(|&pid| command_line(pid)[1] == word).collect();
    found.sort_by_key(|pid| pid.as_raw_nonzero());
    found[number]
}

/// Returns the agent of the second host. Agents start in parallel, so their process ids may be in either order. The ids
/// of the supervisors, their parents, follow the order of hosts.
fn second_agent(job: &Running) -> Pid {
    let supervisor = process(job, "supervisor", 1);
    let mut agents = job.pids().into_iter().filter(|&pid| command_line(pid)[1] == "agent");
    agents.find(|&pid| parent(pid) == Some(supervisor)).unwrap()
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(line.trim().parse().ok()?)
}

/// Returns a command line of at least two words.
fn command_line(pid: Pid) -> Vec<String> {
    let line = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let mut words: Vec<String> = line.split_terminator('\0').map(str::to_owned).collect();
    words.resize_with(words.len().max(2), String::new);
    words
}

#[test]
fn ranks_are_placed_in_pieces_and_talk_over_the_network() {
    let scratch = Scratch::new("ring");
    let ring = std::path::Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples/ring");
    for transport in ["", "--transport tcp;ofi_rxm"] {
        let output = job(&scratch, transport, &format!("exec {} 20", ring.display())).output();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).ends_with(" verified\n"));
    }
    // Shared memory reaches ranks of one host only.
    let output = job(&scratch, "--transport samite-shm", &format!("exec {} 20", ring.display())).output();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("it runs on another host"), "{}", text(&output.stderr));
}

/// Starts a job of two ranks, of which the second starts when the file `go` exists.
fn late(scratch: &Scratch, arguments: &str, script: &str) -> Running {
    let go = scratch.0.join("go");
    let shell = format!(
        "#!/bin/sh\n[ $1 = 127.0.0.2 ] && while [ ! -e {} ]; do sleep 0.01; done\nshift\nexec \"$@\"\n",
        go.display()
    );
    let mut job = Job::new("-n 2 --timeout 30 --hosts 127.0.0.1,127.0.0.2 --ssh");
    job.command.arg(scratch.script("late", &shell)).args(arguments.split_whitespace());
    job.command.args(["--", "sh", "-c", script]).env("XDG_RUNTIME_DIR", &scratch.0);
    job.start()
}

#[test]
fn a_host_that_is_started_late_is_reached() {
    let scratch = Scratch::new("late");
    let ring = std::path::Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples/ring");
    // Without an outbox, so that the first send of rank 0 waits for the address of rank 1.
    let job = late(&scratch, "", &format!("exec env SAMITE_OUTBOX_MAX=0 {} 20", ring.display()));
    while top(&scratch)["ranks"][0]["figures"]["awaits"]["awaited"] != "address" {}
    fs::write(scratch.0.join("go"), "").unwrap();
    let (code, stdout, stderr) = job.finish();
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    assert!(stdout.ends_with(" verified\n"));
}

#[test]
fn a_host_that_is_started_late_is_informed_of_failed_ranks() {
    let scratch = Scratch::new("late-news");
    let ring = std::path::Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples/ring");
    let script = format!("[ $SAMITE_RANK = 0 ] && exit 3; exec {} 20", ring.display());
    let mut job = late(&scratch, "--on-failure continue", &script);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut job.stderr, &mut line).unwrap();
    assert_eq!(line, "samite run: rank 0 exited with code 3; the others go on\n");
    fs::write(scratch.0.join("go"), "").unwrap();
    let (code, _, stderr) = job.finish();
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("rank 0"), "{stderr}");
}

#[test]
fn the_environment_the_directory_and_the_input_are_those_of_the_caller() {
    let scratch = Scratch::new("environment");
    let mut job = job(&scratch, "--env GREETING=hi --prefix", "echo $GREETING $SAMITE_MINE $(pwd); cat");
    job.command.env("SAMITE_MINE", "mine").current_dir(&scratch.0);
    let mut job = job.start();
    std::io::Write::write_all(&mut job.coordinator.stdin.take().unwrap(), b"input\n").unwrap();
    let (code, stdout, stderr) = job.finish();
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort();
    let at = scratch.0.canonicalize().unwrap();
    let mut expected: Vec<_> = (0..4).map(|rank| format!("[{rank}] hi mine {}", at.display())).collect();
    expected.insert(1, "[0] input".to_owned());
    assert_eq!(lines, expected);
}

#[test]
fn no_command_line_and_no_environment_has_a_secret() {
    let scratch = Scratch::new("secret");
    let mut job = job(&scratch, "", "echo ready; sleep 1000").start();
    job.lines(4);
    // The command lines of supervisors and agents, which other users can see. They contain no secret.
    let lines = job.pids().into_iter().map(command_line);
    let mut lines: Vec<_> = lines.filter(|line| matches!(&line[1][..], "supervisor" | "agent")).collect();
    lines.sort_by_key(|line| line.len());
    let samite = env!("CARGO_BIN_EXE_samite");
    assert_eq!(lines[..2], [[samite, "supervisor"], [samite, "supervisor"]]);
    for line in &lines[2..] {
        let [name, agent, descriptor] = &line[..] else { panic!("{line:?}") };
        assert_eq!((&name[..], &agent[..]), ("samite", "agent"));
        descriptor.parse::<i32>().unwrap();
    }
    assert_eq!(lines.len(), 4);
    job.signal(Signal::TERM);
    assert_eq!(job.finish().0, Some(143));
}

/// The script of a rank that starts children which outlive it, one of them in a session of its own, and keeps running.
const CLINGING: &str =
    "sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & echo ready; sleep 1000; sleep 1000";

#[test]
fn no_process_is_left_when_any_is_killed() {
    let scratch = Scratch::new("kill");
    type Choose = fn(&Running) -> Pid;
    let coordinator: Choose = |job| process(job, "run", 0);
    let supervisor: Choose = |job| process(job, "supervisor", 1);
    for (word, choose, message) in [
        ("run", coordinator, ""),
        // The second agent then ends ranks 2 and 3 by SIGTERM. Either rank may end first, so the message may name
        // either.
        ("supervisor", supervisor, "was killed by SIGTERM (signal 15); ending the job\n"),
        (
            "agent",
            second_agent,
            "each of the ranks 2 to 3 was lost with its host 127.0.0.2 (the agent there is gone); ending the job\n",
        ),
    ] {
        let mut job = job(&scratch, "", CLINGING).start();
        job.lines(4);
        let processes = job.processes();
        kill_process(choose(&job), Signal::KILL).unwrap();
        processes.wait();
        let (code, _, stderr) = job.finish();
        assert_ne!(code, Some(0));
        assert!(stderr.contains(message), "{word}: {stderr}");
    }
}

#[test]
fn with_continue_the_ranks_of_other_hosts_go_on() {
    let scratch = Scratch::new("continue");
    let script = "echo ready; read line; echo $SAMITE_RANK; test $SAMITE_RANK -lt 2 || sleep 1000";
    let mut job = job(&scratch, "--on-failure continue", script).start();
    job.lines(4);
    kill_process(second_agent(&job), Signal::KILL).unwrap();
    let (code, _, stderr) = job.finish();
    assert_eq!(code, Some(255));
    assert_eq!(
        stderr,
        "samite run: each of the ranks 2 to 3 was lost with its host 127.0.0.2 (the agent there is gone); the others go on\n"
    );
}

#[test]
fn errors_at_the_start_are_reported() {
    let scratch = Scratch::new("wrong");
    let told = |arguments: &str, shell: &str| {
        let mut job = Job::new(&format!("{arguments} --ssh"));
        job.command.args([shell, "--", "true"]);
        let output = job.output();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr).to_owned()
    };
    let here = shell(&scratch);
    let here = here.to_str().unwrap();
    assert_eq!(
        told("-n 3 --hosts 127.0.0.1:1,127.0.0.2:1", here),
        "samite: 3 ranks do not fit into the 2 slots of the hosts: name more hosts, or more slots, as in `--hosts a:4,b:4`\n"
    );
    assert!(told("-n 2 --hosts 127.0.0.1", "no-such-shell").starts_with(
        "samite: the remote shell `no-such-shell` cannot be started: No such file or directory"
    ));
    assert!(
        told("-n 2 --hosts 127.0.0.1", "false").starts_with(
            "samite: no agent was started on host 127.0.0.1: `false 127.0.0.1` exited with code 1; its output is above."
        )
    );
    let unreachable = told("-n 2 --hosts nowhere.invalid", here);
    assert!(unreachable.contains("samite: host nowhere.invalid cannot reach `samite run`"), "{unreachable}");
}

#[test]
fn a_profile_tells_of_which_host_a_rank_is() {
    let scratch = Scratch::new("hosts-profile");
    let file = scratch.0.join("stats.json");
    let ring = std::path::Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples/ring");
    let arguments = format!("--transport tcp;ofi_rxm --stats={}", file.display());
    let output = job(&scratch, &arguments, &format!("exec {} 20", ring.display())).output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(profile["transport"], "tcp;ofi_rxm");
    for (rank, host) in ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"].into_iter().enumerate() {
        let view = &profile["ranks"][rank];
        assert_eq!((&view["host"], &view["figures"]["sent"]), (&host.into(), &20.into()), "{profile}");
    }
}
