//! `samite doctor`: finds what prevents or slows down jobs on this host, and names the fixes.

mod host;
mod network;
mod self_test;

use std::ffi::OsString;
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use samite::bootstrap::Launch;
use samite_control::{Settings, environment, is_known_variable};
use samite_fabric::delay::undelayed;
use serde::Serialize;
use serde_json::{Value, json};

use super::print;

pub(crate) use self::self_test::{SELF_TEST_COMMAND, rank as self_test_rank};

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The number of ranks to run on this host; the number of its cores by default
    #[arg(short = 'n', long, value_name = "N")]
    ranks: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Pass,
    /// Some jobs do not run, or jobs run slower than they could.
    Warn,
    /// Jobs do not start.
    Fail,
}

/// Returns true if a job needs libfabric even if all its ranks are on this host. `asked` is the selected transport; the
/// job needs libfabric if that is another transport than `samite-shm`.
fn is_libfabric_needed(asked: Option<&str>) -> bool {
    asked.is_some_and(|asked| undelayed(asked) != "samite-shm")
}

#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    verdict: Verdict,
    found: String,
    /// The fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn pass(check: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { check: check.into(), verdict: Verdict::Pass, found: found.into(), fix: None }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Warn, fix: Some(fix.into()), ..Finding::pass(check, found) }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Fail, ..Finding::warn(check, found, fix) }
    }
}

/// Runs all checks and prints the findings. Returns the exit code: 1 if a check failed or the findings could not be
/// printed, otherwise 0, also if there are warnings.
#[expect(clippy::disallowed_methods, reason = "it says how long it took")]
pub(crate) fn doctor(what: &Doctor) -> u8 {
    let begin = Instant::now();
    let settings = Settings::from_environment();
    let asked = settings.as_ref().ok().and_then(|settings| settings.transport().map(str::to_owned));
    let mut findings = vec![launcher(), variables(settings.as_ref().err())];
    match host::without_proc() {
        // Without /proc no rank can start, and the other checks would report faults of parts that work.
        Some(finding) => findings.push(finding),
        None => {
            let (found, providers) = network::all(asked.as_deref());
            findings.extend(found);
            findings.extend(host::all(what.ranks, asked.as_deref(), &providers));
            let carries = findings
                .iter()
                .all(|finding| finding.check != network::LOOPBACK || finding.verdict == Verdict::Pass);
            findings.extend(self_test::all(asked.as_deref(), &providers, begin + WITHIN, carries));
        }
    }

    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass);
    let milliseconds = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let printed = match what.json {
        true => {
            let answer: Value = json!({ "verdict": worst, "milliseconds": milliseconds, "checks": findings });
            print(&format!("{answer:#}\n"))
        }
        false => print(&text(&findings, worst, milliseconds)),
    };
    printed.max((worst == Verdict::Fail).into())
}

/// The time after the start of `samite doctor` at which the last self-test ends, unless the host is busy. So `samite
/// doctor` answers within 5 s on an idle host, even if every self-test times out.
const WITHIN: Duration = Duration::from_millis(4300);

fn text(findings: &[Finding], worst: Verdict, milliseconds: u64) -> String {
    let mut text = String::new();
    for Finding { check, verdict, found, fix } in findings {
        let sign = match verdict {
            Verdict::Pass => "pass",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        let _ = writeln!(text, "{sign}  {check}: {found}");
        if let Some(fix) = fix {
            let _ = writeln!(text, "      -> {fix}");
        }
    }
    let end = match worst {
        Verdict::Pass => "no problem found",
        Verdict::Warn => "jobs run here, with the limits above",
        Verdict::Fail => "jobs cannot run here until the failed checks are fixed",
    };
    let _ = writeln!(text, "samite doctor: {end} ({milliseconds} ms)");
    text
}

/// Checks that the environment names no launcher, or a launcher that a program started here can join.
fn launcher() -> Finding {
    match Launch::detect(&environment) {
        Ok(Launch::Alone) => Finding::pass("launcher", "none: programs are started with `samite run`"),
        Ok(_) => Finding::pass("launcher", "this process has been started as a rank of a job"),
        Err(error) => {
            let said = error.to_string();
            let (found, fix) = said.split_once(": ").unwrap_or((&said, "start programs with `samite run`"));
            Finding::fail("launcher", found, fix)
        }
    }
}

/// Checks that the variables that are set have valid names and values.
fn variables(wrong: Option<&samite_control::SettingError>) -> Finding {
    if let Some(wrong) = wrong {
        return Finding::fail("variables", wrong.to_string(), "`samite info --parameters` lists them all");
    }
    let names = std::env::vars_os().map(|(name, _): (OsString, _)| name.to_string_lossy().into_owned());
    let (known, unknown): (Vec<_>, Vec<_>) =
        names.filter(|name| name.starts_with("SAMITE_")).partition(|name| is_known_variable(name));
    match unknown.is_empty() {
        true => Finding::pass("variables", format!("{} of samite's are set", known.len())),
        false => Finding::warn(
            "variables",
            format!("not known to samite: {}", unknown.join(", ")),
            "correct their names, or unset them; `samite info --parameters` lists those that there are",
        ),
    }
}
