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
}

impl Limits {
    pub(crate) fn new(caps: &Caps, config: &Config) -> Self {
        Self {
            eager_max: config.eager_max.min(caps.packet_max - Header::LEN - size_of::<Eager>()),
            data_max: caps.packet_max - Header::LEN - size_of::<Data>(),
            get: caps.get && caps.rma_max > 0,
            get_max: config.pull_chunk.min(caps.rma_max).max(1),
        }
    }
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// With its envelope, at once.
    Eager,
    /// Envelope first; the receiver gets the bytes.
    Pull,
    /// Envelope first; the receiver calls for the bytes, and they are sent.
    Push,
}

/// What a message of `len` bytes takes of the receiver's credit if it goes eagerly.
pub(crate) fn cost(len: usize) -> u32 {
    // An eager message fits in a packet, far below the range of the counters.
    u32::try_from(len + OVERHEAD).unwrap_or(u32::MAX)
}

/// Chooses. `owned` tells whether the bytes may be left with the port until the receiver has them.
pub(crate) fn choose(len: usize, limits: &Limits, credit: u32, owned: bool) -> Choice {
    if len <= limits.eager_max {
        // Registering memory for what fits in a packet costs more than a second packet.
        if credit >= cost(len) { Choice::Eager } else { Choice::Push }
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
    fn the_table_of_choices() {
        let limits = Limits { eager_max: 1000, data_max: 1000, get: true, get_max: 1 << 20 };
        let without = Limits { get: false, ..limits };
        let rich = u32::MAX / 2;
        for (len, limits, credit, owned, choice) in [
            (0, limits, rich, false, Choice::Eager),
            (1000, limits, cost(1000), false, Choice::Eager),
            (1000, limits, cost(1000) - 1, true, Choice::Push),
            (0, limits, 0, false, Choice::Push),
            (1001, limits, rich, true, Choice::Pull),
            (1001, limits, rich, false, Choice::Push),
            (1001, without, rich, true, Choice::Push),
        ] {
            assert_eq!(
                choose(len, &limits, credit, owned),
                choice,
                "{len} bytes, credit {credit}, owned {owned}"
            );
        }
    }
}
