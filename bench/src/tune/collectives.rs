//! Measures which algorithm of a collective operation is the fastest, by the number of ranks and the number of bytes.
//!
//! A job of each number of ranks measures all algorithms of an operation in turns, length by length. The algorithms are
//! compared within a turn: the host may move the cores, and all times of the next second are then twice as long. Each
//! turn begins with another algorithm.

use std::error::Error;
use std::fmt::Display;
use std::process::{Command, Stdio};

use samite_coll::{Choice, Row, Rows, Selection, Situation, Table};

use crate::benchmark::{Benchmark, Point};
use crate::compare::MARKED;
use crate::implementation::algorithms_of;
use crate::loops::{Loops, Messages};
use crate::measure::{Pace, measure_at};
use crate::ours::Samite;
use crate::spread::{Spread, geometric_mean};

/// The measured numbers of ranks. The default rows apply to more ranks.
const RANKS: [u32; 3] = [2, 4, 8];

/// The measured lengths: see [`Point::bytes`]. For longer data the default rows apply.
const SIZES: [usize; 9] = [8, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A gain below this share is taken for noise, and leaves the algorithm of the default row.
const NOISE: f64 = 0.1;

type Failure = Box<dyn Error + Send + Sync>;

/// Measures all collective operations over a transport, by jobs that this program runs, and returns the rows.
pub(super) fn tune(transport: &str, has_board: bool, runs: u32) -> Result<Rows, Failure> {
    let mut rows = Rows::NONE;
    for benchmark in Benchmark::COLLECTIVE {
        let mut texts = Vec::new();
        for ranks in RANKS {
            let measured = measure(transport, benchmark, ranks, runs)?;
            texts.extend(best(benchmark, ranks, has_board, &measured));
        }
        let text = texts.join(", ");
        say!("  {} = \"{text}\"", benchmark.name());
        rows = rows.before(&Rows::parse(benchmark.name(), &text).ok_or("these are no rows")?);
    }
    Ok(rows)
}

/// Measures all collective operations as [`tune`] does, and compares the algorithm that the table chooses with the
/// fastest one. Prints the worst ratio of each operation. Returns true if none exceeds [`MARKED`]. Algorithms that are not
/// measured are counted: a file may name them, for example a chain of another length.
pub(super) fn check(transport: &str, has_board: bool, runs: u32, table: &Table) -> Result<bool, Failure> {
    let mut passed = true;
    for benchmark in Benchmark::COLLECTIVE {
        let mut worst = (0.0, "nothing was measured".to_owned());
        let mut unmeasured = 0;
        for ranks in RANKS {
            for (bytes, algorithms) in measure(transport, benchmark, ranks, runs)? {
                let situation = situation(benchmark, ranks, bytes, has_board);
                let name = chosen(benchmark, table, &situation).unwrap_or_default();
                let time = algorithms.iter().find(|(other, _)| *other == name).map(|(_, time)| *time);
                let suitable = algorithms.iter().filter(|(name, _)| suits(benchmark, name, &situation));
                let fastest = suitable.min_by(|(_, a), (_, b)| a.total_cmp(b));
                let Some((time, (fastest, least))) = time.zip(fastest) else {
                    unmeasured += 1;
                    continue;
                };
                if time / least > worst.0 {
                    let what = format!("{ranks} ranks, {bytes} bytes: {name}; the fastest is {fastest}");
                    worst = (time / least, what);
                }
            }
        }
        let (ratio, what) = worst;
        let remark = if ratio > MARKED { "  TOO SLOW" } else { "" };
        passed &= ratio <= MARKED;
        let operation = benchmark.name();
        say!("{transport:<12} {operation:<10} {ratio:>5.2}  {what}{remark}");
        if unmeasured > 0 {
            say!(
                "{transport:<12} {operation:<10}        {unmeasured} lengths have an algorithm that is not measured"
            );
        }
    }
    Ok(passed)
}

/// The relative time of each length by each algorithm, and the name of the algorithm.
type Times = Vec<(usize, Vec<(String, f64)>)>;

/// Runs a job, and returns its times.
fn measure(transport: &str, benchmark: Benchmark, ranks: u32, runs: u32) -> Result<Times, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["tune", "--operation", benchmark.name(), "--transport", transport]);
    command.args(["--ranks", &ranks.to_string(), "--runs", &runs.to_string()]);
    command.env_remove("SAMITE_TUNING").env_remove("SAMITE_COLL_ALGORITHMS");
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| {
        let (name, times) = line.split_once(' ')?;
        let times: Option<Vec<f64>> = times.split(' ').map(|time| time.parse().ok()).collect();
        Some((name.to_owned(), times?))
    };
    let algorithms: Option<Vec<_>> = text.lines().map(parse).collect();
    let sizes = sizes(benchmark);
    let is_whole = |times: &(String, Vec<f64>)| times.1.len() == sizes.len();
    let algorithms = algorithms.filter(|found| !found.is_empty() && found.iter().all(is_whole));
    let algorithms = algorithms.ok_or_else(|| {
        format!("no figures from {command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let of = |place: usize| algorithms.iter().map(|(name, times)| (name.clone(), times[place])).collect();
    Ok(sizes.iter().enumerate().map(|(place, &bytes)| (bytes, of(place))).collect())
}

/// Runs a rank of a job. Rank 0 prints a line for each algorithm: its name, and for each length its time relative to the
/// geometric mean of all algorithms in the same turn, as the median of the turns.
pub(super) fn take_part(benchmark: Benchmark, runs: u32) -> Result<(), Failure> {
    let samite = Samite::new(samite::init()?)?;
    let ranks = samite.size();
    let is_first = samite.rank() == 0;
    let sizes = sizes(benchmark);
    let algorithms: Vec<_> = algorithms_of(benchmark).collect();
    let mut turns = vec![vec![Vec::new(); sizes.len()]; algorithms.len()];
    let mut loops = Loops::new(samite);
    for turn in 0..runs as usize {
        for (place, &bytes) in sizes.iter().enumerate() {
            let point = Point { ranks, bytes, depth: None };
            let mut times = vec![1.0; algorithms.len()];
            for number in (0..algorithms.len()).map(|number| (turn + number) % algorithms.len()) {
                loops.messages_mut().select(&algorithms[number].1)?;
                if let Some(spread) = measure_at(&mut loops, benchmark, point, &Pace::STEADY)? {
                    times[number] = spread.median;
                }
            }
            let mean = geometric_mean(&times);
            for (turns, time) in turns.iter_mut().zip(times) {
                turns[place].push(time / mean);
            }
        }
    }
    if is_first {
        for ((name, _), turns) in algorithms.iter().zip(turns) {
            let median = |turns: Vec<f64>| Spread::of(turns).map_or(f64::INFINITY, |spread| spread.median);
            let times: Vec<_> = turns.into_iter().map(|turns| median(turns).to_string()).collect();
            say!("{name} {}", times.join(" "));
        }
    }
    Ok(())
}

/// Returns the lengths with which an operation is measured.
fn sizes(benchmark: Benchmark) -> &'static [usize] {
    if benchmark == Benchmark::Barrier { &SIZES[..1] } else { &SIZES }
}

/// Returns the rows of an operation for a number of ranks, as text. The algorithm of the default row remains unless
/// another one is faster by more than noise.
fn best(benchmark: Benchmark, ranks: u32, has_board: bool, times: &Times) -> Vec<String> {
    let mut rows: Vec<(usize, String)> = Vec::new();
    for (bytes, algorithms) in times {
        let situation = situation(benchmark, ranks, *bytes, has_board);
        let default = chosen(benchmark, &Table::default(), &situation).unwrap_or_default();
        let suitable = algorithms.iter().filter(|(name, _)| suits(benchmark, name, &situation));
        let Some((fastest, least)) = suitable.min_by(|(_, a), (_, b)| a.total_cmp(b)) else { continue };
        let time =
            algorithms.iter().find(|(name, _)| *name == default).map_or(f64::INFINITY, |(_, time)| *time);
        let name = if *least < time * (1.0 - NOISE) { fastest.clone() } else { default };
        match rows.last_mut() {
            Some((limit, last)) if *last == name => *limit = situation.bytes,
            _ => rows.push((situation.bytes, name)),
        }
    }
    let limit = |bytes: usize| match benchmark {
        Benchmark::Barrier => "any".to_owned(),
        _ => bytes.to_string(),
    };
    rows.into_iter().map(|(bytes, name)| format!("{ranks} {} {name}", limit(bytes))).collect()
}

/// Returns the situation in which an operation is measured.
fn situation(benchmark: Benchmark, ranks: u32, bytes: usize, has_board: bool) -> Situation {
    // The bytes of an allgather in a row are those of all blocks.
    let blocks = if benchmark == Benchmark::Allgather { ranks as usize } else { 1 };
    let bytes = bytes * blocks;
    Situation { ranks, bytes, elements: bytes / size_of::<f64>(), has_board, ..Situation::default() }
}

/// Returns true if an algorithm can carry out an operation.
fn suits(benchmark: Benchmark, name: &str, situation: &Situation) -> bool {
    let selection = Selection::parse(&format!("{}={name}", benchmark.name()));
    let chosen = |selection| chosen(benchmark, &Table { selection, ..Table::default() }, situation);
    selection.is_some_and(|selection| chosen(selection).is_none())
}

/// Returns the name of the algorithm that a row chooses. `None` if the selected algorithm is chosen.
fn chosen(benchmark: Benchmark, table: &Table, situation: &Situation) -> Option<String> {
    match benchmark {
        Benchmark::Barrier => row_name(&table.barrier(situation)),
        Benchmark::Bcast => row_name(&table.bcast(situation)),
        Benchmark::Reduce => row_name(&table.reduce(situation)),
        Benchmark::Allreduce => row_name(&table.allreduce(situation)),
        Benchmark::Allgather => row_name(&table.allgather(situation)),
        Benchmark::Alltoall => row_name(&table.alltoall(situation)),
        _ => None,
    }
}

/// Returns the name of the algorithm in the row that decided, if one did.
fn row_name<A: Copy>(choice: &Choice<A>) -> Option<String>
where
    Row<A>: Display,
{
    choice.row.and_then(|row| row.to_string().split(' ').next_back().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[(&str, f64)]) -> Vec<(String, f64)> {
        of.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect()
    }

    #[test]
    fn an_algorithm_that_is_faster_gets_a_row() {
        let short = times(&[("bruck", 9.0), ("recursive-doubling", 9.5), ("ring", 20.0), ("board", 1.0)]);
        let long = times(&[("bruck", 9.0), ("recursive-doubling", 9.5), ("ring", 5.0), ("board", 1.0)]);
        let measured = vec![(8, short.clone()), (256, short), (1024, long)];
        let rows = best(Benchmark::Allgather, 4, false, &measured);
        assert_eq!(
            rows,
            ["4 1024 recursive-doubling", "4 4096 ring"],
            "there is no board, and a gain of 5 % is noise"
        );
        let rows = best(Benchmark::Allgather, 4, true, &measured);
        assert_eq!(rows, ["4 4096 board"]);
        let rows =
            best(Benchmark::Barrier, 2, true, &vec![(8, times(&[("dissemination", 1.0), ("board", 2.0)]))]);
        assert_eq!(rows, ["2 any dissemination"]);
    }
}
