//! Memory of full queues: table 4.5, and figures 4.14, 4.15 and 4.18.

use super::structures::{ADAPTIVE, FOUR_D, LIST, STRUCTURES};
use super::workload::{Direction, Queue, Workload};
use super::{Report, bytes, exactly};

/// Each entry has the number of ranks, the number of items, and the published memory of the array and of the 4-D queue
/// beyond that of the list. The items are of contiguous ranks from 0.
pub(super) const PUBLISHED: [(u32, u32, &str, &str); 12] = [
    (4096, 1, "128.05 KB", "184 B"),
    (4096, 100, "128.05 KB", "760 B"),
    (4096, 1000, "128.05 KB", "6.07 KB"),
    (4096, 4096, "128.05 KB", "24.68 KB"),
    (65_536, 1, "2.00 MB", "248 B"),
    (65_536, 100, "2.00 MB", "536 B"),
    (65_536, 1000, "2.00 MB", "3.15 KB"),
    (65_536, 65_536, "2.00 MB", "194.30 KB"),
    (1_048_576, 1, "32.00 MB", "376 B"),
    (1_048_576, 100, "32.00 MB", "520 B"),
    (1_048_576, 1000, "32.00 MB", "1.82 KB"),
    (1_048_576, 1_048_576, "32.00 MB", "1.51 MB"),
];

/// Measures the memory of all structures, and prints it.
pub(super) fn run(report: &Report) {
    for queue in [Queue::Posted, Queue::Unexpected] {
        report.heading(&format!(
            "table 4.5: bytes in use, items included; structure's own (published), {queue:?} queue"
        ));
        header(report);
        for (ranks, items, array, four_d) in PUBLISHED {
            if items as usize <= report.items_max {
                let workload =
                    Workload { filled: items, ..Workload::new(queue, ranks, 1, Direction::Forward) };
                row(report, &workload, &[("RankArray", array), ("FourD", four_d)]);
            }
        }
    }
    report.heading("figures 4.14 and 4.15: bytes in use, items included; several items a rank");
    header(report);
    for queue in [Queue::Posted, Queue::Unexpected] {
        for tags in [1, 5, 10] {
            for ranks in [256, 4096, 65_536] {
                let workload = Workload::new(queue, ranks, tags, Direction::Forward);
                if workload.items() <= report.items_max {
                    row(report, &workload, &[]);
                }
            }
        }
    }
    report.heading("figure 4.18: bytes in use, items included; several contexts, 5 items a rank");
    header(report);
    for contexts in [10, 50] {
        for ranks in [16, 256, 4096] {
            let workload =
                Workload { contexts, ..Workload::new(Queue::Posted, ranks, 5, Direction::Forward) };
            if workload.items() <= report.items_max {
                row(report, &workload, &[]);
            }
        }
    }
}

fn header(report: &Report) {
    let names = STRUCTURES.map(|structure| format!("{:>36}", structure.name)).concat();
    report.line(&format!("{:>8} {:>8}{names}{:>8}{:>8}", "ranks", "items", "of 4-D", "of list"));
}

fn row(report: &Report, workload: &Workload, published: &[(&str, &str)]) {
    let memory = STRUCTURES.map(|structure| (structure.memory)(workload));
    let mut figures = String::new();
    for (memory, structure) in memory.iter().zip(STRUCTURES) {
        let published = published.iter().find(|(name, _)| *name == structure.name);
        let published = published.map_or(String::new(), |(_, bytes)| format!(" ({bytes})"));
        let figure = format!("{}; {}{published}", bytes(memory.in_use()), bytes(memory.structure));
        figures += &format!("{figure:>36}");
        report.record(
            &workload.name(),
            structure.name,
            (workload.ranks, workload.items()),
            "memory",
            "bytes",
            exactly(memory.in_use() as f64),
        );
        report.record(
            &workload.name(),
            structure.name,
            (workload.ranks, workload.items()),
            "reserved",
            "bytes",
            exactly(memory.reserved as f64),
        );
    }
    let ratio = |of: usize| memory[ADAPTIVE].in_use() as f64 / memory[of].in_use() as f64;
    report.line(&format!(
        "{:>8} {:>8}{figures}{:>8.3}{:>8.3}",
        workload.ranks,
        workload.items(),
        ratio(FOUR_D),
        ratio(LIST)
    ));
}
