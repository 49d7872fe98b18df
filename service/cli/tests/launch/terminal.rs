//! `samite run` on a terminal: rank 0 reads the typed bytes, if the job is in the foreground.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::Scratch;

/// A shell script that runs as the leader of a terminal's session.
struct Session {
    shell: Child,
    terminal: File,
    shown: String,
}

impl Session {
    fn start(script: &str) -> Session {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let side = openat(CWD, name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let side = || side.try_clone().unwrap();
        let mut command = Command::new("env");
        command.args(["--default-signal", "setsid", "--ctty", "bash", "-mc", script]);
        command.env("SAMITE", env!("CARGO_BIN_EXE_samite"));
        let shell = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        Session { shell, terminal: terminal.into(), shown: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn await_text(&mut self, text: &str) {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        while !self.shown.contains(text) {
            let ready = poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&patience)).unwrap();
            assert_eq!(ready, 1, "`{text}` is not shown: {}", self.shown);
            let mut bytes = [0; 4096];
            let count = self.terminal.read(&mut bytes).unwrap_or(0);
            assert_ne!(count, 0, "it ended before `{text}`: {}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // When the session's leader ends, the system sends SIGHUP to the foreground processes.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn rank_0_reads_what_is_typed() {
    let script = "$SAMITE run -n 2 -- sh -c 'read line; echo $SAMITE_RANK read $line; cat'; echo over $?";
    let mut session = Session::start(script);
    session.await_text("1 read");
    session.press("hello\n");
    session.await_text("0 read hello");
    session.press("again\n");
    // One copy is the terminal's echo, the other the rank's output.
    session.await_text("again\r\nagain");
    session.press("\x04");
    session.await_text("over 0");
}

#[test]
fn over_a_remote_shell_rank_0_reads_what_is_typed() {
    let scratch = Scratch::new("typed");
    let shell = crate::hosts::shell(&scratch);
    let hosts = format!("--hosts 127.0.0.1,127.0.0.2 --ssh {}", shell.display());
    let script = format!(
        "$SAMITE run -n 2 {hosts} -- sh -c 'read line; echo $SAMITE_RANK read $line; cat'; echo over $?"
    );
    let mut session = Session::start(&script);
    session.await_text("1 read");
    session.press("hello\n");
    session.await_text("0 read hello");
    session.press("\x04");
    session.await_text("over 0");
}

#[test]
fn a_job_in_the_background_takes_no_input_and_is_not_stopped() {
    let scratch = Scratch::new("background");
    let go = scratch.0.join("go");
    // With `tostop` a background process that writes to the terminal is stopped.
    let script = format!(
        "stty tostop; $SAMITE run -n 2 -- sh -c 'echo up $SAMITE_RANK; while [ ! -e {go} ]; do sleep 0.01; done; \
         echo down $SAMITE_RANK' & read line; echo the shell read $line; read line; echo and $line; \
         wait $!; echo over $?",
        go = go.display()
    );
    let mut session = Session::start(&script);
    session.await_text("up 0");
    session.await_text("up 1");
    session.press("mine\n");
    session.await_text("the shell read mine");
    session.press("too\n");
    session.await_text("and too");
    fs::write(go, "").unwrap();
    session.await_text("down 0");
    session.await_text("over 0");
}

#[test]
fn a_job_that_comes_to_the_foreground_reads() {
    let script = "$SAMITE run -n 1 -- sh -c 'echo up; read line; echo read $line' & read line; echo shell $line; fg; \
                  echo over $?";
    let mut session = Session::start(script);
    session.await_text("up");
    session.press("mine\n");
    session.await_text("shell mine");
    session.press("yours\n");
    session.await_text("read yours");
    session.await_text("over 0");
}
