//! Arithmetic progressions of ranks, and the division of a sequence of ranks into them.

/// One or more ranks in arithmetic progression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u32,
    /// The distance from a rank to the next one. It is never 0. It is 1 if there is only one rank.
    pub(super) step: i64,
    pub(super) len: u32,
}

impl Part {
    pub(super) const fn one(rank: u32) -> Self {
        Self { first: rank, step: 1, len: 1 }
    }

    /// Returns the rank at an index, which is below `len`.
    pub(super) fn rank(&self, index: u32) -> u32 {
        debug_assert!(index < self.len);
        // The result is a rank and fits in 32 bits, so wrapping arithmetic gives the exact sum.
        self.first.wrapping_add(index.wrapping_mul(self.step as u32))
    }

    pub(super) fn last(&self) -> u32 {
        self.rank(self.len - 1)
    }

    /// Returns the smallest rank.
    pub(super) fn low(&self) -> u32 {
        self.first.min(self.last())
    }

    /// Returns the largest rank.
    pub(super) fn high(&self) -> u32 {
        self.first.max(self.last())
    }

    /// Returns the index of a rank, or `None` if the part does not contain the rank.
    pub(super) fn index(&self, rank: u32) -> Option<u32> {
        let distance = i64::from(rank) - i64::from(self.first);
        let index = (distance % self.step == 0).then(|| distance / self.step)?;
        u32::try_from(index).ok().filter(|index| *index < self.len)
    }

    /// Returns the part that contains the rank at index `from` of this one, and every `step`th rank from there on,
    /// `len` ranks in all.
    pub(super) fn slice(&self, from: u32, step: i64, len: u32) -> Self {
        Self { first: self.rank(from), step: if len == 1 { 1 } else { self.step * step }, len }
    }

    /// Returns the indices in this part of the ranks that `other` contains too, as a part with a positive step. Returns
    /// `None` if there are no such ranks.
    pub(super) fn common(&self, other: &Self) -> Option<Self> {
        let (step, modulus) = (self.step.abs(), other.step.abs());
        let divisor = gcd(step, modulus);
        let distance = i64::from(other.first) - i64::from(self.first);
        if distance % divisor != 0 {
            return None;
        }
        // The index of a common rank satisfies `self.step * index = distance`, modulo the other part's step.
        let period = modulus / divisor;
        let inverse = inverse((self.step / divisor).rem_euclid(period), period);
        let residue = i128::from(distance / divisor) * i128::from(inverse);
        let residue = residue.rem_euclid(period.into()) as i64;
        // `first` and `last` become the first and the last index in this part at which a rank lies between the other
        // part's smallest and largest rank.
        let [low, high] = [other.low(), other.high()].map(|rank| i64::from(rank) - i64::from(self.first));
        let (near, far) = if self.step > 0 { (low, high) } else { (-high, -low) };
        let first = near.div_euclid(step) + i64::from(near.rem_euclid(step) != 0);
        let first = first.max(0);
        let last = far.div_euclid(step).min(i64::from(self.len) - 1);
        let first = first + (residue - first).rem_euclid(period);
        // `first` and `last` are indices in this part, so their difference fits in 32 bits.
        let len = (first <= last).then(|| ((last - first) / period + 1) as u32)?;
        Some(Self { first: first as u32, step: if len == 1 { 1 } else { period }, len })
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the inverse of `number` modulo `modulus`, which have no common divisor.
fn inverse(number: i64, modulus: i64) -> i64 {
    let (mut previous, mut rest) = (modulus, number);
    let (mut before, mut inverse) = (0, 1);
    while rest > 1 {
        let quotient = previous / rest;
        (previous, rest) = (rest, previous % rest);
        (before, inverse) = (inverse, before - quotient * inverse);
    }
    inverse
}

/// Divides a sequence of ranks into parts.
///
/// A part of the result has a step of 1 and two or more ranks, or another step and three or more ranks, or it is one
/// rank. The first part is made as long as possible, then the second, and so on. So the result depends only on the
/// sequence of ranks, and not on the parts in which they were added. There is one exception to the number of ranks: a
/// sequence of only two ranks is one part, with any step.
#[derive(Debug, Default)]
pub(super) struct Builder {
    parts: Vec<Part>,
    /// The last part, which may become longer. Two ranks with a step other than 1 are also kept here.
    open: Option<Part>,
    len: u64,
}

impl Builder {
    /// Adds a rank.
    pub(super) fn push(&mut self, rank: u32) {
        self.len += 1;
        self.open = Some(match self.open {
            None => Part::one(rank),
            Some(open) if open.len == 1 && open.first != rank => {
                Part { step: i64::from(rank) - i64::from(open.first), len: 2, ..open }
            }
            Some(open) if open.len > 1 && i64::from(rank) - i64::from(open.last()) == open.step => {
                Part { len: open.len + 1, ..open }
            }
            Some(open) if open.len == 2 && open.step != 1 && open.last() != rank => {
                self.parts.push(Part::one(open.first));
                Part { first: open.last(), step: i64::from(rank) - i64::from(open.last()), len: 2 }
            }
            Some(open) => {
                self.close(open);
                Part::one(rank)
            }
        });
    }

    /// Adds the ranks of a part. The call takes constant time.
    pub(super) fn extend(&mut self, part: Part) {
        for index in 0..part.len {
            self.push(part.rank(index));
            let rest = part.len - index - 1;
            let is_firm = |open: &Part| open.len > 2 || open.len == 2 && open.step == 1;
            if let Some(open) = self.open.as_mut().filter(|open| is_firm(open) && open.step == part.step) {
                // `push` would append each of the other ranks to this part.
                open.len = open.len.checked_add(rest).expect("there are fewer than 2^32 ranks");
                self.len += u64::from(rest);
                return;
            }
        }
    }

    /// Returns the parts, and the number of ranks in them.
    pub(super) fn finish(mut self) -> (Vec<Part>, u64) {
        match self.open {
            Some(open) if self.parts.is_empty() => self.parts.push(open),
            Some(open) => self.close(open),
            None => {}
        }
        (self.parts, self.len)
    }

    fn close(&mut self, open: Part) {
        match open {
            Part { len: 2, step, .. } if step != 1 => {
                self.parts.extend([open.first, open.last()].map(Part::one));
            }
            _ => self.parts.push(open),
        }
    }
}

/// Returns a rank that occurs twice in the parts, or `None` if there is none. The parts have `len` ranks in all.
pub(super) fn duplicate(parts: &[Part], len: u64) -> Option<u32> {
    let mut sorted = parts.to_vec();
    sorted.sort_unstable_by_key(Part::low);
    let mut overlapping: Vec<Part> = Vec::new();
    let mut work = 0;
    for part in sorted {
        overlapping.retain(|other| other.high() >= part.low());
        work += overlapping.len() as u64;
        if work > len {
            // If many parts overlap, it takes less time to sort the ranks.
            return duplicate_of_list(parts);
        }
        if let Some(common) = overlapping.iter().find_map(|other| part.common(other)) {
            return Some(part.rank(common.first));
        }
        overlapping.push(part);
    }
    None
}

fn duplicate_of_list(parts: &[Part]) -> Option<u32> {
    let ranks = |part: &Part| {
        let part = *part;
        (0..part.len).map(move |index| part.rank(index))
    };
    let mut ranks: Vec<u32> = parts.iter().flat_map(ranks).collect();
    ranks.sort_unstable();
    ranks.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
