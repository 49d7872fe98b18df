//! The loops directly on libfabric, between two processes. Samite's overhead is measured against them.
//!
//! The loops are in [`samite_fabric::ofi::raw`]; this module sets them up and times them. The two processes
//! exchange addresses and numbers over a socket.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use samite_control::{Channel, Connection, Notice, Ticket, variable};
use samite_fabric::Remote;
use samite_fabric::ofi::OfiConfig;
use samite_fabric::ofi::raw::RawPair;
use samite_os::spawn::inherited_fd;

use crate::benchmark::{Benchmark, Point};
use crate::measure::{End, EndError};

/// One of two processes that exchange the measured messages directly over libfabric.
#[derive(Debug)]
pub(crate) struct Raw {
    rank: u32,
    config: OfiConfig,
    /// True if each message of a window is sent from a buffer of its own.
    is_owned: bool,
    other: UnixStream,
    ready: Option<Prepared>,
}

/// A pair that is ready to run a loop.
#[derive(Debug)]
struct Prepared {
    pair: RawPair,
    benchmark: Benchmark,
    bytes: usize,
    /// The number of messages in flight.
    window: usize,
    /// The other process's memory for puts.
    target: Option<Remote>,
}

/// Joins the job as a rank without a communicator. Returns the ticket, and the connection to the launcher.
pub(crate) fn accept() -> Result<(Ticket, Connection), EndError> {
    let control = std::env::var(variable::CONTROL)?;
    let fd = control.strip_prefix("fd:").ok_or("SAMITE_CONTROL names no descriptor")?.parse()?;
    let (ticket, stream) = Ticket::take(inherited_fd(fd)?.as_fd()).map_err(|error| format!("{error:?}"))?;
    Ok((ticket, Connection::new(Channel::new(stream))))
}

/// The maximum length of an address.
const ADDRESS_LEN_MAX: usize = 1024;

impl Raw {
    /// Returns the end of `rank`, 0 or 1; `other` is a socket to the other process.
    pub(crate) fn new(rank: u32, config: OfiConfig, other: UnixStream) -> Self {
        Self { rank, config, is_owned: false, other, ready: None }
    }

    /// Sends each message of a window from a buffer of its own, as programs do that give their buffers away.
    pub(crate) fn with_owned(self) -> Self {
        Self { is_owned: true, ..self }
    }

    /// Connects to the other rank of a job of two ranks.
    pub(crate) fn join(
        ticket: &Ticket,
        connection: &mut Connection,
        config: OfiConfig,
    ) -> Result<Self, EndError> {
        let other = if ticket.rank == 0 {
            connection.request_address(1)?;
            UnixStream::connect_addr(&socket_name(&wait_for_address(connection)?)?)?
        } else {
            let name = format!("samite-bench-{}", ticket.job);
            let listener = UnixListener::bind_addr(&socket_name(name.as_bytes())?)?;
            connection.publish(name.as_bytes())?;
            listener.accept()?.0
        };
        Ok(Self::new(ticket.rank, config, other))
    }

    fn swap(&mut self, ours: &[u8]) -> io::Result<Vec<u8>> {
        self.other.write_all(&(ours.len() as u32).to_le_bytes())?;
        self.other.write_all(ours)?;
        let mut len = [0; 4];
        self.other.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > ADDRESS_LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an address"));
        }
        let mut theirs = vec![0; len];
        self.other.read_exact(&mut theirs)?;
        Ok(theirs)
    }

    /// Sends the place of this process's memory for puts, and returns the place of the other's.
    fn swap_targets(&mut self, ours: Remote) -> Result<Remote, EndError> {
        let words = [ours.key, ours.address].map(u64::to_le_bytes);
        let theirs = self.swap(words.as_flattened())?;
        let (words, []) = theirs.as_chunks() else { return Err("the other process sent no place".into()) };
        let &[key, address] = words else { return Err("the other process sent no place".into()) };
        let [key, address] = [key, address].map(u64::from_le_bytes);
        Ok(Remote { key, address })
    }
}

impl End for Raw {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn transport(&self) -> String {
        self.config.provider.clone()
    }

    fn prepare(&mut self, benchmark: Benchmark, point: Point) -> Result<(), EndError> {
        self.ready = None;
        let window = match benchmark {
            Benchmark::Latency | Benchmark::Put => 1,
            Benchmark::Bandwidth | Benchmark::Rate | Benchmark::PutBandwidth => point.window(),
            _ => return Err("libfabric alone is measured between two ranks, without tags".into()),
        };
        let sources = if self.is_owned || benchmark == Benchmark::PutBandwidth { window } else { 1 };
        let mut pair = RawPair::open(&self.config, point.bytes, window, sources)?;
        let theirs = self.swap(pair.address())?;
        pair.connect(&theirs)?;
        let target = match benchmark.is_one_sided() {
            true => Some(self.swap_targets(pair.expose()?)?),
            false => None,
        };
        self.ready = Some(Prepared { pair, benchmark, bytes: point.bytes, window, target });
        Ok(())
    }

    fn agree(&mut self, number: u64) -> Result<u64, EndError> {
        let mut bytes = number.to_le_bytes();
        if self.rank == 0 {
            self.other.write_all(&bytes)?;
            self.other.read_exact(&mut [0])?;
        } else {
            self.other.read_exact(&mut bytes)?;
            self.other.write_all(&[0])?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError> {
        let prepared = self.ready.as_mut().ok_or("no point to measure")?;
        let &mut Prepared { ref mut pair, benchmark, bytes, window, target } = prepared;
        let count = usize::try_from(iterations)?;
        let begin = Instant::now();
        match (benchmark, self.rank, target) {
            (_, 0, Some(target)) => pair.put(target, bytes, window, count),
            (_, _, Some(_)) => pair.attend(),
            (Benchmark::Latency, 0, None) => pair.ping(bytes, count),
            (Benchmark::Latency, _, None) => pair.pong(bytes, count),
            (_, 0, None) => pair.stream(bytes, count),
            (_, _, None) => pair.sink(count),
        }?;
        Ok(begin.elapsed())
    }
}

/// Returns an abstract socket address (unix(7)), which has no file and disappears with the socket.
fn socket_name(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

fn wait_for_address(connection: &mut Connection) -> Result<Vec<u8>, EndError> {
    loop {
        match connection.poll()? {
            Some(Notice::Address { address, .. }) => return Ok(address),
            Some(Notice::Died { rank, ending, .. }) => {
                return Err(format!("rank {rank} is gone: {ending}").into());
            }
            Some(_) => return Err("the launcher is gone".into()),
            None => poll(&mut [PollFd::new(connection, PollFlags::IN)], None).map(drop)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::measure;

    #[test]
    fn the_loops_end_on_both_sides() {
        let (zero, one) = UnixStream::pair().unwrap();
        let config = OfiConfig { interface: Some("lo".into()), ..OfiConfig::default() };
        // The provider injects messages of 8 bytes, and sends messages of 100,000 bytes by its rendezvous.
        let points = [Benchmark::Latency, Benchmark::Bandwidth, Benchmark::Put, Benchmark::PutBandwidth]
            .map(|benchmark| (benchmark, benchmark.points(&[], &[8, 100_000], &[])));
        let run = |rank: u32, other: UnixStream| {
            let mut raw = Raw::new(rank, config.clone(), other);
            let all =
                points.iter().flat_map(|(benchmark, points)| points.iter().map(|point| (*benchmark, *point)));
            all.map(|(benchmark, point)| measure(&mut raw, benchmark, point).unwrap()).collect::<Vec<_>>()
        };
        let figures = std::thread::scope(|scope| {
            let follower = scope.spawn(|| run(1, one));
            let figures = run(0, zero);
            assert_eq!(follower.join().unwrap(), [None; 8]);
            figures
        });
        assert!(figures.iter().all(|spread| spread.is_some_and(|spread| spread.min > 0.0)));
    }
}
