//! The time from a rank's death until the receives of all other ranks from that rank have ended with an error.
//!
//! Each run is a separate job. Rank 0 kills the last rank after all other ranks have waited for its message long enough
//! to sleep. All processes of the machine share a clock, so the survivors can report when their receive ended.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use samite::bootstrap::Launch;
use samite::{Comm, Rank};
use samite_launch::{self as launch, OnFailure, Options};

use crate::record::Record;
use crate::spread::Spread;
use crate::table;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct FailureArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// Ranks of each job, one of which is killed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,
    /// Jobs for each transport
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Run one job, and print its times
    #[arg(long, hide = true)]
    once: bool,
}

/// A job that takes longer is ended, because an error that should take milliseconds has not arrived.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the other ranks have waited for the last rank's message before rank 0 kills the last rank.
const WAITED: Duration = Duration::from_millis(50);

/// The tag of the first message of each survivor to the victim.
const GREETING: u64 = 1;
/// The tag of the messages to rank 0 that report that their sender is about to wait.
const READY: u64 = 2;
/// The tag of the message that all survivors wait for.
const NEVER_SENT: u64 = 3;
/// The tag of the messages to rank 0 that contain the time at which their sender's receive ended.
const TOLD: u64 = 4;

impl FailureArgs {
    /// Measures, runs one job, or takes part in a job as a rank. The choice depends on how this process was started.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match Launch::detect(&|name| std::env::var_os(name))? {
            Launch::Alone if self.once => self.launch()?,
            Launch::Alone => self.measure()?,
            _ => take_part(samite::init()?.comm())?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Runs one job. The killed rank does not count as a failure of the job.
    fn launch(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        launch::run(Options {
            transport: self.transport.first().cloned(),
            timeout: Some(TIMEOUT),
            on_failure: OnFailure::Continue,
            args: std::env::args_os().skip(1).collect(),
            ..Options::new(self.ranks, std::env::current_exe()?)
        })?;
        Ok(())
    }

    fn measure(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if !self.json {
            let Self { ranks, runs, .. } = self;
            say!(
                "failure, error_ms: from the kill of one of {ranks} ranks to the error at each other, {runs} runs"
            );
            say!("{}", table::header(false));
        }
        for transport in &self.transport {
            let mut times = Vec::new();
            for _ in 0..self.runs {
                times.append(&mut self.job(transport)?);
            }
            let spread = Spread::of(times).ok_or("a job has a survivor at least")?;
            let record = Record::of_job("failure", "samite", transport, ("error_ms", "ms"), spread);
            let record = Record { ranks: self.ranks, runs: self.runs as usize, ..record };
            if self.json {
                say!("{}", record.to_json());
            } else {
                say!("{}", table::Row(&record));
            }
        }
        Ok(())
    }

    /// Returns the times of one job in milliseconds. A separate process runs its launcher.
    fn job(&self, transport: &str) -> Result<Vec<f64>, Box<dyn Error + Send + Sync>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["failure", "--once", "--transport", transport, "--ranks", &self.ranks.to_string()]);
        let output = command.output()?;
        serde_json::from_slice::<Vec<f64>>(&output.stdout)
            .ok()
            .filter(|times| times.len() + 1 == self.ranks as usize)
            .ok_or_else(|| {
                format!("no times from {transport}: {}", String::from_utf8_lossy(&output.stderr)).into()
            })
    }
}

/// Runs a rank of the job.
fn take_part(comm: &Comm) -> Result<(), Box<dyn Error + Send + Sync>> {
    let victim = comm.size() - 1;
    if comm.rank() == victim {
        for _ in 0..victim {
            comm.recv(&mut [0u8], samite::Source::ANY, GREETING)?;
        }
        comm.send(&[std::process::id()], Rank(0), READY)?;
        comm.recv(&mut [0u8], Rank(0), NEVER_SENT)?;
        return Err("the rank to be killed goes on".into());
    }
    comm.send(&[0u8], Rank(victim), GREETING)?;
    if comm.rank() != 0 {
        comm.send(&[0u32], Rank(0), READY)?;
        let told_ns = wait_for_the_error(comm, victim)?;
        comm.send(&[told_ns], Rank(0), TOLD)?;
        return Ok(());
    }

    let mut pid = [0u32];
    for rank in 1..victim {
        comm.recv(&mut [0u32], Rank(rank), READY)?;
    }
    comm.recv(&mut pid, Rank(victim), READY)?;
    std::thread::sleep(WAITED);
    let killed_ns = now_ns();
    let pid = i32::try_from(pid[0]).ok().and_then(Pid::from_raw).ok_or("a process has a number above 0")?;
    kill_process(pid, Signal::KILL)?;
    let mut told = vec![wait_for_the_error(comm, victim)?];
    for rank in 1..victim {
        let mut told_ns = [0u64];
        comm.recv(&mut told_ns, Rank(rank), TOLD)?;
        told.push(told_ns[0]);
    }
    let times: Vec<f64> = told.into_iter().map(|told_ns| (told_ns - killed_ns) as f64 / 1e6).collect();
    say!("{}", serde_json::to_string(&times)?);
    Ok(())
}

/// Returns the time at which the receive from the killed rank ended.
fn wait_for_the_error(comm: &Comm, victim: u32) -> Result<u64, String> {
    match comm.recv(&mut [0u8], Rank(victim), NEVER_SENT) {
        Err(samite::Error::PeerFailed { rank, .. }) if rank == victim => Ok(now_ns()),
        other => Err(format!("a receive from rank {victim}, which was killed, ended with {other:?}")),
    }
}

pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
