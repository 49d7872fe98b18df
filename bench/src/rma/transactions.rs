//! Updates of random ranks, each under an exclusive lock (Zounmevo 2014, section 5.8.2).

use samite::{Error, LockKind, Rank, Window, WindowHints, WindowOp};
use samite_fabric::SplitMix64;

use super::{Bound, Case, Figures, Job, Row, since_us};
use crate::failure::now_ns;

/// The updates of a rank in a round.
const UPDATES: usize = 40;

/// The numbers that an update changes: 256 bytes.
const NUMBERS: usize = 32;

/// The variants, each with the hints of its window and the bound of its rate relative to the first one's.
const VARIANTS: [(&str, WindowHints, Option<Bound>); 5] = [
    ("blocking", WindowHints::NONE, None),
    ("nonblocking", WindowHints::NONE, Some(Bound::AtLeast(0.98))),
    ("nonblocking, reordered", WindowHints::NONE.access_after_access(), Some(Bound::AtLeast(1.5))),
    ("nonblocking, aggregated", WindowHints::NONE.aggregate(), Some(Bound::AtLeast(1.5))),
    ("nonblocking, both", WindowHints::NONE.access_after_access().aggregate(), Some(Bound::AtLeast(3.0))),
];

/// The rates of jobs of 16, 32 and 64 ranks in the thesis with nonblocking calls and `A_A_A_R`: the difference to
/// blocking calls in updates per second, and the same in percent.
const PUBLISHED: [(u32, f64, f64); 3] =
    [(16, 91_972.20, 8.93), (32, 135_058.36, 10.75), (64, 247_230.9, 13.14)];

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let mut windows = Vec::new();
    for (_, hints, _) in VARIANTS {
        windows.push(job.comm.allocate_window_with::<u64>(NUMBERS, hints)?);
    }
    let mut rng = SplitMix64::new(job.rank().into());
    let rounds = job.in_turns(VARIANTS.len(), |variant| {
        let begin_ns = now_ns();
        update(job, &windows[variant], &mut rng, variant == 0)?;
        Ok([since_us(begin_ns)])
    })?;
    for window in windows {
        let part = window.free()?;
        let mut sum = [part[0]];
        job.comm.allreduce_in_place(&mut sum, samite::reduction::Sum)?;
        let rounds = u64::from(job.args.rounds + super::WARM_UP);
        assert!(part.iter().all(|number| *number == part[0]), "an update changes all numbers");
        assert_eq!(sum[0], rounds * UPDATES as u64 * u64::from(job.comm.size()), "no update is lost");
    }
    let case = Case {
        bench: "transactions",
        metric: "rate_per_s",
        unit: "1/s",
        bytes: Some(NUMBERS * size_of::<u64>()),
        depth: None,
        to: "blocking",
    };
    let all = (UPDATES * job.comm.size() as usize) as f64;
    let mut rows = Vec::new();
    for ((name, _, bound), times) in VARIANTS.into_iter().zip(&rounds) {
        let values = times.iter().map(|[time]| all / time * 1e6).collect();
        let ratios = times.iter().zip(&rounds[0]).map(|([time], [blocking])| blocking / time).collect();
        let row = Row::new(job, &case, name, Figures { values, ratios });
        rows.push(match bound {
            Some(bound) => row.bounded(bound),
            None => row,
        });
    }
    for (ranks, more, percent) in PUBLISHED {
        let blocking = more / percent * 100.0;
        rows.push(Row::published(&case, "blocking", ranks, blocking));
        rows.push(Row::published(&case, "nonblocking, reordered", ranks, blocking + more));
    }
    Ok(job.print("transactions, rate_per_s: updates of all ranks under exclusive locks", &rows))
}

/// Updates the parts of random other ranks.
fn update(job: &Job<'_>, window: &Window<u64>, rng: &mut SplitMix64, is_blocking: bool) -> Result<(), Error> {
    let (rank, size) = (job.rank(), job.comm.size());
    let mut ends = Vec::new();
    for _ in 0..UPDATES {
        let target = Rank((rank + 1 + rng.below(u64::from(size) - 1) as u32) % size);
        let epoch = window.lock(target, LockKind::Exclusive)?;
        epoch.accumulate(target, 0, &[1; NUMBERS], WindowOp::Sum)?;
        match is_blocking {
            true => epoch.close()?,
            false => ends.push(epoch.iclose()?),
        }
    }
    for end in ends {
        end.wait()?;
    }
    Ok(())
}
