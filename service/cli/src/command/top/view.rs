//! A job between two updates: the columns shown for each rank.

use std::fmt::Write;

use samite_launch::{RankView, Snapshot};
use serde::Serialize;

/// A job with its ranks' rates.
#[derive(Debug, Serialize)]
pub(super) struct View {
    #[serde(flatten)]
    pub(super) snapshot: Snapshot,
    /// The rates of each rank, by rank; `None` if they are not known (see [`Rates::between`]).
    pub(super) rates: Vec<Option<Rates>>,
}

/// A rank's activity per second, between two updates.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) sent: f64,
    pub(super) bytes_sent: f64,
    pub(super) received: f64,
    pub(super) bytes_received: f64,
    /// Operations on windows.
    pub(super) operations: f64,
    /// The seconds for which the rank's threads have waited, per second; above 1 if several threads wait.
    pub(super) waited: f64,
}

/// A rank in a [`View`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) rank: &'a RankView,
    pub(super) rates: Option<&'a Rates>,
}

/// A number shown for each rank.
pub(super) struct Column {
    pub(super) head: &'static str,
    /// The width in plain text, in characters.
    width: usize,
    /// The column with the highest value is left out first if there is no room for all columns.
    pub(super) precedence: u8,
    /// Returns the number for a rank; `None` if it is not known.
    pub(super) value: fn(&Row<'_>) -> Option<f64>,
    format: fn(f64) -> String,
}

/// The columns before the state. Plain text leaves out the last column, the time of the wait, since the state in plain
/// text contains that time.
pub(super) const COLUMNS: [Column; 11] = [
    Column { head: "rank", width: 5, precedence: 0, value: |row| Some(row.rank.rank.into()), format: whole },
    Column { head: "sent/s", width: 8, precedence: 3, value: |row| Some(row.rates?.sent), format: short },
    Column { head: "B/s", width: 8, precedence: 4, value: |row| Some(row.rates?.bytes_sent), format: short },
    Column { head: "recv/s", width: 8, precedence: 7, value: |row| Some(row.rates?.received), format: short },
    Column {
        head: "B/s",
        width: 8,
        precedence: 8,
        value: |row| Some(row.rates?.bytes_received),
        format: short,
    },
    Column {
        head: "ops/s",
        width: 7,
        precedence: 9,
        value: |row| Some(row.rates?.operations),
        format: short,
    },
    Column {
        head: "wait%",
        width: 6,
        precedence: 2,
        value: |row| Some(row.rates?.waited * 100.0),
        format: short,
    },
    Column {
        head: "early",
        width: 7,
        precedence: 5,
        value: |row| Some(row.rank.figures.as_ref()?.unexpected_messages as f64),
        format: whole,
    },
    Column {
        head: "queued",
        width: 7,
        precedence: 6,
        value: |row| Some(row.rank.figures.as_ref()?.queued as f64),
        format: whole,
    },
    Column {
        head: "age s",
        width: 6,
        precedence: 10,
        value: |row| row.rank.figures.as_ref().map(|_| row.rank.figures_age_ms as f64 / 1e3),
        format: tenths,
    },
    Column {
        head: "for s",
        width: 6,
        precedence: 1,
        value: |row| Some(row.awaits()?.age_ns as f64 / 1e9),
        format: tenths,
    },
];

impl View {
    pub(super) fn between(before: &Snapshot, after: Snapshot) -> View {
        let rates =
            after.ranks.iter().zip(&before.ranks).map(|(after, before)| Rates::between(before, after));
        View { rates: rates.collect(), snapshot: after }
    }

    /// Returns the rows, by rank.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.snapshot.ranks.len()).filter_map(|rank| self.row(rank))
    }

    pub(super) fn row(&self, rank: usize) -> Option<Row<'_>> {
        let rates = self.rates.get(rank).and_then(Option::as_ref);
        Some(Row { rank: self.snapshot.ranks.get(rank)?, rates })
    }

    pub(super) fn to_text(&self) -> String {
        let columns = &COLUMNS[..COLUMNS.len() - 1];
        let Snapshot { job, program, age_ms, ranks, .. } = &self.snapshot;
        let seconds = *age_ms as f64 / 1e3;
        let mut text = format!("job {job}, {} ranks, {seconds:.1} s: {program}\n", ranks.len());
        let mut line = |cells: Vec<String>, state: &str| {
            let cells = cells.iter().zip(columns).map(|(cell, column)| format!("{cell:>0$}", column.width));
            let _ = writeln!(text, "{}  {state}", cells.collect::<Vec<_>>().join(" "));
        };
        line(columns.iter().map(|column| column.head.to_owned()).collect(), "state");
        for row in self.rows() {
            line(columns.iter().map(|column| column.cell(&row)).collect(), &row.state());
        }
        text
    }
}

impl Row<'_> {
    /// Returns the operation that the rank waits for. Returns `None` if the rank does not wait, or if its operation is
    /// not known: it has not answered the last request, is stopped, or has ended.
    pub(super) fn awaits(&self) -> Option<&samite_control::Awaits> {
        let is_known = self.rank.is_answer && self.rank.ending.is_none() && !self.rank.is_stopped;
        self.rank.figures.as_ref().filter(|_| is_known)?.awaits.as_ref()
    }

    /// Returns the rank's activity, or how it ended.
    pub(super) fn state(&self) -> String {
        self.awaits().map_or_else(|| self.state_without_wait(), ToString::to_string)
    }

    /// Returns the same text as [`state`](Self::state), without the duration of a wait.
    pub(super) fn brief_state(&self) -> String {
        self.awaits().map_or_else(|| self.state_without_wait(), |awaits| format!("{awaits:#}"))
    }

    fn state_without_wait(&self) -> String {
        let RankView { ending, figures, is_stopped, is_answer, .. } = self.rank;
        match (ending, figures) {
            (Some(ending), _) => return ending.to_string(),
            (None, _) if *is_stopped => "is stopped",
            (None, None) => "no report yet",
            (None, Some(_)) if !is_answer => "makes no calls",
            (None, Some(_)) => "runs",
        }
        .to_owned()
    }
}

impl Column {
    pub(super) fn cell(&self, row: &Row<'_>) -> String {
        (self.value)(row).map_or_else(|| "-".to_owned(), self.format)
    }
}

impl Rates {
    /// Returns the rates between two updates. Returns `None` if the rank has no figures in one of them, reported
    /// nothing new, or was restarted between them.
    fn between(before: &RankView, after: &RankView) -> Option<Rates> {
        let (old, new) = (before.figures.as_ref()?, after.figures.as_ref()?);
        let seconds = new.age_ns.checked_sub(old.age_ns).filter(|&time| time > 0)? as f64 / 1e9;
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        (before.incarnation == after.incarnation).then(|| Rates {
            sent: rate(old.sent, new.sent),
            bytes_sent: rate(old.bytes_sent, new.bytes_sent),
            received: rate(old.received, new.received),
            bytes_received: rate(old.bytes_received, new.bytes_received),
            operations: rate(old.operations, new.operations),
            waited: rate(old.waited_ns, new.waited_ns) / 1e9,
        })
    }
}

/// Formats a number in three or four digits, with a suffix for powers of 1,000.
pub(super) fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut value = value;
    for unit in units {
        if value < 999.5 {
            return if value < 9.95 && value != 0.0 {
                format!("{value:.1}{unit}")
            } else {
                format!("{value:.0}{unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a job on two hosts: rank 0 waits for rank 1, which waits for rank 2, which computes; rank 3 is stopped,
    /// and rank 4 was killed.
    pub(in super::super) fn view() -> View {
        let figures = |scale: u64, rate: u64, awaits: Value| {
            json!({
                "age_ns": scale * 1_000_000_000, "sent": scale * rate, "bytes_sent": scale * rate * 8192,
                "received": scale * 5, "bytes_received": 0, "operations": scale * 3, "unexpected": 0, "unexpected_messages": scale,
                "unexpected_max": 7, "requests": 1, "queued": 0, "waited_ns": scale * 310_000_000, "awaits": awaits,
            })
        };
        let awaits = |peer, age_ns: u64| {
            json!({
                "is_send": false, "peer": peer, "tag": 7, "bytes": 8192, "age_ns": age_ns, "awaited": "message",
            })
        };
        let rank = |rank: u32, figures: Value, is_answer: bool| {
            let host = if rank < 3 { "north" } else { "south" };
            json!({
                "rank": rank, "host": host, "incarnation": 1, "is_stopped": rank == 3, "ending": null,
                "figures": figures, "is_answer": is_answer, "figures_age_ms": if is_answer { 0 } else { 2200 },
            })
        };
        let job = |scale: u64| -> Snapshot {
            let mut ranks = [
                rank(0, figures(scale, 12_000, awaits(1, 400_000_000)), true),
                rank(1, figures(2 * scale, 24_000, awaits(2, 12_300_000_000)), true),
                rank(2, figures(5, 1, Value::Null), false),
                rank(3, Value::Null, false),
                rank(4, figures(5, 1, Value::Null), false),
            ];
            ranks[4]["ending"] = json!({ "killed": { "signal": 9, "core": false } });
            let job = json!({
                "job": "0c17ab6e93f2d841", "pid": 4711, "program": "target/release/solver -n 9",
                "transport": null, "age_ms": 3_754_200, "ranks": ranks,
            });
            serde_json::from_value(job).unwrap()
        };
        View::between(&job(1), job(2))
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.04, 9.5, 10.4, 999.4, 1000.0, 12_345.0, 2e9].map(short);
        assert_eq!(shown, ["0", "0.0", "9.5", "10", "999", "1.0k", "12k", "2.0G"]);
    }

    #[test]
    fn as_text() {
        insta::assert_snapshot!(view().to_text());
    }
}
