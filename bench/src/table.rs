//! Figures for people.

use std::fmt;

use crate::record::Record;

/// Records as lines of a table.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    record: &'a Record,
    /// The median, divided by the baseline's.
    ratio: Option<f64>,
}

/// The line above the rows.
pub(crate) fn header(ratio: bool) -> String {
    line(["transport", "bytes", "depth", "implementation", "median", "min", "max"].map(str::to_owned), {
        if ratio { "ratio" } else { "" }
    })
}

impl<'a> Row<'a> {
    /// The row of `record`, among others of the same point of which one may be the baseline.
    pub(crate) fn new(record: &'a Record, baseline: Option<&Record>) -> Self {
        Self { record, ratio: baseline.map(|baseline| record.median / baseline.median) }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { transport, bytes, depth, implementation, median, min, max, .. } = self.record;
        let count = |count: &Option<usize>| count.map_or(String::new(), |count| count.to_string());
        let [median, min, max] = [median, min, max].map(|&figure| short(figure));
        let columns =
            [transport.clone(), count(bytes), count(depth), implementation.clone(), median, min, max];
        f.write_str(&line(columns, &self.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))))
    }
}

fn line([transport, bytes, depth, implementation, median, min, max]: [String; 7], ratio: &str) -> String {
    let line = format!(
        "{transport:<12} {bytes:>10} {depth:>6}  {implementation:<16} {median:>11} {min:>11} {max:>11} {ratio:>6}"
    );
    line.trim_end().to_owned()
}

/// Three digits that matter, or all before the point.
fn short(figure: f64) -> String {
    let decimals = if figure >= 100.0 {
        0
    } else if figure >= 10.0 {
        1
    } else if figure >= 1.0 {
        2
    } else {
        3
    };
    format!("{figure:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::{Benchmark, Point};
    use crate::spread::Spread;

    #[test]
    fn columns_line_up() {
        let record = |name, median| {
            let spread = Spread { median, min: 0.1234, max: 12_345.6 };
            Record::new(Benchmark::Latency, name, "tcp;ofi_rxm", Point { bytes: 8, depth: None }, spread)
        };
        let (ours, theirs) = (record("samite", 4.2), record("libfabric", 4.0));
        let table =
            [header(true), Row::new(&ours, Some(&theirs)).to_string(), Row::new(&theirs, None).to_string()];
        assert_eq!(
            table,
            [
                "transport         bytes  depth  implementation        median         min         max  ratio",
                "tcp;ofi_rxm           8         samite                  4.20       0.123       12346   1.05",
                "tcp;ofi_rxm           8         libfabric               4.00       0.123       12346",
            ]
        );
    }
}
