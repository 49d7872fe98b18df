//! Where the agents of other hosts call back.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::hosts::{Host, distribute};
use super::station::{Station, addresses_towards};
use super::{LaunchError, Options, Remote, random};
use crate::control::{Channel, FromAgent, Identified, Invitation, Listener, Secret, liveness};

/// The socket where agents of other hosts call back, as long as one of them is awaited.
pub(super) struct Door {
    listener: Listener<()>,
    /// What the agent of each host must know.
    tokens: Vec<Secret>,
    addresses: Vec<IpAddr>,
    detection: Duration,
    pub(super) closes_at: Instant,
}

impl Door {
    /// Begins to start an agent on each host.
    pub(super) fn open(
        remote: &Remote,
        routes: Vec<Route>,
        options: &Options,
    ) -> Result<(Vec<Station>, Door), LaunchError> {
        let system = LaunchError::system;
        let listener = listen(remote.address).map_err(system("listening for the agents"))?;
        let port = listener.socket().local_addr().map_err(system("listening for the agents"))?.port();
        let directory = std::env::current_dir().map_err(system("finding the current directory"))?;
        let mut door = Door {
            listener,
            tokens: Vec::new(),
            addresses: Vec::new(),
            detection: options.detection,
            closes_at: Instant::now() + START_MAX,
        };
        let mut stations = Vec::new();
        for (index, (host, ranks, addresses)) in (0..).zip(routes) {
            let token = Secret(random().map_err(system("reading random bytes"))?);
            let invitation = Invitation {
                host: index,
                name: host.name.clone(),
                token,
                addresses: addresses.clone(),
                port,
                directory: directory.clone(),
                detection: options.detection,
            };
            stations.push(Station::there(&host, ranks, &remote.shell, &invitation)?);
            door.tokens.push(token);
            door.addresses.extend(addresses);
        }
        door.addresses.sort();
        door.addresses.dedup();
        Ok((stations, door))
    }

    /// Accepts connections, and returns those of agents with the index of their host.
    pub(super) fn admit(&mut self, now: Instant) -> Vec<(usize, Channel)> {
        let detection = self.detection;
        let identified = self.listener.turn(now, |stream| {
            liveness::bound(&stream, detection).ok().map(|()| (Channel::new(stream), ()))
        });
        let known =
            identified.into_iter().filter_map(|Identified { channel, context: (), hello }| match hello {
                FromAgent::Hello { host, token } => {
                    (self.tokens.get(host as usize) == Some(&token)).then_some((host as usize, channel))
                }
                _ => None,
            });
        known.collect()
    }

    /// The descriptors that [`admit`](Self::admit) reads.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.descriptors()
    }

    /// When something is due here even if no descriptor is readable.
    pub(super) fn deadline(&self) -> Instant {
        self.listener.deadline().map_or(self.closes_at, |deadline| deadline.min(self.closes_at))
    }

    /// The error of agents that have not called back in time.
    pub(super) fn no_answer(&self, hosts: &[String]) -> LaunchError {
        let addresses: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        LaunchError::NoAnswer {
            hosts: hosts.join(", "),
            seconds: START_MAX.as_secs(),
            addresses: addresses.join(", "),
        }
    }
}

/// A host, its ranks, and our addresses as it reaches them.
pub(super) type Route = (Host, Range<u32>, Vec<IpAddr>);

/// Finds out what each host is to be told of where to call back.
pub(super) fn routes(remote: &Remote, options: &Options) -> Result<Vec<Route>, LaunchError> {
    let placed = distribute(&remote.hosts, options.ranks)?.into_iter();
    let addresses = |name: &str| remote.address.map_or_else(|| addresses_towards(name), |ours| vec![ours]);
    Ok(placed.map(|(host, ranks)| (host.clone(), ranks, addresses(&host.name))).collect())
}

/// On all our addresses, unless one is given.
fn listen(address: Option<IpAddr>) -> io::Result<Listener<()>> {
    let listener = match address {
        Some(address) => TcpListener::bind((address, 0)),
        // Takes IPv4 too, where the system has IPv6 at all.
        None => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))),
    }?;
    Listener::new(listener)
}

/// How long agents have to call back: as long as a slow login takes.
const START_MAX: Duration = Duration::from_secs(60);
