//! Collective operations on intercommunicators.

use samite_coll::algorithms::between::Between;
use samite_coll::{Blocks, Place, Plan};

use super::Comm;
use crate::element::Element;
use crate::error::Error;
use crate::group::Group;
use crate::select::Root;

/// This rank's part in an operation with a root. Both are true at the root in a communicator of one group.
pub(super) struct Part {
    /// True if this rank passes data to the root, or gets data from it.
    pub(super) contributes: bool,
    /// True if this rank is the root.
    pub(super) is_root: bool,
}

impl Comm {
    /// Returns this rank's part in an operation with this root.
    pub(super) fn part(&self, root: Root) -> Part {
        match root {
            Root::Rank(root) => {
                Part { contributes: true, is_root: self.remote_size().is_none() && root == self.rank() }
            }
            Root::This => Part { contributes: false, is_root: true },
            Root::Beside => Part { contributes: false, is_root: false },
        }
    }

    /// Returns the number of ranks with which a rank exchanges blocks: the size of the communicator, or of the other
    /// group.
    pub(super) fn others(&self) -> usize {
        self.remote_size().unwrap_or_else(|| self.size()) as usize
    }

    /// Returns this rank's place among all ranks: in an intercommunicator, among the ranks of both groups.
    pub(super) fn place(&self) -> Place {
        self.groups().map_or_else(|| Place::new(self.rank().0, self.size()), |groups| groups.at)
    }

    /// Returns the two groups of an intercommunicator; `None` if the communicator has one group.
    pub(super) fn groups(&self) -> Option<Between> {
        let Group(remote) = self.remote_group()?;
        let own = self.members();
        // The order of the groups is that of `all_ranks`.
        let is_first = own.bounds() < remote.bounds();
        let (rank, [own, remote]) = (self.rank().0, [own.len(), remote.len()]);
        let all = own + remote;
        let (own, remote) = if is_first { (0..own, own..all) } else { (remote..all, 0..remote) };
        let at = Place::new(own.start + rank, all);
        Some(Between::new(own, remote, at))
    }

    /// Returns the two groups as [`groups`](Self::groups) does, for a call that is in place or not.
    ///
    /// # Errors
    /// [`Error::NeedsOneGroup`] if it is in place.
    pub(super) fn groups_unless(&self, in_place: bool) -> Result<Option<Between>, Error> {
        if in_place {
            self.check_one_group()?;
        }
        Ok(self.groups())
    }

    pub(super) fn bcast_between<T: Element>(
        &self,
        groups: &Between,
        len: usize,
        root: Root,
    ) -> Result<Plan, Error> {
        let algorithm = || self.table().bcast(&self.situation::<T>(len, true)).algorithm;
        self.rooted(root, |root| groups.bcast(root, len, algorithm()), || groups.bcast_from(len))
    }

    pub(super) fn gather_between<T: Element>(
        &self,
        groups: &Between,
        len: usize,
        root: Root,
    ) -> Result<Plan, Error> {
        let algorithm = || self.table().gather(&self.situation::<T>(len, true)).algorithm;
        self.rooted(root, |root| groups.gather(root, len, algorithm()), || groups.gather_to(len))
    }

    pub(super) fn scatter_between<T: Element>(
        &self,
        groups: &Between,
        len: usize,
        root: Root,
    ) -> Result<Plan, Error> {
        let algorithm = || self.table().scatter(&self.situation::<T>(len, true)).algorithm;
        self.rooted(root, |root| groups.scatter(root, len, algorithm()), || groups.scatter_from(len))
    }

    pub(super) fn reduce_between(
        &self,
        groups: &Between,
        root: Root,
        len: usize,
        commutes: bool,
    ) -> Result<Plan, Error> {
        self.rooted(root, |root| groups.reduce(root, len, commutes), || groups.reduce_to(len))
    }

    pub(super) fn allgather_between<T: Element>(&self, groups: &Between, sent: usize, output: usize) -> Plan {
        let received = output / self.others();
        let gather = self.table().gather(&self.situation::<T>(sent, true)).algorithm;
        let bcast = self.table().bcast(&self.situation::<T>(received * self.others(), true)).algorithm;
        groups.allgather([sent, received], gather, bcast)
    }

    pub(super) fn reduce_scatter_between<T: Element>(
        &self,
        groups: &Between,
        blocks: Blocks,
        commutes: bool,
    ) -> Plan {
        let situation = match blocks {
            Blocks::Equal(len) => self.situation::<T>(len, commutes),
            _ => self.uneven::<T>(0, commutes),
        };
        let scatter = self.table().scatter(&situation).algorithm;
        groups.reduce_scatter(blocks, commutes, scatter)
    }

    /// Returns the plan of an operation with a root: `member` gets the rank of a root in the other group, and `at_root`
    /// is the part of a root.
    pub(super) fn rooted(
        &self,
        root: Root,
        member: impl FnOnce(u32) -> Plan,
        at_root: impl FnOnce() -> Plan,
    ) -> Result<Plan, Error> {
        match root {
            Root::Rank(root) => self.check_rank(root).map(|()| member(root.0)),
            Root::This => Ok(at_root()),
            Root::Beside => Ok(Between::nothing()),
        }
    }
}

/// Returns the slice if it is used, and an empty slice otherwise.
pub(super) fn used<T>(slice: &[T], is_used: bool) -> &[T] {
    if is_used { slice } else { &[] }
}

/// Returns the slice if it is used, and an empty slice otherwise.
pub(super) fn used_mut<T>(slice: &mut [T], is_used: bool) -> &mut [T] {
    if is_used { slice } else { &mut [] }
}
