//! The listener to which the agents of other hosts connect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::net::getsockname;
use samite_control::{
    Answer, Challenge, Channel, Hello, Identified, Invitation, Keys, Listener, Nonce, PROTOCOL, Secret, Side,
    Transcript, liveness,
};

use super::agent_handle::{AgentHandle, addresses_towards};
use super::hosts::{Host, distribute};
use super::{LaunchError, Options, Remote, random};

/// The socket to which the agents of other hosts connect, while one of them is awaited.
pub(super) struct AgentListener {
    listener: Listener<Nonce>,
    /// The secrets of each host, with which both sides prove their identity.
    keys: Vec<Keys>,
    addresses: Vec<IpAddr>,
    detection: Duration,
    pub(super) closes_at: Instant,
}

impl AgentListener {
    /// Opens the listener and starts the remote shells, which start an agent on each host.
    pub(super) fn open(
        remote: &Remote,
        routes: Vec<Route>,
        options: &Options,
    ) -> Result<(Vec<AgentHandle>, AgentListener), LaunchError> {
        let system = LaunchError::system;
        let listener = listen(remote.address).map_err(system("listening for the agents"))?;
        let port = listener.socket().local_addr().map_err(system("listening for the agents"))?.port();
        let directory = std::env::current_dir().map_err(system("finding the current directory"))?;
        let mut opened = AgentListener {
            listener,
            keys: Vec::new(),
            addresses: Vec::new(),
            detection: options.detection,
            closes_at: Instant::now() + START_MAX,
        };
        let mut agents = Vec::new();
        for (index, (host, ranks, addresses)) in (0..).zip(routes) {
            let secret = || random().map(Secret).map_err(system("reading random bytes"));
            let keys = Keys { coordinator: secret()?, agent: secret()? };
            let invitation = Invitation {
                protocol: PROTOCOL,
                host: index,
                name: host.name.clone(),
                keys,
                addresses: addresses.clone(),
                is_given: remote.address.is_some(),
                port,
                directory: directory.clone(),
                detection: options.detection,
            };
            agents.push(AgentHandle::there(&host, ranks, &remote.shell, &invitation)?);
            opened.keys.push(keys);
            opened.addresses.extend(addresses);
        }
        opened.addresses.sort();
        opened.addresses.dedup();
        Ok((agents, opened))
    }

    /// Accepts connections. Returns the connections of agents that have proven their identity, with the index of each
    /// agent's host.
    pub(super) fn admit(&mut self, now: Instant) -> Vec<(usize, Channel)> {
        let detection = self.detection;
        let identified = self.listener.turn(now, |stream| challenge(stream, detection).ok());
        identified.into_iter().filter_map(|identified| self.recognize(identified)).collect()
    }

    /// Returns the index of the host whose agent has sent this hello, and the connection, after answering the hello.
    /// Returns `None` if the host or the proof in the hello is wrong, or if the connection has failed.
    fn recognize(&self, identified: Identified<Nonce, Hello>) -> Option<(usize, Channel)> {
        let Identified { mut channel, context: coordinator_nonce, hello } = identified;
        let keys = self.keys.get(hello.host as usize)?;
        let coordinator = SocketAddr::try_from(getsockname(&channel).ok()?).ok()?.ip();
        let transcript =
            Transcript { host: hello.host, coordinator, coordinator_nonce, agent_nonce: hello.nonce };
        if !transcript.is_proven(Side::Agent, keys, &hello.proof) {
            return None;
        }
        channel.send(&Answer { proof: transcript.prove(Side::Coordinator, keys) }).ok()?;
        Some((hello.host as usize, channel))
    }

    /// Returns the descriptors that [`admit`](Self::admit) reads.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.descriptors()
    }

    /// Returns the time at which work is due even if no descriptor is readable.
    pub(super) fn deadline(&self) -> Instant {
        self.listener.deadline().map_or(self.closes_at, |deadline| deadline.min(self.closes_at))
    }

    /// Returns the error for agents that have not connected in time.
    pub(super) fn no_answer(&self, hosts: &[String]) -> LaunchError {
        let addresses: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        LaunchError::NoAnswer {
            hosts: hosts.join(", "),
            seconds: START_MAX.as_secs(),
            addresses: addresses.join(", "),
        }
    }
}

/// Configures a new connection, and sends a challenge.
fn challenge(stream: TcpStream, detection: Duration) -> Result<(Channel, Nonce), LaunchError> {
    let nonce = random().map_err(LaunchError::system("reading random bytes"))?;
    liveness::bound(&stream, detection).map_err(LaunchError::system("setting up a connection"))?;
    let mut channel = Channel::new(stream);
    channel.send(&Challenge { nonce })?;
    Ok((channel, nonce))
}

/// A host, its ranks, and the launcher's addresses for that host.
pub(super) type Route = (Host, Range<u32>, Vec<IpAddr>);

/// Determines the addresses to which each host connects.
pub(super) fn routes(remote: &Remote, options: &Options) -> Result<Vec<Route>, LaunchError> {
    let placed = distribute(&remote.hosts, options.ranks)?.into_iter();
    let addresses = |name: &str| remote.address.map_or_else(|| addresses_towards(name), |ours| vec![ours]);
    Ok(placed.map(|(host, ranks)| (host.clone(), ranks, addresses(&host.name))).collect())
}

/// Listens at `address`, or at all addresses of this host if it is `None`.
fn listen(address: Option<IpAddr>) -> io::Result<Listener<Nonce>> {
    let listener = match address {
        Some(address) => TcpListener::bind((address, 0)),
        // This address accepts IPv4 too. Opening it fails only if the system has no IPv6.
        None => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))),
    }?;
    Listener::new(listener)
}

/// The time for agents to connect: a slow login may take as long.
const START_MAX: Duration = Duration::from_secs(60);
