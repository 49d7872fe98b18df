//! LU decomposition without pivoting, by puts in epochs of fences (Zounmevo 2014, section 5.8.3).
//!
//! Row `k` belongs to rank `k % ranks`. In epoch `k` its owner subtracts the last row above it, and puts it into the
//! parts of all others. In the same epoch all ranks subtract row `k - 1` from their rows below. With blocking calls
//! they do so before the fence that closes the epoch, so that the row travels meanwhile. The fence then waits for the
//! slowest rank. With nonblocking calls they call the fence first, and wait for its end after that work.
//!
//! The thesis prints its times in bar charts, without numbers.

use samite::reduction::Sum;
use samite::{Comm, Error, Rank, Window};
use samite_fabric::SplitMix64;

use super::{Bound, Calls, Case, Figures, Job, Row, since_us};
use crate::failure::now_ns;

/// The figures: their names, and the bounds of nonblocking calls relative to blocking ones.
const FIGURES: [(&str, &str, &str, Option<Bound>); 3] = [
    (
        "lu-wait",
        "wait_ms",
        "mean time of a rank in calls that close epochs or wait",
        Some(Bound::AtMost(0.9)),
    ),
    ("lu-communication", "communication_ms", "mean time of a rank in all calls of the window", None),
    ("lu-total", "total_ms", "time of the decomposition", Some(Bound::AtMost(1.0))),
];

/// The number of rows that are verified, unless the matrix has fewer.
const SAMPLES: usize = 16;

/// The largest permitted difference between an element of the matrix and of the product of its factors, in units of
/// the number of rows, which is about the largest element. A subtraction that is left out changes an element by some
/// `0.1 / rows`.
const TOLERANCE: f64 = 1e-12;

/// The part of the window for one row. A rank copies row `k - 1` before it closes epoch `k`, and row `k + 1` travels
/// after that, so two parts are enough.
const PLACES: usize = 2;

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let rows = job.args.rows as usize;
    let window = job.comm.allocate_window::<f64>(PLACES * rows)?;
    let mut matrix = Matrix::new(job.comm, rows);
    let rounds = job.in_turns(Calls::ALL.len(), |variant| {
        matrix.fill();
        job.comm.barrier()?;
        let Times { wait_us, communication_us, total_us } = matrix.decompose(&window, Calls::ALL[variant])?;
        let difference = matrix.difference(job.comm)?;
        assert!(difference <= TOLERANCE * rows as f64, "the factors differ from the matrix by {difference}");
        let mut means = [wait_us, communication_us].map(|time| time / f64::from(job.comm.size()));
        job.comm.allreduce_in_place(&mut means, Sum)?;
        Ok([means[0], means[1], total_us])
    })?;
    window.free()?;
    let mut are_kept = true;
    for (at, (bench, metric, about, bound)) in FIGURES.into_iter().enumerate() {
        let case = Case { bench, metric, unit: "ms", bytes: None, depth: Some(rows), to: "blocking" };
        let row = |calls: Calls, times: &[[f64; 3]]| {
            let values = times.iter().map(|times| times[at] / 1e3).collect();
            let ratios = times.iter().zip(&rounds[0]).map(|(times, blocking)| times[at] / blocking[at]);
            let row = Row::new(job, &case, calls.name(), Figures { values, ratios: ratios.collect() });
            match bound {
                Some(bound) if calls == Calls::Nonblocking => row.bounded(bound),
                _ => row,
            }
        };
        let rows: Vec<_> =
            Calls::ALL.into_iter().zip(&rounds).map(|(calls, times)| row(calls, times)).collect();
        are_kept &= job.print(&format!("lu, {metric}: {about}, of a matrix of `depth` rows"), &rows);
    }
    Ok(are_kept)
}

/// The times of one decomposition at one rank, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// In the calls that close an epoch or wait for its end.
    wait_us: f64,
    /// In all calls of the window.
    communication_us: f64,
    total_us: f64,
}

/// The rows of a square matrix that belong to this rank. After the decomposition the elements of L are below the
/// diagonal, and the elements of U elsewhere.
#[derive(Clone, Debug, PartialEq)]
struct Matrix {
    rank: usize,
    ranks: usize,
    rows: usize,
    elements: Vec<f64>,
}

impl Matrix {
    fn new(comm: &Comm, rows: usize) -> Self {
        let (rank, ranks) = (comm.rank().0 as usize, comm.size() as usize);
        let mut matrix = Self { rank, ranks, rows, elements: Vec::new() };
        matrix.elements = vec![0.0; matrix.first_after(rows) * rows];
        matrix
    }

    fn fill(&mut self) {
        for (number, row) in self.elements.chunks_exact_mut(self.rows).enumerate() {
            fill(self.rank + number * self.ranks, row);
        }
    }

    fn is_own(&self, row: usize) -> bool {
        row % self.ranks == self.rank
    }

    fn own(&self, row: usize) -> &[f64] {
        let start = row / self.ranks * self.rows;
        &self.elements[start..start + self.rows]
    }

    fn own_mut(&mut self, row: usize) -> &mut [f64] {
        let start = row / self.ranks * self.rows;
        &mut self.elements[start..start + self.rows]
    }

    /// Returns the number of own rows before `row`.
    fn first_after(&self, row: usize) -> usize {
        (row + self.ranks - 1 - self.rank) / self.ranks
    }

    fn decompose(&mut self, window: &Window<f64>, calls: Calls) -> Result<Times, Error> {
        let begin_ns = now_ns();
        let (mut wait_us, mut other_us) = (0.0, 0.0);
        // The last row that has arrived.
        let mut above = vec![0.0; self.rows];
        let mut epoch = timed(&mut other_us, || window.fence())?;
        for row in 0..self.rows - 1 {
            let place = row % PLACES * self.rows + row;
            if self.is_own(row) {
                if row > 0 {
                    subtract(&above[row - 1..], &mut self.own_mut(row)[row - 1..]);
                }
                timed(&mut other_us, || {
                    let others = (0..self.ranks).filter(|rank| *rank != self.rank);
                    others
                        .map(|rank| Rank(rank as u32))
                        .try_for_each(|rank| epoch.put(rank, place, &self.own(row)[row..]))
                })?;
            }
            epoch = match calls {
                Calls::Blocking => {
                    self.subtract_above(row, &above);
                    timed(&mut wait_us, || epoch.next())?
                }
                Calls::Nonblocking => {
                    let (end, next) = timed(&mut wait_us, || epoch.inext())?;
                    self.subtract_above(row, &above);
                    timed(&mut wait_us, || end.wait())?;
                    next
                }
            };
            match self.is_own(row) {
                true => above[row..].copy_from_slice(&self.own(row)[row..]),
                false => timed(&mut other_us, || window.read(place, &mut above[row..]))?,
            }
        }
        let last = self.rows - 1;
        if self.is_own(last) && last > 0 {
            subtract(&above[last - 1..], &mut self.own_mut(last)[last - 1..]);
        }
        timed(&mut wait_us, || epoch.close())?;
        Ok(Times { wait_us, communication_us: wait_us + other_us, total_us: since_us(begin_ns) })
    }

    /// Subtracts row `row - 1` from the own rows below `row`.
    fn subtract_above(&mut self, row: usize, above: &[f64]) {
        if row > 0 {
            let first = self.first_after(row + 1);
            for below in self.elements.chunks_exact_mut(self.rows).skip(first) {
                subtract(&above[row - 1..], &mut below[row - 1..]);
            }
        }
    }

    /// Returns the largest difference between the matrix and the product of its factors, in rows at equal distances.
    /// All ranks call it.
    fn difference(&self, comm: &Comm) -> Result<f64, Error> {
        let mut most: f64 = 0.0;
        let samples = SAMPLES.min(self.rows);
        for row in (1..=samples).map(|sample| sample * self.rows / samples - 1) {
            let mut factors = vec![0.0; self.rows];
            if self.is_own(row) {
                factors.copy_from_slice(self.own(row));
            }
            comm.bcast(&mut factors, Rank((row % self.ranks) as u32))?;
            factors[row] = 1.0;
            let mut product = vec![0.0; self.rows];
            for upper in (0..=row).filter(|upper| self.is_own(*upper)) {
                let terms = product[upper..].iter_mut().zip(&self.own(upper)[upper..]);
                terms.for_each(|(sum, element)| *sum += factors[upper] * element);
            }
            comm.allreduce_in_place(&mut product, Sum)?;
            let mut expected = vec![0.0; self.rows];
            fill(row, &mut expected);
            for (found, expected) in product.iter().zip(&expected) {
                let difference = (found - expected).abs();
                most = if difference.is_nan() { f64::INFINITY } else { most.max(difference) };
            }
        }
        Ok(most)
    }
}

/// Fills a row of the matrix to decompose. The diagonal is so large that no pivoting is needed.
fn fill(row: usize, elements: &mut [f64]) {
    let mut rng = SplitMix64::new(row as u64);
    elements.iter_mut().for_each(|element| *element = rng.below(1 << 32) as f64 / 2_f64.powi(32) - 0.5);
    elements[row] += elements.len() as f64;
}

/// Subtracts a multiple of a row from a row below, so that its first element becomes 0, and stores the factor there.
/// Both begin at the diagonal element of the upper row.
fn subtract(above: &[f64], below: &mut [f64]) {
    let factor = below[0] / above[0];
    below[0] = factor;
    below[1..].iter_mut().zip(&above[1..]).for_each(|(element, above)| *element -= factor * above);
}

/// Adds the time of a call.
fn timed<R>(sum_us: &mut f64, call: impl FnOnce() -> R) -> R {
    let begin_ns = now_ns();
    let result = call();
    *sum_us += since_us(begin_ns);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decomposes a matrix in one loop.
    fn sequential(rows: usize) -> Vec<Vec<f64>> {
        let mut matrix = vec![vec![0.0; rows]; rows];
        matrix.iter_mut().enumerate().for_each(|(row, elements)| fill(row, elements));
        for row in 0..rows {
            let (upper, lower) = matrix.split_at_mut(row + 1);
            lower.iter_mut().for_each(|below| subtract(&upper[row][row..], &mut below[row..]));
        }
        matrix
    }

    #[test]
    fn the_factors_are_those_of_a_sequential_loop() {
        for (ranks, rows) in [(1, 1), (1, 7), (2, 1), (2, 2), (2, 30), (3, 2), (3, 31), (4, 40)] {
            let expected = sequential(rows);
            let results = samite::local(ranks, |world| -> Result<(), Error> {
                let comm = world.comm();
                let window = comm.allocate_window::<f64>(PLACES * rows)?;
                let mut matrix = Matrix::new(comm, rows);
                for calls in Calls::ALL.into_iter().chain(Calls::ALL) {
                    matrix.fill();
                    let times = matrix.decompose(&window, calls)?;
                    assert!(
                        times.wait_us <= times.communication_us && times.communication_us <= times.total_us
                    );
                    for row in (0..rows).filter(|row| matrix.is_own(*row)) {
                        assert_eq!(matrix.own(row), expected[row], "{rows} rows, {calls:?}, row {row}");
                    }
                    assert!(matrix.difference(comm)? <= TOLERANCE * rows as f64);
                }
                window.free().map(drop)
            });
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
    }

    #[test]
    fn a_wrong_element_is_a_difference() {
        let results = samite::local(3, |world| -> Result<[bool; 2], Error> {
            let (comm, rows) = (world.comm(), 30);
            let window = comm.allocate_window::<f64>(PLACES * rows)?;
            let mut matrix = Matrix::new(comm, rows);
            matrix.fill();
            matrix.decompose(&window, Calls::Nonblocking)?;
            let right = matrix.difference(comm)? <= TOLERANCE * rows as f64;
            let mut wrong = [f64::NAN, 1e-6].into_iter();
            let mut is_found = || -> Result<bool, Error> {
                let (wrong, before) = (wrong.next().expect("there are two"), matrix.elements.clone());
                if matrix.is_own(13) {
                    matrix.own_mut(13)[20] += wrong;
                }
                let difference = matrix.difference(comm)?;
                matrix.elements = before;
                Ok(difference > TOLERANCE * rows as f64)
            };
            Ok([right, is_found()? && is_found()?])
        });
        assert_eq!(results, [Ok([true; 2]), Ok([true; 2]), Ok([true; 2])]);
    }
}
