//! Several implementations, measured in turns.
//!
//! The speed of a machine changes with its clock and its other load. So each run of a point measures every
//! implementation once, one after the other, and the next run begins with another implementation. Ratios compare the
//! medians of these interleaved runs.

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

    /// Runs all implementations at one point, and calls `progress` after each run. Returns the records in the order of
    /// the implementations, without the implementations that failed, and the errors of those.
    pub(crate) fn run(&self, point: Point, mut progress: impl FnMut()) -> (Vec<Record>, Vec<RunError>) {
        self.run_with(|implementation| {
            let record = implementation.run(self.benchmark, point, self.pin);
            progress();
            record
        })
    }

    fn run_with<E>(
        &self,
        mut run: impl FnMut(&Implementation) -> Result<Record, E>,
    ) -> (Vec<Record>, Vec<E>) {
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
        let whole = |runs: &Vec<Record>| runs.len() == self.runs;
        (self.summarize(runs.into_iter().filter(whole).collect()), failed.into_iter().flatten().collect())
    }

    /// Summarizes the runs of each implementation in one record, and adds the ratios to the baseline.
    fn summarize(&self, runs: Vec<Vec<Record>>) -> Vec<Record> {
        let medians = |runs: &Vec<Record>| runs.iter().map(|record| record.median).collect::<Vec<_>>();
        let mut records: Vec<Record> = runs.iter().filter_map(|runs| summary(runs)).collect();
        for place in 0..records.len() {
            let Some(baseline) = self.baseline(&records, place).filter(|&baseline| baseline != place) else {
                continue;
            };
            let to = medians(&runs[baseline]);
            let quotients =
                medians(&runs[place]).iter().zip(&to).map(|(ours, theirs)| ours / theirs).collect();
            records[place].ratio = Spread::of(quotients).map(|Spread { median, min, max }| {
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

/// Returns a remark if the algorithm that Samite has chosen for a collective operation takes longer than [`MARKED`]
/// times the fastest of its algorithms.
pub(crate) fn mark(records: &[Record]) -> Option<String> {
    let chosen = records.iter().find(|record| record.implementation == "samite")?;
    let selected = records.iter().filter(|record| record.implementation.starts_with("samite="));
    let best = selected.min_by(|a, b| a.median.total_cmp(&b.median))?;
    let quotient = chosen.median / best.median;
    let Record { bench, transport, ranks, bytes, .. } = chosen;
    let bytes = bytes.unwrap_or(0);
    (quotient > MARKED).then(|| {
        format!(
            "{bench} over {transport}, {ranks} ranks, {bytes} bytes: the chosen algorithm takes {quotient:.2} times as \
             long as {}",
            best.implementation
        )
    })
}

/// See [`mark`].
const MARKED: f64 = 1.2;

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
        let records = |chosen| {
            [("openmpi", 1.0), ("samite", chosen), ("samite=a", 2.0), ("samite=b", 3.0)]
                .map(|(name, median)| record(name, median))
        };
        assert_eq!(mark(&records(2.3)), None);
        let marked = mark(&records(3.0)).unwrap();
        assert!(marked.ends_with("takes 1.50 times as long as samite=a"), "{marked}");
        assert_eq!(mark(&records(9.0)[..2]), None, "there is one algorithm");
    }

    #[test]
    fn runs_take_turns_and_are_summarized() {
        let comparison = comparison(Benchmark::Latency, &["samite", "libfabric"]);
        let mut seen = Vec::new();
        let (records, failed) = comparison.run_with(|implementation| {
            seen.push(implementation.name.clone());
            Ok::<_, ()>(record(&implementation.name, seen.len() as f64))
        });
        assert_eq!(seen, ["samite", "libfabric", "libfabric", "samite", "samite", "libfabric"]);
        assert_eq!(seen.len(), comparison.len());
        assert!(failed.is_empty());
        // The runs are 1, 4 and 5 against 2, 3 and 6.
        assert_eq!((records[0].median, records[0].min, records[0].max, records[0].runs), (4.0, 1.0, 5.0, 3));
        let ratio = records[0].ratio.clone().unwrap();
        assert_eq!((ratio.to.as_str(), ratio.median, ratio.min), ("libfabric", 5.0 / 6.0, 0.5));
        assert_eq!(records[1].ratio, None);
    }

    #[test]
    fn a_thread_for_progress_is_compared_with_the_same_implementation_without_it() {
        let names = ["samite", "samite+progress", "mpich-5", "mpich-5+progress"];
        let (records, _) = comparison(Benchmark::Latency, &names).run_with(|implementation| {
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
            let (records, failed) =
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
