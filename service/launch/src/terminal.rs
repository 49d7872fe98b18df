//! Standard input that is a terminal, for rank 0.
//!
//! Ranks are in process groups of their own, which may not read the launcher's terminal. So the launcher reads it and
//! writes to a pipe, and only as long as it is in the foreground: else what is typed is for another program.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use samite_os::signal::SignalFd;

use super::wait::{Interest, wait};

/// Copies standard input to `input` until its end.
pub(super) fn copy_input(input: &mut impl Write) -> io::Result<()> {
    match io::stdin().is_terminal() {
        true => copy_terminal(input),
        false => io::copy(&mut io::stdin(), input).map(drop),
    }
}

fn copy_terminal(input: &mut impl Write) -> io::Result<()> {
    let stdin = io::stdin();
    // If the launcher comes to the background after the question, reading fails; without this the process would be stopped.
    let _blocked = SignalFd::block(&[Signal::TTIN])?;
    let mut typed = [0; 4096];
    loop {
        // A read that waits would take the next line also from the background.
        wait(vec![Interest::read((), &stdin)], None)?;
        // A terminal that is not that of our session is read without job control.
        if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) {
            pause();
            continue;
        }
        // Not through a buffer, of which the wait above would not know.
        match rustix::io::read(&stdin, &mut typed) {
            Ok(0) => return Ok(()),
            Ok(count) => input.write_all(&typed[..count])?,
            Err(Errno::INTR) => {}
            // EIO: in the background by now; or the terminal is gone, which has no foreground either.
            Err(_) if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground != getpgrp()) => pause(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// There is nothing that tells when a process comes to the foreground.
#[expect(clippy::disallowed_methods, reason = "a thread that waits for nothing else")]
fn pause() {
    thread::sleep(LOOK_EVERY);
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
