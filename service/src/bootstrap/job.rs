//! Joining the job that the environment describes.

use std::os::fd::AsFd;

use samite_control::{Channel, Connection, PROTOCOL, Ticket, TicketError};
use samite_os::spawn::{end_with_simple_parent, inherited_fd};

use super::{Invitation, Refusal};

impl Invitation {
    /// Joins the job. Returns this process's ticket, and its connection to the launcher's agent. Also requests that the
    /// kernel kill this process when its parent dies: see [`end_with_simple_parent`].
    ///
    /// # Errors
    /// [`Refusal`] if the launcher's connection is missing, if another process has taken it, if the launcher speaks
    /// another version of the control protocol, if the launcher and the environment name different ranks, sizes or
    /// jobs, or if a system call fails.
    pub(crate) fn accept(self) -> Result<(Ticket, Connection), Refusal> {
        let no_connection = || Refusal::NoConnection { fd: self.fd };
        let inherited = inherited_fd(self.fd).map_err(|_| no_connection())?;
        let (ticket, stream) = Ticket::take(inherited.as_fd()).map_err(|error| match error {
            TicketError::Taken => Refusal::AlreadyJoined { rank: self.rank },
            TicketError::NotATicket => no_connection(),
            TicketError::Socket(error) => error.into(),
        })?;
        if ticket.protocol != PROTOCOL {
            return Err(Refusal::Protocol { ours: PROTOCOL, theirs: ticket.protocol });
        }
        if (ticket.rank, ticket.size, ticket.job) != (self.rank, self.size, self.job) {
            return Err(Refusal::Mismatch { rank: self.rank, size: self.size, job: self.job.to_string() });
        }
        end_with_simple_parent()?;
        Ok((ticket, Connection::new(Channel::new(stream))))
    }
}
