//! Numbers that must not be mixed up: ranks of the job, times, and the numbers of packets and of incarnations, which
//! wrap.

use std::fmt;

use crate::SplitMix64;

/// The rank of a process in the job, and not in a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct WorldRank(pub u32);

impl WorldRank {
    /// Returns the number as an index into tables of all ranks.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for WorldRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for WorldRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time, in nanoseconds of the caller's monotonic clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// The time that is later than any other. It is the deadline of an operation that has no time limit.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time at which the clock shows `ns` nanoseconds.
    #[inline(always)]
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds that the clock shows.
    #[inline(always)]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time `ns` nanoseconds later, at most [`Time::NEVER`].
    #[inline(always)]
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds that have passed since `earlier`, or 0 if that is in fact later than this time.
    #[inline(always)]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(ns) => write!(f, "{ns} ns"),
        }
    }
}

/// The sequence number of a packet, among all packets that one incarnation of a rank sends to one incarnation of
/// another rank. It wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequence(u32);

impl Sequence {
    /// The number of each hello.
    pub(super) const HELLO: Self = Self(0);
    /// The number of the first packet after the hellos.
    pub(super) const FIRST: Self = Self(1);

    #[inline(always)]
    pub(super) fn new(number: u32) -> Self {
        Self(number)
    }

    #[inline(always)]
    pub(super) fn get(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns true if this is a later number than `other`.
    pub(super) fn is_after(self, other: Self) -> bool {
        is_after(self.0, other.0)
    }
}

/// The number of one process of a rank. A restarted rank has a larger number; numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Incarnation(u32);

impl Incarnation {
    /// Returns the incarnation with a number.
    #[inline(always)]
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the incarnation's number.
    #[inline(always)]
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the part of the number that each packet to the incarnation carries.
    #[inline(always)]
    pub(super) fn low(self) -> u16 {
        self.0 as u16
    }

    /// Returns true if this incarnation began after `other`.
    #[must_use]
    pub fn is_after(self, other: Self) -> bool {
        is_after(self.0, other.0)
    }
}

/// Returns the number of a rank's first incarnation. Each later incarnation has the next number. A packet is accepted
/// as a rank's only if it carries the rank's incarnation and the next sequence number, so an unauthenticated process
/// must not be able to guess the incarnation.
#[must_use]
pub fn first_incarnation(secret: &[u8; 16], rank: WorldRank) -> u32 {
    let half =
        |from: usize| secret[from..from + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let key = SplitMix64::new(half(0) ^ u64::from(rank.0)).next_u64();
    SplitMix64::new(key ^ half(8)).next_u64() as u32
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Compares numbers that wrap: `a` is after `b` if it is one of the 2^31 - 1 numbers that follow `b` (RFC 1982). Of two
/// numbers at a distance of 2^31 neither is after the other.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_wraps() {
        let half = 1 << 31;
        for base in [0_u32, 1, 7, half - 1, half, half + 1, u32::MAX - 1, u32::MAX] {
            for distance in [1, 2, 1000, half - 2, half - 1] {
                let later = base.wrapping_add(distance);
                assert!(is_after(later, base), "{later} is {distance} after {base}");
                assert!(!is_after(base, later), "{base} is {distance} before {later}");
            }
            let opposite = base.wrapping_add(half);
            assert!(!is_after(base, base));
            assert!(!is_after(base, opposite) && !is_after(opposite, base), "{base} and {opposite}");
        }
    }

    #[test]
    fn a_number_is_after_the_one_that_it_follows() {
        for number in [0, 1, u32::MAX - 1, u32::MAX].map(Sequence::new) {
            assert!(number.next().is_after(number) && !number.is_after(number.next()));
        }
        assert_eq!(Sequence::HELLO.next(), Sequence::FIRST);
    }
}
