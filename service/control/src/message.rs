//! The messages between launcher, agents and ranks.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::num::ParseIntError;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use samite_fabric::link::{WorldRank, first_incarnation};
use serde::{Deserialize, Serialize};

use super::{Ending, Keys};
use crate::bind::Bind;
use crate::figures::{Figures, PeerStats};

/// A message from the coordinator to a host's agent. The agent ends its ranks when this connection fails.
///
/// The comments are addressed to the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the comment of each variant describes its fields")]
pub enum ToAgent {
    /// The first message: start the ranks of this plan.
    Start(Plan),
    /// Send this signal to every rank.
    Signal(i32),
    /// End every rank: SIGTERM now, SIGKILL after a grace period.
    End,
    /// Kill every rank now.
    Kill,
    /// The agent of `host` needs the address of `rank`, which is one of your ranks. Repeat `host` in the answer,
    /// [`FromAgent::Answer`].
    Question { host: u32, rank: u32 },
    /// The address of a rank of another agent: the answer to [`FromAgent::Question`].
    Address(Whereabouts),
    /// Ranks of other agents have ended.
    Ended(Vec<RankExit>),
    /// A rank of another agent was restarted, at this address.
    Returned(Whereabouts),
    /// A rank of another agent was stopped, or continued.
    Stopped(Stop),
    /// A rank of another agent has given up a rank of this agent.
    GaveUp(GivenUp),
    /// Report the activity of your ranks.
    Ask,
}

impl ToAgent {
    /// Returns true if the message comes from ranks of hosts other than the receiver's, or is about such ranks.
    pub fn concerns_other_hosts(&self) -> bool {
        match self {
            ToAgent::Question { .. }
            | ToAgent::Address(_)
            | ToAgent::Ended(_)
            | ToAgent::Returned(_)
            | ToAgent::Stopped(_)
            | ToAgent::GaveUp(_) => true,
            ToAgent::Start(_) | ToAgent::Signal(_) | ToAgent::End | ToAgent::Kill | ToAgent::Ask => false,
        }
    }
}

/// A message from a host's agent to the coordinator.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the comment of each variant describes its fields")]
pub enum FromAgent {
    /// This rank could not be started; no rank of this agent is left running.
    NotStarted { rank: u32, errno: i32 },
    /// The ranks of this agent cannot be bound as requested; none was started.
    NotBound { why: String },
    /// This rank's process has ended. `again` is the time after which the rank is restarted, or `None` if it is not.
    Exited { rank: u32, ending: Ending, again: Option<Duration> },
    /// This rank violated the control protocol; its connection was closed.
    Refused { rank: u32, reason: String },
    /// A rank of this agent needs the address of `rank`, a rank of another agent. The agent asks once for each rank.
    Question { rank: u32 },
    /// The answer to [`ToAgent::Question`].
    Answer { host: u32, whereabouts: Whereabouts },
    /// Ranks of this agent have ended for the other ranks. Their processes may still run.
    Ended(Vec<RankExit>),
    /// A rank of this agent was restarted, at this address.
    Returned(Whereabouts),
    /// A rank of this agent was stopped, or continued.
    Stopped(Stop),
    /// A rank of this agent has given up another rank, of this agent or of another agent.
    GaveUp(GivenUp),
    /// A rank of this agent reports its activity so far.
    Figures { rank: u32, figures: Box<Figures> },
    /// A rank of this agent reports statistics of its peers. Several of these messages in a row are parts of one list.
    Peers { rank: u32, peers: Vec<PeerStats> },
    /// The output of ranks of this agent cannot be written any more. The agent has printed a message about it.
    OutputLost,
    /// The last message: no rank is left, and all output is written.
    Done,
}

/// The message of `samite run` to the supervisor that the remote shell starts on a host. It says how to connect back,
/// and is one line of JSON. The keys travel only in it, because other users could see them on a command line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Invitation {
    /// The launcher's version of the protocol.
    pub protocol: u32,
    /// The host's index among the hosts of the job.
    pub host: u32,
    /// The launcher's name for the host.
    pub name: String,
    /// The secrets of this host.
    pub keys: Keys,
    /// The addresses of the launcher, the likeliest first.
    pub addresses: Vec<IpAddr>,
    /// True if the user has given the launcher's address, by `--address`.
    pub is_given: bool,
    /// The port of the launcher's listener.
    pub port: u16,
    /// The directory in which the ranks start.
    pub directory: PathBuf,
    /// The time within which the loss of the connection must be detected.
    pub detection: Duration,
}

/// The ranks that an agent starts, with their environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The job's name.
    pub job: JobId,
    /// The job's secret.
    pub secret: Secret,
    /// The number of ranks in the job.
    pub size: u32,
    /// The ranks that this agent starts.
    pub ranks: Range<u32>,
    /// The agent's host, by its index among the hosts of the job.
    pub host: u32,
    /// The number of hosts.
    pub hosts: u32,
    /// The time within which the loss of the connection between coordinator and agent must be detected.
    pub detection: Duration,
    /// The largest number of restarts of a rank that fails.
    pub restarts: u32,
    /// The part of the host to which each rank is bound.
    pub bind: Bind,
    /// The transport that the user selected.
    pub transport: Option<String>,
    /// Variables to set for the ranks.
    pub env: Vec<(String, String)>,
    /// True if each line of output begins with the rank that wrote it.
    pub prefix: bool,
    /// True if the ranks report their activity at their end.
    pub stats: bool,
    /// The program.
    pub program: OsString,
    /// The program's arguments.
    pub args: Vec<OsString>,
}

/// The address of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The rank.
    pub rank: u32,
    /// The incarnation of the rank.
    pub incarnation: u32,
    /// The address that this incarnation published.
    pub address: Vec<u8>,
}

/// The exit of a rank: the end of one of its incarnations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// The rank.
    pub rank: u32,
    /// The incarnation that ended.
    pub incarnation: u32,
    /// The way in which the incarnation ended.
    pub ending: Ending,
    /// True if the rank is restarted. If the restart is cancelled, another report follows, with false.
    pub returns: bool,
}

/// A process of a rank was stopped, for example by SIGSTOP, or continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The rank.
    pub rank: u32,
    /// The rank's incarnation.
    pub incarnation: u32,
    /// True if the process is stopped now.
    pub is_stopped: bool,
}

/// The rank `by`, which is alive, has given up `rank` by its own decision, for example because `rank` broke the wire
/// protocol. `by` has cut off the path between the two ranks, so it cannot inform `rank` itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The rank that has given up `rank`.
    pub by: u32,
    /// The incarnation of `by`.
    pub by_incarnation: u32,
    /// The rank that is given up.
    pub rank: u32,
    /// The incarnation of `rank` that is given up.
    pub incarnation: u32,
    /// The reason, at most [`WHY_BYTES_MAX`] bytes.
    pub why: String,
}

/// The longest reason in a [`GivenUp`], in bytes.
pub const WHY_BYTES_MAX: usize = 1024;

/// A message from a rank to its agent, or to its rendezvous. In the comments, "I" is the rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the comment of each variant describes its fields")]
pub enum FromRank {
    /// My port has this address.
    Publish { address: Vec<u8> },
    /// Send me the address of this rank, as soon as it is known.
    Request { rank: u32 },
    /// I have given up this incarnation of another rank, which may be alive: inform that rank.
    GaveUp { rank: u32, incarnation: u32, why: String },
    /// My activity so far: an answer to [`ToRank::Asked`].
    Figures(Box<Figures>),
    /// Statistics of my peers, which I send when I leave, after [`FromRank::Figures`]. If there are many peers, several
    /// of these messages follow each other, each with the statistics of some peers.
    Peers(Vec<PeerStats>),
    /// I have finished and need no more notices; later messages to me will not be received. My process may fail from
    /// now on without being reported.
    Leave,
    /// I have finished my part. The end of my process will show if I have left in good order.
    Closed,
    /// I have failed because of a panic. My process may take long to end, or may even go on.
    Panicked,
}

/// A message from an agent, or from a rendezvous, to a rank. The comments are addressed to the rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the comment of each variant describes its fields")]
pub enum ToRank {
    /// The answer to [`FromRank::Request`], or the address of a restarted rank.
    Address(Whereabouts),
    /// These ranks have ended. Sent to every rank that runs. Sent again if a rank fails after it has left, or if the
    /// restart of a failed rank is cancelled.
    Ended(Vec<RankExit>),
    /// A rank was stopped, or continued. So the error of a wait that times out can say that the rank was stopped.
    Stopped(Stop),
    /// Another rank has given you up.
    GaveUp(GivenUp),
    /// Report your activity. If `at_end` is true, do so when you leave, with statistics of your peers; otherwise now.
    Asked { at_end: bool },
    /// The other ranks treat you as failed, and your process will be killed.
    Condemned { why: String },
}

/// The name of a job, random: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for JobId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<JobId, ParseIntError> {
        u64::from_str_radix(text, 16).map(JobId)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for JobId {
    type Error = ParseIntError;

    fn try_from(text: String) -> Result<JobId, ParseIntError> {
        text.parse()
    }
}

/// The secret that the ranks of a job share. It is never in the environment, where `/proc` would show it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// Returns the number of a rank's first incarnation.
    pub fn first_incarnation(&self, rank: u32) -> u32 {
        first_incarnation(&self.0, WorldRank(rank))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_incarnations_differ_between_ranks_and_between_jobs() {
        let [this, other] = [1, 2].map(|byte| Secret([byte; 16]));
        assert_eq!(this.first_incarnation(3), this.first_incarnation(3));
        assert_ne!(this.first_incarnation(3), this.first_incarnation(4));
        assert_ne!(this.first_incarnation(3), other.first_incarnation(3));
        let mut last = this;
        last.0[15] ^= 1;
        assert_ne!(this.first_incarnation(3), last.first_incarnation(3));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret([7; 16])), "Secret(…)");
    }
}
