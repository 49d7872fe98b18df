//! Values that record their origin.

/// An element of a rank's contribution, or the reduction of such elements of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The sum of the numbers that stand for the elements.
    set: u64,
    /// The number whose digits to the base [`BASE`] stand for the elements in their order, modulo [`PRIME`].
    order: u64,
    /// The weight of a further digit on the left of these digits, modulo [`PRIME`].
    weight: u64,
    /// A hash of the reductions by which the elements were combined, with their operands.
    tree: u64,
}

/// The extent to which two reductions must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    /// They have combined the same elements.
    Elements,
    /// They have combined the same elements in the same order.
    Order,
    /// They have combined the same elements by the same reductions. So the results have the same bits even if the
    /// operation is not associative.
    Tree,
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
        let bits = hash(u64::from(rank) << 40 ^ index as u64);
        Self { set: bits, order: bits % PRIME, weight: BASE, tree: bits }
    }

    /// Returns the reduction with this value as the left operand.
    pub(super) fn before(self, right: Self) -> Self {
        Self {
            set: self.set.wrapping_add(right.set),
            order: (times(self.order, right.weight) + right.order) % PRIME,
            weight: times(self.weight, right.weight),
            tree: hash(self.tree ^ hash(right.tree)),
        }
    }

    /// Returns true if both values are reductions that agree as far as `same` says.
    pub(super) fn is(self, other: Self, same: Same) -> bool {
        let same_elements = self.set == other.set && self.weight == other.weight;
        same_elements
            && match same {
                Same::Elements => true,
                Same::Order => self.order == other.order,
                Same::Tree => self.order == other.order && self.tree == other.tree,
            }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
fn hash(number: u64) -> u64 {
    let bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
