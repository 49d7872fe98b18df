//! `samite ps` and `samite top`: the jobs that run, and what the ranks of one do.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use samite::launch::{RankView, RunningJob, Snapshot, running_jobs};
use serde::Serialize;

use super::print;

/// What `samite ps` is asked.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// As JSON, one job a line
    #[arg(long)]
    json: bool,
}

/// What `samite top` is asked.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The job, or the beginning of its name; not needed if only one runs
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// As JSON, one line each time
    #[arg(long)]
    json: bool,
    /// The time between two looks, in seconds: rates are means over it
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

/// A job with what its ranks do per second.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    #[serde(flatten)]
    pub(crate) snapshot: Snapshot,
    /// By rank; none if it did not tell anything new.
    pub(crate) rates: Vec<Option<Rates>>,
}

/// What a rank did per second, between two looks.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) sent: f64,
    pub(crate) bytes_sent: f64,
    pub(crate) received: f64,
    pub(crate) bytes_received: f64,
    /// The part of the time that it waited, of all threads.
    pub(crate) waited: f64,
}

/// Prints the jobs.
pub(crate) fn ps(what: &Ps) -> Result<u8, String> {
    let mut text = String::new();
    if !what.json {
        let _ = writeln!(text, "{:<16} {:>8} {:>6} {:>9}  PROGRAM", "JOB", "PID", "RANKS", "SECONDS");
    }
    for job in running_jobs() {
        match job.look() {
            Ok(Some(snapshot)) if what.json => {
                text += &serde_json::json!(snapshot).to_string();
                text.push('\n');
            }
            Ok(Some(Snapshot { job, pid, program, age_ms, ranks, .. })) => {
                let (ranks, seconds) = (ranks.len(), age_ms as f64 / 1e3);
                let _ = writeln!(text, "{job:<16} {pid:>8} {ranks:>6} {seconds:>9.1}  {program}");
            }
            // It has just ended.
            Ok(None) => {}
            Err(error) => complain(&error.to_string()),
        }
    }
    Ok(print(&text))
}

/// Shows what the ranks of a job do, until it ends.
#[expect(clippy::disallowed_methods, reason = "rates are over time")]
pub(crate) fn top(what: &Top) -> Result<u8, String> {
    let job = chosen(what.job.as_deref().unwrap_or_default(), running_jobs())?;
    let look = || job.look().map_err(|error| error.to_string());
    // On a terminal each look takes the place of the one before.
    let is_live = !what.once && !what.json && io::stdout().is_terminal();
    let mut former = look()?;
    while let Some(before) = former {
        thread::sleep(what.interval);
        let Some(snapshot) = look()? else { break };
        let view = View::between(&before, snapshot);
        let shown = if what.json { serde_json::json!(view).to_string() + "\n" } else { view.to_text() };
        let code = print(&if is_live { HOME.to_owned() + &shown } else { shown });
        if what.once || code != 0 {
            return Ok(code);
        }
        former = Some(view.snapshot);
    }
    match what.once {
        true => Err(format!("job {} has ended", job.job)),
        false => Ok(0),
    }
}

/// The one whose name begins so.
fn chosen(prefix: &str, jobs: Vec<RunningJob>) -> Result<RunningJob, String> {
    let mut fitting: Vec<_> =
        jobs.into_iter().filter(|job| job.job.to_string().starts_with(prefix)).collect();
    match (fitting.pop(), fitting.len()) {
        (Some(job), 0) => Ok(job),
        (None, _) if prefix.is_empty() => Err("no job of yours was started by `samite run` here".to_owned()),
        (None, _) => {
            Err(format!("no job whose name begins with `{prefix}`: `samite ps` shows those that run"))
        }
        (Some(_), others) => Err(format!(
            "{} jobs: name one, or the beginning of its name, as `samite ps` shows them",
            others + 1
        )),
    }
}

impl View {
    pub(crate) fn between(before: &Snapshot, after: Snapshot) -> View {
        let rates =
            after.ranks.iter().zip(&before.ranks).map(|(after, before)| Rates::between(before, after));
        View { rates: rates.collect(), snapshot: after }
    }

    fn to_text(&self) -> String {
        let Snapshot { job, program, age_ms, ranks, .. } = &self.snapshot;
        let seconds = *age_ms as f64 / 1e3;
        let mut text = format!("job {job}, {} ranks, {seconds:.1} s: {program}\n", ranks.len());
        let _ = write!(text, "{:>5}", HEADS[0].0);
        for (head, width) in &HEADS[1..] {
            let _ = write!(text, " {head:>width$}");
        }
        text += "  state\n";
        for (index, view) in ranks.iter().enumerate() {
            let [cells @ .., state] = &self.cells(index, view);
            for ((_, width), cell) in HEADS.iter().zip(cells) {
                let space = if *width == HEADS[0].1 { "" } else { " " };
                let _ = write!(text, "{space}{cell:>width$}");
            }
            let _ = writeln!(text, "  {state}");
        }
        text
    }

    /// What is shown of a rank: a value for each head, and its state.
    pub(crate) fn cells(&self, index: usize, view: &RankView) -> [String; HEADS.len() + 1] {
        let rate = |of: fn(&Rates) -> f64| {
            self.rates.get(index).and_then(Option::as_ref).map_or_else(dash, |rates| short(of(rates)))
        };
        let figure = |of: fn(&samite::Figures) -> u64| {
            view.figures.as_ref().map_or_else(dash, |figures| of(figures).to_string())
        };
        [
            view.rank.to_string(),
            rate(|rates| rates.sent),
            rate(|rates| rates.bytes_sent),
            rate(|rates| rates.received),
            rate(|rates| rates.bytes_received),
            rate(|rates| rates.waited * 100.0),
            figure(|figures| figures.unexpected_messages as u64),
            figure(|figures| figures.queued as u64),
            view.figures.as_ref().map_or_else(dash, |_| format!("{:.1}", view.figures_age_ms as f64 / 1e3)),
            state(view),
        ]
    }
}

/// The columns before the state, and their widths.
pub(crate) const HEADS: [(&str, usize); 9] = [
    ("rank", 5),
    ("sent/s", 8),
    ("B/s", 8),
    ("recv/s", 8),
    ("B/s", 8),
    ("wait%", 6),
    ("early", 7),
    ("queued", 7),
    ("age s", 6),
];

impl Rates {
    /// None if it told nothing between the looks, or is not the same process any more.
    fn between(before: &RankView, after: &RankView) -> Option<Rates> {
        let (old, new) = (before.figures.as_ref()?, after.figures.as_ref()?);
        let seconds = new.age_ns.checked_sub(old.age_ns).filter(|&time| time > 0)? as f64 / 1e9;
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        (before.life == after.life).then(|| Rates {
            sent: rate(old.sent, new.sent),
            bytes_sent: rate(old.bytes_sent, new.bytes_sent),
            received: rate(old.received, new.received),
            bytes_received: rate(old.bytes_received, new.bytes_received),
            waited: rate(old.waited_ns, new.waited_ns) / 1e9,
        })
    }
}

/// What a rank does, or how it ended.
fn state(view: &RankView) -> String {
    match (&view.ending, &view.figures) {
        (Some(ending), _) => ending.to_string(),
        (None, _) if view.is_stopped => "is stopped".to_owned(),
        (None, None) => "has told nothing yet".to_owned(),
        (None, Some(_)) if !view.is_answer => "makes no calls".to_owned(),
        (None, Some(figures)) => {
            figures.awaits.as_ref().map_or_else(|| "runs".to_owned(), ToString::to_string)
        }
    }
}

/// In three or four digits, with a unit of thousands.
fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut value = value;
    for unit in units {
        if value < 999.5 {
            return if value < 9.95 && value != 0.0 {
                format!("{value:.1}{unit}")
            } else {
                format!("{value:.0}{unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

fn dash() -> String {
    "-".to_owned()
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "samite: {text}");
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "it is a number of seconds above 0".to_owned())
}

/// To the upper left of a terminal, and all below erased (ECMA-48: CUP, ED).
const HOME: &str = "\x1b[H\x1b[J";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.04, 9.5, 10.4, 999.4, 1000.0, 12_345.0, 2e9].map(short);
        assert_eq!(shown, ["0", "0.0", "9.5", "10", "999", "1.0k", "12k", "2.0G"]);
    }
}
