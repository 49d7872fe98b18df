//! Contexts: the ranks that may use each of them, and those of these ranks that have ended.
//!
//! A message names its context, and only receives of that context match it. The contexts below [`FIRST`] belong to all
//! ranks of the job, and are always open. Any other context is opened for a group of ranks, its *members*. The members
//! are incarnations: if a rank is restarted, its new incarnation is not a member.

use std::collections::{BTreeMap, HashMap};

use samite_fabric::link::{Cause, Group, Link, WorldRank};
use samite_fabric::wire::WireError;
use slab::Slab;

/// The first context that can be opened.
pub(crate) const FIRST: u32 = 2;

/// The contexts that are open.
///
/// A rank uses each name at most once. A context below [`next`](Self::next) that is not open was closed by this rank,
/// or belongs to other ranks. Messages that arrive in it are dropped, so a closed context takes no memory.
#[derive(Debug)]
pub(crate) struct Contexts {
    all: Slab<Context>,
    by_name: HashMap<u32, usize>,
    /// A cache of living members with which this rank has exchanged a message, with the context in the high half of an
    /// entry and the rank in the low half. A hit saves two searches. All entries are cleared when a rank or a context
    /// ends.
    alive: [u64; ALIVE],
    /// The first name that this rank has never used.
    pub(crate) next: u32,
    /// The number of contexts in which all members except this rank have ended.
    pub(crate) deserted: usize,
    /// Members that left a context before it was opened here, by name and rank.
    early: Vec<(u32, WorldRank)>,
    /// The number of times that a rank has ended, or left a context.
    pub(crate) ends: u64,
}

const ALIVE: usize = 256;

/// The maximum number of entries in [`Contexts::early`] for one rank. A rank reaches it only if that many of its
/// threads create communicators at the same time. Beyond it the oldest entries are dropped, to limit the memory.
const EARLY_MAX: usize = 64;

/// One context.
#[derive(Debug)]
struct Context {
    members: Group,
    /// The ranks whose incarnations were members and have ended, with the cause that operations with them return.
    ended: BTreeMap<WorldRank, Cause>,
}

impl Default for Contexts {
    fn default() -> Self {
        let (all, by_name, early) = (Slab::new(), HashMap::new(), Vec::new());
        // An entry of 0 is empty: context 0 cannot be opened, so no member has it.
        Self { all, by_name, alive: [0; ALIVE], next: FIRST, deserted: 0, early, ends: 0 }
    }
}

impl Contexts {
    /// Opens a context, unless its name was used before. Returns the members that have left it already.
    #[cold]
    pub(crate) fn open(&mut self, link: &Link, name: u32, members: Group) -> Option<Vec<WorldRank>> {
        // The largest number is not opened, so that `next` cannot overflow.
        if name < self.next || name == u32::MAX {
            return None;
        }
        self.next = name + 1;
        let mut left = Vec::new();
        self.early.retain(|&(early, rank)| {
            if early == name && members.contains(rank) {
                left.push(rank);
            }
            early > name
        });
        let have_left = left.iter().map(|rank| (*rank, Cause::LeftContext));
        let failed = link.peers().filter(|(_, peer)| !peer.is_alive()).map(|(_, peer)| peer.rank());
        let failed = failed.filter(|rank| members.contains(*rank)).map(|rank| (rank, Cause::Restarted));
        let ended = have_left.chain(failed).collect();
        let context = Context { members, ended };
        self.deserted += usize::from(context.is_deserted());
        self.by_name.insert(name, self.all.insert(context));
        Some(left)
    }

    /// Closes a context. Returns its members, or `None` if it is not open.
    pub(crate) fn close(&mut self, name: u32) -> Option<Group> {
        let context = self.all.remove(self.by_name.remove(&name)?);
        self.deserted -= usize::from(context.is_deserted());
        self.alive = [0; ALIVE];
        Some(context.members)
    }

    /// Returns the members of an open context.
    pub(crate) fn members(&self, name: u32) -> Option<&Group> {
        Some(&self.get(name)?.members)
    }

    /// Returns the members of an open context that have ended, with the reasons.
    pub(crate) fn ended(&self, name: u32) -> impl Iterator<Item = (WorldRank, Cause)> + '_ {
        let ended = self.get(name).into_iter().flat_map(|context| &context.ended);
        ended.map(|(rank, cause)| (*rank, cause.clone()))
    }

    /// Returns true if the cache contains a living member of a context. If it does not, ask [`member`](Self::member).
    #[inline(always)]
    pub(crate) fn is_alive(&self, name: u32, rank: WorldRank) -> bool {
        let (at, key) = alive_at(name, rank);
        self.alive[at] == key
    }

    /// Returns true if a peer's message in a context must be received, and false if it must be dropped.
    ///
    /// # Errors
    /// [`WireError::Value`] if the context is unknown or the peer is not a member: the peer violates the protocol.
    #[inline(always)]
    pub(crate) fn admit(&mut self, name: u32, source: WorldRank) -> Result<bool, WireError> {
        if self.is_alive(name, source) { Ok(true) } else { self.admit_rare(name, source) }
    }

    #[cold]
    fn admit_rare(&mut self, name: u32, source: WorldRank) -> Result<bool, WireError> {
        let Some(place) = self.find(name) else {
            return if name < self.next { Ok(false) } else { Err(WireError::Value { field: "context" }) };
        };
        match self.all[place].member(source) {
            Some(None) => {
                self.note_alive(name, source);
                Ok(true)
            }
            _ => Err(WireError::Value { field: "context" }),
        }
    }

    /// Returns the cause for which a member of an open context has ended, or `Some(None)` if it has not ended. Returns
    /// `None` if the rank is not a member or the context is not open.
    #[cold]
    pub(crate) fn member(&mut self, name: u32, rank: WorldRank) -> Option<Option<Cause>> {
        if name < FIRST {
            return Some(None);
        }
        let place = self.find(name)?;
        let ended = self.all[place].member(rank)?.cloned();
        if ended.is_none() {
            self.note_alive(name, rank);
        }
        Some(ended)
    }

    /// Returns true if a rank is a member of a context. All ranks are members of the contexts of the job.
    #[inline(always)]
    pub(crate) fn is_member(&self, name: u32, rank: WorldRank) -> bool {
        name < FIRST || self.is_alive(name, rank) || self.is_opened_member(name, rank)
    }

    #[cold]
    fn is_opened_member(&self, name: u32, rank: WorldRank) -> bool {
        self.get(name).is_some_and(|context| context.members.contains(rank))
    }

    /// Returns true if all members of an open context except this rank have ended. Then only messages of this rank to
    /// itself can still arrive there.
    pub(crate) fn is_deserted(&self, name: u32) -> bool {
        self.get(name).is_some_and(Context::is_deserted)
    }

    /// Notes that a rank has ended.
    pub(crate) fn rank_ended(&mut self, rank: WorldRank) {
        self.ends += 1;
        self.alive = [0; ALIVE];
        for (_, context) in &mut self.all {
            let was_deserted = context.is_deserted();
            context.end(rank, Cause::Restarted);
            self.deserted += usize::from(!was_deserted && context.is_deserted());
        }
        self.early.retain(|&(_, early)| early != rank);
    }

    /// Notes that a peer has left a context. Returns true if it was a member that had not ended.
    ///
    /// # Errors
    /// [`WireError::Value`] if the peer is not a member: it violates the protocol.
    #[cold]
    pub(crate) fn member_left(&mut self, name: u32, rank: WorldRank) -> Result<bool, WireError> {
        if name < FIRST {
            return Err(WireError::Value { field: "context" });
        }
        if let Some(place) = self.find(name) {
            self.ends += 1;
            self.alive = [0; ALIVE];
            let context = &mut self.all[place];
            let was_deserted = context.is_deserted();
            let has_changed = context.end(rank, Cause::LeftContext);
            self.deserted += usize::from(!was_deserted && context.is_deserted());
            let is_member = context.members.contains(rank);
            return if is_member { Ok(has_changed) } else { Err(WireError::Value { field: "context" }) };
        }
        // The other members may have opened the context before this rank. If its name is below `next`, this rank has
        // closed it, or is not a member.
        if name >= self.next {
            let mut of_rank = self.early.iter().enumerate().filter(|(_, (_, early))| *early == rank);
            if let (Some((oldest, _)), EARLY_MAX..) = (of_rank.next(), 1 + of_rank.count()) {
                self.early.remove(oldest);
            }
            self.early.push((name, rank));
        }
        Ok(false)
    }

    /// Asserts the invariants.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.all.len(), self.by_name.len(), "each context has one name");
        let mut deserted = 0;
        for (&name, &place) in &self.by_name {
            let context = &self.all[place];
            deserted += usize::from(context.is_deserted());
            assert!(context.ended.keys().all(|rank| context.members.contains(*rank)), "only members end");
            assert!((FIRST..self.next).contains(&name), "the names in use are below the next one");
        }
        assert_eq!(self.deserted, deserted);
        for known in self.alive.into_iter().filter(|known| *known != 0) {
            let (name, rank) = ((known >> 32) as u32, WorldRank(known as u32));
            let member = self.get(name).and_then(|context| context.member(rank));
            assert_eq!(member, Some(None), "rank {rank} has not ended in context {name}");
        }
        assert!(
            self.early.iter().all(|(name, _)| *name >= self.next),
            "a context that was used is not awaited"
        );
    }

    fn get(&self, name: u32) -> Option<&Context> {
        self.all.get(*self.by_name.get(&name)?)
    }

    fn find(&self, name: u32) -> Option<usize> {
        self.by_name.get(&name).copied()
    }

    fn note_alive(&mut self, name: u32, rank: WorldRank) {
        let (at, key) = alive_at(name, rank);
        self.alive[at] = key;
    }
}

/// Returns the index of a member in [`Contexts::alive`], and the value of its entry there.
#[inline(always)]
fn alive_at(name: u32, rank: WorldRank) -> (usize, u64) {
    (name.wrapping_add(rank.0) as usize % ALIVE, u64::from(name) << 32 | u64::from(rank.0))
}

impl Context {
    /// Returns the cause for which a member has ended, `Some(None)` if it has not, and `None` if the rank is not a
    /// member.
    #[inline]
    fn member(&self, rank: WorldRank) -> Option<Option<&Cause>> {
        self.members.contains(rank).then(|| self.ended.get(&rank))
    }

    /// Notes that a rank has ended, if it is a member that had not ended. Returns true if it was one.
    fn end(&mut self, rank: WorldRank, why: Cause) -> bool {
        let is_new = self.members.contains(rank) && !self.ended.contains_key(&rank);
        if is_new {
            self.ended.insert(rank, why);
        }
        is_new
    }

    /// Returns true if all members except this rank have ended.
    fn is_deserted(&self) -> bool {
        self.members.len() > 1 && self.ended.len() + 1 >= self.members.len() as usize
    }
}
