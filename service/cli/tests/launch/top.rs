//! `samite top` on a terminal, whose state is restored however the program ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, Termios, Winsize, tcflow, tcgetattr, tcsetwinsize};

use crate::ranks::PATIENCE;
use crate::support::{Job, Processes, Running, Scratch};

#[test]
fn keys_sort_and_end_it() {
    for end in [&b"q"[..], b"\x1b", b"\x03"] {
        with_job("keys", |job, scratch| {
            let mut terminal = Terminal::start(scratch);
            terminal.await_text("sent/s");
            terminal.await_text("report");
            terminal.keys.write_all(b"l").unwrap();
            terminal.await_text("▼");
            terminal.keys.write_all(end).unwrap();
            assert_eq!(terminal.finish(), Some(0), "{end:?}");
            job.signal(Signal::TERM);
        });
    }
}

#[test]
fn it_is_drawn_again_when_the_size_changes() {
    with_job("size", |job, scratch| {
        let mut terminal = Terminal::start(scratch);
        terminal.await_text("reverse");
        terminal.resize(90, 20);
        terminal.await_text("report");
        terminal.keys.write_all(b"q").unwrap();
        assert_eq!(terminal.finish(), Some(0));
        job.signal(Signal::TERM);
    });
}

#[test]
fn a_signal_or_the_end_of_the_job_ends_it() {
    with_job("signal", |job, scratch| {
        let mut terminal = Terminal::start(scratch);
        terminal.await_text("report");
        kill_process(Pid::from_child(&terminal.top), Signal::TERM).unwrap();
        assert_eq!(terminal.finish(), Some(128 + 15));

        let mut terminal = Terminal::start(scratch);
        terminal.await_text("report");
        job.signal(Signal::TERM);
        terminal.await_text(LEAVE);
        terminal.await_text("has ended");
        assert_eq!(terminal.top.wait().unwrap().code(), Some(0));
    });
}

/// The terminal's output is stopped, as with Ctrl-S, or over a connection that hangs.
#[test]
fn a_signal_ends_it_on_a_terminal_that_takes_nothing() {
    with_job("stopped", |job, scratch| {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            let mut terminal = Terminal::start(scratch);
            terminal.await_text("report");
            tcflow(&terminal.screen, Action::OOff).unwrap();
            terminal.resize(90, 20);
            let top = Pid::from_child(&terminal.top);
            kill_process(top, signal).unwrap();
            Processes::from(vec![pidfd_open(top, PidfdFlags::empty()).unwrap()]).wait();
            assert_eq!(terminal.top.wait().unwrap().code(), Some(128 + signal.as_raw()));
            terminal.check_modes();
        }
        job.signal(Signal::TERM);
    });
}

/// Runs a job of two ranks that do nothing until `look` ends it.
fn with_job(name: &str, look: impl FnOnce(&Running, &Scratch)) {
    let scratch = Scratch::new(name);
    let mut job = Job::shell("-n 2", "echo ready; exec sleep 1000");
    job.command.env("XDG_RUNTIME_DIR", &scratch.0);
    let mut job = job.start();
    job.lines(2);
    look(&job, &scratch);
    assert_eq!(job.finish().0, Some(128 + 15));
}

/// `samite top` on a terminal of its own.
struct Terminal {
    top: Child,
    /// The controlling side of the pseudoterminal: keys are written to it, and the screen is read from it.
    keys: File,
    /// The side of the pseudoterminal that `samite top` has as its terminal.
    screen: OwnedFd,
    before: Termios,
    /// Output that was read and not yet examined.
    shown: Vec<u8>,
}

impl Terminal {
    /// Starts `samite top` for the job whose socket is in `scratch`.
    fn start(scratch: &Scratch) -> Terminal {
        let mut sockets = fs::read_dir(scratch.0.join("samite")).unwrap();
        let job = sockets.next().unwrap().unwrap().path().file_stem().unwrap().to_owned();
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let screen = openat(CWD, name, flags, Mode::empty()).unwrap();
        resize(&screen, 100, 20);
        let before = tcgetattr(&screen).unwrap();
        // The kernel signals a change of size to the session that controls the terminal.
        let mut command = Command::new("env");
        command.args(["--default-signal", "setsid", "--ctty", env!("CARGO_BIN_EXE_samite"), "top"]);
        command.args(["--interval", "0.05"]).arg(job);
        let top = command
            .env("XDG_RUNTIME_DIR", &scratch.0)
            .stdin(screen.try_clone().unwrap())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen.try_clone().unwrap())
            .spawn()
            .unwrap();
        Terminal { top, keys: keys.into(), screen, before, shown: Vec::new() }
    }

    fn resize(&self, columns: u16, rows: u16) {
        resize(&self.screen, columns, rows);
    }

    /// Waits until `text` is written. Drops it, and all output before it.
    #[expect(clippy::disallowed_methods, reason = "it may write for ever, and never this")]
    fn await_text(&mut self, text: &str) {
        let text = text.as_bytes();
        let began = Instant::now();
        loop {
            if let Some(at) = self.shown.windows(text.len()).position(|window| window == text) {
                self.shown.drain(..at + text.len());
                return;
            }
            let time = PATIENCE.saturating_sub(began.elapsed()).try_into().unwrap();
            let ready = poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], Some(&time)).unwrap();
            let shown = || String::from_utf8_lossy(&self.shown);
            assert!(
                ready == 1 && began.elapsed() < PATIENCE,
                "no `{}` in {:?}",
                text.escape_ascii(),
                shown()
            );
            let mut bytes = [0; 4096];
            let count = self.keys.read(&mut bytes).unwrap();
            self.shown.extend_from_slice(&bytes[..count]);
        }
    }

    /// Waits for the end of `samite top` and checks the terminal's state. Returns the exit code.
    fn finish(mut self) -> Option<i32> {
        self.await_text(SHOW_CURSOR);
        self.await_text(LEAVE);
        let code = self.top.wait().unwrap().code();
        self.check_modes();
        code
    }

    /// Checks that the terminal's modes are as before.
    fn check_modes(&self) {
        let modes = |is: &Termios| (is.input_modes, is.output_modes, is.control_modes, is.local_modes);
        assert_eq!(modes(&tcgetattr(&self.screen).unwrap()), modes(&self.before));
    }
}

fn resize(screen: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(screen, size).unwrap();
}

/// The sequence that shows the cursor (DECTCEM in xterm's ctlseqs).
const SHOW_CURSOR: &str = "\x1b[?25h";
/// The sequence that leaves the alternate screen.
const LEAVE: &str = "\x1b[?1049l";
