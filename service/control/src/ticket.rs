//! The ticket with which a rank joins its job. Only one process can take it.
//!
//! A rank inherits one end of a `SOCK_SEQPACKET` pair with a single packet in it. The other end is already closed. The
//! packet carries the job's particulars and, as `SCM_RIGHTS`, the rank's connection to the agent. Receiving a packet is
//! atomic, so one process gets all of it; any other process that inherited the same descriptor finds the end of the
//! stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use super::{JobId, Secret};

/// The version of the messages in this crate; a rank and its launcher must agree.
pub const PROTOCOL: u32 = 6;

const TICKET_BYTES_MAX: usize = 1024;

/// The message of the launcher, or of a rendezvous, to a rank that joins.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The launcher's version of the protocol.
    pub protocol: u32,
    /// The job's name.
    pub job: JobId,
    /// The job's secret.
    pub secret: Secret,
    /// The rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The incarnation of the rank.
    pub incarnation: u32,
    /// The rank's place among the hosts of the job.
    pub place: Place,
}

/// The place of a rank among the job's hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host, by its index among the hosts of the job.
    pub host: u32,
    /// The number of hosts of the job.
    pub hosts: u32,
    /// The number of ranks that share the processors of this rank, itself included: all ranks on its host, or if ranks
    /// are bound, the ranks that are bound to the same processors.
    pub neighbours: u32,
    /// The address of this host on the connection to the launcher, if the launcher is on another host.
    pub address: Option<IpAddr>,
}

impl Place {
    /// The place of the only rank of a job.
    pub const ALONE: Place = Place { host: 0, hosts: 1, neighbours: 1, address: None };
}

/// The reason why a descriptor yields no ticket.
#[derive(Debug)]
pub enum TicketError {
    /// Another process, or an earlier call in this process, has taken the ticket.
    Taken,
    /// The descriptor holds something else than a ticket.
    NotATicket,
    /// A system call failed.
    Socket(io::Error),
}

impl Ticket {
    /// Returns the descriptor for the rank to inherit, from which [`take`](Self::take) gets this ticket and
    /// `connection`.
    pub fn issue(&self, connection: UnixStream) -> io::Result<OwnedFd> {
        let (giver, taker) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let packet = serde_json::to_vec(self)?;
        let fds = [connection.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(giver, &[IoSlice::new(&packet)], &mut rights, SendFlags::NOSIGNAL)?;
        Ok(taker)
    }

    /// Takes the ticket and the connection from an inherited descriptor. Does not block.
    pub fn take(fd: BorrowedFd<'_>) -> Result<(Ticket, UnixStream), TicketError> {
        let mut packet = [0; TICKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(fd, &mut [IoSliceMut::new(&mut packet)], &mut rights, flags) {
            Ok(received) => received,
            Err(Errno::NOTSOCK | Errno::AGAIN | Errno::NOTCONN) => return Err(TicketError::NotATicket),
            Err(error) => return Err(TicketError::Socket(error.into())),
        };
        if received.bytes == 0 {
            return Err(TicketError::Taken);
        }
        let connection = rights.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let ticket = serde_json::from_slice(&packet[..received.bytes]);
        match (ticket, connection) {
            (Ok(ticket), Some(connection)) => Ok((ticket, connection.into())),
            _ => Err(TicketError::NotATicket),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const TICKET: Ticket = Ticket {
        protocol: PROTOCOL,
        job: JobId(7),
        secret: Secret([9; 16]),
        rank: 1,
        size: 2,
        incarnation: 1,
        place: Place { host: 0, hosts: 1, neighbours: 2, address: None },
    };

    #[test]
    fn a_ticket_brings_its_connection_and_is_taken_once() {
        let (mut agent, theirs) = UnixStream::pair().unwrap();
        let fd = TICKET.issue(theirs).unwrap();
        let (ticket, mut connection) = Ticket::take(fd.as_fd()).unwrap();
        assert_eq!(ticket, TICKET);
        assert!(matches!(Ticket::take(fd.as_fd()), Err(TicketError::Taken)));

        connection.write_all(b"hello").unwrap();
        drop(connection);
        let mut text = String::new();
        agent.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn an_unused_ticket_closes_its_connection_with_it() {
        let (mut agent, theirs) = UnixStream::pair().unwrap();
        drop(TICKET.issue(theirs).unwrap());
        assert_eq!(agent.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn other_descriptors_are_no_tickets() {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        assert!(matches!(Ticket::take(stream.as_fd()), Err(TicketError::NotATicket)));
        peer.write_all(b"{\"protocol\":1}").unwrap();
        assert!(matches!(Ticket::take(stream.as_fd()), Err(TicketError::NotATicket)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(Ticket::take(file.as_fd()), Err(TicketError::NotATicket)));
    }
}
