//! Jobs whose ranks run the test that started them: as a rank, the same function plays the rank's part.

use std::time::Duration;

use crate::support::{Job, text};

/// A time limit that a test reaches only if it would wait forever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const TRANSPORTS: [&str; 3] = ["", "--transport samite-shm", "--transport tcp;ofi_rxm"];

#[expect(clippy::disallowed_methods, reason = "whether this is a rank, the environment tells")]
pub(crate) fn is_rank() -> bool {
    std::env::var_os("SAMITE_RANK").is_some()
}

/// Returns a job whose ranks run the test called `test`.
pub(crate) fn job_of_test(test: &str, arguments: &str) -> Job {
    let mut job = Job::new(arguments);
    job.command.arg("--").arg(std::env::current_exe().unwrap());
    job.command.args(["--exact", test, "--nocapture"]);
    job
}

/// Returns the output of a job that must succeed.
pub(crate) fn output_of(job: Job) -> String {
    let output = job.output();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).to_owned()
}
