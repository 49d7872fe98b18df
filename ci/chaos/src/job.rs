//! One job: starts `samite run`, injects faults into its ranks, and checks the results.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use samite_fabric::SplitMix64;
use serde::Serialize;

use crate::Together;
use crate::creations::Creations;
use crate::report::{CreationEnd, END, End, FromRank, Report, now_ns};

/// A running job.
pub(crate) struct Job {
    rng: SplitMix64,
    size: u32,
    /// Number of ranks that are never killed.
    survivors: u32,
    /// True if killed ranks are restarted.
    returns: bool,
    /// True if all ranks make the same calls.
    is_together: bool,
    dir: PathBuf,
    coordinator: Child,
    stdout: ChildStdout,
    /// The beginning of an incomplete line of output.
    line: Vec<u8>,
    began: Instant,
    /// Ranks that have started and have not been killed, each with a pidfd. Unlike a process id, a pidfd never refers
    /// to another process later.
    living: BTreeMap<u32, OwnedFd>,
    pids: BTreeSet<i32>,
    /// Files that other jobs left in shared memory before. Their names may contain the id of a process of this job,
    /// since process ids are reused.
    strangers: BTreeSet<OsString>,
    joined: u32,
    /// The killed ranks, each with the time of its latest kill.
    killed: BTreeMap<u32, u64>,
    /// The stopped ranks, each with the time at which it is to be continued.
    stopped: BTreeMap<u32, Instant>,
    /// The times during which ranks were stopped: rank, begin, end.
    stops: Vec<(u32, u64, u64)>,
    reports: BTreeMap<u32, Report>,
    outcome: Outcome,
}

/// The results of a job.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    seed: u64,
    transport: String,
    ranks: u32,
    pub(crate) killed: u64,
    pub(crate) stopped: u64,
    /// Number of restarts of killed ranks.
    pub(crate) restarted: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    errors: u64,
    /// Number of derived communicators, counted at each member.
    pub(crate) comms: u64,
    /// Number of creations that did not succeed, counted at each rank that takes part.
    pub(crate) failed_creations: u64,
    ms: u64,
    /// For each failure in a survivor's report: the time from the failed rank's latest kill to the error, or 0 if the
    /// error came before that kill. A survivor that joined after the kill or was stopped meanwhile is left out.
    #[serde(skip)]
    pub(crate) delays_ns: Vec<u64>,
    error_ms_max: f64,
    /// The times from the detection of a failure to the grant of an awaited lock.
    #[serde(skip)]
    pub(crate) passed_ns: Vec<u64>,
    pub(crate) hangs: Vec<String>,
    pub(crate) wrong: Vec<String>,
    pub(crate) leaks: Vec<String>,
    pub(crate) other_troubles: Vec<String>,
}

impl Outcome {
    /// Returns true if nothing went wrong.
    pub(crate) fn is_well(&self) -> bool {
        [&self.hangs, &self.wrong, &self.leaks, &self.other_troubles].into_iter().all(Vec::is_empty)
    }
}

/// The environment variable that marks the processes of a job.
const MARK: &str = "SAMITE_CHAOS_MARK";
/// The number of ranks of a job whose ranks make the same calls.
const TOGETHER: u32 = 8;
/// The longest time from a kill to an error of the calls that all ranks make, including the time in which the launcher
/// detects the kill; and from the detection to the grant of an awaited lock.
const LATE_NS: u64 = 1_000_000_000;
/// Interval between checks that all ranks have joined.
const TICK: Duration = Duration::from_millis(5);
/// Longest time between two faults in microseconds.
const PAUSE_US: u64 = 60_000;
/// The largest number of kills in a job that restarts killed ranks, divided by the number of ranks.
const KILLS_EACH: u32 = 2;
/// Longest time in which faults are injected into one job.
const HARM_MAX: Duration = Duration::from_secs(8);
/// The time for a rank to finish its traffic on a crowded machine. It is longer than the limit of the rank's own
/// watchdog.
const SETTLE_MAX: Duration = Duration::from_secs(40);

impl Job {
    /// Starts a job. Its size and every fault follow from the seed.
    ///
    /// # Errors
    /// If `samite run`, which lies in the same folder as this program, cannot be started.
    pub(crate) fn start(
        seed: u64,
        transport: &str,
        together: Option<Together>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut rng = SplitMix64::new(seed);
        let is_together = together.is_some();
        let (size, survivors, returns) = match is_together {
            true => (TOGETHER, TOGETHER - 1 - rng.below(2) as u32, false),
            false => (4 + rng.below(13) as u32, 1 + rng.below(3) as u32, rng.below(3) == 0),
        };
        let strangers = shared_files().collect();
        let program = std::env::current_exe()?;
        let dir = std::env::temp_dir().join(format!("samite-chaos-{}-{seed}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let mut command = Command::new(program.with_file_name("samite"));
        let on_failure = if returns { "restart=1000" } else { "continue" };
        // Without a prefix, the output of a rank that is stopped in the middle of a line could mix with the lines of
        // other ranks.
        command.args(["run", "--prefix", "--on-failure", on_failure, "-n", &size.to_string()]);
        if transport != "route" {
            command.args(["--transport", transport]);
        }
        command.arg("--").arg(program).args(["rank", "--seed", &seed.to_string(), "--dir"]).arg(&dir);
        command.args(["--began-ns", &now_ns().to_string()]);
        command.args(returns.then_some("--returns"));
        if let Some(together) = together.and_then(|together| together.to_possible_value()) {
            command.args(["--together", together.get_name()]);
        }
        if rng.below(3) == 0 {
            // No message is as long as this limit, so no receiver reads it in the sender's memory.
            command.env("SAMITE_READ_MIN", "1T");
        }
        if rng.below(3) > 0 {
            // Long messages that are put take many puts, of which each reuses the memory of an earlier one.
            command.env("SAMITE_PUT_CHUNK", ["4K", "16K"][rng.below(2) as usize]);
            command.env("SAMITE_PUT_DEPTH", ["1", "3", "8"][rng.below(3) as usize]);
        }
        if rng.below(3) == 0 {
            // Short sends do not return before they have been sent.
            command.env("SAMITE_OUTBOX_MAX", "0");
        }
        if rng.below(3) == 0 {
            // Ready sends end with an error if no receive was posted.
            command.env("SAMITE_CHECK", "modes");
        }
        if !is_together && rng.below(4) == 0 {
            // Some creations find too many communicators.
            command.env("SAMITE_COMMUNICATORS_MAX", "10");
        }
        command.env(MARK, &dir).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut coordinator = command.stderr(File::create(dir.join("stderr"))?).spawn()?;
        let stdout = coordinator.stdout.take().ok_or("its output is piped")?;
        Ok(Self {
            rng,
            size,
            survivors,
            returns,
            is_together,
            dir,
            coordinator,
            stdout,
            line: Vec::new(),
            began: Instant::now(),
            living: BTreeMap::new(),
            pids: BTreeSet::new(),
            strangers,
            joined: 0,
            killed: BTreeMap::new(),
            stopped: BTreeMap::new(),
            stops: Vec::new(),
            reports: BTreeMap::new(),
            outcome: Outcome { seed, transport: transport.to_owned(), ranks: size, ..Outcome::default() },
        })
    }

    /// Injects faults, lets the survivors finish their traffic, and checks the results.
    ///
    /// # Errors
    /// If a system call fails.
    pub(crate) fn run(mut self) -> Result<Outcome, Box<dyn Error>> {
        let harm_until = self.began + HARM_MAX;
        // One job in four gets faults from its first instruction on. The other jobs get faults when all ranks have
        // joined.
        if self.rng.below(4) > 0 {
            while self.joined < self.size
                && Instant::now() < harm_until
                && self.listen(Instant::now() + TICK)?
            {}
            let calm = Duration::from_millis(self.rng.below(300));
            self.listen(Instant::now() + calm)?;
        }
        let harm_until = Instant::now() + HARM_MAX;
        while self.spare() > 0 && Instant::now() < harm_until {
            let pause = Duration::from_micros(self.rng.below(PAUSE_US));
            if !self.listen(Instant::now() + pause)? {
                break;
            }
            self.harm();
        }
        self.resume_until(None);
        let end = End { killed: self.killed.keys().copied().collect() };
        fs::write(self.dir.join("new"), serde_json::to_vec(&end)?)?;
        fs::rename(self.dir.join("new"), self.dir.join(END))?;
        if self.listen(Instant::now() + SETTLE_MAX)? {
            self.outcome.hangs.push("it does not end".to_owned());
            // The coordinator's descendants end with it.
            self.coordinator.kill()?;
        }
        self.coordinator.wait()?;
        self.judge()?;
        fs::remove_dir_all(&self.dir)?;
        self.outcome.ms = self.began.elapsed().as_millis() as u64;
        Ok(self.outcome)
    }

    /// Injects a fault into one rank, or into several at the same time.
    fn harm(&mut self) {
        let Some(victim) = self.any_living() else { return };
        if self.is_together {
            // If two ranks are to be killed, half of the jobs kill them at the same time.
            let mut victims = BTreeSet::from([victim]);
            victims.extend((self.spare() > 1 && self.rng.below(2) == 0).then(|| self.any_living()).flatten());
            return self.kill(&victims.into_iter().collect::<Vec<_>>());
        }
        match self.rng.below(10) {
            0..=3 => self.kill(&[victim]),
            4 => {
                let count = (2 + self.rng.below(2) as u32).min(self.spare());
                let mut victims = BTreeSet::from([victim]);
                victims.extend((1..count).filter_map(|_| self.any_living()));
                self.kill(&victims.into_iter().collect::<Vec<_>>());
            }
            _ => {
                if !self.stopped.contains_key(&victim) && self.signal(victim, Signal::STOP) {
                    let time = Duration::from_millis(1 + self.rng.below(100));
                    self.stopped.insert(victim, Instant::now() + time);
                    self.stops.push((victim, now_ns(), u64::MAX));
                    self.outcome.stopped += 1;
                }
            }
        }
    }

    /// Returns the number of kills that are still permitted.
    fn spare(&self) -> u32 {
        match self.returns {
            true => (KILLS_EACH * self.size).saturating_sub(self.outcome.killed as u32),
            false => self.size - self.killed.len() as u32 - self.survivors,
        }
    }

    fn kill(&mut self, victims: &[u32]) {
        for &victim in victims {
            let at_ns = now_ns();
            if self.signal(victim, Signal::KILL) {
                self.living.remove(&victim);
                self.killed.insert(victim, at_ns);
                self.stopped.remove(&victim);
                self.outcome.killed += 1;
            }
        }
    }

    /// Continues the stopped ranks whose stop ends by `time`, or all stopped ranks if `time` is `None`.
    fn resume_until(&mut self, time: Option<Instant>) {
        let due = |until: &Instant| time.is_none_or(|time| *until <= time);
        let ranks: Vec<u32> =
            self.stopped.iter().filter(|(_, until)| due(until)).map(|(&rank, _)| rank).collect();
        for rank in ranks {
            self.stopped.remove(&rank);
            self.signal(rank, Signal::CONT);
            let stop = self.stops.iter_mut().rev().find(|stop| stop.0 == rank);
            stop.into_iter().for_each(|stop| stop.2 = now_ns());
        }
    }

    fn signal(&self, rank: u32, signal: Signal) -> bool {
        self.living.get(&rank).is_some_and(|process| pidfd_send_signal(process, signal).is_ok())
    }

    fn any_living(&mut self) -> Option<u32> {
        let choice = self.rng.next_u64() as usize;
        self.living.keys().nth(choice % self.living.len().max(1)).copied()
    }

    /// Reads messages from the ranks until the given time, and continues stopped ranks whose time is over. Returns
    /// false at the end of the ranks' output.
    fn listen(&mut self, until: Instant) -> Result<bool, Box<dyn Error>> {
        loop {
            let now = Instant::now();
            self.resume_until(Some(now));
            let next = self.stopped.values().copied().chain([until]).min().unwrap_or(until);
            let time = next.saturating_duration_since(now);
            let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&self.stdout, PollFlags::IN)], Some(&timeout))? == 0 {
                if Instant::now() >= until {
                    return Ok(true);
                }
                continue;
            }
            let mut chunk = [0; 4096];
            let count = self.stdout.read(&mut chunk)?;
            if count == 0 {
                return Ok(false);
            }
            for &byte in &chunk[..count] {
                if byte == b'\n' {
                    let line = std::mem::take(&mut self.line);
                    self.hear(&line);
                } else {
                    self.line.push(byte);
                }
            }
        }
    }

    fn hear(&mut self, line: &[u8]) {
        let prefix = line.iter().position(|&byte| byte == b' ').map_or(0, |at| at + 1);
        match serde_json::from_slice(&line[prefix..]) {
            Ok(FromRank::Started { rank, pid }) => {
                // The process was not killed before, because only processes in `living` are killed. So its id names no
                // other process, unless it has exited by itself.
                if let Some(process) =
                    Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
                {
                    self.pids.insert(pid);
                    self.outcome.restarted += u64::from(self.killed.contains_key(&rank));
                    self.living.insert(rank, process);
                }
            }
            Ok(FromRank::Joined) => self.joined += 1,
            Ok(FromRank::Done(report)) => drop(self.reports.insert(report.rank, report)),
            Ok(FromRank::Hangs { rank, doing }) => self.outcome.hangs.push(format!("rank {rank}: {doing}")),
            // The line may be incomplete because its rank was killed while it wrote.
            Err(_) if !self.killed.is_empty() => {}
            Err(error) => self
                .outcome
                .other_troubles
                .push(format!("a rank says something else ({error}): {}", String::from_utf8_lossy(line))),
        }
    }

    fn judge(&mut self) -> io::Result<()> {
        let mut creations = Creations::default();
        for rank in 0..self.size {
            match self.reports.remove(&rank) {
                Some(report) if self.returns => self.judge_traffic(&report),
                _ if !self.returns && self.killed.contains_key(&rank) => {}
                Some(report) => {
                    self.judge_survivor(&report);
                    creations.add(rank, &report.creations);
                }
                None => self.outcome.other_troubles.push(format!("rank {rank} ended without a report")),
            }
        }
        self.outcome.wrong.extend(creations.judge(&self.killed));
        self.outcome.error_ms_max = self.outcome.delays_ns.iter().max().map_or(0.0, |&ns| ns as f64 / 1e6);
        let left = processes(&format!("{MARK}={}", self.dir.display()))?;
        if !left.is_empty() {
            self.outcome.leaks.push(format!("processes {left:?} are left"));
        }
        for name in shared_files().filter(|name| !self.strangers.contains(name)) {
            let name = name.to_string_lossy();
            let is_ours =
                |pid: &i32| name.split(|c: char| !c.is_ascii_digit()).any(|part| part == pid.to_string());
            if self.pids.iter().any(is_ours) {
                self.outcome.leaks.push(format!("/dev/shm/{name} is left"));
            }
        }
        if !self.outcome.is_well() {
            let stderr = fs::read_to_string(self.dir.join("stderr"))?;
            let lines = stderr.lines().filter(|line| !line.contains("SIGKILL"));
            self.outcome.other_troubles.extend(lines.map(|line| format!("stderr: {line}")));
        }
        Ok(())
    }

    fn judge_traffic(&mut self, report: &Report) {
        let rank = report.rank;
        self.outcome.messages += report.received;
        self.outcome.bytes += report.bytes;
        self.outcome.errors += report.errors;
        self.outcome.comms += report.comms;
        let failed = report.creations.iter().filter(|created| created.end != CreationEnd::Made);
        self.outcome.failed_creations += failed.count() as u64;
        self.outcome.wrong.extend(report.troubles.iter().map(|trouble| format!("rank {rank}: {trouble}")));
        let late = report.passed_ns.iter().filter(|time_ns| **time_ns > LATE_NS);
        let late =
            late.map(|time_ns| format!("rank {rank} got a lock only after {} ms", time_ns / 1_000_000));
        self.outcome.wrong.extend(late);
        self.outcome.passed_ns.extend(&report.passed_ns);
        let (before, after) = report.descriptors;
        if after > before {
            self.outcome
                .leaks
                .push(format!("rank {rank} had {before} descriptors open, and {after} at the end"));
        }
    }

    fn judge_survivor(&mut self, report: &Report) {
        self.judge_traffic(report);
        let rank = report.rank;
        for verdict in &report.verdicts {
            match self.killed.get(&verdict.rank) {
                Some(&killed_ns) => {
                    let (from, to) = (killed_ns, verdict.at_ns);
                    let stopped = |stop: &&(u32, u64, u64)| stop.0 == rank && stop.1 < to && from < stop.2;
                    let delay_ns = to.saturating_sub(from);
                    if from > report.joined_ns && self.stops.iter().find(stopped).is_none() {
                        self.outcome.delays_ns.push(delay_ns);
                        if self.is_together && delay_ns > LATE_NS {
                            let ms = delay_ns / 1_000_000;
                            self.outcome.wrong.push(format!("rank {rank} was told only after {ms} ms"));
                        }
                    }
                }
                None => self.outcome.wrong.push(format!(
                    "rank {rank} takes {} for failed, which was not killed: {}",
                    verdict.rank, verdict.cause
                )),
            }
        }
        let unaware =
            self.killed.keys().filter(|dead| report.verdicts.iter().all(|verdict| verdict.rank != **dead));
        let unaware: Vec<u32> = unaware.copied().collect();
        if !unaware.is_empty() {
            self.outcome.wrong.push(format!("rank {rank} does not know that {unaware:?} died"));
        }
    }
}

/// Returns the names of the files in shared memory.
fn shared_files() -> impl Iterator<Item = OsString> {
    fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|file| file.file_name())
}

/// Returns the processes that have `variable` in their environment.
fn processes(variable: &str) -> io::Result<Vec<i32>> {
    let numbers =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        // A zombie has an empty environment and counts as ended.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|found| found == variable.as_bytes())
    };
    Ok(numbers.filter(is_marked).collect())
}
