//! `samite top`: the activity of a job's ranks, as a sequence of tables, as JSON, or live on a terminal.

mod draw;
mod live;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use samite_launch::{RunningJob, running_jobs, unsafe_places};

use self::view::View;
use super::print;

/// The arguments of `samite top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The job, or the beginning of its name; not needed if only one runs
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    /// Print JSON, one line each time
    #[arg(long)]
    json: bool,
    /// The time between two updates, in seconds; rates are means over it
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

/// Shows the activity of a job's ranks, until the job ends or the user stops the program; with `--once`, one time.
/// Returns the exit code.
pub(crate) fn top(what: &Top) -> Result<u8, String> {
    let job = chosen(what.job.as_deref().unwrap_or_default(), running_jobs())?;
    if !what.once && !what.json && io::stdout().is_terminal() {
        return live::watch(job, what.interval);
    }
    print_updates(&job, what)
}

/// Prints one table or line of JSON for each update.
#[expect(clippy::disallowed_methods, reason = "rates are over time")]
fn print_updates(job: &RunningJob, what: &Top) -> Result<u8, String> {
    let look = || job.look().map_err(|error| error.to_string());
    let mut former = look()?;
    while let Some(before) = former {
        thread::sleep(what.interval);
        let Some(snapshot) = look()? else { break };
        let view = View::between(&before, snapshot);
        let code =
            print(&if what.json { serde_json::json!(view).to_string() + "\n" } else { view.to_text() });
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

/// Returns the job whose name begins with `prefix`. It is an error if no job or more than one job has such a name.
fn chosen(prefix: &str, jobs: Vec<RunningJob>) -> Result<RunningJob, String> {
    let mut fitting: Vec<_> =
        jobs.into_iter().filter(|job| job.job.to_string().starts_with(prefix)).collect();
    match (fitting.pop(), fitting.len()) {
        (Some(job), 0) => Ok(job),
        (None, _) if prefix.is_empty() => {
            let unsafe_places = unsafe_places().iter().map(|place| format!("; {place}")).collect::<String>();
            Err(format!("no job of yours was started by `samite run` here{unsafe_places}"))
        }
        (None, _) => {
            Err(format!("no job whose name begins with `{prefix}`: `samite ps` shows those that run"))
        }
        (Some(_), others) => Err(format!(
            "{} jobs: name one, or the beginning of its name, as `samite ps` shows them",
            others + 1
        )),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "it is a number of seconds above 0".to_owned())
}
