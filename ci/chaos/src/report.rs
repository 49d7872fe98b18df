//! Messages from ranks to the driver, and the driver's results: JSON, one object in a line.

use rustix::time::{ClockId, clock_gettime};
use samite::Error;
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
    /// The number of open descriptors before the rank joined, and the number after it left.
    pub(crate) descriptors: (usize, usize),
    /// Number of derived communicators that were made.
    pub(crate) comms: u64,
    pub(crate) creations: Vec<Created>,
    /// For each lock that was awaited when this rank learned of a failure, and was granted: the time from then to the
    /// grant.
    pub(crate) passed_ns: Vec<u64>,
    /// Violated expectations.
    pub(crate) troubles: Vec<String>,
}

/// The calls that a part of the traffic makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Sends in the standard mode, receives and claims, in the world.
    Standard,
    /// All calls: also sends in other modes, repeated operations and creations, in derived communicators.
    All,
}

impl Report {
    /// Counts an error with which one of `calls` has ended. The error is a violated expectation if it is not permitted.
    pub(crate) fn failed(&mut self, error: &Error, calls: Calls) {
        self.errors += 1;
        if !is_permitted(error, calls) {
            self.troubles.push(match calls {
                Calls::Standard => format!("an operation ended with: {error}"),
                Calls::All => format!("an operation in a derived communicator ended with: {error}"),
            });
        }
    }

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

/// A peer's failure, which this rank learned from its receive with the tag
/// [`NEVER_SENT`](crate::content::NEVER_SENT). No message has that tag, so only the end of the peer ends the receive.
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

/// Returns true if one of `calls` may end with an error while ranks are killed, stopped and restarted.
fn is_permitted(error: &Error, calls: Calls) -> bool {
    match error {
        // The rank at the other end was killed or restarted, or it has left. The driver compares the failures that the
        // ranks report with its kills.
        Error::PeerFailed { .. } => true,
        // A rank was killed, and this call was a receive or claim from any source.
        Error::FailurePending { .. } => true,
        // The other ranks send and receive at random, so no partner may come within the short time-out of many calls.
        // A partner may also be stopped for longer than the time-out.
        Error::TimedOut { .. } => true,
        // This rank has cancelled the operation.
        Error::Cancelled { .. } => true,
        // The other rank has cancelled or dropped its operation, or its time was over, after the two had matched; or
        // the receiver of a send has dropped the communicator.
        Error::Abandoned { .. } => true,
        // All other ranks were killed or have left, and this call was a receive or claim from any source.
        Error::Deserted => true,
        // The ranks do not agree on the order of their operations, so the message of a ready send may arrive before its
        // receive is posted. A job under the check `modes` reports that.
        Error::NotPosted { .. } => calls == Calls::All,
        // The message of a buffered send may not fit in the buffer beside the messages that are kept there; and some
        // jobs limit the number of communicators, so that a creation finds too many.
        Error::Exhausted { .. } => calls == Calls::All,
        _ => false,
    }
}

/// Returns nanoseconds of a clock that all processes of the machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
