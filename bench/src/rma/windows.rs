//! The memory of a million windows (Zounmevo 2014, table 6.3), and the budget that bounds their number.

use samite::{Error, LockKind, Rank, Window};

use super::{Bound, Case, Figures, Job, Row};
use crate::memory::resident_bytes;

/// The largest number of bytes of a window beyond its part. Figures are relative to it.
const BYTES_MAX: f64 = 512.0;
const BOUND: Bound = Bound::AtMost(1.0);

/// The windows that are freed when the budget refuses one, and made again.
const AGAIN: usize = 100;

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let most = job.args.most;
    let mut windows = Vec::with_capacity(most);
    let before = resident();
    for number in 0..most {
        windows.push(job.comm.window(vec![number as u64; 1])?);
    }
    let made = resident();
    windows.iter().try_for_each(|window| exchange(job, window))?;
    job.comm.barrier()?;
    let used = resident();
    let mut rows = Vec::new();
    for (name, after) in [("made", made), ("used", used)] {
        let bytes = (after - before) / most as f64 - size_of::<u64>() as f64;
        let case = Case {
            bench: "windows",
            metric: "window_bytes",
            unit: "B",
            bytes: Some(size_of::<u64>()),
            depth: Some(most),
            to: "512 B",
        };
        let figures = Figures { values: vec![bytes], ratios: vec![bytes / BYTES_MAX] };
        rows.push(Row::new(job, &case, name, figures).bounded(BOUND));
    }
    let about =
        "windows, window_bytes: memory of a window beyond its part, of `depth` windows that one process has";
    let are_kept = job.print(about, &rows);
    let is_bounded = exhaust(job, &mut windows)?;
    free(windows)?;
    Ok(are_kept && is_bounded)
}

/// Writes to the other rank's part.
fn exchange(job: &Job<'_>, window: &Window<u64>) -> Result<(), Error> {
    let other = Rank(1 - job.rank());
    let epoch = window.lock(other, LockKind::Exclusive)?;
    epoch.put(other, 0, &[u64::MAX])?;
    epoch.close()
}

/// Makes windows until the budget refuses one. Everything else must work after that, and a new window when others were
/// freed. Returns true if the budget has refused one.
fn exhaust(job: &Job<'_>, windows: &mut Vec<Window<u64>>) -> Result<bool, Error> {
    let refused = loop {
        match job.comm.window(vec![0_u64; 1]) {
            Ok(window) => windows.push(window),
            Err(refused) => break refused,
        }
    };
    let count = windows.len();
    // Both ranks have met the bound.
    job.comm.barrier()?;
    exchange(job, &windows[count - 1])?;
    free(windows.split_off(count - AGAIN))?;
    for _ in 0..AGAIN {
        windows.push(job.comm.window(vec![0_u64; 1])?);
    }
    windows[count - AGAIN..].iter().try_for_each(|window| exchange(job, window))?;
    job.comm.barrier()?;
    let is_bounded = matches!(refused, Error::Exhausted { .. });
    if job.rank() == 0 && !job.args.json {
        say!("{count} windows, then: {refused}; {AGAIN} were freed and made again");
    }
    Ok(is_bounded)
}

/// Frees windows, whose parts other ranks may have written to.
fn free(windows: Vec<Window<u64>>) -> Result<(), Error> {
    let ends = windows.into_iter().map(Window::ifree).collect::<Result<Vec<_>, _>>()?;
    for end in ends {
        end.wait()?;
    }
    Ok(())
}

fn resident() -> f64 {
    resident_bytes().map_or(f64::NAN, |bytes| bytes as f64)
}
