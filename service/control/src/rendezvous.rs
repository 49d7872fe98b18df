//! The rendezvous server: for ranks without `samite run` it does the work of an agent, but does not manage processes.
//!
//! A rank that has joined waits until all ranks have joined. Then each rank gets its ticket. From then on the control
//! protocol and the [`Registry`] are the same as under `samite run`. A rank whose connection ends has ended.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::registry::{Post, Registry, Urgent};
use crate::settings::Settings;
use crate::{
    Channel, ChannelError, Ending, FromRank, Identified, Incoming, JobId, LINE_BYTES_MAX, Listener, PROTOCOL,
    Place, Secret, Ticket, liveness,
};

/// The first message of a rank, over TCP, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    /// The rank's version of the protocol.
    pub protocol: u32,
    /// The process's rank.
    pub rank: u32,
    /// The number of ranks with which the process was started.
    pub size: u32,
    /// The process's host: equal for ranks that share a kernel, process ids and interfaces.
    pub host: String,
}

/// The answer to [`Join`]: a welcome when all ranks have joined, or a refusal at any earlier time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reception {
    /// All ranks of the job have joined.
    Welcome {
        /// The rank's ticket.
        ticket: Ticket,
        /// True if rank 0 runs the rendezvous.
        is_hosted: bool,
    },
    /// The rank is refused.
    Refused {
        /// The reason, and the fix.
        why: String,
    },
}

/// The rendezvous of the ranks of one job.
pub struct Server {
    job: JobId,
    /// True if rank 0 of the job runs this server.
    is_hosted: bool,
    size: u32,
    secret: Secret,
    detection: Duration,
    /// The longest time for which a rank waits for the other ranks.
    patience: Duration,
    listener: Listener<()>,
    members: BTreeMap<u32, Member>,
    /// The addresses and ends of the ranks; `None` until all ranks have joined.
    registry: Option<Registry>,
    /// The time before which ends that are not urgent are not reported.
    report_at: Instant,
}

struct Member {
    /// The rank's connection; `None` when the connection has ended.
    channel: Option<Channel>,
    /// The rank's host: see [`Join::host`].
    host: String,
    /// The time by which all ranks must have joined.
    until: Instant,
}

impl Server {
    /// Listens at `address` for the ranks of a job of `size` ranks.
    ///
    /// # Errors
    /// If the address cannot be opened, or the system returns no random numbers.
    pub fn open(
        address: impl ToSocketAddrs,
        size: u32,
        is_hosted: bool,
        detection: Duration,
        patience: Duration,
    ) -> io::Result<Server> {
        let listener = Listener::new(TcpListener::bind(address)?)?;
        let (mut job, mut secret) = ([0; 8], [0; 16]);
        getrandom(&mut job, GetRandomFlags::empty())?;
        getrandom(&mut secret, GetRandomFlags::empty())?;
        Ok(Server {
            job: JobId(u64::from_ne_bytes(job)),
            is_hosted,
            size,
            secret: Secret(secret),
            detection,
            patience,
            listener,
            members: BTreeMap::new(),
            registry: None,
            report_at: now(),
        })
    }

    /// Returns the name of the job.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Returns the address of the listening socket.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.socket().local_addr()
    }

    /// Serves until every rank has ended. Returns the ranks that failed.
    ///
    /// If the other end of `leash` is closed before all ranks have joined, stops and returns no ranks.
    ///
    /// # Errors
    /// If not all ranks join in time (the error names the missing ranks), or if the system does not let this process
    /// wait for connections.
    pub fn run(mut self, leash: Option<OwnedFd>) -> io::Result<Vec<u32>> {
        loop {
            self.admit();
            self.listen();
            self.deliver();
            if let Some(registry) = &self.registry {
                let mut ranks = 0..self.size;
                if ranks.all(|rank| registry.has_ended(rank)) && registry.unreported().is_none() {
                    return Ok(self.failed());
                }
            } else if self.join_deadline().is_some_and(|deadline| deadline <= now()) {
                return Err(self.refuse_incomplete_job());
            }
            if self.wait(leash.as_ref())? && self.registry.is_none() {
                return Ok(Vec::new());
            }
        }
    }

    /// Sleeps until there is work. Returns true if the leash was closed.
    fn wait(&self, leash: Option<&OwnedFd>) -> io::Result<bool> {
        let until = match &self.registry {
            None => self.join_deadline(),
            Some(registry) => registry.unreported().map(|_| self.report_at),
        };
        let until = until.into_iter().chain(self.listener.deadline()).min();
        let time = until.map(|until| until.saturating_duration_since(now()));
        let time =
            time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let members = self.members.values().filter_map(|member| member.channel.as_ref());
        let interest = |channel: &Channel| match channel.is_backed_up() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let mut watched: Vec<_> =
            members.map(|channel| PollFd::from_borrowed_fd(channel.as_fd(), interest(channel))).collect();
        watched.extend(self.listener.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        watched
            .extend(leash.filter(|_| self.registry.is_none()).map(|leash| PollFd::new(leash, PollFlags::IN)));
        match poll(&mut watched, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let last = watched.last().is_some_and(|last| !last.revents().is_empty());
        Ok(last && leash.is_some() && self.registry.is_none())
    }

    /// Returns the time by which all ranks must have joined. It is set by the rank that has waited longest of those
    /// that wait now. A process that has joined and left does not count: otherwise it would make the rendezvous time
    /// out before the job starts. Returns `None` if no rank waits.
    fn join_deadline(&self) -> Option<Instant> {
        self.members.values().map(|member| member.until).min()
    }

    fn admit(&mut self) {
        let detection = self.detection;
        let identified = self.listener.turn(now(), |stream| {
            liveness::bound_by_kernel(&stream, detection).ok().map(|()| (Channel::new(stream), ()))
        });
        for Identified { channel, context: (), hello } in identified {
            self.receive(channel.allowing(LINE_BYTES_MAX), hello);
        }
    }

    fn listen(&mut self) {
        let ranks: Vec<u32> = self.members.keys().copied().collect();
        for rank in ranks {
            self.listen_to(rank);
        }
    }

    /// Handles the hello of a rank.
    fn receive(&mut self, mut visitor: Channel, join: Join) {
        let Join { protocol, rank, size, host } = join;
        if self.registry.is_none() {
            // A restarted rank may join before the end of its former connection was read.
            self.listen_to(rank);
        }
        let (ours, ranks) = (PROTOCOL, self.size);
        let why = if protocol != ours {
            format!(
                "it speaks version {protocol} of the protocol, and the rendezvous {ours}: use one release of samite for all"
            )
        } else if size != ranks {
            format!("it expects {size} ranks, and the rendezvous {ranks}: give all the same number")
        } else if rank >= ranks {
            format!(
                "its rank is {rank}, but there are {ranks} ranks, from 0: give each process its own number below {ranks}"
            )
        } else if self.members.contains_key(&rank) {
            format!(
                "rank {rank} has joined already: give each process its own rank, and each job its own rendezvous"
            )
        } else {
            let until = now() + self.patience;
            self.members.insert(rank, Member { channel: Some(visitor), host, until });
            if self.members.len() == self.size as usize {
                self.begin();
            }
            return;
        };
        // The message is so short that a new connection accepts all of it without a wait.
        let _ = visitor.send(&Reception::Refused { why });
    }

    /// Starts the job: each rank gets its ticket.
    fn begin(&mut self) {
        let mut hosts: Vec<&str> = Vec::new();
        let mut neighbours: Vec<u32> = Vec::new();
        let mut numbers = Vec::new();
        for member in self.members.values() {
            let known = hosts.iter().position(|&host| host == member.host);
            let number = known.unwrap_or_else(|| {
                hosts.push(&member.host);
                neighbours.push(0);
                hosts.len() - 1
            });
            neighbours[number] += 1;
            numbers.push(number);
        }
        let hosts = hosts.len() as u32;
        for ((&rank, member), number) in self.members.iter_mut().zip(numbers) {
            let place = Place { host: number as u32, hosts, neighbours: neighbours[number], address: None };
            let ticket = Ticket {
                protocol: PROTOCOL,
                job: self.job,
                secret: self.secret,
                rank,
                size: self.size,
                incarnation: self.secret.first_incarnation(rank),
                place,
            };
            if let Some(channel) = &mut member.channel {
                // An error is ignored here, because `listen_to` finds it when it reads from the connection.
                let _ = channel.send(&Reception::Welcome { ticket, is_hosted: self.is_hosted });
            }
        }
        self.registry = Some(Registry::new(self.size, 0..self.size, self.secret));
    }

    fn listen_to(&mut self, rank: u32) {
        loop {
            let Some(Member { channel: slot, .. }) = self.members.get_mut(&rank) else { return };
            let Some(channel) = slot else { return };
            channel.flush();
            let ending = match (channel.receive::<FromRank>(), &mut self.registry) {
                (Ok(Incoming::Nothing), _) => return,
                (Ok(Incoming::Message(message)), Some(registry)) => match registry.handle(rank, message) {
                    Ok(()) => continue,
                    Err(_) => Ending::Gone,
                },
                // The rank has sent a message before the start of the job, or has left before all have joined. Forget
                // its connection, so that another process can join in its place.
                (_, None) => {
                    self.members.remove(&rank);
                    return;
                }
                (Err(ChannelError::Socket(error)), Some(_)) => {
                    Ending::Lost { host: format!("of rank {rank}"), how: error.to_string() }
                }
                (Ok(Incoming::Closed) | Err(_), Some(_)) => Ending::Gone,
            };
            *slot = None;
            // If the rank has reported before that it leaves, the registry ignores this end.
            self.registry.iter_mut().for_each(|registry| registry.end(rank, ending.clone(), false));
            return;
        }
    }

    /// Sends the pending messages to the ranks. Ends without a failure are collected for some time and reported
    /// together, so that the end of a job of many ranks does not take a message for each pair of ranks.
    fn deliver(&mut self) {
        let Some(registry) = &mut self.registry else { return };
        let now = now();
        if registry.unreported().is_some_and(|Urgent(urgent)| urgent || self.report_at <= now) {
            self.report_at = now + PAUSE_EACH * registry.report();
        }
        for post in std::mem::take(&mut registry.outbox) {
            if let Post::Rank(to, message) = post
                && let Some(Member { channel: Some(channel), .. }) = self.members.get_mut(&to)
            {
                // An error is ignored here, because `listen_to` finds it when it reads from the connection.
                let _ = channel.send(&message);
            }
        }
    }

    /// Refuses the ranks that have joined, because other ranks have not joined in time. Returns the error, which names
    /// the missing ranks.
    fn refuse_incomplete_job(&mut self) -> io::Error {
        let missing: Vec<String> = (0..self.size)
            .filter(|rank| !self.members.contains_key(rank))
            .take(MISSING_NAMED_MAX)
            .map(|rank| rank.to_string())
            .collect();
        let (came, size, seconds) = (self.members.len(), self.size, self.patience.as_secs_f64());
        let missing = missing.join(", ");
        let why = format!(
            "{came} of {size} ranks have come within {seconds} s; missing: rank {missing}. See why they did not start, or give \
             them longer with SAMITE_JOIN_TIMEOUT"
        );
        for channel in self.members.values_mut().filter_map(|member| member.channel.as_mut()) {
            let _ = channel.send(&Reception::Refused { why: why.clone() });
        }
        io::Error::new(io::ErrorKind::TimedOut, why)
    }

    fn failed(&self) -> Vec<u32> {
        let registry = self.registry.as_ref();
        (0..self.size).filter(|&rank| registry.is_some_and(|registry| registry.has_failed(rank))).collect()
    }
}

/// Serves the ranks of one job as their rendezvous at `address`, until all have ended. Returns the ranks
/// that failed.
///
/// # Errors
/// If the address cannot be opened, if not all ranks join within `join_timeout` after the first rank, or if a necessary
/// system call fails.
pub fn serve(address: SocketAddr, ranks: u32, settings: &Settings) -> io::Result<Vec<u32>> {
    Server::open(address, ranks, false, settings.detection, settings.join_timeout)?.run(None)
}

#[expect(clippy::disallowed_methods, reason = "the wait for other ranks is bounded")]
fn now() -> Instant {
    Instant::now()
}

/// Number of missing ranks that the error names.
const MISSING_NAMED_MAX: usize = 16;

/// The pause after a report of ends, for each message of the report. A later report that is not urgent waits until the
/// pause is over.
const PAUSE_EACH: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Lets the server read, without waiting, until exactly `joined` ranks have joined and not left.
    fn turn_until(server: &mut Server, joined: usize) {
        while server.members.len() != joined {
            server.admit();
            server.listen();
        }
    }

    /// Sends the hello of a rank.
    fn ask(server: &Server, rank: u32) -> TcpStream {
        let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
        let join = Join { protocol: PROTOCOL, rank, size: server.size, host: String::new() };
        stream.write_all(serde_json::to_string(&join).unwrap().as_bytes()).unwrap();
        stream.write_all(b"\n").unwrap();
        stream
    }

    /// Joins as a rank, and returns when the server has handled the hello.
    fn join(server: &mut Server, rank: u32) -> TcpStream {
        let stream = ask(server, rank);
        turn_until(server, server.members.len() + 1);
        stream
    }

    #[test]
    fn a_rank_that_was_started_again_joins_at_once() {
        let mut server = Server::open((Ipv4Addr::LOCALHOST, 0), 2, false, PATIENCE, PATIENCE).unwrap();
        let former = join(&mut server, 1);
        let until = server.members[&1].until;
        drop(former);
        let mut again = ask(&server, 1);
        again.set_nonblocking(true).unwrap();
        while server.members[&1].until == until {
            server.admit();
            let answer = again.read(&mut [0]);
            assert!(answer.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "it is refused");
        }
        // While a rank waits, another process with the same number is refused.
        let until = server.members[&1].until;
        let mut other = ask(&server, 1);
        other.set_nonblocking(true).unwrap();
        while other.read(&mut [0]).is_err() {
            server.admit();
        }
        assert_eq!(server.members[&1].until, until);
    }

    #[test]
    fn a_rank_that_left_before_all_have_joined_does_not_limit_the_time_of_the_others() {
        let mut server = Server::open((Ipv4Addr::LOCALHOST, 0), 4, false, PATIENCE, PATIENCE).unwrap();
        assert_eq!(server.join_deadline(), None);
        drop(join(&mut server, 1));
        turn_until(&mut server, 0);
        assert_eq!(server.join_deadline(), None);

        let first = join(&mut server, 1);
        let before = now();
        let second = join(&mut server, 2);
        let third = join(&mut server, 0);
        assert!(server.join_deadline().unwrap() < before + PATIENCE);
        drop(first);
        turn_until(&mut server, 2);
        let of_second = server.join_deadline().unwrap();
        assert!(of_second >= before + PATIENCE);
        drop(third);
        turn_until(&mut server, 1);
        assert_eq!(server.join_deadline(), Some(of_second));

        // Rank 2 joins again, and its time starts anew.
        drop(second);
        turn_until(&mut server, 0);
        let before = now();
        let _second = join(&mut server, 2);
        assert!(server.join_deadline().unwrap() >= before + PATIENCE);
    }
}
