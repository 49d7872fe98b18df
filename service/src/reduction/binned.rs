//! Sums of floating-point numbers that do not depend on the order of the numbers.
//!
//! # The algorithm
//!
//! Unit b is the power of two 2^(36 b − 1002). A number x is written as a sum of digits, each a multiple of a unit:
//! digit b is the rest of x without the digits above b, rounded to a multiple of unit b, with ties to the even
//! multiple. So a digit depends on x alone. It is at most 2^35 units, and it is 0 if unit b is more than twice |x|.
//!
//! The sum consists of the sums of the digits of all numbers for three consecutive units, as integers. The highest of
//! the three units is chosen by the largest number, such that all higher digits are 0. If a larger number is added
//! later, the three units move up, and the lowest sums are dropped. Sums of integers are exact, so the result depends
//! only on the numbers: it is the same if the dropped digits had never been added.
//!
//! A dropped part of x is at most half of the lowest unit. The highest unit is at most twice the largest number, so the
//! lowest one is at most 2^-71 times the largest number. That gives the bound on the error.
//!
//! Sources: Demmel and Nguyen: *Parallel Reproducible Summation*. IEEE Transactions on Computers 64(7), 2015; Ahrens,
//! Demmel and Nguyen: *Algorithms for Efficient Reproducible Floating Point Summation*. ACM Transactions on
//! Mathematical Software 46(3), 2020. They keep the sums as floating-point numbers. Integers have one representation
//! of each value, which can be compared and sent. The extraction of digits by two additions is from Rump, Ogita and
//! Oishi: *Accurate Floating-Point Summation, Part I: Faithful Rounding*. SIAM Journal on Scientific Computing 31(1),
//! 2008.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ReduceOp, Sum};

/// A sum of floating-point numbers whose value depends only on the numbers: not on their order, and not on their
/// division among ranks or threads.
///
/// Each rank adds its numbers to a sum of its own. [`Sum`] merges the sums of all ranks, by any algorithm. So the
/// result has the same bits for any number of ranks:
///
/// ```
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// use samite::reduction::{BinnedSum, Sum};
///
/// // The numbers are divided among the ranks.
/// let numbers = [0.1, 3.25, -0.5, 1e-3, 7.0, 2.5];
/// let ranks = comm.size() as usize;
/// let mine = numbers.iter().copied().skip(comm.rank().0 as usize).step_by(ranks);
///
/// let mut sum = [mine.collect::<BinnedSum>()];
/// comm.allreduce_in_place(&mut sum, Sum)?;
/// assert_eq!(sum[0].value(), 12.351);
/// assert_eq!(sum[0], numbers.into_iter().collect());
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// # Accuracy
///
/// Let m be the largest absolute value of n numbers. The difference between [`value`](Self::value) and the exact sum is
/// at most n · m · 2^-72, and half of the distance between neighbouring floating-point numbers at the value. The error
/// of a usual sum may be n · 2^-53 times the sum of the absolute values.
///
/// # Special values
///
/// * If a number is not a number (NaN), or if both infinities occur, the value is `f64::NAN`. Otherwise the infinity
///   that occurs is the value.
/// * There is no overflow before the end: the value is infinite only if the exact sum rounds to an infinity.
/// * Subnormal numbers are summed up without a loss, unless larger numbers make them negligible as above.
/// * A sum of 0 is `+0.0`, also if all numbers are `-0.0`, or if there are none.
///
/// A sum may contain up to 2^44 numbers. Beyond that the value may be wrong, although it still has the same bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BinnedSum {
    /// The low 64 bits of the sums of digits, which are integers in two's complement. The first one is that of the
    /// highest unit.
    low: [u64; DIGITS],
    /// The high 16 bits of these sums.
    high: [i16; DIGITS],
    /// The number of the highest unit. A sum that a peer has sent may have any number here: see [`Self::unit`].
    unit: u8,
    /// The special values that occurred: a set of [`NAN`], [`POSITIVE`] and [`NEGATIVE`].
    special: u8,
}

/// The number of sums.
const DIGITS: usize = 3;
/// The logarithm of the ratio of neighbouring units to base 2.
const WIDTH: i32 = 36;
/// The exponent of unit 0. The third unit from it downwards is 2^-1074, of which all numbers are multiples.
const LOWEST: i32 = -1002;
/// The number of the unit of the largest numbers.
const HIGHEST: u8 = 56;

const NAN: u8 = 1;
/// Positive infinity.
const POSITIVE: u8 = 2;
/// Negative infinity.
const NEGATIVE: u8 = 4;

/// The numbers that are processed at the same time.
const LANES: usize = 8;
/// The length of a block in units of [`LANES`]. The digits of a block are added up as floating-point numbers, before
/// their sums become integers.
const BLOCK: usize = 32;

impl BinnedSum {
    /// Returns a sum without numbers.
    #[must_use]
    pub const fn new() -> Self {
        Self { low: [0; DIGITS], high: [0; DIGITS], unit: 0, special: 0 }
    }

    /// Adds a number. [`extend`](Self::extend) needs less time for many numbers.
    pub fn add(&mut self, number: impl Into<f64>) {
        match number.into() {
            f64::INFINITY => self.special |= POSITIVE,
            f64::NEG_INFINITY => self.special |= NEGATIVE,
            number if number.is_nan() => self.special |= NAN,
            number => {
                let mut rest = number * self.prepare(number);
                for (index, ratio) in RATIOS.into_iter().enumerate() {
                    let digit = take_digit(&mut rest, 1.0 / ratio);
                    self.increase(index, i128::from((digit * ratio) as i64));
                }
            }
        }
    }

    /// Adds all numbers of another sum.
    pub fn merge(&mut self, other: &Self) {
        self.special |= other.special;
        let unit = self.unit().max(other.unit());
        self.raise(unit);
        let shift = usize::from(unit - other.unit());
        for index in shift..DIGITS {
            self.increase(index, other.get(index - shift));
        }
    }

    /// Returns the sum of the numbers, rounded to the nearest floating-point number.
    #[must_use]
    pub fn value(&self) -> f64 {
        match (self.special & NAN != 0, self.special & POSITIVE != 0, self.special & NEGATIVE != 0) {
            (true, _, _) | (_, true, true) => return f64::NAN,
            (_, true, false) => return f64::INFINITY,
            (_, false, true) => return f64::NEG_INFINITY,
            (false, false, false) => {}
        }
        // The sum is `high` highest units and `low` lowest units.
        let mask = (1 << WIDTH) - 1;
        let middle = self.get(1) + (self.get(2) >> WIDTH);
        let high = self.get(0) + (middle >> WIDTH);
        let low = (middle & mask) << WIDTH | self.get(2) & mask;
        let magnitude = match (high < 0, low) {
            (false, _) => (high, low),
            (true, 0) => (-high, 0),
            (true, _) => (-high - 1, (1 << (2 * WIDTH)) - low),
        };
        // The conversion of an integer rounds to the nearest number. If the integer were too long, one bit takes the
        // place of the lowest 72 bits. It is far below the precision of the result, and only has to tell a sum that
        // lies halfway between two results from a larger one.
        let (integer, exponent) = match (magnitude.0 as u128, magnitude.1 as u128) {
            (high, low) if high >> 56 == 0 => (high << (2 * WIDTH) | low, -2 * WIDTH),
            (high, low) => (high << 1 | u128::from(low != 0), -1),
        };
        let value = integer as f64 * power_of_two(exponent_of(self.unit()) + exponent);
        if high < 0 { -value } else { value }
    }

    /// Returns the number of the highest unit.
    fn unit(&self) -> u8 {
        self.unit.min(HIGHEST)
    }

    fn get(&self, index: usize) -> i128 {
        i128::from(self.high[index]) << u64::BITS | i128::from(self.low[index])
    }

    /// Adds to a sum of digits. The sum wraps around at 80 bits.
    fn increase(&mut self, index: usize, by: i128) {
        let sum = self.get(index) + by;
        (self.low[index], self.high[index]) = (sum as u64, (sum >> u64::BITS) as i16);
    }

    /// Makes `unit` the highest unit. It is not below the present one.
    fn raise(&mut self, unit: u8) {
        let shift = usize::from(unit - self.unit()).min(DIGITS);
        self.unit = unit;
        if shift > 0 {
            self.low.rotate_right(shift);
            self.high.rotate_right(shift);
            self.low[..shift].fill(0);
            self.high[..shift].fill(0);
        }
    }

    /// Raises the units as far as a number needs it, and returns the scale: 1 divided by the highest unit. The product
    /// of a number and the scale is exact, unless it is so small that all digits of the number are 0.
    fn prepare(&mut self, number: f64) -> f64 {
        self.raise(self.unit().max(unit_of(number)));
        power_of_two(-exponent_of(self.unit))
    }

    /// Adds numbers, and overwrites them.
    fn add_block(&mut self, block: &mut [[f64; LANES]]) {
        debug_assert!(block.len() <= BLOCK, "the sums of digits are exact");
        let Some(largest) = largest(block) else {
            return block.as_flattened().iter().for_each(|number| self.add(*number));
        };
        let scale = self.prepare(largest);
        block.as_flattened_mut().iter_mut().for_each(|number| *number *= scale);
        for (index, ratio) in RATIOS.into_iter().enumerate() {
            let sum = sum_of_digits(block, 1.0 / ratio) * ratio;
            self.increase(index, i128::from(sum as i64));
        }
    }
}

impl<T: Into<f64>> Extend<T> for BinnedSum {
    fn extend<I: IntoIterator<Item = T>>(&mut self, numbers: I) {
        let mut numbers = numbers.into_iter();
        let mut block = [[0.0; LANES]; BLOCK];
        loop {
            let mut len = 0_usize;
            for (place, number) in block.as_flattened_mut().iter_mut().zip(&mut numbers) {
                *place = number.into();
                len += 1;
            }
            // Zeros fill the last lanes.
            let used = len.div_ceil(LANES);
            block.as_flattened_mut()[len..used * LANES].fill(0.0);
            self.add_block(&mut block[..used]);
            if used < BLOCK {
                return;
            }
        }
    }
}

impl<T: Into<f64>> FromIterator<T> for BinnedSum {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Self {
        let mut sum = Self::new();
        sum.extend(numbers);
        sum
    }
}

impl fmt::Debug for BinnedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BinnedSum").field(&self.value()).finish()
    }
}

/// Merges sums. It is associative, and so has the same bits for every algorithm and every number of ranks.
impl ReduceOp<BinnedSum> for Sum {
    fn reduce(&self, from: &[BinnedSum], into: &mut [BinnedSum]) {
        from.iter().zip(into).for_each(|(from, into)| into.merge(from));
    }
}

/// Returns the largest absolute value, or `None` if a number is infinite or not a number.
fn largest(block: &[[f64; LANES]]) -> Option<f64> {
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    // Of a special value, the product with 0 is not a number.
    let (mut largest, mut zeros) = ([0.0; LANES], [0.0; LANES]);
    for numbers in block {
        for ((largest, zero), number) in largest.iter_mut().zip(&mut zeros).zip(numbers) {
            *largest = larger(*largest, number.abs());
            *zero += number * 0.0;
        }
    }
    zeros.iter().all(|zero| *zero == 0.0).then(|| largest.into_iter().fold(0.0, larger))
}

/// Returns the number of the lowest unit u such that a finite number is less than 2^35 u.
fn unit_of(number: f64) -> u8 {
    // The number is less than 2^(exponent − 1022).
    let exponent = number.to_bits() >> 52 & 0x7ff;
    (exponent.saturating_sub(20) / WIDTH as u64).min(HIGHEST.into()) as u8
}

/// Returns the exponent of a unit.
fn exponent_of(unit: u8) -> i32 {
    WIDTH * i32::from(unit) + LOWEST
}

/// Returns 2^exponent, for the exponents of all finite numbers.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        -1074..-1022 => f64::from_bits(1 << (exponent + 1074)),
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << 52),
        _ => unreachable!("2^{exponent} is not the power of a unit"),
    }
}

/// The ratios of the highest unit to each unit.
const RATIOS: [f64; DIGITS] = {
    let ratio = (1_u64 << WIDTH) as f64;
    [1.0, ratio, ratio * ratio]
};

/// Takes the digit for a unit out of a number that is at most 2^35 units.
///
/// Numbers from 2^52 to 2^53 are the integers. So the addition of 1.5 · 2^52 units rounds to a multiple of the unit,
/// with ties to the even one, and the subtraction is exact. The rest of the number is exact too: it is a multiple of
/// the number's last digit, and not larger than the number.
#[inline(always)]
fn take_digit(number: &mut f64, unit: f64) -> f64 {
    let round = 1.5 * (1_u64 << 52) as f64 * unit;
    let digit = (*number + round) - round;
    *number -= digit;
    digit
}

/// Takes the digits for a unit out of all numbers of a block, and returns their sum. The digits are at most
/// `2^35 · BLOCK · LANES` units together, which is less than 2^53, so no sum is rounded.
fn sum_of_digits(block: &mut [[f64; LANES]], unit: f64) -> f64 {
    let mut sums = [0.0; LANES];
    for numbers in block {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += take_digit(number, unit);
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests;
