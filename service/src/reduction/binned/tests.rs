//! Binned sums against exact sums.

use zerocopy::FromBytes;

use super::super::tests::Random;
use super::*;

/// An exact sum, as an integer in units of 2^-1074. Each digit has 32 bits, and further bits until the next carry.
struct Exact([i64; 70]);

impl Exact {
    fn new(numbers: &[f64]) -> Self {
        let mut sum = Self([0; 70]);
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    fn add(&mut self, number: f64) {
        let (field, fraction) = (number.to_bits() >> 52 & 0x7ff, number.to_bits() & ((1 << 52) - 1));
        let significand = if field == 0 { fraction } else { fraction | 1 << 52 };
        let exponent = field.max(1) as usize - 1;
        let bits = u128::from(significand) << (exponent % 32);
        for digit in 0..3 {
            let part = (bits >> (32 * digit)) as u32;
            let part = if number < 0.0 { -i64::from(part) } else { part.into() };
            self.0[exponent / 32 + digit] += part;
        }
        self.carry();
    }

    /// Makes all digits except the highest one numbers from 0 to 2^32 - 1.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.0[..69] {
            let sum = *digit + carry;
            (*digit, carry) = (sum & 0xffff_ffff, sum >> 32);
        }
        self.0[69] += carry;
    }

    /// Returns the absolute value of the difference of this sum and `number`, divided by 2^exponent, rounded.
    fn distance(&self, number: f64, exponent: i32) -> f64 {
        let mut difference = Self(self.0);
        difference.add(-number);
        if difference.0[69] < 0 {
            difference.0.iter_mut().for_each(|digit| *digit = -*digit);
            difference.carry();
        }
        let digits = (0..).zip(&difference.0).filter(|(_, digit)| **digit != 0);
        digits.map(|(place, digit)| *digit as f64 * 2_f64.powi(32 * place - 1074 - exponent)).sum()
    }
}

/// Returns the exponent of the distance between neighbouring numbers at `number`.
fn spacing(number: f64) -> i32 {
    (number.to_bits() >> 52 & 0x7ff).max(1) as i32 - 1075
}

fn sum_of(numbers: &[f64]) -> BinnedSum {
    numbers.iter().copied().collect()
}

/// Returns the errors of the sum: as a part of the bound without the rounding, and in units of the last place.
fn errors(numbers: &[f64]) -> (f64, f64) {
    let (exact, value) = (Exact::new(numbers), sum_of(numbers).value());
    let rounding = exact.distance(value, spacing(value));
    let largest = numbers.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    if largest == 0.0 {
        return (value, value);
    }
    let scale = spacing(largest) + 53;
    let bound = numbers.len() as f64 * (largest / power_of_two(scale.min(1023)));
    let error = exact.distance(value, scale.min(1023) - 72);
    let half_a_place = 2_f64.powi(spacing(value) - 1 - (scale.min(1023) - 72));
    ((error - half_a_place).max(0.0) / bound, rounding)
}

#[test]
fn the_error_is_within_the_bound() {
    let mut random = Random(3);
    let ranges = [-1074..1022, 900..1015, -1074..-980, -40..40, -5..5, -300..300];
    let mut worst = 0.0_f64;
    for (range, count) in ranges.iter().flat_map(|range| [1, 2, 5, 64, 1000].map(|count| (range, count))) {
        for _ in 0..if count == 1000 { 5 } else { 200 } {
            let numbers = random.cancelling(count, range.clone());
            let (error, rounding) = errors(&numbers);
            assert!(error <= 1.0, "{range:?}: {error} times the bound for {numbers:?}");
            // The digits of all these numbers lie within three units.
            if range.len() <= 10 {
                assert!(rounding <= 0.5, "{rounding} places for {numbers:?}");
            }
            worst = worst.max(error);
        }
    }
    assert!(worst > 0.0, "some numbers are below the lowest unit");
}

/// The bound is reached up to a small factor: each of the numbers loses nearly half of the lowest unit.
#[test]
fn the_bound_is_needed() {
    let largest = 2_f64.powi(LOWEST + 5 * WIDTH - 1);
    let numbers = [vec![largest, -largest], vec![largest * 2_f64.powi(-72) * 0.999; 5000]].concat();
    let exact = Exact::new(&numbers).distance(0.0, 0);
    assert_eq!(sum_of(&numbers).value(), 0.0);
    let bound = numbers.len() as f64 * largest * 2_f64.powi(-72);
    assert!((0.99..=1.0).contains(&(exact / bound)), "{exact} and {bound}");
}

#[test]
fn the_order_and_the_division_do_not_matter() {
    let mut random = Random(4);
    for round in 0..300 {
        let mut numbers = random.cancelling(1 + random.0 as usize % 600, -1074..1022);
        if round % 3 == 0 {
            let values = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
            numbers.push(values[random.below(4)]);
        }
        let expected = sum_of(&numbers);
        for last in (1..numbers.len()).rev() {
            numbers.swap(last, random.below(last + 1));
        }
        // Parts of random lengths, one of which may be added number by number, merged in any order.
        let mut parts = Vec::new();
        let mut rest = &numbers[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(1 + random.below(rest.len()));
            let mut sum = BinnedSum::new();
            match random.below(2) {
                0 => part.iter().for_each(|number| sum.add(*number)),
                _ => sum.extend(part.iter().copied()),
            }
            parts.insert(random.below(parts.len() + 1), sum);
            rest = others;
        }
        while parts.len() > 1 {
            let part = parts.swap_remove(random.below(parts.len()));
            let other = random.below(parts.len());
            parts[other].merge(&part);
        }
        assert_eq!(parts[0], expected);
        assert_eq!(parts[0].value().to_bits(), expected.value().to_bits());
    }
}

#[test]
fn special_values() {
    let bits = |numbers: &[f64]| sum_of(numbers).value().to_bits();
    let (infinity, nan) = (f64::INFINITY, f64::from_bits(0xfff8_0000_0000_0001));
    assert_eq!(bits(&[1.0, nan]), f64::NAN.to_bits());
    assert_eq!(bits(&[infinity, 1.0, -infinity]), f64::NAN.to_bits());
    assert_eq!(bits(&[infinity, nan]), f64::NAN.to_bits());
    assert_eq!(bits(&[-1e308, infinity]), infinity.to_bits());
    assert_eq!(bits(&[-infinity, f64::MAX, f64::MAX]), (-infinity).to_bits());
    assert_eq!(bits(&[]), 0);
    assert_eq!(bits(&[-0.0, -0.0]), 0);
    assert_eq!(bits(&[1.5, -1.5]), 0);
}

#[test]
fn numbers_at_the_limits() {
    let value = |numbers: &[f64]| sum_of(numbers).value();
    let (largest, least) = (f64::MAX, f64::from_bits(1));
    assert_eq!(value(&[largest]), largest);
    assert_eq!(value(&[largest, largest, -largest]), largest);
    assert_eq!(value(&[largest, largest]), f64::INFINITY);
    assert_eq!(value(&[-largest, -largest]), f64::NEG_INFINITY);
    // Half a place above the largest number rounds to infinity, and less than that does not.
    let half = 2_f64.powi(970);
    assert_eq!(value(&[largest, half]), f64::INFINITY);
    assert_eq!(value(&[largest, half, -2_f64.powi(945)]), largest);
    assert_eq!(value(&[least]), least);
    assert_eq!(value(&[least; 1000]), f64::from_bits(1000));
    assert_eq!(value(&[f64::MIN_POSITIVE, -least]), f64::from_bits((1 << 52) - 1));
    for exponent in -1074..1024 {
        let number = if exponent < -1022 { power_of_two(exponent) } else { 1.75 * power_of_two(exponent) };
        assert_eq!((value(&[number]), value(&[-number])), (number, -number));
    }
}

#[test]
fn results_are_rounded_to_the_nearest_even_number() {
    let value = |numbers: &[f64]| sum_of(numbers).value();
    let half = f64::EPSILON / 2.0;
    assert_eq!(value(&[1.0, half]), 1.0);
    assert_eq!(value(&[1.0, f64::EPSILON, half]), 1.0 + 2.0 * f64::EPSILON);
    assert_eq!(value(&[1.0, half, 1e-20]), 1.0 + f64::EPSILON);
    assert_eq!(value(&[-1.0, -half, -1e-20]), -1.0 - f64::EPSILON);
    // The sum has more than 128 bits.
    let mut many = sum_of(&[2_f64.powi(34)]);
    for _ in 0..22 {
        let copy = many;
        many.merge(&copy);
    }
    let sum = |last: &[f64]| {
        let mut sum = many;
        sum.extend(last.iter().copied());
        sum.value()
    };
    assert_eq!(sum(&[8.0]), 2_f64.powi(56));
    assert_eq!(sum(&[8.0, 2_f64.powi(-60)]), 2_f64.powi(56) + 16.0);
    assert_eq!(sum(&[-4.0]), 2_f64.powi(56));
    assert_eq!(sum(&[-4.0, -2_f64.powi(-60)]), 2_f64.powi(56) - 8.0);
}

/// The sums of many numbers have more than 64 bits.
#[test]
fn doubling_a_sum_is_exact() {
    let number = 1.0 + 2_f64.powi(-52);
    for sign in [1.0, -1.0] {
        let mut sum = sum_of(&[sign * number]);
        for exponent in 1..=44 {
            let copy = sum;
            sum.merge(&copy);
            assert_eq!(sum.value(), sign * number * 2_f64.powi(exponent));
        }
    }
}

#[test]
fn other_types_of_numbers() {
    let mut sum = BinnedSum::from_iter([0.1_f32, 0.2]);
    sum.add(-7_i32);
    assert_eq!(sum.value(), f64::from(0.1_f32) + f64::from(0.2_f32) - 7.0);
    assert_eq!(format!("{:?}", sum_of(&[2.5, -1.0])), "BinnedSum(1.5)");
}

/// A peer may send any bytes.
#[test]
fn no_bytes_cause_a_panic() {
    let mut random = Random(5);
    let mut garbage = || {
        let bytes: Vec<u8> = (0..size_of::<BinnedSum>()).map(|_| (random.next() >> 20) as u8).collect();
        BinnedSum::read_from_bytes(&bytes).unwrap()
    };
    for _ in 0..10_000 {
        let (mut sum, other) = (garbage(), garbage());
        sum.merge(&other);
        let _ = sum.value();
        sum.extend([1.0, f64::MAX, f64::NAN]);
        assert!(sum.value().is_nan());
    }
}
