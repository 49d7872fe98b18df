//! A connection that carries one JSON message a line.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::printable::one_line;

/// The longest line that a rank or an agent may send, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The number of bytes after which a turn stops reading from its socket. That is some hundred messages.
const TURN_BYTES: usize = 64 << 10;

/// One end of a connection over a stream socket. Neither reading nor writing blocks; bytes that the other end does not
/// accept yet wait in a queue.
///
/// The calls of [`receive`](Self::receive) up to the one that returns [`Incoming::Nothing`] are a *turn*. A turn reads
/// a bounded number of bytes, however fast the other end writes, so that no connection keeps its thread from other
/// connections.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    line_bytes_max: usize,
    /// The number of bytes that this turn may still read.
    allowance: usize,
    /// True if the last turn ended because it had read `TURN_BYTES`.
    has_more: bool,
    /// The error after which nothing more can be sent. [`Channel::receive`] takes it from here and returns it, once it
    /// has returned all messages that have arrived.
    broken: Option<Errno>,
}

/// The result of [`Channel::receive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<M> {
    /// A message.
    Message(M),
    /// No whole message has arrived yet, or this turn has read as much as it may. All whole lines that were read have
    /// been returned, so the socket is readable if more has arrived.
    Nothing,
    /// The other end is closed, and all whole messages that arrived have been returned.
    Closed,
}

/// An error of a connection. After [`Malformed`](Self::Malformed), the next line can still be received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A line longer than the limit.
    #[error("the received line is longer than {0} bytes")]
    LineTooLong(usize),
    /// A received line that is not the expected message, or a message that cannot be written as JSON.
    #[error("the received line is no message of this protocol: {}", one_line(&.0.to_string()))]
    Malformed(#[source] serde_json::Error),
    /// The socket itself failed.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
}

impl Channel {
    /// Returns a channel over a connected socket, with [`LINE_BYTES_MAX`] as the limit for received lines.
    pub fn new(socket: impl Into<OwnedFd>) -> Channel {
        Channel::with_line_limit(socket, LINE_BYTES_MAX)
    }

    /// Returns a channel over a connected socket, with `line_bytes_max` as the limit for received lines.
    pub fn with_line_limit(socket: impl Into<OwnedFd>, line_bytes_max: usize) -> Channel {
        let socket = socket.into();
        Channel {
            socket,
            inbound: Vec::new(),
            outbound: Vec::new(),
            line_bytes_max,
            allowance: TURN_BYTES,
            has_more: false,
            broken: None,
        }
    }

    /// Returns the same channel with `line_bytes_max` as the limit for received lines.
    pub fn allowing(self, line_bytes_max: usize) -> Channel {
        Channel { line_bytes_max, ..self }
    }

    /// Receives the next message. Skips heartbeats.
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<Incoming<M>, ChannelError> {
        self.receive_line(true)
    }

    /// Receives the first message of an unauthenticated connection. A heartbeat before that message is an error.
    pub fn receive_first<M: DeserializeOwned>(&mut self) -> Result<Incoming<M>, ChannelError> {
        self.receive_line(false)
    }

    /// Returns true if the last turn ended at its limit, so that the socket may hold more bytes.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    fn receive_line<M: DeserializeOwned>(&mut self, skips_beats: bool) -> Result<Incoming<M>, ChannelError> {
        let mut searched = 0;
        loop {
            if skips_beats && searched == 0 {
                let beats = self.inbound.iter().take_while(|&&byte| byte == b'\n').count();
                self.inbound.drain(..beats);
            }
            if let Some(length) = self.inbound[searched..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.inbound.drain(..=searched + length).collect();
                let message = serde_json::from_slice(&line[..line.len() - 1]);
                return message.map(Incoming::Message).map_err(ChannelError::Malformed);
            }
            searched = self.inbound.len();
            if searched > self.line_bytes_max {
                return Err(ChannelError::LineTooLong(self.line_bytes_max));
            }
            if self.allowance == 0 {
                (self.allowance, self.has_more) = (TURN_BYTES, true);
                return Ok(Incoming::Nothing);
            }
            let mut chunk = [0; 4096];
            match recv(&self.socket, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return self.broken.take().map_or(Ok(Incoming::Closed), |why| Err(failed(why))),
                Ok((_, count)) => {
                    self.inbound.extend_from_slice(&chunk[..count]);
                    self.allowance = self.allowance.saturating_sub(count);
                }
                Err(Errno::AGAIN) => {
                    (self.allowance, self.has_more) = (TURN_BYTES, false);
                    return self.broken.take().map_or(Ok(Incoming::Nothing), |why| Err(failed(why)));
                }
                Err(Errno::INTR) => {}
                // A Unix socket reports this if its peer closed while bytes from this end were unread.
                Err(Errno::CONNRESET) => return Ok(Incoming::Closed),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Queues `message` and sends as much of the queue as the other end accepts now.
    pub fn send<M: Serialize>(&mut self, message: &M) -> Result<(), ChannelError> {
        serde_json::to_writer(&mut self.outbound, message).map_err(ChannelError::Malformed)?;
        self.outbound.push(b'\n');
        self.flush();
        Ok(())
    }

    /// Sends a heartbeat, so that a broken connection is detected: see [`super::liveness`].
    pub fn beat(&mut self) {
        if self.outbound.is_empty() {
            self.outbound.extend_from_slice(BEAT);
            self.outbound.push(b'\n');
        }
        self.flush();
    }

    /// Sends as much of the queue as the other end accepts now. If the connection is broken, drops the queue. After the
    /// last message, [`receive`](Self::receive) then returns the error, or [`Incoming::Closed`] if the other end has
    /// closed the connection.
    pub fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.outbound.len() {
            match send(&self.socket, &self.outbound[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    sent = self.outbound.len();
                    if !matches!(error, Errno::PIPE | Errno::CONNRESET) {
                        self.broken = Some(error);
                    }
                }
            }
        }
        self.outbound.drain(..sent);
    }

    /// Returns true if messages wait for the other end to accept them.
    pub fn is_backed_up(&self) -> bool {
        !self.outbound.is_empty()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(error: Errno) -> ChannelError {
    ChannelError::Socket(error.into())
}

/// A heartbeat: a line without a message.
const BEAT: &[u8] = b"";

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), theirs)
    }

    #[test]
    fn messages_arrive_whole_however_the_bytes_come() {
        let (mut channel, mut peer) = pair();
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Nothing);
        peer.write_all(b"1").unwrap();
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Nothing);
        peer.write_all(b"2\n34\n5").unwrap();
        drop(peer);
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Message(12));
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Message(34));
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Closed);
    }

    #[test]
    fn malformed_lines_are_errors_and_the_next_line_is_read() {
        let (mut channel, mut peer) = pair();
        peer.write_all(b"{]\n\xff\xfe\n \n7\n").unwrap();
        for _ in 0..3 {
            assert!(matches!(channel.receive::<u32>(), Err(ChannelError::Malformed(_))));
        }
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Message(7));
    }

    #[test]
    fn a_beat_is_no_message() {
        let (mut channel, peer) = pair();
        let mut peer = Channel::new(peer);
        peer.beat();
        peer.send(&1).unwrap();
        peer.beat();
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Message(1));
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Nothing);
    }

    /// The other end fills the socket again after each read.
    #[test]
    fn a_turn_ends_however_fast_the_other_end_writes() {
        for flood in ["\n", "7\n", "[1,\n", "1"] {
            let (ours, peer) = UnixStream::pair().unwrap();
            let mut channel = Channel::with_line_limit(ours, 1 << 20);
            peer.set_nonblocking(true).unwrap();
            let bytes = flood.repeat(1 << 16);
            let mut turn = 0;
            loop {
                while matches!((&peer).write(bytes.as_bytes()), Ok(1..)) {}
                turn += 1;
                assert!(turn <= TURN_BYTES, "{flood:?}");
                if matches!(channel.receive::<u32>(), Ok(Incoming::Nothing)) {
                    break;
                }
            }
            assert!(channel.has_more());
            // All messages that were read so far have been returned.
            assert!(!channel.inbound.contains(&b'\n'), "{flood:?}");
        }
    }

    #[test]
    fn nothing_may_come_before_the_first_message() {
        let (mut channel, mut peer) = pair();
        assert_eq!(channel.receive_first::<u32>().unwrap(), Incoming::Nothing);
        peer.write_all(b"7\n\n8\n").unwrap();
        assert_eq!(channel.receive_first::<u32>().unwrap(), Incoming::Message(7));
        assert!(matches!(channel.receive_first::<u32>(), Err(ChannelError::Malformed(_))));
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let mut channel = Channel::with_line_limit(ours, 10_000);
        peer.write_all(&[b'1'; 20_000]).unwrap();
        assert!(matches!(channel.receive::<u32>(), Err(ChannelError::LineTooLong(10_000))));
    }

    #[test]
    fn what_the_peer_does_not_take_is_kept_and_sent_later() {
        let (mut channel, peer) = pair();
        let message = "x".repeat(LINE_BYTES_MAX / 2);
        let mut queued = 0;
        while !channel.is_backed_up() {
            channel.send(&message).unwrap();
            queued += 1;
        }
        let mut peer = Channel::new(peer);
        let mut received = 0;
        while received < queued {
            match peer.receive::<String>().unwrap() {
                Incoming::Message(text) => {
                    assert_eq!(text, message);
                    received += 1;
                }
                _ => channel.flush(),
            }
        }
        assert!(!channel.is_backed_up());
    }

    #[test]
    fn a_closed_peer_is_seen_by_receive_and_not_by_send() {
        let (mut channel, peer) = pair();
        channel.send(&1).unwrap();
        drop(peer);
        channel.send(&2).unwrap();
        assert_eq!(channel.receive::<u32>().unwrap(), Incoming::Closed);
    }
}
