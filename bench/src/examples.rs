//! The cost of the thread for progress in applications: their time, their memory, and the thread's time.
//!
//! Each run of an example is a job without the thread and a job with it. While a job runs, this program reads the
//! figures of its processes in /proc. (Zounmevo 2014, figures 3.8 and 3.9) publishes the same figures.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use samite_launch::{self as launch, Options};

use crate::implementation::WITH_PROGRESS;
use crate::layouts::name;
use crate::memory;
use crate::peers;
use crate::record::{Ratio, Record};
use crate::spread::Spread;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct ExamplesArgs {
    /// The examples
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_values = ["ring", "radix", "heat2d", "compute"])]
    examples: Vec<Example>,
    /// The number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2)]
    ranks: u32,
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// Runs of each example, with the thread and without it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Start the ranks of one job
    #[arg(long, hide = true)]
    once: bool,
}

/// An example in `service/examples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Example {
    /// A token that goes around a ring, by blocking calls
    Ring,
    /// A radix sort, by nonblocking calls
    Radix,
    /// The heat equation, which computes while edges travel
    Heat2d,
    /// Computations of seconds without a call
    Compute,
}

impl Example {
    const fn args(self) -> &'static [&'static str] {
        match self {
            Self::Ring => &["20000"],
            Self::Radix => &["2000000"],
            Self::Heat2d => &["1024", "200"],
            Self::Compute => &["3"],
        }
    }

    /// Returns the metrics of the example.
    fn metrics(self) -> [Metric; 3] {
        let (time, unit) = if self == Self::Ring { ("hop_us", "us") } else { ("elapsed_s", "s") };
        [
            (time, unit, |figures| figures.time),
            ("peak_kib", "KiB", |figures| Some(figures.peak_kib)),
            ("thread_percent", "%", |figures| Some(figures.thread_percent)),
        ]
    }

    fn program(self) -> PathBuf {
        peers::target().join("release/examples").join(name(self))
    }
}

/// A metric: name, unit, and figure.
type Metric = (&'static str, &'static str, fn(&Figures) -> Option<f64>);

/// The figures of one job.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// The time that the example prints; `None` if it prints none.
    time: Option<f64>,
    /// The peak memory of a rank in KiB, averaged over the ranks.
    peak_kib: f64,
    /// The time of the threads for progress on a core, relative to the time of the ranks, in percent.
    thread_percent: f64,
}

/// The time between two looks at the processes of a job.
const PERIOD: Duration = Duration::from_millis(5);

/// The name of the thread that makes progress.
const THREAD: &str = "samite-driver";

/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(120);

impl ExamplesArgs {
    /// Builds and runs the examples, and prints the table.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        if self.once {
            return self.launch();
        }
        build(&self.examples)?;
        if !self.json {
            say!("the thread for progress in examples with {} ranks, {} runs", self.ranks, self.runs);
            say!(
                "{:<12} {:<8} {:<15} {:>10} {:>10} {:>10} {:>6} {:>6} {:>6}",
                "transport",
                "example",
                "figure",
                "without",
                "with",
                "difference",
                "ratio",
                "min",
                "max"
            );
        }
        for transport in &self.transport {
            for &example in &self.examples {
                let mut runs: [Vec<Figures>; 2] = Default::default();
                for turn in 0..self.runs as usize {
                    for with in [turn % 2, 1 - turn % 2] {
                        runs[with].push(self.job(example, transport, with == 1)?);
                    }
                }
                self.print(example, transport, &runs);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Starts the ranks of a job. The output of the job is this process's output.
    fn launch(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let example = *self.examples.first().ok_or("a job has an example")?;
        let code = launch::run(Options {
            transport: self.transport.first().cloned(),
            timeout: Some(TIMEOUT),
            args: example.args().iter().map(Into::into).collect(),
            ..Options::new(self.ranks, example.program())
        })?;
        Ok(code.into())
    }

    /// Runs a job in a process of its own, and watches the job's processes.
    fn job(
        &self,
        example: Example,
        transport: &str,
        with: bool,
    ) -> Result<Figures, Box<dyn Error + Send + Sync>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["examples", "--once", "--examples", &name(example), "--transport", transport]);
        command.args(["--ranks", &self.ranks.to_string()]);
        command.env("SAMITE_PROGRESS", if with { "needed" } else { "off" });
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let watched = watch(&mut child, &example.program())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !text.contains("verified") || watched.is_empty() {
            return Err(format!("{} over {transport} has failed: {}", name(example), text.trim()).into());
        }
        let of = |figure: fn(&Rank) -> f64| watched.values().map(figure).sum::<f64>();
        Ok(Figures {
            time: time(&text),
            peak_kib: of(|rank| rank.peak_bytes as f64) / 1024.0 / watched.len() as f64,
            thread_percent: 100.0 * of(|rank| rank.thread_ns as f64) / of(|rank| rank.age_ns as f64).max(1.0),
        })
    }

    fn print(&self, example: Example, transport: &str, [without, with]: &[Vec<Figures>; 2]) {
        let metrics = example.metrics();
        let example = name(example);
        for (metric, unit, figure) in metrics {
            let all = |runs: &[Figures]| runs.iter().filter_map(figure).collect::<Vec<_>>();
            let (without, with) = (all(without), all(with));
            let quotients = with.iter().zip(&without).map(|(with, without)| with / without).collect();
            let (Some(ratio), Some(plain), Some(threaded)) =
                (Spread::of(quotients), Spread::of(without), Spread::of(with))
            else {
                continue;
            };
            if self.json {
                let bench = format!("{example}-{metric}");
                let record = |name, spread| Record {
                    ranks: self.ranks,
                    runs: self.runs as usize,
                    ..Record::of_job(&bench, name, transport, (metric, unit), spread)
                };
                let Spread { median, min, max } = ratio;
                // Without the thread its time is 0, and there is no ratio.
                let ratio = median.is_finite().then(|| Ratio { to: "samite".to_owned(), median, min, max });
                say!("{}", record("samite", plain).to_json());
                let name = format!("samite{WITH_PROGRESS}");
                say!("{}", Record { ratio, ..record(&name, threaded) }.to_json());
                continue;
            }
            let ratio = match ratio.median.is_finite() {
                true => format!("{:>6.3} {:>6.3} {:>6.3}", ratio.median, ratio.min, ratio.max),
                false => String::new(),
            };
            let (plain, threaded) = (plain.median, threaded.median);
            let difference = threaded - plain;
            say!(
                "{transport:<12} {example:<8} {metric:<15} {plain:>10.3} {threaded:>10.3} {difference:>10.3} {ratio}"
            );
        }
    }
}

fn build(examples: &[Example]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "--package", "samite"]);
    examples.iter().for_each(|&example| {
        cargo.args(["--example", &name(example)]);
    });
    if !cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status()?.success() {
        return Err("the examples could not be built".into());
    }
    Ok(())
}

/// The latest figures of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    peak_bytes: u64,
    thread_ns: u64,
    /// The time since the process was first seen.
    age_ns: u64,
}

/// Reads the figures of all processes of a program until `child` has ended.
fn watch(child: &mut Child, program: &Path) -> std::io::Result<BTreeMap<u32, Rank>> {
    let (program, mut ranks) = (program.canonicalize()?, BTreeMap::<u32, (u64, Rank)>::new());
    while child.try_wait()?.is_none() {
        let now_ns = crate::failure::now_ns();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process that ends meanwhile keeps its former figures.
            if fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
                && let Some(peak_bytes) = memory::peak_of(&entry.path())
            {
                let (since, rank) = ranks.entry(number).or_insert((now_ns, Rank::default()));
                let thread_ns = rank.thread_ns.max(thread_ns(&entry.path()));
                *rank = Rank { peak_bytes, thread_ns, age_ns: now_ns - *since };
            }
        }
        std::thread::sleep(PERIOD);
    }
    Ok(ranks.into_iter().map(|(number, (_, rank))| (number, rank)).collect())
}

/// Returns the time for which the threads for progress of a process have run, from the folder of the process in /proc.
fn thread_ns(process: &Path) -> u64 {
    let Ok(tasks) = fs::read_dir(process.join("task")) else { return 0 };
    let time = |task: &Path| {
        let is_ours = fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == THREAD);
        let times = is_ours.then(|| fs::read_to_string(task.join("schedstat")).ok()).flatten()?;
        times.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(|task| time(&task.path())).sum()
}

/// Returns the time in the output of an example.
fn time(text: &str) -> Option<f64> {
    let words = text.split_whitespace();
    words.filter_map(|word| word.split_once('=')).find_map(|(name, value)| match name {
        "seconds" | "hop_us" => value.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_output_of_examples() {
        assert_eq!(time("ring: ranks=2 rounds=9 hop_us=1.25 verified\n"), Some(1.25));
        assert_eq!(time("radix: ranks=2 keys=8 seconds=0.5 verified\n"), Some(0.5));
        assert_eq!(time("rank 0 verified 3 rounds\n"), None);
    }

    #[test]
    fn a_process_is_watched_until_its_end() {
        let program = Path::new("/bin/sleep");
        let mut child = Command::new(program).arg("0.3").spawn().unwrap();
        let id = child.id();
        let ranks = watch(&mut child, program).unwrap();
        let rank = ranks[&id];
        assert!(rank.peak_bytes > 10_000 && rank.thread_ns == 0, "{rank:?}");
    }
}
