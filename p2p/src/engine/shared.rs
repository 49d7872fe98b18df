//! Calls for collective operations: reports of members that have ended, sends for which no caller waits, and the
//! removal of messages that this rank will not receive.

use std::collections::BTreeMap;

use samite_fabric::link::{Cause, Error, Fate, Group, Members, Outcome, RequestId, Time, WorldRank};
use samite_fabric::{Memory, Port};
use samite_matching::Pattern;

use super::{Engine, WithTagged as _};
use crate::agreement::BY_SOME;
use crate::contexts::FIRST;
use crate::tagged::HasTagged;

/// The two bits that are set in the tags of messages of collective operations. These messages are in the control
/// contexts, in which no tag of an agreement has both bits. The sender chooses the bits below these two.
pub const COLLECTIVE_TAG: u64 = BY_SOME | 1 << 61;

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Returns the time that the latest call with a time has set.
    pub fn now(&self) -> Time {
        self.inner.link().now()
    }

    /// Sets the time, for calls without a time among their arguments.
    pub fn set_now(&mut self, now: Time) {
        self.inner.link_mut().set_now(now);
    }

    /// Returns the number of times that a rank has ended or has left contexts. While this number does not change, the
    /// results of [`missing_member`](Self::missing_member) do not change either.
    pub fn ends(&self) -> u64 {
        self.inner.tagged().contexts.ends
    }

    /// Returns an error if a member of a group has ended for this context, or was restarted
    /// ([`ended_members`](Self::ended_members)). Considers only ends for causes for which `counts` returns true.
    #[must_use]
    pub fn missing_member(
        &self,
        context: u32,
        group: &Group,
        counts: impl Fn(&Cause) -> bool,
    ) -> Option<Error> {
        let (rank, cause) =
            self.ended_members(context, group).into_iter().find(|(_, cause)| counts(cause))?;
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Returns the name of an open context, which is the same at all members. Names are never used again, and numbers
    /// of contexts are. `None` if the context is not open.
    #[must_use]
    pub fn context_name(&self, context: u32) -> Option<u64> {
        let contexts = &self.inner.tagged().contexts;
        if context < FIRST { Some(context.into()) } else { contexts.name(context) }
    }

    /// Returns the members of a group that have ended for this context, or were restarted. In a context of all ranks, a
    /// rank that was restarted counts as [`Cause::Restarted`], although it may exchange messages: it does not have the
    /// state of its predecessor.
    #[must_use]
    pub fn ended_members(&self, context: u32, group: &Group) -> BTreeMap<WorldRank, Cause> {
        let (link, contexts) = (self.inner.link(), &self.inner.tagged().contexts);
        let identity = link.identity();
        let is_later = |rank, incarnation| context < FIRST && incarnation != identity.first_incarnation(rank);
        let of_job = link.peers().filter(|(_, peer)| group.contains(peer.rank())).filter_map(|(_, peer)| {
            let restarted = || {
                let incarnation = peer.incarnation()?;
                is_later(peer.rank(), incarnation).then_some(Cause::Restarted)
            };
            Some((peer.rank(), peer.failure().or_else(restarted)?))
        });
        let mut ends: BTreeMap<WorldRank, Cause> = of_job.collect();
        if context < FIRST && self.later_incarnation().is_some() {
            ends.insert(identity.rank, Cause::Restarted);
        }
        // The link's cause takes precedence, because a context does not know why a rank has ended for the whole job.
        for (rank, cause) in contexts.ended(context).filter(|(rank, _)| group.contains(*rank)) {
            ends.entry(rank).or_insert(cause);
        }
        ends
    }

    /// Notes that this rank begins the collective operation with this number, for the other members that ask
    /// ([`call_roll`](Self::call_roll)).
    #[inline]
    pub fn note_begun(&mut self, context: u32, number: u32) {
        self.inner.tagged_mut().contexts.note_begun(context, number);
    }

    /// Asks members of a communicator if they have begun the collective operation with this number. Returns a request
    /// that ends when all have answered, or at the time `until`. [`take_roll`](Self::take_roll) returns the answers,
    /// and must be called once for each roll call. If there are more members than a roll call asks, it asks the first
    /// ones. `members` contains no rank twice.
    #[cold]
    pub fn call_roll(
        &mut self,
        context: u32,
        number: u32,
        members: impl Iterator<Item = WorldRank>,
        until: Time,
    ) -> RequestId {
        let (out, tagged) = self.inner.with_tagged();
        let id = tagged.call_roll(out.link, (context, number), members, until);
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
        id
    }

    /// Ends a roll call, and returns the answers. A member that has failed or left meanwhile counts as one that has
    /// begun the operation.
    #[cold]
    pub fn take_roll(&mut self, id: RequestId) -> Members {
        self.inner.tagged_mut().take_roll(id)
    }

    /// Sends a message for which no caller waits. If its receiver fails, the message is lost. Never uses the outbox,
    /// whose budget is for the messages of the program.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::send`].
    #[cold]
    pub fn send_detached(
        &mut self,
        now: Time,
        to: WorldRank,
        context: u32,
        tag: u64,
        memory: Memory,
    ) -> Result<(), Error> {
        let id = self
            .isend_standard(now, to, (context, tag), memory, Time::NEVER, false)
            .map_err(|(error, _)| error)?;
        let requests = &mut self.inner.tagged_mut().requests;
        match requests.get_mut(id) {
            Some(request) if request.result.is_none() => request.collected = true,
            _ => {
                let ended = self.collect(id, &mut ());
                debug_assert!(ended.is_some() && self.outcome(id) == Outcome::Ready);
            }
        }
        Ok(())
    }

    /// Drops the unexpected messages that the pattern matches. For their senders these messages count as received.
    #[cold]
    pub fn discard_all(&mut self, pattern: &Pattern) {
        let (out, tagged) = self.inner.with_tagged();
        while let Some((unexpected, ..)) = tagged.matcher.probe(pattern) {
            tagged.discard_unexpected(out.link, unexpected);
        }
        if out.link.has_work() {
            self.inner.drive(&mut ());
        }
    }
}
