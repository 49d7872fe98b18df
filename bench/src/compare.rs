//! Several implementations, measured in turns.
//!
//! Machines drift: clocks change, neighbours come and go. So no implementation is measured all at once: each
//! run of a point goes through all of them, beginning with another one each time, and ratios are of medians
//! gathered so.

use crate::benchmark::Point;
use crate::implementation::{Implementation, RunError};
use crate::record::Record;
use crate::spread::Spread;

/// What to compare, over one transport.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Its points.
    pub(crate) points: Vec<Point>,
    /// Who takes part.
    pub(crate) implementations: Vec<Implementation>,
    /// Runs of each implementation at each point: at least 1.
    pub(crate) runs: usize,
    /// Whether ranks are bound to cores.
    pub(crate) pin: bool,
}

/// One run that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    point: usize,
    implementation: usize,
}

impl Comparison {
    /// How many runs it takes.
    pub(crate) fn len(&self) -> usize {
        self.points.len() * self.implementations.len() * self.runs
    }

    /// Runs all, calling `progress` after each; gives the records of each point, in the order of the
    /// implementations.
    ///
    /// # Errors
    /// [`RunError`] of the first run that failed.
    pub(crate) fn run(&self, mut progress: impl FnMut()) -> Result<Vec<Vec<Record>>, RunError> {
        self.run_with(|implementation, point| {
            let record = implementation.run(point, self.pin);
            progress();
            record
        })
    }

    fn run_with<E>(
        &self,
        mut run: impl FnMut(&Implementation, Point) -> Result<Record, E>,
    ) -> Result<Vec<Vec<Record>>, E> {
        let mut runs = vec![vec![Vec::new(); self.implementations.len()]; self.points.len()];
        for Turn { point, implementation } in self.turns() {
            let record = run(&self.implementations[implementation], self.points[point])?;
            runs[point][implementation].push(record);
        }
        let of_point = |runs: Vec<Vec<Record>>| runs.into_iter().filter_map(summary).collect();
        Ok(runs.into_iter().map(of_point).collect())
    }

    fn turns(&self) -> impl Iterator<Item = Turn> + '_ {
        let count = self.implementations.len();
        (0..self.runs).flat_map(move |run| {
            (0..self.points.len()).flat_map(move |point| {
                (0..count).map(move |place| Turn { point, implementation: (run + place) % count })
            })
        })
    }
}

/// The runs of one implementation at one point as one record.
fn summary(runs: Vec<Record>) -> Option<Record> {
    let spread = Spread::of(runs.iter().map(|record| record.median).collect())?;
    let count = runs.len();
    let Spread { median, min, max } = spread;
    Some(Record { median, min, max, runs: count, ..runs.into_iter().next()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Benchmark;

    #[test]
    fn runs_take_turns_and_their_medians_are_summarized() {
        let comparison = Comparison {
            points: Benchmark::Latency.points(&[1, 2], &[]),
            implementations: ["samite", "libfabric"].map(|name| Implementation::new(name, "true", [])).into(),
            runs: 3,
            pin: false,
        };
        let mut seen = Vec::new();
        let records = comparison
            .run_with(|implementation, point| {
                let median = seen.len() as f64;
                seen.push((implementation.name.clone(), point.bytes));
                let spread = Spread { median, min: -1.0, max: 1e9 };
                Ok::<_, ()>(Record::new(Benchmark::Latency, &implementation.name, "t", point, spread))
            })
            .unwrap();
        assert_eq!(seen.len(), comparison.len());
        let names: Vec<_> = seen.iter().map(|(name, bytes)| (&name[..3], *bytes)).collect();
        let (sam, lib) = ("sam", "lib");
        assert_eq!(names[..4], [(sam, 1), (lib, 1), (sam, 2), (lib, 2)]);
        assert_eq!(names[4..8], [(lib, 1), (sam, 1), (lib, 2), (sam, 2)]);
        assert_eq!(names[8..], names[..4]);
        let first = &records[0][0];
        assert_eq!((first.median, first.min, first.max, first.runs), (5.0, 0.0, 8.0, 3));
        assert_eq!((records[1][1].bytes, records[1][1].implementation.as_str()), (Some(2), "libfabric"));
    }
}
