//! The tags of messages, and the contents of ordinary traffic. Sender and receiver both compute these contents from the
//! job's seed, both ranks and a number.

use samite_fabric::SplitMix64;

/// Bytes of the longest message.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// The number of bits of a tag that hold the kind of message. The other bits hold the message's number.
pub(crate) const KIND_BITS: u32 = 4;
/// Ordinary traffic.
pub(crate) const TRAFFIC: u64 = 0;
/// The tag of the last message from a rank to another rank. The message contains counts of the sender's earlier
/// messages or, in a job with restarts, the incarnations of sender and receiver.
pub(crate) const LAST: u64 = 1;
/// A tag that no message has. A receive with this tag ends only when its peer ends.
pub(crate) const NEVER_SENT: u64 = 2;

/// One message of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) seed: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The number of messages sent before this message in the same direction.
    pub(crate) number: u64,
}

impl Message {
    pub(crate) fn tag(&self) -> u64 {
        self.number << KIND_BITS | TRAFFIC
    }

    /// Returns the bytes of the message. Most messages are short, and some are so long that the transfer takes several
    /// pieces.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let way = u64::from(self.from) << 32 | u64::from(self.to);
        let mut rng =
            SplitMix64::new(self.seed ^ SplitMix64::new(way).next_u64() ^ self.number.rotate_left(40));
        let len = match rng.below(10) {
            0 => 0,
            1..=6 => rng.below(1_000),
            7 | 8 => rng.below(20_000),
            _ if rng.below(8) > 0 => rng.below(200_000),
            _ => rng.below(BYTES_MAX as u64 + 1),
        };
        let mut bytes = Vec::with_capacity(len as usize + 8);
        while bytes.len() < len as usize {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_differ_in_whatever_tells_them_apart() {
        let message = Message { seed: 1, from: 2, to: 3, number: 4 };
        assert_eq!(message.bytes(), message.bytes());
        let others = [
            Message { seed: 2, ..message },
            Message { from: 3, ..message },
            Message { to: 2, ..message },
            Message { number: 5, ..message },
        ];
        for other in others {
            assert_ne!(message.bytes(), other.bytes());
        }
    }
}
