//! Standard input for rank 0 if it is a terminal.
//!
//! Ranks are in their own process groups, which may not read the launcher's terminal. So the launcher reads it and
//! writes to a pipe, but only while it is in the foreground: otherwise the typed text is for another program.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use samite_os::signal::SignalFd;

use super::wait::{Interest, wait};

/// Copies standard input to `input` until standard input ends.
pub(super) fn copy_input(input: &mut impl Write) -> io::Result<()> {
    match io::stdin().is_terminal() {
        true => copy_terminal(input),
        false => io::copy(&mut io::stdin(), input).map(drop),
    }
}

fn copy_terminal(input: &mut impl Write) -> io::Result<()> {
    let stdin = io::stdin();
    // Block SIGTTIN. If the launcher goes to the background after the check below, the read then fails, and the
    // launcher is not stopped.
    let _blocked = SignalFd::block(&[Signal::TTIN])?;
    let mut typed = [0; 4096];
    loop {
        // Wait first: a read that blocks would take the next line even if the launcher is in the background by then.
        wait(vec![Interest::read((), &stdin)], None)?;
        // If the terminal belongs to another session, tcgetpgrp(3) fails, and the terminal is read in any case.
        if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) {
            pause();
            continue;
        }
        // Unbuffered, since the wait above would not see buffered bytes.
        match rustix::io::read(&stdin, &mut typed) {
            Ok(0) => return Ok(()),
            Ok(count) => input.write_all(&typed[..count])?,
            Err(Errno::INTR) => {}
            // EIO: the launcher has gone to the background, so wait. If the terminal is gone, it has no foreground
            // process group, and the error is returned below.
            Err(_) if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) => pause(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits before the next look, since nothing signals that a process comes to the foreground.
#[expect(clippy::disallowed_methods, reason = "a thread that waits for nothing else")]
fn pause() {
    thread::sleep(LOOK_EVERY);
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
