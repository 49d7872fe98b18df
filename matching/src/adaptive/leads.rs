//! What is known of each context.

use core::mem;
use core::ops::{Index, IndexMut};

use smallvec::SmallVec;

use super::leaves::NO_LEAF;
use super::ring::Head;
use super::table::{Key, Table};

/// A context that has, or had, entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    pub(super) context: u32,
    /// Its two queues, by [`Side`](crate::Side).
    pub(super) queues: [Queue; 2],
}

/// One queue of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Posted: the receives that are in no bin of a rank. Unexpected: all messages, in order of arrival.
    pub(super) ring: Head,
    /// Entries.
    pub(super) len: u32,
    /// Entries that are in the bin of a rank.
    pub(super) binned_len: u32,
    /// The first of the queue's leaves.
    pub(super) leaf: u32,
    /// Whether entries go to the bin of their rank.
    pub(super) is_binned: bool,
    /// Whether the entries of `ring` are also in the tag index.
    pub(super) is_tagged: bool,
}

impl Queue {
    pub(super) const EMPTY: Self =
        Self { ring: None, len: 0, binned_len: 0, leaf: NO_LEAF, is_binned: false, is_tagged: false };
}

/// The contexts: the first two in place, a handful found by comparing, more by hash.
#[derive(Debug, Default)]
pub(super) struct Leads {
    leads: SmallVec<[Lead; INLINE]>,
    table: Table,
    /// The one found last.
    last: usize,
}

/// Contexts stored in place: a communicator commonly has two, for its own messages and for its collectives.
const INLINE: usize = 2;

/// Contexts up to which comparing is faster than hashing.
const COMPARED: usize = 8;

/// Empty contexts are kept up to this many, so that queues that run empty and fill again cost nothing.
const KEPT: usize = 64;

impl Leads {
    pub(super) fn find(&mut self, context: u32) -> Option<usize> {
        if self.leads.get(self.last).is_some_and(|lead| lead.context == context) {
            return Some(self.last);
        }
        let found = if self.leads.len() <= COMPARED {
            self.leads.iter().position(|lead| lead.context == context)?
        } else {
            self.table.get(key(context))? as usize
        };
        self.last = found;
        Some(found)
    }

    pub(super) fn find_or_insert(&mut self, context: u32) -> usize {
        if let Some(found) = self.find(context) {
            return found;
        }
        self.last = self.leads.len();
        self.leads.push(Lead { context, queues: [Queue::EMPTY; 2] });
        match self.leads.len() {
            ..=COMPARED => {}
            len if len == COMPARED + 1 => {
                for (at, lead) in self.leads.iter().enumerate() {
                    self.table.insert(key(lead.context), at as u32);
                }
            }
            _ => self.table.insert(key(context), self.last as u32),
        }
        self.last
    }

    /// Forgets an empty context if there are many.
    pub(super) fn relax(&mut self, at: usize) {
        if self.leads.len() > KEPT {
            self.remove(at);
        }
    }

    /// Forgets an empty context.
    pub(super) fn remove(&mut self, at: usize) {
        let hashed = self.leads.len() > COMPARED;
        let removed = self.leads.swap_remove(at);
        debug_assert!(removed.queues.iter().all(|queue| queue.len == 0));
        if !hashed {
            return;
        }
        self.table.remove(key(removed.context));
        if let Some(moved) = self.leads.get(at) {
            self.table.remove(key(moved.context));
            self.table.insert(key(moved.context), at as u32);
        }
        if self.leads.len() == COMPARED {
            self.table = Table::default();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lead> {
        self.leads.iter()
    }

    /// Bytes of the contexts that are not in place.
    pub(super) fn bytes(&self) -> usize {
        let outside = if self.leads.spilled() { self.leads.len() } else { 0 };
        outside * mem::size_of::<Lead>() + self.table.bytes()
    }

    pub(super) fn reserved(&self) -> usize {
        let outside = if self.leads.spilled() { self.leads.capacity() } else { 0 };
        outside * mem::size_of::<Lead>() + self.table.reserved()
    }

    /// The most by which [`bytes`](Self::bytes) grows with one more context.
    pub(super) fn growth(&self, context: u32) -> usize {
        if self.iter().take(COMPARED).any(|lead| lead.context == context)
            || self.table.get(key(context)).is_some()
        {
            return 0;
        }
        let spilling = if self.leads.spilled() { 1 } else { INLINE + 1 };
        spilling * mem::size_of::<Lead>() + self.table.growth(COMPARED + 1)
    }
}

impl Index<usize> for Leads {
    type Output = Lead;

    fn index(&self, at: usize) -> &Lead {
        &self.leads[at]
    }
}

impl IndexMut<usize> for Leads {
    fn index_mut(&mut self, at: usize) -> &mut Lead {
        &mut self.leads[at]
    }
}

fn key(context: u32) -> Key {
    Key { context, block: 0 }
}
