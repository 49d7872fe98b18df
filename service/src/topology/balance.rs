//! Balanced sizes for the dimensions of a grid.

use std::collections::HashSet;

use super::TopologyError;

/// Chooses sizes for the dimensions of a grid with exactly `ranks` places (`MPI_Dims_create`). A size that is `Some` is
/// kept. The other sizes are chosen as equal as possible, and do not increase.
///
/// As equal as possible means: no other choice has a smaller difference between the largest and the smallest of the
/// chosen sizes. Of choices with the same difference, the choice with the smallest first size is taken, then the choice
/// with the smallest second size, and so on.
///
/// ```
/// use samite::balanced;
///
/// assert_eq!(balanced(36, &[None, None])?, [6, 6]);
/// assert_eq!(balanced(24, &[None, Some(3), None])?, [4, 3, 2]);
/// assert!(balanced(7, &[Some(2), None]).is_err());
/// # Ok::<(), samite::TopologyError>(())
/// ```
///
/// # Errors
/// [`TopologyError::ZeroDimension`] for a fixed size of 0, and [`TopologyError::Indivisible`] if `ranks` is 0 or is not
/// a multiple of the product of the fixed sizes, or if no size is free and `ranks` differs from that product.
pub fn balanced(ranks: u32, sizes: &[Option<u32>]) -> Result<Vec<u32>, TopologyError> {
    if let Some(dimension) = sizes.iter().position(|size| *size == Some(0)) {
        return Err(TopologyError::ZeroDimension { dimension });
    }
    let fixed = sizes.iter().flatten().try_fold(1u32, |product, size| product.checked_mul(*size));
    let quotient =
        fixed.filter(|fixed| ranks != 0 && ranks.is_multiple_of(*fixed)).map(|fixed| ranks / fixed);
    let free = sizes.iter().filter(|size| size.is_none()).count();
    let quotient = quotient.filter(|quotient| free > 0 || *quotient == 1);
    let chosen = factors(quotient.ok_or(TopologyError::Indivisible { ranks })?, free);
    let mut chosen = chosen.into_iter();
    Ok(sizes.iter().map(|size| size.or_else(|| chosen.next()).unwrap_or(1)).collect())
}

/// Returns `count` factors of a number that is not 0, as equal as possible, but at most 32 factors. Further factors are
/// 1.
fn factors(number: u32, count: usize) -> Vec<u32> {
    // Of 32 factors of a number below 2^32 at least one is 1. As the factors do not increase, all further factors are 1
    // too.
    let count = count.min(32) as u32;
    if count <= 1 {
        return vec![number; count as usize];
    }
    let divisors = divisors(number);
    let mut best: Option<Vec<u32>> = None;
    for &largest in divisors.iter().filter(|&&largest| at_least(largest, count, number)) {
        let rest = number / largest;
        let difference = best.as_ref().map(|best| best[0] - best[best.len() - 1]);
        // The smallest factor is at most the root of `rest` with the exponent `count - 1`. So the largest divisor up to
        // that root gives the smallest difference for this `largest`. The difference grows with `largest`, so the
        // search ends when the difference is not smaller than the best difference so far.
        let smallest = divisors.iter().rev().filter(|&&smallest| at_most(smallest, count - 1, rest));
        let mut smallest =
            smallest.take_while(|&&smallest| difference.is_none_or(|best| largest - smallest < best));
        let mut smallest = smallest.by_ref().peekable();
        if smallest.peek().is_none() {
            break;
        }
        let found =
            smallest.find_map(|&smallest| Window::new(&divisors, smallest, largest).split(rest, count - 1));
        if let Some(behind) = found {
            best = Some([vec![largest], behind].concat());
        }
    }
    best.expect("the number itself and ones are a choice")
}

/// The search for factors between two divisors of a number.
struct Window<'a> {
    /// The permitted factors, ascending.
    factors: &'a [u32],
    /// Searches that have failed: the number, the count of factors, and how many of the permitted factors could be
    /// used.
    failed: HashSet<(u32, u32, usize)>,
}

impl<'a> Window<'a> {
    fn new(divisors: &'a [u32], smallest: u32, largest: u32) -> Self {
        let from = divisors.partition_point(|divisor| *divisor < smallest);
        let to = divisors.partition_point(|divisor| *divisor <= largest);
        Self { factors: &divisors[from..to], failed: HashSet::new() }
    }

    /// Returns the first choice, in lexicographic order, of `count` factors that do not increase.
    fn split(&mut self, number: u32, count: u32) -> Option<Vec<u32>> {
        let mut chosen = Vec::new();
        self.extend(number, count, self.factors.len(), &mut chosen).then_some(chosen)
    }

    /// Appends `count` factors of `number` to `chosen`, each from the first `permitted` of the permitted factors.
    /// Returns false if there are no such factors. Calls itself at most 31 times in succession.
    fn extend(&mut self, number: u32, count: u32, permitted: usize, chosen: &mut Vec<u32>) -> bool {
        if count == 0 {
            return number == 1;
        }
        let factors = self.factors;
        let fits = factors.first().is_some_and(|smallest| at_most(*smallest, count, number));
        if !fits || self.failed.contains(&(number, count, permitted)) {
            return false;
        }
        // The factors do not increase, so the next factor is at least the root of `number` with the exponent `count`.
        let from = factors.partition_point(|&factor| !at_least(factor, count, number));
        for (index, factor) in (0..permitted).zip(factors.iter().copied()).skip(from) {
            if number.is_multiple_of(factor) {
                chosen.push(factor);
                if self.extend(number / factor, count - 1, index + 1, chosen) {
                    return true;
                }
                chosen.pop();
            }
        }
        self.failed.insert((number, count, permitted));
        false
    }
}

/// Returns true if `base` to the power of `exponent` is at least the number.
fn at_least(base: u32, exponent: u32, number: u32) -> bool {
    u64::from(base).checked_pow(exponent).is_none_or(|power| power >= u64::from(number))
}

/// Returns true if `base` to the power of `exponent` is at most the number.
fn at_most(base: u32, exponent: u32, number: u32) -> bool {
    u64::from(base).checked_pow(exponent).is_some_and(|power| power <= u64::from(number))
}

/// Returns the divisors of a number that is not 0, ascending.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large =
        small.iter().rev().map(|divisor| number / divisor).skip_while(|large| Some(large) == small.last());
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all choices of `count` factors that do not increase.
    fn all(number: u32, count: usize, largest: u32) -> Vec<Vec<u32>> {
        if count == 0 {
            return if number == 1 { vec![vec![]] } else { vec![] };
        }
        let firsts = (1..=largest.min(number)).filter(|first| number.is_multiple_of(*first));
        let behind = |first| {
            all(number / first, count - 1, first).into_iter().map(move |rest| [vec![first], rest].concat())
        };
        firsts.flat_map(behind).collect()
    }

    proptest! {
        #[test]
        fn the_choice_is_the_best_of_all(number in 1u32..600, count in 1usize..6) {
            let best = all(number, count, number).into_iter().min_by_key(|choice| {
                (choice[0] - choice[choice.len() - 1], choice.clone())
            });
            prop_assert_eq!(Some(balanced(number, &vec![None; count]).unwrap()), best);
        }

        #[test]
        fn fixed_sizes_are_kept(ranks in 0u32..200, sizes in prop::collection::vec(prop::option::of(0u32..7), 0..5)) {
            let fixed: u32 = sizes.iter().flatten().product();
            let free = sizes.iter().filter(|size| size.is_none()).count();
            let exists = fixed > 0 && ranks > 0 && ranks % fixed == 0 && (free > 0 || ranks == fixed);
            match balanced(ranks, &sizes) {
                Ok(chosen) => {
                    prop_assert!(exists);
                    prop_assert_eq!(chosen.iter().product::<u32>(), ranks);
                    let kept = |(size, chosen): (&Option<u32>, &u32)| size.is_none_or(|size| size == *chosen);
                    prop_assert!(sizes.iter().zip(&chosen).all(kept));
                    let free = sizes.iter().zip(&chosen).filter(|(size, _)| size.is_none());
                    prop_assert!(free.map(|(_, chosen)| *chosen).is_sorted_by(|a, b| a >= b));
                }
                Err(TopologyError::ZeroDimension { dimension }) => prop_assert_eq!(sizes[dimension], Some(0)),
                Err(error) => {
                    prop_assert!(!exists);
                    prop_assert_eq!(error, TopologyError::Indivisible { ranks });
                }
            }
        }
    }

    #[test]
    fn numbers_with_many_divisors_and_many_dimensions_end() {
        // The number below 2^32 with the most divisors, the product of the first nine primes, a power of two, a large
        // prime, and the largest number.
        for number in [3_491_888_400, 223_092_870, 1 << 31, 4_294_967_291, u32::MAX] {
            for count in 1..40 {
                let sizes = balanced(number, &vec![None; count]).unwrap();
                assert_eq!(sizes.iter().map(|size| u64::from(*size)).product::<u64>(), u64::from(number));
                assert_eq!(sizes.len(), count);
                assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
            }
        }
        assert_eq!(balanced(6, &vec![None; 100_000]).unwrap().iter().sum::<u32>(), 5 + 99_998);
    }

    #[test]
    fn known_choices() {
        let free = |ranks, count| balanced(ranks, &vec![None; count]).unwrap();
        assert_eq!(free(36, 2), [6, 6]);
        assert_eq!(free(72, 3), [6, 4, 3]);
        assert_eq!(free(1 << 20, 3), [128, 128, 64]);
        assert_eq!(free(13, 2), [13, 1]);
        assert_eq!(balanced(6, &[]), Err(TopologyError::Indivisible { ranks: 6 }));
        assert_eq!(balanced(1, &[]), Ok(vec![]));
        assert_eq!(
            balanced(6, &[Some(u32::MAX), Some(u32::MAX)]),
            Err(TopologyError::Indivisible { ranks: 6 })
        );
    }
}
