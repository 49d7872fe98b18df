//! A rank: joins, exchanges messages until the driver ends the job, settles with the other survivors, and leaves.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use crate::content::BYTES_MAX;
use crate::report::{END, End, FromRank, Report, now_ns};
use crate::restarts::RestartTraffic;
use crate::traffic::Traffic;
use crate::watchdog::{Watchdog, say};

/// Runs one rank in this process.
///
/// # Errors
/// If it cannot join its job, or the driver's file is malformed.
pub(crate) fn run(seed: u64, dir: &Path, returns: bool) -> Result<(), Box<dyn Error>> {
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
    let report = if returns {
        let mut traffic = RestartTraffic::new(comm, &watchdog, seed)?;
        while !end.exists() {
            traffic.step();
        }
        traffic.settle()
    } else {
        let mut traffic = Traffic::new(comm, &watchdog, seed);
        while !end.exists() {
            traffic.step();
        }
        let End { killed } = serde_json::from_slice(&fs::read(end)?)?;
        traffic.settle(&killed)
    };
    watchdog.now(format_args!("leaving"));
    drop(world);
    say(&FromRank::Done(Report { joined_ns, descriptors: (before, descriptors()?), ..report }));
    Ok(())
}

fn descriptors() -> std::io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}
