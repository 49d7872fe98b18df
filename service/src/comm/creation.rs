//! The creation of communicators.
//!
//! The ranks that create a communicator agree on its context in rounds. Each round has four steps along a binomial tree
//! of these ranks, whose root is the first of them:
//!
//! 1. Up: the largest of the contexts that the ranks would use next, and what each of them has chosen.
//! 2. Down: that context, and all choices. Each rank opens the context, unless it has used it or a later one meanwhile,
//!    for another communicator that another of its threads creates at the same time.
//! 3. Up: whether all have opened it.
//! 4. Down: whether the communicator exists. If a rank could not open the context, all close it and begin again.
//!
//! A rank that finds its child in the tree dead passes this up, and the root passes it down to all. A rank that finds
//! its parent dead passes this down. So all that live end with the same error. One case is left: a rank dies in step 4,
//! when some know already that the communicator exists. Those below it in the tree give up then, and leave the
//! context: their packets tell so to all members, whose operations with them end with [`Cause::LeftComm`]. Those that
//! have the communicator may begin a further creation, in which the others do not take part. So in the steps 1 and 2 a
//! rank does not wait any more once it knows that any of the ranks has ended. In the steps 3 and 4 a rank that has ended
//! may have left in good order, with the communicator; all others take part, and pass on what they know.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use samite_p2p::{Awaited, Engine, Group, Pattern, Time, WorldRank};

use super::{Comm, Derived, Message};
use crate::error::{Cause, Error, Fate, Public};
use crate::runtime::Bounds;
use crate::select::Rank;

/// The number of the next creation on a communicator in which all its ranks take part. Their messages carry it: those of
/// an earlier one, which this rank gave up, are dropped.
#[derive(Debug, Default)]
pub(crate) struct Creations(AtomicU64);

impl Creations {
    /// Returns those of a rank that was started again. The messages of the others tell it the number.
    pub(crate) fn unknown() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

/// The number that a rank which was started again does not know yet.
const UNKNOWN: u64 = u64::MAX;

/// The tag of creations in which all ranks of the communicator take part.
const BY_ALL: u64 = 0;

/// Set in the tags of the others.
const BY_SOME: u64 = 1 << 63;

impl Comm {
    /// Creates a communicator of the same ranks, whose messages are separate from those of this one (`MPI_Comm_dup`).
    ///
    /// All ranks of this communicator call it. Its creations ([`split`](Self::split) is another) are called in the same
    /// order by all of them, from one thread at a time. The new `Comm` has the bounds of this handle. Dropping its last
    /// handle drops the messages in it that were not received; a message that comes later is dropped too, and for its
    /// sender received.
    ///
    /// Its members are the processes that create it. A rank that is started again later
    /// ([`incarnation`](Self::incarnation)) is no member of it: operations with it end with [`Error::PeerFailed`] and the
    /// cause [`Cause::Restarted`].
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank fails or leaves meanwhile, or gives up ([`Cause::LeftComm`]), at all ranks that
    /// live; [`Error::TimedOut`], [`Error::Cancelled`]. [`Error::Exhausted`] after 2^31 communicators. If a rank fails
    /// at the very end, some ranks may have the communicator, and their operations in it end with an error.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::Rank;
    ///
    /// let apart = comm.dup()?;
    /// if comm.rank() == 0 {
    ///     comm.send(&[1u8], Rank(1), 7)?;
    ///     apart.send(&[2u8], Rank(1), 7)?;
    /// } else {
    ///     let mut byte = [0u8];
    ///     apart.recv(&mut byte, Rank(0), 7)?;
    ///     assert_eq!(byte, [2]);
    ///     comm.recv(&mut byte, Rank(0), 7)?;
    ///     assert_eq!(byte, [1]);
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn dup(&self) -> Result<Self, Error> {
        let group = self.members();
        let created = Creation::by_all(self).run(Choices::Group(&group))?;
        created.ok_or(Error::NotAMember { world_rank: Rank(self.runtime.rank.0) })
    }

    /// Creates a communicator for each colour, of the ranks that chose it (`MPI_Comm_split`). They are ordered by key,
    /// and those with the same key as in this communicator. A rank without a colour gets none.
    ///
    /// All ranks of this communicator call it, as [`dup`](Self::dup).
    ///
    /// # Errors
    /// Returns the errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(5, |world| {
    /// # let comm = world.comm();
    /// // The even ranks in descending order, and the odd ones.
    /// let rank = comm.rank().0;
    /// let half = comm.split(Some(rank % 2), -i64::from(rank))?.expect("it has a colour");
    /// assert_eq!(half.size(), 3 - rank % 2);
    /// assert_eq!(half.rank(), half.size() - 1 - rank / 2);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn split(&self, colour: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        Creation::by_all(self).run(Choices::Colour(colour, key))
    }

    /// Creates the communicator of a group (`MPI_Comm_create_group`). Only the members of the group call it, all with the
    /// same group and tag. They are ranks of this communicator.
    ///
    /// The tag tells apart creations that go on at the same time between the same ranks, in several threads. After one
    /// that failed, use another tag.
    ///
    /// # Errors
    /// [`Error::NotAMember`]; otherwise the errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(4, |world| {
    /// # let comm = world.comm();
    /// use samite::Rank;
    ///
    /// let outer = comm.group().include([3, 0]).unwrap();
    /// if outer.contains(comm.rank()) {
    ///     let pair = comm.create(&outer, 0)?;
    ///     assert_eq!(pair.rank(), if comm.rank() == 3 { 0 } else { 1 });
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn create(&self, group: &crate::Group, tag: u32) -> Result<Self, Error> {
        let (group, members) = (&group.0, self.members());
        if let Some(stranger) = group.difference(&members).rank(0) {
            return Err(Error::NotAMember { world_rank: Rank(stranger.0) });
        }
        let not_a_member = Error::NotAMember { world_rank: Rank(self.runtime.rank.0) };
        if !group.contains(self.runtime.rank) {
            return Err(not_a_member);
        }
        let creation = Creation::new(self, group.clone(), BY_SOME | u64::from(tag), 0);
        creation.run(Choices::Group(group))?.ok_or(not_a_member)
    }

    /// Calls `act` with the number of the next creation.
    fn with_creations<R>(&self, act: impl FnOnce(&AtomicU64) -> R) -> R {
        match &self.derived {
            Some(derived) => act(&derived.creations.0),
            None => act(&self.first_lane().creations.0),
        }
    }
}

/// What decides about the members.
#[derive(Clone, Copy)]
enum Choices<'a> {
    Group(&'a Group),
    Colour(Option<u32>, i64),
}

/// The answer of one rank or more in a step. The largest one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Vote {
    Yes,
    /// The context is in use.
    Again,
    /// This rank of the job has given up.
    GaveUp(u32),
    /// No context is left.
    Exhausted,
    /// This rank of the job has left.
    Left(u32),
    /// This rank of the job has failed.
    Failed(u32),
}

/// One creation, as a rank takes part in it.
struct Creation<'a> {
    parent: &'a Comm,
    /// For messages between the ranks that take part, by ranks of the job.
    control: Comm,
    ranks: Group,
    index: u32,
    tag: u64,
    /// See [`Creations`]; 0 in creations by some.
    number: Cell<u64>,
    begun: Time,
}

impl<'a> Creation<'a> {
    fn by_all(parent: &'a Comm) -> Self {
        let number = parent.with_creations(|next| {
            let number = next.load(Ordering::Relaxed);
            // One thread calls at a time.
            next.store(if number == UNKNOWN { UNKNOWN } else { number + 1 }, Ordering::Relaxed);
            number
        });
        Self::new(parent, parent.members(), BY_ALL, number)
    }

    /// Starts a creation by ranks of which this is one.
    fn new(parent: &'a Comm, ranks: Group, tag: u64, number: u64) -> Self {
        let control = parent.control();
        let index = ranks.index(parent.runtime.rank).unwrap_or(0);
        let (begun, number) = (parent.runtime.now(), Cell::new(number));
        Self { parent, control, index, ranks, tag, number, begun }
    }

    /// Returns the communicator, `None` if this rank has chosen none.
    fn run(&self, choices: Choices<'_>) -> Result<Option<Comm>, Error> {
        let end = self.agree(choices);
        end.map_err(|error| self.parent.local_error(self.control.runtime.explain(error, &self.rest())))
    }

    fn agree(&self, choices: Choices<'_>) -> Result<Option<Comm>, Error> {
        let runtime = &self.control.runtime;
        loop {
            let next = runtime.enter(&Bounds::default())?.start(|engine, _, _| engine.next_context());
            let mine = match choices {
                Choices::Group(_) => Vec::new(),
                Choices::Colour(colour, key) => {
                    vec![u64::from(self.index), colour.map_or(u64::MAX, u64::from), key as u64]
                }
            };
            let next = u64::from(next).next_multiple_of(2);
            let ready = if next < LAST { Vote::Yes } else { Vote::Exhausted };
            let mut words = vec![next];
            words.extend(mine);
            let (vote, words) = self.exchange(ready, words, &self.ranks)?;
            let Some((&name, chosen)) = words.split_first().filter(|_| vote == Vote::Yes) else {
                return Err(self.error_of(vote));
            };
            let context = u32::try_from(name).map_err(|_| self.error_of(Vote::Exhausted))?;
            let group = match choices {
                Choices::Group(group) => Some(group.clone()),
                Choices::Colour(colour, _) => colour.and_then(|colour| self.members_of(colour, chosen)),
            };
            let derived = match &group {
                Some(group) => self.open(context, group)?,
                None => None,
            };
            let vote = if group.is_some() && derived.is_none() { Vote::Again } else { Vote::Yes };
            match self.exchange(vote, Vec::new(), &Group::EMPTY) {
                Ok((Vote::Yes, _)) => {
                    return Ok(derived.map(|derived| self.parent.with_members(Some(Arc::new(derived)))));
                }
                // Dropping it closes its contexts. No rank has the communicator.
                Ok((Vote::Again, _)) => {}
                Ok((vote, _)) => {
                    self.leave(derived.is_some(), context);
                    return Err(self.error_of(vote));
                }
                Err(error) => {
                    self.leave(derived.is_some(), context);
                    return Err(error);
                }
            }
        }
    }

    /// Returns the members of a colour. `chosen` holds the index, colour and key of each rank.
    fn members_of(&self, colour: u32, chosen: &[u64]) -> Option<Group> {
        let mut choices = vec![(None, 0); self.ranks.len() as usize];
        for choice in chosen.chunks_exact(3) {
            *choices.get_mut(choice[0] as usize)? = (u32::try_from(choice[1]).ok(), choice[2] as i64);
        }
        self.ranks.split(&choices).remove(&colour)
    }

    /// Opens the contexts of the communicator, unless this rank has used them.
    fn open(&self, context: u32, group: &Group) -> Result<Option<Derived>, Error> {
        let runtime = &self.parent.runtime;
        match runtime.open_contexts([context, context + 1], group)? {
            true => Ok(Derived::new(Arc::clone(runtime), group.clone(), context)),
            false => Ok(None),
        }
    }

    /// Tells the other members that this rank does not use a context that it has opened: they may take the communicator
    /// for created.
    fn leave(&self, has_opened: bool, context: u32) {
        if has_opened {
            self.parent.runtime.leave_contexts([context, context + 1]);
        }
    }

    /// Passes the votes up the tree and the decision down, and returns the decision: the largest vote, with the largest
    /// of the first words, and all further words. Ends early if one of the `needed` ranks has ended.
    ///
    /// # Errors
    /// This rank gave up.
    fn exchange(&self, vote: Vote, words: Vec<u64>, needed: &Group) -> Result<(Vote, Vec<u64>), Error> {
        let mut all = (vote, words);
        let mut gave_up = None;
        for child in self.children() {
            match self.receive(child, needed) {
                Ok((vote, words)) => all = merge(all, (vote, &words)),
                Err(error) => {
                    all.0 = all.0.max(self.vote_of(&error));
                    gave_up = gave_up.or(Some(error).filter(|error| !is_failure(error)));
                }
            }
        }
        if let Some(parent) = self.tree_parent() {
            self.send(parent, &all);
            if gave_up.is_none() {
                match self.receive(parent, needed) {
                    Ok(decision) => all = decision,
                    Err(error) => {
                        all = (self.vote_of(&error), Vec::new());
                        gave_up = Some(error).filter(|error| !is_failure(error));
                        // The next vote, if the parent waits for one.
                        self.send(parent, &all);
                    }
                }
            }
        }
        for child in self.children() {
            self.send(child, &all);
        }
        gave_up.map_or(Ok(all), Err)
    }

    fn tree_parent(&self) -> Option<Rank> {
        let parent = self.index & self.index.wrapping_sub(1);
        (self.index > 0).then(|| self.world_rank(parent))
    }

    fn children(&self) -> impl Iterator<Item = Rank> + use<'_, 'a> {
        let (index, len) = (self.index, self.ranks.len());
        let steps = (0..u32::BITS)
            .map(|bit| 1u32 << bit)
            .take_while(move |step| index == 0 || index & (step * 2 - 1) == 0);
        let children = steps.map_while(move |step| index.checked_add(step).filter(|child| *child < len));
        children.map(|child| self.world_rank(child))
    }

    fn world_rank(&self, index: u32) -> Rank {
        Rank(self.ranks.rank(index).expect("the tree has the members of the group").0)
    }

    fn rest(&self) -> Bounds {
        self.parent.runtime.rest_of(&self.parent.bounds, self.begun)
    }

    /// Sends a vote, also if this rank has given up. Those that wait for a dead rank find it dead.
    fn send(&self, to: Rank, (vote, words): &(Vote, Vec<u64>)) {
        let head = [vote.to_word(), self.number.get()];
        let message = head.into_iter().chain(words.iter().copied()).collect();
        self.control.runtime.send_detached(WorldRank(to.0), self.control.context, self.tag, message);
    }

    fn receive(&self, from: Rank, needed: &Group) -> Result<(Vote, Vec<u64>), Error> {
        loop {
            let message = self.next_message(from, needed)?;
            let [vote, number, ref words @ ..] = message[..] else {
                return Ok((Vote::GaveUp(from.0), Vec::new()));
            };
            let known = self.number.get();
            if known == UNKNOWN && number != UNKNOWN {
                self.number.set(number);
                self.parent.with_creations(|next| next.store(number + 1, Ordering::Relaxed));
            }
            // A message of an earlier creation came too late.
            if known == UNKNOWN || number >= known {
                return Ok((Vote::from_word(vote), words.to_vec()));
            }
        }
    }

    /// Receives a message, or ends with an error once any of the `needed` ranks has ended.
    fn next_message(&self, from: Rank, needed: &Group) -> Result<Vec<u64>, Error> {
        let control = Comm { bounds: self.rest(), ..self.control.clone() };
        let pattern = Pattern::exact(control.context, from.0, self.tag);
        let look = |engine: &mut Engine<_>| match engine.claim(&pattern)? {
            Some(found) => Ok(Some(Ok(found))),
            None => Ok(engine.ended_among(control.context, needed).map(Err)),
        };
        let found = control.runtime.until(&control.bounds, &pattern, Awaited::Message, look)?;
        let (status, claimed) = found.map_err(Public::public)?;
        let message = Message { status: status.public(), claimed: Some(claimed), comm: control };
        Ok(message.recv()?.buffer)
    }

    fn vote_of(&self, error: &Error) -> Vote {
        match error {
            Error::PeerFailed { world_rank, cause: Cause::LeftComm, .. } => Vote::GaveUp(world_rank.0),
            Error::PeerFailed { world_rank, cause: Cause::Left, .. } => Vote::Left(world_rank.0),
            Error::PeerFailed { world_rank, .. } => Vote::Failed(world_rank.0),
            _ => Vote::GaveUp(self.parent.runtime.rank.0),
        }
    }

    /// Returns the error of a creation that the ranks have given up.
    fn error_of(&self, vote: Vote) -> Error {
        let failed = |rank, cause| Error::PeerFailed {
            rank: Rank(rank),
            world_rank: Rank(rank),
            cause,
            fate: Fate::NotDelivered,
            report: None,
        };
        match vote {
            Vote::Left(rank) | Vote::Failed(rank) => {
                let heard = if vote == Vote::Left(rank) { Cause::Left } else { Cause::Lost };
                let runtime = &self.control.runtime;
                let cause = runtime.look(|engine| Ok(engine.latest_failure(WorldRank(rank))));
                failed(rank, cause.ok().flatten().map_or(heard, Public::public))
            }
            Vote::GaveUp(rank) => failed(rank, Cause::LeftComm),
            Vote::Yes | Vote::Again | Vote::Exhausted => Error::Exhausted {
                what: "contexts for communicators",
                hint: "keep communicators, and use them again".into(),
            },
        }
    }
}

/// The end of the contexts that are used. Two are necessary for a communicator.
const LAST: u64 = u32::MAX as u64 - 3;

/// Returns true if the error is a failure of the peer, of which others learn too.
fn is_failure(error: &Error) -> bool {
    matches!(error, Error::PeerFailed { .. })
}

fn merge((vote, mut words): (Vote, Vec<u64>), (theirs, their_words): (Vote, &[u64])) -> (Vote, Vec<u64>) {
    if let (Some(first), Some((their_first, rest))) = (words.first_mut(), their_words.split_first()) {
        *first = (*first).max(*their_first);
        words.extend(rest);
    }
    (vote.max(theirs), words)
}

impl Vote {
    fn to_word(self) -> u64 {
        let (kind, rank) = match self {
            Self::Yes => (0, 0),
            Self::Again => (1, 0),
            Self::GaveUp(rank) => (2, rank),
            Self::Exhausted => (3, 0),
            Self::Left(rank) => (4, rank),
            Self::Failed(rank) => (5, rank),
        };
        kind << 32 | u64::from(rank)
    }

    fn from_word(word: u64) -> Self {
        let rank = word as u32;
        match word >> 32 {
            0 => Self::Yes,
            1 => Self::Again,
            3 => Self::Exhausted,
            4 => Self::Left(rank),
            5 => Self::Failed(rank),
            _ => Self::GaveUp(rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that was started again takes part in creations of the world, at any place in the tree.
    #[test]
    fn a_rank_that_knows_no_number_learns_it_from_the_others() {
        for n in [2, 3, 5, 8] {
            for restarted in 0..n {
                let sizes = crate::local(n, |world| {
                    let comm = world.comm();
                    comm.dup()?;
                    comm.split(None, 0)?;
                    if comm.rank() == restarted {
                        comm.with_creations(|next| next.store(UNKNOWN, Ordering::Relaxed));
                    }
                    comm.dup()?;
                    assert_eq!(comm.with_creations(|next| next.load(Ordering::Relaxed)), 3);
                    comm.dup().map(|comm| comm.size())
                });
                assert_eq!(sizes, vec![Ok(n); n as usize]);
            }
        }
    }
}
