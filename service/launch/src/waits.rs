//! A description of the waits between the ranks of a job that is ended early.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use samite_control::Awaits;

use super::{RankView, Snapshot};

/// Describes the waits of a snapshot's ranks, with ranks in a cycle first, in a bounded number of lines. Returns `None`
/// if no rank has reported a wait.
pub(super) fn describe(snapshot: &Snapshot) -> Option<String> {
    let ranks = &snapshot.ranks;
    let waiting: BTreeMap<u32, &Awaits> =
        ranks.iter().filter_map(|view| Some((view.rank, awaits(view)?))).collect();
    if waiting.is_empty() {
        return None;
    }
    let mut text = String::from("waits of the ranks:");
    let cycles = cycles(&waiting);
    for cycle in cycles.iter().take(CYCLES_MAX) {
        let mut names: Vec<_> = cycle.iter().take(NAMES_MAX).map(u32::to_string).collect();
        if cycle.len() > NAMES_MAX {
            names.push(format!("… ({} ranks)", cycle.len()));
        }
        // Ranks that exchange messages can form a cycle for an instant. Print how long the ranks have waited, which
        // shows if the cycle lasts.
        let ages = cycle.iter().map(|rank| waiting[rank].age_ns);
        let seconds = ages.min().unwrap_or(0) as f64 / 1e9;
        let _ = write!(
            text,
            "\n  they wait for each other, for {seconds:.1} s: {} -> {}",
            names.join(" -> "),
            cycle[0]
        );
    }
    if cycles.len() > CYCLES_MAX {
        let _ = write!(text, "\n  and {} more cycles", cycles.len() - CYCLES_MAX);
    }
    // List the ranks in cycles first. The other ranks follow, the longest wait first.
    let mut order: Vec<u32> = cycles.into_iter().flatten().collect();
    let mut others: Vec<u32> = waiting.keys().copied().filter(|rank| !order.contains(rank)).collect();
    others.sort_by_key(|rank| std::cmp::Reverse(waiting[rank].age_ns));
    order.extend(others);
    for rank in order.iter().take(LINES_MAX) {
        let _ = write!(text, "\n  rank {rank}: {}", waiting[rank]);
    }
    let rest = order.get(LINES_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let _ = write!(text, "\n  and {} more ranks wait: {}", rest.len(), sums(rest, &waiting));
    }
    let there = || ranks.iter().filter(|view| view.ending.is_none());
    for (why, silent) in [
        ("stopped", list(there().filter(|view| view.is_stopped))),
        ("not answering: computing, or not in a call", list(there().filter(|view| is_silent(view)))),
        ("not waiting", list(there().filter(|view| is_busy(view)))),
    ] {
        if !silent.is_empty() {
            let _ = write!(text, "\n  {why}: {silent}");
        }
    }
    Some(text)
}

/// Returns the wait that a rank has reported for this snapshot. Returns `None` if the rank has reported no wait, has
/// not answered, has ended, or is stopped.
fn awaits(view: &RankView) -> Option<&Awaits> {
    let is_known = view.is_answer && view.ending.is_none() && !view.is_stopped;
    view.figures.as_ref().filter(|_| is_known)?.awaits.as_ref()
}

fn is_silent(view: &RankView) -> bool {
    !view.is_stopped && !view.is_answer
}

fn is_busy(view: &RankView) -> bool {
    !view.is_stopped && view.is_answer && awaits(view).is_none()
}

/// Returns the cycles of ranks that wait for each other, each from its lowest rank.
fn cycles(waiting: &BTreeMap<u32, &Awaits>) -> Vec<Vec<u32>> {
    let mut cycles = Vec::new();
    let mut met = BTreeSet::new();
    for &start in waiting.keys() {
        let mut walk = Vec::new();
        let mut next = Some(start);
        while let Some(at) = next.filter(|at| met.insert(*at)) {
            walk.push(at);
            next = waiting.get(&at).and_then(|awaits| awaits.peer);
        }
        // If the walk reaches a rank that it has visited before, the ranks from there on form a cycle.
        if let Some(first) = walk.iter().position(|&rank| Some(rank) == next) {
            cycles.push(walk.split_off(first));
        }
    }
    cycles.iter_mut().for_each(|cycle| {
        let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap_or(0);
        cycle.rotate_left(lowest);
    });
    cycles
}

/// Counts ranks by the peer that they wait for, the largest count first.
fn sums(ranks: &[u32], waiting: &BTreeMap<u32, &Awaits>) -> String {
    let mut counts = BTreeMap::<Option<u32>, usize>::new();
    for rank in ranks {
        *counts.entry(waiting[rank].peer).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let named = counts.iter().take(SUMS_MAX).map(|(peer, count)| match peer {
        Some(rank) => format!("{count} for rank {rank}"),
        None => format!("{count} for any rank"),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    let rest: usize = counts.iter().skip(SUMS_MAX).map(|(_, count)| count).sum();
    if rest > 0 {
        let _ = write!(text, ", {rest} for others");
    }
    text
}

/// Lists ranks as ranges, as in `0, 3-7`, and counts the ranks that do not fit.
fn list<'a>(views: impl Iterator<Item = &'a RankView>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for RankView { rank, .. } in views {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => ranges.push((*rank, *rank)),
        }
    }
    let shown = ranges.iter().take(NAMES_MAX).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    let rest: u32 = ranges.iter().skip(NAMES_MAX).map(|(first, last)| last - first + 1).sum();
    if rest > 0 {
        let _ = write!(text, " and {rest} more");
    }
    text
}

const LINES_MAX: usize = 16;
const CYCLES_MAX: usize = 4;
const NAMES_MAX: usize = 12;
const SUMS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use samite_control::Figures;
    use samite_control::JobId;

    /// Returns a job in which each rank waits for the rank at its index in `waits`, or for any rank if that is `None`.
    fn job(waits: &[Option<u32>]) -> Snapshot {
        let ranks = (0..).zip(waits).map(|(rank, &peer)| {
            let awaits = Awaits {
                peer,
                tag: 7,
                mask: !0,
                bytes: 8,
                age_ns: 3_000_000_000,
                awaited: "message".to_owned(),
                ..Awaits::default()
            };
            RankView {
                rank,
                host: None,
                incarnation: 1,
                is_stopped: false,
                ending: None,
                figures: Some(Figures { awaits: Some(awaits), ..Figures::default() }),
                is_answer: true,
                figures_age_ms: 0,
            }
        });
        let ranks = ranks.collect();
        Snapshot { job: JobId(1), pid: 1, program: "p".to_owned(), transport: None, age_ms: 1, ranks }
    }

    #[test]
    fn cycles_come_first() {
        let told = describe(&job(&[None, Some(0), Some(3), Some(4), Some(2), Some(2)])).unwrap();
        let lines: Vec<_> = told.lines().map(str::trim).collect();
        assert_eq!(lines[1], "they wait for each other, for 3.0 s: 2 -> 3 -> 4 -> 2");
        assert_eq!(lines[2], "rank 2: recv from 3, tag 7, 8 bytes, 3.0 s: message");
        assert_eq!(lines[5], "rank 0: recv from any, tag 7, 8 bytes, 3.0 s: message");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn a_cycle_is_as_old_as_its_last_wait() {
        let mut snapshot = job(&[Some(1), Some(0)]);
        let figures = snapshot.ranks[1].figures.as_mut().unwrap();
        figures.awaits.as_mut().unwrap().age_ns = 20_000;
        let told = describe(&snapshot).unwrap();
        assert!(told.contains("they wait for each other, for 0.0 s: 0 -> 1 -> 0\n"), "{told}");
    }

    #[test]
    fn two_cycles_and_a_rank_that_waits_for_itself() {
        let told = describe(&job(&[Some(1), Some(0), Some(2), Some(0)])).unwrap();
        assert!(told.contains("other, for 3.0 s: 0 -> 1 -> 0\n"), "{told}");
        assert!(told.contains("other, for 3.0 s: 2 -> 2\n"), "{told}");
    }

    #[test]
    fn a_large_job_is_summed_up() {
        let mut snapshot = job(&vec![Some(0); 1000]);
        snapshot.ranks[0].figures = None;
        snapshot.ranks[0].is_answer = false;
        snapshot.ranks[1].is_stopped = true;
        let told = describe(&snapshot).unwrap();
        assert!(told.lines().count() < 25, "{told}");
        assert!(told.contains("and 982 more ranks wait: 982 for rank 0"), "{told}");
        assert!(told.contains("not in a call: 0") && told.contains("stopped: 1"), "{told}");
        assert!(!told.contains("each other"), "{told}");
    }

    #[test]
    fn nothing_is_printed_if_no_rank_waits() {
        let mut snapshot = job(&[Some(1), Some(0)]);
        snapshot.ranks.iter_mut().for_each(|view| view.is_answer = false);
        assert_eq!(describe(&snapshot), None);
    }
}
