//! A listening socket with its unauthenticated connections.
//!
//! Any process that reaches the socket can connect, so the cost of such a connection is bounded. Limits apply to the
//! number of connections, the number accepted in a turn, the bytes read from each, and the time for which each is kept.
//! The first line must be the hello; anything else closes the connection. If there are too many connections, the
//! listener finds the host from which most of them were made, and closes the oldest connection from that host. A
//! correct process may need a round trip before it sends its hello. In that time another process can make hundreds of
//! connections, and under this rule it displaces only connections from its own host.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;

use super::{Channel, Incoming};

/// A listening socket, and the connections that have not sent their hello. With each connection the caller stores a
/// value of type `C`.
#[derive(Debug)]
pub struct Listener<C> {
    socket: TcpListener,
    /// The connections in order of their age, the oldest first.
    connections: VecDeque<Unidentified<C>>,
    /// Until this time no connection is accepted, because the system failed to accept one.
    shut_until: Option<Instant>,
}

#[derive(Debug)]
struct Unidentified<C> {
    channel: Channel,
    context: C,
    /// The host from which the connection was made; see [`origin`].
    origin: IpAddr,
    until: Instant,
}

/// A connection that has sent its hello.
#[derive(Debug)]
pub struct Identified<C, M> {
    /// The connection.
    pub channel: Channel,
    /// The caller's value for the connection.
    pub context: C,
    /// The connection's first message.
    pub hello: M,
}

impl<C> Listener<C> {
    /// Returns a listener on a bound socket, which may be listening already.
    ///
    /// # Errors
    /// If the socket cannot be made nonblocking.
    pub fn new(socket: TcpListener) -> io::Result<Listener<C>> {
        socket.set_nonblocking(true)?;
        // With a short queue, clients that connect faster than a turn accepts would delay others for seconds.
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, connections: VecDeque::new(), shut_until: None })
    }

    /// Returns the listening socket.
    pub fn socket(&self) -> &TcpListener {
        &self.socket
    }

    /// Accepts connections and reads hellos: at most `ACCEPTED_MAX` connections, and from each as much as its channel
    /// reads in a turn. Returns the connections that have sent a hello. `prepare` configures a new connection; if it
    /// returns `None`, the connection is closed.
    pub fn turn<M: DeserializeOwned>(
        &mut self,
        now: Instant,
        mut prepare: impl FnMut(TcpStream) -> Option<(Channel, C)>,
    ) -> Vec<Identified<C, M>> {
        let mut identified = Vec::new();
        self.shut_until = self.shut_until.filter(|&until| now < until);
        for _ in 0..ACCEPTED_MAX {
            if self.shut_until.is_some() {
                break;
            }
            match self.socket.accept() {
                Ok((stream, peer)) => {
                    if self.connections.len() == UNIDENTIFIED_MAX {
                        identified.extend(self.make_room());
                    }
                    if let Some((channel, context)) = prepare(stream) {
                        let channel = channel.allowing(HELLO_BYTES_MAX);
                        self.connections.push_back(Unidentified {
                            channel,
                            context,
                            origin: origin(peer.ip()),
                            until: now + HELLO_WITHIN,
                        });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // accept(2) allocates a descriptor before it looks for a connection, so without a free descriptor it
                // fails even if no connection waits.
                Err(_) if !self.has_waiting() => break,
                // The system cannot accept a connection, for example because the process has no descriptor left.
                // Closing a connection gives a descriptor back.
                Err(_) if !self.connections.is_empty() => identified.extend(self.make_room()),
                // Accept nothing for a while: nothing reports when a descriptor is free again, and until then the
                // socket stays readable, which would keep this process busy.
                Err(_) => self.shut_until = Some(now + SHUT_FOR),
            }
        }
        for connection in std::mem::take(&mut self.connections) {
            let until = connection.until;
            match connection.try_hello() {
                HelloAttempt::Hello(found) => identified.push(found),
                HelloAttempt::Pending(connection) if now < until => self.connections.push_back(connection),
                HelloAttempt::Pending(_) | HelloAttempt::Invalid => {}
            }
        }
        identified
    }

    /// Returns true if a connection waits to be accepted, or the system cannot tell.
    fn has_waiting(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut socket, Some(&Timespec::default())) != Ok(0)
    }

    /// Closes the oldest connection from the host that has the most connections. If its hello has arrived, returns the
    /// connection instead.
    fn make_room<M: DeserializeOwned>(&mut self) -> Option<Identified<C, M>> {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for connection in &self.connections {
            *counts.entry(connection.origin).or_default() += 1;
        }
        let most = counts.values().max();
        let index = self.connections.iter().position(|connection| counts.get(&connection.origin) == most)?;
        match self.connections.remove(index)?.try_hello() {
            HelloAttempt::Hello(identified) => Some(identified),
            HelloAttempt::Pending(_) | HelloAttempt::Invalid => None,
        }
    }

    /// Returns the descriptors that [`turn`](Self::turn) reads.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = self.shut_until.is_none().then(|| self.socket.as_fd());
        socket.into_iter().chain(self.connections.iter().map(|connection| connection.channel.as_fd()))
    }

    /// Returns the time at which [`turn`](Self::turn) is due even if no descriptor is readable.
    pub fn deadline(&self) -> Option<Instant> {
        // The first connection is the oldest, so its time ends first.
        let closes = self.connections.front().map(|connection| connection.until);
        closes.into_iter().chain(self.shut_until).min()
    }
}

/// The result of reading the first line of a connection. `Invalid` means that the connection is of no use: it is
/// closed, or its first line is not a hello.
enum HelloAttempt<C, M> {
    Hello(Identified<C, M>),
    Pending(Unidentified<C>),
    Invalid,
}

impl<C> Unidentified<C> {
    fn try_hello<M: DeserializeOwned>(mut self) -> HelloAttempt<C, M> {
        match self.channel.receive_first() {
            Ok(Incoming::Message(hello)) => {
                HelloAttempt::Hello(Identified { channel: self.channel, context: self.context, hello })
            }
            Ok(Incoming::Nothing) => HelloAttempt::Pending(self),
            Ok(Incoming::Closed) | Err(_) => HelloAttempt::Invalid,
        }
    }
}

/// Returns one address for all addresses that a single host can use. Any user of this host can connect from any of its
/// loopback addresses, and a host in an IPv6 network can have any number of addresses in that network (RFC 7934).
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Largest number of connections without a hello.
const UNIDENTIFIED_MAX: usize = 256;

/// Largest number of connections accepted in one turn.
const ACCEPTED_MAX: usize = 64;

/// Largest number of connections that wait to be accepted; the system has its own limit, by default 4,096.
const BACKLOG: i32 = 4096;

/// The time for which a connection is kept without a hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// The pause after the system failed to accept a connection.
const SHUT_FOR: Duration = Duration::from_millis(100);

/// The longest hello, in bytes.
pub const HELLO_BYTES_MAX: usize = 1024;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "time is given to the listener")]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    use super::*;

    fn listener() -> Listener<()> {
        Listener::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap()
    }

    fn connect(listener: &Listener<()>) -> TcpStream {
        TcpStream::connect(listener.socket().local_addr().unwrap()).unwrap()
    }

    fn turn(listener: &mut Listener<()>, now: Instant) -> Vec<u32> {
        let identified = listener.turn(now, |stream| Some((Channel::new(stream), ())));
        identified.into_iter().map(|Identified { hello, .. }| hello).collect()
    }

    /// Takes turns until the listener has `count` connections that have been accepted and not closed.
    fn turn_until(listener: &mut Listener<()>, count: usize) {
        let now = Instant::now();
        while listener.connections.len() != count {
            assert_eq!(turn(listener, now), [] as [u32; 0]);
        }
    }

    fn is_closed(mut stream: &TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Makes silent connections, each accepted before the next is made.
    fn strangers(listener: &mut Listener<()>, count: usize) -> (Vec<TcpStream>, Vec<u32>) {
        let (mut strangers, mut hellos) = (Vec::new(), Vec::new());
        for _ in 0..count {
            strangers.push(connect(listener));
            let ours = strangers.last().unwrap().local_addr().unwrap();
            let is_in = |listener: &Listener<()>| {
                listener.connections.iter().any(|connection| peer_of(&connection.channel) == ours)
            };
            while !is_in(listener) {
                hellos.extend(turn(listener, Instant::now()));
            }
        }
        (strangers, hellos)
    }

    fn peer_of(channel: &Channel) -> std::net::SocketAddr {
        rustix::net::getpeername(channel).unwrap().unwrap().try_into().unwrap()
    }

    #[test]
    fn strangers_do_not_evict_a_hello_that_has_arrived() {
        let mut listener = listener();
        let mut oldest = connect(&listener);
        turn_until(&mut listener, 1);
        let (first, hellos) = strangers(&mut listener, UNIDENTIFIED_MAX - 1);
        assert_eq!((listener.connections.len(), hellos), (UNIDENTIFIED_MAX, Vec::new()));
        // The listener has as many connections as it may have, and more new connections are waiting than a turn
        // accepts, when the hello of the oldest connection arrives.
        let more: Vec<_> = (0..ACCEPTED_MAX + 10).map(|_| connect(&listener)).collect();
        oldest.write_all(b"7\n").unwrap();
        let mut hellos = Vec::new();
        while hellos.is_empty() {
            hellos = turn(&mut listener, Instant::now());
        }
        let mut last = connect(&listener);
        last.write_all(b"8\n").unwrap();
        while hellos.len() < 2 {
            hellos.extend(turn(&mut listener, Instant::now()));
        }
        assert_eq!(hellos, [7, 8]);
        // The oldest of the other connections were closed to make room.
        let closed = first.iter().take_while(|stranger| is_closed(stranger)).count();
        assert!(closed > 0 && !first[closed..].iter().chain(&more).any(is_closed), "{closed}");
        assert!(listener.connections.len() <= UNIDENTIFIED_MAX);
    }

    #[test]
    fn strangers_do_not_evict_a_connection_from_another_host() {
        let mut listener = listener();
        let mut slow = connect(&listener);
        turn_until(&mut listener, 1);
        listener.connections[0].origin = Ipv4Addr::new(192, 0, 2, 1).into();
        let (first, hellos) = strangers(&mut listener, 2 * UNIDENTIFIED_MAX);
        assert!(hellos.is_empty() && is_closed(&first[0]) && !is_closed(&slow));
        slow.write_all(b"7\n").unwrap();
        let mut hellos = Vec::new();
        while hellos.is_empty() {
            hellos = turn(&mut listener, Instant::now());
        }
        assert_eq!(hellos, [7]);
    }

    #[test]
    fn addresses_of_one_host_are_known_as_such() {
        let origins = |addresses: &[&str]| {
            let mut origins: Vec<_> =
                addresses.iter().map(|address| origin(address.parse().unwrap())).collect();
            origins.dedup();
            origins.len()
        };
        assert_eq!(origins(&["127.0.0.1", "127.3.2.1", "::ffff:127.0.0.1", "::1"]), 1);
        assert_eq!(origins(&["192.0.2.1", "::ffff:192.0.2.1"]), 1);
        assert_eq!(origins(&["2001:db8:1:2::3", "2001:db8:1:2:4::"]), 1);
        assert_eq!(origins(&["192.0.2.1", "192.0.2.2", "127.0.0.1", "2001:db8:1:3::", "2001:db8:1:2::"]), 5);
    }

    #[test]
    fn only_a_hello_may_come_first() {
        for garbage in [&b"\n"[..], b"\n7\n", b"{}\n", b"GET / HTTP/1.1\r\n", &[b'7'; 3 * HELLO_BYTES_MAX]] {
            let mut listener = listener();
            let mut stranger = connect(&listener);
            stranger.write_all(garbage).unwrap();
            while !is_closed(&stranger) {
                assert_eq!(turn(&mut listener, Instant::now()), [] as [u32; 0]);
            }
        }
    }

    #[test]
    fn a_connection_without_a_hello_is_closed_in_time() {
        let mut listener = listener();
        let (silent, mut half) = (connect(&listener), connect(&listener));
        half.write_all(b"12").unwrap();
        turn_until(&mut listener, 2);
        let until = listener.deadline().unwrap();
        assert_eq!(turn(&mut listener, until - Duration::from_millis(1)), [] as [u32; 0]);
        assert!(!is_closed(&silent) && !is_closed(&half));
        assert_eq!(turn(&mut listener, until), [] as [u32; 0]);
        assert!(listener.connections.is_empty() && listener.deadline().is_none());
        assert!(is_closed(&silent) && is_closed(&half));
    }
}
