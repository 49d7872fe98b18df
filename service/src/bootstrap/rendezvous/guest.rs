//! The directory of a rank that has joined at a rendezvous.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use samite_control::{Connection, ControlError, Secret};
use samite_fabric::Address;

use super::Host;
use crate::runtime::{Directory, Notice};

/// A directory that gets the addresses and ends of the other ranks from the rendezvous.
///
/// If the rendezvous closes the connection, the process of the rendezvous has ended. The job continues, and from then
/// on only the transport may notice the end of a rank. If the host of the rendezvous becomes unreachable, the
/// rendezvous may have reported to the other ranks that this rank has failed. So this rank acts as if it had been given
/// up.
pub(crate) struct Guest {
    /// `None` when this rank has left, or the rendezvous is gone.
    connection: Option<Connection>,
    secret: Secret,
    /// True if rank 0 runs the rendezvous.
    is_hosted: bool,
    /// The server, if this rank is rank 0 and runs the rendezvous.
    host: Option<Host>,
    news: VecDeque<Notice>,
}

impl Guest {
    pub(super) fn new(connection: Connection, secret: Secret, is_hosted: bool, host: Option<Host>) -> Guest {
        Guest { connection: Some(connection), secret, is_hosted, host, news: VecDeque::new() }
    }

    /// Publishes this rank's address.
    pub(crate) fn publish(&mut self, address: &Address) -> Result<(), ControlError> {
        // If the rendezvous is gone already, the next poll reports that.
        self.connection.as_mut().map_or(Ok(()), |connection| connection.publish(&address.0))
    }

    fn failed(&self, rank: u32, how: &str) -> Notice {
        let incarnation = self.secret.first_incarnation(rank);
        Notice::Failed { rank, incarnation, how: how.to_owned(), returns: false }
    }
}

impl Directory for Guest {
    fn request_address(&mut self, rank: u32) {
        match &mut self.connection {
            // If the request fails, the next poll reports the error.
            Some(connection) => drop(connection.request_address(rank)),
            None => {
                let notice =
                    self.failed(rank, "it cannot be found: the rendezvous, which knew where it is, is gone");
                self.news.push_back(notice);
            }
        }
    }

    fn tells_deaths(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Option<Notice> {
        if let Some(notice) = self.news.pop_front() {
            return Some(notice);
        }
        match self.connection.as_mut()?.poll() {
            Ok(None) => None,
            Ok(Some(samite_control::Notice::LauncherGone)) => {
                self.connection = None;
                self.is_hosted.then(|| self.failed(0, "its process ended, and the rendezvous with it"))
            }
            Ok(Some(notice)) => Some(notice.into()),
            Err(error) => {
                self.connection = None;
                let why =
                    format!("it has lost the rendezvous, by which the others know that it lives: {error}");
                Some(Notice::Condemned { why })
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    fn give_up(&mut self, rank: u32, incarnation: u32, why: String) {
        if let Some(connection) = &mut self.connection {
            // If this message cannot be sent, the next poll reports the error.
            let _ = connection.give_up(rank, incarnation, why);
        }
    }

    fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            // If the message cannot be sent, the rendezvous is gone, or it sees the closed connection instead.
            let _ = connection.leave();
        }
        if let Some(host) = self.host.take() {
            host.see_off();
        }
    }

    fn panicked(&mut self) {
        if let Some(connection) = self.connection.take() {
            // As in `leave`, a message that cannot be sent needs no further action.
            let _ = connection.panicked();
        }
    }
}
