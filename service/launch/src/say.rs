//! The launcher's own messages on standard error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use samite_control::printable::printable;

/// Prints a message, with control characters for terminals escaped, and with one write so that no other output
/// comes between its words. Returns after [`SAY_MAX`] at the latest.
///
/// A thread writes the message: standard error may be a pipe or a terminal whose reader has stopped, and a launcher
/// that waits for that reader would neither notice failures nor obey signals. A message that is not read in time is
/// printed when it is read. If [`UNFINISHED_MAX`] messages are not read, later messages are dropped.
///
/// The caller must have blocked the signals that it reads from a descriptor. The thread inherits the blocked signals,
/// and so takes none of them away from the descriptor.
pub(super) fn say(who: &str, text: &str) {
    static UNFINISHED: AtomicUsize = AtomicUsize::new(0);
    let message = format!("samite {who}: {}\n", printable(text));
    let before = UNFINISHED.fetch_add(1, Ordering::Relaxed);
    if before >= UNFINISHED_MAX {
        UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (done, finished) = channel();
    let writer = thread::Builder::new().name("say".to_owned()).spawn(move || {
        // If standard error is gone there is no reader to inform.
        let _ = io::stderr().write_all(message.as_bytes());
        UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        let _ = done.send(());
    });
    match writer {
        // Wait for the reader only if all earlier messages have been read. Otherwise this message will not be read soon
        // either.
        Ok(_) if before == 0 => {
            let _ = finished.recv_timeout(SAY_MAX);
        }
        Ok(_) => {}
        // The system did not start a thread. The message is lost, and is not counted as unread.
        Err(_) => {
            UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Prints a message, and waits until standard error has accepted all of it.
pub(super) fn say_to_the_end(who: &str, text: &str) {
    let _ = io::stderr().write_all(format!("samite {who}: {}\n", printable(text)).as_bytes());
}

/// The time for which the launcher waits for the reader of its standard error.
const SAY_MAX: Duration = Duration::from_secs(1);

/// Largest number of messages that may wait for the reader of standard error.
const UNFINISHED_MAX: usize = 16;
