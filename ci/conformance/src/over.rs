//! Runs of cases over each transport.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use samite::{Check, Comm, Rank, Settings, Source, World, simulated};

use crate::case::{Case, Death, Job, Needs, barrier};

/// The counts of a run.
#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Failures {
    fn count(&mut self, over: &str, case: &Case, failures: &[String]) {
        match failures {
            [] => self.passed += 1,
            _ => {
                self.failed += 1;
                for failure in failures {
                    eprintln!("{FAILURE} {} over {over}: {failure}", case.name);
                }
            }
        }
    }

    fn report(self, over: &str) -> Self {
        println!("{over}: {} passed, {} failed", self.passed, self.failed);
        self
    }
}

/// Panics if two cases have the same name.
pub(crate) fn check_names(cases: &[Case]) {
    let mut names = BTreeSet::new();
    for case in cases {
        assert!(names.insert(&case.name), "two cases have the name {}", case.name);
    }
}

/// Runs each case with threads as ranks.
pub(crate) fn loopback(cases: &[Case]) -> Failures {
    let mut failures = Failures::default();
    for case in cases {
        let alarm = Alarm::start(format!("{} over loopback", case.name));
        let results = settings().local(case.ranks, |world| as_rank(case, world, LONG, || {}));
        drop(alarm);
        failures.count("loopback", case, &failed(results));
    }
    failures.report("loopback")
}

/// Returns the settings of ranks, with all checks enabled. The cases follow the checked rules, or show that the checks
/// find a violation.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.set_lanes(LANES).expect("so many are possible");
    settings.set_check(&[Check::Modes, Check::Hints, Check::Types]).expect("it is valid");
    settings
}

/// Runs each case in a simulated network for each seed.
pub(crate) fn sim(cases: &[Case], seeds: Range<u64>) -> Failures {
    let cases: Vec<_> = cases.iter().filter(|case| case.needs != Needs::Threads).collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Failures::default());
    let cores = rustix::thread::sched_getaffinity(None).expect("the cores of this process are known");
    thread::scope(|scope| {
        for core in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)) {
            let (cases, next, failures, seeds) = (&cases, &next, &failures, seeds.clone());
            scope.spawn(move || {
                // Use one core: only one rank of a simulation runs at a time, and the switch to the next rank takes
                // less time on one core.
                let mut only = rustix::thread::CpuSet::new();
                only.set(core);
                rustix::thread::sched_setaffinity(None, &only).expect("the core is allowed");
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let failed = over_seeds(case, seeds.clone());
                    failures.lock().unwrap().count("sim", case, &failed);
                }
            });
        }
    });
    failures.into_inner().unwrap().report("sim")
}

/// Returns the failures of the first seed that fails.
fn over_seeds(case: &Case, seeds: Range<u64>) -> Vec<String> {
    let seeds = match case.needs {
        Needs::Values => seeds.start..seeds.start + 1,
        _ => seeds,
    };
    for seed in seeds {
        let alarm = Alarm::start(format!("{} over sim, seed {seed}", case.name));
        let run = simulated::simulate(seed, case.ranks, |world| {
            as_rank(case, world, LONG_SIMULATED, || {
                simulated::kill();
            })
        });
        drop(alarm);
        let failed = failed(run.results);
        if !failed.is_empty() {
            return failed.iter().map(|failure| format!("seed {seed}: {failure}")).collect();
        }
    }
    Vec::new()
}

/// Runs the cases with processes as ranks. Over `hosts`, the processes are on two simulated hosts, with two of them on
/// the first one.
pub(crate) fn jobs(cases: &[Case], filter: &str, transport: &str, samite: &Path) -> Failures {
    let suite = std::env::current_exe().expect("this program has a path");
    let shell = (transport == HOSTS).then(Shell::new);
    let run = |ranks: u32, options: &[&str], call: &[&str]| {
        let hosts = format!("127.0.0.1:2,127.0.0.2:{ranks}");
        let ranks = ranks.to_string();
        let mut command = Command::new(samite);
        command.args(["run", "-n", &ranks, "--timeout", JOB_TIMEOUT]);
        match &shell {
            Some(shell) => command.args(["--hosts", &hosts, "--ssh"]).arg(&shell.0),
            None => command.args(["--transport", transport]),
        };
        command.env("SAMITE_LANES", LANES.to_string()).env("SAMITE_CHECK", CHECKS);
        command.args(options).arg(&suite).args(call);
        let output = command.output();
        output.expect("the command of samite starts")
    };
    let mut failures = Failures::default();
    let (own, in_turn): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.needs == Needs::OwnJob);
    if let Some(ranks) = in_turn.iter().map(|case| case.ranks).max() {
        let output = run(ranks, &[], &["--filter", filter, "in-turn"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let counts = text.lines().find_map(|line| {
            let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
            Some((passed.parse().ok()?, failed.parse().ok()?))
        });
        // Without counts the job has ended early.
        (failures.passed, failures.failed) = counts.unwrap_or((0, in_turn.len()));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    for case in own {
        let output = run(case.ranks, &["--on-failure", "continue"], &["alone", &case.name]);
        let text = String::from_utf8_lossy(&output.stderr);
        let mut failed: Vec<_> =
            text.lines().filter(|line| line.contains(FAILURE)).map(str::to_owned).collect();
        let ended = String::from_utf8_lossy(&output.stdout).lines().filter(|line| *line == ENDED).count();
        if failed.is_empty() && ended == 0 {
            failed.push(format!("no rank has ended as it should: {text}"));
        }
        failures.count(transport, case, &failed);
    }
    failures.report(transport)
}

/// The name of the job on simulated hosts among the transports.
const HOSTS: &str = "hosts";

/// A file with a remote shell that runs commands on this host.
struct Shell(PathBuf);

impl Shell {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("samite-conformance-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o700).open(&path);
        let mut file = file.expect("a file can be made in the folder for temporary files");
        file.write_all(b"#!/bin/sh\nshift\nexec \"$@\"\n").expect("the file can be written");
        Self(path)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs all cases in turn as a rank of a job, each in a communicator of its own.
pub(crate) fn in_turn(cases: &[Case]) -> Failures {
    let world = samite::init().expect("this process is a rank");
    let comm = world.comm().with_timeout(TIMEOUT);
    let cases: Vec<_> = cases.iter().filter(|case| case.needs != Needs::OwnJob).collect();
    let mut mine = Vec::new();
    for (index, case) in (0u64..).zip(&cases) {
        let _alarm = Alarm::start(format!("{} as rank {} of a job", case.name, comm.rank()));
        let colour = (comm.rank().0 < case.ranks).then_some(0);
        let ranks = comm.split(colour, 0).expect("the cases before have left the job intact");
        if let Some(comm) = ranks {
            let rank = comm.rank();
            if let Err(failure) = caught(|| case.run(&Job { comm, long: LONG, death: || {} })) {
                eprintln!("{FAILURE} {}: rank {rank}: {failure}", case.name);
                mine.push(index);
            }
        }
    }
    let mut failures = Failures::default();
    if comm.rank() == 0 {
        let mut failed: BTreeSet<u64> = mine.into_iter().collect();
        for _ in 1..comm.size() {
            failed.extend(comm.recv_vec::<u64>(Source::ANY, FAILED).expect("each rank reports").buffer);
        }
        failures.failed = failed.len();
        failures.passed = cases.len() - failed.len();
        println!("{} passed, {} failed", failures.passed, failures.failed);
    } else {
        comm.send(&mine, Rank(0), FAILED).expect("rank 0 collects the reports");
    }
    barrier(&comm).expect("all ranks have reported");
    world.leave().expect("all ranks leave");
    failures
}

/// Runs a case as a rank of a job of its own.
pub(crate) fn alone(cases: &[Case], name: &str) -> Failures {
    let case = cases.iter().find(|case| case.name == name).expect("there is a case with this name");
    let world = samite::init().expect("this process is a rank");
    let rank = world.comm().rank();
    let _alarm = Alarm::start(format!("{name} as rank {rank} of a job"));
    let die = || {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    };
    match as_rank(case, world, LONG, die) {
        Ok(()) => {
            println!("{ENDED}");
            Failures { passed: 1, failed: 0 }
        }
        Err(failure) => {
            eprintln!("{FAILURE} rank {rank}: {failure}");
            Failures { passed: 0, failed: 1 }
        }
    }
}

/// Runs a case as a rank, and then drops the rank's world. Returns the message of a failure as the error.
fn as_rank(case: &Case, world: World, long: usize, death: fn()) -> Result<(), String> {
    caught(|| {
        // The closure owns the world, so that a panic drops it and the other ranks do not wait for this rank.
        let world = world;
        case.run(&Job { comm: Comm::clone(world.comm()).with_timeout(TIMEOUT), long, death });
    })
}

fn failed(results: Vec<Result<(), String>>) -> Vec<String> {
    let failed = results.into_iter().enumerate().filter_map(|(rank, result)| Some((rank, result.err()?)));
    failed.map(|(rank, failure)| format!("rank {rank}: {failure}")).collect()
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook that keeps the message of a panic for [`caught`] instead of printing it.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
        let message = message_of(info.payload());
        PANIC.set(Some(format!("{message} ({})", place.unwrap_or_default())));
    }));
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Calls `body`. Returns the message of a panic as an error, unless the panic is a [`Death`], by which a case ends a
/// rank.
fn caught(body: impl FnOnce()) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => Ok(()),
        Err(payload) if payload.is::<Death>() => Ok(()),
        Err(payload) => Err(PANIC.take().unwrap_or_else(|| message_of(&*payload))),
    }
}

/// Lists a run as under way until the value is dropped, so that [`watch`] ends the process if the run takes too long.
/// Such a run contains a case that waits forever.
struct Alarm(thread::ThreadId);

/// The runs under way, and their ages in seconds.
static UNDER_WAY: Mutex<Vec<(thread::ThreadId, String, u32)>> = Mutex::new(Vec::new());

impl Alarm {
    fn start(run: String) -> Self {
        let id = thread::current().id();
        UNDER_WAY.lock().unwrap().push((id, run, 0));
        Self(id)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        UNDER_WAY.lock().unwrap().retain(|(id, ..)| *id != self.0);
    }
}

/// Starts a thread that prints the name of a run and ends the process if the run lasts longer than [`AGE_MAX`].
#[expect(clippy::disallowed_methods, reason = "the other threads wait for messages")]
pub(crate) fn watch() {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            for (_, run, age) in UNDER_WAY.lock().unwrap().iter_mut() {
                *age += 1;
                if *age > AGE_MAX {
                    eprintln!("{FAILURE} {run}: it has not ended within {AGE_MAX} s");
                    std::process::exit(1);
                }
            }
        }
    });
}

/// The number of lanes of each rank that is not simulated.
const LANES: usize = 2;
/// The checks of the jobs. With `collectives`, ranks wait for ranks that are no neighbours, and share no board.
const CHECKS: &str = "modes,hints,types";
/// The length of a long message in bytes. No port sends such a message in one packet.
const LONG: usize = 600_000;
/// The length of a long message in simulations, whose packets are smaller.
const LONG_SIMULATED: usize = 30_000;
/// The time-out of each operation of a case.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that a run may take, in seconds.
const AGE_MAX: u32 = 120;
/// The beginning of a line about a failure.
const FAILURE: &str = "FAILED";
/// The line that a rank prints when its case has succeeded.
const ENDED: &str = "ended";
/// The time limit of a job, in seconds.
const JOB_TIMEOUT: &str = "200";
/// The tag of reports of failed cases.
const FAILED: u64 = 1;
