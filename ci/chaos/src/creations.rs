//! Compares the ends of each creation at all survivors. A creation that a member does not survive must fail with the
//! same error at all members that live.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Created, CreationEnd};

/// The creations of a job, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Creations(BTreeMap<u64, Seen>);

/// The ranks that take part in a creation, and its ends at survivors.
#[derive(Debug, Default)]
struct Seen {
    ranks: BTreeSet<u32>,
    ends: BTreeMap<u32, CreationEnd>,
}

impl Creations {
    pub(crate) fn add(&mut self, rank: u32, creations: &[Created]) {
        for Created { key, ranks, end } in creations {
            let seen = self.0.entry(*key).or_default();
            seen.ranks.extend(ranks);
            seen.ends.insert(rank, end.clone());
        }
    }

    /// Returns the violations, given the killed ranks.
    pub(crate) fn judge(&self, killed: &BTreeMap<u32, u64>) -> Vec<String> {
        let violations = self.0.iter().filter_map(|(key, seen)| {
            seen.violation(killed).map(|what| format!("creation {key:x}: {what}: {seen:?}"))
        });
        violations.collect()
    }
}

impl Seen {
    fn violation(&self, killed: &BTreeMap<u32, u64>) -> Option<String> {
        let is_killed = |rank: &u32| killed.contains_key(rank);
        for (at, end) in &self.ends {
            let CreationEnd::Failed { rank, has_left, .. } = end else { continue };
            // A rank may give up the creation, for example after it has learned of a failure.
            let may_give_up = *has_left && self.ends.get(rank).is_none_or(|end| *end != CreationEnd::Made);
            if !is_killed(rank) && !may_give_up {
                return Some(format!("rank {at} takes {rank} for failed"));
            }
        }
        let dead = self.ranks.iter().filter(|rank| is_killed(rank)).count();
        let gave_up = self.ends.values().any(|end| match end {
            CreationEnd::GaveUp | CreationEnd::Exhausted => true,
            CreationEnd::Failed { has_left, .. } => *has_left,
            CreationEnd::Made => false,
        });
        // If several ranks have died, different survivors may learn of different deaths first. If a rank dies while the
        // creation ends, some members may have the communicator. The causes are not compared, because
        // `Creation::test` does not wait for the launcher's report of the cause.
        let failed = self.ends.values().filter_map(|end| match end {
            CreationEnd::Failed { rank, .. } => Some(rank),
            _ => None,
        });
        let failures: BTreeSet<_> = failed.collect();
        (dead <= 1 && !gave_up && failures.len() > 1).then(|| "different errors".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ends: &[CreationEnd], killed: &[u32]) -> usize {
        let mut creations = Creations::default();
        for (rank, end) in ends.iter().enumerate() {
            creations.add(rank as u32, &[Created { key: 7, ranks: vec![0, 1, 2, 3], end: end.clone() }]);
        }
        creations.judge(&killed.iter().map(|&rank| (rank, 0)).collect()).len()
    }

    #[test]
    fn survivors_agree_on_the_failure() {
        let failed = |rank| CreationEnd::Failed { rank, has_left: false, cause: "killed".to_owned() };
        let left = |rank| CreationEnd::Failed { rank, has_left: true, cause: "left".to_owned() };
        let (made, gave_up) = (CreationEnd::Made, CreationEnd::GaveUp);
        assert_eq!(judged(&[made.clone(), made.clone(), made.clone()], &[]), 0);
        assert_eq!(judged(&[failed(3), failed(3), failed(3)], &[3]), 0);
        assert_eq!(judged(&[failed(3), failed(2), failed(3)], &[3]), 1, "another rank");
        assert_eq!(judged(&[failed(3), made.clone(), failed(3)], &[3]), 0, "it died at the end");
        assert_eq!(judged(&[failed(3), failed(3), failed(3)], &[]), 1, "nothing has died");
        assert_eq!(judged(&[failed(2), failed(3)], &[2, 3]), 0, "two have died");
        assert_eq!(judged(&[gave_up, left(0), left(0)], &[]), 0);
        assert_eq!(judged(&[made, left(0), left(0)], &[]), 1, "rank 0 has not given up");
    }
}
