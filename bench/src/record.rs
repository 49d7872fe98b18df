//! One figure, as a line of JSON.

use serde::{Deserialize, Serialize};

use crate::benchmark::{Benchmark, Point};
use crate::spread::Spread;

/// A figure with all its parameters. The keys of the JSON object are the names of these fields, in this order, except
/// that the key of `implementation` is `impl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The benchmark's name.
    pub(crate) bench: String,
    /// The implementation: `samite`, `samite-owned`, `samite+shm`, `libfabric`, `libfabric-owned`, or an MPI library
    /// with its version like `openmpi-4.1.4`. For figures of the matching engine, the structure.
    #[serde(rename = "impl")]
    pub(crate) implementation: String,
    /// The implementation's name of the transport: for Samite, libfabric's name of a provider, or `samite-shm`. `none`
    /// for figures of the matching engine.
    pub(crate) transport: String,
    /// The number of processes.
    pub(crate) ranks: u32,
    /// The length of a message; null if it does not apply.
    pub(crate) bytes: Option<usize>,
    /// The number of messages that waited for a receive; null if it does not apply.
    pub(crate) depth: Option<usize>,
    /// The name of the figure.
    pub(crate) metric: String,
    /// The unit of the figure.
    pub(crate) unit: String,
    /// The median of the figures of one run, or of the medians of several runs.
    pub(crate) median: f64,
    /// The minimum of these figures.
    pub(crate) min: f64,
    /// The maximum of these figures.
    pub(crate) max: f64,
    /// The number of runs, each with new processes.
    pub(crate) runs: usize,
    /// In a comparison: this figure divided by the figure of the baseline. The key is absent in all other records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<Ratio>,
}

/// The ratio of an implementation's figures to the figures of another implementation, which was measured in turns with
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratio {
    /// The name of the other implementation.
    pub(crate) to: String,
    /// The median of the quotients. Each is the quotient of two runs of the same turn.
    pub(crate) median: f64,
    /// The minimum quotient.
    pub(crate) min: f64,
    /// The maximum quotient.
    pub(crate) max: f64,
}

/// The parameters of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The benchmark's name.
    pub(crate) bench: String,
    /// The number of cores available to the ranks.
    pub(crate) cores: usize,
    /// Runs of each implementation at each point, interleaved.
    pub(crate) runs: usize,
    /// True if ranks were bound to cores.
    pub(crate) pinned: bool,
    /// The implementations, and the command of each for the first point.
    pub(crate) commands: Vec<Started>,
    /// Libraries that are not on the machine.
    pub(crate) absent: Vec<String>,
}

/// The command of an implementation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Started {
    #[serde(rename = "impl")]
    pub(crate) implementation: String,
    pub(crate) command: String,
}

/// A line of the output of `compare --json`, or of another measurement with `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    /// The settings, printed first for each transport.
    Settings(Settings),
    /// A figure.
    Record(Record),
}

impl Record {
    /// Returns the figure of one run.
    pub(crate) fn new(
        benchmark: Benchmark,
        implementation: &str,
        transport: &str,
        point: Point,
        spread: Spread,
    ) -> Self {
        let metric = (benchmark.metric(), benchmark.unit());
        let record = Self::of_job(benchmark.name(), implementation, transport, metric, spread);
        Self { ranks: point.ranks, bytes: Some(point.bytes), depth: point.depth, ..record }
    }

    /// Returns the figure of a job of two ranks, for a measurement that is no [`Benchmark`]. `metric` is the name and
    /// the unit of the figure.
    pub(crate) fn of_job(
        bench: &str,
        implementation: &str,
        transport: &str,
        (metric, unit): (&str, &str),
        spread: Spread,
    ) -> Self {
        Self {
            bench: bench.to_owned(),
            implementation: implementation.to_owned(),
            transport: transport.to_owned(),
            ranks: 2,
            bytes: None,
            depth: None,
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            median: spread.median,
            min: spread.min,
            max: spread.max,
            runs: 1,
            ratio: None,
        }
    }

    /// Returns the record as a line of JSON, without a line end.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers can be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_what_readers_expect() {
        let point = Point { ranks: 2, bytes: 8, depth: None };
        let spread = Spread { median: 4.1, min: 4.0, max: 5.25 };
        let record = Record::new(Benchmark::Latency, "samite", "tcp;ofi_rxm", point, spread);
        let json = record.to_json();
        assert_eq!(
            json,
            r#"{"bench":"latency","impl":"samite","transport":"tcp;ofi_rxm","ranks":2,"bytes":8,"depth":null,"metric":"latency_us","unit":"us","median":4.1,"min":4.0,"max":5.25,"runs":1}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
        assert!(serde_json::from_str::<Record>(&json.replace("runs", "rums")).is_err());
    }
}
