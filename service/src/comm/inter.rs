//! Intercommunicators: the ranks of one group send messages to those of another group (MPI 4.1, section 7.6).

use samite_p2p::{Choice, Leader};

use super::creation::member;
use super::{Comm, Creation};
use crate::error::Error;
use crate::group::Group;
use crate::select::Rank;

impl Comm {
    /// Creates an intercommunicator between the ranks of this communicator and those of another communicator
    /// (`MPI_Intercomm_create`). In it, destinations and sources are ranks of the *remote* group, and
    /// [`rank`](Self::rank), [`size`](Self::size) and [`group`](Self::group) are those of this rank's own group.
    ///
    /// All ranks of both communicators call it. `leader` is a rank of this communicator, and all its ranks pass the
    /// same leader. The two leaders communicate in `bridge`, a communicator that contains both of them; `remote_leader`
    /// is the rank that the leader of the other group has in `bridge`. Only the values that the leaders pass for
    /// `bridge` and `remote_leader` count; the other ranks may pass any values. If several creations between the same
    /// leaders are under way at the same time, the tag says which calls belong together. After a creation that failed,
    /// the same tag may be used again.
    ///
    /// All ranks of a communicator call creations in the same order (see [`dup`](Self::dup)). For both communicators
    /// this call is one of these creations. The new communicator has the bounds of this handle.
    ///
    /// # Errors
    /// Returns the errors of [`dup`](Self::dup); all living ranks of both groups return the same error.
    /// [`Error::InBothGroups`], [`Error::NeedsOneGroup`]; [`Error::InvalidRank`] if there is no such leader. If only
    /// the leader's `remote_leader` is invalid, the other ranks get [`Error::PeerFailed`] with the cause
    /// [`Cause::LeftComm`](crate::Cause::LeftComm).
    ///
    /// ```
    /// # samite::local(5, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, Source};
    ///
    /// // The first two ranks ask, and the other three answer.
    /// let asks = comm.rank().0 < 2;
    /// let mine = comm.split(Some(u32::from(asks)), 0)?.expect("it has a colour");
    /// let remote_leader = if asks { Rank(2) } else { Rank(0) };
    /// let servers = mine.create_intercomm(Rank(0), &comm, remote_leader, 7)?;
    /// assert_eq!((servers.size(), servers.remote_size()), if asks { (2, Some(3)) } else { (3, Some(2)) });
    /// if asks && servers.rank() == 1 {
    ///     servers.send(&[1u8], Rank(2), 5)?;
    /// } else if !asks && servers.rank() == 2 {
    ///     assert_eq!(servers.recv(&mut [0u8], Source::ANY, 5)?.peer, Rank(1));
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn create_intercomm(
        &self,
        leader: Rank,
        bridge: &Self,
        remote_leader: Rank,
        tag: u32,
    ) -> Result<Self, Error> {
        let begun = self.begin_intercomm(leader, bridge, remote_leader, tag);
        self.handle_result("create_intercomm", begun.and_then(Creation::finish))
    }

    /// Starts to create an intercommunicator as [`create_intercomm`](Self::create_intercomm) does, without waiting for
    /// the other ranks.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::NeedsOneGroup`], [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`]
    /// returns the other errors of [`create_intercomm`](Self::create_intercomm).
    pub fn icreate_intercomm(
        &self,
        leader: Rank,
        bridge: &Self,
        remote_leader: Rank,
        tag: u32,
    ) -> Result<Creation<Self>, Error> {
        self.handle_result("icreate_intercomm", self.begin_intercomm(leader, bridge, remote_leader, tag))
    }

    fn begin_intercomm(
        &self,
        leader: Rank,
        bridge: &Self,
        remote_leader: Rank,
        tag: u32,
    ) -> Result<Creation<Self>, Error> {
        self.check_one_group()?;
        self.check_rank(leader)?;
        let is_leader = leader == self.rank();
        let other = match is_leader {
            true => bridge.world_rank(remote_leader).map(|rank| {
                // The control context of an intercommunicator contains both groups.
                Some(Leader { rank, control: bridge.control(), tag })
            }),
            false => Ok(None),
        };
        let choice = |other| Choice::Remote { leader: leader.0, other };
        let other = other.and_then(|other| match other {
            Some(Leader { rank, .. }) if rank.0 >= self.runtime.size => {
                Err(Error::InvalidRank { rank: remote_leader, size: self.runtime.size })
            }
            other => Ok(other),
        });
        match other {
            Ok(other) => self.begin_creation(self.members(), None, choice(other), member),
            Err(error) => {
                // The other ranks of this group wait for this rank. So this rank takes part in the creation and gives
                // it up at once, which ends the calls of the other ranks.
                drop(self.begin_creation(self.members(), None, choice(None), member));
                Err(error)
            }
        }
    }

    /// Returns the remote group of an intercommunicator (`MPI_Comm_remote_group`); `None` if the communicator has one
    /// group (`MPI_Comm_test_inter`).
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// assert_eq!(world.comm().remote_group(), None);
    /// # });
    /// ```
    #[must_use]
    pub fn remote_group(&self) -> Option<Group> {
        let derived = self.derived.as_ref().filter(|derived| derived.own.is_some())?;
        Some(Group(derived.group.clone()))
    }

    /// Returns the number of ranks in the remote group of an intercommunicator (`MPI_Comm_remote_size`); `None` if the
    /// communicator has one group.
    #[must_use]
    pub fn remote_size(&self) -> Option<u32> {
        let derived = self.derived.as_ref().filter(|derived| derived.own.is_some())?;
        Some(derived.group.len())
    }

    /// Creates a communicator of the ranks of both groups of this intercommunicator (`MPI_Intercomm_merge`). All ranks
    /// of a group give the same value of `high`. A group that gives true comes behind a group that gives false, and
    /// each group keeps its order. If both groups give the same value, the group that contains the lowest rank of the
    /// job comes first.
    ///
    /// All ranks of both groups call it, under the rules of [`dup`](Self::dup).
    ///
    /// # Errors
    /// Returns the errors of [`dup`](Self::dup); [`Error::NeedsTwoGroups`].
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::Rank;
    ///
    /// let first = comm.rank() == 0;
    /// let mine = comm.split(Some(u32::from(first)), 0)?.expect("it has a colour");
    /// let both = mine.create_intercomm(Rank(0), &comm, Rank(u32::from(first)), 7)?;
    /// let merged = both.merge(first)?;
    /// assert_eq!(merged.size(), 3);
    /// assert_eq!(merged.rank(), if first { Rank(2) } else { Rank(comm.rank().0 - 1) });
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn merge(&self, high: bool) -> Result<Self, Error> {
        self.handle_result("merge", self.begin_merge(high).and_then(Creation::finish))
    }

    /// Starts to create a communicator as [`merge`](Self::merge) does, without waiting for other ranks.
    ///
    /// # Errors
    /// [`Error::NeedsTwoGroups`], [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`] returns the other errors of
    /// [`merge`](Self::merge).
    pub fn imerge(&self, high: bool) -> Result<Creation<Self>, Error> {
        self.handle_result("imerge", self.begin_merge(high))
    }

    fn begin_merge(&self, high: bool) -> Result<Creation<Self>, Error> {
        if self.remote_size().is_none() {
            return Err(Error::NeedsTwoGroups);
        }
        let (ranks, _) = self.all_ranks();
        self.begin_creation(ranks, None, Choice::Colour(Some(0), i64::from(high)), member)
    }

    /// Returns the ranks that take part in a split, and this rank's choice.
    pub(super) fn colours(&self, colour: Option<u64>, key: i64) -> (samite_p2p::Group, Choice) {
        match self.all_ranks() {
            (ranks, Choice::Groups { own, remote }) => {
                (ranks, Choice::ColourBetween { colour, key, own, remote })
            }
            (ranks, _) => (ranks, Choice::Colour(colour, key)),
        }
    }

    /// Returns the ranks that take part when all ranks of this communicator create another communicator, in an order
    /// that is the same at each of them. Returns also the choice with which this rank takes part in the creation of a
    /// duplicate.
    pub(super) fn all_ranks(&self) -> (samite_p2p::Group, Choice) {
        let own = self.members();
        let Some(Group(remote)) = self.remote_group() else { return (own.clone(), Choice::Group(own)) };
        let all = match own.bounds() < remote.bounds() {
            true => own.union(&remote),
            false => remote.union(&own),
        };
        (all, Choice::Groups { own, remote })
    }

    /// Returns the ranks that take part in a collective call: those of both groups of an intercommunicator.
    pub(crate) fn participants(&self) -> samite_p2p::Group {
        if self.remote_size().is_some() { self.all_ranks().0 } else { self.members() }
    }

    pub(crate) fn check_one_group(&self) -> Result<(), Error> {
        if self.remote_size().is_some() { Err(Error::NeedsOneGroup) } else { Ok(()) }
    }
}
