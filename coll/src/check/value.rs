//! Values that record their origin.

/// An element of a rank's contribution, or the reduction of such elements of several ranks. One number identifies the
/// set of the combined elements, and another number their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The sum of the numbers that stand for the elements.
    set: u64,
    /// The number whose digits to the base [`BASE`] stand for the elements in their order, modulo [`PRIME`].
    order: u64,
    /// The weight of a further digit on the left of these digits, modulo [`PRIME`].
    weight: u64,
}

/// A Mersenne prime. Because the modulus is prime, a wrong order has the same number as the right order only with a
/// probability of about 2^-61.
const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x1f3d_5b79_a2c4_e681;

fn times(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(PRIME)) as u64
}

impl Value {
    /// Returns element `index` of a rank's contribution.
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

    /// Returns true if both values are reductions of the same elements. Unless `commutes` is true, their order must be
    /// the same too.
    pub(super) fn is(self, other: Self, commutes: bool) -> bool {
        self.set == other.set && self.weight == other.weight && (commutes || self.order == other.order)
    }
}
