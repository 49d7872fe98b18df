//! One figure, as a line of JSON.

use serde::{Deserialize, Serialize};

use crate::benchmark::{Benchmark, Point};
use crate::spread::Spread;

/// A figure and all that is needed to know what it says. The keys of the JSON object are these, in this
/// order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The benchmark's name.
    pub(crate) bench: String,
    /// `samite`, `libfabric`, or a peer with its version like `openmpi-4.1.4`.
    #[serde(rename = "impl")]
    pub(crate) implementation: String,
    /// What carried the bytes; providers under their own names, our shared memory as `samite-shm`.
    pub(crate) transport: String,
    /// Processes that took part.
    pub(crate) ranks: u32,
    /// The length of a message; null where it has no meaning.
    pub(crate) bytes: Option<usize>,
    /// Messages that waited to be received; null where it has no meaning.
    pub(crate) depth: Option<usize>,
    /// What the figure is.
    pub(crate) metric: String,
    /// Its unit.
    pub(crate) unit: String,
    /// The median: of the batches of one run, or of the medians of several runs.
    pub(crate) median: f64,
    /// The smallest of them.
    pub(crate) min: f64,
    /// The largest of them.
    pub(crate) max: f64,
    /// Runs, each with processes of its own.
    pub(crate) runs: usize,
    /// In a comparison: this figure divided by that of the implementation that all are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<Ratio>,
}

/// How the runs of one implementation stand to those of another that were made in turn with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratio {
    /// The other's name.
    pub(crate) to: String,
    /// The median of the quotients, each of two runs of one turn.
    pub(crate) median: f64,
    /// The smallest of them.
    pub(crate) min: f64,
    /// The largest of them.
    pub(crate) max: f64,
}

/// What a comparison was run with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The benchmark's name.
    pub(crate) bench: String,
    /// Cores that the ranks could run on.
    pub(crate) cores: usize,
    /// Runs of each implementation at each point, in turns.
    pub(crate) runs: usize,
    /// Whether ranks were bound to cores.
    pub(crate) pinned: bool,
    /// Who took part, and how each was started for the first point.
    pub(crate) commands: Vec<Started>,
    /// Libraries that were looked for, and are not on the machine.
    pub(crate) absent: Vec<String>,
}

/// How an implementation was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Started {
    #[serde(rename = "impl")]
    pub(crate) implementation: String,
    pub(crate) command: String,
}

/// A line of what `compare --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    /// First, for each transport.
    Settings(Settings),
    /// A figure.
    Record(Record),
}

impl Record {
    /// The figure of one run.
    pub(crate) fn new(
        benchmark: Benchmark,
        implementation: &str,
        transport: &str,
        point: Point,
        spread: Spread,
    ) -> Self {
        Self {
            bench: benchmark.name().to_owned(),
            implementation: implementation.to_owned(),
            transport: transport.to_owned(),
            ranks: point.ranks,
            bytes: Some(point.bytes),
            depth: point.depth,
            metric: benchmark.metric().to_owned(),
            unit: benchmark.unit().to_owned(),
            median: spread.median,
            min: spread.min,
            max: spread.max,
            runs: 1,
            ratio: None,
        }
    }

    /// As a line of JSON, without its end.
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
