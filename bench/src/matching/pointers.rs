//! Pointers followed to the last item: tables 4.2 and 4.3.

use samite_matching::Stats;

use super::structures::STRUCTURES;
use super::workload::{Direction, Queue, Workload};
use super::{Report, exactly};

/// The numbers of ranks, each with the published counts of list, array and 4-D queue for one context.
const PUBLISHED: [(u32, [u64; 3]); 3] =
    [(4096, [4095, 3, 26]), (65_536, [65_535, 3, 50]), (1_048_576, [1_048_575, 3, 98])];

/// The structures of the tables, in their order.
const TABLED: [&str; 3] = ["LinkedList", "RankArray", "FourD"];

/// Counts the pointers of all structures, and prints them.
pub(super) fn run(report: &Report) {
    for (contexts, table) in [(1, "table 4.2"), (10, "table 4.3")] {
        report.heading(&format!(
            "{table}: pointers followed to the last item, {contexts} contexts with an item of each rank (published)"
        ));
        let names = STRUCTURES.map(|structure| format!("{:>24}", structure.name)).concat();
        report.line(&format!("{:>8}{names}", "ranks"));
        for (ranks, published) in PUBLISHED {
            let workload = Workload {
                contexts,
                contexts_in: Direction::Reverse,
                ..Workload::new(Queue::Unexpected, ranks, 1, Direction::Reverse)
            };
            if workload.items() > report.items_max * 10 {
                continue;
            }
            let figures = STRUCTURES.map(|structure| {
                // The first match is the last item of the last context.
                let (_, Stats { unexpected, .. }) = (structure.count)(&workload, 1);
                report.record(
                    &workload.name(),
                    structure.name,
                    (ranks, workload.items()),
                    "hops",
                    "pointers",
                    exactly(unexpected.hops as f64),
                );
                let published = TABLED.iter().position(|&name| name == structure.name).map(|at| {
                    let of_others = if structure.name == "LinkedList" { published[at] } else { 1 };
                    u64::from(contexts - 1) * of_others + published[at]
                });
                let published = published.map_or(String::new(), |published| format!(" ({published})"));
                format!("{:>24}", format!("{}{published}", unexpected.hops))
            });
            report.line(&format!("{ranks:>8}{}", figures.concat()));
        }
    }
}
