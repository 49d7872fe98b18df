//! Updates of random ranks, each under an exclusive lock (Zounmevo 2014, section 5.8.2): in real time, and in virtual
//! time, where the figures do not depend on the number of cores.

mod simulated;

use samite::{Error, LockKind, Rank, Window, WindowHints, WindowOp};
use samite_fabric::SplitMix64;

use super::{Bound, Case, Figures, Job, RmaArgs, Row, since_us};
use crate::failure::now_ns;
use crate::record::Ratio;

/// The name of the simulated network, which has the latency and the bandwidth of the default transport.
pub(super) const SIMULATED: &str = "simulated(100us,0.33ns/B)";

/// The updates of a rank in a round.
const UPDATES: usize = 40;

/// The numbers that an update changes: 256 bytes.
const NUMBERS: usize = 32;

/// A way to update.
struct Variant {
    name: &'static str,
    is_blocking: bool,
    /// The hints of its window.
    reorders: bool,
    aggregates: bool,
    /// The bound of its rate relative to the first variant's.
    bound: Option<Bound>,
}

const VARIANTS: [Variant; 5] = [
    Variant { name: "blocking", is_blocking: true, reorders: false, aggregates: false, bound: None },
    Variant {
        name: "nonblocking",
        is_blocking: false,
        reorders: false,
        aggregates: false,
        bound: Some(Bound::AtLeast(0.98)),
    },
    Variant {
        name: "nonblocking, reordered",
        is_blocking: false,
        reorders: true,
        aggregates: false,
        bound: Some(Bound::AtLeast(1.5)),
    },
    Variant {
        name: "nonblocking, aggregated",
        is_blocking: false,
        reorders: false,
        aggregates: true,
        bound: Some(Bound::AtLeast(1.5)),
    },
    Variant {
        name: "nonblocking, both",
        is_blocking: false,
        reorders: true,
        aggregates: true,
        bound: Some(Bound::AtLeast(3.0)),
    },
];

/// The bounds are for this number of ranks or more. With two ranks all updates of a rank have the same target, so none
/// may overtake another one.
const BOUNDED_RANKS: u32 = 4;

/// The rates of jobs of 16, 32 and 64 ranks in the thesis with nonblocking calls and `A_A_A_R`: the difference to
/// blocking calls in updates per second, and the same in percent.
const PUBLISHED: [(u32, f64, f64); 3] =
    [(16, 91_972.20, 8.93), (32, 135_058.36, 10.75), (64, 247_230.9, 13.14)];

const CASE: Case<'_> = Case {
    bench: "transactions",
    metric: "rate_per_s",
    unit: "1/s",
    bytes: Some(NUMBERS * size_of::<u64>()),
    depth: None,
    to: "blocking",
};

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let mut windows = Vec::new();
    for variant in &VARIANTS {
        windows.push(job.comm.allocate_window_with::<u64>(NUMBERS, variant.hints())?);
    }
    let (rank, ranks) = (job.rank(), job.comm.size());
    let mut rng = SplitMix64::new(rank.into());
    let rounds = job.in_turns(VARIANTS.len(), |variant| {
        let begin_ns = now_ns();
        update(&windows[variant], &targets(rank, ranks, &mut rng), VARIANTS[variant].is_blocking)?;
        Ok([since_us(begin_ns)])
    })?;
    for window in windows {
        let part = window.free()?;
        let mut sum = [part[0]];
        job.comm.allreduce_in_place(&mut sum, samite::reduction::Sum)?;
        let rounds = u64::from(job.args.rounds + super::WARM_UP);
        assert!(part.iter().all(|number| *number == part[0]), "an update changes all numbers");
        assert_eq!(sum[0], rounds * UPDATES as u64 * u64::from(ranks), "no update is lost");
    }
    let times: Vec<Vec<f64>> =
        rounds.iter().map(|times| times.iter().map(|[time]| *time).collect()).collect();
    let mut rows = rows_of(job.args, ranks, &times);
    rows.extend(PUBLISHED.iter().flat_map(published));
    Ok(job.print("transactions, rate_per_s: updates of all ranks under exclusive locks", &rows))
}

/// Measures in virtual time, with the numbers of ranks of the thesis unless one is given. Returns false if a bound is
/// not kept.
pub(super) fn simulate(args: &RmaArgs) -> bool {
    let sizes = args.ranks.map_or(PUBLISHED.map(|(ranks, ..)| ranks).to_vec(), |ranks| vec![ranks]);
    let mut rows = Vec::new();
    for ranks in sizes {
        rows.extend(rows_of(args, ranks, &simulated::times(ranks, args.rounds)));
        rows.extend(PUBLISHED.iter().filter(|(theirs, ..)| *theirs == ranks).flat_map(published));
    }
    args.print("transactions in virtual time, rate_per_s: updates of all ranks under exclusive locks", &rows)
}

/// Returns the rows of a job. `times` has the times of the rounds of each variant, in microseconds.
fn rows_of(args: &RmaArgs, ranks: u32, times: &[Vec<f64>]) -> Vec<Row> {
    let all = (UPDATES * ranks as usize) as f64;
    let row = |(variant, of_variant): (&Variant, &Vec<f64>)| {
        let values = of_variant.iter().map(|time| all / time * 1e6).collect();
        let ratios = of_variant.iter().zip(&times[0]).map(|(time, blocking)| blocking / time).collect();
        let row = Row::of(args, ranks, &CASE, variant.name, Figures { values, ratios });
        match variant.bound {
            Some(bound) if ranks >= BOUNDED_RANKS => row.bounded(bound),
            _ => row,
        }
    };
    VARIANTS.iter().zip(times).map(row).collect()
}

/// Returns the figures of the thesis for a number of ranks.
fn published(&(ranks, more, percent): &(u32, f64, f64)) -> [Row; 2] {
    let blocking = more / percent * 100.0;
    let mut reordered = Row::published(&CASE, "nonblocking, reordered", ranks, blocking + more);
    let ratio = 1.0 + percent / 100.0;
    reordered.record.ratio = Some(Ratio { to: "blocking".to_owned(), median: ratio, min: ratio, max: ratio });
    [Row::published(&CASE, "blocking", ranks, blocking), reordered]
}

impl Variant {
    fn hints(&self) -> WindowHints {
        let hints = if self.reorders { WindowHints::NONE.access_after_access() } else { WindowHints::NONE };
        if self.aggregates { hints.aggregate() } else { hints }
    }
}

/// Returns the random other ranks that a rank updates in a round.
fn targets(rank: u32, ranks: u32, rng: &mut SplitMix64) -> Vec<u32> {
    (0..UPDATES).map(|_| (rank + 1 + rng.below(u64::from(ranks) - 1) as u32) % ranks).collect()
}

/// Updates the parts of ranks.
fn update(window: &Window<u64>, targets: &[u32], is_blocking: bool) -> Result<(), Error> {
    let mut ends = Vec::new();
    for target in targets.iter().copied().map(Rank) {
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
