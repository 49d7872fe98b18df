//! A meeting place at an address that every process is given, with its rank and the number of ranks: for
//! launchers that say no more than that (torchrun, Kubernetes' indexed jobs, plain srun).
//!
//! It is `samite rendezvous`, or else a thread of rank 0. Rank 0 cannot tell which: it opens a place, goes to the
//! address like everybody else, and closes its own again if that was not where it came to.

mod guest;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use samite_fabric::SplitMix64;
use samite_os::process;

pub(crate) use self::guest::Guest;
use samite_control::printable::one_line;
use samite_control::rendezvous::{Join, Reception, Server};
use samite_control::{Channel, Incoming, JobId, PROTOCOL, Ticket, liveness};

use super::{BootstrapError, Connection};
use crate::watch::{nap, timespec};

/// What the environment says of a job that meets at an address.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// A rank that has met the others.
pub(crate) struct Met {
    /// Its ticket, with this host's address in it.
    pub(crate) ticket: Ticket,
    pub(crate) guest: Guest,
}

impl Rendezvous {
    /// Meets the other ranks: waits until all have come, at most `patience`.
    ///
    /// # Errors
    /// [`BootstrapError::NoRendezvous`], [`BootstrapError::RefusedByRendezvous`].
    pub(crate) fn join(self, detection: Duration, patience: Duration) -> Result<Met, BootstrapError> {
        let deadline = now() + patience;
        // Rank 0 opens a place. If that fails, perhaps since `samite rendezvous` has the port, it is a guest only.
        let opened = (self.rank == 0).then(|| self.open(detection, patience)).transpose();
        let (mut host, not_here) = match opened {
            Ok(opened) => (opened, String::new()),
            Err(error) => (None, format!("; it cannot be opened by this process either: {error}")),
        };
        loop {
            let failed = |why| BootstrapError::NoRendezvous {
                address: self.address.clone(),
                seconds: patience.as_secs_f64(),
                why: format!("{why}{not_here}"),
            };
            let stream = self.reach(deadline).map_err(failed)?;
            liveness::bound_by_kernel(&stream, detection)?;
            let local = stream.local_addr()?.ip();
            let mut channel = Channel::new(stream);
            channel.send(&Join {
                protocol: PROTOCOL,
                rank: self.rank,
                size: self.size,
                host: host_name(),
            })?;
            // Whoever has the place says who is missing, when its own patience has ended.
            match answer(&mut channel, deadline + ANSWER_WITHIN) {
                Ok(Reception::Welcome { mut ticket, is_hosted }) => {
                    if ticket.protocol != PROTOCOL {
                        let (ours, theirs) = (PROTOCOL, ticket.protocol);
                        return Err(BootstrapError::Protocol { ours, theirs });
                    }
                    ticket.place.address = Some(local).filter(|address| !address.is_loopback());
                    let host = host.take().filter(|host: &Host| host.job == ticket.job);
                    let connection = Connection::new(channel);
                    let guest = Guest::new(connection, ticket.secret, is_hosted, host);
                    return Ok(Met { ticket, guest });
                }
                Ok(Reception::Refused { why }) => {
                    let why = one_line(&why).into_owned();
                    return Err(BootstrapError::RefusedByRendezvous { address: self.address, why });
                }
                // The one who has it may be on its way, and something else there before.
                Err(_) if now() < deadline => pause(deadline),
                Err(why) => return Err(failed(why)),
            }
        }
    }

    /// Opens a place in this process: for this host only if the address is of it alone.
    fn open(&self, detection: Duration, patience: Duration) -> io::Result<Host> {
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or(io::ErrorKind::InvalidInput)?;
        // Where it is to be found may not be known yet: then it is open to all.
        let known = self.address.to_socket_addrs().ok().and_then(|mut known| known.next());
        let ip = match known.map(|address| address.ip()) {
            Some(ip) if ip.is_loopback() => ip,
            Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            Some(IpAddr::V4(_)) | None => Ipv4Addr::UNSPECIFIED.into(),
        };
        let server = Server::open(SocketAddr::new(ip, port), self.size, true, detection, patience)?;
        Host::start(server)
    }

    /// Connects, as soon as somebody listens; why nobody does at the end.
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

/// Waits for the answer; why there is none.
fn answer(channel: &mut Channel, deadline: Instant) -> Result<Reception, String> {
    loop {
        match channel.receive() {
            Ok(Incoming::Message(reception)) => return Ok(reception),
            Ok(Incoming::Closed) => return Err("what listens there closed the connection".to_owned()),
            Err(error) => return Err(format!("what listens there is no rendezvous of samite ({error})")),
            Ok(Incoming::Nothing) => {}
        }
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err("what listens there does not answer".to_owned());
        }
        // What it is woken by, it looks at next.
        let _ = poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timespec(left)));
    }
}

/// A meeting place that this process has, in a thread.
pub(crate) struct Host {
    job: JobId,
    thread: JoinHandle<()>,
    /// When it is dropped the thread ends, unless ranks have met there.
    _leash: UnixStream,
}

impl Host {
    fn start(server: Server) -> io::Result<Host> {
        let (leash, theirs) = UnixStream::pair()?;
        let job = server.job();
        let thread = std::thread::Builder::new().name("rendezvous".to_owned());
        // What went wrong there, those who met hear of.
        let thread = thread.spawn(move || drop(server.run(Some(theirs.into()))))?;
        Ok(Host { job, thread, _leash: leash })
    }

    /// Waits until all ranks have ended.
    fn see_off(self) {
        // A panic there has cut off who was left.
        let _ = self.thread.join();
    }
}

/// Equal for processes that reach each other by all that a host has: one kernel, one space of process ids, one
/// set of interfaces.
fn host_name() -> String {
    let network = std::fs::metadata("/proc/self/ns/net").map(|file| file.ino());
    match (process::Place::current(), network) {
        (Ok(process::Place { boot, pid_namespace }), Ok(network)) => {
            format!("{:032x}.{pid_namespace:x}.{network:x}", u128::from_be_bytes(boot))
        }
        // Then it shares it with nobody.
        _ => format!("{:016x}", SplitMix64::from_entropy().next_u64()),
    }
}

#[expect(clippy::disallowed_methods, reason = "who waits for others to come, waits a limited time")]
fn now() -> Instant {
    Instant::now()
}

/// Before the next try: nothing tells when a process of another host begins to listen.
fn pause(deadline: Instant) {
    nap(TRY_EVERY.min(deadline.saturating_duration_since(now())));
}

const TRY_EVERY: Duration = Duration::from_millis(50);

/// How long one try to connect may last.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// And how long it may in any case: it was asked for.
const CONNECT_AT_LEAST: Duration = Duration::from_millis(50);

/// How long the answer may come after the time within which all had to come.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
