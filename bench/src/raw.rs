//! The loops straight on libfabric, between two processes: the measure of what Samite adds.
//!
//! The loops themselves are [`samite_fabric::ofi::raw`]; here they are set up over any channel between the two, and
//! timed. Both sides call the same methods with the same arguments, one as [`Role::First`].

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use samite_fabric::PortError;
use samite_fabric::ofi::OfiConfig;
use samite_fabric::ofi::raw::RawPair;

/// Which of the two a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends first, and its clock counts.
    First,
    /// The other.
    Second,
}

/// Two processes connected by libfabric alone.
#[derive(Debug)]
pub struct Raw {
    pair: RawPair,
    role: Role,
    window: usize,
}

impl Raw {
    /// Opens libfabric for messages of up to `len_max` bytes, `window` of them in flight, and swaps addresses with the
    /// other process over `channel`.
    ///
    /// # Errors
    /// [`RawError`], of libfabric or of the channel.
    pub fn open(
        config: &OfiConfig,
        len_max: usize,
        window: usize,
        role: Role,
        channel: &mut (impl Read + Write),
    ) -> Result<Self, RawError> {
        let mut pair = RawPair::open(config, len_max, window)?;
        let theirs = swap(channel, pair.address())?;
        pair.connect(&theirs)?;
        let mut raw = Self { pair, role, window };
        // The connection is made by the first message.
        raw.exchange(1, 1)?;
        Ok(raw)
    }

    /// The time of `count` messages of `len` bytes each way, one at a time: divide by twice the count for the latency.
    ///
    /// # Errors
    /// [`RawError`] if the provider fails, or the other side is silent for long.
    pub fn ping_pong(&mut self, len: usize, count: usize) -> Result<Duration, RawError> {
        self.exchange(len, count / 10 + 1)?;
        let start = now();
        self.exchange(len, count)?;
        Ok(start.elapsed())
    }

    /// The time of `count` windows of messages of `len` bytes from first to second, each acknowledged as a whole. There are
    /// [`window`](Self::window) messages in each.
    ///
    /// # Errors
    /// As [`ping_pong`](Self::ping_pong).
    pub fn stream(&mut self, len: usize, count: usize) -> Result<Duration, RawError> {
        self.flow(len, count / 10 + 1)?;
        let start = now();
        self.flow(len, count)?;
        Ok(start.elapsed())
    }

    /// Messages in flight.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    fn exchange(&mut self, len: usize, count: usize) -> Result<(), RawError> {
        let done = match self.role {
            Role::First => self.pair.ping(len, count),
            Role::Second => self.pair.pong(len, count),
        };
        done.map_err(RawError::from)
    }

    fn flow(&mut self, len: usize, count: usize) -> Result<(), RawError> {
        let done = match self.role {
            Role::First => self.pair.stream(len, count),
            Role::Second => self.pair.sink(count),
        };
        done.map_err(RawError::from)
    }
}

/// Why a raw measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// Libfabric, which says why.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The channel to the other process.
    #[error("the other process is gone: {0}")]
    Channel(#[from] io::Error),
}

/// Addresses are shorter than this.
const ADDRESS_LEN_MAX: usize = 1024;

fn swap(channel: &mut (impl Read + Write), ours: &[u8]) -> io::Result<Vec<u8>> {
    channel.write_all(&(ours.len() as u32).to_le_bytes())?;
    channel.write_all(ours)?;
    channel.flush()?;
    let mut len = [0; 4];
    channel.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > ADDRESS_LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not an address"));
    }
    let mut theirs = vec![0; len];
    channel.read_exact(&mut theirs)?;
    Ok(theirs)
}

#[expect(clippy::disallowed_methods, reason = "measuring is what this crate is for")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn run(role: Role, mut channel: UnixStream) -> [Duration; 4] {
        let config = OfiConfig { interface: Some("lo".into()), ..OfiConfig::default() };
        let mut raw = Raw::open(&config, 1 << 20, 8, role, &mut channel).expect("tcp;ofi_rxm on lo");
        [
            raw.ping_pong(8, 100).expect("injected"),
            raw.ping_pong(1 << 20, 10).expect("by rendezvous"),
            raw.stream(8, 20).expect("injected"),
            raw.stream(100_000, 5).expect("by rendezvous"),
        ]
    }

    #[test]
    fn the_loops_end_on_both_sides() {
        let (a, b) = UnixStream::pair().expect("a socket pair");
        let times = std::thread::scope(|scope| {
            let second = scope.spawn(|| run(Role::Second, b));
            [run(Role::First, a), second.join().expect("the other side")]
        });
        assert!(times.iter().flatten().all(|time| *time > Duration::ZERO));
    }
}
