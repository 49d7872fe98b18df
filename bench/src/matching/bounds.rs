//! Bounds of the default structure, measured and checked.

use std::time::{Duration, Instant};

use samite_matching::{Adaptive, Arrival, Config, Counting, Envelope, Matcher, Pattern, Posting};

use super::memory::PUBLISHED;
use super::search;
use super::structures::{ADAPTIVE, ARRAY, FOUR_D, LIST, STRUCTURES};
use super::workload::{Direction, Queue, Workload};
use super::{Report, exactly};
use crate::spread::Spread;

/// The time for which one side of a pair is measured. A shared machine may be slower by a factor of 1.8, for
/// milliseconds or minutes. The time is so short that such a slow phase usually affects both sides of a pair.
const SLICE: Duration = Duration::from_millis(1);

/// The time in which a run measures pairs.
const PAIRS: Duration = Duration::from_millis(50);

/// Measures, checks and prints all figures. Returns true if each figure is within its bound.
pub(super) fn run(report: &Report) -> bool {
    report.heading("what is asked of Adaptive: median (min-max) of the runs, and its bound");
    let mut bounds = Bounds { report, passed: true };
    bounds.flat();
    bounds.array();
    bounds.alone();
    bounds.tags();
    bounds.memory();
    bounds.any_source();
    bounds.passed
}

struct Bounds<'a> {
    report: &'a Report,
    passed: bool,
}

impl Bounds<'_> {
    /// Checks that the time of a match in reverse order hardly depends on the number of queued ranks. Also prints the
    /// ratio for an order without locality, which has no bound.
    fn flat(&mut self) {
        let few = 16;
        let many = (self.report.items_max as u32).min(1 << 20);
        for queue in [Queue::Posted, Queue::Unexpected] {
            for (ranks_in, bound) in [(Direction::Reverse, Some(1.5)), (Direction::Scattered, None)] {
                let at = |ranks: u32| Workload::new(queue, ranks, 1, ranks_in);
                let ratios = self.ratio(|| self.time(&at(many)), || self.time(&at(few)));
                self.judge(&format!("{queue:?} {ranks_in:?}: {many} ranks against {few}"), ratios, bound);
            }
        }
    }

    /// Checks that the structure is at most slightly slower than the array, which is the fastest of the other
    /// structures for few ranks, contexts and wildcards.
    fn array(&mut self) {
        const BOUND: f64 = 1.1;
        let mut ratios = Vec::new();
        for workload in search::workloads(self.report.items_max) {
            let time = |of: usize| {
                let matches_max = search::matches_max(&workload, of);
                (STRUCTURES[of].time)(&workload, matches_max, SLICE)
            };
            let ratio = self.ratio(|| time(ADAPTIVE), || time(ARRAY));
            if ratio.median > BOUND {
                let (name, Spread { median, min, max }) = (workload.name(), ratio);
                self.report
                    .line(&format!("{name}, {} ranks: {median:.3} ({min:.3}-{max:.3})", workload.ranks));
            }
            ratios.push(ratio.median);
        }
        let within = ratios.iter().filter(|&&ratio| ratio <= BOUND).count();
        let what = format!(
            "time against the array, all cells of the search; {within} of {} within the bound",
            ratios.len()
        );
        if let Some(ratios) = Spread::of(ratios) {
            let worst = Spread { median: ratios.max, ..ratios };
            self.judge(&format!("{what}; worst"), worst, Some(BOUND));
        }
    }

    /// Checks the time of an insertion and its match in an otherwise empty queue.
    fn alone(&mut self) {
        for queue in [Queue::Posted, Queue::Unexpected] {
            let time = |of: usize| (STRUCTURES[of].time_pairs)(queue);
            let ratios = self.ratio(|| time(ADAPTIVE), || time(LIST));
            self.judge(
                &format!("{queue:?}: an insertion and its match, alone, against the list"),
                ratios,
                Some(1.1),
            );
        }
    }

    /// Checks the time of a match among the messages of one sender with many tags.
    fn tags(&mut self) {
        for queue in [Queue::Posted, Queue::Unexpected] {
            for ranks_in in [Direction::Reverse, Direction::Scattered] {
                let workload = Workload::new(queue, 1, 16_384, ranks_in);
                let ns = self.samples(|| self.time(&workload));
                self.judge(
                    &format!("{queue:?} {ranks_in:?}: 16384 tags of one sender, ns a match"),
                    ns,
                    Some(150.0),
                );
            }
        }
    }

    /// Checks that the structure needs at most the memory of the 4-D queue, and for few items hardly more than the
    /// memory of the list.
    fn memory(&mut self) {
        for queue in [Queue::Posted, Queue::Unexpected] {
            let ratio = |ranks, filled, of: usize| {
                let workload = Workload { filled, ..Workload::new(queue, ranks, 1, Direction::Forward) };
                let [ours, theirs] =
                    [ADAPTIVE, of].map(|of| (STRUCTURES[of].memory)(&workload).in_use() as f64);
                ours / theirs
            };
            let worst = PUBLISHED
                .map(|(ranks, items, ..)| ratio(ranks, items, FOUR_D))
                .into_iter()
                .fold(0.0, f64::max);
            self.judge(
                &format!("{queue:?}: bytes against the 4-D queue, worst cell of table 4.5"),
                exactly(worst),
                Some(1.0),
            );
            let worst = (1..=100).map(|items| ratio(1 << 20, items, LIST)).fold(0.0, f64::max);
            self.judge(
                &format!("{queue:?}: bytes against the list, worst of 1 to 100 items"),
                exactly(worst),
                Some(1.1),
            );
        }
    }

    /// Checks that receives from any source do not visit every rank.
    fn any_source(&mut self) {
        let ranks = (self.report.items_max as u32).min(1 << 20);
        let receives = 1000.min(ranks / 2);
        let mut matcher: Matcher<(), (), Adaptive, Counting> =
            Matcher::new(&Config { ranks, ..Config::default() });
        for rank in 0..ranks {
            assert!(matches!(
                matcher.arrive(Envelope::new(0, rank, u64::from(rank)), || ()),
                Arrival::Queued(_)
            ));
        }
        let mut search = |pattern: fn(u32) -> Pattern| {
            let before = matcher.stats().unexpected;
            for rank in (ranks - receives..ranks).rev() {
                assert!(matches!(matcher.post(pattern(rank), ()), Posting::Matched { .. }));
            }
            let after = matcher.stats().unexpected;
            let compared = (after.compared - before.compared) as f64 / f64::from(receives);
            Spread { median: compared, min: 1.0, max: after.compared_max as f64 }
        };
        let last = search(|rank| Pattern::exact(0, 0, u64::from(rank)).any_source());
        let first = search(|_| Pattern::any(0));
        let name =
            |what| format!("any source, {what}, {ranks} ranks queued: entries compared, average (longest)");
        self.judge(&name("tags of the last ranks"), last, Some(64.0));
        self.judge(&name("any tag"), first, Some(64.0));
    }

    fn time(&self, workload: &Workload) -> f64 {
        (STRUCTURES[ADAPTIVE].time)(workload, usize::MAX, SLICE)
    }

    /// Returns the ratio of two times. Each run of the benchmark measures several pairs, and contributes the median of
    /// their ratios.
    fn ratio(&self, one: impl Fn() -> f64, other: impl Fn() -> f64) -> Spread {
        self.samples(|| {
            let (begin, mut ratios) = (Instant::now(), Vec::new());
            while ratios.is_empty() || begin.elapsed() < PAIRS {
                ratios.push(one() / other());
            }
            Spread::of(ratios).expect("there is a pair").median
        })
    }

    fn samples(&self, sample: impl Fn() -> f64) -> Spread {
        Spread::of((0..self.report.runs).map(|_| sample()).collect()).expect("there is at least one run")
    }

    fn judge(&mut self, what: &str, figure: Spread, bound: Option<f64>) {
        let is_within = bound.is_none_or(|bound| figure.median <= bound);
        self.passed &= is_within;
        let Spread { median, min, max } = figure;
        let verdict = match bound {
            None => String::new(),
            Some(bound) if is_within => format!("  at most {bound}: holds"),
            Some(bound) => format!("  at most {bound}: DOES NOT HOLD"),
        };
        self.report.line(&format!("{what}: {median:.3} ({min:.3}-{max:.3}){verdict}"));
        self.report.record(what, "Adaptive", (0, 0), "figure", "1", figure);
    }
}
