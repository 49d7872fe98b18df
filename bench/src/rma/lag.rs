//! The time of an access to a target that is many exposures ahead of its origin.

use samite::{Error, Rank, WindowHints};

use super::{Bound, Case, Figures, Job, Row, since_us};
use crate::failure::now_ns;

/// The accesses of a batch, whose time is one figure.
const BATCH: usize = 50;

/// The bound of the time relative to that of a target that is one exposure ahead.
const BOUND: Bound = Bound::AtMost(1.5);

/// The tag of the message that says that the exposures are begun.
const BEGUN: u64 = 1;

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let depths = (0..).map(|power| 10_usize.pow(power)).take_while(|depth| *depth <= job.args.most);
    let mut rows: Vec<Row> = Vec::new();
    for (name, hints) in
        [("without flag", WindowHints::NONE), ("with flag", WindowHints::NONE.exposure_after_exposure())]
    {
        let mut first: Option<Vec<f64>> = None;
        for depth in depths.clone() {
            let times = times(job, hints, depth)?;
            let first = first.get_or_insert_with(|| times.clone());
            let ratios = times.iter().zip(first).map(|(time, first)| time / *first).collect();
            let case = Case {
                bench: "lag",
                metric: "access_us",
                unit: "us",
                bytes: Some(8),
                depth: Some(depth),
                to: "one ahead",
            };
            rows.push(Row::new(job, &case, name, Figures { values: times, ratios }).bounded(BOUND));
        }
    }
    Ok(job.print("lag, access_us: an epoch with a target that is `depth` exposures ahead", &rows))
}

/// Returns the times of an access in each batch.
fn times(job: &Job<'_>, hints: WindowHints, depth: usize) -> Result<Vec<f64>, Error> {
    let window = job.comm.allocate_window_with::<u64>(1, hints)?;
    let batches = job.args.rounds as usize;
    let accesses = batches * BATCH;
    let mut times = Vec::new();
    if job.rank() == 1 {
        let mut exposures = std::collections::VecDeque::new();
        for _ in 0..depth {
            exposures.push_back(window.post(&[Rank(0)])?.iclose()?);
        }
        job.comm.send(&[0_u8; 0], Rank(0), BEGUN)?;
        // The target stays ahead: it begins an exposure for each one that ends.
        for _ in 0..accesses {
            exposures.push_back(window.post(&[Rank(0)])?.iclose()?);
            exposures.pop_front().expect("it is ahead").wait()?;
        }
        for exposure in exposures {
            exposure.wait()?;
        }
    } else {
        job.comm.recv(&mut [0_u8; 0], Rank(1), BEGUN)?;
        let access = || {
            let epoch = window.start(&[Rank(1)])?;
            epoch.put(Rank(1), 0, &[7])?;
            epoch.close()
        };
        for _ in 0..batches {
            let begin_ns = now_ns();
            (0..BATCH).try_for_each(|_| access())?;
            times.push(since_us(begin_ns) / BATCH as f64);
        }
        (0..depth).try_for_each(|_| access())?;
    }
    window.free()?;
    times.resize(batches, 0.0);
    job.comm.allreduce_in_place(&mut times, samite::reduction::Max)?;
    Ok(times)
}
