//! A rendezvous at an address that every process gets with its rank and the number of ranks, for
//! launchers that provide no more than that (torchrun, Kubernetes' indexed jobs, plain srun).
//!
//! `samite rendezvous` serves it, or else a thread of rank 0. Rank 0 cannot know which: it opens a server, connects to
//! the address like every other rank, and closes its own server if it reached another server.

mod guest;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use samite_control::printable::one_line;
use samite_control::rendezvous::{Join, Reception, Server};
use samite_control::{Channel, Connection, Incoming, JobId, PROTOCOL, Ticket, liveness};
use samite_fabric::SplitMix64;
use samite_os::process;

pub(crate) use self::guest::Guest;

use super::Refusal;
use crate::watch::{nap, timespec};

/// The environment's description of a job with a rendezvous.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rendezvous {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// A rank that has joined.
pub(crate) struct Met {
    /// The process's ticket, with this host's address in it.
    pub(crate) ticket: Ticket,
    pub(crate) guest: Guest,
}

impl Rendezvous {
    /// Joins the job: connects to the rendezvous, and waits at most the time `patience` until all ranks have connected.
    ///
    /// # Errors
    /// [`Refusal::NoRendezvous`], [`Refusal::RefusedByRendezvous`], [`Refusal::Protocol`], [`Refusal::Control`],
    /// [`Refusal::System`].
    pub(crate) fn join(self, detection: Duration, patience: Duration) -> Result<Met, Refusal> {
        let deadline = now() + patience;
        // Rank 0 opens a server. If that fails, perhaps because `samite rendezvous` already listens at the port, rank 0
        // is only a client.
        let opened = (self.rank == 0).then(|| self.open(detection, patience)).transpose();
        let (mut host, not_here) = match opened {
            Ok(opened) => (opened, String::new()),
            Err(error) => (None, format!("; it cannot be opened by this process either: {error}")),
        };
        loop {
            let failed = |why| Refusal::NoRendezvous {
                address: self.address.clone(),
                seconds: patience.as_secs_f64(),
                why: format!("{why}{not_here}"),
            };
            let stream = self.reach(deadline).map_err(failed)?;
            liveness::bound_by_kernel(&stream, detection)?;
            let local = stream.local_addr()?.ip();
            let mut channel = Channel::new(stream);
            channel
                .send(&Join { protocol: PROTOCOL, rank: self.rank, size: self.size, host: host_name() })
                .map_err(Refusal::control)?;
            // The server has a time limit of its own, after which its answer names the missing ranks. So wait a little
            // longer than that.
            match answer(&mut channel, deadline + ANSWER_WITHIN) {
                Ok(Reception::Welcome { mut ticket, is_hosted }) => {
                    if ticket.protocol != PROTOCOL {
                        let (ours, theirs) = (PROTOCOL, ticket.protocol);
                        return Err(Refusal::Protocol { ours, theirs });
                    }
                    ticket.place.address = Some(local).filter(|address| !address.is_loopback());
                    let host = host.take().filter(|host: &Host| host.job == ticket.job);
                    let connection = Connection::new(channel);
                    let guest = Guest::new(connection, ticket.secret, is_hosted, host);
                    return Ok(Met { ticket, guest });
                }
                Ok(Reception::Refused { why }) => {
                    let why = one_line(&why).into_owned();
                    return Err(Refusal::RefusedByRendezvous { address: self.address, why });
                }
                // No valid answer came. The server may still be starting, and the answer may be from another program
                // that listened at the address before. Try again.
                Err(_) if now() < deadline => pause(deadline),
                Err(why) => return Err(failed(why)),
            }
        }
    }

    /// Opens a server in this process. If the address is a loopback address, only processes
    /// of this host can connect.
    fn open(&self, detection: Duration, patience: Duration) -> io::Result<Host> {
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or(io::ErrorKind::InvalidInput)?;
        // The address may not be resolvable yet. Then the server listens at all addresses.
        let known = self.address.to_socket_addrs().ok().and_then(|mut known| known.next());
        let ip = match known.map(|address| address.ip()) {
            Some(ip) if ip.is_loopback() => ip,
            Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            Some(IpAddr::V4(_)) | None => Ipv4Addr::UNSPECIFIED.into(),
        };
        let server = Server::open(SocketAddr::new(ip, port), self.size, true, detection, patience)?;
        Host::start(server)
    }

    /// Connects as soon as a process listens. At the deadline, returns the error of the most recent attempt.
    fn reach(&self, deadline: Instant) -> Result<TcpStream, String> {
        loop {
            let mut why = "it has no address".to_owned();
            match self.address.to_socket_addrs() {
                Ok(addresses) => {
                    for address in addresses {
                        let left = deadline.saturating_duration_since(now());
                        match TcpStream::connect_timeout(
                            &address,
                            left.clamp(CONNECT_AT_LEAST, CONNECT_WITHIN),
                        ) {
                            Ok(stream) => return Ok(stream),
                            Err(error) => why = error.to_string(),
                        }
                    }
                }
                Err(error) => why = error.to_string(),
            }
            if now() >= deadline {
                return Err(why);
            }
            pause(deadline);
        }
    }
}

/// Waits for the answer of the rendezvous. Returns the reason if there is no valid answer until the deadline.
fn answer(channel: &mut Channel, deadline: Instant) -> Result<Reception, String> {
    loop {
        match channel.receive() {
            Ok(Incoming::Message(reception)) => return Ok(reception),
            Ok(Incoming::Closed) => return Err("the service there closed the connection".to_owned()),
            Err(error) => return Err(format!("the service there is no rendezvous of samite ({error})")),
            Ok(Incoming::Nothing) => {}
        }
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err("the service there does not answer".to_owned());
        }
        // An error of `poll` is ignored: the loop reads the channel anyway.
        let _ = poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timespec(left)));
    }
}

/// A rendezvous server in a thread of this process.
pub(crate) struct Host {
    job: JobId,
    thread: JoinHandle<()>,
    /// One end of a pair of sockets. Dropping it ends the thread, unless ranks have joined at this server.
    _leash: UnixStream,
}

impl Host {
    fn start(server: Server) -> io::Result<Host> {
        let (leash, theirs) = UnixStream::pair()?;
        let job = server.job();
        let thread = std::thread::Builder::new().name("rendezvous".to_owned());
        // An error of the server is ignored here: it closes the connections of the ranks, which report the loss.
        let thread = thread.spawn(move || drop(server.run(Some(theirs.into()))))?;
        Ok(Host { job, thread, _leash: leash })
    }

    /// Waits until all ranks have ended.
    fn see_off(self) {
        // If the server thread has panicked, the remaining ranks are disconnected already, and nothing is left to do.
        let _ = self.thread.join();
    }
}

/// Returns a name that is equal for processes that share a kernel, a space of process ids, and a
/// set of interfaces.
fn host_name() -> String {
    let network = std::fs::metadata("/proc/self/ns/net").map(|file| file.ino());
    match (process::Place::current(), network) {
        (Ok(process::Place { boot, pid_namespace }), Ok(network)) => {
            format!("{:032x}.{pid_namespace:x}.{network:x}", u128::from_be_bytes(boot))
        }
        // No other process has this random name, so the process counts as alone on its host.
        _ => format!("{:016x}", SplitMix64::from_entropy().next_u64()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the wait for other ranks is bounded")]
fn now() -> Instant {
    Instant::now()
}

/// Pauses before the next attempt to connect: nothing signals that a process of another host begins to listen.
fn pause(deadline: Instant) {
    nap(TRY_EVERY.min(deadline.saturating_duration_since(now())));
}

/// The pause between two attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The maximum time-out of one attempt to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The minimum time-out of one attempt to connect, also if the deadline is nearer.
const CONNECT_AT_LEAST: Duration = Duration::from_millis(50);

/// How much longer than the join time-out a rank waits for the server's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
