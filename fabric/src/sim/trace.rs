//! What happened in a simulation, in few bytes.

use std::hash::{Hash, Hasher};

use super::{Cut, Life};

/// Something that happened, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceEvent {
    /// Virtual time.
    pub now_ns: u64,
    /// What happened.
    pub what: What,
}

impl std::fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            What::Note(note) => write!(f, "{:>12}  {note}", self.now_ns),
            what => write!(f, "{:>12}  {what:?}", self.now_ns),
        }
    }
}

/// What happened. `serial` is the number of a packet or operation, `check` a checksum of its first bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum What {
    Sent { from: Life, to: Life, serial: u64, len: usize, check: u64 },
    Put { from: Life, to: Life, serial: u64, len: usize },
    Got { from: Life, to: Life, serial: u64, len: usize },
    Again { by: Life },
    Arrived { at: Life, serial: u64, len: usize, check: u64 },
    Vanished { serial: u64 },
    Landed { at: Life, serial: u64 },
    Completed { at: Life, serial: u64, well: bool },
    Hangs { serial: u64 },
    Lost { at: Life, peer: u32 },
    Fenced { by: Life, peer: u32 },
    Started { life: Life },
    Killed { life: Life },
    Paused { rank: u32 },
    Resumed { rank: u32 },
    Cut { a: u32, b: u32, cut: Cut },
    Healed { a: u32, b: u32 },
    Note(String),
}

/// The events so far: their hash, and if asked for themselves.
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

/// A checksum of the length and the first bytes, enough to tell packets apart.
pub(super) fn check(bytes: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    bytes[..bytes.len().min(64)].hash(&mut hasher);
    hasher.finish()
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
