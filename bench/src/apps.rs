//! The message queues of applications: their lengths, and how many entries a search compares, for each structure of the
//! matching engine.
//!
//! The command builds the examples with each structure of the matching engine and with the meter that counts, and runs
//! them. Each rank writes its statistics to a file when the rank leaves the job (`service/src/metered.rs`). The figures
//! have the definitions of (Zounmevo 2014, tables 4.8 and 4.9).

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::ValueEnum;
use samite_launch::{self as launch, Options};
use serde::Deserialize;

use crate::layouts::name;
use crate::peers;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct AppsArgs {
    /// The applications
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_values = ["nbody", "radix", "cg", "lu"])]
    apps: Vec<App>,
    /// The numbers of ranks
    #[arg(short = 'n', long, value_name = "LIST", value_delimiter = ',', default_values = ["16", "64", "128"])]
    ranks: Vec<u32>,
    /// The structures of the matching engine
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_values = ["linked-list", "four-d", "adaptive"])]
    structures: Vec<Structure>,
    /// Runs, whose figures are averaged
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The transport
    #[arg(long, value_name = "T", default_value = "samite-shm")]
    transport: String,
}

/// An example in `service/examples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum App {
    /// Bodies that attract each other
    Nbody,
    /// A radix sort
    Radix,
    /// Conjugate gradients
    Cg,
    /// Successive over-relaxation by wavefronts
    Lu,
}

/// A structure of the matching engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Structure {
    LinkedList,
    FourD,
    Adaptive,
}

impl App {
    /// Returns the arguments of the application. They set a problem that can be divided among 128 ranks.
    const fn args(self) -> &'static [&'static str] {
        match self {
            Self::Nbody => &["2048", "10"],
            Self::Radix => &["1000000"],
            Self::Cg => &["256"],
            Self::Lu => &["48", "10"],
        }
    }
}

/// The statistics that a rank writes.
#[derive(Deserialize)]
struct Queues {
    posted: Searches,
    unexpected: Searches,
}

#[derive(Deserialize)]
struct Searches {
    searches: u64,
    compared: u64,
    compared_max: u64,
    hops: u64,
    length_max: u64,
    length_sum: u64,
}

/// The figures of one of the two queues in one job.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// The maximum length (MQL).
    longest: f64,
    /// The average length of the queue at the beginning of a search: the average over each rank's searches, averaged
    /// over the ranks (AQL).
    length: f64,
    /// The maximum over the ranks of a rank's average number of entries that a search compares (MASL).
    worst_search: f64,
    /// The average number of entries that a search compares, over the searches of all ranks (ASL).
    search: f64,
    /// The maximum number of entries that a search compares.
    longest_search: f64,
    /// The average number of pointers that a search follows.
    pointers: f64,
}

impl Figures {
    fn of_job(ranks: &[&Searches]) -> Self {
        let count = ranks.len() as f64;
        let total = |of: fn(&Searches) -> u64| ranks.iter().map(|rank| of(rank)).sum::<u64>() as f64;
        let longest = |of: fn(&Searches) -> u64| ranks.iter().map(|rank| of(rank)).max().unwrap_or(0) as f64;
        let per_search = |sum: u64, rank: &Searches| sum as f64 / rank.searches.max(1) as f64;
        let searches = total(|rank| rank.searches).max(1.0);
        Self {
            longest: longest(|rank| rank.length_max),
            length: ranks.iter().map(|rank| per_search(rank.length_sum, rank)).sum::<f64>() / count,
            worst_search: ranks.iter().map(|rank| per_search(rank.compared, rank)).fold(0.0, f64::max),
            search: total(|rank| rank.compared) / searches,
            longest_search: longest(|rank| rank.compared_max),
            pointers: total(|rank| rank.hops) / searches,
        }
    }
}

/// A row of (Zounmevo 2014, tables 4.8 and 4.9): MQL, AQL, MASL and ASL of the linked list.
struct Published {
    app: App,
    name: &'static str,
    posted: [f64; 4],
    unexpected: [f64; 4],
}

#[rustfmt::skip]
const PUBLISHED: [Published; 6] = [
    Published { app: App::Radix, name: "2^28 keys, 512 ranks", posted: [4.0, 4.0, 0.998, 0.817], unexpected: [3061.3, 484.905, 1510.058, 46.547] },
    Published { app: App::Radix, name: "2^29 keys, 512 ranks", posted: [4.0, 4.0, 0.998, 0.823], unexpected: [6110.0, 492.449, 3418.630, 54.468] },
    Published { app: App::Radix, name: "2^30 keys, 512 ranks", posted: [4.0, 4.0, 0.979, 0.832], unexpected: [13228.0, 533.837, 7208.657, 74.740] },
    Published { app: App::Nbody, name: "256 ranks", posted: [255.0, 254.953, 0.981, 0.926], unexpected: [249.333, 86.863, 27.228, 6.041] },
    Published { app: App::Nbody, name: "512 ranks", posted: [511.0, 508.775, 0.984, 0.867], unexpected: [498.0, 370.342, 32.363, 17.718] },
    Published { app: App::Nbody, name: "704 ranks", posted: [703.0, 682.646, 0.982, 0.796], unexpected: [693.667, 551.003, 50.863, 21.876] },
];

impl AppsArgs {
    /// Builds and runs the applications, and prints the table.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        for &structure in &self.structures {
            build(structure, &self.apps)?;
        }
        let mut rows = Vec::new();
        for &app in &self.apps {
            for &ranks in &self.ranks {
                let mut runs = vec![Vec::new(); self.structures.len()];
                for _ in 0..self.runs {
                    for (&structure, runs) in self.structures.iter().zip(&mut runs) {
                        let queues = job(app, structure, ranks, &self.transport)?;
                        runs.push(
                            QUEUES.map(|(_, of, _)| {
                                Figures::of_job(&queues.iter().map(of).collect::<Vec<_>>())
                            }),
                        );
                    }
                }
                for (&structure, runs) in self.structures.iter().zip(runs) {
                    rows.push(Row { app, ranks, structure, runs });
                }
            }
        }
        let Self { runs, transport, .. } = self;
        say!("queues and searches: averages of {runs} runs over {transport}");
        for (queue, (title, _, published)) in QUEUES.into_iter().enumerate() {
            say!("\n{title}");
            say!(
                "{:48} {:>8} {:>8} {:>10} {:>10} {:>8}",
                "",
                "longest",
                "mean",
                "worst rank",
                "mean",
                "longest"
            );
            say!(
                "{:<6} {:>20} {:<20} {:>8} {:>8} {:>10} {:>10} {:>8} {:>8}",
                "",
                "ranks",
                "structure",
                "queue",
                "queue",
                "search",
                "search",
                "search",
                "pointers"
            );
            rows.iter().for_each(|row| row.print(queue));
            for row in PUBLISHED.iter().filter(|row| self.apps.contains(&row.app)) {
                let ([longest, length, worst, search], app) = (published(row), name(row.app));
                say!(
                    "{app:<6} {:>20} {:<20} {longest:>8.1} {length:>8.1} {worst:>10.3} {search:>10.3}",
                    row.name,
                    "published"
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A queue: its title, the function that returns its statistics at a rank, and the function that returns its published
/// figures.
type Queue = (&'static str, fn(&Queues) -> &Searches, fn(&Published) -> [f64; 4]);

const QUEUES: [Queue; 2] = [
    ("posted receives", |rank| &rank.posted, |row| row.posted),
    ("unexpected messages", |rank| &rank.unexpected, |row| row.unexpected),
];

/// A row of the table: an application, a number of ranks, a structure, and the figures of both queues in each run.
struct Row {
    app: App,
    ranks: u32,
    structure: Structure,
    runs: Vec<[Figures; 2]>,
}

impl Row {
    fn print(&self, queue: usize) {
        let mean = |of: fn(&Figures) -> f64| {
            self.runs.iter().map(|run| of(&run[queue])).sum::<f64>() / self.runs.len() as f64
        };
        say!(
            "{:<6} {:>20} {:<20} {:>8.1} {:>8.1} {:>10.3} {:>10.3} {:>8.1} {:>8.1}",
            name(self.app),
            self.ranks,
            name(self.structure),
            mean(|run| run.longest),
            mean(|run| run.length),
            mean(|run| run.worst_search),
            mean(|run| run.search),
            mean(|run| run.longest_search),
            mean(|run| run.pointers)
        );
    }
}

/// Returns the folder in which programs with a structure are built.
fn folder(structure: Structure) -> PathBuf {
    peers::target().join("metered").join(name(structure))
}

fn build(structure: Structure, apps: &[App]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut flags = "--cfg metered".to_owned();
    if structure != Structure::Adaptive {
        flags += &format!(" --cfg metered=\"{}\"", name(structure));
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "--package", "samite"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("RUSTFLAGS", flags);
    cargo.arg("--target-dir").arg(folder(structure));
    apps.iter().for_each(|&app| {
        cargo.args(["--example", &name(app)]);
    });
    if !cargo.status()?.success() {
        return Err(format!("the examples could not be built with {}", name(structure)).into());
    }
    Ok(())
}

/// Runs an application, and returns the statistics of its ranks.
fn job(
    app: App,
    structure: Structure,
    ranks: u32,
    transport: &str,
) -> Result<Vec<Queues>, Box<dyn Error + Send + Sync>> {
    let statistics = folder(structure).join("statistics");
    if statistics.exists() {
        fs::remove_dir_all(&statistics)?;
    }
    fs::create_dir_all(&statistics)?;
    let options = Options {
        transport: Some(transport.to_owned()),
        env: vec![("SAMITE_METERED".to_owned(), statistics.display().to_string())],
        args: app.args().iter().map(Into::into).collect(),
        ..Options::new(ranks, folder(structure).join("release/examples").join(name(app)))
    };
    if launch::run(options)? != 0 {
        return Err(format!("{} with {ranks} ranks failed", name(app)).into());
    }
    let read = |rank: u32| -> Result<Queues, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(&fs::read(statistics.join(rank.to_string()))?)?)
    };
    (0..ranks).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_averaged_as_in_the_thesis() {
        let rank = |searches, compared, length_max, length_sum| Searches {
            searches,
            compared,
            compared_max: compared,
            hops: 0,
            length_max,
            length_sum,
        };
        let (busy, idle) = (rank(100, 300, 7, 500), rank(10, 10, 3, 10));
        let figures = Figures::of_job(&[&busy, &idle]);
        assert_eq!(figures.longest, 7.0);
        assert_eq!(figures.length, 3.0, "5 at one rank and 1 at the other");
        assert_eq!(figures.worst_search, 3.0);
        assert_eq!(figures.search, 310.0 / 110.0);
    }
}
