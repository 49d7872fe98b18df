//! The ways in which a rank ends.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// The way in which a rank has ended, as far as its agent, the coordinator or the rendezvous can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The rank left without failing: it reported so, or its process exited with code 0, or it closed its world and its
    /// process continued. Also if its agent has closed the connection, because the rank broke the control protocol.
    Left,
    /// The rank panicked, as it reported itself.
    Panicked,
    /// The rank's process exited with a code other than 0.
    Exited {
        /// The exit code, 1 to 255.
        code: i32,
    },
    /// A signal killed the rank's process.
    Killed {
        /// The signal's number.
        signal: i32,
        /// True if the kernel reports a core dump.
        core: bool,
    },
    /// The rank's connection to the rendezvous closed before the rank reported that it leaves, as happens when its
    /// process ends; or the rendezvous closed the connection, because the rank broke the control protocol.
    Gone,
    /// The rank's host, or the agent there, is unreachable. The rank counts as failed. Its agent kills it if it still
    /// runs; a rendezvous cannot.
    Lost {
        /// The name that the user gave the host. A rendezvous knows no such name, and writes `of rank` and the rank.
        host: String,
        /// The error by which the loss was detected.
        how: String,
    },
}

impl Ending {
    /// Returns an exit code for the end. It is the code that a shell would report: the process's own exit code, or 128
    /// plus the signal's number. A panic has Rust's code 101, even if the process has not exited. A rank that is gone
    /// or lost has 255.
    pub fn exit_code(&self) -> u8 {
        match *self {
            Ending::Left => 0,
            Ending::Panicked => 101,
            Ending::Exited { code } => code as u8,
            Ending::Killed { signal, .. } => 128_u8.wrapping_add(signal as u8),
            // 255 is the code that ssh(1) returns for its own errors.
            Ending::Gone | Ending::Lost { .. } => 255,
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Ending::Killed { signal, core: status.core_dumped() },
            (None, Some(code)) if code != 0 => Ending::Exited { code },
            _ => Ending::Left,
        }
    }
}

/// Writes the rest of a sentence that begins with "rank 3".
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Left => write!(f, "left the job"),
            Ending::Panicked => write!(f, "panicked"),
            Ending::Exited { code } => write!(f, "exited with code {code}"),
            Ending::Killed { signal, core } => {
                let dumped = if *core { ", core dumped" } else { "" };
                match SIGNAL_NAMES.get(*signal as usize) {
                    Some(name) => write!(f, "was killed by SIG{name} (signal {signal}{dumped})"),
                    None => write!(f, "was killed by signal {signal}{dumped}"),
                }
            }
            Ending::Gone => write!(f, "ended without a word"),
            Ending::Lost { host, how } => write!(f, "was lost with its host {host} ({how})"),
        }
    }
}

/// The names of signals by number, as in signal(7) for Linux on x86, ARM, RISC-V and POWER.
const SIGNAL_NAMES: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_become_endings() {
        // The encodings of wait(2): exit code in the second byte, signal in the low seven bits, core flag
        // 0x80.
        for (raw, ending, exit_code, text) in [
            (0x0000, Ending::Left, 0, "left the job"),
            (0x0300, Ending::Exited { code: 3 }, 3, "exited with code 3"),
            (0xff00, Ending::Exited { code: 255 }, 255, "exited with code 255"),
            (9, Ending::Killed { signal: 9, core: false }, 137, "was killed by SIGKILL (signal 9)"),
            (
                0x8b,
                Ending::Killed { signal: 11, core: true },
                139,
                "was killed by SIGSEGV (signal 11, core dumped)",
            ),
            (34, Ending::Killed { signal: 34, core: false }, 162, "was killed by signal 34"),
        ] {
            let seen = Ending::from(ExitStatus::from_raw(raw));
            assert_eq!(seen, ending);
            assert_eq!(seen.exit_code(), exit_code);
            assert_eq!(seen.to_string(), text);
        }
    }
}
