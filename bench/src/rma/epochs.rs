//! The time of an epoch with one operation, beside MPI libraries. Each implementation runs all cases in one job, and
//! the jobs take turns. `../../peers/rma.c` has the same loops over MPI. Change both together.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::process::{Command, ExitCode, Stdio};

use samite::{AccessKind, Epoch, EpochKind, Error, LockKind, Rank, Window, WindowHints, WindowOp};

use super::{Bound, Calls, Job, RmaArgs, Row, since_us};
use crate::failure::now_ns;
use crate::peers;
use crate::record::{Ratio, Record};
use crate::spread::{Spread, geometric_mean};

/// The lengths of the operations. The last one is the largest.
const LENGTHS: [usize; 5] = [8, 4096, 64 << 10, 256 << 10, 1 << 20];

/// The batches of a case, whose median is its figure.
const BATCHES: usize = 7;

/// The bytes that the operations of a batch move, unless they are short.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_MAX: usize = 300;

/// From this length on the windows of accumulates have the hint `unshared_accumulates`, which MPI does not have. Without
/// it each element is changed by an atomic instruction. An MPI library can instead hold a lock of its own during a whole
/// accumulate, but then the death of a rank could leave that lock held.
const UNSHARED_MIN: usize = 64 << 10;

/// The bounds of a case relative to the best peer, of all cases' geometric mean, and of nonblocking calls relative to
/// blocking ones.
const CASE: Bound = Bound::AtMost(1.5);
const MEAN: f64 = 1.0;
const NONBLOCKING: Bound = Bound::AtMost(1.05);

const ORIGIN: Rank = Rank(0);
const TARGET: Rank = Rank(1);

const KINDS: [&str; 3] = ["pair", "fence", "lock"];
const OPERATIONS: [&str; 3] = ["put", "get", "accumulate"];

/// Runs the jobs of all implementations in turns, and prints their medians. The exit code says if the bounds are kept.
pub(super) fn compare(args: &RmaArgs) -> Result<ExitCode, Box<dyn StdError + Send + Sync>> {
    let mut commands = commands(args)?;
    let count = commands.len();
    let mut cases: BTreeMap<(String, usize), BTreeMap<String, Vec<Record>>> = BTreeMap::new();
    for turn in 0..args.rounds as usize {
        for place in (0..count).map(|place| (turn + place) % count) {
            for record in run(&mut commands[place])? {
                let case = (record.bench.clone(), record.bytes.unwrap_or(0));
                let of_case = cases.entry(case).or_default();
                of_case.entry(record.implementation.clone()).or_default().push(record);
            }
        }
    }
    let rows: Vec<Row> = cases.into_values().flat_map(|case| rows_of(&case)).collect();
    let mut are_kept = args.print("epochs, epoch_us: an epoch with one operation, at its origin", &rows);
    let blocking = rows.iter().filter(|row| row.record.implementation == Calls::Blocking.of_samite());
    let ratios: Vec<f64> =
        blocking.filter_map(|row| row.record.ratio.as_ref()).map(|ratio| ratio.median).collect();
    if !ratios.is_empty() {
        let mean = geometric_mean(&ratios);
        if !args.json {
            say!("geometric mean of the ratios to the best peer: {mean:.3}");
        }
        are_kept &= mean <= MEAN;
    }
    Ok(if are_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the command of each implementation.
fn commands(args: &RmaArgs) -> Result<Vec<Command>, Box<dyn StdError + Send + Sync>> {
    let transport = args.transport();
    let lengths = args.lengths(&LENGTHS);
    let mut ours = Command::new(std::env::current_exe()?);
    ours.args(["rma", "epochs", "--once", "--transport", &transport, "--json"]);
    let mut commands = vec![ours];
    let peers = if args.without_peers { Vec::new() } else { peers::find().peers };
    for peer in peers {
        let peer = peer.with_loops("rma");
        peer.build()?;
        if let Some(settings) = peer.settings(&transport) {
            let mut command = peer.command(&settings, 2);
            command.args(["--impl", &peer.name, "--transport", settings.transport]);
            commands.push(command);
        }
    }
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    for command in &mut commands {
        command.args(["--bytes", &lengths.join(",")]).stdin(Stdio::null());
    }
    Ok(commands)
}

/// Runs a job, and returns the records that it prints.
fn run(command: &mut Command) -> Result<Vec<Record>, Box<dyn StdError + Send + Sync>> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let records: Result<Vec<Record>, _> = text.lines().map(serde_json::from_str).collect();
    match records {
        Ok(records) if output.status.success() => Ok(records),
        _ => Err(format!("{command:?}: {}{text}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Returns the row of each implementation, with the ratio of ours to the best peer, and of nonblocking calls to
/// blocking ones.
fn rows_of(case: &BTreeMap<String, Vec<Record>>) -> Vec<Row> {
    let medians = |name: &str| -> Vec<f64> { case[name].iter().map(|record| record.median).collect() };
    let median = |name: &str| Spread::of(medians(name)).expect("each job has printed it").median;
    let peers = case.keys().filter(|name| !name.starts_with("samite"));
    let best = peers.min_by(|a, b| median(a).total_cmp(&median(b)));
    let names = case.iter().filter_map(|(name, records)| Some((name, records.first()?)));
    let rows = names.map(|(name, record)| {
        let (to, bound) = match name {
            _ if *name == Calls::Blocking.of_samite() => (best.cloned(), Some(CASE)),
            _ if *name == Calls::Nonblocking.of_samite() => {
                (Some(Calls::Blocking.of_samite()), Some(NONBLOCKING))
            }
            _ => (None, None),
        };
        let ratio = to.and_then(|to| {
            let quotients = medians(name).into_iter().zip(medians(&to)).map(|(ours, theirs)| ours / theirs);
            let Spread { median, min, max } = Spread::of(quotients.collect())?;
            Some(Ratio { to, median, min, max })
        });
        let Spread { median, min, max } = Spread::of(medians(name)).expect("it has a record");
        let runs = medians(name).len();
        Row { record: Record { median, min, max, runs, ratio, ..record.clone() }, bound }
    });
    rows.collect()
}

impl Calls {
    /// Returns the name of the implementation.
    fn of_samite(self) -> String {
        format!("samite {}", self.name())
    }
}

/// Measures all cases in this job. Rank 0 prints a record for each.
pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let lengths = job.args.lengths(&LENGTHS);
    let most = lengths.iter().copied().max().unwrap_or(0) / size_of::<u64>();
    let window = job.comm.allocate_window::<u64>(most)?;
    let unshared = WindowHints::NONE.unshared_accumulates();
    let unshared = job.comm.allocate_window_with::<u64>(most, unshared)?;
    for kind in KINDS {
        for operation in OPERATIONS {
            for &bytes in &lengths {
                for calls in Calls::ALL {
                    let case = EpochCase { kind, operation, calls, len: bytes / size_of::<u64>() };
                    let is_unshared = operation == "accumulate" && bytes >= UNSHARED_MIN;
                    let window = if is_unshared { &unshared } else { &window };
                    case.print(job, bytes, case.measure(job, window)?);
                }
            }
        }
    }
    window.free()?;
    unshared.free()?;
    Ok(true)
}

/// An epoch to measure.
#[derive(Clone, Copy, Debug)]
struct EpochCase {
    kind: &'static str,
    operation: &'static str,
    calls: Calls,
    /// The number of elements.
    len: usize,
}

impl EpochCase {
    fn print(&self, job: &Job<'_>, bytes: usize, times: Vec<f64>) {
        if job.comm.rank() != ORIGIN {
            return;
        }
        let spread = Spread::of(times).expect("there is a batch");
        let (name, transport) = (self.calls.of_samite(), job.args.transport());
        let bench = format!("rma-epochs-{}-{}", self.kind, self.operation);
        let record = Record::of_job(&bench, &name, &transport, ("epoch_us", "us"), spread);
        say!("{}", Record { bytes: Some(bytes), ..record }.to_json());
    }

    /// Returns the times of an epoch in each batch, in microseconds.
    fn measure(&self, job: &Job<'_>, window: &Window<u64>) -> Result<Vec<f64>, Error> {
        let mut data = vec![1; self.len];
        let batch = (BATCH_BYTES / (self.len * size_of::<u64>()).max(1)).clamp(1, BATCH_MAX);
        let mut times = Vec::new();
        for number in 0..=BATCHES {
            job.comm.barrier()?;
            let begin_ns = now_ns();
            for _ in 0..batch {
                self.epoch(job, window, &mut data)?;
            }
            // The first batch touches the memory.
            if number > 0 {
                times.push(since_us(begin_ns) / batch as f64);
            }
        }
        job.comm.barrier()?;
        Ok(times)
    }

    /// Runs this rank's part of an epoch.
    fn epoch(&self, job: &Job<'_>, window: &Window<u64>, data: &mut Vec<u64>) -> Result<(), Error> {
        match (self.kind, job.comm.rank() == ORIGIN) {
            ("pair", true) => self.access(window.start(&[TARGET])?, data),
            ("pair", false) => self.close(window.post(&[ORIGIN])?),
            ("fence", true) => self.access(window.fence()?, data),
            ("fence", false) => self.close(window.fence()?),
            (_, true) => self.access(window.lock(TARGET, LockKind::Exclusive)?, data),
            (_, false) => Ok(()),
        }
    }

    fn access<K: AccessKind>(&self, epoch: Epoch<'_, u64, K>, data: &mut Vec<u64>) -> Result<(), Error> {
        match self.operation {
            "put" => epoch.put(TARGET, 0, data)?,
            "accumulate" => epoch.accumulate(TARGET, 0, data, WindowOp::Sum)?,
            _ => {
                let get = epoch.iget(TARGET, 0, std::mem::take(data))?;
                self.close(epoch)?;
                *data = get.wait()?.buffer;
                return Ok(());
            }
        }
        self.close(epoch)
    }

    fn close<K: EpochKind>(&self, epoch: Epoch<'_, u64, K>) -> Result<(), Error> {
        match self.calls {
            Calls::Blocking => epoch.close(),
            Calls::Nonblocking => Ok(epoch.iclose()?.wait().map(drop)?),
        }
    }
}
