//! One run of a benchmark. This process is either the launcher of the ranks or one of the ranks.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samite::bootstrap::Launch;
#[cfg(feature = "ofi")]
use samite_fabric::ofi::OfiConfig;
use samite_launch::{self as launch, Options};

use crate::benchmark::{Benchmark, Point};
use crate::beside::{self, Apart};
use crate::loops::Loops;
use crate::measure::{End, measure};
use crate::memory;
use crate::ours::{Owned, Samite};
#[cfg(feature = "ofi")]
use crate::raw::{Raw, accept};
use crate::record::Record;
use crate::spread::Spread;
use crate::table;

/// The time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Starts this program, with the arguments of this process, on two ranks, and waits for their end.
///
/// # Errors
/// An error to print.
pub(crate) fn run_two_ranks(
    transport: Option<String>,
    timeout: Duration,
) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    run_ranks(2, transport, timeout)
}

/// Starts this program, with the arguments of this process, on `ranks` ranks, and waits for their end.
///
/// # Errors
/// An error to print.
pub(crate) fn run_ranks(
    ranks: u32,
    transport: Option<String>,
    timeout: Duration,
) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let code = launch::run(Options {
        transport,
        timeout: Some(timeout),
        args: std::env::args_os().skip(1).collect(),
        ..Options::new(ranks, std::env::current_exe()?)
    })?;
    Ok(code.into())
}

/// An implementation that this program can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ours {
    /// Samite, with borrowed buffers
    Samite,
    /// Samite, with buffers that the operations own
    SamiteOwned,
    /// Samite over libfabric, where one of the two ranks also has a neighbour in shared memory
    #[value(name = "samite+shm")]
    SamiteBesideShm,
    /// The same loops directly on libfabric, without a protocol
    #[cfg(feature = "ofi")]
    Libfabric,
    /// As libfabric, but each message of a window is sent from a buffer of its own
    #[cfg(feature = "ofi")]
    LibfabricOwned,
}

/// One run of one implementation.
#[derive(Clone, Debug)]
pub(crate) struct Once {
    /// The benchmark.
    pub(crate) benchmark: Benchmark,
    /// The number of processes.
    pub(crate) ranks: u32,
    /// The points to measure, all with the same number of ranks.
    pub(crate) points: Vec<Point>,
    /// The implementation.
    pub(crate) implementation: Ours,
    /// The transport.
    pub(crate) transport: Option<String>,
    /// True if ranks are bound to cores.
    pub(crate) pin: bool,
    /// True to print JSON.
    pub(crate) json: bool,
}

impl Once {
    /// Starts the ranks or, if this process was started as a rank, takes part in the measurement. Another launcher is
    /// an error.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match Launch::detect(&|name| std::env::var_os(name))? {
            Launch::Run => {}
            Launch::Alone => {
                let options = Options {
                    timeout: Some(TIMEOUT),
                    args: std::env::args_os().skip(1).collect(),
                    ..Options::new(self.ranks, std::env::current_exe()?)
                };
                let code = launch::run(match self.implementation {
                    Ours::SamiteBesideShm => beside::options(options)?,
                    _ => Options { transport: self.transport()?, ..options },
                })?;
                return Ok(code.into());
            }
            _ => return Err("a benchmark starts its ranks itself: run it under no launcher".into()),
        }
        match self.implementation {
            Ours::Samite => {
                let world = samite::init()?;
                self.check_size(world.comm().size())?;
                let mut messages = Samite::new(world)?;
                if self.benchmark == Benchmark::Memory {
                    for &point in &self.points {
                        let (transport, spread) = memory::measure(&mut messages, point)?;
                        self.print(point, &transport, spread)?;
                    }
                } else {
                    self.measure(&mut Loops::new(messages))?;
                }
            }
            Ours::SamiteOwned => {
                let world = samite::init()?;
                self.check_size(world.comm().size())?;
                self.measure(&mut Loops::new(Owned::new(Samite::new(world)?)))?;
            }
            Ours::SamiteBesideShm => match Apart::new(samite::init()?)? {
                Some(messages) => self.measure(&mut Loops::new(messages))?,
                None => return Ok(ExitCode::SUCCESS),
            },
            #[cfg(feature = "ofi")]
            Ours::Libfabric | Ours::LibfabricOwned => {
                let (ticket, mut connection) = accept()?;
                self.check_size(ticket.size)?;
                let mut config = OfiConfig::default();
                if let Some(transport) = self.transport()? {
                    config.provider = transport;
                }
                let raw = Raw::join(&ticket, &mut connection, config)?;
                self.measure(&mut match self.implementation {
                    Ours::LibfabricOwned => raw.with_owned(),
                    _ => raw,
                })?;
                connection.leave()?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the transport to measure, if one was selected.
    fn transport(&self) -> Result<Option<String>, samite::SettingError> {
        let settings = samite::Settings::from_environment()?;
        Ok(self.transport.clone().or_else(|| settings.transport().map(str::to_owned)))
    }

    fn check_size(&self, size: u32) -> Result<(), String> {
        if size == self.ranks {
            return Ok(());
        }
        let (benchmark, ranks) = (self.benchmark.name(), self.ranks);
        Err(format!("{benchmark} is to be measured between {ranks} ranks, and this job has {size}"))
    }

    fn measure(&self, end: &mut impl End) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.pin {
            pin(end.rank())?;
        }
        for &point in &self.points {
            let spread = measure(end, self.benchmark, point)?;
            self.print(point, &end.transport(), spread)?;
        }
        Ok(())
    }

    fn print(
        &self,
        point: Point,
        transport: &str,
        spread: Option<Spread>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Some(spread) = spread else { return Ok(()) };
        if let Some(wanted) = self.transport.as_ref().filter(|&wanted| wanted != transport) {
            return Err(
                format!("it was {transport} instead of {wanted}: tell `samite run` which to use").into()
            );
        }
        let record = Record::new(self.benchmark, self.name(), transport, point, spread);
        if self.json {
            say!("{}", record.to_json());
            return Ok(());
        }
        if self.points.first() == Some(&point) {
            let (benchmark, metric) = (self.benchmark.name(), self.benchmark.metric());
            say!("{benchmark}, {metric}: one run, {}", if self.pin { "pinned" } else { "not pinned" });
            say!("{}", table::header(false));
        }
        say!("{}", table::Row(&record));
        Ok(())
    }

    fn name(&self) -> &'static str {
        match self.implementation {
            Ours::Samite => "samite",
            Ours::SamiteOwned => "samite-owned",
            Ours::SamiteBesideShm => "samite+shm",
            #[cfg(feature = "ofi")]
            Ours::Libfabric => "libfabric",
            #[cfg(feature = "ofi")]
            Ours::LibfabricOwned => "libfabric-owned",
        }
    }
}

/// Binds this process to one of its allowed cores: rank 0 to the first, and so on, cyclically.
fn pin(rank: u32) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[rank as usize % cores.len()]);
    sched_setaffinity(None, &one)
}
