//! Random numbers that are the same on every machine and in every version.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). A
/// seed stands for the same simulation only while the generator returns the same numbers, so the generator is
/// implemented here and does not change. Do not use it for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a generator whose numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator that differs from run to run.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product has a bias of at most bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with a probability of `per_million` in a million.
    pub fn happens(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        // Reference: splitmix64.c by Sebastiano Vigna, seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [0u32; 5];
        (0..1000).for_each(|_| seen[rng.below(5) as usize] += 1);
        assert!(seen.iter().all(|&n| (150..250).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!(rng.happens(1_000_000) && !rng.happens(0));
    }
}
