//! `samite ps`: lists the running jobs.

use std::fmt::Write;
use std::io;

use clap::Args;
use samite_launch::{Snapshot, running_jobs, unsafe_places};

use super::print;

/// The arguments of `samite ps`.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Print JSON, one job a line
    #[arg(long)]
    json: bool,
}

/// Prints the jobs.
pub(crate) fn ps(what: &Ps) -> Result<u8, String> {
    let mut text = String::new();
    if !what.json {
        let _ = writeln!(text, "{:<16} {:>8} {:>6} {:>9}  PROGRAM", "JOB", "PID", "RANKS", "SECONDS");
    }
    unsafe_places().iter().for_each(|place| complain(&place.to_string()));
    // Ask all jobs in parallel, since a job that does not answer takes a whole time-out.
    let looks: Vec<_> = std::thread::scope(|scope| {
        let jobs = running_jobs().into_iter();
        let asked: Vec<_> = jobs.map(|job| scope.spawn(move || job.look())).collect();
        asked.into_iter().filter_map(|look| look.join().ok()).collect()
    });
    for look in looks {
        match look {
            Ok(Some(snapshot)) if what.json => {
                text += &serde_json::json!(snapshot).to_string();
                text.push('\n');
            }
            Ok(Some(Snapshot { job, pid, program, age_ms, ranks, .. })) => {
                let (ranks, seconds) = (ranks.len(), age_ms as f64 / 1e3);
                let _ = writeln!(text, "{job:<16} {pid:>8} {ranks:>6} {seconds:>9.1}  {program}");
            }
            // The job has just ended.
            Ok(None) => {}
            Err(error) => complain(&error.to_string()),
        }
    }
    Ok(print(&text))
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "samite: {text}");
}
