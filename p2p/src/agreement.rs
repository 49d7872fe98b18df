//! Agreements: several ranks agree on the context of a new communicator.
//!
//! The ranks that create a communicator agree on its context in rounds. Each round has four steps along a binomial tree
//! of these ranks, whose root is the first of them:
//!
//! 1. Up: each rank sends its choice, its incarnation unless it is its first, and the next name of contexts that it
//!    could use, to its parent. A parent passes on the choices, the incarnations and the largest name. If the choices
//!    are regular, they take a few words for any number of ranks (see `choices`).
//! 2. Down: the root sends the largest name and all choices and incarnations. Each rank opens the contexts with that
//!    name. A rank cannot do so if it has meanwhile used that name or a later one for another agreement, or if the
//!    numbers of the contexts are in use there (see [`names`](crate::names)).
//! 3. Up: each rank reports to its parent if all ranks of its subtree have opened the contexts.
//! 4. Down: the root reports if the communicator exists. If a rank could not open the contexts, all ranks close them
//!    and begin again with a later name.
//!
//! Two agreements of the same ranks may choose the same name. If one rank opens its contexts for the first agreement,
//! and another rank opens them for the second, both agreements must begin again. If both then chose the next name, this
//! could go on for ever. So an agreement that begins again skips a number of names that differs from agreement to
//! agreement. The agreement with the later name then succeeds, because a rank refuses only names that are not later
//! than the last name that it has used.
//!
//! An agreement that finds the budget of communicators used up does not begin again, but fails. Otherwise two
//! agreements could block each other for ever, if each has opened the last contexts that are within the budget at one
//! rank, and finds none left at another.
//!
//! If a rank's child in the tree dies, the rank reports the failure to its parent, and the root reports it to all. If a
//! rank's parent dies, the rank reports the failure to its children. So all living ranks end with the same error, with
//! one exception: a rank may die in step 4, when other ranks have already received the result that the communicator
//! exists. The ranks below the dead rank in the tree then give up, and leave the context. They inform all members by
//! packets, and the members' operations with them end with [`Cause::LeftContext`].
//!
//! The ranks that have the communicator may begin to create another one from it, in which the ranks that left the
//! context take no part. So in steps 1 and 2 a rank stops waiting when it learns that any of the ranks has ended for
//! the context. In steps 3 and 4 it continues to wait: a rank that has ended may have left in good order after it got
//! the communicator, and all the other ranks still pass on the result.
//!
//! For an intercommunicator each of the two groups has a tree, whose root is the group's leader. At the end of steps 1
//! and 3 each leader sends the merged answer of its group to the other leader, in a control context (see below) of
//! which both are members, and merges the answer that it receives with its own. So both leaders come to the same
//! decision. The answer of step 1 contains the members of the sender's group.
//!
//! Callers may use the tag of an agreement again after it has ended, even if it failed. So messages of an earlier
//! attempt may arrive: see the module `exchange`.
//!
//! An agreement is a state machine. Each poll of the engine, in any call, takes the messages that have arrived and
//! sends the next ones. Any number of agreements may be under way at the same time. Their messages are tagged messages
//! in the *control context* of a communicator, the second of its two contexts, and the tag names the agreement. The
//! messages of collective operations are in the control context too, with other tags
//! ([`COLLECTIVE_TAG`](crate::COLLECTIVE_TAG)).

mod choices;
mod exchange;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use samite_fabric::link::{
    Awaited, Cause, Error, Fate, Group, Incarnation, Operation, Outcome, Report, RequestId, Time, WorldRank,
};
use samite_fabric::{Memory, Port, SplitMix64};
use samite_matching::{Pattern, Source};

use self::choices::{Choices, NO_COLOUR, Pair};
use self::exchange::{Exchange, Message, Stamp};
use crate::Engine;
use crate::contexts::{FIRST, Incarnations};
use crate::engine::WithTagged as _;
use crate::survivors::Decision;
use crate::tagged::HasTagged;

/// The arguments with which a rank begins an agreement.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The ranks that take part. This rank is one of them.
    pub ranks: Group,
    /// The context of the agreement's messages. Only messages of agreements may use this context.
    pub control: u32,
    /// `None` if all members of the control context take part. Such agreements are numbered, so all members must begin
    /// them in the same order. If only some members take part, this is a tag that distinguishes the agreement from
    /// other agreements that are under way at the same time.
    pub tag: Option<u32>,
    /// This rank's choice. The choices of all ranks determine the members of the new context.
    pub choice: Choice,
}

/// A rank's choice of the members of a new context.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The members of the new context. All ranks that take part pass the same group.
    Group(Group),
    /// A colour and a key. The ranks of each colour become the members of one communicator, ordered by key. A rank
    /// without a colour becomes a member of no communicator. `u64::MAX` is not valid as a colour.
    Colour(Option<u64>, i64),
    /// A colour and a key as in [`Colour`](Self::Colour), of all ranks of two groups. The ranks of each colour become
    /// two groups that communicate with each other. If one of the groups has no rank of a colour, the ranks of this
    /// colour become members of no communicator.
    ColourBetween {
        /// This rank's colour.
        colour: Option<u64>,
        /// This rank's key.
        key: i64,
        /// This rank's group.
        own: Group,
        /// The other group.
        remote: Group,
    },
    /// The ranks that take part become one of two groups that communicate with each other.
    Remote {
        /// This group's leader, which communicates with the other group: its index among the ranks that take part.
        leader: u32,
        /// The other group's leader. Only the value that this group's leader passes is used.
        other: Option<Leader>,
    },
    /// All ranks of two groups take part, and each of them already knows both groups: for example the groups of an
    /// intercommunicator that is duplicated.
    Groups {
        /// This rank's group.
        own: Group,
        /// The other group.
        remote: Group,
    },
}

/// The leader of the other group in the creation of an intercommunicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leader's rank.
    pub rank: WorldRank,
    /// A control context of which both leaders are members.
    pub control: u32,
    /// A tag that distinguishes this creation from other creations with the same leaders.
    pub tag: u32,
}

/// A context that was created. The context with the next number was opened too, for the agreements of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The name of the two contexts, which the job uses only once.
    pub name: u64,
    /// The number of the context on the wire.
    pub context: u32,
    /// The members of both contexts. If there are two groups, only the members of this rank's group.
    pub members: Group,
    /// The members of the other group, if there are two.
    pub remote: Option<Group>,
}

/// The state of an agreement.
#[derive(Debug)]
pub enum Progress {
    /// The agreement waits for a message from this rank with this tag.
    Awaits {
        /// The sender's rank in the job.
        rank: WorldRank,
        /// The tag.
        tag: u64,
    },
    /// The agreement has ended with a context, with `None` if this rank has no colour, or with an error. The result is
    /// returned once.
    Ended(Result<Option<Agreed>, Error>),
    /// An agreement that [`Engine::begin_agree`] has begun has ended. The result is returned once.
    Decided(Decision),
}

/// An agreement under way, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgreementId(u64);

/// The other engines of a rank that has several, one for each lane. A communicator's messages may go through any of
/// them, so its contexts are opened in each.
pub trait Others: std::fmt::Debug + Send {
    /// Opens the contexts with a name in these engines, for these incarnations of the members: see
    /// [`Engine::open_between`]. Returns false, and opens none, if one of the engines cannot open them.
    fn open(&self, name: u64, group: &Group, remote: Option<&Group>, incarnations: &Incarnations) -> bool;

    /// Closes contexts that were opened for a communicator, because no rank has created the communicator.
    fn withdraw(&self, context: u32);

    /// Closes the contexts of a communicator, and informs the other members.
    fn leave(&self, context: u32);
}

/// The agreements of an engine.
#[derive(Debug)]
pub(crate) struct Agreements {
    /// The agreements whose result was not taken, in the order in which they began.
    all: BTreeMap<AgreementId, Box<Agreement>>,
    next: u64,
    /// For each control context, the number of the next agreement in which all its members take part.
    numbers: HashMap<u32, u64>,
    /// The sends of messages of agreements. A send is removed when it has ended.
    sends: Vec<Sending>,
    /// The earliest deadline.
    due: Time,
    /// True if a call has changed an agreement, so that the next poll must advance the agreements even if no message
    /// arrives.
    is_due: bool,
    /// False if no agreement and no message remains, so that polls have nothing to do here.
    pub(crate) is_active: bool,
    /// The count of ends of ranks ([`Contexts::ends`](crate::contexts::Contexts::ends)) when the agreements were last
    /// advanced. If it has changed since, agreements may have to end.
    ends: u64,
    others: Option<Box<dyn Others>>,
}

impl Default for Agreements {
    fn default() -> Self {
        let (all, numbers) = (BTreeMap::new(), HashMap::new());
        Self {
            all,
            next: 0,
            numbers,
            sends: Vec::new(),
            due: Time::NEVER,
            is_due: false,
            is_active: false,
            ends: 0,
            others: None,
        }
    }
}

/// The send of a message of an agreement.
#[derive(Clone, Copy, Debug)]
struct Sending {
    request: RequestId,
    to: WorldRank,
    agreement: AgreementId,
}

/// One agreement.
#[derive(Debug)]
struct Agreement {
    id: AgreementId,
    ranks: Group,
    /// The index of the tree's root in `ranks`.
    root: u32,
    /// The index of this rank in the tree: its distance from the root in `ranks`, where the first rank follows the last
    /// one.
    index: u32,
    control: u32,
    tag: Option<u32>,
    /// The agreement's number, if all members of the control context take part. This rank drops messages of agreements
    /// with smaller numbers, which it has given up.
    number: u64,
    choice: Choice,
    begun: Time,
    deadline: Time,
    round: Round,
    step: Step,
    /// The answers that have arrived in this round, merged.
    answer: Answer,
    /// If each rank chooses a colour: the choices of this rank and of the ranks of its subtree whose answers have
    /// arrived. Once the parent has sent the decision, the choices of all ranks.
    choices: Choices,
    /// The message that is being received.
    incoming: Option<RequestId>,
    /// The exchanges with other ranks under tags that may be used again. Each entry is the other rank, true for the
    /// exchange between the two leaders, and the state of the exchange.
    exchanges: Vec<(WorldRank, bool, Exchange)>,
    /// The reason why this rank has given up, if it has.
    gave_up: Option<Error>,
    /// At the root: the name that was chosen in the first round of this agreement.
    first: Option<u64>,
    /// The incarnations of this rank and of the ranks of its subtree whose answers have arrived. Once the decision has
    /// arrived, the incarnations of all ranks.
    incarnations: Incarnations,
    /// The incarnation of the parent, or of the other leader, to which this rank has sent its answer of the first
    /// round. Only this incarnation sends the decision. `None` if it is not known yet.
    awaited: Option<Incarnation>,
    /// How often the agreement has begun again.
    repetitions: u32,
    /// The contexts that this rank opened in step 2 of the module's list.
    opened: Option<Box<Agreed>>,
    result: Option<Box<Result<Option<Agreed>, Error>>>,
    /// True if the caller does not want the result any more.
    is_dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The ranks choose a name (steps 1 and 2).
    Choosing,
    /// The ranks report if they have opened the context (steps 3 and 4).
    Opening,
}

/// The sender of the awaited message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The child with this number.
    Child(u32),
    Parent,
    /// The leader of the other group.
    Leader(Leader),
}

/// The merged answer of one or more ranks in a round.
#[derive(Clone, Debug)]
struct Answer {
    /// The largest vote of the ranks.
    vote: Vote,
    /// The largest of the names that the ranks would use next.
    next: u64,
    /// If all ranks vote [`Vote::Yes`] in the first round: the incarnations of ranks ([`write_incarnations`]), and
    /// behind them the colours and keys of the ranks ([`Choices::to_words`]). For an intercommunicator, a group
    /// ([`Group::to_words`]) instead of colours and keys.
    words: Vec<u64>,
}

/// A rank's vote in a round. Of several votes the largest prevails, in the order of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Vote {
    Yes,
    /// The voting rank cannot open the contexts with this name. The ranks will begin again with a later name.
    Again,
    /// The named rank has given up the agreement.
    GaveUp(WorldRank),
    /// No name is free, or a rank has as many communicators as it may have.
    Exhausted,
    /// The named rank has left the job.
    Left(WorldRank),
    /// The named rank has failed.
    Failed(WorldRank),
    /// The named rank is in both groups.
    Both(WorldRank),
}

/// Stands for the number of an agreement at a restarted rank, until that rank learns the number from a message of
/// another rank.
const UNKNOWN: u64 = BY_SOME - 1;

/// The bit that is set in the tags of agreements in which only some members take part.
pub(crate) const BY_SOME: u64 = 1 << 63;

/// The bit that is set, beside [`BY_SOME`], in the tags of messages between leaders.
const BY_LEADERS: u64 = 1 << 62;

/// Only names below this one are used, so that the computation of the next name cannot overflow.
pub(crate) const LAST: u64 = u64::MAX - (1 << 34);

/// The number of names among which an agreement chooses when it begins again. With 4, two agreements choose different
/// names in three of four repetitions. With a larger number, the numbers of contexts are further apart, and each of the
/// [`Pages`](crate::pages::Pages) holds fewer of them: with 256, each of 3 million communicators took 263 bytes, and
/// with 4 it takes 235.
const SKIPS: u64 = 4;

/// The longest time in nanoseconds by which a deadline is put off while polls deliver events. One poll takes a limited
/// number of packets, so the awaited message may have arrived in time, and a later poll delivers it.
const SLACK_NS: u64 = 1_000_000;

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Begins an agreement in which this rank takes part. Each poll advances it.
    ///
    /// # Panics
    /// If [`Proposal::ranks`] does not contain this rank.
    #[cold]
    pub fn begin_agreement(&mut self, now: Time, proposal: Proposal, deadline: Time) -> AgreementId {
        let mine = self.inner.link().identity().rank;
        let agreements = &mut self.agreements;
        let number = proposal.tag.map_or_else(|| agreements.number(proposal.control), |_| 0);
        let id = agreements.next_id();
        let mut agreement = Box::new(Agreement::new(id, proposal, mine, number, now, deadline));
        agreement.propose(self.propose_name(now, agreement.opens(), 0), self.later_incarnation());
        self.agreements.all.insert(id, agreement);
        (self.agreements.is_due, self.agreements.is_active) = (true, true);
        self.agreements.due = self.agreements.due.min(deadline);
        self.advance_agreements(now, 0);
        id
    }

    /// Returns the state of an agreement; `None` if its result was taken.
    pub fn agreement(&mut self, id: AgreementId) -> Option<Progress> {
        if let Some(progress) = self.survivors.progress(id) {
            return Some(progress);
        }
        let agreement = self.agreements.all.get_mut(&id)?;
        if let Some(result) = agreement.result.take() {
            self.agreements.all.remove(&id);
            return Some(Progress::Ended(*result));
        }
        if agreement.number == UNKNOWN
            && let Some(error) = &agreement.gave_up
        {
            // This rank was restarted and does not know the agreement's number yet. The agreement stays, and informs
            // the other ranks as soon as it knows the number.
            agreement.is_dropped = true;
            return Some(Progress::Ended(Err(error.clone())));
        }
        Some(Progress::Awaits { rank: agreement.awaited(), tag: agreement.channel().1 })
    }

    /// Gives up an agreement with this error, unless the agreement has ended. The other ranks receive an error.
    #[cold]
    pub fn quit_agreement(&mut self, now: Time, id: AgreementId, error: Error) {
        if let Some(agreement) = self.agreements.all.get_mut(&id) {
            agreement.gave_up.get_or_insert(error);
            self.agreements.is_due = true;
            self.advance_agreements(now, 0);
        } else {
            self.survivors.quit(id, error);
        }
    }

    /// Gives up an agreement whose result is not wanted. If it has created a context, this rank leaves it.
    #[cold]
    pub fn drop_agreement(&mut self, now: Time, id: AgreementId) {
        if let Some(agreement) = self.agreements.all.get_mut(&id) {
            agreement.is_dropped = true;
            self.quit_agreement(now, id, Error::Cancelled { fate: Fate::NotDelivered });
        } else {
            self.drop_agreement_of_survivors(now, id);
        }
    }

    /// Announces that this rank was restarted, so it does not know how many agreements the job's ranks have begun so
    /// far. It learns the number from the next message of an agreement.
    pub fn expect_numbers(&mut self) {
        self.agreements.numbers.insert(0, UNKNOWN);
    }

    /// Advances all agreements by the messages that have arrived. Returns the number of agreements that ended in this
    /// call.
    #[cold]
    pub(crate) fn advance_agreements(&mut self, now: Time, events: usize) -> usize {
        self.forget_sent();
        let ended = self.advance_all(now, events);
        // A send that `advance_all` has begun may have failed already. Then its agreement is due again.
        self.forget_sent();
        self.note_activity();
        ended
    }

    fn advance_all(&mut self, now: Time, events: usize) -> usize {
        let ends = self.inner.tagged().contexts.ends;
        let agreements = &mut self.agreements;
        let has_news = events > 0 || agreements.ends != ends || now >= agreements.due;
        if !(std::mem::take(&mut agreements.is_due) || has_news) {
            return 0;
        }
        agreements.ends = ends;
        agreements.due = Time::NEVER;
        let mut ended = self.advance_survivors(now, events);
        let ids: Vec<_> = self.agreements.all.keys().copied().collect();
        for id in ids {
            let Some(mut agreement) = self.agreements.all.remove(&id) else { continue };
            if agreement.result.is_none() {
                if self.agreements.has_number(&mut agreement, id) {
                    agreement.advance(self, now, events);
                } else {
                    agreement.check_deadline(self, now, events);
                }
                ended += usize::from(agreement.result.is_some());
            }
            match agreement.result {
                Some(result) if agreement.is_dropped => self.leave_agreed(now, *result),
                None if agreement.gave_up.is_none() => {
                    self.agreements.due = self.agreements.due.min(agreement.deadline);
                    self.agreements.all.insert(id, agreement);
                }
                _ => {
                    self.agreements.all.insert(id, agreement);
                }
            }
        }
        ended
    }

    /// Notes if polls have anything to do for agreements.
    pub(crate) fn note_activity(&mut self) {
        let agreements = &mut self.agreements;
        agreements.is_active =
            !agreements.all.is_empty() || !agreements.sends.is_empty() || self.survivors.are_active();
    }

    /// Returns a rank to which a message of an agreement is still being sent, or `None` if there is none. Call
    /// [`close`](Self::close) only when it is `None`: a message whose bytes did not travel with its envelope is lost if
    /// the goodbye overtakes the bytes.
    pub fn unsent_answer(&mut self) -> Option<WorldRank> {
        self.forget_sent();
        self.agreements.sends.first().map(|sending| sending.to)
    }

    /// Leaves the contexts that an agreement has created, because this rank will not use the communicator. The other
    /// members may have the communicator, so they are informed.
    pub(crate) fn leave_agreed(&mut self, now: Time, result: Result<Option<Agreed>, Error>) {
        if let Ok(Some(Agreed { context, .. })) = result {
            self.leave_contexts(now, context);
            self.others().for_each(|others| others.leave(context));
        }
    }

    /// Sets the other engines of this rank. Agreements open their contexts in these engines too.
    pub fn set_others(&mut self, others: Box<dyn Others>) {
        self.agreements.others = Some(others);
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = &dyn Others> {
        self.agreements.others.as_deref().into_iter()
    }

    /// Opens the contexts of a communicator in all engines of this rank. Returns false if one of them cannot.
    pub(crate) fn open_agreed(
        &mut self,
        now: Time,
        name: u64,
        group: &Group,
        remote: Option<&Group>,
        incarnations: &Incarnations,
    ) -> Result<bool, Error> {
        if !self.open_between(name, group.clone(), remote, incarnations)? {
            return Ok(false);
        }
        let Some(others) = &self.agreements.others else { return Ok(true) };
        let are_open = others.open(name, group, remote, incarnations);
        if !are_open {
            self.withdraw_contexts(now, self.context_of(name));
        }
        Ok(are_open)
    }

    /// Collects the sends that have ended. If a send has failed although its receiver takes part, this rank gives up
    /// the agreement with the error of the send, because the receiver waits for the message. The next call of
    /// `advance_all` informs the other ranks.
    fn forget_sent(&mut self) {
        let mut sends = std::mem::take(&mut self.agreements.sends);
        sends.retain(|Sending { request, agreement, .. }| {
            let is_under_way = self.outcome(*request) == Outcome::Pending;
            if !is_under_way
                && let Some(Err(error)) = self.collect(*request, &mut ()).map(|ended| ended.result)
            {
                self.survivors.note_unsent(*agreement, &error);
                self.agreements.note_unsent(*agreement, error);
            }
            is_under_way
        });
        self.agreements.sends = sends;
    }

    /// Returns true if the send of a message of an agreement has ended, and was not collected yet.
    pub(crate) fn has_sent_answers(&self) -> bool {
        self.agreements.sends.iter().any(|sending| self.outcome(sending.request) != Outcome::Pending)
    }

    /// Drops the messages of numbered agreements that have ended at this rank. Such messages arrive after this rank has
    /// given up an agreement.
    fn drop_tardy(&mut self, control: u32) {
        let first = self.agreements.first_number(control);
        // One pattern for each bit that is set in `first`. It matches the numbers that agree with `first` in the bits
        // above, and in which this bit is not set. Together these patterns match exactly the numbers below `first`.
        for bit in (0..u64::BITS).filter(|bit| first != UNKNOWN && first >> bit & 1 == 1) {
            let pattern =
                Pattern { context: control, source: Source::ANY, tag: first & !(1 << bit), mask: !0 << bit };
            self.discard_all(&pattern);
        }
    }
}

impl Agreements {
    /// Returns the name of a new agreement.
    pub(crate) fn next_id(&mut self) -> AgreementId {
        let id = AgreementId(self.next);
        self.next += 1;
        id
    }

    /// Notes that the next poll must advance the agreements even if no message arrives.
    pub(crate) fn wake(&mut self) {
        (self.is_due, self.is_active) = (true, true);
    }

    /// Notes that a packet has arrived outside of a poll. The next poll then advances the agreements under way.
    #[inline(always)]
    pub(crate) fn note_packet(&mut self) {
        self.is_due |= self.is_active;
    }

    /// Notes that the agreements must be advanced at this time at the latest.
    pub(crate) fn wake_at(&mut self, due: Time) {
        self.due = self.due.min(due);
    }

    /// Notes a message that is being sent.
    pub(crate) fn note_send(&mut self, request: RequestId, to: WorldRank, agreement: AgreementId) {
        self.sends.push(Sending { request, to, agreement });
    }

    /// Gives up an agreement because one of its messages could not be sent. Does nothing if the receiver has ended or
    /// no longer takes part: the agreement learns of that in another way.
    #[cold]
    fn note_unsent(&mut self, id: AgreementId, error: Error) {
        if let Error::PeerFailed { .. } | Error::Abandoned { .. } = error {
            return;
        }
        if let Some(agreement) = self.all.get_mut(&id).filter(|agreement| agreement.result.is_none()) {
            agreement.gave_up.get_or_insert(error);
            self.is_due = true;
        }
    }

    /// Returns the time of the earliest deadline, or [`Time::ZERO`] if a call has changed an agreement.
    pub(crate) fn due(&self) -> Time {
        if self.is_due { Time::ZERO } else { self.due }
    }

    /// Drops all agreements and sends nothing to the other ranks, because this rank's goodbye informs them.
    pub(crate) fn close(&mut self) {
        self.all.clear();
    }

    /// Forgets the number of the next agreement of a control context.
    pub(crate) fn forget_context(&mut self, context: u32) {
        self.numbers.remove(&context);
    }

    /// Returns the number for a new agreement in which all members of a control context take part, and counts it.
    fn number(&mut self, control: u32) -> u64 {
        let next = self.numbers.entry(control).or_default();
        let number = *next;
        *next += u64::from(number != UNKNOWN);
        number
    }

    /// Gives an agreement its number, if the number was unknown and is known now. Returns true if the agreement can
    /// advance: if it has a number, or is the first of the agreements that wait to learn theirs.
    fn has_number(&mut self, agreement: &mut Agreement, id: AgreementId) -> bool {
        if agreement.number == UNKNOWN {
            agreement.number = self.number(agreement.control);
        }
        let learns = |other: &Agreement| other.number == UNKNOWN && other.result.is_none();
        agreement.number != UNKNOWN || !self.all.range(..id).any(|(_, earlier)| learns(earlier))
    }

    /// Returns the number of the first agreement that has not ended, of those in which all members of a control context
    /// take part.
    fn first_number(&self, control: u32) -> u64 {
        let under_way = |agreement: &&Agreement| {
            agreement.control == control && agreement.tag.is_none() && agreement.result.is_none()
        };
        let numbers = self.all.values().map(Box::as_ref).filter(under_way).map(|agreement| agreement.number);
        let next = self.numbers.get(&control).copied().unwrap_or(0);
        numbers.chain([next]).min().unwrap_or(next)
    }
}

impl Agreement {
    /// Returns an agreement at the rank `mine`, which has taken no step.
    ///
    /// # Panics
    /// If [`Proposal::ranks`] does not contain this rank.
    fn new(
        id: AgreementId,
        proposal: Proposal,
        mine: WorldRank,
        number: u64,
        begun: Time,
        deadline: Time,
    ) -> Self {
        let Proposal { ranks, control, tag, choice } = proposal;
        let index = ranks.index(mine).expect("this rank takes part");
        let root = if let Choice::Remote { leader, .. } = choice { leader % ranks.len() } else { 0 };
        let index = in_tree(index, root, ranks.len());
        Self {
            id,
            ranks,
            root,
            index,
            control,
            tag,
            number,
            choice,
            begun,
            deadline,
            round: Round::Choosing,
            step: Step::Child(0),
            answer: Answer::of_vote(Vote::Yes),
            choices: Choices::default(),
            incoming: None,
            exchanges: Vec::new(),
            gave_up: None,
            first: None,
            incarnations: Incarnations::new(),
            awaited: None,
            repetitions: 0,
            opened: None,
            result: None,
            is_dropped: false,
        }
    }

    /// Returns true if this rank opens the contexts: if it becomes a member of the new communicator.
    fn opens(&self) -> bool {
        self.mine().is_none_or(|mine| mine.colour != NO_COLOUR)
    }

    /// Begins a round. `next` is the first name that is free at this rank; if it is `None`, this rank cannot open
    /// further contexts, and votes [`Vote::Exhausted`]. `incarnation` is this rank's, unless it is its first.
    fn propose(&mut self, next: Option<u64>, incarnation: Option<u32>) {
        let next = next.unwrap_or(LAST);
        let vote = if next < LAST { Vote::Yes } else { Vote::Exhausted };
        self.choices = self.mine().map_or_else(Choices::default, Choices::of);
        let mine = self.world_rank(self.index);
        self.incarnations = incarnation.map(|incarnation| (mine, incarnation)).into_iter().collect();
        (self.round, self.step) = (Round::Choosing, Step::Child(0));
        self.answer = Answer { next, ..Answer::of_vote(vote) };
    }

    /// Takes the awaited messages one after the other, until one has not arrived or the agreement has ended.
    fn advance<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, events: usize) {
        while self.result.is_none() {
            match (self.step, self.awaited_rank()) {
                (Step::Child(number), Some(child)) => {
                    match self.hear(engine, child, now, events) {
                        None => return,
                        Some(Ok(answer)) => match self.choices_in(&answer, self.below(number)) {
                            Some((incarnations, choices)) => {
                                self.answer.merge(&answer);
                                self.incarnations.extend(incarnations);
                                self.choices.append(choices);
                            }
                            None => self.answer.merge(&Answer::of_vote(Vote::GaveUp(child))),
                        },
                        Some(Err(error)) => {
                            self.answer.vote = self.answer.vote.max(self.vote_of(&error));
                            self.note(error);
                        }
                    }
                    self.step = Step::Child(number + 1);
                }
                (Step::Child(_), None) => {
                    if self.round == Round::Choosing && self.answer.vote == Vote::Yes {
                        self.answer.words = write_incarnations(&self.incarnations);
                        self.answer.words.extend(self.choices.to_words());
                    }
                    if let Some(parent) = self.parent() {
                        self.send(engine, parent, now);
                        self.awaited = engine.known_incarnation(parent);
                        self.step = Step::Parent;
                    }
                    let leader = self.leader();
                    if let Some(leader) = leader {
                        if self.round == Round::Choosing {
                            self.answer.words = write_incarnations(&self.incarnations);
                            self.answer.words.extend(self.ranks.to_words());
                        }
                        self.send(engine, leader.rank, now);
                        self.awaited = engine.known_incarnation(leader.rank);
                        self.step = Step::Leader(leader);
                    }
                    if self.parent().is_none() && leader.is_none() || self.gave_up.is_some() {
                        self.limit(engine);
                        self.decide(engine, now, events);
                    }
                }
                (Step::Leader(leader), _) => {
                    match self.hear(engine, leader.rank, now, events) {
                        None => return,
                        Some(Ok(theirs)) => {
                            self.merge_group(engine, theirs);
                            if self.round == Round::Choosing && self.answer.vote != Vote::Yes {
                                // The other leader may have given up before it took this group's answer. Then its next
                                // attempt may take the answer. So this rank sends another message, which makes the
                                // answer void.
                                self.send(engine, leader.rank, now);
                            }
                        }
                        Some(Err(error)) => {
                            self.answer.vote = self.answer.vote.max(self.vote_of(&error));
                            self.note(error);
                            if self.round == Round::Choosing {
                                // The other leader may not have given up: it may have decided to open the contexts, and
                                // wait for this group's vote in step 3. So it is informed.
                                self.send(engine, leader.rank, now);
                            }
                        }
                    }
                    self.limit(engine);
                    self.decide(engine, now, events);
                }
                (Step::Parent, parent) => {
                    let parent = parent.expect("a rank that awaits its parent has one");
                    match self.hear(engine, parent, now, events) {
                        None => return,
                        // The parent has given up before it took this rank's answer, and its next attempt may take the
                        // answer. So this rank sends another message, which makes the answer void.
                        Some(Ok(decision)) if !self.is_answered(parent) => {
                            self.refuse(engine, decision.vote, now);
                        }
                        Some(Ok(decision)) => match self.choices_in(&decision, 0..self.ranks.len()) {
                            Some((incarnations, choices)) => {
                                (self.answer, self.incarnations, self.choices) =
                                    (decision, incarnations, choices);
                            }
                            None => self.refuse(engine, self.objection(&decision, parent), now),
                        },
                        Some(Err(error)) => {
                            self.refuse(engine, self.vote_of(&error), now);
                            self.note(error);
                        }
                    }
                    self.decide(engine, now, events);
                }
            }
        }
    }

    /// Gives up the agreement while the parent's message is awaited. The parent may be alive, and wait for this rank's
    /// vote in step 3. So it is informed.
    fn refuse<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, vote: Vote, now: Time) {
        self.answer = Answer::of_vote(vote);
        let parent = self.parent().expect("a rank that awaits its parent has one");
        self.send(engine, parent, now);
    }

    /// Returns this rank's vote on a decision that it cannot accept. An earlier incarnation of this rank may have taken
    /// part in the agreement. Otherwise the decision violates the protocol.
    fn objection(&self, decision: &Answer, parent: WorldRank) -> Vote {
        let mine = self.world_rank(self.index);
        match read_incarnations(&decision.words) {
            Some((found, _)) if found.get(&mine) != self.incarnations.get(&mine) => Vote::Failed(mine),
            _ => Vote::GaveUp(parent),
        }
    }

    /// Returns the indices of the ranks in the subtree of a child.
    fn below(&self, number: u32) -> Range<u32> {
        let (first, end) = (u64::from(self.index) + (1 << number), u64::from(self.index) + (2 << number));
        // The child exists, and its index fits.
        first as u32..end.min(u64::from(self.ranks.len())) as u32
    }

    /// Returns the incarnations and the choices in an answer of the ranks in `of`. Both are empty if no communicator
    /// will be created. The choices are empty if the ranks choose no colours. Returns `None` if these ranks cannot have
    /// sent the answer, or if the answer contains another incarnation of this rank, or another choice than it has made.
    fn choices_in(&self, answer: &Answer, of: Range<u32>) -> Option<(Incarnations, Choices)> {
        match (self.round, answer.vote) {
            (Round::Choosing, Vote::Yes) => {}
            (Round::Choosing, Vote::Again) => return None,
            _ => return Some(Default::default()),
        }
        let (incarnations, words) = read_incarnations(&answer.words)?;
        let has_group = matches!(self.choice, Choice::Remote { .. }) && of.start == 0;
        if !self.are_possible(&incarnations, &of, has_group) {
            return None;
        }
        let Some(mine) = self.mine() else {
            return (words.is_empty() != has_group).then(|| (incarnations, Choices::default()));
        };
        let choices = Choices::from_words(words, of.len() as u32)?;
        let index = self.index.checked_sub(of.start).filter(|_| of.contains(&self.index));
        let is_kept = index.is_none_or(|index| choices.get(index) == Some(mine));
        is_kept.then_some((incarnations, choices))
    }

    /// Returns true if an answer of the ranks in `of` can contain these incarnations. If `has_group` is true, the
    /// answer contains the incarnations of the other group too.
    fn are_possible(&self, incarnations: &Incarnations, of: &Range<u32>, has_group: bool) -> bool {
        let mine = self.world_rank(self.index);
        let is_kept = !of.contains(&self.index) || incarnations.get(&mine) == self.incarnations.get(&mine);
        let is_of = |rank: &WorldRank| match self.ranks.index(*rank) {
            Some(index) => of.contains(&in_tree(index, self.root, self.ranks.len())),
            None => has_group,
        };
        is_kept && incarnations.keys().all(is_of)
    }

    /// Returns this rank's colour and key, if the ranks choose colours.
    fn mine(&self) -> Option<Pair> {
        match self.choice {
            Choice::Colour(colour, key) | Choice::ColourBetween { colour, key, .. } => {
                Some(Pair { colour: colour.unwrap_or(NO_COLOUR), key })
            }
            Choice::Group(_) | Choice::Groups { .. } | Choice::Remote { .. } => None,
        }
    }

    /// Merges the answer of the other group with the answer of this group.
    fn merge_group<P: Port, S: HasTagged>(&mut self, engine: &Engine<P, S>, theirs: Answer) {
        let theirs = match (self.round, theirs.vote) {
            (Round::Choosing, Vote::Again) => Answer::of_vote(Vote::GaveUp(self.awaited())),
            _ => theirs,
        };
        let choosing = self.round == Round::Choosing && theirs.vote == Vote::Yes;
        self.answer.words.clear();
        if choosing {
            let are_theirs = |(incarnations, remote): &(Incarnations, Group)| {
                incarnations.keys().all(|rank| remote.contains(*rank))
            };
            let vote = match group_in(&theirs.words, engine.job_size()).filter(are_theirs) {
                Some((incarnations, remote)) => match remote.intersection(&self.ranks).bounds() {
                    Some((rank, _)) => Vote::Both(rank),
                    None => {
                        self.incarnations.extend(incarnations);
                        self.answer.words = write_incarnations(&self.incarnations);
                        self.answer.words.extend(remote.to_words());
                        Vote::Yes
                    }
                },
                None => Vote::GaveUp(self.awaited()),
            };
            self.answer.vote = self.answer.vote.max(vote);
        }
        self.answer.merge(&theirs);
    }

    /// Passes the decision of a round down, and acts on it.
    fn decide<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, events: usize) {
        // The child with the largest subtree comes first: then the last rank is reached after as many sends, one after
        // the other, as the tree has levels.
        let children: Vec<_> = (0..self.children()).rev().filter_map(|number| self.child(number)).collect();
        for child in children {
            self.send(engine, child, now);
        }
        let vote = self.answer.vote;
        let end = match (self.gave_up.take(), self.round, vote) {
            (Some(error), ..) => Err(error),
            (None, Round::Choosing, Vote::Yes) => match self.open(engine, now) {
                Ok(vote) => {
                    self.choices = Choices::default();
                    (self.round, self.step) = (Round::Opening, Step::Child(0));
                    self.answer = Answer::of_vote(vote);
                    return;
                }
                Err(error) => Err(error),
            },
            (None, Round::Opening, Vote::Yes) => Ok(self.opened.take().map(|opened| *opened)),
            (None, Round::Opening, Vote::Again) => {
                self.withdraw(engine, now);
                self.repetitions += 1;
                let skipped = self.skipped_names(engine.contexts_max());
                let next = engine.propose_name(now, self.opens(), skipped);
                self.propose(next, engine.later_incarnation());
                // The deadline must be checked here: if the messages of the next round have all arrived already, the
                // agreement goes on without waiting, and a wait is the only other place where the deadline is checked.
                self.check_deadline(engine, now, events);
                return;
            }
            (None, Round::Opening, Vote::Exhausted) => {
                self.withdraw(engine, now);
                Err(engine.error_of(vote))
            }
            (None, _, vote) => Err(engine.error_of(vote)),
        };
        if let Some(id) = self.incoming.take() {
            engine.forget(id);
        }
        if let Some(opened) = self.opened.take() {
            // Other ranks may have the communicator, and must learn that this rank does not use it.
            engine.leave_agreed(now, Ok(Some(*opened)));
        }
        self.result = Some(Box::new(end));
        if self.tag.is_none() {
            engine.drop_tardy(self.control);
        }
    }

    /// Closes the contexts that this rank has opened, because no rank has created the communicator. So no member needs
    /// to be informed.
    fn withdraw<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) {
        if let Some(Agreed { context, .. }) = self.opened.take().map(|opened| *opened) {
            engine.withdraw_contexts(now, context);
            engine.others().for_each(|others| others.withdraw(context));
        }
    }

    /// Returns the number of free names that this agreement skips when it begins again: a random number below
    /// [`SKIPS`]. If there are few numbers of contexts (`space`), it is less than a sixteenth of them, so that most of
    /// them are tried.
    fn skipped_names(&self, space: u64) -> u64 {
        let seed = u64::from(self.control).rotate_left(32) ^ self.tag() ^ u64::from(self.repetitions) << 48;
        SplitMix64::new(seed).below(SKIPS.min(space / 16))
    }

    /// At the root: gives the agreement up if the names that were tried so far extend over all numbers of contexts
    /// twice, because then hardly any number is free at all ranks.
    fn limit<P: Port, S: HasTagged>(&mut self, engine: &Engine<P, S>) {
        let first = *self.first.get_or_insert(self.answer.next);
        if self.answer.next.saturating_sub(first) > 2 * engine.contexts_max() {
            self.answer.vote = self.answer.vote.max(Vote::Exhausted);
        }
    }

    /// Opens the contexts of the communicator. Returns [`Vote::Again`] if this rank cannot use their name, and
    /// [`Vote::Exhausted`] if it has as many communicators as it may have.
    fn open<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) -> Result<Vote, Error> {
        let name = self.answer.next;
        if name < FIRST.into() || name >= LAST || !name.is_multiple_of(2) {
            return Err(engine.error_of(Vote::Exhausted));
        }
        let (members, remote) = match &self.choice {
            Choice::Group(group) => (Some(group.clone()), None),
            Choice::Colour(colour, _) => (colour.map(|colour| self.members_of(colour)), None),
            Choice::ColourBetween { colour, own, remote, .. } => {
                let all = colour.map_or(Group::EMPTY, |colour| self.members_of(colour));
                let (own, remote) = (all.intersection(own), all.intersection(remote));
                if remote.is_empty() { (None, None) } else { (Some(own), Some(remote)) }
            }
            Choice::Groups { own, remote } => (Some(own.clone()), Some(remote.clone())),
            Choice::Remote { .. } => {
                let is_apart = |remote: &Group| remote.intersection(&self.ranks).is_empty();
                let remote = group_in(&self.answer.words, engine.job_size()).map(|(_, remote)| remote);
                let Some(remote) = remote.filter(is_apart) else {
                    return Err(engine.error_of(Vote::GaveUp(self.awaited())));
                };
                (Some(self.ranks.clone()), Some(remote))
            }
        };
        let Some(members) = members else { return Ok(Vote::Yes) };
        if engine.has_all_contexts() {
            return Ok(Vote::Exhausted);
        }
        let is_open = engine.open_agreed(now, name, &members, remote.as_ref(), &self.incarnations)?;
        let context = engine.context_of(name);
        self.opened = is_open.then(|| Box::new(Agreed { name, context, members, remote }));
        Ok(if is_open { Vote::Yes } else { Vote::Again })
    }

    /// Returns the members of a colour.
    fn members_of(&self, colour: u64) -> Group {
        self.ranks.pick(self.choices.indices_of(colour)).expect("each rank has one choice")
    }

    /// Receives the answer of a rank. Returns `None` if it has not arrived yet. If the rank has abandoned its message,
    /// or has sent something else than an answer, the returned answer has the vote [`Vote::GaveUp`].
    ///
    /// # Errors
    /// Returns an error if this rank gives up, if the message cannot be received, or if a rank that is necessary for
    /// the creation has ended.
    fn hear<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        from: WorldRank,
        now: Time,
        events: usize,
    ) -> Option<Result<Answer, Error>> {
        if let Some(error) = &self.gave_up {
            return Some(Err(error.clone()));
        }
        let gave_up = || Answer::of_vote(Vote::GaveUp(from));
        if let Some(answer) = self.take_held(from) {
            return Some(Ok(answer));
        }
        loop {
            if self.incoming.is_none() {
                match self.find(engine, from, now) {
                    Ok(Some(found)) => self.incoming = Some(found),
                    none => match (self.settle(from), none) {
                        (Some(answer), _) => return Some(Ok(answer)),
                        (None, Err(error)) => return Some(Err(error)),
                        (None, Ok(_)) => break,
                    },
                }
            }
            let Some(id) = self.incoming.filter(|id| engine.outcome(*id) != Outcome::Pending) else { break };
            self.incoming = None;
            let completion = engine.collect(id, &mut ())?;
            let words =
                completion.result.map(|_| completion.memory.and_then(|memory| memory.into_vec().ok()));
            let message = match words {
                Ok(words) => Message::of(&words.unwrap_or_default()),
                // The sender considers this rank failed, or is leaving, and this rank has not received the report of
                // that yet.
                Err(Error::Abandoned { .. }) => None,
                Err(error) => return Some(Err(error)),
            };
            let Some(message) = message else { return Some(Ok(gave_up())) };
            if let Some(answer) = self.take(from, message) {
                return Some(Ok(answer));
            }
        }
        self.check_deadline(engine, now, events);
        self.gave_up.clone().map(Err)
    }

    /// Takes a message that has arrived from a rank, and returns its answer. Returns `None` if the message belongs to
    /// an earlier attempt of this rank. Also returns `None` if a later message may make this one void: then
    /// [`settle`](Self::settle) returns its answer if no later message has arrived. See [`Exchange::take`].
    fn take(&mut self, from: WorldRank, message: Message) -> Option<Answer> {
        let mine = self.attempt();
        match self.exchange(from) {
            Some(exchange) => exchange.take(mine, from, message),
            None => Some(message.answer),
        }
    }

    fn take_held(&mut self, from: WorldRank) -> Option<Answer> {
        let mine = self.attempt();
        self.exchange(from)?.take_held(mine, from)
    }

    /// Returns the answer of the held message, if there is one. Call this function when no later message of the rank
    /// has arrived.
    fn settle(&mut self, from: WorldRank) -> Option<Answer> {
        let (mine, is_parent) = (self.attempt(), self.step == Step::Parent);
        self.exchange(from)?.settle(mine, from, is_parent)
    }

    /// Returns true if a rank, of which a message was taken, had paired its attempt with this one when it sent that
    /// message. Also returns true if the agreement has a number.
    fn is_answered(&mut self, from: WorldRank) -> bool {
        self.exchange(from).is_none_or(|exchange| exchange.is_answered)
    }

    /// Returns the state of the exchange with the rank whose message is awaited. Returns `None` if the agreement has a
    /// number: then no other agreement has messages with this tag.
    fn exchange(&mut self, from: WorldRank) -> Option<&mut Exchange> {
        let (_, tag) = self.channel();
        self.exchange_on(tag, from)
    }

    fn exchange_on(&mut self, tag: u64, with: WorldRank) -> Option<&mut Exchange> {
        if tag & BY_SOME == 0 {
            return None;
        }
        let between_leaders = tag & BY_LEADERS != 0;
        let is_it =
            |(rank, leaders, _): &(WorldRank, bool, Exchange)| (*rank, *leaders) == (with, between_leaders);
        let at = self.exchanges.iter().position(is_it).unwrap_or_else(|| {
            self.exchanges.push((with, between_leaders, Exchange::default()));
            self.exchanges.len() - 1
        });
        Some(&mut self.exchanges[at].2)
    }

    /// Returns the number of this attempt to agree, which is not 0.
    fn attempt(&self) -> u64 {
        self.id.0 + 1
    }

    /// Looks for the message of a rank, and begins to receive it. Returns `None` if it has not arrived.
    fn find<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        from: WorldRank,
        now: Time,
    ) -> Result<Option<RequestId>, Error> {
        let (control, tag) = self.channel();
        let exactly = |tag| Pattern { context: control, source: Source::rank(from.0), tag, mask: !0 };
        // A restarted rank takes part only in agreements of the job's control context, which is 0. Until it knows the
        // number of the agreement, it accepts messages with any number and sends with the number `UNKNOWN`. So the
        // other ranks accept `UNKNOWN` besides the right number. In the second round each rank knows the number.
        let found = match tag {
            UNKNOWN => engine.claim(&Pattern { mask: BY_SOME, ..exactly(0) }),
            tag if self.round == Round::Choosing
                && self.tag.is_none()
                && control == 0
                && tag & BY_SOME == 0 =>
            {
                engine.claim(&exactly(tag)).and_then(|found| match found {
                    None => engine.claim(&exactly(UNKNOWN)),
                    found => Ok(found),
                })
            }
            tag => engine.claim(&exactly(tag)),
        };
        let Some((status, claimed)) = found? else {
            // In steps 3 and 4 no rank is needed: a rank that has ended may have left in good order after it got the
            // communicator.
            let needed = if self.round == Round::Choosing { &self.ranks } else { &Group::EMPTY };
            if engine.is_revoked(self.control) {
                return Err(Error::Revoked);
            }
            let ended = engine.ended_among(self.control, needed);
            let ended =
                ended.or_else(|| self.is_replaced(engine, from).then(|| left(from, Cause::Restarted)));
            return ended.map_or(Ok(None), Err);
        };
        if tag == UNKNOWN && status.tag != UNKNOWN {
            self.number = status.tag;
            engine.agreements.numbers.insert(self.control, status.tag + 1);
        }
        let ranks = match self.choice {
            // A group has at most two words for each rank.
            Choice::Remote { .. } => engine.job_size(),
            _ => self.ranks.len(),
        };
        // The incarnations take a word for each rank, and one for their number.
        let longest = (HEAD + 1 + ranks as usize + Choices::words_max(ranks)) * size_of::<u64>();
        if status.bytes > longest {
            engine.discard(now, claimed);
            return Err(left(from, Cause::LeftContext));
        }
        let memory = Memory::new(vec![0u64; status.bytes.div_ceil(size_of::<u64>())]);
        Ok(Some(engine.recv_claimed(now, claimed, Ok(memory), Time::NEVER)))
    }

    /// Returns true if the incarnation of a rank whose message is awaited has ended, and a later one takes part, which
    /// does not send this message.
    fn is_replaced<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, rank: WorldRank) -> bool {
        let Some(known) = engine.known_incarnation(rank) else { return false };
        let awaited = match (self.round, self.step) {
            // The earlier incarnation has not answered, and the later one may take part in its place.
            (Round::Choosing, Step::Child(_)) => return false,
            (Round::Choosing, Step::Parent | Step::Leader(_)) => *self.awaited.get_or_insert(known),
            (Round::Opening, _) => match self.incarnations.get(&rank) {
                Some(number) => Incarnation::new(*number),
                None => engine.inner.link().identity().first_incarnation(rank),
            },
        };
        known.is_after(awaited)
    }

    /// Sends the answer. A rank that has given up sends an answer too, since the receiver waits for one. If the
    /// receiver has failed, the error is ignored.
    fn send<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, to: WorldRank, now: Time) {
        let (control, tag) = match self.leader() {
            Some(leader) if leader.rank == to => (leader.control, leader.tag()),
            _ => (self.control, self.tag()),
        };
        let mine = self.attempt();
        let stamp = self.exchange_on(tag, to).map_or_else(Stamp::default, |exchange| exchange.stamp(mine));
        let memory = Memory::new(stamp.words_of(&self.answer));
        // A failed peer needs no message.
        let Ok(request) = engine.isend_agreement(now, to, control, tag, memory) else { return };
        engine.agreements.sends.push(Sending { request, to, agreement: self.id });
    }

    /// Gives up if the deadline has passed.
    fn check_deadline<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, events: usize) {
        // While polls deliver events, the awaited message may be among the next ones.
        let slack_ns = if events > 0 { SLACK_NS } else { 0 };
        if now >= self.deadline.after(slack_ns) && self.deadline != Time::NEVER {
            let report = Report {
                operation: Operation::Creation,
                peer: Some(self.awaited()),
                tag: self.tag(),
                mask: !0,
                bytes: 0,
                age_ns: now.since(self.begun),
                awaited: Awaited::Message,
                other_tags: None,
                is_stopped: engine.is_stopped(self.awaited()),
                members: None,
            };
            self.gave_up
                .get_or_insert(Error::TimedOut { fate: Fate::NotDelivered, report: Box::new(report) });
        }
    }

    /// Notes that this rank gives up with this error. Does nothing if the error is the failure of another rank: the
    /// vote reports that failure to all ranks, and then all end with the same error.
    fn note(&mut self, error: Error) {
        if !matches!(error, Error::PeerFailed { .. }) {
            self.gave_up.get_or_insert(error);
        }
    }

    fn vote_of(&self, error: &Error) -> Vote {
        match error {
            Error::PeerFailed { rank, cause: Cause::LeftContext, .. } => Vote::GaveUp(*rank),
            Error::PeerFailed { rank, cause: Cause::Left, .. } => Vote::Left(*rank),
            Error::PeerFailed { rank, .. } => Vote::Failed(*rank),
            _ => Vote::GaveUp(self.world_rank(self.index)),
        }
    }

    /// Returns the other group's leader, if this rank is the leader of its group.
    fn leader(&self) -> Option<Leader> {
        let Choice::Remote { other, .. } = self.choice else { return None };
        other.filter(|_| self.index == 0)
    }

    /// Returns the context and the tag of the awaited message.
    fn channel(&self) -> (u32, u64) {
        match self.step {
            Step::Leader(leader) => (leader.control, leader.tag()),
            Step::Child(_) | Step::Parent => (self.control, self.tag()),
        }
    }

    fn tag(&self) -> u64 {
        self.tag.map_or(self.number, |tag| BY_SOME | u64::from(tag))
    }

    /// Returns the rank whose message is awaited, or else the parent, whose message will be awaited next. The root of a
    /// tree of one rank returns itself.
    fn awaited(&self) -> WorldRank {
        self.awaited_rank().or_else(|| self.parent()).unwrap_or_else(|| self.world_rank(self.index))
    }

    fn awaited_rank(&self) -> Option<WorldRank> {
        match self.step {
            Step::Child(number) => self.child(number),
            Step::Parent => self.parent(),
            Step::Leader(leader) => Some(leader.rank),
        }
    }

    fn parent(&self) -> Option<WorldRank> {
        let parent = self.index & self.index.wrapping_sub(1);
        (self.index > 0).then(|| self.world_rank(parent))
    }

    fn child(&self, number: u32) -> Option<WorldRank> {
        let step = 1u32.checked_shl(number)?;
        let is_below = self.index == 0 || self.index.trailing_zeros() > number;
        let child = self.index.checked_add(step).filter(|child| is_below && *child < self.ranks.len());
        child.map(|child| self.world_rank(child))
    }

    /// Returns the number of children.
    fn children(&self) -> u32 {
        (0..).find(|number| self.child(*number).is_none()).expect("a rank has at most 32 children")
    }

    fn world_rank(&self, index: u32) -> WorldRank {
        let behind = self.ranks.len() - self.root;
        let index = if index < behind { index + self.root } else { index - behind };
        self.ranks.rank(index).expect("the tree has the ranks that take part")
    }
}

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Returns the incarnation of a rank that the link knows.
    fn known_incarnation(&mut self, rank: WorldRank) -> Option<Incarnation> {
        let link = self.inner.link_mut();
        let peer = link.find(rank)?;
        link.peer(peer).incarnation()
    }

    /// Returns this rank's incarnation, unless it is its first.
    pub(crate) fn later_incarnation(&self) -> Option<u32> {
        let identity = self.inner.link().identity();
        let first = identity.first_incarnation(identity.rank).get();
        Some(identity.incarnation).filter(|incarnation| *incarnation != first)
    }

    /// Returns the number of ranks in the job.
    fn job_size(&self) -> u32 {
        self.inner.link().identity().size
    }

    /// Returns the error with which an agreement ends after this vote.
    fn error_of(&mut self, vote: Vote) -> Error {
        match vote {
            Vote::Left(rank) => left(rank, self.latest_failure(rank).unwrap_or(Cause::Left)),
            // An earlier incarnation of this rank took part in the agreement.
            Vote::Failed(rank) if rank == self.inner.link().identity().rank => left(rank, Cause::Restarted),
            Vote::Failed(rank) => left(rank, self.latest_failure(rank).unwrap_or(Cause::Lost)),
            Vote::GaveUp(rank) => left(rank, Cause::LeftContext),
            Vote::Both(rank) => Error::InBothGroups { rank },
            Vote::Yes | Vote::Again | Vote::Exhausted => Error::Exhausted {
                what: "contexts for communicators",
                hint: "drop communicators that are no longer used, or set a larger communicators_max at all ranks".into(),
            },
        }
    }
}

fn left(rank: WorldRank, cause: Cause) -> Error {
    Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None }
}

/// Returns the place in a tree of the rank with this index among `len` ranks: its distance from the root, where the
/// first rank follows the last one.
fn in_tree(index: u32, root: u32, len: u32) -> u32 {
    if index < root { index + (len - root) } else { index - root }
}

/// Returns incarnations as words for a message: their number, and then a word for each, sorted by rank.
fn write_incarnations(incarnations: &Incarnations) -> Vec<u64> {
    let word = |(rank, number): (&WorldRank, &u32)| u64::from(rank.0) << 32 | u64::from(*number);
    std::iter::once(incarnations.len() as u64).chain(incarnations.iter().map(word)).collect()
}

/// Returns the incarnations that [`write_incarnations`] has written at the start of these words, and the words behind
/// them. Returns `None` if there are no incarnations at the start.
fn read_incarnations(words: &[u64]) -> Option<(Incarnations, &[u64])> {
    let (&count, words) = words.split_first()?;
    let (incarnations, words) = words.split_at_checked(usize::try_from(count).ok()?)?;
    let is_sorted = incarnations.is_sorted_by(|word, next| word >> 32 < next >> 32);
    let entry = |word: &u64| (WorldRank((word >> 32) as u32), *word as u32);
    is_sorted.then(|| (incarnations.iter().map(entry).collect(), words))
}

/// Returns the incarnations and the group in the words of an answer about an intercommunicator. The group has members,
/// which are ranks below `size`. Returns `None` if the words are something else.
fn group_in(words: &[u64], size: u32) -> Option<(Incarnations, Group)> {
    let (incarnations, words) = read_incarnations(words)?;
    let group = Group::from_words(words, size).filter(|group| !group.is_empty())?;
    Some((incarnations, group))
}

/// The number of words of a message before [`Answer::words`].
const HEAD: usize = 5;

impl Answer {
    fn merge(&mut self, theirs: &Self) {
        self.vote = self.vote.max(theirs.vote);
        self.next = self.next.max(theirs.next);
    }

    /// Returns an answer that contains only a vote.
    fn of_vote(vote: Vote) -> Self {
        Self { vote, next: 0, words: Vec::new() }
    }
}

impl Leader {
    fn tag(&self) -> u64 {
        BY_SOME | BY_LEADERS | u64::from(self.tag)
    }
}

impl Vote {
    fn to_word(self) -> u64 {
        let (kind, rank) = match self {
            Self::Yes => (0, WorldRank(0)),
            Self::Again => (1, WorldRank(0)),
            Self::GaveUp(rank) => (2, rank),
            Self::Exhausted => (3, WorldRank(0)),
            Self::Left(rank) => (4, rank),
            Self::Failed(rank) => (5, rank),
            Self::Both(rank) => (6, rank),
        };
        kind << 32 | u64::from(rank.0)
    }

    fn from_word(word: u64) -> Self {
        let rank = WorldRank(word as u32);
        match word >> 32 {
            0 => Self::Yes,
            1 => Self::Again,
            3 => Self::Exhausted,
            4 => Self::Left(rank),
            5 => Self::Failed(rank),
            6 => Self::Both(rank),
            _ => Self::GaveUp(rank),
        }
    }
}

#[cfg(test)]
mod tests;
