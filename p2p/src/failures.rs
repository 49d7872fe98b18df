//! Reports of peers' failures to receives from any source.
//!
//! In this file `told` is a number of failures: the first `told` entries of the list of known failures need no report,
//! in one context or to one receive.

use std::collections::HashMap;
use std::ops::Range;

use samite_fabric::link::{Cause, Error, WorldRank};

use crate::contexts::{Contexts, FIRST};

/// The failures of peers, for receives from any source in the contexts of which the peer is a member.
///
/// When a failure becomes known, it is reported to every such receive that waits. If no such receive waits in a
/// context, the failure is reported to the context's next receive that must wait, or to its next probe that finds no
/// message. So a program that receives from any source in a loop learns of each failure, even if the failure became
/// known between two receives. (MPI's ULFM raises a failure until it is acknowledged; here the report itself
/// acknowledges it.)
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// The failures in the order in which they became known.
    known: Vec<Failure>,
    /// For each context, the number of failures at the start of `known` that need no report to a new receive or probe
    /// there. A context without an entry has reported no failure.
    told: HashMap<u32, u32>,
}

/// An event that is reported to receives from any source: a rank has failed, or has left a context.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) rank: WorldRank,
    pub(crate) cause: Cause,
    place: Place,
}

/// The contexts that a failure concerns.
#[derive(Clone, Debug)]
enum Place {
    /// The contexts of the job, and the contexts with these names of which the rank is a member. In contexts with other
    /// names, another incarnation of the rank is the member.
    Job(Range<u64>),
    /// The contexts with these names, and not the contexts of the job: this rank had no contact with the incarnation
    /// that failed.
    Opened(Range<u64>),
    /// One context, which the rank has left, or in which it had ended when the context was opened.
    Only(u32),
}

impl Failures {
    /// Adds the failure of a rank in the job, and in the contexts with these names.
    pub(crate) fn add(&mut self, rank: WorldRank, cause: Cause, names: Range<u64>) {
        self.known.push(Failure { rank, cause, place: Place::Job(names) });
    }

    /// Adds the failure of an incarnation with which this rank had no contact, in the contexts with these names.
    pub(crate) fn add_unmet(&mut self, rank: WorldRank, names: Range<u64>) {
        self.known.push(Failure { rank, cause: Cause::Restarted, place: Place::Opened(names) });
    }

    /// Adds that a rank has ended in one context.
    pub(crate) fn add_in(&mut self, context: u32, rank: WorldRank, cause: Cause) {
        self.known.push(Failure { rank, cause, place: Place::Only(context) });
    }

    /// Replaces the cause of a rank's latest failure by the launcher's, because the launcher knows more about it than
    /// the port that noticed the failure.
    pub(crate) fn amend(&mut self, rank: WorldRank, cause: &Cause) {
        if let Some(known) = self.known.iter_mut().rfind(|known| known.is_of(rank)) {
            known.cause.clone_from(cause);
        }
    }

    /// Returns the cause of a rank's latest failure, or `None` if the rank has not failed.
    pub(crate) fn latest(&self, rank: WorldRank) -> Option<&Cause> {
        self.known.iter().rfind(|known| known.is_of(rank)).map(|known| &known.cause)
    }

    /// Returns the number of failures at the start of `known` that a new receive in a context need not report.
    #[inline(always)]
    pub(crate) fn told(&self, context: u32) -> u32 {
        if self.known.is_empty() { 0 } else { self.told.get(&context).copied().unwrap_or(0) }
    }

    /// Returns true if more than `told` failures are known.
    #[inline(always)]
    pub(crate) fn more_than(&self, told: u32) -> bool {
        self.known.len() > told as usize
    }

    /// Returns the index of the first failure that concerns a context, among the failures after the first `told` ones.
    /// Returns `None` if there is none.
    pub(crate) fn next(&self, context: u32, told: u32, contexts: &Contexts) -> Option<u32> {
        let concerns = |known: &Failure| known.concerns(context, contexts);
        let behind = self.known.get(told as usize..)?.iter().position(concerns)?;
        u32::try_from(told as usize + behind).ok()
    }

    /// Returns the failure that [`next`](Self::next) finds, and its index. Notes that the context has reported this
    /// failure, and that no failure before it needs a report there.
    pub(crate) fn tell(&mut self, context: u32, told: u32, contexts: &Contexts) -> Option<(u32, Failure)> {
        let number = self.next(context, told, contexts)?;
        let told_here = self.told.entry(context).or_default();
        *told_here = (*told_here).max(number + 1);
        Some((number, self.known[number as usize].clone()))
    }

    /// Returns the error that reports the first failure not yet reported in a context, and notes that it is reported.
    /// Returns `None` if there is no such failure.
    pub(crate) fn tell_next(&mut self, context: u32, contexts: &Contexts) -> Option<Error> {
        let (_, Failure { rank, cause, .. }) = self.tell(context, self.told(context), contexts)?;
        Some(Error::FailurePending { rank, cause })
    }

    /// Notes that no failure that is known now needs a report in a context. Returns the number of these failures.
    pub(crate) fn acknowledge(&mut self, context: u32) -> u32 {
        let known = self.known.len() as u32;
        self.told.insert(context, known);
        known
    }

    /// Forgets which failures a context has reported, because the context is closed.
    pub(crate) fn forget_context(&mut self, context: u32) {
        self.told.remove(&context);
    }
}

impl Failure {
    /// Returns true if this is a failure of `rank`, and not the event that it ended in one context.
    fn is_of(&self, rank: WorldRank) -> bool {
        self.rank == rank && !matches!(self.place, Place::Only(_))
    }

    fn concerns(&self, context: u32, contexts: &Contexts) -> bool {
        match &self.place {
            Place::Job(_) if context < FIRST => true,
            Place::Job(names) | Place::Opened(names) => contexts.is_member_of(context, self.rank, names),
            Place::Only(only) => *only == context && contexts.is_member(context, self.rank),
        }
    }
}
