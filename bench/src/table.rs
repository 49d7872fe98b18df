//! Tables of figures for terminals.

use std::fmt;

use crate::record::{Ratio, Record};

/// A record as a row of a table.
#[derive(Debug)]
pub(crate) struct Row<'a>(pub(crate) &'a Record);

/// Returns the header of the table.
pub(crate) fn header(ratio: bool) -> String {
    let ratio = if ratio { "ratio   min   max  to" } else { "" };
    line(
        ["transport", "ranks", "bytes", "depth", "implementation", "median", "min", "max"].map(str::to_owned),
        ratio,
    )
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { transport, ranks, bytes, depth, implementation, median, min, max, ratio, .. } = self.0;
        let count = |count: &Option<usize>| count.map_or(String::new(), |count| count.to_string());
        let [median, min, max] = [median, min, max].map(|&figure| short(figure));
        let columns = [
            transport.clone(),
            ranks.to_string(),
            count(bytes),
            count(depth),
            implementation.clone(),
            median,
            min,
            max,
        ];
        let ratio = ratio.as_ref().map_or(String::new(), |Ratio { to, median, min, max }| {
            format!("{median:>5.2} {min:>5.2} {max:>5.2}  {to}")
        });
        f.write_str(&line(columns, &ratio))
    }
}

fn line(columns: [String; 8], ratio: &str) -> String {
    let [transport, ranks, bytes, depth, implementation, median, min, max] = columns;
    let line = format!(
        "{transport:<12} {ranks:>5} {bytes:>8} {depth:>6}  {implementation:<27} \
         {median:>10} {min:>10} {max:>10}  {ratio}"
    );
    line.trim_end().to_owned()
}

/// Formats a figure with three digits, or with all digits before the decimal point if they are more. A figure below 1
/// has three decimals.
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
            let point = Point { ranks: 2, bytes: 8, depth: None };
            let spread = Spread { median, min: 0.1234, max: 12_345.6 };
            Record::new(Benchmark::Latency, name, "tcp;ofi_rxm", point, spread)
        };
        let mut ours = record("samite", 4.2);
        ours.ratio = Some(Ratio { to: "libfabric".into(), median: 1.05, min: 1.0, max: 12.0 });
        let table = [header(true), Row(&ours).to_string(), Row(&record("libfabric", 4.0)).to_string()];
        assert_eq!(
            table,
            [
                "transport    ranks    bytes  depth  implementation                  median        min        max  ratio   min   max  to",
                "tcp;ofi_rxm      2        8         samite                            4.20      0.123      12346   1.05  1.00 12.00  libfabric",
                "tcp;ofi_rxm      2        8         libfabric                         4.00      0.123      12346",
            ]
        );
    }
}
