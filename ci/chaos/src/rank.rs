//! A rank: joins, exchanges messages until the driver ends the job, settles with the other survivors, and leaves.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Together;
use crate::collectives::Collectives;
use crate::content::BYTES_MAX;
use crate::derived::Derived;
use crate::report::{END, End, FromRank, Report, now_ns};
use crate::restarts::RestartTraffic;
use crate::survivors;
use crate::traffic::Traffic;
use crate::watchdog::{Watchdog, say};
use crate::windows::Windows;

/// The time for a thread to end on a crowded machine.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// Runs one rank in this process.
///
/// # Errors
/// If it cannot join its job, or the driver's file is malformed.
pub(crate) fn run(seed: u64, dir: &Path, began_ns: u64, returns: bool) -> Result<(), Box<dyn Error>> {
    let rank = std::env::var("SAMITE_RANK")?.parse()?;
    say(&FromRank::Started { rank, pid: std::process::id() as i32 });
    let watchdog = Watchdog::start(rank);
    // The heap opens its file at the first allocation of this size and keeps the file open. So the rank makes such an
    // allocation before it counts its open descriptors.
    drop(black_box(vec![0u8; BYTES_MAX]));
    let before = descriptors()?;

    watchdog.now(format_args!("joining"));
    let world = samite::init()?;
    let comm = world.comm();
    let joined_ns = now_ns();
    say(&FromRank::Joined);
    let end = dir.join(END);
    let mut derived = Derived::new(comm, &watchdog, seed, began_ns, returns)?;
    let report = if returns {
        let mut traffic = RestartTraffic::new(comm, &watchdog, seed)?;
        while !end.exists() {
            traffic.step();
            derived.step();
        }
        derived.cancel_all();
        while !derived.have_ended() {
            traffic.look();
        }
        traffic.settle()
    } else {
        let mut traffic = Traffic::new(comm, &watchdog, seed);
        while !end.exists() {
            traffic.step();
            derived.step();
        }
        let End { killed } = serde_json::from_slice(&fs::read(end)?)?;
        derived.cancel_all();
        while !derived.have_ended() {
            traffic.look();
        }
        traffic.settle(&killed)
    };
    let mut of_derived = derived.report();
    Derived::discard_invitations(comm);
    watchdog.now(format_args!("leaving"));
    drop(world);
    let mut report = Report { joined_ns, descriptors: (before, descriptors_at_end(before)?), ..report };
    if returns {
        // The ends of creations are not compared, because a rank may have died in several incarnations.
        of_derived.creations.clear();
    }
    report.add(of_derived);
    say(&FromRank::Done(report));
    Ok(())
}

/// Runs one rank that makes the same calls as the others.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_together(together: Together, seed: u64, dir: &Path) -> Result<(), Box<dyn Error>> {
    let rank = std::env::var("SAMITE_RANK")?.parse()?;
    say(&FromRank::Started { rank, pid: std::process::id() as i32 });
    let watchdog = Watchdog::start(rank);
    drop(black_box(vec![0u8; BYTES_MAX]));
    let before = descriptors()?;
    watchdog.now(format_args!("joining"));
    let world = samite::init()?;
    let joined_ns = now_ns();
    say(&FromRank::Joined);
    let (comm, end) = (world.comm(), dir.join(END));
    let report = match together {
        Together::Collectives => survivors::run(comm, &watchdog, seed, &end, &mut Collectives),
        Together::Rma => survivors::run(comm, &watchdog, seed, &end, &mut Windows::new()),
    }?;
    watchdog.now(format_args!("leaving"));
    drop(world);
    let report = Report { joined_ns, descriptors: (before, descriptors_at_end(before)?), ..report };
    say(&FromRank::Done(report));
    Ok(())
}

/// Returns the number of open descriptors when it is back at `before`, or when that takes too long. The thread that has
/// driven futures may still be ending.
fn descriptors_at_end(before: usize) -> std::io::Result<usize> {
    let since = Instant::now();
    loop {
        let count = descriptors()?;
        if count <= before {
            return Ok(count);
        }
        if since.elapsed() > ENDING_MAX {
            for descriptor in fs::read_dir("/proc/self/fd")?.flatten() {
                eprintln!("open at the end: {:?}", fs::read_link(descriptor.path()));
            }
            return Ok(count);
        }
        std::thread::yield_now();
    }
}

/// Returns the number of open descriptors. Of sockets it counts those of the Unix domain, because in these jobs only
/// libfabric opens others. When a port is closed, libfabric does not close the sockets of connections that it has
/// accepted and whose requests have not arrived yet, and a killed rank never sends its request. See the drop of `OfiPort`
/// in `fabric/src/ofi.rs`.
fn descriptors() -> std::io::Result<usize> {
    let table = fs::read_to_string("/proc/self/net/unix")?;
    // The seventh field of a line is the inode of the socket.
    let local: HashSet<&str> =
        table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6)).collect();
    let is_counted = |link: &Path| {
        let name = link.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        name.is_none_or(|inode| local.contains(inode))
    };
    let descriptors = fs::read_dir("/proc/self/fd")?.flatten();
    Ok(descriptors.filter(|fd| fs::read_link(fd.path()).is_ok_and(|link| is_counted(&link))).count())
}
