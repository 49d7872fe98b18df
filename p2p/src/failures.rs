//! Reports of peers' failures to receives from any source.
//!
//! In this file `told` is a number of failures: the first `told` entries of the list of known failures need no report,
//! in one context or to one receive.

use std::collections::HashMap;

use samite_fabric::link::{Cause, Error, WorldRank};

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
    /// The context that the rank has left; `None` if the rank has failed, which concerns all its contexts.
    context: Option<u32>,
}

impl Failures {
    /// Adds the failure of a rank.
    pub(crate) fn add(&mut self, rank: WorldRank, cause: Cause) {
        self.known.push(Failure { rank, cause, context: None });
    }

    /// Adds that a rank has left a context.
    pub(crate) fn add_left(&mut self, rank: WorldRank, context: u32) {
        self.known.push(Failure { rank, cause: Cause::LeftContext, context: Some(context) });
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
    /// Returns `None` if there is none. `is_member` returns true for the ranks that may use the context.
    pub(crate) fn next(&self, context: u32, told: u32, is_member: impl Fn(WorldRank) -> bool) -> Option<u32> {
        let concerns =
            |known: &Failure| known.context.is_none_or(|only| only == context) && is_member(known.rank);
        let behind = self.known.get(told as usize..)?.iter().position(concerns)?;
        u32::try_from(told as usize + behind).ok()
    }

    /// Returns the failure that [`next`](Self::next) finds, and its index. Notes that the context has reported this
    /// failure, and that no failure before it needs a report there.
    pub(crate) fn tell(
        &mut self,
        context: u32,
        told: u32,
        is_member: impl Fn(WorldRank) -> bool,
    ) -> Option<(u32, Failure)> {
        let number = self.next(context, told, is_member)?;
        let told_here = self.told.entry(context).or_default();
        *told_here = (*told_here).max(number + 1);
        Some((number, self.known[number as usize].clone()))
    }

    /// Returns the error that reports the first failure not yet reported in a context, and notes that it is reported.
    /// Returns `None` if there is no such failure.
    pub(crate) fn tell_next(&mut self, context: u32, is_member: impl Fn(WorldRank) -> bool) -> Option<Error> {
        let (_, Failure { rank, cause, .. }) = self.tell(context, self.told(context), is_member)?;
        Some(Error::FailurePending { rank, cause })
    }

    /// Forgets which failures a context has reported, because the context is closed.
    pub(crate) fn forget_context(&mut self, context: u32) {
        self.told.remove(&context);
    }
}

impl Failure {
    /// Returns true if this is the failure of `rank` in all its contexts, and not the event that it left one context.
    fn is_of(&self, rank: WorldRank) -> bool {
        self.rank == rank && self.context.is_none()
    }
}
