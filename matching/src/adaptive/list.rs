//! Intrusive lists: doubly linked by 32-bit slots, the first entry knowing the last, so that one head is a whole queue.

use crate::pool::{Pool, Slot};
use crate::query::Query;

/// An entry's links in the adaptive structure: 16 bytes in either queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdaptiveLinks {
    /// The entry before in its list; of the first entry, the last.
    prev: Option<Slot>,
    /// The entry behind in its list.
    pub(super) next: Option<Slot>,
    /// The serial number; of a message in the log, its place there.
    pub(super) order: u64,
}

impl AdaptiveLinks {
    /// Whether the entry at `slot`, which has these links, is the only one of its list.
    pub(super) fn is_alone(&self, slot: Slot) -> bool {
        self.prev == Some(slot)
    }
}

/// The first entry of a list.
pub(super) type Head = Option<Slot>;

/// Appends the entry at `slot`, which comes in this order.
#[inline(always)]
pub(super) fn push_back<Q: Query, T>(
    head: &mut Head,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    slot: Slot,
    order: u64,
) {
    let last = match *head {
        None => {
            *head = Some(slot);
            slot
        }
        Some(first) => {
            let last = pool[first].links.prev.replace(slot).unwrap_or(first);
            pool[last].links.next = Some(slot);
            last
        }
    };
    pool[slot].links = AdaptiveLinks { prev: Some(last), next: None, order };
}

/// Takes out the first entry, which has these links.
#[inline(always)]
pub(super) fn pop_front<Q: Query, T>(
    head: &mut Head,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    links: &AdaptiveLinks,
) {
    *head = links.next;
    if let Some(next) = links.next {
        pool[next].links.prev = links.prev;
    }
}

/// Takes out another entry than the first, with these links.
#[inline(always)]
pub(super) fn unlink_behind<Q: Query, T>(
    first: Slot,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    links: &AdaptiveLinks,
) {
    if let Some(prev) = links.prev {
        pool[prev].links.next = links.next;
        pool[links.next.unwrap_or(first)].links.prev = Some(prev);
    }
}

/// Takes out the entry at `slot`, which has these links.
#[inline(always)]
pub(super) fn unlink<Q: Query, T>(
    head: &mut Head,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    slot: Slot,
    links: &AdaptiveLinks,
) {
    match *head {
        Some(first) if first != slot => unlink_behind(first, pool, links),
        _ => pop_front(head, pool, links),
    }
}

/// The entries of a list, first to last.
pub(super) fn iter<Q: Query, T>(
    head: Head,
    pool: &Pool<Q, AdaptiveLinks, T>,
) -> impl Iterator<Item = Slot> + use<'_, Q, T> {
    core::iter::successors(head, |&slot| pool[slot].links.next)
}
