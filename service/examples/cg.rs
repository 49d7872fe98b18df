//! The method of conjugate gradients, for Poisson's equation on a square.
//!
//! Each rank owns a band of rows. In each iteration it exchanges the rows at its borders with its neighbours, by
//! persistent operations, and all ranks sum two scalar products. Ranks at the edge of the square have absent partners.
//! The right-hand side is computed from a chosen solution. Each rank compares its rows of the result with the known
//! solution.
//! ```console
//! $ samite run -n 4 -- target/release/examples/cg [CELLS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use samite::{Comm, PersistentRecv, PersistentSend, Rank, start_all};

/// The tag of rows that travel to the next higher rank.
const DOWN: u64 = 1;
/// The tag of rows that travel to the next lower rank.
const UP: u64 = 2;
/// The tag of a rank's part of a sum.
const PART: u64 = 3;
/// The tag of the result of a sum.
const SUM: u64 = 4;

/// The norm of the residual, relative to the norm of the right-hand side, at which the iteration ends.
const TOLERANCE: f64 = 1e-10;

fn main() -> Result<(), Box<dyn Error>> {
    let cells: usize = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    if cells < comm.size() as usize {
        return Err(format!("{cells} rows are too few for {} ranks", comm.size()).into());
    }
    let own = part(cells, comm.size(), comm.rank().0);

    let start = now();
    let solution: Vec<f64> =
        own.clone().flat_map(|row| (0..cells).map(move |column| known(row, column, cells))).collect();
    let mut borders = Borders::new(comm, cells)?;
    let mut rhs = vec![0.0; solution.len()];
    borders.apply(&solution, &mut rhs)?;
    let (found, iterations) = solve(comm, &mut borders, &rhs)?;
    let seconds = start.elapsed().as_secs_f64();

    let error = found.iter().zip(&solution).map(|(found, known)| (found - known).abs()).fold(0.0, f64::max);
    let wrong = sum(comm, f64::from(u8::from(error > 1e-6)))?;
    if wrong != 0.0 {
        return Err(format!("{wrong} ranks have values that differ from the solution").into());
    }
    if comm.rank() == 0 {
        let ranks = comm.size();
        println!(
            "cg: ranks={ranks} cells={cells}x{cells} iterations={iterations} seconds={seconds:.3} verified"
        );
    }
    Ok(())
}

/// Solves the equation for a right-hand side. Returns the solution and the number of iterations (Hestenes and Stiefel,
/// Methods of conjugate gradients for solving linear systems, 1952).
fn solve(comm: &Comm, borders: &mut Borders, rhs: &[f64]) -> Result<(Vec<f64>, usize), Box<dyn Error>> {
    let mut found = vec![0.0; rhs.len()];
    let mut residual = rhs.to_vec();
    let mut direction = rhs.to_vec();
    let mut applied = vec![0.0; rhs.len()];
    let first = sum(comm, product(&residual, &residual))?;
    let mut square = first;
    for iteration in 0..100_000 {
        if square <= TOLERANCE * TOLERANCE * first {
            return Ok((found, iteration));
        }
        borders.apply(&direction, &mut applied)?;
        let length = square / sum(comm, product(&direction, &applied))?;
        add(&mut found, length, &direction);
        add(&mut residual, -length, &applied);
        let next = sum(comm, product(&residual, &residual))?;
        for (direction, residual) in direction.iter_mut().zip(&residual) {
            *direction = residual + next / square * *direction;
        }
        square = next;
    }
    Err("the iteration does not converge".into())
}

/// The exchange of rows with the ranks above and below.
struct Borders {
    cells: usize,
    sends: [PersistentSend<Vec<f64>>; 2],
    receives: [PersistentRecv<Vec<f64>>; 2],
}

impl Borders {
    fn new(comm: &Comm, cells: usize) -> Result<Self, samite::Error> {
        let (rank, last) = (comm.rank().0, comm.size() - 1);
        let above = (rank > 0).then(|| Rank(rank - 1));
        let below = (rank < last).then(|| Rank(rank + 1));
        let row = || vec![0.0; cells];
        Ok(Self {
            cells,
            sends: [comm.send_init(row(), above, UP)?, comm.send_init(row(), below, DOWN)?],
            receives: [comm.recv_init(row(), above, DOWN)?, comm.recv_init(row(), below, UP)?],
        })
    }

    /// Applies the operator to this rank's rows: four times a cell minus the sum of its four neighbours. All ranks call
    /// this together, because they exchange the rows at their borders. Cells outside the square are zero.
    fn apply(&mut self, values: &[f64], result: &mut [f64]) -> Result<(), samite::Error> {
        let cells = self.cells;
        let [up, down] = &mut self.sends;
        up.buffer_mut()?.copy_from_slice(&values[..cells]);
        down.buffer_mut()?.copy_from_slice(&values[values.len() - cells..]);
        let [above, below] = &mut self.receives;
        start_all(&mut [above, below, up, down])?;
        // First compute the rows whose neighbours are on this rank, while the rows of the other ranks travel.
        let rows = values.len() / cells;
        for row in 1..rows.saturating_sub(1) {
            let [above, here, below] = [row - 1, row, row + 1].map(|row| &values[row * cells..][..cells]);
            apply_row([above, here, below], &mut result[row * cells..][..cells]);
        }
        for operation in &mut self.sends {
            operation.wait()?;
        }
        for operation in &mut self.receives {
            operation.wait()?;
        }
        let [above, below] = &mut self.receives;
        let (above, below) = (above.buffer_mut()?, below.buffer_mut()?);
        for row in [0, rows - 1] {
            let of = |row: usize| &values[row * cells..][..cells];
            let north = if row == 0 { &above[..] } else { of(row - 1) };
            let south = if row == rows - 1 { &below[..] } else { of(row + 1) };
            apply_row([north, of(row), south], &mut result[row * cells..][..cells]);
        }
        Ok(())
    }
}

fn apply_row([above, here, below]: [&[f64]; 3], result: &mut [f64]) {
    for (column, result) in result.iter_mut().enumerate() {
        let west = if column == 0 { 0.0 } else { here[column - 1] };
        let east = here.get(column + 1).copied().unwrap_or(0.0);
        *result = 4.0 * here[column] - (above[column] + below[column]) - (west + east);
    }
}

/// Returns the sum of the values of all ranks, at every rank.
fn sum(comm: &Comm, value: f64) -> Result<f64, samite::Error> {
    let mut total = [value];
    if comm.rank() != 0 {
        comm.send(&total, Rank(0), PART)?;
        comm.recv(&mut total, Rank(0), SUM)?;
        return Ok(total[0]);
    }
    for rank in 1..comm.size() {
        let mut part = [0.0];
        comm.recv(&mut part, Rank(rank), PART)?;
        total[0] += part[0];
    }
    for rank in 1..comm.size() {
        comm.send(&total, Rank(rank), SUM)?;
    }
    Ok(total[0])
}

fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn add(values: &mut [f64], factor: f64, direction: &[f64]) {
    for (value, direction) in values.iter_mut().zip(direction) {
        *value += factor * direction;
    }
}

/// Returns the solution at a cell.
fn known(row: usize, column: usize, cells: usize) -> f64 {
    let [x, y] = [row, column].map(|index| (index + 1) as f64 / (cells + 1) as f64);
    x * (1.0 - x) * (std::f64::consts::PI * y).sin() + x * y * (1.0 - y)
}

/// Returns part `index` of `total` rows that are divided into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
