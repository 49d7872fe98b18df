//! The creation of communicators. How the ranks agree is in `samite_p2p`'s module `agreement`.

use std::sync::Arc;

use samite_p2p::{Agreed, AgreementId, Awaited, Choice, Decision, Fate, Pattern, Progress, Proposal, Source};

use super::{Comm, Derived, Hints};
use crate::error::{Error, Public};
use crate::runtime::{Bounds, Runtime};
use crate::select::Rank;
use crate::stack::Engine;
use crate::transport::Transport;

impl Comm {
    /// Creates a communicator of the same ranks, whose messages are separate from those of this communicator
    /// (`MPI_Comm_dup`). The duplicate gets the attributes whose [`Attribute::duplicate`](crate::Attribute::duplicate)
    /// returns a value.
    ///
    /// All ranks of this communicator call `dup`; for an intercommunicator, the ranks of both groups. All ranks must
    /// call `dup`, [`split`](Self::split) and the other collective creations in the same order, from one thread at a
    /// time. The new `Comm` has the bounds of this handle. Dropping the last handle of a communicator drops the
    /// messages in it that were not received, and those that arrive later. A send that waits for its receive then ends
    /// with [`Error::Abandoned`]; a short standard send does not wait, and succeeds. The other ranks are not told:
    /// their receives from a rank that has dropped its last handle wait until their time-out. A request, a claimed
    /// message and a persistent or partitioned operation hold a handle too, until they end.
    ///
    /// The members of the new communicator are the processes that create it. If a rank is started again later
    /// ([`incarnation`](Self::incarnation)), its new process is not a member: operations with that rank end with
    /// [`Error::PeerFailed`] and the cause [`Cause::Restarted`](crate::Cause::Restarted).
    ///
    /// # Errors
    /// [`Error::PeerFailed`], at all ranks that live, if a rank fails or leaves meanwhile, or gives up the creation
    /// ([`Cause::LeftComm`](crate::Cause::LeftComm)); [`Error::TimedOut`], [`Error::Cancelled`], [`Error::Closed`],
    /// [`Error::Forked`]. [`Error::Exhausted`] if a rank has as many communicators as it may have: the parameter
    /// `communicators_max`. If more creations are under way than new communicators are permitted, all of these
    /// creations may fail. If a rank fails while the creation ends, the creation may succeed at some ranks and fail at
    /// others. Operations in the communicator with the ranks at which the creation failed end with an error.
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
        self.handle_result("dup", self.begin_dup(Hints::NONE).and_then(Creation::finish))
    }

    /// Starts to create a communicator as [`dup`](Self::dup) does (`MPI_Comm_idup`), without waiting for the other
    /// ranks.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`] returns the other errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let (first, second) = (comm.idup()?, comm.idup()?);
    /// // Something else, meanwhile.
    /// let (second, first) = (second.wait()?, first.wait()?);
    /// assert_eq!((first.size(), second.size()), (2, 2));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn idup(&self) -> Result<Creation<Self>, Error> {
        self.handle_result("idup", self.begin_dup(Hints::NONE))
    }

    pub(super) fn begin_dup(&self, hints: Hints) -> Result<Creation<Self>, Error> {
        let (ranks, choice) = self.all_ranks();
        let begun = self.begin_creation(ranks, None, choice, |comm, made| {
            let duplicate = member(comm, made)?;
            comm.pass_attributes(&duplicate);
            Ok(duplicate)
        });
        begun.map(|mut creation| {
            creation.hints = hints;
            creation
        })
    }

    /// Creates one communicator for each colour, whose members are the ranks that chose that colour (`MPI_Comm_split`).
    /// The members are ordered by key; members with equal keys keep their order in this communicator. A rank without a
    /// colour gets `None`.
    ///
    /// All ranks of this communicator call it, under the rules of [`dup`](Self::dup). On an intercommunicator these are
    /// the ranks of both groups, and the ranks of each colour get an intercommunicator of their two groups. If a colour
    /// has no rank in one of the groups, its ranks in the other group get `None`.
    ///
    /// The ranks need memory and time for a list of all choices only if these are irregular. If the colours are for
    /// example blocks, remainders or rows and columns of a grid, each rank receives some hundred bytes, for any number
    /// of ranks.
    ///
    /// # Errors
    /// Returns the errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(5, |world| {
    /// # let comm = world.comm();
    /// // One communicator of the even ranks and one of the odd ranks, each in descending order.
    /// let rank = comm.rank().0;
    /// let half = comm.split(Some(rank % 2), -i64::from(rank))?.expect("it has a colour");
    /// assert_eq!(half.size(), 3 - rank % 2);
    /// assert_eq!(half.rank(), half.size() - 1 - rank / 2);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn split(&self, colour: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        self.handle_result("split", self.begin_split(colour, key).and_then(Creation::finish))
    }

    /// Starts to create communicators as [`split`](Self::split) does, without waiting for the other ranks.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`] returns the other errors of [`split`](Self::split).
    pub fn isplit(&self, colour: Option<u32>, key: i64) -> Result<Creation<Option<Self>>, Error> {
        self.handle_result("isplit", self.begin_split(colour, key))
    }

    pub(super) fn begin_split(&self, colour: Option<u32>, key: i64) -> Result<Creation<Option<Self>>, Error> {
        let (ranks, choice) = self.colours(colour.map(u64::from), key);
        self.begin_creation(ranks, None, choice, |comm, derived| Ok(comm.derive(derived)))
    }

    /// Creates the communicator of a group (`MPI_Comm_create_group`). Only the members of the group call it, all with
    /// the same group and tag. Each member must be a rank of this communicator.
    ///
    /// If several threads create communicators of the same ranks at the same time, the tag says which calls belong
    /// together. After a creation that failed, the same tag may be used again.
    ///
    /// # Errors
    /// [`Error::NotAMember`], [`Error::NeedsOneGroup`]; otherwise the errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(4, |world| {
    /// # let comm = world.comm();
    /// use samite::Rank;
    ///
    /// let outer = comm.group().include([3, 0]).unwrap();
    /// if outer.contains(comm.rank()) {
    ///     let pair = comm.create_from_group(&outer, 0)?;
    ///     assert_eq!(pair.rank(), if comm.rank() == 3 { 0 } else { 1 });
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn create_from_group(&self, group: &crate::Group, tag: u32) -> Result<Self, Error> {
        self.handle_result(
            "create_from_group",
            self.begin_create_from_group(group, tag).and_then(Creation::finish),
        )
    }

    /// Starts to create the communicator of a group as [`create_from_group`](Self::create_from_group) does, without
    /// waiting for the other ranks.
    ///
    /// # Errors
    /// [`Error::NeedsOneGroup`], [`Error::NotAMember`], [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`]
    /// returns the other errors of [`create_from_group`](Self::create_from_group).
    pub fn icreate_from_group(&self, group: &crate::Group, tag: u32) -> Result<Creation<Self>, Error> {
        self.handle_result("icreate_from_group", self.begin_create_from_group(group, tag))
    }

    fn begin_create_from_group(&self, group: &crate::Group, tag: u32) -> Result<Creation<Self>, Error> {
        self.check_one_group()?;
        let (group, members) = (&group.0, self.members());
        if let Some(stranger) = group.difference(&members).rank(0) {
            return Err(Error::NotAMember { world_rank: Rank(stranger.0) });
        }
        if !group.contains(self.runtime.rank) {
            return Err(Error::NotAMember { world_rank: Rank(self.runtime.rank.0) });
        }
        self.begin_creation(group.clone(), Some(tag), Choice::Group(group.clone()), member)
    }

    /// Creates a communicator of this rank alone (`MPI_COMM_SELF`). No other rank takes part, and no message is sent.
    ///
    /// # Errors
    /// [`Error::Exhausted`], [`Error::Closed`], [`Error::Forked`].
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let alone = comm.self_comm()?;
    /// assert_eq!((alone.rank().0, alone.size()), (0, 1));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn self_comm(&self) -> Result<Self, Error> {
        let alone = samite_p2p::Group::range(self.runtime.rank, 1);
        let begun = self.begin_creation(alone.clone(), Some(0), Choice::Group(alone), member);
        self.handle_result("self_comm", begun.and_then(Creation::finish))
    }

    pub(super) fn begin_creation<C>(
        &self,
        ranks: samite_p2p::Group,
        tag: Option<u32>,
        choice: Choice,
        result: fn(&Self, Option<Derived>) -> Result<C, Error>,
    ) -> Result<Creation<C>, Error> {
        let proposal = Proposal { ranks, control: self.control(), tag, choice };
        let runtime = self.first_lane();
        let id = runtime
            .enter_now(&self.bounds)
            .ok_or_else(|| self.runtime.refused())?
            .start(|engine, now, deadline| engine.begin_agreement(now, proposal, deadline));
        Ok(Creation::of_comm(self, runtime, id, Hints::NONE, result))
    }

    pub(super) fn derive(&self, derived: Option<Derived>) -> Option<Self> {
        derived.map(|derived| self.with_members(Some(Arc::new(derived))))
    }
}

pub(super) fn member(parent: &Comm, derived: Option<Derived>) -> Result<Comm, Error> {
    parent.derive(derived).ok_or(Error::NotAMember { world_rank: Rank(parent.runtime.rank.0) })
}

/// A communicator that its ranks are creating: see [`Comm::idup`], [`Comm::isplit`] and [`Comm::icreate_from_group`];
/// or an agreement under way: see [`Comm::iagree`]. Every call that waits or tests makes progress with all creations of
/// the process, so ranks may wait for several creations in different orders. If there are several [lanes](Comm::lane),
/// only calls in the first lane make this progress.
///
/// Dropping a `Creation` gives it up. The other ranks get [`Error::PeerFailed`] with
/// [`Cause::LeftComm`](crate::Cause::LeftComm) from the creation. If the creation has already succeeded for them, they
/// get this error from their operations with this rank in the communicator.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// let mut creation = comm.isplit(Some(0), 0)?;
/// let comm = loop {
///     if let Some(created) = creation.test() {
///         break created?.expect("it has a colour");
///     }
/// };
/// assert_eq!(comm.size(), 2);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[must_use = "a creation that is dropped is given up"]
pub struct Creation<C> {
    parent: Comm,
    /// The first lane, in which the ranks agree.
    runtime: Arc<Runtime<Transport>>,
    /// The agreement; `None` once its result was returned.
    id: Option<AgreementId>,
    /// The hints of the new communicator.
    hints: Hints,
    result: MakeResult<C>,
}

/// Makes the result of a creation from that of the agreement.
enum MakeResult<C> {
    Comm(fn(&Comm, Option<Derived>) -> Result<C, Error>),
    Decision(fn(Decision) -> C),
}

/// The end of an agreement that succeeded.
enum Made {
    Comm(Option<Agreed>),
    Decision(Decision),
}

impl<C> Creation<C> {
    /// Returns the creation of a communicator by the ranks of `parent`.
    pub(super) fn of_comm(
        parent: &Comm,
        runtime: Arc<Runtime<Transport>>,
        id: AgreementId,
        hints: Hints,
        result: fn(&Comm, Option<Derived>) -> Result<C, Error>,
    ) -> Self {
        Self { parent: parent.clone(), runtime, id: Some(id), hints, result: MakeResult::Comm(result) }
    }

    /// Returns the creation of a value on which the ranks of `parent` agree.
    pub(super) fn of_decision(
        parent: &Comm,
        runtime: Arc<Runtime<Transport>>,
        id: AgreementId,
        result: fn(Decision) -> C,
    ) -> Self {
        let (parent, hints, result) = (parent.clone(), Hints::NONE, MakeResult::Decision(result));
        Self { parent, runtime, id: Some(id), hints, result }
    }

    /// Waits until the creation has ended, within the bounds of the communicator on which it was started.
    ///
    /// # Errors
    /// Returns the errors of the blocking call, for example [`Comm::dup`].
    pub fn wait(self) -> Result<C, Error> {
        let parent = self.parent.clone();
        parent.handle_result("Creation::wait", self.finish())
    }

    /// Waits for the result, and does not call the error handler.
    pub(super) fn finish(mut self) -> Result<C, Error> {
        let Some(id) = self.id else { return Err(Error::NoSuchRequest) };
        let runtime = &self.runtime;
        let cancel = Bounds { timeout: None, cancel: self.parent.bounds.cancel.clone() };
        let mut seen = None;
        let end = loop {
            // Each turn of the loop waits for one rank, and ends when the creation begins to wait for another rank. So
            // reports name the right rank.
            let (rank, tag) = seen.unwrap_or((runtime.rank, 0));
            let pattern = Pattern { context: 0, source: Source::rank(rank.0), tag, mask: !0 };
            let look = |engine: &mut Engine<_>| {
                Ok(match engine.agreement(id) {
                    Some(Progress::Awaits { rank, tag }) if seen == Some((rank, tag)) => None,
                    progress => Some(progress),
                })
            };
            match runtime.until(&cancel, &pattern, Awaited::Message, look) {
                Ok(Some(Progress::Awaits { rank, tag })) => seen = Some((rank, tag)),
                Ok(Some(Progress::Ended(end))) => break end.map(Made::Comm),
                Ok(Some(Progress::Decided(decision))) => break Ok(Made::Decision(decision)),
                Ok(None) => return Err(Error::NoSuchRequest),
                Err(Error::Cancelled { .. }) => self.cancel(),
                Err(error) => return Err(self.parent.local_error(error)),
            }
        };
        self.id = None;
        self.end(end, true)
    }

    /// Makes progress, and returns the result once the creation has ended; `None` while it is under way. The result is
    /// returned once; later calls return [`Error::NoSuchRequest`].
    ///
    /// # Errors
    /// Returns the errors of the blocking call, for example [`Comm::dup`]. After an error of the runtime itself, for
    /// example [`Error::Closed`], the creation is still under way.
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<C, Error>> {
        let result = self.try_finish()?;
        Some(self.parent.handle_result("Creation::test", result))
    }

    fn try_finish(&mut self) -> Option<Result<C, Error>> {
        let Some(id) = self.id else { return Some(Err(Error::NoSuchRequest)) };
        if self.parent.bounds.cancel.as_ref().is_some_and(crate::CancelToken::is_cancelled) {
            self.cancel();
        }
        match self.runtime.look(|engine| Ok(engine.agreement(id))) {
            Ok(Some(Progress::Awaits { .. })) => None,
            Ok(Some(Progress::Ended(end))) => {
                self.id = None;
                Some(self.end(end.map(Made::Comm), false))
            }
            Ok(Some(Progress::Decided(decision))) => {
                self.id = None;
                Some(self.end(Ok(Made::Decision(decision)), false))
            }
            Ok(None) => Some(Err(Error::NoSuchRequest)),
            Err(error) => Some(Err(self.parent.local_error(error))),
        }
    }

    /// Gives the creation up, unless it has ended. [`wait`](Self::wait) and [`test`](Self::test) return the result.
    pub fn cancel(&self) {
        if let Some(id) = self.id {
            let cancelled = samite_p2p::Error::Cancelled { fate: Fate::NotDelivered };
            self.runtime.act(|engine, now| engine.quit_agreement(now, id, cancelled));
        }
    }

    /// Returns the result of the creation. If `explains` is true, this call may wait for the launcher's report of why a
    /// peer failed.
    fn end(&self, end: Result<Made, samite_p2p::Error>, explains: bool) -> Result<C, Error> {
        let parent = &self.parent;
        match (end, &self.result) {
            (Ok(Made::Comm(agreed)), MakeResult::Comm(result)) => {
                let derived = |agreed: Agreed| Derived::new(Arc::clone(&parent.runtime), agreed, self.hints);
                result(parent, agreed.and_then(derived))
            }
            (Ok(Made::Decision(decision)), MakeResult::Decision(result)) => Ok(result(decision)),
            (Ok(_), _) => unreachable!("the kind of the agreement determines the kind of its result"),
            (Err(error), _) => {
                let error = error.public();
                let error = if explains { self.runtime.explain(error, &parent.bounds) } else { error };
                Err(parent.local_error(error))
            }
        }
    }
}

impl<C> Drop for Creation<C> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.runtime.act(|engine, now| engine.drop_agreement(now, id));
        }
    }
}

impl<C> std::fmt::Debug for Creation<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Creation").field("parent", &self.parent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use samite_fabric::Memory;
    use samite_p2p::{Time, WorldRank};

    use crate::Error;
    use crate::world::CONTROL;

    /// The two contexts of a communicator have consecutive numbers from an even number on, so names are even. The first
    /// names belong to the contexts of all ranks, and after the last names there is no later name for another creation.
    #[test]
    fn a_decision_for_contexts_that_do_not_exist_is_refused() {
        for name in [u64::MAX - 3, u64::MAX - 1, u64::MAX, 0, 3] {
            crate::local(2, |world| {
                let comm = world.comm();
                if comm.rank() == 0 {
                    let decision = Memory::new(vec![0, name, 0, 0, 0, 0]);
                    comm.runtime.act(|engine, now| {
                        engine.isend(now, WorldRank(1), CONTROL, 0, decision, Time::NEVER).unwrap();
                    });
                    comm.recv(&mut [0u8], crate::Rank(1), 7).unwrap();
                } else {
                    let refused = comm.dup();
                    assert!(matches!(refused, Err(Error::Exhausted { .. })), "{refused:?}");
                    assert!(comm.self_comm().is_ok(), "no context was used");
                    comm.send(&[0u8], crate::Rank(0), 7).unwrap();
                }
            });
        }
    }

    /// A restarted rank takes part in creations of the world, wherever it is in the tree of the agreement.
    #[test]
    fn a_rank_that_knows_no_number_learns_it_from_the_others() {
        for n in [2, 3, 5, 8] {
            for restarted in 0..n {
                let sizes = crate::local(n, |world| {
                    let comm = world.comm();
                    comm.dup()?;
                    comm.split(None, 0)?;
                    if comm.rank() == restarted {
                        comm.runtime.act(|engine, _| engine.expect_numbers());
                    }
                    // The second creation cannot choose numbers before the first creation has its numbers.
                    let (first, second) = (comm.idup()?, comm.idup()?);
                    second.wait()?;
                    first.wait()?;
                    comm.dup().map(|comm| comm.size())
                });
                assert_eq!(sizes, vec![Ok(n); n as usize]);
            }
        }
    }
}
