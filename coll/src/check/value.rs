//! Values that record their origin.

/// The contribution of one rank, or the reduction of several ones. Two numbers identify it: one for the set of the
/// contributions, and one for their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The sum of numbers that stand for the contributions.
    set: u64,
    /// The contributions in their order, as digits of a number to the base [`BASE`], modulo [`PRIME`].
    order: u64,
    /// The weight of a digit before these.
    weight: u64,
}

/// A Mersenne prime, so that wrong orders have another number except with a probability of 2^-61.
const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x1f3d_5b79_a2c4_e681;

fn times(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(PRIME)) as u64
}

impl Value {
    /// Returns the element with an index of a rank's contribution.
    pub(super) fn of(rank: u32, index: usize) -> Self {
        // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
        let mut bits = u64::from(rank) << 40 ^ index as u64;
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        Self { set: bits, order: bits % PRIME, weight: BASE }
    }

    /// Returns the reduction with this value as the left operand.
    pub(super) fn before(self, right: Self) -> Self {
        Self {
            set: self.set.wrapping_add(right.set),
            order: (times(self.order, right.weight) + right.order) % PRIME,
            weight: times(self.weight, right.weight),
        }
    }

    /// Returns true if both values are reductions of the same contributions, in the same order unless the order may
    /// differ.
    pub(super) fn is(self, other: Self, commutes: bool) -> bool {
        self.set == other.set && self.weight == other.weight && (commutes || self.order == other.order)
    }
}
