//! Cache lines touched by a match when neither the engine nor its queues are cached.
//!
//! Callgrind's cache model counts the lines, so the counts are reproducible and need no processor counters.

use std::hint::black_box;

use super::structures::STRUCTURES;
use super::workload::{Direction, Queue, Workload};
use super::{Report, exactly};
use crate::callgrind::{self, CountError};

/// The numbers of ranks. Each rank has one item in the queue.
const RANKS: [u32; 5] = [16, 256, 4096, 65_536, 1_048_576];

/// The number of matches in each cell.
const MATCHES: usize = 16;

/// The modelled cache. It is so large that the lines of a match do not evict each other. Only a match on a list touches
/// more lines than the cache holds. It touches each of its lines once, so an eviction changes no count.
const MODEL: [&str; 3] = ["--cache-sim=yes", "--D1=1048576,16,64", "--LL=8388608,16,64"];
const CACHE_BYTES: usize = 1 << 20;
const LINE_BYTES: usize = 64;

/// A number of bytes of the stack, larger than a match uses.
const STACK_BYTES: usize = 8 << 10;

/// The columns in which callgrind prints read misses and write misses.
const MISSES: [usize; 2] = [4, 5];

/// Counts the cache lines of all cells, and prints them.
///
/// # Errors
/// [`CountError`].
pub(super) fn run(report: &Report) -> Result<(), CountError> {
    report.heading(&format!(
        "cold: cache lines of data a match touches, average of {MATCHES} in reverse, spread over the queue"
    ));
    let sizes = RANKS.iter().filter(|&&ranks| ranks as usize <= report.items_max).count();
    let columns = RANKS[..sizes].iter().map(|ranks| format!("{ranks:>11}")).collect::<String>();
    report.line(&format!("{:<24}{columns}{:>11}", "ranks", "last/first"));
    let cells: Vec<_> = cells().collect();
    for (row, cells) in cells.chunks(RANKS.len()).enumerate() {
        let mut lines = Vec::new();
        for (at, (structure, workload)) in cells[..sizes].iter().enumerate() {
            let touched = count(row * RANKS.len() + at)?;
            let size = (workload.ranks, workload.items());
            let name = STRUCTURES[*structure].name;
            report.record(&workload.name(), name, size, "cold_lines", "lines", exactly(touched));
            lines.push(touched);
        }
        let [(structure, Workload { queue, .. }), ..] = cells else { continue };
        let name = format!("{queue:?} {}", STRUCTURES[*structure].name);
        let figures = lines.iter().map(|lines| format!("{lines:>11.2}")).collect::<String>();
        let ratio = lines.last().zip(lines.first()).map_or(1.0, |(last, first)| last / first);
        report.line(&format!("{name:<24}{figures}{ratio:>11.2}"));
    }
    Ok(())
}

/// Makes the matches of a cell in this process, under callgrind.
pub(super) fn touch(cell: usize) {
    if let Some((structure, workload)) = cells().nth(cell) {
        let displacing = vec![1_u8; 2 * CACHE_BYTES];
        (STRUCTURES[structure].touch)(&workload, MATCHES, &|| {
            black_box(displacing.iter().step_by(LINE_BYTES).map(|&byte| usize::from(byte)).sum::<usize>());
            warm_stack();
        });
    }
}

/// Brings the lines of the stack into the cache. The stack is in the cache for any caller, so its lines must not count
/// for the match.
#[inline(never)]
fn warm_stack() {
    black_box([0_u8; STACK_BYTES]);
}

/// Iterates over all cells: for each queue and each structure, the workload of each size.
fn cells() -> impl Iterator<Item = (usize, Workload)> {
    [Queue::Posted, Queue::Unexpected].into_iter().flat_map(|queue| {
        (0..STRUCTURES.len()).flat_map(move |structure| {
            RANKS.map(|ranks| (structure, Workload::new(queue, ranks, 1, Direction::Reverse)))
        })
    })
}

/// Returns the average number of cache lines that a match touches, counted in a separate process.
fn count(cell: usize) -> Result<f64, CountError> {
    let counts = callgrind::collect(&MODEL, &["matching", "--cold-cell", &cell.to_string()])?;
    let missed: u64 = MISSES.into_iter().filter_map(|at| counts.get(at)).sum();
    Ok(missed as f64 / MATCHES as f64)
}
