//! The members and contexts of a communicator that its members have created.

use std::fmt;
use std::sync::{Arc, OnceLock};

use samite_p2p::{Agreed, Group, WorldRank};

use super::{Attached, Comm, Hints};
use crate::error::{Error, Status};
use crate::lanes::Lane;
use crate::runtime::{Counter, Runtime};
use crate::select::Rank;
use crate::transport::Transport;
use crate::world::{CONTEXT, CONTROL};

/// The members and contexts of a communicator. Its handles and their requests share this value; dropping the last
/// handle or request closes the contexts.
pub struct Derived {
    runtime: Arc<Runtime<Transport>>,
    /// The possible destinations, as ranks of the job: the members, or the remote group of an intercommunicator.
    pub(super) group: Group,
    /// This rank's group in an intercommunicator; `None` in a communicator of one group.
    pub(super) own: Option<Box<Group>>,
    /// This rank in the communicator.
    pub(super) rank: Rank,
    /// The context of the communicator's messages. In the context with the next number its members agree on further
    /// communicators.
    context: u32,
    /// This rank's promises.
    pub(super) hints: Hints,
    /// True if the hint [`exact_length`](Hints::exact_length) is checked at each receive.
    pub(crate) is_exact: bool,
    /// What most communicators do not use, allocated at the first use. A program may have millions of communicators.
    rare: OnceLock<Box<Rare>>,
}

/// The part of a communicator's state that only some communicators need.
#[derive(Default)]
struct Rare {
    /// The name and attributes.
    attached: Attached,
    /// The collective operations on each lane, allocated at the first one.
    counters: OnceLock<Box<[Counter]>>,
}

impl Derived {
    /// Returns the state of a communicator whose contexts are open; `None` if this rank is no member.
    pub(super) fn new(runtime: Arc<Runtime<Transport>>, agreed: Agreed, hints: Hints) -> Option<Self> {
        let Agreed { members, remote, context, .. } = agreed;
        let rank = Rank(members.index(runtime.rank)?);
        let (group, own) = match remote {
            Some(remote) => (remote, Some(Box::new(members))),
            None => (members, None),
        };
        let is_exact = runtime.checks.hints && hints.promise_exact_length();
        Some(Self { runtime, group, own, rank, context, hints, is_exact, rare: OnceLock::new() })
    }

    /// Returns the counter of the collective operations on a lane.
    pub(crate) fn counter(&self, lane: Lane) -> &Counter {
        let counters = || (0..lane.of).map(|_| Counter::default()).collect();
        &self.rare().counters.get_or_init(counters)[lane.number]
    }

    /// Returns the name and attributes.
    pub(super) fn attached(&self) -> &Attached {
        &self.rare().attached
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// Returns this rank's group.
    pub(super) fn own(&self) -> &Group {
        self.own.as_deref().unwrap_or(&self.group)
    }

    /// Returns the rank in the job of a rank of this communicator.
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    #[inline(always)]
    pub(crate) fn world_rank(&self, rank: Rank) -> Result<WorldRank, Error> {
        self.group.rank(rank.0).ok_or_else(|| self.no_such_rank(rank))
    }

    #[cold]
    fn no_such_rank(&self, rank: Rank) -> Error {
        Error::InvalidRank { rank, size: self.group.len() }
    }

    /// Returns the rank in this communicator of a rank of the job. In an intercommunicator it is the rank in the other
    /// group or, for a rank that takes part in a creation, in this rank's own group.
    pub(crate) fn local_rank(&self, rank: Rank) -> Rank {
        let member = WorldRank(rank.0);
        let own = || self.own.as_ref()?.index(member);
        self.group.index(member).or_else(own).map_or(rank, Rank)
    }

    /// Translates the ranks in a result from ranks of the job to ranks of this communicator.
    pub(crate) fn local(&self, result: Result<Status, Error>) -> Result<Status, Error> {
        match result {
            Ok(status) => Ok(Status { peer: self.local_rank(status.peer), ..status }),
            Err(error) => Err(error.in_comm(|rank| self.local_rank(rank))),
        }
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        self.runtime.close_contexts(self.context);
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived")
            .field("group", &self.group)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

impl Comm {
    /// Returns a handle with the bounds and the mode of this handle for the communicator with these members, or for the
    /// communicator of all ranks if `derived` is `None`.
    pub(crate) fn with_members(&self, derived: Option<Arc<Derived>>) -> Self {
        let context = derived.as_ref().map_or(CONTEXT, |derived| derived.context);
        let is_exact = derived.as_ref().is_some_and(|derived| derived.is_exact);
        let checks_receives = is_exact || self.runtime.checks.types;
        Self { derived, context, checks_receives, ..self.clone() }
    }

    /// Returns the runtime of the first lane. If the `World` has ended, returns the runtime of this handle's lane,
    /// since every lane returns the same error then.
    pub(super) fn first_lane(&self) -> Arc<Runtime<Transport>> {
        self.runtime.lane(0).unwrap_or_else(|_| Arc::clone(&self.runtime))
    }

    /// Returns the context in which the members agree on further communicators.
    pub(crate) fn control(&self) -> u32 {
        self.derived.as_ref().map_or(CONTROL, |derived| derived.context + 1)
    }
}
