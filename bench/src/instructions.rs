//! Instruction counts of hot operations, measured by callgrind and compared with a table in the repository.
//!
//! Times on a shared machine cannot show a change of a few instructions; counts are reproducible. Each scenario runs
//! twice in a separate process under valgrind, with a different number of operations. The count of one operation is the
//! difference of the two totals, divided by the difference of the numbers of operations. Start-up and first-time work
//! are equal in both runs, so the difference does not contain them.

mod board;
mod comms;
mod matching;
mod messages;
mod one_sided;
mod windows;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::thread;

use crate::callgrind::{self, CountError};

/// The numbers of operations in the two runs. The smaller number is large enough that all first-time work is done in
/// both runs.
const OPERATIONS: [u64; 2] = [200, 700];

/// The maximum increase of a count over the table's count, relative to the table's count.
const TOLERANCE: f64 = 0.02;

/// The table in the repository. Its counts are valid for the toolchain of CI; other toolchains produce other counts.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// The limits of one count relative to another.
const RELATIONS: &[Relation] = &[
    // In the split communicator, one addition or table access translates the receiver's rank.
    Relation { name: "comm_send_8_split", over: "comm_send_8_world", limit: Limit::More(15.0) },
    // In the split communicator, the source is translated. The sources of the receive and of the message are both
    // checked to be members: the peer's state has the context in which it is known as one.
    Relation { name: "comm_receive_8_split", over: "comm_receive_8_world", limit: Limit::More(20.0) },
    // A receive whose message has arrived needs no thread for progress, and costs the same if there may be one.
    Relation { name: "comm_receive_32K_progress", over: "comm_receive_32K", limit: Limit::Share(1.01) },
    Relation { name: "comm_wait_32K_progress", over: "comm_wait_32K", limit: Limit::Share(1.01) },
    // An await stores the waker of the future, and polls the future once more often than a wait tests the request.
    Relation { name: "comm_await_8", over: "comm_wait_8", limit: Limit::More(400.0) },
    // A persistent pair checks its arguments once, not at each start.
    Relation { name: "pair_8_persistent_shm", over: "pair_8_nonblocking_shm", limit: Limit::Share(0.9) },
    Relation {
        name: "pair_8_persistent_loopback",
        over: "pair_8_nonblocking_loopback",
        limit: Limit::Share(0.9),
    },
    // A prepared operation chooses no algorithm, and checks fewer arguments. But it moves its buffers.
    Relation { name: "board_barrier_persistent", over: "board_barrier_blocking", limit: Limit::Share(0.9) },
    Relation { name: "board_bcast_8_persistent", over: "board_bcast_8_blocking", limit: Limit::Share(0.9) },
    Relation {
        name: "board_allreduce_8_persistent",
        over: "board_allreduce_8_blocking",
        limit: Limit::Share(0.9),
    },
    // An idle window costs a message some 24 instructions in each poll.
    Relation { name: "comm_send_8_beside_window", over: "comm_send_8_beside_comm", limit: Limit::More(30.0) },
    Relation {
        name: "comm_receive_8_beside_window",
        over: "comm_receive_8_beside_comm",
        limit: Limit::More(60.0),
    },
    // A contiguous layout is sent as a slice.
    Relation { name: "send_8_contiguous_route", over: "send_8_slice_route", limit: Limit::Share(1.02) },
];

/// The limit of the count of `name` relative to the count of `over`.
struct Relation {
    name: &'static str,
    over: &'static str,
    limit: Limit,
}

enum Limit {
    /// The count exceeds the other count by at most this number of instructions.
    More(f64),
    /// The count is at most the product of this number and the other count.
    Share(f64),
}

impl Relation {
    /// Returns the count of `name` and its limit if the count is above the limit.
    fn excess(&self, counts: &BTreeMap<String, f64>) -> Option<(f64, f64)> {
        let (count, over) = (counts[self.name], counts[self.over]);
        let max = match self.limit {
            Limit::More(instructions) => over + instructions,
            Limit::Share(share) => over * share,
        };
        (count > max).then_some((count, max))
    }
}

/// An operation to count.
pub(crate) struct Scenario {
    name: &'static str,
    /// Executes the operation `operations` times, each time inside of [`callgrind::counted`].
    run: fn(operations: u64),
}

fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    matching::SCENARIOS
        .iter()
        .chain(messages::SCENARIOS)
        .chain(one_sided::SCENARIOS)
        .chain(comms::SCENARIOS)
        .chain(board::SCENARIOS)
        .chain(windows::SCENARIOS)
}

/// Runs one scenario in this process.
///
/// # Errors
/// There is no such scenario.
pub(crate) fn run(name: &str, operations: u64) -> Result<(), InstructionsError> {
    let scenario = scenarios().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or_else(|| InstructionsError::NoScenario(name.to_owned()))?;
    (scenario.run)(operations);
    Ok(())
}

/// Counts all scenarios, and prints each count beside the table's count. Returns false if a count is above the
/// tolerance or above a limit of [`RELATIONS`], or if the table and the scenarios do not have the same names. With
/// `bless` it replaces the table and returns true.
///
/// # Errors
/// [`InstructionsError`].
pub(crate) fn check(bless: bool) -> Result<bool, InstructionsError> {
    let table = PathBuf::from(TABLE);
    let old = read(&table)?;
    let mut new = BTreeMap::new();
    let mut passed = true;
    say!("{:<36} {:>12} {:>12} {:>8}", "instructions", "table", "now", "change");
    for Scenario { name, .. } in scenarios() {
        let count = count(name)?;
        let before = old.get(*name).copied();
        let verdict = Verdict::new(before, count);
        passed &= verdict != Verdict::TooMany && verdict != Verdict::New;
        let change = before.map_or(String::new(), |old| format!("{:+.1} %", (count / old - 1.0) * 100.0));
        let before = before.map_or("-".to_owned(), |old| format!("{old:.1}"));
        say!("{name:<36} {before:>12} {count:>12.1} {change:>8}{}", verdict.remark());
        new.insert((*name).to_owned(), count);
    }
    for gone in old.keys().filter(|name| !new.contains_key(*name)) {
        say!("{gone:<36} is in the table, and there is no such scenario");
        passed = false;
    }
    for relation in RELATIONS {
        if let Some((count, max)) = relation.excess(&new) {
            say!("{}: {count:.1}, and the limit by {} is {max:.1}  TOO MANY", relation.name, relation.over);
            passed = false;
        }
    }
    if bless {
        std::fs::write(&table, write(&new)).map_err(|error| InstructionsError::Table(table, error))?;
        return Ok(true);
    }
    Ok(passed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Within,
    Fewer,
    TooMany,
    New,
}

impl Verdict {
    fn new(old: Option<f64>, new: f64) -> Self {
        match old {
            None => Self::New,
            Some(old) if new > old * (1.0 + TOLERANCE) => Self::TooMany,
            Some(old) if new < old * (1.0 - TOLERANCE) => Self::Fewer,
            Some(_) => Self::Within,
        }
    }

    fn remark(self) -> &'static str {
        match self {
            Self::Within => "",
            Self::Fewer => "  fewer: keep it with --bless",
            Self::TooMany => "  TOO MANY",
            Self::New => "  NOT IN THE TABLE: add it with --bless",
        }
    }
}

/// Returns the instructions of one operation. The two runs are under way at the same time, because most of their time is
/// the start of valgrind and of libfabric.
fn count(name: &str) -> Result<f64, CountError> {
    let [few, many] = OPERATIONS;
    let (count_few, count_many) = thread::scope(|scope| {
        let count_many = scope.spawn(|| collect(name, many));
        (collect(name, few), count_many.join().expect("a count that fails is an error"))
    });
    let difference = count_many?.saturating_sub(count_few?);
    Ok(difference as f64 / (many - few) as f64)
}

fn collect(name: &str, operations: u64) -> Result<u64, CountError> {
    let args = ["instructions", "--scenario", name, "--operations", &operations.to_string()];
    Ok(callgrind::collect(&[], &args)?[0])
}

fn read(table: &Path) -> Result<BTreeMap<String, f64>, InstructionsError> {
    let failed = |error| InstructionsError::Table(table.to_owned(), error);
    let text = std::fs::read_to_string(table).map_err(failed)?;
    let entry = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries: Option<_> = lines.map(entry).collect();
    entries.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))
}

fn write(counts: &BTreeMap<String, f64>) -> String {
    let mut text = "# Instructions of one operation, made by ci/instructions.sh --bless.\n".to_owned();
    for (name, count) in counts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<36} {count:.1}");
    }
    text
}

/// The reason why the counts could not be compared with the table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstructionsError {
    /// The caller named an unknown scenario.
    #[error("there is no scenario {0}")]
    NoScenario(String),
    /// Counting failed.
    #[error(transparent)]
    Count(#[from] CountError),
    /// The table could not be read or written.
    #[error("{}: {}", .0.display(), .1)]
    Table(PathBuf, std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_tolerance_is_too_many() {
        let verdicts =
            [None, Some(100.0)].map(|old| [97.0, 98.0, 102.0, 102.1].map(|new| Verdict::new(old, new)));
        assert_eq!(verdicts[0], [Verdict::New; 4]);
        assert_eq!(verdicts[1], [Verdict::Fewer, Verdict::Within, Verdict::Within, Verdict::TooMany]);
    }

    #[test]
    fn relations_limit_scenarios() {
        let names: Vec<_> = scenarios().map(|scenario| scenario.name).collect();
        for Relation { name, over, .. } in RELATIONS {
            assert!(names.contains(name) && names.contains(over), "{name} over {over}");
        }
    }

    #[test]
    fn a_count_above_its_limit_is_found() {
        let counts = BTreeMap::from([("a".to_owned(), 110.0), ("b".to_owned(), 100.0)]);
        let excess = |limit| Relation { name: "a", over: "b", limit }.excess(&counts);
        assert_eq!(excess(Limit::More(10.0)), None);
        assert_eq!(excess(Limit::More(9.0)), Some((110.0, 109.0)));
        assert_eq!(excess(Limit::Share(0.9)), Some((110.0, 90.0)));
    }

    #[test]
    fn the_table_is_read_as_it_was_written() {
        let counts = BTreeMap::from([("b".to_owned(), 2.5), ("a_a".to_owned(), 100.0)]);
        let text = write(&counts);
        assert!(text.ends_with(
            "a_a                                  100.0\nb                                    2.5\n"
        ));
        let table = std::env::temp_dir().join(format!("samite-instructions-{}", std::process::id()));
        std::fs::write(&table, text).unwrap();
        let back = read(&table);
        std::fs::remove_file(&table).unwrap();
        assert_eq!(back.unwrap(), counts);
    }

    #[test]
    fn every_scenario_runs() {
        for scenario in scenarios() {
            (scenario.run)(10);
        }
    }
}
