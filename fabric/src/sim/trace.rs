//! The events of a simulation, in few bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::{Cut, Process};
use crate::wire::{Header, Protocol};

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceEvent {
    /// Virtual time.
    pub now_ns: u64,
    /// The event.
    pub what: What,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Note(note) => write!(f, "{:>12}  {note}", self.now_ns),
            what => write!(f, "{:>12}  {what:?}", self.now_ns),
        }
    }
}

/// The fields of a packet by which the trace identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Number of bytes.
    pub len: usize,
    /// A checksum of the first bytes.
    pub check: u64,
    /// The packet's protocol, kind and sequence number, if the packet has a [header](crate::wire::Header).
    pub header: Option<(Protocol, u8, u32)>,
}

impl Mark {
    /// Describes a packet that consists of `bytes` and of `behind` more bytes.
    pub(super) fn new(bytes: &[u8], behind: usize) -> Self {
        let mut hasher = Fnv::default();
        bytes[..bytes.len().min(64)].hash(&mut hasher);
        let header = Header::decode(bytes).ok();
        let header = header.map(|(header, _)| (header.protocol(), header.kind, header.sequence.get()));
        Self { len: bytes.len() + behind, check: hasher.finish(), header }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.header {
            Some((protocol, kind, sequence)) => {
                write!(f, "{protocol:?} kind {kind} number {sequence}, {} bytes", self.len)
            }
            None => write!(f, "{} bytes", self.len),
        }
    }
}

/// An event. `serial` is the number of a packet or operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum What {
    Sent { from: Process, to: Process, serial: u64, packet: Mark },
    Put { from: Process, to: Process, serial: u64, len: usize },
    Got { from: Process, to: Process, serial: u64, len: usize },
    Changed { from: Process, to: Process, serial: u64, len: usize },
    Arrived { at: Process, serial: u64, packet: Mark },
    Vanished { serial: u64 },
    Landed { at: Process, serial: u64 },
    Completed { at: Process, serial: u64, well: bool },
    Hangs { serial: u64 },
    Lost { at: Process, peer: u32 },
    Fenced { by: Process, peer: u32 },
    Started { process: Process },
    Killed { process: Process },
    Paused { rank: u32 },
    Resumed { rank: u32 },
    Cut { a: u32, b: u32, cut: Cut },
    Healed { a: u32, b: u32 },
    Note(String),
}

/// The hash of the events so far, and the events themselves if recorded.
#[derive(Debug, Default)]
pub(super) struct Trace {
    hasher: Fnv,
    pub(super) recorded: Option<Vec<TraceEvent>>,
}

impl Trace {
    pub(super) fn push(&mut self, now_ns: u64, what: What) {
        let event = TraceEvent { now_ns, what };
        event.hash(&mut self.hasher);
        if let Some(recorded) = &mut self.recorded {
            recorded.push(event);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

/// FNV-1a, 64 bits: the standard hasher's function may change from one version of Rust to the next.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
