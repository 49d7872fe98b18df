//! Which protocol carries a message: a pure function of its size, the path and the credit.

use samite_fabric::Caps;
use samite_fabric::wire::Header;

use crate::config::{Config, OVERHEAD};
use crate::wire::{Data, Eager};

/// What matters of a path, computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Longest message in one packet.
    pub(crate) eager_max: usize,
    /// Bytes of a message in one DATA packet.
    pub(crate) data_max: usize,
    /// Whether this side can get.
    pub(crate) get: bool,
    /// Longest get.
    pub(crate) get_max: usize,
    /// Whether memory is safe to reuse once a peer is fenced off.
    pub(crate) fence: bool,
}

impl Limits {
    pub(crate) fn new(caps: &Caps, config: &Config) -> Self {
        Self {
            eager_max: config.eager_max.min(caps.packet_max - Header::LEN - size_of::<Eager>()),
            data_max: (caps.packet_max - Header::LEN - size_of::<Data>()) / LINE * LINE,
            get: caps.get && caps.rma_max > 0,
            get_max: config.pull_chunk.min(caps.rma_max).max(1),
            fence: caps.fence,
        }
    }

    /// Bytes of each but the last DATA packet of a message of `len` bytes. Sender and receiver copy at the same
    /// time, each a packet; so the shorter it is, the sooner the second begins, and the more often both look.
    pub(crate) fn piece(&self, len: usize) -> usize {
        (len / PIECES)
            .next_multiple_of(LINE)
            .clamp(PIECE_MIN, self.data_max.max(PIECE_MIN))
            .min(self.data_max)
    }
}

/// What processors copy at a time: pieces that begin at a multiple of it are copied fastest.
const LINE: usize = 64;
/// Pieces of a message that is not so long that more are needed.
const PIECES: usize = 4;
/// The shortest piece: below it the packets cost more than the waiting.
const PIECE_MIN: usize = 8 << 10;

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// With its envelope, at once.
    Eager,
    /// Not yet: credit for it is to come.
    Wait,
    /// Envelope first; the receiver gets the bytes.
    Pull,
    /// Envelope first; the receiver calls for the bytes, and they are sent.
    Push,
}

/// The protocols of messages of some lengths on a path, while the receiver has credit to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// Bytes of the shortest of them.
    pub from: usize,
    /// Bytes of the longest of them; none if there is no limit.
    pub to: Option<usize>,
    /// How a message goes whose bytes the sender has left with the engine.
    pub owned: &'static str,
    /// How a message goes that the sender has lent.
    pub borrowed: &'static str,
}

/// Which protocols carry messages over a path with these capabilities, by their length.
#[must_use]
pub fn protocols(caps: &Caps, config: &Config) -> [Protocols; 2] {
    let limits = Limits::new(caps, config);
    let long = limits.eager_max + 1;
    [(0, Some(limits.eager_max)), (long, None)].map(|(from, to)| {
        let name = |owned| match choose(from, &limits, u32::MAX, false, owned) {
            Choice::Eager => "eager",
            Choice::Wait => "wait",
            Choice::Pull => "pull",
            Choice::Push => "push",
        };
        Protocols { from, to, owned: name(true), borrowed: name(false) }
    })
}

/// What a message of `len` bytes takes of the receiver's credit if it goes eagerly.
#[inline]
pub(crate) fn cost(len: usize) -> u32 {
    // An eager message fits in a packet, far below the range of the counters.
    (len + OVERHEAD) as u32
}

/// Chooses. `exhausted`: the receiver has no more credit to give for now. `owned`: the bytes may be left with
/// the port until the receiver has them.
pub(crate) fn choose(len: usize, limits: &Limits, credit: u32, exhausted: bool, owned: bool) -> Choice {
    if len <= limits.eager_max {
        match exhausted {
            _ if credit >= cost(len) => Choice::Eager,
            false => Choice::Wait,
            // Registering memory for what fits in a packet costs more than a second packet.
            true => Choice::Push,
        }
    } else if owned && limits.get {
        Choice::Pull
    } else {
        Choice::Push
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_begin_where_lines_do() {
        let limits = Limits { eager_max: 1000, data_max: 28 << 10, get: false, get_max: 1, fence: true };
        for (len, piece) in [(1, PIECE_MIN), (32 << 10, PIECE_MIN), (64 << 10, 16 << 10), (1 << 30, 28 << 10)]
        {
            assert_eq!(limits.piece(len), piece, "{len}");
        }
        let small = Limits { data_max: 448, ..limits };
        assert_eq!((small.piece(1), small.piece(1 << 20)), (448, 448), "one packet at most");
        assert!((1..1 << 20).step_by(997).all(|len| limits.piece(len).is_multiple_of(LINE)));
    }

    #[test]
    fn the_table_of_choices() {
        let limits = Limits { eager_max: 1000, data_max: 1000, get: true, get_max: 1 << 20, fence: true };
        let without = Limits { get: false, ..limits };
        let rich = u32::MAX / 2;
        for (len, limits, credit, exhausted, owned, choice) in [
            (0, limits, rich, false, false, Choice::Eager),
            (1000, limits, cost(1000), true, false, Choice::Eager),
            (1000, limits, cost(1000) - 1, false, true, Choice::Wait),
            (1000, limits, cost(1000) - 1, true, true, Choice::Push),
            (0, limits, 0, true, false, Choice::Push),
            (1001, limits, rich, false, true, Choice::Pull),
            (1001, limits, rich, false, false, Choice::Push),
            (1001, without, rich, false, true, Choice::Push),
        ] {
            let chosen = choose(len, &limits, credit, exhausted, owned);
            assert_eq!(chosen, choice, "{len} bytes, credit {credit}, exhausted {exhausted}, owned {owned}");
        }
    }
}
