//! Plots of speeds.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// The times of one structure, by size.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// Ranks, and nanoseconds per match.
    pub(super) points: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 5] = [
    RGBColor(120, 120, 120),
    RGBColor(31, 119, 180),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(214, 39, 40),
];

/// Draws curves on logarithmic axes into an SVG file named after the figure and the workload.
///
/// # Errors
/// The file could not be written.
pub(super) fn draw(
    directory: &Path,
    figure: &str,
    workload: &str,
    curves: &[Curve],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    std::fs::create_dir_all(directory)?;
    let file = format!("{figure} {workload}.svg").replace([' ', '/'], "-");
    let path = directory.join(file);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (ranks, ns) = (range(|point| point.0), range(|point| point.1));
    let area = SVGBackend::new(&path, (720, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{figure}: {workload}"), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((ranks.0..ranks.1).log_scale(), (ns.0 * 0.8..ns.1 * 1.25).log_scale())?;
    chart.configure_mesh().x_desc("ranks").y_desc("ns a match").draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let line =
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))?;
        line.label(curve.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
