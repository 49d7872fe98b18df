//! The figures of comparisons as a self-contained HTML page: tables, and plots as SVG.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::record::{Line, Ratio, Record, Settings};
use crate::table;

/// Reads the output of `compare --json`.
///
/// # Errors
/// The file cannot be read, or a line is invalid.
pub(crate) fn read(figures: &Path) -> Result<Vec<Line>, Box<dyn Error + Send + Sync>> {
    let text = std::fs::read_to_string(figures).map_err(|error| format!("{}: {error}", figures.display()))?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = serde_json::from_str(line)
            .map_err(|_| format!("{}:{number}: not a line of `compare --json`", figures.display()))?;
        lines.push(line);
    }
    Ok(lines)
}

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(lines: &[Line], page: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    std::fs::write(page, render(lines)?).map_err(|error| format!("{}: {error}", page.display()))?;
    Ok(())
}

/// Returns the figures in the text format of `compare`: a table for each benchmark, in input order.
pub(crate) fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut bench = "";
    for line in lines {
        let Line::Record(record) = line else { continue };
        if record.bench != bench {
            bench = &record.bench;
            text += &format!("{bench}, {} ({})\n{}\n", record.metric, record.unit, table::header(true));
        }
        text += &format!("{}\n", table::Row(record));
    }
    text
}

/// The figures of one plot: all figures of one benchmark over one transport.
type Group<'a> = Vec<&'a Record>;

fn render(lines: &[Line]) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut html = String::from(HEAD);
    let mut settings = Vec::new();
    // Records are grouped by the benchmark and by Samite's name of the transport. A peer may have another name for the
    // transport, so each record takes the name from the nearest record of Samite before it.
    let mut groups: BTreeMap<(&str, String), Group<'_>> = BTreeMap::new();
    let mut transport = String::new();
    for line in lines {
        match line {
            Line::Settings(found) => settings.push(found),
            Line::Record(record) => {
                if record.implementation.starts_with("samite") || transport.is_empty() {
                    transport.clone_from(&record.transport);
                }
                groups.entry((&record.bench, transport.clone())).or_default().push(record);
            }
        }
    }
    for ((bench, transport), records) in &groups {
        let unit = &records[0].unit;
        writeln!(html, "<h2>{}, {} ({})</h2>", escape(bench), escape(transport), escape(unit))?;
        html.push_str(&plot(records)?);
        table(&mut html, records)?;
    }
    html.push_str("<h2>Settings</h2>\n");
    settings.iter().try_for_each(|settings| list(&mut html, settings))?;
    html.push_str("</body></html>\n");
    Ok(html)
}

/// Returns a plot with a line for each implementation. The horizontal axis is the first of depth, length and number of
/// ranks that varies; if none varies, the result is empty. The axes are logarithmic, except the vertical axis of
/// figures that are not all positive.
fn plot(records: &[&Record]) -> Result<String, Box<dyn Error + Send + Sync>> {
    type Axis = (&'static str, fn(&Record) -> f64);
    let axes: [Axis; 3] = [
        ("messages waiting", |record| record.depth.unwrap_or(0) as f64),
        ("bytes", |record| record.bytes.unwrap_or(0) as f64),
        ("ranks", |record| f64::from(record.ranks)),
    ];
    let varies = |axis: &Axis| records.iter().any(|record| axis.1(record) != axis.1(records[0]));
    let Some((label, x)) = axes.into_iter().find(varies) else {
        return Ok(String::new());
    };
    let mut curves: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for record in records {
        curves.entry(&record.implementation).or_default().push((x(record).max(1.0), record.median));
    }
    let points = || curves.values().flatten();
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (across, up) = (range(|point| point.0), range(|point| point.1));

    let names = (label, records[0].unit.as_str());
    let mut svg = String::new();
    if up.0 > 0.0 {
        draw(&mut svg, curves, names, across, (up.0 * 0.8..up.1 * 1.25).log_scale())?;
    } else {
        let margin = 0.05 * (up.1 - up.0).max(1.0);
        draw(&mut svg, curves, names, across, up.0 - margin..up.1 + margin)?;
    }
    Ok(svg)
}

/// Draws curves into `svg`. `names` are the names of the horizontal and of the vertical axis.
fn draw<Y>(
    svg: &mut String,
    curves: BTreeMap<&str, Vec<(f64, f64)>>,
    names: (&str, &str),
    across: (f64, f64),
    up: Y,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((across.0..across.1 * 1.01).log_scale(), up)?;
    chart.configure_mesh().x_desc(names.0).y_desc(names.1).draw()?;
    for (place, (name, curve)) in curves.into_iter().enumerate() {
        let colour = Palette99::pick(place).to_rgba();
        let style = colour.stroke_width(if name.starts_with("samite") { 4 } else { 2 });
        chart
            .draw_series(LineSeries::new(curve, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

fn table(html: &mut String, records: &[&Record]) -> std::fmt::Result {
    html.push_str("<table><tr><th>ranks<th>bytes<th>depth<th>implementation<th>over<th>median<th>min<th>max<th>ratio<th>min<th>max<th>to</tr>\n");
    for record in records {
        let count = |count: Option<usize>| count.map_or(String::new(), |count| count.to_string());
        let (bytes, depth) = (count(record.bytes), count(record.depth));
        let (name, over) = (escape(&record.implementation), escape(&record.transport));
        let Record { ranks, median, min, max, .. } = record;
        write!(html, "<tr><td>{ranks}<td>{bytes}<td>{depth}<td>{name}<td>{over}")?;
        write!(html, "<td>{median:.3}<td>{min:.3}<td>{max:.3}")?;
        if let Some(Ratio { to, median, min, max }) = &record.ratio {
            write!(html, "<td>{median:.2}<td>{min:.2}<td>{max:.2}<td>{}", escape(to))?;
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    Ok(())
}

fn list(html: &mut String, settings: &Settings) -> std::fmt::Result {
    let Settings { bench, cores, runs, pinned, commands, absent } = settings;
    let pinned = if *pinned { "bound to cores" } else { "not bound" };
    writeln!(html, "<p>{}: {runs} runs in turns on {cores} cores, ranks {pinned}", escape(bench))?;
    if !absent.is_empty() {
        writeln!(html, "; not on the machine: {}", escape(&absent.join(", ")))?;
    }
    html.push_str("</p><ul>\n");
    for started in commands {
        writeln!(
            html,
            "<li>{}: <code>{}</code></li>",
            escape(&started.implementation),
            escape(&started.command)
        )?;
    }
    html.push_str("</ul>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Samite and its peers</title>
<style>
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; }
table { border-collapse: collapse; font-size: 85%; }
th, td { padding: 0.1em 0.6em; border-bottom: 1px solid #ccc; text-align: right; }
code { font-size: 85%; overflow-wrap: anywhere; }
</style></head><body>
<h1>Samite and its peers</h1>
<p>Medians of runs made in turns. A ratio is the median of the quotients, each of two runs of one turn.</p>
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::{Benchmark, Point};
    use crate::record::Started;
    use crate::spread::Spread;

    fn record(name: &str, bytes: usize) -> Line {
        let spread = Spread { median: bytes as f64 / 10.0, min: 0.1, max: 9.0 };
        let point = Point { ranks: 2, bytes, depth: None };
        Line::Record(Record::new(Benchmark::Latency, name, "samite-shm", point, spread))
    }

    #[test]
    fn a_page_has_a_plot_a_table_and_the_settings_and_needs_nothing_else() {
        let settings = Settings {
            bench: "latency".into(),
            cores: 2,
            runs: 5,
            pinned: false,
            commands: vec![Started { implementation: "samite".into(), command: "run <this> & that".into() }],
            absent: vec!["mpicc.mpich".into()],
        };
        let lines =
            [Line::Settings(settings), record("samite", 8), record("openmpi-4", 8), record("samite", 1024)];
        let html = render(&lines).unwrap();
        for part in ["<svg", "openmpi-4", "<td>102.400", "run &lt;this&gt; &amp; that", "mpicc.mpich"] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
        assert!(!html.contains("href") && !html.contains("src="), "nothing is fetched");
    }

    #[test]
    fn figures_below_zero_are_plotted() {
        let hidden = |bytes, percent: f64| {
            let spread = Spread { median: percent, min: percent, max: percent };
            let record = Record::of_job("overlap", "samite", "samite-shm", ("hidden_percent", "%"), spread);
            Line::Record(Record { bytes: Some(bytes), ..record })
        };
        let html = render(&[hidden(1024, -20.0), hidden(4096, 90.0)]).unwrap();
        assert!(html.contains("<polyline") && html.contains("<td>-20.000"), "{html}");
    }

    #[test]
    fn one_point_makes_a_table_only() {
        let html = render(&[record("samite", 8)]).unwrap();
        assert!(!html.contains("<svg") && html.contains("<td>0.800"));
    }
}
