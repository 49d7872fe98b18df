//! Agreements of the surviving members of a communicator: on flags, and on a new communicator of the survivors.
//!
//! Such an agreement is one or more runs of [`Consensus`], whose messages are tagged messages in the communicator's
//! control context. All members begin these agreements in the same order, and count them. They also work if the
//! communicator is revoked.
//!
//! For a new communicator the survivors first agree on its members and on the largest name of contexts that one of them
//! would use next. Each member then opens the contexts with that name, and they agree if all could open them. If not,
//! all close them and begin again with a later name.
//!
//! A member whose caller has its result, or has given up, still answers the others, until the run is settled. If it
//! closes the communicator before that, the contexts are closed when the run is settled. If a member that fails may
//! prevent that, this member closes the contexts at once, and the others learn that it has retired: in agreements of
//! survivors it counts as failed, and its messages arrive.
//!
//! Only final ends of members count: see [`Finality`]. If two members have given up each other although both are alive,
//! the later one in the group counts as failed at both, and its own call ends with an error.

mod ballot;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use samite_fabric::Port;
use samite_fabric::link::{Cause, Error, Fate, Fault, Finality, Group, Incarnation, Time, WorldRank};
use samite_matching::Pattern;

use self::ballot::{Ballot, End, Goal, Known};
use crate::Engine;
use crate::agreement::{Agreed, AgreementId, Progress};
use crate::consensus::Consensus;
use crate::contexts::{FIRST, Incarnations};
use crate::engine::{COLLECTIVE_TAG, WithTagged as _};
use crate::tagged::{Claimed, HasTagged};

/// The three bits that are set in the tags of messages of agreements of survivors.
pub(crate) const SURVIVORS_TAG: u64 = COLLECTIVE_TAG | 1 << 62;

/// The mask for the bits of an agreement's number that a tag contains. The low 32 bits of the tag contain the number of
/// the run.
const NUMBERS: u32 = (1 << 29) - 1;

/// Returns true for the tags of messages of agreements of survivors.
#[inline]
pub(crate) const fn is_of_survivors(tag: u64) -> bool {
    tag & SURVIVORS_TAG == SURVIVORS_TAG
}

/// The result of [`Engine::begin_agree`]. All members that get a result get the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The bits that are set in the flags of all members that took part.
    pub flags: u64,
    /// The members that one of these members knew to have failed, except those that all of them have acknowledged.
    pub failed: Group,
}

/// The agreements of survivors of an engine.
#[derive(Debug, Default)]
pub(crate) struct Survivors {
    all: BTreeMap<AgreementId, Box<Ballot>>,
    /// For each control context, the number of the next agreement.
    numbers: HashMap<u32, u32>,
    /// For each control context, the failed members that the program has acknowledged.
    acknowledged: HashMap<u32, Group>,
    /// For each control context, the members that were found to have failed in a decision.
    decided: HashMap<u32, Group>,
    /// The control contexts whose communicator the program has closed, and that are still open.
    closing: BTreeSet<u32>,
}

/// The way to close a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    Now,
    /// When the agreements of survivors are settled.
    Later,
    /// Now, and the other members must learn that this one has retired.
    Announced,
}

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Begins an agreement of the members of a control context on the bits that are set in the flags of all. The
    /// members that survive get the same result, although members fail meanwhile. `members` are all members.
    ///
    /// # Panics
    /// If this rank is not a member.
    #[cold]
    pub fn begin_agree(
        &mut self,
        now: Time,
        control: u32,
        members: Group,
        flags: u64,
        deadline: Time,
    ) -> AgreementId {
        self.begin_survivors(now, control, members, (Goal::Agreeing, flags), deadline)
    }

    /// Begins an agreement of the surviving members of a control context on a context of their own: see
    /// [`begin_agree`](Self::begin_agree). It ends with a context as a creation does.
    ///
    /// # Panics
    /// If this rank is not a member.
    #[cold]
    pub fn begin_shrink(&mut self, now: Time, control: u32, members: Group, deadline: Time) -> AgreementId {
        self.begin_survivors(now, control, members, (Goal::Choosing, 0), deadline)
    }

    fn begin_survivors(
        &mut self,
        now: Time,
        control: u32,
        members: Group,
        (goal, flags): (Goal, u64),
        deadline: Time,
    ) -> AgreementId {
        self.set_now(now);
        let id = self.agreements.next_id();
        let mine = self.inner.link().identity().rank;
        let next = self.survivors.numbers.entry(control).or_default();
        let number = *next;
        *next += 1;
        let known = self.known(control, &members, mine);
        let (runs, incoming) = (Vec::new(), Vec::new());
        let mut agreement = Box::new(Ballot {
            id,
            control,
            members,
            mine,
            number,
            runs,
            goal,
            known,
            incoming,
            begun: now,
            deadline,
            result: None,
            is_unwanted: false,
            first: None,
            opened: None,
        });
        match goal {
            Goal::Choosing => agreement.choose(self, now),
            _ => agreement.begin_run(self, (flags, 0)),
        }
        self.survivors.all.insert(id, agreement);
        self.agreements.wake();
        self.advance_agreements(now, 0);
        id
    }

    /// Revokes the two contexts of a communicator, of which `context` is one: every operation there ends with
    /// [`Error::Revoked`], at every member, except the agreements of survivors.
    #[cold]
    pub fn revoke(&mut self, now: Time, context: u32) {
        let (out, tagged) = self.inner.with_tagged();
        out.link.set_now(now);
        tagged.revoke_contexts(out.link, context);
        self.inner.drive(&mut ());
        self.advance_agreements(now, 0);
    }

    /// Returns true if a member has revoked a context.
    #[must_use]
    pub fn is_revoked(&self, context: u32) -> bool {
        self.inner.tagged().contexts.is_revoked(context)
    }

    /// Returns the members of a control context that are known here to have failed or left, in the order of the group.
    #[must_use]
    pub fn failed_members(&self, control: u32, members: &Group) -> Group {
        let mut failed: BTreeSet<_> = self.ends_of(control, members).into_keys().collect();
        failed.extend(self.survivors.decided.get(&control).into_iter().flat_map(Group::iter));
        members.intersection(&Group::new(failed).expect("each rank is there once"))
    }

    /// Acknowledges the failures of members that are known here. Receives from any source do not report them, and later
    /// decisions do not contain them if all members have acknowledged them. `contexts` are the program's context and
    /// the control context.
    pub fn acknowledge(&mut self, [context, control]: [u32; 2], members: &Group) -> Group {
        let failed = self.failed_members(control, members);
        self.survivors.acknowledged.insert(control, failed.clone());
        self.inner.tagged_mut().acknowledge(context);
        failed
    }

    /// Returns the members of a context that have ended, with the finality of each end.
    fn ends_of(&self, control: u32, members: &Group) -> BTreeMap<WorldRank, Finality> {
        let (link, contexts) = (self.inner.link(), &self.inner.tagged().contexts);
        let identity = link.identity();
        let mut ends = BTreeMap::new();
        let mut known = BTreeSet::new();
        for (peer, state) in link.peers().filter(|(_, state)| members.contains(state.rank())) {
            let is_later = |incarnation| incarnation != identity.first_incarnation(state.rank());
            let restarted = || control < FIRST && state.incarnation().is_some_and(is_later);
            match link.finality(peer) {
                Some(finality) => {
                    known.insert(state.rank());
                    ends.insert(state.rank(), finality);
                }
                None if restarted() => _ = ends.insert(state.rank(), Finality::Final),
                None => {}
            }
        }
        if control < FIRST && self.later_incarnation().is_some() {
            ends.insert(identity.rank, Finality::Final);
        }
        // The link knows more about ranks that have ended for the whole job.
        let of_context = contexts.ended(control).map(|(rank, _)| rank);
        ends.extend(of_context.filter(|rank| !known.contains(rank)).map(|rank| (rank, Finality::Final)));
        ends.retain(|rank, _| members.contains(*rank));
        ends
    }

    /// Returns the members that count as failed at the member `mine`.
    fn known(&self, control: u32, members: &Group, mine: WorldRank) -> Known {
        let (mut failed, mut again, mut excluded) = (Vec::new(), Time::NEVER, None);
        let now = self.now();
        // A member that has retired lives, but does not answer.
        let retired = self.inner.tagged().contexts.retired(control).filter(|rank| members.contains(*rank));
        let mut ends = self.ends_of(control, members);
        ends.extend(retired.map(|rank| (rank, Finality::Final)));
        for (rank, finality) in ends {
            match finality {
                Finality::Awaited => again = now.after(AWAITED_NS),
                Finality::Final if rank == mine => excluded = Some((mine, Cause::Restarted)),
                Finality::Final => failed.push(rank),
                Finality::Disputed => {
                    again = now.after(AWAITED_NS);
                    if members.index(rank) > members.index(mine) {
                        failed.push(rank);
                    } else {
                        excluded = Some((rank, Cause::Lost));
                    }
                }
            }
        }
        if excluded.is_some() {
            failed.push(mine);
        }
        let failed = members.intersection(&Group::new(failed).expect("each rank is there once"));
        let excluded = excluded.map(|(rank, cause)| {
            let state = self.inner.link().peers().find(|(_, peer)| peer.rank() == rank);
            let cause = state.and_then(|(_, peer)| peer.failure()).unwrap_or(cause);
            Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None }
        });
        Known { failed, excluded, again, ends: self.ends() }
    }

    /// Advances the agreements of survivors. Returns the number of agreements that ended in this call.
    pub(crate) fn advance_survivors(&mut self, now: Time, events: usize) -> usize {
        let mut ended = 0;
        let ids: Vec<_> = self.survivors.all.keys().copied().collect();
        for id in ids {
            let Some(mut agreement) = self.survivors.all.remove(&id) else { continue };
            let was_pending = agreement.result.is_none() && !agreement.is_unwanted;
            agreement.advance(self, now, events);
            ended += usize::from(was_pending && agreement.result.is_some());
            if agreement.result.is_none() && !agreement.is_unwanted {
                self.agreements.wake_at(agreement.deadline);
            }
            self.agreements.wake_at(agreement.known.again);
            if !agreement.is_done() {
                self.survivors.all.insert(id, agreement);
            }
        }
        self.close_settled(now);
        ended
    }

    /// Closes the contexts that the program has closed, if the other members do not need this one any more.
    fn close_settled(&mut self, now: Time) {
        let closing: Vec<_> = self.survivors.closing.iter().copied().collect();
        for control in closing {
            self.part(now, control & !1);
        }
    }

    /// Closes the contexts of a communicator, or notes that they are to be closed.
    pub(crate) fn part(&mut self, now: Time, context: u32) {
        match self.survivors.parting(context) {
            Parting::Now => self.close_contexts_now(now, context),
            Parting::Later => self.note_activity(),
            Parting::Announced => {
                for opened in self.survivors.take_opened(context | 1) {
                    self.leave_agreed(now, Ok(Some(opened)));
                }
                let (out, tagged) = self.inner.with_tagged();
                out.link.set_now(now);
                tagged.retire_from(out.link, context);
                self.close_contexts_now(now, context);
            }
        }
    }

    /// Gives up an agreement whose result is not wanted. If it has created a context, this rank leaves it.
    pub(crate) fn drop_agreement_of_survivors(&mut self, now: Time, id: AgreementId) {
        let Some(agreement) = self.survivors.all.get_mut(&id) else { return };
        agreement.is_unwanted = true;
        if let Some(Ok(End::Context(agreed))) = agreement.result.take() {
            self.leave_agreed(now, Ok(Some(*agreed)));
        }
        self.agreements.wake();
    }

    /// Takes a message that has arrived.
    fn take_message(&mut self, pattern: &Pattern) -> Option<(usize, WorldRank, Claimed)> {
        let (out, tagged) = self.inner.with_tagged();
        let (envelope, message) = tagged.matcher.take(pattern)?;
        let bytes = message.bytes();
        Some((bytes, WorldRank(envelope.source), tagged.claimed(out.link, envelope, message)))
    }

    /// Returns the incarnations of the members of a new context that are not in their first one.
    fn incarnations_of(&self, control: u32, members: &Group) -> Incarnations {
        let link = self.inner.link();
        let ends = self.ends_of(control, members);
        let first = |rank| link.identity().first_incarnation(rank);
        let later = |rank: WorldRank, incarnation: Incarnation| {
            (incarnation != first(rank) && !ends.contains_key(&rank)).then(|| (rank, incarnation.get()))
        };
        let of_peers = link.peers().filter(|(_, peer)| members.contains(peer.rank()));
        let mut found: Incarnations =
            of_peers.filter_map(|(_, peer)| later(peer.rank(), peer.incarnation()?)).collect();
        let mine = self.later_incarnation().filter(|_| control >= FIRST);
        found.extend(mine.map(|incarnation| (link.identity().rank, incarnation)));
        found
    }

    /// Fails a peer that has sent something else than a message of an agreement.
    #[cold]
    fn refuse_sender(&mut self, rank: WorldRank) {
        if let Some(peer) = self.inner.link_mut().find(rank) {
            let cause = Cause::Protocol("an invalid message of an agreement of survivors".into());
            self.inner.fault(Fault::new(peer, cause));
        }
    }
}

impl Survivors {
    /// Returns true if an agreement needs polls.
    pub(crate) fn are_active(&self) -> bool {
        !self.closing.is_empty()
            || self.all.values().any(|agreement| !(agreement.is_settled() && agreement.incoming.is_empty()))
    }

    /// Returns true if an agreement has a result.
    #[cfg(test)]
    pub(crate) fn decides(&self, id: AgreementId) -> bool {
        self.all.get(&id).is_some_and(|agreement| agreement.result.is_some())
    }

    /// Returns the state of an agreement; `None` if there is no such agreement of survivors.
    pub(crate) fn progress(&mut self, id: AgreementId) -> Option<Progress> {
        let agreement = self.all.get_mut(&id).filter(|agreement| !agreement.is_unwanted)?;
        let Some(result) = agreement.result.take() else {
            let tag = agreement.tag(agreement.runs.len() - 1);
            return Some(Progress::Awaits { rank: agreement.awaited(), tag });
        };
        agreement.is_unwanted = true;
        if agreement.is_done() {
            self.all.remove(&id);
        }
        Some(match result {
            Ok(End::Decision(decision)) => Progress::Decided(decision),
            Ok(End::Context(agreed)) => Progress::Ended(Ok(Some(*agreed))),
            Err(error) => Progress::Ended(Err(error)),
        })
    }

    /// Gives up an agreement with this error, unless it has ended. This rank still answers the other members.
    pub(crate) fn quit(&mut self, id: AgreementId, error: Error) {
        if let Some(agreement) = self.all.get_mut(&id) {
            agreement.fail(error);
        }
    }

    /// Gives up an agreement because one of its messages could not be sent. Does nothing if the receiver has ended: the
    /// agreement learns of that in another way.
    pub(crate) fn note_unsent(&mut self, id: AgreementId, error: &Error) {
        if !matches!(error, Error::PeerFailed { .. } | Error::Abandoned { .. }) {
            self.quit(id, error.clone());
        }
    }

    /// Returns the way to close a communicator, and notes it if the communicator must stay open.
    fn parting(&mut self, context: u32) -> Parting {
        let control = context | 1;
        let of_control = |agreement: &&Ballot| agreement.control == control && !agreement.is_settled();
        let mut unsettled = self.all.values().map(Box::as_ref).filter(of_control).peekable();
        if unsettled.peek().is_none() {
            return Parting::Now;
        }
        let must_not_wait = |agreement: &Ballot| {
            agreement.goal != Goal::Over || agreement.runs.iter().any(Consensus::is_disrupted)
        };
        if unsettled.any(must_not_wait) {
            return Parting::Announced;
        }
        self.closing.insert(control);
        Parting::Later
    }

    /// Takes the contexts that were opened for communicators of the survivors of this one, and not returned.
    fn take_opened(&mut self, control: u32) -> Vec<Agreed> {
        let of_control = self.all.values_mut().filter(|agreement| agreement.control == control);
        of_control.filter_map(|agreement| agreement.opened.take()).map(|opened| *opened).collect()
    }

    /// Forgets everything about a control context that is closed.
    pub(crate) fn forget_context(&mut self, control: u32) {
        self.closing.remove(&control);
        self.numbers.remove(&control);
        self.acknowledged.remove(&control);
        self.decided.remove(&control);
        self.all.retain(|_, agreement| agreement.control != control);
    }

    /// Drops all agreements, because this rank's goodbye informs the other members.
    pub(crate) fn close(&mut self) {
        self.all.clear();
        self.closing.clear();
    }
}

/// The interval in nanoseconds at which members are checked again whose end is not final.
const AWAITED_NS: u64 = 2_000_000;
