//! What ranks tell the driver, and the driver its user: JSON, an object on a line.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// From a rank to the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromRank {
    /// It runs: the first thing it says, before it joins the job.
    Started { rank: u32, pid: i32 },
    /// It has joined the job, and begins its traffic.
    Joined,
    /// It is done.
    Done(Report),
    /// It waits for something that never comes.
    Hangs { rank: u32, doing: String },
}

/// What a survivor did and saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) rank: u32,
    /// [`now_ns`], when it had joined.
    pub(crate) joined_ns: u64,
    /// Ranks that failed, in the order this one was told.
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) bytes: u64,
    /// Operations that ended with an error.
    pub(crate) errors: u64,
    /// Open descriptors before it joined and after it left.
    pub(crate) descriptors: (usize, usize),
    /// What should not have been.
    pub(crate) troubles: Vec<String>,
}

/// That a peer failed, as the first operation knew that ended with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) rank: u32,
    /// [`now_ns`], when that operation had ended.
    pub(crate) at_ns: u64,
    pub(crate) cause: String,
}

/// From the driver to the ranks, in a file: no fault comes any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// Who was killed.
    pub(crate) killed: Vec<u32>,
}

/// The name of that file.
pub(crate) const END: &str = "end";

/// Nanoseconds of a clock that all processes of the machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
