//! Limits of this host, and of this user on it.

use std::sync::Mutex;
use std::{fs, io, thread};

use rustix::process::{Resource, getrlimit};
use rustix::thread::sched_getaffinity;
use samite_launch as launch;
use samite_os::process;

use super::Finding;

pub(super) fn all(ranks: Option<u32>, asked: Option<&str>, providers: &[String]) -> Vec<Finding> {
    let cores = sched_getaffinity(None).map_or(1, |set| set.count());
    let ranks = ranks.unwrap_or(cores);
    vec![
        shared_memory(asked),
        ptrace(asked),
        locked_memory(providers),
        descriptors(ranks),
        threads(ranks),
        processors(cores, ranks),
    ]
}

/// Returns a finding if /proc cannot be used. Ranks find their peers' memory in it, and the launcher its own program.
pub(super) fn without_proc() -> Option<Finding> {
    let error = process::Process::current().err()?;
    let fix = "mount it: `mount -t proc proc /proc` (in a chroot: `mount -t proc proc ROOT/proc`)";
    Some(Finding::fail("/proc", format!("this process is not found in it: {error}"), fix))
}

const MIB: u64 = 1 << 20;

/// Checks `/dev/shm`, which only libfabric's provider `shm` uses.
fn shared_memory(asked: Option<&str>) -> Finding {
    const CHECK: &str = "/dev/shm";
    const FIX: &str = "mount a larger one (`mount -o remount,size=1G /dev/shm`, or `--shm-size` of the container), or use \
                       samite-shm, which takes none of it";
    let needed = asked == Some("shm");
    let (found, enough) = match rustix::fs::statvfs("/dev/shm") {
        Ok(fs) => {
            let free = fs.f_bavail * fs.f_frsize;
            (format!("{} MiB free of {} MiB", free / MIB, fs.f_blocks * fs.f_frsize / MIB), free >= 64 * MIB)
        }
        Err(error) => (format!("not there ({error})"), false),
    };
    match (enough, needed) {
        (true, _) => Finding::pass(CHECK, found),
        (false, true) => Finding::fail(CHECK, format!("{found}; SAMITE_TRANSPORT asks for shm"), FIX),
        (false, false) => Finding::pass(CHECK, format!("{found}; samite-shm takes none of it")),
    }
}

/// Checks that processes may copy from each other's memory (cross-memory attach), as libfabric's `shm` does.
fn ptrace(asked: Option<&str>) -> Finding {
    const CHECK: &str = "cross-memory attach";
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = scope.as_deref().map(str::trim).unwrap_or("0");
    match (scope, asked) {
        ("0", _) => Finding::pass(CHECK, "permitted between processes of a user"),
        (_, Some("shm")) => Finding::warn(
            CHECK,
            format!("refused (kernel.yama.ptrace_scope is {scope}); the provider shm copies twice instead"),
            "`sysctl kernel.yama.ptrace_scope=0`, or use samite-shm, which does not need it",
        ),
        _ => Finding::pass(
            CHECK,
            format!("refused (kernel.yama.ptrace_scope is {scope}); samite-shm does not need it"),
        ),
    }
}

/// Checks the limit of locked memory: providers of network cards pin send buffers.
fn locked_memory(providers: &[String]) -> Finding {
    const CHECK: &str = "locked memory";
    const ENOUGH: u64 = 64 * MIB;
    let of_cards = ["verbs", "efa", "cxi", "psm2", "psm3", "opx"];
    let card = providers.iter().find(|provider| of_cards.iter().any(|name| provider.starts_with(name)));
    match (getrlimit(Resource::Memlock).current, card) {
        (Some(limit), Some(card)) if limit < ENOUGH => Finding::warn(
            CHECK,
            format!("limited to {} KiB, and {card} locks all that it sends and receives", limit >> 10),
            "`ulimit -l unlimited`, for good in /etc/security/limits.conf (memlock); Slurm's jobs have slurmd's limit",
        ),
        (Some(limit), None) if limit < ENOUGH => {
            Finding::pass(CHECK, format!("limited to {} KiB; no provider here locks any", limit >> 10))
        }
        (Some(limit), _) => Finding::pass(CHECK, format!("limited to {} MiB", limit / MIB)),
        (None, _) => Finding::pass(CHECK, "unlimited"),
    }
}

fn descriptors(ranks: u32) -> Finding {
    const CHECK: &str = "open descriptors";
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Finding::pass(CHECK, "unlimited");
    };
    let needed = launch::descriptors_for(ranks);
    let found = format!("{limit}, and `samite run` takes {needed} to start {ranks} ranks");
    match limit < needed {
        true => Finding::fail(
            CHECK,
            found,
            format!("`ulimit -n {needed}`, for good in /etc/security/limits.conf (nofile)"),
        ),
        false => Finding::pass(CHECK, found),
    }
}

/// Checks that ranks can start the threads that make progress for long messages while the program computes. It starts
/// threads, because only that checks all limits of their number: of the user, and of the container.
fn threads(ranks: u32) -> Finding {
    const CHECK: &str = "threads";
    let wanted = (2 * ranks as usize).clamp(THREADS_MIN, THREADS_MAX);
    match start_threads(wanted) {
        (_, None) => Finding::pass(CHECK, format!("{wanted} can be started")),
        (started, Some(error)) => Finding::warn(
            CHECK,
            format!(
                "only {started} of {wanted} can be started ({error}): long messages of ranks without a thread travel \
                 only during calls"
            ),
            "raise the limit of processes: `ulimit -u`, for good in /etc/security/limits.conf (nproc), or pids.max of \
             the container",
        ),
    }
}

/// Starts threads that exist at the same time. Returns the number of the started threads, and the error of the thread
/// that could not be started.
fn start_threads(wanted: usize) -> (usize, Option<io::Error>) {
    let gate = Mutex::new(());
    thread::scope(|threads| {
        let closed = gate.lock();
        let start =
            || thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, || drop(gate.lock()));
        let mut started = 0;
        let error = loop {
            if started == wanted {
                break None;
            }
            match start() {
                Ok(_) => started += 1,
                Err(error) => break Some(error),
            }
        };
        drop(closed);
        (started, error)
    })
}

/// The smallest and the largest number of threads that the check starts.
const THREADS_MIN: usize = 32;
const THREADS_MAX: usize = 1024;
const STACK_BYTES: usize = 64 << 10;

fn processors(cores: u32, ranks: u32) -> Finding {
    const CHECK: &str = "processors";
    let granted = std::thread::available_parallelism().map_or(cores, |granted| granted.get() as u32);
    let online = fs::read_dir("/sys/devices/system/cpu").map_or(0, |entries| {
        let is_core = |name: &str| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_core)).count()
    });
    let found =
        format!("{online} in the machine, {cores} for this process (affinity), worth {granted} (cgroup)");
    if granted < cores {
        Finding::warn(
            CHECK,
            found,
            format!("start at most {granted} ranks here, or raise the CPU quota of the container or job"),
        )
    } else if ranks > cores {
        Finding::warn(
            CHECK,
            format!("{found}, fewer than {ranks} ranks: they wait for each other's turn"),
            format!(
                "start at most {cores} ranks here, or widen the affinity (`taskset`, `srun --cpus-per-task`)"
            ),
        )
    } else {
        Finding::pass(CHECK, found)
    }
}
