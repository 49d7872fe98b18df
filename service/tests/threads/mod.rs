//! The driver threads of this process, and its processor time.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the mask of blocked signals of each driver thread.
pub(crate) fn drivers() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let line = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line[name.len()..].trim().to_owned())
    };
    let drivers = statuses.filter(|status| line(status, "Name:").as_deref() == Some("samite-driver"));
    drivers.map(|status| u64::from_str_radix(&line(&status, "SigBlk:").unwrap(), 16).unwrap()).collect()
}

/// Returns the processor time of this process.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
