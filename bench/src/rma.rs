//! Measurements of windows, beside the figures of (Zounmevo 2014, chapter 5).
//!
//! The variants of a measurement run in turns in one job: each round runs every variant once. A *delay* or a
//! *computation* is a sleep. The default transport of most measurements is a network with the latency and the bandwidth
//! of the thesis's cluster, imposed on shared memory ([`samite_fabric::delay`]).

mod epochs;
mod flags;
mod lag;
mod lu;
mod overlap;
mod patterns;
mod transactions;
mod windows;

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use samite::bootstrap::Launch;
use samite::reduction::Max;
use samite::{Comm, Epoch, EpochKind, Rank};
use samite_launch::{self as launch, Options};

use crate::failure::now_ns;
use crate::record::{Ratio, Record};
use crate::spread::Spread;
use crate::table;

/// The options of the measurements.
#[derive(Debug, clap::Args)]
pub(crate) struct RmaArgs {
    /// The measurement
    #[arg(value_enum)]
    measurement: Measurement,
    /// The transport; by default the one of the measurement's bounds
    #[arg(long, value_name = "T")]
    transport: Option<String>,
    /// The number of ranks: of `lu`, 2 by default; of `transactions`, 4 by default, or 16, 32 and 64 with --virtual
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    ranks: Option<u32>,
    /// The number of rows of the matrix of `lu`
    #[arg(long = "n", value_name = "ROWS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Measure `transactions` in virtual time, in a simulated network
    #[arg(long = "virtual", conflicts_with = "transport")]
    is_virtual: bool,
    /// The lengths of the operations; by default those of the thesis
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// The rounds of each variant, or the jobs of `epochs`
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The largest number of exposures of `lag`, or of windows of `windows`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    most: usize,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Run one job of `epochs`, and print its figures
    #[arg(long, hide = true)]
    once: bool,
}

/// A measurement of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// The time of an epoch with one operation, beside MPI libraries (figures 5.7 to 5.9)
    Epochs,
    /// The time of an epoch that contains a computation (figures 5.10 to 5.12)
    Overlap,
    /// The part of a delay that reaches another rank, with blocking and with nonblocking calls (figures 5.13 to 5.17)
    Patterns,
    /// The part of a delay that reaches another epoch, with the reorder flags and without them (figures 5.18 to 5.22)
    Flags,
    /// Updates of random ranks under exclusive locks, per second (figure 5.23)
    Transactions,
    /// LU decomposition by puts in epochs of fences, over two transports (figures 5.24 to 5.26)
    Lu,
    /// The time of an access to a target that is many exposures ahead
    Lag,
    /// The memory of many windows, and the budget that bounds them (table 6.3)
    Windows,
}

impl Measurement {
    /// Returns the transports of the bounds.
    fn default_transports(self) -> &'static [&'static str] {
        match self {
            Self::Epochs | Self::Lag | Self::Windows => &["samite-shm"],
            Self::Overlap | Self::Patterns | Self::Flags => &["delay(2us,0.33ns/B)+samite-shm"],
            Self::Transactions => &["delay(100us,0.33ns/B)+samite-shm"],
            Self::Lu => &["samite-shm", "delay(2us,0.33ns/B)+samite-shm"],
        }
    }
}

/// The time of a delay (Zounmevo 2014, section 5.8.1).
const DELAY: Duration = Duration::from_micros(1000);

/// The number of rounds that run first and are not measured.
const WARM_UP: u32 = 3;

/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(500);
const LU_TIMEOUT: Duration = Duration::from_secs(3600);

impl RmaArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let is_alone = Launch::detect(&|name| std::env::var_os(name))? == Launch::Alone;
        if self.is_virtual {
            if self.measurement != Measurement::Transactions || !is_alone {
                return Err("--virtual is for `rma transactions`, without a launcher".into());
            }
            let are_kept = transactions::simulate(self);
            return Ok(if are_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if is_alone && self.measurement == Measurement::Epochs && !self.once {
            return epochs::compare(self);
        }
        if is_alone {
            return self.start();
        }
        let world = samite::init()?;
        let job = Job { comm: world.comm(), args: self };
        let are_kept = match self.measurement {
            Measurement::Epochs => epochs::measure(&job),
            Measurement::Overlap => overlap::measure(&job),
            Measurement::Patterns => patterns::measure(&job),
            Measurement::Flags => flags::measure(&job),
            Measurement::Transactions => transactions::measure(&job),
            Measurement::Lu => lu::measure(&job),
            Measurement::Lag => lag::measure(&job),
            Measurement::Windows => windows::measure(&job),
        }?;
        Ok(if are_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Starts the ranks of a job over each transport, one job after the other. The exit code is that of the first job
    /// that fails.
    fn start(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let transports = match &self.transport {
            Some(transport) => vec![transport.as_str()],
            None => self.measurement.default_transports().to_vec(),
        };
        let mut first_failure = 0;
        for transport in transports {
            let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
            if self.transport.is_none() {
                args.extend(["--transport".into(), transport.into()]);
            }
            let code = launch::run(Options {
                transport: Some(transport.to_owned()),
                timeout: Some(self.timeout()),
                args,
                ..Options::new(self.size(), std::env::current_exe()?)
            })?;
            if first_failure == 0 {
                first_failure = code;
            }
        }
        Ok(first_failure.into())
    }

    fn transport(&self) -> String {
        match &self.transport {
            Some(transport) => transport.clone(),
            None if self.is_virtual => transactions::SIMULATED.to_owned(),
            None => self.measurement.default_transports()[0].to_owned(),
        }
    }

    fn size(&self) -> u32 {
        match self.measurement {
            Measurement::Patterns => patterns::RANKS,
            Measurement::Flags => flags::RANKS,
            Measurement::Transactions => self.ranks.unwrap_or(4),
            Measurement::Lu => self.ranks.unwrap_or(2),
            _ => 2,
        }
    }

    fn timeout(&self) -> Duration {
        if self.measurement == Measurement::Lu { LU_TIMEOUT } else { TIMEOUT }
    }

    /// Prints the rows of a measurement. Returns false if a bound is not kept.
    fn print(&self, about: &str, rows: &[Row]) -> bool {
        if !self.json {
            say!("{about}; {} rounds over {}", self.rounds, self.transport());
            say!("{}", table::header(true));
        }
        let mut are_kept = true;
        for Row { record, bound } in rows {
            if self.json {
                say!("{}", record.to_json());
            } else {
                // The line above has the whole name of a delayed transport.
                let transport = record.transport.split('(').next().unwrap_or_default().to_owned();
                say!("{}", table::Row(&Record { transport, ..record.clone() }));
            }
            let ratio = record.ratio.as_ref().map(|ratio| ratio.median);
            if let Some((bound, ratio)) = bound.zip(ratio).filter(|(bound, ratio)| !bound.keeps(*ratio)) {
                let Record { bench, implementation, bytes, .. } = record;
                let bytes = bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
                eprintln!("samite-bench: {bench}, {implementation}{bytes}: {ratio:.3} is not {bound}");
                are_kept = false;
            }
        }
        are_kept
    }

    /// Returns the lengths to measure.
    fn lengths(&self, default: &[usize]) -> Vec<usize> {
        if self.bytes.is_empty() { default.to_vec() } else { self.bytes.clone() }
    }
}

/// One rank of a measurement.
struct Job<'a> {
    comm: &'a Comm,
    args: &'a RmaArgs,
}

/// A figure, and the bound that it must keep.
struct Row {
    record: Record,
    bound: Option<Bound>,
}

/// A bound of the ratio of a figure.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn keeps(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

impl Row {
    /// Returns a figure of this job with its ratio to another one, called `to`.
    fn new(job: &Job<'_>, case: &Case<'_>, variant: &str, figures: Figures) -> Self {
        Self::of(job.args, job.comm.size(), case, variant, figures)
    }

    /// Returns a figure as [`new`](Self::new) does, of a job with this number of ranks.
    fn of(args: &RmaArgs, ranks: u32, case: &Case<'_>, variant: &str, figures: Figures) -> Self {
        let ratios = Spread::of(figures.ratios).expect("there is a round");
        let Spread { median, min, max } = ratios;
        let ratio = Some(Ratio { to: case.to.to_owned(), median, min, max });
        let spread = Spread::of(figures.values).expect("there is a round");
        let (bench, metric) = (format!("rma-{}", case.bench), (case.metric, case.unit));
        let record = Record::of_job(&bench, variant, &args.transport(), metric, spread);
        let runs = args.rounds as usize;
        Self {
            record: Record { ranks, bytes: case.bytes, depth: case.depth, runs, ratio, ..record },
            bound: None,
        }
    }

    fn bounded(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Returns a figure of the thesis, measured on a cluster with QDR InfiniBand.
    fn published(case: &Case<'_>, variant: &str, ranks: u32, figure: f64) -> Self {
        let spread = Spread { median: figure, min: figure, max: figure };
        let (bench, metric) = (format!("rma-{}", case.bench), (case.metric, case.unit));
        let record = Record::of_job(&bench, &format!("thesis {variant}"), "qdr-ib", metric, spread);
        Self { record: Record { ranks, bytes: case.bytes, ..record }, bound: None }
    }
}

/// One case of a measurement.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    /// The name of the figure's benchmark, without `rma-`.
    bench: &'a str,
    metric: &'a str,
    unit: &'a str,
    bytes: Option<usize>,
    depth: Option<usize>,
    /// The name of the time or figure to which ratios refer.
    to: &'a str,
}

/// The figures of one variant in all rounds, and their ratios.
#[derive(Clone, Debug)]
struct Figures {
    values: Vec<f64>,
    ratios: Vec<f64>,
}

impl Job<'_> {
    fn rank(&self) -> u32 {
        self.comm.rank().0
    }

    /// Runs the variants in turns. `round` returns the figures of this rank, with 0 for each one that another rank
    /// measures. Returns the figures of each round of each variant at all ranks.
    fn in_turns<const N: usize>(
        &self,
        variants: usize,
        mut round: impl FnMut(usize) -> Result<[f64; N], samite::Error>,
    ) -> Result<Vec<Vec<[f64; N]>>, samite::Error> {
        let mut all = vec![Vec::new(); variants];
        for number in 0..self.args.rounds + WARM_UP {
            for (variant, all) in all.iter_mut().enumerate() {
                self.comm.barrier()?;
                let mut figures = round(variant)?;
                self.comm.allreduce_in_place(&mut figures, Max)?;
                if number >= WARM_UP {
                    all.push(figures);
                }
            }
        }
        Ok(all)
    }

    /// Prints the rows of a measurement at rank 0. Returns false if a bound is not kept.
    fn print(&self, about: &str, rows: &[Row]) -> bool {
        self.comm.rank() != Rank(0) || self.args.print(about, rows)
    }
}

/// The calls that close epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Blocking,
    Nonblocking,
}

impl Calls {
    const ALL: [Self; 2] = [Self::Blocking, Self::Nonblocking];

    fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Nonblocking => "nonblocking",
        }
    }

    /// Closes an epoch around a computation, and returns the time of the computation. Blocking calls close it after the
    /// computation. Nonblocking calls close it before, and wait after the computation.
    fn close<K: EpochKind>(
        self,
        epoch: Epoch<'_, u8, K>,
        computation: Duration,
    ) -> Result<f64, samite::Error> {
        match self {
            Self::Blocking => {
                let time = work(computation);
                epoch.close()?;
                Ok(time)
            }
            Self::Nonblocking => {
                let end = epoch.iclose()?;
                let time = work(computation);
                end.wait()?;
                Ok(time)
            }
        }
    }
}

/// Sleeps, and returns the time of the sleep in microseconds.
fn work(time: Duration) -> f64 {
    let begin_ns = now_ns();
    if !time.is_zero() {
        std::thread::sleep(time);
    }
    since_us(begin_ns)
}

fn since_us(begin_ns: u64) -> f64 {
    (now_ns() - begin_ns) as f64 / 1e3
}
