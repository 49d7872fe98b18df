//! Intrusive queues: circular, doubly linked by 32-bit slots, so that one head is a whole queue.

use crate::pool::{Pool, Slot};
use crate::query::Query;

/// An entry's links in the adaptive structure: 16 bytes in either queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdaptiveLinks {
    /// Neighbours among the entries that share a bin.
    bin: Neighbours,
    /// An unexpected message: neighbours in order of arrival. A posted receive: its serial number, in two halves.
    order: Neighbours,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    prev: Option<Slot>,
    next: Option<Slot>,
}

impl AdaptiveLinks {
    /// The serial number of a posted receive.
    pub(super) fn serial(&self) -> u64 {
        let [high, low] = [self.order.prev, self.order.next].map(|half| half.map_or(0, Slot::get));
        u64::from(high) << 32 | u64::from(low)
    }

    /// Gives a posted receive its serial number.
    pub(super) fn set_serial(&mut self, serial: u64) {
        self.order = Neighbours { prev: Slot::new((serial >> 32) as u32), next: Slot::new(serial as u32) };
    }
}

/// Which of an entry's links a ring goes through.
pub(super) trait Through {
    fn neighbours(links: &AdaptiveLinks) -> (Option<Slot>, Option<Slot>);
    fn prev(links: &mut AdaptiveLinks) -> &mut Option<Slot>;
    fn next(links: &mut AdaptiveLinks) -> &mut Option<Slot>;
}

/// Through the entries of one bin.
pub(super) struct Bin;

/// Through all messages of a context, in order of arrival.
pub(super) struct Order;

/// The first entry of a ring; its predecessor is the last one.
pub(super) type Head = Option<Slot>;

/// Appends the entry at `slot` to the ring.
#[inline(always)]
pub(super) fn push_back<W: Through, Q: Query, T>(
    head: &mut Head,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    slot: Slot,
) {
    let (first, last) = match *head {
        None => {
            *head = Some(slot);
            (slot, slot)
        }
        Some(first) => {
            let last = W::prev(&mut pool[first].links).replace(slot).unwrap_or(first);
            *W::next(&mut pool[last].links) = Some(slot);
            (first, last)
        }
    };
    let links = &mut pool[slot].links;
    *W::prev(links) = Some(last);
    *W::next(links) = Some(first);
}

/// Takes the entry at `slot`, which has these links, out of the ring that it is in.
#[inline(always)]
pub(super) fn unlink<W: Through, Q: Query, T>(
    head: &mut Head,
    pool: &mut Pool<Q, AdaptiveLinks, T>,
    slot: Slot,
    links: &AdaptiveLinks,
) {
    let (prev, next) = W::neighbours(links);
    if next == Some(slot) {
        *head = None;
        return;
    }
    if *head == Some(slot) {
        *head = next;
    }
    if let (Some(prev), Some(next)) = (prev, next) {
        *W::next(&mut pool[prev].links) = Some(next);
        *W::prev(&mut pool[next].links) = Some(prev);
    }
}

/// The entries of the ring, first to last.
pub(super) fn iter<'p, W: Through, Q: Query, T>(
    head: Head,
    pool: &'p Pool<Q, AdaptiveLinks, T>,
) -> impl Iterator<Item = Slot> + use<'p, W, Q, T> {
    core::iter::successors(head, move |&slot| {
        W::neighbours(&pool[slot].links).1.filter(|&next| Some(next) != head)
    })
}

impl Through for Bin {
    #[inline(always)]
    fn neighbours(links: &AdaptiveLinks) -> (Option<Slot>, Option<Slot>) {
        (links.bin.prev, links.bin.next)
    }

    fn prev(links: &mut AdaptiveLinks) -> &mut Option<Slot> {
        &mut links.bin.prev
    }

    fn next(links: &mut AdaptiveLinks) -> &mut Option<Slot> {
        &mut links.bin.next
    }
}

impl Through for Order {
    #[inline(always)]
    fn neighbours(links: &AdaptiveLinks) -> (Option<Slot>, Option<Slot>) {
        (links.order.prev, links.order.next)
    }

    fn prev(links: &mut AdaptiveLinks) -> &mut Option<Slot> {
        &mut links.order.prev
    }

    fn next(links: &mut AdaptiveLinks) -> &mut Option<Slot> {
        &mut links.order.next
    }
}
