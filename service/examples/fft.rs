//! A parallel fast Fourier transform in six steps: three transpositions of a square matrix, between them transforms of
//! its rows.
//!
//! The signal is a matrix, of which each rank holds some rows. A transposition is an alltoallv. The signal is a sum of
//! waves of known frequencies, so its spectrum is known, and each rank checks its part.
//!
//! Source: Bailey: *FFTs in External or Hierarchical Memory*. The Journal of Supercomputing 4, 1990.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/fft [ROWS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::f64::consts::TAU;
use std::ops::Range;
use std::time::Instant;

use samite::reduction::Max;
use samite::{Comm, consecutive};

/// A complex number: its real and its imaginary part.
type Complex = [f64; 2];

/// The amplitudes of the waves, and their frequencies as parts of the number of samples.
const WAVES: [(f64, f64); 3] = [(1.0, 0.01), (0.5, 0.37), (0.25, 0.81)];

fn main() -> Result<(), Box<dyn Error>> {
    let rows: usize = std::env::args().nth(1).map_or(Ok(512), |text| text.parse())?;
    if !rows.is_power_of_two() {
        return Err(format!("the number of rows must be a power of two, and is {rows}").into());
    }
    let world = samite::init()?;
    let comm = world.comm();
    let own = part(rows, comm.size(), comm.rank().0);
    let mut matrix: Vec<Complex> = (own.start * rows..own.end * rows).map(|at| sample(at, rows)).collect();

    let start = now();
    transpose(comm, &mut matrix, rows)?;
    matrix.chunks_exact_mut(rows).for_each(transform);
    for (row, values) in own.clone().zip(matrix.chunks_exact_mut(rows)) {
        for (column, value) in values.iter_mut().enumerate() {
            *value = times(*value, unit(row * column, rows * rows));
        }
    }
    transpose(comm, &mut matrix, rows)?;
    matrix.chunks_exact_mut(rows).for_each(transform);
    transpose(comm, &mut matrix, rows)?;
    let seconds = start.elapsed().as_secs_f64();

    let wrong = (own.start * rows..).zip(&matrix).map(|(at, value)| error(*value, at, rows));
    let mut largest = [wrong.fold(0.0, f64::max)];
    comm.allreduce_in_place(&mut largest, Max)?;
    if largest[0] > 1e-10 * (rows * rows) as f64 {
        return Err(format!("the spectrum is wrong by up to {}", largest[0]).into());
    }
    if comm.rank() == 0 {
        println!("fft: ranks={} samples={} seconds={seconds:.3} verified", comm.size(), rows * rows);
    }
    Ok(())
}

/// Transposes a square matrix of which each rank has some rows.
fn transpose(comm: &Comm, matrix: &mut [Complex], rows: usize) -> Result<(), samite::Error> {
    let own = part(rows, comm.size(), comm.rank().0);
    let parts = || (0..comm.size()).map(|rank| part(rows, comm.size(), rank));
    // The block for a rank has its columns of these rows, transposed already.
    let mut sent = Vec::with_capacity(matrix.len());
    for columns in parts() {
        for column in columns {
            sent.extend(matrix.chunks_exact(rows).map(|row| row[column]));
        }
    }
    let blocks = consecutive(parts().map(|part| part.len() * own.len()));
    let mut received = vec![[0.0; 2]; matrix.len()];
    comm.alltoallv(&sent, &blocks, &mut received, &blocks)?;
    // The block from a rank has the values of its rows, which are columns now, for each row of this rank.
    for (columns, block) in parts().zip(blocks) {
        let width = columns.len();
        for (row, values) in matrix.chunks_exact_mut(rows).zip(received[block].chunks_exact(width.max(1))) {
            row[columns.clone()].copy_from_slice(values);
        }
    }
    Ok(())
}

/// Replaces values, whose number is a power of two, by their Fourier transform: decimation in time, by Cooley and
/// Tukey.
fn transform(values: &mut [Complex]) {
    let bits = values.len().trailing_zeros();
    for index in 0..values.len() {
        let reversed = if bits == 0 { 0 } else { index.reverse_bits() >> (usize::BITS - bits) };
        if index < reversed {
            values.swap(index, reversed);
        }
    }
    let mut half = 1;
    while half < values.len() {
        for group in values.chunks_exact_mut(2 * half) {
            let (low, high) = group.split_at_mut(half);
            for (index, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let turned = times(*high, unit(index, 2 * half));
                (*low, *high) =
                    ([low[0] + turned[0], low[1] + turned[1]], [low[0] - turned[0], low[1] - turned[1]]);
            }
        }
        half *= 2;
    }
}

/// Returns the root of unity e^(-2 π i k / n).
fn unit(k: usize, n: usize) -> Complex {
    let (sin, cos) = (-TAU * (k % n) as f64 / n as f64).sin_cos();
    [cos, sin]
}

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

/// Returns the frequency of a wave: a whole number of periods in all samples.
fn frequency(part: f64, rows: usize) -> usize {
    (part * (rows * rows) as f64) as usize
}

/// Returns a sample of the signal.
fn sample(at: usize, rows: usize) -> Complex {
    let samples = rows * rows;
    let wave = |(amplitude, part): (f64, f64)| {
        let turn = (frequency(part, rows) as u128 * at as u128 % samples as u128) as usize;
        let [re, im] = unit(turn, samples);
        [amplitude * re, -amplitude * im]
    };
    WAVES.map(wave).into_iter().fold([0.0; 2], |sum, wave| [sum[0] + wave[0], sum[1] + wave[1]])
}

/// Returns the distance of a value of the spectrum from the right one.
fn error(value: Complex, at: usize, rows: usize) -> f64 {
    let waves = WAVES.iter().filter(|(_, part)| frequency(*part, rows) == at);
    let expected: f64 = waves.map(|(amplitude, _)| amplitude * (rows * rows) as f64).sum();
    (value[0] - expected).hypot(value[1])
}

/// Returns part `index` of `total` rows that are cut into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
