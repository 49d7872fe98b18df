//! Errors of the operating system, by cause.

use std::io;

/// An error of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsError {
    /// The other process has ended, or has closed the file.
    #[error("{why}")]
    Ended {
        /// The cause.
        why: String,
    },
    /// This process may not open a file of another process, or it is another file than expected.
    #[error("{why}")]
    Unreachable {
        /// The cause.
        why: String,
    },
    /// A limit of the process or of the machine was reached.
    #[error("out of {what}: {hint}")]
    Exhausted {
        /// The resource.
        what: &'static str,
        /// The way to get more.
        hint: String,
    },
    /// A system call failed.
    #[error("{call} failed: {text} ({code}); {hint}")]
    Failed {
        /// The call.
        call: &'static str,
        /// The call's error number, positive.
        code: i32,
        /// The system's text for that number.
        text: String,
        /// The fix.
        hint: String,
    },
}

impl OsError {
    /// Returns the error of this thread's last system call.
    pub(crate) fn last(call: &'static str, hint: impl Into<String>) -> Self {
        Self::of(call, &io::Error::last_os_error(), hint)
    }

    /// Wraps a failure of the call `call`, with a hint for the user.
    pub(crate) fn of(call: &'static str, error: &io::Error, hint: impl Into<String>) -> Self {
        Self::Failed {
            call,
            code: error.raw_os_error().unwrap_or(0),
            text: error.to_string(),
            hint: hint.into(),
        }
    }
}
