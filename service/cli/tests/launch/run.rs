//! Exit codes, signals, output.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Job, Scratch, text};

#[test]
fn every_rank_knows_its_place() {
    let output = Job::shell(
        "-n 3 --transport samite-shm --env GREETING=hi=there",
        "echo $SAMITE_RANK/$SAMITE_SIZE \
        $SAMITE_TRANSPORT $GREETING",
    )
    .output();
    let mut lines: Vec<_> = text(&output.stdout).lines().collect();
    lines.sort();
    assert_eq!(lines, ["0/3 samite-shm hi=there", "1/3 samite-shm hi=there", "2/3 samite-shm hi=there"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn ranks_that_take_turns_switch_swiftly() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let tunables = |arguments: &str, before: Option<&str>| {
        let mut job = Job::shell(arguments, "echo tunables $GLIBC_TUNABLES");
        match before {
            Some(value) => job.command.env("GLIBC_TUNABLES", value),
            None => job.command.env_remove("GLIBC_TUNABLES"),
        };
        let output = job.output();
        assert!(output.status.success(), "{output:?}");
        let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.dedup();
        lines
    };
    let crowded = format!("-n {}", cores + 1);
    assert_eq!(tunables(&crowded, None), ["tunables glibc.pthread.rseq=0"]);
    assert_eq!(tunables(&format!("-n {cores}"), None), ["tunables"]);
    // A user's own choice has precedence.
    let theirs = "glibc.malloc.perturb=0";
    assert_eq!(tunables(&crowded, Some(theirs)), [format!("tunables {theirs}")]);
    assert_eq!(
        tunables(&format!("{crowded} --env GLIBC_TUNABLES={theirs}"), None),
        [format!("tunables {theirs}")]
    );
}

#[test]
fn ranks_are_bound_as_asked_for() {
    const SHOW: &str = "while read key list; do case $key in Cpus_allowed_list:) echo $list; esac; done \
                        </proc/self/status";
    let bound = |bind: &str| {
        let output = Job::shell(bind, SHOW).output();
        assert!(output.status.success(), "{output:?}");
        let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let cores = samite_launch::Topology::of_this_host().unwrap().cores.len();
    let free = bound("-n 1");
    assert_eq!(bound("-n 1 --bind none"), free);
    let mut own = bound(&format!("-n {cores} --bind core"));
    own.dedup();
    assert_eq!(own.len(), cores, "each has a core of its own: {own:?}");
    assert_eq!(bound("-n 2 --bind numa").len(), 2);

    let output = Job::shell(&format!("-n {} --bind core", cores + 1), SHOW).output();
    let told = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(told.contains("ranks cannot have a core each") && told.contains("`--bind numa`"), "{told}");
}

#[test]
fn a_rank_inherits_its_ticket_and_nothing_else_of_ours() {
    let script = "set -- $(ls /proc/self/fd); echo $#";
    // Processes inherit the descriptors that the test runner's parent left open.
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    let plain: u32 = text(&plain.stdout).trim().parse().unwrap();
    let output = Job::shell("-n 2", script).output();
    assert_eq!(text(&output.stdout), format!("{0}\n{0}\n", plain + 1));
}

#[test]
fn the_first_failure_decides_the_exit_code() {
    for (script, code, message) in [
        ("exit 0", 0, ""),
        ("exit 1", 1, "rank 0 exited with code 1; ending the job"),
        ("exit 255", 255, "rank 0 exited with code 255; ending the job"),
        ("kill -KILL $$", 137, "rank 0 was killed by SIGKILL (signal 9); ending the job"),
        ("kill -TERM $$", 143, "rank 0 was killed by SIGTERM (signal 15); ending the job"),
        ("kill -USR2 $$", 140, "rank 0 was killed by SIGUSR2 (signal 12); ending the job"),
    ] {
        let output = Job::shell("-n 1", script).output();
        assert_eq!(output.status.code(), Some(code), "{script}");
        let expected = if message.is_empty() { String::new() } else { format!("samite run: {message}\n") };
        assert_eq!(text(&output.stderr), expected);
    }
}

#[test]
fn a_failure_ends_the_others() {
    let script = "test $SAMITE_RANK = 1 && exit 7; sleep 1000 & sleep 1000";
    let output = Job::shell("-n 3", script).output();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stderr), "samite run: rank 1 exited with code 7; ending the job\n");
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let script = "test $SAMITE_RANK = 1 && exit 7; trap '' TERM; sleep 1000; sleep 1000";
    assert_eq!(Job::shell("-n 2", script).output().status.code(), Some(7));
}

#[test]
fn a_core_dump_is_reported() {
    let scratch = Scratch::new("core");
    let script = "ulimit -c unlimited 2>/dev/null; kill -ABRT $$";
    // Core dumps depend on this machine's configuration.
    let plain = Command::new("sh").args(["-c", script]).current_dir(&scratch.0).status().unwrap();
    let mut job = Job::shell("-n 1", script);
    job.command.current_dir(&scratch.0);
    let output = job.output();
    assert_eq!(output.status.code(), Some(134));
    assert_eq!(text(&output.stderr).contains("core dumped"), plain.core_dumped());
}

#[test]
fn with_continue_the_survivors_go_on() {
    // Rank 0 exits when it has read a line, which the test writes after the failure has been reported.
    let script = "test $SAMITE_RANK = 1 && kill -KILL $$; test $SAMITE_RANK = 0 && read line && echo $line";
    let mut job = Job::shell("-n 2 --on-failure continue", script).start();
    let mut message = String::new();
    job.stderr.read_line(&mut message).unwrap();
    assert_eq!(message, "samite run: rank 1 was killed by SIGKILL (signal 9); the others go on\n");
    job.coordinator.stdin.take().unwrap().write_all(b"still here\n").unwrap();
    assert_eq!(job.finish(), (Some(137), "still here\n".to_owned(), String::new()));
}

#[test]
fn a_timeout_ends_the_job() {
    for script in ["sleep 1000", "trap '' TERM; sleep 1000; sleep 1000"] {
        let output = Job::shell("-n 2 --timeout 0.2", script).output();
        assert_eq!(output.status.code(), Some(124));
        let message = "samite run: the job ran longer than the 0.2 s that --timeout allows; ending it\n";
        assert_eq!(text(&output.stderr), message);
    }
}

#[test]
fn signals_reach_every_rank() {
    for (signal, name) in
        [(Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::HUP, "HUP"), (Signal::INT, "INT")]
    {
        let script = format!("trap 'echo got {name}; exit 0' {name}; echo ready; sleep 1000 & wait");
        let mut job = Job::shell("-n 3", &script).start();
        assert_eq!(job.lines(3), ["ready"; 3]);
        job.signal(signal);
        assert_eq!(job.lines(3), [format!("got {name}"), format!("got {name}"), format!("got {name}")]);
        assert_eq!(job.finish().0, Some(0));
    }
}

#[test]
fn who_ends_by_a_signal_to_the_job_is_not_started_again() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut job = Job::shell("-n 2 --on-failure restart=1000", "echo ready; exec sleep 1000").start();
        assert_eq!(job.lines(2), ["ready"; 2]);
        job.signal(signal);
        let (ended, stdout, stderr) = job.finish();
        assert_eq!((ended, &stdout[..]), (Some(code), ""), "{stderr}");
        assert!(!stderr.contains("started again"), "{stderr}");
    }
}

#[test]
fn who_does_not_end_in_time_is_killed_and_not_started_again() {
    let script = "trap '' TERM; while :; do sleep 1000; done";
    let output = Job::shell("-n 2 --on-failure restart=1000 --timeout 1", script).output();
    assert_eq!(output.status.code(), Some(124));
    assert!(!text(&output.stderr).contains("started again"), "{}", text(&output.stderr));
}

#[test]
fn a_second_interrupt_kills() {
    let mut job =
        Job::shell("-n 2", "trap 'echo caught' INT; echo ready; while :; do sleep 1000 & wait; done").start();
    assert_eq!(job.lines(2), ["ready"; 2]);
    job.signal(Signal::INT);
    assert_eq!(job.lines(2), ["caught"; 2]);
    job.signal(Signal::INT);
    let (code, _, stderr) = job.finish();
    assert_eq!((code, &stderr[..]), (Some(130), "samite run: interrupted twice; killing the job\n"));
}

#[test]
fn stopping_and_continuing_reach_the_ranks() {
    let mut job =
        Job::shell("-n 1", "trap 'echo on' CONT; echo ready; while :; do sleep 1000 & wait; done").start();
    job.lines(1);
    job.signal(Signal::TSTP);
    // The coordinator stops itself once it has forwarded the signal; SIGCONT wakes it and is forwarded too.
    let options = rustix::process::WaitIdOptions::STOPPED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(job.coordinator_pid()), options).unwrap();
    job.signal(Signal::CONT);
    assert_eq!(job.lines(1), ["on"]);
    job.signal(Signal::TERM);
    assert_eq!(job.finish().0, Some(143));
}

#[test]
fn nothing_is_mixed_when_all_ranks_flood() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo $SAMITE_RANK $i 0123456789abcdefghijklmnopqrstuvwxyz; i=$((i+1)); done; \
                  printf 'end of %s' $SAMITE_RANK >&2";
    let output = Job::shell("-n 4 --prefix", script).output();
    let mut next = [0; 4];
    for line in text(&output.stdout).lines() {
        let rank: usize = line[1..2].parse().unwrap();
        assert_eq!(line, format!("[{rank}] {rank} {} 0123456789abcdefghijklmnopqrstuvwxyz", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [3000; 4]);
    let mut ends: Vec<_> = text(&output.stderr).lines().collect();
    ends.sort();
    assert_eq!(ends, ["[0] end of 0", "[1] end of 1", "[2] end of 2", "[3] end of 3"]);
}

#[test]
fn an_unread_flood_delays_neither_stderr_nor_signals_nor_failures() {
    // No process reads stdout, so rank 0 blocks in a write.
    let script =
        "if [ $SAMITE_RANK = 0 ]; then yes; else trap 'exit 9' USR1; echo ready >&2; sleep 1000 & wait; fi";
    let mut job = Job::shell("-n 2 --on-failure continue", script).start();
    let mut line = String::new();
    job.stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    job.signal(Signal::USR1);
    let mut message = String::new();
    job.stderr.read_line(&mut message).unwrap();
    assert!(message.contains("exited with code 9") || message.contains("SIGUSR1"), "{message}");
    job.signal(Signal::INT);
    job.signal(Signal::INT);
    job.finish();
}

#[test]
fn standard_input_goes_to_rank_0() {
    let mut job = Job::shell("-n 3 --prefix", "cat").start();
    job.coordinator.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    assert_eq!(job.finish(), (Some(0), "[0] one\n[0] two".to_owned(), String::new()));
}

#[test]
fn who_writes_to_a_closed_output_gets_sigpipe() {
    let mut job = Job::shell("-n 2", "yes").command;
    let mut coordinator = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(coordinator.stdout.take());
    assert_eq!(coordinator.wait().unwrap().code(), Some(141));
}

#[test]
fn options_end_where_the_program_begins() {
    for arguments in ["-n1 echo -n2 --prefix -- x", "--ranks=1 -- echo -n2 --prefix -- x"] {
        let output = Job::new(arguments).output();
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("-n2 --prefix -- x\n", ""));
    }
}

#[test]
fn misuse_is_reported_in_one_sentence() {
    let mut messages = String::new();
    for arguments in [
        "-n 0 true",
        "-n 4097 true",
        "-n many true",
        "-np many true",
        "--nonsense true",
        "true",
        "-n 2",
        "-n 2 no-such-program-anywhere",
        "-n 2 ./no-such-program",
        "-n 2 /etc/passwd",
        "-n 2 /",
        "-n 2 --timeout 0 true",
        "-n 2 --timeout never true",
        "-n 2 --env NAME true",
        "-n 2 --env =value true",
        "-n 2 --on-failure panic true",
    ] {
        let output = Job::new(arguments).output();
        let code = output.status.code().unwrap();
        messages += &format!("$ samite run {arguments}\n{}[{code}]\n", text(&output.stderr));
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn too_many_ranks_for_the_descriptors_are_refused_before_any_starts() {
    let samite = env!("CARGO_BIN_EXE_samite");
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -n 64; {samite} run -n 20 -- echo")])
        .output()
        .unwrap();
    let message =
        "samite: 20 ranks need 92 open descriptors, but the limit is 64: raise it with `ulimit -n 92`\n";
    assert_eq!((output.status.code(), text(&output.stdout), text(&output.stderr)), (Some(1), "", message));
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let mut job = Job::shell("-n 1", "echo result");
    job.command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    let output = job.command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "samite agent: the ranks' output to stdout cannot be written and is lost: No space left on device (os error 28)\n"
    );
}
