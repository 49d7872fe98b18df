//! A job of two ranks on every usable transport.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use samite::{Cause, Error, Rank};

use super::Finding;

/// The subcommand that makes the process a rank of a self-test.
pub(crate) const SELF_TEST_COMMAND: &str = "self-test";

/// Tests transports. The transport that jobs need is tested first and alone, so that its result does not depend on the
/// other tests. The other transports are tested several at a time, since a starting rank mostly waits in libraries that
/// libfabric loads. The tests share the time left until `end`, but each has a time-out between `TIMEOUT_MIN` and
/// `TIMEOUT_MAX`. A test that times out on a busy machine is repeated, but only if `carries` is true, which means that
/// the host transports TCP over loopback.
#[expect(clippy::disallowed_methods, reason = "it says how long a job may take")]
pub(super) fn all(asked: Option<&str>, providers: &[String], end: Instant, carries: bool) -> Vec<Finding> {
    let needed = [asked.unwrap_or("samite-shm")];
    let mut others = vec!["samite-shm"];
    others.extend(providers.iter().map(String::as_str));
    others.retain(|&name| !needed.contains(&name));
    let groups: Vec<&[&str]> = std::iter::once(&needed[..]).chain(others.chunks(AT_ONCE)).collect();
    let mut findings = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let share = end.saturating_duration_since(Instant::now()) / (groups.len() - number) as u32;
        let share = share.saturating_sub(LAUNCHER_LAST).clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        let timeout = if number == 0 && carries { TIMEOUT_MAX } else { share };
        let jobs: Vec<_> = group.iter().map(|&transport| (transport, start(transport, timeout))).collect();
        for (transport, job) in jobs {
            let mut ended = job.and_then(Child::wait_with_output);
            if carries && ended.as_ref().is_ok_and(is_timed_out) && is_busy() {
                // Other processes used the processors. Repeat the test alone, with a longer time-out.
                ended = start(transport, TIMEOUT_BUSY).and_then(Child::wait_with_output);
            }
            findings.push(judge(transport, ended, number == 0));
        }
    }
    findings
}

fn start(transport: &str, timeout: Duration) -> std::io::Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    for (name, _) in std::env::vars_os() {
        if samite_control::variable::OF_THE_LAUNCHER.iter().any(|(ours, _)| name == *ours) {
            command.env_remove(name);
        }
    }
    let timeout = format!("{:.1}", timeout.as_secs_f64());
    command.args(["run", "-n", "2", "--timeout", &timeout, "--transport", transport, "--"]).arg(program);
    command.arg(SELF_TEST_COMMAND).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

const AT_ONCE: usize = 3;

/// The longest time-out of a test, unless the test is repeated. It is several times as long as a test takes on a busy
/// machine.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// The shortest time-out of a test. It is longer than a test takes on an idle machine.
const TIMEOUT_MIN: Duration = Duration::from_millis(700);

/// After a time-out the launcher waits at most this time for the ranks to report their waits, then ends them.
const LAUNCHER_LAST: Duration = Duration::from_millis(500);

/// The launcher's exit code after a time-out.
const TIMED_OUT: i32 = 124;

/// The time-out of a test that is repeated because the host is busy.
const TIMEOUT_BUSY: Duration = Duration::from_secs(10);

/// Returns true if, on average over a minute, more processes want to run than there are processors.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    is_load_above(&load, processors)
}

fn is_load_above(load: &str, processors: usize) -> bool {
    load.split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .is_some_and(|load: f64| load > processors as f64)
}

fn is_timed_out(output: &Output) -> bool {
    output.status.code() == Some(TIMED_OUT)
}

fn judge(transport: &str, ended: std::io::Result<Output>, is_needed: bool) -> Finding {
    let check = format!("self-test of {transport}");
    let why = match ended {
        Ok(output) if is_timed_out(&output) => {
            let state =
                if is_busy() { "slow on this busy host; try again when it is less busy" } else { "it hangs" };
            format!("not done in time: {state}")
        }
        Ok(output) if output.status.success() => {
            return Finding::pass(check, String::from_utf8_lossy(&output.stdout).trim());
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = text.lines().find(|line| !line.starts_with("samite run:")).or(text.lines().next());
            let first = first.unwrap_or("it ended without a word");
            first.trim_start_matches("samite run: ").trim_start_matches("samite: ").to_owned()
        }
        Err(error) => format!("it cannot be started: {error}"),
    };
    let fix = format!(
        "see more with `FI_LOG_LEVEL=warn samite run -n 2 --transport '{transport}' -- samite {SELF_TEST_COMMAND}`"
    );
    match is_needed {
        true => Finding::fail(check, why, fix),
        false => Finding::warn(check, why, format!("leave this transport alone, or {fix}")),
    }
}

/// Runs one of the two ranks: exchanges short messages, then one long message in each direction, and checks the
/// received bytes.
#[expect(clippy::disallowed_methods, reason = "it says how long a message takes")]
pub(crate) fn rank() -> Result<u8, String> {
    let world = samite::init().map_err(|error| error.to_string())?;
    if world.comm().size() != 2 {
        return Err(format!(
            "a self-test has 2 ranks, not {}: `samite run -n 2 -- samite {SELF_TEST_COMMAND}`",
            world.comm().size()
        ));
    }
    let peer = Rank(1 - world.comm().rank().0);
    let bounded = world.comm().with_timeout(TIMEOUT_BUSY);
    let exchange = || {
        let mut short = [0u64; 8];
        let mut long = vec![0u32; 1 << 18];
        let mut one_way = Duration::MAX;
        for round in 0..ROUNDS {
            let begin = Instant::now();
            if world.comm().rank() == 0 {
                bounded.send(&[round; 8], peer, 0)?;
                bounded.recv(&mut short, peer, 0)?;
            } else {
                bounded.recv(&mut short, peer, 0)?;
                bounded.send(&[round; 8], peer, 0)?;
            }
            one_way = one_way.min(begin.elapsed() / 2);
            if short != [round; 8] {
                return Ok(None);
            }
        }
        let sent: Vec<u32> = (0..long.len() as u32).map(|index| index ^ world.comm().rank().0).collect();
        if world.comm().rank() == 0 {
            bounded.send(&sent, peer, 1)?;
            bounded.recv(&mut long, peer, 1)?;
        } else {
            bounded.recv(&mut long, peer, 1)?;
            bounded.send(&sent, peer, 1)?;
        }
        let intact = long.iter().zip(0u32..).all(|(&got, index)| got == index ^ peer.0);
        Ok::<_, Error>(intact.then_some(one_way))
    };
    match exchange() {
        Ok(Some(one_way)) if world.comm().rank() == 0 => {
            let text = format!("64 bytes in {:.1} us at best, 1 MiB intact\n", one_way.as_secs_f64() * 1e6);
            Ok(super::print(&text))
        }
        Ok(Some(_)) => Ok(0),
        Ok(None) => Err("a message arrived with other bytes than were sent".to_owned()),
        // The other rank has left because of an error, which it reports itself.
        Err(Error::PeerFailed { cause: Cause::Left, .. }) => Ok(1),
        Err(error) => Err(error.to_string()),
    }
}

/// The number of round trips. It is small, because several transports are tested at the same time, by more ranks than
/// there are cores.
const ROUNDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_busy_if_more_want_to_run_than_there_are_processors() {
        assert!(is_load_above("2.31 1.00 0.50 3/400 1234\n", 2));
        assert!(!is_load_above("1.99 9.00 9.00 3/400 1234\n", 2));
        assert!(!is_load_above("", 2));
    }
}
