//! Intrusive lists, doubly linked by 32-bit slots. The first entry links to the last entry, so both ends of a list are
//! reached from a single head.

use crate::pool::{Pool, Slot};
use crate::query::Query;

/// The links of an entry in the adaptive structure: 16 bytes in either queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdaptiveLinks {
    /// The previous entry of the list. In the first entry of a list: the list's last entry.
    prev: Option<Slot>,
    /// The next entry of the list.
    pub(super) next: Option<Slot>,
    /// The serial number of the entry. For a message in the log: the message's place in the log.
    pub(super) order: u64,
}

impl AdaptiveLinks {
    /// Returns true if the entry at `slot` is the only entry of its list. `self` are the links of this entry.
    pub(super) fn is_alone(&self, slot: Slot) -> bool {
        self.prev == Some(slot)
    }
}

/// The first entry of a list.
pub(super) type Head = Option<Slot>;

/// Appends the entry at `slot`. `order` is its serial number, or its place in the log.
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

/// Removes the first entry of a list. `links` are the links of the removed entry.
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

/// Removes an entry that is not the first of its list. `links` are the links of the removed entry.
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

/// Removes the entry at `slot`. `links` are the links of the removed entry.
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

/// Iterates over the entries of a list, first to last.
pub(super) fn iter<Q: Query, T>(
    head: Head,
    pool: &Pool<Q, AdaptiveLinks, T>,
) -> impl Iterator<Item = Slot> + use<'_, Q, T> {
    core::iter::successors(head, |&slot| pool[slot].links.next)
}
