//! The launcher's messages about failed ranks: one for each of the first failures, and the totals of the other
//! failures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use samite_control::Ending;

/// The failures of a job. The first failures are printed at once; the other failures are counted by kind, and their sum
/// is printed at the end.
#[derive(Debug, Default)]
pub(super) struct Failures {
    printed: u32,
    others: BTreeMap<String, usize>,
    /// The number of times that a rank has given up another rank.
    verdicts: usize,
}

impl Failures {
    /// Returns true if a failure is among the first `printed_max` failures, so that the caller must print it. Otherwise
    /// adds it to the sum. `ranks` is the number of ranks that failed together.
    pub(super) fn note(&mut self, ranks: usize, ending: &Ending, printed_max: u32) -> bool {
        let is_printed = self.printed < printed_max;
        match is_printed {
            true => self.printed += 1,
            false => *self.others.entry(ending.to_string()).or_default() += ranks,
        }
        is_printed
    }

    /// Counts a verdict by which a rank gives up another rank. Returns true if the verdict is among the first
    /// [`PRINTED_MAX`], so that the caller must print it.
    pub(super) fn note_verdict(&mut self) -> bool {
        self.verdicts += 1;
        self.verdicts <= PRINTED_MAX as usize
    }

    /// Returns a text with the number of verdicts that were not printed, if there are any.
    pub(super) fn sum_of_verdicts(&self) -> Option<String> {
        let more = self.verdicts.checked_sub(PRINTED_MAX as usize).filter(|&more| more > 0)?;
        let times = if more == 1 { "time" } else { "times" };
        Some(format!("{more} more {times} a rank gave up another one"))
    }

    /// Returns a text with the sums of the failures that were not printed, if there are any.
    pub(super) fn sum(&self) -> Option<String> {
        let ranks: usize = self.others.values().sum();
        let mut kinds: Vec<_> = self.others.iter().collect();
        kinds.sort_by_key(|&(_, count)| Reverse(*count));
        let mut text: Vec<_> =
            kinds.iter().take(KINDS_MAX).map(|(kind, count)| format!("{count} {kind}")).collect();
        let rest: usize = kinds.iter().skip(KINDS_MAX).map(|(_, count)| *count).sum();
        if rest > 0 {
            text.push(format!("{rest} ended otherwise"));
        }
        let noun = if ranks == 1 { "rank" } else { "ranks" };
        (ranks > 0).then(|| format!("{ranks} more {noun} failed: {}", text.join(", ")))
    }
}

/// The largest number of verdicts that are printed one by one. The same limit applies to failures if the job goes on
/// without the failed ranks.
pub(super) const PRINTED_MAX: u32 = 8;

/// The largest number of kinds of endings that a sum names.
const KINDS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_reported_and_the_others_are_summed_up_by_kind() {
        let mut failures = Failures::default();
        let [exited, panicked] = [Ending::Exited { code: 3 }, Ending::Panicked];
        assert!(failures.note(1, &exited, 1));
        assert_eq!(failures.sum(), None);
        assert!(!failures.note(1, &exited, 1));
        assert_eq!(failures.sum().unwrap(), "1 more rank failed: 1 exited with code 3");
        for _ in 0..254 {
            assert!(!failures.note(1, &panicked, 1));
        }
        assert_eq!(failures.sum().unwrap(), "255 more ranks failed: 254 panicked, 1 exited with code 3");
        for code in 4..8 {
            failures.note(1, &Ending::Exited { code }, 1);
        }
        assert!(failures.sum().unwrap().ends_with(", 2 ended otherwise"));
    }

    #[test]
    fn the_first_verdicts_are_reported_and_the_others_are_counted() {
        let mut failures = Failures::default();
        assert!((0..PRINTED_MAX).all(|_| failures.note_verdict()));
        assert_eq!(failures.sum_of_verdicts(), None);
        assert!(!failures.note_verdict());
        assert_eq!(failures.sum_of_verdicts().unwrap(), "1 more time a rank gave up another one");
    }
}
