//! Going on after a member has failed: revoked communicators, communicators and agreements of the survivors.
//!
//! How the survivors agree is in `samite_p2p`'s modules `survivors` and `consensus`.

use samite_p2p::Decision;

use super::creation::{Creation, member};
use super::{Comm, Hints};
use crate::error::Error;
use crate::group::Group;
use crate::runtime::Runtime;
use crate::transport::Transport;

/// The result of [`Comm::agree`]. All members that get a result get the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreement {
    /// The bits that are set in the flags of all members that took part.
    pub flags: u64,
    /// The members that one of these members knew to have failed, except those that all of them have acknowledged.
    pub failed: Group,
}

/// Going on after a member has failed. The calls follow ULFM, MPI's proposal for fault tolerance.
impl Comm {
    /// Revokes this communicator (`MPI_Comm_revoke`): every operation on it ends with [`Error::Revoked`], at every
    /// member, also operations under way and operations that begin later. Only one member needs to call it.
    ///
    /// A member that finds a failure calls this when other members, which exchange no message with the failed one, must
    /// stop too. The call waits for no other member. Each member that learns of it informs further ones, so all living
    /// members learn of it although this rank or others fail. They notice it in their next call that waits, or at their
    /// next message in the communicator.
    ///
    /// On a revoked communicator these calls still work: [`shrink`](Self::shrink), [`agree`](Self::agree),
    /// [`failed`](Self::failed), [`acknowledge`](Self::acknowledge), and calls without communication. Communicators
    /// that were created from it are not revoked, and operations of its [windows](crate::Window) continue.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Error, Rank};
    ///
    /// let work = comm.dup()?;
    /// if comm.rank() == 0 {
    ///     work.revoke()?;
    /// } else {
    ///     // Rank 0 sends nothing, but this call ends.
    ///     assert_eq!(work.recv(&mut [0u8], Rank(0), 7), Err(Error::Revoked));
    /// }
    /// let work = work.shrink()?;
    /// work.barrier()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn revoke(&self) -> Result<(), Error> {
        self.handle_result("revoke", self.runtime.revoke(self.context))
    }

    /// Returns true if a member has revoked this communicator and this rank knows it (`MPI_Comm_is_revoked`). Returns
    /// false after the `World` has ended.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.first_lane().look(|engine| Ok(engine.is_revoked(self.context))).unwrap_or(false)
    }

    /// Creates a communicator of the members that survive (`MPI_Comm_shrink`). The members keep their order. All
    /// surviving members call it, and all get the same group, although members fail meanwhile. It also works if the
    /// communicator is revoked.
    ///
    /// A member that fails during the call may still be in the group. A member that has left the job counts as failed,
    /// and so does a rank that was started again: its new process is no member of this communicator, and cannot take
    /// part. To work with it again, create a communicator of all ranks from the world's.
    ///
    /// The members must call this and [`agree`](Self::agree) in the same order, from one thread at a time. After a
    /// time-out or a cancel the caller has no communicator, but its process still answers the other members: they do
    /// not fail, and find that this rank has left the communicator.
    ///
    /// # Errors
    /// [`Error::NoFailureReports`] if the launcher does not report failures; [`Error::TimedOut`],
    /// [`Error::Cancelled`], [`Error::Exhausted`], [`Error::NeedsOneGroup`], [`Error::Closed`], [`Error::Forked`].
    /// [`Error::PeerFailed`] if the survivors go on without this rank: it was started again, or another member and this
    /// rank have given up each other.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Rank, reduction::Sum};
    ///
    /// if comm.rank() == 1 {
    ///     // This rank leaves.
    ///     return Ok(());
    /// }
    /// let survivors = comm.shrink()?;
    /// assert_eq!((survivors.size(), survivors.rank()), (2, Rank(comm.rank().0 / 2)));
    /// let mut sum = [1u64];
    /// survivors.allreduce_in_place(&mut sum, Sum)?;
    /// assert_eq!(sum, [2]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn shrink(&self) -> Result<Self, Error> {
        self.handle_result("shrink", self.begin_shrink().and_then(Creation::finish))
    }

    /// Starts to create a communicator as [`shrink`](Self::shrink) does (`MPI_Comm_ishrink`), without waiting for the
    /// other members.
    ///
    /// # Errors
    /// [`Error::NoFailureReports`], [`Error::NeedsOneGroup`], [`Error::Closed`], [`Error::Forked`].
    /// [`Creation::wait`] returns the other errors of [`shrink`](Self::shrink).
    pub fn ishrink(&self) -> Result<Creation<Self>, Error> {
        self.handle_result("ishrink", self.begin_shrink())
    }

    fn begin_shrink(&self) -> Result<Creation<Self>, Error> {
        let (runtime, control) = (self.survivors_lane()?, self.control());
        let members = self.members();
        let id = runtime
            .enter_now(&self.bounds)
            .ok_or_else(|| self.runtime.refused())?
            .start(|engine, now, deadline| engine.begin_shrink(now, control, members, deadline));
        Ok(Creation::of_comm(self, runtime, id, Hints::NONE, member))
    }

    /// Agrees on flags with the surviving members (`MPI_Comm_agree`): the result has the bits that are set in the flags
    /// of all members that take part, and names the members that have failed. All surviving members call it, and all
    /// get the same result, although members fail meanwhile. It also works if the communicator is revoked.
    ///
    /// So the members can find out if all have finished a step: each passes if its own part has succeeded.
    ///
    /// The members must call this and [`shrink`](Self::shrink) in the same order, from one thread at a time. After a
    /// time-out or a cancel the caller has no result, but its flags count, and its process still answers the other
    /// members.
    ///
    /// # Errors
    /// Returns the errors of [`shrink`](Self::shrink), except [`Error::Exhausted`]. A failure of another member is no
    /// error of this call.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::{Group, Rank};
    ///
    /// if comm.rank() == 1 {
    ///     // This rank leaves.
    ///     return Ok(());
    /// }
    /// let agreement = comm.agree(0b110 | u64::from(comm.rank().0 == 0))?;
    /// assert_eq!(agreement.flags, 0b110);
    /// assert_eq!(agreement.failed, Group::new([Rank(1)]).unwrap());
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn agree(&self, flags: u64) -> Result<Agreement, Error> {
        self.handle_result("agree", self.begin_agree(flags).and_then(Creation::finish))
    }

    /// Starts to agree on flags as [`agree`](Self::agree) does (`MPI_Comm_iagree`), without waiting for the other
    /// members.
    ///
    /// # Errors
    /// [`Error::NoFailureReports`], [`Error::NeedsOneGroup`], [`Error::Closed`], [`Error::Forked`].
    /// [`Creation::wait`] returns the other errors of [`agree`](Self::agree).
    pub fn iagree(&self, flags: u64) -> Result<Creation<Agreement>, Error> {
        self.handle_result("iagree", self.begin_agree(flags))
    }

    fn begin_agree(&self, flags: u64) -> Result<Creation<Agreement>, Error> {
        let (runtime, control) = (self.survivors_lane()?, self.control());
        let members = self.members();
        let id = runtime
            .enter_now(&self.bounds)
            .ok_or_else(|| self.runtime.refused())?
            .start(|engine, now, deadline| engine.begin_agree(now, control, members, flags, deadline));
        let result = |decision: Decision| Agreement { flags: decision.flags, failed: Group(decision.failed) };
        Ok(Creation::of_decision(self, runtime, id, result))
    }

    /// Returns the members of this communicator that this rank knows to have failed or left (`MPI_Comm_get_failed`), in
    /// the order of the communicator. Other ranks may know of more or fewer failures; [`agree`](Self::agree) returns a
    /// group that all know. For an intercommunicator these are members of both groups.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn failed(&self) -> Result<Group, Error> {
        let (control, members) = (self.control(), self.all_members());
        let failed = self.first_lane().look(|engine| Ok(engine.failed_members(control, &members)));
        self.handle_result("failed", failed.map(Group))
    }

    /// Acknowledges the failures that this rank knows, and returns the members that have failed
    /// (`MPI_Comm_ack_failed`). Receives from any source do not report these failures any more, also receives that wait
    /// already. [`agree`](Self::agree) does not report a failure that all surviving members have acknowledged.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn acknowledge(&self) -> Result<Group, Error> {
        let (contexts, members) = ([self.context, self.control()], self.all_members());
        let failed = self.runtime.acknowledge(contexts, &members);
        self.handle_result("acknowledge", failed.map(Group))
    }

    /// Returns the lane in which the members agree.
    ///
    /// # Errors
    /// [`Error::NeedsOneGroup`], [`Error::NoFailureReports`].
    fn survivors_lane(&self) -> Result<std::sync::Arc<Runtime<Transport>>, Error> {
        self.check_one_group()?;
        let runtime = self.first_lane();
        // A rank without others needs no reports.
        if runtime.tells_deaths || self.size() == 1 { Ok(runtime) } else { Err(Error::NoFailureReports) }
    }

    /// Returns the members of the communicator; for an intercommunicator, those of both groups.
    fn all_members(&self) -> samite_p2p::Group {
        let of_derived = self.derived.as_ref().map(|derived| derived.own().union(&derived.group));
        of_derived.unwrap_or_else(|| self.members())
    }
}

#[cfg(test)]
mod tests;
