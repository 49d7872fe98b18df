//! The experiments of (Zounmevo 2014, chapter 4) on the matching engine's structures, beside the published figures, and
//! the bounds of the default structure.

mod bounds;
mod cold;
mod memory;
mod orders;
mod plot;
mod pointers;
mod search;
mod structures;
mod workload;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::record::Record;
use crate::spread::Spread;

/// The options of the experiments.
#[derive(Debug, Args)]
pub(crate) struct MatchingArgs {
    /// The experiments to run; by default all
    #[arg(value_enum)]
    experiments: Vec<Experiment>,
    /// Runs of each structure in each cell, interleaved
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The maximum number of items in a queue; larger cells are left out
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    items_max: usize,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Also draw the speeds as SVG files in this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Make the matches of this cell of the experiment `cold` without counting; the counting process starts it
    #[arg(long, hide = true)]
    cold_cell: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Experiment {
    /// Speed of searches: figures 4.12, 4.13 and 4.17
    Search,
    /// Pointers followed: tables 4.2 and 4.3
    Pointers,
    /// Memory: table 4.5, and figures 4.14, 4.15 and 4.18
    Memory,
    /// The 4-D queue and a tree, by the order of insertion: tables 4.6 and 4.7
    Orders,
    /// Cache lines touched by a match with a cold cache, counted by valgrind
    Cold,
    /// Bounds of the default structure
    Bounds,
}

/// The options of the experiments, and the functions that print figures.
#[derive(Debug)]
struct Report {
    runs: usize,
    items_max: usize,
    json: bool,
    plots: Option<PathBuf>,
}

impl MatchingArgs {
    /// Runs the experiments. Returns false if a bound of the default structure does not hold.
    ///
    /// # Errors
    /// A plot could not be written, or cache lines could not be counted.
    pub(crate) fn run(self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let Self { experiments, runs, items_max, json, plots, cold_cell } = self;
        if let Some(cell) = cold_cell {
            cold::touch(cell);
            return Ok(true);
        }
        let report = Report { runs: runs as usize, items_max, json, plots };
        let all = [
            Experiment::Search,
            Experiment::Pointers,
            Experiment::Memory,
            Experiment::Orders,
            Experiment::Cold,
            Experiment::Bounds,
        ];
        let mut passed = true;
        for experiment in if experiments.is_empty() { all.to_vec() } else { experiments } {
            match experiment {
                Experiment::Search => search::run(&report)?,
                Experiment::Pointers => pointers::run(&report),
                Experiment::Memory => memory::run(&report),
                Experiment::Orders => orders::run(&report),
                Experiment::Cold => cold::run(&report)?,
                Experiment::Bounds => passed &= bounds::run(&report),
            }
        }
        Ok(passed)
    }
}

impl Report {
    /// The minimum time of one measurement of a cell. It is short, because other load on the machine disturbs a smaller
    /// share of many short measurements than of a few long ones.
    const AT_LEAST: Duration = Duration::from_millis(3);

    fn heading(&self, text: &str) {
        self.line(&format!("\n{text}"));
    }

    fn line(&self, text: &str) {
        if !self.json {
            say!("{text}");
        }
    }

    /// Prints a figure as JSON, if JSON was requested.
    fn record(
        &self,
        cell: &str,
        structure: &str,
        (ranks, items): (u32, usize),
        metric: &str,
        unit: &str,
        spread: Spread,
    ) {
        if self.json {
            let record = Record {
                bench: format!("matching/{cell}"),
                implementation: structure.to_owned(),
                transport: "none".to_owned(),
                ranks,
                bytes: None,
                depth: Some(items),
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                median: spread.median,
                min: spread.min,
                max: spread.max,
                runs: self.runs,
                ratio: None,
            };
            say!("{}", record.to_json());
        }
    }
}

/// Returns the spread of a figure that is always the same.
fn exactly(figure: f64) -> Spread {
    Spread { median: figure, min: figure, max: figure }
}

/// Formats bytes as the published tables do.
fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{:.2} KB", count as f64 / 1024.0),
        _ => format!("{:.2} MB", count as f64 / (1024.0 * 1024.0)),
    }
}
