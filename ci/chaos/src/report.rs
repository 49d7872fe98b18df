//! Messages from ranks to the driver, and the driver's results: JSON, one object in a line.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A message from a rank to the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromRank {
    /// The process runs. Sent first, before it joins the job.
    Started { rank: u32, pid: i32 },
    /// The rank has joined the job and begins its traffic.
    Joined,
    /// The rank has finished.
    Done(Report),
    /// The rank waits for an event that never comes.
    Hangs { rank: u32, doing: String },
}

/// A survivor's actions and observations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) rank: u32,
    /// Value of [`now_ns`] when the rank had joined.
    pub(crate) joined_ns: u64,
    /// The failures of ranks, in the order in which this rank has learned of them.
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) bytes: u64,
    /// Number of operations that ended with an error.
    pub(crate) errors: u64,
    /// The numbers of open descriptors before the rank joined and after it left.
    pub(crate) descriptors: (usize, usize),
    /// Number of derived communicators that were made.
    pub(crate) comms: u64,
    pub(crate) creations: Vec<Created>,
    /// Violated expectations.
    pub(crate) troubles: Vec<String>,
}

impl Report {
    /// Adds the results in derived communicators.
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.comms += other.comms;
        self.creations.extend(other.creations);
        self.troubles.extend(other.troubles);
    }
}

/// The end of the creation of a communicator at one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Created {
    /// The number of the creation, which all ranks that take part know.
    pub(crate) key: u64,
    /// The ranks that take part.
    pub(crate) ranks: Vec<u32>,
    pub(crate) end: CreationEnd,
}

/// The result of a creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CreationEnd {
    Made,
    /// This rank gave the creation up, by a cancel or because its time was over.
    GaveUp,
    Exhausted,
    /// A rank has failed or, if `has_left`, has given the creation up.
    Failed {
        rank: u32,
        has_left: bool,
        cause: String,
    },
}

/// A peer's failure, as this rank has learned of it from the receive that only the end of the peer can end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) rank: u32,
    /// Value of [`now_ns`] when this rank found that the receive had ended.
    pub(crate) at_ns: u64,
    pub(crate) cause: String,
}

/// The content of the file by which the driver informs the ranks that no more faults follow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// The killed ranks.
    pub(crate) killed: Vec<u32>,
}

/// The name of the file that contains [`End`].
pub(crate) const END: &str = "end";

/// Returns nanoseconds of a clock that all processes of the machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
