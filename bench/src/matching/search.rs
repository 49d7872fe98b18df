//! Search times of each structure, relative to the list, for the workloads of figures 4.12, 4.13 and 4.17 of
//! Zounmevo's thesis (Scalability-Driven Approaches to Key Aspects of the Message Passing Interface, 2014).

use std::error::Error;

use super::Report;
use super::plot::{self, Curve};
use super::structures::{ADAPTIVE, ARRAY, LIST, STRUCTURES};
use super::workload::{Direction, Queue, Workload};
use crate::spread::Spread;

/// The sizes of a context.
const RANKS: [u32; 6] = [16, 256, 4096, 16_384, 65_536, 1_048_576];

/// The maximum number of entries visited in a cell. Without it, two kinds of cells would take too long: a list that is
/// searched to its end, and a published structure that is searched for any source.
const VISITS_MAX: usize = 40_000_000;

/// One plot: a kind of workload at all sizes.
#[derive(Clone, Copy, Debug)]
struct Picture {
    figure: &'static str,
    workload: Workload,
    /// The published statements about the speed relative to the list, from the text and the available figures.
    published: &'static str,
}

impl Picture {
    fn cells(self, items_max: usize) -> impl Iterator<Item = Workload> {
        let cells = RANKS.into_iter().map(move |ranks| Workload { ranks, ..self.workload });
        cells.filter(move |workload| workload.items() <= items_max)
    }
}

/// Iterates over the workloads of all plots at all sizes.
pub(super) fn workloads(items_max: usize) -> impl Iterator<Item = Workload> {
    pictures().into_iter().flat_map(move |picture| picture.cells(items_max))
}

/// Measures all plots.
///
/// # Errors
/// A plot could not be written.
pub(super) fn run(report: &Report) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut worst = (0.0, String::new());
    for picture in pictures() {
        let name = picture.workload.name();
        report.heading(&format!(
            "{}: {name}; ns a match, median (min-max) of {} runs",
            picture.figure, report.runs
        ));
        report.line(&format!("published speed against the list: {}", picture.published));
        let names = STRUCTURES.map(|structure| format!("{:>24}", structure.name)).concat();
        report.line(&format!("{:>8} {:>9}{names}{:>9}{:>9}", "ranks", "items", "of list", "of array"));
        let mut curves = STRUCTURES.map(|structure| Curve { name: structure.name, points: Vec::new() });
        for workload in picture.cells(report.items_max) {
            let ranks = workload.ranks;
            let cells = cells(report, &workload);
            for (cell, curve) in cells.iter().zip(&mut curves) {
                curve.points.push((f64::from(ranks), cell.ns.median));
            }
            let figures = cells.each_ref().map(Cell::to_string).map(|cell| format!("{cell:>24}")).concat();
            let ratio = |of: usize| cells[ADAPTIVE].ns.median / cells[of].ns.median;
            let ratios = format!("{:>9.4}{:>9.2}", ratio(LIST), ratio(ARRAY));
            report.line(&format!("{ranks:>8} {:>9}{figures}{ratios}", workload.items()));
            if ratio(ARRAY) > worst.0 {
                worst = (ratio(ARRAY), format!("{name}, {ranks} ranks"));
            }
            for (cell, structure) in cells.iter().zip(STRUCTURES) {
                report.record(&name, structure.name, (ranks, workload.items()), "match_ns", "ns", cell.ns);
            }
        }
        if let Some(directory) = &report.plots {
            plot::draw(directory, picture.figure, &name, &curves)?;
        }
    }
    report.line(&format!("\nAdaptive against RankArray, worst cell: {:.2} ({})", worst.0, worst.1));
    report.line("~: only some matches are timed, spread evenly over all.");
    Ok(())
}

/// The time of a match on one structure. `is_sampled` is true if only some matches were made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) ns: Spread,
    is_sampled: bool,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.is_sampled { "~" } else { "" };
        let Spread { median, min, max } = self.ns;
        let decimals = usize::from(median < 100.0);
        write!(f, "{mark}{median:.decimals$} ({min:.decimals$}-{max:.decimals$})")
    }
}

/// Measures a workload on each structure, once in each run. A run measures all structures one after the other.
pub(super) fn cells(report: &Report, workload: &Workload) -> [Cell; STRUCTURES.len()] {
    let mut samples = STRUCTURES.map(|_| Vec::new());
    let limits = [0, 1, 2, 3, 4].map(|structure| matches_max(workload, structure));
    for _ in 0..report.runs {
        for (at, structure) in STRUCTURES.iter().enumerate() {
            samples[at].push((structure.time)(workload, limits[at], Report::AT_LEAST));
        }
    }
    let mut limits = limits.into_iter();
    samples.map(|samples| Cell {
        ns: Spread::of(samples).expect("there is at least one run"),
        is_sampled: limits.next().is_some_and(|limit| limit < workload.items()),
    })
}

/// Returns the maximum number of matches for a cell, or `usize::MAX` if all are made.
pub(super) fn matches_max(workload: &Workload, structure: usize) -> usize {
    let is_long = match structure {
        ADAPTIVE => false,
        LIST => workload.ranks_in != Direction::Forward || workload.contexts > 1,
        _ => workload.any_source > 0,
    };
    let visits = workload.items().max(workload.ranks as usize);
    if is_long && visits * visits > VISITS_MAX { (VISITS_MAX / visits).max(16) } else { usize::MAX }
}

fn pictures() -> Vec<Picture> {
    let mut pictures = Vec::new();
    for (queue, figure) in [(Queue::Posted, "figure 4.12"), (Queue::Unexpected, "figure 4.13")] {
        for tags in [1, 5, 10] {
            let reverse = Workload::new(queue, 0, tags, Direction::Reverse);
            for any_source in [0, 30, 60, 100] {
                let published = match (queue, tags, any_source) {
                    (Queue::Posted, 10, 0) => "array over 40, 4-D over 30",
                    (Queue::Unexpected, 10, 0) => "array over 40, 4-D over 30 (more than for the PRQ)",
                    (_, _, 0) => "above 1",
                    (_, _, 100) => "about 1",
                    _ => "above 1, falling with the share of any source",
                };
                pictures.push(Picture { figure, workload: Workload { any_source, ..reverse }, published });
            }
            let forward = Workload { ranks_in: Direction::Forward, ..reverse };
            pictures.push(Picture {
                figure,
                workload: forward,
                published: "about 1, slightly below at times",
            });
        }
    }
    for (contexts, published) in [(10, "reverse 42 to 175.8"), (50, "reverse 100 to 556")] {
        for contexts_in in [Direction::Forward, Direction::Reverse] {
            for ranks_in in [Direction::Reverse, Direction::Forward] {
                let workload =
                    Workload { contexts, contexts_in, ..Workload::new(Queue::Posted, 0, 5, ranks_in) };
                pictures.push(Picture { figure: "figure 4.17", workload, published });
            }
        }
    }
    pictures
}
