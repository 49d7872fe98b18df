//! Joining the job that the environment describes.

use std::os::fd::AsFd;

use samite_control::{Channel, JobId, PROTOCOL, Place, Secret, Ticket, TicketError};
use samite_os::spawn::{end_with_simple_parent, inherited_fd};

use super::{BootstrapError, Connection, Invitation};

/// This process's place in its job, and its connection to the launcher.
#[derive(Debug)]
pub struct Job {
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The job's name.
    pub id: JobId,
    /// The incarnation of this rank: counted from a number that differs from rank to rank and job to job.
    pub incarnation: u32,
    /// The host on which it runs.
    pub(crate) place: Place,
    /// The secret that the ranks share.
    pub(crate) secret: Secret,
    /// The transport that the user selected.
    pub transport: Option<String>,
    /// The connection to the launcher's agent.
    pub connection: Connection,
}

impl Invitation {
    /// Joins the job. From now on the process dies when the launcher does.
    ///
    /// # Errors
    /// [`BootstrapError`] if the launcher's connection is missing, if another process has it, or if the two do not
    /// agree.
    pub fn accept(self) -> Result<Job, BootstrapError> {
        let no_connection = || BootstrapError::NoConnection { fd: self.fd };
        let inherited = inherited_fd(self.fd).map_err(|_| no_connection())?;
        let (ticket, stream) = Ticket::take(inherited.as_fd()).map_err(|error| match error {
            TicketError::Taken => BootstrapError::AlreadyJoined { rank: self.rank },
            TicketError::NotATicket => no_connection(),
            TicketError::Socket(error) => error.into(),
        })?;
        if ticket.protocol != PROTOCOL {
            return Err(BootstrapError::Protocol { ours: PROTOCOL, theirs: ticket.protocol });
        }
        if (ticket.rank, ticket.size, ticket.job) != (self.rank, self.size, self.job) {
            return Err(BootstrapError::Mismatch {
                rank: self.rank,
                size: self.size,
                job: self.job.to_string(),
            });
        }
        end_with_simple_parent()?;
        Ok(Job {
            rank: ticket.rank,
            size: ticket.size,
            id: ticket.job,
            incarnation: ticket.incarnation,
            place: ticket.place,
            secret: ticket.secret,
            transport: self.transport,
            connection: Connection::new(Channel::new(stream)),
        })
    }
}
