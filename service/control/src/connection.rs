//! A rank's control connection: to the agent of its host, or to a rendezvous.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use crate::figures::{Figures, PeerStats};
use crate::{
    Channel, ChannelError, Ending, FromRank, GivenUp, Incoming, RankExit, Stop, ToRank, WHY_BYTES_MAX,
    Whereabouts,
};

/// The longest address that can be published, in bytes.
const ADDRESS_BYTES_MAX: usize = 4096;

/// The largest number of peers in one message. The statistics of a peer take at most 300 bytes, and a line may have
/// 64 KiB.
const PEERS_MAX: usize = 200;

/// A rank's control connection: to the agent of its host, or to a rendezvous. No call blocks.
///
/// If the value is dropped, the connection ends without a message. To an agent this means the same as
/// [`close`](Self::close). A rendezvous reports that the rank has failed ([`Ending::Gone`]).
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// The exits that have arrived, and that `poll` has not returned yet. One message may carry several exits, and
    /// `poll` returns one at a time.
    ended: VecDeque<RankExit>,
    is_closed: bool,
}

/// A notice from the launcher, or from a rendezvous, to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The address of another rank: the answer to [`Connection::request_address`], or a report that the rank was
    /// restarted.
    Address {
        /// The other rank.
        rank: u32,
        /// The address that the other rank has published.
        address: Vec<u8>,
        /// The incarnation of the other rank that has published the address.
        incarnation: u32,
    },
    /// A rank has ended. Every other rank that runs gets this notice. Messages that the rank sent before its end may
    /// still be under way. A second notice about the same incarnation may follow, if the rank fails after it has left,
    /// or if its restart is cancelled.
    Died {
        /// The rank that ended.
        rank: u32,
        /// The incarnation of the rank that ended.
        incarnation: u32,
        /// The way in which the rank ended.
        ending: Ending,
        /// True if the launcher restarts the rank.
        returns: bool,
    },
    /// The process of a rank was stopped, for example by SIGSTOP, or continued.
    Stopped {
        /// The rank.
        rank: u32,
        /// The rank's incarnation.
        incarnation: u32,
        /// True if the process is stopped now.
        is_stopped: bool,
    },
    /// Another rank has given up this rank by its own decision: see [`Connection::give_up`].
    GaveUp {
        /// The rank that has given up this rank.
        rank: u32,
        /// The incarnation of `rank`.
        incarnation: u32,
        /// The incarnation of this rank that was given up.
        verdict_on: u32,
        /// The reason for the verdict.
        why: String,
    },
    /// The launcher asks for this rank's activity: see [`Connection::tell`].
    Asked {
        /// True if the answer is due when this rank leaves, with statistics of each peer. Otherwise the answer is due
        /// now, without them.
        at_end: bool,
    },
    /// The other ranks have given up this rank: they treat it as failed, or soon will, and its process is about to be
    /// killed. This process must write no more results on which other ranks rely.
    Condemned {
        /// The reason, as a sentence.
        why: String,
    },
    /// The agent or the rendezvous has closed the connection, so no further notice will come. Returned once. If it was
    /// an agent, this process is about to be killed.
    LauncherGone,
}

/// The reason why communication with the launcher failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The connection is unusable.
    #[error("the connection to the launcher failed: {0}")]
    Channel(#[from] ChannelError),
    /// The address to publish is too long.
    #[error("an address of {0} bytes cannot be published: the limit is {ADDRESS_BYTES_MAX}")]
    AddressTooLong(usize),
}

impl Connection {
    /// Returns the connection over a channel to the agent, or to a rendezvous.
    pub fn new(channel: Channel) -> Connection {
        Connection { channel, ended: VecDeque::new(), is_closed: false }
    }

    /// Publishes this rank's address.
    pub fn publish(&mut self, address: &[u8]) -> Result<(), ControlError> {
        if address.len() > ADDRESS_BYTES_MAX {
            return Err(ControlError::AddressTooLong(address.len()));
        }
        Ok(self.channel.send(&FromRank::Publish { address: address.to_vec() })?)
    }

    /// Asks for the address of `rank`. [`Notice::Address`] follows when the address is known, or [`Notice::Died`] if it
    /// will never be known because the rank has ended.
    pub fn request_address(&mut self, rank: u32) -> Result<(), ControlError> {
        Ok(self.channel.send(&FromRank::Request { rank })?)
    }

    /// Reports that this rank has given up an incarnation of another rank. If the other rank is alive, it gets
    /// [`Notice::GaveUp`]. Truncates a reason longer than [`WHY_BYTES_MAX`].
    pub fn give_up(&mut self, rank: u32, incarnation: u32, mut why: String) -> Result<(), ControlError> {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        Ok(self.channel.send(&FromRank::GaveUp { rank, incarnation, why })?)
    }

    /// Returns the next notice, if there is one. Costs one system call if there is no notice.
    pub fn poll(&mut self) -> Result<Option<Notice>, ControlError> {
        if let Some(notice) = self.next_ended() {
            return Ok(Some(notice));
        }
        if self.is_closed {
            return Ok(None);
        }
        self.channel.flush();
        Ok(match self.channel.receive()? {
            Incoming::Message(ToRank::Address(Whereabouts { rank, incarnation, address })) => {
                Some(Notice::Address { rank, address, incarnation })
            }
            Incoming::Message(ToRank::Ended(exits)) => {
                self.ended.extend(exits);
                self.next_ended()
            }
            Incoming::Message(ToRank::Stopped(Stop { rank, incarnation, is_stopped })) => {
                Some(Notice::Stopped { rank, incarnation, is_stopped })
            }
            Incoming::Message(ToRank::GaveUp(GivenUp { by, by_incarnation, incarnation, why, .. })) => {
                Some(Notice::GaveUp { rank: by, incarnation: by_incarnation, verdict_on: incarnation, why })
            }
            Incoming::Message(ToRank::Asked { at_end }) => Some(Notice::Asked { at_end }),
            Incoming::Message(ToRank::Condemned { why }) => Some(Notice::Condemned { why }),
            Incoming::Nothing => None,
            Incoming::Closed => {
                self.is_closed = true;
                Some(Notice::LauncherGone)
            }
        })
    }

    fn next_ended(&mut self) -> Option<Notice> {
        let RankExit { rank, incarnation, ending, returns } = self.ended.pop_front()?;
        Some(Notice::Died { rank, incarnation, ending, returns })
    }

    /// Reports this rank's activity so far, and the statistics of `peers`.
    pub fn tell(&mut self, figures: Figures, peers: &[PeerStats]) -> Result<(), ControlError> {
        self.channel.send(&FromRank::Figures(Box::new(figures)))?;
        for part in peers.chunks(PEERS_MAX) {
            self.channel.send(&FromRank::Peers(part.to_vec()))?;
        }
        Ok(())
    }

    /// Reports that this rank has finished its part, and closes the connection. The agent reports to the other ranks
    /// that this rank has left when its process has exited with code 0, or still runs a second later; and that it has
    /// failed if the process fails, now or later. A rendezvous does not see the process, and reports at once that the
    /// rank has left.
    pub fn close(mut self) -> Result<(), ControlError> {
        Ok(self.channel.send(&FromRank::Closed)?)
    }

    /// Reports that this rank has finished, and closes the connection. The other ranks are informed at once that it has
    /// left. A later failure of its process is not reported.
    pub fn leave(mut self) -> Result<(), ControlError> {
        Ok(self.channel.send(&FromRank::Leave)?)
    }

    /// Reports that this rank has failed because of a panic, and closes the connection.
    pub fn panicked(mut self) -> Result<(), ControlError> {
        Ok(self.channel.send(&FromRank::Panicked)?)
    }
}

/// The descriptor becomes readable when a message arrives. Call [`Connection::poll`] until it returns `None` before
/// waiting for that, because it may hold notices that have arrived earlier.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Connection, Channel) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::new(Channel::new(ours)), Channel::new(theirs))
    }

    #[test]
    fn a_verdict_goes_to_the_agent_and_comes_from_it() {
        let (mut connection, mut agent) = pair();
        connection.give_up(3, 7, "packets were lost".to_owned()).unwrap();
        let Ok(Incoming::Message(FromRank::GaveUp { rank: 3, incarnation: 7, why })) = agent.receive() else {
            panic!("a verdict");
        };
        assert_eq!(why, "packets were lost");
        let given_up = GivenUp { by: 3, by_incarnation: 7, rank: 1, incarnation: 9, why };
        agent.send(&ToRank::GaveUp(given_up.clone())).unwrap();
        let notice = Notice::GaveUp { rank: 3, incarnation: 7, verdict_on: 9, why: given_up.why };
        assert_eq!(connection.poll().unwrap(), Some(notice));
        assert_eq!(connection.poll().unwrap(), None);
    }

    /// The reason is cut between two characters, even if a character has two or three bytes.
    #[test]
    fn a_long_reason_is_cut_off() {
        for character in ["y", "é", "€"] {
            let (mut connection, mut agent) = pair();
            connection.give_up(0, 0, character.repeat(WHY_BYTES_MAX)).unwrap();
            let Ok(Incoming::Message(FromRank::GaveUp { why, .. })) = agent.receive() else {
                panic!("a verdict");
            };
            assert_eq!(why, character.repeat(WHY_BYTES_MAX / character.len()));
        }
    }
}
