//! The 4-D queue beside a tree, by the order in which ranks are inserted and removed: tables 4.6 and 4.7.

use std::hint::black_box;
use std::time::Instant;

use samite_matching::{
    Adaptive, BTree, Config, Counting, Envelope, FourD, LinkedList, Matcher, Meter, Pattern, RankArray,
    Structure,
};

use super::{Report, bytes, exactly};
use crate::spread::Spread;

/// An access pattern of (Zounmevo 2014, section 4.2.3).
#[derive(Clone, Copy, Debug)]
enum Access {
    /// Pattern 1: receives are posted. Then messages search them, and each message deletes the receive that it matches.
    Arrive,
    /// Pattern 3: receives search the unexpected messages, and each receive deletes the message that it matches.
    Take,
    /// Pattern 5: probes search the unexpected messages, and delete none.
    Probe,
}

/// An order of ranks.
#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    /// Alternates between both ends.
    Ends,
    /// The reverse of `Ends`.
    FromMiddle,
}

/// Pairs of an insertion order and a removal order, in the sequence of the thesis.
const ORDERS: [(Order, Order); 6] = [
    (Order::Up, Order::Up),
    (Order::Up, Order::Down),
    (Order::Down, Order::Down),
    (Order::Down, Order::Up),
    (Order::Ends, Order::Ends),
    (Order::Ends, Order::FromMiddle),
];

/// The published seconds for the first pair of orders in [`ORDERS`]. Each entry is a number of ranks and its times,
/// indexed by pattern (1, 3, 5), then by messages per rank (one, five), then by structure (4-D queue, tree).
const PUBLISHED_SECONDS: [(u32, [[[f64; 2]; 2]; 3]); 3] = [
    (
        256,
        [
            [[4.95e-4, 2.78e-2], [1.28e-2, 4.00e-2]],
            [[5.15e-4, 2.51e-2], [1.20e-2, 3.85e-2]],
            [[5.39e-4, 1.45e-3], [1.22e-2, 1.33e-2]],
        ],
    ),
    (16_384, [[[1.64, 4.85], [87.1, 90.5]], [[1.62, 4.70], [87.3, 90.5]], [[1.62, 3.07], [87.0, 89.0]]]),
    (
        131_072,
        [
            [[233.0, 462.0], [5990.0, 6210.0]],
            [[233.0, 340.0], [5980.0, 6090.0]],
            [[233.0, 466.0], [5990.0, 6220.0]],
        ],
    ),
];

/// The published memory beyond that of the list, in kilobytes. Each entry is a number of ranks and its figures, indexed
/// by peak and average, then by structure (4-D queue, tree).
const PUBLISHED_MEMORY: [(u32, [[f64; 2]; 2]); 3] = [
    (256, [[3.242_188, 14.054_69], [1.695_312, 7.082_031]]),
    (16_384, [[48.617_19, 896.0547], [24.429_69, 448.082]]),
    (131_072, [[193.117_188, 7_168.055], [96.742_188, 3_584.082]]),
];

/// A structure: its name, the function that returns its total seconds, and the function that returns its peak and
/// average bytes.
type Case = (&'static str, fn(Access, (Order, Order), u32, u64) -> f64, fn((Order, Order), u32) -> [f64; 2]);

const fn case<S: Structure>(name: &'static str) -> Case {
    (name, seconds::<S>, memory::<S>)
}

const CASES: [Case; 4] = [
    case::<FourD>("FourD"),
    case::<BTree>("BTree"),
    case::<RankArray>("RankArray"),
    case::<Adaptive>("Adaptive"),
];

/// Measures time and memory of all structures, and prints them.
pub(super) fn run(report: &Report) {
    report.heading(
        "table 4.6: seconds for all insertions and searches, median of the runs (published, 2 GHz Opteron 2350: 4-D, tree)",
    );
    let names = CASES.map(|(name, ..)| format!("{name:>12}")).concat();
    report.line(&format!("{:>8} {:>5} {:>8} {:>16}{names}", "ranks", "tags", "access", "order"));
    for (ranks, published) in PUBLISHED_SECONDS {
        for (access, published) in [Access::Arrive, Access::Take, Access::Probe].into_iter().zip(published) {
            for (tags, [four_d, tree]) in [1, 5].into_iter().zip(published) {
                if ranks as usize * tags as usize > report.items_max {
                    continue;
                }
                for (at, orders) in ORDERS.into_iter().enumerate() {
                    let order = format!("{:?}-{:?}", orders.0, orders.1);
                    let mut samples = CASES.map(|_| Vec::new());
                    for _ in 0..report.runs {
                        for (samples, (_, seconds, _)) in samples.iter_mut().zip(CASES) {
                            samples.push(seconds(access, orders, ranks, tags));
                        }
                    }
                    let spreads =
                        samples.map(|samples| Spread::of(samples).expect("there is at least one run"));
                    let cell = format!("orders {access:?} {order} {tags} items a rank").to_lowercase();
                    for (spread, (name, ..)) in spreads.iter().zip(CASES) {
                        report.record(
                            &cell,
                            name,
                            (ranks, ranks as usize * tags as usize),
                            "total_s",
                            "s",
                            *spread,
                        );
                    }
                    let figures = spreads.map(|spread| format!("{:>12.2e}", spread.median)).concat();
                    let published =
                        if at == 0 { format!("  ({four_d:.2e}, {tree:.2e})") } else { String::new() };
                    report.line(&format!(
                        "{ranks:>8} {tags:>5} {:>8} {order:>16}{figures}{published}",
                        format!("{access:?}")
                    ));
                }
            }
        }
    }
    report
        .heading("table 4.7: peak, average bytes more than the list, one item a rank (published: 4-D, tree)");
    for (ranks, [peaks, averages]) in PUBLISHED_MEMORY {
        let list = memory::<LinkedList>(ORDERS[0], ranks);
        let figures = CASES.map(|(name, _, memory)| {
            let more = memory(ORDERS[0], ranks);
            let [peak, average] = [more[0] - list[0], more[1] - list[1]];
            report.record(
                "orders memory",
                name,
                (ranks, ranks as usize),
                "overhead_peak",
                "bytes",
                exactly(peak),
            );
            report.record(
                "orders memory",
                name,
                (ranks, ranks as usize),
                "overhead_average",
                "bytes",
                exactly(average),
            );
            format!("{name} {}, {}", signed_bytes(peak), signed_bytes(average))
        });
        let published: Vec<_> =
            (0..2).map(|of| format!("{:.2} KB, {:.2} KB", peaks[of], averages[of])).collect();
        report.line(&format!("{ranks:>8}: {} ({})", figures.join("; "), published.join("; ")));
    }
}

fn signed_bytes(count: f64) -> String {
    let sign = if count < 0.0 { "-" } else { "" };
    format!("{sign}{}", bytes(count.abs() as usize))
}

/// Returns the total time, measured as in the thesis.
fn seconds<S: Structure>(access: Access, orders: (Order, Order), ranks: u32, tags: u64) -> f64 {
    let mut matcher: Matcher<u64, u64, S> = Matcher::new(&Config { ranks, ..Config::default() });
    let begin = Instant::now();
    perform(&mut matcher, access, orders, ranks, tags);
    begin.elapsed().as_secs_f64()
}

/// Returns the peak and the average of the bytes in use.
fn memory<S: Structure>(orders: (Order, Order), ranks: u32) -> [f64; 2] {
    let mut matcher: Matcher<u64, u64, S, Counting> = Matcher::new(&Config { ranks, ..Config::default() });
    perform(&mut matcher, Access::Take, orders, ranks, 1);
    [matcher.memory().peak as f64, matcher.stats().memory_average]
}

fn perform<S: Structure, M: Meter>(
    matcher: &mut Matcher<u64, u64, S, M>,
    access: Access,
    (insert, remove): (Order, Order),
    ranks: u32,
    tags: u64,
) {
    for rank in insert.of(ranks) {
        for tag in 0..tags {
            match access {
                Access::Arrive => done(matcher.post(Pattern::exact(0, rank, tag), tag)),
                Access::Take | Access::Probe => done(matcher.arrive(Envelope::new(0, rank, tag), || tag)),
            }
        }
    }
    for rank in remove.of(ranks) {
        for tag in 0..tags {
            match access {
                Access::Arrive => done(matcher.arrive(Envelope::new(0, rank, tag), || tag)),
                Access::Take => done(matcher.take(&Pattern::exact(0, rank, tag))),
                Access::Probe => done(matcher.probe(&Pattern::exact(0, rank, tag))),
            }
        }
    }
}

/// Uses the result of an operation, so that the compiler does not remove the operation.
fn done<T>(answer: T) {
    black_box(answer);
}

impl Order {
    fn of(self, ranks: u32) -> impl Iterator<Item = u32> {
        let ends = move |at: u32| if at.is_multiple_of(2) { at / 2 } else { ranks - 1 - at / 2 };
        (0..ranks).map(move |at| match self {
            Self::Up => at,
            Self::Down => ranks - 1 - at,
            Self::Ends => ends(at),
            Self::FromMiddle => ends(ranks - 1 - at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_of_the_thesis() {
        assert_eq!(Order::Ends.of(6).collect::<Vec<_>>(), [0, 5, 1, 4, 2, 3]);
        assert_eq!(Order::FromMiddle.of(6).collect::<Vec<_>>(), [3, 2, 4, 1, 5, 0]);
    }
}
