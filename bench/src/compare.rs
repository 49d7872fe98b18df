//! Several implementations, measured in turns.
//!
//! The speed of a machine changes with its clock and its other load. So each run of a point measures every
//! implementation once, one after the other, and the next run begins with another implementation. Ratios are medians of
//! the quotients of such runs.

use crate::benchmark::{Benchmark, Point};
use crate::implementation::{Implementation, RunError, WITH_PROGRESS};
use crate::record::{Ratio, Record, Settings, Started};
use crate::spread::Spread;

/// One comparison, over one transport.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// The measured benchmark.
    pub(crate) benchmark: Benchmark,
    /// The points to measure; at least one.
    pub(crate) points: Vec<Point>,
    /// The compared implementations.
    pub(crate) implementations: Vec<Implementation>,
    /// Runs of each implementation at each point; at least 1.
    pub(crate) runs: usize,
    /// True if ranks are bound to cores.
    pub(crate) pin: bool,
    /// The implementation that ratios refer to. By default, at each point, the best implementation whose name does not
    /// start with `samite`, or, for an implementation with a thread for progress, the same one without the thread.
    pub(crate) baseline: Option<String>,
}

impl Comparison {
    /// Returns the total number of runs.
    pub(crate) fn len(&self) -> usize {
        self.points.len() * self.implementations.len() * self.runs
    }

    /// Returns the comparison's settings, with `absent` as the missing libraries.
    pub(crate) fn settings(&self, absent: &[String]) -> Settings {
        let started = |implementation: &Implementation| Started {
            implementation: implementation.name.clone(),
            command: format!("{:?}", implementation.command(self.benchmark, self.points[0])),
        };
        Settings {
            bench: self.benchmark.name().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            runs: self.runs,
            pinned: self.pin,
            commands: self.implementations.iter().map(started).collect(),
            absent: absent.to_vec(),
        }
    }

    /// Runs all implementations at one point, and calls `progress` after each run.
    pub(crate) fn run(&self, point: Point, mut progress: impl FnMut()) -> Outcome<RunError> {
        self.run_with(|implementation| {
            let record = implementation.run(self.benchmark, point, self.pin);
            progress();
            record
        })
    }

    fn run_with<E>(&self, mut run: impl FnMut(&Implementation) -> Result<Record, E>) -> Outcome<E> {
        let count = self.implementations.len();
        let mut runs = vec![Vec::new(); count];
        let mut failed: Vec<Option<E>> = (0..count).map(|_| None).collect();
        for turn in 0..self.runs {
            for place in (0..count).map(|place| (turn + place) % count) {
                if failed[place].is_none() {
                    match run(&self.implementations[place]) {
                        Ok(record) => runs[place].push(record),
                        Err(error) => failed[place] = Some(error),
                    }
                }
            }
        }
        runs.retain(|runs| runs.len() == self.runs);
        let mark = mark(&runs);
        Outcome { records: self.summarize(runs), failed: failed.into_iter().flatten().collect(), mark }
    }

    /// Summarizes the runs of each implementation in one record, and adds the ratios to the baseline.
    fn summarize(&self, runs: Vec<Vec<Record>>) -> Vec<Record> {
        let mut records: Vec<Record> = runs.iter().filter_map(|runs| summary(runs)).collect();
        for place in 0..records.len() {
            let Some(baseline) = self.baseline(&records, place).filter(|&baseline| baseline != place) else {
                continue;
            };
            records[place].ratio =
                quotients(&runs[place], &runs[baseline]).map(|Spread { median, min, max }| {
                    let to = runs[baseline][0].implementation.clone();
                    Ratio { to, median, min, max }
                });
        }
        records
    }

    /// Returns the place of the record that the ratio of the record at `place` refers to.
    fn baseline(&self, records: &[Record], place: usize) -> Option<usize> {
        let places = || records.iter().enumerate();
        let named = |name: &str| places().find(|(_, record)| record.implementation == name);
        if let Some(name) = &self.baseline {
            return named(name).map(|(place, _)| place);
        }
        if self.is_of_progress() {
            let plain = records[place].implementation.strip_suffix(WITH_PROGRESS)?;
            return named(plain).map(|(place, _)| place);
        }
        let sign = if self.benchmark.more_is_better() { -1.0 } else { 1.0 };
        let others = places().filter(|(_, record)| !record.implementation.starts_with("samite"));
        others
            .min_by(|(_, a), (_, b)| (sign * a.median).total_cmp(&(sign * b.median)))
            .map(|(place, _)| place)
    }

    /// Returns true if implementations with a thread for progress are compared with the same implementations without
    /// it.
    fn is_of_progress(&self) -> bool {
        self.implementations.iter().any(|implementation| implementation.name.ends_with(WITH_PROGRESS))
    }
}

/// The result of a comparison at one point.
#[derive(Debug)]
pub(crate) struct Outcome<E> {
    /// The records in the order of the implementations, without the implementations that failed.
    pub(crate) records: Vec<Record>,
    /// The errors of the implementations that failed.
    pub(crate) failed: Vec<E>,
    /// A remark if the algorithm that Samite has chosen for a collective operation takes more than [`MARKED`] times as long
    /// as another algorithm.
    pub(crate) mark: Option<String>,
}

/// Returns the quotients of runs of the same turn.
fn quotients(runs: &[Record], to: &[Record]) -> Option<Spread> {
    Spread::of(runs.iter().zip(to).map(|(ours, theirs)| ours.median / theirs.median).collect())
}

/// See [`Outcome::mark`].
fn mark(runs: &[Vec<Record>]) -> Option<String> {
    let chosen = runs.iter().find(|runs| runs[0].implementation == "samite")?;
    let selected = runs.iter().filter(|runs| runs[0].implementation.starts_with("samite="));
    let quotients = selected.filter_map(|runs| Some((&runs[0], quotients(chosen, runs)?.median)));
    let (best, quotient) = quotients.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let Record { bench, transport, ranks, bytes, implementation, .. } = best;
    let bytes = bytes.unwrap_or(0);
    (quotient > MARKED).then(|| {
        format!(
            "{bench} over {transport}, {ranks} ranks, {bytes} bytes: the chosen algorithm takes {quotient:.2} times as \
             long as {implementation}"
        )
    })
}

/// The largest ratio of the time of a chosen algorithm to that of the fastest one that is not marked.
pub(crate) const MARKED: f64 = 1.2;

fn summary(runs: &[Record]) -> Option<Record> {
    let Spread { median, min, max } = Spread::of(runs.iter().map(|record| record.median).collect())?;
    Some(Record { median, min, max, runs: runs.len(), ..runs.first()?.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: Point = Point { ranks: 2, bytes: 8, depth: None };

    fn comparison(benchmark: Benchmark, names: &[&str]) -> Comparison {
        let implementations = names.iter().map(|name| Implementation::named(name)).collect();
        Comparison { benchmark, points: vec![POINT], implementations, runs: 3, pin: false, baseline: None }
    }

    fn record(name: &str, median: f64) -> Record {
        let spread = Spread { median, min: -1.0, max: 1e9 };
        Record::new(Benchmark::Latency, name, "t", POINT, spread)
    }

    #[test]
    fn an_algorithm_that_is_too_slow_is_marked() {
        let runs = |chosen: [f64; 3]| {
            let names = [("openmpi", [1.0; 3]), ("samite", chosen), ("samite=a", [2.0, 4.0, 8.0])];
            names.map(|(name, medians)| medians.map(|median| record(name, median)).to_vec())
        };
        assert_eq!(
            mark(&runs([2.3, 9.0, 8.8])),
            None,
            "the medians are 8.8 and 4, and the turns differ less"
        );
        let marked = mark(&runs([3.0, 6.0, 4.0])).unwrap();
        assert!(marked.ends_with("takes 1.50 times as long as samite=a"), "{marked}");
        assert_eq!(mark(&runs([9.0; 3])[..2]), None, "there is one algorithm");
    }

    #[test]
    fn runs_take_turns_and_are_summarized() {
        let comparison = comparison(Benchmark::Latency, &["samite", "libfabric"]);
        let mut seen = Vec::new();
        let Outcome { records, failed, mark } = comparison.run_with(|implementation| {
            seen.push(implementation.name.clone());
            Ok::<_, ()>(record(&implementation.name, seen.len() as f64))
        });
        assert_eq!(seen, ["samite", "libfabric", "libfabric", "samite", "samite", "libfabric"]);
        assert_eq!(seen.len(), comparison.len());
        assert!(failed.is_empty() && mark.is_none());
        // The runs are 1, 4 and 5 against 2, 3 and 6.
        assert_eq!((records[0].median, records[0].min, records[0].max, records[0].runs), (4.0, 1.0, 5.0, 3));
        let ratio = records[0].ratio.clone().unwrap();
        assert_eq!((ratio.to.as_str(), ratio.median, ratio.min), ("libfabric", 5.0 / 6.0, 0.5));
        assert_eq!(records[1].ratio, None);
    }

    #[test]
    fn a_thread_for_progress_is_compared_with_the_same_implementation_without_it() {
        let names = ["samite", "samite+progress", "mpich-5", "mpich-5+progress"];
        let Outcome { records, .. } = comparison(Benchmark::Latency, &names).run_with(|implementation| {
            let name = implementation.name.as_str();
            let median = if name.ends_with(WITH_PROGRESS) { 3.0 } else { 2.0 };
            Ok::<_, ()>(record(name, if name.starts_with("mpich") { 2.0 * median } else { median }))
        });
        let ratios: Vec<_> = records
            .iter()
            .map(|record| record.ratio.as_ref().map(|ratio| (&*ratio.to, ratio.median)))
            .collect();
        assert_eq!(ratios, [None, Some(("samite", 1.5)), None, Some(("mpich-5", 1.5))]);
    }

    #[test]
    fn the_best_of_the_others_is_the_baseline() {
        let best = |benchmark, baseline: Option<&str>| {
            let mut comparison = comparison(benchmark, &["samite", "a", "b", "broken"]);
            comparison.baseline = baseline.map(str::to_owned);
            let Outcome { records, failed, .. } =
                comparison.run_with(|implementation| match implementation.name.as_str() {
                    "samite" => Ok(record("samite", 4.0)),
                    "a" => Ok(record("a", 2.0)),
                    "b" => Ok(record("b", 8.0)),
                    _ => Err("broken"),
                });
            assert_eq!((records.len(), failed), (3, vec!["broken"]));
            let ratio = records[0].ratio.clone().unwrap();
            (ratio.to, ratio.median)
        };
        assert_eq!(best(Benchmark::Latency, None), ("a".to_owned(), 2.0));
        assert_eq!(best(Benchmark::Rate, None), ("b".to_owned(), 0.5));
        assert_eq!(best(Benchmark::Rate, Some("a")), ("a".to_owned(), 2.0));
    }
}
