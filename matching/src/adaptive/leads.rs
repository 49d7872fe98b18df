//! The state of each context: a *lead* with two queues and a log.

use alloc::vec::Vec;
use core::mem;

use super::leaves::LeafList;
use super::list::Head;
use super::log::Log;
use super::table::Table;
use crate::structure::Selection;

/// The queues and the log of a context that has or had entries.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) context: u32,
    /// The context's two queues, by [`Side`](crate::Side).
    pub(super) queues: [QueueState; 2],
    /// The log of the context's messages, if there are many.
    pub(super) log: Log,
}

/// The state of one queue of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueState {
    /// The entries that are in no bin: all of them while there are few, later only the receives from any source.
    pub(super) list: Head,
    /// The number of entries.
    pub(super) len: u32,
    /// The leaves of the queue's bins.
    pub(super) leaves: LeafList,
    /// True if entries go to the bin of their rank.
    pub(super) is_binned: bool,
    /// True if the messages are in the log.
    pub(super) is_logged: bool,
    /// True if the receives in `list`, or the messages in the log, are also in the tag index.
    pub(super) is_tagged: bool,
}

impl QueueState {
    const EMPTY: Self = Self {
        list: None,
        len: 0,
        leaves: LeafList::EMPTY,
        is_binned: false,
        is_logged: false,
        is_tagged: false,
    };
}

/// The contexts. Up to `COMPARED` contexts are found by comparison. If there are more, all are found by hash.
#[derive(Debug)]
pub(super) struct Leads {
    /// The index in `leads` of the context that was found most recently.
    last: usize,
    last_context: u32,
    leads: Vec<Lead>,
    table: Table,
    /// Bytes in use for the table and for contexts beyond the first `FIXED`.
    bytes: usize,
}

/// The number of contexts whose memory is allocated with the structure. A communicator usually has two contexts, one
/// for its own messages and one for its collectives.
const FIXED: usize = 2;

/// The maximum number of contexts for which comparison is faster than hashing.
const COMPARED: usize = 8;

/// The maximum number of contexts at which empty contexts are kept, so that a queue that becomes empty and fills again
/// costs nothing.
const KEPT: usize = 64;

impl Leads {
    pub(super) fn new() -> Self {
        Self { last: 0, last_context: 0, leads: Vec::with_capacity(FIXED), table: Table::default(), bytes: 0 }
    }

    #[inline]
    pub(super) fn find(&mut self, context: u32) -> Option<&mut Lead> {
        if self.last_context != context {
            self.last = self.look_up(context)?;
            self.last_context = context;
        }
        // This is `None` if there are no contexts.
        self.leads.get_mut(self.last)
    }

    #[inline]
    pub(super) fn find_or_insert(&mut self, context: u32) -> &mut Lead {
        if self.find(context).is_none() {
            self.insert(context);
        }
        &mut self.leads[self.last]
    }

    /// Removes the context that was found most recently if it is empty and there are more than `KEPT` contexts.
    #[inline]
    pub(super) fn relax(&mut self) {
        if self.leads.len() > KEPT && self.leads[self.last].queues.iter().all(|queue| queue.len == 0) {
            self.remove_last();
        }
    }

    /// Removes the context that was found most recently. The context must be empty.
    #[cold]
    pub(super) fn remove_last(&mut self) {
        let (at, hashed) = (self.last, self.leads.len() > COMPARED);
        let removed = self.leads.swap_remove(at);
        debug_assert!(removed.queues.iter().all(|queue| queue.len == 0));
        if hashed {
            self.table.remove(removed.context);
            if let Some(moved) = self.leads.get(at) {
                self.table.remove(moved.context);
                self.table.insert(moved.context, at as u32);
            }
            if self.leads.len() == COMPARED {
                self.table = Table::default();
            }
        }
        self.last = 0;
        self.last_context = self.leads.first().map_or(0, |lead| lead.context);
        self.count_bytes();
    }

    /// Iterates over the contexts in which `selection` may select entries.
    pub(super) fn select(&self, selection: Selection) -> impl Iterator<Item = &Lead> {
        let leads = match selection {
            Selection::Context(context) => self.look_up(context).map_or(0..0, |at| at..at + 1),
            Selection::Source(_) => 0..self.leads.len(),
        };
        self.leads[leads].iter()
    }

    /// Returns the bytes in use for the table and for contexts beyond the first `FIXED`.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn reserved(&self) -> usize {
        let logs = self.leads.iter().map(|lead| lead.log.reserved());
        self.leads.capacity() * mem::size_of::<Lead>() + self.table.reserved() + logs.sum::<usize>()
    }

    /// Returns the maximum growth of [`bytes`](Self::bytes) for one more entry. The context of the new entry may be
    /// new, and so may the context of the single entry that was stored before it.
    pub(super) fn growth(&self) -> usize {
        2 * mem::size_of::<Lead>() + self.table.growth(COMPARED + 2)
    }

    #[cold]
    fn insert(&mut self, context: u32) {
        (self.last, self.last_context) = (self.leads.len(), context);
        self.leads.push(Lead { context, queues: [QueueState::EMPTY; 2], log: Log::EMPTY });
        match self.leads.len() {
            ..=COMPARED => {}
            len if len == COMPARED + 1 => {
                for (at, lead) in self.leads.iter().enumerate() {
                    self.table.insert(lead.context, at as u32);
                }
            }
            _ => self.table.insert(context, self.last as u32),
        }
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.bytes = self.leads.len().saturating_sub(FIXED) * mem::size_of::<Lead>() + self.table.bytes();
    }

    #[cold]
    fn look_up(&self, context: u32) -> Option<usize> {
        if self.leads.len() <= COMPARED {
            self.leads.iter().position(|lead| lead.context == context)
        } else {
            self.table.get(context).map(|at| at as usize)
        }
    }
}
