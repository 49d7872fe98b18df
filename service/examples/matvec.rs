//! Multiplies a matrix by a vector on a grid of ranks, each of which has one block of the matrix.
//!
//! The ranks of one column of the grid use the same part of the vector. The ranks of one row compute summands of the
//! same part of the result. So each row and each column of the grid has a communicator of its own. The result is
//! compared with the whole product.
//!
//! ```console
//! $ samite run -n 6 -- target/release/examples/matvec 1000
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;

use samite::{Cartesian, Comm, Dimension, Rank, Source, balanced};

const PART: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let n: u64 = std::env::args().nth(1).map_or(Ok(1000), |n| n.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let sizes = balanced(comm.size(), &[None, None])?;
    let grid = Cartesian::new(&[Dimension::open(sizes[0]), Dimension::open(sizes[1])])?;
    let coordinates = grid.coordinates(comm.rank())?;
    let rows = part(n, sizes[0], coordinates[0]);
    let columns = part(n, sizes[1], coordinates[1]);
    // Returns a communicator of the ranks that differ from this rank only in the kept dimension.
    let along = |keep: [bool; 2]| -> Result<Comm, Box<dyn Error>> {
        let lines = grid.sub_grids(&keep)?;
        let line = comm.split(Some(lines.colour(comm.rank())?), lines.key(comm.rank())?)?;
        Ok(line.ok_or("every rank is in a row and a column")?)
    };
    let (row, column) = (along([false, true])?, along([true, false])?);

    // The first rank of each column has the column's part of the vector, and sends it to the other ranks of the column.
    let mut x: Vec<u64> = columns.clone().map(vector).collect();
    if column.rank() != 0 {
        x.fill(0);
    }
    broadcast(&column, &mut x)?;
    let product =
        rows.clone().map(|row| columns.clone().zip(&x).map(|(column, x)| matrix(row, column) * x).sum());
    let mut y: Vec<u64> = product.collect();
    sum(&row, &mut y)?;

    // The first rank of each row has the row's part of the result.
    if row.rank() == 0 {
        for (row, y) in rows.zip(&y) {
            let expected: u64 = (0..n).map(|column| matrix(row, column) * vector(column)).sum();
            if *y != expected {
                return Err(format!("row {row} is {y} instead of {expected}").into());
            }
        }
        // Rank 0 has received all values of this sum only when the first rank of every row has found its part correct.
        sum(&column, &mut [0])?;
    }
    if comm.rank() == 0 {
        println!("matvec: {n} rows on {} by {} ranks, verified", sizes[0], sizes[1]);
    }
    world.leave()?;
    Ok(())
}

/// Returns the indices of part `index` of `n` values in `parts` parts.
fn part(n: u64, parts: u32, index: i64) -> Range<u64> {
    let begin = |index: i64| n * index as u64 / u64::from(parts);
    begin(index)..begin(index + 1)
}

fn matrix(row: u64, column: u64) -> u64 {
    (3 * row + 7 * column) % 11
}

fn vector(column: u64) -> u64 {
    column % 13
}

/// Sends the values of rank 0 to the other ranks.
fn broadcast(comm: &Comm, values: &mut [u64]) -> Result<(), samite::Error> {
    if comm.rank() != 0 {
        return comm.recv(values, Rank(0), PART).map(drop);
    }
    (1..comm.size()).try_for_each(|rank| comm.send(values, Rank(rank), PART))
}

/// Adds up the values of all ranks at rank 0.
fn sum(comm: &Comm, values: &mut [u64]) -> Result<(), samite::Error> {
    if comm.rank() != 0 {
        return comm.send(values, Rank(0), PART);
    }
    let mut theirs = vec![0; values.len()];
    for _ in 1..comm.size() {
        comm.recv(&mut theirs, Source::ANY, PART)?;
        values.iter_mut().zip(&theirs).for_each(|(sum, value)| *sum += value);
    }
    Ok(())
}
