//! What the engine knows of a peer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use samite_fabric::wire::{Flags, Protocol};
use samite_fabric::{Address, PeerId};
use smallvec::SmallVec;

use crate::choose::Limits;
use crate::error::Cause;
use crate::wire::control;
use crate::{RequestId, Traffic};

/// One peer, in one of its lives.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) rank: u32,
    /// Which life; none until told by whoever gives addresses, or by the peer itself.
    pub(crate) incarnation: Option<u32>,
    pub(crate) standing: Standing,
    /// Whether its process is stopped, as whoever watches over it says.
    pub(crate) is_stopped: bool,
    /// When it ceased to take part, whether the launcher has told how its process ended, and whether the launcher starts
    /// it again.
    pub(crate) ended_ns: u64,
    pub(crate) is_told: bool,
    pub(crate) returns: bool,
    /// The way to it; none until its address is known. Whether that is wanted.
    pub(crate) path: Option<(PeerId, Limits)>,
    pub(crate) sought: bool,

    /// Number of the next packet to it.
    pub(crate) sequence: u32,
    /// Number of the packet that it expects next, as it said last.
    pub(crate) acked: u32,
    /// Number of the goodbye to it, once that is sent.
    pub(crate) bye: Option<u32>,
    /// Hellos to it, and whether any packet of it has acknowledged one.
    pub(crate) greetings: u32,
    pub(crate) answered: bool,
    /// Credit it granted and credit used, in all: cumulative, wrapping.
    pub(crate) granted: u32,
    pub(crate) spent: u32,
    /// Whether it was asked for more credit and has not answered; whether it answered that it has none.
    pub(crate) asked: bool,
    pub(crate) exhausted: bool,
    /// What waits for room in the port, in order. Packets go before messages: those may have to wait for
    /// credit too.
    pub(crate) packets: VecDeque<Packet>,
    pub(crate) messages: VecDeque<Outgoing>,
    /// Sends whose bytes it has called for, or that follow their envelope. They go after both: these are shorter.
    pub(crate) pushes: VecDeque<RequestId>,
    /// Whether it is in the engine's list of peers with something to send.
    pub(crate) listed: bool,

    /// Number of the next packet from it.
    pub(crate) expected: u32,
    /// Whether its hello came.
    pub(crate) heard: bool,
    /// Credit given to it, the part it was told of, and the part it used: cumulative, wrapping.
    pub(crate) given: u32,
    pub(crate) told: u32,
    pub(crate) charged: u32,
    /// Credit it may hold unused.
    pub(crate) window: u32,
    /// Whether it asked for more, and waits for an answer.
    pub(crate) hungry: bool,
    /// Whether it is in the engine's list of peers that need credit.
    pub(crate) starving: bool,
    /// What was exchanged with the rank, whichever life it was in.
    pub(crate) traffic: Traffic,
}

/// Whether a peer takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    /// It said goodbye: what it sent can be received, nothing can be sent to it.
    Left,
    Failed(Cause),
}

/// What keeps its order with the messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing {
    /// A message's first packet: eager or RTS, decided when there is room.
    Message(RequestId),
    /// The last packet of all.
    Goodbye,
}

/// A packet that may overtake messages.
pub(crate) struct Packet {
    pub(crate) protocol: Protocol,
    pub(crate) kind: u8,
    pub(crate) flags: Flags,
    pub(crate) body: SmallVec<[u8; 32]>,
}

impl fmt::Debug for Packet {
    /// Without the body: that of a hello has the job's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, kind, flags, body } = self;
        write!(f, "{protocol:?} {kind} {flags:?}, {} bytes", body.len())
    }
}

impl Packet {
    /// One that carries nothing but its header.
    pub(crate) fn credit(flags: Flags) -> Self {
        Self { protocol: Protocol::Control, kind: control::CREDIT, flags, body: SmallVec::new() }
    }

    /// Whether it is the one that must come before all others.
    pub(crate) fn is_hello(&self) -> bool {
        (self.protocol, self.kind) == (Protocol::Control, control::HELLO)
    }
}

impl Peer {
    fn new(rank: u32) -> Self {
        Self {
            rank,
            incarnation: None,
            standing: Standing::Alive,
            is_stopped: false,
            ended_ns: 0,
            is_told: false,
            returns: false,
            path: None,
            sought: false,
            sequence: 0,
            acked: 0,
            bye: None,
            greetings: 0,
            answered: false,
            granted: 0,
            spent: 0,
            asked: false,
            exhausted: false,
            packets: VecDeque::new(),
            messages: VecDeque::new(),
            pushes: VecDeque::new(),
            listed: false,
            expected: 0,
            heard: false,
            given: 0,
            told: 0,
            charged: 0,
            window: 0,
            hungry: false,
            starving: false,
            traffic: Traffic::default(),
        }
    }

    /// Credit that is left for eager data to it.
    #[inline]
    pub(crate) fn credit(&self) -> u32 {
        self.granted.wrapping_sub(self.spent)
    }

    /// Accounts for a packet to it that the port took.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        self.told = self.given;
    }

    /// Credit that it holds unused.
    #[inline]
    pub(crate) fn unused(&self) -> u32 {
        self.given.wrapping_sub(self.charged)
    }

    /// Whether nothing waits to be sent to it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.packets.is_empty() && self.messages.is_empty()
    }

    /// How much waits to be sent to it: packets, messages, and the bytes of messages.
    pub(crate) fn queued(&self) -> usize {
        self.packets.len() + self.messages.len() + self.pushes.len()
    }

    /// Credit that it knows of and has not used.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.told.wrapping_sub(self.charged)
    }

    /// Whether it is time to give it more credit: at half the window, so that any packet to it can tell; or
    /// to tell it with a packet for that alone, where none has gone by the time a quarter is left.
    #[inline]
    pub(crate) fn runs_short(&self) -> bool {
        let known = self.known();
        known < self.window / 4 || (known < self.window / 2 && self.given == self.told)
    }

    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.standing, Standing::Alive)
    }

    /// Returns true if the launcher will still tell how the peer's process ended: it said goodbye, or the port lost it.
    pub(crate) fn awaits_word(&self) -> bool {
        !self.is_told && matches!(self.standing, Standing::Left | Standing::Failed(Cause::Lost))
    }

    /// Why it takes no part, if so.
    #[cold]
    pub(crate) fn failure(&self) -> Option<Cause> {
        match &self.standing {
            Standing::Alive => None,
            Standing::Left => Some(Cause::Left),
            Standing::Failed(cause) => Some(cause.clone()),
        }
    }
}

/// The peers met so far, by index and by rank. Grows by contact, not with the job.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: Vec<Peer>,
    by_rank: HashMap<u32, u32, BuildHasherDefault<RankHasher>>,
    recent: Recent,
}

/// Ranks looked up last, and their indexes, each where the remainder of its rank says: most traffic is with few.
#[derive(Debug)]
struct Recent([(u32, u32); 16]);

impl Default for Recent {
    fn default() -> Self {
        // Of no rank: that would be elsewhere.
        Self(std::array::from_fn(|place| (place as u32 + 1, 0)))
    }
}

impl Recent {
    #[inline]
    fn of(&mut self, rank: u32) -> &mut (u32, u32) {
        &mut self.0[rank as usize % self.0.len()]
    }
}

impl Peers {
    /// The index of a rank's peer, if it was met.
    #[inline]
    pub(crate) fn find(&mut self, rank: u32) -> Option<u32> {
        let recent = self.recent.of(rank);
        if recent.0 != rank {
            *recent = (rank, *self.by_rank.get(&rank)?);
        }
        Some(recent.1)
    }

    pub(crate) fn meet(&mut self, rank: u32) -> u32 {
        let index = self.all.len() as u32;
        self.all.push(Peer::new(rank));
        self.by_rank.insert(rank, index);
        *self.recent.of(rank) = (rank, index);
        index
    }

    /// Forgets all but the rank and its traffic: the peer begins another life.
    pub(crate) fn renew(&mut self, index: u32) {
        let peer = &mut self[index];
        // It may still be in the engine's lists, which find nothing to do there.
        let (listed, starving, traffic) = (peer.listed, peer.starving, peer.traffic);
        *peer = Peer { listed, starving, traffic, ..Peer::new(peer.rank) };
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        (0..).zip(&self.all)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The peer at the other end of a port's path.
    pub(crate) fn on_path(&self, path: PeerId) -> Option<u32> {
        self.iter().find(|(_, peer)| peer.path.is_some_and(|(id, _)| id == path)).map(|(index, _)| index)
    }
}

impl std::ops::Index<u32> for Peers {
    type Output = Peer;
    #[inline]
    fn index(&self, index: u32) -> &Peer {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Peers {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Peer {
        &mut self.all[index as usize]
    }
}

/// Hashes a rank by one multiplication: ranks are not chosen by an adversary, who would need the job's secret
/// to be one.
#[derive(Default)]
struct RankHasher(u64);

impl Hasher for RankHasher {
    fn write_u32(&mut self, rank: u32) {
        // The golden ratio in 64 bits: Fibonacci hashing (Knuth, vol. 3, section 6.4).
        self.0 = u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(self.0 as u32 ^ u32::from(byte));
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// An address with the life of the process that listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) incarnation: u32,
    pub(crate) address: Address,
}
