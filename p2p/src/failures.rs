//! Failures of peers, as those learn of them who receive from any source.

use std::collections::HashMap;

use samite_fabric::link::{Cause, Error};

/// Every failure is told to each receive from any source that waits when it becomes known, and if none does, to the next
/// of the same context that has to wait, or finds nothing: so whoever receives from any source in a loop learns of each,
/// also of one that became known between two receives. (MPI's ULFM raises a failure until it is acknowledged; here it is
/// by being told.)
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// In the order in which they became known.
    known: Vec<(u32, Cause)>,
    /// How many of them somebody was told of, by context.
    told: HashMap<u32, u32>,
}

impl Failures {
    pub(crate) fn add(&mut self, rank: u32, cause: Cause) {
        self.known.push((rank, cause));
    }

    /// Replaces the cause of a rank's latest failure: the launcher knows more than the port that noticed it.
    pub(crate) fn amend(&mut self, rank: u32, cause: &Cause) {
        if let Some((_, known)) = self.known.iter_mut().rfind(|(failed, _)| *failed == rank) {
            known.clone_from(cause);
        }
    }

    /// Returns the cause of a rank's latest failure.
    pub(crate) fn latest(&self, rank: u32) -> Option<&Cause> {
        self.known.iter().rfind(|(failed, _)| *failed == rank).map(|(_, cause)| cause)
    }

    /// How many of them need not be told to who begins to wait in a context.
    #[inline(always)]
    pub(crate) fn told(&self, context: u32) -> u32 {
        if self.known.is_empty() { 0 } else { self.told.get(&context).copied().unwrap_or(0) }
    }

    /// Whether there are more than so many.
    #[inline(always)]
    pub(crate) fn more_than(&self, told: u32) -> bool {
        self.known.len() > told as usize
    }

    /// Tells the one after so many, to somebody in a context.
    pub(crate) fn tell(&mut self, context: u32, told: u32) -> Option<(u32, Cause)> {
        let next = self.known.get(told as usize)?;
        let told_here = self.told.entry(context).or_default();
        *told_here = (*told_here).max(told + 1);
        Some(next.clone())
    }

    /// Tells the first that nobody in a context was told of.
    pub(crate) fn tell_next(&mut self, context: u32) -> Option<Error> {
        let (rank, cause) = self.tell(context, self.told(context))?;
        Some(Error::FailurePending { rank, cause })
    }
}
