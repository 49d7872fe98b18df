//! The activity of a job's ranks, as `samite run --stats` reports it at the end: a table, JSON, or a page with a
//! plot of the traffic between ranks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use samite_control::PeerStats;
use serde::Serialize;

use super::observe::{RankView, Snapshot};

/// The traffic between pairs of ranks. Both ranks of a pair report it. If one of them was killed, only the other does.
#[derive(Debug, Default)]
pub(super) struct Matrix(BTreeMap<(u32, u32), Flow>);

/// The traffic from one rank to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Flow {
    messages: u64,
    bytes: u64,
}

impl Matrix {
    /// Adds a rank's report of its traffic with other ranks.
    pub(super) fn add(&mut self, rank: u32, peers: &[PeerStats]) {
        for peer in peers {
            self.note(rank, peer.rank, Flow { messages: peer.sent(), bytes: peer.bytes_sent });
            self.note(peer.rank, rank, Flow { messages: peer.received(), bytes: peer.bytes_received });
        }
    }

    fn note(&mut self, from: u32, to: u32, flow: Flow) {
        if flow.messages > 0 {
            let known = self.0.entry((from, to)).or_default();
            known.messages = known.messages.max(flow.messages);
            known.bytes = known.bytes.max(flow.bytes);
        }
    }
}

/// The activity of a job.
pub(super) struct Profile<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) matrix: &'a Matrix,
}

impl Profile<'_> {
    /// Writes the profile to a file: as a page if the file's name ends in `.html`, otherwise as JSON.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let is_page = file.extension().is_some_and(|extension| extension == "html");
        std::fs::write(file, if is_page { self.to_html() } else { self.to_json() })
    }

    pub(super) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Entry {
            from: u32,
            to: u32,
            #[serde(flatten)]
            flow: Flow,
        }
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            snapshot: &'a Snapshot,
            traffic: Vec<Entry>,
        }
        let traffic = self.matrix.0.iter().map(|(&(from, to), &flow)| Entry { from, to, flow });
        let whole = Whole { snapshot: self.snapshot, traffic: traffic.collect() };
        serde_json::json!(whole).to_string() + "\n"
    }

    /// Returns a line for each rank, in columns.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{:>5}", "rank");
        for (head, width, _) in COLUMNS {
            let _ = write!(text, " {head:>width$}");
        }
        text.push('\n');
        for view in &self.snapshot.ranks {
            let _ = write!(text, "{:>5}", view.rank);
            for (_, width, value) in COLUMNS {
                let cell = view.figures.as_ref().map_or_else(|| "-".to_owned(), value);
                let _ = write!(text, " {cell:>width$}");
            }
            text += &remark(view).map_or_else(String::new, |remark| format!("  {remark}"));
            text.push('\n');
        }
        text
    }

    fn to_html(&self) -> String {
        let mut html = String::from(HEAD);
        let Snapshot { job, program, age_ms, ranks, .. } = self.snapshot;
        let seconds = *age_ms as f64 / 1e3;
        let _ = writeln!(
            html,
            "<p>Job {job}, <code>{}</code>: {} ranks, {seconds:.3} s</p>",
            escape(program),
            ranks.len()
        );
        html += "<h2>By rank</h2>\n<table><tr><th>rank";
        for (head, ..) in COLUMNS {
            let _ = write!(html, "<th>{head}");
        }
        html += "</tr>\n";
        for view in ranks {
            let _ = write!(html, "<tr><td>{}", view.rank);
            for (_, _, value) in COLUMNS {
                let _ = write!(html, "<td>{}", view.figures.as_ref().map_or_else(|| "-".to_owned(), value));
            }
            if let Some(remark) = remark(view) {
                let _ = write!(html, "<td>{}", escape(&remark));
            }
            html += "</tr>\n";
        }
        html += "</table>\n<h2>Traffic between ranks</h2>\n";
        html += &self.picture();
        html + "</body></html>\n"
    }

    /// Returns the matrix as a picture in SVG, with a row for each sender and a column for each receiver. Cells with
    /// more bytes are darker, on a logarithmic scale. If there are more than [`CELLS_MAX`] ranks, a row or a column
    /// stands for several ranks.
    fn picture(&self) -> String {
        let ranks = self.snapshot.ranks.len() as u32;
        let share = ranks.div_ceil(CELLS_MAX).max(1);
        let cells = ranks.div_ceil(share);
        let mut sums: BTreeMap<(u32, u32), Flow> = BTreeMap::new();
        for (&(from, to), flow) in &self.matrix.0 {
            let sum = sums.entry((from / share, to / share)).or_default();
            sum.messages += flow.messages;
            sum.bytes = sum.bytes.saturating_add(flow.bytes);
        }
        let weight = |bytes: u64| ((bytes + 1) as f64).log2();
        let heaviest = sums.values().map(|flow| weight(flow.bytes)).fold(1.0, f64::max);
        let side = (SIDE / cells.max(1)).clamp(4, 40);
        let (margin, extent) = (40, side * cells);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{0}\" font-size=\"11\" \
             font-family=\"sans-serif\">\n",
            margin + extent + 1
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{margin}\" y=\"{margin}\" width=\"{extent}\" height=\"{extent}\" fill=\"none\" stroke=\"#999\"/>"
        );
        for (&(from, to), flow) in &sums {
            let (x, y) = (margin + to * side, margin + from * side);
            let light = 90.0 - 65.0 * weight(flow.bytes) / heaviest;
            let names = |cell: u32| match share {
                1 => format!("rank {cell}"),
                _ => format!("ranks {} to {}", cell * share, ((cell + 1) * share).min(ranks) - 1),
            };
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"hsl(215,70%,{light:.0}%)\">\
                 <title>{} to {}: {} messages, {} bytes</title></rect>",
                names(from),
                names(to),
                flow.messages,
                flow.bytes
            );
        }
        // Label as many cells as there is room for.
        for cell in (0..cells).step_by(24_u32.div_ceil(side) as usize) {
            let (middle, label) = (margin + cell * side + side / 2, cell * share);
            let _ = writeln!(
                svg,
                "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
                margin - 6,
                margin - 6,
                middle + 4
            );
        }
        svg + "</svg>\n<p>Senders down, receivers across; the darker the more bytes, on a logarithmic scale.</p>\n"
    }
}

type Column = (&'static str, usize, fn(&samite_control::Figures) -> String);

/// The columns for each rank: head, width, value.
const COLUMNS: [Column; 7] = [
    ("sent", 10, |figures| figures.sent.to_string()),
    ("bytes sent", 14, |figures| figures.bytes_sent.to_string()),
    ("received", 10, |figures| figures.received.to_string()),
    ("bytes received", 14, |figures| figures.bytes_received.to_string()),
    ("unexpected", 10, |figures| figures.unexpected.to_string()),
    ("longest queue", 13, |figures| figures.unexpected_max.to_string()),
    ("waited s", 9, |figures| format!("{:.3}", figures.waited_ns as f64 / 1e9)),
];

/// Returns a remark about a rank's figures, if they are missing, or were reported before the rank failed.
fn remark(view: &RankView) -> Option<String> {
    use samite_control::Ending;
    let seconds = view.figures_age_ms as f64 / 1e3;
    match (&view.ending, &view.figures) {
        (Some(Ending::Left) | None, Some(_)) => None,
        (Some(ending), Some(_)) => Some(format!("{seconds:.1} s before it {ending}")),
        (Some(Ending::Left) | None, None) => Some("told nothing".to_owned()),
        (Some(ending), None) => Some(format!("sent no figures before it {ending}")),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Largest number of rows and of columns of the picture.
const CELLS_MAX: u32 = 128;

/// The width of the picture in pixels, unless the limits for the size of a cell change it.
const SIDE: u32 = 640;

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>What the ranks did</title>
<style>
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; }
table { border-collapse: collapse; font-size: 85%; }
th, td { padding: 0.1em 0.6em; border-bottom: 1px solid #ccc; text-align: right; }
code { font-size: 85%; overflow-wrap: anywhere; }
</style></head><body>
<h1>What the ranks did</h1>
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use samite_control::Figures;
    use samite_control::{Ending, JobId};

    fn snapshot(ranks: u32) -> Snapshot {
        let view = |rank| RankView {
            rank,
            host: None,
            incarnation: 1,
            is_stopped: false,
            ending: Some(Ending::Left),
            figures: Some(Figures { sent: u64::from(rank) + 10, ..Figures::default() }),
            is_answer: false,
            figures_age_ms: 0,
        };
        let program = "ring <1>".to_owned();
        let ranks = (0..ranks).map(view).collect();
        Snapshot { job: JobId(7), pid: 1, program, transport: None, age_ms: 1500, ranks }
    }

    fn ring(ranks: u32) -> Matrix {
        let mut matrix = Matrix::default();
        for rank in 0..ranks {
            let to =
                PeerStats { rank: (rank + 1) % ranks, eager_sent: 2, bytes_sent: 64, ..PeerStats::default() };
            matrix.add(rank, &[to]);
        }
        matrix
    }

    #[test]
    fn one_side_of_a_pair_is_enough_for_the_matrix() {
        let mut matrix = Matrix::default();
        let received = PeerStats { rank: 1, eager_received: 3, bytes_received: 24, ..PeerStats::default() };
        matrix.add(0, &[received]);
        let sent = PeerStats { rank: 0, eager_sent: 4, bytes_sent: 32, ..PeerStats::default() };
        matrix.add(1, &[sent]);
        assert_eq!(matrix.0, BTreeMap::from([((1, 0), Flow { messages: 4, bytes: 32 })]));
    }

    #[test]
    fn the_table_marks_ranks_without_final_figures() {
        let mut snapshot = snapshot(3);
        let killed = Some(Ending::Killed { signal: 9, core: false });
        snapshot.ranks[1] =
            RankView { ending: killed.clone(), figures_age_ms: 400, ..snapshot.ranks[1].clone() };
        snapshot.ranks[2] = RankView { ending: killed, figures: None, ..snapshot.ranks[2].clone() };
        let text = Profile { snapshot: &snapshot, matrix: &Matrix::default() }.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("longest queue") && !lines[1].contains("told"), "{text}");
        assert!(lines[2].ends_with("0.4 s before it was killed by SIGKILL (signal 9)"), "{text}");
        assert!(lines[3].ends_with("sent no figures before it was killed by SIGKILL (signal 9)"), "{text}");
    }

    #[test]
    fn the_page_needs_nothing_else_and_stays_small() {
        let small = (snapshot(3), ring(3));
        let html = Profile { snapshot: &small.0, matrix: &small.1 }.to_html();
        for part in ["ring &lt;1&gt;", "<td>12", "rank 2 to rank 0: 2 messages, 64 bytes"] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
        assert!(!html.contains("href") && !html.contains("src="), "nothing is fetched");
        let large = (snapshot(4000), ring(4000));
        let svg = Profile { snapshot: &large.0, matrix: &large.1 }.picture();
        assert!(svg.contains("ranks 0 to 31 to ranks 0 to 31: 62 messages"), "{svg}");
        assert!(svg.len() < 100_000, "{}", svg.len());
    }
}
