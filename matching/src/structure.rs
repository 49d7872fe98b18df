//! The contract between the engine and the structures that order its queues.

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;

/// How the entries of both queues are arranged so that searches find them.
///
/// The engine owns the entries and asks the structure to find, insert and remove them; the structure keeps what it
/// needs in an entry's links and in objects of its own. Every method is generic over the [`Query`], which says
/// which of the two queues is meant.
///
/// The contract is MPI's order: a search finds, among the entries that match, the one inserted first. Since a
/// receive from any source and one from a given source may match the same message, this holds across all sources
/// of a context.
///
/// The trait is sealed: its methods take types that only this crate makes.
pub trait Structure: Debug + Sized {
    /// What the structure keeps in each entry of the queue that `Q` searches.
    type Links<Q: Query>: Copy + Debug + Default;

    /// An empty structure.
    fn new(config: &Config) -> Self;

    /// The first inserted entry that matches `query`. May reorganize, so that the next search is shorter, and for that
    /// take up to `spare` bytes, which it takes off `spare`.
    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, Self::Links<Q>, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot>;

    /// Finds an entry as [`find`](Self::find) does and takes it out of its queue; it is still in `pool`. If that needs a long
    /// search, which `find` may shorten, nothing is done. By default no search can be shortened.
    #[inline(always)]
    fn take<Q: Query, T, M: Meter>(
        &mut self,
        pool: &mut Pool<Q, Self::Links<Q>, T>,
        query: &Q,
        meter: &mut M,
    ) -> Result<Option<Slot>, NotShort> {
        let slot = self.find(pool, query, &mut 0, meter);
        if let Some(slot) = slot {
            self.remove(pool, slot, query.context());
        }
        Ok(slot)
    }

    /// Takes the entry at `slot`, new in `pool`, into the queue of `context` as its last.
    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, Self::Links<Q>, T>, slot: Slot, context: u32);

    /// Takes the entry at `slot` out of the queue of `context`; it is still in `pool`.
    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, Self::Links<Q>, T>, slot: Slot, context: u32);

    /// Appends the selected entries with their contexts to `found`; within a context in the order of insertion.
    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, Self::Links<Q>, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    );

    /// Forgets a context, which has no entries any more.
    fn drop_context(&mut self, context: u32);

    /// Bytes of the structure's own objects in use, apart from the entries and from the structure's fixed part.
    fn bytes(&self) -> usize;

    /// Bytes that the structure holds from the allocator for its own objects, at least [`bytes`](Self::bytes).
    fn reserved(&self) -> usize;

    /// An upper bound of the bytes by which [`bytes`](Self::bytes) grows when an entry of that context and source
    /// (32 bits as in an entry) is inserted into the queue that `Q` searches.
    fn growth<Q: Query>(&self, context: u32, source: u32) -> usize;
}

/// A short search is not enough.
#[derive(Clone, Copy, Debug)]
pub struct NotShort;

/// The entries that [`Structure::select`] is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those of one source (32 bits as in an entry, so that any source can be selected) in every context.
    Source(u32),
    /// Those of one context.
    Context(u32),
}

impl Selection {
    /// Whether an entry of that context and source is selected.
    pub(crate) fn includes(self, context: u32, source: u32) -> bool {
        match self {
            Self::Source(selected) => selected == source,
            Self::Context(selected) => selected == context,
        }
    }

    /// Whether entries of that source may be selected.
    pub(crate) fn has_source(self, source: u32) -> bool {
        match self {
            Self::Source(selected) => selected == source,
            Self::Context(_) => true,
        }
    }
}
