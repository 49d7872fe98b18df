//! A rank's report to its launcher: sums over its peers, and its oldest pending operation.

use std::fmt;

use samite_p2p::TagPattern;
use serde::{Deserialize, Serialize};

use crate::printable::one_line;

/// A rank's activity up to the report.
///
/// Serde writes it as an object whose keys are the names of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Time since the rank's start, in nanoseconds.
    pub age_ns: u64,
    /// Messages sent.
    pub sent: u64,
    /// Bytes of the sent messages.
    pub bytes_sent: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes of the received messages.
    pub bytes_received: u64,
    /// Operations on windows.
    pub operations: u64,
    /// Messages that arrived before a receive that matches them.
    pub unexpected: u64,
    /// Messages that wait now for a receive that matches them.
    pub unexpected_messages: usize,
    /// The largest number of messages that waited at one time for a receive that matches them.
    pub unexpected_max: u64,
    /// Requests that are not finished, or whose result the caller has not collected yet.
    pub requests: usize,
    /// Packets and messages that wait for room or credit now.
    pub queued: usize,
    /// Time for which calls have waited without progress, in nanoseconds.
    pub waited_ns: u64,
    /// The oldest operation that has not ended.
    pub awaits: Option<Awaits>,
}

/// An operation that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaits {
    /// True for an operation or an epoch of a window. It has no tag and no length.
    #[serde(default)]
    pub in_window: bool,
    /// True for a send, false for a receive.
    pub is_send: bool,
    /// The peer; `None` for a receive from any source.
    pub peer: Option<u32>,
    /// The requested tag.
    pub tag: u64,
    /// The significant bits of the tag: 2⁶⁴-1 for an exact tag, 0 for any tag.
    #[serde(default = "all_bits")]
    pub mask: u64,
    /// The length of the buffer, in bytes.
    pub bytes: usize,
    /// Time since the operation's start, in nanoseconds.
    pub age_ns: u64,
    /// The awaited event: `address`, `room`, `match`, `message`, `bytes`, `fin` or `marks`. They are the variants of
    /// `samite::Awaited`, in lower case. For a window `earlier epoch`, `window`, `lock`, `exposure`, `completion`, `data`
    /// or `barrier`, the variants of `samite::WindowEvent`.
    pub awaited: String,
    /// For a receive whose message has not arrived: the number of unexpected messages from the peer with other tags.
    #[serde(default)]
    pub other_tags: usize,
    /// The tag of the first unexpected message that `other_tags` counts.
    #[serde(default)]
    pub other_tag: Option<u64>,
}

/// Returns the mask of an exact tag, which is also the default for reports without a mask.
const fn all_bits() -> u64 {
    u64::MAX
}

/// Counts of the messages exchanged with one rank, in all its incarnations. A message is counted with its first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStats {
    /// The other rank.
    pub rank: u32,
    /// Messages sent in one packet.
    pub eager_sent: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sent: u64,
    /// Bytes of all messages sent.
    pub bytes_sent: u64,
    /// Messages received in one packet.
    pub eager_received: u64,
    /// Messages received by rendezvous.
    pub rendezvous_received: u64,
    /// Bytes of all messages received.
    pub bytes_received: u64,
    /// Messages that arrived before a receive that matches them.
    pub unexpected: u64,
}

impl PeerStats {
    /// Returns the number of messages sent, eager and by rendezvous.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.eager_sent + self.rendezvous_sent
    }

    /// Returns the number of messages received, eager and by rendezvous.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.eager_received + self.rendezvous_received
    }
}

/// Writes text like `recv from 3, tag 7, 800 bytes, 12.0 s: message`, or `window of 3, 12.0 s: lock`; with `{:#}` without
/// the time.
impl fmt::Display for Awaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.in_window, self.is_send) {
            (true, _) => "window of ",
            (false, true) => "send to ",
            (false, false) => "recv from ",
        })?;
        match self.peer {
            Some(rank) => write!(f, "{rank}")?,
            None => f.write_str("any")?,
        }
        if !self.in_window {
            write!(f, ", {}, {} bytes", TagPattern { tag: self.tag, mask: self.mask }, self.bytes)?;
        }
        if !f.alternate() {
            write!(f, ", {:.1} s", self.age_ns as f64 / 1e9)?;
        }
        write!(f, ": {}", one_line(&self.awaited))?;
        match self.other_tag {
            Some(tag) => write!(f, " ({} under other tags, first {tag})", self.other_tags),
            None => Ok(()),
        }
    }
}
