//! Contexts: which ranks may use each, and which of them have ended.
//!
//! A message names its context, and only receives of that context match it. The contexts below [`FIRST`] belong to all
//! ranks of the job, and are always there. Any other is opened for a group of ranks, its *members*. The members are
//! incarnations: one that has ended has ended for the context, even if its rank is started again.

use std::collections::{BTreeSet, HashMap};

use samite_fabric::link::{Group, Link};
use samite_fabric::wire::WireError;
use slab::Slab;

/// The first context that can be opened.
pub(crate) const FIRST: u32 = 2;

/// The contexts that were opened.
#[derive(Debug)]
pub(crate) struct Contexts {
    all: Slab<Context>,
    by_name: HashMap<u32, usize>,
    /// For each low part of a name, a context that was used recently, with its place. It spares the search.
    recent: [(u32, usize); RECENT],
    /// The number of contexts in which no member but this rank is left.
    pub(crate) deserted: usize,
}

const RECENT: usize = 16;

/// One context.
#[derive(Debug)]
struct Context {
    members: Group,
    /// The ranks of the members that have ended.
    ended: BTreeSet<u32>,
    /// True once this rank receives nothing in it any more.
    is_closed: bool,
}

impl Default for Contexts {
    fn default() -> Self {
        // No context has this name.
        let recent = [(0, 0); RECENT];
        Self { all: Slab::new(), by_name: HashMap::new(), recent, deserted: 0 }
    }
}

impl Contexts {
    /// Opens a context, unless its name is in use.
    pub(crate) fn open(&mut self, link: &Link, name: u32, members: Group) -> bool {
        if name < FIRST || self.by_name.contains_key(&name) {
            return false;
        }
        let has_ended = |rank: &u32| members.contains(*rank);
        let ended = link.peers().filter(|(_, peer)| !peer.is_alive()).map(|(_, peer)| peer.rank());
        let ended = ended.filter(has_ended).collect();
        let context = Context { members, ended, is_closed: false };
        self.deserted += usize::from(context.is_deserted());
        self.by_name.insert(name, self.all.insert(context));
        true
    }

    /// Notes that this rank receives nothing in a context any more. Returns false if it is not open.
    pub(crate) fn close(&mut self, name: u32) -> bool {
        match self.find(name).and_then(|place| self.all.get_mut(place)) {
            Some(context) if !context.is_closed => {
                self.deserted -= usize::from(context.is_deserted());
                context.is_closed = true;
                true
            }
            _ => false,
        }
    }

    /// Removes a closed context. Its name is free then.
    pub(crate) fn forget(&mut self, name: u32) {
        if let Some(place) = self.find(name)
            && self.all[place].is_closed
        {
            self.all.remove(place);
            self.by_name.remove(&name);
            self.recent[name as usize % RECENT] = (0, 0);
        }
    }

    /// Returns whether a message of a peer in a context is to be received (true) or dropped (false).
    ///
    /// # Errors
    /// The context is unknown, or the peer is no member.
    pub(crate) fn admit(&mut self, name: u32, source: u32) -> Result<bool, WireError> {
        let place = self.find(name).ok_or(WireError::Value { field: "context" })?;
        let context = &self.all[place];
        match context.members.contains(source) && !context.ended.contains(&source) {
            true => Ok(!context.is_closed),
            false => Err(WireError::Value { field: "context" }),
        }
    }

    /// Returns whether a rank is a member of an open context that has ended; `None` if it is no member.
    #[inline]
    pub(crate) fn has_ended(&mut self, name: u32, rank: u32) -> Option<bool> {
        if name < FIRST {
            return Some(false);
        }
        let place = self.find(name)?;
        let context = &self.all[place];
        (!context.is_closed && context.members.contains(rank)).then(|| context.ended.contains(&rank))
    }

    /// Returns true if a rank is a member of a context. All ranks are members of the contexts of the job.
    pub(crate) fn is_member(&self, name: u32, rank: u32) -> bool {
        name < FIRST || self.get(name).is_some_and(|context| context.members.contains(rank))
    }

    /// Returns true if only messages of this rank to itself can still arrive in an opened context, or none at all.
    pub(crate) fn is_deserted(&self, name: u32) -> bool {
        self.get(name).is_some_and(Context::is_deserted)
    }

    /// Notes that a rank has ended.
    pub(crate) fn rank_ended(&mut self, rank: u32) {
        for (_, context) in &mut self.all {
            if context.members.contains(rank) {
                let before = context.is_deserted();
                context.ended.insert(rank);
                self.deserted += usize::from(!context.is_closed && !before && context.is_deserted());
            }
        }
    }

    /// Asserts the invariants.
    pub(crate) fn check_invariants(&self, mut has_messages: impl FnMut(u32) -> bool) {
        assert_eq!(self.all.len(), self.by_name.len(), "each context has one name");
        let mut deserted = 0;
        for (&name, &place) in &self.by_name {
            let context = &self.all[place];
            deserted += usize::from(!context.is_closed && context.is_deserted());
            assert!(context.ended.iter().all(|rank| context.members.contains(*rank)), "only members end");
            assert!(
                !context.is_closed || !has_messages(name),
                "context {name} is closed and keeps a message"
            );
        }
        assert_eq!(self.deserted, deserted);
        for (name, place) in self.recent.into_iter().filter(|(name, _)| *name != 0) {
            assert_eq!(self.by_name.get(&name), Some(&place), "the recent places are right");
        }
    }

    fn get(&self, name: u32) -> Option<&Context> {
        self.all.get(*self.by_name.get(&name)?)
    }

    #[inline]
    fn find(&mut self, name: u32) -> Option<usize> {
        let recent = &mut self.recent[name as usize % RECENT];
        if recent.0 == name && name != 0 {
            return Some(recent.1);
        }
        let place = *self.by_name.get(&name)?;
        *recent = (name, place);
        Some(place)
    }
}

impl Context {
    /// Returns true if every member but one has ended, which is this rank.
    fn is_deserted(&self) -> bool {
        self.members.len() > 1 && self.ended.len() + 1 >= self.members.len() as usize
    }
}
