//! The contract between the matcher and the structures that order its queues.

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::config::Config;
use crate::meter::Meter;
use crate::pool::{Pool, Slot};
use crate::query::Query;

/// A structure that arranges the entries of both queues for searches.
///
/// The matcher owns the entries and asks the structure to find, insert and remove them. The structure stores its data
/// in the entries' links and in objects of its own. Every method is generic over the [`Query`], which selects
/// one of the two queues.
///
/// The contract is MPI's order: a search finds the matching entry that was inserted first. A receive from any source
/// and a receive from one source may match the same message, so the order holds across all sources of a context.
///
/// The trait is sealed, because its methods take types that only this crate creates.
pub trait Structure: Debug + Sized {
    /// The structure's data in each entry of the queue that `Q` searches.
    type Links<Q: Query>: Copy + Debug + Default;

    /// Returns an empty structure.
    fn new(config: &Config) -> Self;

    /// Returns the entry that was inserted first of all entries that match `query`. This method may reorganize the
    /// queue to shorten the next search. The reorganization may use up to `spare` bytes of memory, and subtracts the
    /// used bytes from `spare`.
    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, Self::Links<Q>, T>,
        query: &Q,
        spare: &mut usize,
        meter: &mut M,
    ) -> Option<Slot>;

    /// Finds an entry as [`find`](Self::find) does and takes it out of its queue; the entry stays in `pool`. If that
    /// needs a long search, changes nothing and returns `NotShort`: the caller then uses `find`, which may reorganize
    /// the queue. The default implementation never returns `NotShort`.
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

    /// Appends the entry at `slot`, new in `pool`, to the queue of `context`.
    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, Self::Links<Q>, T>, slot: Slot, context: u32);

    /// Takes the entry at `slot` out of the queue of `context`. The entry stays in `pool`.
    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, Self::Links<Q>, T>, slot: Slot, context: u32);

    /// Appends the selected entries with their contexts to `found`. The entries of one context are in insertion order.
    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, Self::Links<Q>, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    );

    /// Removes a context that has no entries.
    fn drop_context(&mut self, context: u32);

    /// Returns the bytes of the structure's own objects in use, without the entries and the structure's fixed part.
    fn bytes(&self) -> usize;

    /// Returns the bytes that the structure has allocated for its own objects, at least [`bytes`](Self::bytes).
    fn reserved(&self) -> usize;

    /// Returns an upper bound of the growth of [`bytes`](Self::bytes) when an entry of that context and source
    /// (32 bits as in an entry) is inserted into the queue that `Q` searches.
    fn growth<Q: Query>(&self, context: u32, source: u32) -> usize;
}

/// The error of [`Structure::take`]: the search would be long.
#[derive(Clone, Copy, Debug)]
pub struct NotShort;

/// The entries that [`Structure::select`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The entries of one source (32 bits as in an entry, so that any source can be selected) in every context.
    Source(u32),
    /// The entries of one context.
    Context(u32),
}

impl Selection {
    /// Returns true if an entry of that context and source is selected.
    pub(crate) fn includes(self, context: u32, source: u32) -> bool {
        match self {
            Self::Source(selected) => selected == source,
            Self::Context(selected) => selected == context,
        }
    }

    /// Returns true if entries of that source may be selected.
    pub(crate) fn has_source(self, source: u32) -> bool {
        match self {
            Self::Source(selected) => selected == source,
            Self::Context(_) => true,
        }
    }
}
