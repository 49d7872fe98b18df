//! Observation of a job: its profile at the end, and the activity of its ranks while it runs.

#![expect(clippy::print_stdout, reason = "ranks tell their test where they are")]

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::{Job, Running, Scratch, text};
use samite::Rank;

/// The variable that names a pipe to which the test writes.
const PIPE: &str = "SAMITE_TEST_PIPE";

/// Rank 0 sends; rank 1 receives, and posts most receives after the messages' arrival; rank 2 does nothing.
#[test]
fn a_profile_tells_what_was_exchanged() {
    const LONG: usize = 1 << 20;
    if !is_rank() {
        let scratch = Scratch::new("profile");
        for transport in TRANSPORTS {
            let [json, page] = ["stats.json", "stats.html"].map(|name| scratch.0.join(name));
            for file in [&json, &page] {
                let arguments = format!("-n 3 --stats={} {transport}", file.display());
                output_of(job_of_test("observe::a_profile_tells_what_was_exchanged", &arguments));
            }
            let profile: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
            let figures = |rank: usize, name: &str| profile["ranks"][rank]["figures"][name].as_u64().unwrap();
            let bytes = 300 + LONG as u64;
            assert_eq!((figures(0, "sent"), figures(0, "bytes_sent")), (5, bytes), "{profile}");
            assert_eq!((figures(1, "received"), figures(1, "bytes_received")), (5, bytes), "{profile}");
            assert_eq!((figures(2, "sent"), figures(2, "received")), (0, 0), "{profile}");
            // The three short messages are unexpected. The long message and the last message may have met a posted
            // receive.
            assert!((3..=5).contains(&figures(1, "unexpected")), "{profile}");
            assert!((3..=5).contains(&figures(1, "unexpected_max")), "{profile}");
            assert_eq!(figures(1, "unexpected_messages"), 0);
            let flow = serde_json::json!({ "from": 0, "to": 1, "messages": 5, "bytes": bytes });
            assert_eq!(profile["traffic"], serde_json::json!([flow]));
            assert_eq!(profile["ranks"][2]["ending"], "left");
            let page = fs::read_to_string(page).unwrap();
            assert!(page.contains(&format!("rank 0 to rank 1: 5 messages, {bytes} bytes")), "{page}");
        }
        let output = job_of_test("observe::a_profile_tells_what_was_exchanged", "-n 3 --stats").output();
        let table = text(&output.stderr);
        let row = |rank: usize| -> Vec<&str> {
            table.lines().nth(2 + rank).unwrap_or_else(|| panic!("{table}")).split_whitespace().collect()
        };
        assert_eq!(row(0)[..4], ["0", "5", "1048876", "0"], "{table}");
        assert_eq!(row(1)[..5], ["1", "0", "0", "5", "1048876"], "{table}");
        return;
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    match world.rank() {
        Rank(0) => {
            for _ in 0..3 {
                world.send(&[0_u8; 100], Rank(1), 1).unwrap();
            }
            world.send(&vec![0_u8; LONG], Rank(1), 2).unwrap();
            world.send(&[0_u8; 0], Rank(1), 3).unwrap();
        }
        Rank(1) => {
            world.recv(&mut vec![0_u8; LONG], Rank(0), 2).unwrap();
            world.recv(&mut [0_u8; 0], Rank(0), 3).unwrap();
            // The short messages have arrived before the long message, so they are unexpected.
            for _ in 0..3 {
                world.recv(&mut [0_u8; 100], Rank(0), 1).unwrap();
            }
        }
        _ => {}
    }
}

/// Rank 1 sends to rank 0 and is killed; rank 0 has counted the messages.
#[test]
fn of_a_killed_rank_its_partners_tell() {
    if !is_rank() {
        let scratch = Scratch::new("killed");
        let file = scratch.0.join("stats.json");
        let arguments = format!("-n 2 --on-failure continue --stats={}", file.display());
        let output = job_of_test("observe::of_a_killed_rank_its_partners_tell", &arguments).output();
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        let profile: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(profile["ranks"][1]["ending"]["killed"]["signal"], 9, "{profile}");
        assert_eq!(profile["traffic"][0]["messages"], 1, "{profile}");
        assert_eq!(profile["ranks"][0]["figures"]["bytes_received"], 8, "{profile}");
        return;
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    if world.rank() == 1 {
        world.send(&[1_u64], Rank(0), 1).unwrap();
        world.recv(&mut [0_u64], Rank(0), 2).unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    world.recv(&mut [0_u64], Rank(1), 1).unwrap();
    // Rank 1 kills itself when it has received this message. This rank leaves only when it knows that rank 1 has died.
    world.send(&[0_u64], Rank(1), 2).unwrap();
    world.recv(&mut [0_u64], Rank(1), 3).unwrap_err();
}

/// First rank 0 waits for rank 1, which reads from a pipe; then rank 1 waits for rank 0, which reads its input.
#[test]
fn a_running_job_shows_the_awaited_ranks() {
    if is_rank() {
        let world = samite::init().unwrap();
        let world = world.comm().with_timeout(PATIENCE);
        if world.rank() == 0 {
            world.recv(&mut [0_u32; 2], Rank(1), 5).unwrap();
            println!("received");
            io::stdin().lock().read_line(&mut String::new()).unwrap();
            world.send(&[0_u8; 3], Rank(1), 7).unwrap();
        } else {
            fs::read(pipe()).unwrap();
            world.send(&[1_u32, 2], Rank(0), 5).unwrap();
            world.recv(&mut [0_u8; 3], Rank(0), 7).unwrap();
        }
        return;
    }
    let scratch = Scratch::new("observe");
    let (pipe, mut job) = begin("observe::a_running_job_shows_the_awaited_ranks", &scratch, "-n 2");
    let sockets = scratch.0.join("samite");
    // At first rank 0 may not answer, or may wait for another event than a message.
    let view = loop {
        let view = top(&scratch);
        if view["ranks"][0]["figures"]["awaits"]["awaited"] == "message" {
            break view;
        }
    };
    let awaits = &view["ranks"][0]["figures"]["awaits"];
    assert_eq!((&awaits["peer"], &awaits["tag"], &awaits["bytes"]), (&1.into(), &5.into(), &8.into()));
    assert_eq!(awaits["is_send"], false);
    assert_eq!(view["ranks"][1]["figures"], Value::Null, "it has made no call yet that waits: {view}");
    assert_eq!(mode(&sockets), 0o700);
    let [socket] = &files(&sockets)[..] else { panic!("{:?}", files(&sockets)) };
    assert_eq!(mode(socket), 0o600);

    let listed = samite("ps", &scratch);
    let listed = text(&listed.stdout);
    let name = socket.file_stem().unwrap().to_str().unwrap();
    assert_eq!(view["job"], name);
    // Jobs of other tests may be listed too.
    let row = listed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{listed}"));
    let row: Vec<_> = row.split_whitespace().collect();
    assert_eq!((row[1], row[2]), (&*job.coordinator.id().to_string(), "2"));

    OpenOptions::new().write(true).open(&pipe).unwrap().write_all(b"go").unwrap();
    await_line(&mut job, "received");
    let view = loop {
        let view = top(&scratch);
        if view["ranks"][1]["figures"]["awaits"]["awaited"] == "message"
            && view["ranks"][1]["is_answer"] == true
        {
            break view;
        }
    };
    let awaits = &view["ranks"][1]["figures"]["awaits"];
    assert_eq!((&awaits["peer"], &awaits["tag"], &awaits["bytes"]), (&0.into(), &7.into(), &3.into()));
    let [other, this] = [0, 1].map(|rank: usize| &view["ranks"][rank]);
    assert_eq!((&other["is_answer"], &this["is_answer"]), (&false.into(), &true.into()), "{view}");
    assert!(other["figures_age_ms"].as_u64() >= this["figures_age_ms"].as_u64(), "{view}");
    let shown = samite(&format!("top {name} --once --interval 0.01"), &scratch);
    let shown = text(&shown.stdout);
    assert!(shown.contains("makes no calls") && shown.contains("recv from 0, tag 7, 3 bytes"), "{shown}");

    job.coordinator.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(job.finish().0, Some(0));
    assert_eq!(files(&sockets), [] as [PathBuf; 0], "the socket is removed");
    assert!(!samite(&format!("top {name} --once"), &scratch).status.success());
}

/// Observers take all descriptors of the launcher and read no answer. The answer contains the program's arguments, so
/// that it does not fit into a socket.
#[test]
fn without_a_descriptor_left_the_launcher_sleeps_until_there_is_one() {
    let scratch = Scratch::new("observers");
    let mut job = Job::shell("-n 1", "echo there; read line");
    job.command.args(vec!["a".repeat(100_000); 3]).env("XDG_RUNTIME_DIR", &scratch.0);
    let mut limited = Command::new("sh");
    let limit = format!("ulimit -n {DESCRIPTORS}; exec \"$@\"");
    limited.args(["-c", &limit, "sh"]).arg(job.command.get_program()).args(job.command.get_args());
    for (name, value) in job.command.get_envs() {
        limited.env(name, value.unwrap());
    }
    job.command = limited;
    let mut job = job.start();
    job.lines(1);
    let [socket] = &files(&scratch.0.join("samite"))[..] else { panic!("one socket") };
    let observers: Vec<_> = (0..DESCRIPTORS).map(|_| UnixStream::connect(socket).unwrap()).collect();
    let process = PathBuf::from(format!("/proc/{}", job.coordinator.id()));
    let descriptors = || fs::read_dir(process.join("fd")).unwrap().count();
    until(|| descriptors() >= DESCRIPTORS - 1);
    // After 100 ms, the accepted observers have their answers, and the other observers wait to be accepted. A process
    // that spins never goes to sleep, so its count of voluntary context switches does not change.
    let naps = || {
        let status = fs::read_to_string(process.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = naps();
    until(|| naps() > before + 2);

    drop(observers);
    until(|| samite("top --once --json", &scratch).status.success());
    job.coordinator.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(job.finish().0, Some(0));
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "a test that would hang fails after a while")]
fn until(condition: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "it does not come about");
    }
}

/// The limit of open descriptors for the launcher: enough to start one rank.
const DESCRIPTORS: usize = 40;

#[test]
fn what_a_killed_launcher_leaves_is_removed() {
    if is_rank() {
        let world = samite::init().unwrap();
        println!("there");
        let _ = world.comm().recv(&mut [0_u8], Rank(0), 1);
        return;
    }
    let scratch = Scratch::new("stale");
    let (_, mut job) = begin("observe::what_a_killed_launcher_leaves_is_removed", &scratch, "-n 1");
    await_line(&mut job, "there");
    let sockets = scratch.0.join("samite");
    job.signal(Signal::KILL);
    job.processes().wait();
    assert_eq!(files(&sockets).len(), 1, "nobody was there to remove it");
    assert!(samite("ps", &scratch).status.success());
    assert_eq!(files(&sockets), [] as [PathBuf; 0]);
    job.finish();
}

/// Starts a job whose socket is in `scratch`. Returns the pipe that the job's ranks may read, and the job.
fn begin(test: &str, scratch: &Scratch, arguments: &str) -> (PathBuf, Running) {
    let pipe = scratch.0.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut job: Job = job_of_test(test, arguments);
    job.command.env("XDG_RUNTIME_DIR", &scratch.0).env(PIPE, &pipe);
    (pipe, job.start())
}

#[expect(clippy::disallowed_methods, reason = "the test tells a rank so")]
fn pipe() -> PathBuf {
    std::env::var_os(PIPE).unwrap().into()
}

fn await_line(job: &mut Running, awaited: &str) {
    let mut lines = job.stdout.by_ref().lines();
    assert!(lines.any(|line| line.unwrap().contains(awaited)), "the output ended before `{awaited}`");
}

fn samite(arguments: &str, scratch: &Scratch) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samite"));
    command.args(arguments.split_whitespace()).env("XDG_RUNTIME_DIR", &scratch.0).output().unwrap()
}

/// Returns the output of `samite top` for the job whose socket is in `scratch`, or null if there is no socket yet.
pub(crate) fn top(scratch: &Scratch) -> Value {
    let sockets = fs::read_dir(scratch.0.join("samite")).into_iter().flatten();
    let names = sockets.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let Some(name) = names.filter_map(|name| name.strip_suffix(".sock").map(str::to_owned)).next() else {
        return Value::Null;
    };
    let output = samite(&format!("top {name} --once --json --interval 0.01"), scratch);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
